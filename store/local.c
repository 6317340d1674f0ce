/*
 * The local board.
 *
 * Steps 8 to 10 on one host. Entered by the incident thread only, and by tools. Must never wait for
 * another process, whatever state that is in, nor trust what a file says without checking, nor call
 * malloc once it is open: the program may be stuck with its lock.
 */
#include "store/local.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/arena.h"
#include "core/box.h"
#include "core/clock.h"
#include "core/folder.h"
#include "core/grown.h"
#include "core/log.h"
#include "core/paths.h"
#include "core/proc.h"
#include "store/kv.h"

#define INCIDENT_MAGIC UINT64_C(0x32434e494743434e) /* "NCCGINC2" */
#define ENTRY_MAGIC    UINT64_C(0x31544e454743434e) /* "NCCGENT1" */
#define ENTRY_LINGER_NS (5 * NG_S) /* what a process has put counts so long after its end */
#define POLL_MS        100                          /* where there is no inotify */
#define FROZEN_NS      (5 * NG_S) /* a guard without a heartbeat for this long does not run */
#define TRACED_NS      (3 * NG_S) /* and if it is traced, for this long */
#define SILENT_NS      (2 * NG_S) /* after this it may be that the process runs another program */
#define ASK_AGAIN_NS   NG_S
#define STALE_NS       (60 * NG_S) /* ended that long before we came: of an earlier run */
#define ABANDONED_S    3600        /* other jobs' folders that nobody lives in go after this */

/* Another process of the job, or this one. */
struct peer {
    char name[64];
    struct ng_box box;
    int pid;
    uint64_t start_ticks;
    struct ng_descriptor
        pid_fd; /* readable once it is gone; none: another namespace, or too old a kernel */
    struct ng_descriptor lock_fd; /* to ask for its lock; none: not needed */
    bool self;
    bool met;            /* it lived when we first saw it */
    bool same_namespace; /* of process numbers, as ours */
    bool gone;           /* dead for sure, or another program by now */
    bool execed;         /* the latter */
    bool counted;        /* in `ended` */
    int end;             /* how it ended: ng_proc_end; 0 not known */
    int64_t gone_mono_ns;
    int64_t asked_mono_ns; /* when it was last looked at whether it is another program */
};

struct incident_file {
    uint64_t magic;
    struct ng_incident incident;
};

struct entry_file {
    uint64_t magic;
    uint64_t uid; /* of the process that put it */
    uint32_t bytes;
    uint32_t stays;        /* 1: beyond the life of that process, */
    int64_t until_mono_ns; /* until then */
    char data[NG_BOARD_VALUE_MAX];
};
#define ENTRY_HEAD_BYTES offsetof(struct entry_file, data)

struct local {
    struct ng_board board;
    char folder[PATH_MAX - 128]; /* leaves room for a file name */
    const struct ng_box *own_box;
    struct ng_descriptor inotify;
    struct ng_descriptor folder_fd;
    struct ng_arena arena; /* of the two lists */
    bool ready;            /* first use is over */
    struct peer *peers;
    uint32_t peer_count, peer_room;
    struct pollfd *polls;
    uint32_t poll_room;
    uint32_t ended;
    int64_t joined_mono_ns;
    char boot_id[40];
    uint64_t pid_namespace;
    uint32_t kept; /* entries that this process has put to stay as long as it */
};

/* ---- One process: is it there, does it run ---- */

static int open_pid(int pid, uint64_t start_ticks)
{
    uint64_t ticks;
    char state;
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);

    /* The number may belong to somebody else by now: only then look who it is, the descriptor holds
     * it fast. */
    int error = fd >= 0 ? ng_proc_stat(pid, &state, &ticks) : 0;
    if (fd >= 0 && (error == -ESRCH || (!error && ticks != start_ticks))) {
        close(fd);
        errno = ESRCH;
        return -1;
    }
    return fd;
}

static void mark_gone(struct peer *peer)
{
    if (peer->gone)
        return;
    peer->gone = true;
    peer->gone_mono_ns = ng_clock_mono_ns();
    if (peer->same_namespace)
        peer->end = ng_proc_end(peer->pid, peer->start_ticks,
                                ng_descriptor_ours(&peer->pid_fd) ? peer->pid_fd.fd : -1);
}

/* Map a box and find a way to watch its process. 0, -ESTALE: of another boot, or -errno of
 * ng_box_open. */
static int open_peer(const char *folder, const char *name, const char *boot_id,
                     uint64_t pid_namespace, struct peer *ret_peer)
{
    char path[PATH_MAX];
    struct peer peer = {.pid_fd = NG_DESCRIPTOR_NONE, .lock_fd = NG_DESCRIPTOR_NONE};

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    snprintf(peer.name, sizeof(peer.name), "%s", name);
    int error = ng_box_open(path, &peer.box);
    if (error)
        return error;
    peer.pid = peer.box.header->pid;
    peer.start_ticks = peer.box.header->start_ticks;
    if (strncmp(peer.box.header->boot_id, boot_id, sizeof(peer.box.header->boot_id)) != 0) {
        ng_box_close(&peer.box, NULL);
        return -ESTALE;
    }
    peer.same_namespace = peer.box.header->pid_namespace == pid_namespace;
    if (peer.same_namespace) {
        int fd = open_pid(peer.pid, peer.start_ticks);
        if (fd < 0 && errno == ESRCH)
            mark_gone(&peer);
        peer.pid_fd = ng_descriptor_keep(fd);
    }
    if (peer.pid_fd.fd < 0 && !peer.gone)
        peer.lock_fd = ng_descriptor_keep(open(path, O_RDONLY | O_CLOEXEC));
    *ret_peer = peer;
    return 0;
}

static void close_peer(struct peer *peer)
{
    ng_box_close(&peer->box, NULL);
    ng_descriptor_close(&peer->pid_fd);
    ng_descriptor_close(&peer->lock_fd);
}

/* As the kernel lists it, when its descriptor says that it may have. */
static bool has_ended(const struct peer *peer)
{
    uint64_t ticks;
    char state;

    /* That the question failed, for want of a descriptor perhaps, is no answer. */
    int error = ng_proc_stat(peer->pid, &state, &ticks);
    return error == -ESRCH ||
           (!error && (ticks != peer->start_ticks || state == 'Z' || state == 'X'));
}

/*
 * The process lives and says nothing: has it become another program? A box stays in the memory of
 * its program as long as that runs, and an exec leaves nothing there. No memory at all: it is on
 * its way out.
 */
static bool is_another_program(struct peer *peer)
{
    int64_t now = ng_clock_mono_ns();
    char path[sizeof(peer->name) + 1];
    bool maps;

    if (!peer->same_namespace || now - peer->asked_mono_ns < ASK_AGAIN_NS ||
        now - atomic_load(&peer->box.header->heartbeat_mono_ns) < SILENT_NS ||
        atomic_load(&peer->box.header->life) != NG_BOX_RUNNING)
        return false;
    peer->asked_mono_ns = now;
    snprintf(path, sizeof(path), "/%s", peer->name);
    return ng_proc_maps(peer->pid, peer->box.inode, path, &maps) == 0 && !maps && !has_ended(peer);
}

static void refresh_peer(struct peer *peer)
{
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};

    if (peer->gone || peer->self)
        return;
    if (is_another_program(peer)) {
        mark_gone(peer);
        peer->execed = true;
        return;
    }
    if (peer->pid_fd.fd >= 0) {
        struct pollfd ended = {.fd = peer->pid_fd.fd, .events = POLLIN};
        /* What the program put in its place may never have anything to read. */
        if (ng_descriptor_ours(&peer->pid_fd) && poll(&ended, 1, 0) <= 0)
            return;
        /* Something is there to read: the end of the process, unless the program closed our
         * descriptor and the number means something else by now. */
        if (has_ended(peer))
            mark_gone(peer);
        else
            peer->pid_fd = ng_descriptor_keep(open_pid(peer->pid, peer->start_ticks));
    } else if (ng_descriptor_ours(&peer->lock_fd) &&
               fcntl(peer->lock_fd.fd, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK) {
        mark_gone(peer);
    } else if (peer->same_namespace && has_ended(peer)) {
        mark_gone(peer);
    }
}

static enum ng_life life_of(struct peer *peer)
{
    uint64_t ticks;
    char state;

    if (peer->self)
        return NG_LIFE_RUNNING;
    refresh_peer(peer);
    if (peer->gone)
        return peer->execed ? NG_LIFE_EXITED : NG_LIFE_DEAD; /* unless the box says how it left */
    int64_t before = ng_clock_mono_ns();
    if (peer->pid_fd.fd >= 0 && ng_proc_stat(peer->pid, &state, &ticks) == 0 &&
        ticks == peer->start_ticks && ng_box_shows_stopped(peer->box.header, state, before))
        return NG_LIFE_STOPPED;
    int64_t silent = ng_clock_mono_ns() - atomic_load(&peer->box.header->heartbeat_mono_ns);
    return silent > FROZEN_NS ? NG_LIFE_STOPPED : NG_LIFE_RUNNING;
}

/* Does it still take part: alive, and neither leaving nor ended by its guard? */
static bool takes_part(struct peer *peer)
{
    refresh_peer(peer);
    return !peer->gone && atomic_load(&peer->box.header->life) == NG_BOX_RUNNING;
}

static int add_to_view(struct peer *peer, struct ng_view *view)
{
    int error = ng_view_add_box(view, &peer->box, life_of(peer), ng_clock_mono_ns(), peer->name);

    if (!error) {
        view->processes[view->process_count - 1].self = peer->self;
        if (peer->execed)
            view->processes[view->process_count - 1].exit_status = NG_EXIT_STATUS_EXEC;
    }
    if (!error && peer->gone) {
        struct ng_view_process *process = &view->processes[view->process_count - 1];
        if (process->life == NG_LIFE_DEAD)
            process->exit_status = peer->end;
        /* The kernel told us when, which is nearer than the last heartbeat. */
        if (process->life == NG_LIFE_DEAD &&
            ng_clock_mono_ns() - peer->gone_mono_ns < process->life_age_ns)
            process->life_age_ns = ng_clock_mono_ns() - peer->gone_mono_ns;
    }
    return error;
}

/* ---- The folder ---- */

static bool is_box_name(const char *name)
{
    return strncmp(name, NG_BOX_PREFIX, strlen(NG_BOX_PREFIX)) == 0;
}

static bool known(const struct local *local, const char *name)
{
    for (uint32_t i = 0; i < local->peer_count; i++)
        if (strcmp(local->peers[i].name, name) == 0)
            return true;
    return false;
}

static bool ended_long_ago(const struct peer *peer)
{
    const struct ng_box_header *header = peer->box.header;
    int64_t last = atomic_load(&header->heartbeat_mono_ns);

    return peer->gone && ng_clock_mono_ns() - last > STALE_NS;
}

static void add_peer(struct local *local, const char *name)
{
    struct peer peer;
    char path[PATH_MAX];

    int error = open_peer(local->folder, name, local->boot_id, local->pid_namespace, &peer);
    if (error == -ESTALE || (!error && ended_long_ago(&peer))) {
        snprintf(path, sizeof(path), "%s/%s", local->folder, name);
        unlink(path);
        if (!error)
            close_peer(&peer);
        return;
    }
    if (error) {
        ng_log(NG_LOG_DEBUG, "%s/%s is not a usable black box: %s", local->folder, name,
               strerror(-error));
        return;
    }
    if (local->peer_count == local->peer_room) {
        /* What it outgrew is not used again: together that is less than the list itself. */
        uint32_t room = local->peer_room ? local->peer_room * 2 : 16;
        struct peer *bigger = ng_arena_alloc(&local->arena, room * sizeof(*bigger));
        if (!bigger) {
            close_peer(&peer);
            return;
        }
        if (local->peer_count)
            memcpy(bigger, local->peers, local->peer_count * sizeof(*bigger));
        local->peers = bigger;
        local->peer_room = room;
    }
    bool own = peer.pid == local->own_box->header->pid &&
               peer.start_ticks == local->own_box->header->start_ticks && peer.same_namespace;
    peer.self = own && strcmp(name, local->own_box->name) == 0;
    refresh_peer(&peer);
    peer.met = !peer.gone;
    if (own && !peer.self) {
        /* This very process, before it became the program that it is now. */
        snprintf(path, sizeof(path), "%s/%s", local->folder, name);
        ng_box_mark_execed(path);
        mark_gone(&peer);
        peer.execed = true;
    }
    local->peers[local->peer_count++] = peer;
}

/* The folder of the job, by the descriptor that we have of it. */
static bool read_own_folder(const struct local *local, struct ng_folder *ret_folder)
{
    if (ng_descriptor_ours(&local->folder_fd)) {
        ng_folder_borrow(ret_folder, local->folder_fd.fd);
        return true;
    }
    return ng_folder_open(ret_folder, local->folder, true) == 0;
}

static void scan(struct local *local)
{
    struct ng_folder folder;
    const char *name;

    if (!read_own_folder(local, &folder))
        return;
    while ((name = ng_folder_next(&folder)))
        if (is_box_name(name) && strlen(name) < sizeof(((struct peer *)0)->name) &&
            !known(local, name))
            add_peer(local, name);
    ng_folder_close(&folder);
}

/* Does anybody of the job in this folder live, as far as can be told? */
static bool somebody_lives(const struct local *local, const char *path)
{
    struct ng_folder folder;
    struct peer peer;
    const char *name;
    bool lives = false;

    if (ng_folder_open(&folder, path, false) != 0)
        return true;
    while (!lives && (name = ng_folder_next(&folder))) {
        if (!is_box_name(name))
            continue;
        int error = open_peer(path, name, local->boot_id, local->pid_namespace, &peer);
        if (error) {
            /* What cannot be read for another reason than being damaged or old may well live. */
            lives = error != -ESTALE && error != -EBADMSG && error != -EIO && error != -ENOENT;
            continue;
        }
        refresh_peer(&peer);
        lives = !peer.gone;
        close_peer(&peer);
    }
    ng_folder_close(&folder);
    return lives;
}

/* Folders of this user's other jobs in which nobody lives any more. */
static void sweep(const struct local *local)
{
    char parent[PATH_MAX], path[PATH_MAX * 2];
    struct ng_folder jobs;
    struct stat status;
    const char *own = strrchr(local->folder, '/'), *name;

    /* Only where the guard chose the place itself: nobody else's files lie there. */
    snprintf(parent, sizeof(parent), "%.*s", (int)(own + 1 - local->folder), local->folder);
    ng_paths_default_dir("", path, sizeof(path));
    if (strcmp(parent, path) != 0 || ng_folder_open(&jobs, parent, true) != 0)
        return;
    while ((name = ng_folder_next(&jobs))) {
        if (name[0] == '.' || strcmp(name, own + 1) == 0)
            continue;
        snprintf(path, sizeof(path), "%s%s", parent, name);
        if (lstat(path, &status) != 0 || !S_ISDIR(status.st_mode) ||
            time(NULL) - status.st_mtime < ABANDONED_S)
            continue;
        if (!somebody_lives(local, path))
            ng_paths_remove_board(path);
    }
    ng_folder_close(&jobs);
}

/* First use, on the incident thread: by then our own box has its name. */
static void get_ready(struct local *local)
{
    local->ready = true;
    local->folder_fd = ng_descriptor_keep(open(local->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    local->inotify = ng_descriptor_keep(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
    if (local->inotify.fd >= 0 &&
        inotify_add_watch(local->inotify.fd, local->folder, IN_CREATE | IN_MOVED_TO) < 0)
        ng_descriptor_close(&local->inotify);
    scan(local);
    sweep(local);
}

/* Of an earlier incarnation of a job of this name: ended by its guard before we came. */
static bool superseded(const struct local *local, const struct peer *peer)
{
    const struct ng_box_header *header = peer->box.header;

    return peer->gone && atomic_load(&header->life) == NG_BOX_ENDED_BY_GUARD &&
           atomic_load(&header->life_mono_ns) < local->own_box->header->origin_mono_ns;
}

/* ---- Waiting ---- */

static unsigned local_wait(struct ng_board *board, const struct ng_descriptor *kick, int timeout_ms)
{
    struct local *local = (struct local *)board;
    char events[4096];
    uint64_t count;
    unsigned happened = 0;
    uint32_t used = 0;

    if (!local->ready)
        get_ready(local);
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
        const struct peer *peer = &local->peers[i];
        /* Who has left is not waited for any more: its end would be there to read for ever. */
        if (peer->gone || peer->counted || peer->self)
            continue;
        if (peer->pid_fd.fd >= 0)
            local->polls[used++] = (struct pollfd){.fd = peer->pid_fd.fd, .events = POLLIN};
        blind |= peer->pid_fd.fd < 0;
    }
    if (blind && timeout_ms > POLL_MS)
        timeout_ms = POLL_MS;
    if (poll(local->polls, used, timeout_ms) < 0) {
        /* A limit on descriptors below the number of ours: then look around at a walking pace. */
        struct timespec pause = {.tv_nsec = POLL_MS * NG_MS};
        nanosleep(&pause, NULL);
        for (uint32_t i = 0; i < used; i++)
            local->polls[i].revents = 0;
        blind = true;
    }
    if (used > 0 && (local->polls[0].revents & POLLIN) && read(kick->fd, &count, sizeof(count)) > 0)
        happened |= NG_BOARD_KICK;
    if (blind || (used > 1 && (local->polls[1].revents & POLLIN))) {
        while (!deaf && read(local->inotify.fd, events, sizeof(events)) > 0)
            ;
        scan(local);
        happened |= NG_BOARD_INCIDENT;
    }
    for (uint32_t i = 0; i < local->peer_count; i++) {
        struct peer *peer = &local->peers[i];
        if (peer->counted || peer->self)
            continue;
        refresh_peer(peer);
        if (peer->gone || atomic_load(&peer->box.header->life) == NG_BOX_EXITED) {
            peer->counted = true;
            if (superseded(local, peer))
                continue;
            local->ended++;
            happened |= NG_BOARD_DEATH;
        }
    }
    return happened;
}

static uint32_t local_ended(struct ng_board *board)
{
    return ((struct local *)board)->ended;
}

static int local_view(struct ng_board *board, struct ng_view *view)
{
    struct local *local = (struct local *)board;
    int error = 0;

    scan(local);
    for (uint32_t i = 0; i < local->peer_count && !error; i++)
        if (!superseded(local, &local->peers[i]))
            error = add_to_view(&local->peers[i], view);
    if (!error)
        ng_view_seal(view);
    return error;
}

static void local_each(struct ng_board *board,
                       void (*visit)(void *context, const struct ng_box *box), void *context)
{
    struct local *local = (struct local *)board;

    for (uint32_t i = 0; i < local->peer_count; i++)
        if (!local->peers[i].self && takes_part(&local->peers[i]))
            visit(context, &local->peers[i].box);
}

/* ---- Incidents ---- */

static int local_begin(struct ng_board *board, enum ng_incident_level level)
{
    (void)board; /* black boxes are at hand: everybody may look */
    (void)level;
    return 0;
}

static void local_finish(struct ng_board *board, enum ng_incident_level level, bool found)
{
    (void)board;
    (void)level;
    (void)found;
}

static void incident_path(const struct local *local, uint64_t epoch, bool hidden, char *ret_path)
{
    if (hidden)
        snprintf(ret_path, PATH_MAX, "%s/.%s%llu-%d-%llu-%llu", local->folder, NG_INCIDENT_PREFIX,
                 (unsigned long long)epoch, local->own_box->header->pid,
                 (unsigned long long)local->own_box->header->start_ticks,
                 (unsigned long long)local->pid_namespace);
    else
        snprintf(ret_path, PATH_MAX, "%s/%s%llu", local->folder, NG_INCIDENT_PREFIX,
                 (unsigned long long)epoch);
}

static int read_incident(const struct local *local, uint64_t epoch,
                         struct ng_incident *ret_incident)
{
    struct incident_file file;
    char path[PATH_MAX];

    incident_path(local, epoch, false, path);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return -errno;
    ssize_t got = read(fd, &file, sizeof(file));
    close(fd);
    if (got != (ssize_t)sizeof(file) || file.magic != INCIDENT_MAGIC)
        return -EBADMSG;
    if (file.incident.level < NG_INCIDENT_SUSPECT || file.incident.level >= NG_INCIDENT_LIMIT ||
        file.incident.state < NG_INCIDENT_CLAIMED || file.incident.state > NG_INCIDENT_JUDGED ||
        file.incident.op >= NG_OP_LIMIT || file.incident.scope.count > NG_SCOPE_GROUPS)
        return -EBADMSG;
    file.incident.line[sizeof(file.incident.line) - 1] = '\0';
    file.incident.source = NG_SOURCE_HOST;
    file.incident.epoch = epoch;
    *ret_incident = file.incident;
    return 0;
}

static int write_new(const char *path, int flags, const struct incident_file *file)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
    if (fd < 0)
        return -errno;
    fchmod(fd, 0600); /* whatever the program's umask takes away */
    ssize_t written = write(fd, file, sizeof(*file));
    int error = written == (ssize_t)sizeof(*file) ? 0 : written < 0 ? -errno : -ENOSPC;
    close(fd);
    return error;
}

static int write_incident(const struct local *local, const struct ng_incident *incident, bool first)
{
    struct incident_file file;
    char hidden[PATH_MAX], path[PATH_MAX];

    memset(&file, 0, sizeof(file));
    file.magic = INCIDENT_MAGIC;
    file.incident = *incident;
    incident_path(local, incident->epoch, true, hidden);
    incident_path(local, incident->epoch, false, path);
    int error = write_new(hidden, O_TRUNC, &file);
    /* link fails where somebody was faster: that is the claim. rename replaces: that is news of
     * one's own. */
    if (!error && (first ? link(hidden, path) : rename(hidden, path)) != 0)
        error = -errno;
    if (error || first)
        unlink(hidden);
    /* No hard links on this file system, or for this process: readers pass over what is not whole
     * yet. */
    if (first && (error == -EPERM || error == -ENOSYS || error == -EOPNOTSUPP))
        error = write_new(path, O_EXCL, &file);
    return error;
}

/* Epochs that exist: the smallest above `above` and the largest; 0 none. */
static void find_epochs(const struct local *local, uint64_t above, uint64_t *ret_next,
                        uint64_t *ret_largest)
{
    struct ng_folder folder;
    const char *name;

    *ret_next = *ret_largest = 0;
    if (!read_own_folder(local, &folder))
        return;
    while ((name = ng_folder_next(&folder))) {
        if (strncmp(name, NG_INCIDENT_PREFIX, strlen(NG_INCIDENT_PREFIX)) != 0)
            continue;
        uint64_t epoch = strtoull(name + strlen(NG_INCIDENT_PREFIX), NULL, 10);
        if (epoch > *ret_largest)
            *ret_largest = epoch;
        if (epoch > above && (!*ret_next || epoch < *ret_next))
            *ret_next = epoch;
    }
    ng_folder_close(&folder);
}

static bool local_claimant_alive(struct ng_board *board, const struct ng_incident *incident)
{
    struct local *local = (struct local *)board;
    uint64_t ticks;
    char state;

    for (uint32_t i = 0; i < local->peer_count; i++) {
        struct peer *peer = &local->peers[i];
        if (peer->pid != incident->claimant_pid || peer->start_ticks != incident->claimant_ticks)
            continue;
        refresh_peer(peer);
        return !peer->gone;
    }
    /* Not in our list: its box could not be opened, or is not there yet. */
    return ng_proc_stat(incident->claimant_pid, &state, &ticks) == 0 &&
           ticks == incident->claimant_ticks && state != 'Z';
}

static int local_next(struct ng_board *board, enum ng_incident_source source, uint64_t epoch,
                      struct ng_incident *ret_incident)
{
    struct local *local = (struct local *)board;
    uint64_t next, largest;

    if (source != NG_SOURCE_HOST)
        return -ENOENT;

    for (;;) {
        find_epochs(local, epoch, &next, &largest);
        if (!next)
            return -ENOENT;
        if (read_incident(local, next, ret_incident) == 0 &&
            (ret_incident->claimed_mono_ns >= local->joined_mono_ns ||
             (ret_incident->state != NG_INCIDENT_JUDGED &&
              local_claimant_alive(board, ret_incident))))
            return 0;
        epoch = next;
    }
}

static int local_get(struct ng_board *board, struct ng_incident *incident)
{
    return read_incident((struct local *)board, incident->epoch, incident);
}

static int local_claim(struct ng_board *board, const struct ng_incident *wanted,
                       struct ng_incident *ret_incident)
{
    struct local *local = (struct local *)board;
    struct ng_incident there;
    uint64_t next, largest;

    for (int tries = 0; tries < 100; tries++) {
        uint64_t epoch = 0;
        /* The number first: whoever claims after this takes the same one, and link tells. */
        find_epochs(local, 0, &next, &largest);
        while (local_next(board, NG_SOURCE_HOST, epoch, &there) == 0) {
            epoch = there.epoch;
            if (epoch > wanted->supersedes && ng_incident_covers(&there, wanted) &&
                local_claimant_alive(board, &there)) {
                *ret_incident = there;
                return -EEXIST;
            }
        }
        struct ng_incident mine = *wanted;
        mine.epoch = largest + 1;
        mine.source = NG_SOURCE_HOST;
        mine.state = NG_INCIDENT_CLAIMED;
        mine.claimant_pid = local->own_box->header->pid;
        mine.claimant_ticks = local->own_box->header->start_ticks;
        mine.claimed_mono_ns = ng_clock_mono_ns();
        int error = write_incident(local, &mine, true);
        if (error == -EEXIST)
            continue; /* somebody was faster: is it the same incident? */
        if (!error)
            *ret_incident = mine;
        return error;
    }
    return -EAGAIN;
}

static int local_publish(struct ng_board *board, const struct ng_incident *incident,
                         const struct ng_verdict *verdict)
{
    (void)verdict; /* all ranks of a host have its documents in one folder */
    return write_incident((struct local *)board, incident, false);
}

static void local_dumped(struct ng_board *board, const struct ng_incident *incident)
{
    atomic_store(&((struct local *)board)->own_box->header->dump_epoch, incident->epoch);
}

static int local_read_verdict(struct ng_board *board, const struct ng_incident *incident,
                              struct ng_documents *ret_documents)
{
    (void)board;
    (void)incident;
    (void)ret_documents;
    return -ENOENT;
}

static uint32_t local_dumps_missing(struct ng_board *board, const struct ng_incident *incident)
{
    struct local *local = (struct local *)board;
    uint32_t missing = 0;

    for (uint32_t i = 0; i < local->peer_count; i++) {
        struct peer *peer = &local->peers[i];
        if (!peer->self && takes_part(peer) && life_of(peer) == NG_LIFE_RUNNING &&
            atomic_load(&peer->box.header->dump_epoch) < incident->epoch)
            missing++;
    }
    return missing;
}

static int local_grown(struct ng_board *board, uint64_t joined_id, uint64_t *ret_id)
{
    struct local *local = (struct local *)board;
    uint64_t id = 0;

    for (uint32_t i = 0; i < local->peer_count && !id; i++)
        if (!local->peers[i].self)
            id = ng_grown_told(&local->peers[i].box, joined_id);
    if (!id)
        return -ENOENT;
    *ret_id = id;
    return 0;
}

/* What led to an incident is evidence. A suspension, or rules that were read again, led to none. */
static bool has_evidence(const struct local *local)
{
    struct ng_incident incident;
    uint64_t next = 0, largest;

    do {
        find_epochs(local, next, &next, &largest);
        if (next && (read_incident(local, next, &incident) != 0 ||
                     (incident.level != NG_INCIDENT_REST && incident.level != NG_INCIDENT_RELOAD)))
            return true;
    } while (next);
    return false;
}

/* ---- Entries ---- */

static void entry_path(const struct local *local, const char *key, char *ret_path)
{
    char name[NG_BOARD_KEY_MAX * 3 + 1];

    ng_kv_encode(key, "", name, sizeof(name));
    snprintf(ret_path, PATH_MAX, "%s/%s%s", local->folder, NG_ENTRY_PREFIX, name);
}

static void hidden_entry_path(const struct local *local, const char *what, char *ret_path)
{
    snprintf(ret_path, PATH_MAX, "%s/.%s%s-%d-%llu-%llu", local->folder, NG_ENTRY_PREFIX, what,
             local->own_box->header->pid, (unsigned long long)local->own_box->header->start_ticks,
             (unsigned long long)local->pid_namespace);
}

/* 0; -ENOENT, -EBADMSG: not whole, or -errno. */
static int read_entry(const char *path, struct entry_file *ret_file)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return -errno;
    ssize_t got = read(fd, ret_file, sizeof(*ret_file));
    close(fd);
    if (got < (ssize_t)ENTRY_HEAD_BYTES || ret_file->magic != ENTRY_MAGIC ||
        ret_file->bytes > sizeof(ret_file->data) ||
        (size_t)got != ENTRY_HEAD_BYTES + ret_file->bytes)
        return -EBADMSG;
    return 0;
}

/* Does this entry still count? */
static bool counts(struct local *local, const struct entry_file *file)
{
    if (file->stays)
        return ng_clock_mono_ns() < file->until_mono_ns;
    if (file->uid == ng_box_uid(local->own_box->header))
        return true;
    for (uint32_t i = 0; i < local->peer_count; i++) {
        struct peer *peer = &local->peers[i];
        if (ng_box_uid(peer->box.header) != file->uid)
            continue;
        refresh_peer(peer);
        int64_t left = atomic_load(&peer->box.header->life) == NG_BOX_RUNNING
                           ? 0
                           : atomic_load(&peer->box.header->life_mono_ns);
        int64_t since = peer->gone && !left ? peer->gone_mono_ns : left;
        return !since || ng_clock_mono_ns() - since < ENTRY_LINGER_NS;
    }
    return false;
}

static int write_entry(const char *path, const struct entry_file *file)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    fchmod(fd, 0600); /* whatever the program's umask takes away */
    size_t bytes = ENTRY_HEAD_BYTES + file->bytes;
    ssize_t written = write(fd, file, bytes);
    int error = written == (ssize_t)bytes ? 0 : written < 0 ? -errno : -ENOSPC;
    close(fd);
    return error;
}

/* What an earlier run left is taken away; where it is something else by the time that we have it,
 * it is put back. */
static void remove_stale(struct local *local, const char *path, const struct entry_file *stale)
{
    struct entry_file taken;
    char aside[PATH_MAX];

    hidden_entry_path(local, "old", aside);
    if (rename(path, aside) != 0)
        return;
    if (read_entry(aside, &taken) != 0 || taken.uid != stale->uid)
        (void)!link(aside, path);
    unlink(aside);
}

/* Like a claim: a link either makes the name, or somebody was faster. */
static int put_file(struct local *local, const char *path, const struct entry_file *file)
{
    char hidden[PATH_MAX];
    struct entry_file there;

    hidden_entry_path(local, "new", hidden);
    int error = write_entry(hidden, file);
    for (int tries = 0; tries < 3 && !error; tries++) {
        if (link(hidden, path) == 0)
            break;
        error = -errno;
        if (error != -EEXIST || read_entry(path, &there) != 0)
            break;
        if (counts(local, &there)) {
            bool same = there.uid == file->uid && there.bytes == file->bytes &&
                        memcmp(there.data, file->data, there.bytes) == 0;
            error = same ? 0 : -EEXIST;
            break;
        }
        remove_stale(local, path, &there);
        error = tries < 2 ? 0 : -EAGAIN;
    }
    unlink(hidden);
    return error;
}

static int local_put(struct ng_board *board, const struct ng_board_entry *entry)
{
    struct local *local = (struct local *)board;
    struct entry_file file = {.magic = ENTRY_MAGIC,
                              .uid = ng_box_uid(local->own_box->header),
                              .bytes = (uint32_t)entry->bytes,
                              .stays = entry->keep_ns != 0,
                              .until_mono_ns = ng_clock_mono_ns() + entry->keep_ns};
    struct entry_file there;
    char path[PATH_MAX];

    entry_path(local, entry->key, path);
    /* What it put already counts once. */
    bool counted = file.stays || (read_entry(path, &there) == 0 && there.uid == file.uid);
    if (!counted && local->kept == NG_BOARD_KEEP_MAX)
        return -ENOSPC;
    if (entry->bytes)
        memcpy(file.data, entry->data, entry->bytes);
    scan(local);
    int error = put_file(local, path, &file);
    if (!error && !counted)
        local->kept++;
    return error == -ENOENT ? -EIO : error; /* the folder is not there (yet, or any more) */
}

static int local_fetch(struct ng_board *board, const char *key, void *ret_data, size_t *ret_bytes)
{
    struct local *local = (struct local *)board;
    struct entry_file file;
    char path[PATH_MAX];

    entry_path(local, key, path);
    if (read_entry(path, &file) != 0)
        return -ENOENT;
    scan(local);
    if (!counts(local, &file))
        return -ENOENT;
    memcpy(ret_data, file.data, file.bytes);
    *ret_bytes = file.bytes;
    return 0;
}

static int local_have(struct ng_board *board, const char *prefix, uint32_t first, uint32_t count,
                      uint64_t *ret_there)
{
    const struct local *local = (const struct local *)board;
    char key[NG_BOARD_KEY_MAX + 1], path[PATH_MAX];
    struct stat status;

    *ret_there = 0;
    for (uint32_t i = 0; i < count && i < NG_BOARD_HAVE_MAX; i++) {
        snprintf(key, sizeof(key), "%s%u", prefix, first + i);
        entry_path(local, key, path);
        if (lstat(path, &status) == 0)
            *ret_there |= UINT64_C(1) << i;
    }
    return 0;
}

static void local_forget(struct ng_board *board, const char *key)
{
    char path[PATH_MAX];

    entry_path((const struct local *)board, key, path);
    unlink(path);
}

static void local_leave(struct ng_board *board)
{
    struct local *local = (struct local *)board;

    scan(local);
    for (uint32_t i = 0; i < local->peer_count; i++)
        if (!local->peers[i].self && takes_part(&local->peers[i]))
            return;
    /* `ncclguard run`, or a later job, removes it. */
    if (has_evidence(local))
        return;
    if (ng_descriptor_ours(&local->folder_fd))
        ng_paths_remove_open_board(local->folder_fd.fd, local->folder);
    else
        ng_paths_remove_board(local->folder);
}

static void local_abandon(struct ng_board *board)
{
    struct local *local = (struct local *)board;

    ng_descriptor_close(&local->inotify);
    ng_descriptor_close(&local->folder_fd);
    for (uint32_t i = 0; i < local->peer_count; i++) {
        ng_descriptor_close(&local->peers[i].pid_fd);
        ng_descriptor_close(&local->peers[i].lock_fd);
    }
}

static void local_unite(struct ng_board *board, uint64_t group_id, const uint64_t *other_ids,
                        uint32_t count)
{
    (void)board; /* all of a folder hear of each other */
    (void)group_id;
    (void)other_ids;
    (void)count;
}

static const struct ng_board_ops local_ops = {
    .wait = local_wait,
    .ended = local_ended,
    .begin = local_begin,
    .finish = local_finish,
    .view = local_view,
    .view_host = local_view,
    .each = local_each,
    .unite = local_unite,
    .claim = local_claim,
    .publish = local_publish,
    .next = local_next,
    .get = local_get,
    .claimant_alive = local_claimant_alive,
    .dumped = local_dumped,
    .dumps_missing = local_dumps_missing,
    .read_verdict = local_read_verdict,
    .grown = local_grown,
    .put = local_put,
    .fetch = local_fetch,
    .have = local_have,
    .forget = local_forget,
    .leave = local_leave,
    .abandon = local_abandon,
};

static void identify(struct local *local)
{
    ng_proc_boot_id(local->boot_id, sizeof(local->boot_id));
    local->pid_namespace = ng_proc_pid_namespace();
}

int ng_local_open(const char *folder, const struct ng_box *own_box, struct ng_board **ret_board)
{
    struct local *local = calloc(1, sizeof(*local));

    if (!local)
        return -ENOMEM;
    if (snprintf(local->folder, sizeof(local->folder), "%s", folder) >=
        (int)sizeof(local->folder)) {
        free(local);
        return -ENAMETOOLONG;
    }
    local->board.ops = &local_ops;
    local->own_box = own_box;
    local->inotify = NG_DESCRIPTOR_NONE;
    local->folder_fd = NG_DESCRIPTOR_NONE;
    local->joined_mono_ns = ng_clock_mono_ns();
    identify(local);
    *ret_board = &local->board;
    return 0;
}

void ng_local_each(struct ng_board *board, ng_local_each_fn *each, void *context)
{
    struct local *local = (struct local *)board;

    for (uint32_t i = 0; i < local->peer_count; i++) {
        struct peer *peer = &local->peers[i];
        struct ng_local_peer seen = {.box = &peer->box,
                                     .name = peer->name,
                                     .life = life_of(peer),
                                     .self = peer->self,
                                     .met = peer->met,
                                     .end = peer->end,
                                     .execed = peer->execed};
        if (!superseded(local, peer))
            each(context, &seen);
    }
}

int ng_local_order(const char *folder, const struct ng_incident *order, uint32_t *ret_living)
{
    struct local local = {.inotify = NG_DESCRIPTOR_NONE, .folder_fd = NG_DESCRIPTOR_NONE};
    struct ng_box_header self = {.pid = (int32_t)getpid()};
    struct ng_box own_box = {.header = &self};
    struct ng_folder entries;
    struct peer peer;
    const char *name;

    identify(&local);
    local.own_box = &own_box;
    if (snprintf(local.folder, sizeof(local.folder), "%s", folder) >= (int)sizeof(local.folder))
        return -ENAMETOOLONG;
    *ret_living = 0;
    int error = ng_folder_open(&entries, folder, true);
    if (error)
        return error;
    while ((name = ng_folder_next(&entries))) {
        if (!is_box_name(name) ||
            open_peer(folder, name, local.boot_id, local.pid_namespace, &peer) != 0)
            continue;
        *ret_living += takes_part(&peer);
        close_peer(&peer);
    }
    ng_folder_close(&entries);
    if (!*ret_living)
        return 0;
    for (int tries = 0; tries < 100; tries++) {
        struct ng_incident incident = *order;
        uint64_t next, largest;
        find_epochs(&local, 0, &next, &largest);
        incident.epoch = largest + 1;
        incident.source = NG_SOURCE_HOST;
        incident.state = NG_INCIDENT_JUDGED;
        incident.claimant_rank = -1;
        incident.claimant_pid = self.pid;
        incident.claimed_mono_ns = ng_clock_mono_ns();
        error = write_incident(&local, &incident, true);
        if (error != -EEXIST)
            return error;
    }
    return -EAGAIN;
}

int ng_local_collect(const char *folder, struct ng_view *view)
{
    struct local local = {.inotify = NG_DESCRIPTOR_NONE};
    struct ng_folder entries;
    struct peer peer;
    const char *name;
    int count = 0;

    identify(&local);
    int failed = ng_folder_open(&entries, folder, true);
    if (failed)
        return failed;
    while ((name = ng_folder_next(&entries))) {
        if (!is_box_name(name))
            continue;
        int error = open_peer(folder, name, local.boot_id, local.pid_namespace, &peer);
        if (!error) {
            error = add_to_view(&peer, view);
            close_peer(&peer);
        }
        if (error)
            ng_view_note(view, "%s: %s", name,
                         error == -EBADMSG  ? "not a black box"
                         : error == -EPROTO ? "of another version of ncclguard"
                         : error == -EIO    ? "damaged or cut off"
                         : error == -ESTALE ? "from before the last boot"
                                            : strerror(-error));
        else
            count++;
    }
    ng_folder_close(&entries);
    ng_view_seal(view);
    return count;
}
