/*
 * The composition root: the only file that sees every layer.
 *
 * Entered by the dynamic linker before main (constructor), at exit, around fork, and by core
 * through the callbacks that are set here. Must never start a thread or create a file before the
 * program creates its first communicator, and never keep a program from starting. The environment
 * is read in the constructor and copied: the program may clear it.
 */
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/check/check.h"
#include "core/check/signature_compare.h"
#include "core/device/poison.h"
#include "core/fault/inject.h"
#include "core/lifecycle/lifecycle.h"
#include "core/recorder/paths.h"
#include "core/registration/registration_check.h"
#include "core/registration/registrations.h"
#include "core/registration/segments.h"
#include "core/registration/vmm.h"
#include "core/runtime/runtime.h"
#include "core/runtime/wake.h"
#include "core/util/log.h"
#include "core/util/macros.h"
#include "core/util/memory.h"
#include "shim/cuda_hooks.h"
#include "shim/cuda_vmm.h"
#include "shim/parts.h"
#include "shim/shim.h"
#include "store/board/announce.h"
#include "store/board/board_multihost.h"
#include "store/board/local.h"
#include "store/kv/kv_open.h"
#include "store/kv/url.h"
#include "store/ras/ras_client.h"

/* Mistakes in the configuration are logged once the log is open. */
static struct {
    char severity;
    char line[400];
} mistakes[8] NG_LARGE;
static unsigned mistake_count;

static void keep_mistake(void *context, char severity, const char *line)
{
    if (mistake_count == NG_COUNT(mistakes))
        return;
    mistakes[mistake_count].severity = severity;
    strncpy(mistakes[mistake_count++].line, line, sizeof(mistakes[0].line) - 1);
}

/* Only programs that use NCCL get messages about mistakes: a shell or a launcher with the same
 * variables stays quiet. */
static void tell_mistakes(void)
{
    for (unsigned i = 0; i < mistake_count; i++)
        ng_log(mistakes[i].severity == 'E' ? NG_LOG_ERROR : NG_LOG_WARN, "%s%s", mistakes[i].line,
               mistakes[i].severity == 'E' ? "; the default is used" : "");
    mistake_count = 0;
}

/* The program's state at its start: later it may have changed its working folder, cleared its
 * environment, or overwritten it (setproctitle). */
static char start_folder[PATH_MAX] NG_LARGE;
static char temporary_folder[PATH_MAX] NG_LARGE;

/* Our variables, copied; NULL without memory or environment. */
static char **copy_environment(void)
{
    size_t count = 0, bytes = 0;

    for (char **entry = environ; entry && *entry; entry++)
        if (strncmp(*entry, "NCCLGUARD", 9) == 0) {
            count++;
            bytes += strlen(*entry) + 1;
        }
    /* Not malloc: it may belong to a library that is not initialised yet. */
    size_t pointers = (count + 1) * sizeof(char *);
    char *memory =
        mmap(NULL, pointers + bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    char **copy = (char **)memory, *next = memory + pointers;
    for (char **entry = environ; entry && *entry; entry++)
        if (strncmp(*entry, "NCCLGUARD", 9) == 0) {
            *copy++ = next;
            next = stpcpy(next, *entry) + 1;
        }
    return (char **)memory;
}

static void remember_surroundings(void)
{
    const char *temporary = secure_getenv("TMPDIR"), *run_id = getenv("NCCLGUARD_RUN_ID");

    if (!getcwd(start_folder, sizeof(start_folder)))
        start_folder[0] = '\0';
    if (temporary)
        strncpy(temporary_folder, temporary, sizeof(temporary_folder) - 1);
    if (run_id)
        strncpy(ng_guard.run_id, run_id, sizeof(ng_guard.run_id) - 1);
    /* As NCCL reads them, which has RAS on by default. */
    const char *ras = getenv("NCCL_RAS_ADDR"), *enabled = getenv("NCCL_RAS_ENABLE");
    if (ng_guard.config.ras && !(enabled && strcmp(enabled, "0") == 0))
        strncpy(ng_guard.ras_address, ras && *ras ? ras : NG_RAS_ADDRESS,
                sizeof(ng_guard.ras_address) - 1);
}

/* A configured folder or file, relative to the folder in which the program began. */
static void set_path(char *ret_path, const char *folder)
{
    if (folder[0] == '/' || !start_folder[0])
        snprintf(ret_path, PATH_MAX, "%s", folder);
    else
        snprintf(ret_path, PATH_MAX, "%s/%s", start_folder, folder);
}

/* What the kernel reports to a parent. */
static void on_exit_of_program(int status, void *unused)
{
    ng_lifecycle_exit(status & 0xff);
}

static void on_quick_exit(void)
{
    ng_lifecycle_exit(NG_EXIT_STATUS_NOT_TOLD);
}

/* Load a file, permanently, and return the address of its `symbol`; NULL: not found. Takes the
 * dynamic linker's lock, so only if a feature needs it. */
static const void *load_symbol(const char *path, const char *symbol)
{
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);

    if (module)
        return dlsym(module, symbol);
    ng_log(NG_LOG_DEBUG, "%s", dlerror());
    return NULL;
}

/*
 * The TLS implementation (struct ng_tls_ops, store/kv/tls.h), from libncclguard_tls.so: only
 * programs that use rediss:// get OpenSSL into their process. NULL: it is not beside this library;
 * it is not loaded from anywhere else, since it runs with the program's rights.
 */
static const struct ng_tls_ops *load_tls(void)
{
    /* Installed, and in a build folder. */
    static const char *const places[] = {".", "../store"};
    const void *found = NULL;
    char here[PATH_MAX], path[PATH_MAX];
    Dl_info self;

    if (!dladdr((void *)load_tls, &self) || !self.dli_fname)
        return NULL;
    /* Preloaded by a relative path: relative to the folder in which the program began. */
    set_path(here, self.dli_fname);
    if (here[0] != '/')
        return NULL;
    *strrchr(here, '/') = '\0';
    for (size_t i = 0; !found && i < NG_COUNT(places); i++)
        if (snprintf(path, sizeof(path), "%s/%s/libncclguard_tls.so", here, places[i]) <
            (int)sizeof(path))
            found = load_symbol(path, "ng_tls_openssl");
    return found;
}

/* Turn the board of this host into one of all hosts. On failure it stays the board of this host. */
static void join_hosts(struct ng_guard *guard, const char *store, const struct ng_url *url)
{
    struct ng_kv_options options = {
        .job = guard->launch.job, .run = NG_BOARD_RUN, .tls = url->tls ? load_tls() : NULL};
    struct ng_publisher_options publishing = {.own_box = &guard->box,
                                              .ttl_ns = guard->config.store_ttl_ns,
                                              .adopt_thread = ng_shim_adopt_thread,
                                              .wake = ng_wake_incident,
                                              .start_thread = ng_guard_thread,
                                              .differ = ng_signature_compare_found,
                                              .agrees = ng_check_strict_across};
    char why[NG_URL_TEXT_BYTES], key_file[PATH_MAX];
    struct ng_kv *kv;

    if (guard->config.store_key && guard->config.store_key[0]) {
        set_path(key_file, guard->config.store_key);
        options.key_file = key_file;
    }
    int error = ng_kv_open(store, &options, why, sizeof(why), &kv);
    if (!error) {
        error = ng_board_multihost_open(guard->board, kv, &publishing, &guard->board);
        if (error) {
            ng_kv_destroy(kv);
            snprintf(why, sizeof(why), "%s", strerror(-error));
        }
    }
    if (error)
        ng_log(NG_LOG_ERROR,
               "NCCLGUARD_STORE: %s; the ranks of each host are guarded by themselves", why);
    else if (!guard->launch.job_is_shared)
        ng_log(NG_LOG_WARN,
               "no launcher names the job, so other hosts may call it otherwise than %s: set "
               "NCCLGUARD_JOB to one name on all hosts",
               guard->launch.job);
}

/* Called at the first communicator, on a program thread. */
static int open_board(struct ng_guard *guard)
{
    const char *store = guard->config.store;
    char why[NG_URL_TEXT_BYTES];
    struct ng_url url;

    /* Registered now, after the driver's own exit handler, and so run before it: then CUDA still
     * works. */
    on_exit(on_exit_of_program, NULL);
    at_quick_exit(on_quick_exit);
    tell_mistakes();
    if (guard->config.stacks)
        ng_python_prepare();
    guard->reads_python = guard->config.stacks == NG_STACKS_CALL && guard->config.trace_size &&
                          ng_interpreter_prepare();
    if (guard->config.dump_dir)
        set_path(guard->dump_dir, guard->config.dump_dir);
    else
        ng_paths_dump_dir_in(temporary_folder, guard->launch.job, guard->dump_dir,
                             sizeof(guard->dump_dir));
    if (guard->config.dump_pipe && guard->config.dump_pipe[0])
        set_path(guard->dump_pipe, guard->config.dump_pipe);
    if (guard->config.metrics)
        set_path(guard->metrics_file, guard->config.metrics);
    if (guard->config.rules)
        set_path(guard->rules_path, guard->config.rules);
    if (ng_url_parse(store, &url, why, sizeof(why)) != 0) {
        ng_log(NG_LOG_ERROR, "NCCLGUARD_STORE: %s; local: is used", why);
        store = "local:";
        ng_url_parse(store, &url, why, sizeof(why));
    }
    ng_url_redact(store, guard->store_text, sizeof(guard->store_text));
    if (url.kind == NG_URL_NONE)
        return 0;
    if (guard->config.dir)
        set_path(guard->dir, guard->config.dir);
    else if (url.kind == NG_URL_LOCAL && url.path[0])
        set_path(guard->dir, url.path);
    else
        ng_paths_default_dir(guard->launch.job, guard->dir, sizeof(guard->dir));
    int error = ng_paths_make(guard->dir) ?: ng_local_open(guard->dir, &guard->box, &guard->board);
    if (!error && url.kind != NG_URL_LOCAL)
        join_hosts(guard, store, &url);
    return error;
}

/* Forked children are inert: they do not report what their parent loaded. */
static bool forked;

static void after_fork(void)
{
    forked = true;
    ng_shim_after_fork();
    ng_python_after_fork();
    ng_guard_after_fork();
    if (ng_guard.follows_memory)
        ng_segments_after_fork();
    if (ng_registration_check_on())
        ng_registration_check_after_fork();
    if (ng_vmm_is_on())
        ng_vmm_after_fork();
}

__attribute__((constructor)) static void start(void)
{
    int code;

    /* We must not write files for a setuid program. */
    if (getauxval(AT_SECURE)) {
        ng_shim_set_inert();
        return;
    }
    ng_config_parse(&ng_guard.config, copy_environment(), keep_mistake, NULL);
    if (!ng_guard.config.enabled) {
        ng_shim_set_inert();
        return;
    }
    remember_surroundings();
    ng_launch_detect(ng_guard.config.job, (int)ng_guard.config.rank,
                     (int)ng_guard.config.world_size, &ng_guard.launch);
    ng_log_init((enum ng_log_level)ng_guard.config.log_level, ng_guard.config.log_file,
                ng_guard.launch.rank);
    ng_guard.find_cuda = ng_driver_find;
    ng_guard.find_nvml = ng_nvml_find;
    ng_guard.open_board = open_board;
    ng_guard.adopt_thread = ng_shim_adopt_thread;
    ng_guard.read_python = ng_python_read;
    ng_guard.ask_ras = ng_ras_ask;
    ng_guard.tell_start = ng_coverage_log_guarded;
    ng_guard.start_parts = ng_lifecycle_start;
    ng_guard.forget_parts = ng_lifecycle_after_fork;
    ng_guard.box = NG_BOX_NONE;
    pthread_atfork(NULL, NULL, after_fork);
    if (ng_config_parse_exit(ng_guard.config.exit_how, &code) != 0) {
        ng_log(NG_LOG_ERROR,
               "NCCLGUARD_EXIT=%s is not valid: use abort or exit:CODE with a code from 0 to 255",
               ng_guard.config.exit_how);
        ng_guard.config.exit_how = "abort";
    }
    if (ng_guard.config.graphs)
        ng_cuda_graphs_enable();
    if (ng_guard.config.counters)
        ng_cuda_launches_enable();
    if (ng_poison_is_on())
        ng_cuda_poison_enable();
    ng_guard.checks_registrations = ng_check_arguments();
    ng_guard.follows_memory =
        ng_registrations_are_on() || ng_registration_check_on() || ng_vmm_is_on();
    if (ng_guard.follows_memory)
        ng_cuda_memory_enable();
    if (ng_vmm_is_on())
        ng_cuda_vmm_enable();
    ng_inject_configure(ng_guard.config.fault);
    ng_announce_start(ng_guard.run_id, &ng_guard.launch);
    ng_shim_set_active(true);
}

__attribute__((destructor)) static void end(void)
{
    if (!forked && !ng_shim_is_inert())
        ng_coverage_warn_bypassed(&ng_guard);
}
