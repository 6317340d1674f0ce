"""The processes of one run: started, found by the mark in their environment, signalled, ended.

Everything that a run starts carries SCENARIO_JOB in its environment, so that nothing stays behind whatever happens.
"""
import contextlib
import os
import re
import signal
import subprocess
import threading
import time

from .verdicts import VERDICT_LINE, Failure, TooLate, overdue

PF_EXITING = 4  # of the flags in /proc/PID/stat

# Of a program that says what it is about to do wrong, and of the library that does it.
FAULT_LINE = re.compile(r"^rank (\d+) \(pid (\d+)\): (\S+) at call|^rank (\d+) \(pid (\d+)\): (\S+)$"
                        r"|^ncclguard\[\d+\](?: rank -?\d+)? warn: rehearsal: \S+ happens to rank")
# When it says so, and how much later its line may be read; clocks of programs may be set.
SAID_AT = re.compile(r", at (\d+\.\d+)$")
READ_WITHIN_S = 60


def environment_of(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def is_over(pid):
    """Has it ended, or does it want nothing but a processor to end: it can run, and is on its way out, or has a SIGKILL
    before it?"""
    try:
        with open(f"/proc/{pid}/stat") as file:
            words = file.read().rsplit(")", 1)[1].split()
        with open(f"/proc/{pid}/status") as file:
            pending = [int(line.split()[1], 16) for line in file if line.startswith(("SigPnd:", "ShdPnd:"))]
    except OSError:
        return True
    ends = int(words[6]) & PF_EXITING or any(mask >> (signal.SIGKILL - 1) & 1 for mask in pending)
    return words[0] in "ZX" or (words[0] == "R" and bool(ends))


def processes_of(job):
    """Pids of living processes that carry this job's name in their environment."""
    mark = f"SCENARIO_JOB={job}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and mark in environment_of(entry) and not is_over(entry):
            found.append(int(entry))
    return found


def kill_job(job):
    for pid in processes_of(job):
        with contextlib.suppress(ProcessLookupError):
            process = os.pidfd_open(pid)
            try:
                # Where the look took long, another process may have the number by now.
                if f"SCENARIO_JOB={job}".encode() in environment_of(pid):
                    signal.pidfd_send_signal(process, signal.SIGKILL)
            finally:
                os.close(process)


def pid_of_rank(job, rank, program):
    for pid in processes_of(job):
        try:
            exe = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
        except OSError:
            continue
        if exe == program and f"RANK={rank}".encode() in environment_of(pid):
            return pid
    raise Failure(f"no process of rank {rank} to signal")


def ranks_of(job, program):
    """All ranks of the program, but not their launcher."""
    for pid in processes_of(job):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if os.path.basename(file.read().split(b"\0")[0].decode()) == program:
                    yield pid
        except (FileNotFoundError, ProcessLookupError):
            raise TooLate(f"process {pid} was gone before anything could be done to it") from None


def signal_all(job, program, name):
    # All are found before the first is signalled: between two signals one rank waits for the other.
    for pid in list(ranks_of(job, program)):
        try:
            os.kill(pid, getattr(signal, "SIG" + name))
        except ProcessLookupError:
            raise TooLate(f"process {pid} was gone before it could be signalled") from None


def signal_living(pid, number):
    """It must still be there: whoever ended by itself did so for another reason."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            if file.read().rsplit(")", 1)[1].split()[0] in "ZX":
                raise TooLate(f"process {pid} has ended before it could be signalled")
        os.kill(pid, number)
    except (FileNotFoundError, ProcessLookupError):
        raise TooLate(f"process {pid} was gone before it could be signalled") from None


class Run:
    """A program, bare or guarded, with what it says and when."""

    def __init__(self, argv, env, base, name, unread=False):
        self.lines = []  # (time, line of stderr)
        self.ended_s = None  # when we began to end it
        self.environment = env
        self.stdout_path, self.stderr_path = f"{base}/{name}.stdout", f"{base}/{name}.stderr"
        stderr = self.full_pipe() if unread else subprocess.PIPE
        with open(self.stdout_path, "wb") as stdout:
            self.process = subprocess.Popen(argv, env=env, cwd=base, stdin=subprocess.DEVNULL, stdout=stdout,
                                            stderr=stderr, start_new_session=True)
        if unread:
            os.close(stderr)
            self.reader = threading.Thread(target=self.drain)
        else:
            self.reader = threading.Thread(target=self.read, daemon=True)
            self.reader.start()

    def full_pipe(self):
        """As below a launcher that is stuck: stderr is a pipe that is full, and nobody reads it."""
        self.unread, full = os.pipe()
        os.set_blocking(full, False)
        try:
            while True:
                os.write(full, b"x" * 4096)
        except BlockingIOError:
            os.set_blocking(full, True)
        return full

    def read_when_alone(self, job, n, bound):
        """The ranks must end though nobody reads; the launcher may then say its word."""
        until = time.monotonic() + bound
        seen = 0
        while seen < n or set(processes_of(job)) - {self.process.pid}:
            seen = max(seen, len(set(processes_of(job)) - {self.process.pid}))
            if time.monotonic() > until:
                raise overdue(f"ranks live on after {bound:.0f} s: {processes_of(job)}", bound,
                              lambda: not set(processes_of(job)) - {self.process.pid})
            self.wait(0.1)
        self.reader.start()

    def drain(self):
        with open(self.unread, "rb") as pipe:
            while pipe.read1(65536):
                pass

    def read(self):
        with open(self.stderr_path, "w", errors="replace") as file:
            for raw in self.process.stderr:
                line = raw.decode(errors="replace")
                self.lines.append((time.time(), line.rstrip("\n")))
                file.write(line)
                file.flush()

    def wait(self, seconds):
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def finish(self):
        if self.reader.ident:
            self.reader.join(5)

    def exit(self):
        code = self.process.returncode
        return 128 - code if code is not None and code < 0 else code

    def guard_lines(self):
        return [line for _, line in list(self.lines) if line.startswith("ncclguard")]

    def verdict_words(self):
        """(time, match of VERDICT_LINE) of what was said of a fault. Not of what we did: whom we end is gone before
        the others are, and is then said to be."""
        return [(at, found) for at, line in list(self.lines)
                if (found := VERDICT_LINE.match(line)) and not (self.ended_s and at > self.ended_s)]

    def stdout(self):
        with open(self.stdout_path, errors="replace") as file:
            return sorted(file.read().splitlines())

    def fault_times(self):
        """When faults were announced, or else when that was read."""
        return [at if said is None else said for at, said in self.faults()]

    def are_faults_timed(self):
        return all(said is not None for _, said in self.faults())

    def faults(self):
        """(when the line was read, when it was said or None) of each."""
        for at, line in list(self.lines):
            if FAULT_LINE.match(line):
                said = SAID_AT.search(line)
                yield at, float(said[1]) if said and 0 <= at - float(said[1]) < READ_WITHIN_S else None


def end_politely(run, job, bound):
    """As an operator would: SIGTERM to `ncclguard run`, which passes it on and leaves nobody behind."""
    if run.process.poll() is None:
        run.ended_s = time.time()
        run.process.send_signal(signal.SIGTERM)
    if run.wait(bound) is None:
        raise overdue(f"the job does not end within {bound:.0f} s after SIGTERM", bound,
                      lambda: run.process.poll() is not None)
