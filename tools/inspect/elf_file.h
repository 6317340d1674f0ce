/*
 * Reads ELF files (programs and shared libraries) without trusting a byte of them.
 *
 * For `ncclguard doctor` and `ncclguard run`; one thread. Files of this machine's kind (64 bits,
 * little-endian, x86-64 or aarch64) are read; of others only the kind is told. Nothing of the file
 * is ever run or loaded.
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

    /* What it is. All below is empty if `foreign`. */
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
    bool symbolic;                        /* its own definitions come first in its own look-ups */
    bool interpose;                       /* comes before the libraries that are not preloaded */
    bool no_default_libraries; /* neither cache nor default folders are searched for it */
    bool program;              /* a position-independent executable says so itself */

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
 * Read a file. 0, or -errno and in `ret_why` a few words for the user: -ENOEXEC is no ELF file (or
 * an empty one), -EBADMSG an ELF file that contradicts itself or ends too early, others are the
 * system's. `ret_file` is to be closed after 0 only.
 */
int ng_elf_open(const char *path, struct ng_elf_file *ret_file, const char **ret_why);
void ng_elf_close(struct ng_elf_file *file);

/* Whether it is a program (as opposed to a shared library). */
bool ng_elf_is_program(const struct ng_elf_file *file);

/* Whether another object can be bound to this function of the file by name. */
bool ng_elf_exports(const struct ng_elf_file *file, const char *name);

/* Whether the file asks for a symbol of this name that others are to define. */
bool ng_elf_imports(const struct ng_elf_file *file, const char *name);

/* Whether any symbol that is asked for begins with this. */
bool ng_elf_imports_prefix(const struct ng_elf_file *file, const char *prefix);

/*
 * Whether a relocation of the file refers to this symbol by name: its own use of it goes where the
 * dynamic linker decides.
 */
bool ng_elf_uses_by_name(const struct ng_elf_file *file, const char *name);

/*
 * Whether the file defines this function, exported or not, as far as it is not stripped. Reads the
 * whole table of symbols. -errno when that cannot be read (then it is not known).
 */
int ng_elf_defines(const struct ng_elf_file *file, const char *name, bool *ret_defines);

/*
 * Find `text` followed by a version anywhere in the file: a word of letters, digits, points and
 * pluses that begins with a digit and contains `part`. It goes to `ret_word`. False: not there.
 */
bool ng_elf_find_version(const struct ng_elf_file *file, const char *text, const char *part,
                         char *ret_word, size_t bytes);

/* Whether this text is anywhere in the file. */
bool ng_elf_contains(const struct ng_elf_file *file, const char *text);

#endif
