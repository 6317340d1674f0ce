/*
 * The group that a command is about, found in a view of its job.
 */
#include "tools/cmd/group_choice.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/util/macros.h"
#include "tools/base/owned.h"
#include "tools/base/usage.h"
#include "tools/render/findings.h"

static bool is_id(const char *text)
{
    return strlen(text) == 16 && text[strspn(text, "0123456789abcdefABCDEF")] == '\0';
}

static bool is_over(const struct ng_view *view, uint32_t group)
{
    uint32_t count;
    const struct ng_view_member *members = ng_view_members(view, group, &count);

    return !NG_ANY(member, members, count, !ng_group_state_is_over(member->state));
}

/* "world 0123456789abcdef (4 ranks), …" of the groups that are still in use; only those of this
 * name, if one is given. */
static void name_groups(const struct ng_view *view, const char *name, char *ret_text, size_t bytes)
{
    size_t used = 0;

    ret_text[0] = '\0';
    for (uint32_t i = 0; i < view->group_count; i++) {
        const struct ng_view_group *group = &view->groups[i];
        char piece[320];
        if (is_over(view, i) || (name && strcmp(group->name, name) != 0))
            continue;
        NG_FREED char *safe = ng_findings_safe_copy(group->name);
        int length =
            snprintf(piece, sizeof(piece), "%s%s%s%016" PRIx64 " (%d ranks)", used ? ", " : "",
                     safe ? safe : "", safe && *safe ? " " : "", group->id, group->nranks);
        if (used + (size_t)length + 8 > bytes) {
            snprintf(ret_text + used, bytes - used, ", …");
            return;
        }
        used += (size_t)snprintf(ret_text + used, bytes - used, "%s", piece);
    }
    if (!used)
        snprintf(ret_text, bytes, "none is in use");
}

int ng_group_choice_find(const char *command, const struct ng_view *view, const char *text,
                         bool in_use, uint64_t *ret_id)
{
    char mend[900], groups[800];
    uint64_t id = is_id(text) ? strtoull(text, NULL, 16) : 0;
    uint32_t found = id ? ng_view_find_group(view, id) : UINT32_MAX, count = found != UINT32_MAX;

    /* Of several groups of one name, those that have ended do not count. */
    for (int over = 0; over < 2 && !count; over++)
        for (uint32_t i = 0; *text && i < view->group_count; i++)
            if (strcmp(view->groups[i].name, text) == 0 && is_over(view, i) == over) {
                found = i;
                count++;
            }
    NG_FREED char *safe = ng_findings_safe_copy(text);
    int status = 0;
    name_groups(view, count > 1 ? text : NULL, groups, sizeof(groups));
    if (count > 1) {
        snprintf(mend, sizeof(mend), "name it by its id, one of: %s", groups);
        status = ng_usage_error(command, mend, "%" PRIu32 " groups of the job have the name %s",
                                count, safe ? safe : "");
    } else if (count == 0) {
        snprintf(mend, sizeof(mend), "its groups: %s", groups);
        status = ng_usage_error(command, mend, "the job has no group %s", safe ? safe : "");
    } else if (in_use && is_over(view, found)) {
        snprintf(mend, sizeof(mend), "groups that are in use: %s", groups);
        status = ng_usage_error(command, mend, "group %s is over: no process uses it any more",
                                safe ? safe : "");
    } else {
        *ret_id = view->groups[found].id;
    }
    return status;
}
