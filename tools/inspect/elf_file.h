/*
 * Reads ELF files (programs and shared libraries) without trusting any byte of them.
 *
 * For `ncclguard doctor` and `ncclguard run`; one thread. Reads files of this machine's kind (64
 * bits, little-endian, x86-64 or aarch64); of other files only the kind. The file is never run or
 * loaded.
 */
#ifndef NCCLGUARD_TOOLS_INSPECT_ELF_FILE_H
#define NCCLGUARD_TOOLS_INSPECT_ELF_FILE_H

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ng_elf_file {
    int fd;
    uint64_t bytes; /* of the file */

    /* The kind of file. All fields below are empty if `foreign`. */
    unsigned char elf_class; /* ELFCLASS64 … */
    uint16_t type;           /* ET_EXEC or ET_DYN … */
    uint16_t machine;        /* EM_X86_64 … */
    bool foreign;            /* another machine, class or byte order than this command's */

    Elf64_Ehdr header;
    Elf64_Phdr *segments;
    size_t segment_count;
    const char *interpreter; /* the dynamic linker it asks for; NULL none */

    /* The dynamic section. Strings point into `strings`. */
    bool dynamic;
    const char **needed;
    size_t needed_count;
    const char *soname, *rpath, *runpath; /* NULL none */
    bool symbolic;                        /* its own definitions come first in its own look-ups
                                           * (DF_SYMBOLIC) */
    bool interpose;                       /* it comes before the libraries that are not preloaded */
    bool no_default_libraries; /* neither the cache nor the default folders are searched for it */
    bool program;              /* marked as a position-independent executable */

    Elf64_Sym *symbols; /* of the dynamic symbol table */
    size_t symbol_count;
    char *strings; /* of the dynamic section */
    uint64_t string_bytes;
    char *interpreter_text;
    struct ng_elf_range {
        uint64_t address, bytes; /* relocations */
    } relocations[2];
};

/*
 * Read a file. 0, or -errno with a short reason for the user in `ret_why`: -ENOEXEC not an ELF file
 * (or an empty one), -EBADMSG an inconsistent or truncated ELF file, others are the system's. Close
 * `ret_file` after 0 only.
 */
int ng_elf_open(const char *path, struct ng_elf_file *ret_file, const char **ret_why);
void ng_elf_close(struct ng_elf_file *file);

/* Whether it is a program (as opposed to a shared library). */
bool ng_elf_is_program(const struct ng_elf_file *file);

/* Whether another object can be bound to this function of the file by name. */
bool ng_elf_exports(const struct ng_elf_file *file, const char *name);

/* Whether the file has an undefined symbol of this name, for others to define. */
bool ng_elf_imports(const struct ng_elf_file *file, const char *name);

/* Whether any undefined symbol begins with this. */
bool ng_elf_imports_prefix(const struct ng_elf_file *file, const char *prefix);

/*
 * Whether a relocation of the file refers to this symbol by name, so that the dynamic linker
 * decides where its own use of it goes.
 */
bool ng_elf_uses_by_name(const struct ng_elf_file *file, const char *name);

/*
 * Whether the file defines this function, exported or not, unless it is stripped. Reads the whole
 * symbol table. -errno if that cannot be read (then it is not known).
 */
int ng_elf_defines(const struct ng_elf_file *file, const char *name, bool *ret_defines);

/*
 * Find `text` followed by a version anywhere in the file: a word of letters, digits, points and
 * pluses that begins with a digit and contains `part`. Stores it in `ret_word`. False: not found.
 */
bool ng_elf_find_version(const struct ng_elf_file *file, const char *text, const char *part,
                         char *ret_word, size_t bytes);

/* Whether this text is anywhere in the file. */
bool ng_elf_contains(const struct ng_elf_file *file, const char *text);

#endif
