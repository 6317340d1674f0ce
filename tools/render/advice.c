/*
 * What to look at next.
 *
 * Used by `ncclguard analyze`. Data only: what it says belongs into advice.def.
 */
#include "tools/render/advice.h"

#include <stddef.h>

static const struct {
    enum ng_verdict_kind kind;
    const char *step;
} rows[] = {
#define NG_ADVICE(kind, step) {NG_KIND_##kind, step},
#include "tools/render/advice.def"
#undef NG_ADVICE
};

const char *ng_advice_step(enum ng_verdict_kind kind, unsigned index)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].kind == kind && index-- == 0)
            return rows[i].step;
    return NULL;
}
