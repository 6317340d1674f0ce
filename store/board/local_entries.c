/*
 * Small data that programs exchange, as files of one host's board.
 *
 * Beside the life of a call. Entered by the incident thread only. Must never replace an entry that
 * is still valid, nor trust the content of a file without checking, nor call malloc: the program
 * may be stuck while holding its lock.
 *
 * Runs of one name have one folder. If their launchers tell them apart, so does the name of a file.
 * Else an entry belongs to the run of its process, and other runs put theirs beside it, under the
 * same key and a number. What was put with other words of a launcher is ours if a communicator
 * tells so, never by ranks alone. What has a lifetime of its own has a key that no other run uses.
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

#include "core/config/launch.h"
#include "core/util/clock.h"
#include "core/util/macros.h"
#include "store/kv/kv.h"

#define ENTRY_MAGIC     UINT64_C(0x32544e454743434e) /* "NCCGENT2" */
#define ENTRY_LINGER_NS (5 * NG_S) /* entries stay valid so long after their process's end */
#define ENTRY_RUNS      8u         /* so many runs may use one key */
#define KEPT            ENTRY_RUNS

struct entry_file {
    uint64_t magic;
    uint64_t uid; /* of the process that put it */
    uint32_t bytes;
    uint16_t words_bytes;  /* after the data: the words of its launcher */
    uint16_t stays;        /* 1: valid beyond the life of that process, */
    int64_t until_mono_ns; /* until then */
    char data[NG_BOARD_VALUE_MAX + NG_LAUNCH_WORDS_BYTES];
};
#define ENTRY_HEAD_BYTES offsetof(struct entry_file, data)

/* Only of our own run, if a launcher has identified it. `beside`: 0 for the first run that uses the
 * key; KEPT: for what has a lifetime of its own, which is of one communicator, whatever words its
 * ranks have. */
static void entry_path_of(const struct ng_local *local, uint64_t launch_run, const char *key,
                          unsigned beside, char *ret_path)
{
    char name[NG_BOARD_KEY_MAX * 3 + 1], run[20] = "", number[12] = "";

    ng_kv_encode(key, name, sizeof(name));
    if (launch_run && beside != KEPT)
        snprintf(run, sizeof(run), "%016" PRIx64 ".", launch_run);
    if (beside && beside != KEPT)
        snprintf(number, sizeof(number), "@%u", beside); /* not a letter of an encoded key */
    snprintf(ret_path, PATH_MAX, "%s/%s%s%s%s", local->folder, NG_ENTRY_PREFIX, run, name, number);
}

static void entry_path(const struct ng_local *local, const char *key, unsigned beside,
                       char *ret_path)
{
    entry_path_of(local, local->own_box->header->launch_run, key, beside, ret_path);
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
        ret_file->bytes > NG_BOARD_VALUE_MAX || ret_file->words_bytes > NG_LAUNCH_WORDS_BYTES ||
        (size_t)got != ENTRY_HEAD_BYTES + ret_file->bytes + ret_file->words_bytes)
        return -EBADMSG;
    return 0;
}

/* The process that put an entry; NULL it is none of the folder. */
static struct ng_peer *owner_of(const struct ng_local *local, const struct entry_file *file)
{
    return NG_FIND(peer, local->peers, local->peer_count,
                   ng_box_uid(peer->box.header) == file->uid);
}

/* When the owner left or died; 0 it has not. */
static int64_t left_ns(struct ng_peer *owner)
{
    ng_local_refresh_peer(owner);
    int64_t left = atomic_load(&owner->box.header->life) == NG_BOX_RUNNING
                       ? 0
                       : atomic_load(&owner->box.header->life_mono_ns);

    return owner->gone && !left ? owner->gone_mono_ns : left;
}

/* Is this entry still valid? */
static bool counts(const struct ng_local *local, const struct entry_file *file)
{
    if (file->stays)
        return ng_clock_mono_ns() < file->until_mono_ns;
    if (file->uid == ng_box_uid(local->own_box->header))
        return true;
    struct ng_peer *owner = owner_of(local, file);
    int64_t left = owner ? left_ns(owner) : 0;
    return owner && (!left || ng_clock_mono_ns() - left < ENTRY_LINGER_NS);
}

/* Whose is a valid entry? One whose process had left before we came is of an earlier run, unless a
 * launcher says otherwise. */
static enum ng_local_whose whose_is(const struct ng_local *local, const struct entry_file *file)
{
    if (file->stays || file->uid == ng_box_uid(local->own_box->header))
        return NG_LOCAL_OF_OURS;
    struct ng_peer *owner = owner_of(local, file);
    int64_t left = left_ns(owner);
    if (left && left < local->joined_mono_ns && !owner->box.header->launch_run)
        return NG_LOCAL_OF_ANOTHER;
    return ng_local_whose(local, owner);
}

/* The entry of our run. 0; -ENOENT; -ENOTUNIQ: there is one that may be ours, or another run's. */
static int find_entry(struct ng_local *local, const char *key, struct entry_file *ret_file)
{
    char path[PATH_MAX];
    int error = -ENOENT;

    ng_local_scan(local);
    for (unsigned beside = 0; beside <= KEPT; beside++) {
        entry_path(local, key, beside, path);
        if (read_entry(path, ret_file) != 0 || !counts(local, ret_file) ||
            (beside == KEPT && !ret_file->stays))
            continue;
        switch (whose_is(local, ret_file)) {
        case NG_LOCAL_OF_OURS:
            return 0;
        case NG_LOCAL_OF_ANOTHER:
            break;
        case NG_LOCAL_UNCLEAR:
            error = -ENOTUNIQ;
        }
    }
    return error;
}

/* An entry that was put with other words. 0: it is of our run; -ENOENT; -EXDEV: it may be. */
static int find_foreign(struct ng_local *local, const char *key, struct entry_file *ret_file)
{
    struct entry_file file;
    char path[PATH_MAX];
    int error = -ENOENT;

    for (uint32_t i = 0; i < local->peer_count && error; i++) {
        uint64_t launch_run = local->peers[i].box.header->launch_run;
        if (launch_run == local->own_box->header->launch_run)
            continue;
        entry_path_of(local, launch_run, key, 0, path);
        if (read_entry(path, &file) != 0 || file.stays || !counts(local, &file))
            continue;
        struct ng_peer *owner = owner_of(local, &file);
        int64_t left = owner ? left_ns(owner) : 0;
        if (!owner || (left && left < local->joined_mono_ns))
            continue;
        bool ours = ng_local_has_our_communicator(local, owner);
        if (!ours && !ng_local_ranks_complement(local, owner))
            continue;
        *ret_file = file;
        error = ours ? 0 : -EXDEV;
    }
    return error;
}

static int write_entry(const char *path, const struct entry_file *file)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    fchmod(fd, 0600); /* regardless of the program's umask */
    size_t bytes = ENTRY_HEAD_BYTES + file->bytes + file->words_bytes;
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
static bool is_same(const struct entry_file *one, const struct entry_file *other)
{
    return one->uid == other->uid && one->bytes == other->bytes &&
           memcmp(one->data, other->data, one->bytes) == 0;
}

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
            error = is_same(&there, file) ? 0 : -EEXIST;
            break;
        }
        remove_stale(local, path, &there);
        error = tries < 2 ? 0 : -EAGAIN;
    }
    unlink(hidden);
    return error;
}

/* Put it where no other run has its own. */
static int put_beside(struct ng_local *local, const char *key, const struct entry_file *file)
{
    struct entry_file there;
    char path[PATH_MAX];
    int error = -EEXIST;

    for (unsigned beside = 0; error == -EEXIST && beside < ENTRY_RUNS; beside++) {
        error = find_entry(local, key, &there);
        if (error != -ENOENT)
            return error || is_same(&there, file) ? error : -EEXIST;
        entry_path(local, key, beside, path);
        error = put_file(local, path, file);
    }
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

    /* Its own entry counts once already. */
    bool counted =
        file.stays || (find_entry(local, entry->key, &there) == 0 && there.uid == file.uid);
    if (!counted && local->kept == NG_BOARD_KEEP_MAX)
        return -ENOSPC;
    if (entry->bytes)
        memcpy(file.data, entry->data, entry->bytes);
    if (entry->words && !file.stays) {
        file.words_bytes = (uint16_t)strnlen(entry->words, NG_LAUNCH_WORDS_BYTES);
        memcpy(file.data + file.bytes, entry->words, file.words_bytes);
    }
    entry_path(local, entry->key, KEPT, path);
    int error = file.stays ? put_file(local, path, &file) : put_beside(local, entry->key, &file);
    if (!error && !counted)
        local->kept++;
    return error == -ENOENT ? -EIO : error; /* the folder does not exist (yet, or any more) */
}

int ng_local_fetch(struct ng_board *board, const char *key, void *ret_data, size_t *ret_bytes)
{
    struct entry_file file;

    int error = find_entry((struct ng_local *)board, key, &file);
    if (error == -ENOENT)
        error = find_foreign((struct ng_local *)board, key, &file);
    if (error && error != -EXDEV)
        return error;
    *ret_bytes = error ? file.words_bytes : file.bytes;
    memcpy(ret_data, error ? file.data + file.bytes : file.data, *ret_bytes);
    return error;
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
        entry_path(local, key, KEPT, path);
        if (lstat(path, &status) == 0)
            *ret_there |= UINT64_C(1) << i;
    }
    return 0;
}

void ng_local_forget(struct ng_board *board, const char *key)
{
    char path[PATH_MAX];

    entry_path((const struct ng_local *)board, key, KEPT, path);
    unlink(path);
}
