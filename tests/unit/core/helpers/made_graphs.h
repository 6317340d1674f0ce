/*
 * CUDA graphs for made calls: one capture after the other, whose events a test lets come one by
 * one. C, for core's headers with atomics.
 */
#ifndef NCCLGUARD_TESTS_UNIT_MADE_GRAPHS_H
#define NCCLGUARD_TESTS_UNIT_MADE_GRAPHS_H

#include <stdbool.h>
#include <stdint.h>

__BEGIN_DECLS

/* After made_begin, and the first call. */
void made_graphs_begin(void);

/* Every stream is being captured, into a graph of its own; then no more. */
void made_capture_begin(void);
void made_capture_end(void);

/* The driver makes an executable graph `exec` of what was captured last, updates it so, destroys
 * it. */
void made_instantiate(void *exec);
void made_exec_destroy(void *exec);
/* Releases the last reference to the graph that was captured last. */
void made_graph_end(void);

/* Launches `exec`; false: it holds no calls. */
bool made_launch(void *exec, void *stream);

/* How many of the last graph's events a replay has reached; -1 all. */
void made_reach(int events);

/* How many events were made for graphs so far. */
unsigned made_graph_events(void);

/* Nodes of the graph that was captured last: all of them are the guard's. */
unsigned made_graph_nodes(void);

/* Of a communicator, as the watchdog shows it. */
struct made_pending {
    uint64_t seq, record;
    bool vague;
};
struct made_pending made_pending(const void *comm);

struct made_replay {
    uint64_t graph, replay;
    uint32_t position, calls, flags;
};
struct made_replay made_newest_replay(void);

__END_DECLS

#endif
