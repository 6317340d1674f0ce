/*
 * The rules of NCCLGUARD_RULES: read at the start and on request, applied to every communicator.
 *
 * Read with the first communicator, and when a person says so. The file is read by a thread of its
 * own, since nobody knows whether its file system answers. A file with a mistake is refused as a
 * whole: at the start the guard then does without rules, later it keeps those that it has.
 */
#ifndef NCCLGUARD_CORE_COMM_RULES_FILE_H
#define NCCLGUARD_CORE_COMM_RULES_FILE_H

#include "core/comm/rules.h"

struct ng_comm;

/*
 * Read the file that the configuration names, if any. Waits for it, but no longer than 2 s: what
 * comes later holds from then on. The guard's start, before its threads.
 */
void ng_rules_file_start(void);

/* Read it again, and tell of the outcome in the log. Incident thread; does not wait. */
void ng_rules_file_reload(void);

/* A communicator begins in this record; `name` is what the program calls it, "" nothing. Under the
 * registry's lock. */
void ng_rules_file_begin(struct ng_comm *comm, const char *name);

/* More has become known of it (parent, size, device): what do the rules say now? Any thread; takes
 * a lock that is held for matching only. */
void ng_rules_file_apply(struct ng_comm *comm);

/* The program calls it by another name from now on. Under the registry's lock. */
void ng_rules_file_rename(struct ng_comm *comm, const char *name);

/* What a deadline of an operation of a group leads to. Where this process has no part in it, the
 * rules are asked with what is known of it, `name` being what it is called by now. */
enum ng_on_timeout ng_rules_file_policy(const struct ng_rules_group *group, enum ng_op op);

/*
 * The ceiling of what this process lets a deadline of that group lead to, whoever says that it has
 * passed. Of a group that it has no part in it does not know which rules hold: any of them may.
 */
enum ng_on_timeout ng_rules_file_ceiling(uint64_t group_id, enum ng_op op);

/* In a forked child. */
void ng_rules_file_after_fork(void);

#endif
