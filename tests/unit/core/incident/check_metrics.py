#!/usr/bin/env python3
"""Is a text what Prometheus' text format 0.0.4 wants, as far as the guard uses it?

    check_metrics.py FILE…

Every family has HELP and TYPE before its samples, which stand together and have its name; names, labels and values are
as the format has them; no sample comes twice; histograms are whole and grow; the last line is # EOF, a comment. Where
the package prometheus_client is at hand, its parser must find the same types. Exit status 0: nothing to say.
"""
import math
import re
import sys

SUFFIXES = {"gauge": [""], "counter": [""], "histogram": ["_bucket", "_count", "_sum"]}
NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*$")
SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)\{((?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\[\\"n])*",?)*)\} (\S+)$')
LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\\n]|\\[\\"n])*)"')
VALUE = re.compile(r"\d+(\.\d+)?$")
UNESCAPED = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


class Wrong(Exception):
    pass


def need(holds, what):
    if not holds:
        raise Wrong(what)


def unescape(text):
    return re.sub(r'\\[\\"n]', lambda found: UNESCAPED[found[0]], text)


class Family:
    def __init__(self, name, text):
        self.name, self.kind, self.help, self.samples = name, None, text, []

    def be_of_type(self, kind):
        need(not self.samples and not self.kind, f"TYPE of {self.name} twice, or after its samples")
        need(kind in SUFFIXES, f"type {kind}")
        need(self.name.endswith("_total") == (kind == "counter"), f"{self.name} is a {kind}")
        self.kind = kind

    def add(self, line):
        found = SAMPLE.match(line)
        need(found and self.kind, f"no sample, or of no type: {line}")
        need(any(found[1] == self.name + suffix for suffix in SUFFIXES[self.kind]), f"{line} in {self.name}")
        pairs = LABEL.findall(found[2])
        labels = {name: unescape(value) for name, value in pairs}
        need(len(labels) == len(pairs), f"a label twice: {line}")
        need(VALUE.match(found[3]), f"value: {line}")
        self.samples.append((found[1], labels, float(found[3])))

    def check(self):
        need(self.help, f"{self.name} has no HELP")
        seen = [(name, tuple(sorted(labels.items()))) for name, labels, _ in self.samples]
        need(len(seen) == len(set(seen)), f"a sample of {self.name} comes twice")
        if self.kind == "histogram":
            self.check_histogram()

    def check_histogram(self):
        groups = {}
        for name, labels, value in self.samples:
            key = tuple(sorted((label, text) for label, text in labels.items() if label != "le"))
            groups.setdefault(key, {}).setdefault(name[len(self.name):], []).append((labels.get("le"), value))
        for key, parts in groups.items():
            need(set(parts) == set(SUFFIXES["histogram"]), f"{key} is not whole")
            bounds = [math.inf if bound == "+Inf" else float(bound) for bound, _ in parts["_bucket"]]
            counts = [count for _, count in parts["_bucket"]]
            need(bounds == sorted(set(bounds)) and bounds[-1] == math.inf, f"buckets of {key}")
            need(counts == sorted(counts) and counts[-1] == parts["_count"][0][1], f"counts of {key}")


def parse(text):
    """{family: Family} of a text that is right, else Wrong."""
    need(text.endswith("# EOF\n") and text.count("# EOF") == 1, "no # EOF at the end, or one before")
    families, current = {}, None
    for line in text.split("\n")[:-2]:
        if line.startswith("# "):
            keyword, name, said = line[2:].split(" ", 2)
            need(NAME.match(name), f"name {name}")
            if keyword == "HELP":
                need(name not in families, f"{name} comes twice")
                current = families[name] = Family(name, said)
            else:
                need(keyword == "TYPE" and current and current.name == name, f"{keyword} of {name} is not in its place")
                current.be_of_type(said)
        else:
            need(current, f"before any HELP: {line}")
            current.add(line)
    for family in families.values():
        family.check()
    return families


def ask_prometheus(text, families):
    try:
        from prometheus_client import parser
    except ImportError:
        return
    found = {family.name + ("_total" if family.type == "counter" else ""): family.type
             for family in parser.text_string_to_metric_families(text)}
    need(found == {name: family.kind for name, family in families.items()}, f"prometheus_client finds {found}")


def read(path):
    with open(path, encoding="utf-8", newline="") as file:
        text = file.read()
    families = parse(text)
    ask_prometheus(text, families)
    return families


def main():
    for path in sys.argv[1:]:
        try:
            read(path)
        except (Wrong, ValueError) as wrong:
            sys.exit(f"{path}: {wrong}")


if __name__ == "__main__":
    main()
