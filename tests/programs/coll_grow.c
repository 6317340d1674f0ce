/* Communicators that grow (NCCL 2.29). The lower half of the ranks makes the first one; the others
 * join it: grown. All split that by parity: part. All but the last shrink it: shrunk. The last
 * joins that again: regrown. Every iteration a collective on each.
 *
 * The first growing is as in NCCL's user guide: no rank of the parent passes the id on, but where
 * there is only one. The second is as in NCCL's performance tests: all of them do. */
#include "tests/programs/common.h"

#include <stdio.h>

/* Weak, and declared here: the program builds with older headers and starts with older libraries.
 */
#if NCCL_VERSION_CODE < NCCL_VERSION(2, 29, 2)
ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId *id);
ncclResult_t ncclCommGrow(ncclComm_t comm, int nranks, const ncclUniqueId *id, int rank,
                          ncclComm_t *newcomm, ncclConfig_t *config);
#endif
#pragma weak ncclCommGetUniqueId
#pragma weak ncclCommGrow

enum { FIRST, GROWN, PART, SHRUNK, REGROWN, COMMS };

static const char *const names[COMMS] = {"first", "grown", "part", "shrunk", "regrown"};

/* `parent` NULL: this rank joins. `maker`: it makes the id for those who do. `all_pass`: ranks of
 * the parent pass it, too. */
static ncclComm_t grow(const struct place *place, const struct options *options, unsigned ordinal,
                       ncclComm_t parent, bool maker, bool all_pass)
{
    ncclUniqueId id;
    ncclComm_t comm;
    if (maker)
        NCCL(ncclCommGetUniqueId(parent, &id));
    if (maker || !parent || all_pass)
        id = share_id(place, options, ordinal, maker ? &id : NULL);
    NCCL(ncclCommGrow(parent, place->nranks, !parent || all_pass ? &id : NULL,
                      parent ? -1 : place->rank, &comm, NULL));
    return comm;
}

static ncclComm_t first_init(const struct place *place, const struct options *options, int nranks)
{
    struct place old = {place->rank, nranks, place->local_rank};
    ncclComm_t comm;
    if (place->rank >= nranks)
        return NULL;
    ncclUniqueId id = exchange_id(&old, options, 0);
    NCCL(ncclCommInitRank(&comm, nranks, id, place->rank));
    return comm;
}

static void make_all(const struct place *place, const struct options *options,
                     ncclComm_t comms[COMMS])
{
    int old = (place->nranks + 1) / 2, last = place->nranks - 1;
    comms[FIRST] = first_init(place, options, old);
    fault_no_init(options, place->rank); /* it does not come to grow */
    comms[GROWN] = grow(place, options, 1, comms[FIRST], place->rank == old - 1, old == 1);
    NCCL(ncclCommSplit(comms[GROWN], place->rank % 2, place->rank, &comms[PART], NULL));
    if (place->rank != last)
        NCCL(ncclCommShrink(comms[GROWN], &last, 1, &comms[SHRUNK], NULL, NCCL_SHRINK_DEFAULT));
    comms[REGROWN] = grow(place, options, 2, comms[SHRUNK], place->rank == 0, true);
}

/* One after the other, so that who waits does so in one group alone. */
static void one_by_one(struct member *members, int nmembers, unsigned long i)
{
    for (int m = 0; m < nmembers; m++) {
        call_by_call(&members[m], 1, i);
        if (drain_due(&options, i))
            member_drain(&members[m]);
    }
}

int main(int argc, char **argv)
{
    ncclComm_t comms[COMMS] = {NULL};
    struct member members[COMMS];
    int nmine = 0;
    options_parse(&options, TAKES_OP | TAKES_COMM, "grown|first|part|shrunk|regrown", argc, argv);
    if (!ncclCommGrow || !ncclCommGetUniqueId) {
        fprintf(stderr, "%s: the NCCL library has no ncclCommGrow, which came with 2.29\n",
                options.program);
        return 5;
    }
    place_begin();
    if (place.nranks < 2) {
        fprintf(stderr, "%s: needs two ranks, so that there is one to join\n", options.program);
        return 2;
    }
    make_all(&place, &options, comms);
    size_t slots = slots_needed(&options, iteration_calls(&options));
    for (int c = 0; c < COMMS; c++)
        if (comms[c])
            member_init(&members[nmine++], &options, names[c], place.rank, comms[c], slots);
    run_to_end(members, nmine, one_by_one);
    return 0;
}
