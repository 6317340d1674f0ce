/*
 * `ncclguard abort`: a person's order to a job: give up this group, or all of them.
 *
 * Posts the order on the board, where every rank's guard finds it; what a program makes of the
 * errors that its NCCL calls then return is its own matter.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/board.h"
#include "core/view.h"
#include "store/observe.h"
#include "tools/command.h"
#include "tools/findings.h"
#include "tools/jobs.h"
#include "tools/usage.h"

#define COMMAND "abort"

enum { OPTION_JOB, OPTION_GROUP, OPTION_STORE, OPTION_COUNT };

static const struct ng_usage_option options[OPTION_COUNT] = {
    [OPTION_JOB] = {"job", "JOB", "the job's name, as `ncclguard top` shows it"},
    [OPTION_GROUP] = {"group", "GROUP",
                      "only this group: its id (16 hex digits), or its name where no other group\n"
                      "has the same"},
    [OPTION_STORE] = {"store", "URL",
                      "where its ranks share what they know (default: NCCLGUARD_STORE, else\n"
                      "local:); ps does not show the password"},
};

static const struct ng_usage usage = {
    .command = COMMAND,
    .synopsis = "--job JOB [--group GROUP] [--store URL]",
    .about =
        "Abort the communicators of a job on every rank: NCCL calls that hang return with an\n"
        "error. The processes live on; what they do with the error is theirs to decide.\n"
        "Exit status: 0 the ranks were told, 1 the store cannot be reached, 2 usage error, no\n"
        "such job or group, or nobody of it is alive.",
    .options = options,
    .option_count = OPTION_COUNT,
};

static bool is_id(const char *text)
{
    return strlen(text) == 16 && text[strspn(text, "0123456789abcdefABCDEF")] == '\0';
}

static bool is_over(const struct ng_view *view, uint32_t group)
{
    uint32_t count;
    const struct ng_view_member *members = ng_view_members(view, group, &count);

    for (uint32_t i = 0; i < count; i++)
        if (members[i].state != NG_GROUP_DESTROYED && members[i].state != NG_GROUP_ABORTED &&
            members[i].state != NG_GROUP_FAILED)
            return false;
    return true;
}

/* "world 0123456789abcdef (4 ranks), …" of the groups that are still in use; of this name, where
 * one is given. */
static void name_groups(const struct ng_view *view, const char *name, char *ret_text, size_t bytes)
{
    size_t used = 0;

    ret_text[0] = '\0';
    for (uint32_t i = 0; i < view->group_count; i++) {
        const struct ng_view_group *group = &view->groups[i];
        char piece[320];
        if (is_over(view, i) || (name && strcmp(group->name, name) != 0))
            continue;
        char *safe = ng_findings_safe_copy(group->name);
        int length =
            snprintf(piece, sizeof(piece), "%s%s%s%016" PRIx64 " (%d ranks)", used ? ", " : "",
                     safe ? safe : "", safe && *safe ? " " : "", group->id, group->nranks);
        free(safe);
        if (used + (size_t)length + 8 > bytes) {
            snprintf(ret_text + used, bytes - used, ", …");
            return;
        }
        used += (size_t)snprintf(ret_text + used, bytes - used, "%s", piece);
    }
    if (!used)
        snprintf(ret_text, bytes, "none is in use");
}

/* 0, or an exit status with the usage error told. */
static int find_group(const struct ng_view *view, const char *text, uint64_t *ret_id)
{
    char mend[900], groups[800];
    uint32_t found = UINT32_MAX, count = 0;
    uint64_t id = is_id(text) ? strtoull(text, NULL, 16) : 0;

    for (uint32_t i = 0; id && i < view->group_count; i++)
        if (view->groups[i].id == id) {
            found = i;
            count = 1;
        }
    /* Of groups of one name, those that are over do not count. */
    for (int over = 0; over < 2 && !count; over++)
        for (uint32_t i = 0; *text && i < view->group_count; i++)
            if (strcmp(view->groups[i].name, text) == 0 && is_over(view, i) == over) {
                found = i;
                count++;
            }
    char *safe = ng_findings_safe_copy(text);
    int status = 0;
    name_groups(view, count > 1 ? text : NULL, groups, sizeof(groups));
    if (count > 1) {
        snprintf(mend, sizeof(mend), "name it by its id, one of: %s", groups);
        status = ng_usage_error(COMMAND, mend, "%" PRIu32 " groups of the job have the name %s",
                                count, safe ? safe : "");
    } else if (count == 0) {
        snprintf(mend, sizeof(mend), "its groups: %s", groups);
        status = ng_usage_error(COMMAND, mend, "the job has no group %s", safe ? safe : "");
    } else if (is_over(view, found)) {
        snprintf(mend, sizeof(mend), "groups that are in use: %s", groups);
        status = ng_usage_error(COMMAND, mend, "group %s is over: nobody uses it any more",
                                safe ? safe : "");
    } else {
        *ret_id = view->groups[found].id;
    }
    free(safe);
    return status;
}

static uint32_t count_living(const struct ng_view *view)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < view->process_count; i++) {
        enum ng_life life = view->processes[i].life;
        count += life == NG_LIFE_RUNNING || life == NG_LIFE_STOPPED || life == NG_LIFE_UNKNOWN;
    }
    return count;
}

static int give_order(struct ng_job *job, const char *group)
{
    struct ng_incident order = {.level = NG_INCIDENT_ABORT, .claimant_rank = -1};
    int64_t until = ng_clock_mono_ns() + NG_JOBS_WAIT_NS;
    struct ng_view view;

    ng_view_init(&view);
    int count =
        ng_observe_view(&job->observed, until, &view, job->why, sizeof(job->why)), status = 0;
    if (count < 0 && count != -ENOENT)
        status = ng_jobs_failed(COMMAND, job, count);
    else if (count <= 0)
        status = ng_jobs_none(COMMAND, job);
    else if (count_living(&view) == 0)
        status = ng_usage_error(COMMAND, "there is nothing left to abort",
                                "no process of job %s is alive", job->name);
    else if (group)
        status = find_group(&view, group, &order.group_id);
    ng_view_fini(&view);
    if (status != 0)
        return status;

    char host[64] = "", what[40] = "all groups";
    gethostname(host, sizeof(host) - 1);
    if (order.group_id)
        snprintf(what, sizeof(what), "group %016" PRIx64, order.group_id);
    /* What the ranks log. */
    snprintf(order.line, sizeof(order.line),
             "`ncclguard abort` (host %s, pid %d) orders: abort %s of job %s", host, (int)getpid(),
             what, job->name);
    job->why[0] = '\0';
    count = ng_observe_order(&job->observed, &order, ng_clock_mono_ns() + NG_JOBS_WAIT_NS, job->why,
                             sizeof(job->why));
    if (count < 0)
        return ng_jobs_failed(COMMAND, job, count);
    if (count == 0)
        return ng_usage_error(COMMAND, "there is nothing left to abort",
                              "no process of job %s is alive", job->name);
    printf("told %d process%s of job %s to abort %s\n", count, count == 1 ? "" : "es", job->name,
           what);
    return NG_EXIT_OK;
}

int ng_command_abort(int argc, char **argv)
{
    const char *values[OPTION_COUNT];
    int operand, status;

    if (!ng_usage_parse(&usage, argc, argv, values, &operand, &status))
        return status;
    if (operand < argc)
        return ng_usage_unexpected(COMMAND, "write `ncclguard abort --job JOB`", argv[operand]);
    /* Never by default: the wrong job cannot be mended. */
    if (!values[OPTION_JOB])
        return ng_usage_error(COMMAND, "write --job JOB; `ncclguard top` shows it",
                              "no job was named");
    if (values[OPTION_GROUP] && !*values[OPTION_GROUP])
        return ng_usage_error(COMMAND, "write --group GROUP, or leave it out for all groups",
                              "the group's name is empty");
    struct ng_job *job = malloc(sizeof(*job));
    if (!job) {
        fprintf(stderr, "ncclguard abort: out of memory\n");
        return NG_EXIT_FAILED;
    }
    status = ng_jobs_choose(COMMAND, values[OPTION_JOB], values[OPTION_STORE], job);
    if (status == 0)
        status = give_order(job, values[OPTION_GROUP]);
    free(job);
    return status;
}
