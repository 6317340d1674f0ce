"""What is done to a job from outside while it runs: signals at a moment, rules replaced, orders of a person."""
import ctypes
import json
import os
import re
import select
import shlex
import signal
import struct
import subprocess
import sys
import time

from .processes import pid_of_rank, ranks_of, signal_all, signal_living
from .rows import ROOT
from .verdicts import Failure, TooLate, overdue


def act_outside(scenario, run, job, bound):
    """Signal a rank from outside once the row's sign is in the log: {after, signal, rank}."""
    action = scenario.outside
    await_said(run, action["after"], 1, bound)
    # The others are inside the collective shortly after; when exactly does not matter.
    try:
        pid = pid_of_rank(job, int(action["rank"]), os.path.basename(shlex.split(scenario.program)[0]))
    except Failure as failure:
        if run.wait(0) == 0:
            raise TooLate(f"{failure}: by then the job had ended, and well") from None
        raise
    signalled = time.time()
    os.kill(pid, getattr(signal, "SIG" + action["signal"]))
    return signalled


def await_said(run, text, times, bound):
    """Until so many lines match; what was said by then counts, too."""
    def said():
        return sum(re.search(text, line) is not None for _, line in list(run.lines)) >= times

    until = time.monotonic() + bound
    while not said():
        if time.monotonic() > until:
            raise overdue(f"/{text}/ was not said {times} time(s)", bound, said)
        if run.wait(0.01) is not None:
            run.finish()  # what it said last may not have been read
            if not said():
                raise Failure(f"/{text}/ was not said {times} time(s), and it ended with {run.exit()}")


def hold_all(job, program, seconds):
    """As if a debugger had all ranks for so long."""
    debugger = os.path.join(ROOT, "tests", "gpu", "debugger.py")
    pids = [str(pid) for pid in ranks_of(job, program)]
    done = subprocess.run([sys.executable, debugger, str(seconds), *pids], capture_output=True, text=True)
    if done.returncode != 0:
        raise Failure(f"cannot hold {pids}: {done.returncode}, {done.stderr.strip()}")


def cut_off_box(job, program, rank):
    """The file of its black box, which the rank has mapped, has no bytes any more; it may have others' mapped, too."""
    pid = pid_of_rank(job, rank, program)
    with open(f"/proc/{pid}/maps") as file:
        found = re.search(rf" (/\S+/box-{pid}-\d+(?:-\d+)?)$", file.read(), re.MULTILINE)
    if not found:
        raise Failure(f"rank {rank} has no black box")
    os.truncate(found.group(1), 0)


def write_to_pipe(base, rank, bound):
    """As `echo > FIFO`: that the rank writes its evidence, and it is whole."""
    until = time.monotonic() + bound
    pipe, dump = f"{base}/dump-{rank}.pipe", f"{base}/out/rank_{rank}.json"
    while not os.path.exists(pipe):
        if time.monotonic() > until:
            raise Failure(f"{pipe} is not made")
        time.sleep(0.01)
    with open(pipe, "w") as file:
        file.write("please\n")
    while not os.path.exists(dump):
        if time.monotonic() > until:
            raise overdue(f"no {dump}", bound, lambda: os.path.exists(dump))
        time.sleep(0.01)
    with open(dump) as file:
        found = json.load(file)
    if found["process"]["rank"] != rank:
        raise Failure(f"{dump} is of rank {found['process']['rank']}")


def give_orders(session, scenario, run, job, base, bound):
    """What a person does meanwhile, step by step."""
    for order in scenario.orders:
        await_said(run, order.get("after", ""), int(order.get("times", 1 if "after" in order else 0)), bound)
        if "pause_s" in order:
            time.sleep(order["pause_s"])
        if "rules" in order:
            write_rules(base, order["rules"])
        if "hold_s" in order:
            hold_all(job, os.path.basename(shlex.split(scenario.program)[0]), order["hold_s"])
        if "signal" in order:
            signal_all(job, os.path.basename(shlex.split(scenario.program)[0]), order["signal"])
        if "cut_off" in order:
            cut_off_box(job, os.path.basename(shlex.split(scenario.program)[0]), int(order["cut_off"]))
        if "pipe" in order:
            write_to_pipe(base, int(order["pipe"]), bound)
        if "do" in order:
            words = shlex.split(order["do"])
            argv = [f"{session.options.build}/tools/ncclguard", words[0], "--job", job] + words[1:]
            env = dict(run.environment, LD_PRELOAD="")
            done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=bound)
            told = done.stdout + done.stderr
            if done.returncode != int(order.get("status", 0)) or not re.search(order.get("answer", ""), told):
                raise Failure(f"{shlex.join(argv)}: {done.returncode}, {told.strip()}")


def write_rules(base, text):
    """As an editor does it: never half."""
    with open(f"{base}/rules.new", "w") as file:
        file.write(text)
    os.rename(f"{base}/rules.new", f"{base}/rules")


def claimant_of(path):
    """Pid of who claimed the incident in this file, and whether it has judged; None: it is a suspicion, or the file is
    not whole, or gone."""
    try:
        with open(path, "rb") as file:
            data = file.read(64)
        # Magic number, then the incident as core/nccl/board.h has it.
        _, _, _, level, state, _, _, _, _, pid = struct.unpack_from("=QQIII4xQQIii", data)
    except (FileNotFoundError, struct.error):
        return None
    return (pid, state == 2) if level == 2 else None


def signal_claimant(scenario, run, folder, bound):
    """Signal whoever claims the first incident of a deadline, the moment that its claim appears."""
    libc = ctypes.CDLL(None, use_errno=True)
    os.makedirs(folder, 0o700, exist_ok=True)
    fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    # IN_CREATE, IN_MOVED_TO
    watch = libc.inotify_add_watch(fd, folder.encode(), 0x100 | 0x80) if fd >= 0 else -1
    if fd >= 0 and watch < 0:
        os.close(fd)
        raise Failure(f"cannot watch {folder}")
    until = time.monotonic() + bound
    try:
        while time.monotonic() < until and run.process.poll() is None:
            if fd < 0:
                time.sleep(0.001)  # this user has as many watches as are allowed: many ranks run
            elif select.select([fd], [], [], 0.1)[0]:
                os.read(fd, 65536)
            for name in sorted(os.listdir(folder)):
                claim = claimant_of(f"{folder}/{name}") if name.startswith("incident-") else None
                if claim:
                    signal_living(claim[0], getattr(signal, "SIG" + scenario.claimant))
                    # By a verdict the others end, whatever then happens to who has found it.
                    if claimant_of(f"{folder}/{name}") == (claim[0], True):
                        raise TooLate(f"process {claim[0]} had judged before it could be signalled")
                    return
    finally:
        if fd >= 0:
            os.close(fd)
    raise Failure("nobody claimed an incident")
