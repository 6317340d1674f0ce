"""Jobs of several hosts as data: the rows of hosts.toml, and the files of the suite that name hosts."""
import re
import sys

from .rows import on_several_hosts, suite_rows, table_rows

# Column: default. What each means is told at the top of hosts.toml.
COLUMNS = {
    "name": None, "program": None, "hosts": 3, "ranks": 2, "expect": None, "culprits": None, "op": None, "seq": None,
    "group_nranks": None, "confidence": None, "why": None, "waiting": None, "steps": [], "timeout": "2500ms",
    "suspect": "1500ms", "policy": "kill", "env": {}, "ttl": None, "launch": "spawn", "store": "redis",
    "server": "redis", "by": "run", "job": "own", "bare": [], "own_pids": True, "same_boot": False, "until": "exit",
    "action": None, "exit": {}, "apart": {}, "told_s": None, "earliest_s": 0.0, "latest_s": 20.0,
    "store_words": "none", "certain_of": None, "suspects": True, "bound_s": 60.0, "log": [],
    "threshold": None, "fault": None, "needs": [], "dumps": [],
}
UNDER_WAY = r"sleep at call 50 of"
AFTER_GO = re.compile(r"rank \d+ \(pid \d+\): (?!sleep)\S+ at call (\d+) of")
# Where nothing is wrong no deadline is what is tested: a rank that gets no processor for two seconds is no fault.
HEALTHY_COLUMNS = {"timeout": "60s", "suspect": "5s"}
# Ranks that start seconds apart come to the making of the first communicator so, and are not the missing ones.
MAKING_COLUMNS = {"timeout": "6s", "suspect": "5s"}
# A program that runs for some 10 s, and says when it is under way.
BUSY = "coll_runtime --iters 500 --pause-ms 20 --check --sleep 0:50:0"


class Row:
    """One row of the table, or one that is made for a test of several jobs."""

    def __init__(self, **columns):
        unknown = set(columns) - set(COLUMNS)
        if unknown or "name" not in columns or "program" not in columns:
            sys.exit(f"hosts: row {columns.get('name')}: unknown columns {sorted(unknown)}, or no name or program")
        self.__dict__.update({**COLUMNS, **({} if "expect" in columns else HEALTHY_COLUMNS), **columns})
        if (self.expect and self.is_about_making() and not self.name.startswith("retry/")
                and not MAKING_COLUMNS.keys() & columns.keys()):
            self.__dict__.update(MAKING_COLUMNS)
        self.exit = {int(host): status for host, status in self.exit.items()}
        self.apart = {int(host): kinds for host, kinds in self.apart.items()}
        self.kind = "fault" if self.expect else "healthy"  # as the other runner says it
        self.verdict_from = "file"
        self.n = self.hosts * self.ranks
        self.family = self.name

    def is_about_making(self):
        """Is it the making of a communicator that goes wrong, or the first call on it?"""
        return (self.name.startswith(("init/", "retry/")) or "init" in str(self.expect)
                or str(self.op or "").startswith("Comm") or "init" in self.program
                or re.search(r"--\S+ \d+:1(?!\d)", self.program) is not None)


def rows_of(table):
    """The rows of a table, and those of the suite that name hosts."""
    return [Row(**row) for row in table_rows(table, ["row"]) + [row for row in suite_rows() if on_several_hosts(row)]]
