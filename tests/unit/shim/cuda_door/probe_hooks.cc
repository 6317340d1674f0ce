/*
 * Hooks that count and go on to the real function; enabled as a feature would, before main.
 */
#include "tests/unit/shim/cuda_door/probe_hooks.h"

#include <cstdlib>
#include <cstring>

/* What C has of its own for the flag that tells whether there are hooks; laid out the same. */
#if !defined(__clang__)
#include <atomic>
using std::atomic_bool, std::atomic_load_explicit, std::memory_order_relaxed;
#endif
extern "C" {
#include "shim/cuda_door.h"
}

static unsigned calls[NG_CUDA_HOOK_COUNT];

template <ng_cuda_hook id, typename... Parameters>
static CUresult CUDAAPI hook(Parameters... parameters)
{
    __atomic_fetch_add(&calls[id], 1, __ATOMIC_SEQ_CST);
    return reinterpret_cast<CUresult(CUDAAPI *)(Parameters...)>(ng_cuda_hook_real(id))(
        parameters...);
}

/* By their numbers. */
static const struct {
    const char *symbol;
    void *function;
} hooks[] = {
#define CUDA_HOOK(symbol, ...)                                                                     \
    {#symbol, (void *)static_cast<ng_cuda_function_##symbol *>(hook<NG_CUDA_HOOK_##symbol>)},
#include "shim/cuda_hooks.def"
#undef CUDA_HOOK
};

static ng_cuda_hook find(const char *symbol)
{
    for (unsigned i = 0; i < NG_CUDA_HOOK_COUNT; i++)
        if (strcmp(hooks[i].symbol, symbol) == 0)
            return (ng_cuda_hook)i;
    abort();
}

void *cuda_probe_door(bool second_form)
{
    return second_form ? (void *)ng_cuda_get_proc_address_v2 : (void *)ng_cuda_get_proc_address;
}

/* The shim has its own for the door. */
void *cuda_probe_hook(const char *symbol)
{
    ng_cuda_hook id = find(symbol);
    return id <= NG_CUDA_HOOK_cuGetProcAddress_v2
               ? cuda_probe_door(id == NG_CUDA_HOOK_cuGetProcAddress_v2)
               : hooks[id].function;
}

int cuda_probe_enable(const char *symbol)
{
    return ng_cuda_hook_enable(find(symbol), cuda_probe_hook(symbol));
}

unsigned cuda_probe_calls(const char *symbol)
{
    return __atomic_load_n(&calls[find(symbol)], __ATOMIC_SEQ_CST);
}

void *cuda_probe_real(const char *symbol)
{
    return ng_cuda_hook_real(find(symbol));
}

__attribute__((constructor)) static void start()
{
    const char *wanted = getenv("CUDA_PROBE_HOOKS");

    for (; wanted && *wanted; wanted += strcspn(wanted, ","), wanted += *wanted == ',')
        for (unsigned i = NG_CUDA_HOOK_cuGetProcAddress_v2 + 1; i < NG_CUDA_HOOK_COUNT; i++)
            if ((strncmp(wanted, "all", 3) == 0 && ng_cuda_hook_is_for((ng_cuda_hook)i, false)) ||
                (strncmp(wanted, hooks[i].symbol, strcspn(wanted, ",")) == 0 &&
                 strcspn(wanted, ",") == strlen(hooks[i].symbol)))
                cuda_probe_enable(hooks[i].symbol);
}
