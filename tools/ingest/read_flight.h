/*
 * Adds a dump of PyTorch's flight recorder to a view: one rank, its process groups, its calls.
 */
#ifndef NCCLGUARD_TOOLS_INGEST_READ_FLIGHT_H
#define NCCLGUARD_TOOLS_INGEST_READ_FLIGHT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/view/view.h"
#include "tools/ingest/flight.h"

/* State of the reader, kept from one file to the next. One thread at a time. */
struct ng_flight_reader {
    struct ng_flight flight;
    uint8_t *bytes; /* of the file */
    size_t room;
    /* One bit for each rank that a process group of any file read so far contains. */
    uint64_t *named;
    size_t named_words;
};

/* Cannot fail. */
void ng_flight_reader_init(struct ng_flight_reader *reader);
void ng_flight_reader_fini(struct ng_flight_reader *reader);

/*
 * Append the rank in the dump at `path`. The file's name ends in its global rank (".pkl", ".pickle"
 * and ".pt" may follow). `source` names it in messages. Process groups are the same group if their
 * names and ranks are the same. Not in the file, hence not known: root, reduction, host, process
 * id, and the call that the rank is inside of.
 *
 * *ret_incident: operations in flight count as stuck, however young they are. This is the case if
 * ncclguard wrote the file at an incident; and if a file without its time of writing was copied
 * since: ages are then relative to its newest event, and too small.
 *
 * 0; -EBADMSG no such dump, damaged, or no rank in its name, -E2BIG implausibly large, or -errno,
 * with the reason in `why`; then, as after -ENOMEM, the view is unusable.
 */
int ng_read_flight(struct ng_flight_reader *reader, struct ng_view *view, const char *path,
                   const char *source, bool *ret_incident, char *why, size_t why_bytes);

/* The rank in the name of such a file; -1 none. */
int ng_flight_rank(const char *name);

#endif
