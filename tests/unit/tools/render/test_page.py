#!/usr/bin/env python3
"""The page of `ncclguard analyze --html`, opened in a browser: it draws itself, and no text of the evidence is markup.

    test_page.py PAGE_JOB COMMAND

PAGE_JOB makes the page of a job that never ran (page_job.c); COMMAND is ncclguard. Without a browser (chromium) only
what needs none is tested. With NG_TEST_KEEP=FOLDER in the environment the pages and pictures stay there, to be looked
at.
"""
import contextlib
import html
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib

HERE = os.path.dirname(os.path.realpath(__file__))
PAGE_JOB = COMMAND = None
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

# What is written on the page of each job: its kind, whether somebody is to blame, and something of what it is in.
TROUBLES = {
    "healthy": ("Healthy", False, "nothing is stuck"),
    "missing": ("Missing rank", True, "AllReduce #12"),
    "dead": ("Dead rank", True, "AllReduce #12"),
    "stall": ("GPU stall", False, "AllReduce #12"),
    "mismatch": ("Mismatch", True, "AllReduce #12"),
    "order": ("Deadlock by order", True, "The cycle"),
}


@contextlib.contextmanager
def folder():
    kept = os.environ.get("NG_TEST_KEEP")
    if kept:
        yield kept
    else:
        with tempfile.TemporaryDirectory() as path:
            yield path


def make_page(path, ranks, trouble):
    name, stacks = os.path.join(path, f"{trouble}-{ranks}.html"), os.path.join(path, f"stacks-{ranks}")
    os.makedirs(stacks, exist_ok=True)
    subprocess.run([PAGE_JOB, str(ranks), trouble, name, stacks], check=True, timeout=120)
    return name


def browse(page, *options):
    """What the browser prints, and what it complains of."""
    with tempfile.TemporaryDirectory() as profile:
        done = subprocess.run(
            [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
             "--force-color-profile=srgb", "--enable-logging=stderr", "--virtual-time-budget=5000",
             f"--user-data-dir={profile}", *options, f"file://{page}"],
            capture_output=True, timeout=240, env={**os.environ, "HOME": profile, "LD_PRELOAD": ""})
    told = done.stderr.decode(errors="replace")
    if done.returncode:
        raise AssertionError(f"the browser ended with {done.returncode}: {told[-2000:]}")
    return done.stdout.decode(), [line for line in told.split("\n") if "CONSOLE" in line]


# What a reader does: points at a wait, opens the band of the many, zooms, and switches to the dark.
HANDS = """<script>
  const chart = document.getElementById("chart"), box = chart.getBoundingClientRect(), told = document.body.dataset;
  const point = (kind, x, y) =>
    chart.dispatchEvent(new PointerEvent(kind, {clientX: box.left + x, clientY: box.top + y}));
  point("pointermove", box.width - 60, 80);
  told.tip = document.getElementById("tip").textContent;
  told.closed = document.getElementById("space").style.height;
  point("pointerdown", 20, 80);
  told.open = document.getElementById("space").style.height;
  for (const key of ["+", "-", "+", "ArrowLeft", "ArrowRight", "0"])
    document.getElementById("timeline").dispatchEvent(new KeyboardEvent("keydown", {key}));
  for (const button of document.querySelectorAll("#tools button, #theme")) button.click();
</script>"""


def text_of(dom):
    """What a reader sees, roughly: the page without its data, scripts, styles and tags."""
    dom = re.sub(r"<(script|style)\b.*?</\1>", " ", dom, flags=re.S)
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", " ", dom)))


def rows_of(dom, table):
    found = re.search(rf'<table id="{table}">(.*?)</table>', dom, flags=re.S)
    return re.findall(r"<tr\b.*?</tr>", found[1], flags=re.S)[1:]


def colours_of(path):
    """How many pixels of a picture have each colour; a PNG of 8 bits a channel."""
    with open(path, "rb") as file:
        data = file.read()
    at, packed, counts = 8, b"", {}
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + length]
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack(">IIBB", body[:10])
            assert depth == 8 and colour in (2, 6), "a picture of another kind"
            channels = 3 if colour == 2 else 4
        elif kind == b"IDAT":
            packed += body
        at += 12 + length
    raw, stride, above = zlib.decompress(packed), width * channels, bytearray(width * channels)
    for y in range(height):
        start = y * (stride + 1)
        line = unfilter(raw[start], bytearray(raw[start + 1:start + 1 + stride]), above, channels)
        for x in range(0, stride, channels):
            pixel = bytes(line[x:x + 3])
            counts[pixel] = counts.get(pixel, 0) + 1
        above = line
    return counts


def unfilter(kind, line, above, channels):
    for i in range(len(line) if kind else 0):
        left = line[i - channels] if i >= channels else 0
        corner = above[i - channels] if i >= channels else 0
        guess = left + above[i] - corner
        nearest = min((left, above[i], corner), key=lambda value: abs(guess - value))
        line[i] = line[i] + (0, left, above[i], (left + above[i]) // 2, nearest)[kind] & 255
    return line


class Command(unittest.TestCase):
    """Page and timeline as the command writes them, from dumps and the stacks beside them."""

    def analyze(self, *arguments):
        return subprocess.run([COMMAND, "analyze", *arguments], capture_output=True, text=True, timeout=120)

    def test_it_writes_the_verdict_the_page_and_the_timeline(self):
        with folder() as path:
            page, trace = os.path.join(path, "from-dumps.html"), os.path.join(path, "from-dumps.json")
            make_page(path, 8, "missing")
            done = self.analyze(os.path.join(path, "stacks-8"), "--html", page, "--trace", trace)
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertIn("missing_rank", done.stdout)
            with open(page, encoding="utf-8") as file:
                text = file.read()
            self.assertTrue('"kind": "missing_rank"' in text)
            self.assertTrue("shard-07.tar" in text, "no stacks on the page")
            check = os.path.join(HERE, "..", "..", "core", "report", "check_trace.py")
            checked = subprocess.run([sys.executable, check, trace], capture_output=True, text=True, timeout=120)
            self.assertEqual(checked.returncode, 0, checked.stderr)
            self.assertIn("8 processes", checked.stdout)
            self.assertIn("7 arrows", checked.stdout)

    def test_a_file_that_cannot_be_written_is_told_and_fails_after_the_verdict(self):
        with folder() as path:
            make_page(path, 8, "missing")
            for option in ("--html", "--trace"):
                done = self.analyze(os.path.join(path, "stacks-8"), option, os.path.join(path, "nowhere", "x"))
                self.assertEqual(done.returncode, 1)
                self.assertIn("missing_rank", done.stdout)
                self.assertIn("nowhere/x: No such file or directory", done.stderr)


class Page(unittest.TestCase):
    """What holds of the file, whoever opens it."""

    def test_it_loads_nothing_and_runs_no_script_but_its_own(self):
        with folder() as path, open(make_page(path, 8, "missing"), encoding="utf-8") as file:
            page = file.read()
        self.assertIn("default-src 'none'", page)
        self.assertRegex(page, r"script-src 'sha256-[A-Za-z0-9+/]{43}='")
        self.assertEqual(page.count("<script"), 2)
        self.assertNotRegex(page.split('id="data"')[0], r"(src|href)=|url\(|@import|https?:")

    def test_what_programs_name_themselves_ends_neither_the_data_nor_a_text(self):
        with folder() as path, open(make_page(path, 8, "missing"), encoding="utf-8") as file:
            data = file.read().split('id="data">')[1].split("</script>")[0]
        self.assertIn("\\u003c/script\\u003e", data)
        self.assertNotIn("<", data)

    def test_it_grows_with_the_job_but_stays_small_enough_for_a_browser(self):
        with folder() as path:
            self.assertLess(os.path.getsize(make_page(path, 4096, "missing")), 16 << 20)


class Opened(unittest.TestCase):
    """What a browser makes of it. Each page is opened once."""

    opened = {}

    def open(self, ranks, trouble, theme="light"):
        if (ranks, trouble, theme) not in self.opened:
            with folder() as path:
                picture = os.path.join(path, f"{trouble}-{ranks}-{theme}.png")
                dom, complaints = browse(make_page(path, ranks, trouble) + "#" + theme, "--dump-dom",
                                         f"--screenshot={picture}", "--window-size=1200,1400",
                                         "--force-device-scale-factor=0.5")
                self.assertEqual(complaints, [])
                self.assertTrue(re.search(r'<html\b[^>]* data-ready="yes"', dom), "the script did not come to its end")
                colours = colours_of(picture) if trouble == "missing" else None
            self.opened[ranks, trouble, theme] = dom, colours
        return self.opened[ranks, trouble, theme]

    def shows(self, dom, *words):
        text = text_of(dom)
        for word in words:
            self.assertTrue(word in text, f"{word!r} is not on the page")

    def check(self, dom, ranks, trouble):
        title, with_culprit, words = TROUBLES[trouble]
        self.shows(dom, title, words, "job llama-70b & <friends>")
        self.assertTrue(f"<h1>{title}</h1>" in dom)
        self.assertTrue(re.search(r'id="timeline"[^>]* data-drawn="[1-9]', dom), "no timeline")
        self.assertEqual(any("culprit-row" in row for row in rows_of(dom, "bands")), with_culprit)
        if with_culprit:
            self.shows(dom, f"rank {ranks * 5 // 8 + 1}", "What to look at next")

    def test_every_kind_of_verdict_is_drawn(self):
        for trouble in TROUBLES:
            with self.subTest(trouble=trouble):
                self.check(self.open(8, trouble)[0], 8, trouble)

    def test_a_thousand_ranks_are_a_few_rows(self):
        dom = self.open(1024, "missing")[0]
        self.check(dom, 1024, "missing")
        rows = [text_of(row) for row in rows_of(dom, "bands")]
        self.assertEqual(len(rows), 2)
        self.assertIn(" 641 ", rows[0])
        self.assertIn("0–640, 642–1023", rows[1])
        self.shows(dom, "1,023 ranks")
        self.assertLess(dom.count("<tr"), 400)

    def test_names_that_look_like_markup_are_text(self):
        dom = self.open(8, "missing")[0]
        self.shows(dom, 'world "<img src=x onerror=alert(1)>"', "<loader>.py", "cut off <after>")
        shown = re.sub(r"<(script|style)\b.*?</\1>", " ", dom, flags=re.S)
        self.assertEqual(re.findall(r"<img|<friends|<loader|<after", shown), [])

    def test_a_rank_that_comes_late_is_told_with_figures(self):
        dom = self.open(64, "late")[0]
        self.shows(dom, "Straggler", "Ranks that come late", "20 of 20", "Each time")
        rows = [text_of(row) for row in rows_of(dom, "stragglers")]
        self.assertEqual(len(rows), 1)
        self.assertIn("41", rows[0])
        self.assertNotIn("Stuck for", text_of(dom))
        self.assertNotIn("Ranks that come late", text_of(re.sub(r"<section[^>]*hidden.*?</section>", "",
                                                                self.open(8, "missing")[0], flags=re.S)))

    def test_stacks_that_are_the_same_are_told_once_the_culprits_first(self):
        text = text_of(self.open(1024, "missing")[0])
        told = text[text.index("Host stacks"):]
        self.assertLess(told.index("rank 641"), told.index("ranks 0–640, 642–1023"))
        self.assertEqual(told.count("cuStreamSynchronize"), 1)

    def test_pointing_opening_and_zooming_work(self):
        with folder() as path:
            name = make_page(path, 64, "missing")
            with open(name, encoding="utf-8") as file:
                page = re.sub(r"<meta http-equiv=[^>]*>", "", file.read()).replace("</body>", HANDS + "</body>")
            with open(name, "w", encoding="utf-8") as file:
                file.write(page)
            dom, complaints = browse(name, "--dump-dom", "--window-size=1200,1400")
        self.assertEqual(complaints, [])
        told = re.search(r"<body\b[^>]*>", dom)[0]
        for words in ("AllReduce #12", "stateon the device, not finished", "so far31.4 s", "1 element, float32, sum"):
            self.assertTrue(words in html.unescape(told), f"{words!r} is not in {told}")
        closed, opened = (int(re.search(rf'data-{name}="(\d+)', told)[1]) for name in ("closed", "open"))
        self.assertGreater(opened, closed + 500)
        self.assertTrue('data-theme="dark"' in dom)

    def test_the_timeline_shows_calls_and_waits_in_light_and_dark(self):
        # The colours of collectives that finished, and of what is waited in (tools/render/page/page.css).
        for theme, done, waits in (("light", ["3f74d8", "2a9d8f", "8a63d2"], "eda52f"),
                                   ("dark", ["5b8def", "37b3a3", "a07fe6"], "e09a2b")):
            for ranks in (8, 1024):
                with self.subTest(theme=theme, ranks=ranks):
                    colours = self.open(ranks, "missing", theme)[1]
                    self.assertGreater(sum(colours.get(bytes.fromhex(colour), 0) for colour in done), 50)
                    self.assertGreater(colours.get(bytes.fromhex(waits), 0), 500)


if __name__ == "__main__":
    PAGE_JOB, COMMAND = sys.argv.pop(1), sys.argv.pop(1)
    if not BROWSER:
        print("no browser (chromium) on this machine: pages are made, but not opened")
        del Opened
    unittest.main(verbosity=2)
