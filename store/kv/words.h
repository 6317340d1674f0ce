/* Numbers of 8 bytes each, little endian: the form of small records on the store. */
#ifndef NCCLGUARD_STORE_KV_WORDS_H
#define NCCLGUARD_STORE_KV_WORDS_H

#include <stdint.h>

static inline void ng_word_put(unsigned char *at, uint64_t value)
{
    for (unsigned i = 0; i < 8; i++)
        at[i] = (unsigned char)(value >> 8 * i);
}

static inline uint64_t ng_word_get(const unsigned char *at)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < 8; i++)
        value |= (uint64_t)at[i] << 8 * i;
    return value;
}

#endif
