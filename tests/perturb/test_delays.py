#!/usr/bin/env python3
"""Tests the delaying library by a program that tells how often it was held up: test_delays.py LIBRARY LOAD GUARD."""
import os
import re
import subprocess
import sys
import unittest

TOLD = re.compile(r"^made (-?\d+) asked (-?\d+) took (\d+)$", re.M)


def run(what, seed, preload=None, name=None, **env):
    """Runs the program; [(made, asked_ns, took_ns)] of each of its processes."""
    library, program, _ = PLACES
    drop = ("LD_PRELOAD", "DELAYS", "DELAYS_ENTRIES", "RANK")
    env = {**{key: value for key, value in os.environ.items() if key not in drop}, **env}
    env["LD_PRELOAD"] = library if preload is None else preload
    if seed is not None:
        env["DELAYS"] = str(seed)
    done = subprocess.run([name or program, what], executable=program, env=env, capture_output=True, text=True,
                          timeout=100)
    if done.returncode:
        raise AssertionError(f"{what} with seed {seed}: {done.returncode}, {done.stderr}")
    return [tuple(int(word) for word in found) for found in TOLD.findall(done.stdout)]


def delays_of(*arguments, **options):
    """(how often, for how long) alone: what does not depend on the machine."""
    return [told[:2] for told in run(*arguments, **options)]


class Delays(unittest.TestCase):
    def test_nothing_is_held_up_without_a_seed(self):
        for what in ("alone", "threads", "fork", "signals"):
            for made, asked_ns, _ in run(what, None):
                self.assertEqual((made, asked_ns), (0, 0))

    def test_program_is_held_up_as_long_as_is_told(self):
        (made, asked_ns, took_ns), = run("alone", 1)
        self.assertGreater(made, 10)
        self.assertGreater(asked_ns, 10000000)
        self.assertGreaterEqual(took_ns, asked_ns)

    def test_same_seed_is_the_same_run(self):
        self.assertEqual(delays_of("alone", 1), delays_of("alone", 1))

    def test_threads_draw_their_own(self):
        first = delays_of("threads", 1)
        for _ in range(5):
            self.assertEqual(delays_of("threads", 1), first)

    def test_seed_rank_and_name_make_another_run(self):
        name = os.path.dirname(PLACES[1]) + "/other"
        runs = [delays_of("alone", 1), delays_of("alone", 2), delays_of("alone", 1, RANK="0"),
                delays_of("alone", 1, RANK="1"), delays_of("alone", 1, name=name)]
        self.assertEqual(len({str(told) for told in runs}), len(runs))

    def test_forked_child_draws_its_own(self):
        for seed in range(5):
            child, parent = sorted(delays_of("fork", seed), reverse=True)
            self.assertGreater(child[0], parent[0] + 10)
            self.assertEqual(sorted(delays_of("fork", seed), reverse=True), [child, parent])

    def test_handlers_and_what_they_interrupt_are_held_up(self):
        (made, asked_ns, _), = run("signals", 1)
        self.assertGreater(made, 10)
        self.assertGreater(asked_ns, 10000000)

    def test_entries_of_functions_are_held_up(self):
        (made, asked_ns), = delays_of("alone", 1, DELAYS_ENTRIES="200")
        (without, rest_ns), = delays_of("alone", 1)
        self.assertGreater(made, without)
        self.assertGreater(asked_ns, rest_ns + 1000000000)
        self.assertEqual(delays_of("alone", None, DELAYS_ENTRIES="200"), [(0, 0)])

    def test_beside_the_guard(self):
        library, _, guard = PLACES
        for preload in (f"{library}:{guard}", f"{guard}:{library}"):
            for what in ("alone", "threads", "fork", "signals"):
                self.assertGreater(max(made for made, _ in delays_of(what, 1, preload=preload)), 10)

    def test_servers_are_left_alone(self):
        self.assertEqual(delays_of("alone", 1, name="/usr/bin/redis-server"), [(0, 0)])

    def test_what_is_no_seed_is_refused(self):
        for seed in ("", "x", "1x"):
            with self.assertRaisesRegex(AssertionError, f"DELAYS={seed} is no number"):
                run("alone", seed)
        with self.assertRaisesRegex(AssertionError, "DELAYS_ENTRIES=x is no number"):
            run("alone", 1, DELAYS_ENTRIES="x")


if __name__ == "__main__":
    PLACES = [os.path.realpath(path) for path in sys.argv[1:4]]
    unittest.main(argv=sys.argv[:1], verbosity=2)
