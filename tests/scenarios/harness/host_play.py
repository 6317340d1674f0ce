"""A row of several hosts, played: its hosts and its server are made, the job is run, judged, and all of it ended."""
import os
import re
import secrets
import subprocess
import tempfile
import threading
import time
import urllib.parse

from . import network as bed
from .host_job import Job
from .host_judge import finish, judge_fault, judge_healthy
from .script import command_of, environment
from .verdicts import Failure, check


class Session:
    def __init__(self, options):
        self.options = options
        self.base = tempfile.mkdtemp(prefix=f"ncclguard-hosts-{os.getpid()}-")
        self.lock = threading.Lock()
        self.bare = {}
        self.networks = set()
        self.count = 0
        self.closing = False

    def network(self):
        with self.lock:
            if self.closing:
                raise Failure("interrupted")
            self.count += 1
            base = f"{self.base}/{self.count}"
        os.makedirs(base)
        network = bed.Network(self.options.build, base)
        with self.lock:
            self.networks.add(network)
        return network

    def end_network(self, network):
        with self.lock:
            if network not in self.networks:
                return
            self.networks.remove(network)
        network.end()

    def close(self):
        with self.lock:
            self.closing = True
            networks = list(self.networks)
        for network in networks:
            self.end_network(network)


def store_of(row, server, password):
    """NCCLGUARD_STORE."""
    word = urllib.parse.quote(password, safe="")
    if row.store == "redis":
        return f"redis://:{word}@{server.address}:{bed.STORE_PORT}"
    if row.store == "wrong":
        return f"redis://:{word}-but-another@{server.address}:{bed.STORE_PORT}"
    if row.store == "sentinel":
        return f"redis+sentinel://:{word}@{server.at}:26379/board"
    if row.store == "closed":
        return f"redis://:{word}@{bed.SUBNET}.250:{bed.STORE_PORT + 1}"
    if row.store == "nowhere":
        return f"redis://:{word}@{bed.NOBODY}:{bed.STORE_PORT}"
    return row.store


def build_network(session, row):
    """Its hosts, its server, and a password."""
    network = session.network()
    try:
        network.add("store", 250)
        for i in range(row.hosts):
            network.add(f"node{i}", i + 1, row.own_pids, row.same_boot)
        # One that a URL has to encode, too.
        password = f"pw/{secrets.token_hex(8)}:@%x"
        server = None
        if row.server != "none":
            server = (bed.Sentinel if row.server == "sentinel" else bed.Server)(network, "store", password)
        return network, server, password
    except BaseException:
        session.end_network(network)
        raise


def bare_output(session, row):
    """What the program says where all ranks are on one host and there is no guard."""
    key = (row.program, row.hosts * row.ranks)
    with session.lock:
        known = session.bare.setdefault(key, {"lock": threading.Lock(), "lines": None})
    with known["lock"]:
        if known["lines"] is None:
            # Its pauses change nothing in what it says, and nobody lets it go.
            words = command_of(session.options.build, re.sub(r" --(pause-ms|sleep) \S+", "", row.program))
            env = environment(LD_LIBRARY_PATH=f"{session.options.build}/tests/fake")
            done = subprocess.run([f"{session.options.build}/tests/programs/spawn", "-n", str(row.hosts * row.ranks),
                                   "--timeout", "60", "--kill-others", "--"] + words, env=env, capture_output=True,
                                  text=True)
            check("exit status of the bare program", done.returncode, 0)
            known["lines"] = sorted(done.stdout.splitlines())
        return known["lines"]


def note_outcome(outcome, job):
    """What was said and written on all hosts; the verdict is that of the hosts that are not apart, if there are any."""
    words = [(at, found[2]) for at, found in job.verdict_words()]
    faults = [at for run in job.runs.values() for at in run.fault_times()]
    outcome.note_words(words, [job.fault_time] if job.fault_time else faults)
    outcome.ran_s = time.time() - job.started
    try:
        verdicts = job.judged or [verdict for node in job.others() or job.nodes if (verdict := job.verdict(node))]
    except Failure:
        return
    if verdicts:
        outcome.note_verdict(verdicts[0])


def play_row(session, row, outcome):
    """Completes the outcome, and returns a remark; raises Failure."""
    outcome.begin()
    bound = row.bound_s * session.options.slack
    bare = None if row.expect else bare_output(session, row)
    network, server, password = build_network(session, row)
    job = None
    try:
        job = Job(session, row, network, server, f"job-{os.getpid()}", store_of(row, server, password), password)
        job.play(row.steps, bound)
        remark = judge_fault(job, bound) if row.expect else judge_healthy(job, bound, bare)
        return remark + finish(job)
    except (Failure, bed.Failure) as failure:
        failure.base, failure.job = network.base, job
        raise
    finally:
        if job:
            job.end()
            note_outcome(outcome, job)
        session.end_network(network)


class Jobs(list):
    """Jobs on hosts, and with a server, of their own; all of it ends with the block."""

    def __init__(self, session, row):
        super().__init__()
        self.session, self.bound = session, 60 * session.options.slack
        self.network, self.server, self.password = build_network(session, row)

    def start(self, row, kind=Job, name="same"):
        """One more: another run of the same job, unless it has a name of its own."""
        url = store_of(row, self.server, self.password)
        self.append(kind(self.session, row, self.network, self.server, name, url, self.password, str(len(self) + 1)))

    def __enter__(self):
        return self

    def __exit__(self, kind, failure, trace):
        if isinstance(failure, (Failure, bed.Failure)):
            failure.base, failure.job = self.network.base, self[-1] if self else None
        for job in self:
            job.end()
        self.session.end_network(self.network)


def show(failure):
    base, job = getattr(failure, "base", None), getattr(failure, "job", None)
    if not base:
        return
    print(f"     evidence: {base}")
    if not job:
        return
    print(f"     exits:    {job.exits()}")
    lines = job.lines()
    start = lines[0][0] if lines else 0
    for at, line in lines[:60]:
        print(f"     {at - start:7.3f} {line}")
    if len(lines) > 60:
        print(f"             … and {len(lines) - 60} more")
