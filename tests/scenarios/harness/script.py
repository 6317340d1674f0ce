"""What every script of rows has: its options, an environment of its own, the tally."""
import argparse
import os
import re
import shlex

from .rows import ROOT
from .runner import Task, run_all
from .store_servers import until
from .verdicts import Failure, overdue


def parser_of(text, jobs=None, slack=False):
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=os.path.realpath, default=f"{ROOT}/build", help="build folder (default: build)")
    parser.add_argument("--filter", default="", help="only rows in whose name this regular expression is found")
    parser.add_argument("--list", action="store_true", help="print the rows' names and end")
    parser.add_argument("--keep", action="store_true", help="keep the folders of the runs")
    if jobs:
        parser.add_argument("--jobs", type=int, default=jobs, help=f"rows at the same time (default {jobs})")
    if slack:
        parser.add_argument("--slack", type=float, default=float(os.environ.get("SCENARIO_SLACK", "1")),
                            help="all bounds of time times this (a loaded or instrumented machine)")
    return parser


def environment(**more):
    """The caller's, without a guard and a rank of its own."""
    env = {key: value for key, value in os.environ.items()
           if not key.startswith("NCCLGUARD") and key not in ("LD_PRELOAD", "RANK", "WORLD_SIZE", "LOCAL_RANK")}
    return {**env, **more}


def command_of(build, program):
    """The words of a row's program, by its place in the build."""
    name, *arguments = shlex.split(program)
    for folder in ("tests/scenarios", "tests/programs", "tests/gpu"):
        if os.path.exists(path := f"{build}/{folder}/{name}"):
            return [path, *arguments]
    raise Failure(f"{name} is not built")


def require(truth, what):
    if not truth:
        raise Failure(what)


def await_that(what, condition, bound):
    """Until then; what comes after the bound is late."""
    try:
        return until(what, condition, bound, 0.01)
    except TimeoutError as error:
        raise overdue(str(error), bound, condition) from None


def run_rows(options, rows):
    """Plays those of the rows, (name, function), that are asked for. The exit status."""
    rows = [row for row in rows if re.search(options.filter, row[0])]
    if options.list:
        print("\n".join(dict.fromkeys(name for name, _ in rows)))
        return 0
    tasks = [Task(name, lambda body=body: body() or "", lambda failure: None) for name, body in rows]
    failed = run_all(tasks, getattr(options, "jobs", 1), lambda: None)
    print(f"{len(rows) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed or not rows else 0
