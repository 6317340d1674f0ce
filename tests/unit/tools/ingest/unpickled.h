/*
 * What the reader of pickles makes of some bytes, for tests: in C, as the reader is.
 */
#ifndef NCCLGUARD_TESTS_UNIT_TOOLS_INGEST_UNPICKLED_H
#define NCCLGUARD_TESTS_UNIT_TOOLS_INGEST_UNPICKLED_H

#include <string>

/* As Python would print it, without blanks; bytes as b and their number. Or "error: " and the
 * reason. */
std::string unpickled(const std::string &bytes);

#endif
