/*
 * Writes the host stacks of this process.
 *
 * Called by the incident thread; the summary also by threads that write a verdict. Must never let a
 * name that the program chose reach a terminal unescaped.
 */
#include "core/report/stacks_format.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/util/clock.h"
#include "core/util/macros.h"
#include "core/util/text.h"

#define SUMMARY_FRAMES 6
#define SUMMARY_CALLS  3 /* Python frames */

void ng_stacks_file_name(int rank, int pid, char *ret_name, size_t bytes)
{
    if (rank >= 0)
        snprintf(ret_name, bytes, "rank_%d.stacks.txt", rank);
    else
        snprintf(ret_name, bytes, "rank_unknown_%d.stacks.txt", pid);
}

/* The address in the file, as used for lookup; in memory if there is no file. */
static uint64_t offset_of(const struct ng_stack_frame *frame)
{
    return frame->frame.address - (frame->image ? frame->image->bias : 0);
}

static void hex_of(const struct ng_image *image, char *ret_text)
{
    for (uint32_t i = 0; i < image->build_id_bytes; i++)
        snprintf(ret_text + 2 * i, 3, "%02x", image->build_id[i]);
    ret_text[2 * image->build_id_bytes] = '\0';
}

/* Does any frame lie in this image? Only used images are numbered. */
static bool is_used(const struct ng_stacks *stacks, const struct ng_image *image)
{
    for (uint32_t i = 0; i < stacks->thread_count; i++)
        for (uint32_t k = 0; k < stacks->threads[i].frame_count; k++)
            if (stacks->threads[i].frames[k].image == image)
                return true;
    return false;
}

/* ---- For people ---- */

/* Adds 'File "/a/train.py", line 12 in load' as 'load (train.py:12)'; a line of another form is
 * added unchanged. */
static void add_python(struct ng_text *text, const char *line)
{
    const char *path = strchr(line, '"'), *end = path ? strstr(path + 1, "\", line ") : NULL;
    const char *function = end ? strstr(end, " in ") : NULL;

    if (!function) {
        ng_text_add(text, "%.120s", line);
        return;
    }
    const char *file = end;
    while (file > path + 1 && file[-1] != '/')
        file--;
    ng_text_add(text, "%.80s (%.*s:%d)", function + strlen(" in "), (int)(end - file), file,
                atoi(end + strlen("\", line ")));
}

static void add_frame(struct ng_text *text, const struct ng_stack_frame *frame)
{
    const char *slash = frame->image ? strrchr(frame->image->path, '/') : NULL;

    if (frame->name)
        ng_text_add(text, "%.80s", frame->name);
    else if (frame->image)
        ng_text_add(text, "%.60s+0x%" PRIx64, slash ? slash + 1 : frame->image->path,
                    offset_of(frame));
    else
        ng_text_add(text, "0x%" PRIx64, offset_of(frame));
}

static void summarize(const struct ng_stack_thread *thread, struct ng_text *text)
{
    ng_text_add(text, "thread %d \"%s\", %s", thread->tid, thread->name, thread->doing);
    if (thread->call[0])
        ng_text_add(text, ", %s", thread->call);
    for (uint32_t i = 0; i < thread->python_count && i < SUMMARY_CALLS; i++) {
        ng_text_add(text, i ? " < " : "; Python: ");
        add_python(text, thread->python[i]);
    }
    for (uint32_t i = 0; i < thread->frame_count && i < SUMMARY_FRAMES; i++) {
        ng_text_add(text, i ? " < " : "; native: ");
        add_frame(text, &thread->frames[i]);
    }
}

static void write_frame(struct ng_output *output, uint32_t number,
                        const struct ng_stack_frame *frame)
{
    ng_output_format(output, "    #%-2" PRIu32 " ", number);
    if (frame->name) {
        ng_output_safe(output, frame->name);
        ng_output_format(output, "+0x%" PRIx64 " (", frame->name_offset);
    } else {
        ng_output_format(output, "? (");
    }
    if (frame->image) {
        ng_output_safe(output, frame->image->path);
        ng_output_format(output, "+");
    }
    ng_output_format(output, "0x%" PRIx64 ")\n", offset_of(frame));
}

static void write_thread(struct ng_output *output, const struct ng_stack_thread *thread)
{
    ng_output_format(output, "\nThread %d \"", thread->tid);
    ng_output_safe(output, thread->name);
    ng_output_format(output, "\", ");
    ng_output_safe(output, thread->doing);
    ng_output_format(output, "\n");
    if (thread->call[0])
        ng_output_format(output, "  %s\n", thread->call);
    if (thread->python_count)
        ng_output_format(output, "  Python, innermost first:\n");
    for (uint32_t i = 0; i < thread->python_count; i++) {
        ng_output_format(output, "    ");
        ng_output_safe(output, thread->python[i]);
        ng_output_format(output, "\n");
    }
    if (thread->frame_count)
        ng_output_format(output, "  Native, innermost first:\n");
    for (uint32_t i = 0; i < thread->frame_count; i++)
        write_frame(output, i, &thread->frames[i]);
    if (thread->note)
        ng_output_format(output, "  (%s)\n", thread->note);
}

static void write_files(struct ng_output *output, const struct ng_stacks *stacks)
{
    char id[2 * NG_BUILD_ID_BYTES + 1];

    ng_output_format(output, "\nFiles, with build ids:\n");
    NG_EACH (image, stacks->images.images, stacks->images.count) {
        if (!is_used(stacks, image))
            continue;
        hex_of(image, id);
        ng_output_format(output, "  %-40s ", id[0] ? id : "-");
        ng_output_safe(output, image->path);
        ng_output_format(output, "\n");
    }
}

int ng_stacks_write_text(const struct ng_stacks *stacks, const struct ng_view_process *process,
                         int rank, int fd)
{
    struct ng_output output;
    char line[900];
    struct ng_text text = {line, 0, sizeof(line)};

    ng_output_init(&output, fd);
    ng_output_format(&output, "Stacks of ");
    if (rank >= 0)
        ng_output_format(&output, "rank %d, ", rank);
    ng_output_format(&output, "pid %d (", process->pid);
    ng_output_safe(&output, process->program);
    ng_output_format(&output, ") on host ");
    ng_output_safe(&output, process->host);
    ng_output_format(&output, ".\n");
    if (stacks->has_summary) {
        summarize(&stacks->threads[0], &text);
        ng_output_format(&output, NG_STACKS_SUMMARY);
        ng_output_safe(&output, line);
        ng_output_format(&output, "\n");
    }
    for (uint32_t i = 0; i < stacks->note_count; i++)
        ng_output_format(&output, "(%s)\n", stacks->notes[i]);
    for (uint32_t i = 0; i < stacks->thread_count; i++)
        if (!stacks->threads[i].of_guard)
            write_thread(&output, &stacks->threads[i]);
    for (uint32_t i = 0; i < stacks->thread_count; i++)
        if (stacks->threads[i].of_guard)
            write_thread(&output, &stacks->threads[i]);
    if (stacks->threads_left_out)
        ng_output_format(&output, "\n%" PRIu32 " more threads are left out.\n",
                         stacks->threads_left_out);
    write_files(&output, stacks);
    return ng_output_flush(&output);
}

struct content {
    const struct ng_stacks *stacks;
    const struct ng_view_process *process;
    int rank;
};

static int write_content(const void *context, int fd)
{
    const struct content *content = context;

    return ng_stacks_write_text(content->stacks, content->process, content->rank, fd);
}

int ng_stacks_save(const struct ng_stacks *stacks, const struct ng_view_process *process, int rank,
                   const char *folder)
{
    struct content content = {stacks, process, rank};
    char name[64];

    ng_stacks_file_name(rank, process->pid, name, sizeof(name));
    return ng_output_save(folder, name, write_content, &content);
}

int ng_stacks_read_summary(const char *folder, int rank, int pid, char *ret_text, size_t bytes,
                           int64_t *ret_unix_ns)
{
    char name[64], path[4096 + 64], head[2048];
    struct stat status = {0};

    ng_stacks_file_name(rank, pid, name, sizeof(name));
    if (snprintf(path, sizeof(path), "%s/%s", folder, name) >= (int)sizeof(path))
        return -ENOENT;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return -ENOENT;
    ssize_t got = fstat(fd, &status) == 0 ? read(fd, head, sizeof(head) - 1) : 0;
    close(fd);
    head[got > 0 ? got : 0] = '\0';
    char *line = strstr(head, "\n" NG_STACKS_SUMMARY);
    /* If the file belongs to another process, it is from an earlier run. */
    snprintf(name, sizeof(name), "pid %d (", pid);
    char *owner = strstr(head, name);
    if (!line || (pid > 0 && (!owner || owner > line)))
        return -ENOENT;
    line += strlen("\n" NG_STACKS_SUMMARY);
    line[strcspn(line, "\n")] = '\0';
    snprintf(ret_text, bytes, "%s", line);
    *ret_unix_ns = status.st_mtim.tv_sec * NG_S + status.st_mtim.tv_nsec;
    return 0;
}

/* ---- For programs ---- */

/* The number of an image among the used ones; -1 none. */
static int number_of(const struct ng_stacks *stacks, const int *numbers,
                     const struct ng_image *image)
{
    return image ? numbers[image - stacks->images.images] : -1;
}

static void put_frame(const struct ng_stacks *stacks, const int *numbers,
                      const struct ng_stack_frame *frame, struct ng_json *json)
{
    ng_json_open_object(json, NULL, NG_JSON_COMPACT);
    ng_json_string(json, "name", frame->name);
    ng_json_uint(json, "name_offset", frame->name ? frame->name_offset : 0);
    ng_json_int(json, "file", number_of(stacks, numbers, frame->image));
    ng_json_int(json, "offset", (int64_t)offset_of(frame));
    ng_json_close_object(json);
}

static void put_thread(const struct ng_stacks *stacks, const int *numbers,
                       const struct ng_stack_thread *thread, struct ng_json *json)
{
    ng_json_open_object(json, NULL, NG_JSON_LINES);
    ng_json_int(json, "tid", thread->tid);
    ng_json_string(json, "name", thread->name);
    ng_json_string(json, "inside", thread->doing);
    ng_json_string(json, "call", thread->call);
    ng_json_strings(json, "python", thread->python, thread->python_count);
    ng_json_open_array(json, "frames", NG_JSON_LINES);
    for (uint32_t i = 0; i < thread->frame_count; i++)
        put_frame(stacks, numbers, &thread->frames[i], json);
    ng_json_close_array(json);
    ng_json_string(json, "note", thread->note ? thread->note : "");
    ng_json_close_object(json);
}

/* Writes and numbers the files; files without frames get no number. */
static void put_files(const struct ng_stacks *stacks, int *ret_numbers, struct ng_json *json)
{
    char id[2 * NG_BUILD_ID_BYTES + 1];
    int next = 0;

    ng_json_open_array(json, "files", NG_JSON_LINES);
    for (uint32_t i = 0; i < stacks->images.count; i++) {
        const struct ng_image *image = &stacks->images.images[i];
        ret_numbers[i] = -1;
        if (!is_used(stacks, image))
            continue;
        ret_numbers[i] = next++;
        hex_of(image, id);
        ng_json_open_object(json, NULL, NG_JSON_COMPACT);
        ng_json_string(json, "path", image->path);
        ng_json_string(json, "build_id", id);
        ng_json_close_object(json);
    }
    ng_json_close_array(json);
}

void ng_stacks_write_json(const struct ng_stacks *stacks, struct ng_json *json)
{
    int numbers[NG_IMAGES_MAX];

    ng_json_open_object(json, "stacks", NG_JSON_LINES);
    put_files(stacks, numbers, json);
    ng_json_open_array(json, "threads", NG_JSON_LINES);
    for (uint32_t i = 0; i < stacks->thread_count; i++)
        put_thread(stacks, numbers, &stacks->threads[i], json);
    ng_json_close_array(json);
    ng_json_open_array(json, "notes", NG_JSON_LINES);
    for (uint32_t i = 0; i < stacks->note_count; i++)
        ng_json_string(json, NULL, stacks->notes[i]);
    ng_json_close_array(json);
    ng_json_close_object(json);
}
