/*
 * Writes the host stacks of a process; core/evidence/stacks.h takes them.
 *
 * rank_<r>.stacks.txt is for people; the HTML report folds it:
 *
 *   Stacks of rank 2, pid 1234 (python3 train.py) on host a.
 *   Look at: thread 1234 "python3", in read of /data/x.bin; Python: load (train.py:12) < step
 *   (train.py:40); native: read < os_read < …
 *   <empty>
 *   Thread 1234 "python3", in read of /data/x.bin
 *     in ncclAllReduce #7 of group 00c0ffee00c0ffee for 12 s
 *     Python, innermost first:
 *       File "train.py", line 12 in load
 *     Native, innermost first:
 *       #0  read+0x12 (/lib/libc.so.6+0xfe0c2)
 *     <what is missing of it>
 *   <empty, then the next thread; the guard's own are last>
 *   Files, with build ids:
 *     <build id or -> <path>
 *
 * The second line is present if one thread is more informative than the others. A frame shows the
 * function's name and the offset in it, if known, and the file with the address in it. `addr2line
 * -e FILE` takes this address; subtract one if the frame is not the innermost, since it is a return
 * address.
 *
 * In rank_<r>.json, the member "stacks" has the same data (null: not taken):
 *
 *   files    array: {"path": string, "build_id": hex digits, "" none}
 *   threads  array
 *     tid      int
 *     name     string
 *     inside   string: system call or state
 *     call     string: NCCL call, "" none
 *     python   array of string: "File \"train.py\", line 12 in load", innermost first
 *     frames   array, innermost first: {"name": string or null, "name_offset": int, "file": index
 *              in files or -1, "offset": address in the file, or in memory if no file}
 *     note     string: what is missing, "" nothing
 *   notes    array of string: what is missing for the whole process
 */
#ifndef NCCLGUARD_CORE_REPORT_STACKS_FORMAT_H
#define NCCLGUARD_CORE_REPORT_STACKS_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/unwind/image.h"
#include "core/unwind/registers.h"
#include "core/unwind/unwind.h"
#include "core/util/arena.h"
#include "core/util/json.h"
#include "core/view/view.h"

#define NG_STACKS_THREADS_MAX 1024 /* of a process; of the others, only the number is recorded */
#define NG_STACKS_FRAMES_MAX  64   /* of a thread, the innermost */
#define NG_STACKS_SUMMARY     "Look at: "

struct ng_stack_frame {
    struct ng_frame frame;
    const struct ng_image *image; /* NULL none */
    const char *name;             /* NULL not known */
    uint64_t name_offset;         /* of the address, from the function's start */
};

struct ng_stack_thread {
    int tid;
    bool of_guard;
    char name[32];              /* "" not known */
    struct ng_registers sleeps; /* registers while it sleeps in a system call; none: it does not */
    char doing[400];            /* what it is blocked in, in words */
    char call[160];             /* the NCCL call that it is inside; "" none */
    int64_t call_ns;            /* time in that call */
    struct ng_stack_frame *frames;
    uint32_t frame_count;
    const char *note; /* what is missing; NULL nothing */
    char **python;    /* lines, innermost first */
    uint32_t python_count;
};

struct ng_stacks {
    struct ng_arena arena;
    struct ng_images images;
    struct ng_stack_thread *threads; /* the most informative first, the guard's last */
    uint32_t thread_count;
    uint32_t threads_left_out;
    bool has_summary; /* the first thread is more informative than the others */
    const char *notes[4];
    uint32_t note_count;
};

/* The file's name: "rank_3.stacks.txt", or "rank_unknown_<pid>.stacks.txt". */
void ng_stacks_file_name(int rank, int pid, char *ret_name, size_t bytes);

/* Writes the stacks as text. 0, or -errno of writing to `fd`. */
int ng_stacks_write_text(const struct ng_stacks *stacks, const struct ng_view_process *process,
                         int rank, int fd);

/* The same as a file in `folder`, which is either complete or absent. 0 or -errno. */
int ng_stacks_save(const struct ng_stacks *stacks, const struct ng_view_process *process, int rank,
                   const char *folder);

/* Adds the member "stacks" to an open object. */
void ng_stacks_write_json(const struct ng_stacks *stacks, struct ng_json *json);

/*
 * Reads the second line of a stacks file in `folder`, without "Look at: ", for a report; truncates
 * it to `bytes`. *ret_unix_ns is when the file was written. 0, or -ENOENT: there is no such file or
 * line, or it belongs to another process than `pid` (0 not known).
 */
int ng_stacks_read_summary(const char *folder, int rank, int pid, char *ret_text, size_t bytes,
                           int64_t *ret_unix_ns);

#endif
