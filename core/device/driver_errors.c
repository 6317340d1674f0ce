/*
 * Looks at what the driver knows of the devices: NVML, into the black box.
 *
 * Entered by the incident thread, and by the worker thread that it hands the work to. Must never be
 * entered by the watchdog or the program's threads.
 */
#include "core/device/driver_errors.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "core/comm/comm.h"
#include "core/device/device_reading.h"
#include "core/nccl/nvml.h"
#include "core/recorder/device_errors.h"
#include "core/runtime/io_workers.h"
#include "core/runtime/runtime.h"
#include "core/util/log.h"
#include "core/util/macros.h"

#define PLACE         "NVML"
#define AGAIN_NS      NG_S /* alarms come in swarms: one look serves them all */
#define LATE_MAX      2u   /* looks that took too long: nobody waits for more */
#define DEVICES_MAX   16u
#define EVENTS_MAX    1024 /* of a look, in no more than EVENTS_NS; the driver keeps the others */
#define EVENTS_NS     (50 * NG_MS)
#define EVENT_MS      1u /* 0 may mean without end */
#define PROCESSES_MAX 64u

/* Tasks under way. */
#define PREPARES 1u
#define LOOKS    2u

/* What is counted: by kind of error. */
enum { ECC, CRC, REPLAY, RECOVERY, COUNTERS };
static const uint32_t kind_of_counter[COUNTERS] = {
    [ECC] = NG_DEVICE_ERROR_ECC,
    [CRC] = NG_DEVICE_ERROR_NVLINK_CRC,
    [REPLAY] = NG_DEVICE_ERROR_NVLINK_REPLAY,
    [RECOVERY] = NG_DEVICE_ERROR_NVLINK_RECOVERY,
};

struct watched {
    char pci_id[NG_DEVICE_PCI_BYTES];
    ng_nvml_device device; /* NULL: NVML does not know it, or may not tell */
    bool known[COUNTERS];
    uint64_t seen[COUNTERS]; /* at the last look */
};

static _Atomic uint32_t under_way;
static atomic_bool given_up, opened;

/* Worker thread alone: one task of a place runs at a time. */
static struct {
    struct ng_nvml nvml;
    ng_nvml_event_set events; /* NULL none */
    struct watched devices[DEVICES_MAX];
    uint32_t device_count;
    int64_t asked_ns; /* the last question */
    bool slow;        /* an answer of this task took too long */
} own;

/* Calls a function of NVML, and notices whether its answer came late. */
#define ASK(function, ...)                                                                         \
    (own.asked_ns = ng_clock_mono_ns(), answered(own.nvml.function(__VA_ARGS__)))

/* Incident thread. */
static int64_t looked_mono_ns;
static uint32_t prepared; /* communicators whose devices are registered */
static unsigned late;

static void give_up(const char *why)
{
    if (!atomic_exchange(&given_up, true))
        ng_log(NG_LOG_INFO, "the driver (NVML) is not asked about the devices: %s", why);
}

/* ---- On the worker thread ---- */

static int answered(int result)
{
    own.slow |= ng_clock_mono_ns() - own.asked_ns > NG_DRIVER_ANSWER_NS;
    return result;
}

/* May this task ask further questions? One that only registers is in no hurry. */
static bool goes_on(uint32_t task)
{
    return !atomic_load(&given_up) && !(task == LOOKS && own.slow);
}

static void add(const struct watched *watched, uint32_t kind, uint32_t number, uint64_t count)
{
    struct ng_device_error found = {.kind = kind, .number = number, .count = count};

    memcpy(found.pci_id, watched->pci_id, sizeof(found.pci_id));
    ng_device_errors_add(&ng_guard.box, &found, ng_clock_mono_ns());
}

static uint64_t value_of(const struct ng_nvml_field *field)
{
    switch (field->type) {
    case NG_NVML_UINT:
        return field->value.as_uint;
    case NG_NVML_ULONG:
        return field->value.as_ulong;
    default:
        return field->value.as_ullong;
    }
}

/* The NVLink counters: in one question, over all links and of each. */
static void read_nvlinks(const struct watched *watched, uint64_t ret_values[COUNTERS],
                         bool ret_known[COUNTERS])
{
    static const uint32_t ids[COUNTERS][2] = {
        [CRC] = {NG_NVML_FIELD_NVLINK_CRC, NG_NVML_FIELD_NVLINK_LINK_CRC},
        [REPLAY] = {NG_NVML_FIELD_NVLINK_REPLAY, NG_NVML_FIELD_NVLINK_LINK_REPLAY},
        [RECOVERY] = {NG_NVML_FIELD_NVLINK_RECOVERY, NG_NVML_FIELD_NVLINK_LINK_RECOVERY}};
    struct ng_nvml_field fields[COUNTERS][1 + NG_NVML_NVLINKS]; /* the first: all links */

    memset(fields, 0, sizeof(fields));
    for (int i = CRC; i < COUNTERS; i++)
        for (unsigned k = 0; k <= NG_NVML_NVLINKS; k++)
            fields[i][k] = (struct ng_nvml_field){
                .id = ids[i][k > 0], .scope = k > 0 ? k - 1 : 0, .result = -1};
    if (!own.nvml.field_values ||
        ASK(field_values, watched->device, (COUNTERS - CRC) * (1 + NG_NVML_NVLINKS), fields[CRC]) !=
            NG_NVML_SUCCESS)
        return;
    for (int i = CRC; i < COUNTERS; i++)
        for (unsigned k = 0; k <= NG_NVML_NVLINKS; k++) {
            const struct ng_nvml_field *field = &fields[i][k];
            if (field->result != NG_NVML_SUCCESS || field->type == NG_NVML_DOUBLE)
                continue;
            ret_known[i] = true;
            ret_values[i] += value_of(field);
            if (k == 0)
                break;
        }
}

/* Returns the result of the first question. */
static int read_counters(const struct watched *watched, uint32_t task,
                         uint64_t ret_values[COUNTERS], bool ret_known[COUNTERS])
{
    unsigned long long ecc = 0;
    int result =
        ASK(total_ecc, watched->device, NG_NVML_ECC_UNCORRECTED, NG_NVML_ECC_VOLATILE, &ecc);

    memset(ret_values, 0, COUNTERS * sizeof(*ret_values));
    memset(ret_known, 0, COUNTERS * sizeof(*ret_known));
    ret_known[ECC] = result == NG_NVML_SUCCESS;
    ret_values[ECC] = ret_known[ECC] ? ecc : 0;
    if (result != NG_NVML_GPU_IS_LOST && goes_on(task))
        read_nvlinks(watched, ret_values, ret_known);
    return result;
}

/* What is there now is where counting begins. False: not all was asked, so the next task begins
 * anew. */
static bool watch(struct watched *watched, uint32_t task)
{
    const struct ng_nvml *nvml = &own.nvml;

    if (ASK(device_by_pci, watched->pci_id, &watched->device) != NG_NVML_SUCCESS) {
        ng_log(NG_LOG_INFO, "NVML does not know device %s", watched->pci_id);
        watched->device = NULL;
        return true;
    }
    if (goes_on(task))
        read_counters(watched, task, watched->seen, watched->known);
    if (!goes_on(task))
        return false;
    if (nvml->event_set_create && nvml->register_events && nvml->event_set_wait &&
        (own.events || ASK(event_set_create, &own.events) == NG_NVML_SUCCESS) &&
        ASK(register_events, watched->device, NG_NVML_EVENT_XID, own.events) == NG_NVML_SUCCESS)
        return true;
    ng_log(NG_LOG_INFO, "NVML does not report Xid errors of device %s", watched->pci_id);
    return true;
}

/* The devices that are not watched yet. */
static void watch_new(uint32_t task)
{
    for (uint32_t i = 0, count = ng_comm_count(); i < count && goes_on(task); i++) {
        const struct ng_box_group *group = ng_comm_at(i)->group;
        uint64_t words[2] = {NG_LOAD(group->pci_id[0]), NG_LOAD(group->pci_id[1])};
        char pci_id[NG_DEVICE_PCI_BYTES];
        uint32_t k = 0;

        memcpy(pci_id, words, sizeof(pci_id));
        pci_id[sizeof(pci_id) - 1] = '\0';
        while (k < own.device_count && strcmp(own.devices[k].pci_id, pci_id) != 0)
            k++;
        if (!pci_id[0] || k == DEVICES_MAX || k < own.device_count)
            continue;
        own.devices[k] = (struct watched){0};
        memcpy(own.devices[k].pci_id, pci_id, sizeof(pci_id));
        if (watch(&own.devices[k], task))
            own.device_count++;
    }
}

static void take_events(void)
{
    int64_t until_ns = ng_clock_mono_ns() + EVENTS_NS;
    struct ng_nvml_event event;

    for (int i = 0; own.events && i < EVENTS_MAX && goes_on(LOOKS) && ng_clock_mono_ns() < until_ns;
         i++) {
        memset(&event, 0, sizeof(event));
        if (ASK(event_set_wait, own.events, &event, EVENT_MS) != NG_NVML_SUCCESS)
            return;
        for (uint32_t k = 0; k < own.device_count && event.type & NG_NVML_EVENT_XID; k++)
            if (own.devices[k].device == event.device)
                add(&own.devices[k], NG_DEVICE_ERROR_XID, (uint32_t)event.data, 1);
    }
}

/* Others than this process: if it is not among them itself, they are numbered in another
 * namespace, and nothing is known. */
static void find_processes(const struct watched *watched)
{
    struct ng_nvml_process processes[PROCESSES_MAX];
    unsigned count = PROCESSES_MAX, self = (unsigned)ng_guard.box.header->pid;

    memset(processes, 0, sizeof(processes));
    if (!own.nvml.processes ||
        ASK(processes, watched->device, &count, processes) != NG_NVML_SUCCESS ||
        count > PROCESSES_MAX)
        return;
    bool has_self = NG_ANY(process, processes, count, process->pid == self);
    for (unsigned i = 0; i < count && has_self; i++)
        if (processes[i].pid != self)
            add(watched, NG_DEVICE_ERROR_PROCESS, processes[i].pid, 1);
}

static void look_at(struct watched *watched)
{
    uint64_t values[COUNTERS];
    bool known[COUNTERS];

    if (read_counters(watched, LOOKS, values, known) == NG_NVML_GPU_IS_LOST) {
        add(watched, NG_DEVICE_ERROR_LOST, 0, 1);
        return;
    }
    for (int i = 0; i < COUNTERS; i++) {
        if (known[i] && watched->known[i] && values[i] > watched->seen[i])
            add(watched, kind_of_counter[i], 0, values[i] - watched->seen[i]);
        if (known[i]) {
            watched->seen[i] = values[i];
            watched->known[i] = true;
        }
    }
    if (goes_on(LOOKS))
        find_processes(watched);
}

static bool open_nvml(void)
{
    if (atomic_load(&opened))
        return true;
    if (!ng_guard.find_nvml || !ng_guard.find_nvml(&own.nvml)) {
        give_up("there is no libnvidia-ml.so.1 with the functions that it needs");
        return false;
    }
    atomic_store(&opened, true);
    if (ASK(init) == NG_NVML_SUCCESS)
        return true;
    give_up("nvmlInit failed");
    return false;
}

static void run(uint32_t task)
{
    int64_t begun_ns = ng_clock_mono_ns();

    own.slow = false;
    if (!atomic_load(&given_up) && ng_device_reading_has_room() && open_nvml()) {
        watch_new(task);
        if (task == LOOKS) {
            take_events();
            for (uint32_t i = 0; i < own.device_count && goes_on(LOOKS); i++)
                if (own.devices[i].device)
                    look_at(&own.devices[i]);
        }
        if (task == LOOKS || !NG_LOAD(ng_guard.box.header->devices_looked_mono_ns))
            ng_device_errors_looked(&ng_guard.box, task == LOOKS ? begun_ns : NG_DEVICE_WATCHED_NS);
        ng_log(NG_LOG_DEBUG, "the driver (NVML) was %s devices: %u; %" PRId64 " us%s",
               task == LOOKS ? "asked about" : "told to watch", own.device_count,
               (ng_clock_mono_ns() - begun_ns) / NG_US,
               goes_on(task) ? "" : "; the rest was not asked");
    }
    ng_io_workers_end(&under_way, task);
}

static void prepare(void *unused)
{
    (void)unused;
    run(PREPARES);
}

static void look(void *unused)
{
    (void)unused;
    run(LOOKS);
}

/* ---- On the incident thread ---- */

static bool begin(uint32_t task)
{
    if (!ng_guard.config.nvml || atomic_load(&given_up) || atomic_fetch_or(&under_way, task) & task)
        return false;
    if (ng_io_workers_add(PLACE, task == LOOKS ? look : prepare, NULL) == 0)
        return true;
    ng_io_workers_end(&under_way, task);
    return false;
}

void ng_driver_errors_prepare(void)
{
    uint32_t count = ng_comm_count();

    if (count == prepared || !ng_guard.config.nvml)
        return;
    for (uint32_t i = prepared; i < count; i++) {
        const struct ng_box_group *group = ng_comm_at(i)->group;
        if (NG_LOAD(group->state) == NG_GROUP_CREATING && !NG_LOAD(group->pci_id[0]))
            return; /* until its device is known */
    }
    if (begin(PREPARES))
        prepared = count;
}

void ng_driver_errors_begin(void)
{
    int64_t now = ng_clock_mono_ns();

    if ((!looked_mono_ns || now - looked_mono_ns >= AGAIN_NS) && begin(LOOKS))
        looked_mono_ns = now;
}

void ng_driver_errors_look(void)
{
    ng_driver_errors_begin();
    if (!(atomic_load(&under_way) & LOOKS) || late == LATE_MAX)
        return;
    int64_t until_ns = looked_mono_ns + NG_DRIVER_ERRORS_NS;
    if (ng_clock_mono_ns() - looked_mono_ns >= AGAIN_NS)
        until_ns = ng_clock_mono_ns() + NG_DRIVER_ERRORS_NS;
    if (!ng_io_workers_await(&under_way, LOOKS, until_ns) && ++late == LATE_MAX)
        ng_log(NG_LOG_INFO, "the driver (NVML) does not answer in time: nobody waits for it");
}

void ng_driver_errors_finish(void)
{
    atomic_store(&given_up, true);
    ng_io_workers_await(&under_way, PREPARES | LOOKS, ng_clock_mono_ns() + NG_DRIVER_ERRORS_NS);
}

void ng_driver_errors_forget(void)
{
    atomic_store(&given_up, false);
    atomic_store(&opened, false);
    atomic_store(&under_way, 0);
    looked_mono_ns = 0;
    prepared = 0;
    late = 0;
    memset(&own, 0, sizeof(own));
}

void ng_driver_errors_after_fork(void)
{
    bool used = atomic_load(&opened) || atomic_load(&under_way);

    ng_driver_errors_forget();
    atomic_store(&opened, used);
    atomic_store(&given_up, used);
}
