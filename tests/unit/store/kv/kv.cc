/*
 * The store's interface: one suite for every kind of server, and for the stand-in in memory that
 * other tests use.
 */
#include "tests/unit/store/kv/kv.h"
#include "tests/gtest/in_time.h"

#if NG_HAVE_HIREDIS
#include "tests/unit/store/kv/redis.h"
#endif

#include <pthread.h>

namespace
{

using Names = std::vector<std::string>;

/* One server of each kind for all tests; each test has keys of its own. */
struct Backend {
    std::shared_ptr<void> servers;
    std::function<std::string()> url;
};

template <class Servers, class Url> Backend on(std::shared_ptr<Servers> servers, Url url_of)
{
    return {servers, [servers, url_of] { return url_of(*servers); }};
}

#if NG_HAVE_HIREDIS
struct TlsServer : Certificates {
    int port = free_port();
    RedisServer server{{"--tls-port", std::to_string(port), "--tls-cert-file", cert(),
                        "--tls-key-file", key(), "--tls-ca-cert-file", ca()}};
};

/* What a user may do that may do no more than a store needs, on no other keys. */
const Names user = {"--user",  "default",     "off",           "--user",        "guard",
                    "on",      ">p@ss:w/ord", "~{ncclguard:*", "&{ncclguard:*", "-@all",
                    "+get",    "+set",        "+mget",         "+del",          "+exists",
                    "+incrby", "+pexpire",    "+persist",      "+watch",        "+unwatch",
                    "+multi",  "+exec",       "+publish",      "+subscribe",    "+ping"};

template <class... Arguments> auto redis(const Arguments &...arguments)
{
    return std::make_shared<RedisServer>(arguments...);
}
#endif

const std::map<std::string, Backend (*)()> makers = {
    {"memory",
     [] {
         return Backend{nullptr, [] { return "memory:kv"; }};
     }},
#if NG_HAVE_HIREDIS
    {"tcp", [] { return on(redis(), [](auto &server) { return server.url() + "/2"; }); }},
    {"socket",
     [] {
         return on(redis(Names(), false),
                   [](auto &server) { return "redis+unix://" + server.socket() + "?db=1"; });
     }},
    {"password",
     [] {
         return on(redis(Names{"--requirepass", "only a password"}),
                   [](auto &server) { return server.url(":only%20a%20password@"); });
     }},
    {"user",
     [] {
         return on(redis(user), [](auto &server) { return server.url("guard:p%40ss%3Aw%2Ford@"); });
     }},
    {"tls",
     [] {
         return on(std::make_shared<TlsServer>(), [](auto &at) {
             return "rediss://localhost:" + std::to_string(at.port) + "?ca=" + at.ca() +
                    "&cert=" + at.cert() + "&key=" + at.key();
         });
     }},
    {"sentinel",
     [] {
         return on(std::make_shared<RedisSentinel>(), [](auto &servers) { return servers.url(); });
     }},
    {"cluster",
     [] {
         /* Each in turn: mostly it is one that does not have the keys. */
         return on(std::make_shared<RedisCluster>(),
                   [next = std::make_shared<std::atomic<size_t>>()](auto &at) {
                       return at.nodes[(*next)++ % 3]->url();
                   });
     }},
#endif
};

std::map<std::string, Backend> backends;

/* NULL where this machine or this build cannot have it: with the reason. */
Backend *backend(const std::string &name, std::string *ret_why)
{
#if NG_HAVE_HIREDIS
    if (name != "memory" && !RedisServer::available())
        *ret_why = "redis-server is not installed";
    if (name == "tls" && (!NG_TEST_TLS || !have_command("openssl")))
        *ret_why = "OpenSSL is not installed";
#endif
    if (ret_why->empty() && !backends.count(name))
        backends[name] = makers.at(name)();
    return ret_why->empty() ? &backends[name] : nullptr;
}

/* Servers end before the program's statics do. */
class EndOfServers : public testing::Environment
{
    void TearDown() override
    {
        backends.clear();
    }
};
const testing::Environment *const end_of_servers =
    testing::AddGlobalTestEnvironment(new EndOfServers);

struct KvTest : testing::TestWithParam<const char *> {
    void SetUp() override
    {
        std::string why;
        if (!backend(GetParam(), &why))
            GTEST_SKIP() << why;
        run_ = testing::UnitTest::GetInstance()->current_test_info()->name() +
               std::to_string(ng_clock_mono_ns());
        kv_ = open();
    }
    std::unique_ptr<Kv> open(const std::string &run = "", const std::string &job = "job")
    {
        std::string why;
        auto kv =
            std::make_unique<Kv>(backend(GetParam(), &why)->url(), run.empty() ? run_ : run, job);
        EXPECT_EQ(kv->error, 0) << kv->why;
        return kv;
    }
    std::unique_ptr<Kv> kv_;
    std::string run_;
};

/* What only a connection can be put to. */
struct KvConnection : KvTest {
};

static const char *const all_backends[] = {"memory",
#if NG_HAVE_HIREDIS
                                           "tcp",    "socket",   "password", "user",
                                           "tls",    "sentinel", "cluster"
#endif
};
INSTANTIATE_TEST_SUITE_P(Backends, KvTest, testing::ValuesIn(all_backends),
                         [](const auto &info) { return std::string(info.param); });
INSTANTIATE_TEST_SUITE_P(Backends, KvConnection,
                         testing::ValuesIn(all_backends + 1, std::end(all_backends)),
                         [](const auto &info) { return std::string(info.param); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(KvConnection);

/* ---- The suite ---- */

TEST_P(KvTest, WhatWasSetIsGot)
{
    EXPECT_EQ(kv_->value("key"), strerror(ENOENT));
    ASSERT_EQ(kv_->set("key", "value"), 0) << ng_kv_error(kv_->kv);
    EXPECT_EQ(kv_->value("key"), "value");
    ASSERT_EQ(kv_->set("key", "another"), 0);
    EXPECT_EQ(kv_->value("key"), "another");
    EXPECT_EQ(open()->value("key"), "another");
}

TEST_P(KvTest, ValuesAreBytes)
{
    std::string all;
    for (int i = 0; i < 1024; i++)
        all += (char)i;
    for (const std::string &value :
         {std::string(), std::string("\0\r\n\0", 4), all, std::string(3 << 20, 'x')}) {
        ASSERT_EQ(kv_->set("key", value), 0) << ng_kv_error(kv_->kv);
        std::string found = "something else";
        ASSERT_EQ(kv_->get("key", &found), 0);
        EXPECT_TRUE(found == value) << value.size();
    }
}

TEST(KvText, IsCutToTheRoomThatThereIs)
{
    const struct ng_kv_bytes value = {"1234567", 7};
    char eight[8], seven[7], one[1];

    ng_kv_text(&value, eight, sizeof(eight));
    EXPECT_STREQ(eight, "1234567");
    ng_kv_text(&value, seven, sizeof(seven));
    EXPECT_STREQ(seven, "123456");
    ng_kv_text(&value, one, sizeof(one));
    EXPECT_STREQ(one, "");
}

TEST_P(KvTest, AnyKeyWorksAndNoneIsTakenForAnother)
{
    Names keys = {"a",
                  "A",
                  "a/b",
                  "a%2Fb",
                  "../a",
                  ".",
                  "..",
                  "a b",
                  "a\nb",
                  "*",
                  "?",
                  "[a]",
                  "\\",
                  "a:b",
                  "k.a",
                  "\xff\x01",
                  "{x}",
                  "}",
                  std::string(NG_KV_KEY_MAX, '/'),
                  std::string(NG_KV_KEY_MAX - 1, '/') + "x",
                  std::string(NG_KV_KEY_MAX - 1, 'x'),
                  std::string(NG_KV_KEY_MAX, 'x')};
    for (const std::string &key : keys)
        ASSERT_EQ(kv_->set(key, "value of " + key), 0) << key << ng_kv_error(kv_->kv);
    for (const std::string &key : keys)
        EXPECT_EQ(kv_->value(key), "value of " + key);
    for (const std::string &key : keys) {
        ASSERT_EQ(kv_->remove(key), 0) << key;
        EXPECT_EQ(kv_->value(key), strerror(ENOENT));
    }
}

TEST_P(KvTest, KeysThatAreNoneAreRefused)
{
    EXPECT_EQ(kv_->set("", "value"), -EINVAL);
    EXPECT_EQ(kv_->set(std::string(NG_KV_KEY_MAX + 1, 'x'), "value"), -EMSGSIZE);
    EXPECT_EQ(kv_->set("key", "value", -1), -EINVAL);
    EXPECT_STRNE(ng_kv_error(kv_->kv), "");
    EXPECT_EQ(ng_kv_set(kv_->kv, "key", "", (size_t)NG_KV_VALUE_MAX + 1, 0, within(1000)),
              -EMSGSIZE);
}

TEST_P(KvTest, AddCountsFromNothingAndKeepsItsRange)
{
    int64_t value;
    ASSERT_EQ(kv_->add("n", 5, &value), 0) << ng_kv_error(kv_->kv);
    EXPECT_EQ(value, 5);
    ASSERT_EQ(kv_->add("n", -7, &value), 0);
    EXPECT_EQ(value, -2);
    EXPECT_EQ(kv_->value("n"), "-2");
    ASSERT_EQ(kv_->add("n", 0, &value), 0);
    EXPECT_EQ(value, -2);

    value = 77;
    ASSERT_EQ(kv_->set("text", "x1"), 0);
    EXPECT_EQ(kv_->add("text", 1, &value), -EINVAL);
    ASSERT_EQ(kv_->set("text", " 1"), 0);
    EXPECT_EQ(kv_->add("text", 1, &value), -EINVAL);
    EXPECT_EQ(kv_->value("text"), " 1");
    ASSERT_EQ(kv_->set("large", "9223372036854775807"), 0);
    EXPECT_EQ(kv_->add("large", 1, &value), -ERANGE);
    EXPECT_EQ(kv_->value("large"), "9223372036854775807");
    EXPECT_EQ(value, 77);
}

constexpr int threads = 4, rounds = 25;

/* Threads with a connection each, all at once; each round has its own key. */
template <typename Body> void race(const std::function<std::unique_ptr<Kv>()> &open, Body body)
{
    std::vector<std::thread> all;
    pthread_barrier_t start;
    pthread_barrier_init(&start, nullptr, threads);
    for (int i = 0; i < threads; i++)
        all.emplace_back([&, i] {
            auto kv = open();
            for (int round = 0; round < rounds; round++) {
                pthread_barrier_wait(&start);
                body(*kv, i, round);
            }
        });
    for (std::thread &thread : all)
        thread.join();
    pthread_barrier_destroy(&start);
}

TEST_P(KvTest, NoAdditionIsLost)
{
    std::mutex mutex;
    std::set<int64_t> values;
    race([&] { return open(); },
         [&](Kv &kv, int, int) {
             int64_t value = 0;
             EXPECT_EQ(kv.add("n", 1, &value), 0) << ng_kv_error(kv.kv);
             std::lock_guard<std::mutex> lock(mutex);
             values.insert(value);
         });
    EXPECT_EQ(values.size(), (size_t)threads * rounds);
    EXPECT_EQ(*values.rbegin(), threads * rounds);
}

TEST_P(KvTest, ExactlyOnePutsAndItsValueStays)
{
    std::atomic<int> winners[rounds] = {};
    race([&] { return open(); },
         [&](Kv &kv, int number, int round) {
             int result = kv.put("k" + std::to_string(round), std::to_string(number));
             EXPECT_TRUE(result == 0 || result == -EEXIST) << ng_kv_error(kv.kv);
             if (result == 0)
                 winners[round] += 100 + number;
         });
    for (int round = 0; round < rounds; round++) {
        int winner = winners[round] - 100;
        EXPECT_TRUE(winner >= 0 && winner < threads);
        EXPECT_EQ(kv_->value("k" + std::to_string(round)), std::to_string(winner));
    }
}

TEST_P(KvTest, CompareAndSetLosesNoChange)
{
    ASSERT_EQ(kv_->set("n", "0"), 0);
    race([&] { return open(); },
         [&](Kv &kv, int, int) {
             std::string current = "0", mine;
             int result;
             do {
                 mine = std::to_string(std::stoi(current) + 1);
                 result = kv.cas("n", std::string(current).c_str(), mine, &current);
             } while (result == -EEXIST);
             EXPECT_EQ(result, 0) << ng_kv_error(kv.kv);
         });
    EXPECT_EQ(kv_->value("n"), std::to_string(threads * rounds));
}

TEST_P(KvTest, CompareAndSetSaysWhatIsThere)
{
    std::string current;
    EXPECT_EQ(kv_->cas("key", "old", "new", &current), -ENOENT);
    EXPECT_EQ(kv_->cas("key", nullptr, "first"), 0) << ng_kv_error(kv_->kv);
    EXPECT_EQ(kv_->cas("key", nullptr, "second", &current), -EEXIST);
    EXPECT_EQ(current, "first");
    EXPECT_EQ(kv_->cas("key", "firs", "second", &current), -EEXIST);
    EXPECT_EQ(kv_->value("key"), "first");
    EXPECT_EQ(kv_->cas("key", "first", "second"), 0);
    EXPECT_EQ(kv_->value("key"), "second");
    EXPECT_EQ(kv_->cas("key", "second", "third", nullptr, 60), 0);
    while (kv_->value("key") == "third")
        usleep(5000);
    EXPECT_EQ(kv_->value("key"), strerror(ENOENT));
    /* An empty value is a value. */
    EXPECT_EQ(kv_->cas("empty", nullptr, ""), 0);
    EXPECT_EQ(kv_->cas("empty", nullptr, ""), -EEXIST);
    EXPECT_EQ(kv_->cas("empty", "", "x"), 0);
}

TEST_P(KvTest, RemovedIsGone)
{
    EXPECT_EQ(kv_->remove("key"), -ENOENT);
    ASSERT_EQ(kv_->set("key", "value"), 0);
    EXPECT_EQ(kv_->remove("key"), 0);
    EXPECT_EQ(kv_->value("key"), strerror(ENOENT));
    EXPECT_EQ(kv_->put("key", "again"), 0);
}

/* Until then, and no longer than a generous time. */
bool goes(Kv &kv, const std::string &key)
{
    int64_t end = ng_clock_mono_ns() + 10 * NG_S;
    while (kv.value(key) != strerror(ENOENT)) {
        if (ng_clock_mono_ns() > end)
            return false;
        usleep(5000);
    }
    return true;
}

TEST_P(KvTest, KeysGoWhenTheirTimeIsOver)
{
    int64_t value;
    int64_t start = ng_clock_mono_ns();
    ASSERT_EQ(kv_->set("set", "value", 400), 0);
    ASSERT_EQ(kv_->put("put", "value", 400), 0);
    ASSERT_EQ(kv_->add("add", 1, &value, 400), 0);
    ASSERT_EQ(kv_->set("expire", "value"), 0);
    ASSERT_EQ(kv_->expire("expire", 400), 0);
    /* What is gone before the second call is made, is made anew. */
    int result = -ENOENT;
    for (int i = 0; i < 20 && result == -ENOENT; i++) {
        ASSERT_EQ(kv_->set("kept", "value", 400), 0);
        result = kv_->expire("kept", 0);
    }
    ASSERT_EQ(result, 0);
    ASSERT_EQ(kv_->set("set again", "value", 400), 0);
    ASSERT_EQ(kv_->set("set again", "value"), 0);
    value = 1;
    for (int i = 0; i < 20 && value == 1; i++) {
        ASSERT_EQ(kv_->set("added", "1", 400), 0);
        ASSERT_EQ(kv_->add("added", 1, &value), 0);
    }
    EXPECT_EQ(value, 2);
    std::string there = kv_->value("set");
    if (ng_clock_mono_ns() - start < 400 * NG_MS) {
        EXPECT_EQ(there, "value");
    }
    for (const char *key : {"set", "put", "add", "expire", "added"})
        EXPECT_TRUE(goes(*kv_, key)) << key;
    EXPECT_EQ(kv_->value("kept"), "value");
    EXPECT_EQ(kv_->value("set again"), "value");
    EXPECT_EQ(kv_->expire("set", 1000), -ENOENT);
    EXPECT_EQ(kv_->expire("set", 0), -ENOENT);
    EXPECT_EQ(kv_->remove("set"), -ENOENT);
    EXPECT_EQ(kv_->put("put", "anew"), 0);
    ASSERT_EQ(kv_->add("add", 1, &value), 0);
    EXPECT_EQ(value, 1);
}

TEST_P(KvTest, GetManyTellsWhichAreMissing)
{
    std::vector<std::string> keys;
    std::vector<const char *> list;
    for (int i = 0; i < 600; i++)
        keys.push_back("k" + std::to_string(i));
    for (const std::string &key : keys) {
        list.push_back(key.c_str());
        if (std::stoi(key.substr(1)) % 3) {
            ASSERT_EQ(ng_kv_queue_set(kv_->kv, key.c_str(), key.data(), key.size(), 0), 0);
        }
    }
    ASSERT_EQ(ng_kv_flush(kv_->kv, within(patience_ms), nullptr), 0);
    std::vector<std::string> found;
    ASSERT_EQ(ng_kv_get_many(
                  kv_->kv, list.data(), list.size(), within(patience_ms),
                  [](void *context, size_t index, const struct ng_kv_bytes *value) {
                      auto *all = static_cast<std::vector<std::string> *>(context);
                      EXPECT_EQ(index, all->size());
                      all->push_back(
                          value ? std::string(static_cast<const char *>(value->data), value->bytes)
                                : "-");
                  },
                  &found),
              0)
        << ng_kv_error(kv_->kv);
    ASSERT_EQ(found.size(), keys.size());
    for (size_t i = 0; i < keys.size(); i++)
        EXPECT_EQ(found[i], i % 3 ? keys[i] : "-");
}

TEST_P(KvTest, TheQueueIsDoneInOrderAndThenEmpty)
{
    auto other = open();
    ASSERT_EQ(other->subscribe("news"), 0) << ng_kv_error(other->kv);
    ASSERT_EQ(ng_kv_queue_set(kv_->kv, "a", "1", 1, 0), 0);
    ASSERT_EQ(ng_kv_queue_set(kv_->kv, "a", "2", 1, 0), 0);
    ASSERT_EQ(ng_kv_queue_set(kv_->kv, "b", "3", 1, 60000), 0);
    ASSERT_EQ(ng_kv_queue_publish(kv_->kv, "news", "done", 4), 0);
    EXPECT_EQ(kv_->value("a"), strerror(ENOENT));
    size_t failed = 99;
    EXPECT_EQ(ng_kv_flush(kv_->kv, within(patience_ms), &failed), 0);
    EXPECT_EQ(failed, 0u);
    EXPECT_EQ(kv_->value("a"), "2");
    EXPECT_EQ(kv_->value("b"), "3");
    EXPECT_EQ(other->message(), "news=done");
    ASSERT_EQ(kv_->remove("a"), 0);
    EXPECT_EQ(ng_kv_flush(kv_->kv, within(patience_ms), &failed), 0);
    EXPECT_EQ(kv_->value("a"), strerror(ENOENT));
}

TEST_P(KvTest, MessagesReachThoseThatAreSubscribedInOrder)
{
    auto other = open();
    EXPECT_EQ(kv_->publish("news", "too early"), 0) << ng_kv_error(kv_->kv);
    EXPECT_EQ(ng_kv_message_fd(other->kv), -1);
    EXPECT_EQ(other->message(50), "ETIMEDOUT");
    ASSERT_EQ(other->subscribe("news"), 0) << ng_kv_error(other->kv);
    ASSERT_EQ(other->subscribe("more"), 0);
    ASSERT_EQ(other->subscribe("news"), 0);
    EXPECT_EQ(other->message(50), "ETIMEDOUT");
    EXPECT_EQ(kv_->publish("other", "not for us"), 0);
    for (int i = 0; i < 50; i++)
        EXPECT_EQ(kv_->publish("news", "n" + std::to_string(i)), 0);
    for (int i = 0; i < 50; i++)
        EXPECT_EQ(other->message(), "news=n" + std::to_string(i));
    EXPECT_EQ(kv_->publish("more", std::string("\0x", 2)), 0);
    EXPECT_EQ(other->message(), std::string("more=\0x", 7));
    EXPECT_EQ(other->message(50), "ETIMEDOUT");
    /* One's own as well, beside other calls. */
    ASSERT_EQ(kv_->subscribe("mine"), 0);
    EXPECT_EQ(kv_->publish("mine", "x"), 0);
    EXPECT_EQ(kv_->set("key", "value"), 0);
    EXPECT_EQ(kv_->message(), "mine=x");
    EXPECT_EQ(kv_->value("key"), "value");
}

TEST_P(KvTest, TheDescriptorWakesWhoeverWaits)
{
    ASSERT_EQ(kv_->subscribe("news"), 0);
    std::thread publisher([&] { EXPECT_EQ(open()->publish("news", "x"), 0); });
    EXPECT_EQ(kv_->message(), "news=x");
    publisher.join();
    int fd = ng_kv_message_fd(kv_->kv);
    EXPECT_GE(fd, 0);
    EXPECT_EQ(kv_->message(20), "ETIMEDOUT");
    EXPECT_EQ(ng_kv_message_fd(kv_->kv), fd);
}

TEST_P(KvTest, AMessageMayBeLarge)
{
    auto other = open();
    std::string large(2 << 20, 'm');
    ASSERT_EQ(other->subscribe("news"), 0);
    ASSERT_EQ(kv_->publish("news", large), 0);
    ASSERT_EQ(kv_->publish("news", "small"), 0);
    EXPECT_TRUE(other->message() == "news=" + large);
    EXPECT_EQ(other->message(), "news=small");
}

TEST_P(KvTest, SoManyChannelsAndNoMore)
{
    for (int i = 0; i < NG_KV_CHANNELS_MAX; i++)
        ASSERT_EQ(kv_->subscribe("c" + std::to_string(i)), 0);
    EXPECT_EQ(kv_->subscribe("one more"), -ENOSPC);
    EXPECT_EQ(kv_->publish("c7", "x"), 0);
    EXPECT_EQ(kv_->message(), "c7=x");
}

TEST_P(KvTest, OtherRunsAndJobsAreNeverSeen)
{
    Names runs = {run_ + "2", run_ + ":", run_ + "}", run_ + "*", run_ + "/.."};
    ASSERT_EQ(kv_->set("key", "mine"), 0);
    ASSERT_EQ(kv_->subscribe("news"), 0);
    std::vector<std::unique_ptr<Kv>> others;
    for (const std::string &run : runs)
        others.push_back(open(run));
    others.push_back(open(run_, "job2"));
    others.push_back(open(run_ + ":x", "job"));
    others.push_back(open("x", "job:" + run_));
    others.push_back(open(std::string(300, 'r'), std::string(300, 'j')));
    others.push_back(open(std::string(300, 'r'), std::string(301, 'j')));
    for (size_t i = 0; i < others.size(); i++) {
        EXPECT_EQ(others[i]->value("key"), strerror(ENOENT)) << i;
        EXPECT_EQ(others[i]->put("key", std::to_string(i)), 0) << i;
        EXPECT_EQ(others[i]->publish("news", "not yours"), 0);
    }
    for (size_t i = 0; i < others.size(); i++) {
        EXPECT_EQ(others[i]->value("key"), std::to_string(i));
        EXPECT_EQ(others[i]->remove("key"), 0) << ng_kv_error(others[i]->kv);
    }
    EXPECT_EQ(kv_->value("key"), "mine");
    EXPECT_EQ(kv_->message(50), "ETIMEDOUT");
}

TEST_P(KvTest, ADeadlineThatHasPassedEndsACallAtOnceAndBreaksNothing)
{
    ASSERT_EQ(kv_->set("key", "value"), 0);
    uint64_t connects = kv_->kv->connects;
    int64_t start = ng_clock_mono_ns();
    for (int i = 0; i < 20; i++) {
        int result = kv_->set("key", "value", 0, -1000);
        EXPECT_TRUE(result == 0 || result == -ETIMEDOUT) << result;
    }
    EXPECT_IN_TIME(ng_clock_mono_ns() - start, 5 * NG_S);
    EXPECT_EQ(kv_->value("key"), "value");
    EXPECT_EQ(kv_->kv->connects, connects);
}

TEST_P(KvConnection, AProgramThatClosesEveryDescriptorIsSurvived)
{
    ASSERT_EQ(kv_->set("key", "value"), 0);
    ASSERT_EQ(kv_->subscribe("news"), 0);
    kv_.reset();
    EXPECT_EQ(in_child([&] {
                  auto kv = open();
                  if (kv->set("key", "before") || kv->subscribe("news"))
                      return 1;
                  for (int fd = 3; fd < 1024; fd++)
                      close(fd);
                  /* The program's own files get the numbers. */
                  char name[] = "/tmp/ncclguard-test-XXXXXX";
                  int file = mkstemp(name);
                  for (int fd = 3; fd < 400; fd++)
                      if (fd != file)
                          dup2(file, fd);
                  if (kv->set("key", "after") || kv->value("key") != "after")
                      return 2;
                  std::string told = kv->message();
                  if (told != "ESTALE")
                      return 3;
                  if (kv->publish("news", "again") || kv->message() != "news=again")
                      return 4;
                  if (lseek(file, 0, SEEK_END) != 0)
                      return 5; /* something of ours was written to it */
                  unlink(name);
                  return 0;
              }),
              0);
}

TEST_P(KvTest, AForkedChildDisturbsNothing)
{
    ASSERT_EQ(kv_->set("key", "value"), 0);
    ASSERT_EQ(kv_->subscribe("news"), 0);
    uint64_t connects = kv_->kv->connects;
    EXPECT_EQ(in_child([&] {
                  ng_kv_abandon(kv_->kv);
                  return 0;
              }),
              0);
    EXPECT_EQ(kv_->value("key"), "value");
    EXPECT_EQ(kv_->publish("news", "x"), 0);
    EXPECT_EQ(kv_->message(), "news=x");
    EXPECT_EQ(kv_->kv->connects, connects);
}

/* ---- Opening ---- */

int open_error(const std::string &url, struct ng_kv_options options, std::string *ret_why)
{
    char why[512] = "";
    struct ng_kv *kv = nullptr;
    int error = ng_kv_open(url.c_str(), &options, why, sizeof(why), &kv);
    EXPECT_EQ(kv, nullptr);
    *ret_why = why;
    return error;
}

TEST(Kv, WhatCannotBeOpenedIsToldWithTheMend)
{
    struct ng_kv_options options = {};
    std::string why;
    options.job = "job";
    options.run = "run";
    EXPECT_EQ(open_error("none", options, &why), -EINVAL);
    EXPECT_EQ(open_error("redis:/x", options, &why), -EINVAL);
    EXPECT_NE(why.find("redis:/x"), std::string::npos);
    EXPECT_EQ(open_error("local:/tmp", options, &why), -EINVAL);
    EXPECT_NE(why.find("local:/tmp"), std::string::npos);
    EXPECT_EQ(open_error("rediss://:hidden@host", options, &why), -EOPNOTSUPP);
#if NG_HAVE_HIREDIS
    EXPECT_NE(why.find("no TLS"), std::string::npos) << why;
#else
    EXPECT_NE(why.find("no Redis"), std::string::npos) << why;
    EXPECT_EQ(open_error("redis://:hidden@host", options, &why), -EOPNOTSUPP);
    EXPECT_NE(why.find("-Dredis=enabled"), std::string::npos) << why;
#endif
    EXPECT_EQ(why.find("hidden"), std::string::npos) << why;
    options.run = "";
    EXPECT_EQ(open_error("redis://host", options, &why), -EINVAL);
    EXPECT_NE(why.find("run"), std::string::npos);
}

#if NG_HAVE_HIREDIS
TEST(Kv, OpeningTouchesNoNetwork)
{
    int64_t start = ng_clock_mono_ns();
    Kv kv("redis://user:hidden@no-such-host.invalid");
    EXPECT_EQ(kv.error, 0);
    EXPECT_STREQ(kv.kv->name, "redis://user:***@no-such-host.invalid:6379");
    EXPECT_IN_TIME(ng_clock_mono_ns() - start, 2 * NG_S);
}
#endif

} // namespace
