#!/usr/bin/env python3
"""The table of tiers: what it chooses, and that it leaves nothing out. And what is repeated."""
import os
import tempfile
import types
import unittest

import repeat
import stages
import tally
import watches
from stages import Stage, Test


def stage(**more):
    return Stage({"name": "a", "build": "build", "tier": "gate", "seconds": 1, "reason": "", **more})


CORE = Test("core", ["unit"], ["/b/core", "/b/lib.so", "/elsewhere/python3"])


class Table(unittest.TestCase):
    def test_the_table_can_be_read_and_each_row_has_a_reason(self):
        builds, rows = stages.read_table()
        self.assertEqual(len({row.name for row in rows}), len(rows))
        self.assertTrue({row.build for row in rows} <= {build.folder for build in builds})

    def test_a_test_that_no_stage_runs_is_named(self):
        lost = Test("metrics", ["scenario"], [])
        rows = [stage(tests=["unit/*"]), stage(covers=["hosts/*"], command=["x"])]
        self.assertEqual(stages.untiered([CORE, lost, Test("hosts 1", ["hosts"], [])], rows), ["scenario/metrics"])

    def test_what_is_excepted_in_one_stage_is_not_run_by_it(self):
        self.assertFalse(stage(tests=["unit/*"], **{"except": ["unit/core"]}).runs(CORE))

    def test_a_stage_of_a_sanitized_build_does_not_count_for_the_plain_one(self):
        self.assertEqual(stages.untiered([CORE], [stage(tests=["unit/*"], build="build-asan")]), ["unit/core"])

    def test_higher_tiers_have_what_lower_ones_have_but_for_what_is_theirs_alone(self):
        quick, only = stage(tier="quick"), stage(tier="quick", only="quick")
        self.assertEqual([quick.is_in(tier) for tier in stages.TIERS], [True, True, True])
        self.assertEqual([only.is_in(tier) for tier in stages.TIERS], [True, False, False])
        self.assertEqual([stage(tier="full").is_in(tier) for tier in stages.TIERS], [False, False, True])

    def test_of_a_sanitized_build_only_what_tests_need_is_compiled(self):
        self.assertEqual(stages.targets_of([CORE], [stage(tests=["unit/*"])], "/b"), ["core", "lib.so"])
        self.assertEqual(stages.targets_of([CORE], [stage(command=["x"], needs=["unit/core"])], "/b"),
                         ["core", "lib.so"])

    def test_only_what_meson_builds_is_a_target(self):
        test = {"name": "exports", "suite": ["p:unit"], "cmd": ["/usr/bin/python3", "/b/../tests/allowed.txt"],
                "depends": ["l@sha"]}
        found = stages.registered([test], [{"id": "l@sha", "filename": ["/b/lib.so"]}])
        self.assertEqual(stages.targets_of(found, [stage(tests=["unit/*"])], "/b"), ["lib.so"])


class Repeat(unittest.TestCase):
    def repeat(self, late, *ends):
        said, runs = [], iter(ends)
        failure = types.SimpleNamespace(name="a", late=late)
        return bool(repeat.repeat_all([failure], lambda one: next(runs), said.append)), said

    def test_late_and_three_times_in_time_alone_is_flaky(self):
        self.assertTrue(self.repeat(True, True, True, True)[0])

    def test_late_and_late_again_is_not(self):
        self.assertEqual(self.repeat(True, True, True, False), (False, self.repeat(True, True, True, False)[1]))

    def test_wrong_stays_red_though_ten_runs_are_good(self):
        flaky, said = self.repeat(False, *[True] * 10)
        self.assertFalse(flaky)
        self.assertIn("10 of 10", said[0])

    def test_twice_within_a_week_is_remembered(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "deep", "flaky.jsonl")
            self.assertEqual(repeat.remember(["a"], path, 1000), [])
            self.assertEqual(repeat.remember(["a", "b"], path, 2000), ["a"])
            self.assertEqual(repeat.remember(["a"], path, 3000 + repeat.WEEK_S), [])


LATE = "[ RUN      ] Kv.Waits\na.cc:1: Failure\nExpected: (took) < (bound), actual: 9 vs 5\nlate: \n"
WRONG = "[ RUN      ] Kv.Waits\na.cc:2: Failure\nExpected equality of these values:\n  1\n  2\n"
END = "[  FAILED  ] Kv.Waits (3 ms)\n"


class Late(unittest.TestCase):
    def test_a_case_is_late_where_only_bounds_of_time_failed(self):
        self.assertEqual(tally.late_cases(LATE + END), {"Kv.Waits"})
        self.assertEqual(tally.late_cases(WRONG + END), set())
        self.assertEqual(tally.late_cases(LATE + WRONG.split("\n", 1)[1] + END), set())
        self.assertEqual(tally.late_cases("[ RUN      ] Kv.Waits\n" + END), set(), "of a case that says nothing")

    def test_a_crash_after_a_late_bound_is_wrong(self):
        self.assertEqual(tally.late_cases(LATE + "Segmentation fault\n"), set())

    def test_a_crash_in_a_later_case_than_the_late_one_is_wrong(self):
        summary = "[  PASSED  ] 4 tests.\n[  FAILED  ] 1 test, listed below:\n[  FAILED  ] Kv.Waits\n"
        self.assertEqual(tally.count_text(LATE + END + summary, False).late, {"Kv.Waits"})
        crashed = tally.count_text(LATE + END + "[ RUN      ] Kv.Other\nSegmentation fault\n", False)
        self.assertEqual((crashed.failed, crashed.late), (1, set()))

    def test_rows_say_it_themselves(self):
        count = tally.count_text("LATE a n=2: not in time\nFAIL b: wrong\n3 passed, 2 failed\n", False)
        self.assertEqual((count.failed, count.late), (2, {"LATE a n=2: not in time"}))
        self.assertEqual(tally.key_of("rows", "LATE a n=2: not in time"), "rows: a n=2")


class Watches(unittest.TestCase):
    def seen(self, before):
        with tempfile.NamedTemporaryFile("w+") as file:
            file.write(before)
            file.flush()
            with watches.enough(file.name), open(file.name) as during:
                found = [during.read()]
            with open(file.name) as after:
                return found + [after.read()]

    def test_are_enough_while_tests_run_and_as_before_afterwards(self):
        self.assertEqual(self.seen("128\n"), ["2048\n", "128\n"])
        self.assertEqual(self.seen("8192\n"), ["8192\n", "8192\n"])
        self.assertEqual(self.seen("?"), ["?", "?"])
        with watches.enough("/nowhere/at/all"):
            pass


if __name__ == "__main__":
    unittest.main(verbosity=2)
