/*
 * The functions of NVML (libnvidia-ml.so.1) that core uses: a table that the shim fills, since core
 * never looks up symbols.
 *
 * Types are those of NVIDIA's nvml.h, which need not be installed; only what is used of them is
 * named. A function that the library lacks is NULL.
 */
#ifndef NCCLGUARD_CORE_NCCL_NVML_H
#define NCCLGUARD_CORE_NCCL_NVML_H

#include <stdint.h>

#define NG_NVML_SUCCESS     0
#define NG_NVML_GPU_IS_LOST 15

#define NG_NVML_EVENT_XID       UINT64_C(8)
#define NG_NVML_ECC_UNCORRECTED 1 /* nvmlMemoryErrorType_t */
#define NG_NVML_ECC_VOLATILE    0 /* nvmlEccCounterType_t: since the driver was loaded */

/* Fields of a device, over all its links, up to Ampere; and on Hopper of one link, the scope. */
#define NG_NVML_FIELD_NVLINK_CRC           38u
#define NG_NVML_FIELD_NVLINK_REPLAY        52u
#define NG_NVML_FIELD_NVLINK_RECOVERY      59u
#define NG_NVML_FIELD_NVLINK_LINK_REPLAY   161u
#define NG_NVML_FIELD_NVLINK_LINK_RECOVERY 162u
#define NG_NVML_FIELD_NVLINK_LINK_CRC      163u
#define NG_NVML_NVLINKS                    18u

typedef struct ng_nvml_device *ng_nvml_device;
typedef struct ng_nvml_event_set *ng_nvml_event_set;

/* nvmlEventData_t */
struct ng_nvml_event {
    ng_nvml_device device;
    unsigned long long type, data; /* data: number of the Xid */
    unsigned gpu_instance, compute_instance;
};

/* nvmlFieldValue_t */
struct ng_nvml_field {
    unsigned id, scope;
    long long timestamp, latency_us;
    unsigned type; /* of the value: enum below */
    int result;
    union {
        double as_double;
        unsigned as_uint;
        unsigned long as_ulong;
        unsigned long long as_ullong;
        long long as_sllong;
        int as_sint;
    } value;
};
enum ng_nvml_type { NG_NVML_DOUBLE, NG_NVML_UINT, NG_NVML_ULONG, NG_NVML_ULLONG };

/* nvmlProcessInfo_t of the functions _v2 and _v3 */
struct ng_nvml_process {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
};

/* NG_NVML(field, exported name, prototype). The first three are needed. */
#define NG_NVML_FUNCTIONS(NG_NVML)                                                                 \
    NG_NVML(init, "nvmlInit_v2", (void))                                                           \
    NG_NVML(device_by_pci, "nvmlDeviceGetHandleByPciBusId_v2", (const char *, ng_nvml_device *))   \
    NG_NVML(total_ecc, "nvmlDeviceGetTotalEccErrors",                                              \
            (ng_nvml_device, int, int, unsigned long long *))                                      \
    NG_NVML(event_set_create, "nvmlEventSetCreate", (ng_nvml_event_set *))                         \
    NG_NVML(register_events, "nvmlDeviceRegisterEvents",                                           \
            (ng_nvml_device, unsigned long long, ng_nvml_event_set))                               \
    NG_NVML(event_set_wait, "nvmlEventSetWait_v2",                                                 \
            (ng_nvml_event_set, struct ng_nvml_event *, unsigned))                                 \
    NG_NVML(field_values, "nvmlDeviceGetFieldValues",                                              \
            (ng_nvml_device, int, struct ng_nvml_field *))                                         \
    NG_NVML(processes, "nvmlDeviceGetComputeRunningProcesses_v3",                                  \
            (ng_nvml_device, unsigned *, struct ng_nvml_process *))

struct ng_nvml {
#define NG_NVML_FIELD(field, name, prototype) int(*field) prototype;
    NG_NVML_FUNCTIONS(NG_NVML_FIELD)
#undef NG_NVML_FIELD
};

#endif
