"""A PyTorch job of two ranks that hangs in one of ten ways at its twentieth step. Started once a rank, with the
variables of torch.distributed's env:// in the environment.

    torch_hangs.py KIND --timeout S
"""
import argparse
import datetime
import os
import signal
import sys
import time

import torch
import torch.distributed as dist

STEP = 20


class Hangs:
    """What the ranks do at that step, a method a kind; `self.rank` 1 is the one at fault."""

    def __init__(self, rank):
        self.rank, self.peer = rank, 1 - rank
        self.small = torch.full((1024,), float(rank), device="cuda")
        self.other_group = dist.new_group([0, 1])
        dist.all_reduce(self.small, group=self.other_group)

    def missing(self):
        """Rank 1 waits for data for ever."""
        if self.rank == 1:
            time.sleep(3600)

    def killed(self):
        if self.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    def frozen(self):
        if self.rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)

    def left(self):
        """Rank 1 is done before the others."""
        if self.rank == 1:
            sys.exit(0)

    def operation(self):
        """Rank 1 broadcasts where the other reduces."""
        if self.rank == 1:
            dist.broadcast(torch.zeros(1 << 22, device="cuda"), 0)
        else:
            dist.all_reduce(torch.zeros(1 << 22, device="cuda"))
        torch.cuda.synchronize()

    def root(self):
        """Each rank broadcasts from itself, more than fits into NCCL's buffers."""
        dist.broadcast(torch.zeros(1 << 26, device="cuda"), self.rank)
        torch.cuda.synchronize()

    def order(self):
        """Two groups, used by the ranks in opposite order."""
        for group in (None, self.other_group)[::-1 if self.rank == 1 else 1]:
            dist.all_reduce(self.small, group=group)
            torch.cuda.synchronize()

    def unmatched(self):
        """Rank 0 sends, and rank 1 goes on to the next collective."""
        if self.rank == 0:
            dist.send(torch.zeros(1 << 24, device="cuda"), 1)
            torch.cuda.synchronize()

    def device(self):
        """A kernel of the program's own never ends on the device of rank 1."""
        if self.rank == 1:
            for _ in range(64):
                torch.cuda._sleep(1 << 40)

    def creation(self):
        """Rank 1 never comes to the creation of a group."""
        if self.rank == 1:
            time.sleep(3600)
        dist.new_group([0, 1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind")
    parser.add_argument("--timeout", type=float, required=True, help="of PyTorch's watchdog, in seconds")
    options = parser.parse_args()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl", device_id=torch.device("cuda", int(os.environ["LOCAL_RANK"])),
                            timeout=datetime.timedelta(seconds=options.timeout))
    hangs = Hangs(dist.get_rank())
    for step in range(1000):
        if step == STEP:
            print(f"rank {dist.get_rank()}: fault", flush=True)
            getattr(hangs, options.kind)()
        dist.all_reduce(hangs.small)
        torch.cuda.synchronize()
    print("nothing hangs", flush=True)


main()
