"""A small model, trained by steps that torch.compile captures into CUDA graphs (mode reduce-overhead), the mean of
the gradients over all ranks inside them. Seeded; losses are printed exactly.

    torchrun --standalone --nproc-per-node 2 torch_compiled.py [--steps N] [--hang RANK:STEP]
"""
import argparse
import gc
import os
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
from torch import nn

import devices


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--hang", help="RANK:STEP: that rank never comes to that step")
    options = parser.parse_args()
    hang = tuple(int(x) for x in options.hang.split(":")) if options.hang else None
    local_rank = devices.mine(torch.cuda.device_count())
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", local_rank))
    rank, group = dist.get_rank(), dist.group.WORLD

    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    model = nn.Sequential(nn.Linear(128, 256), nn.GELU(), nn.Linear(256, 64)).cuda()
    weights = dict(model.named_parameters())

    def loss_of(values, data, wanted):
        return nn.functional.mse_loss(torch.func.functional_call(model, values, (data,)), wanted)

    def step(values, data, wanted):
        gradients, loss = torch.func.grad_and_value(loss_of)(values, data, wanted)
        new = {name: values[name] - 0.05 * collectives.all_reduce(gradients[name], "avg", group) for name in values}
        return new, collectives.all_reduce(loss, "avg", group)

    compiled = torch.compile(step, mode="reduce-overhead")
    values = {name: weight.detach().clone() for name, weight in weights.items()}
    generator = torch.Generator().manual_seed(100 + rank)
    lines = []
    for number in range(options.steps):
        while hang == (rank, number):
            time.sleep(3600)
        data, wanted = torch.randn(32, 128, generator=generator), torch.randn(32, 64, generator=generator)
        torch.compiler.cudagraph_mark_step_begin()
        with torch.no_grad():
            new, loss = compiled(values, data.cuda(), wanted.cuda())
        # What a graph returns is its own memory, which the next replay writes.
        values = {name: value.clone() for name, value in new.items()}
        lines.append(f"rank {rank} step {number} loss {loss.item()!r}")
    total = sum(value.double().sum().item() for value in values.values())
    lines.append(f"rank {rank} weights {total!r}")
    # NCCL ends a communicator only once no graph holds calls of it.
    del compiled, new
    torch._dynamo.reset()
    gc.collect()
    torch.cuda.synchronize()
    dist.destroy_process_group()
    sys.stdout.write("\n".join(lines) + "\n")


main()
