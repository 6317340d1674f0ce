"""ncclguard for Python programs that want to say more: what ncclguard.h is for C.

One file without dependencies: copy it, or put its folder into PYTHONPATH. Nothing changes where the guard is not
preloaded: `present()` is False, and every other function does nothing and returns what is written beside it.

A communicator is given as the integer address of its ncclComm_t (ctypes pointers and CuPy's and PyTorch's integer
handles do); None stands for all groups of the process where ncclguard.h says so. Times are seconds. What goes wrong
raises Error, whose `code` is that of ncclguard.h; a deadline that passes raises TimedOut.
"""
import atexit
import contextlib
import ctypes
import os

__all__ = ["present", "group_name", "group_status", "acknowledge_abort", "timeout_set", "timeout_next",
           "timeout_extend", "phase", "wait_pending", "barrier", "dump", "put", "get", "unique_id_exchange",
           "on_completion", "completion_stop", "Error", "TimedOut", "MissingRanks"]

ABSENT = -38
_NO_GROUP, _TIMED_OUT, _TOO_LONG = -2, -110, -90
_WORDS = {
    -22: "an argument cannot be meant",
    _NO_GROUP: "the guard does not know this communicator",
    _TIMED_OUT: "it did not come about within the timeout",
    -95: "the ranks do not share anything (NCCLGUARD_STORE)",
    -5: "the store did not answer within the timeout",
    -17: "another rank has put something under this key",
    _TOO_LONG: "too long",
    -16: "too many threads wait for the guard, or there is a callback already",
    -28: "no room",
    -13: "the folder cannot be written to; the guard's log says why",
    -1: "no phase was begun",
    -76: "several runs of one name are active, and nothing tells whose this is: set NCCLGUARD_JOB for each",
    -108: "the process is ending",
}
_VALUE_MAX = 4096


class Error(RuntimeError):
    """The guard is there and refused; `code` is that of ncclguard.h."""

    def __init__(self, code, what):
        super().__init__(f"{what}: {_WORDS.get(code, os.strerror(-code))}")
        self.code = code


class TimedOut(Error, TimeoutError):
    """It did not come about within the timeout."""


class MissingRanks(TimedOut):
    """A barrier that not all ranks came to: the global ranks that did not, as far as known."""

    def __init__(self, code, what, ranks, count):
        super().__init__(code, what)
        self.ranks, self.count = ranks, count


class _Status(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("id", ctypes.c_uint64), ("name", ctypes.c_char * 64),
                ("nranks", ctypes.c_int32), ("rank", ctypes.c_int32), ("entered", ctypes.c_uint64),
                ("started", ctypes.c_uint64), ("completed", ctypes.c_uint64), ("p2p_entered", ctypes.c_uint64),
                ("p2p_completed", ctypes.c_uint64), ("pending_ns", ctypes.c_int64), ("aborted", ctypes.c_int32),
                ("reason", ctypes.c_char * 256)]


class Completion(ctypes.Structure):
    """One operation that has ended; good until the callback returns. Times are time.monotonic_ns()'s."""

    _fields_ = [("size", ctypes.c_size_t), ("group_id", ctypes.c_uint64), ("_group_name", ctypes.c_char_p),
                ("_operation", ctypes.c_char_p), ("type", ctypes.c_int32), ("peer", ctypes.c_int32),
                ("sequence", ctypes.c_uint64), ("bytes", ctypes.c_uint64), ("called_ns", ctypes.c_int64),
                ("started_ns", ctypes.c_int64), ("completed_ns", ctypes.c_int64), ("duration_ns", ctypes.c_int64),
                ("result", ctypes.c_int32)]

    @property
    def group_name(self):
        return self._group_name.decode(errors="replace")

    @property
    def operation(self):
        return self._operation.decode(errors="replace")


_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(Completion))
_int_p, _size_p, _uint64_p = (ctypes.POINTER(kind) for kind in (ctypes.c_int, ctypes.c_size_t, ctypes.c_uint64))
_PROTOTYPES = {
    "present": [],
    "group_name": [ctypes.c_void_p, ctypes.c_char_p],
    "group_get_status": [ctypes.c_void_p, ctypes.POINTER(_Status)],
    "acknowledge_abort": [],
    "timeout_set": [ctypes.c_void_p, ctypes.c_int64],
    "timeout_next": [ctypes.c_void_p, ctypes.c_int64],
    "wait_pending": [ctypes.c_void_p, ctypes.c_int64],
    "unique_id_exchange": [ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int64],
    "timeout_extend": [ctypes.c_void_p, ctypes.c_int64],
    "phase_begin": [ctypes.c_void_p, ctypes.c_char_p],
    "phase_end": [ctypes.c_void_p],
    "barrier": [ctypes.c_void_p, ctypes.c_int64, _int_p, ctypes.c_int, _int_p],
    "dump": [ctypes.c_char_p, ctypes.c_int64],
    "put": [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int64],
    "get": [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t, _size_p, ctypes.c_int64],
    "on_completion": [_CALLBACK, ctypes.c_void_p],
    "completion_stop": [ctypes.c_int64, _uint64_p],
}


def _look_up():
    """The functions of the preloaded library; a guard that is too old may lack some."""
    process, found = ctypes.CDLL(None), {}
    for name, arguments in _PROTOTYPES.items():
        try:
            function = getattr(process, "ncclguard_" + name)
        except AttributeError:
            continue
        function.restype, function.argtypes = ctypes.c_int, arguments
        found[name] = function
    return found


_functions = _look_up()


def _call(name, *arguments):
    """The result of a function; ABSENT where the guard, or this function of it, is not there."""
    function = _functions.get(name)
    return function(*arguments) if function else ABSENT


def _check(code, what):
    """True: done. False: there is no guard."""
    if code == ABSENT:
        return False
    if code == _TIMED_OUT:
        raise TimedOut(code, what)
    if code < 0:
        raise Error(code, what)
    return True


def _ms(seconds):
    return min(max(int(seconds * 1000), -1), 1 << 50)


def present():
    """Is a guard at work in this process?"""
    return _call("present") == 0


def group_name(comm, name):
    """Name a group, for logs, verdicts, dumps and metrics. False: no guard."""
    return _check(_call("group_name", comm, name.encode()), "group_name")


def group_status(comm):
    """A dict of what ncclguard.h's struct ncclguard_group_status says; None: no guard."""
    status = _Status(size=ctypes.sizeof(_Status))
    if not _check(_call("group_get_status", comm, ctypes.byref(status)), "group_status"):
        return None
    said = {name: getattr(status, name) for name, _ in _Status._fields_ if name != "size"}
    for name in ("name", "reason"):
        said[name] = said[name].decode(errors="replace")
    said["aborted"] = bool(said["aborted"])
    return said


def acknowledge_abort():
    """The program knows that the guard has aborted communicators. False: no guard."""
    return _check(_call("acknowledge_abort"), "acknowledge_abort")


def timeout_set(comm, seconds):
    """Deadline of the group's operations from now on; 0: none. False: no guard."""
    return _check(_call("timeout_set", comm, _ms(seconds)), "timeout_set")


def timeout_next(comm, seconds):
    """Deadline of the next operation on this communicator alone; 0: none. False: no guard."""
    return _check(_call("timeout_next", comm, _ms(seconds)), "timeout_next")


def wait_pending(comm=None, seconds=30):
    """Wait until no operation of the communicator (None: of this process) is pending. False: no guard."""
    return _check(_call("wait_pending", comm, _ms(seconds)), "wait_pending")


def unique_id_exchange(group, rank, unique_id=None, seconds=30, size=128):
    """Hand a unique id from rank 0, which passes it, to the other ranks; `group` is a name of their own. The id; None:
    no guard."""
    buffer = ctypes.create_string_buffer(bytes(unique_id) if rank == 0 else b"", len(unique_id) if rank == 0 else size)
    done = _check(_call("unique_id_exchange", group.encode(), rank, buffer, len(buffer), _ms(seconds)),
                  f"unique_id_exchange {group}")
    return buffer.raw if done else None


def timeout_extend(comm, seconds):
    """So much more time for what is pending now. False: no guard."""
    return _check(_call("timeout_extend", comm, _ms(seconds)), "timeout_extend")


@contextlib.contextmanager
def phase(what, comm=None):
    """`with ncclguard.phase("checkpoint"):` deadlines rest in it."""
    begun = _check(_call("phase_begin", comm, what.encode()), "phase")
    try:
        yield
    finally:
        if begun:
            _check(_call("phase_end", comm), "phase")


def barrier(comm, seconds, room=1024):
    """Wait for all ranks of the group without NCCL; raises MissingRanks. False: no guard."""
    ranks, count = (ctypes.c_int * room)(), ctypes.c_int()
    code = _call("barrier", comm, _ms(seconds), ranks, room, ctypes.byref(count))
    if code == _TIMED_OUT:
        raise MissingRanks(code, "barrier", list(ranks[:min(room, count.value)]), count.value)
    return _check(code, "barrier")


def dump(folder=None, seconds=30):
    """Write this process's evidence now. False: no guard."""
    return _check(_call("dump", os.fsencode(folder) if folder else None, _ms(seconds)), "dump")


def put(key, data, seconds=30):
    """Put bytes under a key, for all ranks of the job. False: no guard."""
    return _check(_call("put", key.encode(), bytes(data), len(data), _ms(seconds)), f"put {key}")


def get(key, seconds=30):
    """The bytes that somebody put under a key; waits for them. None: no guard."""
    buffer, size = ctypes.create_string_buffer(_VALUE_MAX), ctypes.c_size_t()
    if not _check(_call("get", key.encode(), buffer, _VALUE_MAX, ctypes.byref(size), _ms(seconds)), f"get {key}"):
        return None
    return buffer.raw[:size.value]


_callback = None  # what the library calls must not be collected


def on_completion(function):
    """From now on `function(completion)` is told of every operation that ends, on a thread of the guard. False: no
    guard."""
    global _callback
    wrapped = _CALLBACK(lambda _, completion: function(completion.contents))
    if not _check(_call("on_completion", wrapped, None), "on_completion"):
        return False
    _callback = wrapped
    atexit.register(_stop_at_exit)
    return True


def _stop_at_exit():
    """The interpreter goes: nobody may call into it any more."""
    try:
        completion_stop(1)
    except Error:
        pass  # the program has stopped it already


def completion_stop(seconds=5):
    """No more callbacks: what has ended by now is told first. How many were dropped; None: no guard."""
    global _callback
    dropped = ctypes.c_uint64()
    if not _check(_call("completion_stop", _ms(seconds), ctypes.byref(dropped)), "completion_stop"):
        return None
    _callback = None
    return dropped.value
