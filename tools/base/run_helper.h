/*
 * Runs a helper program and captures its output, bounded in time and size.
 */
#ifndef NCCLGUARD_TOOLS_BASE_RUN_HELPER_H
#define NCCLGUARD_TOOLS_BASE_RUN_HELPER_H

#include <stdbool.h>
#include <stdint.h>

struct ng_answer {
    int status; /* the wait status, as from waitpid */
    bool late;  /* it had to be killed */
    char *out, *err;
};

/*
 * Run argv (argv[0] is looked up in PATH) with /dev/null as its input. `assignments`, a list of
 * NAME=VALUE (or NAME alone: unset) ended by NULL, changes the environment. The program, and what
 * it has started in its process group, is killed after `limit_ns`. 0 or -errno if it could not be
 * started; after 0, release *ret_answer with ng_answer_fini.
 */
int ng_ask(char *const *argv, const char *const *assignments, int64_t limit_ns,
           struct ng_answer *ret_answer);
void ng_answer_fini(struct ng_answer *answer);

#endif
