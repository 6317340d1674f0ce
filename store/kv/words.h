/* Numbers of 8 bytes each, little endian: the form of small records on the store. */
#ifndef NCCLGUARD_STORE_KV_WORDS_H
#define NCCLGUARD_STORE_KV_WORDS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

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

/* Several: an array, or a struct of nothing else. */
static inline void ng_words_put(const void *words, size_t count, unsigned char *ret_bytes)
{
    uint64_t word;

    for (size_t i = 0; i < 8 * count; i += 8) {
        memcpy(&word, (const char *)words + i, 8);
        ng_word_put(ret_bytes + i, word);
    }
}

static inline void ng_words_get(const void *bytes, size_t count, void *ret_words)
{
    for (size_t i = 0; i < 8 * count; i += 8) {
        uint64_t word = ng_word_get((const unsigned char *)bytes + i);
        memcpy((char *)ret_words + i, &word, 8);
    }
}

#endif
