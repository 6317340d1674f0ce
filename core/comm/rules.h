/*
 * Rules of groups: a text file says which communicators have a deadline, a name or a policy of
 * their own. This is its grammar and its matching; who reads the file is core/comm/rules_file.h.
 *
 * One rule a line, conditions left of a colon, settings right of it; `#` begins a comment:
 *
 *   # the pipeline's small groups are fast, and only told of
 *   group=pp_* size=2..8      : timeout=30s suspect=3s policy=log
 *   size=1024 op=Broadcast    : timeout=20m
 *   parent=world op=Comm*     : timeout=2m
 *   *                         : suspect=10s
 *
 * Conditions; all that stand there must hold, and `*` alone holds for every group:
 *
 *   - group=PATTERN: its name, or its id of 16 hex digits; PATTERN as a shell's: * ? [a-z]
 *   - size=N: so many ranks; N..M, N.., ..M are ranges
 *   - parent=PATTERN: name or id of the group that it was split, shrunk or grown from
 *   - device=N, RANGE: CUDA's number of the device; or a pattern of its PCI id: 0000:1b:*
 *   - op=NAME,…: operations, as patterns of NCCL's names without "nccl": AllReduce, Comm*. The
 *     operation of an NCCL group is that of its last call. Not known where there are no records
 *     (NCCLGUARD_TRACE_SIZE=0)
 *
 * Settings:
 *
 *   - timeout=DURATION: deadline; 0 none. Without op= of collectives, sends and receives; calls
 * that make or end communicators are meant only where op= names them
 *   - suspect=DURATION: earliest time of a suspect verdict; 0 none; likewise
 *   - policy=POLICY: what a deadline leads to, by the operation that the verdict names: the values
 * of NCCLGUARD_ON_TIMEOUT
 *   - check=off: calls are not checked (NCCLGUARD_CHECK)
 *   - check=tell: what is wrong is told, as without a rule
 *   - check=refuse: and a call with invalid arguments fails with NCCL's error instead of being made
 *   - check=end: and ranks whose calls differ are dealt with as at a deadline
 *   - name=NAME: what a group without a name is called
 *   - rename=NAME: what it is called even where the program has named it
 *
 * name and rename are of a whole group: op= does not go with them. Whether calls differ is compared
 * for a whole group, too: with op=, check=off is about the other checks, and check=end about the
 * calls of that operation that differ. A value with spaces, or with a colon before a space, stands
 * in double quotes.
 *
 * Rules are read from top to bottom. Where several hold, each setting has the value that stands
 * last; and a name that a rule has given is what later rules match.
 *
 * Pure: no file, no clock, no lock, no allocation.
 */
#ifndef NCCLGUARD_CORE_COMM_RULES_H
#define NCCLGUARD_CORE_COMM_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/comm/deadline.h"

#define NG_RULES_MAX       256u
#define NG_RULES_BYTES_MAX 65536u /* of a file */
#define NG_RULES_NAME      64u    /* bytes of a name with its end */

struct ng_rule_range {
    int32_t first, last;
};

struct ng_rule {
    const char *group, *parent, *pci_id; /* patterns; NULL any */
    struct ng_rule_range size, device;
    bool has_device, has_op;
    bool ops[NG_OP_LIMIT];          /* where `has_op` */
    const char *name, *rename;      /* NULL not said */
    int64_t timeout_ns, suspect_ns; /* 0 not said, NG_DEADLINE_NONE */
    int policy;                     /* plus one; 0 not said */
    enum ng_rule_check check;
};

struct ng_rules {
    uint32_t count;
    struct ng_rule rules[NG_RULES_MAX];
    char text[NG_RULES_BYTES_MAX + 1]; /* what the rules point into */
};

/* Called for each mistake: one line that names file, line, what is wrong and the mend. */
typedef void ng_rules_report_fn(void *context, const char *line);

/*
 * Read rules from `bytes` bytes of text; `file` is what messages call it. The number of mistakes,
 * each of them reported (the first NG_RULES_TOLD of them); *ret_rules is of use only where there is
 * none. Any text is safe.
 */
#define NG_RULES_TOLD 8u
uint32_t ng_rules_parse(const char *file, const char *text, size_t bytes,
                        struct ng_rules *ret_rules, ng_rules_report_fn *report, void *context);

/* Does a pattern mean the group of this name and id? Shell's wildcards; 0: it has no id yet. */
bool ng_rules_is_called(const char *pattern, const char *name, uint64_t id);

/* What is known of a communicator. A condition on what is not known yet does not hold. */
struct ng_rules_group {
    const char *name; /* that the program gave; "" none */
    uint64_t id, parent_id;
    const char *parent_name;
    int nranks; /* 0 or less: not known */
    int device; /* -1 not known */
    const char *pci_id;
};

/* What the rules say of it; `ret_name` is what it is called. Any thread. */
void ng_rules_match(const struct ng_rules *rules, const struct ng_rules_group *group,
                    struct ng_deadline_limits *ret_limits, char ret_name[NG_RULES_NAME]);

/* The gravest policy that a deadline of this operation may lead to in a group of which nothing is
 * known; `otherwise` is that without rules. Any thread. */
enum ng_on_timeout ng_rules_gravest(const struct ng_rules *rules, enum ng_op op,
                                    enum ng_on_timeout otherwise);

/* The mildest that any rule names, of any group and operation, or `otherwise`. */
enum ng_on_timeout ng_rules_mildest(const struct ng_rules *rules, enum ng_on_timeout otherwise);

#endif
