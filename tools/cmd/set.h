/*
 * What `ncclguard set` has beside the other commands of an operator (tools/cmd/control.c): the
 * values it is given, and which ranks have taken them.
 */
#ifndef NCCLGUARD_TOOLS_CMD_SET_H
#define NCCLGUARD_TOOLS_CMD_SET_H

#include "core/nccl/board.h"
#include "tools/jobs/jobs.h"

/* The words NAME=VALUE as values of *command. 0, or an exit status after reporting the usage
 * error. */
int ng_set_parse(char *const *words, int count, struct ng_command *command);

/* "timing=all, log=debug" */
void ng_set_describe(const struct ng_command *command, char *ret_text, size_t bytes);

/* Wait, within a bound, until the living processes of the job have taken the command that was
 * given, and print which have. Returns an exit status. */
int ng_set_await(struct ng_job *job, const struct ng_command *command);

/* Whether the process lives, as far as is known: only those take commands. */
bool ng_set_may_answer(const struct ng_view_process *process);

#endif
