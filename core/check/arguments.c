/*
 * Checks of the arguments of one call.
 *
 * Program threads. Must never change the current context, an error or a buffer.
 */
#include "core/check/arguments.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

#include "core/comm/comm.h"
#include "core/comm/failure.h"
#include "core/nccl/call.h"
#include "core/nccl/nccl.h"
#include "core/runtime/runtime.h"
#include "core/util/log.h"

#define SPANS_MAX                                                                                  \
    8192 /* mappings that may make up one buffer, as with PyTorch's expandable segments */

#define FLOAT8_FIRST      10 /* ncclFloat8e4m3; since 2.24 */
#define FLOAT8_LAST       11
#define BFLOAT16          9 /* since 2.10 */
#define REDOP_AVG         4 /* since 2.10 */
#define FLOAT8_VERSION    22400
#define AVG_VERSION       21000
#define FLOAT8_REDUCES_ON 9 /* compute capability */

/* The memory that a call reads and writes; NULL none. */
struct buffers {
    const char *send, *receive;
    uint64_t send_bytes, receive_bytes;
    uint64_t in_place; /* offset of the smaller buffer in the larger one, if in place */
};

/* Which of the buffers the operation uses, NULL or not. */
static bool sends(const struct ng_call *call, int rank)
{
    return call->op != NG_OP_Recv &&
           ((call->op != NG_OP_Broadcast && call->op != NG_OP_Scatter) || call->root == rank);
}

static bool receives(const struct ng_call *call, int rank)
{
    return call->op != NG_OP_Send &&
           ((call->op != NG_OP_Reduce && call->op != NG_OP_Gather) || call->root == rank);
}

/* By operation: the bytes of one rank's part, or of all ranks' parts. */
static struct buffers buffers_of(const struct ng_call *call, int nranks, int rank, uint64_t part)
{
    enum ng_op op = call->op;
    bool sends_all = op == NG_OP_ReduceScatter || op == NG_OP_AlltoAll || op == NG_OP_Scatter;
    bool receives_all = op == NG_OP_AllGather || op == NG_OP_AlltoAll || op == NG_OP_Gather;
    uint64_t whole = part * (uint64_t)nranks;

    return (struct buffers){
        .send = sends(call, rank) ? call->send_buffer : NULL,
        .receive = receives(call, rank) ? call->recv_buffer : NULL,
        .send_bytes = sends_all ? whole : part,
        .receive_bytes = receives_all ? whole : part,
        .in_place = sends_all != receives_all ? part * (uint64_t)rank : 0,
    };
}

static bool reduces(const struct ng_call *call)
{
    return call->op == NG_OP_AllReduce || call->op == NG_OP_Reduce ||
           call->op == NG_OP_ReduceScatter || call->op == NG_OP_AllReduceWithBias;
}

static int attribute(const struct ng_cuda *cuda, CUdevice_attribute which, int device, int fallback)
{
    int value;

    return cuda && cuda->device_get_attribute && device >= 0 &&
                   cuda->device_get_attribute(&value, which, device) == CUDA_SUCCESS
               ? value
               : fallback;
}

/* ---- Numbers ---- */

static int check_type(const struct ng_call *call, const struct ng_comm *comm, char *why,
                      unsigned bytes)
{
    int version = call->nccl->version,
        types = version && version < FLOAT8_VERSION ? FLOAT8_FIRST : FLOAT8_LAST + 1;

    if (call->dtype < 0 || (version && version < FLOAT8_VERSION && call->dtype >= types) ||
        (call->dtype > FLOAT8_LAST && !ng_dtype_bytes(call->dtype))) {
        snprintf(why, bytes, "datatype %d; allowed are 0 to %d in this NCCL", call->dtype,
                 types - 1);
        return NG_NCCL_INVALID_ARGUMENT;
    }
    int device = NG_LOAD(comm->group->device);
    int capability = attribute(ng_guard_cuda(), CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                               device, FLOAT8_REDUCES_ON);
    if (reduces(call) && call->dtype >= FLOAT8_FIRST && call->dtype <= FLOAT8_LAST &&
        capability < FLOAT8_REDUCES_ON) {
        snprintf(
            why, bytes,
            "datatype %s; device %d has compute capability %d, and reductions of float8 need %d",
            ng_dtype_name(call->dtype), device, capability, FLOAT8_REDUCES_ON);
        return NG_NCCL_INVALID_ARGUMENT;
    }
    return NG_NCCL_SUCCESS;
}

static int check_numbers(const struct ng_call *call, const struct ng_comm *comm, int nranks,
                         char *why, unsigned bytes)
{
    uint32_t fields = ng_op_table[call->op].fields;
    bool p2p = ng_op_table[call->op].op_class == NG_CLASS_P2P;
    int version = call->nccl->version;

    if (((fields & NG_F_ROOT) || p2p) && (call->root < 0 || call->root >= nranks)) {
        snprintf(why, bytes, "%s %d; allowed is 0 to %d", p2p ? "peer" : "root", call->root,
                 nranks - 1);
        return NG_NCCL_INVALID_ARGUMENT;
    }
    if (reduces(call) &&
        (call->redop < 0 || (call->redop == REDOP_AVG && version && version < AVG_VERSION))) {
        snprintf(why, bytes, "reduction %d; allowed are 0 to %d and those made by ncclRedOpCreate…",
                 call->redop, version && version < AVG_VERSION ? REDOP_AVG - 1 : REDOP_AVG);
        return NG_NCCL_INVALID_ARGUMENT;
    }
    int result = check_type(call, comm, why, bytes);
    if (result != NG_NCCL_SUCCESS)
        return result;
    uint64_t most = (uint64_t)INT64_MAX / ng_dtype_bytes(call->dtype) / (uint64_t)nranks;
    if (call->count > most) {
        snprintf(why, bytes, "count %" PRIu64 "; allowed is up to %" PRIu64 ": %d ranks, %s",
                 call->count, most, nranks, ng_dtype_name(call->dtype));
        return NG_NCCL_INVALID_ARGUMENT;
    }
    return NG_NCCL_SUCCESS;
}

/* ---- Buffers ---- */

/* How many bytes are mapped contiguously from `at`, up to what is needed. */
static uint64_t room_at(const struct ng_cuda *cuda, CUdeviceptr at, uint64_t needed)
{
    CUdeviceptr base, next = at;
    size_t size;

    for (unsigned spans = 0; spans < SPANS_MAX && next - at < needed; spans++) {
        if (cuda->mem_get_address_range(&base, &size, next) != CUDA_SUCCESS || base + size <= next)
            return next - at;
        next = base + size;
    }
    return next - at < needed ? needed
                              : next - at; /* too many mappings: accepted without further check */
}

static int check_buffer(const struct ng_call *call, const struct ng_comm *comm, const char *name,
                        const char *buffer, uint64_t needed, char *why, unsigned bytes)
{
    const struct ng_cuda *cuda = ng_guard_cuda();
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)buffer;
    unsigned element = ng_dtype_bytes(call->dtype);
    int device = NG_LOAD(comm->group->device), of = -1;
    unsigned type = 0, managed = 0;

    if (!buffer) {
        snprintf(why, bytes, "%s is NULL; allowed is memory of %" PRIu64 " bytes", name, needed);
        return NG_NCCL_INVALID_ARGUMENT;
    }
    if ((uintptr_t)buffer % element) {
        snprintf(why, bytes, "%s %p; allowed is a multiple of %u, the size of %s", name,
                 (const void *)buffer, element, ng_dtype_name(call->dtype));
        return NG_NCCL_INVALID_ARGUMENT;
    }
    if (!cuda || !cuda->pointer_get_attribute || !cuda->mem_get_address_range)
        return NG_NCCL_SUCCESS;
    CUresult result = cuda->pointer_get_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at);
    if (result == CUDA_ERROR_INVALID_VALUE || (result == CUDA_SUCCESS && !type)) {
        if (attribute(cuda, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, device, 0))
            return NG_NCCL_SUCCESS;
        snprintf(why, bytes, "%s %p is no memory of CUDA; allowed is memory of device %d", name,
                 (const void *)buffer, device);
        return NG_NCCL_INVALID_ARGUMENT;
    }
    if (result != CUDA_SUCCESS || type != CU_MEMORYTYPE_DEVICE)
        return NG_NCCL_SUCCESS; /* pinned host memory: the device can access it */
    cuda->pointer_get_attribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, at);
    if (!managed && device >= 0 &&
        cuda->pointer_get_attribute(&of, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at) == CUDA_SUCCESS &&
        of >= 0 && of != device) {
        snprintf(why, bytes,
                 "%s %p is memory of device %d; allowed is that of device %d, which the "
                 "communicator is of",
                 name, (const void *)buffer, of, device);
        return NG_NCCL_INVALID_ARGUMENT;
    }
    uint64_t room = room_at(cuda, at, needed);
    if (room < needed) {
        snprintf(why, bytes,
                 "%s %p: %" PRIu64 " bytes are needed; allocated are %" PRIu64 " from there on",
                 name, (const void *)buffer, needed, room);
        return NG_NCCL_INVALID_ARGUMENT;
    }
    return NG_NCCL_SUCCESS;
}

static int check_overlap(const struct ng_call *call, const struct buffers *buffers, char *why,
                         unsigned bytes)
{
    const char *send = buffers->send, *receive = buffers->receive;

    if (!send || !receive || send + buffers->send_bytes <= receive ||
        receive + buffers->receive_bytes <= send)
        return NG_NCCL_SUCCESS;
    bool inner_sends = buffers->send_bytes <= buffers->receive_bytes;
    const char *inner = inner_sends ? send : receive, *outer = inner_sends ? receive : send;
    if (inner == outer + buffers->in_place)
        return NG_NCCL_SUCCESS;
    snprintf(why, bytes,
             "sendbuff %p and recvbuff %p overlap; allowed is no overlap, or in place: %s == %s + "
             "%" PRIu64,
             (const void *)send, (const void *)receive, inner_sends ? "sendbuff" : "recvbuff",
             inner_sends ? "recvbuff" : "sendbuff", buffers->in_place);
    return NG_NCCL_INVALID_ARGUMENT;
}

/* ---- The stream ---- */

static int check_stream(const struct ng_call *call, char *why, unsigned bytes)
{
    const struct ng_cuda *cuda = ng_guard_cuda();
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;

    if (!cuda)
        return NG_NCCL_SUCCESS;
    CUresult result = cuda->stream_is_capturing(call->stream, &capture);
    if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) {
        snprintf(why, bytes,
                 "stream is the legacy default one, while another stream is captured; "
                 "allowed is a stream made with cudaStreamNonBlocking");
        return NG_NCCL_INVALID_USAGE;
    }
    if (result == CUDA_SUCCESS && capture == CU_STREAM_CAPTURE_STATUS_INVALIDATED) {
        snprintf(why, bytes,
                 "stream %p is in a capture that an earlier call has made invalid; "
                 "allowed is one that goes on, or none",
                 call->stream);
        return NG_NCCL_INVALID_USAGE;
    }
    return NG_NCCL_SUCCESS;
}

int ng_arguments_check(const struct ng_call *call, const struct ng_comm *comm, char *ret_why,
                       unsigned bytes)
{
    int nranks = NG_LOAD(comm->group->nranks), rank = NG_LOAD(comm->group->group_rank);

    if (nranks <= 0 || rank < 0)
        return NG_NCCL_SUCCESS;
    int result = check_numbers(call, comm, nranks, ret_why, bytes);
    if (result == NG_NCCL_SUCCESS)
        result = check_stream(call, ret_why, bytes);
    uint64_t part = call->count * ng_dtype_bytes(call->dtype);
    /* For an all-to-all with individual counts, the sizes are not in the call's fields. */
    if (result != NG_NCCL_SUCCESS || !part || call->op == NG_OP_AllToAllv)
        return result;
    struct buffers buffers = buffers_of(call, nranks, rank, part);
    if (sends(call, rank))
        result =
            check_buffer(call, comm, "sendbuff", buffers.send, buffers.send_bytes, ret_why, bytes);
    if (result == NG_NCCL_SUCCESS && receives(call, rank))
        result = check_buffer(call, comm, "recvbuff", buffers.receive, buffers.receive_bytes,
                              ret_why, bytes);
    return result == NG_NCCL_SUCCESS ? check_overlap(call, &buffers, ret_why, bytes) : result;
}

uint64_t ng_arguments_sent_bytes(const struct ng_call *call, const struct ng_comm *comm)
{
    int nranks = NG_LOAD(comm->group->nranks), rank = NG_LOAD(comm->group->group_rank);
    uint64_t part = call->count * ng_dtype_bytes(call->dtype);

    if (nranks <= 0 || rank < 0 || call->op == NG_OP_AllToAllv || !sends(call, rank))
        return 0;
    struct buffers buffers = buffers_of(call, nranks, rank, part);
    return buffers.send ? buffers.send_bytes : 0;
}

/* ---- Logging ---- */

#define LINES_MAX 64u

void ng_arguments_tell(const struct ng_call *call, struct ng_call_context *context, const char *why,
                       int result)
{
    static _Atomic uint64_t told[LINES_MAX], untold;
    const struct ng_comm *comm = context->comm;
    char group[160];
    uint64_t key = NG_LOAD(comm->group->id) * NG_OP_LIMIT + call->op + 1;

    if (context->record)
        NG_STORE(context->record->flags, NG_LOAD(context->record->flags) | NG_RECORD_INVALID);
    /* A program that makes the mistake once makes it in every step. */
    unsigned i = 0;
    for (uint64_t there = 0;
         i < LINES_MAX && !atomic_compare_exchange_strong(&told[i], &there, key); i++, there = 0)
        if (there == key)
            return;
    if (i == LINES_MAX) {
        uint64_t count = atomic_fetch_add(&untold, 1) + 1;
        if (ng_failure_is_power_of_ten(count))
            ng_log(NG_LOG_ERROR,
                   "invalid calls: %u operations of groups have a line of their own; those of "
                   "others are "
                   "counted: %" PRIu64 " so far",
                   LINES_MAX, count);
        return;
    }
    ng_comm_describe(comm, group, sizeof(group));
    ng_log(NG_LOG_ERROR, "invalid call: nccl%s #%" PRIu64 " of %s: %s; %s%s", ng_op_name(call->op),
           context->seq, group, why,
           result ? "refused with "
                  : "the call is made all the same; a rule with check=refuse would refuse it",
           result ? ng_result_name(result) : "");
}
