/*
 * Memory of this process: large tables, and reading what may not be mapped.
 *
 * Must never touch what it reads directly: it belongs to a stuck program, and may contain
 * anything.
 */
#include "core/util/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

/* The linker defines these for a section of such a name, if any variable is in it. */
extern char __start_ng_forgotten[] __attribute__((visibility("hidden"), weak));
extern char __stop_ng_forgotten[] __attribute__((visibility("hidden"), weak));

void ng_memory_forget(void)
{
    memset(__start_ng_forgotten, 0, (size_t)(__stop_ng_forgotten - __start_ng_forgotten));
}

void *ng_memory_reserve(size_t bytes)
{
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return map == MAP_FAILED ? NULL : map;
}

/* For sandboxes that forbid the dedicated system call. */
static size_t read_file(uint64_t address, void *ret_bytes, size_t bytes)
{
    int fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return 0;
    ssize_t got = pread(fd, ret_bytes, bytes, (off_t)address);
    close(fd);
    return got > 0 ? (size_t)got : 0;
}

size_t ng_memory_read_some(uint64_t address, void *ret_bytes, size_t bytes)
{
    struct iovec here = {ret_bytes, bytes}, there = {(void *)(uintptr_t)address, bytes};

    ssize_t got = process_vm_readv(getpid(), &here, 1, &there, 1, 0);
    if (got < 0 && (errno == ENOSYS || errno == EPERM))
        return read_file(address, ret_bytes, bytes);
    return got > 0 ? (size_t)got : 0;
}

bool ng_memory_read(uint64_t address, void *ret_bytes, size_t bytes)
{
    size_t done = 0;

    /* The kernel stops at the end of a mapping even if the next one is adjacent. */
    while (done < bytes) {
        size_t got = ng_memory_read_some(address + done, (char *)ret_bytes + done, bytes - done);
        if (!got)
            return false;
        done += got;
    }
    return true;
}
