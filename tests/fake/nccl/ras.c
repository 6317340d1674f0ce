/* RAS: the thread of a process that says, over a socket, how the ranks of its communicators are.
 * The protocol and the forms of the answers are those of the real library: text before 2.28.7, JSON
 * from then on, up to 2.28.9 without a comma where a rank is missing. Off unless FAKE_NCCL_RAS is
 * set, since all jobs of a machine would share its port. */
#include "tests/fake/nccl/fake.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BEAT_MS     100
#define LATE_MS     1000
#define SILENT_MS   3000 /* RAS itself waits 5 s for a sign of life */
#define JSON_SINCE  22807
#define COMMA_SINCE 22900

static const char *const funcs[FAKE_RAS_FUNCS] = {"Broadcast", "Reduce", "AllGather",
                                                  "ReduceScatter", "AllReduce"};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const char *mode; /* of FAKE_NCCL_RAS; NULL off */

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static bool is_mode(const char *name)
{
    return mode && strcmp(mode, name) == 0;
}

uint64_t fake_ras_hash(const ncclUniqueId *id)
{
    uint64_t a = 1 ^ sizeof(id->internal), b = 1, word, hash = 5381;
    if (fake_version() < 22600) {
        for (size_t i = 0; i < sizeof(id->internal); i++)
            hash = hash * 33 ^ (uint64_t)(int64_t)id->internal[i];
        return hash;
    }
    for (size_t i = 0; i < sizeof(id->internal); i += sizeof(word)) {
        a += b;
        b ^= a;
        a = (a ^ a >> 31) * UINT64_C(0x9de62bbc8cef3ce3);
        b = (b ^ b >> 32) * UINT64_C(0x485cd6311b599e79);
        memcpy(&word, id->internal + i, sizeof(word));
        a += word;
    }
    a = (a ^ a >> 31) * UINT64_C(0xbac3bd562846de6b) + b;
    return (a ^ a >> 32) * UINT64_C(0x995a187a14e7b445);
}

/* ---- What is known ---- */

enum state { MEMBER, ENDING, NO_MEMBER, OUT_OF_REACH, DEAD };

static enum state state_of(struct ncclComm *comm, int rank)
{
    struct fake_rank *there = fake_shm_rank(atomic_load(&comm->shm), rank);
    int64_t beat = atomic_load(&there->ras_beat_ms);
    bool silent =
        rank != comm->rank && (fake_network_ended(comm, rank) || fake_network_cut(comm, rank) ||
                               now_ms() - beat > SILENT_MS);
    if (is_mode("lies") && rank != comm->rank)
        return DEAD;
    if (atomic_load(&there->ras_ended))
        return NO_MEMBER;
    if (silent)
        return is_mode("dead") ? DEAD : OUT_OF_REACH;
    return atomic_load(&there->ras_ending) ? ENDING : MEMBER;
}

void fake_ras_leave(struct ncclComm *comm, bool ended)
{
    struct fake_shm *shm = atomic_load(&comm->shm);
    if (!shm)
        return;
    atomic_store(&fake_shm_rank(shm, comm->rank)->ras_ending, true);
    if (ended)
        atomic_store(&fake_shm_rank(shm, comm->rank)->ras_ended, true);
}

void fake_ras_count(struct ncclComm *comm, enum fake_func func)
{
    static const int places[] = {[FAKE_BROADCAST] = 0,
                                 [FAKE_REDUCE] = 1,
                                 [FAKE_ALL_GATHER] = 2,
                                 [FAKE_REDUCE_SCATTER] = 3,
                                 [FAKE_ALL_REDUCE] = 4};
    if (func <= FAKE_REDUCE_SCATTER)
        atomic_fetch_add(
            &fake_shm_rank(atomic_load(&comm->shm), comm->rank)->ras_counts[places[func]], 1);
}

/* ---- An answer ---- */

struct answer {
    char *text;
    size_t used, room;
};

static void put(struct answer *answer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void put(struct answer *answer, const char *format, ...)
{
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    size_t bytes = (size_t)vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    if (answer->used + bytes > answer->room) {
        answer->room = 2 * (answer->used + bytes);
        answer->text = fake_resize(answer->text, answer->room);
    }
    memcpy(answer->text + answer->used, line, bytes);
    answer->used += bytes;
}

static int pid_of(const struct fake_rank *rank)
{
    return is_mode("other") ? rank->pid + 1 : rank->pid;
}

static uint64_t hash_of(const struct ncclComm *comm)
{
    return is_mode("other") ? ~comm->hash : comm->hash;
}

/* ---- JSON ---- */

static void put_rank(struct answer *answer, const struct fake_rank *rank, int number,
                     enum state state, bool first)
{
    bool missing = state >= NO_MEMBER;
    put(answer,
        "%s        {\n          \"rank\": %d,\n          \"host\": \"%s\",\n          \"pid\": "
        "%d,\n"
        "          \"cuda_dev\": %d,\n          \"nvml_dev\": %d%s\n          \"status\": {\n",
        first ? "" : ",\n", number, rank->ras_address, pid_of(rank), rank->device, rank->device,
        missing && fake_version() < COMMA_SINCE ? "" : ",");
    if (missing) {
        put(answer, "            \"unresponsive\": %s,\n            \"considered_dead\": %s\n",
            state == NO_MEMBER ? "false" : "true", state == DEAD ? "true" : "false");
        put(answer, "          }\n        }");
        return;
    }
    put(answer,
        "            \"init_state\": 0,\n            \"async_error\": 0,\n"
        "            \"finalize_called\": %s,\n            \"destroy_flag\": false,\n"
        "            \"abort_flag\": false\n          },\n          \"collective_counts\": {\n",
        state == ENDING ? "true" : "false");
    for (int f = 0; f < FAKE_RAS_FUNCS; f++)
        put(answer, "            \"%s\": %llu%s\n", funcs[f],
            (unsigned long long)atomic_load(&rank->ras_counts[f]),
            f + 1 < FAKE_RAS_FUNCS ? "," : "");
    put(answer, "          }\n        }");
}

static void put_ranks(struct answer *answer, struct ncclComm *comm, bool missing)
{
    bool first = true;
    for (int r = 0; r < comm->nranks; r++) {
        enum state state = state_of(comm, r);
        if ((state >= NO_MEMBER) != missing)
            continue;
        put_rank(answer, fake_shm_rank(atomic_load(&comm->shm), r), r, state, first);
        first = false;
    }
}

static void put_json_comm(struct ncclComm *comm, void *context)
{
    struct answer *answer = context;
    int missing = 0;
    for (int r = 0; r < comm->nranks; r++)
        missing += state_of(comm, r) >= NO_MEMBER;
    put(answer,
        "%s    {\n      \"hash\": \"0x%llx\",\n      \"secondary_hash\": \"0x1:0x2\",\n"
        "      \"size\": %d,\n      \"ranks_count\": %d,\n      \"missing_ranks_count\": %d,\n"
        "      \"ranks\": [\n",
        answer->text[answer->used - 2] == '[' ? "" : ",\n", (unsigned long long)hash_of(comm),
        comm->nranks, comm->nranks - missing, missing);
    put_ranks(answer, comm, false);
    put(answer, "\n      ],\n      \"missing_ranks\": [\n");
    put_ranks(answer, comm, true);
    put(answer, "\n      ]\n    }");
}

static void put_json(struct answer *answer)
{
    int version = fake_version();
    put(answer,
        "{\n  \"nccl_version\": \"%d.%d.%d\",\n  \"cuda_runtime_version\": 13000,\n"
        "  \"cuda_driver_version\": 13000,\n  \"timestamp\": \"2026-11-26 12:00:00\",\n"
        "  \"communicators_count\": 1,\n  \"communicators\": [\n",
        version / 10000, version / 100 % 100, version % 100);
    fake_comm_each(put_json_comm, answer);
    put(answer, "\n  ],\n  \"ras\": {\n    \"collection_time_sec\": 0.000,\n"
                "    \"timeouts_count\": 0\n  }\n}\n");
}

/* ---- Text ---- */

/* Each communicator is a group of its own. */
struct text {
    struct answer *answer;
    int number;
    void (*put)(struct text *text, struct ncclComm *comm);
};

static void put_text_comm(struct ncclComm *comm, void *context)
{
    struct text *text = context;
    text->put(text, comm);
    text->number++;
}

static void put_row(struct text *text, struct ncclComm *comm)
{
    put(text->answer, "%5d  %8d  %8d  %8s  %8d  %8d  %8s  %6s\n", text->number, 1, 2, "1-2",
        comm->nranks, comm->nranks, "RUNNING", "MISMATCH");
}

static void put_place(struct text *text, const struct fake_rank *rank)
{
    put(text->answer, " -- GPU %d managed by process %d on node %s\n", rank->device, pid_of(rank),
        rank->ras_address);
}

static void put_heading(struct text *text, const struct ncclComm *comm, const char *what)
{
    put(text->answer, "#%d-0 (%016llx) %s\n", text->number, (unsigned long long)hash_of(comm),
        what);
}

static void put_dead(struct text *text, struct ncclComm *comm)
{
    for (int r = 0; r < comm->nranks; r++) {
        struct fake_rank *rank = fake_shm_rank(atomic_load(&comm->shm), r);
        if (state_of(comm, r) == DEAD)
            put(text->answer,
                "DEAD\n  1 job process is considered dead (unreachable via the RAS "
                "network)\n  Process %d on node %s managing GPU %d\n\n",
                pid_of(rank), rank->ras_address, rank->device);
    }
}

static void put_incomplete(struct text *text, struct ncclComm *comm)
{
    int missing = 0;
    for (int r = 0; r < comm->nranks; r++)
        missing += state_of(comm, r) >= OUT_OF_REACH;
    if (!missing)
        return;
    put_heading(text, comm, "INCOMPLETE");
    put(text->answer, "  Missing communicator data from %d rank%s\n", missing,
        missing > 1 ? "s" : "");
    for (int r = 0; r < comm->nranks; r++)
        if (state_of(comm, r) >= OUT_OF_REACH) {
            put(text->answer, "  Rank %d", r);
            put_place(text, fake_shm_rank(atomic_load(&comm->shm), r));
        }
    put(text->answer, "\n");
}

/* Sets of ranks with one value, most numerous first; a set of less than half is listed. */
static void put_values(struct text *text, struct ncclComm *comm, const uint64_t *values,
                       const char *each, const char *none, const char *of_one,
                       const char *none_of_one)
{
    for (int size = comm->nranks; size > 0; size--)
        for (int r = 0; r < comm->nranks; r++) {
            int same = 0, before = 0;
            for (int o = 0; o < comm->nranks && values[r] != UINT64_MAX; o++) {
                same += values[o] == values[r];
                before += o < r && values[o] == values[r];
            }
            if (same != size || before)
                continue;
            if (size > 1 && values[r])
                put(text->answer, each, size, (unsigned long long)values[r]);
            else if (size > 1)
                put(text->answer, none, size);
            if (size > 1 && 2 * size >= comm->nranks)
                continue;
            for (int o = r; o < comm->nranks; o++) {
                if (values[o] != values[r])
                    continue;
                if (size > 1)
                    put(text->answer, "  Rank %d", o);
                else if (values[r])
                    put(text->answer, of_one, o, (unsigned long long)values[r]);
                else
                    put(text->answer, none_of_one, o);
                put_place(text, fake_shm_rank(atomic_load(&comm->shm), o));
            }
        }
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
static void put_mismatch(struct text *text, struct ncclComm *comm)
{
    uint64_t *values = fake_new((size_t)comm->nranks * sizeof(*values));
    bool headed = false;
    for (int f = 0; f < FAKE_RAS_FUNCS; f++) {
        bool differ = false;
        uint64_t first = UINT64_MAX;
        for (int r = 0; r < comm->nranks; r++) {
            values[r] =
                state_of(comm, r) >= NO_MEMBER
                    ? UINT64_MAX
                    : atomic_load(&fake_shm_rank(atomic_load(&comm->shm), r)->ras_counts[f]);
            if (values[r] == UINT64_MAX)
                continue;
            differ |= first != UINT64_MAX && values[r] != first;
            first = values[r];
        }
        if (!differ)
            continue;
        if (!headed)
            put_heading(text, comm, "MISMATCH");
        headed = true;
        put(text->answer, "  Communicator ranks have different %s operation counts\n", funcs[f]);
        put_values(text, comm, values, "  %d ranks have launched up to operation %llu\n",
                   "  %d ranks have not launched any operations\n",
                   "  Rank %d has launched up to operation %llu",
                   "  Rank %d has not launched any operations");
        put(text->answer, "\n");
    }
    free(values);
}
#pragma GCC diagnostic pop

static void put_text(struct answer *answer)
{
    struct text text = {.answer = answer};
    int version = fake_version();
    put(answer,
        "NCCL version %d.%d.%d compiled with CUDA 13.0\nCUDA runtime version 13000, driver version "
        "13000\n\nJob summary\n===========\n\n",
        version / 10000, version / 100 % 100, version % 100);
    put(answer, "\nCommunicators... (0.00s)\n=============\n\n"
                "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n"
                "    #  in group  per comm  per node  per comm  in group\n");
    static void (*const parts[])(struct text *, struct ncclComm *) = {put_row, put_dead,
                                                                      put_incomplete, put_mismatch};
    for (unsigned i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (i == 1)
            put(answer, "\nErrors\n======\n\n");
        if (i == 3)
            put(answer, "Warnings\n========\n\n");
        text.number = 0;
        text.put = parts[i];
        fake_comm_each(put_text_comm, &text);
    }
}

/* ---- The socket ---- */

static bool send_all(int fd, const char *text, size_t bytes)
{
    while (bytes > 0) {
        ssize_t sent = send(fd, text, bytes, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        text += sent;
        bytes -= (size_t)sent;
    }
    return true;
}

static void beat_comm(struct ncclComm *comm, void *unused)
{
    (void)unused;
    atomic_store(&fake_shm_rank(atomic_load(&comm->shm), comm->rank)->ras_beat_ms, now_ms());
}

static void look_for_late(struct ncclComm *comm, void *context)
{
    bool *late = context;
    for (int r = 0; r < comm->nranks; r++) {
        struct fake_rank *there = fake_shm_rank(atomic_load(&comm->shm), r);
        int64_t silent_ms = now_ms() - atomic_load(&there->ras_beat_ms);
        *late |= state_of(comm, r) < NO_MEMBER && silent_ms > LATE_MS;
    }
}

/* Who does not answer is waited for, until it counts as out of reach. */
static void await_late(void)
{
    bool late = true;
    while (late) {
        late = false;
        fake_comm_each(beat_comm, NULL);
        fake_comm_each(look_for_late, &late);
        usleep(BEAT_MS * 1000 * late);
    }
}

static void tell_status(int fd, bool json)
{
    struct answer answer = {0};
    if (is_mode("mute"))
        return;
    if (is_mode("endless"))
        while (send_all(fd, "NCCL version 2.28.9\n", 20))
            ;
    await_late();
    if (json)
        put_json(&answer);
    else
        put_text(&answer);
    if (is_mode("cut"))
        answer.used /= 2;
    if (is_mode("garbage"))
        memset(answer.text, '[', answer.used);
    send_all(fd, answer.text, answer.used);
    free(answer.text);
}

/* One client after the other. */
static void talk(int fd)
{
    char line[256];
    size_t used = 0;
    bool json = false;
    for (int64_t end_ms = now_ms() + 10000; now_ms() < end_ms;) {
        struct pollfd client = {fd, POLLIN, 0};
        fake_comm_each(beat_comm, NULL);
        if (poll(&client, 1, BEAT_MS) <= 0)
            continue;
        if (recv(fd, line + used, 1, 0) != 1)
            return;
        if (line[used] != '\n') {
            used += used + 1 < sizeof(line);
            continue;
        }
        line[used] = '\0';
        used = 0;
        const char *reply = "ERROR: Unknown command\n";
        if (is_mode("hang"))
            continue;
        if (is_mode("service"))
            reply = "220 mail.example ESMTP\r\n";
        else if (strncasecmp(line, "client protocol ", 16) == 0)
            reply = "SERVER PROTOCOL 2\n";
        else if (strncasecmp(line, "timeout ", 8) == 0)
            reply = "OK\n";
        else if (strcasecmp(line, "set format json") == 0 && fake_version() >= JSON_SINCE) {
            reply = "OK\n";
            json = true;
        } else if (strcasecmp(line, "verbose status") == 0) {
            tell_status(fd, json);
            if (!is_mode("mute"))
                return;
            continue;
        }
        if (!send_all(fd, reply, strlen(reply)))
            return;
    }
}

static void *ras_main(void *arg)
{
    int listening = *(int *)arg;
    free(arg);
    for (;;) {
        struct pollfd door = {listening, POLLIN, 0};
        fake_comm_each(beat_comm, NULL);
        if (poll(&door, 1, BEAT_MS) <= 0)
            continue;
        int fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            continue;
        fprintf(stderr, "FAKE NCCL RAS: asked\n");
        talk(fd);
        close(fd);
    }
    return NULL;
}

static void start(void)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(28028), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const char *where = getenv("NCCL_RAS_ADDR"), *enabled = getenv("NCCL_RAS_ENABLE");
    const char *colon = where ? strrchr(where, ':') : NULL;
    int on = 1, *listening;
    pthread_t thread;
    mode = getenv("FAKE_NCCL_RAS");
    if (!mode || !*mode || (enabled && strcmp(enabled, "0") == 0))
        return;
    if (colon)
        address.sin_port = htons((uint16_t)atoi(colon + 1));
    listening = fake_new(sizeof(*listening));
    *listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*listening < 0 || setsockopt(*listening, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
        setsockopt(*listening, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) != 0 ||
        bind(*listening, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        listen(*listening, 16) != 0 || fake_thread_start(&thread, true, ras_main, listening) != 0) {
        fake_warn("RAS failed to establish a client listening socket : %s", strerror(errno));
        if (*listening >= 0)
            close(*listening);
        free(listening);
    }
}

/* The first address with which other hosts can be reached. */
static void find_address(char ret_address[16])
{
    struct ifaddrs *all = NULL;
    snprintf(ret_address, 16, "127.0.0.1");
    if (getifaddrs(&all) != 0)
        return;
    for (struct ifaddrs *at = all; at; at = at->ifa_next)
        if (at->ifa_addr && at->ifa_addr->sa_family == AF_INET && !(at->ifa_flags & IFF_LOOPBACK)) {
            inet_ntop(AF_INET, &((struct sockaddr_in *)(void *)at->ifa_addr)->sin_addr, ret_address,
                      16);
            break;
        }
    freeifaddrs(all);
}

void fake_ras_join(struct ncclComm *comm)
{
    find_address(fake_shm_rank(atomic_load(&comm->shm), comm->rank)->ras_address);
    beat_comm(comm, NULL);
    pthread_once(&once, start);
}
