/*
 * Records the ends of ranks.
 *
 * Used by `ncclguard run` while the program runs: it sleeps here, so that it wakes at the moment of
 * an end. If the machine is busy it wakes late, when the launcher has ended the others, too: the
 * kernel lists what became ready in order (epoll; without one, ends found together are one moment).
 * Must never write to a black box except that of a process that has ended.
 */
#include "tools/jobs/rank_ends.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/recorder/box.h"
#include "core/recorder/loaded.h"
#include "core/recorder/paths.h"
#include "core/recorder/proc.h"
#include "core/util/clock.h"
#include "core/util/macros.h"
#include "tools/base/owned.h"
#include "tools/jobs/descendants.h"

/* Each takes a descriptor. */
#define RANKS_MAX 512

/* Ranks of a host that die together are told together: one may be the reason of another's end. */
#define TOGETHER_NS (100 * NG_MS)

struct rank {
    char path[PATH_MAX]; /* of its black box; "" it has none */
    bool left;           /* by us, since it ended without one */
    struct ng_loaded loaded;
    int pid;
    uint64_t start_ticks;
    int fd; /* -1: nothing more to watch */
    bool untold;
    int64_t ended_ns; /* when, if `untold` */
};

struct ng_rank_ends {
    const char *dir;
    const struct ng_witness_options *witness; /* NULL: ends are not told to other hosts */
    int64_t tell_ns;                          /* when deaths are due to be told; 0 there are none */
    int inotify;        /* of `dir`: those of `ncclguard run` are watched already; -1 none */
    int epoll;          /* of the ranks, by index; -1 none */
    int arrivals;       /* of processes that start; -1 none */
    bool order_unknown; /* it holds a rank that may have ended before it was watched */
    struct rank *ranks;
    size_t count;
};

/* ---- Processes that start ---- */

/* Receive what guarded processes under the `ncclguard run` of this id tell when they start
 * (core/recorder/loaded.h). A descriptor, or -errno. */
static int open_arrivals(const char *run_id)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int on = 1, fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -errno;
    int length = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1,
                          NG_LOADED_SOCKET "%.63s", run_id);
    if (setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) == 0 &&
        bind(fd, (struct sockaddr *)&address,
             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length)) == 0)
        return fd;
    int error = -errno;
    close(fd);
    return error;
}

/* Of a process that is gone nothing shows below which it was. */
static bool may_be_ours(int pid)
{
    uint64_t start_ticks;
    char state;

    return ng_descendants_has(pid) || ng_proc_stat(pid, &state, &start_ticks) == -ESRCH;
}

/* Of this user, and below this process? Then its pid, else 0. */
static int sender_of(struct msghdr *message)
{
    for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part; part = CMSG_NXTHDR(message, part))
        if (part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_CREDENTIALS) {
            struct ucred sender;
            memcpy(&sender, CMSG_DATA(part), sizeof(sender));
            return sender.pid > 0 && sender.uid == getuid() && may_be_ours(sender.pid) ? sender.pid
                                                                                       : 0;
        }
    return 0;
}

/* The next descendant of this process that has started, with its pid; it may have ended. Never by
 * the message alone: the kernel says whose it is. False: none at the moment. */
static bool next_arrival(int fd, struct ng_loaded *ret_loaded, int *ret_pid)
{
    char control[CMSG_SPACE(sizeof(struct ucred))] __attribute__((aligned(8)));
    struct ng_loaded loaded;
    ssize_t bytes;

    do {
        struct iovec part = {.iov_base = &loaded, .iov_len = sizeof(loaded)};
        struct msghdr message = {.msg_iov = &part,
                                 .msg_iovlen = 1,
                                 .msg_control = control,
                                 .msg_controllen = sizeof(control)};
        bytes = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        *ret_pid = bytes == (ssize_t)sizeof(loaded) && loaded.magic == NG_LOADED_MAGIC &&
                           loaded.bytes == sizeof(loaded) && loaded.rank >= 0
                       ? sender_of(&message)
                       : 0;
    } while (bytes >= 0 && !*ret_pid);
    if (bytes < 0)
        return false;
    loaded.job[sizeof(loaded.job) - 1] = loaded.program[sizeof(loaded.program) - 1] = '\0';
    *ret_loaded = loaded;
    return true;
}

/* ---- */

/* The folder may appear later, with the first black box. */
static void watch(const struct ng_rank_ends *ends)
{
    char above[PATH_MAX];
    const char *slash = strrchr(ends->dir, '/');

    if (inotify_add_watch(ends->inotify, ends->dir, IN_CREATE | IN_MOVED_TO | IN_ONLYDIR) >= 0 ||
        !slash)
        return;
    snprintf(above, sizeof(above), "%.*s/", (int)(slash - ends->dir), ends->dir);
    inotify_add_watch(ends->inotify, above, IN_CREATE | IN_MOVED_TO | IN_ONLYDIR);
}

struct ng_rank_ends *ng_rank_ends_create(const char *dir, const struct ng_witness_options *witness)
{
    struct ng_rank_ends *ends = calloc(1, sizeof(*ends));
    const char *run_id = getenv("NCCLGUARD_RUN_ID");

    if (!ends)
        return NULL;
    ends->dir = dir;
    ends->witness = witness && ng_witness_is_of_use(witness) ? witness : NULL;
    ends->epoll = epoll_create1(EPOLL_CLOEXEC);
    ends->inotify = dir ? inotify_init1(IN_CLOEXEC | IN_NONBLOCK) : -1;
    if (ends->inotify >= 0)
        watch(ends);
    ends->arrivals = run_id && ends->epoll >= 0 ? open_arrivals(run_id) : -1;
    return ends;
}

/* The folder of black boxes of its job. */
static void own_folder(const struct ng_rank_ends *ends, const struct ng_loaded *loaded,
                       char ret_folder[PATH_MAX])
{
    if (ends->dir)
        snprintf(ret_folder, PATH_MAX, "%s", ends->dir);
    else
        ng_paths_default_dir(loaded->job, ret_folder, PATH_MAX);
}

/* NULL: it is not known. */
static const struct rank *find_path(const struct ng_rank_ends *ends, const char *path)
{
    return NG_FIND(one, ends->ranks, ends->count, strcmp(one->path, path) == 0);
}

/* Are black boxes in this folder that were not left here? Their processes may wait for those whose
 * boxes were, or wanted to. */
static bool has_others(const struct ng_rank_ends *ends, const char *folder)
{
    char path[PATH_MAX];
    NG_CLOSED_DIR DIR *boxes = opendir(folder);
    bool others = false;

    for (struct dirent *entry; boxes && !others && (entry = readdir(boxes));) {
        if (strncmp(entry->d_name, NG_BOX_PREFIX, strlen(NG_BOX_PREFIX)) != 0)
            continue;
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        const struct rank *rank = find_path(ends, path);
        others = !rank || !rank->left;
    }
    return others;
}

/* Removes the black boxes that were left here, where nobody looks at them. */
static void take_back(const struct ng_rank_ends *ends)
{
    for (size_t i = 0; i < ends->count; i++) {
        char folder[PATH_MAX];
        own_folder(ends, &ends->ranks[i].loaded, folder);
        if (!ends->ranks[i].left || has_others(ends, folder))
            continue;
        unlink(ends->ranks[i].path);
        rmdir(folder); /* fails if other files are in it */
    }
}

static void close_rank(struct rank *rank)
{
    if (rank->fd >= 0)
        close(rank->fd);
    rank->fd = -1;
}

void ng_rank_ends_destroy(struct ng_rank_ends *ends)
{
    if (!ends)
        return;
    take_back(ends);
    for (size_t i = 0; i < ends->count; i++)
        close_rank(&ends->ranks[i]);
    if (ends->inotify >= 0)
        close(ends->inotify);
    if (ends->epoll >= 0)
        close(ends->epoll);
    if (ends->arrivals >= 0)
        close(ends->arrivals);
    free(ends->ranks);
    free(ends);
}

/* Belongs to a process that runs under this `ncclguard run`, and can be watched. */
static bool open_rank(struct rank *rank)
{
    const char *run_id = getenv("NCCLGUARD_RUN_ID");
    uint64_t ticks;
    struct ng_box box;
    char state;

    if (ng_box_open(rank->path, &box) != 0)
        return false;
    rank->pid = box.header->pid;
    rank->start_ticks = box.header->start_ticks;
    rank->loaded =
        (struct ng_loaded){.rank = box.header->rank, .launch_run = box.header->launch_run};
    snprintf(rank->loaded.job, sizeof(rank->loaded.job), "%.*s", (int)sizeof(box.header->job),
             box.header->job);
    rank->left = rank->untold = false;
    bool ours = run_id && strncmp(box.header->run_id, run_id, sizeof(box.header->run_id)) == 0 &&
                box.header->pid_namespace == ng_proc_pid_namespace();
    ng_box_close(&box, NULL);
    rank->fd = ours ? (int)syscall(SYS_pidfd_open, rank->pid, 0) : -1;
    /* The descriptor stays with the process that has the number by now, which may be another
     * one. */
    if (rank->fd >= 0 &&
        (ng_proc_stat(rank->pid, &state, &ticks) != 0 || ticks != rank->start_ticks))
        close_rank(rank);
    return ours;
}

/* Watch the rank with this index. */
static void add(struct ng_rank_ends *ends, size_t index)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = index};
    struct pollfd ended = {.fd = ends->ranks[index].fd, .events = POLLIN};

    if (ended.fd >= 0 && epoll_ctl(ends->epoll, EPOLL_CTL_ADD, ended.fd, &event) == 0)
        ends->order_unknown |= poll(&ended, 1, 0) > 0;
}

/* NULL: no memory, or too many. */
static struct rank *append(struct ng_rank_ends *ends, struct rank *rank)
{
    size_t at = 0;

    /* The place of one that ended without being of interest. */
    while (at < ends->count &&
           (ends->ranks[at].path[0] || ends->ranks[at].fd >= 0 || ends->ranks[at].loaded.rank >= 0))
        at++;
    struct rank *larger = at < ends->count ? ends->ranks
                          : at < RANKS_MAX ? realloc(ends->ranks, (at + 1) * sizeof(*larger))
                                           : NULL;
    if (!larger) {
        close_rank(rank);
        return NULL;
    }
    ends->ranks = larger;
    ends->count += at == ends->count;
    larger[at] = *rank;
    add(ends, at);
    return &larger[at];
}

static bool is_same_rank(const struct ng_loaded *one, const struct ng_loaded *other)
{
    return one->rank == other->rank && strcmp(one->job, other->job) == 0;
}

/* Of a run of a launcher beside that of `loaded`, and not of what that one has begun again? */
static bool is_of_another_run(const struct ng_rank_ends *ends, const struct ng_loaded *other,
                              const struct ng_loaded *loaded)
{
    bool lives = NG_ANY(rank, ends->ranks, ends->count,
                        rank->fd >= 0 && rank->loaded.launch_run == other->launch_run);
    return other->launch_run != loaded->launch_run && lives;
}

/* One that runs, and has no black box as far as is known; NULL none. */
static struct rank *find_arrived(struct ng_rank_ends *ends, int pid, uint64_t start_ticks)
{
    return NG_FIND(one, ends->ranks, ends->count,
                   one->pid == pid && one->start_ticks == start_ticks && !one->path[0]);
}

static void look_into(struct ng_rank_ends *ends, const char *path)
{
    NG_CLOSED_DIR DIR *folder = opendir(path);
    struct rank rank;

    if (!folder)
        return;
    for (struct dirent *entry; (entry = readdir(folder)) && ends->count < RANKS_MAX;) {
        if (strncmp(entry->d_name, NG_BOX_PREFIX, strlen(NG_BOX_PREFIX)) != 0 ||
            snprintf(rank.path, sizeof(rank.path), "%s/%s", path, entry->d_name) >=
                (int)sizeof(rank.path) ||
            find_path(ends, rank.path) || !open_rank(&rank))
            continue;
        struct rank *arrived = find_arrived(ends, rank.pid, rank.start_ticks);
        if (arrived) {
            memcpy(arrived->path, rank.path, sizeof(arrived->path));
            close_rank(&rank);
        } else if (!append(ends, &rank)) {
            break;
        }
    }
}

void ng_rank_ends_look(struct ng_rank_ends *ends, const struct ng_job_folders *folders)
{
    char path[PATH_MAX];
    const char *name;

    if (ends->dir)
        look_into(ends, ends->dir);
    for (size_t i = 0; folders && (name = ng_job_folders_name(folders, i)); i++) {
        ng_paths_default_dir(name, path, sizeof(path));
        look_into(ends, path);
    }
}

/* Without an epoll. */
static int find_ended(struct ng_rank_ends *ends, struct epoll_event ret_ended[RANKS_MAX])
{
    int count = 0;

    for (size_t i = 0; i < ends->count; i++) {
        struct pollfd ended = {.fd = ends->ranks[i].fd, .events = POLLIN};
        if (poll(&ended, 1, 0) > 0)
            ret_ended[count++].data.u64 = i;
    }
    ends->order_unknown = true;
    return count;
}

/* Has it made a black box, perhaps just now? */
static bool has_box(const struct ng_rank_ends *ends, struct rank *rank)
{
    char folder[PATH_MAX], name[64], path[sizeof(folder) + sizeof(name)];

    if (rank->path[0])
        return true;
    own_folder(ends, &rank->loaded, folder);
    ng_box_name(rank->pid, rank->start_ticks, name, sizeof(name));
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    if (access(path, F_OK) != 0)
        return false;
    snprintf(rank->path, sizeof(rank->path), "%s", path);
    return true;
}

/*
 * A rank that ends before its first communicator has no black box that would tell the others: it
 * gets one now. Not if it ended well; nor as long as another process of that rank runs, of which it
 * was a helper or a wrapper, nor if one has made a black box. Runs of a launcher, and what it
 * begins again, have processes of their own for each rank.
 */
static void leave_box(struct ng_rank_ends *ends, struct rank *rank, int64_t when, int end)
{
    char folder[PATH_MAX], state;
    uint64_t ticks;

    if (rank->loaded.rank < 0)
        return;
    /* Where nobody has waited for it yet, the kernel shows a status; none is 0. */
    if (!end && ng_proc_stat(rank->pid, &state, &ticks) == 0 && ticks == rank->start_ticks)
        end = NG_EXIT_STATUS_SILENT;
    for (size_t i = 0; i < ends->count; i++)
        if (&ends->ranks[i] != rank && is_same_rank(&ends->ranks[i].loaded, &rank->loaded) &&
            ends->ranks[i].loaded.launch_run == rank->loaded.launch_run &&
            (ends->ranks[i].fd >= 0 || ends->ranks[i].path[0]))
            end = NG_EXIT_STATUS_SILENT;
    if (end != NG_EXIT_STATUS_SILENT) {
        own_folder(ends, &rank->loaded, folder);
        rank->left =
            ng_box_leave(folder, &rank->loaded, getenv("NCCLGUARD_RUN_ID"), rank->pid,
                         rank->start_ticks, when, end, rank->path, sizeof(rank->path)) == 0;
    }
    if (!rank->left)
        rank->loaded.rank = -1;
}

/* A process below which one of another rank starts is a launcher: the number that it has is of the
 * batch system, as that of torchrun in a step of Slurm. */
static void note_launchers(struct ng_rank_ends *ends, const struct ng_loaded *loaded, int pid)
{
    NG_EACH (above, ends->ranks, ends->count) {
        bool other = above->loaded.rank != loaded->rank ||
                     (above->loaded.world_size >= 0 && loaded->world_size >= 0 &&
                      above->loaded.world_size != loaded->world_size);
        if (other && above->fd >= 0 && !above->path[0] && ng_descendants_is_below(pid, above->pid))
            above->loaded.rank = -1;
    }
}

/* A process has started, or become another program. What was left for an earlier process of its
 * rank is of no interest any more: the launcher has begun again. */
static void arrive(struct ng_rank_ends *ends, const struct ng_loaded *loaded, int pid)
{
    struct rank rank = {.pid = pid, .loaded = *loaded, .fd = -1};
    char state;

    note_launchers(ends, loaded, pid);
    for (size_t i = 0; i < ends->count; i++)
        if (ends->ranks[i].left && is_same_rank(&ends->ranks[i].loaded, loaded) &&
            !is_of_another_run(ends, &ends->ranks[i].loaded, loaded)) {
            unlink(ends->ranks[i].path);
            ends->ranks[i].left = false;
            ends->ranks[i].path[0] = '\0';
            ends->ranks[i].loaded.rank = -1;
        }
    if (ng_proc_stat(pid, &state, &rank.start_ticks) != 0) {
        /* It has ended, and how is not known. */
        struct rank *ended = append(ends, &rank);
        if (ended)
            leave_box(ends, ended, ng_clock_mono_ns(), 0);
        return;
    }
    struct rank *known = find_arrived(ends, pid, rank.start_ticks);
    if (known) {
        known->loaded = *loaded;
        return;
    }
    rank.fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (rank.fd >= 0)
        append(ends, &rank);
}

static void receive_arrivals(struct ng_rank_ends *ends)
{
    struct ng_loaded loaded;
    int pid;

    while (ends->arrivals >= 0 && next_arrival(ends->arrivals, &loaded, &pid))
        arrive(ends, &loaded, pid);
}

/* It died, or failed: others may wait for it. A rank that ends well says so itself. */
static bool is_death(const char *path)
{
    struct ng_box box;
    bool open = false;

    int error = ng_box_open(path, &box);
    if (error)
        return !ng_box_is_unreadable(error); /* it is read again when it is told */
    uint32_t life = atomic_load(&box.header->life);
    uint32_t used = ng_box_read(&box, NG_BOX_GROUPS) == 0 ? NG_LOAD(box.header->group_used) : 0;
    for (uint32_t i = 0; i < used && i < box.group_capacity; i++)
        open |= ng_group_state_is_alive(atomic_load(&box.groups[i].state));
    bool death = life == NG_BOX_EXITED
                     ? NG_LOAD(box.header->exit_status) > 0
                     : life == NG_BOX_RUNNING && !NG_LOAD(box.header->ending_policy) &&
                           (open || NG_LOAD(box.header->seen_end) != NG_EXIT_STATUS_SILENT);
    ng_box_close(&box, NULL);
    return death;
}

/* Ends found together get times in their order, or one time if it is not known which was first. */
static void note(struct ng_rank_ends *ends)
{
    int64_t now = ng_clock_mono_ns();
    struct epoll_event ended[RANKS_MAX];
    int count =
        ends->epoll >= 0 ? epoll_wait(ends->epoll, ended, RANKS_MAX, 0) : find_ended(ends, ended);

    for (int i = 0; i < count; i++) {
        struct rank *rank = &ends->ranks[ended[i].data.u64];
        int64_t when = ends->order_unknown ? now : now + i;
        int end = ng_proc_end(rank->pid, rank->start_ticks, rank->fd);
        epoll_ctl(ends->epoll, EPOLL_CTL_DEL, rank->fd, NULL); /* a forked child may hold it, too */
        close_rank(rank);
        if (has_box(ends, rank))
            ng_box_mark_ended(rank->path, when, end);
        else
            leave_box(ends, rank, when, end);
        rank->untold = ends->witness && rank->path[0] && is_death(rank->path);
        rank->ended_ns = when;
        if (rank->untold && !ends->tell_ns)
            ends->tell_ns = now + TOGETHER_NS;
    }
    ends->order_unknown = false;
}

/* The untold rank that ended first; NULL none. */
static struct rank *first_untold(struct ng_rank_ends *ends)
{
    struct rank *first = NULL;

    for (size_t i = 0; i < ends->count; i++)
        if (ends->ranks[i].untold && (!first || ends->ranks[i].ended_ns < first->ended_ns))
            first = &ends->ranks[i];
    return first;
}

/* In order: a launcher ends the others because of the first. */
void ng_rank_ends_tell(struct ng_rank_ends *ends)
{
    const char *deaths[RANKS_MAX];
    struct rank *rank;
    size_t count = 0;

    while ((rank = first_untold(ends))) {
        deaths[count++] = rank->path;
        rank->untold = false;
    }
    ends->tell_ns = 0;
    if (count)
        ng_witness_report_ends(ends->witness, deaths, count);
}

/* Until `until`, or until deaths are to be told; -1: for ever. */
static int left_ms(const struct ng_rank_ends *ends, int64_t until)
{
    if (ends->tell_ns && ends->tell_ns < until)
        until = ends->tell_ns;
    if (until == INT64_MAX)
        return -1;
    int64_t left = (until - ng_clock_mono_ns() + NG_MS - 1) / NG_MS;
    return left > 0 ? (int)left : 0;
}

void ng_rank_ends_wait(struct ng_rank_ends *ends, int fd, int timeout_ms)
{
    int64_t until = timeout_ms < 0 ? INT64_MAX : ng_clock_mono_ns() + timeout_ms * NG_MS;

    char events[4096];

    for (;;) {
        struct pollfd polls[4 + RANKS_MAX] = {{.fd = fd, .events = POLLIN},
                                              {.fd = ends->inotify, .events = POLLIN},
                                              {.fd = ends->epoll, .events = POLLIN},
                                              {.fd = ends->arrivals, .events = POLLIN}};
        nfds_t count = 4;
        for (size_t i = 0; ends->epoll < 0 && i < ends->count; i++)
            if (ends->ranks[i].fd >= 0) /* more than the process may have are refused */
                polls[count++] = (struct pollfd){.fd = ends->ranks[i].fd, .events = POLLIN};
        int ready = poll(polls, count, left_ms(ends, until));
        if (ready < 0)
            return;
        receive_arrivals(ends);
        note(ends);
        if (ends->tell_ns && ng_clock_mono_ns() >= ends->tell_ns)
            ng_rank_ends_tell(ends);
        if (!ready && ng_clock_mono_ns() >= until)
            return;
        if (polls[1].revents) {
            while (read(ends->inotify, events, sizeof(events)) > 0)
                ;
            watch(ends);
            look_into(ends, ends->dir);
        }
        if (polls[0].revents)
            return;
    }
}

bool ng_rank_ends_went_on(const struct ng_rank_ends *ends, int64_t since_unix_ns, uint64_t group_id,
                          uint64_t seq)
{
    bool moved = false, waits = false;

    for (size_t i = 0; ends && i < ends->count; i++) {
        struct ng_box box;
        if (ng_box_open(ends->ranks[i].path, &box) != 0)
            continue;
        int64_t since = since_unix_ns - box.header->origin_unix_ns + box.header->origin_mono_ns;
        uint32_t used = ng_box_read(&box, NG_BOX_GROUPS) == 0 ? NG_LOAD(box.header->group_used) : 0;
        for (uint32_t k = 0; k < used && k < box.group_capacity; k++) {
            const struct ng_box_group *group = &box.groups[k];
            bool lives = NG_LOAD(group->state) == NG_GROUP_READY;
            moved |= NG_LOAD(group->completed_mono_ns) > since ||
                     (lives && NG_LOAD(group->created_mono_ns) > since);
            waits |= lives && seq && NG_LOAD(group->id) == group_id &&
                     NG_LOAD(group->entered) >= seq && NG_LOAD(group->completed) < seq;
        }
        ng_box_close(&box, NULL);
    }
    return moved && !waits;
}
