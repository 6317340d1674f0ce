/*
 * Small records of the job's store as bytes, the same on every machine: incidents, and commands
 * (store/wire/command_record.h).
 *
 * Pure. Numbers are little endian; a version comes first.
 */
#ifndef NCCLGUARD_STORE_WIRE_INCIDENT_CODEC_H
#define NCCLGUARD_STORE_WIRE_INCIDENT_CODEC_H

#include <stdbool.h>
#include <stddef.h>

#include "core/nccl/board.h"

#define NG_INCIDENT_RECORD_BYTES (640 + 8 * NG_GROUP_SET_MAX)

/* Returns the length. */
size_t ng_incident_encode(const struct ng_incident *incident,
                          unsigned char ret_bytes[NG_INCIDENT_RECORD_BYTES]);

/*
 * Validate a record from outside, whose numbers must be those of an incident or a command: false if
 * it can be neither. A verdict of an older guard has no kind field; its kind is only in the text.
 */
bool ng_incident_accept(struct ng_incident *record);

/* Times of the reader's clock are left 0. 0; -EPROTO: another version; or -EBADMSG. */
int ng_incident_decode(const void *data, size_t bytes, struct ng_incident *ret_incident);

#endif
