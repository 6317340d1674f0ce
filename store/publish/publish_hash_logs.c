/*
 * Comparing what ranks of different hosts called, without waiting for any:
 * core/check/signature_compare.h.
 *
 * The store's thread only. Rank 0 of a group publishes its hash log (core/view/hash_log.h), and on
 * each other host the lowest rank of the group compares it with its own; within a host the black
 * boxes are compared. If a rank stands still while rank 0 runs ahead, so that rank 0's hash log no
 * longer covers the rank's position (core/view/recall.h), the rank publishes its own, and rank 0
 * and other hosts compare. So a group costs one key, and one query a second from each host, for two
 * keys; a tenth of that if nothing is called.
 *
 * The value: version 2, how many ranks the group has, whose hash log it is, a number that changes
 * with each publication, `entered`, `last`, then the words of struct ng_hash_log in order; each 8
 * bytes, little endian.
 */
#include <stdlib.h>

#include "core/util/clock.h"
#include "core/view/comparable.h"
#include "core/view/recall.h"
#include "store/kv/kv.h"
#include "store/kv/words.h"
#include "store/publish/publisher.h"

#define HASH_LOG_VERSION 2u
#define QUESTIONS        96u        /* per round; a group has up to two */
#define RECALL_LOOKS     (1u << 17) /* records examined per round */
#define HASH_LOG_KEEP_MS (600 * 1000)
#define BUSY_NS          (900 * NG_MS) /* every other round */
#define IDLE_NS          (10 * NG_S)
/* Publish for this long after the last call, as if there were calls: a comparing process must read
 * it twice (ng_comparable_is_news). */
#define SETTLED_NS (5 * NG_S)

#define BEHIND_MAX 4 /* ranks that publish for one group and whose last report we remember */

struct ng_hash_log_pace {
    uint64_t id, entered; /* as last seen */
    uint32_t generation;
    int64_t changed_ns, done_ns;
    bool far_behind; /* rank 0, when last read; and we have called nothing since */
    struct {
        uint64_t rank, turn; /* turn 0: none */
    } heard[BEHIND_MAX];
    uint32_t heard_next;
};

/* Whose hash logs are published under which key. */
enum { OF_RANK_0 = 't', OF_ONE_BEHIND = 'b' };

/* The value, as words. */
struct told {
    uint64_t version, nranks, rank, turn;
    struct ng_hash_log hash_log;
};
#define WORDS (sizeof(struct told) / 8)

struct questions {
    struct ng_publisher *p;
    uint32_t count, looks;
    struct question {
        uint32_t slot;
        uint64_t id;
        char kind; /* of the key */
    } of[QUESTIONS];
};

/* Has a rank that is behind published this since the communicator was created? As
 * ng_comparable_is_news, but for several ranks. */
static bool is_news_of(struct ng_hash_log_pace *pace, const struct told *told)
{
    for (uint32_t i = 0; i < BEHIND_MAX; i++)
        if (pace->heard[i].turn && pace->heard[i].rank == told->rank)
            return pace->heard[i].turn != told->turn;
    pace->heard[pace->heard_next].rank = told->rank;
    pace->heard[pace->heard_next].turn = told->turn;
    pace->heard_next = (pace->heard_next + 1) % BEHIND_MAX;
    return false;
}

/* A hash log of ours, for the group of this id: the slot may be given to another communicator at
 * any moment. `back_to`: also cover that collective; 0: only those that it covers by itself. */
static bool copy_hash_log(const struct ng_box *box, uint32_t slot, uint64_t id, uint64_t back_to,
                          struct ng_hash_log *ret_hash_log, uint32_t *looks)
{
    const struct ng_box_group *group = &box->groups[slot];
    uint32_t generation = atomic_load_explicit(&group->generation, memory_order_acquire);

    if (!ng_comparable_hash_log(box, slot, ng_clock_mono_ns(), ret_hash_log))
        return false;
    if (back_to)
        *looks += ng_recall(box, slot, back_to, ret_hash_log);
    atomic_thread_fence(memory_order_acquire);
    return NG_LOAD(group->generation) == generation && NG_LOAD(group->id) == id &&
           ng_comparable_is_clear(box, slot);
}

static void take_hash_log(void *context, size_t index, const struct ng_kv_bytes *value)
{
    struct questions *questions = context;
    const struct ng_box *box = questions->p->options.own_box;
    struct ng_disagreement found = {0};
    struct ng_hash_log mine;
    struct told theirs;

    if (!value || index >= questions->count || value->bytes != sizeof(theirs))
        return;
    ng_words_get(value->data, WORDS, &theirs);
    if (theirs.version != HASH_LOG_VERSION)
        return;
    const struct question *question = &questions->of[index];
    uint32_t slot = question->slot;
    const struct ng_box_group *group = &box->groups[slot];
    struct ng_hash_log_pace *pace = &questions->p->compare.paces[slot];
    bool of_rank_0 = question->kind == OF_RANK_0;
    if (theirs.nranks != (uint64_t)NG_LOAD(group->nranks) || theirs.rank >= theirs.nranks ||
        theirs.rank == (uint64_t)NG_LOAD(group->group_rank) ||
        !(of_rank_0 ? ng_comparable_is_news(box, slot, theirs.turn) : is_news_of(pace, &theirs)) ||
        !copy_hash_log(box, slot, question->id, 0, &mine, NULL))
        return;
    const struct ng_hash_log *ahead = ng_hash_log_ahead(&mine, &theirs.hash_log);
    if (of_rank_0)
        pace->far_behind = ahead == &theirs.hash_log;
    if (ahead == &mine && questions->looks < RECALL_LOOKS &&
        !copy_hash_log(box, slot, question->id, theirs.hash_log.last, &mine, &questions->looks))
        return;
    if (!ng_hash_log_differ(&mine, &theirs.hash_log, &found.difference))
        return;
    found.group_id = question->id;
    found.ranks[0] = NG_LOAD(group->group_rank);
    found.ranks[1] = (int)theirs.rank;
    if (questions->p->options.differ)
        questions->p->options.differ(&found);
}

/* Publish the hash log of a group. */
static int tell(struct ng_publisher *p, uint32_t slot, char kind)
{
    const struct ng_box *box = p->options.own_box;
    const struct ng_box_group *group = &box->groups[slot];
    struct told told = {.version = HASH_LOG_VERSION,
                        .nranks = (uint64_t)NG_LOAD(group->nranks),
                        .rank = (uint64_t)NG_LOAD(group->group_rank),
                        .turn = (uint64_t)ng_clock_unix_ns()};
    uint64_t id = NG_LOAD(group->id);
    unsigned char bytes[sizeof(told)];
    char key[KEY_BYTES];

    if (!copy_hash_log(box, slot, id, 0, &told.hash_log, NULL) ||
        told.rank != (uint64_t)NG_LOAD(group->group_rank))
        return 0;
    ng_words_put(&told, WORDS, bytes);
    ng_publisher_uid_key(key, kind, id);
    return ng_kv_queue_set(p->kv, key, bytes, sizeof(bytes), HASH_LOG_KEEP_MS);
}

/* Publish the hash log of this group, or query that of its rank 0, if it is due. */
static bool is_due(struct ng_hash_log_pace *pace, const struct ng_box_group *group)
{
    uint64_t id = NG_LOAD(group->id), entered = NG_LOAD(group->entered);
    uint32_t generation = NG_LOAD(group->generation);
    int64_t now = ng_clock_mono_ns();

    if (pace->id != id || pace->generation != generation)
        *pace =
            (struct ng_hash_log_pace){.id = id, .generation = generation, .done_ns = now - IDLE_NS};
    if (pace->entered != entered || !pace->changed_ns) {
        pace->entered = entered;
        pace->changed_ns = now;
        pace->far_behind = false;
    }
    if (now - pace->done_ns < (now - pace->changed_ns < SETTLED_NS ? BUSY_NS : IDLE_NS))
        return false;
    pace->done_ns = now;
    return true;
}

static int ask(struct ng_publisher *p, struct questions *questions)
{
    char names[QUESTIONS][KEY_BYTES];
    const char *keys[QUESTIONS];

    for (uint32_t i = 0; i < questions->count; i++) {
        ng_publisher_uid_key(names[i], questions->of[i].kind, questions->of[i].id);
        keys[i] = names[i];
    }
    return ng_kv_get_many(p->kv, keys, questions->count, ng_publisher_in(CALL_NS), take_hash_log,
                          questions);
}

static void add_question(struct questions *questions, uint32_t slot, uint64_t id, char kind)
{
    questions->of[questions->count++] = (struct question){.slot = slot, .id = id, .kind = kind};
}

int ng_publisher_compare(struct ng_publisher *p)
{
    const struct ng_box *box = p->options.own_box;
    uint32_t used = NG_LOAD(box->header->group_used);
    struct questions questions = {.p = p};
    bool told = false;
    int error = 0;

    if (used > box->hash_log_capacity)
        used = box->hash_log_capacity;
    if (used && !p->compare.paces &&
        !(p->compare.paces = calloc(box->hash_log_capacity, sizeof(*p->compare.paces))))
        return 0; /* at another time */
    for (uint32_t i = 0; i < used && questions.count + 2 <= QUESTIONS && !error; i++) {
        uint32_t slot = p->compare.at = p->compare.at + 1 < used ? p->compare.at + 1 : 0;
        const struct ng_box_group *group = &box->groups[slot];
        uint32_t across = NG_LOAD(box->hash_logs[slot].across);
        uint64_t id = NG_LOAD(group->id);
        if (across == NG_HASH_LOG_SILENT || !is_due(&p->compare.paces[slot], group))
            continue;
        add_question(&questions, slot, id, OF_ONE_BEHIND);
        if (across == NG_HASH_LOG_ASKS)
            add_question(&questions, slot, id, OF_RANK_0);
        if (across == NG_HASH_LOG_TELLS || p->compare.paces[slot].far_behind) {
            error = tell(p, slot, across == NG_HASH_LOG_TELLS ? OF_RANK_0 : OF_ONE_BEHIND);
            told = true;
        }
    }
    if (!error && told)
        error = ng_publisher_flush(p);
    if (!error && questions.count)
        error = ask(p, &questions);
    return error ? ng_publisher_failed(p, error) : 0;
}
