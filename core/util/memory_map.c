/*
 * A map of address ranges, as an array of leaves of up to 128 sorted ranges each.
 *
 * Not in the path of a call. Entered by any thread of the program, from the hooks on the driver's
 * allocations. Must never call malloc, the driver or NCCL. Both searches are binary, and at most
 * one leaf is moved: at realistic sizes this is cheaper than a tree of single ranges.
 */
#include "core/util/memory_map.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "core/util/macros.h"
#include "core/util/memory.h"

#define LEAF_RANGES 128u
#define LEAVES_MAX  16384u /* at least half a million ranges */

struct ng_memory_leaf {
    uintptr_t bases[LEAF_RANGES];
    size_t bytes[LEAF_RANGES];
    struct {
        int16_t device;
        uint8_t kind, flags;
    } rests[LEAF_RANGES];
    uint32_t count;
    struct ng_memory_leaf *next_free;
};

struct ng_memory_place {
    uintptr_t first; /* base of the leaf's first range */
    struct ng_memory_leaf *leaf;
};

/* Position of a range in the map: a place, and an index in its leaf. */
struct spot {
    uint32_t place, index;
};

static struct ng_memory_leaf *leaf_at(const struct ng_memory_map *map, struct spot spot)
{
    return map->places[spot.place].leaf;
}

static bool is_range(const struct ng_memory_map *map, struct spot spot)
{
    return spot.place < map->place_count && spot.index < leaf_at(map, spot)->count;
}

static struct ng_segment read_range(const struct ng_memory_map *map, struct spot spot)
{
    const struct ng_memory_leaf *leaf = leaf_at(map, spot);

    return (struct ng_segment){.base = leaf->bases[spot.index],
                               .bytes = leaf->bytes[spot.index],
                               .device = leaf->rests[spot.index].device,
                               .kind = leaf->rests[spot.index].kind,
                               .flags = leaf->rests[spot.index].flags};
}

/* The first range that begins above `address` in the leaf to which `address` belongs; it may be one
 * past that leaf's end. Place 0 if there is no leaf. */
static struct spot find_beyond(const struct ng_memory_map *map, uintptr_t address)
{
    uint32_t low = NG_FIRST_INDEX(map->place_count, i, map->places[i].first <= address);

    struct spot spot = {.place = low ? low - 1 : 0};
    if (!map->place_count)
        return spot;
    const struct ng_memory_leaf *leaf = leaf_at(map, spot);
    low = NG_FIRST_INDEX(leaf->count, i, leaf->bases[i] <= address);
    spot.index = low;
    return spot;
}

/* The last range that begins at or before `address`. False: none does. */
static bool find_before(const struct ng_memory_map *map, uintptr_t address, struct spot *ret_spot)
{
    struct spot spot = find_beyond(map, address);

    /* A leaf is never empty, and is located by its first range: so only the first leaf may have no
     * range before the address. */
    if (!map->place_count || spot.index == 0)
        return false;
    spot.index--;
    *ret_spot = spot;
    return true;
}

static struct spot normalised(const struct ng_memory_map *map, struct spot spot)
{
    if (spot.place < map->place_count && spot.index == leaf_at(map, spot)->count)
        return (struct spot){.place = spot.place + 1};
    return spot;
}

static bool prepare(struct ng_memory_map *map)
{
    size_t places = LEAVES_MAX * sizeof(map->places[0]);
    size_t leaves = LEAVES_MAX * sizeof(map->leaves[0]);

    if (map->places)
        return true;
    char *memory = ng_memory_reserve(places + leaves);
    if (!memory)
        return false;
    map->places = (struct ng_memory_place *)memory;
    map->leaves = (struct ng_memory_leaf *)(memory + places);
    return true;
}

/* Add an empty leaf at a place; NULL: no room. */
static struct ng_memory_leaf *add_leaf(struct ng_memory_map *map, uint32_t place)
{
    struct ng_memory_leaf *leaf = map->free;

    if (leaf)
        map->free = leaf->next_free;
    else if (map->leaf_count < LEAVES_MAX)
        leaf = &map->leaves[map->leaf_count++];
    else
        return NULL;
    leaf->count = 0;
    memmove(map->places + place + 1, map->places + place,
            (map->place_count - place) * sizeof(map->places[0]));
    map->places[place].leaf = leaf;
    map->place_count++;
    return leaf;
}

static void drop_leaf(struct ng_memory_map *map, uint32_t place)
{
    struct ng_memory_leaf *leaf = map->places[place].leaf;

    leaf->next_free = map->free;
    map->free = leaf;
    map->place_count--;
    memmove(map->places + place, map->places + place + 1,
            (map->place_count - place) * sizeof(map->places[0]));
}

static void move_ranges(struct ng_memory_leaf *to, uint32_t at, const struct ng_memory_leaf *from,
                        uint32_t index, uint32_t count)
{
    memmove(to->bases + at, from->bases + index, count * sizeof(to->bases[0]));
    memmove(to->bytes + at, from->bytes + index, count * sizeof(to->bytes[0]));
    memmove(to->rests + at, from->rests + index, count * sizeof(to->rests[0]));
}

static bool split_leaf(struct ng_memory_map *map, uint32_t place)
{
    struct ng_memory_leaf *upper = add_leaf(map, place + 1);
    struct ng_memory_leaf *lower = map->places[place].leaf;
    uint32_t half = LEAF_RANGES / 2;

    if (!upper)
        return false;
    move_ranges(upper, 0, lower, half, lower->count - half);
    upper->count = lower->count - half;
    lower->count = half;
    map->places[place + 1].first = upper->bases[0];
    return true;
}

static void take_out(struct ng_memory_map *map, struct spot spot)
{
    struct ng_memory_leaf *leaf = leaf_at(map, spot);
    struct ng_memory_sum *sum = &map->sums[leaf->rests[spot.index].kind];

    sum->segments--;
    sum->bytes -= leaf->bytes[spot.index];
    leaf->count--;
    move_ranges(leaf, spot.index, leaf, spot.index + 1, leaf->count - spot.index);
    if (!leaf->count) {
        drop_leaf(map, spot.place);
        return;
    }
    map->places[spot.place].first = leaf->bases[0];
    if (spot.place + 1 == map->place_count)
        return;
    /* Join leaves that were partly emptied, or they would use up the places. */
    struct ng_memory_leaf *next = map->places[spot.place + 1].leaf;
    if (leaf->count + next->count > LEAF_RANGES / 2)
        return;
    move_ranges(leaf, leaf->count, next, 0, next->count);
    leaf->count += next->count;
    drop_leaf(map, spot.place + 1);
}

/* Remove overlapping ranges, which were freed unseen. Under the lock. */
static void clear_range(struct ng_memory_map *map, uintptr_t base, size_t bytes)
{
    struct spot spot;

    while (find_before(map, base + (bytes - 1), &spot)) {
        struct ng_segment there = read_range(map, spot);
        if (there.base < base && base - there.base >= there.bytes)
            return;
        take_out(map, spot);
        map->replaced++;
    }
}

static int add_locked(struct ng_memory_map *map, const struct ng_segment *segment)
{
    if (!prepare(map))
        return -ENOMEM;
    clear_range(map, segment->base, segment->bytes);
    struct spot spot = find_beyond(map, segment->base);
    if (!map->place_count && !add_leaf(map, 0))
        return -ENOMEM;
    struct ng_memory_leaf *leaf = leaf_at(map, spot);
    if (leaf->count == LEAF_RANGES) {
        if (!split_leaf(map, spot.place))
            return -ENOMEM;
        spot = find_beyond(map, segment->base);
        leaf = leaf_at(map, spot);
    }
    move_ranges(leaf, spot.index + 1, leaf, spot.index, leaf->count - spot.index);
    leaf->bases[spot.index] = segment->base;
    leaf->bytes[spot.index] = segment->bytes;
    leaf->rests[spot.index].device = segment->device;
    leaf->rests[spot.index].kind = segment->kind;
    leaf->rests[spot.index].flags = segment->flags;
    leaf->count++;
    map->places[spot.place].first = leaf->bases[0];
    map->sums[segment->kind].segments++;
    map->sums[segment->kind].bytes += segment->bytes;
    return 0;
}

int ng_memory_map_put(struct ng_memory_map *map, const struct ng_segment *segment,
                      bool *ret_replaced)
{
    *ret_replaced = false;
    if (!segment->bytes || segment->base > UINTPTR_MAX - (segment->bytes - 1) ||
        segment->kind >= NG_SEGMENT_KINDS)
        return -EINVAL;
    NG_HOLD(&map->lock);
    uint64_t before = map->replaced;
    int error = add_locked(map, segment);
    map->lost += error != 0;
    *ret_replaced = map->replaced != before;
    return error;
}

int ng_memory_map_add(struct ng_memory_map *map, const struct ng_segment *segment)
{
    bool replaced;

    return ng_memory_map_put(map, segment, &replaced);
}

bool ng_memory_map_remove(struct ng_memory_map *map, uintptr_t base, struct ng_segment *ret_segment)
{
    struct spot spot;

    NG_HOLD(&map->lock);
    bool found = find_before(map, base, &spot) && leaf_at(map, spot)->bases[spot.index] == base;
    if (found) {
        *ret_segment = read_range(map, spot);
        take_out(map, spot);
    }
    return found;
}

bool ng_memory_map_find(struct ng_memory_map *map, uintptr_t address,
                        struct ng_segment *ret_segment)
{
    struct spot spot;

    NG_HOLD(&map->lock);
    bool found = find_before(map, address, &spot);
    if (found) {
        struct ng_segment segment = read_range(map, spot);
        found = address - segment.base < segment.bytes;
        if (found)
            *ret_segment = segment;
    }
    return found;
}

bool ng_memory_map_next(struct ng_memory_map *map, uintptr_t from, struct ng_segment *ret_segment)
{
    NG_HOLD(&map->lock);
    struct spot spot = from ? normalised(map, find_beyond(map, from - 1)) : (struct spot){0};
    bool found = is_range(map, spot);
    if (found)
        *ret_segment = read_range(map, spot);
    return found;
}

uint64_t ng_memory_map_remove_all(struct ng_memory_map *map,
                                  bool (*matches)(const struct ng_segment *segment, int argument),
                                  int argument)
{
    uint64_t removed = 0;
    uintptr_t from = 0;

    NG_HOLD(&map->lock);
    for (;;) {
        struct spot spot = from ? normalised(map, find_beyond(map, from - 1)) : (struct spot){0};
        if (!is_range(map, spot))
            break;
        struct ng_segment segment = read_range(map, spot);
        from = segment.base + 1;
        if (!matches(&segment, argument))
            continue;
        take_out(map, spot);
        removed++;
    }
    return removed;
}

void ng_memory_map_sum(struct ng_memory_map *map, struct ng_memory_sum ret_sums[NG_SEGMENT_KINDS])
{
    NG_HOLD(&map->lock);
    memcpy(ret_sums, map->sums, sizeof(map->sums));
}

void ng_memory_map_reset(struct ng_memory_map *map)
{
    if (map->places)
        munmap(map->places, LEAVES_MAX * (sizeof(map->places[0]) + sizeof(map->leaves[0])));
    *map = (struct ng_memory_map)NG_MEMORY_MAP_EMPTY;
}

const char *ng_segment_kind_name(enum ng_segment_kind kind)
{
    static const char *const names[NG_SEGMENT_KINDS] = {"plain",  "pool", "managed",
                                                        "mapped", "nccl", "peer"};

    return kind < NG_SEGMENT_KINDS ? names[kind] : "unknown";
}
