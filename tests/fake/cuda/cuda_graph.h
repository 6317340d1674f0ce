/*
 * Graphs, as the files on capture and on graphs share them.
 */
#ifndef FAKE_CUDA_GRAPH_H
#define FAKE_CUDA_GRAPH_H

#include "tests/fake/cuda/cuda_state.h"

struct CUgraphNode_st {
    struct CUgraphNode_st *next, *prev; /* in the order of creation */
    CUgraph graph;
    CUgraphNodeType type;
    struct operation op;
    CUgraph child;      /* of a child graph node, owned by it */
    CUgraphNode source; /* of a clone: the node it was made from */
    CUgraphNode *deps;
    size_t n_deps;
    bool visited, entered; /* scratch of walks through the graph */
};

/* A reference that a graph or a program holds on an object of the program's. */
struct object_ref {
    struct object_ref *next;
    CUuserObject object;
    unsigned int count;
};

struct CUgraph_st {
    CUgraphNode first, last;
    bool child; /* owned by a node */
    struct object_ref *objects;
};

/* locked */
CUgraph fake_graph_create(void);
void fake_graph_destroy(CUgraph graph);
CUresult fake_node_add(CUgraph graph, const CUgraphNode *deps, size_t n_deps, CUgraphNodeType type,
                       const struct operation *op, CUgraphNode *ret_node);
/* Sets `visited` on these nodes and all that they depend on, clears it on the others. */
void fake_graph_mark_ancestors(CUgraph graph, const CUgraphNode *nodes, size_t n_nodes);

#endif
