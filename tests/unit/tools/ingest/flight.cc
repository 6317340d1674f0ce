/*
 * Dumps of PyTorch's flight recorder, as Python's own pickle writes them: what the reader makes of
 * every protocol, what the verdict says, and what is refused.
 */

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/gtest/own_json.h"
#include "tests/unit/tools/command.h"
#include "tests/unit/tools/ingest/unpickled.h"
#include "tests/unit/tools/verdict_json.h"

namespace
{

/* The files of a scenario of make_flight.py. */
void make(const Folder &folder, const std::string &scenario,
          const std::vector<std::string> &more = {})
{
    std::vector<std::string> argv = {"python3", getenv("NG_TEST_FLIGHT"), folder.path(), scenario};
    argv.insert(argv.end(), more.begin(), more.end());
    Process process(argv);
    ASSERT_EQ(process.wait_end(), 0) << process.err();
}

/* The verdict, as JSON. */
struct Verdict : private OwnJson {
    explicit Verdict(const Result &result) : OwnJson(result.out), code(result.code())
    {
    }
    std::string text(const char *key) const
    {
        const char *value = json_string_value(json_object_get(root, key));
        return value ? value : "";
    }
    int64_t number(const char *key) const
    {
        return json_integer_value(json_object_get(root, key));
    }
    std::string group() const
    {
        return json_string_value(json_object_get(json_object_get(root, "group"), "name"));
    }
    std::vector<int> culprits() const
    {
        return ranks_of(root);
    }
    std::vector<int> waiting() const
    {
        std::vector<int> ranks;
        size_t i;
        json_t *rank;
        json_array_foreach(json_object_get(root, "waiting"), i, rank)
        {
            ranks.push_back(static_cast<int>(json_integer_value(rank)));
        }
        return ranks;
    }
    std::string why(size_t index) const
    {
        json_t *culprit = json_array_get(json_object_get(root, "culprits"), index);
        const char *value = json_string_value(json_object_get(culprit, "why"));
        return value ? value : "";
    }
    std::string missing_evidence() const
    {
        return missing_evidence_of(root);
    }
    size_t findings() const
    {
        return json_array_size(json_object_get(root, "findings"));
    }
    /* "group op #seq: rank rank" */
    std::string finding(size_t index) const
    {
        json_t *found = json_array_get(json_object_get(root, "findings"), index);
        std::string text = std::string(json_string_value(
                               json_object_get(json_object_get(found, "group"), "name"))) +
                           " " + json_string_value(json_object_get(found, "op")) + " #" +
                           std::to_string(json_integer_value(json_object_get(found, "seq"))) + ":";
        for (int rank : ranks_of(found))
            text += " " + std::to_string(rank);
        return text;
    }

    int code;

  private:
    static std::vector<int> ranks_of(json_t *object)
    {
        std::vector<int> ranks;
        size_t i;
        json_t *culprit;
        json_array_foreach(json_object_get(object, "culprits"), i, culprit)
        {
            ranks.push_back(static_cast<int>(json_integer_value(json_object_get(culprit, "rank"))));
        }
        return ranks;
    }
};

struct Case {
    const char *scenario, *kind;
    std::vector<int> culprits, waiting;
    const char *op;
    int64_t seq;
    const char *why; /* part of it */
};

const Case cases[] = {
    {"healthy", "healthy", {}, {}, "", 0, ""},
    {"missing", "missing_rank", {2}, {0, 1, 3}, "AllReduce", 8, "never called AllReduce #8"},
    {"wrapped", "missing_rank", {2}, {0, 1, 3}, "AllReduce", 8, "never called AllReduce #8"},
    {"frames", "missing_rank", {2}, {0, 1, 3}, "AllReduce", 8, "never called AllReduce #8"},
    {"coalesced", "missing_rank", {2}, {0, 1, 3}, "AllReduce", 8, "never called AllReduce #8"},
    {"op", "mismatch", {1}, {0, 2, 3}, "AllReduce", 8, "operation differs: called AllGather"},
    {"size", "mismatch", {3}, {0, 1, 2}, "AllReduce", 8, "count differs"},
    {"dtype", "mismatch", {0}, {1, 2, 3}, "AllReduce", 8, "called AllReduce(count 1024, float16)"},
    {"skipped", "mismatch", {2}, {0, 1, 3}, "AllReduce", 3, "count differs"},
    {"subgroups", "missing_rank", {3}, {2}, "ReduceScatter", 9, "never called ReduceScatter #9"},
    {"pairs", "missing_rank", {1}, {2}, "Recv", 0, "the send that group rank 2 waits for"},
    {"batches", "missing_rank", {1}, {0}, "Send", 0, "that group rank 0 waits for"},
    {"uneven", "healthy", {}, {}, "", 0, ""},
    {"late", "straggler", {2}, {0, 1, 3}, "AllReduce", 20, "came last in 20 of 20"},
};

/* All scenarios with all protocols, made once. */
struct FlightRecorder : testing::TestWithParam<std::tuple<Case, int>> {
    static void SetUpTestSuite()
    {
        folder_ = new Folder;
        make(*folder_, "all");
    }
    static void TearDownTestSuite()
    {
        delete folder_;
    }
    static Folder *folder_;
};

Folder *FlightRecorder::folder_;

struct FlightRecorderFrames : testing::TestWithParam<int> {
};

TEST_P(FlightRecorder, OfEveryProtocolGivesTheVerdict)
{
    const auto &[expected, protocol] = GetParam();
    std::string folder = *folder_ / (expected.scenario + ("-" + std::to_string(protocol)));
    Verdict verdict(run({"analyze", "--json", folder}));
    EXPECT_EQ(verdict.text("kind"), expected.kind);
    EXPECT_EQ(verdict.code, strcmp(expected.kind, "healthy") == 0 ? 0 : 3);
    EXPECT_EQ(verdict.culprits(), expected.culprits);
    EXPECT_EQ(verdict.waiting(), expected.waiting);
    EXPECT_EQ(verdict.text("op"), expected.op);
    EXPECT_EQ(verdict.number("seq"), expected.seq);
    EXPECT_NE(verdict.why(0).find(expected.why), std::string::npos) << verdict.why(0);
    EXPECT_EQ(verdict.missing_evidence(), "");
}

INSTANTIATE_TEST_SUITE_P(Scenarios, FlightRecorder,
                         testing::Combine(testing::ValuesIn(cases), testing::Range(0, 6)),
                         [](const auto &info) {
                             return std::string(std::get<0>(info.param).scenario) + "_protocol_" +
                                    std::to_string(std::get<1>(info.param));
                         });

TEST_P(FlightRecorderFrames, SayWhereTheCulpritCalledLastAndWhereTheOthersWait)
{
    Folder folder;
    make(folder, "frames", {"--protocol", std::to_string(GetParam())});
    std::string program = " from function_0 (train.py:1) < function_1 (train.py:2) < ";
    Result text = run({"analyze", folder.path()});
    EXPECT_PRED2(has, text.out, "rank 2 last called AllReduce #7" + program);
    EXPECT_PRED2(has, text.out, "rank 0 waits in AllReduce #8, called" + program);
    Result json = run({"analyze", "--json", folder.path()});
    OwnJson root(json.out);
    json_t *frames = json_object_get(json_array_get(json_object_get(root, "calls"), 0), "frames");
    ASSERT_EQ(json_array_size(frames), 24U);
    EXPECT_STREQ(json_string_value(json_object_get(json_array_get(frames, 0), "name")),
                 "all_reduce");
    EXPECT_STREQ(json_string_value(json_object_get(json_array_get(frames, 1), "file")),
                 "/job/train.py");
    EXPECT_EQ(json_integer_value(json_object_get(json_array_get(frames, 1), "line")), 1);
}

/* Any file could be named in a dump, and a page is passed on. */
TEST(FlightRecorderFiles, HaveTheirSourceLinesOnThePageIfTheUserAsks)
{
    Folder folder, job;
    std::string page = folder / "report.html", source = job / "train.py", other = job / "notes.txt";
    std::ofstream(source) << "import torch\n    step(</script>)\n";
    std::ofstream(other) << "secret 1\nsecret 2\n";
    make(folder, "frames", {"--source", "/none.py", "--source", source});
    auto html = [&](const std::vector<std::string> &more) {
        std::vector<std::string> argv = {"analyze", folder.path(), "--html", page};
        argv.insert(argv.end(), more.begin(), more.end());
        EXPECT_EQ(run(argv).code(), 3);
        std::ifstream file(page);
        return std::string{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    };
    std::string line = "line 2 in function_1\\n          step(\\u003c/script\\u003e)\\n";
    EXPECT_EQ(html({}).find("step("), std::string::npos);
    std::string with = html({"--sources"});
    EXPECT_NE(with.find(line), std::string::npos);
    std::ofstream(folder / "rank_2.stacks.txt")
        << "Stacks.\n\nThread 1 \"a\", running\n  Python, innermost first:\n    File \"" << other
        << "\", line 1 in f\n    File \"" << source << "\", line 2 in function_1\n";
    with = html({"--sources"});
    EXPECT_NE(with.find(line.substr(0, line.size() - 2)), std::string::npos);
    EXPECT_NE(with.find("notes.txt"), std::string::npos);
    EXPECT_EQ(with.find("secret"), std::string::npos);
    std::filesystem::last_write_time(source, std::filesystem::file_time_type::clock::now() +
                                                 std::chrono::hours(1));
    EXPECT_EQ(html({"--sources"}).find("step("), std::string::npos);
    EXPECT_EQ(run({"analyze", folder.path(), "--sources"}).code(), 2);
}

/* The same once for all ranks that are in the same place. */
TEST(FlightRecorderFiles, HaveTheirStacksFoldedOnThePage)
{
    Folder folder;
    make(folder, "frames", {"--ranks", "8"});
    std::string page = folder / "report.html";
    EXPECT_EQ(run({"analyze", folder.path(), "--html", page}).code(), 3);
    std::ifstream file(page);
    std::string html{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    size_t begin = html.find("\"stacks\": [");
    ASSERT_NE(begin, std::string::npos);
    std::string stacks = html.substr(begin, html.find("\"look_at\"") - begin);
    EXPECT_PRED2(has, stacks, "waits in AllReduce #8 of group \\\"0:default_pg\\\"");
    EXPECT_NE(stacks.find("File \\\"/job/train.py\\\", line 1 in function_0"), std::string::npos);
    EXPECT_NE(stacks.find("\"ranks\": [0, 1, 3, 4, 5, 6, 7]"), std::string::npos) << stacks;
    EXPECT_NE(stacks.find("last called AllReduce #7"), std::string::npos) << stacks;
    EXPECT_NE(stacks.find("\"ranks\": [2]"), std::string::npos) << stacks;
}

INSTANTIATE_TEST_SUITE_P(Protocols, FlightRecorderFrames, testing::Range(0, 6));

TEST(FlightRecorderFiles, TellEveryIndependentMismatch)
{
    Folder folder;
    make(folder, "several");
    Verdict verdict(run({"analyze", "--json", folder.path()}));
    EXPECT_EQ(verdict.text("kind"), "mismatch");
    EXPECT_EQ(verdict.code, 3);
    ASSERT_EQ(verdict.findings(), 3u);
    EXPECT_EQ(verdict.finding(0), "0:default_pg AllReduce #2: 3");
    EXPECT_EQ(verdict.finding(1), "0:default_pg AllReduce #109: 2");
    EXPECT_EQ(verdict.finding(2), "7:tensor Broadcast #3: 1");
    Result text = run({"analyze", folder.path()});
    EXPECT_NE(text.out.find("also found"), std::string::npos) << text.out;
    EXPECT_NE(text.out.find("rank 1: count differs"), std::string::npos) << text.out;
}

TEST(FlightRecorderFiles, CallWhatFollowsFromOneCallTooFewOneFinding)
{
    Folder folder;
    make(folder, "skipped", {"--records", "40"});
    Verdict verdict(run({"analyze", "--json", folder.path()}));
    EXPECT_EQ(verdict.culprits(), std::vector<int>{2});
    EXPECT_EQ(verdict.findings(), 1u);
}

TEST(FlightRecorderFiles, BlameNobodyForARankWithoutAFile)
{
    Folder folder;
    make(folder, "absent");
    Verdict verdict(run({"analyze", "--json", folder.path()}));
    EXPECT_EQ(verdict.text("kind"), "unknown");
    EXPECT_TRUE(verdict.culprits().empty());
    EXPECT_PRED2(has, verdict.missing_evidence(), "no file of rank 2,");
}

TEST(FlightRecorderFiles, NeedNoParticularPrefixAndMayBeNamedOneByOne)
{
    Folder folder;
    make(folder, "missing", {"--prefix", "nccl_trace_rank_"});
    EXPECT_EQ(Verdict(run({"analyze", "--json", folder.path()})).culprits(), std::vector<int>{2});
    std::filesystem::rename(folder / "nccl_trace_rank_2", folder / "other-2.pkl");
    EXPECT_EQ(Verdict(run({"analyze", "--json", folder / "nccl_trace_rank_0",
                           folder / "nccl_trace_rank_1", folder / "other-2.pkl",
                           folder / "nccl_trace_rank_3"}))
                  .culprits(),
              std::vector<int>{2});
    std::filesystem::rename(folder / "other-2.pkl", folder / "second");
    Result result = run({"analyze", folder / "second"});
    EXPECT_EQ(result.code(), 2);
    EXPECT_NE(result.err.find("call it rank_<r>"), std::string::npos) << result.err;
}

TEST(FlightRecorderFiles, ThatWereCopiedStillTellOfTheHang)
{
    Folder folder;
    make(folder, "missing");
    for (const auto &entry : std::filesystem::directory_iterator(folder.path()))
        std::filesystem::last_write_time(
            entry.path(), std::filesystem::last_write_time(entry.path()) + std::chrono::hours(100));
    Verdict verdict(run({"analyze", "--json", folder.path()}));
    EXPECT_EQ(verdict.culprits(), std::vector<int>{2});
    EXPECT_LT(verdict.number("stalled_ms"), 3600 * 1000);
}

TEST(FlightRecorderFiles, ThatAreDamagedAreNamedAndTheOthersUsed)
{
    Folder folder;
    make(folder, "missing");
    std::string whole = read_file(folder / "rank_3");
    folder.write("rank_3", whole.substr(0, whole.size() / 2));
    Result result = run({"analyze", "--json", folder.path()});
    EXPECT_NE(result.err.find("rank_3: cut off"), std::string::npos) << result.err;
    Verdict verdict(result);
    EXPECT_EQ(verdict.culprits(), std::vector<int>{2});
    EXPECT_EQ(verdict.text("confidence"), "likely");
    EXPECT_NE(verdict.missing_evidence().find("rank_3: cut off"), std::string::npos);
}

TEST(FlightRecorderFiles, OfWhichManyAreDamagedInOneWayAreNamedInOneLine)
{
    Folder folder;
    make(folder, "missing", {"--ranks", "12"});
    for (int rank = 5; rank < 12; rank++)
        folder.write("rank_" + std::to_string(rank), "\x80\x02");
    Verdict verdict(run({"analyze", "--json", folder.path()}));
    EXPECT_EQ(verdict.culprits(), std::vector<int>{2});
    EXPECT_PRED2(has, verdict.missing_evidence(), "rank_5, rank_6, rank_7 and 4 more: cut off");
}

TEST(Unpickle, ReadsEveryPlainValueOfEveryProtocol)
{
    for (int protocol = 0; protocol <= 5; protocol++) {
        Folder folder;
        Process process(
            {"python3", "-c",
             "import pickle,sys\n"
             "shared=[1,2]\n"
             "value={'none':None,'true':True,'false':False,'zero':0,'byte':255,'short':65535,"
             "'int':-2147483648,'long':1795171332692540364,'negative':-1795171332692540364,"
             "'huge':1<<70,'tiny':-(1<<70),'real':-1.5,'text':'a\\u00e9\\u20ac\\n\\\\','':'',"
             "'list':[[],[[3]],()],'tuples':(1,(2,3),(4,5,6),(7,8,9,10)),'shared':[shared,shared],"
             "'many':list(range(2500)),**({'bytes':b'ab\\x00'} if int(sys.argv[2])>2 else {})}\n"
             "pickle.dump(value,open(sys.argv[1],'wb'),protocol=int(sys.argv[2]))",
             folder / "plain", std::to_string(protocol)});
        ASSERT_EQ(process.wait_end(), 0) << process.err();
        std::string bytes = read_file(folder / "plain");
        std::string numbers;
        for (int i = 0; i < 2500; i++)
            numbers += (i ? "," : "") + std::to_string(i);
        /* Of text that is no ASCII protocol 0 has what UTF-8 can say in its place. */
        std::string text = protocol == 0 ? "a?\u20ac\n\\" : "a\u00e9\u20ac\n\\";
        EXPECT_EQ(unpickled(bytes),
                  "{'none':None,'true':True,'false':False,'zero':0,'byte':255,'short':65535,"
                  "'int':-2147483648,'long':1795171332692540364,'negative':-1795171332692540364,"
                  "'huge':9223372036854775807,'tiny':-9223372036854775808,'real':-1.5,'text':'" +
                      text +
                      "','':'','list':[[],[[3]],()],'tuples':(1,(2,3),(4,5,6),(7,8,9,10)),"
                      "'shared':[[1,2],[1,2]],'many':[" +
                      numbers + "]" + (protocol > 2 ? std::string(",'bytes':b3") : "") + "}")
            << "protocol " << protocol;
    }
}

struct Refused {
    const char *what;
    std::string bytes, reason;
};

struct UnpickleRefuses : testing::TestWithParam<Refused> {
};

TEST_P(UnpickleRefuses, ByNameAndRunsNothing)
{
    EXPECT_NE(unpickled(GetParam().bytes).find("error: "), std::string::npos);
    EXPECT_PRED2(has, unpickled(GetParam().bytes), GetParam().reason);
}

INSTANTIATE_TEST_SUITE_P(
    Table, UnpickleRefuses,
    testing::Values(
        Refused{"global", "cos\nsystem\n(S'true'\ntR.", "GLOBAL would load"},
        Refused{"stack_global", std::string("\x80\x04\x8c\x02os\x8c\x06system\x93.", 15),
                "STACK_GLOBAL would load"},
        Refused{"reduce", "(I1\nR.", "REDUCE would run code"},
        Refused{"build", "}}b.", "BUILD would run code"},
        Refused{"inst", "(ios\nsystem\n.", "INST would run code"},
        Refused{"obj", "(o.", "OBJ would run code"},
        Refused{"newobj", std::string("\x80\x02)\x81.", 5), "NEWOBJ would run code"},
        Refused{"newobj_ex", std::string("\x80\x04)}\x92.", 6), "NEWOBJ_EX would run code"},
        Refused{"persid", "Pabc\n.", "PERSID would load"},
        Refused{"ext", std::string("\x82\x01.", 3), "EXT1 would load"},
        Refused{"set", std::string("\x80\x04\x8f.", 4), "EMPTY_SET makes what"},
        Refused{"buffer", std::string("\x80\x05\x97.", 4), "NEXT_BUFFER would load"},
        Refused{"protocol", std::string("\x80\x09N.", 4), "protocol 9"},
        Refused{"empty", ".", "STOP has not what"}, Refused{"nothing", "", "cut off"},
        Refused{"unknown", "\xff", "0xff is no instruction"},
        Refused{"pop", "0.", "POP has not what"},
        Refused{"memo", "h\x05.", "a value that is not there"},
        Refused{"memo index", "Nr\xff\xff\xff\x7f.", "more values than"},
        Refused{"append to an integer", "I1\nI2\na.", "APPEND has not what"},
        Refused{"a key without its value", "}(I1\nu.", "SETITEMS has not what"},
        Refused{"a mark inside", "(.", "STOP has not what"},
        Refused{"two values", "NN.", "STOP has not what"},
        Refused{"deep", std::string(300, '('), "nested more deeply"},
        Refused{"text", std::string("X\xff\xff\xff\x7fxx.", 8), "cut off inside BINUNICODE"},
        Refused{"text of eight bytes", std::string("\x8d\xff\xff\xff\xff\xff\xff\xff\xffx", 10),
                "cut off inside BINUNICODE8"},
        Refused{"number", "Ix\n.", "a number that is none"},
        Refused{"long", std::string("\x8b\xff\xff\xff\xff.", 6), "cut off inside LONG4"}),
    [](const auto &info) {
        std::string name = info.param.what;
        for (char &letter : name)
            if (!isalnum(letter))
                letter = '_';
        return name;
    });

} // namespace
