/*
 * The door to the CUDA driver: which look-ups get a hook, and which the driver's own function.
 *
 * Hooks stay enabled for the life of a process, so each suite is a process of its own: Closed
 * and Released without hooks, Single with one, Door, Doubled and Probed with all that the program
 * may get, Launches with some that only NCCL gets.
 */
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fstream>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "tests/unit/shim/cuda_door/asker.h"
#include "tests/unit/shim/cuda_door/driver.h"
#include "tests/unit/shim/cuda_door/probe_hooks.h"
#include "tests/unit/shim/probe.h"

namespace
{

enum { DEFAULT = 0, LEGACY = 1, PER_THREAD = 2 };

/* Those that the program may get, but for the door itself, which comes first in the table. */
const std::vector<const char *> every_hook = [] {
    std::vector<const char *> hooks = {
#define CUDA_HOOK(symbol, ...)      #symbol,
#define CUDA_NCCL_HOOK(symbol, ...) /* NCCL alone gets it */
#include "shim/cuda_hooks.def"
#undef CUDA_HOOK
    };
    hooks.erase(hooks.begin(), hooks.begin() + 2);
    return hooks;
}();

void *open_library(const char *path)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);

    EXPECT_NE(handle, nullptr) << dlerror();
    return handle;
}

/* The driver's own functions, past the door. */
struct Driver {
    Driver()
    {
        handle = open_library("libcuda.so.1");
        address = (decltype(address))dlsym(handle, "driver_address");
        calls = (decltype(calls))dlsym(handle, "driver_calls");
        argument = (decltype(argument))dlsym(handle, "driver_argument");
        questions_from = (decltype(questions_from))dlsym(handle, "driver_questions_from");
    }
    void *handle;
    decltype(&driver_address) address;
    decltype(&driver_calls) calls;
    decltype(&driver_argument) argument;
    decltype(&driver_questions_from) questions_from;
};

/* Looks up and asks in the name of another library, loaded from its path. */
struct Asker {
    explicit Asker(const char *variable)
    {
        handle = open_library(getenv(variable));
        look_up = (asker_look_up_function *)dlsym(handle, "asker_look_up");
        ask = (asker_ask_function *)dlsym(handle, "asker_ask");
        ask_v2 = (asker_ask_v2_function *)dlsym(handle, "asker_ask_v2");
    }
    void *handle;
    asker_look_up_function *look_up;
    asker_ask_function *ask;
    asker_ask_v2_function *ask_v2;
};

ask_function *first_form(const Driver &driver)
{
    return (ask_function *)dlsym(driver.handle, "cuGetProcAddress");
}

ask_v2_function *second_form(const Driver &driver)
{
    return (ask_v2_function *)dlsym(driver.handle, "cuGetProcAddress_v2");
}

void *ask(const Driver &driver, const char *name, int version, uint64_t flags)
{
    void *function = nullptr;
    int status = -1;

    EXPECT_EQ(second_form(driver)(name, &function, version, flags, &status), 0) << name;
    EXPECT_EQ(status, function ? 0 : 2) << name;
    return function;
}

} // namespace

/* ---- No hook is enabled ---- */

TEST(Closed, GivesTheDriversOwnFunctions)
{
    Driver driver;

    for (const char *symbol : {"cuGetProcAddress", "cuGetProcAddress_v2", "cuGraphLaunch",
                               "cuGraphLaunch_ptsz", "cuMemAlloc_v2", "cuMemCreate"}) {
        void *function = dlsym(driver.handle, symbol);

        EXPECT_NE(function, nullptr);
        EXPECT_EQ(function, driver.address(symbol)) << symbol;
        EXPECT_EQ(cuda_probe_real(symbol), nullptr) << symbol;
    }
    EXPECT_EQ(ask(driver, "cuGetProcAddress", 12000, DEFAULT),
              driver.address("cuGetProcAddress_v2"));
    EXPECT_EQ(ask(driver, "cuMemAlloc", 3020, DEFAULT), driver.address("cuMemAlloc_v2"));
}

TEST(Released, LetsTheDriverGo)
{
    Driver driver;

    ASSERT_NE(second_form(driver), nullptr);
    dlclose(driver.handle);
    EXPECT_EQ(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), nullptr);
}

/* ---- One hook is enabled: cuGraphLaunch ---- */

TEST(Single, OnlyTheEnabledFunctionIsHooked)
{
    Driver driver;

    EXPECT_EQ(dlsym(driver.handle, "cuGraphLaunch"), cuda_probe_hook("cuGraphLaunch"));
    EXPECT_EQ(dlsym(driver.handle, "cuGraphLaunch_ptsz"), driver.address("cuGraphLaunch_ptsz"));
    EXPECT_EQ(dlsym(driver.handle, "cuMemAlloc_v2"), driver.address("cuMemAlloc_v2"));
    EXPECT_EQ((void *)second_form(driver), cuda_probe_door(true));
    EXPECT_EQ(ask(driver, "cuGraphLaunch", 10000, LEGACY), cuda_probe_hook("cuGraphLaunch"));
    /* Not the legacy hook for the per-thread form. */
    EXPECT_EQ(ask(driver, "cuGraphLaunch", 10000, PER_THREAD),
              driver.address("cuGraphLaunch_ptsz"));
    EXPECT_EQ(ask(driver, "cuMemAlloc", 12000, DEFAULT), driver.address("cuMemAlloc_v2"));
}

TEST(Single, AFunctionHasOneHook)
{
    EXPECT_EQ(cuda_probe_enable("cuGraphLaunch"), -EBUSY);
    EXPECT_EQ(cuda_probe_enable("cuGetProcAddress"), -EBUSY);
}

/* ---- Every hook is enabled ---- */

TEST(Door, AnswersTheFormThatIsAskedFor)
{
    Driver driver;
    struct {
        const char *name;
        int version;
        uint64_t flags;
        const char *symbol; /* of the driver's form */
        bool hooked;
    } questions[] = {
        {"cuGraphLaunch", 9000, DEFAULT, nullptr, false},
        {"cuGraphLaunch", 10000, DEFAULT, "cuGraphLaunch", true},
        {"cuGraphLaunch", 10000, LEGACY, "cuGraphLaunch", true},
        {"cuGraphLaunch", 10000, PER_THREAD, "cuGraphLaunch_ptsz", true},
        {"cuGraphLaunch", 13000, PER_THREAD, "cuGraphLaunch_ptsz", true},
        {"cuMemAlloc", 2000, DEFAULT, "cuMemAlloc", false},
        {"cuMemAlloc", 3010, PER_THREAD, "cuMemAlloc", false},
        {"cuMemAlloc", 3020, DEFAULT, "cuMemAlloc_v2", true},
        {"cuMemAlloc", 13000, PER_THREAD, "cuMemAlloc_v2", true},
        {"cuMemAllocPitch", 3020, DEFAULT, "cuMemAllocPitch_v2", true},
        {"cuMemFree", 2000, DEFAULT, "cuMemFree", false},
        {"cuMemFree", 12080, LEGACY, "cuMemFree_v2", true},
        {"cuMemAllocAsync", 11020, DEFAULT, "cuMemAllocAsync", true},
        {"cuMemAllocAsync", 11020, PER_THREAD, "cuMemAllocAsync_ptsz", true},
        {"cuMemFreeAsync", 11020, LEGACY, "cuMemFreeAsync", true},
        {"cuMemFreeAsync", 12000, PER_THREAD, "cuMemFreeAsync_ptsz", true},
        {"cuMemAllocFromPoolAsync", 11020, DEFAULT, "cuMemAllocFromPoolAsync", true},
        {"cuMemAllocFromPoolAsync", 11020, PER_THREAD, "cuMemAllocFromPoolAsync_ptsz", true},
        {"cuMemCreate", 10020, PER_THREAD, "cuMemCreate", true},
        {"cuMemRelease", 10020, DEFAULT, "cuMemRelease", true},
        {"cuMemMap", 10020, DEFAULT, nullptr, false},
        {"cuMemMap", 10030, DEFAULT, "cuMemMap", true},
        {"cuMemUnmap", 10020, DEFAULT, "cuMemUnmap", true},
        {"cuEventElapsedTime", 12000, DEFAULT, "cuEventElapsedTime", false},
        {"cuStreamSynchronize", 6050, PER_THREAD, "cuStreamSynchronize", true},
        {"cuStreamSynchronize", 12000, PER_THREAD, "cuStreamSynchronize_ptsz", true},
        {"cuEventDestroy", 12000, DEFAULT, "cuEventDestroy_v2", true},
        {"cuCtxSynchronize", 12080, DEFAULT, "cuCtxSynchronize", true},
        {"cuCtxSynchronize", 13000, DEFAULT, "cuCtxSynchronize_v2", true},
        {"cuGetProcAddress", 11020, DEFAULT, nullptr, false},
        {"cuGetProcAddress", 11030, DEFAULT, "cuGetProcAddress", true},
        {"cuGetProcAddress", 11080, PER_THREAD, "cuGetProcAddress", true},
        {"cuGetProcAddress", 12000, DEFAULT, "cuGetProcAddress_v2", true},
        {"cuGetProcAddress", 13000, PER_THREAD, "cuGetProcAddress_v2", true},
        /* Newer than any version that was known: the same form is hooked as before … */
        {"cuMemAlloc", 14000, DEFAULT, "cuMemAlloc_v2", true},
        {"cuGraphLaunch", 14000, PER_THREAD, "cuGraphLaunch_ptsz", true},
        {"cuGetProcAddress", 14000, DEFAULT, "cuGetProcAddress_v2", true},
        /* … another form has other arguments. */
        {"cuMemFree", 14000, DEFAULT, "cuMemFree_v3", false},
    };

    probe_clear();
    ASSERT_EQ((void *)first_form(driver), cuda_probe_door(false));
    ASSERT_EQ((void *)second_form(driver), cuda_probe_door(true));
    /* Through the first form first, so that each form is the one to meet some function first. */
    for (const auto &question : questions) {
        SCOPED_TRACE(std::string(question.name) + " " + std::to_string(question.version) + " " +
                     std::to_string(question.flags));
        void *expected = !question.symbol  ? nullptr
                         : question.hooked ? cuda_probe_hook(question.symbol)
                                           : driver.address(question.symbol);
        void *function = nullptr;

        EXPECT_EQ(first_form(driver)(question.name, &function, question.version, question.flags),
                  expected ? 0 : 500);
        EXPECT_EQ(function, expected);
        EXPECT_EQ(ask(driver, question.name, question.version, question.flags), expected);
        if (question.hooked) {
            EXPECT_EQ(cuda_probe_real(question.symbol), driver.address(question.symbol));
        }
    }
    /* Once, though it was asked for twice. */
    EXPECT_STREQ(probe_log(),
                 "cuMemFree of CUDA 14.0 is not known here: calls of it are not seen\n");
}

TEST(Door, ItsOwnAnswersGoOnAnswering)
{
    Driver driver;
    void *again = nullptr, *function = nullptr;
    int status = -1;

    /* As the CUDA runtime does: the answer to its question asks everything else. */
    ASSERT_EQ(second_form(driver)("cuGetProcAddress", &again, 11030, DEFAULT, &status), 0);
    ASSERT_EQ(((ask_function *)again)("cuGetProcAddress", &again, 12000, DEFAULT), 0);
    ASSERT_EQ(((ask_v2_function *)again)("cuMemAlloc", &function, 3020, DEFAULT, &status), 0);
    EXPECT_EQ(function, cuda_probe_hook("cuMemAlloc_v2"));
}

TEST(Door, WrongQuestionsGetTheDriversAnswer)
{
    Driver driver;
    struct {
        const char *name;
        int version;
        uint64_t flags;
        int result, status;
        bool found;
    } questions[] = {
        {nullptr, 12000, DEFAULT, 1, -1, false},        {"", 12000, DEFAULT, 1, -1, false},
        {"cuMemAlloc", 15000, DEFAULT, 1, -1, false},   {"cuMemAlloc", 12000, 3, 1, -1, false},
        {"cuNothing", 12000, DEFAULT, 0, 1, false},     {"cuMemAlloc", 1000, DEFAULT, 0, 2, false},
        {"cuAnythingElse", 12000, DEFAULT, 0, 0, true},
    };
    auto real = (ask_v2_function *)driver.address("cuGetProcAddress_v2");
    int status = -1;

    EXPECT_EQ(second_form(driver)("cuMemAlloc", nullptr, 12000, DEFAULT, &status), 1);
    for (const auto &question : questions) {
        SCOPED_TRACE(question.name ? question.name : "no name");
        void *function = &driver, *expected = &driver;

        status = -1;
        EXPECT_EQ(second_form(driver)(question.name, &function, question.version, question.flags,
                                      &status),
                  question.result);
        EXPECT_EQ(status, question.status);
        status = -1;
        real(question.name, &expected, question.version, question.flags, &status);
        EXPECT_EQ(function, expected);
        EXPECT_EQ(function != nullptr && function != &driver, question.found);
    }
    /* The status may be left out. */
    void *function = nullptr;
    EXPECT_EQ(second_form(driver)("cuMemAlloc", &function, 12000, DEFAULT, nullptr), 0);
    EXPECT_EQ(function, cuda_probe_hook("cuMemAlloc_v2"));
}

TEST(Door, HookedFunctionsAreFoundByNameToo)
{
    Driver driver;

    for (const char *symbol : every_hook) {
        EXPECT_EQ(dlsym(driver.handle, symbol), cuda_probe_hook(symbol)) << symbol;
        EXPECT_EQ(cuda_probe_real(symbol), driver.address(symbol)) << symbol;
    }
    /* Forms that nobody hooks, and names that the driver lacks. */
    for (const char *symbol :
         {"cuMemAlloc", "cuMemFree", "cuMemFree_v3", "cuEventElapsedTime", "cuInit"})
        EXPECT_EQ(dlsym(driver.handle, symbol), driver.address(symbol)) << symbol;
    EXPECT_EQ(dlsym(driver.handle, "cuGraphLaunch_v9"), nullptr);
    EXPECT_NE(dlerror(), nullptr);
}

TEST(Door, AHookCallsTheDriver)
{
    Driver driver;
    uint64_t argument = 0x1000;

    for (const char *symbol : every_hook) {
        auto function = (int (*)(uint64_t))dlsym(driver.handle, symbol);
        unsigned before = cuda_probe_calls(symbol), driven = driver.calls(symbol);

        ASSERT_NE(function, nullptr) << symbol;
        EXPECT_EQ(function(++argument), DRIVER_RESULT) << symbol;
        EXPECT_EQ(cuda_probe_calls(symbol), before + 1) << symbol;
        EXPECT_EQ(driver.calls(symbol), driven + 1) << symbol;
        if (strcmp(symbol, "cuCtxSynchronize") != 0) { /* it takes none */
            EXPECT_EQ(driver.argument(symbol), argument) << symbol;
        }
    }
}

TEST(Door, NcclGetsTheDriversOwnFunctions)
{
    Driver driver;
    Asker other("OTHER");

    EXPECT_EQ(other.look_up(driver.handle, "cuMemAlloc_v2"), cuda_probe_hook("cuMemAlloc_v2"));
    EXPECT_EQ(other.ask(first_form(driver), "cuMemAlloc", 3020, DEFAULT),
              cuda_probe_hook("cuMemAlloc_v2"));
    EXPECT_EQ(other.ask_v2(second_form(driver), "cuGetProcAddress", 12000, DEFAULT),
              cuda_probe_door(true));

    for (const char *variable : {"NCCL", "FRAMEWORK", "FRAMEWORK_OLD_HASH", "RENAMED"}) {
        SCOPED_TRACE(variable);
        Asker nccl(variable);

        for (int round = 0; round < 2; round++) {
            for (const char *symbol : {"cuGetProcAddress", "cuGetProcAddress_v2", "cuMemAlloc_v2"})
                EXPECT_EQ(nccl.look_up(driver.handle, symbol), driver.address(symbol)) << symbol;
            /* Also where the program's own answer came into its hands. */
            EXPECT_EQ(nccl.ask(first_form(driver), "cuMemAlloc", 3020, DEFAULT),
                      driver.address("cuMemAlloc_v2"));
            EXPECT_EQ(nccl.ask_v2(second_form(driver), "cuGetProcAddress", 12000, DEFAULT),
                      driver.address("cuGetProcAddress_v2"));
            /* The second time it is known as a copy of NCCL, since the program looked into it. */
            if (strcmp(variable, "NCCL") != 0) {
                EXPECT_NE(dlsym(nccl.handle, "ncclGetVersion"), nullptr);
            }
        }
    }
}

TEST(Door, ALookUpDuringANcclCallIsNccls)
{
    Driver driver;
    Asker other("OTHER"), runtime("RUNTIME");

    ask_v2_function *question = second_form(driver);

    EXPECT_EQ(other.look_up(driver.handle, "cuGetProcAddress_v2"), cuda_probe_door(true));
    std::thread([&] {
        probe_adopt_thread();
        EXPECT_EQ(other.look_up(driver.handle, "cuGetProcAddress_v2"),
                  driver.address("cuGetProcAddress_v2"));
        /* But for the program's runtime, where NCCL makes the first call of it. */
        EXPECT_EQ(runtime.look_up(driver.handle, "cuGetProcAddress_v2"), cuda_probe_door(true));
        EXPECT_EQ(runtime.ask_v2(question, "cuMemAlloc", 3020, DEFAULT),
                  cuda_probe_hook("cuMemAlloc_v2"));
    }).join();
}

TEST(Door, ASecondDriverKeepsItsFunctions)
{
    Driver driver;
    char folder[] = "/tmp/second-driver-XXXXXX";
    Dl_info object;

    ASSERT_NE(dlsym(driver.handle, "cuMemAlloc_v2"), nullptr);
    ASSERT_NE(mkdtemp(folder), nullptr);
    std::string path = std::string(folder) + "/libcuda.so.1";
    std::ofstream(path, std::ios::binary)
        << std::ifstream(getenv("DRIVER"), std::ios::binary).rdbuf();
    void *second = open_library(path.c_str());
    unlink(path.c_str());
    rmdir(folder);

    ASSERT_NE(second, driver.handle);
    for (const char *symbol : {"cuMemAlloc_v2", "cuGetProcAddress_v2", "cuMemRelease"}) {
        ASSERT_NE(dladdr(dlsym(second, symbol), &object), 0);
        EXPECT_EQ(object.dli_fname, path) << symbol;
    }
    EXPECT_EQ(dlsym(driver.handle, "cuMemRelease"), cuda_probe_hook("cuMemRelease"));
    EXPECT_EQ(cuda_probe_real("cuMemRelease"), driver.address("cuMemRelease"));
}

TEST(Door, KeepsErrnoAndDlerror)
{
    Driver driver;
    ask_v2_function *question = second_form(driver);
    void *function = nullptr;
    int status = -1;

    errno = 4711;
    EXPECT_NE(dlsym(driver.handle, "cuMemMap"), nullptr);
    EXPECT_EQ(errno, 4711);
    EXPECT_EQ(dlerror(), nullptr);

    /* Asked by a library that asks for the first time: it is looked at. */
    Asker fresh("FRESH");
    EXPECT_EQ(dlsym(driver.handle, "no_such_function"), nullptr);
    EXPECT_EQ(fresh.ask_v2(question, "cuMemAlloc", 3020, DEFAULT),
              cuda_probe_hook("cuMemAlloc_v2"));
    errno = 0;
    EXPECT_EQ(question("cuMemAlloc", &function, 3020, DEFAULT, &status), 0);
    EXPECT_EQ(errno, ENOTTY) << "the driver's own";
    const char *error = dlerror();
    ASSERT_NE(error, nullptr) << "the program's own error is lost";
    EXPECT_NE(strstr(error, "no_such_function"), nullptr) << error;
}

TEST(Door, ManyThreadsGetTheSameAnswers)
{
    Driver driver;
    std::atomic<unsigned> ready{0}, wrong{0};
    std::vector<std::thread> threads;

    for (unsigned i = 0; i < 8; i++)
        threads.emplace_back([&] {
            ready++;
            while (ready < 8)
                std::this_thread::yield();
            for (unsigned round = 0; round < 200; round++) {
                void *function = nullptr;
                int status = -1;

                wrong += (void *)second_form(driver) != cuda_probe_door(true);
                wrong += second_form(driver)("cuMemUnmap", &function, 12000, DEFAULT, &status) != 0;
                wrong += function != cuda_probe_hook("cuMemUnmap");
                wrong += dlsym(driver.handle, "cuMemUnmap") != function;
                wrong += ((int (*)(uint64_t))function)(round) != DRIVER_RESULT;
            }
        });
    for (auto &thread : threads)
        thread.join();
    EXPECT_EQ(wrong, 0u);
    EXPECT_EQ(cuda_probe_real("cuMemUnmap"), driver.address("cuMemUnmap"));
}

/* ---- Every hook is enabled, and a library has names of the driver ---- */

TEST(Doubled, AProgramsOwnFunctionsStayItsOwn)
{
    void *library = open_library(getenv("DOUBLE"));
    Dl_info object;

    for (const char *symbol : {"cuMemAlloc_v2", "cuGetProcAddress_v2"}) {
        void *function = dlsym(library, symbol);

        ASSERT_NE(function, nullptr);
        ASSERT_NE(dladdr(function, &object), 0);
        EXPECT_STREQ(object.dli_fname, getenv("DOUBLE"));
    }
    /* Nor is it taken for the driver from now on. */
    Driver driver;

    EXPECT_EQ(dlsym(driver.handle, "cuMemAlloc_v2"), cuda_probe_hook("cuMemAlloc_v2"));
    EXPECT_EQ(cuda_probe_real("cuMemAlloc_v2"), driver.address("cuMemAlloc_v2"));
}

/* ---- Every hook is enabled, and the driver is only probed for ---- */

TEST(Probed, TheDriverStaysForWhoeverKeepsItsFunctions)
{
    Driver driver;
    ask_v2_function *question = second_form(driver);
    void *hook = cuda_probe_hook("cuMemAlloc_v2"), *function = nullptr;
    int status = -1;

    ASSERT_EQ((void *)question, cuda_probe_door(true));
    dlclose(driver.handle);
    ASSERT_NE(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), nullptr);
    EXPECT_EQ(question("cuMemAlloc", &function, 3020, DEFAULT, &status), 0);
    EXPECT_EQ(function, hook);
    EXPECT_EQ(((int (*)(uint64_t))function)(1), DRIVER_RESULT);
}

/* ---- Hooks that only NCCL gets: launches of kernels ---- */

TEST(Launches, NcclAloneGetsTheHooks)
{
    Driver driver;
    Asker other("OTHER"), nccl("NCCL");

    for (const char *symbol : {"cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchKernelEx_ptsz"}) {
        EXPECT_EQ(nccl.look_up(driver.handle, symbol), cuda_probe_hook(symbol)) << symbol;
        EXPECT_EQ(cuda_probe_real(symbol), driver.address(symbol)) << symbol;
        EXPECT_EQ(other.look_up(driver.handle, symbol), driver.address(symbol)) << symbol;
        EXPECT_EQ(dlsym(driver.handle, symbol), driver.address(symbol)) << symbol;
    }
    EXPECT_EQ(nccl.look_up(driver.handle, "cuLaunchKernel_ptsz"),
              driver.address("cuLaunchKernel_ptsz"))
        << "nobody hooks it";
    EXPECT_EQ(nccl.look_up(driver.handle, "cuGraphLaunch"), driver.address("cuGraphLaunch"))
        << "that is for the program";
    EXPECT_EQ(other.look_up(driver.handle, "cuGraphLaunch"), cuda_probe_hook("cuGraphLaunch"));
}

/* As NCCL's static runtime does. */
TEST(Launches, NcclAsksForThemThroughCuGetProcAddress)
{
    Driver driver;
    Asker other("OTHER"), nccl("NCCL");
    auto question = (ask_v2_function *)nccl.look_up(driver.handle, "cuGetProcAddress_v2");

    ASSERT_EQ((void *)question, cuda_probe_door(true));
    EXPECT_EQ(nccl.ask_v2(question, "cuGetProcAddress", 12000, DEFAULT), cuda_probe_door(true));
    EXPECT_EQ(nccl.ask_v2(question, "cuLaunchKernelEx", 11060, DEFAULT),
              cuda_probe_hook("cuLaunchKernelEx"));
    EXPECT_EQ(nccl.ask_v2(question, "cuLaunchKernelEx", 13000, PER_THREAD),
              cuda_probe_hook("cuLaunchKernelEx_ptsz"));
    EXPECT_EQ(nccl.ask_v2(question, "cuMemAlloc", 3020, DEFAULT), driver.address("cuMemAlloc_v2"));
    EXPECT_EQ(other.ask_v2(question, "cuLaunchKernelEx", 11060, DEFAULT),
              driver.address("cuLaunchKernelEx"));
}
