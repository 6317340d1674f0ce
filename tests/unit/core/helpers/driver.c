/* What the driver knows, without a driver. */
#include "tests/unit/core/helpers/driver.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/comm/comm.h"
#include "core/device/driver_errors.h"
#include "core/nccl/nvml.h"
#include "core/runtime/io_workers.h"
#include "core/runtime/runtime.h"
#include "core/util/clock.h"

#define COMMS_MAX 4

struct driver driver;
static struct ng_comm *comms;
static ng_io_work_fn *waiting[8];
static unsigned waiting_count;
static char handles[DRIVER_DEVICES], set;

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_time);
uint32_t __wrap_ng_comm_count(void);
struct ng_comm *__wrap_ng_comm_at(uint32_t index);
int __wrap_ng_io_workers_add(const char *place, ng_io_work_fn *run, void *context);
bool __wrap_ng_io_workers_await(_Atomic uint32_t *under_way, uint32_t bits, int64_t until_mono_ns);
ssize_t __real_pread64(int file, void *ret_bytes, size_t bytes, off_t offset);
ssize_t __wrap_pread64(int file, void *ret_bytes, size_t bytes, off_t offset);

/* ---- NVML ---- */

static int init(void)
{
    return driver.refuses ? 1 : NG_NVML_SUCCESS;
}

static int device_by_pci(const char *pci, ng_nvml_device *ret_device)
{
    for (int i = 0; i < DRIVER_DEVICES; i++)
        if (strtoul(pci + strlen("0000:"), NULL, 16) == 0x10u + (unsigned)i) {
            *ret_device = (ng_nvml_device)&handles[i];
            return NG_NVML_SUCCESS;
        }
    return 6;
}

static bool is_second(ng_nvml_device device)
{
    return device == (ng_nvml_device)&handles[1];
}

static int total_ecc(ng_nvml_device device, int type, int counter, unsigned long long *ret_count)
{
    driver.asked++;
    driver.now_ms += driver.ecc_ms;
    if (driver.ends)
        ng_driver_errors_finish();
    if (driver.unsupported)
        return 3;
    if (driver.lost && is_second(device))
        return NG_NVML_GPU_IS_LOST;
    *ret_count = 100 + (is_second(device) ? driver.ecc : 0);
    return NG_NVML_SUCCESS;
}

static int field_values(ng_nvml_device device, int count, struct ng_nvml_field *fields)
{
    for (int i = 0; i < count; i++) {
        bool known = driver.by_link
                         ? fields[i].id == NG_NVML_FIELD_NVLINK_LINK_REPLAY && fields[i].scope < 2
                         : fields[i].id == NG_NVML_FIELD_NVLINK_REPLAY;
        fields[i].result = known && !driver.unsupported ? 0 : 3;
        fields[i].type = NG_NVML_UINT;
        fields[i].value.as_uint = 5 + (is_second(device) ? (unsigned)driver.replays : 0);
    }
    return NG_NVML_SUCCESS;
}

static int event_set_create(ng_nvml_event_set *ret_set)
{
    *ret_set = (ng_nvml_event_set)&set;
    return NG_NVML_SUCCESS;
}

static int register_events(ng_nvml_device device, unsigned long long types, ng_nvml_event_set to)
{
    driver.registered++;
    return types == NG_NVML_EVENT_XID ? NG_NVML_SUCCESS : 2;
}

static int event_set_wait(ng_nvml_event_set from, struct ng_nvml_event *ret_event, unsigned ms)
{
    unsigned xid = driver.flood ? 13 : driver.xid;

    if (!xid)
        return 10;
    driver.now_ms += driver.event_ms;
    *ret_event = (struct ng_nvml_event){
        .device = (ng_nvml_device)&handles[1], .type = NG_NVML_EVENT_XID, .data = xid};
    if (driver.flood)
        driver.flood--;
    else
        driver.xid = 0;
    return NG_NVML_SUCCESS;
}

static int processes(ng_nvml_device device, unsigned *count, struct ng_nvml_process *ret_processes)
{
    unsigned there = 0;

    if (driver.self)
        ret_processes[there++].pid = driver.self;
    if (driver.other && !is_second(device))
        ret_processes[there++].pid = driver.other;
    *count = there;
    return NG_NVML_SUCCESS;
}

static bool find(struct ng_nvml *ret_nvml)
{
    driver.opened++;
    *ret_nvml = (struct ng_nvml){.init = init,
                                 .device_by_pci = device_by_pci,
                                 .total_ecc = total_ecc,
                                 .event_set_create = event_set_create,
                                 .register_events = register_events,
                                 .event_set_wait = event_set_wait,
                                 .field_values = field_values,
                                 .processes = processes};
    if (driver.without_events)
        ret_nvml->event_set_create = NULL;
    return !driver.absent;
}

/* ---- What lies around it ---- */

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_time)
{
    *ret_time = (struct timespec){driver.now_ms / 1000, driver.now_ms % 1000 * NG_MS};
    return 0;
}

uint32_t __wrap_ng_comm_count(void)
{
    return driver.comms;
}

struct ng_comm *__wrap_ng_comm_at(uint32_t index)
{
    struct ng_box_group *group = comms[index].group;
    char pci_id[16] = "0000:10:00.0";
    uint64_t words[2] = {0};

    pci_id[6] = (char)('0' + index % DRIVER_DEVICES);
    if (index + driver.unknown < driver.comms)
        memcpy(words, pci_id, sizeof(words));
    NG_STORE(group->pci_id[0], words[0]);
    NG_STORE(group->pci_id[1], words[1]);
    atomic_store(&group->state, words[0] ? NG_GROUP_READY : NG_GROUP_CREATING);
    return &comms[index];
}

int __wrap_ng_io_workers_add(const char *place, ng_io_work_fn *run, void *context)
{
    driver.tasks++;
    if (driver.hangs)
        waiting[waiting_count++] = run;
    else
        run(context);
    return 0;
}

bool __wrap_ng_io_workers_await(_Atomic uint32_t *under_way, uint32_t bits, int64_t until_mono_ns)
{
    if (!(atomic_load(under_way) & bits))
        return true;
    if (until_mono_ns > driver.now_ms * NG_MS)
        driver.now_ms = until_mono_ns / NG_MS;
    return false;
}

/* Its writer goes on while a reader copies it. */
static struct ng_box written;
static unsigned reads_left;

static void write_xid(uint32_t number)
{
    struct ng_device_error error = {NG_DEVICE_ERROR_XID, number, 1, 0, "0000:11:00.0"};

    ng_device_errors_add(&written, &error, driver.now_ms * NG_MS);
}

ssize_t __wrap_pread64(int file, void *ret_bytes, size_t bytes, off_t offset)
{
    if (reads_left && --reads_left == 0)
        write_xid(79);
    return __real_pread64(file, ret_bytes, bytes, offset);
}

/* ---- The test's ---- */

void driver_begin(void)
{
    static const struct ng_box_identity identity = {.rank = 0, .world_size = 2};

    driver = (struct driver){.now_ms = 1000000, .comms = 2, .self = (unsigned)getpid()};
    waiting_count = 0;
    if (!ng_guard.box.header && ng_box_create(NULL, &identity, 16, &ng_guard.box) != 0)
        abort();
    memset(ng_guard.box.header->device_errors, 0, sizeof(ng_guard.box.header->device_errors));
    NG_STORE(ng_guard.box.header->devices_looked_mono_ns, 0);
    ng_guard.config.nvml = true;
    ng_guard.find_nvml = find;
    free(comms);
    comms = calloc(COMMS_MAX, sizeof(*comms));
    for (unsigned i = 0; i < COMMS_MAX; i++)
        comms[i].group = &ng_guard.box.groups[i];
    ng_driver_errors_forget();
}

void driver_prepare(void)
{
    ng_driver_errors_prepare();
}

void driver_look(void)
{
    ng_driver_errors_look();
}

void driver_begin_look(void)
{
    ng_driver_errors_begin();
}

void driver_returns(void)
{
    unsigned count = waiting_count;

    driver.hangs = false;
    waiting_count = 0;
    for (unsigned i = 0; i < count; i++)
        waiting[i](NULL);
}

void driver_fork(void)
{
    ng_driver_errors_after_fork();
}

uint32_t driver_found(struct ng_device_error ret_errors[NG_DEVICE_ERRORS_MAX], int64_t *ret_age_ms)
{
    int64_t looked_ns, now_ns = driver.now_ms * NG_MS;
    uint32_t count = ng_device_errors_read(&ng_guard.box, now_ns, ret_errors, &looked_ns);

    *ret_age_ms = looked_ns ? (now_ns - looked_ns) / NG_MS : -1;
    return count;
}

uint32_t driver_found_by_reader(unsigned nth,
                                struct ng_device_error ret_errors[NG_DEVICE_ERRORS_MAX])
{
    static const struct ng_box_identity identity = {.rank = 0, .world_size = 2};
    char folder[] = "/tmp/ncclguard-unit-XXXXXX", pattern[64];
    struct ng_box reader;
    int64_t looked_ns;
    glob_t files;

    if (!mkdtemp(folder) || ng_box_create(folder, &identity, 16, &written) != 0)
        abort();
    snprintf(pattern, sizeof(pattern), "%s/" NG_BOX_PREFIX "*", folder);
    if (glob(pattern, 0, NULL, &files) != 0 || ng_box_open(files.gl_pathv[0], &reader) != 0)
        abort();
    for (uint32_t xid = 201; xid <= 208; xid++)
        write_xid(xid);
    reads_left = nth;
    if (ng_box_read(&reader, NG_BOX_REST) != 0)
        abort();
    uint32_t count = ng_device_errors_read(&reader, driver.now_ms * NG_MS, ret_errors, &looked_ns);
    ng_box_close(&reader, NULL);
    ng_box_close(&written, files.gl_pathv[0]);
    globfree(&files);
    rmdir(folder);
    return count;
}
