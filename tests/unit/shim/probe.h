/*
 * The shim under test: the real wrappers and instances over a core that only remembers.
 */
#ifndef NCCLGUARD_TESTS_UNIT_SHIM_PROBE_H
#define NCCLGUARD_TESTS_UNIT_SHIM_PROBE_H

#include <stdbool.h>
#include <sys/cdefs.h>

/* An atomic of a word's size is laid out as the plain type, which is all that C++ is told. */
#ifdef __cplusplus
#define _Atomic
#endif
#include "core/nccl/call.h"
#include "core/nccl/cuda.h"
#include "core/nccl/nccl.h"
#ifdef __cplusplus
#undef _Atomic
#endif

__BEGIN_DECLS

struct probe_call {
    struct ng_call call;         /* as enter saw it */
    struct ng_creation creation; /* likewise; of creating calls */
    char unique_id[128];         /* copied while the call ran */
    enum ng_op_class way;        /* COLLECTIVE, P2P: by their own enter; NONE: by ng_call_enter */
    enum ng_op_class way_out;
    int result; /* as leave saw it */
    bool left;
};

void probe_set_active(bool active);
void probe_adopt_thread(void);
/* core/runtime/unusual.h */
unsigned probe_unusual(void);

/* What core answers to calls from now on: NG_CALL_PROCEED, or a result in NCCL's stead; the reason
 * is PROBE_REASON then. */
#define PROBE_REASON "the probe has aborted it"
void probe_set_answer(int answer);

/* Forgets calls and log lines. */
void probe_clear(void);
/* Calls recorded since, at most 64 of them kept; the i-th one. */
unsigned probe_call_count(void);
struct probe_call probe_call_at(unsigned index);
/* Log lines since, joined with newlines. Valid until the next line or probe_clear. */
const char *probe_log(void);
/* Runs inside ng_call_enter and ng_call_leave; NULL: nothing. */
void probe_set_hook(void (*hook)(void));

/* Runs as a fault of each call, which it may change; NULL: none is armed. */
void probe_inject(void (*change)(struct ng_call *call));

unsigned probe_nccl_count(void);
const struct ng_nccl *probe_nccl(unsigned index);
bool probe_driver_find(struct ng_cuda *ret_cuda);

__END_DECLS

#endif
