/*
 * The evidence of an incident: the files that a process writes, for itself and for others.
 *
 * The incident thread decides what is written, and separate threads write it
 * (core/runtime/io_workers.h), since a dead disk may block them for ever. The folder is created if
 * missing. A part that cannot be written is logged, and does not prevent the others. A part is
 * written even if the wait for it has timed out.
 */
#ifndef NCCLGUARD_CORE_EVIDENCE_EVIDENCE_H
#define NCCLGUARD_CORE_EVIDENCE_EVIDENCE_H

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/evidence/stacks.h"
#include "core/nccl/board.h"
#include "core/runtime/io_workers.h"
#include "core/verdict/verdict.h"
#include "core/view/view.h"

enum ng_evidence_part {
    /* Everything that process `self`, which is this one, knows; then its stacks, if
     * NCCLGUARD_STACKS says so: that stops the program's threads for a moment. */
    NG_EVIDENCE_SELF,
    NG_EVIDENCE_STACKS,      /* the steps of that, one after another: each starts the next */
    NG_EVIDENCE_STACKS_FILE, /* with names from memory alone */
    NG_EVIDENCE_NAMES,
    NG_EVIDENCE_NAMES_FILE,
    NG_EVIDENCE_NEIGHBOURS, /* of processes of this host that cannot write: their black boxes are
                               here */
    NG_EVIDENCE_LOST, /* of processes on other hosts that no process there can report for: what the
                         board still has */
    NG_EVIDENCE_VERDICT,   /* verdict.json and verdict.txt */
    NG_EVIDENCE_DOCUMENTS, /* the same, for a verdict reached on another host */
    NG_EVIDENCE_TRACE,     /* trace.json */
    NG_EVIDENCE_PARTS,
};

#define NG_EVIDENCE_BIT(part) (1u << (part))
/* A process's own evidence, with all of its steps. */
#define NG_EVIDENCE_OWN                                                                            \
    (NG_EVIDENCE_BIT(NG_EVIDENCE_SELF) | NG_EVIDENCE_BIT(NG_EVIDENCE_STACKS) |                     \
     NG_EVIDENCE_BIT(NG_EVIDENCE_STACKS_FILE) | NG_EVIDENCE_BIT(NG_EVIDENCE_NAMES) |               \
     NG_EVIDENCE_BIT(NG_EVIDENCE_NAMES_FILE))
#define NG_EVIDENCE_ALL (NG_EVIDENCE_BIT(NG_EVIDENCE_PARTS) - 1)

/* What is written, and where. Created by the incident thread; read by it and its tasks. The last
 * user frees it. */
struct ng_evidence {
    struct ng_arena arena; /* owns this */
    _Atomic uint32_t users;
    _Atomic uint32_t under_way; /* NG_EVIDENCE_BIT of each part */
    struct ng_evidence_task {
        struct ng_evidence *evidence;
    } tasks[NG_EVIDENCE_PARTS]; /* a task's context: its index is the part */
    struct ng_view view;
    struct ng_verdict verdict; /* where has_verdict */
    bool has_verdict;
    bool yields;     /* does not replace an existing verdict */
    uint32_t number; /* of the newest deadline when it was created: ng_evidence_outdate */
    struct ng_documents documents;
    struct ng_stacks stacks; /* used by the stack tasks, which run one after another */
    uint32_t self;           /* a process of the view */
    char folder[PATH_MAX];
};

/* Takes ownership of the contents of `view` and `verdict` (NULL none), which are left empty. NULL:
 * no memory, and both are unchanged. */
struct ng_evidence *ng_evidence_create(struct ng_view *view, struct ng_verdict *verdict,
                                       const char *folder);

/* Start writing a part, at most once; `evidence` NULL: does nothing. Incident thread; never
 * waits. */
void ng_evidence_begin(struct ng_evidence *evidence, enum ng_evidence_part part);

/* Wait until those of `parts` (NG_EVIDENCE_BIT of each) that were started are written, as far as
 * possible. False: some are not written by `until_mono_ns`; this is logged. */
bool ng_evidence_await(struct ng_evidence *evidence, uint32_t parts, int64_t until_mono_ns);

/* The same without waiting or logging. True if `evidence` is NULL. */
bool ng_evidence_is_done(const struct ng_evidence *evidence, uint32_t parts);

/*
 * Write a verdict that this process reached about itself alone. Takes ownership of it, and leaves
 * it empty unless memory is short. `yields`: do not replace an existing verdict. Waits as
 * ng_evidence_await does.
 */
void ng_evidence_write_verdict(struct ng_verdict *verdict, bool yields, int64_t until_mono_ns);

/* A deadline is being judged, here or elsewhere: what was created before does not replace an
 * existing verdict, however late a slow disk lets it be written. Incident thread. */
void ng_evidence_outdate(void);

/* Drop the caller's reference; NULL is allowed. */
void ng_evidence_release(struct ng_evidence *evidence);

#endif
