/*
 * Reads a black box of any origin: determines whether its process is alive, and its ages.
 *
 * Used by `ncclguard analyze`. Must never judge a copy, or a box from another machine, by this
 * machine's processes.
 */
#include "tools/ingest/read_box.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/recorder/proc.h"
#include "core/util/clock.h"
#include "tools/base/owned.h"
#include "tools/ingest/read_dump.h"

/* A guard without a heartbeat for this long is not running; the same in
 * store/board/local_peers.c. */
#define FROZEN_NS (5 * NG_S)

/* Whether a process holds its lock on this very file: then the file is not a copy, and the process
 * is alive. */
static bool is_locked(const char *path)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    NG_CLOSED int fd = open(path, O_RDONLY | O_CLOEXEC);

    return fd >= 0 && fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

static enum ng_life life_of(const char *path, const struct ng_box *box)
{
    const struct ng_box_header *header = box->header;
    char boot_id[sizeof(header->boot_id)], state = '?';
    uint64_t start_ticks = 0;

    ng_proc_boot_id(boot_id, sizeof(boot_id));
    if (!boot_id[0] || strncmp(boot_id, header->boot_id, sizeof(boot_id)) != 0)
        return NG_LIFE_UNKNOWN; /* another machine, or before a reboot */
    bool locked = is_locked(path);
    bool same_namespace = header->pid_namespace && header->pid_namespace == ng_proc_pid_namespace();
    if (!same_namespace)
        return locked ? NG_LIFE_RUNNING : NG_LIFE_DEAD;
    int64_t before = ng_clock_mono_ns();
    if (ng_proc_stat(header->pid, &state, &start_ticks) != 0 ||
        start_ticks != header->start_ticks || state == 'Z' || state == 'X')
        return NG_LIFE_DEAD;
    if (!locked)
        return NG_LIFE_UNKNOWN; /* a copy: the process is alive, but the file is from an earlier
                                 * moment */
    bool frozen = ng_clock_mono_ns() - atomic_load(&header->heartbeat_mono_ns) > FROZEN_NS;
    return ng_box_shows_stopped(box, state, before) || frozen ? NG_LIFE_STOPPED : NG_LIFE_RUNNING;
}

static const char *reason(int error)
{
    switch (error) {
    case -EBADMSG:
        return "not a black box, or damaged at its beginning";
    case -EPROTO:
        return "a black box of another version of ncclguard";
    case -EIO:
        return "a black box that was cut off";
    default:
        return strerror(-error);
    }
}

int ng_read_box(struct ng_view *view, const char *path, const char *source, int64_t now_mono_ns,
                struct ng_box_header *ret_header, char *why, size_t why_bytes)
{
    struct ng_box box = NG_BOX_NONE;
    char host[sizeof(box.header->host) + 1];

    int error = ng_box_open(path, &box);
    if (error) {
        snprintf(why, why_bytes, "%s", reason(error));
        return error;
    }
    snprintf(host, sizeof(host), "%.*s", (int)sizeof(box.header->host), box.header->host);
    int same = ng_read_dump_find(view, host, box.header->pid);
    if (same >= 0) {
        snprintf(why, why_bytes, "%s tells of the same process", view->processes[same].source);
        error = -EEXIST;
    } else {
        memcpy(ret_header, box.header, sizeof(*ret_header));
        error = ng_view_add_box(view, &box, life_of(path, &box), now_mono_ns, source);
        if (error)
            snprintf(why, why_bytes, "%s", reason(error));
    }
    ng_box_close(&box, NULL);
    return error;
}
