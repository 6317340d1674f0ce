#!/usr/bin/env python3
"""Counts what ran, for tests/run: single cases of GoogleTest and unittest, rows of scenarios, else whole tests.

    tests/gate/tally.py FOLDER

FOLDER holds one file a step: NAME.meson (meson's testlog.json), NAME.text (output of a runner whose last line is
`N passed, N failed[, N skipped]`; the first line here is its exit status), NAME.failed (why a step could not be done);
and perhaps flaky.json, a list of the names of failures that count as passed.
The last line printed is `N passed, N failed`, with `, N skipped` where there are any. With CI=true in the environment
a skip is a failure, unless the machine lacks the hardware. Exit status 0: nothing failed.
"""
import json
import os
import re
import sys

HARDWARE = re.compile(r"\b(GPUs?|NVLink|InfiniBand|cores?|aarch64|x86-64|hardware)\b")

GTEST = re.compile(r"^\[  (PASSED|FAILED|SKIPPED) +\] (\d+) tests?(?:\.|, listed below)", re.M)
GTEST_SKIP = re.compile(r"^.*: Skipped\n(.*)$", re.M)
GTEST_FAILED = re.compile(r"^\[  FAILED  \] (\S+?)(?:,.*)?(?: \(\d+ ms\))?$", re.M)
GTEST_CASE = re.compile(r"^\[ RUN      \] (\S+)\n(.*?)^\[  FAILED  \] \1\b", re.M | re.S)
UNITTEST = re.compile(r"^Ran (\d+) tests? in .*\n\s*\n(?:OK|FAILED)(?: \((.*)\))?$", re.M)
UNITTEST_SKIP = re.compile(r"\.\.\. skipped ['\"](.*)['\"]$", re.M)
UNITTEST_FAILED = re.compile(r"^(?:FAIL|ERROR): (.*)$", re.M)
RUNNER = re.compile(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$", re.M)
RUNNER_SKIP = re.compile(r"^skip\b:? *(.*)$", re.M | re.I)
RUNNER_FAILED = re.compile(r"^((?:FAIL|LATE) .*)$", re.M)
ROW = re.compile(r"^(FAIL|LATE) (.*?): ")


class Count:
    """What is known of one test or runner."""

    def __init__(self):
        self.passed, self.failed, self.skipped = 0, 0, 0
        self.failures, self.skips = [], []  # words about them; perhaps fewer than there are
        self.late = set()  # those of the failures that only passed a bound of time
        self.cases = False  # they are cases of GoogleTest


def late_cases(text):
    """Cases of GoogleTest of which nothing failed but bounds of time (tests/gtest/in_time.h)."""
    late = set()
    for name, words in GTEST_CASE.findall(text):
        # Each failure begins a paragraph with the place of its line.
        parts = re.split(r"^\S+:\d+: Failure$", words, flags=re.M)[1:]
        if parts and all(re.search(r"^late: ", part, re.M) for part in parts):
            late.add(name)
    return late


def count_text(text, good):
    """Cases in the output of one test; `good` is what its exit status says."""
    count = Count()
    found = False
    for word, number in GTEST.findall(text):
        found = count.cases = True
        if word == "PASSED":
            count.passed += int(number)
        elif word == "FAILED":
            count.failed += int(number)
        else:
            count.skipped += int(number)
    for number, rest in UNITTEST.findall(text):
        found = True
        bad = {name: int(times) for name, times in re.findall(r"([a-z ]+)=(\d+)", rest or "")}
        failed = bad.get("failures", 0) + bad.get("errors", 0) + bad.get(" errors", 0)
        skipped = bad.get("skipped", 0) + bad.get(" skipped", 0)
        count.failed += failed
        count.skipped += skipped
        # One test may fail in several of its subtests.
        count.passed += max(0, int(number) - failed - skipped)
    runs = RUNNER.findall(text)
    if runs:
        found = True
        passed, failed, skipped = runs[-1]
        count.passed += int(passed)
        count.failed += int(failed)
        count.skipped += int(skipped or 0)
    count.failures = sorted(set(GTEST_FAILED.findall(text))) + UNITTEST_FAILED.findall(text)
    # A program that crashed has no summary: then what failed is not all that went wrong.
    count.late = late_cases(text) if any(word == "FAILED" for word, _ in GTEST.findall(text)) else set()
    if runs:
        rows = sorted(set(RUNNER_FAILED.findall(text)))
        count.failures += rows
        count.late |= {row for row in rows if row.startswith("LATE ")}
    count.skips = [line.strip() for line in GTEST_SKIP.findall(text)] + UNITTEST_SKIP.findall(text)
    if runs:
        count.skips += RUNNER_SKIP.findall(text)
    if not good and count.failed == 0:
        count.failed = 1  # it crashed, ran out of time, or ended badly after all cases
    elif good and not found:
        count.passed = 1
    return count


def count_meson(path):
    """(name, Count) of each test of a testlog.json."""
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                test = json.loads(line)
            except ValueError:
                count = Count()
                count.failed, count.failures = 1, [f"no line of meson's: {line.strip()[:80]}"]
                yield "log", count
                continue
            text = (test.get("stdout") or "") + "\n" + (test.get("stderr") or "")
            if test["result"] == "SKIP":
                count = Count()
                count.skipped = 1
                count.skips = [text.strip().split("\n")[-1] or "no reason is given"]
            else:
                count = count_text(text, test["result"] in ("OK", "EXPECTEDFAIL"))
                if test["result"] not in ("OK", "EXPECTEDFAIL", "FAIL"):
                    count.failures.append(test["result"].lower())
            yield test["name"], count


def count_file(folder, name):
    step, kind = name.rsplit(".", 1)
    path = os.path.join(folder, name)
    if kind == "meson":
        for test, count in count_meson(path):
            yield f"{step}: {test}", count
        return
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    if kind == "failed":
        count = Count()
        count.failed, count.failures = 1, [text.strip()]
    else:
        status, _, rest = text.partition("\n")
        count = count_text(rest, status.strip() == "0")
    yield step, count


def counts(folder):
    """(test, Count) of all that ran; a test is `STEP: NAME`, or a step."""
    for name in sorted(os.listdir(folder)):
        if name.rsplit(".", 1)[-1] in ("meson", "text", "failed"):
            yield from count_file(folder, name)


def key_of(test, failure):
    """The name of one failure: its test, and the case or row in it."""
    row = ROW.match(failure + " ")
    return f"{test}: {row[2] if row else failure}"


def read_flaky(folder):
    try:
        with open(os.path.join(folder, "flaky.json")) as file:
            return set(json.load(file))
    except FileNotFoundError:
        return set()


def main(arguments):
    if len(arguments) != 1:
        sys.exit("usage: tally.py FOLDER")
    folder = arguments[0]
    in_ci = os.environ.get("CI") == "true"
    flaky, passed, failed, skipped, excused = read_flaky(folder), 0, 0, 0, []
    for test, count in counts(folder):
        if in_ci:
            # A skip whose reason was not told counts as one without a good reason.
            lacking = sum(1 for reason in count.skips if HARDWARE.search(reason))
            bad = max(0, count.skipped - lacking)
            count.skipped -= bad
            count.failed += bad
            if bad:
                count.failures += [f"skipped: {reason}" for reason in count.skips if not HARDWARE.search(reason)]
        good = [failure for failure in count.failures if key_of(test, failure) in flaky and count.failed]
        excused += [key_of(test, failure) for failure in good]
        count.failed -= len(good)
        count.passed += len(good)
        count.failures = [failure for failure in count.failures if failure not in good]
        passed, failed, skipped = passed + count.passed, failed + count.failed, skipped + count.skipped
        if count.failed:
            print(f"FAIL {test}: {count.failed} failed: {'; '.join(count.failures) or 'see the log'}")
        elif count.skipped:
            print(f"SKIP {test}: {count.skipped} skipped: {'; '.join(count.skips) or 'no reason is given'}")
    for name in excused:
        print(f"FLAKY {name}: late, and good alone")
    if excused:
        print(f"{len(excused)} flaky")
    if passed + failed == 0:
        failed = 1
        print("FAIL nothing ran")
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
