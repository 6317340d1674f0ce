/*
 * A program that tells the guard more than it can see (ncclguard.h): one process a rank, one
 * communicator. What it does is its first argument; the others are those of every program. Without
 * the guard it does the same, and says the same, but for what only a guard can do.
 *
 *   exchange  the unique id by way of the guard; without it, as ever
 *   exchange-later   the same, once there is another communicator
 *   exchange-met     the same, once there is a file "go" in the folder ANNOTATE_FOLDER
 *   exchange-held    the same, and it stays until there is that file
 *   phase     calls, a pause (--pause-ms, else 4 s) in one rank (--root) while deadlines rest, and
 *             calls again
 *   lone-phase       the same, and nobody but that rank says so
 *   timeout   the group gets a deadline of its own, 2 s
 *   next      each call has a deadline of its own, 2 s
 *   next-cold the first call alone has, 3 s
 *   extend    what is pending gets ten more seconds, and one rank (--root) comes four seconds late
 *   barrier   a monitored barrier that rank --root does not come to
 *   meet      a hundred monitored barriers that all come to, then calls
 *   status    what the guard says of the group after the calls
 *   count     completions told, against calls made
 *   slow      the same with a callback that takes its time
 *   unique-id        the unique id by the function for it, after one that rank 0 never writes; and
 *                    in the end nothing is pending
 *   odd-name  a name that is not easy to write down
 *   shared-nothing   what is refused where ranks share nothing
 *   dump      evidence into the folder NCCLGUARD_TEST_FOLDER
 */
#include <inttypes.h>
#include <ncclguard.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "tests/programs/common.h"

#define WAIT_MS 20000

static long exchange_ms = WAIT_MS;
static struct member world;

/* Whatever the guard answers but what is expected, or that it is not there, ends the program. */
static bool guarded(int result, int expected, const char *what)
{
    if (result == NCCLGUARD_ABSENT)
        return false;
    if (result != expected) {
        fprintf(stderr, "rank %d: %s: %d instead of %d\n", place.rank, what, result, expected);
        exit(1);
    }
    return true;
}

static void expect(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "rank %d: not so: %s\n", place.rank, what);
    exit(1);
}

/* `drained` has its turn whenever no call is in flight. */
static void run_calls_with(void (*drained)(void))
{
    for (unsigned long i = 0; i < options.iters; i++) {
        for (size_t j = 0; j < iteration_calls(&options); j++)
            member_call(&world, iteration_op(&world, j));
        if (drain_due(&options, i)) {
            member_drain(&world);
            drained();
        }
    }
    member_drain(&world);
}

static void do_nothing(void)
{
}

static void run_calls(void)
{
    run_calls_with(do_nothing);
}

/* ---- What it does ---- */

/* The guard carries the unique id, before there is any communicator. */
static ncclComm_t exchange(void)
{
    ncclUniqueId id;
    ncclComm_t comm;
    size_t bytes;

    if (place.rank == 0)
        NCCL(ncclGetUniqueId(&id));
    int result = place.rank == 0 ? ncclguard_put("id", &id, sizeof(id), exchange_ms)
                                 : ncclguard_get("id", &id, sizeof(id), &bytes, exchange_ms);
    if (!guarded(result, NCCLGUARD_OK, "exchange"))
        return world_init(&place, &options, 0);
    if (place.rank == 0)
        expect(ncclguard_put("id", "x", 1, exchange_ms) == NCCLGUARD_EXISTS || place.nranks == 0,
               "a key is put once");
    else
        expect(bytes == sizeof(id), "the id is whole");
    NCCL(ncclCommInitRank(&comm, place.nranks, id, place.rank));
    return comm;
}

/* The same by the function for it. */
static ncclComm_t exchange_unique_id(void)
{
    ncclUniqueId id = {{0}};
    ncclComm_t comm;

    if (place.rank == 0)
        NCCL(ncclGetUniqueId(&id));
    else
        guarded(ncclguard_unique_id_exchange("no\nbody", place.rank, &id, sizeof(id), 300),
                NCCLGUARD_TIMED_OUT, "unique_id_exchange without rank 0");
    if (!guarded(ncclguard_unique_id_exchange("world", place.rank, &id, sizeof(id), WAIT_MS),
                 NCCLGUARD_OK, "unique_id_exchange"))
        return world_init(&place, &options, 0);
    NCCL(ncclCommInitRank(&comm, place.nranks, id, place.rank));
    return comm;
}

static void await_go(void)
{
    const char *folder = getenv("ANNOTATE_FOLDER");
    char path[4096];

    snprintf(path, sizeof(path), "%s/go", folder ? folder : "");
    for (long ms = 0; folder && access(path, F_OK) != 0 && ms < 3 * WAIT_MS; ms += 10)
        sleep_ms(10);
}

/* On the board, and no further before the test has seen all ranks there. */
static void come(void)
{
    char nothing[1];
    size_t bytes;

    exchange_ms = 3000;
    ncclguard_get("nothing", nothing, sizeof(nothing), &bytes, 1);
    await_go();
}

static void hold(void)
{
    run_calls();
    fprintf(stderr, "rank %d: holds\n", place.rank);
    await_go();
    run_calls();
}

static void phase(void)
{
    run_calls();
    ncclguard_phase_begin(NULL, "checkpoint");
    if (place.rank == options.root)
        sleep_ms(options.pause_ms ? (long)options.pause_ms : 4000);
    all_reduces(&world, 1);
    ncclguard_phase_end(NULL);
    run_calls();
}

static void lone_phase(void)
{
    run_calls();
    if (place.rank == options.root) {
        ncclguard_phase_begin(NULL, "checkpoint");
        sleep_ms(4000);
    }
    all_reduces(&world, 1);
    if (place.rank == options.root)
        ncclguard_phase_end(NULL);
    run_calls();
}

static void timeout(void)
{
    guarded(ncclguard_group_name(world.comm, "tensor parallel"), NCCLGUARD_OK, "group_name");
    /* To connect may take a busy machine longer than the group then has. */
    all_reduces(&world, 15);
    guarded(ncclguard_timeout_set(world.comm, 2000), NCCLGUARD_OK, "timeout_set");
    run_calls();
}

static void unique_id(void)
{
    run_calls();
    guarded(ncclguard_wait_pending(NULL, WAIT_MS), NCCLGUARD_OK, "wait_pending");
    guarded(ncclguard_wait_pending(world.comm, WAIT_MS), NCCLGUARD_OK, "wait_pending of one");
}

static void next(void)
{
    /* To connect may take a busy machine longer than a call then has. */
    all_reduces(&world, 15);
    for (unsigned long i = 0; i < options.iters; i++) {
        guarded(ncclguard_timeout_next(world.comm, 2000), NCCLGUARD_OK, "timeout_next");
        member_call(&world, OP_ALLREDUCE);
        member_drain(&world);
    }
}

static void next_cold(void)
{
    guarded(ncclguard_timeout_next(world.comm, 3000), NCCLGUARD_OK, "timeout_next");
    run_calls();
}

static void extend(void)
{
    run_calls();
    if (place.rank == options.root)
        sleep_ms(5000);
    member_call(&world, OP_ALLREDUCE);
    guarded(ncclguard_timeout_extend(world.comm, 30000), NCCLGUARD_OK, "timeout_extend");
    member_drain(&world);
    run_calls();
}

static void barrier(void)
{
    int missing[4] = {-1, -1, -1, -1}, count;

    run_calls();
    if (place.rank != options.root &&
        guarded(ncclguard_barrier(world.comm, 5000, missing, 4, &count), NCCLGUARD_TIMED_OUT,
                "barrier")) {
        expect(count == 1 && missing[0] == options.root, "who is missing is told");
        fprintf(stderr, "rank %d: missing %d\n", place.rank, missing[0]);
    }
    run_calls();
}

static void meet(void)
{
    for (int i = 0; i < 100; i++)
        guarded(ncclguard_barrier(world.comm, WAIT_MS, NULL, 0, NULL), NCCLGUARD_OK, "barrier");
    run_calls();
}

static void status(void)
{
    ncclguard_group_status now;

    guarded(ncclguard_group_name(world.comm, "data parallel"), NCCLGUARD_OK, "group_name");
    run_calls();
    for (int i = 0; i < 1000; i++) {
        now.size = sizeof(now);
        if (!guarded(ncclguard_group_get_status(world.comm, &now), NCCLGUARD_OK, "status"))
            return;
        if (now.completed == world.made)
            break;
        sleep_ms(10);
    }
    expect(now.entered == world.made && now.completed == world.made, "all calls have ended");
    expect(now.nranks == place.nranks && now.rank == place.rank, "rank and size");
    expect(strcmp(now.name, "data parallel") == 0 && now.id != 0, "the name");
    expect(!now.aborted && !now.reason[0], "nobody has aborted it");
}

/* ---- Completions ---- */

static struct {
    atomic_ulong told, wrong; /* a callback that is not awaited goes on */
    long pause_ms;
} heard;

static void hear(void *context, const ncclguard_completion *completion)
{
    bool right = context == &heard && completion->size == sizeof(*completion) &&
                 completion->type == NCCLGUARD_COLLECTIVE && completion->sequence > 0 &&
                 completion->called_ns > 0 && completion->called_ns <= completion->started_ns &&
                 completion->started_ns <= completion->completed_ns && completion->result == 0 &&
                 strcmp(completion->operation, "AllReduce") == 0 &&
                 completion->bytes == 4 * options.count && strcmp(completion->group_name, "") == 0;
    heard.told++;
    heard.wrong += !right;
    if (heard.pause_ms)
        sleep_ms(heard.pause_ms);
}

/* A program that wants to be told of each call must not be far ahead of what it was told. */
static void await_told(void)
{
    for (long ms = 0; heard.told < world.made && ms < WAIT_MS; ms++)
        sleep_ms(1);
}

static void count(void)
{
    uint64_t dropped = 0;

    bool there = guarded(ncclguard_on_completion(hear, &heard), NCCLGUARD_OK, "on_completion");
    if (there)
        expect(ncclguard_on_completion(hear, &heard) == NCCLGUARD_BUSY, "one callback at a time");
    run_calls_with(there ? await_told : do_nothing);
    if (!there) {
        run_calls();
        return;
    }
    guarded(ncclguard_completion_stop(WAIT_MS, &dropped), NCCLGUARD_OK, "completion_stop");
    fprintf(stderr, "rank %d: told %lu dropped %" PRIu64 " made %lu\n", place.rank,
            (unsigned long)heard.told, dropped, world.made);
    expect(heard.wrong == 0, "what is told is right");
    expect(heard.told + dropped == world.made, "each call is told once or counted as dropped");
    expect(dropped == 0 || heard.pause_ms, "nothing is dropped that there is time for");
    unsigned long before = heard.told;
    run_calls();
    expect(heard.told == before, "nothing is told any more");
    expect(ncclguard_completion_stop(0, NULL) == NCCLGUARD_INVALID, "nobody is told");
}

/* One call of it takes as long as the run. */
static void slow(void)
{
    uint64_t dropped = 0;

    heard.pause_ms = 60000;
    if (!guarded(ncclguard_on_completion(hear, &heard), NCCLGUARD_OK, "on_completion")) {
        run_calls();
        return;
    }
    run_calls();
    guarded(ncclguard_completion_stop(100, &dropped), NCCLGUARD_TIMED_OUT, "completion_stop");
    expect(heard.told == 1, "it is in its first call");
    expect(dropped + 4096 >= world.made && dropped < world.made, "what does not fit is counted");
    expect(ncclguard_on_completion(hear, &heard) == NCCLGUARD_BUSY, "it has not returned");
}

static void dump(void)
{
    run_calls();
    guarded(ncclguard_dump(getenv("NCCLGUARD_TEST_FOLDER"), WAIT_MS), NCCLGUARD_OK, "dump");
}

/* A name with all that a file's format may trip over: quotes, a control character, no UTF-8. */
static void odd_name(void)
{
    guarded(ncclguard_group_name(world.comm, "a \"b\" \\ c\nd \xff \xc3\xbc"), NCCLGUARD_OK,
            "group_name");
    run_calls();
}

/* NCCLGUARD_STORE=none: what needs others is refused, the rest is not. */
static void shared_nothing(void)
{
    guarded(ncclguard_put("key", "x", 1, WAIT_MS), NCCLGUARD_NOT_SHARED, "put");
    guarded(ncclguard_barrier(world.comm, WAIT_MS, NULL, 0, NULL), NCCLGUARD_NOT_SHARED, "barrier");
    status();
}

static const struct mode modes[] = {
    {"exchange", run_calls},
    {"exchange-later", run_calls},
    {"exchange-met", run_calls},
    {"exchange-held", hold},
    {"phase", phase},
    {"lone-phase", lone_phase},
    {"timeout", timeout},
    {"unique-id", unique_id},
    {"next", next},
    {"next-cold", next_cold},
    {"extend", extend},
    {"barrier", barrier},
    {"meet", meet},
    {"status", status},
    {"dump", dump},
    {"count", count},
    {"slow", slow},
    {"shared-nothing", shared_nothing},
    {"odd-name", odd_name},
    {NULL},
};

int main(int argc, char **argv)
{
    const struct mode *mode = mode_begin(modes, TAKES_OP, argc, argv);
    bool exchanges = strncmp(mode->name, "exchange", 8) == 0;
    ncclComm_t first =
        strcmp(mode->name, "exchange-later") == 0 ? world_init(&place, &options, 1) : NULL;
    if (strcmp(mode->name, "exchange-met") == 0)
        come();
    member_init(&world, &options, "world", place.rank,
                exchanges                              ? exchange()
                : strcmp(mode->name, "unique-id") == 0 ? exchange_unique_id()
                                                       : world_init(&place, &options, 0),
                slots_needed(&options, iteration_calls(&options)) + 1);
    mode->run();
    member_end(&world);
    if (first)
        comm_destroy(first, &options);
    return 0;
}
