/*
 * Incidents as bytes.
 */
#include "tests/unit/store/publish/ranks.h"

static struct ng_incident random_incident(std::mt19937_64 &random)
{
    struct ng_incident incident = {.epoch = 1 + random() % NG_EPOCH_MAX,
                                   .source = NG_SOURCE_JOB,
                                   .level = (enum ng_incident_level)(1 + random() % 3),
                                   .state = (enum ng_incident_state)(1 + random() % 2)};
    if (incident.level == RECORD_ABORT)
        incident.state = NG_INCIDENT_JUDGED;
    incident.group_id = random();
    incident.seq = incident.level == RECORD_ABORT ? random() % INT32_MAX : random();
    incident.op = (uint32_t)(random() % NG_OP_LIMIT);
    incident.claimant_rank = (int32_t)(random() >> 33) - (int32_t)(random() % 2);
    incident.claimant_pid = (int32_t)(random() >> 33);
    incident.claimant_ticks = random();
    incident.claimant_slot = random();
    incident.claimant_host = random();
    incident.label = random();
    incident.stalled_ns = (int64_t)(random() >> 1);
    incident.policy = (int32_t)(random() % 5);
    incident.differs = random() % 2;
    incident.failed = random() % 2;
    incident.scope.all = random() % 8 == 0;
    incident.scope.count = incident.scope.all ? 0 : (uint32_t)(random() % (NG_GROUP_SET_MAX + 1));
    for (uint32_t i = 0; i < incident.scope.count; i++)
        incident.scope.groups[i] = random();
    if (incident.level < RECORD_ABORT)
        incident.kind = (uint8_t)(1 + random() % (NG_KIND_COUNT - 1));
    size_t length = random() % sizeof(incident.line);
    for (size_t i = 0; i < length; i++)
        incident.line[i] = (char)(' ' + random() % 95);
    return incident;
}

/* None that is an order. */
static struct ng_incident random_verdict(std::mt19937_64 &random)
{
    struct ng_incident incident;
    do
        incident = random_incident(random);
    while (incident.level >= RECORD_ABORT);
    return incident;
}

static std::string encoded(const struct ng_incident &incident)
{
    unsigned char bytes[NG_INCIDENT_RECORD_BYTES];
    size_t length = ng_incident_encode(&incident, bytes);
    EXPECT_LE(length, sizeof(bytes));
    return std::string(reinterpret_cast<char *>(bytes), length);
}

static int decoded(const std::string &bytes, struct ng_incident *ret_incident)
{
    /* At the very end of its memory: reading beyond is seen. */
    std::vector<char> exact(bytes.begin(), bytes.end());
    return ng_incident_decode(exact.data(), exact.size(), ret_incident);
}

static void expect_same(const struct ng_incident &a, const struct ng_incident &b)
{
    EXPECT_EQ(a.epoch, b.epoch);
    EXPECT_EQ(a.source, b.source);
    EXPECT_EQ(a.level, b.level);
    EXPECT_EQ(a.state, b.state);
    EXPECT_EQ(a.group_id, b.group_id);
    EXPECT_EQ(a.seq, b.seq);
    EXPECT_EQ(a.op, b.op);
    EXPECT_EQ(a.claimant_rank, b.claimant_rank);
    EXPECT_EQ(a.claimant_pid, b.claimant_pid);
    EXPECT_EQ(a.claimant_ticks, b.claimant_ticks);
    EXPECT_EQ(a.claimant_slot, b.claimant_slot);
    EXPECT_EQ(a.claimant_host, b.claimant_host);
    EXPECT_EQ(a.label, b.label);
    EXPECT_EQ(a.stalled_ns, b.stalled_ns);
    EXPECT_EQ(a.policy, b.policy);
    EXPECT_EQ(a.differs, b.differs);
    EXPECT_EQ(a.failed, b.failed);
    EXPECT_EQ(a.kind, b.kind);
    EXPECT_STREQ(a.line, b.line);
    EXPECT_EQ(a.scope.all, b.scope.all);
    ASSERT_EQ(a.scope.count, b.scope.count);
    for (uint32_t i = 0; i < a.scope.count; i++)
        EXPECT_EQ(a.scope.groups[i], b.scope.groups[i]);
}

TEST(IncidentCodec, ComeBackAsTheyWere)
{
    std::mt19937_64 random(7);
    for (int i = 0; i < 2000; i++) {
        struct ng_incident before = random_incident(random), after;
        ASSERT_EQ(decoded(encoded(before), &after), 0);
        expect_same(before, after);
    }
}

TEST(IncidentCodec, OtherClocksAreNotBelieved)
{
    std::mt19937_64 random(8);
    struct ng_incident before = random_incident(random), after;
    before.claimed_mono_ns = before.since_mono_ns = 12345;
    before.supersedes = 7;
    ASSERT_EQ(decoded(encoded(before), &after), 0);
    EXPECT_EQ(after.claimed_mono_ns, 0);
    EXPECT_EQ(after.since_mono_ns, 0);
    EXPECT_EQ(after.supersedes, 0u);
}

TEST(IncidentCodec, TheLongestLineFits)
{
    std::mt19937_64 random(9);
    struct ng_incident before = random_incident(random), after;
    memset(before.line, 'x', sizeof(before.line)); /* without its end */
    std::string bytes = encoded(before);
    ASSERT_EQ(decoded(bytes, &after), 0);
    EXPECT_EQ(strlen(after.line), sizeof(after.line) - 1);
    EXPECT_EQ(decoded(bytes + "x", &after), -EBADMSG) << "one more does not";
}

TEST(IncidentCodec, NobodyElsesControlCharactersAreLogged)
{
    std::mt19937_64 random(10);
    struct ng_incident before = random_incident(random), after;
    for (int c = 0; c < 256; c++)
        before.line[c] = (char)(c ? c : 'x');
    before.line[256] = '\0';
    std::string bytes = encoded(before);
    bytes[bytes.size() - 256] = '\0'; /* and one in the middle of it all */
    ASSERT_EQ(decoded(bytes, &after), 0);
    EXPECT_EQ(strlen(after.line), 256u);
    for (unsigned char c : std::string(after.line)) {
        EXPECT_GE(c, ' ');
        EXPECT_NE(c, 127);
    }
    EXPECT_EQ(after.line[(int)'A'], 'A');
}

static void put_number(std::string &bytes, size_t number, uint64_t value)
{
    for (size_t i = 0; i < 8; i++)
        bytes[8 * number + i] = (char)(value >> 8 * i);
}

/* One number after the other, of a record that is fine else; also where what is wrong would be cut
 * off. */
TEST(IncidentCodec, NumbersThatNobodyWritesAreRefused)
{
    std::mt19937_64 random(15);
    const struct {
        size_t number;
        std::vector<uint64_t> wrong, right;
    } cases[] = {
        {1, {0, (uint64_t)NG_EPOCH_MAX + 1, UINT64_MAX}, {1, NG_EPOCH_MAX}},
        {2,
         {0, NG_RECORD_LEVEL_LIMIT, UINT64_C(1) << 32 | 2, UINT64_MAX},
         {NG_INCIDENT_SUSPECT, NG_INCIDENT_TIMEOUT}},
        {3, {0, 3, UINT64_C(1) << 32 | 1}, {NG_INCIDENT_CLAIMED, NG_INCIDENT_JUDGED}},
        {6,
         {NG_OP_LIMIT, (NG_ON_TIMEOUT_LAST + UINT64_C(2)) << 32, UINT64_C(1) << 61},
         {0, (NG_ON_TIMEOUT_LAST + UINT64_C(1)) << 32}},
        {7, {(uint64_t)-2, UINT64_C(1) << 31, UINT64_C(1) << 32}, {(uint64_t)-1, INT32_MAX}},
        {8, {(uint64_t)-1, UINT64_C(1) << 31, UINT64_C(1) << 32}, {0, INT32_MAX}},
        {13, {(uint64_t)-1, UINT64_C(1) << 63}, {0, INT64_MAX}},
        {14, {NG_KIND_COUNT, 256 + NG_KIND_NAN, UINT64_MAX}, {0, NG_KIND_COUNT - 1}},
    };
    struct ng_incident after;
    for (const auto &one : cases) {
        std::string bytes = encoded(random_verdict(random));
        ASSERT_EQ(decoded(bytes, &after), 0);
        for (uint64_t value : one.wrong) {
            put_number(bytes, one.number, value);
            EXPECT_EQ(decoded(bytes, &after), -EBADMSG) << one.number << ": " << value;
        }
        for (uint64_t value : one.right) {
            put_number(bytes, one.number, value);
            EXPECT_EQ(decoded(bytes, &after), 0) << one.number << ": " << value;
        }
    }
}

TEST(IncidentCodec, CutOffAnywhereTheyAreRefusedOrShorter)
{
    std::mt19937_64 random(11);
    struct ng_incident before = random_incident(random), after;
    memset(before.line, 'y', 100);
    before.line[100] = '\0';
    std::string bytes = encoded(before);
    for (size_t length = 0; length < bytes.size(); length++) {
        int error = decoded(bytes.substr(0, length), &after);
        if (length < bytes.size() - 100)
            EXPECT_EQ(error, -EBADMSG) << length;
        else
            EXPECT_EQ(error ? 1000 : strlen(after.line), length - (bytes.size() - 100));
    }
}

TEST(IncidentCodec, WhatAnOlderGuardWroteIsRead)
{
    std::mt19937_64 random(13);
    for (auto state : {NG_INCIDENT_CLAIMED, NG_INCIDENT_JUDGED}) {
        struct ng_incident before = random_verdict(random), after;
        before.scope = {};
        before.state = state;
        snprintf(before.line, sizeof(before.line), "missing_rank: rank 2");
        std::string bytes = encoded(before);
        before.kind = state == NG_INCIDENT_JUDGED ? NG_KIND_MISSING_RANK : NG_KIND_HEALTHY;
        bytes[3] = 5; /* its version, without the kind of verdict */
        bytes.erase(8 * 14, 8);
        ASSERT_EQ(decoded(bytes, &after), 0);
        expect_same(before, after);
        bytes[3] = 4; /* and without the number of groups before the line */
        bytes.erase(8 * 14, 8);
        ASSERT_EQ(decoded(bytes, &after), 0);
        before.scope.count = 1;
        before.scope.groups[0] = before.group_id;
        expect_same(before, after);
    }
}

/* The kind in the line is for people: the guard does not parse it. */
TEST(IncidentCodec, TheKindOfAVerdictIsNotThatOfItsWords)
{
    std::mt19937_64 random(16);
    struct ng_incident before = random_verdict(random), after;
    before.state = NG_INCIDENT_JUDGED;
    before.kind = NG_KIND_NAN;
    snprintf(before.line, sizeof(before.line), "missing_rank: rank 2");
    ASSERT_EQ(decoded(encoded(before), &after), 0);
    EXPECT_EQ(after.kind, NG_KIND_NAN);
}

TEST(IncidentCodec, AnOlderGuardReadsOrders)
{
    std::mt19937_64 random(17);
    struct ng_incident order = random_incident(random);
    order.level = RECORD_ABORT;
    EXPECT_EQ(encoded(order)[3], 5) << "the version of those before";
}

TEST(IncidentCodec, MoreGroupsThanThereIsRoomForAreRefused)
{
    std::mt19937_64 random(14);
    struct ng_incident before = random_verdict(random), after;
    before.scope = {};
    std::string bytes = encoded(before);
    bytes[8 * 15] = NG_GROUP_SET_MAX + 1;
    bytes += std::string(8 * (NG_GROUP_SET_MAX + 1), 'g');
    EXPECT_EQ(decoded(bytes, &after), -EBADMSG);
}

TEST(IncidentCodec, AnotherVersionIsTold)
{
    std::mt19937_64 random(12);
    struct ng_incident after;
    std::string bytes = encoded(random_incident(random));
    bytes[0]++;
    EXPECT_EQ(decoded(bytes, &after), -EPROTO);
}

TEST(IncidentCodec, AnyBytesAreSurvived)
{
    std::mt19937_64 random(13);
    for (int i = 0; i < 20000; i++) {
        struct ng_incident after = {};
        std::string bytes = encoded(random_incident(random));
        if (i % 2)
            for (int k = 0; k < 4; k++)
                bytes[8 + random() % (bytes.size() - 8)] = (char)random();
        else
            for (size_t k = 8; k < bytes.size(); k++)
                bytes[k] = (char)random();
        int error = decoded(bytes, &after);
        if (error) {
            EXPECT_EQ(error, -EBADMSG);
            continue;
        }
        EXPECT_GE(after.level, NG_INCIDENT_SUSPECT);
        EXPECT_LT((int)after.level, (int)NG_RECORD_LEVEL_LIMIT);
        EXPECT_GE(after.state, NG_INCIDENT_CLAIMED);
        EXPECT_LE(after.state, NG_INCIDENT_JUDGED);
        EXPECT_LT(after.op, (uint32_t)NG_OP_LIMIT);
        EXPECT_LT(after.kind, NG_KIND_COUNT);
        EXPECT_LT(strnlen(after.line, sizeof(after.line)), sizeof(after.line));
    }
}
