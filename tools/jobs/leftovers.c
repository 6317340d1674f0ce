/*
 * Ends the processes that a verdict leaves of a job.
 *
 * Used by `ncclguard run` while the program runs. Processes of a job are found by their black
 * boxes, and ranks without one by their position: below the launcher, the nearest process from
 * which all ranks with a black box descend. Must never end a process that began after the verdict,
 * or belongs to another run, or is a rank whose own policy is milder; nor anything without a
 * verdict.
 */
#include "tools/jobs/leftovers.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/config/config.h"
#include "core/recorder/box.h"
#include "core/recorder/paths.h"
#include "core/recorder/proc.h"
#include "core/util/clock.h"
#include "core/util/macros.h"
#include "core/util/small_file.h"
#include "store/board/local.h"
#include "tools/base/grow.h"
#include "tools/base/owned.h"
#include "tools/jobs/descendants.h"

#define ROUND_MS 1000
#define BUSY_MS  100
/* After the end of the first rank: the others end themselves meanwhile. */
#define GRACE_NS     (2 * NG_S)
#define TERMINATE_NS (2 * NG_S)
/* Beyond NCCLGUARD_ABORT_WAIT, for a rank that is about to end itself: core/policy/policy.c. */
#define ENDING_NS (8 * NG_S)
#define IDLE_NS   (5 * NG_S)
#define CHAIN_MAX 32
/* A guard's heartbeat is once a second: if it has none, tools/jobs/witness.h reads the verdict
 * instead. */
#define SILENT_NS (3 * NG_S)
#define RUNS_MAX  16 /* of one job, with a verdict at the same time */

struct name {
    pid_t pid;
    uint64_t start_ticks;
};

/* A process that was signalled. */
struct ended {
    struct name name;
    int signal;
    int64_t signalled_ns;
};

/* The folder of a job. */
struct folder {
    char path[PATH_MAX];
    struct name chain[CHAIN_MAX]; /* processes from which all its ranks descend, nearest first: the
                                   * launcher */
    int chain_count;              /* -1: no rank was seen yet */
    size_t seen;                  /* number of black boxes */
    bool restarts;                /* the launcher starts others instead of them */
    int64_t verdict_ns;           /* when the first of the incidents ended; 0 none */
    int64_t handled_ns;           /* ends up to this time were handled */
    bool watches_launcher;
    int64_t idle_since_ns;
    uint64_t launcher_ticks; /* processor time so far */
    struct ended *ended;
    size_t ended_count;
    /* For a run that cannot read its verdict itself: tools/jobs/witness.h. */
    int witness; /* its output is read here; -1 there is none */
    uint64_t witnessed_run;
    int64_t witnessed_ns; /* when a verdict that ends it was received; 0 none was */
};

struct ng_leftovers {
    const struct ng_witness_options *witness;
    char dir[PATH_MAX];
    int64_t abort_wait_ns;
    int64_t began_ns;
    struct folder *folders;
    size_t folder_count;
    struct ng_descendant *list; /* of this round */
    size_t count;
};

struct ng_leftovers *ng_leftovers_create(const char *dir, int64_t abort_wait_ns,
                                         const struct ng_witness_options *witness)
{
    struct ng_leftovers *leftovers = calloc(1, sizeof(*leftovers));

    if (!leftovers)
        return NULL;
    snprintf(leftovers->dir, sizeof(leftovers->dir), "%s", dir ? dir : "");
    leftovers->abort_wait_ns = abort_wait_ns;
    leftovers->witness = witness;
    leftovers->began_ns = ng_clock_mono_ns();
    return leftovers;
}

void ng_leftovers_destroy(struct ng_leftovers *leftovers)
{
    if (!leftovers)
        return;
    for (size_t i = 0; i < leftovers->folder_count; i++) {
        free(leftovers->folders[i].ended);
        if (leftovers->folders[i].witness >= 0)
            close(leftovers->folders[i].witness);
    }
    free(leftovers->folders);
    free(leftovers);
}

static struct folder *folder_of(struct ng_leftovers *leftovers, const char *path)
{
    for (size_t i = 0; i < leftovers->folder_count; i++)
        if (strcmp(leftovers->folders[i].path, path) == 0)
            return &leftovers->folders[i];
    struct folder *folder = NG_APPEND(leftovers->folders, leftovers->folder_count);
    if (!folder)
        return NULL;
    *folder = (struct folder){.chain_count = -1, .witness = -1, .handled_ns = ng_clock_mono_ns()};
    snprintf(folder->path, sizeof(folder->path), "%s", path);
    return folder;
}

static const struct ng_descendant *find(const struct ng_leftovers *leftovers, struct name name)
{
    const struct ng_descendant *found =
        ng_descendants_find(leftovers->list, leftovers->count, name.pid);

    return found && found->start_ticks == name.start_ticks ? found : NULL;
}

static bool is_in(const struct name *names, int count, const struct ng_descendant *process)
{
    return NG_ANY(one, names, count,
                  one->pid == process->pid && one->start_ticks == process->start_ticks);
}

/* The ancestors of the process, nearest first. */
static int chain_of(const struct ng_leftovers *leftovers, const struct ng_descendant *process,
                    struct name ret_chain[CHAIN_MAX])
{
    int count = 0;

    while (count < CHAIN_MAX && (process = ng_descendants_find(leftovers->list, leftovers->count,
                                                               process->parent)) != NULL)
        ret_chain[count++] = (struct name){process->pid, process->start_ticks};
    return count;
}

/* The environment with which a process began, until another process's is requested. NULL: it cannot
 * be read. */
static char **environment_of(pid_t pid)
{
    static char text[1 << 18];
    static char *variables[4096];
    size_t count = 0;
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
    ssize_t bytes = ng_small_file_read_text(path, text, sizeof(text));
    if (bytes < 0)
        return NULL;
    for (char *at = text; at < text + bytes && count < NG_COUNT(variables) - 1;
         at += strlen(at) + 1)
        variables[count++] = at;
    variables[count] = NULL;
    return variables;
}

/* Is it torchrun, with attempts left? */
static bool restarts(pid_t rank)
{
    static const char name[] = "TORCHELASTIC_MAX_RESTARTS=";

    for (char **at = environment_of(rank); at && *at; at++)
        if (strncmp(*at, name, strlen(name)) == 0)
            return atoi(*at + strlen(name)) > 0;
    return false;
}

/* The rank is alive. Orphans have been reparented to us, and show nothing. */
static void note_rank(const struct ng_leftovers *leftovers, struct folder *folder,
                      const struct ng_descendant *rank)
{
    struct name chain[CHAIN_MAX];
    int count = chain_of(leftovers, rank, chain), kept = 0;

    if (!count)
        return;
    if (folder->chain_count < 0) {
        memcpy(folder->chain, chain, sizeof(chain));
        folder->chain_count = count;
        folder->restarts = restarts(rank->pid);
        return;
    }
    for (int i = 0; i < folder->chain_count; i++) {
        const struct ng_descendant *above = find(leftovers, folder->chain[i]);
        if (above && is_in(chain, count, above))
            folder->chain[kept++] = folder->chain[i];
    }
    if (kept)
        folder->chain_count = kept;
}

static bool is_stopped(const struct ng_descendant *process)
{
    return process->state == 'T' || process->state == 't';
}

/* In the kernel's unit: since boot, in ticks. */
static uint64_t ticks_at(int64_t mono_ns)
{
    struct timespec boot;

    clock_gettime(CLOCK_BOOTTIME, &boot);
    int64_t at = boot.tv_sec * NG_S + boot.tv_nsec - (ng_clock_mono_ns() - mono_ns);
    return (uint64_t)(at / (NG_S / sysconf(_SC_CLK_TCK)));
}

static struct ended *ended_of(struct folder *folder, const struct ng_descendant *process)
{
    for (size_t i = 0; i < folder->ended_count; i++)
        if (is_in(&folder->ended[i].name, 1, process))
            return &folder->ended[i];
    struct ended *ended = NG_APPEND(folder->ended, folder->ended_count);
    if (ended)
        ended->name = (struct name){process->pid, process->start_ticks};
    return ended;
}

/* `what`: "rank 3", "the launcher". */
static void end(struct folder *folder, const struct ng_descendant *process, const char *what,
                const char *why)
{
    int64_t now = ng_clock_mono_ns();
    struct ended *ended = ended_of(folder, process);
    int number = is_stopped(process) || (ended && ended->signal) ? SIGKILL : SIGTERM;

    if (!ended || ended->signal == SIGKILL ||
        (ended->signal && now - ended->signalled_ns < TERMINATE_NS))
        return;
    int error = ng_descendants_signal_one(process, number);
    if (error == -ESRCH)
        return;
    ended->signal = number;
    ended->signalled_ns = now;
    fprintf(stderr, "ncclguard run: left after the verdict: %s (pid %d), %s: %s%s%s\n", what,
            (int)process->pid, is_stopped(process) ? "stopped" : why,
            number == SIGKILL ? "SIGKILL" : "SIGTERM", error ? " failed: " : "",
            error ? strerror(-error) : "");
}

/* ---- Ranks with a black box ---- */

struct rank {
    struct name name;
    int number, world_size; /* -1 not known */
    bool ended;             /* by its guard */
    uint32_t ending_policy; /* as in the box */
    int64_t ending_ns, began_ns;
    int64_t heartbeat_ns;
    uint64_t run;      /* found at a verdict; 0 not known */
    bool may_be_ended; /* by its own policy */
    bool takes_errors;
};

/* Only processes that run under this one. */
static bool read_rank(int folder, const char *file, struct rank *ret_rank)
{
    const char *run_id = getenv("NCCLGUARD_RUN_ID");
    struct ng_box_header header;
    NG_CLOSED int fd = openat(folder, file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

    if (fd < 0 || read(fd, &header, sizeof(header)) != (ssize_t)sizeof(header) ||
        header.magic != NG_BOX_MAGIC || header.version != NG_BOX_VERSION || !run_id ||
        strncmp(header.run_id, run_id, sizeof(header.run_id)) != 0)
        return false;
    *ret_rank = (struct rank){.name = {header.pid, header.start_ticks},
                              .number = header.rank,
                              .world_size = header.world_size,
                              .ended = header.life == NG_BOX_ENDED_BY_GUARD,
                              .ending_policy = header.ending_policy,
                              .ending_ns = header.ending_mono_ns,
                              .began_ns = header.origin_mono_ns,
                              .heartbeat_ns = header.heartbeat_mono_ns,
                              .may_be_ended = ng_on_timeout_ends(header.mildest_policy),
                              .takes_errors = header.takes_errors};
    return true;
}

/* The caller frees. */
static struct rank *read_ranks(const char *path, size_t *ret_count)
{
    struct rank *ranks = NULL, rank;
    NG_CLOSED_DIR DIR *folder = opendir(path);
    size_t count = 0, room = 0;

    *ret_count = 0;
    if (!folder)
        return NULL;
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (strncmp(entry->d_name, NG_BOX_PREFIX, strlen(NG_BOX_PREFIX)) != 0 ||
            !read_rank(dirfd(folder), entry->d_name, &rank))
            continue;
        if (!NG_GROW(ranks, count, room))
            break;
        ranks[count++] = rank;
    }
    *ret_count = count;
    return ranks;
}

static const struct rank *rank_of(const struct rank *ranks, size_t count,
                                  const struct ng_descendant *process)
{
    return NG_FIND(one, ranks, count, is_in(&one->name, 1, process));
}

/* A rank is still alive after the verdict. False: it is left alone. */
static bool end_rank(const struct ng_leftovers *leftovers, struct folder *folder,
                     const struct rank *rank, const struct ng_descendant *process)
{
    int64_t since = ng_clock_mono_ns() - rank->ending_ns;
    char what[32];

    if (rank->began_ns > folder->verdict_ns || !rank->may_be_ended ||
        (rank->takes_errors && !is_stopped(process)))
        return false;
    if (rank->ending_policy && since < leftovers->abort_wait_ns + ENDING_NS && !is_stopped(process))
        return true;
    snprintf(what, sizeof(what), "rank %d", rank->number);
    end(folder, process, what, "its guard does not end it");
    return true;
}

/* ---- Ranks without a black box ---- */

static void ignore_line(void *context, char severity, const char *line)
{
}

/* The policy for a deadline that the process would have, had it called NCCL: from the environment
 * with which it began. */
static bool would_end(pid_t pid)
{
    char **variables = environment_of(pid);
    struct ng_config config;

    if (!variables)
        return false;
    ng_config_parse(&config, variables, ignore_line, NULL);
    return config.enabled && ng_on_timeout_ends((uint32_t)config.on_timeout + 1);
}

/* Is it a live rank with a black box, of any job, or does one descend from it, or it from one? */
static bool is_of_rank(const struct ng_leftovers *leftovers, const struct ng_descendant *process)
{
    struct name above[CHAIN_MAX], chain[CHAIN_MAX];
    int above_count = chain_of(leftovers, process, above);
    bool found = false;

    for (size_t p = 0; p < leftovers->folder_count && !found; p++) {
        size_t count;
        NG_FREED struct rank *ranks = read_ranks(leftovers->folders[p].path, &count);
        for (size_t i = 0; i < count && !found; i++) {
            const struct ng_descendant *rank = find(leftovers, ranks[i].name);
            found = rank && (rank == process || is_in(above, above_count, rank) ||
                             is_in(chain, chain_of(leftovers, rank, chain), process));
        }
    }
    return found;
}

/* May there be ranks without a black box? Not if all have one, nor if one without a launcher is
 * alone. */
static bool may_lack_ranks(const struct ng_leftovers *leftovers, const struct rank *ranks,
                           size_t count)
{
    size_t here = 0;
    int world_size = -1;

    for (size_t i = 0; i < count; i++) {
        here += ranks[i].began_ns >= leftovers->began_ns;
        if (ranks[i].world_size > world_size)
            world_size = ranks[i].world_size;
    }
    return world_size > 0 ? here < (size_t)world_size : here > 1;
}

/* A rank, as far as its position shows: it descends from the launcher and existed at the verdict. A
 * restarting torchrun ends the processes that it has started itself. */
static bool end_unguarded(const struct ng_leftovers *leftovers, struct folder *folder,
                          const struct ng_descendant *process, uint64_t verdict_ticks)
{
    const struct ng_descendant *launcher =
        folder->chain_count > 0 ? find(leftovers, folder->chain[0]) : NULL;
    struct name chain[CHAIN_MAX];

    if (!launcher || folder->restarts || process == launcher ||
        process->start_ticks >= verdict_ticks ||
        !is_in(chain, chain_of(leftovers, process, chain), launcher) ||
        is_of_rank(leftovers, process) || !would_end(process->pid))
        return false;
    end(folder, process, "a process", "it has not called NCCL");
    return true;
}

/* ---- The launcher ---- */

static uint64_t ticks_used(pid_t pid)
{
    char path[64], text[1024];
    unsigned long user, system;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    const char *fields =
        ng_small_file_read_text(path, text, sizeof(text)) > 0 ? strrchr(text, ')') : NULL;
    if (!fields || sscanf(fields + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
                          &system) != 2)
        return 0;
    return user + system;
}

static bool has_child(const struct ng_leftovers *leftovers, pid_t pid)
{
    return NG_ANY(one, leftovers->list, leftovers->count, one->parent == pid);
}

/* Once all its ranks are gone, it exits, starts others, does something else, or hangs. */
static void watch_launcher(const struct ng_leftovers *leftovers, struct folder *folder)
{
    const struct ng_descendant *launcher =
        folder->chain_count > 0 ? find(leftovers, folder->chain[0]) : NULL;
    int64_t now = ng_clock_mono_ns();

    if (!launcher || folder->restarts || has_child(leftovers, launcher->pid)) {
        folder->watches_launcher = false;
        return;
    }
    uint64_t used = ticks_used(launcher->pid);
    if (!folder->idle_since_ns || used != folder->launcher_ticks) {
        folder->idle_since_ns = now;
        folder->launcher_ticks = used;
    }
    if (now - folder->idle_since_ns >= IDLE_NS)
        end(folder, launcher, "the launcher", "it waits for nobody");
}

/* ---- */

/* Has a verdict ended it, since the last end that was handled? */
static bool is_ended(const struct folder *folder, const struct rank *rank)
{
    return rank->ended && ng_on_timeout_ends(rank->ending_policy) &&
           rank->ending_ns > folder->handled_ns;
}

static void find_verdict(struct folder *folder, const struct rank *ranks, size_t count)
{
    if (folder->witnessed_ns > folder->handled_ns && !folder->verdict_ns)
        folder->verdict_ns = folder->witnessed_ns;
    for (size_t i = 0; i < count; i++)
        if (is_ended(folder, &ranks[i]) &&
            (!folder->verdict_ns || ranks[i].ending_ns < folder->verdict_ns))
            folder->verdict_ns = ranks[i].ending_ns;
}

/* A run that a verdict has ended, and when that began. */
struct ended_run {
    uint64_t id;
    int64_t since_ns;
};

static const struct ended_run *ended_run_of(const struct ended_run *runs, size_t count, uint64_t id)
{
    return NG_FIND(run, runs, count, run->id == id);
}

/* The runs to which the ranks belong, and those of the incidents. How many; 0: not known. */
static size_t find_ended_runs(const struct folder *folder, struct rank *ranks, size_t rank_count,
                              struct ended_run ret_runs[RUNS_MAX])
{
    NG_FREED struct ng_local_process *processes = calloc(rank_count + 1, sizeof(*processes));
    size_t count = 0;

    if (!processes)
        return 0;
    for (size_t i = 0; i < rank_count; i++)
        processes[i] = (struct ng_local_process){.pid = ranks[i].name.pid,
                                                 .start_ticks = ranks[i].name.start_ticks};
    int failed = ng_local_find_runs_of(folder->path, processes, (uint32_t)rank_count);
    for (size_t i = 0; i < rank_count && !failed; i++) {
        ranks[i].run = processes[i].run;
        if (!is_ended(folder, &ranks[i]) || !ranks[i].run)
            continue;
        struct ended_run *run = (struct ended_run *)ended_run_of(ret_runs, count, ranks[i].run);
        if (!run && count < RUNS_MAX)
            *(run = &ret_runs[count++]) = (struct ended_run){ranks[i].run, ranks[i].ending_ns};
        if (run && ranks[i].ending_ns < run->since_ns)
            run->since_ns = ranks[i].ending_ns;
    }
    if (folder->witnessed_ns > folder->handled_ns && count < RUNS_MAX &&
        !ended_run_of(ret_runs, count, folder->witnessed_run))
        ret_runs[count++] = (struct ended_run){folder->witnessed_run, folder->witnessed_ns};
    return count;
}

static void end_what_is_left(const struct ng_leftovers *leftovers, struct folder *folder,
                             struct rank *ranks, size_t rank_count)
{
    struct ended_run runs[RUNS_MAX];
    size_t run_count = find_ended_runs(folder, ranks, rank_count, runs);
    uint64_t verdict_ticks = ticks_at(folder->verdict_ns);
    bool left = false, may_lack = may_lack_ranks(leftovers, ranks, rank_count);

    /* With several runs, the position of a process without a box does not show its run. */
    for (size_t i = 0; i < rank_count; i++)
        may_lack &= ended_run_of(runs, run_count, ranks[i].run) != NULL;
    NG_EACH (process, leftovers->list, leftovers->count) {
        const struct rank *rank = rank_of(ranks, rank_count, process);
        const struct ended_run *run = rank ? ended_run_of(runs, run_count, rank->run) : NULL;
        if (run && ng_clock_mono_ns() - run->since_ns < GRACE_NS)
            left = true;
        else if (run)
            left |= end_rank(leftovers, folder, rank, process);
        else if (!rank && may_lack)
            left |= end_unguarded(leftovers, folder, process, verdict_ticks);
    }
    if (left)
        return;
    folder->handled_ns = ng_clock_mono_ns();
    folder->verdict_ns = 0;
    folder->watches_launcher = true;
    folder->idle_since_ns = 0;
}

/* ---- A run that cannot read its verdict ---- */

static bool lives(const struct rank *rank)
{
    uint64_t ticks;
    char state;

    return !rank->ended && ng_proc_stat(rank->name.pid, &state, &ticks) == 0 &&
           ticks == rank->name.start_ticks && state != 'Z' && state != 'X';
}

/* A live rank of a run without any guard's sign of life for long. NULL: none. */
static const struct rank *find_silent(const struct folder *folder, struct rank *ranks, size_t count)
{
    struct ended_run none[RUNS_MAX];
    int64_t since = ng_clock_mono_ns() - SILENT_NS;
    const struct rank *silent = NULL;

    for (size_t i = 0; i < count && !silent; i++)
        if (ranks[i].heartbeat_ns < since && lives(&ranks[i]))
            silent = &ranks[i];
    if (!silent)
        return NULL;
    find_ended_runs(folder, ranks, count, none);
    for (size_t i = 0; i < count; i++)
        if (ranks[i].run == silent->run && ranks[i].heartbeat_ns >= since && lives(&ranks[i]))
            return NULL;
    return silent->run ? silent : NULL;
}

static void check_witness(const struct ng_leftovers *leftovers, struct folder *folder,
                          struct rank *ranks, size_t count)
{
    struct ng_incident incident;
    struct ng_witness_run run;

    if (!ng_witness_is_of_use(leftovers->witness) || folder->verdict_ns)
        return;
    const struct rank *silent = find_silent(folder, ranks, count);
    if (folder->witness < 0) {
        if (silent && silent->run != folder->witnessed_run &&
            ng_witness_find_run(leftovers->witness, folder->path, silent->name.pid, &run)) {
            folder->witness = ng_witness_start(&run);
            folder->witnessed_run = folder->witness < 0 ? 0 : run.id;
        }
        return;
    }
    ssize_t bytes = read(folder->witness, &incident, sizeof(incident));
    if (silent && bytes < 0 && errno == EAGAIN)
        return;
    close(folder->witness);
    folder->witness = -1;
    if (bytes != (ssize_t)sizeof(incident))
        folder->witnessed_run = 0; /* the guard is back, or the witness gone: another may follow */
    else if (ng_on_timeout_ends((uint32_t)incident.policy))
        folder->witnessed_ns = ng_clock_mono_ns();
}

/* ---- */

/* True: it is busy with an incident. */
static bool check_folder(struct ng_leftovers *leftovers, struct folder *folder)
{
    size_t count;
    NG_FREED struct rank *ranks = read_ranks(folder->path, &count);

    check_witness(leftovers, folder, ranks, count);
    find_verdict(folder, ranks, count);
    /* Ancestry is determined only if it matters: there may be thousands of processes. */
    if (!leftovers->list &&
        (count != folder->seen || folder->verdict_ns || folder->watches_launcher))
        leftovers->list = ng_descendants_list(&leftovers->count);
    if (!folder->verdict_ns && count != folder->seen) {
        for (size_t i = 0; i < count; i++) {
            const struct ng_descendant *process = find(leftovers, ranks[i].name);
            if (process)
                note_rank(leftovers, folder, process);
        }
        folder->seen = count;
    }
    if (folder->verdict_ns && ng_clock_mono_ns() - folder->verdict_ns >= GRACE_NS)
        end_what_is_left(leftovers, folder, ranks, count);
    if (folder->watches_launcher)
        watch_launcher(leftovers, folder);
    return folder->verdict_ns != 0;
}

int ng_leftovers_check(struct ng_leftovers *leftovers, const struct ng_job_folders *folders)
{
    bool busy = false;
    char path[PATH_MAX];
    const char *name;
    struct folder *folder;

    if (leftovers->dir[0] && (folder = folder_of(leftovers, leftovers->dir)))
        busy |= check_folder(leftovers, folder);
    for (size_t i = 0; folders && (name = ng_job_folders_name(folders, i)); i++) {
        ng_paths_default_dir(name, path, sizeof(path));
        if ((folder = folder_of(leftovers, path)))
            busy |= check_folder(leftovers, folder);
    }
    free(leftovers->list);
    leftovers->list = NULL;
    leftovers->count = 0;
    return busy ? BUSY_MS : ROUND_MS;
}
