/*
 * NCCL's connections, read from structures as the device has them: made here with the layouts of
 * known releases, and values as they were seen during hangs of 2.28.9.
 */
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

extern "C" {
#include "core/device/connection_reader.h"
}

namespace
{

enum Protocol { SIMPLE, LL, LL128 };
constexpr size_t CHANNEL = 368, PEER = 608, RECEIVE = 304, SLOTS = 8;
constexpr int BUFFERS[] = {8 * 64, 8 * 256, 8 * 4096}; /* of LL, LL128, Simple */

/* One connection's memory. */
struct Wire {
    uint64_t tail = 0, head = 0;
    std::vector<unsigned char> ll = std::vector<unsigned char>(BUFFERS[0]),
                               ll128 = std::vector<unsigned char>(BUFFERS[1]),
                               fifo = std::vector<unsigned char>(24 * SLOTS);
};

struct Device {
    int rank, nranks, version;
    std::vector<unsigned char> comm = std::vector<unsigned char>(96 + 64 * CHANNEL);
    std::vector<std::vector<unsigned char>> peers; /* of all channels alike */
    std::vector<uint64_t> addresses;
    std::map<std::pair<int, bool>, Wire> wires;
    int reads = 0, fails_at = -1;
    void (*between)(Device *) = nullptr;
    std::string why;
    std::vector<struct ng_edge> edges;

    Device(int rank, int nranks, int version = 22809)
        : rank(rank), nranks(nranks), version(version),
          peers((size_t)nranks, std::vector<unsigned char>(PEER)), addresses((size_t)nranks)
    {
        put(comm, 16, BUFFERS);
        for (int i = 0; i < nranks; i++)
            addresses[(size_t)i] = (uint64_t)peers[(size_t)i].data();
        for (size_t channel = 0; channel < 64; channel++)
            neighbours(channel, (rank + nranks - 1) % nranks, (rank + 1) % nranks,
                       {-1, -1, -1, -1});
    }
    template <typename T> static void put(std::vector<unsigned char> &to, size_t at, const T &value)
    {
        memcpy(&to[at], &value, sizeof(value));
    }
    void neighbours(size_t channel, int previous, int next, const int (&tree)[4])
    {
        size_t at = 96 + channel * CHANNEL, tree_at = at + (version >= 22902 ? 40 : 32);
        uint64_t list = (uint64_t)addresses.data();
        put(comm, at, list);
        put(comm, at + 8, previous);
        put(comm, at + 12, next);
        put(comm, tree_at + 4, tree); /* up, then down */
    }
    /* The kernel that runs began at `step`; so many have been put there and taken since. */
    Wire &connect(int peer, bool sends, uint64_t step, Protocol protocol, int posted, int taken,
                  bool proxy = false)
    {
        Wire &wire = wires[{peer, sends}];
        std::vector<unsigned char> &info = peers[(size_t)peer];
        size_t at = sends ? 0 : RECEIVE;
        put(info, at, (uint64_t)wire.ll.data());
        put(info, at + 8, (uint64_t)wire.ll128.data());
        put(info, at + 48, (uint64_t)&wire.tail);
        put(info, at + 56, (uint64_t)&wire.head);
        put(info, at + 72, BUFFERS[2] / 8);
        put(info, at + 96, proxy ? (uint64_t)wire.fifo.data() : 0);
        put(info, at + 104, step);
        wire.head = step + (uint64_t)taken;
        wire.tail = protocol == SIMPLE ? step + (uint64_t)posted : 0;
        for (uint64_t k = step + (uint64_t)posted, i = 0; i < SLOTS && k > 0; i++, k--) {
            uint32_t flag = (uint32_t)k;
            put(wire.ll, (k - 1) % SLOTS * 64 + 4, protocol == LL ? flag : 0);
            put(wire.ll, (k - 1) % SLOTS * 64 + 12, protocol == LL ? flag : 0);
            put(wire.ll128, (k - 1) % SLOTS * 256 + 120, protocol == LL128 ? k : 0);
        }
        for (size_t slot = 0; slot < SLOTS; slot++)
            put(wire.fifo, slot * 24 + 8, (int64_t)-1);
        return wire;
    }
    static bool read(void *context, const struct ng_connection_item *items, uint32_t count)
    {
        Device *device = (Device *)context;
        if (device->reads++ == device->fails_at)
            return false;
        for (uint32_t i = 0; i < count; i++) {
            if (!items[i].address)
                return false; /* unknown to the driver */
            for (uint32_t row = 0; row < items[i].rows; row++)
                memcpy((char *)items[i].to + row * items[i].bytes,
                       (const char *)items[i].address + row * items[i].pitch, items[i].bytes);
        }
        return true;
    }
    static void pause(void *context)
    {
        Device *device = (Device *)context;
        if (device->between)
            device->between(device);
    }
    /* "" or why there are no edges. */
    std::string look(uint64_t channels = 1)
    {
        struct ng_connection_source source = {comm.data(), version, rank,  nranks,
                                              channels,    read,    pause, this};
        struct ng_edge found[NG_EDGES_MAX];
        uint32_t count = 0;
        const char *answer = ng_connection_reader_read(&source, found, &count);
        edges.assign(found, found + (answer ? 0 : count));
        return answer ? answer : "";
    }
    /* "channels begun taken held: posted consumed" */
    std::string of(int peer, bool sends)
    {
        for (const struct ng_edge &edge : edges)
            if (edge.peer == peer && !(edge.flags & NG_EDGE_SENDS) == !sends)
                return std::to_string(edge.channels) + " " + std::to_string(edge.begun) + " " +
                       std::to_string(edge.taken) + " " + std::to_string(edge.held) + ": " +
                       std::to_string(edge.posted) + " " + std::to_string(edge.consumed);
        return "none";
    }
};

constexpr bool SENDS = true, RECEIVES = false;
constexpr char UNKNOWN[] = "their layout is not that of a known release";

} // namespace

/* What was seen where rank 1 is missing, blocked or crowded out: rank 0's view, and rank 1's. */
TEST(Connections, TheEdgeOfAHangIsReadWithEachProtocol)
{
    for (Protocol protocol : {SIMPLE, LL, LL128})
        for (uint64_t step : {0ul, 14ul, 32ul, 276ul, 0xfffffffeul, 1ul << 40}) {
            int sent = protocol == SIMPLE ? 4 : 1;
            Device waits(0, 2), idle(1, 2);
            waits.connect(1, SENDS, step, protocol, sent, 0);
            waits.connect(1, RECEIVES, step, protocol, 0, 0);
            idle.connect(0, SENDS, step, protocol, 0, 0);
            idle.connect(0, RECEIVES, step, protocol, sent, 0);
            ASSERT_EQ(waits.look(), "");
            ASSERT_EQ(idle.look(), "");
            EXPECT_EQ(waits.of(1, SENDS), "1 1 0 1: " + std::to_string(sent) + " 0") << step;
            EXPECT_EQ(waits.of(1, RECEIVES), "1 0 0 0: 0 0");
            EXPECT_EQ(idle.of(0, SENDS), "1 0 0 0: 0 0");
            EXPECT_EQ(idle.of(0, RECEIVES), "1 1 0 1: " + std::to_string(sent) + " 0");
        }
}

TEST(Connections, OverANetworkWhatItsThreadHasNotTakenIsCounted)
{
    Device device(0, 2);
    Wire &wire = device.connect(1, SENDS, 40, SIMPLE, 4, 4, true);
    device.connect(1, RECEIVES, 40, SIMPLE, 0, 0, true);
    Device::put(wire.fifo, 2 * 24 + 8, (int64_t)65536);
    ASSERT_EQ(device.look(), "");
    EXPECT_EQ(device.of(1, SENDS), "1 1 1 0: 4 4");
    EXPECT_EQ(device.edges[0].queued, 1);
    EXPECT_TRUE(device.edges[0].flags & NG_EDGE_PROXY);
    EXPECT_EQ(device.edges[0].base, 40u);
}

/* A sender may end its part while its receiver still has a step to take (seen in a tree). */
TEST(Connections, AStepOfBeforeThatWaitsIsHeld)
{
    Device device(0, 2);
    device.connect(1, SENDS, 10, SIMPLE, 0, -1);
    ASSERT_EQ(device.look(), "");
    EXPECT_EQ(device.of(1, SENDS), "1 0 0 1: 0 0");
}

TEST(Connections, TreesAndRingsOfKnownReleasesAreFollowed)
{
    for (int version : {22605, 22707, 22809, 22902, 23203}) {
        Device device(2, 8, version);
        device.neighbours(5, 1, 3, {0, 3, 7, -1});
        for (int peer : {0, 1, 3, 7}) {
            device.connect(peer, SENDS, 8, SIMPLE, peer, 0);
            device.connect(peer, RECEIVES, 8, SIMPLE, 0, 0);
        }
        ASSERT_EQ(device.look(1 << 5), "") << version;
        ASSERT_EQ(device.edges.size(), 7u); /* nothing is sent to the one before it in the ring */
        EXPECT_EQ(device.of(1, SENDS), "none");
        EXPECT_EQ(device.of(7, SENDS), "1 1 0 1: 7 0");
        for (const struct ng_edge &edge : device.edges) {
            unsigned sends = edge.flags & NG_EDGE_SENDS, rest = edge.flags & ~NG_EDGE_SENDS;
            EXPECT_EQ(rest, edge.peer == 0   ? NG_EDGE_TREE_UP
                            : edge.peer == 7 ? NG_EDGE_TREE_DOWN
                            : edge.peer == 1 ? NG_EDGE_RING
                            : sends          ? NG_EDGE_TREE_DOWN | NG_EDGE_RING
                                             : NG_EDGE_TREE_DOWN)
                << edge.peer;
            EXPECT_EQ(edge.channel, 5);
        }
    }
}

TEST(Connections, OfManyChannelsTheFirstEightOfTheLaunchAreLookedAt)
{
    Device device(0, 2);
    device.connect(1, SENDS, 8, SIMPLE, 4, 0);
    ASSERT_EQ(device.look(~UINT64_C(1)), "");
    EXPECT_EQ(device.of(1, SENDS), "8 8 0 8: 4 0");
    EXPECT_EQ(device.edges[0].channel, 1);
}

TEST(Connections, WhatMovesWhileItIsLookedAtSaysSo)
{
    Device device(0, 2);
    device.connect(1, SENDS, 8, SIMPLE, 4, 0);
    ASSERT_EQ(device.look(), "");
    EXPECT_FALSE(device.edges[0].flags & NG_EDGE_MOVES);
    for (auto move : std::vector<void (*)(Device *)>{[](Device *it) {
                                                         it->wires[{1, SENDS}].head++;
                                                     },
                                                     [](Device *it) {
                                                         it->wires[{1, SENDS}].tail++;
                                                     },
                                                     [](Device *it) {
                                                         it->wires[{1, SENDS}].head++;
                                                         it->wires[{1, SENDS}].tail++;
                                                     }}) {
        device.between = move;
        ASSERT_EQ(device.look(), "");
        EXPECT_TRUE(device.edges[0].flags & NG_EDGE_MOVES);
    }
}

TEST(Connections, AnyDoubtEndsTheLook)
{
    using Spoil = void (*)(Device *);
    const std::pair<const char *, Spoil> rows[] = {
        {"a release that is not known", [](Device *it) { it->version = 23203; }},
        {"one before the known ones", [](Device *it) { it->version = 22602; }},
        {"a rank that does not exist",
         [](Device *it) {
             it->neighbours(0, 1, 2, {-1, -1, -1, -1});
         }},
        {"itself",
         [](Device *it) {
             it->neighbours(0, 1, 0, {-1, -1, -1, -1});
         }},
        {"a parent that does not exist",
         [](Device *it) {
             it->neighbours(0, 1, 1, {9, -1, -1, -1});
         }},
        {"a child that does not exist",
         [](Device *it) {
             it->neighbours(0, 1, 1, {-1, -2, -1, -1});
         }},
        {"no list of peers", [](Device *it) { Device::put(it->comm, 96, (uint64_t)0); }},
        {"steps of another size", [](Device *it) { Device::put(it->peers[1], 72, 4095); }},
        {"one counter", [](Device *it) { Device::put(it->peers[1], 48, (uint64_t)0); }},
        {"more put than there is room",
         [](Device *it) {
             it->wires[{1, SENDS}].tail += 5;
         }},
        {"a head far behind", [](Device *it) { Device::put(it->peers[1], 104, (uint64_t)900); }},
        {"a negative step", [](Device *it) { Device::put(it->peers[1], 104, ~UINT64_C(0)); }},
    };
    for (const auto &[name, spoil] : rows) {
        Device device(0, 2);
        device.connect(1, SENDS, 8, SIMPLE, 4, 0);
        ASSERT_EQ(device.look(), "") << name;
        spoil(&device);
        EXPECT_EQ(device.look(), UNKNOWN) << name;
        EXPECT_TRUE(device.edges.empty());
    }
}

TEST(Connections, AReadThatFailsEndsTheLookWhereverItIs)
{
    Device device(0, 2);
    device.connect(1, SENDS, 8, SIMPLE, 4, 0);
    ASSERT_EQ(device.look(), "");
    int reads = device.reads;
    for (int at = 0; at < reads; at++) {
        device.reads = 0;
        device.fails_at = at;
        EXPECT_EQ(device.look(), NG_CONNECTION_UNREAD) << at;
        EXPECT_EQ(device.reads, at + 1) << "nothing is read after it";
    }
    device.reads = 0;
    device.fails_at = -1;
    device.addresses[1] = 0; /* the other rank has no structure here */
    EXPECT_EQ(device.look(), NG_CONNECTION_UNREAD);
}

TEST(Connections, WhatIsNotConnectedHasNoEdge)
{
    Device device(0, 4);
    ASSERT_EQ(device.look(), "");
    EXPECT_TRUE(device.edges.empty());
    device.connect(3, RECEIVES, 8, LL, 1, 0);
    ASSERT_EQ(device.look(), "");
    EXPECT_EQ(device.edges.size(), 1u);
}

TEST(Connections, MorePeersThanHaveRoomAreNotTold)
{
    Device device(0, 100);
    for (int peer = 1; peer < 100; peer++) {
        device.connect(peer, SENDS, 8, SIMPLE, 4, 0);
        device.connect(peer, RECEIVES, 8, SIMPLE, 4, 0);
    }
    for (int channel = 0; channel < 8; channel++)
        device.neighbours((size_t)channel, 1 + channel, 11 + channel,
                          {21 + channel, 31 + channel, 41 + channel, 51 + channel});
    EXPECT_EQ(device.look(3), "") << "two channels: 20 edges";
    EXPECT_EQ(device.edges.size(), 20u);
    EXPECT_EQ(device.look(0xff), "there are too many of them");
}
