"""Enough instances of inotify for all tests that run at the same time.

The kernel's default is 128 for a user. Each rank under guard has one and each `ncclguard run` two, and without one both
do their work less promptly and `run` cannot tell that nothing was guarded; which tests expect. Only root may raise it.
"""
import contextlib

PATH = "/proc/sys/fs/inotify/max_user_instances"
ENOUGH = 2048


@contextlib.contextmanager
def enough(path=PATH):
    """While it lasts; where it may not be raised, nothing changes."""
    before = None
    try:
        with open(path, "r+") as file:
            number = int(file.read())
            if number < ENOUGH:
                file.seek(0)
                file.write(f"{ENOUGH}\n")
                before = number
    except (OSError, ValueError):
        pass
    try:
        yield
    finally:
        if before is not None:
            try:
                with open(path, "w") as file:
                    file.write(f"{before}\n")
            except OSError:
                pass
