"""An ordinary PyTorch DDP training: a small embedding and MLP, seeded, losses printed exactly.

    torchrun --standalone --nproc-per-node 2 ddp.py [--steps N] [--hang RANK:STEP]
"""
import argparse
import os
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import devices


class Model(nn.Module):
    def __init__(self, words=4096, width=256):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.layers = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(),
            nn.Linear(4 * width, 4 * width), nn.GELU(),
            nn.Linear(4 * width, width))
        self.out = nn.Linear(width, words)

    def forward(self, tokens):
        return self.out(self.layers(self.embedding(tokens).mean(dim=1)))


def wait_for_data_for_ever():
    while True:
        time.sleep(3600)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--hang", help="RANK:STEP: that rank never comes to that step")
    options = parser.parse_args()
    hang = tuple(int(x) for x in options.hang.split(":")) if options.hang else None

    local_rank = devices.mine(torch.cuda.device_count())
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", local_rank))
    rank = dist.get_rank()

    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    model = DistributedDataParallel(Model().cuda(), device_ids=[local_rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(100 + rank)
    lines = []
    for step in range(options.steps):
        if hang == (rank, step):
            print(f"rank {rank}: waits for data for ever at step {step}", flush=True)
            wait_for_data_for_ever()
        tokens = torch.randint(4096, (64, 16), generator=generator).cuda()
        target = torch.randint(4096, (64,), generator=generator).cuda()
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(model(tokens), target)
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        lines.append(f"rank {rank} step {step} loss {loss.item()!r} sum {mean.item()!r}")
    weights = sum(p.detach().double().sum().item() for p in model.parameters())
    lines.append(f"rank {rank} weights {weights!r}")
    dist.destroy_process_group()
    print("\n".join([*lines, ""]), end="", flush=True)  # one write, so that ranks do not mix


main()
