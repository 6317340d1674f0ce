/*
 * The evidence of an incident: which files a process writes, for itself and for others.
 *
 * The incident thread says what is to be written, and threads of their own do it
 * (core/runtime/io_workers.h), as a dead disk may hold them for ever. The folder is made where it
 * is not there yet; what cannot be written is logged, and never keeps the rest from being written.
 * What comes after nobody waits for it any more is written all the same.
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
    /* All that process `self`, which is this one, has to tell; then its stacks, where
     * NCCLGUARD_STACKS wants them: that holds the program's threads still for a moment. */
    NG_EVIDENCE_SELF,
    NG_EVIDENCE_STACKS,      /* the parts of that, one after another: begun by themselves */
    NG_EVIDENCE_STACKS_FILE, /* with names from memory alone */
    NG_EVIDENCE_NAMES,
    NG_EVIDENCE_NAMES_FILE,
    NG_EVIDENCE_NEIGHBOURS, /* of those of this host who cannot write: their black boxes are here */
    NG_EVIDENCE_LOST,       /* of those on other hosts whom nobody there can speak for: what the
                               board still has */
    NG_EVIDENCE_VERDICT,    /* verdict.json and verdict.txt */
    NG_EVIDENCE_DOCUMENTS,  /* the same, as it was reached on another host */
    NG_EVIDENCE_TRACE,      /* trace.json */
    NG_EVIDENCE_PARTS,
};

#define NG_EVIDENCE_BIT(part) (1u << (part))
/* A process's own, with all that follows. */
#define NG_EVIDENCE_OWN                                                                            \
    (NG_EVIDENCE_BIT(NG_EVIDENCE_SELF) | NG_EVIDENCE_BIT(NG_EVIDENCE_STACKS) |                     \
     NG_EVIDENCE_BIT(NG_EVIDENCE_STACKS_FILE) | NG_EVIDENCE_BIT(NG_EVIDENCE_NAMES) |               \
     NG_EVIDENCE_BIT(NG_EVIDENCE_NAMES_FILE))
#define NG_EVIDENCE_ALL (NG_EVIDENCE_BIT(NG_EVIDENCE_PARTS) - 1)

/* What is written, and where. Made by the incident thread, which and whose tasks read it; who gives
 * it up last frees it. */
struct ng_evidence {
    struct ng_arena arena; /* owns this */
    _Atomic uint32_t users;
    _Atomic uint32_t under_way; /* NG_EVIDENCE_BIT of each part */
    struct ng_evidence_task {
        struct ng_evidence *evidence;
    } tasks[NG_EVIDENCE_PARTS]; /* a task's context: its place in here tells the part */
    struct ng_view view;
    struct ng_verdict verdict; /* where has_verdict */
    bool has_verdict;
    bool yields; /* to a verdict that is there */
    struct ng_documents documents;
    struct ng_stacks stacks; /* the tasks' about stacks, which follow one another */
    uint32_t self;           /* a process of the view */
    char folder[PATH_MAX];
};

/* Takes over `view` and `verdict` (NULL none), which are left empty. NULL: no memory, and they are
 * as they were. */
struct ng_evidence *ng_evidence_create(struct ng_view *view, struct ng_verdict *verdict,
                                       const char *folder);

/* Have a part written, once; `evidence` NULL: nothing. Incident thread; never waits. */
void ng_evidence_begin(struct ng_evidence *evidence, enum ng_evidence_part part);

/* Wait until those of `parts` (NG_EVIDENCE_BIT of each) that were begun are written, as far as they
 * can be. False: something is not by `until_mono_ns`, which was logged. */
bool ng_evidence_await(struct ng_evidence *evidence, uint32_t parts, int64_t until_mono_ns);

/* The same without waiting or a word. Also where there is nothing to write it from: NULL. */
bool ng_evidence_is_done(const struct ng_evidence *evidence, uint32_t parts);

/*
 * Write a verdict that this process reached about itself alone; taken over, and left empty where
 * there was memory for that. `yields`: not where there is one already. Waits as ng_evidence_await
 * does.
 */
void ng_evidence_write_verdict(struct ng_verdict *verdict, bool yields, int64_t until_mono_ns);

/* The caller's is given up; NULL is fine. */
void ng_evidence_release(struct ng_evidence *evidence);

#endif
