/*
 * Rules for groups: a text file gives communicators their own deadline, name or policy. Grammar and
 * matching are here; core/comm/rules_file.h reads the file.
 *
 * One rule a line, conditions left of a colon, settings right of it; `#` begins a comment:
 *
 *   # the pipeline's small groups are fast, and only logged
 *   group=pp_* size=2..8      : timeout=30s suspect=3s policy=log
 *   size=1024 op=Broadcast    : timeout=20m
 *   parent=world op=Comm*     : timeout=2m
 *   *                         : suspect=10s
 *
 * Conditions; all given ones must hold, and `*` alone matches every group:
 *
 *   - group=PATTERN: its name, or its id of 16 hex digits; PATTERN as a shell's: * ? [a-z]
 *   - size=N: number of ranks; N..M, N.., ..M are ranges
 *   - parent=PATTERN: name or id of the group that it was split, shrunk or grown from
 *   - device=N, RANGE: CUDA's number of the device; or a pattern of its PCI id: 0000:1b:*
 *   - op=NAME,…: operations, as patterns of NCCL's names without "nccl": AllReduce, Comm*. The
 *     operation of an NCCL group is that of its last call. Not known without records
 *     (NCCLGUARD_TRACE_SIZE=0)
 *
 * Settings:
 *
 *   - timeout=DURATION: deadline; 0 none. Without op= for collectives, sends and receives; calls
 *     that create or end communicators are included only if op= names them
 *   - suspect=DURATION: earliest time of a suspect verdict; 0 none; op= as above
 *   - policy=POLICY: what a deadline leads to, by the operation that the verdict names: the values
 *     of NCCLGUARD_ON_TIMEOUT
 *   - check=off: calls are not checked (NCCLGUARD_CHECK)
 *   - check=tell: errors are reported, as without a rule
 *   - check=refuse: as tell, and a call with invalid arguments fails with NCCL's error instead of
 *     being made
 *   - check=end: as refuse, and ranks whose calls differ are handled as at a deadline
 *   - name=NAME: the name of a group that has none
 *   - rename=NAME: the name of a group even if the program has named it
 *
 * name and rename apply to a whole group and cannot be combined with op=. The comparison of calls
 * also covers a whole group: with op=, check=off concerns only the other checks, and check=end the
 * differing calls of that operation. A value with spaces, or with a colon before a space, must be
 * in double quotes.
 *
 * Rules are read from top to bottom. If several match, the last value of each setting applies; and
 * later rules match against a name that an earlier rule has given.
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
#define NG_RULES_NAME      64u    /* bytes of a name, including the terminator */

struct ng_rule_range {
    int32_t first, last;
};

struct ng_rule {
    const char *group, *parent, *pci_id; /* patterns; NULL any */
    struct ng_rule_range size, device;
    bool has_device, has_op;
    bool ops[NG_OP_LIMIT];          /* if `has_op` */
    const char *name, *rename;      /* NULL not set */
    int64_t timeout_ns, suspect_ns; /* 0 not set; NG_DEADLINE_NONE */
    int policy;                     /* plus one; 0 not set */
    enum ng_rule_check check;
};

struct ng_rules {
    uint32_t count;
    struct ng_rule rules[NG_RULES_MAX];
    char text[NG_RULES_BYTES_MAX + 1]; /* the rules point into it */
};

/* Called for each mistake, with one line that states file, line, mistake and remedy. */
typedef void ng_rules_report_fn(void *context, const char *line);

/*
 * Parse rules from `bytes` bytes of text; `file` is its name in messages. Returns the number of
 * mistakes and reports the first NG_RULES_TOLD of them; *ret_rules is valid only if there are none.
 * Any text is safe.
 */
#define NG_RULES_TOLD 8u
uint32_t ng_rules_parse(const char *file, const char *text, size_t bytes,
                        struct ng_rules *ret_rules, ng_rules_report_fn *report, void *context);

/* Does a pattern match the group of this name and id? Shell wildcards; id 0: it has none yet. */
bool ng_rules_is_called(const char *pattern, const char *name, uint64_t id);

/* What is known of a communicator. A condition on something not known yet does not hold. */
struct ng_rules_group {
    const char *name; /* given by the program; "" none */
    uint64_t id, parent_id;
    const char *parent_name;
    int nranks; /* 0 or less: not known */
    int device; /* -1 not known */
    const char *pci_id;
};

/* Apply the rules to a group; `ret_name` is its resulting name. Any thread. */
void ng_rules_match(const struct ng_rules *rules, const struct ng_rules_group *group,
                    struct ng_deadline_limits *ret_limits, char ret_name[NG_RULES_NAME]);

/* The gravest policy that a deadline of this operation may lead to in a group about which nothing
 * is known; `otherwise` applies without rules. Any thread. */
enum ng_on_timeout ng_rules_gravest(const struct ng_rules *rules, enum ng_op op,
                                    enum ng_on_timeout otherwise);

/* The mildest of `otherwise` and the policies that any rule names for any group and operation. */
enum ng_on_timeout ng_rules_mildest(const struct ng_rules *rules, enum ng_on_timeout otherwise);

#endif
