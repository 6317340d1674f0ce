/*
 * NCCL calls as the shim would hand them to core, by a program that links several copies of NCCL,
 * on devices of which a test says when they are done, fail or are reset. C, for core's headers with
 * atomics.
 */
#ifndef NCCLGUARD_TESTS_UNIT_MADE_CALLS_H
#define NCCLGUARD_TESTS_UNIT_MADE_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#include <atomic>
#define MADE_ATOMIC(type) std::atomic<type> /* laid out as C's */
extern "C" {
#else
#define MADE_ATOMIC(type) _Atomic(type)
#endif

typedef void (*made_abort_function)(void *comm);

/* What a test tells the devices and libraries, and what they counted. */
extern struct made_calls {
    MADE_ATOMIC(bool) held; /* work does not finish */
    /* Events that are recorded meanwhile stay pending until made_release_recorded. */
    MADE_ATOMIC(bool) holds_recorded;
    MADE_ATOMIC(bool) captures;       /* all streams are being captured into a graph */
    MADE_ATOMIC(bool) timing_refused; /* events with timing cannot be created */
    MADE_ATOMIC(unsigned) query_us;   /* how long an event's query takes */
    MADE_ATOMIC(bool) answers_held;   /* queries for the asynchronous error do not return */
    MADE_ATOMIC(bool) aborts_held;    /* ncclCommAbort does not return */
    MADE_ATOMIC(made_abort_function) on_abort; /* runs in each; NULL nothing */
    MADE_ATOMIC(unsigned) freed_under; /* communicators whose abort ended with a thread inside */
    MADE_ATOMIC(unsigned) reached;     /* calls of the program that came to NCCL */
    MADE_ATOMIC(unsigned) spoiled;     /* NCCL groups that the guard has made fail */
    /* Events with timing that were asked for, those without, and those of both kinds by threads
     * whose calls disturb no capture. */
    MADE_ATOMIC(unsigned) timing_events, plain_events, relaxed_events;
    MADE_ATOMIC(unsigned) relaxed_threads; /* that changed how they capture, the guard's included */
    MADE_ATOMIC(unsigned) mode_exchanges;  /* how often that was done */
    MADE_ATOMIC(unsigned) recorded_events, event_queries; /* how often an event was */
} made_calls;

/* The guard of this process, with so many records. Once, before anything else. */
void made_begin(int64_t records);

/* Faults are injected (core/fault/inject.h); before made_begin. What NCCL got last; "" nothing yet.
 */
void made_arm(const char *faults);
struct made_seen {
    unsigned op;
    uint64_t count;
    int dtype, redop, root, nranks;
    char unique_id[128];
};
struct made_seen made_seen(void);
/* How often fault `index` of them happened, by the black box, and at which collective last. */
uint64_t made_happened(unsigned index, uint64_t *ret_seq);

/* How the guard is configured; before made_begin. And its black box. */
struct ng_config *made_settings(void);
/* NCCLGUARD_TIMING, at any time. */
void made_set_timing(int mode);
const struct ng_box *made_box(void);
/* Policy kill, with this deadline and NCCLGUARD_ABORT_WAIT; before made_begin. */
void made_kill(int64_t timeout_ms, int64_t abort_wait_ms);
void made_teardown(int64_t timeout_ms, int64_t abort_wait_ms); /* likewise */
int made_ending_policy(void); /* enum ng_on_timeout of the verdict that ends the process; -1 none */
void made_set_timeout(const void *comm, int64_t timeout_ms); /* as its program does; 0 none */

/* What the black box holds of a communicator. */
struct made_group {
    uint32_t slot, state, nccl, creator_tid, fate;
    uint64_t id;
    int32_t nranks, group_rank, cuda_error, async_error;
    uint64_t entered, scheduled, completed, p2p_entered, last_call, rolling_hash;
    uint64_t coll_joined, p2p_joined, groups_closed;
    /* Of the oldest work that the watchdog sees waiting; 0 nothing is pending. */
    uint64_t pending_seq, pending_record;
    int64_t pending_age_ns;
    uint32_t pending_started; /* has the device reached it: NG_START_… of the black box */
    uint32_t rests;           /* enum ng_rest: does its clock */
    uint32_t host_entered[6], host_op, host_tid, host_open; /* struct ng_box_host_calls */
    char name[64], pci_id[16];
};
bool made_group_of(const void *comm, struct made_group *ret_group); /* false: not known; NULL */
void made_group_at(uint32_t slot, struct made_group *ret_group);
bool made_group_in_making(struct made_group *ret_group); /* one that is; false: none */

struct ng_comm *made_comm(const void *comm); /* its record */
bool made_has_ended(const void *comm);       /* is the handle known as one that has */
void made_set_rules(const char *path);
void made_configure_deadlines(int64_t timeout_ns, int64_t init_timeout_ns, int64_t suspect_ns,
                              int64_t cold_suspect_ns);

/* The newest record. */
struct made_record {
    uint32_t state, flags, tid;
    int32_t result;
    uint64_t coll_seq, peer_ordinal, rolling_hash;
    int64_t duration_ns;
};
struct made_record made_newest_record(void);
struct made_record made_record_before(unsigned back); /* 0: the newest */

/* core/runtime/unusual.h. With NG_TEST_SHORT_WAY in the environment, calls on library 0 take the
 * short way where nothing is unusual. */
bool made_is_usual(void);

/* A handle that no communicator had before. */
void *made_handle(void);

/* Library 0, 1, ... of the program; `result` is what NCCL answers. */
void made_init(unsigned library, void *comm, int nranks, int rank, const void *config, int result);
void made_split(unsigned library, void *parent, void *child);
void made_init_later(unsigned library, void **comm, void *handle, int nranks);
void made_init_all(unsigned library, void **comms, int ndev);
void made_destroy(unsigned library, void *comm, int result);
void made_all_reduce(unsigned library, void *comm, void *stream, int result);
void made_send(unsigned library, void *comm, void *stream, int peer, int result);
void made_group_start(unsigned library);
void made_group_end(unsigned library, int result);

/*
 * Any call on a communicator, made as by the program: returns the result of NCCL, or of the guard.
 * NCCL writes to `answer`, or creates a communicator at `new_comm`, if these are not NULL. `inside`
 * runs inside NCCL, and its value is NCCL's result; NULL: success.
 */
struct made_call {
    unsigned op; /* enum ng_op */
    void *comm, *stream;
    int *answer;
    void **new_comm;
    int (*inside)(void *argument);
    void *argument;
};
int made_call(unsigned library, const struct made_call *call);
/* Slots of live threads in the black box that have an NCCL group open. */
unsigned made_open_groups(void);
/* The result of a call that is only forwarded, and the text of ncclGetLastError; NULL: NCCL's own.
 */
int made_passed(const void *comm);
const char *made_last_error(const void *comm);

/* Orders to abort, with this bound. */
int made_abort(uint64_t group_id, const char *reason, int64_t wait_ms);
/* For a verdict of this kind (enum ng_verdict_kind). */
int made_abort_for(uint64_t group_id, unsigned kind, const char *reason, int64_t wait_ms);
int made_abort_state(void);
/* The same by a policy, of several groups; `count` 0: of all. */
int made_policy_abort(const uint64_t *group_ids, unsigned count, const char *reason,
                      int64_t wait_ms);
int made_policy_abort_state(void);
bool made_abort_concerns(uint64_t group_id); /* is a policy's order about this group under way */
/* What keeps it from ending: the operation, with the sentence; 0 nothing does. */
unsigned made_stuck(char *ret_why, unsigned bytes);
void made_set_version(unsigned library, int version);
/* What the libraries' own functions saw: how often this handle was aborted, and the number of the
 * NCCL group that it was in (from 1; 0 none). */
unsigned made_aborts(const void *comm);
unsigned made_abort_group(const void *comm);
unsigned made_abort_place(const void *comm); /* in the order of all aborts, from 1; 0 none */
/* The asynchronous error that NCCL reports for this communicator; how often it was queried so far.
 */
void made_set_async_error(const void *comm, int error);
unsigned made_asked(const void *comm);
/* Would an abort have waited for the end of the newest such question? */
bool made_question_was_counted(void);
/* As the guard does it in a forked child; to be called in one, in which its threads are gone. */
void made_fork_child(void);

/* Index of the library that a communicator belongs to; -1 not known. */
int made_library_of(const void *comm);

/* Contexts 0 and 1. */
void *made_stream(unsigned context);
void made_release_recorded(void); /* and holds_recorded is over */
/* The stream of this context does not wait for the default stream from now on, or again does. */
void made_beside_default(unsigned context, bool beside);
void made_enter_context(unsigned context);   /* it is current on the calling thread */
void made_fail(unsigned context, int error); /* every call there answers this from now on */
void made_reset(unsigned context);           /* a new one at the same address */
void made_number_contexts(bool numbered);    /* as drivers from 12.0 on do */

/* The result of cuEventElapsedTime. */
void made_elapsed(int error, float ms);
/* Collectives of the communicator that are among the samples in the black box, in order: how many
 * there are. */
unsigned made_samples(const void *comm, uint64_t *ret_seqs, unsigned room);
/* Measured works of a communicator, all sizes of one operation together, and up to how many bytes
 * the largest had. */
uint64_t made_measured(const void *comm, unsigned op, uint64_t *ret_bytes);

/* The program registers for completed operations, and unregisters: how many were reported to it,
 * and how many were dropped. */
bool made_tell(void);
bool made_told(uint64_t *ret_told, uint64_t *ret_dropped);

/* Wait until the watchdog has seen collective `seq`, or the error. False: not within 20 s. */
bool made_await_completed(const void *comm, uint64_t seq);
bool made_await_pending(const void *comm, uint64_t seq); /* as the oldest that has not finished */
bool made_await_cuda_error(const void *comm, int error);

/*
 * NCCLGUARD_REGISTER, with what stands for ncclCommRegister and ncclCommDeregister in all
 * libraries; after made_begin, before any communicator. Mode: 1 lazy, 2 eager.
 */
void made_registrations(int mode,
                        int (*comm_register)(void *comm, void *buffer, size_t bytes, void **handle),
                        int (*comm_deregister)(void *comm, void *handle));
/* A send of bytes to a peer, or an all-reduce of them; `inside` as in struct made_call. */
int made_transfer(void *comm, void *stream, int peer, const void *buffer, uint64_t bytes,
                  int (*inside)(void *argument), void *argument);
int made_reduce(void *comm, void *stream, const void *buffer, uint64_t bytes,
                int (*inside)(void *argument), void *argument);
struct ng_registration_count;
bool made_registration_count(const void *comm, struct ng_registration_count *ret_count);
/* The same of the slot of its group, as it is after its end, too. */
bool made_registration_count_at(uint32_t slot, struct ng_registration_count *ret_count);

/* Of the frees that met what is registered with a communicator, which may have ended since: has one
 * asked for its own to be given back, which is not tried yet; and of how many it is neither given
 * back nor tried, once none of them is under way any more. `table` is what made_registration_table
 * answered. */
struct ng_registration_table;
struct ng_registration_table *made_registration_table(const void *comm);
bool made_free_asks(const struct ng_registration_table *table);
uint64_t made_frees_unanswered(const struct ng_registration_table *table);

#ifdef __cplusplus
}

#include <chrono>
#include <functional>
#include <thread>

#include <gtest/gtest.h>

/* Whether it comes to be so within 20 s. */
inline bool becomes(const std::function<bool()> &true_now)
{
    auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!true_now()) {
        if (std::chrono::steady_clock::now() > until)
            return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
}

/* What the black box holds of a communicator that is known. */
inline struct made_group group_of(const void *comm)
{
    struct made_group group = {};
    EXPECT_TRUE(made_group_of(comm, &group));
    return group;
}
#endif

#endif
