/*
 * The thread that owns the store.
 *
 * Step 8 across hosts. An essay, for what is not obvious here.
 *
 * Everything is done in rounds, twice a second and whenever something calls: publish what has
 * changed, give a sign of life, look for news. News come by subscription; the rounds are the net
 * under it. Nothing here is needed for the job to run: when the store is lost, one line says so,
 * the rounds go on trying, questions are answered with -EIO at once, and when it is back,
 * everything is published again: it may be another server, and empty.
 *
 * Death is noticed on the same host by others (the incident thread, by pidfd), who hand in here
 * what the dead left. A whole host that is gone is noticed by a walk round the places: each process
 * looks after the next one that lives, in the order of the places; the processes of a host stand
 * next to each other mostly, so all of a lost host are found by the one before them. It costs one
 * question a round, however many there are.
 *
 * Must never make a program's thread, or the incident thread beyond its deadline, wait.
 */
#include "store/publish.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/folder.h"
#include "core/log.h"
#include "core/proc.h"
#include "store/blobs.h"
#include "store/kv.h"
#include "store/label.h"
#include "store/progress.h"
#include "store/records.h"

#define ROUND_NS        (500 * NG_MS)
#define PUBLISH_NS      NG_S          /* at most once in this time, but for suspicion */
#define REFRESH_NS      (200 * NG_MS) /* and then at most once in this */
#define AGAIN_NS        (600 * NG_S)  /* what does not change is stored again, so that it stays */
#define KEEP_MS         (3600 * 1000) /* what the job leaves behind */
#define CALL_NS         (800 * NG_MS) /* one step on the store */
#define FETCH_NS        (3 * NG_S)    /* the whole job */
#define REFRESH_WAIT_NS (100 * NG_MS) /* for everybody's newest progress */
#define REFRESH_TRIES   3             /* and so often, where somebody does not answer */
#define EXAMINE_MS      3000          /* who looks at the job for longer is taken for lost */
#define IDLE_MS         500           /* nothing was found: nobody needs to look again before */
#define LOST_TOLD_MS    60000
#define WARN_AGAIN_NS   (60 * NG_S)
#define RETURN_NS       (5 * NG_S)   /* when the store is back, so much later everybody is */
#define ANSWER_NS       (50 * NG_MS) /* what is left of a question's time for the answer's way */
#define NOBODY          UINT64_MAX   /* a place that is never given out */
#define INCIDENTS       64u
#define POSTS           32u
#define GAP_NS          (30 * NG_S) /* whoever took a place is in it by then, or never */
#define WALK            16u         /* places looked at in one step of the walk */
#define LABELLED        256u
#define KEY_BYTES       48

struct post {
    uint64_t epoch; /* of a dump of ours, where there is no `data` */
    uint64_t slot;  /* 0: it has none yet */
    bool ended, frozen;
    bool ours_to_tell;     /* no other neighbour does */
    struct ng_arena arena; /* owns `data` */
    const void *data;
    size_t bytes;
};

struct ng_publisher {
    struct ng_publisher_options options;
    struct ng_descriptor wake; /* written before the thread starts */

    /* Protects what follows, down to the next comment. Nests inside nothing; held for copies. */
    pthread_mutex_t lock;
    pthread_cond_t answered;
    struct ng_ask ask;
    uint64_t asked, answer; /* serials: the newest question, and the newest answered one */
    bool waiting;           /* the asker of `asked` is still there */
    struct post posts[POSTS];
    uint32_t post_count;
    struct ng_incident incidents[INCIDENTS]; /* by epoch % INCIDENTS; epoch 0: none */
    uint64_t newest;                         /* epoch */

    _Atomic uint32_t ended;
    _Atomic unsigned news;
    _Atomic uint64_t label;
    atomic_bool up;
    atomic_bool over; /* the thread has ended: whoever asks does it himself */

    /* The thread's own. */
    struct ng_kv *kv;
    uint64_t connects; /* of the kv, when we last looked */
    bool joined;
    uint64_t slot, slots; /* ours; how many there are */
    int64_t counted;      /* `e` as last read; -1 not yet */
    uint64_t digest;      /* of what was published last */
    int64_t published_ns, stored_ns, signed_ns, round_ns, changed_ns, kept_ns;
    int64_t walked_ns;  /* when we looked for the next that lives */
    int64_t alive_ns;   /* when our sign of life was stored last; 0 never */
    int64_t settled_ns; /* until then others may still be on their way back to the store */
    uint64_t watch;     /* the place that we look after; 0 none yet */
    bool gap;           /* an empty place was passed on the way to it */
    int64_t grown_ns;   /* when places were last added */
    uint64_t own_label, root;
    uint64_t labelled[LABELLED]; /* groups that were joined under our label */
    uint32_t labelled_count;
    bool want_refresh;
    uint64_t question; /* number of the newest call to publish: a sign of life repeats it */
    bool lost, told;
    int64_t lost_ns, warned_ns;
    uint64_t dropped;
    uint64_t *living; /* places of this incarnation that lived when the job was last looked at */
    uint32_t living_count, living_room;
    bool leaving;
};

static struct ng_publisher *publisher_of_thread; /* of ng_publisher_start: written before it */

static int64_t in(int64_t ns)
{
    return ng_clock_mono_ns() + ns;
}

static void tell(struct ng_publisher *p, unsigned bits)
{
    atomic_fetch_or(&p->news, bits);
    p->options.wake();
}

/* ---- Losing the store, and having it again ---- */

static void warn(struct ng_publisher *p)
{
    int64_t now = ng_clock_mono_ns();

    if (p->told || (p->warned_ns && now - p->warned_ns <= WARN_AGAIN_NS))
        return;
    p->told = true;
    p->warned_ns = now;
    ng_log(
        NG_LOG_WARN,
        "the store %s cannot be used: %s; the job runs on, and what is known of it stays on each "
        "host until the store is back",
        p->kv->name, ng_kv_error(p->kv));
}

/* Every failure comes by here. Returns it. */
static int failed(struct ng_publisher *p, int error)
{
    if (!error || error == -ENOENT || error == -EEXIST || error == -ENOMEM)
        return error;
    if (!p->lost) {
        p->lost = true;
        p->lost_ns = ng_clock_mono_ns();
        p->dropped = 0;
        p->told = false;
        atomic_store(&p->up, false);
    }
    warn(p);
    /* What was written last may be gone, and that only reading works is not enough: everything
     * again. */
    p->stored_ns = 0;
    return error;
}

/* Others may not be back yet: that they give no sign of life means nothing for a while. */
static void wait_for_others(struct ng_publisher *p)
{
    p->settled_ns = in(p->options.ttl_ns + RETURN_NS);
}

static bool is_settled(const struct ng_publisher *p)
{
    return ng_clock_mono_ns() >= p->settled_ns;
}

static void worked(struct ng_publisher *p)
{
    if (p->lost) {
        if (p->told)
            ng_log(NG_LOG_WARN,
                   "the store %s is back after %.1f s; %" PRIu64 " record(s) were not published",
                   p->kv->name, (double)(ng_clock_mono_ns() - p->lost_ns) / 1e9, p->dropped);
        wait_for_others(p);
    }
    p->lost = false;
    atomic_store(&p->up, true);
}

/* Our sign of life is stored. Where it had run out, because we did not run, others did not either,
 * perhaps. */
static void signed_now(struct ng_publisher *p)
{
    int64_t now = ng_clock_mono_ns();

    if (p->alive_ns && now - p->alive_ns > p->options.ttl_ns / 4 * 3)
        wait_for_others(p);
    p->alive_ns = now;
    atomic_store(&p->options.own_box->header->published_mono_ns, now);
}

/* ---- Progress ---- */

/* Changes with everything that others want to know, and with nothing else. */
static uint64_t digest_of(const struct ng_box *box)
{
    uint32_t groups = NG_LOAD(box->header->group_used), threads = NG_LOAD(box->header->thread_used);
    uint64_t sum = NG_LOAD(box->header->life) + NG_LOAD(box->header->records_lost);

#define MIX(value) (sum = (sum ^ (uint64_t)(value)) * UINT64_C(0x9e3779b97f4a7c15) + 1)
    for (uint32_t i = 0; i < groups && i < box->group_capacity; i++) {
        const struct ng_box_group *group = &box->groups[i];
        MIX(atomic_load(&group->state));
        MIX(NG_LOAD(group->id));
        MIX(NG_LOAD(group->derived));
        MIX(NG_LOAD(group->cuda_error));
        MIX(NG_LOAD(group->entered));
        MIX(NG_LOAD(group->scheduled));
        MIX(NG_LOAD(group->started));
        MIX(NG_LOAD(group->completed));
        MIX(NG_LOAD(group->p2p_entered));
        MIX(NG_LOAD(group->p2p_completed));
        MIX(NG_LOAD(group->pending_record));
        MIX(NG_LOAD(group->async_error));
    }
    for (uint32_t i = 0; i < threads && i < box->thread_capacity; i++) {
        MIX(NG_LOAD(box->threads[i].op));
        MIX(NG_LOAD(box->threads[i].since_mono_ns));
    }
#undef MIX
    return sum;
}

/* Fewer records from each, the more there are. */
static uint32_t records_for(const struct ng_publisher *p, bool suspicion)
{
    uint32_t fair = p->slots ? (uint32_t)(32768 / p->slots) : NG_PROGRESS_RECORDS_SUSPECT;

    if (!suspicion || fair < NG_PROGRESS_RECORDS_PEACE)
        return NG_PROGRESS_RECORDS_PEACE;
    return fair < NG_PROGRESS_RECORDS_SUSPECT ? fair : NG_PROGRESS_RECORDS_SUSPECT;
}

/* Our own blob, in the arena of `view`. */
static int encode(struct ng_publisher *p, bool suspicion, struct ng_view *view,
                  const void **ret_data, size_t *ret_bytes)
{
    struct ng_progress_limits limits = {.records = records_for(p, suspicion),
                                        .label = p->root,
                                        .written_unix_ns = ng_clock_unix_ns()};

    ng_view_init(view);
    int error = ng_view_add_box(view, p->options.own_box, NG_LIFE_RUNNING, ng_clock_mono_ns(), "");
    return error ? error : ng_progress_encode(view, 0, &limits, &view->arena, ret_data, ret_bytes);
}

static void set_root(struct ng_publisher *p, uint64_t root)
{
    if (p->root == root)
        return;
    p->root = root;
    p->stored_ns = 0; /* our blob has it */
    atomic_store(&p->label, root);
}

/* Groups made from a unique id bring processes together that may not have met; what is derived from
 * them has the same members. */
static int label_groups(struct ng_publisher *p)
{
    const struct ng_box *box = p->options.own_box;
    uint32_t groups = NG_LOAD(box->header->group_used);

    for (uint32_t i = 0; i < groups && i < box->group_capacity; i++) {
        const struct ng_box_group *group = &box->groups[i];
        uint32_t state = atomic_load(&group->state), known = 0;
        uint64_t id = NG_LOAD(group->id);
        if (state == NG_GROUP_FREE || state == NG_GROUP_FAILED || !id ||
            NG_LOAD(group->parent_id) || NG_LOAD(group->nranks) < 2)
            continue;
        while (known < p->labelled_count && p->labelled[known] != id)
            known++;
        if (known < p->labelled_count)
            continue;
        if (!p->own_label) {
            p->own_label = id;
            set_root(p, id);
        }
        uint64_t before = p->root, root = before;
        int error = ng_label_join(p->kv, id, p->root, KEEP_MS, in(CALL_NS), &root);
        if (error)
            return failed(p, error);
        set_root(p, root);
        if (p->labelled_count < LABELLED)
            p->labelled[p->labelled_count++] = id;
        else
            p->labelled[id % LABELLED] = id;
        if (p->root != before && p->labelled_count > 1)
            ng_kv_queue_publish(p->kv, "m", "unite", 5);
    }
    return 0;
}

static void number_key(char ret_key[KEY_BYTES], char kind, uint64_t number)
{
    snprintf(ret_key, KEY_BYTES, "%c/%" PRIu64, kind, number);
}

static int queue_sign(struct ng_publisher *p)
{
    char key[KEY_BYTES], text[48];

    number_key(key, 'l', p->slot);
    int length = snprintf(text, sizeof(text), "%" PRId64 " %" PRIx64,
                          (ng_clock_mono_ns() - p->published_ns) / NG_MS, p->question);
    return ng_kv_queue_set(p->kv, key, text, (size_t)length, p->options.ttl_ns / NG_MS);
}

static void uid_key(char ret_key[KEY_BYTES], char kind, uint64_t uid)
{
    snprintf(ret_key, KEY_BYTES, "%c/%016" PRIx64, kind, uid);
}

static int flush(struct ng_publisher *p)
{
    int error = ng_kv_flush(p->kv, in(CALL_NS), NULL);

    if (!error)
        worked(p);
    return failed(p, error);
}

static int publish(struct ng_publisher *p, bool suspicion)
{
    struct ng_view view;
    char key[KEY_BYTES];
    const void *data;
    size_t bytes;
    uint64_t digest = digest_of(p->options.own_box);
    int64_t now = ng_clock_mono_ns();

    int error = encode(p, suspicion, &view, &data, &bytes);
    if (!error) {
        number_key(key, 'p', p->slot);
        error = ng_kv_queue_set(p->kv, key, data, bytes, KEEP_MS);
    }
    ng_view_fini(&view);
    if (error)
        return error;
    p->published_ns = now;
    error = queue_sign(p);
    if (!error)
        error = flush(p);
    if (error)
        return error;
    p->digest = digest;
    p->stored_ns = p->signed_ns = now;
    signed_now(p);
    return 0;
}

/* ---- A place on the board ---- */

static int read_number(struct ng_publisher *p, const char *key, int64_t *ret_number)
{
    struct ng_kv_bytes value;
    char text[24] = "";

    *ret_number = 0;
    int error = ng_kv_get(p->kv, key, in(CALL_NS), &value);
    if (error)
        return error == -ENOENT ? 0 : error;
    memcpy(text, value.data, value.bytes < sizeof(text) ? value.bytes : sizeof(text) - 1);
    *ret_number = strtoll(text, NULL, 10);
    return 0;
}

/* A counter that others may count on meanwhile. */
static int raise_to(struct ng_publisher *p, const char *key, uint64_t least)
{
    struct ng_kv_bytes value;
    char before[24], after[24];
    int length = snprintf(after, sizeof(after), "%" PRIu64, least), error;

    for (int tries = 0; tries < 16; tries++) {
        struct ng_kv_bytes expected = {.data = before};
        error = ng_kv_get(p->kv, key, in(CALL_NS), &value);
        if (error && error != -ENOENT)
            return error;
        memset(before, 0, sizeof(before));
        if (!error && value.bytes < sizeof(before)) {
            memcpy(before, value.data, value.bytes);
            expected.bytes = value.bytes;
        }
        if (strtoull(before, NULL, 10) >= least)
            return 0;
        error = ng_kv_compare_and_set(p->kv, key, error ? NULL : &expected, after, (size_t)length,
                                      KEEP_MS, in(CALL_NS), NULL);
        if (error != -EEXIST && error != -ENOENT)
            return error;
    }
    return -EBUSY;
}

/* Is it this process that the store has in a place? Another server may have taken over. */
static int holds_us(struct ng_publisher *p, uint64_t slot, bool *ret_holds)
{
    struct ng_progress_head head;
    struct ng_kv_bytes value;
    char key[KEY_BYTES];

    *ret_holds = false;
    if (!slot)
        return 0;
    number_key(key, 'p', slot);
    int error = ng_kv_get(p->kv, key, in(CALL_NS), &value);
    if (error)
        return error == -ENOENT ? 0 : error;
    *ret_holds = ng_progress_peek(value.data, value.bytes, &head) == 0 &&
                 head.uid == ng_box_uid(p->options.own_box->header);
    return 0;
}

/* What the job counts on lives as long as the job, and only ever grows. */
static int keep_counters(struct ng_publisher *p)
{
    static const char *const counters[] = {"n", "e", "i/last"};
    char above[NG_LABEL_KEY_BYTES];
    uint64_t newest;
    int error = 0;

    for (size_t i = 0; i < sizeof(counters) / sizeof(counters[0]) && !error; i++) {
        error = ng_kv_expire(p->kv, counters[i], KEEP_MS, in(CALL_NS));
        error = error == -ENOENT ? 0 : error;
    }
    ng_label_key(p->own_label, above);
    if (!error)
        error = ng_kv_expire(p->kv, above, KEEP_MS, in(CALL_NS));
    error = error == -ENOENT ? 0 : error;
    pthread_mutex_lock(&p->lock);
    newest = p->newest;
    pthread_mutex_unlock(&p->lock);
    if (!error)
        error = raise_to(p, "n", p->slot);
    /* A store that was emptied goes on counting where it was. */
    if (!error && newest)
        error = raise_to(p, "i/last", newest);
    if (!error)
        p->kept_ns = ng_clock_mono_ns();
    return failed(p, error);
}

/* Another server, or the same after a loss: does it still have us? */
static int verify(struct ng_publisher *p)
{
    bool holds;

    int error = holds_us(p, p->slot, &holds);
    if (error)
        return failed(p, error);
    p->labelled_count = 0;
    p->stored_ns = 0;
    p->joined = holds;
    return holds ? keep_counters(p) : 0;
}

/* The place that we have already: an earlier attempt did not hear of its success; or the one that a
 * neighbour found for us. 0 in *ret_slot: none. */
static int find_own_place(struct ng_publisher *p, uint64_t *ret_slot)
{
    char key[KEY_BYTES];
    int64_t found = 0;
    bool holds;

    *ret_slot = p->slot;
    int error = holds_us(p, p->slot, &holds);
    if (error || holds)
        return error;
    uid_key(key, 'w', ng_box_uid(p->options.own_box->header));
    error = read_number(p, key, &found);
    *ret_slot = found > 0 ? (uint64_t)found : 0;
    if (!error)
        error = holds_us(p, *ret_slot, &holds);
    if (!holds)
        *ret_slot = 0;
    return error;
}

/* A new place, with our blob in it. */
static int take_place(struct ng_publisher *p)
{
    struct ng_view view;
    char key[KEY_BYTES];
    const void *data;
    size_t bytes;
    int64_t slot;
    int error = 0;

    for (int tries = 0; tries < 16; tries++) {
        error = ng_kv_add(p->kv, "n", 1, KEEP_MS, in(CALL_NS), &slot);
        if (error)
            break;
        p->slot = (uint64_t)slot;
        /* Life first: who is there without it counts as lost. */
        p->published_ns = ng_clock_mono_ns();
        error = queue_sign(p);
        if (!error)
            error = flush(p);
        if (error)
            break;
        error = encode(p, false, &view, &data, &bytes);
        number_key(key, 'p', p->slot);
        if (!error)
            error = ng_kv_put_if_absent(p->kv, key, data, bytes, KEEP_MS, in(CALL_NS));
        ng_view_fini(&view);
        if (error != -EEXIST)
            break; /* else: counted anew after a loss, and somebody older is there */
    }
    return failed(p, error);
}

static int join(struct ng_publisher *p)
{
    int64_t newest, ended;
    uint64_t slot;

    int error = label_groups(p);
    if (error)
        return error;
    error = read_number(p, "e", &ended);
    uint64_t connects = p->kv->connects;
    if (!error)
        error = read_number(p, "i/last", &newest);
    if (!error)
        error = find_own_place(p, &slot);
    if (error)
        return failed(p, error);
    if (slot)
        p->slot = slot;
    else if ((error = take_place(p)) != 0)
        return error;
    p->slots = p->slot;
    p->counted = ended;
    pthread_mutex_lock(&p->lock);
    if ((uint64_t)newest > p->newest)
        p->newest = (uint64_t)newest;
    pthread_mutex_unlock(&p->lock);
    error = keep_counters(p);
    if (error)
        return error;
    p->watch = 0;
    p->joined = true;
    p->connects = connects; /* and not that of a later one: then it is looked at again */
    NG_STORE(p->options.own_box->header->board_slot, p->slot);
    ng_log(NG_LOG_INFO, "on the board %s in place %" PRIu64, p->kv->name, p->slot);
    return publish(p, false);
}

/* ---- Incidents ---- */

/* Of our incarnation: 1, or 0, or -errno. */
static int is_ours(struct ng_publisher *p, uint64_t label)
{
    uint64_t root, own;

    if (!label || label == p->root || label == p->own_label)
        return 1;
    if (!p->root)
        return 0;
    int error = ng_label_root(p->kv, label, in(CALL_NS), &root);
    if (error || root == p->root)
        return error ? error : 1;
    /* We may have been united meanwhile. */
    error = ng_label_root(p->kv, p->root, in(CALL_NS), &own);
    if (error)
        return error;
    set_root(p, own);
    return root == own;
}

static void keep_incident(struct ng_publisher *p, const struct ng_incident *read)
{
    struct ng_incident incident = *read;

    pthread_mutex_lock(&p->lock);
    struct ng_incident *place = &p->incidents[incident.epoch % INCIDENTS];
    incident.claimed_mono_ns =
        place->epoch == incident.epoch ? place->claimed_mono_ns : ng_clock_mono_ns();
    bool changed =
        place->epoch < incident.epoch ||
        (place->epoch == incident.epoch &&
         (place->state != incident.state || place->claimant_slot != incident.claimant_slot));
    if (changed)
        *place = incident;
    if (incident.epoch > p->newest)
        p->newest = incident.epoch;
    pthread_mutex_unlock(&p->lock);
    if (changed)
        tell(p, NG_BOARD_INCIDENT);
}

/* 0; -ENOENT there is none; or -errno. One of another incarnation is passed over. */
static int read_incident(struct ng_publisher *p, uint64_t epoch, struct ng_incident *ret_incident)
{
    struct ng_kv_bytes value;
    char key[KEY_BYTES];

    number_key(key, 'i', epoch);
    int error = ng_kv_get(p->kv, key, in(CALL_NS), &value);
    if (error)
        return error;
    error = ng_incident_decode(value.data, value.bytes, ret_incident);
    if (error || ret_incident->epoch != epoch)
        *ret_incident = (struct ng_incident){.epoch = epoch}; /* nothing to act on, but a number */
    return 0;
}

static bool is_known(struct ng_publisher *p, uint64_t epoch)
{
    struct ng_incident known;

    return ng_publisher_get_incident(p, epoch, &known) == 0;
}

/*
 * Its claimant does not come through, or does not know that it is one: it can no longer judge it,
 * and whoever waits for the verdict sees that nobody of that name lives. 0 or -errno.
 */
static int fence(struct ng_publisher *p, uint64_t epoch)
{
    unsigned char before[NG_INCIDENT_RECORD_BYTES], after[NG_INCIDENT_RECORD_BYTES];
    struct ng_incident incident;
    struct ng_kv_bytes value;
    char key[KEY_BYTES];

    number_key(key, 'i', epoch);
    int error = ng_kv_get(p->kv, key, in(CALL_NS), &value);
    if (error)
        return error == -ENOENT ? 0 : failed(p, error);
    if (ng_incident_decode(value.data, value.bytes, &incident) != 0 ||
        incident.state != NG_INCIDENT_CLAIMED || incident.claimant_slot == NOBODY)
        return 0;
    struct ng_kv_bytes expected = {.data = before, .bytes = value.bytes};
    memcpy(before, value.data, value.bytes); /* no longer than what could be decoded */
    incident.claimant_pid = 0;
    incident.claimant_ticks = 0;
    incident.claimant_slot = NOBODY;
    error = ng_kv_compare_and_set(p->kv, key, &expected, after,
                                  ng_incident_encode(&incident, after), KEEP_MS, in(CALL_NS), NULL);
    return error == -EEXIST ? 0 : failed(p, error);
}

static bool claimed_by_us(const struct ng_publisher *p, const struct ng_incident *incident)
{
    const struct ng_box_header *header = p->options.own_box->header;

    return incident->state == NG_INCIDENT_CLAIMED && incident->claimant_slot == p->slot &&
           incident->claimant_pid == header->pid && incident->claimant_ticks == header->start_ticks;
}

static int take_incident(struct ng_publisher *p, uint64_t epoch)
{
    struct ng_incident incident;

    int error = read_incident(p, epoch, &incident);
    if (error)
        return error;
    int ours = incident.level ? is_ours(p, incident.label) : 0;
    if (ours < 0)
        return ours;
    if (ours && !is_known(p, epoch)) {
        /* Whoever wanted it was told that nothing is known, and went on alone. */
        if (claimed_by_us(p, &incident)) {
            error = fence(p, epoch);
            ours = 0;
        } else if (incident.claimant_slot == NOBODY) {
            ours = 0; /* it is over */
        }
    }
    if (ours) {
        keep_incident(p, &incident);
    } else {
        pthread_mutex_lock(&p->lock);
        if (epoch > p->newest)
            p->newest = epoch;
        pthread_mutex_unlock(&p->lock);
    }
    return error;
}

/* An incident that was announced, and those before it whose announcement was lost. */
static int take_through(struct ng_publisher *p, uint64_t epoch)
{
    int error = 0;

    pthread_mutex_lock(&p->lock);
    uint64_t next = p->newest + 1;
    pthread_mutex_unlock(&p->lock);
    /* What was there before we came is nothing to us. */
    if (!p->joined)
        next = epoch;
    if (epoch > INCIDENTS && next <= epoch - INCIDENTS)
        next = epoch - INCIDENTS + 1;
    for (; next < epoch && (!error || error == -ENOENT); next++)
        error = take_incident(p, next);
    return error && error != -ENOENT ? error : take_incident(p, epoch);
}

/* The net under the messages: incidents after the newest, and those that wait for their verdict. */
static int poll_incidents(struct ng_publisher *p)
{
    uint64_t open[INCIDENTS], newest;
    unsigned count = 0;
    int error = 0;

    pthread_mutex_lock(&p->lock);
    for (unsigned i = 0; i < INCIDENTS; i++)
        if (p->incidents[i].epoch && p->incidents[i].state == NG_INCIDENT_CLAIMED &&
            ng_clock_mono_ns() - p->incidents[i].claimed_mono_ns < 60 * NG_S)
            open[count++] = p->incidents[i].epoch;
    newest = p->newest;
    pthread_mutex_unlock(&p->lock);
    for (unsigned i = 0; i < count && (!error || error == -ENOENT); i++)
        error = take_incident(p, open[i]);
    while (!error || error == -ENOENT) {
        error = take_incident(p, ++newest);
        if (error)
            break;
    }
    return error == -ENOENT ? 0 : failed(p, error);
}

/* The newest epoch and its message, with one round trip. */
static void queue_announcement(struct ng_publisher *p, uint64_t epoch)
{
    char text[40];
    int length = snprintf(text, sizeof(text), "incident %" PRIu64, epoch);

    ng_kv_queue_publish(p->kv, "m", text, (size_t)length);
}

static bool claimant_lives(struct ng_publisher *p, const struct ng_incident *incident)
{
    struct ng_kv_bytes value;
    char key[KEY_BYTES];

    if (!incident->claimant_slot)
        return true; /* a tool: it was complete when it was written */
    if (incident->claimant_slot == NOBODY)
        return false;
    number_key(key, 'l', incident->claimant_slot);
    return ng_kv_get(p->kv, key, in(CALL_NS), &value) != -ENOENT || !is_settled(p);
}

static bool same_claimant(const struct ng_incident *a, const struct ng_incident *b)
{
    return a->claimant_slot == b->claimant_slot && a->claimant_pid == b->claimant_pid &&
           a->claimant_ticks == b->claimant_ticks && a->label == b->label;
}

/* Those that it takes the place of: who claimed them cannot judge any more. */
static void fence_superseded(struct ng_publisher *p, const struct ng_incident *incident)
{
    struct ng_incident there;
    uint64_t first = incident->epoch > INCIDENTS ? incident->epoch - INCIDENTS + 1 : 1;

    for (uint64_t k = first; k <= incident->supersedes && k < incident->epoch && !p->lost; k++)
        if (ng_publisher_get_incident(p, k, &there) == 0 && there.state == NG_INCIDENT_CLAIMED)
            fence(p, k);
}

static int put_claim(struct ng_publisher *p, const struct ng_incident *incident,
                     int64_t deadline_mono_ns)
{
    unsigned char bytes[NG_INCIDENT_RECORD_BYTES];
    struct ng_incident there;
    char key[KEY_BYTES];

    number_key(key, 'i', incident->epoch);
    int error = ng_kv_put_if_absent(p->kv, key, bytes, ng_incident_encode(incident, bytes), KEEP_MS,
                                    deadline_mono_ns);
    if (error == -ECONNRESET && read_incident(p, incident->epoch, &there) == 0)
        error =
            same_claimant(&there, incident) ? 0 : -EEXIST; /* whether it was done, is known now */
    return error;
}

static int claim(struct ng_publisher *p, struct ng_incident *incident, int64_t deadline_mono_ns)
{
    struct ng_incident there;
    char text[24];
    int64_t last = 0, until = in(CALL_NS);

    int error = read_number(p, "i/last", &last);
    if (error)
        return failed(p, error);
    incident->source = NG_SOURCE_JOB;
    incident->state = NG_INCIDENT_CLAIMED;
    incident->claimant_slot = p->slot;
    incident->label = p->root;
    for (int tries = 0; tries < 1000; tries++) {
        error = poll_incidents(p);
        if (error)
            return error;
        pthread_mutex_lock(&p->lock);
        uint64_t epoch = p->newest;
        if ((uint64_t)last > epoch)
            epoch = (uint64_t)last;
        pthread_mutex_unlock(&p->lock);
        for (uint64_t k = epoch > INCIDENTS ? epoch - INCIDENTS + 1 : 1; k <= epoch; k++)
            if (ng_publisher_get_incident(p, k, &there) == 0 && k > incident->supersedes &&
                ng_incident_covers(&there, incident) && claimant_lives(p, &there)) {
                *incident = there;
                return -EEXIST;
            }
        /* Nobody may be there any more to conduct what is claimed after the deadline. */
        until = in(CALL_NS);
        if (until > deadline_mono_ns - ANSWER_NS)
            until = deadline_mono_ns - ANSWER_NS;
        if (until <= ng_clock_mono_ns())
            return -ETIMEDOUT;
        incident->epoch = epoch + 1;
        error = put_claim(p, incident, until);
        if (error == -EEXIST) {
            last = (int64_t)incident->epoch - 1;
            continue; /* somebody was faster: is it the same incident? */
        }
        if (error)
            return failed(p, error);
        incident->claimed_mono_ns = ng_clock_mono_ns();
        keep_incident(p, incident);
        int length = snprintf(text, sizeof(text), "%" PRIu64, incident->epoch);
        ng_kv_queue_set(p->kv, "i/last", text, (size_t)length, KEEP_MS);
        queue_announcement(p, incident->epoch);
        failed(p, ng_kv_flush(p->kv, until, NULL));
        if (incident->supersedes)
            fence_superseded(p, incident);
        return 0;
    }
    return -EAGAIN;
}

/* It is ours, but nobody waits for that any more. */
static void give_up_claim(struct ng_publisher *p, uint64_t epoch)
{
    pthread_mutex_lock(&p->lock);
    if (p->incidents[epoch % INCIDENTS].epoch == epoch)
        p->incidents[epoch % INCIDENTS] = (struct ng_incident){0};
    pthread_mutex_unlock(&p->lock);
    fence(p, epoch);
}

static void verdict_key(char ret_key[KEY_BYTES], uint64_t epoch, const char *what)
{
    snprintf(ret_key, KEY_BYTES, "v/%" PRIu64 "/%s", epoch, what);
}

static int judge(struct ng_publisher *p, struct ng_ask *ask)
{
    unsigned char before[NG_INCIDENT_RECORD_BYTES], after[NG_INCIDENT_RECORD_BYTES];
    struct ng_incident claimed;
    char key[KEY_BYTES];

    int error = read_incident(p, ask->incident.epoch, &claimed);
    if (error)
        return failed(p, error);
    /* Somebody took our place, or the store was emptied and used anew: it is theirs now. */
    if (!same_claimant(&claimed, &ask->incident))
        return -EEXIST;
    struct ng_kv_bytes expected = {.data = before, .bytes = ng_incident_encode(&claimed, before)};
    if (ask->json) {
        verdict_key(key, ask->incident.epoch, "json");
        ng_kv_queue_set(p->kv, key, ask->json, ask->json_bytes, KEEP_MS);
        verdict_key(key, ask->incident.epoch, "text");
        ng_kv_queue_set(p->kv, key, ask->text, ask->text_bytes, KEEP_MS);
        error = flush(p);
        if (error)
            return error;
    }
    number_key(key, 'i', ask->incident.epoch);
    size_t size = ng_incident_encode(&ask->incident, after);
    error = ng_kv_compare_and_set(p->kv, key, &expected, after, size, KEEP_MS, in(CALL_NS), NULL);
    if (error == -ECONNRESET) { /* it may have been done */
        struct ng_kv_bytes current = {0};
        error = ng_kv_compare_and_set(p->kv, key, &expected, after, size, KEEP_MS, in(CALL_NS),
                                      &current);
        if (error == -EEXIST && current.bytes == size && memcmp(current.data, after, size) == 0)
            error = 0;
    }
    if (error)
        return failed(p, error);
    keep_incident(p, &ask->incident);
    queue_announcement(p, ask->incident.epoch);
    flush(p);
    return 0;
}

/* ---- Answers ---- */

static void take_document(void *context, size_t index, const struct ng_kv_bytes *value)
{
    struct ng_ask *ask = context;
    char *copy = value ? ng_arena_alloc(&ask->arena, value->bytes + 1) : NULL;

    if (!copy)
        return;
    memcpy(copy, value->data, value->bytes);
    if (index == 0) {
        ask->json = copy;
        ask->json_bytes = value->bytes;
    } else {
        ask->text = copy;
        ask->text_bytes = value->bytes;
    }
}

static int fetch_verdict(struct ng_publisher *p, struct ng_ask *ask)
{
    char json[KEY_BYTES], text[KEY_BYTES];
    const char *keys[] = {json, text};

    verdict_key(json, ask->incident.epoch, "json");
    verdict_key(text, ask->incident.epoch, "text");
    int error = ng_kv_get_many(p->kv, keys, 2, in(CALL_NS), take_document, ask);
    if (error)
        return failed(p, error);
    return ask->json && ask->text ? 0 : -ENOENT;
}

static bool remember_living(struct ng_publisher *p, const struct ng_blob *blobs, uint32_t count)
{
    struct ng_progress_head head;

    if (p->living_room < count) {
        uint64_t *larger = realloc(p->living, count * sizeof(*larger));
        if (!larger)
            return false;
        p->living = larger;
        p->living_room = count;
    }
    p->living_count = 0;
    for (uint32_t i = 0; i < count; i++)
        if (blobs[i].lives && blobs[i].root == p->root && blobs[i].slot != p->slot &&
            ng_progress_peek(blobs[i].data, blobs[i].bytes, &head) == 0 &&
            head.life == NG_LIFE_RUNNING)
            p->living[p->living_count++] = blobs[i].slot;
    return true;
}

/* The store was away, and not all are back: as they told last. */
static void believe(struct ng_blob *blobs, uint32_t count)
{
    struct ng_progress_head head;

    for (uint32_t i = 0; i < count; i++) {
        if (blobs[i].lives || ng_progress_peek(blobs[i].data, blobs[i].bytes, &head) != 0)
            continue;
        int64_t since_ns = ng_clock_unix_ns() - head.written_unix_ns;
        blobs[i].lives = true;
        blobs[i].unchanged_ns = since_ns > 0 && since_ns < AGAIN_NS ? since_ns : 0;
    }
}

static int fetch_all(struct ng_publisher *p, struct ng_ask *ask)
{
    struct timespec pause = {.tv_nsec = REFRESH_WAIT_NS};
    uint64_t question = (uint64_t)ng_clock_unix_ns() * UINT64_C(0x9e3779b97f4a7c15) ^ p->slot;
    char text[40];
    int length = snprintf(text, sizeof(text), "refresh %" PRIx64, question);

    /* Everybody's newest, as of now. */
    int error = ng_kv_publish(p->kv, "m", text, (size_t)length, in(CALL_NS));
    if (error)
        return failed(p, error);
    for (int tries = 0, quiet = 1; tries < REFRESH_TRIES && quiet; tries++) {
        nanosleep(&pause, NULL);
        ng_arena_reset(&ask->arena);
        error = ng_blobs_fetch(p->kv, in(FETCH_NS), &ask->arena, &ask->blobs, &ask->blob_count);
        if (error)
            return failed(p, error);
        quiet = 0;
        for (uint32_t i = 0; i < ask->blob_count; i++) {
            struct ng_blob *blob = &ask->blobs[i];
            blob->quiet = blob->lives && blob->slot != p->slot && blob->question != question;
            quiet += blob->quiet && blob->root == p->root;
        }
    }
    uint64_t root;
    if (ng_label_root(p->kv, p->root, in(CALL_NS), &root) == 0)
        set_root(p, root);
    ask->root = p->root;
    if (!is_settled(p))
        believe(ask->blobs, ask->blob_count);
    return remember_living(p, ask->blobs, ask->blob_count) ? 0 : -ENOMEM;
}

struct dumps {
    uint64_t *living, *kept; /* who still has to write one: room for all that live */
    uint32_t count;
    bool has_dumped;
};

static void sort_dump(void *context, size_t index, const struct ng_kv_bytes *value)
{
    struct dumps *dumps = context;

    if (index % 2 == 0)
        dumps->has_dumped = value != NULL;
    else if (!dumps->has_dumped && value) /* no dump yet, and it lives */
        dumps->kept[dumps->count++] = dumps->living[index / 2];
}

/* Whom we still wait for: the list shrinks with each question about one incident. */
static int count_dumps(struct ng_publisher *p, struct ng_ask *ask)
{
    uint32_t count = p->living_count;
    char(*names)[KEY_BYTES] = ng_arena_alloc(&ask->arena, (2 * count + 1) * sizeof(*names));
    const char **keys = ng_arena_alloc(&ask->arena, (2 * count + 1) * sizeof(*keys));
    struct dumps dumps = {.living = p->living,
                          .kept = ng_arena_alloc(&ask->arena, (count + 1) * sizeof(uint64_t))};

    if (!names || !keys || !dumps.kept)
        return -ENOMEM;
    for (uint32_t i = 0; i < count; i++) {
        snprintf(names[2 * i], KEY_BYTES, "d/%" PRIu64 "/%" PRIu64, ask->incident.epoch,
                 p->living[i]);
        number_key(names[2 * i + 1], 'l', p->living[i]);
        keys[2 * i] = names[2 * i];
        keys[2 * i + 1] = names[2 * i + 1];
    }
    if (count) {
        int error = ng_kv_get_many(p->kv, keys, 2 * count, in(CALL_NS), sort_dump, &dumps);
        if (error)
            return failed(p, error);
        memcpy(p->living, dumps.kept, dumps.count * sizeof(*p->living));
        p->living_count = dumps.count;
    }
    ask->count = p->living_count;
    return 0;
}

/* The last word of this process. */
static int leave(struct ng_publisher *p)
{
    struct ng_view view;
    char key[KEY_BYTES];
    const void *data;
    size_t bytes;
    int64_t ended;

    p->leaving = true;
    int error = encode(p, false, &view, &data, &bytes);
    number_key(key, 'p', p->slot);
    if (!error)
        error = ng_kv_queue_set(p->kv, key, data, bytes, KEEP_MS);
    ng_view_fini(&view);
    number_key(key, 'l', p->slot);
    if (!error)
        error = ng_kv_queue_set(p->kv, key, "0", 1, 1);
    if (!error)
        error = flush(p);
    if (!error)
        error = ng_kv_add(p->kv, "e", 1, KEEP_MS, in(CALL_NS), &ended);
    return error;
}

/* Other incarnations look after themselves. */
static void examine_key(const struct ng_publisher *p, enum ng_incident_level level,
                        char ret_key[KEY_BYTES])
{
    snprintf(ret_key, KEY_BYTES, "examine/%d/%016" PRIx64, (int)level, p->root);
}

static int begin(struct ng_publisher *p, enum ng_incident_level level)
{
    char key[KEY_BYTES];

    examine_key(p, level, key);
    int error = ng_kv_put_if_absent(p->kv, key, "", 0, EXAMINE_MS, in(CALL_NS));
    if (error == -EEXIST)
        return -EBUSY;
    return failed(p, error);
}

static int finish(struct ng_publisher *p, enum ng_incident_level level, bool found)
{
    char key[KEY_BYTES];

    examine_key(p, level, key);
    int error = found || level == NG_INCIDENT_TIMEOUT
                    ? ng_kv_remove(p->kv, key, in(CALL_NS))
                    : ng_kv_expire(p->kv, key, IDLE_MS, in(CALL_NS));

    return failed(p, error);
}

static int answer(struct ng_publisher *p, struct ng_ask *ask)
{
    /* What has not worked a moment ago is not tried while somebody waits. */
    if (p->lost || !p->joined || p->leaving)
        return -EIO;
    switch (ask->kind) {
    case NG_ASK_BEGIN:
        return begin(p, ask->incident.level);
    case NG_ASK_FINISH:
        return finish(p, ask->incident.level, ask->found);
    case NG_ASK_VIEW:
        return fetch_all(p, ask);
    case NG_ASK_CLAIM:
        return claim(p, &ask->incident, ask->deadline_mono_ns);
    case NG_ASK_JUDGE:
        return judge(p, ask);
    case NG_ASK_VERDICT:
        return fetch_verdict(p, ask);
    case NG_ASK_ALIVE:
        return claimant_lives(p, &ask->incident) ? 0 : -ESRCH;
    case NG_ASK_DUMPS:
        return count_dumps(p, ask);
    case NG_ASK_LEAVE:
        return leave(p);
    }
    return -EINVAL;
}

static void serve(struct ng_publisher *p)
{
    struct ng_ask ask;

    pthread_mutex_lock(&p->lock);
    uint64_t serial = p->asked;
    bool any = p->answer != serial && p->waiting;
    if (any) {
        ask = p->ask;
        p->ask.arena = (struct ng_arena){0}; /* ours while we work */
    }
    pthread_mutex_unlock(&p->lock);
    if (!any)
        return;
    ask.result = answer(p, &ask);
    pthread_mutex_lock(&p->lock);
    bool heard = p->asked == serial && p->waiting;
    if (heard) {
        p->ask = ask;
        p->answer = serial;
        pthread_cond_signal(&p->answered);
        ask.arena = (struct ng_arena){0};
    }
    pthread_mutex_unlock(&p->lock);
    ng_arena_reset(&ask.arena); /* nobody waits any more */
    if (!heard && ask.kind == NG_ASK_CLAIM && ask.result == 0)
        give_up_claim(p, ask.incident.epoch);
}

int ng_publisher_ask(struct ng_publisher *p, struct ng_ask *ask, int64_t deadline_mono_ns)
{
    struct timespec until = {.tv_sec = deadline_mono_ns / NG_S, .tv_nsec = deadline_mono_ns % NG_S};
    uint64_t one = 1;
    int error = 0;

    ask->deadline_mono_ns = deadline_mono_ns;
    if (atomic_load(&p->over))
        return ask->result = answer(p, ask);
    if (!atomic_load(&p->up))
        return ask->result = -EIO;
    pthread_mutex_lock(&p->lock);
    uint64_t serial = ++p->asked;
    p->ask = *ask;
    p->waiting = true;
    if (!ng_descriptor_ours(&p->wake) || write(p->wake.fd, &one, sizeof(one)) < 0)
        ng_log(NG_LOG_DEBUG, "the store's thread comes by itself");
    while (p->answer != serial && error != ETIMEDOUT)
        error = pthread_cond_timedwait(&p->answered, &p->lock, &until);
    if (p->answer == serial) {
        *ask = p->ask;
    } else {
        /* Either it was not taken yet, and its arena is still here, or the thread has it. */
        ask->arena = p->ask.arena;
        ask->result = -ETIMEDOUT;
    }
    p->ask.arena = (struct ng_arena){0};
    p->waiting = false;
    pthread_mutex_unlock(&p->lock);
    return ask->result;
}

/* ---- What others say through us ---- */

static void post(struct ng_publisher *p, struct post *wanted)
{
    uint64_t one = 1;

    pthread_mutex_lock(&p->lock);
    bool taken = p->post_count < POSTS;
    if (taken)
        p->posts[p->post_count++] = *wanted;
    pthread_mutex_unlock(&p->lock);
    if (!taken)
        ng_arena_reset(&wanted->arena);
    else if (ng_descriptor_ours(&p->wake) && write(p->wake.fd, &one, sizeof(one)) < 0)
        ng_log(NG_LOG_DEBUG, "the store's thread comes by itself");
}

void ng_publisher_dumped(struct ng_publisher *p, const struct ng_incident *incident)
{
    struct post ours = {.epoch = incident->epoch};

    post(p, &ours);
}

void ng_publisher_speak_for(struct ng_publisher *p, uint64_t slot, bool ended, bool frozen,
                            struct ng_arena *arena, const void *data, size_t bytes)
{
    struct post theirs = {.slot = slot,
                          .ended = ended,
                          .frozen = frozen,
                          .arena = *arena,
                          .data = data,
                          .bytes = bytes};

    *arena = (struct ng_arena){0};
    post(p, &theirs);
}

static int tell_end(struct ng_publisher *p)
{
    int64_t ended;
    int error = ng_kv_add(p->kv, "e", 1, KEEP_MS, in(CALL_NS), &ended);

    if (!error)
        error = ng_kv_publish(p->kv, "m", "ended", 5, in(CALL_NS));
    return failed(p, error);
}

/* A place for somebody whom the store does not know, or no longer: it was emptied, and he could not
 * come again. */
static int find_place(struct ng_publisher *p, uint64_t uid, uint64_t *ret_slot)
{
    char key[KEY_BYTES], text[24];
    int64_t slot;

    uid_key(key, 'w', uid);
    int error = read_number(p, key, &slot);
    if (!error && slot <= 0) {
        error = ng_kv_add(p->kv, "n", 1, KEEP_MS, in(CALL_NS), &slot);
        int length = snprintf(text, sizeof(text), "%" PRId64, slot);
        if (!error)
            error = ng_kv_set(p->kv, key, text, (size_t)length, KEEP_MS, in(CALL_NS));
    }
    *ret_slot = (uint64_t)slot;
    return error;
}

/*
 * Where what a neighbour left is to be told: not in a place that is another's by now; 0 none is
 * known. 0, or -errno; -EEXIST: it is of another incarnation, or has told it all itself.
 */
static int place_of(struct ng_publisher *p, const struct post *what, uint64_t uid,
                    uint64_t *ret_slot)
{
    struct ng_progress_head there;
    struct ng_kv_bytes value;
    char key[KEY_BYTES];

    number_key(key, 'p', what->slot);
    *ret_slot = 0;
    int error = ng_kv_get(p->kv, key, in(CALL_NS), &value);
    if (error && error != -ENOENT)
        return error;
    if (error || ng_progress_peek(value.data, value.bytes, &there) != 0 || there.uid != uid)
        return 0;
    *ret_slot = what->slot;
    if (there.life != NG_LIFE_RUNNING && there.life != NG_LIFE_STOPPED)
        return -EEXIST;
    int ours = is_ours(p, there.label);
    return ours < 0 ? ours : ours ? 0 : -EEXIST;
}

static int do_post(struct ng_publisher *p, struct post *what)
{
    struct ng_progress_head head;
    char key[KEY_BYTES];
    uint64_t slot;

    if (!what->data) {
        snprintf(key, sizeof(key), "d/%" PRIu64 "/%" PRIu64, what->epoch, p->slot);
        return failed(p, ng_kv_set(p->kv, key, "", 0, KEEP_MS, in(CALL_NS)));
    }
    if (ng_progress_peek(what->data, what->bytes, &head) != 0)
        return 0;
    int error = place_of(p, what, head.uid, &slot);
    /* Of all its neighbours, one tells; of the silent, once in a while. */
    uid_key(key, what->ended ? 'x' : 's', head.uid);
    if (!error && !what->ours_to_tell)
        error = ng_kv_put_if_absent(
            p->kv, key, "", 0, what->ended ? KEEP_MS : p->options.ttl_ns / NG_MS / 3, in(CALL_NS));
    if (error)
        return error == -EEXIST ? 0 : failed(p, error);
    what->ours_to_tell = true;
    if (!slot)
        error = failed(p, find_place(p, head.uid, &slot));
    if (error)
        return error;
    number_key(key, 'p', slot);
    error = ng_kv_queue_set(p->kv, key, what->data, what->bytes, KEEP_MS);
    number_key(key, 'l', slot);
    if (!error && !what->ended && !what->frozen)
        error = ng_kv_queue_set(p->kv, key, "0", 1, p->options.ttl_ns / NG_MS);
    if (!error)
        error = flush(p);
    if (!error && what->ended)
        error = tell_end(p);
    return error;
}

/* That somebody died is told when the store is back. */
static bool put_back(struct ng_publisher *p, const struct post *what)
{
    bool room;

    pthread_mutex_lock(&p->lock);
    room = what->ended && p->post_count < POSTS;
    if (room)
        p->posts[p->post_count++] = *what;
    pthread_mutex_unlock(&p->lock);
    return room;
}

static void do_posts(struct ng_publisher *p)
{
    struct post taken[POSTS];

    pthread_mutex_lock(&p->lock);
    uint32_t count = p->post_count;
    memcpy(taken, p->posts, count * sizeof(taken[0]));
    p->post_count = 0;
    pthread_mutex_unlock(&p->lock);
    for (uint32_t i = 0; i < count; i++) {
        int error = p->lost || !p->joined ? -EIO : do_post(p, &taken[i]);
        if (error && put_back(p, &taken[i]))
            continue;
        p->dropped += error != 0;
        ng_arena_reset(&taken[i].arena);
    }
}

/* ---- The walk ---- */

struct walk {
    struct ng_publisher *p;
    uint64_t first; /* place of index 0 */
    uint64_t lost[WALK], labels[WALK], found;
    unsigned lost_count;
    bool over, gap; /* a place with nothing in it: somebody may just be about to take it */
    struct ng_progress_head head;
    bool known;
};

/* Even indexes are blobs, odd ones signs of life. */
static void pass(void *context, size_t index, const struct ng_kv_bytes *value)
{
    struct walk *walk = context;
    struct ng_publisher *p = walk->p;
    uint64_t slot = walk->first + index / 2;

    if (walk->over)
        return;
    if (index % 2 == 0) {
        walk->known = value && ng_progress_peek(value->data, value->bytes, &walk->head) == 0;
        return;
    }
    if (slot == p->slot) {
        walk->over = true; /* once round: nobody else lives */
        walk->found = 0;
    } else if (value) {
        walk->over = true;
        walk->found = slot;
    } else if (!walk->known) {
        walk->gap = true;
    } else if (walk->head.life == NG_LIFE_RUNNING) {
        walk->labels[walk->lost_count] = walk->head.label;
        walk->lost[walk->lost_count++] = slot;
    }
}

static int tell_lost(struct ng_publisher *p, uint64_t slot)
{
    char key[KEY_BYTES];

    number_key(key, 'y', slot);
    int error = ng_kv_put_if_absent(p->kv, key, "", 0, LOST_TOLD_MS, in(CALL_NS));
    if (error)
        return error == -EEXIST ? 0 : failed(p, error);
    ng_log(NG_LOG_INFO, "the process in place %" PRIu64 " of the board gives no sign of life",
           slot);
    return tell_end(p);
}

/* From the place that we look after onwards, to the next that lives. */
static int walk_on(struct ng_publisher *p)
{
    char names[2 * WALK][KEY_BYTES];
    const char *keys[2 * WALK];
    uint64_t at = p->watch ? p->watch : p->slot + 1;

    p->walked_ns = ng_clock_mono_ns();
    for (int steps = 0; steps < 5; steps++) {
        if (at > p->slots)
            at = 1;
        struct walk walk = {.p = p, .first = at};
        uint64_t count = steps ? WALK : 2; /* mostly the next one lives */
        if (count > p->slots - at + 1)
            count = p->slots - at + 1;
        for (uint64_t i = 0; i < count; i++) {
            number_key(names[2 * i], 'p', at + i);
            number_key(names[2 * i + 1], 'l', at + i);
            keys[2 * i] = names[2 * i];
            keys[2 * i + 1] = names[2 * i + 1];
        }
        int error = ng_kv_get_many(p->kv, keys, 2 * count, in(CALL_NS), pass, &walk);
        if (error)
            return failed(p, error);
        for (unsigned i = 0; i < walk.lost_count && !error; i++) {
            int ours = is_ours(p, walk.labels[i]);
            error = ours < 0 ? failed(p, ours) : ours ? tell_lost(p, walk.lost[i]) : 0;
        }
        p->watch = walk.over ? walk.found : at + count;
        p->gap |= walk.gap;
        if (walk.over || error)
            return error;
        at = p->watch;
    }
    return 0;
}

/* ---- Rounds ---- */

enum { ENDED, SLOTS, ABOVE, LAST, SPOKEN, WATCHED, ANSWERS };

struct answers {
    bool there[ANSWERS];
    char text[ANSWERS][24];
};

static void take_answer(void *context, size_t index, const struct ng_kv_bytes *value)
{
    struct answers *answers = context;

    if (!value || index >= ANSWERS)
        return;
    answers->there[index] = true;
    memcpy(answers->text[index], value->data,
           value->bytes < sizeof(answers->text[0]) ? value->bytes : sizeof(answers->text[0]) - 1);
}

/* Somebody may stand between us and the one that we look after: who came after we had gone round,
 * or was lost and is back. */
static void look_nearer(struct ng_publisher *p, uint64_t slots)
{
    uint64_t next = p->slot < slots ? p->slot + 1 : 1;

    if ((slots > p->slots && p->watch <= p->slot) ||
        (p->watch != next && ng_clock_mono_ns() - p->walked_ns >= 2 * p->options.ttl_ns))
        p->watch = 0;
    p->slots = slots;
}

static int look_around(struct ng_publisher *p)
{
    struct answers answers = {0};
    char above[NG_LABEL_KEY_BYTES], spoken[KEY_BYTES], watched[KEY_BYTES];
    const char *keys[ANSWERS] = {"e", "n", above, "i/last", spoken, watched};

    ng_label_key(p->root, above);
    uid_key(spoken, 's', ng_box_uid(p->options.own_box->header));
    number_key(watched, 'l', p->watch);
    int error = ng_kv_get_many(p->kv, keys, ANSWERS, in(CALL_NS), take_answer, &answers);
    if (error)
        return failed(p, error);
    int64_t ended = strtoll(answers.text[ENDED], NULL, 10);
    uint64_t slots = strtoull(answers.text[SLOTS], NULL, 10);
    uint64_t up = strtoull(answers.text[ABOVE], NULL, 16);
    uint64_t last = strtoull(answers.text[LAST], NULL, 10);
    /* Whoever came since may stand before the one that we look after. */
    if (slots > p->slots)
        p->grown_ns = ng_clock_mono_ns();
    if (slots > p->slots || (p->gap && ng_clock_mono_ns() - p->grown_ns < GAP_NS)) {
        p->watch = 0;
        p->gap = false;
        answers.there[WATCHED] = false;
    }
    if (slots)
        look_nearer(p, slots);
    if (up && up < p->root)
        set_root(p, up);
    if (answers.there[SPOKEN])
        p->stored_ns = 0; /* a neighbour found us silent: what it told is over */
    if (ended != p->counted) {
        p->counted = ended;
        atomic_fetch_add(&p->ended, 1);
        tell(p, NG_BOARD_DEATH);
    }
    pthread_mutex_lock(&p->lock);
    bool missed = last > p->newest;
    pthread_mutex_unlock(&p->lock);
    if (missed) { /* and not found one by one: a number before it was never used */
        error = take_through(p, last);
        if (error && error != -ENOENT)
            return failed(p, error);
    }
    return (p->watch && answers.there[WATCHED]) || !is_settled(p) ? 0 : walk_on(p);
}

static void read_messages(struct ng_publisher *p)
{
    struct ng_kv_message message;
    char text[64];

    for (int many = 0; many < 1000; many++) {
        int error = ng_kv_next_message(p->kv, in(CALL_NS), &message);
        if (error == -ESTALE)
            p->round_ns = 0; /* look at the keys at once */
        if (error && error != -ESTALE)
            return;
        if (error)
            continue;
        size_t length = message.data.bytes < sizeof(text) ? message.data.bytes : sizeof(text) - 1;
        memcpy(text, message.data.data, length);
        text[length] = '\0';
        if (strncmp(text, "refresh ", 8) == 0) {
            p->question = strtoull(text + 8, NULL, 16);
            p->want_refresh = true;
        } else if (strncmp(text, "incident ", 9) == 0)
            failed(p, take_through(p, strtoull(text + 9, NULL, 10)));
        else
            p->round_ns = 0; /* "ended", "unite" */
    }
}

static void round_of(struct ng_publisher *p)
{
    int64_t now = ng_clock_mono_ns();

    /* Where it was lost, the kv itself decides when it tries again. */
    if (!p->joined && join(p) != 0)
        return;
    if (p->connects != p->kv->connects) {
        uint64_t connects = p->kv->connects;
        if (verify(p) != 0)
            return;
        p->connects = connects;
        if (!p->joined && join(p) != 0)
            return;
    }
    if (label_groups(p) != 0 || (now - p->kept_ns >= AGAIN_NS && keep_counters(p) != 0))
        return;
    uint64_t digest = digest_of(p->options.own_box);
    bool due = now - p->stored_ns >= AGAIN_NS || !p->stored_ns ||
               (digest != p->digest && now - p->published_ns >= PUBLISH_NS);
    if (due ? publish(p, false) != 0 : 0)
        return;
    if (!due && now - p->signed_ns >= p->options.ttl_ns / 3) {
        p->signed_ns = now;
        if (queue_sign(p) != 0 || flush(p) != 0)
            return;
        signed_now(p);
    }
    if (poll_incidents(p) == 0 && look_around(p) == 0)
        worked(p);
}

/* The store is gone: what would have been published is counted. */
static void count_dropped(struct ng_publisher *p)
{
    uint64_t digest = digest_of(p->options.own_box);

    if (p->lost && digest != p->digest && ng_clock_mono_ns() - p->changed_ns >= PUBLISH_NS) {
        p->digest = digest;
        p->changed_ns = ng_clock_mono_ns();
        p->dropped++;
    }
    if (p->lost)
        warn(p);
}

/* Has every other thread of this process ended? Then it ends with this one. */
static bool is_last_thread(void)
{
    struct ng_folder tasks;
    unsigned count = 0;

    /* The first thread stays in the list as a zombie. */
    if (!ng_proc_first_thread_ended() || ng_folder_open(&tasks, "/proc/self/task", true) != 0)
        return false;
    while (ng_folder_next(&tasks))
        count++;
    ng_folder_close(&tasks);
    return count == 2;
}

static void await(struct ng_publisher *p)
{
    struct pollfd polls[2] = {{.fd = -1, .events = POLLIN}, {.fd = -1, .events = POLLIN}};
    int64_t left = p->round_ns + ROUND_NS - ng_clock_mono_ns();
    uint64_t count;

    if (left <= 0)
        return;
    if (ng_descriptor_ours(&p->wake))
        polls[0].fd = p->wake.fd;
    polls[1].fd = ng_kv_message_fd(p->kv);
    if ((polls[0].fd < 0 || polls[1].fd < 0) && left > 50 * NG_MS)
        left = 50 * NG_MS;
    if (poll(polls, 2, (int)(left / NG_MS) + 1) < 0) {
        struct timespec pause = {.tv_nsec = 50 * NG_MS};
        nanosleep(&pause, NULL);
        return;
    }
    if (polls[0].revents & POLLIN && read(polls[0].fd, &count, sizeof(count)) < 0)
        ng_log(NG_LOG_DEBUG, "the store's thread was called for nothing");
}

static void *run(void *unused)
{
    struct ng_publisher *p = publisher_of_thread;

    if (p->options.adopt_thread)
        p->options.adopt_thread();
    ng_kv_subscribe(p->kv, "m", in(CALL_NS));
    while (!p->leaving) {
        read_messages(p);
        serve(p);
        do_posts(p);
        int64_t now = ng_clock_mono_ns();
        if (now - p->round_ns >= ROUND_NS) {
            p->round_ns = now;
            round_of(p);
            count_dropped(p);
            if (is_last_thread())
                break;
        }
        if (p->want_refresh && p->joined && !p->lost) {
            p->want_refresh = false;
            if (ng_clock_mono_ns() - p->published_ns >= REFRESH_NS)
                publish(p, true);
            else if (queue_sign(p) == 0)
                flush(p); /* what we told a moment ago still holds */
        }
        serve(p);
        await(p);
    }
    atomic_store(&p->up, false);
    atomic_store(&p->over, true);
    return unused;
}

/* ---- From outside ---- */

int ng_publisher_open(struct ng_kv *kv, const struct ng_publisher_options *options,
                      struct ng_publisher **ret_publisher)
{
    struct ng_publisher *p = calloc(1, sizeof(*p));
    pthread_condattr_t attributes;

    if (!p)
        return -ENOMEM;
    p->options = *options;
    p->kv = kv;
    p->counted = -1;
    p->wake = NG_DESCRIPTOR_NONE;
    pthread_mutex_init(&p->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&p->answered, &attributes);
    pthread_condattr_destroy(&attributes);
    *ret_publisher = p;
    return 0;
}

int ng_publisher_start(struct ng_publisher *p)
{
    p->wake = ng_descriptor_keep(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    publisher_of_thread = p;
    return p->options.start_thread("ncclguard/store", run);
}

unsigned ng_publisher_news(struct ng_publisher *p)
{
    return atomic_exchange(&p->news, 0);
}

uint32_t ng_publisher_ended(const struct ng_publisher *p)
{
    return atomic_load(&p->ended);
}

bool ng_publisher_is_up(const struct ng_publisher *p)
{
    return atomic_load(&p->up);
}

uint64_t ng_publisher_label(const struct ng_publisher *p)
{
    return atomic_load(&p->label);
}

int ng_publisher_next_incident(struct ng_publisher *p, uint64_t epoch,
                               struct ng_incident *ret_incident)
{
    int error = -ENOENT;

    pthread_mutex_lock(&p->lock);
    uint64_t at = epoch + 1;
    if (p->newest > INCIDENTS && at <= p->newest - INCIDENTS)
        at = p->newest - INCIDENTS + 1;
    for (; at <= p->newest && error; at++)
        if (p->incidents[at % INCIDENTS].epoch == at) {
            *ret_incident = p->incidents[at % INCIDENTS];
            error = 0;
        }
    pthread_mutex_unlock(&p->lock);
    return error;
}

int ng_publisher_get_incident(struct ng_publisher *p, uint64_t epoch,
                              struct ng_incident *ret_incident)
{
    pthread_mutex_lock(&p->lock);
    const struct ng_incident *place = &p->incidents[epoch % INCIDENTS];
    int error = place->epoch == epoch ? 0 : -ENOENT;
    if (!error)
        *ret_incident = *place;
    pthread_mutex_unlock(&p->lock);
    return error;
}

void ng_publisher_abandon(struct ng_publisher *p)
{
    ng_kv_abandon(p->kv);
    ng_descriptor_close(&p->wake);
}
