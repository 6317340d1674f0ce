/*
 * The groups of a job as a list: what each is called, its deadline, who made it, and its members in
 * both numberings, as text and as JSON.
 *
 * Made from a sealed view, which is only read. Pure: no clock, no store.
 *
 * The JSON has the schema "ncclguard.groups/1"; fields may be added within it. Ids are strings of
 * 16 hex digits; what is not known is -1 (ranks, devices) or null:
 *
 *   schema, job
 *   groups        array of, in order of creation as far as it is known
 *     id, name, parent (id or null), size
 *     created_by    "CommInitRank", "CommSplit" …; null not known
 *     color         of the split that created it; null: created otherwise
 *     state         "creating", "in use", "partly ended" (members have ended it, and others have
 *                   not), "ended", "left" (processes have ended without destroying it, or are
 *                   lost)
 *     same_members_as  id of the first group with the same members in the same order; null: it is
 *                   the first, or not all of its members are known
 *     timeout_ms    deadline of its collectives; null: none, not known, or members differ
 *     policy        what that deadline leads to: "log", "abort", "teardown", "kill"; null: not
 *                   known, or members differ
 *     deadlines_differ, policies_differ   true: live members have different ones
 *     missing       array of int: group ranks not seen (the first 65,536)
 *     members       array of {"group_rank", "rank" (global), "host", "pid", "device", "state",
 *                   "life", "timeout_ms" (null: none, or not known), "policy" (null: not known),
 *                   "suspended", "set" (what commands have set in its process: {"timing": "all"}
 *                   …)}, in order of group rank
 */
#ifndef NCCLGUARD_TOOLS_RENDER_GROUP_LIST_H
#define NCCLGUARD_TOOLS_RENDER_GROUP_LIST_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "core/util/json.h"
#include "core/verdict/straggler.h"
#include "core/view/view.h"

#define NG_GROUP_LIST_SCHEMA "ncclguard.groups/1"

/* What has become of a group, over the members that reported. */
enum ng_group_use {
    NG_GROUP_USE_CREATING,
    NG_GROUP_USE_NOW,
    NG_GROUP_USE_PARTLY, /* some members have ended it, others use it */
    NG_GROUP_USE_ENDED,
    NG_GROUP_USE_LEFT, /* no live process uses it, and one or more ended without destroying it, or
                          are lost (NG_LIFE_LOST): not known */
};
enum ng_group_use ng_group_list_use(const struct ng_view *view, uint32_t group);

/* What the members that use a group wait for at most: the first member's, and whether another's is
 * different. */
struct ng_group_bounds {
    int64_t timeout_ns; /* 0 none, or not known */
    uint8_t policy;     /* as in struct ng_view_member */
    bool deadlines_differ, policies_differ;
};
void ng_group_list_bounds(const struct ng_view *view, uint32_t group,
                          struct ng_group_bounds *ret_bounds);

/* Properties of a group's making, from the first member that knows each. */
struct ng_group_making {
    uint32_t created_by;
    int color;      /* -1 not a split */
    int64_t age_ns; /* the highest */
    bool ended;     /* by all that are known */
};
struct ng_group_making ng_group_list_making(const struct ng_view *view, uint32_t group);

/* The name of a policy of a view; NULL: not known. */
const char *ng_group_list_policy(uint32_t policy);

/* A number, or null if it is not known. */
void ng_group_list_put_known(struct ng_json *json, const char *key, bool known, int64_t value);

/* The members "timeout_ms" and "policy" of a JSON object; of a group also "deadlines_differ" and
 * "policies_differ". */
void ng_group_list_put_bounds(struct ng_json *json, int64_t timeout_ns, uint32_t policy);
void ng_group_list_put_group_bounds(struct ng_json *json, const struct ng_view *view,
                                    uint32_t group);

/* "missing": the group ranks that were not seen. */
void ng_group_list_put_missing(struct ng_json *json, const struct ng_view *view, uint32_t group);

/* The members of a JSON object that tell of a straggler, whose global rank this is. */
void ng_group_list_put_straggler(struct ng_json *json, const struct ng_straggler *straggler,
                                 int rank);

/* Print the list for people. Names are made safe for a terminal. 0 or -ENOMEM. */
int ng_group_list_print(const struct ng_view *view, const char *job, FILE *file);

/* Write the JSON. 0, or the first -errno. */
int ng_group_list_write_json(const struct ng_view *view, const char *job, int fd);

#endif
