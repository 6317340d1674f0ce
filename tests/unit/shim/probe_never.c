/*
 * What the short way of a call needs of core: never reached here, since the probe's guard does not
 * run. Without their headers, since nothing calls them.
 */
#include <stdatomic.h>
#include <stdlib.h>

#define NEVER(name)                                                                                \
    void name(void) __attribute__((visibility("hidden")));                                         \
    void name(void)                                                                                \
    {                                                                                              \
        abort();                                                                                   \
    }

NEVER(ng_comm_find_further)
NEVER(ng_comm_peer)
NEVER(ng_gpu_give)
NEVER(ng_group_calls_enter)
NEVER(ng_group_calls_keep)
NEVER(ng_group_calls_leave)
NEVER(ng_hash_log_mark)
NEVER(ng_kept_take)
NEVER(ng_ring_set_state)
NEVER(ng_thread_other_group_calls)
NEVER(ng_wake_watchdog)
NEVER(ng_work_await)
NEVER(ng_work_leave_unobserved)
NEVER(ng_work_hand)
NEVER(ng_work_keep_last)
NEVER(ng_work_leave_unsuccessful)
NEVER(ng_work_prepare)
NEVER(ng_work_start)
NEVER(ng_work_start_measured)

atomic_bool ng_wake_watchdog_rests __attribute__((visibility("hidden")));
