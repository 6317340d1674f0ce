/*
 * Reads how far the data of a communicator's connections have come, from NCCL's structures on the
 * device.
 *
 * A connection counts the steps that it has moved. Its sender adds to a tail, or, with the
 * protocols LL and LL128, writes the number of the step into each slot of the receiver's buffer;
 * its receiver adds to a head. What the device has of the connection itself says where the kernel
 * that runs began. Everything is read twice, some milliseconds apart, since data on their way look
 * like data that wait. Any doubt ends the reading: addresses that the driver does not know, ranks
 * that do not exist, counts that cannot be.
 *
 * Structures: src/include/device.h of NCCL 2.26.5 to 2.30.7; 2.31.2 and 2.32.3 have the same. Seen
 * during hangs with 2.28.9: over NVLink, shared memory and sockets. Knows no driver: its caller
 * reads.
 */
#ifndef NCCLGUARD_CORE_DEVICE_CONNECTION_READER_H
#define NCCLGUARD_CORE_DEVICE_CONNECTION_READER_H

#include <stdbool.h>
#include <stdint.h>

#include "core/recorder/edges.h"

/* Rows of `bytes`, one at each multiple of `pitch`, which lie close together in `to`. */
struct ng_connection_item {
    uint64_t address;
    uint32_t bytes; /* of all rows at most NG_CONNECTION_ITEM_BYTES */
    uint32_t rows, pitch;
    void *to;
};
#define NG_CONNECTION_ITEM_BYTES 608u
#define NG_CONNECTION_ITEMS_MAX  288u

struct ng_connection_source {
    const void *comm; /* copy of the communicator's structure: NG_LAUNCH_COMM_BYTES, checked */
    int nccl_version, rank, nranks;
    uint64_t channels; /* those to look at, one bit each */
    /* Read all items, the later calls after the earlier ones; false: one could not be read. */
    bool (*read)(void *context, const struct ng_connection_item *items, uint32_t count);
    /* Let some time pass. */
    void (*pause)(void *context);
    void *context;
};

/* The edges. NULL, or why there are none: NG_CONNECTION_UNREAD, or they are not as they should be.
 * One thread at a time. */
const char *ng_connection_reader_read(const struct ng_connection_source *source,
                                      struct ng_edge ret_edges[NG_EDGES_MAX], uint32_t *ret_count);
extern const char NG_CONNECTION_UNREAD[];

#endif
