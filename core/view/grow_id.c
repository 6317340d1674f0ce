/*
 * Grown groups: ranks that joined learn the id that the others use.
 *
 * Called by the incident thread while the program's threads create communicators. An id that they
 * derive from one that is corrected at the same moment is corrected in the next round. Must never
 * block or lock.
 */
#include "core/view/grow_id.h"

#include "core/nccl/group_id.h"
#include "core/util/log.h"
#include "core/util/macros.h"

static bool in_use(const struct ng_box_group *group)
{
    uint32_t state = atomic_load_explicit(&group->state, memory_order_acquire);

    return state != NG_GROUP_FREE && state != NG_GROUP_FAILED && NG_LOAD(group->id);
}

static uint32_t used_slots(const struct ng_box *box)
{
    uint32_t used = NG_LOAD(box->header->group_used);

    return used < box->group_capacity ? used : box->group_capacity;
}

bool ng_grow_id_waits(const struct ng_box_group *group)
{
    return NG_LOAD(group->joined_id) && NG_LOAD(group->joined_id) == NG_LOAD(group->id);
}

/* The group that `child` was created from, found by its former or its current id. NULL: gone, or
 * none. */
static const struct ng_box_group *parent_of(const struct ng_box *box, uint32_t used,
                                            const struct ng_box_group *child)
{
    uint64_t parent_id = atomic_load_explicit(&child->parent_id, memory_order_acquire);

    return parent_id ? NG_FIND(one, box->groups, used,
                               in_use(one) && (NG_LOAD(one->id) == parent_id ||
                                               NG_LOAD(one->former_id) == parent_id))
                     : NULL;
}

/* Is the id final: not derived from one that is still to be learned? */
static bool is_settled(const struct ng_box *box, uint32_t used, const struct ng_box_group *group)
{
    for (uint32_t depth = 0; group && depth < used; depth++) {
        if (ng_grow_id_waits(group))
            return false;
        const struct ng_box_group *parent = parent_of(box, used, group);
        if (parent && NG_LOAD(parent->id) != NG_LOAD(group->parent_id))
            return false;
        group = parent;
    }
    return true;
}

uint64_t ng_grow_id_find(const struct ng_box *box, uint64_t joined_id)
{
    uint32_t used = used_slots(box);

    NG_EACH (group, box->groups, used) {
        if (!in_use(group) || NG_LOAD(group->joined_id) != joined_id)
            continue;
        if (is_settled(box, used, group))
            return NG_LOAD(group->id);
    }
    return 0;
}

/* Readers of records accept either id, so the former id must be stored before the id changes. */
static void rename_group(struct ng_box_group *group, uint64_t id)
{
    NG_STORE(group->former_id, NG_LOAD(group->id));
    atomic_store_explicit(&group->id, id, memory_order_release);
}

static uint64_t derived_id(uint64_t parent_id, uint32_t created_by, uint32_t ordinal, int color,
                           uint64_t excluded)
{
    switch (created_by) {
    case NG_OP_CommSplit:
        return ng_group_id_split(parent_id, ordinal, color);
    case NG_OP_CommShrink:
        return ng_group_id_shrink(parent_id, ordinal, excluded);
    default:
        return ng_group_id_split(parent_id, ordinal, 0); /* grown once more */
    }
}

/* Corrects children that were created while their parent had another id. Parents are older than
 * their children, but not always in an earlier slot, so this repeats until nothing changes. */
static void correct_children(struct ng_box *box)
{
    uint32_t used = used_slots(box);
    bool changed = true;

    for (uint32_t round = 0; changed && round < used; round++) {
        changed = false;
        NG_EACH (parent, box->groups, used) {
            uint64_t former = in_use(parent) ? NG_LOAD(parent->former_id) : 0;
            for (uint32_t j = 0; former && j < used; j++) {
                struct ng_box_group *child = &box->groups[j];
                if (!in_use(child) ||
                    atomic_load_explicit(&child->parent_id, memory_order_acquire) != former)
                    continue;
                uint64_t parent_id = NG_LOAD(parent->id);
                rename_group(child, derived_id(parent_id, NG_LOAD(child->created_by),
                                               NG_LOAD(child->ordinal), NG_LOAD(child->color),
                                               NG_LOAD(child->excluded)));
                /* A reader that sees the parent's new id also sees ours. */
                atomic_store_explicit(&child->parent_id, parent_id, memory_order_release);
                changed = true;
            }
        }
    }
}

/* Nothing is derived from it any more, so its id hardly matters. */
static bool is_over(const struct ng_box_group *group)
{
    return ng_group_state_is_freed(atomic_load_explicit(&group->state, memory_order_acquire));
}

bool ng_grow_id_look_up(struct ng_box *box, struct ng_board *board)
{
    uint32_t used = used_slots(box);
    bool waits = false, renamed = false;

    NG_EACH (group, box->groups, used) {
        if (!in_use(group))
            continue;
        renamed |= NG_LOAD(group->former_id) != 0;
        if (!ng_grow_id_waits(group) || is_over(group))
            continue;
        uint64_t joined_id = NG_LOAD(group->joined_id), id = ng_grow_id_find(box, joined_id);
        if (!id && (!board || board->ops->grown(board, joined_id, &id) != 0)) {
            waits = true;
            continue;
        }
        /* The slot may have been given to another communicator meanwhile. */
        if (id == joined_id || !in_use(group) || NG_LOAD(group->joined_id) != joined_id)
            continue;
        ng_log(NG_LOG_DEBUG, "group %016llx is %016llx of those who invited this rank",
               (unsigned long long)joined_id, (unsigned long long)id);
        rename_group(group, id);
        renamed = true;
    }
    if (renamed)
        correct_children(box);
    return waits;
}

/* The id of the group of this index as a child of `parent_id`; 0: it is not known how it was
 * created. */
static uint64_t id_as_child(const struct ng_view *view, uint32_t group, uint64_t parent_id)
{
    NG_EACH (member, view->members, view->member_count)
        if (member->group == group && member->ordinal)
            return derived_id(parent_id, member->created_by, member->ordinal, member->color,
                              member->excluded);
    return 0;
}

static uint32_t find_child(const struct ng_view *view, uint64_t parent_id)
{
    for (uint32_t i = 0; i < view->group_count; i++)
        if (view->groups[i].parent_id == parent_id)
            return i;
    return UINT32_MAX;
}

/* Children take their new ids, then their own children do: no deeper than GENERATIONS, however
 * damaged the evidence is. */
#define GENERATIONS 64

static void unite(struct ng_view *view, uint64_t former, uint64_t id, unsigned generation)
{
    uint32_t group = ng_view_find_group(view, former), child;

    if (former == id || generation == GENERATIONS)
        return;
    if (group != UINT32_MAX)
        ng_view_rename_group(view, group, id);
    while ((child = find_child(view, former)) != UINT32_MAX) {
        uint64_t child_former = view->groups[child].id, child_id = id_as_child(view, child, id);
        view->groups[child].parent_id = id;
        if (child_id)
            unite(view, child_former, child_id, generation + 1);
    }
}

void ng_grow_id_unite(struct ng_view *view)
{
    NG_EACH (member, view->members, view->member_count) {
        uint64_t id = view->groups[member->group].id;
        /* If this rank invited others: do any of them still use the unique id? */
        if (member->joined_id && member->joined_id != id &&
            (ng_view_find_group(view, member->joined_id) != UINT32_MAX ||
             find_child(view, member->joined_id) != UINT32_MAX))
            unite(view, member->joined_id, id, 0);
    }
}
