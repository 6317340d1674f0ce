/*
 * What the writer and the reader of a process's progress share: its first bytes, and names for the
 * bits of its blocks. store/wire/progress.h documents the layout, and is what others know of it.
 */
#ifndef NCCLGUARD_STORE_WIRE_PROGRESS_WIRE_H
#define NCCLGUARD_STORE_WIRE_PROGRESS_WIRE_H

static const char progress_magic[4] = {'N', 'G', 'P', 'R'};

/* Bits of the head, of a member, and of a record. */
enum {
    HEAD_WATCHDOG = 1,
    HEAD_ERROR = 2,
    HEAD_VARIABLES = 4,
    HEAD_FAILURES = 8,
    HEAD_MEMORY = 16,
    HEAD_NAN = 32,
    HEAD_ALIVE = 64
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
    MEMBER_ERROR = 4096
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

/* Parents and groups of calls: an index in the blob's groups follows from here. */
enum { ID_NONE = 0, ID_FIXED = 1, ID_INDEX = 2 };

/* Injected faults of a process that are told; a specification has no more. */
#define PROGRESS_FAULTS 16u

#endif
