"""A PyTorch training whose allocations come and go: 1,000 steps, gradients exchanged by sends and receives and by
all-reduces, buffers of ever new sizes, emptied caches. Seeded; losses are printed exactly.

    torchrun --standalone --nproc-per-node 2 torch_churn.py [--steps N] [--pool]

PYTORCH_CUDA_ALLOC_CONF chooses the allocator; --pool: what is exchanged comes from a torch.cuda.MemPool. With
NCCLGUARD_METRICS set, the process rests after a hundred steps and at its end, with all buffers given back, and keeps
copies of the file as FILE.early and FILE.rest.
"""
import argparse
import contextlib
import gc
import os
import random
import shutil
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
import torch.distributed as dist
from torch import nn

import devices

MIB = 1 << 20


def exchanged(flat, peer, group, pool):
    """What the peer has sent of the same size."""
    with torch.cuda.use_mem_pool(pool) if pool else contextlib.nullcontext():
        mine, theirs = flat.clone(), torch.empty_like(flat)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, mine, peer, group),
                                    dist.P2POp(dist.irecv, theirs, peer, group)])
    for work in works:
        work.wait()
    return theirs


def rest_as(suffix, rank):
    metrics = os.environ.get("NCCLGUARD_METRICS", "").replace("%r", str(rank))
    if metrics:
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        time.sleep(11)  # it is written every 5 s
        shutil.copy(metrics, metrics + suffix)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--pool", action="store_true")
    options = parser.parse_args()
    local_rank = devices.mine(torch.cuda.device_count())
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", local_rank))
    rank, size = dist.get_rank(), dist.get_world_size()
    peers = dist.new_group(list(range(size)))  # of sends and receives alone
    peer = rank ^ 1
    pool = torch.cuda.MemPool() if options.pool else None

    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    model = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    generator, sizes = torch.Generator().manual_seed(100 + rank), random.Random(7)
    lines = []
    for step in range(options.steps):
        data = torch.randn(64, 512, generator=generator).cuda()
        loss = (model(data) - data).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        # Of another size each time, on all ranks the same: segments are made, split and given back.
        room = sizes.randrange(MIB, 24 * MIB) // 4
        flat = torch.zeros(room, device="cuda")
        gradients = torch.cat([weight.grad.flatten() for weight in model.parameters()])
        part = min(room, gradients.numel())
        flat[:part] = gradients[:part]
        theirs = exchanged(flat, peer, peers, pool)
        gradients[:part] = (gradients[:part] + theirs[:part]) / 2
        rest = gradients[part:]
        if rest.numel():
            dist.all_reduce(rest)
            rest /= size
        at = 0
        for weight in model.parameters():
            weight.grad.copy_(gradients[at:at + weight.numel()].view_as(weight))
            at += weight.numel()
        optimizer.step()
        del flat, theirs, gradients, rest
        if step % 40 == 39:
            torch.cuda.empty_cache()
        if step == 99:
            rest_as(".early", rank)
        if step % 50 == 49:
            lines.append(f"rank {rank} step {step} loss {loss.item()!r}")
    weights = sum(weight.detach().double().sum().item() for weight in model.parameters())
    lines.append(f"rank {rank} weights {weights!r}")
    del model, optimizer, loss, data, pool
    rest_as(".rest", rank)
    dist.destroy_process_group()
    sys.stdout.write("\n".join(lines) + "\n")


main()
