/*
 * The shortest cycle of the wait-for graph.
 *
 * Pure. Each wait is a node, except that a wait of sends and receives, in which every rank waits
 * for its own peers, is one node per rank. Nodes are numbered by group id, so the result does not
 * depend on the order in which evidence was read. A breadth-first search from each node that may
 * lie on a cycle finds the shortest cycle through it, and goes no deeper than the shortest cycle so
 * far.
 */
#include "core/verdict/cycle.h"

#include <errno.h>
#include <string.h>

#include "core/util/macros.h"
#include "core/verdict/usual.h"

/* After this many steps the shortest cycle so far is good enough. */
#define PATIENCE 20000000u

#define WHOLE UINT32_MAX

struct node {
    uint32_t wait;
    uint32_t member;                 /* of sends and receives: the rank's member; otherwise WHOLE */
    uint32_t need_first, need_count; /* of sends and receives: its needs */
};

struct edge {
    uint32_t to;
    uint32_t absentee; /* of the wait at which the edge starts */
    uint32_t stuck;    /* the same rank's member in the wait at which the edge ends */
    enum ng_op op;
};

struct graph {
    const struct ng_view *view;
    const struct ng_wait_graph *waits;
    struct ng_arena *arena;
    struct node *nodes;
    uint32_t node_count;
    uint32_t *node_of_wait;   /* + 1; 0: it has one node per rank */
    uint32_t *node_of_member; /* + 1; 0 none */
    uint32_t *first;          /* edges of node n: edges[first[n]] up to edges[first[n + 1]] */
    struct edge *edges;
    uint32_t edge_count, edge_room;
    uint32_t *seen; /* per node: the start node of the last search that reached it, + 1 */
};

static bool comes_before(const struct ng_view *view, const struct ng_wait *a,
                         const struct ng_wait *b)
{
    uint64_t id_a = view->groups[a->group].id, id_b = view->groups[b->group].id;

    return id_a != id_b ? id_a < id_b : a->type < b->type;
}

/* Waits in the order of their groups' ids. */
static uint32_t *sort_waits(const struct graph *graph)
{
    const struct ng_wait *waits = graph->waits->waits;
    uint32_t count = graph->waits->count;
    uint32_t *order = ng_arena_alloc(graph->arena, (count + 1) * sizeof(*order));

    for (uint32_t i = 0; order && i < count; i++)
        order[i] = i;
    if (order)
        NG_SORT(order, count, comes_before(graph->view, &waits[*a], &waits[*b]));
    return order;
}

static int add_nodes(struct graph *graph)
{
    const struct ng_wait_graph *waits = graph->waits;
    const uint32_t *order = sort_waits(graph);
    size_t room = 1;

    for (uint32_t w = 0; w < waits->count; w++)
        room += waits->waits[w].need_count ? waits->waits[w].need_count : 1;
    graph->nodes = ng_arena_alloc(graph->arena, room * sizeof(*graph->nodes));
    graph->node_of_wait =
        ng_arena_alloc(graph->arena, (waits->count + 1) * sizeof(*graph->node_of_wait));
    graph->node_of_member = ng_arena_alloc(graph->arena, (graph->view->member_count + 1) *
                                                             sizeof(*graph->node_of_member));
    if (!order || !graph->nodes || !graph->node_of_wait || !graph->node_of_member)
        return -ENOMEM;
    for (uint32_t i = 0; i < waits->count; i++) {
        const struct ng_wait *wait = &waits->waits[order[i]];
        if (!wait->need_count) {
            graph->nodes[graph->node_count] = (struct node){.wait = order[i], .member = WHOLE};
            graph->node_of_wait[order[i]] = ++graph->node_count;
        }
        for (uint32_t k = 0; k < wait->need_count; k++) {
            uint32_t member = wait->needs[k].member;
            if (!graph->node_of_member[member]) {
                graph->nodes[graph->node_count] =
                    (struct node){.wait = order[i], .member = member, .need_first = k};
                graph->node_of_member[member] = ++graph->node_count;
            }
            graph->nodes[graph->node_of_member[member] - 1].need_count++;
        }
    }
    return 0;
}

/* The node of a stuck member, + 1; 0: none, because its needs are not known. */
static uint32_t node_of(const struct graph *graph, uint32_t stuck)
{
    int32_t wait = graph->waits->wait_of_member[stuck];

    if (graph->node_of_wait[wait])
        return graph->node_of_wait[wait];
    uint32_t node = graph->node_of_member[stuck];
    return node && graph->nodes[node - 1].wait == (uint32_t)wait ? node : 0;
}

/* Only an absentee that would make the call if it could has edges. */
static bool may_lead_on(const struct ng_absentee *absentee)
{
    return absentee->member && absentee->absence == NG_ABSENT_ALIVE && !absentee->faulted &&
           !ng_absentee_has_left(absentee);
}

/* Adds one edge to each node that blocks this absentee, unless there is one already. */
static int add_edges(struct graph *graph, uint32_t from, uint32_t index, enum ng_op op)
{
    const struct ng_wait_graph *waits = graph->waits;
    uint32_t wait = graph->nodes[from].wait;
    const struct ng_absentee *absentee = &waits->waits[wait].absentees[index];

    if (!may_lead_on(absentee))
        return 0;
    uint32_t process = absentee->member->process;
    for (uint32_t k = waits->stuck_first[process]; k < waits->stuck_first[process + 1]; k++) {
        if (!ng_wait_is_held_up(graph->view, waits, wait, absentee, waits->stuck[k]))
            continue;
        uint32_t to = node_of(graph, waits->stuck[k]);
        if (!to || graph->seen[to - 1] == from + 1)
            continue;
        graph->seen[to - 1] = from + 1;
        struct edge *edge =
            NG_ARENA_APPEND(graph->arena, graph->edges, graph->edge_count, graph->edge_room);
        if (!edge)
            return -ENOMEM;
        *edge = (struct edge){.to = to - 1, .absentee = index, .stuck = waits->stuck[k], .op = op};
    }
    return 0;
}

static int add_all_edges(struct graph *graph)
{
    graph->first = ng_arena_alloc(graph->arena, (graph->node_count + 2) * sizeof(*graph->first));
    graph->seen = ng_arena_alloc(graph->arena, (graph->node_count + 1) * sizeof(*graph->seen));
    if (!graph->first || !graph->seen)
        return -ENOMEM;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const struct node *node = &graph->nodes[n];
        const struct ng_wait *wait = &graph->waits->waits[node->wait];
        int error = 0;
        if (node->member == WHOLE)
            for (uint32_t i = 0; i < wait->absentee_count && !error; i++)
                error = add_edges(graph, n, i, wait->op);
        for (uint32_t k = node->need_first; k < node->need_first + node->need_count && !error; k++)
            error = add_edges(graph, n, wait->needs[k].absentee, wait->needs[k].op);
        if (error)
            return error;
        graph->first[n + 1] = graph->edge_count;
        /* By the node to which they lead. */
        struct edge *edges = graph->edges ? &graph->edges[graph->first[n]] : NULL;
        NG_SORT(edges, graph->edge_count - graph->first[n], a->to < b->to);
    }
    return 0;
}

/* Nodes that no other node waits for, except nodes of this kind, are on no cycle. */
static bool *find_victims(const struct graph *graph)
{
    uint32_t count = graph->node_count, waiting = 0;
    bool *victims = ng_arena_alloc(graph->arena, count + 1);
    uint32_t *waited_for = ng_arena_alloc(graph->arena, (count + 1) * sizeof(*waited_for));
    uint32_t *queue = ng_arena_alloc(graph->arena, (count + 1) * sizeof(*queue));

    if (!victims || !waited_for || !queue)
        return NULL;
    for (uint32_t e = 0; e < graph->edge_count; e++)
        waited_for[graph->edges[e].to]++;
    for (uint32_t n = 0; n < count; n++)
        if (!waited_for[n])
            queue[waiting++] = n;
    for (uint32_t i = 0; i < waiting; i++) {
        victims[queue[i]] = true;
        for (uint32_t e = graph->first[queue[i]]; e < graph->first[queue[i] + 1]; e++)
            if (--waited_for[graph->edges[e].to] == 0)
                queue[waiting++] = graph->edges[e].to;
    }
    return victims;
}

/* State of a breadth-first search: how each node was reached, and from where. */
struct search {
    uint32_t *queue, *by_edge, *depth, *from;
    uint32_t *path; /* edges of the shortest cycle so far, the last one first */
    uint32_t length;
    uint32_t steps;
};

/* Looks for a cycle through `start` that is shorter than the shortest so far. */
static void search_from(const struct graph *graph, struct search *search, const bool *victims,
                        uint32_t start)
{
    uint32_t waiting = 1;

    search->queue[0] = start;
    search->depth[start] = 0;
    graph->seen[start] = start + 1;
    for (uint32_t i = 0; i < waiting; i++) {
        uint32_t at = search->queue[i];
        if (search->length && search->depth[at] + 1 >= search->length)
            return;
        for (uint32_t e = graph->first[at]; e < graph->first[at + 1]; e++) {
            uint32_t to = graph->edges[e].to;
            search->steps++;
            if (to == start) {
                search->length = 0;
                search->path[search->length++] = e;
                for (uint32_t back = at; back != start; back = search->from[back])
                    search->path[search->length++] = search->by_edge[back];
                return;
            }
            /* Earlier nodes were already searched from: no shorter cycle goes through them. */
            if (to < start || victims[to] || graph->seen[to] == start + 1)
                continue;
            graph->seen[to] = start + 1;
            search->depth[to] = search->depth[at] + 1;
            search->by_edge[to] = e;
            search->from[to] = at;
            search->queue[waiting++] = to;
        }
    }
}

static int search_all(const struct graph *graph, struct search *search)
{
    const bool *victims = find_victims(graph);
    size_t bytes = (graph->node_count + 1) * sizeof(uint32_t);

    search->queue = ng_arena_alloc(graph->arena, bytes);
    search->by_edge = ng_arena_alloc(graph->arena, bytes);
    search->depth = ng_arena_alloc(graph->arena, bytes);
    search->from = ng_arena_alloc(graph->arena, bytes);
    search->path = ng_arena_alloc(graph->arena, bytes);
    if (!victims || !search->queue || !search->by_edge || !search->depth || !search->from ||
        !search->path)
        return -ENOMEM;
    memset(graph->seen, 0, graph->node_count * sizeof(*graph->seen));
    for (uint32_t n = 0; n < graph->node_count; n++) {
        if (search->length && (search->length == 1 || search->steps > PATIENCE))
            break;
        if (!victims[n])
            search_from(graph, search, victims, n);
    }
    return 0;
}

/* The operation that the rank of a step called; for sends and receives that were not examined one
 * by one, its oldest in flight. */
static enum ng_op op_called(const struct graph *graph, const struct edge *out,
                            const struct ng_cycle_step *step)
{
    const struct ng_view_member *member = &graph->view->members[step->stuck];
    const struct ng_view_record *record = ng_view_pending_record(member);
    bool p2p = graph->waits->waits[step->wait].type == NG_WAIT_P2P;

    return p2p && graph->node_of_wait[step->wait] && record ? (enum ng_op)record->signature.op
                                                            : out->op;
}

bool ng_cycle_is_blurred(const struct ng_view *view, const struct ng_wait_graph *waits,
                         const struct ng_cycle_step *step, uint32_t stuck)
{
    const struct ng_absentee *next = step->next;
    bool vague = next->vague;
    bool queued = next->queued && waits->waits[step->wait].type == NG_WAIT_P2P;

    return vague || queued ||
           (!next->queued && ng_usual_is_of_another_thread(next->member, &view->members[stuck]));
}

int ng_cycle_find(const struct ng_view *view, const struct ng_wait_graph *waits,
                  struct ng_arena *arena, struct ng_cycle *ret_cycle)
{
    struct graph graph = {.view = view, .waits = waits, .arena = arena};
    struct search search = {0};
    struct ng_cycle cycle = {0};

    int error = add_nodes(&graph) ?: add_all_edges(&graph) ?: search_all(&graph, &search);
    if (error)
        return error;
    cycle.steps = ng_arena_alloc(arena, (search.length + 1) * sizeof(*cycle.steps));
    if (!cycle.steps)
        return -ENOMEM;
    cycle.count = search.length;
    /* The path is reversed. The edge into a step identifies its rank, the edge out of it the rank
     * that it needs. */
    for (uint32_t i = 0; i < search.length; i++) {
        const struct edge *out = &graph.edges[search.path[search.length - 1 - i]];
        const struct edge *in = &graph.edges[search.path[i ? search.length - i : 0]];
        struct ng_cycle_step *step = &cycle.steps[i];
        step->wait = graph.nodes[in->to].wait;
        step->stuck = in->stuck;
        step->op = op_called(&graph, out, step);
        step->next = &waits->waits[step->wait].absentees[out->absentee];
        cycle.blurred |= ng_cycle_is_blurred(view, waits, step, out->stuck);
    }
    *ret_cycle = cycle;
    return 0;
}

bool ng_cycle_leads(const struct ng_view *view, const struct ng_wait_graph *waits,
                    const struct ng_cycle_step *from, const struct ng_absentee *absentee,
                    const struct ng_cycle_step *to)
{
    const struct ng_wait *wait = &waits->waits[from->wait];

    if (absentee == from->next)
        return true;
    if (wait->need_count || !may_lead_on(absentee))
        return false;
    uint32_t process = absentee->member->process;
    for (uint32_t k = waits->stuck_first[process]; k < waits->stuck_first[process + 1]; k++) {
        uint32_t stuck = waits->stuck[k];
        if (waits->wait_of_member[stuck] == (int32_t)to->wait &&
            (!waits->waits[to->wait].need_count || stuck == to->stuck) &&
            ng_wait_is_held_up(view, waits, from->wait, absentee, stuck))
            return true;
    }
    return false;
}
