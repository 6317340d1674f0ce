/*
 * Incidents as bytes.
 *
 * Pure: any thread. Must never trust a length.
 */
#include "store/wire/incident_codec.h"

#include <errno.h>
#include <string.h>

#include "core/config/config.h"
#include "core/nccl/verdict_kind.h"
#include "core/util/text.h"
#include "store/kv/words.h"
#include "store/wire/command_record.h"

#define MAGIC 0x4e43474906000000u /* "NCGI", and the version */
/* Earlier versions that are read as well: without the kind of verdict; and without that and
 * groups. */
#define MAGIC_WITHOUT_KIND  0x4e43474905000000u
#define MAGIC_WITHOUT_SCOPE 0x4e43474904000000u

static unsigned char *put(unsigned char *at, uint64_t value)
{
    ng_word_put(at, value);
    return at + 8;
}

static uint64_t get(const unsigned char **at)
{
    *at += 8;
    return ng_word_get(*at - 8);
}

#define NUMBERS                                                                                    \
    14 /* with the magic; then the kind; the scope: how many groups, and each; the line, without   \
          its end */
#define SCOPE_OF_ALL UINT64_MAX
#define DIFFERS      (UINT64_C(1) << 63)
#define FAILED       (UINT64_C(1) << 62)

size_t ng_incident_encode(const struct ng_incident *incident,
                          unsigned char ret_bytes[NG_INCIDENT_RECORD_BYTES])
{
    unsigned char *at = ret_bytes;
    size_t length = strnlen(incident->line, sizeof(incident->line) - 1);

    /* A command has no verdict: written so that a job of an older release obeys it, too. */
    bool is_command = ng_record_is_command(incident);
    at = put(at, is_command ? MAGIC_WITHOUT_KIND : MAGIC);
    at = put(at, incident->epoch);
    at = put(at, (uint64_t)incident->level);
    at = put(at, (uint64_t)incident->state);
    at = put(at, incident->group_id);
    at = put(at, incident->seq);
    /* Older versions read half of it. */
    at = put(at, incident->op | (uint64_t)incident->policy << 32 |
                     (incident->differs ? DIFFERS : 0) | (incident->failed ? FAILED : 0));
    at = put(at, (uint64_t)(int64_t)incident->claimant_rank);
    at = put(at, (uint64_t)(int64_t)incident->claimant_pid);
    at = put(at, incident->claimant_ticks);
    at = put(at, incident->claimant_slot);
    at = put(at, incident->claimant_host);
    at = put(at, incident->label);
    at = put(at, (uint64_t)incident->stalled_ns);
    if (!is_command)
        at = put(at, incident->kind);
    at = put(at, incident->scope.all ? SCOPE_OF_ALL : incident->scope.count);
    for (uint32_t i = 0; i < incident->scope.count; i++)
        at = put(at, incident->scope.groups[i]);
    memcpy(at, incident->line, length);
    return (size_t)(at - ret_bytes) + length;
}

/* Advances *at. False: truncated, or larger than the room. */
static bool get_scope(const unsigned char **at, const unsigned char *end,
                      struct ng_group_set *ret_scope)
{
    if (end - *at < 8)
        return false;
    uint64_t count = get(at);
    ret_scope->all = count == SCOPE_OF_ALL;
    if (ret_scope->all)
        return true;
    if (count > NG_GROUP_SET_MAX || (size_t)(end - *at) < 8 * count)
        return false;
    ret_scope->count = (uint32_t)count;
    for (uint32_t i = 0; i < count; i++)
        ret_scope->groups[i] = get(at);
    return true;
}

bool ng_incident_accept(struct ng_incident *record)
{
    if (ng_record_is_command(record)) {
        record->kind = NG_KIND_HEALTHY;
        return ng_record_is_sound_command(record);
    }
    if (record->kind >= NG_KIND_COUNT)
        return false;
    if (record->kind == NG_KIND_HEALTHY && record->state == NG_INCIDENT_JUDGED)
        record->kind = (uint8_t)ng_verdict_kind_of_line(record->line);
    return true;
}

int ng_incident_decode(const void *data, size_t bytes, struct ng_incident *ret_incident)
{
    const unsigned char *at = data, *end = at + bytes;
    struct ng_incident incident = {.source = NG_SOURCE_JOB};

    if (bytes < 8 * NUMBERS)
        return -EBADMSG;
    uint64_t magic = get(&at);
    if (magic != MAGIC && magic != MAGIC_WITHOUT_KIND && magic != MAGIC_WITHOUT_SCOPE)
        return -EPROTO;
    incident.epoch = get(&at);
    uint64_t level = get(&at), state = get(&at);
    incident.group_id = get(&at);
    incident.seq = get(&at);
    uint64_t op_and_policy = get(&at);
    incident.op = (uint32_t)op_and_policy;
    uint64_t policy = (op_and_policy & ~(DIFFERS | FAILED)) >> 32;
    incident.differs = op_and_policy & DIFFERS;
    incident.failed = op_and_policy & FAILED;
    int64_t rank = (int64_t)get(&at), pid = (int64_t)get(&at);
    incident.claimant_ticks = get(&at);
    incident.claimant_slot = get(&at);
    incident.claimant_host = get(&at);
    incident.label = get(&at);
    incident.stalled_ns = (int64_t)get(&at);
    uint64_t kind = NG_KIND_HEALTHY;
    if (magic == MAGIC && end - at < 8)
        return -EBADMSG;
    if (magic == MAGIC)
        kind = get(&at);
    if (magic != MAGIC_WITHOUT_SCOPE && !get_scope(&at, end, &incident.scope))
        return -EBADMSG;
    if (magic == MAGIC_WITHOUT_SCOPE) {
        incident.scope =
            (struct ng_group_set){.all = !incident.group_id, .count = incident.group_id != 0};
        incident.scope.groups[0] = incident.group_id;
    }
    size_t length = (size_t)(end - at);
    /* Before narrowing any number: the bits cut off may be the wrong ones. */
    if (length >= sizeof(incident.line) || !incident.epoch || incident.epoch > NG_EPOCH_MAX ||
        level < NG_INCIDENT_SUSPECT || level >= NG_RECORD_LEVEL_LIMIT ||
        state < NG_INCIDENT_CLAIMED || state > NG_INCIDENT_JUDGED || incident.op >= NG_OP_LIMIT ||
        policy > NG_ON_TIMEOUT_LAST + 1 || rank < -1 || rank > INT32_MAX || pid < 0 ||
        pid > INT32_MAX || incident.stalled_ns < 0 || kind > UINT8_MAX)
        return -EBADMSG;
    incident.level = (enum ng_incident_level)level;
    incident.state = (enum ng_incident_state)state;
    incident.policy = (int32_t)policy;
    incident.claimant_rank = (int32_t)rank;
    incident.claimant_pid = (int32_t)pid;
    memcpy(incident.line, at, length);
    ng_text_clean(incident.line, length, false);
    incident.kind = (uint8_t)kind;
    if (!ng_incident_accept(&incident))
        return -EBADMSG;
    *ret_incident = incident;
    return 0;
}
