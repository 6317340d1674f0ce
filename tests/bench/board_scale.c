/*
 * A Redis server under a job of thousands of ranks, and how long a verdict over all of them takes.
 *
 * board_scale --port PORT [--ranks N] [--groups N] [--records N] [--seconds S] [--verdicts N]
 *
 * One process is all publishers (board_load.h) and, in another thread, a rank that suspects
 * something and examines the whole job, with the code that a rank has for that. The server is at
 * the loopback and ours alone. Prints one JSON object.
 */
#include "tests/bench/board_load.h"
#include "tests/bench/figures.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/util/clock.h"
#include "core/verdict/verdict.h"
#include "store/kv/kv_open.h"
#include "store/publish/peer_progress.h"
#include "store/wire/progress.h"

#define JOB "board-scale"
#define RUN "1"

enum { TTL_MS = 5000, REFRESH_WAIT_MS = 100 };

__attribute__((noreturn)) static void stop(const char *what, const char *why)
{
    fprintf(stderr, "board_scale: %s: %s\n", what, why);
    exit(3);
}

static void sleep_ms(int64_t ms)
{
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

/* ---- What the server says of itself ---- */

struct server {
    double cpu_s, memory_mb, at_s;
    double bytes_in, bytes_out, commands;
};

static double field(const char *info, const char *name)
{
    char line[64];
    snprintf(line, sizeof(line), "\n%s:", name);
    const char *found = strstr(info, line);
    if (!found)
        stop(name, "the server does not tell");
    return strtod(found + strlen(line), NULL);
}

static struct server ask_server(int port)
{
    static char info[1 << 16];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    size_t used = 0;
    ssize_t bytes;

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        write(fd, "INFO\r\nQUIT\r\n", 12) != 12)
        stop("INFO", strerror(errno));
    while ((bytes = read(fd, info + used, sizeof(info) - 1 - used)) > 0)
        used += (size_t)bytes;
    info[used] = '\0';
    close(fd);
    return (struct server){.cpu_s = field(info, "used_cpu_sys") + field(info, "used_cpu_user"),
                           .memory_mb = field(info, "used_memory") / 1e6,
                           .at_s = (double)ng_clock_mono_ns() / 1e9,
                           .bytes_in = field(info, "total_net_input_bytes"),
                           .bytes_out = field(info, "total_net_output_bytes"),
                           .commands = field(info, "total_commands_processed")};
}

/* ---- A stretch of time ---- */

static void print_times(const char *name, const struct board_times *times, bool last)
{
    printf("    \"%s\": {\"count\": %" PRIu64
           ", \"median_us\": %.0f, \"p99_us\": %.0f, \"most_us\": %.0f}%s\n",
           name, times->count, times->median_us, times->p99_us, times->most_us, last ? "" : ",");
}

static double own_cpu_s(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void watch(struct board_load *load, int port, const char *name, double seconds)
{
    struct board_times times[BOARD_STEPS];
    uint64_t rounds, late;

    board_load_measure(load);
    double own = own_cpu_s();
    struct server before = ask_server(port);
    sleep_ms((int64_t)(seconds * 1000));
    struct server after = ask_server(port);
    own = own_cpu_s() - own;
    board_load_measured(load, times, &rounds, &late);
    double took = after.at_s - before.at_s;
    printf("  \"%s\": {\n    \"seconds\": %.1f, \"server_cpu\": %.3f, \"publishers_cpu\": %.3f,\n",
           name, took, (after.cpu_s - before.cpu_s) / took, own / took);
    printf("    \"in_bytes_s\": %.0f, \"out_bytes_s\": %.0f, \"commands_s\": %.0f, \"memory_mb\": "
           "%.1f,\n",
           (after.bytes_in - before.bytes_in) / took, (after.bytes_out - before.bytes_out) / took,
           (after.commands - before.commands) / took, after.memory_mb);
    printf("    \"rounds\": %" PRIu64 ", \"late_rounds\": %" PRIu64 ",\n", rounds, late);
    print_times("publish", &times[BOARD_PUBLISH], false);
    print_times("sign", &times[BOARD_SIGN], false);
    print_times("look", &times[BOARD_LOOK], true);
    printf("  },\n");
    fflush(stdout);
}

/* ---- A verdict over all ----  */

enum part { HEARD, STORED, CALL, FETCH, DECODE, SEAL, JUDGE, TOTAL, PARTS };

static const char *const part_names[PARTS] = {"heard",  "stored", "call",  "fetch",
                                              "decode", "seal",   "judge", "total"};

static double ms(int64_t ns)
{
    return (double)ns / 1e6;
}

/* As store/publish/publish.c and store/board/board_multihost.c do it: call for progress, give it a
 * moment, read, judge. */
static void reach(const struct board_job *job, struct board_load *load, struct ng_kv *kv,
                  uint64_t calls, double ret_ms[PARTS])
{
    struct ng_arena arena = {0};
    struct ng_peer_progress *blobs;
    struct ng_view view;
    struct ng_verdict verdict;
    uint32_t count;
    int64_t heard_ns, stored_ns, at[PARTS];

    int64_t start = ng_clock_mono_ns();
    if (ng_kv_publish(kv, "m", "refresh", 7, start + 5 * NG_S) != 0)
        stop("publish", ng_kv_error(kv));
    sleep_ms(REFRESH_WAIT_MS);
    at[CALL] = ng_clock_mono_ns();
    if (ng_peer_progress_fetch(kv, at[CALL] + 20 * NG_S, &arena, &blobs, &count) != 0)
        stop("fetch", ng_kv_error(kv));
    at[FETCH] = ng_clock_mono_ns();
    ng_view_init(&view);
    if (ng_peer_progress_add(blobs, count, count ? blobs[0].root : 0, TTL_MS * NG_MS, &view) != 0)
        stop("decode", "no memory");
    at[DECODE] = ng_clock_mono_ns();
    ng_view_seal(&view);
    at[SEAL] = ng_clock_mono_ns();
    if (ng_verdict_reach(&view, &(struct ng_verdict_query){.stalled_ns = 5 * NG_S}, &verdict) != 0)
        stop("verdict", "no memory");
    at[JUDGE] = ng_clock_mono_ns();
    if (view.process_count != (uint32_t)job->ranks || view.note_count)
        stop("the view", view.note_count ? view.notes[0] : "processes are missing");
    if (strcmp(ng_verdict_kind_name(verdict.kind), "missing_rank") != 0 ||
        verdict.culprit_count != 1 || verdict.culprits[0].rank != job->victim)
        stop("the verdict", ng_verdict_kind_name(verdict.kind));
    ng_verdict_fini(&verdict);
    ng_view_fini(&view);
    ng_arena_reset(&arena);
    board_load_refreshed(load, calls, &heard_ns, &stored_ns);
    ret_ms[HEARD] = ms(heard_ns - start);
    ret_ms[STORED] = ms(stored_ns - start);
    ret_ms[CALL] = ms(at[CALL] - start);
    for (int part = FETCH; part <= JUDGE; part++)
        ret_ms[part] = ms(at[part] - at[part - 1]);
    ret_ms[TOTAL] = ms(at[JUDGE] - start);
}

static void reach_verdicts(const struct board_job *job, struct board_load *load, struct ng_kv *kv,
                           int verdicts)
{
    double(*all)[PARTS] = calloc((size_t)verdicts, sizeof(*all)),
    *column = calloc((size_t)verdicts, sizeof(*column));
    struct board_times times[BOARD_STEPS];
    uint64_t rounds, late;

    if (!all || !column)
        stop("verdicts", "no memory");
    board_load_measure(load);
    for (int i = 0; i < verdicts; i++) {
        reach(job, load, kv, (uint64_t)i + 1, all[i]);
        sleep_ms(1000); /* the calm before the next */
    }
    board_load_measured(load, times, &rounds, &late);
    printf("  \"verdict\": {\n    \"count\": %d,\n", verdicts);
    for (int part = 0; part < PARTS; part++) {
        for (int i = 0; i < verdicts; i++)
            column[i] = all[i][part];
        bench_sort(column, (size_t)verdicts);
        printf("    \"%s_ms\": {\"median\": %.1f, \"most\": %.1f},\n", part_names[part],
               column[verdicts / 2], column[verdicts - 1]);
    }
    print_times("refresh", &times[BOARD_REFRESH], true);
    printf("  }\n");
    free(all);
    free(column);
}

/* ---- ---- */

static double mean_bytes(const struct board_blob *blobs, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += (double)blobs[i].bytes;
    return sum / count;
}

int main(int argc, char **argv)
{
    long port = 0, ranks = 4096, groups = 10, records = NG_PROGRESS_RECORDS_PEACE, verdicts = 10;
    double seconds = 20, join_s;
    struct board_job job;
    struct ng_kv *kv;
    char url[64], why[512];

    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--seconds")) {
            seconds = strtod(argv[i + 1], NULL);
            continue;
        }
        long *number = !strcmp(argv[i], "--port")       ? &port
                       : !strcmp(argv[i], "--ranks")    ? &ranks
                       : !strcmp(argv[i], "--groups")   ? &groups
                       : !strcmp(argv[i], "--records")  ? &records
                       : !strcmp(argv[i], "--verdicts") ? &verdicts
                                                        : NULL;
        if (!number)
            stop(argv[i], "no such option");
        *number = strtol(argv[i + 1], NULL, 10);
    }
    if (argc % 2 == 0 || port <= 0 || ranks < 8 || groups < 1 || groups > 10 || verdicts < 1)
        stop("usage",
             "--port PORT [--ranks N] [--groups N] [--records N] [--seconds S] [--verdicts N]");
    struct rlimit files = {0};
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    if (files.rlim_cur < 2 * (rlim_t)ranks + 64)
        stop("--ranks", "more connections than files may be open");

    /* In larger jobs each process publishes fewer records on a suspicion: store/publish/publish.c.
     */
    long fair =
        32768 / ranks < NG_PROGRESS_RECORDS_SUSPECT ? 32768 / ranks : NG_PROGRESS_RECORDS_SUSPECT;
    board_job_init(&job, (int)ranks, (unsigned)groups, (uint32_t)records,
                   (uint32_t)(fair < records ? records : fair));
    printf("{\n  \"ranks\": %ld, \"groups\": %ld, \"records\": %ld, \"blob_bytes\": %.0f,\n", ranks,
           groups, records, mean_bytes(job.peace, job.ranks));
    printf("  \"suspicion_records\": %ld, \"suspicion_blob_bytes\": %.0f, \"encode_us\": %.1f,\n",
           fair < records ? records : fair, mean_bytes(job.suspicion, job.ranks), job.encode_us);
    struct board_load *load =
        board_load_start(&job, (int)port, "{ncclguard:" JOB ":" RUN "}:", &join_s);
    printf("  \"join_s\": %.2f,\n", join_s);
    snprintf(url, sizeof(url), "redis://127.0.0.1:%ld", port);
    if (ng_kv_open(url, &(struct ng_kv_options){.job = JOB, .run = RUN}, why, sizeof(why), &kv) !=
        0)
        stop(url, why);
    watch(load, (int)port, "working", seconds);
    board_load_set_changing(load, false);
    sleep_ms(1000);
    watch(load, (int)port, "stuck", seconds / 2);
    board_load_set_changing(load, true);
    sleep_ms(1000);
    reach_verdicts(&job, load, kv, (int)verdicts);
    printf("}\n");
    ng_kv_destroy(kv);
    return 0;
}
