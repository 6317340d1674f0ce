/*
 * Interception of dlsym and dlvsym, which plain preloading does not cover, and access to the C
 * library's own versions.
 *
 * A program that fetches NCCL by name gets our wrappers here. The exported dlsym and dlvsym are in
 * dlsym.S; all code but ours calls them under those names.
 */
#ifndef NCCLGUARD_SHIM_DLSYM_H
#define NCCLGUARD_SHIM_DLSYM_H

#pragma GCC visibility push(hidden)

/*
 * The C library's dlsym. As usual, RTLD_NEXT is relative to the caller, which here is this library.
 * Any thread, any time, also before constructors and inside malloc. Like the real function, it
 * takes the dynamic linker's lock, and leaves a message for dlerror when it fails.
 */
void *ng_real_dlsym(void *handle, const char *name);

/*
 * What the program's look-up would have called without us: the C library's functions, or those of
 * an interposer behind us. For handles only; called from dlsym.S, which has found them.
 */
void *ng_next_dlsym(void *handle, const char *name);
void *ng_next_dlvsym(void *handle, const char *name, const char *version);

/* What dlsym.S does with a look-up: return `address` to the program, or let the C library
 * answer. */
struct ng_door_answer {
    void *address;
    unsigned long answered;
};

/*
 * Called by dlsym.S for names that may be of interest. `version` NULL: dlsym. `caller` is the
 * program's return address. Never answers a look-up whose result depends on the caller (RTLD_NEXT,
 * RTLD_DEFAULT): there the C library's answer is already right. Keeps errno; afterwards dlerror
 * reports what it would report without us.
 */
struct ng_door_answer ng_door_answer(void *handle, const char *name, const char *version,
                                     const void *caller);

#pragma GCC visibility pop

#endif
