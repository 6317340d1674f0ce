/*
 * State shared by the shim's files: whether calls reach core, and what each thread is inside of.
 *
 * Entered by any thread. Must never call anything: all other files depend on it.
 */
#include "shim/state.h"

#include "shim/shim.h"

__thread struct ng_shim_state ng_shim_state NG_TLS_INITIAL_EXEC;

atomic_bool ng_shim_active;
static atomic_bool shim_inert;

bool ng_shim_is_active(void)
{
    return atomic_load_explicit(&ng_shim_active, memory_order_acquire);
}

void ng_shim_set_inert(void)
{
    atomic_store(&shim_inert, true);
}

bool ng_shim_is_inert(void)
{
    return atomic_load_explicit(&shim_inert, memory_order_relaxed);
}

void ng_shim_adopt_thread(void)
{
    ng_shim_state.depth++;
}
