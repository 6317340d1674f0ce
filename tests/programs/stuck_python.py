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
import time
from ctypes import POINTER, byref, c_int, c_size_t, c_void_p

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
COUNT, INT32, SUM = 256, 2, 0


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


nccl, cuda = ctypes.CDLL("libnccl.so.2"), ctypes.CDLL("libcudart.so.13")
nccl.ncclCommInitRank.argtypes = [POINTER(c_void_p), c_int, UniqueId, c_int]
nccl.ncclAllReduce.argtypes = [c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p]
cuda.cudaMalloc.argtypes = [POINTER(c_void_p), c_size_t]
cuda.cudaStreamSynchronize.argtypes = [c_void_p]
extension = ctypes.PyDLL(os.environ["STUCK_PYTHON_EXTENSION"])


def check(result):
    if result:
        sys.exit(f"rank {RANK}: error {result}")


def unique_id():
    """Rank 0 makes it; the others read it from the folder that spawn made."""
    made, path = UniqueId(), os.path.join(os.environ["SPAWN_DIR"], "stuck-id")
    if RANK == 0:
        check(nccl.ncclGetUniqueId(byref(made)))
        with open(path + ".new", "wb") as file:
            file.write(bytes(made))
        os.rename(path + ".new", path)
    while not os.path.exists(path):
        time.sleep(0.01)
    with open(path, "rb") as file:
        return UniqueId.from_buffer_copy(file.read())


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
