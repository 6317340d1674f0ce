/*
 * Makes evidence for tests of `ncclguard analyze`: dumps and black boxes of a small job. In C,
 * since the black box's layout is C's.
 */
#ifndef NCCLGUARD_TESTS_UNIT_TOOLS_EVIDENCE_H
#define NCCLGUARD_TESTS_UNIT_TOOLS_EVIDENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

__BEGIN_DECLS

enum evidence_life { EVIDENCE_RUNNING, EVIDENCE_DEAD, EVIDENCE_ENDED_BY_GUARD, EVIDENCE_EXITED };

/* One rank of a world group, by how far it came. */
struct evidence_rank {
    int rank;
    enum evidence_life life;
    uint64_t entered, completed;
    int64_t pending_ms; /* age of the work in flight; 0 none */
    int64_t dead_ms;    /* how long ago it died */
    bool rehearsed;     /* a fault was injected into it */
    bool differs;       /* its last call is one with another reduction; dumps alone */
    int64_t suspect_ms; /* NCCLGUARD_SUSPECT; 0: 5 s. Black boxes alone */
};

/* rank_<r>.json of these ranks, out of `nranks`, in `folder`. 0 or -errno. */
int evidence_write_dumps(const char *folder, const struct evidence_rank *ranks, int count,
                         int nranks);

/* The same, of a job of this name with a communicator of this id, as it was at this time. */
int evidence_write_dumps_of(const char *job, uint64_t group_id, int64_t moment_unix_ns,
                            const char *folder, const struct evidence_rank *ranks, int count,
                            int nranks);

/* The same ranks as PyTorch's flight recorder would tell of them, in `folder`/fr. */
int evidence_write_flights(int64_t moment_unix_ns, const char *folder,
                           const struct evidence_rank *ranks, int count, int nranks);

/* The black box of this process, which stays mapped and locked until the process ends. 0 or -errno.
 */
int evidence_make_box(const char *folder, const struct evidence_rank *rank, int nranks);

/* The same with all that a box may hold: a record and frames for each of its calls, sends and
 * receives, durations, threads, communicators that could not be made or were grown, troubles. */
int evidence_make_full_box(const char *folder, const struct evidence_rank *rank, int nranks);

/* The same, of a job and with a group of these names. */
int evidence_make_box_of(const char *job, const char *group_name, const char *folder,
                         const struct evidence_rank *rank, int nranks);

/* The box made last: the guard's threads are alive, as a guard says once a second. */
void evidence_beat(void);

/* Black boxes made from now on are of this one moment, each higher rank's a millisecond later,
 * however long a busy machine takes to make them; false: each of its own again. */
void evidence_hold_clock(bool hold);

/* Of the box made last: it is of a run of its own, by its launcher's word and its communicator. */
void evidence_set_run(uint64_t run);

/* Of the box made last: a command has set NCCLGUARD_TIMING, to a value plus 1. */
int evidence_set(uint8_t timing);

/* Of the box made last: its process has no rank of its own, and is rank `rank` of two in a second
 * group "part" as well; < 0: not in it. 0 or -errno. */
int evidence_add_part(int rank);

/* The box that was made last: its rank's mildest policy and, where not 0, that by which a verdict
 * ends it now; each one more than enum ng_on_timeout. */
void evidence_set_policies(uint32_t mildest, uint32_t ending);

/* How the process of a box was seen to end, and when; 0 it was not. */
struct evidence_end {
    int how;
    int64_t when_mono_ns;
};
struct evidence_end evidence_read_end(const char *path);

/* The process of the black box at `path` has just left through exit(0). 0 or -errno. */
int evidence_exit_well(const char *path);

/* The process of the black box at `path` has just finished collective `seq`. 0 or -errno. */
int evidence_finish(const char *path, uint64_t seq);

/* What a guard of these boxes said of collective `seq`, as it leaves it in their folder. 0 or
 * -errno. */
int evidence_tell_incident(const char *folder, uint64_t seq, const char *line);

/* A process that has all that one may have, by chance; same seed, same process. Of an empty view.
 */
struct ng_view;
void evidence_add_random(struct ng_view *view, unsigned seed);

/* Its ranks as PyTorch's flight recorder would tell of them, in `folder`/fr. 0 or -errno. */
int evidence_write_random_flight(const char *folder, unsigned seed);

/* A dump of a process that has all that a dump may hold, by chance. The name of the file is written
 * to ret_name. */
int evidence_write_random(const char *folder, unsigned seed, char *ret_name, size_t bytes);

/* Read the dump at `path` and write what was understood to `folder` again. 0 or -errno, with the
 * reason in `why`. */
int evidence_copy_dump(const char *path, const char *folder, char *why, size_t why_bytes);

/* Read the dump or black box at `path` and reach a verdict; 0 or -errno of reading. */
int evidence_judge(const char *path, int64_t stalled_ns);

__END_DECLS

#endif
