/*
 * The rules of NCCLGUARD_RULES: read at the start and on request, applied to every communicator.
 *
 * Read with the first communicator, and when an operator requests it. A separate thread reads the
 * file, since its file system may not answer. A file with a mistake is rejected as a whole: at the
 * start the guard then runs without rules, later it keeps its current ones.
 */
#ifndef NCCLGUARD_CORE_COMM_RULES_FILE_H
#define NCCLGUARD_CORE_COMM_RULES_FILE_H

#include "core/comm/rules.h"

struct ng_comm;

/*
 * Read the configured file, if any. Waits 2 s at most: rules that arrive later apply from then on.
 * Called at the guard's start, before its threads.
 */
void ng_rules_file_start(void);

/* Read the file again, and log the outcome. Incident thread; does not wait. */
void ng_rules_file_reload(void);

/* A new communicator uses this record; `name` is given by the program, "" none. Under the
 * registry's lock. */
void ng_rules_file_begin(struct ng_comm *comm, const char *name);

/* More is known about it now (parent, size, device): apply the rules again. Any thread; takes a
 * lock that is held only for matching. */
void ng_rules_file_apply(struct ng_comm *comm);

/* The program has renamed it. Under the registry's lock. */
void ng_rules_file_rename(struct ng_comm *comm, const char *name);

/* The policy for a deadline of an operation of a group. If this process is not a member, the rules
 * are matched with what is known of the group; `name` is its current name. */
enum ng_on_timeout ng_rules_file_policy(const struct ng_rules_group *group, enum ng_op op);

/*
 * The gravest policy that this process accepts for a deadline of that group, whichever process
 * reports it. For a group of which it is not a member, it does not know which rules match: any may.
 */
enum ng_on_timeout ng_rules_file_ceiling(uint64_t group_id, enum ng_op op);

/* In a forked child. */
void ng_rules_file_after_fork(void);

#endif
