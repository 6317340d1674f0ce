"""The score of a suite: what each run came to, added up to tables, and compared with an earlier board.

Pure: outcomes in, a board out. A board is what --json writes, and what the tables are made from; what is compared can
be read from the tables again.

A verdict is *right* when its kind is one that the scenario expects, and its culprits are right when they are the
expected ranks and no others. The time to a verdict counts from the stall threshold, which is the earliest moment at
which the guard may speak of a stall (the suspicion, else the deadline, after the fault); of kinds that are told at once
it counts from the fault itself.
"""
import collections
import json
import re

SCHEMA = "ncclguard.scoreboard/1"
# Told when they happen; no stall is waited for.
AT_ONCE = ("dead_rank", "left_early", "async_error", "cuda_error", "nan")
NOTHING = "nothing"  # where no verdict was, or should be
UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds(duration):
    """A duration as the guard's options take it."""
    number, unit = re.fullmatch(r"([\d.]+)(ms|s|m|h)?", duration).groups()
    return float(number) * UNITS[unit or "s"]


def threshold_of(scenario):
    """Seconds from the fault to the moment from which a verdict's time counts; None: it has no such moment."""
    if scenario.threshold:
        return None if scenario.threshold == "none" else seconds(scenario.threshold)
    times = [seconds(text) for text in (scenario.suspect, scenario.timeout)]
    return min((time for time in times if time > 0), default=None)


class Outcome:
    """What one run of one scenario came to."""

    def __init__(self, scenario, family):
        self.family = family  # the row that it is a run of
        self.name, self.kind = scenario.name, scenario.kind
        expect = scenario.expect or NOTHING
        self.expect = expect if isinstance(expect, list) else [expect]
        self.culprits = None if scenario.culprits is None else sorted(int(rank) for rank in scenario.culprits)
        self.threshold_s, self.own_threshold = threshold_of(scenario), bool(scenario.threshold)
        self.begin()
        self.failure = None     # why the run did not pass, whatever it was

    def begin(self):
        """Of an attempt that was given up nothing counts."""
        self.named, self.named_culprits = NOTHING, []
        self.told_s = None      # from the threshold to the first right word in the log
        self.ran_s = 0.0
        self.alarms = 0         # words about a fault in a run that had none

    def note_verdict(self, verdict):
        self.named = verdict["kind"]
        self.named_culprits = sorted(culprit["rank"] for culprit in verdict["culprits"])

    def note_words(self, words, faults):
        """Verdicts in the log as (time, kind), and the times of the faults."""
        if self.kind != "fault":
            self.alarms = len(words)
            return
        for at, kind in sorted(words):
            before = [fault for fault in faults if fault <= at]
            if kind not in self.expect or not before or self.threshold_s is None:
                continue
            threshold = 0.0 if kind in AT_ONCE and not self.own_threshold else self.threshold_s
            self.told_s = max(0.0, at - max(before) - threshold)
            return

    @property
    def kind_right(self):
        return self.named in self.expect and not self.alarms

    @property
    def culprits_right(self):
        return self.culprits is None or (self.named_culprits == self.culprits and self.named != NOTHING)


# ---- Adding up ----


def quantile(values, share):
    """The smallest value that so many of the values do not exceed; None of nothing."""
    values = sorted(values)
    return round(values[min(len(values) - 1, int(share * len(values)))], 3) if values else None


def percent(part, whole):
    return round(100.0 * part / whole, 2) if whole else None


def totals_of(outcomes):
    faults = [one for one in outcomes if one.kind != "healthy"]
    healthy = [one for one in outcomes if one.kind == "healthy"]
    with_culprits = [one for one in faults if one.culprits is not None]
    told = [one.told_s for one in faults if one.told_s is not None]
    hours = sum(one.ran_s for one in healthy) / 3600
    alarms = sum(one.named != NOTHING or one.alarms > 0 for one in healthy)
    return {
        "fault_runs": len(faults),
        "kind_right": sum(one.kind_right for one in faults),
        "kind_right_percent": percent(sum(one.kind_right for one in faults), len(faults)),
        "culprit_runs": len(with_culprits),
        "culprit_right": sum(one.culprits_right for one in with_culprits),
        "culprit_right_percent": percent(sum(one.culprits_right for one in with_culprits), len(with_culprits)),
        "told_runs": len(told),
        "told_median_s": quantile(told, 0.5), "told_p99_s": quantile(told, 0.99), "told_worst_s": quantile(told, 1),
        "healthy_runs": len(healthy), "healthy_hours": round(hours, 3), "false_alarms": alarms,
        "false_alarms_per_healthy_hour": round(alarms / hours, 3) if hours else None,
        "failed": sum(one.failure is not None for one in outcomes),
    }


def confusion_of(outcomes):
    """{expected: {named: runs}}; of several kinds that are right, the one that was named is the expected one."""
    table = collections.defaultdict(collections.Counter)
    for one in outcomes:
        named = one.named if one.kind != "healthy" or not one.alarms else "an alarm"
        table[named if named in one.expect else one.expect[0]][named] += 1
    return {expected: dict(sorted(row.items())) for expected, row in sorted(table.items())}


def families_of(outcomes):
    families = collections.defaultdict(list)
    for one in outcomes:
        families[one.family].append(one)
    table = {}
    for family, runs in sorted(families.items()):
        told = [one.told_s for one in runs if one.told_s is not None]
        table[family] = {
            "expect": " or ".join(runs[0].expect), "runs": len(runs),
            "kind_right": sum(one.kind_right for one in runs),
            "culprit_right": sum(one.culprits_right for one in runs),
        }
        if told:
            table[family].update(told_median_s=quantile(told, 0.5), told_worst_s=quantile(told, 1))
    return table


def board_of(outcomes, about):
    """`about`: how the runs were made, for whoever wants to make them again."""
    return {"schema": SCHEMA, "about": about, "totals": totals_of(outcomes), "confusion": confusion_of(outcomes),
            "scenarios": families_of(outcomes)}


# ---- Comparing ----


def read(text):
    """A board as --json or --markdown wrote it: of tables, what `compare` asks of one."""
    if text.startswith("{"):
        return json.loads(text)
    alarms = re.search(r"^\| false alarms \|.* hours: (\S+) an hour", text, re.M).group(1)
    scenarios = {}
    for name, runs, kind, culprits in re.findall(r"^\| (\S+) \| [^|]* \| (\d+) \| (\d+) \| (\d*) \|",
                                                 text.partition("## Scenarios")[2], re.M):
        scenarios[name] = {"runs": int(runs), "kind_right": int(kind), "culprit_right": int(culprits or runs)}
    return {"totals": {"false_alarms_per_healthy_hour": None if alarms == number(None) else float(alarms)},
            "scenarios": scenarios}


def compare(old, new):
    """Lines, one for each regression of what both boards have. A run that is no longer right, accuracy, alarms: not
    times, which are the machine's; the bound of each scenario is its own."""
    said = []
    shared = [name for name in new["scenarios"] if name in old["scenarios"]]
    for name in shared:
        before, now = old["scenarios"][name], new["scenarios"][name]
        for field, word in (("kind_right", "kind"), ("culprit_right", "culprits")):
            if before[field] == before["runs"] and now[field] < now["runs"]:
                said.append(f"{name}: the {word} was right in all of {before['runs']} runs, and is now in "
                            f"{now[field]} of {now['runs']}")

    def share(board, field):
        runs = sum(board["scenarios"][name]["runs"] for name in shared)
        return sum(board["scenarios"][name][field] for name in shared) / runs if runs else 1.0

    for field, word in (("kind_right", "kind"), ("culprit_right", "culprits")):
        if share(new, field) < share(old, field):
            said.append(f"accuracy of {word} in what both have: {100 * share(new, field):.2f} %, was "
                        f"{100 * share(old, field):.2f} %")
    rate = "false_alarms_per_healthy_hour"
    if (new["totals"][rate] or 0) > (old["totals"][rate] or 0):
        said.append(f"{new['totals'][rate]} false alarms in a healthy hour, was {old['totals'][rate]}")
    return said


# ---- Tables ----


def number(value, unit=""):
    return "–" if value is None else f"{value}{unit}"


def total_rows(board):
    total = board["totals"]
    yield "kind right", (f"{number(total['kind_right_percent'], ' %')} ({total['kind_right']} of "
                         f"{total['fault_runs']} runs with a fault)")
    yield "culprits right", (f"{number(total['culprit_right_percent'], ' %')} ({total['culprit_right']} of "
                             f"{total['culprit_runs']} runs that have some)")
    yield "verdict after the stall threshold", (
        f"median {number(total['told_median_s'], ' s')}, 99 % within {number(total['told_p99_s'], ' s')}, worst "
        f"{number(total['told_worst_s'], ' s')} ({total['told_runs']} runs)")
    yield "false alarms", (f"{total['false_alarms']} in {total['healthy_runs']} healthy runs, "
                           f"{total['healthy_hours']} hours: {number(total['false_alarms_per_healthy_hour'])} an hour")
    if total["failed"]:
        yield "runs that failed in something else or in this", str(total["failed"])


def confusion_rows(board):
    """Head and rows of expected × named."""
    named = sorted({kind for row in board["confusion"].values() for kind in row})
    yield ["expected \\ named"] + named
    for expected, row in board["confusion"].items():
        yield [expected] + [str(row.get(kind, "")) for kind in named]


def family_rows(board):
    yield ["scenario", "expected", "runs", "kind", "culprits", "median s", "worst s"]
    for name, row in board["scenarios"].items():
        healthy = row["expect"] == NOTHING
        yield [name, row["expect"], str(row["runs"]), str(row["kind_right"]),
               "" if healthy else str(row["culprit_right"]),
               *(f"{row[time]:.2f}" if time in row else "" for time in ("told_median_s", "told_worst_s"))]


def columns(rows):
    rows = list(rows)
    widths = [max(len(cell) for cell in column) for column in zip(*rows)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]


def as_text(board):
    lines = columns(family_rows(board)) + [""] + columns(confusion_rows(board)) + [""]
    return "\n".join(lines + columns(total_rows(board))) + "\n"


def table(rows):
    head, *rest = list(rows)
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(row) + " |" for row in rest]


def as_markdown(board):
    about = board["about"]
    made = f"{about['version']}, by `{about['command']}` on {about['machine']}, {about['date']}."
    lines = ["# Scoreboard", "", made, ""]
    lines += table([["what", "figure"]] + [list(row) for row in total_rows(board)])
    lines += ["", "## Expected and named", "", *table(confusion_rows(board))]
    lines += ["", "## Scenarios", "", *table(family_rows(board))]
    return "\n".join(lines) + "\n"
