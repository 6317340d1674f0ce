/*
 * Launchers' variables: each row, who goes first, and what becomes of bad values.
 */
#include "tests/unit/core/helpers/core.h"

#include <sched.h>
#include <sys/mount.h>

namespace
{

struct Setting {
    const char *name, *value;
};

/* Everything that a launcher around the tests may have set. */
void forget_launchers()
{
    for (const char *name : {"RANK",
                             "WORLD_SIZE",
                             "LOCAL_RANK",
                             "TORCHELASTIC_RUN_ID",
                             "TORCHELASTIC_RESTART_COUNT",
                             "OMPI_COMM_WORLD_RANK",
                             "OMPI_COMM_WORLD_SIZE",
                             "OMPI_COMM_WORLD_LOCAL_RANK",
                             "PMIX_NAMESPACE",
                             "PMI_RANK",
                             "PMI_SIZE",
                             "MPI_LOCALRANKID",
                             "PMI_JOBID",
                             "PMIX_RANK",
                             "PMIX_SIZE",
                             "PMIX_LOCAL_RANK",
                             "MV2_COMM_WORLD_RANK",
                             "MV2_COMM_WORLD_SIZE",
                             "MV2_COMM_WORLD_LOCAL_RANK",
                             "SLURM_PROCID",
                             "SLURM_NTASKS",
                             "SLURM_LOCALID",
                             "SLURM_JOB_ID",
                             "SLURM_STEP_ID",
                             "FLUX_TASK_RANK",
                             "FLUX_JOB_SIZE",
                             "FLUX_TASK_LOCAL_ID",
                             "FLUX_JOB_ID",
                             "PALS_APID",
                             "JOB_COMPLETION_INDEX",
                             "JOB_NAME",
                             "NCCLGUARD_RUN_ID",
                             "MASTER_ADDR",
                             "MASTER_PORT"})
        unsetenv(name);
}

struct Launch : testing::Test {
    void SetUp() override
    {
        forget_launchers();
    }
    void TearDown() override
    {
        forget_launchers();
    }
    struct ng_launch detect(const std::vector<Setting> &settings, const char *job = nullptr,
                            int rank = -1, int world_size = -1)
    {
        struct ng_launch launch;
        forget_launchers();
        for (const Setting &setting : settings)
            setenv(setting.name, setting.value, 1);
        ng_launch_detect(job, rank, world_size, &launch);
        return launch;
    }
};

} // namespace

TEST_F(Launch, EveryLauncherIsUnderstood)
{
    static const struct {
        const char *launcher;
        std::vector<Setting> settings;
        int rank, world_size, local_rank;
        const char *job;
    } rows[] = {
        {"torchrun",
         {{"RANK", "3"},
          {"WORLD_SIZE", "8"},
          {"LOCAL_RANK", "1"},
          {"TORCHELASTIC_RUN_ID", "train"},
          {"TORCHELASTIC_RESTART_COUNT", "2"}},
         3,
         8,
         1,
         "train.2"},
        {"Open MPI",
         {{"OMPI_COMM_WORLD_RANK", "3"},
          {"OMPI_COMM_WORLD_SIZE", "8"},
          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
          {"PMIX_NAMESPACE", "prterun-1"}},
         3,
         8,
         1,
         "prterun-1"},
        {"MPICH",
         {{"PMI_RANK", "3"}, {"PMI_SIZE", "8"}, {"MPI_LOCALRANKID", "1"}, {"PMI_JOBID", "kvs_1"}},
         3,
         8,
         1,
         "kvs_1"},
        {"PMIx",
         {{"PMIX_RANK", "3"},
          {"PMIX_SIZE", "8"},
          {"PMIX_LOCAL_RANK", "1"},
          {"PMIX_NAMESPACE", "ns"}},
         3,
         8,
         1,
         "ns"},
        {"Slurm",
         {{"SLURM_PROCID", "3"},
          {"SLURM_NTASKS", "8"},
          {"SLURM_LOCALID", "1"},
          {"SLURM_JOB_ID", "4711"},
          {"SLURM_STEP_ID", "0"}},
         3,
         8,
         1,
         "4711.0"},
        {"Flux",
         {{"FLUX_TASK_RANK", "3"},
          {"FLUX_JOB_SIZE", "8"},
          {"FLUX_TASK_LOCAL_ID", "1"},
          {"FLUX_JOB_ID", "5764607523034234880"}},
         3,
         8,
         1,
         "5764607523034234880"},
        {"Kubernetes", {{"JOB_COMPLETION_INDEX", "3"}, {"JOB_NAME", "train"}}, 3, -1, -1, "train"},
    };
    for (const auto &row : rows) {
        struct ng_launch launch = detect(row.settings);
        EXPECT_STREQ(launch.launcher, row.launcher);
        EXPECT_EQ(launch.rank, row.rank) << row.launcher;
        EXPECT_EQ(launch.world_size, row.world_size) << row.launcher;
        EXPECT_EQ(launch.local_rank, row.local_rank) << row.launcher;
        EXPECT_STREQ(launch.job, row.job) << row.launcher;
    }
}

TEST_F(Launch, MvapichHasNoJobName)
{
    struct ng_launch launch = detect({{"MV2_COMM_WORLD_RANK", "1"},
                                      {"MV2_COMM_WORLD_SIZE", "2"},
                                      {"MV2_COMM_WORLD_LOCAL_RANK", "1"},
                                      {"NCCLGUARD_RUN_ID", "run-1"}});
    EXPECT_STREQ(launch.launcher, "MVAPICH");
    EXPECT_EQ(launch.rank, 1);
    EXPECT_STREQ(launch.job, "run-1");
}

TEST_F(Launch, WithoutALauncherTheJobIsTheProcessGroup)
{
    struct ng_launch launch = detect({});
    EXPECT_STREQ(launch.launcher, "none");
    EXPECT_EQ(launch.rank, -1);
    EXPECT_EQ(launch.world_size, -1);
    EXPECT_EQ(launch.local_rank, -1);
    std::string group = "pgrp-" + std::to_string(getpgrp()) + "-";
    EXPECT_EQ(std::string(launch.job).substr(0, group.size()), group);
    EXPECT_EQ(strlen(launch.job), group.size() + 8);
    EXPECT_STREQ(detect({}).job, launch.job);
}

TEST_F(Launch, SettingsGoBeforeTheLauncherAndTheLauncherBeforeTheCommand)
{
    std::vector<Setting> slurm = {{"SLURM_PROCID", "3"},
                                  {"SLURM_NTASKS", "8"},
                                  {"SLURM_JOB_ID", "4711"},
                                  {"NCCLGUARD_RUN_ID", "run-1"}};
    EXPECT_STREQ(detect(slurm).job, "4711");
    struct ng_launch launch = detect(slurm, "mine", 0, 16);
    EXPECT_STREQ(launch.job, "mine");
    EXPECT_EQ(launch.rank, 0);
    EXPECT_EQ(launch.world_size, 16);
    EXPECT_STREQ(detect({{"NCCLGUARD_RUN_ID", "run-1"}}).job, "run-1");
}

/* srun torchrun: Slurm numbers the nodes' launchers, torchrun the ranks. */
TEST_F(Launch, TorchrunInsideABatchSystemNumbersTheRanks)
{
    struct ng_launch launch = detect({{"RANK", "5"},
                                      {"WORLD_SIZE", "8"},
                                      {"LOCAL_RANK", "1"},
                                      {"TORCHELASTIC_RUN_ID", "none"},
                                      {"SLURM_PROCID", "0"},
                                      {"SLURM_NTASKS", "2"},
                                      {"SLURM_JOB_ID", "4711"},
                                      {"SLURM_STEP_ID", "0"}});
    EXPECT_STREQ(launch.launcher, "torchrun");
    EXPECT_EQ(launch.rank, 5);
    EXPECT_EQ(launch.world_size, 8);
    EXPECT_STREQ(launch.job, "4711.0");
}

/* What users read where the words of two hosts differ. */
TEST_F(Launch, WordsThatDifferAreNamedWithTheirValues)
{
    struct ng_launch here, there;
    char text[400];

    setenv("MASTER_ADDR", "node0", 1);
    setenv("MASTER_PORT", "29500", 1);
    ng_launch_detect(nullptr, -1, -1, &here);
    EXPECT_STREQ(here.words, "MASTER_PORT=29500\nMASTER_ADDR=node0\n");
    ng_launch_compare_words(here.words, here.words, text, sizeof(text));
    EXPECT_STREQ(text, "");
    setenv("MASTER_ADDR", "10.0.0.1", 1);
    setenv("SLURM_STEP_ID", "3", 1);
    ng_launch_detect(nullptr, -1, -1, &there);
    ng_launch_compare_words(here.words, there.words, text, sizeof(text));
    EXPECT_STREQ(text, "MASTER_ADDR is node0 here and 10.0.0.1 there, "
                       "SLURM_STEP_ID is not set here and 3 there");
    ng_launch_compare_words(here.words, "MASTER_ADDR=\033[2Jx\nMASTER_PORT", text, sizeof(text));
    EXPECT_STREQ(text, "MASTER_PORT is 29500 here and not set there, "
                       "MASTER_ADDR is node0 here and ?[2Jx there");
    ng_launch_compare_words(here.words, "", text, 20);
    EXPECT_STREQ(text, "") << "no half of one";
    setenv("MASTER_ADDR", "localhost", 1);
    ng_launch_detect(nullptr, -1, -1, &there);
    EXPECT_NE(std::string(there.words).find("MASTER_ADDR=localhost of "), std::string::npos);
}

TEST_F(Launch, ARestartIsAnotherJob)
{
    std::vector<Setting> first = {
        {"RANK", "0"}, {"TORCHELASTIC_RUN_ID", "t"}, {"TORCHELASTIC_RESTART_COUNT", "0"}};
    std::vector<Setting> second = {
        {"RANK", "0"}, {"TORCHELASTIC_RUN_ID", "t"}, {"TORCHELASTIC_RESTART_COUNT", "1"}};
    EXPECT_STRNE(detect(first).job, detect(second).job);
}

TEST_F(Launch, WhatIsNoNumberIsNotTold)
{
    for (const char *bad :
         {"", "one", "-1", "3 ", "3x", "16777216", "99999999999999999999", "0x3"}) {
        struct ng_launch launch = detect({{"RANK", bad}});
        EXPECT_EQ(launch.rank, -1) << bad;
        EXPECT_STREQ(launch.launcher, "none") << bad;
    }
    /* The next launcher that tells a number is taken. */
    EXPECT_EQ(detect({{"RANK", "x"}, {"PMI_RANK", "2"}}).rank, 2);
    struct ng_launch launch = detect({{"RANK", "0"}, {"WORLD_SIZE", "many"}});
    EXPECT_EQ(launch.rank, 0);
    EXPECT_EQ(launch.world_size, -1);
}

TEST_F(Launch, AJobIsAlwaysUsableAsAFileName)
{
    EXPECT_STREQ(detect({}, "../../etc/passwd").job, "_._.._etc_passwd");
    EXPECT_STREQ(detect({}, ".hidden").job, "_hidden");
    EXPECT_STREQ(detect({}, "a b;c$d\ne").job, "a_b_c_d_e");
    EXPECT_STREQ(detect({}, "..").job, "_.");
    EXPECT_STREQ(detect({{"JOB_NAME", "x/y"}}).job, "x_y");
    struct ng_launch launch = detect({}, std::string(1000, 'j').c_str());
    EXPECT_EQ(strlen(launch.job), sizeof(launch.job) - 1);
    EXPECT_STRNE(detect({}, "").job, "") << "never empty";
}

/* A script starts a torchrun on each host with a step of its own. */
TEST_F(Launch, OneRunOfTorchrunMayHaveAStepForEachHost)
{
    std::vector<Setting> node = {{"MASTER_ADDR", "node0"},
                                 {"MASTER_PORT", "29500"},
                                 {"TORCHELASTIC_RUN_ID", "none"},
                                 {"TORCHELASTIC_RESTART_COUNT", "0"},
                                 {"SLURM_JOB_ID", "7"},
                                 {"SLURM_STEP_ID", "0"},
                                 {"PMIX_NAMESPACE", "slurm.pmix.7.0"}};
    uint64_t run = detect(node).run;
    node[5].value = "1";
    node[6].value = "slurm.pmix.7.1";
    EXPECT_EQ(detect(node).run, run);
    node[1].value = "29501";
    EXPECT_NE(detect(node).run, run);
    node[2].name = "OTHER";
    uint64_t step = detect(node).run;
    node[5].value = "2";
    EXPECT_NE(detect(node).run, step) << "without torchrun a step is a run";
}

/* Another boot: a mount of this child's own, which goes with the child. */
TEST_F(Launch, LocalAddressesAndProcessGroupsAreOfOneHostAlone)
{
    constexpr int may_not = 77;
    std::vector<Setting> local = {{"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29500"}},
                         far = {{"MASTER_ADDR", "node0"}, {"MASTER_PORT", "29500"}};
    uint64_t run = detect(local).run, run_far = detect(far).run;
    std::string job = detect({}).job;
    Folder folder;
    write_whole_file(folder / "boot_id", "11111111-2222-3333-4444-555555555555\n");
    int status = in_child([&] {
        if (unshare(CLONE_NEWNS) != 0 ||
            mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
            mount((folder / "boot_id").c_str(), "/proc/sys/kernel/random/boot_id", nullptr, MS_BIND,
                  nullptr) != 0)
            return may_not;
        return (detect(local).run != run ? 1 : 0) | (detect(far).run == run_far ? 2 : 0) |
               (detect({}).job != job ? 4 : 0);
    });
    if (status == may_not)
        GTEST_SKIP() << "may not mount a file here";
    EXPECT_EQ(status, 7);
}

TEST_F(Launch, OneRunIsTheSameWordForAllItsRanksAndForNobodyElse)
{
    uint64_t run =
        detect({{"RANK", "0"}, {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "29500"}}).run;

    EXPECT_NE(run, 0u);
    EXPECT_EQ(
        detect({{"RANK", "1"}, {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "29500"}}, "name").run,
        run);
    EXPECT_NE(detect({{"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "29501"}}).run, run);
    EXPECT_EQ(detect({{"MASTER_ADDR", "localhost"},
                      {"MASTER_PORT", "29500"},
                      {"TORCHELASTIC_RUN_ID", "none"}})
                  .run,
              run)
        << "torchrun's word for none";
    uint64_t step = detect({{"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "0"}}).run;
    EXPECT_NE(step, 0u);
    EXPECT_NE(detect({{"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "1"}}).run, step);
    EXPECT_NE(detect({{"SLURM_JOB_ID", "8"}, {"SLURM_STEP_ID", "0"}}).run, step);
    EXPECT_NE(detect({{"PMIX_NAMESPACE", "a"}}).run, detect({{"PMI_JOBID", "a"}}).run);
    EXPECT_NE(detect({{"FLUX_JOB_ID", "1"}}).run, detect({{"FLUX_JOB_ID", "2"}}).run);
    EXPECT_NE(detect({{"PALS_APID", "a"}}).run, detect({{"PALS_APID", "b"}}).run);
    for (const std::vector<Setting> &none :
         std::vector<std::vector<Setting>>{{},
                                           {{"RANK", "0"}},
                                           {{"SLURM_JOB_ID", "7"}},
                                           {{"MASTER_ADDR", "localhost"}},
                                           {{"NCCLGUARD_RUN_ID", "run-1-2"}}})
        EXPECT_EQ(detect(none, "name").run, 0u) << (none.empty() ? "nothing" : none[0].name);
}
