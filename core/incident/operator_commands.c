/*
 * Carries out operator commands.
 */
#include "core/incident/operator_commands.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "core/comm/comm.h"
#include "core/comm/deadline.h"
#include "core/comm/rules_file.h"
#include "core/config/settable.h"
#include "core/incident/dumps.h"
#include "core/incident/status_log.h"
#include "core/nccl/group_set.h"
#include "core/policy/abort.h"
#include "core/runtime/io_workers.h"
#include "core/runtime/runtime.h"
#include "core/util/log.h"

/* `ncclguard dump` has written the contents of the black boxes and requests what only this process
 * can add. */
static void obey_dump(const struct ng_command *command)
{
    /* A folder's name is valid only on the host where it was given. */
    ng_dumps_on_request(command->source == NG_SOURCE_HOST ? command->path : ng_guard_dump_dir(),
                        command->rank);
}

/*
 * Unless entries are signed, it is not known who can write to the store: a command from there does
 * not touch a rank whose policy is `log`. The files of this host's board belong to the user.
 */
static bool may_abort(const struct ng_command *command)
{
    if (command->source == NG_SOURCE_HOST ||
        (ng_guard.config.store_key && ng_guard.config.store_key[0]))
        return true;
    if (ng_deadline_policy(command->group_id, NG_OP_NONE) == NG_ON_TIMEOUT_LOG)
        return false;
    return command->group_id ||
           !NG_FIND_COMM(comm, ng_deadline_policy(NG_LOAD(comm->group->id), NG_OP_NONE) ==
                                   NG_ON_TIMEOUT_LOG);
}

static void obey_abort(const struct ng_command *command)
{
    ng_log(NG_LOG_WARN, "%s", command->line);
    if (!may_abort(command)) {
        ng_log(NG_LOG_WARN,
               "ignored: the command came through the store, and the policy of this rank is log");
        return;
    }
    struct ng_group_set scope = {.all = !command->group_id, .count = command->group_id ? 1 : 0};
    scope.groups[0] = command->group_id;
    int error = ng_abort_groups(&scope, NG_KIND_HEALTHY, command->line, NG_ABORT_PERSON);
    if (error && error != -ENOENT)
        ng_log(NG_LOG_ERROR, "cannot abort: %s", strerror(-error));
}

/* Suspend or resume. A process that receives it late is suspended for the remaining time. */
static void obey_rest(const struct ng_command *command)
{
    int64_t for_ns = command->for_ns;
    int64_t until =
        for_ns < INT64_MAX - command->given_mono_ns ? command->given_mono_ns + for_ns : INT64_MAX;

    ng_log(NG_LOG_WARN, "%s", command->line);
    if (for_ns <= 0)
        ng_deadline_resume(command->group_id);
    else if (ng_deadline_suspend(command->group_id, until) != 0)
        ng_log(NG_LOG_ERROR,
               "too many groups are suspended individually: this one is not suspended");
}

static void obey_reload(const struct ng_command *command)
{
    ng_log(NG_LOG_WARN, "%s", command->line);
    ng_rules_file_reload();
}

/* On a worker: to make a thread allocates, and a frozen thread may hold the allocator's lock. */
static void start_status(void *unused)
{
    (void)unused;
    ng_status_log_start();
}

/* Values from the store are as bounded as those of a suspension: less is known, nothing is ended.
 * The text is logged if either level has it. */
static void obey_set(const struct ng_command *command)
{
    bool logged = ng_log_enabled(NG_LOG_WARN);
    uint8_t level = command->set[NG_SETTABLE_LOG], timing = command->set[NG_SETTABLE_TIMING];

    ng_log(NG_LOG_WARN, "%s", command->line);
    if (level) {
        ng_log_set_level((enum ng_log_level)(level - 1));
        ng_io_workers_add("the status thread", start_status, NULL);
    }
    if (!logged)
        ng_log(NG_LOG_WARN, "%s", command->line);
    if (timing)
        ng_comm_set_timing(timing - 1);
    /* Last: it answers the command. */
    for (unsigned i = 0; i < NG_SETTABLES; i++)
        if (command->set[i])
            NG_STORE(ng_guard.box.header->set[i], command->set[i]);
}

static void (*const obey[NG_COMMAND_LIMIT])(const struct ng_command *command) = {
    [NG_COMMAND_ABORT] = obey_abort,   [NG_COMMAND_DUMP] = obey_dump, [NG_COMMAND_REST] = obey_rest,
    [NG_COMMAND_RELOAD] = obey_reload, [NG_COMMAND_SET] = obey_set,
};

void ng_operator_commands_obey(const struct ng_command *command)
{
    obey[command->kind](command);
}
