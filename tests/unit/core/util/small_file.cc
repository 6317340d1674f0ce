/*
 * Small files read whole: how much, and what is none.
 */
#include "tests/unit/core/helpers/core.h"

extern "C" {
#include "core/util/small_file.h"
}

namespace
{

struct SmallFile : testing::Test {
    std::string at(const char *name) const
    {
        return folder_ / name;
    }
    std::string put(const char *name, const std::string &text) const
    {
        write_whole_file(at(name), text);
        return at(name);
    }
    Folder folder_;
};

TEST_F(SmallFile, IsReadUpToTheRoomThatThereIs)
{
    std::string path = put("file", "0123456789");
    char bytes[32];
    EXPECT_EQ(ng_small_file_read(AT_FDCWD, path.c_str(), bytes, sizeof(bytes)), 10);
    EXPECT_EQ(std::string(bytes, 10), "0123456789");
    EXPECT_EQ(ng_small_file_read(AT_FDCWD, path.c_str(), bytes, 10), 10);
    EXPECT_EQ(ng_small_file_read(AT_FDCWD, path.c_str(), bytes, 4), 4) << "there is more";
    EXPECT_EQ(ng_small_file_read(AT_FDCWD, put("empty", "").c_str(), bytes, 4), 0);
}

TEST_F(SmallFile, AsTextIsEndedByAZero)
{
    std::string path = put("file", "0123456789");
    char text[32];
    memset(text, 'x', sizeof(text));
    EXPECT_EQ(ng_small_file_read_text(path.c_str(), text, sizeof(text)), 10);
    EXPECT_STREQ(text, "0123456789");
    EXPECT_EQ(ng_small_file_read_text(path.c_str(), text, 5), 4);
    EXPECT_STREQ(text, "0123");
    EXPECT_GT(ng_small_file_read_text("/proc/self/status", text, sizeof(text)), 0)
        << "its size is told as 0";
}

TEST_F(SmallFile, WhatIsNoneIsToldAndNotWaitedFor)
{
    char byte;
    ASSERT_EQ(mkfifo(at("fifo").c_str(), 0600), 0);
    EXPECT_EQ(ng_small_file_read(AT_FDCWD, at("fifo").c_str(), &byte, 1), -ENOTSUP);
    EXPECT_EQ(ng_small_file_read(AT_FDCWD, "/dev/zero", &byte, 1), -ENOTSUP);
    EXPECT_EQ(ng_small_file_read(AT_FDCWD, folder_.path().c_str(), &byte, 1), -EISDIR);
    EXPECT_EQ(ng_small_file_read(AT_FDCWD, at("nothing").c_str(), &byte, 1), -ENOENT);
}

} // namespace
