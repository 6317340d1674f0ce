/*
 * What a person orders through the command, and each process of the job obeys.
 *
 * Incident thread alone.
 */
#ifndef NCCLGUARD_CORE_INCIDENT_OPERATOR_COMMANDS_H
#define NCCLGUARD_CORE_INCIDENT_OPERATOR_COMMANDS_H

#include <stdbool.h>

#include "core/nccl/board.h"

/* Obey it, if it is one. False: it is none. */
bool ng_operator_commands_obey(const struct ng_incident *incident);

#endif
