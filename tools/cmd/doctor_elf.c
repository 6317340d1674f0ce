/*
 * The doctor's examination of a program's file, and of all that the dynamic linker loads for it.
 *
 * Read-only. Must never run the program.
 */
#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "core/util/macros.h"
#include "tools/base/search_path.h"
#include "tools/cmd/doctor.h"

/* Why the dynamic linker would run this program in secure mode; NULL: it would not. */
static const char *why_secure(const char *path)
{
    struct stat status;
    struct statvfs system;

    if (stat(path, &status) != 0 || prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ||
        (statvfs(path, &system) == 0 && (system.f_flag & ST_NOSUID)))
        return NULL;
    if ((status.st_mode & S_ISUID) && status.st_uid != getuid())
        return "is setuid to another user";
    /* Without execute permission, the group's bit has another meaning. */
    if ((status.st_mode & S_ISGID) && (status.st_mode & S_IXGRP) && status.st_gid != getgid())
        return "is setgid to another group";
    if (getuid() != 0 && getxattr(path, "security.capability", NULL, 0) > 0)
        return "has file capabilities";
    return NULL;
}

static const char *machine_name(uint16_t machine)
{
    switch (machine) {
    case EM_X86_64:
        return "x86-64";
    case EM_386:
        return "x86 (32 bits)";
    case EM_AARCH64:
        return "aarch64";
    case EM_ARM:
        return "ARM (32 bits)";
    case EM_PPC64:
        return "ppc64";
    case EM_RISCV:
        return "RISC-V";
    default:
        return "an unknown machine";
    }
}

/* What prevents a library from being preloaded into this program. False: nothing. */
static bool tell_obstacle(struct ng_doctor *doctor, const char *path,
                          const struct ng_elf_file *file, const struct ng_nccl_file *nccl)
{
    const char *secure = why_secure(path);
    char mend[PATH_MAX + 128];

    if (file->foreign) {
        ng_doctor_out(doctor, path, "use an ncclguard that was built for the program's machine",
                      "is a %s-bit program for %s; our library is not",
                      file->elf_class == ELFCLASS32 ? "32" : "64", machine_name(file->machine));
        return true;
    }
    if (file->type != ET_EXEC && file->type != ET_DYN) {
        ng_doctor_out(doctor, path, "name a program", "is an ELF file, but no program (%s)",
                      file->type == ET_CORE  ? "a core dump"
                      : file->type == ET_REL ? "an object file, not linked yet"
                                             : "of an unknown type");
        return true;
    }
    if (secure) {
        ng_doctor_out(doctor, path,
                      "run the program itself under `ncclguard run`, without these rights",
                      "%s, so the dynamic linker ignores LD_PRELOAD", secure);
        return true;
    }
    if (file->interpreter && strstr(file->interpreter, "ld-musl")) {
        ng_doctor_out(doctor, path, "use a build of it for glibc",
                      "is built for musl (%s); our library needs glibc", file->interpreter);
        return true;
    }
    if (file->interpreter && access(file->interpreter, F_OK) != 0) {
        snprintf(mend, sizeof(mend), "install %s, or use a build of it for this system",
                 file->interpreter);
        ng_doctor_out(doctor, path, mend, "its dynamic linker %s is not here: it cannot start",
                      file->interpreter);
        return true;
    }
    if (!file->interpreter && (file->type == ET_EXEC || file->program || !file->dynamic)) {
        bool holds = nccl->role == NG_NCCL_INSIDE;
        if (!holds && doctor->started)
            ng_doctor_warn(doctor, path, "name the program that it starts",
                           "is linked statically: it is not guarded itself; what it starts is");
        else
            ng_doctor_out(doctor, path, "link it dynamically, with the shared libnccl.so.2",
                          "is linked statically%s%s%s: nothing can be preloaded into it",
                          holds ? " and holds NCCL" : "", *nccl->version ? " " : "", nccl->version);
        return true;
    }
    return false;
}

/* AddressSanitizer's runtime must be the first library, and ours would come before it. */
static void tell_sanitizer(struct ng_doctor *doctor, const struct ng_closure *closure)
{
    const char *options = getenv("ASAN_OPTIONS"), *preload = getenv("LD_PRELOAD");
    char mend[PATH_MAX + 128];

    for (size_t i = 1; i < closure->count; i++) {
        const char *path = closure->objects[i]->path;
        if (strncmp(ng_last_part(path), "libasan.so", 10) != 0 &&
            strncmp(ng_last_part(path), "libclang_rt.asan", 16) != 0)
            continue;
        if ((options && strstr(options, "verify_asan_link_order=0")) ||
            (preload && strstr(preload, "asan")))
            return;
        snprintf(mend, sizeof(mend), "set LD_PRELOAD=%s, or ASAN_OPTIONS=verify_asan_link_order=0",
                 path);
        ng_doctor_out(doctor, closure->objects[0]->path, mend,
                      "its AddressSanitizer ends it when another library is preloaded before it");
    }
}

static void tell_missing(struct ng_doctor *doctor, const struct ng_closure *closure)
{
    NG_EACH (missing, closure->missing, closure->missing_count) {
        bool nccl = strncmp(missing->name, "libnccl.so", 10) == 0;
        ng_findings_add(&doctor->findings, nccl ? NG_FINDING_OUT : NG_FINDING_WARNING,
                        closure->objects[missing->parent]->path,
                        "add its folder to LD_LIBRARY_PATH, as where the program runs",
                        "needs %s, which %s", missing->name,
                        missing->why ? missing->why : "the dynamic linker does not find");
    }
    if (closure->cut)
        ng_doctor_warn(doctor, closure->objects[0]->path, NULL,
                       "needs more libraries than were looked at");
}

/* What a program that loads libraries at run time would get, and what cannot be known in
 * advance. */
static void tell_loading(struct ng_doctor *doctor, const struct ng_closure *closure, bool nccl_seen)
{
    const struct ng_loaded *program = closure->objects[0];
    bool loads = false;
    char path[PATH_MAX];

    for (size_t i = 0; i < closure->count; i++) {
        const struct ng_loaded *object = closure->objects[i];
        loads |= ng_elf_imports(&object->elf, "dlopen");
        if (ng_elf_imports(&object->elf, "dlmopen"))
            ng_doctor_warn(doctor, object->path, NULL,
                           "may load libraries into a namespace of their own (dlmopen): an NCCL "
                           "there is guarded only where it is fetched by dlsym; a run tells");
    }
    if (!loads || nccl_seen)
        return;
    ng_doctor_ok(doctor, program->path,
                 "is not linked to NCCL but can load it while it runs (dlopen): guarded, unless "
                 "with RTLD_DEEPBIND or dlmopen, which only a run can tell");
    if (ng_loader_find(&doctor->loader, "libnccl.so.2", path) == 0)
        ng_doctor_file(doctor, path, "what dlopen(\"libnccl.so.2\") finds");
}

static bool is_ours(const struct ng_doctor *doctor, const char *path)
{
    return strcmp(path, doctor->library) == 0 ||
           strncmp(ng_last_part(path), "libncclguard", 12) == 0;
}

static void look_at_closure(struct ng_doctor *doctor, const char *path)
{
    struct ng_closure closure;
    const char *why;
    bool nccl_seen = false;

    if (ng_loader_close_over(&doctor->loader, path, &closure, &why) != 0) {
        ng_doctor_out(doctor, path, NULL, "%s", why);
        return;
    }
    for (size_t i = 0; i < closure.count; i++) {
        const struct ng_loaded *object = closure.objects[i];
        struct ng_nccl_file nccl;
        /* The program itself is reported, even if it was examined before in another role. */
        if ((!ng_doctor_is_new(doctor, object->path) && i > 0) || is_ours(doctor, object->path))
            continue;
        ng_nccl_file_examine(&object->elf, object->path, &nccl);
        nccl_seen |= nccl.role != NG_NCCL_NONE;
        ng_doctor_tell_nccl(doctor, object->path, &nccl, i == 0 && ng_elf_is_program(&object->elf),
                            NULL);
        if (object->elf.interpose && nccl.role == NG_NCCL_INSIDE)
            ng_doctor_warn(doctor, object->path, NULL,
                           "is marked to come first (DF_1_INTERPOSE); whether it comes before the "
                           "guard, a run tells");
    }
    tell_missing(doctor, &closure);
    tell_sanitizer(doctor, &closure);
    tell_loading(doctor, &closure, nccl_seen);
    doctor->linked |= nccl_seen;
    ng_closure_fini(&closure);
}

void ng_doctor_elf(struct ng_doctor *doctor, const char *path)
{
    struct ng_elf_file file;
    struct ng_nccl_file nccl;
    const char *why;

    int error = ng_elf_open(path, &file, &why);
    if (error != 0) {
        ng_doctor_out(doctor, path,
                      error == -EBADMSG ? "build or install it again" : "name a program", "%s",
                      why);
        return;
    }
    ng_nccl_file_examine(&file, path, &nccl);
    bool obstacle = tell_obstacle(doctor, path, &file, &nccl);
    if (!obstacle && !ng_elf_is_program(&file))
        ng_doctor_ok(doctor, path,
                     "is a library, not a program; looked at as one that a program loads");
    ng_elf_close(&file);
    if (!obstacle)
        look_at_closure(doctor, path);
}
