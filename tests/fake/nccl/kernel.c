/* What a "kernel" does: it runs as a host function on the caller's stream, once for each launch or
 * replay, and moves data through this communicator's channels. Collectives go around the ring in
 * slots, sends and receives make progress side by side. As on a GPU, a kernel knows only its own
 * arguments: a peer with other ones gives it other bytes, fewer steps or none, and it waits. Only
 * an abort of the own communicator ends it early, leaving the buffers as they are. */
#include "tests/fake/nccl/fake.h"

#include <stdlib.h>
#include <string.h>

struct exec {
    struct ncclComm *comm;
    struct fake_shm *shm;
    struct fake_fifo *from, *to; /* ring neighbours */
    int prev, next;
    const struct fake_coll *coll;
    size_t type_bytes;
    bool mute;
    bool exact; /* small messages carry flags with their data: a receiver waits for each byte */
    unsigned char scalar[8];
    unsigned char *scaled; /* scratch, one slot, for scaled input */
};

static bool halted(const struct ncclComm *comm)
{
    return atomic_load(&comm->abort) || atomic_load(&comm->stop);
}

static unsigned char *slot_of(const struct fake_shm *shm, struct fake_fifo *fifo, uint64_t index)
{
    return fifo->data + (index % shm->slots) * shm->slot_bytes;
}

static bool fifo_has_room(const struct fake_shm *shm, struct fake_fifo *fifo)
{
    return atomic_load(&fifo->tail) - atomic_load(&fifo->head) < shm->slots;
}

/* A small message is complete only when the slot holds what the receiver expects. */
static bool fifo_has_data(const struct fake_shm *shm, struct fake_fifo *fifo, size_t want,
                          bool exact)
{
    uint64_t head = atomic_load(&fifo->head);
    if (atomic_load(&fifo->tail) == head)
        return false;
    return !exact || atomic_load(&fifo->bytes[head % shm->slots]) >= want;
}

static void fifo_post(struct fake_shm *shm, struct fake_fifo *fifo, size_t bytes, int peer)
{
    uint64_t tail = atomic_load(&fifo->tail);
    atomic_store(&fifo->bytes[tail % shm->slots], (uint32_t)bytes);
    atomic_store(&fifo->tail, tail + 1);
    fake_bell_ring(shm, peer);
}

static void fifo_release(struct fake_shm *shm, struct fake_fifo *fifo, int peer)
{
    atomic_store(&fifo->head, atomic_load(&fifo->head) + 1);
    fake_bell_ring(shm, peer);
}

/* Whatever is waited for cannot come, if the other has closed its connections: true to look once
 * more, for it may have been the last thing that it did. What is on the device goes on waiting,
 * until the communicator is aborted. */
static bool was_closed(struct ncclComm *comm, int peer, bool *closed)
{
    if (*closed)
        fake_network_fail(comm, peer);
    else
        *closed = fake_network_closed(comm, peer);
    return *closed && atomic_load(&comm->state) == ncclSuccess;
}

/* The slot to send, or to receive so many bytes, once it is there; NULL: the kernel ends. */
static unsigned char *wait_slot(struct exec *e, bool send, size_t want)
{
    struct fake_fifo *fifo = send ? e->to : e->from;
    int peer = send ? e->next : e->prev;
    for (bool closed = false;;) {
        uint32_t seen = fake_bell_read(e->shm, e->comm->rank);
        if (halted(e->comm))
            return NULL;
        if ((send ? fifo_has_room(e->shm, fifo) : fifo_has_data(e->shm, fifo, want, e->exact)) &&
            !fake_network_cut(e->comm, peer) && !(send && e->mute))
            return slot_of(e->shm, fifo, atomic_load(send ? &fifo->tail : &fifo->head));
        if (was_closed(e->comm, peer, &closed))
            continue;
        fake_bell_wait(e->shm, e->comm->rank, seen);
    }
}

/* One step of the ring: any of receive, reduce with own input, copy to own output, send. All data
 * of the step is count elements; input and output lie at in and out. */
#define STEP_RECV  1
#define STEP_INPUT 2
#define STEP_COPY  4
#define STEP_SEND  8
#define STEP_POST  16 /* the reduction is complete here: divide */

static bool step(struct exec *e, int what, const void *in, void *out, size_t count)
{
    const struct fake_coll *coll = e->coll;
    size_t bytes = count * e->type_bytes;
    const unsigned char *received = NULL, *value;
    unsigned char *target = NULL;
    if (what & STEP_RECV && !(received = wait_slot(e, false, bytes)))
        return false;
    if (what & STEP_SEND && !(target = wait_slot(e, true, 0)))
        return false;
    if (what & STEP_INPUT) {
        value = in;
        if (coll->premul && count) {
            fake_scale(coll->type, e->scaled, in, e->scalar, count);
            value = e->scaled;
        }
        if (received) {
            unsigned char *sum = target ? target : out;
            fake_reduce(coll->type, coll->reduce, sum, received, value, count);
            value = sum;
        }
        if (what & STEP_POST && coll->postdiv) {
            unsigned char *result = target ? target : out;
            fake_divide(coll->type, result, value, coll->postdiv, count);
            value = result;
        }
    } else {
        value = received;
    }
    if (what & STEP_COPY && count && value != out)
        memmove(out, value, bytes);
    if (target && count && value != target)
        memcpy(target, value, bytes);
    if (received)
        fifo_release(e->shm, e->from, e->prev);
    if (target)
        fifo_post(e->shm, e->to, bytes, e->next);
    return true;
}

static size_t part(size_t total, size_t offset, size_t chunk)
{
    if (offset >= total)
        return 0;
    return total - offset < chunk ? total - offset : chunk;
}

static const void *at(const struct exec *e, const void *base, size_t element)
{
    return (const char *)base + element * e->type_bytes;
}

static void *at_out(const struct exec *e, void *base, size_t element)
{
    return (char *)base + element * e->type_bytes;
}

/* A step without which there is no end. */
#define NEED(call)                                                                                 \
    do {                                                                                           \
        if (!(call))                                                                               \
            return false;                                                                          \
    } while (0)

static bool run_all_reduce(struct exec *e)
{
    const struct fake_coll *c = e->coll;
    size_t n = (size_t)e->comm->nranks, rank = (size_t)e->comm->rank;
    size_t most = e->shm->slot_bytes / e->type_bytes;
    for (size_t done = 0; done < c->count;) {
        size_t left = c->count - done;
        size_t chunk = (left + n - 1) / n < most ? (left + n - 1) / n : most;
#define CHUNK(i)                         done + ((i) % n) * chunk, part(left, ((i) % n) * chunk, chunk)
#define STEP(what, offset_and_count)     ring_step(e, what, c->send, c->recv, offset_and_count)
#define ring_step(e, what, in, out, ...) ring_step_(e, what, in, out, __VA_ARGS__)
#define ring_step_(e, what, in, out, offset, count)                                                \
    step(e, what, at(e, in, offset), at_out(e, out, offset), count)
        NEED(STEP(STEP_INPUT | STEP_SEND, CHUNK(rank + n - 1)));
        for (size_t j = 2; j < n; j++)
            NEED(STEP(STEP_RECV | STEP_INPUT | STEP_SEND, CHUNK(rank + n - j)));
        NEED(STEP(STEP_RECV | STEP_INPUT | STEP_POST | STEP_COPY | STEP_SEND, CHUNK(rank)));
        for (size_t j = 1; j < n - 1; j++)
            NEED(STEP(STEP_RECV | STEP_COPY | STEP_SEND, CHUNK(rank + n - j)));
        NEED(STEP(STEP_RECV | STEP_COPY, CHUNK(rank + 1)));
        done += chunk * n;
    }
    return true;
}

static bool run_reduce_scatter(struct exec *e)
{
    const struct fake_coll *c = e->coll;
    size_t n = (size_t)e->comm->nranks, rank = (size_t)e->comm->rank;
    size_t most = e->shm->slot_bytes / e->type_bytes;
    for (size_t done = 0; done < c->count;) {
        size_t chunk = part(c->count, done, most);
        void *out = at_out(e, c->recv, done);
#define INPUT(i) at(e, c->send, ((i) % n) * c->count + done)
        NEED(step(e, STEP_INPUT | STEP_SEND, INPUT(rank + n - 1), NULL, chunk));
        for (size_t j = 2; j < n; j++)
            NEED(step(e, STEP_RECV | STEP_INPUT | STEP_SEND, INPUT(rank + n - j), NULL, chunk));
        NEED(step(e, STEP_RECV | STEP_INPUT | STEP_POST | STEP_COPY, INPUT(rank), out, chunk));
        done += chunk;
    }
    return true;
}

static bool run_all_gather(struct exec *e)
{
    const struct fake_coll *c = e->coll;
    size_t n = (size_t)e->comm->nranks, rank = (size_t)e->comm->rank;
    size_t most = e->shm->slot_bytes / e->type_bytes;
    for (size_t done = 0; done < c->count;) {
        size_t chunk = part(c->count, done, most);
#define OUTPUT(i) at_out(e, c->recv, ((i) % n) * c->count + done)
        NEED(
            step(e, STEP_INPUT | STEP_COPY | STEP_SEND, at(e, c->send, done), OUTPUT(rank), chunk));
        for (size_t j = 1; j < n - 1; j++)
            NEED(step(e, STEP_RECV | STEP_COPY | STEP_SEND, NULL, OUTPUT(rank + n - j), chunk));
        NEED(step(e, STEP_RECV | STEP_COPY, NULL, OUTPUT(rank + 1), chunk));
        done += chunk;
    }
    return true;
}

/* From rank to rank, with each the same steps for every slot. */
static bool run_chain(struct exec *e, int what)
{
    const struct fake_coll *c = e->coll;
    size_t most = e->shm->slot_bytes / e->type_bytes;
    for (size_t done = 0; done < c->count;) {
        size_t chunk = part(c->count, done, most);
        const void *in = what & STEP_INPUT ? at(e, c->send, done) : NULL;
        void *out = what & STEP_COPY ? at_out(e, c->recv, done) : NULL;
        NEED(step(e, what, in, out, chunk));
        done += chunk;
    }
    return true;
}

static bool run_broadcast(struct exec *e)
{
    if (e->comm->rank == e->coll->root)
        return run_chain(e, STEP_INPUT | STEP_COPY | STEP_SEND);
    return run_chain(e, STEP_RECV | STEP_COPY | (e->next == e->coll->root ? 0 : STEP_SEND));
}

static bool run_reduce(struct exec *e)
{
    if (e->comm->rank == e->coll->root)
        return run_chain(e, STEP_RECV | STEP_INPUT | STEP_POST | STEP_COPY);
    return run_chain(e, STEP_INPUT | STEP_SEND | (e->prev == e->coll->root ? 0 : STEP_RECV));
}

static bool run_coll(struct ncclComm *comm, const struct fake_coll *coll, bool mute)
{
    struct exec e = {.comm = comm, .coll = coll, .mute = mute};
    bool fine;
    e.type_bytes = fake_type_bytes(coll->type);
    memcpy(e.scalar, coll->scalar, sizeof(e.scalar));
    if (coll->scalar_device)
        memcpy(e.scalar, coll->scalar_device, e.type_bytes);
    if (comm->nranks == 1) {
        /* Of one rank only a scaling is left. */
        if (coll->premul && coll->func != FAKE_BROADCAST && coll->func != FAKE_ALL_GATHER)
            fake_scale(coll->type, coll->recv, coll->send, e.scalar, coll->count);
        else if (coll->recv != coll->send)
            memmove(coll->recv, coll->send, coll->count * e.type_bytes);
        return true;
    }
    e.shm = atomic_load(&comm->shm);
    e.prev = (comm->rank + comm->nranks - 1) % comm->nranks;
    e.next = (comm->rank + 1) % comm->nranks;
    e.from = fake_shm_ring(e.shm, e.prev);
    e.to = fake_shm_ring(e.shm, comm->rank);
    e.exact = coll->count * e.type_bytes <= e.shm->slot_bytes;
    e.scaled = coll->premul ? fake_new(e.shm->slot_bytes) : NULL;
    fine = coll->func == FAKE_ALL_REDUCE       ? run_all_reduce(&e)
           : coll->func == FAKE_REDUCE_SCATTER ? run_reduce_scatter(&e)
           : coll->func == FAKE_ALL_GATHER     ? run_all_gather(&e)
           : coll->func == FAKE_BROADCAST      ? run_broadcast(&e)
                                               : run_reduce(&e);
    free(e.scaled);
    return fine;
}

/* ---- sends and receives ---- */

/* Moves at most one slot; true when something moved. */
static bool p2p_advance(struct ncclComm *comm, struct fake_shm *shm, struct fake_p2p *op)
{
    struct fake_fifo *fifo = op->send ? fake_shm_p2p(shm, comm->rank, op->peer)
                                      : fake_shm_p2p(shm, op->peer, comm->rank);
    size_t chunk = part(op->bytes, op->moved, shm->slot_bytes);
    if (chunk == 0) {
        op->over = true;
        return true;
    }
    if (fake_network_cut(comm, op->peer))
        return false;
    if (op->send) {
        if (!fifo_has_room(shm, fifo))
            return false;
        memcpy(slot_of(shm, fifo, atomic_load(&fifo->tail)), op->data + op->moved, chunk);
        fifo_post(shm, fifo, chunk, op->peer);
    } else {
        uint64_t head = atomic_load(&fifo->head);
        if (!fifo_has_data(shm, fifo, chunk, op->bytes <= shm->slot_bytes))
            return false;
        memcpy(op->data + op->moved, slot_of(shm, fifo, head), chunk);
        fifo_release(shm, fifo, op->peer);
    }
    op->moved += chunk;
    op->over = op->moved == op->bytes;
    return true;
}

static void run_self(struct fake_p2p *ops, int count)
{
    int recv = 0;
    for (int send = 0; send < count; send++) {
        if (!ops[send].send)
            continue;
        while (recv < count && ops[recv].send)
            recv++;
        if (recv == count)
            return;
        if (ops[recv].data != ops[send].data) {
            size_t bytes = ops[send].bytes < ops[recv].bytes ? ops[send].bytes : ops[recv].bytes;
            memmove(ops[recv].data, ops[send].data, bytes);
        }
        recv++;
    }
}

/* As the first warp of a block counts, which sends, without waiting for those that receive. */
static void count_sends(struct fake_plan *plan)
{
    int sends = 0, over = 0;

    for (int i = 0; i < plan->np2ps; i++) {
        sends += plan->p2ps[i].send;
        over += plan->p2ps[i].send && plan->p2ps[i].over;
    }
    if (sends && over == sends)
        fake_device_comm_count(plan);
}

static bool run_p2ps(struct fake_plan *plan)
{
    struct ncclComm *comm = plan->comm;
    struct fake_shm *shm = atomic_load(&comm->shm);
    int left = plan->np2ps, selves = 0;
    struct fake_p2p *self = fake_new((size_t)plan->np2ps * sizeof(*self));
    for (int i = 0; i < plan->np2ps; i++) {
        struct fake_p2p *op = &plan->p2ps[i];
        op->moved = 0;
        op->over = op->peer == comm->rank;
        if (op->over) {
            self[selves++] = *op;
            left--;
        }
    }
    run_self(self, selves);
    free(self);
    bool closed = false;
    while (left > 0) {
        uint32_t seen = fake_bell_read(shm, comm->rank);
        bool moved = false;
        if (halted(comm))
            return false;
        int waits_for = -1;
        for (int i = 0; i < plan->np2ps; i++) {
            struct fake_p2p *op = &plan->p2ps[i];
            if (op->over || (op->prev >= 0 && !plan->p2ps[op->prev].over))
                continue;
            if (p2p_advance(comm, shm, op)) {
                moved = true;
                left -= op->over;
            } else if (waits_for < 0 && fake_network_closed(comm, op->peer)) {
                waits_for = op->peer;
            }
        }
        if (moved) {
            closed = false;
            count_sends(plan);
        } else if (waits_for < 0 || !was_closed(comm, waits_for, &closed)) {
            fake_bell_wait(shm, comm->rank, seen);
        }
    }
    return true;
}

void fake_plan_run(struct fake_plan *plan)
{
    struct ncclComm *comm = plan->comm;
    bool fine;

    /* Kernels of one communicator run one after the other, eager ones in the order of their launch,
     * whatever streams they are on. */
    pthread_mutex_lock(&comm->lock);
    comm->running++;
    while (!halted(comm) && (comm->busy || (!plan->captured && comm->ticket_done != plan->ticket)))
        pthread_cond_wait(&comm->cond, &comm->lock);
    fine = !halted(comm);
    if (fine)
        comm->busy = true;
    bool owner = fine;
    plan->counted = false;
    while (plan->stuck && !halted(comm))
        pthread_cond_wait(&comm->cond, &comm->lock);
    pthread_mutex_unlock(&comm->lock);
    fine = fine && !plan->stuck;
    for (int i = 0; fine && i < plan->ncolls; i++)
        fine = run_coll(comm, &plan->colls[i], plan->mute);
    if (fine && plan->np2ps)
        fine = run_p2ps(plan);
    if (!fine)
        fake_trace("rank %d/%d: a kernel ended by abort", comm->rank, comm->nranks);
    fake_device_comm_count(plan);

    pthread_mutex_lock(&comm->lock);
    if (owner)
        comm->busy = false;
    comm->running--;
    if (!plan->captured) {
        comm->ticket_done = plan->ticket + 1;
        comm->pending--;
    }
    pthread_cond_broadcast(&comm->cond);
    pthread_mutex_unlock(&comm->lock);
}
