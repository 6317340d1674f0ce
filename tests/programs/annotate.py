#!/usr/bin/env python3
"""A Python program that tells the guard more than it can see (ncclguard.py); without the guard it does the same.

    annotate_python [--calls N]

Run by spawn. Every rank makes a communicator, whose id goes by way of the guard where there is one, N all-reduces, and
asks the guard what it knows of them.
"""
import ctypes
import os
import sys
import time
from ctypes import POINTER, byref, c_int, c_size_t, c_void_p

import ncclguard

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
COUNT, INT32, SUM, TO_HOST, TO_DEVICE = 256, 2, 0, 2, 1
CALLS = int(sys.argv[2]) if len(sys.argv) > 2 else 50


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


nccl, cuda = ctypes.CDLL("libnccl.so.2"), ctypes.CDLL("libcudart.so.13")
nccl.ncclCommInitRank.argtypes = [POINTER(c_void_p), c_int, UniqueId, c_int]
nccl.ncclAllReduce.argtypes = [c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p]
nccl.ncclCommDestroy.argtypes = [c_void_p]
cuda.cudaMalloc.argtypes = [POINTER(c_void_p), c_size_t]
cuda.cudaMemcpy.argtypes = [c_void_p, c_void_p, c_size_t, c_int]
cuda.cudaStreamSynchronize.argtypes = [c_void_p]


def check(result):
    if result:
        sys.exit(f"rank {RANK}: error {result}")


def expect(holds, what):
    if not holds:
        sys.exit(f"rank {RANK}: not so: {what}")


def by_file(made):
    """As programs do it without a guard: by the folder that spawn made."""
    path = os.path.join(os.environ["SPAWN_DIR"], "annotate-id")
    if RANK == 0:
        with open(path + ".new", "wb") as file:
            file.write(bytes(made))
        os.rename(path + ".new", path)
    while not os.path.exists(path):
        time.sleep(0.01)
    with open(path, "rb") as file:
        return UniqueId.from_buffer_copy(file.read())


def unique_id():
    made = UniqueId()
    if RANK == 0:
        check(nccl.ncclGetUniqueId(byref(made)))
    if not ncclguard.present():
        expect(ncclguard.get("id") is None and not ncclguard.put("id", b"x"), "nothing happens without a guard")
        return by_file(made)
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
    comm, stream, buffer = c_void_p(), c_void_p(), c_void_p()
    check(nccl.ncclCommInitRank(byref(comm), SIZE, unique_id(), RANK))
    check(cuda.cudaStreamCreate(byref(stream)))
    check(cuda.cudaMalloc(byref(buffer), 4 * COUNT))
    check(cuda.cudaMemcpy(buffer, (c_int * COUNT)(*[RANK + 1] * COUNT), 4 * COUNT, TO_DEVICE))
    ncclguard.group_name(comm.value, "python")
    ncclguard.on_completion(lambda done: told.append((done.operation, done.sequence, done.group_name)))
    ncclguard.timeout_set(comm.value, 100)
    ncclguard.barrier(comm.value, 20)
    with ncclguard.phase("warm up", comm.value):
        for _ in range(CALLS):
            check(nccl.ncclAllReduce(buffer, buffer, COUNT, INT32, SUM, comm, stream))
            check(cuda.cudaStreamSynchronize(stream))
    ask(comm.value, told)
    refused(-2, ncclguard.group_name, 12345, "x")
    refused(-90, ncclguard.group_name, comm.value, "x" * 100)
    refused(-110, ncclguard.get, "never", 0.1)
    result = (c_int * COUNT)()
    check(cuda.cudaMemcpy(result, buffer, 4 * COUNT, TO_HOST))
    check(nccl.ncclCommDestroy(comm))
    # In one piece, among the lines of other ranks.
    sys.stdout.write(f"rank {RANK} ok sum={sum(result) % 1000003}\n")


main()
