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
from ctypes import POINTER, byref, c_int, c_size_t, c_void_p

COUNT, INT32, SUM, THREADS = 256, 2, 0, 4


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


nccl, cuda = ctypes.CDLL("libnccl.so.2"), ctypes.CDLL("libcudart.so.13")
nccl.ncclCommInitRank.argtypes = [POINTER(c_void_p), c_int, UniqueId, c_int]
nccl.ncclAllReduce.argtypes = [c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p]
cuda.cudaMalloc.argtypes = [POINTER(c_void_p), c_size_t]
cuda.cudaStreamSynchronize.argtypes = [c_void_p]


def check(result):
    if result:
        sys.exit(f"error {result}")


class Caller:
    def __init__(self):
        self.comm, self.stream, self.buffer = c_void_p(), c_void_p(), c_void_p()
        made = UniqueId()
        check(cuda.cudaSetDevice(0))
        check(nccl.ncclGetUniqueId(byref(made)))
        check(nccl.ncclCommInitRank(byref(self.comm), 1, made, 0))
        check(cuda.cudaStreamCreate(byref(self.stream)))
        check(cuda.cudaMalloc(byref(self.buffer), 4 * COUNT))

    def call(self):
        check(nccl.ncclAllReduce(self.buffer, self.buffer, COUNT, INT32, SUM, self.comm, self.stream))

    def wait(self):
        check(cuda.cudaStreamSynchronize(self.stream))


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

    caller = Caller()
    check(deeper(200))


def daemon():
    loaded, ready = library(), threading.Semaphore(0)
    check(loaded.at_end_await())
    for _ in range(THREADS):
        threading.Thread(target=call_for_ever, args=(loaded, ready), daemon=True).start()
    for _ in range(THREADS):
        ready.acquire()


def leave():
    caller = Caller()
    check(library().at_end_register(ctypes.cast(nccl.ncclAllReduce, c_void_p), caller.buffer, caller.comm,
                                    caller.stream))
    atexit.register(caller.call)
    caller.call()
    globals()["kept"] = caller


def fork():
    caller = Caller()

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
    caller = Caller()

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
