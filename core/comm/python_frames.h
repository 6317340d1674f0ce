/*
 * Where a call was made in Python: the innermost frames of the interpreter on the program's thread,
 * kept with its record.
 *
 * Only where NCCLGUARD_STACKS is `call` and the process has a CPython whose objects' layout is
 * known. The thread reads its own frames, and needs no lock of the interpreter for it: nobody but
 * itself pushes or pops them, they hold the code objects that they run, and those never change.
 * What a code object is called is copied when it is met first, and compared at each later call,
 * since another one may lie at its address by then. No lock, no allocation, no system call.
 *
 * One thing may take frames away from a thread: the end of the interpreter, which frees the states
 * of all other threads. Before that ng_python_frames_close must be called.
 */
#ifndef NCCLGUARD_CORE_COMM_PYTHON_FRAMES_H
#define NCCLGUARD_CORE_COMM_PYTHON_FRAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "core/comm/thread.h"
#include "core/recorder/python_code.h"
#include "core/runtime/runtime.h"

/* From 3.14 on a frame's reference to its code object has marks in bits that no address has. */
#define NG_PYTHON_TAGS UINT64_C(7)

/* Of CPython's objects: at which byte there is what. */
struct ng_python_layout {
    uint16_t state_frame;  /* of a thread's state: its innermost frame, or, where */
    bool state_has_cframe; /* is set, a pointer to what has that at */
    uint16_t cframe_frame;
    uint16_t frame_previous, frame_code, frame_instruction, frame_owner;
    uint8_t
        owner_interpreter; /* from this owner on frames are the interpreter's own; 255: none is */
    uint16_t code_file, code_name, code_first_line, code_lines, code_bytes;
    uint16_t text_length, text_state, text_ascii, text_other; /* the latter two: the text itself */
    uint16_t bytes_count, bytes_data;
    uint16_t object_type;
};

/* The interpreter of this process. */
struct ng_python_interpreter {
    struct ng_python_layout layout;
    const void *code_type;
    /* These take no lock and wait for nobody. */
    void *(*this_thread)(void); /* the calling thread's state in it; NULL none */
    int (*is_initialized)(void);
    /* The interpreters that were made last and first: where these differ, there are several. */
    void *(*newest)(void);
    void *(*first)(void);
};

/* From now on calls keep frames of Python; the box has room for them, or calls keep none. 0 or
 * -errno. Once, until ng_python_frames_after_fork; any thread. */
int ng_python_frames_start(const struct ng_python_interpreter *interpreter);

/*
 * No more, for ever: when this returns, no thread looks at the interpreter's objects. One that the
 * scheduler keeps from going on in the middle is waited for, but not longer than a second. Any
 * thread, any number of times.
 */
void ng_python_frames_close(void);

/* In a forked child. */
void ng_python_frames_after_fork(void);

/*
 * The frames of a thread's state, innermost first: code objects and offsets in their bytes. At most
 * `room`; *ret_cut: there are more. That thread itself.
 */
struct ng_python_spot {
    const uint8_t *code;
    uint32_t offset;
};
uint32_t ng_python_frames_walk(const struct ng_python_interpreter *interpreter, const void *state,
                               struct ng_python_spot *ret_spots, uint32_t room, bool *ret_cut);

/* What is told of a code object that somebody holds. False: its texts are of another form than is
 * known. */
bool ng_python_frames_describe(const struct ng_python_layout *layout, const void *code,
                               struct ng_python_code *ret_code);

/* The slow half of ng_python_frames_keep. */
void ng_python_frames_take(const struct ng_thread *thread, uint64_t record_id);

/* The frames of record `record_id`, which this thread has just made and writes to. */
static inline void ng_python_frames_keep(const struct ng_thread *thread, uint64_t record_id)
{
    if (ng_guard.box.python_capacity != 0)
        ng_python_frames_take(thread, record_id);
}

#endif
