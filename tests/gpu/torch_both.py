"""A PyTorch job in which a rank never comes, with PyTorch's own watchdog armed: it or the guard's may be first.

    torchrun --standalone --nproc-per-node 2 torch_both.py --timeout S [--steps N] [--hang RANK:STEP]
"""
import argparse
import datetime
import time

import torch
import torch.distributed as dist

import devices


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--timeout", type=float, required=True, help="of PyTorch's watchdog, in seconds")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--hang", help="RANK:STEP: that rank never comes to that step")
    options = parser.parse_args()
    hang = tuple(int(x) for x in options.hang.split(":")) if options.hang else None

    local_rank = devices.mine(torch.cuda.device_count())
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", local_rank),
                            timeout=datetime.timedelta(seconds=options.timeout))
    rank = dist.get_rank()
    value = torch.full((1024,), float(rank + 1), device="cuda")
    for step in range(options.steps):
        if hang == (rank, step):
            print(f"rank {rank}: waits for data for ever at step {step}", flush=True)
            while True:
                time.sleep(3600)
        mean = value.clone()
        dist.all_reduce(mean)
        total = mean.sum().item()  # waits for the device
    dist.destroy_process_group()
    print(f"rank {rank} total {total!r}\n", end="", flush=True)


main()
