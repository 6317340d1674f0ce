"""The folders of one run: black boxes, evidence, temporary files; some are made unusable on purpose."""
import ctypes
import os
import shutil
import subprocess

from .verdicts import Failure, check

SHM = f"/dev/shm/ncclguard-{os.geteuid()}"


def mount_hung(path):
    """A file system whose server never answers, as a dead file server's: the descriptor of the server."""
    server = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={server},rootmode=40000,user_id={os.geteuid()},group_id={os.getegid()}".encode()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"hung", os.fsencode(path), b"fuse", 0, options) != 0:
        error = ctypes.get_errno()
        os.close(server)
        raise OSError(error, os.strerror(error))
    return server


class Folders:
    """Where one run's black boxes, evidence and temporary files lie; some are made unusable on purpose."""

    def __init__(self, scenario, job, base):
        self.base, self.job, self.mounts, self.launched = base, job, [], []
        self.foreign = None  # a file of somebody's in the folder of the black boxes
        self.servers = []  # of file systems that nobody serves
        os.makedirs(f"{base}/tmp")
        self.dir = self.place(scenario.dir, f"/dev/shm/ncclguard-scenario-{job}")
        self.out = self.place(scenario.out, f"{base}/out")
        self.log_file = scenario.log_file and self.place(scenario.log_file, f"{base}/log")

    def place(self, word, own):
        if word == "own":
            return own
        if word == "default":
            return None
        if word == "foreign":
            os.makedirs(own, 0o700)
            self.foreign = f"{own}/thesis.tex"
            with open(self.foreign, "w") as file:
                file.write("somebody's")
            return own
        if word == "hung":
            path = f"{self.base}/hung{len(self.mounts)}"
            os.makedirs(path, 0o700)
            self.servers.append(mount_hung(path))
            self.mounts.append(path)
            return f"{path}/out"
        if word in ("full", "small"):
            path = f"{self.base}/full{len(self.mounts)}"
            os.makedirs(path, 0o700)
            size = "4k" if word == "full" else "600k"
            done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "tmpfs", path],
                                  capture_output=True, text=True)
            if done.returncode:
                raise Failure(f"cannot mount a tiny tmpfs: {done.stderr.strip()}")
            self.mounts.append(path)
            if word == "small":
                return path
            with open(f"{path}/filler", "wb", buffering=0) as file:
                file.write(b"x" * 4096)
            return path
        return word

    def shared(self):
        """What is left in shared memory of this job."""
        if self.foreign:
            self.check_foreign()
            os.remove(self.foreign)
            os.rmdir(os.path.dirname(self.foreign))
        places = self.places()
        return [f"{place}: {', '.join(sorted(os.listdir(place)))}" for place in places if os.path.isdir(place)]

    def check_foreign(self):
        try:
            with open(self.foreign) as file:
                check("the file of somebody's", file.read(), "somebody's")
        except FileNotFoundError:
            raise Failure("a file that is not the guard's was removed") from None
        check("what lies beside it", os.listdir(os.path.dirname(self.foreign)), ["thesis.tex"])

    def places(self):
        """Where its black boxes may lie."""
        names = [self.job] + self.launched
        return [f"/dev/shm/ncclguard-scenario-{self.job}"] + [f"{SHM}/{name}" for name in names]

    def note_job(self, verdict):
        """The name that a launcher gave."""
        if verdict.get("job"):
            self.launched.append(verdict["job"])

    def evidence(self):
        """The folder of the evidence; by default it lies in one of the temporary folder, which is this run's alone."""
        if self.out:
            return self.out
        default = f"{self.base}/tmp/ncclguard-{os.geteuid()}"
        jobs = sorted(os.listdir(default)) if os.path.isdir(default) else []
        return f"{default}/{jobs[0] if jobs else 'none'}"

    def close(self):
        for path in self.mounts:
            subprocess.run(["umount", "-l", path], capture_output=True)
        for server in self.servers:
            os.close(server)
        for path in self.places():
            shutil.rmtree(path, ignore_errors=True)
