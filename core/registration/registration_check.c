/*
 * The program's own registrations, and their misuse.
 *
 * Not in the path of a call. Entered by the program's threads when they register, deregister and
 * free; never when they make collectives. Must never call NCCL or the driver.
 */
#include "core/registration/registration_check.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>

#include "core/comm/comm.h"
#include "core/nccl/op.h"
#include "core/runtime/runtime.h"
#include "core/runtime/wake.h"
#include "core/unwind/call_site.h"
#include "core/util/clock.h"
#include "core/util/log.h"
#include "core/util/macros.h"
#include "core/util/memory.h"

#define ENTRIES  4096u
#define PLACES   256u
#define ROUND_NS (250 * NG_MS) /* for another round of the watchdog */
#define PAUSE_NS (200 * NG_US)

struct entry {
    const struct ng_comm *comm; /* NULL free */
    uint32_t generation;        /* of its record */
    uint32_t count;             /* registrations minus deregistrations; 0: released */
    uintptr_t base;
    size_t bytes;
    const void *handle;
    const void *made_by, *ended_by; /* return addresses */
};

/* A misuse that was found, and has still to be logged. */
struct finding {
    enum ng_registration_fault fault;
    const struct ng_comm *comm;
    uintptr_t base;
    size_t bytes;
    const void *before; /* the earlier call site; NULL none */
    enum ng_op op;      /* the operation that uses it */
    uint64_t seq;
};

/* Protects the entries. Never nested with another lock; nothing is called with it held. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry *entries; /* ENTRIES of them; NULL: nothing was ever registered */
static uint32_t used;
static bool overflown; /* some registrations were not kept: an unknown handle may be one of them */

/* Protects the call sites. Never nested with another lock; nothing is called with it held. */
static pthread_mutex_t places_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    uintptr_t address;
    enum ng_registration_fault fault;
} places[PLACES] NG_LARGE;
static uint32_t place_count;

static _Atomic uint64_t found[NG_REGISTRATION_FAULTS];

bool ng_registration_check_on(void)
{
    return ng_guard.checks_registrations;
}

/* ---- Logging ---- */

static bool is_new(enum ng_registration_fault fault, uintptr_t address)
{
    NG_HOLD(&places_lock);
    bool known =
        place_count == PLACES ||
        NG_ANY(place, places, place_count, place->address == address && place->fault == fault);
    if (!known) {
        places[place_count].address = address;
        places[place_count++].fault = fault;
    }
    return !known;
}

static bool is_full(void)
{
    NG_HOLD(&places_lock);
    return place_count == PLACES;
}

static void tell(const struct finding *finding, const void *caller)
{
    char here[NG_CALL_SITE_BYTES], there[NG_CALL_SITE_BYTES] = "a place not known", group[160];

    atomic_fetch_add(&found[finding->fault], 1);
    if (is_full())
        return;
    uintptr_t site = ng_call_site_find(caller);
    if (!is_new(finding->fault, site))
        return;
    ng_comm_describe(finding->comm, group, sizeof(group));
    ng_call_site_name(site, here);
    if (finding->before)
        ng_call_site_name((uintptr_t)finding->before, there);
    switch (finding->fault) {
    case NG_REGISTRATION_AGAIN:
        ng_log(NG_LOG_WARN,
               "NCCLGUARD_CHECK: %zu bytes at 0x%" PRIxPTR
               " are registered with %s a second time, at %s; "
               "they were already at %s",
               finding->bytes, finding->base, group, here, there);
        return;
    case NG_REGISTRATION_UNKNOWN:
        ng_log(NG_LOG_WARN, "NCCLGUARD_CHECK: a registration is given back at %s that %s%s", here,
               finding->before ? "has been given back already, at " : "was never made with ",
               finding->before ? there : group);
        return;
    case NG_REGISTRATION_FREED:
        ng_log(NG_LOG_WARN,
               "NCCLGUARD_CHECK: memory at 0x%" PRIxPTR
               " is freed at %s while %zu bytes of it are registered "
               "with %s, at %s",
               finding->base, here, finding->bytes, group, there);
        return;
    case NG_REGISTRATION_IN_USE:
        ng_log(NG_LOG_WARN,
               "NCCLGUARD_CHECK: memory at 0x%" PRIxPTR " is freed at %s while %s #%" PRIu64
               " of %s uses it, called at %s",
               finding->base, here, ng_op_name(finding->op), finding->seq, group, there);
        return;
    case NG_REGISTRATION_FAULTS:
        return;
    }
}

/* ---- Registrations ---- */

/* Is the communicator that it was made with still alive? */
static bool is_live(const struct entry *entry)
{
    return entry->comm && entry->count &&
           entry->generation == NG_LOAD(entry->comm->group->generation) &&
           NG_LOAD(entry->comm->group->state) <= NG_GROUP_FINALIZED;
}

static struct entry *find_handle(const struct ng_comm *comm, const void *handle)
{
    uint32_t generation = NG_LOAD(comm->group->generation);

    return NG_FIND(entry, entries, used,
                   entry->comm == comm && entry->generation == generation &&
                       entry->handle == handle);
}

/* A free entry, or one whose communicator has ended, or that was released. NULL: no room. */
static struct entry *take_entry(void)
{
    if (!entries) {
        entries = mmap(NULL, ENTRIES * sizeof(*entries), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (entries == MAP_FAILED)
            entries = NULL;
    }
    if (!entries)
        return NULL;
    if (used < ENTRIES)
        return &entries[used++];
    return NG_FIND(one, entries, used, !is_live(one));
}

static bool make_locked(const struct entry *made, struct finding *ret_finding)
{
    struct entry *entry = find_handle(made->comm, made->handle);
    bool again = false;

    for (uint32_t i = 0; i < used && !again; i++) {
        again = is_live(&entries[i]) && entries[i].comm == made->comm &&
                entries[i].base == made->base && entries[i].bytes == made->bytes;
        if (again)
            ret_finding->before = entries[i].made_by;
    }
    uint32_t count = entry ? entry->count : 0; /* NCCL may return the same handle again */
    if (!entry)
        entry = take_entry();
    if (entry) {
        *entry = *made;
        entry->count = count + 1;
    }
    overflown |= !entry;
    return again;
}

void ng_registration_check_made(const struct ng_comm *comm, const void *buffer, size_t bytes,
                                const void *handle, const void *caller)
{
    struct finding finding = {
        .fault = NG_REGISTRATION_AGAIN, .comm = comm, .base = (uintptr_t)buffer, .bytes = bytes};
    int saved = errno;

    /* Without a handle, NCCL has not registered it. */
    if (!comm || !handle)
        return;
    struct entry made = {.comm = comm,
                         .generation = NG_LOAD(comm->group->generation),
                         .base = (uintptr_t)buffer,
                         .bytes = bytes,
                         .handle = handle,
                         .made_by = caller};
    pthread_mutex_lock(&lock);
    bool again = make_locked(&made, &finding);
    pthread_mutex_unlock(&lock);
    if (again)
        tell(&finding, caller);
    errno = saved;
}

void ng_registration_check_ending(const struct ng_comm *comm, const void *handle,
                                  const void *caller)
{
    struct finding finding = {.fault = NG_REGISTRATION_UNKNOWN, .comm = comm};
    int saved = errno;

    if (!comm || !handle)
        return;
    pthread_mutex_lock(&lock);
    struct entry *entry = find_handle(comm, handle);
    bool unknown = entry ? !entry->count : !overflown;
    if (entry) {
        finding.before = entry->ended_by;
        entry->count -= entry->count > 0;
        if (!unknown)
            entry->ended_by = entry->count ? entry->ended_by : caller;
    }
    pthread_mutex_unlock(&lock);
    if (unknown)
        tell(&finding, caller);
    errno = saved;
}

/* ---- Frees ---- */

static bool overlap(uintptr_t a, size_t a_bytes, uintptr_t b, size_t b_bytes)
{
    return a < b ? b - a < a_bytes : a - b < b_bytes;
}

static bool find_registered(uintptr_t base, size_t bytes, struct finding *ret_finding)
{
    bool any = false;

    NG_HOLD(&lock);
    for (uint32_t i = 0; i < used && !any; i++) {
        const struct entry *entry = &entries[i];
        any = is_live(entry) && overlap(entry->base, entry->bytes, base, bytes);
        if (any)
            *ret_finding = (struct finding){.fault = NG_REGISTRATION_FREED,
                                            .comm = entry->comm,
                                            .base = base,
                                            .bytes = entry->bytes,
                                            .before = entry->made_by};
    }
    return any;
}

/* The number of blocks of `count` elements that a rank sends or receives. */
static uint64_t times(enum ng_op op, int nranks, bool sends)
{
    bool all = op == NG_OP_AlltoAll || (sends ? op == NG_OP_ReduceScatter || op == NG_OP_Scatter
                                              : op == NG_OP_AllGather || op == NG_OP_Gather);

    return all && nranks > 0 ? (uint64_t)nranks : 1;
}

static bool uses(const struct ng_box_record *record, const struct ng_comm *comm, uintptr_t base,
                 size_t bytes)
{
    enum ng_op op = (enum ng_op)NG_LOAD(record->op);
    uintptr_t sent = (uintptr_t)NG_LOAD(record->send_buffer),
              received = (uintptr_t)NG_LOAD(record->recv_buffer);
    uint64_t each = NG_LOAD(record->count) * ng_dtype_bytes(NG_LOAD(record->dtype));
    int nranks = NG_LOAD(comm->group->nranks);

    return each && ((sent && overlap(sent, each * times(op, nranks, true), base, bytes)) ||
                    (received && overlap(received, each * times(op, nranks, false), base, bytes)));
}

static bool find_use(uintptr_t base, size_t bytes, struct finding *ret_finding)
{
    const struct ng_box *box = &ng_guard.box;
    uint64_t next = NG_LOAD(box->header->record_next);
    uint32_t capacity = box->record_capacity;

    for (uint64_t id = next > capacity ? next - capacity : 1; id < next; id++) {
        const struct ng_box_record *record = &box->records[ng_record_slot(id, capacity)];
        uint64_t guard = atomic_load_explicit(&record->id_state, memory_order_acquire);
        enum ng_record_state state = ng_record_state(guard);
        uint32_t slot = NG_LOAD(record->group_slot);
        if (ng_record_id(guard) != id || slot >= ng_comm_count() ||
            (state != NG_RECORD_SCHEDULED && state != NG_RECORD_STARTED))
            continue;
        const struct ng_comm *comm = ng_comm_at(slot);
        struct finding finding = {.fault = NG_REGISTRATION_IN_USE,
                                  .comm = comm,
                                  .base = base,
                                  .before = (const void *)(uintptr_t)NG_LOAD(record->caller),
                                  .op = (enum ng_op)NG_LOAD(record->op),
                                  .seq = NG_LOAD(record->coll_seq)};
        if (NG_LOAD(record->group_id) == NG_LOAD(comm->group->id) &&
            uses(record, comm, base, bytes) && NG_LOAD(record->id_state) == guard) {
            *ret_finding = finding;
            return true;
        }
    }
    return false;
}

/* The watchdog sees an end with a delay: wait for a round. False: there was none in time. */
static bool await_round(void)
{
    int64_t begun = ng_clock_mono_ns(), until = begun + ROUND_NS;

    while (NG_LOAD(ng_guard.box.header->watchdog_mono_ns) <= begun) {
        if (!atomic_load(&ng_guard.running) || ng_clock_mono_ns() >= until)
            return false;
        ng_wake_watchdog();
        ng_clock_sleep(PAUSE_NS);
    }
    return true;
}

void ng_registration_check_freeing(uintptr_t base, size_t bytes, bool at_once, const void *caller)
{
    struct finding finding;
    int saved = errno;

    if (find_registered(base, bytes, &finding))
        tell(&finding, caller);
    if (at_once && atomic_load(&ng_guard.running) && ng_guard.box.record_capacity &&
        find_use(base, bytes, &finding) && await_round() && find_use(base, bytes, &finding))
        tell(&finding, caller);
    errno = saved;
}

uint64_t ng_registration_check_found(enum ng_registration_fault fault)
{
    return atomic_load(&found[fault]);
}

void ng_registration_check_after_fork(void)
{
    lock = places_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    used = place_count = 0;
    overflown = false;
}
