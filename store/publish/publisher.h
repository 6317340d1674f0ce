/*
 * What the parts of the store's thread share; store/publish/publish.h is its public interface.
 *
 * Functions belong to the thread unless their file says otherwise. They return 0, or the store's
 * -errno, which has been reported already.
 */
#ifndef NCCLGUARD_STORE_PUBLISH_PUBLISHER_H
#define NCCLGUARD_STORE_PUBLISH_PUBLISHER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/util/clock.h"
#include "store/publish/publish.h"

struct ng_progress_head;

#define AGAIN_NS (600 * NG_S)  /* unchanged values are stored again, so as not to expire */
#define KEEP_MS  (3600 * 1000) /* time to live of what the job leaves behind */
#define CALL_NS  (800 * NG_MS) /* one step on the store */
#define REPORT_MS                                                                                  \
    1000 /* a neighbour that fails to make a report that it announced holds others back this long  \
          */
#define INCIDENTS     64u
#define PROXY_REPORTS 32u
#define LABELLED      256u
#define GROWN         16u
#define KEY_BYTES     48

/* A report to make for another process, or of a dump of ours. */
struct ng_proxy_report {
    uint64_t epoch; /* of a dump of ours, if there is no `data` */
    uint64_t slot;  /* 0: it has none yet */
    bool ended, frozen;
    bool by_tool;          /* which waits for no neighbour that has announced it */
    bool ours_to_tell;     /* no other neighbour reports it */
    bool stored;           /* the end is on the store, but not all may know */
    bool in_doubt;         /* whether that was settled: the store did not answer */
    struct ng_arena arena; /* owns `data` */
    const void *data;
    size_t bytes;
};

/* ---- State of each part. Under the lock ---- */

/* publish.c: the query of the incident thread. */
struct ng_publisher_mailbox {
    struct ng_ask ask;
    uint64_t asked, answered; /* serials: the newest query, and the newest answered one */
    bool waiting;             /* the caller that asked `asked` still waits */
    bool hurried;             /* ng_publisher_hurry: only NG_ASK_LEAVE waits */
};

/* publish_proxy_reports.c. */
struct ng_publisher_proxy_reports {
    struct ng_proxy_report list[PROXY_REPORTS];
    uint32_t count, at_work;
};

/* publish_incidents.c: incidents received. */
struct ng_publisher_incidents {
    struct ng_incident list[INCIDENTS]; /* by epoch % INCIDENTS; epoch 0: none */
    uint64_t newest;                    /* epoch */
};

/* publish_groups.c: groups that this process joined; `id` 0: to be queried. */
struct ng_publisher_grown {
    struct {
        uint64_t joined_id, id;
    } list[GROWN];
    uint32_t count;
};

/* ---- For any thread ---- */

struct ng_publisher_state {
    _Atomic uint32_t ended;
    _Atomic unsigned news;
    _Atomic uint64_t label;
    atomic_bool up;
    atomic_bool away; /* `link.lost`, for other threads */
    atomic_bool over; /* the thread has ended: callers do the work themselves */
};

/* ---- Private to the thread ---- */

/* publish_link.c. */
struct ng_publisher_link {
    bool lost, told;
    int64_t lost_ns, warned_ns;
    int64_t alive_ns;   /* when our sign of life was last stored; 0 never */
    int64_t settled_ns; /* until then others may still be reconnecting to the store */
    uint64_t dropped;
};

/* publish_join.c: our slot on the store. */
struct ng_publisher_slot {
    bool came; /* `counted` and `incidents.newest` are as of our arrival, or later */
    bool joined, leaving;
    uint64_t number, count; /* our slot; how many there are */
    int64_t counted;        /* `e` as last read; -1 not yet */
    uint64_t connects;      /* of the kv, when last read */
    int64_t kept_ns;
};

/* publish.c and publish_progress.c: what is published of this process. */
struct ng_publisher_progress {
    uint64_t digest; /* of what was last published */
    bool told_fully; /* that had as many records as for a verdict */
    bool want_refresh;
    uint64_t question; /* number of the newest request to publish: a sign of life repeats it */
    int64_t published_ns, stored_ns, signed_ns, round_ns, changed_ns;
};

/* publish_groups.c: the runs to which we belong. */
struct ng_publisher_labels {
    uint64_t own, root;
    uint64_t groups[LABELLED]; /* groups that were registered under our label */
    uint32_t count;
    uint64_t *living; /* live slots of our incarnation when the job was last examined */
    uint32_t living_count, living_room;
};

/* publish_neighbour_watch.c. */
struct ng_publisher_watch {
    int64_t walked_ns; /* when we looked for the next live process */
    int64_t grown_ns;  /* when slots were last added */
    uint64_t slot;     /* the slot that we watch; 0 none yet */
    bool gap;          /* an empty slot was passed on the way to it */
};

/* publish_incidents.c, by level. */
struct ng_publisher_looks {
    enum ng_claim_cause causes[NG_INCIDENT_LIMIT]; /* why this process examines the job … */
    uint64_t labels[NG_INCIDENT_LIMIT];            /* … and under which label */
};

/* publish_hash_logs.c. */
struct ng_publisher_compare {
    uint32_t at;                    /* the group whose hash log was last published or compared */
    struct ng_hash_log_pace *paces; /* by slot of the group; allocated when first needed */
};

/* publish_lockstep.c. */
struct ng_publisher_agree {
    struct ng_agree_pace *paces; /* by slot of the group; allocated when first needed */
    uint64_t connects;           /* of the kv, when all of that was last republished */
    int64_t next_ns; /* when ng_publisher_agree is next due; INT64_MAX: with the rounds */
};

/* publish_entries.c: our entries that live as long as we do. */
struct ng_publisher_entries {
    struct ng_arena arena; /* owns what follows */
    struct {
        const char *key; /* on the store */
        void *value;
        size_t bytes;
        const char *hint_key;
        void *hint;
        bool hint_is_ours; /* else it is another process's */
    } list[NG_BOARD_KEEP_MAX];
    uint32_t count;
    int64_t kept_ns;
    uint64_t ended_before; /* ends of processes of the job when we came */
    uint64_t foreign;      /* the root of another run; 0 none found yet */
    /* Of the entry with other words that was last looked at: its process, 0 none; is it of another
     * run, as ranks or runs say, or may it be ours; and when that is looked at again. */
    uint64_t foreign_uid;
    bool foreign_is_another;
    int64_t foreign_again_ns;
};

struct ng_publisher {
    struct ng_publisher_options options;
    struct ng_descriptor wake; /* written before the thread starts */

    /* Protects what follows, down to `state`. Nests inside nothing; held for copies. */
    pthread_mutex_t lock;
    pthread_cond_t answer_came;
    struct ng_publisher_mailbox mailbox;
    struct ng_publisher_proxy_reports proxy_reports;
    struct ng_publisher_incidents incidents;
    struct ng_publisher_grown grown;

    struct ng_publisher_state state;

    struct ng_kv *kv;
    struct ng_publisher_link link;
    struct ng_publisher_slot slot;
    struct ng_publisher_progress progress;
    struct ng_publisher_labels labels;
    struct ng_publisher_watch watch;
    struct ng_publisher_looks looks;
    struct ng_publisher_compare compare;
    struct ng_publisher_agree agree;
    struct ng_publisher_entries entries;
};

/* This process, as others know it. */
static inline uint64_t ng_publisher_uid(const struct ng_publisher *p)
{
    return ng_box_uid(p->options.own_box->header);
}

/* A deadline this far from now. */
static inline int64_t ng_publisher_in(int64_t ns)
{
    return ng_clock_mono_ns() + ns;
}

/* ---- publish_link.c: the store, its loss and its return ---- */

/* Call after each request to the store; returns `error`. If it means that the store is lost, that
 * is logged once, and everything is published again when it is back. Every failure passes through
 * here. */
int ng_publisher_failed(struct ng_publisher *p, int error);
/* The store answers: if it was lost, it is back. */
void ng_publisher_worked(struct ng_publisher *p);
/* Log, once in a while, that the store is lost. */
void ng_publisher_warn(struct ng_publisher *p);
/* Our sign of life has been stored. */
void ng_publisher_signed(struct ng_publisher *p);
/* False: after a loss, others may still be reconnecting, and silence proves nothing. */
bool ng_publisher_is_settled(const struct ng_publisher *p);
/* Send what is queued. */
int ng_publisher_flush(struct ng_publisher *p);
/* News, NG_BOARD_* bits, for the incident thread. */
void ng_publisher_tell(struct ng_publisher *p, unsigned bits);
/* "p/17", "x/00c0ffee00c0ffee": keys of a slot, and of a process. */
void ng_publisher_number_key(char ret_key[KEY_BYTES], char kind, uint64_t number);
void ng_publisher_uid_key(char ret_key[KEY_BYTES], char kind, uint64_t uid);
/* A number on the store; 0 if there is none. */
int ng_publisher_read_number(struct ng_publisher *p, const char *key, int64_t *ret_number);

/* ---- publish_progress.c: what this process publishes of itself ---- */

/* Does this slot hold progress of process `uid`: 1, or 0, or -errno. */
int ng_publisher_read_slot(struct ng_publisher *p, uint64_t slot, uint64_t uid,
                           struct ng_progress_head *ret_head);
/* Changes with everything that other processes need, and with nothing else. */
uint64_t ng_publisher_hash_box(const struct ng_box *box);
/* This process's progress, in `view`'s arena; the caller ends the view. */
int ng_publisher_encode(struct ng_publisher *p, bool suspicion, struct ng_view *view,
                        const void **ret_data, size_t *ret_bytes);
/* The same into our slot, with the next flush. */
int ng_publisher_queue_progress(struct ng_publisher *p, bool suspicion);
/* A sign of life, with the next flush. */
int ng_publisher_queue_sign(struct ng_publisher *p);
/* Publish all of it, now. `suspicion`: with more records. */
int ng_publisher_publish(struct ng_publisher *p, bool suspicion);

/* ---- publish_groups.c: incarnations, and groups that grew ---- */

/* The root of this process's incarnation: store/wire/incarnation.h. */
void ng_publisher_set_root(struct ng_publisher *p, uint64_t root);
/* Does this label belong to our incarnation: 1, or 0, or -errno. */
int ng_publisher_is_ours(struct ng_publisher *p, uint64_t label);
/* Live processes of our incarnation, whose dumps are awaited. False: no memory. */
bool ng_publisher_remember_living(struct ng_publisher *p, const struct ng_peer_progress *blobs,
                                  uint32_t count);
/* The query NG_ASK_UNITE. */
int ng_publisher_unite(struct ng_publisher *p, struct ng_ask *ask);
/* Register groups that are new since the last call. */
int ng_publisher_label_groups(struct ng_publisher *p);
/* Query the ids that ng_publisher_find_grown was called for. */
int ng_publisher_fetch_grown(struct ng_publisher *p);

/* ---- publish_join.c: a slot on the store ---- */

/* Find or take a slot, and publish what is pending; once, and again after the store was lost. */
int ng_publisher_join(struct ng_publisher *p);
/* Does the store still have us? It may be another one since a new connection, or have lost its
 * keys. If not, we join again. */
int ng_publisher_verify(struct ng_publisher *p);
/* Before something is written there: does another process write to our slot, or has the store lost
 * it? Then as ng_publisher_verify. */
int ng_publisher_check_slot(struct ng_publisher *p);
/* Keep the job's counters from expiring. */
int ng_publisher_keep_counters(struct ng_publisher *p);
/* The query NG_ASK_LEAVE: sign off. */
int ng_publisher_leave(struct ng_publisher *p, struct ng_ask *ask);

/* ---- publish_incidents.c: incidents, their documents and dumps ---- */

/* The newest epoch that was received or passed over; pass over all up to `epoch`. */
uint64_t ng_publisher_newest(struct ng_publisher *p);
void ng_publisher_pass_over(struct ng_publisher *p, uint64_t epoch);
/* Receive all incidents up to this epoch. */
int ng_publisher_take_through(struct ng_publisher *p, uint64_t epoch);
/* Read those without a verdict again. */
int ng_publisher_poll_incidents(struct ng_publisher *p);
/* The queries NG_ASK_BEGIN, NG_ASK_FINISH, NG_ASK_CLAIM, NG_ASK_JUDGE, NG_ASK_VERDICT, NG_ASK_ALIVE
 * and NG_ASK_DUMPS. If the deadline has passed, a claim is withdrawn. */
int ng_publisher_begin(struct ng_publisher *p, struct ng_ask *ask);
int ng_publisher_finish(struct ng_publisher *p, struct ng_ask *ask);
int ng_publisher_claim(struct ng_publisher *p, struct ng_ask *ask);
int ng_publisher_judge(struct ng_publisher *p, struct ng_ask *ask);
int ng_publisher_fetch_verdict(struct ng_publisher *p, struct ng_ask *ask);
int ng_publisher_ask_for_claimant(struct ng_publisher *p, struct ng_ask *ask);
int ng_publisher_count_dumps(struct ng_publisher *p, struct ng_ask *ask);
/* The caller of NG_ASK_CLAIM no longer waits for it. */
void ng_publisher_give_up_claim(struct ng_publisher *p, uint64_t epoch);

/* ---- publish_entries.c: small data for the programs ---- */

/* The queries NG_ASK_PUT, NG_ASK_FETCH and NG_ASK_HAVE. */
int ng_publisher_put(struct ng_publisher *p, struct ng_ask *ask);
int ng_publisher_fetch(struct ng_publisher *p, struct ng_ask *ask);
int ng_publisher_have(struct ng_publisher *p, struct ng_ask *ask);
/* Entries that live as long as this process are stored again before they expire. */
int ng_publisher_keep_entries(struct ng_publisher *p);
/* This process leaves, as the one with this number: they are of an earlier run for later ones. */
int ng_publisher_end_entries(struct ng_publisher *p, uint64_t ended);

/* ---- publish_proxy_reports.c: reports for processes that cannot report themselves ---- */

/* A process has ended: all processes check again. */
int ng_publisher_tell_end(struct ng_publisher *p);
/* Process the reports that the incident thread has queued. */
void ng_publisher_send_proxy_reports(struct ng_publisher *p);

/* ---- publish_hash_logs.c: what ranks of other hosts called ---- */

/* Publish the hash logs of groups whose rank 0 we are, and compare others with ours. */
int ng_publisher_compare(struct ng_publisher *p);

/* ---- publish_lockstep.c: agreement before each collective ---- */

/* Publish the state of our hash logs, and query that of others, if due; `agree.next_ns` says when
 * it is due again. */
int ng_publisher_agree(struct ng_publisher *p);

/* ---- publish_neighbour_watch.c: other processes on the store ---- */

/* The query NG_ASK_VIEW. */
int ng_publisher_fetch_all(struct ng_publisher *p, struct ng_ask *ask);
/* One check per round: news that no message announced, and the neighbour that we watch. */
int ng_publisher_check_others(struct ng_publisher *p);

#endif
