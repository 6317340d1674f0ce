#!/usr/bin/env python3
"""Builds and runs a tier of the tests, for tests/run, which has installed what they need.

    tests/gate/run.py quick|gate|full [resume]

One build after the other, and tests of what is built while the next is compiled. Results lie in build/tests-run; the
last line is `N passed, N failed`, perhaps with `, N skipped`. Exit status 0: nothing failed.
"""
import contextlib
import datetime
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback

sys.dont_write_bytecode = True
import repeat  # noqa: E402  (beside this file, as all that follow)
import tally  # noqa: E402
import watches  # noqa: E402
from stages import TIERS, chosen, read_table, registered, targets_of, untiered  # noqa: E402

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "scenarios"))
from harness.pulse import Pulse  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
RESULTS = os.path.join(ROOT, "build", "tests-run")
MARK = "NG_TESTS_RUN"  # everything that is started here has it in its environment, and so has all that it starts
CONFIGURE_S, COMPILE_S = 300, 1800
ALONE_S = 120          # one repetition, of a stage's bounds
PATIENCE = 4
STILL_S = 10           # what fails while the machine stands still for so long says nothing of what was tested
GOING_S = 5            # for what is ending already

# A program that crashes on purpose must crash; a sanitizer's runtime comes with the program, behind the preloaded
# library.
SANITIZERS = {
    "ASAN_OPTIONS": "verify_asan_link_order=0:handle_segv=0:handle_abort=0:allow_user_segv_handler=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "LSAN_OPTIONS": "print_suppressions=0",  # a test's own are none of what is reported
    "TSAN_OPTIONS": "handle_segv=0:second_deadlock_stack=1:die_after_fork=0:suppressions="
                    + os.path.join(ROOT, "tests", "thread-sanitizer.suppressions"),
}


def crowding():
    """How many times more threads want a processor than there are, at least 1."""
    try:
        with open("/proc/loadavg") as file:
            return max(1.0, float(file.read().split()[0]) / (2 * (os.cpu_count() or 1)))
    except (OSError, ValueError):
        return 1.0


def busy_s():
    """Seconds of all processors that were not idle, since the machine's start."""
    try:
        with open("/proc/stat") as file:
            user, nice, system, idle, waiting, *others = map(int, file.readline().split()[1:9])
        return (user + nice + system + sum(others)) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return 0.0


def bounds_of(stage):
    """Meson's own bounds of a test are for a machine that does nothing else, and know nothing of its load as the
    stage's does, within which a test may well take some times longer."""
    return ["--timeout-multiplier", str(PATIENCE * stage.multiplier)]


class Failure:
    """One that is to be repeated alone."""

    def __init__(self, stage, test, words, late, case):
        self.stage, self.test, self.late, self.case = stage, test, late, case
        self.words = words
        self.name = tally.key_of(test, words)


def tree():
    """What is tested: another commit, or another change of it, is another tree. Empty: git does not say."""
    words = []
    for argv in (["rev-parse", "HEAD"], ["diff", "HEAD"], ["status", "--porcelain"]):
        git = subprocess.run(["git", *argv], cwd=ROOT, capture_output=True)
        if git.returncode != 0:
            return ""
        words.append(git.stdout)
    return hashlib.sha256(b"\0".join(words)).hexdigest()


class Run:
    def __init__(self, tier, done):
        """`done`: stages of an earlier run, by name; they are not run again."""
        self.tier, self.done, self.tree = tier, done, tree()
        self.jobs = int(os.environ.get("JOBS") or os.cpu_count() or 1)
        self.builds, self.table = read_table()
        self.table = [stage for stage in self.table if stage.is_in(tier)]
        self.stages = [stage for stage in self.table if stage.name not in done]
        self.builds = [build for build in self.builds if TIERS.index(build.tier) <= TIERS.index(tier)]
        self.began, self.lock, self.children, self.over = time.monotonic(), threading.Lock(), {}, False
        self.tests, self.took = {}, []
        self.pulse, self.stood_still = Pulse(STILL_S), set()  # the latter: stages
        self.mark = f"{os.getpid()}-{time.time_ns()}"
        self.environment = {**os.environ, MARK: self.mark}
        if shutil.which("ccache"):
            # What a clone elsewhere has compiled serves this one, with the precompiled header of the tests.
            self.environment.update(CCACHE_BASEDIR=ROOT, CCACHE_NOHASHDIR="true",
                                    CCACHE_SLOPPINESS="pch_defines,time_macros,include_file_mtime,include_file_ctime")

    # ---- Processes ----

    def say(self, text):
        self.show(f"== {time.monotonic() - self.began:5.0f} s  {text}")

    def show(self, text):
        with self.lock:
            if not self.over:  # else the last line has been said, or is being said
                print(text, flush=True)

    def start(self, argv, environment, output):
        child = subprocess.Popen(argv, cwd=ROOT, env={**self.environment, **environment}, stdin=subprocess.DEVNULL,
                                 stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        self.children[child.pid] = child
        return child

    def bounded(self, argv, seconds, environment=None, output=None):
        """Exit status; 124: it was ended, after so many seconds, which pass slower on a loaded machine and not at all
        on one that stands still."""
        if self.over:
            return 124
        child, left = self.start(argv, environment or {}, output or subprocess.DEVNULL), float(seconds)
        while True:
            before = time.monotonic()
            try:
                return child.wait(1)
            except subprocess.TimeoutExpired:
                left -= min(time.monotonic() - before, 2) / crowding()
            if left <= 0 or self.over:
                # Python and shells among them end what they have started.
                child.terminate()
                until = time.monotonic() + 20
                # It is reaped after the signal to its group: from then on another process may have the number.
                while time.monotonic() < until and not os.waitid(os.P_PID, child.pid,
                                                                 os.WEXITED | os.WNOWAIT | os.WNOHANG):
                    time.sleep(0.05)
                try:
                    os.killpg(child.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                child.wait()
                return 124

    def marked(self, stage=""):
        """Processes that carry the mark of this run, or of one of its stages, but for this one."""
        word = f"{MARK}_STAGE={self.mark} {stage}".encode() if stage else f"{MARK}={self.mark}".encode()
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != os.getpid():
                try:
                    with open(f"/proc/{name}/environ", "rb") as file:
                        if word in file.read().split(b"\0"):
                            yield int(name)
                except OSError:
                    continue

    def present(self, stage=""):
        """As marked, of two looks: for a moment of its exec a process has no environment."""
        found = list(self.marked(stage))
        if not found:
            time.sleep(0.05)
            found = list(self.marked(stage))
        return found

    def sweep(self):
        """Nothing that was started here stays; when this returns, it is gone."""
        until = time.monotonic() + GOING_S
        while (left := self.present()) and time.monotonic() < until:
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.02)

    def left_over(self, name):
        """What a stage has left running, a moment after its end, is a failure of it; and is ended."""
        until = time.monotonic() + GOING_S
        while (left := self.present(name)) and time.monotonic() < until:
            time.sleep(0.1)
        words = []
        for pid in left:
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    words.append(f"{pid} {file.read().replace(bytes(1), b' ').decode(errors='replace').strip()}")
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue
        if words and not self.over:
            self.failed(f"{name}-left", f"{name} left processes running: {'; '.join(words)}")

    def keep(self, name, text):
        """A result, whole or not at all: the stage beside may be counting."""
        path = os.path.join(RESULTS, name)
        with open(f"{path}.new", "w") as file:
            file.write(text)
        os.replace(f"{path}.new", path)

    def failed(self, name, why):
        self.show(why)
        self.keep(f"{name}.failed", why + "\n")

    def guarded(self, name, body, *arguments):
        """What breaks in a thread must not be taken for what has nothing to say."""
        try:
            body(*arguments)
        except Exception:
            self.failed(f"{name}-broke", f"{name} broke:\n{traceback.format_exc()}")

    # ---- Builds ----

    def introspect(self, folder):
        what = []
        for name in ("tests", "targets"):
            with open(os.path.join(ROOT, folder, "meson-info", f"intro-{name}.json")) as file:
                what.append(json.load(file))
        return registered(*what)

    def build(self, build):
        folder, log = build.folder, os.path.join(RESULTS, f"{build.folder}.build.log")
        stages = [stage for stage in self.stages if stage.build == folder]
        strict = os.environ.get("CI") == "true" and not build.sanitized  # sanitizers have warnings of their own
        configure = ["meson", "setup", *(["--reconfigure"] if os.path.exists(f"{ROOT}/{folder}/build.ninja") else []),
                     folder, f"-Dwerror={str(strict).lower()}", *build.options]
        self.say(f"building into {folder}")
        with open(log, "w") as output:
            good = self.bounded(configure, CONFIGURE_S, output=output) == 0
            if good:
                self.tests[folder] = self.introspect(folder)
                targets = []
                if build.sanitized or self.tier == "quick":
                    targets = targets_of(self.tests[folder], stages, f"{ROOT}/{folder}")
                # Tests that wait go first.
                good = self.bounded(["nice", "-n", "19", "ninja", "-C", folder, "-j", str(self.jobs), *targets],
                                    COMPILE_S, output=output) == 0
        if good:
            return True
        with open(log, errors="replace") as file:
            self.show("".join(file.readlines()[-60:]))
        self.failed(folder, f"the build in {folder} failed; its log is {log}")
        return False

    # ---- Stages ----

    def environment_of(self, stage, name):
        """Sanitizers write their reports into files, wherever the process's own output went."""
        environment = {f"{MARK}_STAGE": f"{self.mark} {name}"}
        if not self.build_of(stage).sanitized:
            return environment
        log = f"{RESULTS}/{name}.report"
        environment.update({key: f"halt_on_error=1:log_path={log}:{value}" if key != "LSAN_OPTIONS" else value
                            for key, value in SANITIZERS.items()})
        if stage.command:
            environment["ASAN_OPTIONS"] += ":detect_leaks=0"  # stand-ins and programs give back nothing at their end
        return environment

    def build_of(self, stage):
        return next(build for build in self.builds if build.folder == stage.build)

    def under(self, stage):
        """Sanitizers find no room for their shadow where kernels randomise addresses much."""
        if self.build_of(stage).sanitized and subprocess.run(
                ["setarch", "-R", "true"], stderr=subprocess.DEVNULL).returncode == 0:
            return ["setarch", "-R"]
        return []

    def run_meson(self, stage, name, tests, extra=()):
        """Runs tests by meson; its log as NAME.meson. Exit status."""
        folder, logs = stage.build, os.path.join(ROOT, stage.build, "meson-logs")
        argv = [*self.under(stage), "meson", "test", "-C", folder, "--no-rebuild", "--logbase", name, "--num-processes",
                str(max(1, round(stage.jobs * self.jobs))), *bounds_of(stage), *extra,
                *[test.name for test in tests]]
        with open(os.path.join(RESULTS, f"{name}.log"), "w") as output:
            status = self.bounded(argv, stage.seconds, self.environment_of(stage, name), output)
        if os.path.exists(f"{logs}/{name}.json") and os.path.getsize(f"{logs}/{name}.json"):
            with open(f"{logs}/{name}.json", errors="replace") as file:
                self.keep(f"{name}.meson", file.read())
        return status

    def command_of(self, stage, seed, jobs=None):
        words = {"build": stage.build, "jobs": jobs or max(1, round(stage.jobs * self.jobs)), "slack": stage.slack,
                 "seed": datetime.date.today().toordinal() + seed}
        return self.under(stage) + [word.format(**words) if re.fullmatch(r"\{[a-z]+\}", word) else word
                                    for word in stage.command]

    def run_command(self, stage, name, seed):
        log = os.path.join(RESULTS, f"{name}.log")
        with open(log, "w") as output:
            status = self.bounded(self.command_of(stage, seed), stage.seconds, self.environment_of(stage, name), output)
        with open(log, errors="replace") as file:
            text = file.read()
        self.keep(f"{name}.text", f"{status}\n{text}")
        return status

    def reports(self, name):
        """One file of a sanitizer is one failure."""
        for entry in sorted(os.listdir(RESULTS)):
            path = os.path.join(RESULTS, entry)
            if entry.startswith(f"{name}.report.") and os.path.getsize(path):
                with open(path, errors="replace") as file:
                    self.show("".join(file.readlines()[:60]))
                self.failed(entry.replace(".", "-"), f"a sanitizer's report: {path}")

    def stage(self, stage):
        self.say(f"{stage.name} in {stage.build}")
        before, worked = time.monotonic(), busy_s()
        for seed in range(stage.seeds):
            name = stage.name if stage.seeds == 1 else f"{stage.name}-{seed}"
            if stage.command:
                status, kind = self.run_command(stage, name, seed), "text"
            else:
                status, kind = self.run_meson(stage, name, chosen(self.tests[stage.build], stage)), "meson"
            if status == 124 and not self.over:
                self.failed(f"{name}-ended", f"{name} took longer than {stage.seconds} s, and was ended")
            if not os.path.exists(os.path.join(RESULTS, f"{name}.{kind}")):
                self.failed(f"{name}-nothing", f"nothing ran in {name}; its log is {RESULTS}/{name}.log")
            self.left_over(name)
            self.reports(name)
        took = time.monotonic() - before
        if (pause := self.pulse.longest_since(before)) > 0:
            self.say(f"{stage.name}: the machine stood still for {pause:.0f} s: what failed counts as late")
            self.stood_still.add(stage.name)
        # Of the whole machine: with what ran beside it.
        busy = 100 * (busy_s() - worked) / (max(took, 0.1) * (os.cpu_count() or 1))
        words = f"{stage.name}, with processors {busy:.0f} % busy"
        self.took.append((words, took))
        if not self.over:
            with self.lock:
                self.done[stage.name] = [words, took]
                self.keep("done.json", json.dumps({"tier": self.tier, "tree": self.tree, "stages": self.done}))
        bad = [f for f in self.failures() if f.stage is stage]
        self.say(f"{stage.name}: {took:.0f} s" + (f", {len(bad)} failed" if bad else ""))
        for failure in bad:
            self.show(f"     {failure.name}")

    # ---- Failures ----

    def failures(self):
        """Those of stages that can be run again by name."""
        found = []
        for test, count in tally.counts(RESULTS):
            step = test.split(": ")[0]
            stage = next((one for one in self.table
                          if step == one.name or (one.seeds > 1 and step.rsplit("-", 1)[0] == one.name)), None)
            if stage and count.failed:
                for words in count.failures:
                    late = words in count.late or stage.name in self.stood_still
                    found.append(Failure(stage, test, words, late, count.cases))
        return found

    def run_alone(self, failure):
        stage, log = failure.stage, os.path.join(RESULTS, "alone.log")
        row = tally.ROW.match(failure.words + " ")
        if stage.command:
            argv = self.command_of(stage, 0, 1) + ["--filter", f"^{re.escape(row[2])}$"] if row else None
            if not argv:
                return False
            environment = self.environment_of(stage, "alone")
        else:
            name = failure.test.split(" / ")[-1]  # "STEP: project:suite / name"
            argv = [*self.under(stage), "meson", "test", "-C", stage.build, "--no-rebuild", "--logbase", "alone",
                    *bounds_of(stage), name]
            if row:
                argv[-1:-1] = ["--test-args=--filter " + shlex.quote(f"^{re.escape(row[2])}$")]
            elif failure.case:
                argv[-1:-1] = [f"--test-args=--gtest_filter={failure.words}"]
            environment = self.environment_of(stage, "alone")
        with open(log, "a") as output:
            status = self.bounded(argv, ALONE_S * stage.multiplier * max(1, stage.slack / 2), environment, output)
        self.sweep()
        return status == 0

    def repeat(self):
        failures = self.failures()
        if not failures or self.over:
            return
        self.say(f"{len(failures)} failed: again, alone")
        flaky = [failure.name for failure in repeat.repeat_all(failures, self.run_alone, self.show)]
        with open(os.path.join(RESULTS, "flaky.json"), "w") as file:
            json.dump(flaky, file, indent=1)
        again = repeat.remember(flaky, repeat.history_path(), time.time())
        if again and self.tier == "full":
            self.failed("flaky-again", f"flaky twice within a week: {', '.join(again)}")

    # ---- All of it ----

    def check_table(self):
        """In every tier: a test that no stage runs is a test that nobody runs."""
        lost = untiered(self.tests["build"], read_table()[1])
        if lost:
            self.failed("tiers", f"in no tier of tests/gate/tiers.toml: {', '.join(lost)}")

    def run_stages(self, built):
        """Tests of what is built: one stage at a time, and a light one beside it."""
        running, waiting = {}, list(self.stages)

        def may_begin(stage):
            if stage.quiet or any(other.quiet for other in running):
                return not running and built["done"]
            return not any(other.light == stage.light for other in running)

        while waiting and not self.over:
            running = {stage: thread for stage, thread in running.items() if thread.is_alive()}
            ready = next((stage for stage in waiting if built.get(stage.build) is not None and may_begin(stage)), None)
            if not ready:
                time.sleep(0.2)
                continue
            waiting.remove(ready)
            if built[ready.build]:
                running[ready] = threading.Thread(target=self.guarded, daemon=True,
                                                  args=[ready.name, self.stage, ready])
                running[ready].start()
        for thread in running.values():
            thread.join()

    def everything(self):
        built = {"done": False}
        runner = threading.Thread(target=self.guarded, args=["stages", self.run_stages, built], daemon=True)
        runner.start()
        for build in self.builds:
            before = time.monotonic()
            built[build.folder] = self.build(build)
            self.took.append((f"building {build.folder}", time.monotonic() - before))
            if build.folder == "build" and built["build"]:
                self.check_table()
            if not built[build.folder]:
                break  # the others are of the same sources
        for build in self.builds:
            built.setdefault(build.folder, False)
        built["done"] = True
        runner.join()
        self.sweep()
        self.repeat()

    def end(self):
        self.over = True
        for child in list(self.children.values()):
            if child.poll() is None:
                child.terminate()
        self.sweep()


def kept(tier):
    """The whole stages of an interrupted run of this tier and this tree, by name: in words, and their seconds. What
    else is there of it goes."""
    try:
        with open(os.path.join(RESULTS, "done.json")) as file:
            done = json.load(file)
    except (OSError, ValueError):
        sys.exit("tests/run: nothing to resume: no stage of an earlier run has ended; run without --resume")
    if done["tier"] != tier or done["tree"] != tree() or not done["tree"]:
        sys.exit("tests/run: nothing to resume: what is in build/tests-run is of another tier, or of other sources; "
                 "run without --resume")
    for entry in os.listdir(RESULTS):
        step = re.sub(r"(-[0-9]+)?(-(left|ended|nothing|broke))?$", "", entry.split(".")[0])
        if step not in done["stages"] and entry != "done.json":
            os.remove(os.path.join(RESULTS, entry))
    return done["stages"]


def main(arguments):
    if len(arguments) not in (1, 2) or arguments[1:] not in ([], ["resume"]):
        sys.exit("usage: run.py quick|gate|full [resume]")
    done = kept(arguments[0]) if arguments[1:] else {}
    if not done:
        shutil.rmtree(RESULTS, ignore_errors=True)
    os.makedirs(RESULTS, exist_ok=True)
    earlier = [(f"{words}, of the run before", took) for words, took in done.values()]
    run = Run(arguments[0], done)

    limits = contextlib.ExitStack()

    def interrupted(number, frame):
        signal.signal(number, signal.SIG_IGN)
        print("\ntests/run: interrupted", file=sys.stderr, flush=True)
        run.end()
        limits.close()
        print("0 passed, 1 failed", flush=True)
        os._exit(130)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupted)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)  # a shell in the background has it ignored, by all below, too
    limits.enter_context(watches.enough())
    try:
        run.everything()
    finally:
        run.sweep()
        limits.close()
    run.say(f"results (logs in {os.path.relpath(RESULTS, ROOT)})")
    for name, took in earlier + run.took:
        print(f"   {took:6.0f} s  {name}")
    return tally.main([RESULTS])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
