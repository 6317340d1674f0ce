/*
 * State shared by all parts of the guard in this process, its threads, and its start.
 *
 * Entered by the first program thread that creates a communicator, and by forked children. Must
 * never prevent a program from starting.
 */
#include "core/runtime/runtime.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/recorder/proc.h"
#include "core/runtime/unusual.h"
#include "core/util/descriptor.h"
#include "core/util/folder.h"
#include "core/util/log.h"
#include "core/util/memory.h"

/* The C library places the program's thread-local storage on each thread's stack, however large it
 * is; untouched pages cost nothing. */
#define THREAD_STACK_BYTES     (1u << 20)
#define THREAD_STACK_MAX_BYTES (64u << 20)

struct ng_guard ng_guard NG_LARGE;
atomic_uint ng_unusual = NG_UNUSUAL_FIRST;

/* Protects the start. Nests inside nothing; held while files are created and threads started. */
static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;
static bool failed; /* under start_lock: no second attempt, one message */

/* This is a child of a guarded parent, and it has not created a communicator yet. */
static atomic_bool inert_child;

static _Atomic unsigned thread_count; /* running threads of the guard */

static atomic_flag looking = ATOMIC_FLAG_INIT; /* a thread is looking for the driver */

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

static void *run_counted(void *argument)
{
    void *(*run)(void *) = (void *(*)(void *))argument;

    run(NULL);
    atomic_fetch_sub(&thread_count, 1);
    return NULL;
}

static int make_thread(const char *name, void *(*run)(void *), void *argument, bool detached,
                       pthread_t *ret_thread)
{
    pthread_attr_t attributes;
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&attributes);
    if (detached)
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    int error = EINVAL;
    for (size_t bytes = THREAD_STACK_BYTES; error == EINVAL && bytes <= THREAD_STACK_MAX_BYTES;
         bytes *= 4) {
        pthread_attr_setstacksize(&attributes, bytes);
        error = pthread_create(ret_thread, &attributes, run, argument);
    }
    pthread_attr_destroy(&attributes);
    if (!error)
        pthread_setname_np(*ret_thread, name);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -error;
}

int ng_guard_thread(const char *name, void *(*body)(void *))
{
    pthread_t thread;

    atomic_fetch_add(&thread_count, 1);
    int error = make_thread(name, run_counted, (void *)body, true, &thread);
    if (error)
        atomic_fetch_sub(&thread_count, 1);
    return error;
}

bool ng_guard_is_alone(void)
{
    struct ng_folder tasks;
    unsigned others = 0;

    /* The first thread stays in the list as a zombie. */
    if (!ng_proc_first_thread_ended() || ng_folder_open(&tasks, "/proc/self/task", true) != 0)
        return false;
    while (ng_folder_next(&tasks))
        others++;
    ng_folder_close(&tasks);
    return others == atomic_load(&thread_count) + 1;
}

void ng_guard_keep_apart(void)
{
    struct ng_board *board = ng_guard.board;
    const char *now = atomic_load(&ng_guard.apart_dir);
    char *next = ng_guard.apart_dirs[now == ng_guard.apart_dirs[0]];
    char name[NG_BOARD_RUN_NAME_BYTES];

    if (!board || !board->ops->apart || board->ops->apart(board, name) != 0 ||
        snprintf(next, PATH_MAX, "%s/%s", ng_guard.dump_dir, name) >= PATH_MAX)
        atomic_store(&ng_guard.apart_dir, NULL);
    else if (!now || strcmp(now, next) != 0) /* others may still read the previous one */
        atomic_store(&ng_guard.apart_dir, next);
}

static void *start_body(void *ret_started)
{
    *(bool *)ret_started = ng_guard.start_parts();
    return NULL;
}

/* Start on a separate thread: the program's thread may have almost no stack left. Under
 * start_lock. */
static bool start_aside(void)
{
    pthread_t thread;
    bool started = false;

    int error = make_thread("ncclguard/start", start_body, &started, false, &thread);
    if (error) {
        ng_log(NG_LOG_ERROR, "cannot start the guard's threads: %s; nothing is guarded",
               strerror(-error));
        return false;
    }
    pthread_join(thread, NULL);
    return started;
}

bool ng_guard_start(void)
{
    int before;

    if (atomic_load_explicit(&ng_guard.running, memory_order_acquire))
        return true;
    if (atomic_load(&ng_guard.ending) || atomic_load(&inert_child))
        return false;
    /* A thread that the program cancels in here would never release the lock. */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    pthread_mutex_lock(&start_lock);
    if (!atomic_load(&ng_guard.running) && !failed)
        failed = !start_aside();
    bool running = atomic_load(&ng_guard.running);
    pthread_mutex_unlock(&start_lock);
    pthread_setcancelstate(before, NULL);
    return running;
}

void ng_guard_expect_communicator(void)
{
    if (atomic_load_explicit(&inert_child, memory_order_relaxed))
        atomic_store(&inert_child, false);
    /* A child created without atfork handlers (_Fork, clone) still carries its parent's state. */
    if (atomic_load_explicit(&ng_guard.running, memory_order_acquire) &&
        getpid() != ng_guard.box.header->pid) {
        ng_guard_after_fork();
        atomic_store(&inert_child, false);
    }
}

void ng_guard_after_fork(void)
{
    /* Reset the lock, whatever thread of the parent held it. */
    start_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    atomic_flag_clear(&looking);
    ng_log_after_fork();
    atomic_store(&thread_count, 0);
    if (!ng_guard.box.header && !ng_guard.board && !failed)
        return;
    atomic_store(&inert_child, true);
    /* Box and board belong to the parent: the mappings stay untouched, and the child starts its own
     * guard when needed. */
    atomic_store(&ng_guard.running, false);
    ng_unusual_set(NG_UNUSUAL_STOPPED, true);
    atomic_store(&ng_guard.ending, false);
    atomic_fetch_add(&ng_guard.generation, 1);
    atomic_store(&ng_guard.cuda_found, false);
    failed = false;
    /* The file lock belongs to the open file description: if the child kept it open, the lock would
     * outlive the parent. */
    ng_descriptor_close(&ng_guard.box.file);
    ng_guard.box = NG_BOX_NONE;
    if (ng_guard.board)
        ng_guard.board->ops->abandon(ng_guard.board);
    ng_guard.board = NULL;
    ng_guard.forget_parts();
}
