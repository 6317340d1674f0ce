/*
 * Text that somebody else wrote, made fit for a log, a terminal and a file.
 */
#include "tests/unit/core/helpers/core.h"

extern "C" {
#include "core/util/text.h"
}

static std::string clean(std::string text, bool lines = false)
{
    /* At the very end of its memory: reading beyond is seen. */
    std::vector<char> exact(text.c_str(), text.c_str() + text.size() + 1);
    size_t bytes = ng_text_clean(exact.data(), text.size(), lines);
    EXPECT_EQ(strlen(exact.data()), bytes);
    return std::string(exact.data(), bytes);
}

TEST(Text, WhatIsPlainStays)
{
    for (const char *text : {"", "a", "rank 2 (host gpu-1)", "größer als 3 µs …", "部屋 🚀", "~"})
        EXPECT_EQ(clean(text), text);
    EXPECT_EQ(clean("a\tb\nc", true), "a\tb\nc");
}

TEST(Text, ControlsAndMarksThatHideTextAreReplaced)
{
    EXPECT_EQ(clean("\x1b[31mred\x1b[0m"), "?[31mred?[0m");
    EXPECT_EQ(clean("one\ntwo\r\tthree\x7f"), "one?two??three?");
    EXPECT_EQ(clean("\x1b]0;title\x07", true), "?]0;title?") << "of a document, too";
    EXPECT_EQ(clean("a\r\nb", true), "a?\nb");
    EXPECT_EQ(clean("\xc2\x9b"
                    "31m"),
              "?31m")
        << "a control character of two bytes";
    EXPECT_EQ(clean("log\xe2\x80\xae"
                    "exe"),
              "log?exe")
        << "from right to left";
    EXPECT_EQ(clean("a\xe2\x80\xa8"
                    "b\xe2\x81\xa6"
                    "c"),
              "a?b?c");
    EXPECT_EQ(clean(std::string("a\0b\0", 4)), "a?b?");
}

TEST(Text, BytesThatAreNoUtf8AreReplacedAndACutOffEndGoes)
{
    EXPECT_EQ(clean("\xff\xfe."), "??.");
    EXPECT_EQ(clean("a\xc3(b"), "a?(b");
    EXPECT_EQ(clean("\xed\xa0\x80."), "???.") << "a surrogate";
    EXPECT_EQ(clean("\xc0\xaf"), "??") << "a longer form than there need be";
    EXPECT_EQ(clean("caf\xc3"), "caf");
    EXPECT_EQ(clean("caf\xe2\x82"), "caf");
    EXPECT_EQ(clean("\xf0\x9f\x9a"), "");
    EXPECT_EQ(clean("caf\x80"), "caf?") << "the end of something that has not begun";
}

TEST(Text, NothingGetsLongerAndOnceIsEnough)
{
    std::mt19937_64 random(3);
    for (int i = 0; i < 20000; i++) {
        std::string text(random() % 40, ' ');
        for (char &c : text)
            c = random() % 3 ? (char)random() : (char)('a' + random() % 26);
        std::string once = clean(text);
        EXPECT_LE(once.size(), text.size());
        EXPECT_EQ(clean(once), once);
        for (unsigned char c : once)
            EXPECT_TRUE(c >= ' ' && c != 127);
    }
}

static std::string ranks(std::vector<int> values, size_t bytes = 256)
{
    std::string text(bytes, '\xee');
    ng_text_ranks(values.data(), (uint32_t)values.size(), &text[0], bytes);
    return std::string(text.c_str());
}

TEST(Text, RanksAreCompressed)
{
    EXPECT_EQ(ranks({}), "none");
    EXPECT_EQ(ranks({5}), "5");
    EXPECT_EQ(ranks({0, 1}), "0,1");
    EXPECT_EQ(ranks({0, 1, 2, 5}), "0-2,5");
    EXPECT_EQ(ranks({0, 2, 4}), "0,2,4");
    EXPECT_EQ(ranks({3, 4, 5, 6, 8, 9, 10}), "3-6,8-10");
    EXPECT_EQ(ranks({1, 1, 2, 3}), "1-3");
    EXPECT_EQ(ranks({-1, 0, 1, 2}), "?,0-2");
    std::vector<int> many;
    for (int i = 0; i < 1000; i++)
        many.push_back(2 * i);
    for (size_t bytes = 16; bytes < 64; bytes++) {
        std::string text = ranks(many, bytes);
        EXPECT_LT(text.size(), bytes);
        EXPECT_EQ(text.substr(text.size() - 4), ",...") << text;
    }
}

TEST(Text, OneRankIsNotRanks)
{
    for (const auto &one : std::vector<std::vector<int>>{{0}, {15}, {-1}})
        EXPECT_STREQ(ng_text_rank_noun(ranks(one).c_str()), "rank");
    for (const auto &several : std::vector<std::vector<int>>{{0, 1}, {0, 1, 2}, {-1, 3}})
        EXPECT_STREQ(ng_text_rank_noun(ranks(several).c_str()), "ranks");
}
