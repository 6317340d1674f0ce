"""What the benchmark scripts share: where things are, a guarded environment, medians and tables."""

import argparse
import contextlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile


def repository():
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def parser_of(text, check=False):
    """A script's, with the arguments that all of them have; `check`: its exit status may say that a goal is missed."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(repository(), "build"),
                        help="build folder (default: build)")
    parser.add_argument("--guard", help="the library (default: shim/libncclguard.so of the build)")
    parser.add_argument("--json", metavar="FILE", help="write the numbers there as well")
    parser.add_argument("--quick", action="store_true",
                        help="only show that everything runs: the numbers mean nothing")
    if check:
        parser.add_argument("--check", action="store_true", help="exit 1 where a goal is missed")
    return parser


def end(arguments, met):
    sys.exit(1 if arguments.check and not met else 0)


def in_turn(pairs, run):
    """The results of bare and of guarded runs, {guarded: [...]}: pairs of one each, each first in turn."""
    runs = {False: [], True: []}
    for pair in range(pairs):
        for guarded in ((False, True), (True, False))[pair % 2]:
            runs[guarded].append(run(guarded))
    return runs


class Places:
    """Files of a build; ends the script with a line that says what to build."""

    def __init__(self, arguments):
        self.build = os.path.abspath(arguments.build)
        self.bench = os.path.join(self.build, "tests", "bench")
        self.null = os.path.join(self.bench, "null")
        self.guard = os.path.abspath(arguments.guard or
                                     os.path.join(self.build, "shim", "libncclguard.so"))
        if not os.path.exists(self.guard):
            stop(f"{self.guard} is not there: meson compile -C {self.build}")

    def program(self, name):
        path = os.path.join(self.bench, name)
        if not os.path.exists(path):
            stop(f"{path} is not there: meson compile -C {self.build}")
        return path


def stop(message):
    sys.exit(f"{os.path.basename(sys.argv[0])}: {message}")


@contextlib.contextmanager
def guard_folder():
    """A folder for black boxes, in shared memory as by default, gone afterwards."""
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = tempfile.mkdtemp(prefix="ncclguard-bench-", dir=base)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def environment(places, guarded, folder, library_path=None, rank=0, world_size=2):
    """The caller's environment without any guard of its own, and with ours if `guarded`. Settings
    of the caller (NCCLGUARD_...) stay, so that variants can be compared."""
    result = dict(os.environ)
    preloads = [item for item in re.split("[ :]+", result.get("LD_PRELOAD", ""))
                if item and "libncclguard" not in item]
    if guarded:
        preloads.append(places.guard)
        result.setdefault("NCCLGUARD_JOB", "bench")
        result.setdefault("NCCLGUARD_DIR", os.path.join(folder, "boxes"))
        result.setdefault("NCCLGUARD_DUMP_DIR", os.path.join(folder, "dumps"))
        result.setdefault("NCCLGUARD_RANK", str(rank))
        result.setdefault("NCCLGUARD_WORLD_SIZE", str(world_size))
    result["LD_PRELOAD"] = ":".join(preloads)
    if not preloads:
        del result["LD_PRELOAD"]
    if library_path:
        rest = result.get("LD_LIBRARY_PATH")
        result["LD_LIBRARY_PATH"] = library_path + (":" + rest if rest else "")
    return result


def run(command, env, timeout):
    """Bounded; a failure ends the script and shows what the program said."""
    try:
        done = subprocess.run(command, env=env, timeout=timeout, capture_output=True, text=True,
                              check=False)
    except subprocess.TimeoutExpired:
        stop(f"{' '.join(command)}: not finished after {timeout} s")
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
        stop(f"{' '.join(command)}: exit status {done.returncode}")
    return done


BOX_LINE = re.compile(r"^box records=(\d+) lost=(\d+) groups_lost=(\d+)$", re.MULTILINE)


def check_box(stderr, guarded, least_records):
    """Whether the guard was at work, from the line that our programs print. Returns the works whose
    completion it could not observe."""
    match = BOX_LINE.search(stderr)
    if not guarded:
        if match:
            stop("a bare run has a black box: something preloads the guard")
        return 0
    if not match:
        sys.stderr.write(stderr)
        stop("a guarded run has no black box: the guard was not at work")
    records, lost, groups_lost = (int(text) for text in match.groups())
    if records < least_records:
        stop(f"the guard recorded {records} calls of at least {least_records}")
    if groups_lost:
        stop(f"{groups_lost} communicators found no slot in the black box")
    return lost


median = statistics.median


def table(header, rows):
    """Columns as wide as they must be; the first is flush left."""
    cells = [header] + [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    for row in cells:
        print("  ".join(cell.ljust(width) if i == 0 else cell.rjust(width)
                        for i, (cell, width) in enumerate(zip(row, widths))).rstrip())


def write_json(path, value):
    if path:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(value, file, indent=1)
            file.write("\n")
