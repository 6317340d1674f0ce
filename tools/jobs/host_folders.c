/*
 * The folders of this host in which jobs have their black boxes.
 *
 * Reads folders alone. Must never follow a link that another user has made in shared memory.
 */
#include "tools/jobs/host_folders.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/recorder/paths.h"
#include "core/util/folder.h"

/* Is it a folder, and no link, of this user? */
static bool is_folder_of(const char *path, uid_t user)
{
    struct stat status;

    return lstat(path, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == user;
}

/* `above` holds a folder for each job of a user. */
static void each_job(const char *above, uid_t user, void (*each)(void *context, const char *folder),
                     void *context)
{
    struct ng_folder jobs;
    char path[PATH_MAX];
    const char *name;

    if (!is_folder_of(above, user) || ng_folder_open(&jobs, above, false) != 0)
        return;
    while ((name = ng_folder_next(&jobs)))
        if (name[0] != '.' &&
            snprintf(path, sizeof(path), "%s/%s", above, name) < (int)sizeof(path) &&
            is_folder_of(path, user))
            each(context, path);
    ng_folder_close(&jobs);
}

void ng_host_folders_each(const char *common, void (*each)(void *context, const char *folder),
                          void *context)
{
    char own[PATH_MAX], path[PATH_MAX];
    struct ng_folder users;
    const char *name;

    if (common) {
        each(context, common);
        return;
    }
    ng_paths_default_dir("", own, sizeof(own));
    own[strlen(own) - 1] = '\0';
    if (geteuid() != 0) {
        each_job(own, geteuid(), each, context);
        return;
    }
    /* "…/ncclguard-0": those of all users have that name, but for the number. */
    char *number = strrchr(own, '-') + 1, *last = strrchr(own, '/');
    size_t prefix = (size_t)(number - last - 1);
    char above[PATH_MAX];
    snprintf(above, sizeof(above), "%.*s", (int)(last - own), own);
    if (ng_folder_open(&users, above, true) != 0)
        return;
    while ((name = ng_folder_next(&users))) {
        char *end;
        if (strncmp(name, last + 1, prefix) != 0)
            continue;
        unsigned long user = strtoul(name + prefix, &end, 10);
        if (name[prefix] && !*end &&
            snprintf(path, sizeof(path), "%s/%s", above, name) < (int)sizeof(path))
            each_job(path, (uid_t)user, each, context);
    }
    ng_folder_close(&users);
}
