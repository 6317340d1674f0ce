/* Host side of NCCL's device API. There is no device code here to serve: a device communicator is
 * refused, as on hardware that cannot have one, unless FAKE_NCCL_DEVICE_API=1; teams are plain
 * arithmetic over one node's ranks. */
#include <nccl.h>
#include <nccl_device.h>

extern "C" {
#include "tests/fake/nccl/fake_device.h"
}

#if NCCL_VERSION_CODE < 22807
typedef struct ncclGinBarrierHandle ncclGinBarrierHandle_t; /* came with 2.28.7 */
#endif

#define EXPORT __attribute__((visibility("default")))
#define DEVICE_API(ret, name, args)                                                                \
    extern "C" EXPORT ret p##name args;                                                            \
    extern "C" EXPORT __attribute__((weak, alias("p" #name))) ret name args;                       \
    extern "C" ret p##name args
#define DEVICE_FORM(ret, name, args, call)                                                         \
    DEVICE_API(ret, name, args)                                                                    \
    {                                                                                              \
        return call;                                                                               \
    }

DEVICE_FORM(ncclResult_t, ncclDevCommCreate,
            (ncclComm_t comm, const ncclDevCommRequirements_t *, ncclDevComm_t *),
            fake_device_comm_create(comm))
DEVICE_FORM(ncclResult_t, ncclDevCommDestroy, (ncclComm_t comm, const ncclDevComm_t *),
            fake_device_comm_end(comm))

DEVICE_API(int, ncclLLA2ACalcSlots, (int max_elements, int max_element_bytes))
{
    /* A slot carries 8 bytes of data beside its flags. */
    return max_elements * ((max_element_bytes + 7) / 8);
}

DEVICE_FORM(ncclResult_t, ncclLLA2ACreateRequirement,
            (int, int, ncclLLA2AHandle_t *, ncclDevResourceRequirements_t *),
            fake_device_unsupported("ncclLLA2ACreateRequirement"))
DEVICE_FORM(ncclResult_t, ncclLsaBarrierCreateRequirement,
            (ncclTeam_t, int, ncclLsaBarrierHandle_t *, ncclDevResourceRequirements_t *),
            fake_device_unsupported("ncclLsaBarrierCreateRequirement"))
DEVICE_FORM(ncclResult_t, ncclGinBarrierCreateRequirement,
            (ncclComm_t comm, ncclTeam_t, int, ncclGinBarrierHandle_t *,
             ncclDevResourceRequirements_t *),
            fake_device_unsupported("ncclGinBarrierCreateRequirement"))

static ncclTeam_t team(ncclComm_t comm, bool rail)
{
    ncclTeam_t result = {0, 0, 0};
    int nranks = 0, rank = 0;
    if (fake_device_ranks(comm, &nranks, &rank)) {
        /* All ranks lie on one node: the node's team is the world, and each rail is one rank. */
        result.nRanks = rail ? 1 : nranks;
        result.rank = rail ? 0 : rank;
        result.stride = rail ? nranks : 1;
    }
    return result;
}

DEVICE_FORM(ncclTeam_t, ncclTeamWorld, (ncclComm_t comm), team(comm, false))
DEVICE_FORM(ncclTeam_t, ncclTeamLsa, (ncclComm_t comm), team(comm, false))
DEVICE_FORM(ncclTeam_t, ncclTeamRail, (ncclComm_t comm), team(comm, true))

static int rank_to_world(ncclComm_t comm, ncclTeam_t of, int rank)
{
    int nranks = 0, mine = 0;
    fake_device_ranks(comm, &nranks, &mine);
    return mine + (rank - of.rank) * of.stride;
}

DEVICE_FORM(int, ncclTeamRankToWorld, (ncclComm_t comm, ncclTeam_t of, int rank),
            rank_to_world(comm, of, rank))
DEVICE_FORM(int, ncclTeamRankToLsa, (ncclComm_t comm, ncclTeam_t of, int rank),
            rank_to_world(comm, of, rank))
