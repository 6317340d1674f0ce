/*
 * The command `ncclguard`: finds the subcommand in its table and calls it.
 *
 * Runs as a separate process, with one thread. Must never load or call NCCL or CUDA.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/util/macros.h"
#include "store/kv/url.h"
#include "tools/base/command.h"
#include "tools/base/usage.h"

static const struct {
    const char *name, *help;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"run", "run a program under guard", ng_command_run},
    {"top", "show a job live: ranks, groups, what each is in", ng_command_top},
    {"groups", "list the groups of a job: members, deadlines, what made them", ng_command_groups},
    {"dump", "write a job's evidence now, without its help", ng_command_dump},
    {"abort", "abort a job's communicators on every rank", ng_command_order},
    {"suspend", "stop the deadlines of a job or a group, for a checkpoint", ng_command_order},
    {"resume", "let them run again", ng_command_order},
    {"reload", "have every rank read its rules file again", ng_command_order},
    {"set", "change the timing or the log level of a job that runs", ng_command_order},
    {"analyze", "reach a verdict from evidence: black boxes and dumps", ng_command_analyze},
    {"exporter", "serve metrics of the jobs of this host to Prometheus", ng_command_exporter},
    {"apis", "list every NCCL API: tracked, or passed and why", ng_command_apis},
    {"doctor", "tell what would be guarded here, what would slip by, and why", ng_command_doctor},
    {"config", "list every variable: name, type, default, meaning", ng_command_config},
};

static const char *command_name(const void *table, size_t index)
{
    return commands[index].name;
}

static void print_help(void)
{
    printf("usage: ncclguard COMMAND …\n"
           "\n"
           "Black box and circuit breaker for any NCCL program.\n"
           "\n");
    for (size_t i = 0; i < NG_COUNT(commands); i++)
        printf("  %-10s %s\n", commands[i].name, commands[i].help);
    printf("\n"
           "  --version  print the version; -V too\n"
           "  --help     print this help; -h too, and each command has it\n"
           "\n"
           "For example: ncclguard run --timeout 120s torchrun --nproc-per-node 8 train.py\n");
}

/* A failure to write the output is a failure of the command: a full disk must not look like an
 * empty answer. */
static int finish(int status)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    fprintf(stderr, "ncclguard: cannot write the output: %s\n", strerror(errno));
    return status == NG_EXIT_OK || status == NG_EXIT_FAULT ? NG_EXIT_FAILED : status;
}

int main(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : NULL;

    if (!word)
        return ng_usage_error(NULL, "`ncclguard --help` lists the commands",
                              "no command was given");
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0) {
        print_help();
        return finish(NG_EXIT_OK);
    }
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
        printf("ncclguard %s\n", NG_VERSION);
        return finish(NG_EXIT_OK);
    }
    for (size_t i = 0; i < NG_COUNT(commands); i++)
        if (strcmp(word, commands[i].name) == 0)
            return finish(commands[i].run(argc - 1, argv + 1));

    char mend[128] = "`ncclguard --help` lists the commands";
    const char *nearest = ng_usage_nearest(word, command_name, NULL, NG_COUNT(commands));
    if (nearest)
        snprintf(mend, sizeof(mend), "did you mean `ncclguard %s`?", nearest);
    char shown[256];
    ng_url_redact(word, shown, sizeof(shown));
    return ng_usage_error(NULL, mend, "unknown %s %s", word[0] == '-' ? "option" : "command",
                          shown);
}
