/*
 * Stacks of many ranks, with identical ones listed once.
 *
 * Used by `ncclguard analyze`. Files may be of any origin and damaged: they are text, cut off at
 * some length.
 */
#include "tools/render/stack_groups.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/util/small_file.h"
#include "tools/base/demangle.h"
#include "tools/base/grow.h"
#include "tools/base/owned.h"

#define PREFIX "rank_"
#define SUFFIX ".stacks.txt"

#define FILE_BYTES_MAX (8u << 20)
#define STACKS_MAX     20000u /* distinct ones; a page with more is useless */
#define ADDRESS_DIGITS 6      /* hexadecimal numbers this long are addresses */
#define ID_DIGITS      12     /* and these are ids of groups */

#define THREAD  "Thread "
#define CALL    "  in "
#define SUMMARY "\nLook at: "
#define FILES   "\n\nFiles, with build ids:\n"

/* ---- Comparison ---- */

static uint64_t mix(uint64_t hash, unsigned char byte)
{
    return (hash ^ byte) * UINT64_C(0x100000001b3);
}

/* The line that names the thread, its current call, the group and the age. */
static bool tells_numbers(const char *line, size_t length, bool title)
{
    return title || (length > strlen(CALL) && strncmp(line, CALL, strlen(CALL)) == 0);
}

/* Hash of a line without the parts that differ between processes. */
static uint64_t hash_line(uint64_t hash, const char *line, size_t length, bool title)
{
    bool numbers = tells_numbers(line, length, title);

    for (size_t i = 0; i < length;) {
        size_t digits = 0;
        while (numbers && i + digits < length && isxdigit((unsigned char)line[i + digits]))
            digits++;
        if (digits >= ID_DIGITS) {
            i += digits;
            continue;
        }
        digits = 0;
        if (numbers && isdigit((unsigned char)line[i])) {
            i++;
            continue;
        }
        if (line[i] == '0' && i + 1 < length && line[i + 1] == 'x')
            while (i + 2 + digits < length && isxdigit((unsigned char)line[i + 2 + digits]))
                digits++;
        if (digits >= ADDRESS_DIGITS) {
            i += 2 + digits;
            continue;
        }
        hash = mix(hash, (unsigned char)line[i++]);
    }
    return mix(hash, '\n');
}

/* ---- The table of stacks ---- */

static uint32_t *slot_of(const struct ng_stack_groups *folded, uint64_t hash)
{
    uint32_t mask = folded->slot_count - 1, at = (uint32_t)(hash >> 20) & mask;

    while (folded->slots[at] && folded->stacks[folded->slots[at] - 1].hash != hash)
        at = (at + 1) & mask;
    return &folded->slots[at];
}

static bool make_room(struct ng_stack_groups *folded)
{
    if (folded->count < folded->room)
        return true;
    uint32_t room = folded->room ? folded->room * 2 : 64;
    struct ng_stack_group *stacks = realloc(folded->stacks, room * sizeof(*stacks));
    if (!stacks)
        return false;
    folded->stacks = stacks;
    folded->room = room;
    uint32_t *slots = calloc(room * 2, sizeof(*slots));
    if (!slots)
        return false;
    free(folded->slots);
    folded->slots = slots;
    folded->slot_count = room * 2;
    for (uint32_t i = 0; i < folded->count; i++)
        *slot_of(folded, folded->stacks[i].hash) = i + 1;
    return true;
}

static bool add_rank(struct ng_stack_group *stack, int rank)
{
    uint32_t at = stack->rank_count;

    stack->threads++;
    while (at > 0 && stack->ranks[at - 1] > rank)
        at--;
    if (at > 0 && stack->ranks[at - 1] == rank)
        return true;
    if (!NG_GROW(stack->ranks, stack->rank_count, stack->rank_room))
        return false;
    memmove(&stack->ranks[at + 1], &stack->ranks[at], (stack->rank_count - at) * sizeof(int));
    stack->ranks[at] = rank;
    stack->rank_count++;
    return true;
}

/* The list of files at the end of a text; it is copied for the first stack that needs it, since
 * most ranks have the stacks of others. */
struct file_list {
    const char *text;
    bool kept;
};

/* One paragraph. */
static int add_stack(struct ng_stack_groups *folded, int rank, struct file_list *files,
                     const char *text, size_t length)
{
    const char *end = memchr(text, '\n', length);
    size_t title = end ? (size_t)(end - text) : length;
    uint64_t hash = hash_line(UINT64_C(0xcbf29ce484222325), text, title, true);

    for (size_t at = title + 1; at < length;) {
        end = memchr(text + at, '\n', length - at);
        size_t line = end ? (size_t)(end - text) - at : length - at;
        hash = hash_line(hash, text + at, line, false);
        at += line + 1;
    }
    if (!make_room(folded))
        return -ENOMEM;
    uint32_t *slot = slot_of(folded, hash);
    if (!*slot) {
        if (folded->count == STACKS_MAX)
            return 0;
        struct ng_arena *arena = &folded->arena;
        const char *rest = text + (title < length ? title + 1 : length);
        if (!files->kept)
            *files = (struct file_list){ng_arena_strdup(arena, files->text), true};
        struct ng_stack_group stack = {
            .title = ng_arena_strndup(arena, text, title),
            .text = ng_arena_strndup(arena, rest, (size_t)(text + length - rest)),
            .hash = hash,
            .files = files->text};
        if (!stack.title || !stack.text || !stack.files)
            return -ENOMEM;
        folded->stacks[folded->count++] = stack;
        *slot = folded->count;
    }
    return add_rank(&folded->stacks[*slot - 1], rank) ? 0 : -ENOMEM;
}

/* From the first paragraph, which describes the process; some have none. */
static int add_summary(struct ng_stack_groups *folded, int rank, const char *text, size_t length)
{
    const char *line = memmem(text, length, SUMMARY, strlen(SUMMARY));

    if (!line)
        return 0;
    line += strlen(SUMMARY);
    char *copy = NG_GROW(folded->summaries, folded->summary_count, folded->summary_room)
                     ? ng_arena_strndup(&folded->arena, line, strcspn(line, "\n"))
                     : NULL;
    if (!copy)
        return -ENOMEM;
    folded->summaries[folded->summary_count++] = (struct ng_stack_groups_summary){rank, copy};
    return 0;
}

int ng_stack_groups_add(struct ng_stack_groups *folded, int rank, const char *mangled)
{
    NG_FREED char *plain = ng_demangle(mangled);
    const char *text = plain, *list = strstr(mangled, FILES);
    struct file_list files = {.text = list ? list + strlen(FILES) : ""};
    int error = plain ? 0 : -ENOMEM;

    folded->files++;
    while (!error && *text) {
        text += strspn(text, "\n");
        const char *end = strstr(text, "\n\n");
        size_t length = end ? (size_t)(end - text) : strlen(text);
        while (length > 0 && text[length - 1] == '\n')
            length--;
        if (length > strlen(THREAD) && strncmp(text, THREAD, strlen(THREAD)) == 0)
            error = add_stack(folded, rank, &files, text, length);
        else if (text == plain)
            error = add_summary(folded, rank, text, length);
        text += end ? (size_t)(end - text) : strlen(text);
    }
    return error;
}

/* ---- Stacks of calls ---- */

/* The oldest call in flight, else the newest one; NULL: its stack is not known, or has nothing of
 * Python. */
static const struct ng_view_record *told_record(const struct ng_view *view,
                                                const struct ng_view_member *member)
{
    uint32_t count = member->record_count;
    const struct ng_view_record *told = member->pending_record ? ng_view_pending_record(member)
                                        : count                ? &member->records[count - 1]
                                                               : NULL;
    const struct ng_view_call_stack *stack = told ? ng_view_call_stack(view, told) : NULL;
    return stack && stack->count && stack->frames[0].is_python ? told : NULL;
}

static void put_call(FILE *output, const struct ng_view *view, const struct ng_view_member *member,
                     const struct ng_view_record *record)
{
    const struct ng_view_call_stack *stack = ng_view_call_stack(view, record);
    const struct ng_view_group *group = &view->groups[member->group];
    bool is_p2p = ng_view_record_is_p2p(record);

    fprintf(output, "%s %s", member->pending_record ? "waits in" : "last called",
            ng_op_name(record->signature.op));
    if (!is_p2p)
        fprintf(output, " #%" PRIu64, record->coll_seq);
    if (group->name[0])
        fprintf(output, " of group \"%s\"\n", group->name);
    else
        fprintf(output, " of group %016" PRIx64 "\n", group->id);
    fprintf(output, "  Python, innermost first:\n");
    for (uint32_t i = 0; i < stack->count && stack->frames[i].is_python; i++) {
        const struct ng_view_frame *frame = &stack->frames[i];
        fprintf(output, "    File \"%s\", line %d in %s\n",
                frame->module ? frame->module->path : "?", frame->line,
                frame->name ? frame->name : "?");
    }
    if (stack->python_cut)
        fprintf(output, "    ...\n");
}

int ng_stack_groups_add_calls(struct ng_stack_groups *folded, const struct ng_view *view)
{
    int error = 0;

    for (uint32_t i = 0; i < view->member_count && !error; i++) {
        const struct ng_view_member *member = &view->members[i];
        const struct ng_view_record *record = told_record(view, member);
        int rank = ng_view_rank(view, member);
        if (!record || rank < 0)
            continue;
        NG_FREED char *text = NULL;
        size_t bytes;
        FILE *output = open_memstream(&text, &bytes);
        if (!output)
            return -ENOMEM;
        put_call(output, view, member, record);
        struct file_list none = {.text = ""};
        error = fclose(output) != 0 ? -ENOMEM
                                    : add_stack(folded, rank, &none, text, bytes ? bytes - 1 : 0);
    }
    return error;
}

static int rewrite(struct ng_stack_group *stack, struct ng_arena *arena,
                   ng_stack_groups_annotate *annotate, void *context)
{
    NG_FREED char *text = NULL;
    size_t bytes;
    FILE *output = open_memstream(&text, &bytes);

    if (!output)
        return -ENOMEM;
    for (const char *line = stack->text; *line;) {
        size_t length = strcspn(line, "\n");
        fwrite(line, 1, length, output);
        annotate(context, stack->files, line, length, output);
        line += length;
        if (*line)
            fputc(*line++, output);
    }
    bool failed = ferror(output);
    char *copy = fclose(output) != 0 || failed ? NULL : ng_arena_strdup(arena, text);
    if (!copy)
        return -ENOMEM;
    stack->text = copy;
    return 0;
}

int ng_stack_groups_rewrite(struct ng_stack_groups *folded, ng_stack_groups_annotate *annotate,
                            void *context)
{
    int error = 0;

    for (uint32_t i = 0; i < folded->count && i < NG_STACK_GROUPS_SHOWN && !error; i++)
        error = rewrite(&folded->stacks[i], &folded->arena, annotate, context);
    return error;
}

void ng_stack_groups_fini(struct ng_stack_groups *folded)
{
    for (uint32_t i = 0; i < folded->count; i++)
        free(folded->stacks[i].ranks);
    ng_arena_reset(&folded->arena);
    free(folded->summaries);
    free(folded->stacks);
    free(folded->slots);
    *folded = NG_STACK_GROUPS_NONE;
}

/* ---- Files ---- */

/* The rank whose file it is; -1: it is another kind of file. */
static int rank_of(const char *name)
{
    char *end;

    if (strncmp(name, PREFIX, strlen(PREFIX)) != 0 || !isdigit((unsigned char)name[strlen(PREFIX)]))
        return -1;
    errno = 0;
    long rank = strtol(name + strlen(PREFIX), &end, 10);
    return errno || rank > INT_MAX || strcmp(end, SUFFIX) != 0 ? -1 : (int)rank;
}

static int is_stacks(const struct dirent *entry)
{
    return rank_of(entry->d_name) >= 0;
}

/* The text of a file, to be freed; NULL: it cannot be read, or memory is short. */
static char *read_text(int folder, const char *name)
{
    char *text = malloc(FILE_BYTES_MAX + 1);
    ssize_t bytes = text ? ng_small_file_read(folder, name, text, FILE_BYTES_MAX) : -ENOMEM;

    if (bytes < 0) {
        free(text);
        return NULL;
    }
    text[bytes] = '\0';
    return text;
}

int ng_stack_groups_add_folder(struct ng_stack_groups *folded, const char *folder)
{
    struct dirent **entries;
    int error = 0;

    NG_CLOSED int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int count = scandirat(fd, ".", &entries, is_stacks, versionsort);
    if (count < 0)
        error = -errno;
    for (int i = 0; i < count; i++) {
        NG_FREED char *text = error ? NULL : read_text(fd, entries[i]->d_name);
        if (text)
            error = ng_stack_groups_add(folded, rank_of(entries[i]->d_name), text);
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
    return error;
}
