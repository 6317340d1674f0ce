/*
 * What an operator commands through `ncclguard`, and each process of the job obeys.
 *
 * Incident thread alone.
 */
#ifndef NCCLGUARD_CORE_INCIDENT_OPERATOR_COMMANDS_H
#define NCCLGUARD_CORE_INCIDENT_OPERATOR_COMMANDS_H

#include "core/nccl/board.h"

/* Each is obeyed by itself, in the order in which they were given. */
void ng_operator_commands_obey(const struct ng_command *command);

#endif
