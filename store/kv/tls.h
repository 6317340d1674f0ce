/*
 * TLS as a filter between the bytes of a connection and its content: no descriptors, no waiting.
 *
 * A table of functions, so that the preloaded library needs no OpenSSL of its own: the code that
 * opens a kv provides the table. One thread uses a session at a time.
 */
#ifndef NCCLGUARD_STORE_KV_TLS_H
#define NCCLGUARD_STORE_KV_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct ng_tls;

struct ng_tls_options {
    const char *host;            /* the host whose certificate is expected: a name or a number */
    const char *ca, *cert, *key; /* PEM files; "": the machine's certificate authorities, no client
                                  * certificate */
    bool verify;
};

struct ng_tls_ops {
    /* A client's session. 0; -EACCES with one line in `why`: a file cannot be used; -ENOMEM. */
    int (*create)(const struct ng_tls_options *options, char *why, size_t why_bytes,
                  struct ng_tls **ret_tls);
    void (*destroy)(struct ng_tls *tls);

    /* Pass in bytes that arrived from the server. 0 or -ENOMEM. */
    int (*feed)(struct ng_tls *tls, const void *data, size_t bytes);
    /* Take bytes for the server: how many; 0 none now. */
    size_t (*take)(struct ng_tls *tls, void *ret_data, size_t bytes);

    /* Continue the handshake. 0: done; -EAGAIN: the server has to answer first; -EACCES: its
     * certificate is not trusted, -EPROTO: it speaks no such TLS, both with a line in `why`. */
    int (*handshake)(struct ng_tls *tls, char *why, size_t why_bytes);
    /* Decrypted bytes from the server: how many; -EAGAIN: none now; -ECONNRESET: it has ended the
     * session; -EACCES: it refuses our certificate; -EPROTO. */
    ssize_t (*read)(struct ng_tls *tls, void *ret_data, size_t bytes);
    /* Encrypt bytes for the server, all of them. 0 or -EPROTO. */
    int (*write)(struct ng_tls *tls, const void *data, size_t bytes);
};

/* By OpenSSL (store/kv/tls.c), if the build has it. */
extern const struct ng_tls_ops ng_tls_openssl;

#endif
