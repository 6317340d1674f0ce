/*
 * The cells of a table's rows as text, and lines made of them.
 *
 * For the rooms' own writers of tables: the one that prints, and the one that people browse.
 */
#ifndef NCCLGUARD_TOOLS_RENDER_TABLE_CELLS_H
#define NCCLGUARD_TOOLS_RENDER_TABLE_CELLS_H

#include <stdio.h>
#include <string.h>

#include "tools/render/sheet.h"
#include "tools/render/table.h"

enum {
    NG_COLUMN_MARK,
    NG_COLUMN_RANK,
    NG_COLUMN_HOST,
    NG_COLUMN_PID,
    NG_COLUMN_DEVICE,
    NG_COLUMN_LIFE,
    NG_COLUMN_GROUP,
    NG_COLUMN_MEMBER,
    NG_COLUMN_ENTERED,
    NG_COLUMN_STARTED,
    NG_COLUMN_COMPLETED,
    NG_COLUMN_BEHIND,
    NG_COLUMN_DEADLINE,
    NG_COLUMN_IN,
    NG_COLUMN_P2P,
    NG_COLUMN_MEMORY,
    NG_COLUMN_REGISTERED,
    NG_COLUMN_COUNT,
};

#define NG_TABLE_CELL_BYTES 160
typedef char ng_table_cells[NG_COLUMN_COUNT][NG_TABLE_CELL_BYTES];

/* Write a cell; write behind what is in it. */
#define ng_table_cell_put(cell, ...) snprintf((cell), NG_TABLE_CELL_BYTES, __VA_ARGS__)
#define ng_table_cell_add(cell, ...)                                                               \
    snprintf((cell) + strlen(cell), NG_TABLE_CELL_BYTES - strlen(cell), __VA_ARGS__)

/* All cells of a row. */
void ng_table_fill(const struct ng_table *table, const struct ng_table_row *row,
                   ng_table_cells ret_cells);

/* The group's name, with its id where another group has the same. */
void ng_table_group(const struct ng_table *table, uint32_t group, char *ret_text, size_t bytes);

/* What a row is in, without its duration: what merged rows have in common. */
void ng_table_place(const struct ng_table *table, const struct ng_table_row *row, char *ret_text,
                    size_t bytes);

/* "10 min 0 s, kill": a deadline, and what it leads to; "" neither is known. */
void ng_table_deadline(int64_t timeout_ns, uint32_t policy, char *ret_text, size_t bytes);

/* "running", "ended by guard" … */
const char *ng_table_life_word(enum ng_life life);

/* "running", "exited 0 3 s ago" … */
void ng_table_life(const struct ng_view_process *process, char *ret_text, size_t bytes);

/* Widths that these cells need, too; at first all are 0. A column without a value stays 0. */
void ng_table_widen(size_t widths[NG_COLUMN_COUNT], ng_table_cells cells);

/* Make room for the titles, and leave out the least significant columns if the output is narrow. */
void ng_table_fit(size_t widths[NG_COLUMN_COUNT], unsigned columns);

/* One line: the titles, or cells. */
void ng_table_put_titles(struct ng_sheet *sheet, const size_t widths[NG_COLUMN_COUNT]);
void ng_table_put_cells(struct ng_sheet *sheet, ng_table_cells cells,
                        const size_t widths[NG_COLUMN_COUNT], const char *colour);

/* What is above the rows: the job, the verdict and its reasons, and an empty line. */
void ng_table_put_head(struct ng_sheet *sheet, const struct ng_table *table,
                       const struct ng_table_paper *paper);

#endif
