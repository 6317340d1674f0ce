/*
 * The group that a command is about, by its id or its name.
 */
#ifndef NCCLGUARD_TOOLS_CMD_GROUP_CHOICE_H
#define NCCLGUARD_TOOLS_CMD_GROUP_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/view/view.h"

/* The group `text`: its id (16 hex digits), or its name where no other group has the same; of
 * several those that have ended do not count. `in_use`: it must not have ended. 0, or an exit
 * status after reporting the usage error. */
int ng_group_choice_find(const char *command, const struct ng_view *view, const char *text,
                         bool in_use, uint64_t *ret_id);

#endif
