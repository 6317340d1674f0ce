/*
 * A store for tests of its interface: opened by URL, with a deadline for every call.
 */
#ifndef NCCLGUARD_TESTS_UNIT_STORE_KV_H
#define NCCLGUARD_TESTS_UNIT_STORE_KV_H

#include "tests/unit/core/helpers/core.h"
#include "tests/unit/store/kv/memory_kv.h"

#include <poll.h>

extern "C" {
#include "store/kv/kv_open.h"
#include "store/kv/tls.h"
#include "store/kv/url.h"
}

inline int64_t within(int64_t ms)
{
    return ng_clock_mono_ns() + ms * NG_MS;
}

constexpr int64_t patience_ms = 20000;

class Kv : NotCopied
{
  public:
    explicit Kv(const std::string &url, const std::string &run = "run",
                const std::string &job = "job", int ping_ms = 0, const char *key_file = nullptr)
    {
        struct ng_kv_options options = {
            .job = job.c_str(), .run = run.c_str(), .key_file = key_file, .ping_ms = ping_ms};
#if NG_TEST_TLS
        options.tls = &ng_tls_openssl;
#endif
        error = open_store(url, options, why, sizeof(why), &kv);
    }
    ~Kv()
    {
        ng_kv_destroy(kv);
    }

    int set(const std::string &key, const std::string &value, int64_t ttl_ms = 0,
            int64_t ms = patience_ms)
    {
        return ng_kv_set(kv, key.c_str(), value.data(), value.size(), ttl_ms, within(ms));
    }
    int get(const std::string &key, std::string *ret_value, int64_t ms = patience_ms)
    {
        struct ng_kv_bytes value;
        return take(ng_kv_get(kv, key.c_str(), within(ms), &value), value, ret_value);
    }
    /* The value, or why there is none. */
    std::string value(const std::string &key)
    {
        std::string found;
        int result = get(key, &found);
        return result ? strerror(-result) : found;
    }
    int add(const std::string &key, int64_t delta, int64_t *ret_value, int64_t ttl_ms = 0,
            int64_t ms = patience_ms)
    {
        return ng_kv_add(kv, key.c_str(), delta, ttl_ms, within(ms), ret_value);
    }
    int put(const std::string &key, const std::string &value, int64_t ttl_ms = 0,
            int64_t ms = patience_ms)
    {
        return ng_kv_put_if_absent(kv, key.c_str(), value.data(), value.size(), ttl_ms, within(ms));
    }
    int cas(const std::string &key, const char *expected, const std::string &value,
            std::string *ret_current = nullptr, int64_t ttl_ms = 0, int64_t ms = patience_ms)
    {
        struct ng_kv_bytes old = {expected, expected ? strlen(expected) : 0}, current = {};
        int result = ng_kv_compare_and_set(kv, key.c_str(), expected ? &old : nullptr, value.data(),
                                           value.size(), ttl_ms, within(ms), &current);
        if (ret_current && current.data)
            ret_current->assign(static_cast<const char *>(current.data), current.bytes);
        return result;
    }
    int remove(const std::string &key, int64_t ms = patience_ms)
    {
        return ng_kv_remove(kv, key.c_str(), within(ms));
    }
    int expire(const std::string &key, int64_t ttl_ms, int64_t ms = patience_ms)
    {
        return ng_kv_expire(kv, key.c_str(), ttl_ms, within(ms));
    }
    int publish(const std::string &channel, const std::string &data, int64_t ms = patience_ms)
    {
        return ng_kv_publish(kv, channel.c_str(), data.data(), data.size(), within(ms));
    }
    int subscribe(const std::string &channel, int64_t ms = patience_ms)
    {
        return ng_kv_subscribe(kv, channel.c_str(), within(ms));
    }
    /* "channel=data", or what came instead. */
    std::string message(int64_t ms = patience_ms)
    {
        int64_t deadline = within(ms);
        for (;;) {
            struct ng_kv_message message;
            int result = ng_kv_next_message(kv, deadline, &message);
            if (!result)
                return std::string(message.channel) + "=" +
                       std::string(static_cast<const char *>(message.data.data),
                                   message.data.bytes);
            int64_t left_ms = (deadline - ng_clock_mono_ns() + NG_MS - 1) / NG_MS;
            if (result == -ESTALE || left_ms <= 0)
                return strerrorname_np(result == -ESTALE ? ESTALE : ETIMEDOUT);
            struct pollfd wanted = {ng_kv_message_fd(kv), POLLIN, 0};
            int64_t most_ms = wanted.fd < 0 ? 20 : 3600 * 1000;
            poll(&wanted, 1, static_cast<int>(std::min(left_ms, most_ms)));
        }
    }

    struct ng_kv *kv = nullptr;
    int error;
    char why[512] = "";

  private:
    static int take(int result, const struct ng_kv_bytes &value, std::string *ret_value)
    {
        if (!result)
            ret_value->assign(static_cast<const char *>(value.data), value.bytes);
        return result;
    }
};

#endif
