/*
 * The order in which the parts of a guard start, end and are forgotten.
 *
 * Entered by the guard's start, by the exit path, and by forked children. Must never prevent a
 * program from starting or ending: a part that fails to start is logged and left out.
 */
#include "core/lifecycle/lifecycle.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/call/init_retry.h"
#include "core/check/check.h"
#include "core/check/lockstep_check.h"
#include "core/check/signature_compare.h"
#include "core/comm/comm.h"
#include "core/comm/completion.h"
#include "core/comm/deadline.h"
#include "core/comm/ended.h"
#include "core/comm/frame_symbolizer.h"
#include "core/comm/python_frames.h"
#include "core/comm/rules_file.h"
#include "core/comm/shared_resources.h"
#include "core/config/settings.h"
#include "core/device/connections.h"
#include "core/device/driver_errors.h"
#include "core/device/gpu.h"
#include "core/device/graph.h"
#include "core/device/launch_counters.h"
#include "core/device/poison.h"
#include "core/evidence/dump_pipe.h"
#include "core/fault/inject.h"
#include "core/incident/incident_thread.h"
#include "core/incident/monitor.h"
#include "core/incident/program_requests.h"
#include "core/incident/status_log.h"
#include "core/policy/abort.h"
#include "core/policy/policy.h"
#include "core/policy/teardown.h"
#include "core/recorder/paths.h"
#include "core/registration/registration_table.h"
#include "core/registration/registrations.h"
#include "core/runtime/io_workers.h"
#include "core/runtime/log_writer.h"
#include "core/runtime/runtime.h"
#include "core/runtime/unusual.h"
#include "core/runtime/wake.h"
#include "core/util/clock.h"
#include "core/util/fast_clock.h"
#include "core/util/log.h"
#include "core/util/memory.h"
#include "core/watchdog/watchdog.h"

#define FOLDER_TRIES 10

static void unlink_box(void)
{
    char path[PATH_MAX + 64];

    snprintf(path, sizeof(path), "%s/%s", ng_guard.dir, ng_guard.box.name);
    if (ng_guard.board && ng_guard.box.name[0])
        unlink(path);
}

/* Does a call need more than the short way has (core/call/work_call.h)? */
static bool is_unusual(void)
{
    return ng_inject_armed || ng_guard.checks_calls || ng_guard.registers || ng_guard.tends_works ||
           ng_guard.box.frames_capacity || !ng_guard.box.record_capacity;
}

/* What this process is set to, for whoever reads its log. */
static void log_settings(void)
{
    const char *at = ng_guard.box.settings_bytes ? ng_guard.box.settings : "";
    struct ng_setting setting;

    while (ng_log_enabled(NG_LOG_DEBUG) && ng_settings_next(&at, &setting))
        if (setting.name[0])
            ng_log(NG_LOG_DEBUG, "set: %s=%s%s%s%s", setting.name, setting.value,
                   setting.from[0] ? " (" : "", setting.from, setting.from[0] ? ")" : "");
}

bool ng_lifecycle_start(void)
{
    struct ng_box_identity identity = {
        .rank = ng_guard.launch.rank,
        .world_size = ng_guard.launch.world_size,
        .local_rank = ng_guard.launch.local_rank,
        .job = ng_guard.launch.job,
        .run_id = ng_guard.run_id,
        .launch_run = ng_guard.launch.run,
        .timeout_ns = ng_guard.config.timeout_ns,
        .suspect_ns = ng_guard.config.suspect_ns,
        .cold_suspect_ns = ng_guard.config.cold_suspect_ns,
        .init_timeout_ns = ng_guard.config.init_timeout_ns,
        .faults = ng_inject_count(),
        .with_registrations = ng_registrations_are_on(),
        .with_frames = ng_guard.config.stacks == NG_STACKS_CALL,
    };

    /* Open the board first: the box is created in its folder. */
    int error = ng_guard.open_board ? ng_guard.open_board(&ng_guard) : 0;
    if (error)
        ng_log(NG_LOG_WARN,
               "cannot share with other ranks in %s: %s; this process is guarded alone, so that no "
               "verdict can "
               "name another rank: set NCCLGUARD_DIR to a folder of your own, in shared memory",
               ng_guard.dir,
               error == -EPERM ? "it belongs to somebody else or others may write to it"
                               : strerror(-error));
    const struct ng_settings_source settings = {.config = &ng_guard.config,
                                                .launch = &ng_guard.launch,
                                                .store = ng_guard.store_text,
                                                .dir = ng_guard.dir,
                                                .dump_dir = ng_guard.dump_dir,
                                                .environment = environ};
    identity.settings = &settings;
    identity.with_python = ng_guard.reads_python;
    identity.evidence_folder = ng_guard.dump_dir;
    const char *folder = ng_guard.board ? ng_guard.dir : NULL;
    error = ng_box_create(folder, &identity, (uint32_t)ng_guard.config.trace_size, &ng_guard.box);
    /* The last rank of an earlier run, or another run, has just removed the folder. */
    for (unsigned again = 0;
         error == -ENOENT && folder && again < FOLDER_TRIES && ng_paths_make(folder) == 0;
         again++) {
        ng_box_close(&ng_guard.box, NULL);
        error =
            ng_box_create(folder, &identity, (uint32_t)ng_guard.config.trace_size, &ng_guard.box);
    }
    if (error == -ENOMEM && !ng_guard.box.header)
        return false;
    if (error) {
        ng_log(NG_LOG_WARN,
               "cannot make the black box in %s: %s; other ranks will not see this one "
               "(NCCLGUARD_DIR names another "
               "folder)",
               ng_guard.dir, strerror(-error));
        /* The board shows the boxes in its folder, and ours is not there. */
        ng_guard.board = NULL;
        rmdir(ng_guard.dir); /* fails, as intended, if the folder is not empty */
    }
    log_settings();
    atomic_store(&ng_guard.timing, ng_guard.config.timing);
    ng_guard.registers = ng_registrations_are_on();
    ng_guard.tends_works = ng_guard.config.blocking_wait || ng_poison_is_on();
    atomic_fetch_add(&ng_guard.generation, 1);
    ng_check_start();
    ng_rules_file_start();
    error = ng_policy_start() ?: ng_io_workers_start() ?: ng_log_writer_start();
    if (!error)
        ng_dump_pipe_start();
    error = error ?: ng_incident_start() ?: ng_watchdog_start();
    error = error ?: ng_monitor_start() ?: ng_frame_symbolizer_start();
    if (!error && ng_guard.registers)
        error = ng_registrations_start();
    if (error) {
        ng_log(NG_LOG_ERROR, "cannot start the guard's threads: %s; nothing is guarded",
               strerror(-error));
        /* A box that never shows a heartbeat would make this rank look frozen. */
        unlink_box();
        return false;
    }
    ng_inject_start(&ng_guard.box);
    ng_unusual_set(NG_UNUSUAL_CONFIGURED, is_unusual());
    /* Before `running`, so that an exit on another thread, which sets it again, comes later. */
    ng_unusual_set(NG_UNUSUAL_STOPPED, false);
    atomic_store(&ng_guard.running, true);
    ng_completion_start();
    ng_status_log_start();
    if (ng_guard.tell_start)
        ng_guard.tell_start(&ng_guard);
    return true;
}

void ng_lifecycle_exit(int status)
{
    /* A child created without atfork handlers (vfork, clone) shares the box, and must not report on
     * behalf of the parent. */
    if (!atomic_load(&ng_guard.running) || getpid() != ng_guard.box.header->pid ||
        atomic_exchange(&ng_guard.ending, true))
        return;
    ng_teardown_await_end();
    ng_policy_await_aborts();
    /* Objects that the program's callback needs may already be in destruction. */
    ng_completion_quit();
    ng_watchdog_finish();
    ng_launch_counters_finish();
    ng_connections_finish();
    ng_driver_errors_finish();
    atomic_store(&ng_guard.box.header->exit_status, status);
    atomic_store(&ng_guard.box.header->life_mono_ns, ng_clock_mono_ns());
    atomic_store(&ng_guard.box.header->life, NG_BOX_EXITED);
    /* Calls that the program still makes, for example from static destructors, are not guarded any
     * more. */
    atomic_store(&ng_guard.running, false);
    ng_unusual_set(NG_UNUSUAL_STOPPED, true);
    if (ng_guard.registers)
        ng_registrations_tell_end();
    if (status == 0)
        ng_ended_tell_left();
    ng_status_log_finish();
    ng_incident_finish(500);
}

void ng_lifecycle_after_fork(void)
{
    ng_memory_forget();
    ng_fast_clock_after_fork();
    ng_abort_after_fork();
    ng_init_retry_after_fork();
    ng_deadline_after_fork();
    ng_rules_file_after_fork();
    ng_comm_after_fork();
    ng_io_workers_after_fork();
    ng_gpu_after_fork();
    ng_launch_counters_after_fork();
    ng_connections_after_fork();
    ng_driver_errors_after_fork();
    ng_graph_after_fork();
    ng_watchdog_after_fork();
    ng_status_log_after_fork();
    ng_wake_after_fork();
    ng_program_request_after_fork();
    ng_signature_compare_after_fork();
    ng_lockstep_after_fork();
    ng_registration_table_after_fork();
    ng_shared_resources_after_fork();
    ng_inject_after_fork();
    ng_dump_pipe_after_fork();
    ng_frame_symbolizer_after_fork();
    ng_python_frames_after_fork();
}
