/*
 * Addresses of a host by name, by a deadline.
 *
 * getaddrinfo blocks as long as the machine's name servers let it, so it runs on its own thread,
 * which is abandoned when the deadline passes. Used by one thread at a time.
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

/* A look-up that has not returned yet; NULL none. */
struct ng_lookup;

/*
 * Up to NG_RESOLVE_MAX addresses. Numeric addresses are resolved at once, without a thread. 0;
 * -ETIMEDOUT: the look-up continues, and the next call for the same host finds it in *lookup;
 * -EHOSTUNREACH: there is no such host (with the reason in `why`); or another -errno.
 */
int ng_resolve(struct ng_lookup **lookup, const char *host, uint16_t port, int64_t deadline_mono_ns,
               char *why, size_t why_bytes, struct ng_address *ret_addresses, size_t *ret_count);

/* The result is no longer wanted. */
void ng_resolve_forget(struct ng_lookup **lookup);

/* In a forked child, which does not have the look-up threads. Async-signal-safe. */
void ng_resolve_abandon(void);

#endif
