/*
 * The page that `ncclguard analyze --html` fills: tools/render/page/page.html with its style and
 * script, in two parts, between which the data goes. Made by tools/render/page/embed when the
 * command is built.
 */
#ifndef NCCLGUARD_TOOLS_RENDER_PAGE_PARTS_H
#define NCCLGUARD_TOOLS_RENDER_PAGE_PARTS_H

#include <stddef.h>

struct ng_page_part {
    const unsigned char *bytes;
    size_t count;
};

extern const struct ng_page_part ng_page_before, ng_page_after;

#endif
