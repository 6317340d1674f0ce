"""Where the NCCL and CUDA of this host lie."""
import glob
import importlib.util
import os
import shutil
import subprocess
import sys

WANTED = ("libnccl.so.2", "libcudart.so.13", "libcuda.so.1")


def folders():
    """Where NCCL and CUDA may lie: Python's wheels first, since PyTorch runs with those."""
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations if spec else []):
        yield from sorted(glob.glob(os.path.join(root, "*", "lib")))
        yield from sorted(glob.glob(os.path.join(root, "*", "lib64")))
    for command in ("ldconfig", "/sbin/ldconfig"):
        try:
            listing = subprocess.run([command, "-p"], capture_output=True, text=True, timeout=20)
        except OSError:
            continue
        for line in listing.stdout.splitlines():
            if "=>" in line and line.split()[0] in WANTED:
                yield os.path.dirname(line.split("=>")[1].strip())
        break
    yield from ("/usr/local/cuda/lib64", "/usr/local/nvidia/lib64", "/usr/lib/x86_64-linux-gnu")


def link(folder, given, nccl=None):
    """A folder with links to exactly the libraries that the programs want, and no others; NCCL is `nccl`, if given."""
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    found = {}
    if nccl:
        found["libnccl.so.2"] = os.path.realpath(nccl)
        os.symlink(found["libnccl.so.2"], os.path.join(folder, "libnccl.so.2"))
    for source in [given] if given else folders():
        for name in WANTED:
            path = os.path.join(source, name)
            if name not in found and os.path.exists(path):
                found[name] = os.path.realpath(path)
                os.symlink(found[name], os.path.join(folder, name))
    # A host with GPUs has its NVML where the loader finds it; the stand-in goes with the other stand-ins.
    nvml = os.path.join(given or "", "libnvidia-ml.so.1")
    if given and os.path.exists(nvml):
        os.symlink(os.path.realpath(nvml), os.path.join(folder, os.path.basename(nvml)))
    missing = [name for name in WANTED if name not in found]
    if missing:
        sys.exit("not found on this host: " + ", ".join(missing))
    for name in WANTED:
        print(f"{name}: {found[name]}", flush=True)
