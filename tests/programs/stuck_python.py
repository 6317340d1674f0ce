#!/usr/bin/env python3
"""A Python program one rank of which gets stuck in user code, and so does not come to its next collective.

    stuck_python.py HOW RANK

HOW  spin    in a C extension's loop, with the interpreter's lock held
     wait    in a C extension that sleeps, with the interpreter's lock held
     loop    in Python code
     thread  in a lock, while another thread works in Python code

Run by spawn; the other ranks wait for the rank in an all-reduce.
"""
import ctypes
import os
import sys
import threading
from ctypes import byref, c_void_p

from python_ranks import COUNT, INT32, RANK, SIZE, SUM, check, cuda, nccl, unique_id

extension = ctypes.PyDLL(os.environ["STUCK_PYTHON_EXTENSION"])


def load_batch(how):
    """Where the data never come."""
    os.write(2, f"rank {RANK} (pid {os.getpid()}): stuck\n".encode())
    if how in ("spin", "wait"):
        extension.stuck_python_extension(how == "spin")
    elif how == "loop":
        while True:
            pass
    else:
        lock = threading.Lock()
        lock.acquire()
        threading.Thread(target=busy_worker, daemon=True).start()
        lock.acquire()


def busy_worker():
    while True:
        pass


def train(how, stuck):
    check(cuda.cudaSetDevice(int(os.environ.get("LOCAL_RANK", 0))))
    comm, stream, buffer = c_void_p(), c_void_p(), c_void_p()
    check(nccl.ncclCommInitRank(byref(comm), SIZE, unique_id(), RANK))
    check(cuda.cudaStreamCreate(byref(stream)))
    check(cuda.cudaMalloc(byref(buffer), 4 * COUNT))
    for step in range(1, 1000):
        if step == 5 and RANK == stuck:
            load_batch(how)
        check(nccl.ncclAllReduce(buffer, buffer, COUNT, INT32, SUM, comm, stream))
        check(cuda.cudaStreamSynchronize(stream))


train(sys.argv[1], int(sys.argv[2]))
