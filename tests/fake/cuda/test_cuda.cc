/*
 * What the stand-ins for libcuda and libcudart promise. Every expectation is the documented
 * behaviour of the real libraries, so that what runs here means something there.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

/* The call of the driver or of the runtime succeeds: 0 in both. */
#define ASSERT_OK(call) ASSERT_EQ(static_cast<int>(call), 0)
#define EXPECT_OK(call) EXPECT_EQ(static_cast<int>(call), 0)

namespace
{

/* What a call tells through its first argument, or through its last one. */
template <typename Value, typename Call, typename... Arguments>
Value First(Call call, Arguments... arguments)
{
    Value value{};
    EXPECT_OK(call(&value, arguments...));
    return value;
}

template <typename Value, typename Call, typename... Arguments>
Value Last(Call call, Arguments... arguments)
{
    Value value{};
    EXPECT_OK(call(arguments..., &value));
    return value;
}

/* Holds a stream up until the test lets it go, or ends, so that nothing is left hanging. */
class Gate
{
  public:
    ~Gate()
    {
        Open();
    }
    static void CUDA_CB Wait(void *data)
    {
        static_cast<Gate *>(data)->Wait();
    }
    void Open()
    {
        std::lock_guard<std::mutex> lock(mutex_);
        open_ = true;
        changed_.notify_all();
    }
    void AwaitEntered()
    {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [this] { return entered_; });
    }

  private:
    void Wait()
    {
        std::unique_lock<std::mutex> lock(mutex_);
        entered_ = true;
        changed_.notify_all();
        changed_.wait(lock, [this] { return open_; });
    }
    std::mutex mutex_;
    std::condition_variable changed_;
    bool open_ = false, entered_ = false;
};

void CUDA_CB Increment(void *data)
{
    ++*static_cast<std::atomic<int> *>(data);
}

struct DriverTest : testing::Test {
    void SetUp() override
    {
        ASSERT_OK(cuInit(0));
        ASSERT_OK(cuCtxCreate(&ctx_, nullptr, 0, 0));
        ASSERT_OK(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    }
    void TearDown() override
    {
        ASSERT_OK(cuCtxSetCurrent(ctx_));
        for (; !ends_.empty(); ends_.pop_back())
            ends_.back()();
        EXPECT_OK(cuStreamDestroy(stream_));
        EXPECT_OK(cuCtxDestroy(ctx_));
        CUcontext left = nullptr;
        while (cuCtxPopCurrent(&left) == CUDA_SUCCESS)
            ;
    }
    /* A thread of the test with the test's context. */
    std::thread WithContext(std::function<void()> body)
    {
        return std::thread([this, body] {
            ASSERT_OK(cuCtxSetCurrent(ctx_));
            body();
        });
    }
    /* What these make lives until the end of the test. */
    template <typename Handle> Handle Kept(Handle handle, CUresult (*end)(Handle))
    {
        ends_.push_back([=] { EXPECT_OK(end(handle)); });
        return handle;
    }
    CUstream Stream(unsigned int flags = CU_STREAM_NON_BLOCKING)
    {
        return Kept(First<CUstream>(cuStreamCreate, flags), cuStreamDestroy);
    }
    CUevent Event(unsigned int flags = CU_EVENT_DISABLE_TIMING)
    {
        return Kept(First<CUevent>(cuEventCreate, flags), cuEventDestroy);
    }
    CUdeviceptr Memory(size_t bytes)
    {
        return Kept(First<CUdeviceptr>(cuMemAlloc, bytes), cuMemFree);
    }
    void *HostMemory(size_t bytes)
    {
        return Kept(First<void *>(cuMemHostAlloc, bytes, 0), cuMemFreeHost);
    }
    CUgraph Graph(CUgraph graph = nullptr)
    {
        return Kept(graph ? graph : First<CUgraph>(cuGraphCreate, 0), cuGraphDestroy);
    }
    CUgraphExec Exec(CUgraph graph)
    {
        return Kept(First<CUgraphExec>(cuGraphInstantiate, graph, 0), cuGraphExecDestroy);
    }
    /* Counts when the stream comes to it. */
    void Count(CUstream stream)
    {
        ASSERT_OK(cuLaunchHostFunc(stream, Increment, &count_));
    }
    void Hold(CUstream stream, Gate &gate)
    {
        ASSERT_OK(cuLaunchHostFunc(stream, Gate::Wait, &gate));
    }
    static size_t FreeBytes()
    {
        size_t total;
        return First<size_t>(cuMemGetInfo, &total);
    }
    /* Another context, current from now on; it is the test's to destroy. */
    static CUcontext Context(int device = 1)
    {
        return First<CUcontext>(cuCtxCreate, nullptr, 0, device);
    }
    /* Launches it, and waits for its end. */
    void Replay(CUgraphExec exec)
    {
        ASSERT_OK(cuGraphLaunch(exec, stream_));
        ASSERT_OK(cuStreamSynchronize(stream_));
    }
    CUcontext ctx_ = nullptr;
    CUstream stream_ = nullptr;
    std::atomic<int> count_{0};

    std::vector<std::function<void()>> ends_;
};

/* ---- contexts ---- */

TEST_F(DriverTest, CallWithoutContextIsRefused)
{
    CUresult results[3];
    CUstream stream = stream_;

    std::thread([&] {
        CUdeviceptr memory;
        results[0] = cuMemAlloc(&memory, 16);
        results[1] = cuStreamQuery(stream);
        results[2] = cuCtxSynchronize();
    }).join();
    for (CUresult result : results)
        EXPECT_EQ(result, CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(DriverTest, CurrentContextBelongsToTheThread)
{
    std::thread([] { EXPECT_EQ(First<CUcontext>(cuCtxGetCurrent), nullptr); }).join();
    EXPECT_EQ(First<CUcontext>(cuCtxGetCurrent), ctx_);
}

TEST_F(DriverTest, PushAndPopRestoreTheContextBelow)
{
    CUcontext other = Context(1);

    EXPECT_EQ(First<CUdevice>(cuCtxGetDevice), 1);
    EXPECT_EQ(First<CUcontext>(cuCtxPopCurrent), other);
    EXPECT_EQ(First<CUcontext>(cuCtxGetCurrent), ctx_);
    EXPECT_OK(cuCtxDestroy(other));
    EXPECT_EQ(cuCtxSetCurrent(other), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT_EQ(cuCtxSetCurrent(reinterpret_cast<CUcontext>(0x1234)), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(DriverTest, PrimaryContextIsCountedAndReset)
{
    CUcontext first = First<CUcontext>(cuDevicePrimaryCtxRetain, 3);
    unsigned int flags;

    EXPECT_EQ(First<CUcontext>(cuDevicePrimaryCtxRetain, 3), first);
    for (int active : {1, 0}) {
        EXPECT_OK(cuDevicePrimaryCtxRelease(3));
        EXPECT_EQ(Last<int>(cuDevicePrimaryCtxGetState, 3, &flags), active);
    }
    EXPECT_EQ(cuDevicePrimaryCtxRelease(3), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(cuCtxDestroy(first), CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

TEST_F(DriverTest, APrimaryContextThatWasResetIsAnotherOneAtTheSameAddress)
{
    CUcontext first = First<CUcontext>(cuDevicePrimaryCtxRetain, 2), popped;

    ASSERT_OK(cuCtxPushCurrent(first));
    auto id = Last<unsigned long long>(cuCtxGetId, first);
    auto event = First<CUevent>(cuEventCreate, CU_EVENT_DISABLE_TIMING);
    EXPECT_OK(cuEventQuery(event));
    ASSERT_OK(cuDevicePrimaryCtxReset(2));
    EXPECT_EQ(First<CUcontext>(cuDevicePrimaryCtxRetain, 2), first);
    EXPECT_NE(Last<unsigned long long>(cuCtxGetId, first), id);
    EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT_EQ(cuEventRecord(event, nullptr), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT_OK(cuCtxPopCurrent(&popped));
    EXPECT_OK(cuDevicePrimaryCtxRelease(2));
}

TEST_F(DriverTest, WrongDevicesAreRefused)
{
    CUdevice device;

    EXPECT_EQ(cuDeviceGet(&device, 1000), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_EQ(cuDeviceGet(&device, -1), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_GT(First<int>(cuDeviceGetAttribute, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0), 0);
}

TEST_F(DriverTest, DevicesDifferInBusAndUuid)
{
    std::set<std::string> buses, uuids;
    int count = First<int>(cuDeviceGetCount);

    for (int i = 0; i < count; i++) {
        char bus[16];
        ASSERT_OK(cuDeviceGetPCIBusId(bus, sizeof(bus), i));
        EXPECT_EQ(First<CUdevice>(cuDeviceGetByPCIBusId, bus), i);
        buses.insert(bus);
        uuids.insert(std::string(First<CUuuid>(cuDeviceGetUuid, i).bytes, sizeof(CUuuid)));
    }
    EXPECT_EQ(buses.size(), static_cast<size_t>(count));
    EXPECT_EQ(uuids.size(), static_cast<size_t>(count));
}

/* ---- memory ---- */

TEST_F(DriverTest, FreedAndUnknownPointersAreRefused)
{
    CUdeviceptr memory = First<CUdeviceptr>(cuMemAlloc, 1000), base;
    size_t size;
    char host[8] = {};

    EXPECT_OK(cuMemGetAddressRange(&base, &size, memory + 999));
    EXPECT_EQ(base, memory);
    EXPECT_EQ(size, 1000u);
    EXPECT_EQ(cuMemcpyHtoD(memory + 996, host, 8), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemFree(memory + 8), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuMemFree(memory));
    EXPECT_EQ(cuMemFree(memory), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemcpyDtoH(host, memory, 8), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemsetD8(memory, 0, 8), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemGetAddressRange(&base, &size, memory), CUDA_ERROR_NOT_FOUND);
    EXPECT_OK(cuMemFree(0));
    EXPECT_EQ(cuMemAlloc(&memory, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DriverTest, DeviceMemoryIsLimitedAndGivenBack)
{
    size_t before, total;
    CUdeviceptr more;

    ASSERT_OK(cuMemGetInfo(&before, &total));
    ASSERT_LE(before, total);
    EXPECT_EQ(cuMemAlloc(&more, total + 1), CUDA_ERROR_OUT_OF_MEMORY);
    CUdeviceptr all = First<CUdeviceptr>(cuMemAlloc, before);
    EXPECT_EQ(cuMemAlloc(&more, 1), CUDA_ERROR_OUT_OF_MEMORY);
    ASSERT_OK(cuMemFree(all));
    EXPECT_EQ(FreeBytes(), before);
}

TEST_F(DriverTest, CopiesMoveBytesInAllDirections)
{
    std::vector<unsigned char> in(300000), out(in.size());

    for (size_t i = 0; i < in.size(); i++)
        in[i] = static_cast<unsigned char>(i * 7 + 1);
    CUdeviceptr a = Memory(in.size()), b = Memory(in.size());
    ASSERT_OK(cuMemcpyHtoDAsync(a, in.data(), in.size(), stream_));
    ASSERT_OK(cuMemcpyDtoDAsync(b, a, in.size(), stream_));
    ASSERT_OK(cuMemcpyDtoHAsync(out.data(), b, in.size(), stream_));
    ASSERT_OK(cuStreamSynchronize(stream_));
    EXPECT_EQ(in, out);

    ASSERT_OK(cuMemsetD32(a, 0x01020304, in.size() / 4));
    ASSERT_OK(cuMemcpy(b, a, in.size()));
    ASSERT_OK(cuMemcpyDtoH(out.data(), b, in.size()));
    EXPECT_EQ(out[0], 4);
    EXPECT_EQ(out[in.size() - 1], 1);
    ASSERT_OK(cuMemsetD16(a, 0xabcd, 2));
    ASSERT_OK(cuMemcpyDtoH(out.data(), a, 5));
    EXPECT_EQ(out[3], 0xab);
    EXPECT_EQ(out[4], 4);
}

TEST_F(DriverTest, PitchedCopyMovesTheRectangleOnly)
{
    CUdeviceptr memory;
    size_t pitch;
    unsigned char in[3 * 5], out[3 * 5] = {};

    for (int i = 0; i < 15; i++)
        in[i] = static_cast<unsigned char>(i + 1);
    ASSERT_OK(cuMemAllocPitch(&memory, &pitch, 5, 3, 4));
    ASSERT_GE(pitch, 5u);
    CUDA_MEMCPY2D into = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = in,
                          .srcPitch = 5,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = memory,
                          .dstPitch = pitch,
                          .WidthInBytes = 5,
                          .Height = 3};
    CUDA_MEMCPY2D out_of = {.srcXInBytes = 2,
                            .srcY = 1,
                            .srcMemoryType = CU_MEMORYTYPE_DEVICE,
                            .srcDevice = memory,
                            .srcPitch = pitch,
                            .dstMemoryType = CU_MEMORYTYPE_HOST,
                            .dstHost = out,
                            .dstPitch = 3,
                            .WidthInBytes = 3,
                            .Height = 2};
    ASSERT_OK(cuMemcpy2D(&into));
    ASSERT_OK(cuMemcpy2D(&out_of));
    const unsigned char want[] = {8, 9, 10, 13, 14, 15};
    EXPECT_EQ(memcmp(out, want, sizeof(want)), 0);
    EXPECT_OK(cuMemFree(memory));
}

TEST_F(DriverTest, PointerAttributesTellWhoseMemoryItIs)
{
    int ordinal;
    unsigned int type;
    CUdeviceptr memory = Memory(100), local = reinterpret_cast<CUdeviceptr>(&ordinal);
    void *host = HostMemory(100);
    auto type_of = [](CUdeviceptr at) {
        return First<unsigned int>(cuPointerGetAttribute, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at);
    };

    EXPECT_EQ(type_of(memory + 50), static_cast<unsigned int>(CU_MEMORYTYPE_DEVICE));
    EXPECT_EQ(First<CUcontext>(cuPointerGetAttribute, CU_POINTER_ATTRIBUTE_CONTEXT, memory), ctx_);
    EXPECT_EQ(type_of(reinterpret_cast<CUdeviceptr>(host)),
              static_cast<unsigned int>(CU_MEMORYTYPE_HOST));
    EXPECT_EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, local),
              CUDA_ERROR_INVALID_VALUE);
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    void *values[] = {&type, &ordinal};
    EXPECT_OK(cuPointerGetAttributes(2, attributes, values, local));
    EXPECT_EQ(type, 0u);
    EXPECT_EQ(cuMemFree(reinterpret_cast<CUdeviceptr>(host)), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DriverTest, RegisteredHostMemoryIsKnownUntilUnregistered)
{
    std::vector<char> buffer(8192);
    CUdeviceptr device;

    EXPECT_EQ(cuMemHostGetDevicePointer(&device, buffer.data(), 0), CUDA_ERROR_INVALID_VALUE);
    ASSERT_OK(cuMemHostRegister(buffer.data(), buffer.size(), 0));
    EXPECT_EQ(cuMemHostRegister(buffer.data() + 100, 8, 0),
              CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    EXPECT_OK(cuMemHostGetDevicePointer(&device, buffer.data(), 0));
    EXPECT_OK(cuMemHostUnregister(buffer.data()));
    EXPECT_EQ(cuMemHostUnregister(buffer.data()), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

TEST_F(DriverTest, VirtualMemoryIsReservedMappedAndShared)
{
    CUmemAllocationProp prop = {};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    size_t granularity, before = FreeBytes();
    CUmemGenericAllocationHandle handle, imported;
    CUdeviceptr address, second;
    char out = 0;

    ASSERT_OK(
        cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    EXPECT_EQ(cuMemCreate(&handle, granularity + 1, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    ASSERT_OK(cuMemCreate(&handle, granularity, &prop, 0));
    ASSERT_OK(cuMemAddressReserve(&address, granularity, 0, 0, 0));
    ASSERT_OK(cuMemMap(address, granularity, 0, handle, 0));
    EXPECT_EQ(cuMemsetD8(address, 5, 1), CUDA_ERROR_INVALID_VALUE) << "no access was given yet";
    CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    ASSERT_OK(cuMemSetAccess(address, granularity, &access, 1));
    ASSERT_OK(cuMemsetD8(address, 5, granularity));
    ASSERT_OK(cuCtxSynchronize());

    int fd;
    ASSERT_OK(
        cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    ASSERT_OK(cuMemImportFromShareableHandle(&imported,
                                             reinterpret_cast<void *>(static_cast<intptr_t>(fd)),
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(fd);
    ASSERT_OK(cuMemAddressReserve(&second, granularity, 0, 0, 0));
    ASSERT_OK(cuMemMap(second, granularity, 0, imported, 0));
    ASSERT_OK(cuMemSetAccess(second, granularity, &access, 1));
    ASSERT_OK(cuMemcpyDtoH(&out, second + granularity - 1, 1));
    EXPECT_EQ(out, 5);

    EXPECT_EQ(cuMemAddressFree(address, granularity), CUDA_ERROR_INVALID_VALUE) << "still mapped";
    for (CUdeviceptr p : {address, second}) {
        EXPECT_OK(cuMemUnmap(p, granularity));
        EXPECT_EQ(cuMemUnmap(p, granularity), CUDA_ERROR_INVALID_VALUE);
        EXPECT_OK(cuMemAddressFree(p, granularity));
    }
    EXPECT_OK(cuMemRelease(handle));
    EXPECT_EQ(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuMemRelease(imported));
    EXPECT_EQ(FreeBytes(), before);
}

TEST_F(DriverTest, AsyncFreeHappensInStreamOrder)
{
    Gate gate;
    size_t before = FreeBytes();
    char in = 42, *out = static_cast<char *>(HostMemory(1));

    *out = 0;
    CUdeviceptr memory = First<CUdeviceptr>(cuMemAllocAsync, 4096, stream_);
    Hold(stream_, gate);
    ASSERT_OK(cuMemcpyHtoDAsync(memory, &in, 1, stream_));
    ASSERT_OK(cuMemcpyDtoHAsync(out, memory, 1, stream_));
    ASSERT_OK(cuMemFreeAsync(memory, stream_));
    EXPECT_EQ(cuMemFreeAsync(memory, stream_), CUDA_ERROR_INVALID_VALUE);
    EXPECT_LT(FreeBytes(), before);
    gate.Open();
    ASSERT_OK(cuStreamSynchronize(stream_));
    EXPECT_EQ(FreeBytes(), before);
    EXPECT_EQ(*out, 42);
}

TEST_F(DriverTest, UseAfterAsyncFreePoisonsTheContext)
{
    CUcontext ctx = Context();
    auto stream = First<CUstream>(cuStreamCreate, CU_STREAM_NON_BLOCKING);
    auto memory = First<CUdeviceptr>(cuMemAllocAsync, 64, stream);

    ASSERT_OK(cuMemFreeAsync(memory, stream));
    /* Still known when it is enqueued or not: in both cases the mistake is told. */
    CUresult result = cuMemsetD8Async(memory, 1, 64, stream);
    if (result == CUDA_SUCCESS) {
        EXPECT_EQ(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
        EXPECT_EQ(cuStreamQuery(stream), CUDA_ERROR_ILLEGAL_ADDRESS) << "it stays";
    } else {
        EXPECT_EQ(result, CUDA_ERROR_INVALID_VALUE);
    }
    EXPECT_OK(cuCtxDestroy(ctx));
}

/* ---- streams ---- */

TEST_F(DriverTest, EnqueueReturnsAtOnceAndOrderIsKept)
{
    Gate gate;
    static std::vector<int> order;
    int numbers[100];

    Hold(stream_, gate);
    for (int i = 0; i < 100; i++) {
        numbers[i] = i;
        ASSERT_OK(cuLaunchHostFunc(
            stream_, [](void *data) { order.push_back(*static_cast<int *>(data)); }, &numbers[i]));
    }
    EXPECT_EQ(cuStreamQuery(stream_), CUDA_ERROR_NOT_READY);
    gate.Open();
    ASSERT_OK(cuStreamSynchronize(stream_));
    EXPECT_OK(cuStreamQuery(stream_));
    EXPECT_EQ(order, std::vector<int>(numbers, numbers + 100));
}

TEST_F(DriverTest, HungStreamHoldsUpNoOther)
{
    Gate gate;
    CUstream other = Stream();

    Hold(stream_, gate);
    gate.AwaitEntered();
    Count(other);
    ASSERT_OK(cuStreamSynchronize(other));
    EXPECT_EQ(count_, 1);
    EXPECT_EQ(cuStreamQuery(stream_), CUDA_ERROR_NOT_READY);
    gate.Open();
    ASSERT_OK(cuStreamSynchronize(stream_));
}

TEST_F(DriverTest, FullQueueBlocksTheEnqueuingCall)
{
    Gate gate;
    std::atomic<int> enqueued{0}, run{0};

    Hold(stream_, gate);
    std::thread thread = WithContext([&] {
        for (int i = 0; i < 3000; i++) {
            ASSERT_OK(cuLaunchHostFunc(stream_, Increment, &run));
            ++enqueued;
        }
    });
    while (enqueued < 1023)
        std::this_thread::yield();
    /* The queue is full now; the next call cannot return before the gate opens. */
    EXPECT_LE(enqueued, 1024);
    EXPECT_EQ(run, 0);
    gate.Open();
    thread.join();
    ASSERT_OK(cuStreamSynchronize(stream_));
    EXPECT_EQ(run, 3000);
}

TEST_F(DriverTest, DestroyedBusyStreamFinishesItsWork)
{
    Gate gate;
    auto other = First<CUstream>(cuStreamCreate, CU_STREAM_NON_BLOCKING);

    Hold(other, gate);
    Count(other);
    ASSERT_OK(cuStreamDestroy(other));
    EXPECT_EQ(cuStreamQuery(other), CUDA_ERROR_INVALID_HANDLE);
    gate.Open();
    ASSERT_OK(cuCtxSynchronize());
    EXPECT_EQ(count_, 1);
}

TEST_F(DriverTest, LegacyStreamOrdersBlockingStreamsOnly)
{
    Gate gate;
    CUstream blocking = Stream(CU_STREAM_DEFAULT);
    std::atomic<int> legacy{0}, free{0};

    Hold(blocking, gate);
    ASSERT_OK(cuLaunchHostFunc(nullptr, Increment, &legacy));
    ASSERT_OK(cuLaunchHostFunc(stream_, Increment, &free));
    ASSERT_OK(cuStreamSynchronize(stream_));
    EXPECT_EQ(free, 1);
    EXPECT_EQ(legacy, 0) << "the default stream waits for the blocking stream";
    EXPECT_EQ(cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
    gate.Open();
    ASSERT_OK(cuStreamSynchronize(nullptr));
    EXPECT_EQ(legacy, 1);

    /* And the other way round. */
    Gate second;
    std::atomic<int> after{0};
    Hold(CU_STREAM_LEGACY, second);
    ASSERT_OK(cuLaunchHostFunc(blocking, Increment, &after));
    second.AwaitEntered();
    EXPECT_EQ(after, 0);
    EXPECT_EQ(cuStreamQuery(blocking), CUDA_ERROR_NOT_READY);
    second.Open();
    ASSERT_OK(cuStreamSynchronize(blocking));
    EXPECT_EQ(after, 1);
}

TEST_F(DriverTest, PerThreadStreamsAreOneAThread)
{
    auto id = [] { return Last<unsigned long long>(cuStreamGetId, CU_STREAM_PER_THREAD); };
    unsigned long long mine = id();

    EXPECT_EQ(id(), mine);
    WithContext([&] {
        EXPECT_NE(id(), mine);
        Count(CU_STREAM_PER_THREAD);
        ASSERT_OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
        EXPECT_EQ(count_, 1);
    }).join();
    EXPECT_EQ(cuStreamDestroy(CU_STREAM_PER_THREAD), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(DriverTest, StreamTellsItsProperties)
{
    unsigned int flags;
    int least, greatest;
    CUcontext ctx;
    CUgreenCtx green = reinterpret_cast<CUgreenCtx>(1);

    ASSERT_OK(cuCtxGetStreamPriorityRange(&least, &greatest));
    auto stream =
        First<CUstream>(cuStreamCreateWithPriority, CU_STREAM_NON_BLOCKING, greatest - 10);
    EXPECT_EQ(Last<unsigned int>(cuStreamGetFlags, stream),
              static_cast<unsigned int>(CU_STREAM_NON_BLOCKING));
    EXPECT_EQ(Last<int>(cuStreamGetPriority, stream), greatest);
    EXPECT_EQ(Last<CUcontext>(cuStreamGetCtx, stream), ctx_);
    ASSERT_OK(cuStreamGetCtx_v2(stream, &ctx, &green));
    EXPECT_EQ(ctx, ctx_);
    EXPECT_EQ(green, nullptr);
    ASSERT_OK(cuStreamDestroy(stream));
    EXPECT_EQ(cuStreamGetFlags(stream, &flags), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(DriverTest, HostFunctionMayNotCallCuda)
{
    CUresult result = CUDA_SUCCESS;

    ASSERT_OK(cuLaunchHostFunc(
        stream_, [](void *data) { *static_cast<CUresult *>(data) = cuStreamSynchronize(nullptr); },
        &result));
    ASSERT_OK(cuStreamSynchronize(stream_));
    EXPECT_EQ(result, CUDA_ERROR_NOT_PERMITTED);
}

TEST_F(DriverTest, CallbackGetsStreamAndStatus)
{
    struct Seen {
        CUstream stream;
        CUresult status;
    } seen = {nullptr, CUDA_ERROR_UNKNOWN};

    ASSERT_OK(cuStreamAddCallback(
        stream_,
        [](CUstream stream, CUresult status, void *data) {
            *static_cast<Seen *>(data) = {stream, status};
        },
        &seen, 0));
    ASSERT_OK(cuStreamSynchronize(stream_));
    EXPECT_EQ(seen.stream, stream_);
    EXPECT_EQ(seen.status, CUDA_SUCCESS);
}

TEST_F(DriverTest, StreamWaitsForAValueThatHostOrStreamWrites)
{
    CUstream writer = Stream();
    auto flag = static_cast<cuuint32_t *>(HostMemory(8));

    *flag = 0;
    CUdeviceptr address = reinterpret_cast<CUdeviceptr>(flag);
    ASSERT_OK(cuStreamWaitValue32(stream_, address, 1, CU_STREAM_WAIT_VALUE_EQ));
    Count(stream_);
    EXPECT_EQ(cuStreamQuery(stream_), CUDA_ERROR_NOT_READY);
    __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
    ASSERT_OK(cuStreamSynchronize(stream_));
    EXPECT_EQ(count_, 1);
    ASSERT_OK(cuStreamWaitValue32(stream_, address, 5, CU_STREAM_WAIT_VALUE_GEQ));
    EXPECT_EQ(cuStreamQuery(stream_), CUDA_ERROR_NOT_READY);
    ASSERT_OK(cuStreamWriteValue32(writer, address, 7, CU_STREAM_WRITE_VALUE_DEFAULT));
    ASSERT_OK(cuStreamSynchronize(stream_));
    ASSERT_OK(cuStreamSynchronize(writer));
    ASSERT_OK(cuStreamWriteValue64(stream_, address, 0x100000001, 0));
    ASSERT_OK(cuStreamSynchronize(stream_));
    EXPECT_EQ(*reinterpret_cast<cuuint64_t *>(flag), 0x100000001u);
    EXPECT_EQ(cuStreamWriteValue32(stream_, address + 2, 1, 0), CUDA_ERROR_INVALID_VALUE);
}

/* ---- events ---- */

struct EventTest : DriverTest {
    void ExpectNotReadyBehind(CUevent event, Gate &gate)
    {
        Hold(stream_, gate);
        ASSERT_OK(cuEventRecord(event, stream_));
        EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_NOT_READY);
        gate.Open();
        ASSERT_OK(cuEventSynchronize(event));
        EXPECT_OK(cuEventQuery(event));
    }
};

TEST_F(EventTest, NeverRecordedEventIsComplete)
{
    auto event = First<CUevent>(cuEventCreate, CU_EVENT_DISABLE_TIMING);

    EXPECT_OK(cuEventQuery(event));
    EXPECT_OK(cuEventSynchronize(event));
    EXPECT_OK(cuStreamWaitEvent(stream_, event, 0));
    EXPECT_OK(cuStreamQuery(stream_));
    EXPECT_OK(cuEventDestroy(event));
    EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuEventDestroy(event), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(EventTest, EventIsNotReadyUntilTheWorkBeforeItIsDone)
{
    Gate gate;
    ExpectNotReadyBehind(Event(), gate);
}

TEST_F(EventTest, RecordingAgainStartsAnew)
{
    Gate gate;
    CUevent event = Event();

    ASSERT_OK(cuEventRecord(event, stream_));
    ASSERT_OK(cuEventSynchronize(event));
    ExpectNotReadyBehind(event, gate);
}

TEST_F(EventTest, WaitMeansTheRecordingAtTheTimeOfTheCall)
{
    Gate first, second;
    auto event = First<CUevent>(cuEventCreate, CU_EVENT_DISABLE_TIMING);
    CUstream waiter = Stream();

    Hold(stream_, first);
    ASSERT_OK(cuEventRecord(event, stream_));
    ASSERT_OK(cuStreamWaitEvent(waiter, event, 0));
    Hold(stream_, second);
    ASSERT_OK(cuEventRecord(event, stream_));
    EXPECT_EQ(cuStreamQuery(waiter), CUDA_ERROR_NOT_READY);
    first.Open();
    EXPECT_OK(cuStreamSynchronize(waiter)) << "the second recording is not waited for";
    EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    EXPECT_OK(cuEventDestroy(event)) << "a pending event may be destroyed";
    second.Open();
    EXPECT_OK(cuStreamSynchronize(stream_));
}

TEST_F(EventTest, ElapsedTimeNeedsTimingAndCompletion)
{
    Gate gate;
    CUevent start = Event(CU_EVENT_DEFAULT), end = Event(CU_EVENT_DEFAULT), untimed = Event();
    float ms = -1;

    EXPECT_EQ(cuEventElapsedTime(&ms, start, end), CUDA_ERROR_INVALID_HANDLE);
    ASSERT_OK(cuEventRecord(start, stream_));
    Hold(stream_, gate);
    ASSERT_OK(cuEventRecord(end, stream_));
    ASSERT_OK(cuEventRecord(untimed, stream_));
    EXPECT_EQ(cuEventElapsedTime(&ms, start, end), CUDA_ERROR_NOT_READY);
    EXPECT_EQ(cuEventElapsedTime(&ms, start, untimed), CUDA_ERROR_INVALID_HANDLE);
    gate.Open();
    ASSERT_OK(cuEventSynchronize(end));
    ASSERT_OK(cuEventElapsedTime(&ms, start, end));
    EXPECT_GE(ms, 0);
    EXPECT_OK(cuEventElapsedTime(&ms, end, start));
    EXPECT_LE(ms, 0);
}

TEST_F(EventTest, EventAndStreamMustShareTheContext)
{
    CUevent event = Event();
    CUcontext other = Context();
    auto stream = First<CUstream>(cuStreamCreate, CU_STREAM_NON_BLOCKING);

    EXPECT_EQ(cuEventRecord(event, stream), CUDA_ERROR_INVALID_HANDLE);
    ASSERT_OK(cuEventRecord(event, stream_));
    EXPECT_OK(cuStreamWaitEvent(stream, event, 0)) << "waiting across is allowed";
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT_OK(cuCtxDestroy(other));
}

TEST_F(EventTest, FlagsAreChecked)
{
    CUevent event;

    EXPECT_EQ(cuEventCreate(&event, 0x100), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuEventCreate(&event, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);
    event = Event(CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC);
    EXPECT_EQ(cuEventRecordWithFlags(event, stream_, CU_EVENT_RECORD_EXTERNAL),
              CUDA_ERROR_INVALID_VALUE)
        << "external is for captures";
}

TEST_F(EventTest, ManyThreadsRecordAndQuery)
{
    std::vector<std::thread> threads;
    std::atomic<int> failures{0};

    for (int t = 0; t < 4; t++)
        threads.push_back(WithContext([&] {
            auto stream = First<CUstream>(cuStreamCreate, CU_STREAM_NON_BLOCKING);
            auto event = First<CUevent>(cuEventCreate, CU_EVENT_DISABLE_TIMING);
            for (int i = 0; i < 300; i++) {
                std::atomic<int> count{0};
                failures += cuLaunchHostFunc(stream, Increment, &count) != CUDA_SUCCESS;
                failures += cuEventRecord(event, stream) != CUDA_SUCCESS;
                CUresult result = cuEventQuery(event);
                failures += result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY;
                failures += cuEventSynchronize(event) != CUDA_SUCCESS;
                failures += count != 1;
            }
            EXPECT_OK(cuEventDestroy(event));
            EXPECT_OK(cuStreamDestroy(stream));
        }));
    for (std::thread &thread : threads)
        thread.join();
    EXPECT_EQ(failures, 0);
}

/* ---- capture and graphs ---- */

struct CaptureTest : EventTest {
    CUstreamCaptureStatus Status(CUstream stream)
    {
        CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
        EXPECT_OK(cuStreamIsCapturing(stream, &status));
        return status;
    }
    void Begin(CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL)
    {
        ASSERT_OK(cuStreamBeginCapture(stream_, mode));
    }
    void ExpectInvalidated()
    {
        CUgraph graph = reinterpret_cast<CUgraph>(1);
        EXPECT_EQ(Status(stream_), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
        EXPECT_EQ(cuStreamEndCapture(stream_, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        EXPECT_EQ(graph, nullptr);
        EXPECT_EQ(Status(stream_), CU_STREAM_CAPTURE_STATUS_NONE);
    }
    CUgraph End()
    {
        CUgraph graph = nullptr;
        EXPECT_OK(cuStreamEndCapture(stream_, &graph));
        return Graph(graph);
    }
};

TEST_F(CaptureTest, CapturedWorkRunsAtEachReplayAndNotBefore)
{
    unsigned char out = 0;
    CUdeviceptr memory = Memory(16);

    ASSERT_OK(cuMemsetD8(memory, 1, 16));
    Begin();
    EXPECT_EQ(Status(stream_), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    ASSERT_OK(cuMemsetD8Async(memory, 9, 8, stream_));
    ASSERT_OK(cuMemcpyDtoDAsync(memory + 8, memory, 8, stream_));
    Count(stream_);
    auto graph = Last<CUgraph>(cuStreamEndCapture, stream_);
    EXPECT_EQ(Last<size_t>(cuGraphGetNodes, graph, nullptr), 3u);
    ASSERT_OK(cuStreamSynchronize(stream_));
    EXPECT_EQ(count_, 0);
    auto exec = First<CUgraphExec>(cuGraphInstantiate, graph, 0);
    EXPECT_OK(cuGraphDestroy(graph)) << "the executable graph stands alone";
    for (int i = 0; i < 3; i++)
        ASSERT_OK(cuGraphLaunch(exec, stream_));
    EXPECT_OK(cuGraphExecDestroy(exec)) << "launches under way are finished";
    ASSERT_OK(cuStreamSynchronize(stream_));
    EXPECT_EQ(count_, 3);
    ASSERT_OK(cuMemcpyDtoH(&out, memory + 15, 1));
    EXPECT_EQ(out, 9);
    EXPECT_EQ(cuGraphLaunch(exec, stream_), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(CaptureTest, ForkedStreamsJoinTheCaptureThroughEvents)
{
    CUevent fork = Event(), join = Event();
    CUstream side = Stream();

    Begin();
    Count(stream_);
    ASSERT_OK(cuEventRecord(fork, stream_));
    ASSERT_OK(cuStreamWaitEvent(side, fork, 0));
    EXPECT_EQ(Status(side), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    Count(side);
    Count(stream_);
    ASSERT_OK(cuEventRecord(join, side));
    ASSERT_OK(cuStreamWaitEvent(stream_, join, 0));
    Count(stream_);
    CUgraph graph = End();
    EXPECT_EQ(Status(side), CU_STREAM_CAPTURE_STATUS_NONE);
    EXPECT_EQ(Last<size_t>(cuGraphGetEdges, graph, nullptr, nullptr, nullptr), 4u) << "a diamond";
    Replay(Exec(graph));
    EXPECT_EQ(count_, 4);
}

TEST_F(CaptureTest, UnjoinedWorkSpoilsTheEnd)
{
    CUevent fork = Event();
    CUstream side = Stream();
    CUgraph graph = reinterpret_cast<CUgraph>(1);

    Begin();
    ASSERT_OK(cuEventRecord(fork, stream_));
    ASSERT_OK(cuStreamWaitEvent(side, fork, 0));
    Count(side);
    EXPECT_EQ(cuStreamEndCapture(side, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    EXPECT_EQ(cuStreamEndCapture(stream_, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    EXPECT_EQ(graph, nullptr);
    EXPECT_EQ(cuStreamEndCapture(stream_, &graph), CUDA_ERROR_ILLEGAL_STATE);
}

TEST_F(CaptureTest, EventRecordedInCaptureCannotBeLookedAt)
{
    CUevent event = Event();

    Begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    ASSERT_OK(cuEventRecord(event, stream_));
    End();
    EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_CAPTURED_EVENT);
    EXPECT_EQ(cuEventSynchronize(event), CUDA_ERROR_CAPTURED_EVENT);
    EXPECT_EQ(cuStreamWaitEvent(stream_, event, 0), CUDA_ERROR_CAPTURED_EVENT);
    ASSERT_OK(cuEventRecord(event, stream_));
    EXPECT_OK(cuEventSynchronize(event)) << "recorded again, outside";

    Begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    ASSERT_OK(cuEventRecord(event, stream_));
    EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_CAPTURED_EVENT);
    ExpectInvalidated();
}

TEST_F(CaptureTest, UnsafeCallsInvalidateByMode)
{
    struct Case {
        CUstreamCaptureMode capture, thread;
        bool same_thread, forbidden;
    };
    const CUstreamCaptureMode global = CU_STREAM_CAPTURE_MODE_GLOBAL,
                              local = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                              relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
    const Case cases[] = {
        {global, global, true, true},   {global, global, false, true},
        {global, local, true, true},    {global, local, false, false},
        {global, relaxed, true, false}, {global, relaxed, false, false},
        {local, global, true, true},    {local, global, false, false},
        {local, local, true, true},     {local, local, false, false},
        {local, relaxed, true, false},  {local, relaxed, false, false},
        {relaxed, global, true, false}, {relaxed, global, false, false},
        {relaxed, local, true, false},  {relaxed, relaxed, false, false},
    };
    CUevent event = Event();
    const std::vector<std::pair<const char *, std::function<CUresult()>>> calls = {
        {"cuEventQuery", [&] { return cuEventQuery(event); }},
        {"cuEventSynchronize", [&] { return cuEventSynchronize(event); }},
        {"cuMemAlloc and cuMemFree",
         [&] {
             CUdeviceptr memory;
             CUresult result = cuMemAlloc(&memory, 8);
             return result ? result : cuMemFree(memory);
         }},
        {"cuMemHostAlloc",
         [&] {
             void *memory;
             CUresult result = cuMemHostAlloc(&memory, 8, 0);
             return result ? result : cuMemFreeHost(memory);
         }},
        {"cuStreamQuery",
         [&] {
             CUstream other;
             CUresult result = cuStreamCreate(&other, CU_STREAM_NON_BLOCKING);
             if (result == CUDA_SUCCESS)
                 result = cuStreamQuery(other);
             cuStreamDestroy(other);
             return result;
         }},
    };

    for (const Case &c : cases)
        for (const auto &call : calls) {
            SCOPED_TRACE(std::string(call.first) + ": capture " + std::to_string(c.capture) +
                         ", thread " + std::to_string(c.thread) +
                         (c.same_thread ? ", same thread" : ", other thread"));
            CUresult result = CUDA_ERROR_UNKNOWN;
            auto body = [&] {
                CUstreamCaptureMode mode = c.thread;
                ASSERT_OK(cuThreadExchangeStreamCaptureMode(&mode));
                EXPECT_EQ(mode, global) << "the mode that every thread begins with";
                result = call.second();
                ASSERT_OK(cuThreadExchangeStreamCaptureMode(&mode));
                EXPECT_EQ(mode, c.thread);
            };
            Begin(c.capture);
            if (c.same_thread)
                body();
            else
                WithContext(body).join();
            if (c.forbidden) {
                EXPECT_EQ(result, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
                std::atomic<int> count{0};
                EXPECT_EQ(cuLaunchHostFunc(stream_, Increment, &count),
                          CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
                ExpectInvalidated();
            } else {
                EXPECT_EQ(result, CUDA_SUCCESS);
                End();
            }
        }
}

TEST_F(CaptureTest, WaitingForACapturingStreamSpoilsItInAnyMode)
{
    for (auto call : {cuStreamSynchronize, cuStreamQuery}) {
        Begin(CU_STREAM_CAPTURE_MODE_RELAXED);
        EXPECT_EQ(call(stream_), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        ExpectInvalidated();
    }
    Begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    ExpectInvalidated();
}

TEST_F(CaptureTest, DefaultStreamConflictsWithBlockingCapture)
{
    CUstream blocking = Stream(CU_STREAM_DEFAULT);
    CUgraph graph;
    CUstreamCaptureStatus status;

    EXPECT_EQ(cuStreamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL),
              CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    ASSERT_OK(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT_EQ(cuStreamIsCapturing(nullptr, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    EXPECT_EQ(Status(blocking), CU_STREAM_CAPTURE_STATUS_ACTIVE) << "asking does no harm";
    EXPECT_EQ(cuLaunchHostFunc(nullptr, Increment, &count_), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    EXPECT_EQ(cuStreamEndCapture(blocking, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(CaptureTest, WorkFromOutsideOrAnotherCaptureIsRefused)
{
    CUevent outside = Event(), theirs = Event();
    CUstream other = Stream();
    CUgraph graph;

    ASSERT_OK(cuEventRecord(outside, other));
    Begin();
    EXPECT_EQ(cuStreamWaitEvent(stream_, outside, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    ExpectInvalidated();
    Begin();
    ASSERT_OK(cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ASSERT_OK(cuEventRecord(theirs, other));
    EXPECT_EQ(cuStreamWaitEvent(stream_, theirs, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
    ExpectInvalidated();
    EXPECT_EQ(cuStreamEndCapture(other, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(CaptureTest, OnlyTheOwnerEndsACaptureThatIsNotRelaxed)
{
    CUgraph graph = nullptr;

    Begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    WithContext([&] {
        EXPECT_EQ(cuStreamEndCapture(stream_, &graph), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    }).join();
    End();
    Begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    WithContext([&] { End(); }).join();
}

TEST_F(CaptureTest, ExternalEventIsANodeAndNotReadyWhileTheReplayHasNotReachedIt)
{
    Gate gate;
    CUevent before = Event(), after = Event();

    Begin();
    ASSERT_OK(cuEventRecordWithFlags(before, stream_, CU_EVENT_RECORD_EXTERNAL));
    Hold(stream_, gate);
    ASSERT_OK(cuEventRecordWithFlags(after, stream_, CU_EVENT_RECORD_EXTERNAL));
    CUgraph graph = End();
    EXPECT_EQ(Last<size_t>(cuGraphGetNodes, graph, nullptr), 3u);
    EXPECT_OK(cuEventQuery(after)) << "never recorded so far";
    CUgraphExec exec = Exec(graph);
    ASSERT_OK(cuGraphLaunch(exec, stream_));
    EXPECT_EQ(cuEventQuery(after), CUDA_ERROR_NOT_READY);
    ASSERT_OK(cuEventSynchronize(before));
    gate.AwaitEntered();
    EXPECT_EQ(cuEventQuery(after), CUDA_ERROR_NOT_READY);
    gate.Open();
    ASSERT_OK(cuEventSynchronize(after));
    ASSERT_OK(cuStreamSynchronize(stream_));
}

TEST_F(CaptureTest, CaptureInfoLeadsToTheGraph)
{
    CUstreamCaptureStatus status;
    cuuint64_t id = 0;
    CUgraph graph = nullptr, ended;
    const CUgraphNode *deps = nullptr;
    size_t n_deps = 0;
    CUgraphNode node;

    Begin();
    Count(stream_);
    ASSERT_OK(cuStreamGetCaptureInfo(stream_, &status, &id, &graph, &deps, nullptr, &n_deps));
    EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    EXPECT_NE(id, 0u);
    ASSERT_EQ(n_deps, 1u);
    CUDA_HOST_NODE_PARAMS host = {Increment, &count_};
    ASSERT_OK(cuGraphAddHostNode(&node, graph, deps, n_deps, &host));
    ASSERT_OK(cuStreamUpdateCaptureDependencies(stream_, &node, nullptr, 1,
                                                CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    ASSERT_OK(cuStreamEndCapture(stream_, &ended));
    EXPECT_EQ(ended, graph);
    Replay(Exec(Graph(graph)));
    EXPECT_EQ(count_, 2);
}

TEST_F(CaptureTest, GraphsAreBuiltClonedUpdatedAndNested)
{
    std::atomic<int> first{0}, second{0}, other{0};
    CUgraph graph = First<CUgraph>(cuGraphCreate, 0), parent = First<CUgraph>(cuGraphCreate, 0);
    CUDA_HOST_NODE_PARAMS host = {Increment, &first};

    auto a = First<CUgraphNode>(cuGraphAddHostNode, graph, nullptr, 0, &host);
    host.userData = &second;
    auto b = First<CUgraphNode>(cuGraphAddHostNode, graph, &a, 1, &host);
    auto empty = First<CUgraphNode>(cuGraphAddEmptyNode, graph, &b, 1);
    auto clone = First<CUgraph>(cuGraphClone, graph);
    EXPECT_NE(First<CUgraphNode>(cuGraphNodeFindInClone, b, clone), b);
    First<CUgraphNode>(cuGraphAddChildGraphNode, parent, nullptr, 0, graph);
    Replay(Exec(parent));
    EXPECT_EQ(first, 1);
    EXPECT_EQ(second, 1);

    CUgraphExec exec = Exec(graph);
    host.userData = &other;
    ASSERT_OK(cuGraphExecHostNodeSetParams(exec, b, &host));
    Replay(exec);
    EXPECT_EQ(second, 1);
    EXPECT_EQ(other, 1);
    CUgraphExecUpdateResultInfo info;
    ASSERT_OK(cuGraphExecUpdate(exec, clone, &info));
    Replay(exec);
    EXPECT_EQ(second, 2);
    EXPECT_OK(cuGraphExecUpdate(exec, parent, &info)) << "the same steps, nested";
    ASSERT_OK(cuGraphDestroyNode(empty));
    EXPECT_EQ(cuGraphExecUpdate(exec, graph, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    for (CUgraph g : {graph, clone, parent})
        EXPECT_OK(cuGraphDestroy(g));
    EXPECT_EQ(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(CaptureTest, CycleIsRefusedAtInstantiation)
{
    CUgraphExec exec;
    CUgraph graph = Graph();

    auto a = First<CUgraphNode>(cuGraphAddEmptyNode, graph, nullptr, 0);
    auto b = First<CUgraphNode>(cuGraphAddEmptyNode, graph, &a, 1);
    ASSERT_OK(cuGraphAddDependencies(graph, &b, &a, nullptr, 1));
    EXPECT_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(CaptureTest, ALaunchIntoACaptureIsRefusedAndEndsIt)
{
    Begin();
    Count(stream_);
    CUgraphExec exec = Exec(End());
    Begin();
    EXPECT_EQ(cuGraphLaunch(exec, stream_), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT_EQ(cuGraphLaunch(exec, stream_), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT_EQ(Status(stream_), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    EXPECT_EQ(cuLaunchHostFunc(stream_, Increment, &count_), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    ExpectInvalidated();
    Replay(exec);
    EXPECT_EQ(count_, 1);
}

TEST_F(CaptureTest, LaunchesOfOneExecutableGraphNeverOverlap)
{
    Gate gate;
    CUstream other = Stream();

    Begin();
    Count(stream_);
    Hold(stream_, gate);
    CUgraphExec exec = Exec(End());
    ASSERT_OK(cuGraphLaunch(exec, stream_));
    gate.AwaitEntered();
    ASSERT_OK(cuGraphLaunch(exec, other));
    EXPECT_EQ(cuStreamQuery(other), CUDA_ERROR_NOT_READY);
    EXPECT_EQ(count_, 1);
    gate.Open();
    ASSERT_OK(cuStreamSynchronize(other));
    EXPECT_EQ(count_, 2);
}

TEST_F(CaptureTest, UserObjectLivesAsLongAsTheGraphs)
{
    std::atomic<int> destroyed{0};
    auto graph = First<CUgraph>(cuGraphCreate, 0);
    auto object = First<CUuserObject>(cuUserObjectCreate, &destroyed, Increment, 1,
                                      CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);

    ASSERT_OK(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    auto exec = First<CUgraphExec>(cuGraphInstantiate, graph, 0);
    ASSERT_OK(cuGraphDestroy(graph));
    EXPECT_EQ(destroyed, 0);
    Replay(exec);
    ASSERT_OK(cuGraphExecDestroy(exec));
    while (!destroyed)
        std::this_thread::yield();
    EXPECT_EQ(destroyed, 1);
}

TEST_F(CaptureTest, ValueWriteIsCapturedWithItsBarrierOnly)
{
    cuuint64_t out = 0;
    CUdeviceptr memory = Memory(8);

    ASSERT_OK(cuMemsetD8(memory, 0, 8));
    Begin();
    EXPECT_NE(cuStreamWriteValue64(stream_, memory, 3, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER),
              CUDA_SUCCESS);
    ASSERT_OK(cuStreamWriteValue64(stream_, memory, 4, CU_STREAM_WRITE_VALUE_DEFAULT));
    Replay(Exec(End()));
    ASSERT_OK(cuMemcpyDtoH(&out, memory, 8));
    EXPECT_EQ(out, 4u);
}

/* ---- entry points ---- */

TEST_F(DriverTest, ProcAddressGivesTheFormOfTheVersion)
{
    CUdriverProcAddressQueryResult status;
    void *function;

    struct {
        const char *name;
        int version;
        cuuint64_t flags;
        const char *symbol;
    } const rows[] = {
        {"cuMemAlloc", 12000, 0, "cuMemAlloc_v2"},
        {"cuGetProcAddress", 11030, 0, "cuGetProcAddress"},
        {"cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2"},
        {"cuStreamGetCaptureInfo", 10010, 0, "cuStreamGetCaptureInfo"},
        {"cuStreamGetCaptureInfo", 11030, 0, "cuStreamGetCaptureInfo_v2"},
        {"cuStreamGetCaptureInfo", 13000, 0, "cuStreamGetCaptureInfo_v3"},
        {"cuStreamSynchronize", 12000, CU_GET_PROC_ADDRESS_LEGACY_STREAM, "cuStreamSynchronize"},
        {"cuStreamSynchronize", 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
         "cuStreamSynchronize_ptsz"},
        {"cuMemcpyHtoD", 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
         "cuMemcpyHtoD_v2_ptds"},
        {"cuGraphInstantiate", 12000, 0, "cuGraphInstantiateWithFlags"},
        {"cuGraphLaunch", 12000, 0, "cuGraphLaunch"},
        {"cuStreamGetCtx", 12050, 0, "cuStreamGetCtx_v2"},
    };
    for (const auto &row : rows) {
        SCOPED_TRACE(row.name);
        ASSERT_OK(cuGetProcAddress(row.name, &function, row.version, row.flags, &status));
        EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SUCCESS);
        EXPECT_EQ(function, dlsym(RTLD_DEFAULT, row.symbol)) << row.symbol;
    }
    EXPECT_OK(cuGetProcAddress("cuStreamGetCaptureInfo", &function, 9000, 0, &status));
    EXPECT_EQ(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    EXPECT_EQ(function, nullptr);
    EXPECT_OK(cuGetProcAddress("cuNoSuchFunction", &function, 13000, 0, &status));
    EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    EXPECT_EQ(cuGetProcAddress("cuNoSuchFunction", &function, 13000, 0, nullptr),
              CUDA_ERROR_NOT_FOUND);
}

TEST_F(DriverTest, EveryExportedFunctionIsAnswered)
{
    /* The version decides which form of these two is meant: asked as of CUDA 13 they take a
     * context. */
    void *function;

    ASSERT_OK(cuGetProcAddress("cuCtxGetDevice", &function, 12000, 0, nullptr));
    EXPECT_EQ(function, dlsym(RTLD_DEFAULT, "cuCtxGetDevice"));
    ASSERT_OK(cuGetProcAddress("cuCtxGetDevice", &function, 13000, 0, nullptr));
    EXPECT_EQ(function, dlsym(RTLD_DEFAULT, "cuCtxGetDevice_v2"));
    const char *const symbols[] = {
#define DRIVER_FORM(name, version, symbol, per_thread) #symbol,
#include "tests/fake/cuda/driver_forms.def"
    };
    for (const char *symbol : symbols) {
        SCOPED_TRACE(symbol);
        ASSERT_NE(dlsym(RTLD_DEFAULT, symbol), nullptr);
        EXPECT_OK(cuGetProcAddress(symbol, &function, 13000, 0, nullptr));
        EXPECT_NE(function, nullptr);
    }
}

TEST_F(DriverTest, ErrorsHaveNamesAndTexts)
{
    const char *text;

    EXPECT_STREQ(Last<const char *>(cuGetErrorName, CUDA_ERROR_NOT_READY), "CUDA_ERROR_NOT_READY");
    EXPECT_STREQ(Last<const char *>(cuGetErrorString, CUDA_ERROR_INVALID_VALUE),
                 "invalid argument");
    EXPECT_EQ(cuGetErrorName(static_cast<CUresult>(12345), &text), CUDA_ERROR_INVALID_VALUE);
}

/* ---- the runtime ---- */

struct RuntimeTest : testing::Test {
    void SetUp() override
    {
        ASSERT_OK(cudaSetDevice(0));
        (void)cudaGetLastError();
    }
};

TEST_F(RuntimeTest, SetDeviceMakesThePrimaryContextCurrent)
{
    ASSERT_OK(cudaSetDevice(2));
    EXPECT_EQ(First<CUcontext>(cuCtxGetCurrent), First<CUcontext>(cuDevicePrimaryCtxRetain, 2));
    EXPECT_OK(cuDevicePrimaryCtxRelease(2));
    EXPECT_EQ(First<int>(cudaGetDevice), 2);
    EXPECT_EQ(cudaSetDevice(1000), cudaErrorInvalidDevice);
    EXPECT_EQ(First<int>(cudaGetDevice), 2);
}

TEST_F(RuntimeTest, OtherThreadsBeginWithDeviceZero)
{
    void *memory = nullptr;

    ASSERT_OK(cudaSetDevice(1));
    std::thread([&] {
        EXPECT_EQ(First<int>(cudaGetDevice), 0);
        ASSERT_OK(cudaMalloc(&memory, 10));
    }).join();
    auto attributes = First<cudaPointerAttributes>(cudaPointerGetAttributes, memory);
    EXPECT_EQ(attributes.device, 0);
    EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
    EXPECT_OK(cudaFree(memory));
}

TEST_F(RuntimeTest, LastErrorIsKeptForTheThreadUntilAsked)
{
    EXPECT_EQ(cudaFree(reinterpret_cast<void *>(0x10)), cudaErrorInvalidValue);
    EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidValue);
    std::thread([] { EXPECT_OK(cudaGetLastError()); }).join();
    First<int>(cudaGetDevice);
    EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidValue) << "success does not clear it";
    EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
    EXPECT_OK(cudaGetLastError());
    EXPECT_STREQ(cudaGetErrorName(cudaErrorInvalidValue), "cudaErrorInvalidValue");
    EXPECT_STREQ(cudaGetErrorString(cudaErrorInvalidValue), "invalid argument");
}

TEST_F(RuntimeTest, NotReadyIsALastErrorToo)
{
    Gate gate;
    auto stream = First<cudaStream_t>(cudaStreamCreateWithFlags, cudaStreamNonBlocking);
    auto event = First<cudaEvent_t>(cudaEventCreateWithFlags, cudaEventDisableTiming);

    ASSERT_OK(cudaLaunchHostFunc(stream, Gate::Wait, &gate));
    ASSERT_OK(cudaEventRecord(event, stream));
    EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
    EXPECT_EQ(cudaGetLastError(), cudaErrorNotReady);
    gate.Open();
    ASSERT_OK(cudaEventSynchronize(event));
    EXPECT_OK(cudaStreamDestroy(stream));
    EXPECT_OK(cudaEventDestroy(event));
}

TEST_F(RuntimeTest, CopiesCheckTheirDirection)
{
    void *device = First<void *>(cudaMalloc, sizeof(int));
    int in = 77, out = 0;

    ASSERT_OK(cudaMemcpy(device, &in, sizeof(in), cudaMemcpyHostToDevice));
    ASSERT_OK(cudaMemcpy(&out, device, sizeof(out), cudaMemcpyDefault));
    EXPECT_EQ(out, 77);
    EXPECT_EQ(cudaMemcpy(&out, &in, sizeof(in), cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    EXPECT_EQ(cudaMemcpy(&out, &in, sizeof(in), static_cast<cudaMemcpyKind>(77)),
              cudaErrorInvalidMemcpyDirection);
    ASSERT_OK(cudaMemset(device, 0xff, sizeof(in)));
    ASSERT_OK(cudaMemcpyAsync(&out, device, sizeof(out), cudaMemcpyDeviceToHost, nullptr));
    ASSERT_OK(cudaStreamSynchronize(nullptr));
    EXPECT_EQ(out, -1);
    EXPECT_OK(cudaFree(device));
    EXPECT_OK(cudaFree(nullptr));
}

TEST_F(RuntimeTest, HostMemoryAndItsAttributes)
{
    void *host = First<void *>(cudaHostAlloc, 100, cudaHostAllocDefault), *nothing = &host;
    int local;

    auto attributes = First<cudaPointerAttributes>(cudaPointerGetAttributes, host);
    EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
    EXPECT_EQ(attributes.hostPointer, host);
    ASSERT_OK(cudaPointerGetAttributes(&attributes, &local));
    EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
    EXPECT_OK(cudaFreeHost(host));
    EXPECT_OK(cudaMalloc(&nothing, 0));
    EXPECT_EQ(nothing, nullptr);
}

TEST_F(RuntimeTest, DeviceResetEndsAllAndTheNextCallBeginsAnew)
{
    ASSERT_OK(cudaSetDevice(5));
    void *memory = First<void *>(cudaMalloc, 100);
    ASSERT_OK(cudaDeviceReset());
    EXPECT_EQ(cudaFree(memory), cudaErrorInvalidValue);
    EXPECT_OK(cudaFree(First<void *>(cudaMalloc, 100)));
}

TEST_F(RuntimeTest, PeersAreEnabledOnce)
{
    EXPECT_EQ(First<int>(cudaDeviceCanAccessPeer, 0, 1), 1);
    EXPECT_EQ(First<int>(cudaDeviceCanAccessPeer, 0, 0), 0);
    ASSERT_OK(cudaDeviceEnablePeerAccess(1, 0));
    EXPECT_EQ(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessAlreadyEnabled);
    EXPECT_OK(cudaDeviceDisablePeerAccess(1));
    EXPECT_EQ(cudaDeviceDisablePeerAccess(1), cudaErrorPeerAccessNotEnabled);
}

TEST_F(RuntimeTest, CapturesAndReplaysGraphs)
{
    auto stream = First<cudaStream_t>(cudaStreamCreate);
    std::atomic<int> count{0};
    cudaStreamCaptureStatus status;
    unsigned long long id;

    ASSERT_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    ASSERT_OK(cudaLaunchHostFunc(stream, Increment, &count));
    ASSERT_OK(cudaStreamGetCaptureInfo(stream, &status, &id));
    EXPECT_EQ(status, cudaStreamCaptureStatusActive);
    auto graph = Last<cudaGraph_t>(cudaStreamEndCapture, stream);
    auto exec = First<cudaGraphExec_t>(cudaGraphInstantiate, graph, 0);
    for (int i = 0; i < 5; i++)
        ASSERT_OK(cudaGraphLaunch(exec, stream));
    ASSERT_OK(cudaStreamSynchronize(stream));
    EXPECT_EQ(count, 5);
    EXPECT_OK(cudaGraphExecDestroy(exec));
    EXPECT_OK(cudaGraphDestroy(graph));
    EXPECT_OK(cudaStreamDestroy(stream));
}

TEST_F(RuntimeTest, EntryPointsComeFromTheDriver)
{
    cudaDriverEntryPointQueryResult status;
    void *function = nullptr;

    ASSERT_OK(cudaGetDriverEntryPointByVersion("cuMemAlloc", &function, 12000, cudaEnableDefault,
                                               &status));
    EXPECT_EQ(status, cudaDriverEntryPointSuccess);
    EXPECT_EQ(function, dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));
    ASSERT_OK(cudaGetDriverEntryPointByVersion("cuNothing", &function, 12000, cudaEnableDefault,
                                               &status));
    EXPECT_EQ(status, cudaDriverEntryPointSymbolNotFound);
}

TEST_F(RuntimeTest, BothVersionsTellTheirNumber)
{
    EXPECT_EQ(First<int>(cudaRuntimeGetVersion), 13000);
    EXPECT_EQ(First<int>(cudaDriverGetVersion), 13000);
    void *twelve = dlopen("libcudart.so.12", RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(twelve, nullptr) << dlerror();
    auto get = reinterpret_cast<cudaError_t (*)(int *)>(dlsym(twelve, "cudaRuntimeGetVersion"));
    ASSERT_NE(get, nullptr);
    EXPECT_EQ(First<int>(get), 12080);
    auto info = reinterpret_cast<cudaError_t (*)(cudaStream_t, cudaStreamCaptureStatus *,
                                                 unsigned long long *)>(
        dlsym(twelve, "cudaStreamGetCaptureInfo"));
    ASSERT_NE(info, nullptr);
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusActive;
    EXPECT_OK(info(nullptr, &status, nullptr));
    EXPECT_EQ(status, cudaStreamCaptureStatusNone);
    EXPECT_NE(dlsym(twelve, "cudaGetDeviceProperties_v2"), nullptr);
}

TEST_F(RuntimeTest, PropertiesAreFilled)
{
    cudaDeviceProp prop;

    ASSERT_OK(cudaGetDeviceProperties(&prop, 1));
    EXPECT_GT(strlen(prop.name), 0u);
    EXPECT_EQ(prop.major, 9);
    EXPECT_GT(prop.totalGlobalMem, 0u);
    EXPECT_EQ(prop.warpSize, 32);
    EXPECT_EQ(cudaGetDeviceProperties(&prop, 100), cudaErrorInvalidDevice);
}

/* ---- what needs a process of its own ---- */

void BeforeInit()
{
    CUcontext ctx;
    int count;

    ASSERT_EQ(cuCtxGetCurrent(&ctx), CUDA_ERROR_NOT_INITIALIZED);
    ASSERT_EQ(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
    ASSERT_EQ(cuStreamSynchronize(nullptr), CUDA_ERROR_NOT_INITIALIZED);
    ASSERT_EQ(cuInit(1), CUDA_ERROR_INVALID_VALUE);
    ASSERT_OK(cuDriverGetVersion(&count));
    ASSERT_OK(cuInit(0));
    ASSERT_EQ(cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
}

CUevent event_at_exit;

void AtExit()
{
    if (cuEventQuery(event_at_exit) != CUDA_ERROR_DEINITIALIZED)
        _exit(1);
    if (cudaDeviceSynchronize() != cudaErrorCudartUnloading)
        _exit(2);
}

void AfterTeardown()
{
    static Gate *gate = new Gate; /* never destroyed: a stream waits on it to the end */

    atexit(AtExit); /* registered before the driver's own, so it runs after it */
    ASSERT_OK(cudaFree(nullptr));
    ASSERT_OK(cuEventCreate(&event_at_exit, CU_EVENT_DISABLE_TIMING));
    /* A stream that hangs does not keep the process from ending. */
    ASSERT_OK(cuLaunchHostFunc(nullptr, Gate::Wait, gate));
    ASSERT_OK(cuEventRecord(event_at_exit, nullptr));
}

/* Runs it in a forked process, in which nothing may fail. */
void InChild(const std::function<void()> &body)
{
    int status;
    pid_t pid = fork();

    if (!pid) {
        body();
        _exit(testing::Test::HasFailure());
    }
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    ASSERT_EQ(status, 0);
}

void ForkBeforeInit()
{
    auto works = [] {
        void *memory;
        ASSERT_OK(cuInit(0));
        ASSERT_OK(cudaMalloc(&memory, 16));
        ASSERT_OK(cudaMemset(memory, 0, 16));
        ASSERT_OK(cudaDeviceSynchronize());
    };

    InChild(works);
    works();
}

void ForkAfterInit()
{
    CUcontext ctx;

    ASSERT_OK(cuInit(0));
    ASSERT_OK(cuCtxCreate(&ctx, nullptr, 0, 0));
    InChild([] {
        CUdeviceptr memory;
        void *pointer;
        ASSERT_EQ(cuMemAlloc(&memory, 16), CUDA_ERROR_NOT_INITIALIZED);
        ASSERT_EQ(cuInit(0), CUDA_ERROR_NOT_INITIALIZED);
        ASSERT_EQ(cudaMalloc(&pointer, 16), cudaErrorInitializationError);
    });
    ASSERT_OK(cuCtxSynchronize());
    ASSERT_OK(cuCtxDestroy(ctx));
}

void Environment()
{
    int count;
    size_t total;
    CUuuid uuid;

    ASSERT_OK(cuInit(0));
    ASSERT_OK(cuDeviceGetCount(&count));
    ASSERT_EQ(count, 2); /* of 4, 2 are visible */
    ASSERT_OK(cuDeviceTotalMem(&total, 0));
    ASSERT_EQ(total, 64u << 20);
    ASSERT_OK(cuDeviceGetUuid(&uuid, 0));
    ASSERT_EQ(uuid.bytes[15], 4); /* the fourth device of the machine */
    void *memory;
    ASSERT_EQ(cudaMalloc(&memory, 65u << 20), cudaErrorMemoryAllocation);
    ASSERT_OK(cudaSetDevice(1));
    ASSERT_OK(cudaMalloc(&memory, 64u << 20));
    ASSERT_OK(cudaFree(memory));
}

void NoDevice()
{
    int count = 5;

    ASSERT_EQ(cuInit(0), CUDA_ERROR_NO_DEVICE);
    ASSERT_EQ(cudaGetDeviceCount(&count), cudaErrorNoDevice);
    ASSERT_EQ(count, 0);
}

struct Fresh {
    const char *name;
    void (*body)();
    std::vector<std::string> environment;
};

const std::vector<Fresh> &FreshCases()
{
    static const std::vector<Fresh> cases = {
        {"BeforeInit", BeforeInit, {}},
        {"AfterTeardown", AfterTeardown, {}},
        {"ForkBeforeInit", ForkBeforeInit, {}},
        {"ForkAfterInit", ForkAfterInit, {}},
        {"Environment",
         Environment,
         {"FAKE_CUDA_DEVICES=4", "CUDA_VISIBLE_DEVICES=3,1", "FAKE_CUDA_MEMORY=64M"}},
        {"NoDevice", NoDevice, {"FAKE_CUDA_DEVICES=0"}},
    };
    return cases;
}

struct FreshProcess : testing::TestWithParam<size_t> {
};

TEST_P(FreshProcess, Behaves)
{
    const Fresh &fresh = FreshCases()[GetParam()];
    std::string argument = std::string("--fresh=") + fresh.name;
    int status;
    pid_t pid = fork();

    if (!pid) {
        for (const std::string &variable : fresh.environment)
            putenv(const_cast<char *>(variable.c_str()));
        alarm(60);
        execl("/proc/self/exe", "test_cuda", argument.c_str(), nullptr);
        _exit(127);
    }
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), 0);
}

INSTANTIATE_TEST_SUITE_P(All, FreshProcess, ::testing::Range<size_t>(0, FreshCases().size()),
                         [](const ::testing::TestParamInfo<size_t> &info) {
                             return FreshCases()[info.param].name;
                         });

} /* namespace */

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (!strncmp(argv[i], "--fresh=", 8))
            for (const Fresh &fresh : FreshCases())
                if (!strcmp(argv[i] + 8, fresh.name)) {
                    fresh.body();
                    return testing::Test::HasFailure();
                }
    ::testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
