/*
 * Small data that programs exchange, as files of one host's board.
 *
 * Beside the life of a call. Entered by the incident thread only. Must never replace an entry that
 * is still valid, nor trust the content of a file without checking, nor call malloc: the program
 * may be stuck while holding its lock.
 */
#include "store/board/local_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/util/clock.h"
#include "store/kv/kv.h"

#define ENTRY_MAGIC     UINT64_C(0x31544e454743434e) /* "NCCGENT1" */
#define ENTRY_LINGER_NS (5 * NG_S) /* entries stay valid so long after their process's end */

struct entry_file {
    uint64_t magic;
    uint64_t uid; /* of the process that put it */
    uint32_t bytes;
    uint32_t stays;        /* 1: valid beyond the life of that process, */
    int64_t until_mono_ns; /* until then */
    char data[NG_BOARD_VALUE_MAX];
};
#define ENTRY_HEAD_BYTES offsetof(struct entry_file, data)

/* Only of our own run, if a launcher has identified it: other runs have the same folder. */
static void entry_path(const struct ng_local *local, const char *key, char *ret_path)
{
    char name[NG_BOARD_KEY_MAX * 3 + 1], run[20] = "";
    uint64_t launch_run = local->own_box->header->launch_run;

    ng_kv_encode(key, name, sizeof(name));
    if (launch_run)
        snprintf(run, sizeof(run), "%016" PRIx64 ".", launch_run);
    snprintf(ret_path, PATH_MAX, "%s/%s%s%s", local->folder, NG_ENTRY_PREFIX, run, name);
}

static void hidden_entry_path(const struct ng_local *local, const char *what, char *ret_path)
{
    snprintf(ret_path, PATH_MAX, "%s/.%s%s-%d-%llu-%llu", local->folder, NG_ENTRY_PREFIX, what,
             local->own_box->header->pid, (unsigned long long)local->own_box->header->start_ticks,
             (unsigned long long)local->pid_namespace);
}

/* 0; -ENOENT, -EBADMSG: not complete, or -errno. */
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

/* Is this entry still valid? */
static bool counts(struct ng_local *local, const struct entry_file *file)
{
    if (file->stays)
        return ng_clock_mono_ns() < file->until_mono_ns;
    if (file->uid == ng_box_uid(local->own_box->header))
        return true;
    for (uint32_t i = 0; i < local->peer_count; i++) {
        struct ng_peer *peer = &local->peers[i];
        if (ng_box_uid(peer->box.header) != file->uid)
            continue;
        ng_local_refresh_peer(peer);
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
    fchmod(fd, 0600); /* regardless of the program's umask */
    size_t bytes = ENTRY_HEAD_BYTES + file->bytes;
    ssize_t written = write(fd, file, bytes);
    int error = written == (ssize_t)bytes ? 0 : written < 0 ? -errno : -ENOSPC;
    close(fd);
    return error;
}

/* Remove what an earlier run left; if it has become something else by the time that we have it, put
 * it back. */
static void remove_stale(struct ng_local *local, const char *path, const struct entry_file *stale)
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

/* Like a claim: link either creates the name, or another process was first. */
static int put_file(struct ng_local *local, const char *path, const struct entry_file *file)
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

int ng_local_put(struct ng_board *board, const struct ng_board_entry *entry)
{
    struct ng_local *local = (struct ng_local *)board;
    struct entry_file file = {.magic = ENTRY_MAGIC,
                              .uid = ng_box_uid(local->own_box->header),
                              .bytes = (uint32_t)entry->bytes,
                              .stays = entry->keep_ns != 0,
                              .until_mono_ns = ng_clock_mono_ns() + entry->keep_ns};
    struct entry_file there;
    char path[PATH_MAX];

    entry_path(local, entry->key, path);
    /* Its own entry counts once already. */
    bool counted = file.stays || (read_entry(path, &there) == 0 && there.uid == file.uid);
    if (!counted && local->kept == NG_BOARD_KEEP_MAX)
        return -ENOSPC;
    if (entry->bytes)
        memcpy(file.data, entry->data, entry->bytes);
    ng_local_scan(local);
    int error = put_file(local, path, &file);
    if (!error && !counted)
        local->kept++;
    return error == -ENOENT ? -EIO : error; /* the folder does not exist (yet, or any more) */
}

int ng_local_fetch(struct ng_board *board, const char *key, void *ret_data, size_t *ret_bytes)
{
    struct ng_local *local = (struct ng_local *)board;
    struct entry_file file;
    char path[PATH_MAX];

    entry_path(local, key, path);
    if (read_entry(path, &file) != 0)
        return -ENOENT;
    ng_local_scan(local);
    if (!counts(local, &file))
        return -ENOENT;
    memcpy(ret_data, file.data, file.bytes);
    *ret_bytes = file.bytes;
    return 0;
}

int ng_local_have(struct ng_board *board, const char *prefix, uint32_t first, uint32_t count,
                  uint64_t *ret_there)
{
    const struct ng_local *local = (const struct ng_local *)board;
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

void ng_local_forget(struct ng_board *board, const char *key)
{
    char path[PATH_MAX];

    entry_path((const struct ng_local *)board, key, path);
    unlink(path);
}
