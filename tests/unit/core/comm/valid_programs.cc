/*
 * Random valid programs of several ranks, through all of core that a call passes: whatever NCCL
 * lets ranks do differently, no look at any moment takes it for a difference. And the same with one
 * field of one call changed, which is always told.
 *
 * NG_PROGRAMS: how many (each has its seed, from NG_PROGRAMS_FIRST on); a hundred thousand take a
 * few minutes.
 */
#include "tests/unit/core/helpers/core.h"
#include "tests/unit/core/helpers/made_ranks.h"

#include <numeric>

namespace
{

enum class Do {
    call,    /* a collective, or a part in a send and receive */
    refused, /* NCCL takes it for invalid */
    group_start,
    group_end,
    group_fails,
    group_simulated,
    make, /* a communicator: in two halves */
    destroy,
    abort,
    capture_begins,
    capture_ends,
    capture_dropped, /* nothing is made of it */
    add_child,       /* a graph, to what is captured */
    launch,
    update,
    set_child,
};

struct Call {
    unsigned op;
    uint64_t count;
    int dtype, redop, root; /* or the peer */
};

struct Action {
    Do what;
    size_t group = 0; /* or graph, of this rank: its number in the order of capture */
    Call call = {};
    size_t other = 0; /* graph to update from */
};

/* A communicator of the program: all of its handles. */
struct Group {
    std::vector<int> members;       /* by rank in it */
    std::string id;                 /* "" made from a parent */
    std::vector<int> excluded = {}; /* of a shrink */
    std::map<int, void *> handles = {};
    bool captured = false; /* some rank captures calls of it */
};

constexpr size_t NONE = SIZE_MAX;

/* What a split makes of one parent, all colors together: ranks wait for each other once. */
struct Making {
    size_t parent;                    /* NONE: by the unique id */
    std::vector<int> waits_for;       /* ranks */
    std::map<int, size_t> makes = {}; /* what each of them gets */
    std::map<int, int> color = {};
    std::set<int> entered = {};
};

class Program
{
  public:
    Program(uint64_t seed, bool graphs, bool faulty)
        : random_(seed), graphs_(graphs), faulty_(faulty)
    {
        ranks_ = 2 + (int)pick(pick(4) ? 3 : 7);
        same_id_ = !faulty && pick(5) == 0; /* as NCCL_COMM_ID makes it */
        lists_.resize((size_t)ranks_);
        graph_count_.resize((size_t)ranks_);
        build();
        if (faulty)
            plant();
        for (int rank = 0; rank < ranks_; rank++) {
            swap_some(rank);
            wrap_some(rank);
            if (!faulty || pick(2))
                add_noise(rank);
        }
    }

    bool planted() const
    {
        return fault_seq_ > 0;
    }

    /* "" nothing was told that is not so, or that all that had to be told was. */
    std::string run()
    {
        std::vector<State> states((size_t)ranks_);
        std::vector<int> able(1);
        states_ = &states;
        while (!able.empty()) {
            able.clear();
            for (int rank = 0; rank < ranks_; rank++)
                if (is_able(rank))
                    able.push_back(rank);
            if (able.empty())
                break;
            int rank = able[pick(able.size())];
            for (size_t burst = 1 + pick(pick(3) ? 4 : 60); burst > 0 && is_able(rank); burst--)
                step(rank);
            look();
            if (!wrong_.empty())
                break;
        }
        for (int rank = 0; rank < ranks_ && wrong_.empty(); rank++)
            if (states[(size_t)rank].at < lists_[(size_t)rank].size())
                wrong_ = "rank " + std::to_string(rank) + " cannot go on";
        if (wrong_.empty() && faulty_)
            expect_told();
        if (wrong_.empty() && !faulty_)
            look_at_records();
        clean_up();
        return wrong_;
    }

  private:
    struct State {
        size_t at = 0;
        bool making = false; /* between the two halves */
        std::vector<unsigned> graphs;
        std::vector<unsigned> all_graphs;
        unsigned open = 0;
        bool failing = false; /* calls of the open group will not have happened */
        unsigned stream = 0;  /* that calls go to */
    };

    size_t pick(size_t count)
    {
        return (size_t)(random_() % count);
    }

    /* ---- Building ---- */

    Call any_call(size_t members)
    {
        static const unsigned ops[] = {1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
        unsigned op = ops[pick(12)];
        Call call = {op, op == 9 ? 0 : pick(5) * 1024, (int)pick(10), -1, -1};
        if (op == 1 || op == 3 || op == 5 || op == 10)
            call.redop = (int)pick(6);
        if (op == 2 || op == 3 || op == 7 || op == 8)
            call.root = (int)pick(members);
        return call;
    }

    std::vector<Call> any_calls(size_t count, size_t members)
    {
        std::vector<Call> calls(count);
        for (Call &call : calls)
            call = any_call(members);
        return calls;
    }

    std::string any_id()
    {
        std::string id(128, '\0');
        for (size_t i = 0; i < 128; i += 8) {
            uint64_t word = same_id_ ? 7 : random_();
            memcpy(&id[i], &word, 8);
        }
        return id;
    }

    std::vector<int> any_members()
    {
        std::vector<int> members((size_t)ranks_);
        std::iota(members.begin(), members.end(), 0);
        std::shuffle(members.begin(), members.end(), random_);
        members.resize(groups_.empty() ? members.size() : 2 + pick(members.size() - 1));
        return members;
    }

    void add_for(const std::vector<int> &ranks, const Action &action)
    {
        for (int rank : ranks)
            lists_[(size_t)rank].push_back(action);
    }

    void add_group(Making &making, const Group &group)
    {
        for (int rank : group.members)
            making.makes[rank] = groups_.size();
        live_.push_back(groups_.size());
        groups_.push_back(group);
    }

    void add_making(const Making &making)
    {
        add_for(making.waits_for, {Do::make, makings_.size()});
        makings_.push_back(making);
    }

    void make_group(const std::string &id, const std::vector<int> &members)
    {
        Making making = {NONE, members};
        add_group(making, {members, id});
        add_making(making);
    }

    void split_group(size_t parent)
    {
        Making making = {parent, groups_[parent].members};
        std::map<int, std::vector<int>> by_color;
        for (int rank : making.waits_for) {
            int color = pick(8) == 0 ? -1 : (int)pick(2);
            making.color[rank] = color;
            if (color >= 0)
                by_color[color].push_back(rank);
        }
        for (auto &[color, some] : by_color) {
            std::shuffle(some.begin(), some.end(), random_);
            add_group(making, {some, ""});
        }
        add_making(making);
    }

    void shrink_group(size_t parent)
    {
        std::vector<int> members = groups_[parent].members;
        int without = (int)pick(members.size());
        members.erase(members.begin() + without);
        Making making = {parent, members};
        add_group(making, {members, "", {without}});
        add_making(making);
        end_group(parent); /* NCCL numbers the shrinks of a parent on the ranks that stay alone */
    }

    void end_group(size_t group)
    {
        live_.erase(std::find(live_.begin(), live_.end(), group));
        for (int rank : groups_[group].members)
            lists_[(size_t)rank].push_back({pick(5) ? Do::destroy : Do::abort, group});
        if (!groups_[group].id.empty() && same_id_ && pick(2))
            make_group(groups_[group].id, pick(3) ? groups_[group].members : any_members());
    }

    void add_p2p(size_t group)
    {
        const std::vector<int> &members = groups_[group].members;
        if (members.size() < 2)
            return;
        size_t from = pick(members.size()),
               to = (from + 1 + pick(members.size() - 1)) % members.size();
        for (size_t i = 1 + pick(3); i > 0; i--) {
            uint64_t count = pick(4) * 7;
            add_for({members[from]}, {Do::call, group, {16, count, 7, -1, (int)to}});
            add_for({members[to]}, {Do::call, group, {17, count, 7, -1, (int)from}});
        }
    }

    /* All members replay the same, or, where replays count as calls do, some of them make the
     * calls. */
    void add_graph()
    {
        size_t group = live_[pick(live_.size())];
        std::vector<int> members = groups_[group].members;
        std::vector<Call> calls = any_calls(1 + pick(6), members.size());
        groups_[group].captured = true;
        size_t replays = 1 + pick(4), update = pick(4) == 0 ? pick(replays) : NONE;
        int caller = graphs_ && pick(4) == 0 ? members[pick(members.size())] : -1;
        bool nested = pick(2), sets = pick(2);
        std::vector<Call> later = any_calls(calls.size(), members.size());
        for (int rank : members) {
            std::vector<Action> &list = lists_[(size_t)rank];
            if (rank == caller) {
                for (size_t replay = 0; replay < replays; replay++)
                    add_calls(list, group, calls);
                for (size_t replay = 0; sets && replay < replays; replay++)
                    add_calls(list, group, later);
                continue;
            }
            size_t graph = add_capture(rank, group, calls);
            bool is_nested = nested && pick(2);
            if (is_nested) {
                size_t outer = graph_count_[(size_t)rank]++;
                list.push_back({Do::capture_begins});
                list.push_back({Do::add_child, graph});
                list.push_back({Do::capture_ends});
                graph = outer;
            }
            for (size_t replay = 0; replay < replays; replay++) {
                if (replay == update)
                    list.push_back({Do::update, graph, {}, add_capture(rank, group, calls)});
                list.push_back({Do::launch, graph});
            }
            if (!sets)
                continue;
            size_t from = add_capture(rank, group, later);
            list.push_back(
                {is_nested && update == NONE ? Do::set_child : Do::update, graph, {}, from});
            list.insert(list.end(), replays, {Do::launch, graph});
        }
    }

    static void add_calls(std::vector<Action> &list, size_t group, const std::vector<Call> &calls)
    {
        for (const Call &call : calls)
            list.push_back({Do::call, group, call});
    }

    size_t add_capture(int rank, size_t group, const std::vector<Call> &calls)
    {
        std::vector<Action> &list = lists_[(size_t)rank];
        list.push_back({Do::capture_begins});
        add_calls(list, group, calls);
        list.push_back({Do::capture_ends});
        return graph_count_[(size_t)rank]++;
    }

    void build()
    {
        make_group(any_id(), any_members());
        for (size_t steps = 5 + pick(pick(40) == 0 ? 600 : 60); steps > 0; steps--) {
            if (live_.empty())
                make_group(any_id(), any_members());
            size_t group = live_[pick(live_.size())];
            switch (pick(40)) {
            case 0:
            case 1:
                if (live_.size() < 6)
                    make_group(any_id(), any_members());
                break;
            case 2:
            case 3:
                if (live_.size() < 6)
                    split_group(group);
                break;
            case 4:
                if (groups_[group].members.size() > 2 && live_.size() < 8)
                    shrink_group(group);
                break;
            case 5:
                end_group(group);
                break;
            case 6:
                add_graph();
                break;
            case 7:
            case 8:
            case 9:
                add_p2p(group);
                break;
            default:
                for (size_t calls = 1 + pick(5); calls > 0; calls--)
                    add_for(groups_[group].members,
                            {Do::call, group, any_call(groups_[group].members.size())});
            }
        }
    }

    /* One rank passes something else to one collective. No communicator of that group ends. */
    void plant()
    {
        std::vector<std::pair<int, size_t>> places;
        for (int rank = 0; rank < ranks_; rank++) {
            const std::vector<Action> &list = lists_[(size_t)rank];
            for (size_t i = 0; i < list.size(); i++)
                if (list[i].what == Do::call && list[i].call.op < 16 &&
                    !groups_[list[i].group].captured && groups_[list[i].group].members.size() > 1)
                    places.emplace_back(rank, i);
        }
        if (places.empty())
            return;
        auto [rank, at] = places[pick(places.size())];
        Action &action = lists_[(size_t)rank][at];
        change(action.call);
        fault_group_ = action.group;
        fault_rank_ = rank;
        fault_seq_ = 1;
        for (size_t i = 0; i < at; i++) {
            const Action &before = lists_[(size_t)rank][i];
            fault_seq_ +=
                before.what == Do::call && before.group == fault_group_ && before.call.op < 16;
        }
        for (std::vector<Action> &list : lists_)
            list.erase(std::remove_if(list.begin(), list.end(),
                                      [this](const Action &a) {
                                          return (a.what == Do::destroy || a.what == Do::abort) &&
                                                 a.group == fault_group_;
                                      }),
                       list.end());
    }

    void change(Call &call)
    {
        for (;;) {
            switch (pick(5)) {
            case 0:
                if (call.op == 9)
                    break;
                call.count += 1 + pick(3);
                return;
            case 1:
                call.dtype = (call.dtype + 1 + (int)pick(9)) % 10;
                return;
            case 2:
                if (call.redop < 0)
                    break;
                call.redop = (call.redop + 1 + (int)pick(5)) % 6;
                return;
            case 3:
                if (call.root < 0)
                    break;
                call.root = call.root ? call.root - 1 : call.root + 1;
                return;
            default: {
                /* Of the same fields. */
                static const std::vector<std::vector<unsigned>> alike = {
                    {1, 5, 10}, {2, 7, 8}, {4, 6}};
                for (const std::vector<unsigned> &ops : alike)
                    if (std::find(ops.begin(), ops.end(), call.op) != ops.end()) {
                        unsigned before = call.op;
                        while (call.op == before)
                            call.op = ops[pick(ops.size())];
                        return;
                    }
            }
            }
        }
    }

    /* ---- What each rank does in its own way ---- */

    /* The order across communicators is each rank's own, as with streams of their own. */
    void swap_some(int rank)
    {
        std::vector<Action> &list = lists_[(size_t)rank];
        bool capturing = false;
        for (size_t i = 0; i + 1 < list.size(); i++) {
            capturing = list[i].what == Do::capture_begins ||
                        (capturing && list[i].what != Do::capture_ends);
            if (!capturing && list[i].what == Do::call && list[i + 1].what == Do::call &&
                list[i].group != list[i + 1].group && pick(4) == 0)
                std::swap(list[i], list[i + 1]);
        }
    }

    /* Some calls go into NCCL groups, also in a capture; a rank's own choice. */
    void wrap_some(int rank)
    {
        std::vector<Action> wrapped;
        size_t left = 0, depth = 0;
        for (const Action &action : lists_[(size_t)rank]) {
            if (left > 0 && action.what != Do::call)
                close(wrapped, left = 1, depth);
            if (left == 0 && action.what == Do::call && pick(6) == 0) {
                left = 1 + pick(6);
                depth = 1 + (pick(4) == 0);
                wrapped.insert(wrapped.end(), depth, {Do::group_start});
                left++;
            }
            wrapped.push_back(action);
            close(wrapped, left, depth);
        }
        if (left > 0)
            close(wrapped, left = 1, depth);
        lists_[(size_t)rank] = wrapped;
    }

    static void close(std::vector<Action> &list, size_t &left, size_t depth)
    {
        if (left == 0 || --left > 0)
            return;
        list.insert(list.end(), depth, {Do::group_end});
    }

    /* What has not happened: calls that NCCL refuses, groups that fail or are only simulated,
     * captures that are thrown away. On a communicator that is there at that moment. */
    void add_noise(int rank)
    {
        std::vector<Action> noisy;
        std::vector<size_t> there;
        unsigned open = 0;
        bool capturing = false;
        for (const Action &action : lists_[(size_t)rank]) {
            if (action.what == Do::group_start)
                open++;
            if (action.what == Do::capture_begins)
                capturing = true;
            if (!there.empty() && !open && !capturing && pick(12) == 0)
                add_one_noise(noisy, there);
            noisy.push_back(action);
            if (action.what == Do::group_end)
                open--;
            if (action.what == Do::capture_ends)
                capturing = false;
            if (action.what == Do::make) {
                auto made = makings_[action.group].makes.find(rank);
                if (made != makings_[action.group].makes.end())
                    there.push_back(made->second);
            }
            if (action.what == Do::destroy || action.what == Do::abort)
                there.erase(std::remove(there.begin(), there.end(), action.group), there.end());
        }
        lists_[(size_t)rank] = noisy;
    }

    void add_one_noise(std::vector<Action> &list, const std::vector<size_t> &there)
    {
        auto any = [&] {
            size_t group = there[pick(there.size())];
            return Action{Do::call, group, any_call(groups_[group].members.size())};
        };
        size_t kind = pick(4);
        Action refused = any();
        refused.what = Do::refused;
        /* It would end the comparing of that group, which the fault is in. */
        if (faulty_ && kind == 3)
            kind = 0;
        if (kind == 0) {
            list.push_back(refused);
            return;
        }
        list.push_back({kind == 3 ? Do::capture_begins : Do::group_start});
        for (size_t calls = 1 + pick(5); calls > 0; calls--)
            list.push_back(any());
        list.push_back({kind == 1   ? Do::group_fails
                        : kind == 2 ? Do::group_simulated
                                    : Do::capture_dropped});
    }

    /* ---- Running ---- */

    State &state(int rank)
    {
        return (*states_)[(size_t)rank];
    }

    bool is_able(int rank)
    {
        const State &own = state(rank);
        if (own.at == lists_[(size_t)rank].size())
            return false;
        if (!own.making)
            return true;
        const Making &making = makings_[lists_[(size_t)rank][own.at].group];
        return making.entered.size() == making.waits_for.size();
    }

    void *new_handle()
    {
        uintptr_t number = 1;
        while (!handles_.insert(number).second)
            number++;
        return reinterpret_cast<void *>(number << 12);
    }

    void *handle_of(int rank, size_t group)
    {
        return groups_[group].handles.at(rank);
    }

    void begin_making(int rank, Making &making)
    {
        auto made = making.makes.find(rank);
        struct made_making what = {.rank = rank};
        if (made != making.makes.end()) {
            Group &group = groups_[made->second];
            auto at = std::find(group.members.begin(), group.members.end(), rank);
            what.nranks = (int)group.members.size();
            what.group_rank = (int)(at - group.members.begin());
            what.handle = group.handles[rank] = new_handle();
            what.id = group.id.empty() ? nullptr : group.id.data();
            what.excluded = group.excluded.empty() ? nullptr : group.excluded.data();
            what.excluded_count = (int)group.excluded.size();
        }
        if (making.parent != NONE) {
            what.parent = handle_of(rank, making.parent);
            what.color = making.color.count(rank) ? making.color[rank] : 0;
        }
        made_rank_begins_making(&what);
        making.entered.insert(rank);
        state(rank).making = true;
    }

    static void look_inside(void *argument)
    {
        static_cast<Program *>(argument)->look_from_inside();
    }

    void look_from_inside()
    {
        made_ranks_compare(inside_later_);
        expect_no_alarm("inside a call");
    }

    void call(int rank, const Action &action)
    {
        bool refused = action.what == Do::refused;
        struct made_rank_call what = {.rank = rank,
                                      .comm = handle_of(rank, action.group),
                                      .op = action.call.op,
                                      .count = action.call.count,
                                      .dtype = action.call.dtype};
        /* Each rank numbers its own operators. */
        what.redop = action.call.redop > 4 ? 5 + (int)pick(100) : action.call.redop;
        what.root = action.call.root;
        what.stream = state(rank).stream;
        what.in_place = pick(2);
        what.result = refused ? 4 + (int)pick(2) : 0;
        /* Who is inside for long is past NCCL's checks. */
        inside_later_ = !refused && !state(rank).failing && !state(rank).stream && pick(2);
        if (pick(40) == 0) {
            what.inside = look_inside;
            what.argument = this;
        }
        made_rank_calls(&what);
    }

    bool group_fails(int rank)
    {
        const std::vector<Action> &list = lists_[(size_t)rank];
        for (size_t i = state(rank).at; i < list.size(); i++) {
            if (list[i].what == Do::group_fails || list[i].what == Do::group_simulated)
                return true;
            if (list[i].what == Do::group_end)
                return false;
        }
        return false;
    }

    void step(int rank)
    {
        State &own = state(rank);
        const Action &action = lists_[(size_t)rank][own.at];

        switch (action.what) {
        case Do::call:
        case Do::refused:
            call(rank, action);
            break;
        case Do::group_start:
            own.failing = group_fails(rank);
            own.open++;
            made_rank_opens_group(rank);
            break;
        case Do::group_end:
        case Do::group_fails:
        case Do::group_simulated:
            if (action.what == Do::group_simulated)
                made_rank_simulates_group(rank);
            else
                made_rank_closes_group(rank, action.what == Do::group_fails ? 3 : 0);
            own.open--;
            own.failing = false;
            break;
        case Do::make:
            if (!own.making) {
                begin_making(rank, makings_[action.group]);
                return;
            }
            made_rank_ends_making(rank);
            own.making = false;
            break;
        case Do::destroy:
        case Do::abort:
            made_rank_ends(rank, handle_of(rank, action.group), action.what == Do::abort);
            handles_.erase(reinterpret_cast<uintptr_t>(handle_of(rank, action.group)) >> 12);
            groups_[action.group].handles.erase(rank);
            break;
        case Do::capture_begins:
            own.stream = 1;
            made_rank_begins_capture(rank, 1);
            break;
        case Do::capture_ends:
        case Do::capture_dropped:
            own.all_graphs.push_back(made_rank_ends_capture(rank, 1));
            if (action.what == Do::capture_ends)
                own.graphs.push_back(own.all_graphs.back());
            own.stream = 0;
            break;
        case Do::launch:
            made_rank_launches(own.graphs[action.group], rank, own.stream);
            break;
        case Do::add_child:
            made_rank_adds_child(own.graphs[action.group], rank, own.stream);
            break;
        case Do::update:
            made_rank_updates(own.graphs[action.group], own.graphs[action.other]);
            break;
        case Do::set_child:
            made_rank_sets_child(own.graphs[action.group], own.graphs[action.other]);
            break;
        }
        own.at++;
    }

    void expect_no_alarm(const char *where)
    {
        struct made_alarm alarm = made_ranks_alarm();
        if (alarm.count && !faulty_)
            wrong_ = std::string("an alarm ") + where + ": #" + std::to_string(alarm.seq) +
                     ", ranks " + std::to_string(alarm.ranks[0]) + " and " +
                     std::to_string(alarm.ranks[1]);
        if (alarm.count && faulty_)
            told_.push_back(alarm);
        if (made_ranks_objections())
            wrong_ = "an objection to arguments";
    }

    void look()
    {
        made_ranks_hold(pick(2));
        if (pick(4) == 0)
            made_ranks_watch();
        if (pick(3) == 0) {
            made_ranks_compare(false);
            expect_no_alarm("between calls");
        }
        if (pick(8) == 0)
            look_at_old_hash_logs();
        if (pick(64) == 0 && !faulty_)
            look_at_records();
    }

    /* As ranks of other hosts do: with what one of them told some time ago, in this life of its
     * group. */
    void look_at_old_hash_logs()
    {
        size_t group = pick(groups_.size());
        if (groups_[group].handles.size() < 2 || faulty_ || same_id_)
            return;
        auto teller = groups_[group].handles.begin();
        std::advance(teller, (long)pick(groups_[group].handles.size()));
        unsigned place = (unsigned)pick(MADE_TOLD);
        auto &old = tellers_.emplace(place, std::make_pair(NONE, -1)).first->second;
        if (old.first == group && groups_[group].handles.size() == groups_[group].members.size())
            for (auto &[rank, handle] : groups_[group].handles)
                if (rank != old.second && made_rank_differs(handle, place))
                    wrong_ = "ranks " + std::to_string(old.second) + " and " +
                             std::to_string(rank) + " differ by what was told before";
        made_rank_tells(teller->second, place);
        old = {group, teller->first};
    }

    /* What a verdict compares. Calls of a group that will fail look as if they had happened; and of
     * two communicators with one id nobody can tell whose records they are. */
    void look_at_records()
    {
        for (int rank = 0; rank < ranks_; rank++)
            if (state(rank).failing || (state(rank).stream && state(rank).open))
                return;
        if (same_id_ || !wrong_.empty())
            return;
        std::vector<void *> handles;
        std::vector<size_t> groups;
        for (size_t group = 0; group < groups_.size(); group++)
            if (!groups_[group].handles.empty()) {
                handles.push_back(groups_[group].handles.begin()->second);
                groups.push_back(group);
            }
        struct made_mismatch mismatch =
            made_ranks_mismatch(handles.data(), (unsigned)handles.size());
        if (mismatch.found)
            wrong_ = "records that differ in #" + std::to_string(mismatch.seq) + " of group " +
                     std::to_string(groups[mismatch.comm]);
    }

    void expect_told()
    {
        made_ranks_compare(false);
        expect_no_alarm("");
        void *handle = groups_[fault_group_].handles.begin()->second;
        uint64_t id = made_rank_standing(handle).id;
        if (told_.empty()) {
            wrong_ = "nothing was told of group " + std::to_string(fault_group_) + ", #" +
                     std::to_string(fault_seq_) + ", rank " + std::to_string(fault_rank_);
            return;
        }
        for (const struct made_alarm &alarm : told_)
            if (alarm.group_id != id || alarm.after >= fault_seq_ || alarm.seq < fault_seq_)
                wrong_ = "told of #" + std::to_string(alarm.after) + " to #" +
                         std::to_string(alarm.seq) + " instead of #" + std::to_string(fault_seq_);
        struct made_mismatch mismatch = made_ranks_mismatch(&handle, 1);
        if (mismatch.found && mismatch.seq < fault_seq_)
            wrong_ = "records are said to differ in #" + std::to_string(mismatch.seq) +
                     " instead of #" + std::to_string(fault_seq_);
    }

    void clean_up()
    {
        /* A program that went wrong may be in the middle of anything: the next begins anew. */
        for (int rank = 0; rank < ranks_; rank++)
            for (size_t i = state(rank).all_graphs.size(); i > 0; i--)
                made_rank_forgets(state(rank).all_graphs[i - 1]);
        for (Group &group : groups_)
            for (auto &[rank, handle] : group.handles)
                made_rank_ends(rank, handle, false);
        made_ranks_hold(false);
        made_ranks_watch();
        made_ranks_alarm();
        made_ranks_objections();
    }

    std::mt19937_64 random_;
    bool graphs_, faulty_, same_id_, inside_later_ = false;
    int ranks_;
    std::vector<Group> groups_;
    std::vector<Making> makings_;
    std::vector<size_t> live_;
    std::vector<std::vector<Action>> lists_; /* by rank */
    std::vector<size_t> graph_count_;
    std::set<uintptr_t> handles_; /* that are taken */
    std::vector<State> *states_ = nullptr;
    std::string wrong_;
    std::vector<struct made_alarm> told_;
    std::map<unsigned, std::pair<size_t, int>> tellers_;
    size_t fault_group_ = 0;
    int fault_rank_ = -1;
    uint64_t fault_seq_ = 0;
};

uint64_t number_of(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);
    return text ? strtoull(text, nullptr, 10) : otherwise;
}

/* Rings of several sizes, which wrap soon, or never; a share of the programs in each. */
constexpr int64_t rings[] = {2000, 32, 200, 0};

void run_programs(bool graphs, bool faulty)
{
    uint64_t count = number_of("NG_PROGRAMS", 1000) / 4, seed = number_of("NG_PROGRAMS_FIRST", 1);
    unsigned planted = 0, wrong = 0;

    for (int64_t records : rings) {
        made_ranks_begin(records, true, graphs);
        for (uint64_t i = 0; i < count; i++, seed++) {
            Program program(seed, graphs, faulty);
            planted += program.planted();
            if (faulty && !program.planted())
                continue;
            std::string what = program.run();
            if (what.empty())
                continue;
            ADD_FAILURE() << "seed " << seed << ", " << records << " records: " << what;
            if (++wrong == 10)
                return;
            made_ranks_begin(records, true, graphs);
        }
    }
    EXPECT_TRUE(!faulty || planted > count * 3);
}

} // namespace

/* In this order: nothing tells of replays before those that are made with them. */
TEST(Programs, ValidOnesRaiseNoAlarm)
{
    run_programs(false, false);
}

/* The ring wraps around while its NCCL group is open, which then fails. */
TEST(Programs, CallsThatWereUndoneAfterTheirRecordsWereLostInPartDoNotCount)
{
    made_ranks_begin(32, true, false);
    EXPECT_EQ(Program(903, false, false).run(), "");
}

TEST(Programs, OneFieldThatDiffersIsAlwaysTold)
{
    run_programs(false, true);
}

TEST(Programs, ValidOnesWithReplaysRaiseNoAlarm)
{
    run_programs(true, false);
}

TEST(Programs, OneFieldThatDiffersIsAlwaysToldWhereReplaysAreSeen)
{
    run_programs(true, true);
}
