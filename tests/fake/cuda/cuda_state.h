/*
 * What the files of the stand-in for libcuda share: contexts, streams, events, memory, graphs.
 *
 * One lock guards everything here. It is held for bookkeeping only: host functions, copies and
 * waits run without it. Functions whose comment says "locked" are called with the lock held and
 * return with it held; those that may wait give it up meanwhile.
 */
#ifndef FAKE_CUDA_STATE_H
#define FAKE_CUDA_STATE_H

/* Declares the legacy names and the per-thread default stream names beside the current ones. */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAKE_MAX_DEVICES     64
#define FAKE_QUEUE_LIMIT     1024
#define FAKE_GRANULARITY     ((size_t)2 << 20)
#define FAKE_KERNEL_ARGUMENT 64 /* bytes that a kernel's argument may have */
#define FAKE_SMALL_STAGING   ((size_t)64 << 10)

enum handle_kind {
    HANDLE_FREE,
    HANDLE_TOMBSTONE,
    HANDLE_STREAM,
    HANDLE_EVENT,
    HANDLE_GRAPH,
    HANDLE_NODE,
    HANDLE_EXEC,
    HANDLE_USER_OBJECT,
    HANDLE_PHYSICAL,
    HANDLE_MODULE,
    HANDLE_FUNCTION,
};

/* One calling thread as the driver sees it. */
struct thread {
    uint64_t id;
    CUcontext *contexts; /* the stack of current contexts, the last is the current one */
    size_t depth;
    CUstreamCaptureMode capture_mode;
    bool in_host_function;
    struct CUstream_st *default_streams; /* per-thread default streams, one a context */
};

struct CUctx_st {
    struct CUctx_st *next; /* all contexts ever made: a handle that was destroyed is still known */
    uint64_t id;
    int device;
    unsigned int flags;
    bool primary;
    bool alive;
    unsigned int retains;
    uint64_t peers; /* bit per device: peer access enabled */
    CUresult sticky;
    struct CUstream_st *streams;
    struct CUstream_st *legacy;
};

struct device {
    int physical; /* place among all the machine's devices */
    size_t used;
    CUcontext primary;
    unsigned int primary_flags;
};

/* A place in a stream: reached when the stream has completed item `seq`. Holds a reference. */
struct point {
    struct CUstream_st *stream;
    uint64_t seq;
};

/* One recording of an event; events, waiting streams and graph launches share it. */
struct mark {
    unsigned int refs;
    bool done;
    uint64_t time_ns;
    struct CUstream_st *stream; /* whose `done` condition is signalled when the mark is reached */
};

enum operation_kind {
    OP_EMPTY,
    OP_HOST,
    OP_CALLBACK,
    OP_COPY,
    OP_SET,
    OP_RECORD,
    OP_WAIT,
    OP_WRITE_VALUE,
    OP_WAIT_VALUE,
    OP_FREE,
    OP_GRAPH,
    OP_KERNEL,
};

/* What a stream executes and what a graph node holds. */
struct operation {
    enum operation_kind kind;
    union {
        struct {
            CUhostFn fn;
            void *data;
        } host;
        struct {
            CUstreamCallback fn;
            void *data;
            CUstream handle;
        } callback;
        struct {
            char *dst;
            const char *src;
            size_t width, height;
            size_t dst_pitch, src_pitch;
            bool dst_known, src_known; /* memory of ours: must still be so when the copy runs */
            void *staging;             /* freed after the copy; never in a graph node */
        } copy;
        struct {
            char *dst;
            uint32_t value;
            unsigned int element;
            size_t width; /* in elements */
        } set;
        struct {
            struct mark *mark;        /* in a stream */
            struct CUevent_st *event; /* in a graph node, holds a reference */
        } event;
        struct {
            void *address;
            uint64_t value;
            unsigned int flags;
            bool wide;
        } value;
        struct {
            void *base;
        } free;
        struct {
            CUfunction function;
            unsigned int blocks, threads; /* of a block */
            unsigned char argument[FAKE_KERNEL_ARGUMENT];
        } kernel;
        struct {
            struct program *program; /* holds a reference */
            struct mark **marks;     /* of each step that is an event, made at launch */
            struct mark *end;        /* reached when the launch is done */
        } graph;
    };
};

struct work {
    struct work *next;
    uint64_t seq;
    struct operation op;
    size_t n_waits;
    struct point *waits;
};

struct CUstream_st {
    struct CUstream_st *next, *prev; /* in the context's list */
    struct CUstream_st *thread_next; /* in the thread's list of default streams */
    CUcontext ctx;
    uint64_t id;
    unsigned int flags;
    int priority;
    bool legacy, per_thread;
    bool closing;
    bool worker;
    unsigned int refs;
    struct work *head, *tail;
    uint64_t enqueued, completed;
    pthread_cond_t arrived; /* an item came or the stream is closing */
    pthread_cond_t done;    /* an item was completed, or a mark reached */
    struct capture *capture;
    CUgraphNode *capture_deps;
    size_t n_capture_deps;
};

struct CUevent_st {
    CUcontext ctx;
    uint64_t ctx_id; /* a primary context that was reset is another one at the same address */
    unsigned int flags;
    unsigned int refs;
    bool destroyed;
    struct mark *mark;       /* last recording outside of a capture; NULL before the first */
    struct capture *capture; /* last recording was inside this capture */
    CUgraphNode *capture_deps;
    size_t n_capture_deps;
};

struct capture {
    struct capture *next; /* among the captures under way */
    unsigned int refs;
    uint64_t id;
    CUstreamCaptureMode mode;
    uint64_t owner; /* thread that began it */
    CUstream origin;
    CUgraph graph;
    bool owns_graph;
    bool invalidated;
    bool ended;
};

enum memory_kind { MEMORY_DEVICE, MEMORY_MANAGED, MEMORY_HOST, MEMORY_REGISTERED, MEMORY_MAPPED };

struct allocation {
    uintptr_t base;
    size_t size;
    enum memory_kind kind;
    int device;
    CUcontext ctx;
    unsigned int flags;
    uint64_t id;
    bool freeing; /* cuMemFreeAsync was called, the stream has not come to it */
    bool readable;
    bool ordered; /* allocated in stream order */
    struct physical *physical;
    size_t charged;
};

extern pthread_mutex_t fake_mutex;
extern struct device fake_devices[FAKE_MAX_DEVICES];
extern int fake_device_count;
extern size_t fake_device_memory;

/* FAKE_CUDA_STUCK="device=D,after=N[,pending=K]": once N events were recorded on device D (of the
 * machine), and then K queries of its events in a row have found them pending, cuEventQuery of its
 * events does not return, as where its driver waits for hardware that is gone. */
struct stuck_device {
    int physical; /* -1 none */
    unsigned long after, pending;
};
extern struct stuck_device fake_stuck_device;
extern CUcontext fake_contexts;

static inline void fake_lock(void)
{
    pthread_mutex_lock(&fake_mutex);
}

static inline void fake_unlock(void)
{
    pthread_mutex_unlock(&fake_mutex);
}

/* cuda_init.c */
CUresult fake_ready(void); /* initialised, not torn down, not forked */
bool fake_running(void);   /* false once the process is being torn down */
struct thread *fake_thread(void);
CUresult fake_context(CUcontext *ret_ctx);  /* locked: the calling thread's live current context */
CUresult fake_context_check(CUcontext ctx); /* locked */
CUresult fake_device_check(CUdevice dev);   /* ready, and there is such a device */
uint64_t fake_next_id(void);                /* locked */
uint64_t fake_now_ns(void);

/* Memory of the stand-in itself, zeroed or resized; a host that has none left ends the process. */
void *fake_new(size_t bytes);
void *fake_resize(void *memory, size_t bytes);

void fake_handle_add(const void *handle, enum handle_kind kind); /* locked */
void fake_handle_remove(const void *handle);                     /* locked */
bool fake_handle_is(const void *handle, enum handle_kind kind);  /* locked */

static inline void fake_unlock_at_end(const bool *held)
{
    fake_unlock();
}

/* Ends the function with this result, unless it is success. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        CUresult try_result = (call);                                                              \
        if (try_result != CUDA_SUCCESS)                                                            \
            return try_result;                                                                     \
    } while (0)

/* Ends the function with this error, or with CUDA_ERROR_INVALID_VALUE, if the condition holds. */
#define REFUSE_IF(condition, error) TRY((condition) ? (error) : CUDA_SUCCESS)
#define INVALID_IF(condition)       REFUSE_IF(condition, CUDA_ERROR_INVALID_VALUE)

/* How the body of a call begins: each takes the lock, which is given up at the end of the block. */
#define HOLD_LOCK                                                                                  \
    __attribute__((cleanup(fake_unlock_at_end), unused)) const bool held = (fake_lock(), true)

#define ENTER_DRIVER                                                                               \
    TRY(fake_ready());                                                                             \
    HOLD_LOCK

#define ENTER(ctx)                                                                                 \
    CUcontext ctx;                                                                                 \
    ENTER_DRIVER;                                                                                  \
    TRY(fake_context(&ctx))

#define ENTER_STREAM(handle, stream)                                                               \
    struct CUstream_st *stream;                                                                    \
    ENTER_DRIVER;                                                                                  \
    TRY(fake_stream_resolve(handle, &stream))

static inline CUstream fake_legacy(CUstream handle)
{
    return handle ? handle : CU_STREAM_LEGACY;
}

/* Another form of a call: its arguments as another one takes them. */
#define FORM(name, parameters, call)                                                               \
    CUresult CUDAAPI name parameters                                                               \
    {                                                                                              \
        return call;                                                                               \
    }

/* Begins `name`_v2, and makes `name` the same. */
#define V2_CALL(name, parameters, arguments)                                                       \
    CUresult CUDAAPI name##_v2 parameters;                                                         \
    FORM(name, parameters, name##_v2 arguments)                                                    \
    CUresult CUDAAPI name##_v2 parameters

/* Begins `name`_ptsz, and makes `name` the same for programs whose default stream is the legacy
 * one. */
#define STREAM_CALL(name, parameters, arguments)                                                   \
    CUresult CUDAAPI name##_ptsz parameters;                                                       \
    CUresult CUDAAPI name parameters                                                               \
    {                                                                                              \
        hStream = fake_legacy(hStream);                                                            \
        return name##_ptsz arguments;                                                              \
    }                                                                                              \
    CUresult CUDAAPI name##_ptsz parameters

/* A call that tells one value: what must hold before, where it goes, and the value. */
#define GETTER(name, parameters, before, out, value)                                               \
    CUresult CUDAAPI name parameters                                                               \
    {                                                                                              \
        before;                                                                                    \
        INVALID_IF(!(out));                                                                        \
        *(out) = (value);                                                                          \
        return CUDA_SUCCESS;                                                                       \
    }

/* A call in both forms. */
#define STREAM_FORMS(name, parameters, call)                                                       \
    FORM(name##_ptsz, parameters, call)                                                            \
    CUresult CUDAAPI name parameters                                                               \
    {                                                                                              \
        hStream = fake_legacy(hStream);                                                            \
        return call;                                                                               \
    }

/* cuda_memory.c: all locked */
struct allocation *fake_memory_find(const void *pointer);
bool fake_memory_known(const void *pointer, size_t size); /* all of it is memory of ours */
void fake_memory_free(struct allocation *allocation);
void fake_memory_free_base(void *base);
void fake_memory_free_context(CUcontext ctx);

/* cuda_kernel.c */
bool fake_kernel_run(struct operation *op);   /* without the lock; false: it faulted */
void fake_kernel_free_context(CUcontext ctx); /* locked: its modules go with it */

/* cuda_stream.c: all locked */
CUresult fake_stream_resolve(CUstream handle, struct CUstream_st **ret_stream);
CUresult fake_stream_submit(struct CUstream_st *stream, const struct operation *op);
CUresult fake_stream_enqueue(struct CUstream_st *stream, const struct operation *op);
void fake_stream_wait_idle(struct CUstream_st *stream);
void fake_stream_ref(struct CUstream_st *stream);
void fake_stream_unref(struct CUstream_st *stream);
void fake_stream_close(struct CUstream_st *stream);
void fake_context_drain(CUcontext ctx);
void fake_device_drain(int device);
void fake_context_close_streams(CUcontext ctx);
void fake_thread_close_streams(struct thread *thread);
void fake_operation_run(struct CUstream_st *stream, struct operation *op);
struct mark *fake_mark_create(struct CUstream_st *stream);
void fake_mark_unref(struct mark *mark);
void fake_mark_reach(struct mark *mark);
void fake_event_unref(struct CUevent_st *event);

/* cuda_graph.c: all locked */
CUresult fake_capture_guard(void); /* a call that is unsafe while a capture is under way */
CUresult fake_capture_context_guard(CUcontext ctx); /* a call that waits for a whole context */
CUresult fake_capture_stream_guard(struct CUstream_st *stream); /* a call that waits for a stream */
CUresult fake_capture_legacy_guard(struct CUstream_st *stream); /* implicit order with a capture */
CUresult fake_capture_add(struct CUstream_st *stream, const struct operation *op);
CUresult fake_capture_record(struct CUstream_st *stream, struct CUevent_st *event, bool external);
CUresult fake_capture_wait(struct CUstream_st *stream, struct CUevent_st *event, bool external);
void fake_capture_event_reset(struct CUevent_st *event);
void fake_capture_stream_gone(struct CUstream_st *stream);
void fake_graph_run(struct CUstream_st *stream, struct operation *op);
void fake_graph_launch_release(struct operation *op);
void fake_user_objects_reap(
    void); /* runs destructors of the program; gives up the lock meanwhile */

#endif
