/*
 * A verdict for programs (verdict.json), for people (verdict.txt) and for the log (one line).
 *
 * Any thread; no malloc, no lock, no stdio stream: it runs in processes that are stuck.
 */
#ifndef NCCLGUARD_CORE_REPORT_REPORT_H
#define NCCLGUARD_CORE_REPORT_REPORT_H

#include <stddef.h>

#include "core/util/json.h"
#include "core/verdict/verdict.h"

struct ng_documents;

#define NG_REPORT_SCHEMA     "ncclguard.verdict/1"
#define NG_REPORT_LINE_BYTES 401 /* of a full line, with the terminating NUL */

/*
 * The verdict as one JSON object:
 *
 *   schema           "ncclguard.verdict/1"
 *   job              string
 *   time_unix_ns     when the verdict was reached; from `analyze`: when a guard reached the same
 *                    verdict, else the latest time that the evidence covers; 0 not known
 *   kind             name of core/nccl/verdict_kind.def
 *   group            {"id": 16 hex digits, "name": string, "nranks": int}; null: it has none
 *   seq              the group's collective, from 1; 0 if it is no collective
 *   op               "AllReduce"; null if there is none
 *   count, dtype     elements that each rank passed to it, and NCCL's name of their type
 *                    ("float32"); each absent if it is not known, or not the same on all ranks
 *   composed         only if ranks wait in sends and receives that form an operation: its name,
 *                    AlltoAll, AllToAllv, Gather or Scatter; otherwise absent
 *   culprits         array of {"rank", "group_rank": int, -1 not known; "host": string;
 *                    "pid": int, 0 not known; "why": string}
 *   waiting          array of int: global ranks
 *   confidence       "certain", "likely", "unknown"
 *   missing_evidence array of string
 *   detected_by      global rank; -1 offline
 *   stalled_ms       int
 *   deadline_ms      int: how long ranks may wait in it; absent if there is no deadline, or it is
 *                    not known
 *   action           what was done about it: "none", "log", "kill" and the other policies
 *   cycle            only for an order_deadlock: array of {"rank", "group_rank": int; "group": 16
 *                    hex digits; "group_name", "op": string; "seq": int, 0 if it is no collective;
 *                    "waits_for_rank": int; "queued": bool}. The rank is in the operation and waits
 *                    there for the rank of the next step (after the last step: of the first). That
 *                    rank has not entered the operation, or is in the end of an NCCL group of both
 *                    operations; or, if "queued", it has, but its device is still in the operation
 *                    of its own step
 *   rehearsal        only if faults were injected (NCCLGUARD_FAULT), whether or not they are the
 *                    reason; otherwise absent: array of {"rank": int, -1 not known; "fault":
 *                    string, as the user wrote it; "times": int; "op": string; "group": 16 hex
 *                    digits; "seq": int, 0 if it is no collective; "age_ms": int}, of the newest
 *                    injection
 *   device_errors    only if the driver knows something of the devices of the group: array of
 *                    {"rank": int; "device": int, as CUDA numbers it in that process, -1 not known;
 *                    "pci": string; "what": "xid", "lost", "ecc_uncorrected", "nvlink_crc",
 *                    "nvlink_replay", "nvlink_recovery", or "process": another process computes
 *                    there; "number": int, of an Xid, or the pid of that process, else 0; "count":
 *                    int, since the guard first asked; "ago_ms": int, since it was noticed};
 *                    those that may stop a device first, and 64 at most
 *   calls            only if calls have frames (NCCLGUARD_STACKS=call): where each culprit made its
 *                    newest call, and where one waiting rank made the call it waits in. Array of
 *                    {"rank": int; "waits": bool, false: a culprit; "group": 16 hex digits; "op":
 *                    string, null not known; "seq": int, 0 if it is no collective; "frames": array,
 *                    innermost first, of {"name": string, null not known; "file": string, null not
 *                    known; "offset": int}, as in rank_<r>.json: Python frames first, with "line",
 *                    int, 0 not known; native ones with "line" and "source" if `ncclguard
 *                    analyze` has found them; "from": string, the same as a sentence}
 *
 * 0, or the first -errno of writing to `fd`.
 */
int ng_report_write_json(const struct ng_verdict *verdict, int fd);

/* The same members, without the braces, into an open object, so that the caller can add its own. */
void ng_report_add_json(struct ng_json *json, const struct ng_verdict *verdict);

/* Its member "culprits" alone. */
void ng_report_add_culprits(struct ng_json *json, const struct ng_verdict *verdict);

/* Its member "rehearsal". */
void ng_report_add_rehearsal(struct ng_json *json, const struct ng_verdict *verdict);

/* Its member "device_errors". */
void ng_report_add_device_errors(struct ng_json *json, const struct ng_verdict *verdict);

/* One of them as a sentence, as in the text: "rank 1, 0000:11:00.0: Xid 79 (…); noticed 1.0 s
 * ago". */
void ng_report_device_error(const struct ng_verdict_device_error *told, char *ret_text,
                            size_t bytes);

/* Its member "calls". */
void ng_report_add_calls(struct ng_json *json, const struct ng_verdict *verdict);

/* Its member "cycle", for a verdict of any kind. */
void ng_report_add_cycle(struct ng_json *json, const struct ng_verdict *verdict);

/*
 * The verdict for a person who was just woken: culprits, cause, duration, waiting ranks,
 * confidence, missing evidence, and `folder` as the location of the evidence (NULL: not mentioned),
 * with the summary lines of the culprits' stacks there. 0 or -errno.
 */
int ng_report_write_text(const struct ng_verdict *verdict, const char *folder, int fd);

/* The verdict in one line of at most 400 bytes and `bytes` - 1, without newline or control
 * characters. */
void ng_report_line(const struct ng_verdict *verdict, char *ret_line, size_t bytes);

/* The culprits in a line written by ng_report_line, in the same form: "2", "4-6,9"; "" none. */
void ng_report_line_culprits(const char *line, char *ret_text, size_t bytes);

/* Does such a line name global rank `rank` as a culprit? If there are many culprits, the line has
 * only the first ones. */
bool ng_report_line_blames(const char *line, int rank);

/*
 * Writes verdict.txt and then verdict.json in `folder`. Each is written completely or not at all
 * (an older one then stays). Tries both; 0, or the first -errno.
 */
int ng_report_save(const struct ng_verdict *verdict, const char *folder);

/* The same with what another host published; without the text no JSON is written. */
int ng_report_save_documents(const struct ng_documents *documents, const char *folder);

#endif
