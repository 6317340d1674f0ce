"""Redis servers for tests, and a TCP proxy that does to a connection what networks and dying servers do."""
import collections
import errno
import os
import random
import selectors
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

PATIENCE_S = 20.0


given = set()  # ports, in this process: between the look at a port and its use nobody else gets it


def free_port():
    """One that stays free while nobody listens there: no connection that somebody makes gets such a port by itself."""
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        below = int(file.read().split()[0])
    for port in random.sample(range(min(10000, below // 2), below), 1000):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in given:
            given.add(port)
            return port
    raise RuntimeError(f"no port below {below} is free")


def available():
    return shutil.which("redis-server") is not None


def until(what, condition, seconds=PATIENCE_S, pause=0.02):
    """The condition's value once it is true; TimeoutError names what did not happen."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s")
        time.sleep(pause)


class RedisError(Exception):
    """The server's own word of failure."""


class Server:
    """A redis-server of its own, on a port of the loopback and on a Unix socket that only the test uses."""

    def __init__(self, base, password=None, extra=(), sentinel_of=None):
        self.folder = tempfile.mkdtemp(prefix="redis-", dir=base)
        self.password, self.extra, self.sentinel_of = password, list(extra), sentinel_of
        self.socket = f"{self.folder}/socket"
        self.process = None
        for _ in range(5):  # somebody else may take the port meanwhile
            self.port = free_port()
            if self.start():
                return
        raise RuntimeError(f"redis-server does not start; see {self.folder}/log")

    def configuration(self):
        lines = [f"port {self.port}", "bind 127.0.0.1", f"unixsocket {self.socket}", f"dir {self.folder}"]
        if self.sentinel_of:
            port, password = self.sentinel_of
            return lines + [f"sentinel monitor master 127.0.0.1 {port} 1", f"sentinel auth-pass master {password}",
                            "sentinel down-after-milliseconds master 1000", "sentinel failover-timeout master 3000"]
        lines += ['save ""', "appendonly no", "repl-diskless-sync-delay 0", "maxmemory-policy noeviction"]
        if self.password:
            lines += [f"requirepass {self.password}", f"masterauth {self.password}"]
        return lines + self.extra

    def start(self):
        """Empty, on its port. In a file, since a password is nobody's who asks for the list of processes."""
        with open(f"{self.folder}/conf", "w") as file:
            file.write("\n".join(self.configuration()) + "\n")
        words = ["redis-server", f"{self.folder}/conf"] + (["--sentinel"] if self.sentinel_of else [])
        with open(f"{self.folder}/log", "ab") as log:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        end = time.monotonic() + PATIENCE_S
        while self.process.poll() is None and time.monotonic() < end:
            try:
                if self.ask("PING") == "PONG":
                    return True
            except (OSError, RedisError):
                pass
            time.sleep(0.01)
        self.kill()
        return False

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()
        self.process = None
        try:
            os.unlink(self.socket)
        except FileNotFoundError:
            pass

    def stop(self):
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def connect(self):
        """A connection that has said its password: a socket, and a file to read replies from."""
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(PATIENCE_S)
            connection.connect(self.socket)
            reader = connection.makefile("rb")
            if self.password:
                connection.sendall(encode("AUTH", self.password))
                read_reply(reader)
        except BaseException:
            connection.close()
            raise
        return connection, reader

    def ask(self, *words):
        """One command, on a connection of its own; texts, numbers, None and lists of them."""
        connection, reader = self.connect()
        with connection:
            connection.sendall(encode(*words))
            return read_reply(reader)

    def keys(self):
        """Names without the job's tag."""
        return {key.partition("}:")[2]: key for key in self.ask("KEYS", "*")}

    def values(self, prefix):
        """Those keys that begin with this, with their values."""
        found = {name: self.ask("GET", key) for name, key in self.keys().items() if name.startswith(prefix)}
        return {name: value for name, value in found.items() if value is not None}


def encode(*words):
    parts = [f"*{len(words)}\r\n".encode()]
    for word in words:
        data = str(word).encode()
        parts += [f"${len(data)}\r\n".encode(), data, b"\r\n"]
    return b"".join(parts)


def read_reply(reader):
    line = reader.readline()
    kind, rest = line[:1], line[1:].rstrip(b"\r\n").decode(errors="surrogateescape")
    if kind == b"+":
        return rest
    if kind == b"-":
        raise RedisError(rest)
    if kind == b":":
        return int(rest)
    if kind == b"$":
        if rest == "-1":
            return None
        return reader.read(int(rest) + 2)[:-2].decode(errors="surrogateescape")
    if kind == b"*":
        return [read_reply(reader) for _ in range(int(rest))]
    raise OSError("the connection is lost")


class Pair:
    """A connection of the guard's, and ours to the server behind it."""

    def __init__(self, client, server):
        self.client, self.server = client, server
        self.waiting = {client: collections.deque(), server: collections.deque()}  # what goes there: (due, data)
        self.spent = False  # half of an answer is out: nothing whole can follow

    def other(self, end):
        return self.server if end is self.client else self.client


class Proxy:
    """In a thread of its own. Modes:

    pass     all goes through
    late     all goes through, 100 ms later
    trickle  a byte at a time, 50 of them in a second
    stall    nothing goes through any more
    cut      the connection ends where the server's answer should come
    half     likewise, behind the first half of it
    half-stall  half of an answer, and no more
    garbage  something else answers
    refuse   nobody listens, and connections that there are end
    hole     nobody even refuses
    """

    def __init__(self, target):
        self.target, self.mode, self.wanted = target, "pass", None
        self.pairs, self.fillers, self.listener = [], [], None
        self.selector = selectors.DefaultSelector()
        self.applied = threading.Condition()
        self.waker, self.wakened = socket.socketpair()
        self.wakened.setblocking(False)
        self.selector.register(self.wakened, selectors.EVENT_READ, self.woken)
        self.holder = self.reserve()
        self.accepted = 0
        self.ended = False
        self.listen(128)
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    # From other threads.

    def set(self, mode):
        """In force when this returns."""
        with self.applied:
            self.wanted = mode
            self.waker.send(b"x")
            if not self.applied.wait_for(lambda: self.mode == mode or self.ended, PATIENCE_S) or self.ended:
                raise RuntimeError(f"the proxy does not come to {mode}")

    def close(self):
        with self.applied:
            self.ended = True
            self.waker.send(b"x")
        self.thread.join(PATIENCE_S)
        self.holder.close()

    # In the thread.

    def reserve(self):
        """A socket that holds our port, which another process may have taken between the look at it and its use."""
        for _ in range(5):
            self.port = free_port()
            try:
                return self.bound()
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
        raise RuntimeError("five ports that were free have been taken at once")

    def bound(self):
        """A socket with our port: one that does not listen refuses, and keeps the port from others."""
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        one.bind(("127.0.0.1", self.port))
        return one

    def listen(self, backlog):
        self.listener = self.bound()
        self.listener.listen(backlog)
        self.listener.setblocking(False)
        if backlog:
            self.selector.register(self.listener, selectors.EVENT_READ, self.accept)

    def deafen(self):
        if self.listener:
            if self.listener in self.selector.get_map():
                self.selector.unregister(self.listener)
            self.listener.close()
            self.listener = None
        for filler in self.fillers:
            filler.close()
        self.fillers = []

    def make_hole(self):
        """A listener that never accepts, and whose queue is full: the kernel is silent to all others."""
        self.listen(0)
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", self.port))
            self.fillers.append(filler)

    def apply(self, mode):
        if mode != self.mode:
            self.deafen()
            if mode == "hole":
                self.make_hole()
            elif mode != "refuse":
                self.listen(128)
            if mode == "refuse":
                for pair in list(self.pairs):
                    self.drop(pair, reset=True)
            for pair in list(self.pairs):
                if pair.spent:
                    self.drop(pair)
        with self.applied:
            self.mode = mode
            self.applied.notify_all()

    def woken(self, _):
        try:
            self.wakened.recv(64)
        except BlockingIOError:
            pass

    def accept(self, _):
        try:
            client, _ = self.listener.accept()
        except OSError:
            return
        self.accepted += 1
        server = socket.socket()
        try:
            server.connect(("127.0.0.1", self.target))
        except OSError:
            client.close()
            return
        pair = Pair(client, server)
        self.pairs.append(pair)
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            end.setblocking(False)
            self.selector.register(end, selectors.EVENT_READ, lambda end, pair=pair: self.receive(pair, end))

    def drop(self, pair, reset=False):
        if pair not in self.pairs:
            return
        self.pairs.remove(pair)
        for end in (pair.client, pair.server):
            if end in self.selector.get_map():
                self.selector.unregister(end)
            if reset:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            end.close()

    def silent(self):
        return self.mode in ("stall", "hole")

    def receive(self, pair, end):
        if pair not in self.pairs:
            return
        if self.silent() or pair.spent:
            # Not read: the peer's own buffers fill. Asked again when the mode changes.
            self.selector.unregister(end)
            return
        try:
            data = end.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.drop(pair)
            return
        answer = end is pair.server
        if self.mode == "garbage":
            if not answer:
                self.send(pair, pair.client, b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
            return
        if answer and self.mode in ("cut", "half", "half-stall"):
            if self.mode != "cut":
                self.send(pair, pair.client, data[:len(data) // 2])
            if self.mode == "half-stall":
                pair.spent = True
            else:
                self.drop(pair)
            return
        now = time.monotonic()
        queue = pair.waiting[pair.other(end)]
        if self.mode == "trickle":
            due = max(now, queue[-1][0] if queue else now)
            for i in range(len(data)):
                due += 0.02
                queue.append((due, data[i:i + 1]))
        else:
            queue.append((now + (0.1 if self.mode == "late" else 0), data))

    def send(self, pair, end, data):
        """Small answers to a peer that reads: its buffer has room, or the connection is given up."""
        try:
            if end.send(data) == len(data):
                return
        except OSError:
            pass
        self.drop(pair)

    def flush(self):
        """Sends what is due; seconds until the next is."""
        soonest = None
        for pair in list(self.pairs):
            for end, queue in pair.waiting.items():
                while queue and pair in self.pairs:
                    if self.silent() or pair.spent:
                        break
                    due, data = queue[0]
                    wait = due - time.monotonic() if self.mode in ("late", "trickle") else 0
                    if wait > 0:
                        soonest = wait if soonest is None else min(soonest, wait)
                        break
                    try:
                        sent = end.send(data)
                    except BlockingIOError:
                        soonest = 0.01
                        break
                    except OSError:
                        self.drop(pair)
                        break
                    queue.popleft()
                    if sent < len(data):
                        queue.appendleft((due, data[sent:]))
        return soonest

    def listen_to_all(self):
        for pair in self.pairs:
            for end in (pair.client, pair.server):
                if end not in self.selector.get_map():
                    self.selector.register(end, selectors.EVENT_READ, lambda end, pair=pair: self.receive(pair, end))

    def run(self):
        while not self.ended:
            for key, _ in self.selector.select(self.flush()):
                key.data(key.fileobj)
            with self.applied:
                wanted, self.wanted = self.wanted, None
            if wanted:
                self.apply(wanted)
                self.listen_to_all()
        self.deafen()
        for pair in list(self.pairs):
            self.drop(pair)
        self.selector.close()
        with self.applied:
            self.applied.notify_all()
