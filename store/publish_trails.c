/*
 * Comparing what ranks of different hosts called, without waiting for any: core/agreement.h.
 *
 * Step 8 across hosts. The store's thread only. Rank 0 of a group tells its trail (core/trail.h), and
 * of each other host the lowest rank of the group compares it with its own; within a host the black
 * boxes are compared. So a group costs one key, and one question a second from each host; a tenth of
 * that where nothing is called.
 *
 * The value: version 1, how many ranks the group has, a number that is another each time it is told,
 * `entered`, `last`, then the words of struct ng_trail in order; each 8 bytes, lowest first.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/agreement.h"
#include "core/clock.h"
#include "store/kv.h"
#include "store/publisher.h"

#define TRAIL_VERSION  1u
#define GROUPS_A_ROUND 32u
#define WORDS          (5 + NG_TRAIL_NEWEST + 2 * NG_TRAIL_LEVELS)
#define TRAIL_KEEP_MS  (600 * 1000)
#define BUSY_NS        (900 * NG_MS) /* every other round */
#define IDLE_NS        (10 * NG_S)
/* As if it were called for so long after the last call: whoever compares wants to hear of it twice
 * (ng_agreement_is_news). */
#define SETTLED_NS (5 * NG_S)

struct ng_trail_pace {
    uint64_t id, entered; /* as last seen */
    int64_t changed_ns, done_ns;
};

static void put_word(unsigned char *at, uint64_t value)
{
    for (unsigned i = 0; i < 8; i++)
        at[i] = (unsigned char)(value >> 8 * i);
}

static uint64_t get_word(const unsigned char *at)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < 8; i++)
        value |= (uint64_t)at[i] << 8 * i;
    return value;
}

/* What rank 0 tells. */
struct told {
    struct ng_trail trail;
    uint64_t nranks, turn;
};

static void encode(const struct told *told, unsigned char ret_bytes[WORDS * 8])
{
    const struct ng_trail *trail = &told->trail;
    unsigned at = 0;

    put_word(ret_bytes + 8 * at++, TRAIL_VERSION);
    put_word(ret_bytes + 8 * at++, told->nranks);
    put_word(ret_bytes + 8 * at++, told->turn);
    put_word(ret_bytes + 8 * at++, trail->entered);
    put_word(ret_bytes + 8 * at++, trail->last);
    for (unsigned i = 0; i < NG_TRAIL_NEWEST; i++)
        put_word(ret_bytes + 8 * at++, trail->newest[i]);
    for (unsigned i = 0; i < 2 * NG_TRAIL_LEVELS; i++)
        put_word(ret_bytes + 8 * at++, trail->marks[i / 2][i % 2]);
}

static bool decode(const struct ng_kv_bytes *value, struct told *ret_told)
{
    const unsigned char *bytes = (const void *)value->data;
    struct ng_trail *ret_trail = &ret_told->trail;
    unsigned at = 1;

    if (value->bytes != WORDS * 8 || get_word(bytes) != TRAIL_VERSION)
        return false;
    ret_told->nranks = get_word(bytes + 8 * at++);
    ret_told->turn = get_word(bytes + 8 * at++);
    ret_trail->entered = get_word(bytes + 8 * at++);
    ret_trail->last = get_word(bytes + 8 * at++);
    for (unsigned i = 0; i < NG_TRAIL_NEWEST; i++)
        ret_trail->newest[i] = get_word(bytes + 8 * at++);
    for (unsigned i = 0; i < 2 * NG_TRAIL_LEVELS; i++)
        ret_trail->marks[i / 2][i % 2] = get_word(bytes + 8 * at++);
    return true;
}

struct questions {
    struct ng_publisher *p;
    uint32_t slots[GROUPS_A_ROUND], count;
    uint64_t ids[GROUPS_A_ROUND];
};

/* A trail of ours, as of the group of this id: the slot may be given to another communicator at any
 * moment. */
static bool copy_trail(const struct ng_box *box, uint32_t slot, uint64_t id,
                       struct ng_trail *ret_trail)
{
    const struct ng_box_group *group = &box->groups[slot];
    uint32_t generation = atomic_load_explicit(&group->generation, memory_order_acquire);

    if (!ng_agreement_trail(box, slot, ng_clock_mono_ns(), ret_trail))
        return false;
    atomic_thread_fence(memory_order_acquire);
    return NG_LOAD(group->generation) == generation && NG_LOAD(group->id) == id &&
           ng_agreement_is_clear(box, slot);
}

static void take_trail(void *context, size_t index, const struct ng_kv_bytes *value)
{
    struct questions *questions = context;
    const struct ng_box *box = questions->p->options.own_box;
    struct ng_disagreement found = {0};
    struct ng_trail mine;
    struct told theirs;

    if (!value || index >= questions->count || !decode(value, &theirs))
        return;
    uint32_t slot = questions->slots[index];
    const struct ng_box_group *group = &box->groups[slot];
    if (!ng_agreement_is_news(box, slot, theirs.turn) ||
        theirs.nranks != (uint64_t)NG_LOAD(group->nranks) ||
        !copy_trail(box, slot, questions->ids[index], &mine) ||
        !ng_trail_differ(&mine, &theirs.trail, &found.difference))
        return;
    found.group_id = questions->ids[index];
    found.ranks[0] = NG_LOAD(group->group_rank);
    ng_agreement_found(&found);
}

/* Tell the trail of a group whose rank 0 we are. */
static int tell(struct ng_publisher *p, uint32_t slot)
{
    const struct ng_box *box = p->options.own_box;
    const struct ng_box_group *group = &box->groups[slot];
    struct told told = {.nranks = (uint64_t)NG_LOAD(group->nranks),
                        .turn = (uint64_t)ng_clock_unix_ns()};
    uint64_t id = NG_LOAD(group->id);
    unsigned char bytes[WORDS * 8];
    char key[KEY_BYTES];

    if (!copy_trail(box, slot, id, &told.trail))
        return 0;
    encode(&told, bytes);
    ng_publisher_uid_key(key, 't', id);
    return ng_kv_queue_set(p->kv, key, bytes, sizeof(bytes), TRAIL_KEEP_MS);
}

/* Is it time to tell the trail of this group, or to ask for that of its rank 0? Then it is done. */
static bool is_due(struct ng_trail_pace *pace, const struct ng_box_group *group)
{
    uint64_t id = NG_LOAD(group->id), entered = NG_LOAD(group->entered);
    int64_t now = ng_clock_mono_ns();

    if (pace->id != id)
        *pace = (struct ng_trail_pace){.id = id, .done_ns = now - IDLE_NS};
    if (pace->entered != entered || !pace->changed_ns) {
        pace->entered = entered;
        pace->changed_ns = now;
    }
    if (now - pace->done_ns < (now - pace->changed_ns < SETTLED_NS ? BUSY_NS : IDLE_NS))
        return false;
    pace->done_ns = now;
    return true;
}

int ng_publisher_compare(struct ng_publisher *p)
{
    const struct ng_box *box = p->options.own_box;
    uint32_t used = NG_LOAD(box->header->group_used), told = 0;
    struct questions questions = {.p = p};
    char names[GROUPS_A_ROUND][KEY_BYTES];
    const char *keys[GROUPS_A_ROUND];
    int error = 0;

    if (used > box->trail_capacity)
        used = box->trail_capacity;
    if (used && !p->paces && !(p->paces = calloc(box->trail_capacity, sizeof(*p->paces))))
        return 0; /* another time */
    for (uint32_t i = 0; i < used && !error; i++) {
        uint32_t slot = p->compared_at = p->compared_at + 1 < used ? p->compared_at + 1 : 0;
        const struct ng_box_group *group = &box->groups[slot];
        uint32_t across = NG_LOAD(box->trails[slot].across);
        bool room = across == NG_TRAIL_TELLS  ? told < GROUPS_A_ROUND
                    : across == NG_TRAIL_ASKS ? questions.count < GROUPS_A_ROUND
                                              : false;
        if (!room || !is_due(&p->paces[slot], group))
            continue;
        if (across == NG_TRAIL_TELLS) {
            told++;
            error = tell(p, slot);
        } else {
            ng_publisher_uid_key(names[questions.count], 't', NG_LOAD(group->id));
            keys[questions.count] = names[questions.count];
            questions.ids[questions.count] = NG_LOAD(group->id);
            questions.slots[questions.count++] = slot;
        }
    }
    if (!error && told)
        error = ng_publisher_flush(p);
    if (!error && questions.count)
        error = ng_kv_get_many(p->kv, keys, questions.count, ng_publisher_in(CALL_NS), take_trail,
                               &questions);
    return error ? ng_publisher_failed(p, error) : 0;
}
