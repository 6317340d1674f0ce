/* Functions for device_api.cc, which must be C++ because NCCL's own header is. */
#ifndef FAKE_NCCL_FAKE_DEVICE_H
#define FAKE_NCCL_FAKE_DEVICE_H

#include <nccl.h>
#include <stdbool.h>

/* Sets the last error and returns ncclInvalidUsage. */
ncclResult_t fake_device_unsupported(const char *func);
/* Wait for all ranks, as NCCL's do. */
ncclResult_t fake_device_comm_create(ncclComm_t comm);
ncclResult_t fake_device_comm_end(ncclComm_t comm);
/* False for a handle that is no communicator. */
bool fake_device_ranks(ncclComm_t comm, int *ret_nranks, int *ret_rank);

#endif
