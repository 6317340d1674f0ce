/*
 * Requests of the program: done in steps by the incident thread, and never waited for beyond the
 * deadline, whoever does not come.
 */
#include "tests/unit/core/helpers/job.h"

extern "C" {
#include "core/incident/program_requests.h"
#include "core/nccl/board.h"
}

/* request_board.c */
extern "C" void test_request_set_board(struct ng_board *board);

namespace
{

/* A board in memory, which can be told to fail. */
class MemoryBoard : public ng_board
{
  public:
    MemoryBoard()
    {
        table_.put = put;
        table_.fetch = fetch;
        table_.have = have;
        table_.view = view;
        ops = &table_;
    }
    std::atomic<int> error{0}, calls{0};
    std::map<std::string, std::string> entries;
    Job *job = nullptr; /* what a view shows */

  private:
    static MemoryBoard *of(struct ng_board *board)
    {
        return static_cast<MemoryBoard *>(board);
    }
    static int put(struct ng_board *board, const struct ng_board_entry *entry)
    {
        MemoryBoard *self = of(board);
        self->calls++;
        if (self->error)
            return self->error;
        std::string data((const char *)entry->data, entry->bytes);
        auto there = self->entries.emplace(entry->key, data);
        return there.second || there.first->second == data ? 0 : -EEXIST;
    }
    static int fetch(struct ng_board *board, const char *key, void *ret_data, size_t *ret_bytes)
    {
        MemoryBoard *self = of(board);
        self->calls++;
        if (self->error)
            return self->error;
        auto there = self->entries.find(key);
        if (there == self->entries.end())
            return -ENOENT;
        memcpy(ret_data, there->second.data(), there->second.size());
        *ret_bytes = there->second.size();
        return 0;
    }
    static int have(struct ng_board *board, const char *prefix, uint32_t first, uint32_t count,
                    uint64_t *ret_there)
    {
        MemoryBoard *self = of(board);
        self->calls++;
        if (self->error)
            return self->error;
        *ret_there = 0;
        for (uint32_t i = 0; i < count; i++)
            *ret_there |= (uint64_t)self->entries.count(prefix + std::to_string(first + i)) << i;
        return 0;
    }
    static int view(struct ng_board *board, struct ng_view *view)
    {
        MemoryBoard *self = of(board);
        self->calls++;
        if (!self->error)
            self->job->fill(view);
        return self->error;
    }
    ng_board_ops table_ = {};
};

int64_t in_ms(int64_t ms)
{
    return ng_clock_mono_ns() + ms * NG_MS;
}

struct ProgramRequests : testing::Test {
    void SetUp() override
    {
        ng_program_request_after_fork(); /* as at the start */
        test_request_set_board(&board);
    }
    void TearDown() override
    {
        stop();
        test_request_set_board(nullptr);
    }
    /* The incident thread. */
    void serve()
    {
        thread = std::thread([this] {
            while (!stopping) {
                int ms = ng_program_request_serve(false);
                next_ms = ms;
                std::this_thread::yield();
            }
        });
    }
    void stop()
    {
        stopping = true;
        if (thread.joinable())
            thread.join();
    }
    MemoryBoard board;
    std::thread thread;
    std::atomic<bool> stopping{false};
    std::atomic<int> next_ms{-1};
};

std::string get(const char *key, int64_t ms, size_t room = NG_BOARD_VALUE_MAX)
{
    char data[NG_BOARD_VALUE_MAX];
    size_t bytes = 0;
    int error = ng_program_request_get(key, data, room, &bytes, in_ms(ms));
    return error ? strerror(-error) : std::string(data, bytes);
}

} // namespace

TEST_F(ProgramRequests, WaitsUntilSomebodyPuts)
{
    serve();
    std::string got;
    std::thread waiting([&] { got = get("key", 60000); });
    while (board.calls == 0)
        std::this_thread::yield();
    EXPECT_EQ(ng_program_request_put("key", "value", 5, in_ms(60000)), 0);
    waiting.join();
    EXPECT_EQ(got, "value");
    EXPECT_EQ(get("key", 60000, 4), strerror(EMSGSIZE));
    EXPECT_EQ(ng_program_request_put("key", "other", 5, in_ms(60000)), -EEXIST);
}

TEST_F(ProgramRequests, MeetsWhenAllNumbersAreThere)
{
    serve();
    int result = 1;
    EXPECT_EQ(ng_program_request_meet("at.", 0, 3, in_ms(20)), -ETIMEDOUT);
    std::thread waiting([&] { result = ng_program_request_meet("at.", 2, 200, in_ms(60000)); });
    for (int i = 201; i >= 2; i--)
        EXPECT_EQ(ng_program_request_put_for(("at." + std::to_string(i)).c_str(), "", 0, NG_S,
                                             in_ms(60000)),
                  0);
    waiting.join();
    EXPECT_EQ(result, 0);
}

TEST_F(ProgramRequests, IsOverAtItsDeadline)
{
    serve();
    EXPECT_EQ(get("never", 20), strerror(ETIMEDOUT));
    board.error = -EIO;
    EXPECT_EQ(get("never", 20), strerror(EIO));
    EXPECT_EQ(ng_program_request_put("key", "value", 5, in_ms(20)), -EIO);
    board.error = -EACCES;
    EXPECT_EQ(get("never", 60000), strerror(EACCES)) << "what waiting does not mend";
}

TEST_F(ProgramRequests, GoesOnWhenTheStoreIsBack)
{
    board.error = -EIO;
    serve();
    int result = 1;
    std::thread waiting([&] { result = ng_program_request_put("key", "value", 5, in_ms(60000)); });
    while (board.calls < 3)
        std::this_thread::yield();
    board.error = 0;
    waiting.join();
    EXPECT_EQ(result, 0);
}

TEST_F(ProgramRequests, IsGivenUpWhereTheIncidentThreadDoesNotCome)
{
    int64_t before = ng_clock_mono_ns();
    EXPECT_EQ(ng_program_request_put("key", "value", 5, in_ms(10)), -ETIMEDOUT);
    EXPECT_GE(ng_clock_mono_ns() - before, NG_PROGRAM_REQUEST_GRACE_NS);
    EXPECT_EQ(ng_program_request_serve(false), -1)
        << "its place is free, and nothing is done for it";
    EXPECT_EQ(board.calls, 0);
}

TEST_F(ProgramRequests, ThereIsRoomForSoManyAndOthersAreTold)
{
    std::vector<std::thread> waiting;
    std::atomic<int> done{0}, busy{0};
    for (int i = 0; i < 40; i++)
        waiting.emplace_back([&, i] {
            std::string key = "key" + std::to_string(i);
            int result = ng_program_request_put(key.c_str(), "x", 1, in_ms(60000));
            done += result == 0;
            busy += result == -EBUSY;
        });
    while (busy < 8)
        std::this_thread::yield();
    serve();
    for (std::thread &thread : waiting)
        thread.join();
    EXPECT_EQ(busy, 8);
    EXPECT_EQ(done, 32);
    EXPECT_EQ(board.entries.size(), 32u);
}

TEST_F(ProgramRequests, EndsWithTheThread)
{
    int result = 1;
    std::thread waiting([&] { result = ng_program_request_put("key", "value", 5, in_ms(60000)); });
    while (ng_program_request_serve(false) == -1 && board.calls == 0)
        std::this_thread::yield();
    waiting.join();
    EXPECT_EQ(result, 0);
    ng_program_request_close();
    EXPECT_EQ(ng_program_request_put("key", "value", 5, in_ms(60000)), -ESHUTDOWN);
}

TEST_F(ProgramRequests, WithoutABoardNothingIsShared)
{
    test_request_set_board(nullptr);
    serve();
    EXPECT_EQ(get("key", 60000), strerror(EOPNOTSUPP));
}

TEST_F(ProgramRequests, BoundsAreKept)
{
    std::string long_key(NG_BOARD_KEY_MAX + 1, 'k'), large(NG_BOARD_VALUE_MAX + 1, 'x');
    EXPECT_EQ(ng_program_request_put(long_key.c_str(), "x", 1, in_ms(1)), -EMSGSIZE);
    EXPECT_EQ(ng_program_request_put("key", large.data(), large.size(), in_ms(1)), -EMSGSIZE);
    EXPECT_EQ(ng_program_request_put("", "x", 1, in_ms(1)), -EINVAL);
    EXPECT_EQ(get("", 1), strerror(EINVAL));
    EXPECT_EQ(ng_program_request_dump(std::string(5000, 'd').c_str(), in_ms(1)), -ENAMETOOLONG);
}

/* For ncclCommDestroy of NCCL 2.31.2 and later, which would wait for such a rank for ever. */
TEST_F(ProgramRequests, ARankThatAbortedOrEndedWithoutDestroyingIsAQuitter)
{
    serve();
    auto quitters = [&](auto change) {
        Job job(3, 0x1, "dp", 3);
        bool any = false;
        change(job);
        board.job = &job;
        EXPECT_EQ(ng_program_request_quitters(0x1, in_ms(60000), &any), 0);
        return any;
    };
    EXPECT_FALSE(quitters([](Job &) {}));
    EXPECT_FALSE(quitters([](Job &job) {
        job.at(0x1, 2).state = NG_GROUP_DESTROYED;
        job.process(2).life = NG_LIFE_EXITED;
    }));
    EXPECT_TRUE(quitters([](Job &job) { job.at(0x1, 2).state = NG_GROUP_ABORTED; }));
    EXPECT_TRUE(quitters([](Job &job) { job.process(2).life = NG_LIFE_DEAD; }));
    EXPECT_FALSE(quitters([](Job &job) { job.process(2).life = NG_LIFE_STOPPED; }));
    EXPECT_FALSE(quitters([](Job &job) {
        job.process(0).self = true;
        job.process(2).host = "n2";
        job.process(2).life = NG_LIFE_LOST;
    })) << "NCCL waits for the ranks of its host";
    bool any = false;
    board.error = -EIO;
    EXPECT_EQ(ng_program_request_quitters(0x1, in_ms(60000), &any), -EIO);
    EXPECT_FALSE(any);
}
