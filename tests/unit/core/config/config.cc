/*
 * The option table and its parser: every row, every type, every kind of mistake.
 */
#include "tests/unit/core/helpers/core.h"

namespace
{

struct Report {
    char severity;
    std::string line;
};

struct Parsed {
    struct ng_config config;
    int mistakes;
    std::vector<Report> reports;
    std::vector<std::string> environment; /* owns what the config's strings point to */
};

void collect(void *context, char severity, const char *line)
{
    ((std::vector<Report> *)context)->push_back({severity, line});
}

Parsed parse(std::vector<std::string> environment)
{
    Parsed parsed;
    std::vector<char *> entries;
    parsed.environment = std::move(environment);
    for (std::string &entry : parsed.environment)
        entries.push_back(&entry[0]);
    entries.push_back(nullptr);
    parsed.mistakes = ng_config_parse(&parsed.config, entries.data(), collect, &parsed.reports);
    return parsed;
}

const struct ng_option *option(const char *name)
{
    for (size_t i = 0; i < ng_option_count; i++)
        if (strcmp(ng_options[i].name, name) == 0)
            return &ng_options[i];
    return nullptr;
}

/* The value of a duration of NCCLGUARD_TIMEOUT's row; -1 where it is refused. */
int64_t duration(const char *text)
{
    int64_t value = -1;
    char why[256] = "";
    if (ng_config_parse_value(option("NCCLGUARD_TIMEOUT"), text, &value, why, sizeof(why)) != 0) {
        EXPECT_STRNE(why, "") << text;
        EXPECT_EQ(value, -1) << "an output is written on success only";
        return -1;
    }
    return value;
}

} // namespace

TEST(Config, EveryRowIsWellFormed)
{
    std::set<std::string> names;
    for (size_t i = 0; i < ng_option_count; i++) {
        const struct ng_option *row = &ng_options[i];
        EXPECT_TRUE(names.insert(row->name).second) << row->name << " stands twice";
        EXPECT_EQ(strncmp(row->name, "NCCLGUARD", 9), 0) << row->name;
        EXPECT_STRNE(row->help, "") << row->name;
        EXPECT_EQ(row->choices != nullptr, row->type == NG_CONFIG_CHOICE) << row->name;
        EXPECT_LE(row->minimum, row->maximum) << row->name;
        EXPECT_TRUE(row->default_value || row->type == NG_CONFIG_STRING) << row->name;
    }
    for (size_t i = 0; i < ng_reserved_option_count; i++) {
        EXPECT_TRUE(names.insert(ng_reserved_options[i].name).second)
            << ng_reserved_options[i].name;
        EXPECT_STRNE(ng_reserved_options[i].help, "") << ng_reserved_options[i].name;
    }
}

TEST(Config, EveryDefaultParses)
{
    for (size_t i = 0; i < ng_option_count; i++) {
        const struct ng_option *row = &ng_options[i];
        char why[256] = "";
        int64_t value[2] = {0, 0};
        if (!row->default_value)
            continue;
        EXPECT_EQ(ng_config_parse_value(row, row->default_value, value, why, sizeof(why)), 0)
            << row->name << ": " << why;
    }
}

TEST(Config, AnEmptyEnvironmentGivesTheDefaultsOfTheContract)
{
    Parsed parsed = parse({});
    EXPECT_EQ(parsed.mistakes, 0);
    EXPECT_TRUE(parsed.reports.empty());
    EXPECT_TRUE(parsed.config.enabled);
    EXPECT_EQ(parsed.config.log_level, NG_LOG_WARN);
    EXPECT_EQ(parsed.config.log_file, nullptr);
    EXPECT_EQ(parsed.config.job, nullptr);
    EXPECT_EQ(parsed.config.rank, -1);
    EXPECT_EQ(parsed.config.world_size, -1);
    EXPECT_STREQ(parsed.config.store, "local:");
    EXPECT_EQ(parsed.config.timeout_ns, 600 * NG_S);
    EXPECT_EQ(parsed.config.init_timeout_ns, 600 * NG_S);
    EXPECT_EQ(parsed.config.suspect_ns, 5 * NG_S);
    EXPECT_EQ(parsed.config.suspect_ns, NG_SUSPECT_DEFAULT_NS);
    EXPECT_EQ(parsed.config.cold_suspect_ns, NG_COLD_SUSPECT_DEFAULT_NS);
    EXPECT_EQ(parsed.config.on_timeout, (int)NG_ON_TIMEOUT_KILL);
    EXPECT_EQ(parsed.config.trace_size, 2000);
    EXPECT_EQ(parsed.config.dump_wait_ns, 15 * NG_S);
    EXPECT_STREQ(parsed.config.exit_how, "abort");
}

TEST(Config, NoEnvironmentAtAllGivesTheDefaults)
{
    struct ng_config config;
    EXPECT_EQ(ng_config_parse(&config, nullptr, collect, nullptr), 0);
    EXPECT_EQ(config.trace_size, 2000);
}

TEST(Config, ValuesOfEveryTypeArrive)
{
    Parsed parsed =
        parse({"PATH=/bin", "NCCLGUARD=0", "NCCLGUARD_LOG=debug", "NCCLGUARD_RANK=7",
               "NCCLGUARD_TIMEOUT=1500ms", "NCCLGUARD_ON_TIMEOUT=log", "NCCLGUARD_DIR=/somewhere"});
    EXPECT_EQ(parsed.mistakes, 0);
    EXPECT_TRUE(parsed.reports.empty()) << parsed.reports[0].line;
    EXPECT_FALSE(parsed.config.enabled);
    EXPECT_EQ(parsed.config.log_level, NG_LOG_DEBUG);
    EXPECT_EQ(parsed.config.rank, 7);
    EXPECT_EQ(parsed.config.timeout_ns, 1500 * NG_MS);
    EXPECT_EQ(parsed.config.on_timeout, (int)NG_ON_TIMEOUT_LOG);
    EXPECT_STREQ(parsed.config.dir, "/somewhere");
}

TEST(Config, BoolsTakeTheUsualWords)
{
    for (const char *yes : {"1", "on", "true", "yes", "ON", "True"})
        EXPECT_TRUE(parse({std::string("NCCLGUARD=") + yes}).config.enabled) << yes;
    for (const char *no : {"0", "off", "false", "no", "OFF"})
        EXPECT_FALSE(parse({std::string("NCCLGUARD=") + no}).config.enabled) << no;
    for (const char *bad : {"2", "-1", "y", "1 ", " 1", "truee"})
        EXPECT_EQ(parse({std::string("NCCLGUARD=") + bad}).mistakes, 1) << bad;
}

TEST(Config, IntegersKeepToTheirBounds)
{
    EXPECT_EQ(parse({"NCCLGUARD_TRACE_SIZE=0"}).config.trace_size, 0);
    EXPECT_EQ(parse({"NCCLGUARD_TRACE_SIZE=16777216"}).config.trace_size, 1 << 24);
    EXPECT_EQ(parse({"NCCLGUARD_RANK=-1"}).config.rank, -1);
    for (const char *bad : {"-1", "16777217", "1e3", "0x10", "ten", "10 ", "9223372036854775808",
                            "99999999999999999999999", "1.5", "-"}) {
        Parsed parsed = parse({std::string("NCCLGUARD_TRACE_SIZE=") + bad});
        EXPECT_EQ(parsed.mistakes, 1) << bad;
        EXPECT_EQ(parsed.config.trace_size, 2000) << "the default stays";
    }
}

TEST(Config, DurationsTakeEveryUnit)
{
    EXPECT_EQ(duration("250ms"), 250 * NG_MS);
    EXPECT_EQ(duration("5s"), 5 * NG_S);
    EXPECT_EQ(duration("2m"), 120 * NG_S);
    EXPECT_EQ(duration("1h"), 3600 * NG_S);
    EXPECT_EQ(duration("0.5s"), 500 * NG_MS);
    EXPECT_EQ(duration("1.5m"), 90 * NG_S);
    EXPECT_EQ(duration("0"), 0);
    EXPECT_EQ(duration("5"), 5 * NG_S) << "seconds, where no unit is told";
    EXPECT_EQ(duration("0.25"), 250 * NG_MS);
    EXPECT_EQ(duration("0s"), 0);
    EXPECT_EQ(duration("1000000s"), 1000000 * NG_S) << "the upper bound itself";
}

TEST(Config, DurationsThatMeanNothingAreRefused)
{
    for (const char *bad : {"5 ",      "s",        "ms",     "5 s",    "5sec", "5S",   "-1s",
                            "-0.001s", "1000001s", "1e300h", "1e400s", "nan",  "nans", "inf",
                            "infs",    "-infs",    "5s5s",   "--5s",   "5d",   "0x",   "1,5s"})
        EXPECT_EQ(duration(bad), -1) << bad;
}

TEST(Config, ChoicesTakeTheirWordsAndPyTorchsNumbers)
{
    EXPECT_EQ(parse({"NCCLGUARD_ON_TIMEOUT=0"}).config.on_timeout, (int)NG_ON_TIMEOUT_LOG);
    EXPECT_EQ(parse({"NCCLGUARD_ON_TIMEOUT=1"}).config.on_timeout, (int)NG_ON_TIMEOUT_TEARDOWN);
    EXPECT_EQ(parse({"NCCLGUARD_ON_TIMEOUT=2"}).config.on_timeout, (int)NG_ON_TIMEOUT_ABORT);
    EXPECT_EQ(parse({"NCCLGUARD_ON_TIMEOUT=3"}).config.on_timeout, (int)NG_ON_TIMEOUT_KILL);
    EXPECT_EQ(parse({"NCCLGUARD_ON_TIMEOUT=abort"}).config.on_timeout, (int)NG_ON_TIMEOUT_ABORT);
    EXPECT_EQ(parse({"NCCLGUARD_ON_TIMEOUT=teardown"}).config.on_timeout,
              (int)NG_ON_TIMEOUT_TEARDOWN);
    EXPECT_EQ(parse({"NCCLGUARD_ON_TIMEOUT=LOG"}).config.on_timeout, (int)NG_ON_TIMEOUT_LOG);
    for (const char *level : {"off", "error", "warn", "info", "debug"})
        EXPECT_EQ(parse({std::string("NCCLGUARD_LOG=") + level}).mistakes, 0) << level;
    EXPECT_EQ(parse({"NCCLGUARD_LOG=off"}).config.log_level, NG_LOG_OFF);
    for (const char *bad : {"kil", "killl", "log|kill", "log=0", "9", "=", "|"}) {
        Parsed parsed = parse({std::string("NCCLGUARD_ON_TIMEOUT=") + bad});
        EXPECT_EQ(parsed.mistakes, 1) << bad;
        EXPECT_EQ(parsed.config.on_timeout, (int)NG_ON_TIMEOUT_KILL) << bad;
    }
}

TEST(Config, ColdCallsAreNotSuspectedEarlierThanOthersUnlessThatIsAskedFor)
{
    EXPECT_EQ(parse({"NCCLGUARD_SUSPECT=2s"}).config.cold_suspect_ns, 30 * NG_S);
    EXPECT_EQ(parse({"NCCLGUARD_SUSPECT=60s"}).config.cold_suspect_ns, 60 * NG_S);
    EXPECT_EQ(parse({"NCCLGUARD_COLD_SUSPECT=", "NCCLGUARD_SUSPECT=60s"}).config.cold_suspect_ns,
              60 * NG_S);
    EXPECT_EQ(parse({"NCCLGUARD_COLD_SUSPECT=3s", "NCCLGUARD_SUSPECT=60s"}).config.cold_suspect_ns,
              3 * NG_S);
}

TEST(Config, ABadValueNamesTheVariableTheValueAndWhatIsAllowed)
{
    Parsed parsed = parse(
        {"NCCLGUARD_ON_TIMEOUT=explode", "NCCLGUARD_TIMEOUT=5x", "NCCLGUARD_TRACE_SIZE=many"});
    ASSERT_EQ(parsed.mistakes, 3);
    ASSERT_EQ(parsed.reports.size(), 3u);
    for (const Report &report : parsed.reports) {
        EXPECT_EQ(report.severity, 'E');
        EXPECT_EQ(report.line.find('\n'), std::string::npos);
    }
    for (const char *part : {"NCCLGUARD_ON_TIMEOUT", "explode", "log", "kill"})
        EXPECT_NE(parsed.reports[0].line.find(part), std::string::npos) << parsed.reports[0].line;
    for (const char *part : {"NCCLGUARD_TIMEOUT", "=5", "600s", "ms, s, m or h"})
        EXPECT_NE(parsed.reports[1].line.find(part), std::string::npos) << parsed.reports[1].line;
    for (const char *part : {"NCCLGUARD_TRACE_SIZE", "many", "16777216"})
        EXPECT_NE(parsed.reports[2].line.find(part), std::string::npos) << parsed.reports[2].line;
}

TEST(Config, AnEmptyValueMeansNotSet)
{
    Parsed parsed = parse({"NCCLGUARD_TIMEOUT=", "NCCLGUARD_DIR=", "NCCLGUARD_LOG=", "NCCLGUARD="});
    EXPECT_EQ(parsed.mistakes, 0);
    EXPECT_TRUE(parsed.reports.empty());
    EXPECT_EQ(parsed.config.timeout_ns, 600 * NG_S);
    EXPECT_EQ(parsed.config.dir, nullptr);
    EXPECT_TRUE(parsed.config.enabled);
}

TEST(Config, AnUnknownNameGetsDidYouMean)
{
    static const struct {
        const char *wrong, *right;
    } rows[] = {{"NCCLGUARD_TIMEOT", "NCCLGUARD_TIMEOUT"},
                {"NCCLGUARD_TIME_OUT", "NCCLGUARD_TIMEOUT"},
                {"NCCLGUARD_TRACESIZE", "NCCLGUARD_TRACE_SIZE"},
                {"NCCLGUARD_DUMPDIR", "NCCLGUARD_DUMP_DIR"},
                {"NCCLGUARD_SUSPEKT", "NCCLGUARD_SUSPECT"}};
    for (const auto &row : rows) {
        Parsed parsed = parse({std::string(row.wrong) + "=1"});
        EXPECT_EQ(parsed.mistakes, 0)
            << "a warning, no mistake: an older library may meet a newer setting";
        ASSERT_EQ(parsed.reports.size(), 1u);
        EXPECT_EQ(parsed.reports[0].severity, 'W');
        EXPECT_NE(parsed.reports[0].line.find(row.wrong), std::string::npos);
        EXPECT_NE(parsed.reports[0].line.find(std::string("did you mean ") + row.right + "?"),
                  std::string::npos)
            << parsed.reports[0].line;
    }
}

TEST(Config, ANameLikeNoOtherIsNotGuessedAt)
{
    Parsed parsed =
        parse({"NCCLGUARD_ENTIRELY_SOMETHING_ELSE_AND_LONGER_THAN_ANY_OTHER_NAME_OF_OURS=1"});
    ASSERT_EQ(parsed.reports.size(), 1u);
    EXPECT_EQ(parsed.reports[0].line.find("did you mean"), std::string::npos)
        << parsed.reports[0].line;
}

TEST(Config, NamesOfOthersAreNotLookedAt)
{
    Parsed parsed =
        parse({"NCCL_DEBUG=INFO", "NCCLGUARDIAN=1", "NCCLGUARDX_TIMEOUT=1", "nonsense", "=x", ""});
    EXPECT_EQ(parsed.mistakes, 0);
    EXPECT_TRUE(parsed.reports.empty()) << parsed.reports[0].line;
}

TEST(Config, AReservedNameIsToldUnlessItAsksForNothing)
{
    for (size_t i = 0; i < ng_reserved_option_count; i++) {
        const struct ng_reserved_option *row = &ng_reserved_options[i];
        Parsed harmless = parse({std::string(row->name) + "=" + row->harmless});
        EXPECT_TRUE(harmless.reports.empty()) << row->name;
        EXPECT_TRUE(parse({std::string(row->name) + "="}).reports.empty()) << row->name;

        Parsed asked = parse({std::string(row->name) + "=something"});
        EXPECT_EQ(asked.mistakes, 0);
        ASSERT_EQ(asked.reports.size(), 1u) << row->name;
        EXPECT_EQ(asked.reports[0].severity, 'W');
        for (const char *part : {row->name, "something", row->help})
            EXPECT_NE(asked.reports[0].line.find(part), std::string::npos) << asked.reports[0].line;
    }
}

TEST(Config, TheCommandsOwnNamesAreSilent)
{
    EXPECT_TRUE(
        parse({"NCCLGUARD_RUN_ID=run-1-2", "NCCLGUARD_LIB=/lib/libncclguard.so"}).reports.empty());
}

TEST(Config, OverlongNamesAndValuesAreCutNotOverflown)
{
    std::string name = "NCCLGUARD_" + std::string(5000, 'X');
    Parsed parsed = parse({name + "=1", "NCCLGUARD_TIMEOUT=" + std::string(5000, '9')});
    EXPECT_EQ(parsed.mistakes, 1);
    ASSERT_EQ(parsed.reports.size(), 2u);
    for (const Report &report : parsed.reports)
        EXPECT_LT(report.line.size(), 512u);
}
