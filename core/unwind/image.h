/*
 * The ELF images in this process's memory: the program, its libraries, the vdso.
 *
 * Found only through the kernel's list of mappings and the headers in memory: the dynamic linker is
 * not called, since a thread of the program may be stuck holding its lock.
 */
#ifndef NCCLGUARD_CORE_UNWIND_IMAGE_H
#define NCCLGUARD_CORE_UNWIND_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/util/arena.h"

#define NG_IMAGES_MAX     4096
#define NG_BUILD_ID_BYTES 32 /* longer ones are cut */

struct ng_image {
    uint64_t start, end;      /* of its segments in memory */
    uint64_t bias;            /* address in memory minus address in the file */
    uint64_t eh_frame_header; /* in memory; 0 none */
    uint64_t dynamic;         /* in memory; 0 none */
    const char *path;         /* as the kernel reports it; "[vdso]" */
    bool remote;              /* its file is known to be on another machine */
    uint8_t build_id[NG_BUILD_ID_BYTES];
    uint32_t build_id_bytes; /* 0 none */
};

/* Sorted by address. */
struct ng_images {
    struct ng_image *images;
    uint32_t count, room;
    bool complete; /* false: more are mapped than room or memory allowed */
};

/* What is mapped now; memory from `arena`. 0, or -errno when the list cannot be read. Bounded. */
int ng_images_read(struct ng_arena *arena, struct ng_images *ret_images);

/* The image whose memory holds the address; NULL none does (generated at run time, or not code). */
const struct ng_image *ng_images_find(const struct ng_images *images, uint64_t address);

/* The build id in an ELF note segment, as above; 0 bytes: none. Used for the image in memory and
 * for its file. */
uint32_t ng_image_build_id(const uint8_t *notes, size_t bytes, uint8_t *ret_id);

/*
 * Is the file system of a device on another machine, which may not answer for a long time? Reads
 * only the kernel's list of mounts, never the file system. False if not known.
 */
bool ng_mount_is_remote(unsigned major, unsigned minor);

/* Does a line of /proc/self/mountinfo describe the device? Then sets *ret_remote. Modifies the
 * line. */
bool ng_mount_tells(char *line, unsigned major, unsigned minor, bool *ret_remote);

#endif
