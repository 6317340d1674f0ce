"""What failed, run again alone: a bound of time that was passed may be the machine's fault, anything else never is.

Late, or failed while the machine stood still: three good runs out of three make it flaky; it counts as passed, is
named, and is written to a file. Twice within a week is red in --full. Wrong: it stays red whatever comes; ten runs tell
how often it happens.
"""
import json
import os
import time

LATE_TIMES, WRONG_TIMES = 3, 10
WEEK_S = 7 * 24 * 3600
MOST = 20          # failures that are repeated; beyond, something is broken, and repeating tells nothing
SECONDS = 900      # for all of it


def pressure():
    """What the kernel says of waiting for a processor, in percent of the last ten seconds; None: it does not say."""
    try:
        with open("/proc/pressure/cpu") as file:
            return float(file.readline().split("avg10=")[1].split()[0])
    except (OSError, IndexError, ValueError):
        return None


def history_path():
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(base, "ncclguard", "flaky.jsonl")


def remember(names, path, now):
    """Notes flaky tests; those that were flaky before within a week are returned."""
    before = set()
    try:
        with open(path) as file:
            for line in file:
                entry = json.loads(line)
                if now - entry["time"] < WEEK_S:
                    before.add(entry["name"])
    except (OSError, ValueError, KeyError):
        pass
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "a") as file:
            for name in names:
                file.write(json.dumps({"name": name, "time": now}) + "\n")
    except OSError:
        pass  # a home that cannot be written to remembers nothing
    return sorted(set(names) & before)


def repeat_all(failures, run_alone, say, now=time.monotonic):
    """Repeats each of `failures` (objects with name and late) by run_alone(failure), which is true for a good run. The
    flaky ones are returned."""
    flaky, began = [], now()
    # What can still turn good comes first.
    for failure in sorted(failures, key=lambda one: not one.late)[:MOST]:
        times = LATE_TIMES if failure.late else WRONG_TIMES
        good, ran = 0, 0
        while ran < times and now() - began < SECONDS:
            ran += 1
            good += bool(run_alone(failure))
            if failure.late and good < ran:
                break
        load = pressure()
        say(f"{'late' if failure.late else 'wrong'}: {failure.name}: alone, {good} of {ran} runs were good"
            + (f" (processors: {load:.0f} % of the time somebody waits)" if load is not None else ""))
        if failure.late and good == LATE_TIMES:
            flaky.append(failure)
    return flaky
