/* Questions to NCCL's RAS (core/incident/ras_witness.h) by a clock of the test's; a question is
 * over when it has begun. C, for core's headers with atomics. */
#ifndef NCCLGUARD_TESTS_UNIT_CORE_WITNESS_H
#define NCCLGUARD_TESTS_UNIT_CORE_WITNESS_H

#include <stdint.h>

extern struct witness {
    int64_t now_ns;
    unsigned questions;
    int pid;   /* of the one rank in the answer */
    int error; /* of each question; 0: it is answered */
} witness;

/* Nothing has been asked. */
void witness_begin(void);

#endif
