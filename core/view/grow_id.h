/*
 * Grown groups: one id for the existing ranks and for the ranks that joined.
 *
 * ncclCommGrow: the ranks of the parent know parent and ordinal; joining ranks know a unique id.
 * Both are known only to the rank that created that id for them with ncclCommGetUniqueId, and to
 * any other rank that passes the id to ncclCommGrow. So a joining rank at first uses the unique id
 * for the group and says so in its box; the box of the rank that invited it has both ids. The
 * incident thread learns the right id from the board as soon as a rank publishes it there, and
 * corrects everything that was derived from the group in the meantime. Source: NCCL 2.29,
 * ncclCommGrow.
 */
#ifndef NCCLGUARD_CORE_VIEW_GROW_ID_H
#define NCCLGUARD_CORE_VIEW_GROW_ID_H

#include <stdbool.h>
#include <stdint.h>

#include "core/nccl/board.h"
#include "core/recorder/box.h"
#include "core/view/view.h"

/* The id that ranks of the parent use for the group that others joined under `joined_id`, if this
 * process knows it; 0: it does not, or the id may still change. Any process's box. */
uint64_t ng_grow_id_find(const struct ng_box *box, uint64_t joined_id);

/* Did this process join the group in this slot, and is its final id not known yet? */
bool ng_grow_id_waits(const struct ng_box_group *group);

/*
 * Looks up on the board the ids that are not known yet, and corrects ids that were derived from a
 * former one. Incident thread, in every round; `board` NULL: uses this process only. Never blocks.
 * True while an id is not known yet.
 */
bool ng_grow_id_look_up(struct ng_box *box, struct ng_board *board);

/*
 * In a view that is not sealed yet: merges each group that ranks joined under a unique id, and the
 * groups derived from it, into the inviting ranks' group. For processes that ended before they
 * learned the id, or have not learned it yet. Any thread.
 */
void ng_grow_id_unite(struct ng_view *view);

#endif
