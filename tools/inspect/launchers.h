/*
 * Programs that start other programs: does the environment, and with it LD_PRELOAD, get through.
 */
#ifndef NCCLGUARD_TOOLS_INSPECT_LAUNCHERS_H
#define NCCLGUARD_TOOLS_INSPECT_LAUNCHERS_H

#include <stdbool.h>
#include <stddef.h>

enum ng_launcher_way {
    NG_LAUNCHER_PASSES,    /* the program behind it gets our environment */
    NG_LAUNCHER_UNSEEN,    /* so do its programs, but what they are cannot be seen from here */
    NG_LAUNCHER_PARTLY,    /* some programs get it, or all where a condition holds */
    NG_LAUNCHER_CLEARS,    /* the program runs here, without LD_PRELOAD */
    NG_LAUNCHER_ELSEWHERE, /* the program runs on another machine or in a container, without it */
};

struct ng_launching {
    char name[32]; /* "srun" */
    enum ng_launcher_way way;
    const char *why, *mend; /* NULL where it passes everything on */
    bool seen_to;           /* the arguments put the guard on, or pass it on, further inside */
    bool blind;             /* the program is not one of this machine's files */
    bool itself;            /* it is a script whose own interpreter loads NCCL */
    int program;            /* index in argv of the program behind it, 0 not recognised */
};

/*
 * Whether argv[0] is a launcher that is known, by its name; argv ends with NULL. Its options are
 * not known: the program behind it is the first word that is one, and that no option may have
 * taken. Looks at a few variables of the environment too.
 */
bool ng_launcher_recognise(char *const *argv, struct ng_launching *ret_launching);

/* The mend of a launcher, with its name in it; NULL none. */
const char *ng_launcher_mend(const struct ng_launching *launching, char *ret_text, size_t bytes);

/*
 * The command line with the text that `env -S` takes apart taken apart: to be freed; it points into
 * the old one, too. NULL: as it is.
 */
char **ng_launcher_split(char *const *argv);

/*
 * Whether the program that argv names certainly gets nothing of our environment, and nobody has
 * seen to that in the arguments. *ret_launching is then the launcher that keeps it.
 */
bool ng_launcher_strips(char *const *argv, struct ng_launching *ret_launching);

#endif
