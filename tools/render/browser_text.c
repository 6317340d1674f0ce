/*
 * The picture of a browsed job: the head, a list or a page of lines, and two lines at the bottom:
 * where one is, and which keys there are.
 *
 * Names come from programs: none of them is written without escaping it.
 */
#include "tools/base/owned.h"
#include "tools/render/browser.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/nccl/op.h"
#include "core/report/dump.h"
#include "core/util/macros.h"
#include "core/util/text.h"
#include "tools/render/group_list.h"

#define BOTTOM     2   /* lines */
#define NARROW     120 /* columns */
#define WIDE       150 /* columns: groups have their deadlines, too */
#define RANKS_WIDE 24
#define RECORDS    12 /* calls of a rank's details */

static const char *const sorts[NG_SORT_COUNT] = {[NG_SORT_RANK] = "rank",
                                                 [NG_SORT_AGE] = "age",
                                                 [NG_SORT_STATE] = "state",
                                                 [NG_SORT_HOST] = "host"};

static const char *const help[] = {
    "Keys",
    "",
    "  Up, Down, Page Up, Page Down, Home, End   move",
    "  Enter      of a rank: its details, with its stack; of a folded line: its",
    "             ranks one by one; of a group: its ranks; of a job: look at it",
    "  Esc        back; clears the filter",
    "  c          to the culprit; again: to the next",
    "  /          only rows with this text (a number: that rank); Enter ends typing",
    "  s          sort by rank, age, state, host; rows keep their places until then",
    "  f          fold ranks that are alike into one line, or not",
    "  g, Tab     groups, or ranks",
    "  j          other jobs",
    "  t          in the details of a rank: take its stack now; it runs on",
    "  space      look now",
    "  q, Ctrl-C  quit",
    "",
    "Columns",
    "",
    "  !          the verdict names this rank",
    "  ENTERED, STARTED, DONE   collectives of the group, from 1",
    "  BEHIND     collectives behind the furthest rank, and since when",
    "  IN         what it has been in for the longest time",
    "",
    "  Folded ranks are in the same call of the same group, or all on their way.",
};

/* ---- Folded rows ---- */

static int rank_at(const void *ranks, uint32_t index)
{
    return ((const int *)ranks)[index];
}

/* "0-6,8-1023 (1023)". */
static void put_ranks(const struct ng_browser *browser, const struct ng_browser_unit *unit,
                      char *ret_text, size_t bytes)
{
    struct ng_text text = {ret_text, 0, bytes};
    NG_FREED int *ranks = calloc(unit->count, sizeof(*ranks));

    ret_text[0] = '\0';
    if (ranks) {
        for (uint32_t i = 0; i < unit->count; i++)
            ranks[i] = browser->table->rows[browser->members[unit->first + i]].rank;
        ng_text_add_ranks(&text, rank_at, ranks, unit->count, RANKS_WIDE);
    }
    ng_text_add(&text, " (%" PRIu32 ")", unit->count);
}

/* The name, or the number of changes from one rank to the next. */
static void put_hosts(const struct ng_browser *browser, const struct ng_browser_unit *unit,
                      char *cell)
{
    const struct ng_table *table = browser->table;
    const char *last = NULL;
    uint32_t hosts = 0;

    for (uint32_t i = 0; i < unit->count; i++) {
        const struct ng_table_row *row = &table->rows[browser->members[unit->first + i]];
        if (row->process == NG_TABLE_NOBODY)
            return;
        const char *host = table->view->processes[row->process].host;
        hosts += !last || strcmp(last, host) != 0;
        last = host;
    }
    if (hosts > 1)
        ng_table_cell_put(cell, "several");
}

/* Of two numbers of text, the range. */
static void put_range(uint64_t least, uint64_t most, char *cell)
{
    if (least == most)
        ng_table_cell_put(cell, "%" PRIu64, least);
    else
        ng_table_cell_put(cell, "%" PRIu64 "-%" PRIu64, least, most);
}

static void put_progress(const struct ng_browser *browser, const struct ng_browser_unit *unit,
                         ng_table_cells cells)
{
    uint64_t least[3] = {UINT64_MAX, UINT64_MAX, UINT64_MAX}, most[3] = {0};
    static const unsigned columns[3] = {NG_COLUMN_ENTERED, NG_COLUMN_STARTED, NG_COLUMN_COMPLETED};

    for (uint32_t i = 0; i < unit->count; i++) {
        const struct ng_view_member *member =
            browser->table->rows[browser->members[unit->first + i]].member;
        if (!member)
            return;
        uint64_t numbers[3] = {member->entered, member->started, member->completed};
        for (unsigned k = 0; k < 3; k++) {
            least[k] = numbers[k] < least[k] ? numbers[k] : least[k];
            most[k] = numbers[k] > most[k] ? numbers[k] : most[k];
        }
    }
    for (unsigned k = 0; k < 3; k++)
        put_range(least[k], most[k], cells[columns[k]]);
}

/* What they are in, since when at most. Ranks in motion: how many are inside NCCL. */
static void put_folded_place(const struct ng_browser *browser, const struct ng_browser_unit *unit,
                             char *cell)
{
    const struct ng_table *table = browser->table;
    const struct ng_table_row *row = &table->rows[browser->members[unit->first]];
    char age[32];
    uint32_t inside = 0;

    for (uint32_t i = 0; i < unit->count; i++)
        inside += table->rows[browser->members[unit->first + i]].phase != NG_PHASE_NONE;
    if (row->place == NG_PLACE_OTHER && inside) {
        ng_table_cell_put(cell, "%" PRIu32 " of %" PRIu32 " in NCCL", inside, unit->count);
        return;
    }
    ng_table_place(table, row, cell, NG_TABLE_CELL_BYTES);
    if (row->phase != NG_PHASE_NONE)
        ng_table_cell_add(cell, ", %s", ng_table_duration(unit->age_ns, age, sizeof(age)));
}

/* The deadline that all of them have. */
static void put_folded_deadline(const struct ng_browser *browser,
                                const struct ng_browser_unit *unit, char *cell)
{
    const struct ng_table_row *rows = browser->table->rows;
    const struct ng_view_member *first = rows[browser->members[unit->first]].member;

    for (uint32_t i = 1; first && i < unit->count; i++) {
        const struct ng_view_member *other = rows[browser->members[unit->first + i]].member;
        if (!other || other->timeout_ns != first->timeout_ns || other->policy != first->policy) {
            ng_table_cell_put(cell, "several");
            return;
        }
    }
}

static void fill(const struct ng_browser *browser, const struct ng_browser_unit *unit,
                 bool selected, ng_table_cells cells)
{
    const struct ng_table_row *row = &browser->table->rows[browser->members[unit->first]];
    static const unsigned own[] = {NG_COLUMN_PID,    NG_COLUMN_DEVICE, NG_COLUMN_P2P,
                                   NG_COLUMN_MEMORY, NG_COLUMN_MEMBER, NG_COLUMN_REGISTERED};

    ng_table_fill(browser->table, row, cells);
    ng_table_cell_put(cells[NG_COLUMN_MARK], "%s%s", selected ? ">" : " ",
                      row->culprit ? "!" : " ");
    if (unit->count < 2)
        return;
    for (size_t i = 0; i < NG_COUNT(own); i++)
        cells[own[i]][0] = '\0';
    put_ranks(browser, unit, cells[NG_COLUMN_RANK], NG_TABLE_CELL_BYTES);
    put_hosts(browser, unit, cells[NG_COLUMN_HOST]);
    put_progress(browser, unit, cells);
    put_folded_deadline(browser, unit, cells[NG_COLUMN_DEADLINE]);
    put_folded_place(browser, unit, cells[NG_COLUMN_IN]);
}

static const char *colour_of(const struct ng_table_row *row, bool selected)
{
    if (selected)
        return row->culprit ? "1;31;7" : "7";
    return row->culprit ? "1;31" : row->place == NG_PLACE_GONE ? "33" : NULL;
}

/* On a narrow screen, what all rows have in common leaves its columns to the others. */
static void leave_out(const struct ng_browser *browser, size_t widths[NG_COLUMN_COUNT])
{
    const struct ng_table *table = browser->table;

    if (table->lives[NG_LIFE_RUNNING] == table->view->process_count)
        widths[NG_COLUMN_LIFE] = 0;
    if (browser->group_id || browser->lists[NG_PAGE_GROUPS].count == 1)
        widths[NG_COLUMN_GROUP] = 0;
}

/* Columns grow as wider rows come by, and never shrink while one scrolls. */
static void put_rank_rows(struct ng_browser *browser, struct ng_sheet *sheet)
{
    const struct ng_browser_list *list = &browser->lists[NG_PAGE_RANKS];
    uint32_t count =
        list->count - list->top < browser->body ? list->count - list->top : browser->body;
    NG_FREED ng_table_cells *rows = calloc(count + 1, sizeof(*rows));
    size_t widths[NG_COLUMN_COUNT];

    if (!rows)
        return;
    if (browser->widths_for != sheet->columns)
        memset(browser->widths, 0, sizeof(browser->widths));
    browser->widths_for = sheet->columns;
    for (uint32_t i = 0; i < count; i++) {
        fill(browser, &browser->units[list->top + i], list->top + i == list->cursor, rows[i]);
        ng_table_widen(browser->widths, rows[i]);
    }
    memcpy(widths, browser->widths, sizeof(widths));
    if (sheet->columns < NARROW)
        leave_out(browser, widths);
    ng_table_fit(widths, sheet->columns);
    ng_table_put_titles(sheet, widths);
    for (uint32_t i = 0; i < count; i++) {
        const struct ng_browser_unit *unit = &browser->units[list->top + i];
        ng_table_put_cells(sheet, rows[i], widths,
                           colour_of(&browser->table->rows[browser->members[unit->first]],
                                     list->top + i == list->cursor));
    }
}

/* ---- Groups ---- */

/* Of a group whose members differ: which of the two do. */
static void put_group_deadline(const struct ng_view *view, uint32_t group, char *ret_text,
                               size_t bytes)
{
    struct ng_group_bounds bounds;

    ng_group_list_bounds(view, group, &bounds);
    if (bounds.deadlines_differ)
        snprintf(ret_text, bytes, "deadlines differ");
    else if (bounds.policies_differ)
        snprintf(ret_text, bytes, "policies differ");
    else
        ng_table_deadline(bounds.timeout_ns, bounds.policy, ret_text, bytes);
}

struct sums {
    uint32_t seen, culprits, gone, behind, waiting;
    uint64_t done;
    const struct ng_table_row *longest;
};

static void add_to_sums(struct sums *sums, const struct ng_table_row *row)
{
    sums->seen++;
    sums->culprits += row->culprit != NULL;
    sums->gone += row->place == NG_PLACE_GONE;
    sums->behind += row->behind > 0;
    sums->waiting += row->place == NG_PLACE_WAITING;
    if (row->member->completed < sums->done)
        sums->done = row->member->completed;
    if (row->phase != NG_PHASE_NONE && (!sums->longest || row->age_ns > sums->longest->age_ns))
        sums->longest = row;
}

/* Columns for it, with the blanks behind it. */
static int deadline_width(const struct ng_sheet *sheet)
{
    return sheet->columns < WIDE ? 0 : 22;
}

static void put_group_row(const struct ng_browser *browser, struct ng_sheet *sheet, uint32_t group,
                          const struct sums *sums, bool selected)
{
    const struct ng_table *table = browser->table;
    char name[NG_TABLE_CELL_BYTES], seen[32], counts[160] = "", in[NG_TABLE_CELL_BYTES] = "-",
                                              age[32], deadline[40], line[512];
    struct ng_text text = {counts, 0, sizeof(counts)};
    const struct {
        uint32_t count;
        const char *word;
    } words[] = {{sums->culprits, "culprit"}, {sums->gone, "gone"}, {sums->waiting, "waiting"}};

    ng_table_group(table, group, name, sizeof(name));
    snprintf(seen, sizeof(seen), "%" PRIu32 "/%d", sums->seen, table->view->groups[group].nranks);
    for (size_t i = 0; i < NG_COUNT(words); i++)
        if (words[i].count)
            ng_text_add(&text, "%s%" PRIu32 " %s", counts[0] ? ", " : "", words[i].count,
                        words[i].word);
    if (sums->longest) {
        ng_table_place(table, sums->longest, in, sizeof(in));
        size_t used = strlen(in);
        snprintf(in + used, sizeof(in) - used, ", %s",
                 ng_table_duration(sums->longest->age_ns, age, sizeof(age)));
    }
    int wide = deadline_width(sheet);
    put_group_deadline(table->view, group, deadline, sizeof(deadline));
    int blank = ng_sheet_width(name) < 22 ? 22 - (int)ng_sheet_width(name) : 0;
    snprintf(line, sizeof(line),
             "%s%s %.*s%*s  %9s %9" PRIu64 " %9" PRIu64 " %6" PRIu32 "  %-*.*s%s%s%s",
             selected ? ">" : " ", sums->culprits ? "!" : " ", (int)ng_sheet_bytes(name, 22), name,
             blank, "", seen, table->front[group], sums->done, sums->behind, wide, wide, deadline,
             in, counts[0] ? "; " : "", counts);
    ng_sheet_put_line(sheet, line,
                      selected         ? (sums->culprits ? "1;31;7" : "7")
                      : sums->culprits ? "1;31"
                                       : NULL);
}

static void put_group_rows(const struct ng_browser *browser, struct ng_sheet *sheet)
{
    const struct ng_table *table = browser->table;
    const struct ng_browser_list *list = &browser->lists[NG_PAGE_GROUPS];
    NG_FREED struct sums *sums = calloc(table->view->group_count + 1, sizeof(*sums));

    if (!sums)
        return;
    int wide = deadline_width(sheet);
    for (uint32_t i = 0; i < table->view->group_count; i++)
        sums[i].done = UINT64_MAX;
    for (uint32_t i = 0; i < table->order_count; i++)
        if (table->rows[table->order[i]].member)
            add_to_sums(&sums[table->rows[table->order[i]].member->group],
                        &table->rows[table->order[i]]);
    ng_sheet_put(sheet, "7", "   %-22s  %9s %9s %9s %6s  %-*.*s%s", "GROUP", "SEEN", "ENTERED",
                 "DONE", "BEHIND", wide, wide, "DEADLINE", "IN");
    for (uint32_t i = list->top; i < list->count && i - list->top < browser->body; i++)
        put_group_row(browser, sheet, browser->groups[i], &sums[browser->groups[i]],
                      i == list->cursor);
}

/* ---- Jobs ---- */

static void put_job_rows(const struct ng_browser *browser, struct ng_sheet *sheet)
{
    const struct ng_browser_list *list = &browser->lists[NG_PAGE_JOBS];
    char processes[64];

    ng_sheet_put(sheet, "7", "   %-40s  %-12s  %s", "JOB", "WHERE", "PROCESSES");
    if (!list->count)
        ng_sheet_put(sheet, NULL, "   no job is here, nor on the store");
    for (uint32_t i = list->top; i < list->count && i - list->top < browser->body; i++) {
        const struct ng_browser_job *job = &browser->jobs[i];
        processes[0] = '\0';
        if (job->processes)
            snprintf(processes, sizeof(processes), "%u of %u alive", job->living, job->processes);
        ng_sheet_put(sheet, i == list->cursor ? "7" : NULL, "%s  %-40s  %-12s  %s",
                     i == list->cursor ? ">" : " ", job->name, job->where, processes);
    }
}

/* ---- A rank ---- */

static void put_membership(const struct ng_table *table, const struct ng_table_row *row,
                           struct ng_sheet *sheet)
{
    ng_table_cells cells;

    ng_table_fill(table, row, cells);
    if (!row->member)
        return;
    ng_sheet_put(sheet, "1", "group %s, member %s", cells[NG_COLUMN_GROUP],
                 cells[NG_COLUMN_MEMBER]);
    ng_sheet_put(sheet, NULL, "  collectives: %s entered, %s started, %s done; behind: %s",
                 cells[NG_COLUMN_ENTERED], cells[NG_COLUMN_STARTED], cells[NG_COLUMN_COMPLETED],
                 cells[NG_COLUMN_BEHIND]);
    ng_sheet_put(sheet, NULL, "  in: %s", cells[NG_COLUMN_IN]);
    if (cells[NG_COLUMN_DEADLINE][0])
        ng_sheet_put(sheet, NULL, "  deadline: %s", cells[NG_COLUMN_DEADLINE]);
    if (cells[NG_COLUMN_P2P][0])
        ng_sheet_put(sheet, NULL, "  send/recv: %s", cells[NG_COLUMN_P2P]);
    if (cells[NG_COLUMN_REGISTERED][0])
        ng_sheet_put(sheet, NULL, "  registered: %s", cells[NG_COLUMN_REGISTERED]);
}

/* "#7 AllReduce of 1024 float32, started 3 s ago". */
static void put_record(const struct ng_view_record *record, struct ng_sheet *sheet)
{
    char age[32];
    const struct ng_signature *signature = &record->signature;
    const char *dtype = ng_dtype_name(signature->dtype);

    ng_sheet_put(sheet, NULL, "    #%" PRIu64 " %s of %" PRIu64 " %s: %s, entered %s ago",
                 ng_view_record_is_p2p(record) ? record->p2p_seq : record->coll_seq,
                 ng_op_name(signature->op), signature->count, dtype ? dtype : "?",
                 ng_dump_record_state_name(record->state),
                 ng_table_duration(record->entered_age_ns, age, sizeof(age)));
}

static void put_call_stack(const struct ng_view *view, const struct ng_view_record *record,
                           struct ng_sheet *sheet)
{
    const struct ng_view_call_stack *stack = ng_view_call_stack(view, record);
    char name[256];

    for (uint32_t i = 0; stack && i < stack->count; i++) {
        const struct ng_view_frame *frame = &stack->frames[i];
        ng_sheet_safe(name, sizeof(name),
                      frame->name     ? frame->name
                      : frame->module ? frame->module->path
                                      : "?");
        ng_sheet_put(sheet, NULL, "      %s", name);
    }
}

static void put_process(const struct ng_table *table, const struct ng_table_row *row,
                        struct ng_sheet *sheet)
{
    const struct ng_view *view = table->view;
    const struct ng_view_process *process = &view->processes[row->process];
    char text[sizeof(process->error_text) * 3], host[sizeof(process->host) * 3],
        life[NG_TABLE_CELL_BYTES], age[32];

    ng_sheet_safe(host, sizeof(host), process->host);
    ng_sheet_safe(text, sizeof(text), process->program);
    ng_table_life(process, life, sizeof(life));
    ng_sheet_put(sheet, NULL, "host %s, pid %d (%s), %s", host, process->pid, text, life);
    ng_sheet_safe(text, sizeof(text), process->error_text);
    if (text[0])
        ng_sheet_put_sentence(sheet, text, "  ", "33", 4);
    for (uint32_t i = 0; i < view->call_count; i++)
        if (view->calls[i].process == row->process)
            ng_sheet_put(sheet, NULL, "thread %" PRIu32 " is inside %s since %s",
                         view->calls[i].tid, ng_op_name(view->calls[i].op),
                         ng_table_duration(view->calls[i].age_ns, age, sizeof(age)));
}

static void put_calls(const struct ng_table *table, const struct ng_table_row *row,
                      struct ng_sheet *sheet)
{
    const struct ng_view_member *member = row->member;

    if (!member || !member->record_count)
        return;
    ng_sheet_put(sheet, "1", "last calls of this group");
    for (uint32_t i = 0; i < RECORDS && i < member->record_count; i++) {
        const struct ng_view_record *record = &member->records[member->record_count - 1 - i];
        put_record(record, sheet);
        if (i == 0)
            put_call_stack(table->view, record, sheet);
    }
}

static void put_stack(const struct ng_browser *browser, struct ng_sheet *sheet)
{
    char line[1024];
    const char *at = browser->stack ? browser->stack : "none";

    ng_sheet_put(sheet, "1", "stack");
    while (*at) {
        size_t length = strcspn(at, "\n");
        NG_FREED char *copy = strndup(at, length);
        ng_sheet_safe(line, sizeof(line), copy ? copy : "?");
        ng_sheet_put(sheet, NULL, "  %s", line);
        at += length + (at[length] == '\n');
    }
}

static void put_rank_lines(const struct ng_browser *browser, struct ng_sheet *sheet)
{
    const struct ng_table *table = browser->table;
    const struct ng_table_row *row = ng_browser_row(browser);
    char why[sizeof(row->culprit->why) * 3];

    if (!row) {
        ng_sheet_put(sheet, "33", "this rank is gone from the table");
        return;
    }
    ng_sheet_put(sheet, row->culprit ? "1;31" : "1", "rank %d%s", row->rank,
                 row->culprit ? ": the verdict names it" : "");
    if (row->culprit && row->culprit->why[0]) {
        ng_sheet_safe(why, sizeof(why), row->culprit->why);
        ng_sheet_put_sentence(sheet, why, "", NULL, 6);
    }
    if (row->process != NG_TABLE_NOBODY)
        put_process(table, row, sheet);
    put_membership(table, row, sheet);
    for (uint32_t i = 0; i < table->order_count; i++) {
        const struct ng_table_row *other = &table->rows[table->order[i]];
        if (other != row && other->process == row->process)
            put_membership(table, other, sheet);
    }
    put_stack(browser, sheet);
    put_calls(table, row, sheet);
}

/* ---- Pages of lines ---- */

static void put_help_lines(struct ng_sheet *sheet)
{
    for (size_t i = 0; i < NG_COUNT(help); i++)
        ng_sheet_put(sheet, help[i][0] && help[i][0] != ' ' ? "1" : NULL, "%s", help[i]);
}

/* Only the lines from `top` on of what is written whole. */
static void put_lines(struct ng_browser *browser, struct ng_sheet *sheet)
{
    struct ng_browser_list *list = &browser->lists[browser->page];
    struct ng_sheet whole = *sheet;
    NG_FREED char *text = NULL;
    size_t bytes = 0;

    whole.file = open_memstream(&text, &bytes);
    whole.left = UINT32_MAX;
    if (!whole.file)
        return;
    if (browser->page == NG_PAGE_HELP)
        put_help_lines(&whole);
    else
        put_rank_lines(browser, &whole);
    if (fclose(whole.file) != 0)
        return;
    list->count = UINT32_MAX - whole.left;
    if (list->top + browser->body > list->count)
        list->top = list->count > browser->body ? list->count - browser->body : 0;
    uint32_t number = 0;
    for (char *at = text, *end; (end = strchr(at, '\n')); at = end + 1, number++)
        if (number >= list->top && number - list->top < browser->body && sheet->left) {
            fwrite(at, 1, (size_t)(end + 1 - at), sheet->file);
            sheet->left--;
        }
}

/* ---- The whole ---- */

/* The head in at most a third of the picture, without the empty line at its end. */
static void put_head(const struct ng_browser *browser, const struct ng_table_paper *paper,
                     struct ng_sheet *sheet)
{
    struct ng_sheet head = *sheet;
    struct ng_table_paper calm = *paper;
    NG_FREED char *text = NULL;
    size_t bytes = 0;

    head.file = open_memstream(&text, &bytes);
    head.left = sheet->left < 6 ? 1 : sheet->left / 3;
    calm.trouble = NULL;
    if (!head.file)
        return;
    ng_table_put_head(&head, browser->table, &calm);
    if (fclose(head.file) == 0) {
        while (bytes > 1 && text[bytes - 1] == '\n' && text[bytes - 2] == '\n')
            bytes--;
        for (size_t i = 0; i < bytes && sheet->left; i++)
            sheet->left -= text[i] == '\n';
        fwrite(text, 1, bytes, sheet->file);
    }
}

static void put_position(const struct ng_browser *browser, const struct ng_table_paper *paper,
                         struct ng_sheet *sheet)
{
    static const char *const pages[NG_PAGE_COUNT] = {[NG_PAGE_RANKS] = "ranks",
                                                     [NG_PAGE_GROUPS] = "groups",
                                                     [NG_PAGE_JOBS] = "jobs",
                                                     [NG_PAGE_RANK] = "rank",
                                                     [NG_PAGE_HELP] = "help"};
    const struct ng_browser_list *list = &browser->lists[browser->page];
    char line[1024], safe[512];
    struct ng_text text = {line, 0, sizeof(line)};

    line[0] = '\0';
    if (paper->trouble) {
        ng_sheet_safe(safe, sizeof(safe), paper->trouble);
        ng_sheet_put(sheet, "1;31", "%s", safe);
        return;
    }
    if (browser->typing) {
        ng_sheet_safe(safe, sizeof(safe), browser->filter);
        ng_sheet_put(sheet, "1", "/%s_", safe);
        return;
    }
    uint32_t last =
        list->top + browser->body < list->count ? list->top + browser->body : list->count;
    ng_text_add(&text, "%s: lines %" PRIu32 "-%" PRIu32 " of %" PRIu32, pages[browser->page],
                list->count ? list->top + 1 : 0, last, list->count);
    if (browser->page == NG_PAGE_RANKS) {
        ng_text_add(&text, " (%" PRIu32 " rank%s%s)   sorted by %s", browser->member_count,
                    browser->member_count == 1 ? "" : "s",
                    browser->unfolded ? "" : ", alike ones folded", sorts[browser->sort]);
        if (browser->group_id)
            ng_text_add(&text, "   of one group");
        ng_sheet_safe(safe, sizeof(safe), browser->filter);
        if (safe[0])
            ng_text_add(&text, "   only those with \"%s\"", safe);
    }
    ng_sheet_put(sheet, NULL, "%s", line);
}

static void put_keys(const struct ng_browser *browser, struct ng_sheet *sheet)
{
    static const char *const keys[NG_PAGE_COUNT] = {
        [NG_PAGE_RANKS] = "q quit  ? help  Enter open  c culprit  / find  s sort  f fold  "
                          "g groups  j jobs",
        [NG_PAGE_GROUPS] = "q quit  ? help  Enter its ranks  c culprit  g ranks  j jobs  Esc back",
        [NG_PAGE_JOBS] = "q quit  ? help  Enter look at it  Esc back",
        [NG_PAGE_RANK] = "q quit  ? help  t take its stack now  Esc back",
        [NG_PAGE_HELP] = "q quit  Esc back",
    };

    ng_sheet_put(sheet, "7", "%s", browser->typing ? "Enter keep  Esc clear" : keys[browser->page]);
}

/* Keep the cursor in sight. */
static void scroll(struct ng_browser *browser)
{
    struct ng_browser_list *list = &browser->lists[browser->page];

    if (browser->page == NG_PAGE_RANK || browser->page == NG_PAGE_HELP)
        return;
    if (list->cursor >= list->top + browser->body)
        list->top = list->cursor + 1 - browser->body;
    if (list->top + browser->body > list->count)
        list->top = list->count > browser->body ? list->count - browser->body : 0;
    if (list->cursor < list->top)
        list->top = list->cursor;
}

void ng_browser_print(struct ng_browser *browser, const struct ng_table_paper *paper, FILE *file)
{
    struct ng_sheet sheet = {
        .file = file, .columns = paper->columns, .left = paper->lines, .colour = paper->colour};
    bool titled = browser->page <= NG_PAGE_JOBS;

    if (sheet.columns < 20)
        sheet.columns = 20;
    if (sheet.columns > NG_SHEET_COLUMNS_MAX)
        sheet.columns = NG_SHEET_COLUMNS_MAX;
    sheet.left = sheet.left > BOTTOM + 2 ? sheet.left - BOTTOM : 2;
    if (browser->table && browser->page <= NG_PAGE_GROUPS)
        put_head(browser, paper, &sheet);
    browser->body = sheet.left > titled + 1u ? sheet.left - titled : 1;
    scroll(browser);
    if (browser->page == NG_PAGE_JOBS)
        put_job_rows(browser, &sheet);
    else if (!titled)
        put_lines(browser, &sheet);
    else if (browser->table && browser->page == NG_PAGE_RANKS)
        put_rank_rows(browser, &sheet);
    else if (browser->table)
        put_group_rows(browser, &sheet);
    while (sheet.left)
        ng_sheet_put(&sheet, NULL, "%s", "");
    sheet.left = BOTTOM;
    put_position(browser, paper, &sheet);
    put_keys(browser, &sheet);
}
