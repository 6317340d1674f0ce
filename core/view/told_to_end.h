/*
 * Ends of processes that others have asked for.
 */
#ifndef NCCLGUARD_CORE_VIEW_TOLD_TO_END_H
#define NCCLGUARD_CORE_VIEW_TOLD_TO_END_H

#include <signal.h>
#include <stdbool.h>

#include "core/recorder/exit_status.h"

/* By a signal with which launchers end the rest of a job, or with an exit status that reports
 * one. */
static inline bool ng_told_to_end(int exit_status)
{
    int number =
        exit_status - (exit_status < NG_EXIT_STATUS_SIGNAL   ? 128
                       : exit_status < NG_EXIT_STATUS_SILENT ? NG_EXIT_STATUS_SIGNAL
                                                             : NG_EXIT_STATUS_SILENT + 128);

    return number == SIGTERM || number == SIGINT || number == SIGHUP;
}

#endif
