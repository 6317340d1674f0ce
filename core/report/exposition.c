/*
 * Prometheus' text format.
 *
 * Entered by the status thread and by the exporter. Must not allocate.
 */
#include "core/report/exposition.h"

#include <inttypes.h>
#include <string.h>

#include "core/nccl/op.h"
#include "core/util/clock.h"

#define PREFIX "ncclguard_"

static const struct {
    const char *name, *type, *help;
} metrics[] = {
#define NG_METRIC(name, type, help) {#name, type, help},
#include "core/report/exposition.def"
#undef NG_METRIC
};

void ng_exposition_init(struct ng_exposition *exposition, int fd)
{
    ng_output_init(&exposition->output, fd);
}

void ng_exposition_family(struct ng_exposition *exposition, enum ng_metric metric)
{
    const char *name = metrics[metric].name;

    exposition->family = name;
    ng_output_format(&exposition->output, "# HELP " PREFIX "%s %s\n# TYPE " PREFIX "%s %s\n", name,
                     metrics[metric].help, name, metrics[metric].type);
}

static void begin(struct ng_exposition *exposition, const char *suffix)
{
    ng_output_format(&exposition->output, PREFIX "%s%s{", exposition->family, suffix);
    exposition->labelled = false;
}

void ng_exposition_sample(struct ng_exposition *exposition)
{
    begin(exposition, "");
}

static void put_name(struct ng_exposition *exposition, const char *name)
{
    ng_output_format(&exposition->output, "%s%s=\"", exposition->labelled ? "," : "", name);
    exposition->labelled = true;
}

void ng_exposition_label(struct ng_exposition *exposition, const char *name, const char *text)
{
    struct ng_output *output = &exposition->output;

    put_name(exposition, name);
    for (const char *at = text; *at;) {
        size_t length = strcspn(at, "\\\"\n");
        char piece[256];
        if (length >= sizeof(piece))
            length = sizeof(piece) - 1;
        if (!length) {
            ng_output_bytes(output, *at == '\n' ? "\\n" : *at == '"' ? "\\\"" : "\\\\", 2);
            at++;
            continue;
        }
        memcpy(piece, at, length);
        piece[length] = '\0';
        ng_output_safe(output, piece);
        at += length;
    }
    ng_output_bytes(output, "\"", 1);
}

void ng_exposition_label_int(struct ng_exposition *exposition, const char *name, int64_t value)
{
    put_name(exposition, name);
    ng_output_format(&exposition->output, "%" PRId64 "\"", value);
}

void ng_exposition_label_id(struct ng_exposition *exposition, const char *name, uint64_t id)
{
    put_name(exposition, name);
    ng_output_format(&exposition->output, "%016" PRIx64 "\"", id);
}

void ng_exposition_value(struct ng_exposition *exposition, uint64_t value)
{
    ng_output_format(&exposition->output, "} %" PRIu64 "\n", value);
}

void ng_exposition_seconds(struct ng_exposition *exposition, uint64_t ns)
{
    ng_output_format(&exposition->output, "} %" PRIu64 ".%09" PRIu64 "\n", ns / NG_S, ns % NG_S);
}

/* All buckets are written, even empty ones: sums over ranks and time need the same buckets
 * everywhere. */
void ng_exposition_duration(struct ng_exposition *exposition, const struct ng_duration *duration,
                            void (*label)(struct ng_exposition *exposition, const void *context),
                            const void *context)
{
    static const char *const suffixes[] = {"_bucket", "_count", "_sum"};
    uint64_t size = UINT64_C(1) << (duration->size_class < 64 ? duration->size_class : 63);
    uint64_t below = 0;

    for (unsigned i = 0; i < NG_DURATION_BUCKETS + 2; i++) {
        unsigned part = i < NG_DURATION_BUCKETS ? 0 : i - NG_DURATION_BUCKETS + 1;
        begin(exposition, suffixes[part]);
        label(exposition, context);
        ng_exposition_label_id(exposition, "group", duration->group_id);
        ng_exposition_label(exposition, "op", ng_op_name(duration->op));
        put_name(exposition, "size");
        ng_output_format(&exposition->output, "%" PRIu64 "\"", size);
        if (part == 2) {
            ng_exposition_seconds(exposition, duration->sum_ns);
            continue;
        }
        if (part == 0) {
            int64_t end = ng_duration_bucket_end_ns(i);
            below += duration->histogram[i];
            if (end == INT64_MAX)
                ng_exposition_label(exposition, "le", "+Inf");
            else
                ng_output_format(&exposition->output, ",le=\"%" PRId64 ".%06" PRId64 "\"",
                                 end / NG_S, end % NG_S / NG_US);
        }
        ng_exposition_value(exposition, below);
    }
}

int ng_exposition_finish(struct ng_exposition *exposition)
{
    ng_output_format(&exposition->output, "# EOF\n");
    return ng_output_flush(&exposition->output);
}
