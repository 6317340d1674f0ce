#!/usr/bin/env python3
"""What was promised exists: names that users and other tools rely on, and everything that the documents say.

    test_promises.py BUILD
"""
import glob
import json
import os
import re
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
import documents
import rooms

BUILD = None

# Names that others rely on. They may be added to; none may go.
BUILD_FILES = ("shim/libncclguard.so", "tools/ncclguard", "tests/fake/libnccl.so.2", "tests/fake/libcudart.so.12",
               "tests/fake/libcudart.so.13", "tests/fake/libcuda.so.1")
SCRIPTS = ("tools/quickstart", "tests/run", ".ci/run", "tests/gpu/bundle", "tests/gpu/run-on-gpus",
           "tests/scenarios/run", "tests/lint/update-docs")
ROOT_FILES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "meson.build", "meson.options",
              ".clang-format")
# What `meson install` leaves below its prefix; manual pages and completions are those of test_manual.py.
INSTALLED = ("{bindir}/ncclguard", "{libdir}/ncclguard/libncclguard.so", "{includedir}/ncclguard.h",
             "{datadir}/ncclguard/ncclguard.py", "{libdir}/pkgconfig/ncclguard.pc")
SUBCOMMANDS = ("run", "top", "dump", "abort", "suspend", "resume", "analyze", "doctor", "apis", "config")
RUN_OPTIONS = ("--timeout", "--on-timeout", "--store", "--out", "--fault")
VARIABLES = {
    "NCCLGUARD": "1", "NCCLGUARD_LOG": "warn", "NCCLGUARD_LOG_FILE": None, "NCCLGUARD_JOB": None,
    "NCCLGUARD_RANK": None, "NCCLGUARD_WORLD_SIZE": None, "NCCLGUARD_STORE": "local:", "NCCLGUARD_DIR": None,
    "NCCLGUARD_DUMP_DIR": None, "NCCLGUARD_TIMEOUT": "600s", "NCCLGUARD_INIT_TIMEOUT": "600s",
    "NCCLGUARD_SUSPECT": "5s", "NCCLGUARD_COLD_SUSPECT": "30s", "NCCLGUARD_DEATH_TIMEOUT": "10s",
    "NCCLGUARD_ON_TIMEOUT": "kill", "NCCLGUARD_TRACE_SIZE": "2000",
    "NCCLGUARD_DUMP_WAIT": "15s", "NCCLGUARD_EXIT": "abort", "NCCLGUARD_STORE_TTL": "5s",
    "NCCLGUARD_INIT": "watch", "NCCLGUARD_INIT_RETRY": "0", "NCCLGUARD_BLOCKING_WAIT": "0",
    "NCCLGUARD_TIMING": "sampled", "NCCLGUARD_STACKS": "incident",
    "NCCLGUARD_REGISTER": "off", "NCCLGUARD_ALLOC": "keep", "NCCLGUARD_CHECK": "signature", "NCCLGUARD_FAULT": None,
    "NCCLGUARD_HEARTBEAT_TIMEOUT": "60s", "NCCLGUARD_POISON": "auto",
    "NCCLGUARD_ABORT_WAIT": "10s", "NCCLGUARD_RULES": None, "NCCLGUARD_STORE_KEY": None,
}
KINDS = ("healthy", "missing_rank", "dead_rank", "stopped_rank", "left_early", "mismatch", "order_deadlock",
         "gpu_stall", "init_missing_rank", "init_mismatch", "async_error", "straggler", "nan", "watchdog_stuck",
         "abort_stuck", "unknown")
README_LINES, README_BYTES = 200, 16384
BUILD_OPTIONS = ("nccl_include", "cuda-include", "redis", "tests", "b_sanitize")

# The table of kinds, wherever it lies in core.
VERDICTS, = (os.path.relpath(path, documents.ROOT)
             for path in glob.glob(os.path.join(documents.ROOT, "core/**/verdict_kind.def"), recursive=True))

# What the objects of a floor must not call, whatever their headers say.
_CORE = (r"p?nccl[A-Z]\w*|cu[A-Z]\w*|cuda[A-Z]\w*|dl(v?sym|m?open|addr1?|info|_iterate_phdr)|"
         r"socket|connect|bind|listen|accept4?|getaddrinfo|redis\w+")
FOREIGN_CALLS = {
    "core/libng_offline.a": _CORE,
    "core/libng_live.a": _CORE,
    "store/libng_store.a": r"p?nccl[A-Z]\w*|cu[A-Z]\w*|cuda[A-Z]\w*|dl(v?sym|m?open|info|_iterate_phdr)",
    # Not the command as a whole: OpenSSL, linked into it, opens libraries.
    "tools/libng_tools.a": r"p?nccl[A-Z]\w*|cu[A-Z]\w*|cuda[A-Z]\w*|dl(v?sym|m?open|_iterate_phdr)",
}


# What makes threads, and what keeps them apart. The one lock of the offline half is that of a table which the program's
# threads write.
THREADS = re.compile(r"pthread_(create|mutex_\w+|cond_\w+|rwlock_\w+|barrier_\w+)|thrd_create|mtx_\w+")
LOCKS = {"core/util/memory_map.c"}


def built(name):
    return os.path.join(BUILD, name)


def output_of(*arguments):
    return subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=60).stdout


def objects():
    """(source, what it defines, what it calls) of each object of a floor; what earlier builds left is none."""
    for floor in (*rooms.ROOMS, "shim"):
        for path in glob.glob(built(f"{floor}/*.p/*.o")):
            name = os.path.basename(path)[:-len(".o")]
            # Assembly, and the C file of its name, are one.
            name = name.replace("_", "/", 1) if floor in rooms.ROOMS else name.replace(".S", ".c")
            source = f"{floor}/{name}"
            if not os.path.isfile(os.path.join(documents.ROOT, source)):
                continue
            lines = [line.split() for line in output_of("nm", "-g", path).splitlines()]
            yield (source, {line[2] for line in lines if len(line) == 3},
                   {line[1].partition("@")[0] for line in lines if len(line) == 2})


class Contract(unittest.TestCase):
    def test_the_build_yields_the_promised_files(self):
        for name in BUILD_FILES:
            with self.subTest(file=name):
                self.assertTrue(os.path.isfile(built(name)))

    def test_an_installation_has_the_promised_files(self):
        with open(built("meson-info/intro-install_plan.json"), encoding="utf-8") as file:
            plan = json.load(file)
        places = {entry["destination"] for part in plan.values() for entry in part.values()}
        for place in INSTALLED:
            with self.subTest(place=place):
                self.assertIn(place, places)

    def test_the_stand_ins_bear_the_names_that_programs_ask_for(self):
        for name in BUILD_FILES:
            if name.startswith("tests/fake/"):
                with self.subTest(file=name):
                    self.assertIn(f"soname: [{os.path.basename(name)}]", output_of("readelf", "-d", built(name)))

    def test_the_library_needs_neither_nccl_nor_cuda(self):
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", output_of("readelf", "-d", built("shim/libncclguard.so")))
        self.assertIn("libc.so.6", needed)
        self.assertEqual([name for name in needed if re.match(r"lib(nccl|rccl|cuda|cudart)\b", name)], [])

    def test_the_scripts_are_there_and_can_be_run(self):
        for name in SCRIPTS:
            with self.subTest(script=name):
                self.assertTrue(os.access(os.path.join(documents.ROOT, name), os.X_OK))

    def test_the_files_of_the_root_are_there(self):
        for name in ROOT_FILES:
            with self.subTest(file=name):
                self.assertGreater(os.path.getsize(os.path.join(documents.ROOT, name)), 0)

    def test_version_is_the_one_of_the_build_and_of_the_changelog(self):
        status, text, _ = documents.command(BUILD, "--version")
        self.assertEqual(status, 0)
        version = re.search(r"version: '([\d.]+)'", documents.read("meson.build"))[1]
        self.assertEqual(text, f"ncclguard {version}\n")
        self.assertRegex(documents.read("CHANGELOG.md"), rf"(?m)^## \[{re.escape(version)}\]")

    def test_each_subcommand_is_there_and_has_help(self):
        self.assertLessEqual(set(SUBCOMMANDS), set(documents.subcommands(BUILD)))
        for name in documents.subcommands(BUILD):
            with self.subTest(subcommand=name):
                status, text, _ = documents.command(BUILD, name, "--help")
                self.assertEqual(status, 0)
                self.assertIn(f"usage: ncclguard {name}", text)

    def test_run_has_the_promised_options(self):
        _, text, _ = documents.command(BUILD, "run", "--help")
        for option in RUN_OPTIONS:
            with self.subTest(option=option):
                self.assertRegex(text, rf"(?m)^ +{option}\b")

    def test_a_usage_error_ends_with_2_and_two_lines(self):
        status, text, told = documents.command(BUILD, "no-such-command")
        self.assertEqual((status, text), (2, ""))
        self.assertEqual(len(told.splitlines()), 2)

    def test_each_variable_is_known_with_its_default(self):
        known = documents.options_of(documents.option_table(BUILD))
        for name, default in VARIABLES.items():
            with self.subTest(variable=name):
                self.assertIn(name, known)
                if default is not None:
                    self.assertIn(f"| `{default}` |", known[name])

    def test_each_kind_of_verdict_is_known(self):
        known = re.findall(r'^NG_VERDICT\(\w+, "(\w+)"', documents.read(VERDICTS), re.M)
        self.assertLessEqual(set(KINDS), set(known))

    def test_the_build_has_the_promised_options(self):
        with open(built("meson-info/intro-buildoptions.json")) as file:
            known = [option["name"] for option in json.load(file)]
        self.assertLessEqual(set(BUILD_OPTIONS), set(known))


class Rooms(unittest.TestCase):
    def test_the_objects_of_a_room_call_nothing_that_the_room_must_not_know(self):
        for name, pattern in FOREIGN_CALLS.items():
            with self.subTest(room=name):
                symbols = output_of("nm", "-u", built(name))
                # It opens ncursesw, as tests/lint/includes knows.
                symbols = re.sub(r"(?ms)^\S*render_curses\.c\.o:\n.*?(?=^$|\Z)", "", symbols)
                self.assertRegex(symbols, r"(?m)^ +U (mem|str)\w+")
                foreign = re.findall(rf"(?m)^ +[Uw] ({pattern})(?:@.*)?$", symbols)
                self.assertEqual(foreign, [])

    def test_the_objects_of_a_room_call_only_rooms_that_it_may_see(self):
        known = list(objects())
        home = {symbol: source for source, defined, _ in known for symbol in defined}
        calls = {(source, home[symbol], symbol) for source, _, called in known for symbol in called if symbol in home}
        self.assertGreater(len(calls), 1000)
        self.assertEqual([f"{source} calls {symbol} of {other}: {rooms.objection(source, other)}"
                          for source, other, symbol in sorted(calls) if rooms.objection(source, other)], [])

    def test_the_files_of_a_room_or_of_the_shim_call_each_other_in_no_circle(self):
        known = list(objects())
        home = {symbol: source for source, defined, _ in known for symbol in defined}
        calls = {(source, home[symbol]) for source, _, called in known for symbol in called if symbol in home}
        self.assertTrue({"core/comm/comm.c", "shim/entry.c"} <= {source for source, _ in calls})
        self.assertEqual(sorted(map(sorted, rooms.circles(calls))), [])

    def test_the_offline_half_has_no_thread(self):
        offline = [one for one in objects() if rooms.room_of(one[0])[1] in rooms.OFFLINE]
        self.assertGreater(len(offline), 50)
        self.assertEqual([(source, symbol) for source, _, called in offline for symbol in sorted(called)
                          if THREADS.fullmatch(symbol) and source not in LOCKS], [])

    def test_the_dependency_rule_is_part_of_the_build(self):
        with open(built("meson-info/intro-targets.json")) as file:
            targets = {target["name"]: target for target in json.load(file)}
        self.assertTrue(targets["dependency-rule"]["build_by_default"])
        self.assertTrue(os.path.isfile(built("tests/lint/dependency-rule.stamp")))


class Documents(unittest.TestCase):
    def test_the_readme_is_short(self):
        text = documents.read("README.md")
        self.assertLessEqual(len(text.splitlines()), README_LINES)
        self.assertLessEqual(len(text.encode()), README_BYTES)

    def test_each_relative_link_leads_to_a_file_and_a_heading(self):
        for page in documents.pages():
            with self.subTest(page=page):
                self.assertEqual(documents.broken_links(page, documents.read(page)), [])

    def test_each_page_is_in_the_index(self):
        index = documents.read("docs/README.md")
        for page in documents.pages():
            if page.startswith("docs/") and page != "docs/README.md":
                with self.subTest(page=page):
                    self.assertIn(f"({os.path.relpath(page, 'docs')})", index)

    def test_the_pages_have_the_variables_and_the_help_of_the_command(self):
        for page, text in documents.generated_pages(BUILD).items():
            with self.subTest(page=page):
                self.assertEqual(documents.read(page), text, "run tests/lint/update-docs")

    def test_each_subcommand_stands_in_the_readme(self):
        text = documents.read("README.md")
        for name in documents.subcommands(BUILD):
            with self.subTest(subcommand=name):
                self.assertIn(f"`ncclguard {name}", text)

    def test_each_kind_of_verdict_has_a_line(self):
        text = documents.read("docs/verdicts.md")
        for kind in re.findall(r'^NG_VERDICT\(\w+, "(\w+)"', documents.read(VERDICTS), re.M):
            with self.subTest(kind=kind):
                self.assertIn(f"\n| `{kind}` |", text)

    def test_no_document_names_a_variable_that_does_not_exist(self):
        known = set(documents.options_of(documents.option_table(BUILD))) | {"NCCLGUARD_LIB", "NCCLGUARD_RUN_ID"}
        known |= set(re.findall(r"\bNCCLGUARD_[A-Z_]+\b", documents.read("include/ncclguard.h")))
        for document in (*documents.pages(), "CHANGELOG.md"):
            for name in re.findall(r"\bNCCLGUARD(?:_[A-Z_]*[A-Z])?\b(?!_)", documents.read(document)):
                with self.subTest(document=document, variable=name):
                    self.assertIn(name, known)

    def test_each_path_that_a_document_names_exists(self):
        total = 0
        for document in documents.pages():
            named = documents.paths_named(documents.read(document))
            total += len(named)
            for name in named:
                with self.subTest(document=document, path=name):
                    path = built(name[6:]) if name.startswith("build/") else os.path.join(documents.ROOT, name)
                    self.assertTrue(glob.glob(path))
        self.assertGreater(total, 50)

    def test_each_source_file_that_a_document_names_exists(self):
        named = {name for page in documents.pages() for name in documents.sources_named(documents.read(page))}
        self.assertGreater(len(named), 10)
        there = {os.path.basename(path) for room in (*documents.ROOMS, "include")
                 for path in glob.glob(os.path.join(documents.ROOT, room, "**"), recursive=True)}
        self.assertLessEqual(named, there)

    def test_each_name_that_a_document_places_in_a_file_is_there(self):
        placed = [(page, *one) for page in documents.pages() for one in documents.names_placed(documents.read(page))]
        self.assertGreater(len(placed), 20)
        for page, name, path in placed:
            with self.subTest(page=page, name=name, path=path):
                # Not as a member that is used there: `columns` of a sheet is not the table of columns.
                self.assertRegex(documents.read(path), rf"(?<![.>\w]){name}")

    def test_the_architecture_has_the_table_of_rooms(self):
        text = documents.read("docs/architecture.md")
        for floor, known in rooms.ROOMS.items():
            table = text.split(f"### Rooms of `{floor}/`")[1].split("\n#")[0]
            rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]*) \|$", table, re.M)
            with self.subTest(floor=floor):
                self.assertEqual([(room, tuple(sees.split(", ")) if sees != "–" else ()) for room, sees in rows],
                                 list(known.items()))
                folders = {entry.name for entry in os.scandir(os.path.join(documents.ROOT, floor))
                           if entry.is_dir() and glob.glob(os.path.join(entry.path, "*.c"))}
                self.assertEqual(folders, set(known))

    def test_where_a_change_begins_is_told_in_full_by_the_page_for_contributors(self):
        text = documents.read("docs/architecture.md")
        table = text.split("## Where a change begins")[1].split("\n## ")[0]
        named = set(documents.paths_named(table))
        self.assertGreater(len(named), 40)
        self.assertEqual(named - set(documents.paths_named(documents.read("CONTRIBUTING.md"))), set())


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: test_promises.py BUILD")
    BUILD = os.path.abspath(sys.argv.pop())
    unittest.main(verbosity=2)
