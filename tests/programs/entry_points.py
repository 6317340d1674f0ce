#!/usr/bin/env python3
"""Reaches NCCL from Python in every way that ctypes knows, one for each copy, and makes the same calls through each.

    entry_points.py [--late] [--bcast] WAY:PATH…

Prints a line of JSON for each communicator, "holds", and goes on to its end when stdin is closed: see entry_points.c,
whose lines these are. Run by spawn, with two or more ranks.
"""
import ctypes
import json
import os
import signal
import sys
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_void_p

COUNT = 256
ITERATIONS = 3
INT32, SUM = 2, 0

RANK = int(os.environ.get("RANK", 0))
SIZE = int(os.environ.get("WORLD_SIZE", 1))
WITH_BCAST = False


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


# Parameters of each function; all but two return a ncclResult_t.
PROTOTYPES = {
    "GetVersion": [POINTER(c_int)],
    "GetErrorString": [c_int],
    "GetLastError": [c_void_p],
    "GetUniqueId": [POINTER(UniqueId)],
    "CommInitRank": [POINTER(c_void_p), c_int, UniqueId, c_int],
    "CommSplit": [c_void_p, c_int, c_int, POINTER(c_void_p), c_void_p],
    "CommCount": [c_void_p, POINTER(c_int)],
    "CommUserRank": [c_void_p, POINTER(c_int)],
    "CommGetAsyncError": [c_void_p, POINTER(c_int)],
    "CommFinalize": [c_void_p],
    "CommDestroy": [c_void_p],
    "GroupStart": [],
    "GroupEnd": [],
    "AllReduce": [c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p],
    "Broadcast": [c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p],
    "Bcast": [c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p],
    "Reduce": [c_void_p, c_void_p, c_size_t, c_int, c_int, c_int, c_void_p, c_void_p],
    "AllGather": [c_void_p, c_void_p, c_size_t, c_int, c_void_p, c_void_p],
    "ReduceScatter": [c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p],
    "Send": [c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p],
    "Recv": [c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p],
}
KINDS = ["AllReduce", "Broadcast", "Reduce", "AllGather", "ReduceScatter", "Send", "Recv"]


def fail(text):
    os.write(2, f"rank {RANK}: {text}\n".encode())
    sys.exit(3)


def say(**line):
    os.write(1, (json.dumps({"rank": RANK, **line}) + "\n").encode())


# ---- Ways to NCCL: each gives name -> function ----


def of_library(library, prefix="nccl"):
    return lambda name: getattr(library, prefix + name)


def by_mode(mode, prefix="nccl"):
    return lambda path: of_library(ctypes.CDLL(path, mode=mode), prefix)


def libc():
    library = ctypes.CDLL(None)
    library.dlopen.restype = library.dlsym.restype = c_void_p
    library.dlopen.argtypes, library.dlsym.argtypes = [c_char_p, c_int], [c_void_p, c_char_p]
    return library


def by_dlsym(library, handle):
    def find(name):
        address = library.dlsym(handle, f"nccl{name}".encode())
        if not address:
            fail(f"dlsym: nccl{name}")
        return ctypes.CFUNCTYPE(c_int)(address)
    return find


def way_main(path):
    ctypes.CDLL(path, mode=os.RTLD_GLOBAL)
    return of_library(ctypes.CDLL(None))


def way_default(path):
    ctypes.CDLL(path, mode=os.RTLD_GLOBAL)
    return by_dlsym(libc(), None)


def way_dlsym(path):
    library = libc()
    handle = library.dlopen(path.encode(), os.RTLD_NOW | os.RTLD_LOCAL)
    if not handle:
        fail(f"dlopen: {path}")
    return by_dlsym(library, handle)


WAYS = {
    "handle": by_mode(os.RTLD_LOCAL),
    "handle-global": by_mode(os.RTLD_GLOBAL),
    "handle-deepbind": by_mode(os.RTLD_LOCAL | os.RTLD_DEEPBIND),
    "dlsym": way_dlsym,
    "default": way_default,
    "main": way_main,
    "local": by_mode(os.RTLD_LOCAL, "plugin_nccl"),
    "global": by_mode(os.RTLD_GLOBAL, "plugin_nccl"),
    "deepbind": by_mode(os.RTLD_LOCAL | os.RTLD_DEEPBIND, "plugin_nccl"),
}


class Nccl:
    """One copy of NCCL: its functions as methods; errors end the program."""

    def __init__(self, find):
        self.functions = {}
        for name, parameters in PROTOTYPES.items():
            function = find(name)
            function.argtypes = parameters
            function.restype = c_char_p if name in ("GetErrorString", "GetLastError") else c_int
            self.functions[name] = function

    def __getattr__(self, name):
        function = self.functions[name]

        def call(*arguments):
            result = function(*arguments)
            if result:
                fail(f"nccl{name}: {self.functions['GetErrorString'](result).decode()}")
        return call


cuda = ctypes.CDLL("libcudart.so.13")
cuda.cudaMalloc.argtypes = [POINTER(c_void_p), c_size_t]
cuda.cudaFree.argtypes = cuda.cudaStreamDestroy.argtypes = cuda.cudaStreamSynchronize.argtypes = [c_void_p]
cuda.cudaMemcpy.argtypes = [c_void_p, c_void_p, c_size_t, c_int]
MEMCPY_DEFAULT, STREAM_NON_BLOCKING = 4, 1


def check_cuda(error):
    if error:
        fail(f"CUDA error {error}")


def value(rank, tag, index):
    return (rank + 1) * 1000 + tag % 50 * 7 + index % 11


class Member:
    """One communicator of one copy."""

    def __init__(self, comm):
        self.comm, self.checksum = comm, 0
        self.calls, self.grouped = {}, {}

    def count(self, kind, grouped=False):
        self.calls[kind] = self.calls.get(kind, 0) + 1
        if grouped:
            self.grouped[kind] = self.grouped.get(kind, 0) + 1


class Side:
    """One copy of NCCL, as one way leads to it."""

    communicators = 0

    def __init__(self, number, way, path):
        self.number, self.way, self.path = number, way, path

    def reach(self):
        self.nccl = Nccl(WAYS[self.way](self.path))

    def create(self):
        check_cuda(cuda.cudaSetDevice(int(os.environ.get("LOCAL_RANK", 0))))
        self.stream, self.send, self.recv = c_void_p(), c_void_p(), c_void_p()
        check_cuda(cuda.cudaStreamCreateWithFlags(byref(self.stream), STREAM_NON_BLOCKING))
        check_cuda(cuda.cudaMalloc(byref(self.send), 32 * COUNT))
        check_cuda(cuda.cudaMalloc(byref(self.recv), 32 * COUNT))
        version = c_int()
        self.nccl.GetVersion(byref(version))
        self.version = version.value
        unique_id = UniqueId()
        if RANK == 0:
            self.nccl.GetUniqueId(byref(unique_id))
        self.exchange(unique_id)
        comm = c_void_p()
        self.nccl.CommInitRank(byref(comm), SIZE, unique_id, RANK)
        self.world = self.learn(Member(comm))

    def exchange(self, unique_id):
        """Rank 0 tells the others, each through a pipe with a name."""
        for rank in range(1, SIZE):
            if RANK not in (0, rank):
                continue
            path = f"{os.environ['SPAWN_DIR']}/id.{Side.communicators}.{rank}"
            try:
                os.mkfifo(path, 0o600)
            except FileExistsError:
                pass
            if RANK == 0:
                with open(path, "wb", buffering=0) as pipe:
                    pipe.write(bytes(unique_id))
            else:
                with open(path, "rb", buffering=0) as pipe:
                    ctypes.memmove(byref(unique_id), pipe.read(128), 128)
        Side.communicators += 1

    def learn(self, member):
        nranks, rank = c_int(), c_int()
        self.nccl.CommCount(member.comm, byref(nranks))
        self.nccl.CommUserRank(member.comm, byref(rank))
        member.nranks, member.rank = nranks.value, rank.value
        return member

    def split(self):
        comm = c_void_p()
        self.nccl.CommSplit(self.world.comm, 0, -RANK, byref(comm), None)
        self.child = self.learn(Member(comm))

    # -- Data --

    def tag(self, member):
        return self.number * 1000 + sum(member.calls.values()) + 100 * (member is not self.world)

    def fill(self, member, tag):
        n = COUNT * member.nranks
        data = (c_int * n)(*[value(member.rank, tag, i) for i in range(n)])
        check_cuda(cuda.cudaMemcpy(self.send, data, 4 * n, MEMCPY_DEFAULT))
        check_cuda(cuda.cudaMemcpy(self.recv, (c_int * n)(), 4 * n, MEMCPY_DEFAULT))

    def judge(self, member, kind, tag):
        """What arrived, against what had to."""
        n = COUNT * member.nranks
        data = (c_int * n)()
        check_cuda(cuda.cudaStreamSynchronize(self.stream))
        check_cuda(cuda.cudaMemcpy(data, self.recv, 4 * n, MEMCPY_DEFAULT))
        everybody = range(member.nranks)
        if kind == "AllGather":
            want = [value(i // COUNT, tag, i % COUNT) for i in range(n)]
        elif kind == "ReduceScatter":
            want = [sum(value(rank, tag, i + member.rank * COUNT) for rank in everybody) for i in range(COUNT)]
        elif kind == "AllReduce" or (kind == "Reduce" and member.rank == 0):
            want = [sum(value(rank, tag, i) for rank in everybody) for i in range(COUNT)]
        elif kind == "Reduce":
            want = []
        else:
            source = 0 if kind == "Broadcast" else (member.rank + 1) % member.nranks
            want = [value(source, tag, i) for i in range(COUNT)]
        want += [0] * (n - len(want))
        got = list(data)
        if got != want:
            fail(f"side {self.number}: {kind}: the wrong data came")
        for number in got:
            member.checksum = (member.checksum ^ number) * 1099511628211 % 2**64

    # -- Calls --

    def call(self, member, kind, *arguments):
        tag = self.tag(member)
        self.fill(member, tag)
        getattr(self.nccl, kind)(self.send, self.recv, COUNT, INT32, *arguments, member.comm, self.stream)
        member.count(kind)
        self.judge(member, kind, tag)

    def each_collective(self, member):
        self.call(member, "AllReduce", SUM)
        self.call(member, "Broadcast", 0)
        if WITH_BCAST:
            tag = self.tag(member)
            self.fill(member, tag)
            check_cuda(cuda.cudaMemcpy(self.recv, self.send, 4 * COUNT, MEMCPY_DEFAULT))
            self.nccl.Bcast(self.recv, COUNT, INT32, 0, member.comm, self.stream)
            member.count("Broadcast")
            self.judge(member, "Broadcast", tag)
        self.call(member, "Reduce", SUM, 0)
        self.call(member, "AllGather")
        self.call(member, "ReduceScatter", SUM)

    def send_around(self, member, between):
        tag = self.tag(member)
        following, previous = (member.rank + 1) % member.nranks, (member.rank - 1) % member.nranks
        self.fill(member, tag)
        self.nccl.GroupStart()
        self.nccl.Send(self.send, COUNT, INT32, previous, member.comm, self.stream)
        member.count("Send", grouped=True)
        # A group is open in one copy: the other knows nothing of it, and launches at once.
        if between:
            between.call(between.world, "AllReduce", SUM)
        self.nccl.GroupStart()
        self.nccl.Recv(self.recv, COUNT, INT32, following, member.comm, self.stream)
        member.count("Recv", grouped=True)
        self.nccl.GroupEnd()
        self.nccl.GroupEnd()
        self.judge(member, "Recv", tag)

    def grouped_all_reduces(self, member):
        tag = self.tag(member)
        self.fill(member, tag)
        self.nccl.GroupStart()
        for _ in range(2):
            self.nccl.AllReduce(self.send, self.recv, COUNT, INT32, SUM, member.comm, self.stream)
            member.count("AllReduce", grouped=True)
        self.nccl.GroupEnd()
        self.judge(member, "AllReduce", tag)

    def be_refused(self):
        """Errors must be those of the library that was called."""
        functions = self.nccl.functions
        result = functions["CommInitRank"](None, 1, UniqueId(), 0)
        say(side=self.number, refused=result, text=functions["GetErrorString"](result).decode(),
            last=functions["GetLastError"](None).decode())

    def report(self):
        for comm, member in (("world", self.world), ("child", self.child)):
            say(side=self.number, way=self.way, comm=comm, version=self.version, nranks=member.nranks,
                group_rank=member.rank, checksum=f"{member.checksum:016x}", calls=member.calls,
                grouped=member.grouped)

    def destroy(self):
        state = c_int()
        self.nccl.CommGetAsyncError(self.world.comm, byref(state))
        if state.value:
            fail(f"side {self.number}: asynchronous error {state.value}")
        self.nccl.CommDestroy(self.child.comm)
        self.nccl.CommFinalize(self.world.comm)
        self.nccl.CommDestroy(self.world.comm)
        check_cuda(cuda.cudaFree(self.send))
        check_cuda(cuda.cudaFree(self.recv))
        check_cuda(cuda.cudaStreamDestroy(self.stream))


def main(arguments):
    global WITH_BCAST
    late = "--late" in arguments
    WITH_BCAST = "--bcast" in arguments
    given = [argument.partition(":") for argument in arguments if not argument.startswith("--")]
    sides = [Side(number, way, path) for number, (way, _, path) in enumerate(given)]
    if not sides or any(side.way not in WAYS for side in sides):
        fail(f"not WAY:PATH…, with one of {', '.join(WAYS)}")
    signal.alarm(120)

    # Late: the next copy comes when the one before is in use.
    if not late:
        for side in sides:
            side.reach()
    for side in sides:
        if late:
            side.reach()
        side.create()
        side.call(side.world, "AllReduce", SUM)
    for side in sides:
        side.be_refused()
    for side in sides:
        side.split()
    for _ in range(ITERATIONS):
        for side in sides:
            side.each_collective(side.world)
        for side in sides:
            side.each_collective(side.child)
        for i, side in enumerate(sides):
            # Two ways may lead to one copy: then there is one group for both.
            other = sides[(i + 1) % len(sides)]
            side.send_around(side.world, other if other.version != side.version else None)
            side.grouped_all_reduces(side.child)
    # No two sides make the same number of calls, so that none can be taken for another.
    for i, side in enumerate(sides):
        for _ in range(i):
            side.call(side.world, "AllReduce", SUM)
    for side in sides:
        side.report()
        side.destroy()

    say(holds=True)
    while os.read(0, 1):
        pass


if __name__ == "__main__":
    main(sys.argv[1:])
