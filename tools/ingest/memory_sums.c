/*
 * Sums of device memory and of registrations, and their texts.
 *
 * A dead rank's values come from its black box and may be any number, so sums saturate.
 */
#include "tools/ingest/memory_sums.h"

#include <inttypes.h>

#include "core/util/clock.h"

static void add(uint64_t *sum, uint64_t more)
{
    *sum = more > UINT64_MAX - *sum ? UINT64_MAX : *sum + more;
}

static void add_member(struct ng_view_registration *sum, const struct ng_view_member *member)
{
    const struct ng_view_registration *told = &member->registration;

    if (!told->known)
        return;
    sum->closed = told->closed && (!sum->known || sum->closed);
    sum->known = true;
#define ADD(count) add(&sum->count, told->count);
    NG_REGISTRATION_COUNTS(ADD)
}

void ng_memory_sums_group(const struct ng_view *view, uint32_t group,
                          struct ng_view_registration *ret_sum)
{
    struct ng_view_registration sum = {0};
    uint32_t count;
    const struct ng_view_member *members = ng_view_members(view, group, &count);

    for (uint32_t i = 0; i < count; i++)
        add_member(&sum, &members[i]);
    *ret_sum = sum;
}

void ng_memory_sums_process(const struct ng_view *view, uint32_t process,
                            struct ng_view_registration *ret_sum)
{
    const struct ng_view_process *told = &view->processes[process];
    struct ng_view_registration sum = {0};

    for (uint32_t i = 0; i < told->member_count; i++)
        add_member(&sum, &view->members[view->by_process[told->first_member + i]]);
    *ret_sum = sum;
}

bool ng_memory_sums_memory(const struct ng_view_process *process, struct ng_memory_sum *ret_sum)
{
    struct ng_memory_sum sum = {0};

    for (uint32_t i = 0; i < process->memory_kinds; i++) {
        add(&sum.segments, process->memory[i].segments);
        add(&sum.bytes, process->memory[i].bytes);
    }
    *ret_sum = sum;
    return process->memory_kinds > 0;
}

unsigned ng_memory_sums_share(const struct ng_view_registration *registration)
{
    if (!registration->bytes)
        return 0;
    double share = (double)registration->registered_bytes / (double)registration->bytes;
    return share >= 1 ? 100 : (unsigned)(100 * share);
}

static void add_bytes(struct ng_text *text, uint64_t bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    unsigned unit = 0;

    while (unit < 6 && bytes >> (10 * (unit + 1)))
        unit++;
    uint64_t whole = bytes >> (10 * unit);
    uint64_t tenths = unit ? ((bytes >> (10 * (unit - 1))) & 1023) * 10 / 1024 : 0;
    if (tenths && whole < 100)
        ng_text_add(text, "%" PRIu64 ".%" PRIu64 " %s", whole, tenths, units[unit]);
    else
        ng_text_add(text, "%" PRIu64 " %s", whole, units[unit]);
}

void ng_memory_sums_add_sum(struct ng_text *text, uint64_t segments, uint64_t bytes)
{
    ng_text_add(text, "%" PRIu64, segments);
    if (!segments)
        return;
    ng_text_add(text, ", ");
    add_bytes(text, bytes);
}

void ng_memory_sums_add(struct ng_text *text, const struct ng_view_registration *registration)
{
    uint64_t ms = registration->spent_ns / NG_MS;

    ng_text_add(text, "%u%% of the bytes sent and received, %" PRIu64 " segment%s (",
                ng_memory_sums_share(registration), registration->segments,
                registration->segments == 1 ? "" : "s");
    add_bytes(text, registration->segment_bytes);
    ng_text_add(text, "), %" PRIu64 ".%03" PRIu64 " s spent", ms / 1000, ms % 1000);
    if (registration->failed)
        ng_text_add(text, ", %" PRIu64 " failed", registration->failed);
    if (registration->closed)
        ng_text_add(text, ", no more");
}
