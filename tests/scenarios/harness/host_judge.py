"""The judge of a job of several hosts: what every host must know, say and leave behind."""
import os
import re
import time

from .host_job import GUARD_LINE, STORE_BACK
from .processes import processes_of
from .verdicts import Failure, Late, TooLate, check, check_names, check_verdict, ranks_in

# Of a server that is there: on a loaded machine the answer, or the rank, came too late.
SLOW_STORE = re.compile(r"the store redis\S* cannot be used: .*did not answer in time")
ALLOWED_SECRETS = ("redis.conf", "sentinel.conf")  # files of the servers themselves


def kinds_of(row):
    return row.expect if isinstance(row.expect, list) else [row.expect]


def judge_verdict(job, node, verdict):
    """One host's copy of the verdict."""
    row = job.row
    check_verdict(row, verdict)
    if row.certain_of is not None and verdict["kind"] not in row.certain_of and verdict["confidence"] == "certain":
        raise Failure(f"{node}: certain of what nobody can know: {verdict['culprits']}")
    for culprit in verdict["culprits"]:
        # Who never made a communicator left nothing that would tell where it is.
        if culprit["rank"] in range(row.n) and culprit["pid"]:
            there = job.node_of(culprit["rank"])
            # NCCL's RAS has addresses instead of names.
            if culprit["host"] != job.network.hosts[there].address:
                check(f"{node}: host of rank {culprit['rank']}", culprit["host"], there)
    check(f"{node}: job", verdict["job"], job.name if row.job == "own" else job.places)


def compare_verdicts(verdicts):
    """One verdict for all: worked out by one rank, the same wherever it is kept."""
    (first, one), *rest = verdicts.items()
    for node, other in rest:
        for field in sorted(set(one) | set(other)):
            if one.get(field) != other.get(field):
                raise Failure(f"{first} and {node} differ in {field}: {one.get(field)!r} and {other.get(field)!r}")


def check_words(job):
    """Verdicts in the log, suspicions too."""
    row = job.row
    apart = {rank for host in row.apart for rank in range(host * row.ranks, (host + 1) * row.ranks)}
    for _, line in job.lines():
        if re.search(r"ERROR: (Address|Thread|Leak|Undefined)|runtime error:", line):
            raise Failure(f"a sanitizer complains: {line}")
    for _, found in job.verdict_words():
        line = found[0]
        if not row.expect:
            raise Failure(f"a false alarm: {line}")
        if row.suspects and int(GUARD_LINE.match(line)[2]) not in apart:
            check_names(row, f"log line “{line}”", {
                "kind": found[2], "culprits": [{"rank": rank} for rank in ranks_in(found[3])]})


def check_store_words(job):
    row = job.row
    if row.store_words == "any":
        return
    wanted = ["none", "lost", "lost and back"].index(row.store_words)
    for rank, (lost, back) in job.store_lines().items():
        if rank // row.ranks in row.apart or rank in job.ended or job.node_of(rank) in job.gone:
            continue
        if len(lost) != min(wanted, 1) or len(back) != max(wanted - 1, 0):
            slow = wanted == 0 and len(lost) >= len(back) and all(SLOW_STORE.search(line) for line in lost)
            raise (Late if slow else Failure)(
                f"rank {rank} says of the store: {lost + back}, should be once: {row.store_words}")


def check_secrets(job):
    """The password in no file that the job left: logs, evidence, black boxes."""
    network = job.network
    places = [network.folder(node) for node in job.nodes] + [network.shared]
    places += [f"/proc/{network.hosts[node].pid}/root/dev/shm" for node in job.nodes]
    secrets_found = [secret.encode() for secret in job.secrets()]
    for place in places:
        for folder, _, files in os.walk(place):
            for name in files:
                path = f"{folder}/{name}"
                if name in ALLOWED_SECRETS or os.path.islink(path) or not os.path.isfile(path):
                    continue
                with open(path, "rb") as file:
                    data = file.read()
                if any(secret in data for secret in secrets_found):
                    raise Failure(f"the password is in {path}")


def check_keys(job):
    """Every key of the job ends by itself."""
    if not job.server or job.row.store not in ("redis", "sentinel"):
        return ""
    keys = job.server.keys()
    for key, ttl in keys.items():
        if ttl < 0:
            raise Failure(f"key {key!r} has no time to live")
    slots = {key[key.index("{"):key.index("}") + 1] if re.search(r"\{.+\}", key) else key for key in keys}
    if len(slots) > 1:
        raise Failure(f"keys of one job in several slots: {sorted(slots)}")
    return f", {len(keys)} keys"


def check_quiet(job):
    """A run in which nothing is wrong: not a word, but for what the row says of the store."""
    row = job.row
    for pattern in row.log:
        if not any(re.search(pattern, line) for _, line in job.lines()):
            raise Failure(f"nobody says /{pattern}/")
    if row.store_words == "none" and not row.expect and not row.log:
        for node, run in job.runs.items():
            if said := run.guard_lines():
                slow = all(SLOW_STORE.search(line) or STORE_BACK.search(line) for line in said)
                raise (Late if slow else Failure)(f"{node}: the guard spoke: {said[0]}")


def check_exits(job, default):
    row = job.row
    for i, node in enumerate(job.nodes):
        if node in job.gone:
            continue
        wanted = row.exit.get(i, default)
        wanted = wanted if isinstance(wanted, list) else [wanted]
        if job.runs[node].exit() not in wanted:
            raise Failure(f"{node}: exit status is {job.runs[node].exit()}, should be {wanted}")


def check_left(job):
    left = processes_of(job.mark)
    if left:
        raise Failure(f"processes {left} are left over")
    if job.row.by == "run":
        for node in job.nodes:
            if node not in job.gone and job.network.shared_memory(node):
                raise Failure(f"left in shared memory of {node}: {job.network.shared_memory(node)}")


def check_told(job):
    """How long after the fault each surviving rank had it in its log; the longest."""
    row = job.row
    told = job.told(kinds_of(row))
    gone = {rank for rank in range(row.n) if job.node_of(rank) in job.gone or rank // row.ranks in row.apart}
    gone |= set(row.culprits or []) | job.ended
    silent = [rank for rank in range(row.n) if rank not in gone and rank not in told]
    if silent:
        raise Failure(f"ranks {silent} do not say it")
    worst = max(at for rank, at in told.items() if rank not in gone) - job.fault_time
    # The promise is told_s; the test allows for a loaded machine.
    allowed = row.told_s * job.session.options.slack + 2
    if worst > allowed:
        raise Late(f"the last of the ranks said it {worst:.2f} s after the fault, should be within {allowed:.1f} s")
    return f", all told after {worst:.2f} s"


def judge_fault(job, bound):
    row = job.row
    wanted = row.action or row.policy
    slack = job.session.options.slack

    def there():
        found = {node: job.verdict(node) for node in job.others()}
        return all(verdict and verdict["action"] == wanted for verdict in found.values())

    if row.until == "verdict" or row.policy == "log":
        job.await_that(f"a verdict with action {wanted} on {job.others()}", there, bound)
    if row.told_s:
        job.await_that("every rank says it", lambda: not missing_words(job), bound)
    verdicts = {node: job.verdict(node) for node in job.others()} if row.until == "verdict" else None
    if row.until == "verdict":
        # What stands there once the job was ended may be of that end.
        job.judged = [verdict for verdict in verdicts.values() if verdict]
        living = [node for node in job.others() if job.runs[node].process.poll() is not None]
        if row.ranks > 1 and living:
            raise Failure(f"{living} ended instead of going on after the verdict: {job.exits()}")
        job.end_politely()
        job.await_end(bound)
    else:
        job.await_end(bound)
        verdicts = {node: job.verdict(node) for node in job.others()}
        check_exits(job, 134)
    for i, kinds in row.apart.items():
        verdict = job.verdict(job.nodes[i])
        if kinds and row.until == "exit" and (not verdict or verdict["kind"] not in kinds):
            raise Failure(f"{job.nodes[i]}: its own verdict is {verdict and verdict['kind']!r}, should be {kinds}")
    for i in row.dumps:
        for rank in range(i * row.ranks, (i + 1) * row.ranks):
            if not os.path.exists(f"{job.evidence(job.nodes[i])}/rank_{rank}.json"):
                raise Failure(f"{job.nodes[i]} has no dump of rank {rank}")
    for node, verdict in verdicts.items():
        if not verdict:
            raise Failure(f"{node} has no verdict, and ended with {job.runs[node].exit()}")
        judge_verdict(job, node, verdict)
    compare_verdicts(verdicts) if verdicts else None
    remark = ""
    fault_time = job.fault_time or max((at for run in job.runs.values() for at in run.fault_times()), default=0)
    if fault_time and verdicts:
        took = min(verdict["time_unix_ns"] for verdict in verdicts.values()) / 1e9 - fault_time
        if took > row.latest_s * slack + 2 or took < row.earliest_s:
            # Where a line of the program told of the fault, it may have been read late, and then nothing is shown.
            timed = job.fault_time or all(run.are_faults_timed() for run in job.runs.values())
            early = Failure if timed else TooLate
            failure = early if took < row.earliest_s else Late
            raise failure(f"the verdict came {took:.2f} s after the fault, should be within {row.earliest_s} and "
                          f"{row.latest_s} s")
        remark = f"verdict after {took:.2f} s"
    if row.told_s:
        job.fault_time = fault_time
        remark += check_told(job)
    return remark


def missing_words(job):
    row = job.row
    told = job.told(kinds_of(row))
    return [rank for rank in range(row.n) if rank not in told and rank not in (row.culprits or [])
            and rank not in job.ended and rank // row.ranks not in row.apart and job.node_of(rank) not in job.gone]


def judge_healthy(job, bound, bare):
    job.await_end(bound)
    check_exits(job, 0)
    stdout = sorted(line for run in job.runs.values() for line in run.stdout())
    check("output (sorted)", stdout, bare)
    for node in job.nodes:
        if job.verdict(node):
            raise Failure(f"{node}: there is a verdict, and nothing was wrong")
    return f"ran {time.time() - job.started:.2f} s"


def finish(job):
    """What holds for every job once it is over."""
    check_words(job)
    check_quiet(job)
    check_store_words(job)
    check_secrets(job)
    check_left(job)
    heard = f", orders heard within {job.heard_s:.2f} s" if job.heard_s else ""
    return heard + check_keys(job)
