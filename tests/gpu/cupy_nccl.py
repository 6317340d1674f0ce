"""Ordinary CuPy: one process, a communicator for each device by initAll, grouped all-reduces, results printed exactly.

    cupy_nccl.py [--devices N] [--steps N] [--size N]
"""
import argparse
import hashlib

import cupy
import numpy
from cupy.cuda import nccl


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--size", type=int, default=100_000)
    options = parser.parse_args()
    if cupy.cuda.runtime.getDeviceCount() < options.devices:
        raise SystemExit(f"cupy_nccl: {options.devices} devices wanted, "
                         f"{cupy.cuda.runtime.getDeviceCount()} found")
    print(f"cupy {cupy.__version__}, NCCL {nccl.get_version()}", flush=True)

    ranks = range(options.devices)
    comms = nccl.NcclCommunicator.initAll(list(ranks))
    values = numpy.random.default_rng(1).integers(-1000, 1000, (len(ranks), options.size))
    streams = []
    for rank in ranks:
        with cupy.cuda.Device(rank):
            streams.append(cupy.cuda.Stream(non_blocking=True))
    for step in range(options.steps):
        mine = (values + step).astype(numpy.float32)
        send, receive = [], []
        for rank in ranks:
            with cupy.cuda.Device(rank), streams[rank]:
                send.append(cupy.asarray(mine[rank]))
                receive.append(cupy.empty(options.size, dtype=cupy.float32))
        nccl.groupStart()
        for rank in ranks:
            with cupy.cuda.Device(rank):
                comms[rank].allReduce(send[rank].data.ptr, receive[rank].data.ptr, options.size,
                                      nccl.NCCL_FLOAT32, nccl.NCCL_SUM, streams[rank].ptr)
        nccl.groupEnd()
        for rank in ranks:
            with cupy.cuda.Device(rank), streams[rank]:
                got = cupy.asnumpy(receive[rank])
            if not (got == mine.sum(axis=0)).all():
                raise SystemExit(f"cupy_nccl: wrong data at step {step} on device {rank}")
            print(f"rank {rank} step {step} sum {hashlib.sha256(got.tobytes()).hexdigest()}")
    for comm in comms:
        comm.destroy()


main()
