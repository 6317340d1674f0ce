/*
 * A plugin for Slurm: `srun --ncclguard[=DEADLINE] PROG` guards the tasks, without `ncclguard run`.
 *
 *     gcc -shared -fPIC -Wall -o /usr/lib/slurm/spank_ncclguard.so spank_ncclguard.c
 *
 * and in plugstack.conf of each node and of the hosts on which users call srun, sbatch or salloc:
 *
 *     optional /usr/lib/slurm/spank_ncclguard.so
 * library=/opt/ncclguard/lib/ncclguard/libncclguard.so
 *
 * It puts the library into LD_PRELOAD of each task, and the deadline into NCCLGUARD_TIMEOUT.
 * Everything else is in the variables of the job. It must never keep a task from starting: where
 * the library is not there, it says so, and the task runs unguarded.
 */
#include <limits.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

SPANK_PLUGIN(ncclguard, 1);

static char deadline[64];
static int wanted;

/* Slurm calls it where the option was given: in srun, and again on each node. */
static int take_option(int value, const char *argument, int remote)
{
    (void)value;
    (void)remote;
    if (argument && strlen(argument) >= sizeof(deadline)) {
        slurm_error(
            "ncclguard: --ncclguard: the deadline is too long; write it as 120s, 10m or 1h");
        return -1;
    }
    snprintf(deadline, sizeof(deadline), "%s", argument ? argument : "");
    wanted = 1;
    return 0;
}

struct spank_option spank_options[] = {
    {"ncclguard", "DEADLINE", "guard NCCL calls; DEADLINE of a collective (120s; default: 600s)", 2,
     0, take_option},
    SPANK_OPTIONS_TABLE_END,
};

/* On a node, as the user, in the process that becomes the task. */
int slurm_spank_task_init(spank_t spank, int count, char *arguments[])
{
    char before[16 * 1024] = "", list[sizeof(before) + PATH_MAX];
    const char *library = NULL;

    if (!wanted)
        return 0;
    for (int i = 0; i < count; i++)
        if (strncmp(arguments[i], "library=", strlen("library=")) == 0)
            library = arguments[i] + strlen("library=");
    if (!library || access(library, R_OK) != 0) {
        slurm_error("ncclguard: no library %s on this node; the task is not guarded",
                    library ? library : "(plugstack.conf: library=PATH)");
        return 0;
    }
    if (deadline[0])
        spank_setenv(spank, "NCCLGUARD_TIMEOUT", deadline, 1);
    spank_err_t got = spank_getenv(spank, "LD_PRELOAD", before, sizeof(before));
    if (got == ESPANK_SUCCESS && strstr(before, library))
        return 0;
    if (got != ESPANK_SUCCESS && got != ESPANK_ENV_NOEXIST) {
        slurm_error("ncclguard: LD_PRELOAD is too long; the task is not guarded");
        return 0;
    }
    /* After what is there: tools such as sanitizers must be first. */
    snprintf(list, sizeof(list), "%s%s%s", before, before[0] ? ":" : "", library);
    spank_setenv(spank, "LD_PRELOAD", list, 1);
    return 0;
}
