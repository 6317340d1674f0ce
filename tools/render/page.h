/*
 * The report of `ncclguard analyze --html`: one self-contained page.
 *
 * The page is tools/render/page/page.html with its style and script, embedded when the command is
 * built, and the view and the verdict as JSON, which the script draws. It loads nothing from
 * elsewhere, and runs no script but its own, which it declares to the browser by the script's hash.
 * Names that programs chose are text in it, never markup.
 */
#ifndef NCCLGUARD_TOOLS_RENDER_PAGE_H
#define NCCLGUARD_TOOLS_RENDER_PAGE_H

#include "core/verdict/verdict.h"
#include "core/view/view.h"
#include "tools/ingest/mismatches.h"
#include "tools/render/stack_groups.h"

/* Calls on the timeline of a page: a number that a browser can handle. */
#define NG_PAGE_SPANS_MAX 60000u

/* The content of a page. */
struct ng_page {
    const struct ng_view *view; /* sealed */
    const struct ng_verdict *verdict;
    const struct ng_mismatches *mismatches; /* NULL: not looked for */
    const struct ng_stack_groups *stacks;   /* may be empty */
};

/*
 * Write the page to the file `path`, complete or not at all; a device or a pipe is written in
 * place. 0, -ENOMEM, or -errno of writing.
 */
int ng_page_write(const struct ng_page *page, const char *path);

/*
 * The script's input: {"schema": "ncclguard.page/1", …}; its members are described where they are
 * used, in tools/render/page/page.js. It contains no '<', '>' or '&', so that it can be embedded in
 * a page. 0, -ENOMEM, or -errno of writing to `fd`.
 */
int ng_page_write_data(const struct ng_page *page, int fd);

struct ng_page_part {
    const unsigned char *bytes;
    size_t count;
};

extern const struct ng_page_part ng_page_before, ng_page_after;

#endif
