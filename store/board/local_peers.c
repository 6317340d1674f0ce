/*
 * The processes of one host's job: whether each is alive and running, and the folder with their
 * black boxes.
 *
 * Entered by the incident thread only, and by tools. Must never wait for another process, whatever
 * state that is in, nor trust the content of a box without checking, nor call malloc: the program
 * may be stuck while holding its lock.
 */
#include "store/board/local_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/recorder/paths.h"
#include "core/recorder/proc.h"
#include "core/util/clock.h"
#include "core/util/folder.h"
#include "core/util/log.h"
#include "core/util/macros.h"

#define FROZEN_NS    (5 * NG_S) /* a guard without a heartbeat for this long does not run */
#define SILENT_NS    (2 * NG_S) /* after this long the process may have exec'ed */
#define ASK_AGAIN_NS NG_S
#define STALE_NS     (60 * NG_S) /* ended this long before we started: an earlier run */
#define ABANDONED_S  3600        /* other jobs' folders without a live process expire */

/* ---- One process: is it alive, does it run ---- */

void ng_local_identify(struct ng_local *local)
{
    ng_proc_boot_id(local->boot_id, sizeof(local->boot_id));
    local->pid_namespace = ng_proc_pid_namespace();
}

static int open_pid(int pid, uint64_t start_ticks)
{
    uint64_t ticks;
    char state;
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);

    /* The number may belong to another process by now, so check its identity after opening: the
     * descriptor stays with one process. */
    int error = fd >= 0 ? ng_proc_stat(pid, &state, &ticks) : 0;
    if (fd >= 0 && (error == -ESRCH || (!error && ticks != start_ticks))) {
        close(fd);
        errno = ESRCH;
        return -1;
    }
    return fd;
}

static void mark_gone(struct ng_peer *peer)
{
    if (peer->gone)
        return;
    peer->gone = true;
    peer->gone_mono_ns = ng_clock_mono_ns();
    if (peer->same_namespace)
        peer->end = ng_proc_end(peer->pid, peer->start_ticks,
                                ng_descriptor_ours(&peer->pid_fd) ? peer->pid_fd.fd : -1);
}

int ng_local_open_peer(const char *folder, const char *name, const char *boot_id,
                       uint64_t pid_namespace, struct ng_peer *ret_peer)
{
    char path[PATH_MAX];
    struct ng_peer peer = {.folder = folder, .pid_fd = NG_DESCRIPTOR_NONE};

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
    *ret_peer = peer;
    return 0;
}

void ng_local_close_peer(struct ng_peer *peer)
{
    ng_box_close(&peer->box, NULL);
    ng_descriptor_close(&peer->pid_fd);
}

/* As the kernel lists it, if its descriptor indicates that it may have ended. */
static bool has_ended(const struct ng_peer *peer)
{
    uint64_t ticks;
    char state;

    /* A failed query, perhaps for want of a descriptor, is not an answer. */
    int error = ng_proc_stat(peer->pid, &state, &ticks);
    return error == -ESRCH ||
           (!error && (ticks != peer->start_ticks || state == 'Z' || state == 'X'));
}

/*
 * The process is alive and silent: has it become another program? A box stays mapped in the memory
 * of its program as long as that runs, and exec unmaps everything. No memory at all: the process is
 * exiting.
 */
static bool is_another_program(struct ng_peer *peer)
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

/*
 * The current header of its box, by a new descriptor if the program has closed ours. Groups and
 * threads are read too, at most once a second, so that they are known even if the file is
 * truncated.
 */
static void read_box(struct ng_peer *peer)
{
    int64_t now = ng_clock_mono_ns();
    unsigned parts = now - peer->read_mono_ns >= NG_S ? NG_BOX_GROUPS | NG_BOX_THREADS : 0;
    char path[PATH_MAX];

    int error = ng_box_read(&peer->box, parts);
    if (error == -EBADF) {
        snprintf(path, sizeof(path), "%s/%s", peer->folder, peer->name);
        peer->box.file =
            ng_descriptor_keep(open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
        error = ng_box_read(&peer->box, parts);
    }
    if (!error && parts)
        peer->read_mono_ns = now;
    peer->unread = error != 0;
}

static void look_whether_it_ended(struct ng_peer *peer)
{
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};

    if (is_another_program(peer)) {
        mark_gone(peer);
        peer->execed = true;
        return;
    }
    if (peer->pid_fd.fd >= 0) {
        struct pollfd ended = {.fd = peer->pid_fd.fd, .events = POLLIN};
        /* A file that the program put in its place may never become readable. */
        if (ng_descriptor_ours(&peer->pid_fd) && poll(&ended, 1, 0) <= 0)
            return;
        /* The descriptor is readable: the process has ended, unless the program closed our
         * descriptor and the number refers to another file by now. */
        if (has_ended(peer))
            mark_gone(peer);
        else
            peer->pid_fd = ng_descriptor_keep(open_pid(peer->pid, peer->start_ticks));
    } else if (ng_descriptor_ours(&peer->box.file) &&
               fcntl(peer->box.file.fd, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK) {
        mark_gone(peer);
    } else if (peer->same_namespace && has_ended(peer)) {
        mark_gone(peer);
    }
}

void ng_local_refresh_peer(struct ng_peer *peer)
{
    bool lived = !peer->gone && !peer->self;

    read_box(peer);
    if (lived)
        look_whether_it_ended(peer);
    if (lived && peer->gone)
        read_box(peer); /* the last state that it wrote */
}

enum ng_life ng_local_life_of(struct ng_peer *peer)
{
    uint64_t ticks;
    char state;

    ng_local_refresh_peer(peer);
    if (peer->self)
        return NG_LIFE_RUNNING;
    if (peer->gone)
        return peer->execed ? NG_LIFE_EXITED : NG_LIFE_DEAD; /* unless the box says how it left */
    int64_t before = ng_clock_mono_ns();
    if (peer->pid_fd.fd >= 0 && ng_proc_stat(peer->pid, &state, &ticks) == 0 &&
        ticks == peer->start_ticks && ng_box_shows_stopped(&peer->box, state, before))
        return NG_LIFE_STOPPED;
    int64_t silent = ng_clock_mono_ns() - atomic_load(&peer->box.header->heartbeat_mono_ns);
    return silent > FROZEN_NS && !peer->unread ? NG_LIFE_STOPPED : NG_LIFE_RUNNING;
}

bool ng_local_takes_part(struct ng_peer *peer)
{
    ng_local_refresh_peer(peer);
    return !peer->gone && atomic_load(&peer->box.header->life) == NG_BOX_RUNNING;
}

int ng_local_signal_peer(struct ng_peer *peer, int signal_number)
{
    ng_local_refresh_peer(peer);
    if (peer->gone || !peer->same_namespace)
        return -ESRCH;
    int own = -1, fd = peer->pid_fd.fd;
    if (!ng_descriptor_ours(&peer->pid_fd))
        fd = own = open_pid(peer->pid, peer->start_ticks);
    if (fd < 0)
        return -errno;
    int error = syscall(SYS_pidfd_send_signal, fd, signal_number, NULL, 0) == 0 ? 0 : -errno;
    if (own >= 0)
        close(own);
    return error;
}

int ng_local_add_to_view(struct ng_peer *peer, int64_t now_mono_ns, struct ng_view *view)
{
    int error = ng_view_add_box(view, &peer->box, ng_local_life_of(peer), now_mono_ns, peer->name);

    if (!error) {
        view->processes[view->process_count - 1].self = peer->self;
        if (peer->execed)
            view->processes[view->process_count - 1].exit_status = NG_EXIT_STATUS_EXEC;
    }
    if (!error && peer->gone) {
        struct ng_view_process *process = &view->processes[view->process_count - 1];
        if (process->life == NG_LIFE_DEAD && peer->end)
            process->exit_status = peer->end;
        /* The kernel has reported the time, which is more exact than the last heartbeat. */
        if (process->life == NG_LIFE_DEAD && !NG_LOAD(peer->box.header->seen_end_mono_ns) &&
            now_mono_ns - peer->gone_mono_ns < process->life_age_ns)
            process->life_age_ns =
                now_mono_ns > peer->gone_mono_ns ? now_mono_ns - peer->gone_mono_ns : 1;
    }
    return error;
}

/* ---- The folder ---- */

bool ng_local_is_box_name(const char *name)
{
    return strncmp(name, NG_BOX_PREFIX, strlen(NG_BOX_PREFIX)) == 0;
}

static bool known(const struct ng_local *local, const char *name)
{
    return NG_ANY(peer, local->peers, local->peer_count, strcmp(peer->name, name) == 0);
}

static bool ended_long_ago(const struct ng_peer *peer)
{
    const struct ng_box_header *header = peer->box.header;
    int64_t last = atomic_load(&header->heartbeat_mono_ns);

    return peer->gone && ng_clock_mono_ns() - last > STALE_NS;
}

static void add_peer(struct ng_local *local, const char *name)
{
    struct ng_peer peer;
    char path[PATH_MAX];

    int error =
        ng_local_open_peer(local->folder, name, local->boot_id, local->pid_namespace, &peer);
    if (error == -ESTALE || (!error && ended_long_ago(&peer))) {
        snprintf(path, sizeof(path), "%s/%s", local->folder, name);
        unlink(path);
        if (!error)
            ng_local_close_peer(&peer);
        return;
    }
    if (error) {
        ng_log(NG_LOG_DEBUG, "%s/%s is not a usable black box: %s", local->folder, name,
               strerror(-error));
        return;
    }
    if (local->peer_count == local->peer_room) {
        /* The outgrown array is not reused: in total that is less than the list itself. */
        uint32_t room = local->peer_room ? local->peer_room * 2 : 16;
        struct ng_peer *bigger = ng_arena_alloc(&local->arena, room * sizeof(*bigger));
        if (!bigger) {
            ng_local_close_peer(&peer);
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
    ng_local_refresh_peer(&peer);
    peer.met = !peer.gone;
    if (own && !peer.self) {
        /* This very process, before it became its current program. */
        snprintf(path, sizeof(path), "%s/%s", local->folder, name);
        ng_box_mark_execed(path);
        mark_gone(&peer);
        peer.execed = true;
    }
    if (peer.self)
        local->self = local->peer_count;
    peer.linked = local->peer_count;
    local->peers[local->peer_count++] = peer;
}

/* The job's folder, by the descriptor that we have of it. */
bool ng_local_read_own_folder(const struct ng_local *local, struct ng_folder *ret_folder)
{
    if (ng_descriptor_ours(&local->folder_fd)) {
        ng_folder_borrow(ret_folder, local->folder_fd.fd);
        return true;
    }
    return ng_folder_open(ret_folder, local->folder, true) == 0;
}

void ng_local_scan(struct ng_local *local)
{
    struct ng_folder folder;
    const char *name;

    if (!ng_local_read_own_folder(local, &folder))
        return;
    while ((name = ng_folder_next(&folder)))
        if (ng_local_is_box_name(name) && strlen(name) < sizeof(((struct ng_peer *)0)->name) &&
            !known(local, name))
            add_peer(local, name);
    ng_folder_close(&folder);
    ng_local_tell_runs(local);
}

void ng_local_tell_runs(struct ng_local *local)
{
    /* Only new groups in common are of interest: processes that are already in our run need no
     * refresh. */
    for (uint32_t i = 0; i < local->peer_count; i++)
        if (i == local->self || !ng_local_is_ours(local, &local->peers[i]))
            ng_box_read(&local->peers[i].box, NG_BOX_GROUPS);
    ng_local_find_runs(local->peers, local->peer_count);
}

/* Is any process of the job in this folder alive, as far as can be determined? */
static bool somebody_lives(const struct ng_local *local, const char *path)
{
    struct ng_folder folder;
    struct ng_peer peer;
    const char *name;
    bool lives = false;

    if (ng_folder_open(&folder, path, false) != 0)
        return true;
    while (!lives && (name = ng_folder_next(&folder))) {
        if (!ng_local_is_box_name(name))
            continue;
        int error = ng_local_open_peer(path, name, local->boot_id, local->pid_namespace, &peer);
        if (error) {
            /* A box that cannot be read for a reason other than damage or age may well be of a live
             * process. */
            lives = error != -ESTALE && error != -EBADMSG && error != -EIO && error != -ENOENT;
            continue;
        }
        ng_local_refresh_peer(&peer);
        lives = !peer.gone;
        ng_local_close_peer(&peer);
    }
    ng_folder_close(&folder);
    return lives;
}

/* Folders of this user's other jobs in which no process is alive. */
void ng_local_sweep(const struct ng_local *local)
{
    char parent[PATH_MAX], path[PATH_MAX * 2];
    struct ng_folder jobs;
    struct stat status;
    const char *own = strrchr(local->folder, '/'), *name;

    /* Only if the guard chose the location itself: no other program's files are there. */
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

/* Of an earlier incarnation of a job of this name: ended by its guard before we started. */
static bool superseded(const struct ng_local *local, const struct ng_peer *peer)
{
    const struct ng_box_header *header = peer->box.header;

    return peer->gone && atomic_load(&header->life) == NG_BOX_ENDED_BY_GUARD &&
           atomic_load(&header->life_mono_ns) < local->own_box->header->origin_mono_ns;
}

bool ng_local_is_ours(const struct ng_local *local, const struct ng_peer *peer)
{
    return (local->self == UINT32_MAX || peer->run == local->peers[local->self].run) &&
           !superseded(local, peer);
}
