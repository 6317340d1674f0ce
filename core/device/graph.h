/*
 * Executable CUDA graphs that hold captured calls, and their replays.
 *
 * NCCL is not called when a graph is launched, so a launch stands for all of the graph's calls:
 * each gets its next number in its group and a record, as if the program had made it. Numbers thus
 * mean the same on every rank, replayed or not, and no other part of core needs to know about
 * replays: a rank that launches once less has not reached the first call of that replay. The calls
 * were not counted when they were captured. All calls of a launch on one communicator are one work,
 * which ends with the launch. Events inside the graph show its progress, as long as no later launch
 * of the same calls is queued: the events then belong to that launch.
 */
#ifndef NCCLGUARD_CORE_DEVICE_GRAPH_H
#define NCCLGUARD_CORE_DEVICE_GRAPH_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/comm/comm.h"
#include "core/nccl/call.h"

struct ng_graph;
struct ng_async_op;

/* An executable graph was instantiated from `graph`, or was updated to match it. Program threads,
 * after the driver. */
void ng_graph_made(CUgraphExec exec, CUgraph graph);

/* The child graph in node `node` was replaced by `from`. Program threads, after the driver. */
void ng_graph_child_set(CUgraphExec exec, CUgraphNode node, CUgraph from);

/* The executable graph is about to be destroyed; launches under way outlive it. Before the
 * driver. */
void ng_graph_destroyed(CUgraphExec exec);

/* The state kept for an executable graph; NULL: it holds no captured calls. Lock-free. */
extern _Atomic uint32_t ng_graph_count __attribute__((visibility("hidden")));
struct ng_graph *ng_graph_look_up(CUgraphExec exec);
static inline struct ng_graph *ng_graph_find(CUgraphExec exec)
{
    return __builtin_expect(atomic_load_explicit(&ng_graph_count, memory_order_acquire) == 0, 1)
               ? NULL
               : ng_graph_look_up(exec);
}

/* Around the driver's launch on `stream` (0: the legacy one). CUDA's rule: only one thread at a
 * time launches a given executable graph. */
void ng_graph_before_launch(struct ng_graph *graph, void *stream);
void ng_graph_after_launch(struct ng_graph *graph, void *stream, bool launched);

/* How many of one communicator's calls a graph's replay has completed. Watchdog, for a work that
 * has a part. */
struct ng_graph_progress {
    uint32_t done;             /* calls known to have finished, at least work->done */
    uint32_t collectives, p2p; /* among those beyond work->done */
    bool vague;                /* it may have advanced further: a later launch hides that */
};
struct ng_graph_progress ng_graph_progress(const struct ng_async_op *work);
uint32_t ng_graph_calls(const struct ng_async_op *work);
enum ng_op ng_graph_op(
    const struct ng_async_op *work); /* of the first call that is not known to have finished */

/* The ring has wrapped since the launch: write a second record of the oldest collective that has
 * not finished, so that readers can identify it. Its id; 0 none. Watchdog. */
uint64_t ng_graph_recall(const struct ng_async_op *work, uint32_t tid);

/* How long the device took for a finished call of a replay, or for the NCCL group that ends with
 * it. False: not measured, or a later launch has begun. Watchdog. */
struct ng_graph_measure {
    enum ng_op op; /* NG_OP_GroupEnd: several calls */
    uint64_t bytes;
    int64_t duration_ns;
};
bool ng_graph_measures(const struct ng_async_op *work); /* is any of its calls measured? */
bool ng_graph_measured(const struct ng_async_op *work, uint32_t call,
                       struct ng_graph_measure *ret_measure);

/* The work returns to its pool: drop its replay state. Watchdog. */
void ng_graph_forget(struct ng_async_op *work);

void ng_graph_after_fork(void);

#endif
