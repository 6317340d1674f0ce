"""What the Python programs of several ranks share: NCCL and CUDA by ctypes, and one unique id for all ranks."""
import ctypes
import os
import sys
import time
from ctypes import POINTER, byref, c_int, c_size_t, c_void_p

RANK, SIZE = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
COUNT, INT32, SUM = 256, 2, 0


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


def made_id():
    """Rank 0 makes it."""
    made = UniqueId()
    if RANK == 0:
        check(nccl.ncclGetUniqueId(byref(made)))
    return made


def id_by_file(made):
    """The others read it from the folder that spawn made."""
    path = os.path.join(os.environ["SPAWN_DIR"], "unique-id")
    if RANK == 0:
        with open(path + ".new", "wb") as file:
            file.write(bytes(made))
        os.rename(path + ".new", path)
    while not os.path.exists(path):
        time.sleep(0.01)
    with open(path, "rb") as file:
        return UniqueId.from_buffer_copy(file.read())


def unique_id():
    return id_by_file(made_id())


class Caller:
    """A communicator of this rank and those that have the id, with what a collective needs."""

    def __init__(self, unique_id, nranks=1, rank=0):
        self.comm, self.stream, self.buffer = c_void_p(), c_void_p(), c_void_p()
        check(nccl.ncclCommInitRank(byref(self.comm), nranks, unique_id, rank))
        check(cuda.cudaStreamCreate(byref(self.stream)))
        check(cuda.cudaMalloc(byref(self.buffer), 4 * COUNT))

    def call(self):
        check(nccl.ncclAllReduce(self.buffer, self.buffer, COUNT, INT32, SUM, self.comm, self.stream))

    def wait(self):
        check(cuda.cudaStreamSynchronize(self.stream))
