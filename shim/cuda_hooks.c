/*
 * Which of the CUDA driver's functions are hooked, and which form of a function a query means.
 *
 * Beside the steps of a call. Entered by the program's threads, several at once. Must never lock,
 * allocate or call the driver: a query may come from anywhere.
 */
#include "shim/cuda_hooks.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

atomic_bool ng_cuda_hooks_enabled;

static const struct {
    const char *symbol, *name;
    int since;
    bool per_thread;
    bool for_nccl;
} rows[NG_CUDA_HOOK_COUNT] = {
#define CUDA_HOOK(symbol, name, since, per_thread, prototype)                                      \
    {#symbol, name, since, per_thread, false},
#define CUDA_NCCL_HOOK(symbol, name, since, per_thread, prototype)                                 \
    {#symbol, name, since, per_thread, true},
#include "shim/cuda_hooks.def"
#undef CUDA_HOOK
};

/* Is any hook for NCCL enabled? Never cleared. */
static atomic_bool nccl_is_hooked;

static void *_Atomic hooks[NG_CUDA_HOOK_COUNT];

/* Written once, before the hook is returned to any caller. */
void *ng_cuda_hook_reals[NG_CUDA_HOOK_COUNT];

static bool is_question(enum ng_cuda_hook hook)
{
    return hook == NG_CUDA_HOOK_cuGetProcAddress || hook == NG_CUDA_HOOK_cuGetProcAddress_v2;
}

int ng_cuda_hook_enable(enum ng_cuda_hook hook, void *function)
{
    void *none = NULL;

    if (!atomic_compare_exchange_strong(&hooks[hook], &none, function))
        return -EBUSY;
    if (rows[hook].for_nccl)
        atomic_store(&nccl_is_hooked, true);
    /* The hooks on cuGetProcAddress count only once another hook is enabled. */
    if (!is_question(hook))
        atomic_store(&ng_cuda_hooks_enabled, true);
    return 0;
}

bool ng_cuda_hook_is_for(enum ng_cuda_hook hook, bool nccl)
{
    if (is_question(hook))
        return !nccl || atomic_load_explicit(&nccl_is_hooked, memory_order_relaxed);
    return rows[hook].for_nccl == nccl;
}

static bool is_enabled(enum ng_cuda_hook hook)
{
    return hook != NG_CUDA_HOOK_COUNT && atomic_load_explicit(&hooks[hook], memory_order_acquire);
}

enum ng_cuda_hook ng_cuda_hook_of_symbol(const char *symbol)
{
    unsigned i = 0;

    while (i < NG_CUDA_HOOK_COUNT && strcmp(rows[i].symbol, symbol) != 0)
        i++;
    return is_enabled(i) ? i : NG_CUDA_HOOK_COUNT;
}

enum ng_cuda_hook ng_cuda_hook_of_question(const char *name, int version, cuuint64_t flags)
{
    bool per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    enum ng_cuda_hook best = NG_CUDA_HOOK_COUNT;

    /* As the driver does: a per-thread form is preferred if requested, then the newest one that the
     * caller's version knows. Without a flag the driver takes the legacy one. */
    for (unsigned i = 0; i < NG_CUDA_HOOK_COUNT; i++) {
        if (strcmp(rows[i].name, name) != 0 || rows[i].since > version ||
            (rows[i].per_thread && !per_thread))
            continue;
        if (best == NG_CUDA_HOOK_COUNT || rows[i].per_thread > rows[best].per_thread ||
            (rows[i].per_thread == rows[best].per_thread && rows[i].since > rows[best].since))
            best = i;
    }
    return is_enabled(best) ? best : NG_CUDA_HOOK_COUNT;
}

const char *ng_cuda_hook_question(enum ng_cuda_hook hook, int *ret_version, cuuint64_t *ret_flags)
{
    *ret_version = rows[hook].since;
    *ret_flags = rows[hook].per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
                                       : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
    return rows[hook].name;
}

void *ng_cuda_hook_answer(enum ng_cuda_hook hook, void *real)
{
    void *none = NULL;

    __atomic_compare_exchange_n(&ng_cuda_hook_reals[hook], &none, real, false, __ATOMIC_SEQ_CST,
                                __ATOMIC_SEQ_CST);
    return atomic_load_explicit(&hooks[hook], memory_order_acquire);
}
