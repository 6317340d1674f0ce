/*
 * Reads a folder.
 *
 * Entered at start and by the guard's threads. Must never call malloc, as opendir does: a thread of
 * the program may be stuck holding its lock.
 */
#include "core/util/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static void begin(struct ng_folder *folder, int fd, bool ours)
{
    folder->fd = fd;
    folder->ours = ours;
    folder->used = folder->length = 0;
}

int ng_folder_open(struct ng_folder *ret_folder, const char *path, bool follow)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (follow ? 0 : O_NOFOLLOW));

    if (fd < 0)
        return -errno;
    begin(ret_folder, fd, true);
    return 0;
}

void ng_folder_borrow(struct ng_folder *ret_folder, int fd)
{
    lseek(fd, 0, SEEK_SET);
    begin(ret_folder, fd, false);
}

const char *ng_folder_next(struct ng_folder *folder)
{
    for (;;) {
        if (folder->used >= folder->length) {
            long got = syscall(SYS_getdents64, folder->fd, folder->buffer, sizeof(folder->buffer));
            if (got <= 0)
                return NULL;
            folder->used = 0;
            folder->length = (size_t)got;
        }
        /* The kernel writes struct dirent64, except that the name has no fixed length. */
        const char *entry = folder->buffer + folder->used;
        unsigned short bytes;
        memcpy(&bytes, entry + offsetof(struct dirent64, d_reclen), sizeof(bytes));
        folder->used += bytes;
        const char *name = entry + offsetof(struct dirent64, d_name);
        if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0)
            return name;
    }
}

void ng_folder_close(struct ng_folder *folder)
{
    if (folder->ours)
        close(folder->fd);
    folder->fd = -1;
}
