/*
 * The groups of a job, for people and as JSON.
 */
#include "tools/render/group_list.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/config/config.h"
#include "core/config/settable.h"
#include "core/report/dump.h"
#include "core/util/clock.h"
#include "core/util/json.h"
#include "core/util/macros.h"
#include "core/util/text.h"
#include "tools/base/owned.h"
#include "tools/render/findings.h"

/* A group's size is a value from a process, so it is bounded. */
#define MISSING_MAX 65536
#define RANKS_BYTES 480

static bool takes_part(const struct ng_view_process *process)
{
    return !ng_life_has_ended(process->life) && process->life != NG_LIFE_LOST;
}

static bool uses(const struct ng_view *view, const struct ng_view_member *member)
{
    return !ng_group_state_is_over(member->state) && takes_part(&view->processes[member->process]);
}

enum ng_group_use ng_group_list_use(const struct ng_view *view, uint32_t group)
{
    uint32_t count, using = 0, over = 0, creating = 0;
    const struct ng_view_member *members = ng_view_members(view, group, &count);

    for (uint32_t i = 0; i < count; i++) {
        using += uses(view, &members[i]);
        over += ng_group_state_is_over(members[i].state);
        creating += members[i].state == NG_GROUP_CREATING;
    }
    if (!using)
        return over == count ? NG_GROUP_USE_ENDED : NG_GROUP_USE_LEFT;
    if (creating == count)
        return NG_GROUP_USE_CREATING;
    return over ? NG_GROUP_USE_PARTLY : NG_GROUP_USE_NOW;
}

static const char *use_name(enum ng_group_use use)
{
    static const char *const names[] = {
        [NG_GROUP_USE_CREATING] = "creating",   [NG_GROUP_USE_NOW] = "in use",
        [NG_GROUP_USE_PARTLY] = "partly ended", [NG_GROUP_USE_ENDED] = "ended",
        [NG_GROUP_USE_LEFT] = "left",
    };

    return names[use];
}

void ng_group_list_bounds(const struct ng_view *view, uint32_t group,
                          struct ng_group_bounds *ret_bounds)
{
    const struct ng_view_member *first = NULL;
    uint32_t count;
    const struct ng_view_member *members = ng_view_members(view, group, &count);

    *ret_bounds = (struct ng_group_bounds){0};
    for (uint32_t i = 0; i < count; i++) {
        if (!uses(view, &members[i]))
            continue;
        first = first ? first : &members[i];
        ret_bounds->deadlines_differ |= first->timeout_ns != members[i].timeout_ns;
        ret_bounds->policies_differ |= first->policy != members[i].policy;
    }
    ret_bounds->timeout_ns = first ? first->timeout_ns : 0;
    ret_bounds->policy = first ? first->policy : 0;
}

const char *ng_group_list_policy(uint32_t policy)
{
    return ng_on_timeout_name((enum ng_on_timeout)(policy - 1));
}

struct ng_group_making ng_group_list_making(const struct ng_view *view, uint32_t group)
{
    uint32_t count;
    const struct ng_view_member *members = ng_view_members(view, group, &count);
    struct ng_group_making making = {NG_OP_NONE, -1, 0, count > 0};

    NG_EACH (member, members, count) {
        making.created_by = making.created_by ?: member->created_by;
        making.color = making.color >= 0 ? making.color : member->color;
        making.age_ns = NG_MAX(making.age_ns, member->created_age_ns);
        making.ended &= ng_group_state_is_over(member->state);
    }
    if (making.created_by != NG_OP_CommSplit)
        making.color = -1;
    return making;
}

/* As they were made. */
static int compare_groups(const void *left, const void *right, void *context)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    int64_t age_a = ng_group_list_making(context, a).age_ns,
            age_b = ng_group_list_making(context, b).age_ns;

    return NG_ORDER(age_b, age_a) ?: NG_ORDER(a, b);
}

/* To be freed; NULL no memory. */
static uint32_t *in_order(const struct ng_view *view)
{
    uint32_t *order = calloc(view->group_count + 1, sizeof(*order));

    for (uint32_t i = 0; order && i < view->group_count; i++)
        order[i] = i;
    if (order)
        qsort_r(order, view->group_count, sizeof(*order), compare_groups, (void *)view);
    return order;
}

/* ---- For people ---- */

/* Global ranks in the order of the group: the k-th is group rank k. */
struct numbering {
    const struct ng_view *view;
    uint32_t group;
};

static int global_rank(const void *numbering, uint32_t index)
{
    const struct numbering *of = numbering;
    const struct ng_view_member *member = ng_view_member(of->view, of->group, (int)index);

    return member ? ng_view_rank(of->view, member) : -1;
}

static void describe_ranks(const struct ng_view *view, uint32_t group, char *ret_text, size_t bytes)
{
    struct numbering numbering = {view, group};
    struct ng_text text = {ret_text, 0, bytes};
    int nranks = view->groups[group].nranks;

    ret_text[0] = '\0';
    if (nranks > 0 && nranks <= MISSING_MAX)
        ng_text_add_ranks(&text, global_rank, &numbering, (uint32_t)nranks, bytes);
}

static int member_rank(const void *list, uint32_t index)
{
    return ((const int *)list)[index];
}

/* One of the two bounds of a member, as text. */
typedef void put_bound_fn(struct ng_text *text, const struct ng_view_member *member);

static void put_deadline(struct ng_text *text, const struct ng_view_member *member)
{
    if (member->timeout_ns)
        ng_text_add_duration(text, member->timeout_ns);
    else
        ng_text_add(text, "none");
}

static void put_policy(struct ng_text *text, const struct ng_view_member *member)
{
    const char *name = ng_group_list_policy(member->policy);

    ng_text_add(text, "%s", name ? name : "not known");
}

static bool is_same(put_bound_fn *put, const struct ng_view_member *a,
                    const struct ng_view_member *b)
{
    return put == put_deadline ? a->timeout_ns == b->timeout_ns : a->policy == b->policy;
}

/* "30.0 s (ranks 0-2), 60.0 s (rank 3)", by global rank; 0 or -ENOMEM. */
static int describe_bounds(const struct ng_view *view, uint32_t group, put_bound_fn *put,
                           struct ng_text *text)
{
    uint32_t count;
    const struct ng_view_member *members = ng_view_members(view, group, &count);
    NG_FREED int *ranks = calloc(count + 1, sizeof(*ranks));
    bool any = false;

    if (!ranks)
        return -ENOMEM;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t same = 0;
        bool earlier = !uses(view, &members[i]);
        for (uint32_t k = 0; k < i && !earlier; k++)
            earlier = uses(view, &members[k]) && is_same(put, &members[k], &members[i]);
        for (uint32_t k = i; k < count && !earlier; k++)
            if (uses(view, &members[k]) && is_same(put, &members[k], &members[i]))
                ranks[same++] = ng_view_rank(view, &members[k]);
        if (earlier)
            continue;
        ng_text_add(text, any ? ", " : "");
        any = true;
        put(text, &members[i]);
        ng_text_add(text, same == 1 ? " (rank " : " (ranks ");
        ng_text_add_ranks(text, member_rank, ranks, same, 120);
        ng_text_add(text, ")");
    }
    return 0;
}

static int print_bound(const struct ng_view *view, uint32_t group, bool differ, const char *title,
                       put_bound_fn *put, const struct ng_view_member *all, FILE *file)
{
    char line[RANKS_BYTES] = "";
    struct ng_text text = {line, 0, sizeof(line)};
    int error = 0;

    if (differ)
        error = describe_bounds(view, group, put, &text);
    else
        put(&text, all);
    fprintf(file, "  %s: %s\n", title, line);
    return error;
}

static int print_bounds(const struct ng_view *view, uint32_t group, FILE *file)
{
    struct ng_group_bounds bounds;

    ng_group_list_bounds(view, group, &bounds);
    struct ng_view_member all = {.timeout_ns = bounds.timeout_ns, .policy = bounds.policy};
    int error = print_bound(view, group, bounds.deadlines_differ,
                            bounds.deadlines_differ ? "deadlines differ" : "deadline", put_deadline,
                            &all, file);
    if (!error && (bounds.policy || bounds.policies_differ))
        error = print_bound(view, group, bounds.policies_differ,
                            bounds.policies_differ ? "policies differ" : "policy", put_policy, &all,
                            file);
    return error;
}

static uint32_t count_suspended(const struct ng_view *view, uint32_t group)
{
    uint32_t count, suspended = 0;
    const struct ng_view_member *members = ng_view_members(view, group, &count);

    for (uint32_t i = 0; i < count; i++)
        suspended += members[i].rests && uses(view, &members[i]);
    return suspended;
}

/* A host that is silent may still run. */
static void print_left(const struct ng_view *view, uint32_t group, FILE *file)
{
    uint32_t count, ended = 0, lost = 0;
    const struct ng_view_member *members = ng_view_members(view, group, &count);

    for (uint32_t i = 0; i < count; i++) {
        bool is_lost = view->processes[members[i].process].life == NG_LIFE_LOST;
        lost += !ng_group_state_is_over(members[i].state) && is_lost;
        ended += !ng_group_state_is_over(members[i].state) && !is_lost;
    }
    if (!lost)
        fprintf(file, "  never destroyed: its processes ended with it\n");
    else if (ended)
        fprintf(file, "  never destroyed on %" PRIu32 " rank%s: the process%s ended with it\n",
                ended, ended == 1 ? "" : "s", ended == 1 ? "" : "es");
    if (lost)
        fprintf(file,
                "  not known whether it is in use on %" PRIu32 " rank%s: no message from the "
                "process%s any more\n",
                lost, lost == 1 ? "" : "s", lost == 1 ? "" : "es");
}

static int print_group(const struct ng_view *view, uint32_t index, FILE *file)
{
    const struct ng_view_group *group = &view->groups[index];
    uint32_t same = ng_view_same_members(view, index);
    struct ng_group_making making = ng_group_list_making(view, index);
    enum ng_group_use use = ng_group_list_use(view, index);
    char ranks[RANKS_BYTES];
    NG_FREED char *name = ng_findings_safe_copy(group->name);

    if (!name)
        return -ENOMEM;
    fprintf(file, "\ngroup %016" PRIx64 "%s%s%s (%d rank%s), %s\n", group->id, *name ? " \"" : "",
            name, *name ? "\"" : "", group->nranks, group->nranks == 1 ? "" : "s", use_name(use));
    fprintf(file, "  made by %s", making.created_by ? ng_op_name(making.created_by) : "?");
    if (group->parent_id)
        fprintf(file, " from group %016" PRIx64, group->parent_id);
    if (making.color >= 0)
        fprintf(file, ", color %d", making.color);
    describe_ranks(view, index, ranks, sizeof(ranks));
    fprintf(file, "\n  global ranks, in the group's order: %s\n", ranks);
    if (same < index)
        fprintf(file, "  same members as group %016" PRIx64 "\n", view->groups[same].id);
    if (use == NG_GROUP_USE_ENDED || use == NG_GROUP_USE_LEFT) {
        if (use == NG_GROUP_USE_LEFT)
            print_left(view, index, file);
        return 0;
    }
    uint32_t suspended = count_suspended(view, index);
    int error = print_bounds(view, index, file);
    if (suspended)
        fprintf(file, "  suspended on %" PRIu32 " rank%s\n", suspended, suspended == 1 ? "" : "s");
    return error;
}

static bool is_set_alike(const struct ng_view_process *a, const struct ng_view_process *b)
{
    return memcmp(&a->set, &b->set, sizeof(a->set)) == 0;
}

static int compare_ranks(const void *left, const void *right)
{
    int a = *(const int *)left, b = *(const int *)right;

    return NG_ORDER(a, b);
}

/* "set by a command: timing=all (ranks 0-2)", a line for each that differs; 0 or -ENOMEM. */
static int print_set(const struct ng_view *view, FILE *file)
{
    NG_FREED int *ranks = calloc(view->process_count + 1, sizeof(*ranks));

    if (!ranks)
        return -ENOMEM;
    for (uint32_t i = 0; i < view->process_count; i++) {
        const struct ng_view_process *process = &view->processes[i];
        char values[96], list[RANKS_BYTES];
        uint32_t same = 0;
        bool earlier = !takes_part(process);
        ng_settable_describe(&process->set, values, sizeof(values));
        for (uint32_t k = 0; k < i && !earlier; k++)
            earlier = takes_part(&view->processes[k]) && is_set_alike(&view->processes[k], process);
        if (earlier || !values[0])
            continue;
        for (uint32_t k = i; k < view->process_count; k++)
            if (takes_part(&view->processes[k]) && is_set_alike(&view->processes[k], process))
                ranks[same++] = ng_dump_rank(view, k);
        qsort(ranks, same, sizeof(*ranks), compare_ranks);
        ng_text_ranks(ranks, same, list, sizeof(list));
        fprintf(file, "set by a command: %s (rank%s %s)\n", values, same == 1 ? "" : "s", list);
    }
    return 0;
}

int ng_group_list_print(const struct ng_view *view, const char *job, FILE *file)
{
    NG_FREED uint32_t *order = in_order(view);
    uint32_t in_use = 0;
    NG_FREED char *safe = ng_findings_safe_copy(job);
    int error = order && safe ? 0 : -ENOMEM;

    for (uint32_t i = 0; i < view->group_count; i++)
        in_use += ng_group_list_use(view, i) < NG_GROUP_USE_ENDED;
    if (!error)
        fprintf(file, "job %s: %" PRIu32 " group%s, %" PRIu32 " in use\n", safe, view->group_count,
                view->group_count == 1 ? "" : "s", in_use);
    error = error ?: print_set(view, file);
    for (uint32_t i = 0; i < view->group_count && !error; i++)
        error = print_group(view, order[i], file);
    return error;
}

/* ---- JSON ---- */

void ng_group_list_put_known(struct ng_json *json, const char *key, bool known, int64_t value)
{
    if (known)
        ng_json_int(json, key, value);
    else
        ng_json_null(json, key);
}

void ng_group_list_put_bounds(struct ng_json *json, int64_t timeout_ns, uint32_t policy)
{
    ng_group_list_put_known(json, "timeout_ms", timeout_ns, timeout_ns / NG_MS);
    ng_json_string(json, "policy", ng_group_list_policy(policy));
}

void ng_group_list_put_group_bounds(struct ng_json *json, const struct ng_view *view,
                                    uint32_t group)
{
    struct ng_group_bounds bounds;

    ng_group_list_bounds(view, group, &bounds);
    ng_group_list_put_bounds(json, bounds.deadlines_differ ? 0 : bounds.timeout_ns,
                             bounds.policies_differ ? 0 : bounds.policy);
    ng_json_bool(json, "deadlines_differ", bounds.deadlines_differ);
    ng_json_bool(json, "policies_differ", bounds.policies_differ);
}

void ng_group_list_put_missing(struct ng_json *json, const struct ng_view *view, uint32_t group)
{
    uint32_t count, at = 0;
    const struct ng_view_member *members = ng_view_members(view, group, &count);

    ng_json_open_array(json, "missing", NG_JSON_COMPACT);
    for (int next = 0, told = 0; next < view->groups[group].nranks && told < MISSING_MAX;) {
        if (at < count && members[at].group_rank <= next) {
            next += members[at++].group_rank == next;
        } else {
            ng_json_int(json, NULL, next++);
            told++;
        }
    }
    ng_json_close_array(json);
}

void ng_group_list_put_straggler(struct ng_json *json, const struct ng_straggler *straggler,
                                 int rank)
{
    char why[512];

    ng_straggler_why(straggler, why, sizeof(why));
    ng_json_int(json, "rank", rank);
    ng_json_int(json, "group_rank", straggler->member->group_rank);
    ng_json_uint(json, "last", straggler->last);
    ng_json_uint(json, "samples", straggler->samples);
    ng_json_int(json, "wait_ns", straggler->wait_ns);
    ng_json_int(json, "total_wait_ns", straggler->total_wait_ns);
    ng_json_string(json, "confidence", ng_confidence_name(straggler->confidence));
    ng_json_string(json, "why", why);
}

static void put_set(struct ng_json *json, const struct ng_settable_values *set)
{
    char word[32];

    ng_json_open_object(json, "set", NG_JSON_COMPACT);
    for (unsigned i = 0; i < NG_SETTABLES; i++) {
        if (!set->of[i])
            continue;
        ng_config_choice(ng_settable_option((enum ng_settable)i), set->of[i] - 1, word,
                         sizeof(word));
        ng_json_string(json, ng_settable_name((enum ng_settable)i), word);
    }
    ng_json_close_object(json);
}

static void put_member(struct ng_json *json, const struct ng_view *view,
                       const struct ng_view_member *member)
{
    const struct ng_view_process *process = &view->processes[member->process];

    ng_json_open_object(json, NULL, NG_JSON_COMPACT);
    ng_json_int(json, "group_rank", member->group_rank);
    ng_json_int(json, "rank", ng_view_rank(view, member));
    ng_json_string(json, "host", process->host);
    ng_json_int(json, "pid", process->pid);
    ng_json_int(json, "device", member->device);
    ng_json_string(json, "state", ng_dump_group_state_name(member->state));
    ng_json_string(json, "life", ng_dump_life_name(process->life));
    ng_group_list_put_bounds(json, member->timeout_ns, member->policy);
    ng_json_bool(json, "suspended", member->rests);
    put_set(json, &process->set);
    ng_json_close_object(json);
}

static void put_members(struct ng_json *json, const struct ng_view *view, uint32_t index)
{
    uint32_t count;
    const struct ng_view_member *members = ng_view_members(view, index, &count);

    ng_group_list_put_missing(json, view, index);
    ng_json_open_array(json, "members", NG_JSON_LINES);
    for (uint32_t i = 0; i < count; i++)
        put_member(json, view, &members[i]);
    ng_json_close_array(json);
}

static void put_group(struct ng_json *json, const struct ng_view *view, uint32_t index)
{
    const struct ng_view_group *group = &view->groups[index];
    uint32_t same = ng_view_same_members(view, index);
    struct ng_group_making making = ng_group_list_making(view, index);

    ng_json_open_object(json, NULL, NG_JSON_LINES);
    ng_json_hex(json, "id", group->id);
    ng_json_string(json, "name", group->name);
    ng_json_id(json, "parent", group->parent_id);
    ng_json_int(json, "size", group->nranks);
    ng_json_string(json, "created_by", making.created_by ? ng_op_name(making.created_by) : NULL);
    ng_group_list_put_known(json, "color", making.color >= 0, making.color);
    ng_json_string(json, "state", use_name(ng_group_list_use(view, index)));
    ng_json_id(json, "same_members_as", same < index ? view->groups[same].id : 0);
    ng_group_list_put_group_bounds(json, view, index);
    put_members(json, view, index);
    ng_json_close_object(json);
}

int ng_group_list_write_json(const struct ng_view *view, const char *job, int fd)
{
    NG_FREED uint32_t *order = in_order(view);
    struct ng_json json;

    if (!order)
        return -ENOMEM;
    ng_json_init(&json, fd);
    ng_json_open_object(&json, NULL, NG_JSON_LINES);
    ng_json_string(&json, "schema", NG_GROUP_LIST_SCHEMA);
    ng_json_string(&json, "job", job);
    ng_json_open_array(&json, "groups", NG_JSON_LINES);
    for (uint32_t i = 0; i < view->group_count; i++)
        put_group(&json, view, order[i]);
    ng_json_close_array(&json);
    ng_json_close_object(&json);
    return ng_json_finish(&json);
}
