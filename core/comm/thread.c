/*
 * Per-thread state, found through one thread-local pointer.
 *
 * Entered by program threads only. Must never allocate after a thread's first call, except for its
 * first call in another copy of NCCL, and when an NCCL group grows larger than any before on this
 * thread.
 */
#include "core/comm/thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "core/comm/call_stack.h"
#include "core/util/memory.h"

__thread struct ng_thread *ng_this_thread
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

static struct ng_comm no_comm NG_LARGE; /* without a handle */

static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key;

void ng_thread_let_go_group(struct ng_group_calls *calls)
{
    for (uint32_t i = 0; i < calls->pending_count; i++)
        if (!calls->pending[i].let_go)
            atomic_fetch_sub(&calls->pending[i].comm->in_flight.open_groups, 1);
    for (uint32_t i = 0; i < calls->pending_count; i++)
        calls->pending[i].let_go = true;
    for (uint32_t i = 0; i < calls->created_count; i++) {
        if (calls->created[i].in_group)
            atomic_fetch_sub(&calls->created[i].comm->in_flight.open_groups, 1);
        calls->created[i].in_group = false;
    }
}

static void free_group_calls(struct ng_group_calls *calls)
{
    ng_thread_let_go_group(calls);
    free(calls->pending);
    free(calls->created);
    free(calls->grouped);
}

/* After a fork the calls belong to the parent: keep only the allocated room. */
static void forget_group_calls(struct ng_group_calls *calls)
{
    calls->depth = calls->pending_count = calls->created_count = calls->joined_count =
        calls->grouped_count = 0;
    calls->broken = false;
    calls->error = NG_NCCL_SUCCESS;
}

static void release(void *memory)
{
    struct ng_thread *thread = memory;

    if (thread->generation == atomic_load(&ng_guard.generation) && thread->slot != &thread->spare) {
        atomic_store(&thread->slot->op, 0);
        atomic_store_explicit(&thread->slot->tid, 0, memory_order_release);
    }
    ng_this_thread = NULL;
    free_group_calls(&thread->first);
    for (uint32_t i = 0; i < NG_NCCL_MAX - 1; i++)
        if (thread->others[i]) {
            free_group_calls(thread->others[i]);
            free(thread->others[i]);
        }
    free(thread);
}

static void make_key(void)
{
    pthread_key_create(&key, release);
}

/* A free slot of the box; the thread's spare if all are taken. */
static struct ng_box_thread *claim_slot(struct ng_thread *thread)
{
    struct ng_box *box = &ng_guard.box;

    for (uint32_t i = 0; i < box->thread_capacity; i++) {
        uint32_t nobody = 0;
        if (!atomic_compare_exchange_strong(&box->threads[i].tid, &nobody, thread->tid))
            continue;
        uint32_t used = atomic_load(&box->header->thread_used);
        while (used < i + 1 &&
               !atomic_compare_exchange_weak(&box->header->thread_used, &used, i + 1))
            ;
        return &box->threads[i];
    }
    atomic_fetch_add(&box->header->threads_lost, 1);
    return &thread->spare;
}

/* Keep the thread's name in the box, for when the thread or its process is gone. */
static void tell_name(struct ng_box_thread *slot)
{
    uint64_t words[2] = {0, 0};

    prctl(PR_GET_NAME, (char *)words, 0, 0, 0);
    NG_STORE(slot->name[0], words[0]);
    NG_STORE(slot->name[1], words[1]);
}

struct ng_thread *ng_thread_make(void)
{
    uint32_t generation = atomic_load(&ng_guard.generation);
    struct ng_thread *thread = ng_this_thread;

    if (!thread) {
        thread = calloc(1, sizeof(*thread));
        if (!thread)
            return NULL;
        pthread_once(&key_once, make_key);
        pthread_setspecific(key, thread);
        ng_this_thread = thread;
    } else {
        /* Inherited through a fork: the lists belong to the parent's calls. */
        thread->open_groups = 0;
        forget_group_calls(&thread->first);
        for (uint32_t i = 0; i < NG_NCCL_MAX - 1; i++)
            if (thread->others[i])
                forget_group_calls(thread->others[i]);
    }
    thread->generation = generation;
    thread->tid = (uint32_t)gettid();
    thread->newest = &no_comm;
    thread->eager_stream = NG_THREAD_NO_STREAM;
    thread->errno_at = &errno;
    thread->slot = claim_slot(thread);
    NG_STORE(thread->slot->group_depth, 0); /* one that has ended may have left a group open */
    tell_name(thread->slot);
    if (ng_guard.box.frames_capacity)
        ng_call_stack_find_bounds(thread);
    return thread;
}

struct ng_group_calls *ng_thread_other_group_calls(struct ng_thread *thread, uint32_t index)
{
    if (index == 0 || index >= NG_NCCL_MAX)
        return index == 0 ? &thread->first : NULL;
    struct ng_group_calls **calls = &thread->others[index - 1];
    if (!*calls)
        *calls = calloc(1, sizeof(**calls));
    return *calls;
}

static void *grow(void *array, uint32_t used, uint32_t *room, size_t each)
{
    if (used < *room)
        return array;
    uint32_t wanted = *room ? *room * 2 : 16;
    void *bigger = realloc(array, wanted * each);
    if (bigger)
        *room = wanted;
    return bigger;
}

/* A new element of a list of calls; NULL: no room. */
#define ADD(list)                                                                                  \
    ({                                                                                             \
        void *array =                                                                              \
            grow(calls->list, calls->list##_count, &calls->list##_room, sizeof(*calls->list));     \
        calls->list = array ? array : calls->list;                                                 \
        array ? &calls->list[calls->list##_count++] : NULL;                                        \
    })

struct ng_pending *ng_thread_add_pending(struct ng_group_calls *calls)
{
    return ADD(pending);
}

struct ng_created *ng_thread_add_created(struct ng_group_calls *calls)
{
    return ADD(created);
}

struct ng_grouped_call *ng_thread_add_grouped(struct ng_group_calls *calls)
{
    return ADD(grouped);
}

void ng_thread_refuse(const struct ng_nccl *nccl, int result)
{
    if (result <= NG_NCCL_SUCCESS || result == NG_NCCL_IN_PROGRESS)
        return;
    struct ng_thread *thread = ng_thread_get();
    struct ng_group_calls *calls = thread ? ng_thread_open_group(thread, nccl) : NULL;
    if (calls)
        calls->error = result; /* the newest error counts, as in NCCL */
}
