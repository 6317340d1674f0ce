/* What the test programs need of CUDA, written once over the runtime API (device_runtime.c) and
 * once over the driver API (device_driver.c). Every error ends the program: see fail(). */
#ifndef TESTS_PROGRAMS_DEVICE_H
#define TESTS_PROGRAMS_DEVICE_H

#include <nccl.h>
#include <stddef.h>
#include <stdlib.h>

int device_count(void);

/* Makes the device current in the calling thread. With SHARE_DEVICES in the environment the ranks
 * share the devices of the machine, where there are too few. NCCL accepts that only of ranks that
 * it takes for other hosts': NCCL_HOSTID, which spawn sets. */
void device_use(int device);

/* What that makes of a number. */
static inline int device_shared(int device, int count)
{
    return getenv("SHARE_DEVICES") && count > 0 ? device % count : device;
}

void *device_alloc(size_t size);
void device_free(void *memory);

/* Host memory that asynchronous copies read and write in place. */
void *device_host_alloc(size_t size);
void device_host_free(void *memory);

cudaStream_t device_stream_create(void);
void device_stream_sync(cudaStream_t stream);
void device_stream_destroy(cudaStream_t stream);

void device_copy_in(void *device, const void *host, size_t size, cudaStream_t stream);
void device_copy_out(void *host, const void *device, size_t size, cudaStream_t stream);
void device_host_function(cudaStream_t stream, void (*function)(void *), void *argument);

/* Enqueues a kernel that writes where no memory is, to run a while later: CUDA fails for good. */
void device_fault(cudaStream_t stream);

/* Takes all of the stream's device for so long, by a kernel on a stream of its own: what is
 * enqueued next begins on its stream, but its kernels do not. */
void device_crowd(cudaStream_t stream, long long ms);

/* The rank that the calling thread speaks for in messages. */
extern _Thread_local int fail_rank;

/* The exit status of fail(), 3 at first; negative: it blocks, as a program does that hangs in its
 * own handling of errors. */
extern int fail_status;

/* "rank R: FILE:LINE call: text" on stderr, then the end. */
__attribute__((noreturn)) void fail(const char *file, int line, const char *call, const char *text);

#endif
