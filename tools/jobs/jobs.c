/*
 * Finding the job that the user means.
 *
 * Reads the headers of black boxes on this host; the store itself is queried later. Must never put
 * a password into a text.
 */
#include "tools/jobs/jobs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "core/config/config.h"
#include "core/config/launch.h"
#include "core/recorder/box.h"
#include "core/recorder/paths.h"
#include "core/util/clock.h"
#include "core/util/macros.h"
#include "store/board/local.h"
#include "store/kv/tls.h"
#include "store/kv/url.h"
#include "tools/base/command.h"
#include "tools/base/grow.h"
#include "tools/base/owned.h"
#include "tools/base/usage.h"
#include "tools/inspect/library.h"

struct list {
    struct ng_job_here *jobs;
    size_t count;
};

static struct ng_job_here *find(struct list *list, const char *name)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->jobs[i].name, name) == 0)
            return &list->jobs[i];
    struct ng_job_here *job = NG_APPEND(list->jobs, list->count);
    if (job)
        snprintf(job->name, sizeof(job->name), "%s", name);
    return job;
}

/* As the library names jobs; any other name is rejected. */
static bool is_name(const char *text)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

    return *text && text[strspn(text, letters)] == '\0';
}

static void take_shorter(int64_t *shortest_ns, int64_t ns)
{
    if (ns > 0 && (!*shortest_ns || ns < *shortest_ns))
        *shortest_ns = ns;
}

/* The black box `name` in a folder: its owner, and whether the kernel has its process's lock on
 * it. */
static void take_box(struct list *list, int folder, const char *name)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    struct ng_box_header header;
    char job_name[sizeof(header.job) + 1];
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);

    if (fd < 0)
        return;
    bool usable = pread(fd, &header, sizeof(header), 0) == (ssize_t)sizeof(header) &&
                  header.magic == NG_BOX_MAGIC && header.version == NG_BOX_VERSION;
    bool held = fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
    close(fd);
    if (!usable)
        return;
    snprintf(job_name, sizeof(job_name), "%.*s", (int)sizeof(header.job), header.job);
    struct ng_job_here *job = is_name(job_name) ? find(list, job_name) : NULL;
    if (!job)
        return;
    job->processes++;
    job->living += held;
    /* As in `ncclguard analyze`: the guard reports after the shorter of both. */
    take_shorter(&job->stuck_ns, header.suspect_ns);
    take_shorter(&job->stuck_ns, header.timeout_ns);
    if (held) {
        take_shorter(&job->living_stuck_ns, header.suspect_ns);
        take_shorter(&job->living_stuck_ns, header.timeout_ns);
    }
}

/* `above` is -1 for a separate path. */
static void take_folder(struct list *list, int above, const char *path, int nested)
{
    int fd = openat(above < 0 ? AT_FDCWD : above, path,
                    O_RDONLY | O_DIRECTORY | O_CLOEXEC | (above < 0 ? 0 : O_NOFOLLOW));
    DIR *entries = fd >= 0 ? fdopendir(fd) : NULL;

    if (!entries) {
        if (fd >= 0)
            close(fd);
        return;
    }
    for (struct dirent *entry; (entry = readdir(entries));) {
        if (nested && entry->d_name[0] != '.')
            take_folder(list, fd, entry->d_name, nested - 1);
        else if (!nested && strncmp(entry->d_name, NG_BOX_PREFIX, strlen(NG_BOX_PREFIX)) == 0)
            take_box(list, fd, entry->d_name);
    }
    closedir(entries);
}

static int by_name(const void *left, const void *right)
{
    const struct ng_job_here *a = left, *b = right;

    return strcmp(a->name, b->name);
}

struct ng_job_here *ng_jobs_here(const char *folder, int nested, size_t *ret_count)
{
    struct list list = {0};

    take_folder(&list, -1, folder, nested);
    if (list.count)
        qsort(list.jobs, list.count, sizeof(*list.jobs), by_name);
    *ret_count = list.count;
    return list.jobs;
}

static void tell_nobody(void *context, char severity, const char *line)
{
    /* A mistake in a variable unrelated to the store does not prevent observing a job. */
}

/* The folder that is the same for all jobs; false: each has its own, inside the given one. */
static bool common_folder(const struct ng_config *config, const struct ng_url *url,
                          char ret_folder[PATH_MAX])
{
    const char *given = config->dir                                 ? config->dir
                        : url->kind == NG_URL_LOCAL && url->path[0] ? url->path
                                                                    : NULL;

    if (given)
        return snprintf(ret_folder, PATH_MAX, "%s", given) < PATH_MAX;
    ng_paths_default_dir("", ret_folder, PATH_MAX);
    return false;
}

/* "a (4 of 4 processes live), b (dead)", as far as it fits. */
static void name_jobs(const struct ng_job_here *jobs, size_t count, char *ret_text, size_t bytes)
{
    size_t used = 0;

    ret_text[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        char piece[192];
        int length = snprintf(piece, sizeof(piece), "%s%s (%u of %u processes alive)",
                              i ? ", " : "", jobs[i].name, jobs[i].living, jobs[i].processes);
        if (used + (size_t)length + 5 >= bytes) {
            snprintf(ret_text + used, bytes - used, ", …");
            return;
        }
        used += (size_t)snprintf(ret_text + used, bytes - used, "%s", piece);
    }
}

/* The index of the only job that is alive, or of the only one; -1 none, or several. */
static int only_job(const struct ng_job_here *jobs, size_t count)
{
    int only = -1;

    for (size_t i = 0; i < count; i++) {
        if (!jobs[i].living)
            continue;
        if (only >= 0)
            return -1;
        only = (int)i;
    }
    return only >= 0 ? only : count == 1 ? 0 : -1;
}

/* 0, or an exit status after reporting the usage error. */
static int choose_name(const char *command, const char *folder, bool common, bool local,
                       char ret_name[128])
{
    char list[800], mend[1000];
    size_t count;
    NG_FREED struct ng_job_here *jobs = ng_jobs_here(folder, common ? 0 : 1, &count);
    int only = only_job(jobs, count);

    if (only >= 0)
        snprintf(ret_name, 128, "%s", jobs[only].name);
    name_jobs(jobs, count, list, sizeof(list));
    if (only >= 0)
        return 0;
    if (count == 0)
        return ng_usage_error(command,
                              local ? "start one with `ncclguard run`, or name its folder: --store "
                                      "local:DIR"
                                    : "name the job: --job JOB",
                              local ? "there is no job on this host"
                                    : "no job was named, and there is none on this host");
    snprintf(mend, sizeof(mend), "write --job JOB, one of: %s", list);
    return ng_usage_error(command, mend, "there are %zu jobs on this host", count);
}

static bool is_in(const char *folder, const char *name)
{
    size_t count;
    NG_FREED struct ng_job_here *jobs = ng_jobs_here(folder, 0, &count);

    return NG_ANY(job, jobs, count, strcmp(job->name, name) == 0);
}

/* Only the entries of this job, of which there are *count. */
static void keep_own(struct ng_local_run *runs, int *count, const char *job)
{
    NG_KEEP(run, runs, *count, strcmp(run->job, job) == 0);
}

void ng_jobs_name_runs(const struct ng_local_run *runs, int count, bool local, char *ret_text,
                       size_t bytes)
{
    size_t used = 0;

    for (int i = 0; i < count && used < bytes; i++)
        used +=
            (size_t)snprintf(ret_text + used, bytes - used,
                             "%s%016" PRIx64 " (%u of %u processes alive, pid %d%s%s among them)",
                             i ? ", " : "", runs[i].id, runs[i].living, runs[i].processes,
                             runs[i].pid, local ? "" : " on ", local ? "" : runs[i].name);
}

/* 0, or an exit status after reporting the usage error. */
static int choose_run(const char *command, const char *text, bool local, struct ng_job *job)
{
    struct ng_local_run runs[16];
    const uint32_t room = NG_COUNT(runs);
    char list[NG_COUNT(runs) * 160], mend[sizeof(list) + 64];
    int only = -1, living = 0;

    int count = local ? ng_local_runs(job->folder, runs, room)
                      : ng_board_client_runs(&job->observed, ng_clock_mono_ns() + NG_JOBS_WAIT_NS,
                                             runs, room, job->why, sizeof(job->why));
    job->why[0] = '\0'; /* the observation will report it */
    keep_own(runs, &count, job->name);
    if (count <= 0)
        return 0; /* no process of the job is visible: likewise */
    for (int i = 0; i < count; i++) {
        char id[17];
        snprintf(id, sizeof(id), "%016" PRIx64, runs[i].id);
        if (text ? strcasecmp(id, text) == 0 : runs[i].living > 0) {
            only = i;
            living++;
        }
    }
    /* Of the only run on a store all processes are meant, also those of the next. */
    if (only >= 0 && living == 1 && (local || text))
        job->observed.run = runs[only].id;
    if (living == 1 || (!text && !living))
        return 0;
    const char *where = local ? " on this host" : "";
    ng_jobs_name_runs(runs, count, local, list, sizeof(list));
    snprintf(mend, sizeof(mend), "write --run RUN, one of: %s", list);
    return text
               ? ng_usage_error(command, mend, "job %s has no run of this name%s", job->name, where)
               : ng_usage_error(command, mend, "job %s has %d runs%s", job->name, living, where);
}

/* The store that is meant. 0, or an exit status after reporting the usage error. */
static int read_store(const char *command, const char *store, struct ng_config *ret_config,
                      struct ng_url *ret_url)
{
    struct ng_mistake mistake;
    char why[512];

    if (store)
        setenv("NCCLGUARD_STORE", store, 1);
    ng_config_parse(ret_config, environ, tell_nobody, NULL);
    if (ng_library_bad_store(ret_config->store, &mistake))
        return ng_usage_error(command, mistake.mend, "%s", mistake.text);
    if (ng_url_parse(ret_config->store, ret_url, why, sizeof(why)) != 0)
        return ng_usage_error(command, why, "the store cannot be used");
    explicit_bzero(ret_url->password, sizeof(ret_url->password));
    if (ret_url->kind == NG_URL_NONE)
        return ng_usage_error(command, "name the job's own store: --store URL",
                              "store none: each process of a job keeps what it knows to itself");
    return 0;
}

/* As the library names it. */
static int take_name(const char *command, const char *name, char ret_name[128])
{
    struct ng_launch launch;

    if (!*name)
        return ng_usage_error(command, "write --job JOB", "the job's name is empty");
    ng_launch_detect(name, -1, -1, &launch);
    snprintf(ret_name, 128, "%s", launch.job);
    return 0;
}

int ng_jobs_of_host(const char *command, const char *name, const char *store,
                    struct ng_jobs_of_host *ret_where)
{
    struct ng_config config;
    struct ng_url url;

    ret_where->job[0] = '\0';
    int status = read_store(command, store, &config, &url);
    if (status == 0 && name)
        status = take_name(command, name, ret_where->job);
    if (status != 0)
        return status;
    if (!common_folder(&config, &url, ret_where->folder))
        ret_where->folder[0] = '\0';
    ret_where->several_hosts = url.kind != NG_URL_LOCAL;
    return 0;
}

int ng_jobs_choose_all_runs(const char *command, const char *name, const char *store,
                            struct ng_job *ret_job)
{
    struct ng_job *job = ret_job;
    struct ng_config config;
    struct ng_url url;

    int status = read_store(command, store, &config, &url);
    if (status != 0)
        return status;
    bool common = common_folder(&config, &url, job->folder);
    if (!name)
        name = config.job;
    if (name)
        status = take_name(command, name, job->name);
    else
        status = choose_name(command, job->folder, common, url.kind == NG_URL_LOCAL, job->name);
    if (status != 0)
        return status;
    if (!common)
        ng_paths_default_dir(job->name, job->folder, sizeof(job->folder));
    job->why[0] = '\0';
    job->observed = (struct ng_observed_job){.url = config.store,
                                             .folder = job->folder,
                                             .job = job->name,
                                             .tls = ng_tls_for(config.store),
                                             .key_file = config.store_key};
    /* A folder that the user has set may be another job's by now. */
    if (common && url.kind == NG_URL_LOCAL && name && !is_in(job->folder, job->name))
        return ng_jobs_none(command, job);
    return 0;
}

int ng_jobs_choose(const char *command, const char *name, const char *store, const char *run,
                   struct ng_job *ret_job)
{
    int status = ng_jobs_choose_all_runs(command, name, store, ret_job);
    bool local = status == 0 && ng_jobs_is_local(ret_job);

    return status != 0 ? status : choose_run(command, run, local, ret_job);
}

int64_t ng_jobs_stuck_ns(const struct ng_job *job)
{
    struct ng_config config;
    int64_t stuck_ns = 0;
    size_t count;
    NG_FREED struct ng_job_here *jobs = ng_jobs_here(job->folder, 0, &count);

    for (size_t i = 0; i < count; i++)
        if (strcmp(jobs[i].name, job->name) == 0)
            stuck_ns = jobs[i].living_stuck_ns ? jobs[i].living_stuck_ns : jobs[i].stuck_ns;
    if (stuck_ns)
        return stuck_ns;
    ng_config_parse(&config, environ, tell_nobody, NULL);
    return config.suspect_ns ? config.suspect_ns : NG_SUSPECT_DEFAULT_NS;
}

int ng_jobs_none(const char *command, const struct ng_job *job)
{
    char folder[PATH_MAX], list[800], mend[1000], store[256];
    struct ng_config config;
    struct ng_url url;
    size_t count = 0;

    ng_config_parse(&config, environ, tell_nobody, NULL);
    ng_url_redact(job->observed.url, store, sizeof(store));
    if (ng_url_parse(job->observed.url, &url, mend, sizeof(mend)) == 0) {
        explicit_bzero(url.password, sizeof(url.password));
        bool common = common_folder(&config, &url, folder);
        NG_FREED struct ng_job_here *jobs = ng_jobs_here(folder, common ? 0 : 1, &count);
        name_jobs(jobs, count, list, sizeof(list));
    }
    if (count)
        snprintf(mend, sizeof(mend), "on this host there are: %s", list);
    else
        snprintf(mend, sizeof(mend), "the job may have ended, or use another store: see --store");
    return ng_usage_error(command, mend, "no process of job %s can be seen (store %s)", job->name,
                          store);
}

const char *ng_jobs_mend(int error)
{
    switch (error) {
    case -ECONNREFUSED:
        return "start Redis there, or correct host and port of the store";
    case -ETIMEDOUT:
        return "see whether the server is stuck, or a firewall keeps this host from it";
    case -EHOSTUNREACH:
        return "correct the host's name or address in the store, or mend the way to it";
    case -EACCES:
        return "correct the user and password of the store (or for rediss:// its certificates), "
               "and what that user may do";
    case -EPROTO:
        return "name the port of a Redis, with redis:// where it speaks plainly and rediss:// "
               "where it speaks TLS";
    case -EBUSY:
        return "wait until the server has loaded, or its cluster has a master";
    case -EOPNOTSUPP:
    case -EINVAL:
        return "use a store that this build has, or build it with what is missing";
    case -ENOKEY:
        return "let NCCLGUARD_STORE_KEY name the file with the key that the job's ranks have";
    case -ENOMEM:
        return "free some memory";
    default:
        return "see that the server is well, and that this host reaches it";
    }
}

int ng_jobs_failed(const char *command, const struct ng_job *job, int error)
{
    ng_usage_error(command,
                   ng_jobs_is_local(job)
                       ? "name a folder of black boxes that you may read: --store local:DIR"
                       : ng_jobs_mend(error),
                   "%s", job->why[0] ? job->why : strerror(-error));
    return NG_EXIT_FAILED;
}

const struct ng_tls_ops *ng_tls_for(const char *url)
{
    struct ng_url parsed;
    char why[NG_URL_TEXT_BYTES];

    if (ng_url_parse(url, &parsed, why, sizeof(why)) != 0 || !parsed.tls)
        return NULL;
#if NG_HAVE_TLS
    return &ng_tls_openssl;
#else
    return NULL;
#endif
}

int ng_jobs_view(struct ng_job *job, struct ng_view *view)
{
    job->why[0] = '\0';
    int count = ng_board_client_view(&job->observed, ng_clock_mono_ns() + NG_JOBS_WAIT_NS, view,
                                     job->why, sizeof(job->why));
    return count == -ENOENT ? 0 : count;
}

int ng_jobs_view_or_tell(const char *command, struct ng_job *job, struct ng_view *view)
{
    int count = ng_jobs_view(job, view);

    if (count == 0)
        return ng_jobs_none(command, job);
    return count < 0 ? ng_jobs_failed(command, job, count) : 0;
}

bool ng_jobs_is_local(const struct ng_job *job)
{
    return strncmp(job->observed.url, "local:", 6) == 0;
}
