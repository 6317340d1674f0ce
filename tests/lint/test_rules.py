#!/usr/bin/env python3
"""The checks of includes, style and links: each of their rules can fail, and the repository keeps to them."""
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.dont_write_bytecode = True
import documents
import rooms

# A tree that keeps to the rule, as {file: text}.
GOOD = {
    "core/nccl/nccl.h": "/* Table. */\n",
    "core/nccl/call.h": '/* Door. */\n#include "core/nccl/nccl.h"\n',
    "core/view/view.h": "/* View. */\n#include <stdint.h>\n",
    "core/device/gpu.c": '/* Events. */\n#include <cuda.h>\n#include "core/nccl/call.h"\n',
    "store/board/local.c": '/* Board. */\n#include <sys/socket.h>\n#include "core/view/view.h"\n',
    "store/board/local.h": "/* Board. */\n",
    "shim/entry.c": '/* Wrappers. */\n#include <dlfcn.h>\n#include <nccl.h>\n#include "core/nccl/call.h"\n',
    "shim/lifecycle.c": '/* Root. */\n#include "core/nccl/call.h"\n#include "store/board/local.h"\n',
    "tools/cmd/exporter.c": "/* HTTP. */\n#include <dlfcn.h>\n",
    "tools/render/curses.c": "/* Curses. */\n#include <dlfcn.h>\n",
    "tools/cmd/main.c": '/* Command. */\n#include "core/view/view.h"\n#include "store/board/local.h"\n',
}

# One include that breaks the rule: file, the line, what the complaint must say.
BROKEN = [
    ("core/device/gpu.c", '#include "store/board/local.h"', "core must not include store/board/local.h"),
    ("core/device/gpu.c", '#include "shim/entry.h"', "core must not include shim/entry.h"),
    ("core/device/gpu.c", '#include "tools/base/command.h"', "core must not include tools/base/command.h"),
    ("core/device/gpu.c", "#include <dlfcn.h>", "core must not include <dlfcn.h>"),
    ("core/device/gpu.c", "  #  include <dlfcn.h>", "core must not include <dlfcn.h>"),
    ("core/device/gpu.c", "#include \\\n<dlfcn.h>", "core must not include <dlfcn.h>"),
    ("core/device/gpu.c", "#/* hidden */include <dlfcn.h>", "core must not include <dlfcn.h>"),
    ("core/device/gpu.c", "#include <sys/socket.h>", "core must not include <sys/socket.h>"),
    ("core/device/gpu.c", "#include <netinet/in.h>", "core must not include <netinet/in.h>"),
    ("core/device/gpu.c", "#include <hiredis/hiredis.h>", "core must not include <hiredis/hiredis.h>"),
    ("core/device/gpu.c", "#include <nccl.h>", "core must not include <nccl.h>"),
    ("core/device/gpu.c", "#include <cuda_runtime_api.h>", "core must not include <cuda_runtime_api.h>"),
    ("core/device/gpu.c", '#include "call.h"', "from the root"),
    ("core/device/gpu.c", '#include "../store/local.h"', "from the root"),
    ("core/device/gpu.c", '#include "core/../store/local.h"', "without .."),
    ("core/device/gpu.c", "#include <store/board/local.h>", "core must not include store/board/local.h"),
    ("core/device/gpu.c", "#include HEADER", "only the preprocessor knows"),
    ("core/device/gpu.c", '#include "tests/unit/core/helpers/core.h"',
     "core must not include tests/unit/core/helpers/core.h"),
    ("core/deep/new.h", '#include "store/board/local.h"', "core must not include store/board/local.h"),
    ("core/table.def", '#include "store/board/local.h"', "core must not include store/board/local.h"),
    ("store/board/local.c", "#include <nccl.h>", "store must not include nccl.h"),
    ("store/board/local.c", "#include <dlfcn.h>", "store must not include <dlfcn.h>"),
    ("store/board/local.c", '#include "core/nccl/call.h"', "store must not include core/nccl/call.h"),
    ("store/board/local.c", '#include "core/nccl/nccl.h"', "store must not include core/nccl/nccl.h"),
    ("store/board/local.c", '#include "shim/shim.h"', "store must not include shim/shim.h"),
    ("store/board/local.c", '#include "tools/base/usage.h"', "store must not include tools/base/usage.h"),
    ("shim/entry.c", '#include "store/board/local.h"', "shim must not include store/board/local.h"),
    ("shim/entry.c", '#include "tools/base/usage.h"', "shim must not include tools/base/usage.h"),
    ("shim/entry.c", "#include <hiredis/hiredis.h>", "shim must not include <hiredis/hiredis.h>"),
    ("tools/cmd/main.c", '#include "shim/shim.h"', "tools must not include shim/shim.h"),
    ("tools/cmd/main.c", '#include "core/nccl/call.h"', "tools must not include core/nccl/call.h -> core/nccl/nccl.h"),
    ("tools/cmd/main.c", "#include <dlfcn.h>", "tools must not include <dlfcn.h>"),
    ("tools/cmd/exporter.c", "#include <link.h>", "tools must not include <link.h>"),
    ("tools/cmd/main.c", "#include <cuda.h>", "tools must not include cuda.h"),
    # Rooms.
    ("core/util/text.c", '#include "core/view/view.h"', "core/view/view.h: room util may see only itself"),
    ("core/view/view.h", '#include "core/device/gpu.h"', "core/device/gpu.h: room view may see only util, nccl"),
    ("core/device/gpu.c", '#include "core/watchdog/watchdog.h"', "room device may see only"),
    ("core/device/gpu.c", "#include <core/incident/alarms.h>", "room device may see only"),
    ("store/kv/kv.c", '#include "store/board/local.h"', "store/board/local.h: room kv may see only itself"),
    ("store/board/local.h", '#include "core/runtime/runtime.h"', "store sees the offline half of core alone"),
    ("tools/jobs/jobs.c", '#include "tools/judge/postmortem.h"', "room jobs may see only base, inspect"),
    ("tools/cmd/main.c", '#include "core/policy/policy.h"', "tools sees the offline half of core alone"),
    ("core/loose.c", "", "core/loose.c: lies in no room of core"),
    ("core/new/file.h", "", "core/new/file.h: lies in no room of core"),
]

# One flaw of style: file, its text, what the complaint must say.
UGLY = [
    ("core/a.c", "int a;\n", "opens with a comment"),
    ("core/a.def", "A(1)\n", "opens with a comment"),
    ("tools/a", "#!/bin/bash\nset -e\n", "opens with a comment"),
    ("tools/a.py", "import os\n", "opens with a comment"),
    ("meson.build", "project('a')\n", "opens with a comment"),
    ("core/a.c", "/* A. */\nint a; // no\n", "core/a.c:2: write /* */"),
    ("core/a.c", "/* A. */\n\tint a;\n", "core/a.c:2: a tab"),
    ("tools/a", "#!/usr/bin/make -f\n# A.\na:\n\tb\n\tc\td\n", "tools/a:5: a tab"),
    ("core/a.c", "/* A. */\nint a; \n", "core/a.c:2: blanks"),
    ("core/a.c", "/* A. */\n/* " + "x" * 120 + " */\n", "core/a.c:2: 126 columns"),
    ("tools/a.py", "# A.\nA = 1\nB = 2\nA = 3\n", "tools/a.py:4: A was given before"),
    ("tools/a", "#!/usr/bin/env python3\n# A.\ndef a():\n    pass\n\n\ndef a():\n    pass\n", "tools/a:7: a was given"),
]


class Tree:
    """A folder with the given files, gone afterwards."""

    def __init__(self, files):
        self.files = files

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        for name, text in self.files.items():
            path = os.path.join(self.folder.name, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as file:
                file.write(text)
        return self.folder.name

    def __exit__(self, *unused):
        self.folder.cleanup()


def run(check, root, *arguments):
    done = subprocess.run([sys.executable, os.path.join(HERE, check), root, *arguments], capture_output=True, text=True,
                          timeout=60)
    return done.returncode, done.stderr


class Includes(unittest.TestCase):
    def test_the_repository_keeps_to_the_dependency_rule(self):
        self.assertEqual(run("includes", ROOT), (0, ""))

    def test_a_tree_that_keeps_to_the_rule_passes(self):
        with Tree(GOOD) as root:
            self.assertEqual(run("includes", root), (0, ""))

    def test_what_is_only_written_in_a_comment_or_a_string_counts_for_nothing(self):
        text = '/*\n#include <dlfcn.h>\n*/\n// #include <dlfcn.h>\nconst char *a = "/*";\n#include <errno.h>\n'
        with Tree({**GOOD, "core/device/gpu.c": text}) as root:
            self.assertEqual(run("includes", root), (0, ""))

    def test_a_string_that_looks_like_a_comment_hides_nothing(self):
        text = 'const char *a = "/*";\n#include <dlfcn.h>\nconst char *b = "*/";\n'
        with Tree({**GOOD, "core/device/gpu.c": text}) as root:
            self.assertEqual(run("includes", root)[0], 1)

    def test_each_include_that_breaks_the_rule_is_named(self):
        for name, line, complaint in BROKEN:
            with self.subTest(file=name, line=line):
                with Tree({**GOOD, name: GOOD.get(name, "/* New. */\n") + line + "\n"}) as root:
                    status, text = run("includes", root)
                    self.assertEqual(status, 1)
                    self.assertIn(complaint, text)
                    self.assertIn(f"{name}:", text)

    def test_each_room_sees_only_rooms_above_it_in_the_list(self):
        for floor, known in rooms.ROOMS.items():
            order = list(known)
            for room, sees in known.items():
                with self.subTest(floor=floor, room=room):
                    self.assertLessEqual(set(sees), set(order[:order.index(room)]))

    def test_circles_are_found_inside_a_room_or_the_shim_alone(self):
        a, b, c, d = (f"core/util/{name}.c" for name in "abcd")
        other = "core/nccl/op.c"
        self.assertEqual(rooms.circles({(a, b), (b, c), (d, a), (other, a), (a, other), (a, a)}), [])
        self.assertEqual(rooms.circles({(a, b), (b, c), (c, a), (d, a)}), [{a, b, c}])
        self.assertCountEqual(rooms.circles({(a, b), (b, a), (b, c), (c, d), (d, c)}), [{a, b}, {c, d}])
        e, f = "shim/e.c", "shim/f.c"
        self.assertEqual(rooms.circles({(e, f), (f, e), (e, a), (a, e)}), [{e, f}])

    def test_a_tree_without_code_is_an_error(self):
        with Tree({"README.md": ""}) as root:
            self.assertNotEqual(run("includes", root)[0], 0)

    def test_the_stamp_is_written_only_when_the_rule_holds_and_depends_on_every_file_and_folder(self):
        with Tree(GOOD) as root, tempfile.TemporaryDirectory() as out:
            stamp, depfile = os.path.join(out, "stamp"), os.path.join(out, "depfile")
            self.assertEqual(run("includes", root, "--stamp", stamp, "--depfile", depfile)[0], 0)
            with open(depfile) as file:
                dependencies = file.read()
            for name in [*GOOD, "core", "store", "shim", "tools"]:
                self.assertIn(os.path.join(root, name), dependencies)
            os.remove(stamp)
            with open(os.path.join(root, "core/device/gpu.c"), "a") as file:
                file.write('#include "store/board/local.h"\n')
            self.assertEqual(run("includes", root, "--stamp", stamp, "--depfile", depfile)[0], 1)
            self.assertFalse(os.path.exists(stamp))


class Style(unittest.TestCase):
    def test_the_repository_keeps_to_the_style(self):
        status, text = run("style", ROOT)
        self.assertEqual((status, text), (0, ""))

    def test_each_flaw_is_named(self):
        for name, text, complaint in UGLY:
            with self.subTest(file=name, complaint=complaint):
                with Tree({name: text}) as root:
                    status, told = run("style", root)
                    self.assertEqual(status, 1)
                    self.assertIn(complaint, told)

    def test_slashes_in_strings_and_comments_are_no_comments(self):
        with Tree({"core/a.c": '/* http://a // b */\nconst char *a = "redis://host", b = \'"\'; /* // */\n'}) as root:
            self.assertEqual(run("style", root), (0, ""))


class Links(unittest.TestCase):
    PAGES = {"README.md": "# A\n",
             "docs/a.md": "# One `word`, two!\n\n## Same\n\n## Same\n\n```\n# no heading\n```\n"}

    def broken(self, link, page="docs/b.md"):
        with Tree({**self.PAGES, page: f"# Here\n\n{link}\n"}) as root:
            return documents.broken_links(page, f"# Here\n\n{link}\n", root)

    def test_links_to_files_and_headings_that_are_there_pass(self):
        for link in ("[x](a.md)", "[x](../README.md#a)", "[x](a.md#one-word-two)", "[x](a.md#same-1)", "[x](#here)",
                     "[x](https://example.org/none)", "`[x](none.md)`", "```\n[x](none.md)\n```"):
            with self.subTest(link=link):
                self.assertEqual(self.broken(link), [])

    def test_each_broken_link_is_named(self):
        for target in ("none.md", "docs/a.md", "../../README.md", "a.md#two", "a.md#no-heading", "a.md#same-2",
                       "#there"):
            with self.subTest(target=target):
                broken = self.broken(f"[x]({target})")
                self.assertEqual([line.partition(":")[0] for line in broken], [target])


if __name__ == "__main__":
    unittest.main(verbosity=2)
