"""Delays in the processes of a run: the library of tests/perturb, preloaded."""
import collections
import itertools
import os
import sys
import zlib

runs = collections.defaultdict(itertools.count)  # of each name, so far


def add_option(parser):
    parser.add_argument("--delays", type=int, metavar="SEED",
                        help="hold threads and processes of the jobs up, here and there, as this seed and the rows' "
                             "names say")


def look(options):
    """Is the library there, if it is asked for?"""
    if options.delays is not None and not os.path.exists(library(options)):
        sys.exit(f"--delays: {library(options)} is not built")


def library(options):
    return f"{options.build}/tests/perturb/libdelays.so"


def variables(options, preload, name):
    """For processes that preload this ("": nothing) in a run of this name, beside the delays if there are to be any.
    Each name has delays of its own, and each of its runs, so that many rows of one program try many of them."""
    if options.delays is None:
        return {"LD_PRELOAD": preload} if preload else {}
    seed = zlib.crc32(f"{options.delays} {name} {next(runs[name])}".encode())
    return {"LD_PRELOAD": ":".join(filter(None, (preload, library(options)))), "DELAYS": str(seed)}
