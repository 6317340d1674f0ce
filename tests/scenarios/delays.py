"""Delays in the processes of a run: the library of tests/delays, preloaded."""
import os
import sys


def add_option(parser):
    parser.add_argument("--delays", type=int, metavar="SEED",
                        help="hold threads and processes of the jobs up, here and there, as drawn by this seed")


def look(options):
    """Is the library there, if it is asked for?"""
    if options.delays is not None and not os.path.exists(library(options)):
        sys.exit(f"--delays: {library(options)} is not built")


def library(options):
    return f"{options.build}/tests/delays/libdelays.so"


def added(preload, options):
    """Variables of processes that preload this ("": nothing) beside the delays, if there are to be any."""
    names = [name for name in (preload, options.delays is not None and library(options)) if name]
    env = {"LD_PRELOAD": ":".join(names)} if names else {}
    if options.delays is not None:
        env["DELAYS"] = str(options.delays)
    return env
