/*
 * Opens a store by its URL: Redis (kv_redis.c), with signatures in front of it if a key is given
 * (kv_signed.c).
 *
 * A thread of the guard or of a tool. Allocates; never touches the network.
 */
#ifndef NCCLGUARD_STORE_KV_KV_OPEN_H
#define NCCLGUARD_STORE_KV_KV_OPEN_H

#include <stddef.h>

#include "store/kv/kv.h"

struct ng_tls_ops;
struct ng_url;

struct ng_kv_options {
    const char *job, *run; /* the job and run that the keys belong to; neither is empty */
    const char *key_file;  /* signs values; unsigned ones count as absent. NULL: no signatures */
    const struct ng_tls_ops *tls; /* the TLS implementation; NULL: rediss:// is an error */
    int ping_ms; /* interval at which a subscription pings the server; after twice as long without
                  * an answer the connection counts as lost. 0: NG_KV_PING_MS */
};

/*
 * Open by URL (store/kv/url.h). Does not touch the network: the first call does. 0; -EINVAL: not a
 * URL of a server, or options are missing; -EOPNOTSUPP: this build has no Redis or no TLS
 * implementation; -ENOKEY: the key file has no key; or another -errno. Then `why` has one line for
 * the user, with the remedy.
 */
int ng_kv_open(const char *url, const struct ng_kv_options *options, char *why, size_t why_bytes,
               struct ng_kv **ret_kv);

/* Names of jobs, each once. */
#define NG_KV_JOBS_MAX 256
struct ng_kv_jobs {
    char names[NG_KV_JOBS_MAX][128];
    size_t count;
};

/*
 * For tools: the jobs that the server has keys of, up to NG_KV_JOBS_MAX; of a Redis Cluster, those
 * on the node that answers. `kv` was opened without a key file. 0, or as in store/kv/kv.h; -EACCES
 * also if the user may not SCAN.
 */
int ng_kv_redis_jobs(struct ng_kv *kv, int64_t deadline_mono_ns, struct ng_kv_jobs *ret_jobs);

/* ---- The backends, for kv_open.c ---- */

int ng_kv_redis_open(const struct ng_url *url, const struct ng_kv_options *options, char *why,
                     size_t why_bytes, struct ng_kv **ret_kv);

/* Wrap another kv, and own it on success. */
int ng_kv_signed_open(struct ng_kv *inner, const struct ng_kv_options *options, char *why,
                      size_t why_bytes, struct ng_kv **ret_kv);

#endif
