/*
 * The roll call while ranks wait inside NCCL for others.
 *
 * The line is made from a view alone. An entry on the board decides which of the waiting
 * ranks logs it: the rank that puts the entry logs, and no other does while the entry lives.
 * Entered by the incident thread.
 */
#include "core/incident/roll_call.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/comm/comm.h"
#include "core/comm/ring.h"
#include "core/runtime/runtime.h"
#include "core/util/clock.h"
#include "core/util/log.h"
#include "core/util/macros.h"
#include "core/util/memory.h"
#include "core/util/text.h"
#include "core/verdict/init_mismatch.h"

#define PERIOD_NS (10 * NG_S)
#define SLOW_NS                                                                                    \
    (30 * NG_S) /* a creation that is merely slow takes less; with thousands of ranks, perhaps */
#define KEEP_NS     (PERIOD_NS - NG_S / 2) /* the roll call is logged again by then */
#define PLACES_MAX  12u /* places where missing ranks are; the rest is "elsewhere" */
#define PLACE_BYTES 160u
#define RANKS_BYTES 96u
#define LINES_MAX   4u /* per view: threads may wait in several creating calls */

/* ---- Writing the line ---- */

/* Missing ranks that are in the same place. */
struct place {
    char where[PLACE_BYTES];
    int *ranks;
    uint32_t count;
};

static void add_group(struct ng_text *text, const struct ng_view *view, uint64_t id)
{
    uint32_t group = id ? ng_view_find_group(view, id) : UINT32_MAX;

    if (group != UINT32_MAX && view->groups[group].name[0])
        ng_text_add(text, "group \"%.63s\"", view->groups[group].name);
    else
        ng_text_add(text, "group %016" PRIx64, id);
}

/* The member whose work the device of a process has not finished; NULL none. */
static const struct ng_view_member *pending_of(const struct ng_view_index *processes,
                                               uint32_t process)
{
    const struct ng_view_member *oldest = NULL;

    for (uint32_t k = processes->first[process]; k < processes->first[process + 1]; k++) {
        const struct ng_view_member *member = &processes->view->members[processes->members[k]];
        if (member->pending_record && (!oldest || member->pending_age_ns > oldest->pending_age_ns))
            oldest = member;
    }
    return oldest;
}

/* `here`: the group in which it is missing. */
static void add_present(struct ng_text *text, const struct ng_view_index *processes,
                        uint32_t process, uint64_t here)
{
    const struct ng_view *view = processes->view;
    const struct ng_view_call *call = ng_view_index_call(processes, process);
    const struct ng_view_member *pending = call ? NULL : pending_of(processes, process);

    if (call && call->group_id == here && ng_op_table[call->op].op_class == NG_CLASS_CREATE) {
        ng_text_add(text, "in the same %s, by another rank number", ng_op_name(call->op));
    } else if (call) {
        ng_text_add(text, "in %s", ng_op_name(call->op));
        if (call->seq)
            ng_text_add(text, " #%" PRIu64, call->seq);
        if (call->group_id) {
            ng_text_add(text, " of ");
            add_group(text, view, call->group_id);
        }
    } else if (pending) {
        ng_text_add(text, "its device in ");
        if (pending->pending_seq)
            ng_text_add(text, "collective #%" PRIu64, pending->pending_seq);
        else
            ng_text_add(text, "sends and receives");
        ng_text_add(text, " of ");
        add_group(text, view, view->groups[pending->group].id);
    } else {
        ng_text_add(text, "alive, in no NCCL call");
    }
}

static void say_where(const struct ng_view_index *processes, const struct ng_wait *wait,
                      const struct ng_absentee *absentee, char ret_where[PLACE_BYTES])
{
    static const char *const ends[] = {[NG_LIFE_DEAD] = "dead",
                                       [NG_LIFE_EXITED] = "left",
                                       [NG_LIFE_STOPPED] = "frozen",
                                       [NG_LIFE_ENDED_BY_GUARD] = "ended by its guard"};
    struct ng_text text = {ret_where, 0, PLACE_BYTES};
    uint32_t process = UINT32_MAX;

    ret_where[0] = '\0';
    if (absentee->member)
        process = absentee->member->process;
    else if (ng_view_index_is_world(processes, wait->group))
        process = ng_view_index_of_rank(processes, absentee->group_rank);
    if (process == UINT32_MAX) {
        ng_text_add(&text, "no sign of it: not started, or it has not created a communicator yet");
        return;
    }
    enum ng_life life = processes->view->processes[process].life;
    if (life == NG_LIFE_LOST)
        ng_text_add(&text, "on host %.63s, which sends no messages any more",
                    processes->view->processes[process].host);
    else if (life < NG_COUNT(ends) && ends[life])
        ng_text_add(&text, "%s", ends[life]);
    if (text.used)
        return;
    if (absentee->failed)
        ng_text_add(&text, "NCCL reported that it failed, ");
    else if (absentee->left_group)
        ng_text_add(&text, "has destroyed its communicator, ");
    else if (absentee->open_group)
        ng_text_add(&text, "has not closed its NCCL group, ");
    add_present(&text, processes, process, processes->view->groups[wait->group].id);
}

/* The place of this name; the last one collects the rest if there are too many. */
static struct place *find_place(struct place *places, uint32_t *count, const char *where)
{
    for (uint32_t i = 0; i < *count; i++)
        if (strcmp(places[i].where, where) == 0)
            return &places[i];
    if (*count < PLACES_MAX) {
        snprintf(places[*count].where, PLACE_BYTES, "%s",
                 *count == PLACES_MAX - 1 ? "elsewhere" : where);
        ++*count;
    }
    return &places[*count - 1];
}

static int gather_places(const struct ng_view_index *processes, const struct ng_wait *wait,
                         struct ng_arena *arena, struct place *places, uint32_t *ret_count)
{
    char where[PLACE_BYTES];

    *ret_count = 0;
    for (uint32_t i = 0; i < wait->absentee_count; i++) {
        say_where(processes, wait, &wait->absentees[i], where);
        struct place *place = find_place(places, ret_count, where);
        if (!place->ranks)
            place->ranks = ng_arena_alloc(arena, wait->absentee_count * sizeof(*place->ranks));
        if (!place->ranks)
            return -ENOMEM;
        place->ranks[place->count++] = wait->absentees[i].group_rank;
    }
    return 0;
}

/* Ranks of the group that are not absent. */
static int gather_arrived(const struct ng_view *view, const struct ng_wait *wait,
                          struct ng_arena *arena, int **ret_ranks, uint32_t *ret_count)
{
    int nranks = view->groups[wait->group].nranks;
    int *ranks = ng_arena_alloc(arena, ((size_t)nranks + 1) * sizeof(*ranks));
    uint32_t count = 0, absentee = 0;

    if (!ranks)
        return -ENOMEM;
    for (int rank = 0; rank < nranks; rank++) {
        if (rank == wait->left_out)
            continue;
        while (absentee < wait->absentee_count && wait->absentees[absentee].group_rank < rank)
            absentee++;
        if (absentee == wait->absentee_count || wait->absentees[absentee].group_rank != rank)
            ranks[count++] = rank;
    }
    *ret_ranks = ranks;
    *ret_count = count;
    return 0;
}

static void add_ranks(struct ng_text *line, const int *ranks, uint32_t count)
{
    char text[RANKS_BYTES];

    ng_text_ranks(ranks, count, text, sizeof(text));
    ng_text_add(line, "%s", text);
}

int ng_roll_call_line(const struct ng_view_index *processes, const struct ng_wait_graph *waits,
                      uint32_t index, struct ng_arena *arena,
                      char ret_line[NG_ROLL_CALL_LINE_BYTES], enum ng_log_level *ret_level)
{
    const struct ng_view *view = processes->view;
    const struct ng_wait *wait = &waits->waits[index];
    const struct ng_view_group *group = &view->groups[wait->group];
    struct ng_text line = {ret_line, 0, NG_ROLL_CALL_LINE_BYTES};
    struct place places[PLACES_MAX] = {0};
    struct ng_init_mismatch mismatch;
    uint32_t count, arrived_count;
    int *arrived;

    ret_line[0] = '\0';
    *ret_level = NG_LOG_WARN;
    int error = gather_places(processes, wait, arena, places, &count)
                    ?: gather_arrived(view, wait, arena, &arrived, &arrived_count);
    if (error)
        return error;
    int64_t tenths = wait->age_ns / (NG_S / 10);
    enum ng_op op = ng_wait_op(view, wait);
    ng_text_add(&line, "%s", op ? ng_op_name(op) : "a call");
    if (wait->type == NG_WAIT_COLLECTIVE)
        ng_text_add(&line, " #%" PRIu64 " (cold: NCCL connects the ranks inside it)", wait->seq);
    ng_text_add(&line, " of ");
    add_group(&line, view, group->id);
    ng_text_add(&line, " waits for %" PRId64 ".%" PRId64 " s: ", tenths / 10, tenths % 10);
    if (group->nranks <= 0 || (wait->op == NG_OP_CommShrink && wait->left_out < 0)) {
        ng_text_add(&line, "%" PRIu32 " rank%s came; how many must come is not known here",
                    wait->waiter_count, wait->waiter_count == 1 ? "" : "s");
        return 0;
    }
    if (wait->type == NG_WAIT_P2P) {
        ng_text_add(&line, "%" PRIu32 " rank%s inside the call", wait->waiter_count,
                    wait->waiter_count == 1 ? " is" : "s are");
    } else {
        ng_text_add(&line, "%" PRIu32 " of %d came (", arrived_count,
                    group->nranks - (wait->left_out >= 0));
        add_ranks(&line, arrived, arrived_count);
        ng_text_add(&line, ")");
    }
    ng_text_add(&line, "%s", count ? "; missing" : ", nobody is missing");
    for (uint32_t i = 0; i < count; i++) {
        ng_text_add(&line, "%s ", i ? ";" : "");
        add_ranks(&line, places[i].ranks, places[i].count);
        ng_text_add(&line, " (%s)", places[i].where);
    }
    int differ = ng_init_mismatch_find(processes, waits, index, arena, &mismatch);
    if (differ > 0)
        ng_text_add(&line, "; they disagree on the %s", ng_init_differ_text(mismatch.differ));
    else if (differ == 0 && !count && wait->age_ns < SLOW_NS)
        *ret_level = NG_LOG_INFO;
    return 0;
}

/* ---- When it is logged, and by which rank ---- */

/* Incident thread alone. */
static NG_FORGOTTEN struct {
    uint64_t key; /* of the wait of this process */
    int64_t next_ns;
} own;

/* The common key of ranks in the same wait: from the id of the group or, while a group is being
 * created from a parent, of that parent. A creation that was told of does not silence the first
 * call of its group. */
static uint64_t key_of(const struct ng_comm *comm)
{
    uint64_t id = NG_LOAD(comm->group->id), parent_id = NG_LOAD(comm->group->parent_id);

    if (atomic_load(&comm->group->state) != NG_GROUP_CREATING)
        return ~id;
    return parent_id ? parent_id : id;
}

/* May a call of this operation on this communicator wait for others inside NCCL? */
static bool may_wait(const struct ng_box_thread *thread, uint32_t op, const struct ng_comm *comm)
{
    enum ng_op_class op_class = ng_op_table[op].op_class;

    if (op_class == NG_CLASS_CREATE || op_class == NG_CLASS_HOST)
        return true;
    if (ng_ring_is_cold_call(thread, (enum ng_op)op))
        return true;
    return op_class == NG_CLASS_GROUP && comm &&
           (atomic_load(&comm->group->state) == NG_GROUP_CREATING ||
            NG_LOAD(comm->group->scheduled) == 0 || NG_LOAD(comm->host_calls->op));
}

/* The key of the longest wait of a thread of this process, if it has lasted for the suspect time; 0
 * none. */
static uint64_t find_waiting(int64_t now_mono_ns)
{
    const struct ng_box *box = &ng_guard.box;
    uint32_t used = NG_LOAD(box->header->thread_used);
    int64_t oldest_ns = now_mono_ns - ng_guard.config.suspect_ns;
    uint64_t key = 0;

    for (uint32_t i = 0; i < used && i < box->thread_capacity; i++) {
        const struct ng_box_thread *thread = &box->threads[i];
        uint32_t op = atomic_load_explicit(&thread->op, memory_order_acquire);
        int64_t since = NG_LOAD(thread->since_mono_ns);
        uint32_t slot = NG_LOAD(thread->group_slot);
        struct ng_comm *comm = slot < ng_comm_count() ? ng_comm_at(slot) : NULL;
        if (!op || op >= NG_OP_LIMIT || !NG_LOAD(thread->tid) || since > oldest_ns ||
            !may_wait(thread, op, comm) || ng_deadline_rests(comm))
            continue;
        oldest_ns = since;
        key = comm ? key_of(comm) : 1 + ng_guard.launch.run;
    }
    return key;
}

/* Does this process log the roll call now? */
static bool is_ours(struct ng_board *board, uint64_t key)
{
    uint64_t uid = ng_box_uid(ng_guard.box.header);
    char name[NG_BOARD_KEY_MAX];
    struct ng_board_entry entry = {
        .key = name, .data = &uid, .bytes = sizeof(uid), .keep_ns = KEEP_NS};

    snprintf(name, sizeof(name), "roll:%016" PRIx64, key);
    return board->ops->put(board, &entry) != -EEXIST;
}

/* Is a member of this process in this wait? */
static bool has_self(const struct ng_view *view, const struct ng_wait_graph *waits, uint32_t wait)
{
    for (uint32_t i = 0; i < view->member_count; i++)
        if (waits->wait_of_member[i] == (int32_t)wait &&
            view->processes[view->members[i].process].self)
            return true;
    return false;
}

static void tell(const struct ng_view *view)
{
    struct ng_view_index processes;
    struct ng_arena arena = {0};
    struct ng_wait_graph waits;
    char line[NG_ROLL_CALL_LINE_BYTES];
    enum ng_log_level level;
    uint32_t told = 0;

    /* Other ranks may have arrived a little later than this one and wait as well. */
    int error = ng_wait_graph_find(view, ng_guard.config.suspect_ns / 2, &arena, &waits)
                    ?: ng_view_index_find(view, &arena, &processes);
    for (uint32_t w = 0; w < waits.count && !error && told < LINES_MAX; w++) {
        const struct ng_wait *wait = &waits.waits[w];
        bool roll = wait->type == NG_WAIT_CREATE || wait->type == NG_WAIT_HOST || wait->cold ||
                    (wait->type == NG_WAIT_P2P && wait->on_host);
        if (!roll || !has_self(view, &waits, w) ||
            ng_roll_call_line(&processes, &waits, w, &arena, line, &level) != 0)
            continue;
        ng_log(level, "roll call: %s", line);
        told += ng_log_enabled(level);
    }
    ng_arena_reset(&arena);
}

void ng_roll_call_report(struct ng_board *board, int (*look)(struct ng_view *ret_view))
{
    int64_t now = ng_clock_mono_ns();
    struct ng_view view;

    if (!board || !ng_guard.config.suspect_ns || !ng_log_enabled(NG_LOG_WARN))
        return;
    uint64_t key = find_waiting(now);
    if (key != own.key)
        own.next_ns = now;
    own.key = key;
    if (!key || now < own.next_ns)
        return;
    own.next_ns = now + PERIOD_NS;
    if (!is_ours(board, key))
        return;
    if (look(&view) == 0)
        tell(&view);
    ng_view_fini(&view);
}
