/*
 * What a person orders.
 *
 * Step 10.
 */
#include "core/incident/operator_commands.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "core/comm/comm.h"
#include "core/comm/deadline.h"
#include "core/comm/rules_file.h"
#include "core/incident/dumps.h"
#include "core/policy/abort.h"
#include "core/runtime/log.h"
#include "core/runtime/runtime.h"
#include "core/verdict/affected_groups.h"

/* `ncclguard dump` has written what the black boxes tell, and asks for what only we can add. */
static void obey_dump(const struct ng_incident *incident)
{
    /* A folder's name counts on the host where it was given. */
    ng_dumps_on_request(incident->source == NG_SOURCE_HOST ? incident->line : ng_guard_dump_dir(),
                        (int)incident->seq - 1);
}

/*
 * Who can write to the store is not known, unless what is there is signed: by what comes from
 * there, a rank that is set to `log` is not touched. The files of this host's board are the user's
 * own.
 */
static bool may_abort(const struct ng_incident *incident)
{
    if (incident->source == NG_SOURCE_HOST ||
        (ng_guard.config.store_key && ng_guard.config.store_key[0]))
        return true;
    if (ng_deadline_policy(incident->group_id, NG_OP_NONE) == NG_ON_TIMEOUT_LOG)
        return false;
    for (uint32_t i = 0, count = ng_comm_count(); !incident->group_id && i < count; i++)
        if (ng_deadline_policy(NG_LOAD(ng_comm_at(i)->group->id), NG_OP_NONE) == NG_ON_TIMEOUT_LOG)
            return false;
    return true;
}

/* A person's order. */
static void obey_abort(const struct ng_incident *incident)
{
    ng_log(NG_LOG_WARN, "%s", incident->line);
    if (!may_abort(incident)) {
        ng_log(NG_LOG_WARN,
               "not obeyed: the order came through the store, and this rank is set to policy log");
        return;
    }
    struct ng_group_set scope = {.all = !incident->group_id, .count = incident->group_id ? 1 : 0};
    scope.groups[0] = incident->group_id;
    int error = ng_abort_groups(&scope, NG_KIND_HEALTHY, incident->line, NG_ABORT_PERSON);
    if (error && error != -ENOENT)
        ng_log(NG_LOG_ERROR, "cannot abort: %s", strerror(-error));
}

/* Suspended, or resumed: also those that come to know it late, for what is left. */
static void obey_rest(const struct ng_incident *incident)
{
    int64_t for_ns = incident->stalled_ns, until = for_ns < INT64_MAX - incident->claimed_mono_ns
                                                       ? incident->claimed_mono_ns + for_ns
                                                       : INT64_MAX;

    ng_log(NG_LOG_WARN, "%s", incident->line);
    if (for_ns <= 0)
        ng_deadline_resume(incident->group_id);
    else if (ng_deadline_suspend(incident->group_id, until) != 0)
        ng_log(NG_LOG_ERROR, "too many groups are suspended one by one: this one is not");
}

static void obey_reload(const struct ng_incident *incident)
{
    ng_log(NG_LOG_WARN, "%s", incident->line);
    ng_rules_file_reload();
}

/* What a person orders; each is dealt with by itself. */
static void (*const obey[NG_INCIDENT_LIMIT])(const struct ng_incident *incident) = {
    [NG_INCIDENT_ABORT] = obey_abort,
    [NG_INCIDENT_DUMP] = obey_dump,
    [NG_INCIDENT_REST] = obey_rest,
    [NG_INCIDENT_RELOAD] = obey_reload,
};

bool ng_operator_commands_obey(const struct ng_incident *incident)
{
    if (incident->level >= NG_INCIDENT_LIMIT || !obey[incident->level])
        return false;
    obey[incident->level](incident);
    return true;
}
