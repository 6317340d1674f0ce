"""Scenarios that are drawn: program, size, fault, place and time from tables, and what the verdict must be.

The drawing depends on the seed and the number of the draw alone; how the processes of a run are scheduled does not.
What fails is made smaller as long as it still fails, and written as a row of the suite.
"""
import copy
import random
import re

from .rows import Scenario
from .score import Outcome
from .verdicts import Failure

SIZES = (2, 3, 4, 5, 6, 8)
CALLS = (1, 2, 3, 5, 10, 20, 40, 80)
PAUSES = (0, 0, 0, 1, 5)
COLLECTIVES = ("allreduce", "broadcast", "reduce", "allgather", "reducescatter", "alltoall", "gather", "scatter")
PROGRESS = 4       # calls that a program has made before it may be told to disagree: who is odd must be known
REPLAYS = 24       # of one scenario, at most, to make it smaller

# Told at once, long before any deadline; the job goes on, and is then ended.
AT_ONCE = {"launch": "spawn-wait", "timeout": "600s", "suspect": "60s", "until": "verdict", "action": "none"}
SUSPICION = {"timeout": "600s", "until": "verdict", "action": "none"}

# name: (command line; columns; sizes).
PROGRAMS = {
    "collectives": ("coll_runtime --op {op}", {}, SIZES),
    "driver-api": ("coll_driver --op {op}", {}, SIZES),
    "every-collective": ("coll_runtime --op all", {}, SIZES),
    "mix": ("coll_runtime --op mix --seed {mix}", {}, SIZES),
    "grouped": ("coll_grouped --batch {batch}", {}, SIZES),
    "world-of-splits": ("coll_split", {}, (4, 6, 8)),
    "row-of-splits": ("coll_split --comm row", {}, (4, 6, 8)),
    "column-of-splits": ("coll_split --comm column", {}, (4, 6, 8)),
    "deep-queue": ("coll_overlap --depth {depth}", {}, SIZES),
    "second-communicator": ("coll_overlap --depth {depth} --comm second", {}, SIZES),
    "ring": ("p2p_ring --batch {batch}", {}, SIZES),
    "pairs": ("p2p_pairs", {}, SIZES),
    "all-to-all": ("p2p_composed", {}, SIZES),
    "grown": ("coll_grow", {}, (4, 6, 8)),
    "threads": ("coll_threads --devices {n}", {"launch": "alone"}, (2, 4, 8)),
}
PROCESSES = [name for name in PROGRAMS if name != "threads"]
ONE_COLLECTIVE = ["collectives", "driver-api"]
# Every call of a communicator is like the one before, on three ranks at least.
ALIKE = ONE_COLLECTIVE + ["world-of-splits", "deep-queue", "second-communicator"]

# name: (weight; arguments; columns; programs). {r} is the culprit, {s} another rank. Those that the program does not do
# itself are injected by the library, or come from outside once another rank has said where it is.
FAULTS = {
    "hang": (6, "--hang {r}:{nth}", {"expect": "missing_rank"}, list(PROGRAMS)),
    "spin": (2, "--spin {r}:{nth}", {"expect": "missing_rank"}, PROCESSES),
    "two-hang": (2, "--hang {r}:{nth} --hang {s}:{nth}", {"expect": "missing_rank", "culprits": ["{r}", "{s}"]},
                 ONE_COLLECTIVE + ["every-collective", "mix"]),
    "kill": (4, "--kill {r}:{nth}", {**AT_ONCE, "expect": "dead_rank"}, PROCESSES),
    "crash": (1, "--segv {r}:{nth}", {**AT_ONCE, "expect": "dead_rank"}, PROCESSES),
    "terminated": (1, "--term {r}:{nth}", {**AT_ONCE, "expect": "dead_rank"}, PROCESSES),
    "exit": (3, "--exit {r}:{nth}", {**AT_ONCE, "expect": "left_early"}, PROCESSES),
    "stop": (2, "--stop {r}:{nth}", {**SUSPICION, "expect": "stopped_rank"}, PROCESSES),
    "device-stall": (3, "--stall {r}:{nth}", {"expect": "gpu_stall"}, PROCESSES),
    "count": (2, "--count-delta {r}:{nth}:{delta}", {"expect": "mismatch"}, ALIKE),
    "operation": (2, "--with {r}:{nth}:op={other}", {"expect": "mismatch"}, ALIKE),
    "type": (1, "--with {r}:{nth}:dtype=float64", {"expect": "mismatch"}, ALIKE),
    "no-init": (2, "--no-init {r}", {"expect": "init_missing_rank"}, ["collectives", "driver-api", "deep-queue"]),
    "slow": (4, "--check --sleep {r}:{nth}:{ms}", {}, list(PROGRAMS)),
    "uneven": (3, "--check --late {r}:1:{late} --late {s}:1:{later}", {}, list(PROGRAMS)),
    "none": (3, "--check", {}, list(PROGRAMS)),
    "killed-from-outside": (2, "--sleep {s}:{nth}:0", {**AT_ONCE, "outside": {"signal": "KILL"}, "expect": "dead_rank"},
                            PROCESSES),
    "stopped-from-outside": (2, "--sleep {s}:{nth}:0", {**SUSPICION, "outside": {"signal": "STOP"},
                                                        "expect": "stopped_rank"}, PROCESSES),
    "no-group-end": (1, "--no-group-end {r}:{nth}", {"expect": "missing_rank"}, ["collectives", "driver-api"]),
    "injected-hang": (4, "", {"fault": "rank={r},nth={nth}:hang", "expect": "missing_rank"}, PROCESSES),
    "injected-kill": (3, "", {**AT_ONCE, "fault": "rank={r},nth={nth}:kill", "expect": "dead_rank"}, PROCESSES),
    "injected-exit": (2, "", {**AT_ONCE, "fault": "rank={r},nth={nth}:exit=1", "expect": "left_early"}, PROCESSES),
    "injected-stop": (2, "", {**SUSPICION, "fault": "rank={r},nth={nth}:stop", "expect": "stopped_rank"}, PROCESSES),
    "injected-stall": (2, "", {"fault": "rank={r},nth={nth}:gpu-stall", "expect": "gpu_stall"}, PROCESSES),
    "injected-count": (2, "", {"fault": "rank={r},nth={nth}:count=+1", "expect": "mismatch"}, ONE_COLLECTIVE),
    "injected-init-hang": (2, "", {"fault": "rank={r}:init-hang", "expect": "init_missing_rank"},
                           ONE_COLLECTIVE + ["deep-queue", "ring", "pairs"]),
    "injected-delays": (2, "--check", {"fault": "rank={r},every={nth}:delay={late}ms", "quiet": False}, PROCESSES),
}
DISAGREE = ("count", "operation", "type", "injected-count")
THREE = DISAGREE + ("two-hang",)  # somebody must be left who waits, or who can say which side is odd
# What a disagreement is seen in: both sides must wait, or nothing is wrong that anybody could see.
SYMMETRIC = ("allreduce", "allgather", "reducescatter", "alltoall")
# Of these the messages are alike: data comes out wrong, and nobody waits.
LIKE_MESSAGES = {"allgather", "reducescatter"}


def draw(seed, number):
    """The choices of one draw."""
    dice = random.Random(f"{seed}/{number}")
    fault = dice.choices(list(FAULTS), [row[0] for row in FAULTS.values()])[0]
    program = dice.choice(FAULTS[fault][3])
    n = dice.choice(PROGRAMS[program][2])
    if fault in DISAGREE or (fault in THREE and n == 2):
        n = dice.choice([size for size in PROGRAMS[program][2] if size > 2])
    healthy = "expect" not in FAULTS[fault][2]
    r = dice.choice((0, n // 2, n - 1, dice.randrange(n)))
    s = dice.choice([rank for rank in range(n) if rank != r])
    # What is healthy runs to its end, and makes all its calls.
    nth = dice.choice(CALLS[:6] if healthy else CALLS)
    if fault in DISAGREE:
        nth = max(nth, PROGRESS)
    op = dice.choice(SYMMETRIC if fault in DISAGREE else COLLECTIVES)
    if "{op}" not in PROGRAMS[program][0]:
        op = "allreduce"  # what the others call
    other = dice.choice([other for other in SYMMETRIC if other != op])
    if {op, other} == LIKE_MESSAGES:
        other = "allreduce"
    endless = "outside" in FAULTS[fault][2] or fault == "no-group-end"  # it would run to its end before anybody acts
    return {"fault": fault, "program": program, "n": n, "r": r, "s": s, "nth": nth, "op": op,
            "other": other, "pause": 20 if endless else dice.choice(PAUSES),
            "iters": nth + 5 if healthy else 1000000 if endless else 1000,
            "batch": dice.choice((1, 2, 3)), "depth": dice.choice((4, 16, 64)), "mix": dice.randrange(1, 1000),
            "delta": dice.choice((1, 100)), "ms": dice.choice((100, 1000, 2500)), "late": dice.choice((1, 5)),
            "later": dice.choice((10, 20))}


def row_of(choices, name):
    """The scenario of these choices, as the suite has it."""
    _, arguments, columns, _ = FAULTS[choices["fault"]]
    program, more, _ = PROGRAMS[choices["program"]]
    words = f"{program} --iters {choices['iters']} {arguments}".rstrip()
    if choices["pause"]:
        words += f" --pause-ms {choices['pause']}"
    row = {"name": name, "program": words.format(**choices), "ranks": [choices["n"]], **more, **columns}
    if "outside" in columns:
        row["outside"] = {"after": f"sleep at call {choices['nth']} of", "rank": str(choices["r"]),
                          **columns["outside"]}
    if "fault" in columns:
        row["fault"] = columns["fault"].format(**choices)
    if "expect" in columns:
        row["culprits"] = [rank.format(**choices) for rank in columns.get("culprits", ["{r}"])]
    return row


def scenario_of(choices, name):
    row = row_of(choices, name)
    scenario = Scenario(row, "fault" if "expect" in row else "healthy", choices["n"], "")
    scenario.family, scenario.draw = f"random/{choices['fault']}", choices
    return scenario


def draws(seed, count):
    """So many scenarios; the first of many are the same as those of few."""
    found = []
    for number in range(count):
        choices = draw(seed, number)
        found.append(scenario_of(choices, f"random/{seed}-{number}-{choices['fault']}-{choices['program']}"))
    return found


# ---- Making what fails smaller ----


def smaller(choices):
    """Choices that are a little simpler, the boldest first."""
    sizes = [size for size in PROGRAMS[choices["program"]][2] if size < choices["n"]]
    if choices["fault"] in THREE:
        sizes = [size for size in sizes if size > 2]
    for n in sizes:
        r = min(choices["r"], n - 1)
        yield {"n": n, "r": r, "s": next(rank for rank in range(n) if rank != r)}
    least = PROGRESS if choices["fault"] in DISAGREE else 1
    for nth in sorted({least, choices["nth"] // 2}):
        if least <= nth < choices["nth"]:
            yield {"nth": nth}
    if choices["r"]:
        yield {"r": 0, "s": 1}
    row = FAULTS[choices["fault"]][2]
    endless = choices["iters"] == 1000000
    if "expect" in row and not endless and choices["iters"] > choices["nth"] + 5:
        yield {"iters": choices["nth"] + 5}
    least = {"pause": 20 if endless else 0, "batch": 1, "depth": 4, "op": "allreduce", "delta": 1, "ms": 100}
    for name, simplest in least.items():
        if choices[name] != simplest and not (
                name == "op" and choices["fault"] == "operation" and choices["other"] == simplest):
            yield {name: simplest}


def fails(session, choices, name, times, play):
    scenario = scenario_of(choices, name)
    scenario.times = times
    try:
        play(session, scenario, Outcome(scenario, scenario.family))
    except Failure:
        return True
    return False


def minimise(session, scenario, play, path):
    """Writes the smallest scenario that was seen to fail; returns its path."""
    choices, replays, passed, again = copy.copy(scenario.draw), 0, [], True
    while again:
        again = False
        for change in smaller(choices):
            # What made it pass once is not tried again with other changes: there are too many of them.
            if change in passed or replays == REPLAYS:
                continue
            replays += 1
            if fails(session, {**choices, **change}, scenario.name, scenario.times, play):
                choices.update(change)
                again = True
                break
            passed.append(change)
    with open(f"{path}.toml", "w") as file:
        file.write(f"# {scenario.name}, made smaller: {replays} other runs were tried.\n")
        file.write("[[row]]\n" + toml_of(row_of(choices, f"{scenario.family}/smaller")))
    return f"{path}.toml"


def toml_of(row):
    return "".join(f"{key} = {toml_value(value)}\n" for key, value in row.items())


def toml_value(value):
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, list):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml_value(item)}" for key, item in value.items()) + "}"
    return '"' + re.sub(r'(["\\])', r"\\\1", value) + '"'
