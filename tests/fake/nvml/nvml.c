/*
 * The stand-in for libnvidia-ml.so.1: devices without errors, and those that the environment asks
 * for. It does what NVIDIA's reference of NVML says; what a driver in trouble does is not known
 * better than that.
 *
 * FAKE_NVML: faults, separated by blanks, each NAME=VALUE, or NAME=BUS:VALUE for the device of this
 * PCI bus alone (hexadecimal, as in its id: 10 is the first device):
 *   xid=N        this Xid happens after the device was registered for events
 *   xid-later=N  this one, more than 2 s after that
 *   ecc=N        so many uncorrected errors, after the first question
 *   crc=N, replay=N, recovery=N    of NVLinks, likewise
 *   process=PID  another process computes there
 *   lost=1       the device is lost, after the first question
 *   hang=NAME    a function of this name does not return
 *   fails=NAME   one of this name is not supported
 *   outside=1    processes are numbered in another namespace
 *   host=NAME    all this happens on the host of this name alone
 *
 * Entered by any thread.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/nccl/nvml.h"

#define EXPORT        __attribute__((visibility("default")))
#define UNINITIALIZED 1
#define INVALID       2
#define NOT_SUPPORTED 3
#define NOT_FOUND     6
#define SMALL         7 /* NVML_ERROR_INSUFFICIENT_SIZE */
#define TIMEOUT       10
#define DEVICES       32
#define FIRST_BUS     0x10
#define LATER_S       2

struct ng_nvml_device {
    unsigned bus;
    bool asked[4]; /* ECC, CRC, replay, recovery */
    bool registered, told;
    struct timespec registered_at;
};
struct ng_nvml_event_set {
    int unused;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects all below; nests in nothing */
static struct ng_nvml_device devices[DEVICES];
static struct ng_nvml_event_set the_set;
static int initialised;

/* The value of a fault for a device (0: any); NULL: there is none. */
static const char *find_fault(const char *name, unsigned bus, char *ret_value, size_t bytes)
{
    const char *at = getenv("FAKE_NVML");
    size_t length = strlen(name);

    for (; at && *at; at += strcspn(at, " "), at += strspn(at, " ")) {
        if (strncmp(at, name, length) != 0 || at[length] != '=')
            continue;
        const char *value = at + length + 1;
        size_t size = strcspn(value, " ");
        const char *colon = memchr(value, ':', size);
        if (colon && bus && strtoul(value, NULL, 16) != bus)
            continue;
        if (colon) {
            size -= (size_t)(colon + 1 - value);
            value = colon + 1;
        }
        snprintf(ret_value, bytes, "%.*s", (int)size, value);
        return ret_value;
    }
    return NULL;
}

static const char *fault_of(const char *name, unsigned bus, char *ret_value, size_t bytes)
{
    char host[64], self[64] = "";

    if (find_fault("host", 0, host, sizeof(host)) &&
        (gethostname(self, sizeof(self) - 1) != 0 || strcmp(host, self) != 0))
        return NULL;
    return find_fault(name, bus, ret_value, bytes);
}

static unsigned long number_of(const char *name, unsigned bus)
{
    char value[64];

    return fault_of(name, bus, value, sizeof(value)) ? strtoul(value, NULL, 0) : 0;
}

/* May this function answer? 0 or an error. */
static int enter(const char *function)
{
    char value[64];

    if (fault_of("hang", 0, value, sizeof(value)) && strcmp(value, function) == 0)
        for (;;)
            pause();
    if (fault_of("fails", 0, value, sizeof(value)) && strcmp(value, function) == 0)
        return NOT_SUPPORTED;
    return initialised ? 0 : UNINITIALIZED;
}

EXPORT int nvmlInit_v2(void)
{
    int error = enter(__func__);

    pthread_mutex_lock(&lock);
    if (error == UNINITIALIZED) {
        initialised = 1;
        error = 0;
    }
    pthread_mutex_unlock(&lock);
    return error;
}

EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, ng_nvml_device *ret_device)
{
    unsigned domain, bus, slot;
    int error = enter(__func__);

    if (error)
        return error;
    if (!pci || sscanf(pci, "%x:%x:%x", &domain, &bus, &slot) != 3)
        return INVALID;
    if (bus < FIRST_BUS || bus - FIRST_BUS >= DEVICES)
        return NOT_FOUND;
    devices[bus - FIRST_BUS].bus = bus;
    *ret_device = &devices[bus - FIRST_BUS];
    return 0;
}

/* The first answer is what there was before. */
static unsigned long long count_of(ng_nvml_device device, int counter, const char *name)
{
    pthread_mutex_lock(&lock);
    bool asked = device->asked[counter];
    device->asked[counter] = true;
    pthread_mutex_unlock(&lock);
    return 7 + (asked ? number_of(name, device->bus) : 0);
}

EXPORT int nvmlDeviceGetTotalEccErrors(ng_nvml_device device, int type, int counter,
                                       unsigned long long *ret_count)
{
    int error = enter(__func__);

    if (error)
        return error;
    if (!device || !ret_count || type != NG_NVML_ECC_UNCORRECTED || counter != NG_NVML_ECC_VOLATILE)
        return INVALID;
    bool asked = device->asked[0];
    *ret_count = count_of(device, 0, "ecc");
    return asked && number_of("lost", device->bus) ? NG_NVML_GPU_IS_LOST : 0;
}

EXPORT int nvmlDeviceGetFieldValues(ng_nvml_device device, int count, struct ng_nvml_field *fields)
{
    static const struct {
        unsigned id;
        const char *name;
    } known[] = {{NG_NVML_FIELD_NVLINK_CRC, "crc"},
                 {NG_NVML_FIELD_NVLINK_REPLAY, "replay"},
                 {NG_NVML_FIELD_NVLINK_RECOVERY, "recovery"}};
    int error = enter(__func__);

    if (error)
        return error;
    for (int i = 0; i < count; i++) {
        fields[i].result = NOT_SUPPORTED;
        for (int k = 0; k < 3; k++) {
            if (known[k].id != fields[i].id)
                continue;
            fields[i].result = 0;
            fields[i].type = NG_NVML_ULLONG;
            fields[i].value.as_ullong = count_of(device, 1 + k, known[k].name);
        }
    }
    return 0;
}

EXPORT int nvmlEventSetCreate(ng_nvml_event_set *ret_set)
{
    int error = enter(__func__);

    if (!error)
        *ret_set = &the_set;
    return error;
}

EXPORT int nvmlDeviceRegisterEvents(ng_nvml_device device, unsigned long long types,
                                    ng_nvml_event_set set)
{
    int error = enter(__func__);

    if (error)
        return error;
    if (!device || set != &the_set || types != NG_NVML_EVENT_XID)
        return INVALID;
    pthread_mutex_lock(&lock);
    device->registered = true;
    clock_gettime(CLOCK_MONOTONIC, &device->registered_at);
    pthread_mutex_unlock(&lock);
    return 0;
}

/* The Xid that has happened to it, once; 0 none. */
static unsigned long take_xid(ng_nvml_device device)
{
    struct timespec now;
    unsigned long xid = number_of("xid", device->bus), later = number_of("xid-later", device->bus);

    clock_gettime(CLOCK_MONOTONIC, &now);
    if (later && now.tv_sec - device->registered_at.tv_sec > LATER_S)
        xid = later;
    if (!xid || !device->registered || device->told)
        return 0;
    device->told = true;
    return xid;
}

EXPORT int nvmlEventSetWait_v2(ng_nvml_event_set set, struct ng_nvml_event *ret_event,
                               unsigned timeout_ms)
{
    struct timespec pause = {timeout_ms / 1000, timeout_ms % 1000 * 1000000L};
    int error = enter(__func__);

    if (error || set != &the_set)
        return error ? error : INVALID;
    for (unsigned i = 0; i < DEVICES; i++) {
        pthread_mutex_lock(&lock);
        unsigned long xid = devices[i].bus ? take_xid(&devices[i]) : 0;
        pthread_mutex_unlock(&lock);
        if (!xid)
            continue;
        *ret_event =
            (struct ng_nvml_event){.device = &devices[i], .type = NG_NVML_EVENT_XID, .data = xid};
        return 0;
    }
    nanosleep(&pause, NULL);
    return TIMEOUT;
}

EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(ng_nvml_device device, unsigned *count,
                                                   struct ng_nvml_process *processes)
{
    unsigned long other = number_of("process", device ? device->bus : 0), self = (unsigned)getpid();
    unsigned there = other ? 2 : 1;
    int error = enter(__func__);

    if (error)
        return error;
    if (*count < there) {
        *count = there;
        return SMALL;
    }
    *count = there;
    processes[0] = (struct ng_nvml_process){
        .pid = number_of("outside", 0) ? 1000000 : (unsigned)self, .memory = 1 << 20};
    if (other)
        processes[1] = (struct ng_nvml_process){.pid = (unsigned)other, .memory = 1 << 20};
    return 0;
}
