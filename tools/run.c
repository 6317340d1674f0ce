/*
 * `ncclguard run`: puts a program under guard, and says at its end what the guard found.
 *
 * Sets the environment and preloads the library; everything else happens inside the program's own
 * processes. Must never change what the program does: its exit status, signals and terminal pass
 * through.
 */
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/config.h"
#include "core/launch.h"
#include "core/paths.h"
#include "core/policy.h"
#include "core/proc.h"
#include "tools/command.h"
#include "tools/job_folders.h"
#include "tools/supervise.h"
#include "tools/usage.h"

#define COMMAND "run"

enum { OPTION_TIMEOUT, OPTION_ON_TIMEOUT, OPTION_STORE, OPTION_OUT, OPTION_FAULT, OPTION_COUNT };

static const struct ng_usage_option options[OPTION_COUNT] = {
    [OPTION_TIMEOUT] =
        {"timeout", "DURATION",
         "deadline of a collective, such as 600s, 10m, 1500ms; 0 none\n(sets NCCLGUARD_TIMEOUT)"},
    [OPTION_ON_TIMEOUT] = {"on-timeout", "POLICY",
                           "what happens at a deadline: log or kill (sets NCCLGUARD_ON_TIMEOUT)"},
    [OPTION_STORE] =
        {"store", "URL",
         "where ranks share what they know: local:, local:DIR or none\n(sets NCCLGUARD_STORE)"},
    [OPTION_OUT] = {"out", "DIR",
                    "folder of the evidence, made if missing (sets NCCLGUARD_DUMP_DIR)"},
    [OPTION_FAULT] = {"fault", "SPEC", "fault injection (not in this version)"},
};

static const struct ng_usage usage = {
    .command = COMMAND,
    .synopsis = "[OPTION…] [--] PROG ARGS…",
    .about =
        "Run PROG with libncclguard.so preloaded into it and all its children. Its exit status\n"
        "and signals pass through. When it has ended, processes that it left behind are ended\n"
        "(SIGTERM, after 2 s SIGKILL), and if the guard found a fault its verdict is printed on\n"
        "stderr. Variables NCCLGUARD_… of the environment hold too: see `ncclguard config`.\n"
        "Exit status of its own: 2 usage error, 126 PROG cannot be run, 127 PROG was not found.",
    .options = options,
    .option_count = OPTION_COUNT,
    .stop_at_operand = true,
};

/* Options that are another spelling of a variable. */
static const struct {
    int option;
    const char *variable;
} spellings[] = {
    {OPTION_TIMEOUT, "NCCLGUARD_TIMEOUT"},
    {OPTION_ON_TIMEOUT, "NCCLGUARD_ON_TIMEOUT"},
    {OPTION_STORE, "NCCLGUARD_STORE"},
};

/* What the end needs to know about the job. */
struct job {
    char name[128];
    bool nested;     /* started by another `ncclguard run`, which does all this */
    bool named_here; /* nobody but us has named it */
    char dump_dir[PATH_MAX];
    struct stat verdict_before; /* of an earlier run in the same folder; st_ino 0 none */
};

static const char *variable_of(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* Returns 0, or an exit status with the usage error told. */
static int check_option(const char *flag, const char *variable, const char *value)
{
    for (size_t i = 0; i < ng_option_count; i++) {
        const struct ng_option *option = &ng_options[i];
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

static int check_store(const char *value)
{
    if (!value || strcmp(value, "none") == 0 || strncmp(value, "local:", 6) == 0)
        return 0;
    if (strncmp(value, "redis", 5) == 0)
        return ng_usage_error(COMMAND, "use local: (one host) or none",
                              "store %s: Redis is not in this version", value);
    return ng_usage_error(COMMAND, "use local:, local:DIR or none", "store %s is not valid", value);
}

struct first_mistake {
    char line[512];
};

static void take_first_mistake(void *context, char severity, const char *line)
{
    struct first_mistake *first = context;
    /* Warnings are the library's to tell, once, in the job's log. */
    if (severity == 'E' && !first->line[0])
        snprintf(first->line, sizeof(first->line), "%s", line);
}

/* Our own folder's neighbours in a build, an installation and a bundle. */
static const char *const library_places[] = {
    "/../shim/libncclguard.so",
    "/../lib/libncclguard.so",
#ifdef NG_LIBDIR
    "/../" NG_LIBDIR "/libncclguard.so",
#endif
    "/libncclguard.so",
};

/* 0, or an exit status with the error told. */
static int find_library(char ret_path[PATH_MAX])
{
    char here[PATH_MAX], place[PATH_MAX + 64];
    const char *given = variable_of("NCCLGUARD_LIB");

    if (given) {
        if (!realpath(given, ret_path))
            return ng_usage_error(COMMAND, "set it to the path of libncclguard.so",
                                  "NCCLGUARD_LIB=%s: %s", given, strerror(errno));
        return 0;
    }
    ssize_t length = readlink("/proc/self/exe", here, sizeof(here) - 1);
    if (length > 0) {
        here[length] = '\0';
        *strrchr(here, '/') = '\0';
        for (size_t i = 0; i < sizeof(library_places) / sizeof(library_places[0]); i++) {
            snprintf(place, sizeof(place), "%s%s", here, library_places[i]);
            if (realpath(place, ret_path))
                return 0;
        }
    }
    return ng_usage_error(COMMAND, "set NCCLGUARD_LIB to its path",
                          "libncclguard.so was not found beside %s",
                          length > 0 ? here : "the command");
}

/* Whether a list as the dynamic linker reads it (separated by colons and spaces) has this path
 * already. */
static bool preload_has(const char *list, const char *path)
{
    size_t length = strlen(path);

    for (const char *at = list; (at = strstr(at, path)); at += length)
        if ((at == list || strchr(": ", at[-1])) && (!at[length] || strchr(": ", at[length])))
            return true;
    return false;
}

/* 0, or an exit status with the error told. */
static int preload_library(void)
{
    char path[PATH_MAX];
    const char *before = variable_of("LD_PRELOAD");
    int status = find_library(path);

    if (status != 0)
        return status;
    if (strpbrk(path, ": "))
        return ng_usage_error(
            COMMAND, "put it where the path has neither, and set NCCLGUARD_LIB",
            "the dynamic linker cannot preload %s: a colon or space separates entries", path);
    setenv("NCCLGUARD_LIB", path, 1);
    if (!before) {
        setenv("LD_PRELOAD", path, 1);
    } else if (!preload_has(before, path)) {
        /* Behind what is there: tools such as sanitizers insist on being first. */
        size_t bytes = strlen(before) + strlen(path) + 2;
        char *list = malloc(bytes);
        if (!list)
            return NG_EXIT_FAILED;
        snprintf(list, bytes, "%s:%s", before, path);
        setenv("LD_PRELOAD", list, 1);
        free(list);
    }
    return 0;
}

static void name_job(struct job *job)
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
}

/* 0, or an exit status with the error told. */
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
         * The program may be a launcher that names the job in its own way, and then we could not
         * say where the evidence lies. Several runs of one job (srun ncclguard run …) must share a
         * folder, so not there.
         */
        if (job->named_here)
            setenv("NCCLGUARD_DUMP_DIR", job->dump_dir, 1);
    }

    char verdict[PATH_MAX + 16];
    snprintf(verdict, sizeof(verdict), "%s/verdict.json", job->dump_dir);
    if (stat(verdict, &job->verdict_before) != 0)
        job->verdict_before = (struct stat){0};
    return 0;
}

/* The verdict of an incident of this run, if there was one. */
static void print_verdict(const struct job *job)
{
    char path[PATH_MAX + 16], buffer[4096];
    struct stat status;

    snprintf(path, sizeof(path), "%s/verdict.json", job->dump_dir);
    if (stat(path, &status) != 0)
        return;
    /* Files are renamed into place: another verdict is another inode, or at least another time. */
    if (status.st_ino == job->verdict_before.st_ino &&
        status.st_mtim.tv_sec == job->verdict_before.st_mtim.tv_sec &&
        status.st_mtim.tv_nsec == job->verdict_before.st_mtim.tv_nsec)
        return;
    json_error_t error;
    json_t *verdict = json_load_file(path, 0, &error);
    const char *action = json_string_value(json_object_get(verdict, "action"));
    bool acted = action && strcmp(action, "none") != 0;
    json_decref(verdict);
    if (!acted)
        return;

    snprintf(path, sizeof(path), "%s/verdict.txt", job->dump_dir);
    FILE *text = fopen(path, "re");
    if (text) {
        size_t bytes;
        while ((bytes = fread(buffer, 1, sizeof(buffer), text)) > 0)
            fwrite(buffer, 1, bytes, stderr);
        fclose(text); /* its last line names the folder */
        return;
    }
    fprintf(stderr, "ncclguard: the evidence lies in %s\n", job->dump_dir);
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

int ng_command_run(int argc, char **argv)
{
    const char *values[OPTION_COUNT];
    struct first_mistake mistake = {0};
    struct ng_config config;
    struct ng_job_folders folders = {.fd = -1};
    struct job job = {0};
    int operand, status;

    switch (ng_usage_parse(&usage, argc, argv, values, &operand)) {
    case NG_USAGE_HELP:
        return NG_EXIT_OK;
    case NG_USAGE_ERROR:
        return NG_EXIT_USAGE;
    case NG_USAGE_GO:
        break;
    }
    if (values[OPTION_FAULT])
        return ng_usage_error(COMMAND, "leave --fault out",
                              "fault injection is not in this version");
    for (size_t i = 0; i < sizeof(spellings) / sizeof(spellings[0]); i++) {
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
    if (ng_config_parse(&config, environ, take_first_mistake, &mistake) != 0)
        return ng_usage_error(COMMAND, "`ncclguard config` lists the variables and what they take",
                              "%s", mistake.line);
    if (ng_policy_parse_exit(config.exit_how, &(int){0}) != 0)
        return ng_usage_error(COMMAND, "use abort, or exit:CODE with a code from 0 to 255",
                              "NCCLGUARD_EXIT=%s is not valid", config.exit_how);
    status = check_store(config.store);
    if (status == 0)
        status = preload_library();
    if (status != 0)
        return status;
    name_job(&job);
    status = set_folders(&job, values[OPTION_OUT]);
    if (status != 0)
        return status;

    /* Folders that the user named are the user's to remove. */
    bool watch = !job.nested && !config.dir && strcmp(config.store, "local:") == 0;
    int error = ng_supervise(argv + operand, watch ? &folders : NULL, &status);
    if (error == 0 && !job.nested)
        print_verdict(&job);
    ng_job_folders_remove(&folders);
    if (error != 0)
        return tell_start_failure(argv[operand], error);
    ng_supervise_end_like(status);
}
