/*
 * The board over several hosts.
 *
 * Entered by the incident thread only. Must never wait for the store beyond the bounds below, nor
 * call malloc: the program may be stuck while holding its lock.
 */
#include "store/board/board_multihost.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/nccl/group_id.h"
#include "core/report/report.h"
#include "core/util/clock.h"
#include "core/util/log.h"
#include "core/verdict/verdict.h"
#include "store/board/local.h"
#include "store/publish/peer_progress.h"
#include "store/wire/command_record.h"
#include "store/wire/progress.h"

/* How long the incident thread waits for an answer. */
#define ASK_NS       (1500 * NG_MS)
#define ASK_VIEW_NS  (5 * NG_S)
#define ASK_ALIVE_NS (500 * NG_MS)
#define ASK_LEAVE_NS (300 * NG_MS)
#define ASK_ENTRY_NS (500 * NG_MS)
#define CHECK_NS     NG_S /* interval at which neighbours are checked */
#define NEIGHBOUR_SILENT_NS                                                                        \
    (3 * NG_S) /* a live neighbour that published nothing for this long, or longer                 \
                  if signs of life are rarer */
#define NEIGHBOURS  64u
#define CLAIMANT_NS (500 * NG_MS) /* how long the state of a claimant is cached */

struct shared {
    struct ng_board board;
    struct ng_board *host;
    struct ng_publisher *publisher;
    int64_t ttl_ns;
    const struct ng_box *own_box;
    uint64_t host_id;
    bool started;
    int64_t checked_ns;
    uint64_t buried[NEIGHBOURS]; /* uids of dead processes that are reported */
    uint32_t buried_count;
    uint64_t told_here;       /* epoch of this host for a verdict that could not reach the store */
    struct ng_incident asked; /* the claimant that was last checked */
    int64_t asked_ns;
    bool asked_lives;
};

static int64_t in(int64_t ns)
{
    return ng_clock_mono_ns() + ns;
}

static uint64_t host_of(const struct ng_box_header *header)
{
    return ng_hash(header->pid_namespace, header->boot_id,
                   strnlen(header->boot_id, sizeof(header->boot_id)));
}

/* ---- Neighbours that cannot report themselves ---- */

static bool is_buried(const struct shared *shared, uint64_t uid)
{
    for (uint32_t i = 0; i < shared->buried_count && i < NEIGHBOURS; i++)
        if (shared->buried[i] == uid)
            return true;
    return false;
}

static bool has_group(const struct ng_box *box, uint64_t id)
{
    uint32_t used = NG_LOAD(box->header->group_used);

    for (uint32_t i = 0; i < used && i < box->group_capacity; i++)
        if (NG_LOAD(box->groups[i].id) == id)
            return true;
    return false;
}

/* Has it been in a group in which we are, too? */
static bool shares_group(const struct ng_box *own, const struct ng_box *theirs)
{
    uint32_t used = NG_LOAD(own->header->group_used);

    ng_box_read(theirs, NG_BOX_GROUPS);
    for (uint32_t i = 0; i < used && i < own->group_capacity; i++) {
        uint64_t id = NG_LOAD(own->groups[i].id);
        if (id && has_group(theirs, id))
            return true;
    }
    return false;
}

/* Does it belong to this run, or to an earlier one that used the same folder? A process that died
 * early may not have given a sign of life since we began. */
static bool is_of_this_run(const struct shared *shared, const struct ng_local_peer *peer)
{
    return peer->met || shares_group(shared->own_box, peer->box) ||
           NG_LOAD(peer->box->header->heartbeat_mono_ns) >= shared->own_box->header->origin_mono_ns;
}

/* False: not now. */
static bool speak_for(struct shared *shared, const struct ng_local_peer *peer)
{
    struct ng_progress_limits limits = {.records = NG_PROGRESS_RECORDS_PEACE,
                                        .label = ng_publisher_get_label(shared->publisher),
                                        .written_unix_ns = ng_clock_unix_ns(),
                                        .reason = NG_PROGRESS_BY_NEIGHBOUR,
                                        .launch_run = peer->box->header->launch_run};
    struct ng_view view;
    const void *data;
    size_t bytes;
    bool ended = peer->life != NG_LIFE_RUNNING && peer->life != NG_LIFE_STOPPED, told = false;

    ng_view_init(&view);
    if (ng_view_add_box(&view, peer->box, peer->life, ng_clock_mono_ns(), peer->name) == 0) {
        if (peer->execed)
            view.processes[0].exit_status = NG_EXIT_STATUS_EXEC;
        else if (view.processes[0].life == NG_LIFE_DEAD)
            view.processes[0].exit_status = peer->end;
        if (ng_progress_encode(&view, 0, &limits, &view.arena, &data, &bytes) == 0)
            told = ng_publisher_speak_for(shared->publisher, NG_LOAD(peer->box->header->board_slot),
                                          ended, peer->life == NG_LIFE_STOPPED, &view.arena, data,
                                          bytes);
    }
    ng_view_fini(&view);
    return told;
}

static void check_neighbour(void *context, const struct ng_local_peer *peer)
{
    struct shared *shared = context;
    struct ng_box_header *header = peer->box->header;
    uint64_t uid = ng_box_uid(header);
    uint32_t told = atomic_load(&header->life);
    int64_t published = NG_LOAD(header->published_mono_ns);
    int64_t silent = ng_clock_mono_ns() - (published ? published : header->origin_mono_ns);

    if (peer->self || is_buried(shared, uid))
        return;
    /* A process that has no slot on the board yet, or does not know that it has, is reported by us,
     * except for those left over from an earlier run. */
    if (!NG_LOAD(header->board_slot) && !is_of_this_run(shared, peer))
        return;
    if (peer->life == NG_LIFE_RUNNING &&
        (silent < NEIGHBOUR_SILENT_NS || silent < shared->ttl_ns / 3 * 2))
        return;
    /* A process that leaves normally signs off on the board itself, unless it dies first or had no
     * slot there yet. */
    if (told == NG_BOX_EXITED && peer->life != NG_LIFE_DEAD && NG_LOAD(header->board_slot))
        return;
    if (speak_for(shared, peer) && peer->life != NG_LIFE_RUNNING && peer->life != NG_LIFE_STOPPED)
        shared->buried[shared->buried_count++ % NEIGHBOURS] = uid;
}

static void check_neighbours(struct shared *shared, bool at_once)
{
    int64_t now = ng_clock_mono_ns();

    /* What we report belongs to our incarnation: until that is known, no process would attribute it
     * to its own. */
    if (!ng_publisher_is_up(shared->publisher) || !ng_publisher_get_label(shared->publisher) ||
        (!at_once && now - shared->checked_ns < CHECK_NS))
        return;
    shared->checked_ns = now;
    ng_local_each(shared->host, check_neighbour, shared);
}

/* ---- Waiting ---- */

static unsigned shared_wait(struct ng_board *board, const struct ng_descriptor *kick,
                            int timeout_ms)
{
    struct shared *shared = (struct shared *)board;

    if (!shared->started) {
        shared->started = true;
        shared->host_id = host_of(shared->own_box->header);
        int error = ng_publisher_start(shared->publisher);
        if (error)
            ng_log(NG_LOG_WARN,
                   "cannot start the store's thread: %s; nothing is known of other hosts",
                   strerror(-error));
    }
    unsigned happened = ng_publisher_news(shared->publisher);
    if (happened)
        timeout_ms = 0;
    happened |= shared->host->ops->wait(shared->host, kick, timeout_ms);
    happened |= ng_publisher_news(shared->publisher);
    check_neighbours(shared, happened & NG_BOARD_DEATH);
    return happened;
}

static uint32_t shared_ended(struct ng_board *board)
{
    struct shared *shared = (struct shared *)board;

    return shared->host->ops->ended(shared->host) + ng_publisher_ended(shared->publisher);
}

/* ---- Observing ---- */

static int ask(struct shared *shared, enum ng_ask_kind kind, struct ng_ask *ret_ask, int64_t ns)
{
    ret_ask->kind = kind;
    return ng_publisher_ask(shared->publisher, ret_ask, in(ns));
}

/* Whatever kept the store from answering: it may be queried again. */
static int silent(int error)
{
    switch (error) {
    case 0:
    case -ENOENT:
    case -EEXIST:
    case -ENOSPC:
    case -ENOMEM:
    case -EPROTO:
    case -ENOTUNIQ:
    case -EXDEV:
        return error;
    default:
        return -EIO;
    }
}

static int shared_begin(struct ng_board *board, enum ng_incident_level level,
                        enum ng_claim_cause cause)
{
    struct ng_ask question = {.incident.level = level, .cause = cause};

    /* The first rank to examine the job, perhaps on another host, learns only from this host that a
     * rank here is frozen. A deadline passes on all ranks at about the same time, and this thread
     * may be busy from now on. */
    check_neighbours((struct shared *)board, true);
    return ask((struct shared *)board, NG_ASK_BEGIN, &question, ASK_NS) == -EBUSY ? -EBUSY : 0;
}

static void shared_finish(struct ng_board *board, enum ng_incident_level level, bool in_vain)
{
    struct ng_ask question = {.incident.level = level, .in_vain = in_vain};

    ask((struct shared *)board, NG_ASK_FINISH, &question, ASK_NS);
}

static int shared_view(struct ng_board *board, struct ng_view *view)
{
    struct shared *shared = (struct shared *)board;
    struct ng_ask question = {0};

    /* Query the store first, since it takes longer: the black boxes are then read last and are the
     * newest. */
    int missing = ask(shared, NG_ASK_VIEW, &question, ASK_VIEW_NS);
    int error = shared->host->ops->view_host(shared->host, view);
    if (!error && !missing) {
        error = ng_peer_progress_add(question.blobs, question.blob_count, question.root,
                                     shared->ttl_ns, view);
        if (!error)
            ng_view_seal(view);
    }
    if (missing)
        ng_view_note(view, "the store cannot be reached: nothing is known of other hosts");
    ng_arena_reset(&question.arena);
    return error;
}

static void shared_unite(struct ng_board *board, uint64_t group_id, const uint64_t *other_ids,
                         uint32_t count)
{
    struct ng_ask question = {0};
    uint64_t *ids = ng_arena_alloc(&question.arena, (count + 1) * sizeof(*ids));

    if (ids) {
        ids[0] = group_id;
        memcpy(ids + 1, other_ids, count * sizeof(*ids));
        question.data = ids;
        question.data_bytes = (count + 1) * sizeof(*ids);
        ask((struct shared *)board, NG_ASK_UNITE, &question, ASK_VIEW_NS);
    }
    ng_arena_reset(&question.arena);
}

/* ---- Incidents ---- */

static void sign(struct shared *shared, struct ng_incident *incident)
{
    incident->claimant_pid = shared->own_box->header->pid;
    incident->claimant_ticks = shared->own_box->header->start_ticks;
    incident->claimant_host = shared->host_id;
}

static int shared_claim(struct ng_board *board, const struct ng_incident *wanted,
                        struct ng_incident *ret_incident)
{
    struct shared *shared = (struct shared *)board;
    struct ng_ask question = {.incident = *wanted};

    /* What is withdrawn is an epoch of its own source. */
    if (wanted->source != NG_SOURCE_JOB)
        question.incident.supersedes = 0;
    sign(shared, &question.incident);
    int error = ask(shared, NG_ASK_CLAIM, &question, ASK_NS);
    ng_arena_reset(&question.arena);
    if (!error || error == -EEXIST) {
        *ret_incident = question.incident;
        return error;
    }
    struct ng_incident here = *wanted;
    if (wanted->source != NG_SOURCE_HOST)
        here.supersedes = 0;
    sign(shared, &here);
    return shared->host->ops->claim(shared->host, &here, ret_incident);
}

/* The output of `write`, as text in `arena`; NULL none. */
static const char *document(const struct ng_verdict *verdict, bool json, struct ng_arena *arena,
                            size_t *ret_bytes)
{
    struct stat status;
    char *text = NULL;
    int fd = memfd_create("ncclguard-verdict", MFD_CLOEXEC);

    if (fd < 0)
        return NULL;
    int error = json ? ng_report_write_json(verdict, fd) : ng_report_write_text(verdict, NULL, fd);
    if (!error && fstat(fd, &status) == 0)
        text = ng_arena_alloc(arena, (size_t)status.st_size + 1);
    if (text && pread(fd, text, (size_t)status.st_size, 0) != (ssize_t)status.st_size)
        text = NULL;
    if (text)
        *ret_bytes = (size_t)status.st_size;
    close(fd);
    return text;
}

static int shared_publish(struct ng_board *board, const struct ng_incident *incident,
                          const struct ng_verdict *verdict)
{
    struct shared *shared = (struct shared *)board;
    struct ng_ask question = {.incident = *incident};
    struct ng_incident here;

    if (incident->source == NG_SOURCE_HOST)
        return shared->host->ops->publish(shared->host, incident, verdict);
    struct ng_documents *documents = &question.documents;
    documents->json = document(verdict, true, &question.arena, &documents->json_bytes);
    documents->text = document(verdict, false, &question.arena, &documents->text_bytes);
    if (!documents->text)
        documents->json = NULL;
    int error = ask(shared, NG_ASK_JUDGE, &question, ASK_NS);
    ng_arena_reset(&question.arena);
    if (!error || error == -EEXIST)
        return error;
    /* The store was lost meanwhile: at least this host receives it. */
    here = *incident;
    here.supersedes = UINT64_MAX;
    if (shared->host->ops->claim(shared->host, &here, &here) == 0) {
        shared->told_here = here.epoch;
        snprintf(here.line, sizeof(here.line), "%s", incident->line);
        here.state = NG_INCIDENT_JUDGED;
        shared->host->ops->publish(shared->host, &here, verdict);
    }
    return error;
}

static int shared_next(struct ng_board *board, enum ng_incident_source source, uint64_t epoch,
                       struct ng_news *ret_news)
{
    struct shared *shared = (struct shared *)board;
    struct ng_incident record;
    int error;

    if (source != NG_SOURCE_HOST) {
        error = ng_publisher_next_incident(shared->publisher, epoch, &record);
        if (!error)
            ng_record_news(&record, ret_news);
        return error;
    }
    error = shared->host->ops->next(shared->host, source, epoch, ret_news);
    /* We have handled it under another number. */
    if (!error && ret_news->epoch == shared->told_here)
        error = shared->host->ops->next(shared->host, source, shared->told_here, ret_news);
    return error;
}

static int shared_get(struct ng_board *board, struct ng_incident *incident)
{
    struct shared *shared = (struct shared *)board;

    return incident->source == NG_SOURCE_HOST
               ? shared->host->ops->get(shared->host, incident)
               : ng_publisher_get_incident(shared->publisher, incident->epoch, incident);
}

static bool shared_claimant_alive(struct ng_board *board, const struct ng_incident *incident)
{
    struct shared *shared = (struct shared *)board;
    struct ng_ask question = {.incident = *incident};

    bool here = incident->source == NG_SOURCE_HOST || incident->claimant_host == shared->host_id;
    bool lives = here && shared->host->ops->claimant_alive(shared->host, incident);
    if (lives || incident->source == NG_SOURCE_HOST)
        return lives;
    if (shared->asked.epoch != incident->epoch ||
        ng_clock_mono_ns() - shared->asked_ns > CLAIMANT_NS) {
        shared->asked = *incident;
        /* Without an answer, it may be alive: the wait for it is bounded. */
        shared->asked_lives = ask(shared, NG_ASK_ALIVE, &question, ASK_ALIVE_NS) != -ESRCH;
        shared->asked_ns = ng_clock_mono_ns();
    }
    return !here && shared->asked_lives;
}

static void shared_dumped(struct ng_board *board, const struct ng_incident *incident)
{
    struct shared *shared = (struct shared *)board;

    if (incident->source == NG_SOURCE_HOST)
        shared->host->ops->dumped(shared->host, incident);
    else
        ng_publisher_report_dump(shared->publisher, incident);
}

static uint32_t shared_dumps_missing(struct ng_board *board, const struct ng_incident *incident)
{
    struct shared *shared = (struct shared *)board;
    struct ng_ask question = {.incident = *incident};

    if (incident->source == NG_SOURCE_HOST)
        return shared->host->ops->dumps_missing(shared->host, incident);
    int error = ask(shared, NG_ASK_DUMPS, &question, ASK_NS);
    ng_arena_reset(&question.arena);
    return error ? 0 : question.count; /* the store is lost: no process to wait for */
}

static int shared_read_verdict(struct ng_board *board, const struct ng_incident *incident,
                               struct ng_documents *ret_documents)
{
    struct shared *shared = (struct shared *)board;
    struct ng_ask question = {.incident = *incident};

    if (incident->source == NG_SOURCE_HOST || incident->claimant_host == shared->host_id)
        return -ENOENT;
    int error = ask(shared, NG_ASK_VERDICT, &question, ASK_NS);
    if (error)
        ng_arena_reset(&question.arena);
    else
        *ret_documents = question.documents;
    return error;
}

static int shared_grown(struct ng_board *board, uint64_t joined_id, uint64_t *ret_id)
{
    struct shared *shared = (struct shared *)board;

    if (shared->host->ops->grown(shared->host, joined_id, ret_id) == 0)
        return 0;
    return ng_publisher_find_grown(shared->publisher, joined_id, ret_id);
}

static int shared_agree(struct ng_board *board, bool changed)
{
    struct shared *shared = (struct shared *)board;

    if (changed)
        ng_publisher_wake(shared->publisher);
    return ng_publisher_is_away(shared->publisher) ? -EIO : 0;
}

/* ---- Entries ---- */

/* Of the entry `key`, or of those with this prefix. */
static int ask_entry(struct ng_board *board, enum ng_ask_kind kind, const char *key,
                     struct ng_ask *question)
{
    question->key = ng_arena_strdup(&question->arena, key);
    return question->key ? ask((struct shared *)board, kind, question, ASK_ENTRY_NS) : -ENOMEM;
}

static int shared_put(struct ng_board *board, const struct ng_board_entry *entry)
{
    struct ng_ask question = {.keep_ns = entry->keep_ns, .data_bytes = entry->bytes};
    void *data = ng_arena_alloc(&question.arena, entry->bytes + 1);
    int error = -ENOMEM;

    question.words = ng_arena_strdup(&question.arena, entry->words ? entry->words : "");
    if (data && question.words) {
        if (entry->bytes)
            memcpy(data, entry->data, entry->bytes);
        question.data = data;
        error = ask_entry(board, NG_ASK_PUT, entry->key, &question);
    }
    ng_arena_reset(&question.arena);
    return silent(error);
}

static int shared_fetch(struct ng_board *board, const char *key, void *ret_data, size_t *ret_bytes)
{
    struct ng_ask question = {0};

    int error = ask_entry(board, NG_ASK_FETCH, key, &question);
    if ((!error || error == -EXDEV) && question.data_bytes <= NG_BOARD_VALUE_MAX) {
        if (question.data_bytes)
            memcpy(ret_data, question.data, question.data_bytes);
        *ret_bytes = question.data_bytes;
    } else if (!error) {
        error = -EPROTO;
    }
    ng_arena_reset(&question.arena);
    return silent(error);
}

static int shared_have(struct ng_board *board, const char *prefix, uint32_t first, uint32_t count,
                       uint64_t *ret_there)
{
    struct ng_ask question = {.first = first, .count = count};

    int error = ask_entry(board, NG_ASK_HAVE, prefix, &question);
    if (!error)
        *ret_there = question.there;
    ng_arena_reset(&question.arena);
    return silent(error);
}

static void shared_forget(struct ng_board *board, const char *key)
{
    (void)board; /* it expires with its time to live */
}

/* ---- What the host's board does alone ---- */

#define PASSED_ON(result, name, parameters, ...)                                                   \
    static result shared_##name parameters                                                         \
    {                                                                                              \
        struct ng_board *host = ((struct shared *)board)->host;                                    \
        return host->ops->name(host, __VA_ARGS__);                                                 \
    }
PASSED_ON(int, view_host, (struct ng_board * board, struct ng_view *view), view)
PASSED_ON(void, each,
          (struct ng_board * board, void (*visit)(void *context, const struct ng_box *box),
           void *context),
          visit, context)
PASSED_ON(int, signal, (struct ng_board * board, const struct ng_box *box, int number), box, number)
PASSED_ON(uint32_t, given_up, (struct ng_board * board, int64_t *ret_since_mono_ns),
          ret_since_mono_ns)
PASSED_ON(int, apart, (struct ng_board * board, char ret_name[NG_BOARD_RUN_NAME_BYTES]), ret_name)

/* ---- Shutdown ---- */

static void shared_leave(struct ng_board *board)
{
    struct shared *shared = (struct shared *)board;
    struct ng_ask question = {0};

    /* A process that ends waits for half a second only, and a store may take most of it. */
    shared->host->ops->leave(shared->host);
    ask(shared, NG_ASK_LEAVE, &question, ASK_LEAVE_NS);
    ng_arena_reset(&question.arena);
}

static void shared_hurry(struct ng_board *board)
{
    ng_publisher_hurry(((struct shared *)board)->publisher);
}

static void shared_abandon(struct ng_board *board)
{
    struct shared *shared = (struct shared *)board;

    ng_publisher_abandon(shared->publisher);
    shared->host->ops->abandon(shared->host);
}

static const struct ng_board_ops shared_ops = {
    .wait = shared_wait,
    .ended = shared_ended,
    .begin = shared_begin,
    .finish = shared_finish,
    .view = shared_view,
    .view_host = shared_view_host,
    .each = shared_each,
    .signal = shared_signal,
    .given_up = shared_given_up,
    .unite = shared_unite,
    .apart = shared_apart,
    .claim = shared_claim,
    .publish = shared_publish,
    .next = shared_next,
    .get = shared_get,
    .claimant_alive = shared_claimant_alive,
    .dumped = shared_dumped,
    .dumps_missing = shared_dumps_missing,
    .read_verdict = shared_read_verdict,
    .grown = shared_grown,
    .agree = shared_agree,
    .put = shared_put,
    .fetch = shared_fetch,
    .have = shared_have,
    .forget = shared_forget,
    .leave = shared_leave,
    .hurry = shared_hurry,
    .abandon = shared_abandon,
};

int ng_board_multihost_open(struct ng_board *host, struct ng_kv *kv,
                            const struct ng_publisher_options *options, struct ng_board **ret_board)
{
    struct shared *shared = calloc(1, sizeof(*shared));

    if (!shared)
        return -ENOMEM;
    shared->board.ops = &shared_ops;
    shared->host = host;
    shared->ttl_ns = options->ttl_ns;
    shared->own_box = options->own_box;
    int error = ng_publisher_open(kv, options, &shared->publisher);
    if (error) {
        free(shared);
        return error;
    }
    *ret_board = &shared->board;
    return 0;
}
