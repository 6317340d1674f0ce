/*
 * Deadlines: the one place that says how long something may take, when it becomes suspect, and
 * whether its clock rests.
 *
 * What holds for a communicator and an operation, the first that says anything:
 *
 *   - timeout: the program itself (ng_deadline_set_timeout), a rule (core/comm/rules.h), the
 * configuration;
 *   - suspect, policy: a rule, the configuration.
 *
 * Calls that make and end communicators have the deadline of init: the program's own setting is not
 * for them, nor are a rule's times where it does not name them.
 *
 * A clock rests while the program is in a phase (ng_deadline_rest_begin) or a person has suspended
 * the job or the group. Ages do not advance then, so that what was pending before goes on with the
 * time that it had left.
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

/* In what follows, and only there: no deadline. 0 stands for "nothing is said". */
#define NG_DEADLINE_NONE ((int64_t)-1)

/* What a rule wants to come of checks: core/comm/rules.h. */
enum ng_rule_check {
    NG_RULE_CHECK_UNSAID,
    NG_RULE_CHECK_OFF,
    NG_RULE_CHECK_TELL,
    NG_RULE_CHECK_REFUSE,
    NG_RULE_CHECK_END,
};

/* What rules say of a communicator, by operation; [NG_OP_NONE] is of work whose operation is not
 * known. */
struct ng_deadline_limits {
    int64_t timeout_ns[NG_OP_LIMIT]; /* 0 nothing, NG_DEADLINE_NONE */
    int64_t suspect_ns[NG_OP_LIMIT];
    int policy[NG_OP_LIMIT]; /* index of NCCLGUARD_ON_TIMEOUT's choices, plus one; 0 nothing */
    enum ng_rule_check check[NG_OP_LIMIT];
};

/* Of one communicator: part of its record. All zero: nothing is said. */
struct ng_deadline {
    _Atomic int64_t timeout_ns[NG_OP_LIMIT], suspect_ns[NG_OP_LIMIT]; /* by rules, as above */
    _Atomic int policy[NG_OP_LIMIT];
    _Atomic unsigned check[NG_OP_LIMIT]; /* enum ng_rule_check */
    _Atomic int64_t set_ns;              /* by the program: likewise */
    _Atomic uint32_t phases;             /* that the program has begun and not ended */
    _Atomic int64_t extended_ns;         /* all extensions together */
    _Atomic int64_t last_extended_ns, last_extended_mono_ns;
};

/* A new communicator in this record, which nobody else knows yet. */
void ng_deadline_begin(struct ng_comm *comm);

/* What rules say of it from now on. */
void ng_deadline_limit(struct ng_comm *comm, const struct ng_deadline_limits *limits);

/* ---- For the watchdog; `comm` NULL: a call that belongs to none ---- */

/* Deadline of an operation, without extensions; 0 none. */
int64_t ng_deadline_timeout(const struct ng_comm *comm, enum ng_op op);

/* When it becomes suspect; 0 never. `cold`: NCCL connects ranks in it, as in each call that makes a
 * communicator, of which this need not be told. */
int64_t ng_deadline_suspect(const struct ng_comm *comm, enum ng_op op, bool cold);

/* Does the clock rest? The same is in the black box, as `rests`. */
bool ng_deadline_rests(const struct ng_comm *comm);

/* What the black box says of a communicator with nothing pending: NG_DEADLINE_NONE, or ns. */
int64_t ng_deadline_shown(const struct ng_comm *comm);

/* Suspensions whose time has come end now. Watchdog, each round. */
void ng_deadline_tend(int64_t now_mono_ns);

/*
 * Extensions are counted up for ever. What was entered at `entered_mono_ns`, seen for the first
 * time now, keeps the mark, and asks with it later by how much its deadline was extended since.
 */
int64_t ng_deadline_mark(const struct ng_comm *comm, int64_t entered_mono_ns);
int64_t ng_deadline_extension(const struct ng_comm *comm, int64_t mark);

/* ---- For the incident thread ---- */

/* What a deadline of this operation of this group leads to, as far as this process has part in it;
 * else what the configuration says: core/comm/rules_file.h knows more. */
enum ng_on_timeout ng_deadline_policy(uint64_t group_id, enum ng_op op);

/*
 * A person's order: the clocks of a group (0: of all) rest until `until_mono_ns` (INT64_MAX: until
 * ng_deadline_resume), those of groups that are made later, too. Resuming all resumes each group.
 * 0, or -ENOSPC: too many groups are suspended one by one.
 */
int ng_deadline_suspend(uint64_t group_id, int64_t until_mono_ns);
void ng_deadline_resume(uint64_t group_id);

/* Other ranks of the group let its clock rest, and this one, which did not hear the order, or is
 * not told by its program, waits for them: it rests here, too, for some seconds. As above. */
int ng_deadline_rest_with_others(uint64_t group_id);

/* ---- For the program, on any of its threads (include/ncclguard.h) ----
 * `group_id` 0 means all groups of this process, also those that are made later. 0, or -ENOENT:
 * this process has no such group; -EINVAL: a negative time. All of it is of this process alone, but
 * that ranks which wait for one that rests rest with it once they would become suspect.
 */

/* Deadline of the group's operations from now on, those that are pending included; 0: none.
 * Replaces what rules and configuration say. */
int ng_deadline_set_timeout(uint64_t group_id, int64_t timeout_ns);

/* Once, for what is pending now: so much more time, until the deadline and until it is suspect. */
int ng_deadline_extend(uint64_t group_id, int64_t more_ns);

/* A phase in which the clocks rest. Phases nest; each begin needs its end. -EPERM: none was begun.
 */
int ng_deadline_rest_begin(uint64_t group_id);
int ng_deadline_rest_end(uint64_t group_id);

/* In a forked child. */
void ng_deadline_after_fork(void);

#endif
