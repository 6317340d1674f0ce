/*
 * Graphs of the stand-in runtime, and those capture calls whose form changed with CUDA 13.
 *
 * Entered by any thread of the program.
 */
#include "tests/fake/cuda/cudart_state.h"

#include <string.h>

/* Capture. */

STREAM_CALL(cudaStreamBeginCapture, (cudaStream_t stream, enum cudaStreamCaptureMode mode),
            cuStreamBeginCapture(stream, (CUstreamCaptureMode)mode))
STREAM_CALL(cudaStreamBeginCaptureToGraph,
            (cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
             const cudaGraphEdgeData *dependencyData, size_t numDependencies,
             enum cudaStreamCaptureMode mode),
            cuStreamBeginCaptureToGraph(stream, graph, dependencies,
                                        (const CUgraphEdgeData *)dependencyData, numDependencies,
                                        (CUstreamCaptureMode)mode))
STREAM_CALL(cudaStreamEndCapture, (cudaStream_t stream, cudaGraph_t *pGraph),
            cuStreamEndCapture(stream, pGraph))

/*
 * Since CUDA 13 the plain names have edge data. In CUDA 12 they have none, and forms with it are
 * called _v2 or _v3; the header at hand declares the plain names otherwise, so those are set by
 * label.
 */
#if FAKE_CUDART_VERSION >= 13000

#define WITH_EDGES(name, suffix, parameters, call)        DRIVER_CALL(name, parameters, call)
#define STREAM_WITH_EDGES(name, suffix, parameters, call) STREAM_CALL(name, parameters, call)
#define WITHOUT_EDGES(name, parameters, call)
#define STREAM_WITHOUT_EDGES(name, parameters, call)

#else

#define LABELLED(name, parameters)                                                                 \
    cudaError_t name##_12 parameters __asm__(#name);                                               \
    cudaError_t name##_12 parameters
#define WITH_EDGES(name, suffix, parameters, call)                                                 \
    LABELLED(name##suffix, parameters)                                                             \
    {                                                                                              \
        CUDART_CALL(cudart_ready, call);                                                           \
    }
#define STREAM_WITH_EDGES(name, suffix, parameters, call)                                          \
    LABELLED(name##suffix, parameters)                                                             \
    {                                                                                              \
        CUDART_CALL(cudart_bind, call);                                                            \
    }                                                                                              \
    LABELLED(name##suffix##_ptsz, parameters)                                                      \
    {                                                                                              \
        stream = cudart_per_thread(stream);                                                        \
        CUDART_CALL(cudart_bind, call);                                                            \
    }
#define WITHOUT_EDGES(name, parameters, call)                                                      \
    LABELLED(name, parameters)                                                                     \
    {                                                                                              \
        return call;                                                                               \
    }
#define STREAM_WITHOUT_EDGES(name, parameters, call)                                               \
    WITHOUT_EDGES(name, parameters, call)                                                          \
    LABELLED(name##_ptsz, parameters)                                                              \
    {                                                                                              \
        stream = cudart_per_thread(stream);                                                        \
        return call;                                                                               \
    }

#endif

STREAM_WITH_EDGES(cudaStreamGetCaptureInfo, _v3,
                  (cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                   unsigned long long *id, cudaGraph_t *graph, const cudaGraphNode_t **deps,
                   const cudaGraphEdgeData **edges, size_t *n),
                  cuStreamGetCaptureInfo(stream, (CUstreamCaptureStatus *)status, (cuuint64_t *)id,
                                         graph, deps, (const CUgraphEdgeData **)edges, n))
STREAM_WITHOUT_EDGES(cudaStreamGetCaptureInfo,
                     (cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                      unsigned long long *id),
                     cudaStreamGetCaptureInfo_v3_12(stream, status, id, NULL, NULL, NULL, NULL))
STREAM_WITHOUT_EDGES(cudaStreamGetCaptureInfo_v2,
                     (cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                      unsigned long long *id, cudaGraph_t *graph, const cudaGraphNode_t **deps,
                      size_t *n),
                     cudaStreamGetCaptureInfo_v3_12(stream, status, id, graph, deps, NULL, n))
STREAM_WITH_EDGES(cudaStreamUpdateCaptureDependencies, _v2,
                  (cudaStream_t stream, cudaGraphNode_t *deps, const cudaGraphEdgeData *edges,
                   size_t n, unsigned int flags),
                  cuStreamUpdateCaptureDependencies(stream, deps, (const CUgraphEdgeData *)edges, n,
                                                    flags))
STREAM_WITHOUT_EDGES(cudaStreamUpdateCaptureDependencies,
                     (cudaStream_t stream, cudaGraphNode_t *deps, size_t n, unsigned int flags),
                     cudaStreamUpdateCaptureDependencies_v2_12(stream, deps, NULL, n, flags))
WITH_EDGES(cudaGraphGetEdges, _v2,
           (cudaGraph_t graph, cudaGraphNode_t *from, cudaGraphNode_t *to, cudaGraphEdgeData *edges,
            size_t *n),
           cuGraphGetEdges(graph, from, to, (CUgraphEdgeData *)edges, n))
WITHOUT_EDGES(cudaGraphGetEdges,
              (cudaGraph_t graph, cudaGraphNode_t *from, cudaGraphNode_t *to, size_t *n),
              cudaGraphGetEdges_v2_12(graph, from, to, NULL, n))
WITH_EDGES(cudaGraphNodeGetDependencies, _v2,
           (cudaGraphNode_t node, cudaGraphNode_t *deps, cudaGraphEdgeData *edges, size_t *n),
           cuGraphNodeGetDependencies(node, deps, (CUgraphEdgeData *)edges, n))
WITHOUT_EDGES(cudaGraphNodeGetDependencies,
              (cudaGraphNode_t node, cudaGraphNode_t *deps, size_t *n),
              cudaGraphNodeGetDependencies_v2_12(node, deps, NULL, n))
WITH_EDGES(cudaGraphNodeGetDependentNodes, _v2,
           (cudaGraphNode_t node, cudaGraphNode_t *nodes, cudaGraphEdgeData *edges, size_t *n),
           cuGraphNodeGetDependentNodes(node, nodes, (CUgraphEdgeData *)edges, n))
WITHOUT_EDGES(cudaGraphNodeGetDependentNodes,
              (cudaGraphNode_t node, cudaGraphNode_t *nodes, size_t *n),
              cudaGraphNodeGetDependentNodes_v2_12(node, nodes, NULL, n))
WITH_EDGES(cudaGraphAddDependencies, _v2,
           (cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to,
            const cudaGraphEdgeData *edges, size_t n),
           cuGraphAddDependencies(graph, from, to, (const CUgraphEdgeData *)edges, n))
WITHOUT_EDGES(cudaGraphAddDependencies,
              (cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to, size_t n),
              cudaGraphAddDependencies_v2_12(graph, from, to, NULL, n))
WITH_EDGES(cudaGraphRemoveDependencies, _v2,
           (cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to,
            const cudaGraphEdgeData *edges, size_t n),
           cuGraphRemoveDependencies(graph, from, to, (const CUgraphEdgeData *)edges, n))
WITHOUT_EDGES(cudaGraphRemoveDependencies,
              (cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to, size_t n),
              cudaGraphRemoveDependencies_v2_12(graph, from, to, NULL, n))

/* Graphs and nodes. */

DRIVER_CALL(cudaGraphCreate, (cudaGraph_t * pGraph, unsigned int flags),
            cuGraphCreate(pGraph, flags))
DRIVER_CALL(cudaGraphDestroy, (cudaGraph_t graph), cuGraphDestroy(graph))
DRIVER_CALL(cudaGraphClone, (cudaGraph_t * pGraphClone, cudaGraph_t originalGraph),
            cuGraphClone(pGraphClone, originalGraph))
DRIVER_CALL(cudaGraphNodeFindInClone,
            (cudaGraphNode_t * pNode, cudaGraphNode_t originalNode, cudaGraph_t clonedGraph),
            cuGraphNodeFindInClone(pNode, originalNode, clonedGraph))
DRIVER_CALL(cudaGraphNodeGetType, (cudaGraphNode_t node, enum cudaGraphNodeType *pType),
            cuGraphNodeGetType(node, (CUgraphNodeType *)pType))
DRIVER_CALL(cudaGraphGetNodes, (cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *numNodes),
            cuGraphGetNodes(graph, nodes, numNodes))
DRIVER_CALL(cudaGraphGetRootNodes,
            (cudaGraph_t graph, cudaGraphNode_t *pRootNodes, size_t *pNumRootNodes),
            cuGraphGetRootNodes(graph, pRootNodes, pNumRootNodes))
DRIVER_CALL(cudaGraphDestroyNode, (cudaGraphNode_t node), cuGraphDestroyNode(node))
DRIVER_CALL(cudaGraphAddEmptyNode,
            (cudaGraphNode_t * pGraphNode, cudaGraph_t graph, const cudaGraphNode_t *pDependencies,
             size_t numDependencies),
            cuGraphAddEmptyNode(pGraphNode, graph, pDependencies, numDependencies))

/* The runtime's structure is laid out as the driver's. */
DRIVER_CALL(cudaGraphAddHostNode,
            (cudaGraphNode_t * pGraphNode, cudaGraph_t graph, const cudaGraphNode_t *pDependencies,
             size_t numDependencies, const struct cudaHostNodeParams *pNodeParams),
            cuGraphAddHostNode(pGraphNode, graph, pDependencies, numDependencies,
                               (const CUDA_HOST_NODE_PARAMS *)pNodeParams))
DRIVER_CALL(cudaGraphHostNodeGetParams,
            (cudaGraphNode_t node, struct cudaHostNodeParams *pNodeParams),
            cuGraphHostNodeGetParams(node, (CUDA_HOST_NODE_PARAMS *)pNodeParams))
DRIVER_CALL(cudaGraphHostNodeSetParams,
            (cudaGraphNode_t node, const struct cudaHostNodeParams *pNodeParams),
            cuGraphHostNodeSetParams(node, (const CUDA_HOST_NODE_PARAMS *)pNodeParams))
DRIVER_CALL(cudaGraphExecHostNodeSetParams,
            (cudaGraphExec_t hGraphExec, cudaGraphNode_t node,
             const struct cudaHostNodeParams *pNodeParams),
            cuGraphExecHostNodeSetParams(hGraphExec, node,
                                         (const CUDA_HOST_NODE_PARAMS *)pNodeParams))

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

DRIVER_CALL(cudaGraphAddChildGraphNode,
            (cudaGraphNode_t * pGraphNode, cudaGraph_t graph, const cudaGraphNode_t *pDependencies,
             size_t numDependencies, cudaGraph_t childGraph),
            cuGraphAddChildGraphNode(pGraphNode, graph, pDependencies, numDependencies, childGraph))
DRIVER_CALL(cudaGraphChildGraphNodeGetGraph, (cudaGraphNode_t node, cudaGraph_t *pGraph),
            cuGraphChildGraphNodeGetGraph(node, pGraph))
DRIVER_CALL(cudaGraphAddEventRecordNode,
            (cudaGraphNode_t * pGraphNode, cudaGraph_t graph, const cudaGraphNode_t *pDependencies,
             size_t numDependencies, cudaEvent_t event),
            cuGraphAddEventRecordNode(pGraphNode, graph, pDependencies, numDependencies, event))
DRIVER_CALL(cudaGraphAddEventWaitNode,
            (cudaGraphNode_t * pGraphNode, cudaGraph_t graph, const cudaGraphNode_t *pDependencies,
             size_t numDependencies, cudaEvent_t event),
            cuGraphAddEventWaitNode(pGraphNode, graph, pDependencies, numDependencies, event))
DRIVER_CALL(cudaGraphEventRecordNodeGetEvent, (cudaGraphNode_t node, cudaEvent_t *event_out),
            cuGraphEventRecordNodeGetEvent(node, event_out))
DRIVER_CALL(cudaGraphEventWaitNodeGetEvent, (cudaGraphNode_t node, cudaEvent_t *event_out),
            cuGraphEventWaitNodeGetEvent(node, event_out))

/* Executable graphs. */

CONTEXT_CALL(cudaGraphInstantiateWithFlags,
             (cudaGraphExec_t * pGraphExec, cudaGraph_t graph, unsigned long long flags),
             cuGraphInstantiateWithFlags(pGraphExec, graph, flags))
FORM(cudaGraphInstantiate,
     (cudaGraphExec_t * pGraphExec, cudaGraph_t graph, unsigned long long flags),
     cudaGraphInstantiateWithFlags(pGraphExec, graph, flags))
CONTEXT_CALL(cudaGraphInstantiateWithParams,
             (cudaGraphExec_t * pGraphExec, cudaGraph_t graph,
              cudaGraphInstantiateParams *instantiateParams),
             cuGraphInstantiateWithParams(pGraphExec, graph,
                                          (CUDA_GRAPH_INSTANTIATE_PARAMS *)instantiateParams))
FORM(cudaGraphInstantiateWithParams_ptsz,
     (cudaGraphExec_t * pGraphExec, cudaGraph_t graph,
      cudaGraphInstantiateParams *instantiateParams),
     cudaGraphInstantiateWithParams(pGraphExec, graph, instantiateParams))
DRIVER_CALL(cudaGraphExecGetFlags, (cudaGraphExec_t graphExec, unsigned long long *flags),
            cuGraphExecGetFlags(graphExec, (cuuint64_t *)flags))
DRIVER_CALL(cudaGraphExecUpdate,
            (cudaGraphExec_t hGraphExec, cudaGraph_t hGraph,
             cudaGraphExecUpdateResultInfo *resultInfo),
            cuGraphExecUpdate(hGraphExec, hGraph, (CUgraphExecUpdateResultInfo *)resultInfo))
STREAM_CALL(cudaGraphUpload, (cudaGraphExec_t graphExec, cudaStream_t stream),
            cuGraphUpload(graphExec, stream))
STREAM_CALL(cudaGraphLaunch, (cudaGraphExec_t graphExec, cudaStream_t stream),
            cuGraphLaunch(graphExec, stream))
DRIVER_CALL(cudaGraphExecDestroy, (cudaGraphExec_t graphExec), cuGraphExecDestroy(graphExec))

/* User objects. */

DRIVER_CALL(cudaUserObjectCreate,
            (cudaUserObject_t * object_out, void *ptr, cudaHostFn_t destroy,
             unsigned int initialRefcount, unsigned int flags),
            cuUserObjectCreate(object_out, ptr, destroy, initialRefcount, flags))
DRIVER_CALL(cudaUserObjectRetain, (cudaUserObject_t object, unsigned int count),
            cuUserObjectRetain(object, count))
DRIVER_CALL(cudaUserObjectRelease, (cudaUserObject_t object, unsigned int count),
            cuUserObjectRelease(object, count))
DRIVER_CALL(cudaGraphRetainUserObject,
            (cudaGraph_t graph, cudaUserObject_t object, unsigned int count, unsigned int flags),
            cuGraphRetainUserObject(graph, object, count, flags))
DRIVER_CALL(cudaGraphReleaseUserObject,
            (cudaGraph_t graph, cudaUserObject_t object, unsigned int count),
            cuGraphReleaseUserObject(graph, object, count))
