/*
 * ncclguard.h: for programs that want to give the guard more information than it can observe.
 *
 * Nothing has to be linked, and the program behaves the same if the guard is not in the process:
 * each function looks up its counterpart in the preloaded library once, with dlsym, and returns
 * NCCLGUARD_ABSENT if there is none. The same program therefore runs with and without the guard.
 * (With a C library older than glibc 2.34, dlsym itself needs -ldl.)
 *
 * C99 or C++11, with gcc or clang. A group is named by the program's ncclComm_t; NULL means all
 * groups of the process in the functions that say so.
 *
 * Threads: any thread may call any of these functions at any time, but not from a signal handler
 * and not in a child between fork and exec. Functions with a timeout block, for at most about two
 * seconds longer than the timeout; the others never block. None calls NCCL or CUDA. errno is
 * preserved.
 *
 * Results: 0, or one of the negative numbers below, which are Linux's -errno.
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
    NCCLGUARD_INVALID = -22,    /* an argument is invalid */
    NCCLGUARD_NO_GROUP = -2,    /* the guard does not know this communicator; for a key: -ENOENT */
    NCCLGUARD_TIMED_OUT = -110, /* not done within the timeout */
    NCCLGUARD_NOT_SHARED = -95, /* NCCLGUARD_STORE=none, or the ranks of this host cannot share
                                 * memory */
    NCCLGUARD_STORE_LOST = -5,  /* the job's store did not answer within the timeout */
    NCCLGUARD_EXISTS = -17,     /* another rank has put a different value under this key */
    NCCLGUARD_TOO_LONG = -90,   /* a key or value exceeds its bound, or a buffer is too small */
    NCCLGUARD_BUSY = -16,    /* too many threads wait for the guard, or a callback is already set */
    NCCLGUARD_NO_ROOM = -28, /* no memory, no room on the board, or too many keys */
    NCCLGUARD_NO_ACCESS = -13, /* the folder is not writable; the guard's log says why */
    NCCLGUARD_NO_PHASE = -1,   /* no phase was begun */
    NCCLGUARD_AMBIGUOUS = -76, /* several runs of one name are active, and nothing tells whose a
                                * value is: set NCCLGUARD_JOB to a name of its own for each */
    NCCLGUARD_GOING = -108     /* the process is ending */
};

/* ---- Groups ---- */

/* One group, as this process sees it at this moment. Sequence numbers count the group's collectives
 * from 1; 0 means none yet. */
struct ncclguard_group_status {
    size_t size;          /* of this struct; set by the caller, so that it can grow */
    uint64_t id;          /* the same on all ranks; the log and the dumps use it */
    char name[64];        /* "" none */
    int32_t nranks, rank; /* -1 not known yet */
    uint64_t entered;     /* last collective that was called, */
    uint64_t started;     /* that was seen to start on the device, */
    uint64_t completed;   /* and to complete */
    uint64_t p2p_entered, p2p_completed; /* sends and receives */
    int64_t pending_ns; /* how long the oldest operation has been pending; 0 nothing is in flight */
    int32_t aborted;    /* 1: the guard has aborted it, for this reason: */
    char reason[256];   /* "" none */
};

typedef struct ncclguard_group_status ncclguard_group_status;

/* ---- Completions ---- */

enum { NCCLGUARD_COLLECTIVE = 1, NCCLGUARD_SEND_RECV = 2 };

/*
 * One completed operation. Times are CLOCK_MONOTONIC, as the watchdog observed them: it polls every
 * 0.5 to 100 ms. Pointers are valid until the callback returns.
 */
struct ncclguard_completion {
    size_t size; /* of this struct; set by the guard */
    uint64_t group_id;
    const char *group_name; /* "" none */
    const char *operation;  /* "AllReduce": NCCL's function without "nccl" */
    int32_t type;           /* NCCLGUARD_COLLECTIVE, NCCLGUARD_SEND_RECV */
    int32_t peer;           /* root, or peer of a send or receive; -1 none */
    uint64_t sequence;      /* of the group's collectives, or of its sends and receives, from 1 */
    uint64_t bytes;         /* passed by the caller; 0 not known */
    int64_t called_ns, started_ns, completed_ns;
    int64_t duration_ns; /* measured by the device; 0 not measured */
    int32_t result;      /* ncclResult_t: 0, or why it was aborted */
};

typedef struct ncclguard_completion ncclguard_completion;

/*
 * Called by a thread of the guard, one call at a time, with no lock of the guard held. Operations
 * of a group arrive in the order in which their completion was observed; those of one NCCL group in
 * any order. The callback may be slow: up to 4,096 further completions are queued meanwhile, and
 * the rest are dropped and counted. It must not call NCCL, CUDA, exit or fork, nor leave by
 * longjmp, a C++ exception or pthread_exit.
 */
typedef void (*ncclguard_completion_fn)(void *context, const ncclguard_completion *completion);

/* ---- Bounds ---- */

#define NCCLGUARD_NAME_MAX  63   /* bytes of a group's name */
#define NCCLGUARD_KEY_MAX   64   /* bytes of a key */
#define NCCLGUARD_VALUE_MAX 4096 /* bytes of a value */

/* The library itself defines these functions; in other code they are inline functions that look
 * them up. */
#ifndef NCCLGUARD_IMPLEMENTATION

/* Its address in *cache marks a failed look-up. */
static char ncclguard_nowhere_;

/* The symbol, looked up once and kept in *cache; NULL if there is none. */
static inline void *ncclguard_find_(void **cache, const char *name)
{
    void *found = __atomic_load_n(cache, __ATOMIC_ACQUIRE);

    if (!found) {
        /* RTLD_DEFAULT, which the C library declares only for _GNU_SOURCE. */
        found = dlsym(NULL, name);
        if (!found) {
            /* The program's own dlerror must not report our failed look-up. */
            (void)dlerror();
            found = &ncclguard_nowhere_;
        }
        __atomic_store_n(cache, found, __ATOMIC_RELEASE);
    }
    return found == &ncclguard_nowhere_ ? NULL : found;
}

/*
 * static inline int NAME PARAMETERS: calls the library's function of that name with ARGUMENTS. It
 * uses a union because ISO C has no cast from an object pointer to a function pointer.
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

/* Is the guard active in this process? NCCLGUARD_OK or NCCLGUARD_ABSENT. */
NCCLGUARD_FUNCTION_(ncclguard_present, (void), ())

/* Name a group, for logs, verdicts, dumps and metrics: at most NCCLGUARD_NAME_MAX bytes. */
NCCLGUARD_FUNCTION_(ncclguard_group_name, (void *comm, const char *name), (comm, name))

/* status->size must be set: sizeof(*status). Fields that an older guard does not know are 0. */
NCCLGUARD_FUNCTION_(ncclguard_group_get_status, (void *comm, ncclguard_group_status *status),
                    (comm, status))

/*
 * Acknowledge that the guard has aborted communicators and that the results of their operations are
 * invalid: the guard stops withholding results for that reason. No effect if nothing was aborted.
 */
NCCLGUARD_FUNCTION_(ncclguard_acknowledge_abort, (void), ())

/* ---- Deadlines; comm NULL: all groups of this process, including those created later ---- */

/* Deadline of the group's operations from now on, pending ones included; 0: none. It takes
 * precedence over rules (NCCLGUARD_RULES) and NCCLGUARD_TIMEOUT. Set it on every rank that
 * waits. */
NCCLGUARD_FUNCTION_(ncclguard_timeout_set, (void *comm, int64_t timeout_ms), (comm, timeout_ms))

/*
 * Deadline of the next collective, send or receive on this communicator alone, which the calling
 * thread makes afterwards; 0: none. It takes precedence over ncclguard_timeout_set. In an NCCL
 * group it is that of the group's operations on this communicator and stream, and that of the call
 * ncclGroupEnd itself if the first operation of the group is on this communicator.
 * NCCLGUARD_NO_ROOM: 16 operations with a deadline of their own are pending. Set it on every rank
 * that waits.
 */
NCCLGUARD_FUNCTION_(ncclguard_timeout_next, (void *comm, int64_t timeout_ms), (comm, timeout_ms))

/* Extend once, for operations pending now, both the suspect time and the deadline by this time. */
NCCLGUARD_FUNCTION_(ncclguard_timeout_extend, (void *comm, int64_t more_ms), (comm, more_ms))

/*
 * A phase in which deadlines are suspended: a checkpoint, an evaluation, a long compilation.
 * Pending operations do not age between begin and end. Every rank that may wait for the phase must
 * declare it, and must end it only after the work that it enqueued meanwhile is done. Phases nest;
 * each begin needs its end. `what` is for the log; it may be NULL.
 */
NCCLGUARD_FUNCTION_(ncclguard_phase_begin, (void *comm, const char *what), (comm, what))
NCCLGUARD_FUNCTION_(ncclguard_phase_end, (void *comm), (comm))

/* ---- Pending operations ---- */

/*
 * Wait until no operation of the communicator (NULL: of this process) is pending, as the watchdog
 * observes it; operations that are aborted meanwhile count as ended. It does not wait for the
 * device: an operation that is pending for ever ends this with NCCLGUARD_TIMED_OUT. What other
 * threads call meanwhile is waited for, too.
 */
NCCLGUARD_FUNCTION_(ncclguard_wait_pending, (void *comm, int64_t timeout_ms), (comm, timeout_ms))

/* ---- Barrier ---- */

/*
 * Wait until all ranks of the group have called this as often as this rank has; neither NCCL nor
 * the devices take part. NCCLGUARD_TIMED_OUT: not all ranks arrived within `timeout_ms`; then
 * *missing_count is the number of missing ranks, as far as known, and missing[] has the global
 * ranks of the first `missing_room` of them, in the group's order (the rank in the group if the
 * global rank is not known). All ranks that arrive get the same answer; a rank that arrives later
 * gets it at once. missing and missing_count may be NULL. Do not call it on one communicator from
 * two threads at a time, nor for several devices one after the other from one thread.
 */
NCCLGUARD_FUNCTION_(ncclguard_barrier,
                    (void *comm, int64_t timeout_ms, int *missing, int missing_room,
                     int *missing_count),
                    (comm, timeout_ms, missing, missing_room, missing_count))

/* ---- Evidence ---- */

/* Write what this process knows, stacks included, as at a deadline, into `folder` (NULL: the
 * guard's evidence folder), and wait until it is written. Stops the threads for some
 * milliseconds. */
NCCLGUARD_FUNCTION_(ncclguard_dump, (const char *folder, int64_t timeout_ms), (folder, timeout_ms))

/* ---- Exchange of small data ---- */

/*
 * Put `bytes` (up to NCCLGUARD_VALUE_MAX) under `key` (1 to NCCLGUARD_KEY_MAX bytes), for all ranks
 * of the job. A key can be put only once: NCCLGUARD_EXISTS if a live rank has put a different value
 * there. The entry stays as long as this process lives, and a few seconds longer
 * (NCCLGUARD_STORE_TTL). Another run of the same name has its own entries: as the launcher, the
 * communicators and the ranks tell; and entries of a process that has left are not seen by those
 * that come later. Without a launcher, and before both have a communicator, a process may be of
 * either of two runs: then put and get wait for this to change, and return NCCLGUARD_AMBIGUOUS at
 * the timeout; so does get, before they have a communicator in common, where the launcher's words
 * differ between the two. At most 64 keys per process (NCCLGUARD_NO_ROOM).
 */
NCCLGUARD_FUNCTION_(ncclguard_put,
                    (const char *key, const void *data, size_t bytes, int64_t timeout_ms),
                    (key, data, bytes, timeout_ms))

/* Wait until a rank has put a value there; *ret_bytes is its length. NCCLGUARD_TOO_LONG: it is
 * longer than `room`, and nothing is copied. */
NCCLGUARD_FUNCTION_(ncclguard_get,
                    (const char *key, void *data, size_t room, size_t *ret_bytes,
                     int64_t timeout_ms),
                    (key, data, room, ret_bytes, timeout_ms))

/*
 * Hand a unique id from rank 0 to the other ranks of a communicator that is to be made: rank 0 has
 * filled in `id`, the others get it there. `group` (1 to 48 bytes) is a name that all its ranks use
 * and no other communicator of the run. Results of ncclguard_put and ncclguard_get; in addition the
 * guard's log has an error that says so where rank 0 has written nothing within the timeout
 * (NCCLGUARD_TIMED_OUT), or an id of another size (NCCLGUARD_INVALID).
 */
NCCLGUARD_FUNCTION_(ncclguard_unique_id_exchange,
                    (const char *group, int rank, void *id, size_t bytes, int64_t timeout_ms),
                    (group, rank, id, bytes, timeout_ms))

/* ---- Completions ---- */

/* From now on, call `callback` for every operation of this process that completes. NCCLGUARD_BUSY:
 * a callback is already set. */
NCCLGUARD_FUNCTION_(ncclguard_on_completion, (ncclguard_completion_fn callback, void *context),
                    (callback, context))

/*
 * Remove the callback. Operations completed by now are reported first, for at most `timeout_ms`.
 * The callback is not called after this returns; with NCCLGUARD_TIMED_OUT, one call of it is still
 * running. *ret_dropped (may be NULL): how many operations were not reported. Must not be called
 * from the callback itself.
 */
NCCLGUARD_FUNCTION_(ncclguard_completion_stop, (int64_t timeout_ms, uint64_t *ret_dropped),
                    (timeout_ms, ret_dropped))

#ifdef __cplusplus
}
#endif

#endif
