/*
 * The table as text: a header, one line for each row, and rows that do not fit merged into a few
 * lines.
 *
 * Names come from programs: none of them is printed without escaping it.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "core/report/dump.h"
#include "core/report/report.h"
#include "core/util/clock.h"
#include "core/util/text.h"
#include "core/verdict/straggler.h"
#include "tools/ingest/memory_sums.h"
#include "tools/judge/live_verdict.h"
#include "tools/render/findings.h"
#include "tools/render/table.h"

/* If the height is unlimited. */
#define LINES_MAX   100
#define COLUMNS_MAX 2000
/* At least this much is printed, however small the terminal. */
#define LINES_MIN 12
/* Distinct kinds of positions among the rows that do not fit. */
#define FOLDS_MAX  512
#define FOLDS_TOLD 16
#define NOTES_TOLD 3
#define WHYS_TOLD  4
#define LATE_TOLD  4 /* stragglers that the verdict does not report */

enum {
    COLUMN_MARK,
    COLUMN_RANK,
    COLUMN_HOST,
    COLUMN_PID,
    COLUMN_DEVICE,
    COLUMN_LIFE,
    COLUMN_GROUP,
    COLUMN_MEMBER,
    COLUMN_ENTERED,
    COLUMN_STARTED,
    COLUMN_COMPLETED,
    COLUMN_BEHIND,
    COLUMN_IN,
    COLUMN_P2P,
    COLUMN_MEMORY,
    COLUMN_REGISTERED,
    COLUMN_COUNT,
};

static const struct {
    const char *title;
    bool right;
} columns[COLUMN_COUNT] = {
    [COLUMN_MARK] = {"", false},          [COLUMN_RANK] = {"RANK", true},
    [COLUMN_HOST] = {"HOST", false},      [COLUMN_PID] = {"PID", true},
    [COLUMN_DEVICE] = {"DEVICE", false},  [COLUMN_LIFE] = {"LIFE", false},
    [COLUMN_GROUP] = {"GROUP", false},    [COLUMN_MEMBER] = {"MEMBER", true},
    [COLUMN_ENTERED] = {"ENTERED", true}, [COLUMN_STARTED] = {"STARTED", true},
    [COLUMN_COMPLETED] = {"DONE", true},  [COLUMN_BEHIND] = {"BEHIND", false},
    [COLUMN_IN] = {"IN", false},          [COLUMN_P2P] = {"SEND/RECV", false},
    [COLUMN_MEMORY] = {"MEMORY", false},  [COLUMN_REGISTERED] = {"REGISTERED", false},
};

#define CELL_BYTES 160
typedef char cells[COLUMN_COUNT][CELL_BYTES];

/* The output while it is written. */
struct sheet {
    FILE *file;
    unsigned columns;
    unsigned left; /* lines */
    bool colour;
};

const char *ng_table_duration(int64_t ns, char *ret_text, size_t bytes)
{
    struct ng_text text = {ret_text, 0, bytes};

    ret_text[0] = '\0';
    ng_text_add_duration(&text, ns);
    return ret_text;
}

/* ---- Text and its width ---- */

static bool goes_on(char byte)
{
    return ((unsigned char)byte & 0xc0) == 0x80;
}

/* In columns of a terminal, counting each character as one. */
static size_t width_of(const char *text)
{
    size_t width = 0;

    for (; *text; text++)
        width += !goes_on(*text);
    return width;
}

/* How many bytes the first `width` characters take. */
static size_t bytes_of(const char *text, size_t width)
{
    const char *at = text;

    for (; *at; at++)
        if (!goes_on(*at) && width-- == 0)
            break;
    return (size_t)(at - text);
}

/* Cut at a whole character. */
static void put_text(char *ret_text, size_t bytes, const char *text)
{
    size_t length = strlen(text);

    if (length >= bytes)
        for (length = bytes - 1; length > 0 && goes_on(text[length]);)
            length--;
    memcpy(ret_text, text, length);
    ret_text[length] = '\0';
}

static void put_safe(char *ret_text, size_t bytes, const char *text)
{
    char *safe = ng_findings_safe_copy(text);

    put_text(ret_text, bytes, safe ? safe : "?");
    free(safe);
}

/* One line, no longer than the output is wide. */
static void put_line(struct sheet *sheet, const char *text, const char *colour)
{
    size_t bytes = bytes_of(text, sheet->columns);

    if (!sheet->left)
        return;
    sheet->left--;
    while (bytes > 0 && text[bytes - 1] == ' ')
        bytes--;
    if (colour && sheet->colour)
        fprintf(sheet->file, "\033[%sm%.*s\033[0m\n", colour, (int)bytes, text);
    else
        fprintf(sheet->file, "%.*s\n", (int)bytes, text);
}

__attribute__((format(printf, 3, 4))) static void put(struct sheet *sheet, const char *colour,
                                                      const char *format, ...)
{
    char line[COLUMNS_MAX * 4];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    put_line(sheet, line, colour);
}

/* A sentence over as many lines as it needs, `lines` at most, broken between words. */
static void put_sentence(struct sheet *sheet, const char *text, const char *indent,
                         const char *colour, unsigned lines)
{
    bool first = true;

    while (*text && lines-- > 0) {
        size_t room = sheet->columns - (first ? 0 : strlen(indent));
        size_t bytes = bytes_of(text, room), end = bytes;
        if (text[bytes] && lines > 0) {
            while (end > 0 && text[end] != ' ')
                end--;
            end = end ? end : bytes;
        }
        put(sheet, colour, "%s%.*s", first ? "" : indent, (int)end, text);
        text += end + strspn(text + end, " ");
        first = false;
    }
}

/* ---- Cells ---- */

static void put_group(const struct ng_table *table, uint32_t group, char *ret_text, size_t bytes)
{
    const struct ng_view_group *one = &table->view->groups[group];
    char name[sizeof(one->name) * 3];

    put_safe(name, sizeof(name), one->name);
    if (!one->name[0])
        snprintf(ret_text, bytes, "%016" PRIx64, one->id);
    else if (table->shares_name[group])
        snprintf(ret_text, bytes, "%.*s %016" PRIx64, (int)bytes_of(name, 32), name, one->id);
    else
        put_text(ret_text, bytes, name);
}

static void put_life(const struct ng_view_process *process, char *ret_text, size_t bytes)
{
    char age[32] = "", when[48] = "";

    if (process->life_age_ns > 0)
        snprintf(when, sizeof(when), " %s ago",
                 ng_table_duration(process->life_age_ns, age, sizeof(age)));
    switch (process->life) {
    case NG_LIFE_RUNNING:
        snprintf(ret_text, bytes, "running");
        return;
    case NG_LIFE_STOPPED:
        snprintf(ret_text, bytes, "stopped");
        return;
    case NG_LIFE_EXITED:
        if (process->exit_status == NG_EXIT_STATUS_EXEC)
            snprintf(ret_text, bytes, "exec%s", when);
        else if (process->exit_status < 0)
            snprintf(ret_text, bytes, "exited%s", when);
        else
            snprintf(ret_text, bytes, "exited %d%s", process->exit_status, when);
        return;
    case NG_LIFE_DEAD:
        if (process->exit_status > NG_EXIT_STATUS_SIGNAL &&
            process->exit_status < NG_EXIT_STATUS_SILENT)
            snprintf(ret_text, bytes, "dead (signal %d)%s",
                     process->exit_status - NG_EXIT_STATUS_SIGNAL, when);
        else
            snprintf(ret_text, bytes, "dead%s", when);
        return;
    case NG_LIFE_ENDED_BY_GUARD:
        snprintf(ret_text, bytes, "ended by guard%s", when);
        return;
    case NG_LIFE_LOST:
        snprintf(ret_text, bytes, "lost%s%s", *age ? " for " : "", age);
        return;
    case NG_LIFE_UNKNOWN:
        break;
    }
    snprintf(ret_text, bytes, "unknown");
}

static void put_operation(const struct ng_table_row *row, char *ret_text, size_t bytes)
{
    const char *name = row->op != NG_OP_NONE ? ng_op_name(row->op) : "work";

    if (row->seq)
        snprintf(ret_text, bytes, "%s #%" PRIu64, name, row->seq);
    else
        snprintf(ret_text, bytes, "%s", name);
}

/* The position of a row by its current call. */
static void put_stage(const struct ng_table *table, const struct ng_table_row *row, char *ret_text,
                      size_t bytes)
{
    char operation[96];

    put_operation(row, operation, sizeof(operation));
    if (row->process == NG_TABLE_NOBODY) {
        snprintf(ret_text, bytes, "not seen");
        return;
    }
    const struct ng_view_process *process = &table->view->processes[row->process];
    bool lives = process->life == NG_LIFE_RUNNING || process->life == NG_LIFE_STOPPED ||
                 process->life == NG_LIFE_UNKNOWN;
    if (row->phase != NG_PHASE_NONE && (lives || row->age_ns)) {
        static const char *const words[] = {[NG_PHASE_GROUP] = " of a group call not ended",
                                            [NG_PHASE_CALL] = "",
                                            [NG_PHASE_QUEUED] = ", queued",
                                            [NG_PHASE_DEVICE] = ", on device"};
        snprintf(ret_text, bytes, "%s%s", operation, words[row->phase]);
        return;
    }
    if (!row->member)
        snprintf(ret_text, bytes, "no group");
    else if (row->member->async_error)
        snprintf(ret_text, bytes, "error %s", ng_result_name(row->member->async_error));
    else if (row->member->cuda_error)
        snprintf(ret_text, bytes, "CUDA error: %s", ng_cuda_error_text(row->member->cuda_error));
    else if (row->member->state != NG_GROUP_READY)
        snprintf(ret_text, bytes, "%s", ng_dump_group_state_name(row->member->state));
    else
        snprintf(ret_text, bytes, "-");
}

/* The position of a row without its duration: what merged rows have in common. */
static void put_place(const struct ng_table *table, const struct ng_table_row *row, char *ret_text,
                      size_t bytes)
{
    put_stage(table, row, ret_text, bytes);
    if (!row->member || !row->member->rests || row->hidden)
        return;
    size_t used = strcmp(ret_text, "-") == 0 ? 0 : strlen(ret_text);
    snprintf(ret_text + used, bytes - used, "%ssuspended", used ? ", " : "");
}

static void put_p2p(const struct ng_table *table, const struct ng_table_row *row, char *ret_text,
                    size_t bytes)
{
    const struct ng_view_record *oldest = row->oldest_p2p;
    char age[32];

    if (!oldest)
        return;
    const struct ng_view_member *peer =
        ng_view_member(table->view, row->member->group, oldest->signature.root);
    int rank = peer ? table->rows[peer - table->view->members].rank : -1;
    const char *op = ng_op_name(oldest->signature.op);
    const char *word = oldest->signature.op == NG_OP_Send ? "to" : "from";
    size_t used = 0;
    if (rank >= 0)
        used = (size_t)snprintf(ret_text, bytes, "%s %s rank %d, ", op, word, rank);
    else
        used = (size_t)snprintf(ret_text, bytes, "%s %s group rank %d, ", op, word,
                                oldest->signature.root);
    snprintf(ret_text + used, bytes - used, "%s",
             ng_table_duration(oldest->entered_age_ns, age, sizeof(age)));
    uint32_t others = row->sends + row->receives - 1;
    if (others) {
        used = strlen(ret_text);
        snprintf(ret_text + used, bytes - used, " (and %" PRIu32 " more)", others);
    }
}

static void put_member(const struct ng_table *table, const struct ng_table_row *row, cells cell)
{
    const struct ng_view_member *member = row->member;
    const struct ng_view_group *group = &table->view->groups[member->group];
    char age[32];

    if (member->device >= 0)
        snprintf(cell[COLUMN_DEVICE], CELL_BYTES, "%d ", member->device);
    char pci_id[sizeof(member->pci_id) * 3];
    put_safe(pci_id, sizeof(pci_id), member->pci_id);
    size_t used = strlen(cell[COLUMN_DEVICE]);
    snprintf(cell[COLUMN_DEVICE] + used, CELL_BYTES - used, "%s", pci_id);
    put_group(table, member->group, cell[COLUMN_GROUP], CELL_BYTES);
    if (group->nranks > 0)
        snprintf(cell[COLUMN_MEMBER], CELL_BYTES, "%d/%d", member->group_rank, group->nranks);
    else
        snprintf(cell[COLUMN_MEMBER], CELL_BYTES, "%d/?", member->group_rank);
    snprintf(cell[COLUMN_ENTERED], CELL_BYTES, "%" PRIu64, member->entered);
    snprintf(cell[COLUMN_STARTED], CELL_BYTES, "%" PRIu64, member->started);
    snprintf(cell[COLUMN_COMPLETED], CELL_BYTES, "%" PRIu64, member->completed);
    if (row->behind && row->behind_ns)
        snprintf(cell[COLUMN_BEHIND], CELL_BYTES, "%" PRIu64 ", %s", row->behind,
                 ng_table_duration(row->behind_ns, age, sizeof(age)));
    else if (row->behind)
        snprintf(cell[COLUMN_BEHIND], CELL_BYTES, "%" PRIu64, row->behind);
    else
        snprintf(cell[COLUMN_BEHIND], CELL_BYTES, "-");
}

/* "12, 3.5 GiB": segments of the process; and those registered with its communicator, with their
 * share of the bytes sent and received. */
static void put_memory(const struct ng_table *table, const struct ng_table_row *row, cells cell)
{
    struct ng_text memory = {cell[COLUMN_MEMORY], 0, CELL_BYTES},
                   registered = {cell[COLUMN_REGISTERED], 0, CELL_BYTES};
    struct ng_memory_sum sum;

    if (row->process == NG_TABLE_NOBODY ||
        !ng_memory_sums_memory(&table->view->processes[row->process], &sum))
        return;
    ng_memory_sums_add_sum(&memory, sum.segments, sum.bytes);
    if (!row->member || !row->member->registration.known)
        return;
    const struct ng_view_registration *told = &row->member->registration;
    ng_memory_sums_add_sum(&registered, told->segments, told->segment_bytes);
    ng_text_add(&registered, ", %u%%", ng_memory_sums_share(told));
}

static void fill(const struct ng_table *table, const struct ng_table_row *row, cells cell)
{
    char age[32];

    for (unsigned i = 0; i < COLUMN_COUNT; i++)
        cell[i][0] = '\0';
    snprintf(cell[COLUMN_MARK], CELL_BYTES, "%s", row->culprit ? "!" : " ");
    if (row->rank >= 0)
        snprintf(cell[COLUMN_RANK], CELL_BYTES, "%d", row->rank);
    else
        snprintf(cell[COLUMN_RANK], CELL_BYTES, "?");
    if (row->process != NG_TABLE_NOBODY) {
        const struct ng_view_process *process = &table->view->processes[row->process];
        put_safe(cell[COLUMN_HOST], CELL_BYTES, process->host);
        snprintf(cell[COLUMN_PID], CELL_BYTES, "%d", process->pid);
        put_life(process, cell[COLUMN_LIFE], CELL_BYTES);
    } else {
        put_safe(cell[COLUMN_HOST], CELL_BYTES, row->culprit->host);
    }
    if (row->member)
        put_member(table, row, cell);
    put_place(table, row, cell[COLUMN_IN], CELL_BYTES);
    if (row->phase != NG_PHASE_NONE) {
        size_t used = strlen(cell[COLUMN_IN]);
        snprintf(cell[COLUMN_IN] + used, CELL_BYTES - used, ", %s",
                 ng_table_duration(row->age_ns, age, sizeof(age)));
    }
    put_p2p(table, row, cell[COLUMN_P2P], CELL_BYTES);
    put_memory(table, row, cell);
}

/* ---- Rows ---- */

static void put_row(struct sheet *sheet, cells cell, const size_t *widths, const char *colour)
{
    char line[COLUMN_COUNT * (CELL_BYTES + COLUMN_COUNT + 2)];
    size_t used = 0;

    line[0] = '\0';
    for (unsigned i = 0; i < COLUMN_COUNT; i++) {
        if (!widths[i])
            continue;
        int blank = (int)(widths[i] - width_of(cell[i]));
        int more =
            snprintf(line + used, sizeof(line) - used, "%s%*s%s%*s", i ? " " : "",
                     columns[i].right ? blank : 0, "", cell[i], columns[i].right ? 0 : blank, "");
        used += (size_t)more < sizeof(line) - used ? (size_t)more : sizeof(line) - used - 1;
        if (i && i + 1 < COLUMN_COUNT && used + 1 < sizeof(line)) {
            line[used++] = ' ';
            line[used] = '\0';
        }
    }
    put_line(sheet, line, colour);
}

/* If the output is too narrow, the least significant columns are left out. */
static void narrow(size_t *widths, unsigned wanted)
{
    static const unsigned least[] = {COLUMN_MEMORY,  COLUMN_REGISTERED, COLUMN_DEVICE,
                                     COLUMN_STARTED, COLUMN_PID,        COLUMN_COMPLETED,
                                     COLUMN_MEMBER,  COLUMN_HOST};
    size_t whole = 0;

    for (unsigned i = 0; i < COLUMN_COUNT; i++)
        whole += widths[i] ? widths[i] + 2 : 0;
    for (size_t i = 0; i < sizeof(least) / sizeof(least[0]) && whole > wanted; i++) {
        whole -= widths[least[i]] ? widths[least[i]] + 2 : 0;
        widths[least[i]] = 0;
    }
}

static void put_rows(struct sheet *sheet, const struct ng_table *table, uint32_t count)
{
    size_t widths[COLUMN_COUNT] = {0};
    cells *rows = calloc(count + 1, sizeof(*rows));

    if (!rows)
        return;
    for (uint32_t i = 0; i < count; i++) {
        fill(table, &table->rows[table->order[i]], rows[i + 1]);
        for (unsigned k = 0; k < COLUMN_COUNT; k++) {
            size_t width = width_of(rows[i + 1][k]);
            widths[k] = width > widths[k] ? width : widths[k];
        }
    }
    /* A column in which no row has a value is left out. */
    for (unsigned k = 0; k < COLUMN_COUNT; k++) {
        snprintf(rows[0][k], CELL_BYTES, "%s", columns[k].title);
        if (widths[k] && widths[k] < width_of(columns[k].title))
            widths[k] = width_of(columns[k].title);
    }
    narrow(widths, sheet->columns);
    put_row(sheet, rows[0], widths, "7");
    for (uint32_t i = 0; i < count; i++)
        put_row(sheet, rows[i + 1], widths, table->rows[table->order[i]].culprit ? "1;31" : NULL);
    free(rows);
}

/* ---- What does not fit ---- */

struct fold {
    char text[CELL_BYTES * 2];
    uint32_t count;
};

static void put_fold_text(const struct ng_table *table, const struct ng_table_row *row,
                          char *ret_text, size_t bytes)
{
    char place[CELL_BYTES], group[CELL_BYTES], life[CELL_BYTES] = "";
    static const char *const lives[NG_TABLE_LIVES] = {
        [NG_LIFE_STOPPED] = "stopped, ", [NG_LIFE_EXITED] = "exited, ",
        [NG_LIFE_DEAD] = "dead, ",       [NG_LIFE_ENDED_BY_GUARD] = "ended by guard, ",
        [NG_LIFE_LOST] = "lost, ",
    };

    if (row->process != NG_TABLE_NOBODY) {
        unsigned number = table->view->processes[row->process].life;
        snprintf(life, sizeof(life), "%s",
                 number < NG_TABLE_LIVES && lives[number] ? lives[number] : "");
    }
    put_place(table, row, place, sizeof(place));
    if (!row->member) {
        snprintf(ret_text, bytes, "%s%s", life, place);
        return;
    }
    put_group(table, row->member->group, group, sizeof(group));
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

static void put_folds(struct sheet *sheet, const struct ng_table *table, uint32_t first)
{
    struct fold *folds = calloc(FOLDS_MAX, sizeof(*folds));
    uint32_t others;

    if (!folds)
        return;
    size_t count = fold(table, first, folds, &others);
    if (count == 1 && !others) {
        put(sheet, NULL, "… and %" PRIu32 " more, all %s", folds[0].count, folds[0].text);
    } else {
        size_t told = sheet->left < FOLDS_TOLD ? sheet->left : FOLDS_TOLD;
        if (told < count || others)
            told = told ? told - 1 : 0; /* the last line gives the number of the others */
        told = told < count ? told : count;
        for (size_t i = 0; i < told; i++)
            put(sheet, NULL, "… and %" PRIu32 " more %s", folds[i].count, folds[i].text);
        for (size_t i = told; i < count; i++)
            others += folds[i].count;
        if (others)
            put(sheet, NULL, "… and %" PRIu32 " more in %zu%s other places", others, count - told,
                count == FOLDS_MAX ? " or more" : "");
    }
    free(folds);
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
static void put_stragglers(struct sheet *sheet, const struct ng_table *table)
{
    const struct ng_verdict *verdict = table->verdict;
    struct ng_arena arena = {0};
    struct ng_stragglers found;
    char why[512], group[CELL_BYTES], line[1024];
    unsigned told = 0;

    ng_stragglers_find(table->view, &arena, &found);
    for (uint32_t i = 0; i < found.count && told < LATE_TOLD; i++) {
        const struct ng_straggler *straggler = &found.stragglers[i];
        if (verdict->kind == NG_KIND_STRAGGLER &&
            verdict->group_id == table->view->groups[straggler->group].id)
            continue;
        put_group(table, straggler->group, group, sizeof(group));
        ng_straggler_why(straggler, why, sizeof(why));
        snprintf(line, sizeof(line), "late in %s: rank %d %s; %s", group,
                 table->rows[straggler->member - table->view->members].rank, why,
                 ng_confidence_name(straggler->confidence));
        put_sentence(sheet, line, "    ", NULL, 3);
        told++;
    }
    ng_arena_reset(&arena);
}

/* Operations there do not become suspect, and no deadline passes. */
static void put_suspended(struct sheet *sheet, const struct ng_table *table)
{
    uint32_t shown = 0, rest = 0;

    for (uint32_t i = 0; i < table->row_count; i++) {
        const struct ng_table_row *row = &table->rows[i];
        bool counts = row->member && !row->hidden;
        shown += counts;
        rest += counts && row->member->rests;
    }
    if (rest)
        put(sheet, "33",
            "  suspended: the deadlines of %" PRIu32 " of %" PRIu32 " communicators rest", rest,
            shown);
}

static void put_head(struct sheet *sheet, const struct ng_table *table,
                     const struct ng_table_paper *paper)
{
    static const char *const lives[NG_TABLE_LIVES] = {
        [NG_LIFE_UNKNOWN] = "unknown", [NG_LIFE_RUNNING] = "running",
        [NG_LIFE_STOPPED] = "stopped", [NG_LIFE_EXITED] = "exited",
        [NG_LIFE_DEAD] = "dead",       [NG_LIFE_ENDED_BY_GUARD] = "ended by guard",
        [NG_LIFE_LOST] = "lost"};
    char job[400], when[64], counts[256] = "", line[4 * NG_REPORT_LINE_BYTES];
    size_t used = 0;

    put_safe(job, sizeof(job), table->view->job);
    put_clock(paper->time_unix_ns, when, sizeof(when));
    for (unsigned i = 0; i < NG_TABLE_LIVES; i++)
        if (table->lives[i])
            used += (size_t)snprintf(counts + used, sizeof(counts) - used, "%s%" PRIu32 " %s",
                                     used ? ", " : "", table->lives[i], lives[i]);
    char of[32] = "";
    if (table->expected)
        snprintf(of, sizeof(of), " of %" PRIu32, table->expected);
    put(sheet, "1",
        "job %s   %" PRIu32 " host%s   %" PRIu32 "%s ranks seen   %" PRIu32 " process%s: %s   %s",
        job, table->hosts, table->hosts == 1 ? "" : "s", table->seen, of,
        table->view->process_count, table->view->process_count == 1 ? "" : "es", counts, when);
    ng_live_verdict_line(table->verdict, paper->stuck_ns, line, NG_REPORT_LINE_BYTES + 40);
    put_sentence(sheet, line, "  ", table->verdict->kind == NG_KIND_HEALTHY ? "32" : "1;31", 4);
    put_suspended(sheet, table);
    for (uint32_t i = 0; i < table->verdict->culprit_count && i < WHYS_TOLD; i++) {
        const struct ng_culprit *culprit = &table->verdict->culprits[i];
        char why[sizeof(culprit->why) * 3], name[32] = "?";
        if (!culprit->why[0])
            continue;
        put_safe(why, sizeof(why), culprit->why);
        if (culprit->rank >= 0)
            snprintf(name, sizeof(name), "%d", culprit->rank);
        snprintf(line, sizeof(line), "  rank %s: %.1200s", name, why);
        put_sentence(sheet, line, "    ", NULL, 3);
    }
    put_stragglers(sheet, table);
    for (uint32_t i = 0; i < table->view->note_count && i < NOTES_TOLD; i++) {
        put_safe(line, sizeof(line), table->view->notes[i]);
        put(sheet, NULL, "not known: %s", line);
    }
    if (table->view->note_count > NOTES_TOLD)
        put(sheet, NULL, "not known: %" PRIu32 " more things",
            table->view->note_count - NOTES_TOLD);
    if (paper->trouble) {
        put_safe(line, sizeof(line), paper->trouble);
        put_sentence(sheet, line, "  ", "1;31", 3);
    }
    put(sheet, NULL, "%s", "");
}

void ng_table_print(const struct ng_table *table, const struct ng_table_paper *paper, FILE *file)
{
    struct sheet sheet = {.file = file,
                          .columns = paper->columns && paper->columns < COLUMNS_MAX ? paper->columns
                                                                                    : COLUMNS_MAX,
                          .left = paper->lines ? paper->lines : LINES_MAX,
                          .colour = paper->colour};

    if (sheet.columns < 20)
        sheet.columns = 20;
    if (sheet.left < LINES_MIN)
        sheet.left = LINES_MIN;
    put_head(&sheet, table, paper);
    if (!table->order_count) {
        put(&sheet, NULL, "no process");
        return;
    }
    uint32_t room = sheet.left > 2 ? sheet.left - 1 : 1, shown = table->order_count;
    if (shown > room) {
        uint32_t for_folds = room / 3 < FOLDS_TOLD ? room / 3 : FOLDS_TOLD;
        shown = room - (for_folds ? for_folds : 1);
        /* Few kinds of positions leave their lines to the rows. */
        struct fold *folds = calloc(FOLDS_MAX, sizeof(*folds));
        uint32_t others;
        size_t kinds = folds ? fold(table, shown, folds, &others) : FOLDS_MAX;
        free(folds);
        if (kinds < for_folds)
            shown += for_folds - (uint32_t)kinds;
    }
    put_rows(&sheet, table, shown);
    if (shown < table->order_count)
        put_folds(&sheet, table, shown);
}
