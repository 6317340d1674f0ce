"""Hosts on one machine, and a Redis among them.

A host is a network namespace with a cable to a switch (a bridge in a namespace of its own), a host name, a process
namespace, a boot id, and a /tmp and a /dev/shm of its own. All of them live below the first process of the switch:
they are gone with it, and it is gone with whoever made it, however that ends. The machine's own network is never
touched.
"""
import contextlib
import json
import mmap
import os
import secrets
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

SUBNET = "10.77.0"
STORE_PORT = 6379
NOBODY = f"{SUBNET}.200"  # no host has this address


class Failure(Exception):
    pass


# ---- The first process of a host ----


def live_inside(plan):
    """Sets a host up, says so, and stays until whoever made it ends; the kernel gives it its orphans."""
    for arguments in plan["mounts"]:
        subprocess.run(["mount", *arguments], check=True)
    if plan["name"]:
        socket.sethostname(plan["name"])
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    print("ready", flush=True)
    sys.stdin.buffer.read()


def quietly(*argv, **options):
    """Runs a command that must work."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, **options)
    if done.returncode:
        raise Failure(f"{shlex.join(argv)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def children_of(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


class Namespaces:
    """A process that holds namespaces: the switch, or a host."""

    def __init__(self, plan, flags, below=None):
        enter = ["nsenter", "-t", str(below), "-p", "--"] if below else []
        self.outer = subprocess.Popen(
            enter + ["unshare", *flags, "--", sys.executable, os.path.realpath(__file__), json.dumps(plan)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        if self.outer.stdout.readline() != b"ready\n":
            raise Failure(f"{plan['name'] or 'the switch'}: {self.outer.stderr.read().decode(errors='replace')}")
        self.pid = self.outer.pid
        while children := children_of(self.pid):
            self.pid = children[0]
        self.first = os.pidfd_open(self.pid)

    def kill(self):
        """All that lives in it ends, too. Not by its number: if it has ended, that may be another process's by now."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.first, signal.SIGKILL)

    def ended(self):
        return self.outer.poll() is not None

    def end(self):
        self.kill()
        os.close(self.first)
        self.outer.stdin.close()
        try:
            self.outer.wait(10)
        except subprocess.TimeoutExpired:
            self.outer.kill()
            self.outer.wait()
        self.outer.stdout.close()
        self.outer.stderr.close()


CABLES, CABLE_BYTES = 64, 64  # as tests/fake/nccl/network.c has them


class Network:
    """A switch and the hosts on it."""

    def __init__(self, build, base):
        self.build, self.base = build, base
        self.hosts = {}
        self.servers = []  # processes that outlive what they started, if that is frozen
        self.shared = f"{base}/shared"
        os.makedirs(self.shared)
        with open(f"{self.shared}/cables", "wb") as file:
            file.write(bytes(CABLES * CABLE_BYTES))
        with open(f"{self.shared}/cables", "r+b") as file:
            self.cables = mmap.mmap(file.fileno(), 0)
        self.switch = Namespaces({"name": None, "mounts": []},
                                 ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"])
        try:
            self.ip("link", "add", "switch", "type", "bridge")
            self.ip("link", "set", "switch", "up")
        except Failure:
            self.end()
            raise

    def ip(self, *arguments, host=None):
        pid = self.hosts[host].pid if host else self.switch.pid
        quietly("nsenter", "-t", str(pid), "-n", "ip", *arguments)

    def folder(self, host):
        return f"{self.base}/{host}"

    def add(self, name, address, own_pids=True, same_boot=False):
        tmp = f"{self.folder(name)}/tmp"
        os.makedirs(f"{tmp}/shared")
        os.chmod(tmp, 0o1777)
        boot_id = f"{self.folder(name)}/boot_id"
        with open(boot_id, "w") as file:
            words = secrets.token_hex(16)
            file.write(f"{words[:8]}-{words[8:12]}-{words[12:16]}-{words[16:20]}-{words[20:]}\n")
        mounts = [["--bind", self.shared, f"{tmp}/shared"]]
        # Each host has a /tmp of its own: what is needed from there is put into it.
        for needed in (self.build, os.path.dirname(os.path.dirname(os.path.abspath(__file__)))):
            if needed.startswith("/tmp/"):
                os.makedirs(tmp + needed[4:])
                mounts.append(["--bind", needed, tmp + needed[4:]])
        if not same_boot:
            mounts.append(["--bind", boot_id, "/proc/sys/kernel/random/boot_id"])
        # Last, since it hides what lies in the machine's own.
        mounts += [["-t", "tmpfs", "-o", "mode=1777", "tmpfs", "/dev/shm"], ["--rbind", tmp, "/tmp"]]
        flags = ["--net", "--uts", "--mount", "--mount-proc"]
        if own_pids:
            flags += ["--pid", "--fork", "--kill-child"]
        number = len(self.hosts)
        host = self.hosts[name] = Namespaces({"name": name, "mounts": mounts}, flags, below=self.switch.pid)
        host.number, host.address = number, f"{SUBNET}.{address}"
        struct.pack_into(f"{CABLE_BYTES - 4}sI", self.cables, number * CABLE_BYTES, name.encode(), 0)
        self.ip("link", "add", f"port{number}", "type", "veth", "peer", "name", "eth0", "netns", str(host.pid))
        self.ip("link", "set", f"port{number}", "master", "switch")
        self.ip("link", "set", f"port{number}", "up")
        self.ip("link", "set", "lo", "up", host=name)
        self.ip("addr", "add", f"{host.address}/24", "dev", "eth0", host=name)
        self.ip("link", "set", "eth0", "up", host=name)
        return host

    def inside(self, host, *argv):
        return ["nsenter", "-t", str(self.hosts[host].pid), "-n", "-u", "-m", "-p", "--", *argv]

    def set_cable(self, host, cut):
        """For what the stand-ins move between hosts."""
        struct.pack_into("I", self.cables, (self.hosts[host].number + 1) * CABLE_BYTES - 4, cut)

    def cut(self, host):
        self.set_cable(host, 1)  # at once; the other takes a process
        self.ip("link", "set", f"port{self.hosts[host].number}", "down")

    def hide_store(self, host):
        """The host reaches nobody, and what the stand-ins move goes on: they have a network of their own."""
        self.ip("link", "set", f"port{self.hosts[host].number}", "down")

    def reset(self, host):
        """Connections of the stand-ins over this cable end with an error at both ends."""
        place = (self.hosts[host].number + 1) * CABLE_BYTES - 4
        struct.pack_into("I", self.cables, place, struct.unpack_from("I", self.cables, place)[0] + 2)

    def unplug(self, host):
        """Frames go nowhere, and the host's own end of the cable does not notice."""
        self.ip("link", "set", f"port{self.hosts[host].number}", "nomaster")
        self.set_cable(host, 1)

    def mend(self, host):
        port = f"port{self.hosts[host].number}"
        self.ip("link", "set", port, "master", "switch")
        self.ip("link", "set", port, "up")
        self.set_cable(host, 0)

    def shared_memory(self, host):
        """What is left of the guard in a host's shared memory."""
        root = f"/proc/{self.hosts[host].pid}/root/dev/shm"
        left = []
        for folder, folders, files in os.walk(root):
            left += [os.path.join(folder, name)[len(root) + 1:] for name in files]
        return sorted(left)

    def end(self):
        for server in self.servers:
            server.kill()
            server.wait()
        self.switch.end()
        for host in self.hosts.values():
            host.end()
        self.cables.close()


# ---- Redis ----


class Server:
    """A real redis-server on a host of its own."""

    def __init__(self, network, host, password, replica_of=None):
        self.network, self.host, self.password = network, host, password
        self.address = network.hosts[host].address
        self.process = None
        lines = [f"bind {self.address} 127.0.0.1", f"port {STORE_PORT}", f"requirepass {password}", "save \"\"",
                 f"masterauth {password}", "appendonly no", "dir /tmp", "logfile /tmp/redis.log", "daemonize no",
                 "repl-diskless-sync yes", "repl-diskless-sync-delay 0"]
        if replica_of:
            lines.append(f"replicaof {replica_of} {STORE_PORT}")
        with open(f"{network.folder(host)}/tmp/redis.conf", "w") as file:
            file.write("\n".join(lines) + "\n")
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.network.inside(self.host, "redis-server", "/tmp/redis.conf"),
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL, start_new_session=True)
        self.network.servers.append(self.process)
        until = time.monotonic() + 20
        while self.ask("PING") != "PONG":
            if time.monotonic() > until or self.process.poll() is not None:
                raise Failure("the Redis server does not start")
            time.sleep(0.02)
        self.redis = os.pidfd_open(children_of(self.process.pid)[0])

    def ask(self, *words, port=STORE_PORT):
        argv = ["nsenter", "-t", str(self.network.hosts[self.host].pid), "-n", "redis-cli", "-h", self.address, "-p",
                str(port), "--no-auth-warning", *words]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30,
                              env=dict(os.environ, REDISCLI_AUTH=self.password))
        return done.stdout.strip()

    def signal(self, number):
        signal.pidfd_send_signal(self.redis, number)
        if number == signal.SIGCONT:
            self.process.send_signal(number)  # nsenter stops with what it started

    def kill(self):
        self.signal(signal.SIGKILL)
        os.close(self.redis)
        self.process.wait(10)

    def keys(self):
        """{key: seconds to live, -1 for ever}."""
        said = self.ask("EVAL", "local o={} for _,k in ipairs(redis.call('KEYS','*')) do o[#o+1]=k "
                        "o[#o+1]=tostring(redis.call('TTL',k)) end return o", "0").splitlines()
        return {key: int(ttl) for key, ttl in zip(said[::2], said[1::2])}

    def forge(self, epoch, labelled):
        """An incident as anybody may leave it who can write to the store (store/wire/incident_codec.c): a deadline has
        passed, and all are to be killed; of the job's own run, or of none."""
        # A signature may be in front of it.
        label = int(self.ask("EVAL", "return redis.call('GET',redis.call('KEYS','*}:g/*')[1]):sub(-16)", "0"), 16)
        everything = (1 << 64) - 1
        numbers = [0x4e43474905000000, epoch, 2, 2, 0, 0, 4 << 32, 0, 1, 1, 1, 0, label if labelled else 0, 0,
                   everything]
        record = b"".join(number.to_bytes(8, "little") for number in numbers) + b"forged"
        self.ask("EVAL", "local tag=redis.call('KEYS','*}:g/*')[1]:match('^.*}:') "
                 "redis.call('SET',tag..'i/'..ARGV[1],(ARGV[2]:gsub('..',function(h) "
                 "return string.char(tonumber(h,16)) end)),'EX',600) redis.call('SET',tag..'i/last',ARGV[1],'EX',600) "
                 "redis.call('PUBLISH',tag..'m','incident '..ARGV[1])", "0", str(epoch), record.hex())

    def members(self):
        """How many processes have told of a communicator: what they told has a label (store/wire/progress.h)."""
        return int(self.ask("EVAL", "local n=0 for _,k in ipairs(redis.call('KEYS','*}:p/*')) do "
                            "local v=redis.call('GET',k) v=v:sub(v:find('NGPR',1,true) or 1) "
                            "local at=v:byte(6)<128 and 15 or 16 "
                            "if v:sub(at,at+7):find('[^%z]') then n=n+1 end end return n", "0") or 0)


class Sentinel(Server):
    """Two servers and a sentinel, which makes the second the master once the first is gone."""

    def __init__(self, network, host, password):
        network.add("second", 251)
        network.add("sentinel", 252)
        super().__init__(network, host, password)
        self.second = Server(network, "second", password, replica_of=self.address)
        self.at = network.hosts["sentinel"].address
        with open(f"{network.folder('sentinel')}/tmp/sentinel.conf", "w") as file:
            file.write(f"bind {self.at}\nport 26379\ndir /tmp\nlogfile /tmp/sentinel.log\n"
                       f"sentinel monitor board {self.address} {STORE_PORT} 1\n"
                       f"sentinel auth-pass board {password}\n"
                       "sentinel down-after-milliseconds board 1000\nsentinel failover-timeout board 5000\n")
        os.chmod(f"{network.folder('sentinel')}/tmp/sentinel.conf", 0o600)
        self.sentinel = subprocess.Popen(
            network.inside("sentinel", "redis-server", "/tmp/sentinel.conf", "--sentinel"), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        network.servers.append(self.sentinel)
        self.await_sentinel(self.address, lambda text: "slaves=1" in text)

    def await_sentinel(self, master, good):
        """Until the sentinel names this master, and what it tells of it is good."""
        until = time.monotonic() + 40
        while True:
            text = quietly_or_nothing("nsenter", "-t", str(self.network.hosts["sentinel"].pid), "-n", "redis-cli",
                                      "-h", self.at, "-p", "26379", "INFO", "sentinel")
            if f"address={master}:{STORE_PORT}" in text and good(text):
                return
            if time.monotonic() > until:
                raise Failure(f"the sentinel says: {text}")
            time.sleep(0.05)

    def promoted(self):
        self.await_sentinel(self.second.address, lambda text: True)

    def keys(self):
        return self.second.keys() if self.process.poll() is not None else super().keys()


def quietly_or_nothing(*argv):
    try:
        return subprocess.run(argv, capture_output=True, text=True, timeout=10).stdout
    except subprocess.TimeoutExpired:
        return ""


def lacking():
    """Why hosts cannot be made here; None: they can."""
    for word in ("ip", "nsenter", "unshare", "redis-server", "redis-cli", "mount"):
        if not shutil.which(word):
            return f"{word} is not there"
    try:
        base = tempfile.mkdtemp(prefix=f"ncclguard-hosts-{os.getpid()}-")
        network = Network("/nonexistent", base)
        try:
            network.add("node0", 1)
        finally:
            network.end()
            shutil.rmtree(base, ignore_errors=True)
    except (Failure, OSError, subprocess.SubprocessError) as failure:
        return "namespaces cannot be made: " + " ".join(str(failure).split())[:300]
    return None


if __name__ == "__main__":
    live_inside(json.loads(sys.argv[1]))
