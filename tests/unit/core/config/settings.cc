/*
 * What a process is set to, as text: where each value comes from, and nothing that must not be
 * told.
 */
#include "tests/unit/core/helpers/core.h"

extern "C" {
#include "core/config/settings.h"
#include "core/util/log.h"
}

namespace
{

using Lines = std::vector<std::string>;

/* One process with this environment. */
struct Process {
    explicit Process(const Lines &variables) : environment(variables)
    {
        for (std::string &entry : environment)
            entries.push_back(&entry[0]);
        entries.push_back(nullptr);
        EXPECT_EQ(ng_config_parse(
                      &config, entries.data(), [](void *, char, const char *) {}, nullptr),
                  0);
        launch = {"torchrun", 3, 8, 1, "train", true, 0, ""};
    }
    /* The text, in as much room. */
    std::string text(size_t bytes = NG_SETTINGS_BYTES) const
    {
        struct ng_settings_source source = {&config,      &launch, store,
                                            "/dev/shm/x", "",      entries.data()};
        std::vector<char> room(bytes + 1, '#');
        ng_settings_write(&source, room.data(), bytes);
        EXPECT_EQ(room[bytes], '#');
        EXPECT_LT(strlen(room.data()), bytes);
        return room.data();
    }
    /* "VALUE (FROM)" of a name; "" it is not there. */
    std::string value(const std::string &name) const
    {
        std::string all = text();
        const char *at = all.c_str();
        struct ng_setting setting;
        while (ng_settings_next(&at, &setting))
            if (name == setting.name)
                return std::string(setting.value) +
                       (setting.from[0] ? std::string(" (") + setting.from + ")" : "");
        return "";
    }

    Lines environment;
    std::vector<char *> entries;
    struct ng_config config;
    struct ng_launch launch;
    const char *store = "local:";
};

Lines names_in(const std::string &text)
{
    Lines names;
    const char *at = text.c_str();
    struct ng_setting setting;
    while (ng_settings_next(&at, &setting))
        names.push_back(setting.name);
    return names;
}

} // namespace

TEST(Settings, EachOptionIsThereOnceWithWhereItComesFrom)
{
    Process process({"NCCLGUARD_TIMEOUT=90", "NCCLGUARD_ABORT_WAIT=1500ms",
                     "NCCLGUARD_ON_TIMEOUT=2", "NCCLGUARD_CHECK=strict+args",
                     "NCCLGUARD_TRACE_SIZE=500", "NCCLGUARD_LOG="});
    Lines names = names_in(process.text());
    ASSERT_EQ(names.size(), ng_option_count);
    for (size_t i = 0; i < ng_option_count; i++)
        EXPECT_EQ(names[i], ng_options[i].name);
    EXPECT_EQ(process.value("NCCLGUARD_TIMEOUT"), "90s (environment)");
    EXPECT_EQ(process.value("NCCLGUARD_ABORT_WAIT"), "1500ms (environment)");
    EXPECT_EQ(process.value("NCCLGUARD_ON_TIMEOUT"), "abort (environment)");
    EXPECT_EQ(process.value("NCCLGUARD_CHECK"), "strict+args (environment)");
    EXPECT_EQ(process.value("NCCLGUARD_TRACE_SIZE"), "500 (environment)");
    EXPECT_EQ(process.value("NCCLGUARD_LOG"), "warn (default)");
    EXPECT_EQ(process.value("NCCLGUARD_GRAPHS"), "1 (default)");
    EXPECT_EQ(process.value("NCCLGUARD_RULES"), " (default)");
    EXPECT_EQ(process.value("NCCLGUARD_DIR"), "/dev/shm/x (default)");
}

/* A default is shown as config.def has it, so that a user may write it. */
TEST(Settings, ADefaultIsShownAsItIsWritten)
{
    Process process({});
    for (size_t i = 0; i < ng_option_count; i++) {
        const struct ng_option &option = ng_options[i];
        if (!option.default_value || strcmp(option.name, "NCCLGUARD_RANK") == 0 ||
            strcmp(option.name, "NCCLGUARD_WORLD_SIZE") == 0)
            continue;
        EXPECT_EQ(process.value(option.name), std::string(option.default_value) + " (default)")
            << option.name;
    }
}

TEST(Settings, WhatTheLauncherTellsHoldsUntilItIsSet)
{
    Process told({});
    EXPECT_EQ(told.value("NCCLGUARD_RANK"), "3 (launcher)");
    EXPECT_EQ(told.value("NCCLGUARD_WORLD_SIZE"), "8 (launcher)");
    EXPECT_EQ(told.value("NCCLGUARD_JOB"), "train (launcher)");
    EXPECT_EQ(Process({"NCCLGUARD_RANK=3"}).value("NCCLGUARD_RANK"), "3 (environment)");
    EXPECT_EQ(Process({"NCCLGUARD_JOB=train"}).value("NCCLGUARD_JOB"), "train (environment)");
    told.launch.rank = -1;
    told.launch.job_is_shared = false;
    EXPECT_EQ(told.value("NCCLGUARD_RANK"), "-1 (default)");
    EXPECT_EQ(told.value("NCCLGUARD_JOB"), "train (default)");
}

TEST(Settings, VariablesOfNcclCudaAndTheLauncherAreThereByName)
{
    Process process({"RANK=3", "HOME=/root", "NCCL_NET=Socket", "CUDA_VISIBLE_DEVICES=0,1",
                     "MASTER_ADDR=node1", "NCCL_ALGO=Ring", "NCCL NOT=1", "NCCL_NOTHING",
                     "TORCH_NCCL_BLOCKING_WAIT=1", "SLURM_STEP_ID=4", "SLURM_JOB_NAME=x",
                     "NCCLGUARD_LIB=/x.so"});
    Lines names = names_in(process.text());
    EXPECT_EQ(Lines(names.begin() + (ptrdiff_t)ng_option_count, names.end()),
              (Lines{"CUDA_VISIBLE_DEVICES", "MASTER_ADDR", "NCCL_ALGO", "NCCL_NET", "RANK",
                     "SLURM_STEP_ID", "TORCH_NCCL_BLOCKING_WAIT"}));
    EXPECT_EQ(process.value("CUDA_VISIBLE_DEVICES"), "0,1");
}

TEST(Settings, SecretsAreNeverThere)
{
    Process process({"NCCLGUARD_STORE=redis://user:hunter2@host", "NCCLGUARD_STORE_KEY=/hunter2",
                     "NCCL_SOME_TOKEN=hunter2", "NCCL_PASSWORD=hunter2", "NCCL_API_KEY=hunter2",
                     "NCCL_PROXY=http://me:hunter2@proxy:3128/x", "FI_SECRET=hunter2",
                     "NCCL_SERVICE=https://host/x?user=me&Token=hunter2", "FI_APIKEY=hunter2",
                     "NCCL_PASSPHRASE=hunter2", "NCCL_IB_PKEY=7"});
    process.store = "redis://user:***@host";
    EXPECT_EQ(process.text().find("hunter2"), std::string::npos) << process.text();
    EXPECT_EQ(process.value("NCCLGUARD_STORE"), "redis://***@host (environment)");
    EXPECT_EQ(process.value("NCCLGUARD_STORE_KEY"), "*** (environment)");
    EXPECT_EQ(process.value("NCCL_PROXY"), "http://***@proxy:3128/x");
    EXPECT_EQ(process.value("NCCL_IB_PKEY"), "7");
    process.store = nullptr;
    EXPECT_EQ(process.value("NCCLGUARD_STORE"), "*** (environment)");
    EXPECT_EQ(Process({}).value("NCCLGUARD_STORE_KEY"), " (default)");
}

TEST(Settings, ValuesAreCleanAndLongOnesAreCut)
{
    Process process({"NCCL_NET=a\tb\nNCCL_ALGO\t\tRing\x1b[2J\xff",
                     "NCCL_LONG=" + std::string(5000, 'x'),
                     "NCCL_WIDE=" + std::string(195, 'x') + "\u00e4\u00e4\u00e4"});
    EXPECT_EQ(process.value("NCCL_NET"), "a?b?NCCL_ALGO??Ring?[2J?");
    EXPECT_EQ(process.value("NCCL_LONG"), std::string(196, 'x') + "...");
    EXPECT_EQ(process.value("NCCL_WIDE"), std::string(195, 'x') + "...");
}

TEST(Settings, WhatDoesNotFitIsCounted)
{
    Lines many;
    for (int i = 0; i < 1000; i++)
        many.push_back("NCCL_V" + std::to_string(1000 + i) + "=" + std::string(60, 'x'));
    Process process(many);
    Lines names = names_in(process.text());
    ASSERT_EQ(names.back(), "");
    EXPECT_EQ(std::stoul(process.value("")) + names.size() - 1 - ng_option_count, 1000u);
    EXPECT_GT(names.size(), ng_option_count + 50);
    for (size_t bytes : {1, 2, 17, 100, 1000, 3000})
        process.text(bytes);
}

/* Each option at its longest leaves room for variables. */
TEST(Settings, LongOptionsDoNotTakeAllTheRoom)
{
    Lines all = {"NCCL_ALGO=Ring"};
    for (size_t i = 0; i < ng_option_count; i++)
        if (ng_options[i].type == NG_CONFIG_STRING)
            all.push_back(std::string(ng_options[i].name) + "=" + std::string(4000, 'x'));
    Process process(all);
    EXPECT_EQ(process.value("NCCL_ALGO"), "Ring");
}

TEST(Settings, AnyTextCanBeRead)
{
    EXPECT_EQ(names_in("no line\nA\tone tab\n\nB\t\t\n\tc"), Lines{"B"});
    EXPECT_EQ(names_in(std::string(200, 'A') + "\t" + std::string(99, 'f') + "\t" +
                       std::string(999, 'v')),
              Lines{std::string(63, 'A')});
    EXPECT_TRUE(names_in("").empty());
}

namespace
{

struct ng_settable_values values_of(uint8_t log, uint8_t timing)
{
    struct ng_settable_values values = {};
    values.of[NG_SETTABLE_LOG] = log;
    values.of[NG_SETTABLE_TIMING] = timing;
    return values;
}

std::string updated(const std::string &text, const struct ng_settable_values &values,
                    size_t bytes = 0)
{
    if (!bytes)
        bytes = text.size() + 1 + NG_SETTINGS_MORE_BYTES;
    std::vector<char> room(bytes + 1, '#');
    ng_settings_update(text.c_str(), &values, room.data(), bytes);
    EXPECT_EQ(room[bytes], '#');
    return room.data();
}

} // namespace

TEST(Settings, WhatACommandHasSetIsTheValueThatHolds)
{
    std::string before = Process({"NCCL_ALGO=Ring", "NCCLGUARD_LOG=info"}).text();
    EXPECT_EQ(updated(before, values_of(0, 0)), before);
    std::string after = updated(before, values_of(NG_LOG_DEBUG + 1, NG_TIMING_SAMPLED + 1));
    EXPECT_EQ(names_in(after), names_in(before));
    EXPECT_NE(after.find("NCCLGUARD_LOG\tcommand\tdebug\n"), std::string::npos) << after;
    EXPECT_NE(after.find("NCCLGUARD_TIMING\tcommand\tsampled\n"), std::string::npos) << after;
    EXPECT_NE(after.find("NCCL_ALGO\t\tRing\n"), std::string::npos) << after;
    EXPECT_EQ(updated("", values_of(0, NG_TIMING_ALL + 1)), "NCCLGUARD_TIMING\tcommand\tall\n");
    for (size_t bytes : {1, 2, 30, 500})
        EXPECT_EQ(after.rfind(updated(before, values_of(5, 2), bytes), 0), 0u);
}

TEST(Settable, HasTheWordsOfItsVariable)
{
    const struct {
        const char *name;
        enum ng_settable settable;
        uint64_t values;
    } rows[] = {{"log", NG_SETTABLE_LOG, 5}, {"timing", NG_SETTABLE_TIMING, 3}};
    for (const auto &row : rows) {
        EXPECT_EQ(ng_settable_find(row.name), row.settable);
        EXPECT_EQ(ng_settable_find(ng_settable_option(row.settable)->name), row.settable);
        for (uint64_t value = 0; value <= row.values; value++)
            EXPECT_TRUE(ng_settable_has_value(row.settable, value));
        for (uint64_t value : {row.values + 1, (uint64_t)255, (uint64_t)256, UINT64_MAX})
            EXPECT_FALSE(ng_settable_has_value(row.settable, value)) << value;
    }
    EXPECT_EQ(ng_settable_find("store"), NG_SETTABLES);
    char text[64];
    struct ng_settable_values values = values_of(1, 3);
    ng_settable_describe(&values, text, sizeof(text));
    EXPECT_STREQ(text, "log=off, timing=all");
    values = values_of(0, 0);
    ng_settable_describe(&values, text, sizeof(text));
    EXPECT_STREQ(text, "");
}
