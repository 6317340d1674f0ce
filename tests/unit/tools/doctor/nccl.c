/*
 * A few functions of NCCL's names, each with its twin as NCCL has it: a library, or a copy inside
 * something else.
 *
 * COPY_VERSION is what the text of the version says; HIDDEN keeps the functions inside.
 */
#ifdef HIDDEN
#define SHOWN __attribute__((visibility("hidden")))
#else
#define SHOWN __attribute__((visibility("default")))
#endif

#define API(name)                                                                                  \
    SHOWN int p##name(void);                                                                       \
    SHOWN int p##name(void)                                                                        \
    {                                                                                              \
        return text[0];                                                                            \
    }                                                                                              \
    SHOWN int name(void) __attribute__((weak, alias("p" #name)))

static const char *volatile text = "NCCL version " COPY_VERSION;

API(ncclAllReduce);
API(ncclCommInitRank);
API(ncclGetVersion);

__attribute__((visibility("default"))) int use_nccl(void);
int use_nccl(void)
{
    return ncclCommInitRank() + ncclAllReduce();
}
