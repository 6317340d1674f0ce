/*
 * The subcommands of `ncclguard`: one function each, listed in the table of main.c.
 */
#ifndef NCCLGUARD_TOOLS_BASE_COMMAND_H
#define NCCLGUARD_TOOLS_BASE_COMMAND_H

/* Exit statuses that the contract names. */
enum {
    NG_EXIT_OK = 0,
    NG_EXIT_FAILED = 1, /* the command itself failed */
    NG_EXIT_USAGE = 2,  /* a usage error, or unusable input */
    NG_EXIT_FAULT = 3,  /* analyze: a fault was found */
};

/*
 * Each gets its own name in argv[0] and returns an exit status; `run` may instead end by a signal,
 * as the program that it ran did.
 */
int ng_command_run(int argc, char **argv);
int ng_command_top(int argc, char **argv);
int ng_command_order(int argc, char **argv); /* abort, suspend, resume, reload, set */
int ng_command_groups(int argc, char **argv);
int ng_command_dump(int argc, char **argv);
int ng_command_analyze(int argc, char **argv);
int ng_command_apis(int argc, char **argv);
int ng_command_exporter(int argc, char **argv);
int ng_command_config(int argc, char **argv);
int ng_command_doctor(int argc, char **argv);

#endif
