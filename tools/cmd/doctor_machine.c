/*
 * The doctor's examination of the machine: whether the guard can work here, and which NCCLs exist.
 *
 * Must leave nothing behind: folders and files created for a test are removed.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/config/config.h"
#include "core/recorder/paths.h"
#include "core/util/clock.h"
#include "core/util/macros.h"
#include "store/board/board_client.h"
#include "store/kv/url.h"
#include "tools/base/run_helper.h"
#include "tools/base/search_path.h"
#include "tools/cmd/doctor.h"
#include "tools/inspect/library.h"
#include "tools/jobs/jobs.h"

/* About twice the size of a first black box. */
#define BOX_TRIAL_BYTES  ((off_t)1 << 20)
#define LITTLE_BYTES     ((uint64_t)16 << 20)
#define PRELOAD_TRIAL_NS (10 * NG_S)

static const char *variable_of(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* The message of a child that was to preload the library; NULL: it was loaded. */
static const char *trial_complaint(struct ng_answer *answer)
{
    static const char word[] = "cannot be preloaded";
    char *found = strstr(answer->err, word);

    if (found) {
        found += sizeof(word) - 1;
        found[strcspn(found, "\n")] = '\0';
        return found + strspn(found, " ");
    }
    if (answer->late)
        return "a program that preloads it does not end";
    if (!WIFEXITED(answer->status) || WEXITSTATUS(answer->status) != 0) {
        answer->err[strcspn(answer->err, "\n")] = '\0';
        return *answer->err ? answer->err : "a program that preloads it does not work";
    }
    return NULL;
}

/* This command itself is the program on which preloading is tested. */
static void try_preloading(struct ng_doctor *doctor)
{
    static const char mend[] = "see that the folder may be read and executed from, and that the "
                               "library was built for this system";
    char *const argv[] = {"/proc/self/exe", "--version", NULL};
    char preload[PATH_MAX + 16];
    const char *const listing[] = {preload, "LD_TRACE_LOADED_OBJECTS=1", NULL};
    const char *const running[] = {preload, "NCCLGUARD_LOG_FILE", NULL};
    struct ng_answer answer;
    bool mapped;

    snprintf(preload, sizeof(preload), "LD_PRELOAD=%s", doctor->library);
    int error = ng_ask(argv, listing, PRELOAD_TRIAL_NS, &answer);
    const char *why = error ? strerror(-error) : trial_complaint(&answer);
    mapped = !why && strstr(answer.out, doctor->library) != NULL;
    if (mapped) {
        ng_answer_fini(&answer);
        /* It was mapped; now test it with its constructor. */
        error = ng_ask(argv, running, PRELOAD_TRIAL_NS, &answer);
        why = error ? strerror(-error) : trial_complaint(&answer);
    }
    if (why)
        ng_doctor_out(doctor, "preloading", mend, "%s: %s", doctor->library, why);
    else if (!mapped)
        ng_doctor_out(doctor, "preloading", mend, "LD_PRELOAD does not bring %s into a program",
                      doctor->library);
    else
        ng_doctor_ok(doctor, "preloading", "works");
    if (error == 0)
        ng_answer_fini(&answer);
}

static void look_for_library(struct ng_doctor *doctor)
{
    struct ng_mistake mistake;

    if (!ng_library_find(doctor->library, &mistake)) {
        doctor->library[0] = '\0';
        ng_doctor_out(doctor, "libncclguard.so", mistake.mend, "%s", mistake.text);
        return;
    }
    if (!ng_library_check(doctor->library, &mistake)) {
        ng_doctor_out(doctor, doctor->library, mistake.mend, "%s", mistake.text);
        return;
    }
    ng_doctor_ok(doctor, doctor->library, "our library, version %s", NG_VERSION);
    try_preloading(doctor);
}

static bool is_sanitizer(const char *path)
{
    static const char *const prefixes[] = {"libasan.so", "libtsan.so", "liblsan.so", "libhwasan.so",
                                           "libclang_rt."};
    return NG_ANY(prefix, prefixes, NG_COUNT(prefixes),
                  strncmp(ng_last_part(path), *prefix, strlen(*prefix)) == 0);
}

static void look_at_preloaded(struct ng_doctor *doctor, const char *entry, size_t index,
                              bool guard_before)
{
    char path[PATH_MAX];
    struct ng_elf_file file;
    struct ng_nccl_file nccl;
    const char *why = "is not found by the dynamic linker";

    if (ng_loader_find(&doctor->loader, entry, path) != 0 || ng_elf_open(path, &file, &why) != 0) {
        ng_doctor_warn(doctor, entry, "take it out of LD_PRELOAD, or mend its path",
                       "LD_PRELOAD: %s", why);
        return;
    }
    ng_nccl_file_examine(&file, path, &nccl);
    bool foreign = file.foreign, exports = ng_elf_exports(&file, "ncclAllReduce");
    ng_elf_close(&file);
    if (foreign) {
        ng_doctor_warn(doctor, entry, "take it out of LD_PRELOAD",
                       "LD_PRELOAD: is of another kind of machine");
    } else if (is_sanitizer(path)) {
        if (index > 0)
            ng_doctor_warn(doctor, entry, "name it first in LD_PRELOAD",
                           "LD_PRELOAD: a sanitizer's runtime refuses to come second");
        else
            ng_doctor_ok(doctor, entry,
                         "LD_PRELOAD: a sanitizer's runtime, first as it must be; ours goes "
                         "behind it");
    } else if (exports && nccl.profiling && !guard_before) {
        char mend[2 * PATH_MAX + 64];
        snprintf(mend, sizeof(mend), "put the guard before it: LD_PRELOAD=%s:%s", doctor->library,
                 entry);
        ng_doctor_out(doctor, entry, mend,
                      "LD_PRELOAD: stands between programs and NCCL and passes calls on to "
                      "pncclX, past whoever comes behind it");
    } else if (exports && nccl.role == NG_NCCL_LIBRARY) {
        ng_doctor_file(doctor, path, "LD_PRELOAD");
        if (!guard_before)
            ng_doctor_out(doctor, entry, "name libncclguard.so before it in LD_PRELOAD",
                          "LD_PRELOAD: this NCCL comes before the guard");
    } else if (exports) {
        ng_doctor_ok(doctor, entry,
                     "LD_PRELOAD: stands between programs and NCCL, too (%s the guard)",
                     guard_before ? "behind" : "before");
    } else {
        ng_doctor_ok(doctor, entry, "LD_PRELOAD: stays; ours goes behind it");
    }
}

/* The list of LD_PRELOAD, as it is in the environment. */
static void look_at_preload_list(struct ng_doctor *doctor, const char *list)
{
    bool guard_before = false;
    size_t index = 0;

    for (const char *at = list; at && *at; index++) {
        char entry[PATH_MAX];
        size_t length = strcspn(at, ": ");
        snprintf(entry, sizeof(entry), "%.*s", (int)length, at);
        if (strncmp(ng_last_part(entry), "libncclguard", 12) == 0 ||
            strcmp(entry, doctor->library) == 0)
            guard_before = true;
        else if (length > 0)
            look_at_preloaded(doctor, entry, index, guard_before);
        at += length + (at[length] != '\0');
    }
}

static void take_warning(void *context, char severity, const char *line)
{
    struct ng_doctor *doctor = context;

    if (severity == 'W')
        ng_doctor_warn(doctor, "variables", NULL, "%s", line);
}

static void look_at_variables(struct ng_doctor *doctor, struct ng_config *ret_config)
{
    struct ng_mistake mistake;

    ng_config_parse(ret_config, environ, take_warning, doctor);
    if (ng_library_bad_setting(&mistake))
        ng_doctor_out(doctor, "variables", mistake.mend, "%s: `ncclguard run` starts nothing",
                      mistake.text);
    if (!ret_config->enabled)
        ng_doctor_out(doctor, "variables", "unset NCCLGUARD",
                      "NCCLGUARD=%s makes the library inert", getenv("NCCLGUARD"));
    look_at_preload_list(doctor, variable_of("LD_PRELOAD"));
    const char *check = variable_of("NCCLGUARD_CHECK");
    if (check && strstr(check, "+nan")) {
        if (NG_HAVE_NAN_KERNEL)
            ng_doctor_ok(doctor, "NCCLGUARD_CHECK", "this build has the kernel that looks for NaN");
        else
            ng_doctor_out(
                doctor, "NCCLGUARD_CHECK", "build ncclguard where nvcc is, or leave +nan out",
                "%s: this build has no kernel that looks for NaN, so nothing does", check);
    }
    const char *asan = variable_of("ASAN_OPTIONS");
    if (asan && strstr(asan, "verify_asan_link_order=0"))
        ng_doctor_ok(doctor, "ASAN_OPTIONS",
                     "lets AddressSanitizer's runtime come behind a preloaded library");
}

/* Create a shared file in this folder: 0 or -errno. */
static int try_file(const char *folder)
{
    char path[PATH_MAX + 64];
    int error = 0;

    snprintf(path, sizeof(path), "%s/.doctor-%d", folder, (int)getpid());
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    /* Reserve the space, since on a full file system the first write would raise SIGBUS. */
    error = -posix_fallocate(fd, 0, BOX_TRIAL_BYTES);
    if (error == 0) {
        volatile char *bytes =
            mmap(NULL, (size_t)BOX_TRIAL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (bytes == MAP_FAILED) {
            error = -errno;
        } else {
            bytes[0] = 1;
            munmap((void *)bytes, (size_t)BOX_TRIAL_BYTES);
        }
    }
    close(fd);
    unlink(path);
    return error;
}

/* Length of the prefix of this path that is an existing folder. */
static size_t length_there(const char *folder)
{
    char part[PATH_MAX];

    snprintf(part, sizeof(part), "%s", folder);
    for (char *slash; access(part, F_OK) != 0; *slash = '\0')
        if (!(slash = strrchr(part, '/')))
            return 0;
    return strlen(part);
}

/* Remove the empty folders of this path beyond that prefix. */
static void remove_made(const char *folder, size_t there)
{
    char part[PATH_MAX];

    snprintf(part, sizeof(part), "%s", folder);
    while (strlen(part) > there && (rmdir(part) == 0 || errno == ENOENT)) {
        char *slash = strrchr(part, '/');
        if (!slash)
            return;
        *slash = '\0';
    }
}

/*
 * `ours`: the folder is the guard's own choice, and is reported as the folder above it. `without`:
 * how the guard works without it; NULL: it does not.
 */
static void try_folder(struct ng_doctor *doctor, const char *folder, bool ours, const char *purpose,
                       const char *variable, const char *without)
{
    struct statvfs space;
    char mend[128], above[PATH_MAX];
    size_t there = length_there(folder);

    snprintf(mend, sizeof(mend), "set %s to a folder that is yours alone and can be written to",
             variable);
    int error = ng_paths_make(folder) ?: try_file(folder);
    bool told = statvfs(folder, &space) == 0;
    remove_made(folder, there);
    snprintf(above, sizeof(above), "%s", folder);
    if (ours)
        *strrchr(above, '/') = '\0';
    const char *name = ours ? above : folder;
    if (error != 0) {
        ng_findings_add(&doctor->findings, without ? NG_FINDING_WARNING : NG_FINDING_OUT, name,
                        mend, "%s cannot be kept here: %s%s%s", purpose,
                        error == -EPERM ? "it belongs to somebody else, or others may write to it"
                        : error == -ENOSPC ? "no space is left"
                                           : strerror(-error),
                        without ? "; " : "", without ? without : "");
        return;
    }
    uint64_t bytes = told ? (uint64_t)space.f_bavail * space.f_frsize : UINT64_MAX;
    if (bytes < LITTLE_BYTES)
        ng_doctor_warn(doctor, name,
                       "make it larger (docker: --shm-size), or set NCCLGUARD_TRACE_SIZE lower",
                       "%s: only %llu MiB are free", purpose, (unsigned long long)(bytes >> 20));
    else
        ng_doctor_ok(doctor, name, "%s can be kept here", purpose);
}

static void try_folders(struct ng_doctor *doctor, const struct ng_config *config)
{
    char folder[PATH_MAX], job[64];
    const char *dir = config->dir;

    if (!dir && strncmp(config->store, "local:", 6) == 0 && config->store[6])
        dir = config->store + 6;
    snprintf(job, sizeof(job), "doctor-%d", (int)getpid());
    ng_paths_default_dir(job, folder, sizeof(folder));
    if (strcmp(config->store, "none") == 0)
        ng_doctor_ok(doctor, "variables",
                     "NCCLGUARD_STORE=none: each process is guarded alone, its black box in its "
                     "own memory");
    else
        try_folder(doctor, dir ? dir : folder, !dir, "black boxes", "NCCLGUARD_DIR",
                   "each process is guarded alone");
    ng_paths_default_dump_dir(job, folder, sizeof(folder));
    try_folder(doctor, config->dump_dir ? config->dump_dir : folder, !config->dump_dir, "evidence",
               "NCCLGUARD_DUMP_DIR", NULL);
}

/* Whether the store that ranks share across hosts answers. */
static void look_at_store(struct ng_doctor *doctor, const struct ng_config *config)
{
    char store[256], job[64], why[NG_BOARD_CLIENT_WHY_BYTES] = "";
    struct ng_mistake mistake;
    struct ng_view view;

    /* A mistake was reported with the variables. */
    if (strcmp(config->store, "none") == 0 || strncmp(config->store, "local:", 6) == 0 ||
        ng_library_bad_store(config->store, &mistake))
        return;
    ng_url_redact(config->store, store, sizeof(store));
    snprintf(job, sizeof(job), "doctor-%d", (int)getpid());
    struct ng_observed_job observed = {.url = config->store,
                                       .job = job,
                                       .tls = ng_tls_for(config->store),
                                       .key_file = config->store_key};
    ng_view_init(&view);
    int count = ng_board_client_view(&observed, ng_clock_mono_ns() + NG_JOBS_WAIT_NS, &view, why,
                                     sizeof(why));
    ng_view_fini(&view);
    if (count >= 0)
        ng_doctor_ok(doctor, store,
                     "the store answers: ranks of all hosts that reach it share what they know");
    else
        ng_doctor_warn(doctor, store, ng_jobs_mend(count),
                       "%s; without it each host is guarded alone",
                       why[0] ? why : strerror(-count));
}

/* "580.65.06", of the kernel's module; "" none. */
static void read_kernel_version(char *ret_version, size_t bytes)
{
    char line[512] = "";
    static const char mark[] = "Kernel Module";
    FILE *file = fopen("/proc/driver/nvidia/version", "re");

    ret_version[0] = '\0';
    if (!file)
        return;
    char *at = fgets(line, sizeof(line), file) ? strstr(line, mark) : NULL;
    fclose(file);
    if (!at)
        return;
    /* "Kernel Module  580.65.06", "Kernel Module for x86_64  580.65.06". */
    for (at = strpbrk(at, "0123456789"); at; at = strpbrk(at, "0123456789")) {
        size_t length = strspn(at, "0123456789.");
        if (at[-1] == ' ' && memchr(at, '.', length)) {
            snprintf(ret_version, bytes, "%.*s", (int)length, at);
            return;
        }
        at += length;
    }
}

static void look_for_driver(struct ng_doctor *doctor)
{
    char path[PATH_MAX], real[PATH_MAX], kernel[64];
    static const char name[] = "libcuda.so.1";

    if (ng_loader_find(&doctor->loader, name, path) != 0) {
        ng_doctor_warn(doctor, name,
                       "install NVIDIA's driver; in a container, start it with the GPUs (docker: "
                       "--gpus all)",
                       "the CUDA driver is not found: NCCL programs cannot run here");
        return;
    }
    read_kernel_version(kernel, sizeof(kernel));
    /* The file's own name ends in the driver's version. */
    const char *version =
        realpath(path, real) && strncmp(ng_last_part(real), "libcuda.so.", 11) == 0
            ? ng_last_part(real) + 11
            : "1";
    if (!strchr(version, '.'))
        version = "unknown";
    ng_doctor_ok(doctor, path, "the CUDA driver, version %s; kernel module %s", version,
                 *kernel ? kernel : "not loaded");
}

void ng_doctor_machine(struct ng_doctor *doctor)
{
    struct ng_config config;

    look_for_library(doctor);
    look_at_variables(doctor, &config);
    try_folders(doctor, &config);
    look_at_store(doctor, &config);
    look_for_driver(doctor);
}

static void take_cached(void *context, const char *path)
{
    ng_doctor_file(context, path, NULL);
}

void ng_doctor_nccl_of_machine(struct ng_doctor *doctor)
{
    static const char *const homes[] = {"NCCL_HOME", "NCCL_ROOT", "NCCL_LIB_DIR",
                                        "CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX"};
    static const char *const below[] = {"libnccl.so*", "lib/libnccl.so*", "lib64/libnccl.so*",
                                        "targets/*/lib/libnccl.so*"};
    static const char *const usual[] = {
        "usr/local/cuda*/lib/libnccl.so*",
        "usr/local/cuda*/lib64/libnccl.so*",
        "usr/local/nccl*/lib/libnccl.so*",
        "usr/local/lib/libnccl.so*",
        "usr/lib/*-linux-gnu/libnccl.so*",
        "usr/lib64/libnccl.so*",
        "usr/lib/libnccl.so*",
    };
    char path[PATH_MAX];

    for (const char *at = doctor->loader.library_path; at;) {
        char folder[PATH_MAX];
        size_t length = strcspn(at, ":;");
        snprintf(folder, sizeof(folder), "%.*s", length ? (int)length : 1, length ? at : ".");
        ng_doctor_files(doctor, folder, below[0], "LD_LIBRARY_PATH");
        at = at[length] ? at + length + 1 : NULL;
    }
    ng_loader_each_cached(&doctor->loader, "libnccl.so.2", take_cached, doctor);
    ng_loader_each_cached(&doctor->loader, "libnccl.so", take_cached, doctor);
    for (size_t i = 0; i < NG_COUNT(homes); i++)
        for (size_t j = 0; variable_of(homes[i]) && j < NG_COUNT(below); j++)
            ng_doctor_files(doctor, variable_of(homes[i]), below[j], homes[i]);
    for (size_t i = 0; i < NG_COUNT(usual); i++)
        ng_doctor_files(doctor, "", usual[i], NULL);
    if (ng_search_path("python3", path) == 0)
        ng_doctor_python(doctor, (char *const[]){"python3", NULL}, false);
    if (doctor->nccl_count == 0)
        ng_doctor_warn(doctor, "libnccl.so.2", NULL,
                       "no NCCL is in the usual places; `ncclguard doctor -- PROG` looks where "
                       "PROG would");
}
