/*
 * Looking up a host's addresses.
 *
 * Entered by the thread that uses a kv, and by a thread for each look-up. Must never wait for a
 * name server beyond the deadline.
 */
#include "store/kv/resolve.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/util/clock.h"

/* Name service modules need a large stack, and glibc takes thread-local variables from it. */
#define STACK_BYTES     (256u << 10)
#define STACK_MAX_BYTES (64u << 20)
#define LOOKUPS_MAX     8 /* concurrent in this process: name servers may be silent for long */

/* Shared by the caller and the look-up thread. The last one to release it frees it. */
struct ng_lookup {
    char host[256];
    char port[8];
    pthread_mutex_t mutex; /* protects the following; no function is called with it held */
    pthread_cond_t changed;
    bool done, forgotten;
    int error;
    struct addrinfo *found;
};

static const struct addrinfo tcp = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};

static atomic_uint lookups;

static void free_lookup(struct ng_lookup *lookup)
{
    if (lookup->found)
        freeaddrinfo(lookup->found);
    pthread_cond_destroy(&lookup->changed);
    pthread_mutex_destroy(&lookup->mutex);
    free(lookup);
}

static void *look(void *argument)
{
    struct ng_lookup *lookup = argument;
    struct addrinfo *found = NULL;
    int error = getaddrinfo(lookup->host, lookup->port, &tcp, &found);

    atomic_fetch_sub(&lookups, 1);
    pthread_mutex_lock(&lookup->mutex);
    lookup->error = error;
    lookup->found = error ? NULL : found;
    lookup->done = true;
    bool forgotten = lookup->forgotten;
    pthread_cond_signal(&lookup->changed);
    pthread_mutex_unlock(&lookup->mutex);
    if (forgotten)
        free_lookup(lookup);
    return NULL;
}

/* 0 or -errno. */
static int start(const char *host, const char *port, struct ng_lookup **ret_lookup)
{
    struct ng_lookup *lookup = calloc(1, sizeof(*lookup));
    pthread_condattr_t clock;
    pthread_attr_t attributes;
    sigset_t all, before;
    pthread_t thread;

    if (!lookup)
        return -ENOMEM;
    if (atomic_fetch_add(&lookups, 1) >= LOOKUPS_MAX) {
        atomic_fetch_sub(&lookups, 1);
        free(lookup);
        return -EBUSY;
    }
    snprintf(lookup->host, sizeof(lookup->host), "%s", host);
    snprintf(lookup->port, sizeof(lookup->port), "%s", port);
    pthread_mutex_init(&lookup->mutex, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&lookup->changed, &clock);
    pthread_condattr_destroy(&clock);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    /* The program's signals are for the program's threads. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = EINVAL;
    for (size_t bytes = STACK_BYTES; error == EINVAL && bytes <= STACK_MAX_BYTES; bytes *= 4) {
        pthread_attr_setstacksize(&attributes, bytes);
        error = pthread_create(&thread, &attributes, look, lookup);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (error) {
        atomic_fetch_sub(&lookups, 1);
        free_lookup(lookup);
        return -error;
    }
    *ret_lookup = lookup;
    return 0;
}

void ng_resolve_forget(struct ng_lookup **lookup)
{
    if (!*lookup)
        return;
    pthread_mutex_lock(&(*lookup)->mutex);
    bool done = (*lookup)->done;
    (*lookup)->forgotten = true;
    pthread_mutex_unlock(&(*lookup)->mutex);
    if (done)
        free_lookup(*lookup);
    *lookup = NULL;
}

void ng_resolve_abandon(void)
{
    atomic_store(&lookups, 0);
}

static size_t copy(const struct addrinfo *found, struct ng_address *ret_addresses)
{
    size_t count = 0;

    for (; found && count < NG_RESOLVE_MAX; found = found->ai_next) {
        if (found->ai_addrlen > sizeof(ret_addresses[count].address))
            continue;
        memcpy(&ret_addresses[count].address, found->ai_addr, found->ai_addrlen);
        ret_addresses[count++].bytes = found->ai_addrlen;
    }
    return count;
}

int ng_resolve(struct ng_lookup **lookup, const char *host, uint16_t port, int64_t deadline_mono_ns,
               char *why, size_t why_bytes, struct ng_address *ret_addresses, size_t *ret_count)
{
    struct addrinfo number = tcp, *found;
    char text[8];
    int error;

    snprintf(text, sizeof(text), "%u", port);
    number.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    if (getaddrinfo(host, text, &number, &found) == 0) {
        *ret_count = copy(found, ret_addresses);
        freeaddrinfo(found);
        return *ret_count ? 0 : -EHOSTUNREACH;
    }
    if (*lookup && (strcmp((*lookup)->host, host) != 0 || strcmp((*lookup)->port, text) != 0))
        ng_resolve_forget(lookup);
    if (!*lookup && (error = start(host, text, lookup)) != 0) {
        snprintf(why, why_bytes, "cannot look up %s: %s", host,
                 error == -EBUSY ? "the name servers do not answer" : strerror(-error));
        return error;
    }
    struct timespec until = {.tv_sec = deadline_mono_ns / NG_S, .tv_nsec = deadline_mono_ns % NG_S};
    if (deadline_mono_ns < 0)
        until = (struct timespec){0};
    pthread_mutex_lock(&(*lookup)->mutex);
    error = 0;
    while (!(*lookup)->done && !error)
        error = pthread_cond_timedwait(&(*lookup)->changed, &(*lookup)->mutex, &until);
    bool done = (*lookup)->done;
    pthread_mutex_unlock(&(*lookup)->mutex);
    if (!done) {
        snprintf(why, why_bytes, "looking up %s takes too long", host);
        return -ETIMEDOUT;
    }
    error = (*lookup)->error;
    if (error)
        snprintf(why, why_bytes, "no host %s: %s", host, gai_strerror(error));
    else
        *ret_count = copy((*lookup)->found, ret_addresses);
    if (!error && !*ret_count) {
        snprintf(why, why_bytes, "no usable address of %s", host);
        error = EAI_NODATA;
    }
    ng_resolve_forget(lookup);
    return error ? -EHOSTUNREACH : 0;
}
