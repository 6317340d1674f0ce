/*
 * Launchers, one row each: the variables that contain job, rank and world size.
 *
 * Entered once per process, before the guard's threads. Must never trust a value: one that is not a
 * number counts as not known.
 */
#include "core/config/launch.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/nccl/group_id.h"
#include "core/util/macros.h"
#include "core/util/small_file.h"
#include "core/util/text.h"

static const struct {
    const char *name;
    const char *rank, *world_size, *local_rank;
    const char *job, *part; /* job id, and the step or incarnation in it; NULL none */
} launchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_RUN_ID",
     "TORCHELASTIC_RESTART_COUNT"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "PMIX_NAMESPACE", NULL},
    {"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "PMI_JOBID", NULL},
    {"PMIx", "PMIX_RANK", "PMIX_SIZE", "PMIX_LOCAL_RANK", "PMIX_NAMESPACE", NULL},
    {"MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK", NULL,
     NULL},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_JOB_ID", "SLURM_STEP_ID"},
    {"Flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID", "FLUX_JOB_ID", NULL},
    /* Indexed jobs of Kubernetes provide only the index of the pod. */
    {"Kubernetes", "JOB_COMPLETION_INDEX", NULL, NULL, "JOB_NAME", NULL},
};

/*
 * Variables that distinguish one run of a program from another, each with a second one that
 * qualifies it; the first alone is sufficient. A batch job is not a run: its script may start
 * several programs. A run of torchrun may have a step of the batch system for each host, so the
 * rows below torchrun's do not count then.
 */
enum { TORCHRUN = 1 };
static const char *const run_words[][2] = {
    {"MASTER_PORT", "MASTER_ADDR"},
    {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"},
    {"PMIX_NAMESPACE", NULL},
    {"PMI_JOBID", NULL},
    {"PALS_APID", NULL},
    {"FLUX_JOB_ID", NULL},
    {"SLURM_STEP_ID", "SLURM_JOB_ID"},
};

static bool is_name(const char *variable, const char *name, size_t length)
{
    return variable && strlen(variable) == length && memcmp(variable, name, length) == 0;
}

bool ng_launch_has_variable(const char *name, size_t length)
{
    NG_EACH (launcher, launchers, NG_COUNT(launchers))
        if (is_name(launcher->rank, name, length) || is_name(launcher->world_size, name, length) ||
            is_name(launcher->local_rank, name, length) || is_name(launcher->job, name, length) ||
            is_name(launcher->part, name, length))
            return true;
    for (size_t i = 0; i < 2 * NG_COUNT(run_words); i++)
        if (is_name(run_words[i / 2][i % 2], name, length))
            return true;
    return false;
}

static int number_of(const char *variable)
{
    const char *text = variable ? getenv(variable) : NULL;
    char *end;

    if (!text || !*text)
        return -1;
    long value = strtol(text, &end, 10);
    return *end == '\0' && value >= 0 && value < (1 << 24) ? (int)value : -1;
}

static const char *word_of(const char *variable)
{
    const char *text = variable ? getenv(variable) : NULL;
    return text && *text ? text : NULL;
}

/* A word that does not fit is left out: the hash has it all the same. */
static void note_word(char words[NG_LAUNCH_WORDS_BYTES], const char *name, const char *word,
                      const char *host)
{
    size_t used = strlen(words);
    int more = snprintf(words + used, NG_LAUNCH_WORDS_BYTES - used, "%s=%s%s%s\n", name, word,
                        host ? " of " : "", host ? host : "");

    if (more < 0 || (size_t)more >= NG_LAUNCH_WORDS_BYTES - used)
        words[used] = '\0';
}

static uint64_t add_word(uint64_t hash, const char *name, const char *word)
{
    return ng_hash(ng_hash(hash, name, strlen(name) + 1), word, strlen(word) + 1);
}

/* What tells this boot of this host, and this namespace of it ("net", "pid"), from all others. */
static uint64_t add_namespace(uint64_t hash, const char *path)
{
    struct stat namespace;
    char boot[64];

    if (ng_small_file_read_text("/proc/sys/kernel/random/boot_id", boot, sizeof(boot)) > 0)
        hash = ng_hash(hash, boot, strlen(boot));
    return stat(path, &namespace) == 0 ? ng_hash(hash, &namespace.st_ino, sizeof(namespace.st_ino))
                                       : hash;
}

/* A local address means something else on each host, and in each network namespace: containers of
 * one host may use the same port. */
static bool is_local(const char *address)
{
    return address && (strcmp(address, "localhost") == 0 || strncmp(address, "127.", 4) == 0 ||
                       strcmp(address, "::1") == 0);
}

static uint64_t run_of_launcher(char ret_words[NG_LAUNCH_WORDS_BYTES])
{
    bool local = is_local(word_of("MASTER_ADDR"));
    char host[65] = "";
    uint64_t hash = 0;

    if (local)
        gethostname(host, sizeof(host) - 1);

    for (size_t i = 0; i < NG_COUNT(run_words); i++) {
        const char *word = word_of(run_words[i][0]), *more = word_of(run_words[i][1]);
        if (i > TORCHRUN && word_of(run_words[TORCHRUN][0]))
            break;
        /* torchrun without a rendezvous id sets "none". */
        if (!word || strcmp(word, "none") == 0)
            continue;
        hash = add_word(hash, run_words[i][0], word);
        note_word(ret_words, run_words[i][0], word, NULL);
        if (!more)
            continue;
        hash = add_word(hash, run_words[i][1], more);
        note_word(ret_words, run_words[i][1], more,
                  local && strcmp(run_words[i][1], "MASTER_ADDR") == 0 ? host : NULL);
    }
    return hash && local ? add_namespace(hash, "/proc/self/ns/net") : hash;
}

/* Make it safe as a file name: no slash, no leading dot, nothing special to a shell. */
static void clean(char *name)
{
    for (char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("._-", *c))
            *c = '_';
    if (name[0] == '.')
        name[0] = '_';
}

void ng_launch_detect(const char *job, int rank, int world_size, struct ng_launch *ret_launch)
{
    struct ng_launch *launch = ret_launch;

    *launch =
        (struct ng_launch){.launcher = "none", .rank = -1, .world_size = -1, .local_rank = -1};
    for (size_t i = 0; i < NG_COUNT(launchers); i++) {
        int found = number_of(launchers[i].rank);
        if (found < 0)
            continue;
        launch->launcher = launchers[i].name;
        launch->rank = found;
        launch->world_size = number_of(launchers[i].world_size);
        launch->local_rank = number_of(launchers[i].local_rank);
        break;
    }
    /* The batch system may name the job although another launcher numbers the ranks (srun
     * torchrun). */
    for (size_t i = 0; !job && !launch->job[0] && i < NG_COUNT(launchers); i++) {
        const char *id = word_of(launchers[i].job), *part = word_of(launchers[i].part);
        /* torchrun without a rendezvous id sets "none": not a name. */
        if (!id || strcmp(id, "none") == 0)
            continue;
        snprintf(launch->job, sizeof(launch->job), "%s%s%s", id, part ? "." : "", part ? part : "");
    }
    if (rank >= 0)
        launch->rank = rank;
    if (world_size >= 0)
        launch->world_size = world_size;
    if (job)
        snprintf(launch->job, sizeof(launch->job), "%s", job);
    launch->job_is_shared = launch->job[0] != '\0';
    if (!launch->job[0] && word_of("NCCLGUARD_RUN_ID"))
        snprintf(launch->job, sizeof(launch->job), "%s", getenv("NCCLGUARD_RUN_ID"));
    /* Hosts and containers that share a store count process groups by themselves. */
    if (!launch->job[0])
        snprintf(launch->job, sizeof(launch->job), "pgrp-%d-%08x", (int)getpgrp(),
                 (unsigned)add_namespace(0, "/proc/self/ns/pid"));
    clean(launch->job);
    launch->run = run_of_launcher(launch->words);
}

/* The value of `name` in `words`, clean; "not set". */
static void find_word(const char *words, const char *name, char *ret_value, size_t bytes)
{
    size_t length = strlen(name);

    snprintf(ret_value, bytes, "not set");
    for (const char *line = words; *line; line += strcspn(line, "\n"), line += *line == '\n')
        if (strncmp(line, name, length) == 0 && line[length] == '=') {
            snprintf(ret_value, bytes, "%.*s", (int)strcspn(line + length + 1, "\n"),
                     line + length + 1);
            ng_text_clean(ret_value, strlen(ret_value), false);
        }
}

void ng_launch_compare_words(const char *here, const char *there, char *ret_text, size_t bytes)
{
    char ours[NG_LAUNCH_WORDS_BYTES], theirs[NG_LAUNCH_WORDS_BYTES];
    size_t used = 0;

    ret_text[0] = '\0';
    for (size_t i = 0; i < 2 * NG_COUNT(run_words); i++) {
        const char *name = run_words[i / 2][i % 2];
        if (!name)
            continue;
        find_word(here, name, ours, sizeof(ours));
        find_word(there, name, theirs, sizeof(theirs));
        if (strcmp(ours, theirs) == 0)
            continue;
        int more = snprintf(ret_text + used, bytes - used, "%s%s is %s here and %s there",
                            used ? ", " : "", name, ours, theirs);
        if (more < 0 || (size_t)more >= bytes - used) {
            ret_text[used] = '\0';
            return;
        }
        used += (size_t)more;
    }
}
