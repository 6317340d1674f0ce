"""Ordinary PyTorch: collectives by name, each a known number of times, results printed exactly.

    torchrun --standalone --nproc-per-node 2 torch_calls.py [--steps N] [--size N]
    torch_calls.py --spawn N [--steps N] [--size N]
"""
import argparse
import hashlib
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing

import devices


def run(options):
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    on_gpus = options.backend == "nccl"
    device = torch.device("cuda", devices.mine(torch.cuda.device_count())) if on_gpus else torch.device("cpu")
    if on_gpus:
        torch.cuda.set_device(device)
    dist.init_process_group(options.backend, device_id=device if on_gpus else None)
    lines = []
    for step in range(options.steps):
        generator = torch.Generator().manual_seed(1000 * step + rank)
        mine = torch.randint(-1000, 1000, (options.size,), generator=generator).float().to(device)
        total = mine.clone()
        dist.all_reduce(total)
        parts = [torch.empty_like(mine) for _ in range(world)]
        dist.all_gather(parts, mine)
        first = mine.clone()
        dist.broadcast(first, 0)
        for name, got in (("all_reduce", total), ("all_gather", torch.cat(parts)), ("broadcast", first)):
            digest = hashlib.sha256(got.cpu().numpy().tobytes()).hexdigest()
            lines.append(f"rank {rank} step {step} {name} {digest}")
        if not torch.equal(torch.stack(parts).sum(dim=0), total):
            raise SystemExit(f"torch_calls: wrong data at step {step} on rank {rank}")
    dist.destroy_process_group()
    # One write: ranks share the file.
    os.write(1, ("\n".join(lines) + "\n").encode())


def run_spawned(rank, options, port):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(options.spawn), MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=str(port))
    run(options)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--size", type=int, default=100_000)
    parser.add_argument("--spawn", type=int, help="make the ranks with torch.multiprocessing")
    parser.add_argument("--backend", default="nccl")
    options = parser.parse_args()
    if options.spawn:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        torch.multiprocessing.spawn(run_spawned, (options, port), options.spawn)
    else:
        run(options)


if __name__ == "__main__":
    main()
