/*
 * Names and properties of operations, data types and reductions, from op.def and nccl.h.
 *
 * Pure data: any thread, no state.
 */
#include "core/nccl/op.h"

#include <strings.h>

#include "core/util/macros.h"

const struct ng_op_info ng_op_table[NG_OP_LIMIT] = {
#define NG_OP(number, name, class, fields) [number] = {#name, NG_CLASS_##class, fields},
#include "core/nccl/op.def"
#undef NG_OP
};

/* Numbers from nccl.h; they are part of NCCL's ABI and only ever appended to. */
static const struct {
    const char *name;
    unsigned bytes;
} dtypes[] = {
    {"int8", 1},    {"uint8", 1},    {"int32", 4},      {"uint32", 4},
    {"int64", 8},   {"uint64", 8},   {"float16", 2},    {"float32", 4},
    {"float64", 8}, {"bfloat16", 2}, {"float8e4m3", 1}, {"float8e5m2", 1},
};

static const char *const redops[] = {"sum", "prod", "max", "min", "avg"};

/* ncclResult_t; 8 came with 2.32. */
static const char *const results[] = {
    "ncclSuccess",       "ncclUnhandledCudaError", "ncclSystemError",
    "ncclInternalError", "ncclInvalidArgument",    "ncclInvalidUsage",
    "ncclRemoteError",   "ncclInProgress",         "ncclTimeout",
};

/* CUresult values of <cuda.h>, which tools and the verdict cannot include. */
static const struct cuda_error {
    int error;
    bool permanent; /* no CUDA call of the process succeeds any more: <cuda.h> says of which */
    const char *text;
} cuda_errors[] = {
    {2, false, "out of memory"},
    {201, false, "no such context"},
    {214, true, "uncorrectable ECC error"},
    {220, true, "NVLink error"},
    {226, true, "contained memory error"},
    {400, false, "its CUDA context is gone"},
    {700, true, "illegal memory access"},
    {702, true, "a kernel ran for too long"},
    {709, false, "its CUDA context was destroyed"},
    {710, true, "an assertion failed in a kernel"},
    {714, true, "hardware stack error"},
    {715, true, "illegal instruction"},
    {716, true, "misaligned address"},
    {717, true, "invalid address space"},
    {718, true, "invalid program counter"},
    {719, true, "a kernel failed"},
    {721, true, "a kernel left tensor memory allocated"},
};

static const struct cuda_error *find_cuda_error(int error)
{
    return NG_FIND(cuda_error, cuda_errors, NG_COUNT(cuda_errors), cuda_error->error == error);
}

const char *ng_op_name(unsigned op)
{
    if (op >= NG_OP_LIMIT || !ng_op_table[op].name)
        return "unknown";
    return ng_op_table[op].name;
}

const char *ng_dtype_name(int dtype)
{
    if (dtype < 0 || dtype >= (int)NG_COUNT(dtypes))
        return "unknown";
    return dtypes[dtype].name;
}

unsigned ng_dtype_bytes(int dtype)
{
    if (dtype < 0 || dtype >= (int)NG_COUNT(dtypes))
        return 0;
    return dtypes[dtype].bytes;
}

const char *ng_redop_name(int redop)
{
    if (redop < 0)
        return "unknown";
    if (redop >= (int)NG_COUNT(redops))
        return "custom";
    return redops[redop];
}

const char *ng_result_name(int result)
{
    if (result < 0 || result >= (int)NG_COUNT(results))
        return "unknown";
    return results[result];
}

const char *ng_cuda_error_text(int error)
{
    const struct cuda_error *known = find_cuda_error(error);

    return known ? known->text : "see cuda.h";
}

bool ng_cuda_error_is_permanent(int error)
{
    const struct cuda_error *known = find_cuda_error(error);

    return known && known->permanent;
}
