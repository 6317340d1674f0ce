"""All-reduces captured with torch.cuda.graph, and replayed.

    torchrun --standalone --nproc-per-node 2 torch_graph.py [--replays N] [--hang RANK:REPLAY] [--calls N] [--time N]
                                                            [--dump FILE]

With --time N rank 0 ends with a line of JSON: N times over, the microseconds of a replay, back to back and each waited
for. With --dump rank 0 writes the graph there, as CUDA prints it.
"""
import argparse
import json
import sys
import time

import torch
import torch.distributed as dist

import devices


def say(line):
    """In one write, since all ranks write into one pipe."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def timed(graph, data, waits, replays=50):
    dist.all_reduce(data)
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(replays):
        graph.replay()
        if waits:
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / replays * 1e6


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--replays", type=int, default=100)
    parser.add_argument("--hang", help="RANK:REPLAY: that rank never makes that replay (from 1)")
    parser.add_argument("--calls", type=int, default=10)
    parser.add_argument("--time", type=int, default=0, metavar="N")
    parser.add_argument("--dump", metavar="FILE")
    options = parser.parse_args()
    hang = tuple(int(x) for x in options.hang.split(":")) if options.hang else None

    local_rank = devices.mine(torch.cuda.device_count())
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
    if options.dump:
        graph.enable_debug_mode()
    with torch.cuda.graph(graph):
        for _ in range(options.calls):
            dist.all_reduce(data)
            if not options.time:
                data.div_(size)
    if options.dump and rank == 0:
        graph.debug_dump(options.dump)
    data.zero_()
    times = [(timed(graph, data, False), timed(graph, data, True)) for _ in range(options.time)]
    for replay in range(1, options.replays + 1):
        if hang == (rank, replay):
            say(f"rank {rank}: waits for data for ever at replay {replay}")
            while True:
                time.sleep(3600)
        data.fill_(rank + replay)
        graph.replay()
        torch.cuda.synchronize()
        if replay % 10 == 0:
            say(f"rank {rank}: replay {replay} gives {data[0].item()!r}")
    if times and rank == 0:
        say(json.dumps({"back_to_back": [pair[0] for pair in times], "latency": [pair[1] for pair in times]}))
    del graph
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
