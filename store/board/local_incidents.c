/*
 * Incidents as files of one host's board: claimed, judged, received, or stored as commands by a
 * tool.
 *
 * Entered by the incident thread only, and by tools. Must never show others half of an incident if
 * the file system has hard links, nor claim an epoch that another process has, nor trust the
 * content of a file without checking, nor call malloc: the program may be stuck while holding its
 * lock.
 */
#include "store/board/local_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/recorder/proc.h"
#include "core/util/clock.h"
#include "core/util/folder.h"
#include "core/util/macros.h"
#include "store/board/local.h"
#include "store/wire/command_record.h"
#include "store/wire/incident_codec.h"

#define INCIDENT_MAGIC UINT64_C(0x33434e494743434e) /* "NCCGINC3" */

struct incident_file {
    uint64_t magic;
    struct ng_incident incident;
    uint64_t of; /* ng_box_uid of a process of its run; 0 of all in the folder */
};

static void incident_path(const struct ng_local *local, uint64_t epoch, bool hidden, char *ret_path)
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

static int read_file(const char *path, uint64_t *ret_of, struct ng_incident *ret_incident)
{
    struct incident_file file;

    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return -errno;
    ssize_t got = read(fd, &file, sizeof(file));
    close(fd);
    if (got != (ssize_t)sizeof(file) || file.magic != INCIDENT_MAGIC)
        return -EBADMSG;
    if (file.incident.level < NG_INCIDENT_SUSPECT || file.incident.level >= NG_RECORD_LEVEL_LIMIT ||
        file.incident.state < NG_INCIDENT_CLAIMED || file.incident.state > NG_INCIDENT_JUDGED ||
        file.incident.op >= NG_OP_LIMIT || file.incident.scope.count > NG_GROUP_SET_MAX)
        return -EBADMSG;
    file.incident.line[sizeof(file.incident.line) - 1] = '\0';
    file.incident.source = NG_SOURCE_HOST;
    if (!ng_incident_accept(&file.incident))
        return -EBADMSG;
    *ret_of = file.of;
    *ret_incident = file.incident;
    return 0;
}

int ng_local_read_incident(const char *path, struct ng_incident *ret_incident)
{
    uint64_t of;

    int error = read_file(path, &of, ret_incident);

    return !error && ng_record_is_command(ret_incident) ? -EBADMSG : error;
}

/* Does this ng_box_uid belong to a process of our run? If its box cannot be read: yes, unless there
 * are other runs. */
static bool is_of_our_run(const struct ng_local *local, uint64_t uid)
{
    bool alone = true;

    for (uint32_t i = 0; i < local->peer_count; i++) {
        bool ours = ng_local_is_ours(local, &local->peers[i]);
        if (ng_box_uid(local->peers[i].box.header) == uid)
            return ours;
        alone &= ours;
    }
    return alone;
}

/* -ENOENT also if it belongs to another run. */
static int read_incident(const struct ng_local *local, uint64_t epoch,
                         struct ng_incident *ret_incident)
{
    struct ng_incident incident;
    char path[PATH_MAX];
    uint64_t of;

    incident_path(local, epoch, false, path);
    int error = read_file(path, &of, &incident);
    if (!error && of && !is_of_our_run(local, of))
        error = -ENOENT;
    if (error)
        return error;
    incident.epoch = epoch;
    *ret_incident = incident;
    return 0;
}

static int write_new(const char *path, int flags, const struct incident_file *file)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
    if (fd < 0)
        return -errno;
    fchmod(fd, 0600); /* regardless of the program's umask */
    ssize_t written = write(fd, file, sizeof(*file));
    int error = written == (ssize_t)sizeof(*file) ? 0 : written < 0 ? -errno : -ENOSPC;
    close(fd);
    return error;
}

/* `of`: as in the file. */
static int write_incident(const struct ng_local *local, uint64_t of,
                          const struct ng_incident *incident, bool first)
{
    struct incident_file file;
    char hidden[PATH_MAX], path[PATH_MAX];

    memset(&file, 0, sizeof(file));
    file.magic = INCIDENT_MAGIC;
    file.of = of;
    file.incident = *incident;
    incident_path(local, incident->epoch, true, hidden);
    incident_path(local, incident->epoch, false, path);
    int error = write_new(hidden, O_TRUNC, &file);
    /* link fails if another process was first: that makes it a claim. rename replaces: that updates
     * one's own incident. */
    if (!error && (first ? link(hidden, path) : rename(hidden, path)) != 0)
        error = -errno;
    if (error || first)
        unlink(hidden);
    /* No hard links on this file system, or for this process: readers skip incomplete files. */
    if (first && (error == -EPERM || error == -ENOSYS || error == -EOPNOTSUPP))
        error = write_new(path, O_EXCL, &file);
    return error;
}

/* Existing epochs: the smallest above `above` and the largest; 0 none. */
static void find_epochs(const struct ng_local *local, uint64_t above, uint64_t *ret_next,
                        uint64_t *ret_largest)
{
    struct ng_folder folder;
    const char *name;

    *ret_next = *ret_largest = 0;
    if (!ng_local_read_own_folder(local, &folder))
        return;
    while ((name = ng_folder_next(&folder))) {
        if (strncmp(name, NG_INCIDENT_PREFIX, strlen(NG_INCIDENT_PREFIX)) != 0)
            continue;
        uint64_t epoch = strtoull(name + strlen(NG_INCIDENT_PREFIX), NULL, 10);
        if (epoch > NG_EPOCH_MAX)
            continue; /* no process has counted that far */
        if (epoch > *ret_largest)
            *ret_largest = epoch;
        if (epoch > above && (!*ret_next || epoch < *ret_next))
            *ret_next = epoch;
    }
    ng_folder_close(&folder);
}

bool ng_local_claimant_alive(struct ng_board *board, const struct ng_incident *incident)
{
    struct ng_local *local = (struct ng_local *)board;
    uint64_t ticks;
    char state;

    NG_EACH (peer, local->peers, local->peer_count) {
        if (peer->pid != incident->claimant_pid || peer->start_ticks != incident->claimant_ticks)
            continue;
        ng_local_refresh_peer(peer);
        return !peer->gone;
    }
    /* Not in our list: its box could not be opened, or is not there yet. */
    return ng_proc_stat(incident->claimant_pid, &state, &ticks) == 0 &&
           ticks == incident->claimant_ticks && state != 'Z';
}

static int next_record(struct ng_local *local, uint64_t epoch, struct ng_incident *ret_incident)
{
    uint64_t next, largest;

    for (;;) {
        find_epochs(local, epoch, &next, &largest);
        if (!next)
            return -ENOENT;
        if (read_incident(local, next, ret_incident) == 0 &&
            (ret_incident->claimed_mono_ns >= local->joined_mono_ns ||
             (ret_incident->state != NG_INCIDENT_JUDGED &&
              ng_local_claimant_alive(&local->board, ret_incident))))
            return 0;
        epoch = next;
    }
}

int ng_local_next(struct ng_board *board, enum ng_incident_source source, uint64_t epoch,
                  struct ng_news *ret_news)
{
    struct ng_incident record;

    int error =
        source == NG_SOURCE_HOST ? next_record((struct ng_local *)board, epoch, &record) : -ENOENT;
    if (!error)
        ng_record_news(&record, ret_news);
    return error;
}

int ng_local_get(struct ng_board *board, struct ng_incident *incident)
{
    return read_incident((struct ng_local *)board, incident->epoch, incident);
}

/* Does an existing incident, present or past, already cover what is wanted? It may be judged
 * meanwhile. */
static bool is_dealt_with(struct ng_board *board, struct ng_incident *there,
                          const struct ng_incident *wanted)
{
    if (ng_record_is_command(there))
        return false;
    return there->epoch > wanted->supersedes && ng_incident_covers(there, wanted) &&
           (ng_incident_outlives_claimant(there, wanted) || ng_local_claimant_alive(board, there) ||
            (ng_local_get(board, there) == 0 && ng_incident_covers(there, wanted) &&
             ng_incident_outlives_claimant(there, wanted)));
}

int ng_local_claim(struct ng_board *board, const struct ng_incident *wanted,
                   struct ng_incident *ret_incident)
{
    struct ng_local *local = (struct ng_local *)board;
    struct ng_incident there;
    uint64_t next, largest;

    for (int tries = 0; tries < 100; tries++) {
        uint64_t epoch = 0;
        /* Read the number first: a process that claims later takes the same one, and link detects
         * that. */
        find_epochs(local, 0, &next, &largest);
        while (next_record(local, epoch, &there) == 0) {
            epoch = there.epoch;
            if (is_dealt_with(board, &there, wanted)) {
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
        int error = write_incident(local, ng_box_uid(local->own_box->header), &mine, true);
        if (error == -EEXIST)
            continue; /* another process was first: is it the same incident? */
        if (!error)
            *ret_incident = mine;
        return error;
    }
    return -EAGAIN;
}

int ng_local_publish(struct ng_board *board, const struct ng_incident *incident,
                     const struct ng_verdict *verdict)
{
    (void)verdict; /* all ranks of a host have its documents in one folder */
    const struct ng_local *local = (const struct ng_local *)board;

    return write_incident(local, ng_box_uid(local->own_box->header), incident, false);
}

void ng_local_dumped(struct ng_board *board, const struct ng_incident *incident)
{
    atomic_store(&((struct ng_local *)board)->own_box->header->dump_epoch, incident->epoch);
}

uint32_t ng_local_dumps_missing(struct ng_board *board, const struct ng_incident *incident)
{
    struct ng_local *local = (struct ng_local *)board;
    uint32_t missing = 0;

    NG_EACH (peer, local->peers, local->peer_count) {
        if (peer->self || !ng_local_is_ours(local, peer))
            continue;
        if (ng_local_takes_part(peer) && ng_local_life_of(peer) == NG_LIFE_RUNNING &&
            !atomic_load(&peer->box.header->cut_off) &&
            atomic_load(&peer->box.header->dump_epoch) < incident->epoch)
            missing++;
    }
    return missing;
}

/* A suspension, a reload of the rules, or a change of options. */
static bool leaves_no_trace(const struct ng_incident *record)
{
    struct ng_news news;

    ng_record_news(record, &news);
    return news.is_command &&
           (news.command.kind == NG_COMMAND_REST || news.command.kind == NG_COMMAND_RELOAD ||
            news.command.kind == NG_COMMAND_SET);
}

/* The cause of an incident is evidence. */
bool ng_local_has_evidence(const struct ng_local *local)
{
    struct ng_incident incident;
    uint64_t next = 0, largest;

    do {
        find_epochs(local, next, &next, &largest);
        if (next && (read_incident(local, next, &incident) != 0 || !leaves_no_trace(&incident)))
            return true;
    } while (next);
    return false;
}

int ng_local_leave(const char *folder, uint64_t run, const struct ng_incident *record,
                   uint32_t *ret_living)
{
    struct ng_local local = {.inotify = NG_DESCRIPTOR_NONE, .folder_fd = NG_DESCRIPTOR_NONE};
    struct ng_box_header self = {.pid = (int32_t)getpid()};
    struct ng_box own_box = {.header = &self};
    struct ng_peers peers;
    uint64_t of = 0;

    ng_local_identify(&local);
    local.own_box = &own_box;
    if (snprintf(local.folder, sizeof(local.folder), "%s", folder) >= (int)sizeof(local.folder))
        return -ENAMETOOLONG;
    *ret_living = 0;
    int error = ng_local_open_folder(folder, NULL, &peers);
    if (error)
        return error;
    NG_EACH (peer, peers.list, peers.count) {
        if ((run && ng_local_run_id(&peers, peer->run) != run) || !ng_local_takes_part(peer))
            continue;
        of = run ? ng_box_uid(peer->box.header) : 0;
        ++*ret_living;
    }
    ng_local_close_folder(&peers);
    if (!*ret_living)
        return 0;
    for (int tries = 0; tries < 100; tries++) {
        struct ng_incident incident = *record;
        uint64_t next, largest;
        find_epochs(&local, 0, &next, &largest);
        incident.epoch = largest + 1;
        incident.source = NG_SOURCE_HOST;
        incident.state = NG_INCIDENT_JUDGED;
        incident.claimant_rank = -1;
        incident.claimant_pid = self.pid;
        incident.claimed_mono_ns = ng_clock_mono_ns();
        error = write_incident(&local, of, &incident, true);
        if (error != -EEXIST)
            return error;
    }
    return -EAGAIN;
}
