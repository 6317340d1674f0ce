/*
 * The doctor's findings, kept and printed.
 */
#include "tools/render/findings.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/util/json.h"
#include "core/util/macros.h"
#include "core/util/text.h"

static const char *const words[] = {
    [NG_FINDING_OK] = "ok",
    [NG_FINDING_GUARDED] = "guarded",
    [NG_FINDING_WARNING] = "warning",
    [NG_FINDING_OUT] = "out of reach",
};

static bool is_same(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

char *ng_findings_safe_copy(const char *text)
{
    char *copy = malloc(strlen(text) * 3 + 1), *to = copy;

    while (copy && *text) {
        size_t skip, length = ng_output_utf8(text, &skip);
        if (length == 0) {
            to = stpcpy(to, "\xef\xbf\xbd");
            text += skip;
            continue;
        }
        if (ng_text_is_shown(text, length))
            to = mempcpy(to, text, length);
        else
            *to++ = '?';
        text += length;
    }
    if (copy)
        *to = '\0';
    return copy;
}

void ng_findings_add(struct ng_findings *findings, enum ng_finding_kind kind, const char *object,
                     const char *mend, const char *why, ...)
{
    char text[8192];
    va_list arguments;

    va_start(arguments, why);
    vsnprintf(text, sizeof(text), why, arguments);
    va_end(arguments);
    struct ng_finding finding = {kind, ng_findings_safe_copy(object), ng_findings_safe_copy(text),
                                 mend ? ng_findings_safe_copy(mend) : NULL};
    struct ng_finding *larger =
        realloc(findings->list, (findings->count + 1) * sizeof(*findings->list));
    bool keep = larger && finding.object && finding.why && (finding.mend || !mend);
    findings->list = larger ? larger : findings->list;
    findings->out_of_memory |= !keep;
    for (size_t i = 0; keep && i < findings->count; i++)
        keep = !(findings->list[i].kind == kind && is_same(larger[i].object, finding.object) &&
                 is_same(larger[i].why, finding.why) && is_same(larger[i].mend, finding.mend));
    if (keep) {
        larger[findings->count++] = finding;
        return;
    }
    free(finding.object);
    free(finding.why);
    free(finding.mend);
}

void ng_findings_fini(struct ng_findings *findings)
{
    for (size_t i = 0; i < findings->count; i++) {
        free(findings->list[i].object);
        free(findings->list[i].why);
        free(findings->list[i].mend);
    }
    free(findings->list);
    *findings = (struct ng_findings){0};
}

size_t ng_findings_count(const struct ng_findings *findings, enum ng_finding_kind kind)
{
    size_t count = 0;

    for (size_t i = 0; i < findings->count; i++)
        count += findings->list[i].kind == kind;
    return count;
}

void ng_findings_print(const struct ng_findings *findings)
{
    NG_EACH (finding, findings->list, findings->count) {
        printf("%-13s %s: %s\n", words[finding->kind], finding->object, finding->why);
        if (finding->mend)
            printf("%-13s   mend: %s\n", "", finding->mend);
    }
}

bool ng_findings_print_json(const struct ng_findings *findings)
{
    json_t *list = json_array();

    NG_EACH (finding, findings->list, findings->count) {
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s?}", "finding",
                                              words[finding->kind], "object", finding->object,
                                              "why", finding->why, "mend", finding->mend));
    }
    bool complete = json_array_size(list) == findings->count;
    int result = json_dumpf(list, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(list);
    return complete && result == 0;
}

/* ---- What to look at next: the texts are in advice.def ---- */

static const struct {
    enum ng_verdict_kind kind;
    const char *step;
} advice[] = {
#define NG_ADVICE(kind, step) {NG_KIND_##kind, step},
#include "tools/render/advice.def"
#undef NG_ADVICE
};

const char *ng_advice_step(enum ng_verdict_kind kind, unsigned index)
{
    for (size_t i = 0; i < NG_COUNT(advice); i++)
        if (advice[i].kind == kind && index-- == 0)
            return advice[i].step;
    return NULL;
}
