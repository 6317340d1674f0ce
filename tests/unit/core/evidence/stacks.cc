/*
 * Host stacks: threads that are stuck in functions of known names, and everything that may be wrong
 * with a stack.
 */
#include "tests/unit/core/helpers/core.h"

#include <dlfcn.h>
#include <elf.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "tests/unit/core/helpers/stuck.h"

extern "C" {
#include "core/evidence/blocked_in.h"
#include "core/evidence/stacks.h"
#include "core/unwind/image.h"
#include "core/unwind/symbols.h"
#include "core/util/memory.h"
}

namespace
{

/* A thread that waits in `body` until it is let go. */
class Stuck : NotCopied
{
  public:
    explicit Stuck(std::function<int(int fd)> body, long call = SYS_read)
    {
        if (pipe2(ends_, O_CLOEXEC) != 0)
            abort();
        thread_ = std::thread([this, body] {
            handle_ = pthread_self();
            tid_ = gettid();
            result_ = body(ends_[0]);
        });
        while (!tid_ || !waits(call))
            std::this_thread::yield();
    }
    ~Stuck()
    {
        if (thread_.joinable())
            let_go();
        close(ends_[0]);
        close(ends_[1]);
    }

    /* What it returned: 0, as nothing disturbed it. */
    int let_go()
    {
        if (write(ends_[1], "x", 1) != 1)
            abort();
        thread_.join();
        return result_;
    }
    int tid() const
    {
        return tid_;
    }
    pthread_t handle() const
    {
        return handle_;
    }

  private:
    bool waits(long call) const
    {
        struct ng_blocked_in inside;
        return ng_blocked_in_read(tid_, &inside) == 0 && inside.in_system && inside.call == call;
    }
    int ends_[2];
    std::atomic<int> tid_{0};
    pthread_t handle_ = 0;
    int result_ = -1;
    std::thread thread_;
};

struct Stacks : NotCopied {
    /* Threads that do not stop within a quarter of a second, as on a machine that gives the helper
     * no processor, are not examined. What took so long is taken again. */
    explicit Stacks(int (*read_python)(char *, size_t) = nullptr)
    {
        for (int tries_left = 2;; tries_left--) {
            int64_t begun_ns = ng_clock_mono_ns();
            forbid_malloc(true);
            error = ng_stacks_take(read_python, &stacks);
            forbid_malloc(false);
            if (error || !tries_left || ng_clock_mono_ns() - begun_ns < 250 * NG_MS)
                break;
            ng_stacks_fini(&stacks);
        }
    }
    ~Stacks()
    {
        if (!error)
            ng_stacks_fini(&stacks);
    }

    /* It ends after half a second, whatever was named by then. */
    void name_from_files()
    {
        int64_t begun_ns = 0;
        for (int tries = 0; tries < 3 && ng_clock_mono_ns() - begun_ns >= 500 * NG_MS; tries++) {
            begun_ns = ng_clock_mono_ns();
            forbid_malloc(true);
            ng_stacks_name_from_files(&stacks);
            forbid_malloc(false);
        }
    }
    const struct ng_stack_thread *of(int tid) const
    {
        for (uint32_t i = 0; i < stacks.thread_count; i++)
            if (stacks.threads[i].tid == tid)
                return &stacks.threads[i];
        return nullptr;
    }
    /* Names of the frames, innermost first; "?" where there is none. */
    std::vector<std::string> names(int tid) const
    {
        std::vector<std::string> names;
        const struct ng_stack_thread *thread = of(tid);
        for (uint32_t i = 0; thread && i < thread->frame_count; i++)
            names.push_back(thread->frames[i].name ? thread->frames[i].name : "?");
        return names;
    }
    std::string text(int rank = 3) const
    {
        struct ng_view_process process = {.pid = 1234};
        snprintf(process.host, sizeof(process.host), "a");
        snprintf(process.program, sizeof(process.program), "train");
        return text_from(
            [&](int fd) { EXPECT_EQ(ng_stacks_write_text(&stacks, &process, rank, fd), 0); });
    }
    struct ng_stacks stacks;
    int error;
};

/* Are the names in the list, in this order? Others may stand between them. */
bool in_order(const std::vector<std::string> &list, const std::vector<std::string> &wanted)
{
    size_t next = 0;
    for (const std::string &name : list)
        if (next < wanted.size() && name == wanted[next])
            next++;
    return next == wanted.size();
}

std::string joined(const std::vector<std::string> &names)
{
    std::string text;
    for (const std::string &name : names)
        text += " " + name;
    return text;
}

#define EXPECT_FRAMES(stacks, tid, ...)                                                            \
    EXPECT_TRUE(in_order((stacks).names(tid), {__VA_ARGS__})) << joined((stacks).names(tid))

} // namespace

TEST(Stacks, NamesTheFunctionsThatAThreadIsStuckIn)
{
    Stuck stuck(stuck_simply);
    Stacks stacks;
    ASSERT_EQ(stacks.error, 0);
    stacks.name_from_files();
    EXPECT_FRAMES(stacks, stuck.tid(), "stuck_in_read", "local_step", "stuck_simply");
    EXPECT_EQ(stuck.let_go(), 0);
}

TEST(Stacks, ReachTheFunctionThatTheThreadBeganWith)
{
    Stuck stuck(stuck_simply);
    Stacks stacks;
    ASSERT_NE(stacks.of(stuck.tid()), nullptr);
    EXPECT_EQ(stacks.of(stuck.tid())->note, nullptr);
    EXPECT_NE(stacks.of(getpid()), stacks.of(stuck.tid()));
}

TEST(Stacks, GoThroughFramesWithoutAConstantSize)
{
    Stuck stuck([](int fd) { return stuck_deeply(fd, 5); });
    Stacks stacks;
    stacks.name_from_files();
    EXPECT_FRAMES(stacks, stuck.tid(), "stuck_in_read", "stuck_deeply", "stuck_deeply",
                  "stuck_deeply", "stuck_deeply", "stuck_deeply", "stuck_deeply");
    EXPECT_EQ(stuck.let_go(), 0);
}

TEST(Stacks, AreCutAtTheirLimitAndSayIt)
{
    Stuck stuck([](int fd) { return stuck_deeply(fd, 100); });
    Stacks stacks;
    ASSERT_NE(stacks.of(stuck.tid()), nullptr);
    EXPECT_EQ(stacks.of(stuck.tid())->frame_count, (uint32_t)NG_STACKS_FRAMES_MAX);
    EXPECT_STREQ(stacks.of(stuck.tid())->note, "more frames follow");
}

/* ThreadSanitizer puts handlers off until the thread comes to rest. */
#if !defined(__SANITIZE_THREAD__)
TEST(Stacks, GoThroughASignalHandlerToWhatItInterrupted)
{
    Stuck stuck(stuck_in_handler);
    Stacks stacks;
    stacks.name_from_files();
    EXPECT_FRAMES(stacks, stuck.tid(), "stuck_in_read", "stuck_handler", "stuck_interrupted",
                  "stuck_in_handler");
    EXPECT_EQ(stuck.let_go(), 0);
}
#endif

TEST(Stacks, SeeAThreadThatBlocksAllSignals)
{
    Stuck stuck(stuck_unreachably);
    Stacks stacks;
    stacks.name_from_files();
    EXPECT_FRAMES(stacks, stuck.tid(), "stuck_in_read", "stuck_unreachably");
    EXPECT_EQ(stuck.let_go(), 0);
}

TEST(Stacks, DisturbNoSystemCallOfTheProgram)
{
    Stuck reading(stuck_simply), polling(stuck_in_poll, SYS_poll);
    for (int i = 0; i < 20; i++)
        Stacks stacks;
    EXPECT_EQ(reading.let_go(), 0);
    EXPECT_EQ(polling.let_go(), 0);
}

TEST(Stacks, LeaveNoHandlerNoChildAndNoErrorBehind)
{
    struct sigaction before[65] = {}, after[65] = {};
    for (int i = 1; i < 65; i++)
        sigaction(i, nullptr, &before[i]);
    {
        Stacks stacks;
        EXPECT_EQ(stacks.error, 0);
    }
    for (int i = 1; i < 65; i++) {
        sigaction(i, nullptr, &after[i]);
        EXPECT_EQ(before[i].sa_handler, after[i].sa_handler) << i;
    }
    EXPECT_EQ(waitpid(-1, nullptr, __WALL | WNOHANG), -1);
    EXPECT_EQ(errno, ECHILD);
}

TEST(Stacks, OfCodeWithoutNamesSayFileAndBuildId)
{
    Stuck stuck([](int fd) { return stuck_through_stripped(stuck_simply, fd); });
    Stacks stacks;
    stacks.name_from_files();
    EXPECT_FRAMES(stacks, stuck.tid(), "stuck_simply", "?", "stuck_through_stripped");
    const struct ng_stack_thread *thread = stacks.of(stuck.tid());
    ASSERT_NE(thread, nullptr);
    Dl_info info;
    ASSERT_NE(dladdr((void *)stuck_through_stripped, &info), 0);
    bool found = false;
    for (uint32_t i = 0; i < thread->frame_count; i++) {
        const struct ng_stack_frame *frame = &thread->frames[i];
        if (frame->name || !frame->image || !strstr(frame->image->path, "stuck_stripped"))
            continue;
        found = true;
        EXPECT_EQ(frame->image->bias, (uint64_t)info.dli_fbase);
        EXPECT_EQ(frame->image->build_id_bytes, 20u);
        EXPECT_NE(stacks.text().find("? (" + std::string(frame->image->path) + "+0x"),
                  std::string::npos);
    }
    EXPECT_TRUE(found);
}

TEST(Stacks, BuildIdIsTheOneOfTheFile)
{
    Stuck stuck([](int fd) { return stuck_through_stripped(stuck_simply, fd); });
    Stacks stacks;
    Dl_info info;
    ASSERT_NE(dladdr((void *)stuck_through_stripped, &info), 0);
    std::string listing, command = std::string("readelf -n '") + info.dli_fname + "'";
    FILE *pipe = popen(command.c_str(), "r");
    for (int c; pipe && (c = fgetc(pipe)) != EOF;)
        listing += (char)c;
    ASSERT_EQ(pclose(pipe), 0);
    static const std::string label = "Build ID: ";
    size_t at = listing.find(label);
    ASSERT_NE(at, std::string::npos) << listing;
    at += label.size();
    std::string id = listing.substr(at, listing.find('\n', at) - at);
    EXPECT_NE(stacks.text().find("  " + id + " "), std::string::npos) << stacks.text();
}

TEST(Stacks, SurviveThreadsThatComeAndGo)
{
    std::atomic<bool> stop{false};
    std::thread maker([&] {
        while (!stop) {
            std::thread one([] {}), two([] { usleep(100); });
            one.join();
            two.join();
        }
    });
    Stuck stuck(stuck_simply);
    int held = 0;
    for (int i = 0; i < 100; i++) {
        Stacks stacks;
        ASSERT_EQ(stacks.error, 0);
        const struct ng_stack_thread *seen = stacks.of(stuck.tid());
        ASSERT_NE(seen, nullptr);
        held += seen->frame_count > 2;
        /* On a machine that stands still for a quarter of a second. */
        if (seen->frame_count <= 2) {
            EXPECT_NE(seen->note, nullptr) << "it is cut, and does not say so";
        }
    }
    EXPECT_GT(held, 80);
    stop = true;
    maker.join();
    EXPECT_EQ(stuck.let_go(), 0);
}

TEST(Stacks, SayWhichSystemCallAndWhatItWaitsFor)
{
    Stuck reading(stuck_simply), polling(stuck_in_poll, SYS_poll);
    Stacks stacks;
    EXPECT_EQ(std::string(stacks.of(reading.tid())->doing).rfind("in read of pipe:[", 0), 0u)
        << stacks.of(reading.tid())->doing;
    EXPECT_EQ(std::string(stacks.of(polling.tid())->doing).rfind("in poll", 0), 0u)
        << stacks.of(polling.tid())->doing;
}

/* ---- What others write ---- */

static pthread_t python_thread;

static int fake_python(char *ret_text, size_t bytes)
{
    return snprintf(ret_text, bytes,
                    "Thread 0x%016lx [worker] (most recent call first):\n"
                    "  File \"/a/train.py\", line 12 in load\n"
                    "  File \"/a/train.py\", line 40 in <module>\n"
                    "\n"
                    "Current thread 0x0000000000000001 (most recent call first):\n"
                    "  File \"/a/other.py\", line 1 in f\n",
                    (unsigned long)python_thread);
}

TEST(Stacks, GiveEachThreadItsPythonFrames)
{
    Stuck stuck(stuck_simply);
    python_thread = stuck.handle();
    Stacks stacks(fake_python);
    const struct ng_stack_thread *thread = stacks.of(stuck.tid());
    ASSERT_NE(thread, nullptr);
    ASSERT_EQ(thread->python_count, 2u);
    EXPECT_STREQ(thread->python[0], "File \"/a/train.py\", line 12 in load");
    EXPECT_STREQ(thread->python[1], "File \"/a/train.py\", line 40 in <module>");
    EXPECT_NE(stacks.text().find("(Python stacks of threads that were not examined"),
              std::string::npos);
    EXPECT_EQ(stacks.text().find("other.py"), std::string::npos);
}

TEST(Stacks, SayWhyThereAreNoPythonFrames)
{
    Stacks none([](char *, size_t) { return -ENOENT; });
    EXPECT_EQ(none.stacks.note_count, 0u);
    Stacks unprepared([](char *, size_t) { return -EAGAIN; });
    EXPECT_EQ(unprepared.stacks.note_count, 1u);
    Stacks failed([](char *, size_t) { return -EBADF; });
    EXPECT_EQ(failed.stacks.note_count, 1u);
}

/* ---- The files ---- */

TEST(StacksFile, HasASummaryThatAReportCanQuote)
{
    Folder folder;
    char summary[1000];
    int64_t taken = 0, begun = ng_clock_unix_ns();
    struct ng_view_process process = {.pid = getpid()};
    ng_stacks_file_name(3, process.pid, summary, sizeof(summary));
    EXPECT_STREQ(summary, "rank_3.stacks.txt");
    ng_stacks_file_name(-1, 77, summary, sizeof(summary));
    EXPECT_STREQ(summary, "rank_unknown_77.stacks.txt");

    /* The first thread, which takes the stacks elsewhere, is the one that counts. */
    int error = -1;
    std::thread taker([&] {
        Stacks stacks;
        error = ng_stacks_save(&stacks.stacks, &process, 3, folder.path().c_str());
    });
    taker.join();
    EXPECT_EQ(error, 0);
    ASSERT_EQ(ng_stacks_read_summary(folder.path().c_str(), 3, getpid(), summary, sizeof(summary),
                                     &taken),
              0);
    std::string start = "thread " + std::to_string(getpid()) + " \"";
    EXPECT_EQ(std::string(summary).rfind(start, 0), 0u) << summary;
    EXPECT_NE(std::string(summary).find("; native: "), std::string::npos) << summary;
    EXPECT_GT(taken, begun - NG_S);
    EXPECT_LT(taken, ng_clock_unix_ns() + NG_S);
    /* Another process's, under this name from an earlier run. */
    EXPECT_EQ(ng_stacks_read_summary(folder.path().c_str(), 3, getpid() + 1, summary,
                                     sizeof(summary), &taken),
              -ENOENT);
    EXPECT_EQ(ng_stacks_read_summary(folder.path().c_str(), 4, getpid(), summary, sizeof(summary),
                                     &taken),
              -ENOENT);
}

TEST(StacksFile, HoldsNoControlCharacters)
{
    Stuck stuck([](int fd) {
        pthread_setname_np(pthread_self(), "a\x1b[31m\nb");
        return stuck_simply(fd);
    });
    Stacks stacks;
    for (char c : stacks.text())
        EXPECT_TRUE(c == '\n' || (unsigned char)c >= 0x20) << (int)c;
}

/* ---- Where the system says no ---- */

/* A child of one thread that makes its own: under the sanitizers that is not supported. */
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)

/* From now on the system call fails in this process. */
static void deny(long call)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {4, filter};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        _exit(98);
}

TEST(StacksDenied, ASleeperIsSeenByWhatTheKernelTells)
{
    EXPECT_EQ(in_child([] {
                  deny(SYS_ptrace);
                  Stuck stuck(stuck_simply);
                  Stacks stacks;
                  stacks.name_from_files();
                  const struct ng_stack_thread *thread = stacks.of(stuck.tid());
                  if (stacks.error || !thread || !thread->note || !thread->frame_count)
                      return 1;
                  return in_order(stacks.names(stuck.tid()), {"read"}) && stuck.let_go() == 0 ? 0
                                                                                              : 2;
              }),
              0);
}

TEST(StacksDenied, NoHelperIsNoReasonToFail)
{
    EXPECT_EQ(in_child([] {
                  Stuck stuck(stuck_simply);
                  deny(SYS_clone);
                  Stacks stacks;
                  return stacks.error == 0 && stacks.stacks.note_count == 1 &&
                                 stacks.of(stuck.tid()) && stacks.of(stuck.tid())->frame_count
                             ? 0
                             : 1;
              }),
              0);
}

TEST(StacksDenied, MemoryIsReadThroughItsFile)
{
    EXPECT_EQ(in_child([] {
                  deny(SYS_process_vm_readv);
                  Stuck stuck(stuck_simply);
                  Stacks stacks;
                  stacks.name_from_files();
                  return in_order(stacks.names(stuck.tid()),
                                  {"stuck_in_read", "local_step", "stuck_simply"})
                             ? 0
                             : 1;
              }),
              0);
}
#endif

/* ---- Seen from outside ---- */

TEST(Stacks, OneWhoseThreadsAreHeldIsNotTakenForStopped)
{
    struct ng_box_header header = {};
    struct ng_box box = {.header = &header};
    EXPECT_TRUE(ng_box_shows_stopped(&box, 'T', ng_clock_mono_ns()));
    EXPECT_TRUE(ng_box_shows_stopped(&box, 't', ng_clock_mono_ns()));
    EXPECT_FALSE(ng_box_shows_stopped(&box, 'S', ng_clock_mono_ns()));
    header.held_until_mono_ns = ng_clock_mono_ns() + 600 * NG_S;
    EXPECT_TRUE(ng_box_shows_stopped(&box, 'T', ng_clock_mono_ns()));
    EXPECT_FALSE(ng_box_shows_stopped(&box, 't', ng_clock_mono_ns()));
    header.held_until_mono_ns = 1;
    EXPECT_TRUE(ng_box_shows_stopped(&box, 't', ng_clock_mono_ns()));
}

/* ---- Mounts ---- */

/* 1 remote, 0 not, -1 of another device. */
static int told(const char *text)
{
    char line[200];
    bool remote;
    snprintf(line, sizeof(line), "%s", text);
    return ng_mount_tells(line, 0, 52, &remote) ? remote : -1;
}

TEST(Mount, OfAnotherMachineIsKnownByItsType)
{
    EXPECT_EQ(told("36 35 0:52 / /data rw,noatime shared:1 - nfs4 server:/data rw"), 1);
    EXPECT_EQ(told("36 35 0:52 /a /data rw - fuse.sshfs server: rw"), 1);
    EXPECT_EQ(told("36 35 0:52 /a /data rw - lustre 10.0.0.1@tcp:/scratch rw"), 1);
    EXPECT_EQ(told("36 35 0:52 / / rw shared:1 - overlay overlay rw,lowerdir=nfs"), 0);
    EXPECT_EQ(told("36 35 0:53 / /data rw - nfs4 server:/data rw"), -1);
    EXPECT_EQ(told("36 35 1:52 / /data rw - nfs4 server:/data rw"), -1);
    EXPECT_EQ(told("36 35 0:52 / /data rw"), -1);
    EXPECT_EQ(told(""), -1);
    EXPECT_FALSE(ng_mount_is_remote(12345, 6));
}

/* ---- Memory ---- */

TEST(Memory, WhatIsNotThereIsAnError)
{
    long page = sysconf(_SC_PAGESIZE);
    char *pages =
        (char *)mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(pages, MAP_FAILED);
    munmap(pages + page, page);
    char bytes[16];
    EXPECT_TRUE(ng_memory_read((uint64_t)pages, bytes, sizeof(bytes)));
    EXPECT_FALSE(ng_memory_read((uint64_t)pages + page, bytes, sizeof(bytes)));
    EXPECT_FALSE(ng_memory_read((uint64_t)pages + page - 8, bytes, sizeof(bytes)));
    EXPECT_EQ(ng_memory_read_some((uint64_t)pages + page - 8, bytes, sizeof(bytes)), 8u);
    EXPECT_FALSE(ng_memory_read(0, bytes, sizeof(bytes)));
    EXPECT_FALSE(ng_memory_read(UINT64_MAX - 4, bytes, sizeof(bytes)));
    munmap(pages, page);
}

/* ---- The walk, with everything wrong ---- */

namespace
{

struct Images : NotCopied {
    Images()
    {
        EXPECT_EQ(ng_images_read(&arena, &images), 0);
    }
    ~Images()
    {
        ng_arena_reset(&arena);
    }
    struct ng_arena arena = {};
    struct ng_images images;
};

struct ng_registers registers_of(uint64_t program, uint64_t stack)
{
    struct ng_registers registers = {};
    registers.value[NG_REGISTER_PROGRAM] = program;
    registers.value[NG_REGISTER_STACK] = stack;
    registers.known = (UINT64_C(1) << NG_REGISTERS) - 1;
    return registers;
}

} // namespace

TEST(Images, HoldThisProgramItsLibrariesAndTheVdso)
{
    Images read;
    const struct ng_image *self = ng_images_find(&read.images, (uint64_t)stuck_simply);
    const struct ng_image *library = ng_images_find(&read.images, (uint64_t)stuck_through_stripped);
    ASSERT_NE(self, nullptr);
    ASSERT_NE(library, nullptr);
    EXPECT_NE(self, library);
    EXPECT_NE(strstr(self->path, "test_stacks"), nullptr);
    EXPECT_NE(self->eh_frame_header, 0u);
    EXPECT_EQ(ng_images_find(&read.images, 0), nullptr);
    EXPECT_EQ(ng_images_find(&read.images, UINT64_MAX), nullptr);
    bool vdso = false;
    for (uint32_t i = 0; i < read.images.count; i++)
        vdso |= strcmp(read.images.images[i].path, "[vdso]") == 0;
    EXPECT_TRUE(vdso);
}

TEST(Images, AFileThatIsOnlyMappedAsDataIsNone)
{
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    struct stat status;
    ASSERT_EQ(fstat(fd, &status), 0);
    void *data = mmap(nullptr, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    ASSERT_NE(data, MAP_FAILED);
    Images read;
    EXPECT_EQ(ng_images_find(&read.images, (uint64_t)data), nullptr);
    munmap(data, (size_t)status.st_size);
    close(fd);
}

TEST(Unwind, ADamagedStackEndsTheWalkAndNothingElse)
{
    Images read;
    struct ng_frame frames[NG_STACKS_FRAMES_MAX];
    enum ng_unwind_end end;
    std::mt19937_64 random(5);
    std::vector<uint64_t> stack(4096);
    for (int round = 0; round < 1000; round++) {
        for (uint64_t &word : stack)
            word = random() % 4 == 0   ? (uint64_t)stuck_simply + random() % 64
                   : random() % 2 == 0 ? (uint64_t)&stack[random() % stack.size()]
                                       : random();
        struct ng_registers registers = registers_of((uint64_t)stuck_deeply + random() % 128,
                                                     (uint64_t)&stack[random() % stack.size()]);
        for (int i = 0; i < NG_REGISTER_STACK; i++)
            registers.value[i] =
                random() % 2 ? (uint64_t)&stack[random() % stack.size()] : random();
        uint32_t count = ng_unwind(&read.images, &registers, frames, NG_STACKS_FRAMES_MAX, &end);
        ASSERT_GE(count, 1u);
        ASSERT_LE(count, (uint32_t)NG_STACKS_FRAMES_MAX);
    }
}

TEST(Unwind, AnUnreadableStackStillSaysWhereTheThreadIs)
{
    Images read;
    struct ng_frame frames[4];
    enum ng_unwind_end end;
    struct ng_registers registers = registers_of((uint64_t)stuck_simply + 1, 8);
    EXPECT_EQ(ng_unwind(&read.images, &registers, frames, 4, &end), 1u);
    EXPECT_EQ(frames[0].address, (uint64_t)stuck_simply + 1);
    EXPECT_NE(end, NG_UNWIND_WHOLE);
}

#if defined(__x86_64__)
TEST(Unwind, ACallThroughABadPointerIsTracedToItsCaller)
{
    Images read;
    struct ng_frame frames[4];
    enum ng_unwind_end end;
    uint64_t stack[64] = {(uint64_t)stuck_simply + 4};
    struct ng_registers registers = registers_of(0, (uint64_t)stack);
    ASSERT_GE(ng_unwind(&read.images, &registers, frames, 4, &end), 2u);
    EXPECT_EQ(frames[1].address, (uint64_t)stuck_simply + 4);
}
#endif

TEST(Unwind, CodeWithoutRulesIsWalkedByFramePointers)
{
    struct ng_images none = {};
    struct ng_frame frames[8];
    enum ng_unwind_end end;
    uint64_t stack[8] = {(uint64_t)&stack[2], 0x1111, (uint64_t)&stack[4], 0x2222, 0, 0x3333};
    struct ng_registers registers = registers_of(0x1000, (uint64_t)stack);
    registers.value[NG_REGISTER_FRAME] = (uint64_t)stack;
    ASSERT_EQ(ng_unwind(&none, &registers, frames, 8, &end), 4u);
    EXPECT_EQ(frames[1].address, 0x1111u);
    EXPECT_EQ(frames[2].address, 0x2222u);
    EXPECT_EQ(frames[3].address, 0x3333u);
}

/* A hash table in memory whose last chain goes on for ever, up to the end of what can be read. */
TEST(Symbols, AChainWithoutAnEndIsGivenUp)
{
    constexpr size_t BYTES = 8 << 20;
    uint32_t *words = (uint32_t *)mmap(nullptr, BYTES, PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(words, MAP_FAILED);
    ASSERT_EQ(mprotect(words + BYTES / 8, BYTES / 2, PROT_NONE), 0); /* whatever lies behind it */
    words[0] =
        1; /* bucket; the first symbol is 0, no words of the filter. Then it, and the chain */
    Elf64_Sym symbol = {};
    Elf64_Dyn dynamic[4] = {};
    dynamic[0].d_tag = DT_SYMTAB;
    dynamic[0].d_un.d_ptr = (uint64_t)&symbol;
    dynamic[1].d_tag = DT_STRTAB;
    dynamic[1].d_un.d_ptr = (uint64_t) "name";
    dynamic[2].d_tag = DT_GNU_HASH;
    dynamic[2].d_un.d_ptr = (uint64_t)words;
    struct ng_image image = {.dynamic = (uint64_t)dynamic};
    struct ng_symbol_query query = {};
    OwnArena arena;
    int64_t soon = ng_clock_thread_ns() + 60 * NG_S;
    EXPECT_EQ(ng_symbols_of_memory(&image, &query, 1, soon, &arena), -ENOENT);
    /* One that ends is counted, and its end may be anywhere in what is read at once. */
    for (size_t last : {0, 1, 255, 256, 257, 100000}) {
        words[5 + last] = 1;
        EXPECT_EQ(ng_symbols_of_memory(&image, &query, 1, 0, &arena), -ENOENT) << "out of time";
        EXPECT_NE(ng_symbols_of_memory(&image, &query, 1, soon, &arena), -ENOENT) << last;
        words[5 + last] = 0;
    }
    munmap(words, BYTES);
}

/* A table of dynamic symbols with 300 buckets, so that the time is looked at twice. Each read is
 * slow, as where the processor is given to others. */
TEST(Symbols, TimeInWhichTheThreadDoesNotRunIsNotCounted)
{
    std::vector<uint32_t> table(4 + 2 + 300 + 1);
    table[0] = 300;
    table[2] = 1;
    table.back() = 1; /* of symbol 0, in which the only chain ends */
    auto slowly = [](const void *, uint64_t place, void *bytes, size_t count) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        return ng_memory_read_some(place, bytes, count);
    };
    EXPECT_EQ(ng_symbols_count(0, (uint64_t)table.data(), ng_clock_thread_ns() + 10 * NG_MS, slowly,
                               nullptr),
              1u);
}

/* A copy of this program's image, whose rules are then damaged at random. */
TEST(Unwind, DamagedRulesEndTheWalkAndNothingElse)
{
    Images read;
    const struct ng_image *self = ng_images_find(&read.images, (uint64_t)stuck_simply);
    ASSERT_NE(self, nullptr);
    size_t bytes = self->end - self->start;
    uint8_t *copy =
        (uint8_t *)mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(copy, MAP_FAILED);
    for (size_t at = 0; at < bytes; at += 4096) {
        size_t part = bytes - at < 4096 ? bytes - at : 4096;
        ng_memory_read(self->start + at, copy + at, part);
    }
    uint64_t moved = (uint64_t)copy - self->start;
    struct ng_image image = *self;
    image.start += moved;
    image.end += moved;
    image.bias += moved;
    image.eh_frame_header += moved;
    struct ng_images images = {&image, 1, 1, true};

    std::mt19937_64 random(7);
    struct ng_frame frames[NG_STACKS_FRAMES_MAX];
    enum ng_unwind_end end;
    std::vector<uint64_t> stack(512);
    for (size_t i = 0; i < stack.size(); i++)
        stack[i] = i % 3 ? (uint64_t)&stack[i] : (uint64_t)stuck_simply + moved + 4;
    uint8_t *rules = copy + (image.eh_frame_header - image.start);
    size_t left = bytes - (size_t)(rules - copy);
    size_t range = left < 60000 ? left : 60000;
    unsigned went_on = 0;
    for (int round = 0; round < 5000; round++) {
        size_t place = random() % range;
        uint8_t before = rules[place];
        rules[place] = (uint8_t)random();
        struct ng_registers registers =
            registers_of((uint64_t)stuck_deeply + moved + random() % 64, (uint64_t)stack.data());
        registers.value[NG_REGISTER_FRAME] = (uint64_t)&stack[16];
        went_on += ng_unwind(&images, &registers, frames, NG_STACKS_FRAMES_MAX, &end) > 1;
        if (round % 16)
            rules[place] = before;
    }
    EXPECT_GT(went_on, 0u);
    munmap(copy, bytes);
}
