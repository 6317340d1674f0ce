/*
 * Hooks on executable CUDA graphs: core/device/graph.h hears of those that are made, launched and
 * destroyed.
 */
#ifndef NCCLGUARD_SHIM_CUDA_GRAPHS_H
#define NCCLGUARD_SHIM_CUDA_GRAPHS_H

/* Before the program's main. */
void ng_cuda_graphs_enable(void) __attribute__((visibility("hidden")));

#endif
