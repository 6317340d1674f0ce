/*
 * The guard's start and end in this process.
 *
 * Entered by the first program thread that makes a communicator, by the exit path, and by forked
 * children. Must never keep a program from starting or ending: what cannot be had is logged and
 * done without.
 */
#include "core/guard.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/call.h"
#include "core/clock.h"
#include "core/comm.h"
#include "core/gpu.h"
#include "core/incident.h"
#include "core/log.h"
#include "core/paths.h"
#include "core/watchdog.h"

/* The C library takes the program's thread-local storage out of a thread's stack, however large
 * that is; pages that are not touched cost nothing. */
#define THREAD_STACK_BYTES     (1u << 20)
#define THREAD_STACK_MAX_BYTES (64u << 20)

struct ng_guard ng_guard;

/* Protects the start. Nests inside nothing; held while files are made and threads started. */
static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;
static bool failed; /* under start_lock: no second attempt, one message */

static atomic_flag looking = ATOMIC_FLAG_INIT; /* somebody looks for the driver */

void ng_guard_find_cuda(void)
{
    struct ng_cuda cuda;

    if (atomic_load(&ng_guard.cuda_found) || !ng_guard.find_cuda ||
        atomic_flag_test_and_set(&looking))
        return;
    if (!atomic_load(&ng_guard.cuda_found) && ng_guard.find_cuda(&cuda)) {
        ng_guard.cuda = cuda;
        atomic_store_explicit(&ng_guard.cuda_found, true, memory_order_release);
    }
    atomic_flag_clear(&looking);
}

int ng_guard_thread(const char *name, void *(*body)(void *))
{
    pthread_attr_t attributes;
    sigset_t all, before;
    pthread_t thread;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    int error = EINVAL;
    for (size_t bytes = THREAD_STACK_BYTES; error == EINVAL && bytes <= THREAD_STACK_MAX_BYTES;
         bytes *= 4) {
        pthread_attr_setstacksize(&attributes, bytes);
        error = pthread_create(&thread, &attributes, body, NULL);
    }
    pthread_attr_destroy(&attributes);
    if (!error)
        pthread_setname_np(thread, name);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -error;
}

static void unlink_box(void)
{
    char name[64], path[PATH_MAX + 64];

    ng_box_name(ng_guard.box.header->pid, ng_guard.box.header->start_ticks, name, sizeof(name));
    snprintf(path, sizeof(path), "%s/%s", ng_guard.dir, name);
    if (ng_guard.board)
        unlink(path);
}

static bool start(void)
{
    struct ng_box_identity identity = {
        .rank = ng_guard.launch.rank,
        .world_size = ng_guard.launch.world_size,
        .local_rank = ng_guard.launch.local_rank,
        .job = ng_guard.launch.job,
        .timeout_ns = ng_guard.config.timeout_ns,
        .suspect_ns = ng_guard.config.suspect_ns,
        .init_timeout_ns = ng_guard.config.init_timeout_ns,
    };

    /* The board's folder first: the box appears in it. */
    int error = ng_guard.open_board ? ng_guard.open_board(&ng_guard) : 0;
    if (error)
        ng_log(NG_LOG_WARN,
               "cannot share with other ranks in %s: %s; this process is guarded alone "
               "(NCCLGUARD_DIR names another "
               "folder)",
               ng_guard.dir,
               error == -EPERM ? "it belongs to somebody else or others may write to it"
                               : strerror(-error));
    const char *folder = ng_guard.board ? ng_guard.dir : NULL;
    error = ng_box_create(folder, &identity, (uint32_t)ng_guard.config.trace_size, &ng_guard.box);
    if (error == -ENOENT && folder && ng_paths_make(folder) == 0) {
        /* The last rank of an earlier run has just tidied up behind itself. */
        ng_box_close(&ng_guard.box, NULL);
        error =
            ng_box_create(folder, &identity, (uint32_t)ng_guard.config.trace_size, &ng_guard.box);
    }
    if (error == -ENOMEM && !ng_guard.box.header)
        return false;
    if (error) {
        ng_log(NG_LOG_WARN,
               "cannot make the black box in %s: %s; other ranks will not see this one "
               "(NCCLGUARD_DIR names another "
               "folder)",
               ng_guard.dir, strerror(-error));
        /* The board shows what lies in its folder, and ours does not. */
        ng_guard.board = NULL;
        rmdir(ng_guard.dir); /* stays where anything lies in it */
    }
    atomic_fetch_add(&ng_guard.generation, 1);
    error = ng_incident_start();
    if (!error)
        error = ng_watchdog_start();
    if (error) {
        ng_log(NG_LOG_ERROR, "cannot start the guard's threads: %s; nothing is guarded",
               strerror(-error));
        /* A box that never shows a heartbeat would make this rank look frozen. */
        unlink_box();
        return false;
    }
    atomic_store_explicit(&ng_guard.running, true, memory_order_release);
    ng_log(NG_LOG_INFO, "guarding job %s, rank %d of %d (%s); black boxes in %s",
           ng_guard.launch.job, ng_guard.launch.rank, ng_guard.launch.world_size,
           ng_guard.launch.launcher, ng_guard.board ? ng_guard.dir : "private memory");
    return true;
}

bool ng_guard_start(void)
{
    if (atomic_load_explicit(&ng_guard.running, memory_order_acquire))
        return true;
    if (atomic_load(&ng_guard.ending))
        return false;
    pthread_mutex_lock(&start_lock);
    if (!atomic_load(&ng_guard.running) && !failed)
        failed = !start();
    bool running = atomic_load(&ng_guard.running);
    pthread_mutex_unlock(&start_lock);
    return running;
}

void ng_guard_exit(int status)
{
    /* A child made without atfork handlers (vfork, clone) shares the box, and must not speak for
     * the parent. */
    if (!atomic_load(&ng_guard.running) || getpid() != ng_guard.box.header->pid ||
        atomic_exchange(&ng_guard.ending, true))
        return;
    ng_watchdog_finish();
    atomic_store(&ng_guard.box.header->exit_status, status);
    atomic_store(&ng_guard.box.header->life_mono_ns, ng_clock_mono_ns());
    atomic_store(&ng_guard.box.header->life, NG_BOX_EXITED);
    /* What the program still calls, from static destructors perhaps, is nobody's business any more.
     */
    atomic_store(&ng_guard.running, false);
    ng_incident_finish(500);
}

void ng_guard_after_fork(void)
{
    /* Whatever another thread was about to do. */
    start_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    atomic_flag_clear(&looking);
    if (!ng_guard.box.header && !failed)
        return;
    /* Box and board are the parent's: the mappings stay, untouched, and a guard of our own starts
     * when needed. */
    atomic_store(&ng_guard.running, false);
    atomic_store(&ng_guard.ending, false);
    atomic_fetch_add(&ng_guard.generation, 1);
    atomic_store(&ng_guard.cuda_found, false);
    failed = false;
    /* The lock belongs to the open file: held by a child, it would outlive the parent. */
    ng_descriptor_close(&ng_guard.box.file);
    ng_guard.box = NG_BOX_NONE;
    ng_guard.board = NULL;
    ng_call_after_fork();
    ng_comm_after_fork();
    ng_gpu_after_fork();
    ng_watchdog_after_fork();
    ng_incident_after_fork();
}
