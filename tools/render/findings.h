/*
 * The doctor's findings: a list, for people and as JSON; and the next steps for each kind of
 * verdict.
 */
#ifndef NCCLGUARD_TOOLS_RENDER_FINDINGS_H
#define NCCLGUARD_TOOLS_RENDER_FINDINGS_H

#include <stdbool.h>
#include <stddef.h>

#include "core/verdict/verdict.h"

enum ng_finding_kind {
    NG_FINDING_OK,      /* correct */
    NG_FINDING_GUARDED, /* its NCCL calls are seen */
    NG_FINDING_WARNING, /* works, or works in part, with a remark */
    NG_FINDING_OUT,     /* its NCCL calls are not seen, or the guard cannot work */
};

struct ng_findings {
    struct ng_finding {
        enum ng_finding_kind kind;
        char *object, *why, *mend; /* `mend` NULL: nothing to do */
    } * list;
    size_t count;
    bool out_of_memory;
};

/* Add one, unless it is there already. `mend` NULL: nothing to do. */
__attribute__((format(printf, 5, 6))) void ng_findings_add(struct ng_findings *findings,
                                                           enum ng_finding_kind kind,
                                                           const char *object, const char *mend,
                                                           const char *why, ...);
void ng_findings_fini(struct ng_findings *findings);

size_t ng_findings_count(const struct ng_findings *findings, enum ng_finding_kind kind);

/*
 * A copy that is safe to show: without control characters, marks that change the direction of
 * writing, and broken UTF-8. NULL: no memory; else to be freed.
 */
char *ng_findings_safe_copy(const char *text);

/* Lines for people. Content of files and paths is made safe for a terminal. */
void ng_findings_print(const struct ng_findings *findings);

/* [{"finding", "object", "why", "mend"}]. False: it could not be written. */
bool ng_findings_print_json(const struct ng_findings *findings);

/* Step `index`, from 0, for a verdict of this kind, as a sentence; NULL: there are no more. */
const char *ng_advice_step(enum ng_verdict_kind kind, unsigned index);

#endif
