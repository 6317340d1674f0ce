/*
 * How a process ended, as one number: what a black box records, and what the kernel reports.
 */
#ifndef NCCLGUARD_CORE_RECORDER_EXIT_STATUS_H
#define NCCLGUARD_CORE_RECORDER_EXIT_STATUS_H

/* Of processes that end without reporting one; statuses that programs report are 0 to
 * 255. */
#define NG_EXIT_STATUS_NOT_TOLD (-1) /* quick_exit */
#define NG_EXIT_STATUS_EXEC     (-2) /* became another program */
/* And as the kernel reports it for processes that could not write it themselves; 0 if not
 * reported: */
#define NG_EXIT_STATUS_SIGNAL 256 /* plus the number of the signal that ended it */
#define NG_EXIT_STATUS_SILENT 512 /* plus the status passed to _exit */

#endif
