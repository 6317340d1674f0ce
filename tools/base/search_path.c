/*
 * The search of PATH, as execvp does it.
 */
#include "tools/base/search_path.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *ng_last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

int ng_search_path(const char *name, char ret_path[PATH_MAX])
{
    const char *list = getenv("PATH");
    char path[PATH_MAX];

    if (strchr(name, '/')) {
        if (strlen(name) >= PATH_MAX)
            return -ENAMETOOLONG;
        if (access(name, F_OK) != 0)
            return -errno;
        memcpy(ret_path, name, strlen(name) + 1);
        return 0;
    }
    for (const char *at = list ? list : "/bin:/usr/bin"; at && *name;) {
        struct stat status;
        size_t length = strcspn(at, ":");
        int written =
            snprintf(path, PATH_MAX, "%.*s/%s", length ? (int)length : 1, length ? at : ".", name);
        if (written < PATH_MAX && access(path, X_OK) == 0 && stat(path, &status) == 0 &&
            S_ISREG(status.st_mode)) {
            memcpy(ret_path, path, (size_t)written + 1);
            return 0;
        }
        at = at[length] ? at + length + 1 : NULL;
    }
    return -ENOENT;
}

bool ng_search_program(const char *name)
{
    char path[PATH_MAX];
    struct stat status;

    return ng_search_path(name, path) == 0 && access(path, X_OK) == 0 && stat(path, &status) == 0 &&
           S_ISREG(status.st_mode);
}
