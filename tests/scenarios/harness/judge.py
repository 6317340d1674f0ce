"""The judge of one scenario on one host: verdict, log, evidence, exit status, and what is left behind."""
import glob
import json
import os
import re
import subprocess
import sys
import time

from . import evidence
from .processes import end_politely, processes_of
from .rows import ROOT
from .verdicts import (Failure, Late, TooLate, check, check_names, check_verdict, overdue, ranks_in, read_verdict,
                       verdict_of_log, wanted_action)

sys.path.append(os.path.join(ROOT, "tests", "unit", "core", "report"))
import check_trace  # noqa: E402

# The guard gives NCCL's counters up where a copy takes longer than 100 ms, as it may on a loaded machine.
SLOW_COPY = re.compile("the driver did not return from a copy of them in time|a copy of them did not come back")


def check_log(scenario, run):
    text = "\n".join(line for _, line in list(run.lines))
    for pattern in scenario.log:
        if not re.search(pattern, text):
            late = "NCCL's counters" in pattern and "(?!" not in pattern and SLOW_COPY.search(text)
            raise (Late if late else Failure)(f"nothing in the log matches /{pattern}/")
    if re.search(r"ERROR: (Address|Thread|Leak|Undefined)|runtime error:", text):
        raise Failure("a sanitizer complains")
    for _, found in run.verdict_words():
        if scenario.suspects and scenario.kind == "fault":
            check_names(scenario, f"log line “{found[0]}”", {
                "kind": found[2], "culprits": [{"rank": rank} for rank in ranks_in(found[3])]})


def gave_looks_up(scenario, run):
    """Did the guard look at NCCL's connections too late, and so name nobody? It says so at level info."""
    said = re.compile(f"NCCL's connections are not looked at any more: ({SLOW_COPY.pattern})")
    return scenario.expect == "gpu_stall" and any(said.search(line) for _, line in list(run.lines))


def await_log(scenario, run, bound):
    """Until all that the row expects of the log is said: other ranks may speak after the one with the verdict."""
    until = time.monotonic() + bound
    while time.monotonic() < until and run.wait(0.05) is None:
        text = "\n".join(line for _, line in list(run.lines))
        if all(re.search(pattern, text) for pattern in scenario.log):
            return


def check_analyze(session, scenario, out):
    """The offline tool, from the dumps alone, says the same."""
    done = subprocess.run([f"{session.options.build}/tools/ncclguard", "analyze", out, "--json"], capture_output=True,
                          text=True, timeout=30)
    check("exit status of analyze", done.returncode, 3)
    check_names(scenario, "analyze", json.loads(done.stdout))


def settings_of(dump):
    """What a process was set to, as the column `dumped` has it."""
    process = dump["process"]
    return {**{one["name"]: f"{one['value']} ({one['from']})" for one in process["settings"]},
            **{one["name"]: one["value"] for one in process["environment"]}}


def check_settings(scenario, out):
    dumps = glob.glob(f"{out}/rank_*.json")
    check("dumps with settings", len(dumps), scenario.n)
    for path in dumps:
        with open(path, encoding="utf-8") as file:
            told = settings_of(json.load(file))
        check(f"settings in {os.path.basename(path)}", {name: told.get(name) for name in scenario.dumped},
              scenario.dumped)


def check_evidence(scenario, verdict, out):
    """Every file is what it is documented to be."""
    if scenario.dumped:
        check_settings(scenario, out)
    if scenario.verdict_from == "log" or verdict["action"] == "none":
        return
    try:
        evidence.check_folder(out, verdict)
        check_trace.check_file(f"{out}/trace.json")
    except (evidence.Wrong, check_trace.Flaw, OSError) as wrong:
        raise Failure(f"evidence: {wrong}") from None


def await_end(run, bound):
    if run.wait(bound) is None:
        raise overdue(f"the job did not end within {bound:.0f} s", bound, lambda: run.process.poll() is not None)
    run.finish()


def await_verdict(scenario, run, folders, bound):
    """Until the verdict that the row waits for is there. Returns it; None: the program ended before."""
    def there():
        if scenario.verdict_from == "log":
            return verdict_of_log(run, "deadline passed")
        verdict = read_verdict(folders.evidence())
        return verdict if verdict and verdict["action"] == wanted_action(scenario) else None

    until = time.monotonic() + bound
    while time.monotonic() < until:
        verdict = there()
        if verdict:
            return verdict
        if run.wait(0.05) is not None:
            return None
    raise overdue(f"no verdict with action {wanted_action(scenario)} after {bound:.0f} s", bound, there)


def missed_before(scenario, run, fault_time):
    """Was a rank said to be missing before the fault of a row that is not about that? Then one came late: where others
    have the processors, ranks start further apart than the clocks of most rows run."""
    if scenario.is_about_making():
        return False
    first = min(run.fault_times() + ([fault_time] if fault_time else []), default=None)
    return any(found[2] == "init_missing_rank" if first is None else
               at < first and (found[2] == "init_missing_rank" or
                               found[2] == "missing_rank" and " #1 of " in found[3])
               for at, found in run.verdict_words())


def judge_fault(session, scenario, run, folders, job, bound, fault_time, outcome):
    verdict = await_verdict(scenario, run, folders, bound)
    out = folders.evidence()
    ended_by_itself = verdict is None or scenario.until == "exit"
    if ended_by_itself:
        await_end(run, bound)
        verdict = (verdict_of_log(run, "deadline passed") if scenario.verdict_from == "log" else read_verdict(out))
        if verdict is None:
            raise Failure(f"the job ended with {run.exit()} and there is no verdict")
        folders.note_job(verdict)
        outcome.note_verdict(verdict)
        check_verdict(scenario, verdict)
        if scenario.until == "verdict":
            raise Failure(f"the job ended with {run.exit()} instead of going on after the verdict")
        check("exit status", run.exit(), 134 if scenario.exit is None else scenario.exit)
    else:
        outcome.note_verdict(verdict)  # what stands there once the job was ended may be of that end
        check_verdict(scenario, verdict)
        if run.process.poll() is not None:
            raise Failure(f"the job ended with {run.exit()} instead of going on after the verdict")
        await_log(scenario, run, bound)
        end_politely(run, job, 20 * session.options.slack)
        run.finish()
    left = processes_of(job)
    if left:
        raise Failure(f"processes {left} are left over")
    if folders.dir is None and (folders.shared() != []) != (scenario.boxes == "stay"):
        raise Failure(f"left in shared memory: {folders.shared()}")
    check_log(scenario, run)
    check_evidence(scenario, verdict, out)
    if scenario.analyze and wanted_action(scenario) == "kill" and scenario.verdict_from == "file":
        check_analyze(session, scenario, out)
    timed = fault_time is not None or run.are_faults_timed()
    fault_time = fault_time or max(run.fault_times(), default=None)
    if fault_time is None or scenario.clock_moves or "time_unix_ns" not in verdict:
        return ""
    took = verdict["time_unix_ns"] / 1e9 - fault_time
    # The words of a fault may be read a moment after a verdict that comes at once, or so late that nothing is shown.
    if scenario.earliest_s and took < scenario.earliest_s:
        raise (Failure if timed else TooLate)(
            f"the verdict came {took:.1f} s after the fault, should not before {scenario.earliest_s} s")
    if took > scenario.latest_s * session.options.slack:
        raise Late(f"the verdict came {took:.1f} s after the fault, should be within {scenario.latest_s} s")
    return f"verdict after {took:.2f} s"


def judge_healthy(scenario, run, folders, bare, bound, started):
    out = folders.evidence()
    await_end(run, bound)
    took = time.time() - started
    if bare:
        check("exit status", run.exit(), bare[0])
        check("output (sorted)", run.stdout(), bare[1])
    if scenario.exit is not None or not bare:
        check("exit status", run.exit(), scenario.exit or 0)
    check_log(scenario, run)
    unasked = [line for line in run.guard_lines() if not any(re.search(said, line) for said in scenario.log)]
    if scenario.quiet and unasked:
        raise Failure("the guard spoke: " + unasked[0])
    for _, found in run.verdict_words():
        raise Failure(f"a false alarm: {found[0]}")
    if os.path.isdir(out) and any(name.startswith("verdict") for name in os.listdir(out)):
        raise Failure("there is a verdict, and nothing was wrong")
    if folders.shared():
        raise Failure(f"left in shared memory: {folders.shared()}")
    left = processes_of(folders.job)
    if left:
        raise Failure(f"processes {left} are left over")
    return f"ran {took:.2f} s"


def ask_command(session, arguments, env):
    """JSON and exit status of a command that looks at a job; None: it has nothing to say yet."""
    done = subprocess.run([f"{session.options.build}/tools/ncclguard"] + arguments, capture_output=True, text=True,
                          timeout=60, env={**os.environ, **env})
    return (json.loads(done.stdout) if done.stdout.startswith("{") else None), done.returncode


def check_listing(session, job, env, out):
    """What `groups` and a dump of pending calls alone say of a job that is running."""
    listed, status = ask_command(session, ["groups", "--job", job, "--json"], env)
    check("exit status of groups", status, 0)
    for group in listed["groups"]:
        check(f"members of group {group['id']}", [member["group_rank"] for member in group["members"]],
              list(range(group["size"])))
        check(f"deadline of group {group['id']}", (group["timeout_ms"] is not None, group["deadlines_differ"]),
              (True, False))
        check(f"policy of group {group['id']}", (group["policy"], group["policies_differ"]), ("kill", False))
    command = [f"{session.options.build}/tools/ncclguard", "dump", "--job", job, "--active", "--no-frames",
               "--out", out]
    subprocess.run(command, check=True, capture_output=True, timeout=60, env={**os.environ, **env})
    for name in os.listdir(out):
        if not re.fullmatch(r"rank_\d+\.json", name):
            continue
        with open(os.path.join(out, name), encoding="utf-8") as file:
            dump = json.load(file)
        states = {record["state"] for member in dump["members"] for record in member["records"]}
        check(f"states in {name} of a dump of pending calls", states - {"entered", "scheduled", "started"}, set())
        check(f"frames in {name}", "modules" in dump, False)
        check(f"policies in {name}", {member["policy"] for member in dump["members"]}, {"kill"})
        check(f"NCCLGUARD_TRACE_SIZE in {name}", settings_of(dump).get("NCCLGUARD_TRACE_SIZE"), "2000 (default)")


def judge_late(session, scenario, run, folders, job, bound, outcome):
    """A rank is late, again and again, and nothing is stuck: who looks is told so, and nobody else."""
    env = {"NCCLGUARD_STORE": "local:" + folders.dir}
    out = folders.evidence()
    until = time.monotonic() + bound
    while True:
        verdict, status = ask_command(session, ["analyze", folders.dir, "--json"], env)
        if verdict and verdict["kind"] != "healthy":
            break
        if time.monotonic() > until or run.wait(0.1) is not None:
            raise Failure(f"analyze found no straggler before {'the end' if run.process.poll() is not None else until}")
    outcome.note_verdict(verdict)
    check_verdict(scenario, verdict)
    check("exit status of analyze", status, 3)
    # Of each group that has one: a rank that is late to all of them is so to each.
    check("stragglers of analyze", {late["rank"] for late in verdict["stragglers"]}, {int(scenario.culprits[0])})
    top, status = ask_command(session, ["top", "--job", job, "--json"], env)
    check("exit status of top", status, 0)
    check("stragglers of top", {group["straggler"]["rank"] for group in top["groups"] if group["straggler"]},
          {int(scenario.culprits[0])})
    check_verdict(scenario, top)
    check_listing(session, job, env, out + "-pending")
    subprocess.run([f"{session.options.build}/tools/ncclguard", "dump", "--job", job, "--no-stacks", "--out", out],
                   check=True, capture_output=True, timeout=60, env={**os.environ, **env})
    check_evidence(scenario, {"action": "dump", "missing_evidence": [], "kind": "straggler"}, out)
    verdict, status = ask_command(session, ["analyze", out, "--json"], env)
    check_names(scenario, "analyze of the dumps", verdict)
    if run.process.poll() is not None:
        raise Failure(f"the job ended with {run.exit()} instead of going on")
    end_politely(run, job, 20 * session.options.slack)
    run.finish()
    for _, found in run.verdict_words():
        raise Failure(f"an alarm: {found[0]}")
    return ""
