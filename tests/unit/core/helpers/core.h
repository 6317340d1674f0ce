/*
 * core's headers for C++ tests, and what several tests need: temporary folders, whole files, child
 * processes.
 */
#ifndef NCCLGUARD_TESTS_UNIT_CORE_H
#define NCCLGUARD_TESTS_UNIT_CORE_H

#include "tests/gtest/not_copied.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <gtest/gtest.h>

/*
 * The black box has _Atomic fields, which C++ does not know. An atomic of these sizes is laid out
 * as the plain type; the tests that share a box between threads use the __atomic built-ins. C++
 * headers stand above, since <stdatomic.h> makes macros of std::atomic's names.
 */
#if defined(__clang__)
#include <stdatomic.h>
#else
#define _Static_assert static_assert
#endif
#define _Atomic
extern "C" {
#include "core/config/config.h"
#include "core/config/launch.h"
#include "core/nccl/op.h"
#include "core/recorder/box.h"
#include "core/recorder/paths.h"
#include "core/recorder/proc.h"
#include "core/report/dump.h"
#include "core/report/report.h"
#include "core/util/arena.h"
#include "core/util/clock.h"
#include "core/util/json.h"
#include "core/util/log.h"
#include "core/verdict/verdict.h"
#include "core/view/view.h"
}
#undef _Atomic
#undef _Static_assert

/* Views and arenas that end with their scope. */
struct OwnView : ng_view, NotCopied {
    OwnView()
    {
        ng_view_init(this);
    }
    ~OwnView()
    {
        ng_view_fini(this);
    }
};
struct OwnArena : ng_arena, NotCopied {
    OwnArena() : ng_arena{}
    {
    }
    ~OwnArena()
    {
        ng_arena_reset(this);
    }
};

/* A folder of this test's own, gone with everything in it at the end. */
class Folder : NotCopied
{
  public:
    Folder()
    {
        char pattern[] = "/tmp/ncclguard-test-XXXXXX";
        path_ = mkdtemp(pattern) ? pattern : "";
    }
    ~Folder()
    {
        if (!path_.empty())
            remove_tree(path_);
    }

    const std::string &path() const
    {
        return path_;
    }
    std::string operator/(const std::string &name) const
    {
        return path_ + "/" + name;
    }
    /* Names of everything in it, hidden files too, sorted. */
    std::vector<std::string> names() const;

  private:
    static void remove_tree(const std::string &path);
    std::string path_;
};

std::string read_whole_file(const std::string &path);
void write_whole_file(const std::string &path, const std::string &content);

/*
 * From now on an allocation by this thread ends the process with status 99: for what must work
 * while the program holds malloc's lock for ever. Without effect under sanitizers, which bring a
 * malloc of their own.
 */
void forbid_malloc(bool forbidden);

/* The folder of core's tests in the source tree. */
std::string test_folder();

/* Compare with the file `name` in golden/; with NG_TEST_UPDATE=1 in the environment, write it
 * instead. */
void expect_golden(const std::string &text, const std::string &name);

/* What `write` writes to a descriptor, as text. */
std::string text_from(const std::function<void(int fd)> &write);

/*
 * Run `body` in a forked child with a deadline; its value is the child's exit status. For what
 * changes the whole process: limits, the log's descriptor, signals. -signal if it was killed.
 */
int in_child(const std::function<int()> &body);

#endif
