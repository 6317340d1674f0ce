/*
 * The rules file of a process: read at the start and again, whatever lies there, and applied to
 * what was made before and after.
 */
#include "tests/gtest/in_time.h"
#include "tests/unit/core/helpers/core.h"
#include "tests/unit/core/helpers/made_calls.h"

#define _Atomic
extern "C" {
#include "core/comm/deadline.h"
#include "core/comm/rules.h"
#include "core/comm/rules_file.h"
}
#undef _Atomic

namespace
{

constexpr int64_t S = NG_S, CONFIGURED = 600 * S;

struct RulesFile : testing::Test {
    RulesFile() : path_(folder_ / "rules")
    {
        static bool begun;
        if (!begun) {
            write_whole_file(log_path(), "");
            ng_log_init(NG_LOG_DEBUG, log_path().c_str(), 0);
            made_begin(64);
        }
        begun = true;
        log_begun_ = read_whole_file(log_path()).size();
        made_configure_deadlines(CONFIGURED, CONFIGURED, 5 * S, 30 * S);
        made_set_rules(path_.c_str());
    }
    ~RulesFile() override
    {
        for (void *handle : made_)
            made_destroy(0, handle, 0);
        ng_rules_file_start();      /* whoever was still reading has come to an end */
        ng_rules_file_after_fork(); /* as if nothing had been read */
    }

    /* One for all tests, from before the guard has threads: the log is not to change under theirs.
     */
    static std::string log_path()
    {
        static const Folder folder;
        return folder / "log";
    }
    /* What was written since the test began. */
    std::string log() const
    {
        return read_whole_file(log_path()).substr(log_begun_);
    }
    /* Returns when the outcome is told. */
    void reload()
    {
        unsigned before = outcomes();
        ng_rules_file_reload();
        EXPECT_TRUE(becomes([&] { return outcomes() > before; })) << log();
    }
    unsigned outcomes() const
    {
        std::string text = log();
        unsigned count = 0;
        for (const char *outcome : {"now hold", "is not used", "cannot read", "is not set"})
            for (size_t at = 0; (at = text.find(outcome, at)) != std::string::npos; at++)
                count++;
        return count;
    }
    bool told(const std::string &text) const
    {
        return log().find(text) != std::string::npos;
    }
    void *make(int nranks)
    {
        void *handle = handles_[made_.size()];
        made_init(0, handle, nranks, 0, nullptr, 0);
        made_.push_back(handle);
        return handle;
    }
    static int64_t timeout(void *handle)
    {
        return ng_deadline_timeout(made_comm(handle), NG_OP_AllReduce);
    }
    /* As other processes see it. */
    static uint32_t policy(void *handle)
    {
        return __atomic_load_n(&made_box()->groups[group_of(handle).slot].policy, __ATOMIC_RELAXED);
    }
    static std::string name(void *handle)
    {
        return group_of(handle).name;
    }

    Folder folder_;
    std::string path_;
    size_t log_begun_;
    std::vector<void *> made_;
    static char handles_[8][64];
};
char RulesFile::handles_[8][64];

} // namespace

TEST_F(RulesFile, WhatTheFileSaysHoldsForGroupsThatAreMadeLater)
{
    write_whole_file(path_, "size=2 : timeout=2s name=pair\n");
    ng_rules_file_start();
    void *pair = make(2), *four = make(4);
    EXPECT_EQ(timeout(pair), 2 * S);
    EXPECT_EQ(name(pair), "pair");
    EXPECT_EQ(timeout(four), CONFIGURED);
    EXPECT_EQ(name(four), "");
}

TEST_F(RulesFile, TheBlackBoxHasThePolicyThatHoldsForEachGroup)
{
    write_whole_file(path_, "size=2 : policy=log\nop=Reduce : policy=abort\n");
    ng_rules_file_start();
    uint32_t configured = ng_deadline_policy(0, NG_OP_NONE) + 1u;
    void *pair = make(2), *four = make(4);
    EXPECT_EQ(policy(pair), NG_ON_TIMEOUT_LOG + 1u);
    EXPECT_EQ(policy(four), configured);
    write_whole_file(path_, "size=4 : policy=log\n");
    reload();
    EXPECT_EQ(policy(pair), configured);
    EXPECT_EQ(policy(four), NG_ON_TIMEOUT_LOG + 1u);
}

namespace
{

/* Deadlines as they are while NCCL creates the communicator. */
struct Inside {
    void *parent; /* NULL none */
    ng_op op;
    int64_t timeout_ns, told_ns, suspect_ns;
};

int look_inside(void *argument)
{
    auto *inside = static_cast<Inside *>(argument);
    struct made_group group = {};
    EXPECT_TRUE(made_group_in_making(&group));
    inside->told_ns = ng_deadline_of_group(group.id, inside->op);
    if (inside->parent) {
        inside->timeout_ns = ng_deadline_timeout(made_comm(inside->parent), inside->op);
        inside->suspect_ns = ng_deadline_suspect(made_comm(inside->parent), inside->op, true);
    }
    return 0;
}

Inside create(ng_op op, void *parent)
{
    Inside inside = {parent, op, -1, -1, -1};
    void *made = nullptr;
    struct made_call call = {};
    call.op = op;
    call.comm = parent;
    call.new_comm = &made;
    call.inside = look_inside;
    call.argument = &inside;
    made_call(0, &call);
    return inside;
}

} // namespace

TEST_F(RulesFile, OfACreatingCallHoldsWhileTheCommunicatorIsCreated)
{
    for (const char *condition : {"", "size=2 ", "device=0.. "}) {
        write_whole_file(path_, std::string(condition) + "op=Comm* : timeout=7s\n");
        ng_rules_file_start();
        EXPECT_EQ(create(NG_OP_CommInitRank, nullptr).told_ns, 7 * S) << condition;
        write_whole_file(path_, std::string(condition) + "op=CommInit* : timeout=0\n");
        reload();
        EXPECT_EQ(create(NG_OP_CommInitRank, nullptr).told_ns, 0) << condition;
        ng_rules_file_after_fork();
    }
    EXPECT_EQ(create(NG_OP_CommInitRank, nullptr).told_ns, CONFIGURED);
}

/* The call is on the parent. */
TEST_F(RulesFile, OfWhatIsDerivedHoldsInTheCallThatDerivesIt)
{
    write_whole_file(path_, "size=2 : name=world\n"
                            "size=2 op=CommSplit : timeout=9s\n"
                            "parent=world op=CommSplit : timeout=0 suspect=7s\n");
    ng_rules_file_start();
    void *parent = make(2);
    Inside inside = create(NG_OP_CommSplit, parent);
    EXPECT_EQ(inside.timeout_ns, 0);
    EXPECT_EQ(inside.told_ns, 0);
    EXPECT_EQ(inside.suspect_ns, 7 * S);
    EXPECT_EQ(ng_deadline_timeout(made_comm(parent), NG_OP_CommSplit), 9 * S) << "of none now";
    EXPECT_EQ(timeout(parent), CONFIGURED);
    write_whole_file(path_, "size=2 op=CommSplit : timeout=9s\n");
    reload();
    inside = create(NG_OP_CommSplit, parent);
    EXPECT_EQ(inside.timeout_ns, 9 * S) << "nothing is set for the new one";
    EXPECT_EQ(inside.told_ns, 9 * S);
}

TEST_F(RulesFile, AReloadChangesWhatIsThereAndTakesBackWhatNoLongerStandsThere)
{
    write_whole_file(path_, "size=2 : timeout=2s name=pair\nsize=4 : timeout=3s");
    ng_rules_file_start();
    void *pair = make(2), *four = make(4);
    EXPECT_EQ(timeout(four), 3 * S);
    write_whole_file(path_, "size=2 : name=\"a pair\"\n");
    reload();
    EXPECT_TRUE(told("1 rule of " + path_ + " now hold")) << log();
    EXPECT_EQ(timeout(pair), CONFIGURED);
    EXPECT_EQ(name(pair), "a pair");
    EXPECT_EQ(timeout(four), CONFIGURED);
    write_whole_file(path_, "");
    reload();
    EXPECT_EQ(name(pair), "");
}

TEST_F(RulesFile, AFileWithAMistakeIsRefusedAndTheRulesBeforeItKept)
{
    write_whole_file(path_, "size=2 : timeout=2s\n");
    ng_rules_file_start();
    void *pair = make(2);
    write_whole_file(path_, "size=2 : timeout=4s\nsize=x : timeout=4s\n");
    reload();
    EXPECT_TRUE(told(path_ + ":2: size=x is not valid")) << log();
    EXPECT_TRUE(told("the rules that were read before still hold"));
    EXPECT_EQ(timeout(pair), 2 * S);
}

TEST_F(RulesFile, AtTheStartAFileWithAMistakeMeansNoRules)
{
    write_whole_file(path_, "size=2 : timeout=4s\nsize=x : timeout=4s\n");
    ng_rules_file_start();
    EXPECT_EQ(timeout(make(2)), CONFIGURED);
    EXPECT_TRUE(told("the guard continues without rules"));
}

TEST_F(RulesFile, WhateverLiesThereTheStartGoesOn)
{
    static const struct {
        const char *what, *told;
    } rows[] = {{"nothing", "No such file"},   {"folder", "Is a directory"},
                {"fifo", "no regular file"},   {"device", "no regular file"},
                {"huge", "larger than 65536"}, {"loop", "symbolic links"}};
    for (const auto &row : rows) {
        std::string what = row.what, at = folder_ / what;
        if (what == "folder") {
            ASSERT_EQ(mkdir(at.c_str(), 0700), 0);
        }
        if (what == "fifo") {
            ASSERT_EQ(mkfifo(at.c_str(), 0600), 0);
        }
        if (what == "device")
            at = "/dev/zero";
        if (what == "huge") {
            write_whole_file(at, "");
            ASSERT_EQ(truncate(at.c_str(), INT64_C(1) << 40), 0);
        }
        if (what == "loop") {
            ASSERT_EQ(symlink(at.c_str(), at.c_str()), 0);
        }
        made_set_rules(at.c_str());
        int64_t before = ng_clock_mono_ns();
        ng_rules_file_start();
        EXPECT_IN_TIME(ng_clock_mono_ns() - before, 20 * S);
        EXPECT_TRUE(told(row.told)) << what << ": " << log();
        ng_rules_file_after_fork();
    }
}

TEST_F(RulesFile, WithoutAFileThereIsNothingToReadAgain)
{
    made_set_rules("");
    ng_rules_file_start();
    EXPECT_EQ(log(), "");
    reload();
    EXPECT_TRUE(told("NCCLGUARD_RULES is not set"));
}

TEST_F(RulesFile, GroupsMayBeMadeWhileTheFileIsReadAgain)
{
    write_whole_file(path_, "size=2 : timeout=2s name=pair\n");
    ng_rules_file_start();
    for (int round = 0; round < 200; round++) {
        ng_rules_file_reload();
        void *pair = make(2);
        EXPECT_EQ(timeout(pair), 2 * S);
        EXPECT_EQ(name(pair), "pair");
        made_destroy(0, pair, 0);
        made_.pop_back();
    }
    reload();
}
