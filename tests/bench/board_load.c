/* Publishers, and what their server answers. */
#include "tests/bench/board_load.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/util/clock.h"

#define ROUND_NS   (500 * NG_MS)
#define TTL_MS     5000
#define KEEP_MS    3600000
#define SAMPLES    (1u << 18)
#define LINE_BYTES 64

/* One connection's answers, counted as they come. */
struct answers {
    uint64_t left; /* replies that are still to come */
    uint64_t skip; /* bytes of a text */
    char line[LINE_BYTES];
    unsigned used;
};

struct publisher {
    struct board_load *load;
    int rank, fd, news_fd;
    struct answers answers;
    const char *unsent; /* what the socket had no room for */
    char *commands;     /* of the step at hand */
    size_t commands_room, unsent_bytes;
    enum board_step step;
    bool busy, want_refresh;
    uint64_t rounds;
    int64_t sent_ns, signed_ns;
};

struct samples {
    float us[SAMPLES];
    uint64_t count; /* those beyond the room replace others in turn */
};

struct board_load {
    const struct board_job *job;
    const char *prefix;
    int port, epoll;
    struct publisher *publishers;
    int64_t began_ns;
    uint64_t started; /* rounds of all publishers together */
    pthread_t thread;

    pthread_mutex_t lock; /* of what follows; nests inside nothing */
    pthread_cond_t changed;
    bool changing;
    int joined;
    struct samples samples[BOARD_STEPS];
    uint64_t rounds, late, heard,
        stored; /* of calls for progress: by how many, and their storing done */
    int64_t heard_ns, stored_ns;
};

__attribute__((noreturn)) static void stop(const char *what)
{
    fprintf(stderr, "board_scale: %s: %s\n", what, strerror(errno));
    exit(3);
}

/* ---- Commands ---- */

struct text {
    char *at;
};

static void put_word(struct text *text, const void *data, size_t bytes)
{
    text->at += sprintf(text->at, "$%zu\r\n", bytes);
    memcpy(text->at, data, bytes);
    text->at += bytes;
    *text->at++ = '\r';
    *text->at++ = '\n';
}

static void put_words(struct text *text, const char *const *words, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        put_word(text, words[i], strlen(words[i]));
}

static void begin(struct text *text, unsigned words)
{
    text->at += sprintf(text->at, "*%u\r\n", words);
}

__attribute__((format(printf, 3, 4))) static void
put_key(struct text *text, const struct board_load *load, const char *format, ...)
{
    char key[128];
    va_list arguments;
    size_t bytes = (size_t)sprintf(key, "%s", load->prefix);
    va_start(arguments, format);
    bytes += (size_t)vsnprintf(key + bytes, sizeof(key) - bytes, format, arguments);
    va_end(arguments);
    put_word(text, key, bytes);
}

static void put_set(struct text *text, const struct board_load *load, char kind, int rank,
                    const void *data, size_t bytes, unsigned ttl_ms)
{
    char number[16];
    begin(text, 5);
    put_words(text, (const char *const[]){"SET"}, 1);
    put_key(text, load, "%c/%d", kind, rank + 1);
    put_word(text, data, bytes);
    sprintf(number, "%u", ttl_ms);
    put_words(text, (const char *const[]){"PX", number}, 2);
}

/* How many answers there will be. */
static unsigned put_step(struct text *text, struct publisher *publisher)
{
    const struct board_load *load = publisher->load;
    int rank = publisher->rank;
    const struct board_blob *blob =
        publisher->step == BOARD_REFRESH ? &load->job->suspicion[rank] : &load->job->peace[rank];
    switch (publisher->step) {
    case BOARD_JOIN:
        begin(text, 3);
        put_words(text, (const char *const[]){"INCRBY"}, 1);
        put_key(text, load, "n");
        put_words(text, (const char *const[]){"1"}, 1);
        put_set(text, load, 'p', rank, blob->data, blob->bytes, KEEP_MS);
        put_set(text, load, 'l', rank, "0", 1, TTL_MS);
        return 3;
    case BOARD_PUBLISH:
    case BOARD_REFRESH:
        put_set(text, load, 'p', rank, blob->data, blob->bytes, KEEP_MS);
        put_set(text, load, 'l', rank, "0", 1, TTL_MS);
        return 2;
    case BOARD_SIGN:
        put_set(text, load, 'l', rank, "1000", 4, TTL_MS);
        return 1;
    default:
        begin(text, 2);
        put_words(text, (const char *const[]){"GET"}, 1);
        put_key(text, load, "i/1");
        begin(text, 5);
        put_words(text, (const char *const[]){"MGET"}, 1);
        put_key(text, load, "e");
        put_key(text, load, "n");
        put_key(text, load, "u/%016llx", (unsigned long long)BOARD_JOB_LABEL);
        put_key(text, load, "l/%d", (rank + 1) % load->job->ranks + 1);
        return 2;
    }
}

static void write_rest(struct publisher *publisher)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uint64_t)publisher->rank << 1};
    while (publisher->unsent_bytes) {
        ssize_t sent =
            send(publisher->fd, publisher->unsent, publisher->unsent_bytes, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) {
            event.events |= EPOLLOUT;
            break;
        }
        if (sent < 0)
            stop("send");
        publisher->unsent += sent;
        publisher->unsent_bytes -= (size_t)sent;
    }
    if (epoll_ctl(publisher->load->epoll, EPOLL_CTL_MOD, publisher->fd, &event) != 0)
        stop("epoll_ctl");
}

static void start_step(struct publisher *publisher, enum board_step step)
{
    size_t room = publisher->load->job->peace[publisher->rank].bytes +
                  publisher->load->job->suspicion[publisher->rank].bytes + 1024;
    if (publisher->commands_room < room) {
        publisher->commands = realloc(publisher->commands, room);
        publisher->commands_room = room;
    }
    if (!publisher->commands)
        stop("memory");
    struct text text = {publisher->commands};
    publisher->busy = true;
    publisher->step = step;
    publisher->answers.left = put_step(&text, publisher);
    publisher->unsent = publisher->commands;
    publisher->unsent_bytes = (size_t)(text.at - publisher->commands);
    publisher->sent_ns = ng_clock_mono_ns();
    ssize_t sent = send(publisher->fd, publisher->unsent, publisher->unsent_bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN)
        stop("send");
    sent = sent < 0 ? 0 : sent;
    publisher->unsent += sent;
    publisher->unsent_bytes -= (size_t)sent;
    if (publisher->unsent_bytes)
        write_rest(publisher);
}

/* ---- Answers ---- */

static void take_line(struct answers *answers)
{
    answers->line[answers->used] = '\0';
    answers->used = 0;
    long long number = strtoll(answers->line + 1, NULL, 10);
    switch (answers->line[0]) {
    case '*':
        answers->left += number > 0 ? (uint64_t)number : 0;
        break;
    case '$':
        answers->skip = number >= 0 ? (uint64_t)number + 2 : 0;
        break;
    case '-':
        fprintf(stderr, "board_scale: the server says %s\n", answers->line);
        exit(3);
    }
    answers->left--;
}

/* True: all answers of the step are there. */
static bool take_answers(struct answers *answers, const char *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (answers->skip) {
            size_t some = bytes - i < answers->skip ? bytes - i : answers->skip;
            answers->skip -= some;
            i += some - 1;
        } else if (data[i] == '\n') {
            take_line(answers);
        } else if (data[i] != '\r' && answers->used < LINE_BYTES - 1) {
            answers->line[answers->used++] = data[i];
        }
    }
    return !answers->left && !answers->skip;
}

static void note_time(struct board_load *load, enum board_step step, int64_t ns)
{
    struct samples *samples = &load->samples[step];
    samples->us[samples->count++ % SAMPLES] = (float)((double)ns / 1e3);
}

static void end_step(struct publisher *publisher)
{
    struct board_load *load = publisher->load;
    int64_t now = ng_clock_mono_ns();
    enum board_step step = publisher->step;

    publisher->busy = false;
    pthread_mutex_lock(&load->lock);
    note_time(load, step, now - publisher->sent_ns);
    if (step == BOARD_JOIN)
        load->joined++;
    if (step == BOARD_REFRESH) {
        load->stored++;
        load->stored_ns = now;
    }
    pthread_cond_broadcast(&load->changed);
    pthread_mutex_unlock(&load->lock);
    if (step == BOARD_PUBLISH || step == BOARD_REFRESH || step == BOARD_SIGN)
        publisher->signed_ns = now;
    if (publisher->want_refresh) {
        publisher->want_refresh = false;
        start_step(publisher, BOARD_REFRESH);
    } else if (step == BOARD_PUBLISH || step == BOARD_SIGN) {
        start_step(publisher, BOARD_LOOK);
    }
}

static void read_answers(struct publisher *publisher)
{
    char data[4096];
    ssize_t bytes = recv(publisher->fd, data, sizeof(data), 0);
    if (bytes < 0 && errno == EAGAIN)
        return;
    if (bytes <= 0)
        stop("the server hung up");
    if (take_answers(&publisher->answers, data, (size_t)bytes))
        end_step(publisher);
}

/* A message of a few bytes comes whole. */
static void read_news(struct publisher *publisher)
{
    struct board_load *load = publisher->load;
    char data[1024];
    ssize_t bytes = recv(publisher->news_fd, data, sizeof(data), 0);
    if (bytes < 0 && errno == EAGAIN)
        return;
    if (bytes <= 0)
        stop("the server hung up on a subscription");
    if (!memmem(data, (size_t)bytes, "refresh", 7))
        return;
    pthread_mutex_lock(&load->lock);
    load->heard++;
    load->heard_ns = ng_clock_mono_ns();
    pthread_mutex_unlock(&load->lock);
    if (publisher->busy)
        publisher->want_refresh = true;
    else
        start_step(publisher, BOARD_REFRESH);
}

/* ---- The thread ---- */

static void start_round(struct publisher *publisher)
{
    struct board_load *load = publisher->load;
    int64_t now = ng_clock_mono_ns();

    pthread_mutex_lock(&load->lock);
    bool changing = load->changing, late = publisher->busy;
    load->rounds++;
    load->late += late;
    pthread_mutex_unlock(&load->lock);
    if (late)
        return;
    uint64_t nth = publisher->rounds++;
    if (nth % 4 == 3 && send(publisher->news_fd, "*1\r\n$4\r\nPING\r\n", 14, MSG_NOSIGNAL) < 0)
        stop("send");
    if (changing && nth % 2 == 0)
        start_step(publisher, BOARD_PUBLISH);
    else if (!changing && now - publisher->signed_ns >= TTL_MS * NG_MS / 3)
        start_step(publisher, BOARD_SIGN);
    else
        start_step(publisher, BOARD_LOOK);
}

/* Rounds are spread evenly, to the millisecond, as those of processes that start whenever they do.
 * Milliseconds to the next. */
static int start_rounds(struct board_load *load)
{
    uint64_t ranks = (uint64_t)load->job->ranks;
    for (;;) {
        int64_t due =
            load->began_ns + (int64_t)((double)load->started / (double)ranks * (double)ROUND_NS);
        int64_t left = due - ng_clock_mono_ns();
        if (left > 0)
            return (int)(left / NG_MS) + 1;
        start_round(&load->publishers[load->started++ % ranks]);
    }
}

static void *run(void *argument)
{
    struct board_load *load = argument;
    struct epoll_event events[256];
    for (int i = 0; i < load->job->ranks; i++)
        start_step(&load->publishers[i], BOARD_JOIN);
    for (;;) {
        bool all_joined = load->joined == load->job->ranks; /* only this thread changes it */
        if (all_joined && !load->began_ns)
            load->began_ns = ng_clock_mono_ns();
        int count = epoll_wait(load->epoll, events, 256, all_joined ? start_rounds(load) : -1);
        for (int i = 0; i < count; i++) {
            struct publisher *publisher = &load->publishers[events[i].data.u64 >> 1];
            if (events[i].data.u64 & 1) {
                read_news(publisher);
                continue;
            }
            if (publisher->unsent_bytes && events[i].events & EPOLLOUT)
                write_rest(publisher);
            if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
                read_answers(publisher);
        }
    }
    return NULL;
}

static int connect_one(const struct board_load *load, uint64_t mark)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)load->port)};
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = mark};
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0)
        stop("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (fcntl(fd, F_SETFL, O_NONBLOCK) != 0 ||
        epoll_ctl(load->epoll, EPOLL_CTL_ADD, fd, &event) != 0)
        stop("epoll_ctl");
    return fd;
}

/* Waits under the lock until the condition's next change; ends the process at the deadline. */
static void await_change(struct board_load *load, int64_t deadline_mono_ns, const char *what)
{
    struct timespec until = {.tv_sec = deadline_mono_ns / NG_S, .tv_nsec = deadline_mono_ns % NG_S};
    int error = pthread_cond_timedwait(&load->changed, &load->lock, &until);
    if (error) {
        errno = error;
        stop(what);
    }
}

struct board_load *board_load_start(const struct board_job *job, int port, const char *prefix,
                                    double *ret_join_s)
{
    struct board_load *load = calloc(1, sizeof(*load));
    pthread_condattr_t attributes;
    if (!load)
        stop("memory");
    load->job = job;
    load->prefix = prefix;
    load->port = port;
    load->changing = true;
    load->epoll = epoll_create1(EPOLL_CLOEXEC);
    load->publishers = calloc((size_t)job->ranks, sizeof(*load->publishers));
    if (load->epoll < 0 || !load->publishers)
        stop("memory");
    pthread_mutex_init(&load->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&load->changed, &attributes);
    int64_t before = ng_clock_mono_ns();
    for (int i = 0; i < job->ranks; i++) {
        struct publisher *publisher = &load->publishers[i];
        char subscribe[256];
        struct text text = {subscribe};
        publisher->load = load;
        publisher->rank = i;
        publisher->fd = connect_one(load, (uint64_t)i << 1);
        publisher->news_fd = connect_one(load, (uint64_t)i << 1 | 1);
        begin(&text, 2);
        put_words(&text, (const char *const[]){"SUBSCRIBE"}, 1);
        put_key(&text, load, "m");
        if (send(publisher->news_fd, subscribe, (size_t)(text.at - subscribe), MSG_NOSIGNAL) < 0)
            stop("send");
    }
    if (pthread_create(&load->thread, NULL, run, load))
        stop("pthread_create");
    pthread_mutex_lock(&load->lock);
    while (load->joined < job->ranks)
        await_change(load, before + 120 * NG_S, "not all have joined");
    pthread_mutex_unlock(&load->lock);
    *ret_join_s = (double)(ng_clock_mono_ns() - before) / 1e9;
    return load;
}

void board_load_set_changing(struct board_load *load, bool changing)
{
    pthread_mutex_lock(&load->lock);
    load->changing = changing;
    pthread_mutex_unlock(&load->lock);
}

void board_load_measure(struct board_load *load)
{
    pthread_mutex_lock(&load->lock);
    for (int step = 0; step < BOARD_STEPS; step++)
        load->samples[step].count = 0;
    load->rounds = load->late = 0;
    pthread_mutex_unlock(&load->lock);
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

void board_load_measured(struct board_load *load, struct board_times ret_times[BOARD_STEPS],
                         uint64_t *ret_rounds, uint64_t *ret_late)
{
    static float copy[SAMPLES];
    for (int step = 0; step < BOARD_STEPS; step++) {
        pthread_mutex_lock(&load->lock);
        uint64_t count = load->samples[step].count;
        size_t kept = count < SAMPLES ? count : SAMPLES;
        memcpy(copy, load->samples[step].us, kept * sizeof(copy[0]));
        *ret_rounds = load->rounds;
        *ret_late = load->late;
        pthread_mutex_unlock(&load->lock);
        qsort(copy, kept, sizeof(copy[0]), by_value);
        ret_times[step] = (struct board_times){.count = count};
        if (kept)
            ret_times[step] = (struct board_times){.count = count,
                                                   .median_us = (double)copy[kept / 2],
                                                   .p99_us = (double)copy[kept * 99 / 100],
                                                   .most_us = (double)copy[kept - 1]};
    }
}

void board_load_refreshed(struct board_load *load, uint64_t calls, int64_t *ret_heard_ns,
                          int64_t *ret_stored_ns)
{
    uint64_t wanted = calls * (uint64_t)load->job->ranks;
    int64_t deadline = ng_clock_mono_ns() + 20 * NG_S;
    pthread_mutex_lock(&load->lock);
    while (load->heard < wanted || load->stored < wanted)
        await_change(load, deadline, "not all have stored their progress");
    *ret_heard_ns = load->heard_ns;
    *ret_stored_ns = load->stored_ns;
    pthread_mutex_unlock(&load->lock);
}
