/*
 * Allocations out of mapped memory, over a driver that ends the test where the real one would fault
 * or leak, and that fails wherever it is told to.
 *
 * NG_TEST_OPERATIONS: how many operations the random test makes.
 */
#include "tests/unit/core/helpers/core.h"

#include <mutex>

extern "C" {
#include "core/registration/vmm.h"
}

namespace
{

constexpr size_t GRANULARITY = 2 << 20;
constexpr int DEVICES = 3;

[[noreturn]] void misuse(const char *text)
{
    fprintf(stderr, "the driver is misused: %s\n", text);
    std::abort();
}

/* ---- The driver ---- */

struct Memory {
    size_t size;
    int device;
    bool released = false;
    unsigned mappings = 0;
    CUmemAllocationProp properties;
};

struct Addresses {
    size_t size;
    CUmemGenericAllocationHandle memory = 0; /* mapped */
    std::set<int> readers;
    CUcontext user = nullptr; /* has work in flight that uses it */
};

struct Driver {
    std::mutex lock; /* protects all of it */
    std::map<CUmemGenericAllocationHandle, Memory> memories;
    std::map<CUdeviceptr, Addresses> addresses;
    CUmemGenericAllocationHandle next_memory = 1;
    CUdeviceptr next_address = 0x7000000000;
    uint64_t used = 0, limit = UINT64_MAX;
    std::set<CUcontext> contexts;
    CUcontext primaries[DEVICES] = {};
    std::string fails; /* this call */
    CUresult failure = CUDA_ERROR_UNKNOWN;
    bool can_rdma = false, refuses_rdma = false, has_vmm = true, refuses_peers = false;
    unsigned synchronised = 0, calls = 0;
} model;

thread_local std::vector<CUcontext> current; /* the innermost last */

CUcontext context_of(int device, uintptr_t number = 0)
{
    return reinterpret_cast<CUcontext>((number << 8) + 16 + (uintptr_t)device);
}

int device_of(CUcontext context)
{
    return (int)(reinterpret_cast<uintptr_t>(context) & 15);
}

#define CALL(name)                                                                                 \
    std::lock_guard<std::mutex> guard(model.lock);                                                 \
    model.calls++;                                                                                 \
    if (model.fails == #name)                                                                      \
        return model.failure;

CUresult ctx_get_current(CUcontext *context)
{
    CALL(ctx_get_current)
    *context = current.empty() ? nullptr : current.back();
    return CUDA_SUCCESS;
}

CUresult ctx_get_device(CUdevice *device)
{
    CALL(ctx_get_device)
    if (current.empty())
        return CUDA_ERROR_INVALID_CONTEXT;
    *device = device_of(current.back());
    return CUDA_SUCCESS;
}

CUresult ctx_push(CUcontext context)
{
    CALL(ctx_push)
    if (!model.contexts.count(context))
        misuse("a context that does not exist is made current");
    current.push_back(context);
    return CUDA_SUCCESS;
}

CUresult ctx_pop(CUcontext *context)
{
    CALL(ctx_pop)
    *context = current.back();
    current.pop_back();
    return CUDA_SUCCESS;
}

CUresult ctx_synchronize()
{
    CALL(ctx_synchronize)
    model.synchronised++;
    for (auto &[base, there] : model.addresses)
        if (there.user == current.back())
            there.user = nullptr;
    return CUDA_SUCCESS;
}

CUresult stream_is_capturing(CUstream, CUstreamCaptureStatus *status)
{
    CALL(stream_is_capturing)
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

CUresult primary_ctx_get_state(CUdevice device, unsigned int *flags, int *active)
{
    CALL(primary_ctx_get_state)
    *flags = 0;
    *active = model.primaries[device] != nullptr;
    return CUDA_SUCCESS;
}

CUresult primary_ctx_retain(CUcontext *context, CUdevice device)
{
    CALL(primary_ctx_retain)
    if (!model.primaries[device])
        misuse("a primary context is made that the program does not have");
    *context = model.primaries[device];
    return CUDA_SUCCESS;
}

CUresult primary_ctx_release(CUdevice)
{
    CALL(primary_ctx_release)
    return CUDA_SUCCESS;
}

CUresult device_get_count(int *count)
{
    CALL(device_get_count)
    *count = DEVICES;
    return CUDA_SUCCESS;
}

CUresult device_get_attribute(int *value, CUdevice_attribute attribute, CUdevice)
{
    CALL(device_get_attribute)
    *value = attribute == CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED
                 ? model.can_rdma
                 : model.has_vmm;
    return CUDA_SUCCESS;
}

/* The last device is on another root complex. */
CUresult device_can_access_peer(int *can, CUdevice device, CUdevice peer)
{
    CALL(device_can_access_peer)
    if (device == peer)
        misuse("a device is asked about itself");
    *can = device != DEVICES - 1 && peer != DEVICES - 1;
    return CUDA_SUCCESS;
}

CUresult mem_get_granularity(size_t *granularity, const CUmemAllocationProp *,
                             CUmemAllocationGranularity_flags)
{
    CALL(mem_get_granularity)
    *granularity = GRANULARITY;
    return CUDA_SUCCESS;
}

CUresult mem_create(CUmemGenericAllocationHandle *handle, size_t size,
                    const CUmemAllocationProp *properties, unsigned long long)
{
    CALL(mem_create)
    if (!size || size % GRANULARITY)
        misuse("memory of a size that is no multiple of the granularity");
    if (properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        misuse("memory that nobody can share");
    if (properties->allocFlags.gpuDirectRDMACapable && model.refuses_rdma)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (size > model.limit - model.used)
        return CUDA_ERROR_OUT_OF_MEMORY;
    model.used += size;
    *handle = model.next_memory++;
    model.memories[*handle] = {size, properties->location.id, false, 0, *properties};
    return CUDA_SUCCESS;
}

void drop(CUmemGenericAllocationHandle handle)
{
    Memory &memory = model.memories.at(handle);
    if (memory.released && !memory.mappings) {
        model.used -= memory.size;
        model.memories.erase(handle);
    }
}

CUresult mem_release(CUmemGenericAllocationHandle handle)
{
    CALL(mem_release)
    if (!model.memories.count(handle) || model.memories.at(handle).released)
        misuse("memory is released twice");
    model.memories.at(handle).released = true;
    drop(handle);
    return CUDA_SUCCESS;
}

CUresult mem_address_reserve(CUdeviceptr *base, size_t size, size_t alignment, CUdeviceptr,
                             unsigned long long)
{
    CALL(mem_address_reserve)
    if (alignment % GRANULARITY)
        misuse("alignment");
    *base = model.next_address;
    model.next_address += size;
    model.addresses[*base].size = size;
    return CUDA_SUCCESS;
}

CUresult mem_address_free(CUdeviceptr base, size_t size)
{
    CALL(mem_address_free)
    auto there = model.addresses.find(base);
    if (there == model.addresses.end() || there->second.size != size)
        misuse("addresses are freed that are not reserved");
    if (there->second.memory)
        misuse("addresses are freed that are mapped");
    model.addresses.erase(there);
    return CUDA_SUCCESS;
}

CUresult mem_map(CUdeviceptr base, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                 unsigned long long)
{
    CALL(mem_map)
    Addresses &there = model.addresses.at(base);
    Memory &memory = model.memories.at(handle);
    if (there.memory || there.size != size || memory.size != size || offset)
        misuse("a mapping that does not fit");
    there.memory = handle;
    memory.mappings++;
    return CUDA_SUCCESS;
}

CUresult mem_unmap(CUdeviceptr base, size_t size)
{
    CALL(mem_unmap)
    auto found = model.addresses.find(base);
    if (found == model.addresses.end() || !found->second.memory || found->second.size != size)
        misuse("what is unmapped is not mapped");
    Addresses &there = found->second;
    if (there.user && model.contexts.count(there.user))
        misuse("memory is unmapped under work that uses it");
    CUmemGenericAllocationHandle handle = there.memory;
    there.memory = 0;
    there.readers.clear();
    model.memories.at(handle).mappings--;
    drop(handle);
    return CUDA_SUCCESS;
}

CUresult mem_set_access(CUdeviceptr base, size_t size, const CUmemAccessDesc *access, size_t count)
{
    CALL(mem_set_access)
    Addresses &there = model.addresses.at(base);
    if (!there.memory || there.size != size)
        misuse("access to what is not mapped");
    if (count > 1 && model.refuses_peers)
        return CUDA_ERROR_INVALID_DEVICE;
    for (size_t i = 0; i < count; i++)
        there.readers.insert(access[i].location.id);
    return CUDA_SUCCESS;
}

const struct ng_vmm_driver driver = {
#define FIELD(field, name, prototype) field,
    NG_VMM_CALLS(FIELD)
#undef FIELD
};

struct Vmm : testing::Test {
    void SetUp() override
    {
        current = {context_of(0)};
        for (int device = 0; device < DEVICES; device++) {
            model.contexts.insert(context_of(device));
            model.primaries[device] = context_of(device);
        }
    }
    void TearDown() override
    {
        model.fails = "";
        model.limit = UINT64_MAX;
        model.can_rdma = model.refuses_rdma = model.refuses_peers = false;
        model.has_vmm = true;
        for (CUcontext context : std::set<CUcontext>(model.contexts))
            ng_vmm_context_gone(&driver, context, nullptr);
        expect_nothing();
    }
    static void expect_nothing()
    {
        uint64_t blocks, bytes;
        ng_vmm_count(&blocks, &bytes);
        EXPECT_EQ(blocks, 0u);
        EXPECT_EQ(bytes, 0u);
        EXPECT_TRUE(model.memories.empty());
        EXPECT_TRUE(model.addresses.empty());
        EXPECT_EQ(model.used, 0u);
    }
    static CUdeviceptr allocate(size_t bytes)
    {
        struct ng_vmm_block block;
        return ng_vmm_alloc(&driver, bytes, &block) ? block.base : 0;
    }
    static CUresult release(CUdeviceptr base)
    {
        CUresult result = CUDA_ERROR_NOT_FOUND;
        EXPECT_TRUE(ng_vmm_free(&driver, base, &result));
        return result;
    }
};

} // namespace

TEST_F(Vmm, LargeOnesAreMappedForAllThatCanReachThem)
{
    EXPECT_EQ(allocate(GRANULARITY - 1), 0u) << "small ones are the driver's";
    CUdeviceptr base = allocate(3 * GRANULARITY + 5);
    ASSERT_NE(base, 0u);
    EXPECT_EQ(model.addresses.at(base).size, 4 * GRANULARITY);
    EXPECT_EQ(model.addresses.at(base).readers, (std::set<int>{0, 1}));
    struct ng_vmm_block block;
    ASSERT_TRUE(ng_vmm_find(base + 3 * GRANULARITY + 4, &block));
    EXPECT_EQ(block.base, base);
    EXPECT_EQ(block.bytes, 3 * GRANULARITY + 5) << "as it was asked";
    EXPECT_FALSE(ng_vmm_find(base + 3 * GRANULARITY + 5, &block));
    EXPECT_FALSE(ng_vmm_find(base - 1, &block));
    EXPECT_EQ(release(base), CUDA_SUCCESS);
    expect_nothing();
    CUresult result;
    EXPECT_FALSE(ng_vmm_free(&driver, base, &result)) << "the driver says that there is none";
}

TEST_F(Vmm, ADeviceThatRefusesPeersIsServedAlone)
{
    model.refuses_peers = true;
    CUdeviceptr base = allocate(GRANULARITY);
    ASSERT_NE(base, 0u);
    EXPECT_EQ(model.addresses.at(base).readers, (std::set<int>{0}));
}

TEST_F(Vmm, NetworkCardsMayReadItWhereThatIsPossible)
{
    model.can_rdma = true;
    CUdeviceptr base = allocate(GRANULARITY);
    EXPECT_TRUE(model.memories.at(model.addresses.at(base).memory)
                    .properties.allocFlags.gpuDirectRDMACapable);
    model.refuses_rdma = true;
    base = allocate(GRANULARITY);
    ASSERT_NE(base, 0u);
    EXPECT_FALSE(model.memories.at(model.addresses.at(base).memory)
                     .properties.allocFlags.gpuDirectRDMACapable);
}

TEST_F(Vmm, WhereverItFailsNothingIsLeftAndTheDriverIsAsked)
{
    for (const char *name :
         {"ctx_get_current", "ctx_get_device", "device_get_attribute", "mem_get_granularity",
          "mem_create", "mem_address_reserve", "mem_map", "mem_set_access"}) {
        model.fails = name;
        EXPECT_EQ(allocate(4 * GRANULARITY), 0u) << name;
        model.fails = "";
        expect_nothing();
    }
    model.fails = "device_get_count";
    EXPECT_NE(allocate(GRANULARITY), 0u) << "then no peer is known";
    model.fails = "";
    model.limit = 8 * GRANULARITY;
    EXPECT_EQ(allocate(8 * GRANULARITY), 0u) << "out of memory";
    model.has_vmm = false;
    EXPECT_EQ(allocate(GRANULARITY), 0u);
    EXPECT_EQ(allocate(SIZE_MAX), 0u);
    current.clear();
    EXPECT_EQ(allocate(GRANULARITY), 0u) << "no context";
}

TEST_F(Vmm, AFreeWaitsForTheWorkOfItsContext)
{
    CUdeviceptr base = allocate(GRANULARITY);
    model.addresses.at(base).user = context_of(0);
    EXPECT_EQ(release(base), CUDA_SUCCESS);

    base = allocate(GRANULARITY);
    model.addresses.at(base).user = context_of(0);
    current = {context_of(1)}; /* of another device */
    EXPECT_EQ(release(base), CUDA_SUCCESS);
    EXPECT_EQ(current, std::vector<CUcontext>{context_of(1)}) << "as it was";
}

TEST_F(Vmm, AFreeDuringACaptureWaitsForNothingAndIsMadeUpForAfterwards)
{
    CUdeviceptr first = allocate(GRANULARITY), second = allocate(GRANULARITY),
                third = allocate(GRANULARITY);
    CUresult result;
    ng_vmm_capturing(1);
    unsigned before = model.synchronised;
    EXPECT_EQ(release(first), CUDA_SUCCESS);
    EXPECT_FALSE(ng_vmm_free(&driver, first, &result)); /* twice: the driver has to answer */
    EXPECT_EQ(model.synchronised, before);
    EXPECT_EQ(model.addresses.size(), 3u);
    ng_vmm_capturing(-1);
    EXPECT_EQ(release(second), CUDA_SUCCESS);
    EXPECT_EQ(model.addresses.size(), 1u);
    ng_vmm_capturing(1);
    EXPECT_EQ(release(third), CUDA_SUCCESS);
    ng_vmm_capturing(-1);
    EXPECT_NE(allocate(GRANULARITY), 0u);
    EXPECT_EQ(model.addresses.size(), 1u);
}

TEST_F(Vmm, AFreeThatFailsKeepsItsMemory)
{
    CUdeviceptr base = allocate(GRANULARITY);
    model.addresses.at(base).user = context_of(0);
    model.fails = "ctx_synchronize";
    model.failure = CUDA_ERROR_ILLEGAL_ADDRESS;
    EXPECT_EQ(release(base), CUDA_ERROR_ILLEGAL_ADDRESS);
    model.fails = "";
    model.failure = CUDA_ERROR_UNKNOWN;
    EXPECT_NE(model.addresses.at(base).memory, 0u);
    current.clear();
    EXPECT_EQ(release(base), CUDA_ERROR_INVALID_CONTEXT);
    current = {context_of(0)};
    EXPECT_EQ(release(base), CUDA_SUCCESS);
}

TEST_F(Vmm, MemoryGoesWithItsContextAlone)
{
    CUcontext second = context_of(0, 1);
    model.contexts.insert(second);
    CUdeviceptr first = allocate(GRANULARITY);
    current = {second};
    CUdeviceptr other = allocate(GRANULARITY);
    EXPECT_EQ(ng_vmm_primary(&driver, 0), context_of(0));
    EXPECT_EQ(ng_vmm_primary(&driver, 1), nullptr) << "nothing of it is here";
    model.contexts.erase(second);
    ng_vmm_context_gone(&driver, second, nullptr);
    struct ng_vmm_block block;
    EXPECT_FALSE(ng_vmm_find(other, &block));
    EXPECT_TRUE(ng_vmm_find(first, &block));
    model.primaries[0] = nullptr;
    EXPECT_EQ(ng_vmm_primary(&driver, 0), nullptr) << "and it must not be made anew";
}

TEST_F(Vmm, ManyThreadsAllocateUseAndFree)
{
    const char *asked = getenv("NG_TEST_OPERATIONS");
    unsigned operations = asked ? (unsigned)atoi(asked) : 100000;
    constexpr unsigned THREADS = 4;
    std::atomic<uint64_t> allocated{0}, refused{0}, failed{0};
    std::vector<std::thread> threads;

    model.limit = 300 * GRANULARITY;
    for (unsigned t = 0; t < THREADS; t++)
        threads.emplace_back([&, t] {
            std::mt19937 random(t);
            std::map<CUdeviceptr, size_t> mine;
            for (unsigned i = 0; i < operations / THREADS; i++) {
                current = {context_of((int)(random() % DEVICES))};
                unsigned what = random() % 16;
                if (what < 8) {
                    size_t bytes = GRANULARITY + random() % (3 * GRANULARITY);
                    CUdeviceptr base = allocate(bytes);
                    allocated += base != 0;
                    refused += base == 0;
                    if (base && !mine.emplace(base, bytes).second)
                        misuse("two blocks of one address");
                } else if (what < 10 && !mine.empty()) {
                    struct ng_vmm_block block;
                    auto at = std::next(mine.begin(), random() % mine.size());
                    if (!ng_vmm_find(at->first + random() % at->second, &block) ||
                        block.base != at->first || block.bytes != at->second)
                        misuse("a block is not found, or another one is");
                    std::lock_guard<std::mutex> guard(model.lock);
                    model.addresses.at(at->first).user = block.context;
                } else if (!mine.empty()) {
                    auto at = std::next(mine.begin(), random() % mine.size());
                    CUresult result = CUDA_SUCCESS;
                    if (random() % 50 == 0)
                        current.clear();
                    if (!ng_vmm_free(&driver, at->first, &result))
                        misuse("a block that there is, is not known");
                    failed += result != CUDA_SUCCESS;
                    if (result == CUDA_SUCCESS)
                        mine.erase(at);
                }
            }
            current = {context_of(0)};
            for (auto &[base, bytes] : mine)
                release(base);
        });
    for (std::thread &thread : threads)
        thread.join();
    fprintf(stderr, "%llu allocated, %llu refused, %llu frees failed\n",
            (unsigned long long)allocated, (unsigned long long)refused, (unsigned long long)failed);
    EXPECT_GT(allocated, operations / 50); /* few, where one thread long has most of it */
    EXPECT_GT(refused, 0u) << "memory was never short";
    expect_nothing();
}

/* Last: there is no way back. */
TEST_F(Vmm, ZLegacyIpcEndsItForGood)
{
    CUdeviceptr base = allocate(GRANULARITY);
    ASSERT_NE(base, 0u);
    ng_vmm_stop(base + 5);
    EXPECT_EQ(allocate(GRANULARITY), 0u);
    EXPECT_EQ(release(base), CUDA_SUCCESS) << "what there was, is still ours";
}
