/*
 * Programs that start other programs: whether they pass on the environment, and with it LD_PRELOAD.
 */
#ifndef NCCLGUARD_TOOLS_INSPECT_LAUNCHERS_H
#define NCCLGUARD_TOOLS_INSPECT_LAUNCHERS_H

#include <stdbool.h>
#include <stddef.h>

enum ng_launcher_way {
    NG_LAUNCHER_PASSES,    /* the started program gets our environment */
    NG_LAUNCHER_UNSEEN,    /* so do its programs, but they cannot be determined here */
    NG_LAUNCHER_PARTLY,    /* some programs get it, or all under a condition */
    NG_LAUNCHER_CLEARS,    /* the program runs here, without LD_PRELOAD */
    NG_LAUNCHER_ELSEWHERE, /* the program runs on another machine or in a container, without it */
};

struct ng_launching {
    char name[32]; /* "srun" */
    enum ng_launcher_way way;
    const char *why, *mend; /* NULL if it passes everything on */
    bool seen_to;           /* the arguments enable the guard, or pass it on, further inside */
    bool blind;             /* the program is not a file of this machine */
    bool itself;            /* it is a script whose own interpreter loads NCCL */
    int program;            /* index in argv of the started program; 0 not recognised */
};

/*
 * Whether argv[0] is a known launcher, by its name or as a package of Python (`python -m vllm.…`);
 * argv ends with NULL. Its options are not known:
 * the started program is the first word that names a program and cannot be an option's argument.
 * Examines a few variables of the environment, too.
 */
bool ng_launcher_recognise(char *const *argv, struct ng_launching *ret_launching);

/* The remedy for a launcher, with its name in it; NULL none. */
const char *ng_launcher_mend(const struct ng_launching *launching, char *ret_text, size_t bytes);

/*
 * The command line with the argument of `env -S` split into words: to be freed; it points into the
 * old one, too. NULL: unchanged.
 */
char **ng_launcher_split(char *const *argv);

/*
 * Whether the program that argv names certainly does not get our environment, and the arguments do
 * not enable the guard otherwise. *ret_launching is then the launcher that drops it.
 */
bool ng_launcher_strips(char *const *argv, struct ng_launching *ret_launching);

#endif
