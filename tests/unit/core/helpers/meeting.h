/*
 * The ranks of one host, each with a black box in a file, of which rank 0 meets the others: as
 * core/check/rendezvous.c sees them. C, for core's headers with atomics.
 */
#ifndef NCCLGUARD_TESTS_UNIT_CORE_MEETING_H
#define NCCLGUARD_TESTS_UNIT_CORE_MEETING_H

#include <stdint.h>

#define MEETING_RANKS 10

/* All anew, with boxes in this folder. */
void meeting_begin(const char *folder, int nranks);
void meeting_finish(void);

/* The incident thread has found the ranks of rank 0's communicator: 'w' all are on this host, 'l'
 * rank 0 is the lowest of its host. Or rank `lowest` is. And it does a round. */
void meeting_open(char kind);
void meeting_follow(int lowest);
void meeting_round(void);

/* A rank makes its next collective, wakes those that wait for it, or has the newest one refused by
 * NCCL, or by all ranks. */
void meeting_enter(int rank, uint64_t hash);
void meeting_announce(int rank);
void meeting_take_back(int rank);
void meeting_refuse(int rank);

/* It says that all hosts have come to a collective, or makes it without asking them. */
void meeting_agree(int rank, uint64_t seq);
void meeting_pass(int rank, uint64_t seq);

/* Its communicator ends, or another one of the same group gets its slot. */
void meeting_end(int rank);
void meeting_replace(int rank);

/* Another rank has the number of rank `as`. */
void meeting_renumber(int rank, int as);

/* Its file gets shorter. */
void meeting_truncate(int rank, const char *folder);

/* Rank 0 waits for collective `seq`: 'm' all met, 'h' those of its host have, 'a' some are awaited,
 * 'u' unclear. */
char meeting_await(uint64_t seq, int64_t for_ns);

/* Does this process map other ranks' files? */
int meeting_maps(void);

#endif
