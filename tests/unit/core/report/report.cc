/*
 * A verdict as JSON, as text and as a line, against golden files in golden/ (NG_TEST_UPDATE=1
 * writes them anew).
 */
#include "tests/gtest/own_json.h"
#include "tests/unit/core/helpers/core.h"

#include <fcntl.h>
#include <sys/stat.h>

namespace
{

/* A verdict as the engine would give it; memory of this object. */
class Verdict
{
  public:
    explicit Verdict(enum ng_verdict_kind kind,
                     enum ng_confidence confidence = NG_CONFIDENCE_CERTAIN)
    {
        verdict_ = {};
        verdict_.kind = kind;
        verdict_.confidence = confidence;
        verdict_.detected_by = -1;
        verdict_.action = "none";
    }
    Verdict &group(uint64_t id, const char *name, int nranks)
    {
        verdict_.group_id = id;
        snprintf(verdict_.group_name, sizeof(verdict_.group_name), "%s", name);
        verdict_.group_nranks = nranks;
        return *this;
    }
    Verdict &counted()
    {
        verdict_.counted = true;
        return *this;
    }
    Verdict &operation(enum ng_op op, uint64_t seq, int64_t stalled_ns)
    {
        verdict_.op = op;
        verdict_.seq = seq;
        verdict_.stalled_ns = stalled_ns;
        return *this;
    }
    Verdict &culprit(int rank, int group_rank, const char *host, int pid, const char *why)
    {
        struct ng_culprit culprit = {.rank = rank, .group_rank = group_rank, .pid = pid};
        snprintf(culprit.host, sizeof(culprit.host), "%s", host);
        snprintf(culprit.why, sizeof(culprit.why), "%s", why);
        culprits_.push_back(culprit);
        return *this;
    }
    Verdict &life(enum ng_life life)
    {
        culprits_.back().life = life;
        return *this;
    }
    Verdict &step(int rank, uint64_t group, const char *name, enum ng_op op, uint64_t seq,
                  int waits_for_rank, bool queued = false)
    {
        struct ng_verdict_step step = {};
        step.rank = step.group_rank = rank;
        step.group_id = group;
        snprintf(step.group_name, sizeof(step.group_name), "%s", name);
        step.op = op;
        step.seq = seq;
        step.waits_for_rank = waits_for_rank;
        step.queued = queued;
        cycle_.push_back(step);
        return *this;
    }
    Verdict &waiting(std::vector<int> ranks)
    {
        waiting_ = std::move(ranks);
        return *this;
    }
    Verdict &missing(const char *phrase)
    {
        missing_.push_back(const_cast<char *>(phrase));
        return *this;
    }
    Verdict &acted(const char *job, int64_t time_unix_ns, int detected_by, const char *action)
    {
        snprintf(verdict_.job, sizeof(verdict_.job), "%s", job);
        verdict_.time_unix_ns = time_unix_ns;
        verdict_.detected_by = detected_by;
        verdict_.action = action;
        return *this;
    }
    const struct ng_verdict *get()
    {
        verdict_.culprits = culprits_.data();
        verdict_.culprit_count = (uint32_t)culprits_.size();
        verdict_.cycle = cycle_.data();
        verdict_.cycle_count = (uint32_t)cycle_.size();
        verdict_.waiting = waiting_.data();
        verdict_.waiting_count = (uint32_t)waiting_.size();
        verdict_.missing_evidence = missing_.data();
        verdict_.missing_evidence_count = (uint32_t)missing_.size();
        return &verdict_;
    }

  private:
    struct ng_verdict verdict_;
    std::vector<struct ng_culprit> culprits_;
    std::vector<struct ng_verdict_step> cycle_;
    std::vector<int> waiting_;
    std::vector<char *> missing_;
};

Verdict missing_rank()
{
    Verdict verdict(NG_KIND_MISSING_RANK);
    verdict.group(0x0123456789abcdef, "dp", 4)
        .operation(NG_OP_AllReduce, 7, 5040 * NG_MS)
        .culprit(2, 2, "a", 12,
                 "is alive but never called AllReduce #7; its last was AllReduce #6, 5.1 s ago, "
                 "and it is inside no "
                 "NCCL call")
        .waiting({0, 1, 3})
        .acted("train.0", INT64_C(1795168092500000000), 0, "kill");
    return verdict;
}

Verdict healthy()
{
    return Verdict(NG_KIND_HEALTHY);
}

Verdict two_dead()
{
    Verdict verdict(NG_KIND_DEAD_RANK, NG_CONFIDENCE_LIKELY);
    verdict.group(0xff, "", 64)
        .operation(NG_OP_ReduceScatter, 1000000, 754 * NG_S)
        .culprit(9, 1, "node-1", 4711, "died (killed or crashed) before ReduceScatter #1000000")
        .culprit(17, 2, "node-2", 4712, "died (killed or crashed) inside ReduceScatter #1000000")
        .waiting({1, 25, 33, 34, 35, 36, 41})
        .missing("no evidence of group ranks 7 to 8")
        .missing("box-12-34: cut off after 8192 bytes")
        .acted("train.0", INT64_C(1709208000000000000), 33, "log");
    return verdict;
}

Verdict unseen_init()
{
    Verdict verdict(NG_KIND_INIT_MISSING_RANK, NG_CONFIDENCE_LIKELY);
    verdict.group(0xabc, "pp", 8)
        .operation(NG_OP_CommInitRank, 0, 4 * 3600 * NG_S)
        .culprit(-1, 5, "", 0, "has not come to CommInitRank")
        .waiting({3});
    return verdict;
}

Verdict stall()
{
    Verdict verdict(NG_KIND_GPU_STALL, NG_CONFIDENCE_UNKNOWN);
    verdict.group(0xabc, "dp", 2)
        .operation(NG_OP_Send, 0, 900 * NG_MS)
        .waiting({0, 1})
        .acted("j", 0, -1, nullptr);
    return verdict;
}

/* Two ranks that came to two groups in opposite order, one of which has no name. */
Verdict opposite()
{
    Verdict verdict(NG_KIND_ORDER_DEADLOCK);
    verdict.group(0xaa, "tensor", 2)
        .operation(NG_OP_AllReduce, 5, 61 * NG_S)
        .culprit(
            0, 0, "a", 12,
            "is in AllReduce #5 of group \"tensor\" and has not entered Send to rank 1 of group "
            "00000000000000bb")
        .culprit(
            1, 1, "b", 13,
            "is in Recv from rank 0 of group 00000000000000bb and has not entered AllReduce #5 "
            "of group \"tensor\"")
        .step(0, 0xaa, "tensor", NG_OP_AllReduce, 5, 1)
        .step(1, 0xbb, "", NG_OP_Recv, 0, 0, true)
        .waiting({2, 3});
    return verdict;
}

/* A host of two ranks, and a rank of another that is known to have died. */
Verdict lost_host(bool and_a_death)
{
    Verdict verdict(NG_KIND_DEAD_RANK, NG_CONFIDENCE_LIKELY);
    verdict.group(0xaa, "dp", 8).operation(NG_OP_AllReduce, 7, 6 * NG_S);
    for (int rank : {4, 5})
        verdict
            .culprit(rank, rank, "n2", 100 + rank,
                     "host n2 with ranks 4,5 has sent no message for 5.4 s: it may be down or cut "
                     "off, or its processes frozen or gone")
            .life(NG_LIFE_LOST);
    if (and_a_death)
        verdict.culprit(6, 6, "n3", 106, "was killed (signal 9) before AllReduce #7")
            .life(NG_LIFE_DEAD);
    verdict.waiting({0, 1, 2, 3, 7});
    return verdict;
}

/* Whatever a program may name its communicator. */
Verdict hostile()
{
    Verdict verdict(NG_KIND_MISMATCH);
    verdict.group(1, "\x1b[2J\n\"evil\"\xff", 2)
        .operation(NG_OP_Broadcast, 3, NG_S)
        .culprit(1, 1, "host\nname", 7, "count differs: \x1b]0;title\a \"quoted\" \\ and \xc3")
        .waiting({0})
        .missing("note with\ttab and \x80");
    return verdict;
}

std::string json_text(Verdict verdict)
{
    return text_from([&](int fd) { EXPECT_EQ(ng_report_write_json(verdict.get(), fd), 0); });
}

std::string human_text(Verdict verdict, const char *folder)
{
    return text_from(
        [&](int fd) { EXPECT_EQ(ng_report_write_text(verdict.get(), folder, fd), 0); });
}

std::string line_of(Verdict verdict, size_t bytes = 1024)
{
    std::string line(bytes, '\xee');
    ng_report_line(verdict.get(), &line[0], bytes);
    return std::string(line.c_str());
}

} // namespace

TEST(Report, JsonIsThatOfTheContract)
{
    expect_golden(json_text(missing_rank()), "missing_rank.verdict.json");
    expect_golden(json_text(healthy()), "healthy.verdict.json");
    expect_golden(json_text(two_dead()), "two_dead.verdict.json");
    expect_golden(json_text(unseen_init()), "unseen_init.verdict.json");
    expect_golden(json_text(stall()), "stall.verdict.json");
    expect_golden(json_text(hostile()), "hostile.verdict.json");
    expect_golden(json_text(opposite()), "opposite.verdict.json");
}

TEST(Report, JsonParsesAndItsKeysComeInTheContractsOrder)
{
    static const char *const keys[] = {"schema",
                                       "job",
                                       "time_unix_ns",
                                       "kind",
                                       "group",
                                       "seq",
                                       "op",
                                       "culprits",
                                       "waiting",
                                       "confidence",
                                       "missing_evidence",
                                       "detected_by",
                                       "stalled_ms",
                                       "action"};
    for (auto make : {missing_rank, healthy, two_dead, unseen_init, stall, hostile}) {
        std::string text = json_text(make());
        OwnJson parsed(text);
        size_t at = 0;
        const char *key;
        json_t *value;
        json_object_foreach(parsed, key, value)
        {
            ASSERT_LT(at, sizeof(keys) / sizeof(keys[0]));
            EXPECT_STREQ(key, keys[at++]);
        }
        EXPECT_EQ(at, sizeof(keys) / sizeof(keys[0]));
        EXPECT_STREQ(json_string_value(json_object_get(parsed, "schema")), "ncclguard.verdict/1");
    }
}

TEST(Report, OfTheDeviceItTellsWhatNcclsCountersSay)
{
    const std::string row = "  device      by NCCL's counters, all before it is finished\n";

    EXPECT_EQ(human_text(stall(), nullptr).find(row), std::string::npos);
    EXPECT_NE(human_text(stall().counted(), nullptr).find(row), std::string::npos);
}

/* A suspicion takes none, and a rank that is dead by now can take none. */
TEST(Report, StacksOfAnEarlierIncidentSayFromWhenTheyAre)
{
    const std::string look = "thread 12 \"train\", in pause";
    for (int before_s : {-1, 0, 1, 100}) {
        Folder folder;
        std::string path = folder / "rank_2.stacks.txt";
        write_whole_file(path,
                         "Stacks of rank 2, pid 12 (train) on host a.\nLook at: " + look + "\n");
        struct timespec taken = {1795168092 - before_s, 500000000};
        const struct timespec times[] = {taken, taken};
        ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
        std::string text = human_text(missing_rank(), folder.path().c_str());
        if (before_s <= 1) {
            EXPECT_NE(text.find("\n  stacks      " + look + "\n"), std::string::npos) << text;
            EXPECT_EQ(text.find("before this verdict"), std::string::npos) << text;
        } else {
            EXPECT_NE(text.find("\n  stacks      before this verdict, at 2026-11-20 09:46:32 UTC\n"
                                "              " +
                                look + "\n"),
                      std::string::npos)
                << text;
        }
    }
}

TEST(Report, TextIsForPeople)
{
    expect_golden(human_text(missing_rank(), "/tmp/ncclguard-0/train.0"),
                  "missing_rank.verdict.txt");
    expect_golden(human_text(healthy(), nullptr), "healthy.verdict.txt");
    expect_golden(human_text(two_dead(), "/evidence"), "two_dead.verdict.txt");
    expect_golden(human_text(unseen_init(), nullptr), "unseen_init.verdict.txt");
    expect_golden(human_text(stall(), nullptr), "stall.verdict.txt");
    expect_golden(human_text(opposite(), nullptr), "opposite.verdict.txt");
    expect_golden(human_text(lost_host(true), nullptr), "lost_host.verdict.txt");
    expect_golden(human_text(hostile(), "/evil\n/folder"), "hostile.verdict.txt");
}

TEST(Report, TheLineSaysWhoWhatSinceWhenAndHowSure)
{
    EXPECT_EQ(line_of(missing_rank()), "missing_rank: rank 2 (host a, pid 12) never called "
                                       "AllReduce #7 of group \"dp\" (4 ranks); "
                                       "waiting: 0,1,3 for 5.0 s; certain");
    EXPECT_EQ(line_of(healthy()), "healthy: nothing is stuck; certain");
    EXPECT_EQ(line_of(two_dead()),
              "dead_rank: ranks 9,17 died without finishing ReduceScatter #1000000 of group "
              "00000000000000ff "
              "(64 ranks); waiting: 1,25,33-36,41 for 12 min 34 s; missing evidence: 2; likely");
    EXPECT_EQ(
        line_of(unseen_init()),
        "init_missing_rank: group rank 5 never came to CommInitRank of group \"pp\" (8 ranks); "
        "waiting: 3 for 4 h 0 min; likely");
    EXPECT_EQ(line_of(stall()), "gpu_stall: Send of group \"dp\" (2 ranks) was called by all and "
                                "does not finish on the device; "
                                "waiting: 0,1 for 900 ms; unknown");
}

TEST(Report, TheLineHasNothingThatATerminalObeys)
{
    std::string line = line_of(hostile());
    for (char c : line)
        EXPECT_TRUE((unsigned char)c >= 0x20 && (unsigned char)c != 0x7f) << line;
    EXPECT_EQ(line.find("\xff"), std::string::npos);
}

TEST(Report, TheLineFitsWhateverItHasToSay)
{
    std::string name(63, 'n'), host(63, 'h'), why(319, 'w');
    std::vector<int> waiting;
    for (int rank = 0; rank < 4096; rank += 2)
        waiting.push_back(1000000 + rank);
    for (int kind = 0; kind < NG_KIND_COUNT; kind++) {
        for (int culprits : {0, 1, 2, 500}) {
            Verdict verdict((enum ng_verdict_kind)kind, NG_CONFIDENCE_UNKNOWN);
            verdict.group(UINT64_MAX, name.c_str(), 16777216)
                .operation(NG_OP_CommInitRankScalable, UINT64_MAX, INT64_MAX)
                .waiting(waiting)
                .missing("x");
            for (int i = 0; i < culprits; i++)
                verdict.culprit(16000000 + 2 * i, i, host.c_str(), 4194304, why.c_str());
            std::string line = line_of(verdict);
            EXPECT_LE(line.size(), 400u);
            EXPECT_EQ(line.rfind(ng_verdict_kind_name((enum ng_verdict_kind)kind), 0), 0u) << line;
            EXPECT_EQ(line.substr(line.size() - 9), "; unknown")
                << "the confidence is never cut off: " << line;
        }
    }
}

TEST(Report, AShortBufferIsNotOverflown)
{
    for (size_t bytes = 1; bytes < 200; bytes++) {
        std::string buffer(bytes + 16, '\xee');
        ng_report_line(missing_rank().get(), &buffer[0], bytes);
        EXPECT_LT(strlen(buffer.c_str()), bytes);
        EXPECT_EQ(buffer.substr(bytes), std::string(16, '\xee'));
    }
    char untouched = 'x';
    ng_report_line(missing_rank().get(), &untouched, 0);
    EXPECT_EQ(untouched, 'x');
}

TEST(Report, SaveWritesBothFilesWhole)
{
    Folder folder;
    EXPECT_EQ(ng_report_save(missing_rank().get(), folder.path().c_str()), 0);
    EXPECT_EQ(folder.names(), (std::vector<std::string>{"verdict.json", "verdict.txt"}));
    EXPECT_EQ(read_whole_file(folder / "verdict.json"), json_text(missing_rank()));
    EXPECT_EQ(read_whole_file(folder / "verdict.txt"),
              human_text(missing_rank(), folder.path().c_str()));
}

TEST(Report, AFullDiskLeavesNothingPartial)
{
    Folder folder;
    EXPECT_EQ(ng_report_save(healthy().get(), folder.path().c_str()), 0);
    std::string json = read_whole_file(folder / "verdict.json"),
                text = read_whole_file(folder / "verdict.txt");
    for (rlim_t room : {0, 1, 100, 300}) {
        EXPECT_EQ(in_child([&] {
                      struct rlimit limit = {room, room};
                      signal(SIGXFSZ, SIG_IGN);
                      setrlimit(RLIMIT_FSIZE, &limit);
                      return ng_report_save(missing_rank().get(), folder.path().c_str()) == -EFBIG
                                 ? 0
                                 : 2;
                  }),
                  0);
        EXPECT_EQ(folder.names(), (std::vector<std::string>{"verdict.json", "verdict.txt"}));
        EXPECT_EQ(read_whole_file(folder / "verdict.json"), json);
        EXPECT_EQ(read_whole_file(folder / "verdict.txt"), text);
    }
}

TEST(Report, AMissingFolderIsAnError)
{
    EXPECT_EQ(ng_report_save(healthy().get(), "/nonexistent/folder"), -ENOENT);
    EXPECT_EQ(ng_report_write_json(healthy().get(), -1), -EBADF);
    EXPECT_EQ(ng_report_write_text(healthy().get(), nullptr, -1), -EBADF);
}

TEST(Report, TheLineTellsARoundOfRanksInTheirOwnWords)
{
    EXPECT_EQ(
        line_of(opposite()),
        "order_deadlock: ranks 0,1 wait for each other: rank 0 is in AllReduce #5 of group "
        "\"tensor\" and has not entered Send to rank 1 of group 00000000000000bb; waiting: 2,3 "
        "for 61.0 s; certain");
}

TEST(Report, TheLineTellsASilenceFromADeath)
{
    EXPECT_EQ(line_of(lost_host(false))
                  .find("dead_rank: ranks 4,5 went silent without finishing "
                        "AllReduce #7 of group \"dp\" (8 ranks) (host n2 with "
                        "ranks 4,5 has sent no message for 5.4 s"),
              0u)
        << line_of(lost_host(false));
    EXPECT_EQ(line_of(lost_host(true)).find("dead_rank: ranks 4-6 died or went silent without "),
              0u)
        << line_of(lost_host(true));
    EXPECT_LE(line_of(lost_host(true)).size(), 400u);
}

TEST(Report, TheLineNamesItsCulpritsToAProgramToo)
{
    for (int rank = -1; rank < 9; rank++) {
        EXPECT_EQ(ng_report_line_blames(line_of(lost_host(true)).c_str(), rank),
                  rank >= 4 && rank <= 6)
            << rank;
        EXPECT_EQ(ng_report_line_blames(line_of(lost_host(false)).c_str(), rank),
                  rank == 4 || rank == 5)
            << rank;
        EXPECT_EQ(ng_report_line_blames("missing_rank: rank 7 (host a, pid 3) is alive", rank),
                  rank == 7)
            << rank;
        for (const char *line :
             {"", "an order", "missing_rank: ranks ", "missing_rank: rank ",
              "unknown: AllReduce #7", "dead_rank: ranks ?,3", "dead_rank: group rank 7"})
            EXPECT_FALSE(ng_report_line_blames(line, rank)) << line << rank;
    }
    const std::vector<std::pair<std::string, std::string>> culprits = {
        {line_of(lost_host(true)), "4-6"},
        {line_of(missing_rank()), "2"},
        {line_of(two_dead()), "9,17"},
        {line_of(stall()), ""},
        {"an order", ""},
        {"dead_rank: group rank 7", ""},
    };
    for (const auto &[line, expected] : culprits) {
        char text[16];
        ng_report_line_culprits(line.c_str(), text, sizeof(text));
        EXPECT_EQ(text, expected) << line;
    }
}
