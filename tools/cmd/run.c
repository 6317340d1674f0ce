/*
 * `ncclguard run`: runs a program under guard, and reports at its end what the guard found.
 *
 * Sets the environment and preloads the library; everything else happens inside the program's own
 * processes. Must never change what the program does: its exit status, signals and terminal pass
 * through.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/config/config.h"
#include "core/config/fault_spec.h"
#include "core/config/launch.h"
#include "core/recorder/paths.h"
#include "core/recorder/proc.h"
#include "core/util/clock.h"
#include "core/util/log.h"
#include "core/util/macros.h"
#include "store/board/local.h"
#include "tools/base/command.h"
#include "tools/base/owned.h"
#include "tools/base/usage.h"
#include "tools/cmd/aftermath.h"
#include "tools/inspect/launchers.h"
#include "tools/inspect/library.h"
#include "tools/jobs/job_folders.h"
#include "tools/jobs/leftovers.h"
#include "tools/jobs/rank_ends.h"
#include "tools/jobs/supervise.h"
#include "tools/jobs/witness.h"
#include "tools/judge/live_verdict.h"
#include "tools/render/verdict_text.h"

#define COMMAND "run"

/* Time for the verdict of other hosts, after they know of an end. */
#define OTHERS_NS (4 * NG_S)

enum {
    OPTION_TIMEOUT,
    OPTION_INIT_TIMEOUT,
    OPTION_ON_TIMEOUT,
    OPTION_STORE,
    OPTION_OUT,
    OPTION_FAULT,
    OPTION_COUNT
};

static const struct ng_usage_option options[OPTION_COUNT] = {
    [OPTION_TIMEOUT] =
        {"timeout", "DURATION",
         "deadline of a collective, such as 600s, 10m, 1500ms, or 600 (seconds); 0 none\n"
         "(sets NCCLGUARD_TIMEOUT)"},
    [OPTION_INIT_TIMEOUT] = {"init-timeout", "DURATION",
                             "deadline of creating a communicator (sets NCCLGUARD_INIT_TIMEOUT)"},
    [OPTION_ON_TIMEOUT] =
        {"on-timeout", "POLICY",
         "what happens at a deadline: log, abort, teardown or kill\n(sets NCCLGUARD_ON_TIMEOUT)"},
    [OPTION_STORE] = {"store", "URL",
                      "where ranks share what they know: local: or local:DIR (one host),\n"
                      "redis://[[user]:password@]host[:port][/db], rediss:// (TLS),\n"
                      "redis+unix:///path, redis+sentinel://h1,h2/master, or none\n"
                      "(sets NCCLGUARD_STORE; ps does not show the password)"},
    [OPTION_OUT] = {"out", "DIR",
                    "folder of the evidence, made if missing (sets NCCLGUARD_DUMP_DIR)"},
    [OPTION_FAULT] = {"fault", "SPEC",
                      "inject faults, for a rehearsal, such as rank=1,op=AllReduce,nth=10:hang;\n"
                      "several separated by `;`; help: list them (sets NCCLGUARD_FAULT)"},
};

static const struct ng_usage usage = {
    .command = COMMAND,
    .synopsis = "[OPTION…] [--] PROG ARGS…",
    .about =
        "Run PROG with libncclguard.so preloaded into it and all its children. Its exit status\n"
        "and signals pass through. When it has ended, processes that it left behind are ended\n"
        "(SIGTERM, after 2 s SIGKILL); so is, while it runs, what a verdict of policy kill or\n"
        "teardown has left of the job. If the guard found a fault its verdict is printed on\n"
        "stderr. Variables NCCLGUARD_… of the environment hold too: see `ncclguard config`.\n"
        "Exit status of its own: 2 usage error, 126 PROG cannot be run, 127 PROG was not found.",
    .options = options,
    .option_count = OPTION_COUNT,
    .stop_at_operand = true,
};

/* Options that set a variable. */
static const struct {
    int option;
    const char *variable;
} spellings[] = {
    {OPTION_TIMEOUT, "NCCLGUARD_TIMEOUT"},       {OPTION_INIT_TIMEOUT, "NCCLGUARD_INIT_TIMEOUT"},
    {OPTION_ON_TIMEOUT, "NCCLGUARD_ON_TIMEOUT"}, {OPTION_STORE, "NCCLGUARD_STORE"},
    {OPTION_FAULT, "NCCLGUARD_FAULT"},
};

/* State of the job that is needed at its end. */
struct job {
    char name[128];
    bool nested;     /* started by another `ncclguard run`, which does all this */
    bool named_here; /* we chose its name ourselves */
    char dump_dir[PATH_MAX];
    struct stat verdict_before; /* verdict of an earlier run in the same folder; st_ino 0 none */
    bool is_named_later;        /* perhaps: by the program, and then the evidence is elsewhere */
    struct timespec began;
    const struct ng_rank_ends *ends;
    int64_t ended_unix_ns;
    /* The job went on after the verdict that was printed last, which was on this call. */
    bool went_on;
    uint64_t group_id;
    int64_t seq;
};

static const char *variable_of(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* Returns 0, or an exit status after reporting the usage error. */
static int check_option(const char *flag, const char *variable, const char *value)
{
    NG_EACH (option, ng_options, ng_option_count) {
        char why[256];
        union {
            bool truth;
            int choice;
            int64_t number;
            const char *text;
        } parsed;
        if (strcmp(option->name, variable) == 0 &&
            ng_config_parse_value(option, value, &parsed, why, sizeof(why)) != 0)
            return ng_usage_error(COMMAND, why, "--%s %s is not valid", flag, value);
    }
    return 0;
}

static void tell_nobody(void *context, char severity, const char *line)
{
    /* Errors were reported before; the library reports warnings, once, in the job's log. */
}

/* The argument of --fault. Returns the exit status. */
static int list_faults(void)
{
    puts("FAULT[;FAULT…], each CONDITION[,CONDITION…]:WHAT, such as "
         "rank=1,op=AllReduce,nth=10:hang\n\n"
         "Conditions; all that stand there must hold, and * alone holds for every call:");
    for (size_t i = 0; i < ng_fault_condition_count; i++) {
        char left[40];
        snprintf(left, sizeof(left), "%s=%s", ng_fault_conditions[i].name,
                 ng_fault_conditions[i].value);
        printf("  %-16s %s\n", left, ng_fault_conditions[i].help);
    }
    puts("\nWhat happens to the calls that match:");
    for (size_t i = 0; i < NG_FAULT_KINDS; i++) {
        const char *argument = ng_fault_argument_text(ng_fault_table[i].argument);
        printf("  %-16s %s%s%s%s\n", ng_fault_table[i].name, ng_fault_table[i].help,
               *argument ? " (=" : "", argument, *argument ? ")" : "");
    }
    return 0;
}

/* 0, or an exit status after reporting the error. */
static int preload_library(char ret_path[PATH_MAX])
{
    struct ng_mistake mistake;

    if (!ng_library_find(ret_path, &mistake) || !ng_library_check(ret_path, &mistake))
        return ng_usage_error(COMMAND, mistake.mend, "%s", mistake.text);
    NG_FREED char *list = ng_library_preload_list(variable_of("LD_PRELOAD"), ret_path);
    if (!list)
        return NG_EXIT_FAILED;
    setenv("NCCLGUARD_LIB", ret_path, 1);
    setenv("LD_PRELOAD", list, 1);
    return 0;
}

/* MPICH, for one, numbers ranks and names no job. */
static void warn_unnamed(const struct ng_launch *launch)
{
    if (launch->rank == 0 && launch->world_size > 1 && !launch->job_is_shared)
        fprintf(stderr,
                "ncclguard run: warning: the launcher numbers %d ranks (as %s does) and names no "
                "job: unless the program names it, each rank is a job of its own and sees no "
                "other; set NCCLGUARD_JOB to one name for all of them\n",
                launch->world_size, launch->launcher);
}

static void name_job(struct job *job, const struct ng_config *config)
{
    char id[64];
    struct ng_launch launch;
    uint64_t start_ticks = 0;
    char state;

    job->nested = variable_of("NCCLGUARD_RUN_ID") != NULL;
    if (!job->nested) {
        ng_proc_stat(0, &state, &start_ticks);
        snprintf(id, sizeof(id), "run-%d-%llu", (int)getpid(), (unsigned long long)start_ticks);
        setenv("NCCLGUARD_RUN_ID", id, 1);
    }
    ng_launch_detect(variable_of("NCCLGUARD_JOB"), -1, -1, &launch);
    snprintf(job->name, sizeof(job->name), "%s", launch.job);
    job->named_here = !job->nested && strcmp(launch.job, id) == 0;
    if (!job->nested && config->enabled && config->log_level >= NG_LOG_WARN)
        warn_unnamed(&launch);
}

/* 0, or an exit status after reporting the error. */
static int set_folders(struct job *job, const char *out)
{
    char path[PATH_MAX];
    const char *dump_dir = variable_of("NCCLGUARD_DUMP_DIR");

    if (out) {
        int error = ng_paths_make(out);
        if (error == -EPERM)
            return ng_usage_error(
                COMMAND, "name a folder that is yours and that others cannot write to",
                "--out %s belongs to somebody else, or others may write to it", out);
        if (error != 0 || !realpath(out, path))
            return ng_usage_error(COMMAND, "name a folder that can be made", "--out %s: %s", out,
                                  strerror(error ? -error : errno));
        snprintf(job->dump_dir, sizeof(job->dump_dir), "%s", path);
        setenv("NCCLGUARD_DUMP_DIR", path, 1);
    } else if (dump_dir) {
        snprintf(job->dump_dir, sizeof(job->dump_dir), "%s", dump_dir);
    } else {
        ng_paths_default_dump_dir(job->name, job->dump_dir, sizeof(job->dump_dir));
        /*
         * The program may be a launcher that names the job itself, and then the location of the
         * evidence would be unknown. Several runs of one job (srun ncclguard run …) must share a
         * folder, so this is not done there.
         */
        if (job->named_here)
            setenv("NCCLGUARD_DUMP_DIR", job->dump_dir, 1);
        else
            job->is_named_later = true;
    }

    char verdict[PATH_MAX + 16];
    snprintf(verdict, sizeof(verdict), "%s/verdict.json", job->dump_dir);
    if (stat(verdict, &job->verdict_before) != 0)
        job->verdict_before = (struct stat){0};
    clock_gettime(CLOCK_REALTIME_COARSE, &job->began); /* the clock of files */
    return 0;
}

/* Files are renamed into place: another verdict has another inode, or at least another time. */
static bool is_another(const struct stat *verdict, const struct stat *before)
{
    return verdict->st_ino != before->st_ino || verdict->st_mtim.tv_sec != before->st_mtim.tv_sec ||
           verdict->st_mtim.tv_nsec != before->st_mtim.tv_nsec;
}

static bool is_younger(const struct stat *verdict, const struct timespec *than)
{
    const struct timespec *written = &verdict->st_mtim;

    return written->tv_sec > than->tv_sec ||
           (written->tv_sec == than->tv_sec && written->tv_nsec >= than->tv_nsec);
}

/* As one word of a shell. */
static void quote(const char *text, char ret_word[4 * PATH_MAX + 3])
{
    char *to = ret_word;

    if (!text[strcspn(text, " \t\n\"'$`\\*?[](){}&;<>|#~")]) {
        strcpy(ret_word, text);
        return;
    }
    *to++ = '\'';
    for (; *text; text++)
        if (*text == '\'')
            to = stpcpy(to, "'\\''");
        else
            *to++ = *text;
    strcpy(to, "'");
}

static void print_text(const char *folder)
{
    char path[PATH_MAX + 16], word[4 * PATH_MAX + 3];

    snprintf(path, sizeof(path), "%s/verdict.txt", folder);
    fflush(stderr);
    NG_CLOSED int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || ng_verdict_text_print(fd, STDERR_FILENO) != 0)
        fprintf(stderr, "ncclguard: the evidence lies in %s\n", folder);
    quote(folder, word);
    fprintf(stderr,
            "ncclguard run: to look further:\n"
            "  ncclguard analyze %s\n"
            "  ncclguard analyze --html report.html %s\n",
            word, word);
}

/* The call that a verdict is on. */
static void read_call(const json_t *verdict, uint64_t *ret_group_id, int64_t *ret_seq)
{
    const char *group = json_string_value(json_object_get(json_object_get(verdict, "group"), "id"));

    *ret_group_id = group ? strtoull(group, NULL, 16) : 0;
    *ret_seq = json_integer_value(json_object_get(verdict, "seq"));
}

/* A verdict that left the job alive need not be the reason for its end. */
static void tell_age(struct job *job, const json_t *verdict)
{
    const char *action = json_string_value(json_object_get(verdict, "action"));
    int64_t reached = json_integer_value(json_object_get(verdict, "time_unix_ns"));
    bool acted = action && (strcmp(action, "log") == 0 || strcmp(action, "abort") == 0);
    bool may_go_on = acted || (action && strcmp(action, "none") == 0);

    job->went_on = false;
    read_call(verdict, &job->group_id, &job->seq);
    if (!may_go_on || reached <= 0 || reached > job->ended_unix_ns)
        return;
    job->went_on = ng_rank_ends_went_on(job->ends, reached, job->group_id, (uint64_t)job->seq);
    if (acted || job->went_on)
        fprintf(stderr, "ncclguard run: the last verdict, %.1f s before the end; %s\n",
                (double)(job->ended_unix_ns - reached) / NG_S,
                job->went_on ? "the job went on after it"
                             : "nothing shows that the job went on after it");
}

/* The verdict of an incident of this run, if there was one. */
static bool print_verdict(struct job *job, const char *folder, bool failed)
{
    char path[PATH_MAX + 16];
    struct stat status;

    snprintf(path, sizeof(path), "%s/verdict.json", folder);
    if (stat(path, &status) != 0 ||
        !(folder == job->dump_dir ? is_another(&status, &job->verdict_before)
                                  : is_younger(&status, &job->began)))
        return false;
    json_t *verdict = json_load_file(path, 0, NULL);
    bool final = ng_live_verdict_verdict_stays(verdict, failed);
    if (final) {
        tell_age(job, verdict);
        print_text(folder);
    }
    json_decref(verdict);
    return final;
}

/* In folders of our runs, which also contained others of the job's name. */
static bool print_apart(struct job *job, const char *above, bool failed)
{
    const char *run_id = variable_of("NCCLGUARD_RUN_ID");
    NG_CLOSED_DIR DIR *entries = run_id ? opendir(above) : NULL;
    char folder[PATH_MAX];
    bool any = false;

    if (!entries)
        return false;
    for (struct dirent *entry; (entry = readdir(entries));) {
        size_t length = strlen(run_id);
        if (strncmp(entry->d_name, run_id, length) == 0 && entry->d_name[length] == '-' &&
            snprintf(folder, sizeof(folder), "%s/%s", above, entry->d_name) < (int)sizeof(folder))
            any |= print_verdict(job, folder, failed);
    }
    return any;
}

/* If the launcher named the job, the evidence is under that name. False: there is none. */
static bool print_verdicts(struct job *job, const struct ng_job_folders *folders, bool failed)
{
    bool any = print_apart(job, job->dump_dir, failed) || print_verdict(job, job->dump_dir, failed);
    char folder[PATH_MAX];
    const char *name;

    for (size_t i = 0; job->is_named_later && (name = ng_job_folders_name(folders, i)); i++) {
        ng_paths_default_dump_dir(name, folder, sizeof(folder));
        if (strcmp(folder, job->dump_dir) != 0)
            any |= print_apart(job, folder, failed) || print_verdict(job, folder, failed);
    }
    return any;
}

/* If several runs of the job's name have left black boxes: those that are ours. False: there is
 * only one. */
static bool look_at_own_runs(const char *boxes, const char *name, const char *evidence)
{
    const char *run_id = variable_of("NCCLGUARD_RUN_ID");
    struct ng_local_run runs[16];
    char folder[PATH_MAX], id[17];
    int count = ng_local_runs(boxes, runs, NG_COUNT(runs));

    for (int i = 0; count > 1 && i < count && run_id; i++) {
        size_t length = strlen(run_id);
        snprintf(id, sizeof(id), "%016" PRIx64, runs[i].id);
        if (strncmp(runs[i].name, run_id, length) == 0 && runs[i].name[length] == '-' &&
            snprintf(folder, sizeof(folder), "%s/%s", evidence, runs[i].name) <
                (int)sizeof(folder) &&
            ng_aftermath_look_at_run(name, id, folder) == NG_AFTERMATH_SAVED)
            print_text(folder);
    }
    return count > 1;
}

/* Ranks of this host have ended before there was a verdict: other hosts may still reach one. */
static bool await_others(const struct ng_witness_options *witness, const char *boxes,
                         int64_t until_mono_ns)
{
    const struct timespec pause = {.tv_nsec = 200 * NG_MS};
    char path[PATH_MAX + 16];
    struct ng_witness_run run;
    struct ng_incident incident = {0};
    uint32_t living = 1;
    int error = 0;

    if (!ng_witness_find_run(witness, boxes, 0, &run))
        return false;
    snprintf(path, sizeof(path), "%s/verdict.json", run.evidence);
    while (living && (!error || error == -ENOENT) && ng_clock_mono_ns() < until_mono_ns) {
        error = ng_witness_look(&run, incident.epoch, &incident, &living);
        json_t *verdict = error ? NULL : json_load_file(path, 0, NULL);
        bool final = ng_live_verdict_verdict_stays(verdict, true);
        json_decref(verdict);
        if (final) {
            print_text(run.evidence);
            return true;
        }
        nanosleep(&pause, NULL);
    }
    return false;
}

static bool print_others(const struct ng_witness_options *witness, const char *dir,
                         const struct ng_job_folders *folders, int64_t ttl_ns)
{
    int64_t until = ng_clock_mono_ns() + ttl_ns + OTHERS_NS;
    char boxes[PATH_MAX];
    const char *name;

    if (!ng_witness_is_of_use(witness))
        return false;
    bool any = dir && await_others(witness, dir, until);
    for (size_t i = 0; (name = ng_job_folders_name(folders, i)); i++) {
        ng_paths_default_dir(name, boxes, sizeof(boxes));
        any |= await_others(witness, boxes, until);
    }
    return any;
}

/* The job went on after the guard's last verdict, and has failed since: what the black boxes tell
 * of its end, unless it is of that verdict's call, lies beside that verdict. */
static void look_at_end(const struct job *job, const char *boxes, const char *name,
                        const char *evidence)
{
    char folder[PATH_MAX], path[PATH_MAX + 16];
    struct ng_local_run runs[2];
    uint64_t group_id;
    int64_t seq;

    if (ng_local_runs(boxes, runs, 2) != 1 ||
        snprintf(folder, sizeof(folder), "%s/end", evidence) >= (int)sizeof(folder) ||
        ng_aftermath_look(boxes, name, folder) != NG_AFTERMATH_SAVED)
        return;
    snprintf(path, sizeof(path), "%s/verdict.json", folder);
    json_t *verdict = json_load_file(path, 0, NULL);
    read_call(verdict, &group_id, &seq);
    json_decref(verdict);
    if (group_id == job->group_id && seq == job->seq)
        return;
    fprintf(stderr, "ncclguard run: what the black boxes tell of the end:\n");
    print_text(folder);
}

/* False: nothing was reported, and the black boxes may be removed. */
static bool look_at_job(const struct job *job, const char *boxes, const char *name,
                        const char *folder)
{
    if (job->went_on) {
        look_at_end(job, boxes, name, folder);
        return false;
    }
    if (look_at_own_runs(boxes, name, folder))
        return false;
    switch (ng_aftermath_look(boxes, name, folder)) {
    case NG_AFTERMATH_NOTHING:
        break;
    case NG_AFTERMATH_SAVED:
        print_text(folder);
        break;
    case NG_AFTERMATH_TOLD:
        fprintf(stderr,
                "ncclguard run: the evidence cannot be written to %s: the black boxes stay in %s; "
                "`ncclguard analyze %s` reads them, remove them when done\n",
                folder, boxes, boxes);
        return true;
    }
    return false;
}

/* In a folder that the user has set: `ncclguard dump` finds it by its variable. */
static void look_at_named(const struct job *job, const char *boxes)
{
    struct ng_witness_options own = {.store = "", .evidence = NULL};
    struct ng_witness_run run;
    char folder[PATH_MAX];

    if (!ng_witness_find_run(&own, boxes, 0, &run))
        return;
    snprintf(folder, sizeof(folder), "%s", job->dump_dir);
    if (job->is_named_later)
        ng_paths_default_dump_dir(run.job, folder, sizeof(folder));
    setenv("NCCLGUARD_DIR", boxes, 1);
    look_at_job(job, boxes, run.job, folder);
}

/* The job has failed without a verdict from the guard, or after it: derive one from the black
 * boxes. */
static void look_at_what_is_left(const struct job *job, const char *dir,
                                 struct ng_job_folders *folders)
{
    char boxes[PATH_MAX], evidence[PATH_MAX];
    const char *name;

    if (dir)
        look_at_named(job, dir);
    for (size_t i = 0; (name = ng_job_folders_name(folders, i)); i++) {
        ng_paths_default_dir(name, boxes, sizeof(boxes));
        ng_paths_default_dump_dir(name, evidence, sizeof(evidence));
        if (look_at_job(job, boxes, name, job->is_named_later ? evidence : job->dump_dir))
            ng_job_folders_keep(folders, i);
    }
}

/*
 * Nothing was guarded, which would otherwise go unnoticed. Reported only if certain: the dynamic
 * linker opens a library that it preloads, so without an opening no process had it; and some
 * launchers are known to drop the environment, unless a black box appeared all the same.
 */
static void warn_unguarded(char *const *argv, int opened, bool box_seen)
{
    struct ng_launching launching;

    if (!box_seen && ng_launcher_strips(argv, &launching))
        fprintf(
            stderr,
            "ncclguard run: warning: nothing behind %s was guarded: it %s; `ncclguard doctor -- "
            "%s …` tells the mend\n",
            launching.name, launching.why, argv[0]);
    else if (opened >= 0 && !ng_library_was_opened(opened))
        fprintf(stderr,
                "ncclguard run: warning: no process of %s loaded libncclguard.so, so nothing was "
                "guarded; `ncclguard doctor -- %s` tells why\n",
                argv[0], argv[0]);
}

static int tell_start_failure(const char *program, int error)
{
    if (error == -ENOENT && strchr(program, '/') && access(program, F_OK) == 0) {
        fprintf(stderr, "ncclguard run: %s: its interpreter was not found\n", program);
        return 126;
    }
    if (error == -ENOENT) {
        fprintf(stderr, "ncclguard run: %s: not found\n", program);
        return 127;
    }
    fprintf(stderr, "ncclguard run: %s: %s\n", program,
            error == -EACCES ? "cannot be executed (no permission)" : strerror(-error));
    return 126;
}

/* The folder of black boxes that the user has set; NULL none. */
static const char *named_boxes(const struct ng_config *config)
{
    if (config->dir)
        return config->dir;
    return strncmp(config->store, "local:", 6) == 0 && config->store[6] ? config->store + 6 : NULL;
}

int ng_command_run(int argc, char **argv)
{
    const char *values[OPTION_COUNT];
    struct ng_mistake mistake;
    struct ng_config config;
    char library[PATH_MAX];
    struct ng_job_folders folders = {.fd = -1};
    struct job job = {0};
    int operand, status;

    if (!ng_usage_parse(&usage, argc, argv, values, &operand, &status))
        return status;
    if (values[OPTION_FAULT]) {
        if (strcmp(values[OPTION_FAULT], "help") == 0)
            return list_faults();
        if (ng_library_bad_fault("--fault", values[OPTION_FAULT], &mistake))
            return ng_usage_error(COMMAND, mistake.mend, "%s", mistake.text);
    }
    for (size_t i = 0; i < NG_COUNT(spellings); i++) {
        const char *value = values[spellings[i].option];
        if (!value)
            continue;
        status = check_option(options[spellings[i].option].name, spellings[i].variable, value);
        if (status != 0)
            return status;
        setenv(spellings[i].variable, value, 1);
    }
    if (operand == argc)
        return ng_usage_error(COMMAND, "write `ncclguard run PROG ARGS…`", "no program was given");
    if (ng_library_bad_setting(&mistake))
        return ng_usage_error(COMMAND, mistake.mend, "%s", mistake.text);
    ng_config_parse(&config, environ, tell_nobody, NULL);
    status = preload_library(library);
    if (status != 0)
        return status;
    name_job(&job, &config);
    status = set_folders(&job, values[OPTION_OUT]);
    if (status != 0)
        return status;

    /* Folders that the user has named are left to the user. */
    bool watch = !job.nested && !config.dir && strcmp(config.store, "none") != 0 &&
                 (strncmp(config.store, "local:", 6) != 0 || !config.store[6]);
    int opened = job.nested ? -1 : ng_library_watch(library);
    const struct ng_witness_options witness = {.store = config.store,
                                               .key_file = config.store_key,
                                               .evidence =
                                                   job.is_named_later ? NULL : job.dump_dir};
    struct ng_leftovers *leftovers =
        job.nested ? NULL
                   : ng_leftovers_create(named_boxes(&config), config.abort_wait_ns, &witness);
    struct ng_rank_ends *ends =
        job.nested ? NULL : ng_rank_ends_create(named_boxes(&config), &witness);
    int error = ng_supervise(argv + operand, watch ? &folders : NULL, leftovers, ends, &status);
    job.ends = ends;
    job.ended_unix_ns = ng_clock_unix_ns();
    ng_leftovers_destroy(leftovers);
    bool told = error == 0 && !job.nested && print_verdicts(&job, &folders, status != 0);
    if (error == 0 && !job.nested && (!told || job.went_on) && status != 0 &&
        !ng_supervise_got_end_signal() &&
        (told || !print_others(&witness, named_boxes(&config), &folders, config.store_ttl_ns)))
        look_at_what_is_left(&job, named_boxes(&config), &folders);
    ng_rank_ends_destroy(ends);
    if (error == 0 && !job.nested && config.enabled && config.log_level >= NG_LOG_WARN)
        warn_unguarded(argv + operand, opened, ng_job_folders_used(&folders));
    ng_job_folders_remove(&folders);
    if (error != 0)
        return tell_start_failure(argv[operand], error);
    ng_supervise_end_like(status);
}
