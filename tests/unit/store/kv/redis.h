/*
 * Redis servers for tests: real ones, in a temporary folder and on the loopback, ended with the
 * test; and a TCP proxy that can do to a connection what networks and dying servers do.
 */
#ifndef NCCLGUARD_TESTS_UNIT_STORE_REDIS_H
#define NCCLGUARD_TESTS_UNIT_STORE_REDIS_H

#include "tests/unit/core/helpers/core.h"

/* A port that nobody uses at the moment; the one 10,000 above is free as well. */
int free_port();

/* Is a command there? */
bool have_command(const std::string &name);

class RedisServer : NotCopied
{
  public:
    /* `arguments` as on redis-server's command line, without the port, which 0 chooses. Returns
     * when it answers. A port of 0 in `listen` means: no plain TCP. */
    explicit RedisServer(const std::vector<std::string> &arguments = {}, bool tcp = true,
                         bool sentinel = false);
    ~RedisServer();

    /* Is redis-server installed? */
    static bool available();

    void kill();
    /* Again, on the same port: empty. */
    void restart();
    /* A command over the socket; the reply as text: lists as their elements and blanks. */
    std::string ask(const std::vector<std::string> &words) const;
    /* The same until the reply has this in it; false after 20 seconds. */
    bool ask_until(const std::vector<std::string> &words, const std::string &wanted) const;

    int port = 0;
    std::string socket() const
    {
        return folder / "socket";
    }
    std::string url(const std::string &credentials = "") const
    {
        return "redis://" + credentials + "127.0.0.1:" + std::to_string(port);
    }
    Folder folder;

  private:
    void start();
    std::vector<std::string> arguments_;
    bool tcp_, sentinel_;
    pid_t pid_ = -1;
};

/* Three masters that share the slots. */
struct RedisCluster {
    RedisCluster();
    /* From now on a node, `others` among them, is taken for dead after two seconds. Before, none
     * is: the cluster would be down for each that has no processor for a while. */
    void watch(const std::vector<RedisServer *> &others = {});
    std::vector<std::unique_ptr<RedisServer>> nodes;
};

/* A master, its replica, and a sentinel. */
struct RedisSentinel {
    RedisSentinel();
    /* From now on the sentinel makes the replica the master when that one dies. Before, it takes
     * nobody for dead: a server that has no processor for a moment would lose its keys. */
    void watch();
    std::string url() const
    {
        /* The first sentinel is one that does not answer. */
        return "redis+sentinel://127.0.0.1:" + std::to_string(nobody) +
               ",127.0.0.1:" + std::to_string(sentinel->port) + "/mymaster";
    }
    int nobody;
    std::unique_ptr<RedisServer> master, replica, sentinel;
};

/* A certificate authority, a server's certificate of it for localhost (and for no number), and
 * another authority. */
struct Certificates {
    Certificates();
    std::string ca() const
    {
        return folder / "ca.crt";
    }
    std::string other_ca() const
    {
        return folder / "other.crt";
    }
    std::string cert() const
    {
        return folder / "server.crt";
    }
    std::string key() const
    {
        return folder / "server.key";
    }
    Folder folder;
    bool made = false;
};

class Proxy : NotCopied
{
  public:
    enum Mode {
        PASS,
        STALL,      /* nothing is passed on any more */
        CUT,        /* the connection ends where the server's answer should come */
        HALF_CUT,   /* likewise, behind the first half of it */
        HALF_STALL, /* half of an answer, and no more */
        SLOW,       /* a byte at a time */
        GARBAGE,    /* something else answers */
        REFUSE,     /* nobody listens */
        BLACK_HOLE, /* not even that is told */
    };

    explicit Proxy(int target);
    ~Proxy();

    /* In force when this returns; connections that there are, are cut by REFUSE alone. */
    void set(Mode mode);
    std::string url() const
    {
        return "redis://127.0.0.1:" + std::to_string(port);
    }
    int port;

  private:
    struct Pair {
        int client, server;
        std::string to_client, to_server;
        bool spent; /* half of an answer is out */
    };
    void run();
    void listen_again();
    void stop_listening();
    void apply(Mode mode);
    bool serve(Pair &pair, short client_events, short server_events);
    int target_, listener_ = -1, wake_, done_;
    std::vector<int> fillers_;
    std::vector<Pair> pairs_;
    Mode mode_ = PASS;
    std::atomic<int> wanted_{PASS};
    std::atomic<bool> stop_{false};
    std::thread thread_;
};

#endif
