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
#include "core/view/hash_log.h"

#define SLICE_NS (5 * NG_MS)
#define AT_ONCE  8u /* ranks per system call */

/* Another rank's group slot and hash log; not to be loaded from. */
struct other {
    const struct ng_box_group *group;
    const struct ng_box_hash_log *hash_log;
    int rank;
    uint32_t generation; /* of its slot */
    bool mapped;         /* they are another process's */
};

/* One for each slot of communicators; never freed, so that it stays readable. */
struct meeting {
    atomic_bool open;
    uint32_t generation; /* of the communicator's slot */
    enum ng_rendezvous_kind kind;
    uint32_t count;
    struct other others[NG_RENDEZVOUS_MAX];
};

static _Atomic(struct meeting *) meetings[NG_COMM_CAPACITY];
static struct ng_arena arena; /* used by the incident thread only */

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
    uint32_t state = atomic_load_explicit(&group->state, memory_order_acquire);

    return state == NG_GROUP_CREATING || state == NG_GROUP_READY;
}

/* ---- The incident thread ---- */

static void close_meeting(struct meeting *meeting)
{
    atomic_store(&meeting->open, false);
    for (uint32_t i = 0; i < meeting->count; i++) {
        const struct other *other = &meeting->others[i];
        if (other->mapped) {
            ng_box_unmap_part(other->group, NG_BOX_GROUP_BYTES);
            ng_box_unmap_part(other->hash_log, NG_BOX_TRAIL_BYTES);
        }
    }
    meeting->count = 0;
}

static bool add(struct meeting *meeting, const struct ng_rendezvous_place *place)
{
    const struct ng_box *box = place->box;
    const struct ng_box_group *group = &box->groups[place->slot];
    const struct ng_box_hash_log *hash_log = &box->hash_logs[place->slot];
    struct other other = {group, hash_log, NG_LOAD(group->group_rank), NG_LOAD(group->generation),
                          box->is_copy};

    if (other.mapped) {
        other.group = ng_box_map_part(box, group, NG_BOX_GROUP_BYTES);
        other.hash_log = other.group ? ng_box_map_part(box, hash_log, NG_BOX_TRAIL_BYTES) : NULL;
        if (other.group && !other.hash_log)
            ng_box_unmap_part(other.group, NG_BOX_GROUP_BYTES);
    }
    if (!other.hash_log)
        return false;
    meeting->others[meeting->count++] = other;
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
    bool same = meeting && atomic_load(&meeting->open) &&
                meeting->generation == generation_of(comm) && meeting->kind == kind &&
                meeting->count == count;

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
        for (uint32_t k = 0; k < i; k++)
            if (rank_at(&places[i]) == rank_at(&places[k]))
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
    if (!meeting && !(meeting = ng_arena_alloc(&arena, sizeof(*meeting))))
        return;
    close_meeting(meeting);
    meeting->generation = generation_of(comm);
    meeting->kind = kind;
    for (uint32_t i = 0; i < count; i++)
        if (!add(meeting, &places[i])) {
            close_meeting(meeting);
            return;
        }
    atomic_store(&meeting->open, true);
    atomic_store(&meetings[comm->slot], meeting);
}

void ng_rendezvous_tend(void)
{
    for (uint32_t i = 0, count = ng_comm_count(); i < count; i++) {
        struct meeting *meeting = atomic_load(&meetings[i]);
        const struct ng_comm *comm = meeting ? ng_comm_at(i) : NULL;
        if (meeting && atomic_load(&meeting->open) &&
            (meeting->generation != generation_of(comm) || !is_open(comm->group)))
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
        there[2 * i] = (struct iovec){(void *)other->group, GROUP_BYTES};
        here[2 * i + 1] = (struct iovec){&ret_sights[i].hash_log, HASH_LOG_BYTES};
        there[2 * i + 1] = (struct iovec){(void *)other->hash_log, HASH_LOG_BYTES};
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
    uint32_t generation = meeting->others[index].generation;

    if (NG_LOAD(sight->group.id) != NG_LOAD(comm->group->id) || !is_open(&sight->group) ||
        NG_LOAD(sight->group.generation) != generation ||
        NG_LOAD(sight->hash_log.refused) != NG_LOAD(comm->hash_log->refused))
        return NG_RENDEZVOUS_UNCLEAR;
    if (NG_LOAD(sight->group.entered) < seq)
        return NG_RENDEZVOUS_AWAITED;
    if (NG_LOAD(sight->hash_log.newest[seq % NG_HASH_LOG_NEWEST]) != word)
        return NG_RENDEZVOUS_UNCLEAR;
    return meeting->kind == NG_RENDEZVOUS_FOLLOWS && !is_let_go(sight, seq) ? NG_RENDEZVOUS_AWAITED
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

    if (meeting->kind == NG_RENDEZVOUS_FOLLOWS)
        return (struct late){&other->hash_log->agreed, (uint32_t)NG_LOAD(sight->hash_log.agreed)};
    return (struct late){&other->group->entered, (uint32_t)NG_LOAD(sight->group.entered)};
}

/* Look for the ranks that are not in the set *come yet, and add those that have come. */
static enum ng_rendezvous_outcome look(const struct ng_comm *comm, uint64_t seq,
                                       const struct meeting *meeting, uint64_t *come,
                                       struct late *ret_late)
{
    enum ng_rendezvous_outcome outcome =
        meeting->kind == NG_RENDEZVOUS_LEADS ? NG_RENDEZVOUS_HERE : NG_RENDEZVOUS_MET;
    struct sight sights[AT_ONCE];
    uint32_t which[AT_ONCE];

    for (uint32_t next = 0, count; next < meeting->count;) {
        for (count = 0; next < meeting->count && count < AT_ONCE; next++)
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

enum ng_rendezvous_outcome ng_rendezvous_await(const struct ng_comm *comm, uint64_t seq,
                                               int64_t until_mono_ns)
{
    const struct meeting *meeting = atomic_load(&meetings[comm->slot]);
    uint64_t come = 0;
    struct late late;

    if (!meeting || !atomic_load(&meeting->open) || meeting->generation != generation_of(comm))
        return NG_RENDEZVOUS_UNCLEAR;
    for (;;) {
        enum ng_rendezvous_outcome outcome = look(comm, seq, meeting, &come, &late);
        int64_t now_mono_ns = ng_clock_mono_ns();
        if (outcome != NG_RENDEZVOUS_AWAITED || now_mono_ns >= until_mono_ns)
            return outcome;
        int64_t left_ns = until_mono_ns - now_mono_ns;
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
}
