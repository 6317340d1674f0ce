/*
 * Scanning a buffer for NaN: the device code, in C and in CUDA.
 *
 * Runs on the program's stream. One source for the kernel (core/check/nan_kernel.cu), for unit
 * tests, and for drivers that run it on a CPU. For every floating type, the magnitude is the bits
 * without the sign, and magnitudes above that of infinity are NaN: so one loop over words of 8
 * bytes, each of 1 to 8 lanes, serves all types. A magnitude leaves its lane's highest bit free,
 * and `addend` carries into that bit if the magnitude is above the limit.
 */
#ifndef NCCLGUARD_CORE_CHECK_NAN_KERNEL_H
#define NCCLGUARD_CORE_CHECK_NAN_KERNEL_H

#define NG_NAN_SLOTS   2048u /* scans of one context that may be under way */
#define NG_NAN_THREADS 256u  /* of a block: more than a vector has elements */
#define NG_NAN_UNROLL  4u    /* vectors that a thread loads at a time */

#define NG_NAN_VECTOR_SHIFT 4u /* a vector has 16 bytes */

typedef unsigned long long ng_nan_word;

/* The result of a scan, in host memory that the device can write. `ticket` is written last. */
struct ng_nan_answer {
    ng_nan_word first; /* index of the first bad element; undefined if `bad` is 0 */
    ng_nan_word bits;  /* and its bits */
    ng_nan_word bad;   /* number of bad elements */
    unsigned int gate; /* equals the scan's ticket: nothing was found, and the stream may proceed */
    unsigned int ticket;
};

/* One scan: the kernel's only argument. */
struct ng_nan_scan {
    const unsigned char *buffer; /* aligned to its elements */
    ng_nan_word elements;
    ng_nan_word mask;   /* in each lane: all bits but the highest */
    ng_nan_word addend; /* in each lane: carries a magnitude above the limit into the highest bit */
    struct ng_nan_answer *answer; /* as the device sees it */
    unsigned int shift;           /* an element has 1 << shift bytes */
    unsigned int slot;            /* index of the device's own state */
    unsigned int ticket;          /* never 0 */
};

/* Of the device, by slot. All zero between scans. */
struct ng_nan_state {
    ng_nan_word key; /* ~index of the first bad element so far; 0 none */
    ng_nan_word bad;
    unsigned int blocks; /* blocks that are done */
};

#ifdef __CUDACC__
#define NG_NAN_FUNCTION static __device__ __forceinline__
#else
#include <stdbool.h>
#define NG_NAN_FUNCTION static inline
#endif

/* A word, or a vector of two, at an address that is a multiple of their size. */
struct ng_nan_vector {
    ng_nan_word words[2];
};

NG_NAN_FUNCTION struct ng_nan_vector ng_nan_load(const unsigned char *at)
{
    struct ng_nan_vector vector;

#ifdef __CUDACC__
    ulonglong2 loaded =
        __ldcs((const ulonglong2 *)at); /* read only once: need not stay in the cache */
    vector.words[0] = loaded.x;
    vector.words[1] = loaded.y;
#else
    __builtin_memcpy(&vector, at, sizeof(vector));
#endif
    return vector;
}

NG_NAN_FUNCTION ng_nan_word ng_nan_element(const struct ng_nan_scan *scan, ng_nan_word index)
{
    const unsigned char *at = scan->buffer + (index << scan->shift);

    switch (scan->shift) {
    case 0:
        return *at;
    case 1:
        return *(const unsigned short *)at;
    case 2:
        return *(const unsigned int *)at;
    default:
        return *(const ng_nan_word *)at;
    }
}

/* The highest bit of each lane is set if its element is bad; the other bits are undefined. */
NG_NAN_FUNCTION ng_nan_word ng_nan_carry(const struct ng_nan_scan *scan, ng_nan_word word)
{
    return (word & scan->mask) + scan->addend;
}

/* The findings of one thread. */
struct ng_nan_found {
    ng_nan_word key, bad;
};

NG_NAN_FUNCTION void ng_nan_note(struct ng_nan_found *found, ng_nan_word index)
{
    found->bad++;
    if (~index > found->key)
        found->key = ~index;
}

NG_NAN_FUNCTION void ng_nan_look_at_element(const struct ng_nan_scan *scan, ng_nan_word index,
                                            struct ng_nan_found *found)
{
    unsigned int width = 8u << scan->shift;
    ng_nan_word lane = ~(ng_nan_word)0 >> (64 - width);
    ng_nan_word carried = (ng_nan_element(scan, index) & scan->mask) + (scan->addend & lane);

    if (carried >> (width - 1) & 1)
        ng_nan_note(found, index);
}

/* Some elements of this vector are bad; its first element has this index. */
NG_NAN_FUNCTION void ng_nan_look_at_vector(const struct ng_nan_scan *scan, ng_nan_word index,
                                           struct ng_nan_vector vector, struct ng_nan_found *found)
{
    unsigned int width = 8u << scan->shift, lanes = 8u >> scan->shift;

#ifdef __CUDACC__
#pragma unroll 1
#endif
    for (unsigned int i = 0; i < 2; i++) {
        ng_nan_word carried = ng_nan_carry(scan, i ? vector.words[1] : vector.words[0]);
#ifdef __CUDACC__
#pragma unroll 1
#endif
        for (unsigned int lane = 0; lane < lanes; lane++)
            if (carried >> (lane * width + width - 1) & 1)
                ng_nan_note(found, index + i * lanes + lane);
    }
}

NG_NAN_FUNCTION ng_nan_word ng_nan_carry_of(const struct ng_nan_scan *scan,
                                            struct ng_nan_vector vector)
{
    return ng_nan_carry(scan, vector.words[0]) | ng_nan_carry(scan, vector.words[1]);
}

/* Scan the part of thread number `thread` of `threads`; there are more threads than a vector has
 * bytes. */
NG_NAN_FUNCTION void ng_nan_scan_part(const struct ng_nan_scan *scan, struct ng_nan_state *state,
                                      ng_nan_word thread, ng_nan_word threads)
{
    const ng_nan_word vector_bytes = (ng_nan_word)1 << NG_NAN_VECTOR_SHIFT;
    ng_nan_word before =
        -(ng_nan_word)scan->buffer & (vector_bytes - 1); /* the first vector, in bytes */
    ng_nan_word head = before >> scan->shift, high = ~scan->mask, i = thread;
    unsigned int shift = NG_NAN_VECTOR_SHIFT - scan->shift; /* elements of a vector: 1 << shift */
    struct ng_nan_found found = {0, 0};

    if (head > scan->elements)
        head = scan->elements;
    ng_nan_word vectors = (scan->elements - head) >> shift, tail = head + (vectors << shift);
    const unsigned char *from = scan->buffer + (head << scan->shift);
    if (thread < head)
        ng_nan_look_at_element(scan, thread, &found);
    if (thread < scan->elements - tail)
        ng_nan_look_at_element(scan, tail + thread, &found);
    for (; i + (NG_NAN_UNROLL - 1) * threads < vectors; i += NG_NAN_UNROLL * threads) {
        struct ng_nan_vector loaded[NG_NAN_UNROLL];
        ng_nan_word carried = 0;
#ifdef __CUDACC__
#pragma unroll
#endif
        for (unsigned int k = 0; k < NG_NAN_UNROLL; k++)
            loaded[k] = ng_nan_load(from + ((i + k * threads) << NG_NAN_VECTOR_SHIFT));
#ifdef __CUDACC__
#pragma unroll
#endif
        for (unsigned int k = 0; k < NG_NAN_UNROLL; k++)
            carried |= ng_nan_carry_of(scan, loaded[k]);
        if (!(carried & high))
            continue;
            /* Rare: load the vectors again, so that threads need no registers to keep them. */
#ifdef __CUDACC__
#pragma unroll 1
#endif
        for (unsigned int k = 0; k < NG_NAN_UNROLL; k++)
            ng_nan_look_at_vector(scan, head + ((i + k * threads) << shift),
                                  ng_nan_load(from + ((i + k * threads) << NG_NAN_VECTOR_SHIFT)),
                                  &found);
    }
    for (; i < vectors; i += threads) {
        struct ng_nan_vector vector = ng_nan_load(from + (i << NG_NAN_VECTOR_SHIFT));
        if (ng_nan_carry_of(scan, vector) & high)
            ng_nan_look_at_vector(scan, head + (i << shift), vector, &found);
    }
    if (!found.bad)
        return;
#ifdef __CUDACC__
    atomicMax(&state->key, found.key);
    atomicAdd(&state->bad, found.bad);
#else
    if (found.key > state->key)
        state->key = found.key;
    state->bad += found.bad;
#endif
}

/* After all threads have scanned their parts, one of them writes the answer and resets the
 * state. */
NG_NAN_FUNCTION void ng_nan_scan_answer(const struct ng_nan_scan *scan, struct ng_nan_state *state)
{
    struct ng_nan_answer *answer = scan->answer;
#ifdef __CUDACC__
    ng_nan_word key = *(volatile ng_nan_word *)&state->key,
                bad = *(volatile ng_nan_word *)&state->bad;
#else
    ng_nan_word key = state->key, bad = state->bad;
#endif

    state->key = state->bad = 0;
    state->blocks = 0;
    ng_nan_word bits = bad ? ng_nan_element(scan, ~key) : 0;
    /* The host may read at any moment, and discards an answer without its ticket. */
#ifdef __CUDACC__
    answer->first = ~key;
    answer->bits = bits;
    answer->bad = bad;
    __threadfence_system();
    if (!bad)
        *(volatile unsigned int *)&answer->gate = scan->ticket;
    __threadfence_system();
    *(volatile unsigned int *)&answer->ticket = scan->ticket;
#else
    __atomic_store_n(&answer->first, ~key, __ATOMIC_RELAXED);
    __atomic_store_n(&answer->bits, bits, __ATOMIC_RELAXED);
    __atomic_store_n(&answer->bad, bad, __ATOMIC_RELAXED);
    if (!bad)
        __atomic_store_n(&answer->gate, scan->ticket, __ATOMIC_RELEASE);
    __atomic_store_n(&answer->ticket, scan->ticket, __ATOMIC_RELEASE);
#endif
}

#endif
