#!/usr/bin/env python3
"""The count that tests/run ends with: no failure, crash or skip is lost, whoever reports it."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.realpath(__file__))

GTEST_GOOD = "[==========] 5 tests from 2 test suites ran. (1 ms total)\n[  PASSED  ] 5 tests.\n"
GTEST_BAD = ("[  FAILED  ] Ring.Wraps (3 ms)\n[==========] 5 tests from 2 test suites ran.\n[  PASSED  ] 4 tests.\n"
             "[  FAILED  ] 1 test, listed below:\n[  FAILED  ] Ring.Wraps\n\n 1 FAILED TEST\n")
GTEST_SKIP = ("a.cc:1: Skipped\n{}\n\n[  SKIPPED ] Box.Full (0 ms)\n[  PASSED  ] 1 test.\n"
              "[  SKIPPED ] 1 test, listed below:\n[  SKIPPED ] Box.Full\n")
UNITTEST_GOOD = "test_a ... ok\n\n----\nRan 3 tests in 0.100s\n\nOK\n"
UNITTEST_BAD = "FAIL: test_a (Style)\n\n----\nRan 3 tests in 0.100s\n\nFAILED (failures=1, errors=1)\n"
UNITTEST_SKIP = "test_a ... skipped 'needs GPUs'\n\n----\nRan 3 tests in 0.100s\n\nOK (skipped=1)\n"


def meson(*tests):
    return "".join(json.dumps({"name": f"t{i}", "result": result, "stdout": out, "stderr": told}) + "\n"
                   for i, (result, out, told) in enumerate(tests))


def tally(ci=False, **files):
    """(exit status, last line, everything) for files given as NAME_KIND=text."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            with open(os.path.join(folder, name.replace("_", ".")), "w") as file:
                file.write(text)
        env = {name: value for name, value in os.environ.items() if name != "CI"}
        if ci:
            env["CI"] = "true"
        done = subprocess.run([sys.executable, os.path.join(HERE, "tally.py"), folder], capture_output=True, text=True,
                              env=env, timeout=60)
        return done.returncode, done.stdout.rstrip("\n").split("\n")[-1], done.stdout + done.stderr


class Tally(unittest.TestCase):
    def expect(self, status, last, ci=False, says="", **files):
        got_status, got_last, text = tally(ci, **files)
        self.assertEqual((got_status, got_last), (status, last), text)
        self.assertIn(says, text)

    def test_cases_of_googletest_and_unittest_are_counted_one_by_one(self):
        self.expect(0, "8 passed, 0 failed", a_meson=meson(("OK", GTEST_GOOD, ""), ("OK", "", UNITTEST_GOOD)))

    def test_a_test_without_a_count_of_its_own_is_one(self):
        self.expect(0, "2 passed, 0 failed", a_meson=meson(("OK", "hello\n", ""), ("OK", "", "")))

    def test_failed_cases_are_counted_and_named(self):
        self.expect(1, "5 passed, 3 failed", says="Ring.Wraps",
                    a_meson=meson(("FAIL", GTEST_BAD, ""), ("FAIL", "", UNITTEST_BAD)))

    def test_a_test_that_ends_badly_after_good_cases_has_failed(self):
        self.expect(1, "5 passed, 1 failed", a_meson=meson(("FAIL", GTEST_GOOD, "")))

    def test_a_crash_and_a_timeout_are_failures(self):
        self.expect(1, "0 passed, 2 failed", says="timeout",
                    a_meson=meson(("ERROR", "", "Segmentation fault"), ("TIMEOUT", "", "")))

    def test_the_last_line_of_a_runner_counts(self):
        self.expect(1, "7 passed, 2 failed, 1 skipped", says="FAIL dead/kill n=2",
                    a_text="1\nFAIL dead/kill n=2: no verdict\nskip gpu/a: needs GPUs\n7 passed, 2 failed, 1 skipped\n")

    def test_a_runner_that_ends_badly_without_a_count_has_failed(self):
        self.expect(1, "0 passed, 1 failed", a_text="124\n")

    def test_a_step_that_could_not_be_done_has_failed(self):
        self.expect(1, "5 passed, 1 failed", says="the build failed", a_meson=meson(("OK", GTEST_GOOD, "")),
                    b_failed="the build failed")

    def test_steps_add_up(self):
        self.expect(0, "9 passed, 0 failed", a_meson=meson(("OK", GTEST_GOOD, "")), b_text="0\n4 passed, 0 failed\n")

    def test_nothing_at_all_is_a_failure(self):
        self.expect(1, "0 passed, 1 failed", a_meson="")

    def test_skips_are_told_and_no_failures_outside_ci(self):
        self.expect(0, "1 passed, 0 failed, 1 skipped", says="no locales",
                    a_meson=meson(("OK", GTEST_SKIP.format("no locales"), "")))

    def test_in_ci_a_skip_is_a_failure(self):
        self.expect(1, "1 passed, 1 failed", ci=True, says="no locales",
                    a_meson=meson(("OK", GTEST_SKIP.format("no locales"), "")))
        self.expect(1, "0 passed, 1 failed", ci=True, a_meson=meson(("SKIP", "valgrind is missing", "")))
        self.expect(1, "3 passed, 1 failed", ci=True, a_text="0\n3 passed, 0 failed, 1 skipped\n")

    def test_in_ci_a_skip_for_want_of_hardware_is_none(self):
        self.expect(0, "1 passed, 0 failed, 1 skipped", ci=True,
                    a_meson=meson(("OK", GTEST_SKIP.format("needs 4 GPUs"), "")))
        self.expect(0, "2 passed, 0 failed, 1 skipped", ci=True, a_meson=meson(("OK", "", UNITTEST_SKIP)))
        self.expect(0, "3 passed, 0 failed, 1 skipped", ci=True,
                    a_text="0\nskip a: needs GPUs\n3 passed, 0 failed, 1 skipped\n")


if __name__ == "__main__":
    unittest.main(verbosity=2)
