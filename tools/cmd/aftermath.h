/*
 * What the black boxes of a job tell that has failed without a word of the guard's on disk: it
 * could not be written, or those who would have written it were ended before.
 */
#ifndef NCCLGUARD_TOOLS_CMD_AFTERMATH_H
#define NCCLGUARD_TOOLS_CMD_AFTERMATH_H

enum ng_aftermath {
    NG_AFTERMATH_NOTHING, /* nothing is wrong, as far as they tell */
    NG_AFTERMATH_SAVED,   /* a fault: the evidence is in `evidence`, its verdict too */
    NG_AFTERMATH_TOLD, /* a fault: there is no place for the evidence; the verdict is on stderr */
};

/*
 * Judge the black boxes in `boxes`, of job `job` in the default place, and where something is wrong
 * keep what they tell in folder `evidence`. By `ncclguard analyze` and `ncclguard dump`, each in a
 * process of its own that is ended when it takes longer than ten seconds. A process with one
 * thread.
 */
enum ng_aftermath ng_aftermath_look(const char *boxes, const char *job, const char *evidence);

/*
 * The same where several runs have left boxes in one folder: of `run`, as `ncclguard dump` takes
 * it. What it has left is kept though nothing may be wrong with it.
 */
enum ng_aftermath ng_aftermath_look_at_run(const char *job, const char *run, const char *evidence);

#endif
