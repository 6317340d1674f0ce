/*
 * The table of communicators: all records ever used, and NCCL's handle of each.
 *
 * Any thread looks up, lock-free; core/comm/comm.c alone writes, under its lock. Must never move a
 * record, nor free one.
 */
#include "core/comm/comm_table.h"

#include "core/util/memory.h"

#define TOMBSTONE ((void *)1)

static struct ng_comm *comms; /* set before the table */
static struct ng_comm_entry
    no_entries[NG_COMM_PLACES] NG_LARGE; /* of untouched pages, which cost nothing */
struct ng_comm_entry *_Atomic ng_comm_table = no_entries;
static _Atomic uint32_t comm_count;

bool ng_comm_table_make(void)
{
    if (comms)
        return true;
    /* A fixed address spares every reader a lock. */
    struct ng_comm_entry *entries = ng_memory_reserve(NG_COMM_PLACES * sizeof(*entries));
    struct ng_comm *all = ng_memory_reserve(NG_COMM_CAPACITY * sizeof(*all));
    if (!entries || !all)
        return false;
    comms = all;
    atomic_store_explicit(&ng_comm_table, entries, memory_order_release);
    return true;
}

/* Where to look for a handle: 0 its first place, then one behind the other. */
static struct ng_comm_entry *place(struct ng_comm_entry *entries, const void *handle,
                                   uint32_t probe)
{
    if (probe == 0)
        return &entries[ng_comm_hash(handle, NG_COMM_FIRST_BITS)];
    uint32_t home = ng_comm_hash(handle, NG_COMM_TABLE_BITS);
    return &entries[NG_COMM_FIRST_SIZE + ((home + probe - 1) & (NG_COMM_TABLE_SIZE - 1))];
}

struct ng_comm *ng_comm_find_further(const void *handle)
{
    struct ng_comm_entry *entries = atomic_load_explicit(&ng_comm_table, memory_order_acquire);

    for (uint32_t probe = 1; probe <= NG_COMM_TABLE_SIZE; probe++) {
        struct ng_comm_entry *entry = place(entries, handle, probe);
        void *there = atomic_load_explicit(&entry->handle, memory_order_acquire);
        if (there == handle)
            return atomic_load_explicit(&entry->comm, memory_order_relaxed);
        if (!there)
            return NULL;
    }
    return NULL;
}

void ng_comm_table_insert(void *handle, struct ng_comm *comm)
{
    for (uint32_t probe = 0; probe <= NG_COMM_TABLE_SIZE; probe++) {
        struct ng_comm_entry *entry = place(ng_comm_table, handle, probe);
        void *there = atomic_load_explicit(&entry->handle, memory_order_relaxed);
        if (there && there != TOMBSTONE && there != handle)
            continue;
        atomic_store_explicit(&entry->comm, comm, memory_order_relaxed);
        atomic_store_explicit(&entry->handle, handle, memory_order_release);
        return;
    }
}

void ng_comm_table_remove(const void *handle, const struct ng_comm *comm)
{
    for (uint32_t probe = 0; probe <= NG_COMM_TABLE_SIZE; probe++) {
        struct ng_comm_entry *entry = place(ng_comm_table, handle, probe);
        void *there = atomic_load_explicit(&entry->handle, memory_order_relaxed);
        if (!there && probe > 0)
            return;
        if (there == handle && atomic_load_explicit(&entry->comm, memory_order_relaxed) == comm) {
            atomic_store_explicit(&entry->handle, TOMBSTONE, memory_order_release);
            return;
        }
    }
}

uint32_t ng_comm_count(void)
{
    return atomic_load_explicit(&comm_count, memory_order_acquire);
}

struct ng_comm *ng_comm_at(uint32_t index)
{
    return &comms[index];
}

void ng_comm_table_count(uint32_t count)
{
    atomic_store_explicit(&comm_count, count, memory_order_release);
}

void ng_comm_table_forget(void)
{
    /* Threads remember the record of their newest call by its handle. */
    for (uint32_t i = 0; i < comm_count; i++)
        atomic_store(&comms[i].handle, NULL);
    comms = NULL;
    ng_comm_table = no_entries;
    comm_count = 0;
}
