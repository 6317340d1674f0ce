"""Ordinary JAX: an all-reduce over the devices of one process, by pmap, results printed exactly.

The size matters: what is small (100,000 floats are) XLA reduces with kernels of its own, and NCCL,
as its own log tells, gets no call.

    jax_pmap.py [--devices N] [--steps N] [--size N]
"""
import argparse
import hashlib
import os

# The rest of the host's memory belongs to others.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import numpy


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--size", type=int, default=2_000_000)
    options = parser.parse_args()
    devices = jax.local_devices()
    if len(devices) < options.devices:
        raise SystemExit(f"jax_pmap: {options.devices} devices wanted, JAX sees {devices}")
    devices = devices[:options.devices]
    print(f"jax {jax.__version__} on {devices[0].platform}", flush=True)

    total = jax.pmap(lambda x: jax.lax.psum(x, "ranks"), axis_name="ranks", devices=devices)
    values = numpy.random.default_rng(1).integers(-1000, 1000, (len(devices), options.size))
    for step in range(options.steps):
        mine = (values + step).astype(numpy.float32)
        got = numpy.asarray(total(mine))
        if not (got == mine.sum(axis=0)).all():
            raise SystemExit(f"jax_pmap: wrong data at step {step}")
        for rank, part in enumerate(got):
            print(f"rank {rank} step {step} sum {hashlib.sha256(part.tobytes()).hexdigest()}")


main()
