/*
 * Incidents on the store: claimed, judged, received; their documents and dumps.
 *
 * The store's thread; incidents received are read by the incident thread, under the publisher's
 * lock.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "core/util/clock.h"
#include "core/util/macros.h"
#include "store/kv/kv.h"
#include "store/publish/peer_progress.h"
#include "store/publish/publisher.h"
#include "store/wire/command_record.h"
#include "store/wire/documents.h"
#include "store/wire/incident_codec.h"

#define EXAMINE_MS 3000         /* a process that examines the job for longer counts as lost */
#define IDLE_MS    500          /* nothing was found: pause before a search for the same cause */
#define ANSWER_NS  (50 * NG_MS) /* part of a query's time reserved for the answer's way */
#define NOBODY     UINT64_MAX   /* a slot that is never given out */

uint64_t ng_publisher_newest(struct ng_publisher *p)
{
    NG_HOLD(&p->lock);

    return p->incidents.newest;
}

void ng_publisher_pass_over(struct ng_publisher *p, uint64_t epoch)
{
    NG_HOLD(&p->lock);

    p->incidents.newest = NG_MAX(p->incidents.newest, epoch);
}

static void keep_incident(struct ng_publisher *p, const struct ng_incident *read)
{
    struct ng_incident incident = *read;

    pthread_mutex_lock(&p->lock);
    struct ng_incident *place = &p->incidents.list[incident.epoch % INCIDENTS];
    incident.claimed_mono_ns =
        place->epoch == incident.epoch ? place->claimed_mono_ns : ng_clock_mono_ns();
    bool changed =
        place->epoch < incident.epoch ||
        (place->epoch == incident.epoch &&
         (place->state != incident.state || place->claimant_slot != incident.claimant_slot));
    if (changed)
        *place = incident;
    p->incidents.newest = NG_MAX(p->incidents.newest, incident.epoch);
    pthread_mutex_unlock(&p->lock);
    if (changed)
        ng_publisher_tell(p, NG_BOARD_INCIDENT);
}

/* 0; -ENOENT there is none; or -errno. One of another incarnation is skipped. */
static int read_incident(struct ng_publisher *p, uint64_t epoch, struct ng_incident *ret_incident)
{
    struct ng_kv_bytes value;
    char key[KEY_BYTES];

    ng_publisher_number_key(key, 'i', epoch);
    int error = ng_kv_get(p->kv, key, ng_publisher_in(CALL_NS), &value);
    if (error)
        return error;
    error = ng_incident_decode(value.data, value.bytes, ret_incident);
    if (error || ret_incident->epoch != epoch)
        *ret_incident = (struct ng_incident){.epoch = epoch}; /* not to be acted on, only counted */
    return 0;
}

static bool is_known(struct ng_publisher *p, uint64_t epoch)
{
    struct ng_incident known;

    return ng_publisher_get_incident(p, epoch, &known) == 0;
}

/*
 * Withdraw a claim whose claimant does not finish, or does not know of it: the claimant can no
 * longer judge it, and processes that wait for the verdict see that the claimant is not alive. 0 or
 * -errno.
 */
static int fence(struct ng_publisher *p, uint64_t epoch)
{
    unsigned char before[NG_INCIDENT_RECORD_BYTES], after[NG_INCIDENT_RECORD_BYTES];
    struct ng_incident incident;
    struct ng_kv_bytes value;
    char key[KEY_BYTES];

    ng_publisher_number_key(key, 'i', epoch);
    int error = ng_kv_get(p->kv, key, ng_publisher_in(CALL_NS), &value);
    if (error)
        return error == -ENOENT ? 0 : ng_publisher_failed(p, error);
    if (ng_incident_decode(value.data, value.bytes, &incident) != 0 ||
        incident.state != NG_INCIDENT_CLAIMED || incident.claimant_slot == NOBODY)
        return 0;
    struct ng_kv_bytes expected = {.data = before, .bytes = value.bytes};
    memcpy(before, value.data, value.bytes); /* no longer than what could be decoded */
    incident.claimant_pid = 0;
    incident.claimant_ticks = 0;
    incident.claimant_slot = NOBODY;
    error =
        ng_kv_compare_and_set(p->kv, key, &expected, after, ng_incident_encode(&incident, after),
                              KEEP_MS, ng_publisher_in(CALL_NS), NULL);
    return error == -EEXIST ? 0 : ng_publisher_failed(p, error);
}

static bool claimed_by_us(const struct ng_publisher *p, const struct ng_incident *incident)
{
    const struct ng_box_header *header = p->options.own_box->header;

    return incident->state == NG_INCIDENT_CLAIMED && incident->claimant_slot == p->slot.number &&
           incident->claimant_pid == header->pid && incident->claimant_ticks == header->start_ticks;
}

/* Is a command for this run for us? NG_PEER_RUN_OPEN, or what our launcher says of our run; a root
 * is what ng_publisher_is_ours knows. */
static bool is_command_for_us(const struct ng_publisher *p, const struct ng_incident *incident)
{
    uint64_t launch_run = p->options.own_box->header->launch_run;

    return ng_record_is_command(incident) &&
           (launch_run ? incident->label == launch_run
                       : incident->label == NG_PEER_RUN_OPEN && !p->labels.root);
}

static int take_incident(struct ng_publisher *p, uint64_t epoch)
{
    struct ng_incident incident;

    int error = read_incident(p, epoch, &incident);
    if (error)
        return error;
    /* An operator's command may be for all runs of the job; a rank's claim is for its own run. */
    bool of_a_run = incident.label || ng_record_is_command(&incident);
    int ours = is_command_for_us(p, &incident);
    if (!ours && incident.level && of_a_run)
        ours = ng_publisher_is_ours(p, incident.label);
    if (!ours && incident.level &&
        of_a_run) { /* a group that was created since the last round may unite us */
        error = ng_publisher_label_groups(p);
        ours = error ? error : ng_publisher_is_ours(p, incident.label);
    }
    if (ours < 0)
        return ours;
    if (ours && !is_known(p, epoch)) {
        /* The caller of the claim was told that the result is not known, and continued alone. */
        if (claimed_by_us(p, &incident)) {
            error = fence(p, epoch);
            ours = 0;
        } else if (incident.claimant_slot == NOBODY) {
            ours = 0; /* it was withdrawn */
        }
    }
    if (ours)
        keep_incident(p, &incident);
    else
        ng_publisher_pass_over(p, epoch);
    return error;
}

/* Can any process have counted that far? */
static bool is_plausible(struct ng_publisher *p, uint64_t epoch)
{
    return epoch && epoch <= NG_EPOCH_MAX &&
           (!p->slot.came || epoch <= ng_publisher_newest(p) + NG_EPOCH_AHEAD_MAX);
}

/* Read an incident that was announced, and those before it whose announcement was lost. */
int ng_publisher_take_through(struct ng_publisher *p, uint64_t epoch)
{
    uint64_t next = ng_publisher_newest(p) + 1;
    int error = 0;

    if (!is_plausible(p, epoch))
        return 0;
    /* Incidents from before our arrival do not concern us. */
    if (!p->slot.came)
        next = epoch;
    if (epoch > INCIDENTS && next <= epoch - INCIDENTS)
        next = epoch - INCIDENTS + 1;
    for (; next < epoch && (!error || error == -ENOENT); next++)
        error = take_incident(p, next);
    return error && error != -ENOENT ? error : take_incident(p, epoch);
}

/* Catch what the messages miss: incidents after the newest, and those that wait for their
 * verdict. */
int ng_publisher_poll_incidents(struct ng_publisher *p)
{
    uint64_t open[INCIDENTS], newest;
    unsigned count = 0, read = 0;
    int error = 0;

    pthread_mutex_lock(&p->lock);
    for (unsigned i = 0; i < INCIDENTS; i++)
        if (p->incidents.list[i].epoch && p->incidents.list[i].state == NG_INCIDENT_CLAIMED &&
            ng_clock_mono_ns() - p->incidents.list[i].claimed_mono_ns < 60 * NG_S)
            open[count++] = p->incidents.list[i].epoch;
    newest = p->incidents.newest;
    pthread_mutex_unlock(&p->lock);
    for (unsigned i = 0; i < count && (!error || error == -ENOENT); i++)
        error = take_incident(p, open[i]);
    if (error == -ENOENT)
        error = 0;
    /* The rest follow in the next round: our sign of life does not wait for a writer without
     * end. */
    while (!error && read++ < INCIDENTS && newest < NG_EPOCH_MAX)
        error = take_incident(p, ++newest);
    return error == -ENOENT ? 0 : ng_publisher_failed(p, error);
}

/* The newest epoch and its message, with one round trip. */
static void queue_announcement(struct ng_publisher *p, uint64_t epoch)
{
    char text[40];
    int length = snprintf(text, sizeof(text), "incident %" PRIu64, epoch);

    ng_kv_queue_publish(p->kv, "m", text, (size_t)length);
}

/* Does its claimant give signs of life, as far as is known? */
static bool claimant_lives(struct ng_publisher *p, const struct ng_incident *incident)
{
    struct ng_kv_bytes value;
    char key[KEY_BYTES];

    if (!incident->claimant_slot)
        return ng_record_is_command(incident); /* which is complete when it is written */
    if (incident->claimant_slot == NOBODY)
        return false;
    ng_publisher_number_key(key, 'l', incident->claimant_slot);
    return ng_kv_get(p->kv, key, ng_publisher_in(CALL_NS), &value) != -ENOENT ||
           !ng_publisher_is_settled(p);
}

int ng_publisher_ask_for_claimant(struct ng_publisher *p, struct ng_ask *ask)
{
    bool lives = claimant_lives(p, &ask->incident);
    /* Only now: the verdict precedes the end. */
    int error = take_incident(p, ask->incident.epoch);

    if (error && error != -ENOENT)
        return ng_publisher_failed(p, error);
    return lives ? 0 : -ESRCH;
}

static bool same_claimant(const struct ng_incident *a, const struct ng_incident *b)
{
    return a->claimant_slot == b->claimant_slot && a->claimant_pid == b->claimant_pid &&
           a->claimant_ticks == b->claimant_ticks && a->label == b->label;
}

/* Withdraw the incidents that it supersedes: their claimants can no longer judge them. */
static void fence_superseded(struct ng_publisher *p, const struct ng_incident *incident)
{
    struct ng_incident there;
    uint64_t first = incident->epoch > INCIDENTS ? incident->epoch - INCIDENTS + 1 : 1;

    for (uint64_t k = first; k <= incident->supersedes && k < incident->epoch && !p->link.lost; k++)
        if (ng_publisher_get_incident(p, k, &there) == 0 && there.state == NG_INCIDENT_CLAIMED)
            fence(p, k);
}

static int put_claim(struct ng_publisher *p, const struct ng_incident *incident,
                     int64_t deadline_mono_ns)
{
    unsigned char bytes[NG_INCIDENT_RECORD_BYTES];
    struct ng_incident there;
    char key[KEY_BYTES];

    ng_publisher_number_key(key, 'i', incident->epoch);
    int error = ng_kv_put_if_absent(p->kv, key, bytes, ng_incident_encode(incident, bytes), KEEP_MS,
                                    deadline_mono_ns);
    if (error == -ECONNRESET && read_incident(p, incident->epoch, &there) == 0)
        error =
            same_claimant(&there, incident) ? 0 : -EEXIST; /* whether it was done, is known now */
    return error;
}

/* Does an existing incident, present or past, already cover what is wanted? */
static bool is_dealt_with(struct ng_publisher *p, uint64_t epoch, const struct ng_incident *wanted,
                          struct ng_incident *ret_there)
{
    if (epoch <= wanted->supersedes || ng_publisher_get_incident(p, epoch, ret_there) != 0 ||
        ng_record_is_command(ret_there) || !ng_incident_covers(ret_there, wanted))
        return false;
    if (ng_incident_outlives_claimant(ret_there, wanted) || claimant_lives(p, ret_there))
        return true;
    /* It may have been judged since it was read. */
    return take_incident(p, epoch) == 0 && ng_publisher_get_incident(p, epoch, ret_there) == 0 &&
           ng_incident_covers(ret_there, wanted) &&
           ng_incident_outlives_claimant(ret_there, wanted);
}

int ng_publisher_claim(struct ng_publisher *p, struct ng_ask *ask)
{
    struct ng_incident there, *incident = &ask->incident;
    char text[24];
    int64_t last = 0, until = ng_publisher_in(CALL_NS);

    /* It gets our label, which must include every group that was created since the last round. */
    int error = ng_publisher_label_groups(p);
    if (error)
        return error;
    error = ng_publisher_read_number(p, "i/last", &last);
    if (error)
        return ng_publisher_failed(p, error);
    incident->source = NG_SOURCE_JOB;
    incident->state = NG_INCIDENT_CLAIMED;
    incident->claimant_slot = p->slot.number;
    incident->label = p->labels.root;
    for (int tries = 0; tries < 1000; tries++) {
        error = ng_publisher_poll_incidents(p);
        if (error)
            return error;
        uint64_t epoch = ng_publisher_newest(p);
        if (last > 0 && (uint64_t)last > epoch && is_plausible(p, (uint64_t)last))
            epoch = (uint64_t)last;
        if (epoch >= NG_EPOCH_MAX)
            return -EOVERFLOW;
        for (uint64_t k = epoch > INCIDENTS ? epoch - INCIDENTS + 1 : 1; k <= epoch; k++)
            if (is_dealt_with(p, k, incident, &there)) {
                *incident = there;
                return -EEXIST;
            }
        /* After the deadline the caller may no longer be there to handle the claim. */
        until = ng_publisher_in(CALL_NS);
        if (until > ask->deadline_mono_ns - ANSWER_NS)
            until = ask->deadline_mono_ns - ANSWER_NS;
        if (until <= ng_clock_mono_ns())
            return -ETIMEDOUT;
        incident->epoch = epoch + 1;
        error = put_claim(p, incident, until);
        if (error == -EEXIST) {
            last = (int64_t)incident->epoch - 1;
            continue; /* another process was first: is it the same incident? */
        }
        if (error)
            return ng_publisher_failed(p, error);
        incident->claimed_mono_ns = ng_clock_mono_ns();
        keep_incident(p, incident);
        int length = snprintf(text, sizeof(text), "%" PRIu64, incident->epoch);
        ng_kv_queue_set(p->kv, "i/last", text, (size_t)length, KEEP_MS);
        queue_announcement(p, incident->epoch);
        ng_publisher_failed(p, ng_kv_flush(p->kv, until, NULL));
        if (incident->supersedes)
            fence_superseded(p, incident);
        return 0;
    }
    return -EAGAIN;
}

/* The claim is ours, but the caller no longer waits for it. */
void ng_publisher_give_up_claim(struct ng_publisher *p, uint64_t epoch)
{
    pthread_mutex_lock(&p->lock);
    if (p->incidents.list[epoch % INCIDENTS].epoch == epoch)
        p->incidents.list[epoch % INCIDENTS] = (struct ng_incident){0};
    pthread_mutex_unlock(&p->lock);
    fence(p, epoch);
}

int ng_publisher_judge(struct ng_publisher *p, struct ng_ask *ask)
{
    unsigned char before[NG_INCIDENT_RECORD_BYTES], after[NG_INCIDENT_RECORD_BYTES];
    struct ng_incident claimed;
    char key[KEY_BYTES];

    int error = read_incident(p, ask->incident.epoch, &claimed);
    if (error)
        return ng_publisher_failed(p, error);
    /* Another process has taken our slot, or the store was emptied and reused: the incident is its
     * own now. */
    if (!same_claimant(&claimed, &ask->incident))
        return -EEXIST;
    struct ng_kv_bytes expected = {.data = before, .bytes = ng_incident_encode(&claimed, before)};
    const struct ng_documents *documents = &ask->documents;
    if (documents->json) {
        struct ng_document_keys keys = ng_documents_keys(ask->incident.epoch);
        ng_kv_queue_set(p->kv, keys.json, documents->json, documents->json_bytes, KEEP_MS);
        ng_kv_queue_set(p->kv, keys.text, documents->text, documents->text_bytes, KEEP_MS);
        error = ng_publisher_flush(p);
        if (error)
            return error;
    }
    ng_publisher_number_key(key, 'i', ask->incident.epoch);
    size_t size = ng_incident_encode(&ask->incident, after);
    error = ng_kv_compare_and_set(p->kv, key, &expected, after, size, KEEP_MS,
                                  ng_publisher_in(CALL_NS), NULL);
    if (error == -ECONNRESET) { /* it may have been done */
        struct ng_kv_bytes current = {0};
        error = ng_kv_compare_and_set(p->kv, key, &expected, after, size, KEEP_MS,
                                      ng_publisher_in(CALL_NS), &current);
        if (error == -EEXIST && current.bytes == size && memcmp(current.data, after, size) == 0)
            error = 0;
    }
    if (error)
        return ng_publisher_failed(p, error);
    keep_incident(p, &ask->incident);
    queue_announcement(p, ask->incident.epoch);
    ng_publisher_flush(p);
    return 0;
}

int ng_publisher_fetch_verdict(struct ng_publisher *p, struct ng_ask *ask)
{
    ask->documents.arena = ask->arena;
    int error =
        ng_documents_read(p->kv, ask->incident.epoch, ng_publisher_in(CALL_NS), &ask->documents);
    ask->arena = ask->documents.arena;
    return ng_publisher_failed(p, error);
}

struct dumps {
    uint64_t *living, *kept; /* slots that still have to write one: room for all live ones */
    uint32_t count;
    bool has_dumped;
};

static void sort_dump(void *context, size_t index, const struct ng_kv_bytes *value)
{
    struct dumps *dumps = context;

    if (index % 2 == 0)
        dumps->has_dumped = value != NULL;
    else if (!dumps->has_dumped && value) /* no dump yet, and it is alive */
        dumps->kept[dumps->count++] = dumps->living[index / 2];
}

/* The processes still awaited: the list shrinks with each query about one incident. */
int ng_publisher_count_dumps(struct ng_publisher *p, struct ng_ask *ask)
{
    uint32_t count = p->labels.living_count;
    char(*names)[KEY_BYTES] = ng_arena_alloc(&ask->arena, (2 * count + 1) * sizeof(*names));
    const char **keys = ng_arena_alloc(&ask->arena, (2 * count + 1) * sizeof(*keys));
    struct dumps dumps = {.living = p->labels.living,
                          .kept = ng_arena_alloc(&ask->arena, (count + 1) * sizeof(uint64_t))};

    if (!names || !keys || !dumps.kept)
        return -ENOMEM;
    for (uint32_t i = 0; i < count; i++) {
        snprintf(names[2 * i], KEY_BYTES, "d/%" PRIu64 "/%" PRIu64, ask->incident.epoch,
                 p->labels.living[i]);
        ng_publisher_number_key(names[2 * i + 1], 'l', p->labels.living[i]);
        keys[2 * i] = names[2 * i];
        keys[2 * i + 1] = names[2 * i + 1];
    }
    if (count) {
        int error =
            ng_kv_get_many(p->kv, keys, 2 * count, ng_publisher_in(CALL_NS), sort_dump, &dumps);
        if (error)
            return ng_publisher_failed(p, error);
        memcpy(p->labels.living, dumps.kept, dumps.count * sizeof(*p->labels.living));
        p->labels.living_count = dumps.count;
    }
    ask->count = p->labels.living_count;
    return 0;
}

/* A process with a better cause retries while those without one are still held back. */
_Static_assert(IDLE_MS *NG_MS > NG_CLAIM_PAUSE_MAX_NS,
               "a better cause may have to wait for its turn among all");

/* The key contains the label: other incarnations examine themselves. */
static void examine_key(uint64_t label, enum ng_incident_level level, char ret_key[KEY_BYTES])
{
    snprintf(ret_key, KEY_BYTES, "examine/%d/%016" PRIx64, (int)level, label);
}

/* No process examines the job, but one has just found nothing: is our cause a better one? 0: it is
 * our turn; -EEXIST; -ENOENT: the pause is over by now; or -errno. */
static int pass_idle(struct ng_publisher *p, const char *key, enum ng_claim_cause cause)
{
    struct ng_kv_bytes value;
    char idle;

    int error = ng_kv_get(p->kv, key, ng_publisher_in(CALL_NS), &value);
    if (error)
        return error;
    if (value.bytes != sizeof(idle))
        return -EEXIST;
    memcpy(&idle, value.data, sizeof(idle));
    if (idle - '0' >= (int)cause)
        return -EEXIST;
    struct ng_kv_bytes expected = {.data = &idle, .bytes = sizeof(idle)};
    return ng_kv_compare_and_set(p->kv, key, &expected, "", 0, EXAMINE_MS, ng_publisher_in(CALL_NS),
                                 NULL);
}

int ng_publisher_begin(struct ng_publisher *p, struct ng_ask *ask)
{
    enum ng_incident_level level = ask->incident.level;
    char key[KEY_BYTES];

    /* The key must have our current label, like the processes that are examined. */
    int error = ng_publisher_label_groups(p);
    if (error)
        return error;
    error = -ENOENT;
    examine_key(p->labels.root, level, key);
    for (int tries = 0; error == -ENOENT && tries < 2; tries++) {
        error = ng_kv_put_if_absent(p->kv, key, "", 0, EXAMINE_MS, ng_publisher_in(CALL_NS));
        if (error == -EEXIST && ask->cause > NG_CAUSE_END)
            error = pass_idle(p, key, ask->cause);
    }
    if (error == -EEXIST || error == -ENOENT)
        return -EBUSY;
    if (!error) {
        p->looks.causes[level] = ask->cause;
        p->looks.labels[level] = p->labels.root;
    }
    return ng_publisher_failed(p, error);
}

int ng_publisher_finish(struct ng_publisher *p, struct ng_ask *ask)
{
    enum ng_incident_level level = ask->incident.level;
    /* A search for a cause of one's own is no reason to hold back others, which may find theirs. */
    char key[KEY_BYTES],
        idle = p->looks.causes[level] == NG_CAUSE_END ? '0' + NG_CAUSE_END : '0' + NG_CAUSE_LATE;

    examine_key(p->looks.labels[level], level, key); /* whatever our label is by now */
    int error = ask->in_vain && level != NG_INCIDENT_TIMEOUT
                    ? ng_kv_set(p->kv, key, &idle, sizeof(idle), IDLE_MS, ng_publisher_in(CALL_NS))
                    : ng_kv_remove(p->kv, key, ng_publisher_in(CALL_NS));

    return ng_publisher_failed(p, error);
}

int ng_publisher_next_incident(struct ng_publisher *p, uint64_t epoch,
                               struct ng_incident *ret_incident)
{
    NG_HOLD(&p->lock);

    uint64_t newest = p->incidents.newest, at = newest > INCIDENTS ? newest - INCIDENTS + 1 : 1;
    if (epoch < newest && epoch >= at)
        at = epoch + 1;
    /* No epoch gets near the type's maximum. */
    for (; epoch < newest && at <= newest; at++)
        if (p->incidents.list[at % INCIDENTS].epoch == at) {
            *ret_incident = p->incidents.list[at % INCIDENTS];
            return 0;
        }
    return -ENOENT;
}

int ng_publisher_get_incident(struct ng_publisher *p, uint64_t epoch,
                              struct ng_incident *ret_incident)
{
    NG_HOLD(&p->lock);

    const struct ng_incident *place = &p->incidents.list[epoch % INCIDENTS];
    if (place->epoch != epoch)
        return -ENOENT;
    *ret_incident = *place;
    return 0;
}
