"""What this machine can: which scenarios can run here, and why not the others."""
import ctypes
import os
import platform
import re
import subprocess
import sys
import tempfile

from .folders import mount_hung
from .rows import ROOT

# A bundle has it beside its programs.
sys.path += [os.path.join(ROOT, "tests", "gpu"), ROOT]
import libraries  # noqa: E402


def count_gpus():
    try:
        listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30).stdout
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return sum(line.startswith("GPU ") for line in listing.splitlines())


def can_mount():
    folder = tempfile.mkdtemp()
    try:
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", folder], capture_output=True)
        if done.returncode == 0:
            subprocess.run(["umount", folder], capture_output=True)
        return done.returncode == 0
    except OSError:
        return False
    finally:
        os.rmdir(folder)


def can_hang_folder():
    folder = tempfile.mkdtemp()
    try:
        server = mount_hung(folder)
        subprocess.run(["umount", "-l", folder], capture_output=True)
        os.close(server)
        return True
    except OSError:
        return False
    finally:
        os.rmdir(folder)


def can_trace():
    """A debugger may attach to what is none of its children."""
    other = subprocess.Popen(["sleep", "60"])
    try:
        debugger = os.path.join(ROOT, "tests", "gpu", "debugger.py")
        return subprocess.run([sys.executable, debugger, "0", str(other.pid)], capture_output=True).returncode == 0
    finally:
        other.kill()
        other.wait()


def can_hang_memory():
    """A userfaultfd that holds the kernel's own reading up too."""
    libc = ctypes.CDLL(None, use_errno=True)
    number = {"x86_64": 323, "aarch64": 282}.get(os.uname().machine)
    fd = libc.syscall(number, os.O_CLOEXEC) if number else -1
    if fd >= 0:
        os.close(fd)
    return fd >= 0


def of_another_build(scenario, options):
    """Is it about what this build was made with, or without? The other kind stands in its place, so it is no skip."""
    has_kernel = os.path.exists(f"{options.build}/core/nan_kernel.ptx")
    return ("no nan kernel" if has_kernel else "nan kernel") in scenario.needs


def skipped(scenario, session):
    """Why a scenario cannot run here; None: it can."""
    if session.options.gpus:
        if "stand-ins" in scenario.needs:
            return "needs the stand-ins"
        if scenario.n > session.gpus and not (session.options.share and scenario.can_share()):
            return f"needs {scenario.n} GPUs"
        if session.options.share and "own devices" in scenario.needs:
            return "needs a device for each rank"
    elif "gpus" in scenario.needs:
        return "needs GPUs"
    for need, there, lack in (
            ("mount", session.can_mount, "the right to mount a tmpfs"),
            ("hung folder", session.can_hang_folder, "the right to mount a file system by /dev/fuse"),
            ("hung memory", session.can_hang_memory, "the right to use userfaultfd"),
            ("ptrace", session.can_trace, "the right to trace other processes"),
            ("root", os.geteuid() == 0, "to be root"),
            ("setuid", not os.statvfs("/tmp").f_flag & os.ST_NOSUID, "a /tmp where programs may have other rights"),
            ("no sanitizer", not session.sanitized, "a build without a sanitizer"),
            ("no delays", session.options.delays is None, "a process that nobody delays")):
        if need in scenario.needs and not there:
            return f"needs {lack}"
    for need in scenario.needs:
        if need.startswith("NCCL ") and session.nccl < tuple(int(part) for part in need[5:].split(".")):
            return f"needs {need}"
        if need.startswith("lib") and need not in session.libraries:
            return f"needs {need}"
        if need.startswith("program ") and not os.path.exists(f"{session.options.build}/tests/programs/{need[8:]}"):
            return f"needs {need[8:]}, which is not built"
    return None


def nccl_version(folder):
    """As (2, 29)."""
    script = ("import ctypes, sys; n = ctypes.c_int(); print(ctypes.CDLL(sys.argv[1]).ncclGetVersion(ctypes.byref(n)), "
              "n.value)")
    told = subprocess.run([sys.executable, "-c", script, f"{folder}/libnccl.so.2"], capture_output=True, text=True,
                          env={**os.environ, "LD_LIBRARY_PATH": folder}).stdout.split()
    number = int(told[1]) if told[:1] == ["0"] else 0
    return number // 10000, number // 100 % 100


def look(session):
    """Notes in the session what this machine can, and where NCCL and CUDA come from."""
    options = session.options
    if options.gpus and not options.libraries:
        options.libraries = link_libraries(f"{session.base}/libraries")
    # The stand-ins have the newest functions, whatever release they say that they are.
    session.nccl = nccl_version(options.libraries) if options.gpus else (99,)
    session.gpus = count_gpus() if options.gpus else 0
    session.can_mount = can_mount()
    session.can_hang_folder, session.can_hang_memory = can_hang_folder(), can_hang_memory()
    session.can_trace = can_trace()
    needed = subprocess.run(["ldd", f"{options.build}/shim/libncclguard.so"], capture_output=True, text=True).stdout
    session.sanitized = re.search(r"lib[at]san", needed) is not None
    session.libraries = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True).stdout.split()


def link_libraries(folder):
    """The host's own NCCL and CUDA, wherever they lie."""
    libraries.link(folder, None)
    return folder


def revision():
    """The newest commit that changes anything but what a score is written to, and "+" where files differ from it; "" no
    repository is there."""
    files = ["--", ":/", ":!*.md"]
    if not os.path.exists(os.path.join(ROOT, ".git")):
        return ""
    try:
        log = subprocess.run(["git", "-C", ROOT, "log", "-1", "--format=%h", *files], capture_output=True, text=True)
        differs = subprocess.run(["git", "-C", ROOT, "diff", "--quiet", "HEAD", *files], capture_output=True)
    except OSError:
        return ""
    return log.stdout.strip() + ("+" if differs.returncode == 1 else "")


def version(options):
    """Of what was tested."""
    told = subprocess.run([f"{options.build}/tools/ncclguard", "--version"], capture_output=True,
                          text=True).stdout.strip()
    return f"{told} ({revision()})" if revision() else told


def describe(options):
    """What the figures of a score were made on."""
    what = "the machine's GPUs" if options.gpus else "the CPU stand-ins"
    if options.share:
        what += ", shared by the ranks of a job"
    return f"{what}, {os.cpu_count()} processors, {platform.machine()}, {options.jobs} scenarios at a time"
