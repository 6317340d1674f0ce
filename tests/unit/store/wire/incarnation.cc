/*
 * Which processes belong together.
 */
#include "tests/unit/store/publish/ranks.h"

#include <numeric>

struct Incarnation : testing::Test {
    std::string url() const
    {
        return "memory:" + folder.path();
    }
    static uint64_t root(Kv &kv, uint64_t label)
    {
        uint64_t found = 0;
        EXPECT_EQ(ng_incarnation_root(kv.kv, label, within(patience_ms), &found), 0);
        return found;
    }
    static uint64_t join(Kv &kv, uint64_t group, uint64_t label)
    {
        uint64_t found = 0;
        EXPECT_EQ(ng_incarnation_join(kv.kv, group, label, 60000, within(patience_ms), &found), 0);
        return found;
    }
    static std::string key(uint64_t label)
    {
        char text[NG_INCARNATION_KEY_BYTES];
        ng_incarnation_key(label, text);
        return text;
    }
    static std::string number(uint64_t label)
    {
        return key(label).substr(2);
    }
    Folder folder;
};

TEST_F(Incarnation, AloneOneIsItsOwnRoot)
{
    Kv kv(url());
    EXPECT_EQ(root(kv, 7), 7u);
    EXPECT_EQ(join(kv, 100, 7), 7u);
    EXPECT_EQ(root(kv, 7), 7u);
}

TEST_F(Incarnation, AGroupBringsTogetherAndTheSmallerLeads)
{
    Kv kv(url());
    EXPECT_EQ(join(kv, 100, 9), 9u);
    EXPECT_EQ(join(kv, 100, 5), 5u);
    EXPECT_EQ(join(kv, 200, 7), 7u);
    EXPECT_EQ(join(kv, 200, 5), 5u);
    for (uint64_t label : {5, 7, 9})
        EXPECT_EQ(root(kv, label), 5u);
    EXPECT_EQ(root(kv, 6), 6u);
}

TEST_F(Incarnation, RandomUnionsInAnyOrderBySeveralAtOnce)
{
    constexpr int labels = 60, groups = 45, threads = 4;
    for (unsigned round = 0; round < 4; round++) {
        std::mt19937_64 random(100 + round);
        Folder own;
        std::string where = "memory:" + own.path();
        std::vector<uint64_t> label(labels), group(groups);
        for (uint64_t &one : label)
            one = random();
        for (uint64_t &one : group)
            one = random();
        /* Each group has a few members; who is in one with whom, belongs together. */
        std::vector<std::pair<int, int>> joins;
        std::vector<int> leader(labels);
        std::iota(leader.begin(), leader.end(), 0);
        std::function<int(int)> find = [&](int i) { return leader[i] == i ? i : find(leader[i]); };
        for (int g = 0; g < groups; g++) {
            int first = (int)(random() % labels);
            joins.push_back({g, first});
            for (uint64_t k = random() % 4; k > 0; k--) {
                int other = (int)(random() % labels);
                joins.push_back({g, other});
                leader[find(other)] = find(first);
            }
        }
        std::shuffle(joins.begin(), joins.end(), random);
        std::vector<std::thread> workers;
        for (int t = 0; t < threads; t++)
            workers.emplace_back([&, t] {
                Kv kv(where);
                for (size_t i = (size_t)t; i < joins.size(); i += threads) {
                    uint64_t before = root(kv, label[joins[i].second]);
                    uint64_t found = join(kv, group[joins[i].first], label[joins[i].second]);
                    EXPECT_LE(found, before) << "a root never grows";
                }
            });
        for (std::thread &worker : workers)
            worker.join();
        std::map<int, uint64_t> smallest;
        for (int i = 0; i < labels; i++) {
            auto place = smallest.emplace(find(i), label[i]).first;
            place->second = std::min(place->second, label[i]);
        }
        Kv kv(where);
        for (int i = 0; i < labels; i++)
            EXPECT_EQ(root(kv, label[i]), smallest[find(i)]) << "label " << i;
    }
}

TEST_F(Incarnation, AChainIsFollowedToItsEnd)
{
    Kv kv(url());
    for (uint64_t i = 1; i < 50; i++)
        ASSERT_EQ(kv.set(key(100 + i), number(100 + i - 1)), 0);
    EXPECT_EQ(root(kv, 149), 100u);
    EXPECT_EQ(join(kv, 1, 149), 100u);
    EXPECT_EQ(join(kv, 1, 3), 3u);
    EXPECT_EQ(root(kv, 149), 3u);
}

TEST_F(Incarnation, ACircleOrNonsenseEndsTheWay)
{
    Kv kv(url());
    for (const char *nonsense : {"", "0000000000000000", "zzzzzzzzzzzzzzzz", "12",
                                 "ffffffffffffffff", "00000000000000090", "00000000000000033"}) {
        ASSERT_EQ(kv.set(key(9), nonsense), 0);
        EXPECT_EQ(root(kv, 9), 9u) << nonsense;
    }
    ASSERT_EQ(kv.set(key(9), number(9)), 0);
    EXPECT_EQ(root(kv, 9), 9u);
    ASSERT_EQ(kv.set("g/0000000000000064", "nonsense"), 0);
    EXPECT_EQ(join(kv, 100, 8), 8u);
}

TEST_F(Incarnation, WhatWasLostIsUnitedAgainByTheNextToJoin)
{
    Kv kv(url());
    join(kv, 100, 9);
    join(kv, 100, 5);
    ASSERT_EQ(root(kv, 9), 5u);
    ASSERT_EQ(kv.remove(key(9)), 0);
    EXPECT_EQ(root(kv, 9), 9u);
    EXPECT_EQ(join(kv, 100, 5), 5u) << "whoever knows the root keeps it";
    empty_store(url());
    EXPECT_EQ(join(kv, 100, 5), 5u);
    EXPECT_EQ(join(kv, 100, 9), 5u);
}

TEST_F(Incarnation, IsGoneAfterItsTime)
{
    Kv kv(url());
    uint64_t found;
    ASSERT_EQ(ng_incarnation_join(kv.kv, 100, 9, 300, within(patience_ms), &found), 0);
    ASSERT_EQ(ng_incarnation_join(kv.kv, 100, 5, 300, within(patience_ms), &found), 0);
    EXPECT_TRUE(eventually([&] { return keys_in_store(url()) == 0; }));
}

TEST_F(Incarnation, AStoreThatFailsIsTold)
{
    FaultyKv kv(url());
    uint64_t found;
    kv.set(FaultyKv::FAIL, -ECONNREFUSED);
    EXPECT_EQ(ng_incarnation_root(&kv, 9, within(1000), &found), -ECONNREFUSED);
    EXPECT_EQ(ng_incarnation_join(&kv, 100, 9, 1000, within(1000), &found), -ECONNREFUSED);
    kv.set(FaultyKv::HANG);
    EXPECT_EQ(ng_incarnation_join(&kv, 100, 9, 1000, within(50), &found), -ETIMEDOUT);
}
