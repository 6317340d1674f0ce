/*
 * Every wrapper of the table passes its arguments and its result on unchanged.
 *
 * Calls each function with distinct arguments and compares what arrived at the recording NCCL.
 * Built twice: over the probe (with PROBE: also what core was told), and alone, to run under the
 * real preloaded library.
 */
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <dlfcn.h>

#include "tests/unit/shim/declared.h"
#include "tests/unit/shim/recording_nccl.h"
#ifdef PROBE
#include "core/nccl/op.h"
#include "tests/unit/shim/probe.h"
#endif

/* Memory behind every pointer that is passed: writable, and larger than anything NCCL names. */
static char memory[64][4096];

/* The n-th argument: another value for each n and round, every byte set where it may be. */
template <typename Value> static Value make_argument(unsigned n, unsigned round)
{
    Value value;

    if constexpr (std::is_pointer_v<Value>) {
        value = (Value)(void *)&memory[n + 16 * round][8 * n];
    } else if constexpr (std::is_enum_v<Value>) {
        value = (Value)((n + round) % 2); /* some enumerations have but two values */
    } else {
        unsigned char bytes[sizeof(Value)];
        for (size_t i = 0; i < sizeof(bytes); i++)
            bytes[i] = (unsigned char)(0x11 + 0x23 * n + 0x3b * round + 7 * i);
        memcpy(&value, bytes, sizeof(value));
    }
    return value;
}

template <typename Function> struct signature;

template <typename Value, typename... Arguments> struct signature<Value(Arguments...)> {
    using value_type = Value;
    using tuple = std::tuple<std::decay_t<Arguments>...>;

    template <size_t... Index>
    static tuple make([[maybe_unused]] unsigned round, std::index_sequence<Index...>)
    {
        return tuple(make_argument<std::decay_t<Arguments>>(Index, round)...);
    }

    static tuple make(unsigned round)
    {
        return make(round, std::index_sequence_for<Arguments...>{});
    }
};

template <typename Value> static bool same(const Value &left, const Value &right)
{
    return memcmp(&left, &right, sizeof(Value)) == 0;
}

/* What came of one call. */
struct outcome {
    bool same_value;
    int errno_after;
    uint64_t calls_before, hash; /* of the arguments that were passed */
    struct recording recording;
};

/* Apart from the calls, of which there are some hundred types: each would have these expectations
 * compiled anew. */
static void expect_forwarded(const struct outcome &outcome)
{
    EXPECT_TRUE(outcome.same_value) << "another value came back";
    EXPECT_EQ(outcome.errno_after, ENOTTY) << "errno of the library did not come back";
    EXPECT_EQ(outcome.recording.calls, outcome.calls_before + 1);
    EXPECT_EQ(outcome.recording.hash, outcome.hash) << "other arguments arrived";
    EXPECT_EQ(outcome.recording.errno_seen, EILSEQ) << "errno of the program did not arrive";
}

template <typename Function> static void check_forward(Function *function, enum recording_id id)
{
    using value_type = typename signature<Function>::value_type;

    for (unsigned round = 0; round < 3; round++) {
        auto arguments = signature<Function>::make(round);
        struct outcome outcome = {true, 0, recording_of(id).calls, recording_hash(arguments), {}};

        errno = EILSEQ;
        recording_set_distinct(true, ENOTTY);
        if constexpr (std::is_void_v<value_type>) {
            std::apply(function, arguments);
            outcome.errno_after = errno;
        } else {
            value_type value = std::apply(function, arguments);
            outcome.errno_after = errno;
            outcome.same_value = same(value, recording_value<value_type>(id));
        }
        recording_set_distinct(false, 0);
        outcome.recording = recording_of(id);
        expect_forwarded(outcome);
    }
}

/* The library is known before the first comparison: looking for it asks its version. */
struct Forward : testing::Test {
    void SetUp() override
    {
        int version = 0;
        ASSERT_EQ(ncclGetVersion(&version), ncclSuccess);
        ASSERT_EQ(version, RECORDING_VERSION);
    }
};

/* Otherwise all the rest would pass without a guard, too. */
TEST_F(Forward, GoesThroughTheWrapperUnderTest)
{
    Dl_info info = {};
    const char *expected = getenv("EXPECT_WRAPPERS_IN");

    ASSERT_NE(expected, nullptr);
    ASSERT_NE(dladdr(dlsym(RTLD_DEFAULT, "ncclAllReduce"), &info), 0);
    EXPECT_NE(strstr(info.dli_fname, expected), nullptr) << info.dli_fname;
}

#ifdef PROBE
static void check_recorded(enum recording_id id, enum ng_op op, enum ng_op_class of_op)
{
    enum ng_op_class way =
        of_op == NG_CLASS_COLLECTIVE || of_op == NG_CLASS_P2P ? of_op : NG_CLASS_NONE;

    ASSERT_EQ(probe_call_count(), 3u);
    for (unsigned i = 0; i < 3; i++) {
        struct probe_call call = probe_call_at(i);
        Dl_info info = {};

        EXPECT_EQ(call.call.op, op);
        EXPECT_TRUE(call.left);
        EXPECT_EQ(call.way, way);
        EXPECT_EQ(call.way_out, way);
        EXPECT_EQ(call.result, (int)recording_value<ncclResult_t>(id));
        EXPECT_EQ(call.call.nccl, probe_nccl(0));
        ASSERT_NE(dladdr(call.call.caller, &info), 0);
        EXPECT_NE(strstr(info.dli_fname, "forward"), nullptr) << "the caller is not the program";
    }
}

#define CHECK_TRACKED(function, id, op, op_class)                                                  \
    probe_set_active(true);                                                                        \
    probe_clear();                                                                                 \
    check_forward(function, id);                                                                   \
    check_recorded(id, op, op_class);                                                              \
    probe_set_active(false);                                                                       \
    probe_clear();                                                                                 \
    check_forward(function, id);                                                                   \
    EXPECT_EQ(probe_call_count(), 0u) << "recorded while inert";
#define CHECK_PASSED(function, id)                                                                 \
    probe_set_active(true);                                                                        \
    probe_clear();                                                                                 \
    check_forward(function, id);                                                                   \
    EXPECT_EQ(probe_call_count(), 0u);                                                             \
    probe_set_active(false);
#else
#define CHECK_TRACKED(function, id, op, op_class) check_forward(function, id)
#define CHECK_PASSED(function, id)                check_forward(function, id)
#endif

/*
 * Through a table of our own types, so that functions which the headers overload in C++ are chosen
 * by the row.
 */
#define NG_TRACK(name, major, minor, patch, op, owner, prototype, arguments, ...)                  \
    TEST_F(Forward, name)                                                                          \
    {                                                                                              \
        using function = ncclResult_t prototype;                                                   \
        CHECK_TRACKED(static_cast<function *>(nccl##name), RECORDING_##name, NG_OP_##op,           \
                      (enum ng_op_class)NG_OP_CLASS_##op);                                         \
    }
#define NG_PASS(name, major, minor, patch, owner, type, missing, prototype, arguments, reason)     \
    TEST_F(Forward, name)                                                                          \
    {                                                                                              \
        using function = type prototype;                                                           \
        CHECK_PASSED(static_cast<function *>(nccl##name), RECORDING_##name);                       \
    }
#include "shim/nccl_api.def"
#undef NG_TRACK
#undef NG_PASS
