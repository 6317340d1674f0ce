#!/usr/bin/env python3
"""Checks that files are timelines as viewers of Chrome trace events want them.

    check_trace.py TRACE.json…

What has to hold: every event has its phase, process and track; times are numbers from 0 on; slices of one track nest;
every process and track that is used has one name; every arrow has two ends, in time's direction, each inside a slice of
the track that it names. Prints what it counted. Exit status 0: nothing to say.
"""
import collections
import decimal
import json
import sys

PHASES = {"M", "X", "i", "s", "f"}
METADATA = {"process_name": "name", "process_labels": "labels", "process_sort_index": "sort_index",
            "thread_name": "name", "thread_sort_index": "sort_index"}
SCOPES = {"g", "p", "t"}


class Flaw(Exception):
    pass


def demand(holds, *what):
    if not holds:
        raise Flaw(" ".join(str(word) for word in what))


def units(us):
    """Microseconds with three decimals, in whole nanoseconds."""
    return int(us * 1000)


def is_number(value):
    return isinstance(value, (int, decimal.Decimal)) and not isinstance(value, bool)


def check_event(event):
    demand(isinstance(event, dict), "not an object:", event)
    demand(event.get("ph") in PHASES, "phase:", event)
    demand(isinstance(event.get("pid"), int) and event["pid"] > 0, "pid:", event)
    demand(isinstance(event.get("tid"), int) and event["tid"] >= 0, "tid:", event)
    demand(isinstance(event.get("name"), str) and event["name"], "name:", event)
    if event["ph"] == "M":
        demand(event["name"] in METADATA, "metadata:", event)
        demand(METADATA[event["name"]] in event.get("args", {}), "metadata:", event)
        return
    demand(is_number(event.get("ts")) and event["ts"] >= 0, "ts:", event)
    if event["ph"] == "X":
        demand(is_number(event.get("dur")) and event["dur"] >= 0, "dur:", event)
    if event["ph"] == "i":
        demand(event.get("s") in SCOPES, "scope:", event)
    if event["ph"] in "sf":
        demand(isinstance(event.get("id"), int), "id:", event)
    if event["ph"] == "f":
        demand(event.get("bp") == "e", "an arrow ends in the slice around it:", event)


def names_of(events):
    """Every process and every track has one name."""
    processes, tracks = {}, {}
    for event in events:
        if event["name"] == "process_name" and event["ph"] == "M":
            demand(event["pid"] not in processes, "a second name:", event)
            processes[event["pid"]] = event["args"]["name"]
        if event["name"] == "thread_name" and event["ph"] == "M":
            demand(event["tid"] not in tracks, "a second name, or a track of two processes:", event)
            tracks[event["tid"]] = event["pid"]
    demand(not set(processes) & set(tracks), "numbers of tracks that are those of processes")
    for event in events:
        demand(event["pid"] in processes, "a process without a name:", event)
        if event["tid"]:
            demand(tracks.get(event["tid"]) == event["pid"], "a track without a name:", event)
    return processes, tracks


def slices_of(events):
    """The slices of each track, which nest as they stand in the file, when sorted by their beginning alone."""
    slices = collections.defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            slices[event["tid"]].append((units(event["ts"]), units(event["ts"]) + units(event["dur"]), event["name"]))
    for track, those in slices.items():
        those.sort(key=lambda slice: slice[0])
        around = []
        for begin, end, name in those:
            while around and around[-1][1] <= begin and not (around[-1][1] == begin == end and around[-1][0] == begin):
                around.pop()
            demand(not around or end <= around[-1][1], f"track {track}: {name} reaches out of", around and around[-1])
            around.append((begin, end, name))
    return slices


def check_arrows(events, slices):
    ends = collections.defaultdict(dict)
    for event in events:
        if event["ph"] in "sf":
            demand(event["ph"] not in ends[event["id"]], "an arrow with two ends alike:", event)
            ends[event["id"]][event["ph"]] = event
    for arrow, pair in ends.items():
        demand(len(pair) == 2, "an arrow with one end:", arrow)
        demand(pair["s"]["ts"] <= pair["f"]["ts"], "an arrow against time:", pair)
        for event in pair.values():
            at = units(event["ts"])
            demand(any(begin <= at <= end for begin, end, _ in slices[event["tid"]]), "an arrow from or to nothing:",
                   event)
    return len(ends)


def check(trace):
    demand(isinstance(trace, dict) and isinstance(trace.get("traceEvents"), list), "no object with traceEvents")
    demand(trace.get("displayTimeUnit") in ("ms", "ns"), "displayTimeUnit:", trace.get("displayTimeUnit"))
    events = trace["traceEvents"]
    for event in events:
        check_event(event)
    processes, tracks = names_of(events)
    slices = slices_of(events)
    arrows = check_arrows(events, slices)
    return f"{len(processes)} processes, {len(tracks)} tracks, {sum(map(len, slices.values()))} slices, {arrows} arrows"


def check_file(name):
    """What was counted, in words; raises Flaw."""
    with open(name, encoding="utf-8") as file:
        return check(json.load(file, parse_float=decimal.Decimal))


def main():
    status = 0
    for name in sys.argv[1:]:
        try:
            print(f"{name}: {check_file(name)}")
        except Flaw as flaw:
            print(f"{name}: {flaw}", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
