/*
 * The ranks of one host meet before a collective: the fast path of NCCLGUARD_CHECK=strict.
 *
 * core/check/lockstep_check.h compares ranks on the incident thread, a round of which takes a
 * millisecond. Once that has found the ranks of a group on this host, the calling threads compare
 * themselves from then on: each reads the group slots and the hash logs of the others, and sleeps
 * on the `entered` word of one that has not come (a futex that processes share), which wakes those
 * that sleep on it when it comes. So a collective costs some microseconds, and the last rank to
 * come lets the others go on. If the group has other hosts, the lowest rank of a host meets the
 * others of its host in this way before it asks for them, and the others sleep on the word with its
 * answer.
 *
 * Every word has one writer, its rank, so a rank that is killed inside leaves nothing locked. All
 * that is read here is equality: only ranks that have the same number and hash let a call proceed.
 * Anything else (a rank that is late, differs, has given up a call, or whose box is damaged) is
 * left to the incident thread.
 */
#ifndef NCCLGUARD_CORE_CHECK_RENDEZVOUS_H
#define NCCLGUARD_CORE_CHECK_RENDEZVOUS_H

#include <stdint.h>

struct ng_box;
struct ng_comm;

/* Ranks that another one can wait for; larger groups are compared by the incident thread. */
#define NG_RENDEZVOUS_MAX 64u

/* Where another rank of the group is described: a box, and the slot in it. */
struct ng_rendezvous_place {
    const struct ng_box *box;
    uint32_t slot;
};

/* Whom the calling threads of a communicator wait for. */
enum ng_rendezvous_kind {
    NG_RENDEZVOUS_WHOLE,   /* the other ranks of the group, which are all on this host */
    NG_RENDEZVOUS_LEADS,   /* the other ranks of this host, of which this one is the lowest */
    NG_RENDEZVOUS_FOLLOWS, /* the lowest rank of this host: what it says of all hosts */
};

enum ng_rendezvous_outcome {
    NG_RENDEZVOUS_MET,     /* all ranks have reached the collective with the same call */
    NG_RENDEZVOUS_HERE,    /* those of this host have: NG_RENDEZVOUS_LEADS */
    NG_RENDEZVOUS_AWAITED, /* some have not reached it yet */
    NG_RENDEZVOUS_UNCLEAR, /* some differ, or cannot be read, or the ranks do not meet here */
};

/* The ranks that calls on `comm` wait for, `count` of them, were found at these places. While a
 * thread is inside such a call. Incident thread. */
void ng_rendezvous_open(const struct ng_comm *comm, enum ng_rendezvous_kind kind,
                        const struct ng_rendezvous_place *places, uint32_t count);

/* Let go of groups whose communicators have ended. Incident thread, each round. */
void ng_rendezvous_drop_ended(void);

/* This rank's newest collective is in its box: wake the ranks that sleep until it comes. Program
 * thread. */
void ng_rendezvous_announce(const struct ng_comm *comm);

/* Wait, at the longest until `until_mono_ns`, for the other ranks to reach collective `seq`.
 * Program thread that is inside that call. */
enum ng_rendezvous_outcome ng_rendezvous_await(const struct ng_comm *comm, uint64_t seq,
                                               int64_t until_mono_ns);

/* In a forked child. */
void ng_rendezvous_after_fork(void);

#endif
