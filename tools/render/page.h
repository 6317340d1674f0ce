/*
 * The report of `ncclguard analyze --html`: one page that tells everything and needs nothing.
 *
 * The page is tools/render/page/page.html with its style and script, embedded when the command is
 * built, and the view and the verdict as JSON, which the script draws. It loads nothing from
 * anywhere, and runs no script but its own: it says so to the browser, with the script's hash. What
 * programs named themselves is text to it, never markup.
 */
#ifndef NCCLGUARD_TOOLS_RENDER_PAGE_H
#define NCCLGUARD_TOOLS_RENDER_PAGE_H

#include "core/verdict/verdict.h"
#include "core/view/view.h"
#include "tools/ingest/mismatches.h"
#include "tools/render/stack_groups.h"

/* Calls on the timeline of a page: so many that a browser bears it. */
#define NG_PAGE_SPANS_MAX 60000u

/* What a page tells. */
struct ng_page {
    const struct ng_view *view; /* sealed */
    const struct ng_verdict *verdict;
    const struct ng_mismatches *mismatches; /* NULL: nobody looked for any */
    const struct ng_stack_groups *stacks;   /* may be empty */
};

/*
 * The page in the file `path`, complete or not there; a device or a pipe is written to as it is. 0,
 * -ENOMEM, or -errno of writing.
 */
int ng_page_write(const struct ng_page *page, const char *path);

/*
 * What the script gets: {"schema": "ncclguard.page/1", …}; its members are described where they are
 * used, in tools/render/page/page.js. No '<', '>' or '&' in it, so that it can stand in a page. 0,
 * -ENOMEM, or -errno of writing to `fd`.
 */
int ng_page_write_data(const struct ng_page *page, int fd);

struct ng_page_part {
    const unsigned char *bytes;
    size_t count;
};

extern const struct ng_page_part ng_page_before, ng_page_after;

#endif
