/*
 * The table of operations, and names of data types and reductions against nccl.h.
 */
#include "tests/unit/core/helpers/core.h"

#include <cuda.h>
#include <nccl.h>

TEST(Op, EveryRowHasANumberOfItsOwnBelowTheLimit)
{
    std::set<int> numbers;
    std::set<std::string> names;
    int rows = 0;

#define NG_OP(number, name, op_class, fields)                                                      \
    numbers.insert(number);                                                                        \
    names.insert(#name);                                                                           \
    rows++;                                                                                        \
    EXPECT_GT(number, 0);                                                                          \
    EXPECT_LT(number, NG_OP_LIMIT);                                                                \
    EXPECT_STREQ(ng_op_name(number), #name);
#include "core/nccl/op.def"
#undef NG_OP
    EXPECT_EQ((int)numbers.size(), rows);
    EXPECT_EQ((int)names.size(), rows);
}

/* Black boxes and dumps of other versions hold these numbers. */
TEST(Op, NumbersInFilesStayWhatTheyWere)
{
    EXPECT_EQ((int)NG_OP_AllReduce, 1);
    EXPECT_EQ((int)NG_OP_Scatter, 8);
    EXPECT_EQ((int)NG_OP_Send, 16);
    EXPECT_EQ((int)NG_OP_Recv, 17);
    EXPECT_EQ((int)NG_OP_GroupEnd, 33);
    EXPECT_EQ((int)NG_OP_CommInitRank, 40);
    EXPECT_EQ((int)NG_OP_CommDestroy, 57);
}

TEST(Op, UnknownNumbersAreToldAsSuch)
{
    EXPECT_STREQ(ng_op_name(0), "unknown");
    EXPECT_STREQ(ng_op_name(15), "unknown");
    EXPECT_STREQ(ng_op_name(NG_OP_LIMIT), "unknown");
    EXPECT_STREQ(ng_op_name(UINT32_MAX), "unknown");
}

TEST(Op, OnlyCollectivesHaveFieldsToAgreeOn)
{
    for (unsigned op = 0; op < NG_OP_LIMIT; op++) {
        if (ng_op_table[op].op_class == NG_CLASS_COLLECTIVE)
            EXPECT_NE(ng_op_table[op].fields & NG_F_DTYPE, 0u) << ng_op_name(op);
        else if (ng_op_table[op].op_class == NG_CLASS_HOST)
            EXPECT_EQ(ng_op_table[op].fields & ~NG_F_MEETS, 0u) << ng_op_name(op);
        else
            EXPECT_EQ(ng_op_table[op].fields, 0u) << ng_op_name(op);
    }
}

TEST(Op, HostCallsThatRanksMakeEquallyOftenHaveNumbersInARow)
{
    for (unsigned op = 0, next = 0; op < NG_OP_LIMIT; op++) {
        bool joint = ng_op_table[op].op_class == NG_CLASS_HOST && op != NG_OP_CommDeregister;
        EXPECT_EQ(ng_op_joint_call(op), joint ? (int)next : -1) << ng_op_name(op);
        next += joint;
        EXPECT_EQ(op + 1 == NG_OP_LIMIT && next != NG_OP_JOINT_CALLS, false);
    }
}

TEST(Op, DataTypesAndReductionsAreThoseOfTheHeader)
{
    static const struct {
        int number;
        const char *name;
        unsigned bytes;
    } dtypes[] = {
        {ncclInt8, "int8", 1},         {ncclUint8, "uint8", 1},     {ncclInt32, "int32", 4},
        {ncclUint32, "uint32", 4},     {ncclInt64, "int64", 8},     {ncclUint64, "uint64", 8},
        {ncclFloat16, "float16", 2},   {ncclFloat32, "float32", 4}, {ncclFloat64, "float64", 8},
        {ncclBfloat16, "bfloat16", 2},
    };
    for (const auto &row : dtypes) {
        EXPECT_STREQ(ng_dtype_name(row.number), row.name);
        EXPECT_EQ(ng_dtype_bytes(row.number), row.bytes) << row.name;
    }
    for (int dtype = 0; dtype < (int)ncclNumTypes; dtype++)
        EXPECT_NE(ng_dtype_bytes(dtype), 0u) << "data type " << dtype << " of nccl.h has no row";
    for (int dtype : {-1, (int)ncclNumTypes + 100, INT32_MIN, INT32_MAX}) {
        EXPECT_STREQ(ng_dtype_name(dtype), "unknown");
        EXPECT_EQ(ng_dtype_bytes(dtype), 0u);
    }
    EXPECT_STREQ(ng_redop_name(ncclSum), "sum");
    EXPECT_STREQ(ng_redop_name(ncclProd), "prod");
    EXPECT_STREQ(ng_redop_name(ncclMax), "max");
    EXPECT_STREQ(ng_redop_name(ncclMin), "min");
    EXPECT_STREQ(ng_redop_name(ncclAvg), "avg");
    EXPECT_STREQ(ng_redop_name((int)ncclNumOps + 3), "custom");
    EXPECT_STREQ(ng_redop_name(-1), "unknown");
}

TEST(Op, ResultsAreThoseOfTheHeaderAndOneThatCameLater)
{
    static const struct {
        int number;
        const char *name;
    } results[] = {
        {ncclSuccess, "ncclSuccess"},
        {ncclUnhandledCudaError, "ncclUnhandledCudaError"},
        {ncclSystemError, "ncclSystemError"},
        {ncclInternalError, "ncclInternalError"},
        {ncclInvalidArgument, "ncclInvalidArgument"},
        {ncclInvalidUsage, "ncclInvalidUsage"},
        {ncclRemoteError, "ncclRemoteError"},
        {ncclInProgress, "ncclInProgress"},
        {8, "ncclTimeout"},
    };
    for (const auto &row : results)
        EXPECT_STREQ(ng_result_name(row.number), row.name);
    for (int result = 0; result < (int)ncclNumResults; result++)
        EXPECT_STRNE(ng_result_name(result), "unknown") << "result " << result << " of nccl.h";
    for (int result : {-1, 1000, INT32_MIN, INT32_MAX})
        EXPECT_STREQ(ng_result_name(result), "unknown");
}

TEST(Op, ErrorsThatEndADeviceAreExplained)
{
    for (int error : {CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_ASSERT,
                      CUDA_ERROR_ECC_UNCORRECTABLE, CUDA_ERROR_NVLINK_UNCORRECTABLE,
                      CUDA_ERROR_CONTEXT_IS_DESTROYED, CUDA_ERROR_LAUNCH_TIMEOUT,
                      CUDA_ERROR_MISALIGNED_ADDRESS, CUDA_ERROR_ILLEGAL_INSTRUCTION})
        EXPECT_STRNE(ng_cuda_error_text(error), "see cuda.h") << error;
    EXPECT_STREQ(ng_cuda_error_text(CUDA_ERROR_ILLEGAL_ADDRESS), "illegal memory access");
    for (int error : {0, -1, 9999})
        EXPECT_STREQ(ng_cuda_error_text(error), "see cuda.h");
    for (int error : {CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_CONTAINED})
        EXPECT_TRUE(ng_cuda_error_is_permanent(error)) << error;
    for (int error : {0, -1, 9999, (int)CUDA_ERROR_OUT_OF_MEMORY, (int)CUDA_ERROR_NOT_READY,
                      (int)CUDA_ERROR_CONTEXT_IS_DESTROYED, (int)CUDA_ERROR_INVALID_HANDLE})
        EXPECT_FALSE(ng_cuda_error_is_permanent(error)) << error;
}
