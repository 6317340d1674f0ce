/*
 * The fields of a process's progress, in the order of its bytes: one description for writing and
 * for reading. store/wire/progress.h documents the layout, and is the public interface.
 */
#ifndef NCCLGUARD_STORE_WIRE_PROGRESS_WIRE_H
#define NCCLGUARD_STORE_WIRE_PROGRESS_WIRE_H

#include <stdbool.h>

#include "store/wire/progress.h"

/* Bits of the head, of a member, and of a record. */
enum {
    HEAD_WATCHDOG = 1,
    HEAD_ERROR = 2,
    HEAD_VARIABLES = 4,
    HEAD_FAILURES = 8,
    HEAD_MEMORY = 16,
    HEAD_NAN = 32,
    HEAD_ALIVE = 64,
    HEAD_LAUNCH = 128,
    HEAD_SET = 256,
    HEAD_DEVICES = 512
};
enum {
    MEMBER_HASH = 1,
    MEMBER_LAST = 2,
    MEMBER_PENDING = 4,
    MEMBER_STARTED = 8,
    MEMBER_TIMEOUT = 16,
    MEMBER_JOINED = 32,
    MEMBER_GROWN = 64,
    MEMBER_SAMPLES = 128,
    MEMBER_RESTS = 256,
    MEMBER_UNLIKE = 512,
    MEMBER_REGISTRATION = 1024,
    MEMBER_VAGUE = 2048,
    MEMBER_ERROR = 4096,
    MEMBER_INFERRED = 8192,
    MEMBER_COUNTED = 16384,
    MEMBER_EDGES = 32768,
    MEMBER_HOST_CALLS = 65536,
    MEMBER_POLICY = 131072,
    MEMBER_UNWATCHED = 262144,
    MEMBER_KERNEL_RUNS = 524288,
    MEMBER_KERNEL_NOT_BEGUN = 1048576
};
enum {
    SAME_SIGNATURE = 1,
    SAME_CALLER = 2,
    SAME_TID = 4,
    RECORD_HASH = 8,
    RECORD_STARTED = 16,
    RECORD_COMPLETED = 32,
    OTHER_STREAM = 64,
    RECORD_JOINED = 128,
    RECORD_DURATION = 256,
    RECORD_REPLAY = 512
};

/* Injected faults of a process that are reported; a specification has no more. */
#define PROGRESS_FAULTS 16u

/*
 * Writes or reads. A writer's room is counted beforehand, so that writing cannot fail. A failure of
 * reading is recorded, and zeros are read from there on.
 */
struct ng_coder {
    bool writes, bad;
    unsigned char *bytes; /* of a writer, and how many */
    size_t used;
    const unsigned char *at, *end; /* of a reader */
    struct {
        const unsigned char *start;
        size_t length;
    } texts[NG_PROGRESS_TEXTS];
    uint32_t text_count;
    const unsigned char *group_ids; /* fixed, in the bytes */
    uint32_t group_count;
    struct ng_view_fault faults[PROGRESS_FAULTS];
    uint32_t fault_count;
    bool tells_failures; /* after the calls */
    struct ng_view_record before;
};

/* "NGPR" and the version. 0, or the error of ng_progress_decode. */
int ng_code_begin(struct ng_coder *coder);

/* A number below `limit` (0: any); a writer's is. */
uint64_t ng_code_number(struct ng_coder *coder, uint64_t value, uint64_t limit);
uint64_t ng_code_fixed(struct ng_coder *coder, uint64_t value);
void ng_code_text(struct ng_coder *coder, char *text, size_t room);

/* How many blocks follow: no more than there are bytes. */
uint32_t ng_code_count(struct ng_coder *coder, uint32_t count);

/* Id `index` of the groups of the blob. */
uint64_t ng_code_group_id(const struct ng_coder *coder, uint64_t index);

/*
 * One block each. A reader's struct is all zeros before, except for a record's; fields added by a
 * later writer are skipped; ages are safe to add. Operations may be unknown.
 */
void ng_code_head(struct ng_coder *coder, struct ng_progress_head *head);
void ng_code_group(struct ng_coder *coder, struct ng_view_group *group);
/* `bits`: MEMBER_…; `place`: index of its group. The member has room for NG_PROGRESS_SAMPLES
 * samples and NG_EDGES_MAX edges. */
bool ng_code_has_host_calls(const struct ng_view_member *member);
void ng_code_member(struct ng_coder *coder, struct ng_view_member *member, uint64_t *bits,
                    uint64_t *place);
void ng_code_record(struct ng_coder *coder, struct ng_view_record *record);
void ng_code_call(struct ng_coder *coder, struct ng_view_call *call);
void ng_code_failure(struct ng_coder *coder, struct ng_view_failure *failure);

#endif
