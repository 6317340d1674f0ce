/*
 * The model of a browsed job: rows, filtered, folded and sorted; and what keys do to them.
 *
 * Linear in rows, except for sorting. Must never move a row that nothing has happened to.
 */
#include "tools/render/browser.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/util/macros.h"

#define NO_PLACE UINT32_MAX

/* ---- Rows and what they have in common ---- */

static uint64_t mix(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *at = data;

    while (bytes-- > 0)
        hash = (hash ^ *at++) * UINT64_C(0x100000001b3);
    return hash;
}

#define MIX(hash, value) mix(hash, &(value), sizeof(value))
#define MIX_START        UINT64_C(0xcbf29ce484222325)

uint64_t ng_browser_row_key(const struct ng_table *table, const struct ng_table_row *row)
{
    uint64_t hash = MIX_START;

    if (row->process == NG_TABLE_NOBODY)
        return MIX(hash, row->rank);
    const struct ng_view_process *process = &table->view->processes[row->process];
    hash = mix(hash, process->host, strlen(process->host));
    hash = MIX(hash, process->pid);
    if (!row->member)
        return hash;
    hash = MIX(hash, table->view->groups[row->member->group].id);
    return MIX(hash, row->member->group_rank);
}

/* Equal for rows that are shown as one. What lasts less than a second is in motion, and alike. */
static uint64_t likeness(const struct ng_table *table, const struct ng_table_row *row)
{
    char place[NG_TABLE_CELL_BYTES];
    uint64_t hash = MIX(MIX_START, row->place);
    bool culprit = row->culprit != NULL;

    hash = MIX(hash, culprit);
    if (row->process != NG_TABLE_NOBODY) {
        const struct ng_view_process *process = &table->view->processes[row->process];
        hash = MIX(hash, process->life);
        hash = MIX(hash, process->exit_status);
    }
    if (row->member) {
        hash = MIX(hash, row->member->group);
        hash = MIX(hash, row->member->state);
        hash = MIX(hash, row->member->rests);
        hash = MIX(hash, row->member->async_error);
        hash = MIX(hash, row->member->cuda_error);
    }
    if (row->place != NG_PLACE_OTHER) {
        ng_table_place(table, row, place, sizeof(place));
        hash = mix(hash, place, strlen(place));
    }
    return hash;
}

static int64_t age_of(const struct ng_table_row *row)
{
    int64_t age_ns = row->phase != NG_PHASE_NONE ? row->age_ns : 0;

    return row->behind && row->behind_ns > age_ns ? row->behind_ns : age_ns;
}

/* Of a number: that rank; else text in any of its cells, or in its program's name. */
static bool passes(const struct ng_browser *browser, const struct ng_table_row *row)
{
    const struct ng_view *view = browser->table->view;
    const char *wanted = browser->filter;
    ng_table_cells cells;

    if (browser->group_id &&
        (!row->member || view->groups[row->member->group].id != browser->group_id))
        return false;
    if (!*wanted)
        return true;
    if (wanted[strspn(wanted, "0123456789")] == '\0')
        return row->rank == atoi(wanted);
    ng_table_fill(browser->table, row, cells);
    if (NG_ANY(cell, cells, NG_COLUMN_COUNT, strcasestr(*cell, wanted)))
        return true;
    return row->process != NG_TABLE_NOBODY &&
           strcasestr(view->processes[row->process].program, wanted);
}

/* ---- Sorting ---- */

static int compare_rows(const struct ng_table *table, const struct ng_table_row *a,
                        const struct ng_table_row *b)
{
    if (a->rank != b->rank)
        return (unsigned)a->rank < (unsigned)b->rank ? -1 : 1;
    if (a->member && b->member && a->member->group != b->member->group) {
        const struct ng_view_group *one = &table->view->groups[a->member->group],
                                   *other = &table->view->groups[b->member->group];
        if (one->nranks != other->nranks)
            return one->nranks > other->nranks ? -1 : 1;
        return one->id < other->id ? -1 : 1;
    }
    return NG_ORDER(a, b);
}

struct folding {
    uint64_t like;
    uint32_t row;
};

static int compare_foldings(const void *left, const void *right, void *context)
{
    const struct ng_table *table = context;
    const struct folding *a = left, *b = right;

    return NG_ORDER(a->like, b->like)
               ?: compare_rows(table, &table->rows[a->row], &table->rows[b->row]);
}

static const char *host_of(const struct ng_table *table, const struct ng_table_row *row)
{
    return row->process != NG_TABLE_NOBODY ? table->view->processes[row->process].host
                                           : row->culprit->host;
}

static int compare_units(const void *left, const void *right, void *context)
{
    const struct ng_browser *browser = context;
    const struct ng_table *table = browser->table;
    const struct ng_browser_unit *a = left, *b = right;
    const struct ng_table_row *one = &table->rows[browser->members[a->first]],
                              *other = &table->rows[browser->members[b->first]];
    int order = 0;

    if (a->before != b->before)
        return a->before < b->before ? -1 : 1;
    if (browser->sort == NG_SORT_AGE)
        order = NG_ORDER(b->age_ns, a->age_ns);
    else if (browser->sort == NG_SORT_STATE)
        order = NG_ORDER(one->place, other->place);
    else if (browser->sort == NG_SORT_HOST)
        order = strcmp(host_of(table, one), host_of(table, other));
    return order ?: compare_rows(table, one, other);
}

static int compare_places(const void *left, const void *right)
{
    const struct ng_browser_place *a = left, *b = right;

    return NG_ORDER(a->key, b->key);
}

static uint32_t find_place(const struct ng_browser *browser, uint64_t key)
{
    struct ng_browser_place wanted = {.key = key};
    const struct ng_browser_place *found =
        browser->place_count ? bsearch(&wanted, browser->places, browser->place_count,
                                       sizeof(*browser->places), compare_places)
                             : NULL;

    return found ? found->place : NO_PLACE;
}

static void remember_places(struct ng_browser *browser)
{
    const struct ng_table *table = browser->table;
    uint32_t units = browser->lists[NG_PAGE_RANKS].count;

    browser->place_count = 0;
    for (uint32_t i = 0; i < units; i++)
        for (uint32_t k = 0; k < browser->units[i].count; k++)
            browser->places[browser->place_count++] = (struct ng_browser_place){
                ng_browser_row_key(table,
                                   &table->rows[browser->members[browser->units[i].first + k]]),
                i};
    if (browser->place_count)
        qsort(browser->places, browser->place_count, sizeof(*browser->places), compare_places);
}

/* ---- Units ---- */

/* A unit takes the place that its first rank had. In order of rank no place is needed. */
static void make_units(struct ng_browser *browser, const struct folding *foldings, uint32_t count)
{
    const struct ng_table *table = browser->table;
    bool stays = !browser->unfolded || browser->sort != NG_SORT_RANK;
    uint32_t units = 0;

    for (uint32_t i = 0; i < count; i++) {
        const struct ng_table_row *row = &table->rows[foldings[i].row];
        bool alone = browser->unfolded || i == 0 || foldings[i].like != foldings[i - 1].like;
        if (alone)
            browser->units[units++] = (struct ng_browser_unit){.first = i, .before = NO_PLACE};
        struct ng_browser_unit *unit = &browser->units[units - 1];
        browser->members[i] = foldings[i].row;
        unit->count++;
        if (age_of(row) > unit->age_ns)
            unit->age_ns = age_of(row);
        uint32_t before = stays ? find_place(browser, ng_browser_row_key(table, row)) : NO_PLACE;
        if (before < unit->before)
            unit->before = before;
    }
    browser->member_count = count;
    browser->lists[NG_PAGE_RANKS].count = units;
    if (units)
        qsort_r(browser->units, units, sizeof(*browser->units), compare_units, browser);
}

/* Make units of the table's rows that pass. The cursor stays on its row. */
static int arrange(struct ng_browser *browser)
{
    const struct ng_table *table = browser->table;
    struct ng_browser_list *list = &browser->lists[NG_PAGE_RANKS];
    uint32_t count = 0, rows = table->order_count;
    struct folding *foldings = calloc(rows + 1, sizeof(*foldings));
    uint32_t *members = realloc(browser->members, (rows + 1) * sizeof(*members));
    browser->members = members ? members : browser->members;
    struct ng_browser_unit *units = realloc(browser->units, (rows + 1) * sizeof(*units));
    browser->units = units ? units : browser->units;

    if (!foldings || !members || !units) {
        free(foldings);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < rows; i++) {
        const struct ng_table_row *row = &table->rows[table->order[i]];
        if (passes(browser, row))
            foldings[count++] =
                (struct folding){browser->unfolded ? 0 : likeness(table, row), table->order[i]};
    }
    if (count)
        qsort_r(foldings, count, sizeof(*foldings), compare_foldings, (void *)table);
    make_units(browser, foldings, count);
    free(foldings);
    struct ng_browser_place *places =
        realloc(browser->places, (rows + 1) * sizeof(*browser->places));
    if (!places)
        return -ENOMEM;
    browser->places = places;
    remember_places(browser);
    uint32_t at = list->key ? find_place(browser, list->key) : NO_PLACE;
    if (at != NO_PLACE)
        list->cursor = at;
    return 0;
}

static int compare_groups(const void *left, const void *right, void *context)
{
    const struct ng_table *table = context;
    const struct ng_view_group *a = &table->view->groups[*(const uint32_t *)left],
                               *b = &table->view->groups[*(const uint32_t *)right];

    if (a->nranks != b->nranks)
        return a->nranks > b->nranks ? -1 : 1;
    return strcmp(a->name, b->name) ?: NG_ORDER(a->id, b->id);
}

/* Groups that have rows, the largest first. */
static int list_groups(struct ng_browser *browser)
{
    const struct ng_table *table = browser->table;
    const struct ng_view *view = table->view;
    uint32_t *groups = realloc(browser->groups, (view->group_count + 1) * sizeof(*groups));
    bool *shown = calloc(view->group_count + 1, sizeof(*shown));
    uint32_t count = 0;

    browser->groups = groups ? groups : browser->groups;
    if (groups && shown) {
        for (uint32_t i = 0; i < table->order_count; i++) {
            const struct ng_table_row *row = &table->rows[table->order[i]];
            if (!row->member || shown[row->member->group])
                continue;
            shown[row->member->group] = true;
            groups[count++] = row->member->group;
        }
        if (count)
            qsort_r(groups, count, sizeof(*groups), compare_groups, (void *)table);
        struct ng_browser_list *list = &browser->lists[NG_PAGE_GROUPS];
        list->count = count;
        for (uint32_t i = 0; i < count; i++)
            if (view->groups[groups[i]].id == list->key)
                list->cursor = i;
    }
    free(shown);
    return groups && shown ? 0 : -ENOMEM;
}

/* ---- The cursor ---- */

static bool has_cursor(enum ng_browser_page page)
{
    return page != NG_PAGE_RANK && page != NG_PAGE_HELP;
}

static bool is_culprit(const struct ng_browser *browser, uint32_t unit)
{
    const struct ng_table_row *row =
        &browser->table->rows[browser->members[browser->units[unit].first]];

    return row->culprit && row->place == NG_PLACE_CULPRIT;
}

/* Take note of what is selected, so that it stays so. */
static void select_at(struct ng_browser *browser, int64_t at)
{
    struct ng_browser_list *list = &browser->lists[browser->page];

    at = at < (int64_t)list->count ? at : (int64_t)list->count - 1;
    list->cursor = at > 0 ? (uint32_t)at : 0;
    list->key = 0;
    if (!list->count || !browser->table)
        return;
    if (browser->page == NG_PAGE_RANKS)
        list->key = ng_browser_row_key(
            browser->table,
            &browser->table->rows[browser->members[browser->units[list->cursor].first]]);
    else if (browser->page == NG_PAGE_GROUPS)
        list->key = browser->table->view->groups[browser->groups[list->cursor]].id;
}

static void move(struct ng_browser *browser, int64_t by)
{
    struct ng_browser_list *list = &browser->lists[browser->page];

    if (has_cursor(browser->page)) {
        select_at(browser, (int64_t)list->cursor + by);
        return;
    }
    int64_t last = (int64_t)list->count - browser->body, top = (int64_t)list->top + by;
    top = top < last ? top : last;
    list->top = top > 0 ? (uint32_t)top : 0;
}

/* Sort, fold or filter: places are given anew. */
static void rearrange(struct ng_browser *browser)
{
    enum ng_browser_page page = browser->page;

    browser->place_count = 0;
    memset(browser->widths, 0, sizeof(browser->widths));
    if (!browser->table || arrange(browser) != 0)
        return;
    browser->page = NG_PAGE_RANKS;
    select_at(browser, browser->lists[NG_PAGE_RANKS].cursor);
    browser->page = page;
}

/* The next unit of culprits after the cursor. */
static void seek_culprit(struct ng_browser *browser, bool from_here)
{
    struct ng_browser_list *list = &browser->lists[NG_PAGE_RANKS];

    for (uint32_t i = from_here ? 0 : 1; i < list->count + !from_here; i++) {
        uint32_t at = (list->cursor + i) % list->count;
        if (is_culprit(browser, at)) {
            select_at(browser, at);
            return;
        }
    }
}

/* ---- Keys ---- */

static void show(struct ng_browser *browser, enum ng_browser_page page)
{
    if (page == browser->page)
        return;
    /* From a list one comes back to it. */
    if (browser->page == NG_PAGE_RANKS || browser->page == NG_PAGE_GROUPS)
        browser->back = browser->page;
    browser->page = page;
    if (!has_cursor(page))
        browser->lists[page].top = 0;
}

static enum ng_browser_action enter(struct ng_browser *browser)
{
    const struct ng_browser_list *list = &browser->lists[browser->page];

    if (browser->page == NG_PAGE_JOBS)
        return list->count ? NG_BROWSER_OPEN_JOB : NG_BROWSER_DRAW;
    if (!list->count || !browser->table)
        return NG_BROWSER_DRAW;
    if (browser->page == NG_PAGE_GROUPS) {
        browser->group_id = list->key;
        show(browser, NG_PAGE_RANKS);
        rearrange(browser);
    } else if (browser->page == NG_PAGE_RANKS && browser->units[list->cursor].count > 1) {
        browser->unfolded = true;
        rearrange(browser);
    } else if (browser->page == NG_PAGE_RANKS) {
        browser->detail_key = list->key;
        show(browser, NG_PAGE_RANK);
        return NG_BROWSER_SHOW_RANK;
    }
    return NG_BROWSER_DRAW;
}

/* One step back; from the ranks first what narrows them. */
static void go_back(struct ng_browser *browser)
{
    if (browser->page == NG_PAGE_RANKS && browser->filter[0]) {
        browser->filter[0] = '\0';
        rearrange(browser);
    } else if (browser->page == NG_PAGE_RANKS && browser->group_id) {
        browser->group_id = 0;
        rearrange(browser);
        browser->page = NG_PAGE_GROUPS;
    } else if (browser->page != NG_PAGE_RANKS && browser->table) {
        browser->page = browser->page == NG_PAGE_GROUPS ? NG_PAGE_RANKS : browser->back;
    }
}

/* A key of a filter that is being typed. */
static void type(struct ng_browser *browser, int key)
{
    size_t length = strlen(browser->filter);

    if (key == NG_KEY_ENTER || key == NG_KEY_ESCAPE) {
        browser->typing = false;
        if (key == NG_KEY_ENTER)
            return;
        browser->filter[0] = '\0';
    } else if (key == NG_KEY_BACKSPACE) {
        do
            length -= length > 0;
        while (length > 0 && ((unsigned char)browser->filter[length] & 0xc0) == 0x80);
        browser->filter[length] = '\0';
    } else if (key >= ' ' && key < 256 && key != 127 && length + 1 < sizeof(browser->filter)) {
        browser->filter[length] = (char)key;
        browser->filter[length + 1] = '\0';
    } else {
        return;
    }
    rearrange(browser);
}

static void jump_to_culprit(struct ng_browser *browser)
{
    bool here = browser->page != NG_PAGE_RANKS;

    if (!browser->table)
        return;
    browser->page = NG_PAGE_RANKS;
    if (browser->filter[0] || browser->group_id) {
        browser->filter[0] = '\0';
        browser->group_id = 0;
        rearrange(browser);
    }
    seek_culprit(browser, here);
}

/* Letters; false: it has none of them. */
static bool press_letter(struct ng_browser *browser, int key)
{
    switch (key) {
    case 'c':
        jump_to_culprit(browser);
        return true;
    case 'f':
        browser->unfolded = !browser->unfolded;
        rearrange(browser);
        return true;
    case 's':
        browser->sort = (browser->sort + 1) % NG_SORT_COUNT;
        rearrange(browser);
        return true;
    case 'g':
    case '\t':
        if (browser->table)
            show(browser, browser->page == NG_PAGE_GROUPS ? NG_PAGE_RANKS : NG_PAGE_GROUPS);
        return true;
    case '/':
        if (browser->table)
            show(browser, NG_PAGE_RANKS);
        browser->typing = browser->table != NULL;
        return true;
    case '?':
    case 'h':
        show(browser, NG_PAGE_HELP);
        return true;
    default:
        return false;
    }
}

/* Moving about; false: it does not. */
static bool press_arrow(struct ng_browser *browser, int key)
{
    int64_t page = browser->body > 1 ? browser->body - 1 : 1;

    switch (key) {
    case NG_KEY_UP:
    case NG_KEY_DOWN:
        move(browser, key == NG_KEY_UP ? -1 : 1);
        return true;
    case NG_KEY_PAGE_UP:
    case NG_KEY_PAGE_DOWN:
        move(browser, key == NG_KEY_PAGE_UP ? -page : page);
        return true;
    case NG_KEY_HOME:
    case NG_KEY_END:
        move(browser, key == NG_KEY_HOME ? -(int64_t)UINT32_MAX : (int64_t)UINT32_MAX);
        return true;
    default:
        return false;
    }
}

enum ng_browser_action ng_browser_press(struct ng_browser *browser, int key)
{
    if (press_arrow(browser, key))
        return NG_BROWSER_DRAW;
    if (browser->typing) {
        type(browser, key);
        return NG_BROWSER_DRAW;
    }
    if (press_letter(browser, key))
        return NG_BROWSER_DRAW;
    switch (key) {
    case 'q':
    case 'Q':
    case 4:
        return NG_BROWSER_QUIT;
    case 'j':
        return NG_BROWSER_LIST_JOBS;
    case 't':
        return browser->page == NG_PAGE_RANK ? NG_BROWSER_TAKE_STACK : NG_BROWSER_DRAW;
    case ' ':
        return NG_BROWSER_LOOK;
    case NG_KEY_ENTER:
        return enter(browser);
    case NG_KEY_ESCAPE:
    case NG_KEY_BACKSPACE:
        if (browser->page == NG_PAGE_JOBS && !browser->table)
            return NG_BROWSER_QUIT;
        go_back(browser);
        return NG_BROWSER_DRAW;
    default:
        return NG_BROWSER_DRAW;
    }
}

/* ---- Looks ---- */

void ng_browser_init(struct ng_browser *ret_browser)
{
    *ret_browser = (struct ng_browser){0};
}

void ng_browser_fini(struct ng_browser *browser)
{
    free(browser->members);
    free(browser->units);
    free(browser->places);
    free(browser->groups);
    free(browser->stack);
    free(browser->jobs);
    ng_browser_init(browser);
}

int ng_browser_update(struct ng_browser *browser, const struct ng_table *table)
{
    bool first = !browser->table;

    browser->table = table;
    if (!table) {
        struct ng_browser_job *jobs = browser->jobs;
        struct ng_browser_list list = browser->lists[NG_PAGE_JOBS];
        browser->jobs = NULL;
        ng_browser_fini(browser);
        browser->jobs = jobs;
        browser->lists[NG_PAGE_JOBS] = list;
        return 0;
    }
    int error = arrange(browser) ?: list_groups(browser);
    if (error) {
        browser->table = NULL;
        return error;
    }
    enum ng_browser_page page = browser->page;
    for (browser->page = NG_PAGE_RANKS; browser->page <= NG_PAGE_GROUPS; browser->page++)
        select_at(browser, browser->lists[browser->page].cursor);
    browser->page = NG_PAGE_RANKS;
    if (first)
        seek_culprit(browser, true);
    browser->page = page;
    return 0;
}

int ng_browser_set_jobs(struct ng_browser *browser, const struct ng_browser_job *jobs, size_t count)
{
    struct ng_browser_job *copy = calloc(count + 1, sizeof(*copy));

    if (!copy)
        return -ENOMEM;
    if (count)
        memcpy(copy, jobs, count * sizeof(*copy));
    free(browser->jobs);
    browser->jobs = copy;
    browser->lists[NG_PAGE_JOBS].count = (uint32_t)count;
    show(browser, NG_PAGE_JOBS);
    select_at(browser, browser->lists[NG_PAGE_JOBS].cursor);
    return 0;
}

const struct ng_browser_job *ng_browser_job(const struct ng_browser *browser)
{
    const struct ng_browser_list *list = &browser->lists[NG_PAGE_JOBS];

    return list->count ? &browser->jobs[list->cursor] : NULL;
}

const struct ng_table_row *ng_browser_row(const struct ng_browser *browser)
{
    const struct ng_table *table = browser->table;

    for (uint32_t i = 0; table && i < table->order_count; i++)
        if (ng_browser_row_key(table, &table->rows[table->order[i]]) == browser->detail_key)
            return &table->rows[table->order[i]];
    return NULL;
}

void ng_browser_set_stack(struct ng_browser *browser, const char *text)
{
    free(browser->stack);
    browser->stack = text ? strdup(text) : NULL;
}
