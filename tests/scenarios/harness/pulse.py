"""Whether this machine stood still: what a run under bounds of time showed then, good or bad, is worth nothing.

A virtual machine may be paused for seconds, with all that is in it: every clock goes on, and nothing else. A kernel may
leave all but the running tasks without a processor for minutes. A thread that does next to nothing tells by its own
lateness.
"""
import threading
import time

BEAT_S = 0.05


class Pulse:
    def __init__(self, still_s=1.0):
        self.still_s = still_s
        self.beat = time.monotonic()
        self.pauses = []  # (when it ended, how long it was)
        threading.Thread(target=self._beat, daemon=True).start()

    def _beat(self):
        while True:
            time.sleep(BEAT_S)
            now = time.monotonic()
            if now - self.beat > self.still_s:
                self.pauses.append((now, now - self.beat))
            self.beat = now

    def longest_since(self, began):
        """Seconds, 0.0 where it went on all the time since `began` (time.monotonic)."""
        now = time.monotonic()
        latest = (now, now - self.beat)  # perhaps our thread only wakes up now
        pauses = self.pauses + [latest] if latest[1] > self.still_s else self.pauses
        return max((length for ended, length in pauses if ended > began), default=0.0)
