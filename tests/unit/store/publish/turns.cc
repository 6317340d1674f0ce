/*
 * Turns to look at the whole job, on a store that all of its ranks use at once.
 *
 * Each rank here is what the store's thread has of one, and all of them use one connection in turn:
 * what a look takes of the time is time, and of nothing else. They come back as
 * core/incident/alarms.c and core/incident/deaths.c do.
 */
#include "tests/gtest/in_time.h"
#include "tests/unit/store/kv/on_stores.h"
#include "tests/unit/store/publish/ranks.h"

#include <queue>
#include <tuple>

constexpr uint64_t label = 0x700;
constexpr int64_t look_ns =
    130 * NG_MS;                   /* of a thousand ranks: tests/bench/results/board-scale.md */
constexpr int64_t bound_ns = NG_S; /* it is half of it, if nothing else is on the machine */

struct Looker {
    struct ng_publisher publisher = {};
    enum ng_claim_cause cause = NG_CAUSE_END;
    bool looks = false;
};

struct Turns : testing::TestWithParam<std::tuple<const char *, int>>, protected StoreOfTest {
    void SetUp() override
    {
        open_store(std::get<0>(GetParam()));
        if (IsSkipped())
            return;
        kv = std::make_unique<FaultyKv>(url);
        ranks.resize(std::get<1>(GetParam()));
        for (auto &rank : ranks) {
            rank = std::make_unique<Looker>();
            rank->publisher.kv = kv.get();
            rank->publisher.slot.came = rank->publisher.slot.joined = true;
            rank->publisher.labels.root = label;
            rank->publisher.slot.number = 1 + &rank - ranks.data();
            rank->publisher.options.own_box = &box.box;
            rank->publisher.options.wake = [] {};
            std::string sign_of_life = "l/" + std::to_string(rank->publisher.slot.number);
            ASSERT_EQ(ng_kv_set(kv->inner, sign_of_life.c_str(), "0", 1, 0, within(5000)), 0);
            if (&rank != &ranks.back())
                come(&rank - ranks.data(), ng_clock_mono_ns() + (int64_t)(random() % NG_S));
        }
    }
    void come(size_t rank, int64_t when)
    {
        due.emplace(when, rank);
    }
    /* Everybody finds nothing, but for whom `found` says so, until `until_ns`. How many looks there
     * were. */
    int look_until(int64_t until_ns, const std::function<bool(size_t)> &found)
    {
        int count = 0;
        while (ng_clock_mono_ns() < until_ns) {
            auto [when, index] = due.top();
            due.pop();
            if (int64_t left = when - ng_clock_mono_ns(); left > 0) {
                struct timespec pause = {left / NG_S, left % NG_S};
                nanosleep(&pause, nullptr);
            }
            late_ns = std::max(late_ns, ng_clock_mono_ns() - when);
            Looker &rank = *ranks[index];
            struct ng_ask ask = {};
            ask.incident.level = NG_INCIDENT_SUSPECT;
            if (rank.looks) {
                rank.looks = false;
                struct ng_ask finish = ask;
                finish.in_vain = true;
                EXPECT_EQ(ng_publisher_finish(&rank.publisher, &finish), 0);
                if (index != ranks.size() - 1)
                    come(index, ng_clock_mono_ns() + NG_S - look_ns);
                continue;
            }
            ask.cause = rank.cause;
            int error = ng_publisher_begin(&rank.publisher, &ask);
            commands++;
            if (error == -EBUSY) {
                come(index, ng_clock_mono_ns() + NG_CLAIM_PAUSE_NS +
                                (int64_t)(random() % (NG_CLAIM_PAUSE_MAX_NS - NG_CLAIM_PAUSE_NS)));
                continue;
            }
            EXPECT_EQ(error, 0);
            count++;
            rank.looks = true;
            come(index, ng_clock_mono_ns() + look_ns);
            if (found(index))
                break;
        }
        return count;
    }
    /* How long the last one, which does not look otherwise, waits for its turn in the middle of all
     * this. */
    int64_t wait_of_last(enum ng_claim_cause cause)
    {
        int64_t asked_ns = ng_clock_mono_ns();
        ranks.back()->cause = cause;
        come(ranks.size() - 1, asked_ns);
        look_until(asked_ns + 20 * NG_S, [&](size_t index) { return index == ranks.size() - 1; });
        return ng_clock_mono_ns() - asked_ns;
    }
    struct OwnBox {
        OwnBox()
        {
            header.pid = 77;
            header.start_ticks = 7;
            box.header = &header;
        }
        struct ng_box_header header = {};
        struct ng_box box = {};
    };
    OwnBox box;
    std::unique_ptr<FaultyKv> kv;
    std::vector<std::unique_ptr<Looker>> ranks;
    std::priority_queue<std::pair<int64_t, size_t>, std::vector<std::pair<int64_t, size_t>>,
                        std::greater<>>
        due;
    std::mt19937_64 random{7};
    int commands = 0;
    int64_t late_ns = 0; /* the most that a step here came too late: a loaded machine */
};

static std::string name_of(const testing::TestParamInfo<std::tuple<const char *, int>> &info)
{
    return std::get<0>(info.param) + std::to_string(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(On, Turns, testing::Combine(STORES, testing::Values(2, 64, 1024)),
                         name_of);

/* A process has ended, and every rank looks again and again whether its work waits for that one. */
TEST_P(Turns, WhoKnowsMoreHasItsTurnHoweverManyLook)
{
    std::vector<int64_t> waits;
    for (enum ng_claim_cause cause : {NG_CAUSE_LATE, NG_CAUSE_OWN})
        for (int i = 0; i < 3; i++) {
            /* Nothing is left of the turn that it had before, and it comes at any moment. */
            look_until(ng_clock_mono_ns() + look_ns + 600 * NG_MS + (int64_t)(random() % NG_S),
                       [](size_t) { return false; });
            late_ns = 0;
            waits.push_back(wait_of_last(cause));
            EXPECT_IN_TIME(waits.back(), bound_ns + 4 * late_ns) << cause;
        }
    std::sort(waits.begin(), waits.end());
    printf("wait for a turn: median %d ms, most %d ms\n", (int)(waits[waits.size() / 2] / NG_MS),
           (int)(waits.back() / NG_MS));
}

TEST_P(Turns, ManyLookNoMoreOftenThanFew)
{
    int64_t began = ng_clock_mono_ns();
    commands = 0;
    int count = 0;
    int64_t took = 0;
    for (int i = 0; i < 5 && count < 2; i++) {
        count += look_until(ng_clock_mono_ns() + 4 * NG_S, [](size_t) { return false; });
        took = ng_clock_mono_ns() - began;
    }
    printf("%d looks, asked for %d times, in %d ms\n", count, commands, (int)(took / NG_MS));
    EXPECT_GE(count, 2);
    EXPECT_LE(count, took / (500 * NG_MS) + 1);
    EXPECT_LE(commands / (int)ranks.size(), 4 * took / NG_S + 1);
}

/* Whatever they knew when they came to it. */
TEST_P(Turns, OneOfThemTellsOfIt)
{
    struct ng_incident told = {}, wanted = about(NG_INCIDENT_SUSPECT, 0x500, 7);
    int claimed = 0, joined = 0;

    for (size_t i = 0; i < ranks.size(); i += 3)
        ranks[i]->cause = i % 2 ? NG_CAUSE_LATE : NG_CAUSE_OWN;
    auto tell = [&](size_t index) {
        struct ng_publisher *publisher = &ranks[index]->publisher;
        told = wanted;
        told.claimant_pid = 100 + (int)index;
        struct ng_ask ask = {};
        ask.incident = told;
        ask.deadline_mono_ns = ng_clock_mono_ns() + 5 * NG_S;
        int error = ng_publisher_claim(publisher, &ask);
        told = ask.incident;
        claimed += error == 0;
        joined += error == -EEXIST;
        EXPECT_TRUE(error == 0 || error == -EEXIST) << error;
        EXPECT_EQ(told.epoch, 1u);
        return false;
    };
    /* Until a second one has had its turn, however slow all of them are. */
    for (int i = 0; i < 7 && joined == 0; i++)
        look_until(ng_clock_mono_ns() + 3 * NG_S, tell);
    EXPECT_EQ(claimed, 1);
    EXPECT_GE(joined, 1);
}
