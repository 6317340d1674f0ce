/*
 * From a view and a verdict to rows: how far behind each rank is, its current call, and its
 * position in the order.
 *
 * Linear in members and records, except for the sorting: a job may have thousands of ranks, each in
 * dozens of groups.
 */
#include "tools/render/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/util/clock.h"
#include "core/util/macros.h"
#include "tools/base/owned.h"

/* Ranks do not arrive at the same moment: shorter waits are not significant. */
#define UNUSUAL_NS NG_S
/* Number of collectives behind up to which the time since is computed. */
#define WINDOW_MAX ((uint64_t)1 << 20)

/* A handle whose rank has a newer one in the same group. */
static bool is_older_handle(const struct ng_view *view, uint32_t index)
{
    const struct ng_view_member *member = &view->members[index];

    return index > 0 && member[-1].group == member->group &&
           member[-1].group_rank == member->group_rank;
}

/* ---- Behind ---- */

/*
 * When each of `count` collectives from `first` on was first entered, as ages; 0 not known. One
 * that is no longer recorded gets the value of the next one, since it was no later.
 */
static void find_entries(const struct ng_view_member *members, uint32_t member_count,
                         uint64_t first, uint64_t count, int64_t *ret_ages)
{
    memset(ret_ages, 0, (size_t)count * sizeof(*ret_ages));
    NG_EACH (member, members, member_count) {
        NG_EACH (record, member->records, member->record_count) {
            uint64_t at = record->coll_seq - first;
            if (!ng_view_record_is_p2p(record) && record->coll_seq >= first && at < count &&
                record->entered_age_ns > ret_ages[at])
                ret_ages[at] = record->entered_age_ns;
        }
        uint64_t at = member->pending_seq - first;
        if (member->pending_record && member->pending_seq >= first && at < count &&
            member->pending_age_ns > ret_ages[at])
            ret_ages[at] = member->pending_age_ns;
    }
    for (uint64_t at = count - 1; at > 0; at--)
        if (!ret_ages[at - 1])
            ret_ages[at - 1] = ret_ages[at];
}

static int measure_group(struct ng_table *table, uint32_t start, uint32_t count)
{
    const struct ng_view_member *members = &table->view->members[start];
    uint64_t front = 0, last = UINT64_MAX;

    for (uint32_t i = 0; i < count; i++) {
        front = members[i].entered > front ? members[i].entered : front;
        if (!is_older_handle(table->view, start + i) && members[i].entered < last)
            last = members[i].entered;
    }
    table->front[members->group] = front;
    if (last >= front)
        return 0;
    if (front - last > WINDOW_MAX)
        last = front - WINDOW_MAX;
    NG_FREED int64_t *ages = calloc((size_t)(front - last), sizeof(*ages));
    if (!ages)
        return -ENOMEM;
    find_entries(members, count, last + 1, front - last, ages);
    for (uint32_t i = 0; i < count; i++) {
        struct ng_table_row *row = &table->rows[start + i];
        if (is_older_handle(table->view, start + i))
            continue;
        row->behind = front - members[i].entered;
        if (row->behind)
            row->behind_ns = ages[members[i].entered > last ? members[i].entered - last : 0];
    }
    return 0;
}

static int measure_groups(struct ng_table *table)
{
    const struct ng_view *view = table->view;

    for (uint32_t start = 0, end; start < view->member_count; start = end) {
        for (end = start + 1;
             end < view->member_count && view->members[end].group == view->members[start].group;)
            end++;
        int error = measure_group(table, start, end - start);
        if (error)
            return error;
    }
    return 0;
}

/* ---- The current call of each ---- */

static void take_call(struct ng_table_row *row, const struct ng_view_call *call)
{
    if (row->phase == NG_PHASE_CALL && row->age_ns >= call->age_ns)
        return;
    row->phase = NG_PHASE_CALL;
    row->op = call->op;
    row->seq = call->seq;
    row->age_ns = call->age_ns;
}

static void take_work(struct ng_table_row *row)
{
    const struct ng_view_member *member = row->member;

    NG_EACH (record, member->records, member->record_count) {
        if (!ng_view_record_is_p2p(record) || ng_view_record_is_retired(record))
            continue;
        row->sends += record->signature.op == NG_OP_Send;
        row->receives += record->signature.op == NG_OP_Recv;
        if (!row->oldest_p2p)
            row->oldest_p2p = record;
    }
    for (uint32_t i = 0; i < member->record_count && row->phase == NG_PHASE_NONE; i++) {
        const struct ng_view_record *record = &member->records[i];
        if (record->state != NG_RECORD_ENTERED || !(record->flags & NG_RECORD_IN_GROUP))
            continue;
        row->phase = NG_PHASE_GROUP;
        row->op = (enum ng_op)record->signature.op;
        row->seq = ng_view_record_is_p2p(record) ? 0 : record->coll_seq;
        row->age_ns = record->entered_age_ns;
    }
    if (!member->pending_record ||
        (row->phase != NG_PHASE_NONE && row->age_ns >= member->pending_age_ns))
        return;
    row->phase = member->pending_started ? NG_PHASE_DEVICE : NG_PHASE_QUEUED;
    row->seq = member->pending_seq;
    row->age_ns = member->pending_age_ns;
    row->op = member->pending_seq && member->pending_seq == member->entered
                  ? (enum ng_op)member->last.op
                  : NG_OP_NONE;
    const struct ng_view_record *record = ng_view_pending_record(member);
    if (record)
        row->op = (enum ng_op)record->signature.op;
}

int ng_table_sort(const struct ng_view *view, uint32_t count,
                  uint32_t (*process_of)(const struct ng_view *view, uint32_t index),
                  struct ng_table_lists *ret_lists)
{
    uint32_t *start = calloc(view->process_count + 2, sizeof(*start));
    uint32_t *list = calloc(count + 1, sizeof(*list));

    *ret_lists = (struct ng_table_lists){start, list};
    if (!start || !list)
        return -ENOMEM;
    for (uint32_t i = 0; i < count; i++)
        start[process_of(view, i) + 2]++;
    for (uint32_t i = 1; i <= view->process_count + 1; i++)
        start[i] += start[i - 1];
    for (uint32_t i = 0; i < count; i++)
        list[start[process_of(view, i) + 1]++] = i;
    return 0;
}

void ng_table_lists_fini(struct ng_table_lists *lists)
{
    free(lists->start);
    free(lists->list);
}

static uint32_t process_of_call(const struct ng_view *view, uint32_t index)
{
    return view->calls[index].process;
}

int ng_table_sort_calls(const struct ng_view *view, struct ng_table_lists *ret_lists)
{
    return ng_table_sort(view, view->call_count, process_of_call, ret_lists);
}

static int find_phases(struct ng_table *table)
{
    const struct ng_view *view = table->view;
    struct ng_table_lists calls;
    int error = ng_table_sort_calls(view, &calls);

    if (error) {
        ng_table_lists_fini(&calls);
        return error;
    }
    NG_EACH (row, table->rows, table->row_count) {
        if (row->process == NG_TABLE_NOBODY)
            continue;
        uint64_t group_id = row->member ? view->groups[row->member->group].id : 0;
        for (uint32_t k = calls.start[row->process]; k < calls.start[row->process + 1]; k++) {
            const struct ng_view_call *call = &view->calls[calls.list[k]];
            bool same_rank =
                call->group_rank < 0 || !row->member || call->group_rank == row->member->group_rank;
            /* A call without a group (ncclGroupEnd) holds up all of its groups. */
            if ((call->group_id == group_id && same_rank) || !call->group_id)
                take_call(row, call);
        }
        if (row->member)
            take_work(row);
    }
    ng_table_lists_fini(&calls);
    return 0;
}

/* ---- Ranks and culprits ---- */

/* Global ranks: ng_view_rank may scan all members, so it is called once for each device of a
 * process. */
static int find_ranks(struct ng_table *table)
{
    const struct ng_view *view = table->view;
    NG_FREED struct {
        bool known;
        int device, rank;
    } *last = calloc(view->process_count + 1, sizeof(*last));

    if (!last)
        return -ENOMEM;
    NG_EACH (row, table->rows, table->row_count) {
        if (!row->member) {
            row->rank = row->process != NG_TABLE_NOBODY ? view->processes[row->process].rank
                                                        : row->culprit->rank;
            continue;
        }
        if (!last[row->process].known || last[row->process].device != row->member->device) {
            last[row->process].known = true;
            last[row->process].device = row->member->device;
            last[row->process].rank = ng_view_rank(view, row->member);
        }
        row->rank = last[row->process].rank;
    }
    return 0;
}

static bool lives(const struct ng_view_process *process)
{
    return process->life == NG_LIFE_RUNNING || process->life == NG_LIFE_UNKNOWN;
}

static bool is_culprit(const struct ng_table *table, const struct ng_table_row *row,
                       const struct ng_culprit *culprit)
{
    const struct ng_view_process *process = &table->view->processes[row->process];

    if (!process->drives_several || culprit->group_rank < 0)
        return true;
    return row->member && table->view->groups[row->member->group].id == table->verdict->group_id &&
           row->member->group_rank == culprit->group_rank;
}

/* The processes that the verdict names: culprit_of[process]; if several devices of one are named,
 * the first. Returns how many were not seen, in `unseen`. */
static uint32_t match_culprits(const struct ng_table *table, const struct ng_culprit **culprit_of,
                               const struct ng_culprit **unseen)
{
    const struct ng_view *view = table->view;
    uint32_t count = 0;

    NG_EACH (culprit, table->verdict->culprits, table->verdict->culprit_count) {
        bool found = false;
        for (uint32_t p = 0; culprit->pid && p < view->process_count; p++) {
            if (!ng_culprit_is_of(culprit, &view->processes[p]))
                continue;
            found = true;
            if (!culprit_of[p])
                culprit_of[p] = culprit;
        }
        if (!found)
            unseen[count++] = culprit;
    }
    return count;
}

/* Communicators that have ended on all ranks: not of interest. */
static void hide_ended(struct ng_table *table, bool *group_lives)
{
    const struct ng_view *view = table->view;

    NG_EACH (member, view->members, view->member_count) {
        /* An abort is of interest as long as its process lives. */
        if (!ng_group_state_is_over(member->state) ||
            (member->state == NG_GROUP_ABORTED && lives(&view->processes[member->process])))
            group_lives[member->group] = true;
    }
    for (uint32_t i = 0; i < view->member_count; i++)
        table->rows[i].hidden = !group_lives[view->members[i].group] || is_older_handle(view, i);
}

static enum ng_table_place place_of(const struct ng_table *table, const struct ng_table_row *row)
{
    if (row->culprit)
        return !row->member || row->process == NG_TABLE_NOBODY ||
                       table->view->groups[row->member->group].id == table->verdict->group_id
                   ? NG_PLACE_CULPRIT
                   : NG_PLACE_SUSPICIOUS;
    const struct ng_view_process *process = &table->view->processes[row->process];
    bool over = !row->member || ng_group_state_is_over(row->member->state);
    if (process->life == NG_LIFE_EXITED && process->exit_status == 0 && over)
        return NG_PLACE_OVER;
    if (!lives(process))
        return NG_PLACE_GONE;
    if (row->behind && row->behind_ns >= UNUSUAL_NS)
        return NG_PLACE_BEHIND;
    if (row->phase != NG_PHASE_NONE && row->age_ns >= UNUSUAL_NS)
        return NG_PLACE_WAITING;
    return over ? NG_PLACE_OVER : NG_PLACE_OTHER;
}

static int compare_rows(const void *left, const void *right, void *context)
{
    const struct ng_table *table = context;
    const struct ng_table_row *a = &table->rows[*(const uint32_t *)left];
    const struct ng_table_row *b = &table->rows[*(const uint32_t *)right];

    if (a->place != b->place)
        return a->place < b->place ? -1 : 1;
    if (a->place == NG_PLACE_BEHIND && a->behind_ns != b->behind_ns)
        return a->behind_ns > b->behind_ns ? -1 : 1;
    if (a->place == NG_PLACE_WAITING && a->age_ns / UNUSUAL_NS != b->age_ns / UNUSUAL_NS)
        return a->age_ns > b->age_ns ? -1 : 1;
    if (a->rank != b->rank)
        return (unsigned)a->rank < (unsigned)b->rank ? -1 : 1;
    return *(const uint32_t *)left < *(const uint32_t *)right ? -1 : 1;
}

static int compare_names(const void *left, const void *right, void *context)
{
    const struct ng_view *view = context;

    return strcmp(view->groups[*(const uint32_t *)left].name,
                  view->groups[*(const uint32_t *)right].name);
}

static int find_shared_names(struct ng_table *table)
{
    const struct ng_view *view = table->view;
    NG_FREED uint32_t *groups = calloc(view->group_count + 1, sizeof(*groups));

    if (!groups)
        return -ENOMEM;
    for (uint32_t i = 0; i < view->group_count; i++)
        groups[i] = i;
    qsort_r(groups, view->group_count, sizeof(*groups), compare_names, (void *)view);
    for (uint32_t i = 1; i < view->group_count; i++)
        if (strcmp(view->groups[groups[i]].name, view->groups[groups[i - 1]].name) == 0)
            table->shares_name[groups[i]] = table->shares_name[groups[i - 1]] = true;
    return 0;
}

static int compare_texts(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

static int compare_ints(const void *left, const void *right)
{
    int a = *(const int *)left, b = *(const int *)right;

    return NG_ORDER(a, b);
}

/* Hosts, ranks, lives. */
static int count_processes(struct ng_table *table)
{
    const struct ng_view *view = table->view;
    const char **hosts = calloc(view->process_count + 1, sizeof(*hosts));
    NG_FREED int *ranks = calloc(view->process_count + 1, sizeof(*ranks));
    uint32_t rank_count = 0;

    table->hosts = hosts;
    for (uint32_t i = 0; hosts && ranks && i < view->process_count; i++) {
        const struct ng_view_process *process = &view->processes[i];
        hosts[i] = process->host;
        if (process->rank >= 0)
            ranks[rank_count++] = process->rank;
        if (process->world_size > (int)table->expected)
            table->expected = (uint32_t)process->world_size;
        table->lives[process->life < NG_TABLE_LIVES ? process->life : NG_LIFE_UNKNOWN]++;
    }
    if (hosts && ranks) {
        qsort(hosts, view->process_count, sizeof(*hosts), compare_texts);
        qsort(ranks, rank_count, sizeof(*ranks), compare_ints);
        for (uint32_t i = 0; i < view->process_count; i++)
            if (i == 0 || strcmp(hosts[i], hosts[table->host_count - 1]) != 0)
                hosts[table->host_count++] = hosts[i];
        for (uint32_t i = 0; i < rank_count; i++)
            table->seen += i == 0 || ranks[i] != ranks[i - 1];
    }
    /* Without the launcher's value, use the largest group. */
    NG_EACH (group, view->groups, view->group_count) {
        if (group->nranks > (int)table->expected)
            table->expected = (uint32_t)group->nranks;
        if (group->member_count > table->seen)
            table->seen = group->member_count;
    }
    return hosts && ranks ? 0 : -ENOMEM;
}

/* Rows of all members, of processes without a member to show, and of culprits not in the view. */
static int make_rows(struct ng_table *table)
{
    const struct ng_view *view = table->view;
    uint32_t culprits = table->verdict->culprit_count, processes = view->process_count;
    NG_FREED const struct ng_culprit **culprit_of = calloc(processes + 1, sizeof(void *));
    NG_FREED const struct ng_culprit **unseen = calloc(culprits + 1, sizeof(void *));
    NG_FREED bool *flags = calloc((size_t)processes + view->group_count + 1, sizeof(*flags));

    table->rows =
        calloc((size_t)view->member_count + processes + culprits + 1, sizeof(*table->rows));
    table->order =
        calloc((size_t)view->member_count + processes + culprits + 1, sizeof(*table->order));
    if (!table->rows || !table->order || !culprit_of || !unseen || !flags)
        return -ENOMEM;
    bool *shown = flags, *group_lives = flags + processes;
    uint32_t unseen_count = match_culprits(table, culprit_of, unseen);
    for (uint32_t i = 0; i < view->member_count; i++)
        table->rows[i] =
            (struct ng_table_row){.process = view->members[i].process, .member = &view->members[i]};
    hide_ended(table, group_lives);
    for (uint32_t i = 0; i < view->member_count; i++) {
        struct ng_table_row *row = &table->rows[i];
        const struct ng_culprit *culprit = culprit_of[row->process];
        for (uint32_t k = 0; culprit && view->processes[row->process].drives_several &&
                             !row->culprit && k < culprits;
             k++)
            if (table->verdict->culprits[k].pid == culprit->pid &&
                is_culprit(table, row, &table->verdict->culprits[k]))
                row->culprit = &table->verdict->culprits[k];
        if (culprit && !view->processes[row->process].drives_several)
            row->culprit = culprit;
        if (row->culprit && view->groups[row->member->group].id == table->verdict->group_id &&
            !is_older_handle(view, i))
            row->hidden = false;
        shown[row->process] |= !row->hidden;
    }
    table->row_count = view->member_count;
    for (uint32_t i = 0; i < processes; i++)
        if (!shown[i])
            table->rows[table->row_count++] =
                (struct ng_table_row){.process = i, .culprit = culprit_of[i]};
    for (uint32_t i = 0; i < unseen_count; i++)
        table->rows[table->row_count++] =
            (struct ng_table_row){.process = NG_TABLE_NOBODY, .culprit = unseen[i]};
    return 0;
}

int ng_table_make(const struct ng_view *view, const struct ng_verdict *verdict,
                  struct ng_table *ret_table)
{
    struct ng_table table = {.view = view, .verdict = verdict};
    int error = make_rows(&table);

    table.front = calloc(view->group_count + 1, sizeof(*table.front));
    table.shares_name = calloc(view->group_count + 1, sizeof(*table.shares_name));
    if (!table.front || !table.shares_name)
        error = -ENOMEM;
    error = error ?: measure_groups(&table);
    error = error ?: find_phases(&table);
    error = error ?: find_ranks(&table);
    error = error ?: find_shared_names(&table);
    error = error ?: count_processes(&table);
    if (error) {
        ng_table_fini(&table);
        return error;
    }
    for (uint32_t i = 0; i < table.row_count; i++) {
        table.rows[i].place = place_of(&table, &table.rows[i]);
        if (!table.rows[i].hidden)
            table.order[table.order_count++] = i;
    }
    qsort_r(table.order, table.order_count, sizeof(*table.order), compare_rows, &table);
    *ret_table = table;
    return 0;
}

void ng_table_fini(struct ng_table *table)
{
    free(table->rows);
    free(table->order);
    free(table->front);
    free(table->shares_name);
    free(table->hosts);
    *table = (struct ng_table){0};
}
