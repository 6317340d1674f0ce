/*
 * Deadlines of communicators and operations.
 *
 * Entered by the watchdog, by the incident thread and by program threads. All state is in atomic
 * words, each valid by itself. Must never wait: the watchdog calls this in its rounds.
 */
#include "core/comm/deadline.h"

#include <errno.h>
#include <inttypes.h>

#include "core/comm/comm.h"
#include "core/runtime/runtime.h"
#include "core/util/clock.h"
#include "core/util/log.h"
#include "core/util/macros.h"
#include "core/util/memory.h"
#include "core/util/text.h"

/* A rank that still waits after this checks the others again. */
#define WITH_OTHERS_NS (10 * NG_S)

/* Settings for all communicators, including later ones, and for calls that belong to none. */
static struct ng_deadline everything NG_LARGE;

/* Suspensions from outside: of the job, and of individual groups. Written by the incident thread
 * only. */
static struct suspension {
    _Atomic uint64_t group_id;     /* [0]: the job */
    _Atomic int64_t until_mono_ns; /* 0 over */
    atomic_bool with_others;       /* because other ranks pause, not by command */
} suspensions[65];
#define SUSPENSIONS NG_COUNT(suspensions)

static void reset(struct ng_deadline *deadline)
{
    for (unsigned op = 0; op < NG_OP_LIMIT; op++) {
        NG_STORE(deadline->timeout_ns[op], 0);
        NG_STORE(deadline->suspect_ns[op], 0);
        NG_STORE(deadline->policy[op], 0);
        NG_STORE(deadline->check[op], NG_RULE_CHECK_UNSAID);
    }
    NG_STORE(deadline->set_ns, 0);
    NG_STORE(deadline->phases, 0);
    NG_STORE(deadline->extended_ns, 0);
    NG_STORE(deadline->last_extended_ns, 0);
    NG_STORE(deadline->last_extended_mono_ns, 0);
    for (unsigned i = 0; NG_LOAD(deadline->has_next) && i < NG_DEADLINE_NEXT; i++)
        NG_STORE(deadline->next[i].call, 0);
    NG_STORE(deadline->has_next, false);
    NG_STORE(deadline->lost_seq, 0);
    NG_STORE(deadline->lost_p2p, 0);
    NG_STORE(deadline->told, false);
}

/* The deadline that the program gave to one of these `count` calls, of which `last` is the newest:
 * that of the newest which has one; 0 none. */
static int64_t next_of(const struct ng_deadline *deadline, uint64_t last, uint64_t count)
{
    uint64_t newest = 0;
    int64_t said = 0;

    for (unsigned i = 0; i < NG_DEADLINE_NEXT; i++) {
        uint64_t call = atomic_load_explicit(&deadline->next[i].call, memory_order_acquire);
        if (call <= newest || call > last || last - call >= count)
            continue;
        newest = call;
        said = NG_LOAD(deadline->next[i].timeout_ns);
    }
    return said;
}

/* Calls that a communicator has made. */
static uint64_t calls_entered(const struct ng_comm *comm)
{
    return NG_LOAD(comm->group->entered) + NG_LOAD(comm->group->p2p_entered);
}

uint64_t ng_deadline_calls_over(const struct ng_comm *comm)
{
    uint64_t completed = NG_LOAD(comm->group->completed), lost = NG_LOAD(comm->deadline.lost_seq);

    return (completed > lost ? completed : lost) + NG_LOAD(comm->group->p2p_completed) +
           NG_LOAD(comm->deadline.lost_p2p);
}

void ng_deadline_lose(struct ng_comm *comm, uint64_t last_seq, uint64_t p2p)
{
    if (last_seq)
        NG_STORE(comm->deadline.lost_seq, last_seq);
    NG_STORE(comm->deadline.lost_p2p, NG_LOAD(comm->deadline.lost_p2p) + p2p);
}

static enum ng_rest suspension_of(uint64_t group_id)
{
    enum ng_rest rest = NG_REST_NONE;

    for (unsigned i = 0; i < SUSPENSIONS; i++) {
        if (!atomic_load_explicit(&suspensions[i].until_mono_ns, memory_order_acquire) ||
            (i > 0 && (!group_id || NG_LOAD(suspensions[i].group_id) != group_id)))
            continue;
        if (!NG_LOAD(suspensions[i].with_others))
            return NG_REST_OWN;
        rest = NG_REST_WITH_OTHERS;
    }
    return rest;
}

static enum ng_rest rest_of(const struct ng_comm *comm)
{
    if (atomic_load(&everything.phases) || (comm && atomic_load(&comm->deadline.phases)))
        return NG_REST_OWN;
    return suspension_of(comm ? NG_LOAD(comm->group->id) : 0);
}

bool ng_deadline_rests(const struct ng_comm *comm)
{
    return rest_of(comm) != NG_REST_NONE;
}

int64_t ng_deadline_shown(const struct ng_comm *comm)
{
    /* The unfinished call, or the one to come: nobody publishes it again when that is entered. */
    uint64_t newest = calls_entered(comm), call = newest + (newest <= ng_deadline_calls_over(comm));
    int64_t timeout_ns = ng_deadline_of_work(comm, NG_OP_NONE, call, 1);

    return timeout_ns ? timeout_ns : NG_DEADLINE_NONE;
}

/* Publish it in the black box, for other processes. */
static void show(struct ng_comm *comm)
{
    int policy = NG_LOAD(comm->deadline.policy[NG_OP_NONE]);

    NG_STORE(comm->group->timeout_ns, ng_deadline_shown(comm));
    NG_STORE(comm->group->policy, (uint32_t)(policy ? policy : ng_guard.config.on_timeout + 1));
    /* Recomputed until stable: the thread with the last change publishes last. */
    enum ng_rest rest;
    do
        atomic_store(&comm->group->rests, rest = rest_of(comm));
    while (rest != rest_of(comm));
}

static void show_all(void)
{
    NG_EACH_COMM (comm)
        show(comm);
}

/* ---- Contradictions ---- */

static void describe(int64_t ns, char *ret_text, size_t bytes)
{
    struct ng_text text = {ret_text, 0, bytes};

    ret_text[0] = '\0';
    if (ns == NG_DEADLINE_NONE)
        ng_text_add(&text, "none");
    else
        ng_text_add_duration(&text, ns);
}

/* Logged once for each communicator. `holds` and `loses` say which source each comes from. */
static void tell_contradiction(struct ng_comm *comm, const char *holds, int64_t holds_ns,
                               const char *loses, int64_t loses_ns)
{
    char name[NG_BOX_NAME_BYTES], held[32], lost[32];

    if (!holds_ns || !loses_ns || holds_ns == loses_ns ||
        atomic_exchange(&comm->deadline.told, true))
        return;
    ng_box_read_name(comm->group, name);
    describe(holds_ns, held, sizeof(held));
    describe(loses_ns, lost, sizeof(lost));
    ng_log(NG_LOG_WARN,
           "two deadlines for group %s%s%s%016" PRIx64 ": %s from %s holds, %s from %s does not",
           name[0] ? "\"" : "", name, name[0] ? "\", id " : "", NG_LOAD(comm->group->id), held,
           holds, lost, loses);
}

/* The program and a rule both set the deadline of collectives. The rule of an operation is compared
 * too: the program's deadline is for all of them. */
static void compare_with_rules(struct ng_comm *comm)
{
    int64_t own_ns = NG_LOAD(comm->deadline.set_ns);
    int64_t set_ns = own_ns ? own_ns : NG_LOAD(everything.set_ns);

    for (unsigned op = 0; set_ns && op < NG_OP_LIMIT; op++)
        if (!ng_op_is_init((enum ng_op)op))
            tell_contradiction(comm, "ncclguard_timeout_set", set_ns, "NCCLGUARD_RULES",
                               NG_LOAD(comm->deadline.timeout_ns[op]));
}

void ng_deadline_begin(struct ng_comm *comm)
{
    reset(&comm->deadline);
    show(comm);
}

void ng_deadline_limit(struct ng_comm *comm, const struct ng_deadline_limits *limits)
{
    struct ng_deadline *deadline = &comm->deadline;

    for (unsigned op = 0; op < NG_OP_LIMIT; op++) {
        NG_STORE(deadline->timeout_ns[op], limits->timeout_ns[op]);
        NG_STORE(deadline->suspect_ns[op], limits->suspect_ns[op]);
        NG_STORE(deadline->policy[op], limits->policy[op]);
        NG_STORE(deadline->check[op], limits->check[op]);
    }
    compare_with_rules(comm);
    show(comm);
}

/* Closing an NCCL group that creates communicators, or in which ranks wait on the host, has the
 * deadline of that call. */
static enum ng_op made_by(const struct ng_comm *comm, enum ng_op op)
{
    if (!comm || ng_op_table[op].op_class != NG_CLASS_GROUP)
        return op;
    if (NG_LOAD(comm->group->state) == NG_GROUP_CREATING)
        return (enum ng_op)NG_LOAD(comm->group->created_by);
    uint32_t host_call = NG_LOAD(comm->host_calls->op);
    return host_call ? (enum ng_op)host_call : op;
}

/* The communicator whose creating call this is, if it is a child: the call is on its parent, and in
 * an NCCL group on the child. NULL none. */
static const struct ng_comm *child_of_call(const struct ng_comm *comm, enum ng_op op)
{
    bool derives = op == NG_OP_CommSplit || op == NG_OP_CommShrink || op == NG_OP_CommGrow;

    for (uint32_t i = 0, count = comm && derives ? ng_comm_count() : 0; i < count; i++) {
        const struct ng_comm *child = ng_comm_at(i), *parent = atomic_load(&child->making.parent);
        if (parent && (parent == comm || child == comm) &&
            NG_LOAD(child->group->state) == NG_GROUP_CREATING &&
            NG_LOAD(child->group->created_by) == (uint32_t)op)
            return child;
    }
    return NULL;
}

/* What rules set for a call, by its communicator's list: of a call that makes a child, rules on
 * the child go before those on the parent. 0 not set. */
static int64_t said_of(const struct ng_comm *comm, enum ng_op op, bool suspect)
{
    const struct ng_comm *child = child_of_call(comm, op);
    const struct ng_comm *both[] = {child, child ? atomic_load(&child->making.parent) : comm};
    int64_t said = 0;

    for (unsigned i = 0; i < 2 && !said; i++)
        if (both[i])
            said = suspect ? NG_LOAD(both[i]->deadline.suspect_ns[op])
                           : NG_LOAD(both[i]->deadline.timeout_ns[op]);
    return said;
}

/* The first value that is set; 0 for "none". */
static int64_t choose(const int64_t *said, unsigned count, int64_t otherwise)
{
    NG_EACH (entry, said, count)
        if (*entry)
            return *entry == NG_DEADLINE_NONE ? 0 : *entry;
    return otherwise;
}

int64_t ng_deadline_of_call(const struct ng_comm *comm, enum ng_op op)
{
    op = made_by(comm, (unsigned)op < NG_OP_LIMIT ? op : NG_OP_NONE);
    bool init = ng_op_is_init(op);
    int64_t said[] = {
        comm && !init ? NG_LOAD(comm->deadline.set_ns) : 0,
        init ? 0 : NG_LOAD(everything.set_ns),
        said_of(comm, op, false),
    };

    return choose(said, NG_COUNT(said),
                  init ? ng_guard.config.init_timeout_ns : ng_guard.config.timeout_ns);
}

int64_t ng_deadline_timeout(const struct ng_comm *comm, enum ng_op op)
{
    bool retried = comm && atomic_load(&comm->may_retry) &&
                   ng_op_is_init(made_by(comm, (unsigned)op < NG_OP_LIMIT ? op : NG_OP_NONE));

    return retried ? 0 : ng_deadline_of_call(comm, op);
}

int64_t ng_deadline_of_work(const struct ng_comm *comm, enum ng_op op, uint64_t last,
                            uint64_t count)
{
    bool may =
        comm && last && NG_LOAD(comm->deadline.has_next) && !ng_op_is_init(made_by(comm, op));
    int64_t said = may ? next_of(&comm->deadline, last, count) : 0;

    if (said)
        return said == NG_DEADLINE_NONE ? 0 : said;
    return ng_deadline_timeout(comm, op);
}

int64_t ng_deadline_of_group(uint64_t group_id, enum ng_op op)
{
    int64_t shortest_ns = 0;
    bool found = false;

    NG_EACH_COMM (comm) {
        if (!group_id || NG_LOAD(comm->group->id) != group_id)
            continue;
        int64_t timeout_ns = ng_deadline_of_call(comm, op);
        if (timeout_ns && (!shortest_ns || timeout_ns < shortest_ns))
            shortest_ns = timeout_ns;
        found = true;
    }
    return found ? shortest_ns : ng_deadline_of_call(NULL, op);
}

int64_t ng_deadline_suspect(const struct ng_comm *comm, enum ng_op op, bool cold)
{
    op = made_by(comm, (unsigned)op < NG_OP_LIMIT ? op : NG_OP_NONE);
    int64_t said = said_of(comm, op, true);
    int64_t configured = ng_guard.config.suspect_ns;

    if (configured && (cold || ng_op_table[op].op_class == NG_CLASS_CREATE ||
                       ng_op_table[op].op_class == NG_CLASS_HOST))
        configured = ng_guard.config.cold_suspect_ns;
    return choose(&said, 1, configured);
}

static int suspend(uint64_t group_id, int64_t until_mono_ns, bool with_others)
{
    struct suspension *place = group_id ? NULL : &suspensions[0];

    for (unsigned i = SUSPENSIONS; group_id && i-- > 1;)
        if (!NG_LOAD(suspensions[i].until_mono_ns))
            place = &suspensions[i];
    for (unsigned i = 1; group_id && i < SUSPENSIONS; i++)
        if (NG_LOAD(suspensions[i].until_mono_ns) && NG_LOAD(suspensions[i].group_id) == group_id)
            place = &suspensions[i];
    if (!place)
        return -ENOSPC;
    /* A command, or a longer pause, is left as it is. */
    int64_t there = NG_LOAD(place->until_mono_ns);
    if (with_others && there && (!NG_LOAD(place->with_others) || there >= until_mono_ns))
        return 0;
    NG_STORE(place->group_id, group_id);
    NG_STORE(place->with_others, with_others);
    atomic_store(&place->until_mono_ns, until_mono_ns);
    show_all();
    return 0;
}

int ng_deadline_suspend(uint64_t group_id, int64_t until_mono_ns)
{
    return suspend(group_id, until_mono_ns, false);
}

int ng_deadline_rest_with_others(uint64_t group_id)
{
    return suspend(group_id, ng_clock_mono_ns() + WITH_OTHERS_NS, true);
}

void ng_deadline_resume(uint64_t group_id)
{
    for (unsigned i = 0; i < SUSPENSIONS; i++)
        if (!group_id || NG_LOAD(suspensions[i].group_id) == group_id)
            atomic_store(&suspensions[i].until_mono_ns, 0);
    show_all();
}

void ng_deadline_expire_suspensions(int64_t now_mono_ns)
{
    bool over = false;

    for (unsigned i = 0; i < SUSPENSIONS; i++) {
        int64_t until = NG_LOAD(suspensions[i].until_mono_ns);
        /* Unless a command has just changed it. */
        if (until && until <= now_mono_ns &&
            atomic_compare_exchange_strong(&suspensions[i].until_mono_ns, &until, 0)) {
            over = true;
            if (!NG_LOAD(suspensions[i].with_others))
                ng_log(NG_LOG_WARN, "the time of a suspension is over: deadlines run again");
        }
    }
    if (over)
        show_all();
}

static const struct ng_deadline *deadline_of(const struct ng_comm *comm)
{
    return comm ? &comm->deadline : &everything;
}

int64_t ng_deadline_mark(const struct ng_comm *comm, int64_t entered_mono_ns)
{
    const struct ng_deadline *deadline = deadline_of(comm);
    int64_t mark = NG_LOAD(deadline->extended_ns);

    /* The work was already pending when the last extension was made, though the watchdog had not
     * seen it yet. */
    if (NG_LOAD(deadline->last_extended_mono_ns) >= entered_mono_ns)
        mark -= NG_LOAD(deadline->last_extended_ns);
    return mark;
}

int64_t ng_deadline_extension(const struct ng_comm *comm, int64_t mark)
{
    return NG_LOAD(deadline_of(comm)->extended_ns) - mark;
}

int64_t ng_deadline_extended_since(const struct ng_comm *comm, int64_t mono_ns)
{
    const struct ng_deadline *deadline = deadline_of(comm);

    return NG_LOAD(deadline->last_extended_mono_ns) >= mono_ns ? NG_LOAD(deadline->extended_ns) : 0;
}

enum ng_on_timeout ng_deadline_policy(uint64_t group_id, enum ng_op op)
{
    if ((unsigned)op >= NG_OP_LIMIT)
        op = NG_OP_NONE;
    NG_EACH_COMM (comm) {
        int policy = NG_LOAD(comm->deadline.policy[op]);
        if (policy && NG_LOAD(comm->group->id) == group_id)
            return (enum ng_on_timeout)(policy - 1);
    }
    return (enum ng_on_timeout)ng_guard.config.on_timeout;
}

/* Does `group_id` denote this communicator, and is it alive? Also matches the id that a group had
 * before others joined it: core/view/grow_id.h. */
static bool is_meant(const struct ng_comm *comm, uint64_t group_id)
{
    uint32_t state = atomic_load_explicit(&comm->group->state, memory_order_acquire);

    return ng_group_state_is_alive(state) && (!group_id || NG_LOAD(comm->group->id) == group_id ||
                                              NG_LOAD(comm->group->former_id) == group_id);
}

/* Call `change` for each deadline that `group_id` denotes. */
static int for_each(uint64_t group_id, int (*change)(struct ng_deadline *deadline, int64_t ns),
                    int64_t ns)
{
    int result = -ENOENT;

    NG_EACH_COMM (comm)
        if (is_meant(comm, group_id)) {
            result = change(&comm->deadline, ns);
            show(comm);
        }
    return result;
}

static int set_timeout(struct ng_deadline *deadline, int64_t ns)
{
    NG_STORE(deadline->set_ns, ns ? ns : NG_DEADLINE_NONE);
    return 0;
}

int ng_deadline_set_timeout(uint64_t group_id, int64_t timeout_ns)
{
    if (timeout_ns < 0)
        return -EINVAL;
    int result = group_id ? for_each(group_id, set_timeout, timeout_ns)
                          : set_timeout(&everything, timeout_ns);
    NG_EACH_COMM (comm) {
        if (!is_meant(comm, group_id))
            continue;
        if (!group_id) {
            tell_contradiction(comm, "ncclguard_timeout_set for all groups",
                               NG_LOAD(everything.set_ns), "ncclguard_timeout_set for this group",
                               NG_LOAD(comm->deadline.set_ns));
            /* This overrides what was set for single groups before. */
            NG_STORE(comm->deadline.set_ns, 0);
        }
        compare_with_rules(comm);
    }
    if (!group_id)
        show_all();
    return result;
}

int ng_deadline_set_next(struct ng_comm *comm, int64_t timeout_ns)
{
    uint64_t call = calls_entered(comm) + 1;
    struct ng_deadline_next *next = &comm->deadline.next[call % NG_DEADLINE_NEXT];
    uint64_t before = NG_LOAD(next->call);

    if (timeout_ns < 0)
        return -EINVAL;
    if (before && before < call && before > ng_deadline_calls_over(comm))
        return -ENOSPC;
    atomic_store(&next->call, 0);
    NG_STORE(next->timeout_ns, timeout_ns ? timeout_ns : NG_DEADLINE_NONE);
    atomic_store_explicit(&next->call, call, memory_order_release);
    atomic_store(&comm->deadline.has_next, true);
    show(comm);
    return 0;
}

static int extend(struct ng_deadline *deadline, int64_t ns)
{
    NG_STORE(deadline->last_extended_ns, ns);
    NG_STORE(deadline->last_extended_mono_ns, ng_clock_mono_ns());
    atomic_fetch_add(&deadline->extended_ns, ns);
    return 0;
}

int ng_deadline_extend(uint64_t group_id, int64_t more_ns)
{
    if (more_ns < 0)
        return -EINVAL;
    int result = for_each(group_id, extend, more_ns);
    return group_id ? result : extend(&everything, more_ns);
}

static int begin(struct ng_deadline *deadline, int64_t unused)
{
    atomic_fetch_add(&deadline->phases, 1);
    return 0;
}

static int end(struct ng_deadline *deadline, int64_t unused)
{
    uint32_t phases = atomic_load(&deadline->phases);

    do
        if (!phases)
            return -EPERM;
    while (!atomic_compare_exchange_weak(&deadline->phases, &phases, phases - 1));
    return 0;
}

/* Change the phases of one group, or of all. */
static int change_phases(uint64_t group_id, int (*change)(struct ng_deadline *deadline, int64_t ns))
{
    if (group_id)
        return for_each(group_id, change, 0);
    int error = change(&everything, 0);
    show_all();
    return error;
}

int ng_deadline_rest_begin(uint64_t group_id)
{
    return change_phases(group_id, begin);
}

int ng_deadline_rest_end(uint64_t group_id)
{
    return change_phases(group_id, end);
}

void ng_deadline_after_fork(void)
{
    reset(&everything);
    for (unsigned i = 0; i < SUSPENSIONS; i++)
        atomic_store(&suspensions[i].until_mono_ns, 0);
}
