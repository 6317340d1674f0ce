/*
 * The table as text: a header, one line for each row, and rows that do not fit merged into a few
 * lines.
 *
 * Names come from programs: none of them is printed without escaping it.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/report/report.h"
#include "core/util/clock.h"
#include "core/util/macros.h"
#include "core/verdict/straggler.h"
#include "tools/base/owned.h"
#include "tools/judge/live_verdict.h"
#include "tools/render/table_cells.h"

/* If the height is unlimited. */
#define LINES_MAX 100
/* At least this much is printed, however small the terminal. */
#define LINES_MIN 12
/* Distinct kinds of positions among the rows that do not fit. */
#define FOLDS_MAX  512
#define FOLDS_TOLD 16
#define NOTES_TOLD 3
#define WHYS_TOLD  4
#define LATE_TOLD  4 /* stragglers that the verdict does not report */

static void put_rows(struct ng_sheet *sheet, const struct ng_table *table, uint32_t count)
{
    size_t widths[NG_COLUMN_COUNT] = {0};
    NG_FREED ng_table_cells *rows = calloc(count + 1, sizeof(*rows));

    if (!rows)
        return;
    for (uint32_t i = 0; i < count; i++) {
        ng_table_fill(table, &table->rows[table->order[i]], rows[i]);
        ng_table_widen(widths, rows[i]);
    }
    ng_table_fit(widths, sheet->columns);
    ng_table_put_titles(sheet, widths);
    for (uint32_t i = 0; i < count; i++)
        ng_table_put_cells(sheet, rows[i], widths,
                           table->rows[table->order[i]].culprit ? "1;31" : NULL);
}

/* ---- What does not fit ---- */

struct fold {
    char text[NG_TABLE_CELL_BYTES * 2];
    uint32_t count;
};

static bool is_worth_telling(const struct ng_table *table, const struct ng_table_row *row)
{
    enum ng_life life = table->view->processes[row->process].life;

    return life != NG_LIFE_UNKNOWN && life != NG_LIFE_RUNNING;
}

static void put_fold_text(const struct ng_table *table, const struct ng_table_row *row,
                          char *ret_text, size_t bytes)
{
    char place[NG_TABLE_CELL_BYTES], group[NG_TABLE_CELL_BYTES], life[NG_TABLE_CELL_BYTES] = "";

    if (row->process != NG_TABLE_NOBODY && is_worth_telling(table, row))
        snprintf(life, sizeof(life), "%s, ",
                 ng_table_life_word(table->view->processes[row->process].life));
    ng_table_place(table, row, place, sizeof(place));
    if (!row->member) {
        snprintf(ret_text, bytes, "%s%s", life, place);
        return;
    }
    ng_table_group(table, row->member->group, group, sizeof(group));
    if (strcmp(place, "-") == 0)
        snprintf(ret_text, bytes, "%soutside NCCL in group %s", life, group);
    else if (strcmp(place, "suspended") == 0)
        snprintf(ret_text, bytes, "%soutside NCCL in group %s, suspended", life, group);
    else
        snprintf(ret_text, bytes, "%sin %s of group %s", life, place, group);
}

/* Merge the rows from `first` on. Returns how many kinds; the rest, if any, is in *ret_others. */
static size_t fold(const struct ng_table *table, uint32_t first, struct fold *folds,
                   uint32_t *ret_others)
{
    size_t count = 0, last = 0;
    char text[sizeof(folds->text)];

    *ret_others = 0;
    for (uint32_t i = first; i < table->order_count; i++) {
        put_fold_text(table, &table->rows[table->order[i]], text, sizeof(text));
        size_t k = last; /* equal rows are adjacent */
        if (k >= count || strcmp(folds[k].text, text) != 0)
            for (k = 0; k < count && strcmp(folds[k].text, text) != 0;)
                k++;
        if (k == count && count < FOLDS_MAX) {
            memcpy(folds[k].text, text, sizeof(text));
            folds[k].count = 0;
            count++;
        }
        if (k < count) {
            folds[k].count++;
            last = k;
        } else {
            ++*ret_others;
        }
    }
    return count;
}

static void put_folds(struct ng_sheet *sheet, const struct ng_table *table, uint32_t first)
{
    NG_FREED struct fold *folds = calloc(FOLDS_MAX, sizeof(*folds));
    uint32_t others;

    if (!folds)
        return;
    size_t count = fold(table, first, folds, &others);
    if (count == 1 && !others) {
        ng_sheet_put(sheet, NULL, "… and %" PRIu32 " more, all %s", folds[0].count, folds[0].text);
    } else {
        size_t told = sheet->left < FOLDS_TOLD ? sheet->left : FOLDS_TOLD;
        if (told < count || others)
            told = told ? told - 1 : 0; /* the last line gives the number of the others */
        told = told < count ? told : count;
        for (size_t i = 0; i < told; i++)
            ng_sheet_put(sheet, NULL, "… and %" PRIu32 " more %s", folds[i].count, folds[i].text);
        for (size_t i = told; i < count; i++)
            others += folds[i].count;
        if (others)
            ng_sheet_put(sheet, NULL, "… and %" PRIu32 " more in %zu%s other places", others,
                         count - told, count == FOLDS_MAX ? " or more" : "");
    }
}

/* ---- The head ---- */

static void put_clock(int64_t unix_ns, char *ret_text, size_t bytes)
{
    time_t seconds = (time_t)(unix_ns / NG_S);
    struct tm parts;

    ret_text[0] = '\0';
    if (gmtime_r(&seconds, &parts))
        strftime(ret_text, bytes, "%F %T UTC", &parts);
}

/* Stragglers of groups other than the one that the verdict names. */
static void put_stragglers(struct ng_sheet *sheet, const struct ng_table *table)
{
    const struct ng_verdict *verdict = table->verdict;
    struct ng_arena arena = {0};
    struct ng_stragglers found;
    char why[512], group[NG_TABLE_CELL_BYTES], line[1024];
    unsigned told = 0;

    ng_stragglers_find(table->view, &arena, &found);
    for (uint32_t i = 0; i < found.count && told < LATE_TOLD; i++) {
        const struct ng_straggler *straggler = &found.stragglers[i];
        if (verdict->kind == NG_KIND_STRAGGLER &&
            verdict->group_id == table->view->groups[straggler->group].id)
            continue;
        ng_table_group(table, straggler->group, group, sizeof(group));
        ng_straggler_why(straggler, why, sizeof(why));
        snprintf(line, sizeof(line), "late in %s: rank %d %s; %s", group,
                 table->rows[straggler->member - table->view->members].rank, why,
                 ng_confidence_name(straggler->confidence));
        ng_sheet_put_sentence(sheet, line, "    ", NULL, 3);
        told++;
    }
    ng_arena_reset(&arena);
}

/* Operations there do not become suspect, and no deadline passes. */
static void put_suspended(struct ng_sheet *sheet, const struct ng_table *table)
{
    uint32_t shown = 0, rest = 0;

    NG_EACH (row, table->rows, table->row_count) {
        bool counts = row->member && !row->hidden;
        shown += counts;
        rest += counts && row->member->rests;
    }
    if (rest)
        ng_sheet_put(sheet, "33",
                     "  suspended: the deadlines of %" PRIu32 " of %" PRIu32 " communicators rest",
                     rest, shown);
}

void ng_table_put_head(struct ng_sheet *sheet, const struct ng_table *table,
                       const struct ng_table_paper *paper)
{
    char job[400], when[64], counts[256] = "", line[4 * NG_REPORT_LINE_BYTES];
    size_t used = 0;

    ng_sheet_safe(job, sizeof(job), table->view->job);
    put_clock(paper->time_unix_ns, when, sizeof(when));
    for (unsigned i = 0; i < NG_TABLE_LIVES; i++)
        if (table->lives[i])
            used += (size_t)snprintf(counts + used, sizeof(counts) - used, "%s%" PRIu32 " %s",
                                     used ? ", " : "", table->lives[i],
                                     ng_table_life_word((enum ng_life)i));
    char of[32] = "";
    if (table->expected)
        snprintf(of, sizeof(of), " of %" PRIu32, table->expected);
    ng_sheet_put(
        sheet, "1",
        "job %s   %" PRIu32 " host%s   %" PRIu32 "%s ranks seen   %" PRIu32 " process%s: %s   %s",
        job, table->host_count, table->host_count == 1 ? "" : "s", table->seen, of,
        table->view->process_count, table->view->process_count == 1 ? "" : "es", counts, when);
    ng_live_verdict_line(table->verdict, paper->stuck_ns, line, NG_REPORT_LINE_BYTES + 40);
    ng_sheet_put_sentence(sheet, line, "  ",
                          table->verdict->kind == NG_KIND_HEALTHY ? "32" : "1;31", 4);
    put_suspended(sheet, table);
    for (uint32_t i = 0; i < table->verdict->culprit_count && i < WHYS_TOLD; i++) {
        const struct ng_culprit *culprit = &table->verdict->culprits[i];
        char why[sizeof(culprit->why) * 3], name[32] = "?";
        if (!culprit->why[0])
            continue;
        ng_sheet_safe(why, sizeof(why), culprit->why);
        if (culprit->rank >= 0)
            snprintf(name, sizeof(name), "%d", culprit->rank);
        snprintf(line, sizeof(line), "  rank %s: %.1200s", name, why);
        ng_sheet_put_sentence(sheet, line, "    ", NULL, 3);
    }
    put_stragglers(sheet, table);
    for (uint32_t i = 0; i < table->view->note_count && i < NOTES_TOLD; i++) {
        ng_sheet_safe(line, sizeof(line), table->view->notes[i]);
        ng_sheet_put(sheet, NULL, "not known: %s", line);
    }
    if (table->view->note_count > NOTES_TOLD)
        ng_sheet_put(sheet, NULL, "not known: %" PRIu32 " more things",
                     table->view->note_count - NOTES_TOLD);
    if (paper->trouble) {
        ng_sheet_safe(line, sizeof(line), paper->trouble);
        ng_sheet_put_sentence(sheet, line, "  ", "1;31", 3);
    }
    ng_sheet_put(sheet, NULL, "%s", "");
}

void ng_table_print(const struct ng_table *table, const struct ng_table_paper *paper, FILE *file)
{
    struct ng_sheet sheet = {.file = file,
                             .columns = paper->columns && paper->columns < NG_SHEET_COLUMNS_MAX
                                            ? paper->columns
                                            : NG_SHEET_COLUMNS_MAX,
                             .left = paper->lines ? paper->lines : LINES_MAX,
                             .colour = paper->colour};

    if (sheet.columns < 20)
        sheet.columns = 20;
    if (sheet.left < LINES_MIN)
        sheet.left = LINES_MIN;
    ng_table_put_head(&sheet, table, paper);
    if (!table->order_count) {
        ng_sheet_put(&sheet, NULL, "no process");
        return;
    }
    uint32_t room = sheet.left > 2 ? sheet.left - 1 : 1, shown = table->order_count;
    if (shown > room) {
        uint32_t for_folds = room / 3 < FOLDS_TOLD ? room / 3 : FOLDS_TOLD;
        shown = room - (for_folds ? for_folds : 1);
        /* Few kinds of positions leave their lines to the rows. */
        NG_FREED struct fold *folds = calloc(FOLDS_MAX, sizeof(*folds));
        uint32_t others;
        size_t kinds = folds ? fold(table, shown, folds, &others) : FOLDS_MAX;
        if (kinds < for_folds)
            shown += for_folds - (uint32_t)kinds;
    }
    put_rows(&sheet, table, shown);
    if (shown < table->order_count)
        put_folds(&sheet, table, shown);
}
