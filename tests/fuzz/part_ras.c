/*
 * What NCCL's RAS answers: store/ras/ras_answer.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/verdict/verdict.h"
#include "core/view/ras.h"
#include "core/view/view.h"
#include "store/ras/ras_answer.h"
#include "tests/fuzz/parts.h"

/* The comma behind nvml_dev is missing, as in NCCL 2.28.9. */
static const char json[] =
    "{\n  \"nccl_version\": \"2.28.9\",\n  \"communicators_count\": 1,\n  \"communicators\": [\n"
    "    {\n      \"hash\": \"0xae94423cfbb2ef4a\",\n      \"secondary_hash\": \"0xb7:0xb8\",\n"
    "      \"size\": 3,\n      \"ranks_count\": 2,\n      \"missing_ranks_count\": 1,\n"
    "      \"ranks\": [\n        {\n          \"rank\": 0,\n          \"host\": \"10.0.0.1\",\n"
    "          \"pid\": 1000,\n          \"cuda_dev\": 0,\n          \"nvml_dev\": 0,\n"
    "          \"status\": {\n            \"init_state\": 0,\n            \"async_error\": 0,\n"
    "            \"finalize_called\": false,\n            \"destroy_flag\": false,\n"
    "            \"abort_flag\": false\n          },\n          \"collective_counts\": {\n"
    "            \"Broadcast\": 0,\n            \"AllReduce\": 7\n          }\n        },\n"
    "        {\n          \"rank\": 1,\n          \"host\": \"10.0.0.2\",\n"
    "          \"pid\": 1001,\n          \"status\": {\n            \"finalize_called\": true\n"
    "          },\n          \"collective_counts\": {\n            \"AllReduce\": 6\n          }\n"
    "        }\n      ],\n      \"missing_ranks\": [\n        {\n          \"rank\": 2,\n"
    "          \"host\": \"10.0.0.3\",\n          \"pid\": 1002,\n          \"nvml_dev\": 1\n"
    "          \"status\": {\n            \"unresponsive\": true,\n"
    "            \"considered_dead\": false\n          }\n        }\n      ]\n    }\n  ],\n"
    "  \"ras\": {\n    \"collection_time_sec\": 0.000,\n    \"timeouts_count\": 0\n  }\n}\n";

static const char text[] =
    "NCCL version 2.26.2 compiled with CUDA 12.8\nCUDA runtime version 12080, driver version "
    "12080\n\nJob summary\n===========\n\nCommunicators... (0.00s)\n=============\n\n"
    "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n"
    "    #  in group  per comm  per node  per comm  in group\n"
    "    0         1         4       1-2         8        32   RUNNING  INCOMPLETE\n"
    "\nErrors\n======\n\nDEAD\n  1 job process is considered dead (unreachable via the RAS "
    "network)\n  Process 1002 on node 10.0.0.3 managing GPU 6\n\n"
    "#0-0 (ae94423cfbb2ef4a) INCOMPLETE\n  Missing communicator data from 1 rank\n"
    "  Rank 2 -- GPU 6 managed by process 1002 on node 10.0.0.3\n\nWarnings\n========\n\n"
    "#0-0 (ae94423cfbb2ef4a) MISMATCH\n  Communicator ranks have different status\n"
    "  6 ranks have status RUNNING\n"
    "  Rank 4 has status FINALIZE -- GPU 4 managed by process 1004 on node 1.2.3.4\n"
    "  Communicator ranks have different AllReduce operation counts\n"
    "  5 ranks have launched up to operation 20\n  2 ranks have launched up to operation 19\n"
    "  Rank 3 -- GPU 3 managed by process 1003 on node 10.0.0.3\n"
    "  Rank 5 -- [process information not found]\n\n";

static struct damage_sample sample(const char *name, const char *from, size_t count)
{
    uint8_t *bytes = malloc(count);

    if (!bytes)
        exit(1);
    memcpy(bytes, from, count);
    return damage_sample_make(name, bytes, count);
}

static size_t make_ras(struct damage_sample samples[PART_SAMPLES_MAX])
{
    samples[0] = sample("json", json, sizeof(json) - 1);
    samples[1] = sample("text", text, sizeof(text) - 1);
    return 2;
}

/* A view in which rank 0 waits, and nothing is known of the others. */
static void use(const struct ng_ras_answer *answer, int size)
{
    struct ng_ras_known known = {.group_id = 1, .hash = UINT64_C(0xae94423cfbb2ef4a)};
    struct ng_verdict_query query = {.stalled_ns = 1};
    struct ng_verdict verdict;
    struct ng_view view;

    ng_view_init(&view);
    struct ng_view_process *process = ng_view_add_process(&view);
    uint32_t group = ng_view_intern_group(&view, 1);
    part_promise(process && group == 0, "no memory");
    process->self = true;
    process->pid = 1000;
    process->life = NG_LIFE_RUNNING;
    view.groups[group].nranks = size;
    struct ng_view_member *member = ng_view_add_member(&view, 0, group, 0);
    part_promise(member != NULL, "no memory");
    member->state = NG_GROUP_READY;
    member->entered = member->scheduled = member->pending_seq = 7;
    member->pending_record = 7;
    member->pending_age_ns = INT64_C(1) << 40;
    ng_view_seal(&view);
    part_promise(ng_ras_match(answer, &known, 1, 1, &view) == 0, "no memory");
    for (uint32_t i = 0; i < view.ras_count; i++)
        part_promise(view.ras[i].rank.rank > 0 && view.ras[i].rank.rank < size &&
                         view.ras[i].rank.state < NG_RAS_STATES &&
                         (!i || view.ras[i].rank.rank > view.ras[i - 1].rank.rank),
                     "a word on a rank that there is not");
    part_promise(ng_verdict_reach(&view, &query, &verdict) == 0, "no memory");
    part_promise(verdict.confidence != NG_CONFIDENCE_CERTAIN || verdict.kind == NG_KIND_HEALTHY,
                 "certain by what comes from outside");
    ng_verdict_fini(&verdict);
    ng_view_fini(&view);
}

static bool take_ras(const uint8_t *bytes, size_t count)
{
    struct ng_ras_answer answer;
    int error = ng_ras_answer_read((const char *)bytes, count, &answer);

    part_promise(error == 0 || error == -EBADMSG, "another error");
    if (error)
        return false;
    for (uint32_t c = 0; c < answer.count; c++) {
        const struct ng_ras_communicator *communicator = &answer.communicators[c];
        for (uint32_t i = 0; i < communicator->rank_count; i++) {
            const struct ng_ras_rank *rank = &communicator->ranks[i];
            part_promise(rank->rank >= 0 && rank->rank < communicator->size &&
                             (!i || rank->rank > rank[-1].rank),
                         "ranks out of order");
            part_promise(memchr(rank->host, '\0', sizeof(rank->host)) && rank->pid >= 0 &&
                             rank->state < NG_RAS_STATES,
                         "a rank that cannot be");
        }
    }
    use(&answer, 3);
    use(&answer, 8);
    ng_arena_reset(&answer.arena);
    return true;
}

const struct part part_ras = {"ras", make_ras, take_ras};
