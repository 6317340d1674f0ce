"""One scenario on one host, played: its folders and command line are made, the program is run, and all of it ended."""
import os
import shlex
import shutil
import sys
import tempfile
import threading
import time

from . import delays
from .folders import Folders
from .judge import gave_looks_up, judge_fault, judge_healthy, judge_late, missed_before
from .outside import act_outside, give_orders, signal_claimant, write_rules
from .processes import Run, kill_job
from .rows import Scenario
from .score import NOTHING
from .script import command_of, environment
from .verdicts import Failure, Late, read_verdict, verdict_of_log


class Session:
    """What all scenarios share."""

    def __init__(self, options):
        self.options = options
        self.base = tempfile.mkdtemp(prefix="ncclguard-scenarios-")
        self.bare = {}
        self.lock = threading.Lock()
        self.count = 0
        self.closing = False

    def environment(self, job, base):
        env = environment(SCENARIO_JOB=job, TMPDIR=f"{base}/tmp")
        if self.options.share:
            env["SHARE_DEVICES"] = "1"
        folders = [self.options.libraries, f"{self.options.build}/lib", env.get("LD_LIBRARY_PATH")]
        env["LD_LIBRARY_PATH"] = ":".join(folder for folder in folders if folder)
        return env

    def next_job(self):
        with self.lock:
            if self.closing:
                raise Failure("interrupted")
            self.count += 1
            return f"{os.getpid()}-{self.count}"

    def close(self):
        """Ends what runs; whoever plays it then removes its folders."""
        with self.lock:
            self.closing = True
        for number in range(self.count):
            kill_job(f"{os.getpid()}-{number + 1}")

    def command(self, scenario):
        words = command_of(self.options.build, scenario.program)
        if scenario.memory_kib:
            words = ["sh", "-c", f'ulimit -v {scenario.memory_kib} && exec "$@"', "sh"] + words
        if scenario.launch == "alone":
            return words
        launcher = [f"{self.options.build}/tests/programs/spawn", "-n", str(scenario.n)]
        if scenario.launch == "spawn":
            launcher.append("--kill-others")
        return launcher + words


def bare_result(session, scenario):
    """Exit status and sorted output of the program without the guard; run once for each command."""
    command = session.command(scenario)
    key = " ".join(command)
    with session.lock:
        known = session.bare.get(key)
        if not known:
            known = session.bare[key] = {"lock": threading.Lock(), "result": None}
    with known["lock"]:
        if known["result"] is None:
            job = session.next_job()
            base = f"{session.base}/{job}"
            os.makedirs(f"{base}/tmp")
            run = Run(command, session.environment(job, base), base, "bare")
            done = run.wait(scenario.bound_s * session.options.slack)
            kill_job(job)
            run.finish()
            if done is None:
                raise Failure(f"the bare program did not end; see {base}")
            known["result"] = (run.exit(), run.stdout())
            shutil.rmtree(base, ignore_errors=True)
        return known["result"]


def play_before(session, scenario, env, base):
    """An earlier run of the job, under the same name and in the same folders."""
    earlier = dict(scenario.row, program=scenario.before)
    earlier = Scenario(earlier, scenario.kind, scenario.n, "")
    earlier.words = scenario.words
    run = Run(session.command(earlier), env, base, "before")
    if run.wait(scenario.bound_s * session.options.slack) is None:
        raise Failure("the earlier run did not end")
    run.finish()
    if not any("deadline passed" in line for line in run.guard_lines()):
        raise Failure("the earlier run was not ended by the guard")


def guarded_command(session, scenario, folders, env):
    """The command line that guards the program; completes `env`."""
    if folders.out:
        env["NCCLGUARD_DUMP_DIR"] = folders.out
    if scenario.by == "preload":
        env["LD_PRELOAD"] = f"{session.options.build}/shim/libncclguard.so"
        env["NCCLGUARD_TIMEOUT"] = scenario.timeout
        env["NCCLGUARD_ON_TIMEOUT"] = scenario.policy
        if scenario.fault:
            env["NCCLGUARD_FAULT"] = scenario.fault
        return session.command(scenario)
    argv = [f"{session.options.build}/tools/ncclguard", "run", "--timeout", scenario.timeout, "--on-timeout",
            scenario.policy]
    if scenario.fault:
        argv += ["--fault", scenario.fault]
    return argv + ["--"] + session.command(scenario)


def note_outcome(outcome, scenario, run, folders, fault_time):
    """What was said and written, whether or not the judge was content with it."""
    words = [(at, found[2]) for at, found in run.verdict_words()]
    outcome.note_words(words, [fault_time] if fault_time else run.fault_times())
    if outcome.named != NOTHING:
        return
    try:
        verdict = (verdict_of_log(run, "deadline passed") if scenario.verdict_from == "log"
                   else read_verdict(folders.evidence()))
    except Failure:
        verdict = None
    if verdict:
        outcome.note_verdict(verdict)


def play(session, scenario, outcome):
    """One run. Completes its outcome, and returns a remark for its line; raises Failure."""
    outcome.begin()
    slack = session.options.slack
    bound = scenario.bound_s * slack
    bare = bare_result(session, scenario) if scenario.kind == "healthy" and scenario.stdout == "same" else None
    job = session.next_job()
    base = f"{session.base}/{job}"
    os.makedirs(base)
    folders = Folders(scenario, job, base)
    env = session.environment(job, base)
    if scenario.job == "own":
        env["NCCLGUARD_JOB"] = job
    if folders.dir:
        env["NCCLGUARD_DIR"] = folders.dir
    if folders.log_file:
        env["NCCLGUARD_LOG_FILE"] = folders.log_file
    env["NCCLGUARD_SUSPECT"] = scenario.suspect
    # Ranks may start seconds apart: who is not there yet is no fault where the fault comes later.
    behind = scenario.kind == "fault" and scenario.is_behind_making()
    if scenario.kind == "fault" and not behind:
        env["NCCLGUARD_COLD_SUSPECT"] = scenario.suspect
    # So they may in a job in which nothing is wrong.
    well = scenario.kind == "healthy" and scenario.timeout != "0"
    slow = behind or ((session.options.gpus or well) and not scenario.is_about_making())
    env["NCCLGUARD_INIT_TIMEOUT"] = "60s" if slow else scenario.timeout
    if scenario.rules is not None:
        write_rules(base, scenario.rules)
        env["NCCLGUARD_RULES"] = f"{base}/rules"
    if any("pipe" in order for order in scenario.orders):
        env["NCCLGUARD_DUMP_PIPE"] = f"{base}/dump-"
    argv = guarded_command(session, scenario, folders, env)
    env.update(scenario.env)
    env.update(setting.split("=", 1) for setting in session.options.env)
    env.update(delays.variables(session.options, env.get("LD_PRELOAD"), scenario.name))
    with open(f"{base}/command", "w") as file:
        names = ("NCCLGUARD", "LD_", "FAKE_", "TMPDIR", "DELAYS")
        file.write(" ".join(f"{key}={shlex.quote(value)}" for key, value in env.items() if key.startswith(names)))
        file.write(" " + shlex.join(argv) + "\n")
    run = fault_time = None
    try:
        if scenario.before:
            play_before(session, scenario, env, base)
        started = time.time()
        run = Run(argv, env, base, "guarded", scenario.stderr == "full")
        fault_time = act_outside(scenario, run, job, bound) if scenario.outside else None
        give_orders(session, scenario, run, job, base, bound)
        if scenario.stderr == "full":
            run.read_when_alone(job, scenario.n, bound)
        if scenario.claimant:
            signal_claimant(scenario, run, folders.dir, bound)
        if scenario.kind == "healthy":
            return judge_healthy(scenario, run, folders, bare, bound, started)
        if scenario.kind == "late":
            return judge_late(session, scenario, run, folders, job, bound, outcome)
        return judge_fault(session, scenario, run, folders, job, bound, fault_time, outcome)
    except Failure as failure:
        if type(failure) is Failure and scenario.kind == "fault" and run and missed_before(scenario, run, fault_time):
            failure = Late(f"{failure}; a rank was missing before the fault")
        if type(failure) is Failure and scenario.kind == "fault" and run and gave_looks_up(scenario, run):
            failure = Late(f"{failure}; NCCL's connections could not be looked at in time")
        failure.base = base
        raise failure
    finally:
        kill_job(job)
        if run:
            outcome.ran_s = time.time() - started
            run.wait(10)
            run.finish()
            note_outcome(outcome, scenario, run, folders, fault_time)
        folders.close()
        if not getattr(sys.exc_info()[1], "base", None) and not session.options.keep:
            shutil.rmtree(base, ignore_errors=True)


def show_failure(failure):
    base = getattr(failure, "base", None)
    if not base:
        return
    print(f"     evidence: {base}")
    with open(f"{base}/command") as file:
        print(f"     command:  {file.read().strip()}")
    for name in ("guarded.stderr", "out/verdict.txt"):
        path = f"{base}/{name}"
        if os.path.exists(path):
            print(f"     --- {name}")
            with open(path, errors="replace") as file:
                for line in file.read().splitlines()[-30:]:
                    print(f"     {line}")
