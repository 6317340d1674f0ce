/*
 * Tests that run on each kind of store that ranks can share: a folder, and Redis.
 */
#ifndef NCCLGUARD_TESTS_UNIT_STORE_ON_STORES_H
#define NCCLGUARD_TESTS_UNIT_STORE_ON_STORES_H

#include "tests/unit/core/helpers/core.h"

#if NG_HAVE_HIREDIS
#include "tests/unit/store/kv/redis.h"
#define STORES testing::Values("memory", "redis")
#else
#define STORES testing::Values("memory")
#endif

#define INSTANTIATE_ON_STORES(suite)                                                               \
    INSTANTIATE_TEST_SUITE_P(On, suite, STORES,                                                    \
                             [](const auto &info) { return std::string(info.param); })

/* A store of one test; a fixture inherits it. */
class StoreOfTest
{
  protected:
    /* Skips the test where there is no redis-server. */
    void open_store(const std::string &kind)
    {
        url = "memory:" + folder.path();
#if NG_HAVE_HIREDIS
        if (kind == "redis") {
            if (!RedisServer::available())
                GTEST_SKIP() << "redis-server is not installed";
            server = std::make_unique<RedisServer>();
            url = server->url();
        }
#endif
    }
    Folder folder;
    std::string url;
#if NG_HAVE_HIREDIS
    std::unique_ptr<RedisServer> server;
#endif
};

#endif
