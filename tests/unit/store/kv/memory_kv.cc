/*
 * A store in the memory of this process, with the semantics of store/kv/kv.h.
 */
#include "tests/unit/store/kv/memory_kv.h"

#include "tests/unit/core/helpers/core.h"

#include <deque>
#include <mutex>
#include <sys/eventfd.h>

extern "C" {
#include "core/util/descriptor.h"
}

namespace
{

struct MemoryKv;

struct Store {
    struct Value {
        std::string data;
        int64_t expires_mono_ns; /* 0 never */
    };
    Value *find(const std::string &key)
    {
        auto found = values.find(key);
        if (found == values.end())
            return nullptr;
        if (!found->second.expires_mono_ns || found->second.expires_mono_ns > ng_clock_mono_ns())
            return &found->second;
        values.erase(found);
        return nullptr;
    }
    void set(const std::string &key, const std::string &data, int64_t ttl_ms)
    {
        values[key] = {data, ttl_ms ? ng_clock_mono_ns() + ttl_ms * NG_MS : 0};
    }
    std::mutex lock;
    std::map<std::string, Value> values;
    std::set<MemoryKv *> readers;
};

/* By URL, job and run; they stay, as those of a server do. */
std::mutex stores_lock;
const pid_t parent = getpid();
std::map<std::string, Store> stores;

struct MemoryKv : public ng_kv {
    Store *store;
    std::string value; /* of the last call */
    std::vector<std::function<void()>> queue;
    std::set<std::string> channels;
    std::deque<std::pair<std::string, std::string>> messages;
    std::pair<std::string, std::string> message; /* the last one */
    struct ng_descriptor event = {-1, 0, 0};

    explicit MemoryKv(Store *where) : ng_kv(), store(where)
    {
    }
    void open_event()
    {
        if (!ng_descriptor_ours(&event))
            event = ng_descriptor_keep(eventfd(!messages.empty(), EFD_CLOEXEC | EFD_NONBLOCK));
    }
    int none(const char *key)
    {
        return ng_kv_fail(this, -ENOENT, "there is no key %s", key);
    }
    int give(const std::string &data, struct ng_kv_bytes *ret_value)
    {
        value = data;
        *ret_value = {value.data(), value.size()};
        return 0;
    }
};

MemoryKv *of(struct ng_kv *kv)
{
    return static_cast<MemoryKv *>(kv);
}

std::string text(const struct ng_kv_bytes *bytes)
{
    return std::string(static_cast<const char *>(bytes->data), bytes->bytes);
}

using Lock = std::lock_guard<std::mutex>;

void set(struct ng_kv *kv, const char *key, const std::string &data, int64_t ttl_ms)
{
    Lock lock(of(kv)->store->lock);
    of(kv)->store->set(key, data, ttl_ms);
}

int get(struct ng_kv *kv, const char *key, int64_t, struct ng_kv_bytes *ret_value)
{
    Lock lock(of(kv)->store->lock);
    Store::Value *found = of(kv)->store->find(key);
    return found ? of(kv)->give(found->data, ret_value) : of(kv)->none(key);
}

int get_many(struct ng_kv *kv, const char *const *keys, size_t count, int64_t deadline_mono_ns,
             ng_kv_many_fn *each, void *context)
{
    for (size_t i = 0; i < count; i++) {
        struct ng_kv_bytes value;
        each(context, i, get(kv, keys[i], deadline_mono_ns, &value) == 0 ? &value : nullptr);
    }
    return 0;
}

int add(struct ng_kv *kv, const char *key, int64_t delta, int64_t ttl_ms, int64_t,
        int64_t *ret_value)
{
    Lock lock(of(kv)->store->lock);
    Store::Value *found = of(kv)->store->find(key);
    std::string before = found ? found->data : "0";
    char *end;
    errno = 0;
    int64_t number = strtoll(before.c_str(), &end, 10);
    if (errno || before.empty() || *end || !strchr("-0123456789", before[0]))
        return ng_kv_fail(kv, -EINVAL, "the value of %s is no number", key);
    if (__builtin_add_overflow(number, delta, &number))
        return ng_kv_fail(kv, -ERANGE, "the number at %s would leave its range", key);
    if (found && !ttl_ms)
        found->data = std::to_string(number);
    else
        of(kv)->store->set(key, std::to_string(number), ttl_ms);
    *ret_value = number;
    return 0;
}

int compare_and_set(struct ng_kv *kv, const char *key, const struct ng_kv_bytes *expected,
                    const struct ng_kv_bytes *value, int64_t ttl_ms, int64_t,
                    struct ng_kv_bytes *ret_current)
{
    Lock lock(of(kv)->store->lock);
    Store::Value *found = of(kv)->store->find(key);
    if (!found && expected)
        return of(kv)->none(key);
    if (found && (!expected || found->data != text(expected))) {
        of(kv)->give(found->data, ret_current);
        return ng_kv_fail(kv, -EEXIST, "%s has another value", key);
    }
    of(kv)->store->set(key, text(value), ttl_ms);
    return 0;
}

int put_if_absent(struct ng_kv *kv, const char *key, const struct ng_kv_bytes *value,
                  int64_t ttl_ms, int64_t deadline_mono_ns)
{
    struct ng_kv_bytes current;
    return compare_and_set(kv, key, nullptr, value, ttl_ms, deadline_mono_ns, &current);
}

int remove(struct ng_kv *kv, const char *key, int64_t)
{
    Lock lock(of(kv)->store->lock);
    if (!of(kv)->store->find(key))
        return of(kv)->none(key);
    of(kv)->store->values.erase(key);
    return 0;
}

int expire(struct ng_kv *kv, const char *key, int64_t ttl_ms, int64_t)
{
    Lock lock(of(kv)->store->lock);
    Store::Value *found = of(kv)->store->find(key);
    if (!found)
        return of(kv)->none(key);
    of(kv)->store->set(key, std::string(found->data), ttl_ms);
    return 0;
}

void publish(struct ng_kv *kv, const char *channel, const std::string &data)
{
    Lock lock(of(kv)->store->lock);
    for (MemoryKv *reader : of(kv)->store->readers)
        if (reader->channels.count(channel)) {
            reader->messages.emplace_back(channel, data);
            if (ng_descriptor_ours(&reader->event))
                eventfd_write(reader->event.fd, 1);
        }
}

int queue_set(struct ng_kv *kv, const char *key, const struct ng_kv_bytes *value, int64_t ttl_ms)
{
    of(kv)->queue.push_back(
        [=, name = std::string(key), data = text(value)] { set(kv, name.c_str(), data, ttl_ms); });
    return 0;
}

int queue_publish(struct ng_kv *kv, const char *channel, const struct ng_kv_bytes *value)
{
    of(kv)->queue.push_back(
        [=, name = std::string(channel), data = text(value)] { publish(kv, name.c_str(), data); });
    return 0;
}

int flush(struct ng_kv *kv, int64_t, size_t *ret_failed)
{
    for (const std::function<void()> &call : of(kv)->queue)
        call();
    of(kv)->queue.clear();
    *ret_failed = 0;
    return 0;
}

int subscribe(struct ng_kv *kv, const char *channel, int64_t)
{
    Lock lock(of(kv)->store->lock);
    if (!of(kv)->channels.count(channel) && of(kv)->channels.size() == NG_KV_CHANNELS_MAX)
        return ng_kv_fail(kv, -ENOSPC, "at most %d channels", NG_KV_CHANNELS_MAX);
    of(kv)->channels.insert(channel);
    of(kv)->store->readers.insert(of(kv));
    of(kv)->open_event();
    return 0;
}

int message_fd(struct ng_kv *kv)
{
    Lock lock(of(kv)->store->lock);
    if (of(kv)->channels.empty())
        return -1;
    of(kv)->open_event();
    return of(kv)->event.fd;
}

int next_message(struct ng_kv *kv, int64_t, struct ng_kv_message *ret_message)
{
    MemoryKv *own = of(kv);
    Lock lock(own->store->lock);
    if (own->messages.empty()) {
        eventfd_t told;
        if (ng_descriptor_ours(&own->event))
            eventfd_read(own->event.fd, &told);
        return -EAGAIN;
    }
    own->message = own->messages.front();
    own->messages.pop_front();
    *ret_message = {own->message.first.c_str(),
                    {own->message.second.data(), own->message.second.size()}};
    return 0;
}

/* In a forked child another thread may have had the lock, and none publishes. */
void abandon(struct ng_kv *kv)
{
    std::unique_lock<std::mutex> lock(of(kv)->store->lock, std::defer_lock);
    if (getpid() == parent)
        lock.lock();
    ng_descriptor_close(&of(kv)->event);
}

void destroy(struct ng_kv *kv)
{
    {
        Lock lock(of(kv)->store->lock);
        of(kv)->store->readers.erase(of(kv));
    }
    ng_descriptor_close(&of(kv)->event);
    delete of(kv);
}

struct ng_kv_ops table()
{
    struct ng_kv_ops ops = KV_OPS();
    ops.destroy = destroy;
    return ops;
}

} // namespace

int open_store(const std::string &url, const struct ng_kv_options &options, char *why,
               size_t why_bytes, struct ng_kv **ret_kv)
{
    static const struct ng_kv_ops ops = table();

    if (url.rfind("memory:", 0) != 0)
        return ng_kv_open(url.c_str(), &options, why, why_bytes, ret_kv);
    Lock lock(stores_lock);
    auto *kv = new MemoryKv(&stores[url + "\n" + options.job + "\n" + options.run]);
    kv->ops = &ops;
    snprintf(kv->name, sizeof(kv->name), "%s", url.c_str());
    *ret_kv = kv;
    int error = options.key_file ? ng_kv_signed_open(kv, &options, why, why_bytes, ret_kv) : 0;
    if (error) {
        ng_kv_destroy(kv);
        *ret_kv = nullptr;
    }
    return error;
}

size_t keys_in_store(const std::string &url)
{
    Lock lock(stores_lock);
    size_t count = 0;
    for (auto &named : stores) {
        if (named.first.rfind(url + "\n", 0) != 0)
            continue;
        Lock inner(named.second.lock);
        std::vector<std::string> keys;
        for (const auto &value : named.second.values)
            keys.push_back(value.first);
        for (const std::string &key : keys)
            count += named.second.find(key) != nullptr;
    }
    return count;
}

void empty_store(const std::string &url)
{
    Lock lock(stores_lock);
    for (auto &named : stores)
        if (named.first.rfind(url + "\n", 0) == 0) {
            Lock inner(named.second.lock);
            named.second.values.clear();
        }
}
