/*
 * Kinds of verdicts, and their names: what the board and a communicator keep of a verdict.
 *
 * Pure. The verdict itself is a struct ng_verdict: core/verdict/verdict.h.
 */
#ifndef NCCLGUARD_CORE_NCCL_VERDICT_KIND_H
#define NCCLGUARD_CORE_NCCL_VERDICT_KIND_H

#include <stdbool.h>

enum ng_verdict_kind {
#define NG_VERDICT(id, name, text) NG_KIND_##id,
#include "core/nccl/verdict_kind.def"
#undef NG_VERDICT
    NG_KIND_COUNT
};

/* Its name in JSON, such as "missing_rank"; of a number that is no kind, "unknown". */
const char *ng_verdict_kind_name(enum ng_verdict_kind kind);

/* One line for people; "" for a number that is no kind. */
const char *ng_verdict_kind_text(enum ng_verdict_kind kind);

/* Does a verdict of this kind report that NCCL or CUDA has failed? */
bool ng_kind_is_failure(enum ng_verdict_kind kind);

/* The kind in a verdict's line, as ng_report_line writes it; NG_KIND_UNKNOWN if it begins with no
 * kind. */
enum ng_verdict_kind ng_verdict_kind_of_line(const char *line);

#endif
