#!/usr/bin/env python3
"""A Python program that tells the guard more than it can see (ncclguard.py); without the guard it does the same.

    annotate_python [--calls N]

Run by spawn. Every rank makes a communicator, whose id goes by way of the guard where there is one, N all-reduces, and
asks the guard what it knows of them.
"""
import os
import sys
from ctypes import c_int

import ncclguard
from python_ranks import COUNT, RANK, SIZE, Caller, UniqueId, check, cuda, id_by_file, made_id, nccl

TO_HOST, TO_DEVICE = 2, 1
CALLS = int(sys.argv[2]) if len(sys.argv) > 2 else 50


def expect(holds, what):
    if not holds:
        sys.exit(f"rank {RANK}: not so: {what}")


def unique_id():
    made = made_id()
    if not ncclguard.present():
        expect(ncclguard.get("id") is None and not ncclguard.put("id", b"x"), "nothing happens without a guard")
        return id_by_file(made)
    if RANK == 0:
        ncclguard.put("id", bytes(made), seconds=20)
    return UniqueId.from_buffer_copy(ncclguard.get("id", seconds=20))


def refused(code, function, *arguments):
    try:
        function(*arguments)
    except ncclguard.Error as error:
        expect(error.code == code, f"{error} has code {code}")
        return
    expect(not ncclguard.present(), f"{function.__name__} refuses {arguments}")


def ask(comm, told):
    """What the guard knows when all calls have ended."""
    dropped = ncclguard.completion_stop(20)
    status = ncclguard.group_status(comm)
    if not ncclguard.present():
        expect(dropped is None and status is None, "without a guard nobody knows")
        return
    expect(len(told) == CALLS and dropped == 0, f"{CALLS} calls are told once each, not {len(told)}")
    expect(told[0] == ("AllReduce", 1, "python") and told[-1][1] == CALLS, "in order, with names")
    expect(status["completed"] == CALLS and status["name"] == "python" and status["nranks"] == SIZE, str(status))
    expect(not status["aborted"], "nobody has aborted it")


def main():
    told = []
    check(cuda.cudaSetDevice(int(os.environ.get("LOCAL_RANK", 0))))
    caller = Caller(unique_id(), SIZE, RANK)
    comm = caller.comm
    check(cuda.cudaMemcpy(caller.buffer, (c_int * COUNT)(*[RANK + 1] * COUNT), 4 * COUNT, TO_DEVICE))
    ncclguard.group_name(comm.value, "python")
    ncclguard.on_completion(lambda done: told.append((done.operation, done.sequence, done.group_name)))
    ncclguard.timeout_set(comm.value, 100)
    ncclguard.barrier(comm.value, 20)
    with ncclguard.phase("warm up", comm.value):
        for _ in range(CALLS):
            caller.call()
            caller.wait()
    ask(comm.value, told)
    refused(-2, ncclguard.group_name, 12345, "x")
    refused(-90, ncclguard.group_name, comm.value, "x" * 100)
    refused(-110, ncclguard.get, "never", 0.1)
    result = (c_int * COUNT)()
    check(cuda.cudaMemcpy(result, caller.buffer, 4 * COUNT, TO_HOST))
    check(nccl.ncclCommDestroy(comm))
    # In one piece, among the lines of other ranks.
    sys.stdout.write(f"rank {RANK} ok sum={sum(result) % 1000003}\n")


main()
