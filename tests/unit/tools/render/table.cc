/*
 * The table of `ncclguard top`: who comes first, what is folded, how far behind, and the JSON.
 */
#include "tests/gtest/own_json.h"
#include "tests/unit/core/helpers/job.h"

extern "C" {
#include "tools/render/table.h"
#include "tools/render/table_json.h"
}

namespace
{

/* A job as the command sees it. */
struct Seen : JudgedView {
    explicit Seen(const Job &job, int64_t stalled_ns = STALLED)
        : JudgedView(job, {.stalled_ns = stalled_ns})
    {
        EXPECT_EQ(ng_table_make(this, &verdict, &table), 0);
    }
    ~Seen()
    {
        ng_table_fini(&table);
    }

    std::vector<std::string> lines(unsigned count = 0, unsigned columns = 0,
                                   const char *trouble = nullptr) const
    {
        struct ng_table_paper paper = {.lines = count,
                                       .columns = columns,
                                       .time_unix_ns = INT64_C(1763659440) * NG_S,
                                       .trouble = trouble};
        char *text = nullptr;
        size_t bytes = 0;
        FILE *file = open_memstream(&text, &bytes);
        ng_table_print(&table, &paper, file);
        fclose(file);
        std::vector<std::string> result;
        for (const char *at = text; *at;) {
            const char *end = strchr(at, '\n');
            EXPECT_NE(end, nullptr);
            result.emplace_back(at, end);
            at = end + 1;
        }
        free(text);
        return result;
    }
    std::string text(unsigned count = 0, unsigned columns = 0) const
    {
        std::string all;
        for (const std::string &line : lines(count, columns))
            all += line + "\n";
        return all;
    }
    /* The lines under the titles: as many as there are rows and folds. */
    std::vector<std::string> rows(unsigned count = 0) const
    {
        std::vector<std::string> all = lines(count);
        auto at = std::find_if(all.begin(), all.end(), [](const std::string &line) {
            return line.find("RANK") != std::string::npos;
        });
        return at == all.end() ? std::vector<std::string>() : std::vector(at + 1, all.end());
    }
    std::string json() const
    {
        char name[] = "/tmp/ncclguard-table.XXXXXX";
        int fd = mkstemp(name);
        EXPECT_EQ(ng_table_write_json(&table, fd), 0);
        std::string text(static_cast<size_t>(lseek(fd, 0, SEEK_END)), '\0');
        EXPECT_EQ(pread(fd, &text[0], text.size(), 0), static_cast<ssize_t>(text.size()));
        close(fd);
        unlink(name);
        return text;
    }

    struct ng_table table;
};

using Json = OwnJson;

json_t *get(json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    EXPECT_NE(value, nullptr) << key;
    return value;
}

int number(json_t *object, const char *key)
{
    return static_cast<int>(json_integer_value(get(object, key)));
}

std::string word(json_t *object, const char *key)
{
    json_t *value = get(object, key);
    return json_is_string(value) ? json_string_value(value) : json_is_null(value) ? "null" : "?";
}

/* Six collectives done by all, the seventh entered by all but rank `missing`. */
Job one_missing(int ranks, int missing)
{
    Job job(ranks, 0x1111, "world");
    for (int rank = 0; rank < ranks; rank++) {
        job.at(0x1111, rank).did(6);
        if (rank != missing)
            job.at(0x1111, rank).waits();
    }
    return job;
}

bool has(const std::string &text, const std::string &wanted)
{
    return text.find(wanted) != std::string::npos;
}

TEST(Table, TheGuiltyRankComesFirstAndIsMarked)
{
    Seen seen(one_missing(8, 5));
    std::vector<std::string> rows = seen.rows();
    ASSERT_EQ(rows.size(), 8u) << seen.text();
    EXPECT_EQ(rows[0].rfind("!", 0), 0u) << rows[0];
    EXPECT_TRUE(has(rows[0], " 5 ")) << rows[0];
    EXPECT_TRUE(has(rows[0], "1, 30.0 s")) << rows[0];
    EXPECT_TRUE(has(rows[1], "AllReduce #7, on device, 30.0 s")) << rows[1];
    for (size_t i = 1; i < rows.size(); i++)
        EXPECT_EQ(rows[i][0], ' ') << rows[i];
    EXPECT_TRUE(has(seen.lines()[0], "8 of 8 ranks seen")) << seen.lines()[0];
    EXPECT_TRUE(has(seen.lines()[1], "missing_rank: rank 5")) << seen.lines()[1];
}

TEST(Table, WhoIsGoneOrBehindComesBeforeThoseWhoWait)
{
    Job job(6, 0x1111, "world");
    for (int rank = 0; rank < 6; rank++)
        job.at(0x1111, rank).did(rank == 3 ? 4 : 6);
    job.wait(0x1111, {0, 1, 2, 5});
    job.process(4).is(NG_LIFE_DEAD, 12 * NG_S);
    Seen seen(job, 1000 * NG_S); /* nothing is stuck for so long: no verdict decides */
    std::vector<std::string> rows = seen.rows();
    ASSERT_EQ(rows.size(), 6u);
    EXPECT_TRUE(has(rows[0], "dead 12.0 s ago")) << rows[0];
    EXPECT_TRUE(has(rows[1], "3, ")) << rows[1];
    EXPECT_TRUE(has(seen.lines()[0], "5 running, 1 dead")) << seen.lines()[0];
}

TEST(Table, AHostThatIsNotHeardOfIsLost)
{
    Job job = one_missing(4, 2);
    job.process(2).is(NG_LIFE_LOST, 7 * NG_S);
    Seen seen(job);
    EXPECT_TRUE(has(seen.rows()[0], "lost for 7.0 s")) << seen.text();
    EXPECT_TRUE(has(seen.lines()[0], "1 lost"));
}

TEST(Table, ThousandsThatAreAlikeTakeOneLine)
{
    Seen seen(one_missing(4096, 77));
    std::vector<std::string> all = seen.lines(40, 160);
    EXPECT_LE(all.size(), 40u);
    EXPECT_TRUE(has(seen.rows(40)[0], " 77 "));
    const std::string &last = all.back();
    unsigned folded = 0;
    ASSERT_EQ(sscanf(last.c_str(), "… and %u more, all in AllReduce #7", &folded), 1) << last;
    EXPECT_TRUE(has(last, "of group world")) << last;
    EXPECT_EQ(folded + seen.rows(40).size() - 1, 4096u);
    EXPECT_GT(all.size(), 35u); /* the lines that there are, are used */
}

TEST(Table, FoldsTellThePlacesApart)
{
    Job job(300, 0x1111, "world");
    for (int rank = 0; rank < 300; rank++) {
        job.at(0x1111, rank).did(5 + rank % 3);
        job.at(0x1111, rank).waits(all_reduce(), 100 * NG_MS);
    }
    Seen seen(job);
    std::string text = seen.text(30);
    EXPECT_TRUE(has(text, "more in AllReduce #6, on device of group world")) << text;
    EXPECT_TRUE(has(text, "more in AllReduce #7, on device of group world")) << text;
    EXPECT_TRUE(has(text, "more in AllReduce #8, on device of group world")) << text;
}

TEST(Table, EveryRowIsShownOrFolded)
{
    std::mt19937 random(11);
    for (int round = 0; round < 60; round++) {
        int ranks = 1 + static_cast<int>(random() % 200);
        Job job(ranks, 1, "world");
        std::vector<int> half;
        for (int rank = 0; rank < ranks; rank += 2)
            half.push_back(rank);
        job.group(2, round % 2 ? "world" : "", half);
        for (int rank = 0; rank < ranks; rank++) {
            job.at(1, rank).did(static_cast<int>(random() % 9));
            if (random() % 2)
                job.at(1, rank).waits(all_reduce(), static_cast<int64_t>(random() % 20) * NG_S);
            job.process(rank).life = static_cast<enum ng_life>(random() % NG_TABLE_LIVES);
        }
        Seen seen(job);
        unsigned height = 12 + random() % 60;
        std::vector<std::string> rows = seen.rows(height);
        EXPECT_LE(seen.lines(height).size(), height);
        uint32_t told = 0;
        for (const std::string &row : rows) {
            unsigned folded = 0;
            told += sscanf(row.c_str(), "… and %u more", &folded) == 1 ? folded : 1;
        }
        EXPECT_EQ(told, seen.table.order_count) << seen.text(height);
    }
}

TEST(Table, NoLineIsWiderThanThePaperAndNothingOfNamesReachesATerminalRaw)
{
    Job job = one_missing(16, 3);
    job.group(0x2222, "evil\033[2J\n\xff\xc2\x9b name \xe2\x80\xae that is very long, longer",
              {0, 1});
    job.process(3).host = "h\033]0;x\007\n";
    job.notes.push_back("a\033[31mnote\n");
    Seen seen(job);
    for (unsigned columns : {20u, 40u, 79u, 133u})
        for (const std::string &line : seen.lines(24, columns, "trou\033ble")) {
            size_t width = 0;
            for (unsigned char byte : line) {
                EXPECT_TRUE(byte >= 0x20 && byte != 0x7f) << line;
                width += (byte & 0xc0) != 0x80;
            }
            EXPECT_LE(width, columns) << line;
            EXPECT_EQ(line.find("\xe2\x80\xae"), std::string::npos);
        }
}

TEST(Table, ANarrowTerminalKeepsWhatTellsWhatIsWrong)
{
    Seen seen(one_missing(8, 5));
    std::string text = seen.text(24, 80);
    EXPECT_TRUE(has(text, "BEHIND")) << text;
    EXPECT_TRUE(has(text, "1, 30.0 s")) << text;
    EXPECT_TRUE(has(text, "AllReduce #7, on device, 30.0 s")) << text;
}

TEST(Table, TellsEachDeadlineAndWhatFollowsIt)
{
    Job job(4, 0x1111, "world");
    EXPECT_FALSE(has(Seen(job).text(), "DEADLINE")) << "not known";
    for (int rank = 0; rank < 4; rank++) {
        job.at(0x1111, rank).timeout_ns = rank ? 30 * NG_S : 0;
        job.at(0x1111, rank).policy = NG_ON_TIMEOUT_KILL + 1;
    }
    job.at(0x1111, 3).policy = 0;
    std::vector<std::string> rows = Seen(job).rows();
    EXPECT_TRUE(has(Seen(job).text(), "DEADLINE")) << Seen(job).text();
    EXPECT_TRUE(has(rows[0], "none ")) << rows[0];
    EXPECT_TRUE(has(rows[1], "30.0 s, kill")) << rows[1];
    EXPECT_TRUE(has(rows[3], "30.0 s ")) << rows[3];
    EXPECT_FALSE(has(Seen(job).text(24, 80), "DEADLINE")) << Seen(job).text(24, 80);

    Json json(Seen(job).json());
    json_t *group = json_array_get(get(json.root, "groups"), 0);
    EXPECT_TRUE(json_is_true(get(group, "deadlines_differ")));
    EXPECT_EQ(word(group, "timeout_ms") + word(group, "policy"), "nullnull");
    json_t *member = json_array_get(get(group, "members"), 1);
    EXPECT_EQ(word(member, "policy"), "kill");
    EXPECT_EQ(number(member, "timeout_ms"), 30000);
    for (int rank = 0; rank < 4; rank++) {
        job.at(0x1111, rank).timeout_ns = 30 * NG_S;
        job.at(0x1111, rank).policy = NG_ON_TIMEOUT_ABORT + 1;
    }
    Json alike(Seen(job).json());
    group = json_array_get(get(alike.root, "groups"), 0);
    EXPECT_EQ(word(group, "policy"), "abort");
    EXPECT_EQ(number(group, "timeout_ms"), 30000);
    EXPECT_TRUE(json_is_false(get(group, "policies_differ")));
}

TEST(Table, GroupsOfOneNameShowTheirIds)
{
    Job job(4);
    job.group(0xabcd, "tp", {0, 1});
    job.group(0xef01, "tp", {2, 3});
    job.group(0x2345, "world");
    std::string text = Seen(job).text();
    EXPECT_TRUE(has(text, "tp 000000000000abcd")) << text;
    EXPECT_TRUE(has(text, "tp 000000000000ef01")) << text;
    EXPECT_FALSE(has(text, "0000000000002345")) << text;
}

TEST(Table, GroupsThatAllHaveEndedAreNotShownButTheirProcessesAre)
{
    Job job(2, 0x1111, "world");
    for (int rank : {0, 1})
        job.at(0x1111, rank).did(3).state = NG_GROUP_DESTROYED;
    Seen seen(job);
    std::vector<std::string> rows = seen.rows();
    ASSERT_EQ(rows.size(), 2u) << seen.text();
    EXPECT_TRUE(has(rows[0], "no group")) << rows[0];
    EXPECT_FALSE(has(seen.text(), "world")) << seen.text();
}

TEST(Table, ACulpritThatNobodyHasSeenIsNamedAllTheSame)
{
    Seen seen(one_missing(4, 1));
    ASSERT_EQ(seen.verdict.culprit_count, 1u);
    seen.verdict.culprits[0].rank = 9;
    seen.verdict.culprits[0].pid = 0;
    ng_table_fini(&seen.table);
    ASSERT_EQ(ng_table_make(&seen, &seen.verdict, &seen.table), 0);
    std::vector<std::string> rows = seen.rows();
    ASSERT_EQ(rows.size(), 5u) << seen.text();
    EXPECT_TRUE(has(rows[0], "! ") && has(rows[0], " 9 ") && has(rows[0], "not seen")) << rows[0];
}

TEST(TableJson, RanksOfAGroupThatNobodyHasSeenAreListed)
{
    Job job = one_missing(4, 1);
    job.forget(0x1111, 1);
    Json json(Seen(job).json());
    json_t *missing = get(json_array_get(get(json.root, "groups"), 0), "missing");
    ASSERT_EQ(json_array_size(missing), 1u);
    EXPECT_EQ(json_integer_value(json_array_get(missing, 0)), 1);
}

TEST(Table, SendsThatWaitNameTheirPeer)
{
    Job job(3, 0x1111, "world");
    job.at(0x1111, 0).p2p(NG_OP_Send, 2, false);
    Seen seen(job);
    EXPECT_TRUE(has(seen.text(), "Send to rank 2, 30.0 s")) << seen.text();
    Json json(seen.json());
    json_t *member = json_array_get(get(json_array_get(get(json.root, "groups"), 0), "members"), 0);
    json_t *pending = json_array_get(get(member, "p2p_pending"), 0);
    EXPECT_EQ(word(pending, "op"), "Send");
    EXPECT_EQ(number(pending, "peer"), 2);
    EXPECT_EQ(number(pending, "peer_rank"), 2);
}

TEST(Table, ACallThatHoldsAThreadIsShownWithItsAge)
{
    Job job(2, 0x1111, "world");
    job.inside(1, NG_OP_CommSplit, 0x1111, 0, 9 * NG_S);
    job.inside(0, NG_OP_GroupEnd, 0, 0, 3 * NG_S);
    Seen seen(job);
    EXPECT_TRUE(has(seen.text(), "CommSplit, 9.0 s")) << seen.text();
    EXPECT_TRUE(has(seen.text(), "GroupEnd, 3.0 s")) << seen.text();
    Json json(seen.json());
    json_t *call = json_array_get(get(json_array_get(get(json.root, "processes"), 1), "calls"), 0);
    EXPECT_EQ(word(call, "op"), "CommSplit");
    EXPECT_EQ(number(call, "age_ms"), 9000);
}

TEST(Table, ACallInAGroupThatIsNotEndedIsShownAsSuch)
{
    Job job(2, 0x1111, "world");
    job.at(0x1111, 1).did(2).opened();
    Seen seen(job);
    EXPECT_TRUE(has(seen.text(), "AllReduce #3 of a group call not ended, ")) << seen.text();
    EXPECT_TRUE(has(seen.json(), "\"phase\": \"group\"")) << seen.json();
}

/* Beside a hang as well: it may be the same rank's trouble. */
TEST(TableJson, EachGroupNamesTheRankThatComesLast)
{
    Job job(4, 0x1111, "world");
    job.group(0x2222, "pair", {1, 3});
    for (int rank = 0; rank < 4; rank++) {
        for (uint64_t seq = 1; seq <= 20; seq++)
            job.at(0x1111, rank).samples.push_back({seq, 1, rank == 2 ? NG_MS : 5 * NG_MS});
        if (rank != 2)
            job.at(0x1111, rank).waits();
    }
    Seen seen(job);
    Json json(seen.json());
    EXPECT_EQ(word(json.root, "kind"), "missing_rank");
    size_t i;
    json_t *group;
    json_array_foreach(get(json.root, "groups"), i, group)
    {
        json_t *late = get(group, "straggler");
        if (word(group, "name") == "pair") {
            EXPECT_TRUE(json_is_null(late));
            continue;
        }
        EXPECT_EQ(number(late, "rank"), 2);
        EXPECT_EQ(number(late, "group_rank"), 2);
        EXPECT_EQ(number(late, "last"), 20);
        EXPECT_EQ(number(late, "samples"), 20);
        EXPECT_EQ(number(late, "wait_ns"), 4 * NG_MS);
        EXPECT_EQ(number(late, "total_wait_ns"), 80 * NG_MS);
        EXPECT_EQ(word(late, "confidence"), "certain");
    }
    EXPECT_TRUE(has(seen.text(), "late in world: rank 2 came last in 20 of 20")) << seen.text();
}

TEST(TableJson, RanksCanBeReadBothWays)
{
    Job job(6);
    std::vector<int> odd = {5, 3, 1}; /* group ranks in another order than global ones */
    job.group(0x1111, "world");
    job.group(0x2222, "odd", odd);
    Json json(Seen(job).json());
    EXPECT_EQ(word(json.root, "table_schema"), NG_TABLE_SCHEMA);
    EXPECT_EQ(word(json.root, "schema"), "ncclguard.verdict/1");
    EXPECT_EQ(word(json.root, "kind"), "healthy");
    size_t i, k;
    json_t *group, *member;
    std::set<std::pair<std::string, int>> global;
    json_array_foreach(get(json.root, "groups"), i, group)
    {
        json_array_foreach(get(group, "members"), k, member)
        {
            int rank = number(member, "rank");
            EXPECT_EQ(number(member, "group_rank"), static_cast<int>(k));
            if (word(group, "name") == "odd") {
                EXPECT_EQ(rank, odd[k]);
            }
            global.insert({word(group, "id"), rank});
            json_t *process = json_array_get(get(json.root, "processes"),
                                             static_cast<size_t>(number(member, "process")));
            EXPECT_EQ(number(process, "rank"), rank);
            EXPECT_EQ(number(process, "pid"), number(member, "pid"));
        }
    }
    EXPECT_EQ(global.size(), 9u);
}

TEST(TableJson, GroupsOfTheSameMembersAreRecognised)
{
    Job job(4, 0x1111, "first");
    job.group(0x2222, "half", {0, 1});
    job.group(0x3333, "second");
    Json json(Seen(job).json());
    std::map<std::string, std::string> same;
    size_t i;
    json_t *group;
    json_array_foreach(get(json.root, "groups"), i, group)
    {
        same[word(group, "name")] = word(group, "same_members_as");
    }
    EXPECT_EQ(same["first"], "null");
    EXPECT_EQ(same["half"], "null");
    EXPECT_EQ(same["second"], "0000000000001111");
}

TEST(TableJson, IsValidWhateverNamesAndNumbersAProcessTells)
{
    std::mt19937_64 random(5);
    for (int round = 0; round < 100; round++) {
        int ranks = 1 + static_cast<int>(random() % 6);
        Job job(ranks);
        char name[] = "n\xff\"\\\n\x01\xf0\x9f\x98\x80?";
        name[random() % 6] = static_cast<char>(random());
        job.group(random() | 1, name);
        uint64_t id = random() | 1;
        job.group(id, "other");
        for (int rank = 0; rank < ranks; rank++) {
            Member &member = job.at(id, rank);
            member.did(static_cast<int>(random() % 5))
                .waits({static_cast<uint32_t>(random() % 100), static_cast<int32_t>(random()),
                        static_cast<int32_t>(random()), static_cast<int32_t>(random()), random()},
                       static_cast<int64_t>(random() >> 1));
            member.state = static_cast<enum ng_group_state>(random() % (NG_GROUP_FAILED + 1));
            member.entered = random();
            member.device = static_cast<int>(random());
            job.process(rank).life = static_cast<enum ng_life>(random() % NG_TABLE_LIVES);
            job.process(rank).exit_status = static_cast<int>(random());
            job.process(rank).host = name;
        }
        Seen seen(job);
        Json json(seen.json());
        EXPECT_EQ(json_array_size(get(json.root, "groups")), 2u);
        for (const std::string &line : seen.lines(24, 100))
            for (unsigned char byte : line)
                EXPECT_GE(byte, 0x20) << line;
    }
}

TEST(TableScale, ThousandsOfRanksInManyGroupsAreOneTableAndOneDocument)
{
    constexpr int ranks = 4096, width = 8;
    Job job(ranks, 1, "world");
    job.group(2, "again");
    for (int axis = 0; axis < 3; axis++)
        for (int first = 0; first < ranks; first += width) {
            std::vector<int> members;
            for (int i = 0; i < width; i++)
                members.push_back(axis == 0   ? first + i
                                  : axis == 1 ? first / width + i * (ranks / width)
                                              : first + width - 1 - i);
            job.group(static_cast<uint64_t>(1000000 * (axis + 1) + first), "", members);
        }
    for (int rank = 0; rank < ranks; rank++)
        if (rank != 77)
            job.at(1, rank).did(3).waits();
    Seen seen(job);
    std::vector<std::string> all = seen.lines(50, 180);
    EXPECT_LE(all.size(), 50u);
    EXPECT_TRUE(has(seen.text(50, 180), "missing_rank: rank 77")) << seen.text(50, 180);
    Json json(seen.json());
    EXPECT_EQ(json_array_size(get(json.root, "groups")), 2u + 3u * ranks / width);
    EXPECT_EQ(json_array_size(get(json.root, "processes")), static_cast<size_t>(ranks));
}

TEST(TableDuration, IsShortAndExact)
{
    char text[32];
    EXPECT_STREQ(ng_table_duration(0, text, sizeof(text)), "0 ms");
    EXPECT_STREQ(ng_table_duration(999 * NG_MS, text, sizeof(text)), "999 ms");
    EXPECT_STREQ(ng_table_duration(12340 * NG_MS, text, sizeof(text)), "12.3 s");
    EXPECT_STREQ(ng_table_duration(303 * NG_S, text, sizeof(text)), "5 min 3 s");
    EXPECT_STREQ(ng_table_duration(7260 * NG_S, text, sizeof(text)), "2 h 1 min");
    EXPECT_STREQ(ng_table_duration(-5, text, sizeof(text)), "0 ms");
}

} /* namespace */

TEST(Table, TellsMemoryAndWhatIsRegistered)
{
    Job job(2, 0x1111, "world", 6);
    job.process(0).memory_kinds = 6;
    job.process(0).memory[0] = {10, UINT64_C(3) << 30};
    job.process(0).memory[4] = {2, UINT64_C(1) << 29};
    job.at(0x1111, 0).registration = {true, false, 2, 1 << 20, 4000, 3000, 2, 0, 1, 0, 5000000};
    job.at(0x1111, 1).registration = {true, true, 0, 0, 4000, 0, 0, 0, 0, 0, 0};
    Seen seen(job);
    EXPECT_NE(seen.text().find("12, 3.5 GiB"), std::string::npos) << seen.text();
    EXPECT_NE(seen.text().find("2, 1 MiB, 75%"), std::string::npos) << seen.text();

    Json document(seen.json());
    json_t *memory = get(json_array_get(get(document.root, "processes"), 0), "memory");
    EXPECT_EQ(number(memory, "segments"), 12);
    EXPECT_EQ(json_integer_value(get(memory, "bytes")), (INT64_C(7) << 29));
    EXPECT_EQ(number(memory, "registered_segments"), 2);
    EXPECT_EQ(number(memory, "registered_bytes"), 1 << 20);
    EXPECT_EQ(number(get(get(memory, "kinds"), "nccl"), "segments"), 2);
    json_t *unknown = json_array_get(get(document.root, "processes"), 1);
    EXPECT_EQ(word(unknown, "memory"), "null");
    json_t *group = get(json_array_get(get(document.root, "groups"), 0), "registration");
    EXPECT_EQ(number(group, "bytes"), 8000);
    EXPECT_EQ(number(group, "registered_bytes"), 3000);
    EXPECT_DOUBLE_EQ(json_real_value(get(group, "share")), 0.37);
    EXPECT_EQ(number(group, "failed"), 1);
    EXPECT_EQ(number(group, "spent_ns"), 5000000);
    EXPECT_TRUE(json_is_false(get(group, "closed"))) << "one of them goes on";
}

TEST(Table, HasNoColumnsOfMemoryThatNobodyFollows)
{
    Job job(2, 0x1111, "world");
    Seen seen(job);
    EXPECT_EQ(seen.text().find("MEMORY"), std::string::npos);
    EXPECT_EQ(seen.text().find("REGISTERED"), std::string::npos);
}
