"""Scenarios as data: the rows of a table, and those of the suite.

Pure: nothing is run here.
"""
import copy
import os
import re
import subprocess
import sys
import tomllib

HERE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))  # tests/scenarios
ROOT = os.path.dirname(os.path.dirname(HERE))
SUITE = f"{HERE}/suite"

# Column: default. What each means is told at the top of scenarios.toml.
COLUMNS = {
    "name": None, "program": None, "launch": "spawn", "ranks": [2, 4, 8], "at": [""],
    "expect": None, "culprits": None, "op": None, "seq": None, "group_nranks": None, "waiting": None,
    "confidence": None, "why": None,
    "timeout": "2500ms", "suspect": "1500ms", "policy": "kill", "env": {}, "dir": "own", "out": "own",
    "log_file": None,
    "job": "own", "by": "run",
    "until": "exit", "exit": None, "action": None, "earliest_s": 0.0, "latest_s": 20.0, "bound_s": 60.0,
    "verdict_from": "file", "log": [], "quiet": True, "suspects": True, "analyze": True, "outside": None,
    "stdout": "same", "needs": [], "before": None, "stderr": "read", "claimant": None, "rules": None, "orders": [],
    "fault": None, "memory_kib": None, "threshold": None, "clock_moves": False, "boxes": "removed", "dumped": {},
}
HEALTHY_COLUMNS = {"timeout": "60s", "suspect": "5s"}
# What the guard waits for: longer where making communicators and connecting ranks takes seconds.
CLOCKS = ("timeout", "suspect", "threshold")

places = {}  # {build}, {asan}: where libraries lie, for rows that preload some


def note_places(build):
    """The runtime of the address sanitizer is the one that its program needs; "" it has it in itself."""
    places["build"] = build
    listing = subprocess.run(["ldd", f"{build}/tests/programs/life_asan"], capture_output=True, text=True).stdout
    runtime = re.search(r"(libasan\S*) => (\S+)", listing)
    places["asan"] = runtime[2] if runtime else ""


def positions(at, n):
    """Where the fault sits: a group rank; None where the row does not say."""
    named = {"": None, "first": 0, "middle": n // 2, "last": n - 1}
    return named[at] if at in named else int(at)


def longer(duration, times):
    """A duration with its unit, so many times as long."""
    number, unit = re.fullmatch(r"([\d.]+)([a-z]*)", duration).groups()
    return f"{float(number) * times:g}{unit}"


class Scenario:
    """One row at one number of ranks and one place of the fault."""

    times = 1  # the guard's clocks run for so much longer than the row says

    def __init__(self, row, kind, n, at):
        self.row, self.kind, self.n, self.family = row, kind, n, row["name"]
        r = positions(at, n)
        self.words = {"n": n, "first": 0, "middle": n // 2, "last": n - 1, "half": n // 2, "seed": 1, **places}
        if r is not None:
            self.words.update(r=r, next=(r + 1) % n, previous=(r - 1) % n)
        self.name = f"{row['name']} n={n}" + (f" r={r}" if r is not None else "")

    def seeded(self, seed):
        """The same with this number for {seed}."""
        other = copy.copy(self)
        other.words = {**self.words, "seed": seed}
        return other

    def __getattr__(self, column):
        if column.startswith("__") or column not in COLUMNS:
            raise AttributeError(column)
        value = self.value(column)
        if self.times == 1 or column not in CLOCKS or value in (None, "none"):
            return value
        return longer(value, self.times)

    def value(self, column):
        if column == "culprits" and self.row.get(column) == "any":
            return None
        if column in self.row:
            return self.fill(self.row[column])
        if column == "culprits" and "expect" in self.row and "r" in self.words:
            return [str(self.words["r"])]
        if self.kind != "fault" and column in HEALTHY_COLUMNS:
            return HEALTHY_COLUMNS[column]
        return COLUMNS[column]

    def is_about_making(self):
        """Is it the making of a communicator, or its end, that sticks? Both have one deadline."""
        return (self.family.startswith(("init/", "inject/init", "retry/")) or "-init" in self.family or
                "-split" in self.family or "init" in str(self.expect) or str(self.op or "").startswith("Comm"))

    def is_behind_making(self):
        """Do its communicators work well for a while, each by one kind of call, before anything goes wrong?"""
        faults = re.findall(r" --([a-z-]+) (?:\d+:(\d+)(?::\S+)?|(\d+))(?= |$)", self.program)
        numbers = [int(nth) for _, nth, _ in faults if nth]
        return (self.program.startswith("coll_") and not self.is_about_making() and bool(numbers) and min(numbers) >= 10
                and not re.search(r"--op (all|mix)\b|--no-init", self.program))

    def can_share(self):
        """May its ranks use one device? Not those of one process: NCCL takes them for one host's."""
        return "--devices" not in self.program

    def fill(self, value):
        if isinstance(value, str) and column_is_text(value):
            return value.format(**self.words)
        if isinstance(value, list):
            return [self.fill(item) for item in value]
        if isinstance(value, dict):
            return {key: self.fill(item) for key, item in value.items()}
        return value


def column_is_text(value):
    # A regular expression may hold braces of its own: only names in braces are ours.
    return re.search(r"\{[a-z]+\}", value) is not None


def kind_of(row):
    """How a scenario is judged: "fault"; "late": never stuck; "healthy": nothing is wrong."""
    if "expect" not in row:
        return "healthy"
    return "late" if row["expect"] == "straggler" else "fault"


def members(rows):
    """Each row; of a family, which has `each`, every member: the columns that all have, and its own."""
    for row in rows:
        shared = {column: value for column, value in row.items() if column != "each"}
        for tables in row.get("each", [{}]):
            own = {}
            for table in tables if isinstance(tables, list) else [tables]:
                if own.keys() & table.keys():
                    sys.exit(f"scenarios: row {own.get('name')}: {sorted(own.keys() & table.keys())} twice")
                own.update(table)
            yield {**shared, **own}


def table_rows(path, kinds=("fault", "healthy", "late")):
    """The rows of a table."""
    with open(path, "rb") as file:
        try:
            table = tomllib.load(file)
        except tomllib.TOMLDecodeError as error:
            sys.exit(f"scenarios: {path}: {error}")
    return [row for kind in kinds for row in members(table.get(kind, []))]


def suite_rows(folder=SUITE):
    """The scenarios of the suite: dead/… are in dead.toml."""
    return [row for name in sorted(os.listdir(folder)) for row in table_rows(f"{folder}/{name}", ["row"])]


def on_several_hosts(row):
    return "hosts" in row


def expand(rows):
    """Each row of one host at each of its sizes and places."""
    for row in rows:
        unknown = set(row) - set(COLUMNS)
        if unknown or "name" not in row or "program" not in row:
            sys.exit(f"scenarios: row {row.get('name')}: unknown columns {sorted(unknown)}, or no name or program")
        for n in row.get("ranks", COLUMNS["ranks"]):
            seen = set()
            for at in row.get("at", COLUMNS["at"]):
                place = positions(at, n)
                if place not in seen:
                    seen.add(place)
                    yield Scenario(row, kind_of(row), n, at)
