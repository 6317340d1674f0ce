/*
 * What Slurm is to a SPANK plugin on a node: loads it, gives it the option of srun, and lets it set
 * up a task.
 *
 *     spank_host PLUGIN OPTION|- COMMAND [ARGUMENT-OF-PLUGSTACK…]
 *
 * OPTION is what stands behind `--ncclguard=`, empty for the option alone, - for none. Then COMMAND
 * is run in the task's environment by a shell. One thread.
 */
#include <dlfcn.h>
#include <slurm/spank.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void slurm_error(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
}

spank_err_t spank_getenv(spank_t spank, const char *name, char *value, int size)
{
    const char *found = getenv(name);

    if (!found)
        return ESPANK_ENV_NOEXIST;
    if ((int)strlen(found) >= size)
        return ESPANK_NOSPACE;
    strcpy(value, found);
    return ESPANK_SUCCESS;
}

spank_err_t spank_setenv(spank_t spank, const char *name, const char *value, int overwrite)
{
    return setenv(name, value, overwrite) ? ESPANK_ERROR : ESPANK_SUCCESS;
}

int main(int count, char *arguments[])
{
    void *plugin = count < 4 ? NULL : dlopen(arguments[1], RTLD_NOW);

    if (!plugin) {
        fprintf(stderr, "spank_host: %s\n", count < 4 ? "three arguments are needed" : dlerror());
        return 2;
    }
    struct spank_option *options = dlsym(plugin, "spank_options");
    int (*task_init)(spank_t, int, char *[]) =
        (int (*)(spank_t, int, char *[]))dlsym(plugin, "slurm_spank_task_init");
    const char *option = arguments[2];
    if (strcmp(options[0].name, "ncclguard") != 0 || options[1].name || options[0].has_arg != 2)
        return 3;
    if (strcmp(option, "-") != 0 &&
        options[0].cb(options[0].val, option[0] ? option : NULL, 1) != 0)
        return 4;
    if (task_init(NULL, count - 4, arguments + 4) != 0)
        return 5;
    return execl("/bin/sh", "sh", "-c", arguments[3], (char *)NULL);
}
