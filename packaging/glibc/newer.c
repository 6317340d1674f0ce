/*
 * Functions that glibc got after 2.28, for files that must also run with 2.28: link-old puts them
 * into each link that needs them. The struct stat of the C library is the kernel's on the machines
 * that we build for (x86-64 and aarch64).
 *
 * Must never be linked into a build for this machine alone.
 */
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HIDDEN __attribute__((visibility("hidden")))

struct stat64;

/* 2.30 */

HIDDEN pid_t gettid(void)
{
    return (pid_t)syscall(SYS_gettid);
}

/* 2.33 */

HIDDEN int stat(const char *path, struct stat *ret_status)
{
    return (int)syscall(SYS_newfstatat, AT_FDCWD, path, ret_status, 0);
}

HIDDEN int lstat(const char *path, struct stat *ret_status)
{
    return (int)syscall(SYS_newfstatat, AT_FDCWD, path, ret_status, AT_SYMLINK_NOFOLLOW);
}

HIDDEN int fstat(int descriptor, struct stat *ret_status)
{
    return (int)syscall(SYS_fstat, descriptor, ret_status);
}

HIDDEN int fstatat(int folder, const char *path, struct stat *ret_status, int flags)
{
    return (int)syscall(SYS_newfstatat, folder, path, ret_status, flags);
}

HIDDEN int stat64(const char *path, struct stat64 *ret_status)
    __attribute__((alias("stat"), copy(stat)));
HIDDEN int lstat64(const char *path, struct stat64 *ret_status)
    __attribute__((alias("lstat"), copy(lstat)));
HIDDEN int fstat64(int descriptor, struct stat64 *ret_status)
    __attribute__((alias("fstat"), copy(fstat)));
HIDDEN int fstatat64(int folder, const char *path, struct stat64 *ret_status, int flags)
    __attribute__((alias("fstatat"), copy(fstatat)));

/* 2.38: what <stdlib.h> and <stdio.h> call since then also reads 0b101. The older ones do not. */

#define AS_BEFORE(type, name)                                                                      \
    extern type old_##name(const char *text, char **ret_end, int base) __asm__(#name);             \
    HIDDEN type __isoc23_##name(const char *text, char **ret_end, int base);                       \
    type __isoc23_##name(const char *text, char **ret_end, int base)                               \
    {                                                                                              \
        return old_##name(text, ret_end, base);                                                    \
    }

AS_BEFORE(long, strtol)
AS_BEFORE(unsigned long, strtoul)
AS_BEFORE(long long, strtoll)
AS_BEFORE(unsigned long long, strtoull)

extern int old_vsscanf(const char *text, const char *format, va_list arguments) __asm__("vsscanf");
HIDDEN int __isoc23_sscanf(const char *text, const char *format, ...);

int __isoc23_sscanf(const char *text, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    int found = old_vsscanf(text, format, arguments);
    va_end(arguments);
    return found;
}
