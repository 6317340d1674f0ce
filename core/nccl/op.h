/*
 * The operations of NCCL as records name them. Pure data; any thread.
 */
#ifndef NCCLGUARD_CORE_NCCL_OP_H
#define NCCLGUARD_CORE_NCCL_OP_H

#include <stdbool.h>
#include <stdint.h>

enum ng_op_class {
    NG_CLASS_NONE,
    NG_CLASS_COLLECTIVE,
    NG_CLASS_P2P,
    NG_CLASS_ONESIDED,
    NG_CLASS_GROUP,
    NG_CLASS_CREATE,
    NG_CLASS_END,
    NG_CLASS_QUERY,
    NG_CLASS_HOST,
};

/* Arguments that must be the same on every rank of a group (struct ng_op_info.fields). */
#define NG_F_COUNT 1u
#define NG_F_DTYPE 2u
#define NG_F_REDOP 4u
#define NG_F_ROOT  8u
#define NG_F_MEETS 16u /* none of those: core/nccl/op.def */

enum ng_op {
    NG_OP_NONE = 0,
#define NG_OP(number, name, class, fields) NG_OP_##name = number,
#include "core/nccl/op.def"
#undef NG_OP
    NG_OP_LIMIT = 96, /* every number is below */
};

/* The class of an operation as a constant expression: NG_OP_CLASS_AllReduce. */
enum {
#define NG_OP(number, name, class, fields) NG_OP_CLASS_##name = NG_CLASS_##class,
#include "core/nccl/op.def"
#undef NG_OP
};

struct ng_op_info {
    const char *name; /* "AllReduce"; NULL if no operation has the number */
    enum ng_op_class op_class;
    uint32_t fields; /* NG_F_* */
};

/* Indexed by enum ng_op. */
extern const struct ng_op_info ng_op_table[NG_OP_LIMIT];

/* Does NCCL create, change or end communicators in it? Its deadline is NCCLGUARD_INIT_TIMEOUT
 * then. */
static inline bool ng_op_is_init(unsigned op)
{
    return op < NG_OP_LIMIT &&
           (ng_op_table[op].op_class == NG_CLASS_CREATE ||
            ng_op_table[op].op_class == NG_CLASS_END || ng_op_table[op].op_class == NG_CLASS_HOST);
}

/* Host calls that all ranks of a group make equally often have a number below NG_OP_JOINT_CALLS:
 * each rank counts them (struct ng_box_host_calls). -1: another operation. */
#define NG_OP_JOINT_CALLS 6
static inline int ng_op_joint_call(unsigned op)
{
    return op >= NG_OP_CommWindowRegister && op < NG_OP_CommWindowRegister + NG_OP_JOINT_CALLS
               ? (int)op - NG_OP_CommWindowRegister
               : -1;
}

/* Does it only give something back? On an ended communicator there is nothing to do then. */
static inline bool ng_op_gives_back(unsigned op)
{
    return op == NG_OP_CommWindowDeregister || op == NG_OP_DevCommDestroy ||
           op == NG_OP_CommDeregister;
}

/* Does every rank wait for all others, and end with them? Not for operations with a root: one side
 * may have done its part before the other arrives. */
static inline bool ng_op_is_symmetric(unsigned op)
{
    return op < NG_OP_LIMIT && ng_op_table[op].op_class == NG_CLASS_COLLECTIVE &&
           !(ng_op_table[op].fields & NG_F_ROOT);
}

/* Name of an operation; "unknown" for a number that this version does not know. Never NULL. */
const char *ng_op_name(unsigned op);

/* NCCL's name of a data type ("float32") and a reduction ("sum"); "unknown" or "custom" otherwise.
 */
const char *ng_dtype_name(int dtype);
const char *ng_redop_name(int redop);

/* NCCL's name of a result ("ncclRemoteError"); "unknown" for one that is newer than this. */
const char *ng_result_name(int result);

/* What a CUresult that ends a context means, in a few words; "see cuda.h" for any other. */
const char *ng_cuda_error_text(int error);

/* Does a CUresult mean that CUDA has failed for good, so that the process has to end? */
bool ng_cuda_error_is_permanent(int error);

/* Bytes of one element of a data type; 0 if unknown. */
unsigned ng_dtype_bytes(int dtype);

#endif
