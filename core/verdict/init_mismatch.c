/*
 * Ranks that joined the creation of a communicator with parameters that do not match.
 *
 * Pure. If two ranks disagree, either may be wrong, as in core/view/signature.h: the majority is
 * right; otherwise a rank that matches the number its launcher gave it is likely right; otherwise
 * it is not known.
 */
#include "core/verdict/init_mismatch.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/config/nccl_variables.h"
#include "core/nccl/group_id.h"
#include "core/util/macros.h"
#include "core/util/text.h"
#include "core/verdict/verdict.h"

struct search {
    const struct ng_view *view;
    const struct ng_view_index *processes;
    const struct ng_wait_graph *waits;
    const struct ng_wait *wait;
    struct ng_arena *arena;
    struct ng_init_mismatch *mismatch;
    const struct ng_view_member *members;
    uint32_t count, room;
    /* Per process: its host, as NCCL groups ranks into hosts. */
    uint32_t *host;
    uint32_t host_count;
    int error; /* -ENOMEM: no room for a rank that is odd */
};

static const struct ng_view_process *process_of(const struct search *search,
                                                const struct ng_view_member *member)
{
    return &search->view->processes[member->process];
}

static bool is_gone(const struct search *search, const struct ng_view_member *member)
{
    return ng_life_is_gone(process_of(search, member)->life);
}

/* Has it joined and not finished: NCCL has returned nothing yet, or reported a failure? */
static bool takes_part(const struct search *search, const struct ng_view_member *member)
{
    return (member->state == NG_GROUP_CREATING || member->state == NG_GROUP_FAILED) &&
           !is_gone(search, member);
}

/* The rank that its launcher gave it, if that is meaningful in a group of `nranks`; -1 none. */
static int launched_as(const struct search *search, const struct ng_view_member *member, int nranks)
{
    const struct ng_view_process *process = process_of(search, member);

    return process->world_size == nranks && !process->drives_several ? process->rank : -1;
}

static int nranks_of(const struct search *search, const struct ng_view_member *member)
{
    return member->nranks ? member->nranks : search->view->groups[member->group].nranks;
}

static __attribute__((format(printf, 3, 4))) void
add_odd(struct search *search, const struct ng_view_member *member, const char *format, ...)
{
    struct ng_init_mismatch *mismatch = search->mismatch;
    char why[sizeof(((struct ng_culprit *)0)->why)];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(why, sizeof(why), format, arguments);
    va_end(arguments);
    const char *kept = ng_arena_strdup(search->arena, why);
    struct ng_init_odd *odd =
        kept ? NG_ARENA_APPEND(search->arena, mismatch->odds, mismatch->odd_count, search->room)
             : NULL;
    if (odd)
        *odd = (struct ng_init_odd){.member = member, .why = kept};
    else
        search->error = -ENOMEM;
}

static int found(struct search *search, enum ng_init_differ differ)
{
    search->mismatch->differ = differ;
    search->mismatch->group = search->wait->group;
    search->mismatch->nranks = search->view->groups[search->wait->group].nranks;
    return search->error ?: 1;
}

static const char *end_of(const struct search *search)
{
    return search->mismatch->undecided ? "; it is not known which are wrong" : "";
}

/* ---- One rank number twice ---- */

static bool is_twin(const struct search *search, const struct ng_view_member *a,
                    const struct ng_view_member *b)
{
    return a != b && a->group_rank == b->group_rank && takes_part(search, b) &&
           (a->process != b->process ||
            (a->state == NG_GROUP_CREATING && b->state == NG_GROUP_CREATING));
}

static const struct ng_view_member *twin_of(const struct search *search,
                                            const struct ng_view_member *member)
{
    const struct ng_view_member *end = search->members + search->count;
    const struct ng_view_member *at = member;

    /* Members are sorted by rank. */
    while (at > search->members && at[-1].group_rank == member->group_rank)
        at--;
    for (; at < end && at->group_rank == member->group_rank; at++)
        if (is_twin(search, member, at))
            return at;
    return NULL;
}

/* "; no process called it as rank 3" */
static void say_absent(const struct search *search, char *ret_text, size_t bytes)
{
    struct ng_text text = {ret_text, 0, bytes};
    int first = -1;

    ret_text[0] = '\0';
    for (uint32_t i = 0; i < search->wait->absentee_count && first < 0; i++)
        first = search->wait->absentees[i].group_rank;
    if (first >= 0)
        ng_text_add(&text, "; no process called it as rank %d", first);
}

static int find_twins(struct search *search)
{
    int nranks = search->view->groups[search->wait->group].nranks;
    bool any = false, all_told = true, others_agree = false;
    char absent[64];

    NG_EACH (member, search->members, search->count) {
        if (!takes_part(search, member))
            continue;
        int launched = launched_as(search, member, nranks);
        if (!twin_of(search, member)) {
            others_agree |= launched == member->group_rank;
            continue;
        }
        any = true;
        all_told &= launched >= 0;
    }
    if (!any)
        return 0;
    search->mismatch->undecided = !all_told;
    search->mismatch->likely = !others_agree;
    say_absent(search, absent, sizeof(absent));
    NG_EACH (member, search->members, search->count) {
        const struct ng_view_member *twin =
            takes_part(search, member) ? twin_of(search, member) : NULL;
        if (!twin || (all_told && launched_as(search, member, nranks) == member->group_rank))
            continue;
        const struct ng_view_process *other = process_of(search, twin);
        add_odd(search, member,
                "called %s as rank %d of %d, which pid %d on host %.63s is, too%s%s",
                ng_op_name(search->wait->op), member->group_rank, nranks, other->pid, other->host,
                absent, end_of(search));
    }
    return found(search, NG_INIT_RANK);
}

/* ---- A number that the majority agrees on: ranks of the group, version ---- */

typedef int number_fn(const struct search *search, const struct ng_view_member *member);

static int version_of(const struct search *search, const struct ng_view_member *member)
{
    return member->nccl_version ? member->nccl_version
                                : search->view->groups[member->group].nccl_version;
}

/* The number that more than half of them have; *ret_sure: whether there is one, *ret_differ:
 * whether any differ. */
static int majority_of(const struct search *search, number_fn *number, bool *ret_sure,
                       bool *ret_differ)
{
    uint32_t all = 0, alike = 0, lead = 0;
    int best = 0;

    /* Majority vote: if pairs that differ cancel out, only a majority can remain. */
    for (uint32_t i = 0; i < search->count; i++) {
        if (!takes_part(search, &search->members[i]))
            continue;
        int mine = number(search, &search->members[i]);
        if (lead == 0)
            best = mine;
        lead = lead == 0 || mine == best ? lead + 1 : lead - 1;
        all++;
    }
    for (uint32_t i = 0; i < search->count; i++)
        alike +=
            takes_part(search, &search->members[i]) && number(search, &search->members[i]) == best;
    *ret_differ = alike < all;
    *ret_sure = 2 * alike > all;
    return best;
}

static int find_nranks(struct search *search)
{
    bool sure, differ;
    int right = majority_of(search, nranks_of, &sure, &differ);

    if (!differ)
        return 0;
    /* The size of the job, if one of them has it. */
    for (uint32_t i = 0; i < search->count && !sure; i++) {
        const struct ng_view_member *member = &search->members[i];
        int world = process_of(search, member)->world_size;
        if (takes_part(search, member) && world > 0 && nranks_of(search, member) == world) {
            right = world;
            search->mismatch->likely = true;
        }
    }
    search->mismatch->undecided = !sure && !search->mismatch->likely;
    NG_EACH (member, search->members, search->count) {
        int mine = nranks_of(search, member);
        if (!takes_part(search, member) || (!search->mismatch->undecided && mine == right))
            continue;
        if (search->mismatch->undecided)
            add_odd(
                search, member,
                "called %s with %d ranks; the ranks disagree and it is not known which are wrong",
                ng_op_name(search->wait->op), mine);
        else
            add_odd(search, member, "called %s with %d ranks where %s %d",
                    ng_op_name(search->wait->op), mine, sure ? "the others say" : "the job has",
                    right);
    }
    int result = found(search, NG_INIT_NRANKS);
    search->mismatch->nranks = search->mismatch->undecided ? 0 : right;
    return result;
}

static int find_version(struct search *search)
{
    bool sure, differ;
    int right = majority_of(search, version_of, &sure, &differ);

    if (!differ)
        return 0;
    search->mismatch->undecided = !sure;
    NG_EACH (member, search->members, search->count) {
        int mine = version_of(search, member);
        if (!takes_part(search, member) || (sure && mine == right))
            continue;
        if (sure)
            add_odd(search, member, "has NCCL %d.%d.%d where the others have %d.%d.%d",
                    mine / 10000, mine / 100 % 100, mine % 100, right / 10000, right / 100 % 100,
                    right % 100);
        else
            add_odd(search, member,
                    "has NCCL %d.%d.%d; the ranks disagree and it is not known which are wrong",
                    mine / 10000, mine / 100 % 100, mine % 100);
    }
    return found(search, NG_INIT_VERSION);
}

/* ---- Different unique ids ---- */

static bool has_rank(const struct search *search, uint32_t group, int rank)
{
    const struct ng_view_member *member = ng_view_member(search->view, group, rank);

    return member && takes_part(search, member);
}

/* Is `wait` the creation of a new group by unique id, not derived from another communicator? */
static bool is_by_id(const struct search *search, const struct ng_wait *wait)
{
    uint32_t count;
    const struct ng_view_member *members = ng_view_members(search->view, wait->group, &count);

    if (wait->type != NG_WAIT_CREATE || !members || search->view->groups[wait->group].parent_id)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t made = members[i].created_by;
        if (members[i].state == NG_GROUP_CREATING && made != NG_OP_CommInitAll &&
            made != NG_OP_CommSplit && made != NG_OP_CommShrink && made != NG_OP_CommGrow)
            return true;
    }
    return false;
}

/* A set of groups that together have each rank number of one communicator exactly once. */
struct parts {
    uint32_t *groups; /* the largest first; at equal size, the lowest rank number first */
    uint32_t count;
};

static uint32_t size_of(const struct search *search, uint32_t group)
{
    uint32_t size = 0;

    NG_EACH_MEMBER (member, search->view, group)
        size += takes_part(search, member);
    return size;
}

static bool comes_before(const struct search *search, uint32_t a, uint32_t b)
{
    uint32_t size_a = size_of(search, a), size_b = size_of(search, b), count;

    if (size_a != size_b)
        return size_a > size_b;
    return ng_view_members(search->view, a, &count)->group_rank <
           ng_view_members(search->view, b, &count)->group_rank;
}

/* Finds the groups that wait with this one and that together have each rank exactly once. */
static int find_parts(struct search *search, struct parts *parts)
{
    const struct ng_wait_graph *waits = search->waits;
    int nranks = search->view->groups[search->wait->group].nranks, covered = 0;
    bool *taken = ng_arena_alloc(search->arena, (size_t)nranks + 1);

    parts->groups = ng_arena_alloc(search->arena, (waits->count + 1) * sizeof(*parts->groups));
    if (!parts->groups || !taken)
        return -ENOMEM;
    for (uint32_t w = 0; w < waits->count; w++) {
        const struct ng_wait *wait = &waits->waits[w];
        if (search->view->groups[wait->group].nranks != nranks || !is_by_id(search, wait))
            continue;
        NG_EACH_MEMBER (member, search->view, wait->group) {
            int rank = member->group_rank;
            if (!takes_part(search, member))
                continue;
            if (rank < 0 || rank >= nranks || taken[rank])
                return 0; /* two separate communicators */
            taken[rank] = true;
            covered++;
        }
        uint32_t at = parts->count++;
        for (; at > 0 && comes_before(search, wait->group, parts->groups[at - 1]); at--)
            parts->groups[at] = parts->groups[at - 1];
        parts->groups[at] = wait->group;
    }
    return parts->count > 1 && covered == nranks;
}

/* Are these all ranks of the job, so that no other process can belong to the group? */
static bool is_whole_job(const struct search *search, int nranks)
{
    uint32_t living = 0;

    for (uint32_t i = 0; i < search->view->process_count; i++) {
        enum ng_life life = search->view->processes[i].life;
        if (search->view->processes[i].world_size > 0)
            return search->view->processes[i].world_size == nranks;
        living += life == NG_LIFE_RUNNING || life == NG_LIFE_STOPPED;
    }
    return living == (uint32_t)nranks;
}

/* Link the parts of all processes with one of these words. */
static bool link_word(const struct ng_view *view, const uint32_t *part_of, uint64_t word,
                      bool *linked)
{
    bool more = false;

    for (uint32_t i = 0; i < view->process_count; i++)
        if (part_of[i] && !linked[part_of[i]] && view->processes[i].run_word == word)
            more = linked[part_of[i]] = true;
    return more;
}

/* Link the parts of which a process is in one group, or has one word of its run, with a linked one.
 * False: no more. */
static bool link_parts(const struct ng_view *view, const uint32_t *part_of, bool *linked)
{
    bool more = false;

    for (uint32_t i = 0; i < view->process_count; i++)
        if (part_of[i] && linked[part_of[i]])
            more |= link_word(view, part_of, view->processes[i].run_word, linked);
    for (uint32_t g = 0; g < view->group_count; g++) {
        uint32_t count;
        const struct ng_view_member *members = ng_view_members(view, g, &count);
        bool any = false;
        for (uint32_t i = 0; i < count; i++)
            any |= part_of[members[i].process] && linked[part_of[members[i].process]];
        for (uint32_t i = 0; any && i < count; i++) {
            uint32_t part = part_of[members[i].process];
            more |= part && !linked[part];
            linked[part] = true;
        }
    }
    return more;
}

/* Are these parts held together by the numbers of their ranks alone? Two runs of one name may
 * complement each other. 1, 0 or -ENOMEM. */
static int may_be_of_two_runs(const struct search *search, const struct parts *parts)
{
    const struct ng_view *view = search->view;
    uint32_t *part_of = ng_arena_alloc(search->arena, (view->process_count + 1) * sizeof(*part_of));
    bool *linked = ng_arena_alloc(search->arena, parts->count + 1);
    uint64_t word = 0;
    bool differ = false, all = true;

    if (!part_of || !linked)
        return -ENOMEM;
    for (uint32_t i = 0; i < parts->count; i++) {
        NG_EACH_MEMBER (member, view, parts->groups[i]) {
            if (!takes_part(search, member))
                continue;
            if (!process_of(search, member)->run_word)
                return 0;
            word = word ? word : process_of(search, member)->run_word;
            differ |= process_of(search, member)->run_word != word;
            part_of[member->process] = i + 1;
        }
    }
    linked[1] = true;
    if (differ)
        while (link_parts(view, part_of, linked))
            ;
    for (uint32_t i = 1; i <= parts->count; i++)
        all &= linked[i];
    return differ && !all;
}

static int add_unclear(struct search *search, const struct parts *parts, int nranks)
{
    search->mismatch->undecided = true;
    for (uint32_t i = 0; i < parts->count; i++) {
        NG_EACH_MEMBER (member, search->view, parts->groups[i]) {
            if (!takes_part(search, member))
                continue;
            add_odd(search, member,
                    "called %s as rank %d of %d with the unique id of group %016llx, others have "
                    "another; it is unclear whether they are of one run: give each run a "
                    "NCCLGUARD_JOB of its own",
                    ng_op_name(search->wait->op), member->group_rank, nranks,
                    (unsigned long long)search->view->groups[parts->groups[i]].id);
        }
    }
    return found(search, NG_INIT_ID);
}

static int find_ids(struct search *search)
{
    struct parts parts = {0};
    int nranks = search->view->groups[search->wait->group].nranks;

    if (!is_by_id(search, search->wait) || !is_whole_job(search, nranks))
        return 0;
    int whole = find_parts(search, &parts);
    if (whole <= 0)
        return whole;
    int unclear = may_be_of_two_runs(search, &parts);
    if (unclear)
        return unclear < 0 ? unclear : add_unclear(search, &parts, nranks);
    uint32_t right = parts.groups[0];
    bool most = 2 * size_of(search, right) > (uint32_t)nranks;
    /* Otherwise the id of rank 0, which usually distributes it. */
    for (uint32_t i = 0; i < parts.count && !most; i++)
        if (has_rank(search, parts.groups[i], 0))
            right = parts.groups[i];
    search->mismatch->likely = !most;
    search->mismatch->other_ids =
        ng_arena_alloc(search->arena, parts.count * sizeof(*search->mismatch->other_ids));
    if (!search->mismatch->other_ids)
        return -ENOMEM;
    for (uint32_t i = 0; i < parts.count; i++) {
        uint64_t id = search->view->groups[parts.groups[i]].id;
        if (parts.groups[i] == right)
            continue;
        search->mismatch->other_ids[search->mismatch->other_id_count++] = id;
        NG_EACH_MEMBER (member, search->view, parts.groups[i]) {
            if (!takes_part(search, member))
                continue;
            add_odd(
                search, member,
                "called %s as rank %d of %d with another unique id (group %016llx) than %s (group "
                "%016llx), where exactly that rank is missing",
                ng_op_name(search->wait->op), member->group_rank, nranks, (unsigned long long)id,
                most ? "most others" : "rank 0",
                (unsigned long long)search->view->groups[right].id);
        }
    }
    int result = found(search, NG_INIT_ID);
    search->mismatch->group = right;
    return result;
}

/* ---- Hosts ---- */

#define VALUE_BYTES 64

struct named {
    uint64_t hash;
    uint32_t process;
};

static int by_hash(const void *a, const void *b)
{
    const struct named *first = a, *second = b;

    return NG_ORDER(first->hash, second->hash);
}

/* Ranks with the same NCCL_HOSTID are on one host, wherever they run; without it, their actual host
 * counts. */
static int find_hosts(struct search *search)
{
    char id[VALUE_BYTES];
    uint32_t named_count = 0;

    search->host_count = search->processes->host_count;
    search->host =
        ng_arena_alloc(search->arena, (search->view->process_count + 1) * sizeof(*search->host));
    struct named *named = ng_arena_alloc(search->arena, (search->count + 1) * sizeof(*named));
    if (!search->host || !named)
        return -ENOMEM;
    for (uint32_t i = 0; i < search->count; i++) {
        uint32_t process = search->members[i].process;
        search->host[process] = search->processes->host[process];
        if (ng_nccl_variables_find(process_of(search, &search->members[i])->nccl_variables,
                                   "NCCL_HOSTID", id, sizeof(id)))
            named[named_count++] = (struct named){ng_hash(0, id, strlen(id)), process};
    }
    qsort(named, named_count, sizeof(*named), by_hash);
    for (uint32_t i = 0; i < named_count; i++) {
        bool is_new = i == 0 || named[i].hash != named[i - 1].hash;
        search->host[named[i].process] =
            is_new ? search->host_count++ : search->host[named[i - 1].process];
    }
    return 0;
}

/* ---- One device twice ---- */

static bool shares_device(const struct search *search, const struct ng_view_member *a,
                          const struct ng_view_member *b)
{
    return a != b && takes_part(search, b) && a->pci_id[0] && a->group_rank != b->group_rank &&
           strcmp(a->pci_id, b->pci_id) == 0 &&
           search->host[a->process] == search->host[b->process];
}

static int find_devices(struct search *search)
{
    bool any = false, told = true;

    for (int pass = 0; pass < 2; pass++)
        NG_EACH (member, search->members, search->count) {
            if (!takes_part(search, member))
                continue;
            const struct ng_view_member *other =
                NG_FIND(one, search->members, search->count, shares_device(search, member, one));
            if (!other)
                continue;
            any = true;
            int local = process_of(search, member)->local_rank;
            int other_local = process_of(search, other)->local_rank;
            /* One of the two uses the device that its launcher assigned. */
            bool odd = local >= 0 && local != member->device;
            if (pass == 0) {
                told &= local >= 0 && other_local >= 0 && odd != (other_local != other->device);
                continue;
            }
            if (told && !odd)
                continue;
            add_odd(search, member,
                    "is on device %d (%s), where group rank %d is, too (pid %d): NCCL wants "
                    "one rank on each%s",
                    member->device, member->pci_id, other->group_rank,
                    process_of(search, other)->pid,
                    told ? "" : "; it is not known which are wrong");
        }
    if (!any)
        return 0;
    search->mismatch->undecided = !told;
    search->mismatch->likely = told;
    return found(search, NG_INIT_DEVICE);
}

/* ---- Variables ---- */

static void value_of(const struct search *search, const struct ng_view_member *member,
                     const struct ng_nccl_variable *variable, char ret_value[VALUE_BYTES])
{
    if (!ng_nccl_variables_find(process_of(search, member)->nccl_variables, variable->name,
                                ret_value, VALUE_BYTES))
        snprintf(ret_value, VALUE_BYTES, "not set");
}

#define EVERYWHERE UINT32_MAX

/* A live member on this host, whether or not its communicator has been created already. */
static bool is_here(const struct search *search, const struct ng_view_member *member, uint32_t host)
{
    return !is_gone(search, member) && member->state != NG_GROUP_DESTROYED &&
           member->state != NG_GROUP_ABORTED &&
           (host == EVERYWHERE || search->host[member->process] == host);
}

static int blame_variable(struct search *search, const struct ng_nccl_variable *variable,
                          uint32_t host)
{
    char mine[VALUE_BYTES], right[VALUE_BYTES] = "";
    uint32_t all = 0, alike = 0, lead = 0;

    for (uint32_t i = 0; i < search->count; i++) {
        if (!is_here(search, &search->members[i], host))
            continue;
        value_of(search, &search->members[i], variable, mine);
        if (lead == 0)
            memcpy(right, mine, sizeof(right));
        lead = lead == 0 || strcmp(mine, right) == 0 ? lead + 1 : lead - 1;
        all++;
    }
    for (uint32_t i = 0; i < search->count; i++) {
        if (!is_here(search, &search->members[i], host))
            continue;
        value_of(search, &search->members[i], variable, mine);
        alike += strcmp(mine, right) == 0;
    }
    if (alike == all)
        return 0;
    bool sure = 2 * alike > all;
    search->mismatch->undecided = !sure;
    search->mismatch->likely = true;
    for (uint32_t i = 0; i < search->count; i++) {
        value_of(search, &search->members[i], variable, mine);
        if (!is_here(search, &search->members[i], host) || (sure && strcmp(mine, right) == 0))
            continue;
        add_odd(search, &search->members[i], "has %s %s%s%s%s%s, by which each rank decides %s",
                variable->name, strcmp(mine, "not set") ? "= " : "", mine,
                sure ? ", the others " : "; the ranks disagree and it is not known which are wrong",
                sure && host != EVERYWHERE ? "of its host " : "", sure ? right : "", variable->why);
    }
    return found(search, NG_INIT_VARIABLE);
}

/* Per host: whether ranks on it have different variables. *ret_any: whether any ranks have. */
static bool *find_disagreeing(struct search *search, bool *ret_any)
{
    uint32_t hosts = search->host_count;
    const char *first = process_of(search, search->members)->nccl_variables;
    const char **first_of_host =
        ng_arena_alloc(search->arena, (hosts + 1) * sizeof(*first_of_host));
    bool *differ = ng_arena_alloc(search->arena, hosts + 1);

    *ret_any = false;
    for (uint32_t i = 0; i < search->count && differ && first_of_host; i++) {
        const char *mine = process_of(search, &search->members[i])->nccl_variables;
        uint32_t host = search->host[search->members[i].process];
        if (!first_of_host[host])
            first_of_host[host] = mine;
        differ[host] |= strcmp(mine, first_of_host[host]) != 0;
        *ret_any |= strcmp(mine, first) != 0;
    }
    return first_of_host ? differ : NULL;
}

static int find_variables(struct search *search, bool of_work)
{
    size_t rows;
    const struct ng_nccl_variable *table = ng_nccl_variables_get_table(&rows);
    bool any;
    const bool *differ = find_disagreeing(search, &any);

    if (!differ)
        return -ENOMEM;
    for (size_t i = 0; i < rows && any; i++) {
        int result = 0;
        if (table[i].at != NG_VARIABLE_MAKING && !of_work)
            continue;
        if (table[i].among == NG_VARIABLE_OF_JOB)
            result = blame_variable(search, &table[i], EVERYWHERE);
        for (uint32_t host = 0; host < search->host_count && !result; host++)
            if (table[i].among == NG_VARIABLE_OF_HOST && differ[host])
                result = blame_variable(search, &table[i], host);
        if (result)
            return result;
    }
    return 0;
}

/* Have some devices reached the operation, while others have it queued but have not reached it?
 * Then work queued before it blocks it, whatever the ranks have set. */
static bool is_held_up(const struct search *search)
{
    int32_t index = (int32_t)(search->wait - search->waits->waits);
    bool reached = false, behind = false;

    NG_EACH (member, search->members, search->count) {
        if (search->waits->wait_of_member[member - search->view->members] != index ||
            !member->pending_record)
            continue;
        reached |= member->pending_started;
        behind |= !member->pending_started;
    }
    return reached && behind;
}

/* ---- */

int ng_init_mismatch_find(const struct ng_view_index *processes, const struct ng_wait_graph *waits,
                          uint32_t wait, struct ng_arena *arena,
                          struct ng_init_mismatch *ret_mismatch)
{
    struct search search = {.view = processes->view,
                            .processes = processes,
                            .waits = waits,
                            .wait = &waits->waits[wait],
                            .arena = arena,
                            .mismatch = ret_mismatch};
    bool cold = search.wait->type == NG_WAIT_COLLECTIVE && search.wait->seq == 1;
    int result = 0;

    *ret_mismatch = (struct ng_init_mismatch){0};
    search.members = ng_view_members(search.view, search.wait->group, &search.count);
    if (!search.members || (search.wait->type != NG_WAIT_CREATE && !cold))
        return 0;
    /* It is not known which ranks are missing there. */
    if (search.wait->op == NG_OP_CommShrink && search.wait->left_out < 0)
        return 0;
    result = find_hosts(&search);
    if (result)
        return result;
    if (cold)
        return search.wait->absentee_count || is_held_up(&search) ? 0
                                                                  : find_variables(&search, true);
    if (is_by_id(&search, search.wait)) {
        result = find_twins(&search) ?: find_nranks(&search) ?: find_ids(&search);
    }
    /* Other ranks are missing than those to which NCCL reported a failure. */
    if (result ||
        NG_ANY(absentee, search.wait->absentees, search.wait->absentee_count, !absentee->failed))
        return result;
    return find_version(&search) ?: find_devices(&search) ?: find_variables(&search, false);
}

const char *ng_init_differ_text(enum ng_init_differ differ)
{
    static const char *const texts[] = {
        [NG_INIT_RANK] = "rank",     [NG_INIT_NRANKS] = "number of ranks",
        [NG_INIT_ID] = "unique id",  [NG_INIT_VERSION] = "NCCL version",
        [NG_INIT_DEVICE] = "device", [NG_INIT_VARIABLE] = "variable of NCCL",
    };

    return texts[differ];
}
