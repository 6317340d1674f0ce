"""Checks a folder of evidence: rank_<r>.json against core/report/dump.h, fr/rank_<r> against what PyTorch's
analyzer reads (core/report/flight.h), and both against each other. What is wrong is raised as Wrong."""

import ast
import io
import json
import os
import pickle
import re

COLLECTIVES = {"all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"}
PROFILING_NAME = re.compile(r"nccl:(?:(\w+)|(send) (\d+)->(\d+)|(recv) (\d+)<-(\d+))$")
DTYPES = {"Char", "Byte", "Int", "UInt32", "Long", "UInt64", "Half", "Float", "Double", "BFloat16", "Float8_e4m3fn",
          "Float8_e5m2"}
HEX = re.compile(r"[0-9a-f]{16}$")


class Wrong(Exception):
    pass


def need(condition, *what):
    if not condition:
        raise Wrong(" ".join(str(part) for part in what))


class Number:
    """A whole number; JSON holds those above 2^63 - 1 as text."""

    def __init__(self, low=-(1 << 63)):
        self.low = low

    def fits(self, value):
        if isinstance(value, str) and value.isdigit():
            value = int(value)
        return type(value) is int and value >= self.low


INT, COUNT = Number(), Number(0)
TEXT, BOOL = str, bool
ID = "16 hex digits"


def fits(value, kind):
    if isinstance(kind, Number):
        return kind.fits(value)
    if kind is ID:
        return isinstance(value, str) and HEX.match(value) is not None
    if isinstance(kind, tuple):
        return any(fits(value, one) for one in kind)
    if kind is None:
        return value is None
    return type(value) is kind


def check_fields(what, value, fields):
    """Every field is there, of its type, and no other."""
    need(isinstance(value, dict), what, "is no object")
    need(set(value) == set(fields), what, "has the wrong fields:", sorted(set(value) ^ set(fields)))
    for name, kind in fields.items():
        need(fits(value[name], kind), what, name, "is", repr(value[name])[:80])


# ---- rank_<r>.json ----

SIGNATURE = {"op": (TEXT, None), "op_number": COUNT, "dtype": (TEXT, None), "dtype_number": INT,
             "redop": (TEXT, None), "redop_number": INT, "root": INT, "count": COUNT}
FILE = {"schema": TEXT, "guard_version": TEXT, "job": TEXT, "written_unix_ns": COUNT,
        "on_request": BOOL, "rank": Number(-1), "process": dict,
        "calls": list, "calling_threads": list, "durations": list, "members": list, "notes": list}
PROCESS = {"rank": Number(-1), "world_size": Number(-1), "local_rank": Number(-1), "pid": COUNT, "uid": ID,
           "host": TEXT, "program": TEXT, "nccl_variables": TEXT, "error_text": TEXT, "source": TEXT,
           "memory": (list, None), "life": TEXT,
           "life_number": COUNT,
           "exit_status": INT, "quiet_ns": COUNT, "watchdog_stuck_ns": COUNT, "watchdog_in": TEXT,
           "nan": (dict, None), "devices_age_ns": COUNT, "device_errors": list,
           "suspect_ns": COUNT, "cold_suspect_ns": COUNT, "life_age_ns": COUNT, "alive_age_ns": COUNT,
           "moment_mono_ns": COUNT, "moment_unix_ns": COUNT,
           "settings": list, "environment": list, "environment_left_out": COUNT}
SETTING = {"name": TEXT, "value": TEXT, "from": TEXT}
VARIABLE = {"name": TEXT, "value": TEXT}
CALL = {"tid": COUNT, "op": (TEXT, None), "op_number": COUNT, "group_id": ID, "group_rank": Number(-1), "seq": COUNT,
        "record_id": COUNT, "age_ns": COUNT}
THREAD = {"tid": Number(1), "name": TEXT}
MEMBER = {"rank": Number(-1), "group_rank": Number(-1), "device": Number(-1), "pci_id": TEXT, "group_id": ID,
          "parent_id": ID, "joined_id": ID, "excluded": ID,
          "group_name": TEXT, "nranks": COUNT, "nccl_version": COUNT, "state": TEXT,
          "state_number": COUNT, "created_by": (TEXT, None), "created_by_number": COUNT, "created_age_ns": COUNT,
          "ended_age_ns": COUNT, "async_error": COUNT, "error_age_ns": COUNT, "cuda_error": COUNT, "creator_tid": COUNT,
          "color": INT,
          "ordinal": COUNT, "derived": COUNT, "entered": COUNT, "scheduled": COUNT, "started": COUNT,
          "completed": COUNT, "p2p_entered": COUNT, "p2p_completed": COUNT, "rolling_hash": ID, "last": dict,
          "registration": (dict, None),
          "timeout_ns": COUNT, "policy": (TEXT, None), "policy_number": COUNT, "rests": BOOL,
          "coll_joined": COUNT, "p2p_joined": COUNT, "groups_closed": COUNT,
          "pending_seq": COUNT, "pending_record": COUNT, "pending_age_ns": COUNT, "pending_started": BOOL,
          "records": list, "composed": list, "samples": list}
HOST_CALLS = {"CommWindowRegister": COUNT, "CommWindowDeregister": COUNT, "DevCommCreate": COUNT,
              "DevCommDestroy": COUNT, "CommSuspend": COUNT, "CommResume": COUNT, "batch_op_number": COUNT,
              "batch_tid": COUNT, "batch_open": BOOL}
RECORD = {"id": Number(1), "state": TEXT, "state_number": Number(1), **SIGNATURE, "coll_seq": COUNT, "p2p_seq": COUNT,
          "peer_ordinal": COUNT, "op_id": Number(1), "retired": BOOL, "entered_age_ns": COUNT, "started_age_ns": COUNT,
          "completed_age_ns": COUNT, "stream": ID, "work_previous": COUNT, "caller": ID, "flags": COUNT, "tid": COUNT,
          "result": TEXT, "result_number": COUNT, "rolling_hash": ID, "duration_ns": COUNT}
FRAME = {"name": (TEXT, None), "name_offset": COUNT, "file": (TEXT, None), "offset": COUNT}
MODULE = {"path": TEXT, "build_id": TEXT}
SAMPLE = {"seq": Number(1), "calls": Number(1), "duration_ns": Number(1)}
DURATION = {"group_id": ID, "op": TEXT, "op_number": Number(1), "size_class": COUNT, "count": Number(1),
            "sum_ns": COUNT, "min_ns": Number(1), "max_ns": Number(1), "histogram": list}
FAULT = {"fault": TEXT, "times": Number(1), "rank": Number(-1), "op": TEXT, "op_number": Number(1), "group_id": ID,
         "seq": COUNT, "first_age_ns": COUNT, "last_age_ns": COUNT}
COMPOSED = {"op": TEXT, "op_number": Number(1), "root": Number(-1), "sent": COUNT, "received": COUNT, "records": list}

CONNECTION = {"peer": COUNT, "sends": BOOL, "moves": BOOL, "flags": COUNT, "channels": Number(1), "begun": COUNT,
              "taken": COUNT, "held": COUNT, "channel": COUNT, "base": COUNT, "posted": COUNT, "consumed": COUNT,
              "queued": COUNT}


def check_frames(what, record, modules):
    """Taken out: they are there where calls keep them."""
    frames, whole = record.pop("frames", None), record.pop("frames_whole", None)
    need(whole is None if frames is None else type(whole) is bool, what, "frames_whole is", whole)
    for frame in frames or ():
        check_fields(f"{what} frame", frame, FRAME)
        need(frame["file"] is None or frame["file"] in modules, what, "has a frame in no module", frame)


def check_replay(what, record):
    """Taken out: it is there where the call came with the launch of a CUDA graph."""
    if record.get("graph") is None:
        return
    replay = {name: record.pop(name, None) for name in ("graph", "replay", "graph_position", "graph_calls")}
    need(all(type(value) is int and value > 0 for value in replay.values()) and
         replay["graph_position"] <= replay["graph_calls"], what, "has the replay", replay)


def check_host_calls(what, member):
    """Taken out: they are there where calls of that kind were made."""
    calls = member.pop("host_calls", None)
    if calls is not None:
        check_fields(f"{what} host_calls", calls, HOST_CALLS)


def check_member(what, member, modules):
    check_host_calls(what, member)
    for name in ("pending_vague", "pending_inferred", "pending_unwatched"):
        need(member.pop(name, True) is True, what, name)
    counted = [member.pop(name, None) for name in ("counted_seq", "counted_left")]
    need(counted == [None, None] or all(type(count) is int and count >= 0 for count in counted), what, "has", counted)
    looked = [member.pop(name, None) for name in ("connections", "connections_age_ns")]
    need(looked == [None, None] or type(looked[1]) is int and looked[1] >= 0, what, "has", looked)
    for connection in looked[0] or ():
        check_fields(f"{what} connection", connection, CONNECTION)
    check_fields(what, member, MEMBER)
    check_fields(f"{what} last", member["last"], SIGNATURE)
    need(member["group_rank"] < max(member["nranks"], 1), what, "has no place in its group")
    before = 0
    ids = set()
    for record in member["records"]:
        name = f"{what} record {record.get('id')}"
        check_frames(name, record, modules)
        check_replay(name, record)
        check_fields(name, record, RECORD)
        need(record["id"] > before, name, "is out of order")
        before = record["id"]
        ids.add(before)
        need(record["op_id"] == record["coll_seq"] + record["p2p_seq"], name, "op_id")
        need(record["work_previous"] < record["id"], name, "follows itself")
        need(record["completed_age_ns"] <= record["started_age_ns"] <= record["entered_age_ns"], name,
             "has times out of order")
        need(not record["duration_ns"] or record["state"] == "completed", name, "has a duration, but is",
             record["state"])
    for sample in member["samples"]:
        check_fields(f"{what} sample", sample, SAMPLE)
    for composed in member["composed"]:
        check_fields(f"{what} composed", composed, COMPOSED)
        need(composed["records"] and ids.issuperset(composed["records"]), what, "is composed of records it has not")


def read_dump(path):
    with open(path) as file:
        dump = json.load(file)
    what = os.path.basename(path)
    modules = dump.pop("modules", [])
    for module in modules:
        check_fields(f"{what} module", module, MODULE)
    # Host stacks are there where they were taken.
    check_fields(what, {key: value for key, value in dump.items()
                        if key not in ("threads", "stacks", "python", "faults")}, FILE)
    # Only where some were injected.
    need(dump.get("faults", [{}]), what, "faults is there and empty")
    for fault in dump.get("faults", []):
        check_fields(f"{what} fault", fault, FAULT)
    need(dump["schema"] == "ncclguard.rank/1", what, "schema", dump["schema"])
    check_fields(f"{what} process", dump["process"], PROCESS)
    for setting in dump["process"]["settings"]:
        check_fields(f"{what} setting", setting, SETTING)
    for variable in dump["process"]["environment"]:
        check_fields(f"{what} variable", variable, VARIABLE)
    for call in dump["calls"]:
        check_fields(f"{what} call", call, CALL)
    for thread in dump["calling_threads"]:
        check_fields(f"{what} thread", thread, THREAD)
    for duration in dump["durations"]:
        check_fields(f"{what} duration", duration, DURATION)
        # It is written while it is counted.
        need(duration["count"] - 1 <= sum(duration["histogram"]) <= duration["count"], what, "duration", duration)
    for member in dump["members"]:
        check_member(f"{what} {member.get('group_id')}", member, [module["path"] for module in modules])
    need(all(isinstance(note, str) for note in dump["notes"]), what, "notes")
    return dump


# ---- fr/rank_<r> ----

FLIGHT = {"version": TEXT, "comm_lib_version": TEXT, "entries": list, "pg_config": dict, "pg_status": dict,
          "nccl_comm_state": dict, "time_dumped_ns": Number(1)}
ENTRY = {"record_id": COUNT, "pg_id": COUNT, "process_group": tuple, "collective_seq_id": COUNT, "p2p_seq_id": COUNT,
         "op_id": Number(1), "profiling_name": TEXT, "time_created_ns": Number(1), "input_sizes": list,
         "input_dtypes": list, "output_sizes": list, "output_dtypes": list, "state": TEXT,
         "time_discovered_started_ns": (Number(1), None), "time_discovered_completed_ns": (Number(1), None),
         "retired": BOOL, "timeout_ms": COUNT, "is_p2p": BOOL, "thread_id": TEXT, "thread_name": TEXT}
STATUS = {"last_enqueued_collective": Number(-1), "last_started_collective": Number(-1),
          "last_completed_collective": Number(-1)}


class Plain(pickle.Unpickler):
    """Nothing in it may have to be executed."""

    def find_class(self, module, name):
        raise Wrong(f"the pickle wants {module}.{name}")


def product(sizes):
    number = 1
    for size in sizes:
        number *= size
    return number


def check_sides(what, entry, ranks):
    for side in ("input", "output"):
        sizes, dtypes = entry[f"{side}_sizes"], entry[f"{side}_dtypes"]
        need(len(sizes) == 1 and isinstance(sizes[0], list) and all(type(size) is int for size in sizes[0]), what,
             sizes)
        need(len(dtypes) == len(sizes[0]) and set(dtypes) <= DTYPES, what, dtypes)
    given, taken = entry["input_sizes"][0], entry["output_sizes"][0]
    op = entry["profiling_name"][5:]
    if op == "all_gather":
        need(product(taken) == product(given) * len(ranks), what, "output is not input times ranks")
    if op == "reduce_scatter":
        need(product(given) == product(taken) * len(ranks), what, "input is not output times ranks")
    if op in ("all_reduce", "broadcast", "reduce"):
        need(given == taken and given, what, "is not of one size")
    if op == "all_to_all":
        need(given and taken, what, "has no sizes")
    if op == "coalesced":
        need(not given and not taken, what, "has sizes")


def check_name(what, entry, ranks, rank):
    name = PROFILING_NAME.match(entry["profiling_name"])
    need(name, what, "is called", entry["profiling_name"])
    word, send, source, target, receive, taker, giver = name.groups()
    if word:
        need(word in COLLECTIVES or word == "coalesced", what, "is called", word)
        need(not entry["is_p2p"] or word == "coalesced", what, "is no message")
        need(word == "coalesced" or entry["collective_seq_id"] > 0, what, "has no number")
        return
    here, there = (int(source), int(target)) if send else (int(taker), int(giver))
    need(entry["is_p2p"] and entry["p2p_seq_id"] > 0, what, "is a message")
    need(max(here, there) < len(ranks) and sorted(ranks)[here] == rank, what, "is not of rank", rank)


def check_closings(what, entries):
    """Calls that share their number are followed by one closing entry."""
    launches = {}
    for entry in entries:
        seq = ("p2p", entry["p2p_seq_id"]) if entry["is_p2p"] else ("coll", entry["collective_seq_id"])
        composed = entry["process_group"][0].endswith("/p2p")
        launches.setdefault((entry["pg_id"], composed, *seq), []).append(entry["profiling_name"] == "nccl:coalesced")
    for launch, closing in launches.items():
        open_group = launch == max((other for other in launches if other[:3] == launch[:3]))
        need(len(closing) == 1 or open_group or (closing[-1] and not any(closing[:-1])), what, launch,
             "is a group without end")


def read_flight(path, rank, disagree=False):
    with open(path, "rb") as file:
        data = file.read()
    stream = io.BytesIO(data)
    flight = Plain(stream).load()
    what = f"fr/rank_{rank}"
    need(stream.tell() == len(data), what, "goes on after its end")
    check_fields(what, flight, {**FLIGHT, **({"on_request": BOOL} if "on_request" in flight else {})})
    need(flight["version"] == "2.10", what, "version", flight["version"])
    need(re.match(r"(\d+\.\d+\.\d+)?$", flight["comm_lib_version"]), what, flight["comm_lib_version"])
    groups = {}
    for name, group in flight["pg_config"].items():
        check_fields(f"{what} {name}", group, {"name": TEXT, "desc": TEXT, "ranks": TEXT})
        need(group["name"] == name, what, name, "is named", group["name"])
        groups[name] = ast.literal_eval(group["ranks"])
        need(all(type(one) is int and one >= 0 for one in groups[name]) and rank in groups[name] and
             (disagree or len(set(groups[name])) == len(groups[name])), what, name, group["ranks"])
    for pg_id, status in flight["pg_status"].items():
        check_fields(f"{what} status {pg_id}", status, STATUS)
    for name, state in flight["nccl_comm_state"].items():
        need(name in groups and all(isinstance(text, str) for text in state.values()), what, name, state)
    before = -1
    for entry in flight["entries"]:
        name = f"{what} entry {entry.get('record_id')}"
        # Only what was measured has a duration.
        duration = entry.pop("duration_ms", None)
        for frame in entry.pop("frames", []):
            check_fields(f"{name} frame", frame, {"name": TEXT, "filename": TEXT, "line": COUNT})
        check_fields(name, entry, ENTRY)
        need(duration is None or (type(duration) is float and duration > 0), name, "took", duration)
        need(duration is None or entry["state"] == "completed", name, "has a duration and is", entry["state"])
        need(entry["record_id"] > before, name, "is out of order")
        before = entry["record_id"]
        group, desc = entry["process_group"]
        need(group in groups and flight["pg_config"][group]["desc"] == desc, name, "is of no group:", group)
        need(str(entry["pg_id"]) in flight["pg_status"], name, "pg_id", entry["pg_id"])
        need(entry["state"] in ("scheduled", "started", "completed"), name, "is", entry["state"])
        check_name(name, entry, groups[group], rank)
        check_sides(name, entry, groups[group])
    check_closings(what, flight["entries"])
    return flight


# ---- Together ----


def check_groups(flights, complete):
    """What all files say of a group must be the same, and every rank that is named has a file."""
    descriptions = {}
    for rank, flight in flights.items():
        for name, group in flight["pg_config"].items():
            ranks = frozenset(ast.literal_eval(group["ranks"]))
            need(descriptions.setdefault((name, ranks), group["desc"]) == group["desc"], "fr/ descriptions of", name)
            need(not complete or ranks <= set(flights), f"fr/rank_{rank}: {name} names ranks without a file:",
                 sorted(ranks - set(flights)))


def missing_ranks(flights, group_id):
    """Of the first collective of a group that not all its ranks have called: those that have not, with its number.
    This is what the analyzer goes by."""
    calls = {}
    for rank, flight in flights.items():
        ranks = frozenset(ast.literal_eval(flight["pg_config"].get(group_id, {"ranks": "[]"})["ranks"]))
        for entry in flight["entries"]:
            if entry["process_group"][0] == group_id:
                calls.setdefault(entry["collective_seq_id"], (ranks, set()))[1].add(rank)
    # Rings do not begin with the same call: the newest of the oldest counts.
    first = [min([entry["collective_seq_id"] for entry in flight["entries"] if entry["process_group"][0] == group_id],
                 default=0) for flight in flights.values()]
    for seq, (ranks, callers) in sorted(calls.items()):
        if seq >= max(first) and callers != ranks:
            return seq, sorted(ranks - callers)
    return None, []


def check_folder(folder, verdict=None):
    """Everything in a folder of evidence whose processes were all of this host; raises Wrong."""
    dumps, flights = {}, {}
    # Ranks that do not mean the same communicator: each says of it what it was told itself.
    disagree = bool(verdict) and verdict["kind"] == "init_mismatch"
    for name in sorted(os.listdir(folder)):
        if re.match(r"rank_(unknown_)?\d+\.json$", name):
            dumps[name] = read_dump(f"{folder}/{name}")
    need(dumps, "no rank_<r>.json")
    for name in sorted(os.listdir(f"{folder}/fr")):
        rank = re.match(r"rank_(\d+)$", name)
        need(rank, "fr/ holds", name)
        flights[int(rank[1])] = read_flight(f"{folder}/fr/{name}", int(rank[1]), disagree)
    ranks = {dump["rank"] for dump in dumps.values() if dump["rank"] >= 0}
    ranks |= {member["rank"] for dump in dumps.values() for member in dump["members"] if member["rank"] >= 0}
    # Without a board, ranks do not wait for each other, and end each other while they write.
    complete = not disagree and not (verdict and verdict["missing_evidence"])
    need(not complete or set(flights) == ranks, "fr/ is of ranks", sorted(flights), "and the dumps of", sorted(ranks))
    for dump in dumps.values():
        for member in dump["members"]:
            told = [entry for entry in flights.get(member["rank"], {"entries": []})["entries"]
                    if entry["process_group"][0] == member["group_id"] + "/p2p"]
            need(member["rank"] < 0 or len(told) == len(member["composed"]), member["group_id"], "composed:",
                 len(member["composed"]), "and in fr/", len(told))
    check_groups(flights, complete)
    if verdict and verdict["kind"] == "missing_rank" and verdict["op"] in OPS:
        seq, missing = missing_ranks(flights, verdict["group"]["id"])
        culprits = sorted(culprit["rank"] for culprit in verdict["culprits"])
        # Who waits in one group is missing in another, and who has left a NCCL group open has made the call.
        groups = {entry["process_group"][0] for flight in flights.values() for entry in flight["entries"]}
        called = [entry for rank in culprits for entry in flights[rank]["entries"] if entry["state"] == "scheduled"]
        need(len(groups) != 1 or called or missing == culprits, "fr/: ranks", missing, "miss call", seq)


OPS = {"AllReduce", "Broadcast", "Reduce", "AllGather", "ReduceScatter", "AlltoAll", "Gather", "Scatter"}
