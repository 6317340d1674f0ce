/*
 * Notes of a view, folded.
 *
 * Used by `ncclguard analyze`: in a job of thousands of ranks nobody reads a thousand lines that
 * say the same.
 */
#include "tools/base/notes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/util/text.h"

#define ALIKE_MAX 4 /* notes of one reason that each have a line */
#define NAMED     3 /* files that a folded note names */

struct note {
    char *text;
    const char *reason; /* within the text; "" none */
    uint32_t place;     /* among all notes */
};

static int compare_reasons(const void *left, const void *right)
{
    const struct note *a = left, *b = right;
    int order = strcmp(a->reason, b->reason);

    return order ? order : a->place < b->place ? -1 : 1;
}

static char *fold(struct ng_view *view, const struct note *notes, uint32_t count)
{
    char text[512] = "";
    struct ng_text line = {text, 0, sizeof(text)};

    for (uint32_t i = 0; i < NAMED; i++)
        ng_text_add(&line, "%s%.*s", i ? ", " : "", (int)(notes[i].reason - notes[i].text - 2),
                    notes[i].text);
    ng_text_add(&line, " and %u more: %s", (unsigned)(count - NAMED), notes[0].reason);
    return ng_arena_strdup(&view->arena, text);
}

int ng_notes_fold(struct ng_view *view)
{
    uint32_t count = view->note_count, kept = 0;
    struct note *notes = calloc((size_t)count + 1, sizeof(*notes));

    if (!notes)
        return -ENOMEM;
    for (uint32_t i = 0; i < count; i++) {
        /* Only where memory was short there is none. */
        char *text = view->notes[i], *colon = text ? strstr(text, ": ") : NULL;
        notes[i] = (struct note){text, colon ? colon + 2 : "", i};
    }
    qsort(notes, count, sizeof(*notes), compare_reasons);
    for (uint32_t i = 0, end; i < count; i = end) {
        for (end = i + 1; end < count && strcmp(notes[end].reason, notes[i].reason) == 0;)
            end++;
        if (!notes[i].reason[0] || end - i <= ALIKE_MAX)
            continue;
        char *folded = fold(view, &notes[i], end - i);
        for (uint32_t k = i; folded && k < end; k++)
            view->notes[notes[k].place] = k == i ? folded : NULL;
    }
    for (uint32_t i = 0; i < count; i++)
        if (view->notes[i])
            view->notes[kept++] = view->notes[i];
    view->note_count = kept;
    free(notes);
    return 0;
}
