/*
 * Graphs of the stand-in runtime, and those capture calls whose form changed with CUDA 13.
 *
 * Entered by any thread of the program.
 */
#include "tests/fake/cuda/cudart_state.h"

/* Capture. */

STREAM_CALL(cudaStreamBeginCapture, (cudaStream_t stream, enum cudaStreamCaptureMode mode),
            cuStreamBeginCapture(stream, (CUstreamCaptureMode)mode))
STREAM_CALL(cudaStreamEndCapture, (cudaStream_t stream, cudaGraph_t *pGraph),
            cuStreamEndCapture(stream, pGraph))

#if FAKE_CUDART_VERSION >= 13000

STREAM_CALL(cudaStreamGetCaptureInfo,
            (cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
             cudaGraph_t *graph, const cudaGraphNode_t **deps, const cudaGraphEdgeData **edges,
             size_t *n),
            cuStreamGetCaptureInfo(stream, (CUstreamCaptureStatus *)status, (cuuint64_t *)id, graph,
                                   deps, (const CUgraphEdgeData **)edges, n))

#else

/* In CUDA 12 the plain name asks for less. The header at hand declares it otherwise, so it is set
 * by label. */
#define CAPTURE_INFO(name, parameters, ...)                                                        \
    cudaError_t name##_12 parameters __asm__(#name);                                               \
    cudaError_t name##_12 parameters                                                               \
    {                                                                                              \
        CUDART_CALL(cudart_bind,                                                                   \
                    cuStreamGetCaptureInfo(__VA_ARGS__, (CUstreamCaptureStatus *)status,           \
                                           (cuuint64_t *)id, NULL, NULL, NULL, NULL));             \
    }

CAPTURE_INFO(cudaStreamGetCaptureInfo,
             (cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id),
             stream)
CAPTURE_INFO(cudaStreamGetCaptureInfo_ptsz,
             (cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id),
             cudart_per_thread(stream))

#endif

/* Graphs and nodes. */

DRIVER_CALL(cudaGraphCreate, (cudaGraph_t * pGraph, unsigned int flags),
            cuGraphCreate(pGraph, flags))
DRIVER_CALL(cudaGraphDestroy, (cudaGraph_t graph), cuGraphDestroy(graph))
DRIVER_CALL(cudaGraphClone, (cudaGraph_t * pGraphClone, cudaGraph_t originalGraph),
            cuGraphClone(pGraphClone, originalGraph))
DRIVER_CALL(cudaGraphGetNodes, (cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *numNodes),
            cuGraphGetNodes(graph, nodes, numNodes))
DRIVER_CALL(cudaGraphAddEmptyNode,
            (cudaGraphNode_t * pGraphNode, cudaGraph_t graph, const cudaGraphNode_t *pDependencies,
             size_t numDependencies),
            cuGraphAddEmptyNode(pGraphNode, graph, pDependencies, numDependencies))

DRIVER_CALL(cudaGraphAddChildGraphNode,
            (cudaGraphNode_t * pGraphNode, cudaGraph_t graph, const cudaGraphNode_t *pDependencies,
             size_t numDependencies, cudaGraph_t childGraph),
            cuGraphAddChildGraphNode(pGraphNode, graph, pDependencies, numDependencies, childGraph))

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
DRIVER_CALL(cudaGraphExecUpdate,
            (cudaGraphExec_t hGraphExec, cudaGraph_t hGraph,
             cudaGraphExecUpdateResultInfo *resultInfo),
            cuGraphExecUpdate(hGraphExec, hGraph, (CUgraphExecUpdateResultInfo *)resultInfo))
STREAM_CALL(cudaGraphLaunch, (cudaGraphExec_t graphExec, cudaStream_t stream),
            cuGraphLaunch(graphExec, stream))
DRIVER_CALL(cudaGraphExecDestroy, (cudaGraphExec_t graphExec), cuGraphExecDestroy(graphExec))
