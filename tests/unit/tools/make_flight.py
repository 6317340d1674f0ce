#!/usr/bin/env python3
"""Dumps as PyTorch's flight recorder writes them, by Python's own pickle: for tests and benchmarks.

    make_flight.py FOLDER SCENARIO [--ranks N] [--records N] [--protocol P]

A scenario is a job of N ranks of which something is to be found, or nothing; SCENARIOS below says what. `all` makes
each with every protocol, in FOLDER/SCENARIO-PROTOCOL.
"""
import argparse
import os
import pickle
import time

VERSION = "2.10"
STEP_NS = 1_000_000


def sizes(*dimensions):
    return [list(dimensions)]


class Rank:
    """One process: its recorder, filled call by call."""

    def __init__(self, rank, begin_ns, first_record=0):
        self.rank = rank
        self.now_ns = begin_ns
        self.record = first_record
        self.op = 0
        self.groups = {}
        self.entries = []
        self.seq = {}
        self.p2p = {}
        self.config = {}

    def join(self, name, desc, ranks):
        self.config[name] = {"name": name, "desc": desc, "ranks": str(list(ranks))}

    def entry(self, group, name, state, inputs, outputs, dtype, is_p2p=False, **more):
        done = state == "completed"
        begun = state in ("completed", "started")
        self.now_ns += STEP_NS
        entry = {
            "record_id": self.record,
            "pg_id": list(self.config).index(group) if group in self.config else 99,
            "process_group": (group, self.config.get(group, {}).get("desc", "")),
            "thread_name": "python",
            "thread_id": "139871234",
            "collective_seq_id": self.seq.get(group, 0),
            "p2p_seq_id": self.p2p.get(group, 0),
            "op_id": self.op,
            "profiling_name": name,
            "time_created_ns": self.now_ns,
            "input_sizes": inputs,
            "input_dtypes": [dtype] * len(inputs),
            "output_sizes": outputs,
            "output_dtypes": [dtype] * len(outputs),
            "state": state,
            "time_discovered_started_ns": self.now_ns + 1000 if begun else None,
            "time_discovered_completed_ns": self.now_ns + 9000 if done else None,
            "retired": done,
            "timeout_ms": 600000,
            "is_p2p": is_p2p,
        }
        entry.update(more)
        self.record += 1
        self.entries.append(entry)

    def collective(self, group, name="nccl:all_reduce", state="completed", count=1024, dtype="Float", inputs=None,
                   outputs=None, **more):
        self.seq[group] = self.seq.get(group, 0) + 1
        self.op += 1
        given = sizes(count) if inputs is None else inputs
        self.entry(group, name, state, given, given if outputs is None else outputs, dtype, **more)

    def pair(self, group, kind, me, peer, state="completed", count=1024):
        """An individual send or receive."""
        self.p2p[group] = self.p2p.get(group, 0) + 1
        self.op += 1
        arrow = "->" if kind == "send" else "<-"
        self.entry(group, f"nccl:{kind} {me}{arrow}{peer}", state, sizes(count), sizes(count), "Float", is_p2p=True)

    def batch(self, group, calls, state):
        """Sends and receives in one NCCL group, with the closing entry."""
        self.p2p[group] = self.p2p.get(group, 0) + 1
        for kind, me, peer in calls:
            self.op += 1
            arrow = "->" if kind == "send" else "<-"
            self.entry(group, f"nccl:{kind} {me}{arrow}{peer}", "scheduled", sizes(8), sizes(8), "Float", is_p2p=True)
        self.entry(group, "nccl:coalesced", state, [], [], "Float", is_p2p=True)

    def coalesced(self, group, counts, state, name="nccl:all_reduce", closing="nccl:coalesced"):
        """Collectives in one NCCL group, with the closing entry."""
        self.seq[group] = self.seq.get(group, 0) + 1
        for count in counts:
            self.op += 1
            self.entry(group, name, "scheduled", sizes(count), sizes(count), "Float")
        self.entry(group, closing, state, [], [], "Float")

    def dump(self, keep=None):
        entries = self.entries if keep is None else self.entries[-keep:]
        return {
            "version": VERSION,
            "comm_lib_version": "2.28.9",
            "pg_config": self.config,
            "pg_status": {str(i): {"last_enqueued_collective": self.seq.get(name, 0),
                                   "last_started_collective": -1,
                                   "last_completed_collective": -1} for i, name in enumerate(self.config)},
            "entries": entries,
        }


class Job:
    """All ranks of a job, each with the default group."""

    def __init__(self, ranks, records, begin_ns):
        self.count = ranks
        self.records = records
        self.keep = None
        self.ranks = [Rank(rank, begin_ns) for rank in range(ranks)]
        self.absent = set()
        for rank in self.ranks:
            rank.join("0", "default_pg", range(ranks))

    def rounds(self, times, **call):
        for rank in self.ranks:
            for _ in range(times):
                rank.collective("0", **call)


def healthy(job):
    job.rounds(job.records)


def missing(job):
    """Rank 2 made all but the last call."""
    job.rounds(job.records - 1)
    for rank in job.ranks:
        if rank.rank != 2 % job.count:
            rank.collective("0", state="started")


def op(job):
    """Rank 1 called something else, and everything hangs."""
    job.rounds(job.records - 1)
    for rank in job.ranks:
        if rank.rank == 1:
            rank.collective("0", name="nccl:_all_gather_base", state="started", outputs=sizes(1024 * job.count))
        else:
            rank.collective("0", state="started")


def size(job):
    job.rounds(job.records - 1)
    for rank in job.ranks:
        rank.collective("0", state="started", count=1000 if rank.rank == 3 else 1024)


def dtype(job):
    job.rounds(job.records - 1)
    for rank in job.ranks:
        rank.collective("0", state="started", dtype="Half" if rank.rank == 0 else "Float")


def several(job):
    """Three mismatches that have nothing to do with each other, in two groups; nothing hangs."""
    for rank in job.ranks:
        rank.join("7", "tensor", range(job.count))
        for seq in range(1, job.records + 1):
            rank.collective("0", dtype="Half" if rank.rank == 3 and seq == 2 else "Float")
            rank.collective("7", name="nccl:broadcast", count=4 if rank.rank == 1 and seq == 3 else 8)
        for _ in range(100):
            rank.collective("0")
        if rank.rank == 2:
            rank.collective("0", name="nccl:reduce")
        else:
            rank.collective("0")
        rank.collective("0")


def skipped(job):
    """Rank 2 left out call number 3 of a pattern, and hangs at the end."""
    for rank in job.ranks:
        for seq in range(1, job.records + 1):
            if rank.rank == 2 and seq == 3:
                continue
            rank.collective("0", count=seq, state="completed" if seq < 3 else "started")


def coalesced(job):
    """Collectives in one NCCL group; rank 2 has not come to the last of them."""
    for rank in job.ranks:
        for _ in range(job.records - 1):
            rank.coalesced("0", (16, 32, 64), "completed")
        if rank.rank != 2:
            rank.coalesced("0", (16, 32, 64), "started")


def late(job):
    """Nothing hangs, but rank 2 comes last each time: its own part of each call is the shortest."""
    for number in range(20):
        for rank in job.ranks:
            took = 0.5 if rank.rank == 2 else 4.0 + number % 3
            if number % 2:
                rank.collective("0", duration_ms=took)
            else:
                rank.coalesced("0", (16, 32), "completed")
                rank.entries[-1]["duration_ms"] = took


def pairs(job):
    """Rank 1 never sends what rank 2 receives."""
    for rank in job.ranks[:3]:
        peer = (rank.rank + 1) % 3
        before = (rank.rank - 1) % 3
        for _ in range(job.records):
            rank.pair("0", "send", rank.rank, peer)
            rank.pair("0", "recv", rank.rank, before)
    job.ranks[2].pair("0", "recv", 2, 1, state="started")


def batches(job):
    """The same with sends and receives in NCCL groups."""
    for rank in job.ranks[:2]:
        other = 1 - rank.rank
        for _ in range(job.records):
            rank.batch("0", (("send", rank.rank, other), ("recv", rank.rank, other)), "completed")
    job.ranks[0].batch("0", (("send", 0, 1), ("recv", 0, 1)), "started")


def subgroups(job):
    """Two groups of half of the ranks each; in the second one a rank is missing."""
    half = job.count // 2
    for rank in job.ranks:
        name, members = ("1", range(half)) if rank.rank < half else ("2", range(half, job.count))
        rank.join(name, "mesh_tp", members)
        for _ in range(job.records):
            rank.collective("0")
            rank.collective(name, name="nccl:_reduce_scatter_base", outputs=sizes(1024 // half))
        if rank.rank >= half and rank.rank != job.count - 1:
            rank.collective(name, name="nccl:_reduce_scatter_base", outputs=sizes(1024 // half), state="scheduled")


def absent(job):
    """The rank that the others wait for has left no file."""
    missing(job)
    job.absent.add(2)


def wrapped(job):
    """Recorders that overwrote their first entries; rank 2 has not come."""
    missing(job)
    job.keep = max(2, job.records // 2)


def uneven(job):
    """Gathering of tensors that are not of one size, which is no fault."""
    for rank in job.ranks:
        for _ in range(job.records):
            rank.collective("0", name="nccl:all_gather", inputs=sizes(10 + rank.rank), outputs=sizes(99))


def frames(job):
    """Entries with the stacks of the program, in SOURCES by turns."""
    missing(job)
    library = [{"name": "all_reduce", "filename": "/venv/lib/python3.11/site-packages/torch/distributed.py", "line": 7},
               {"name": "c10d::allreduce", "filename": "/src/torch/csrc/reducer.cpp", "line": 9}]
    stack = [{"name": f"function_{i}", "filename": SOURCES[i % len(SOURCES)], "line": i + 1}
             for i in range(30)]
    for rank in job.ranks:
        for i, entry in enumerate(rank.entries):
            last = i == len(rank.entries) - 1
            # PyTorch's writer has each frame once; Python's may have copies.
            entry["frames"] = library + stack if last else [dict(frame) for frame in stack]


SOURCES = ["/job/train.py"]
SCENARIOS = {function.__name__: function for function in (
    healthy, missing, op, size, dtype, several, skipped, coalesced, pairs, batches, subgroups, absent, wrapped, uneven,
    frames, late)}


def make(folder, scenario, ranks=4, records=8, protocol=2, prefix="rank_", pending_s=30):
    """Files of all ranks of a job that hung `pending_s` ago."""
    os.makedirs(folder, exist_ok=True)
    begin_ns = time.time_ns() - int(pending_s * 1e9) - STEP_NS * 4 * records
    job = Job(ranks, records, begin_ns)
    SCENARIOS[scenario](job)
    for rank in job.ranks:
        if rank.rank in job.absent:
            continue
        with open(os.path.join(folder, f"{prefix}{rank.rank}"), "wb") as file:
            pickle.dump(rank.dump(job.keep), file, protocol=protocol)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("scenario", choices=[*sorted(SCENARIOS), "all"])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--records", type=int, default=8)
    parser.add_argument("--protocol", type=int, default=2)
    parser.add_argument("--prefix", default="rank_")
    parser.add_argument("--source", action="append")
    arguments = parser.parse_args()
    SOURCES[:] = arguments.source or SOURCES
    if arguments.scenario == "all":
        for scenario in SCENARIOS:
            for protocol in range(6):
                make(os.path.join(arguments.folder, f"{scenario}-{protocol}"), scenario, arguments.ranks,
                     arguments.records, protocol, arguments.prefix)
        return
    make(arguments.folder, arguments.scenario, arguments.ranks, arguments.records, arguments.protocol,
         arguments.prefix)


if __name__ == "__main__":
    main()
