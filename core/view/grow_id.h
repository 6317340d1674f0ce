/*
 * Groups that grew: one id for those who were there and for those who joined.
 *
 * ncclCommGrow: the ranks of the parent know parent and ordinal, those who join know a unique id,
 * and only the rank that made that id for them, with ncclCommGetUniqueId, knows both, beside those
 * that pass it to ncclCommGrow, if any does. So a rank that joins calls the group by the
 * unique id at first; its box says so, and the box of the rank that invited it says both. The
 * incident thread learns the right id from the board as soon as somebody there tells it, and
 * corrects what was derived from the group meanwhile. Source: NCCL 2.29, ncclCommGrow.
 */
#ifndef NCCLGUARD_CORE_VIEW_GROW_ID_H
#define NCCLGUARD_CORE_VIEW_GROW_ID_H

#include <stdbool.h>
#include <stdint.h>

#include "core/nccl/board.h"
#include "core/recorder/box.h"
#include "core/view/view.h"

/* What ranks of the parent call the group that others joined under this id, if this process knows;
 * 0: it does not, or not for good yet. Any process's box. */
uint64_t ng_grow_id_told(const struct ng_box *box, uint64_t joined_id);

/* Did this process join the group in this slot, and is its right id not known yet? */
bool ng_grow_id_waits(const struct ng_box_group *group);

/*
 * Ask the board for the ids that are not known yet, and correct what was derived from a former one.
 * Incident thread, in every round; `board` NULL: of this process alone. Never waits. True while an
 * id is not known yet.
 */
bool ng_grow_id_tend(struct ng_box *box, struct ng_board *board);

/*
 * In a view that is not sealed yet: what was joined under an id, and what was made of that, becomes
 * the group of those who invited. For processes that ended before they learned it, or have not come
 * to it yet. Any thread.
 */
void ng_grow_id_unite(struct ng_view *view);

#endif
