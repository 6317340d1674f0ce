/*
 * Where the ranks of one host meet before a collective.
 *
 * Entered by program threads at each collective with NCCLGUARD_CHECK=strict, and by the incident
 * thread, which opens and closes it. Other processes' boxes are mapped, and must never be loaded
 * from: a box that was truncated would raise SIGBUS. Only system calls are given their addresses;
 * they return an error instead, also where the incident thread has unmapped the box meanwhile.
 */
#include "core/check/rendezvous.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/comm/comm.h"
#include "core/util/arena.h"
#include "core/util/clock.h"
#include "core/util/macros.h"
#include "core/util/memory.h"
#include "core/view/hash_log.h"

#define SLICE_NS (5 * NG_MS)
#define AT_ONCE  8u /* ranks per system call */
/* A process may have 65530 mappings, which are the program's. */
#define MAPPED_MAX 4096u

/* Another rank's group slot and hash log; not to be loaded from. */
struct other {
    _Atomic(const struct ng_box_group *) group;
    _Atomic(const struct ng_box_hash_log *) hash_log;
    _Atomic uint32_t generation; /* of its slot */
    /* Used by the incident thread only. */
    int rank;
    bool mapped; /* they are another process's */
};

/* One for each slot of communicators; never freed, so that it stays readable. A calling thread may
 * be reading it when the incident thread changes it, and believes nothing if the version is another
 * one afterwards. */
struct meeting {
    _Atomic uint32_t version;    /* odd: closed */
    _Atomic uint32_t generation; /* of the communicator's slot */
    _Atomic uint32_t kind;       /* enum ng_rendezvous_kind */
    _Atomic uint32_t count;
    struct other others[NG_RENDEZVOUS_MAX];
};

static _Atomic(struct meeting *) meetings[NG_COMM_CAPACITY] NG_LARGE;
/* Used by the incident thread only. */
static struct ng_arena arena;
static uint32_t mapped_count; /* ranks of other processes; each is two mappings */

#define GROUP_BYTES    (offsetof(struct ng_box_group, entered) + sizeof(uint64_t))
#define HASH_LOG_BYTES (offsetof(struct ng_box_hash_log, agreed) + sizeof(uint64_t))

/* What is read of a rank: the first bytes of both. */
struct sight {
    struct ng_box_group group;
    struct ng_box_hash_log hash_log;
};

static uint32_t generation_of(const struct ng_comm *comm)
{
    return atomic_load_explicit(&comm->group->generation, memory_order_acquire);
}

static bool is_open(const struct ng_box_group *group)
{
    return ng_group_state_is_open(atomic_load_explicit(&group->state, memory_order_acquire));
}

/* ---- The incident thread ---- */

static bool is_version_open(uint32_t version)
{
    return version % 2 == 0;
}

static void close_meeting(struct meeting *meeting)
{
    atomic_fetch_or(&meeting->version, 1);
    for (uint32_t i = 0; i < NG_LOAD(meeting->count); i++) {
        const struct other *other = &meeting->others[i];
        if (other->mapped) {
            mapped_count--;
            ng_box_unmap_part(NG_LOAD(other->group), NG_BOX_GROUP_BYTES);
            ng_box_unmap_part(NG_LOAD(other->hash_log), NG_BOX_HASH_LOG_BYTES);
        }
    }
    NG_STORE(meeting->count, 0);
}

static bool add(struct meeting *meeting, const struct ng_rendezvous_place *place)
{
    const struct ng_box *box = place->box;
    const struct ng_box_group *group = &box->groups[place->slot], *at = group;
    const struct ng_box_hash_log *hash_log = &box->hash_logs[place->slot], *log_at = hash_log;
    struct other *other = &meeting->others[NG_LOAD(meeting->count)];

    if (box->is_copy && mapped_count == MAPPED_MAX)
        return false;
    if (box->is_copy) {
        at = ng_box_map_part(box, group, NG_BOX_GROUP_BYTES);
        log_at = at ? ng_box_map_part(box, hash_log, NG_BOX_HASH_LOG_BYTES) : NULL;
        if (at && !log_at)
            ng_box_unmap_part(at, NG_BOX_GROUP_BYTES);
    }
    if (!log_at)
        return false;
    mapped_count += box->is_copy;
    NG_STORE(other->group, at);
    NG_STORE(other->hash_log, log_at);
    NG_STORE(other->generation, NG_LOAD(group->generation));
    other->rank = NG_LOAD(group->group_rank);
    other->mapped = box->is_copy;
    NG_STORE(meeting->count, NG_LOAD(meeting->count) + 1);
    return true;
}

static int rank_at(const struct ng_rendezvous_place *place)
{
    return NG_LOAD(place->box->groups[place->slot].group_rank);
}

/* Is it open for these ranks already? */
static bool is_open_for(const struct meeting *meeting, const struct ng_comm *comm,
                        enum ng_rendezvous_kind kind, const struct ng_rendezvous_place *places,
                        uint32_t count)
{
    bool same = meeting && is_version_open(atomic_load(&meeting->version)) &&
                NG_LOAD(meeting->generation) == generation_of(comm) &&
                NG_LOAD(meeting->kind) == kind && NG_LOAD(meeting->count) == count;

    for (uint32_t i = 0; same && i < count; i++)
        same = meeting->others[i].rank == rank_at(&places[i]);
    return same;
}

/* After a mistake, communicators of one id may be alive that are not one. */
static bool are_distinct(const struct ng_comm *comm, const struct ng_rendezvous_place *places,
                         uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (rank_at(&places[i]) == NG_LOAD(comm->group->group_rank))
            return false;
        NG_EACH (place, places, i)
            if (rank_at(&places[i]) == rank_at(place))
                return false;
    }
    return true;
}

void ng_rendezvous_open(const struct ng_comm *comm, enum ng_rendezvous_kind kind,
                        const struct ng_rendezvous_place *places, uint32_t count)
{
    struct meeting *meeting = atomic_load(&meetings[comm->slot]);

    if (count > NG_RENDEZVOUS_MAX || is_open_for(meeting, comm, kind, places, count) ||
        !are_distinct(comm, places, count))
        return;
    if (!meeting) {
        if (!(meeting = ng_arena_alloc(&arena, sizeof(*meeting))))
            return;
        close_meeting(meeting);
        atomic_store(&meetings[comm->slot], meeting);
    }
    close_meeting(meeting);
    NG_STORE(meeting->generation, generation_of(comm));
    NG_STORE(meeting->kind, kind);
    for (uint32_t i = 0; i < count; i++)
        if (!add(meeting, &places[i])) {
            close_meeting(meeting);
            return;
        }
    atomic_fetch_add(&meeting->version, 1);
}

void ng_rendezvous_drop_ended(void)
{
    for (uint32_t i = 0, count = ng_comm_count(); i < count; i++) {
        struct meeting *meeting = atomic_load(&meetings[i]);
        const struct ng_comm *comm = meeting ? ng_comm_at(i) : NULL;
        if (meeting && is_version_open(atomic_load(&meeting->version)) &&
            (NG_LOAD(meeting->generation) != generation_of(comm) || !is_open(comm->group)))
            close_meeting(meeting);
    }
}

/* ---- The calling thread ---- */

static long futex(const void *word, int operation, uint32_t value, int64_t timeout_ns)
{
    struct timespec timeout = {.tv_sec = timeout_ns / NG_S, .tv_nsec = timeout_ns % NG_S};

    return syscall(SYS_futex, word, operation, value, &timeout, NULL, 0);
}

void ng_rendezvous_announce(const struct ng_comm *comm)
{
    futex(&comm->group->entered, FUTEX_WAKE, INT_MAX, 0);
}

/* Read `count` ranks, up to AT_ONCE. False: one of them is no longer readable. */
static bool read_sights(const struct meeting *meeting, const uint32_t *which, uint32_t count,
                        struct sight *ret_sights)
{
    struct iovec here[2 * AT_ONCE], there[2 * AT_ONCE];

    for (uint32_t i = 0; i < count; i++) {
        const struct other *other = &meeting->others[which[i]];
        here[2 * i] = (struct iovec){&ret_sights[i].group, GROUP_BYTES};
        there[2 * i] = (struct iovec){(void *)NG_LOAD(other->group), GROUP_BYTES};
        here[2 * i + 1] = (struct iovec){&ret_sights[i].hash_log, HASH_LOG_BYTES};
        there[2 * i + 1] = (struct iovec){(void *)NG_LOAD(other->hash_log), HASH_LOG_BYTES};
    }
    return process_vm_readv(getpid(), here, 2 * count, there, 2 * count, 0) ==
           (ssize_t)(count * (GROUP_BYTES + HASH_LOG_BYTES));
}

/* Does the lowest rank of the host say that all hosts have come, or that it did not ask them? */
static bool is_let_go(const struct sight *sight, uint64_t seq)
{
    return NG_LOAD(sight->hash_log.agreed) >= seq || NG_LOAD(sight->hash_log.passed) >= seq;
}

static enum ng_rendezvous_outcome compare(const struct ng_comm *comm, uint64_t seq,
                                          const struct meeting *meeting, uint32_t index,
                                          const struct sight *sight)
{
    uint64_t word = NG_LOAD(comm->hash_log->newest[seq % NG_HASH_LOG_NEWEST]);
    uint32_t generation = NG_LOAD(meeting->others[index].generation);

    if (NG_LOAD(sight->group.id) != NG_LOAD(comm->group->id) || !is_open(&sight->group) ||
        NG_LOAD(sight->group.generation) != generation ||
        NG_LOAD(sight->hash_log.refused) != NG_LOAD(comm->hash_log->refused))
        return NG_RENDEZVOUS_UNCLEAR;
    if (NG_LOAD(sight->group.entered) < seq)
        return NG_RENDEZVOUS_AWAITED;
    if (NG_LOAD(sight->hash_log.newest[seq % NG_HASH_LOG_NEWEST]) != word)
        return NG_RENDEZVOUS_UNCLEAR;
    return NG_LOAD(meeting->kind) == NG_RENDEZVOUS_FOLLOWS && !is_let_go(sight, seq)
               ? NG_RENDEZVOUS_AWAITED
               : NG_RENDEZVOUS_MET;
}

/* What to sleep on for a rank that has not come yet: the lower half of a number (both supported
 * architectures are little-endian), and its value. */
struct late {
    const void *word;
    uint32_t value;
};

static struct late late_of(const struct meeting *meeting, uint32_t index, const struct sight *sight)
{
    const struct other *other = &meeting->others[index];

    if (NG_LOAD(meeting->kind) == NG_RENDEZVOUS_FOLLOWS)
        return (struct late){&NG_LOAD(other->hash_log)->agreed,
                             (uint32_t)NG_LOAD(sight->hash_log.agreed)};
    return (struct late){&NG_LOAD(other->group)->entered, (uint32_t)NG_LOAD(sight->group.entered)};
}

/* Look for the ranks that are not in the set *come yet, and add those that have come. */
static enum ng_rendezvous_outcome look(const struct ng_comm *comm, uint64_t seq,
                                       const struct meeting *meeting, uint64_t *come,
                                       struct late *ret_late)
{
    enum ng_rendezvous_outcome outcome =
        NG_LOAD(meeting->kind) == NG_RENDEZVOUS_LEADS ? NG_RENDEZVOUS_HERE : NG_RENDEZVOUS_MET;
    struct sight sights[AT_ONCE];
    uint32_t which[AT_ONCE];

    for (uint32_t next = 0, count, all = NG_LOAD(meeting->count); next < all;) {
        for (count = 0; next < all && count < AT_ONCE; next++)
            if (!(*come >> next & 1))
                which[count++] = next;
        if (!read_sights(meeting, which, count, sights))
            return NG_RENDEZVOUS_UNCLEAR;
        for (uint32_t i = 0; i < count; i++) {
            enum ng_rendezvous_outcome one = compare(comm, seq, meeting, which[i], &sights[i]);
            if (one == NG_RENDEZVOUS_UNCLEAR)
                return one;
            if (one == NG_RENDEZVOUS_MET) {
                *come |= UINT64_C(1) << which[i];
            } else {
                outcome = NG_RENDEZVOUS_AWAITED;
                *ret_late = late_of(meeting, which[i], &sights[i]);
            }
        }
    }
    return outcome;
}

/* As look; unclear if the meeting is not open for this communicator, or was changed meanwhile. */
static enum ng_rendezvous_outcome look_safely(const struct ng_comm *comm, uint64_t seq,
                                              const struct meeting *meeting, uint32_t version,
                                              uint64_t *come, struct late *ret_late)
{
    if (!is_version_open(version) || NG_LOAD(meeting->generation) != generation_of(comm))
        return NG_RENDEZVOUS_UNCLEAR;
    enum ng_rendezvous_outcome outcome = look(comm, seq, meeting, come, ret_late);
    atomic_thread_fence(memory_order_acquire);
    return NG_LOAD(meeting->version) == version ? outcome : NG_RENDEZVOUS_UNCLEAR;
}

enum ng_rendezvous_outcome ng_rendezvous_await(const struct ng_comm *comm, uint64_t seq,
                                               int64_t until_mono_ns)
{
    const struct meeting *meeting = atomic_load(&meetings[comm->slot]);
    uint32_t version = meeting ? atomic_load(&meeting->version) : 1;
    uint64_t come = 0;
    struct late late;

    for (;;) {
        enum ng_rendezvous_outcome outcome = look_safely(comm, seq, meeting, version, &come, &late);
        int64_t left_ns = until_mono_ns - ng_clock_mono_ns();
        if (outcome != NG_RENDEZVOUS_AWAITED || left_ns <= 0)
            return outcome;
        if (futex(late.word, FUTEX_WAIT, late.value, left_ns < SLICE_NS ? left_ns : SLICE_NS) !=
                0 &&
            errno == EFAULT)
            return NG_RENDEZVOUS_UNCLEAR;
    }
}

void ng_rendezvous_after_fork(void)
{
    for (uint32_t i = 0; i < NG_COMM_CAPACITY; i++)
        atomic_store(&meetings[i], NULL);
    arena = (struct ng_arena){0};
    mapped_count = 0;
}
