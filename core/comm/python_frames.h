/*
 * The Python call site: the innermost interpreter frames of the program's thread, kept with the
 * call's record.
 *
 * Only if NCCLGUARD_STACKS is `call` and the process has a CPython with a known object layout. The
 * thread reads its own frames and needs no interpreter lock: only the thread itself pushes or pops
 * them, they hold references to the code objects that they run, and code objects never change. The
 * names of a code object are copied when it is first seen, and compared at each later call, since
 * another code object may be at its address by then. No lock, no allocation, no system call.
 *
 * Only the end of the interpreter can free another thread's frames, with the states of all other
 * threads. ng_python_frames_close must be called before that.
 */
#ifndef NCCLGUARD_CORE_COMM_PYTHON_FRAMES_H
#define NCCLGUARD_CORE_COMM_PYTHON_FRAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "core/comm/thread.h"
#include "core/recorder/python_code.h"
#include "core/runtime/runtime.h"

/* From 3.14 on a frame's reference to its code object has tag bits that no address has. */
#define NG_PYTHON_TAGS UINT64_C(7)

/* Byte offsets in CPython's objects. */
struct ng_python_layout {
    uint16_t state_frame;  /* in a thread's state: its innermost frame or, if */
    bool state_has_cframe; /* is set, a pointer to a structure that has it at */
    uint16_t cframe_frame;
    uint16_t frame_previous, frame_code, frame_instruction, frame_owner;
    uint8_t owner_interpreter; /* frames with this owner or greater are the interpreter's own; 255:
                                  none */
    uint16_t code_file, code_name, code_first_line, code_lines, code_bytes;
    uint16_t text_length, text_state, text_ascii, text_other; /* the last two: the text itself */
    uint16_t bytes_count, bytes_data;
    uint16_t object_type;
};

/* The interpreter of this process. */
struct ng_python_interpreter {
    struct ng_python_layout layout;
    const void *code_type;
    /* These functions take no lock and never wait. */
    void *(*this_thread)(void); /* the calling thread's state in this interpreter; NULL none */
    int (*is_initialized)(void);
    /* The interpreters created last and first: if they differ, there are several. */
    void *(*newest)(void);
    void *(*first)(void);
};

/* From now on calls keep Python frames, if the box has room for them. 0 or -errno. Once, until
 * ng_python_frames_after_fork; any thread. */
int ng_python_frames_start(const struct ng_python_interpreter *interpreter);

/*
 * Stop for ever: when this returns, no thread reads the interpreter's objects. Waits, for a second
 * at most, for a thread that was preempted while reading. Any thread, any number of times.
 */
void ng_python_frames_close(void);

/* In a forked child. */
void ng_python_frames_after_fork(void);

/*
 * The frames of a thread's state, innermost first: code objects, and offsets in their bytecode. At
 * most `room`; *ret_cut: there are more. Called by that thread itself.
 */
struct ng_python_spot {
    const uint8_t *code;
    uint32_t offset;
};
uint32_t ng_python_frames_walk(const struct ng_python_interpreter *interpreter, const void *state,
                               struct ng_python_spot *ret_spots, uint32_t room, bool *ret_cut);

/* Describe a code object to which a reference is held. False: its strings have an unknown form. */
bool ng_python_frames_describe(const struct ng_python_layout *layout, const void *code,
                               struct ng_python_code *ret_code);

/* The slow half of ng_python_frames_keep. */
void ng_python_frames_take(const struct ng_thread *thread, uint64_t record_id);

/* Keep the frames of record `record_id`, which this thread has just added and still writes. */
static inline void ng_python_frames_keep(const struct ng_thread *thread, uint64_t record_id)
{
    if (ng_guard.box.python_capacity != 0)
        ng_python_frames_take(thread, record_id);
}

#endif
