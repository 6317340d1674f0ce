/*
 * Names of the kinds of verdicts, from their table.
 *
 * Pure; any thread.
 */
#include "core/nccl/verdict_kind.h"

#include <string.h>

static const struct {
    const char *name, *text;
} kinds[] = {
#define NG_VERDICT(id, name, text) {name, text},
#include "core/nccl/verdict_kind.def"
#undef NG_VERDICT
};

const char *ng_verdict_kind_name(enum ng_verdict_kind kind)
{
    return kind < NG_KIND_COUNT ? kinds[kind].name : "unknown";
}

const char *ng_verdict_kind_text(enum ng_verdict_kind kind)
{
    return kind < NG_KIND_COUNT ? kinds[kind].text : "";
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
