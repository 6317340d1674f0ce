"""One job on several hosts: a launcher on each, what is known of it, and what is done to it."""
import contextlib
import copy
import os
import re
import shlex
import signal
import subprocess
import time
import urllib.parse

from . import delays
from . import network as bed
from .host_rows import AFTER_GO, UNDER_WAY
from .processes import Run, kill_job, pid_of_rank, processes_of
from .rows import HERE
from .script import command_of
from .verdicts import Failure, overdue, read_verdict

GUARD_LINE = re.compile(r"ncclguard\[(\d+)\] rank (-?\d+) (\w+): (.*)")
# What the log says of a store that is lost, and of one that is back.
STORE_LOST = re.compile(r"\bstore\b", re.I)
STORE_BACK = re.compile(r"\bstore .* is back after")


class Job:
    """The ranks of one job on all hosts of a network; a launcher on each host."""

    def __init__(self, session, row, network, server, name, store_url, password, run="1"):
        self.session, self.network, self.server = session, network, server
        self.row = copy.copy(row)  # what it says of `seq` may be known later
        self.name, self.password, self.url = name, password, store_url
        # Of this session alone: others may run at the same time.
        self.mark = f"{os.getpid()}-{os.path.basename(network.base)}-{name}-{run}"
        self.places = f"{name}-{run}"
        self.nodes = [f"node{i}" for i in range(row.hosts)]
        self.gone = set()     # hosts that are no more
        self.ended = set()    # ranks that were ended from outside
        self.fault_time = None
        self.judged = None    # verdicts of the hosts, as they stood when they were judged
        self.heard_s = 0.0    # how long an order took to reach the last rank
        os.makedirs(f"{network.shared}/{self.places}")
        self.started = time.time()
        self.runs = {node: self.launch(i, node) for i, node in enumerate(self.nodes)}
        self.next_look = 0.0

    def environment(self, node):
        row, build = self.row, self.session.options.build
        env = {key: value for key, value in os.environ.items()
               if not key.startswith(("NCCLGUARD", "FAKE_", "TORCHELASTIC", "MASTER_", "REDIS"))
               and key not in ("LD_PRELOAD", "RANK", "WORLD_SIZE", "LOCAL_RANK", "TMPDIR")}
        fake = f"{build}/tests/fake"
        env.update(SCENARIO_JOB=self.mark, FAKE_NCCL_NETWORK="/tmp/shared",
                   LD_LIBRARY_PATH=fake + (":" + env["LD_LIBRARY_PATH"] if env.get("LD_LIBRARY_PATH") else ""),
                   MASTER_ADDR=self.network.hosts["node0"].address, MASTER_PORT="29500",
                   NCCLGUARD_STORE=self.url, NCCLGUARD_SUSPECT=row.suspect, NCCLGUARD_INIT_TIMEOUT=row.timeout,
                   NCCLGUARD_DUMP_DIR=f"/tmp/evidence-{self.places}")
        if row.expect and row.is_about_making():
            env["NCCLGUARD_COLD_SUSPECT"] = row.suspect
        elif row.expect:
            # Ranks of several hosts may start seconds apart, and who is not there yet is no fault.
            env["NCCLGUARD_INIT_TIMEOUT"] = "60s"
        if row.job == "own":
            env["NCCLGUARD_JOB"] = self.name
        if row.ttl:
            env["NCCLGUARD_STORE_TTL"] = row.ttl
        env.update({name: value.replace("{tests}", HERE) for name, value in row.env.items()})
        return env

    def command(self, index):
        row, build = self.row, self.session.options.build
        words = command_of(build, row.program)
        launcher = [f"{build}/tests/programs/spawn", "-n", str(row.ranks)]
        if index is not None:
            launcher += ["--node", f"{index}/{row.hosts}", "--folder", f"/tmp/shared/{self.places}"]
        if row.launch == "spawn":
            launcher.append("--kill-others")
        return launcher + ["--"] + words

    def launch(self, index, node):
        row, build = self.row, self.session.options.build
        env = self.environment(node)
        argv = self.command(index)
        preload = ""
        if index in row.bare:
            pass
        elif row.by == "preload":
            env["NCCLGUARD_TIMEOUT"], env["NCCLGUARD_ON_TIMEOUT"] = row.timeout, row.policy
            if row.fault:
                env["NCCLGUARD_FAULT"] = row.fault
            preload = f"{build}/shim/libncclguard.so"
        else:
            argv = [f"{build}/tools/ncclguard", "run", "--timeout", row.timeout, "--on-timeout", row.policy,
                    *(["--fault", row.fault] if row.fault else []), "--"] + argv
        # Not into what enters the host, which finds nothing of it there.
        preloaded = delays.variables(self.session.options, preload, f"{row.name} {self.name} {node}")
        argv = ["env", *(f"{key}={value}" for key, value in preloaded.items())] + argv
        return Run(self.network.inside(node, *argv), env, self.network.folder(node), self.places)

    # What is known of it.

    def lines(self):
        return sorted(line for run in self.runs.values() for line in list(run.lines))

    def verdict_words(self):
        return sorted((words for run in self.runs.values() for words in run.verdict_words()),
                      key=lambda words: words[0])

    def said(self):
        """(time, rank, level, words) of each line of the guard in a rank."""
        found = []
        for at, line in self.lines():
            match = GUARD_LINE.match(line)
            if match:
                found.append((at, int(match[2]), match[3], match[4]))
        return found

    def node_of(self, rank):
        return self.nodes[rank // self.row.ranks]

    def lives(self, rank):
        try:
            return bool(self.pid_of(rank))
        except Failure:
            return False

    def pid_of(self, rank):
        return pid_of_rank(self.mark, rank, os.path.basename(shlex.split(self.row.program)[0]))

    def evidence(self, node):
        return f"{self.network.folder(node)}/tmp/evidence-{self.places}"

    def verdict(self, node):
        return read_verdict(self.evidence(node))

    def others(self):
        """Hosts whose verdict is the job's."""
        return [node for i, node in enumerate(self.nodes)
                if i not in self.row.apart and i not in self.row.bare and node not in self.gone]

    def look_for_secrets(self):
        """The password must not be in any command line of the job, now."""
        if time.monotonic() < self.next_look:
            return
        self.next_look = time.monotonic() + 0.5
        for pid in processes_of(self.mark):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    words = file.read()
            except OSError:
                continue
            if any(secret.encode() in words for secret in self.secrets()):
                raise Failure(f"the password is in a command line: {words}")

    def secrets(self):
        return {self.password, urllib.parse.quote(self.password, safe="")} if self.password else set()

    def await_that(self, what, good, bound):
        until = time.monotonic() + bound
        while True:
            self.look_for_secrets()
            if good():
                return
            if time.monotonic() > until:
                raise overdue(f"{what}: not within {bound:.0f} s", bound, good)
            if all(run.process.poll() is not None for run in self.runs.values()):
                time.sleep(0.1)
                if good():
                    return
                raise Failure(f"{what}: the job ended before, with {self.exits()}")
            time.sleep(0.01)

    def exits(self):
        return {node: run.exit() for node, run in self.runs.items()}

    # What is done to it.

    def play(self, steps, bound):
        for step in steps:
            word, arguments = step[0], step[1:]
            getattr(self, "do_" + re.sub("[- ]", "_", word))(bound, *arguments)

    def host_of(self, which):
        return which if isinstance(which, str) else self.nodes[which]

    def do_said(self, bound, pattern):
        self.await_that(f"a line with /{pattern}/", lambda: any(re.search(pattern, line) for _, line in self.lines()),
                        bound)

    def do_under_way(self, bound):
        """The program works, and what is known of every rank is on the board: none may die unseen."""
        self.do_said(bound, UNDER_WAY)
        if self.server and self.row.store in ("redis", "sentinel"):
            guarded = self.row.n - len(self.row.bare) * self.row.ranks
            self.await_that("every rank is on the board", lambda: self.server.members() >= guarded, bound)

    def do_go(self, bound):
        """Faults that wait for this happen; the first call without its rank is the one that the verdict is about."""
        self.do_release(bound)
        calls = []

        def said():
            calls[:] = [int(found[1]) for _, line in self.lines() if (found := AFTER_GO.match(line))]
            return calls

        self.await_that("a rank says what it does", said, bound)
        if self.row.seq == "said":
            self.row.seq = min(calls)

    def do_release(self, bound):
        """Ranks that sleep until then go on."""
        with open(f"{self.network.shared}/{self.places}/go", "w"):
            pass

    def do_unsaid(self, bound, pattern, seconds):
        """What cannot happen now: a wait that is as long as it would take many times over."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if any(re.search(pattern, line) for _, line in self.lines()):
                raise Failure(f"/{pattern}/ was said")
            time.sleep(0.05)

    def do_order(self, bound, *words):
        """A person's order, given on the first host: every rank tells that it has come."""
        argv = [f"{self.session.options.build}/tools/ncclguard", words[0], "--job", self.name, *words[1:]]
        given = time.monotonic()
        done = subprocess.run(self.network.inside("node0", *argv), env=self.environment("node0"), capture_output=True,
                              text=True, timeout=bound)
        if done.returncode != 0:
            raise Failure(f"{shlex.join(argv)}: {done.returncode}, {done.stderr.strip()}")
        heard = f"`ncclguard {words[0]}` .* orders: "
        self.await_that(f"every rank hears of {words[0]}",
                        lambda: {rank for _, rank, _, said in self.said() if re.search(heard, said)}
                        >= set(range(self.row.n)), bound)
        self.heard_s = max(self.heard_s, time.monotonic() - given)

    def do_told(self, bound, kind, ranks):
        self.await_that(f"{kind} on ranks {ranks}", lambda: set(ranks) <= set(self.told([kind])), bound)

    def do_signal(self, bound, name, rank):
        pid = self.pid_of(rank)
        self.fault_time = time.time()
        os.kill(pid, getattr(signal, "SIG" + name))
        if name == "KILL":
            self.ended.add(rank)

    def do_kill_ranks(self, bound, which):
        """All ranks of a host at once, as where it has no memory left: its launcher lives."""
        ranks = range(which * self.row.ranks, (which + 1) * self.row.ranks)
        pids = [self.pid_of(rank) for rank in ranks]
        self.fault_time = time.time()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        self.ended.update(ranks)

    def do_cut(self, bound, which):
        self.fault_time = time.time()
        self.network.cut(self.host_of(which))

    def do_unplug(self, bound, which):
        self.fault_time = time.time()
        self.network.unplug(self.host_of(which))

    def do_hide_store(self, bound, which):
        self.network.hide_store(self.host_of(which))

    def do_reset(self, bound, which):
        self.network.reset(self.host_of(which))

    def do_mend(self, bound, which):
        self.network.mend(self.host_of(which))

    def do_power_off(self, bound, which):
        self.do_cut(bound, which)
        self.do_kill_host(bound, which)

    def do_kill_host(self, bound, which):
        node = self.host_of(which)
        self.gone.add(node)
        self.fault_time = self.fault_time or time.time()
        self.network.hosts[node].kill()

    def do_redis(self, bound, what):
        if what == "kill":
            self.server.kill()
        elif what == "start":
            self.server.start()
        else:
            self.server.signal(signal.SIGSTOP if what == "stop" else signal.SIGCONT)

    def do_forge(self, bound, epoch, whose):
        self.server.forge(int(epoch), whose == "own")

    def do_promoted(self, bound):
        self.server.promoted()

    def store_lines(self):
        """{rank: ([words about a store that is lost], [about one that is back])}."""
        found = {rank: ([], []) for rank in range(self.row.n)}
        for _, rank, level, words in self.said():
            if rank not in found or level not in ("warn", "error"):
                continue
            if STORE_BACK.search(words):
                found[rank][1].append(words)
            elif STORE_LOST.search(words):
                found[rank][0].append(words)
        return found

    def do_lost(self, bound):
        self.await_that("every rank says that the store is lost",
                        lambda: all(lost for lost, _ in self.store_lines().values()), bound)

    def do_back(self, bound):
        self.await_that("every rank says that the store is back",
                        lambda: all(back for _, back in self.store_lines().values()), bound)

    def told(self, kinds):
        """{rank: when it first logged a verdict of these kinds}."""
        first = {}
        for at, rank, _, words in self.said():
            match = re.match(r"(suspect|deadline passed): (\w+):", words)
            if match and match[2] in kinds:
                first.setdefault(rank, at)
        return first

    def await_end(self, bound):
        until = time.monotonic() + bound
        for node, run in self.runs.items():
            while run.process.poll() is None:
                self.look_for_secrets()
                if time.monotonic() > until:
                    raise overdue(f"{node}: the job did not end within {bound:.0f} s", bound,
                                  lambda: run.process.poll() is not None)
                time.sleep(0.02)
            run.finish()

    def end_politely(self):
        """As an operator would, on each host: SIGTERM to the launcher, which leaves nobody behind."""
        for run in self.runs.values():
            run.ended_s = time.time()
        for run in self.runs.values():
            for pid in bed.children_of(run.process.pid):
                with contextlib.suppress(ProcessLookupError):  # it may just be ending
                    os.kill(pid, signal.SIGTERM)

    def end(self):
        kill_job(self.mark)
        for run in self.runs.values():
            run.wait(10)
            run.finish()
