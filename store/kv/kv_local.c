/*
 * Keys and values as files of one host.
 *
 * Entered by one thread of the guard or of a tool. Must never trust what a file says without
 * checking, nor leave anything half-written for others to see, wherever this process is killed;
 * waits for another process's lock no longer than its deadline.
 *
 * The folder has one file for each key, replaced by rename(2), so that reading needs no lock.
 * Whoever changes a key holds one of a few locks (flock, given back by the kernel when its holder
 * dies). A channel is a file that only grows: its header says how far messages reach, and is
 * written after them; when it has become large, a new generation takes its place.
 *
 *   k.KEY     a value: struct value_header, key, value
 *   c.CHANNEL messages: struct channel_header, then for each struct message_header and its bytes
 *   lock.N    empty
 *   t.RANDOM  being written
 */
#include "store/kv/kv.h"
#include "store/kv/names.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "core/recorder/paths.h"
#include "core/recorder/proc.h"
#include "core/util/clock.h"
#include "core/util/descriptor.h"
#include "core/util/folder.h"
#include "store/kv/url.h"

#define VALUE_MAGIC   UINT64_C(0x314c41564b47434e) /* "NCGKVAL1" */
#define CHANNEL_MAGIC UINT64_C(0x31484356474b434e)
#define LOCKS         16
#define NAME_BYTES    220       /* of a key as a file's name; NAME_MAX is 255 */
#define CHANNEL_BYTES (1 << 20) /* then comes a new generation */
#define POLL_NS       (20 * NG_MS)
#define STALE_S       60 /* a file half-written for that long has lost its writer */

struct value_header {
    uint64_t magic;
    uint32_t key_bytes;
    uint32_t reserved;
    uint64_t value_bytes;
    int64_t expires_mono_ns; /* of the boot below; 0 never */
    char boot_id[40];
};

struct channel_header {
    uint64_t magic;
    uint64_t generation;
    uint64_t end; /* messages reach to here */
    uint64_t reserved;
};

struct message_header {
    uint64_t bytes; /* without what fills it up to a multiple of 8 */
};

struct subscription {
    char channel[NG_KV_KEY_MAX + 1];
    struct ng_descriptor file;
    uint64_t generation, position;
};

struct queued {
    struct queued *next;
    bool publish;
    int64_t ttl_ms;
    size_t bytes;
    char key[NG_KV_KEY_MAX + 1];
    unsigned char data[];
};

struct local {
    struct ng_kv kv;
    char folder[PATH_MAX - NAME_MAX - 1];
    char boot_id[40];
    unsigned char *value; /* of the last get */
    size_t value_room;
    unsigned char *message; /* of the last next_message */
    size_t message_room;
    struct queued *first, *last;
    struct subscription subscriptions[NG_KV_CHANNELS_MAX];
    unsigned subscription_count, next;
    struct ng_descriptor inotify;
};

static struct local *of(struct ng_kv *kv)
{
    return (struct local *)kv;
}

/* ---- Names ---- */

static uint64_t hash_of(const char *key)
{
    uint64_t hash = UINT64_C(14695981039346656037);

    for (; *key; key++)
        hash = (hash ^ (unsigned char)*key) * UINT64_C(1099511628211);
    return hash;
}

/* A key that is too long for a file's name keeps its beginning and gets its hash; the file has the
 * whole key. */
static void path_of(const struct local *local, char kind, const char *key, char *ret_path,
                    size_t bytes)
{
    char name[NG_KV_KEY_MAX * 3 + 1];

    if (ng_kv_encode(key, ":@+=,", name, sizeof(name)) > NAME_BYTES)
        sprintf(name + NAME_BYTES - 20, "%%-%016" PRIx64, hash_of(key));
    snprintf(ret_path, bytes, "%s/%c.%s", local->folder, kind, name);
}

static int fail(struct local *local, int error, const char *what, const char *path)
{
    const char *name = strrchr(path, '/');

    return ng_kv_fail(&local->kv, error, "cannot %s %s in %s: %s", what, name ? name + 1 : path,
                      local->folder, strerror(-error));
}

/* ---- Locks ---- */

/* The descriptor of the lock for this key, held; or -errno. */
static int lock_key(struct local *local, const char *key, int64_t deadline_mono_ns)
{
    char path[PATH_MAX];
    int64_t step_ns = 50 * NG_US;

    snprintf(path, sizeof(path), "%s/lock.%u", local->folder, (unsigned)(hash_of(key) % LOCKS));
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return fail(local, -errno, "open", path);
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        int64_t now = ng_clock_mono_ns();
        int error = errno;
        if (error == EINTR)
            continue;
        if (error != EWOULDBLOCK || now >= deadline_mono_ns) {
            close(fd);
            return fail(local, error == EWOULDBLOCK ? -ETIMEDOUT : -error, "lock", path);
        }
        int64_t until = now + step_ns;
        struct timespec pause = {.tv_sec = until / NG_S, .tv_nsec = until % NG_S};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &pause, NULL);
        if (step_ns < 2 * NG_MS)
            step_ns *= 2;
    }
    return fd;
}

static void unlock(int fd)
{
    /* Not by closing alone: a forked child may have a copy of the descriptor. */
    flock(fd, LOCK_UN);
    close(fd);
}

/* ---- Files ---- */

static int write_parts(int fd, struct iovec *parts, int count)
{
    while (count) {
        ssize_t wrote = writev(fd, parts, count);
        if (wrote < 0) {
            if (errno == EINTR)
                continue;
            return -errno;
        }
        while (count && (size_t)wrote >= parts->iov_len) {
            wrote -= (ssize_t)parts->iov_len;
            parts++;
            count--;
        }
        if (count) {
            parts->iov_base = (char *)parts->iov_base + wrote;
            parts->iov_len -= (size_t)wrote;
        }
    }
    return 0;
}

/* A new file under a name of its own; the descriptor or -errno. */
static int make_temporary(struct local *local, char *ret_path, size_t bytes)
{
    for (;;) {
        uint64_t number = 0;
        if (getrandom(&number, sizeof(number), GRND_NONBLOCK) != sizeof(number))
            number = (uint64_t)ng_clock_mono_ns() ^ ((uint64_t)getpid() << 40);
        snprintf(ret_path, bytes, "%s/t.%016" PRIx64, local->folder, number);
        int fd = open(ret_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd >= 0 || errno != EEXIST)
            return fd >= 0 ? fd : -errno;
    }
}

/* The parts as a whole file at `path`, in the place of what was there. */
static int replace(struct local *local, const char *path, struct iovec *parts, int count)
{
    char temporary[PATH_MAX];
    int fd = make_temporary(local, temporary, sizeof(temporary));

    if (fd < 0)
        return fd;
    int error = write_parts(fd, parts, count);
    if (close(fd) != 0 && !error)
        error = -errno;
    if (!error && rename(temporary, path) != 0)
        error = -errno;
    if (error)
        unlink(temporary);
    return error;
}

static int read_at(int fd, void *to, size_t bytes, uint64_t offset)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t got = pread(fd, (char *)to + done, bytes - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? -errno : -EPROTO;
        done += (size_t)got;
    }
    return 0;
}

static int grow(unsigned char **memory, size_t *room, size_t wanted)
{
    if (wanted <= *room)
        return 0;
    unsigned char *larger = realloc(*memory, wanted);
    if (!larger)
        return -ENOMEM;
    *memory = larger;
    *room = wanted;
    return 0;
}

static bool expired(const struct local *local, const struct value_header *header)
{
    return header->expires_mono_ns &&
           (header->expires_mono_ns <= ng_clock_mono_ns() ||
            strncmp(header->boot_id, local->boot_id, sizeof(header->boot_id)) != 0);
}

/*
 * What a file has: 0, -ENOENT (none, or its time is over), -EPROTO (damaged), or -errno. The key
 * into ret_key (NG_KV_KEY_MAX + 1 bytes), the value into local->value.
 */
static int read_file(struct local *local, const char *path, struct value_header *ret_header,
                     char *ret_key)
{
    struct value_header header = {0};
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

    /* A link is no file of ours. */
    if (fd < 0)
        return errno == ELOOP ? -EPROTO : -errno;
    int error = fstat(fd, &status) == 0 ? 0 : -errno;
    if (!error)
        error = read_at(fd, &header, sizeof(header), 0);
    if (!error &&
        (header.magic != VALUE_MAGIC || header.key_bytes > NG_KV_KEY_MAX ||
         header.value_bytes > NG_KV_VALUE_MAX ||
         (uint64_t)status.st_size != sizeof(header) + header.key_bytes + header.value_bytes))
        error = -EPROTO;
    if (!error)
        error = read_at(fd, ret_key, header.key_bytes, sizeof(header));
    if (!error) {
        ret_key[header.key_bytes] = '\0';
        error = expired(local, &header) ? -ENOENT : 0;
    }
    if (!error)
        error = grow(&local->value, &local->value_room, (size_t)header.value_bytes + 1);
    if (!error) {
        /* Numbers are read as text. */
        local->value[header.value_bytes] = '\0';
        error = read_at(fd, local->value, (size_t)header.value_bytes,
                        sizeof(header) + header.key_bytes);
    }
    close(fd);
    *ret_header = header;
    return error;
}

/* 0, -ENOENT, or another -errno, noted. */
static int read_key(struct local *local, const char *key, struct value_header *ret_header)
{
    char path[PATH_MAX], found[NG_KV_KEY_MAX + 1];

    path_of(local, 'k', key, path, sizeof(path));
    int error = read_file(local, path, ret_header, found);
    if (!error && strcmp(found, key) != 0)
        error = -EPROTO;
    if (error && error != -ENOENT)
        return fail(local, error, "read", path);
    return error;
}

/* However a file system says that it is full. */
static int no_room(int error)
{
    return error == -EDQUOT || error == -EFBIG ? -ENOSPC : error;
}

static int write_key(struct local *local, const char *key, const struct ng_kv_bytes *value,
                     int64_t expires_mono_ns)
{
    char path[PATH_MAX];
    struct value_header header = {.magic = VALUE_MAGIC,
                                  .key_bytes = (uint32_t)strlen(key),
                                  .value_bytes = value->bytes,
                                  .expires_mono_ns = expires_mono_ns};
    memcpy(header.boot_id, local->boot_id, sizeof(header.boot_id));
    struct iovec parts[] = {{&header, sizeof(header)},
                            {(void *)(uintptr_t)key, header.key_bytes},
                            {(void *)(uintptr_t)value->data, value->bytes}};

    path_of(local, 'k', key, path, sizeof(path));
    int error = no_room(replace(local, path, parts, 3));
    return error ? fail(local, error, "write", path) : 0;
}

static int64_t expiry(int64_t ttl_ms)
{
    return ttl_ms ? ng_clock_mono_ns() + ttl_ms * NG_MS : 0;
}

/* ---- Keys ---- */

static int local_set(struct ng_kv *kv, const char *key, const struct ng_kv_bytes *value,
                     int64_t ttl_ms, int64_t deadline_mono_ns)
{
    struct local *local = of(kv);
    int lock = lock_key(local, key, deadline_mono_ns);

    if (lock < 0)
        return lock;
    int error = write_key(local, key, value, expiry(ttl_ms));
    unlock(lock);
    return error;
}

static int local_get(struct ng_kv *kv, const char *key, int64_t deadline_mono_ns,
                     struct ng_kv_bytes *ret_value)
{
    struct local *local = of(kv);
    struct value_header header;
    int error = read_key(local, key, &header);

    if (error == -ENOENT)
        return ng_kv_fail(kv, error, "there is no key %s", key);
    if (error)
        return error;
    *ret_value = (struct ng_kv_bytes){local->value, (size_t)header.value_bytes};
    return 0;
}

static int local_get_many(struct ng_kv *kv, const char *const *keys, size_t count,
                          int64_t deadline_mono_ns, ng_kv_many_fn *each, void *context)
{
    for (size_t i = 0; i < count; i++) {
        struct ng_kv_bytes value;
        int error = local_get(kv, keys[i], deadline_mono_ns, &value);
        if (error && error != -ENOENT)
            return error;
        each(context, i, error ? NULL : &value);
        if (i % 64 == 63 && ng_clock_mono_ns() >= deadline_mono_ns)
            return ng_kv_fail(kv, -ETIMEDOUT, "reading %zu keys took too long", count);
    }
    return 0;
}

static void drain(int fd)
{
    char events[4096];

    while (read(fd, events, sizeof(events)) > 0)
        ;
}

static int local_wait(struct ng_kv *kv, const char *key, int64_t deadline_mono_ns,
                      struct ng_kv_bytes *ret_value)
{
    struct local *local = of(kv);
    struct ng_descriptor watch = NG_DESCRIPTOR_NONE;
    int error = local_get(kv, key, deadline_mono_ns, ret_value);

    if (error != -ENOENT)
        return error;
    int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (fd >= 0 && inotify_add_watch(fd, local->folder, IN_MOVED_TO) < 0) {
        close(fd);
        fd = -1;
    }
    watch = ng_descriptor_keep(fd);
    for (;;) {
        error = local_get(kv, key, deadline_mono_ns, ret_value);
        int64_t left_ns = deadline_mono_ns - ng_clock_mono_ns();
        if (error != -ENOENT)
            break;
        if (left_ns <= 0) {
            error = ng_kv_fail(kv, -ETIMEDOUT, "there still is no key %s", key);
            break;
        }
        bool watched = ng_descriptor_ours(&watch);
        int64_t most_ns = watched ? 1000 * NG_MS : POLL_NS;
        struct pollfd wanted = {.fd = watched ? watch.fd : -1, .events = POLLIN};
        poll(&wanted, 1, (int)(((left_ns < most_ns ? left_ns : most_ns) + NG_MS - 1) / NG_MS));
        if (wanted.revents)
            drain(watch.fd);
    }
    ng_descriptor_close(&watch);
    return error;
}

static int local_add(struct ng_kv *kv, const char *key, int64_t delta, int64_t ttl_ms,
                     int64_t deadline_mono_ns, int64_t *ret_value)
{
    struct local *local = of(kv);
    struct value_header header;
    char text[32];
    int64_t number = 0, expires_mono_ns = 0;
    int lock = lock_key(local, key, deadline_mono_ns);

    if (lock < 0)
        return lock;
    int error = read_key(local, key, &header);
    if (!error) {
        char *end;
        const char *from = (const char *)local->value;
        errno = 0;
        number = strtoll(from, &end, 10);
        expires_mono_ns = header.expires_mono_ns;
        /* What Redis takes: nothing but the number, without blanks and plus. */
        if (errno || end == from || (size_t)(end - from) != header.value_bytes ||
            !strchr("-0123456789", *from))
            error = ng_kv_fail(kv, -EINVAL, "the value of %s is no number", key);
    } else if (error == -ENOENT) {
        error = 0;
    }
    if (!error && __builtin_add_overflow(number, delta, &number))
        error = ng_kv_fail(kv, -ERANGE, "the number at %s would leave its range", key);
    if (!error) {
        struct ng_kv_bytes value = {text, (size_t)sprintf(text, "%" PRId64, number)};
        error = write_key(local, key, &value, ttl_ms ? expiry(ttl_ms) : expires_mono_ns);
    }
    unlock(lock);
    if (!error)
        *ret_value = number;
    return error;
}

static int local_compare_and_set(struct ng_kv *kv, const char *key,
                                 const struct ng_kv_bytes *expected,
                                 const struct ng_kv_bytes *value, int64_t ttl_ms,
                                 int64_t deadline_mono_ns, struct ng_kv_bytes *ret_current)
{
    struct local *local = of(kv);
    struct value_header header;
    int lock = lock_key(local, key, deadline_mono_ns);

    if (lock < 0)
        return lock;
    int error = read_key(local, key, &header);
    if (error == -ENOENT) {
        error = expected ? ng_kv_fail(kv, -ENOENT, "there is no key %s", key) : 0;
    } else if (!error && (!expected || expected->bytes != header.value_bytes ||
                          memcmp(expected->data, local->value, expected->bytes) != 0)) {
        *ret_current = (struct ng_kv_bytes){local->value, (size_t)header.value_bytes};
        error = ng_kv_fail(kv, -EEXIST, "%s has another value", key);
    }
    if (!error)
        error = write_key(local, key, value, expiry(ttl_ms));
    unlock(lock);
    return error;
}

static int local_put_if_absent(struct ng_kv *kv, const char *key, const struct ng_kv_bytes *value,
                               int64_t ttl_ms, int64_t deadline_mono_ns)
{
    struct ng_kv_bytes current;

    return local_compare_and_set(kv, key, NULL, value, ttl_ms, deadline_mono_ns, &current);
}

static int local_remove(struct ng_kv *kv, const char *key, int64_t deadline_mono_ns)
{
    struct local *local = of(kv);
    struct value_header header;
    char path[PATH_MAX];
    int lock = lock_key(local, key, deadline_mono_ns);

    if (lock < 0)
        return lock;
    path_of(local, 'k', key, path, sizeof(path));
    int error = read_key(local, key, &header);
    /* One whose time is over goes as well, and so does a damaged one. */
    if (unlink(path) != 0 && errno != ENOENT)
        error = fail(local, -errno, "remove", path);
    unlock(lock);
    if (error == -ENOENT)
        return ng_kv_fail(kv, error, "there is no key %s", key);
    return error == -EPROTO ? 0 : error;
}

static int local_expire(struct ng_kv *kv, const char *key, int64_t ttl_ms, int64_t deadline_mono_ns)
{
    struct local *local = of(kv);
    struct value_header header;
    int lock = lock_key(local, key, deadline_mono_ns);

    if (lock < 0)
        return lock;
    int error = read_key(local, key, &header);
    if (!error) {
        struct ng_kv_bytes value = {local->value, (size_t)header.value_bytes};
        error = write_key(local, key, &value, expiry(ttl_ms));
    }
    unlock(lock);
    return error == -ENOENT ? ng_kv_fail(kv, error, "there is no key %s", key) : error;
}

/* ---- All keys ---- */

/* A file whose time is over goes, unless somebody has just made it anew or is about to. */
static void remove_expired(struct local *local, const char *path, const char *key)
{
    struct value_header header = {0};
    char found[NG_KV_KEY_MAX + 1];
    int lock = lock_key(local, key, 0);

    if (lock < 0)
        return;
    if (read_file(local, path, &header, found) == -ENOENT && header.magic == VALUE_MAGIC)
        unlink(path);
    unlock(lock);
}

/* Keys that begin with `prefix`, sorted; what nobody needs any more goes. */
static int list_keys(struct local *local, const char *prefix, struct ng_names *names)
{
    struct ng_folder folder;
    const char *name;
    int error = ng_folder_open(&folder, local->folder, false);

    if (error)
        return fail(local, error, "read", "the folder");
    while (!error && (name = ng_folder_next(&folder))) {
        struct value_header header;
        char path[PATH_MAX], key[NG_KV_KEY_MAX + 1];
        struct stat status;
        snprintf(path, sizeof(path), "%s/%s", local->folder, name);
        if (strncmp(name, "t.", 2) == 0 && lstat(path, &status) == 0 &&
            time(NULL) - status.st_mtime > STALE_S)
            unlink(path);
        if (strncmp(name, "k.", 2) != 0)
            continue;
        header.magic = 0;
        int got = read_file(local, path, &header, key);
        if (got == -ENOENT && header.magic == VALUE_MAGIC)
            remove_expired(local, path, key);
        if (got == -ENOMEM || got == -EMFILE || got == -ENFILE || got == -EACCES)
            error = fail(local, got, "read", path);
        else if (got == 0 && strncmp(key, prefix, strlen(prefix)) == 0)
            error = ng_names_add(names, key, strlen(key));
    }
    ng_folder_close(&folder);
    ng_names_sort(names);
    return error;
}

static int local_scan(struct ng_kv *kv, const char *prefix, int64_t deadline_mono_ns,
                      ng_kv_each_fn *each, void *context)
{
    struct local *local = of(kv);
    struct ng_names names = {0};
    int error = list_keys(local, prefix, &names);

    for (size_t i = 0; !error && i < names.count; i++) {
        struct value_header header;
        int got = read_key(local, names.list[i], &header);
        if (got == -ENOENT || got == -EPROTO)
            continue;
        struct ng_kv_bytes value = {local->value, (size_t)header.value_bytes};
        error = got ? got : each(context, names.list[i], &value);
        if (!error && i % 64 == 63 && ng_clock_mono_ns() >= deadline_mono_ns)
            error = ng_kv_fail(kv, -ETIMEDOUT, "reading %zu keys took too long", names.count);
    }
    ng_names_free(&names);
    return error;
}

static int local_clear(struct ng_kv *kv, int64_t deadline_mono_ns)
{
    struct local *local = of(kv);
    struct ng_names names = {0};
    int error = list_keys(local, "", &names);

    for (size_t i = 0; !error && i < names.count; i++) {
        error = local_remove(kv, names.list[i], deadline_mono_ns);
        if (error == -ENOENT)
            error = 0;
    }
    ng_names_free(&names);
    return error;
}

/* ---- Channels ---- */

static uint64_t padded(uint64_t bytes)
{
    return (bytes + 7) & ~UINT64_C(7);
}

static bool good_channel(int fd, struct channel_header *ret_header)
{
    return read_at(fd, ret_header, sizeof(*ret_header), 0) == 0 &&
           ret_header->magic == CHANNEL_MAGIC && ret_header->end >= sizeof(*ret_header);
}

/* A new file for a channel, with `data` (may be NULL) as its first message, in the place of any
 * other. Under its lock. */
static int start_channel(struct local *local, const char *path, uint64_t generation,
                         const struct ng_kv_bytes *data)
{
    static const char zeros[8];
    struct channel_header header = {
        .magic = CHANNEL_MAGIC, .generation = generation, .end = sizeof(header)};
    struct message_header message = {.bytes = data ? data->bytes : 0};
    struct iovec parts[] = {
        {&header, sizeof(header)},
        {&message, sizeof(message)},
        {(void *)(uintptr_t)(data ? data->data : NULL), (size_t)message.bytes},
        {(void *)(uintptr_t)zeros, (size_t)(padded(message.bytes) - message.bytes)}};

    if (data)
        header.end += sizeof(message) + padded(data->bytes);
    return replace(local, path, parts, data ? 4 : 1);
}

static int append(int fd, const struct channel_header *header, const struct ng_kv_bytes *data)
{
    static const char zeros[8];
    struct message_header message = {.bytes = data->bytes};
    uint64_t end = header->end + sizeof(message) + padded(data->bytes);
    struct iovec parts[] = {
        {&message, sizeof(message)},
        {(void *)(uintptr_t)data->data, data->bytes},
        {(void *)(uintptr_t)zeros, (size_t)(padded(data->bytes) - data->bytes)}};

    if (lseek(fd, (off_t)header->end, SEEK_SET) < 0)
        return -errno;
    int error = write_parts(fd, parts, 3);
    if (error)
        return error;
    /* Only now does it count. Eight aligned bytes change at once. */
    ssize_t wrote = pwrite(fd, &end, sizeof(end), offsetof(struct channel_header, end));
    return wrote == sizeof(end) ? 0 : wrote < 0 ? -errno : -EIO;
}

static int local_publish(struct ng_kv *kv, const char *channel, const struct ng_kv_bytes *data,
                         int64_t deadline_mono_ns)
{
    struct local *local = of(kv);
    struct channel_header header;
    char path[PATH_MAX];
    int lock = lock_key(local, channel, deadline_mono_ns), error;

    if (lock < 0)
        return lock;
    path_of(local, 'c', channel, path, sizeof(path));
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 && errno != ENOENT)
        error = -errno;
    else if (fd < 0)
        error = 0; /* nobody has ever subscribed */
    else if (!good_channel(fd, &header))
        error = start_channel(local, path, (uint64_t)ng_clock_unix_ns(), data);
    else if (header.end > CHANNEL_BYTES)
        error = start_channel(local, path, header.generation + 1, data);
    else
        error = append(fd, &header, data);
    if (fd >= 0)
        close(fd);
    unlock(lock);
    return error ? fail(local, no_room(error), "write", path) : 0;
}

/* From its end (`fresh`) or from its beginning. Under its lock where it is to be made. */
static int open_channel(struct local *local, struct subscription *subscription, bool fresh)
{
    struct channel_header header;
    char path[PATH_MAX];

    path_of(local, 'c', subscription->channel, path, sizeof(path));
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -errno;
    if (!good_channel(fd, &header)) {
        close(fd);
        return -EPROTO;
    }
    ng_descriptor_close(&subscription->file);
    subscription->file = ng_descriptor_keep(fd);
    subscription->generation = header.generation;
    subscription->position = fresh ? header.end : sizeof(header);
    return 0;
}

static void watch_channels(struct local *local)
{
    if (ng_descriptor_ours(&local->inotify))
        return;
    int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (fd >= 0 && inotify_add_watch(fd, local->folder, IN_MODIFY | IN_MOVED_TO) < 0) {
        close(fd);
        fd = -1;
    }
    local->inotify = ng_descriptor_keep(fd);
}

static int local_subscribe(struct ng_kv *kv, const char *channel, int64_t deadline_mono_ns)
{
    struct local *local = of(kv);
    char path[PATH_MAX];

    struct subscription *subscription = NULL;
    for (unsigned i = 0; i < local->subscription_count; i++)
        if (strcmp(local->subscriptions[i].channel, channel) == 0)
            subscription = &local->subscriptions[i];
    if (subscription && ng_descriptor_ours(&subscription->file))
        return 0;
    if (!subscription && local->subscription_count == NG_KV_CHANNELS_MAX)
        return ng_kv_fail(kv, -ENOSPC, "at most %d channels", NG_KV_CHANNELS_MAX);
    if (!subscription) {
        subscription = &local->subscriptions[local->subscription_count++];
        *subscription = (struct subscription){.file = NG_DESCRIPTOR_NONE};
        strcpy(subscription->channel, channel);
    }
    watch_channels(local);

    int lock = lock_key(local, channel, deadline_mono_ns);
    if (lock < 0)
        return lock;
    path_of(local, 'c', channel, path, sizeof(path));
    int error = open_channel(local, subscription, true);
    if (error == -ENOENT || error == -EPROTO) {
        error = start_channel(local, path, (uint64_t)ng_clock_unix_ns(), NULL);
        if (!error)
            error = open_channel(local, subscription, true);
    }
    unlock(lock);
    return error ? fail(local, error, "open", path) : 0;
}

static int local_message_fd(struct ng_kv *kv)
{
    struct local *local = of(kv);

    if (!local->subscription_count)
        return -1;
    watch_channels(local);
    return local->inotify.fd;
}

/* Has another file taken the place of the one that is being read? */
static bool replaced(struct local *local, const struct subscription *subscription)
{
    char path[PATH_MAX];
    struct stat status;

    path_of(local, 'c', subscription->channel, path, sizeof(path));
    return stat(path, &status) == 0 && (status.st_ino != subscription->file.inode ||
                                        status.st_dev != subscription->file.device);
}

/* 0; -EAGAIN: none now; -ESTALE: some may have been lost, and the next call goes on; or -errno. */
static int read_message(struct local *local, struct subscription *subscription,
                        struct ng_kv_message *ret_message)
{
    struct channel_header header;
    struct message_header message;
    int fd = subscription->file.fd;

    /* A program that closes what is not its own, or a folder that was emptied. */
    if (!ng_descriptor_ours(&subscription->file)) {
        subscription->file = NG_DESCRIPTOR_NONE;
        int error = open_channel(local, subscription, true);
        return error == -ENOENT ? -EAGAIN : error ? error : -ESTALE;
    }
    for (;;) {
        /* In this order: nobody writes any more to one that was replaced before it was read. */
        bool last = replaced(local, subscription);
        if (!good_channel(fd, &header) || header.end < subscription->position)
            return -EPROTO;
        if (header.end > subscription->position)
            break;
        if (!last)
            return -EAGAIN;
        uint64_t expected = subscription->generation + 1;
        int error = open_channel(local, subscription, false);
        if (error)
            return error == -ENOENT ? -EAGAIN : error;
        if (subscription->generation != expected)
            return -ESTALE;
        fd = subscription->file.fd;
    }
    int error = read_at(fd, &message, sizeof(message), subscription->position);
    if (!error && (message.bytes > NG_KV_VALUE_MAX ||
                   padded(message.bytes) + sizeof(message) > header.end - subscription->position))
        error = -EPROTO;
    if (!error)
        error = grow(&local->message, &local->message_room, (size_t)message.bytes + 1);
    if (!error)
        error = read_at(fd, local->message, (size_t)message.bytes,
                        subscription->position + sizeof(message));
    if (error)
        return error;
    subscription->position += sizeof(message) + padded(message.bytes);
    *ret_message =
        (struct ng_kv_message){subscription->channel, {local->message, (size_t)message.bytes}};
    return 0;
}

static int local_next_message(struct ng_kv *kv, int64_t deadline_mono_ns,
                              struct ng_kv_message *ret_message)
{
    struct local *local = of(kv);
    int result = -EAGAIN;

    /* First, so that what comes from now on is told again. */
    if (local->subscription_count) {
        watch_channels(local);
        if (local->inotify.fd >= 0)
            drain(local->inotify.fd);
    }
    for (unsigned i = 0; i < local->subscription_count && result == -EAGAIN; i++) {
        struct subscription *subscription =
            &local->subscriptions[local->next++ % local->subscription_count];
        result = read_message(local, subscription, ret_message);
        if (result == -EPROTO && open_channel(local, subscription, true) == 0)
            result = -ESTALE; /* a damaged file, but there is a better one now */
        if (result == -ESTALE)
            return ng_kv_fail(kv, result, "messages on %s may have been lost",
                              subscription->channel);
        if (result && result != -EAGAIN)
            return fail(local, result, "read", subscription->channel);
    }
    return result;
}

/* ---- The queue ---- */

static int enqueue(struct local *local, bool publish, const char *key,
                   const struct ng_kv_bytes *data, int64_t ttl_ms)
{
    struct queued *queued = malloc(sizeof(*queued) + data->bytes);

    if (!queued)
        return ng_kv_fail(&local->kv, -ENOMEM, "no memory");
    *queued = (struct queued){.publish = publish, .ttl_ms = ttl_ms, .bytes = data->bytes};
    strcpy(queued->key, key);
    if (data->bytes)
        memcpy(queued->data, data->data, data->bytes);
    if (local->last)
        local->last->next = queued;
    else
        local->first = queued;
    local->last = queued;
    return 0;
}

static int local_queue_set(struct ng_kv *kv, const char *key, const struct ng_kv_bytes *value,
                           int64_t ttl_ms)
{
    return enqueue(of(kv), false, key, value, ttl_ms);
}

static int local_queue_publish(struct ng_kv *kv, const char *channel,
                               const struct ng_kv_bytes *data)
{
    return enqueue(of(kv), true, channel, data, 0);
}

static int local_flush(struct ng_kv *kv, int64_t deadline_mono_ns, size_t *ret_failed)
{
    struct local *local = of(kv);
    size_t failed = 0;
    int first = 0;

    while (local->first) {
        struct queued *queued = local->first;
        struct ng_kv_bytes data = {queued->data, queued->bytes};
        int error = queued->publish
                        ? local_publish(kv, queued->key, &data, deadline_mono_ns)
                        : local_set(kv, queued->key, &data, queued->ttl_ms, deadline_mono_ns);
        failed += error != 0;
        first = first ? first : error;
        local->first = queued->next;
        free(queued);
    }
    local->last = NULL;
    *ret_failed = failed;
    return first;
}

/* ---- Beginning and end ---- */

static void local_abandon(struct ng_kv *kv)
{
    struct local *local = of(kv);

    ng_descriptor_close(&local->inotify);
    for (unsigned i = 0; i < local->subscription_count; i++)
        ng_descriptor_close(&local->subscriptions[i].file);
}

static void local_destroy(struct ng_kv *kv)
{
    struct local *local = of(kv);

    local_abandon(kv);
    while (local->first) {
        struct queued *queued = local->first;
        local->first = queued->next;
        free(queued);
    }
    free(local->value);
    free(local->message);
    free(local);
}

static const struct ng_kv_ops local_ops = {
    .set = local_set,
    .get = local_get,
    .get_many = local_get_many,
    .wait = local_wait,
    .add = local_add,
    .put_if_absent = local_put_if_absent,
    .compare_and_set = local_compare_and_set,
    .remove = local_remove,
    .expire = local_expire,
    .scan = local_scan,
    .publish = local_publish,
    .queue_set = local_queue_set,
    .queue_publish = local_queue_publish,
    .flush = local_flush,
    .subscribe = local_subscribe,
    .message_fd = local_message_fd,
    .next_message = local_next_message,
    .clear = local_clear,
    .abandon = local_abandon,
    .destroy = local_destroy,
};

int ng_kv_local_open(const struct ng_url *url, const struct ng_kv_options *options, char *why,
                     size_t why_bytes, struct ng_kv **ret_kv)
{
    const char *folder = url->path[0] ? url->path : options->folder;
    char name[NAME_MAX * 2];

    if (!folder || !folder[0]) {
        snprintf(why, why_bytes,
                 "store \"local:\": no folder is known; name one, as in "
                 "local:/dev/shm/job");
        return -EINVAL;
    }
    size_t length = ng_kv_encode(options->job, "", name, sizeof(name));
    if (length < sizeof(name) - 1) {
        name[length++] = ':';
        length += ng_kv_encode(options->run, "", name + length, sizeof(name) - length);
    }
    /* As with keys: what is too long ends in a hash. */
    if (length > NAME_BYTES)
        sprintf(name + NAME_BYTES - 40, "%%-%016" PRIx64 "-%016" PRIx64, hash_of(options->job),
                hash_of(options->run));
    struct local *local = calloc(1, sizeof(*local));
    if (!local) {
        snprintf(why, why_bytes, "no memory");
        return -ENOMEM;
    }
    local->kv.ops = &local_ops;
    local->inotify = NG_DESCRIPTOR_NONE;
    ng_proc_boot_id(local->boot_id, sizeof(local->boot_id));
    int error = -ENAMETOOLONG;
    if (snprintf(local->folder, sizeof(local->folder), "%s/kv:%s", folder, name) <
        (int)sizeof(local->folder))
        error = ng_paths_make(local->folder);
    if (error) {
        snprintf(why, why_bytes, "store \"local:%s\": cannot make %s: %s", folder, local->folder,
                 error == -EPERM ? "it is somebody else's, or others may write to it"
                                 : strerror(-error));
        free(local);
        return error;
    }
    *ret_kv = &local->kv;
    return 0;
}
