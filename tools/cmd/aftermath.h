/*
 * The verdict from the black boxes of a job that has failed without one from the guard on disk: it
 * could not be written, or the processes that would have written it were ended first.
 */
#ifndef NCCLGUARD_TOOLS_CMD_AFTERMATH_H
#define NCCLGUARD_TOOLS_CMD_AFTERMATH_H

enum ng_aftermath {
    NG_AFTERMATH_NOTHING, /* the black boxes show no fault */
    NG_AFTERMATH_SAVED,   /* a fault: the evidence and its verdict are in `evidence` */
    NG_AFTERMATH_TOLD,    /* a fault: the evidence could not be stored; the verdict is on stderr */
};

/*
 * Judge the black boxes in `boxes`, of job `job` in the default location, and if there is a fault
 * keep their content in folder `evidence`. Runs `ncclguard analyze` and `ncclguard dump`, each in
 * its own process, which is killed after ten seconds. The calling process must have one thread.
 */
enum ng_aftermath ng_aftermath_look(const char *boxes, const char *job, const char *evidence);

/*
 * The same for one `run` (as `ncclguard dump` takes it), if several runs have left boxes in one
 * folder. Its content is kept even if there is no fault.
 */
enum ng_aftermath ng_aftermath_look_at_run(const char *job, const char *run, const char *evidence);

#endif
