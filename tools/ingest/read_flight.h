/*
 * A dump of PyTorch's flight recorder becomes part of a view: one rank, its process groups, what it
 * called.
 */
#ifndef NCCLGUARD_TOOLS_INGEST_READ_FLIGHT_H
#define NCCLGUARD_TOOLS_INGEST_READ_FLIGHT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/view/view.h"
#include "tools/ingest/flight.h"

/* What reading needs, kept from one file to the next. One thread at a time. */
struct ng_flight_reader {
    struct ng_flight flight;
    uint8_t *bytes; /* of the file */
    size_t room;
    /* One bit for each rank that a process group of any file read so far names. */
    uint64_t *named;
    size_t named_words;
};

/* Nothing to fail. */
void ng_flight_reader_init(struct ng_flight_reader *reader);
void ng_flight_reader_fini(struct ng_flight_reader *reader);

/*
 * Append the rank that the dump at `path` tells of. The file's name ends in its global rank
 * (".pkl", ".pickle" and ".pt" may follow). `source` names it in messages. A process group is the
 * same group where its name and its ranks are. What the file does not say is not known: root,
 * reduction, host, process id, and what the rank is inside of.
 *
 * *ret_incident: what is in flight counts as stuck, however young it is. So it is where ncclguard
 * wrote the file, at an incident; and where one that does not say when it was written was copied
 * since: ages are then those at the newest thing that it tells of, and too small.
 *
 * 0; -EBADMSG no such dump, damaged, or no rank in its name, -E2BIG larger than can be, or -errno,
 * with the reason in `why`; and then, as after -ENOMEM, the view is of no use.
 */
int ng_read_flight(struct ng_flight_reader *reader, struct ng_view *view, const char *path,
                   const char *source, bool *ret_incident, char *why, size_t why_bytes);

/* The rank in the name of such a file; -1 none. */
int ng_flight_rank(const char *name);

#endif
