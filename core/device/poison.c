/*
 * Tracks dependencies of streams and events, and which of them are poisoned.
 *
 * One wait-free table for streams and events, by handle: each entry is one word with a set of
 * communicators, by their slots, and a number that grows with each addition; so a thread that has
 * synchronised removes what was there before, and nothing that another thread has added meanwhile.
 */
#include "core/device/poison.h"

#include <pthread.h>

#include "core/comm/comm.h"
#include "core/device/gpu.h"
#include "core/runtime/runtime.h"
#include "core/util/clock.h"
#include "core/util/log.h"
#include "core/util/macros.h"
#include "core/util/memory.h"

#define COMM_BITS  48 /* further communicators share bits */
#define COMMS      ((UINT64_C(1) << COMM_BITS) - 1)
#define ONE_ADDED  (UINT64_C(1) << COMM_BITS)
#define ENTRIES    16384u /* a power of two */
#define PROBES     16u
#define CONTEXTS   16u
#define LEGACY     1u /* added to the context: its default stream, */
#define PER_THREAD 2u /* and that of a thread */

struct entry {
    _Atomic uintptr_t key; /* 0 free */
    _Atomic uint64_t word;
};

static struct entry entries[ENTRIES] NG_LARGE;
static _Atomic uint64_t overflow; /* dependencies of objects for which there was no room */
static NG_FORGOTTEN _Atomic uint64_t poisoned; /* communicators */
static _Atomic int64_t poisoned_mono_ns;
static _Atomic uintptr_t contexts[CONTEXTS];
static atomic_bool all_contexts; /* more contexts than fit */

bool ng_poison_is_on(void)
{
    const struct ng_config *config = &ng_guard.config;

    return config->poison == NG_POISON_ON ||
           (config->poison == NG_POISON_AUTO && config->on_timeout == NG_ON_TIMEOUT_ABORT);
}

/* ---- The table ---- */

static uint32_t slot_of(uintptr_t key, uint32_t probe)
{
    return ((uint32_t)((uint64_t)key * UINT64_C(0x9e3779b97f4a7c15) >> 40) + probe) & (ENTRIES - 1);
}

static struct entry *find(uintptr_t key)
{
    for (uint32_t probe = 0; probe < PROBES; probe++) {
        struct entry *entry = &entries[slot_of(key, probe)];
        if (atomic_load_explicit(&entry->key, memory_order_acquire) == key)
            return entry;
    }
    return NULL;
}

/* NULL: no room. */
static struct entry *find_or_add(uintptr_t key)
{
    struct entry *entry = find(key);

    for (uint32_t probe = 0; probe < PROBES && !entry; probe++) {
        struct entry *there = &entries[slot_of(key, probe)];
        uintptr_t none = 0;
        if (atomic_compare_exchange_strong(&there->key, &none, key) || none == key)
            entry = there;
    }
    return entry;
}

static uint64_t word_of(uintptr_t key)
{
    const struct entry *entry = find(key);

    return entry ? atomic_load(&entry->word) : atomic_load(&overflow);
}

/* True: some of them are new. */
static bool add(uintptr_t key, uint64_t comms)
{
    struct entry *entry = comms ? find_or_add(key) : NULL;

    if (!comms)
        return false;
    if (!entry)
        return (atomic_fetch_or(&overflow, comms) | comms) != comms;
    uint64_t before = atomic_load(&entry->word);
    while (!atomic_compare_exchange_weak(&entry->word, &before, (before + ONE_ADDED) | comms))
        ;
    return comms & ~before;
}

static void replace(uintptr_t key, uint64_t comms)
{
    struct entry *entry = comms ? find_or_add(key) : find(key);

    if (!entry) {
        atomic_fetch_or(&overflow, comms);
        return;
    }
    uint64_t before = atomic_load(&entry->word);
    while (!atomic_compare_exchange_weak(&entry->word, &before,
                                         ((before + ONE_ADDED) & ~COMMS) | comms))
        ;
}

/* ---- Streams ---- */

static CUcontext current_context(void)
{
    const struct ng_cuda *cuda = ng_guard_cuda();
    CUcontext context = NULL;

    return cuda && cuda->ctx_get_current(&context) == CUDA_SUCCESS ? context : NULL;
}

/* The default streams belong to a context; `context` NULL: the current one. */
static uintptr_t key_of(void *stream, bool per_thread, CUcontext context)
{
    uintptr_t handle = (uintptr_t)stream;

    if (!ng_gpu_default_stream(stream))
        return handle;
    if (!context)
        context = current_context();
    if (handle == (uintptr_t)CU_STREAM_PER_THREAD || (!handle && per_thread))
        return ((uintptr_t)context ^ (uintptr_t)pthread_self() << 2) | PER_THREAD;
    return (uintptr_t)context | LEGACY;
}

/* The legacy default stream waits for every stream of its context that was not created as
 * nonblocking. */
static void add_to_legacy(void *stream, CUcontext context, uint64_t comms)
{
    const struct ng_cuda *cuda = ng_guard_cuda();
    unsigned flags = 0;

    if (!cuda || (uintptr_t)stream == (uintptr_t)CU_STREAM_LEGACY || !stream)
        return;
    if (cuda->stream_get_flags && cuda->stream_get_flags(stream, &flags) == CUDA_SUCCESS &&
        (flags & CU_STREAM_NON_BLOCKING))
        return;
    if (!context && cuda->stream_get_ctx(stream, &context) != CUDA_SUCCESS)
        return;
    add(key_of(NULL, false, context), comms);
}

static uint64_t bit_of(const struct ng_comm *comm)
{
    return UINT64_C(1) << comm->slot % COMM_BITS;
}

static void poison(const struct ng_comm *comm)
{
    const struct ng_gpu *gpu = atomic_load(&comm->gpu);
    bool ours = gpu && gpu != NG_COMM_GPU_OUT_OF_REACH;
    uintptr_t context = ours ? (uintptr_t)atomic_load(&gpu->context) : 0;
    bool kept = !context;

    for (uint32_t i = 0; i < CONTEXTS && !kept; i++) {
        uintptr_t there = 0;
        kept = atomic_compare_exchange_strong(&contexts[i], &there, context) || there == context;
    }
    if (!kept)
        atomic_store(&all_contexts, true);
    atomic_fetch_or(&poisoned, bit_of(comm));
}

void ng_poison_note(struct ng_comm *comm, const struct ng_gpu *gpu, void *stream)
{
    CUcontext context = atomic_load(&gpu->context);

    if (add(key_of(stream, false, context), bit_of(comm)))
        add_to_legacy(stream, context, bit_of(comm));
    /* The abort may have checked before: then this work is cut off as well. */
    if (ng_comm_is_condemned_now(comm))
        poison(comm);
}

void ng_poison_recorded(void *event, void *stream, bool per_thread)
{
    replace((uintptr_t)event, word_of(key_of(stream, per_thread, NULL)) & COMMS);
}

void ng_poison_waits(void *stream, bool per_thread, void *event)
{
    uint64_t comms = word_of((uintptr_t)event) & COMMS;

    if (add(key_of(stream, per_thread, NULL), comms) && !per_thread)
        add_to_legacy(stream, NULL, comms);
}

void ng_poison_destroyed(void *handle)
{
    struct entry *entry = find((uintptr_t)handle);

    if (!entry)
        return;
    atomic_store(&entry->word, 0);
    atomic_store(&entry->key, 0);
}

/* ---- Poison ---- */

static struct ng_poison_before before(uintptr_t key)
{
    return (struct ng_poison_before){.key = key, .word = word_of(key)};
}

struct ng_poison_before ng_poison_stream(void *stream, bool per_thread)
{
    return before(key_of(stream, per_thread, NULL));
}

struct ng_poison_before ng_poison_event(void *event)
{
    return before((uintptr_t)event);
}

bool ng_poison_settle(const struct ng_poison_before *before)
{
    struct entry *entry = find(before->key);
    uint64_t word = before->word;

    /* `poisoned` is set before work that was cut off appears finished. */
    if (word_of(before->key) & atomic_load(&poisoned) & COMMS)
        return true;
    if (entry && word & COMMS)
        atomic_compare_exchange_strong(&entry->word, &word, word & ~COMMS);
    return false;
}

bool ng_poison_has_context(void *context)
{
    if (!atomic_load(&poisoned))
        return false;
    uintptr_t wanted = context ? (uintptr_t)context : (uintptr_t)current_context();
    return atomic_load(&all_contexts) ||
           (wanted && NG_ANY(known, contexts, CONTEXTS, atomic_load(known) == wanted));
}

bool ng_poison_threatens(const struct ng_comm *comm)
{
    return ng_poison_is_on() &&
           (atomic_load(&comm->incoming) || atomic_load(&comm->group->pending_works));
}

void ng_poison_comm(const struct ng_comm *comm)
{
    atomic_store(&poisoned_mono_ns, ng_clock_mono_ns());
    poison(comm);
    ng_log(NG_LOG_WARN,
           "group %016llx is aborted with work in flight: to synchronise with it returns CUDA "
           "error %d until the program makes another communicator (NCCLGUARD_POISON)",
           (unsigned long long)NG_LOAD(comm->group->id), (int)CUDA_ERROR_LAUNCH_FAILED);
}

void ng_poison_acknowledge(void)
{
    uint64_t comms = atomic_load(&poisoned);

    if (!comms)
        return;
    /* The slots will be reused by other communicators. */
    for (uint32_t i = 0; i < ENTRIES; i++)
        if (atomic_load_explicit(&entries[i].word, memory_order_relaxed) & comms)
            atomic_fetch_and(&entries[i].word, ~comms);
    atomic_fetch_and(&overflow, ~comms);
    for (uint32_t i = 0; i < CONTEXTS; i++)
        atomic_store(&contexts[i], 0);
    atomic_store(&all_contexts, false);
    atomic_fetch_and(&poisoned, ~comms);
}

void ng_poison_made(int64_t begun_mono_ns)
{
    if (begun_mono_ns > atomic_load(&poisoned_mono_ns))
        ng_poison_acknowledge();
}
