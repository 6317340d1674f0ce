"""All-reduces captured with torch.cuda.graph, and replayed.

    torchrun --standalone --nproc-per-node 2 torch_graph.py [--replays N] [--hang RANK:REPLAY]
"""
import argparse
import os
import time

import torch
import torch.distributed as dist

CALLS = 10


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--replays", type=int, default=100)
    parser.add_argument("--hang", help="RANK:REPLAY: that rank never makes that replay (from 1)")
    options = parser.parse_args()
    hang = tuple(int(x) for x in options.hang.split(":")) if options.hang else None

    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", local_rank))
    rank, size = dist.get_rank(), dist.get_world_size()

    data = torch.zeros(1024, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # as PyTorch's documentation has it: a few rounds before the capture
        for _ in range(3):
            dist.all_reduce(data)
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            dist.all_reduce(data)
            data.div_(size)
    for replay in range(1, options.replays + 1):
        if hang == (rank, replay):
            print(f"rank {rank}: waits for data for ever at replay {replay}", flush=True)
            while True:
                time.sleep(3600)
        data.fill_(rank + replay)
        graph.replay()
        torch.cuda.synchronize()
        if replay % 10 == 0:
            print(f"rank {rank}: replay {replay} gives {data[0].item()!r}", flush=True)
    del graph
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
