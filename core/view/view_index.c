/*
 * The processes of a view, indexed.
 *
 * Pure. Linear in members and processes, except for sorting hosts.
 */
#include "core/view/view_index.h"

#include <errno.h>
#include <string.h>

#include "core/util/macros.h"
#include "core/util/text.h"

/* At most this many ranks of one host are listed. */
#define RANKS_SHOWN 256

/* Counting sort of the members by process; also finds the first call of each process. */
static int sort_by_process(const struct ng_view *view, struct ng_arena *arena,
                           struct ng_view_index *processes)
{
    uint32_t *first = ng_arena_alloc(arena, (view->process_count + 2) * sizeof(*first));
    uint32_t *members = ng_arena_alloc(arena, (view->member_count + 1) * sizeof(*members));
    uint32_t *first_call = ng_arena_alloc(arena, (view->process_count + 1) * sizeof(*first_call));

    if (!first || !members || !first_call)
        return -ENOMEM;
    for (uint32_t i = 0; i < view->member_count; i++)
        first[view->members[i].process + 2]++;
    for (uint32_t p = 0; p < view->process_count; p++)
        first[p + 2] += first[p + 1];
    for (uint32_t i = 0; i < view->member_count; i++)
        members[first[view->members[i].process + 1]++] = i;
    for (uint32_t i = view->call_count; i > 0; i--)
        first_call[view->calls[i - 1].process] = i;
    processes->first = first;
    processes->members = members;
    processes->first_call = first_call;
    return 0;
}

/* The rank to name for a member whose process has no rank: that of its device in the largest
 * group. */
static int rank_by_group(const struct ng_view_index *processes, uint32_t index)
{
    const struct ng_view *view = processes->view;
    const struct ng_view_member *member = &view->members[index], *largest = member;

    for (uint32_t k = processes->first[member->process]; k < processes->first[member->process + 1];
         k++) {
        const struct ng_view_member *other = &view->members[processes->members[k]];
        if (other->device == member->device &&
            view->groups[other->group].nranks > view->groups[largest->group].nranks)
            largest = other;
    }
    return largest->group_rank;
}

static bool comes_before(const struct ng_view_process *a, const struct ng_view_process *b)
{
    int order = strcmp(a->host, b->host);

    return order ? order < 0 : a->rank < b->rank;
}

static void sort_by_host(const struct ng_view *view, uint32_t *of_host)
{
    uint32_t count = view->process_count;

    for (uint32_t i = 0; i < count; i++)
        of_host[i] = i;
    NG_SORT(of_host, count, comes_before(&view->processes[*a], &view->processes[*b]));
}

static int find_hosts(const struct ng_view *view, struct ng_arena *arena,
                      struct ng_view_index *processes)
{
    uint32_t room = view->process_count + 1;
    struct ng_view_host *hosts = ng_arena_alloc(arena, room * sizeof(*hosts));
    uint32_t *host = ng_arena_alloc(arena, room * sizeof(*host));
    uint32_t *of_host = ng_arena_alloc(arena, room * sizeof(*of_host));
    uint32_t count = 0;

    if (!hosts || !host || !of_host)
        return -ENOMEM;
    sort_by_host(view, of_host);
    for (uint32_t i = 0; i < view->process_count; i++) {
        const struct ng_view_process *process = &view->processes[of_host[i]];
        if (i == 0 || strcmp(view->processes[of_host[i - 1]].host, process->host) != 0)
            hosts[count++] = (struct ng_view_host){.first = i, .silent = true};
        struct ng_view_host *current = &hosts[count - 1];
        current->count++;
        current->lost += process->life == NG_LIFE_LOST;
        if (process->life == NG_LIFE_RUNNING || process->life == NG_LIFE_STOPPED ||
            process->life == NG_LIFE_UNKNOWN) {
            current->silent = false;
            current->answers |= !process->quiet_ns;
            current->quiet |= process->quiet_ns > 0;
        }
        host[of_host[i]] = count - 1;
    }
    processes->hosts = hosts;
    processes->host = host;
    processes->of_host = of_host;
    processes->host_count = count;
    return 0;
}

int ng_view_index_find(const struct ng_view *view, struct ng_arena *arena,
                       struct ng_view_index *ret_processes)
{
    struct ng_view_index processes = {.view = view};

    int error = sort_by_process(view, arena, &processes) ?: find_hosts(view, arena, &processes);
    processes.ranks = ng_arena_alloc(arena, (view->member_count + 1) * sizeof(*processes.ranks));
    if (error || !processes.ranks)
        return -ENOMEM;
    for (uint32_t i = 0; i < view->member_count; i++) {
        const struct ng_view_process *process = &view->processes[view->members[i].process];
        processes.ranks[i] = process->rank >= 0 && !process->drives_several
                                 ? process->rank
                                 : rank_by_group(&processes, i);
    }
    *ret_processes = processes;
    return 0;
}

bool ng_view_is_pending(const struct ng_view_member *member)
{
    if (member->pending_record)
        return true;
    for (uint32_t i = member->record_count; i > 0; i--)
        if (!ng_view_record_is_retired(&member->records[i - 1]))
            return true;
    return false;
}

bool ng_view_index_is_world(const struct ng_view_index *processes, uint32_t group)
{
    const struct ng_view *view = processes->view;

    return NG_ANY(process, view->processes, view->process_count,
                  process->world_size == view->groups[group].nranks);
}

uint32_t ng_view_index_of_rank(const struct ng_view_index *processes, int rank)
{
    const struct ng_view *view = processes->view;
    uint32_t found = UINT32_MAX;

    for (uint32_t i = 0; i < view->process_count; i++)
        if (view->processes[i].rank == rank &&
            (found == UINT32_MAX || view->processes[found].life != NG_LIFE_RUNNING))
            found = i;
    return found;
}

void ng_view_index_remains(const struct ng_view_index *processes, uint32_t process,
                           struct ng_remains *ret_remains)
{
    struct ng_remains remains = {0};

    for (uint32_t k = processes->first[process]; k < processes->first[process + 1]; k++) {
        const struct ng_view_member *member = &processes->view->members[processes->members[k]];
        remains.seen++;
        remains.open += ng_group_state_is_alive(member->state);
        remains.pending += ng_view_is_pending(member);
    }
    *ret_remains = remains;
}

const struct ng_view_call *ng_view_index_call(const struct ng_view_index *processes,
                                              uint32_t process)
{
    uint32_t first = processes->first_call[process];

    return first ? &processes->view->calls[first - 1] : NULL;
}

/* Inserts the rank into the `*count` sorted ones, unless it is already there or there is no
 * room. */
static void insert_rank(int *ranks, uint32_t *count, int rank)
{
    uint32_t at = *count;

    while (at > 0 && ranks[at - 1] > rank)
        at--;
    if (rank < 0 || *count == RANKS_SHOWN || (at > 0 && ranks[at - 1] == rank))
        return;
    memmove(&ranks[at + 1], &ranks[at], (*count - at) * sizeof(*ranks));
    ranks[at] = rank;
    ++*count;
}

void ng_view_index_lost_ranks(const struct ng_view_index *processes,
                              const struct ng_view_host *host, char *ret_text, size_t bytes,
                              uint32_t *ret_count)
{
    int ranks[RANKS_SHOWN];
    uint32_t count = 0;

    for (uint32_t i = host->first; i < host->first + host->count; i++) {
        uint32_t process = processes->of_host[i];
        const struct ng_view_process *in_view = &processes->view->processes[process];
        if (in_view->life != NG_LIFE_LOST)
            continue;
        if (in_view->rank >= 0 && !in_view->drives_several) {
            insert_rank(ranks, &count, in_view->rank);
            continue;
        }
        for (uint32_t k = processes->first[process]; k < processes->first[process + 1]; k++)
            insert_rank(ranks, &count, processes->ranks[processes->members[k]]);
    }
    ng_text_ranks(ranks, count, ret_text, bytes);
    *ret_count = count;
}
