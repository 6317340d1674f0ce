/* Environment, last error and the table of driver functions of the stand-in for libnccl.so.2. */
#include "tests/fake/nccl/fake.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Protects last_error; innermost. */
static pthread_mutex_t error_lock = PTHREAD_MUTEX_INITIALIZER;
static char last_error[1024];

static bool debug_at_least(const char *want)
{
    static const char *const levels[] = {"VERSION", "WARN", "INFO", "ABORT", "TRACE"};
    const char *have = getenv("NCCL_DEBUG");
    int have_level = -1, want_level = 0;
    if (!have)
        return false;
    for (int i = 0; i < 5; i++) {
        if (strcasecmp(have, levels[i]) == 0)
            have_level = i;
        if (strcmp(want, levels[i]) == 0)
            want_level = i;
    }
    return have_level >= want_level;
}

void fake_warn(const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    pthread_mutex_lock(&error_lock);
    memcpy(last_error, text, sizeof(text));
    pthread_mutex_unlock(&error_lock);
    fake_trace("warning: %s", text);
    if (debug_at_least("WARN")) {
        char host[64] = "";
        gethostname(host, sizeof(host) - 1);
        printf("\n%s:%d:%ld [0] NCCL WARN %s\n", host, (int)getpid(), (long)syscall(SYS_gettid),
               text);
        fflush(stdout);
    }
}

const char *fake_last_error(void)
{
    /* The real library hands out its one buffer too; a copy for each thread keeps it unshared. */
    static _Thread_local char copy[sizeof(last_error)];
    FAKE_HOLD(&error_lock);
    memcpy(copy, last_error, sizeof(copy));
    return copy;
}

static pthread_once_t debug_once = PTHREAD_ONCE_INIT;
static bool debug_on;

static void read_debug(void)
{
    const char *value = getenv("FAKE_NCCL_DEBUG");
    debug_on = value && *value && strcmp(value, "0") != 0;
}

/* One line on stderr, in one write. */
static void write_line(const char *start, const char *format, va_list args)
{
    char line[1200];
    int n = snprintf(line, sizeof(line), "%s", start);
    n += vsnprintf(line + n, sizeof(line) - (size_t)n - 1, format, args);
    if (n > (int)sizeof(line) - 2)
        n = (int)sizeof(line) - 2;
    line[n++] = '\n';
    if (write(2, line, (size_t)n) < 0)
        return;
}

void fake_trace(const char *format, ...)
{
    char start[64];
    va_list args;
    pthread_once(&debug_once, read_debug);
    if (!debug_on)
        return;
    snprintf(start, sizeof(start), "fake nccl %d/%ld: ", (int)getpid(), (long)syscall(SYS_gettid));
    va_start(args, format);
    write_line(start, format, args);
    va_end(args);
}

_Noreturn void fake_misuse(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    write_line("fake nccl: misuse: ", format, args);
    va_end(args);
    abort();
}

void *fake_resize(void *memory, size_t bytes)
{
    void *resized = realloc(memory, bytes ? bytes : 1);
    if (!resized)
        abort();
    return resized;
}

void *fake_new(size_t bytes)
{
    return memset(fake_resize(NULL, bytes), 0, bytes);
}

long fake_env_long(const char *name, long def, long min, long max)
{
    const char *value = getenv(name);
    char *end;
    long number;
    if (!value || !*value)
        return def;
    number = strtol(value, &end, 0);
    if (*end || number < min || number > max)
        return def;
    return number;
}

/* Copies that stand for another release are compiled with theirs. */
#ifndef FAKE_NCCL_RELEASE
#define FAKE_NCCL_RELEASE NCCL_VERSION_CODE
#endif

int fake_version(void)
{
    const char *value = getenv("FAKE_NCCL_VERSION");
    int major, minor, patch = 0;
    if (value && sscanf(value, "%d.%d.%d", &major, &minor, &patch) >= 2)
        return NCCL_VERSION(major, minor, patch);
    return (int)fake_env_long("FAKE_NCCL_VERSION", FAKE_NCCL_RELEASE, 1, 10000000);
}

/* ---- the driver ---- */

static pthread_once_t cuda_once = PTHREAD_ONCE_INIT;
static struct fake_cuda cuda_table;
static bool cuda_usable;
static char cuda_reason[256];

typedef CUresult (*get_proc_address_fn)(const char *, void **, int, cuuint64_t,
                                        CUdriverProcAddressQueryResult *);

static void *cuda_find(void *handle, get_proc_address_fn get, const char *name, int version)
{
    void *found = NULL;
    CUdriverProcAddressQueryResult status;
    if (get && get(name, &found, version, CU_GET_PROC_ADDRESS_DEFAULT, &status) == CUDA_SUCCESS &&
        found)
        return found;
    return dlsym(handle, name);
}

static void load_cuda(void)
{
    struct fake_cuda *t = &cuda_table;
    void *handle = dlopen("libcuda.so.1", RTLD_NOW);
    get_proc_address_fn get;
    if (!handle) {
        snprintf(cuda_reason, sizeof(cuda_reason), "%s", dlerror());
        return;
    }
    get = (get_proc_address_fn)dlsym(handle, "cuGetProcAddress_v2");
    const struct {
        const char *name;
        int version;
        void *slot;
        bool optional;
    } rows[] = {
#define ROW(field, name, version, optional, parameters) {#name, version, &t->field, optional},
        FAKE_CUDA_FUNCTIONS(ROW)
#undef ROW
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        void *found = cuda_find(handle, get, rows[i].name, rows[i].version);
        memcpy(rows[i].slot, &found, sizeof(found));
        if (!found && !rows[i].optional) {
            snprintf(cuda_reason, sizeof(cuda_reason), "the driver lacks %s", rows[i].name);
            return;
        }
    }
    /* By its full name: the signature behind the base name depends on the version asked for. */
    void *info = dlsym(handle, "cuStreamGetCaptureInfo_v2");
    memcpy(&t->stream_get_capture_info, &info, sizeof(info));
    CUresult result = t->init(0);
    if (result != CUDA_SUCCESS) {
        snprintf(cuda_reason, sizeof(cuda_reason), "cuInit gave %d", (int)result);
        return;
    }
    cuda_usable = true;
}

const struct fake_cuda *fake_cuda(void)
{
    pthread_once(&cuda_once, load_cuda);
    if (!cuda_usable) {
        fake_warn("Cuda failure: %s", cuda_reason);
        return NULL;
    }
    return &cuda_table;
}

ncclResult_t fake_cuda_failed(CUresult result, const char *what)
{
    const char *name = NULL;
    if (cuda_table.get_error_name)
        cuda_table.get_error_name(result, &name);
    fake_warn("Cuda failure %d '%s' (%s)", (int)result, name ? name : "unknown error", what);
    return ncclUnhandledCudaError;
}

ncclResult_t fake_current_device(CUdevice *ret_device, CUcontext *ret_ctx)
{
    const struct fake_cuda *cuda = fake_cuda();
    CUcontext ctx = NULL;
    CUdevice device = 0;
    CUresult result;
    if (!cuda)
        return ncclUnhandledCudaError;
    result = cuda->ctx_get_current(&ctx);
    /* A thread that never touched CUDA is on device 0, as for the CUDA runtime. */
    if (result == CUDA_SUCCESS && !ctx)
        (void)((result = cuda->device_get(&device, 0)) ||
               (result = cuda->primary_retain(&ctx, device)) ||
               (result = cuda->ctx_set_current(ctx)));
    if (result != CUDA_SUCCESS || (result = cuda->ctx_get_device(&device)) != CUDA_SUCCESS)
        return fake_cuda_failed(result, "current device");
    *ret_device = device;
    *ret_ctx = ctx;
    return ncclSuccess;
}
