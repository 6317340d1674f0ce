/*
 * Redis servers, and a proxy that spoils connections, for tests.
 */
#include "tests/unit/store/kv/redis.h"

#include <hiredis.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>

constexpr int64_t patience_ns = 20 * NG_S;
constexpr char never_ms[] = "600000";

static int listen_on(int port, int backlog)
{
    struct sockaddr_in address = {};
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    address.sin_family = AF_INET;
    address.sin_port = htons((uint16_t)port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0 || listen(fd, backlog) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static int connect_to(int port)
{
    struct sockaddr_in address = {};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    address.sin_family = AF_INET;
    address.sin_port = htons((uint16_t)port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0 && errno != EINPROGRESS) {
        close(fd);
        return -1;
    }
    return fd;
}

static std::string text_of(const redisReply *reply)
{
    switch (reply->type) {
    case REDIS_REPLY_INTEGER:
        return std::to_string(reply->integer);
    case REDIS_REPLY_NIL:
        return "(nil)";
    case REDIS_REPLY_ARRAY: {
        std::string text;
        for (size_t i = 0; i < reply->elements; i++)
            text += text_of(reply->element[i]) + " ";
        return text;
    }
    }
    return std::string(reply->str, reply->len);
}

/* Ends with this process, whatever becomes of it. */
static pid_t start_program(const std::vector<std::string> &words, const std::string &log)
{
    std::vector<char *> list;
    for (const std::string &word : words)
        list.push_back(const_cast<char *>(word.c_str()));
    list.push_back(nullptr);
    pid_t parent = getpid(), pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    int fd = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(fd, 1);
    dup2(fd, 2);
    execvp(list[0], list.data());
    _exit(127);
}

static int run_program(const std::vector<std::string> &words, const std::string &log)
{
    int status = -1;
    pid_t pid = start_program(words, log);
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int free_port()
{
    static std::mt19937 random{std::random_device{}()};
    for (;;) {
        int port = (int)std::uniform_int_distribution<>(20000, 32000)(random);
        int fd = listen_on(port, 1), bus = listen_on(port + 10000, 1);
        if (fd >= 0)
            close(fd);
        if (bus >= 0)
            close(bus);
        if (fd >= 0 && bus >= 0)
            return port;
    }
}

bool have_command(const std::string &name)
{
    std::string path = getenv("PATH") ? getenv("PATH") : "";
    for (size_t at = 0; at <= path.size();) {
        size_t end = std::min(path.find(':', at), path.size());
        if (access((path.substr(at, end - at) + "/" + name).c_str(), X_OK) == 0)
            return true;
        at = end + 1;
    }
    return false;
}

/* ---- Servers ---- */

bool RedisServer::available()
{
    return have_command("redis-server");
}

RedisServer::RedisServer(const std::vector<std::string> &arguments, bool tcp, bool sentinel)
    : arguments_(arguments), tcp_(tcp), sentinel_(sentinel)
{
    /* Somebody else may take a port between its choice and its use. */
    for (int attempt = 0; attempt < 5 && pid_ < 0; attempt++) {
        port = tcp_ || sentinel_ ? free_port() : 0;
        start();
    }
    EXPECT_GT(pid_, 0) << "redis-server does not start: " << read_whole_file(folder / "log");
}

void RedisServer::start()
{
    std::vector<std::string> words = {"redis-server"};
    if (sentinel_) {
        /* A sentinel writes into its configuration. */
        std::string text = "port " + std::to_string(port) + "\nbind 127.0.0.1\nunixsocket " +
                           socket() + "\ndir " + folder.path() + "\n";
        for (const std::string &line : arguments_)
            text += line + "\n";
        write_whole_file(folder / "conf", text);
        words.push_back(folder / "conf");
        words.push_back("--sentinel");
    } else {
        std::vector<std::string> common = {"--port",
                                           std::to_string(port),
                                           "--bind",
                                           "127.0.0.1",
                                           "--unixsocket",
                                           socket(),
                                           "--dir",
                                           folder.path(),
                                           "--save",
                                           "",
                                           "--appendonly",
                                           "no",
                                           "--databases",
                                           "4",
                                           "--repl-diskless-sync-delay",
                                           "0"};
        words.insert(words.end(), common.begin(), common.end());
        words.insert(words.end(), arguments_.begin(), arguments_.end());
    }
    pid_ = start_program(words, folder / "log");
    int64_t end = ng_clock_mono_ns() + patience_ns;
    while (ng_clock_mono_ns() < end) {
        int status;
        if (waitpid(pid_, &status, WNOHANG) == pid_) {
            pid_ = -1;
            return;
        }
        std::string told = ask({"PING"});
        if (told == "PONG" || told.compare(0, 6, "NOAUTH") == 0 ||
            told.compare(0, 6, "NOPERM") == 0)
            return;
        usleep(10000);
    }
    kill();
}

RedisServer::~RedisServer()
{
    kill();
}

void RedisServer::kill()
{
    if (pid_ > 0) {
        ::kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
    }
    pid_ = -1;
    unlink(socket().c_str());
}

void RedisServer::restart()
{
    kill();
    start();
    ASSERT_GT(pid_, 0) << read_whole_file(folder / "log");
}

std::string RedisServer::ask(const std::vector<std::string> &words) const
{
    std::vector<const char *> list;
    std::vector<size_t> sizes;
    for (const std::string &word : words) {
        list.push_back(word.data());
        sizes.push_back(word.size());
    }
    redisContext *context = redisConnectUnixWithTimeout(socket().c_str(), {10, 0});
    std::string text = "(no connection)";
    if (context && !context->err) {
        redisSetTimeout(context, {10, 0});
        auto *reply = static_cast<redisReply *>(
            redisCommandArgv(context, (int)list.size(), list.data(), sizes.data()));
        text = reply ? text_of(reply) : "(lost)";
        if (reply)
            freeReplyObject(reply);
    }
    if (context)
        redisFree(context);
    return text;
}

bool RedisServer::ask_until(const std::vector<std::string> &words, const std::string &wanted) const
{
    int64_t end = ng_clock_mono_ns() + patience_ns;
    while (ask(words).find(wanted) == std::string::npos) {
        if (ng_clock_mono_ns() > end)
            return false;
        usleep(20000);
    }
    return true;
}

RedisCluster::RedisCluster()
{
    const char *slots[][2] = {{"0", "5460"}, {"5461", "10922"}, {"10923", "16383"}};
    for (int i = 0; i < 3; i++)
        nodes.push_back(std::make_unique<RedisServer>(
            std::vector<std::string>{"--cluster-enabled", "yes", "--cluster-config-file",
                                     "nodes.conf", "--cluster-node-timeout", "2000"}));
    for (int i = 0; i < 3; i++) {
        EXPECT_EQ(nodes[i]->ask({"CLUSTER", "ADDSLOTSRANGE", slots[i][0], slots[i][1]}), "OK");
        /* Two that begin with the same epoch need a while to agree. */
        nodes[i]->ask({"CLUSTER", "SET-CONFIG-EPOCH", std::to_string(i + 1)});
        if (i) {
            EXPECT_EQ(
                nodes[i]->ask({"CLUSTER", "MEET", "127.0.0.1", std::to_string(nodes[0]->port)}),
                "OK");
        }
    }
    for (auto &node : nodes)
        EXPECT_TRUE(node->ask_until({"CLUSTER", "INFO"}, "cluster_state:ok"))
            << node->ask({"CLUSTER", "INFO"}) << node->ask({"CLUSTER", "NODES"});
    for (auto &node : nodes)
        EXPECT_EQ(node->ask({"CONFIG", "SET", "cluster-node-timeout", never_ms}), "OK");
}

void RedisCluster::watch(const std::vector<RedisServer *> &others)
{
    std::vector<RedisServer *> all = others;
    for (auto &node : nodes)
        all.push_back(node.get());
    for (RedisServer *node : all)
        EXPECT_EQ(node->ask({"CONFIG", "SET", "cluster-node-timeout", "2000"}), "OK");
}

RedisSentinel::RedisSentinel()
{
    nobody = free_port();
    master = std::make_unique<RedisServer>();
    replica = std::make_unique<RedisServer>(
        std::vector<std::string>{"--replicaof", "127.0.0.1 " + std::to_string(master->port)});
    EXPECT_TRUE(replica->ask_until({"INFO", "replication"}, "master_link_status:up"));
    sentinel = std::make_unique<RedisServer>(
        std::vector<std::string>{
            "sentinel monitor mymaster 127.0.0.1 " + std::to_string(master->port) + " 1",
            std::string("sentinel down-after-milliseconds mymaster ") + never_ms,
            "sentinel failover-timeout mymaster 20000"},
        true, true);
    EXPECT_TRUE(
        sentinel->ask_until({"SENTINEL", "replicas", "mymaster"}, std::to_string(replica->port)));
}

void RedisSentinel::watch()
{
    EXPECT_EQ(sentinel->ask({"SENTINEL", "SET", "mymaster", "down-after-milliseconds", "500",
                             "failover-timeout", "3000"}),
              "OK");
}

Certificates::Certificates()
{
    std::string log = folder / "log", extensions = folder / "extensions";
    write_whole_file(extensions, "subjectAltName=DNS:localhost\n");
    auto authority = [&](const std::string &name) {
        return run_program({"openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                            "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
                            "/CN=" + name, "-keyout", folder / (name + ".key"), "-out",
                            folder / (name + ".crt")},
                           log);
    };
    made = have_command("openssl") && authority("ca") == 0 && authority("other") == 0 &&
           run_program({"openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                        "-nodes", "-subj", "/CN=server", "-keyout", key(), "-out",
                        folder / "server.csr"},
                       log) == 0 &&
           run_program({"openssl", "x509", "-req", "-in", folder / "server.csr", "-CA", ca(),
                        "-CAkey", folder / "ca.key", "-CAcreateserial", "-days", "2", "-extfile",
                        extensions, "-out", cert()},
                       log) == 0;
}

/* ---- The proxy ---- */

Proxy::Proxy(int target) : target_(target)
{
    wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    done_ = eventfd(0, EFD_CLOEXEC);
    port = free_port();
    listen_again();
    thread_ = std::thread([this] { run(); });
}

Proxy::~Proxy()
{
    stop_ = true;
    eventfd_write(wake_, 1);
    thread_.join();
    stop_listening();
    for (Pair &pair : pairs_) {
        close(pair.client);
        close(pair.server);
    }
    close(wake_);
    close(done_);
}

void Proxy::set(Mode mode)
{
    eventfd_t value;
    wanted_ = mode;
    eventfd_write(wake_, 1);
    eventfd_read(done_, &value);
}

void Proxy::listen_again()
{
    for (int attempt = 0; attempt < 500 && listener_ < 0; attempt++) {
        listener_ = listen_on(port, mode_ == BLACK_HOLE ? 0 : 64);
        if (listener_ < 0)
            usleep(10000);
    }
    ASSERT_GE(listener_, 0);
}

void Proxy::stop_listening()
{
    if (listener_ >= 0)
        close(listener_);
    listener_ = -1;
    for (int fd : fillers_)
        close(fd);
    fillers_.clear();
}

void Proxy::apply(Mode mode)
{
    mode_ = mode;
    stop_listening();
    if (mode == REFUSE) {
        for (Pair &pair : pairs_) {
            close(pair.client);
            close(pair.server);
        }
        pairs_.clear();
        return;
    }
    listen_again();
    if (mode != BLACK_HOLE)
        return;
    /* A queue that is full: the kernel drops what comes further. */
    for (int i = 0; i < 4; i++)
        fillers_.push_back(connect_to(port));
}

/* False: the connection is at its end. */
bool Proxy::serve(Pair &pair, short client_events, short server_events)
{
    static const char other[] = "HTTP/1.1 400 Bad Request\r\n\r\n";
    char data[4096];
    if (mode_ == STALL || mode_ == BLACK_HOLE)
        return true;
    if (client_events) {
        ssize_t got = recv(pair.client, data, mode_ == SLOW ? 1 : sizeof(data), MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN))
            return false;
        if (got > 0 && mode_ == GARBAGE) {
            send(pair.client, other, sizeof(other) - 1, MSG_NOSIGNAL);
            return true;
        }
        /* To a server on the loopback that reads: it all goes. */
        if (got > 0 && send(pair.server, data, (size_t)got, MSG_NOSIGNAL) != got)
            return false;
    }
    if (server_events && !(pair.spent && mode_ == HALF_STALL)) {
        ssize_t got = recv(pair.server, data, mode_ == SLOW ? 1 : sizeof(data), MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN))
            return false;
        if (got > 0 && mode_ == CUT)
            return false;
        if (got > 0 && mode_ == GARBAGE) {
            send(pair.client, other, sizeof(other) - 1, MSG_NOSIGNAL);
            return true;
        }
        bool half = mode_ == HALF_CUT || mode_ == HALF_STALL;
        if (got > 0) {
            size_t some = half ? (size_t)(got + 1) / 2 : (size_t)got;
            for (size_t done = 0; done < some;) {
                ssize_t wrote = send(pair.client, data + done, some - done, MSG_NOSIGNAL);
                struct pollfd wanted = {pair.client, POLLOUT, 0};
                if (wrote > 0)
                    done += (size_t)wrote;
                else if (wrote < 0 && errno == EAGAIN && poll(&wanted, 1, 1000) > 0)
                    continue;
                else
                    return false;
            }
            pair.spent = half;
            if (mode_ == HALF_CUT)
                return false;
        }
    }
    return true;
}

void Proxy::run()
{
    while (!stop_) {
        std::vector<struct pollfd> wanted = {{wake_, POLLIN, 0}, {listener_, POLLIN, 0}};
        if (mode_ == BLACK_HOLE)
            wanted[1].fd = -1;
        bool still = mode_ == STALL || mode_ == BLACK_HOLE;
        for (Pair &pair : pairs_) {
            bool spent = pair.spent && mode_ == HALF_STALL;
            wanted.push_back({still ? -1 : pair.client, POLLIN, 0});
            wanted.push_back({still || spent ? -1 : pair.server, POLLIN, 0});
        }
        poll(wanted.data(), wanted.size(), -1);
        std::vector<Pair> left;
        for (size_t i = 0; i < pairs_.size(); i++) {
            if (serve(pairs_[i], wanted[2 + 2 * i].revents, wanted[3 + 2 * i].revents)) {
                left.push_back(pairs_[i]);
            } else {
                close(pairs_[i].client);
                close(pairs_[i].server);
            }
        }
        pairs_ = left;
        if (mode_ == SLOW)
            usleep(20000);
        if (wanted[1].revents) {
            Pair pair = {};
            pair.client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
            pair.server = pair.client >= 0 ? connect_to(target_) : -1;
            struct pollfd open = {pair.server, POLLOUT, 0};
            if (pair.server >= 0 && poll(&open, 1, 5000) == 1 && !(open.revents & POLLERR)) {
                pairs_.push_back(pair);
            } else if (pair.client >= 0) {
                close(pair.client);
                if (pair.server >= 0)
                    close(pair.server);
            }
        }
        if (wanted[0].revents) {
            eventfd_t value;
            eventfd_read(wake_, &value);
            if (!stop_) {
                apply((Mode)wanted_.load());
                eventfd_write(done_, 1);
            }
        }
    }
}
