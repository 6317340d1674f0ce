/*
 * Good evidence of ncclguard's own kinds, for the fuzzer: `make_evidence FOLDER`.
 *
 * Files are named NUMBER.NAME: the fuzzer gives a damaged one its NAME.
 */
#include <dirent.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/evidence/stacks.h"
#include "core/report/dump.h"
#include "tests/unit/tools/evidence.h"

#define RANDOM_DUMPS   40
#define RANDOM_FLIGHTS 20

/* Everything in `from`, under numbers from `first` on; how many. */
static int take(const char *from, const char *folder, int first)
{
    DIR *open_folder = opendir(from);
    const struct dirent *entry;
    char old_path[768], new_path[768];
    int taken = 0;

    while (open_folder && (entry = readdir(open_folder)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(old_path, sizeof(old_path), "%s/%s", from, entry->d_name);
        snprintf(new_path, sizeof(new_path), "%s/%d.%s", folder, first + taken, entry->d_name);
        taken += rename(old_path, new_path) == 0;
    }
    if (open_folder)
        closedir(open_folder);
    return taken;
}

/* As core/evidence/stacks.h has faulthandler's lines; it is not this program that speaks Python. */
static int read_python(char *ret_text, size_t bytes)
{
    return snprintf(
        ret_text, bytes,
        "Thread 0x%016lx (most recent call first):\n"
        "  File \"train.py\", line 12 in load\n  File \"train.py\", line 40 in <module>\n",
        (unsigned long)getpid());
}

/* The stacks of this process, as text and in a dump. */
static int write_stacks(const char *folder)
{
    struct ng_stacks stacks;
    struct ng_view view;
    int error = ng_stacks_take(read_python, &stacks);

    if (error) /* where nobody may look at a process */
        return 0;
    ng_view_init(&view);
    evidence_add_random(&view, 1000);
    view.processes[0].rank = 3;
    view.processes[0].self = true;
    view.stacks = &stacks;
    ng_view_seal(&view);
    error = ng_dump_save_process(&view, 0, folder);
    if (!error)
        error = ng_stacks_save(&stacks, &view.processes[0], 3, folder);
    ng_view_fini(&view);
    ng_stacks_fini(&stacks);
    return error;
}

int main(int argc, char **argv)
{
    static const struct evidence_rank ranks[] = {
        {0, EVIDENCE_RUNNING, 7, 6, 10000, 0},
        {1, EVIDENCE_DEAD, 7, 6, 10000, 5000, true},
        {2, EVIDENCE_RUNNING, 6, 6, 0, 0},
        {3, EVIDENCE_ENDED_BY_GUARD, 7, 7, 0, 3000, true},
    };
    char folder[512], flight[520], name[64];
    int count = 0, error = 0;

    if (argc != 2)
        return 2;
    snprintf(folder, sizeof(folder), "%s/new", argv[1]);
    if (mkdir(folder, 0700) != 0)
        return 1;
    error = evidence_write_dumps(folder, ranks, 4, 4);
    count += take(folder, argv[1], count);
    for (unsigned seed = 1; seed <= RANDOM_DUMPS && !error; seed++) {
        error = evidence_write_random(folder, seed, name, sizeof(name));
        count += take(folder, argv[1], count);
    }
    snprintf(flight, sizeof(flight), "%s/fr", folder);
    for (unsigned seed = 1; seed <= RANDOM_FLIGHTS && !error; seed++) {
        error = evidence_write_random_flight(folder, seed);
        count += take(flight, argv[1], count);
    }
    rmdir(flight);
    if (!error)
        error = write_stacks(folder);
    count += take(folder, argv[1], count);
    /* A process has one black box; it stays when the process is gone. */
    for (int i = 0; i < 4 && !error; i++) {
        pid_t child = fork();
        if (child == 0)
            _exit(evidence_make_full_box(folder, &ranks[i], 4) != 0);
        int status;
        error = child < 0 || waitpid(child, &status, 0) != child || status != 0;
        count += take(folder, argv[1], count);
    }
    rmdir(folder);
    printf("%d files\n", count);
    return error ? 1 : 0;
}
