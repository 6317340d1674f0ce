/*
 * Reads the black box of another process: makes a copy from the file.
 *
 * Entered by the incident thread, and by tools. Must never load from the mapped file: if that is
 * truncated, SIGBUS ends the reader. What was read before a truncation is kept.
 *
 * The writer continues meanwhile, and a copy is made in any order. So a slot with a guard word is
 * read three times: the guard words of the first and third read validate the second.
 */
#include "core/recorder/box.h"
#include "core/util/macros.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PART_BYTES   (16u << 10) /* of slots with guard words, at a time */
#define SPARSE_BYTES (1u << 20)  /* in larger tables, holes are skipped: they stay empty */

static bool copy(const struct ng_box *box, void *ret_bytes, uint64_t offset, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t got =
            pread(box->file.fd, (char *)ret_bytes + done, bytes - done, (off_t)(offset + done));
        if (got <= 0 && !(got < 0 && errno == EINTR))
            return false;
        done += got > 0 ? (size_t)got : 0;
    }
    return true;
}

/* `before` and `after` are the slot as read before and after it: their guard words correspond to
 * those loaded before and after the rest of a mapped slot. */
typedef void settle_fn(void *slot, const void *before, const void *after);

struct table {
    char *slots;
    uint64_t offset; /* in the file */
    size_t slot_bytes;
    settle_fn *settle; /* NULL: one read is enough */
};

/* Read slots `first` up to `end`. False: the file does not have all of them. */
static bool take_slots(const struct ng_box *box, const struct table *table, uint64_t first,
                       uint64_t end)
{
    _Alignas(8) char before[PART_BYTES], after[PART_BYTES];
    size_t each = table->slot_bytes;

    if (!table->settle)
        return copy(box, table->slots + first * each, table->offset + first * each,
                    (end - first) * each);
    while (first < end) {
        uint64_t count = end - first < PART_BYTES / each ? end - first : PART_BYTES / each;
        uint64_t offset = table->offset + first * each;
        char *slots = table->slots + first * each;
        if (!copy(box, before, offset, count * each) || !copy(box, slots, offset, count * each) ||
            !copy(box, after, offset, count * each))
            return false;
        for (size_t at = 0; at < count * each; at += each)
            table->settle(slots + at, before + at, after + at);
        first += count;
    }
    return true;
}

/* Find the next slots that are not a hole of the file. False: none. */
static bool next_slots(const struct ng_box *box, const struct table *table, uint64_t *first,
                       uint64_t *end)
{
    size_t each = table->slot_bytes;
    off_t data = lseek(box->file.fd, (off_t)(table->offset + *first * each), SEEK_DATA);
    off_t hole = data < 0 ? -1 : lseek(box->file.fd, data, SEEK_HOLE);

    if (hole < 0 || ((uint64_t)data - table->offset) / each >= *end)
        return false;
    *first = ((uint64_t)data - table->offset) / each;
    uint64_t behind = ((uint64_t)hole - table->offset + each - 1) / each;
    *end = NG_MIN(*end, behind);
    return true;
}

/* Read `count` slots of a table. False: the file does not have all of them. */
static bool take(const struct ng_box *box, void *slots, size_t slot_bytes, uint64_t count,
                 settle_fn *settle)
{
    struct table table = {slots, (uint64_t)((char *)slots - (char *)box->header), slot_bytes,
                          settle};

    if (count * slot_bytes <= SPARSE_BYTES)
        return take_slots(box, &table, 0, count);
    for (uint64_t first = 0, end = count; next_slots(box, &table, &first, &end);
         first = end, end = count)
        if (!take_slots(box, &table, first, end))
            return false;
    return true;
}

static void settle_group(void *slot, const void *before, const void *after)
{
    struct ng_box_group *group = slot;
    const struct ng_box_group *was = before, *is = after;
    bool same =
        NG_LOAD(was->generation) == NG_LOAD(is->generation) && NG_LOAD(was->id) == NG_LOAD(is->id);

    NG_STORE(group->state, same ? NG_LOAD(was->state) : NG_GROUP_FREE);
    /* The number of completed calls is never ahead of that of entered ones. */
    NG_STORE(group->entered, NG_LOAD(is->entered));
    NG_STORE(group->p2p_entered, NG_LOAD(is->p2p_entered));
    /* The hash belongs to the count. */
    if (NG_LOAD(was->entered) != NG_LOAD(is->entered))
        NG_STORE(group->rolling_hash, 0);
}

/* A thread that has moved on meanwhile is not inside a long call. */
static void settle_thread(void *slot, const void *before, const void *after)
{
    const struct ng_box_thread *was = before, *is = after;

    if (NG_LOAD(was->op) != NG_LOAD(is->op) ||
        NG_LOAD(was->since_mono_ns) != NG_LOAD(is->since_mono_ns))
        NG_STORE(((struct ng_box_thread *)slot)->op, 0);
}

/* The state may have changed meanwhile; the rest is written once for each id. */
static void settle_record(void *slot, const void *before, const void *after)
{
    uint64_t was = NG_LOAD(((const struct ng_box_record *)before)->id_state);
    uint64_t is = NG_LOAD(((const struct ng_box_record *)after)->id_state);

    NG_STORE(((struct ng_box_record *)slot)->id_state,
             ng_record_id(was) == ng_record_id(is) ? was : 0);
}

/* Frames, Python frames, samples, durations and device errors: the guard word is the first word,
 * and 0 is none. */
static void settle_first_word(void *slot, const void *before, const void *after)
{
    uint64_t was = NG_LOAD(*(const _Atomic uint64_t *)before),
             is = NG_LOAD(*(const _Atomic uint64_t *)after);

    NG_STORE(*(_Atomic uint64_t *)slot, was == is ? was : 0);
}

static void settle_duration(void *slot, const void *before, const void *after)
{
    settle_first_word(slot, before, after);
    /* Never smaller than what it counts. */
    NG_STORE(((struct ng_box_duration *)slot)->count,
             NG_LOAD(((const struct ng_box_duration *)after)->count));
}

static void settle_registrations(void *slot, const void *before, const void *after)
{
    uint32_t was = NG_LOAD(((const struct ng_box_registrations *)before)->generation);
    uint32_t is = NG_LOAD(((const struct ng_box_registrations *)after)->generation);

    NG_STORE(((struct ng_box_registrations *)slot)->generation, was == is ? was : 0);
}

static void settle_address(void *slot, const void *before, const void *after)
{
    uint32_t was = NG_LOAD(((const struct ng_box_address *)before)->name_version);
    uint32_t is = NG_LOAD(((const struct ng_box_address *)after)->name_version);

    NG_STORE(((struct ng_box_address *)slot)->name_version, was == is ? was : 0);
}

static void settle_code(void *slot, const void *before, const void *after)
{
    (void)after; /* written once */
    NG_STORE(((struct ng_box_code *)slot)->complete,
             NG_LOAD(((const struct ng_box_code *)before)->complete));
}

static void settle_header(struct ng_box_header *header, const struct ng_box_header *before,
                          const struct ng_box_header *after)
{
    int64_t found = NG_LOAD(before->nan.found_mono_ns);

    NG_STORE(header->error_text_bytes, NG_LOAD(before->error_text_bytes));
    NG_STORE(header->watchdog_stuck_mono_ns, NG_LOAD(before->watchdog_stuck_mono_ns));
    NG_STORE(header->memory_kinds, NG_LOAD(before->memory_kinds));
    NG_STORE(header->nan.found_mono_ns, found == NG_LOAD(after->nan.found_mono_ns) ? found : 0);
    /* Not newer than the errors. */
    NG_STORE(header->devices_looked_mono_ns, NG_LOAD(before->devices_looked_mono_ns));
    for (int i = 0; i < NG_BOX_DEVICE_ERRORS; i++)
        settle_first_word(&header->device_errors[i], &before->device_errors[i],
                          &after->device_errors[i]);
}

/* Read a table that has a slot for each record, and behind them one for each kept record. */
static bool take_records(const struct ng_box *box, void *slots, size_t slot_bytes,
                         uint32_t capacity, settle_fn *settle)
{
    uint64_t records = NG_LOAD(box->header->record_next);

    return take(box, slots, slot_bytes, NG_MIN(capacity, records), settle) &&
           (!capacity || records <= capacity ||
            take(box, (char *)slots + capacity * slot_bytes, slot_bytes, box->kept_capacity,
                 settle));
}

static bool take_rest(const struct ng_box *box)
{
    const struct ng_box_header *header = box->header;
    uint64_t codes = NG_MIN(box->code_capacity, NG_LOAD(header->code_used));

    return take(box, box->durations, NG_BOX_DURATION_BYTES, box->duration_capacity,
                settle_duration) &&
           take(box, box->samples, NG_BOX_SAMPLE_BYTES,
                NG_MIN(box->sample_capacity, NG_LOAD(header->sample_next)), settle_first_word) &&
           take(box, box->faults, NG_BOX_FAULT_BYTES, box->fault_capacity, NULL) &&
           take(box, box->registrations, NG_BOX_REGISTRATIONS_BYTES,
                NG_MIN(box->registration_capacity, NG_LOAD(header->group_used)),
                settle_registrations) &&
           take(box, box->settings, 1, box->settings_bytes, NULL) &&
           take(box, box->edges, NG_BOX_EDGES_BYTES,
                NG_MIN(box->edges_capacity, NG_LOAD(header->group_used)), settle_first_word) &&
           take_records(box, box->frames, NG_BOX_FRAMES_BYTES, box->frames_capacity,
                        settle_first_word) &&
           take(box, box->modules, NG_BOX_MODULE_BYTES,
                NG_MIN(box->module_capacity, NG_LOAD(header->module_used)), NULL) &&
           take(box, box->addresses, NG_BOX_ADDRESS_BYTES,
                NG_MIN(box->address_capacity, NG_LOAD(header->address_used)), settle_address) &&
           take_records(box, box->python, NG_BOX_PYTHON_BYTES, box->python_capacity,
                        settle_first_word) &&
           take(box, box->codes, NG_BOX_CODE_BYTES, codes, settle_code) &&
           take(box, box->lines, 1,
                codes ? NG_MIN(box->lines_capacity, NG_LOAD(header->lines_used)) : 0, NULL);
}

/* Fields that are written once must be unchanged: else it is not this file, or no longer this
 * box. */
static bool copy_header(const struct ng_box *box, struct ng_box_header *ret_header)
{
    return copy(box, ret_header, 0, sizeof(*ret_header)) &&
           memcmp(ret_header, box->header, offsetof(struct ng_box_header, life)) == 0;
}

int ng_box_read(const struct ng_box *box, unsigned parts)
{
    struct ng_box_header before, header, after;
    bool whole = true;

    if (!box->is_copy)
        return 0;
    if (!copy_header(box, &before))
        return ng_descriptor_ours(&box->file) ? -EIO : -EBADF;
    if (parts & NG_BOX_REST && copy_header(box, &header) && copy_header(box, &after)) {
        settle_header(&header, &before, &after);
        memcpy(box->header, &header, sizeof(header));
    } else {
        memcpy(box->header, &before, sizeof(before));
    }
    /* Counts are read before the slots that they count. */
    uint64_t groups = NG_MIN(box->group_capacity, NG_LOAD(box->header->group_used));
    uint64_t threads = NG_MIN(box->thread_capacity, NG_LOAD(box->header->thread_used));
    if (parts & NG_BOX_GROUPS)
        whole = take(box, box->groups, NG_BOX_GROUP_BYTES, groups, settle_group) &&
                take(box, box->hash_logs, NG_BOX_HASH_LOG_BYTES,
                     NG_MIN(box->hash_log_capacity, groups), NULL) &&
                take(box, box->host_calls, NG_BOX_HOST_CALLS_BYTES,
                     NG_MIN(box->host_calls_capacity, groups), NULL);
    if (whole && parts & NG_BOX_THREADS)
        whole = take(box, box->threads, NG_BOX_THREAD_BYTES, threads, settle_thread);
    if (whole && parts & NG_BOX_RECORDS)
        whole = take_records(box, box->records, NG_BOX_RECORD_BYTES, box->record_capacity,
                             settle_record);
    if (whole && parts & NG_BOX_REST)
        whole = take_rest(box);
    return whole ? 0 : -EIO;
}

/* Queried once: 4 KiB, or as the kernel of an arm64 host was built. */
static uintptr_t page_bytes(void)
{
    static _Atomic uintptr_t known;
    uintptr_t bytes = atomic_load_explicit(&known, memory_order_relaxed);

    if (!bytes) {
        bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
        atomic_store_explicit(&known, bytes, memory_order_relaxed);
    }
    return bytes;
}

const void *ng_box_map_part(const struct ng_box *box, const void *part, size_t bytes)
{
    uint64_t offset = (uint64_t)((const char *)part - (const char *)box->header);
    size_t before = offset & (page_bytes() - 1);

    if (!ng_descriptor_ours(&box->file))
        return NULL;
    char *map =
        mmap(NULL, before + bytes, PROT_READ, MAP_SHARED, box->file.fd, (off_t)(offset - before));
    if (map == MAP_FAILED)
        return NULL;
    madvise(map, before + bytes, MADV_DONTFORK);
    madvise(map, before + bytes, MADV_DONTDUMP);
    return map + before;
}

void ng_box_unmap_part(const void *mapped, size_t bytes)
{
    size_t before = (uintptr_t)mapped & (page_bytes() - 1);

    munmap((char *)mapped - before, before + bytes);
}

void ng_box_forget(const struct ng_box *box)
{
    uintptr_t rest = page_bytes() - 1;
    uintptr_t first = ((uintptr_t)box->records + rest) & ~rest;
    uintptr_t end = (uintptr_t)box->groups & ~rest;

    /* As writers lay it out: all large tables are between them. */
    if (box->is_copy && first < end)
        madvise((void *)first, end - first, MADV_DONTNEED);
}
