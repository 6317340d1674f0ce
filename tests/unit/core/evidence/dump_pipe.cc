/*
 * The FIFO that asks for a dump: made, heard, and nothing of anybody else's touched.
 */
#include "tests/unit/core/helpers/core.h"

#include "tests/unit/core/helpers/plain_threads.h"

extern "C" {
#include "core/evidence/dump_pipe.h"
}

namespace
{

/* A process of rank 3 whose variable names `prefix`. */
struct Pipe : NotCopied {
    explicit Pipe(const std::string &prefix)
    {
        make_dump_pipe(prefix.c_str(), 3);
    }
    ~Pipe()
    {
        ng_dump_pipe_finish();
    }
};

struct stat status_of(const std::string &path)
{
    struct stat status = {};
    lstat(path.c_str(), &status);
    return status;
}

void tell(const std::string &path, const std::string &text)
{
    int fd = open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    ASSERT_GE(fd, 0) << strerror(errno);
    EXPECT_EQ(write(fd, text.data(), text.size()), (ssize_t)text.size());
    close(fd);
}

TEST(DumpPipe, IsOfThisUserAloneAndGoneAtTheEnd)
{
    Folder folder;
    {
        Pipe pipe(folder / "dump-");
        struct stat status = status_of(folder / "dump-3.pipe");
        EXPECT_TRUE(S_ISFIFO(status.st_mode));
        EXPECT_EQ(status.st_mode & 0777, 0600u);
    }
    EXPECT_TRUE(folder.names().empty());
}

TEST(DumpPipe, AsksOnceForWhateverIsWritten)
{
    Folder folder;
    Pipe pipe(folder / "dump-");
    EXPECT_FALSE(ng_dump_pipe_asked());
    for (const std::string &text : {std::string("1\n"), std::string(60000, 'x')}) {
        tell(folder / "dump-3.pipe", text);
        EXPECT_TRUE(ng_dump_pipe_asked());
        EXPECT_FALSE(ng_dump_pipe_asked());
    }
}

TEST(DumpPipe, TakesOverWhatAKilledRunLeft)
{
    Folder folder;
    ASSERT_EQ(mkfifo((folder / "dump-3.pipe").c_str(), 0666), 0);
    Pipe pipe(folder / "dump-");
    EXPECT_EQ(status_of(folder / "dump-3.pipe").st_mode & 0777, 0600u);
    tell(folder / "dump-3.pipe", "x");
    EXPECT_TRUE(ng_dump_pipe_asked());
}

TEST(DumpPipe, WhatIsNoFifoStaysAndIsNamed)
{
    Folder folder;
    write_whole_file(folder / "dump-3.pipe", "somebody's");
    testing::internal::CaptureStderr();
    {
        Pipe pipe(folder / "dump-");
        EXPECT_FALSE(ng_dump_pipe_asked());
    }
    std::string log = testing::internal::GetCapturedStderr();
    EXPECT_NE(log.find("no FIFO of yours"), std::string::npos) << log;
    EXPECT_NE(log.find(folder / "dump-3.pipe"), std::string::npos) << log;
    EXPECT_EQ(read_whole_file(folder / "dump-3.pipe"), "somebody's");
}

TEST(DumpPipe, ALinkIsNotFollowed)
{
    Folder folder;
    ASSERT_EQ(mkfifo((folder / "other").c_str(), 0600), 0);
    ASSERT_EQ(symlink("other", (folder / "dump-3.pipe").c_str()), 0);
    {
        Pipe pipe(folder / "dump-");
    }
    EXPECT_EQ(folder.names(), (std::vector<std::string>{"dump-3.pipe", "other"}));
}

TEST(DumpPipe, AnotherOfItsNameStaysAtTheEnd)
{
    Folder folder;
    {
        Pipe pipe(folder / "dump-");
        ASSERT_EQ(mkfifo((folder / "new").c_str(), 0600), 0);
        ASSERT_EQ(rename((folder / "new").c_str(), (folder / "dump-3.pipe").c_str()), 0);
    }
    EXPECT_EQ(folder.names(), (std::vector<std::string>{"dump-3.pipe"}));
}

TEST(DumpPipe, WithoutTheVariableThereIsNone)
{
    Pipe pipe("");
    EXPECT_FALSE(ng_dump_pipe_asked());
}

} // namespace
