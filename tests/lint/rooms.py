"""The rooms of each floor: which rooms of its own floor each may include, and so call. Bottom first.

What a room may include lies above it in this list, so there is no circle. tests/lint/includes checks the includes with
every build; test_promises.py checks the symbols of the objects, and that docs/architecture.md has the same table.
"""

# Room: the rooms of the same floor that it may include.
_SEES = {
    "core": {
        "util": "",
        "nccl": "util",
        "config": "util nccl",
        "recorder": "util nccl config",
        "unwind": "util recorder",
        "view": "util nccl config recorder unwind",
        "verdict": "util nccl config view",
        "report": "util nccl config recorder unwind view verdict",
        "runtime": "util nccl config recorder",
        "comm": "util nccl config recorder unwind view report runtime",
        "device": "util nccl config recorder runtime comm",
        "check": "util nccl config recorder view runtime comm device",
        "registration": "util nccl recorder unwind runtime comm device",
        "evidence": "util nccl recorder unwind view verdict report runtime",
        "watchdog": "util nccl recorder runtime comm device check registration",
        "fault": "util nccl config recorder runtime comm device",
        "policy": "util nccl config recorder verdict report runtime comm device evidence watchdog fault",
        "incident": "util nccl config recorder view verdict report runtime comm device check registration evidence "
                    "watchdog policy",
        "call": "util nccl config recorder view runtime comm device check registration watchdog fault policy incident",
        "lifecycle": "util nccl config recorder runtime comm device check registration evidence watchdog fault policy "
                     "incident call",
    },
    "store": {
        "kv": "",
        "wire": "kv",
        "publish": "kv wire",
        "board": "kv wire publish",
        "ras": "",
    },
    "tools": {
        "base": "",
        "inspect": "base",
        "jobs": "base inspect",
        "ingest": "base",
        "judge": "ingest",
        "render": "base ingest judge",
        "cmd": "base inspect jobs ingest judge render",
    },
}
ROOMS = {floor: {room: tuple(sees.split()) for room, sees in rooms.items()} for floor, rooms in _SEES.items()}

# The offline half of core: without threads. The floors beside the program include, and link, nothing else of core.
OFFLINE = ("util", "nccl", "config", "recorder", "unwind", "view", "verdict", "report")
OFFLINE_ONLY = ("store", "tools")


def room_of(path):
    """(floor, room) of a file of ours; room None: its floor has none, or it lies beside them."""
    parts = path.split("/")
    return parts[0], parts[1] if len(parts) > 2 and parts[1] in ROOMS.get(parts[0], ()) else None


def circles(calls):
    """Sets of sources of one room that reach each other by these calls, pairs of a source and one that it calls."""
    called = {}
    for source, other in calls:
        if source != other and room_of(source) == room_of(other):
            called.setdefault(source, set()).add(other)
    reached = {}
    for source in called:
        reached[source], waiting = set(), [source]
        while waiting:
            news = called.get(waiting.pop(), set()) - reached[source]
            reached[source] |= news
            waiting += news
    found = {frozenset(other for other in reached[source] if source in reached.get(other, ()))
             for source in called if source in reached[source]}
    return [set(circle) for circle in found]


def objection(path, header):
    """Why the file `path` must not include, or call what is in, `header`; None: it may."""
    (floor, room), (other, wanted) = room_of(path), room_of(header)
    if floor != other:
        if floor in OFFLINE_ONLY and wanted and other == "core" and wanted not in OFFLINE:
            return f"{floor} sees the offline half of core alone: {', '.join(OFFLINE)}"
        return None
    if not room or not wanted or room == wanted or wanted in ROOMS[floor][room]:
        return None
    return f"room {room} may see only {', '.join(ROOMS[floor][room]) or 'itself'}"
