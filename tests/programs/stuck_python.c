/* A C extension that holds the interpreter's lock and does not come back. Loaded by stuck_python.py
 * with ctypes.PyDLL, which keeps the lock, so that no header of Python is needed. */
#include <unistd.h>

static volatile unsigned long turns;

/* Local, so that only the file's own symbol table knows its name. */
__attribute__((noinline)) static void stuck_in_loop(void)
{
    do
        turns++;
    while (turns != 0);
}

__attribute__((visibility("default"))) int stuck_python_extension(int spin)
{
    if (spin)
        stuck_in_loop();
    else
        pause();
    return (int)turns; /* not a jump: the function stays on the stack */
}
