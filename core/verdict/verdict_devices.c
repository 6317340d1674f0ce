/*
 * What the driver knows of the devices of a verdict's group.
 *
 * Pure. An error after which no work of the device continues explains a stall on it that nothing
 * else explains; every other one is only told.
 */
#include <errno.h>
#include <string.h>

#include "core/util/macros.h"
#include "core/util/text.h"
#include "core/verdict/culprits.h"
#include "core/verdict/verdict_parts.h"

/* Is it an error of the device that this rank uses? A process may drive several. */
static bool is_of(const struct ng_view_member *member, const struct ng_device_error *error)
{
    return error->pci_id[0] && strcmp(member->pci_id, error->pci_id) == 0;
}

int ng_culprits_driver(struct ng_verdict_builder *builder, const struct ng_wait *wait)
{
    struct ng_verdict *verdict = builder->verdict;
    int32_t index = (int32_t)(wait - builder->waits.waits);
    bool named = verdict->culprit_count;
    uint32_t count;
    const struct ng_view_member *members = ng_view_members(builder->view, wait->group, &count);

    for (uint32_t i = 0; i < count && !named; i++) {
        const struct ng_view_process *process = ng_verdict_builder_process_of(builder, &members[i]);
        const struct ng_device_error *worst = NULL;
        NG_EACH (error, process->device_errors, process->device_error_count)
            if (is_of(&members[i], error) && ng_device_error_is_grave(error))
                worst = error;
        if (!worst || builder->waits.wait_of_member[&members[i] - builder->view->members] != index)
            continue;
        struct ng_culprit *culprit = ng_verdict_builder_blame(builder, &members[i]);
        struct ng_text why = {culprit->why, 0, sizeof(culprit->why)};
        ng_text_add(&why, "made the call, and the driver knows of an error of its device %s: ",
                    worst->pci_id);
        ng_device_error_tell(&why, worst);
        verdict->confidence = NG_CONFIDENCE_LIKELY;
    }
    return builder->error;
}

/* Ranks of a job that share a device know of each other. */
static bool is_of_job(const struct ng_view *view, const char *host, uint32_t pid)
{
    return NG_ANY(process, view->processes, view->process_count,
                  (uint32_t)process->pid == pid && strcmp(process->host, host) == 0);
}

/* Another process on a device may explain that work there stands still, and nothing else. */
static bool is_told(const struct ng_view *view, const struct ng_view_process *process,
                    const struct ng_device_error *error, enum ng_verdict_kind kind)
{
    bool stalls =
        kind == NG_KIND_GPU_STALL || kind == NG_KIND_CUDA_ERROR || kind == NG_KIND_UNKNOWN;

    return error->kind != NG_DEVICE_ERROR_PROCESS ||
           (stalls && !is_of_job(view, process->host, error->number));
}

/* Those that stop the device, or the others. */
static int add_errors(const struct ng_view *view, const struct ng_view_member *member,
                      struct ng_verdict *verdict, bool grave)
{
    const struct ng_view_process *process = &view->processes[member->process];

    for (uint32_t i = 0; i < process->device_error_count; i++) {
        const struct ng_device_error *error = &process->device_errors[i];
        if (!is_of(member, error) || ng_device_error_is_grave(error) != grave ||
            !is_told(view, process, error, verdict->kind) || verdict->device_errors_cut)
            continue;
        verdict->device_errors_cut = verdict->device_error_count == NG_VERDICT_DEVICE_ERRORS_MAX;
        if (verdict->device_errors_cut)
            continue;
        if (!verdict->device_errors)
            verdict->device_errors = ng_arena_alloc(
                &verdict->arena, NG_VERDICT_DEVICE_ERRORS_MAX * sizeof(*verdict->device_errors));
        if (!verdict->device_errors)
            return -ENOMEM;
        verdict->device_errors[verdict->device_error_count++] = (struct ng_verdict_device_error){
            .rank = ng_view_rank(view, member), .device = member->device, .error = *error};
    }
    return 0;
}

int ng_verdict_builder_devices(struct ng_verdict_builder *builder)
{
    const struct ng_view *view = builder->view;
    struct ng_verdict *verdict = builder->verdict;
    uint32_t group = ng_view_find_group(view, verdict->group_id), count = 0;
    const struct ng_view_member *members =
        group == UINT32_MAX ? NULL : ng_view_members(view, group, &count);
    int error = 0;

    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < count && !error; i++)
            error = add_errors(view, &members[i], verdict, pass == 0);
    return error;
}
