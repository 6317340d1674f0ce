/*
 * What ranks of other hosts have written into the job's store: progress and incidents.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/report/dump.h"
#include "core/verdict/verdict.h"
#include "core/view/view.h"
#include "store/wire/command_record.h"
#include "store/wire/incident_codec.h"
#include "store/wire/progress.h"
#include "tests/fuzz/parts.h"
#include "tests/unit/tools/evidence.h"

#define PROCESSES 200
#define INCIDENTS 40

static uint8_t *copy_of(const void *bytes, size_t count)
{
    uint8_t *copy = malloc(count);

    return copy ? memcpy(copy, bytes, count) : NULL;
}

/* ---- Progress ---- */

static size_t make_progress(struct damage_sample samples[PART_SAMPLES_MAX])
{
    for (unsigned i = 0; i < PROCESSES; i++) {
        struct ng_progress_limits limits = {.records = i % 2 ? NG_PROGRESS_RECORDS_PEACE
                                                             : NG_PROGRESS_RECORDS_SUSPECT,
                                            .label = 7,
                                            .written_unix_ns = 1700000000000000000,
                                            .reason = i % 3 == 0};
        struct ng_view view;
        const void *data;
        size_t bytes;
        char name[32];

        ng_view_init(&view);
        evidence_add_random(&view, i + 1);
        part_promise(ng_progress_encode(&view, 0, &limits, &view.arena, &data, &bytes) == 0,
                     "progress cannot be written");
        snprintf(name, sizeof(name), "process %u", i);
        samples[i] = damage_sample_make(name, copy_of(data, bytes), bytes);
        ng_view_fini(&view);
    }
    return PROCESSES;
}

/* A process of another host is published again, judged and dumped. */
static void use(struct ng_view *view)
{
    struct ng_progress_limits limits = {.records = NG_PROGRESS_RECORDS_SUSPECT};
    struct ng_verdict_query query = {.stalled_ns = 1};
    struct ng_verdict verdict;
    struct ng_view again;
    static int nowhere = -1;
    const void *data;
    uint32_t process;
    size_t bytes;

    if (nowhere < 0)
        nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    ng_progress_age(view, 0, INT64_MAX / 2);
    part_promise(ng_progress_encode(view, 0, &limits, &view->arena, &data, &bytes) == 0,
                 "what was read cannot be written");
    ng_view_init(&again);
    part_promise(ng_progress_decode(&again, data, bytes, &process) == 0,
                 "what was read and written cannot be read");
    part_promise(again.member_count == view->member_count && again.call_count == view->call_count &&
                     again.fault_count == view->fault_count,
                 "something is lost between two readers");
    ng_view_fini(&again);
    ng_view_seal(view);
    if (ng_verdict_reach(view, &query, &verdict) == 0)
        ng_verdict_fini(&verdict);
    part_promise(ng_dump_write_process(view, 0, nowhere) == 0, "it cannot be dumped");
}

static bool take_progress(const uint8_t *bytes, size_t count)
{
    struct ng_progress_head head;
    struct ng_view view;
    uint32_t process;

    ng_view_init(&view);
    int peeked = ng_progress_peek(bytes, count, &head);
    int error = ng_progress_decode(&view, bytes, count, &process);
    part_promise(error == 0 || error == -EBADMSG || error == -EPROTO, "another error");
    part_promise(!peeked || error, "a process without a head");
    if (!error) {
        part_promise(process == 0 && view.process_count == 1, "another process");
        use(&view);
    } else {
        part_promise(view.process_count == 0 && view.group_count == 0 && view.member_count == 0 &&
                         view.call_count == 0 && view.fault_count == 0 && view.failure_count == 0,
                     "a part of what is refused");
    }
    ng_view_fini(&view);
    return !error;
}

const struct part part_progress = {"progress", make_progress, take_progress};

/* ---- Incidents ---- */

static size_t make_incidents(struct damage_sample samples[PART_SAMPLES_MAX])
{
    unsigned char bytes[NG_INCIDENT_RECORD_BYTES];
    char name[32];

    for (unsigned i = 0; i < INCIDENTS; i++) {
        struct ng_incident incident = {
            .epoch = i + 1,
            .level = (enum ng_incident_level)(NG_INCIDENT_SUSPECT +
                                              i % (NG_RECORD_LEVEL_LIMIT - NG_INCIDENT_SUSPECT)),
            .state = i % 2 ? NG_INCIDENT_JUDGED : NG_INCIDENT_CLAIMED,
            .group_id = UINT64_C(0x0123456789abcdef),
            .seq = 5, /* of a command: a value that there is */
            .op = NG_OP_AllReduce,
            .claimant_rank = (int32_t)i - 1,
            .claimant_pid = 4711,
            .policy = (int32_t)i % 5,
            .kind = (uint8_t)(i % NG_KIND_COUNT),
            .stalled_ns = 1000000000,
            .scope = {.all = i % 5 == 0, .count = i % 5 ? i : 0},
        };
        if (ng_record_is_command(&incident))
            incident.state = NG_INCIDENT_JUDGED;
        for (uint32_t k = 0; k < incident.scope.count; k++)
            incident.scope.groups[k] = k * UINT64_C(0x9e3779b97f4a7c15);
        snprintf(
            incident.line, sizeof(incident.line), "%.*s", (int)(i * 12),
            "missing_rank: rank 2 (host node7, pid 4711) has not entered AllReduce #5 of group "
            "0123456789abcdef; ranks 0, 1 and 3 wait for it");
        snprintf(name, sizeof(name), "incident %u", i);
        size_t length = ng_incident_encode(&incident, bytes);
        samples[i] = damage_sample_make(name, copy_of(bytes, length), length);
    }
    return INCIDENTS;
}

/* What core gets of it, and what a tool writes of that. */
static void use_record(const struct ng_incident *record)
{
    struct ng_incident again;
    struct ng_news news;

    ng_record_news(record, &news);
    part_promise(news.is_command == (record->level > NG_INCIDENT_TIMEOUT), "of the other sort");
    if (!news.is_command)
        return;
    part_promise(news.command.kind >= NG_COMMAND_ABORT && news.command.kind < NG_COMMAND_LIMIT &&
                     news.command.rank >= -1 && news.command.for_ns >= 0,
                 "a command that no tool gives");
    ng_command_record(&news.command, &again);
    part_promise(again.level == record->level && strcmp(again.line, record->line) == 0 &&
                     (news.command.kind != NG_COMMAND_SET || again.seq == record->seq),
                 "another command when it is written");
}

static bool take_incident(const uint8_t *bytes, size_t count)
{
    unsigned char again[NG_INCIDENT_RECORD_BYTES];
    struct ng_incident incident, same;
    int error = ng_incident_decode(bytes, count, &incident);

    part_promise(error == 0 || error == -EBADMSG || error == -EPROTO, "another error");
    if (error)
        return false;
    part_promise(memchr(incident.line, '\0', sizeof(incident.line)) != NULL,
                 "a line without its end");
    part_promise(incident.kind < NG_KIND_COUNT, "a kind of verdict that there is not");
    part_promise(incident.scope.count <= NG_GROUP_SET_MAX, "more groups than there is room for");
    use_record(&incident);
    size_t length = ng_incident_encode(&incident, again);
    part_promise(ng_incident_decode(again, length, &same) == 0, "it cannot be written");
    part_promise(strcmp(incident.line, same.line) == 0 && incident.epoch == same.epoch &&
                     incident.kind == same.kind && incident.scope.all == same.scope.all &&
                     incident.scope.count == same.scope.count,
                 "it is another one when it is written");
    return true;
}

const struct part part_incident = {"incident", make_incidents, take_incident};
