/*
 * The table of device errors in the black box: written, and read back.
 *
 * Entered by the thread that asks NVML, and by readers of any process. Must never wait.
 */
#include "core/recorder/device_errors.h"

#include <string.h>

#include "core/recorder/box.h"
#include "core/util/text.h"

_Static_assert(NG_DEVICE_ERRORS_MAX == NG_BOX_DEVICE_ERRORS, "as in the black box");

static uint64_t guard_of(uint32_t kind, uint32_t number)
{
    return (uint64_t)kind << 32 | number;
}

static bool is_grave(uint64_t guard)
{
    struct ng_device_error error = {.kind = (uint32_t)(guard >> 32), .number = (uint32_t)guard};

    return ng_device_error_is_grave(&error);
}

static bool is_process(uint64_t guard)
{
    return guard >> 32 == NG_DEVICE_ERROR_PROCESS;
}

void ng_device_errors_add(struct ng_box *box, const struct ng_device_error *found,
                          int64_t now_mono_ns)
{
    struct ng_box_device_error *slots = box->header->device_errors;
    struct ng_box_device_error *room = NULL, *lesser = NULL;
    uint64_t guard = guard_of(found->kind, found->number), pci_id[2] = {0};
    int64_t looked_ns = NG_LOAD(box->header->devices_looked_mono_ns);
    uint32_t processes = 0;

    memcpy(pci_id, found->pci_id, sizeof(pci_id));
    for (uint32_t i = 0; i < NG_BOX_DEVICE_ERRORS; i++) {
        uint64_t there = NG_LOAD(slots[i].guard);
        bool gone = is_process(there) && NG_LOAD(slots[i].seen_mono_ns) < looked_ns;
        if (there == guard && NG_LOAD(slots[i].pci_id[0]) == pci_id[0] &&
            NG_LOAD(slots[i].pci_id[1]) == pci_id[1]) {
            if (!is_process(guard) && found->kind != NG_DEVICE_ERROR_LOST)
                NG_STORE(slots[i].count, NG_LOAD(slots[i].count) + found->count);
            NG_STORE(slots[i].seen_mono_ns, now_mono_ns);
            return;
        }
        processes += is_process(there) && !gone;
        if (!room && (!there || gone))
            room = &slots[i];
        if (!is_grave(there))
            lesser = &slots[i];
    }
    if (!room && is_grave(guard))
        room = lesser;
    if (!room || (is_process(guard) && processes >= NG_DEVICE_PROCESSES_MAX))
        return;
    NG_STORE(room->guard, 0);
    atomic_thread_fence(memory_order_release);
    NG_STORE(room->pci_id[0], pci_id[0]);
    NG_STORE(room->pci_id[1], pci_id[1]);
    NG_STORE(room->count, found->count);
    NG_STORE(room->seen_mono_ns, now_mono_ns);
    atomic_store_explicit(&room->guard, guard, memory_order_release);
}

void ng_device_errors_looked(struct ng_box *box, int64_t now_mono_ns)
{
    atomic_store_explicit(&box->header->devices_looked_mono_ns, now_mono_ns, memory_order_release);
}

uint32_t ng_device_errors_read(const struct ng_box *box, int64_t now_mono_ns,
                               struct ng_device_error ret_errors[NG_DEVICE_ERRORS_MAX],
                               int64_t *ret_looked_mono_ns)
{
    const struct ng_box_device_error *slots = box->header->device_errors;
    int64_t looked_ns =
        atomic_load_explicit(&box->header->devices_looked_mono_ns, memory_order_acquire);
    uint32_t count = 0;

    for (uint32_t i = 0; i < NG_BOX_DEVICE_ERRORS; i++) {
        uint64_t guard = atomic_load_explicit(&slots[i].guard, memory_order_acquire);
        uint64_t pci_id[2] = {NG_LOAD(slots[i].pci_id[0]), NG_LOAD(slots[i].pci_id[1])};
        int64_t seen_ns = NG_LOAD(slots[i].seen_mono_ns);
        struct ng_device_error *error = &ret_errors[count];
        *error = (struct ng_device_error){.kind = (uint32_t)(guard >> 32),
                                          .number = (uint32_t)guard,
                                          .count = NG_LOAD(slots[i].count)};
        atomic_thread_fence(memory_order_acquire);
        if (NG_LOAD(slots[i].guard) != guard || !ng_device_error_name(error->kind) ||
            !error->count || (is_process(guard) && seen_ns < looked_ns))
            continue;
        memcpy(error->pci_id, pci_id, sizeof(error->pci_id));
        error->pci_id[sizeof(error->pci_id) - 1] = '\0';
        ng_text_clean(error->pci_id, strlen(error->pci_id), false);
        error->age_ns = seen_ns > 0 && seen_ns < now_mono_ns ? now_mono_ns - seen_ns : 0;
        count++;
    }
    *ret_looked_mono_ns = looked_ns > 0 ? looked_ns : 0;
    return count;
}
