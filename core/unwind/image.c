/*
 * The ELF images in this process's memory.
 *
 * Entered by the guard's threads. Must never call the dynamic linker, nor trust an image's headers:
 * numbers are bounded before they are used.
 */
#include "core/unwind/image.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/util/lines.h"
#include "core/util/macros.h"
#include "core/util/memory.h"

#define SEGMENTS_MAX 64
#define NOTES_BYTES  1024
#define LINE_BYTES   8192
#define MOUNT_BYTES  4096

/* A line of /proc/self/maps. */
struct mapping {
    uint64_t start, end, offset, inode;
    bool readable, executable;
    unsigned major, minor; /* of its file's device */
    const char *path;      /* in the line; "" none */
};

/* A possible image, at the start of a file's mapping. An ELF file mapped as data looks the same,
 * until code is found at the place that its headers give. */
struct candidate {
    struct ng_image image;
    uint64_t inode;
    uint64_t notes, notes_bytes;
    struct {
        uint64_t start, end;
    } code[4];
    unsigned code_count;
};

/* Prefixes of types; a file system served by a program (fuse) counts as remote. */
static const char *const remote_types[] = {
    "9p",  "afs",      "beegfs", "ceph",  "cifs", "fuse",     "gpfs", "lustre",
    "nfs", "orangefs", "panfs",  "pvfs2", "smb",  "virtiofs", "weka", "wekafs",
};

bool ng_mount_tells(char *line, unsigned major, unsigned minor, bool *ret_remote)
{
    char *field = line, *type;

    /* "36 35 98:0 /root /mount rw,noatime shared:1 - ext3 /dev/root rw" */
    for (int number = 1; number < 3 && field; number++) {
        field = strchr(field, ' ');
        field = field ? field + 1 : NULL;
    }
    if (!field || strtoul(field, &field, 10) != major || *field != ':' ||
        strtoul(field + 1, &field, 10) != minor || !(type = strstr(field, " - ")))
        return false;
    type += strlen(" - ");
    *ret_remote = false;
    for (unsigned i = 0; i < NG_COUNT(remote_types); i++)
        *ret_remote |= strncmp(type, remote_types[i], strlen(remote_types[i])) == 0;
    return true;
}

/* A device that is looked for among the mounts. */
struct mounted {
    unsigned major, minor;
    bool remote;
};

static bool take_mount(void *context, char *line)
{
    struct mounted *device = context;

    return !ng_mount_tells(line, device->major, device->minor, &device->remote);
}

bool ng_mount_is_remote(unsigned major, unsigned minor)
{
    struct mounted device = {.major = major, .minor = minor};
    char text[MOUNT_BYTES]; /* a line with more layers is left out */

    ng_lines_each("/proc/self/mountinfo", text, sizeof(text), take_mount, &device);
    return device.remote;
}

static bool parse(char *line, struct mapping *ret_mapping)
{
    struct mapping mapping = {0};
    char *at = line;

    mapping.start = strtoull(at, &at, 16);
    if (*at++ != '-')
        return false;
    mapping.end = strtoull(at, &at, 16);
    if (*at++ != ' ' || strlen(at) < 5)
        return false;
    mapping.readable = at[0] == 'r';
    mapping.executable = at[2] == 'x';
    mapping.offset = strtoull(at + 4, &at, 16);
    mapping.major = (unsigned)strtoul(at, &at, 16);
    if (*at++ != ':')
        return false;
    mapping.minor = (unsigned)strtoul(at, &at, 16);
    mapping.inode = strtoull(at, &at, 10);
    mapping.path = at + strspn(at, " ");
    *ret_mapping = mapping;
    return true;
}

uint32_t ng_image_build_id(const uint8_t *notes, size_t bytes, uint8_t *ret_id)
{
    size_t at = 0;

    while (bytes - at >= sizeof(Elf64_Nhdr)) {
        Elf64_Nhdr note;
        memcpy(&note, notes + at, sizeof(note));
        size_t name = at + sizeof(note);
        size_t text = name + (((size_t)note.n_namesz + 3) & ~(size_t)3);
        size_t next = text + (((size_t)note.n_descsz + 3) & ~(size_t)3);
        if (text > bytes || text + note.n_descsz > bytes)
            break;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
            memcmp(notes + name, "GNU", 4) == 0) {
            uint32_t length = note.n_descsz < NG_BUILD_ID_BYTES ? note.n_descsz : NG_BUILD_ID_BYTES;
            memcpy(ret_id, notes + text, length);
            return length;
        }
        if (next > bytes)
            break;
        at = next;
    }
    return 0;
}

static void add_code(struct candidate *candidate, const Elf64_Phdr *segment)
{
    if (candidate->code_count == NG_COUNT(candidate->code))
        return;
    candidate->code[candidate->code_count].start = candidate->image.bias + segment->p_vaddr;
    candidate->code[candidate->code_count++].end =
        candidate->image.bias + segment->p_vaddr + segment->p_memsz;
}

/* Read the headers of the image at `start`. False: not an ELF image for this machine. */
static bool read_headers(uint64_t start, struct candidate *ret_candidate)
{
    Elf64_Phdr segments[SEGMENTS_MAX];
    Elf64_Ehdr header;
    bool first = true;

    if (!ng_memory_read(start, &header, sizeof(header)) ||
        memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
        header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum > SEGMENTS_MAX ||
        !ng_memory_read(start + header.e_phoff, segments, header.e_phnum * sizeof(Elf64_Phdr)))
        return false;
    struct candidate candidate = {.image.start = start};
    NG_EACH (segment, segments, header.e_phnum) {
        if (segment->p_type == PT_LOAD && first) {
            if (segment->p_offset > segment->p_vaddr)
                return false;
            candidate.image.bias = start - (segment->p_vaddr - segment->p_offset);
            first = false;
        }
        uint64_t address = candidate.image.bias + segment->p_vaddr;
        if (segment->p_type == PT_LOAD && address + segment->p_memsz > candidate.image.end)
            candidate.image.end = address + segment->p_memsz;
        if (segment->p_type == PT_LOAD && (segment->p_flags & PF_X))
            add_code(&candidate, segment);
    }
    /* These may come before the first PT_LOAD, which determines the bias. */
    for (unsigned i = 0; i < header.e_phnum; i++) {
        uint64_t address = candidate.image.bias + segments[i].p_vaddr;
        if (segments[i].p_type == PT_GNU_EH_FRAME)
            candidate.image.eh_frame_header = address;
        if (segments[i].p_type == PT_DYNAMIC)
            candidate.image.dynamic = address;
        if (segments[i].p_type == PT_NOTE && !candidate.image.build_id_bytes) {
            uint8_t notes[NOTES_BYTES];
            size_t bytes = segments[i].p_filesz < NOTES_BYTES ? segments[i].p_filesz : NOTES_BYTES;
            if (ng_memory_read(address, notes, bytes))
                candidate.image.build_id_bytes =
                    ng_image_build_id(notes, bytes, candidate.image.build_id);
        }
    }
    *ret_candidate = candidate;
    return !first && candidate.code_count > 0;
}

/* Can a file's image begin in this mapping? Devices are skipped: their memory is not ours. */
static bool may_begin_image(const struct mapping *mapping)
{
    bool device =
        strncmp(mapping->path, "/dev/", 5) == 0 && strncmp(mapping->path, "/dev/shm/", 9) != 0;

    return mapping->readable && mapping->offset == 0 && !device &&
           (mapping->path[0] == '/' || strcmp(mapping->path, "[vdso]") == 0);
}

/* Is this code that the candidate's headers describe? Without a file: code that was moved to huge
 * pages. */
static bool is_code_of(const struct candidate *candidate, const struct mapping *mapping)
{
    if (mapping->inode && mapping->inode != candidate->inode)
        return false;
    return NG_ANY(entry, candidate->code, candidate->code_count,
                  mapping->start < entry->end && mapping->end > entry->start);
}

static void take(struct ng_arena *arena, struct ng_images *images,
                 const struct candidate *candidate)
{
    if (images->count && images->images[images->count - 1].start == candidate->image.start)
        return;
    if (images->count == images->room) {
        images->complete = false;
        return;
    }
    struct ng_image *image = &images->images[images->count];
    *image = candidate->image;
    image->path = ng_arena_strdup(arena, candidate->image.path);
    if (image->path)
        images->count++;
}

struct reader {
    struct ng_arena *arena;
    struct ng_images *images;
    struct candidate last;
    bool any;
    unsigned major, minor; /* of the device that was looked up last */
    bool asked, remote;
    char path[LINE_BYTES]; /* of `last` */
};

/* All files are on few devices, mostly the same one in succession. */
static bool is_remote(struct reader *reader, const struct mapping *mapping)
{
    if (!reader->asked || reader->major != mapping->major || reader->minor != mapping->minor)
        reader->remote = ng_mount_is_remote(mapping->major, mapping->minor);
    reader->asked = true;
    reader->major = mapping->major;
    reader->minor = mapping->minor;
    return reader->remote;
}

static bool take_line(void *context, char *line)
{
    struct reader *reader = context;
    struct candidate next;
    struct mapping mapping;

    if (!parse(line, &mapping))
        return true;
    if (may_begin_image(&mapping) && read_headers(mapping.start, &next)) {
        strcpy(reader->path, mapping.path);
        next.inode = mapping.inode;
        next.image.remote = is_remote(reader, &mapping);
        next.image.path = reader->path;
        reader->last = next;
        reader->any = true;
    }
    if (mapping.executable && reader->any && is_code_of(&reader->last, &mapping))
        take(reader->arena, reader->images, &reader->last);
    return true;
}

int ng_images_read(struct ng_arena *arena, struct ng_images *ret_images)
{
    struct ng_images images = {.room = NG_IMAGES_MAX, .complete = true};
    struct reader *reader = ng_arena_alloc(arena, sizeof(*reader));
    char *text = ng_arena_alloc(arena, LINE_BYTES); /* paths are shorter than that */

    images.images = ng_arena_alloc(arena, NG_IMAGES_MAX * sizeof(images.images[0]));
    if (!reader || !text || !images.images)
        return -ENOMEM;
    reader->arena = arena;
    reader->images = &images;
    int error = ng_lines_each("/proc/self/maps", text, LINE_BYTES, take_line, reader);
    *ret_images = images;
    return error;
}

const struct ng_image *ng_images_find(const struct ng_images *images, uint64_t address)
{
    uint32_t low = NG_FIRST_INDEX(images->count, i, images->images[i].start <= address);

    return low && address < images->images[low - 1].end ? &images->images[low - 1] : NULL;
}
