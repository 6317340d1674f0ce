/*
 * NCCL in files: shared, static, stripped, called, or emulated.
 *
 * Evidence of NCCL: it contains the text "NCCL version 2.28.9+cuda12.9" and looks up the host's
 * addresses with getifaddrs (all releases from 2.18 to 2.32 do both). Its function names alone are
 * no evidence: JAX defines functions of all these names, including the pnccl ones, that only fetch
 * the real ones.
 */
#include "tools/inspect/nccl_file.h"

#include <stdio.h>
#include <string.h>

#include "core/util/macros.h"
#include "tools/base/search_path.h"

/* Files up to this size are searched for the text of the version, whatever they are. */
#define SMALL_BYTES ((uint64_t)64 << 20)

/* Functions that programs call and NCCL itself does not: no relocation of NCCL's own names them. */
static const char *const calls_of_programs[] = {
    "ncclAllReduce",
    "ncclReduceScatter",
    "ncclAllGather",
    "ncclReduce",
    "ncclSend",
    "ncclCommInitRank",
    "ncclCommInitRankConfig",
    "ncclRecv",
    "ncclBcast",
    "ncclCommInitAll",
    "ncclCommInitRankScalable",
};

/* NCCL's shared library is recognised by its name: a copy within another file has another one. */
static bool is_named_nccl(const struct ng_elf_file *file, const char *path)
{
    static const char prefix[] = "libnccl.so";
    const char *name = ng_last_part(path);

    return strncmp(name, prefix, sizeof(prefix) - 1) == 0 ||
           (file->soname && strncmp(file->soname, prefix, sizeof(prefix) - 1) == 0);
}

static bool defines(const struct ng_elf_file *file, const char *name, bool *unsure)
{
    bool truth = false;

    if (ng_elf_defines(file, name, &truth) != 0)
        *unsure = true;
    return truth;
}

void ng_nccl_file_examine(const struct ng_elf_file *file, const char *path,
                          struct ng_nccl_file *ret_nccl)
{
    struct ng_nccl_file nccl = {0};

    if (file->foreign) {
        *ret_nccl = nccl;
        return;
    }
    nccl.exported = ng_elf_exports(file, "ncclAllReduce");
    nccl.profiling = ng_elf_imports_prefix(file, "pnccl");
    bool named = defines(file, "ncclAllReduce", &nccl.unsure) ||
                 defines(file, "pncclAllReduce", &nccl.unsure);
    bool calls = ng_elf_imports_prefix(file, "nccl");
    bool networks = ng_elf_imports(file, "getifaddrs") || !file->needed_count;
    bool fetches = ng_elf_imports(file, "dlsym") || ng_elf_imports(file, "dlvsym");
    bool may_hold = named || networks || file->bytes <= SMALL_BYTES;
    /* "needs NCCL version 2.18" is only a message; NCCL's own text includes the CUDA version of the
     * build. */
    bool text = may_hold && ng_elf_find_version(file, "NCCL version ", "+cuda", nccl.version,
                                                sizeof(nccl.version));

    for (size_t i = 0; i < NG_COUNT(calls_of_programs); i++)
        nccl.by_name |= ng_elf_uses_by_name(file, calls_of_programs[i]);
    if (nccl.exported && is_named_nccl(file, path))
        nccl.role = NG_NCCL_LIBRARY;
    else if (text || (named && networks))
        nccl.role = NG_NCCL_INSIDE;
    else if (named && (nccl.profiling || (nccl.exported && fetches)))
        nccl.role = NG_NCCL_BETWEEN;
    else if (named && fetches)
        nccl.role = NG_NCCL_STUB;
    else if (named)
        nccl.role = NG_NCCL_INSIDE;
    else if (calls || nccl.profiling)
        nccl.role = NG_NCCL_CALLER;
    /* Only the beginning of the name: compilers put such words into the code in pieces. */
    else if (fetches && may_hold && ng_elf_imports(file, "dlopen") &&
             ng_elf_contains(file, "libnccl."))
        nccl.role = NG_NCCL_STUB;
    if (file->symbolic)
        nccl.by_name = false;
    *ret_nccl = nccl;
}

bool ng_nccl_version_tested(const char *version)
{
    int major, minor;

    return sscanf(version, "%d.%d", &major, &minor) == 2 && major == 2 && minor >= 18 &&
           minor <= 32;
}
