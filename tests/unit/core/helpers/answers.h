/*
 * Functions that stand in for those of CUDA and NCCL and do one thing: what that is, then success.
 */
#ifndef NCCLGUARD_TESTS_UNIT_ANSWERS_H
#define NCCLGUARD_TESTS_UNIT_ANSWERS_H

#define CUDA_ANSWER(name, parameters, ...)                                                         \
    static CUresult name parameters                                                                \
    {                                                                                              \
        __VA_ARGS__;                                                                               \
        return CUDA_SUCCESS;                                                                       \
    }
#define NCCL_ANSWER(name, parameters, ...)                                                         \
    static int name parameters                                                                     \
    {                                                                                              \
        __VA_ARGS__;                                                                               \
        return NG_NCCL_SUCCESS;                                                                    \
    }

#endif
