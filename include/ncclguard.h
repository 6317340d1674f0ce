/*
 * ncclguard.h: for programs that want to tell the guard more than it can see.
 *
 * Nothing here has to be linked, and nothing changes where the guard is not in the process: every
 * function looks for its counterpart in the preloaded library once, with dlsym, and returns
 * NCCLGUARD_ABSENT where there is none. So the same program runs with and without the guard. (With
 * a C library older than glibc 2.34, dlsym itself wants -ldl.)
 *
 * C99 or C++11, and gcc or clang. Groups are named by the ncclComm_t of the program; NULL stands
 * for all groups of the process where it says so.
 *
 * Threads: any thread may call any of these at any time, but not from a signal handler, nor in a
 * child between fork and exec. Those that take a timeout wait, for about two seconds longer at the
 * most; none of the others does. None calls NCCL or CUDA. errno is left as it was.
 *
 * Results: 0, or one of the negative numbers below, which are -errno of Linux.
 */
#ifndef NCCLGUARD_H
#define NCCLGUARD_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    NCCLGUARD_OK = 0,
    NCCLGUARD_ABSENT = -38,     /* no guard in this process, it is switched off, or it is too old */
    NCCLGUARD_INVALID = -22,    /* an argument cannot be meant */
    NCCLGUARD_NO_GROUP = -2,    /* the guard does not know this communicator; for a key: -ENOENT */
    NCCLGUARD_TIMED_OUT = -110, /* it did not come about within the timeout */
    NCCLGUARD_NOT_SHARED = -95, /* NCCLGUARD_STORE=none, or the ranks of this host cannot share */
    NCCLGUARD_STORE_LOST = -5,  /* the store of the job did not answer within the timeout */
    NCCLGUARD_EXISTS = -17,     /* another rank has put something under this key */
    NCCLGUARD_TOO_LONG = -90,   /* a key or value beyond its bound, or a buffer that is too small */
    NCCLGUARD_BUSY = -16,    /* too many threads wait for the guard, or it has a callback already */
    NCCLGUARD_NO_ROOM = -28, /* no memory, no room on the board, or too many keys */
    NCCLGUARD_NO_ACCESS = -13, /* the folder cannot be written to; the guard's log says why */
    NCCLGUARD_NO_PHASE = -1,   /* none was begun */
    NCCLGUARD_GOING = -108     /* the process is ending */
};

/* ---- Groups ---- */

/* Of one group, as this process sees it at this moment. Sequence numbers count the group's
 * collectives from 1; 0 none yet. */
struct ncclguard_group_status {
    size_t size;          /* of this struct: set by the caller, so that it can grow */
    uint64_t id;          /* the same on all ranks; as the log and the dumps name it */
    char name[64];        /* "" none */
    int32_t nranks, rank; /* -1 not known yet */
    uint64_t entered;     /* last collective that was called, */
    uint64_t started;     /* that was seen to begin on the device, */
    uint64_t completed;   /* and to end */
    uint64_t p2p_entered, p2p_completed; /* sends and receives */
    int64_t pending_ns; /* for how long the oldest work has been due; 0 nothing is in flight */
    int32_t aborted;    /* 1: the guard has aborted it, for this reason: */
    char reason[256];   /* "" none */
};

typedef struct ncclguard_group_status ncclguard_group_status;

/* ---- Completions ---- */

enum { NCCLGUARD_COLLECTIVE = 1, NCCLGUARD_SEND_RECV = 2 };

/*
 * One operation that has ended. Times are CLOCK_MONOTONIC, as the watchdog saw them: it looks every
 * 0.5 to 100 ms. Pointers are good until the callback returns.
 */
struct ncclguard_completion {
    size_t size; /* of this struct, as the guard fills it */
    uint64_t group_id;
    const char *group_name; /* "" none */
    const char *operation;  /* "AllReduce": NCCL's function without "nccl" */
    int32_t type;           /* NCCLGUARD_COLLECTIVE, NCCLGUARD_SEND_RECV */
    int32_t peer;           /* root, or peer of a send or receive; -1 none */
    uint64_t sequence;      /* of the group's collectives, or of its sends and receives, from 1 */
    uint64_t bytes;         /* that the caller passed; 0 not known */
    int64_t called_ns, started_ns, completed_ns;
    int64_t duration_ns; /* measured by the device; 0 not measured */
    int32_t result;      /* ncclResult_t: 0, or why it was cut off */
};

typedef struct ncclguard_completion ncclguard_completion;

/*
 * Called by a thread of the guard, one call at a time, in the order in which a group's operations
 * were seen to end, those of one NCCL group in any order; with no lock of the guard held. It may
 * take its time: while it does, up to 4,096 further completions wait, and what does not fit is
 * dropped and counted. It must not call NCCL, CUDA, exit or fork, nor leave by longjmp, a C++
 * exception or pthread_exit.
 */
typedef void (*ncclguard_completion_fn)(void *context, const ncclguard_completion *completion);

/* ---- Bounds ---- */

#define NCCLGUARD_NAME_MAX  63   /* bytes of a group's name */
#define NCCLGUARD_KEY_MAX   64   /* bytes of a key */
#define NCCLGUARD_VALUE_MAX 4096 /* bytes of a value */

/* The library itself defines its functions; everybody else gets what looks for them. */
#ifndef NCCLGUARD_IMPLEMENTATION

/* Stands for what was looked for and is not there. */
static char ncclguard_nowhere_;

/* The symbol, looked for once and kept in *cache; NULL there is none. */
static inline void *ncclguard_find_(void **cache, const char *name)
{
    void *found = __atomic_load_n(cache, __ATOMIC_ACQUIRE);

    if (!found) {
        /* RTLD_DEFAULT, which the C library declares only for _GNU_SOURCE. */
        found = dlsym(NULL, name);
        if (!found) {
            /* Nobody shall take our miss for his own. */
            (void)dlerror();
            found = &ncclguard_nowhere_;
        }
        __atomic_store_n(cache, found, __ATOMIC_RELEASE);
    }
    return found == &ncclguard_nowhere_ ? NULL : found;
}

/*
 * static inline int NAME PARAMETERS: the function of that name in the library, called with
 * ARGUMENTS. Through a union: ISO C has no cast from an object's address to a function's.
 */
#define NCCLGUARD_FUNCTION_(name, parameters, arguments)                                           \
    static inline int name parameters                                                              \
    {                                                                                              \
        static void *cache_;                                                                       \
        union {                                                                                    \
            void *symbol;                                                                          \
            int(*function) parameters;                                                             \
        } found_;                                                                                  \
        found_.symbol = ncclguard_find_(&cache_, #name);                                           \
        return found_.symbol ? found_.function arguments : NCCLGUARD_ABSENT;                       \
    }

#else
#define NCCLGUARD_FUNCTION_(name, parameters, arguments)                                           \
    __attribute__((visibility("default"))) int name parameters;
#endif

/* Is a guard at work in this process? NCCLGUARD_OK, or NCCLGUARD_ABSENT. */
NCCLGUARD_FUNCTION_(ncclguard_present, (void), ())

/* Name a group, for logs, verdicts, dumps and metrics: at most NCCLGUARD_NAME_MAX bytes. */
NCCLGUARD_FUNCTION_(ncclguard_group_name, (void *comm, const char *name), (comm, name))

/* status->size must be set: sizeof(*status). Fields that an older guard does not know are 0. */
NCCLGUARD_FUNCTION_(ncclguard_group_get_status, (void *comm, ncclguard_group_status *status),
                    (comm, status))

/*
 * The program has understood that the guard has aborted communicators, and that what they were
 * working on is garbage: whatever the guard withholds from it for that reason, it does no longer.
 * Nothing happens where nothing was aborted.
 */
NCCLGUARD_FUNCTION_(ncclguard_acknowledge_abort, (void), ())

/* ---- Deadlines; comm NULL: of all groups of this process, also those that are made later ---- */

/* Deadline of the group's operations from now on, those that are pending included; 0: none. It
 * counts before rules (NCCLGUARD_RULES) and NCCLGUARD_TIMEOUT. Say it on every rank that waits. */
NCCLGUARD_FUNCTION_(ncclguard_timeout_set, (void *comm, int64_t timeout_ms), (comm, timeout_ms))

/* Once, for what is pending now: so much more time, until it is suspect and until its deadline. */
NCCLGUARD_FUNCTION_(ncclguard_timeout_extend, (void *comm, int64_t more_ms), (comm, more_ms))

/*
 * A phase in which deadlines rest: a checkpoint, an evaluation, a long compilation. What is pending
 * does not age between begin and end. Every rank that may have to wait for it says so, and ends it
 * once the work that it put on its streams meanwhile is done. Phases nest; each begin needs its
 * end. `what` is for the log; may be NULL.
 */
NCCLGUARD_FUNCTION_(ncclguard_phase_begin, (void *comm, const char *what), (comm, what))
NCCLGUARD_FUNCTION_(ncclguard_phase_end, (void *comm), (comm))

/* ---- Meeting ---- */

/*
 * Wait until all ranks of the group have called this as often as this rank has; NCCL and the
 * devices have no part in it. NCCLGUARD_TIMED_OUT: not all came within `timeout_ms`; then
 * *missing_count says how many did not, as far as is known, and missing[] has the first
 * `missing_room` of their global ranks (of one whose global rank is not known: its rank in the
 * group), in the order of the group. All ranks that come get the same answer; who comes later gets
 * it at once. missing and missing_count may be NULL. Not on one communicator from two threads at a
 * time, nor for several devices one after the other from one thread.
 */
NCCLGUARD_FUNCTION_(ncclguard_barrier,
                    (void *comm, int64_t timeout_ms, int *missing, int missing_room,
                     int *missing_count),
                    (comm, timeout_ms, missing, missing_room, missing_count))

/* ---- Evidence ---- */

/* Write what this process knows, stacks included, as at a deadline, into `folder` (NULL: where the
 * guard's evidence goes), and wait until it is written. Holds the threads still for some
 * milliseconds. */
NCCLGUARD_FUNCTION_(ncclguard_dump, (const char *folder, int64_t timeout_ms), (folder, timeout_ms))

/* ---- Exchange of small data ---- */

/*
 * Put `bytes` (up to NCCLGUARD_VALUE_MAX) under `key` (1 to NCCLGUARD_KEY_MAX bytes), for all ranks
 * of the job. A key is put once: NCCLGUARD_EXISTS where a rank that lives has put something else
 * there. It stays as long as this process lives, and a few seconds beyond (NCCLGUARD_STORE_TTL); so
 * nobody takes what an earlier run has left for new, unless that ended within this time: then
 * number the keys. At most 64 keys a process (NCCLGUARD_NO_ROOM).
 */
NCCLGUARD_FUNCTION_(ncclguard_put,
                    (const char *key, const void *data, size_t bytes, int64_t timeout_ms),
                    (key, data, bytes, timeout_ms))

/* Wait until somebody has put something there: *ret_bytes says how much. NCCLGUARD_TOO_LONG: more
 * than `room`; nothing is copied then. */
NCCLGUARD_FUNCTION_(ncclguard_get,
                    (const char *key, void *data, size_t room, size_t *ret_bytes,
                     int64_t timeout_ms),
                    (key, data, room, ret_bytes, timeout_ms))

/* ---- Completions ---- */

/* From now on `callback` is told of every operation of this process that ends. NCCLGUARD_BUSY:
 * there is one already. */
NCCLGUARD_FUNCTION_(ncclguard_on_completion, (ncclguard_completion_fn callback, void *context),
                    (callback, context))

/*
 * No more callbacks: first what has ended by now is told, for `timeout_ms` at most. Once it
 * returns, the callback is not called again, unless with NCCLGUARD_TIMED_OUT: then it is still
 * inside a call of it. *ret_dropped (may be NULL): how many operations it was not told of. Not from
 * the callback itself.
 */
NCCLGUARD_FUNCTION_(ncclguard_completion_stop, (int64_t timeout_ms, uint64_t *ret_dropped),
                    (timeout_ms, ret_dropped))

#ifdef __cplusplus
}
#endif

#endif
