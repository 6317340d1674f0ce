"""Whether the machine stood still: a thread that sleeps for half a second, and wakes up much later.

A virtual machine may be held up, and a kernel may leave all but the running tasks without a processor for minutes. What
passes bounds, or is not seen in time, in such a while says nothing of what was tested; it does not last, so a
failure of that while that is a real one shows when it is repeated.
"""
import threading
import time

PACE_S = 0.5
STILL_S = 10  # a loaded machine makes a sleeper wait for a second at most


class Standstills:
    """Watches from its making on."""

    def __init__(self, now=time.monotonic, sleep=time.sleep):
        self.now, self.sleep = now, sleep
        self.found = []  # (begin, end)
        self.before = now()

    def start(self):
        threading.Thread(target=self.watch, daemon=True).start()
        return self

    def watch(self):
        while True:
            self.look()

    def look(self):
        self.sleep(PACE_S)
        now = self.now()
        if now - self.before > STILL_S:
            self.found.append((self.before, now))
        self.before = now

    def seconds(self, begin, end):
        """How long it stood still between the two."""
        still = [*self.found, (self.before, self.now())]  # perhaps it has just begun to move again
        still = [(max(begin, first), min(end, last)) for first, last in still if last - first > STILL_S]
        return sum(max(0.0, last - first) for first, last in still)
