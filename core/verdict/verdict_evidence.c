/*
 * Missing evidence, and faults that were injected on purpose.
 *
 * Pure.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/util/macros.h"
#include "core/verdict/verdict_parts.h"
#include "core/verdict/wait_cause.h"

#define PHRASE_BYTES 1024

/* What NCCL's RAS adds to "no evidence of …". */
static const char *add_of_ras(const struct ng_wait *wait, const struct ng_absentee *absentee)
{
    if (!absentee->ras)
        return "";
    if (ng_wait_cause_by_ras(wait, absentee) != NG_CAUSE_UNSEEN)
        return " but the word of NCCL's RAS";
    return absentee->ras->waits
               ? " but the word of NCCL's RAS, by which it waits in another communicator"
               : " but the word of NCCL's RAS, which reaches it and does not show that it is late";
}

/* Lists ranges of ranks without evidence, sends and receives that are no longer recorded, and what
 * the view could not read. */
int ng_verdict_builder_list_missing_evidence(struct ng_verdict_builder *builder,
                                             const struct ng_wait *wait,
                                             const struct ng_reason *reason)
{
    struct ng_verdict *verdict = builder->verdict;
    const struct ng_view *view = builder->view;

    verdict->missing_evidence = ng_arena_alloc(
        &verdict->arena, (wait->absentee_count + view->note_count + 3) * sizeof(char *));
    if (!verdict->missing_evidence)
        return -ENOMEM;
    for (uint32_t i = 0; i < wait->absentee_count;) {
        /* A rank whose process is known elsewhere, or that does not exist, is not missing
         * evidence. */
        if (wait->absentees[i].absence != NG_ABSENT_UNSEEN || wait->absentees[i].process_seen ||
            reason->by_init) {
            i++;
            continue;
        }
        const char *outside = add_of_ras(wait, &wait->absentees[i]);
        uint32_t end = i + 1;
        while (end < wait->absentee_count && wait->absentees[end].absence == NG_ABSENT_UNSEEN &&
               !wait->absentees[end].process_seen &&
               wait->absentees[end].overwritten == wait->absentees[i].overwritten &&
               add_of_ras(wait, &wait->absentees[end]) == outside &&
               wait->absentees[end].group_rank == wait->absentees[end - 1].group_rank + 1)
            end++;
        int first = wait->absentees[i].group_rank, last = wait->absentees[end - 1].group_rank;
        const char *what = wait->absentees[i].overwritten
                               ? "records that reach back to the sends and receives"
                               : "evidence";
        char *line =
            first == last
                ? ng_arena_printf(&verdict->arena, "no %s of group rank %d%s", what, first, outside)
                : ng_arena_printf(&verdict->arena, "no %s of group ranks %d to %d%s", what, first,
                                  last, outside);
        if (!line)
            return -ENOMEM;
        verdict->missing_evidence[verdict->missing_evidence_count++] = line;
        verdict->lacks_ranks |= !wait->absentees[i].overwritten && wait->type != NG_WAIT_CREATE;
        i = end;
    }
    if (wait->blind) {
        char *line = ng_arena_strdup(&verdict->arena,
                                     "no records of all the sends and receives that ranks wait in");
        if (!line)
            return -ENOMEM;
        verdict->missing_evidence[verdict->missing_evidence_count++] = line;
    }
    if (reason->parted_long_ago) {
        char *line = ng_arena_printf(&verdict->arena,
                                     "no records of a collective before #%" PRIu64
                                     " that not all ranks called alike",
                                     reason->divergence.seq);
        if (!line)
            return -ENOMEM;
        verdict->missing_evidence[verdict->missing_evidence_count++] = line;
    }
    for (uint32_t i = 0; i < view->note_count; i++) {
        char *line = ng_arena_strdup(&verdict->arena, view->notes[i]);
        if (!line)
            return -ENOMEM;
        verdict->missing_evidence[verdict->missing_evidence_count++] = line;
    }
    return 0;
}

static int add_phrase(struct ng_verdict *verdict, char ***phrases, uint32_t *count,
                      const char *format, va_list arguments)
{
    char phrase[PHRASE_BYTES];

    vsnprintf(phrase, sizeof(phrase), format, arguments);
    char **bigger = ng_arena_alloc(&verdict->arena, ((size_t)*count + 1) * sizeof(*bigger));
    char *copy = ng_arena_strdup(&verdict->arena, phrase);
    if (!bigger || !copy)
        return -ENOMEM;
    if (*count)
        memcpy(bigger, *phrases, *count * sizeof(*bigger));
    bigger[(*count)++] = copy;
    *phrases = bigger;
    return 0;
}

int ng_verdict_add_missing_evidence(struct ng_verdict *verdict, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    int error = add_phrase(verdict, &verdict->missing_evidence, &verdict->missing_evidence_count,
                           format, arguments);
    va_end(arguments);
    return error;
}

int ng_verdict_add_connection(struct ng_verdict *verdict, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    int error =
        add_phrase(verdict, &verdict->connections, &verdict->connection_count, format, arguments);
    va_end(arguments);
    return error;
}

int ng_verdict_builder_list_rehearsal(struct ng_verdict_builder *builder)
{
    const struct ng_view *view = builder->view;
    struct ng_verdict *verdict = builder->verdict;

    if (!view->fault_count)
        return 0;
    verdict->rehearsal =
        ng_arena_alloc(&verdict->arena, view->fault_count * sizeof(*verdict->rehearsal));
    if (!verdict->rehearsal)
        return -ENOMEM;
    NG_EACH (told, view->faults, view->fault_count) {
        struct ng_verdict_rehearsal listed = {.rank = told->fault.rank,
                                              .times = told->fault.times,
                                              .op = told->fault.op,
                                              .group_id = told->fault.group_id,
                                              .seq = told->fault.seq,
                                              .age_ns = told->last_age_ns};
        uint32_t place = verdict->rehearsal_count++;
        listed.fault = ng_arena_strdup(&verdict->arena, told->fault.text);
        if (!listed.fault)
            return -ENOMEM;
        for (; place > 0 && verdict->rehearsal[place - 1].rank > listed.rank; place--)
            verdict->rehearsal[place] = verdict->rehearsal[place - 1];
        verdict->rehearsal[place] = listed;
    }
    return 0;
}
