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

namespace
{

/* Holds a stream up until the test lets it go. */
class Gate
{
  public:
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

/* Opens a gate at the end of the test however it ends, so that nothing is left hanging. */
class OpenAtEnd
{
  public:
    explicit OpenAtEnd(Gate &gate) : gate_(gate)
    {
    }
    ~OpenAtEnd()
    {
        gate_.Open();
    }

  private:
    Gate &gate_;
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
        ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
        ASSERT_EQ(cuCtxCreate(&ctx_, nullptr, 0, 0), CUDA_SUCCESS);
        ASSERT_EQ(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    }
    void TearDown() override
    {
        ASSERT_EQ(cuCtxSetCurrent(ctx_), CUDA_SUCCESS);
        EXPECT_EQ(cuStreamDestroy(stream_), CUDA_SUCCESS);
        EXPECT_EQ(cuCtxDestroy(ctx_), CUDA_SUCCESS);
        CUcontext left = nullptr;
        while (cuCtxPopCurrent(&left) == CUDA_SUCCESS)
            ;
    }
    /* A thread of the test with the test's context. */
    std::thread WithContext(std::function<void()> body)
    {
        return std::thread([this, body] {
            ASSERT_EQ(cuCtxSetCurrent(ctx_), CUDA_SUCCESS);
            body();
        });
    }
    CUcontext ctx_ = nullptr;
    CUstream stream_ = nullptr;
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

    std::thread([&] { ASSERT_EQ(cuCtxGetCurrent(&seen), CUDA_SUCCESS); }).join();
    EXPECT_EQ(seen, nullptr);
    ASSERT_EQ(cuCtxGetCurrent(&seen), CUDA_SUCCESS);
    EXPECT_EQ(seen, ctx_);
}

TEST_F(DriverTest, PushAndPopRestoreTheContextBelow)
{
    CUcontext other, popped, current;

    ASSERT_EQ(cuCtxCreate(&other, nullptr, 0, 1), CUDA_SUCCESS);
    CUdevice device;
    ASSERT_EQ(cuCtxGetDevice(&device), CUDA_SUCCESS);
    EXPECT_EQ(device, 1);
    ASSERT_EQ(cuCtxPopCurrent(&popped), CUDA_SUCCESS);
    EXPECT_EQ(popped, other);
    ASSERT_EQ(cuCtxGetCurrent(&current), CUDA_SUCCESS);
    EXPECT_EQ(current, ctx_);
    EXPECT_EQ(cuCtxDestroy(other), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSetCurrent(other), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT_EQ(cuCtxSetCurrent(reinterpret_cast<CUcontext>(0x1234)), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(DriverTest, PrimaryContextIsCountedAndReset)
{
    CUcontext first, second;
    unsigned int flags;
    int active;

    ASSERT_EQ(cuDevicePrimaryCtxRetain(&first, 3), CUDA_SUCCESS);
    ASSERT_EQ(cuDevicePrimaryCtxRetain(&second, 3), CUDA_SUCCESS);
    EXPECT_EQ(first, second);
    EXPECT_EQ(cuDevicePrimaryCtxRelease(3), CUDA_SUCCESS);
    ASSERT_EQ(cuDevicePrimaryCtxGetState(3, &flags, &active), CUDA_SUCCESS);
    EXPECT_EQ(active, 1);
    EXPECT_EQ(cuDevicePrimaryCtxRelease(3), CUDA_SUCCESS);
    ASSERT_EQ(cuDevicePrimaryCtxGetState(3, &flags, &active), CUDA_SUCCESS);
    EXPECT_EQ(active, 0);
    EXPECT_EQ(cuDevicePrimaryCtxRelease(3), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(cuCtxDestroy(first), CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

TEST_F(DriverTest, APrimaryContextThatWasResetIsAnotherOneAtTheSameAddress)
{
    unsigned long long id, id_again;
    CUcontext first, second, popped;
    CUevent event;

    ASSERT_EQ(cuDevicePrimaryCtxRetain(&first, 2), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxPushCurrent(first), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxGetId(first, &id), CUDA_SUCCESS);
    ASSERT_EQ(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    EXPECT_EQ(cuEventQuery(event), CUDA_SUCCESS);
    ASSERT_EQ(cuDevicePrimaryCtxReset(2), CUDA_SUCCESS);
    ASSERT_EQ(cuDevicePrimaryCtxRetain(&second, 2), CUDA_SUCCESS);
    EXPECT_EQ(first, second);
    ASSERT_EQ(cuCtxGetId(second, &id_again), CUDA_SUCCESS);
    EXPECT_NE(id, id_again);
    EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT_EQ(cuEventRecord(event, nullptr), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT_EQ(cuCtxPopCurrent(&popped), CUDA_SUCCESS);
    EXPECT_EQ(cuDevicePrimaryCtxRelease(2), CUDA_SUCCESS);
}

TEST_F(DriverTest, WrongDevicesAreRefused)
{
    CUdevice device;
    int value;

    EXPECT_EQ(cuDeviceGet(&device, 1000), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_EQ(cuDeviceGet(&device, -1), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_EQ(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0),
              CUDA_SUCCESS);
    EXPECT_GT(value, 0);
}

TEST_F(DriverTest, DevicesDifferInBusAndUuid)
{
    std::map<std::string, int> buses, uuids;
    int count;

    ASSERT_EQ(cuDeviceGetCount(&count), CUDA_SUCCESS);
    for (int i = 0; i < count; i++) {
        char bus[16];
        CUuuid uuid;
        CUdevice back;
        ASSERT_EQ(cuDeviceGetPCIBusId(bus, sizeof(bus), i), CUDA_SUCCESS);
        ASSERT_EQ(cuDeviceGetUuid(&uuid, i), CUDA_SUCCESS);
        ASSERT_EQ(cuDeviceGetByPCIBusId(&back, bus), CUDA_SUCCESS);
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

    ASSERT_EQ(cuMemAlloc(&memory, 1000), CUDA_SUCCESS);
    EXPECT_EQ(cuMemGetAddressRange(&base, &size, memory + 999), CUDA_SUCCESS);
    EXPECT_EQ(base, memory);
    EXPECT_EQ(size, 1000u);
    EXPECT_EQ(cuMemcpyHtoD(memory + 996, host, 8), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemFree(memory + 8), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemFree(memory), CUDA_SUCCESS);
    EXPECT_EQ(cuMemFree(memory), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemcpyDtoH(host, memory, 8), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemsetD8(memory, 0, 8), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemGetAddressRange(&base, &size, memory), CUDA_ERROR_NOT_FOUND);
    EXPECT_EQ(cuMemFree(0), CUDA_SUCCESS);
    EXPECT_EQ(cuMemAlloc(&memory, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DriverTest, DeviceMemoryIsLimitedAndGivenBack)
{
    size_t before, total, after;
    CUdeviceptr all, more;

    ASSERT_EQ(cuMemGetInfo(&before, &total), CUDA_SUCCESS);
    ASSERT_LE(before, total);
    EXPECT_EQ(cuMemAlloc(&more, total + 1), CUDA_ERROR_OUT_OF_MEMORY);
    ASSERT_EQ(cuMemAlloc(&all, before), CUDA_SUCCESS);
    EXPECT_EQ(cuMemAlloc(&more, 1), CUDA_ERROR_OUT_OF_MEMORY);
    ASSERT_EQ(cuMemFree(all), CUDA_SUCCESS);
    ASSERT_EQ(cuMemGetInfo(&after, &total), CUDA_SUCCESS);
    EXPECT_EQ(after, before);
}

TEST_F(DriverTest, CopiesMoveBytesInAllDirections)
{
    std::vector<unsigned char> in(300000), out(in.size());
    CUdeviceptr a, b;

    for (size_t i = 0; i < in.size(); i++)
        in[i] = static_cast<unsigned char>(i * 7 + 1);
    ASSERT_EQ(cuMemAlloc(&a, in.size()), CUDA_SUCCESS);
    ASSERT_EQ(cuMemAlloc(&b, in.size()), CUDA_SUCCESS);
    ASSERT_EQ(cuMemcpyHtoDAsync(a, in.data(), in.size(), stream_), CUDA_SUCCESS);
    ASSERT_EQ(cuMemcpyDtoDAsync(b, a, in.size(), stream_), CUDA_SUCCESS);
    ASSERT_EQ(cuMemcpyDtoHAsync(out.data(), b, in.size(), stream_), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
    EXPECT_EQ(in, out);

    ASSERT_EQ(cuMemsetD32(a, 0x01020304, in.size() / 4), CUDA_SUCCESS);
    ASSERT_EQ(cuMemcpy(b, a, in.size()), CUDA_SUCCESS);
    ASSERT_EQ(cuMemcpyDtoH(out.data(), b, in.size()), CUDA_SUCCESS);
    EXPECT_EQ(out[0], 4);
    EXPECT_EQ(out[in.size() - 1], 1);
    ASSERT_EQ(cuMemsetD16(a, 0xabcd, 2), CUDA_SUCCESS);
    ASSERT_EQ(cuMemcpyDtoH(out.data(), a, 5), CUDA_SUCCESS);
    EXPECT_EQ(out[3], 0xab);
    EXPECT_EQ(out[4], 4);
    EXPECT_EQ(cuMemFree(a), CUDA_SUCCESS);
    EXPECT_EQ(cuMemFree(b), CUDA_SUCCESS);
}

TEST_F(DriverTest, PitchedCopyMovesTheRectangleOnly)
{
    CUdeviceptr memory;
    size_t pitch;
    unsigned char in[3 * 5], out[3 * 5] = {};

    for (int i = 0; i < 15; i++)
        in[i] = static_cast<unsigned char>(i + 1);
    ASSERT_EQ(cuMemAllocPitch(&memory, &pitch, 5, 3, 4), CUDA_SUCCESS);
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
    ASSERT_EQ(cuMemcpy2D(&copy), CUDA_SUCCESS);
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
    ASSERT_EQ(cuMemcpy2D(&copy), CUDA_SUCCESS);
    const unsigned char want[] = {8, 9, 10, 13, 14, 15};
    EXPECT_EQ(memcmp(out, want, sizeof(want)), 0);
    EXPECT_EQ(cuMemFree(memory), CUDA_SUCCESS);
}

TEST_F(DriverTest, PointerAttributesTellWhoseMemoryItIs)
{
    CUdeviceptr memory;
    void *host;
    int local;
    unsigned int type;
    int ordinal;
    CUcontext owner;

    ASSERT_EQ(cuMemAlloc(&memory, 100), CUDA_SUCCESS);
    ASSERT_EQ(cuMemHostAlloc(&host, 100, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory + 50),
              CUDA_SUCCESS);
    EXPECT_EQ(type, static_cast<unsigned int>(CU_MEMORYTYPE_DEVICE));
    ASSERT_EQ(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, memory), CUDA_SUCCESS);
    EXPECT_EQ(owner, ctx_);
    ASSERT_EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                    reinterpret_cast<CUdeviceptr>(host)),
              CUDA_SUCCESS);
    EXPECT_EQ(type, static_cast<unsigned int>(CU_MEMORYTYPE_HOST));
    EXPECT_EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                    reinterpret_cast<CUdeviceptr>(&local)),
              CUDA_ERROR_INVALID_VALUE);
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    void *values[] = {&type, &ordinal};
    EXPECT_EQ(cuPointerGetAttributes(2, attributes, values, reinterpret_cast<CUdeviceptr>(&local)),
              CUDA_SUCCESS);
    EXPECT_EQ(type, 0u);
    EXPECT_EQ(cuMemFree(reinterpret_cast<CUdeviceptr>(host)), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemFreeHost(host), CUDA_SUCCESS);
    EXPECT_EQ(cuMemFree(memory), CUDA_SUCCESS);
}

TEST_F(DriverTest, RegisteredHostMemoryIsKnownUntilUnregistered)
{
    std::vector<char> buffer(8192);
    CUdeviceptr device;

    EXPECT_EQ(cuMemHostGetDevicePointer(&device, buffer.data(), 0), CUDA_ERROR_INVALID_VALUE);
    ASSERT_EQ(cuMemHostRegister(buffer.data(), buffer.size(), 0), CUDA_SUCCESS);
    EXPECT_EQ(cuMemHostRegister(buffer.data() + 100, 8, 0),
              CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    EXPECT_EQ(cuMemHostGetDevicePointer(&device, buffer.data(), 0), CUDA_SUCCESS);
    EXPECT_EQ(cuMemHostUnregister(buffer.data()), CUDA_SUCCESS);
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

    ASSERT_EQ(cuMemGetInfo(&before, &total), CUDA_SUCCESS);
    ASSERT_EQ(
        cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
        CUDA_SUCCESS);
    EXPECT_EQ(cuMemCreate(&handle, granularity + 1, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    ASSERT_EQ(cuMemCreate(&handle, granularity, &prop, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuMemAddressReserve(&address, granularity, 0, 0, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuMemMap(address, granularity, 0, handle, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuMemsetD8(address, 5, 1), CUDA_ERROR_INVALID_VALUE) << "no access was given yet";
    CUmemAccessDesc access = {};
    access.location = prop.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    ASSERT_EQ(cuMemSetAccess(address, granularity, &access, 1), CUDA_SUCCESS);
    ASSERT_EQ(cuMemsetD8(address, 5, granularity), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);

    int fd;
    ASSERT_EQ(
        cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
        CUDA_SUCCESS);
    ASSERT_EQ(cuMemImportFromShareableHandle(&imported,
                                             reinterpret_cast<void *>(static_cast<intptr_t>(fd)),
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
              CUDA_SUCCESS);
    close(fd);
    ASSERT_EQ(cuMemAddressReserve(&second, granularity, 0, 0, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuMemMap(second, granularity, 0, imported, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuMemSetAccess(second, granularity, &access, 1), CUDA_SUCCESS);
    ASSERT_EQ(cuMemcpyDtoH(&out, second + granularity - 1, 1), CUDA_SUCCESS);
    EXPECT_EQ(out, 5);

    EXPECT_EQ(cuMemAddressFree(address, granularity), CUDA_ERROR_INVALID_VALUE) << "still mapped";
    for (CUdeviceptr p : {address, second}) {
        EXPECT_EQ(cuMemUnmap(p, granularity), CUDA_SUCCESS);
        EXPECT_EQ(cuMemUnmap(p, granularity), CUDA_ERROR_INVALID_VALUE);
        EXPECT_EQ(cuMemAddressFree(p, granularity), CUDA_SUCCESS);
    }
    EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
    EXPECT_EQ(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemRelease(imported), CUDA_SUCCESS);
    ASSERT_EQ(cuMemGetInfo(&after, &total), CUDA_SUCCESS);
    EXPECT_EQ(after, before);
}

TEST_F(DriverTest, AsyncFreeHappensInStreamOrder)
{
    Gate gate;
    OpenAtEnd open(gate);
    CUdeviceptr memory;
    size_t before, during, after, total;
    char in = 42, *out;

    ASSERT_EQ(cuMemHostAlloc(reinterpret_cast<void **>(&out), 1, 0), CUDA_SUCCESS);
    *out = 0;
    ASSERT_EQ(cuMemGetInfo(&before, &total), CUDA_SUCCESS);
    ASSERT_EQ(cuMemAllocAsync(&memory, 4096, stream_), CUDA_SUCCESS);
    ASSERT_EQ(cuLaunchHostFunc(stream_, Gate::Wait, &gate), CUDA_SUCCESS);
    ASSERT_EQ(cuMemcpyHtoDAsync(memory, &in, 1, stream_), CUDA_SUCCESS);
    ASSERT_EQ(cuMemcpyDtoHAsync(out, memory, 1, stream_), CUDA_SUCCESS);
    ASSERT_EQ(cuMemFreeAsync(memory, stream_), CUDA_SUCCESS);
    EXPECT_EQ(cuMemFreeAsync(memory, stream_), CUDA_ERROR_INVALID_VALUE);
    ASSERT_EQ(cuMemGetInfo(&during, &total), CUDA_SUCCESS);
    EXPECT_LT(during, before);
    gate.Open();
    ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
    ASSERT_EQ(cuMemGetInfo(&after, &total), CUDA_SUCCESS);
    EXPECT_EQ(after, before);
    EXPECT_EQ(*out, 42);
    EXPECT_EQ(cuMemFreeHost(out), CUDA_SUCCESS);
}

TEST_F(DriverTest, UseAfterAsyncFreePoisonsTheContext)
{
    CUdeviceptr memory;
    CUcontext ctx;
    CUstream stream;

    ASSERT_EQ(cuCtxCreate(&ctx, nullptr, 0, 1), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ASSERT_EQ(cuMemAllocAsync(&memory, 64, stream), CUDA_SUCCESS);
    ASSERT_EQ(cuMemFreeAsync(memory, stream), CUDA_SUCCESS);
    /* Still known when it is enqueued or not: in both cases the mistake is told. */
    CUresult result = cuMemsetD8Async(memory, 1, 64, stream);
    if (result == CUDA_SUCCESS) {
        EXPECT_EQ(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
        EXPECT_EQ(cuStreamQuery(stream), CUDA_ERROR_ILLEGAL_ADDRESS) << "it stays";
    } else {
        EXPECT_EQ(result, CUDA_ERROR_INVALID_VALUE);
    }
    EXPECT_EQ(cuCtxDestroy(ctx), CUDA_SUCCESS);
}

/* ---- streams ---- */

TEST_F(DriverTest, EnqueueReturnsAtOnceAndOrderIsKept)
{
    Gate gate;
    OpenAtEnd open(gate);
    std::vector<int> order;
    struct Step {
        std::vector<int> *order;
        int number;
    };
    std::vector<Step> steps;

    for (int i = 0; i < 100; i++)
        steps.push_back({&order, i});
    ASSERT_EQ(cuLaunchHostFunc(stream_, Gate::Wait, &gate), CUDA_SUCCESS);
    for (Step &step : steps)
        ASSERT_EQ(cuLaunchHostFunc(
                      stream_,
                      [](void *data) {
                          Step *s = static_cast<Step *>(data);
                          s->order->push_back(s->number);
                      },
                      &step),
                  CUDA_SUCCESS);
    EXPECT_EQ(cuStreamQuery(stream_), CUDA_ERROR_NOT_READY);
    gate.Open();
    ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamQuery(stream_), CUDA_SUCCESS);
    ASSERT_EQ(order.size(), steps.size());
    for (int i = 0; i < 100; i++)
        EXPECT_EQ(order[i], i);
}

TEST_F(DriverTest, HungStreamHoldsUpNoOther)
{
    Gate gate;
    OpenAtEnd open(gate);
    CUstream other;
    std::atomic<int> count{0};

    ASSERT_EQ(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ASSERT_EQ(cuLaunchHostFunc(stream_, Gate::Wait, &gate), CUDA_SUCCESS);
    gate.AwaitEntered();
    ASSERT_EQ(cuLaunchHostFunc(other, Increment, &count), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamSynchronize(other), CUDA_SUCCESS);
    EXPECT_EQ(count, 1);
    EXPECT_EQ(cuStreamQuery(stream_), CUDA_ERROR_NOT_READY);
    gate.Open();
    ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamDestroy(other), CUDA_SUCCESS);
}

TEST_F(DriverTest, FullQueueBlocksTheEnqueuingCall)
{
    Gate gate;
    OpenAtEnd open(gate);
    std::atomic<int> enqueued{0}, run{0};

    ASSERT_EQ(cuLaunchHostFunc(stream_, Gate::Wait, &gate), CUDA_SUCCESS);
    std::thread thread = WithContext([&] {
        for (int i = 0; i < 3000; i++) {
            ASSERT_EQ(cuLaunchHostFunc(stream_, Increment, &run), CUDA_SUCCESS);
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
    ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
    EXPECT_EQ(run, 3000);
}

TEST_F(DriverTest, DestroyedBusyStreamFinishesItsWork)
{
    Gate gate;
    OpenAtEnd open(gate);
    CUstream other;
    std::atomic<int> count{0};

    ASSERT_EQ(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ASSERT_EQ(cuLaunchHostFunc(other, Gate::Wait, &gate), CUDA_SUCCESS);
    ASSERT_EQ(cuLaunchHostFunc(other, Increment, &count), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamDestroy(other), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamQuery(other), CUDA_ERROR_INVALID_HANDLE);
    gate.Open();
    ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(count, 1);
}

TEST_F(DriverTest, LegacyStreamOrdersBlockingStreamsOnly)
{
    Gate gate;
    OpenAtEnd open(gate);
    CUstream blocking;
    std::atomic<int> legacy{0}, free{0};

    ASSERT_EQ(cuStreamCreate(&blocking, CU_STREAM_DEFAULT), CUDA_SUCCESS);
    ASSERT_EQ(cuLaunchHostFunc(blocking, Gate::Wait, &gate), CUDA_SUCCESS);
    ASSERT_EQ(cuLaunchHostFunc(nullptr, Increment, &legacy), CUDA_SUCCESS);
    ASSERT_EQ(cuLaunchHostFunc(stream_, Increment, &free), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
    EXPECT_EQ(free, 1);
    EXPECT_EQ(legacy, 0) << "the default stream waits for the blocking stream";
    EXPECT_EQ(cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
    gate.Open();
    ASSERT_EQ(cuStreamSynchronize(nullptr), CUDA_SUCCESS);
    EXPECT_EQ(legacy, 1);

    /* And the other way round. */
    Gate second;
    OpenAtEnd open_second(second);
    std::atomic<int> after{0};
    ASSERT_EQ(cuLaunchHostFunc(CU_STREAM_LEGACY, Gate::Wait, &second), CUDA_SUCCESS);
    ASSERT_EQ(cuLaunchHostFunc(blocking, Increment, &after), CUDA_SUCCESS);
    second.AwaitEntered();
    EXPECT_EQ(after, 0);
    EXPECT_EQ(cuStreamQuery(blocking), CUDA_ERROR_NOT_READY);
    second.Open();
    ASSERT_EQ(cuStreamSynchronize(blocking), CUDA_SUCCESS);
    EXPECT_EQ(after, 1);
    EXPECT_EQ(cuStreamDestroy(blocking), CUDA_SUCCESS);
}

TEST_F(DriverTest, PerThreadStreamsAreOneAThread)
{
    unsigned long long mine, again, theirs = 0;

    ASSERT_EQ(cuStreamGetId(CU_STREAM_PER_THREAD, &mine), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamGetId(CU_STREAM_PER_THREAD, &again), CUDA_SUCCESS);
    WithContext([&] {
        ASSERT_EQ(cuStreamGetId(CU_STREAM_PER_THREAD, &theirs), CUDA_SUCCESS);
        std::atomic<int> count{0};
        ASSERT_EQ(cuLaunchHostFunc(CU_STREAM_PER_THREAD, Increment, &count), CUDA_SUCCESS);
        ASSERT_EQ(cuStreamSynchronize(CU_STREAM_PER_THREAD), CUDA_SUCCESS);
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

    ASSERT_EQ(cuCtxGetStreamPriorityRange(&least, &greatest), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, greatest - 10),
              CUDA_SUCCESS);
    ASSERT_EQ(cuStreamGetFlags(stream, &flags), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamGetPriority(stream, &priority), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamGetCtx(stream, &ctx), CUDA_SUCCESS);
    EXPECT_EQ(flags, static_cast<unsigned int>(CU_STREAM_NON_BLOCKING));
    EXPECT_EQ(priority, greatest);
    EXPECT_EQ(ctx, ctx_);
    ASSERT_EQ(cuStreamGetCtx_v2(stream, &ctx, &green), CUDA_SUCCESS);
    EXPECT_EQ(ctx, ctx_);
    EXPECT_EQ(green, nullptr);
    ASSERT_EQ(cuStreamDestroy(stream), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamGetFlags(stream, &flags), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(DriverTest, HostFunctionMayNotCallCuda)
{
    CUresult result = CUDA_SUCCESS;

    ASSERT_EQ(cuLaunchHostFunc(
                  stream_,
                  [](void *data) { *static_cast<CUresult *>(data) = cuStreamSynchronize(nullptr); },
                  &result),
              CUDA_SUCCESS);
    ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
    EXPECT_EQ(result, CUDA_ERROR_NOT_PERMITTED);
}

TEST_F(DriverTest, CallbackGetsStreamAndStatus)
{
    struct Seen {
        CUstream stream;
        CUresult status;
    } seen = {nullptr, CUDA_ERROR_UNKNOWN};

    ASSERT_EQ(cuStreamAddCallback(
                  stream_,
                  [](CUstream stream, CUresult status, void *data) {
                      *static_cast<Seen *>(data) = {stream, status};
                  },
                  &seen, 0),
              CUDA_SUCCESS);
    ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
    EXPECT_EQ(seen.stream, stream_);
    EXPECT_EQ(seen.status, CUDA_SUCCESS);
}

TEST_F(DriverTest, StreamWaitsForAValueThatHostOrStreamWrites)
{
    CUstream writer;
    cuuint32_t *flag;
    std::atomic<int> count{0};

    ASSERT_EQ(cuStreamCreate(&writer, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ASSERT_EQ(cuMemHostAlloc(reinterpret_cast<void **>(&flag), 8, 0), CUDA_SUCCESS);
    *flag = 0;
    CUdeviceptr address = reinterpret_cast<CUdeviceptr>(flag);
    ASSERT_EQ(cuStreamWaitValue32(stream_, address, 1, CU_STREAM_WAIT_VALUE_EQ), CUDA_SUCCESS);
    ASSERT_EQ(cuLaunchHostFunc(stream_, Increment, &count), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamQuery(stream_), CUDA_ERROR_NOT_READY);
    __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
    ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
    EXPECT_EQ(count, 1);
    ASSERT_EQ(cuStreamWaitValue32(stream_, address, 5, CU_STREAM_WAIT_VALUE_GEQ), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamQuery(stream_), CUDA_ERROR_NOT_READY);
    ASSERT_EQ(cuStreamWriteValue32(writer, address, 7, CU_STREAM_WRITE_VALUE_DEFAULT),
              CUDA_SUCCESS);
    ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamSynchronize(writer), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamWriteValue64(stream_, address, 0x100000001, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
    EXPECT_EQ(*reinterpret_cast<cuuint64_t *>(flag), 0x100000001u);
    EXPECT_EQ(cuStreamWriteValue32(stream_, address + 2, 1, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuStreamDestroy(writer), CUDA_SUCCESS);
    EXPECT_EQ(cuMemFreeHost(flag), CUDA_SUCCESS);
}

/* ---- events ---- */

class EventTest : public DriverTest
{
  protected:
    CUevent Create(unsigned int flags = CU_EVENT_DISABLE_TIMING)
    {
        CUevent event = nullptr;
        EXPECT_EQ(cuEventCreate(&event, flags), CUDA_SUCCESS);
        return event;
    }
};

TEST_F(EventTest, NeverRecordedEventIsComplete)
{
    CUevent event = Create();

    EXPECT_EQ(cuEventQuery(event), CUDA_SUCCESS);
    EXPECT_EQ(cuEventSynchronize(event), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamWaitEvent(stream_, event, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamQuery(stream_), CUDA_SUCCESS);
    EXPECT_EQ(cuEventDestroy(event), CUDA_SUCCESS);
    EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuEventDestroy(event), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(EventTest, EventIsNotReadyUntilTheWorkBeforeItIsDone)
{
    Gate gate;
    OpenAtEnd open(gate);
    CUevent event = Create();

    ASSERT_EQ(cuLaunchHostFunc(stream_, Gate::Wait, &gate), CUDA_SUCCESS);
    ASSERT_EQ(cuEventRecord(event, stream_), CUDA_SUCCESS);
    EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    gate.Open();
    ASSERT_EQ(cuEventSynchronize(event), CUDA_SUCCESS);
    EXPECT_EQ(cuEventQuery(event), CUDA_SUCCESS);
    EXPECT_EQ(cuEventDestroy(event), CUDA_SUCCESS);
}

TEST_F(EventTest, RecordingAgainStartsAnew)
{
    Gate gate;
    OpenAtEnd open(gate);
    CUevent event = Create();

    ASSERT_EQ(cuEventRecord(event, stream_), CUDA_SUCCESS);
    ASSERT_EQ(cuEventSynchronize(event), CUDA_SUCCESS);
    ASSERT_EQ(cuLaunchHostFunc(stream_, Gate::Wait, &gate), CUDA_SUCCESS);
    ASSERT_EQ(cuEventRecord(event, stream_), CUDA_SUCCESS);
    EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    gate.Open();
    ASSERT_EQ(cuEventSynchronize(event), CUDA_SUCCESS);
    EXPECT_EQ(cuEventDestroy(event), CUDA_SUCCESS);
}

TEST_F(EventTest, WaitMeansTheRecordingAtTheTimeOfTheCall)
{
    Gate first, second;
    OpenAtEnd open_first(first), open_second(second);
    CUevent event = Create();
    CUstream waiter;

    ASSERT_EQ(cuStreamCreate(&waiter, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ASSERT_EQ(cuLaunchHostFunc(stream_, Gate::Wait, &first), CUDA_SUCCESS);
    ASSERT_EQ(cuEventRecord(event, stream_), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamWaitEvent(waiter, event, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuLaunchHostFunc(stream_, Gate::Wait, &second), CUDA_SUCCESS);
    ASSERT_EQ(cuEventRecord(event, stream_), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamQuery(waiter), CUDA_ERROR_NOT_READY);
    first.Open();
    EXPECT_EQ(cuStreamSynchronize(waiter), CUDA_SUCCESS)
        << "the second recording is not waited for";
    EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    EXPECT_EQ(cuEventDestroy(event), CUDA_SUCCESS) << "a pending event may be destroyed";
    second.Open();
    EXPECT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamDestroy(waiter), CUDA_SUCCESS);
}

TEST_F(EventTest, ElapsedTimeNeedsTimingAndCompletion)
{
    Gate gate;
    OpenAtEnd open(gate);
    CUevent start = Create(CU_EVENT_DEFAULT), end = Create(CU_EVENT_DEFAULT), untimed = Create();
    float ms = -1;

    EXPECT_EQ(cuEventElapsedTime(&ms, start, end), CUDA_ERROR_INVALID_HANDLE);
    ASSERT_EQ(cuEventRecord(start, stream_), CUDA_SUCCESS);
    ASSERT_EQ(cuLaunchHostFunc(stream_, Gate::Wait, &gate), CUDA_SUCCESS);
    ASSERT_EQ(cuEventRecord(end, stream_), CUDA_SUCCESS);
    ASSERT_EQ(cuEventRecord(untimed, stream_), CUDA_SUCCESS);
    EXPECT_EQ(cuEventElapsedTime(&ms, start, end), CUDA_ERROR_NOT_READY);
    EXPECT_EQ(cuEventElapsedTime(&ms, start, untimed), CUDA_ERROR_INVALID_HANDLE);
    gate.Open();
    ASSERT_EQ(cuEventSynchronize(end), CUDA_SUCCESS);
    ASSERT_EQ(cuEventElapsedTime(&ms, start, end), CUDA_SUCCESS);
    EXPECT_GE(ms, 0);
    EXPECT_EQ(cuEventElapsedTime(&ms, end, start), CUDA_SUCCESS);
    EXPECT_LE(ms, 0);
    for (CUevent event : {start, end, untimed})
        EXPECT_EQ(cuEventDestroy(event), CUDA_SUCCESS);
}

TEST_F(EventTest, EventAndStreamMustShareTheContext)
{
    CUevent event = Create();
    CUcontext other;
    CUstream stream;

    ASSERT_EQ(cuCtxCreate(&other, nullptr, 0, 1), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    EXPECT_EQ(cuEventRecord(event, stream), CUDA_ERROR_INVALID_HANDLE);
    ASSERT_EQ(cuEventRecord(event, stream_), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamWaitEvent(stream, event, 0), CUDA_SUCCESS) << "waiting across is allowed";
    EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxDestroy(other), CUDA_SUCCESS);
    EXPECT_EQ(cuEventDestroy(event), CUDA_SUCCESS);
}

TEST_F(EventTest, FlagsAreChecked)
{
    CUevent event;

    EXPECT_EQ(cuEventCreate(&event, 0x100), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuEventCreate(&event, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);
    event = Create(CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC);
    EXPECT_EQ(cuEventRecordWithFlags(event, stream_, CU_EVENT_RECORD_EXTERNAL),
              CUDA_ERROR_INVALID_VALUE)
        << "external is for captures";
    EXPECT_EQ(cuEventDestroy(event), CUDA_SUCCESS);
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
        EXPECT_EQ(cuStreamIsCapturing(stream, &status), CUDA_SUCCESS);
        return status;
    }
    void Begin(CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL)
    {
        ASSERT_EQ(cuStreamBeginCapture(stream_, mode), CUDA_SUCCESS);
    }
    void ExpectInvalidated()
    {
        CUgraph graph = reinterpret_cast<CUgraph>(1);
        EXPECT_EQ(Status(stream_), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
        EXPECT_EQ(cuStreamEndCapture(stream_, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        EXPECT_EQ(graph, nullptr);
        EXPECT_EQ(Status(stream_), CU_STREAM_CAPTURE_STATUS_NONE);
    }
    void EndAndDrop()
    {
        CUgraph graph = nullptr;
        ASSERT_EQ(cuStreamEndCapture(stream_, &graph), CUDA_SUCCESS);
        EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
    }
};

TEST_F(CaptureTest, CapturedWorkRunsAtEachReplayAndNotBefore)
{
    std::atomic<int> count{0};
    CUdeviceptr memory;
    CUgraph graph;
    CUgraphExec exec;
    size_t nodes = 0;
    unsigned char out = 0;

    ASSERT_EQ(cuMemAlloc(&memory, 16), CUDA_SUCCESS);
    ASSERT_EQ(cuMemsetD8(memory, 1, 16), CUDA_SUCCESS);
    Begin();
    EXPECT_EQ(Status(stream_), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    ASSERT_EQ(cuMemsetD8Async(memory, 9, 8, stream_), CUDA_SUCCESS);
    ASSERT_EQ(cuMemcpyDtoDAsync(memory + 8, memory, 8, stream_), CUDA_SUCCESS);
    ASSERT_EQ(cuLaunchHostFunc(stream_, Increment, &count), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamEndCapture(stream_, &graph), CUDA_SUCCESS);
    ASSERT_EQ(cuGraphGetNodes(graph, nullptr, &nodes), CUDA_SUCCESS);
    EXPECT_EQ(nodes, 3u);
    ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
    EXPECT_EQ(count, 0);
    ASSERT_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS) << "the executable graph stands alone";
    for (int i = 0; i < 3; i++)
        ASSERT_EQ(cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS) << "launches under way are finished";
    ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
    EXPECT_EQ(count, 3);
    ASSERT_EQ(cuMemcpyDtoH(&out, memory + 15, 1), CUDA_SUCCESS);
    EXPECT_EQ(out, 9);
    EXPECT_EQ(cuGraphLaunch(exec, stream_), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemFree(memory), CUDA_SUCCESS);
}

TEST_F(CaptureTest, ForkedStreamsJoinTheCaptureThroughEvents)
{
    CUevent fork = Create(), join = Create();
    CUstream side;
    CUgraph graph;
    std::atomic<int> count{0};
    size_t edges = 0;

    ASSERT_EQ(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    Begin();
    ASSERT_EQ(cuLaunchHostFunc(stream_, Increment, &count), CUDA_SUCCESS);
    ASSERT_EQ(cuEventRecord(fork, stream_), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamWaitEvent(side, fork, 0), CUDA_SUCCESS);
    EXPECT_EQ(Status(side), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    ASSERT_EQ(cuLaunchHostFunc(side, Increment, &count), CUDA_SUCCESS);
    ASSERT_EQ(cuLaunchHostFunc(stream_, Increment, &count), CUDA_SUCCESS);
    ASSERT_EQ(cuEventRecord(join, side), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamWaitEvent(stream_, join, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuLaunchHostFunc(stream_, Increment, &count), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamEndCapture(stream_, &graph), CUDA_SUCCESS);
    EXPECT_EQ(Status(side), CU_STREAM_CAPTURE_STATUS_NONE);
    ASSERT_EQ(cuGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges), CUDA_SUCCESS);
    EXPECT_EQ(edges, 4u) << "a diamond";
    CUgraphExec exec;
    ASSERT_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
    EXPECT_EQ(count, 4);
    EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamDestroy(side), CUDA_SUCCESS);
    EXPECT_EQ(cuEventDestroy(fork), CUDA_SUCCESS);
    EXPECT_EQ(cuEventDestroy(join), CUDA_SUCCESS);
}

TEST_F(CaptureTest, UnjoinedWorkSpoilsTheEnd)
{
    CUevent fork = Create();
    CUstream side;
    CUgraph graph = reinterpret_cast<CUgraph>(1);
    std::atomic<int> count{0};

    ASSERT_EQ(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    Begin();
    ASSERT_EQ(cuEventRecord(fork, stream_), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamWaitEvent(side, fork, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuLaunchHostFunc(side, Increment, &count), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamEndCapture(side, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    EXPECT_EQ(cuStreamEndCapture(stream_, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    EXPECT_EQ(graph, nullptr);
    EXPECT_EQ(cuStreamEndCapture(stream_, &graph), CUDA_ERROR_ILLEGAL_STATE);
    EXPECT_EQ(cuStreamDestroy(side), CUDA_SUCCESS);
    EXPECT_EQ(cuEventDestroy(fork), CUDA_SUCCESS);
}

TEST_F(CaptureTest, EventRecordedInCaptureCannotBeLookedAt)
{
    CUevent event = Create();

    Begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    ASSERT_EQ(cuEventRecord(event, stream_), CUDA_SUCCESS);
    EndAndDrop();
    EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_CAPTURED_EVENT);
    EXPECT_EQ(cuEventSynchronize(event), CUDA_ERROR_CAPTURED_EVENT);
    EXPECT_EQ(cuStreamWaitEvent(stream_, event, 0), CUDA_ERROR_CAPTURED_EVENT);
    ASSERT_EQ(cuEventRecord(event, stream_), CUDA_SUCCESS);
    EXPECT_EQ(cuEventSynchronize(event), CUDA_SUCCESS) << "recorded again, outside";

    Begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    ASSERT_EQ(cuEventRecord(event, stream_), CUDA_SUCCESS);
    EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_CAPTURED_EVENT);
    ExpectInvalidated();
    EXPECT_EQ(cuEventDestroy(event), CUDA_SUCCESS);
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
    CUevent event = Create();
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
                ASSERT_EQ(cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
                EXPECT_EQ(mode, global) << "the mode that every thread begins with";
                result = call.second();
                ASSERT_EQ(cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
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
                EndAndDrop();
            }
        }
    EXPECT_EQ(cuEventDestroy(event), CUDA_SUCCESS);
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
    CUstream blocking;
    CUgraph graph;
    std::atomic<int> count{0};
    CUstreamCaptureStatus status;

    EXPECT_EQ(cuStreamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL),
              CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    ASSERT_EQ(cuStreamCreate(&blocking, CU_STREAM_DEFAULT), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamIsCapturing(nullptr, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    EXPECT_EQ(Status(blocking), CU_STREAM_CAPTURE_STATUS_ACTIVE) << "asking does no harm";
    EXPECT_EQ(cuLaunchHostFunc(nullptr, Increment, &count), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    EXPECT_EQ(cuStreamEndCapture(blocking, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_EQ(cuStreamDestroy(blocking), CUDA_SUCCESS);
}

TEST_F(CaptureTest, WorkFromOutsideOrAnotherCaptureIsRefused)
{
    CUevent outside = Create(), theirs = Create();
    CUstream other;
    CUgraph graph;

    ASSERT_EQ(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ASSERT_EQ(cuEventRecord(outside, other), CUDA_SUCCESS);
    Begin();
    EXPECT_EQ(cuStreamWaitEvent(stream_, outside, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    ExpectInvalidated();
    Begin();
    ASSERT_EQ(cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    ASSERT_EQ(cuEventRecord(theirs, other), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamWaitEvent(stream_, theirs, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
    ExpectInvalidated();
    EXPECT_EQ(cuStreamEndCapture(other, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_EQ(cuStreamDestroy(other), CUDA_SUCCESS);
    EXPECT_EQ(cuEventDestroy(outside), CUDA_SUCCESS);
    EXPECT_EQ(cuEventDestroy(theirs), CUDA_SUCCESS);
}

TEST_F(CaptureTest, OnlyTheOwnerEndsACaptureThatIsNotRelaxed)
{
    CUgraph graph = nullptr;
    CUresult result = CUDA_SUCCESS;

    Begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    WithContext([&] { result = cuStreamEndCapture(stream_, &graph); }).join();
    EXPECT_EQ(result, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    EndAndDrop();
    Begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    WithContext([&] { result = cuStreamEndCapture(stream_, &graph); }).join();
    EXPECT_EQ(result, CUDA_SUCCESS);
    EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
}

TEST_F(CaptureTest, ExternalEventIsANodeAndNotReadyWhileTheReplayHasNotReachedIt)
{
    Gate gate;
    OpenAtEnd open(gate);
    CUevent before = Create(), after = Create();
    CUgraph graph;
    CUgraphExec exec;
    size_t nodes = 0;

    Begin();
    ASSERT_EQ(cuEventRecordWithFlags(before, stream_, CU_EVENT_RECORD_EXTERNAL), CUDA_SUCCESS);
    ASSERT_EQ(cuLaunchHostFunc(stream_, Gate::Wait, &gate), CUDA_SUCCESS);
    ASSERT_EQ(cuEventRecordWithFlags(after, stream_, CU_EVENT_RECORD_EXTERNAL), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamEndCapture(stream_, &graph), CUDA_SUCCESS);
    ASSERT_EQ(cuGraphGetNodes(graph, nullptr, &nodes), CUDA_SUCCESS);
    EXPECT_EQ(nodes, 3u);
    EXPECT_EQ(cuEventQuery(after), CUDA_SUCCESS) << "never recorded so far";
    ASSERT_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
    EXPECT_EQ(cuEventQuery(after), CUDA_ERROR_NOT_READY);
    ASSERT_EQ(cuEventSynchronize(before), CUDA_SUCCESS);
    gate.AwaitEntered();
    EXPECT_EQ(cuEventQuery(after), CUDA_ERROR_NOT_READY);
    gate.Open();
    ASSERT_EQ(cuEventSynchronize(after), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
    EXPECT_EQ(cuEventDestroy(before), CUDA_SUCCESS);
    EXPECT_EQ(cuEventDestroy(after), CUDA_SUCCESS);
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
    ASSERT_EQ(cuLaunchHostFunc(stream_, Increment, &count), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamGetCaptureInfo(stream_, &status, &id, &graph, &deps, nullptr, &n_deps),
              CUDA_SUCCESS);
    EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    EXPECT_NE(id, 0u);
    ASSERT_EQ(n_deps, 1u);
    CUDA_HOST_NODE_PARAMS host = {Increment, &count};
    ASSERT_EQ(cuGraphAddHostNode(&node, graph, deps, n_deps, &host), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamUpdateCaptureDependencies(stream_, &node, nullptr, 1,
                                                CU_STREAM_SET_CAPTURE_DEPENDENCIES),
              CUDA_SUCCESS);
    ASSERT_EQ(cuStreamEndCapture(stream_, &ended), CUDA_SUCCESS);
    EXPECT_EQ(ended, graph);
    CUgraphExec exec;
    ASSERT_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
    EXPECT_EQ(count, 2);
    EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
}

TEST_F(CaptureTest, GraphsAreBuiltClonedUpdatedAndNested)
{
    std::atomic<int> first{0}, second{0}, other{0};
    CUgraph graph, clone, parent;
    CUgraphNode a, b, empty, child, found;
    CUgraphExec exec;
    CUDA_HOST_NODE_PARAMS host = {Increment, &first};

    ASSERT_EQ(cuGraphCreate(&graph, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuGraphAddHostNode(&a, graph, nullptr, 0, &host), CUDA_SUCCESS);
    host.userData = &second;
    ASSERT_EQ(cuGraphAddHostNode(&b, graph, &a, 1, &host), CUDA_SUCCESS);
    ASSERT_EQ(cuGraphAddEmptyNode(&empty, graph, &b, 1), CUDA_SUCCESS);
    ASSERT_EQ(cuGraphClone(&clone, graph), CUDA_SUCCESS);
    ASSERT_EQ(cuGraphNodeFindInClone(&found, b, clone), CUDA_SUCCESS);
    EXPECT_NE(found, b);
    ASSERT_EQ(cuGraphCreate(&parent, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuGraphAddChildGraphNode(&child, parent, nullptr, 0, graph), CUDA_SUCCESS);
    ASSERT_EQ(cuGraphInstantiate(&exec, parent, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
    EXPECT_EQ(first, 1);
    EXPECT_EQ(second, 1);
    EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);

    ASSERT_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
    host.userData = &other;
    ASSERT_EQ(cuGraphExecHostNodeSetParams(exec, b, &host), CUDA_SUCCESS);
    ASSERT_EQ(cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
    EXPECT_EQ(second, 1);
    EXPECT_EQ(other, 1);
    CUgraphExecUpdateResultInfo info;
    ASSERT_EQ(cuGraphExecUpdate(exec, clone, &info), CUDA_SUCCESS);
    ASSERT_EQ(cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
    EXPECT_EQ(second, 2);
    EXPECT_EQ(cuGraphExecUpdate(exec, parent, &info), CUDA_SUCCESS) << "the same steps, nested";
    ASSERT_EQ(cuGraphDestroyNode(empty), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphExecUpdate(exec, graph, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
    for (CUgraph g : {graph, clone, parent})
        EXPECT_EQ(cuGraphDestroy(g), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(CaptureTest, CycleIsRefusedAtInstantiation)
{
    CUgraph graph;
    CUgraphNode a, b;
    CUgraphExec exec;

    ASSERT_EQ(cuGraphCreate(&graph, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuGraphAddEmptyNode(&a, graph, nullptr, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuGraphAddEmptyNode(&b, graph, &a, 1), CUDA_SUCCESS);
    ASSERT_EQ(cuGraphAddDependencies(graph, &b, &a, nullptr, 1), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
}

TEST_F(CaptureTest, ALaunchIntoACaptureIsRefusedAndEndsIt)
{
    std::atomic<int> count{0};
    CUgraph inner, outer;
    CUgraphExec exec;
    CUstreamCaptureStatus status;

    Begin();
    ASSERT_EQ(cuLaunchHostFunc(stream_, Increment, &count), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamEndCapture(stream_, &inner), CUDA_SUCCESS);
    ASSERT_EQ(cuGraphInstantiate(&exec, inner, 0), CUDA_SUCCESS);
    Begin();
    EXPECT_EQ(cuGraphLaunch(exec, stream_), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT_EQ(cuGraphLaunch(exec, stream_), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    ASSERT_EQ(cuStreamIsCapturing(stream_, &status), CUDA_SUCCESS);
    EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    EXPECT_EQ(cuLaunchHostFunc(stream_, Increment, &count), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_EQ(cuStreamEndCapture(stream_, &outer), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    ASSERT_EQ(cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
    EXPECT_EQ(count, 1);
    EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphDestroy(inner), CUDA_SUCCESS);
}

TEST_F(CaptureTest, LaunchesOfOneExecutableGraphNeverOverlap)
{
    Gate gate;
    OpenAtEnd open(gate);
    CUstream other;
    CUgraph graph;
    CUgraphExec exec;
    std::atomic<int> count{0};

    ASSERT_EQ(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    Begin();
    ASSERT_EQ(cuLaunchHostFunc(stream_, Increment, &count), CUDA_SUCCESS);
    ASSERT_EQ(cuLaunchHostFunc(stream_, Gate::Wait, &gate), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamEndCapture(stream_, &graph), CUDA_SUCCESS);
    ASSERT_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
    gate.AwaitEntered();
    ASSERT_EQ(cuGraphLaunch(exec, other), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamQuery(other), CUDA_ERROR_NOT_READY);
    EXPECT_EQ(count, 1);
    gate.Open();
    ASSERT_EQ(cuStreamSynchronize(other), CUDA_SUCCESS);
    EXPECT_EQ(count, 2);
    EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamDestroy(other), CUDA_SUCCESS);
}

TEST_F(CaptureTest, UserObjectLivesAsLongAsTheGraphs)
{
    std::atomic<int> destroyed{0};
    CUuserObject object;
    CUgraph graph;
    CUgraphExec exec;

    ASSERT_EQ(cuGraphCreate(&graph, 0), CUDA_SUCCESS);
    ASSERT_EQ(
        cuUserObjectCreate(&object, &destroyed, Increment, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC),
        CUDA_SUCCESS);
    ASSERT_EQ(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE), CUDA_SUCCESS);
    ASSERT_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
    EXPECT_EQ(destroyed, 0);
    ASSERT_EQ(cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
    ASSERT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
    while (!destroyed)
        std::this_thread::yield();
    EXPECT_EQ(destroyed, 1);
}

TEST_F(CaptureTest, ValueWriteIsCapturedWithItsBarrierOnly)
{
    CUdeviceptr memory;
    CUgraph graph;
    CUgraphExec exec;
    cuuint64_t out = 0;

    ASSERT_EQ(cuMemAlloc(&memory, 8), CUDA_SUCCESS);
    ASSERT_EQ(cuMemsetD8(memory, 0, 8), CUDA_SUCCESS);
    Begin();
    EXPECT_NE(cuStreamWriteValue64(stream_, memory, 3, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER),
              CUDA_SUCCESS);
    ASSERT_EQ(cuStreamWriteValue64(stream_, memory, 4, CU_STREAM_WRITE_VALUE_DEFAULT),
              CUDA_SUCCESS);
    ASSERT_EQ(cuStreamEndCapture(stream_, &graph), CUDA_SUCCESS);
    ASSERT_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
    ASSERT_EQ(cuMemcpyDtoH(&out, memory, 8), CUDA_SUCCESS);
    EXPECT_EQ(out, 4u);
    EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
    EXPECT_EQ(cuMemFree(memory), CUDA_SUCCESS);
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
        ASSERT_EQ(cuGetProcAddress(row.name, &function, row.version, row.flags, &status),
                  CUDA_SUCCESS);
        EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SUCCESS);
        EXPECT_EQ(function, dlsym(RTLD_DEFAULT, row.symbol)) << row.symbol;
    }
    EXPECT_EQ(cuGetProcAddress("cuStreamGetCaptureInfo", &function, 9000, 0, &status),
              CUDA_SUCCESS);
    EXPECT_EQ(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    EXPECT_EQ(function, nullptr);
    EXPECT_EQ(cuGetProcAddress("cuNoSuchFunction", &function, 13000, 0, &status), CUDA_SUCCESS);
    EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    EXPECT_EQ(cuGetProcAddress("cuNoSuchFunction", &function, 13000, 0, nullptr),
              CUDA_ERROR_NOT_FOUND);
}

TEST_F(DriverTest, EveryExportedFunctionIsAnswered)
{
    /* The version decides which form of these two is meant: asked as of CUDA 13 they take a
     * context. */
    void *function;

    ASSERT_EQ(cuGetProcAddress("cuCtxGetDevice", &function, 12000, 0, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(function, dlsym(RTLD_DEFAULT, "cuCtxGetDevice"));
    ASSERT_EQ(cuGetProcAddress("cuCtxGetDevice", &function, 13000, 0, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(function, dlsym(RTLD_DEFAULT, "cuCtxGetDevice_v2"));
    const char *const symbols[] = {
#define API(name, version, symbol)  #symbol,
#define PTSZ(name, version, symbol) #symbol,
#define UNSUPPORTED(name)           #name,
#include "tests/fake/cuda/cuda_api.def"
#include "tests/fake/cuda/cuda_unsupported.def"
    };
    for (const char *symbol : symbols) {
        SCOPED_TRACE(symbol);
        ASSERT_NE(dlsym(RTLD_DEFAULT, symbol), nullptr);
        EXPECT_EQ(cuGetProcAddress(symbol, &function, 13000, 0, nullptr), CUDA_SUCCESS);
        EXPECT_NE(function, nullptr);
    }
}

TEST_F(DriverTest, ErrorsHaveNamesAndTexts)
{
    const char *text;

    ASSERT_EQ(cuGetErrorName(CUDA_ERROR_NOT_READY, &text), CUDA_SUCCESS);
    EXPECT_STREQ(text, "CUDA_ERROR_NOT_READY");
    ASSERT_EQ(cuGetErrorString(CUDA_ERROR_INVALID_VALUE, &text), CUDA_SUCCESS);
    EXPECT_STREQ(text, "invalid argument");
    EXPECT_EQ(cuGetErrorName(static_cast<CUresult>(12345), &text), CUDA_ERROR_INVALID_VALUE);
}

/* ---- the runtime ---- */

class RuntimeTest : public ::testing::Test
{
  protected:
    void SetUp() override
    {
        ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
        (void)cudaGetLastError();
    }
};

TEST_F(RuntimeTest, SetDeviceMakesThePrimaryContextCurrent)
{
    CUcontext current, primary;
    int device;

    ASSERT_EQ(cudaSetDevice(2), cudaSuccess);
    ASSERT_EQ(cuCtxGetCurrent(&current), CUDA_SUCCESS);
    ASSERT_EQ(cuDevicePrimaryCtxRetain(&primary, 2), CUDA_SUCCESS);
    EXPECT_EQ(current, primary);
    EXPECT_EQ(cuDevicePrimaryCtxRelease(2), CUDA_SUCCESS);
    ASSERT_EQ(cudaGetDevice(&device), cudaSuccess);
    EXPECT_EQ(device, 2);
    EXPECT_EQ(cudaSetDevice(1000), cudaErrorInvalidDevice);
    ASSERT_EQ(cudaGetDevice(&device), cudaSuccess);
    EXPECT_EQ(device, 2);
}

TEST_F(RuntimeTest, OtherThreadsBeginWithDeviceZero)
{
    int device = -1;
    void *memory = nullptr;
    cudaPointerAttributes attributes;

    ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
    std::thread([&] {
        ASSERT_EQ(cudaGetDevice(&device), cudaSuccess);
        ASSERT_EQ(cudaMalloc(&memory, 10), cudaSuccess);
    }).join();
    EXPECT_EQ(device, 0);
    ASSERT_EQ(cudaPointerGetAttributes(&attributes, memory), cudaSuccess);
    EXPECT_EQ(attributes.device, 0);
    EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
    EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

TEST_F(RuntimeTest, LastErrorIsKeptForTheThreadUntilAsked)
{
    EXPECT_EQ(cudaFree(reinterpret_cast<void *>(0x10)), cudaErrorInvalidValue);
    EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidValue);
    std::thread([] { EXPECT_EQ(cudaGetLastError(), cudaSuccess); }).join();
    int device;
    ASSERT_EQ(cudaGetDevice(&device), cudaSuccess);
    EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidValue) << "success does not clear it";
    EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    EXPECT_STREQ(cudaGetErrorName(cudaErrorInvalidValue), "cudaErrorInvalidValue");
    EXPECT_STREQ(cudaGetErrorString(cudaErrorInvalidValue), "invalid argument");
}

TEST_F(RuntimeTest, NotReadyIsALastErrorToo)
{
    Gate gate;
    OpenAtEnd open(gate);
    cudaStream_t stream;
    cudaEvent_t event;

    ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
    ASSERT_EQ(cudaLaunchHostFunc(stream, Gate::Wait, &gate), cudaSuccess);
    ASSERT_EQ(cudaEventRecord(event, stream), cudaSuccess);
    EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
    EXPECT_EQ(cudaGetLastError(), cudaErrorNotReady);
    gate.Open();
    ASSERT_EQ(cudaEventSynchronize(event), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
}

TEST_F(RuntimeTest, CopiesCheckTheirDirection)
{
    void *device;
    int in = 77, out = 0;

    ASSERT_EQ(cudaMalloc(&device, sizeof(in)), cudaSuccess);
    ASSERT_EQ(cudaMemcpy(device, &in, sizeof(in), cudaMemcpyHostToDevice), cudaSuccess);
    ASSERT_EQ(cudaMemcpy(&out, device, sizeof(out), cudaMemcpyDefault), cudaSuccess);
    EXPECT_EQ(out, 77);
    EXPECT_EQ(cudaMemcpy(&out, &in, sizeof(in), cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    EXPECT_EQ(cudaMemcpy(&out, &in, sizeof(in), static_cast<cudaMemcpyKind>(77)),
              cudaErrorInvalidMemcpyDirection);
    ASSERT_EQ(cudaMemset(device, 0xff, sizeof(in)), cudaSuccess);
    ASSERT_EQ(cudaMemcpyAsync(&out, device, sizeof(out), cudaMemcpyDeviceToHost, nullptr),
              cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
    EXPECT_EQ(out, -1);
    EXPECT_EQ(cudaFree(device), cudaSuccess);
    EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
    (void)cudaGetLastError();
}

TEST_F(RuntimeTest, HostMemoryAndItsAttributes)
{
    void *host = nullptr, *nothing = &host;
    int local;
    cudaPointerAttributes attributes;

    ASSERT_EQ(cudaHostAlloc(&host, 100, cudaHostAllocDefault), cudaSuccess);
    ASSERT_EQ(cudaPointerGetAttributes(&attributes, host), cudaSuccess);
    EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
    EXPECT_EQ(attributes.hostPointer, host);
    ASSERT_EQ(cudaPointerGetAttributes(&attributes, &local), cudaSuccess);
    EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
    EXPECT_EQ(cudaFreeHost(host), cudaSuccess);
    EXPECT_EQ(cudaMalloc(&nothing, 0), cudaSuccess);
    EXPECT_EQ(nothing, nullptr);
}

TEST_F(RuntimeTest, DeviceResetEndsAllAndTheNextCallBeginsAnew)
{
    void *memory;

    ASSERT_EQ(cudaSetDevice(5), cudaSuccess);
    ASSERT_EQ(cudaMalloc(&memory, 100), cudaSuccess);
    ASSERT_EQ(cudaDeviceReset(), cudaSuccess);
    EXPECT_EQ(cudaFree(memory), cudaErrorInvalidValue);
    ASSERT_EQ(cudaMalloc(&memory, 100), cudaSuccess);
    EXPECT_EQ(cudaFree(memory), cudaSuccess);
    (void)cudaGetLastError();
}

TEST_F(RuntimeTest, PeersAreEnabledOnce)
{
    int can;

    ASSERT_EQ(cudaDeviceCanAccessPeer(&can, 0, 1), cudaSuccess);
    EXPECT_EQ(can, 1);
    ASSERT_EQ(cudaDeviceCanAccessPeer(&can, 0, 0), cudaSuccess);
    EXPECT_EQ(can, 0);
    ASSERT_EQ(cudaDeviceEnablePeerAccess(1, 0), cudaSuccess);
    EXPECT_EQ(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessAlreadyEnabled);
    EXPECT_EQ(cudaDeviceDisablePeerAccess(1), cudaSuccess);
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

    ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
    ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    ASSERT_EQ(cudaLaunchHostFunc(stream, Increment, &count), cudaSuccess);
    ASSERT_EQ(cudaStreamGetCaptureInfo(stream, &status, &id), cudaSuccess);
    EXPECT_EQ(status, cudaStreamCaptureStatusActive);
    ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    for (int i = 0; i < 5; i++)
        ASSERT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(count, 5);
    EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

TEST_F(RuntimeTest, EntryPointsComeFromTheDriver)
{
    cudaDriverEntryPointQueryResult status;
    void *function = nullptr;

    ASSERT_EQ(cudaGetDriverEntryPointByVersion("cuMemAlloc", &function, 12000, cudaEnableDefault,
                                               &status),
              cudaSuccess);
    EXPECT_EQ(status, cudaDriverEntryPointSuccess);
    EXPECT_EQ(function, dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));
    ASSERT_EQ(
        cudaGetDriverEntryPointByVersion("cuNothing", &function, 12000, cudaEnableDefault, &status),
        cudaSuccess);
    EXPECT_EQ(status, cudaDriverEntryPointSymbolNotFound);
}

TEST_F(RuntimeTest, BothVersionsTellTheirNumber)
{
    int version = 0;

    ASSERT_EQ(cudaRuntimeGetVersion(&version), cudaSuccess);
    EXPECT_EQ(version, 13000);
    ASSERT_EQ(cudaDriverGetVersion(&version), cudaSuccess);
    EXPECT_EQ(version, 13000);
    void *twelve = dlopen("libcudart.so.12", RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(twelve, nullptr) << dlerror();
    auto get = reinterpret_cast<cudaError_t (*)(int *)>(dlsym(twelve, "cudaRuntimeGetVersion"));
    ASSERT_NE(get, nullptr);
    ASSERT_EQ(get(&version), cudaSuccess);
    EXPECT_EQ(version, 12080);
    auto info = reinterpret_cast<cudaError_t (*)(cudaStream_t, cudaStreamCaptureStatus *,
                                                 unsigned long long *)>(
        dlsym(twelve, "cudaStreamGetCaptureInfo"));
    ASSERT_NE(info, nullptr);
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusActive;
    EXPECT_EQ(info(nullptr, &status, nullptr), cudaSuccess);
    EXPECT_EQ(status, cudaStreamCaptureStatusNone);
    EXPECT_NE(dlsym(twelve, "cudaGetDeviceProperties_v2"), nullptr);
}

TEST_F(RuntimeTest, PropertiesAreFilled)
{
    cudaDeviceProp prop;

    ASSERT_EQ(cudaGetDeviceProperties(&prop, 1), cudaSuccess);
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
