"""Many tasks at the same time, each a line when it is done; nothing stays behind when it is interrupted."""
import concurrent.futures
import signal
import time

from .pulse import Pulse
from .verdicts import Failure, Late, TooLate


class Task:
    """One run of one scenario: `body` plays it and returns a remark, or raises Failure."""

    def __init__(self, name, body, show, outcome=None):
        self.name, self.body, self.show, self.outcome = name, body, show, outcome
        self.remark, self.failure, self.took_s, self.ran = "", None, 0.0, False

    def attempt(self, deadline, pulse):
        if deadline and time.monotonic() > deadline:
            return self
        self.ran = True
        before = time.monotonic()
        for tries_left in (4, 3, 2, 1, 0):
            began = time.monotonic()
            try:
                self.remark, self.failure = self.body(), None
            except Failure as caught:
                self.remark, self.failure = "", caught
            except Exception as error:  # a row that breaks is a row that fails
                self.remark, self.failure = "", Failure(f"{type(error).__name__}: {error}")
                self.failure.__cause__ = error
            pause = pulse.longest_since(began)
            missed = isinstance(self.failure, TooLate) or (pause and isinstance(self.failure, Late))
            if not missed or not tries_left:
                break
            why = f", since this machine stood still for {pause:.1f} s" if pause else ""
            print(f"     {self.name}, again{why}: {self.failure}", flush=True)
        self.took_s = time.monotonic() - before
        if self.outcome:
            self.outcome.failure = self.failure and str(self.failure)
        return self


class Interrupted(BaseException):
    pass


def interrupt(number, frame):
    signal.signal(number, signal.SIG_IGN)
    raise Interrupted


def end_when_told():
    """From now on, a signal that ends a program ends the tasks first."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, interrupt)


def run_all(tasks, jobs, close, seconds=None):
    """Runs them all and tells of each; `close` ends what the tasks have started. After so many seconds no task begins.
    Those that failed are returned."""
    failed = []
    pulse = Pulse()
    deadline = time.monotonic() + seconds if seconds else None
    with concurrent.futures.ThreadPoolExecutor(max(1, jobs)) as pool:
        futures = [pool.submit(task.attempt, deadline, pulse) for task in tasks]
        try:
            for future in concurrent.futures.as_completed(futures):
                task = future.result()
                if task.failure:
                    failed.append(task)
                    print(f"{'LATE' if isinstance(task.failure, Late) else 'FAIL'} {task.name}: {task.failure}",
                          flush=True)
                    task.show(task.failure)
                elif task.ran:
                    print(f"ok   {task.name:44} {task.remark} ({task.took_s:.1f} s)", flush=True)
        except BaseException:
            for future in futures:
                future.cancel()
            close()
            raise
    return failed
