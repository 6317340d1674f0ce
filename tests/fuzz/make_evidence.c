/*
 * Good evidence of ncclguard's own kinds, for the fuzzer: `make_evidence FOLDER`.
 *
 * Files are named NUMBER.NAME: the fuzzer gives a damaged one its NAME.
 */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/tools/evidence.h"

#define RANDOM_DUMPS 40

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

int main(int argc, char **argv)
{
    static const struct evidence_rank ranks[] = {
        {0, EVIDENCE_RUNNING, 7, 6, 10000, 0},
        {1, EVIDENCE_DEAD, 7, 6, 10000, 5000},
        {2, EVIDENCE_RUNNING, 6, 6, 0, 0},
        {3, EVIDENCE_ENDED_BY_GUARD, 7, 7, 0, 3000},
    };
    char folder[512], name[64];
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
    /* A process has one black box; it stays when the process is gone. */
    for (int i = 0; i < 4 && !error; i++) {
        pid_t child = fork();
        if (child == 0)
            _exit(evidence_make_box(folder, &ranks[i], 4) != 0);
        int status;
        error = child < 0 || waitpid(child, &status, 0) != child || status != 0;
        count += take(folder, argv[1], count);
    }
    rmdir(folder);
    printf("%d files\n", count);
    return error ? 1 : 0;
}
