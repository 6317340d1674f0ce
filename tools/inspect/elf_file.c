/*
 * ELF files, read piece by piece with pread.
 *
 * Not mapped: a file that is truncated while it is read causes an error here, not a SIGBUS. Every
 * offset and size in the file is checked against its length before use.
 */
#include "tools/inspect/elf_file.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/unwind/symbols.h"
#include "core/util/macros.h"
#include "tools/base/owned.h"

/* Size of the pieces in which tables and whole files are searched. */
#define PIECE ((size_t)1 << 20)
/* No known library has a larger string table; it would only exhaust the memory. */
#define STRINGS_LIMIT ((uint64_t)1 << 30)

#if defined(__x86_64__)
#define OWN_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define OWN_MACHINE EM_AARCH64
#else
#error "x86-64 or aarch64"
#endif

static bool is_inside(const struct ng_elf_file *file, uint64_t offset, uint64_t bytes)
{
    return offset <= file->bytes && bytes <= file->bytes - offset;
}

/* Exactly `bytes` bytes, or -errno; -EBADMSG beyond the end. */
static int read_at(const struct ng_elf_file *file, uint64_t offset, void *ret_data, size_t bytes)
{
    char *data = ret_data;

    if (!is_inside(file, offset, bytes))
        return -EBADMSG;
    while (bytes > 0) {
        ssize_t done = pread(file->fd, data, bytes, (off_t)offset);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return done < 0 ? -errno : -EBADMSG;
        data += done;
        offset += (uint64_t)done;
        bytes -= (size_t)done;
    }
    return 0;
}

/* A copy of a piece of the file with a 0 after it, so that the last string is terminated. */
static int copy(const struct ng_elf_file *file, uint64_t offset, uint64_t bytes, void *ret_copy)
{
    if (!is_inside(file, offset, bytes))
        return -EBADMSG;
    if (bytes > STRINGS_LIMIT)
        return -EFBIG;
    char *data = malloc((size_t)bytes + 1);
    if (!data)
        return -ENOMEM;
    int error = read_at(file, offset, data, (size_t)bytes);
    if (error != 0) {
        free(data);
        return error;
    }
    data[bytes] = '\0';
    memcpy(ret_copy, &data, sizeof(data));
    return 0;
}

/* The file offset of an address of the loaded object, and how much of the segment follows. */
static bool find_address(const struct ng_elf_file *file, uint64_t address, uint64_t *ret_offset,
                         uint64_t *ret_left)
{
    for (size_t i = 0; i < file->segment_count; i++) {
        const Elf64_Phdr *segment = &file->segments[i];
        if (segment->p_type != PT_LOAD || address < segment->p_vaddr ||
            address - segment->p_vaddr >= segment->p_filesz)
            continue;
        uint64_t within = address - segment->p_vaddr;
        if (!is_inside(file, segment->p_offset, segment->p_filesz))
            return false;
        *ret_offset = segment->p_offset + within;
        *ret_left = segment->p_filesz - within;
        return true;
    }
    return false;
}

static int read_identity(struct ng_elf_file *file, const char **ret_why)
{
    unsigned char ident[EI_NIDENT];
    Elf64_Ehdr *header = &file->header;

    if (file->bytes == 0) {
        *ret_why = "is empty";
        return -ENOEXEC;
    }
    if (file->bytes < SELFMAG || read_at(file, 0, ident, SELFMAG) != 0 ||
        memcmp(ident, ELFMAG, SELFMAG) != 0) {
        *ret_why = "is no ELF file";
        return -ENOEXEC;
    }
    *ret_why = "is cut off within its ELF header";
    int error = read_at(file, 0, ident, sizeof(ident));
    /* Type and machine have the same offset in both classes. */
    uint16_t kind[2];
    error = error ?: read_at(file, EI_NIDENT, kind, sizeof(kind));
    if (error != 0)
        return error;
    file->elf_class = ident[EI_CLASS];
    file->type = kind[0];
    file->machine = kind[1];
    file->foreign = ident[EI_CLASS] != ELFCLASS64 || ident[EI_DATA] != ELFDATA2LSB ||
                    file->machine != OWN_MACHINE;
    if (ident[EI_CLASS] != ELFCLASS64 && ident[EI_CLASS] != ELFCLASS32) {
        *ret_why = "is a damaged ELF file (its class is neither 32 nor 64 bits)";
        return -EBADMSG;
    }
    return file->foreign ? 0 : read_at(file, 0, header, sizeof(*header));
}

static int read_segments(struct ng_elf_file *file, const char **ret_why)
{
    const Elf64_Ehdr *header = &file->header;

    *ret_why = "is a damaged or cut-off ELF file (its program headers)";
    if (header->e_phnum == 0)
        return file->type == ET_REL ? 0 : -EBADMSG;
    if (header->e_phentsize != sizeof(Elf64_Phdr))
        return -EBADMSG;
    int error = copy(file, header->e_phoff, (uint64_t)header->e_phnum * sizeof(Elf64_Phdr),
                     &file->segments);
    if (error != 0)
        return error;
    file->segment_count = header->e_phnum;
    for (size_t i = 0; i < file->segment_count; i++) {
        const Elf64_Phdr *segment = &file->segments[i];
        if (segment->p_type == PT_LOAD && !is_inside(file, segment->p_offset, segment->p_filesz)) {
            *ret_why = "is cut off: what it says to load lies beyond its end";
            return -EBADMSG;
        }
        if (segment->p_type != PT_INTERP || file->interpreter)
            continue;
        if (segment->p_filesz > 4096)
            return -EBADMSG;
        error = copy(file, segment->p_offset, segment->p_filesz, &file->interpreter_text);
        if (error != 0)
            return error;
        file->interpreter = file->interpreter_text;
    }
    return 0;
}

static const char *string_at(const struct ng_elf_file *file, uint64_t offset)
{
    return offset < file->string_bytes ? file->strings + offset : NULL;
}

/* Of a piece that extends beyond the end, the part that exists. */
static size_t read_some(const void *context, uint64_t offset, void *bytes, size_t count)
{
    const struct ng_elf_file *file = context;

    if (offset < file->bytes && count > file->bytes - offset)
        count = (size_t)(file->bytes - offset);
    return read_at(file, offset, bytes, count) == 0 ? count : 0;
}

/* How many symbols the table has; the dynamic section gives only its beginning. */
static uint64_t count_symbols(const struct ng_elf_file *file, uint64_t table, uint64_t hash,
                              uint64_t gnu_hash, uint64_t strings)
{
    uint64_t left, count;

    if (!hash || !find_address(file, hash, &hash, &left))
        hash = 0;
    if (!gnu_hash || !find_address(file, gnu_hash, &gnu_hash, &left))
        gnu_hash = 0;
    count = ng_symbols_count(hash, gnu_hash, INT64_MAX, read_some, file);
    /* Every linker puts the strings directly after the symbols. */
    return count ? count : strings > table ? (strings - table) / sizeof(Elf64_Sym) : 0;
}

static int read_symbols(struct ng_elf_file *file, uint64_t table, uint64_t count)
{
    uint64_t offset, left;

    if (!table || count == 0)
        return 0;
    if (!find_address(file, table, &offset, &left) || count > left / sizeof(Elf64_Sym))
        return -EBADMSG;
    int error = copy(file, offset, count * sizeof(Elf64_Sym), &file->symbols);
    if (error == 0)
        file->symbol_count = (size_t)count;
    return error;
}

static int read_dynamic(struct ng_elf_file *file, const char **ret_why)
{
    const Elf64_Phdr *segment = NULL;
    NG_FREED Elf64_Dyn *entries = NULL;
    uint64_t table = 0, strings = 0, hash = 0, gnu_hash = 0, offset, left, count;
    const struct {
        int64_t tag;
        uint64_t *value;
    } numbers[] = {
        {DT_SYMTAB, &table},
        {DT_STRTAB, &strings},
        {DT_STRSZ, &file->string_bytes},
        {DT_HASH, &hash},
        {DT_GNU_HASH, &gnu_hash},
        {DT_JMPREL, &file->relocations[0].address},
        {DT_PLTRELSZ, &file->relocations[0].bytes},
        {DT_RELA, &file->relocations[1].address},
        {DT_RELASZ, &file->relocations[1].bytes},
    };

    for (size_t i = 0; i < file->segment_count; i++)
        if (file->segments[i].p_type == PT_DYNAMIC)
            segment = &file->segments[i];
    if (!segment)
        return 0;
    *ret_why = "is a damaged or cut-off ELF file (its dynamic section)";
    count = segment->p_filesz / sizeof(Elf64_Dyn);
    int error = copy(file, segment->p_offset, count * sizeof(Elf64_Dyn), &entries);
    if (error != 0)
        return error;
    file->dynamic = true;
    for (uint64_t i = 0; i < count; i++)
        if (entries[i].d_tag == DT_NULL)
            count = i;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t value = entries[i].d_un.d_val;
        int64_t tag = entries[i].d_tag;
        NG_EACH (number, numbers, NG_COUNT(numbers))
            if (number->tag == tag)
                *number->value = value;
        file->needed_count += tag == DT_NEEDED;
        file->symbolic |= tag == DT_SYMBOLIC || (tag == DT_FLAGS && (value & DF_SYMBOLIC));
        if (tag == DT_FLAGS_1) {
            file->interpose = (value & DF_1_INTERPOSE) != 0;
            file->no_default_libraries = (value & DF_1_NODEFLIB) != 0;
            file->program = (value & DF_1_PIE) != 0;
        }
    }
    error = -EBADMSG;
    if (!strings && file->string_bytes == 0)
        error = 0; /* a static position-independent program */
    else if (find_address(file, strings, &offset, &left) && file->string_bytes <= left)
        error = copy(file, offset, file->string_bytes, &file->strings);
    if (!file->strings)
        file->string_bytes = 0;
    if (error == 0 && file->needed_count > 0) {
        file->needed = calloc(file->needed_count, sizeof(*file->needed));
        error = file->needed ? 0 : -ENOMEM;
    }
    file->needed_count = 0;
    for (uint64_t i = 0; error == 0 && i < count; i++) {
        const char *text = string_at(file, entries[i].d_un.d_val);
        const char **place = entries[i].d_tag == DT_NEEDED    ? &file->needed[file->needed_count++]
                             : entries[i].d_tag == DT_SONAME  ? &file->soname
                             : entries[i].d_tag == DT_RPATH   ? &file->rpath
                             : entries[i].d_tag == DT_RUNPATH ? &file->runpath
                                                              : NULL;
        if (place && !text)
            error = -EBADMSG;
        else if (place)
            *place = text;
    }
    return error ?: read_symbols(file, table, count_symbols(file, table, hash, gnu_hash, strings));
}

int ng_elf_open(const char *path, struct ng_elf_file *ret_file, const char **ret_why)
{
    struct ng_elf_file file = {0};
    struct stat status;
    int error = 0;

    /* A FIFO must not block us, and a terminal must not become ours. */
    file.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file.fd < 0 || fstat(file.fd, &status) != 0) {
        error = -errno;
        *ret_why = error == -ENOENT   ? "does not exist"
                   : error == -EACCES ? "cannot be read (no permission)"
                                      : strerror(-error);
    } else if (!S_ISREG(status.st_mode)) {
        error = S_ISDIR(status.st_mode) ? -EISDIR : -EINVAL;
        *ret_why = S_ISDIR(status.st_mode) ? "is a folder" : "is no ordinary file";
    } else {
        file.bytes = (uint64_t)status.st_size;
        error = read_identity(&file, ret_why);
        if (error == 0 && !file.foreign)
            error = read_segments(&file, ret_why);
        if (error == 0 && !file.foreign)
            error = read_dynamic(&file, ret_why);
        if (error != 0 && error != -EBADMSG && error != -ENOEXEC)
            *ret_why = error == -EFBIG ? "is a damaged ELF file (a table of over 1 GiB)"
                                       : strerror(-error);
    }
    if (error != 0) {
        ng_elf_close(&file);
        return error;
    }
    *ret_file = file;
    return 0;
}

void ng_elf_close(struct ng_elf_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    free(file->segments);
    free(file->needed);
    free(file->symbols);
    free(file->strings);
    free(file->interpreter_text);
    *file = (struct ng_elf_file){.fd = -1};
}

bool ng_elf_is_program(const struct ng_elf_file *file)
{
    return file->type == ET_EXEC || file->program ||
           (file->type == ET_DYN && file->interpreter && !file->soname);
}

static bool is_defined(const Elf64_Sym *symbol)
{
    return symbol->st_shndx != SHN_UNDEF;
}

/* Whether the name of a symbol begins with these bytes; with the end of a text, whether it is it.
 */
static bool is_called(const struct ng_elf_file *file, const Elf64_Sym *symbol, const char *name,
                      size_t bytes)
{
    const char *text = string_at(file, symbol->st_name);

    return text && strncmp(text, name, bytes) == 0;
}

bool ng_elf_exports(const struct ng_elf_file *file, const char *name)
{
    return NG_ANY(symbol, file->symbols, file->symbol_count,
                  is_defined(symbol) && ELF64_ST_BIND(symbol->st_info) != STB_LOCAL &&
                      is_called(file, symbol, name, strlen(name) + 1));
}

bool ng_elf_imports(const struct ng_elf_file *file, const char *name)
{
    return NG_ANY(symbol, file->symbols, file->symbol_count,
                  !is_defined(symbol) && is_called(file, symbol, name, strlen(name) + 1));
}

bool ng_elf_imports_prefix(const struct ng_elf_file *file, const char *prefix)
{
    return NG_ANY(symbol, file->symbols, file->symbol_count,
                  !is_defined(symbol) && is_called(file, symbol, prefix, strlen(prefix)));
}

bool ng_elf_uses_by_name(const struct ng_elf_file *file, const char *name)
{
    Elf64_Rela piece[1024];

    for (size_t table = 0; table < 2; table++) {
        uint64_t offset, left, bytes = file->relocations[table].bytes;
        if (bytes == 0 || !find_address(file, file->relocations[table].address, &offset, &left))
            continue;
        for (bytes = bytes < left ? bytes : left; bytes >= sizeof(piece[0]);) {
            size_t count = bytes < sizeof(piece) ? bytes / sizeof(piece[0]) : 1024;
            if (read_at(file, offset, piece, count * sizeof(piece[0])) != 0)
                break;
            for (size_t i = 0; i < count; i++) {
                uint64_t index = ELF64_R_SYM(piece[i].r_info);
                const char *text = index > 0 && index < file->symbol_count
                                       ? string_at(file, file->symbols[index].st_name)
                                       : NULL;
                if (text && strcmp(text, name) == 0)
                    return true;
            }
            offset += count * sizeof(piece[0]);
            bytes -= count * sizeof(piece[0]);
        }
    }
    return false;
}

/* The offsets at which `name` begins in a string table, at most `limit`: linkers let names share
 * suffixes. */
static size_t places_of(const char *strings, uint64_t bytes, const char *name, uint32_t *ret_places,
                        size_t limit)
{
    size_t count = 0, length = strlen(name) + 1;
    const char *at = strings;

    while (count < limit &&
           (at = memmem(at, (size_t)(strings + bytes + 1 - at), name, length)) != NULL) {
        ret_places[count++] = (uint32_t)(at - strings);
        at++;
    }
    return count;
}

static int defines_in(const struct ng_elf_file *file, const Elf64_Shdr *section,
                      const Elf64_Shdr *names, const char *name, bool *ret_defines)
{
    Elf64_Sym piece[1024];
    uint32_t places[16];
    char *strings;
    uint64_t offset = section->sh_offset, bytes = section->sh_size;

    if (!is_inside(file, offset, bytes))
        return -EBADMSG;
    int error = copy(file, names->sh_offset, names->sh_size, &strings);
    if (error != 0)
        return error;
    size_t count = places_of(strings, names->sh_size, name, places, 16);
    free(strings);
    while (count > 0 && bytes >= sizeof(piece[0])) {
        size_t symbols = bytes < sizeof(piece) ? bytes / sizeof(piece[0]) : 1024;
        error = read_at(file, offset, piece, symbols * sizeof(piece[0]));
        if (error != 0)
            return error;
        for (size_t i = 0; i < symbols; i++)
            for (size_t j = 0; j < count; j++)
                if (piece[i].st_name == places[j] && is_defined(&piece[i])) {
                    *ret_defines = true;
                    return 0;
                }
        offset += symbols * sizeof(piece[0]);
        bytes -= symbols * sizeof(piece[0]);
    }
    *ret_defines = false;
    return 0;
}

int ng_elf_defines(const struct ng_elf_file *file, const char *name, bool *ret_defines)
{
    const Elf64_Ehdr *header = &file->header;
    NG_FREED Elf64_Shdr *sections = NULL;

    if (ng_elf_exports(file, name)) {
        *ret_defines = true;
        return 0;
    }
    if (header->e_shnum == 0 || header->e_shoff == 0) {
        *ret_defines = false;
        return 0;
    }
    if (header->e_shentsize != sizeof(Elf64_Shdr))
        return -EBADMSG;
    int error =
        copy(file, header->e_shoff, (uint64_t)header->e_shnum * sizeof(Elf64_Shdr), &sections);
    if (error != 0)
        return error;
    bool defines = false;
    for (size_t i = 0; error == 0 && !defines && i < header->e_shnum; i++) {
        if (sections[i].sh_type != SHT_SYMTAB)
            continue;
        error = sections[i].sh_link < header->e_shnum
                    ? defines_in(file, &sections[i], &sections[sections[i].sh_link], name, &defines)
                    : -EBADMSG;
    }
    if (error == 0)
        *ret_defines = defines;
    return error;
}

/* The next occurrence of `text` from *at on: false if there is none; else *at is after it. */
static bool find_text(const struct ng_elf_file *file, const char *text, char *piece, uint64_t *at)
{
    size_t length = strlen(text);

    while (*at < file->bytes) {
        size_t count = file->bytes - *at < PIECE ? (size_t)(file->bytes - *at) : PIECE;
        if (count < length || read_at(file, *at, piece, count) != 0)
            return false;
        const char *found = memmem(piece, count, text, length);
        if (found) {
            *at += (uint64_t)(found - piece) + length;
            return true;
        }
        *at += count - (length - 1); /* a word cut off here is complete in the next piece */
    }
    return false;
}

/* The word at this offset; false unless it begins with a digit and contains `part`. */
static bool read_version(const struct ng_elf_file *file, uint64_t at, const char *part,
                         char *ret_word, size_t bytes)
{
    char word[64];
    size_t letters = 0,
           left = file->bytes - at < sizeof(word) ? (size_t)(file->bytes - at) : sizeof(word);

    if (read_at(file, at, word, left) != 0)
        return false;
    while (letters < left && letters + 1 < bytes &&
           (isalnum((unsigned char)word[letters]) || word[letters] == '.' || word[letters] == '+'))
        letters++;
    if (letters == 0 || !isdigit((unsigned char)word[0]) ||
        !memmem(word, letters, part, strlen(part)))
        return false;
    memcpy(ret_word, word, letters);
    ret_word[letters] = '\0';
    return true;
}

bool ng_elf_find_version(const struct ng_elf_file *file, const char *text, const char *part,
                         char *ret_word, size_t bytes)
{
    NG_FREED char *piece = malloc(PIECE);
    bool found = false;
    uint64_t at = 0;

    /* No legitimate file contains it more often. */
    for (int places = 0; piece && !found && places < 1000; places++) {
        if (!find_text(file, text, piece, &at))
            break;
        found = read_version(file, at, part, ret_word, bytes);
    }
    return found;
}

bool ng_elf_contains(const struct ng_elf_file *file, const char *text)
{
    NG_FREED char *piece = malloc(PIECE);
    uint64_t at = 0;

    return piece && find_text(file, text, piece, &at);
}
