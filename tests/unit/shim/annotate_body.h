/*
 * Every function of ncclguard.h once, in C99 and in C++: where there is no guard, or it is switched
 * off, all say so and do nothing; a guard that nobody has given a communicator answers, too.
 */
#include <dlfcn.h>
#include <errno.h>
#include <ncclguard.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;

static void check(int result, int expected, const char *what)
{
    if (result == expected)
        return;
    printf("%s: %d, not %d\n", what, result, expected);
    failures++;
}

static void hear(void *context, const ncclguard_completion *completion)
{
}

/* `guarded`: what each says then. */
static void call_all(int guarded)
{
    int missing[2] = {7, 7}, count = 7, unknown = NCCLGUARD_NO_GROUP, comm = 0;
    uint64_t dropped = 7;
    char data[8] = "";
    size_t bytes = 7;
    ncclguard_group_status status;

    status.size = sizeof(status);
#define EXPECTED(result) (guarded ? (result) : NCCLGUARD_ABSENT)
    check(ncclguard_present(), EXPECTED(NCCLGUARD_OK), "present");
    check(ncclguard_group_name(&comm, "x"), EXPECTED(unknown), "group_name");
    check(ncclguard_group_get_status(&comm, &status), EXPECTED(unknown), "group_get_status");
    check(ncclguard_acknowledge_abort(), EXPECTED(NCCLGUARD_OK), "acknowledge_abort");
    check(ncclguard_timeout_set(&comm, 1), EXPECTED(unknown), "timeout_set");
    check(ncclguard_timeout_set(NULL, -1), EXPECTED(NCCLGUARD_INVALID), "timeout_set below 0");
    check(ncclguard_timeout_next(&comm, 1), EXPECTED(unknown), "timeout_next");
    check(ncclguard_timeout_next(&comm, -1), EXPECTED(NCCLGUARD_INVALID), "timeout_next below 0");
    check(ncclguard_wait_pending(&comm, 1), EXPECTED(unknown), "wait_pending of a stranger");
    check(ncclguard_wait_pending(NULL, 1), EXPECTED(NCCLGUARD_OK), "wait_pending of nothing");
    check(ncclguard_timeout_extend(&comm, 1), EXPECTED(unknown), "timeout_extend");
    check(ncclguard_phase_begin(&comm, "x"), EXPECTED(unknown), "phase_begin of a stranger");
    check(ncclguard_phase_end(NULL), EXPECTED(NCCLGUARD_NO_PHASE), "phase_end without a begin");
    check(ncclguard_phase_begin(NULL, "x"), EXPECTED(NCCLGUARD_OK), "phase_begin");
    check(ncclguard_phase_begin(NULL, NULL), EXPECTED(NCCLGUARD_OK), "phase_begin again");
    check(ncclguard_phase_end(NULL), EXPECTED(NCCLGUARD_OK), "phase_end");
    check(ncclguard_phase_end(NULL), EXPECTED(NCCLGUARD_OK), "phase_end again");
    check(ncclguard_barrier(&comm, 1, missing, 2, &count), EXPECTED(unknown), "barrier");
    check(count, guarded ? 0 : 7, "nobody is missing");
    check(ncclguard_on_completion(NULL, NULL), EXPECTED(NCCLGUARD_INVALID), "no callback");
    check(ncclguard_on_completion(hear, NULL), EXPECTED(NCCLGUARD_OK), "on_completion");
    check(ncclguard_on_completion(hear, NULL), EXPECTED(NCCLGUARD_BUSY), "on_completion again");
    check(ncclguard_completion_stop(1000, &dropped), EXPECTED(NCCLGUARD_OK), "completion_stop");
    check((int)dropped, guarded ? 0 : 7, "nothing is dropped");
    check(ncclguard_put("", "x", 1, 1), EXPECTED(NCCLGUARD_INVALID), "put without a key");
    check(ncclguard_put("a key of more than 64 bytes, which is one more than there may be, so", "x",
                        1, 1),
          EXPECTED(NCCLGUARD_TOO_LONG), "put with a long key");
    check(ncclguard_put("key", data, NCCLGUARD_VALUE_MAX + 1, 1), EXPECTED(NCCLGUARD_TOO_LONG),
          "put of too much");
    check(ncclguard_put("key", "value", 5, 20000), EXPECTED(NCCLGUARD_OK), "put");
    check(ncclguard_get("key", data, 2, &bytes, 20000), EXPECTED(NCCLGUARD_TOO_LONG),
          "get into too little");
    check(ncclguard_get("key", data, sizeof(data), &bytes, 20000), EXPECTED(NCCLGUARD_OK), "get");
    check((int)bytes, guarded ? 5 : 7, "as much as was put");
    check(memcmp(data, guarded ? "value" : "", guarded ? 5 : 1), 0, "what was put");
    check(ncclguard_get("other", data, sizeof(data), NULL, 10), EXPECTED(NCCLGUARD_TIMED_OUT),
          "get of what never comes");
    check(ncclguard_unique_id_exchange("tp", 1, data, sizeof(data), 10),
          EXPECTED(NCCLGUARD_TIMED_OUT), "unique_id_exchange without rank 0");
    check(ncclguard_unique_id_exchange("tp", 0, data, sizeof(data), 20000), EXPECTED(NCCLGUARD_OK),
          "unique_id_exchange of rank 0");
    check(ncclguard_unique_id_exchange("tp", 1, data, sizeof(data), 20000), EXPECTED(NCCLGUARD_OK),
          "unique_id_exchange");
    check(ncclguard_unique_id_exchange("tp", 1, data, sizeof(data) - 1, 20000),
          EXPECTED(NCCLGUARD_INVALID), "unique_id_exchange of another size");
    check(ncclguard_unique_id_exchange("", 1, data, sizeof(data), 1), EXPECTED(NCCLGUARD_INVALID),
          "unique_id_exchange without a name");
    check(ncclguard_dump(NULL, 20000), EXPECTED(NCCLGUARD_OK), "dump");
}

int main(void)
{
    const char *guarded = getenv("EXPECT_GUARD");

    errno = 77;
    call_all(guarded && *guarded == '1');
    check(errno, 77, "errno is as it was");
    if (dlerror())
        check(1, 0, "no message for dlerror is left");
    if (!failures)
        printf("as promised, %s\n", guarded && *guarded == '1' ? "guarded" : "without a guard");
    return failures != 0;
}
