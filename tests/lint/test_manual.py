#!/usr/bin/env python3
"""Manual pages and completions: they have each command, option and variable, and can be read by their readers.

    test_manual.py BUILD

A reader that this machine lacks (mandoc, zsh, fish) is left out; bash is always there.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
import documents

BUILD = None
# Where each kind of file must lie below the prefix, as a pattern of meson's plan.
PLACES = {r"ncclguard(-\w+)?\.1": "{mandir}/man1", r"ncclguard-environment\.7": "{mandir}/man7",
          r"ncclguard": "{datadir}/bash-completion/completions", r"_ncclguard": "{datadir}/zsh/site-functions",
          r"ncclguard\.fish": "{datadir}/fish/vendor_completions.d"}


def made(name):
    return os.path.join(BUILD, "tools/manual", name)


def read(name):
    with open(made(name), encoding="utf-8") as file:
        return file.read()


def plain(name):
    """A page without its roff."""
    return re.sub(r"\\f[BIR]", "", read(name)).replace("\\-", "-").replace("\\&", "")


def options(command):
    return re.findall(r"(?m)^  (--[a-z-]+)(?: ([A-Z]+))?", documents.command(BUILD, command, "--help")[1])


def manual_pages():
    return sorted(name for name in os.listdir(made(".")) if re.search(r"\.[17]$", name))


def bash(*words):
    """What bash offers for the last of these words."""
    script = ('source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _ncclguard; '
              'printf "%s\\n" "${COMPREPLY[@]}"')
    done = subprocess.run(["bash", "-c", script, "bash", made("ncclguard"), *words], capture_output=True, text=True,
                          cwd=made("."), check=True, timeout=60)
    return done.stdout.split()


class Manual(unittest.TestCase):
    def test_each_command_has_a_page_with_each_of_its_options(self):
        self.assertEqual(set(manual_pages()), {"ncclguard.1", "ncclguard-environment.7"} |
                         {f"ncclguard-{command}.1" for command in documents.subcommands(BUILD)})
        for command in documents.subcommands(BUILD):
            text = plain(f"ncclguard-{command}.1")
            for option, argument in options(command):
                with self.subTest(command=command, option=option):
                    self.assertIn(f".TP\n{option} {argument}".rstrip() + "\n", text)
            self.assertIn(f"ncclguard-{command}(1)", plain("ncclguard.1"))

    def test_a_page_has_the_words_of_the_help(self):
        for command in documents.subcommands(BUILD):
            text = " ".join(plain(f"ncclguard-{command}.1").replace("...", "…").split())
            for word in documents.command(BUILD, command, "--help")[1].split()[3:]:
                with self.subTest(command=command, word=word):
                    self.assertIn(word.replace("`", ""), text)

    def test_each_variable_has_its_line(self):
        text = plain("ncclguard-environment.7")
        for name in documents.options_of(documents.option_table(BUILD)):
            with self.subTest(variable=name):
                self.assertIn(f".TP\n{name}\n", text)

    def test_readers_of_pages_find_nothing_to_complain_of(self):
        # No date: the same source gives the same page on every day.
        for reader in (["man", "--warnings", "-l"], ["mandoc", "-Tlint", "-Wwarning"]):
            if not shutil.which(reader[0]) or (reader[0] == "man" and not shutil.which("groff")):
                continue
            for name in manual_pages():
                with self.subTest(reader=reader[0], page=name):
                    done = subprocess.run([*reader, made(name)], capture_output=True, text=True, timeout=60,
                                          env={**os.environ, "LC_ALL": "C.UTF-8", "MANPAGER": "cat"})
                    told = done.stderr + (done.stdout if reader[0] == "mandoc" else "")
                    self.assertEqual([line for line in told.splitlines() if "missing date" not in line], [])

    def test_all_of_it_is_installed_where_its_readers_look(self):
        with open(os.path.join(BUILD, "meson-info/intro-install_plan.json")) as file:
            plan = {os.path.realpath(path): entry["destination"] for path, entry in json.load(file)["targets"].items()}
        for name in os.listdir(made(".")):
            place, = [place for pattern, place in PLACES.items() if re.fullmatch(pattern, name)] or [None]
            with self.subTest(file=name):
                self.assertIsNotNone(place)
                self.assertEqual(plan[os.path.realpath(made(name))], f"{place}/{name}")


class Completions(unittest.TestCase):
    def test_bash_offers_each_command_and_each_option(self):
        self.assertEqual(set(bash("ncclguard", "")), {*documents.subcommands(BUILD), "--version", "--help"})
        for command in documents.subcommands(BUILD):
            with self.subTest(command=command):
                self.assertEqual(bash("ncclguard", command, "--"), [option for option, _ in options(command)])

    def test_bash_offers_the_values_of_an_option(self):
        policies = ["log", "teardown", "abort", "kill"]
        self.assertEqual(bash("ncclguard", "run", "--on-timeout", ""), policies)
        self.assertEqual(bash("ncclguard", "run", "--on-timeout", "="), policies)
        self.assertEqual(bash("ncclguard", "run", "--on-timeout", "=", "te"), ["teardown"])
        self.assertEqual(bash("ncclguard", "run", "--timeout", ""), [])
        self.assertIn("ncclguard.fish", bash("ncclguard", "analyze", "ncclguard.f"))

    def test_bash_leaves_the_arguments_of_the_program_to_the_program(self):
        for before in (["--timeout", "5s"], ["--timeout", "=", "5s"], ["--timeout", "5s", "--"]):
            with self.subTest(before=before):
                self.assertEqual(bash("ncclguard", "run", *before, "ls", "--on"), [])
                self.assertEqual(bash("ncclguard", "run", *before, "--on"),
                                 [] if "--" in before else ["--on-timeout"])

    def test_zsh_and_fish_know_each_command_and_each_option(self):
        zsh, fish = read("_ncclguard"), read("ncclguard.fish")
        for command in documents.subcommands(BUILD):
            case = re.search(rf"(?ms)^        {command}\) _arguments(.*?);;$", zsh)
            with self.subTest(command=command):
                self.assertRegex(fish, rf"(?m)^complete .* -a {command} -d '")
                self.assertIsNotNone(case)
            for option, _ in options(command):
                with self.subTest(command=command, option=option):
                    self.assertIn(f"'{option}[", case[1])
                    self.assertIn(f"__fish_seen_subcommand_from {command}' -l {option[2:]} ", fish)

    def test_zsh_and_fish_can_read_theirs(self):
        for shell, name in (("bash", "ncclguard"), ("zsh", "_ncclguard"), ("fish", "ncclguard.fish")):
            if shutil.which(shell):
                with self.subTest(shell=shell):
                    done = subprocess.run([shell, "-n", made(name)], capture_output=True, text=True, timeout=60)
                    self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: test_manual.py BUILD")
    BUILD = os.path.abspath(sys.argv.pop())
    unittest.main(verbosity=2)
