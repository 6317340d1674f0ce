/*
 * Agreement before each launch, across hosts: core/check/lockstep_check.h.
 *
 * The store's thread only. Each rank of a group says that it is present; the lowest one of each
 * host also says which collective all ranks of its host have reached, alike, with which rolling
 * hash. Rank 0 of the group reads what the hosts say, and publishes which collective all have
 * reached; the others read that. So a collective costs each host two round trips, however many
 * hosts there are, and while it is waited for, one every 0.2 ms at first, and ever fewer
 * later. Everything is a value that is set, and may be set again: nothing is lost, or counted
 * twice, with a connection. A value that is not set again for ten seconds expires: a rank that has
 * lost the store is not waited for.
 *
 * Values are words (store/kv/words.h), of version 1.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/util/clock.h"
#include "core/util/log.h"
#include "core/view/comparable.h"
#include "store/kv/kv.h"
#include "store/kv/words.h"
#include "store/publish/publisher.h"

#define AGREE_VERSION 1u
#define KEYS          256u          /* of one query */
#define ASK_NS        (200 * NG_US) /* between queries, at first … */
#define ASK_MAX_NS    (50 * NG_MS)  /* … and later */
#define LOOK_NS       NG_S          /* between searches for ranks that were not present yet */
#define PATIENCE_NS                                                                                \
    (5 * NG_S) /* silent for longer: not guarded, or not on this store                             \
                */
#define SAID_TTL_MS (10 * 1000)
#define SAID_NS     (3 * NG_S) /* after which it is stored again */

/*
 * What a rank says: version, ranks of the group, collectives it has refused, the collective that
 * its host has reached, the hash there, the newest one that this rank launched without asking, from
 * which one on no rank waits (0 none), and for how many ranks it speaks.
 */
enum {
    SAID_VERSION,
    SAID_NRANKS,
    SAID_REFUSED,
    SAID_HERE,
    SAID_HASH,
    SAID_PASSED,
    SAID_UNASKED,
    SAID_COUNT,
    SAID_WORDS
};

/* What rank 0 answers: version, ranks of the group, collectives it has refused, whose host is the
 * reason, the collective that all have reached, and from which one on no rank waits. */
enum { TOLD_VERSION, TOLD_NRANKS, TOLD_REFUSED, TOLD_BY, TOLD_AGREED, TOLD_UNASKED, TOLD_WORDS };

struct ng_agree_pace {
    uint64_t id;
    uint32_t generation;
    uint64_t said[SAID_WORDS], told[TOLD_WORDS]; /* as on the store; version 0: nothing is */
    int64_t said_ns;
    bool alone;         /* rank 0 has not answered: the ranks of our host agree alone */
    uint64_t waits_for; /* the collective for which our host waits */
    int64_t waits_ns, asked_ns, looked_ns;
    /* Rank 0. */
    uint32_t *speakers;              /* ranks that speak for other hosts; owned */
    uint32_t speaker_count, present; /* ranks that say they are present, including us */
    uint64_t spoken_for;             /* how many of them had a speaker when last checked */
    bool complete;                   /* no other rank is waited for */
};

/* One of our groups, as it is now. */
struct group {
    bool ended; /* no more queries, but refusals are still to be published */
    uint64_t id, nranks, rank;
    struct ng_box_hash_log *hash_log;
    struct ng_agree_pace *pace;
};

static bool read_words(const struct ng_kv_bytes *value, uint64_t nranks, unsigned count,
                       uint64_t *ret_words)
{
    if (!value || value->bytes != (size_t)8 * count)
        return false;
    ng_words_get(value->data, count, ret_words);
    /* In both, the third is the number of refusals, which the black box counts in 32 bits. */
    return ret_words[0] == AGREE_VERSION && ret_words[1] == nranks && ret_words[2] <= UINT32_MAX;
}

static void said_key(char ret_key[KEY_BYTES], uint64_t id, uint64_t rank)
{
    snprintf(ret_key, KEY_BYTES, "c/%016" PRIx64 "/%" PRIu64, id, rank);
}

static uint64_t earlier_of(uint64_t a, uint64_t b)
{
    return !a || (b && b < a) ? b : a;
}

/* 0: this rank, which refused nothing, or for a reason of its own. */
static uint64_t reason_of(const struct ng_box_hash_log *hash_log)
{
    uint64_t refused = NG_LOAD(hash_log->refused);

    return refused && NG_LOAD(hash_log->apart_after) + 1 == refused && NG_LOAD(hash_log->apart)
               ? NG_LOAD(hash_log->apart_rank)
           : NG_LOAD(hash_log->given_up) >= refused ? NG_LOAD(hash_log->given_up_rank)
                                                    : 0;
}

/* ---- What we say ---- */

static bool queue_changed(struct ng_publisher *p, const char *key, const uint64_t *words,
                          unsigned count, uint64_t *known)
{
    unsigned char bytes[SAID_WORDS * 8];

    if (memcmp(words, known, count * sizeof(words[0])) == 0)
        return false;
    ng_words_put(words, count, bytes);
    if (ng_kv_queue_set(p->kv, key, bytes, (size_t)8 * count, SAID_TTL_MS) != 0)
        return false;
    memcpy(known, words, count * sizeof(words[0]));
    return true;
}

/* True: something is queued. */
static bool say(struct ng_publisher *p, const struct group *group)
{
    struct ng_box_hash_log *hash_log = group->hash_log;
    struct ng_agree_pace *pace = group->pace;
    uint64_t refused = atomic_load(&hash_log->refused);
    uint64_t here = atomic_load_explicit(&hash_log->here, memory_order_acquire);
    uint64_t unasked = earlier_of(NG_LOAD(hash_log->captured), NG_LOAD(hash_log->unasked));
    uint64_t passed = atomic_load(&hash_log->passed), agreed = atomic_load(&hash_log->agreed);
    uint32_t count = NG_LOAD(hash_log->here_count);
    int64_t now = ng_clock_mono_ns();
    struct ng_hash_log copy;
    char key[KEY_BYTES];

    ng_hash_log_copy(hash_log, here, here, &copy);
    uint64_t hash = here ? ng_hash_log_at(&copy, here) : 0;
    /* One that was refused meanwhile is called again, perhaps with another hash. */
    if (atomic_load(&hash_log->refused) != refused || atomic_load(&hash_log->here) != here)
        return false;
    if (now - pace->said_ns >= SAID_NS && !group->ended) {
        pace->said_ns = now;
        pace->said[SAID_VERSION] = pace->told[TOLD_VERSION] = 0;
    }
    const uint64_t said[SAID_WORDS] = {AGREE_VERSION, group->nranks, refused, here,
                                       hash,          passed,        unasked, count};
    said_key(key, group->id, group->rank);
    bool queued = queue_changed(p, key, said, SAID_WORDS, pace->said);
    if (group->rank != 0)
        return queued;
    const uint64_t told[TOLD_WORDS] = {AGREE_VERSION,
                                       group->nranks,
                                       refused,
                                       reason_of(hash_log),
                                       passed > agreed ? passed : agreed,
                                       unasked};
    ng_publisher_uid_key(key, 'c', group->id);
    return queue_changed(p, key, told, TOLD_WORDS, pace->told) || queued;
}

/* ---- What others say ---- */

static void take_unasked(struct ng_box_hash_log *hash_log, uint64_t unasked)
{
    if (unasked && earlier_of(NG_LOAD(hash_log->unasked), unasked) == unasked)
        NG_STORE(hash_log->unasked, unasked);
}

static void take_given_up(struct ng_box_hash_log *hash_log, uint64_t given_up, uint64_t rank)
{
    NG_STORE(hash_log->given_up_rank, (uint32_t)rank);
    atomic_store(&hash_log->given_up, (uint32_t)given_up);
}

static void take_agreed(struct ng_box_hash_log *hash_log, uint64_t agreed)
{
    if (agreed > NG_LOAD(hash_log->agreed))
        ng_hash_log_agree(hash_log, agreed);
}

/* Rank 0 has never answered: the state of other hosts is not known. */
static void hear_nothing(const struct group *group)
{
    struct ng_agree_pace *pace = group->pace;

    if (!pace->alone && ng_clock_mono_ns() - pace->waits_ns < PATIENCE_NS)
        return;
    if (!pace->alone)
        ng_log(NG_LOG_WARN,
               "NCCLGUARD_CHECK=strict: of group %016" PRIx64
               ", rank 0 is not guarded, or not on this board: only ranks of one host agree",
               group->id);
    pace->alone = true;
    take_agreed(group->hash_log, pace->waits_for);
}

/* Rank 0's answer. */
static int hear(struct ng_publisher *p, const struct group *group)
{
    struct ng_box_hash_log *hash_log = group->hash_log;
    uint64_t told[TOLD_WORDS], refused = atomic_load(&hash_log->refused);
    struct ng_kv_bytes value;
    char key[KEY_BYTES];

    ng_publisher_uid_key(key, 'c', group->id);
    int error = ng_kv_get(p->kv, key, ng_publisher_in(CALL_NS), &value);
    if (error && error != -ENOENT)
        return error;
    bool heard = !error && read_words(&value, group->nranks, TOLD_WORDS, told) &&
                 told[TOLD_BY] < group->nranks;
    if (atomic_load(&hash_log->refused) != refused)
        return 0; /* it is no longer the one that was queried */
    if (!heard) {
        hear_nothing(group);
        return 0;
    }
    group->pace->alone = false;
    take_unasked(hash_log, told[TOLD_UNASKED]);
    if (told[TOLD_REFUSED] > refused) /* if rank 0 names us, then from our side rank 0 is the other
                                       * one */
        take_given_up(hash_log, told[TOLD_REFUSED],
                      told[TOLD_BY] == group->rank ? 0 : told[TOLD_BY]);
    else if (told[TOLD_REFUSED] == refused)
        take_agreed(hash_log, told[TOLD_AGREED]);
    return 0;
}

/* Rank 0 reads what the ranks say. */
struct round {
    const struct group *group;
    const uint32_t *ranks; /* of this query */
    bool looks;            /* for ranks that are present */
    uint64_t refused, here, hash;
    uint64_t come; /* ranks that have reached it, alike */
    bool apart, passed;
};

static void take_word(void *context, size_t index, const struct ng_kv_bytes *value)
{
    struct round *round = context;
    const struct group *group = round->group;
    struct ng_agree_pace *pace = group->pace;
    uint64_t said[SAID_WORDS];
    uint32_t rank = round->ranks[index];

    if (!read_words(value, group->nranks, SAID_WORDS, said) || said[SAID_COUNT] > group->nranks)
        return;
    pace->present += round->looks;
    take_unasked(group->hash_log, said[SAID_UNASKED]);
    if (said[SAID_REFUSED] > round->refused)
        take_given_up(group->hash_log, said[SAID_REFUSED], rank);
    if (said[SAID_PASSED] >= round->here)
        round->passed = true; /* a rank has launched it: it can no longer be prevented */
    if (!said[SAID_COUNT])
        return; /* another rank of its host reports which collective it has reached */
    if (round->looks) {
        pace->speakers[pace->speaker_count++] = rank;
        pace->spoken_for += said[SAID_COUNT];
    }
    if (said[SAID_REFUSED] != round->refused || said[SAID_HERE] < round->here)
        return;
    if (said[SAID_HERE] > round->here || said[SAID_HASH] == round->hash || !said[SAID_HASH] ||
        !round->hash) {
        round->come += said[SAID_COUNT];
    } else if (!round->apart) {
        round->apart = true;
        NG_STORE(group->hash_log->apart_rank, rank);
    }
}

static int ask_ranks(struct ng_publisher *p, struct round *round, const uint32_t *ranks,
                     uint32_t count)
{
    char names[KEYS][KEY_BYTES];
    const char *keys[KEYS];
    int error = 0;

    for (uint32_t first = 0; first < count && !error; first += KEYS) {
        uint32_t many = count - first < KEYS ? count - first : KEYS;
        for (uint32_t i = 0; i < many; i++) {
            said_key(names[i], round->group->id, ranks[first + i]);
            keys[i] = names[i];
        }
        round->ranks = &ranks[first];
        error = ng_kv_get_many(p->kv, keys, many, ng_publisher_in(CALL_NS), take_word, round);
    }
    return error;
}

/* The ranks present must be searched again. */
static void forget_ranks(struct ng_agree_pace *pace)
{
    pace->complete = false;
    pace->looked_ns = 0;
}

/* All ranks, not only those known to speak for a host. */
static int look_for_ranks(struct ng_publisher *p, struct round *round)
{
    const struct group *group = round->group;
    struct ng_agree_pace *pace = group->pace;
    uint32_t count = (uint32_t)group->nranks - 1;
    uint32_t *all = malloc(count * sizeof(*all));

    if (!pace->speakers)
        pace->speakers = malloc(count * sizeof(*pace->speakers));
    if (!all || !pace->speakers) {
        free(all);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < count; i++)
        all[i] = i + 1;
    pace->looked_ns = ng_clock_mono_ns();
    pace->speaker_count = 0;
    pace->present = 1;
    pace->spoken_for = round->come;
    round->looks = true;
    int error = ask_ranks(p, round, all, count);
    free(all);
    if (error)
        forget_ranks(pace);
    return error;
}

static void note_completeness(const struct group *group)
{
    struct ng_agree_pace *pace = group->pace;

    if (pace->complete || pace->present == group->nranks) {
        pace->complete = true;
    } else if (ng_clock_mono_ns() - pace->waits_ns >= PATIENCE_NS) {
        pace->complete = true;
        ng_log(NG_LOG_WARN,
               "NCCLGUARD_CHECK=strict: %" PRIu64 " of the %" PRIu64 " ranks of group %016" PRIx64
               " are not guarded, or not on this board: nobody waits for them",
               group->nranks - pace->present, group->nranks, group->id);
    }
}

static int gather(struct ng_publisher *p, const struct group *group)
{
    struct ng_box_hash_log *hash_log = group->hash_log;
    struct ng_agree_pace *pace = group->pace;
    struct round round = {.group = group,
                          .refused = atomic_load(&hash_log->refused),
                          .here = atomic_load(&hash_log->here)};
    bool looks = !pace->complete || pace->spoken_for < pace->present ||
                 ng_clock_mono_ns() - pace->looked_ns >= LOOK_NS;
    struct ng_hash_log copy;

    ng_hash_log_copy(hash_log, round.here, round.here, &copy);
    round.hash = ng_hash_log_at(&copy, round.here);
    round.come = NG_LOAD(hash_log->here_count);
    int error = looks ? look_for_ranks(p, &round)
                      : ask_ranks(p, &round, pace->speakers, pace->speaker_count);
    if (error)
        return error;
    note_completeness(group);
    /* It was refused here meanwhile. */
    if (atomic_load(&hash_log->refused) != round.refused ||
        atomic_load(&hash_log->here) != round.here)
        return 0;
    if (round.passed) {
        take_agreed(hash_log, round.here);
    } else if (round.apart) {
        NG_STORE(hash_log->apart_after, (uint32_t)round.refused);
        atomic_store(&hash_log->apart, round.here);
    } else if (pace->complete && round.come >= pace->present) {
        take_agreed(hash_log, round.here);
    }
    return 0;
}

/* ---- Rounds ---- */

/* False: it is not one that is agreed on, or has just stopped being one. */
static bool find_group(struct ng_publisher *p, uint32_t slot, struct group *ret_group)
{
    const struct ng_box *box = p->options.own_box;
    const struct ng_box_group *group = &box->groups[slot];
    uint32_t generation = atomic_load_explicit(&group->generation, memory_order_acquire);
    struct ng_agree_pace *pace = &p->agree.paces[slot];

    *ret_group = (struct group){.id = NG_LOAD(group->id),
                                .nranks = (uint64_t)NG_LOAD(group->nranks),
                                .rank = (uint64_t)NG_LOAD(group->group_rank),
                                .hash_log = &box->hash_logs[slot],
                                .pace = pace};
    bool ours = pace->id == ret_group->id && pace->generation == generation;
    ret_group->ended = !ng_comparable_is_clear(box, slot);
    if (ret_group->ended && (!ours || !pace->said[SAID_VERSION]))
        return false;
    if (!ours) {
        free(pace->speakers);
        *pace = (struct ng_agree_pace){.id = ret_group->id, .generation = generation};
    }
    atomic_thread_fence(memory_order_acquire);
    return NG_LOAD(group->generation) == generation && NG_LOAD(group->id) == ret_group->id;
}

/* Does our host wait for others? Then *ret_due_ns: when to query them. */
static bool waits(const struct group *group, int64_t *ret_due_ns)
{
    struct ng_box_hash_log *hash_log = group->hash_log;
    struct ng_agree_pace *pace = group->pace;
    uint64_t here = NG_LOAD(hash_log->here),
             unasked = earlier_of(NG_LOAD(hash_log->captured), NG_LOAD(hash_log->unasked));

    if (!NG_LOAD(hash_log->here_count) || here <= NG_LOAD(hash_log->agreed) ||
        (unasked && unasked <= here)) {
        pace->waits_for = 0;
        return false;
    }
    if (pace->waits_for != here) {
        pace->waits_for = here;
        pace->waits_ns = ng_clock_mono_ns();
        pace->asked_ns = 0;
    }
    int64_t between_ns = (pace->asked_ns - pace->waits_ns) / 8;
    *ret_due_ns = pace->asked_ns + (between_ns < ASK_NS       ? ASK_NS
                                    : between_ns > ASK_MAX_NS ? ASK_MAX_NS
                                                              : between_ns);
    return true;
}

/* Publish what has changed. */
static int tell(struct ng_publisher *p, const struct group *group)
{
    int error = say(p, group) ? ng_publisher_flush(p) : 0;

    if (error)
        group->pace->said[SAID_VERSION] = group->pace->told[TOLD_VERSION] = 0;
    return error;
}

/* Publish and query whatever is due for a group. */
static int exchange(struct ng_publisher *p, const struct group *group)
{
    struct ng_box_hash_log *hash_log = group->hash_log;
    int64_t due_ns, now = ng_clock_mono_ns();
    uint64_t agreed = NG_LOAD(hash_log->agreed), unasked = NG_LOAD(hash_log->unasked),
             given_up = NG_LOAD(hash_log->given_up), apart = NG_LOAD(hash_log->apart);
    int error = tell(p, group);

    if (error || !waits(group, &due_ns))
        return error;
    if (due_ns <= now) {
        error = group->rank == 0 ? gather(p, group) : hear(p, group);
        group->pace->asked_ns = now;
        waits(group, &due_ns);
        if (NG_LOAD(hash_log->agreed) != agreed || NG_LOAD(hash_log->unasked) != unasked ||
            NG_LOAD(hash_log->given_up) != given_up || NG_LOAD(hash_log->apart) != apart) {
            if (!error)
                error = tell(p, group);
            p->options.wake();
        }
    }
    if (due_ns < p->agree.next_ns)
        p->agree.next_ns = due_ns;
    return error;
}

int ng_publisher_agree(struct ng_publisher *p)
{
    const struct ng_box *box = p->options.own_box;
    uint32_t used = NG_LOAD(box->header->group_used);
    struct group group;
    int error = 0;

    p->agree.next_ns = INT64_MAX;
    if (!p->options.agrees || !p->options.agrees() || !p->slot.joined || p->link.lost)
        return 0;
    if (used > box->hash_log_capacity)
        used = box->hash_log_capacity;
    if (used && !p->agree.paces &&
        !(p->agree.paces = calloc(box->hash_log_capacity, sizeof(*p->agree.paces))))
        return 0; /* at another time */
    if (p->agree.connects != p->kv->connects) {
        /* It may be another server, and empty. */
        for (uint32_t i = 0; i < used; i++) {
            p->agree.paces[i].said[SAID_VERSION] = p->agree.paces[i].told[TOLD_VERSION] = 0;
            p->agree.paces[i].waits_for = 0;
            forget_ranks(&p->agree.paces[i]);
        }
        p->agree.connects = p->kv->connects;
    }
    for (uint32_t slot = 0; slot < used && !error; slot++)
        if (find_group(p, slot, &group))
            error = group.ended ? tell(p, &group) : exchange(p, &group);
    return error ? ng_publisher_failed(p, error) : 0;
}
