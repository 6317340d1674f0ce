/*
 * The documents of a verdict in the store.
 *
 * The store's thread, and tools.
 */
#include "store/wire/documents.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/util/text.h"
#include "store/kv/kv.h"

#define DOCUMENT_MAX (16u << 20) /* size limit of one, which may be kept on this host's disk */

struct ng_document_keys ng_documents_keys(uint64_t epoch)
{
    struct ng_document_keys keys;

    snprintf(keys.json, sizeof(keys.json), "v/%" PRIu64 "/json", epoch);
    snprintf(keys.text, sizeof(keys.text), "v/%" PRIu64 "/text", epoch);
    return keys;
}

static void take_document(void *context, size_t index, const struct ng_kv_bytes *value)
{
    struct ng_documents *documents = context;
    char *copy = value && value->bytes <= DOCUMENT_MAX
                     ? ng_arena_alloc(&documents->arena, value->bytes + 1)
                     : NULL;

    if (!copy)
        return;
    memcpy(copy, value->data, value->bytes);
    copy[value->bytes] = '\0';
    size_t bytes = ng_text_clean(copy, value->bytes, true);
    if (index == 0) {
        documents->json = copy;
        documents->json_bytes = bytes;
    } else {
        documents->text = copy;
        documents->text_bytes = bytes;
    }
}

int ng_documents_read(struct ng_kv *kv, uint64_t epoch, int64_t deadline_mono_ns,
                      struct ng_documents *documents)
{
    struct ng_document_keys keys = ng_documents_keys(epoch);
    const char *names[] = {keys.json, keys.text};

    documents->json = documents->text = NULL;
    int error = ng_kv_get_many(kv, names, 2, deadline_mono_ns, take_document, documents);
    if (error)
        return error;
    return documents->json && documents->text ? 0 : -ENOENT;
}
