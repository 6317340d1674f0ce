/*
 * The front door that plain preloading misses: dlsym and dlvsym, and the C library's own ones.
 *
 * Here a program that fetches NCCL by name gets our wrappers. The exported dlsym and dlvsym stand
 * in dlsym.S; everybody but us calls them under those names.
 */
#ifndef NCCLGUARD_SHIM_DLSYM_H
#define NCCLGUARD_SHIM_DLSYM_H

#pragma GCC visibility push(hidden)

/*
 * The C library's dlsym and dlvsym. The address of the call counts for RTLD_NEXT, as ever: these
 * are ours. Any thread, any time, also before constructors and inside a malloc; they take the
 * dynamic linker's lock, as the real ones do, and leave a message for dlerror where they fail.
 */
void *ng_real_dlsym(void *handle, const char *name);
void *ng_real_dlvsym(void *handle, const char *name, const char *version);

/*
 * What the program's look-up would have come to without us: the same, or an interposer's behind us.
 * For handles alone; called out of dlsym.S, which has found them.
 */
void *ng_next_dlsym(void *handle, const char *name);
void *ng_next_dlvsym(void *handle, const char *name, const char *version);

/* What dlsym.S does with a look-up: give `address` to the program, or let the C library answer. */
struct ng_door_answer {
    void *address;
    unsigned long answered;
};

/*
 * Called by dlsym.S for the names that may be of interest. `version` NULL: dlsym. `caller` is the
 * program's return address. Never answers a look-up whose result depends on the caller (RTLD_NEXT,
 * RTLD_DEFAULT): there the natural answer is right already. Keeps errno; dlerror says afterwards
 * what it would say without us.
 */
struct ng_door_answer ng_door_answer(void *handle, const char *name, const char *version,
                                     const void *caller);

#pragma GCC visibility pop

#endif
