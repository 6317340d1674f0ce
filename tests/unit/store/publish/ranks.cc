/*
 * Ranks on a store that can be made to fail.
 */
#include "tests/unit/store/publish/ranks.h"

#include <sys/eventfd.h>

bool eventually(const std::function<bool()> &what)
{
    int64_t until = within(20000);
    struct timespec pause = {};
    pause.tv_nsec = 5 * NG_MS;

    while (!what()) {
        if (ng_clock_mono_ns() > until)
            return false;
        nanosleep(&pause, nullptr);
    }
    return true;
}

LogFile::LogFile()
{
    ng_log_init(NG_LOG_INFO, (folder / "log").c_str(), 0);
}

LogFile::~LogFile()
{
    ng_log_init(NG_LOG_WARN, nullptr, -1);
}

int LogFile::count(const std::string &text) const
{
    std::string log = all();
    int found = 0;
    for (size_t at = log.find(text); at != std::string::npos; at = log.find(text, at + 1))
        found++;
    return found;
}

/* ---- The store ---- */

struct FaultyKv::Ops {
    static FaultyKv *of(struct ng_kv *kv)
    {
        return static_cast<FaultyKv *>(kv);
    }
    static bool does_nothing(struct ng_kv *kv)
    {
        return of(kv)->mode == NOTHING;
    }
    /* A server that has no processor for longer than a guard waits is not what is tested: what does
     * not answer in time is this stand-in. */
    static int64_t patient(int64_t deadline_mono_ns)
    {
        return deadline_mono_ns + 3 * NG_S;
    }
    template <typename Do>
    static int call(struct ng_kv *kv, const char *name, const char *key, bool writes,
                    int64_t deadline_mono_ns, int nothing, const Do &done)
    {
        FaultyKv *self = of(kv);
        int error = self->before(name, writes, deadline_mono_ns);
        if (error)
            return ng_kv_fail(kv, error, "%s", strerror(-error));
        if (!self->under_way)
            return nothing;
        int result = self->after(name, key, done(self->inner));
        kv->connects = self->inner->connects + (uint64_t)self->reconnects;
        snprintf(kv->error, sizeof(kv->error), "%s", ng_kv_error(self->inner));
        return result;
    }
    static int get(struct ng_kv *kv, const char *key, int64_t deadline,
                   struct ng_kv_bytes *ret_value)
    {
        return call(kv, "get", key, false, deadline, -ENOENT, [=](struct ng_kv *inner) {
            return ng_kv_get(inner, key, patient(deadline), ret_value);
        });
    }
    static int get_many(struct ng_kv *kv, const char *const *keys, size_t count, int64_t deadline,
                        ng_kv_many_fn *each, void *context)
    {
        if (does_nothing(kv))
            for (size_t i = 0; i < count; i++)
                each(context, i, nullptr);
        return call(kv, "get_many", count ? keys[0] : "", false, deadline, 0,
                    [=](struct ng_kv *inner) {
                        return ng_kv_get_many(inner, keys, count, patient(deadline), each, context);
                    });
    }
    static int add(struct ng_kv *kv, const char *key, int64_t delta, int64_t ttl_ms,
                   int64_t deadline, int64_t *ret_value)
    {
        *ret_value = 1;
        return call(kv, "add", key, true, deadline, 0, [=](struct ng_kv *inner) {
            return ng_kv_add(inner, key, delta, ttl_ms, patient(deadline), ret_value);
        });
    }
    static int put_if_absent(struct ng_kv *kv, const char *key, const struct ng_kv_bytes *value,
                             int64_t ttl_ms, int64_t deadline)
    {
        return call(kv, "put", key, true, deadline, 0, [=](struct ng_kv *inner) {
            return ng_kv_put_if_absent(inner, key, value->data, value->bytes, ttl_ms,
                                       patient(deadline));
        });
    }
    static int compare_and_set(struct ng_kv *kv, const char *key,
                               const struct ng_kv_bytes *expected, const struct ng_kv_bytes *value,
                               int64_t ttl_ms, int64_t deadline, struct ng_kv_bytes *ret_current)
    {
        return call(kv, "cas", key, true, deadline, 0, [=](struct ng_kv *inner) {
            return ng_kv_compare_and_set(inner, key, expected, value->data, value->bytes, ttl_ms,
                                         patient(deadline), ret_current);
        });
    }
    static int remove(struct ng_kv *kv, const char *key, int64_t deadline)
    {
        return call(kv, "remove", key, true, deadline, 0, [=](struct ng_kv *inner) {
            return ng_kv_remove(inner, key, patient(deadline));
        });
    }
    static int expire(struct ng_kv *kv, const char *key, int64_t ttl_ms, int64_t deadline)
    {
        return call(kv, "expire", key, true, deadline, 0, [=](struct ng_kv *inner) {
            return ng_kv_expire(inner, key, ttl_ms, patient(deadline));
        });
    }
    static int queue_set(struct ng_kv *kv, const char *key, const struct ng_kv_bytes *value,
                         int64_t ttl_ms)
    {
        std::string name = key, data(static_cast<const char *>(value->data), value->bytes);
        of(kv)->queue.push_back([=](struct ng_kv *inner) {
            ng_kv_queue_set(inner, name.c_str(), data.data(), data.size(), ttl_ms);
        });
        of(kv)->queue_writes = true;
        return 0;
    }
    static int queue_publish(struct ng_kv *kv, const char *channel, const struct ng_kv_bytes *bytes)
    {
        std::string name = channel, data(static_cast<const char *>(bytes->data), bytes->bytes);
        of(kv)->queue.push_back([=](struct ng_kv *inner) {
            ng_kv_queue_publish(inner, name.c_str(), data.data(), data.size());
        });
        return 0;
    }
    static int flush(struct ng_kv *kv, int64_t deadline, size_t *ret_failed)
    {
        std::vector<std::function<void(struct ng_kv *)>> queue;
        queue.swap(of(kv)->queue);
        bool writes = std::exchange(of(kv)->queue_writes, false);
        return call(kv, "flush", "", writes, deadline, 0, [&](struct ng_kv *inner) {
            for (const auto &one : queue)
                one(inner);
            return ng_kv_flush(inner, patient(deadline), ret_failed);
        });
    }
    static int subscribe(struct ng_kv *kv, const char *channel, int64_t deadline)
    {
        return call(kv, "subscribe", channel, false, deadline, 0, [=](struct ng_kv *inner) {
            return ng_kv_subscribe(inner, channel, patient(deadline));
        });
    }
    static int message_fd(struct ng_kv *kv)
    {
        return of(kv)->mode == PASS && !of(kv)->deaf ? ng_kv_message_fd(of(kv)->inner) : -1;
    }
    static int next_message(struct ng_kv *kv, int64_t deadline, struct ng_kv_message *ret_message)
    {
        FaultyKv *self = of(kv);
        if (self->mode != PASS)
            return -EAGAIN;
        int error = ng_kv_next_message(self->inner, deadline, ret_message);
        return error == 0 && self->deaf ? -EAGAIN : error;
    }
    static void abandon(struct ng_kv *kv)
    {
        ng_kv_abandon(of(kv)->inner);
    }
};

FaultyKv::FaultyKv(const std::string &url, const std::string &job) : ng_kv()
{
    static const struct ng_kv_ops table = KV_OPS(Ops::);
    struct ng_kv_options options = {};
    char why[512] = "";

    options.job = job.c_str();
    options.run = NG_BOARD_RUN;
    EXPECT_EQ(open_store(url, options, why, sizeof(why), &inner), 0) << why;
    ops = &table;
    snprintf(name, sizeof(name), "%s", inner ? inner->name : "");
}

FaultyKv::~FaultyKv()
{
    ng_kv_destroy(inner);
}

void FaultyKv::set(Mode wanted, int wanted_error)
{
    std::unique_lock<std::mutex> guard(lock);
    error = wanted_error;
    mode = wanted;
    changed.notify_all();
    changed.wait(guard, [this] { return !under_way.load(); });
}

void FaultyKv::lose_answer(const std::string &call, const std::string &key)
{
    std::lock_guard<std::mutex> guard(lock);
    lost_call = call;
    lost_key = key;
}

void FaultyKv::hold_answer(const std::string &call, const std::string &key)
{
    std::lock_guard<std::mutex> guard(lock);
    held_call = call;
    held_key = key;
}

bool FaultyKv::is_held()
{
    std::lock_guard<std::mutex> guard(lock);
    return held;
}

void FaultyKv::release()
{
    std::lock_guard<std::mutex> guard(lock);
    held_call.clear();
    held = false;
    changed.notify_all();
}

int FaultyKv::before(const char *call, bool writes, int64_t deadline_mono_ns)
{
    calls++;
    if (slow_ms) {
        int64_t until = within(slow_ms);
        if (!ng_kv_pause(until, deadline_mono_ns)) {
            ng_kv_pause(deadline_mono_ns, INT64_MAX);
            return -ETIMEDOUT;
        }
    }
    std::unique_lock<std::mutex> guard(lock);
    int64_t left = deadline_mono_ns - ng_clock_mono_ns();
    if (mode == HANG || mode == STAND) {
        auto until = std::chrono::steady_clock::now() +
                     std::chrono::nanoseconds(left > 0 ? left : 0) +
                     std::chrono::milliseconds(mode == STAND ? 300 : 0);
        changed.wait_until(guard, until, [this] { return mode != HANG && mode != STAND; });
        return -ETIMEDOUT;
    }
    if (mode == FAIL)
        return error;
    int refused = writes && mode == PASS ? write_error.load() : 0;
    under_way = !refused && mode == PASS;
    return refused;
}

int FaultyKv::after(const char *call, const char *key, int result)
{
    std::unique_lock<std::mutex> guard(lock);
    under_way = false;
    readings += strcmp(call, "get") == 0 && strcmp(key, "n") == 0;
    changed.notify_all();
    if (lost_call == call && strncmp(key, lost_key.c_str(), lost_key.size()) == 0) {
        lost_call.clear();
        return -ECONNRESET;
    }
    if (held_call == call && strncmp(key, held_key.c_str(), held_key.size()) == 0) {
        held = true;
        changed.notify_all();
        changed.wait(guard, [this] { return !held; });
    }
    return result;
}

/* ---- Ranks ---- */

static Rank *starting;

/* What all ranks share; made with the first. */
struct World {
    std::mutex lock;
    std::set<int> kicks;
    std::vector<void *> kept; /* what is freed with the process */
};

static World &the_world()
{
    static World *world = new World;
    return *world;
}

static void wake_all()
{
    World &world = the_world();
    std::lock_guard<std::mutex> guard(world.lock);
    uint64_t one = 1;
    for (int fd : world.kicks)
        if (write(fd, &one, sizeof(one)) < 0)
            continue; /* full: it is awake */
}

Host::Host()
{
    static std::atomic<uint64_t> hosts{0};
    number = 4026530000u + ++hosts;
}

Rank::Rank(const std::string &url, int wanted_rank, const Options &options)
    : rank(wanted_rank), kv(url), options_(options)
{
    static std::atomic<int> pids{100000000}; /* no process has such a number */
    struct ng_box_identity identity = {};
    const Host *host = options.host;

    identity.rank = rank;
    identity.world_size = 8;
    identity.local_rank = 0;
    identity.job = "job";
    EXPECT_EQ(ng_box_create(staging_.path().c_str(), &identity, 64, &box), 0);
    /* Others see it with its numbers, or not at all. */
    box.header->pid = pids++;
    box.header->start_ticks = (uint64_t)box.header->pid * 10;
    box.header->pid_namespace = host ? host->number : (uint64_t)box.header->pid;
    if (host) {
        std::string from = staging_ / box.name;
        snprintf(box.name, sizeof(box.name), NG_BOX_PREFIX "%d-1", box.header->pid);
        EXPECT_EQ(rename(from.c_str(), (host->folder / box.name).c_str()), 0);
    }
    for (const Group &group : options.groups)
        add_group(group);
    __atomic_store_n(&box.header->heartbeat_mono_ns, ng_clock_mono_ns(), __ATOMIC_SEQ_CST);

    struct ng_publisher_options publishing = {};
    publishing.own_box = &box;
    publishing.ttl_ns = options.ttl_ns;
    publishing.adopt_thread = adopt_thread;
    publishing.wake = wake_all;
    publishing.start_thread = start_thread;
    if (!host) {
        EXPECT_EQ(ng_publisher_open(&kv, &publishing, &publisher), 0);
    } else {
        struct ng_board *local = nullptr;
        EXPECT_EQ(ng_local_open(host->folder.path().c_str(), &box, &local), 0);
        EXPECT_EQ(ng_board_multihost_open(local, &kv, &publishing, &board), 0);
    }
    kick = ng_descriptor_keep(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    World &world = the_world();
    std::lock_guard<std::mutex> guard(world.lock);
    world.kicks.insert(kick.fd);
    world.kept.push_back(publisher);
    world.kept.push_back(board);
}

Rank::~Rank()
{
    kv.release();
    kv.refuse_writes(0);
    kv.slow_ms = 0;
    /* The thread ends when it has said goodbye, or believes so. */
    if (killed_ || !started_)
        kv.set(FaultyKv::NOTHING);
    if (started_ && !over && leave(3000) != 0) {
        kv.set(FaultyKv::NOTHING);
        EXPECT_TRUE(eventually([this] { return over || leave(3000) == 0; }));
    }
    bool joined = !started_ || join_thread();
    EXPECT_TRUE(joined);
    if (board)
        board->ops->abandon(board);
    if (publisher)
        ng_publisher_abandon(publisher);
    {
        World &world = the_world();
        std::lock_guard<std::mutex> guard(world.lock);
        world.kicks.erase(kick.fd);
    }
    ng_descriptor_close(&kick);
    ng_box_close(&box, nullptr);
}

bool Rank::join_thread()
{
    if (!eventually([this] { return over.load(); }))
        return false;
    if (thread_.joinable())
        thread_.join();
    return true;
}

int Rank::start_thread(const char *name, void *(*body)(void *))
{
    Rank *self = starting;

    self->thread_ = std::thread([self, body] {
        body(nullptr);
        self->over = true;
    });
    return 0;
}

void Rank::adopt_thread()
{
    starting->adopted = true;
}

void Rank::start_without_waiting()
{
    static std::mutex one_at_a_time;
    std::lock_guard<std::mutex> guard(one_at_a_time);

    starting = this;
    started_ = true;
    if (board)
        board->ops->wait(board, &kick, 0);
    int error = publisher ? ng_publisher_start(publisher) : 0;
    EXPECT_EQ(error, 0);
    /* Which publisher it is, the thread takes from a variable of all. */
    EXPECT_TRUE(eventually([this] { return adopted.load(); }));
}

void Rank::start()
{
    start_without_waiting();
    EXPECT_TRUE(eventually([this] { return up(); })) << "rank " << rank;
}

bool Rank::up()
{
    return slot() != 0 && published_ns() != 0 && (!publisher || ng_publisher_is_up(publisher));
}

void Rank::kill()
{
    killed_ = true;
    kv.set(FaultyKv::FAIL);
    struct flock lock = {};
    lock.l_type = F_UNLCK;
    lock.l_whence = SEEK_SET;
    EXPECT_EQ(fcntl(box.file.fd, F_OFD_SETLK, &lock), 0);
}

void Rank::add_group(const Group &group)
{
    uint32_t at = __atomic_load_n(&box.header->group_used, __ATOMIC_SEQ_CST);
    struct ng_box_group *slot = &box.groups[at];

    EXPECT_EQ(ng_box_reserve_group(&box, at), 0);
    __atomic_store_n(&slot->id, group.id, __ATOMIC_SEQ_CST);
    __atomic_store_n(&slot->parent_id, group.parent, __ATOMIC_SEQ_CST);
    __atomic_store_n(&slot->nranks, group.nranks, __ATOMIC_SEQ_CST);
    __atomic_store_n(&slot->group_rank, group.group_rank, __ATOMIC_SEQ_CST);
    __atomic_store_n(&slot->state, (uint32_t)group.state, __ATOMIC_SEQ_CST);
    __atomic_store_n(&box.header->group_used, at + 1, __ATOMIC_SEQ_CST);
}

void Rank::set_entered(uint32_t group, uint64_t entered)
{
    __atomic_store_n(&box.groups[group].entered, entered, __ATOMIC_SEQ_CST);
}

int Rank::leave(int64_t ms)
{
    if (publisher)
        return ask(NG_ASK_LEAVE, {}, ms);
    board->ops->leave(board);
    return over ? 0 : -EAGAIN;
}

int Rank::ask(struct ng_ask *ask, int64_t ms)
{
    return ng_publisher_ask(publisher, ask, within(ms));
}

int Rank::ask(enum ng_ask_kind kind, const struct ng_incident &incident, int64_t ms)
{
    struct ng_ask question = {.kind = kind, .incident = incident};
    int result = ask(&question, ms);
    ng_arena_reset(&question.arena);
    return result;
}

int Rank::claim(const struct ng_incident &wanted, struct ng_incident *ret_incident, int64_t ms)
{
    if (board)
        return board->ops->claim(board, &wanted, ret_incident);
    struct ng_ask question = {};
    question.kind = NG_ASK_CLAIM;
    question.incident = wanted;
    question.incident.claimant_pid = box.header->pid;
    question.incident.claimant_ticks = box.header->start_ticks;
    int result = ask(&question, ms);
    ng_arena_reset(&question.arena);
    *ret_incident = question.incident;
    return result;
}

int Rank::judge(struct ng_incident *incident, const std::string &json, const std::string &text,
                int64_t ms)
{
    struct ng_ask question = {};
    incident->state = NG_INCIDENT_JUDGED;
    question.kind = NG_ASK_JUDGE;
    question.incident = *incident;
    if (!json.empty()) {
        question.documents.json = ng_arena_strdup(&question.arena, json.c_str());
        question.documents.text = ng_arena_strdup(&question.arena, text.c_str());
        question.documents.json_bytes = json.size();
        question.documents.text_bytes = text.size();
    }
    int result = ask(&question, ms);
    ng_arena_reset(&question.arena);
    return result;
}

int Rank::next(uint64_t epoch, struct ng_incident *ret_incident)
{
    struct ng_news news;
    if (!board)
        return ng_publisher_next_incident(publisher, epoch, ret_incident);
    int error = board->ops->next(board, NG_SOURCE_JOB, epoch, &news);
    if (!error)
        *ret_incident = record_of(news);
    return error;
}

uint64_t Rank::heard(uint64_t epoch, struct ng_incident *ret_incident)
{
    struct ng_incident incident = {};
    bool found = eventually([&] { return next(epoch, &incident) == 0; });
    if (ret_incident)
        *ret_incident = incident;
    return found ? incident.epoch : 0;
}

int Rank::view(struct ng_view *view)
{
    ng_view_init(view);
    if (board)
        return board->ops->view(board, view);
    struct ng_ask question = {.kind = NG_ASK_VIEW};
    int error = ask(&question);
    if (!error)
        error = ng_peer_progress_add(question.blobs, question.blob_count, question.root,
                                     options_.ttl_ns, view);
    if (!error)
        ng_view_seal(view);
    ng_arena_reset(&question.arena);
    return error;
}

std::map<int, enum ng_life> Rank::lives()
{
    std::map<int, enum ng_life> found;
    OwnView shown;

    EXPECT_EQ(view(&shown), 0);
    for (uint32_t i = 0; i < shown.process_count; i++) {
        const struct ng_view_process *process = &shown.processes[i];
        EXPECT_EQ(found.count(process->rank), 0u) << "rank " << process->rank << " twice";
        found[process->rank] = process->life;
    }
    return found;
}

void Rank::spoken_for_by(Rank &other, enum ng_life life, bool frozen)
{
    struct ng_progress_limits limits = {};
    OwnView view;
    const void *data;
    size_t bytes;

    limits.records = 8;
    limits.label = ng_publisher_get_label(other.publisher);
    limits.written_unix_ns = ng_clock_unix_ns();
    limits.reason = NG_PROGRESS_BY_NEIGHBOUR;
    ASSERT_EQ(ng_view_add_box(&view, &box, life, ng_clock_mono_ns(), "box"), 0);
    ASSERT_EQ(ng_progress_encode(&view, 0, &limits, &view.arena, &data, &bytes), 0);
    bool ended = life != NG_LIFE_RUNNING && life != NG_LIFE_STOPPED;
    ng_publisher_speak_for(other.publisher, slot(), ended, frozen, &view.arena, data, bytes);
    EXPECT_EQ(view.arena.chunks, nullptr) << "the arena goes along";
}

struct ng_incident about(enum ng_incident_level level, uint64_t group_id, uint64_t seq)
{
    struct ng_incident wanted = {.level = level,
                                 .group_id = group_id,
                                 .seq = seq,
                                 .op = NG_OP_AllReduce,
                                 .claimant_rank = 0,
                                 .since_mono_ns = ng_clock_mono_ns()};
    return wanted;
}

std::string told(const Told &told)
{
    struct ng_progress_limits limits = {};
    OwnView view;
    const void *data = nullptr;
    size_t bytes = 0;

    struct ng_view_process *process = ng_view_add_process(&view);
    process->rank = told.rank;
    process->world_size = told.world_size;
    process->pid = told.pid;
    process->uid = told.uid;
    process->life = told.life;
    process->life_age_ns = told.life_age_ns;
    snprintf(process->host, sizeof(process->host), "host");
    if (told.group) {
        uint32_t group = ng_view_intern_group(&view, told.group);
        view.groups[group].nranks = 8;
        struct ng_view_member *member = ng_view_add_member(&view, 0, group, told.rank);
        member->state = NG_GROUP_READY;
        member->entered = member->scheduled = told.entered;
        member->pending_seq = told.pending_age_ns ? told.entered : 0;
        member->pending_record = member->pending_seq;
        member->pending_age_ns = told.pending_age_ns;
    }
    limits.records = 8;
    limits.label = told.label;
    limits.launch_run = told.launch_run;
    limits.written_unix_ns = ng_clock_unix_ns() - told.written_ago_ns;
    EXPECT_EQ(ng_progress_encode(&view, 0, &limits, &view.arena, &data, &bytes), 0);
    std::string copy(static_cast<const char *>(data), bytes);
    return copy;
}
