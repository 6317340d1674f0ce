/*
 * The rolling hash: the same for ranks that did the same, another for all others.
 */
#include "tests/unit/core/helpers/core.h"

extern "C" {
#include "core/recorder/signature.h"
#include "core/view/signature.h"
}

/* A call as a wrapper fills it in: what the operation does not have is -1, count 0. */
static struct ng_signature any_call(std::mt19937_64 &random)
{
    static const std::vector<uint32_t> collectives = [] {
        std::vector<uint32_t> found;
        for (uint32_t op = 1; op < NG_OP_LIMIT; op++)
            if (ng_op_table[op].op_class == NG_CLASS_COLLECTIVE)
                found.push_back(op);
        return found;
    }();
    uint32_t op = collectives[random() % collectives.size()], fields = ng_op_table[op].fields;
    struct ng_signature call = {op, -1, -1, -1, 0};
    if (fields & NG_F_DTYPE)
        call.dtype = (int)(random() % 12);
    if (fields & NG_F_REDOP)
        call.redop = (int)(random() % 5);
    if (fields & NG_F_ROOT)
        call.root = (int)(random() % 4096);
    if (fields & NG_F_COUNT)
        call.count = random() % 3 ? random() % 100 : random() >> 24;
    return call;
}

/* One field is another; true where ranks may not differ in it. */
static bool change(struct ng_signature *call, std::mt19937_64 &random)
{
    struct ng_signature before = *call, other;
    switch (random() % 5) {
    case 0:
        do
            other = any_call(random);
        while (other.op == before.op);
        *call = other;
        break;
    case 1:
        call->dtype = call->dtype < 0 ? -1 : (call->dtype + 1) % 12;
        break;
    case 2:
        call->redop = call->redop < 0 ? -1 : (call->redop + 1) % 6;
        break;
    case 3:
        call->root = call->root < 0 ? -1 : call->root + 1;
        break;
    default:
        if (ng_op_table[call->op].fields & NG_F_COUNT)
            call->count += random() % 2 ? 1 : UINT64_C(1) << random() % 64;
    }
    return ng_signature_differ(&before, call) != 0;
}

static uint64_t hash_of(const std::vector<struct ng_signature> &calls)
{
    uint64_t hash = 0;
    for (const struct ng_signature &call : calls)
        hash = ng_signature_roll(hash, &call);
    return hash;
}

TEST(Signature, WhatEvidenceDoesNotTellDiffersFromNothing)
{
    const struct ng_signature whole = {NG_OP_Reduce, 7, 0, 3, 1024};
    struct ng_signature less = {NG_OP_Reduce, -1, -1, -1, 1024};
    char text[128];

    EXPECT_EQ(ng_signature_differ(&whole, &less), 0u);
    EXPECT_EQ(ng_signature_differ(&less, &whole), 0u);
    ng_signature_text(&less, text, sizeof(text));
    EXPECT_EQ(std::string(text).find("root"), std::string::npos) << text;
    less.count = 512;
    EXPECT_EQ(ng_signature_differ(&whole, &less), NG_F_COUNT);
    less.root = 2;
    EXPECT_EQ(ng_signature_differ(&whole, &less), NG_F_COUNT | NG_F_ROOT);
}

TEST(RollingHash, DiffersAsSoonAndAsLongAsHistoriesDiffer)
{
    std::mt19937_64 random(11);
    for (int round = 0; round < 20000; round++) {
        std::vector<struct ng_signature> calls(1 + random() % 40);
        for (struct ng_signature &call : calls)
            call = any_call(random);
        std::vector<struct ng_signature> others = calls;
        size_t at = random() % calls.size();
        bool differs = change(&others[at], random);
        uint64_t hash = 0, other = 0;
        for (size_t i = 0; i < calls.size(); i++) {
            hash = ng_signature_roll(hash, &calls[i]);
            other = ng_signature_roll(other, &others[i]);
            ASSERT_EQ(hash != other, differs && i >= at) << "round " << round << " call " << i;
        }
    }
}

TEST(RollingHash, TellsTheOrder)
{
    std::mt19937_64 random(12);
    for (int round = 0; round < 20000; round++) {
        std::vector<struct ng_signature> calls(2 + random() % 10);
        for (struct ng_signature &call : calls)
            call = any_call(random);
        std::vector<struct ng_signature> others = calls;
        size_t at = random() % (calls.size() - 1);
        std::swap(others[at], others[at + 1]);
        EXPECT_EQ(hash_of(calls) != hash_of(others),
                  ng_signature_differ(&calls[at], &calls[at + 1]) != 0);
    }
}

/* What training jobs do: broadcasts and reductions of parameters of all sizes from all roots. */
TEST(RollingHash, DoesNotCollideOnRegularHistories)
{
    std::set<uint64_t> seen;
    size_t made = 0;
    for (uint64_t count : {1, 2, 8, 100, 108, 1024, 4096, 1 << 20, 1 << 25})
        for (int root = 0; root < 16; root++)
            for (uint64_t next : {1, 2, 8, 100, 108, 1024, 4096, 1 << 20, 1 << 25})
                for (int next_root = 0; next_root < 16; next_root++)
                    for (int dtype : {0, 7, 8, 9}) {
                        seen.insert(hash_of({{NG_OP_Broadcast, dtype, -1, root, count},
                                             {NG_OP_Broadcast, dtype, -1, next_root, next},
                                             {NG_OP_AllReduce, 7, 0, -1, 64}}));
                        made++;
                    }
    EXPECT_EQ(seen.size(), made);
}

/* Every rank numbers its own reductions for itself. */
TEST(RollingHash, ReductionsOfRanksOwnCountAsOne)
{
    EXPECT_EQ(hash_of({{NG_OP_AllReduce, 7, 5, -1, 64}}),
              hash_of({{NG_OP_AllReduce, 7, INT32_MAX, -1, 64}}));
    EXPECT_NE(hash_of({{NG_OP_AllReduce, 7, 4, -1, 64}}),
              hash_of({{NG_OP_AllReduce, 7, 5, -1, 64}}));
}

/* A call that NCCL refused did not happen. */
TEST(RollingHash, ACallCanBeTakenBack)
{
    std::mt19937_64 random(13);
    for (int round = 0; round < 20000; round++) {
        struct ng_signature call = {(uint32_t)random(), (int)random(), (int)random(), (int)random(),
                                    random()};
        uint64_t before = random();
        EXPECT_EQ(ng_signature_unroll(ng_signature_roll(before, &call), &call), before);
    }
}

/* It stands in black boxes and dumps that other versions read. */
TEST(RollingHash, IsTheSameInEveryVersion)
{
    EXPECT_EQ(hash_of({{NG_OP_AllReduce, 7, 0, -1, 1024}, {NG_OP_Broadcast, 9, -1, 3, 5}}),
              UINT64_C(0xe83b452316238e4c));
}
