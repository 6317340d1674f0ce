/*
 * Commands that an operator gives through `ncclguard` and each process of the job obeys.
 *
 * Incident thread alone.
 */
#ifndef NCCLGUARD_CORE_INCIDENT_OPERATOR_COMMANDS_H
#define NCCLGUARD_CORE_INCIDENT_OPERATOR_COMMANDS_H

#include "core/nccl/board.h"

/* Carry out one command; commands are carried out in the order in which they were given. */
void ng_operator_commands_obey(const struct ng_command *command);

#endif
