"""Holds processes as a debugger does: attaches to all their threads, stops them, lets them go.

    debugger.py SECONDS PID…

Exit status 3 where this machine lets nobody attach. Linux's ptrace by hand: a debugger may not be there, and with its
symbols takes its time.
"""
import ctypes
import os
import sys
import time

SEIZE, INTERRUPT, DETACH = 0x4206, 0x4207, 17
WALL = 0x40000000  # threads, too

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


def ptrace(request, thread):
    """0, or the error."""
    return 0 if libc.ptrace(request, thread, None, None) == 0 else ctypes.get_errno()


def attach(pid):
    """Every thread of a process; those that it makes meanwhile, too."""
    held = set()
    while new := {int(entry) for entry in os.listdir(f"/proc/{pid}/task")} - held:
        for thread in new:
            error = ptrace(SEIZE, thread)
            if error == 1:
                sys.exit(3)
            if error == 0 and ptrace(INTERRUPT, thread) == 0:
                os.waitpid(thread, WALL)
            held.add(thread)
    return held


def main():
    seconds, pids = float(sys.argv[1]), [int(pid) for pid in sys.argv[2:]]
    threads = [thread for pid in pids for thread in attach(pid)]
    print(f"{len(threads)} threads of {len(pids)} processes are held", flush=True)
    time.sleep(seconds)
    for thread in threads:
        ptrace(DETACH, thread)


main()
