/*
 * Runs a helper program for an answer: bounded in time and in what it may say.
 */
#ifndef NCCLGUARD_TOOLS_BASE_RUN_HELPER_H
#define NCCLGUARD_TOOLS_BASE_RUN_HELPER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ng_answer {
    int status; /* as waitpid gives it */
    bool late;  /* it had to be killed */
    char *out, *err;
};

/*
 * Run argv (argv[0] is looked up in PATH) with /dev/null as its input. `assignments`, a list of
 * NAME=VALUE (or NAME alone: taken out) ended by NULL, changes the environment. 0, or -errno when
 * it could not be started; then *ret_answer is to be released by ng_answer_fini. It and what it has
 * started in its group are killed after `limit_ns`.
 */
int ng_ask(char *const *argv, const char *const *assignments, int64_t limit_ns,
           struct ng_answer *ret_answer);
void ng_answer_fini(struct ng_answer *answer);

#endif
