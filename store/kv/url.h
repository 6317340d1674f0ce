/*
 * The URL of a store: which backend, where, with which credentials.
 *
 * Pure functions; any thread. A password is only ever in struct ng_url: no text made here contains
 * it.
 */
#ifndef NCCLGUARD_STORE_KV_URL_H
#define NCCLGUARD_STORE_KV_URL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NG_URL_HOSTS_MAX  16
#define NG_URL_PATH_BYTES 1024

enum ng_url_kind {
    NG_URL_NONE,     /* none */
    NG_URL_LOCAL,    /* local: or local:DIR */
    NG_URL_REDIS,    /* redis://[user:pass@]host[:port][/db]; also rediss:// */
    NG_URL_UNIX,     /* redis+unix://[user:pass@]/path[?db=N] */
    NG_URL_SENTINEL, /* redis+sentinel://[user:pass@]h1[:port],h2[:port]/master[/db] */
};

struct ng_url_host {
    char name[256]; /* a name or a number; IPv6 without its brackets */
    uint16_t port;
};

struct ng_url {
    enum ng_url_kind kind;
    bool tls;
    bool verify;                  /* the server's certificate is checked; false: ?verify=no */
    char path[NG_URL_PATH_BYTES]; /* LOCAL: the folder, "" the default one; UNIX: the socket */
    char user[128];               /* "": Redis' default user */
    char password[512];           /* "": none */
    struct ng_url_host hosts[NG_URL_HOSTS_MAX];
    unsigned host_count;
    char master[128]; /* SENTINEL: the name that the sentinels know */
    int db;
    char ca[NG_URL_PATH_BYTES];   /* ?ca=FILE: authorities to trust; "" the machine's usual ones */
    char cert[NG_URL_PATH_BYTES]; /* ?cert=FILE&key=FILE: the client certificate; "" none */
    char key[NG_URL_PATH_BYTES];
};

/* Size of the largest text of ng_url_print. */
#define NG_URL_TEXT_BYTES 1200

/*
 * Parse. 0, or -EINVAL with one line in `why` that names the value (without its password) and the
 * remedy.
 */
int ng_url_parse(const char *text, struct ng_url *ret_url, char *why, size_t why_bytes);

/* A URL as given, without its password, for logs. Truncated to fit. */
void ng_url_print(const struct ng_url *url, char *ret_text, size_t bytes);

/* The same for a text that may not be a URL at all: every part that may be a password becomes
 * "***". */
void ng_url_redact(const char *text, char *ret_text, size_t bytes);

#endif
