/*
 * The parts of `ncclguard doctor`: each examines something and adds its findings.
 */
#ifndef NCCLGUARD_TOOLS_CMD_DOCTOR_H
#define NCCLGUARD_TOOLS_CMD_DOCTOR_H

#include <limits.h>
#include <stdbool.h>

#include "tools/inspect/loader.h"
#include "tools/inspect/nccl_file.h"
#include "tools/render/findings.h"

struct ng_doctor {
    struct ng_findings findings;
    struct ng_loader loader;
    char library[PATH_MAX]; /* libncclguard.so; "" not found */
    unsigned nccl_count;    /* NCCL libraries that were found, shared or inside other files */
    struct ng_seen {
        dev_t device;
        ino_t inode;
    } * seen; /* files that were examined */
    size_t seen_count;
    bool linked;         /* a program loads NCCL, or something that calls it */
    const char *started; /* a program among the arguments of the examined one; NULL none */
    bool not_followed;   /* a program is started, or may be, that was not examined */
    bool partly;         /* a launcher drops LD_PRELOAD for some of what it starts, or may */
};

/* Add a finding: what is fine, is guarded, deserves a warning, or is out of reach; the last two
 * with what mends it (NULL: nothing does). */
#define ng_doctor_ok(doctor, object, ...)                                                          \
    ng_findings_add(&(doctor)->findings, NG_FINDING_OK, object, NULL, __VA_ARGS__)
#define ng_doctor_guarded(doctor, object, ...)                                                     \
    ng_findings_add(&(doctor)->findings, NG_FINDING_GUARDED, object, NULL, __VA_ARGS__)
#define ng_doctor_warn(doctor, object, mend, ...)                                                  \
    ng_findings_add(&(doctor)->findings, NG_FINDING_WARNING, object, mend, __VA_ARGS__)
#define ng_doctor_out(doctor, object, mend, ...)                                                   \
    ng_findings_add(&(doctor)->findings, NG_FINDING_OUT, object, mend, __VA_ARGS__)

/* This machine: library, preloading, folders, variables, driver. */
void ng_doctor_machine(struct ng_doctor *doctor);

/* NCCL libraries in the usual locations of this machine. */
void ng_doctor_nccl_of_machine(struct ng_doctor *doctor);

/* The program that argv names, and what it would load. It is never run. */
void ng_doctor_program(struct ng_doctor *doctor, char *const *argv);

/*
 * The content of this interpreter's packages. `command` is how it is started: its name or path, and
 * its own options, ended by NULL. `executable_wanted`: examine the interpreter's program, too.
 */
void ng_doctor_python(struct ng_doctor *doctor, char *const *command, bool executable_wanted);

/* A program (or library), and everything that the dynamic linker would load for it. */
void ng_doctor_elf(struct ng_doctor *doctor, const char *path);

/* One file that may be NCCL, contain it or call it; `what` names the object for which it is
 * examined. */
void ng_doctor_file(struct ng_doctor *doctor, const char *path, const char *what);

/* All files below a folder that match a pattern of glob(3), each once. */
void ng_doctor_files(struct ng_doctor *doctor, const char *folder, const char *pattern,
                     const char *what);

/* Report how an examined object relates to NCCL. */
void ng_doctor_tell_nccl(struct ng_doctor *doctor, const char *path,
                         const struct ng_nccl_file *nccl, bool program, const char *what);

/* Whether this file is examined for the first time. */
bool ng_doctor_is_new(struct ng_doctor *doctor, const char *path);

#endif
