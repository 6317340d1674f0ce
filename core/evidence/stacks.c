/*
 * Taking the host stacks of this process.
 *
 * Entered by the incident thread. While the program's threads are stopped it must wait for nothing
 * that they may hold, and never touch the memory that it walks: all reads go through the kernel.
 */
#include "core/evidence/stacks.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/evidence/blocked_in.h"
#include "core/evidence/tracer.h"
#include "core/runtime/runtime.h"
#include "core/unwind/symbols.h"
#include "core/unwind/unwind.h"
#include "core/util/clock.h"
#include "core/util/folder.h"
#include "core/util/macros.h"
#include "core/util/text.h"

#define STOP_NS      (250 * NG_MS) /* for all threads to stop; uninterruptible ones never do */
#define HOLD_NS      NG_S          /* of a hold, at most */
#define GRACE_NS     (250 * NG_MS)
#define WALK_NS      (500 * NG_MS)
#define NAME_NS      (500 * NG_MS) /* CPU time, from memory; and again from files */
#define PYTHON_BYTES (1u << 20)
#define GUARD_PREFIX "ncclguard/"

static void note(struct ng_stacks *stacks, const char *text)
{
    if (text && stacks->note_count < NG_COUNT(stacks->notes))
        stacks->notes[stacks->note_count++] = text;
}

/* For a sleeping thread that did not stop, the kernel reports two of its registers. */
static struct ng_registers registers_of_sleeper(const struct ng_blocked_in *inside)
{
    struct ng_registers registers = {0};

    if (!inside->in_system)
        return registers;
    registers.value[NG_REGISTER_PROGRAM] = inside->program;
    registers.value[NG_REGISTER_STACK] = inside->stack;
    registers.known = UINT64_C(1) << NG_REGISTER_PROGRAM | UINT64_C(1) << NG_REGISTER_STACK;
    return registers;
}

/* ---- Which threads ---- */

static int list_threads(struct ng_stacks *stacks)
{
    struct ng_blocked_in inside;
    struct ng_folder tasks;
    const char *name;

    int error = ng_folder_open(&tasks, "/proc/self/task", true);
    if (error)
        return error;
    while ((name = ng_folder_next(&tasks))) {
        int tid = atoi(name);
        if (tid <= 0 || tid == gettid())
            continue;
        if (stacks->thread_count == NG_STACKS_THREADS_MAX) {
            stacks->threads_left_out++;
            continue;
        }
        struct ng_stack_thread *thread = &stacks->threads[stacks->thread_count];
        *thread = (struct ng_stack_thread){.tid = tid};
        if (ng_blocked_in_read(tid, &inside) != 0)
            continue;
        memcpy(thread->name, inside.name, sizeof(thread->name));
        thread->sleeps = registers_of_sleeper(&inside);
        ng_blocked_in_describe(&inside, thread->doing, sizeof(thread->doing));
        thread->of_guard = strncmp(thread->name, GUARD_PREFIX, strlen(GUARD_PREFIX)) == 0;
        stacks->thread_count++;
    }
    ng_folder_close(&tasks);
    return 0;
}

/* The NCCL call that each is inside, from the black box. */
static void add_calls(struct ng_stacks *stacks)
{
    const struct ng_box *box = &ng_guard.box;
    int64_t now = ng_clock_mono_ns();
    uint32_t used = box->header ? NG_LOAD(box->header->thread_used) : 0;

    for (uint32_t i = 0; i < used && i < box->thread_capacity; i++) {
        struct ng_box_thread *slot = &box->threads[i];
        uint32_t tid = NG_LOAD(slot->tid), op = NG_LOAD(slot->op);
        uint32_t group = NG_LOAD(slot->group_slot);
        for (uint32_t k = 0; op && k < stacks->thread_count; k++) {
            struct ng_stack_thread *thread = &stacks->threads[k];
            struct ng_text text = {thread->call, 0, sizeof(thread->call)};
            if ((uint32_t)thread->tid != tid)
                continue;
            thread->call_ns = now - NG_LOAD(slot->since_mono_ns);
            ng_text_add(&text, "in nccl%s", ng_op_name(op));
            if (NG_LOAD(slot->seq))
                ng_text_add(&text, " #%" PRIu64, NG_LOAD(slot->seq));
            if (group < box->group_capacity)
                ng_text_add(&text, " of group %016" PRIx64, NG_LOAD(box->groups[group].id));
            ng_text_add(&text, " for %" PRId64 " ms", thread->call_ns / NG_MS);
        }
    }
}

/* The thread that made the process's newest NCCL call: the most relevant one if no thread is inside
 * a call. */
static int newest_caller(void)
{
    const struct ng_box *box = &ng_guard.box;
    uint64_t next = box->header ? NG_LOAD(box->header->record_next) : 0;

    if (next < 2 || !box->record_capacity)
        return 0;
    return (int)NG_LOAD(box->records[(next - 1) % box->record_capacity].tid);
}

/*
 * Put the most informative thread first: the one inside a NCCL call for the longest time; if none
 * is, the one that made the newest call, else the first thread.
 */
static void put_first(struct ng_stacks *stacks)
{
    int caller = newest_caller();
    int64_t best_rank = -1;
    uint32_t best = 0;

    for (uint32_t i = 0; i < stacks->thread_count; i++) {
        const struct ng_stack_thread *thread = &stacks->threads[i];
        int64_t rank = thread->of_guard          ? -1
                       : thread->call[0]         ? 2 + thread->call_ns
                       : thread->tid == caller   ? 2
                       : thread->tid == getpid() ? 1
                                                 : 0;
        if (rank > best_rank) {
            best = i;
            best_rank = rank;
        }
    }
    if (best_rank < 0)
        return;
    struct ng_stack_thread first = stacks->threads[best];
    memmove(&stacks->threads[1], &stacks->threads[0], best * sizeof(first));
    stacks->threads[0] = first;
    stacks->has_summary = best_rank > 0;
}

/* ---- Walking ---- */

static const char *missing(const struct ng_traced *traced, enum ng_unwind_end end)
{
    static const char *const ends[] = {
        [NG_UNWIND_WHOLE] = NULL,
        [NG_UNWIND_NO_ROOM] = "more frames follow",
        [NG_UNWIND_NO_RULE] = "further frames are not known: the code says nothing of them",
        [NG_UNWIND_UNREADABLE] = "further frames are not known: the stack cannot be read",
        [NG_UNWIND_NO_REGISTER] = "further frames are not known: they need registers",
    };

    switch (traced->state) {
    case NG_TRACED_HELD:
        return ends[end];
    case NG_TRACED_GONE:
        return "it ended meanwhile";
    case NG_TRACED_ASKED:
        return "it did not stop: only what the kernel reports of it is known";
    default:
        return "the system does not let its registers be read: only what the kernel reports of it "
               "is known";
    }
}

static void walk(struct ng_stacks *stacks, struct ng_stack_thread *thread,
                 const struct ng_traced *traced)
{
    struct ng_frame frames[NG_STACKS_FRAMES_MAX];
    struct ng_registers registers =
        traced->state == NG_TRACED_HELD ? traced->registers : thread->sleeps;
    enum ng_unwind_end end = NG_UNWIND_WHOLE;
    uint32_t count = 0;

    if (traced->state != NG_TRACED_GONE)
        count = ng_unwind(&stacks->images, &registers, frames, NG_STACKS_FRAMES_MAX, &end);
    thread->note = missing(traced, end);
    thread->frames = ng_arena_alloc(&stacks->arena, count * sizeof(thread->frames[0]));
    if (!thread->frames)
        return;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t place = frames[i].address - !frames[i].interrupted;
        thread->frames[i].frame = frames[i];
        thread->frames[i].image = ng_images_find(&stacks->images, place);
    }
    thread->frame_count = count;
}

static void walk_all(struct ng_stacks *stacks, const struct ng_traced *traced)
{
    int64_t until = ng_clock_mono_ns() + WALK_NS;

    for (uint32_t i = 0; i < stacks->thread_count; i++) {
        if (ng_clock_mono_ns() > until)
            stacks->threads[i].note = "there was no time left for its stack";
        else
            walk(stacks, &stacks->threads[i], &traced[i]);
    }
}

/* ---- Python ---- */

/* The C library's handle of a thread, as Python prints it. */
static uint64_t handle_of(uint64_t thread_pointer)
{
#if defined(__x86_64__)
    return thread_pointer;
#else
    /* At a fixed offset from the C library's descriptor of the thread. */
    return thread_pointer + (uint64_t)pthread_self() - (uint64_t)__builtin_thread_pointer();
#endif
}

static struct ng_stack_thread *thread_of(struct ng_stacks *stacks, const struct ng_traced *traced,
                                         uint64_t handle)
{
    for (uint32_t i = 0; i < stacks->thread_count; i++)
        if (traced[i].state == NG_TRACED_HELD && handle_of(traced[i].thread_pointer) == handle)
            return &stacks->threads[i];
    return NULL;
}

/* "Thread 0x00007f1234567890 [name] (most recent call first):", or "Current thread 0x…". */
static bool parse_header(const char *line, uint64_t *ret_handle)
{
    const char *at = strstr(line, "hread 0x");

    if (!at || line[0] == ' ')
        return false;
    *ret_handle = strtoull(at + strlen("hread "), NULL, 16);
    return true;
}

static uint32_t count_lines(char *text)
{
    uint32_t lines = 1;

    for (char *at = text; (at = strchr(at, '\n')); at++)
        lines++;
    return lines;
}

/* Assign the lines to the threads that they describe. */
static void share_python(struct ng_stacks *stacks, const struct ng_traced *traced, char *text)
{
    char **lines = ng_arena_alloc(&stacks->arena, count_lines(text) * sizeof(lines[0]));
    struct ng_stack_thread *thread = NULL;
    bool strangers = false;
    uint64_t handle;

    for (char *line = text, *next; line && lines; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        if (parse_header(line, &handle)) {
            thread = thread_of(stacks, traced, handle);
            strangers |= !thread;
            /* If one thread has states of two interpreters, the last one is kept. */
            if (thread) {
                thread->python = lines;
                thread->python_count = 0;
            }
        } else if (line[0] == ' ' && thread) {
            *lines++ = line + strspn(line, " ");
            thread->python_count++;
        }
    }
    if (strangers)
        note(stacks, "Python stacks of threads that were not examined are left out");
}

static void take_python(struct ng_stacks *stacks, const struct ng_traced *traced,
                        int (*read_python)(char *ret_text, size_t bytes))
{
    char *text = read_python ? ng_arena_alloc(&stacks->arena, PYTHON_BYTES) : NULL;

    if (!text)
        return;
    int length = read_python(text, PYTHON_BYTES - 1);
    if (length > 0)
        share_python(stacks, traced, text);
    else if (length == -EAGAIN)
        note(stacks, "no Python stacks: the first thread has not come back to the interpreter "
                     "since the first communicator");
    else if (length != -ENOENT)
        note(stacks, "no Python stacks: the interpreter does not give them");
}

/* ---- Names ---- */

/* Add names from one source to all frames; returns how many were found. */
static uint32_t name_all(struct ng_stacks *stacks, ng_symbol_source *source)
{
    struct ng_stack_frame **frames;
    struct ng_symbol_wanted *wanted;
    uint32_t count = 0, named = 0;

    for (uint32_t i = 0; i < stacks->thread_count; i++)
        count += stacks->threads[i].frame_count;
    frames = ng_arena_alloc(&stacks->arena, count * sizeof(frames[0]));
    wanted = ng_arena_alloc(&stacks->arena, count * sizeof(wanted[0]));
    if (!frames || !wanted)
        return 0;
    count = 0;
    for (uint32_t i = 0; i < stacks->thread_count; i++)
        NG_EACH (frame, stacks->threads[i].frames, stacks->threads[i].frame_count) {
            if (!frame->image)
                continue;
            frames[count] = frame;
            wanted[count++] = (struct ng_symbol_wanted){
                .image = frame->image, .place = frame->frame.address - !frame->frame.interrupted};
        }
    ng_symbolize(wanted, count, source, ng_clock_thread_ns() + NAME_NS, &stacks->arena);
    for (uint32_t i = 0; i < count; i++) {
        if (!wanted[i].name)
            continue;
        named += !frames[i]->name || strcmp(frames[i]->name, wanted[i].name) != 0;
        frames[i]->name = wanted[i].name;
        frames[i]->name_offset = frames[i]->frame.address - wanted[i].start;
    }
    return named;
}

bool ng_stacks_name_from_files(struct ng_stacks *stacks)
{
    return name_all(stacks, ng_symbols_of_file) > 0;
}

/* ---- All of it ---- */

/* Other processes see our threads stopped, and must not consider us frozen; also for a moment
 * afterwards, since they may act on what they saw before. */
static void tell_held(int64_t for_ns)
{
    if (ng_guard.box.header)
        NG_STORE(ng_guard.box.header->held_until_mono_ns, ng_clock_mono_ns() + for_ns);
}

/* A thread in uninterruptible sleep counts as stopped: it cannot run. */
static bool all_still(const struct ng_stacks *stacks, const struct ng_traced *traced)
{
    NG_EACH (entry, traced, stacks->thread_count)
        if (entry->state == NG_TRACED_NOT_ASKED || entry->state == NG_TRACED_REFUSED)
            return false;
    return !stacks->threads_left_out;
}

static int look(struct ng_stacks *stacks, int (*read_python)(char *ret_text, size_t bytes))
{
    uint32_t count = stacks->thread_count;
    struct ng_tracer *tracer = ng_arena_alloc(&stacks->arena, sizeof(*tracer));
    struct ng_traced *traced = ng_arena_alloc(&stacks->arena, (count + 1) * sizeof(traced[0]));

    if (!tracer || !traced)
        return -ENOMEM;
    for (uint32_t i = 0; i < count; i++)
        traced[i].tid = stacks->threads[i].tid;
    tell_held(STOP_NS + HOLD_NS + GRACE_NS);
    int error = ng_tracer_hold(tracer, traced, count, STOP_NS, HOLD_NS, &stacks->arena);
    if (error) {
        note(stacks,
             "the threads could not be stopped: only what the kernel reports of them is known");
        for (uint32_t i = 0; i < count; i++)
            traced[i].state = NG_TRACED_NOT_ASKED;
    }
    /* First: the interpreter walks its own stacks, and would crash if they changed meanwhile. */
    if (all_still(stacks, traced))
        take_python(stacks, traced, read_python);
    else if (read_python)
        note(stacks, "no Python stacks: they can be read only while all threads stand still");
    walk_all(stacks, traced);
    if (!ng_tracer_release(tracer))
        /* A helper that does not end even when killed may still write to this memory, so it is
         * never reused. */
        stacks->arena.chunks = NULL;
    tell_held(GRACE_NS);
    return 0;
}

int ng_stacks_take(int (*read_python)(char *ret_text, size_t bytes), struct ng_stacks *ret_stacks)
{
    struct ng_stacks *stacks = ret_stacks;

    memset(stacks, 0, sizeof(*stacks));
    stacks->threads =
        ng_arena_alloc(&stacks->arena, NG_STACKS_THREADS_MAX * sizeof(stacks->threads[0]));
    int error = (stacks->threads ? ng_images_read(&stacks->arena, &stacks->images) : -ENOMEM)
                    ?: list_threads(stacks);
    if (error) {
        ng_stacks_fini(stacks);
        return error;
    }
    if (!stacks->images.complete)
        note(stacks, "more libraries are loaded than were examined");
    add_calls(stacks);
    put_first(stacks);
    error = look(stacks, read_python);
    if (error) {
        ng_stacks_fini(stacks);
        return error;
    }
    name_all(stacks, ng_symbols_of_memory);
    return 0;
}

void ng_stacks_fini(struct ng_stacks *stacks)
{
    ng_arena_reset(&stacks->arena);
    memset(stacks, 0, sizeof(*stacks));
}
