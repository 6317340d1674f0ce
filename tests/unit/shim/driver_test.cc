/*
 * The driver's functions are found once the program has loaded a driver, and not before.
 *
 * Each run is a process of its own with another DRIVER.
 */
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <dlfcn.h>

#include "tests/unit/shim/probe.h"

TEST(Driver, IsFoundOnceLoaded)
{
    const char *path = getenv("DRIVER");
    bool complete = !getenv("DRIVER_LACKS_EVENT_QUERY");
    struct ng_cuda cuda = {};
    struct ng_cuda none = {};

    ASSERT_NE(path, nullptr);
    probe_clear();
    EXPECT_FALSE(probe_driver_find(&cuda));
    EXPECT_EQ(memcmp(&cuda, &none, sizeof(cuda)), 0);
    EXPECT_EQ(dlerror(), nullptr) << "our error is shown to the program";
    EXPECT_STREQ(probe_log(), "");

    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(handle, nullptr) << dlerror();
    EXPECT_EQ(probe_driver_find(&cuda), complete);
    EXPECT_EQ(cuda.loaded, complete);
    if (!complete) {
        EXPECT_EQ(memcmp(&cuda, &none, sizeof(cuda)), 0);
        EXPECT_FALSE(probe_driver_find(&cuda));
        EXPECT_STREQ(probe_log(),
                     "the CUDA driver lacks cuEventQuery: GPU progress cannot be watched\n");
        return;
    }
#define CHECK(field, name, prototype) EXPECT_EQ((void *)cuda.field, dlsym(handle, name)) << name;
    NG_CUDA_FUNCTIONS(CHECK)
#undef CHECK
}
