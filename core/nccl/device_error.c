/*
 * Names and words of what the driver knows of a device.
 *
 * Pure; any thread.
 */
#include "core/nccl/device_error.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "core/util/text.h"

enum effect { TOLD, STOPS };

static const struct {
    uint32_t number;
    enum effect effect;
    const char *words;
} xids[] = {
#define NG_XID(number, effect, words) {number, effect, words},
#include "core/nccl/xid.def"
#undef NG_XID
};

static const struct {
    const char *name, *words;
} kinds[NG_DEVICE_ERROR_KINDS] = {
    [NG_DEVICE_ERROR_XID] = {"xid", "Xid"},
    [NG_DEVICE_ERROR_LOST] = {"lost", "NVML says that the device is lost"},
    [NG_DEVICE_ERROR_ECC] = {"ecc_uncorrected", "uncorrected ECC errors"},
    [NG_DEVICE_ERROR_NVLINK_CRC] = {"nvlink_crc", "NVLink CRC errors"},
    [NG_DEVICE_ERROR_NVLINK_REPLAY] = {"nvlink_replay", "NVLink replays"},
    [NG_DEVICE_ERROR_NVLINK_RECOVERY] = {"nvlink_recovery", "NVLink recoveries"},
    [NG_DEVICE_ERROR_PROCESS] = {"process", "also computes there: process"},
};

const char *ng_device_error_name(uint32_t kind)
{
    return kind < NG_DEVICE_ERROR_KINDS ? kinds[kind].name : NULL;
}

enum ng_device_error_kind ng_device_error_of_name(const char *name)
{
    for (unsigned kind = NG_DEVICE_ERROR_NONE + 1; name && kind < NG_DEVICE_ERROR_KINDS; kind++)
        if (strcmp(kinds[kind].name, name) == 0)
            return (enum ng_device_error_kind)kind;
    return NG_DEVICE_ERROR_NONE;
}

static int find_xid(uint32_t number)
{
    for (unsigned i = 0; i < sizeof(xids) / sizeof(xids[0]); i++)
        if (xids[i].number == number)
            return (int)i;
    return -1;
}

bool ng_device_error_is_grave(const struct ng_device_error *error)
{
    int xid = error->kind == NG_DEVICE_ERROR_XID ? find_xid(error->number) : -1;

    return error->kind == NG_DEVICE_ERROR_LOST || (xid >= 0 && xids[xid].effect == STOPS);
}

void ng_device_error_tell(struct ng_text *text, const struct ng_device_error *error)
{
    int xid = error->kind == NG_DEVICE_ERROR_XID ? find_xid(error->number) : -1;

    ng_text_add(text, "%s", kinds[error->kind < NG_DEVICE_ERROR_KINDS ? error->kind : 0].words);
    switch (error->kind) {
    case NG_DEVICE_ERROR_XID:
        ng_text_add(text, " %" PRIu32, error->number);
        if (xid >= 0)
            ng_text_add(text, " (%s)", xids[xid].words);
        if (error->count > 1)
            ng_text_add(text, ", %" PRIu64 " times", error->count);
        break;
    case NG_DEVICE_ERROR_PROCESS:
        ng_text_add(text, " %" PRIu32, error->number);
        break;
    case NG_DEVICE_ERROR_LOST:
        break;
    default:
        ng_text_add(text, ": %" PRIu64, error->count);
    }
}
