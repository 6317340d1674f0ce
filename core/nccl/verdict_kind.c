/*
 * Names of the kinds of verdicts, from their table.
 *
 * Pure; any thread.
 */
#include "core/nccl/verdict_kind.h"

#include <string.h>

const char *ng_verdict_kind_name(enum ng_verdict_kind kind)
{
    static const char *const names[] = {
#define NG_VERDICT(id, name, text) [NG_KIND_##id] = name,
#include "core/nccl/verdict_kind.def"
#undef NG_VERDICT
    };
    return kind < NG_KIND_COUNT ? names[kind] : "unknown";
}

const char *ng_verdict_kind_text(enum ng_verdict_kind kind)
{
    static const char *const texts[] = {
#define NG_VERDICT(id, name, text) [NG_KIND_##id] = text,
#include "core/nccl/verdict_kind.def"
#undef NG_VERDICT
    };
    return kind < NG_KIND_COUNT ? texts[kind] : "";
}

bool ng_kind_is_failure(enum ng_verdict_kind kind)
{
    return kind == NG_KIND_ASYNC_ERROR || kind == NG_KIND_CUDA_ERROR;
}

enum ng_verdict_kind ng_verdict_kind_of_line(const char *line)
{
    size_t length = strcspn(line, ":");

    for (int kind = 0; kind < NG_KIND_COUNT; kind++) {
        const char *name = ng_verdict_kind_name((enum ng_verdict_kind)kind);
        if (strlen(name) == length && memcmp(name, line, length) == 0)
            return (enum ng_verdict_kind)kind;
    }
    return NG_KIND_UNKNOWN;
}
