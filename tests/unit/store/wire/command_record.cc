/*
 * Commands of an operator as records, and back.
 */
#include "tests/unit/store/publish/ranks.h"

extern "C" {
#include "core/config/settable.h"
}

static struct ng_command random_command(std::mt19937_64 &random, int kind)
{
    struct ng_command command = {.kind = (enum ng_command_kind)kind,
                                 .source = NG_SOURCE_JOB,
                                 .group_id = random(),
                                 .rank =
                                     kind == NG_COMMAND_DUMP ? (int32_t)(random() >> 34) - 1 : -1,
                                 .for_ns = (int64_t)(random() >> 1)};
    snprintf(kind == NG_COMMAND_DUMP ? command.path : command.line, sizeof(command.line),
             "/%016llx", (unsigned long long)random());
    if (kind == NG_COMMAND_SET) {
        command.set[NG_SETTABLE_LOG] = (uint8_t)(random() % 6);
        command.set[NG_SETTABLE_TIMING] = (uint8_t)(1 + random() % 3);
    }
    return command;
}

static std::string encoded(const struct ng_command &command)
{
    unsigned char bytes[NG_INCIDENT_RECORD_BYTES];
    struct ng_incident record;
    ng_command_record(&command, &record);
    record.epoch = 7;
    size_t length = ng_incident_encode(&record, bytes);
    return std::string(reinterpret_cast<char *>(bytes), length);
}

static int decoded(const std::string &bytes, struct ng_news *ret_news)
{
    struct ng_incident record;
    int error = ng_incident_decode(bytes.data(), bytes.size(), &record);
    if (!error)
        ng_record_news(&record, ret_news);
    return error;
}

static uint64_t number(const std::string &bytes, size_t number)
{
    uint64_t value = 0;
    for (size_t i = 0; i < 8; i++)
        value |= (uint64_t)(unsigned char)bytes[8 * number + i] << 8 * i;
    return value;
}

static void put_number(std::string &bytes, size_t number, uint64_t value)
{
    for (size_t i = 0; i < 8; i++)
        bytes[8 * number + i] = (char)(value >> 8 * i);
}

TEST(Commands, ComeBackAsTheyWere)
{
    std::mt19937_64 random(1);
    for (int i = 0; i < 400; i++) {
        struct ng_command before = random_command(random, 1 + i % (NG_COMMAND_LIMIT - 1));
        struct ng_news news = {};
        ASSERT_EQ(decoded(encoded(before), &news), 0);
        ASSERT_TRUE(news.is_command);
        EXPECT_EQ(news.epoch, 7u);
        EXPECT_EQ(news.command.kind, before.kind);
        EXPECT_EQ(news.command.source, before.source);
        EXPECT_EQ(news.command.group_id, before.group_id);
        EXPECT_EQ(news.command.rank, before.rank);
        EXPECT_EQ(news.command.for_ns, before.for_ns);
        EXPECT_EQ(memcmp(news.command.set, before.set, sizeof(before.set)), 0);
        EXPECT_STREQ(news.command.line, before.line);
        EXPECT_STREQ(news.command.path, before.path);
    }
}

/* `ncclguard` may be newer than a job that runs, or older. */
TEST(Commands, AreWrittenAsOtherReleasesReadThem)
{
    std::mt19937_64 random(2);
    for (int kind :
         {NG_COMMAND_ABORT, NG_COMMAND_DUMP, NG_COMMAND_REST, NG_COMMAND_RELOAD, NG_COMMAND_SET}) {
        struct ng_command command = random_command(random, kind);
        std::string bytes = encoded(command);
        EXPECT_EQ(number(bytes, 0), 0x4e43474905000000u);
        EXPECT_EQ(number(bytes, 2), 2u + (unsigned)kind);
        EXPECT_EQ(number(bytes, 3), 2u);
        EXPECT_EQ(number(bytes, 4), command.group_id);
        EXPECT_EQ(number(bytes, 5), kind == NG_COMMAND_SET
                                        ? command.set[0] | (uint64_t)command.set[1] << 8
                                        : (uint64_t)(command.rank + 1));
        EXPECT_EQ(number(bytes, 13), (uint64_t)command.for_ns);
        EXPECT_EQ(bytes.substr(8 * 15), kind == NG_COMMAND_DUMP ? command.path : command.line);
    }
}

/* One that only a later release knows is not obeyed in part. */
TEST(Commands, ValuesThatThereAreNotAreRefused)
{
    std::mt19937_64 random(4);
    std::string bytes = encoded(random_command(random, NG_COMMAND_SET));
    struct ng_news news = {};
    for (uint64_t wrong : {UINT64_C(0), UINT64_C(6), UINT64_C(0x400), UINT64_C(0x601),
                           UINT64_C(0x10001), UINT64_C(0x1000001)}) {
        put_number(bytes, 5, wrong);
        EXPECT_EQ(decoded(bytes, &news), -EBADMSG) << wrong;
    }
    for (uint64_t right : {UINT64_C(1), UINT64_C(5), UINT64_C(0x100), UINT64_C(0x305)}) {
        put_number(bytes, 5, right);
        EXPECT_EQ(decoded(bytes, &news), 0) << right;
    }
}

TEST(Commands, WhatNoToolWritesIsRefused)
{
    std::mt19937_64 random(3);
    const struct {
        size_t number;
        std::vector<uint64_t> wrong, right;
    } cases[] = {
        {2, {NG_RECORD_LEVEL_LIMIT, 255}, {3, 4, 5, 6}},
        {3, {NG_INCIDENT_CLAIMED}, {NG_INCIDENT_JUDGED}},
        {5, {(uint64_t)INT32_MAX + 1, UINT64_C(1) << 32, UINT64_MAX}, {0, INT32_MAX}},
        {13, {UINT64_C(1) << 63, UINT64_MAX}, {0, INT64_MAX}},
    };
    for (const auto &one : cases) {
        std::string bytes = encoded(random_command(random, NG_COMMAND_DUMP));
        struct ng_news news = {};
        for (uint64_t value : one.wrong) {
            put_number(bytes, one.number, value);
            EXPECT_EQ(decoded(bytes, &news), -EBADMSG) << one.number << ": " << value;
        }
        for (uint64_t value : one.right) {
            put_number(bytes, one.number, value);
            EXPECT_EQ(decoded(bytes, &news), 0) << one.number << ": " << value;
        }
    }
}
