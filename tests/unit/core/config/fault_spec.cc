/*
 * The values of NCCLGUARD_FAULT, and the message about a mistake in one: where it is, and what is
 * allowed there.
 */
#include "tests/unit/core/helpers/core.h"

extern "C" {
#include "core/config/fault_spec.h"
}

namespace
{

struct Parsed {
    explicit Parsed(const std::string &text) : spec(std::make_unique<ng_fault_spec>())
    {
        error = ng_fault_spec_parse(text.c_str(), spec.get(), &mistake);
        char line[700];
        ng_fault_mistake_text(&mistake, line, sizeof(line));
        if (error)
            said = line;
    }
    const ng_fault &only() const
    {
        EXPECT_EQ(error, 0) << said;
        EXPECT_EQ(spec->count, 1u);
        return spec->faults[0];
    }
    std::unique_ptr<ng_fault_spec> spec;
    ng_fault_mistake mistake = {};
    int error;
    std::string said;
};

std::set<std::string> ops_of(const ng_fault &fault)
{
    std::set<std::string> names;
    for (unsigned op = 0; op < NG_OP_LIMIT; op++)
        if (fault.ops[op])
            names.insert(ng_op_name(op));
    return names;
}

TEST(FaultSpec, ReadsTheExampleOfTheContract)
{
    Parsed parsed("rank=1,op=AllReduce,nth=10:hang");
    const ng_fault &fault = parsed.only();

    EXPECT_EQ(fault.kind, NG_FAULT_HANG);
    EXPECT_EQ(fault.rank, 1);
    EXPECT_EQ(fault.nth, 10u);
    EXPECT_EQ(fault.every, 0u);
    EXPECT_EQ(fault.chance, 0u);
    EXPECT_STREQ(fault.group, "");
    EXPECT_EQ(ops_of(fault), std::set<std::string>{"AllReduce"});
    EXPECT_STREQ(fault.text, "rank=1,op=AllReduce,nth=10:hang");
}

TEST(FaultSpec, ReadsEveryFault)
{
    for (unsigned kind = 0; kind < NG_FAULT_KINDS; kind++) {
        static const char *const arguments[] = {"",    "=500ms",   "=1", "=ncclSystemError",
                                                "=+1", "=float16", "=2", "=max"};
        const ng_fault_info &info = ng_fault_table[kind];
        Parsed parsed(std::string("rank=1:") + info.name + arguments[info.argument]);
        EXPECT_EQ(parsed.only().kind, (ng_fault_kind)kind) << info.name;
        EXPECT_EQ(ops_of(parsed.only()).empty(), info.place == NG_FAULT_AT_ABORT) << info.name;
    }
}

TEST(FaultSpec, ReadsArguments)
{
    EXPECT_EQ(Parsed("*:delay=500ms").only().duration_ns, 500 * NG_MS);
    EXPECT_EQ(Parsed("*:in-progress=2s").only().duration_ns, 2 * NG_S);
    EXPECT_EQ(Parsed("*:exit=255").only().number, 255);
    EXPECT_EQ(Parsed("*:error=ncclSystemError").only().number, 2);
    EXPECT_EQ(Parsed("*:async-error=remoteerror").only().number, 6);
    EXPECT_EQ(Parsed("*:dtype=ncclFloat16").only().number, 6);
    EXPECT_EQ(Parsed("*:dtype=bfloat16").only().number, 9);
    EXPECT_EQ(Parsed("*:redop=ncclMax").only().number, 2);
    Parsed more("*:count=+1"), fewer("*:count=-3"), exactly("*:count=7"), next("*:root=+1");
    EXPECT_EQ(more.only().number, 1);
    EXPECT_TRUE(more.only().relative);
    EXPECT_EQ(fewer.only().number, -3);
    EXPECT_TRUE(fewer.only().relative);
    EXPECT_EQ(exactly.only().number, 7);
    EXPECT_FALSE(exactly.only().relative);
    EXPECT_TRUE(next.only().relative);
}

TEST(FaultSpec, ReadsSeveralWithBlanksAndQuotes)
{
    Parsed parsed(" rank=0 , group=\"a:b;c,d\" : stop ;op=ncclBroadcast,every=3,nth=5:skip;"
                  "prob=0.25,seed=7:delay=1s ");

    ASSERT_EQ(parsed.error, 0) << parsed.said;
    ASSERT_EQ(parsed.spec->count, 3u);
    EXPECT_STREQ(parsed.spec->faults[0].group, "a:b;c,d");
    EXPECT_STREQ(parsed.spec->faults[0].text, "rank=0 , group=\"a:b;c,d\" : stop");
    EXPECT_EQ(parsed.spec->faults[1].every, 3u);
    EXPECT_EQ(parsed.spec->faults[1].nth, 5u);
    EXPECT_EQ(parsed.spec->faults[2].chance, UINT64_C(1) << 62);
    EXPECT_EQ(parsed.spec->faults[2].seed, 7u);
    EXPECT_STREQ(parsed.spec->faults[2].text, "prob=0.25,seed=7:delay=1s");
}

TEST(FaultSpec, KnowsToWhichCallsAFaultCanHappen)
{
    EXPECT_EQ(ops_of(Parsed("*:hang").only()).count("CommInitRank"), 0u);
    EXPECT_EQ(ops_of(Parsed("*:hang").only()).count("Send"), 1u);
    EXPECT_EQ(ops_of(Parsed("op=Comm*:hang").only()).count("CommSplit"), 1u);
    EXPECT_EQ(ops_of(Parsed("*:root=1").only()),
              (std::set<std::string>{"Broadcast", "Reduce", "Gather", "Scatter", "Send", "Recv"}));
    EXPECT_EQ(
        ops_of(Parsed("*:bad-id").only()),
        (std::set<std::string>{"CommInitRank", "CommInitRankConfig", "CommInitRankScalable"}));
    EXPECT_EQ(ops_of(Parsed("op=*:redop=max").only()).count("Broadcast"), 0u);
    EXPECT_EQ(ops_of(Parsed("*:store-drop").only()).count("CommInitRank"), 1u);
}

/* Every mistake: where it is, and what is said of it. */
struct Mistake {
    const char *text;
    unsigned column;
    const char *what, *possible;
};

struct FaultMistake : testing::TestWithParam<Mistake> {
};

TEST_P(FaultMistake, IsToldWithItsColumnAndWhatIsPossible)
{
    const Mistake &expected = GetParam();
    Parsed parsed(expected.text);

    ASSERT_EQ(parsed.error, -EINVAL);
    EXPECT_EQ(parsed.mistake.column, expected.column) << parsed.said;
    EXPECT_NE(std::string(parsed.mistake.what).find(expected.what), std::string::npos)
        << parsed.said;
    EXPECT_NE(std::string(parsed.mistake.possible).find(expected.possible), std::string::npos)
        << parsed.said;
}

INSTANTIATE_TEST_SUITE_P(
    All, FaultMistake,
    testing::Values(
        Mistake{"", 1, "a condition is missing", "rank"},
        Mistake{":hang", 1, "a condition is missing", "* for every call"},
        Mistake{"hang", 1, "hang is no condition", "rank"},
        Mistake{"rang=1:hang", 1, "rang is no condition", "rank, op, group"},
        Mistake{"rank:hang", 5, "rank has no value", "=N"},
        Mistake{"rank=:hang", 6, "rank= is not valid", "from 0 to"},
        Mistake{"rank=x:hang", 6, "rank=x is not valid", "from 0 to"},
        Mistake{"rank=-1:hang", 6, "rank=-1 is not valid", "from 0 to"},
        Mistake{"rank=99999999:hang", 6, "is not valid", "from 0 to"},
        Mistake{"rank=1,rank=2:hang", 8, "rank= stands there twice", "one of them"},
        Mistake{"rank=1,:hang", 8, "a condition is missing", "nth"},
        Mistake{"rank=1", 7, "no fault is named", ":hang"},
        Mistake{"rank=1 op=Send:hang", 6, "is not valid", "whole number"},
        Mistake{"rank=1;rank=2:hang", 7, "what follows is not understood", ":hang"},
        Mistake{"rank=1,op=AllRduce:hang", 11, "no operation is called AllRduce", "AllReduce"},
        Mistake{"op=:hang", 4, "no operation is called", "AllReduce"},
        Mistake{"group=:hang", 7, "group= has no value", "a name or an id"},
        Mistake{"group=\"a:hang", 7, "a quote is not closed", "\""},
        Mistake{"group=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa:hang", 7,
                "too long", "63 bytes"},
        Mistake{"nth=0:hang", 5, "nth=0 is not valid", "from 1"},
        Mistake{"every=0:hang", 7, "every=0 is not valid", "from 1"},
        Mistake{"prob=0:hang", 6, "prob=0 is not valid", "above 0, up to 1"},
        Mistake{"prob=1.5:hang", 6, "prob=1.5 is not valid", "up to 1"},
        Mistake{"prob=nan:hang", 6, "prob=nan is not valid", "up to 1"},
        Mistake{"prob=0.5,nth=3:hang", 6, "prob= stands beside nth=", "one of them"},
        Mistake{"every=2,prob=0.5:hang", 14, "prob= stands beside every=", "one of them"},
        Mistake{"seed=3:hang", 6, "seed= stands without prob=", "prob="},
        Mistake{"prob=0.5,seed=x:hang", 15, "seed=x is not valid", "from 0"},
        Mistake{"rank=1:", 8, "no fault is named", "hang, delay"},
        Mistake{"rank=1:hng", 8, "hng is no fault", "hang, delay"},
        Mistake{"rank=1:hang=1", 12, "what follows hang is not understood", "the end"},
        Mistake{"rank=1:hang,stop", 12, "what follows hang is not understood", "; and another"},
        Mistake{"rank=1:delay", 13, "delay has no argument", "a duration"},
        Mistake{"rank=1:delay=", 14, "delay= is not valid", "a duration"},
        Mistake{"rank=1:delay=x", 14, "delay=x is not valid", "500ms"},
        Mistake{"rank=1:delay=0", 14, "delay=0 is not valid", "500ms"},
        Mistake{"rank=1:exit=256", 13, "exit=256 is not valid", "0 to 255"},
        Mistake{"rank=1:error=ncclSuccess", 14, "error=ncclSuccess is not known",
                "ncclSystemError"},
        Mistake{"rank=1:error=ncclInProgress", 14, "is not known", "ncclSystemError"},
        Mistake{"rank=1:count=1.5", 14, "count=1.5 is not valid", "+N or -N"},
        Mistake{"rank=1:count=+0", 14, "count=+0 is not valid", "+N or -N"},
        Mistake{"rank=1:dtype=float17", 14, "dtype=float17 is not known", "bfloat16"},
        Mistake{"rank=1:redop=median", 14, "redop=median is not known", "avg"},
        Mistake{"rank=1:root=x", 13, "root=x is not valid", "a rank of the group"},
        Mistake{"op=Send:redop=max", 4, "redop cannot happen to Send", "AllReduce"},
        Mistake{"op=CommInitAll:bad-id", 4, "bad-id cannot happen", "CommInitRankScalable"},
        Mistake{"op=AllReduce:init-hang", 4, "init-hang cannot happen", "CommSplit"},
        Mistake{"op=AllReduce:abort-hang", 4, "of no call", "rank= and group="},
        Mistake{"nth=2:abort-hang", 5, "of no call", "rank= and group="},
        Mistake{"rank=1:hang;", 13, "a condition is missing", "rank"},
        Mistake{"rank=1:hang;rank=2:hng", 20, "hng is no fault", "hang"}));

TEST(FaultSpec, HasAnEnd)
{
    std::string text = "rank=1:hang";
    for (unsigned i = 1; i < NG_FAULTS_MAX; i++)
        text += ";rank=1:hang";
    EXPECT_EQ(Parsed(text).error, 0);
    Parsed more(text + ";rank=1:hang");
    EXPECT_EQ(more.error, -EINVAL);
    EXPECT_EQ(more.mistake.column, text.size() + 2);
}

/* Parts of what is right, in any order, and bytes that are never right. */
TEST(FaultSpec, AnyTextIsSafe)
{
    static const char *const parts[] = {"rank=",     "1",      ",",
                                        ":",         ";",      "op=",
                                        "AllReduce", "*",      "\"",
                                        "hang",      "delay=", "5ms",
                                        "group=",    "[a-",    "prob=",
                                        "0.1",       "seed=",  "count=",
                                        "+",         "-",      " ",
                                        "\t",        "\x01",   "\xff",
                                        "=",         "nth=",   "99999999999999999999",
                                        "swap",      "exit=",  "%s%n"};
    std::mt19937 random(1);

    for (int i = 0; i < 20000; i++) {
        std::string text;
        for (unsigned n = random() % 24; n > 0; n--)
            text += parts[random() % (sizeof(parts) / sizeof(parts[0]))];
        Parsed parsed(text);
        if (parsed.error) {
            ASSERT_GE(parsed.mistake.column, 1u) << text;
            ASSERT_LE(parsed.mistake.column, text.size() + 1) << text;
            ASSERT_NE(parsed.mistake.possible[0], '\0') << text;
            for (char byte : parsed.said)
                ASSERT_FALSE(iscntrl((unsigned char)byte)) << text;
        }
    }
}

} // namespace
