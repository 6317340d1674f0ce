/* Self test of the stand-in for libnccl.so.2: every collective, type and operator against a plain
 * reference; groups, splits, point-to-point matching; and that it hangs, aborts and refuses where
 * the real library does. Ranks are threads of this process, or new processes of this program. */
#include <cuda.h>
#include <gtest/gtest.h>
#include <nccl.h>
#include <nccl_device.h>

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

extern char **environ;

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 29, 2)
extern "C" ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId *id);
extern "C" ncclResult_t ncclCommGrow(ncclComm_t comm, int nranks, const ncclUniqueId *id, int rank,
                                     ncclComm_t *newcomm, ncclConfig_t *config);
#endif

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 29, 7)
extern "C" ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags);
extern "C" ncclResult_t ncclCommResume(ncclComm_t comm);
#endif

/* Symbols of this program come before the library's: what NCCL calls by its exported names lands
 * here first, as in a preloaded interposer. */
#define INTERPOSER extern "C" __attribute__((visibility("default")))

static std::atomic<int> seen_broadcast, seen_async_error, seen_unique_id, seen_version;
static std::atomic<bool> version_from_other_thread;
static thread_local bool own_call;

INTERPOSER ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count,
                                      ncclDataType_t type, int root, ncclComm_t comm,
                                      cudaStream_t stream)
{
    seen_broadcast++;
    return pncclBroadcast(send, recv, count, type, root, comm, stream);
}

INTERPOSER ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    seen_async_error++;
    return pncclCommGetAsyncError(comm, error);
}

INTERPOSER ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    seen_unique_id++;
    return pncclGetUniqueId(id);
}

INTERPOSER ncclResult_t ncclGetVersion(int *version)
{
    seen_version++;
    if (!own_call)
        version_from_other_thread = true;
    return pncclGetVersion(version);
}

namespace
{

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr auto kLong = seconds(60); /* a bound on hangs, never reached */

#define NCCL_OK(call)                                                                              \
    do {                                                                                           \
        ASSERT_EQ(ncclSuccess, (call)) << ncclGetLastError(nullptr);                               \
    } while (0)
#define CU_OK(call)                                                                                \
    do {                                                                                           \
        ASSERT_EQ(CUDA_SUCCESS, (call));                                                           \
    } while (0)

cudaStream_t rt(CUstream stream)
{
    return reinterpret_cast<cudaStream_t>(stream);
}

void use_device(int index)
{
    CUdevice device;
    CUcontext ctx;
    CU_OK(cuInit(0));
    CU_OK(cuDeviceGet(&device, index));
    CU_OK(cuDevicePrimaryCtxRetain(&ctx, device));
    CU_OK(cuCtxSetCurrent(ctx));
}

std::vector<unsigned char> bytes_of(const std::vector<float> &values)
{
    std::vector<unsigned char> data(values.size() * sizeof(float));
    memcpy(data.data(), values.data(), data.size());
    return data;
}

std::vector<float> some(size_t count, double value)
{
    return std::vector<float>(count, static_cast<float>(value));
}

/* A buffer on the current device. */
class Buffer
{
  public:
    explicit Buffer(size_t bytes) : bytes_(bytes ? bytes : 1)
    {
        EXPECT_EQ(CUDA_SUCCESS, cuMemAlloc(&address_, bytes_));
    }
    explicit Buffer(const std::vector<unsigned char> &data) : Buffer(data.size())
    {
        write(data);
    }
    explicit Buffer(const std::vector<float> &values) : Buffer(bytes_of(values))
    {
    }
    Buffer(size_t count, double value) : Buffer(some(count, value))
    {
    }
    ~Buffer()
    {
        EXPECT_EQ(CUDA_SUCCESS, cuMemFree(address_));
    }
    Buffer(const Buffer &) = delete;
    Buffer &operator=(const Buffer &) = delete;
    char *get() const
    {
        return reinterpret_cast<char *>(address_);
    }
    void write(const std::vector<unsigned char> &data)
    {
        if (!data.empty()) {
            EXPECT_EQ(CUDA_SUCCESS, cuMemcpyHtoD(address_, data.data(), data.size()));
        }
    }
    std::vector<unsigned char> read(size_t bytes) const
    {
        std::vector<unsigned char> data(bytes);
        if (bytes) {
            EXPECT_EQ(CUDA_SUCCESS, cuMemcpyDtoH(data.data(), address_, bytes));
        }
        return data;
    }
    std::vector<float> floats(size_t count) const
    {
        std::vector<float> data(count);
        EXPECT_EQ(CUDA_SUCCESS, cuMemcpyDtoH(data.data(), address_, count * sizeof(float)));
        return data;
    }

  private:
    CUdeviceptr address_ = 0;
    size_t bytes_;
};

/* A point that all ranks of a test pass together. */
class Meeting
{
  public:
    explicit Meeting(int n) : n_(n)
    {
    }
    void wait()
    {
        std::unique_lock<std::mutex> lock(mutex_);
        int round = round_;
        if (++come_ == n_) {
            come_ = 0;
            round_++;
            cond_.notify_all();
        } else {
            ASSERT_TRUE(cond_.wait_for(lock, kLong, [&] { return round_ != round; }));
        }
    }

  private:
    std::mutex mutex_;
    std::condition_variable cond_;
    int n_, come_ = 0, round_ = 0;
};

struct Rank {
    int rank = 0, n = 0;
    ncclComm_t comm = nullptr;
    CUstream stream = nullptr;
    Meeting *meeting = nullptr; /* of all ranks of the test */

    void meet() const
    {
        meeting->wait();
    }
};

/* What ends with its scope, on the current device. */
template <typename Handle, auto destroy> class Owned
{
  public:
    explicit Owned(Handle handle = nullptr) : handle_(handle)
    {
    }
    ~Owned()
    {
        end();
    }
    void end()
    {
        if (handle_) {
            EXPECT_EQ(0, static_cast<int>(destroy(handle_)));
        }
        handle_ = nullptr;
    }
    Owned(const Owned &) = delete;
    Owned &operator=(const Owned &) = delete;
    operator Handle() const
    {
        return handle_;
    }
    Handle *operator&()
    {
        return &handle_;
    }

  private:
    Handle handle_;
};

using Comm = Owned<ncclComm_t, ncclCommDestroy>;
using Stream = Owned<CUstream, cuStreamDestroy>;
using Event = Owned<CUevent, cuEventDestroy>;
using Exec = Owned<CUgraphExec, cuGraphExecDestroy>;

void in_threads(int n, const std::function<void(int)> &body)
{
    std::vector<std::thread> threads;
    for (int r = 0; r < n; r++)
        threads.emplace_back([&body, r] { body(r); });
    for (auto &thread : threads)
        thread.join();
}

CUstream new_stream()
{
    CUstream stream = nullptr;
    EXPECT_EQ(CUDA_SUCCESS, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

ncclUniqueId new_id()
{
    ncclUniqueId id = {};
    EXPECT_EQ(ncclSuccess, ncclGetUniqueId(&id));
    return id;
}

/* One thread, device, stream and rank of one communicator each. */
void with_ranks(int n, const std::function<void(Rank &)> &body)
{
    ncclUniqueId id = new_id();
    Meeting meeting(n);
    in_threads(n, [&](int r) {
        Rank me;
        me.meeting = &meeting;
        me.rank = r;
        me.n = n;
        use_device(r);
        me.stream = new_stream();
        NCCL_OK(ncclCommInitRank(&me.comm, n, id, r));
        body(me);
        if (me.comm)
            NCCL_OK(ncclCommDestroy(me.comm));
        CU_OK(cuStreamDestroy(me.stream));
    });
}

/* Where a test ends a rank's communicator itself. */
void abort_of(Rank &me)
{
    NCCL_OK(ncclCommAbort(me.comm));
    me.comm = nullptr;
}

/* A test whose body is what each rank does. */
#define RANKS_TEST(suite, name, n)                                                                 \
    void suite##name(Rank &me);                                                                    \
    TEST(suite, name)                                                                              \
    {                                                                                              \
        with_ranks(n, suite##name);                                                                \
    }                                                                                              \
    void suite##name([[maybe_unused]] Rank &me)

void sync(CUstream stream)
{
    CU_OK(cuStreamSynchronize(stream));
}

/* Floats in place; sends and receives of floats. */
ncclResult_t reduce(ncclComm_t comm, CUstream stream, Buffer &b, size_t count = 1,
                    ncclRedOp_t op = ncclSum)
{
    return ncclAllReduce(b.get(), b.get(), count, ncclFloat32, op, comm, rt(stream));
}

ncclResult_t reduce(Rank &me, Buffer &b, size_t count = 1, ncclRedOp_t op = ncclSum)
{
    return reduce(me.comm, me.stream, b, count, op);
}

void reduce_and_wait(Rank &me, Buffer &b, size_t count = 1, ncclRedOp_t op = ncclSum)
{
    NCCL_OK(reduce(me, b, count, op));
    sync(me.stream);
}

ncclResult_t send_to(Rank &me, const void *from, int peer, size_t count)
{
    return ncclSend(from, count, ncclFloat32, peer, me.comm, rt(me.stream));
}

ncclResult_t receive_from(Rank &me, void *to, int peer, size_t count)
{
    return ncclRecv(to, count, ncclFloat32, peer, me.comm, rt(me.stream));
}

void expect_place(ncclComm_t comm, int n, int rank)
{
    int count = 0, at = -1;
    NCCL_OK(ncclCommCount(comm, &count));
    NCCL_OK(ncclCommUserRank(comm, &at));
    EXPECT_EQ(n, count);
    EXPECT_EQ(rank, at);
}

/* Stays true for a while: what a hang looks like from outside. */
bool holds(const std::function<bool()> &what, milliseconds time = milliseconds(150))
{
    auto end = steady_clock::now() + time;
    while (steady_clock::now() < end) {
        if (!what())
            return false;
        std::this_thread::sleep_for(milliseconds(5));
    }
    return true;
}

/* Without any error. */
bool stays_pending(const Rank &me, milliseconds time = milliseconds(150))
{
    return holds(
        [&] {
            ncclResult_t error = ncclInternalError;
            return cuStreamQuery(me.stream) == CUDA_ERROR_NOT_READY &&
                   ncclCommGetAsyncError(me.comm, &error) == ncclSuccess && error == ncclSuccess;
        },
        time);
}

bool becomes(const std::function<bool()> &what)
{
    auto end = steady_clock::now() + kLong;
    while (steady_clock::now() < end) {
        if (what())
            return true;
        std::this_thread::sleep_for(milliseconds(1));
    }
    return false;
}

/* ---- the reference ---- */

const char *const kTypeNames[] = {"int8", "uint8", "int32",  "uint32", "int64", "uint64",
                                  "half", "float", "double", "bfloat", "e4m3",  "e5m2"};
const size_t kTypeBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

bool is_integer(int type)
{
    return type <= ncclUint64;
}

template <typename T> T load(const unsigned char *at)
{
    T value;
    memcpy(&value, at, sizeof(value));
    return value;
}

template <typename T> void store(unsigned char *at, T value)
{
    memcpy(at, &value, sizeof(value));
}

double decode(int type, const unsigned char *at)
{
    __nv_fp8_e4m3 e4m3;
    __nv_fp8_e5m2 e5m2;
    switch (type) {
    case ncclFloat16:
        return __half2float(__half(load<__half_raw>(at)));
    case ncclBfloat16:
        return __bfloat162float(__nv_bfloat16(load<__nv_bfloat16_raw>(at)));
    case ncclFloat32:
        return load<float>(at);
    case ncclFloat64:
        return load<double>(at);
    case ncclFloat8e4m3:
        e4m3.__x = *at;
        return static_cast<float>(e4m3);
    default:
        e5m2.__x = *at;
        return static_cast<float>(e5m2);
    }
}

void encode(int type, double value, unsigned char *at)
{
    float single = static_cast<float>(value);
    int64_t whole;
    switch (type) {
    case ncclFloat16:
        return store(at, static_cast<__half_raw>(__float2half(single)));
    case ncclBfloat16:
        return store(at, static_cast<__nv_bfloat16_raw>(__float2bfloat16(single)));
    case ncclFloat32:
        return store(at, single);
    case ncclFloat64:
        return store(at, value);
    case ncclFloat8e4m3:
        return store(at, __nv_fp8_e4m3(single).__x);
    case ncclFloat8e5m2:
        return store(at, __nv_fp8_e5m2(single).__x);
    default:
        whole = static_cast<int64_t>(value);
        memcpy(at, &whole, kTypeBytes[type]);
    }
}

/* Integers as 64 bits, sign extended where the type has one. */
uint64_t integer(int type, const unsigned char *at)
{
    uint64_t raw = 0;
    memcpy(&raw, at, kTypeBytes[type]);
    if (type == ncclInt8)
        return static_cast<uint64_t>(static_cast<int64_t>(static_cast<int8_t>(raw)));
    if (type == ncclInt32)
        return static_cast<uint64_t>(static_cast<int64_t>(static_cast<int32_t>(raw)));
    return raw;
}

bool is_signed(int type)
{
    return type == ncclInt8 || type == ncclInt32 || type == ncclInt64;
}

uint64_t narrow(int type, uint64_t value)
{
    unsigned char raw[8];
    memcpy(raw, &value, 8);
    return integer(type, raw);
}

enum Op { kSum, kProd, kMax, kMin, kAvg, kPreMulHost, kPreMulDevice, kOps };
const char *const kOpNames[] = {"sum", "prod", "max", "min", "avg", "premul-host", "premul-device"};

/* The rank's own factor of a premulsum. */
int factor(int rank)
{
    return 1 + rank % 2;
}

/* Inputs that every type holds exactly, results too; or, rich, any bits of an integer. */
std::vector<unsigned char> input(int type, int op, int rank, size_t count, bool rich)
{
    size_t bytes = kTypeBytes[type];
    std::vector<unsigned char> data(count * bytes);
    uint64_t state = static_cast<uint64_t>(rank * 1000 + type + 1);
    auto random = [&state] {
        uint64_t x = state += 0x9e3779b97f4a7c15;
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
        x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
        return x ^ (x >> 31);
    };
    for (size_t i = 0; i < count; i++) {
        if (rich && is_integer(type)) {
            uint64_t any = random();
            memcpy(&data[i * bytes], &any, bytes);
        } else if (op == kProd) {
            encode(type, (random() & 3) ? 1 : 2, &data[i * bytes]);
        } else if (op == kMax || op == kMin) {
            encode(type, static_cast<double>(random() % 13), &data[i * bytes]);
        } else if (op == kPreMulHost || op == kPreMulDevice) {
            encode(type, random() % 8 == static_cast<uint64_t>(rank) ? 1 : 0, &data[i * bytes]);
        } else {
            encode(type, static_cast<double>(random() & 1), &data[i * bytes]);
        }
    }
    return data;
}

/* Of each rank its value, in turn; `wrap` after each step. */
template <typename T, typename Value, typename Greater, typename Wrap>
T combined(int op, size_t n, Value value, Greater greater, Wrap wrap)
{
    T result = 0;
    for (size_t r = 0; r < n; r++) {
        T x = value(r);
        if (op == kPreMulHost || op == kPreMulDevice)
            x *= static_cast<T>(factor(static_cast<int>(r)));
        if (r == 0)
            result = x;
        else if (op == kProd)
            result *= x;
        else if (op == kMax || op == kMin)
            result = greater(x, result) == (op == kMax) ? x : result;
        else
            result += x;
        result = wrap(result);
    }
    return result;
}

/* Element i of all ranks' inputs, reduced by hand. */
void reduce_element(int type, int op, const std::vector<std::vector<unsigned char>> &inputs,
                    size_t i, unsigned char *out)
{
    size_t bytes = kTypeBytes[type], n = inputs.size();
    if (!is_integer(type)) {
        double result = combined<double>(
            op, n, [&](size_t r) { return decode(type, &inputs[r][i * bytes]); },
            std::greater<double>(), [](double x) { return x; });
        encode(type, op == kAvg ? result / static_cast<double>(n) : result, out);
        return;
    }
    auto greater = [type](uint64_t x, uint64_t y) {
        return is_signed(type) ? static_cast<int64_t>(x) > static_cast<int64_t>(y) : x > y;
    };
    uint64_t result = combined<uint64_t>(
        op, n, [&](size_t r) { return integer(type, &inputs[r][i * bytes]); }, greater,
        [type](uint64_t x) { return narrow(type, x); });
    if (op == kAvg)
        result = is_signed(type)
                     ? static_cast<uint64_t>(static_cast<int64_t>(result) / static_cast<int64_t>(n))
                     : result / n;
    memcpy(out, &result, bytes);
}

std::vector<unsigned char> reduced(int type, int op,
                                   const std::vector<std::vector<unsigned char>> &inputs)
{
    std::vector<unsigned char> out(inputs[0].size());
    for (size_t i = 0; i < out.size() / kTypeBytes[type]; i++)
        reduce_element(type, op, inputs, i, &out[i * kTypeBytes[type]]);
    return out;
}

enum Coll {
    kAllReduce,
    kReduce,
    kReduceScatter,
    kBroadcast,
    kBcast,
    kAllGather,
    kAlltoAll,
    kGather,
    kScatter
};

struct Case {
    Coll coll;
    int type, op, root;
    size_t count;
    bool in_place, rich;
};

std::string describe(const Case &c)
{
    static const char *const names[] = {"AllReduce", "Reduce", "ReduceScatter",
                                        "Broadcast", "Bcast",  "AllGather",
                                        "AlltoAll",  "Gather", "Scatter"};
    return std::string(names[c.coll]) + " " + kTypeNames[c.type] + " " + kOpNames[c.op] + " root " +
           std::to_string(c.root) + " count " + std::to_string(c.count) +
           (c.in_place ? " in place" : "") + (c.rich ? " rich" : "");
}

/* Runs one collective and compares every byte with the reference. */
void run_case(Rank &me, const Case &c)
{
    if (testing::Test::HasFatalFailure())
        return; /* some rank's */
    SCOPED_TRACE(describe(c) + " rank " + std::to_string(me.rank) + "/" + std::to_string(me.n));
    auto type = static_cast<ncclDataType_t>(c.type);
    size_t n = static_cast<size_t>(me.n), rank = static_cast<size_t>(me.rank);
    size_t block = c.count * kTypeBytes[c.type];
    bool wide_in = c.coll == kReduceScatter || c.coll == kAlltoAll || c.coll == kScatter;
    bool wide_out = c.coll == kAllGather || c.coll == kAlltoAll || c.coll == kGather;
    size_t in_count = wide_in ? c.count * n : c.count;
    size_t out_bytes = wide_out ? block * n : block;
    bool root = me.rank == c.root;
    std::vector<std::vector<unsigned char>> inputs;
    for (int r = 0; r < me.n; r++)
        inputs.push_back(input(c.type, c.op, r, in_count, c.rich));
    const std::vector<unsigned char> &mine = inputs[rank];

    std::vector<unsigned char> want;
    auto add = [&](const std::vector<unsigned char> &all) {
        want.insert(want.end(), all.begin(), all.end());
    };
    auto add_block = [&](const std::vector<unsigned char> &all) {
        want.insert(want.end(), all.begin() + static_cast<long>(rank * block),
                    all.begin() + static_cast<long>((rank + 1) * block));
    };
    if (c.coll == kAllReduce || (c.coll == kReduce && root))
        add(reduced(c.type, c.op, inputs));
    else if (c.coll == kReduceScatter)
        add_block(reduced(c.type, c.op, inputs));
    else if (c.coll == kBroadcast || c.coll == kBcast)
        add(inputs[static_cast<size_t>(c.root)]);
    else if (c.coll == kAllGather || (c.coll == kGather && root))
        std::for_each(inputs.begin(), inputs.end(), add);
    else if (c.coll == kAlltoAll)
        std::for_each(inputs.begin(), inputs.end(), add_block);
    else if (c.coll == kScatter)
        add_block(inputs[static_cast<size_t>(c.root)]);

    /* Guard bytes behind each buffer must survive. */
    const std::vector<unsigned char> fence(16, 0xa5);
    std::vector<unsigned char> start;
    size_t out_at = 0, in_at = 0, space = 0;
    space = c.in_place ? std::max(mine.size(), out_bytes) : out_bytes;
    start.assign(space, 0xee);
    if (c.in_place) {
        if (c.coll == kAllGather || (c.coll == kGather && root))
            in_at = rank * block;
        if (c.coll == kReduceScatter || (c.coll == kScatter && root))
            out_at = rank * block;
        std::copy(mine.begin(), mine.end(), start.begin() + static_cast<long>(in_at));
    }
    start.insert(start.end(), fence.begin(), fence.end());
    Buffer recv(start), send(mine);
    const void *in = c.in_place ? recv.get() + in_at : send.get();
    void *out = recv.get() + out_at;

    ncclRedOp_t op = static_cast<ncclRedOp_t>(c.op);
    unsigned char scalar[8];
    encode(c.type, factor(me.rank), scalar);
    Buffer device_scalar(std::vector<unsigned char>(scalar, scalar + 8));
    if (c.op == kPreMulHost)
        NCCL_OK(ncclRedOpCreatePreMulSum(&op, scalar, type, ncclScalarHostImmediate, me.comm));
    if (c.op == kPreMulDevice)
        NCCL_OK(
            ncclRedOpCreatePreMulSum(&op, device_scalar.get(), type, ncclScalarDevice, me.comm));

    auto call = [&](Coll coll) {
        auto stream = rt(me.stream);
        switch (coll) {
        case kAllReduce:
            return ncclAllReduce(in, out, c.count, type, op, me.comm, stream);
        case kReduce:
            return ncclReduce(in, out, c.count, type, op, c.root, me.comm, stream);
        case kReduceScatter:
            return ncclReduceScatter(in, out, c.count, type, op, me.comm, stream);
        case kBroadcast:
            return ncclBroadcast(in, out, c.count, type, c.root, me.comm, stream);
        case kBcast:
            return ncclBcast(out, c.count, type, c.root, me.comm, stream);
        case kAllGather:
            return ncclAllGather(in, out, c.count, type, me.comm, stream);
        case kAlltoAll:
            return ncclAlltoAll(in, out, c.count, type, me.comm, stream);
        case kGather:
            return ncclGather(in, out, c.count, type, c.root, me.comm, stream);
        default:
            return ncclScatter(in, out, c.count, type, c.root, me.comm, stream);
        }
    };
    NCCL_OK(call(c.coll));
    sync(me.stream);
    if (op >= ncclNumOps)
        NCCL_OK(ncclRedOpDestroy(op, me.comm));
    auto got = recv.read(space + fence.size());
    ASSERT_EQ(fence, std::vector<unsigned char>(got.end() - 16, got.end()));
    if (!want.empty()) {
        auto from = got.begin() + static_cast<long>(out_at);
        ASSERT_EQ(want, std::vector<unsigned char>(from, from + static_cast<long>(want.size())));
    } else if (!c.in_place) {
        start.resize(space);
        got.resize(space);
        ASSERT_EQ(start, got) << "the buffer of a rank without output changed";
    }
}

struct Collectives : testing::TestWithParam<int> {
};

TEST_P(Collectives, EveryReductionTypeAndOperatorAgreesWithTheReference)
{
    with_ranks(GetParam(), [](Rank &me) {
        for (Coll coll : {kAllReduce, kReduce, kReduceScatter})
            for (int type = 0; type < ncclNumTypes; type++)
                for (int op = 0; op < kOps; op++)
                    for (bool in_place : {false, true})
                        for (bool rich : {false, true}) {
                            if (rich && !is_integer(type))
                                continue;
                            Case c = {coll,     type, op, (type + op) % me.n, rich ? 37u : 5u,
                                      in_place, rich};
                            run_case(me, c);
                        }
    });
}

TEST_P(Collectives, EveryMovementOfEveryTypeAgreesWithTheReference)
{
    with_ranks(GetParam(), [](Rank &me) {
        for (Coll coll : {kBroadcast, kBcast, kAllGather, kAlltoAll, kGather, kScatter})
            for (int type = 0; type < ncclNumTypes; type++)
                for (bool in_place : {false, true})
                    for (size_t count : {size_t(1), size_t(33)}) {
                        if (in_place && coll == kAlltoAll)
                            continue;
                        Case c = {coll,  type,
                                  kSum,  (type + int(count)) % me.n,
                                  count, in_place || coll == kBcast,
                                  false};
                        run_case(me, c);
                    }
    });
}

void run_many_slots(Rank &me, size_t count)
{
    for (Coll coll : {kAllReduce, kReduce, kReduceScatter, kBroadcast, kAllGather, kAlltoAll,
                      kGather, kScatter})
        for (bool in_place : {false, true}) {
            if (in_place && coll == kAlltoAll)
                continue;
            run_case(me, {coll, ncclInt32, kSum, me.n - 1, count, in_place, true});
        }
}

TEST_P(Collectives, MessagesOfManySlotsAgreeWithTheReference)
{
    ASSERT_EQ(0, setenv("FAKE_NCCL_BUFFER", "4096", 1));
    with_ranks(GetParam(), [](Rank &me) { run_many_slots(me, 5003); });
    ASSERT_EQ(0, unsetenv("FAKE_NCCL_BUFFER"));
}

TEST(Large, MessagesBeyondTheDefaultBufferAgreeWithTheReference)
{
    with_ranks(2, [](Rank &me) { run_many_slots(me, 150001); });
}

TEST_P(Collectives, CountsAroundRankAndSlotBordersAgreeWithTheReference)
{
    with_ranks(GetParam(), [](Rank &me) {
        size_t n = static_cast<size_t>(me.n);
        for (size_t count : {size_t(1), n - 1, n, n + 1, size_t(16383), size_t(16384),
                             size_t(16385), n * 16384, n * 16384 + 1}) {
            run_case(me, {kAllReduce, ncclFloat32, kSum, 0, count, false, false});
        }
    });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Collectives, testing::Values(1, 2, 3, 4, 8));

RANKS_TEST(Small, EmptyCollectivesEnqueueNothing, 2)
{
    /* Were anything enqueued, the missing peer would show. */
    if (me.rank == 0) {
        NCCL_OK(ncclAllReduce(nullptr, nullptr, 0, ncclFloat32, ncclSum, me.comm, rt(me.stream)));
        NCCL_OK(ncclBroadcast(nullptr, nullptr, 0, ncclFloat32, 1, me.comm, rt(me.stream)));
        NCCL_OK(ncclAlltoAll(nullptr, nullptr, 0, ncclFloat32, me.comm, rt(me.stream)));
        sync(me.stream);
    }
}

TEST(Small, ConversionsOfSmallFloatsRoundAndSaturateAsCudaDoes)
{
    /* One rank, scaled: a pass through decode and encode of each code. */
    with_ranks(1, [](Rank &me) {
        for (int type : {ncclFloat16, ncclBfloat16, ncclFloat8e4m3, ncclFloat8e5m2})
            for (double scale : {1.0 / 3, 1.0, 2.0, 0x1p-5}) {
                size_t codes = kTypeBytes[type] == 1 ? 256 : 65536;
                std::vector<unsigned char> all, want;
                unsigned char scalar[8];
                encode(type, scale, scalar);
                for (size_t code = 0; code < codes; code++) {
                    unsigned char raw[2] = {static_cast<unsigned char>(code),
                                            static_cast<unsigned char>(code >> 8)};
                    unsigned char out[8];
                    double value = decode(type, raw);
                    if (std::isnan(value) || std::isinf(value))
                        continue;
                    all.insert(all.end(), raw, raw + kTypeBytes[type]);
                    encode(type, value * decode(type, scalar), out);
                    want.insert(want.end(), out, out + kTypeBytes[type]);
                }
                ncclRedOp_t op;
                Buffer in(all), out(all.size());
                NCCL_OK(ncclRedOpCreatePreMulSum(&op, scalar, static_cast<ncclDataType_t>(type),
                                                 ncclScalarHostImmediate, me.comm));
                NCCL_OK(ncclAllReduce(in.get(), out.get(), all.size() / kTypeBytes[type],
                                      static_cast<ncclDataType_t>(type), op, me.comm,
                                      rt(me.stream)));
                sync(me.stream);
                EXPECT_EQ(want, out.read(all.size())) << kTypeNames[type] << " times " << scale;
                NCCL_OK(ncclRedOpDestroy(op, me.comm));
            }
    });
}

/* ---- sends and receives, groups, streams ---- */

RANKS_TEST(PointToPoint, AGroupedRingMovesLargeAndSmallMessages, 4)
{
    for (size_t count : {size_t(1), size_t(1000), size_t(500000)}) {
        int next = (me.rank + 1) % me.n, prev = (me.rank + me.n - 1) % me.n;
        Buffer send(count, me.rank), recv(count * 4);
        NCCL_OK(ncclGroupStart());
        NCCL_OK(send_to(me, send.get(), next, count));
        NCCL_OK(receive_from(me, recv.get(), prev, count));
        NCCL_OK(ncclGroupEnd());
        sync(me.stream);
        EXPECT_EQ(some(count, prev), recv.floats(count));
    }
}

RANKS_TEST(PointToPoint, MessagesOfOnePairMatchInOrder, 2)
{
    /* The first is larger than the channel: the second must not overtake it. */
    constexpr size_t many = 400000;
    Buffer a(many, 1), b(std::vector<float>{3, 4}), x(4 * many), y(8);
    NCCL_OK(ncclGroupStart());
    if (me.rank == 0) {
        NCCL_OK(send_to(me, a.get(), 1, many));
        NCCL_OK(send_to(me, b.get(), 1, 2));
    } else {
        NCCL_OK(receive_from(me, x.get(), 0, many));
        NCCL_OK(receive_from(me, y.get(), 0, 2));
    }
    NCCL_OK(ncclGroupEnd());
    sync(me.stream);
    if (me.rank == 1) {
        EXPECT_EQ(some(many, 1), x.floats(many));
        EXPECT_EQ(std::vector<float>({3, 4}), y.floats(2));
    }
}

RANKS_TEST(PointToPoint, AGroupMatchesPeersInAnyOrder, 3)
{
    Buffer mine(1, me.rank), got(12);
    NCCL_OK(ncclGroupStart());
    for (int i = 0; i < 3; i++) {
        /* Each rank names its peers in an order of its own. */
        int peer = (me.rank * 2 + i) % 3;
        NCCL_OK(receive_from(me, got.get() + 4 * peer, peer, 1));
    }
    for (int i = 2; i >= 0; i--)
        NCCL_OK(send_to(me, mine.get(), (me.rank + i) % 3, 1));
    NCCL_OK(ncclGroupEnd());
    sync(me.stream);
    EXPECT_EQ(std::vector<float>({0, 1, 2}), got.floats(3));
}

RANKS_TEST(PointToPoint, ASmallSendOnAWarmPairCompletesBeforeTheReceiverComes, 2)
{
    Buffer buffer(4);
    auto transfer = [&] {
        if (me.rank == 0)
            NCCL_OK(send_to(me, buffer.get(), 1, 1));
        else
            NCCL_OK(receive_from(me, buffer.get(), 0, 1));
        sync(me.stream);
    };
    transfer();
    if (me.rank == 0)
        transfer();
    me.meet();
    if (me.rank == 1)
        transfer();
}

RANKS_TEST(PointToPoint, ALargeSendWaitsForItsReceiver, 2)
{
    size_t count = 1 << 20;
    Buffer buffer(count * 4);
    if (me.rank == 0)
        NCCL_OK(send_to(me, buffer.get(), 1, 1));
    else
        NCCL_OK(receive_from(me, buffer.get(), 0, 1));
    sync(me.stream);
    if (me.rank == 0) {
        NCCL_OK(send_to(me, buffer.get(), 1, count));
        EXPECT_TRUE(holds([&] { return cuStreamQuery(me.stream) == CUDA_ERROR_NOT_READY; }));
    }
    me.meet();
    if (me.rank == 1)
        NCCL_OK(receive_from(me, buffer.get(), 0, count));
    sync(me.stream);
}

RANKS_TEST(PointToPoint, ASendToSelfNeedsItsReceive, 1)
{
    Buffer from(1, 7), to(4);
    EXPECT_EQ(ncclInvalidUsage, send_to(me, from.get(), 0, 1));
    EXPECT_STREQ("Trying to send to self without a matching recv", ncclGetLastError(me.comm));
    NCCL_OK(ncclGroupStart());
    NCCL_OK(send_to(me, from.get(), 0, 1));
    NCCL_OK(receive_from(me, to.get(), 0, 1));
    NCCL_OK(ncclGroupEnd());
    sync(me.stream);
    EXPECT_EQ(std::vector<float>({7}), to.floats(1));
}

RANKS_TEST(Groups, SeveralCollectivesAndSendsInOneGroupAllRun, 4)
{
    std::vector<std::unique_ptr<Buffer>> buffers;
    for (int i = 0; i < 8; i++)
        buffers.push_back(std::make_unique<Buffer>(100, 1));
    Buffer token(1, me.rank), got(4);
    NCCL_OK(ncclGroupStart());
    NCCL_OK(ncclGroupStart()); /* nested */
    for (auto &b : buffers)
        NCCL_OK(reduce(me, *b, 100));
    NCCL_OK(ncclGroupEnd());
    EXPECT_EQ(CUDA_SUCCESS, cuStreamQuery(me.stream)) << "the inner end launched something";
    NCCL_OK(send_to(me, token.get(), (me.rank + 1) % 4, 1));
    NCCL_OK(receive_from(me, got.get(), (me.rank + 3) % 4, 1));
    NCCL_OK(ncclGroupEnd());
    sync(me.stream);
    for (auto &b : buffers)
        EXPECT_EQ(some(100, 4), b->floats(100));
    EXPECT_EQ(static_cast<float>((me.rank + 3) % 4), got.floats(1)[0]);
}

TEST(Groups, OneThreadDrivesAllDevices)
{
    constexpr int n = 4;
    ncclComm_t comms[n];
    CUstream streams[n];
    std::vector<std::unique_ptr<Buffer>> buffers;
    NCCL_OK(ncclCommInitAll(comms, n, nullptr));
    for (int i = 0; i < n; i++) {
        int device = -1;
        expect_place(comms[i], n, i);
        NCCL_OK(ncclCommCuDevice(comms[i], &device));
        EXPECT_EQ(i, device);
        use_device(i);
        streams[i] = new_stream();
        buffers.push_back(std::make_unique<Buffer>(1000, i));
    }
    for (int round = 0; round < 20; round++) {
        NCCL_OK(ncclGroupStart());
        for (int i = 0; i < n; i++)
            NCCL_OK(reduce(comms[i], streams[i], *buffers[i], 1000, ncclMax));
        NCCL_OK(ncclGroupEnd());
    }
    for (int i = 0; i < n; i++) {
        use_device(i);
        sync(streams[i]);
        EXPECT_EQ(some(1000, 3), buffers[i]->floats(1000));
        CU_OK(cuStreamDestroy(streams[i]));
    }
    buffers.clear();
    NCCL_OK(ncclGroupStart());
    for (int i = 0; i < n; i++)
        NCCL_OK(ncclCommDestroy(comms[i]));
    NCCL_OK(ncclGroupEnd());
}

TEST(Groups, AnEndWithoutStartIsRefused)
{
    EXPECT_EQ(ncclInvalidUsage, ncclGroupEnd());
    EXPECT_STREQ("ncclGroupEnd: not in a group call.", ncclGetLastError(nullptr));
}

RANKS_TEST(Groups, AnErrorInsideComesAgainAtTheEndAndNothingIsLaunched, 2)
{
    Buffer b(4);
    NCCL_OK(ncclGroupStart());
    NCCL_OK(reduce(me, b));
    EXPECT_EQ(ncclInvalidArgument,
              ncclBroadcast(b.get(), b.get(), 1, ncclFloat32, 9, me.comm, rt(me.stream)));
    EXPECT_EQ(ncclInvalidArgument, ncclGroupEnd());
    EXPECT_EQ(CUDA_SUCCESS, cuStreamQuery(me.stream));
}

RANKS_TEST(Groups, SimulatingTheEndLaunchesNothingAndGivesATime, 2)
{
    Buffer b(400);
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    NCCL_OK(ncclGroupStart());
    NCCL_OK(reduce(me, b, 100));
    NCCL_OK(ncclGroupSimulateEnd(&info));
    EXPECT_GT(info.estimatedTime, 0);
    EXPECT_EQ(CUDA_SUCCESS, cuStreamQuery(me.stream));
    EXPECT_EQ(ncclInvalidUsage, ncclGroupSimulateEnd(&info));
}

RANKS_TEST(Streams, CallsOnTwoStreamsKeepTheirOrderOnOneCommunicator, 2)
{
    Stream other(new_stream());
    std::vector<std::unique_ptr<Buffer>> buffers;
    for (int i = 0; i < 40; i++) {
        buffers.push_back(std::make_unique<Buffer>(50, i));
        NCCL_OK(reduce(me.comm, (i + me.rank) % 2 ? other : me.stream, *buffers[i], 50));
    }
    sync(me.stream);
    sync(other);
    for (int i = 0; i < 40; i++)
        EXPECT_EQ(some(50, 2 * i), buffers[i]->floats(50));
}

RANKS_TEST(Streams, AGroupOverTwoStreamsIsOrderedWithBoth, 2)
{
    Stream other(new_stream());
    Buffer a(1, 1), b(1, 2);
    NCCL_OK(ncclGroupStart());
    NCCL_OK(reduce(me, a));
    NCCL_OK(reduce(me.comm, other, b));
    NCCL_OK(ncclGroupEnd());
    sync(other);
    EXPECT_EQ(2, a.floats(1)[0]);
    EXPECT_EQ(4, b.floats(1)[0]);
    sync(me.stream);
}

TEST(Streams, SeveralCommunicatorsWorkAtOnce)
{
    ncclUniqueId second = new_id();
    with_ranks(4, [&](Rank &me) {
        Comm comm2;
        Stream stream2(new_stream());
        /* Ranks in reverse. */
        NCCL_OK(ncclCommInitRank(&comm2, 4, second, 3 - me.rank));
        Buffer a(1000, 1), b(1, me.rank);
        for (int i = 0; i < 10; i++) {
            NCCL_OK(reduce(me, a, 1000));
            NCCL_OK(ncclBroadcast(b.get(), b.get(), 1, ncclFloat32, 0, comm2, rt(stream2)));
        }
        sync(me.stream);
        sync(stream2);
        EXPECT_EQ(some(1000, std::pow(4.0f, 10)), a.floats(1000));
        EXPECT_EQ(3, b.floats(1)[0]);
    });
}

/* ---- captured graphs ---- */

/* Captures what body enqueues on the rank's stream and makes it launchable. */
Exec captured(CUstream stream, const std::function<void()> &body)
{
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    EXPECT_EQ(CUDA_SUCCESS, cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    body();
    EXPECT_EQ(CUDA_SUCCESS, cuStreamEndCapture(stream, &graph));
    EXPECT_EQ(CUDA_SUCCESS, cuGraphInstantiate(&exec, graph, 0));
    EXPECT_EQ(CUDA_SUCCESS, cuGraphDestroy(graph));
    return Exec(exec);
}

RANKS_TEST(Graphs, EachReplayMovesDataAgain, 2)
{
    Buffer b(std::vector<float>{1, 2});
    Exec exec = captured(me.stream, [&] {
        for (int i = 0; i < 3; i++)
            NCCL_OK(reduce(me, b, 2));
    });
    EXPECT_EQ(std::vector<float>({1, 2}), b.floats(2)) << "a capture moved data";
    for (int i = 0; i < 4; i++)
        CU_OK(cuGraphLaunch(exec, me.stream));
    /* An eager call keeps its place behind the replays. */
    reduce_and_wait(me, b, 2);
    EXPECT_EQ(std::vector<float>({8192, 16384}), b.floats(2));
}

RANKS_TEST(Graphs, TwoStreamsOfOneCaptureKeepTheCommunicatorsOrder, 2)
{
    Stream other(new_stream());
    Event fork, join;
    CU_OK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
    CU_OK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
    Buffer b(std::vector<float>{1, 2, 3, 4});
    Exec exec = captured(me.stream, [&] {
        CU_OK(cuEventRecord(fork, me.stream));
        CU_OK(cuStreamWaitEvent(other, fork, 0));
        for (int i = 0; i < 4; i++)
            NCCL_OK(ncclBroadcast(b.get() + 4 * i, b.get() + 4 * i, 1, ncclFloat32, i % 2, me.comm,
                                  rt((i + me.rank) % 2 ? other : me.stream)));
        CU_OK(cuEventRecord(join, other));
        CU_OK(cuStreamWaitEvent(me.stream, join, 0));
    });
    for (int i = 0; i < 10; i++) {
        float mine = static_cast<float>(10 * i + me.rank);
        b.write(bytes_of({mine, mine, mine, mine}));
        CU_OK(cuGraphLaunch(exec, me.stream));
        sync(me.stream);
        float base = static_cast<float>(10 * i);
        EXPECT_EQ(std::vector<float>({base, base + 1, base, base + 1}), b.floats(4));
    }
}

RANKS_TEST(Graphs, AReplayWithoutItsPeerHangsAndAnAbortFreesIt, 2)
{
    Buffer b(1, 1);
    Exec exec = captured(me.stream, [&] { NCCL_OK(reduce(me, b)); });
    if (me.rank == 0) {
        CU_OK(cuGraphLaunch(exec, me.stream));
        EXPECT_TRUE(holds([&] { return cuStreamQuery(me.stream) == CUDA_ERROR_NOT_READY; }));
        /* The abort ends the kernel, then waits for the end of the graph. */
        auto abort = std::async(std::launch::async, [&] { return ncclCommAbort(me.comm); });
        sync(me.stream);
        EXPECT_EQ(1, b.floats(1)[0]);
        EXPECT_EQ(std::future_status::timeout, abort.wait_for(milliseconds(150)));
        exec.end();
        ASSERT_EQ(std::future_status::ready, abort.wait_for(kLong));
        EXPECT_EQ(ncclSuccess, abort.get());
        me.comm = nullptr;
    }
    me.meet();
}

/* ---- split, shrink, finalize, revoke ---- */

RANKS_TEST(Split, ColorsAndKeysMakeTheGroupsAndTheirOrder, 8)
{
    Comm child;
    /* Even and odd ranks, each group in reverse order. */
    NCCL_OK(ncclCommSplit(me.comm, me.rank % 2, -me.rank, &child, nullptr));
    ASSERT_NE(nullptr, child);
    expect_place(child, 4, 3 - me.rank / 2);
    Buffer b(1, me.rank);
    NCCL_OK(reduce(child, me.stream, b));
    sync(me.stream);
    EXPECT_EQ(me.rank % 2 ? 16 : 12, b.floats(1)[0]);
}

RANKS_TEST(Split, EqualKeysFollowTheParentsOrderAndNoColorGivesNull, 4)
{
    ncclComm_t child = me.comm;
    NCCL_OK(ncclCommSplit(me.comm, me.rank == 2 ? NCCL_SPLIT_NOCOLOR : 5, 0, &child, nullptr));
    if (me.rank == 2) {
        EXPECT_EQ(nullptr, child);
    } else {
        expect_place(child, 3, me.rank == 3 ? 2 : me.rank);
        NCCL_OK(ncclCommDestroy(child));
    }
}

RANKS_TEST(Shrink, TheExcludedRankStaysOutAndItsListIsSorted, 4)
{
    if (me.rank == 1 || me.rank == 3)
        return;
    int exclude[] = {3, 1};
    Comm child;
    NCCL_OK(ncclCommShrink(me.comm, exclude, 2, &child, nullptr, NCCL_SHRINK_DEFAULT));
    EXPECT_EQ(1, exclude[0]);
    EXPECT_EQ(3, exclude[1]);
    expect_place(child, 2, me.rank / 2);
    Buffer b(1, me.rank + 1);
    NCCL_OK(reduce(child, me.stream, b));
    sync(me.stream);
    EXPECT_EQ(4, b.floats(1)[0]);
}

RANKS_TEST(Shrink, WithAbortItEndsTheParentsKernels, 3)
{
    Buffer b(1, 1);
    reduce_and_wait(me, b);
    if (me.rank != 0) {
        int exclude[] = {0};
        Comm child;
        NCCL_OK(reduce(me, b));
        NCCL_OK(ncclCommShrink(me.comm, exclude, 1, &child, nullptr, NCCL_SHRINK_ABORT));
        sync(me.stream);
        Buffer c(1, 1);
        NCCL_OK(reduce(child, me.stream, c));
        sync(me.stream);
        EXPECT_EQ(2, c.floats(1)[0]);
    }
    abort_of(me);
}

/* Who of the parent passes the id on: NCCL's example nobody, its reference the one that made it,
 * its own performance test everybody. */
struct Grow : testing::TestWithParam<std::tuple<int, int, const char *>> {
};

TEST_P(Grow, OldRanksKeepTheirNumbersAndNewOnesJoin)
{
    auto [old, maker, passes] = GetParam();
    const int n = old + 2;
    std::promise<ncclUniqueId> promise;
    std::shared_future<ncclUniqueId> made = promise.get_future().share();
    ncclUniqueId first = new_id();
    in_threads(n, [&, old = old, maker = maker, how = std::string(passes)](int r) {
        ncclComm_t parent = nullptr;
        Comm grown, again;
        ncclUniqueId id;
        use_device(r);
        Stream stream(new_stream());
        if (r < old) {
            NCCL_OK(ncclCommInitRank(&parent, old, first, r));
            if (r == maker) {
                NCCL_OK(ncclCommGetUniqueId(parent, &id));
                promise.set_value(id);
            }
        }
        bool told = r >= old || how == "all" || (how == "maker" && r == maker);
        if (told)
            id = made.get();
        NCCL_OK(ncclCommGrow(parent, n, told ? &id : nullptr, parent ? -1 : r, &grown, nullptr));
        expect_place(grown, n, r);
        if (parent)
            NCCL_OK(ncclCommDestroy(parent));
        Buffer b(1, r + 1);
        NCCL_OK(reduce(grown, stream, b));
        sync(stream);
        EXPECT_EQ(static_cast<float>(n * (n + 1) / 2), b.floats(1)[0]);
        /* What is made of it is as good as any. */
        NCCL_OK(ncclCommSplit(grown, 0, -r, &again, nullptr));
        expect_place(again, n, n - 1 - r);
    });
}

INSTANTIATE_TEST_SUITE_P(WhoPassesTheId, Grow,
                         testing::Values(std::make_tuple(3, 0, "nobody"),
                                         std::make_tuple(3, 1, "nobody"),
                                         std::make_tuple(3, 1, "maker"),
                                         std::make_tuple(2, 1, "all"),
                                         std::make_tuple(1, 0, "maker")));

RANKS_TEST(GrowCalls, RefuseWhatIsNoGrowing, 2)
{
    ncclUniqueId id = new_id();
    ncclComm_t grown = me.comm;
    EXPECT_EQ(ncclInvalidArgument, ncclCommGrow(me.comm, 2, &id, -1, &grown, nullptr));
    EXPECT_EQ(nullptr, grown);
    EXPECT_EQ(ncclInvalidArgument, ncclCommGrow(me.comm, 3, &id, me.rank, &grown, nullptr));
    EXPECT_EQ(ncclInvalidArgument, ncclCommGrow(me.comm, 3, &id, -1, nullptr, nullptr));
    EXPECT_EQ(ncclInvalidArgument, ncclCommGrow(nullptr, 3, &id, -1, &grown, nullptr));
    EXPECT_EQ(ncclInvalidArgument, ncclCommGrow(nullptr, 3, &id, 3, &grown, nullptr));
    EXPECT_EQ(ncclInvalidArgument, ncclCommGrow(nullptr, 3, nullptr, 2, &grown, nullptr));
    EXPECT_EQ(ncclInvalidArgument, ncclCommGrow(nullptr, 0, &id, 0, &grown, nullptr));
    EXPECT_EQ(ncclInvalidArgument, ncclCommGetUniqueId(nullptr, &id));
    EXPECT_EQ(ncclInvalidArgument, ncclCommGetUniqueId(me.comm, nullptr));
}

TEST(GrowCalls, WaitForANewRankUntilTheNewCommunicatorIsAborted)
{
    std::atomic<int> inside{0}, ended{0};
    std::vector<ncclComm_t> grown(2, nullptr);
    std::thread aborter([&] {
        EXPECT_TRUE(becomes([&] {
            return __atomic_load_n(&grown[0], __ATOMIC_ACQUIRE) &&
                   __atomic_load_n(&grown[1], __ATOMIC_ACQUIRE);
        }));
        EXPECT_TRUE(holds([&] { return ended == 0; }));
        EXPECT_EQ(2, inside.load());
        for (ncclComm_t &comm : grown)
            EXPECT_EQ(ncclSuccess, ncclCommAbort(comm));
    });
    with_ranks(2, [&](Rank &me) {
        ncclUniqueId id;
        if (me.rank == 0)
            NCCL_OK(ncclCommGetUniqueId(me.comm, &id));
        inside++;
        EXPECT_EQ(ncclInternalError,
                  ncclCommGrow(me.comm, 3, nullptr, -1, &grown[(size_t)me.rank], nullptr));
        ended++;
    });
    aborter.join();
}

RANKS_TEST(Revoke, EndsWhatIsInFlightAndRefusesMore, 2)
{
    Buffer b(1, 1);
    reduce_and_wait(me, b);
    if (me.rank == 0)
        NCCL_OK(reduce(me, b)); /* the peer never comes */
    NCCL_OK(ncclCommRevoke(me.comm, NCCL_REVOKE_DEFAULT));
    sync(me.stream);
    EXPECT_EQ(ncclInvalidUsage, reduce(me, b));
    EXPECT_EQ(ncclInvalidUsage, ncclCommFinalize(me.comm));
    Comm child;
    NCCL_OK(ncclCommSplit(me.comm, 0, me.rank, &child, nullptr));
    me.meet();
}

RANKS_TEST(Finalize, DrainsAndCanBeCalledOnce, 2)
{
    Buffer b(100000, 1);
    NCCL_OK(reduce(me, b, 100000));
    NCCL_OK(ncclCommFinalize(me.comm));
    EXPECT_EQ(2, b.floats(1)[0]);
    EXPECT_EQ(ncclInvalidArgument, ncclCommFinalize(me.comm));
}

/* ---- where the real library hangs ---- */

RANKS_TEST(Hangs, AWarmCollectiveWithoutItsPeerStaysOnTheStreamUntilAnAbort, 2)
{
    Buffer b(1, 5);
    reduce_and_wait(me, b, 1, ncclMax);
    if (me.rank == 0) {
        /* Returns at once; then nothing is ever said. */
        NCCL_OK(reduce(me, b));
        EXPECT_TRUE(stays_pending(me));
        std::thread aborter([&] { EXPECT_EQ(ncclSuccess, ncclCommAbort(me.comm)); });
        sync(me.stream); /* success, and the data is as it was */
        aborter.join();
        EXPECT_EQ(5, b.floats(1)[0]);
        ncclResult_t error;
        EXPECT_EQ(ncclInvalidArgument, ncclCommGetAsyncError(me.comm, &error));
        me.comm = nullptr;
    }
    me.meet();
}

TEST(Hangs, ADestroyWithAKernelInFlightWaitsForIt)
{
    std::promise<void> destroyed;
    std::future<void> ended = destroyed.get_future();
    with_ranks(2, [&](Rank &me) {
        Buffer b(1, 1);
        reduce_and_wait(me, b);
        if (me.rank == 0) {
            NCCL_OK(reduce(me, b));
            me.meet();
            NCCL_OK(ncclCommDestroy(me.comm));
            me.comm = nullptr;
            destroyed.set_value();
        } else {
            me.meet();
            EXPECT_EQ(std::future_status::timeout, ended.wait_for(milliseconds(150)));
            NCCL_OK(reduce(me, b));
            EXPECT_EQ(std::future_status::ready, ended.wait_for(kLong));
        }
    });
}

/* A thread of this process that neither runs nor waits for a processor. */
bool sleeps(pid_t thread)
{
    std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
    std::string text;
    std::getline(file, text);
    size_t at = text.rfind(") ");
    return at != std::string::npos && text.compare(at + 2, 1, "S") == 0;
}

/* A host call that blocks, and returns ncclInternalError when another thread releases it. */
void expect_blocked_until(const std::function<void()> &release,
                          const std::function<ncclResult_t()> &call)
{
    std::atomic<pid_t> thread{0};
    auto blocked = std::async(std::launch::async, [&] {
        thread = gettid();
        return call();
    });
    /* A thread that still waits for a processor is not inside yet, and would then call with what
     * the release has taken away. */
    EXPECT_TRUE(
        becomes([&] { return thread && holds([&] { return sleeps(thread); }, milliseconds(20)); }));
    EXPECT_EQ(std::future_status::timeout, blocked.wait_for(milliseconds(150)));
    release();
    ASSERT_EQ(std::future_status::ready, blocked.wait_for(kLong));
    EXPECT_EQ(ncclInternalError, blocked.get());
}

void expect_blocked_until_abort(ncclComm_t comm, const std::function<ncclResult_t()> &call)
{
    expect_blocked_until([&] { EXPECT_EQ(ncclSuccess, ncclCommAbort(comm)); }, call);
}

/* On the rank's device, and with its communicator. */
void expect_blocked_until_abort(Rank &me, const std::function<ncclResult_t()> &call)
{
    expect_blocked_until_abort(me.comm, [&] {
        use_device(me.rank);
        return call();
    });
    me.comm = nullptr;
}

RANKS_TEST(Hangs, TheFirstCollectiveBlocksTheHostUntilAllCome, 3)
{
    Buffer b(4);
    if (me.rank != 2)
        expect_blocked_until_abort(me, [&] { return reduce(me, b); });
    me.meet();
}

RANKS_TEST(Hangs, TheFirstSendToAPeerBlocksTheHostUntilItReceives, 2)
{
    Buffer b(4);
    reduce_and_wait(me, b);
    if (me.rank == 0)
        expect_blocked_until_abort(me, [&] { return send_to(me, b.get(), 1, 1); });
    me.meet();
}

TEST(Hangs, ABlockingInitWithoutAPeerBlocksWithItsHandleWritten)
{
    ncclUniqueId id = new_id();
    std::atomic<ncclComm_t> comm{nullptr};
    expect_blocked_until(
        [&] {
            int count;
            EXPECT_TRUE(becomes([&] { return comm.load() != nullptr; }));
            EXPECT_EQ(ncclInvalidArgument, ncclCommCount(comm, &count));
            EXPECT_EQ(ncclSuccess, ncclCommAbort(comm));
        },
        [&] {
            use_device(0);
            return ncclCommInitRank(reinterpret_cast<ncclComm_t *>(&comm), 2, id, 0);
        });
}

RANKS_TEST(Hangs, ASplitWithoutAPeerBlocks, 2)
{
    if (me.rank == 0) {
        ncclComm_t child = nullptr;
        expect_blocked_until_abort(me,
                                   [&] { return ncclCommSplit(me.comm, 0, 0, &child, nullptr); });
        EXPECT_EQ(nullptr, child);
    }
    me.meet();
}

TEST(Hangs, InAGroupOfTwoCommunicatorsAnAbortOfOneEndsTheGroup)
{
    /* Devices 0 and 1 of a world of 3, driven by one thread; rank 2 never calls. */
    ncclUniqueId id = new_id();
    ncclComm_t comms[3];
    CUstream streams[2];
    NCCL_OK(ncclGroupStart());
    for (int i = 0; i < 3; i++) {
        use_device(i);
        NCCL_OK(ncclCommInitRank(&comms[i], 3, id, i));
    }
    NCCL_OK(ncclGroupEnd());
    use_device(0);
    Buffer b(4);
    for (int i = 0; i < 2; i++) {
        use_device(i);
        streams[i] = new_stream();
    }
    expect_blocked_until_abort(comms[1], [&] {
        ncclGroupStart();
        for (int i = 0; i < 2; i++)
            reduce(comms[i], streams[i], b);
        return ncclGroupEnd();
    });
    EXPECT_EQ(ncclSuccess, ncclCommAbort(comms[0]));
    EXPECT_EQ(ncclSuccess, ncclCommAbort(comms[2]));
    use_device(0);
    for (auto stream : streams)
        CU_OK(cuStreamDestroy(stream));
}

TEST(Hangs, AGroupOfAbortsEndsTwoCommunicatorsOnOneStream)
{
    ncclUniqueId second = new_id();
    with_ranks(2, [&](Rank &me) {
        ncclComm_t other;
        Buffer b(1, 1);
        NCCL_OK(ncclCommInitRank(&other, 2, second, me.rank));
        for (ncclComm_t comm : {me.comm, other})
            NCCL_OK(reduce(comm, me.stream, b, 1, ncclMax));
        sync(me.stream);
        if (me.rank == 0) {
            for (ncclComm_t comm : {me.comm, other})
                NCCL_OK(reduce(comm, me.stream, b, 1, ncclMax));
            /* The second waits on the stream behind the first: alone it could not be ended. */
            NCCL_OK(ncclGroupStart());
            NCCL_OK(ncclCommAbort(other));
            NCCL_OK(ncclCommAbort(me.comm));
            NCCL_OK(ncclGroupEnd());
            sync(me.stream);
        }
        me.meet();
        if (me.rank == 1)
            NCCL_OK(ncclCommDestroy(other));
        else
            me.comm = nullptr;
    });
}

RANKS_TEST(Hangs, ARevokeEndsAHostCallThatConnects, 2)
{
    if (me.rank == 0) {
        Buffer b(4);
        expect_blocked_until([&] { NCCL_OK(ncclCommRevoke(me.comm, NCCL_REVOKE_DEFAULT)); },
                             [&] {
                                 use_device(me.rank);
                                 return reduce(me, b);
                             });
    }
    me.meet();
}

/* What a mismatch gives: no error, only waiting or other data. */
struct Mismatch {
    const char *name;
    std::function<ncclResult_t(Rank &, Buffer &)> call; /* of rank 1; the others reduce floats */
    bool hangs;
};

ncclResult_t reduce_as(Rank &me, Buffer &b, ncclDataType_t type)
{
    return ncclAllReduce(b.get(), b.get(), 100, type, ncclSum, me.comm, rt(me.stream));
}

TEST(Mismatches, AreNeverNoticed)
{
    const Mismatch all[] = {
        {"another count", [](Rank &me, Buffer &b) { return reduce(me, b, 900); }, true},
        {"a larger type", [](Rank &me, Buffer &b) { return reduce_as(me, b, ncclFloat64); }, true},
        {"a type of the same size", [](Rank &me, Buffer &b) { return reduce_as(me, b, ncclInt32); },
         false},
        {"another operator", [](Rank &me, Buffer &b) { return reduce(me, b, 100, ncclMax); },
         false},
        {"another collective",
         [](Rank &me, Buffer &b) {
             return ncclReduce(b.get(), b.get(), 100, ncclFloat32, ncclSum, 1, me.comm,
                               rt(me.stream));
         },
         true},
        {"no call", [](Rank &, Buffer &) { return ncclSuccess; }, true},
    };
    for (const Mismatch &mismatch : all) {
        SCOPED_TRACE(mismatch.name);
        std::atomic<int> busy{0};
        with_ranks(2, [&](Rank &me) {
            Buffer b(1000, 1);
            reduce_and_wait(me, b, 100);
            if (me.rank == 1)
                NCCL_OK(mismatch.call(me, b));
            else
                NCCL_OK(reduce(me, b, 100));
            if (mismatch.hangs) {
                if (holds([&] { return cuStreamQuery(me.stream) == CUDA_ERROR_NOT_READY; }))
                    busy++;
            } else {
                sync(me.stream);
            }
            ncclResult_t error = ncclInternalError;
            NCCL_OK(ncclCommGetAsyncError(me.comm, &error));
            EXPECT_EQ(ncclSuccess, error);
            me.meet();
            if (mismatch.hangs) {
                EXPECT_GE(busy.load(), 1);
            }
            abort_of(me);
            sync(me.stream);
        });
    }
}

RANKS_TEST(Mismatches, ABroadcastFromTwoRootsEndsEverywhereAndSpoilsTheNext, 2)
{
    Buffer b(1, 10 + me.rank);
    reduce_and_wait(me, b, 1, ncclMax);
    /* Each rank takes itself for the root, so none receives and none waits. */
    NCCL_OK(ncclBroadcast(b.get(), b.get(), 1, ncclFloat32, me.rank, me.comm, rt(me.stream)));
    sync(me.stream);
    me.meet();
    abort_of(me);
}

/* ---- refusals ---- */

TEST(Refusals, BadArgumentsAreNamed)
{
    /* One rank: the process has one last error, which another thread's would overwrite. */
    with_ranks(1, [](Rank &me) {
        Buffer b(4);
        auto stream = rt(me.stream);
        EXPECT_EQ(ncclInvalidArgument,
                  ncclAllReduce(b.get(), b.get(), 1, ncclFloat32, ncclSum, nullptr, stream));
        EXPECT_STREQ("AllReduce : comm argument is NULL", ncclGetLastError(nullptr));
        EXPECT_EQ(ncclInvalidArgument,
                  ncclAllReduce(b.get(), b.get(), 1, ncclNumTypes, ncclSum, me.comm, stream));
        EXPECT_STREQ("AllReduce : invalid type 12", ncclGetLastError(nullptr));
        EXPECT_EQ(ncclInvalidArgument,
                  ncclAllReduce(b.get(), b.get(), 1, ncclFloat32, static_cast<ncclRedOp_t>(-1),
                                me.comm, stream));
        EXPECT_EQ(ncclInvalidArgument,
                  ncclAllReduce(b.get(), b.get(), 1, ncclFloat32, static_cast<ncclRedOp_t>(77),
                                me.comm, stream));
        EXPECT_EQ(ncclInvalidArgument,
                  ncclBroadcast(b.get(), b.get(), 1, ncclFloat32, 1, me.comm, stream));
        EXPECT_STREQ("Broadcast : invalid root 1 (root should be in the 0..1 range)",
                     ncclGetLastError(nullptr));
        EXPECT_EQ(ncclInvalidArgument, ncclSend(b.get(), 1, ncclFloat32, -1, me.comm, stream));
        EXPECT_EQ(ncclInvalidArgument, ncclCommCount(me.comm, nullptr));
        EXPECT_EQ(ncclInvalidArgument, ncclCommSplit(me.comm, 0, 0, nullptr, nullptr));
        EXPECT_EQ(ncclSuccess, ncclCommDestroy(nullptr));
        EXPECT_EQ(ncclSuccess, ncclCommAbort(nullptr));
        EXPECT_EQ(ncclInvalidArgument, ncclCommFinalize(nullptr));
    });
}

TEST(Refusals, BadInitsAreNamed)
{
    ncclUniqueId id = new_id();
    ncclComm_t comm = nullptr;
    use_device(0);
    EXPECT_EQ(ncclInvalidArgument, ncclGetUniqueId(nullptr));
    EXPECT_EQ(ncclInvalidArgument, ncclCommInitRank(nullptr, 1, id, 0));
    EXPECT_EQ(ncclInvalidArgument, ncclCommInitRank(&comm, 0, id, 0));
    EXPECT_EQ(ncclInvalidArgument, ncclCommInitRank(&comm, 2, id, 2));
    EXPECT_STREQ("Invalid rank requested : 2/2", ncclGetLastError(nullptr));
    ncclConfig_t config;
    memset(&config, 0, sizeof(config));
    EXPECT_EQ(ncclInvalidArgument, ncclCommInitRankConfig(&comm, 1, id, 0, &config));
    EXPECT_STREQ("ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER",
                 ncclGetLastError(nullptr));
    ncclConfig_t blocking = NCCL_CONFIG_INITIALIZER;
    blocking.blocking = 3;
    EXPECT_EQ(ncclInvalidArgument, ncclCommInitRankConfig(&comm, 1, id, 0, &blocking));
    EXPECT_STREQ("Invalid config blocking attribute value 3", ncclGetLastError(nullptr));
    int twice[] = {1, 1};
    ncclComm_t two[2];
    EXPECT_EQ(ncclInvalidUsage, ncclCommInitAll(two, 2, twice));
    /* The config of an older release ends after its first field. */
    ncclConfig_t old = NCCL_CONFIG_INITIALIZER;
    old.size = offsetof(ncclConfig_t, cgaClusterSize);
    old.minCTAs = -7; /* beyond what that release's structure held */
    NCCL_OK(ncclCommInitRankConfig(&comm, 1, id, 0, &old));
    NCCL_OK(ncclCommDestroy(comm));
}

TEST(Refusals, OneDeviceTwiceIsADuplicate)
{
    ncclUniqueId id = new_id();
    in_threads(2, [&](int r) {
        ncclComm_t comm = nullptr;
        use_device(3);
        EXPECT_EQ(ncclInvalidUsage, ncclCommInitRank(&comm, 2, id, r));
        EXPECT_NE(nullptr, strstr(ncclGetLastError(nullptr), "Duplicate GPU detected"));
        EXPECT_EQ(ncclSuccess, ncclCommAbort(comm));
    });
}

RANKS_TEST(Refusals, ADestroyedHandleIsInvalid, 1)
{
    Buffer b(4);
    NCCL_OK(ncclCommDestroy(me.comm));
    EXPECT_EQ(ncclInvalidArgument, ncclCommDestroy(me.comm));
    EXPECT_EQ(ncclInvalidArgument, ncclCommAbort(me.comm));
    EXPECT_EQ(ncclInvalidArgument, reduce(me, b));
    me.comm = nullptr;
}

RANKS_TEST(Refusals, AnotherDevicesStreamIsACudaError, 1)
{
    Buffer b(4);
    use_device(1);
    Stream other(new_stream());
    use_device(0);
    EXPECT_EQ(ncclUnhandledCudaError, reduce(me.comm, other, b));
    /* The caller's device plays no part, only the stream's and the communicator's. */
    use_device(1);
    NCCL_OK(reduce(me, b));
    CUdevice device = -1;
    CU_OK(cuCtxGetDevice(&device));
    EXPECT_EQ(1, device);
    use_device(0);
    sync(me.stream);
}

RANKS_TEST(Refusals, AnOperatorBelongsToItsCommunicatorAndType, 1)
{
    Comm other;
    ncclRedOp_t op;
    float scalar = 2;
    Buffer b(1, 3);
    NCCL_OK(ncclCommInitRank(&other, 1, new_id(), 0));
    NCCL_OK(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat32, ncclScalarHostImmediate, me.comm));
    EXPECT_EQ(ncclInvalidArgument, reduce(other, me.stream, b, 1, op));
    EXPECT_EQ(ncclInvalidArgument,
              ncclAllReduce(b.get(), b.get(), 1, ncclInt32, op, me.comm, rt(me.stream)));
    reduce_and_wait(me, b, 1, op);
    EXPECT_EQ(6, b.floats(1)[0]);
    EXPECT_EQ(ncclInvalidArgument, ncclRedOpDestroy(op, other));
    EXPECT_EQ(ncclInvalidArgument, ncclRedOpDestroy(ncclSum, me.comm));
    NCCL_OK(ncclRedOpDestroy(op, me.comm));
    EXPECT_EQ(ncclInvalidArgument, ncclRedOpDestroy(op, me.comm));
}

RANKS_TEST(Refusals, DeviceCommunicatorsAreRefusedAndTeamsComputed, 4)
{
    ncclTeam_t world = ncclTeamWorld(me.comm), rail = ncclTeamRail(me.comm);
    EXPECT_EQ(4, world.nRanks);
    EXPECT_EQ(me.rank, world.rank);
    EXPECT_EQ(1, rail.nRanks);
    EXPECT_EQ(2, ncclTeamRankToWorld(me.comm, world, 2));
    EXPECT_EQ(me.rank, ncclTeamRankToLsa(me.comm, rail, 0));
    ncclDevCommRequirements_t need;
    memset(&need, 0, sizeof(need));
    ncclDevComm_t *none = nullptr;
    EXPECT_EQ(ncclInvalidUsage, ncclDevCommCreate(me.comm, &need, none));
}

/* ---- nonblocking communicators ---- */

ncclResult_t settle(ncclComm_t comm)
{
    ncclResult_t state = ncclInProgress;
    auto end = steady_clock::now() + kLong;
    while (ncclCommGetAsyncError(comm, &state) == ncclSuccess && state == ncclInProgress &&
           steady_clock::now() < end)
        std::this_thread::sleep_for(milliseconds(1));
    return state;
}

/* Being made. */
ncclComm_t nonblocking(int n, const ncclUniqueId &id, int rank)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm = nullptr;
    config.blocking = 0;
    EXPECT_EQ(ncclInProgress, ncclCommInitRankConfig(&comm, n, id, rank, &config));
    EXPECT_NE(nullptr, comm);
    return comm;
}

bool stays_in_progress(ncclComm_t comm)
{
    return holds([comm] {
        ncclResult_t state;
        return ncclCommGetAsyncError(comm, &state) == ncclSuccess && state == ncclInProgress;
    });
}

TEST(Nonblocking, CallsAreInProgressUntilTheyAreDone)
{
    ncclUniqueId id = new_id();
    in_threads(2, [&](int r) {
        ncclComm_t child = nullptr;
        use_device(r);
        Stream stream(new_stream());
        ncclComm_t comm = nonblocking(2, id, r);
        ASSERT_EQ(ncclSuccess, settle(comm));
        Buffer b(1, 1);
        ASSERT_EQ(ncclInProgress, reduce(comm, stream, b));
        ASSERT_EQ(ncclSuccess, settle(comm));
        sync(stream);
        EXPECT_EQ(2, b.floats(1)[0]);
        ASSERT_EQ(ncclSuccess, ncclCommSplit(comm, 0, r, &child, nullptr));
        ASSERT_EQ(ncclSuccess, settle(comm));
        ASSERT_NE(nullptr, child);
        ASSERT_EQ(ncclSuccess, settle(child));
        ASSERT_EQ(ncclInProgress, ncclCommFinalize(comm));
        ASSERT_EQ(ncclSuccess, settle(comm));
        NCCL_OK(ncclCommDestroy(comm));
        NCCL_OK(ncclCommDestroy(child));
    });
}

TEST(Nonblocking, InProgressOnlyTheErrorAndAnAbortAreAllowed)
{
    ncclComm_t child = nullptr;
    int count;
    use_device(0);
    ncclComm_t comm = nonblocking(2, new_id(), 0);
    EXPECT_TRUE(stays_in_progress(comm));
    EXPECT_EQ(ncclInvalidArgument, ncclCommCount(comm, &count));
    EXPECT_EQ(ncclInvalidArgument, ncclCommSplit(comm, 0, 0, &child, nullptr));
    EXPECT_EQ(ncclInvalidArgument, ncclCommFinalize(comm));
    EXPECT_EQ(ncclInvalidArgument, ncclCommDestroy(comm));
    EXPECT_EQ(ncclInvalidArgument,
              ncclAllReduce(nullptr, nullptr, 1, ncclFloat32, ncclSum, comm, nullptr));
    EXPECT_EQ(ncclSuccess, ncclCommAbort(comm));
}

TEST(Nonblocking, AColdCollectiveDoesNotBlockAndAnAbortEndsIt)
{
    Meeting meeting(2);
    ncclUniqueId id = new_id();
    in_threads(2, [&](int r) {
        use_device(r);
        ncclComm_t comm = nonblocking(2, id, r);
        ASSERT_EQ(ncclSuccess, settle(comm));
        Buffer b(4);
        if (r == 0) {
            EXPECT_EQ(ncclInProgress, reduce(comm, nullptr, b));
            EXPECT_TRUE(stays_in_progress(comm));
        }
        EXPECT_EQ(ncclSuccess, ncclCommAbort(comm));
        meeting.wait();
    });
}

TEST(Nonblocking, BlockingAndNonblockingDoNotMixInAGroup)
{
    ncclComm_t blocking = nullptr;
    use_device(0);
    NCCL_OK(ncclCommInitRank(&blocking, 1, new_id(), 0));
    ncclComm_t other = nonblocking(1, new_id(), 0);
    ASSERT_EQ(ncclSuccess, settle(other));
    Buffer buffer(4);
    NCCL_OK(ncclGroupStart());
    NCCL_OK(reduce(blocking, nullptr, buffer));
    EXPECT_EQ(ncclInvalidArgument, reduce(other, nullptr, buffer));
    EXPECT_EQ(ncclInvalidArgument, ncclGroupEnd());
    NCCL_OK(ncclCommDestroy(blocking));
    NCCL_OK(ncclCommDestroy(other));
}

TEST(Init, AGroupOfScalableInitsWithSeveralIdsWorks)
{
    ncclUniqueId ids[] = {new_id(), new_id()};
    ncclComm_t comms[3];
    NCCL_OK(ncclGroupStart());
    for (int i = 0; i < 3; i++) {
        use_device(i);
        NCCL_OK(ncclCommInitRankScalable(&comms[i], 3, i, 2, ids, nullptr));
    }
    NCCL_OK(ncclGroupEnd());
    for (auto comm : comms)
        NCCL_OK(ncclCommDestroy(comm));
}

TEST(Init, TheLibrarysOwnCallsReachAnInterposer)
{
    ncclComm_t comm;
    own_call = true;
    use_device(0);
    version_from_other_thread = false;
    int ids = seen_unique_id, versions = seen_version;
    NCCL_OK(ncclCommInitAll(&comm, 1, nullptr));
    EXPECT_EQ(ids + 1, seen_unique_id);
    EXPECT_LT(versions, seen_version);
    EXPECT_TRUE(version_from_other_thread);
    int broadcasts = seen_broadcast, errors = seen_async_error;
    Buffer b(4);
    NCCL_OK(ncclBcast(b.get(), 1, ncclFloat32, 0, comm, nullptr));
    EXPECT_EQ(broadcasts + 1, seen_broadcast);
    EXPECT_LT(errors, seen_async_error);
    sync(nullptr);
    NCCL_OK(ncclCommDestroy(comm));
    own_call = false;
}

/* ---- memory ---- */

RANKS_TEST(Memory, AllocationsComeFromTheDeviceAndRegistrationsAreCounted, 2)
{
    void *memory = nullptr, *first = nullptr, *second = nullptr;
    ncclWindow_t window = nullptr;
    NCCL_OK(ncclMemAlloc(&memory, 10000));
    ASSERT_NE(nullptr, memory);
    NCCL_OK(ncclCommRegister(me.comm, memory, 10000, &first));
    NCCL_OK(ncclCommRegister(me.comm, memory, 4096, &second));
    EXPECT_EQ(first, second);
    NCCL_OK(ncclCommWindowRegister(me.comm, memory, 10000, &window, NCCL_WIN_COLL_SYMMETRIC));
    EXPECT_NE(nullptr, window);
    NCCL_OK(ncclAllReduce(memory, memory, 100, ncclInt32, ncclSum, me.comm, rt(me.stream)));
    sync(me.stream);
    NCCL_OK(ncclCommWindowDeregister(me.comm, window));
    NCCL_OK(ncclCommDeregister(me.comm, first));
    NCCL_OK(ncclCommDeregister(me.comm, second));
    NCCL_OK(ncclCommDeregister(me.comm, nullptr));
    EXPECT_EQ(ncclInvalidUsage, ncclCommDeregister(me.comm, &window));
    NCCL_OK(ncclMemFree(memory));
    NCCL_OK(ncclMemFree(nullptr));
}

/* No rank leaves such a call before all have come to it. */
RANKS_TEST(HostCalls, AllRanksMeetInThem, 3)
{
    static std::atomic<int> came[20][3];
    void *memory = nullptr;
    ncclWindow_t window = nullptr;
    NCCL_OK(ncclMemAlloc(&memory, 10000));
    for (auto &round : came) {
        round[0]++;
        NCCL_OK(ncclCommWindowRegister(me.comm, memory, 10000, &window, 0));
        EXPECT_EQ(3, round[0]);
        NCCL_OK(ncclCommWindowDeregister(me.comm, window));
        round[1]++;
        NCCL_OK(ncclCommSuspend(me.comm, 1));
        EXPECT_EQ(3, round[1]);
        NCCL_OK(ncclGroupStart());
        round[2]++;
        NCCL_OK(ncclCommResume(me.comm));
        NCCL_OK(ncclGroupEnd());
        EXPECT_EQ(3, round[2]);
    }
    NCCL_OK(ncclMemFree(memory));
}

RANKS_TEST(Memory, AWindowNeedsVmmMemory, 1)
{
    Buffer plain(8192);
    ncclWindow_t window = reinterpret_cast<ncclWindow_t>(&plain);
    EXPECT_NE(ncclSuccess, ncclCommWindowRegister(me.comm, plain.get(), 4096, &window, 0));
    EXPECT_EQ(nullptr, window);
}

/* ---- several processes: this program again, as a rank ---- */

/* A rank in its own process. It is told the id on a socket, its descriptor 3, on which it tells of
 * its progress, one byte a step. */
class Child
{
  public:
    Child(const std::string &mode, const ncclUniqueId &id, int n, int rank,
          const std::vector<std::string> &environment = {})
    {
        int ends[2];
        EXPECT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
        EXPECT_EQ(ssize_t(sizeof(id)), write(ends[0], &id, sizeof(id)));
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, ends[1], 3);
        std::vector<std::string> words = {"/proc/self/exe", "--rank", mode, std::to_string(n),
                                          std::to_string(rank)};
        std::vector<char *> argv, envp;
        for (auto &word : words)
            argv.push_back(word.data());
        argv.push_back(nullptr);
        for (char **e = environ; *e; e++)
            envp.push_back(*e);
        for (auto &e : environment)
            envp.push_back(const_cast<char *>(e.c_str()));
        envp.push_back(nullptr);
        EXPECT_EQ(0, posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), envp.data()));
        posix_spawn_file_actions_destroy(&actions);
        close(ends[1]);
        steps_ = ends[0];
    }
    ~Child()
    {
        if (pid_ > 0) {
            kill(pid_, SIGKILL);
            waitpid(pid_, nullptr, 0);
        }
        close(steps_);
    }
    Child(const Child &) = delete;
    Child &operator=(const Child &) = delete;

    /* The next step's letter, 0 at the end. */
    char step()
    {
        struct pollfd fd = {steps_, POLLIN, 0};
        char letter = 0;
        if (poll(&fd, 1, 60000) != 1 || read(steps_, &letter, 1) != 1)
            return 0;
        return letter;
    }
    bool silent(milliseconds time)
    {
        struct pollfd fd = {steps_, POLLIN, 0};
        return poll(&fd, 1, static_cast<int>(time.count())) == 0;
    }
    void signal(int number)
    {
        kill(pid_, number);
    }
    /* Exit status, or 128 and the signal. */
    int wait()
    {
        int status = -1;
        waitpid(pid_, &status, 0);
        pid_ = -1;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }

  private:
    pid_t pid_ = -1;
    int steps_ = -1;
};

std::vector<std::unique_ptr<Child>> spawn(const std::string &mode, int n,
                                          const std::vector<std::string> &environment = {})
{
    ncclUniqueId id = new_id();
    std::vector<std::unique_ptr<Child>> children;
    for (int r = 0; r < n; r++)
        children.push_back(std::make_unique<Child>(mode, id, n, r, environment));
    return children;
}

/* Processes that end well by themselves. */
void expect_well(const std::string &mode, int n, const std::vector<std::string> &environment = {})
{
    for (auto &rank : spawn(mode, n, environment))
        EXPECT_EQ(0, rank->wait());
}

TEST(Processes, CollectivesAgreeWithTheReference)
{
    expect_well("collectives", 2);
    expect_well("collectives", 4);
}

TEST(Processes, SurvivorsOfAKilledRankNeverNotice)
{
    auto ranks = spawn("loop", 3);
    for (auto &rank : ranks)
        EXPECT_EQ('w', rank->step()); /* warm */
    ranks[1]->signal(SIGKILL);
    EXPECT_EQ(128 + SIGKILL, ranks[1]->wait());
    for (auto &rank : {&ranks[0], &ranks[2]}) {
        EXPECT_EQ('h', (*rank)->step()); /* a call that stays pending without any error */
        EXPECT_EQ('a', (*rank)->step()); /* aborted by itself, stream free */
        EXPECT_EQ(0, (*rank)->wait());
    }
}

TEST(Processes, AStoppedRankDelaysTheOthersAndAllGoOn)
{
    auto ranks = spawn("count", 2);
    EXPECT_EQ('w', ranks[0]->step());
    ranks[1]->signal(SIGSTOP);
    /* Steps that were already made are read; then there is silence. */
    while (!ranks[0]->silent(milliseconds(300)))
        ASSERT_EQ('c', ranks[0]->step());
    ranks[1]->signal(SIGCONT);
    EXPECT_EQ('c', ranks[0]->step());
    ranks[0]->signal(SIGKILL);
}

TEST(Processes, AnInjectedAsyncErrorIsToldAndEndsFurtherCalls)
{
    expect_well("async", 2, {"FAKE_NCCL_ASYNC_ERROR=rank=1,after=3,code=6"});
}

TEST(Processes, DifferentVersionsAreRefused)
{
    ncclUniqueId id = new_id();
    Child a("version", id, 2, 0), b("version", id, 2, 1, {"FAKE_NCCL_VERSION=22707"});
    EXPECT_EQ(0, a.wait());
    EXPECT_EQ(0, b.wait());
}

TEST(Processes, TheBlockingSwitchOverridesTheConfig)
{
    expect_well("switch", 2, {"NCCL_COMM_BLOCKING=0", "FAKE_NCCL_INPROGRESS_MS=1000"});
}

TEST(Processes, MisuseOfRegistrationsIsToldAndEndsTheProgram)
{
    for (const char *mode : {"misuse-twice", "misuse-abort", "misuse-other"}) {
        SCOPED_TRACE(mode);
        ncclUniqueId id = new_id();
        Child child(mode, id, 1, 0);
        EXPECT_EQ('m', child.step());
        EXPECT_EQ(128 + SIGABRT, child.wait());
    }
}

TEST(Processes, ATinyBufferStillMovesEverything)
{
    expect_well("collectives", 2, {"FAKE_NCCL_BUFFER=512"});
}

/* ---- the ranks' side ---- */

void say(char letter)
{
    ASSERT_EQ(1, write(3, &letter, 1));
}

void be_rank(const std::string &mode, const ncclUniqueId &id, Rank &me)
{
    use_device(me.rank);
    me.stream = new_stream();
    if (mode == "version") {
        ASSERT_EQ(ncclInvalidUsage, ncclCommInitRank(&me.comm, me.n, id, me.rank));
        ASSERT_TRUE(strstr(ncclGetLastError(nullptr), "Mismatched NCCL version detected"));
        int version = 0;
        NCCL_OK(ncclGetVersion(&version));
        ASSERT_EQ(me.rank ? 22707 : NCCL_VERSION_CODE, version);
        return;
    }
    ncclResult_t result = ncclCommInitRank(&me.comm, me.n, id, me.rank);
    if (mode == "switch") {
        ASSERT_EQ(ncclInProgress, result);
        NCCL_OK(settle(me.comm));
        auto began = steady_clock::now();
        ASSERT_EQ(ncclInProgress, ncclCommFinalize(me.comm));
        ncclResult_t state = ncclSuccess;
        NCCL_OK(ncclCommGetAsyncError(me.comm, &state));
        /* For the second that the environment says. */
        ASSERT_TRUE(state == ncclInProgress || steady_clock::now() - began >= seconds(1));
        NCCL_OK(settle(me.comm));
        NCCL_OK(ncclCommDestroy(me.comm));
        return;
    }
    NCCL_OK(result);
    Buffer b(1, 1);
    if (mode == "collectives") {
        for (int coll = kAllReduce; coll <= kScatter; coll++)
            for (int type = 0; type < ncclNumTypes; type++) {
                run_case(me, {static_cast<Coll>(coll), type, type % kOps, me.n - 1, 1000,
                              coll == kBcast, false});
                ASSERT_FALSE(testing::Test::HasFailure());
            }
        ncclComm_t child;
        NCCL_OK(ncclCommSplit(me.comm, me.rank / 2, 0, &child, nullptr));
        expect_place(child, 2, me.rank % 2);
        NCCL_OK(ncclCommDestroy(child));
    } else if (mode == "loop") {
        reduce_and_wait(me, b, 1, ncclMax);
        say('w');
        if (me.rank == 1)
            pause();
        NCCL_OK(reduce(me, b, 1, ncclMax));
        ASSERT_TRUE(stays_pending(me, milliseconds(500)));
        say('h');
        NCCL_OK(ncclCommAbort(me.comm));
        sync(me.stream);
        say('a');
        return;
    } else if (mode == "count") {
        while (!testing::Test::HasFailure()) {
            reduce_and_wait(me, b, 1, ncclMax);
            static bool warm;
            say(warm ? 'c' : 'w');
            warm = true;
        }
    } else if (mode == "async") {
        for (int i = 0; i < 3; i++) {
            NCCL_OK(reduce(me, b, 1, ncclMax));
            ncclResult_t error = ncclInternalError;
            NCCL_OK(ncclCommGetAsyncError(me.comm, &error));
            ASSERT_EQ(me.rank == 1 && i == 2 ? ncclRemoteError : ncclSuccess, error);
        }
        sync(me.stream);
        if (me.rank == 1) {
            ASSERT_EQ(ncclRemoteError, reduce(me, b, 1, ncclMax));
            ASSERT_EQ(ncclRemoteError, ncclCommDestroy(me.comm));
            NCCL_OK(ncclCommAbort(me.comm));
            return;
        }
    } else if (mode.rfind("misuse-", 0) == 0) {
        void *handle = nullptr;
        NCCL_OK(ncclCommRegister(me.comm, b.get(), 4, &handle));
        ASSERT_TRUE(handle);
        say('m');
        if (mode == "misuse-twice") {
            NCCL_OK(ncclCommDeregister(me.comm, handle));
            ncclCommDeregister(me.comm, handle);
        } else if (mode == "misuse-abort") {
            NCCL_OK(ncclCommAbort(me.comm));
            ncclCommDeregister(me.comm, handle);
        } else {
            ncclComm_t other;
            NCCL_OK(ncclCommInitRank(&other, 1, new_id(), 0));
            ncclCommDeregister(other, handle);
        }
        FAIL() << mode << " is not noticed";
    }
    NCCL_OK(ncclCommDestroy(me.comm));
}

} // namespace

int main(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[1], "--rank") == 0) {
        Rank me;
        ncclUniqueId id;
        alarm(120);
        me.n = atoi(argv[3]);
        me.rank = atoi(argv[4]);
        if (read(3, &id, sizeof(id)) == ssize_t(sizeof(id)))
            be_rank(argv[2], id, me);
        else
            ADD_FAILURE() << "no id";
        return testing::Test::HasFailure();
    }
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
