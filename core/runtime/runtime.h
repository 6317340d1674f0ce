/*
 * The guard of this process: what its parts share (core/lifecycle/lifecycle.h), its threads, and
 * when it starts.
 *
 * One per process. Everything but the counters is written before the guard's threads start and only
 * read after.
 */
#ifndef NCCLGUARD_CORE_RUNTIME_RUNTIME_H
#define NCCLGUARD_CORE_RUNTIME_RUNTIME_H

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/config/config.h"
#include "core/config/launch.h"
#include "core/nccl/board.h"
#include "core/nccl/cuda.h"
#include "core/recorder/box.h"

struct ng_guard {
    struct ng_config config;
    struct ng_launch launch;
    struct ng_box box;
    struct ng_board *board;       /* NULL: this process knows only itself */
    char dir[PATH_MAX];           /* of the black boxes; "" none */
    char dump_dir[PATH_MAX];      /* as it is configured: see ng_guard_dump_dir */
    char apart_dirs[2][PATH_MAX]; /* in it, */
    const char *_Atomic
        apart_dir; /* one of these, while other runs of the job's name have the same; NULL else */
    char dump_pipe[PATH_MAX];    /* what the FIFO's name begins with; "" none is wanted */
    char metrics_file[PATH_MAX]; /* a pattern of ng_log_expand; "" none */
    char rules_path[PATH_MAX];   /* "" none */
    char run_id[64];             /* of the `ncclguard run` above the process; "" none */
    struct ng_cuda cuda;         /* complete once `cuda_found` */
    atomic_bool cuda_found;

    /* From the composition root. */
    bool (*find_cuda)(struct ng_cuda *ret_cuda); /* false: no driver in this process yet */
    int (*open_board)(struct ng_guard *guard);   /* sets dir, dump_dir and board as configured */
    void (*adopt_thread)(void);                  /* the calling thread is the guard's own */
    /* Python's stacks, as core/evidence/stacks.h has it; NULL nobody knows of any. */
    int (*read_python)(char *ret_text, size_t bytes);
    void (*tell_start)(const struct ng_guard *guard); /* says what is guarded; NULL nobody */
    bool (*start_parts)(void);                        /* core/lifecycle/lifecycle.h */
    void (*forget_parts)(void);

    bool reads_python;         /* calls keep frames of Python: core/comm/python_frames.h */
    bool follows_memory;       /* the hooks report device memory: core/registration/segments.h */
    bool checks_registrations; /* core/registration/registration_check.h */
    bool registers;    /* calls hold what is registered: core/registration/registrations.h */
    bool checks_calls; /* core/check/check.h looks at each before it is made */
    bool tends_works;  /* a call has more to do than to hand its work over: core/device/poison.h and
                          wait.h */

    atomic_uint generation; /* grows with each start: a forked child starts its own guard */
    atomic_bool running;    /* box and threads exist */
    atomic_bool ending;     /* the process exits, or is being ended: nothing new begins */
};

extern struct ng_guard ng_guard __attribute__((visibility("hidden")));

/* Where evidence goes. Any thread; never waits. */
static inline const char *ng_guard_dump_dir(void)
{
    const char *apart = atomic_load(&ng_guard.apart_dir);

    return apart ? apart : ng_guard.dump_dir;
}

/* Evidence goes into a folder of this run's own while others are there beside it. The incident
 * thread. */
void ng_guard_keep_apart(void);

/* A guard thread: this process is not frozen. At least once a second, whatever it is at. */
static inline void ng_guard_beat(void)
{
    NG_STORE(ng_guard.box.header->heartbeat_mono_ns, ng_clock_mono_ns());
}

/*
 * Make box, board and threads, once per process; called with the first communicator. True when the
 * guard runs. Cheap when it does. Any program thread.
 */
bool ng_guard_start(void);

/*
 * A communicator is about to be made, or a NCCL group opened: a forked child begins a life of its
 * own with that, and starts its guard with the next ng_guard_start. Any program thread.
 */
void ng_guard_expect_communicator(void);

/* Look for the CUDA driver: with each communicator, since NCCL loads it by then. Any thread; never
 * waits. */
void ng_guard_find_cuda(void);

/* The CUDA driver's functions; NULL as long as none was found. Any thread. */
static inline const struct ng_cuda *ng_guard_cuda(void)
{
    return __builtin_expect(atomic_load_explicit(&ng_guard.cuda_found, memory_order_acquire), 1)
               ? &ng_guard.cuda
               : NULL;
}

/*
 * In a forked child: forget threads, box and communicators of the parent, and close what was
 * inherited. The child is inert until it makes a communicator of its own. Async-signal-safe.
 */
void ng_guard_after_fork(void);

/* Start a guard thread: all signals blocked, a stack of its own size, named, detached. 0 or -errno.
 */
int ng_guard_thread(const char *name, void *(*body)(void *));

/* Have all threads of this process ended but the guard's? Then nobody is left to be guarded. */
bool ng_guard_is_alone(void);

#endif
