/*
 * Reads from the store, and tells it, what no rank of this host can.
 *
 * Used by `ncclguard run`. Must never keep it from passing on a signal: operations that may block
 * run in a child.
 */
#include "tools/jobs/witness.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/recorder/box.h"
#include "core/recorder/paths.h"
#include "core/report/report.h"
#include "core/util/clock.h"
#include "core/util/macros.h"
#include "store/board/board_client.h"
#include "store/board/local.h"
#include "tools/base/run_helper.h"
#include "tools/jobs/jobs.h"

#define STORE_NS (2 * NG_S)
#define DUMP_NS  (10 * NG_S)
#define ROUND_MS 1000
#define RUNS_MAX 16
#define TELL_NS  (60 * NG_S)
#define AGAIN_MS 200
#define WAIT_NS  (5 * NG_S) /* for a black box that cannot be opened: it keeps others back */

bool ng_witness_is_of_use(const struct ng_witness_options *options)
{
    return strncmp(options->store, "redis", 5) == 0;
}

/* ---- Which run ---- */

/* The ids of the groups in a black box, if it belongs to this `ncclguard run`. */
static bool read_groups(const char *path, int pid, struct ng_witness_run *run,
                        struct ng_local_process *ret_process)
{
    const char *run_id = getenv("NCCLGUARD_RUN_ID");
    struct ng_box box;

    if (ng_box_open(path, &box) != 0)
        return false;
    const struct ng_box_header *header = box.header;
    bool ours = run_id && strncmp(header->run_id, run_id, sizeof(header->run_id)) == 0 &&
                (!pid || header->pid == pid) && ng_box_read(&box, NG_BOX_GROUPS) == 0;
    uint32_t used = ours ? NG_LOAD(header->group_used) : 0;
    for (uint32_t i = 0;
         i < used && i < box.group_capacity && run->group_count < NG_COUNT(run->groups); i++) {
        uint64_t id = NG_LOAD(box.groups[i].id);
        if (id)
            run->groups[run->group_count++] = id;
    }
    if (run->group_count) {
        *ret_process =
            (struct ng_local_process){.pid = header->pid, .start_ticks = header->start_ticks};
        snprintf(run->job, sizeof(run->job), "%.*s", (int)sizeof(header->job), header->job);
    }
    ng_box_close(&box, NULL);
    return run->group_count != 0;
}

static bool find_groups(const char *boxes, int pid, struct ng_witness_run *run,
                        struct ng_local_process *ret_process)
{
    DIR *folder = opendir(boxes);
    char path[PATH_MAX];
    bool found = false;

    if (!folder)
        return false;
    for (struct dirent *entry; !found && (entry = readdir(folder));)
        found = strncmp(entry->d_name, NG_BOX_PREFIX, strlen(NG_BOX_PREFIX)) == 0 &&
                snprintf(path, sizeof(path), "%s/%s", boxes, entry->d_name) < (int)sizeof(path) &&
                read_groups(path, pid, run, ret_process);
    closedir(folder);
    return found;
}

/* If several runs have left black boxes, each has its own evidence folder. */
static void choose_evidence(const char *boxes, struct ng_witness_run *run)
{
    struct ng_local_run runs[RUNS_MAX];
    const char *above = run->options->evidence;
    char folder[PATH_MAX];
    int count = ng_local_runs(boxes, runs, RUNS_MAX);

    if (above)
        snprintf(folder, sizeof(folder), "%s", above);
    else
        ng_paths_default_dump_dir(run->job, folder, sizeof(folder));
    snprintf(run->evidence, sizeof(run->evidence), "%s", folder);
    for (int i = 0; count > 1 && i < count; i++)
        if (runs[i].id == run->id && snprintf(run->evidence, sizeof(run->evidence), "%s/%s", folder,
                                              runs[i].name) >= (int)sizeof(run->evidence))
            snprintf(run->evidence, sizeof(run->evidence), "%s", folder);
}

bool ng_witness_find_run(const struct ng_witness_options *options, const char *boxes, int pid,
                         struct ng_witness_run *ret_run)
{
    struct ng_witness_run *run = ret_run;
    struct ng_local_process process;

    *run = (struct ng_witness_run){.options = options};
    if (!find_groups(boxes, pid, run, &process))
        return false;
    if (ng_local_find_runs_of(boxes, &process, 1) == 0)
        run->id = process.run;
    choose_evidence(boxes, run);
    return true;
}

/* ---- Its verdict ---- */

int ng_witness_look(const struct ng_witness_run *run, uint64_t epoch,
                    struct ng_incident *ret_incident, uint32_t *ret_living)
{
    struct ng_observed_job observed = {.url = run->options->store,
                                       .job = run->job,
                                       .tls = ng_tls_for(run->options->store),
                                       .key_file = run->options->key_file};
    struct ng_board_client_verdict verdict;
    char why[NG_BOARD_CLIENT_WHY_BYTES];

    int error = ng_board_client_verdict(&observed, run->groups, run->group_count, epoch,
                                        ng_clock_mono_ns() + STORE_NS, &verdict, ret_living, why,
                                        sizeof(why));
    if (error)
        return error;
    if (verdict.documents.json)
        error = ng_paths_make(run->evidence);
    if (verdict.documents.json && !error)
        error = ng_report_save_documents(&verdict.documents, run->evidence);
    if (error)
        fprintf(stderr, "ncclguard run: cannot write the verdict of another host to %s: %s\n",
                run->evidence, strerror(-error));
    ng_arena_reset(&verdict.documents.arena);
    *ret_incident = verdict.incident;
    return 0;
}

/* Add the content of the black boxes to the verdict, which stays. */
static void dump(const struct ng_witness_run *run)
{
    static const char *const assignments[] = {"LD_PRELOAD", "NCCLGUARD_STORE", NULL};
    char id[17];
    const char *const argv[] = {"/proc/self/exe", "dump", "--job", run->job,
                                "--run",          id,     "--out", run->evidence,
                                "--no-stacks",    NULL};
    struct ng_answer answer;

    snprintf(id, sizeof(id), "%016" PRIx64, run->id);
    if (ng_ask((char *const *)argv, assignments, DUMP_NS, &answer) == 0)
        ng_answer_fini(&answer);
}

static _Noreturn void attend(const struct ng_witness_run *run, int fd)
{
    struct pollfd reader = {.fd = fd};
    struct ng_incident incident = {0};

    do {
        if (poll(&reader, 1, ROUND_MS) != 0)
            _exit(0); /* no reader is left */
        ng_witness_look(run, incident.epoch, &incident, NULL);
    } while (incident.level != NG_INCIDENT_TIMEOUT);
    dump(run);
    _exit(write(fd, &incident, sizeof(incident)) != (ssize_t)sizeof(incident));
}

int ng_witness_start(const struct ng_witness_run *run)
{
    pid_t parent = getpid();
    int ends[2];
    sigset_t none;

    if (pipe2(ends, O_CLOEXEC) != 0)
        return -errno;
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        close(ends[0]);
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        attend(run, ends[1]);
    }
    int error = -errno;
    close(ends[1]);
    if (child > 0 && fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0)
        return ends[0];
    close(ends[0]);
    return error;
}

/* ---- Ends ---- */

/* The job of the first whose end is not told yet. 0; -ENOENT: all are told; or -errno: its black
 * box cannot be opened now. One that `waits` no more is left out. */
static int find_untold(const char *const *paths, bool *told, size_t count, bool waits,
                       char ret_job[128])
{
    struct ng_box box;

    for (size_t i = 0; i < count; i++) {
        if (told[i])
            continue;
        int error = ng_box_open(paths[i], &box);
        told[i] = error && (!waits || ng_box_is_unreadable(error));
        if (told[i])
            continue;
        if (error)
            return error;
        snprintf(ret_job, 128, "%.*s", (int)sizeof(box.header->job), box.header->job);
        ng_box_close(&box, NULL);
        return 0;
    }
    return -ENOENT;
}

static _Noreturn void tell(const struct ng_witness_options *options, const char *const *paths,
                           size_t count)
{
    int64_t begun = ng_clock_mono_ns(), now = begun;
    bool *told = calloc(count, sizeof(*told));
    int error;
    char job[128], why[NG_BOARD_CLIENT_WHY_BYTES];
    struct ng_observed_job observed = {.url = options->store,
                                       .job = job,
                                       .tls = ng_tls_for(options->store),
                                       .key_file = options->key_file};

    for (; told && now - begun < TELL_NS; now = ng_clock_mono_ns()) {
        error = find_untold(paths, told, count, now - begun < WAIT_NS, job);
        if (error == -ENOENT)
            break;
        if (!error)
            error = ng_board_client_report_ends(&observed, paths, told, count, now + STORE_NS, why,
                                                sizeof(why));
        if (error)
            poll(NULL, 0, AGAIN_MS);
    }
    _exit(0);
}

void ng_witness_report_ends(const struct ng_witness_options *options, const char *const *paths,
                            size_t count)
{
    pid_t parent = getpid();

    if (fork() != 0)
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* The parent's descriptors of ranks may be all that a process may have. */
    syscall(SYS_close_range, STDERR_FILENO + 1, ~0U, 0);
    if (getppid() == parent)
        tell(options, paths, count); /* with the parent's signals blocked: SIGTERM is for the job */
    _exit(1);
}
