/*
 * The guard of this process: state shared by its parts (core/lifecycle/lifecycle.h), its threads,
 * and its start.
 *
 * One per process. Everything except atomics is written before the guard's threads start and only
 * read afterwards.
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

struct ng_nvml;
struct ng_ras_answer;

struct ng_guard {
    struct ng_config config;
    struct ng_launch launch;
    struct ng_box box;
    struct ng_board *board;        /* NULL: this process sees only itself */
    char dir[PATH_MAX];            /* folder of the black boxes; "" none */
    char dump_dir[PATH_MAX];       /* as configured: see ng_guard_dump_dir */
    char store_text[256];          /* NCCLGUARD_STORE as it holds, without passwords */
    char apart_dirs[2][PATH_MAX];  /* folders in dump_dir */
    const char *_Atomic apart_dir; /* one of these while other runs with the same job name share the
                                      folder; else NULL */
    char dump_pipe[PATH_MAX];      /* prefix of the FIFO's name; "" none is wanted */
    char metrics_file[PATH_MAX];   /* a pattern of ng_log_expand; "" none */
    char rules_path[PATH_MAX];     /* "" none */
    char run_id[64];               /* of the `ncclguard run` that started the process; "" none */
    struct ng_cuda cuda;           /* complete once `cuda_found` */
    atomic_bool cuda_found;

    /* Set by the composition root. */
    bool (*find_cuda)(struct ng_cuda *ret_cuda); /* false: no driver in this process yet */
    bool (*find_nvml)(struct ng_nvml *ret_nvml); /* false: there is none; NULL not available */
    int (*open_board)(struct ng_guard *guard);   /* sets dir, dump_dir and board as configured */
    void (*adopt_thread)(void);                  /* marks the calling thread as the guard's own */
    /* Reads Python stacks, see core/evidence/stacks.h; NULL not available. */
    int (*read_python)(char *ret_text, size_t bytes);
    /* Asks NCCL's RAS at `ras_address`: store/ras/ras_client.h. */
    int (*ask_ras)(const char *address, int64_t deadline_mono_ns, struct ng_ras_answer *ret_answer);
    char ras_address[128];                            /* "" RAS is off */
    void (*tell_start)(const struct ng_guard *guard); /* reports what is guarded; NULL none */
    bool (*start_parts)(void);                        /* core/lifecycle/lifecycle.h */
    void (*forget_parts)(void);

    bool reads_python;         /* calls keep Python frames: core/comm/python_frames.h */
    bool follows_memory;       /* the hooks report device memory: core/registration/segments.h */
    bool checks_registrations; /* core/registration/registration_check.h */
    bool registers;    /* calls hold registered buffers: core/registration/registrations.h */
    bool checks_calls; /* core/check/call_check.h checks each call before it is made */
    bool tends_works;  /* a call does more than hand over its work: core/device/poison.h,
                          device_wait.h */

    /* NCCLGUARD_TIMING, or what an operator has set since: ng_comm_set_timing. */
    atomic_int timing;
    atomic_uint generation; /* incremented at each start: a forked child starts its own guard */
    atomic_bool running;    /* box and threads exist */
    atomic_bool ending;     /* the process exits, or is being ended: nothing new may begin */
};

extern struct ng_guard ng_guard __attribute__((visibility("hidden")));

/* The folder for evidence. Any thread; never waits. */
static inline const char *ng_guard_dump_dir(void)
{
    const char *apart = atomic_load(&ng_guard.apart_dir);

    return apart ? apart : ng_guard.dump_dir;
}

/* Put evidence into a folder of this run alone while other runs share the configured one. Incident
 * thread. */
void ng_guard_keep_apart(void);

/* Heartbeat of a guard thread: this process is not frozen. Call at least once a second, whatever
 * the thread is doing. */
static inline void ng_guard_beat(void)
{
    NG_STORE(ng_guard.box.header->heartbeat_mono_ns, ng_clock_mono_ns());
}

/*
 * Create box, board and threads, once per process; called with the first communicator. True if the
 * guard runs; cheap if it already did. Any program thread.
 */
bool ng_guard_start(void);

/*
 * A communicator is about to be created, or an NCCL group opened: a forked child stops being inert,
 * and starts its guard with the next ng_guard_start. Any program thread.
 */
void ng_guard_expect_communicator(void);

/* Look for the CUDA driver: with each communicator, since NCCL has loaded it by then. Any thread;
 * never waits. */
void ng_guard_find_cuda(void);

/* The CUDA driver's functions; NULL until the driver is found. Any thread. */
static inline const struct ng_cuda *ng_guard_cuda(void)
{
    return __builtin_expect(atomic_load_explicit(&ng_guard.cuda_found, memory_order_acquire), 1)
               ? &ng_guard.cuda
               : NULL;
}

/*
 * In a forked child: forget threads, box and communicators of the parent, and close inherited
 * descriptors. The child is inert until it creates a communicator. Async-signal-safe.
 */
void ng_guard_after_fork(void);

/* Start a guard thread: all signals blocked, fixed stack size, named, detached. 0 or -errno. */
int ng_guard_thread(const char *name, void *(*body)(void *));

/* Have all threads of this process except the guard's ended? Then no program thread is left to
 * guard. */
bool ng_guard_is_alone(void);

#endif
