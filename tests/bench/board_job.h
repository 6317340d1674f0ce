/* A job of many ranks as its processes would tell it: made up, but of the size and shape of a real
 * one that trains with tensor, pipeline and data parallelism, and stuck in one collective that one
 * rank never entered. */
#ifndef TESTS_BENCH_BOARD_JOB_H
#define TESTS_BENCH_BOARD_JOB_H

#include <stddef.h>
#include <stdint.h>

#define BOARD_JOB_LABEL UINT64_C(0x5eed5eed5eed5eed)

struct board_blob {
    void *data;
    size_t bytes;
};

struct board_job {
    int ranks, victim; /* the rank that never came */
    unsigned groups;   /* of each rank */
    struct board_blob *peace,
        *suspicion;   /* by rank: what it publishes normally, and what for a verdict */
    double encode_us; /* median, of one blob in peace */
};

/* `records`: how many calls a blob has in peace, and on suspicion. Ends the process where memory is
 * short. */
void board_job_init(struct board_job *ret_job, int ranks, unsigned groups, uint32_t peace_records,
                    uint32_t suspicion_records);

#endif
