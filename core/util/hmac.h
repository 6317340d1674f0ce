/*
 * HMAC with SHA-256 (FIPS 180-4, RFC 2104): verifies that the writer of some bytes knew a key.
 *
 * Our own implementation, since the preloaded library must not bring a cryptographic library into
 * programs. Pure: no allocation, no lock, any thread. For records of some kilobytes: it is not
 * fast.
 */
#ifndef NCCLGUARD_CORE_UTIL_HMAC_H
#define NCCLGUARD_CORE_UTIL_HMAC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NG_HMAC_BYTES 32

struct ng_sha256 {
    uint32_t state[8];
    uint64_t bytes;
    unsigned char block[64];
};

void ng_sha256_init(struct ng_sha256 *sha);
void ng_sha256_add(struct ng_sha256 *sha, const void *data, size_t bytes);
void ng_sha256_finish(struct ng_sha256 *sha, unsigned char ret_digest[NG_HMAC_BYTES]);

/* A prepared key: copy it to sign with it. */
struct ng_hmac {
    struct ng_sha256 inner, outer;
};

void ng_hmac_init(struct ng_hmac *hmac, const void *key, size_t bytes);
void ng_hmac_add(struct ng_hmac *hmac, const void *data, size_t bytes);
void ng_hmac_finish(struct ng_hmac *hmac, unsigned char ret_mac[NG_HMAC_BYTES]);

/* Are they equal? Takes constant time. */
bool ng_hmac_same(const unsigned char a[NG_HMAC_BYTES], const unsigned char b[NG_HMAC_BYTES]);

#endif
