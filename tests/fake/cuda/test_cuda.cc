/*
 * What the stand-ins for libcuda and libcudart promise. Every expectation is the documented
 * behaviour of the real libraries, so that what runs here means something there.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

extern char **environ;

/* The call of the driver or of the runtime succeeds: 0 in both. */
#define ASSERT_OK(call) ASSERT_EQ(static_cast<int>(call), 0)
#define EXPECT_OK(call) EXPECT_EQ(static_cast<int>(call), 0)

namespace
{

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

class DriverTest : public ::testing::Test
{
  protected:
    void SetUp() override
    {
        ASSERT_OK(cuInit(0));
        ASSERT_OK(cuCtxCreate(&ctx_, nullptr, 0, 0));
        ASSERT_OK(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    }
    void TearDown() override
    {
        ASSERT_OK(cuCtxSetCurrent(ctx_));
        for (CUevent event : events_)
            EXPECT_OK(cuEventDestroy(event));
        for (CUgraphExec exec : execs_)
            EXPECT_OK(cuGraphExecDestroy(exec));
        for (CUgraph graph : graphs_)
            EXPECT_OK(cuGraphDestroy(graph));
        for (CUdeviceptr memory : memory_)
            EXPECT_OK(cuMemFree(memory));
        for (CUstream stream : streams_)
            EXPECT_OK(cuStreamDestroy(stream));
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
    CUstream Stream(unsigned int flags = CU_STREAM_NON_BLOCKING)
    {
        CUstream stream = nullptr;
        EXPECT_OK(cuStreamCreate(&stream, flags));
        streams_.push_back(stream);
        return stream;
    }
    CUevent Event(unsigned int flags = CU_EVENT_DISABLE_TIMING)
    {
        CUevent event = nullptr;
        EXPECT_OK(cuEventCreate(&event, flags));
        events_.push_back(event);
        return event;
    }
    CUdeviceptr Memory(size_t bytes)
    {
        CUdeviceptr memory = 0;
        EXPECT_OK(cuMemAlloc(&memory, bytes));
        memory_.push_back(memory);
        return memory;
    }
    CUgraph Graph(CUgraph graph = nullptr)
    {
        if (!graph) {
            EXPECT_OK(cuGraphCreate(&graph, 0));
        }
        graphs_.push_back(graph);
        return graph;
    }
    CUgraphExec Exec(CUgraph graph)
    {
        CUgraphExec exec = nullptr;
        EXPECT_OK(cuGraphInstantiate(&exec, graph, 0));
        execs_.push_back(exec);
        return exec;
    }
    /* Launches it, and waits for its end. */
    void Replay(CUgraphExec exec)
    {
        ASSERT_OK(cuGraphLaunch(exec, stream_));
        ASSERT_OK(cuStreamSynchronize(stream_));
    }
    CUcontext ctx_ = nullptr;
    CUstream stream_ = nullptr;

  private:
    std::vector<CUstream> streams_;
    std::vector<CUevent> events_;
    std::vector<CUdeviceptr> memory_;
    std::vector<CUgraph> graphs_;
    std::vector<CUgraphExec> execs_;
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
    CUcontext seen = ctx_;

    std::thread([&] { ASSERT_OK(cuCtxGetCurrent(&seen)); }).join();
    EXPECT_EQ(seen, nullptr);
    ASSERT_OK(cuCtxGetCurrent(&seen));
    EXPECT_EQ(seen, ctx_);
}

TEST_F(DriverTest, PushAndPopRestoreTheContextBelow)
{
    CUcontext other, popped, current;

    ASSERT_OK(cuCtxCreate(&other, nullptr, 0, 1));
    CUdevice device;
    ASSERT_OK(cuCtxGetDevice(&device));
    EXPECT_EQ(device, 1);
    ASSERT_OK(cuCtxPopCurrent(&popped));
    EXPECT_EQ(popped, other);
    ASSERT_OK(cuCtxGetCurrent(&current));
    EXPECT_EQ(current, ctx_);
    EXPECT_OK(cuCtxDestroy(other));
    EXPECT_EQ(cuCtxSetCurrent(other), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT_EQ(cuCtxSetCurrent(reinterpret_cast<CUcontext>(0x1234)), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(DriverTest, PrimaryContextIsCountedAndReset)
{
    CUcontext first, second;
    unsigned int flags;
    int active;

    ASSERT_OK(cuDevicePrimaryCtxRetain(&first, 3));
    ASSERT_OK(cuDevicePrimaryCtxRetain(&second, 3));
    EXPECT_EQ(first, second);
    EXPECT_OK(cuDevicePrimaryCtxRelease(3));
    ASSERT_OK(cuDevicePrimaryCtxGetState(3, &flags, &active));
    EXPECT_EQ(active, 1);
    EXPECT_OK(cuDevicePrimaryCtxRelease(3));
    ASSERT_OK(cuDevicePrimaryCtxGetState(3, &flags, &active));
    EXPECT_EQ(active, 0);
    EXPECT_EQ(cuDevicePrimaryCtxRelease(3), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(cuCtxDestroy(first), CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

TEST_F(DriverTest, APrimaryContextThatWasResetIsAnotherOneAtTheSameAddress)
{
    unsigned long long id, id_again;
    CUcontext first, second, popped;
    CUevent event;

    ASSERT_OK(cuDevicePrimaryCtxRetain(&first, 2));
    ASSERT_OK(cuCtxPushCurrent(first));
    ASSERT_OK(cuCtxGetId(first, &id));
    ASSERT_OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    EXPECT_OK(cuEventQuery(event));
    ASSERT_OK(cuDevicePrimaryCtxReset(2));
    ASSERT_OK(cuDevicePrimaryCtxRetain(&second, 2));
    EXPECT_EQ(first, second);
    ASSERT_OK(cuCtxGetId(second, &id_again));
    EXPECT_NE(id, id_again);
    EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT_EQ(cuEventRecord(event, nullptr), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT_OK(cuCtxPopCurrent(&popped));
    EXPECT_OK(cuDevicePrimaryCtxRelease(2));
}

TEST_F(DriverTest, WrongDevicesAreRefused)
{
    CUdevice device;
    int value;

    EXPECT_EQ(cuDeviceGet(&device, 1000), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_EQ(cuDeviceGet(&device, -1), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
    EXPECT_GT(value, 0);
}

TEST_F(DriverTest, DevicesDifferInBusAndUuid)
{
    std::map<std::string, int> buses, uuids;
    int count;

    ASSERT_OK(cuDeviceGetCount(&count));
    for (int i = 0; i < count; i++) {
        char bus[16];
        CUuuid uuid;
        CUdevice back;
        ASSERT_OK(cuDeviceGetPCIBusId(bus, sizeof(bus), i));
        ASSERT_OK(cuDeviceGetUuid(&uuid, i));
        ASSERT_OK(cuDeviceGetByPCIBusId(&back, bus));
        EXPECT_EQ(back, i);
        buses[bus]++;
        uuids[std::string(uuid.bytes, sizeof(uuid.bytes))]++;
    }
    EXPECT_EQ(buses.size(), static_cast<size_t>(count));
    EXPECT_EQ(uuids.size(), static_cast<size_t>(count));
}

/* ---- memory ---- */

TEST_F(DriverTest, FreedAndUnknownPointersAreRefused)
{
    CUdeviceptr memory, base;
    size_t size;
    char host[8] = {};

    ASSERT_OK(cuMemAlloc(&memory, 1000));
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
    size_t before, total, after;
    CUdeviceptr all, more;

    ASSERT_OK(cuMemGetInfo(&before, &total));
    ASSERT_LE(before, total);
    EXPECT_EQ(cuMemAlloc(&more, total + 1), CUDA_ERROR_OUT_OF_MEMORY);
    ASSERT_OK(cuMemAlloc(&all, before));
    EXPECT_EQ(cuMemAlloc(&more, 1), CUDA_ERROR_OUT_OF_MEMORY);
    ASSERT_OK(cuMemFree(all));
    ASSERT_OK(cuMemGetInfo(&after, &total));
    EXPECT_EQ(after, before);
}

TEST_F(DriverTest, CopiesMoveBytesInAllDirections)
{
    std::vector<unsigned char> in(300000), out(in.size());

    for (size_t i = 0; i < in.size(); i++)
        in[i] = static_cast<unsigned char>(i * 7 + 1);
    CUdeviceptr a = Memory(in.size());
    CUdeviceptr b = Memory(in.size());
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
    CUDA_MEMCPY2D copy = {};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = in;
    copy.srcPitch = 5;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = memory;
    copy.dstPitch = pitch;
    copy.WidthInBytes = 5;
    copy.Height = 3;
    ASSERT_OK(cuMemcpy2D(&copy));
    copy = {};
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = memory;
    copy.srcPitch = pitch;
    copy.srcY = 1;
    copy.srcXInBytes = 2;
    copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.dstHost = out;
    copy.dstPitch = 3;
    copy.WidthInBytes = 3;
    copy.Height = 2;
    ASSERT_OK(cuMemcpy2D(&copy));
    const unsigned char want[] = {8, 9, 10, 13, 14, 15};
    EXPECT_EQ(memcmp(out, want, sizeof(want)), 0);
    EXPECT_OK(cuMemFree(memory));
}

TEST_F(DriverTest, PointerAttributesTellWhoseMemoryItIs)
{
    void *host;
    int local;
    unsigned int type;
    int ordinal;
    CUcontext owner;

    CUdeviceptr memory = Memory(100);
    ASSERT_OK(cuMemHostAlloc(&host, 100, 0));
    ASSERT_OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory + 50));
    EXPECT_EQ(type, static_cast<unsigned int>(CU_MEMORYTYPE_DEVICE));
    ASSERT_OK(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, memory));
    EXPECT_EQ(owner, ctx_);
    ASSERT_OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                    reinterpret_cast<CUdeviceptr>(host)));
    EXPECT_EQ(type, static_cast<unsigned int>(CU_MEMORYTYPE_HOST));
    EXPECT_EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                    reinterpret_cast<CUdeviceptr>(&local)),
              CUDA_ERROR_INVALID_VALUE);
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    void *values[] = {&type, &ordinal};
    EXPECT_OK(cuPointerGetAttributes(2, attributes, values, reinterpret_cast<CUdeviceptr>(&local)));
    EXPECT_EQ(type, 0u);
    EXPECT_EQ(cuMemFree(reinterpret_cast<CUdeviceptr>(host)), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuMemFreeHost(host));
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
    size_t granularity, before, after, total;
    CUmemGenericAllocationHandle handle, imported;
    CUdeviceptr address, second;
    char out = 0;

    ASSERT_OK(cuMemGetInfo(&before, &total));
    ASSERT_OK(
        cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    EXPECT_EQ(cuMemCreate(&handle, granularity + 1, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    ASSERT_OK(cuMemCreate(&handle, granularity, &prop, 0));
    ASSERT_OK(cuMemAddressReserve(&address, granularity, 0, 0, 0));
    ASSERT_OK(cuMemMap(address, granularity, 0, handle, 0));
    EXPECT_EQ(cuMemsetD8(address, 5, 1), CUDA_ERROR_INVALID_VALUE) << "no access was given yet";
    CUmemAccessDesc access = {};
    access.location = prop.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
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
    ASSERT_OK(cuMemGetInfo(&after, &total));
    EXPECT_EQ(after, before);
}

TEST_F(DriverTest, AsyncFreeHappensInStreamOrder)
{
    Gate gate;
    CUdeviceptr memory;
    size_t before, during, after, total;
    char in = 42, *out;

    ASSERT_OK(cuMemHostAlloc(reinterpret_cast<void **>(&out), 1, 0));
    *out = 0;
    ASSERT_OK(cuMemGetInfo(&before, &total));
    ASSERT_OK(cuMemAllocAsync(&memory, 4096, stream_));
    ASSERT_OK(cuLaunchHostFunc(stream_, Gate::Wait, &gate));
    ASSERT_OK(cuMemcpyHtoDAsync(memory, &in, 1, stream_));
    ASSERT_OK(cuMemcpyDtoHAsync(out, memory, 1, stream_));
    ASSERT_OK(cuMemFreeAsync(memory, stream_));
    EXPECT_EQ(cuMemFreeAsync(memory, stream_), CUDA_ERROR_INVALID_VALUE);
    ASSERT_OK(cuMemGetInfo(&during, &total));
    EXPECT_LT(during, before);
    gate.Open();
    ASSERT_OK(cuStreamSynchronize(stream_));
    ASSERT_OK(cuMemGetInfo(&after, &total));
    EXPECT_EQ(after, before);
    EXPECT_EQ(*out, 42);
    EXPECT_OK(cuMemFreeHost(out));
}

TEST_F(DriverTest, UseAfterAsyncFreePoisonsTheContext)
{
    CUdeviceptr memory;
    CUcontext ctx;
    CUstream stream;

    ASSERT_OK(cuCtxCreate(&ctx, nullptr, 0, 1));
    ASSERT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    ASSERT_OK(cuMemAllocAsync(&memory, 64, stream));
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
    std::vector<int> order;
    struct Step {
        std::vector<int> *order;
        int number;
    };
    std::vector<Step> steps;

    for (int i = 0; i < 100; i++)
        steps.push_back({&order, i});
    ASSERT_OK(cuLaunchHostFunc(stream_, Gate::Wait, &gate));
    for (Step &step : steps)
        ASSERT_OK(cuLaunchHostFunc(
            stream_,
            [](void *data) {
                Step *s = static_cast<Step *>(data);
                s->order->push_back(s->number);
            },
            &step));
    EXPECT_EQ(cuStreamQuery(stream_), CUDA_ERROR_NOT_READY);
    gate.Open();
    ASSERT_OK(cuStreamSynchronize(stream_));
    EXPECT_OK(cuStreamQuery(stream_));
    ASSERT_EQ(order.size(), steps.size());
    for (int i = 0; i < 100; i++)
        EXPECT_EQ(order[i], i);
}

TEST_F(DriverTest, HungStreamHoldsUpNoOther)
{
    Gate gate;
    CUstream other = Stream();
    std::atomic<int> count{0};

    ASSERT_OK(cuLaunchHostFunc(stream_, Gate::Wait, &gate));
    gate.AwaitEntered();
    ASSERT_OK(cuLaunchHostFunc(other, Increment, &count));
    ASSERT_OK(cuStreamSynchronize(other));
    EXPECT_EQ(count, 1);
    EXPECT_EQ(cuStreamQuery(stream_), CUDA_ERROR_NOT_READY);
    gate.Open();
    ASSERT_OK(cuStreamSynchronize(stream_));
}

TEST_F(DriverTest, FullQueueBlocksTheEnqueuingCall)
{
    Gate gate;
    std::atomic<int> enqueued{0}, run{0};

    ASSERT_OK(cuLaunchHostFunc(stream_, Gate::Wait, &gate));
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
    CUstream other;
    std::atomic<int> count{0};

    ASSERT_OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    ASSERT_OK(cuLaunchHostFunc(other, Gate::Wait, &gate));
    ASSERT_OK(cuLaunchHostFunc(other, Increment, &count));
    ASSERT_OK(cuStreamDestroy(other));
    EXPECT_EQ(cuStreamQuery(other), CUDA_ERROR_INVALID_HANDLE);
    gate.Open();
    ASSERT_OK(cuCtxSynchronize());
    EXPECT_EQ(count, 1);
}

TEST_F(DriverTest, LegacyStreamOrdersBlockingStreamsOnly)
{
    Gate gate;
    CUstream blocking = Stream(CU_STREAM_DEFAULT);
    std::atomic<int> legacy{0}, free{0};

    ASSERT_OK(cuLaunchHostFunc(blocking, Gate::Wait, &gate));
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
    ASSERT_OK(cuLaunchHostFunc(CU_STREAM_LEGACY, Gate::Wait, &second));
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
    unsigned long long mine, again, theirs = 0;

    ASSERT_OK(cuStreamGetId(CU_STREAM_PER_THREAD, &mine));
    ASSERT_OK(cuStreamGetId(CU_STREAM_PER_THREAD, &again));
    WithContext([&] {
        ASSERT_OK(cuStreamGetId(CU_STREAM_PER_THREAD, &theirs));
        std::atomic<int> count{0};
        ASSERT_OK(cuLaunchHostFunc(CU_STREAM_PER_THREAD, Increment, &count));
        ASSERT_OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
        EXPECT_EQ(count, 1);
    }).join();
    EXPECT_EQ(mine, again);
    EXPECT_NE(mine, theirs);
    EXPECT_EQ(cuStreamDestroy(CU_STREAM_PER_THREAD), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(DriverTest, StreamTellsItsProperties)
{
    CUstream stream;
    unsigned int flags;
    int priority, least, greatest;
    CUcontext ctx;
    CUgreenCtx green = reinterpret_cast<CUgreenCtx>(1);

    ASSERT_OK(cuCtxGetStreamPriorityRange(&least, &greatest));
    ASSERT_OK(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, greatest - 10));
    ASSERT_OK(cuStreamGetFlags(stream, &flags));
    ASSERT_OK(cuStreamGetPriority(stream, &priority));
    ASSERT_OK(cuStreamGetCtx(stream, &ctx));
    EXPECT_EQ(flags, static_cast<unsigned int>(CU_STREAM_NON_BLOCKING));
    EXPECT_EQ(priority, greatest);
    EXPECT_EQ(ctx, ctx_);
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
    cuuint32_t *flag;
    std::atomic<int> count{0};

    ASSERT_OK(cuMemHostAlloc(reinterpret_cast<void **>(&flag), 8, 0));
    *flag = 0;
    CUdeviceptr address = reinterpret_cast<CUdeviceptr>(flag);
    ASSERT_OK(cuStreamWaitValue32(stream_, address, 1, CU_STREAM_WAIT_VALUE_EQ));
    ASSERT_OK(cuLaunchHostFunc(stream_, Increment, &count));
    EXPECT_EQ(cuStreamQuery(stream_), CUDA_ERROR_NOT_READY);
    __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
    ASSERT_OK(cuStreamSynchronize(stream_));
    EXPECT_EQ(count, 1);
    ASSERT_OK(cuStreamWaitValue32(stream_, address, 5, CU_STREAM_WAIT_VALUE_GEQ));
    EXPECT_EQ(cuStreamQuery(stream_), CUDA_ERROR_NOT_READY);
    ASSERT_OK(cuStreamWriteValue32(writer, address, 7, CU_STREAM_WRITE_VALUE_DEFAULT));
    ASSERT_OK(cuStreamSynchronize(stream_));
    ASSERT_OK(cuStreamSynchronize(writer));
    ASSERT_OK(cuStreamWriteValue64(stream_, address, 0x100000001, 0));
    ASSERT_OK(cuStreamSynchronize(stream_));
    EXPECT_EQ(*reinterpret_cast<cuuint64_t *>(flag), 0x100000001u);
    EXPECT_EQ(cuStreamWriteValue32(stream_, address + 2, 1, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuMemFreeHost(flag));
}

/* ---- events ---- */

class EventTest : public DriverTest
{
};

TEST_F(EventTest, NeverRecordedEventIsComplete)
{
    CUevent event;

    ASSERT_OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
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
    CUevent event = Event();

    ASSERT_OK(cuLaunchHostFunc(stream_, Gate::Wait, &gate));
    ASSERT_OK(cuEventRecord(event, stream_));
    EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    gate.Open();
    ASSERT_OK(cuEventSynchronize(event));
    EXPECT_OK(cuEventQuery(event));
}

TEST_F(EventTest, RecordingAgainStartsAnew)
{
    Gate gate;
    CUevent event = Event();

    ASSERT_OK(cuEventRecord(event, stream_));
    ASSERT_OK(cuEventSynchronize(event));
    ASSERT_OK(cuLaunchHostFunc(stream_, Gate::Wait, &gate));
    ASSERT_OK(cuEventRecord(event, stream_));
    EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    gate.Open();
    ASSERT_OK(cuEventSynchronize(event));
}

TEST_F(EventTest, WaitMeansTheRecordingAtTheTimeOfTheCall)
{
    Gate first, second;
    CUevent event;

    ASSERT_OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CUstream waiter = Stream();

    ASSERT_OK(cuLaunchHostFunc(stream_, Gate::Wait, &first));
    ASSERT_OK(cuEventRecord(event, stream_));
    ASSERT_OK(cuStreamWaitEvent(waiter, event, 0));
    ASSERT_OK(cuLaunchHostFunc(stream_, Gate::Wait, &second));
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
    ASSERT_OK(cuLaunchHostFunc(stream_, Gate::Wait, &gate));
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
    CUcontext other;
    CUstream stream;

    ASSERT_OK(cuCtxCreate(&other, nullptr, 0, 1));
    ASSERT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
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
            CUstream stream;
            CUevent event;
            failures += cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS;
            failures += cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS;
            for (int i = 0; i < 300; i++) {
                std::atomic<int> count{0};
                failures += cuLaunchHostFunc(stream, Increment, &count) != CUDA_SUCCESS;
                failures += cuEventRecord(event, stream) != CUDA_SUCCESS;
                CUresult result = cuEventQuery(event);
                failures += result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY;
                failures += cuEventSynchronize(event) != CUDA_SUCCESS;
                failures += count != 1;
            }
            failures += cuEventDestroy(event) != CUDA_SUCCESS;
            failures += cuStreamDestroy(stream) != CUDA_SUCCESS;
        }));
    for (std::thread &thread : threads)
        thread.join();
    EXPECT_EQ(failures, 0);
}

/* ---- capture and graphs ---- */

class CaptureTest : public EventTest
{
  protected:
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
    std::atomic<int> count{0};
    CUgraph graph;
    CUgraphExec exec;
    size_t nodes = 0;
    unsigned char out = 0;

    CUdeviceptr memory = Memory(16);
    ASSERT_OK(cuMemsetD8(memory, 1, 16));
    Begin();
    EXPECT_EQ(Status(stream_), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    ASSERT_OK(cuMemsetD8Async(memory, 9, 8, stream_));
    ASSERT_OK(cuMemcpyDtoDAsync(memory + 8, memory, 8, stream_));
    ASSERT_OK(cuLaunchHostFunc(stream_, Increment, &count));
    ASSERT_OK(cuStreamEndCapture(stream_, &graph));
    ASSERT_OK(cuGraphGetNodes(graph, nullptr, &nodes));
    EXPECT_EQ(nodes, 3u);
    ASSERT_OK(cuStreamSynchronize(stream_));
    EXPECT_EQ(count, 0);
    ASSERT_OK(cuGraphInstantiate(&exec, graph, 0));
    EXPECT_OK(cuGraphDestroy(graph)) << "the executable graph stands alone";
    for (int i = 0; i < 3; i++)
        ASSERT_OK(cuGraphLaunch(exec, stream_));
    EXPECT_OK(cuGraphExecDestroy(exec)) << "launches under way are finished";
    ASSERT_OK(cuStreamSynchronize(stream_));
    EXPECT_EQ(count, 3);
    ASSERT_OK(cuMemcpyDtoH(&out, memory + 15, 1));
    EXPECT_EQ(out, 9);
    EXPECT_EQ(cuGraphLaunch(exec, stream_), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(CaptureTest, ForkedStreamsJoinTheCaptureThroughEvents)
{
    CUevent fork = Event(), join = Event();
    CUstream side = Stream();
    std::atomic<int> count{0};
    size_t edges = 0;

    Begin();
    ASSERT_OK(cuLaunchHostFunc(stream_, Increment, &count));
    ASSERT_OK(cuEventRecord(fork, stream_));
    ASSERT_OK(cuStreamWaitEvent(side, fork, 0));
    EXPECT_EQ(Status(side), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    ASSERT_OK(cuLaunchHostFunc(side, Increment, &count));
    ASSERT_OK(cuLaunchHostFunc(stream_, Increment, &count));
    ASSERT_OK(cuEventRecord(join, side));
    ASSERT_OK(cuStreamWaitEvent(stream_, join, 0));
    ASSERT_OK(cuLaunchHostFunc(stream_, Increment, &count));
    CUgraph graph = End();
    EXPECT_EQ(Status(side), CU_STREAM_CAPTURE_STATUS_NONE);
    ASSERT_OK(cuGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
    EXPECT_EQ(edges, 4u) << "a diamond";
    CUgraphExec exec = Exec(graph);
    Replay(exec);
    EXPECT_EQ(count, 4);
}

TEST_F(CaptureTest, UnjoinedWorkSpoilsTheEnd)
{
    CUevent fork = Event();
    CUstream side = Stream();
    CUgraph graph = reinterpret_cast<CUgraph>(1);
    std::atomic<int> count{0};

    Begin();
    ASSERT_OK(cuEventRecord(fork, stream_));
    ASSERT_OK(cuStreamWaitEvent(side, fork, 0));
    ASSERT_OK(cuLaunchHostFunc(side, Increment, &count));
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
             return result == CUDA_SUCCESS ? cuMemFree(memory) : result;
         }},
        {"cuMemHostAlloc",
         [&] {
             void *memory;
             CUresult result = cuMemHostAlloc(&memory, 8, 0);
             return result == CUDA_SUCCESS ? cuMemFreeHost(memory) : result;
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
    std::atomic<int> count{0};
    CUstreamCaptureStatus status;

    EXPECT_EQ(cuStreamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL),
              CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    ASSERT_OK(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT_EQ(cuStreamIsCapturing(nullptr, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    EXPECT_EQ(Status(blocking), CU_STREAM_CAPTURE_STATUS_ACTIVE) << "asking does no harm";
    EXPECT_EQ(cuLaunchHostFunc(nullptr, Increment, &count), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
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
    CUresult result = CUDA_SUCCESS;

    Begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    WithContext([&] { result = cuStreamEndCapture(stream_, &graph); }).join();
    EXPECT_EQ(result, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    End();
    Begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    WithContext([&] { result = cuStreamEndCapture(stream_, &graph); }).join();
    EXPECT_EQ(result, CUDA_SUCCESS);
    EXPECT_OK(cuGraphDestroy(graph));
}

TEST_F(CaptureTest, ExternalEventIsANodeAndNotReadyWhileTheReplayHasNotReachedIt)
{
    Gate gate;
    CUevent before = Event(), after = Event();
    size_t nodes = 0;

    Begin();
    ASSERT_OK(cuEventRecordWithFlags(before, stream_, CU_EVENT_RECORD_EXTERNAL));
    ASSERT_OK(cuLaunchHostFunc(stream_, Gate::Wait, &gate));
    ASSERT_OK(cuEventRecordWithFlags(after, stream_, CU_EVENT_RECORD_EXTERNAL));
    CUgraph graph = End();
    ASSERT_OK(cuGraphGetNodes(graph, nullptr, &nodes));
    EXPECT_EQ(nodes, 3u);
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
    std::atomic<int> count{0};
    CUgraphNode node;

    Begin();
    ASSERT_OK(cuLaunchHostFunc(stream_, Increment, &count));
    ASSERT_OK(cuStreamGetCaptureInfo(stream_, &status, &id, &graph, &deps, nullptr, &n_deps));
    EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    EXPECT_NE(id, 0u);
    ASSERT_EQ(n_deps, 1u);
    CUDA_HOST_NODE_PARAMS host = {Increment, &count};
    ASSERT_OK(cuGraphAddHostNode(&node, graph, deps, n_deps, &host));
    ASSERT_OK(cuStreamUpdateCaptureDependencies(stream_, &node, nullptr, 1,
                                                CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    ASSERT_OK(cuStreamEndCapture(stream_, &ended));
    EXPECT_EQ(ended, graph);
    CUgraphExec exec = Exec(graph);
    Replay(exec);
    EXPECT_EQ(count, 2);
    EXPECT_OK(cuGraphDestroy(graph));
}

TEST_F(CaptureTest, GraphsAreBuiltClonedUpdatedAndNested)
{
    std::atomic<int> first{0}, second{0}, other{0};
    CUgraph graph, clone, parent;
    CUgraphNode a, b, empty, child, found;
    CUgraphExec exec;
    CUDA_HOST_NODE_PARAMS host = {Increment, &first};

    ASSERT_OK(cuGraphCreate(&graph, 0));
    ASSERT_OK(cuGraphAddHostNode(&a, graph, nullptr, 0, &host));
    host.userData = &second;
    ASSERT_OK(cuGraphAddHostNode(&b, graph, &a, 1, &host));
    ASSERT_OK(cuGraphAddEmptyNode(&empty, graph, &b, 1));
    ASSERT_OK(cuGraphClone(&clone, graph));
    ASSERT_OK(cuGraphNodeFindInClone(&found, b, clone));
    EXPECT_NE(found, b);
    ASSERT_OK(cuGraphCreate(&parent, 0));
    ASSERT_OK(cuGraphAddChildGraphNode(&child, parent, nullptr, 0, graph));
    ASSERT_OK(cuGraphInstantiate(&exec, parent, 0));
    Replay(exec);
    EXPECT_EQ(first, 1);
    EXPECT_EQ(second, 1);
    EXPECT_OK(cuGraphExecDestroy(exec));

    ASSERT_OK(cuGraphInstantiate(&exec, graph, 0));
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
    EXPECT_OK(cuGraphExecDestroy(exec));
    for (CUgraph g : {graph, clone, parent})
        EXPECT_OK(cuGraphDestroy(g));
    EXPECT_EQ(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(CaptureTest, CycleIsRefusedAtInstantiation)
{
    CUgraphNode a, b;
    CUgraphExec exec;

    CUgraph graph = Graph();
    ASSERT_OK(cuGraphAddEmptyNode(&a, graph, nullptr, 0));
    ASSERT_OK(cuGraphAddEmptyNode(&b, graph, &a, 1));
    ASSERT_OK(cuGraphAddDependencies(graph, &b, &a, nullptr, 1));
    EXPECT_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(CaptureTest, ALaunchIntoACaptureIsRefusedAndEndsIt)
{
    std::atomic<int> count{0};
    CUgraph inner, outer;
    CUstreamCaptureStatus status;

    Begin();
    ASSERT_OK(cuLaunchHostFunc(stream_, Increment, &count));
    ASSERT_OK(cuStreamEndCapture(stream_, &inner));
    CUgraphExec exec = Exec(inner);
    Begin();
    EXPECT_EQ(cuGraphLaunch(exec, stream_), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT_EQ(cuGraphLaunch(exec, stream_), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    ASSERT_OK(cuStreamIsCapturing(stream_, &status));
    EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    EXPECT_EQ(cuLaunchHostFunc(stream_, Increment, &count), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_EQ(cuStreamEndCapture(stream_, &outer), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    Replay(exec);
    EXPECT_EQ(count, 1);
    EXPECT_OK(cuGraphDestroy(inner));
}

TEST_F(CaptureTest, LaunchesOfOneExecutableGraphNeverOverlap)
{
    Gate gate;
    CUstream other = Stream();
    std::atomic<int> count{0};

    Begin();
    ASSERT_OK(cuLaunchHostFunc(stream_, Increment, &count));
    ASSERT_OK(cuLaunchHostFunc(stream_, Gate::Wait, &gate));
    CUgraph graph = End();
    CUgraphExec exec = Exec(graph);
    ASSERT_OK(cuGraphLaunch(exec, stream_));
    gate.AwaitEntered();
    ASSERT_OK(cuGraphLaunch(exec, other));
    EXPECT_EQ(cuStreamQuery(other), CUDA_ERROR_NOT_READY);
    EXPECT_EQ(count, 1);
    gate.Open();
    ASSERT_OK(cuStreamSynchronize(other));
    EXPECT_EQ(count, 2);
}

TEST_F(CaptureTest, UserObjectLivesAsLongAsTheGraphs)
{
    std::atomic<int> destroyed{0};
    CUuserObject object;
    CUgraph graph;
    CUgraphExec exec;

    ASSERT_OK(cuGraphCreate(&graph, 0));
    ASSERT_OK(
        cuUserObjectCreate(&object, &destroyed, Increment, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    ASSERT_OK(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    ASSERT_OK(cuGraphInstantiate(&exec, graph, 0));
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
    CUgraph graph = End();
    CUgraphExec exec = Exec(graph);
    Replay(exec);
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

    ASSERT_OK(cuGetErrorName(CUDA_ERROR_NOT_READY, &text));
    EXPECT_STREQ(text, "CUDA_ERROR_NOT_READY");
    ASSERT_OK(cuGetErrorString(CUDA_ERROR_INVALID_VALUE, &text));
    EXPECT_STREQ(text, "invalid argument");
    EXPECT_EQ(cuGetErrorName(static_cast<CUresult>(12345), &text), CUDA_ERROR_INVALID_VALUE);
}

/* ---- the runtime ---- */

class RuntimeTest : public ::testing::Test
{
  protected:
    void SetUp() override
    {
        ASSERT_OK(cudaSetDevice(0));
        (void)cudaGetLastError();
    }
};

TEST_F(RuntimeTest, SetDeviceMakesThePrimaryContextCurrent)
{
    CUcontext current, primary;
    int device;

    ASSERT_OK(cudaSetDevice(2));
    ASSERT_OK(cuCtxGetCurrent(&current));
    ASSERT_OK(cuDevicePrimaryCtxRetain(&primary, 2));
    EXPECT_EQ(current, primary);
    EXPECT_OK(cuDevicePrimaryCtxRelease(2));
    ASSERT_OK(cudaGetDevice(&device));
    EXPECT_EQ(device, 2);
    EXPECT_EQ(cudaSetDevice(1000), cudaErrorInvalidDevice);
    ASSERT_OK(cudaGetDevice(&device));
    EXPECT_EQ(device, 2);
}

TEST_F(RuntimeTest, OtherThreadsBeginWithDeviceZero)
{
    int device = -1;
    void *memory = nullptr;
    cudaPointerAttributes attributes;

    ASSERT_OK(cudaSetDevice(1));
    std::thread([&] {
        ASSERT_OK(cudaGetDevice(&device));
        ASSERT_OK(cudaMalloc(&memory, 10));
    }).join();
    EXPECT_EQ(device, 0);
    ASSERT_OK(cudaPointerGetAttributes(&attributes, memory));
    EXPECT_EQ(attributes.device, 0);
    EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
    EXPECT_OK(cudaFree(memory));
}

TEST_F(RuntimeTest, LastErrorIsKeptForTheThreadUntilAsked)
{
    EXPECT_EQ(cudaFree(reinterpret_cast<void *>(0x10)), cudaErrorInvalidValue);
    EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidValue);
    std::thread([] { EXPECT_OK(cudaGetLastError()); }).join();
    int device;
    ASSERT_OK(cudaGetDevice(&device));
    EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidValue) << "success does not clear it";
    EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
    EXPECT_OK(cudaGetLastError());
    EXPECT_STREQ(cudaGetErrorName(cudaErrorInvalidValue), "cudaErrorInvalidValue");
    EXPECT_STREQ(cudaGetErrorString(cudaErrorInvalidValue), "invalid argument");
}

TEST_F(RuntimeTest, NotReadyIsALastErrorToo)
{
    Gate gate;
    cudaStream_t stream;
    cudaEvent_t event;

    ASSERT_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    ASSERT_OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
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
    void *device;
    int in = 77, out = 0;

    ASSERT_OK(cudaMalloc(&device, sizeof(in)));
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
    (void)cudaGetLastError();
}

TEST_F(RuntimeTest, HostMemoryAndItsAttributes)
{
    void *host = nullptr, *nothing = &host;
    int local;
    cudaPointerAttributes attributes;

    ASSERT_OK(cudaHostAlloc(&host, 100, cudaHostAllocDefault));
    ASSERT_OK(cudaPointerGetAttributes(&attributes, host));
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
    void *memory;

    ASSERT_OK(cudaSetDevice(5));
    ASSERT_OK(cudaMalloc(&memory, 100));
    ASSERT_OK(cudaDeviceReset());
    EXPECT_EQ(cudaFree(memory), cudaErrorInvalidValue);
    ASSERT_OK(cudaMalloc(&memory, 100));
    EXPECT_OK(cudaFree(memory));
    (void)cudaGetLastError();
}

TEST_F(RuntimeTest, PeersAreEnabledOnce)
{
    int can;

    ASSERT_OK(cudaDeviceCanAccessPeer(&can, 0, 1));
    EXPECT_EQ(can, 1);
    ASSERT_OK(cudaDeviceCanAccessPeer(&can, 0, 0));
    EXPECT_EQ(can, 0);
    ASSERT_OK(cudaDeviceEnablePeerAccess(1, 0));
    EXPECT_EQ(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessAlreadyEnabled);
    EXPECT_OK(cudaDeviceDisablePeerAccess(1));
    EXPECT_EQ(cudaDeviceDisablePeerAccess(1), cudaErrorPeerAccessNotEnabled);
    (void)cudaGetLastError();
}

TEST_F(RuntimeTest, CapturesAndReplaysGraphs)
{
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    std::atomic<int> count{0};
    cudaStreamCaptureStatus status;
    unsigned long long id;

    ASSERT_OK(cudaStreamCreate(&stream));
    ASSERT_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    ASSERT_OK(cudaLaunchHostFunc(stream, Increment, &count));
    ASSERT_OK(cudaStreamGetCaptureInfo(stream, &status, &id));
    EXPECT_EQ(status, cudaStreamCaptureStatusActive);
    ASSERT_OK(cudaStreamEndCapture(stream, &graph));
    ASSERT_OK(cudaGraphInstantiate(&exec, graph, 0));
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
    int version = 0;

    ASSERT_OK(cudaRuntimeGetVersion(&version));
    EXPECT_EQ(version, 13000);
    ASSERT_OK(cudaDriverGetVersion(&version));
    EXPECT_EQ(version, 13000);
    void *twelve = dlopen("libcudart.so.12", RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(twelve, nullptr) << dlerror();
    auto get = reinterpret_cast<cudaError_t (*)(int *)>(dlsym(twelve, "cudaRuntimeGetVersion"));
    ASSERT_NE(get, nullptr);
    ASSERT_OK(get(&version));
    EXPECT_EQ(version, 12080);
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
    (void)cudaGetLastError();
}

/* ---- what needs a process of its own ---- */

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);          \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

int BeforeInit()
{
    CUcontext ctx;
    int count;

    REQUIRE(cuCtxGetCurrent(&ctx) == CUDA_ERROR_NOT_INITIALIZED);
    REQUIRE(cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED);
    REQUIRE(cuStreamSynchronize(nullptr) == CUDA_ERROR_NOT_INITIALIZED);
    REQUIRE(cuInit(1) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuDriverGetVersion(&count) == CUDA_SUCCESS);
    REQUIRE(cuInit(0) == CUDA_SUCCESS);
    REQUIRE(cuCtxSynchronize() == CUDA_ERROR_INVALID_CONTEXT);
    return 0;
}

CUevent event_at_exit;

void AtExit()
{
    if (cuEventQuery(event_at_exit) != CUDA_ERROR_DEINITIALIZED)
        _exit(1);
    if (cudaDeviceSynchronize() != cudaErrorCudartUnloading)
        _exit(2);
}

int AfterTeardown()
{
    static Gate *gate = new Gate; /* never destroyed: a stream waits on it to the end */

    atexit(AtExit); /* registered before the driver's own, so it runs after it */
    REQUIRE(cudaFree(nullptr) == cudaSuccess);
    REQUIRE(cuEventCreate(&event_at_exit, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
    /* A stream that hangs does not keep the process from ending. */
    REQUIRE(cuLaunchHostFunc(nullptr, Gate::Wait, gate) == CUDA_SUCCESS);
    REQUIRE(cuEventRecord(event_at_exit, nullptr) == CUDA_SUCCESS);
    return 0;
}

int ChildStatus(const std::function<int()> &body)
{
    int status;
    pid_t pid = fork();

    if (!pid)
        _exit(body());
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        return -1;
    return WEXITSTATUS(status);
}

int ForkBeforeInit()
{
    auto works = [] {
        void *memory;
        REQUIRE(cuInit(0) == CUDA_SUCCESS);
        REQUIRE(cudaMalloc(&memory, 16) == cudaSuccess);
        REQUIRE(cudaMemset(memory, 0, 16) == cudaSuccess);
        REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
        return 0;
    };

    REQUIRE(ChildStatus(works) == 0);
    REQUIRE(works() == 0);
    return 0;
}

int ForkAfterInit()
{
    CUcontext ctx;

    REQUIRE(cuInit(0) == CUDA_SUCCESS);
    REQUIRE(cuCtxCreate(&ctx, nullptr, 0, 0) == CUDA_SUCCESS);
    REQUIRE(ChildStatus([] {
                CUdeviceptr memory;
                void *pointer;
                REQUIRE(cuMemAlloc(&memory, 16) == CUDA_ERROR_NOT_INITIALIZED);
                REQUIRE(cuInit(0) == CUDA_ERROR_NOT_INITIALIZED);
                REQUIRE(cudaMalloc(&pointer, 16) == cudaErrorInitializationError);
                return 0;
            }) == 0);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
    REQUIRE(cuCtxDestroy(ctx) == CUDA_SUCCESS);
    return 0;
}

int Environment()
{
    int count;
    size_t total;
    CUuuid uuid;

    REQUIRE(cuInit(0) == CUDA_SUCCESS);
    REQUIRE(cuDeviceGetCount(&count) == CUDA_SUCCESS);
    REQUIRE(count == 2); /* of 4, 2 are visible */
    REQUIRE(cuDeviceTotalMem(&total, 0) == CUDA_SUCCESS);
    REQUIRE(total == 64u << 20);
    REQUIRE(cuDeviceGetUuid(&uuid, 0) == CUDA_SUCCESS);
    REQUIRE(uuid.bytes[15] == 4); /* the fourth device of the machine */
    void *memory;
    REQUIRE(cudaMalloc(&memory, 65u << 20) == cudaErrorMemoryAllocation);
    REQUIRE(cudaSetDevice(1) == cudaSuccess);
    REQUIRE(cudaMalloc(&memory, 64u << 20) == cudaSuccess);
    REQUIRE(cudaFree(memory) == cudaSuccess);
    return 0;
}

int NoDevice()
{
    int count = 5;

    REQUIRE(cuInit(0) == CUDA_ERROR_NO_DEVICE);
    REQUIRE(cudaGetDeviceCount(&count) == cudaErrorNoDevice);
    REQUIRE(count == 0);
    return 0;
}

struct Fresh {
    const char *name;
    int (*body)();
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

class FreshProcess : public ::testing::TestWithParam<size_t>
{
};

TEST_P(FreshProcess, Behaves)
{
    const Fresh &fresh = FreshCases()[GetParam()];
    std::string argument = std::string("--fresh=") + fresh.name;
    const char *arguments[] = {"test_cuda", argument.c_str(), nullptr};
    std::vector<char *> environment;
    int status;

    for (char **variable = environ; *variable; variable++)
        environment.push_back(*variable);
    for (const std::string &variable : fresh.environment)
        environment.push_back(const_cast<char *>(variable.c_str()));
    environment.push_back(nullptr);
    pid_t pid = fork();
    if (!pid) {
        alarm(60);
        execve("/proc/self/exe", const_cast<char **>(arguments), environment.data());
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
                if (!strcmp(argv[i] + 8, fresh.name))
                    return fresh.body();
    ::testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
