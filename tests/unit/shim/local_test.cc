/*
 * Without a NCCL every call fails with a clear line; one that is loaded later is found.
 *
 * Each run is a process of its own: LIBRARY is loaded with RTLD_LOCAL, as PyTorch loads NCCL, so
 * that RTLD_NEXT does not see it. It is named libnccl.so.2, or is a larger library that contains
 * NCCL.
 */
#include <gtest/gtest.h>

#include <cstdlib>
#include <dlfcn.h>

#include "tests/unit/shim/probe.h"
#include "tests/unit/shim/recording_nccl.h"

TEST(Local, IsFoundWhenItComes)
{
    const char *path = getenv("LIBRARY");
    int version = 0;

    ASSERT_NE(path, nullptr);
    probe_set_active(true);
    probe_clear();

    EXPECT_EQ(ncclGetVersion(&version), ncclInvalidUsage);
    EXPECT_EQ(ncclGroupStart(), ncclInvalidUsage);
    EXPECT_EQ(ncclGroupStart(), ncclInvalidUsage);
    EXPECT_STREQ(probe_log(),
                 "ncclGetVersion was called, but no NCCL library is loaded here: the call fails\n"
                 "ncclGroupStart was called, but no NCCL library is loaded here: the call fails\n");
    EXPECT_EQ(probe_call_count(), 0u);
    EXPECT_EQ(probe_nccl_count(), 0u);
    EXPECT_EQ(dlerror(), nullptr) << "our error is shown to the program";

    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(handle, nullptr) << dlerror();
    auto of = (struct recording(*)(enum recording_id))dlsym(handle, "recording_of");
    ASSERT_NE(of, nullptr);

    probe_clear();
    EXPECT_EQ(ncclGetVersion(&version), ncclSuccess);
    EXPECT_EQ(version, RECORDING_VERSION);
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(of(RECORDING_GroupStart).calls, 1u);
    EXPECT_EQ(probe_call_count(), 1u);
    ASSERT_EQ(probe_nccl_count(), 1u);
    EXPECT_STREQ(probe_nccl(0)->path, path);
    EXPECT_STREQ(probe_log(), "");

    /* Held, so that a program which unloads it does not pull the rug from under the guard. */
    dlclose(handle);
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
}

/* A larger library also contains the program's own callers: only the depth tells them apart. */
TEST(Local, CallersInALargerLibraryAreTheProgram)
{
    void *handle = dlopen(getenv("LIBRARY"), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(handle, nullptr) << dlerror();
    auto call = (ncclResult_t(*)(void))dlsym(handle, "recording_call_from_inside");
    ASSERT_NE(call, nullptr);

    probe_set_active(true);
    ncclGroupStart();
    probe_clear();
    EXPECT_EQ(call(), ncclSuccess);
    EXPECT_EQ(probe_call_count(), strstr(getenv("LIBRARY"), "libnccl.so") ? 0u : 1u);
}
