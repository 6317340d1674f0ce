/*
 * Hooks on the functions that create, change, launch and destroy executable CUDA graphs.
 *
 * Beside the steps of a call. Entered by the program's threads in place of the driver, whose
 * results are returned unchanged. A program that is linked with the driver itself is not
 * intercepted: its captured calls are only recorded.
 */
#include "shim/cuda_hooks.h"

#include <errno.h>

#include "core/device/capture.h"
#include "core/device/graph.h"
#include "core/runtime/runtime.h"

static CUresult made(CUresult result, const CUgraphExec *exec, CUgraph graph)
{
    int saved = errno;

    if (result == CUDA_SUCCESS && atomic_load_explicit(&ng_guard.running, memory_order_acquire))
        ng_graph_made(*exec, graph);
    errno = saved;
    return result;
}

#define MADE_HOOK(symbol, parameters, arguments, exec)                                             \
    static CUresult CUDAAPI hook_##symbol parameters                                               \
    {                                                                                              \
        return made(ng_cuda_real_##symbol() arguments, exec, graph);                               \
    }
MADE_HOOK(cuGraphInstantiateWithFlags,
          (CUgraphExec * exec, CUgraph graph, unsigned long long flags), (exec, graph, flags), exec)
MADE_HOOK(cuGraphInstantiate_v12000, (CUgraphExec * exec, CUgraph graph, unsigned long long flags),
          (exec, graph, flags), exec)
MADE_HOOK(cuGraphInstantiate_v2,
          (CUgraphExec * exec, CUgraph graph, CUgraphNode *error_node, char *text, size_t bytes),
          (exec, graph, error_node, text, bytes), exec)
MADE_HOOK(cuGraphInstantiateWithParams,
          (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params),
          (exec, graph, params), exec)
MADE_HOOK(cuGraphInstantiateWithParams_ptsz,
          (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params),
          (exec, graph, params), exec)
MADE_HOOK(cuGraphExecUpdate,
          (CUgraphExec exec, CUgraph graph, CUgraphNode *error_node,
           CUgraphExecUpdateResult *update_result),
          (exec, graph, error_node, update_result), &exec)
MADE_HOOK(cuGraphExecUpdate_v2,
          (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info), (exec, graph, info),
          &exec)

static CUresult child_set(CUresult result, CUgraphExec exec, CUgraphNode node, CUgraph child)
{
    int saved = errno;

    if (result == CUDA_SUCCESS && atomic_load_explicit(&ng_guard.running, memory_order_acquire))
        ng_graph_child_set(exec, node, child);
    errno = saved;
    return result;
}

static CUresult CUDAAPI hook_cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                                CUgraph child)
{
    return child_set(ng_cuda_real_cuGraphExecChildGraphNodeSetParams()(exec, node, child), exec,
                     node, child);
}

/* The beginning of CUgraphNodeParams, which cuda.h has from 12.2 on. */
struct node_params {
    CUgraphNodeType type;
    int reserved[3];
    CUgraph child; /* of CU_GRAPH_NODE_TYPE_GRAPH */
};

static CUresult CUDAAPI hook_cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                      void *params)
{
    CUresult result = ng_cuda_real_cuGraphExecNodeSetParams()(exec, node, params);
    const struct node_params *head = params;

    return head && head->type == CU_GRAPH_NODE_TYPE_GRAPH
               ? child_set(result, exec, node, head->child)
               : result;
}

/* Before the driver's call: afterwards another thread may receive the same handle. */
static CUresult CUDAAPI hook_cuGraphExecDestroy(CUgraphExec exec)
{
    ng_graph_destroyed(exec);
    return ng_cuda_real_cuGraphExecDestroy()(exec);
}

static CUresult launch_watched(struct ng_graph *graph, ng_cuda_function_cuGraphLaunch *real,
                               CUgraphExec exec, CUstream stream, void *meant)
{
    int saved = errno;

    ng_graph_before_launch(graph, meant);
    errno = saved;
    CUresult result = real(exec, stream);
    saved = errno;
    ng_graph_after_launch(graph, meant, result == CUDA_SUCCESS);
    errno = saved;
    return result;
}

/* The process may have forked, or be about to exit. */
static struct ng_graph *find(CUgraphExec exec)
{
    struct ng_graph *graph = ng_graph_find(exec);

    return graph && atomic_load_explicit(&ng_guard.running, memory_order_acquire) ? graph : NULL;
}

#define LAUNCH_HOOK(symbol, meant)                                                                 \
    static CUresult CUDAAPI hook_##symbol(CUgraphExec exec, CUstream stream)                       \
    {                                                                                              \
        struct ng_graph *graph = find(exec);                                                       \
        return graph ? launch_watched(graph, ng_cuda_real_##symbol(), exec, stream, meant)         \
                     : ng_cuda_real_##symbol()(exec, stream);                                      \
    }
LAUNCH_HOOK(cuGraphLaunch, stream)
/* In this form the default stream is the thread's own, which our table of the driver's functions
 * lists under its other name. */
LAUNCH_HOOK(cuGraphLaunch_ptsz, stream ? stream : CU_STREAM_PER_THREAD)

/* The bodies of conditional nodes may contain no events, and a capture may be for such a body. */
static CUresult CUDAAPI hook_cuGraphConditionalHandleCreate(cuuint64_t *handle, CUgraph graph,
                                                            CUcontext context, unsigned int value,
                                                            unsigned int flags)
{
    int saved = errno;

    ng_capture_stop("the program makes CUDA graphs with conditional nodes");
    errno = saved;
    return ng_cuda_real_cuGraphConditionalHandleCreate()(handle, graph, context, value, flags);
}

void ng_cuda_graphs_enable(void)
{
    ng_cuda_hook_enable_cuGraphLaunch(hook_cuGraphLaunch);
    ng_cuda_hook_enable_cuGraphLaunch_ptsz(hook_cuGraphLaunch_ptsz);
    ng_cuda_hook_enable_cuGraphInstantiate_v2(hook_cuGraphInstantiate_v2);
    ng_cuda_hook_enable_cuGraphInstantiate_v12000(hook_cuGraphInstantiate_v12000);
    ng_cuda_hook_enable_cuGraphInstantiateWithFlags(hook_cuGraphInstantiateWithFlags);
    ng_cuda_hook_enable_cuGraphInstantiateWithParams(hook_cuGraphInstantiateWithParams);
    ng_cuda_hook_enable_cuGraphInstantiateWithParams_ptsz(hook_cuGraphInstantiateWithParams_ptsz);
    ng_cuda_hook_enable_cuGraphExecUpdate(hook_cuGraphExecUpdate);
    ng_cuda_hook_enable_cuGraphExecUpdate_v2(hook_cuGraphExecUpdate_v2);
    ng_cuda_hook_enable_cuGraphExecChildGraphNodeSetParams(hook_cuGraphExecChildGraphNodeSetParams);
    ng_cuda_hook_enable_cuGraphExecNodeSetParams(hook_cuGraphExecNodeSetParams);
    ng_cuda_hook_enable_cuGraphExecDestroy(hook_cuGraphExecDestroy);
    ng_cuda_hook_enable_cuGraphConditionalHandleCreate(hook_cuGraphConditionalHandleCreate);
    ng_capture_enable();
}
