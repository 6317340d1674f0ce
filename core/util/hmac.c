/*
 * HMAC with SHA-256.
 *
 * Names as in FIPS 180-4.
 */
#include "core/util/hmac.h"

#include <string.h>

static const uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t turned(uint32_t word, unsigned by)
{
    return word >> by | word << (32 - by);
}

static void add_block(struct ng_sha256 *sha, const unsigned char *block)
{
    uint32_t w[64], s[8];

    for (unsigned t = 0; t < 16; t++)
        w[t] = (uint32_t)block[4 * t] << 24 | (uint32_t)block[4 * t + 1] << 16 |
               (uint32_t)block[4 * t + 2] << 8 | block[4 * t + 3];
    for (unsigned t = 16; t < 64; t++)
        w[t] = w[t - 16] + w[t - 7] +
               (turned(w[t - 15], 7) ^ turned(w[t - 15], 18) ^ w[t - 15] >> 3) +
               (turned(w[t - 2], 17) ^ turned(w[t - 2], 19) ^ w[t - 2] >> 10);
    memcpy(s, sha->state, sizeof(s));
    for (unsigned t = 0; t < 64; t++) {
        uint32_t first = s[7] + (turned(s[4], 6) ^ turned(s[4], 11) ^ turned(s[4], 25)) +
                         ((s[4] & s[5]) ^ (~s[4] & s[6])) + constants[t] + w[t];
        uint32_t second = (turned(s[0], 2) ^ turned(s[0], 13) ^ turned(s[0], 22)) +
                          ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
        memmove(&s[1], &s[0], 7 * sizeof(s[0]));
        s[4] += first;
        s[0] = first + second;
    }
    for (unsigned i = 0; i < 8; i++)
        sha->state[i] += s[i];
}

void ng_sha256_init(struct ng_sha256 *sha)
{
    *sha = (struct ng_sha256){.state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f,
                                        0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

void ng_sha256_add(struct ng_sha256 *sha, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    size_t used = sha->bytes % sizeof(sha->block);

    sha->bytes += bytes;
    while (bytes) {
        size_t some = sizeof(sha->block) - used < bytes ? sizeof(sha->block) - used : bytes;
        memcpy(sha->block + used, at, some);
        at += some;
        bytes -= some;
        used += some;
        if (used == sizeof(sha->block)) {
            add_block(sha, sha->block);
            used = 0;
        }
    }
}

void ng_sha256_finish(struct ng_sha256 *sha, unsigned char ret_digest[NG_HMAC_BYTES])
{
    static const unsigned char padding[64] = {0x80};
    uint64_t bits = sha->bytes * 8;
    unsigned char length[8];

    ng_sha256_add(sha, padding, 1 + (119 - sha->bytes % 64) % 64);
    for (unsigned i = 0; i < 8; i++)
        length[i] = (unsigned char)(bits >> (56 - 8 * i));
    ng_sha256_add(sha, length, sizeof(length));
    for (unsigned i = 0; i < NG_HMAC_BYTES; i++)
        ret_digest[i] = (unsigned char)(sha->state[i / 4] >> (24 - 8 * (i % 4)));
}

void ng_hmac_init(struct ng_hmac *hmac, const void *key, size_t bytes)
{
    unsigned char block[64] = {0};

    if (bytes > sizeof(block)) {
        ng_sha256_init(&hmac->inner);
        ng_sha256_add(&hmac->inner, key, bytes);
        ng_sha256_finish(&hmac->inner, block);
    } else if (bytes) {
        memcpy(block, key, bytes);
    }
    for (unsigned i = 0; i < sizeof(block); i++)
        block[i] ^= 0x36;
    ng_sha256_init(&hmac->inner);
    ng_sha256_add(&hmac->inner, block, sizeof(block));
    for (unsigned i = 0; i < sizeof(block); i++)
        block[i] ^= 0x36 ^ 0x5c;
    ng_sha256_init(&hmac->outer);
    ng_sha256_add(&hmac->outer, block, sizeof(block));
    explicit_bzero(block, sizeof(block));
}

void ng_hmac_add(struct ng_hmac *hmac, const void *data, size_t bytes)
{
    ng_sha256_add(&hmac->inner, data, bytes);
}

void ng_hmac_finish(struct ng_hmac *hmac, unsigned char ret_mac[NG_HMAC_BYTES])
{
    ng_sha256_finish(&hmac->inner, ret_mac);
    ng_sha256_add(&hmac->outer, ret_mac, NG_HMAC_BYTES);
    ng_sha256_finish(&hmac->outer, ret_mac);
}

bool ng_hmac_same(const unsigned char a[NG_HMAC_BYTES], const unsigned char b[NG_HMAC_BYTES])
{
    unsigned char differ = 0;

    for (unsigned i = 0; i < NG_HMAC_BYTES; i++)
        differ |= a[i] ^ b[i];
    return !differ;
}
