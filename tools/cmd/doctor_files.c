/*
 * What the doctor says of one file: whether it is NCCL, holds it or calls it.
 *
 * Read-only.
 */
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tools/base/grow.h"
#include "tools/cmd/doctor.h"

bool ng_doctor_is_new(struct ng_doctor *doctor, const char *path)
{
    struct stat status;

    if (stat(path, &status) != 0)
        return false;
    for (size_t i = 0; i < doctor->seen_count; i++)
        if (doctor->seen[i].device == status.st_dev && doctor->seen[i].inode == status.st_ino)
            return false;
    struct ng_seen *seen = NG_APPEND(doctor->seen, doctor->seen_count);
    if (seen)
        *seen = (struct ng_seen){status.st_dev, status.st_ino};
    return true;
}

static const char *never_tested(const char *version)
{
    return !*version ? "its version is unknown"
           : ng_nccl_version_tested(version)
               ? NULL
               : "never tested with this version (tested: NCCL " NG_NCCL_TESTED ")";
}

#define SHARED_MEND "build it against the shared libnccl.so.2 instead of libnccl_static.a"

void ng_doctor_tell_nccl(struct ng_doctor *doctor, const char *path,
                         const struct ng_nccl_file *nccl, bool program, const char *what)
{
    const char *space = *nccl->version ? " " : "", *version = nccl->version;
    const char *untested = never_tested(nccl->version);
    char prefix[128] = "", after[128] = "";

    if (what)
        snprintf(prefix, sizeof(prefix), "%s: ", what);
    if (untested)
        snprintf(after, sizeof(after), "; %s", untested);
    if (nccl->role == NG_NCCL_LIBRARY || nccl->role == NG_NCCL_INSIDE)
        doctor->nccl_count++;
    if (nccl->unsure)
        ng_doctor_warn(doctor, path, NULL,
                       "%sits table of symbols is damaged, so a copy of NCCL inside it may go "
                       "unnoticed",
                       prefix);
    switch (nccl->role) {
    case NG_NCCL_NONE:
        return;
    case NG_NCCL_LIBRARY:
        ng_findings_add(&doctor->findings, untested ? NG_FINDING_WARNING : NG_FINDING_GUARDED, path,
                        NULL, "%sNCCL%s%s%s", prefix, space, version, after);
        return;
    case NG_NCCL_STUB:
        ng_doctor_guarded(doctor, path,
                          "%sfetches NCCL's functions by dlsym, where the guard answers", prefix);
        return;
    case NG_NCCL_BETWEEN:
        if (nccl->profiling)
            ng_doctor_warn(doctor, path,
                           "put libncclguard.so before it: LD_PRELOAD=libncclguard.so:…",
                           "%sstands before NCCL and calls its pncclX names: what passes it "
                           "first does not reach the guard",
                           prefix);
        else
            ng_doctor_ok(doctor, path,
                         "%sstands before NCCL, too; before or behind the guard, both work",
                         prefix);
        return;
    case NG_NCCL_CALLER:
        if (nccl->profiling)
            ng_doctor_out(doctor, path, "have it call ncclX instead of pncclX",
                          "%scalls pncclX names, under which nobody can stand between", prefix);
        else
            ng_doctor_guarded(doctor, path, "%scalls NCCL through ordinary symbols", prefix);
        return;
    case NG_NCCL_INSIDE:
        break;
    }
    if (program)
        ng_doctor_out(doctor, path, SHARED_MEND,
                      "%sholds NCCL%s%s itself: a program's own functions come before preloaded "
                      "ones",
                      prefix, space, version);
    else if (!nccl->exported)
        ng_doctor_out(doctor, path, SHARED_MEND,
                      "%sholds NCCL%s%s and does not export it: its calls stay inside", prefix,
                      space, version);
    else if (!nccl->by_name)
        ng_doctor_out(doctor, path, SHARED_MEND,
                      "%sholds NCCL%s%s and is bound to its own copy (-Bsymbolic or the like): "
                      "its calls stay inside",
                      prefix, space, version);
    else
        ng_findings_add(&doctor->findings, untested ? NG_FINDING_WARNING : NG_FINDING_GUARDED, path,
                        NULL, "%sholds NCCL%s%s, exports it and calls it by name%s", prefix, space,
                        version, after);
}

void ng_doctor_file(struct ng_doctor *doctor, const char *name, const char *what)
{
    char path[PATH_MAX];
    struct ng_elf_file file;
    struct ng_nccl_file nccl;
    const char *why;

    /* Links of several names lead to one file; the file's own name says the most. */
    if (!realpath(name, path) || !ng_doctor_is_new(doctor, path))
        return;
    int error = ng_elf_open(path, &file, &why);
    if (error != 0) {
        /* libnccl.so may be a linker script, and a pattern may match a folder. */
        if (error != -ENOEXEC && error != -EISDIR)
            ng_doctor_warn(doctor, path, NULL, "%s%s%s", what ? what : "", what ? ": " : "", why);
        return;
    }
    if (file.foreign) {
        ng_elf_close(&file);
        return;
    }
    ng_nccl_file_examine(&file, path, &nccl);
    ng_doctor_tell_nccl(doctor, path, &nccl, ng_elf_is_program(&file), what);
    ng_elf_close(&file);
}

void ng_doctor_files(struct ng_doctor *doctor, const char *folder, const char *pattern,
                     const char *what)
{
    char whole[2 * PATH_MAX], *to = whole;
    glob_t found;

    /* Escape glob's special characters in a folder's name. */
    for (; *folder && to + 2 < whole + sizeof(whole); *to++ = *folder++)
        if (strchr("*?[]\\", *folder))
            *to++ = '\\';
    if (snprintf(to, (size_t)(whole + sizeof(whole) - to), "/%s", pattern) >=
            (int)(whole + sizeof(whole) - to) ||
        glob(whole, 0, NULL, &found) != 0)
        return;
    for (size_t i = 0; i < found.gl_pathc; i++)
        ng_doctor_file(doctor, found.gl_pathv[i], what);
    globfree(&found);
}
