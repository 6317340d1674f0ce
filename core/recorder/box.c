/*
 * Creates, maps and locks black boxes, and opens those of other processes.
 *
 * Entered at the first communicator, by readers, at exit. Must never cause SIGBUS in the program:
 * every page that it will write is reserved first.
 */
#include "core/recorder/box.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/config/nccl_variables.h"
#include "core/config/settings.h"
#include "core/nccl/group_id.h"
#include "core/recorder/kept.h"
#include "core/recorder/loaded.h"
#include "core/recorder/paths.h"
#include "core/recorder/proc.h"
#include "core/recorder/signature.h"
#include "core/util/clock.h"
#include "core/util/macros.h"
#include "core/util/text.h"

#define GROUP_CAPACITY        NG_BOX_GROUPS_MAX
#define THREAD_CAPACITY       256u
#define DURATION_CAPACITY     256u
#define SAMPLE_CAPACITY       512u  /* a power of two */
#define REGISTRATION_CAPACITY 1024u /* later communicators are not recorded */
#define EDGES_CAPACITY        32u
#define MODULE_CAPACITY       512u
#define ADDRESS_CAPACITY      2048u
#define CODE_CAPACITY         1024u
#define LINES_CAPACITY        (768u << 10)
#define GROUPS_AT_ONCE        16u /* reserved in steps of this many */
#define NAMES_MAX             1000u
#define SETTINGS_MAX          (64u << 10)
#define BYTES_MAX             (UINT64_C(1) << 36) /* no writer makes a larger one */

static size_t page_up(size_t bytes)
{
    return (bytes + 4095) & ~(size_t)4095;
}

static void lay_out(struct ng_box_header *header, uint32_t records,
                    const struct ng_box_identity *identity)
{
/* The next table of the file, from a page on, with room for `more` entries beyond its capacity. */
#define PLACE(table, entry, each, count, more)                                                     \
    do {                                                                                           \
        header->entry##_bytes = (each);                                                            \
        header->entry##_capacity = (count);                                                        \
        header->table##_offset = at;                                                               \
        at += page_up(((size_t)(count) + (more)) * (each));                                        \
    } while (0)
    uint64_t at = NG_BOX_HEADER_BYTES;
    uint32_t kept = NG_MIN(records, NG_KEPT_MAX);

    header->magic = NG_BOX_MAGIC;
    header->version = NG_BOX_VERSION;
    header->header_bytes = sizeof(struct ng_box_header);
    header->kept_capacity = kept;
    PLACE(threads, thread, NG_BOX_THREAD_BYTES, THREAD_CAPACITY, 0);
    PLACE(records, record, NG_BOX_RECORD_BYTES, records, kept);
    PLACE(durations, duration, NG_BOX_DURATION_BYTES, DURATION_CAPACITY, 0);
    PLACE(samples, sample, NG_BOX_SAMPLE_BYTES, SAMPLE_CAPACITY, 0);
    if (identity->faults)
        PLACE(faults, fault, NG_BOX_FAULT_BYTES, identity->faults, 0);
    if (identity->with_registrations)
        PLACE(registrations, registration, NG_BOX_REGISTRATIONS_BYTES, REGISTRATION_CAPACITY, 0);
    PLACE(edges, edges, NG_BOX_EDGES_BYTES, EDGES_CAPACITY, 0);
    if (identity->settings) {
        header->settings_bytes = NG_SETTINGS_BYTES;
        header->settings_offset = at;
        at += page_up(NG_SETTINGS_BYTES);
    }
    if (identity->with_frames && records) {
        PLACE(frames, frames, NG_BOX_FRAMES_BYTES, records, kept);
        PLACE(modules, module, NG_BOX_MODULE_BYTES, MODULE_CAPACITY, 0);
        PLACE(addresses, address, NG_BOX_ADDRESS_BYTES, ADDRESS_CAPACITY, 0);
    }
    if (identity->with_frames && identity->with_python && records) {
        PLACE(python, python, NG_BOX_PYTHON_BYTES, records, kept);
        PLACE(codes, code, NG_BOX_CODE_BYTES, CODE_CAPACITY, 0);
        header->lines_capacity = LINES_CAPACITY;
        header->lines_offset = at;
        at += LINES_CAPACITY;
    }
    PLACE(groups, group, NG_BOX_GROUP_BYTES, GROUP_CAPACITY, 0);
    PLACE(hash_logs, hash_log, NG_BOX_HASH_LOG_BYTES, GROUP_CAPACITY, 0);
    PLACE(host_calls, host_calls, NG_BOX_HOST_CALLS_BYTES, GROUP_CAPACITY, 0);
#undef PLACE
    header->total_bytes = at;
}

static void fill_identity(struct ng_box_header *header, const struct ng_box_identity *identity)
{
    char state;

    header->rank = identity->rank;
    header->world_size = identity->world_size;
    header->local_rank = identity->local_rank;
    header->timeout_ns = identity->timeout_ns;
    header->suspect_ns = identity->suspect_ns;
    header->cold_suspect_ns = identity->cold_suspect_ns;
    header->init_timeout_ns = identity->init_timeout_ns;
    header->pid = getpid();
    ng_proc_stat(0, &state, &header->start_ticks);
    header->pid_namespace = ng_proc_pid_namespace();
    ng_proc_boot_id(header->boot_id, sizeof(header->boot_id));
    gethostname(header->host, sizeof(header->host) - 1);
    snprintf(header->job, sizeof(header->job), "%s", identity->job);
    snprintf(header->program, sizeof(header->program), "%s", program_invocation_short_name);
    snprintf(header->guard_version, sizeof(header->guard_version), "%s", NG_VERSION);
    snprintf(header->run_id, sizeof(header->run_id), "%s",
             identity->run_id ? identity->run_id : "");
    header->launch_run = identity->launch_run;
    if (identity->evidence_folder)
        header->evidence_folder =
            ng_hash(0, identity->evidence_folder, strlen(identity->evidence_folder));
    ng_nccl_variables_read(header->nccl_variables, sizeof(header->nccl_variables));
    header->origin_mono_ns = ng_clock_mono_ns();
    header->origin_unix_ns = ng_clock_unix_ns();
    header->life = NG_BOX_RUNNING;
    header->heartbeat_mono_ns = header->watchdog_mono_ns = header->origin_mono_ns;
    header->record_next = 1;
    header->sample_next = 1;
}

/* From a checked header: the mapped header of another process may change meanwhile. */
static void point(struct ng_box *box, void *map, const struct ng_box_header *header)
{
#define POINT(table, entry)                                                                        \
    box->table = (void *)((char *)map + header->table##_offset);                                   \
    box->entry##_capacity = header->entry##_capacity
    box->header = map;
    POINT(groups, group);
    POINT(threads, thread);
    POINT(records, record);
    POINT(durations, duration);
    POINT(samples, sample);
    POINT(faults, fault);
    POINT(registrations, registration);
    POINT(frames, frames);
    POINT(modules, module);
    POINT(addresses, address);
    POINT(hash_logs, hash_log);
    POINT(host_calls, host_calls);
    POINT(edges, edges);
    POINT(python, python);
    POINT(codes, code);
    POINT(lines, lines);
#undef POINT
    box->settings = (char *)map + header->settings_offset;
    box->settings_bytes = header->settings_bytes;
    box->kept_capacity = header->kept_capacity;
    box->map_bytes = header->total_bytes;
}

uint64_t ng_box_uid(const struct ng_box_header *header)
{
    /* An exec changes only the origin; copies of one virtual machine have the same boot id. */
    uint64_t words[] = {
        ng_hash(0, header->boot_id, strnlen(header->boot_id, sizeof(header->boot_id))),
        ng_hash(0, header->host, strnlen(header->host, sizeof(header->host))),
        header->pid_namespace,
        (uint64_t)header->pid,
        header->start_ticks,
        (uint64_t)header->origin_mono_ns,
        (uint64_t)header->origin_unix_ns};

    return ng_hash(0, words, sizeof(words));
}

uint64_t ng_box_run_word(const struct ng_box_header *header)
{
    uint64_t boot = ng_hash(0, header->boot_id, strnlen(header->boot_id, sizeof(header->boot_id)));

    if (header->launch_run)
        return 0;
    return header->run_id[0]
               ? ng_hash(boot, header->run_id, strnlen(header->run_id, sizeof(header->run_id)))
               : ng_box_uid(header);
}

void ng_box_name(int pid, uint64_t start_ticks, char *ret_name, size_t bytes)
{
    snprintf(ret_name, bytes, NG_BOX_PREFIX "%d-%llu", pid, (unsigned long long)start_ticks);
}

/* Write zeros where nothing has been written yet, if there is no better way to allocate pages. */
static int write_zeros(int fd, uint64_t offset, uint64_t bytes)
{
    static const char zeros[4096];

    while (bytes > 0) {
        size_t part = bytes < sizeof(zeros) ? bytes : sizeof(zeros);
        ssize_t written = pwrite(fd, zeros, part, (off_t)offset);
        if (written < 0 && errno != EINTR)
            return errno;
        if (written > 0) {
            offset += (uint64_t)written;
            bytes -= (uint64_t)written;
        }
    }
    return 0;
}

/* Reserve blocks of a shared file; if that is unsupported or forbidden (seccomp), write zeros. */
static int reserve(int fd, uint64_t offset, uint64_t bytes)
{
    int error = EINTR;

    /* A program's interval timer may interrupt it repeatedly, and undo it each time. */
    for (int tries = 0; error == EINTR && tries < 20; tries++)
        error = fallocate(fd, 0, (off_t)offset, (off_t)bytes) == 0 ? 0 : errno;
    if (error == EPERM || error == ENOSYS || error == EOPNOTSUPP)
        error = write_zeros(fd, offset, bytes);
    return -error;
}

/* Above the limit on file sizes, ftruncate would raise SIGXFSZ in the program. */
static bool fits_limit(uint64_t bytes)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
           limit.rlim_cur >= bytes;
}

/* "name", "name-2", "name-3" … */
static void numbered(const struct ng_box_header *header, unsigned number, char *ret_name,
                     size_t bytes)
{
    ng_box_name(header->pid, header->start_ticks, ret_name, bytes);
    if (number > 1)
        snprintf(ret_name + strlen(ret_name), bytes - strlen(ret_name), "-%u", number);
}

/* Rename, but never replace another file. The first way keeps the name correct in /proc/PID/maps,
 * but not every file system supports it. */
static int rename_new(const char *from, const char *to)
{
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS && errno != EPERM)
        return -errno;
    if (link(from, to) != 0)
        return -errno;
    unlink(from);
    return 0;
}

/* Give the complete file an unused name: never that of a box that others may be reading. */
static int give_name(const char *folder, const char *hidden, const struct ng_box_header *header,
                     char *ret_name, size_t bytes)
{
    char path[PATH_MAX];
    int error = -EEXIST;

    for (unsigned number = 1; error == -EEXIST && number <= NAMES_MAX; number++) {
        numbered(header, number, ret_name, bytes);
        snprintf(path, sizeof(path), "%s/%s", folder, ret_name);
        error = rename_new(hidden, path);
    }
    /* The file system supports neither, or the process may not use them. */
    if (error == -EPERM || error == -EOPNOTSUPP || error == -ENOSYS)
        error = rename(hidden, path) == 0 ? 0 : -errno;
    return error;
}

/* What is in a box before it gets its name. */
static void fill(void *map, const struct ng_box_header *header,
                 const struct ng_settings_source *settings)
{
    memcpy(map, header, sizeof(*header));
    if (settings)
        ng_settings_write(settings, (char *)map + header->settings_offset, header->settings_bytes);
}

static int create_file(const char *folder, const struct ng_box_header *header,
                       const struct ng_settings_source *settings, struct ng_box *ret_box,
                       void **ret_map)
{
    char name[sizeof(ret_box->name)], hidden[PATH_MAX];
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    numbered(header, 1, name, sizeof(name));
    /* Another pid namespace may use the same process ids. */
    if (snprintf(hidden, sizeof(hidden), "%s/.%s-%llu", folder, name,
                 (unsigned long long)header->pid_namespace) >= (int)sizeof(hidden))
        return -ENAMETOOLONG;
    if (!fits_limit(header->total_bytes))
        return -EFBIG;
    int fd = open(hidden, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    struct ng_descriptor file = ng_descriptor_keep(fd);
    fd = file.fd;
    fchmod(fd, 0600); /* regardless of the program's umask: other processes of the job read it */
    int error = ftruncate(fd, (off_t)header->total_bytes) == 0 ? 0 : -errno;
    error = error ?: reserve(fd, 0, header->groups_offset + GROUPS_AT_ONCE * NG_BOX_GROUP_BYTES);
    error = error ?: reserve(fd, header->hash_logs_offset, GROUPS_AT_ONCE * NG_BOX_HASH_LOG_BYTES);
    if (!error)
        error = reserve(fd, header->host_calls_offset, GROUPS_AT_ONCE * NG_BOX_HOST_CALLS_BYTES);
    void *map = MAP_FAILED;
    if (!error) {
        map = mmap(NULL, header->total_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (map == MAP_FAILED)
            error = -errno;
    }
    if (!error) {
        fill(map, header, settings);
        /* Without the lock, neighbours in other pid namespaces cannot tell that we died; nothing
         * else is lost. */
        fcntl(fd, F_OFD_SETLK, &lock);
        error = give_name(folder, hidden, header, name, sizeof(name));
    }
    if (error) {
        if (map != MAP_FAILED)
            munmap(map, header->total_bytes);
        unlink(hidden);
        close(fd);
        return error;
    }
    *ret_map = map;
    ret_box->file = file;
    ret_box->inode = file.inode;
    memcpy(ret_box->name, name, sizeof(name));
    return 0;
}

int ng_box_create(const char *folder, const struct ng_box_identity *identity, uint32_t records,
                  struct ng_box *ret_box)
{
    struct ng_box_header header = {0};
    struct ng_box box = NG_BOX_NONE;
    void *map = NULL;
    int error = -ENOENT;

    lay_out(&header, records, identity);
    fill_identity(&header, identity);
    if (folder)
        error = create_file(folder, &header, identity->settings, &box, &map);
    if (error) {
        map = mmap(NULL, header.total_bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (map == MAP_FAILED)
            return -ENOMEM;
        fill(map, &header, identity->settings);
    }
    point(&box, map, &header);
    box.groups_reserved = error ? GROUP_CAPACITY : GROUPS_AT_ONCE;
    *ret_box = box;
    return folder ? error : 0;
}

int ng_box_leave(const char *folder, const struct ng_loaded *loaded, const char *run_id, int pid,
                 uint64_t start_ticks, int64_t when_mono_ns, int status, char *ret_path,
                 size_t bytes)
{
    const struct ng_box_identity identity = {.rank = loaded->rank,
                                             .world_size = loaded->world_size,
                                             .local_rank = loaded->local_rank,
                                             .job = loaded->job,
                                             .run_id = run_id,
                                             .launch_run = loaded->launch_run};
    struct ng_box_header header = {0};
    struct ng_box box = NG_BOX_NONE;
    void *map;

    lay_out(&header, 0, &identity);
    fill_identity(&header, &identity);
    header.pid = pid;
    header.start_ticks = start_ticks;
    snprintf(header.program, sizeof(header.program), "%s", loaded->program);
    header.seen_end = status;
    header.seen_end_mono_ns = when_mono_ns;
    header.heartbeat_mono_ns = when_mono_ns - 1; /* it was alive just before */
    int error = ng_paths_make(folder) ?: create_file(folder, &header, NULL, &box, &map);
    if (error)
        return error;
    snprintf(ret_path, bytes, "%s/%s", folder, box.name);
    munmap(map, header.total_bytes);
    ng_descriptor_close(&box.file);
    return 0;
}

int ng_box_reserve_group(struct ng_box *box, uint32_t index)
{
    uint32_t first = index - index % GROUPS_AT_ONCE;

    if (index >= box->group_capacity)
        return -ENOSPC;
    if (index < box->groups_reserved)
        return 0;
    /* Closed by the program: nothing can be reserved any more, and an unreserved page could cause
     * SIGBUS. */
    if (!ng_descriptor_ours(&box->file))
        return -EBADF;
    int error =
        reserve(box->file.fd, box->header->groups_offset + (uint64_t)first * NG_BOX_GROUP_BYTES,
                GROUPS_AT_ONCE * NG_BOX_GROUP_BYTES);
    if (!error)
        error = reserve(box->file.fd,
                        box->header->hash_logs_offset + (uint64_t)first * NG_BOX_HASH_LOG_BYTES,
                        GROUPS_AT_ONCE * NG_BOX_HASH_LOG_BYTES);
    if (!error)
        error = reserve(box->file.fd,
                        box->header->host_calls_offset + (uint64_t)first * NG_BOX_HOST_CALLS_BYTES,
                        GROUPS_AT_ONCE * NG_BOX_HOST_CALLS_BYTES);
    if (!error)
        box->groups_reserved = first + GROUPS_AT_ONCE;
    return error;
}

static bool in_file(uint64_t offset, uint64_t count, uint64_t each, uint64_t total)
{
    return offset >= NG_BOX_HEADER_BYTES && offset % 8 == 0 && offset <= total &&
           count <= (1u << 24) && count * each <= total - offset;
}

/* Older writers do not have these tables; damaged ones are ignored. */
static void drop_what_is_not_there(struct ng_box_header *header)
{
/* Has the file `more` entries of a table beyond its capacity, of the size that we know? */
#define HAS(table, entry, each, more)                                                              \
    (header->entry##_bytes == (each) &&                                                            \
     in_file(header->table##_offset, (uint64_t)header->entry##_capacity + (more), each,            \
             header->total_bytes))
#define DROP(table, entry) header->table##_offset = header->entry##_capacity = 0

    if (header->kept_capacity > NG_KEPT_MAX ||
        !HAS(records, record, NG_BOX_RECORD_BYTES, header->kept_capacity))
        header->kept_capacity = 0;
    if (!HAS(durations, duration, NG_BOX_DURATION_BYTES, 0))
        DROP(durations, duration);
    if (!HAS(samples, sample, NG_BOX_SAMPLE_BYTES, 0))
        DROP(samples, sample);
    if (!HAS(faults, fault, NG_BOX_FAULT_BYTES, 0))
        DROP(faults, fault);
    if (!HAS(registrations, registration, NG_BOX_REGISTRATIONS_BYTES, 0))
        DROP(registrations, registration);
    /* These tables are useless without each other. */
    if (header->frames_capacity != header->record_capacity ||
        !HAS(frames, frames, NG_BOX_FRAMES_BYTES, header->kept_capacity) ||
        !HAS(modules, module, NG_BOX_MODULE_BYTES, 0) ||
        !HAS(addresses, address, NG_BOX_ADDRESS_BYTES, 0)) {
        DROP(frames, frames);
        DROP(modules, module);
        DROP(addresses, address);
    }
    if (header->python_capacity != header->frames_capacity ||
        !HAS(python, python, NG_BOX_PYTHON_BYTES, header->kept_capacity) ||
        !HAS(codes, code, NG_BOX_CODE_BYTES, 0) ||
        !in_file(header->lines_offset, header->lines_capacity, 1, header->total_bytes)) {
        DROP(python, python);
        DROP(codes, code);
        DROP(lines, lines);
    }
    if (header->hash_log_capacity > header->group_capacity ||
        !HAS(hash_logs, hash_log, NG_BOX_HASH_LOG_BYTES, 0))
        DROP(hash_logs, hash_log);
    if (header->host_calls_capacity > header->group_capacity ||
        !HAS(host_calls, host_calls, NG_BOX_HOST_CALLS_BYTES, 0))
        DROP(host_calls, host_calls);
    if (!HAS(edges, edges, NG_BOX_EDGES_BYTES, 0))
        DROP(edges, edges);
#undef HAS
#undef DROP
    if (header->settings_bytes > SETTINGS_MAX ||
        !in_file(header->settings_offset, header->settings_bytes, 1, header->total_bytes))
        header->settings_offset = header->settings_bytes = 0;
}

int ng_box_open(const char *path, struct ng_box *ret_box)
{
    struct stat status;
    struct ng_box_header header;

    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return -errno;
    int error = fstat(fd, &status) == 0 ? 0 : -errno;
    if (!error && !S_ISREG(status.st_mode))
        error = -EBADMSG;
    if (!error && pread(fd, &header, sizeof(header), 0) != (ssize_t)sizeof(header))
        error = -EBADMSG;
    if (!error && header.magic != NG_BOX_MAGIC)
        error = -EBADMSG;
    if (!error &&
        (header.version != NG_BOX_VERSION || header.group_bytes != NG_BOX_GROUP_BYTES ||
         header.thread_bytes != NG_BOX_THREAD_BYTES || header.record_bytes != NG_BOX_RECORD_BYTES))
        error = -EPROTO;
    if (!error && ((uint64_t)status.st_size < header.total_bytes ||
                   header.total_bytes < NG_BOX_HEADER_BYTES || header.total_bytes > BYTES_MAX ||
                   !in_file(header.groups_offset, header.group_capacity, NG_BOX_GROUP_BYTES,
                            header.total_bytes) ||
                   !in_file(header.threads_offset, header.thread_capacity, NG_BOX_THREAD_BYTES,
                            header.total_bytes) ||
                   !in_file(header.records_offset, header.record_capacity, NG_BOX_RECORD_BYTES,
                            header.total_bytes)))
        error = -EIO;
    void *copy = MAP_FAILED;
    if (!error) {
        copy = mmap(NULL, header.total_bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (copy == MAP_FAILED)
            error = -errno;
    }
    if (error) {
        close(fd);
        return error;
    }
    memcpy(copy, &header, sizeof(header));
    drop_what_is_not_there(&header);
    *ret_box = NG_BOX_NONE;
    point(ret_box, copy, &header);
    ret_box->is_copy = true;
    ret_box->file = ng_descriptor_keep(fd);
    ret_box->inode = ret_box->file.inode;
    return 0;
}

bool ng_box_is_unreadable(int error)
{
    return error == -ENOENT || error == -EBADMSG || error == -EPROTO || error == -EIO;
}

void ng_box_close(struct ng_box *box, const char *unlink_path)
{
    if (unlink_path)
        unlink(unlink_path);
    if (box->header)
        munmap(box->header, box->map_bytes);
    ng_descriptor_close(&box->file);
    *box = NG_BOX_NONE;
}

/* Writes only to a file that was verified to be a complete box, of a process that has not recorded
 * its end. A descriptor; -ESRCH: it has recorded it; or -errno. */
static int open_for_mark(const char *path, int64_t *ret_heartbeat_mono_ns)
{
    struct ng_box box = NG_BOX_NONE;

    int error = ng_box_open(path, &box);
    if (error)
        return error;
    *ret_heartbeat_mono_ns = atomic_load(&box.header->heartbeat_mono_ns);
    bool runs = atomic_load(&box.header->life) == NG_BOX_RUNNING;
    ng_box_close(&box, NULL);
    if (!runs)
        return -ESRCH;
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | O_NOFOLLOW);
    return fd < 0 ? -errno : fd;
}

int ng_box_mark_execed(const char *path)
{
    int32_t status = NG_EXIT_STATUS_EXEC;
    uint32_t life = NG_BOX_EXECED;
    int64_t when;
    int error = 0;

    int fd = open_for_mark(path, &when);
    if (fd < 0)
        return fd == -ESRCH ? 0 : fd;
    if (pwrite(fd, &status, sizeof(status), offsetof(struct ng_box_header, exit_status)) < 0 ||
        pwrite(fd, &when, sizeof(when), offsetof(struct ng_box_header, life_mono_ns)) < 0 ||
        pwrite(fd, &life, sizeof(life), offsetof(struct ng_box_header, life)) < 0)
        error = -errno;
    close(fd);
    return error;
}

int ng_box_mark_ended(const char *path, int64_t when_mono_ns, int status)
{
    int32_t end = status;
    int64_t heartbeat;
    int error = 0;

    int fd = open_for_mark(path, &heartbeat);
    if (fd < 0)
        return fd == -ESRCH ? 0 : fd;
    if (pwrite(fd, &end, sizeof(end), offsetof(struct ng_box_header, seen_end)) < 0 ||
        pwrite(fd, &when_mono_ns, sizeof(when_mono_ns),
               offsetof(struct ng_box_header, seen_end_mono_ns)) < 0)
        error = -errno;
    close(fd);
    return error;
}

bool ng_box_shows_stopped(const struct ng_box *box, char state, int64_t before_mono_ns)
{
    if (state != 't')
        return state == 'T';
    /* It says so before it is held, maybe after the header was last read. */
    ng_box_read(box, 0);
    return before_mono_ns > NG_LOAD(box->header->held_until_mono_ns);
}

void ng_box_write_name(struct ng_box_group *group, const char *name)
{
    uint64_t words[NG_BOX_NAME_BYTES / sizeof(uint64_t)] = {0};
    char clean[sizeof(words)] = "";
    size_t bytes = strnlen(name, sizeof(clean) - 1);

    memcpy(clean, name, bytes);
    memcpy(words, clean, ng_text_clean(clean, bytes, false));
    for (unsigned i = 0; i < NG_BOX_NAME_BYTES / sizeof(uint64_t); i++)
        NG_STORE(group->name[i], words[i]);
}

void ng_box_read_name(const struct ng_box_group *group, char ret_name[NG_BOX_NAME_BYTES])
{
    for (unsigned i = 0; i < NG_BOX_NAME_BYTES / sizeof(uint64_t); i++) {
        uint64_t word = NG_LOAD(group->name[i]);
        memcpy(ret_name + i * sizeof(word), &word, sizeof(word));
    }
    ret_name[NG_BOX_NAME_BYTES - 1] = '\0';
}

struct ng_signature ng_signature_of_record(const struct ng_box_record *record)
{
    return (struct ng_signature){.op = NG_LOAD(record->op),
                                 .dtype = NG_LOAD(record->dtype),
                                 .redop = NG_LOAD(record->redop),
                                 .root = NG_LOAD(record->root),
                                 .count = NG_LOAD(record->count)};
}
