#!/usr/bin/env python3
"""A Python program of one rank whose interpreter, or process, does something that takes frames away.

    ended_python.py HOW

HOW  daemon   ends while daemon threads call NCCL
     exit     calls NCCL from atexit, and from the C library's exit handlers after it
     fork     calls, forks a child that ends, calls again, and is killed
     several  has a second interpreter between two calls, and is killed
"""
import atexit
import ctypes
import os
import signal
import sys
import threading
from ctypes import c_void_p

from python_ranks import Caller, check, cuda, made_id, nccl

THREADS = 4


def caller_alone():
    check(cuda.cudaSetDevice(0))
    return Caller(made_id())


def library():
    loaded = ctypes.CDLL(os.environ["AT_END"])
    loaded.at_end_register.argtypes = [c_void_p] * 4
    loaded.at_end_loop.argtypes = [c_void_p] * 5
    return loaded


def call_for_ever(loaded, ready):
    def deeper(depth):
        if depth:
            return deeper(depth - 1)
        caller.call()
        ready.release()
        return loaded.at_end_loop(ctypes.cast(nccl.ncclAllReduce, c_void_p),
                                  ctypes.cast(cuda.cudaStreamSynchronize, c_void_p), caller.buffer, caller.comm,
                                  caller.stream)

    caller = caller_alone()
    check(deeper(200))


def daemon():
    loaded, ready = library(), threading.Semaphore(0)
    check(loaded.at_end_await())
    for _ in range(THREADS):
        threading.Thread(target=call_for_ever, args=(loaded, ready), daemon=True).start()
    for _ in range(THREADS):
        ready.acquire()


def leave():
    caller = caller_alone()
    check(library().at_end_register(ctypes.cast(nccl.ncclAllReduce, c_void_p), caller.buffer, caller.comm,
                                    caller.stream))
    atexit.register(caller.call)
    caller.call()
    globals()["kept"] = caller


def fork():
    caller = caller_alone()

    def before():
        caller.call()

    def after():
        caller.call()

    before()
    child = os.fork()
    if child == 0:
        sys.exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0:
        sys.exit("the child failed")
    after()
    caller.wait()
    os.kill(os.getpid(), signal.SIGKILL)


def several():
    try:
        import _interpreters as interpreters
    except ImportError:
        import _xxsubinterpreters as interpreters
    caller = caller_alone()

    def alone():
        caller.call()

    alone()
    second = interpreters.create()
    alone()
    interpreters.destroy(second)
    alone()
    caller.wait()
    os.kill(os.getpid(), signal.SIGKILL)


{"daemon": daemon, "exit": leave, "fork": fork, "several": several}[sys.argv[1]]()
