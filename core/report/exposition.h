/*
 * Prometheus' text format 0.0.4: families, samples, labels, escaped; and the table of all metrics.
 *
 * Any thread; no malloc, no lock. The format allows samples of a family only behind its own head.
 * Labels of a metric are named by its writers: core/incident/metrics.c and
 * tools/render/job_metrics.c; docs/metrics.md lists them.
 */
#ifndef NCCLGUARD_CORE_REPORT_EXPOSITION_H
#define NCCLGUARD_CORE_REPORT_EXPOSITION_H

#include <stdbool.h>
#include <stdint.h>

#include "core/recorder/durations.h"
#include "core/util/json.h"

enum ng_metric {
#define NG_METRIC(name, type, help) NG_METRIC_##name,
#include "core/report/exposition.def"
#undef NG_METRIC
    NG_METRIC_LIMIT
};

struct ng_exposition {
    struct ng_output output;
    const char *family; /* name of the current one */
    bool labelled;      /* the current sample has a label */
};

/* Write to `fd` from now on; it stays the caller's. */
void ng_exposition_init(struct ng_exposition *exposition, int fd);

/* Begin a family: its help and type. */
void ng_exposition_family(struct ng_exposition *exposition, enum ng_metric metric);

/* One sample of the current family: first this, then its labels, then its value. */
void ng_exposition_sample(struct ng_exposition *exposition);

/* Invalid UTF-8 becomes U+FFFD. */
void ng_exposition_label(struct ng_exposition *exposition, const char *name, const char *text);
void ng_exposition_label_int(struct ng_exposition *exposition, const char *name, int64_t value);
/* 16 hex digits. */
void ng_exposition_label_id(struct ng_exposition *exposition, const char *name, uint64_t id);

void ng_exposition_value(struct ng_exposition *exposition, uint64_t value);
void ng_exposition_seconds(struct ng_exposition *exposition, uint64_t ns);

/* All samples of a histogram; `label` writes the labels that all have. */
void ng_exposition_duration(struct ng_exposition *exposition, const struct ng_duration *duration,
                            void (*label)(struct ng_exposition *exposition, const void *context),
                            const void *context);

/* End the text. 0, or the first -errno of writing. */
int ng_exposition_finish(struct ng_exposition *exposition);

#endif
