/*
 * Python's own stacks, from an interpreter of the program in this process.
 *
 * Entered by the guard's threads, and briefly by the interpreter's first thread, with its lock.
 * Must be invisible to the program: it adds no module, leaves no signal handler and raises no
 * exception.
 *
 * CPython has a function that writes the stacks of all threads without a lock, since it is made for
 * crashes: _Py_DumpTracebackThreads. Builds of 3.7, 3.8, 3.11 and 3.12 were seen to export it.
 * Elsewhere the public way remains: faulthandler.register for a signal installs a handler that
 * calls it. We take that handler's address, restore the previous action of the signal, and call the
 * handler when the stacks are needed. The registration must run as Python code, and so while the
 * interpreter still runs: as a pending call, which the interpreter's first thread executes at the
 * next opportunity.
 */
#include "shim/parts.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/util/descriptor.h"
#include "core/util/macros.h"
#include "shim/dlsym.h"

/* CPython's interface; every release has these. */
static struct {
    int (*is_initialized)(void);
    const char *(*get_version)(void);
    int (*add_pending_call)(int (*call)(void *), void *argument);
    void *(*import_module)(const char *name);
    void *(*call_method)(void *object, const char *name, const char *format, ...);
    void (*release)(void *object);
    void (*clear_error)(void);
    /* Not in all releases: (fd, interpreter, thread), NULL for those of the process. */
    const char *(*dump)(int fd, void *interpreter, void *thread);
} python;

static bool found;               /* there is Python in this process */
static struct ng_descriptor out; /* a memory file to which the stacks are written */
static void (*_Atomic handler)(int number);
static atomic_int signal_number; /* the signal for which the handler believes to be called */

static bool find(void)
{
    const struct {
        const char *name;
        void **place;
    } functions[] = {
        {"Py_IsInitialized", (void **)&python.is_initialized},
        {"Py_GetVersion", (void **)&python.get_version},
        {"Py_AddPendingCall", (void **)&python.add_pending_call},
        {"PyImport_ImportModule", (void **)&python.import_module},
        {"PyObject_CallMethod", (void **)&python.call_method},
        {"Py_DecRef", (void **)&python.release},
        {"PyErr_Clear", (void **)&python.clear_error},
    };
    bool all = true;

    for (unsigned i = 0; all && i < NG_COUNT(functions); i++) {
        *functions[i].place = (void *)ng_real_dlsym(RTLD_DEFAULT, functions[i].name);
        all = *functions[i].place != NULL;
    }
    if (all)
        python.dump = (__typeof__(python.dump))(void *)ng_real_dlsym(RTLD_DEFAULT,
                                                                     "_Py_DumpTracebackThreads");
    dlerror(); /* or the program would read our error as its own */
    return all;
}

/* It is not a public function: only releases whose form of it is known are trusted. */
static bool dump_is_known(void)
{
    char *end;
    long major = strtol(python.get_version(), &end, 10);
    long minor = *end == '.' ? strtol(end + 1, NULL, 10) : 0;

    return python.dump && major == 3 && minor >= 7 && minor <= 12;
}

/* A signal that does nothing but end the process, so it has no other use here. */
static int free_signal(void)
{
    struct sigaction action;

    for (int number = SIGRTMAX - 2; number > SIGRTMIN; number--)
        if (sigaction(number, NULL, &action) == 0 && !(action.sa_flags & SA_SIGINFO) &&
            action.sa_handler == SIG_DFL)
            return number;
    return 0;
}

/* Runs on the interpreter's first thread, with its lock, between two of the program's
 * instructions. */
static int prepare_handler(void *unused)
{
    int number = free_signal(), saved = errno;
    struct sigaction before, after;

    if (!number || !ng_descriptor_ours(&out))
        return 0;
    void *module = python.import_module("faulthandler");
    /* Signal, file, all threads, no chain. */
    void *done =
        module ? python.call_method(module, "register", "iiii", number, out.fd, 1, 0) : NULL;
    if (!done)
        python.clear_error();
    before = (struct sigaction){.sa_handler = SIG_DFL};
    if (done && sigaction(number, &before, &after) == 0 && !(after.sa_flags & SA_SIGINFO) &&
        after.sa_handler != SIG_DFL && after.sa_handler != SIG_IGN) {
        atomic_store(&signal_number, number);
        atomic_store(&handler, after.sa_handler);
    }
    if (done)
        python.release(done);
    if (module)
        python.release(module);
    errno = saved;
    return 0;
}

void ng_python_prepare(void)
{
    if (!find() || !python.is_initialized())
        return;
    out = ng_descriptor_keep(memfd_create("ncclguard-python", MFD_CLOEXEC));
    if (out.fd < 0)
        return;
    found = true;
    if (!dump_is_known())
        python.add_pending_call(prepare_handler, NULL);
}

static int dump(void)
{
    void (*dump_by_handler)(int) = atomic_load(&handler);

    /* While the interpreter shuts down, its threads are torn down too, one by one. */
    if (!python.is_initialized())
        return -ENOENT;
    if (dump_is_known())
        return python.dump(out.fd, NULL, NULL) ? -ENOTSUP : 0;
    if (!dump_by_handler)
        return -EAGAIN;
    dump_by_handler(atomic_load(&signal_number));
    return 0;
}

int ng_python_read(char *ret_text, size_t bytes)
{
    if (!found)
        return -ENOENT;
    /* The program may have closed the descriptor, and reuse its number for a file of its own. */
    if (!ng_descriptor_ours(&out))
        return -EBADF;
    if (ftruncate(out.fd, 0) != 0 || lseek(out.fd, 0, SEEK_SET) != 0)
        return -errno;
    int error = dump();
    if (error)
        return error;
    ssize_t got = pread(out.fd, ret_text, bytes - 1, 0);
    if (got <= 0)
        return got < 0 ? -errno : -ENODATA;
    ret_text[got] = '\0';
    return (int)got;
}

void ng_python_after_fork(void)
{
    if (found)
        ng_descriptor_close(&out);
    found = false;
    atomic_store(&handler, NULL);
}
