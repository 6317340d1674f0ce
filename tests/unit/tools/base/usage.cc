/*
 * What people meet first: help, versions, tables, and two lines for every usage error.
 */

#include <set>

#include "tests/gtest/own_json.h"
#include "tests/unit/tools/command.h"

extern "C" {
#include "core/config/config.h"
#include "core/nccl/api.h"
}

namespace
{

struct Mistake {
    std::vector<std::string> arguments;
    std::string names; /* in the first line */
    std::string mends; /* in the second */
};

struct UsageError : testing::TestWithParam<Mistake> {
};

TEST_P(UsageError, ExitsWith2AndOneLineEachForMistakeAndMend)
{
    Result result = run(GetParam().arguments);
    EXPECT_EQ(result.code(), 2);
    EXPECT_EQ(result.out, "");
    std::vector<std::string> told = lines(result.err);
    ASSERT_EQ(told.size(), 2u) << result.err;
    EXPECT_NE(told[0].find(GetParam().names), std::string::npos) << told[0];
    EXPECT_NE(told[1].find(GetParam().mends), std::string::npos) << told[1];
}

INSTANTIATE_TEST_SUITE_P(
    Table, UsageError,
    testing::Values(
        Mistake{{}, "no command", "--help"},
        Mistake{{"rum"}, "rum", "did you mean `ncclguard run`"},
        Mistake{{"analyse", "x"}, "analyse", "did you mean `ncclguard analyze`"},
        Mistake{{"api"}, "api", "did you mean `ncclguard apis`"},
        Mistake{{"zzzzzz"}, "unknown command zzzzzz", "--help"},
        Mistake{{"--versio"}, "unknown option --versio", "--help"},
        Mistake{{"run"}, "no program", "run PROG"},
        Mistake{{"run", "--timeout", "5s"}, "no program", "run PROG"},
        Mistake{{"run", "--timout", "5s", "true"}, "--timout", "did you mean --timeout"},
        Mistake{{"run", "--timout=5s", "true"}, "--timout", "did you mean --timeout"},
        Mistake{{"run", "--xyzzy", "true"}, "--xyzzy", "run --help"},
        Mistake{{"run", "-x", "true"}, "-x", "run --help"},
        Mistake{{"run", "--timeout"}, "--timeout needs a value", "--timeout DURATION"},
        Mistake{{"run", "--timeout", "5x", "true"}, "--timeout 5x", "ms, s, m or h"},
        Mistake{{"run", "--timeout", "", "true"}, "--timeout", "ms, s, m or h"},
        Mistake{{"run", "--timeout", "-5s", "true"}, "--timeout -5s", "ms, s, m or h"},
        Mistake{
            {"run", "--on-timeout", "explode", "true"}, "explode", "log, teardown, abort, kill"},
        Mistake{{"run", "--store", "redis://h:x", "true"}, "redis://h:***", "1 to 65535"},
        Mistake{{"run", "--store", "redis://:p@", "true"}, "redis://:***@", "host is missing"},
        Mistake{{"run", "--store", "file:x", "true"}, "file:***", "local:DIR"},
        Mistake{{"run", "--fault", "op=AllRduce:hang", "true"},
                "--fault, column 4: no operation is called AllRduce",
                "possible there: AllReduce, Broadcast"},
        Mistake{{"run", "--fault", "rank=1:delay", "true"},
                "column 13: delay has no argument",
                "a duration, such as 500ms or 2s"},
        Mistake{{"run", "--out", "/proc/nowhere", "true"}, "/proc/nowhere", "folder"},
        Mistake{{"run", "--help=yes"}, "--help takes no value", "alone"},
        Mistake{{"top", "extra"}, "extra", "top --job JOB"},
        Mistake{{"top", "--jbo", "x"}, "--jbo", "did you mean --job"},
        Mistake{{"top", "--interval", "1ms"}, "--interval 1ms", "100ms"},
        Mistake{{"top", "--interval", "soon"}, "--interval soon", "ms, s, m or h"},
        Mistake{{"top", "--stalled", "0"}, "--stalled 0", ""},
        Mistake{{"top", "--store", "none"}, "none", "--store URL"},
        Mistake{{"top", "--store", "file:x"}, "file:", "local:DIR"},
        Mistake{{"abort", "--job"}, "--job needs a value", "--job JOB"},
        Mistake{{"abort", "extra"}, "extra", "abort --job JOB"},
        Mistake{{"abort"}, "no job was named", "--job JOB"},
        Mistake{{"suspend"}, "no job was named", "--job JOB"},
        Mistake{{"suspend", "--job", "x", "--for", "soon"},
                "--for soon",
                "use seconds, or a number with ms"},
        Mistake{{"resume", "extra"}, "extra", "resume --job JOB"},
        Mistake{{"reload", "--group", "x"}, "--group", "reload --help"},
        Mistake{{"set", "timing=all"}, "no job was named", "--job JOB"},
        Mistake{
            {"set", "--job", "x"}, "nothing is to be set", "write timing=off|sampled|all or log="},
        Mistake{{"set", "--job", "x", "timing"}, "timing is not of the form NAME=VALUE", "log=off"},
        Mistake{{"set", "--job", "x", "timing=some"},
                "timing=some is not valid",
                "use one of: off, sampled, all"},
        Mistake{{"set", "--job", "x", "log=info", "timing="},
                "timing= is not valid",
                "use one of: off, sampled, all"},
        Mistake{{"set", "--job", "x", "timng=all"}, "timng", "did you mean timing=off|sampled|all"},
        Mistake{{"set", "--job", "x", "timeout=5s"},
                "timeout is read when a process starts",
                "write timing="},
        Mistake{{"set", "--job", "x", "NCCLGUARD_STORE_KEY=x"},
                "NCCLGUARD_STORE_KEY is read when a process starts",
                "write timing="},
        Mistake{{"set", "--job", "x", "colour=red"}, "no option is called colour", "timing="},
        Mistake{
            {"set", "--job", "x", "log=info", "NCCLGUARD_LOG=warn"}, "log is set twice", "once"},
        Mistake{{"abrot"}, "abrot", "did you mean `ncclguard abort`"},
        Mistake{{"analyze"}, "no evidence", "analyze PATH"},
        Mistake{{"analyze", "--jsn", "x"}, "--jsn", "did you mean --json"},
        Mistake{{"apis", "extra"}, "extra", "ncclguard apis"},
        Mistake{{"doctor", "--jsn"}, "--jsn", "did you mean --json"},
        Mistake{{"doctor", "--xyzzy", "ls"}, "--xyzzy", "doctor --help"},
        Mistake{{"doctor", ""}, "empty", "doctor -- PROG"},
        Mistake{{"docter"}, "docter", "did you mean `ncclguard doctor`"},
        Mistake{{"config", "--markdwn"}, "--markdwn", "did you mean --markdown"},
        Mistake{{"config", "extra"}, "extra", "ncclguard config"}));

TEST(Usage, ABadVariableInTheEnvironmentStopsRunBeforeTheProgram)
{
    Result result = run({"run", "echo", "started"}, {{"NCCLGUARD_TIMEOUT", "soon"}});
    EXPECT_EQ(result.code(), 2);
    EXPECT_EQ(result.out, "");
    ASSERT_EQ(lines(result.err).size(), 2u) << result.err;
    EXPECT_NE(result.err.find("NCCLGUARD_TIMEOUT=soon"), std::string::npos);
}

TEST(Usage, ABadStoreInTheEnvironmentStopsRunBeforeTheProgram)
{
    Result result = run({"run", "echo", "started"}, {{"NCCLGUARD_STORE", "redis://h:x"}});
    EXPECT_EQ(result.code(), 2);
    EXPECT_EQ(result.out, "");
}

TEST(Usage, VersionAndHelpExitWith0AndEachCommandHasHelp)
{
    EXPECT_EQ(run({"--version"}).out, "ncclguard " NG_VERSION "\n");
    EXPECT_EQ(run({"-V"}).out, "ncclguard " NG_VERSION "\n");
    Result help = run({"--help"});
    EXPECT_EQ(help.code(), 0);
    for (const char *command : {"run", "top", "abort", "suspend", "resume", "reload", "set",
                                "analyze", "apis", "doctor", "config"}) {
        EXPECT_NE(help.out.find(std::string("\n  ") + command + " "), std::string::npos) << command;
        Result of_command = run({command, "--help"});
        EXPECT_EQ(of_command.code(), 0);
        EXPECT_EQ(of_command.out.rfind(std::string("usage: ncclguard ") + command, 0), 0u);
        EXPECT_EQ(of_command.err, "");
    }
}

TEST(Usage, AFullDiskIsAFailureNotAnEmptyAnswer)
{
    Result result = run({"config"}, {}, [] {
        int full = open("/dev/full", O_WRONLY);
        dup2(full, 1);
    });
    EXPECT_EQ(result.code(), 1);
    EXPECT_NE(result.err.find("cannot write"), std::string::npos);
}

TEST(Config, HasALineForEachVariableWithItsDefault)
{
    std::vector<std::string> told = lines(run({"config"}).out);
    ASSERT_EQ(told.size(), 1 + ng_option_count + ng_reserved_option_count);
    for (size_t i = 0; i < ng_option_count; i++) {
        EXPECT_EQ(told[i + 1].rfind(std::string(ng_options[i].name) + " ", 0), 0u) << told[i + 1];
        EXPECT_NE(told[i + 1].find(ng_options[i].help), std::string::npos);
        if (ng_options[i].default_value) {
            EXPECT_NE(told[i + 1].find(ng_options[i].default_value), std::string::npos);
        }
    }
    for (size_t i = 0; i < ng_reserved_option_count; i++) {
        const std::string &line = told[i + 1 + ng_option_count];
        EXPECT_EQ(line.rfind(ng_reserved_options[i].name, 0), 0u);
        EXPECT_NE(line.find("not in this version"), std::string::npos);
    }
}

TEST(Config, MarkdownRowsHaveFourCells)
{
    std::vector<std::string> told = lines(run({"config", "--markdown"}).out);
    ASSERT_EQ(told.size(), 2 + ng_option_count + ng_reserved_option_count);
    for (const std::string &line : told)
        EXPECT_EQ(std::count(line.begin(), line.end(), '|'), 5) << line;
}

TEST(Apis, TextHasALineForEachRowOfTheTableAndTheirNumber)
{
    std::vector<std::string> told = lines(run({"apis"}).out);
    ASSERT_EQ(told.size(), ng_api_count + 1);
    for (unsigned i = 0; i < ng_api_count; i++)
        EXPECT_EQ(told[i].rfind(std::string("nccl") + ng_api_table[i].name + " ", 0), 0u)
            << told[i];
    EXPECT_EQ(told.back().rfind(std::to_string(ng_api_count) + " APIs: ", 0), 0u);
}

TEST(Apis, JsonSaysOfEachApiWhetherItIsTrackedOrWhyNot)
{
    Result result = run({"apis", "--json"});
    OwnJson root(result.out);
    EXPECT_STREQ(json_string_value(json_object_get(root, "schema")), "ncclguard.apis/1");
    json_t *list = json_object_get(root, "apis");
    ASSERT_EQ(json_array_size(list), ng_api_count);
    std::set<std::string> names;
    for (unsigned i = 0; i < ng_api_count; i++) {
        json_t *api = json_array_get(list, i);
        const char *name = json_string_value(json_object_get(api, "name"));
        ASSERT_NE(name, nullptr);
        EXPECT_TRUE(names.insert(name).second) << name;
        bool tracked = json_is_true(json_object_get(api, "tracked"));
        EXPECT_STREQ(json_string_value(json_object_get(api, "kind")),
                     tracked ? "tracked" : "passed");
        EXPECT_STREQ(json_string_value(json_object_get(api, "since")), ng_api_table[i].since_text);
        EXPECT_EQ(tracked, ng_api_table[i].tracked);
        EXPECT_EQ(json_is_string(json_object_get(api, "op")), tracked) << name;
        EXPECT_EQ(json_is_string(json_object_get(api, "reason")), !tracked) << name;
    }
    EXPECT_TRUE(names.count("ncclAllReduce"));
}

} /* namespace */
