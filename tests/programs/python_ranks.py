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
cuda.cudaStreamSynchronize.argtypes = [c_void_p]


def check(result):
    if result:
        sys.exit(f"rank {RANK}: error {result}")


def unique_id():
    """Rank 0 makes it; the others read it from the folder that spawn made."""
    made, path = UniqueId(), os.path.join(os.environ["SPAWN_DIR"], "unique-id")
    if RANK == 0:
        check(nccl.ncclGetUniqueId(byref(made)))
        with open(path + ".new", "wb") as file:
            file.write(bytes(made))
        os.rename(path + ".new", path)
    while not os.path.exists(path):
        time.sleep(0.01)
    with open(path, "rb") as file:
        return UniqueId.from_buffer_copy(file.read())
