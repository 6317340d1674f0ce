/*
 * Reads an answer of NCCL's RAS.
 *
 * Pure. Forms: the JSON of NCCL 2.28.7 and newer, also with the comma that 2.28.7 to 2.28.9 leave
 * out where a rank is missing; and the text of `VERBOSE STATUS` of 2.24 and newer, which lists only
 * the ranks that differ from most.
 */
#ifndef NCCLGUARD_STORE_RAS_RAS_ANSWER_H
#define NCCLGUARD_STORE_RAS_RAS_ANSWER_H

#include <stddef.h>

#include "core/view/ras.h"

/*
 * Read `bytes` of an answer that has come to its end. 0, and then the caller frees
 * ret_answer->arena; -EBADMSG: it is none, is cut off, or contradicts itself; -ENOMEM. Time and
 * memory grow with `bytes` alone, whatever numbers are in it. Any thread; no malloc.
 */
int ng_ras_answer_read(const char *text, size_t bytes, struct ng_ras_answer *ret_answer);

#endif
