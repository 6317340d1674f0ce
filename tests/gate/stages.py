"""tests/gate/tiers.toml as objects: builds, stages, and which registered tests a stage runs."""
import collections
import fnmatch
import os
import sys
import tomllib

HERE = os.path.dirname(os.path.realpath(__file__))
TIERS = ("quick", "gate", "full")
BUILD_KEYS = {"folder", "tier", "options", "reason"}
STAGE_KEYS = {"name", "build", "tier", "only", "tests", "except", "covers", "command", "jobs", "slack", "multiplier",
              "needs", "seconds", "seeds", "quiet", "light", "reason"}

Test = collections.namedtuple("Test", "name suites targets")  # of meson; files under the build folder that it needs


class Build:
    def __init__(self, row):
        self.folder, self.tier, self.options = row["folder"], row["tier"], row.get("options", [])
        self.sanitized = any("b_sanitize" in option for option in self.options)


class Stage:
    def __init__(self, row):
        self.name, self.build, self.tier = row["name"], row["build"], row["tier"]
        self.only, self.patterns, self.excepted = row.get("only"), row.get("tests", []), row.get("except", [])
        self.covers, self.command = row.get("covers", []), row.get("command")
        self.jobs, self.slack, self.multiplier = row.get("jobs", 1), row.get("slack", 1), row.get("multiplier", 1)
        self.seconds, self.seeds, self.needs = row["seconds"], row.get("seeds", 1), row.get("needs", [])
        self.quiet, self.light = row.get("quiet", False), row.get("light", False)

    def runs(self, test):
        """Does this stage run, or cover, a test of meson?"""
        names = [f"{suite}/{test.name}" for suite in test.suites]
        return (matches(names, self.patterns) and not matches(names, self.excepted)) or matches(names, self.covers)

    def is_in(self, tier):
        return self.only == tier if self.only else TIERS.index(self.tier) <= TIERS.index(tier)


def matches(names, patterns):
    return any(fnmatch.fnmatchcase(name, pattern) for name in names for pattern in patterns)


def check_row(row, keys, where):
    unknown, missing = set(row) - keys, {"tier", "reason"} - set(row)
    if unknown or missing or row["tier"] not in TIERS:
        sys.exit(f"{where}: row {row.get('name', row.get('folder'))}: unknown {sorted(unknown)}, missing "
                 f"{sorted(missing)}, or a tier that is none of {', '.join(TIERS)}")


def read_table(path=os.path.join(HERE, "tiers.toml")):
    """(builds, stages) of the table, in its order."""
    with open(path, "rb") as file:
        table = tomllib.load(file)
    for row in table["build"]:
        check_row(row, BUILD_KEYS, path)
    for row in table["stage"]:
        check_row(row, STAGE_KEYS, path)
    return [Build(row) for row in table["build"]], [Stage(row) for row in table["stage"]]


def registered(introspected, targets):
    """Tests of meson, from its intro-tests.json and intro-targets.json."""
    files = {target["id"]: target["filename"] for target in targets}
    found = []
    for test in introspected:
        # `depends` holds the programs that the test runs, and those among its arguments.
        needs = [name for key in test["depends"] for name in files.get(key, [])]
        found.append(Test(test["name"], [suite.split(":")[-1] for suite in test["suite"]], needs))
    return found


def untiered(tests, stages, folder="build"):
    """Names of registered tests that no stage runs, even in --full."""
    return [f"{test.suites[0]}/{test.name}" for test in tests
            if not any(stage.runs(test) for stage in stages if stage.build == folder)]


def chosen(tests, stage):
    """The tests that meson is to run for a stage."""
    return [test for test in tests if stage.patterns and stage.runs(test)]


def targets_of(tests, stages, folder):
    """Files of the build folder that these stages need, relative to it."""
    needed = []
    for stage in stages:
        for test in tests:
            names = [f"{suite}/{test.name}" for suite in test.suites]
            if stage.runs(test) or matches(names, stage.needs):
                needed += test.targets
    inside = [os.path.relpath(path, folder) for path in needed if path.startswith(folder + os.sep)]
    return sorted(set(inside))
