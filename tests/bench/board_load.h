/*
 * Many publishers in one thread, each on connections of its own, that ask a Redis server what those
 * of as many processes would (store/publish/publish.c): twice a second a round of an incident, the
 * counts and a neighbour's sign of life; every second the progress with the sign of life, or, where
 * nothing changes, the sign alone every third of its time to live; a subscription that is asked for
 * a sign every two seconds; and at once all progress when somebody calls for it.
 *
 * They speak the protocol themselves: a thread for each would measure this machine's scheduler.
 */
#ifndef TESTS_BENCH_BOARD_LOAD_H
#define TESTS_BENCH_BOARD_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/bench/board_job.h"

struct board_load;

enum board_step { BOARD_JOIN, BOARD_PUBLISH, BOARD_SIGN, BOARD_LOOK, BOARD_REFRESH, BOARD_STEPS };

struct board_times {
    uint64_t count;
    double median_us, p99_us, most_us;
};

/* Connects and joins all, the whole job at once; *ret_join_s how long that took. Ends the process
 * on any error. */
struct board_load *board_load_start(const struct board_job *job, int port, const char *prefix,
                                    double *ret_join_s);

/* Does the job's progress change? It does at first. */
void board_load_set_changing(struct board_load *load, bool changing);

/* Forget what was measured so far. */
void board_load_measure(struct board_load *load);

/* From sending a step's commands to having their answers, since the last board_load_measure.
 * `ret_late`: rounds that were due before the one before was over, of `ret_rounds`. */
void board_load_measured(struct board_load *load, struct board_times ret_times[BOARD_STEPS],
                         uint64_t *ret_rounds, uint64_t *ret_late);

/* When the last publisher had heard of the newest call for progress, and when the last answer to
 * what they all stored then was there (CLOCK_MONOTONIC); waits for it, and ends the process where
 * that takes more than 20 s. */
void board_load_refreshed(struct board_load *load, uint64_t calls, int64_t *ret_heard_ns,
                          int64_t *ret_stored_ns);

#endif
