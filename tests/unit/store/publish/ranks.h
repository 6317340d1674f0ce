/*
 * Ranks of a job on a store, many of them in one process: each with a black box, a thread that owns
 * a store, and a store that can be made to fail. Hosts are folders, and numbers of process
 * namespaces: whether a process of such a host lives is asked of the lock on its box, so that one
 * dies when that is let go.
 */
#ifndef NCCLGUARD_TESTS_UNIT_STORE_RANKS_H
#define NCCLGUARD_TESTS_UNIT_STORE_RANKS_H

#include "tests/unit/store/board/record.h"
#include "tests/unit/store/kv/kv.h"

#include <condition_variable>
#include <mutex>
#include <utility>

#if !defined(__clang__)
#define _Static_assert static_assert
#define _Atomic
#define atomic_bool bool
#endif
extern "C" {
#include "core/nccl/board.h"
#include "store/board/board_multihost.h"
#include "store/board/local.h"
#include "store/publish/peer_progress.h"
#include "store/publish/publish.h"
#include "store/publish/publisher.h"
#include "store/wire/incarnation.h"
#include "store/wire/incident_codec.h"
#include "store/wire/progress.h"
}
#if !defined(__clang__)
#undef _Static_assert
#undef _Atomic
#undef atomic_bool
#endif

/* True as soon as `what` is, false after 20 seconds. */
bool eventually(const std::function<bool()> &what);

/* Of what ng_log writes from here on. */
struct LogFile {
    LogFile();
    ~LogFile();
    int count(const std::string &text) const;
    std::string all() const
    {
        return read_whole_file(folder / "log");
    }
    Folder folder;
};

/* A store between a rank and its real one. */
class FaultyKv : public ng_kv, NotCopied
{
  public:
    enum Mode {
        PASS,
        FAIL,    /* with `error`, at once */
        HANG,    /* until the deadline */
        STAND,   /* beyond the deadline, as if the thread stood still */
        NOTHING, /* all calls succeed, nothing is done */
    };

    explicit FaultyKv(const std::string &url, const std::string &job = "job");
    ~FaultyKv();

    /* Calls that have begun are over when it returns. */
    void set(Mode mode, int error = -ECONNREFUSED);
    /* Calls that write fail with `error`; 0 none. */
    void refuse_writes(int error)
    {
        write_error = error;
    }
    /* As after a new connection. */
    void reconnect()
    {
        reconnects++;
    }
    /* The next such call on a key that begins so is done, and the connection lost before its
     * answer. */
    void lose_answer(const std::string &call, const std::string &key);
    /* The next such call waits, when it is done, until `release`. */
    void hold_answer(const std::string &call, const std::string &key);
    bool is_held();
    void release();

    struct ng_kv *inner = nullptr;
    std::atomic<int> slow_ms{0};
    std::atomic<bool> deaf{false}; /* no messages arrive */
    std::atomic<int> calls{0};
    std::atomic<int> readings{0}; /* of the progress of all: each begins with their number */

  private:
    struct Ops;
    int before(const char *call, bool writes, int64_t deadline_mono_ns);
    int after(const char *call, const char *key, int result);
    std::atomic<int> mode{PASS}, error{0}, write_error{0}, reconnects{0};
    std::vector<std::function<void(struct ng_kv *)>> queue; /* of the thread that uses the store */
    bool queue_writes = false;                              /* something is set in it */
    std::mutex lock;
    std::condition_variable changed;
    std::string lost_call, lost_key, held_call, held_key;
    bool held = false;
    std::atomic<bool> under_way{false};
};

struct Group {
    uint64_t id;
    int nranks = 2, group_rank = 0;
    uint64_t parent = 0;
    enum ng_group_state state = NG_GROUP_READY;
};

/* A folder of black boxes, and a number. */
struct Host {
    Host();
    Folder folder;
    uint64_t number;
};

class Rank : NotCopied
{
  public:
    struct Options {
        int64_t ttl_ns = 5 * NG_S;
        const Host *host = nullptr; /* with a board of this host; NULL: the store alone */
        std::vector<Group> groups = {};
    };
    Rank(const std::string &url, int rank, const Options &options);
    /* Says goodbye, but for the killed. */
    ~Rank();

    /* Its thread is started, and waited for until it is on the board. */
    void start();
    void start_without_waiting();
    /* The store hears no more of it, its host sees it dead; it can only be destroyed. */
    void kill();
    bool has_ended() const
    {
        return over;
    }
    bool join_thread();

    void add_group(const Group &group);
    void set_entered(uint32_t group, uint64_t entered);
    uint64_t slot() const
    {
        return __atomic_load_n(&box.header->board_slot, __ATOMIC_SEQ_CST);
    }
    uint64_t uid() const
    {
        return ng_box_uid(box.header);
    }
    int64_t published_ns() const
    {
        return __atomic_load_n(&box.header->published_mono_ns, __ATOMIC_SEQ_CST);
    }
    bool up();

    /* Questions, on the thread that calls. */
    int ask(struct ng_ask *ask, int64_t ms = 5000);
    int ask(enum ng_ask_kind kind, const struct ng_incident &incident = {}, int64_t ms = 5000);
    int claim(const struct ng_incident &wanted, struct ng_incident *ret_incident,
              int64_t ms = 5000);
    int judge(struct ng_incident *incident, const std::string &json = "",
              const std::string &text = "", int64_t ms = 5000);
    int next(uint64_t epoch, struct ng_incident *ret_incident);
    /* Epoch of the next incident after this one, waited for; 0 none came. */
    uint64_t heard(uint64_t epoch, struct ng_incident *ret_incident = nullptr);
    /* How each process that the store shows lives, by rank; of one rank, the worst. */
    std::map<int, enum ng_life> lives();
    int view(struct ng_view *view);

    /* What a neighbour would say of this rank. */
    void spoken_for_by(Rank &other, enum ng_life life, bool frozen = false);

    int rank;
    FaultyKv kv;
    struct ng_box box;
    struct ng_publisher *publisher = nullptr; /* of a rank without a host */
    struct ng_board *board = nullptr;         /* of one with a host */
    struct ng_descriptor kick = NG_DESCRIPTOR_NONE;

  private:
    static int start_thread(const char *name, void *(*body)(void *));
    static void adopt_thread();
    int leave(int64_t ms);
    Options options_;
    Folder staging_;
    std::thread thread_;
    std::atomic<bool> over{false}, adopted{false};
    bool started_ = false, killed_ = false;
};

struct ng_incident about(enum ng_incident_level level, uint64_t group_id, uint64_t seq);

/* The bytes that tell of one process. */
struct Told {
    int rank = 0, pid = 100;
    uint64_t uid = 0, label = 0;
    enum ng_life life = NG_LIFE_RUNNING;
    int64_t life_age_ns = 0, written_ago_ns = 0;
    uint64_t group = 0, entered = 0;
    int64_t pending_age_ns = 0;
    int world_size = 8;
    uint64_t launch_run = 0;
};
std::string told(const Told &told);

#endif
