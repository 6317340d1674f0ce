/*
 * A program with a malloc of its own, which fetches the C library's with dlsym when it is first
 * called, and looks further names up in the middle of it.
 *
 *   door_malloc
 *
 * Prints the same with the guard preloaded as without; exits with 0 when each check holds.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static void *(*real_malloc)(size_t);
static void (*real_free)(void *);
static void *(*real_calloc)(size_t, size_t);
static void *(*real_realloc)(void *, size_t);
static __thread bool looking;
static unsigned long calls, early_calls;
static const void *next_puts, *no_such;

/* For what is asked for while we look. */
static char early[65536] __attribute__((aligned(16)));
static size_t early_used;

static bool is_early(const void *memory)
{
    return (const char *)memory >= early && (const char *)memory < early + sizeof(early);
}

static void *early_allocate(size_t size)
{
    void *memory = early + early_used;

    early_used += (size + 15) & ~(size_t)15;
    if (early_used > sizeof(early))
        abort();
    early_calls++;
    return memory;
}

static void look(void)
{
    looking = true;
    *(void **)&real_malloc = dlsym(RTLD_NEXT, "malloc");
    *(void **)&real_free = dlsym(RTLD_NEXT, "free");
    *(void **)&real_calloc = dlsym(RTLD_NEXT, "calloc");
    *(void **)&real_realloc = dlsym(RTLD_NEXT, "realloc");
    next_puts = dlsym(RTLD_NEXT, "puts");
    /* The message for dlerror is allocated, too. */
    no_such = dlsym(RTLD_NEXT, "ncclNoSuchFunction");
    looking = false;
}

EXPORT void *malloc(size_t size)
{
    __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
    if (looking)
        return early_allocate(size);
    if (!real_malloc)
        look();
    return real_malloc(size);
}

EXPORT void *calloc(size_t count, size_t size)
{
    if (looking)
        return early_allocate(count * size);
    if (!real_malloc)
        look();
    return real_calloc(count, size);
}

EXPORT void *realloc(void *memory, size_t size)
{
    void *copy;

    if (!is_early(memory) && !looking) {
        if (!real_malloc)
            look();
        return real_realloc(memory, size);
    }
    copy = malloc(size);
    if (copy && memory)
        memmove(copy, memory, size);
    return copy;
}

EXPORT void free(void *memory)
{
    if (!memory || is_early(memory))
        return;
    if (!real_malloc)
        look();
    real_free(memory);
}

static void *work(void *unused)
{
    char *memory = malloc(1000);
    void *volatile found = dlsym(RTLD_NEXT, "malloc"); /* not as a jump: we are the caller */

    memset(memory, 1, 1000);
    free(memory);
    return found;
}

int main(void)
{
    bool ok;
    void *memory = malloc(100), *found;
    pthread_t thread;

    pthread_create(&thread, NULL, work, NULL);
    pthread_join(thread, &found);
    ok = memory && found == (void *)real_malloc && real_malloc != malloc && calls >= 2 &&
         next_puts && !no_such;
    free(memory);
    printf("%s a malloc of the program's own finds the C library's\n", ok ? "ok" : "not ok");
    return !ok;
}
