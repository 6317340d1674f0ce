/*
 * Tasks that may hang: other tasks run meanwhile, in their order.
 */
#include "tests/unit/core/helpers/core.h"

#include <condition_variable>
#include <mutex>

#include "tests/unit/core/helpers/plain_threads.h"

#define _Atomic
extern "C" {
#include "core/runtime/io_workers.h"
}
#undef _Atomic

namespace
{

/* What the tasks of a test did, and a gate that some of them wait at. */
class Work : NotCopied
{
  public:
    Work()
    {
        start_tasks();
    }
    ~Work()
    {
        open_gate();
        EXPECT_TRUE(ng_io_workers_await(&under_way, ~0u, soon()));
    }

    /* The task writes its name down, once the gate is open where it is a hanging one. */
    int add(const char *place, const char *name, bool hangs = false)
    {
        uint32_t bit = 1u << (added_++ % NG_IO_WORKERS_MAX);
        __atomic_fetch_or(&under_way, bit, __ATOMIC_SEQ_CST);
        int error = ng_io_workers_add(place, run, new Task{this, name, hangs, bit});
        if (error)
            ng_io_workers_end(&under_way, bit);
        return error;
    }
    void open_gate()
    {
        std::lock_guard<std::mutex> guard(mutex_);
        open_ = true;
        changed_.notify_all();
    }
    /* Until so many are done. */
    std::vector<std::string> done(size_t count)
    {
        std::unique_lock<std::mutex> guard(mutex_);
        changed_.wait_for(guard, std::chrono::seconds(60), [&] { return done_.size() >= count; });
        return done_;
    }
    /* Until so many hang. */
    void hanging(unsigned count)
    {
        std::unique_lock<std::mutex> guard(mutex_);
        changed_.wait_for(guard, std::chrono::seconds(60), [&] { return hanging_ >= count; });
        ASSERT_EQ(hanging_, count);
    }
    uint32_t under_way = 0;

    static int64_t soon()
    {
        return ng_clock_mono_ns() + 60 * NG_S;
    }

  private:
    struct Task {
        Work *work;
        const char *name;
        bool hangs;
        uint32_t bit;
    };
    static void run(void *context)
    {
        std::unique_ptr<Task> task(static_cast<Task *>(context));
        task->work->run_one(*task);
        ng_io_workers_end(&task->work->under_way, task->bit);
    }
    void run_one(const Task &task)
    {
        std::unique_lock<std::mutex> guard(mutex_);
        if (task.hangs) {
            hanging_++;
            changed_.notify_all();
            changed_.wait(guard, [&] { return open_; });
        }
        done_.push_back(task.name);
        changed_.notify_all();
    }
    std::mutex mutex_;
    std::condition_variable changed_;
    bool open_ = false;
    unsigned hanging_ = 0;
    std::vector<std::string> done_;
    unsigned added_ = 0;
};

using Names = std::vector<std::string>;

TEST(IoWorkers, ThoseOfOnePlaceAreDoneInTheirOrder)
{
    Work work;
    work.add("/a", "first", true);
    work.hanging(1);
    for (const char *name : {"second", "third", "fourth"})
        EXPECT_EQ(work.add("/a", name), 0);
    work.open_gate();
    EXPECT_EQ(work.done(4), (Names{"first", "second", "third", "fourth"}));
}

TEST(IoWorkers, OneThatHangsHoldsUpItsPlaceAlone)
{
    Work work;
    work.add("/a", "hangs", true);
    work.hanging(1);
    work.add("/a", "behind it");
    work.add("/b", "elsewhere");
    EXPECT_EQ(work.done(1), (Names{"elsewhere"}));
    work.open_gate();
    EXPECT_EQ(work.done(3), (Names{"elsewhere", "hangs", "behind it"}));
}

TEST(IoWorkers, ThereIsAThreadLeftWhileOneFewerThanAllHang)
{
    const char *const places[] = {"/a", "/b", "/c", "/d"};
    static_assert(sizeof(places) / sizeof(places[0]) == NG_IO_WORKERS_THREADS);
    Work work;
    for (unsigned i = 0; i + 1 < NG_IO_WORKERS_THREADS; i++)
        work.add(places[i], "hangs", true);
    work.hanging(NG_IO_WORKERS_THREADS - 1);
    work.add(places[NG_IO_WORKERS_THREADS - 1], "elsewhere");
    EXPECT_EQ(work.done(1), (Names{"elsewhere"}));
}

TEST(IoWorkers, WhoWaitsGoesOnWithoutWhatHangs)
{
    Work work;
    work.add("/a", "hangs", true);
    work.hanging(1);
    work.add("/b", "elsewhere");
    EXPECT_FALSE(ng_io_workers_await(&work.under_way, 3, ng_clock_mono_ns() + 10 * NG_MS));
    EXPECT_FALSE(ng_io_workers_await(&work.under_way, 1, 0));
    EXPECT_TRUE(ng_io_workers_await(&work.under_way, 2, Work::soon())) << "that hangs not";
    work.open_gate();
    EXPECT_TRUE(ng_io_workers_await(&work.under_way, 3, Work::soon()));
    EXPECT_EQ(work.done(2), (Names{"elsewhere", "hangs"}));
}

TEST(IoWorkers, TooManyAreRefused)
{
    Work work;
    work.add("/a", "hangs", true);
    work.hanging(1);
    for (unsigned i = 1; i < NG_IO_WORKERS_MAX; i++)
        EXPECT_EQ(work.add("/a", "waits"), 0);
    EXPECT_EQ(ng_io_workers_add(
                  "/a", [](void *) { ADD_FAILURE(); }, nullptr),
              -EAGAIN);
    work.open_gate();
    EXPECT_EQ(work.done(NG_IO_WORKERS_MAX).size(), NG_IO_WORKERS_MAX);
}

TEST(IoWorkers, HandingOverAllocatesNothing)
{
    uint32_t under_way = 1;
    Work work;
    forbid_malloc(true);
    int error = ng_io_workers_add(
        "/a", [](void *context) { ng_io_workers_end((uint32_t *)context, 1); }, &under_way);
    bool done = ng_io_workers_await(&under_way, 1, Work::soon());
    forbid_malloc(false);
    EXPECT_EQ(error, 0);
    EXPECT_TRUE(done);
}

} // namespace
