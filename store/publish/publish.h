/*
 * This process on the job's store: its progress, its news, its queries.
 *
 * One thread, "ncclguard/store", owns the connection; no other code touches it. It publishes a
 * progress blob at most once a second while things change, and at once when any process of the job
 * suspects a hang; a sign of life every third of its time to live; and listens. The incident thread
 * talks to it through a mailbox and waits for an answer until a deadline, never longer; a program
 * thread never waits.
 *
 * Keys of a job (store/kv/kv.h), all with a time to live:
 *   n            how many slots were given out so far
 *   p/<slot>     progress of the process in that slot: store/wire/progress.h
 *   l/<slot>     its sign of life; the value: how long, in ms, p/<slot> has been true unchanged
 *   e            incremented with each process that ends
 *   x/<process>  the process that is about to report its death, for a second: it may end before it
 *                does; s/<process>: its silence; y/<slot>: that it is lost; w/<process>: the slot
 *                that neighbours found for it
 *   g/<group>    label of the incarnation that created the group; u/<label>: the one it is part of
 *   a/<group>    for a group that ranks joined under this id: its id for the inviting ranks
 *   t/<group>    rolling hashes of rank 0 of the group: store/publish/publish_hash_logs.c
 *   b/<group>    those of a rank on another host that is far behind rank 0
 *   c/<group>/<rank>  which collective the ranks of its host have reached; c/<group>: rank 0's
 *                answer: store/publish/publish_lockstep.c
 *   i/<epoch>    an incident; i/last: the newest; v/<epoch>/json and /text: its verdict
 *   d/<epoch>/<slot>  that process has written its dump
 *   k/<key>      an entry of ng_board_ops.put: uid of its process, and the data; k/<number>/<key>
 *                those of other runs; h/<key>: who has put it first, and what its launcher says
 *   examine/<level>/<label>   a process examines the whole job; with a number: it has just found
 *                nothing, for this cause (enum ng_claim_cause)
 * and one channel, m.
 */
#ifndef NCCLGUARD_STORE_PUBLISH_PUBLISH_H
#define NCCLGUARD_STORE_PUBLISH_PUBLISH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/nccl/board.h"
#include "core/nccl/disagreement.h"
#include "core/recorder/box.h"
#include "core/util/arena.h"

struct ng_kv;
struct ng_publisher;

struct ng_publisher_options {
    const struct ng_box *own_box; /* read when the thread starts; outlives the publisher */
    int64_t ttl_ns;
    void (*adopt_thread)(void); /* called first by the new thread; NULL nothing */
    void (*wake)(void);         /* there is news: any guard thread, returns at once */
    int (*start_thread)(const char *name, void *(*body)(void *)); /* 0 or -errno */
    /* Ranks of different hosts called different operations: any guard thread, returns at once;
     * NULL: not reported. */
    void (*differ)(const struct ng_disagreement *found);
    bool (*agrees)(void); /* do ranks of several hosts agree before each collective; NULL no */
};

/* The progress that another process published, as it was stored. */
struct ng_peer_progress {
    const void *data;
    size_t bytes;
    uint64_t slot;
    int64_t unchanged_ns; /* how long it has been true since it was written */
    uint64_t root;        /* its incarnation */
    uint64_t question;    /* the newest request to publish that it has answered */
    bool quiet;           /* it did not answer this request */
    bool lives;           /* it gave a sign of life within its time to live */
};

enum ng_ask_kind {
    NG_ASK_BEGIN = 1, /* incident.level, cause in; `result` 0, or -EBUSY */
    NG_ASK_FINISH,    /* incident.level, in_vain in */
    NG_ASK_VIEW,      /* blobs, including our own, and `root` out */
    NG_ASK_UNITE,     /* data in: ids of groups, 64 bits each; -EPERM: they are of different runs */
    NG_ASK_CLAIM,     /* incident in and out; result 0, -EEXIST */
    NG_ASK_JUDGE,     /* incident, documents in */
    NG_ASK_VERDICT,   /* incident in, documents out; -ENOENT */
    NG_ASK_ALIVE, /* incident in, which is read again; -ESRCH: its claimant gives no sign of life */
    NG_ASK_DUMPS, /* incident in; count out */
    NG_ASK_PUT,   /* key, data, keep_ns, words in; result 0, -EEXIST, -ENOSPC */
    NG_ASK_FETCH, /* key in, data out; -ENOENT; -EXDEV: words of another launcher are `data` */
    NG_ASK_HAVE,  /* key (a prefix), first, count in; there out */
    NG_ASK_LEAVE,
};

/* A query with its answer. `arena` owns blobs, documents, key and data, and is passed along with
 * the query. */
struct ng_ask {
    enum ng_ask_kind kind;
    int result;
    struct ng_incident incident;
    enum ng_claim_cause cause;
    bool in_vain;
    uint32_t count;
    struct ng_arena arena;
    struct ng_peer_progress *blobs;
    uint32_t blob_count;
    uint64_t root;
    int64_t deadline_mono_ns;      /* set by ng_publisher_ask */
    struct ng_documents documents; /* an answer's own arena is `arena`, too */
    const char *key;
    const void *data;
    size_t data_bytes;
    int64_t keep_ns;
    const char *words;
    uint32_t first;
    uint64_t there;
};

/* Takes ownership of `kv`. 0 or -errno; on failure `kv` remains the caller's. The thread is started
 * by ng_publisher_start. */
int ng_publisher_open(struct ng_kv *kv, const struct ng_publisher_options *options,
                      struct ng_publisher **ret_publisher);

/* Once, by the incident thread. 0 or -errno. */
int ng_publisher_start(struct ng_publisher *publisher);

/*
 * Ask, and wait until the deadline (CLOCK_MONOTONIC). Incident thread. The result is also returned;
 * -EIO: the store cannot be reached; -ETIMEDOUT: no answer in time, the request may still be
 * carried out. `ask->arena` belongs to the caller again in any case.
 */
int ng_publisher_ask(struct ng_publisher *publisher, struct ng_ask *ask, int64_t deadline_mono_ns);

/* The process ends: a caller that waits for its answer gets -ETIMEDOUT now, and so do later ones;
 * only NG_ASK_LEAVE waits. Any thread. */
void ng_publisher_hurry(struct ng_publisher *publisher);

/* Report without waiting that this process has written its dump for an incident. */
void ng_publisher_report_dump(struct ng_publisher *publisher, const struct ng_incident *incident);

/*
 * Report without waiting for a process of this host that cannot report itself: `data`, which
 * belongs to `arena`, is its progress; the arena is taken over and left empty. `ended`: it will
 * never publish again; else it is only silent, or `frozen`. Ends are reported in the order of the
 * calls. False: there is no room at the moment, and it is not reported.
 */
bool ng_publisher_speak_for(struct ng_publisher *publisher, uint64_t slot, bool ended, bool frozen,
                            struct ng_arena *arena, const void *data, size_t bytes);

/*
 * For a tool, without a publisher: report the end of a process of incarnation `root`, of which
 * `data` is the last progress, unless another process has reported it. `slot`: its slot on the
 * board, 0 not known. Does not wait for a process that has only announced to report it. Tries until
 * the deadline. 0 or -errno.
 */
int ng_publisher_report_end(struct ng_kv *kv, uint64_t root, uint64_t slot, const void *data,
                            size_t bytes, int64_t deadline_mono_ns);

/* NG_BOARD_* bits since the last call. */
unsigned ng_publisher_news(struct ng_publisher *publisher);

/* Grows with each process of the job that ended, as far as the store has reported. */
uint32_t ng_publisher_ended(const struct ng_publisher *publisher);

/* Is the store reachable, as of the last attempt? */
bool ng_publisher_is_up(const struct ng_publisher *publisher);

/* Without waiting: make the thread check what groups agree on (core/check/lockstep_check.h). */
void ng_publisher_wake(struct ng_publisher *publisher);

/* Was the store lost, and is still not back? Any thread. */
bool ng_publisher_is_away(const struct ng_publisher *publisher);

/* Incidents of this incarnation that were received. 0 or -ENOENT. */
int ng_publisher_next_incident(struct ng_publisher *publisher, uint64_t epoch,
                               struct ng_incident *ret_incident);
int ng_publisher_get_incident(struct ng_publisher *publisher, uint64_t epoch,
                              struct ng_incident *ret_incident);

/* Label under which this process's progress is stored; 0 not known yet. */
uint64_t ng_publisher_get_label(const struct ng_publisher *publisher);

/* ng_board_ops.grown, as the store reports it. The first call for an id returns -ENOENT; the thread
 * queries the store for it from then on. 0 or -ENOENT. */
int ng_publisher_find_grown(struct ng_publisher *publisher, uint64_t joined_id, uint64_t *ret_id);

/* In a forked child: close what was inherited. Async-signal-safe; not used afterwards. */
void ng_publisher_abandon(struct ng_publisher *publisher);

#endif
