/*
 * The cells of a table's rows as text, and lines made of them.
 *
 * Names come from programs: none of them becomes part of a cell without escaping it.
 */
#include "tools/render/table_cells.h"

#include <inttypes.h>
#include <string.h>

#include "core/report/dump.h"
#include "core/util/macros.h"
#include "core/util/text.h"
#include "tools/ingest/memory_sums.h"
#include "tools/render/group_list.h"

static const struct {
    const char *title;
    bool right;
} columns[NG_COLUMN_COUNT] = {
    [NG_COLUMN_MARK] = {"", false},
    [NG_COLUMN_RANK] = {"RANK", true},
    [NG_COLUMN_HOST] = {"HOST", false},
    [NG_COLUMN_PID] = {"PID", true},
    [NG_COLUMN_DEVICE] = {"DEVICE", false},
    [NG_COLUMN_LIFE] = {"LIFE", false},
    [NG_COLUMN_GROUP] = {"GROUP", false},
    [NG_COLUMN_MEMBER] = {"MEMBER", true},
    [NG_COLUMN_ENTERED] = {"ENTERED", true},
    [NG_COLUMN_STARTED] = {"STARTED", true},
    [NG_COLUMN_COMPLETED] = {"DONE", true},
    [NG_COLUMN_BEHIND] = {"BEHIND", false},
    [NG_COLUMN_IN] = {"IN", false},
    [NG_COLUMN_P2P] = {"SEND/RECV", false},
    [NG_COLUMN_DEADLINE] = {"DEADLINE", false},
    [NG_COLUMN_MEMORY] = {"MEMORY", false},
    [NG_COLUMN_REGISTERED] = {"REGISTERED", false},
};

const char *ng_table_duration(int64_t ns, char *ret_text, size_t bytes)
{
    struct ng_text text = {ret_text, 0, bytes};

    ret_text[0] = '\0';
    ng_text_add_duration(&text, ns);
    return ret_text;
}

/* ---- Cells ---- */

void ng_table_group(const struct ng_table *table, uint32_t group, char *ret_text, size_t bytes)
{
    const struct ng_view_group *one = &table->view->groups[group];
    char name[sizeof(one->name) * 3];

    ng_sheet_safe(name, sizeof(name), one->name);
    if (!one->name[0])
        snprintf(ret_text, bytes, "%016" PRIx64, one->id);
    else if (table->shares_name[group])
        snprintf(ret_text, bytes, "%.*s %016" PRIx64, (int)ng_sheet_bytes(name, 32), name, one->id);
    else
        ng_sheet_cut(ret_text, bytes, name);
}

void ng_table_deadline(int64_t timeout_ns, uint32_t policy, char *ret_text, size_t bytes)
{
    const char *name = ng_group_list_policy(policy);
    struct ng_text text = {ret_text, 0, bytes};

    ret_text[0] = '\0';
    if (timeout_ns)
        ng_text_add_duration(&text, timeout_ns);
    else if (name)
        ng_text_add(&text, "none");
    if (timeout_ns && name)
        ng_text_add(&text, ", %s", name);
}

const char *ng_table_life_word(enum ng_life life)
{
    return life == NG_LIFE_ENDED_BY_GUARD ? "ended by guard" : ng_dump_life_name(life);
}

void ng_table_life(const struct ng_view_process *process, char *ret_text, size_t bytes)
{
    enum ng_life life = process->life;
    struct ng_text text = {ret_text, 0, bytes};
    int status = process->exit_status;
    bool lost = life == NG_LIFE_LOST;

    ret_text[0] = '\0';
    ng_text_add(&text, "%s",
                life == NG_LIFE_EXITED && status == NG_EXIT_STATUS_EXEC ? "exec"
                                                                        : ng_table_life_word(life));
    if (life == NG_LIFE_EXITED && status >= 0 && status != NG_EXIT_STATUS_EXEC)
        ng_text_add(&text, " %d", status);
    if (life == NG_LIFE_DEAD && status > NG_EXIT_STATUS_SIGNAL && status < NG_EXIT_STATUS_SILENT)
        ng_text_add(&text, " (signal %d)", status - NG_EXIT_STATUS_SIGNAL);
    if (process->life_age_ns <= 0 || life < NG_LIFE_EXITED)
        return;
    ng_text_add(&text, lost ? " for " : " ");
    ng_text_add_duration(&text, process->life_age_ns);
    ng_text_add(&text, lost ? "" : " ago");
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

void ng_table_place(const struct ng_table *table, const struct ng_table_row *row, char *ret_text,
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

static void put_member(const struct ng_table *table, const struct ng_table_row *row,
                       ng_table_cells cell)
{
    const struct ng_view_member *member = row->member;
    const struct ng_view_group *group = &table->view->groups[member->group];
    char age[32];

    if (member->device >= 0)
        ng_table_cell_put(cell[NG_COLUMN_DEVICE], "%d ", member->device);
    char pci_id[sizeof(member->pci_id) * 3];
    ng_sheet_safe(pci_id, sizeof(pci_id), member->pci_id);
    ng_table_cell_add(cell[NG_COLUMN_DEVICE], "%s", pci_id);
    ng_table_group(table, member->group, cell[NG_COLUMN_GROUP], NG_TABLE_CELL_BYTES);
    if (group->nranks > 0)
        ng_table_cell_put(cell[NG_COLUMN_MEMBER], "%d/%d", member->group_rank, group->nranks);
    else
        ng_table_cell_put(cell[NG_COLUMN_MEMBER], "%d/?", member->group_rank);
    ng_table_cell_put(cell[NG_COLUMN_ENTERED], "%" PRIu64, member->entered);
    ng_table_cell_put(cell[NG_COLUMN_STARTED], "%" PRIu64, member->started);
    ng_table_cell_put(cell[NG_COLUMN_COMPLETED], "%" PRIu64, member->completed);
    if (row->behind && row->behind_ns)
        ng_table_cell_put(cell[NG_COLUMN_BEHIND], "%" PRIu64 ", %s", row->behind,
                          ng_table_duration(row->behind_ns, age, sizeof(age)));
    else if (row->behind)
        ng_table_cell_put(cell[NG_COLUMN_BEHIND], "%" PRIu64, row->behind);
    else
        ng_table_cell_put(cell[NG_COLUMN_BEHIND], "-");
    ng_table_deadline(member->timeout_ns, member->policy, cell[NG_COLUMN_DEADLINE],
                      NG_TABLE_CELL_BYTES);
}

/* "12, 3.5 GiB": segments of the process; and those registered with its communicator, with their
 * share of the bytes sent and received. */
static void put_memory(const struct ng_table *table, const struct ng_table_row *row,
                       ng_table_cells cell)
{
    struct ng_text memory = {cell[NG_COLUMN_MEMORY], 0, NG_TABLE_CELL_BYTES},
                   registered = {cell[NG_COLUMN_REGISTERED], 0, NG_TABLE_CELL_BYTES};
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

void ng_table_fill(const struct ng_table *table, const struct ng_table_row *row,
                   ng_table_cells cell)
{
    char age[32];

    for (unsigned i = 0; i < NG_COLUMN_COUNT; i++)
        cell[i][0] = '\0';
    ng_table_cell_put(cell[NG_COLUMN_MARK], "%s", row->culprit ? "!" : " ");
    if (row->rank >= 0)
        ng_table_cell_put(cell[NG_COLUMN_RANK], "%d", row->rank);
    else
        ng_table_cell_put(cell[NG_COLUMN_RANK], "?");
    if (row->process != NG_TABLE_NOBODY) {
        const struct ng_view_process *process = &table->view->processes[row->process];
        ng_sheet_safe(cell[NG_COLUMN_HOST], NG_TABLE_CELL_BYTES, process->host);
        ng_table_cell_put(cell[NG_COLUMN_PID], "%d", process->pid);
        ng_table_life(process, cell[NG_COLUMN_LIFE], NG_TABLE_CELL_BYTES);
    } else {
        ng_sheet_safe(cell[NG_COLUMN_HOST], NG_TABLE_CELL_BYTES, row->culprit->host);
    }
    if (row->member)
        put_member(table, row, cell);
    ng_table_place(table, row, cell[NG_COLUMN_IN], NG_TABLE_CELL_BYTES);
    if (row->phase != NG_PHASE_NONE) {
        ng_table_cell_add(cell[NG_COLUMN_IN], ", %s",
                          ng_table_duration(row->age_ns, age, sizeof(age)));
    }
    put_p2p(table, row, cell[NG_COLUMN_P2P], NG_TABLE_CELL_BYTES);
    put_memory(table, row, cell);
}

/* ---- Lines ---- */

void ng_table_put_cells(struct ng_sheet *sheet, ng_table_cells cell,
                        const size_t widths[NG_COLUMN_COUNT], const char *colour)
{
    char line[NG_COLUMN_COUNT * (NG_TABLE_CELL_BYTES + NG_COLUMN_COUNT + 2)];
    size_t used = 0;

    line[0] = '\0';
    for (unsigned i = 0; i < NG_COLUMN_COUNT; i++) {
        if (!widths[i])
            continue;
        int blank = (int)(widths[i] - ng_sheet_width(cell[i]));
        int more =
            snprintf(line + used, sizeof(line) - used, "%s%*s%s%*s", i ? " " : "",
                     columns[i].right ? blank : 0, "", cell[i], columns[i].right ? 0 : blank, "");
        used += (size_t)more < sizeof(line) - used ? (size_t)more : sizeof(line) - used - 1;
        if (i && i + 1 < NG_COLUMN_COUNT && used + 1 < sizeof(line)) {
            line[used++] = ' ';
            line[used] = '\0';
        }
    }
    ng_sheet_put_line(sheet, line, colour);
}

/* If the output is too narrow, the least significant columns are left out. */
static void narrow(size_t *widths, unsigned wanted)
{
    static const unsigned least[] = {NG_COLUMN_DEADLINE,  NG_COLUMN_MEMORY,  NG_COLUMN_REGISTERED,
                                     NG_COLUMN_DEVICE,    NG_COLUMN_STARTED, NG_COLUMN_PID,
                                     NG_COLUMN_COMPLETED, NG_COLUMN_MEMBER,  NG_COLUMN_HOST};
    size_t whole = 0;

    for (unsigned i = 0; i < NG_COLUMN_COUNT; i++)
        whole += widths[i] ? widths[i] + 2 : 0;
    for (size_t i = 0; i < NG_COUNT(least) && whole > wanted; i++) {
        whole -= widths[least[i]] ? widths[least[i]] + 2 : 0;
        widths[least[i]] = 0;
    }
}

void ng_table_widen(size_t widths[NG_COLUMN_COUNT], ng_table_cells cells)
{
    for (unsigned i = 0; i < NG_COLUMN_COUNT; i++) {
        size_t width = ng_sheet_width(cells[i]);
        widths[i] = width > widths[i] ? width : widths[i];
    }
}

void ng_table_fit(size_t widths[NG_COLUMN_COUNT], unsigned width)
{
    for (unsigned i = 0; i < NG_COLUMN_COUNT; i++)
        if (widths[i] && widths[i] < ng_sheet_width(columns[i].title))
            widths[i] = ng_sheet_width(columns[i].title);
    narrow(widths, width);
}

void ng_table_put_titles(struct ng_sheet *sheet, const size_t widths[NG_COLUMN_COUNT])
{
    ng_table_cells titles;

    for (unsigned i = 0; i < NG_COLUMN_COUNT; i++)
        snprintf(titles[i], sizeof(titles[i]), "%s", columns[i].title);
    ng_table_put_cells(sheet, titles, widths, "7");
}
