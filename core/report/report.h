/*
 * A verdict for programs (verdict.json), for people (verdict.txt) and for the log (one line).
 *
 * Any thread; no malloc, no lock, no stdio stream: it runs in processes that are stuck.
 */
#ifndef NCCLGUARD_CORE_REPORT_REPORT_H
#define NCCLGUARD_CORE_REPORT_REPORT_H

#include <stddef.h>
#include <stdint.h>

#include "core/util/json.h"
#include "core/verdict/verdict.h"

#define NG_REPORT_SCHEMA     "ncclguard.verdict/1"
#define NG_REPORT_LINE_BYTES 401 /* of a line in full, with its end */

/*
 * The verdict as one JSON object:
 *
 *   schema           "ncclguard.verdict/1"
 *   job              string
 *   time_unix_ns     when it was reached; of `analyze`, when that was so: when a guard reached the
 * same, else up to when the evidence tells, 0 not known kind             name of verdict.def group
 * {"id": 16 hex digits, "name": string, "nranks": int}; null: it has none seq              the
 * group's collective, from 1; 0 where it is no collective op               "AllReduce"; null where
 * there is none count, dtype     elements that each rank passed to it, and NCCL's name of their
 * type ("float32"); each missing where it is not known, or ranks did not pass the same composed
 * where sends and receives are waited in that make up an operation: its name, AlltoAll, AllToAllv,
 * Gather or Scatter; missing else culprits         array of {"rank", "group_rank": int, -1 not
 * known; "host": string; "pid": int, 0 not known; "why": string} waiting          array of int:
 * global ranks confidence       "certain", "likely", "unknown" missing_evidence array of string
 *   detected_by      global rank; -1 offline
 *   stalled_ms       int
 *   deadline_ms      int: how long ranks may wait in it; missing where there is no deadline, or it
 * is not known action           what was done about it: "none", "log", "kill" and the other
 * policies cycle            of an order_deadlock only: array of {"rank", "group_rank": int;
 * "group": 16 hex digits; "group_name", "op": string; "seq": int, 0 where it is no collective;
 *                    "waits_for_rank": int; "queued": bool}. The rank is in the operation, which
 *                    needs the rank it waits for: that of the next step, and after the last step
 *                    of the first. That one has not entered the operation; or, where "queued", it
 *                    has, but its device is still in the operation of its own step
 *   rehearsal        where faults were injected (NCCLGUARD_FAULT), whether or not they are the
 *                    reason; missing else: array of {"rank": int, -1 not known; "fault": string, as
 *                    it was asked for; "times": int; "op": string; "group": 16 hex digits; "seq":
 *                    int, 0 where it is no collective; "age_ms": int}, of the newest time
 *   calls            only where calls have frames (NCCLGUARD_STACKS=call): where culprits made
 * their newest call, and one of the ranks that wait the one it waits in. Array of
 *                    {"rank": int; "waits": bool, false: a culprit; "group": 16 hex digits; "op":
 *                    string, null not known; "seq": int, 0 where it is no collective; "frames":
 *                    array, innermost first, of {"name": string, null not known; "file": string,
 *                    null not known; "offset": int}, as in rank_<r>.json: those of Python first,
 * with "line", int, 0 not known; "from": string, the same as a sentence}
 *
 * 0, or the first -errno of writing to `fd`.
 */
int ng_report_write_json(const struct ng_verdict *verdict, int fd);

/* The same members, without the braces, into an object that is open: for who adds some of its own.
 */
void ng_report_add_json(struct ng_json *json, const struct ng_verdict *verdict);

/* Its member "culprits" alone. */
void ng_report_add_culprits(struct ng_json *json, const struct ng_verdict *verdict);

/* Its member "rehearsal". */
void ng_report_add_rehearsal(struct ng_json *json, const struct ng_verdict *verdict);

/* Its member "calls". */
void ng_report_add_calls(struct ng_json *json, const struct ng_verdict *verdict);

/* Its member "cycle", whatever the kind. */
void ng_report_add_cycle(struct ng_json *json, const struct ng_verdict *verdict);

/*
 * The verdict for somebody who was just woken: who, what, since when, who waits, how sure, what is
 * not known, and `folder` as the place of the evidence (NULL: not mentioned), with what culprits'
 * stacks there say first. 0 or -errno.
 */
int ng_report_write_text(const struct ng_verdict *verdict, const char *folder, int fd);

/* The verdict in one line of at most 400 bytes and `bytes` - 1, without newline or control
 * characters. */
void ng_report_line(const struct ng_verdict *verdict, char *ret_line, size_t bytes);

/* The culprits of a line of that kind, as it has them: "2", "4-6,9"; "" none. */
void ng_report_line_culprits(const char *line, char *ret_text, size_t bytes);

/* Does a line of that kind name `rank` as a culprit? The global rank, as there; of many culprits
 * the line has the first ones alone. */
bool ng_report_line_blames(const char *line, int rank);

/*
 * verdict.txt and then verdict.json in `folder`, each complete or not there (an older one stays).
 * Tries both; 0, or the first -errno.
 */
int ng_report_save(const struct ng_verdict *verdict, const char *folder);

#endif
