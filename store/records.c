/*
 * Incidents as bytes.
 *
 * Step 8. Pure: any thread. Must never trust a length.
 */
#include "store/records.h"

#include <errno.h>
#include <string.h>

#define MAGIC 0x4e43474904000000u /* "NCGI", and the version */

static unsigned char *put(unsigned char *at, uint64_t value)
{
    for (int i = 0; i < 8; i++)
        *at++ = (unsigned char)(value >> (8 * i));
    return at;
}

static uint64_t get(const unsigned char **at)
{
    uint64_t value = 0;

    for (int i = 0; i < 8; i++)
        value |= (uint64_t) * (*at)++ << (8 * i);
    return value;
}

#define NUMBERS 14 /* with the magic; the line follows, without its end */

size_t ng_incident_encode(const struct ng_incident *incident,
                          unsigned char ret_bytes[NG_INCIDENT_RECORD_BYTES])
{
    unsigned char *at = ret_bytes;
    size_t length = strnlen(incident->line, sizeof(incident->line) - 1);

    at = put(at, MAGIC);
    at = put(at, incident->epoch);
    at = put(at, (uint64_t)incident->level);
    at = put(at, (uint64_t)incident->state);
    at = put(at, incident->group_id);
    at = put(at, incident->seq);
    at = put(at, incident->op);
    at = put(at, (uint64_t)(int64_t)incident->claimant_rank);
    at = put(at, (uint64_t)(int64_t)incident->claimant_pid);
    at = put(at, incident->claimant_ticks);
    at = put(at, incident->claimant_slot);
    at = put(at, incident->claimant_host);
    at = put(at, incident->label);
    at = put(at, (uint64_t)incident->stalled_ns);
    memcpy(at, incident->line, length);
    return (size_t)(at - ret_bytes) + length;
}

int ng_incident_decode(const void *data, size_t bytes, struct ng_incident *ret_incident)
{
    const unsigned char *at = data;
    struct ng_incident incident = {.source = NG_SOURCE_JOB};

    if (bytes < 8 * NUMBERS)
        return -EBADMSG;
    if (get(&at) != MAGIC)
        return -EPROTO;
    incident.epoch = get(&at);
    incident.level = (enum ng_incident_level)get(&at);
    incident.state = (enum ng_incident_state)get(&at);
    incident.group_id = get(&at);
    incident.seq = get(&at);
    incident.op = (uint32_t)get(&at);
    incident.claimant_rank = (int32_t)get(&at);
    incident.claimant_pid = (int32_t)get(&at);
    incident.claimant_ticks = get(&at);
    incident.claimant_slot = get(&at);
    incident.claimant_host = get(&at);
    incident.label = get(&at);
    incident.stalled_ns = (int64_t)get(&at);
    size_t length = bytes - 8 * NUMBERS;
    if (length >= sizeof(incident.line) || incident.level < NG_INCIDENT_SUSPECT ||
        incident.level >= NG_INCIDENT_LIMIT || incident.state < NG_INCIDENT_CLAIMED ||
        incident.state > NG_INCIDENT_JUDGED || incident.op >= NG_OP_LIMIT)
        return -EBADMSG;
    memcpy(incident.line, at, length);
    /* It is logged: nobody else's control characters. */
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)incident.line[i] < ' ' || incident.line[i] == 127)
            incident.line[i] = ' ';
    *ret_incident = incident;
    return 0;
}
