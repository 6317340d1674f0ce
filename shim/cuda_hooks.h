/*
 * The registry of hooks on the CUDA driver's functions: the enabled hook and the real function of
 * each.
 *
 * Beside the steps of a call. The composition root enables hooks before the program's main; without
 * any, the functions of cuda_door.h return the driver's own answers at the cost of one load and a
 * branch. Any thread, no lock, no allocation.
 *
 * A hook is called in place of the driver's function, on the program's thread, by the code that
 * fetched it. It calls the real function through ng_cuda_real_<symbol>() and keeps errno.
 */
#ifndef NCCLGUARD_SHIM_CUDA_HOOKS_H
#define NCCLGUARD_SHIM_CUDA_HOOKS_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>

/* The newest CUDA version whose function forms were compared with the table. */
#define NG_CUDA_HOOKS_KNOWN 13050

enum ng_cuda_hook {
#define CUDA_HOOK(symbol, name, since, per_thread, prototype) NG_CUDA_HOOK_##symbol,
#include "shim/cuda_hooks.def"
#undef CUDA_HOOK
    NG_CUDA_HOOK_COUNT
};

#pragma GCC visibility push(hidden)

/* Set with the first hook, never cleared. */
extern atomic_bool ng_cuda_hooks_enabled;

/*
 * Enables a hook: use ng_cuda_hook_enable_<symbol> below, which knows its type. Code that looked
 * the function up earlier keeps the real one. -EBUSY: it is already hooked.
 */
int ng_cuda_hook_enable(enum ng_cuda_hook hook, void *function);

/* The driver's function behind a hook; never NULL inside that hook. */
extern void *ng_cuda_hook_reals[NG_CUDA_HOOK_COUNT]; /* atomic, also in C++ */
static inline void *ng_cuda_hook_real(enum ng_cuda_hook hook)
{
    return __atomic_load_n(&ng_cuda_hook_reals[hook], __ATOMIC_ACQUIRE);
}

/*
 * For cuda_door.h. The enabled hook for a symbol of the driver, or for a query to cuGetProcAddress;
 * NG_CUDA_HOOK_COUNT: none. A query for a version beyond NG_CUDA_HOOKS_KNOWN returns the newest
 * form in the table, which may not be the one that the driver means.
 */
enum ng_cuda_hook ng_cuda_hook_of_symbol(const char *symbol);
enum ng_cuda_hook ng_cuda_hook_of_question(const char *name, int version, cuuint64_t flags);

/* Is this hook given to NCCL (else to the program)? cuGetProcAddress is given to NCCL only if it
 * has anything to answer there. */
bool ng_cuda_hook_is_for(enum ng_cuda_hook hook, bool nccl);

/* The query for which the driver returns exactly this form. */
const char *ng_cuda_hook_question(enum ng_cuda_hook hook, int *ret_version, cuuint64_t *ret_flags);

/*
 * The function to give to the program in place of the driver's `real`, which is kept for the hook.
 * The same each time.
 */
void *ng_cuda_hook_answer(enum ng_cuda_hook hook, void *real);

/* Enable the hooks of a feature. Graphs: core/device/graph.h is informed when executable graphs are
 * created, launched and destroyed. Poison: core/device/poison.h follows streams and events, and
 * withholds results that an abort has cut off. Launches: core/device/launch_log.h is informed of
 * NCCL's kernels. Before the program's main. */
void ng_cuda_graphs_enable(void);
void ng_cuda_launches_enable(void);
void ng_cuda_poison_enable(void);

#pragma GCC visibility pop

#define CUDA_HOOK(symbol, name, since, per_thread, prototype)                                      \
    typedef CUresult CUDAAPI ng_cuda_function_##symbol prototype;                                  \
    static inline int ng_cuda_hook_enable_##symbol(ng_cuda_function_##symbol *function)            \
    {                                                                                              \
        return ng_cuda_hook_enable(NG_CUDA_HOOK_##symbol, (void *)function);                       \
    }                                                                                              \
    static inline ng_cuda_function_##symbol *ng_cuda_real_##symbol(void)                           \
    {                                                                                              \
        return (ng_cuda_function_##symbol *)ng_cuda_hook_real(NG_CUDA_HOOK_##symbol);              \
    }
#include "shim/cuda_hooks.def"
#undef CUDA_HOOK

#endif
