/*
 * TLS as a filter between the bytes of a connection and what it says: no descriptors, no waiting.
 *
 * A table, so that the preloaded library needs no OpenSSL of its own: whoever opens a kv brings the
 * one that it has. One thread uses a session at a time.
 */
#ifndef NCCLGUARD_STORE_KV_TLS_H
#define NCCLGUARD_STORE_KV_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct ng_tls;

struct ng_tls_options {
    const char *host;            /* whose certificate is expected: a name or a number */
    const char *ca, *cert, *key; /* PEM files; "" the machine's authorities, no certificate */
    bool verify;
};

struct ng_tls_ops {
    /* A client's session. 0; -EACCES with one line in `why`: a file cannot be used; -ENOMEM. */
    int (*create)(const struct ng_tls_options *options, char *why, size_t why_bytes,
                  struct ng_tls **ret_tls);
    void (*destroy)(struct ng_tls *tls);

    /* Bytes that came from the server. 0 or -ENOMEM. */
    int (*feed)(struct ng_tls *tls, const void *data, size_t bytes);
    /* Bytes for the server: how many; 0 none now. */
    size_t (*take)(struct ng_tls *tls, void *ret_data, size_t bytes);

    /* Go on with the handshake. 0: done; -EAGAIN: the server has to answer first; -EACCES: its
     * certificate is not trusted, -EPROTO: it speaks no such TLS, both with a line in `why`. */
    int (*handshake)(struct ng_tls *tls, char *why, size_t why_bytes);
    /* What the server said: how many bytes; -EAGAIN: none now; -ECONNRESET: it has ended the
     * session; -EACCES: it refuses our certificate; -EPROTO. */
    ssize_t (*read)(struct ng_tls *tls, void *ret_data, size_t bytes);
    /* What we say, all of it. 0 or -EPROTO. */
    int (*write)(struct ng_tls *tls, const void *data, size_t bytes);
};

/* By OpenSSL (store/kv/tls.c), where a build has it. */
extern const struct ng_tls_ops ng_tls_openssl;

#endif
