/*
 * The store while its Redis server, or the network to it, fails: every call returns by its deadline
 * with the documented error, and works again afterwards.
 */
#include "tests/gtest/build_folder.h"
#include "tests/gtest/in_time.h"
#include "tests/unit/store/kv/kv.h"
#include "tests/unit/store/kv/redis.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#if NG_TEST_TLS
#include <dlfcn.h>
#endif

namespace
{

constexpr int64_t slack_ns = 3 * NG_S; /* machines are slow, and sanitizers are slower */

/* Every call that there is, on keys that `prepare` has made. */
struct Call {
    const char *name;
    bool writes;
    std::function<int(Kv &, int64_t ms)> make;
};

const std::vector<Call> &calls()
{
    static const std::vector<Call> all = {
        {"set", true, [](Kv &kv, int64_t ms) { return kv.set("set", "x", 60000, ms); }},
        {"get", false,
         [](Kv &kv, int64_t ms) {
             std::string value;
             return kv.get("there", &value, ms);
         }},
        {"get_many", false,
         [](Kv &kv, int64_t ms) {
             const char *keys[] = {"there", "not"};
             return ng_kv_get_many(
                 kv.kv, keys, 2, within(ms), [](void *, size_t, const struct ng_kv_bytes *) {},
                 nullptr);
         }},
        {"add", true,
         [](Kv &kv, int64_t ms) {
             int64_t value;
             return kv.add("number", 1, &value, 60000, ms);
         }},
        {"put_if_absent", true,
         [](Kv &kv, int64_t ms) {
             int result = kv.put("put", "x", 60000, ms);
             return result == -EEXIST ? 0 : result;
         }},
        {"compare_and_set", true,
         [](Kv &kv, int64_t ms) { return kv.cas("there", "x", "x", nullptr, 0, ms); }},
        {"remove", true,
         [](Kv &kv, int64_t ms) {
             int result = kv.remove("set", ms);
             return result == -ENOENT ? 0 : result;
         }},
        {"expire", true, [](Kv &kv, int64_t ms) { return kv.expire("there", 0, ms); }},
        {"publish", false, [](Kv &kv, int64_t ms) { return kv.publish("news", "x", ms); }},
        {"flush", true,
         [](Kv &kv, int64_t ms) {
             size_t failed = 0;
             ng_kv_queue_set(kv.kv, "q1", "x", 1, 0);
             ng_kv_queue_set(kv.kv, "q2", "x", 1, 60000);
             int result = ng_kv_flush(kv.kv, within(ms), &failed);
             EXPECT_EQ(failed, result ? 2u : 0u);
             return result;
         }},
        {"subscribe", false, [](Kv &kv, int64_t ms) { return kv.subscribe("news", ms); }},
    };
    return all;
}

void prepare(const std::string &url, const std::string &run)
{
    Kv kv(url, run);
    ASSERT_EQ(kv.set("there", "x"), 0) << ng_kv_error(kv.kv);
}

/* What is told at once takes a moment all the same where the machine is busy: with ever more time,
 * until it is told. */
int told_by(const std::function<int(int64_t ms)> &make, int64_t ms)
{
    int result = make(ms);

    while (result == -ETIMEDOUT && ms < patience_ms)
        result = make(ms *= 4);
    return result;
}

/* Make the call; it returns in time with one of these errors. */
void expect_error(Kv &kv, const Call &call, int64_t ms, const std::set<int> &wanted)
{
    auto in_time = [&](int64_t bound_ms) {
        int64_t start = ng_clock_mono_ns();
        int result = call.make(kv, bound_ms);
        EXPECT_IN_TIME(ng_clock_mono_ns() - start, bound_ms * NG_MS + slack_ns) << call.name;
        return result;
    };
    int result = wanted.count(-ETIMEDOUT) ? in_time(ms) : told_by(in_time, ms);
    EXPECT_TRUE(wanted.count(result))
        << call.name << ": " << (result ? strerrorname_np(-result) : "0") << ", "
        << ng_kv_error(kv.kv);
    if (result) {
        EXPECT_STRNE(ng_kv_error(kv.kv), "") << call.name;
    }
}

/* ---- The way to the server ---- */

struct Fault {
    const char *name;
    Proxy::Mode mode;
    std::set<int> errors;
};

void PrintTo(const Fault &fault, std::ostream *to)
{
    *to << fault.name;
}

struct KvFaults : testing::TestWithParam<Fault> {
    static void SetUpTestSuite()
    {
        if (RedisServer::available())
            server = new RedisServer;
    }
    static void TearDownTestSuite()
    {
        delete server;
        server = nullptr;
    }
    void SetUp() override
    {
        if (!server)
            GTEST_SKIP() << "redis-server is not installed";
        proxy = std::make_unique<Proxy>(server->port);
        run = testing::UnitTest::GetInstance()->current_test_info()->name();
        prepare(server->url(), run);
    }
    static RedisServer *server;
    std::unique_ptr<Proxy> proxy;
    std::string run;
};
RedisServer *KvFaults::server;

INSTANTIATE_TEST_SUITE_P(
    Network, KvFaults,
    testing::Values(
        Fault{"stalled", Proxy::STALL, {-ETIMEDOUT}},
        Fault{"cut", Proxy::CUT, {-ECONNRESET, -ETIMEDOUT}},
        Fault{"cut_in_mid_reply", Proxy::HALF_CUT, {-ECONNRESET, -ETIMEDOUT}},
        Fault{"stalled_in_mid_reply", Proxy::HALF_STALL, {-ETIMEDOUT}},
        Fault{"slow_byte_by_byte", Proxy::SLOW, {-ETIMEDOUT}},
        Fault{"something_else_answers", Proxy::GARBAGE, {-EPROTO}},
        /* Where the loss is seen only with the answer, the connection was there once. */
        Fault{"refused", Proxy::REFUSE, {-ECONNREFUSED, -ECONNRESET}},
        Fault{"black_hole", Proxy::BLACK_HOLE, {-ETIMEDOUT}}),
    [](const auto &info) { return std::string(info.param.name); });

TEST_P(KvFaults, OnAConnectionThatThereIs)
{
    for (const Call &call : calls()) {
        Kv kv(proxy->url(), run);
        ASSERT_EQ(kv.expire("there", 0), 0) << ng_kv_error(kv.kv);
        proxy->set(GetParam().mode);
        expect_error(kv, call, 120, GetParam().errors);
        proxy->set(Proxy::PASS);
        EXPECT_EQ(call.make(kv, patience_ms), 0) << call.name << ": " << ng_kv_error(kv.kv);
        EXPECT_EQ(kv.value("there"), "x");
    }
}

TEST_P(KvFaults, WhileItIsMade)
{
    for (const Call &call : calls()) {
        Kv kv(proxy->url(), run);
        proxy->set(GetParam().mode);
        expect_error(kv, call, 120, GetParam().errors);
        /* Within the pause before the next attempt as well. */
        expect_error(kv, call, 1, {-ECONNREFUSED, -ECONNRESET, -ETIMEDOUT, -EPROTO});
        proxy->set(Proxy::PASS);
        EXPECT_EQ(call.make(kv, patience_ms), 0) << call.name << ": " << ng_kv_error(kv.kv);
    }
}

TEST_P(KvFaults, MessagesComeAgainAfterTheLossIsTold)
{
    Kv kv(proxy->url(), run, "job", 100), direct(server->url(), run);
    ASSERT_EQ(kv.subscribe("news"), 0) << ng_kv_error(kv.kv);
    /* Whoever answers no ping for a tenth of a second is lost, though it only had no processor. */
    auto hear = [&](const char *data) {
        std::string told = "ESTALE";
        for (int i = 0; i < 20 && told == "ESTALE"; i++) {
            EXPECT_EQ(direct.publish("news", data), 0);
            told = kv.message();
        }
        return told;
    };
    EXPECT_EQ(hear("before"), "news=before");
    proxy->set(GetParam().mode);
    if (GetParam().mode == Proxy::SLOW) {
        /* Nothing is lost, it only takes long. */
        EXPECT_EQ(hear("slow"), "news=slow");
        return;
    }
    /* Until the loss is noticed: by a truncated message, or because nothing arrives. */
    int64_t end = ng_clock_mono_ns() + 20 * NG_S;
    struct ng_kv_message message;
    int result;
    do {
        ASSERT_LT(ng_clock_mono_ns(), end) << "late: ";
        result = ng_kv_next_message(kv.kv, within(50), &message);
        if (result == -EAGAIN) {
            ASSERT_EQ(direct.publish("news", "lost"), 0);
        }
        usleep(2000);
    } while (result == -EAGAIN || result == 0);
    proxy->set(Proxy::PASS);
    std::string told = result == -ESTALE ? "ESTALE" : kv.message();
    while (told == "news=lost")
        told = kv.message();
    EXPECT_EQ(told, "ESTALE");
    /* What is published from now on is delivered, once the subscription stands. */
    ASSERT_EQ(direct.publish("news", "after"), 0);
    while ((told = kv.message()) == "news=lost" || told == "ESTALE") {
        if (told == "ESTALE") {
            ASSERT_EQ(direct.publish("news", "after"), 0);
        }
    }
    EXPECT_EQ(told, "news=after");
}

TEST_F(KvFaults, WhatCannotBeRepeatedIsDoneOnceAtMost)
{
    for (int i = 0; i < 20; i++) {
        Kv kv(proxy->url(), run);
        int64_t value;
        ASSERT_EQ(kv.value("there"), "x");
        proxy->set(i % 2 ? Proxy::CUT : Proxy::HALF_CUT);
        std::string key = "once" + std::to_string(i);
        EXPECT_EQ(kv.add(key, 1, &value, 0, 5000), -ECONNRESET);
        proxy->set(Proxy::PASS);
        EXPECT_EQ(kv.value(key), "1");
    }
}

TEST_F(KvFaults, ALateAnswerIsNeverTakenForAnother)
{
    Kv kv(proxy->url(), run), direct(server->url(), run);
    for (int i = 0; i < 30; i++) {
        std::string value;
        ASSERT_EQ(direct.set("a" + std::to_string(i), "a"), 0);
        ASSERT_EQ(direct.set("b" + std::to_string(i), "b"), 0);
        ASSERT_EQ(kv.value("there"), "x");
        proxy->set(Proxy::STALL);
        EXPECT_EQ(kv.get("a" + std::to_string(i), &value, 20), -ETIMEDOUT);
        proxy->set(Proxy::PASS);
        EXPECT_EQ(kv.value("b" + std::to_string(i)), "b");
    }
}

TEST_F(KvFaults, TheServerIsNotAskedMoreOftenThanItsTroubleAllows)
{
    Kv kv(proxy->url(), run);
    proxy->set(Proxy::REFUSE);
    /* Each of these would be an attempt; with pauses that double there are few. */
    int64_t start = ng_clock_mono_ns();
    int at_once = 0, all = 0;
    while (ng_clock_mono_ns() - start < NG_S || all < 100) {
        int64_t before = ng_clock_mono_ns();
        int result = kv.set("key", "x", 0, 5);
        /* Where the machine took the time, it is over before the attempt is. */
        EXPECT_TRUE(result == -ECONNREFUSED || result == -ETIMEDOUT) << ng_kv_error(kv.kv);
        at_once += ng_clock_mono_ns() - before < 5 * NG_MS;
        all++;
        usleep(1000);
    }
    EXPECT_GT(at_once, all / 2);
}

TEST_F(KvFaults, APeerThatHangsUpBetweenCallsIsNotNoticed)
{
    Kv kv(server->url(), run);
    int64_t value;
    for (int i = 0; i < 5; i++) {
        ASSERT_EQ(kv.add("number", 1, &value), 0) << ng_kv_error(kv.kv);
        EXPECT_EQ(value, i + 1);
        server->ask({"CLIENT", "KILL", "TYPE", "normal"});
    }
}

/* ---- The server itself ---- */

struct KvServer : testing::Test {
    void SetUp() override
    {
        if (!RedisServer::available())
            GTEST_SKIP() << "redis-server is not installed";
    }
    /* Writing fails with this error, reading does not; then the trouble ends. */
    void expect_no_writing(RedisServer &server, const std::set<int> &errors, bool removes,
                           const std::function<void()> &mend)
    {
        Kv kv(server.url());
        for (const Call &call : calls()) {
            bool works =
                !call.writes ||
                (removes && (strcmp(call.name, "remove") == 0 || strcmp(call.name, "expire") == 0));
            expect_error(kv, call, 3000, works ? std::set<int>{0} : errors);
        }
        mend();
        for (const Call &call : calls())
            EXPECT_EQ(call.make(kv, patience_ms), 0) << call.name << ng_kv_error(kv.kv);
    }
};

TEST_F(KvServer, KilledAndBackEmpty)
{
    RedisServer server;
    Kv kv(server.url()), other(server.url());
    ASSERT_EQ(kv.set("key", "x"), 0);
    ASSERT_EQ(other.subscribe("news"), 0);
    uint64_t connects = kv.kv->connects;
    server.kill();
    for (const Call &call : calls()) {
        Kv fresh(server.url());
        expect_error(kv, call, 100, {-ECONNREFUSED, -ECONNRESET});
        expect_error(fresh, call, 100, {-ECONNREFUSED});
    }
    server.restart();
    /* Its loss can be seen, so that all can be stored anew. */
    EXPECT_EQ(kv.value("key"), strerror(ENOENT));
    EXPECT_GT(kv.kv->connects, connects);
    EXPECT_EQ(kv.set("key", "again"), 0);
    EXPECT_EQ(other.message(), "ESTALE");
    EXPECT_EQ(kv.publish("news", "x"), 0);
    EXPECT_EQ(other.message(), "news=x");
}

TEST_F(KvServer, OutOfMemory)
{
    RedisServer server({"--maxmemory-policy", "noeviction"});
    prepare(server.url(), "run");
    ASSERT_EQ(server.ask({"CONFIG", "SET", "maxmemory", "1"}), "OK");
    expect_no_writing(server, {-ENOSPC}, true, [&] {
        server.ask({"CONFIG", "SET", "maxmemory", "0"});
    });
}

TEST_F(KvServer, AReplica)
{
    RedisServer master;
    prepare(master.url(), "run");
    RedisServer server({"--replicaof", "127.0.0.1 " + std::to_string(master.port)});
    ASSERT_TRUE(server.ask_until({"INFO", "replication"}, "master_link_status:up"));
    expect_no_writing(server, {-EROFS}, false, [&] { server.ask({"REPLICAOF", "NO", "ONE"}); });
}

TEST_F(KvServer, TooBusyToAnswer)
{
    RedisServer server({"--lua-time-limit", "10"});
    prepare(server.url(), "run");
    std::thread script([&] { server.ask({"EVAL", "while true do end", "0"}); });
    EXPECT_TRUE(server.ask_until({"PING"}, "BUSY"));
    for (const Call &call : calls()) {
        Kv kv(server.url());
        expect_error(kv, call, 200, {-EBUSY, -ETIMEDOUT});
    }
    Kv kv(server.url());
    int64_t value;
    EXPECT_EQ(told_by([&](int64_t ms) { return kv.add("number", 1, &value, 0, ms); }, 100), -EBUSY)
        << ng_kv_error(kv.kv);
    server.ask({"SCRIPT", "KILL"});
    script.join();
    EXPECT_EQ(kv.add("number", 1, &value), 0);
    EXPECT_EQ(value, 1);
}

TEST_F(KvServer, NoRoomForAnotherClient)
{
    RedisServer server;
    auto first = std::make_unique<Kv>(server.url());
    ASSERT_EQ(first->set("key", "x"), 0);
    ASSERT_EQ(server.ask({"CONFIG", "SET", "maxclients", "1"}), "OK");
    Kv kv(server.url());
    EXPECT_EQ(told_by([&](int64_t ms) { return kv.set("key", "y", 0, ms); }, 100), -EBUSY)
        << ng_kv_error(kv.kv);
    EXPECT_NE(std::string(ng_kv_error(kv.kv)).find("clients"), std::string::npos)
        << ng_kv_error(kv.kv);
    first.reset();
    EXPECT_EQ(kv.set("key", "y"), 0);
}

TEST_F(KvServer, PasswordsThatDoNotFit)
{
    RedisServer open, closed({"--requirepass", "right"});
    const struct {
        std::string url;
        const char *says;
    } rows[] = {
        {closed.url(":SECRET@"), "refuses the password"},
        {closed.url("somebody:SECRET@"), "somebody"},
        {closed.url(), "NOAUTH"},
        {open.url(":SECRET@"), "refuses the password"},
    };
    for (const auto &row : rows) {
        Kv kv(row.url);
        int64_t start = ng_clock_mono_ns();
        EXPECT_EQ(kv.set("key", "x", 0, patience_ms), -EACCES);
        EXPECT_IN_TIME(ng_clock_mono_ns() - start, 10 * NG_S)
            << "what does not mend is told at once";
        EXPECT_NE(std::string(ng_kv_error(kv.kv)).find(row.says), std::string::npos)
            << ng_kv_error(kv.kv);
        EXPECT_EQ(kv.subscribe("news"), -EACCES);
        for (const char *text : {ng_kv_error(kv.kv), (const char *)kv.kv->name})
            EXPECT_EQ(std::string(text).find("SECRET"), std::string::npos) << text;
    }
    Kv kv(open.url(":SECRET@"));
    EXPECT_EQ(kv.set("key", "x"), -EACCES);
    ASSERT_EQ(open.ask({"CONFIG", "SET", "requirepass", "SECRET"}), "OK");
    EXPECT_EQ(kv.set("key", "x"), 0) << ng_kv_error(kv.kv);
}

TEST_F(KvServer, WhatAUserMayNotDoIsToldAndTheRestWorks)
{
    RedisServer server({"--user", "guard", "on", ">pw", "~*", "&*", "+@all", "-publish", "-watch"});
    Kv kv(server.url("guard:pw@"));
    EXPECT_EQ(kv.set("key", "x"), 0) << ng_kv_error(kv.kv);
    uint64_t connects = kv.kv->connects;
    EXPECT_EQ(kv.publish("news", "x"), -EACCES);
    EXPECT_EQ(kv.cas("key", "x", "y"), -EACCES);
    EXPECT_EQ(kv.value("key"), "x");
    EXPECT_EQ(kv.kv->connects, connects);
}

TEST_F(KvServer, ValuesOfAnotherKindAreNoValues)
{
    RedisServer server;
    Kv kv(server.url());
    int64_t value;
    ASSERT_EQ(server.ask({"LPUSH", "{ncclguard:job:run}:key", "x"}), "1");
    std::string text;
    EXPECT_EQ(kv.get("key", &text), -EPROTO);
    EXPECT_EQ(kv.add("key", 1, &value), -EPROTO);
    EXPECT_EQ(kv.cas("key", "x", "y"), -EPROTO);
    EXPECT_EQ(kv.set("key", "x"), 0);
    EXPECT_EQ(kv.value("key"), "x");
}

TEST_F(KvServer, AHostThatIsNotThere)
{
    int64_t start = ng_clock_mono_ns();
    Kv unknown("redis://no-such-host.invalid");
    int result = unknown.set("key", "x", 0, 1000);
    /* Where no name server answers, its silence ends at the deadline. */
    EXPECT_TRUE(result == -EHOSTUNREACH || result == -ETIMEDOUT) << ng_kv_error(unknown.kv);
    EXPECT_NE(std::string(ng_kv_error(unknown.kv)).find("no-such-host"), std::string::npos)
        << ng_kv_error(unknown.kv);
    Kv socket("redis+unix:///no/such/socket");
    EXPECT_IN_TIME(ng_clock_mono_ns() - start, 1000 * NG_MS + slack_ns);
    auto refused = [](Kv *kv) {
        return told_by([=](int64_t ms) { return kv->set("key", "x", 0, ms); }, 200);
    };
    EXPECT_EQ(refused(&socket), -ECONNREFUSED);
    Folder folder;
    Kv file("redis+unix://" + folder.path());
    EXPECT_EQ(refused(&file), -ECONNREFUSED);
}

TEST_F(KvServer, ASubscriptionWaitsForAServerThatComesLater)
{
    RedisServer server;
    server.kill();
    Kv kv(server.url()), other(server.url());
    EXPECT_EQ(told_by([&](int64_t ms) { return kv.subscribe("news", ms); }, 100), -ECONNREFUSED);
    EXPECT_GE(ng_kv_message_fd(kv.kv), 0);
    server.restart();
    EXPECT_EQ(kv.message(), "ESTALE");
    EXPECT_EQ(other.publish("news", "x"), 0);
    EXPECT_EQ(kv.message(), "news=x");
}

TEST_F(KvServer, KeysAreAllOfOneHashTagAndExpire)
{
    RedisServer server;
    Kv kv(server.url(), "r}{u:n", "j o{b");
    int64_t value;
    ASSERT_EQ(kv.set("set", "x", 50000), 0);
    ASSERT_EQ(kv.add("add", 1, &value, 50000), 0);
    ASSERT_EQ(kv.put("put", "x", 50000), 0);
    ASSERT_EQ(kv.cas("cas", nullptr, "x", nullptr, 50000), 0);
    const std::string tag = "{ncclguard:j%20o%7Bb:r%7D%7Bu%3An}:";
    for (const char *key : {"set", "add", "put", "cas"})
        EXPECT_GT(std::stoll(server.ask({"PTTL", tag + key})), 10000) << key;
    EXPECT_EQ(server.ask({"DBSIZE"}), "4");
}

/* ---- Sentinels and clusters ---- */

/* Calls as a job makes them, until one works; each ends in time, with an error that fits. */
void expect_back(Kv &kv, const char *key)
{
    int64_t end = ng_clock_mono_ns() + 40 * NG_S;
    int result;
    do {
        ASSERT_LT(ng_clock_mono_ns(), end) << "late: " << ng_kv_error(kv.kv);
        int64_t start = ng_clock_mono_ns();
        result = kv.set(key, "after", 0, 500);
        EXPECT_IN_TIME(ng_clock_mono_ns() - start, 500 * NG_MS + slack_ns);
        EXPECT_TRUE(
            (std::set<int>{0, -ECONNREFUSED, -ECONNRESET, -ETIMEDOUT, -EBUSY, -EROFS, -EHOSTUNREACH}
                 .count(result)))
            << strerrorname_np(-result) << ng_kv_error(kv.kv);
    } while (result);
}

TEST_F(KvServer, ASentinelsNewMasterIsFollowed)
{
    RedisSentinel servers;
    Kv kv(servers.url()), other(servers.url(), "run", "job", 200);
    ASSERT_EQ(kv.set("key", "before"), 0) << ng_kv_error(kv.kv);
    ASSERT_EQ(other.subscribe("news"), 0) << ng_kv_error(other.kv);
    EXPECT_TRUE(servers.replica->ask_until({"GET", "{ncclguard:job:run}:key"}, "before"));
    servers.watch();
    servers.master->kill();
    expect_back(kv, "key");
    EXPECT_EQ(servers.replica->ask({"GET", "{ncclguard:job:run}:key"}), "after");
    EXPECT_EQ(other.message(), "ESTALE");
    /* It may have found the new master, or one that is one for a moment longer. */
    std::string told;
    for (int i = 0; i < 20 && told != "news=x"; i++) {
        ASSERT_EQ(kv.publish("news", "x"), 0);
        told = other.message(1000);
    }
    EXPECT_EQ(told, "news=x");
}

TEST_F(KvServer, AMasterThatBecomesAReplicaIsLeft)
{
    RedisSentinel servers;
    Kv kv(servers.url());
    ASSERT_EQ(kv.set("key", "before"), 0) << ng_kv_error(kv.kv);
    ASSERT_TRUE(servers.sentinel->ask_until({"SENTINEL", "FAILOVER", "mymaster"}, "OK"));
    ASSERT_TRUE(servers.master->ask_until({"INFO", "replication"}, "role:slave"));
    expect_back(kv, "key");
    EXPECT_EQ(servers.replica->ask({"GET", "{ncclguard:job:run}:key"}), "after");
}

TEST_F(KvServer, ASentinelThatKnowsNoSuchMasterIsTold)
{
    RedisServer sentinel({}, true, true);
    Kv kv("redis+sentinel://127.0.0.1:" + std::to_string(sentinel.port) + "/other");
    EXPECT_EQ(told_by([&](int64_t ms) { return kv.set("key", "x", 0, ms); }, 200), -EHOSTUNREACH);
    EXPECT_NE(std::string(ng_kv_error(kv.kv)).find("other"), std::string::npos)
        << ng_kv_error(kv.kv);
}

size_t node_of(const std::string &slot)
{
    int number = std::stoi(slot);
    return number <= 5460 ? 0 : number <= 10922 ? 1 : 2;
}

TEST_F(KvServer, SlotsThatMoveInAClusterAreFollowed)
{
    RedisCluster cluster;
    const std::string tag = "{ncclguard:job:run}:";
    const std::string slot = cluster.nodes[0]->ask({"CLUSTER", "KEYSLOT", tag});
    RedisServer &from = *cluster.nodes[node_of(slot)];
    RedisServer &to = *cluster.nodes[(node_of(slot) + 1) % 3];
    const std::string from_id = from.ask({"CLUSTER", "MYID"}), to_id = to.ask({"CLUSTER", "MYID"});
    Kv kv(to.url());
    int64_t value;
    ASSERT_EQ(kv.set("old", "x"), 0) << ng_kv_error(kv.kv);
    ASSERT_EQ(from.ask({"EXISTS", tag + "old"}), "1");

    /* In the middle of its move new keys are made at the new node, old ones are where they were. */
    ASSERT_EQ(to.ask({"CLUSTER", "SETSLOT", slot, "IMPORTING", from_id}), "OK");
    ASSERT_EQ(from.ask({"CLUSTER", "SETSLOT", slot, "MIGRATING", to_id}), "OK");
    EXPECT_EQ(kv.set("new", "x"), 0) << ng_kv_error(kv.kv);
    EXPECT_EQ(kv.set("old", "y"), 0) << ng_kv_error(kv.kv);
    EXPECT_EQ(kv.add("number", 1, &value), 0) << ng_kv_error(kv.kv);
    EXPECT_EQ(kv.add("number", 1, &value), 0) << ng_kv_error(kv.kv);
    EXPECT_EQ(value, 2);
    ASSERT_EQ(ng_kv_queue_set(kv.kv, "old", "z", 1, 0), 0);
    ASSERT_EQ(ng_kv_queue_set(kv.kv, "newer", "z", 1, 0), 0);
    EXPECT_EQ(ng_kv_flush(kv.kv, within(patience_ms), nullptr), 0) << ng_kv_error(kv.kv);
    EXPECT_EQ(kv.value("new"), "x");
    EXPECT_EQ(kv.value("old"), "z");
    EXPECT_EQ(from.ask({"CLUSTER", "COUNTKEYSINSLOT", slot}), "1");
    EXPECT_EQ(to.ask({"CLUSTER", "COUNTKEYSINSLOT", slot}), "3");

    ASSERT_EQ(from.ask({"MIGRATE", "127.0.0.1", std::to_string(to.port), tag + "old", "0", "5000"}),
              "OK");
    for (auto &node : cluster.nodes)
        ASSERT_EQ(node->ask({"CLUSTER", "SETSLOT", slot, "NODE", to_id}), "OK");
    EXPECT_EQ(kv.value("old"), "z");
    EXPECT_EQ(kv.cas("old", "z", "w"), 0) << ng_kv_error(kv.kv);
    EXPECT_EQ(kv.value("new") + kv.value("newer") + kv.value("number") + kv.value("old"), "xz2w");
    EXPECT_EQ(to.ask({"CLUSTER", "COUNTKEYSINSLOT", slot}), "4");
}

TEST_F(KvServer, AClustersNodeMayDieEvenTheOneInTheUrl)
{
    RedisCluster cluster;
    const std::string slot = cluster.nodes[0]->ask({"CLUSTER", "KEYSLOT", "{ncclguard:job:run}:"});
    RedisServer &owner = *cluster.nodes[node_of(slot)];
    RedisServer replica({"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf",
                         "--cluster-node-timeout", "2000"});
    ASSERT_EQ(replica.ask({"CLUSTER", "MEET", "127.0.0.1", std::to_string(owner.port)}), "OK");
    const std::string id = owner.ask({"CLUSTER", "MYID"});
    ASSERT_TRUE(replica.ask_until({"CLUSTER", "NODES"}, id));
    ASSERT_TRUE(replica.ask_until({"CLUSTER", "REPLICATE", id}, "OK"));
    ASSERT_TRUE(replica.ask_until({"INFO", "replication"}, "master_link_status:up"));
    const std::string replica_id = replica.ask({"CLUSTER", "MYID"});
    for (auto &node : cluster.nodes)
        ASSERT_TRUE(node->ask_until({"CLUSTER", "SLOTS"}, std::to_string(replica.port)));
    Kv kv(owner.url());
    ASSERT_EQ(kv.set("key", "before"), 0) << ng_kv_error(kv.kv);
    cluster.watch({&replica});
    owner.kill();
    expect_back(kv, "key");
    EXPECT_EQ(replica.ask({"GET", "{ncclguard:job:run}:key"}), "after");
}

/* Something that answers as it likes, at an address of the loopback. */
class Answering : NotCopied
{
  public:
    using Reply = std::function<std::string(const std::vector<std::string> &)>;
    Answering(const char *host, int port, Reply reply) : reply_(std::move(reply))
    {
        struct sockaddr_in address = {};
        int on = 1;
        address.sin_family = AF_INET;
        address.sin_port = htons((uint16_t)port);
        inet_pton(AF_INET, host, &address.sin_addr);
        listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        EXPECT_EQ(bind(listener_, (struct sockaddr *)&address, sizeof(address)), 0);
        EXPECT_EQ(listen(listener_, 8), 0);
        thread_ = std::thread([this] { run(); });
    }
    ~Answering()
    {
        shutdown(listener_, SHUT_RDWR);
        thread_.join();
        close(listener_);
    }
    std::atomic<int> connections{0};

  private:
    void run()
    {
        std::vector<std::thread> serving;
        for (int fd; (fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
            connections++;
            serving.emplace_back([this, fd] { serve(fd); });
        }
        for (std::thread &one : serving)
            one.join();
    }
    void serve(int fd)
    {
        std::string text;
        char chunk[4096];
        for (ssize_t got; (got = recv(fd, chunk, sizeof(chunk), 0)) > 0;) {
            std::string answers;
            text.append(chunk, (size_t)got);
            for (std::vector<std::string> words; take(&text, &words); words.clear())
                answers += reply_(words);
            send(fd, answers.data(), answers.size(), MSG_NOSIGNAL);
        }
        close(fd);
    }
    /* One whole command. */
    static bool take(std::string *text, std::vector<std::string> *ret_words)
    {
        size_t at = text->find("\r\n");
        if (at == std::string::npos)
            return false;
        size_t count = std::stoul(text->substr(1));
        for (at += 2; ret_words->size() < count;) {
            size_t end = text->find("\r\n", at);
            if (end == std::string::npos)
                return ret_words->clear(), false;
            size_t length = std::stoul(text->substr(at + 1));
            if (text->size() < end + 4 + length)
                return ret_words->clear(), false;
            ret_words->push_back(text->substr(end + 2, length));
            at = end + 4 + length;
        }
        text->erase(0, at);
        return true;
    }
    Reply reply_;
    int listener_;
    std::thread thread_;
};

/* What a guard takes into the memory of a program has a bound, whatever somebody put there. */
TEST_F(KvServer, AnAnswerWithoutEndIsNotWaitedFor)
{
    const int port = free_port();
    const std::string megabyte(1u << 20, 'x');
    Answering here("127.0.0.1", port, [&](const auto &words) -> std::string {
        if (words[0] != "GET")
            return "*0\r\n";
        std::string answer = "$536870912\r\n";
        for (int i = 0; i < 160; i++)
            answer += megabyte;
        return answer;
    });
    Kv kv("redis://127.0.0.1:" + std::to_string(port));
    std::string value;
    /* So much data may take a minute under a sanitizer on a busy machine. */
    EXPECT_EQ(told_by([&](int64_t ms) { return kv.get("key", &value, ms); }, patience_ms - 1),
              -EPROTO);
    EXPECT_NE(std::string(ng_kv_error(kv.kv)).find("longer than 128 MiB"), std::string::npos)
        << ng_kv_error(kv.kv);
}

/* Whoever says that the keys are elsewhere could have the password sent anywhere. */
TEST_F(KvServer, ARedirectionToAHostThatNeitherUrlNorClusterNamesIsNotFollowed)
{
    const int port = free_port();
    for (const std::string how : {"MOVED", "ASK"})
        for (bool listed : {false, true}) {
            std::atomic<int> asked{0};
            Answering there("127.0.0.2", port, [&](const auto &words) -> std::string {
                asked += words[0] == "SET";
                return words[0] == "CLUSTER" ? "*0\r\n" : "+OK\r\n";
            });
            Answering here("127.0.0.1", port, [&](const auto &words) -> std::string {
                if (words[0] == "CLUSTER")
                    return !listed ? "*0\r\n"
                                   : "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.2\r\n:" +
                                         std::to_string(port) + "\r\n";
                return words[0] == "AUTH"
                           ? "+OK\r\n"
                           : "-" + how + " 1 127.0.0.2:" + std::to_string(port) + "\r\n";
            });
            {
                Kv kv("redis://:secret@127.0.0.1:" + std::to_string(port));
                EXPECT_EQ(kv.set("key", "x"), listed ? 0 : -EACCES) << how << ng_kv_error(kv.kv);
                if (!listed) {
                    EXPECT_NE(std::string(ng_kv_error(kv.kv)).find("127.0.0.2"), std::string::npos);
                }
            }
            EXPECT_EQ(there.connections > 0, listed) << how;
            EXPECT_EQ(asked, listed ? 1 : 0) << how;
        }
}

/* ---- TLS ---- */

#if NG_TEST_TLS
struct KvTls : KvServer {
    void SetUp() override
    {
        KvServer::SetUp();
        if (IsSkipped())
            return;
        if (!certificates.made)
            GTEST_SKIP() << "openssl is not installed";
        port = free_port();
        server = std::make_unique<RedisServer>(std::vector<std::string>{
            "--tls-port", std::to_string(port), "--tls-cert-file", certificates.cert(),
            "--tls-key-file", certificates.key(), "--tls-ca-cert-file", certificates.ca(),
            "--tls-auth-clients", "optional"});
    }
    std::string url(const std::string &rest, const std::string &host = "localhost", int at = 0)
    {
        return "rediss://" + host + ":" + std::to_string(at ? at : port) + rest;
    }
    Certificates certificates;
    std::unique_ptr<RedisServer> server;
    int port;
};

TEST_F(KvTls, OnlyATrustedServerIsSpokenTo)
{
    const std::string ca = "?ca=" + certificates.ca();
    Kv trusted(url(ca));
    EXPECT_EQ(trusted.set("key", "x"), 0) << ng_kv_error(trusted.kv);
    const struct {
        std::string url;
        const char *says;
        int error;
    } rows[] = {
        {url("?ca=" + certificates.other_ca()), "not trusted", -EACCES},
        {url(""), "not trusted", -EACCES},
        {url(ca, "127.0.0.1"), "not trusted", -EACCES},
        {url("?ca=/no/such/file"), "/no/such/file", -EACCES},
        {url(ca + "&cert=/no/such&key=/no/such"), "/no/such", -EACCES},
        {"redis://localhost:" + std::to_string(port), "", -ECONNRESET},
    };
    for (const auto &row : rows) {
        Kv kv(row.url);
        EXPECT_EQ(told_by([&](int64_t ms) { return kv.set("key", "x", 0, ms); }, 2000), row.error)
            << row.url << ng_kv_error(kv.kv);
        EXPECT_NE(std::string(ng_kv_error(kv.kv)).find(row.says), std::string::npos)
            << ng_kv_error(kv.kv);
    }
    /* A server without TLS waits for the end of a line. */
    Kv plain(url(ca, "localhost", server->port));
    int result = plain.set("key", "x", 0, 500);
    EXPECT_TRUE(result == -ETIMEDOUT || result == -EPROTO) << result;
    Kv unverified(url("?verify=no", "127.0.0.1"));
    EXPECT_EQ(unverified.set("key", "x"), 0) << ng_kv_error(unverified.kv);
}

TEST_F(KvTls, AServerMayWantACertificate)
{
    ASSERT_EQ(server->ask({"CONFIG", "SET", "tls-auth-clients", "yes"}), "OK");
    const std::string ca = "?ca=" + certificates.ca();
    Kv without(url(ca));
    int result = told_by([&](int64_t ms) { return without.set("key", "x", 0, ms); }, 2000);
    EXPECT_TRUE(result == -EACCES || result == -ECONNRESET) << result;
    Kv with(url(ca + "&cert=" + certificates.cert() + "&key=" + certificates.key()));
    EXPECT_EQ(with.set("key", "x"), 0) << ng_kv_error(with.kv);
}

TEST_F(KvTls, TroubleOnTheWayIsBounded)
{
    Proxy proxy(port);
    prepare(server->url(), "run");
    const std::string through = url("?ca=" + certificates.ca(), "localhost", proxy.port);
    for (Proxy::Mode mode : {Proxy::STALL, Proxy::CUT, Proxy::HALF_CUT, Proxy::HALF_STALL,
                             Proxy::SLOW, Proxy::GARBAGE, Proxy::REFUSE, Proxy::BLACK_HOLE}) {
        for (const Call &call : calls()) {
            if (strcmp(call.name, "add") != 0 && strcmp(call.name, "flush") != 0 &&
                strcmp(call.name, "subscribe") != 0)
                continue;
            for (bool connected : {false, true}) {
                Kv kv(through);
                if (connected) {
                    ASSERT_EQ(kv.value("there"), "x") << ng_kv_error(kv.kv);
                }
                proxy.set(mode);
                expect_error(kv, call, 150, {-ETIMEDOUT, -ECONNRESET, -ECONNREFUSED, -EPROTO});
                proxy.set(Proxy::PASS);
                EXPECT_EQ(call.make(kv, patience_ms), 0) << call.name << ng_kv_error(kv.kv);
            }
        }
    }
}

#if NG_TEST_TLS
TEST_F(KvTls, TheModuleServesAProgramWithoutOpenSsl)
{
    void *module =
        dlopen((build_folder() + "/store/libncclguard_tls.so").c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(module, nullptr) << dlerror();
    struct ng_kv_options options = {};
    char why[256] = "";
    struct ng_kv *kv = nullptr;
    options.job = "job";
    options.run = "run";
    options.tls = static_cast<const struct ng_tls_ops *>(dlsym(module, "ng_tls_openssl"));
    ASSERT_NE(options.tls, nullptr);
    ASSERT_NE(options.tls, &ng_tls_openssl);
    ASSERT_EQ(ng_kv_open(url("?ca=" + certificates.ca()).c_str(), &options, why, sizeof(why), &kv),
              0)
        << why;
    EXPECT_EQ(ng_kv_set(kv, "key", "x", 1, 0, within(patience_ms)), 0) << ng_kv_error(kv);
    ng_kv_destroy(kv);
}
#endif
#endif

/* For the list of jobs in `ncclguard top`. */
TEST(KvRedis, NamesItsJobsOnceEach)
{
    if (!RedisServer::available())
        GTEST_SKIP() << "redis-server is not installed";
    RedisServer server;
    Kv one(server.url(), "run", "one"), again(server.url(), "other-run", "one"),
        two(server.url(), "run", "two"), odd(server.url(), "run", "a:b");
    for (int i = 0; i < 3000; i++)
        ASSERT_EQ(one.set("key" + std::to_string(i), "x"), 0);
    for (Kv *kv : {&again, &two, &odd})
        ASSERT_EQ(kv->set("key", "x"), 0);
    server.ask({"SET", "unrelated", "x"});
    server.ask({"SET", "{ncclguard:", "x"});
    server.ask({"SET", "{ncclguard:three\x1b[2J:run}:key", "x"});
    server.ask({"SET", "{ncclguard:four\nfive:run}:key", "x"});
    server.ask({"SET", "{ncclguard:" + std::string(500, 'x') + ":run}:key", "x"});
    auto jobs = std::make_unique<struct ng_kv_jobs>();
    ASSERT_EQ(ng_kv_redis_jobs(one.kv, within(patience_ms), jobs.get()), 0) << ng_kv_error(one.kv);
    std::vector<std::string> names(jobs->names, jobs->names + jobs->count);
    std::sort(names.begin(), names.end());
    EXPECT_EQ(names, (std::vector<std::string>{"a%3Ab", "one", "two"}));
    server.ask({"ACL", "SETUSER", "narrow", "on", ">word", "~*", "-@all", "+get"});
    Kv narrow(server.url("narrow:word@"));
    EXPECT_EQ(ng_kv_redis_jobs(narrow.kv, within(patience_ms), jobs.get()), -EACCES);
    EXPECT_EQ(jobs->count, 0u);
}

} // namespace
