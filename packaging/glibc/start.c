/*
 * The start of a program for glibc before 2.34. Since then the C library runs the constructors of a
 * program by itself, and the start code that the linker adds leaves that to it. The older start
 * function, which link-old chooses, is given a function that runs them; newer libraries call that,
 * too.
 *
 * Must never be linked into a build for this machine alone.
 */
#define HIDDEN __attribute__((visibility("hidden")))

typedef int main_fn(int argc, char **argv, char **environment);
typedef void init_fn(int argc, char **argv, char **environment);

extern init_fn *const __init_array_start[] HIDDEN;
extern init_fn *const __init_array_end[] HIDDEN;
extern HIDDEN void _init(void);
extern int __real___libc_start_main(main_fn *main, int argc, char **argv, init_fn *init,
                                    void (*fini)(void), void (*at_end)(void), void *stack_end);
HIDDEN int __wrap___libc_start_main(main_fn *main, int argc, char **argv, init_fn *init,
                                    void (*fini)(void), void (*at_end)(void), void *stack_end);

static void run_constructors(int argc, char **argv, char **environment)
{
    _init();
    for (init_fn *const *at = __init_array_start; at < __init_array_end; at++)
        (*at)(argc, argv, environment);
}

int __wrap___libc_start_main(main_fn *main, int argc, char **argv, init_fn *init,
                             void (*fini)(void), void (*at_end)(void), void *stack_end)
{
    return __real___libc_start_main(main, argc, argv, init ? init : run_constructors, fini, at_end,
                                    stack_end);
}
