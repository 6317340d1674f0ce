/*
 * The guard of a process whose board, clock and neighbours are the test's. C, for core's headers
 * with atomics.
 */
#ifndef NCCLGUARD_TESTS_UNIT_MADE_DEATHS_H
#define NCCLGUARD_TESTS_UNIT_MADE_DEATHS_H

#include <stdbool.h>
#include <stdint.h>

__BEGIN_DECLS

struct ng_view;

#define MADE_ASKED          64
#define MADE_DEADLINE_EPOCH 5
#define MADE_INCIDENTS      64
#define MADE_ABORT_WAIT_MS  10000

/* What it sees and is told, and what it did. */
struct made_deaths {
    /* Fill a view with the whole job, or this host alone. */
    void (*fill)(struct ng_view *view, bool host);
    uint32_t ended;
    int64_t look_ns;     /* so long it takes to look at the whole job */
    int64_t act_ns;      /* so long it takes to carry out a policy */
    bool sleeps;         /* the incident thread does, until it is woken */
    bool watchdog_waits; /* for a processor: it makes no round */
    bool writes_nothing; /* of its own: nothing is seen of its host */
    unsigned
        judged_after; /* so many pauses of the incident thread all incidents are judged; 0 never */
    unsigned
        unanswered; /* questions for a verdict of another host that the store does not answer */
    const char *document;  /* that verdict, JSON and text; NULL: it was reached here */
    unsigned answers_busy; /* bit c: -EBUSY for who asks because of enum ng_claim_cause c */

    unsigned asked[MADE_ASKED], asked_count; /* causes, in order */
    unsigned asked_levels;                   /* bit l: at this level */
    unsigned looks, in_vain, opened;
    unsigned verdicts_read;  /* of another host, to be kept on this one's disk */
    unsigned asked_for_life; /* how often it was asked whether a claimant lives */
    unsigned driver_asked;   /* looks that were begun */
    unsigned acted, policy;  /* how often a policy was carried out, and the last */
    unsigned kind, level;    /* of what was opened last; the kind, where that is news of an end */
    uint64_t group_id, seq;
};
extern struct made_deaths made_deaths;

/* Resets the guard; its own work has been pending for `pending_age_ns`. */
void made_deaths_begin(int64_t pending_age_ns);

/* NCCLGUARD_SUSPECT (5 s) and NCCLGUARD_DEATH_TIMEOUT (0), until the next begin. */
void made_deaths_configure(int64_t suspect_ns, int64_t death_timeout_ns);

/* The program switches the deadlines of its calls off. */
void made_deaths_no_deadline(void);

/* The deadlines of the job rest from now on, or run again. */
void made_deaths_rest(bool rest);

/* The whole process is stopped for so long. */
void made_deaths_stop(int64_t ns);

/* The watchdog does not come round while the incident thread makes so many rounds of a second; it
 * is in a call of CUDA, or (`own`) gets no processor. How old the pending work counts then. */
int64_t made_deaths_silence(bool own, unsigned count);

/* The call of its only communicator that the watchdog saw in flight last, as it begins to hang; and
 * an extension of deadlines by the program. */
void made_deaths_saw_last(uint64_t group_id, uint64_t seq);
void made_deaths_extend(int64_t ns);

/* When the next round of the incident thread is due because of ends, from now on; INT64_MAX: never.
 */
int64_t made_deaths_due_ns(void);

/* Rounds of the incident thread, a millisecond each. */
void made_deaths_rounds(unsigned count);

/* A thread of the program hears of NCCL that a peer is gone, while the incident thread makes its
 * rounds of a millisecond; `at` before each. Returns after how many the thread goes on. */
unsigned made_deaths_hear(void (*at)(unsigned round));

/* Another has told who has gone from this call. */
void made_deaths_told(uint64_t group_id, uint64_t seq);

/* A verdict of the whole job has been reached, here. */
void made_deaths_answered_for_job(void);

/* Another has judged that the deadline of this call passed, a call that began before now; policy
 * log. Its epoch is MADE_DEADLINE_EPOCH. */
void made_deaths_deadline(uint64_t group_id, uint64_t seq, unsigned op);

/* Another has claimed that of it, with a policy of its own (enum ng_on_timeout), and judged it; in
 * `epoch`. */
void made_deaths_claimed(uint64_t epoch, unsigned policy);
void made_deaths_unjudged(uint64_t epoch); /* it is not judged yet */
/* The process exits: its last look at the news, and how long that took. */
int64_t made_deaths_exits(void);
/* This process judges a suspicion, mismatch; evidence goes to this folder. */
void made_deaths_lead_suspicion(const char *folder, bool differs);
/* A deadline has passed, and nobody comes to a verdict; evidence goes to this folder. */
void made_deaths_act_unjudged(const char *folder);
/* The disk with this folder does not answer, and time goes by; it answers again, and all is
 * written. */
void made_deaths_block(const char *folder);
void made_deaths_unblock(const char *folder);
/* The same of the incident thread itself: it sleeps when others claim that incident and judge it,
 * and the process exits before it wakes. True: the thread has ended. */
bool made_deaths_exits_asleep(uint64_t epoch);
/* Neighbours have ended by this policy; evidence goes to this folder. */
void made_deaths_neighbours_ended(unsigned policy, const char *folder);
/* What this process is set to. */
void made_deaths_set_policy(unsigned policy);
/* A person aborts all groups, by the store or by this host's board. True: it is obeyed. */
bool made_deaths_aborts(bool by_store);
/* A person sets options, by the store; 0 stays, else a value plus 1. Returns those that the black
 * box then has, log in the lower byte. */
unsigned made_deaths_set(unsigned log, unsigned timing);
int made_deaths_timing(void);
/* The board tells of incidents without end, with numbers that grow, or that do not: how often it is
 * asked in one look at the news. */
unsigned made_deaths_flood(bool grows);

/* This process reads a suspicion of another host; `differs`: the suspicion that calls differ. Where
 * the made board has a document, it is written to this folder. */
void made_deaths_suspicion(uint64_t epoch, bool differs);
void made_deaths_suspicion_of(const char *folder, uint64_t group_id);

/* What others have put on the board: a suspicion of another host, whose verdict is `line`; NULL:
 * not judged yet. */
void made_deaths_put(uint64_t epoch, const char *line);
/* Whoever claimed it has ended. */
void made_deaths_claimant_ends(uint64_t epoch);
/* A person orders to read the rules again. */
void made_deaths_order(uint64_t epoch);

/* It is found that calls of a group differ, and told at a suspect time or, `deadline`, as the
 * policy wants. */
void made_deaths_differ(uint64_t group_id, bool deadline);

/* The incident thread judges what the watchdog suspects of this call, or that its deadline has
 * passed. True: it puts that off, since others may soon know more. */
bool made_deaths_waits_for_more(uint64_t group_id, uint64_t seq, bool deadline);

/* A thread of this process is inside this call, for so long that it is suspected, or that its
 * deadline has passed: an alarm. */
void made_deaths_stuck(uint64_t group_id, unsigned op, bool deadline);

/* The incident thread looks into the alarms, a second after the last time. */
void made_deaths_alarms(void);

/* The incident thread reads the news, a second after the last time. */
void made_deaths_news(void);

__END_DECLS

#endif
