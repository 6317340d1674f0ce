/*
 * Deadlines: the one place that defines how long an operation may take, when it becomes suspect,
 * and whether its clock is paused.
 *
 * For a communicator and an operation, the first source that sets a value applies:
 *
 *   - timeout: the program itself, for one call (ng_deadline_set_next) or for all of the group
 *     (ng_deadline_set_timeout), a rule (core/comm/rules.h), the configuration;
 *   - suspect, policy: a rule, the configuration.
 *
 * Calls that create and end communicators have the deadline of init: the program's own setting does
 * not apply to them, nor do a rule's times unless the rule names them. For a call that derives a
 * communicator from another, rules on the new one go before rules on its parent.
 *
 * A clock is paused while the program is in a phase (ng_deadline_rest_begin) or an operator has
 * suspended the job or the group. Ages do not advance then, so work that was pending before
 * continues with its remaining time.
 *
 * Any thread may call anything here; nothing waits, allocates or takes a lock.
 */
#ifndef NCCLGUARD_CORE_COMM_DEADLINE_H
#define NCCLGUARD_CORE_COMM_DEADLINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/config/config.h"
#include "core/nccl/op.h"

struct ng_comm;

/* No deadline, only in the fields and functions below that name it. 0 there means "not set". */
#define NG_DEADLINE_NONE ((int64_t)-1)

/* What a rule sets for checks: core/comm/rules.h. */
enum ng_rule_check {
    NG_RULE_CHECK_UNSAID,
    NG_RULE_CHECK_OFF,
    NG_RULE_CHECK_TELL,
    NG_RULE_CHECK_REFUSE,
    NG_RULE_CHECK_END,
};

/* What rules set for a communicator, by operation; [NG_OP_NONE] is for work whose operation is not
 * known. */
struct ng_deadline_limits {
    int64_t timeout_ns[NG_OP_LIMIT]; /* 0 not set; NG_DEADLINE_NONE */
    int64_t suspect_ns[NG_OP_LIMIT];
    int policy[NG_OP_LIMIT]; /* index into NCCLGUARD_ON_TIMEOUT's choices, plus one; 0 not set */
    enum ng_rule_check check[NG_OP_LIMIT];
};

/* Calls with deadlines of their own that a communicator may have in flight. */
#define NG_DEADLINE_NEXT 16u

/* The deadline that the program gave to one call. */
struct ng_deadline_next {
    _Atomic uint64_t call;      /* guard word: its number on the communicator, from 1; 0 none */
    _Atomic int64_t timeout_ns; /* NG_DEADLINE_NONE */
};

/* Deadlines of one communicator, part of its record. All zero: nothing is set. */
struct ng_deadline {
    _Atomic int64_t timeout_ns[NG_OP_LIMIT], suspect_ns[NG_OP_LIMIT]; /* by rules, as above */
    _Atomic int policy[NG_OP_LIMIT];
    _Atomic unsigned check[NG_OP_LIMIT]; /* enum ng_rule_check */
    _Atomic int64_t set_ns;              /* by the program, as above */
    _Atomic uint32_t phases;             /* phases that the program has begun and not ended */
    _Atomic int64_t extended_ns;         /* all extensions together */
    _Atomic int64_t last_extended_ns, last_extended_mono_ns;
    struct ng_deadline_next next[NG_DEADLINE_NEXT]; /* that of call N is next[N % …] */
    _Atomic bool has_next;                          /* one was ever set */
    /* Of works whose end was not seen: the newest collective, and the sends and receives. */
    _Atomic uint64_t lost_seq, lost_p2p;
    _Atomic bool told; /* that two sources contradict each other */
};

/* Initialise for a new communicator in this record, not yet visible to other threads. */
void ng_deadline_begin(struct ng_comm *comm);

/* Set the limits that rules give it from now on. */
void ng_deadline_limit(struct ng_comm *comm, const struct ng_deadline_limits *limits);

/* ---- For the watchdog; `comm` NULL: a call that belongs to none ---- */

/* Deadline of an operation, without extensions; 0 none. */
int64_t ng_deadline_of_call(const struct ng_comm *comm, enum ng_op op);

/* The same, for the watchdog: 0 also for an attempt to create it that can be retried, whose time
 * core/call/init_retry.h keeps. */
int64_t ng_deadline_timeout(const struct ng_comm *comm, enum ng_op op);

/* The same for a call or work that consists of `count` calls, the last of which has number `last`
 * on the communicator (ng_view_record_op_id; 0 not known): the deadline that the program gave to
 * one of them goes before all others. */
int64_t ng_deadline_of_work(const struct ng_comm *comm, enum ng_op op, uint64_t last,
                            uint64_t count);

/* The same for a group: the shortest among its members in this process; if there is none, that of
 * a call that belongs to no communicator. */
int64_t ng_deadline_of_group(uint64_t group_id, enum ng_op op);

/* How many calls of a communicator are over: finished, or of works whose end was not seen. */
uint64_t ng_deadline_calls_over(const struct ng_comm *comm);

/* The end of a work will never be seen: its calls, up to collective `last_seq` (0: none) and so
 * many sends and receives, are over. Watchdog alone. */
void ng_deadline_lose(struct ng_comm *comm, uint64_t last_seq, uint64_t p2p);

/* When it becomes suspect; 0 never. `cold`: NCCL connects ranks in it; need not be set for calls
 * that create a communicator, which always do. */
int64_t ng_deadline_suspect(const struct ng_comm *comm, enum ng_op op, bool cold);

/* Is the clock paused? The black box has the same, as `rests`. */
bool ng_deadline_rests(const struct ng_comm *comm);

/* The deadline that the black box shows for a communicator with no work pending: NG_DEADLINE_NONE,
 * or ns. It is that of the call that a thread is inside, or of the next one, if that has its own.
 */
int64_t ng_deadline_shown(const struct ng_comm *comm);

/* End suspensions that have expired. Watchdog, each round. */
void ng_deadline_expire_suspensions(int64_t now_mono_ns);

/*
 * Extensions accumulate for ever. When the watchdog first sees work entered at `entered_mono_ns`,
 * it takes a mark; with the mark ng_deadline_extension returns by how much the deadline has been
 * extended since.
 */
int64_t ng_deadline_mark(const struct ng_comm *comm, int64_t entered_mono_ns);
int64_t ng_deadline_extension(const struct ng_comm *comm, int64_t mark);

/* For who has no mark: all extensions of the communicator, earlier ones too, if any was made since
 * `mono_ns`; else 0. Any guard thread. */
int64_t ng_deadline_extended_since(const struct ng_comm *comm, int64_t mono_ns);

/* ---- For the incident thread ---- */

/* The policy for a deadline of this operation of this group if this process is a member; else the
 * configured one: core/comm/rules_file.h knows more. */
enum ng_on_timeout ng_deadline_policy(uint64_t group_id, enum ng_op op);

/*
 * Operator command: pause the clocks of a group (0: of all groups, including later ones) until
 * `until_mono_ns` (INT64_MAX: until ng_deadline_resume). Resuming all resumes each group. 0, or
 * -ENOSPC: too many groups are suspended individually.
 */
int ng_deadline_suspend(uint64_t group_id, int64_t until_mono_ns);
void ng_deadline_resume(uint64_t group_id);

/* Other ranks of the group have paused its clock, and this rank, which did not receive the command
 * or whose program is in no phase, waits for them: pause it here, too, for some seconds. Result as
 * above. */
int ng_deadline_rest_with_others(uint64_t group_id);

/* ---- For the program, on any of its threads (include/ncclguard.h) ----
 * `group_id` 0 means all groups of this process, including later ones. 0, or -ENOENT: this process
 * has no such group; -EINVAL: a negative time. All of this affects only this process, except that
 * ranks that wait for a rank with a paused clock pause theirs, too, when they would become suspect.
 */

/* Set the deadline of the group's operations from now on, including pending ones; 0: none. Replaces
 * rules and configuration. Logs a warning, once for each communicator, where a rule has set another
 * deadline, or where one for all groups replaces another of this group. */
int ng_deadline_set_timeout(uint64_t group_id, int64_t timeout_ns);

/* Set the deadline of the next collective, send or receive on this communicator, which its thread
 * makes afterwards; 0: none. In an NCCL group that includes it, it is that of the group's calls on
 * this communicator and stream; ncclGroupEnd itself has it if this is the group's first
 * communicator. -ENOSPC: NG_DEADLINE_NEXT calls with one of their own are in flight. -EINVAL: a
 * negative time. */
int ng_deadline_set_next(struct ng_comm *comm, int64_t timeout_ns);

/* Extend the deadline and the suspect time once, for work that is pending now. */
int ng_deadline_extend(uint64_t group_id, int64_t more_ns);

/* Begin or end a phase in which the clocks are paused. Phases nest; each begin needs its end.
 * -EPERM: none was begun. */
int ng_deadline_rest_begin(uint64_t group_id);
int ng_deadline_rest_end(uint64_t group_id);

/* In a forked child. */
void ng_deadline_after_fork(void);

#endif
