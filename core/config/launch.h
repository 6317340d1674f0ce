/*
 * The identity of this process in its job, from the launcher's variables.
 */
#ifndef NCCLGUARD_CORE_CONFIG_LAUNCH_H
#define NCCLGUARD_CORE_CONFIG_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NG_LAUNCH_WORDS_BYTES 256

struct ng_launch {
    const char *launcher;             /* "torchrun", "Slurm" …; "none" */
    int rank, world_size, local_rank; /* -1 not known */
    char job[128];                    /* usable as a file name; never empty */
    bool job_is_shared;               /* configured, or a launcher's: the same on all hosts */
    uint64_t run; /* hash of the launcher's own identity of this run; 0 it has none */
    char
        words[NG_LAUNCH_WORDS_BYTES]; /* that identity as text, a line "NAME=VALUE" each; "" none */
};

/*
 * Job: the first of `job` (NCCLGUARD_JOB), the launcher's, the one that `ncclguard run` set, the
 * process group. Rank and world size: the arguments unless -1, else the launcher's. Reads the
 * environment: call before any guard thread starts. The restart count of torchrun is part of the
 * job's name, so that a restarted job does not see the black boxes of its earlier incarnation.
 * `run` does not depend on the job: it is the same for all processes that one launcher has started
 * as one program, and only for those.
 */
void ng_launch_detect(const char *job, int rank, int world_size, struct ng_launch *ret_launch);

/* Is this the name of a variable that a launcher is known by, or tells rank, job or run with? */
bool ng_launch_has_variable(const char *name, size_t length);

/* Which words of ng_launch.words differ, for users: "MASTER_ADDR is node1 here and 10.0.0.1 there".
 * Those `there` may be anything: what is written to `ret_text` is clean. "": none that is known. */
void ng_launch_compare_words(const char *here, const char *there, char *ret_text, size_t bytes);

#endif
