/*
 * From the structures of NCCL's connections to edges.
 *
 * Entered by a worker thread of the guard. Must never load from an address of NCCL's.
 */
#include "core/device/connection_reader.h"

#include <string.h>

#include "core/device/launch_log.h"
#include "core/util/macros.h"
#include "core/util/memory.h"

#define STEPS         8u /* slots of a buffer */
#define PROTOCOLS     3u /* LL, LL128, Simple */
#define COMM_BYTES    96u
#define CHANNEL_BYTES 368u
#define AT_BUFFERS    16u /* in the communicator: bytes of each protocol's buffer */
#define AT_RING       8u  /* in a channel: previous and next rank */
/* In what the device has of a peer: send[2], recv[2] of ncclConnInfo. */
#define PEER_BYTES 608u
#define AT_RECEIVE 304u
/* In ncclConnInfo. */
#define AT_TAIL      48u
#define AT_HEAD      56u
#define AT_STEP_SIZE 72u
#define AT_FIFO      96u
#define AT_STEP      104u
/* One slot of connFifo: {int mode, offset; ssize_t size; void *}; size -1: it is free. */
#define FIFO_SLOT_BYTES 24u
#define AT_FIFO_SIZE    8u

#define CHANNELS_MAX    8u
#define NEIGHBOURS_MAX  6u /* in a ring and a tree */
#define PEERS_MAX       (CHANNELS_MAX * NEIGHBOURS_MAX)
#define CONNECTIONS_MAX (2 * PEERS_MAX)
#define CHILDREN        3u
/* More than a kernel moves before it would have been noticed. */
#define STEPS_IN_KERNEL (INT64_C(1) << 24)

static const struct layout {
    int first, last; /* NCCL's versions */
    uint32_t tree_at;
} layouts[] = {
    {22605, 22699, 32},
    {22703, 22809, 32},
    {22902, 23203, 40},
};

struct peer {
    uint8_t channel;
    uint8_t flags[2]; /* what it is to this rank, as a sender and as a receiver */
    int rank;
    uint64_t address;
    unsigned char copy[PEER_BYTES];
};

/* The words behind a connection's pointers. */
struct values {
    uint64_t tail, head;
    uint32_t ll[STEPS][4];
    uint64_t ll128[STEPS];
    unsigned char fifo[STEPS * FIFO_SLOT_BYTES];
};

struct connection {
    const struct peer *peer;
    const unsigned char *info; /* ncclConnInfo */
    bool sends;
    struct values values;
    uint64_t posted, before; /* the second and the first time */
    uint64_t head_before;
};

static struct {
    const struct ng_connection_source *source;
    uint32_t buffer_bytes[PROTOCOLS];
    struct peer peers[PEERS_MAX];
    uint32_t peer_count;
    struct connection connections[CONNECTIONS_MAX];
    uint32_t connection_count;
    struct ng_connection_item items[NG_CONNECTION_ITEMS_MAX];
    uint32_t item_count;
} own NG_LARGE;

_Static_assert(CONNECTIONS_MAX * 3 <= NG_CONNECTION_ITEMS_MAX, "all at once");
_Static_assert(PEER_BYTES <= NG_CONNECTION_ITEM_BYTES, "as it says");

static const char unknown_layout[] = "their layout is not that of a known release";
const char NG_CONNECTION_UNREAD[] = "they could not be read";

static uint64_t word(const void *from, size_t at)
{
    uint64_t value;

    memcpy(&value, (const char *)from + at, sizeof(value));
    return value;
}

static int32_t number(const void *from, size_t at)
{
    int32_t value;

    memcpy(&value, (const char *)from + at, sizeof(value));
    return value;
}

/* ---- Reading ---- */

static void want_rows(uint64_t address, uint32_t bytes, uint32_t rows, uint32_t pitch, void *to)
{
    own.items[own.item_count++] = (struct ng_connection_item){address, bytes, rows, pitch, to};
}

static void want(uint64_t address, uint32_t bytes, void *to)
{
    want_rows(address, bytes, 1, bytes, to);
}

static bool read_wanted(void)
{
    uint32_t count = own.item_count;

    own.item_count = 0;
    return !count || own.source->read(own.source->context, own.items, count);
}

/* ---- Whom this rank is connected with ---- */

static bool is_rank(const struct ng_connection_source *source, int rank)
{
    return rank >= 0 && rank < source->nranks && rank != source->rank;
}

static void add_peer(uint32_t first, uint32_t channel, int rank, uint8_t sends, uint8_t receives)
{
    uint32_t i = first;

    while (i < own.peer_count && own.peers[i].rank != rank)
        i++;
    if (i == own.peer_count)
        own.peers[own.peer_count++] = (struct peer){.channel = (uint8_t)channel, .rank = rank};
    own.peers[i].flags[0] |= sends;
    own.peers[i].flags[1] |= receives;
}

static bool add_channel(const struct layout *layout, uint32_t channel)
{
    const struct ng_connection_source *source = own.source;
    const unsigned char *from =
        (const unsigned char *)source->comm + COMM_BYTES + channel * CHANNEL_BYTES;
    int previous = number(from, AT_RING), next = number(from, AT_RING + 4);
    int up = number(from, layout->tree_at + 4);
    uint32_t first = own.peer_count;

    if (!word(from, 0) || !is_rank(source, previous) || !is_rank(source, next) ||
        (up != -1 && !is_rank(source, up)))
        return false;
    add_peer(first, channel, next, NG_EDGE_RING, 0);
    add_peer(first, channel, previous, 0, NG_EDGE_RING);
    if (up >= 0)
        add_peer(first, channel, up, NG_EDGE_TREE_UP, NG_EDGE_TREE_UP);
    for (uint32_t i = 0; i < CHILDREN; i++) {
        int down = number(from, layout->tree_at + 8 + 4 * i);
        if (down != -1 && !is_rank(source, down))
            return false;
        if (down >= 0)
            add_peer(first, channel, down, NG_EDGE_TREE_DOWN, NG_EDGE_TREE_DOWN);
    }
    for (uint32_t i = first; i < own.peer_count; i++)
        want(word(from, 0) + sizeof(uint64_t) * (uint32_t)own.peers[i].rank, sizeof(uint64_t),
             &own.peers[i].address);
    return true;
}

/* A connection that has both counters; false: it cannot be one. */
static bool add_connection(const struct peer *peer, bool sends)
{
    const unsigned char *info = peer->copy + (sends ? 0 : AT_RECEIVE);

    if (!word(info, AT_TAIL) && !word(info, AT_HEAD))
        return true; /* not connected */
    if (!word(info, AT_TAIL) || !word(info, AT_HEAD) ||
        (uint32_t)number(info, AT_STEP_SIZE) != own.buffer_bytes[PROTOCOLS - 1] / STEPS)
        return false;
    own.connections[own.connection_count++] =
        (struct connection){.peer = peer, .info = info, .sends = sends};
    return true;
}

static const char *find_connections(void)
{
    const struct ng_connection_source *source = own.source;
    const struct layout *layout = NULL;
    uint32_t channels = 0;

    for (size_t i = 0; i < NG_COUNT(layouts); i++)
        if (source->nccl_version >= layouts[i].first && source->nccl_version <= layouts[i].last)
            layout = &layouts[i];
    if (!layout)
        return unknown_layout;
    memcpy(own.buffer_bytes, (const char *)source->comm + AT_BUFFERS, sizeof(own.buffer_bytes));
    for (uint32_t channel = 0; channel < NG_LAUNCH_CHANNELS && channels < CHANNELS_MAX; channel++)
        if (source->channels >> channel & 1) {
            channels++;
            if (!add_channel(layout, channel))
                return unknown_layout;
        }
    if (!read_wanted())
        return NG_CONNECTION_UNREAD;
    for (uint32_t i = 0; i < own.peer_count; i++)
        want(own.peers[i].address, PEER_BYTES, own.peers[i].copy);
    if (!read_wanted())
        return NG_CONNECTION_UNREAD;
    for (uint32_t i = 0; i < own.peer_count; i++)
        for (int direction = 0; direction < 2; direction++)
            if (own.peers[i].flags[direction] && !add_connection(&own.peers[i], direction == 0))
                return unknown_layout;
    return NULL;
}

/* ---- How far they are ---- */

/* What the sender writes, before what the receiver writes: so nothing seems to be taken before it
 * was there. */
static bool read_values(void)
{
    NG_EACH (connection, own.connections, own.connection_count) {
        uint64_t ll = word(connection->info, 0), ll128 = word(connection->info, sizeof(uint64_t));
        memset(&connection->values, 0, sizeof(connection->values));
        want(word(connection->info, AT_TAIL), sizeof(uint64_t), &connection->values.tail);
        if (ll)
            want_rows(ll, sizeof(connection->values.ll[0]), STEPS, own.buffer_bytes[0] / STEPS,
                      connection->values.ll);
        if (ll128)
            want_rows(ll128 + 120, sizeof(uint64_t), STEPS, own.buffer_bytes[1] / STEPS,
                      connection->values.ll128);
    }
    if (!read_wanted())
        return false;
    NG_EACH (connection, own.connections, own.connection_count) {
        uint64_t fifo = word(connection->info, AT_FIFO);
        want(word(connection->info, AT_HEAD), sizeof(uint64_t), &connection->values.head);
        if (fifo && connection->sends)
            want(fifo, sizeof(connection->values.fifo), connection->values.fifo);
    }
    return read_wanted();
}

/* Steps that the sender has put there: no protocol has more than STEPS that nobody took. */
static uint64_t posted(const struct values *values)
{
    uint64_t most = 0;

    if (values->tail > values->head)
        most = values->tail - values->head;
    for (uint32_t slot = 0; slot < STEPS; slot++) {
        const uint32_t *ll = values->ll[slot];
        uint32_t ahead = ll[1] - (uint32_t)values->head;
        if (ll[1] && ll[1] == ll[3] && ahead <= STEPS && ahead > most)
            most = ahead;
        uint64_t more = values->ll128[slot] - values->head;
        if (more <= STEPS && more > most)
            most = more;
    }
    return values->head + most;
}

static bool is_plausible(const struct connection *connection)
{
    int64_t step = (int64_t)word(connection->info, AT_STEP);
    int64_t taken = (int64_t)connection->values.head - step;

    return step >= 0 && taken >= -(int64_t)STEPS && taken <= STEPS_IN_KERNEL &&
           connection->posted - connection->values.head <= STEPS;
}

static uint8_t queued(const struct values *values)
{
    uint8_t count = 0;

    for (uint32_t slot = 0; slot < STEPS; slot++)
        count += word(values->fifo, slot * FIFO_SLOT_BYTES + AT_FIFO_SIZE) != UINT64_MAX;
    return count;
}

static uint16_t since(uint64_t count, uint64_t step)
{
    int64_t steps = (int64_t)(count - step);

    return steps <= 0 ? 0 : steps < UINT16_MAX ? (uint16_t)steps : UINT16_MAX;
}

static bool add_to_edges(const struct connection *connection, struct ng_edge *edges,
                         uint32_t *count)
{
    uint64_t step = word(connection->info, AT_STEP), head = connection->values.head;
    bool proxy = word(connection->info, AT_FIFO);
    uint8_t sends = connection->sends ? NG_EDGE_SENDS : 0;
    struct ng_edge *edge = edges;

    while (edge < edges + *count &&
           (edge->peer != connection->peer->rank || (edge->flags & NG_EDGE_SENDS) != sends))
        edge++;
    if (edge == edges + *count) {
        if (*count == NG_EDGES_MAX)
            return false;
        *edge = (struct ng_edge){.peer = connection->peer->rank, .flags = sends};
        ++*count;
    }
    uint16_t put = since(connection->posted, step);
    if (!edge->channels || (put && !edge->begun)) {
        edge->channel = connection->peer->channel;
        edge->base = (uint32_t)step;
        edge->posted = put;
        edge->consumed = since(head, step);
        edge->queued = proxy && sends ? queued(&connection->values) : 0;
    }
    bool moves = connection->posted != connection->before || head != connection->head_before;
    edge->flags |= (uint8_t)(connection->peer->flags[connection->sends ? 0 : 1] |
                             (proxy ? NG_EDGE_PROXY : 0) | (moves ? NG_EDGE_MOVES : 0));
    edge->channels++;
    edge->begun += put != 0;
    edge->taken += since(head, step) != 0;
    edge->held += connection->posted > head;
    return true;
}

const char *ng_connection_reader_read(const struct ng_connection_source *source,
                                      struct ng_edge ret_edges[NG_EDGES_MAX], uint32_t *ret_count)
{
    uint32_t count = 0;

    own.source = source;
    own.peer_count = own.connection_count = own.item_count = 0;
    const char *why = find_connections();
    for (int time = 0; time < 2 && !why; time++) {
        if (time)
            source->pause(source->context);
        if (!read_values())
            return NG_CONNECTION_UNREAD;
        for (uint32_t i = 0; i < own.connection_count && !why; i++) {
            struct connection *connection = &own.connections[i];
            uint64_t now = posted(&connection->values);
            connection->before = time ? connection->posted : now;
            connection->posted = now;
            if (!time)
                connection->head_before = connection->values.head;
            if (!is_plausible(connection))
                why = unknown_layout;
        }
    }
    for (uint32_t i = 0; i < own.connection_count && !why; i++)
        if (!add_to_edges(&own.connections[i], ret_edges, &count))
            why = "there are too many of them";
    if (!why)
        *ret_count = count;
    return why;
}
