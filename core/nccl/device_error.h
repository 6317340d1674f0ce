/*
 * What the driver may know of a device: kinds of errors, their names and words.
 *
 * Pure; any thread.
 */
#ifndef NCCLGUARD_CORE_NCCL_DEVICE_ERROR_H
#define NCCLGUARD_CORE_NCCL_DEVICE_ERROR_H

#include <stdbool.h>
#include <stdint.h>

struct ng_text;

/* Numbers and names are for ever. */
enum ng_device_error_kind {
    NG_DEVICE_ERROR_NONE = 0,
    NG_DEVICE_ERROR_XID = 1,        /* `number` is that of the Xid */
    NG_DEVICE_ERROR_LOST = 2,       /* NVML says that the device is lost */
    NG_DEVICE_ERROR_ECC = 3,        /* uncorrected */
    NG_DEVICE_ERROR_NVLINK_CRC = 4, /* NVLink counters, over all links */
    NG_DEVICE_ERROR_NVLINK_REPLAY = 5,
    NG_DEVICE_ERROR_NVLINK_RECOVERY = 6,
    NG_DEVICE_ERROR_PROCESS = 7, /* no error: `number` is the pid of another process that computes
                                    there */
    NG_DEVICE_ERROR_KINDS
};

#define NG_DEVICE_PCI_BYTES 16

struct ng_device_error {
    uint32_t kind, number;
    uint64_t count; /* how often since the first look; 1 of NG_DEVICE_ERROR_PROCESS and LOST */
    int64_t age_ns; /* since the look that noticed the newest of them */
    char pci_id[NG_DEVICE_PCI_BYTES]; /* of the device, "0000:1b:00.0" */
};

/* "xid", as JSON has it; NULL no such kind. */
const char *ng_device_error_name(uint32_t kind);
/* NG_DEVICE_ERROR_NONE: no kind of this name, or NULL. */
enum ng_device_error_kind ng_device_error_of_name(const char *name);

/* Does no work of the device continue after it? Then it explains a stall. */
bool ng_device_error_is_grave(const struct ng_device_error *error);

/* Appends "Xid 79 (the device has fallen off the bus), 2 times". */
void ng_device_error_tell(struct ng_text *text, const struct ng_device_error *error);

#endif
