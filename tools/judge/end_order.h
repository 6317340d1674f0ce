/*
 * The order in which the processes of a job ended, all of which have.
 */
#ifndef NCCLGUARD_TOOLS_JUDGE_END_ORDER_H
#define NCCLGUARD_TOOLS_JUDGE_END_ORDER_H

#include "core/view/view.h"

/* When the last of the dead processes gave its last sign of life, by the clocks of their hosts; 0
 * not known for all. */
int64_t ng_end_order_last_sign_unix_ns(const struct ng_view *view);

/*
 * How long ago the last sign of life was. Not how long ago it was found dead, which is the same for
 * all if nothing checked before; and not by ages, if there are clocks: each dump has ages relative
 * to its own moment.
 */
int64_t ng_end_order_sign_age_ns(const struct ng_view_process *process, int64_t last_unix_ns);

/*
 * The rank that crashed or failed before its launcher began to end the others: it ended before all
 * of them, and in another way than any. That is known if one observer saw all ends: by the clock of
 * one host. NULL: not known.
 */
const struct ng_view_process *ng_end_order_find_first(const struct ng_view *view);

#endif
