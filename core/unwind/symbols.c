/*
 * Names for addresses in an ELF image.
 *
 * Entered by the guard's threads. Must never map a file: if it were truncated meanwhile, the
 * program would get a bus error. Must never trust its numbers.
 */
#include "core/unwind/symbols.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/util/clock.h"
#include "core/util/macros.h"
#include "core/util/memory.h"

#define SYMBOLS_MAX  (16u << 20)
#define BLOCK_BYTES  (48u << 10)
#define SECTIONS_MAX 4096
#define NOTES_BYTES  1024
#define BUCKETS_MAX  (1u << 24)
#define SIZED        4u /* quality of a symbol that has a size */

/* Where the tables are: at addresses of this process, or in a file. */
struct source {
    int fd; /* -1: memory */
    uint64_t symbols, symbol_count;
    uint64_t names, name_bytes; /* name_bytes 0: not known */
};

static bool read_at(const struct source *source, uint64_t place, void *bytes, size_t count)
{
    if (source->fd < 0)
        return ng_memory_read(place, bytes, count);
    return pread(source->fd, bytes, count, (off_t)place) == (ssize_t)count;
}

/* The first query at or above an address. */
static uint32_t first_from(const struct ng_symbol_query *queries, uint32_t count, uint64_t address)
{
    return NG_FIRST_INDEX(count, i, queries[i].address < address);
}

/*
 * Of several names of one function, prefer the public one: weak before global before local, as in
 * the C library and NCCL (poll and __poll, ncclAllReduce and pncclAllReduce). 0: it names no code.
 * Code without a size is hand-written, and extends to the next symbol.
 */
static uint32_t quality_of(const Elf64_Sym *symbol)
{
    unsigned type = ELF64_ST_TYPE(symbol->st_info), bind = ELF64_ST_BIND(symbol->st_info);

    if (symbol->st_shndx == SHN_UNDEF || symbol->st_shndx == SHN_ABS || symbol->st_value == 0)
        return 0;
    if (type != STT_FUNC && type != STT_GNU_IFUNC && type != STT_NOTYPE)
        return 0;
    /* Labels inside functions, and assemblers' marks. */
    if (type == STT_NOTYPE && bind == STB_LOCAL)
        return 0;
    return (symbol->st_size ? SIZED : 0) + (bind == STB_WEAK ? 3 : bind == STB_GLOBAL ? 2 : 1);
}

static void offer(struct ng_symbol_query *query, const Elf64_Sym *symbol, uint32_t quality)
{
    /* The nearest of the symbols that begin at or below. */
    bool sized = quality >= SIZED, was_sized = query->quality >= SIZED;
    bool nearer = sized == was_sized && symbol->st_value > query->start;

    if (quality <= query->quality && !nearer)
        return;
    if (sized == was_sized && symbol->st_value < query->start)
        return;
    query->quality = quality;
    query->start = symbol->st_value;
    query->name_offset = symbol->st_name;
    query->name = NULL;
}

static void offer_all(struct ng_symbol_query *queries, uint32_t count, const Elf64_Sym *symbol)
{
    uint32_t quality = quality_of(symbol);
    /* A symbol without a size may extend far, but not without limit. */
    uint64_t end = symbol->st_value + (symbol->st_size ? symbol->st_size : 4096);

    if (!quality)
        return;
    for (uint32_t i = first_from(queries, count, symbol->st_value);
         i < count && queries[i].address < end; i++)
        offer(&queries[i], symbol, quality);
}

static const char *read_name(const struct source *source, uint32_t offset, struct ng_arena *arena)
{
    char name[NG_SYMBOL_NAME_BYTES];
    size_t used = 0;

    if (source->name_bytes && offset >= source->name_bytes)
        return NULL;
    /* In small pieces: the table may end at the end of mapped memory. */
    while (used < sizeof(name) - 1) {
        size_t want = sizeof(name) - 1 - used < 64 ? sizeof(name) - 1 - used : 64;
        uint64_t place = source->names + offset + used;
        ssize_t got = source->fd < 0 ? (ssize_t)ng_memory_read_some(place, name + used, want)
                                     : pread(source->fd, name + used, want, (off_t)place);
        if (got <= 0)
            return NULL;
        if (memchr(name + used, '\0', (size_t)got))
            return name[0] ? ng_arena_strdup(arena, name) : NULL;
        used += (size_t)got;
    }
    name[used] = '\0';
    return ng_arena_strdup(arena, name);
}

static int scan(const struct source *source, struct ng_symbol_query *queries, uint32_t count,
                int64_t until_thread_ns, struct ng_arena *arena)
{
    Elf64_Sym *block = ng_arena_alloc(arena, BLOCK_BYTES);
    uint64_t per_block = BLOCK_BYTES / sizeof(*block);
    int error = 0;

    if (!block)
        return -ENOMEM;
    for (uint64_t at = 0; at < source->symbol_count; at += per_block) {
        uint64_t part =
            source->symbol_count - at < per_block ? source->symbol_count - at : per_block;
        if (ng_clock_thread_ns() > until_thread_ns)
            error = -ETIME;
        else if (!read_at(source, source->symbols + at * sizeof(*block), block,
                          part * sizeof(*block)))
            error = -EIO;
        if (error)
            break;
        for (uint64_t i = 0; i < part; i++)
            offer_all(queries, count, &block[i]);
    }
    for (uint32_t i = 0; i < count; i++)
        if (queries[i].quality && !queries[i].name)
            queries[i].name = read_name(source, queries[i].name_offset, arena);
    return error;
}

/* ---- In memory ---- */

/* The hash table's last chain ends with the last symbol. */
static uint64_t count_by_gnu_hash(uint64_t table, int64_t until_thread_ns, ng_symbols_read *read,
                                  const void *context)
{
    struct {
        uint32_t buckets, first, words, shift;
    } header;
    uint32_t block[256], last = 0;

    if (read(context, table, &header, sizeof(header)) != sizeof(header) ||
        header.buckets > BUCKETS_MAX || header.words > BUCKETS_MAX)
        return 0;
    uint64_t buckets = table + sizeof(header) + (uint64_t)header.words * 8;
    uint64_t chains = buckets + (uint64_t)header.buckets * 4;
    for (uint32_t at = 0; at < header.buckets; at += 256) {
        uint32_t part = header.buckets - at < 256 ? header.buckets - at : 256;
        size_t bytes = part * sizeof(block[0]);
        if (ng_clock_thread_ns() > until_thread_ns ||
            read(context, buckets + (uint64_t)at * 4, block, bytes) != bytes)
            return 0;
        for (uint32_t i = 0; i < part; i++)
            last = block[i] > last ? block[i] : last;
    }
    if (last < header.first)
        return 0; /* defines nothing: the table does not reveal the count */
    /* A damaged chain may have no end. */
    while (last < SYMBOLS_MAX && ng_clock_thread_ns() <= until_thread_ns) {
        size_t count =
            read(context, chains + (uint64_t)(last - header.first) * 4, block, sizeof(block)) /
            sizeof(block[0]);
        for (size_t i = 0; i < count; i++)
            if (block[i] & 1)
                return last + i + 1;
        if (count < sizeof(block) / sizeof(block[0]))
            return 0;
        last += (uint32_t)count;
    }
    return 0;
}

uint64_t ng_symbols_count(uint64_t hash, uint64_t gnu_hash, int64_t until_thread_ns,
                          ng_symbols_read *read, const void *context)
{
    uint32_t header[2];

    if (hash && read(context, hash, header, sizeof(header)) == sizeof(header))
        return header[1];
    return gnu_hash ? count_by_gnu_hash(gnu_hash, until_thread_ns, read, context) : 0;
}

static size_t read_memory(const void *context, uint64_t place, void *bytes, size_t count)
{
    return ng_memory_read_some(place, bytes, count);
}

/* The dynamic linker relocates the section's addresses to memory, except those of the vdso. */
static uint64_t in_memory(const struct ng_image *image, uint64_t address)
{
    return address < image->start ? address + image->bias : address;
}

static bool find_in_memory(const struct ng_image *image, int64_t until_thread_ns,
                           struct source *ret_source)
{
    struct source source = {.fd = -1};
    uint64_t gnu_hash = 0, hash = 0;

    for (unsigned i = 0; i < 256; i++) {
        Elf64_Dyn entry;
        if (!ng_memory_read(image->dynamic + i * sizeof(entry), &entry, sizeof(entry)) ||
            entry.d_tag == DT_NULL)
            break;
        if (entry.d_tag == DT_SYMTAB)
            source.symbols = in_memory(image, entry.d_un.d_ptr);
        else if (entry.d_tag == DT_STRTAB)
            source.names = in_memory(image, entry.d_un.d_ptr);
        else if (entry.d_tag == DT_STRSZ)
            source.name_bytes = entry.d_un.d_val;
        else if (entry.d_tag == DT_GNU_HASH)
            gnu_hash = in_memory(image, entry.d_un.d_ptr);
        else if (entry.d_tag == DT_HASH)
            hash = in_memory(image, entry.d_un.d_ptr);
    }
    source.symbol_count = ng_symbols_count(hash, gnu_hash, until_thread_ns, read_memory, NULL);
    *ret_source = source;
    return source.symbols && source.names && source.symbol_count &&
           source.symbol_count <= SYMBOLS_MAX;
}

int ng_symbols_of_memory(const struct ng_image *image, struct ng_symbol_query *queries,
                         uint32_t count, int64_t until_thread_ns, struct ng_arena *arena)
{
    struct source source;

    if (!image->dynamic || !find_in_memory(image, until_thread_ns, &source))
        return -ENOENT;
    return scan(&source, queries, count, until_thread_ns, arena);
}

/* ---- In the file ---- */

/* Find its tables, and check by its build id that it is the file that was loaded. */
static int find_in_file(const struct ng_image *image, int fd, struct source *ret_source)
{
    struct source source = {.fd = fd};
    uint8_t id[NG_BUILD_ID_BYTES], notes[NOTES_BYTES];
    bool same = image->build_id_bytes == 0;
    Elf64_Shdr section, names;
    Elf64_Ehdr header;

    if (!read_at(&source, 0, &header, sizeof(header)) ||
        memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
        header.e_shentsize != sizeof(section) || header.e_shnum > SECTIONS_MAX)
        return -ENOEXEC;
    for (unsigned i = 0; i < header.e_shnum; i++) {
        if (!read_at(&source, header.e_shoff + i * sizeof(section), &section, sizeof(section)))
            return -EIO;
        if (section.sh_type == SHT_NOTE && !same) {
            size_t bytes = section.sh_size < NOTES_BYTES ? section.sh_size : NOTES_BYTES;
            same = read_at(&source, section.sh_offset, notes, bytes) &&
                   ng_image_build_id(notes, bytes, id) == image->build_id_bytes &&
                   memcmp(id, image->build_id, image->build_id_bytes) == 0;
        } else if (section.sh_type == SHT_SYMTAB && section.sh_link < header.e_shnum &&
                   section.sh_entsize == sizeof(Elf64_Sym) &&
                   read_at(&source, header.e_shoff + section.sh_link * sizeof(section), &names,
                           sizeof(names))) {
            source.symbols = section.sh_offset;
            source.symbol_count = section.sh_size / sizeof(Elf64_Sym);
            source.names = names.sh_offset;
            source.name_bytes = names.sh_size;
        }
    }
    if (!same)
        return -ESTALE;
    *ret_source = source;
    return source.symbol_count && source.symbol_count <= SYMBOLS_MAX ? 0 : -ENOENT;
}

int ng_symbols_of_file(const struct ng_image *image, struct ng_symbol_query *queries,
                       uint32_t count, int64_t until_thread_ns, struct ng_arena *arena)
{
    struct source source;
    struct stat status;

    if (image->path[0] != '/')
        return -ENOENT;
    if (image->remote)
        return -EREMOTE;
    /* Nonblocking: the path may be a pipe by now. */
    int fd = open(image->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return -errno;
    int error = fstat(fd, &status) != 0 ? -errno : !S_ISREG(status.st_mode) ? -ENOENT : 0;
    error = error ?: find_in_file(image, fd, &source);
    error = error ?: scan(&source, queries, count, until_thread_ns, arena);
    close(fd);
    return error;
}

/* ---- Several images ---- */

static bool is_before(const struct ng_symbol_wanted *a, const struct ng_symbol_wanted *b)
{
    return a->image != b->image ? (uintptr_t)a->image < (uintptr_t)b->image : a->place < b->place;
}

/* In place: qsort may call malloc. */
static void sort(struct ng_symbol_wanted **wanted, uint32_t count)
{
    for (uint32_t gap = count / 2; gap > 0; gap = gap == 2 ? 1 : gap * 5 / 11)
        for (uint32_t i = gap; i < count; i++) {
            struct ng_symbol_wanted *moved = wanted[i];
            uint32_t k = i;
            for (; k >= gap && is_before(moved, wanted[k - gap]); k -= gap)
                wanted[k] = wanted[k - gap];
            wanted[k] = moved;
        }
}

int ng_symbolize(struct ng_symbol_wanted *wanted, uint32_t count, ng_symbol_source *source,
                 int64_t until_thread_ns, struct ng_arena *arena)
{
    struct ng_symbol_wanted **sorted = ng_arena_alloc(arena, count * sizeof(sorted[0]));
    struct ng_symbol_query *queries = ng_arena_alloc(arena, count * sizeof(queries[0]));

    if (!sorted || !queries)
        return -ENOMEM;
    for (uint32_t i = 0; i < count; i++)
        sorted[i] = &wanted[i];
    sort(sorted, count);
    for (uint32_t i = 0, end; i < count; i = end) {
        const struct ng_image *image = sorted[i]->image;
        for (end = i; end < count && sorted[end]->image == image; end++)
            queries[end] = (struct ng_symbol_query){.address = sorted[end]->place - image->bias};
        if (ng_clock_thread_ns() > until_thread_ns)
            break;
        source(image, queries + i, end - i, until_thread_ns, arena);
        for (uint32_t k = i; k < end; k++)
            if (queries[k].name) {
                sorted[k]->name = queries[k].name;
                sorted[k]->start = queries[k].start + image->bias;
            }
    }
    return 0;
}
