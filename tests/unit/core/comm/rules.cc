/*
 * Rules of groups: what a line may say, what is told of one that cannot be read, and which of them
 * hold for a group.
 */
#include "tests/unit/core/helpers/core.h"

#define _Atomic
extern "C" {
#include "core/comm/rules.h"
}
#undef _Atomic

namespace
{

constexpr int64_t S = NG_S;

/* Rules from a text, and what was told of it. */
struct Rules {
    explicit Rules(const std::string &text) : rules(std::make_unique<ng_rules>())
    {
        mistakes = ng_rules_parse("my.rules", text.data(), text.size(), rules.get(), keep, this);
    }
    static void keep(void *context, const char *line)
    {
        ((Rules *)context)->told.push_back(line);
    }

    std::unique_ptr<ng_rules> rules;
    uint32_t mistakes;
    std::vector<std::string> told;
};

/* What rules say of a group. */
struct Said {
    ng_deadline_limits limits;
    char name[NG_RULES_NAME];

    int64_t timeout(ng_op op = NG_OP_AllReduce) const
    {
        return limits.timeout_ns[op];
    }
};

ng_rules_group some_group()
{
    return {.name = "tp_3",
            .id = 0x00c0ffee00c0ffee,
            .parent_id = 0x1111111111111111,
            .parent_name = "world",
            .nranks = 8,
            .device = 2,
            .pci_id = "0000:1b:00.0"};
}

Said match(const std::string &text, const ng_rules_group &group = some_group())
{
    Rules read(text);
    Said said;
    EXPECT_EQ(read.mistakes, 0u) << (read.told.empty() ? "" : read.told[0]);
    ng_rules_match(read.rules.get(), &group, &said.limits, said.name);
    return said;
}

bool holds(const std::string &condition, const ng_rules_group &group = some_group())
{
    return match(condition + " : timeout=2s", group).timeout() == 2 * S;
}

std::string mistake(const std::string &text)
{
    Rules read(text);
    EXPECT_EQ(read.mistakes, 1u) << text;
    return read.told.empty() ? "" : read.told[0];
}

} // namespace

TEST(Rules, AConditionHoldsOrNot)
{
    for (const char *text : {"*",
                             "group=tp_3",
                             "group=tp_?",
                             "group=tp_[0-7]",
                             "group=*",
                             "group=00c0ffee00c0ffee",
                             "group=00C0FFEE*",
                             "size=8",
                             "size=2..8",
                             "size=8..",
                             "size=..8",
                             "parent=world",
                             "parent=1111*",
                             "device=2",
                             "device=0..3",
                             "device=0000:1b:*",
                             "device=0000:1B:00.0",
                             "op=AllReduce",
                             "op=ncclAllReduce,Send",
                             "op=allreduce",
                             "op=All*",
                             "group=tp_* size=8 parent=w* device=2 op=*",
                             "group=\"tp_3\""})
        EXPECT_TRUE(holds(text)) << text;
    for (const char *text : {"group=tp", "group=TP_3", "group=\"\"?", "group=00c0ffee", "size=7",
                             "size=9..", "size=..7", "parent=tp_3", "device=3", "device=3..",
                             "device=0000:1c:*", "op=Send", "op=Comm*", "group=tp_3 size=9"})
        EXPECT_FALSE(holds(text)) << text;
}

TEST(Rules, AConditionOnWhatIsNotKnownYetDoesNotHold)
{
    ng_rules_group unknown = {.name = "",
                              .id = 0,
                              .parent_id = 0,
                              .parent_name = "",
                              .nranks = 0,
                              .device = -1,
                              .pci_id = ""};
    for (const char *text :
         {"size=0..", "size=1..", "parent=*", "device=0..", "device=*", "group=?*", "group=0000*"})
        EXPECT_EQ(holds(text, unknown), strcmp(text, "size=0..") == 0) << text;
    EXPECT_TRUE(holds("*", unknown));
    EXPECT_TRUE(holds("group=*", unknown));
}

TEST(Rules, WithoutOperationsARuleIsForWhatRunsOnTheGroupAndNotForMakingIt)
{
    Said said = match("* : timeout=2s");
    for (ng_op op : {NG_OP_NONE, NG_OP_AllReduce, NG_OP_Send, NG_OP_PutSignal, NG_OP_GroupEnd})
        EXPECT_EQ(said.timeout(op), 2 * S) << op;
    for (ng_op op : {NG_OP_CommInitRank, NG_OP_CommSplit, NG_OP_CommFinalize, NG_OP_CommDestroy})
        EXPECT_EQ(said.timeout(op), 0) << op;
    said = match("op=Comm*,Send : timeout=2s suspect=1s");
    EXPECT_EQ(said.timeout(NG_OP_CommSplit), 2 * S);
    EXPECT_EQ(said.timeout(NG_OP_Send), 2 * S);
    EXPECT_EQ(said.limits.suspect_ns[NG_OP_Send], S);
    EXPECT_EQ(said.timeout(NG_OP_Recv), 0);
    EXPECT_EQ(said.timeout(NG_OP_NONE), 0);
}

TEST(Rules, OfSeveralThatHoldEachSettingIsTheLastOnes)
{
    Said said = match("* : timeout=9s suspect=1s policy=log\n"
                      "op=Send : timeout=3s\n"
                      "size=8 : timeout=5s\n"
                      "size=9 : timeout=6s\n");
    EXPECT_EQ(said.timeout(), 5 * S);
    EXPECT_EQ(said.timeout(NG_OP_Send), 5 * S);
    EXPECT_EQ(said.limits.suspect_ns[NG_OP_AllReduce], S);
    EXPECT_EQ(said.limits.policy[NG_OP_AllReduce], NG_ON_TIMEOUT_LOG + 1);
}

TEST(Rules, APolicyAndChecksAreOfAllOperationsOrOfThoseThatARuleNames)
{
    Said said = match("* : policy=log check=tell\n"
                      "op=Comm*,Send : policy=abort check=refuse\n"
                      "op=CommSplit : policy=kill\n");
    for (ng_op op : {NG_OP_NONE, NG_OP_AllReduce, NG_OP_Recv}) {
        EXPECT_EQ(said.limits.policy[op], NG_ON_TIMEOUT_LOG + 1) << op;
        EXPECT_EQ(said.limits.check[op], NG_RULE_CHECK_TELL) << op;
    }
    for (ng_op op : {NG_OP_Send, NG_OP_CommInitRank}) {
        EXPECT_EQ(said.limits.policy[op], NG_ON_TIMEOUT_ABORT + 1) << op;
        EXPECT_EQ(said.limits.check[op], NG_RULE_CHECK_REFUSE) << op;
    }
    EXPECT_EQ(said.limits.policy[NG_OP_CommSplit], NG_ON_TIMEOUT_KILL + 1);
    EXPECT_EQ(said.limits.check[NG_OP_CommSplit], NG_RULE_CHECK_REFUSE);
}

TEST(Rules, ZeroMeansNoDeadlineRatherThanNothing)
{
    Said said = match("* : timeout=0 suspect=0s");
    EXPECT_EQ(said.timeout(), NG_DEADLINE_NONE);
    EXPECT_EQ(said.limits.suspect_ns[NG_OP_AllReduce], NG_DEADLINE_NONE);
}

TEST(Rules, ANameIsForAGroupWithoutOneAndRenameForAny)
{
    ng_rules_group group = some_group(), nameless = some_group();
    nameless.name = "";
    EXPECT_STREQ(match("* : name=mine", group).name, "tp_3");
    EXPECT_STREQ(match("* : name=mine", nameless).name, "mine");
    EXPECT_STREQ(match("* : rename=mine", group).name, "mine");
    EXPECT_STREQ(match("* : name=\"data parallel\"", nameless).name, "data parallel");
    EXPECT_STREQ(match("size=9 : rename=mine", group).name, "tp_3");
    EXPECT_STREQ(match("").name, "tp_3");
}

TEST(Rules, LaterRulesMatchTheNameThatAnEarlierOneGave)
{
    ng_rules_group nameless = some_group();
    nameless.name = "";
    Said said = match("size=8 : name=tensor\n"
                      "group=tensor : timeout=2s\n",
                      nameless);
    EXPECT_STREQ(said.name, "tensor");
    EXPECT_EQ(said.timeout(), 2 * S);
}

TEST(Rules, CommentsBlankLinesAndSpacesAreFree)
{
    Rules read(
        "# a comment\n\n   \t\r\n  size=8:timeout=2s # : another\r\n\tsize=9\t:\ttimeout=3s");
    ASSERT_EQ(read.mistakes, 1u) << "the colon of the fourth line stands before no space";
    Rules good(
        "# a comment\n\n   \t\r\n  size=8: timeout=2s # : another\r\n\tsize=9\t:\ttimeout=3s");
    EXPECT_EQ(good.mistakes, 0u) << good.told[0];
    EXPECT_EQ(good.rules->count, 2u);
    EXPECT_EQ(match("group=\"a # : b\" : timeout=2s").timeout(), 0);
    EXPECT_EQ(Rules("").rules->count, 0u);
}

TEST(Rules, AMistakeNamesFileLineValueAndMend)
{
    static const struct {
        const char *text;
        const char *told;
    } rows[] = {
        {"\n\nsize=abc : timeout=2s",
         "my.rules:3: size=abc is not valid: use a number of ranks, or a range: 2..8, 64.., ..4"},
        {"size=8..2 : timeout=2s", "my.rules:1: size=8..2 is not valid: use a number of ranks"},
        {"size=99999999999 : timeout=2s", "my.rules:1: size=99999999999 is not valid"},
        {"size=.. : timeout=2s", "my.rules:1: size=.. is not valid"},
        {"device=x : timeout=2s", "my.rules:1: device=x is not valid: use a number, a range"},
        {"op=AllRduce : timeout=2s", "op=AllRduce: no operation is called so; use NCCL's names"},
        {"op=AllReduce, : timeout=2s", "op=: no operation is called so"},
        {"* : timeout=2d", "timeout=2d is not valid: use seconds, or a number with ms, s, m or h"},
        {"* : policy=explode", "policy=explode is not valid: use one of: log"},
        {"* : check=args", "check=args is not valid: use one of: off, tell, refuse, end"},
        {"* : grupe=x", "grupe= is not known: right of the colon stand timeout, suspect, policy"},
        {"grupe=x : name=x", "grupe= is not known: left of the colon stand group, size, parent"},
        {"timeout=2s : size=8", "timeout= stands left of the colon: write it right of it"},
        {"* : size=8", "size= stands right of the colon: write it left of it"},
        {"size=8 timeout : name=x", "timeout is not understood: left of the colon stand group"},
        {"size=8", "there is no colon: write conditions : settings, such as `size=8 : timeout"},
        {": timeout=2s", "nothing stands left of the colon: write * for every group"},
        {"size=8 :", "nothing stands right of the colon: write a setting, such as timeout=30s"},
        {"size=8 : timeout=2s : name=x", "there are two colons: write each rule on a line of its"},
        {"size=8 size=9 : name=x", "size= stands there twice: leave one"},
        {"group= : name=x", "group= has no value: write one, or leave it out"},
        {"group=\"a b : name=x", "a quote is not closed: write \" at the end of the value"},
        {"op=Send : name=x", "name= is of a whole group: leave op= out, or write two rules"},
        {"op=Send : rename=x", "rename= is of a whole group: leave op= out"},
    };
    for (const auto &row : rows) {
        std::string told = mistake(row.text);
        EXPECT_NE(told.find(row.told), std::string::npos) << row.text << "\n" << told;
        EXPECT_EQ(told.rfind("my.rules:", 0), 0u) << told;
    }
    EXPECT_NE(mistake("* : name=" + std::string(64, 'n')).find("use at most 63 bytes"),
              std::string::npos);
    EXPECT_NE(mistake("group=" + std::string(256, 'n') + " : name=x").find("longer than 255 bytes"),
              std::string::npos);
    EXPECT_NE(mistake("* : name=a\x1b[31m").find("control characters"), std::string::npos);
    EXPECT_EQ(mistake("* : name=a\x1b[31m").find('\x1b'), std::string::npos);
}

TEST(Rules, EveryMistakeIsCountedAndTheFirstAreTold)
{
    std::string text;
    for (int i = 0; i < 20; i++)
        text += "size=x : name=y\n";
    Rules read(text);
    EXPECT_EQ(read.mistakes, 20u);
    ASSERT_EQ(read.told.size(), NG_RULES_TOLD + 1);
    EXPECT_EQ(read.told.back(), "and 12 more mistakes");
}

TEST(Rules, WhatIsTooMuchIsRefused)
{
    EXPECT_NE(mistake(std::string(NG_RULES_BYTES_MAX + 1, ' ')).find("larger than 65536 bytes"),
              std::string::npos);
    EXPECT_NE(mistake(std::string("* : name=x\0y", 12)).find("zero byte"), std::string::npos);
    std::string text;
    for (unsigned i = 0; i < NG_RULES_MAX; i++)
        text += "* : timeout=2s\n";
    EXPECT_EQ(Rules(text).mistakes, 0u);
    EXPECT_NE(mistake(text + "* : timeout=2s\n").find("more than 256 rules"), std::string::npos);
    EXPECT_EQ(Rules(std::string(NG_RULES_BYTES_MAX, '#')).mistakes, 0u);
}

/* Bytes as they come, and lines made of what rules are made of: never a crash, and what is read can
 * be matched. */
/* Of a group that is not known, any rule may hold that does not hold for all, and the last that
 * does replaces those before it. */
TEST(Rules, TheGravestPolicyIsThatOfAnyRuleWhichMayHold)
{
    const struct {
        const char *text;
        ng_on_timeout otherwise, gravest;
    } cases[] = {
        {"", NG_ON_TIMEOUT_LOG, NG_ON_TIMEOUT_LOG},
        {"", NG_ON_TIMEOUT_KILL, NG_ON_TIMEOUT_KILL},
        {"group=pp_* : policy=kill", NG_ON_TIMEOUT_LOG, NG_ON_TIMEOUT_KILL},
        {"group=pp_* : policy=log", NG_ON_TIMEOUT_ABORT, NG_ON_TIMEOUT_ABORT},
        {"* : policy=log", NG_ON_TIMEOUT_KILL, NG_ON_TIMEOUT_LOG},
        {"size=8 : policy=kill\n* : policy=abort", NG_ON_TIMEOUT_LOG, NG_ON_TIMEOUT_ABORT},
        {"* : policy=abort\ndevice=1 : policy=teardown\nparent=w : policy=log", NG_ON_TIMEOUT_LOG,
         NG_ON_TIMEOUT_TEARDOWN},
        {"op=Broadcast : policy=kill", NG_ON_TIMEOUT_ABORT, NG_ON_TIMEOUT_ABORT},
        {"op=AllReduce : policy=kill", NG_ON_TIMEOUT_ABORT, NG_ON_TIMEOUT_KILL},
        {"* : timeout=1s", NG_ON_TIMEOUT_ABORT, NG_ON_TIMEOUT_ABORT},
    };
    for (const auto &one : cases) {
        Rules read(one.text);
        ASSERT_EQ(read.mistakes, 0u) << one.text;
        EXPECT_EQ(ng_rules_gravest(read.rules.get(), NG_OP_AllReduce, one.otherwise), one.gravest)
            << one.text;
    }
}

TEST(Rules, TheMildestPolicyIsThatOfAnyRule)
{
    const struct {
        const char *text;
        ng_on_timeout otherwise, mildest;
    } cases[] = {
        {"", NG_ON_TIMEOUT_KILL, NG_ON_TIMEOUT_KILL},
        {"group=pp_* : policy=log", NG_ON_TIMEOUT_KILL, NG_ON_TIMEOUT_LOG},
        {"op=Broadcast : policy=abort", NG_ON_TIMEOUT_KILL, NG_ON_TIMEOUT_ABORT},
        {"* : policy=kill", NG_ON_TIMEOUT_TEARDOWN, NG_ON_TIMEOUT_TEARDOWN},
        {"* : timeout=1s", NG_ON_TIMEOUT_KILL, NG_ON_TIMEOUT_KILL},
    };
    for (const auto &one : cases) {
        Rules read(one.text);
        ASSERT_EQ(read.mistakes, 0u) << one.text;
        EXPECT_EQ(ng_rules_mildest(read.rules.get(), one.otherwise), one.mildest) << one.text;
    }
}

TEST(Rules, NoTextDoesHarm)
{
    static const char *const pieces[] = {
        "group", "size",   "=",           "*",      ":",          " : ",         "..", "\"",
        "\n",    "name",   "op",          "Send",   ",",          "[",           "[!", "]",
        "\\",    "8",      "#",           "\t",     "timeout",    "rename",      "2s", "\x80",
        "-1",    "device", "[[:alpha:]]", "parent", "policy=log", "99999999999", "?"};
    std::mt19937 random(20);
    ng_rules_group group = some_group();
    auto limits = std::make_unique<ng_deadline_limits>();
    char name[NG_RULES_NAME];

    for (int round = 0; round < 20000; round++) {
        std::string text;
        size_t length = random() % 60;
        for (size_t i = 0; i < length; i++)
            if (round % 4 == 0)
                text += (char)random();
            else
                text += pieces[random() % (sizeof(pieces) / sizeof(pieces[0]))];
        Rules read(text);
        EXPECT_LE(read.rules->count, NG_RULES_MAX);
        EXPECT_EQ(read.told.empty(), read.mistakes == 0);
        for (const std::string &line : read.told)
            EXPECT_EQ(line.find('\n'), std::string::npos);
        ng_rules_match(read.rules.get(), &group, limits.get(), name);
        EXPECT_LT(strlen(name), sizeof(name));
    }
}
