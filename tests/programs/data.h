/* Data of the test programs: values that every rank can compute for every other rank, small
 * enough that every reduction of them is exact in every type. */
#ifndef TESTS_PROGRAMS_DATA_H
#define TESTS_PROGRAMS_DATA_H

#include <nccl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Size of one element in bytes. */
size_t data_size(ncclDataType_t dtype);

/* Which values a buffer holds: the same arguments give the same values on every rank. */
struct stream_of_values {
    uint64_t seed;
    uint64_t tag; /* tells the buffers of one rank apart */
    ncclDataType_t dtype;
    ncclRedOp_t redop;
};

/* The index-th value of the buffer that `rank` sends. */
double data_value(const struct stream_of_values *values, int rank, size_t index);

/* Writes the first `count` values of the buffer that `rank` sends. */
void data_fill(void *buffer, const struct stream_of_values *values, int rank, size_t count);

/* Reads element `index` of a buffer. */
double data_read(const void *buffer, ncclDataType_t dtype, size_t index);

/* Whether `got` is what `expected` becomes in this type under this reduction. */
bool data_equal(double got, double expected, ncclDataType_t dtype, bool reduced, ncclRedOp_t redop);

/* Reduces the index-th values of all ranks. */
double data_reduce(const struct stream_of_values *values, int nranks, size_t index);

/* Mixes `size` bytes into a checksum. */
uint64_t data_checksum(uint64_t checksum, const void *bytes, size_t size);

#endif
