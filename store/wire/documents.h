/*
 * The two documents of a verdict in the store, verdict.json and verdict.txt: their keys, and how
 * they are read.
 *
 * One thread. What is read comes from another process: it is bounded, and cleaned for terminals.
 */
#ifndef NCCLGUARD_STORE_WIRE_DOCUMENTS_H
#define NCCLGUARD_STORE_WIRE_DOCUMENTS_H

#include <stdint.h>

#include "core/nccl/board.h"

struct ng_kv;

#define NG_DOCUMENT_KEY_BYTES 48

struct ng_document_keys {
    char json[NG_DOCUMENT_KEY_BYTES], text[NG_DOCUMENT_KEY_BYTES];
};

/* The keys of the documents of incident `epoch`. */
struct ng_document_keys ng_documents_keys(uint64_t epoch);

/*
 * Read both into the caller's `documents->arena`, which keeps what it holds. 0; -ENOENT: one of
 * them is missing or too large; or -errno of the store.
 */
int ng_documents_read(struct ng_kv *kv, uint64_t epoch, int64_t deadline_mono_ns,
                      struct ng_documents *documents);

#endif
