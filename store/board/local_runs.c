/*
 * Which processes of a folder belong to one run: two jobs of one name never judge or end each
 * other.
 *
 * Entered by the incident thread, and by tools. Must never separate two processes that have a
 * communicator in common, nor unite processes that have nothing in common, nor trust the content of
 * a box without checking.
 *
 * Some links, once known, hold for good: a communicator in common; the launcher's own id of its
 * run; if there is none, the `ncclguard run` above; and a process is the same one after an exec.
 * Besides that, if no launcher has identified the run, live processes whose ranks fit into one run
 * are treated as one as long as nothing contradicts it: a rank that shares no communicator yet may
 * be the very one for which the others wait.
 */
#include "store/board/local_parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/util/macros.h"

static bool is_known(const struct ng_box_group *group)
{
    return atomic_load_explicit(&group->state, memory_order_acquire) != NG_GROUP_FREE &&
           NG_LOAD(group->id);
}

static uint32_t used_slots(const struct ng_box *box)
{
    uint32_t used = NG_LOAD(box->header->group_used);

    return used < box->group_capacity ? used : box->group_capacity;
}

/* A checksum of all ids: groups are compared again only if one was added. Never 0. */
static uint64_t sum_of_groups(const struct ng_box *box)
{
    uint64_t sum = 1;

    for (uint32_t i = 0; i < used_slots(box); i++)
        if (is_known(&box->groups[i]))
            sum += NG_LOAD(box->groups[i].id) * (2 * (uint64_t)i + 1);
    return sum ? sum : 1;
}

static bool share_a_group(const struct ng_box *one, const struct ng_box *other)
{
    uint32_t used = used_slots(one), others = used_slots(other);

    for (uint32_t i = 0; i < used; i++) {
        uint64_t id = is_known(&one->groups[i]) ? NG_LOAD(one->groups[i].id) : 0;
        if (id && NG_ANY(group, other->groups, others, NG_LOAD(group->id) == id && is_known(group)))
            return true;
    }
    return false;
}

static bool have_one_launcher(const struct ng_peer *one, const struct ng_peer *other)
{
    const struct ng_box_header *a = one->box.header, *b = other->box.header;

    if (one->pid == other->pid && one->start_ticks == other->start_ticks &&
        a->pid_namespace == b->pid_namespace)
        return true;
    if (a->launch_run || b->launch_run)
        return a->launch_run == b->launch_run;
    return a->run_id[0] && strncmp(a->run_id, b->run_id, sizeof(a->run_id)) == 0;
}

static uint32_t root_of(struct ng_peer *peers, uint32_t i)
{
    while (peers[i].linked != i)
        i = peers[i].linked = peers[peers[i].linked].linked;
    return i;
}

/* Links that hold for good. */
static void link_for_good(struct ng_peer *peers, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t sum = sum_of_groups(&peers[i].box);
        peers[i].groups_came = sum != peers[i].groups_sum;
        peers[i].is_new = !peers[i].groups_sum;
        peers[i].groups_sum = sum;
    }
    for (uint32_t i = 1; i < count; i++)
        for (uint32_t k = 0; k < i; k++) {
            uint32_t one = root_of(peers, i), other = root_of(peers, k);
            if (one != other && (((peers[i].is_new || peers[k].is_new) &&
                                  have_one_launcher(&peers[i], &peers[k])) ||
                                 ((peers[i].groups_came || peers[k].groups_came) &&
                                  share_a_group(&peers[i].box, &peers[k].box))))
                peers[one > other ? one : other].linked = one > other ? other : one;
        }
}

/* The rank of a process in its run, and the run's size: the launcher's, else the lowest rank in its
 * largest group, of which it may have several. False: not known. */
static bool number_of(const struct ng_peer *peer, int *ret_number, int *ret_of)
{
    const struct ng_box *box = &peer->box;

    *ret_number = box->header->rank;
    *ret_of = box->header->world_size;
    if (*ret_number >= 0)
        return true;
    *ret_of = 0;
    for (uint32_t i = 0; i < used_slots(box); i++) {
        int nranks = NG_LOAD(box->groups[i].nranks), rank = NG_LOAD(box->groups[i].group_rank);
        if (is_known(&box->groups[i]) &&
            (nranks > *ret_of || (nranks == *ret_of && rank < *ret_number))) {
            *ret_of = nranks;
            *ret_number = rank;
        }
    }
    return *ret_number >= 0;
}

/* Can the two runs be one, by the ranks of their processes? */
static bool ranks_fit(const struct ng_peer *peers, uint32_t count, uint32_t one, uint32_t other)
{
    int number, of, others_number, others_of;

    for (uint32_t i = 0; i < count; i++) {
        if (peers[i].run != one)
            continue;
        if (!number_of(&peers[i], &number, &of))
            return false;
        if (NG_ANY(peer, peers, count,
                   peer->run == other && (!number_of(peer, &others_number, &others_of) ||
                                          number == others_number || of != others_of)))
            return false;
    }
    return true;
}

/* The same, if no launcher says what they are. */
static bool fit(const struct ng_peer *peers, uint32_t count, uint32_t one, uint32_t other)
{
    for (uint32_t i = 0; i < count; i++)
        if ((peers[i].run == one || peers[i].run == other) && peers[i].box.header->launch_run)
            return false;
    return ranks_fit(peers, count, one, other);
}

static bool lives(const struct ng_peer *peers, uint32_t count, uint32_t run)
{
    return NG_ANY(peer, peers, count, peer->run == run && !peer->gone);
}

/* Do all live runs without a launcher's id fit each other? If not, several are active, and which
 * process belongs to which is not known. */
static bool fits_all(const struct ng_peer *peers, uint32_t count, uint32_t run)
{
    for (uint32_t i = 0; i < count; i++)
        if (peers[i].run == i && i != run && !peers[i].box.header->launch_run &&
            lives(peers, count, i) && !fit(peers, count, run, i))
            return false;
    return true;
}

static bool has_number(const struct ng_peer *peers, uint32_t count, uint32_t run)
{
    int number, of;

    return !NG_ANY(peer, peers, count, peer->run == run && !number_of(peer, &number, &of));
}

/* Is `run` one of the live runs that may be the same as `one` or `other`? */
static bool is_near(const struct ng_peer *peers, uint32_t count, uint32_t run, uint32_t one,
                    uint32_t other)
{
    return peers[run].run == run && !peers[run].box.header->launch_run &&
           (run == one || run == other ||
            (lives(peers, count, run) &&
             (fit(peers, count, run, one) || fit(peers, count, run, other))));
}

/* Can two runs only be one: do all live runs that may be the same as either fit each other? */
static bool are_one(const struct ng_peer *peers, uint32_t count, uint32_t one, uint32_t other)
{
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; k < i && is_near(peers, count, i, one, other); k++)
            if (is_near(peers, count, k, one, other) && !fit(peers, count, i, k))
                return false;
    return true;
}

enum ng_local_whose ng_local_whose(const struct ng_local *local, const struct ng_peer *peer)
{
    const struct ng_peer *peers = local->peers;
    uint32_t count = local->peer_count, run = peer->run,
             own = local->self == UINT32_MAX ? run : peers[local->self].run;

    /* Without numbers nothing tells. */
    if (run == own || !has_number(peers, count, own) || !has_number(peers, count, run))
        return NG_LOCAL_OF_OURS;
    if (!fit(peers, count, own, run))
        return NG_LOCAL_OF_ANOTHER;
    return are_one(peers, count, own, run) ? NG_LOCAL_OF_OURS : NG_LOCAL_UNCLEAR;
}

bool ng_local_has_our_communicator(const struct ng_local *local, const struct ng_peer *peer)
{
    return local->self != UINT32_MAX && peer->run == local->peers[local->self].run;
}

bool ng_local_ranks_complement(const struct ng_local *local, const struct ng_peer *peer)
{
    return local->self != UINT32_MAX &&
           ranks_fit(local->peers, local->peer_count, local->peers[local->self].run, peer->run);
}

static void put_together(struct ng_peer *peers, uint32_t count, uint32_t run, uint32_t with)
{
    for (uint32_t i = 0; i < count; i++)
        if (peers[i].run == with)
            peers[i].run = run;
}

void ng_local_find_runs(struct ng_peer *peers, uint32_t count)
{
    uint32_t runs = 0, first = UINT32_MAX;

    link_for_good(peers, count);
    for (uint32_t i = 0; i < count; i++) {
        peers[i].run = root_of(peers, i);
        runs += peers[i].run == i;
    }
    if (runs < 2)
        return;
    bool all_fit = true;
    for (uint32_t i = 0; i < count && all_fit; i++)
        if (peers[i].run == i && !peers[i].box.header->launch_run && lives(peers, count, i))
            all_fit = fits_all(peers, count, i);
    if (!all_fit)
        return;
    /* First live ones, then dead ones, as far as they fit these. */
    for (int alive = 1; alive >= 0; alive--)
        for (uint32_t i = 0; i < count; i++) {
            if (peers[i].run != i || peers[i].box.header->launch_run ||
                lives(peers, count, i) != alive || i == first)
                continue;
            if (first == UINT32_MAX)
                first = i;
            else if (fit(peers, count, first, i))
                put_together(peers, count, first, i);
        }
}

static const struct ng_box_header *first_of(const struct ng_peers *folder, uint32_t run)
{
    const struct ng_box_header *first = NULL;

    for (uint32_t i = 0; i < folder->count; i++) {
        const struct ng_box_header *header = folder->list[i].box.header;
        if (folder->list[i].run == run &&
            (!first || header->origin_mono_ns < first->origin_mono_ns))
            first = header;
    }
    return first;
}

uint64_t ng_local_run_id(const struct ng_peers *folder, uint32_t run)
{
    const struct ng_box_header *first = first_of(folder, run);

    if (!first)
        return 0;
    return first->launch_run ? first->launch_run : ng_box_uid(first);
}

void ng_local_name_run(const struct ng_peers *folder, uint32_t run,
                       char ret_name[NG_BOARD_RUN_NAME_BYTES])
{
    const struct ng_box_header *first = first_of(folder, run);
    char above[sizeof(first->run_id)] = "";

    if (first)
        snprintf(above, sizeof(above), "%.*s", (int)sizeof(above) - 1, first->run_id);
    /* As `ncclguard run` writes it: anything else is not the name of a folder. */
    bool usable = strncmp(above, "run-", 4) == 0 && above[strspn(above, "run-0123456789")] == '\0';
    snprintf(ret_name, NG_BOARD_RUN_NAME_BYTES, "%s-%016" PRIx64, usable ? above : "run",
             ng_local_run_id(folder, run));
}
