/*
 * Graphs of the stand-in runtime, and those capture calls whose form changed with CUDA 13.
 *
 * Entered by any thread of the program.
 */
#include "tests/fake/cuda/cudart_state.h"

#include <string.h>

/* Capture. */

cudaError_t CUDARTAPI cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    CUDART_CALL(cudart_bind, cuStreamBeginCapture(stream, (CUstreamCaptureMode)mode));
}
PER_THREAD(cudaStreamBeginCapture, (cudaStream_t stream, enum cudaStreamCaptureMode mode),
           (cudart_per_thread(stream), mode))

cudaError_t CUDARTAPI cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph,
                                                    const cudaGraphNode_t *dependencies,
                                                    const cudaGraphEdgeData *dependencyData,
                                                    size_t numDependencies,
                                                    enum cudaStreamCaptureMode mode)
{
    CUDART_CALL(cudart_bind,
                cuStreamBeginCaptureToGraph(stream, graph, dependencies,
                                            (const CUgraphEdgeData *)dependencyData,
                                            numDependencies, (CUstreamCaptureMode)mode));
}
PER_THREAD(cudaStreamBeginCaptureToGraph,
           (cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
            const cudaGraphEdgeData *dependencyData, size_t numDependencies,
            enum cudaStreamCaptureMode mode),
           (cudart_per_thread(stream), graph, dependencies, dependencyData, numDependencies, mode))

cudaError_t CUDARTAPI cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *pGraph)
{
    CUDART_CALL(cudart_bind, cuStreamEndCapture(stream, pGraph));
}
PER_THREAD(cudaStreamEndCapture, (cudaStream_t stream, cudaGraph_t *pGraph),
           (cudart_per_thread(stream), pGraph))

static cudaError_t capture_info(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                unsigned long long *id, cudaGraph_t *graph,
                                const cudaGraphNode_t **deps, const cudaGraphEdgeData **edges,
                                size_t *n_deps)
{
    CUDART_CALL(cudart_bind,
                cuStreamGetCaptureInfo(stream, (CUstreamCaptureStatus *)status, (cuuint64_t *)id,
                                       graph, deps, (const CUgraphEdgeData **)edges, n_deps));
}

static cudaError_t update_deps(cudaStream_t stream, cudaGraphNode_t *deps,
                               const cudaGraphEdgeData *edges, size_t n, unsigned int flags)
{
    CUDART_CALL(cudart_bind, cuStreamUpdateCaptureDependencies(
                                 stream, deps, (const CUgraphEdgeData *)edges, n, flags));
}

/* Edges. */

static cudaError_t get_edges(cudaGraph_t graph, cudaGraphNode_t *from, cudaGraphNode_t *to,
                             cudaGraphEdgeData *edges, size_t *n)
{
    CUDART_CALL(cudart_ready, cuGraphGetEdges(graph, from, to, (CUgraphEdgeData *)edges, n));
}

static cudaError_t get_deps(cudaGraphNode_t node, cudaGraphNode_t *deps, cudaGraphEdgeData *edges,
                            size_t *n)
{
    CUDART_CALL(cudart_ready, cuGraphNodeGetDependencies(node, deps, (CUgraphEdgeData *)edges, n));
}

static cudaError_t get_dependents(cudaGraphNode_t node, cudaGraphNode_t *nodes,
                                  cudaGraphEdgeData *edges, size_t *n)
{
    CUDART_CALL(cudart_ready,
                cuGraphNodeGetDependentNodes(node, nodes, (CUgraphEdgeData *)edges, n));
}

static cudaError_t add_deps(cudaGraph_t graph, const cudaGraphNode_t *from,
                            const cudaGraphNode_t *to, const cudaGraphEdgeData *edges, size_t n)
{
    CUDART_CALL(cudart_ready,
                cuGraphAddDependencies(graph, from, to, (const CUgraphEdgeData *)edges, n));
}

static cudaError_t remove_deps(cudaGraph_t graph, const cudaGraphNode_t *from,
                               const cudaGraphNode_t *to, const cudaGraphEdgeData *edges, size_t n)
{
    CUDART_CALL(cudart_ready,
                cuGraphRemoveDependencies(graph, from, to, (const CUgraphEdgeData *)edges, n));
}

#if FAKE_CUDART_VERSION >= 13000

cudaError_t CUDARTAPI cudaStreamGetCaptureInfo(cudaStream_t stream,
                                               enum cudaStreamCaptureStatus *captureStatus_out,
                                               unsigned long long *id_out, cudaGraph_t *graph_out,
                                               const cudaGraphNode_t **dependencies_out,
                                               const cudaGraphEdgeData **edgeData_out,
                                               size_t *numDependencies_out)
{
    return capture_info(stream, captureStatus_out, id_out, graph_out, dependencies_out,
                        edgeData_out, numDependencies_out);
}
PER_THREAD(cudaStreamGetCaptureInfo,
           (cudaStream_t stream, enum cudaStreamCaptureStatus *captureStatus_out,
            unsigned long long *id_out, cudaGraph_t *graph_out,
            const cudaGraphNode_t **dependencies_out, const cudaGraphEdgeData **edgeData_out,
            size_t *numDependencies_out),
           (cudart_per_thread(stream), captureStatus_out, id_out, graph_out, dependencies_out,
            edgeData_out, numDependencies_out))

cudaError_t CUDARTAPI cudaStreamUpdateCaptureDependencies(cudaStream_t stream,
                                                          cudaGraphNode_t *dependencies,
                                                          const cudaGraphEdgeData *dependencyData,
                                                          size_t numDependencies,
                                                          unsigned int flags)
{
    return update_deps(stream, dependencies, dependencyData, numDependencies, flags);
}
PER_THREAD(cudaStreamUpdateCaptureDependencies,
           (cudaStream_t stream, cudaGraphNode_t *dependencies,
            const cudaGraphEdgeData *dependencyData, size_t numDependencies, unsigned int flags),
           (cudart_per_thread(stream), dependencies, dependencyData, numDependencies, flags))

cudaError_t CUDARTAPI cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t *from,
                                        cudaGraphNode_t *to, cudaGraphEdgeData *edgeData,
                                        size_t *numEdges)
{
    return get_edges(graph, from, to, edgeData, numEdges);
}

cudaError_t CUDARTAPI cudaGraphNodeGetDependencies(cudaGraphNode_t node,
                                                   cudaGraphNode_t *pDependencies,
                                                   cudaGraphEdgeData *edgeData,
                                                   size_t *pNumDependencies)
{
    return get_deps(node, pDependencies, edgeData, pNumDependencies);
}

cudaError_t CUDARTAPI cudaGraphNodeGetDependentNodes(cudaGraphNode_t node,
                                                     cudaGraphNode_t *pDependentNodes,
                                                     cudaGraphEdgeData *edgeData,
                                                     size_t *pNumDependentNodes)
{
    return get_dependents(node, pDependentNodes, edgeData, pNumDependentNodes);
}

cudaError_t CUDARTAPI cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t *from,
                                               const cudaGraphNode_t *to,
                                               const cudaGraphEdgeData *edgeData,
                                               size_t numDependencies)
{
    return add_deps(graph, from, to, edgeData, numDependencies);
}

cudaError_t CUDARTAPI cudaGraphRemoveDependencies(cudaGraph_t graph, const cudaGraphNode_t *from,
                                                  const cudaGraphNode_t *to,
                                                  const cudaGraphEdgeData *edgeData,
                                                  size_t numDependencies)
{
    return remove_deps(graph, from, to, edgeData, numDependencies);
}

#else

/*
 * CUDA 12: the plain names have no edge data, forms with it are called _v2 or _v3. The header at
 * hand declares the plain names otherwise, so they are set by label.
 */
#define CUDA_12(name, parameters, call)                                                            \
    cudaError_t name##_12 parameters __asm__(#name);                                               \
    cudaError_t name##_12 parameters                                                               \
    {                                                                                              \
        return call;                                                                               \
    }

#define CUDA_12_STREAM(name, parameters, call, call_per_thread)                                    \
    CUDA_12(name, parameters, call)                                                                \
    CUDA_12(name##_ptsz, parameters, call_per_thread)

CUDA_12_STREAM(cudaStreamGetCaptureInfo,
               (cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id),
               capture_info(stream, status, id, NULL, NULL, NULL, NULL),
               capture_info(cudart_per_thread(stream), status, id, NULL, NULL, NULL, NULL))
CUDA_12_STREAM(cudaStreamGetCaptureInfo_v2,
               (cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
                cudaGraph_t *graph, const cudaGraphNode_t **deps, size_t *n),
               capture_info(stream, status, id, graph, deps, NULL, n),
               capture_info(cudart_per_thread(stream), status, id, graph, deps, NULL, n))
CUDA_12_STREAM(cudaStreamGetCaptureInfo_v3,
               (cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
                cudaGraph_t *graph, const cudaGraphNode_t **deps, const cudaGraphEdgeData **edges,
                size_t *n),
               capture_info(stream, status, id, graph, deps, edges, n),
               capture_info(cudart_per_thread(stream), status, id, graph, deps, edges, n))
CUDA_12_STREAM(cudaStreamUpdateCaptureDependencies,
               (cudaStream_t stream, cudaGraphNode_t *deps, size_t n, unsigned int flags),
               update_deps(stream, deps, NULL, n, flags),
               update_deps(cudart_per_thread(stream), deps, NULL, n, flags))
CUDA_12_STREAM(cudaStreamUpdateCaptureDependencies_v2,
               (cudaStream_t stream, cudaGraphNode_t *deps, const cudaGraphEdgeData *edges,
                size_t n, unsigned int flags),
               update_deps(stream, deps, edges, n, flags),
               update_deps(cudart_per_thread(stream), deps, edges, n, flags))
CUDA_12(cudaGraphGetEdges,
        (cudaGraph_t graph, cudaGraphNode_t *from, cudaGraphNode_t *to, size_t *n),
        get_edges(graph, from, to, NULL, n))
CUDA_12(cudaGraphGetEdges_v2,
        (cudaGraph_t graph, cudaGraphNode_t *from, cudaGraphNode_t *to, cudaGraphEdgeData *edges,
         size_t *n),
        get_edges(graph, from, to, edges, n))
CUDA_12(cudaGraphNodeGetDependencies, (cudaGraphNode_t node, cudaGraphNode_t *deps, size_t *n),
        get_deps(node, deps, NULL, n))
CUDA_12(cudaGraphNodeGetDependencies_v2,
        (cudaGraphNode_t node, cudaGraphNode_t *deps, cudaGraphEdgeData *edges, size_t *n),
        get_deps(node, deps, edges, n))
CUDA_12(cudaGraphNodeGetDependentNodes, (cudaGraphNode_t node, cudaGraphNode_t *nodes, size_t *n),
        get_dependents(node, nodes, NULL, n))
CUDA_12(cudaGraphNodeGetDependentNodes_v2,
        (cudaGraphNode_t node, cudaGraphNode_t *nodes, cudaGraphEdgeData *edges, size_t *n),
        get_dependents(node, nodes, edges, n))
CUDA_12(cudaGraphAddDependencies,
        (cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to, size_t n),
        add_deps(graph, from, to, NULL, n))
CUDA_12(cudaGraphAddDependencies_v2,
        (cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to,
         const cudaGraphEdgeData *edges, size_t n),
        add_deps(graph, from, to, edges, n))
CUDA_12(cudaGraphRemoveDependencies,
        (cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to, size_t n),
        remove_deps(graph, from, to, NULL, n))
CUDA_12(cudaGraphRemoveDependencies_v2,
        (cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to,
         const cudaGraphEdgeData *edges, size_t n),
        remove_deps(graph, from, to, edges, n))

#endif

/* Graphs and nodes. */

cudaError_t CUDARTAPI cudaGraphCreate(cudaGraph_t *pGraph, unsigned int flags)
{
    CUDART_CALL(cudart_ready, cuGraphCreate(pGraph, flags));
}

cudaError_t CUDARTAPI cudaGraphDestroy(cudaGraph_t graph)
{
    CUDART_CALL(cudart_ready, cuGraphDestroy(graph));
}

cudaError_t CUDARTAPI cudaGraphClone(cudaGraph_t *pGraphClone, cudaGraph_t originalGraph)
{
    CUDART_CALL(cudart_ready, cuGraphClone(pGraphClone, originalGraph));
}

cudaError_t CUDARTAPI cudaGraphNodeFindInClone(cudaGraphNode_t *pNode, cudaGraphNode_t originalNode,
                                               cudaGraph_t clonedGraph)
{
    CUDART_CALL(cudart_ready, cuGraphNodeFindInClone(pNode, originalNode, clonedGraph));
}

cudaError_t CUDARTAPI cudaGraphNodeGetType(cudaGraphNode_t node, enum cudaGraphNodeType *pType)
{
    CUDART_CALL(cudart_ready, cuGraphNodeGetType(node, (CUgraphNodeType *)pType));
}

cudaError_t CUDARTAPI cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *numNodes)
{
    CUDART_CALL(cudart_ready, cuGraphGetNodes(graph, nodes, numNodes));
}

cudaError_t CUDARTAPI cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t *pRootNodes,
                                            size_t *pNumRootNodes)
{
    CUDART_CALL(cudart_ready, cuGraphGetRootNodes(graph, pRootNodes, pNumRootNodes));
}

cudaError_t CUDARTAPI cudaGraphDestroyNode(cudaGraphNode_t node)
{
    CUDART_CALL(cudart_ready, cuGraphDestroyNode(node));
}

cudaError_t CUDARTAPI cudaGraphAddEmptyNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
                                            const cudaGraphNode_t *pDependencies,
                                            size_t numDependencies)
{
    CUDART_CALL(cudart_ready,
                cuGraphAddEmptyNode(pGraphNode, graph, pDependencies, numDependencies));
}

cudaError_t CUDARTAPI cudaGraphAddHostNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
                                           const cudaGraphNode_t *pDependencies,
                                           size_t numDependencies,
                                           const struct cudaHostNodeParams *pNodeParams)
{
    /* The runtime's structure is laid out as the driver's. */
    CUDART_CALL(cudart_ready, cuGraphAddHostNode(pGraphNode, graph, pDependencies, numDependencies,
                                                 (const CUDA_HOST_NODE_PARAMS *)pNodeParams));
}

cudaError_t CUDARTAPI cudaGraphHostNodeGetParams(cudaGraphNode_t node,
                                                 struct cudaHostNodeParams *pNodeParams)
{
    CUDART_CALL(cudart_ready, cuGraphHostNodeGetParams(node, (CUDA_HOST_NODE_PARAMS *)pNodeParams));
}

cudaError_t CUDARTAPI cudaGraphHostNodeSetParams(cudaGraphNode_t node,
                                                 const struct cudaHostNodeParams *pNodeParams)
{
    CUDART_CALL(cudart_ready,
                cuGraphHostNodeSetParams(node, (const CUDA_HOST_NODE_PARAMS *)pNodeParams));
}

cudaError_t CUDARTAPI cudaGraphExecHostNodeSetParams(cudaGraphExec_t hGraphExec,
                                                     cudaGraphNode_t node,
                                                     const struct cudaHostNodeParams *pNodeParams)
{
    CUDART_CALL(cudart_ready, cuGraphExecHostNodeSetParams(
                                  hGraphExec, node, (const CUDA_HOST_NODE_PARAMS *)pNodeParams));
}

cudaError_t CUDARTAPI cudaGraphAddMemsetNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
                                             const cudaGraphNode_t *pDependencies,
                                             size_t numDependencies,
                                             const struct cudaMemsetParams *pMemsetParams)
{
    CUDA_MEMSET_NODE_PARAMS parameters;

    if (!pMemsetParams)
        return cudart_done(cudaErrorInvalidValue);
    parameters = (CUDA_MEMSET_NODE_PARAMS){.dst = (CUdeviceptr)pMemsetParams->dst,
                                           .pitch = pMemsetParams->pitch,
                                           .value = pMemsetParams->value,
                                           .elementSize = pMemsetParams->elementSize,
                                           .width = pMemsetParams->width,
                                           .height = pMemsetParams->height};
    CUDART_CALL(cudart_bind, cuGraphAddMemsetNode(pGraphNode, graph, pDependencies, numDependencies,
                                                  &parameters, NULL));
}

cudaError_t CUDARTAPI cudaGraphAddMemcpyNode1D(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
                                               const cudaGraphNode_t *pDependencies,
                                               size_t numDependencies, void *dst, const void *src,
                                               size_t count, enum cudaMemcpyKind kind)
{
    CUDA_MEMCPY3D parameters = {.dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                                .dstDevice = (CUdeviceptr)dst,
                                .srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                                .srcDevice = (CUdeviceptr)src,
                                .WidthInBytes = count,
                                .Height = 1,
                                .Depth = 1};

    if ((unsigned int)kind > cudaMemcpyDefault)
        return cudart_done(cudaErrorInvalidMemcpyDirection);
    CUDART_CALL(cudart_bind, cuGraphAddMemcpyNode(pGraphNode, graph, pDependencies, numDependencies,
                                                  &parameters, NULL));
}

cudaError_t CUDARTAPI cudaGraphAddChildGraphNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
                                                 const cudaGraphNode_t *pDependencies,
                                                 size_t numDependencies, cudaGraph_t childGraph)
{
    CUDART_CALL(cudart_ready, cuGraphAddChildGraphNode(pGraphNode, graph, pDependencies,
                                                       numDependencies, childGraph));
}

cudaError_t CUDARTAPI cudaGraphChildGraphNodeGetGraph(cudaGraphNode_t node, cudaGraph_t *pGraph)
{
    CUDART_CALL(cudart_ready, cuGraphChildGraphNodeGetGraph(node, pGraph));
}

cudaError_t CUDARTAPI cudaGraphAddEventRecordNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
                                                  const cudaGraphNode_t *pDependencies,
                                                  size_t numDependencies, cudaEvent_t event)
{
    CUDART_CALL(cudart_ready, cuGraphAddEventRecordNode(pGraphNode, graph, pDependencies,
                                                        numDependencies, event));
}

cudaError_t CUDARTAPI cudaGraphAddEventWaitNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
                                                const cudaGraphNode_t *pDependencies,
                                                size_t numDependencies, cudaEvent_t event)
{
    CUDART_CALL(cudart_ready,
                cuGraphAddEventWaitNode(pGraphNode, graph, pDependencies, numDependencies, event));
}

cudaError_t CUDARTAPI cudaGraphEventRecordNodeGetEvent(cudaGraphNode_t node, cudaEvent_t *event_out)
{
    CUDART_CALL(cudart_ready, cuGraphEventRecordNodeGetEvent(node, event_out));
}

cudaError_t CUDARTAPI cudaGraphEventWaitNodeGetEvent(cudaGraphNode_t node, cudaEvent_t *event_out)
{
    CUDART_CALL(cudart_ready, cuGraphEventWaitNodeGetEvent(node, event_out));
}

/* Executable graphs. */

cudaError_t CUDARTAPI cudaGraphInstantiateWithFlags(cudaGraphExec_t *pGraphExec, cudaGraph_t graph,
                                                    unsigned long long flags)
{
    CUDART_CALL(cudart_bind, cuGraphInstantiateWithFlags(pGraphExec, graph, flags));
}

cudaError_t CUDARTAPI cudaGraphInstantiate(cudaGraphExec_t *pGraphExec, cudaGraph_t graph,
                                           unsigned long long flags)
{
    return cudaGraphInstantiateWithFlags(pGraphExec, graph, flags);
}

cudaError_t CUDARTAPI cudaGraphInstantiateWithParams(cudaGraphExec_t *pGraphExec, cudaGraph_t graph,
                                                     cudaGraphInstantiateParams *instantiateParams)
{
    CUDART_CALL(cudart_bind,
                cuGraphInstantiateWithParams(pGraphExec, graph,
                                             (CUDA_GRAPH_INSTANTIATE_PARAMS *)instantiateParams));
}
PER_THREAD(cudaGraphInstantiateWithParams,
           (cudaGraphExec_t * pGraphExec, cudaGraph_t graph,
            cudaGraphInstantiateParams *instantiateParams),
           (pGraphExec, graph, instantiateParams))

cudaError_t CUDARTAPI cudaGraphExecGetFlags(cudaGraphExec_t graphExec, unsigned long long *flags)
{
    CUDART_CALL(cudart_ready, cuGraphExecGetFlags(graphExec, (cuuint64_t *)flags));
}

cudaError_t CUDARTAPI cudaGraphExecUpdate(cudaGraphExec_t hGraphExec, cudaGraph_t hGraph,
                                          cudaGraphExecUpdateResultInfo *resultInfo)
{
    CUDART_CALL(cudart_ready,
                cuGraphExecUpdate(hGraphExec, hGraph, (CUgraphExecUpdateResultInfo *)resultInfo));
}

cudaError_t CUDARTAPI cudaGraphUpload(cudaGraphExec_t graphExec, cudaStream_t stream)
{
    CUDART_CALL(cudart_bind, cuGraphUpload(graphExec, stream));
}
PER_THREAD(cudaGraphUpload, (cudaGraphExec_t graphExec, cudaStream_t stream),
           (graphExec, cudart_per_thread(stream)))

cudaError_t CUDARTAPI cudaGraphLaunch(cudaGraphExec_t graphExec, cudaStream_t stream)
{
    CUDART_CALL(cudart_bind, cuGraphLaunch(graphExec, stream));
}
PER_THREAD(cudaGraphLaunch, (cudaGraphExec_t graphExec, cudaStream_t stream),
           (graphExec, cudart_per_thread(stream)))

cudaError_t CUDARTAPI cudaGraphExecDestroy(cudaGraphExec_t graphExec)
{
    CUDART_CALL(cudart_ready, cuGraphExecDestroy(graphExec));
}

/* User objects. */

cudaError_t CUDARTAPI cudaUserObjectCreate(cudaUserObject_t *object_out, void *ptr,
                                           cudaHostFn_t destroy, unsigned int initialRefcount,
                                           unsigned int flags)
{
    CUDART_CALL(cudart_ready, cuUserObjectCreate(object_out, ptr, destroy, initialRefcount, flags));
}

cudaError_t CUDARTAPI cudaUserObjectRetain(cudaUserObject_t object, unsigned int count)
{
    CUDART_CALL(cudart_ready, cuUserObjectRetain(object, count));
}

cudaError_t CUDARTAPI cudaUserObjectRelease(cudaUserObject_t object, unsigned int count)
{
    CUDART_CALL(cudart_ready, cuUserObjectRelease(object, count));
}

cudaError_t CUDARTAPI cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object,
                                                unsigned int count, unsigned int flags)
{
    CUDART_CALL(cudart_ready, cuGraphRetainUserObject(graph, object, count, flags));
}

cudaError_t CUDARTAPI cudaGraphReleaseUserObject(cudaGraph_t graph, cudaUserObject_t object,
                                                 unsigned int count)
{
    CUDART_CALL(cudart_ready, cuGraphReleaseUserObject(graph, object, count));
}
