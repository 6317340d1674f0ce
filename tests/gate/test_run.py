#!/usr/bin/env python3
"""tests/run itself, where meson and ninja are stand-ins: what it counts, and what it leaves behind."""
import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))

# Builds have one test, which the stage `unit` runs, and the stage `rows` runs the stand-in for tests/scenarios/run.
MESON = """#!/bin/bash
echo "$*" >>arguments
if [ "$1" = setup ]; then
    for folder; do case $folder in build*)
        mkdir -p "$folder/meson-info" "$folder/meson-logs"
        echo '[{"name": "core", "suite": ["p:unit"], "cmd": ["/x/core"], "depends": []}{more}]' \\
            >"$folder/meson-info/intro-tests.json"
        echo '[]' >"$folder/meson-info/intro-targets.json" ;;
    esac; done
    exit 0
fi
[ "$1" = test ] || exit 0
log=$3/meson-logs/$6.json
{body}
"""
GOOD_TESTS = """
echo '{"name": "p:unit / core", "stdout": "[  PASSED  ] 5 tests.\\n", "result": "OK"}' >"$log"
"""
BAD_TESTS = """
echo '{"name": "p:unit / core", "stdout": "", "result": "FAIL"}' >"$log"; exit 1
"""
# The first run is late; those after it as told.
LATE_TESTS = """
echo run >>runs
case $(wc -l <runs) in {bad}) ;; *) exit 0 ;; esac
echo '{"name": "p:unit / core", "stdout": "[ RUN      ] A.B\\na.cc:1: Failure\\n{words}\\n[  FAILED  ] A.B (1 ms)\\n'\\
'[  PASSED  ] 4 tests.\\n[  FAILED  ] 1 test, listed below:\\n[  FAILED  ] A.B\\n", "result": "FAIL"}' >"$log"
exit 1
"""
# A test that hangs, in a session of its own, as meson starts tests.
HANGING_TESTS = """
setsid sleep 1000 &
echo "$!" >hanging
wait
"""
TIERS = """
[[build]]
folder = "build"
tier = "quick"
reason = "plain"
[[build]]
folder = "build-asan"
tier = "gate"
options = ["-Db_sanitize=address,undefined"]
reason = "memory"
[[stage]]
name = "unit"
build = "build"
tier = "quick"
tests = ["unit/*"]
seconds = 50
reason = "rooms"
[[stage]]
name = "rows"
build = "build"
tier = "quick"
command = ["tests/scenarios/run", "--build", "{build}"]
seconds = 50
reason = "programs"
[[stage]]
name = "asan"
build = "build-asan"
tier = "gate"
command = ["tests/scenarios/run", "--build", "{build}"]
seconds = 50
reason = "programs"
"""


def script(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, 0o755)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


class Run(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        for name in ("run", "gate/run.py", "gate/stages.py", "gate/repeat.py", "gate/tally.py",
                     "gate/watches.py", "scenarios/harness/pulse.py"):
            os.makedirs(os.path.dirname(f"{self.root}/tests/{name}"), exist_ok=True)
            shutil.copy(f"{ROOT}/tests/{name}", f"{self.root}/tests/{name}")
        with open(f"{self.root}/tests/gate/tiers.toml", "w") as file:
            file.write(TIERS)
        script(f"{self.root}/tools/find-header", "#!/bin/sh\necho /\n")
        self.scenarios("echo 4 passed, 0 failed")
        self.meson(GOOD_TESTS)
        self.ninja("exit 0")

    def meson(self, body, more=""):
        script(f"{self.root}/bin/meson", MESON.replace("{body}", body).replace("{more}", more))

    def ninja(self, body):
        script(f"{self.root}/bin/ninja", f"#!/bin/bash\n{body}\n")

    def scenarios(self, body):
        script(f"{self.root}/tests/scenarios/run", f"#!/bin/bash\n{body}\n")

    def start(self, *arguments, **more):
        env = {**os.environ, "PATH": f"{self.root}/bin:{os.environ['PATH']}",
               "XDG_CACHE_HOME": f"{self.root}/cache", **more}
        env.pop("NG_TESTS_RUN", None)
        process = subprocess.Popen([f"{self.root}/tests/run", "--no-install", *arguments], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        """Of a test that failed: it ends what it has started."""
        if process.poll() is None:
            process.terminate()
            try:
                process.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()

    def expect(self, status, last, *arguments, **more):
        process = self.start(*arguments, **more)
        text, _ = process.communicate(timeout=60)
        self.assertEqual((process.returncode, text.rstrip("\n").split("\n")[-1]), (status, last), text)
        return text

    def test_good_tests_and_scenarios_are_added_up(self):
        self.expect(0, "9 passed, 0 failed", "--quick")

    def test_the_gate_runs_the_sanitized_builds_too(self):
        self.expect(0, "13 passed, 0 failed")

    def test_a_failed_test_fails_the_whole(self):
        self.meson(BAD_TESTS)
        self.expect(1, "4 passed, 1 failed", "--quick")

    def test_a_failed_scenario_fails_the_whole_and_is_repeated_for_its_report(self):
        self.scenarios("echo run >>runs\n[ $(wc -l <runs) = 1 ] || { echo 1 passed, 0 failed; exit 0; }\n"
                       "echo 'FAIL a n=1: b'; echo 3 passed, 1 failed; exit 1")
        self.assertIn("wrong: rows: a n=1: alone, 10 of 10 runs were good",
                      self.expect(1, "8 passed, 1 failed", "--quick"))

    def test_a_late_scenario_that_is_in_time_alone_is_flaky(self):
        self.scenarios("echo $* >>runs\n[ $(wc -l <runs) = 1 ] || { echo 1 passed, 0 failed; exit 0; }\n"
                       "echo 'LATE a n=1: b'; echo 3 passed, 1 failed; exit 1")
        self.assertIn("FLAKY rows: a n=1", self.expect(0, "9 passed, 0 failed", "--quick"))
        with open(f"{self.root}/runs") as file:
            self.assertIn(r"--filter ^a\ n=1$", file.read())

    def test_what_fails_while_the_machine_stands_still_is_late(self):
        path = f"{self.root}/tests/gate/run.py"
        with open(path) as file:
            text = file.read()
        script(path, text.replace("STILL_S = 10", "STILL_S = 0.9"))
        # For the run, it does so while it is stopped.
        stop = "kill -STOP $PPID; sleep 1.5; kill -CONT $PPID\n"
        fail = "echo 'FAIL a n=1: b'; echo 3 passed, 1 failed; exit 1"
        once = "echo run >>runs\n[ $(wc -l <runs) = 1 ] || { echo 1 passed, 0 failed; exit 0; }\n"
        self.scenarios(once + stop + fail)
        text = self.expect(0, "9 passed, 0 failed", "--quick")
        self.assertIn("rows: the machine stood still for ", text)
        self.assertIn("FLAKY rows: a n=1", text)
        self.scenarios(stop + fail)
        self.expect(1, "8 passed, 1 failed", "--quick")

    def test_a_late_scenario_that_is_late_again_fails(self):
        self.scenarios("echo 'LATE a n=1: b'; echo 3 passed, 1 failed; exit 1")
        self.expect(1, "8 passed, 1 failed", "--quick")

    def test_a_late_case_is_repeated_and_a_wrong_one_stays_wrong(self):
        for words, last in (("late: ", "9 passed, 0 failed"), ("wrong", "8 passed, 1 failed")):
            if os.path.exists(f"{self.root}/runs"):
                os.unlink(f"{self.root}/runs")
            self.meson(LATE_TESTS.replace("{words}", words).replace("{bad}", "1"))
            self.expect(int(words == "wrong"), last, "--quick")

    def test_a_row_of_a_test_is_repeated_without_the_others(self):
        self.meson("echo run >>runs\n[ $(wc -l <runs) = 1 ] || exit 0\n"
                   r"""echo '{"name": "p:unit / core", "stdout": "LATE a n=1: b\n1 passed, 1 failed\n","""
                   """ "result": "FAIL"}' >"$log"; exit 1\n""")
        self.assertIn("FLAKY unit: p:unit / core: a n=1", self.expect(0, "6 passed, 0 failed", "--quick"))
        with open(f"{self.root}/arguments") as file:
            self.assertEqual(file.read().count(r"--test-args=--filter '^a\ n=1$' core"), 3)

    def test_a_late_case_that_is_late_one_time_in_three_fails(self):
        self.meson(LATE_TESTS.replace("{words}", "late: ").replace("{bad}", "1|4"))
        self.expect(1, "8 passed, 1 failed", "--quick")

    def test_a_test_that_is_in_no_tier_fails_the_whole(self):
        self.meson(GOOD_TESTS, ', {"name": "metrics", "suite": ["p:scenario"], "cmd": ["/x/m"], "depends": []}')
        self.assertIn("in no tier of tests/gate/tiers.toml: scenario/metrics",
                      self.expect(1, "9 passed, 1 failed", "--quick"))

    def test_a_failed_build_fails_the_whole_and_stops_what_needs_it(self):
        self.ninja("echo no such header; exit 1")
        text = self.expect(1, "0 passed, 1 failed")
        self.assertIn("no such header", text)
        self.assertNotIn("building into build-asan", text)

    def test_a_sanitizers_report_fails_the_whole(self):
        self.scenarios('log=$(sed "s/.*log_path=\\([^:]*\\).*/\\1/" <<<"${UBSAN_OPTIONS:-}")\n'
                       '[ -n "$log" ] && echo "runtime error: overflow" >"$log.77"\necho 4 passed, 0 failed')
        self.assertIn("runtime error: overflow", self.expect(1, "13 passed, 1 failed"))

    def test_a_process_that_stays_fails_the_whole_and_is_ended(self):
        self.scenarios("setsid sleep 1000 </dev/null >/dev/null 2>&1 &\necho $! >stays\necho 4 passed, 0 failed")
        self.assertIn("sleep 1000", self.expect(1, "9 passed, 1 failed", "--quick"))
        with open(f"{self.root}/stays") as file:
            self.assertFalse(alive(int(file.read())))

    def test_a_stage_that_breaks_fails_the_whole(self):
        os.unlink(f"{self.root}/tests/scenarios/run")
        self.assertIn("rows broke", self.expect(1, "5 passed, 1 failed", "--quick"))

    def test_a_log_that_cannot_be_read_fails_the_whole(self):
        self.meson('echo "no JSON" >"$log"')
        self.assertIn("no JSON", self.expect(1, "4 passed, 1 failed", "--quick"))

    def test_in_ci_warnings_are_errors(self):
        self.expect(0, "9 passed, 0 failed", "--quick", CI="true")
        with open(f"{self.root}/arguments") as file:
            self.assertIn("-Dwerror=true", file.readline())

    def test_an_unknown_argument_is_a_usage_error(self):
        process = self.start("--fast")
        text, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 2)
        self.assertEqual(len(text.splitlines()), 2)

    def test_an_interrupted_run_is_resumed_where_it_was(self):
        self.scenarios("[ -e hangs ] && { setsid sleep 1000 & echo $! >hanging; wait; }; echo 4 passed, 0 failed")
        script(f"{self.root}/hangs", "")
        subprocess.run("git init -q . && echo '*' >.gitignore && git add -f tests && "
                       "git -c user.name=a -c user.email=a@b commit -qm a", shell=True, check=True, cwd=self.root)
        self.interrupt()
        self.meson(BAD_TESTS)  # is not run again
        os.unlink(f"{self.root}/hangs")
        text = self.expect(0, "9 passed, 0 failed", "--quick", "--resume")
        self.assertRegex(text, "unit, with processors .* busy, of the run before")
        self.meson(GOOD_TESTS)
        self.expect(0, "9 passed, 0 failed", "--quick")
        self.scenarios("echo 3 passed, 0 failed")
        self.assertIn("of other sources", self.expect(1, "tests/run: nothing to resume: what is in build/tests-run is "
                                                      "of another tier, or of other sources; run without --resume",
                                                      "--quick", "--resume"))

    def test_what_was_started_is_gone_after_an_interruption(self):
        self.meson(HANGING_TESTS)
        self.interrupt()

    def interrupt(self):
        """A run that hangs, once it does."""
        process = self.start("--quick")
        pid, until = None, time.monotonic() + 60
        while pid is None and time.monotonic() < until:
            time.sleep(0.05)
            try:
                with open(f"{self.root}/hanging") as file:
                    pid = int(file.read())
            except (OSError, ValueError):
                continue
        self.assertIsNotNone(pid, "the hanging test did not start")
        self.assertTrue(alive(pid))
        process.send_signal(signal.SIGTERM)
        text, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)
        self.assertEqual(text.rstrip("\n").split("\n")[-1], "0 passed, 1 failed")
        self.assertFalse(alive(pid))


if __name__ == "__main__":
    unittest.main(verbosity=2)
