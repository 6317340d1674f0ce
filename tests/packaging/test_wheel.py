#!/usr/bin/env python3
"""The wheel: made twice with the same bytes, for this machine and for aarch64, and its files link to an old glibc.

    test_wheel.py BUILD FOLDER [TEST…]

Makes it from the last commit, not from the files as they are. FOLDER keeps what is made.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
LINK_OLD = os.path.join(ROOT, "packaging/glibc/link-old")
BUILD, FOLDER = sys.argv[1:3]

# Functions of every age, among them all that newer.c and start.c have.
OLD_AND_NEW = r"""
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
/* As the headers of 2.38 have them. */
long __isoc23_strtol(const char *, char **, int);
unsigned long __isoc23_strtoul(const char *, char **, int);
long long __isoc23_strtoll(const char *, char **, int);
unsigned long long __isoc23_strtoull(const char *, char **, int);
int __isoc23_sscanf(const char *, const char *, ...);
static int constructed;
__attribute__((constructor)) static void construct(int argc, char **argv) { constructed = argc == 1 && argv[0]; }
static void *in_thread(void *unused) { return unused; }
int main(void)
{
    struct stat by_path, by_descriptor, link, in_folder;
    pthread_t thread;
    if (pthread_create(&thread, NULL, in_thread, NULL) != 0 || pthread_join(thread, NULL) != 0)
        return 1;
    if (stat("link", &by_path) != 0 || lstat("link", &link) != 0 || fstatat(AT_FDCWD, "link", &in_folder, 0) != 0)
        return 2;
    if (fstat(open("link", O_RDONLY), &by_descriptor) != 0 || stat("nowhere", &by_path) != -1)
        return 3;
    int scanned = 0;
    if (__isoc23_strtol("-7", NULL, 10) != -7 || __isoc23_strtoul("7", NULL, 10) != 7 ||
        __isoc23_strtoll("-7", NULL, 10) != -7 || __isoc23_strtoull("7", NULL, 10) != 7 ||
        __isoc23_sscanf("x7", "x%d", &scanned) != 1 || scanned != 7)
        return 4;
    printf("%d %d %d %d %d %d\n", constructed, S_ISLNK(link.st_mode), (int)in_folder.st_size,
           (int)by_descriptor.st_size, gettid() == getpid(), dlsym(RTLD_DEFAULT, "puts") != NULL);
    return 0;
}
"""
TOO_NEW = "#include <stdlib.h>\nint main(void) { return (int)arc4random(); }\n"  # 2.36


def run(*command, **options):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace", **options)
    return done.returncode, done.stdout


class LinkOld(unittest.TestCase):
    def link(self, folder, source):
        path = os.path.join(folder, "program.c")
        with open(path, "w", encoding="utf-8") as file:
            file.write(source)
        status, words = run(LINK_OLD, "--glibc", "2.28", "--into", os.path.join(folder, "glibc"))
        self.assertEqual(status, 0, words)
        return run("gcc", "-D_GNU_SOURCE", "-o", path[:-2], path, *words.split())

    def test_a_program_takes_old_versions_alone_and_runs(self):
        with tempfile.TemporaryDirectory() as folder:
            status, said = self.link(folder, OLD_AND_NEW)
            self.assertEqual((status, said), (0, ""))
            with open(os.path.join(folder, "target"), "w", encoding="utf-8") as file:
                file.write("12345")
            os.symlink("target", os.path.join(folder, "link"))
            self.assertEqual(run("./program", cwd=folder), (0, "1 1 5 5 1 1\n"))
            _, symbols = run("objdump", "-T", os.path.join(folder, "program"))
            _, needed = run("readelf", "-d", os.path.join(folder, "program"))
        versions = {tuple(map(int, version.split("."))) for version in re.findall(r"GLIBC_([\d.]+)", symbols)}
        self.assertTrue(versions)
        self.assertLessEqual(max(versions), (2, 28))
        # There threads and dlopen are in libraries of their own.
        self.assertIn("libpthread.so.0", needed)
        self.assertIn("libdl.so.2", needed)

    def test_what_the_old_library_lacks_fails_the_link(self):
        with tempfile.TemporaryDirectory() as folder:
            status, said = self.link(folder, TOO_NEW)
        self.assertNotEqual(status, 0)
        self.assertIn("undefined reference to `arc4random'", said)


class Wheel(unittest.TestCase):
    def make(self, *words):
        status, said = run(os.path.join(ROOT, "packaging/make-wheel"), "--into", os.path.join(FOLDER, "dist"), *words)
        print(said, flush=True)
        self.assertEqual(status, 0, said)
        return said

    def test_two_builds_have_the_same_bytes_and_a_hang_is_named(self):
        said = self.make("--programs", BUILD, "--work", os.path.join(FOLDER, "work"))
        for line in ("two builds, the same bytes", "auditwheel: manylinux_2_", "missing_rank, rank 1",
                     f"py3-none-manylinux_2_28_{os.uname().machine}.whl", ".cdx.json", ".tar.gz"):
            self.assertIn(line, said)

    @unittest.skipIf(os.uname().machine == "aarch64", "the machine is aarch64 hardware")
    def test_the_wheel_for_aarch64_loads_in_an_emulator(self):
        sysroot = os.path.join(FOLDER, "sysroot")
        shutil.rmtree(sysroot, ignore_errors=True)
        status, said = run(os.path.join(ROOT, "packaging/sysroot"), "aarch64", sysroot)
        self.assertEqual(status, 0, said)
        said = self.make("--once", "--machine", "aarch64", "--sysroot", sysroot, "--work",
                         os.path.join(FOLDER, "aarch64"))
        self.assertIn("command, library and TLS module load", said)
        self.assertIn("py3-none-manylinux_2_28_aarch64.whl", said)


if __name__ == "__main__":
    unittest.main(verbosity=2, argv=[sys.argv[0], *sys.argv[3:]])
