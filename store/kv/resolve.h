/*
 * Addresses of a host by name, by a deadline.
 *
 * getaddrinfo waits as long as the machine's name servers let it; so it runs on a thread of its
 * own, which is left to itself when the deadline comes. Used by one thread at a time.
 */
#ifndef NCCLGUARD_STORE_KV_RESOLVE_H
#define NCCLGUARD_STORE_KV_RESOLVE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#define NG_RESOLVE_MAX 8

struct ng_address {
    struct sockaddr_storage address;
    socklen_t bytes;
};

/* A look-up that has not come back yet; NULL none. */
struct ng_lookup;

/*
 * Up to NG_RESOLVE_MAX addresses. Numbers are answered at once, without a thread. 0; -ETIMEDOUT:
 * the look-up goes on, and *lookup is where the next call for the same host finds it;
 * -EHOSTUNREACH: there is no such host (with the reason in `why`); or another -errno.
 */
int ng_resolve(struct ng_lookup **lookup, const char *host, uint16_t port, int64_t deadline_mono_ns,
               char *why, size_t why_bytes, struct ng_address *ret_addresses, size_t *ret_count);

/* Whatever comes of it is not wanted any more. */
void ng_resolve_forget(struct ng_lookup **lookup);

/* In a forked child, which has none of the threads that look. Async-signal-safe. */
void ng_resolve_abandon(void);

#endif
