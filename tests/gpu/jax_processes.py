"""Ordinary JAX of several processes, one device each: an all-reduce over all of them, by pmap, results
printed exactly.

    jax_processes.py --coordinator HOST:PORT [--steps N] [--size N] [--hang RANK:STEP]

RANK and WORLD_SIZE say which process this is.
"""
import argparse
import hashlib
import os
import time

# The rest of the host's memory belongs to others.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import numpy


def wait_for_data_for_ever():
    while True:
        time.sleep(3600)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--coordinator", required=True)
    parser.add_argument("--steps", type=int, default=50)
    # XLA reduces small arrays with kernels of its own, without NCCL.
    parser.add_argument("--size", type=int, default=2_000_000)
    parser.add_argument("--hang", help="RANK:STEP: that rank never comes to that step")
    options = parser.parse_args()
    hang = tuple(int(x) for x in options.hang.split(":")) if options.hang else None

    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    jax.distributed.initialize(options.coordinator, num_processes=ranks, process_id=rank,
                               local_device_ids=[0 if os.environ.get("SHARE_DEVICES") else rank])
    devices = jax.local_devices()
    if len(devices) != 1 or len(jax.devices()) != ranks:
        raise SystemExit(f"jax_processes: one device of {ranks} wanted, JAX sees {devices}")
    if rank == 0:
        print(f"jax {jax.__version__} on {devices[0].platform}", flush=True)

    total = jax.pmap(lambda x: jax.lax.psum(x, "ranks"), axis_name="ranks")
    values = numpy.random.default_rng(1).integers(-1000, 1000, (ranks, options.size))
    lines = []
    for step in range(options.steps):
        if hang == (rank, step):
            print(f"rank {rank}: waits for data for ever at step {step}", flush=True)
            wait_for_data_for_ever()
        all_ranks = (values + step).astype(numpy.float32)
        got = numpy.asarray(total(all_ranks[rank:rank + 1]))[0]
        if not (got == all_ranks.sum(axis=0)).all():
            raise SystemExit(f"jax_processes: wrong data at step {step}")
        lines.append(f"rank {rank} step {step} sum {hashlib.sha256(got.tobytes()).hexdigest()}")
    # At once: the processes share this file.
    print("\n".join([*lines, ""]), end="", flush=True)  # one write, so that ranks do not mix


main()
