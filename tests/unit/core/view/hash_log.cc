/*
 * Hash logs: those of two ranks with the same calls never differ, at whatever time they are
 * compared; a difference is always found, and lies within the reported bounds.
 */
#include "tests/unit/core/helpers/core.h"

extern "C" {
#include "tests/unit/core/view/hash_log_writer.h"
}

namespace
{

using Rank = std::unique_ptr<hashed_rank, decltype(&hashed_rank_free)>;

Rank make_rank()
{
    return Rank(hashed_rank_new(), &hashed_rank_free);
}

struct Call {
    uint32_t op;
    uint64_t count;
    int dtype, redop, root;
};

Call any_call(std::mt19937_64 &random)
{
    static const uint32_t ops[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    uint32_t op = ops[random() % 10];
    Call call = {op, op == 9 ? 0 : random() % 5 * 1024, (int)(random() % 10), -1, -1};
    if (op == 1 || op == 3 || op == 5 || op == 10)
        call.redop = (int)(random() % 6);
    if (op == 2 || op == 3 || op == 7 || op == 8)
        call.root = (int)(random() % 4);
    return call;
}

/* As this rank has it: operators that the program made are numbered by each rank alone. */
void enter(hashed_rank *rank, Call call, std::mt19937_64 &random, char state = 't')
{
    if (call.redop > 4)
        call.redop = 5 + (int)(random() % 100);
    hashed_rank_call(rank, call.op, call.count, call.dtype, call.redop, call.root, state);
}

bool differ(const Rank &a, const Rank &b)
{
    uint64_t after, seq;
    return hashed_ranks_differ(a.get(), b.get(), &after, &seq);
}

/* A valid program of two ranks: the same calls in order, but each at its own pace, with calls that
 * are refused in between, that have not been taken yet, or that go into a graph, on one of them
 * twice. */
bool alarms(uint64_t seed)
{
    std::mt19937_64 random(seed);
    Rank ranks[] = {make_rank(), make_rank()};
    std::vector<Call> calls(1 + random() % (seed % 100 == 0 ? 3000 : 60));
    size_t capture = random() % 4 == 0 ? random() % calls.size() : calls.size(), at[] = {0, 0};

    for (Call &call : calls)
        call = any_call(random);
    for (unsigned steps = 0; at[0] < calls.size() || at[1] < calls.size(); steps++) {
        int i = (int)(random() % 2);
        hashed_rank *rank = ranks[i].get();
        for (unsigned burst = (unsigned)(random() % 40); burst > 0 && at[i] < calls.size();
             burst--) {
            if (random() % 16 == 0)
                enter(rank, any_call(random), random, 'r');
            if (at[i] == capture && random() % 2)
                enter(rank, calls[at[i]], random, 'c'); /* a capture that is thrown away */
            enter(rank, calls[at[i]], random, at[i] == capture ? 'c' : 't');
            at[i]++;
        }
        if (differ(ranks[0], ranks[1]))
            return true;
        /* Entered, and not taken by NCCL: it may still be refused, and be anything. */
        if (random() % 8 == 0) {
            enter(rank, any_call(random), random, 'e');
            bool alarm = differ(ranks[0], ranks[1]);
            return alarm;
        }
    }
    return false;
}

} // namespace

TEST(HashLog, AHundredThousandValidProgramsRaiseNoAlarm)
{
    for (uint64_t seed = 1; seed <= 100000; seed++)
        ASSERT_FALSE(alarms(seed)) << "seed " << seed;
}

TEST(HashLog, ADifferenceIsFoundAndLiesWithinWhatIsTold)
{
    for (uint64_t seed = 1; seed <= 2000; seed++) {
        std::mt19937_64 random(seed);
        Rank a = make_rank(), b = make_rank();
        uint64_t calls = 1 + random() % 3000, wrong = 1 + random() % calls, ahead = random() % 1000;
        uint64_t after, seq;
        for (uint64_t i = 1; i <= calls + ahead; i++) {
            Call call = any_call(random), other = call;
            if (i == wrong)
                other.count += 1; /* no operation's count is left out of the hash */
            enter(a.get(), call, random);
            if (i <= calls)
                enter(b.get(), other, random);
        }
        if (!hashed_ranks_differ(a.get(), b.get(), &after, &seq)) {
            /* All common marks may be older than a difference in the newest calls. */
            EXPECT_GT(ahead, 16u) << seed;
            EXPECT_GT(wrong + 2 * ahead + 32, calls) << seed;
            continue;
        }
        EXPECT_LT(after, wrong) << seed;
        EXPECT_GE(seq, wrong) << seed;
    }
}

TEST(HashLog, TheVeryCallIsToldWhereBothAreClose)
{
    std::mt19937_64 random(1);
    Rank a = make_rank(), b = make_rank();
    uint64_t after, seq;

    for (int i = 1; i <= 100; i++) {
        Call call = any_call(random), other = call;
        if (i == 95)
            other.count++;
        enter(a.get(), call, random);
        enter(b.get(), other, random);
    }
    ASSERT_TRUE(hashed_ranks_differ(a.get(), b.get(), &after, &seq));
    EXPECT_EQ(after, 94u);
    EXPECT_EQ(seq, 95u);
}

TEST(HashLog, EveryFieldThatRanksMustAgreeOnMakesADifference)
{
    const Call plain = {3, 1024, 7, 0, 0};
    std::mt19937_64 random(1);

    for (Call other : {Call{1, 1024, 7, 0, 0}, Call{3, 1025, 7, 0, 0}, Call{3, 1024, 6, 0, 0},
                       Call{3, 1024, 7, 2, 0}, Call{3, 1024, 7, 0, 1}}) {
        Rank a = make_rank(), b = make_rank();
        enter(a.get(), plain, random);
        enter(b.get(), other, random);
        EXPECT_TRUE(differ(a, b));
    }
}

TEST(HashLog, NothingCountsFromTheFirstCallInAGraphOn)
{
    std::mt19937_64 random(1);
    Rank a = make_rank(), b = make_rank();

    enter(a.get(), {1, 1, 7, 0, -1}, random, 'c');
    enter(a.get(), {1, 2, 7, 0, -1}, random);
    enter(b.get(), {1, 2, 7, 0, -1}, random);
    EXPECT_FALSE(differ(a, b));
}
