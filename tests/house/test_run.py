#!/usr/bin/env python3
"""tests/run itself, where meson and ninja are stand-ins: what it counts, and what it leaves behind."""
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import unittest

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))

MESON = """#!/bin/bash
if [ "$1" = setup ]; then
    for folder; do case $folder in build*) mkdir -p "$folder/meson-logs" ;; esac; done
    exit 0
fi
[ "$1" = test ] || exit 0
{body}
"""
GOOD_TESTS = """
echo '{"name": "core", "stdout": "[  PASSED  ] 5 tests.\\n", "result": "OK"}' > "$3/meson-logs/testlog.json"
"""
BAD_TESTS = """
echo '{"name": "core", "stdout": "", "result": "FAIL"}' > "$3/meson-logs/testlog.json"; exit 1
"""
# A test that hangs, in a session of its own, as meson starts tests.
HANGING_TESTS = """
setsid sleep 1000 &
echo "hanging $!"
wait
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
        for name in ("tests/run", "tests/house/tally"):
            os.makedirs(os.path.dirname(f"{self.root}/{name}"), exist_ok=True)
            shutil.copy(f"{ROOT}/{name}", f"{self.root}/{name}")
        script(f"{self.root}/tools/find-header", "#!/bin/sh\necho /\n")
        self.scenarios("echo 4 passed, 0 failed")
        self.meson(GOOD_TESTS)
        self.ninja("exit 0")

    def meson(self, body):
        script(f"{self.root}/bin/meson", MESON.replace("{body}", body))

    def ninja(self, body):
        script(f"{self.root}/bin/ninja", f"#!/bin/bash\n{body}\n")

    def scenarios(self, body):
        script(f"{self.root}/tests/scenarios/run", f"#!/bin/bash\n{body}\n")

    def start(self, *arguments, **more):
        env = {**os.environ, "PATH": f"{self.root}/bin:{os.environ['PATH']}", **more}
        env.pop("NG_TESTS_RUN", None)
        return subprocess.Popen([f"{self.root}/tests/run", "--no-install", *arguments], stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)

    def expect(self, status, last, *arguments, **more):
        process = self.start(*arguments, **more)
        text, _ = process.communicate(timeout=60)
        self.assertEqual((process.returncode, text.rstrip("\n").split("\n")[-1]), (status, last), text)
        return text

    def test_good_tests_and_scenarios_are_added_up(self):
        self.expect(0, "13 passed, 0 failed", "--quick")

    def test_all_three_builds_are_run(self):
        self.expect(0, "31 passed, 0 failed")

    def test_a_failed_test_fails_the_whole(self):
        self.meson(BAD_TESTS)
        self.expect(1, "8 passed, 1 failed", "--quick")

    def test_a_failed_scenario_fails_the_whole(self):
        self.scenarios("echo 'FAIL a: b'; echo 3 passed, 1 failed; exit 1")
        self.expect(1, "11 passed, 2 failed", "--quick")

    def test_a_failed_build_fails_the_whole(self):
        self.ninja("echo no such header; exit 1")
        self.assertIn("no such header", self.expect(1, "0 passed, 1 failed", "--quick"))

    def test_a_sanitizers_report_fails_the_whole(self):
        self.scenarios('log=$(sed "s/.*log_path=\\([^:]*\\).*/\\1/" <<<"${UBSAN_OPTIONS:-}")\n'
                       '[ -n "$log" ] && echo "runtime error: overflow" >"$log.77"\necho 4 passed, 0 failed')
        self.assertIn("runtime error: overflow", self.expect(1, "31 passed, 2 failed"))

    def test_in_ci_warnings_are_errors(self):
        noting = MESON.replace("\n", '\necho "$*" >>arguments\n', 1)
        script(f"{self.root}/bin/meson", noting.replace("{body}", GOOD_TESTS))
        self.expect(0, "13 passed, 0 failed", "--quick", CI="true")
        with open(f"{self.root}/arguments") as file:
            self.assertIn("-Dwerror=true", file.readline())

    def test_an_unknown_argument_is_a_usage_error(self):
        process = self.start("--fast")
        text, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 2)
        self.assertEqual(len(text.splitlines()), 2)

    def test_what_was_started_is_gone_after_an_interruption(self):
        self.meson(HANGING_TESTS)
        process = self.start("--quick")
        # A bound for the worst case: without its shell the pipe ends.
        bound = threading.Timer(60, process.kill)
        bound.start()
        pid = next((int(line.split()[1]) for line in process.stdout if line.startswith("hanging ")), None)
        bound.cancel()
        self.assertIsNotNone(pid, "the hanging test did not start")
        self.assertTrue(alive(pid))
        process.send_signal(signal.SIGTERM)
        text, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)
        self.assertEqual(text.rstrip("\n").split("\n")[-1], "0 passed, 1 failed")
        self.assertFalse(alive(pid))


if __name__ == "__main__":
    unittest.main(verbosity=2)
