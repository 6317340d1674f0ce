/*
 * The local board: opening, waiting, observing, leaving.
 *
 * Entered by the incident thread only, and by tools; `abandon` by a forked child, where it must be
 * async-signal-safe. Must never wait for another process, whatever state that is in, nor call
 * malloc once it is open: the program may be stuck while holding its lock.
 */
#include "store/board/local.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "core/recorder/paths.h"
#include "core/util/clock.h"
#include "core/util/macros.h"
#include "core/view/grow_id.h"
#include "store/board/local_parts.h"

#define POLL_MS 100 /* if there is no inotify */

/* ---- Waiting ---- */

/* First use, on the incident thread: by then our own box has its name. */
static void get_ready(struct ng_local *local)
{
    local->ready = true;
    local->folder_fd = ng_descriptor_keep(open(local->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    local->inotify = ng_descriptor_keep(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
    if (local->inotify.fd >= 0 &&
        inotify_add_watch(local->inotify.fd, local->folder, IN_CREATE | IN_MOVED_TO) < 0)
        ng_descriptor_close(&local->inotify);
    ng_local_scan(local);
    ng_local_sweep(local);
}

/* Can this process still read the state of others? Without a descriptor to try it, this is not
 * known. */
static void look_whether_cut_off(struct ng_local *local)
{
    int64_t now = ng_clock_mono_ns();

    if (now - local->tried_mono_ns < NG_S)
        return;
    local->tried_mono_ns = now;
    int fd = open(local->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0)
        close(fd);
    if (fd >= 0 || errno == EACCES || errno == EPERM || errno == ENOENT)
        atomic_store(&local->own_box->header->cut_off, fd < 0);
}

static void note_given_up(struct ng_local *local, const struct ng_box_header *header)
{
    uint32_t policy = atomic_load(&header->ending_policy);
    int64_t since = atomic_load(&header->ending_mono_ns);

    if (!policy || since < local->joined_mono_ns)
        return;
    local->given_up = policy;
    local->given_up_mono_ns = since;
}

static uint32_t local_given_up(struct ng_board *board, int64_t *ret_since_mono_ns)
{
    const struct ng_local *local = (struct ng_local *)board;

    *ret_since_mono_ns = local->given_up_mono_ns;
    return local->given_up;
}

static unsigned local_wait(struct ng_board *board, const struct ng_descriptor *kick, int timeout_ms)
{
    struct ng_local *local = (struct ng_local *)board;
    char events[4096];
    uint64_t count;
    unsigned happened = 0;
    uint32_t used = 0;

    if (!local->ready)
        get_ready(local);
    look_whether_cut_off(local);
    if (local->poll_room < local->peer_count + 2) {
        uint32_t room = 2 * local->peer_count + 18;
        struct pollfd *bigger = ng_arena_alloc(&local->arena, room * sizeof(*bigger));
        if (bigger) {
            local->polls = bigger;
            local->poll_room = room;
        }
    }
    bool deaf = !ng_descriptor_ours(&local->inotify), blind = deaf;
    if (local->poll_room > used)
        local->polls[used++] =
            (struct pollfd){.fd = ng_descriptor_ours(kick) ? kick->fd : -1, .events = POLLIN};
    if (local->poll_room > used)
        local->polls[used++] =
            (struct pollfd){.fd = deaf ? -1 : local->inotify.fd, .events = POLLIN};
    for (uint32_t i = 0; i < local->peer_count && local->poll_room > used; i++) {
        const struct ng_peer *peer = &local->peers[i];
        /* A process that has left is no longer waited for: its end would stay readable for ever. */
        if (peer->gone || peer->counted || peer->self)
            continue;
        if (peer->pid_fd.fd >= 0)
            local->polls[used++] = (struct pollfd){.fd = peer->pid_fd.fd, .events = POLLIN};
        blind |= peer->pid_fd.fd < 0;
    }
    if (blind && timeout_ms > POLL_MS)
        timeout_ms = POLL_MS;
    if (poll(local->polls, used, timeout_ms) < 0) {
        /* The descriptor limit is below the number of ours: then poll at a low rate. */
        ng_clock_sleep(POLL_MS * NG_MS);
        for (uint32_t i = 0; i < used; i++)
            local->polls[i].revents = 0;
        blind = true;
    }
    if (used > 0 && (local->polls[0].revents & POLLIN) && read(kick->fd, &count, sizeof(count)) > 0)
        happened |= NG_BOARD_KICK;
    if (blind || (used > 1 && (local->polls[1].revents & POLLIN))) {
        while (!deaf && read(local->inotify.fd, events, sizeof(events)) > 0)
            ;
        ng_local_scan(local);
        happened |= NG_BOARD_INCIDENT;
    }
    ng_local_tell_runs(local);
    NG_EACH (peer, local->peers, local->peer_count) {
        if (peer->counted || peer->self)
            continue;
        ng_local_refresh_peer(peer);
        if ((peer->gone || atomic_load(&peer->box.header->life) == NG_BOX_EXITED) &&
            ng_local_is_ours(local, peer)) {
            peer->counted = true;
            local->ended++;
            note_given_up(local, peer->box.header);
            happened |= NG_BOARD_DEATH;
        }
    }
    return happened;
}

static uint32_t local_ended(struct ng_board *board)
{
    return ((struct ng_local *)board)->ended;
}

/* ---- Observing ---- */

static int local_view(struct ng_board *board, struct ng_view *view)
{
    struct ng_local *local = (struct ng_local *)board;
    int error = 0;

    ng_local_scan(local);
    int64_t now = ng_clock_mono_ns();
    for (uint32_t i = 0; i < local->peer_count && !error; i++)
        if (ng_local_is_ours(local, &local->peers[i]))
            error = ng_local_add_to_view(&local->peers[i], now, view);
    if (!error)
        ng_view_seal(view);
    return error;
}

/* Of other runs too: the search is by ids of groups, and a group that was created a moment ago
 * counts. */
static void local_each(struct ng_board *board,
                       void (*visit)(void *context, const struct ng_box *box), void *context)
{
    struct ng_local *local = (struct ng_local *)board;

    for (uint32_t i = 0; i < local->peer_count; i++)
        if (!local->peers[i].self && ng_local_takes_part(&local->peers[i])) {
            ng_box_read(&local->peers[i].box, NG_BOX_GROUPS);
            visit(context, &local->peers[i].box);
        }
}

static int local_signal(struct ng_board *board, const struct ng_box *box, int signal_number)
{
    struct ng_local *local = (struct ng_local *)board;

    for (uint32_t i = 0; i < local->peer_count; i++)
        if (&local->peers[i].box == box)
            return local->self != UINT32_MAX && ng_local_is_ours(local, &local->peers[i])
                       ? ng_local_signal_peer(&local->peers[i], signal_number)
                       : -EPERM;
    return -ESRCH;
}

static int local_begin(struct ng_board *board, enum ng_incident_level level,
                       enum ng_claim_cause cause)
{
    (void)board; /* black boxes are local: every process may read them */
    return 0;
}

static void local_finish(struct ng_board *board, enum ng_incident_level level, bool in_vain)
{
}

static int local_read_verdict(struct ng_board *board, const struct ng_incident *incident,
                              struct ng_documents *ret_documents)
{
    return -ENOENT;
}

static int local_grown(struct ng_board *board, uint64_t joined_id, uint64_t *ret_id)
{
    struct ng_local *local = (struct ng_local *)board;
    uint64_t id = 0;

    for (uint32_t i = 0; i < local->peer_count && !id; i++)
        if (!local->peers[i].self) {
            ng_box_read(&local->peers[i].box, NG_BOX_GROUPS);
            id = ng_grow_id_find(&local->peers[i].box, joined_id);
        }
    if (!id)
        return -ENOENT;
    *ret_id = id;
    return 0;
}

static void local_unite(struct ng_board *board, uint64_t group_id, const uint64_t *other_ids,
                        uint32_t count)
{
    (void)board; /* processes whose groups differ were found to be one run by other means */
}

static int local_apart(struct ng_board *board, char ret_name[NG_BOARD_RUN_NAME_BYTES])
{
    const struct ng_local *local = (const struct ng_local *)board;
    uint64_t folder = local->own_box->header->evidence_folder;
    bool alone = local->self == UINT32_MAX;

    for (uint32_t i = 0; i < local->peer_count && !alone; i++)
        if (local->peers[i].met && !ng_local_is_ours(local, &local->peers[i]) &&
            local->peers[i].box.header->evidence_folder == folder) {
            struct ng_peers peers = {.list = local->peers, .count = local->peer_count};
            ng_local_name_run(&peers, local->peers[local->self].run, ret_name);
            return 0;
        }
    return -ENOENT;
}

/* ---- Leaving ---- */

static void local_leave(struct ng_board *board)
{
    struct ng_local *local = (struct ng_local *)board;

    ng_local_scan(local);
    for (uint32_t i = 0; i < local->peer_count; i++)
        if (!local->peers[i].self && ng_local_takes_part(&local->peers[i]))
            return;
    /* `ncclguard run`, or a later job, removes it. */
    if (ng_local_has_evidence(local))
        return;
    if (ng_descriptor_ours(&local->folder_fd))
        ng_paths_remove_open_board(local->folder_fd.fd, local->folder);
    else
        ng_paths_remove_board(local->folder);
}

static void local_abandon(struct ng_board *board)
{
    struct ng_local *local = (struct ng_local *)board;

    ng_descriptor_close(&local->inotify);
    ng_descriptor_close(&local->folder_fd);
    for (uint32_t i = 0; i < local->peer_count; i++) {
        ng_descriptor_close(&local->peers[i].pid_fd);
        ng_descriptor_close(&local->peers[i].box.file);
    }
}

/* ---- The board ---- */

static const struct ng_board_ops local_ops = {
    .wait = local_wait,
    .ended = local_ended,
    .begin = local_begin,
    .finish = local_finish,
    .view = local_view,
    .view_host = local_view,
    .each = local_each,
    .signal = local_signal,
    .given_up = local_given_up,
    .unite = local_unite,
    .apart = local_apart,
    .claim = ng_local_claim,
    .publish = ng_local_publish,
    .next = ng_local_next,
    .get = ng_local_get,
    .claimant_alive = ng_local_claimant_alive,
    .dumped = ng_local_dumped,
    .dumps_missing = ng_local_dumps_missing,
    .read_verdict = local_read_verdict,
    .grown = local_grown,
    .put = ng_local_put,
    .fetch = ng_local_fetch,
    .have = ng_local_have,
    .forget = ng_local_forget,
    .leave = local_leave,
    .abandon = local_abandon,
};

int ng_local_open(const char *folder, const struct ng_box *own_box, struct ng_board **ret_board)
{
    struct ng_local *local = calloc(1, sizeof(*local));

    if (!local)
        return -ENOMEM;
    if (snprintf(local->folder, sizeof(local->folder), "%s", folder) >=
        (int)sizeof(local->folder)) {
        free(local);
        return -ENAMETOOLONG;
    }
    local->board.ops = &local_ops;
    local->own_box = own_box;
    local->self = UINT32_MAX;
    local->inotify = NG_DESCRIPTOR_NONE;
    local->folder_fd = NG_DESCRIPTOR_NONE;
    local->joined_mono_ns = ng_clock_mono_ns();
    ng_local_identify(local);
    *ret_board = &local->board;
    return 0;
}

void ng_local_each(struct ng_board *board, ng_local_each_fn *each, void *context)
{
    struct ng_local *local = (struct ng_local *)board;

    NG_EACH (peer, local->peers, local->peer_count) {
        struct ng_local_peer seen = {.box = &peer->box,
                                     .name = peer->name,
                                     .life = ng_local_life_of(peer),
                                     .self = peer->self,
                                     .met = peer->met,
                                     .end = peer->end,
                                     .execed = peer->execed};
        if (ng_local_is_ours(local, peer))
            each(context, &seen);
    }
}
