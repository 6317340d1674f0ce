/*
 * Two processes of one host, each with a black box, of which the first compares: as
 * core/check/signature_compare.c sees them. C, for core's headers with atomics.
 */
#ifndef NCCLGUARD_TESTS_UNIT_CORE_COMPARED_H
#define NCCLGUARD_TESTS_UNIT_CORE_COMPARED_H

#include <stdbool.h>
#include <stdint.h>

#define COMPARED_RECORDS 256u

void compared_begin(void); /* both anew */

/* A communicator of process 0 or 1, in the making: its slot. */
uint32_t compared_make(int process, uint64_t id, int nranks, int rank);
void compared_ready(int process, uint32_t slot);
void compared_destroy(int process, uint32_t slot);

/* A collective that NCCL takes. */
void compared_call(int process, uint32_t slot, uint64_t count);

/* What a record tells of its newest collective but `back` is no more what was called, as where two
 * writers met in a slot. */
void compared_spoil(int process, uint32_t back);

/* A round of the first process, a second after the one before. */
void compared_round(void);

/* What it does then about ranks of other hosts: 's' nothing, 't' tells them, 'a' asks. Nothing,
 * where ranks of the group were found to differ. */
char compared_across(uint32_t slot);

/* Takes all alarms that were raised: how many. */
unsigned compared_alarms(void);

/* A verdict has told of it. */
void compared_told(uint64_t id);

bool compared_is_news(uint32_t slot, uint64_t turn);

#endif
