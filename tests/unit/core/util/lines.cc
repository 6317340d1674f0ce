/*
 * Files read line by line: whole lines, whatever the size of the buffer.
 */
#include "tests/unit/core/helpers/core.h"

extern "C" {
#include "core/util/lines.h"
}

namespace
{

struct Taken {
    std::vector<std::string> lines;
    size_t most = SIZE_MAX;
};

bool take(void *context, char *line)
{
    auto *taken = (Taken *)context;
    taken->lines.push_back(line);
    line[0] = '\0'; /* it may be changed */
    return taken->lines.size() < taken->most;
}

struct Lines : testing::Test {
    Taken of(const std::string &text, size_t bytes, size_t most = SIZE_MAX)
    {
        Taken taken;
        taken.most = most;
        write_whole_file(folder / "file", text);
        std::vector<char> buffer(bytes);
        EXPECT_EQ(ng_lines_each((folder / "file").c_str(), buffer.data(), bytes, take, &taken), 0);
        return taken;
    }
    Folder folder;
};

using Texts = std::vector<std::string>;

TEST_F(Lines, AreTakenWholeByABufferOfAnySizeThatHoldsTheLongest)
{
    for (size_t bytes = 7; bytes < 30; bytes++)
        EXPECT_EQ(of("one\n\nthree\nfour4\n", bytes).lines, (Texts{"one", "", "three", "four4"}))
            << bytes;
}

TEST_F(Lines, EndWhereTheyAreEnough)
{
    EXPECT_EQ(of("1\n2\n3\n", 64, 2).lines, (Texts{"1", "2"}));
    EXPECT_EQ(of("1\n2\n3\n", 4, 2).lines, (Texts{"1", "2"}));
}

TEST_F(Lines, WithoutANewlineAreNone)
{
    EXPECT_EQ(of("one\ntwo", 64).lines, (Texts{"one"}));
    EXPECT_EQ(of("", 64).lines, Texts());
}

TEST_F(Lines, ThatAreTooLongSpoilNoOther)
{
    std::string line(100, 'x');
    Taken taken = of("one\n" + line + "\ntwo\n", 16);
    ASSERT_GE(taken.lines.size(), 2u);
    EXPECT_EQ(taken.lines.front(), "one");
    EXPECT_EQ(taken.lines.back(), "two");
    for (const std::string &each : taken.lines)
        EXPECT_LT(each.size(), 16u);
}

TEST_F(Lines, OfAFileThatIsNotThereAreAnError)
{
    Taken taken;
    char buffer[16];
    EXPECT_EQ(ng_lines_each((folder / "none").c_str(), buffer, sizeof(buffer), take, &taken),
              -ENOENT);
    EXPECT_EQ(ng_lines_each(folder.path().c_str(), buffer, sizeof(buffer), take, &taken), -EISDIR);
    EXPECT_TRUE(taken.lines.empty());
}

} // namespace
