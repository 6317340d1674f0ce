/*
 * Calls every function of a real NCCL, and prints one line for each call: the same lines with and
 * without the guard.
 *
 *   release_probe WAY STORY FROM LIBRARY [LIBRARY]
 *
 *   WAY    handle   dlopen with RTLD_LOCAL, dlsym on the handle
 *          global   dlopen with RTLD_GLOBAL, dlsym on RTLD_DEFAULT
 *          linked   the program's own symbols (release_probe_linked only; LIBRARY is "-")
 *   STORY  rows     each function of the table twice with arguments of zero
 *          calls    what a program without a GPU can do, in a sensible order
 *          two      the same on two libraries in turn; the first is found by WAY, the second by
 *                   handle
 *   FROM   the first step to make: a step may crash, with and without the guard
 *
 * A step prints "begin N NAME" before the call and "NAME: OUTCOME" after it. On stderr stands from
 * which objects the functions came: "N functions from OBJECT".
 */
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

#include "shim/nccl_compat.h"

#ifdef LINKED
/* Weak, since most releases lack some of them. */
extern "C" {
#define NG_TRACK(name, major, minor, patch, op, owner, prototype, arguments, ...)                  \
    ncclResult_t nccl##name prototype __attribute__((weak));
#define NG_PASS(name, major, minor, patch, owner, type, missing, prototype, arguments, reason)     \
    type nccl##name prototype __attribute__((weak));
#include "shim/nccl_api.def"
#undef NG_TRACK
#undef NG_PASS
}
#endif

/* nccl.h does not want every one of them used. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

/* NULL where the program finds none. */
struct functions {
#define NG_TRACK(name, major, minor, patch, op, owner, prototype, arguments, ...)                  \
    ncclResult_t(*name) prototype;
#define NG_PASS(name, major, minor, patch, owner, type, missing, prototype, arguments, reason)     \
    type(*name) prototype;
#include "shim/nccl_api.def"
#undef NG_TRACK
#undef NG_PASS
};

static int first_step;
static int step;
static bool with_errno;
static std::string prefix;

/* With the name and the place of each function. */
template <typename Visit> static void each(struct functions &functions, Visit visit)
{
#define NG_TRACK(name, ...) visit("nccl" #name, functions.name);
#define NG_PASS             NG_TRACK
#include "shim/nccl_api.def"
#undef NG_TRACK
#undef NG_PASS
}

/* ---- Finding the functions ---- */

static void tell_objects(struct functions &functions)
{
    std::map<std::string, int> objects;
    Dl_info info;

    each(functions, [&](const char *, auto function) {
        if (function)
            objects[dladdr((void *)function, &info) ? info.dli_fname : "nowhere"]++;
    });
    for (const auto &[object, count] : objects)
        fprintf(stderr, "%d functions from %s\n", count, object.c_str());
}

static void find(struct functions &functions, const char *way, const char *library)
{
    functions = {};
    if (strcmp(way, "linked") == 0) {
#ifdef LINKED
#define NG_TRACK(name, ...) functions.name = nccl##name;
#define NG_PASS             NG_TRACK
#include "shim/nccl_api.def"
#undef NG_TRACK
#undef NG_PASS
#endif
    } else {
        bool global = strcmp(way, "global") == 0;
        void *handle = dlopen(library, RTLD_NOW | (global ? RTLD_GLOBAL : RTLD_LOCAL));

        if (!handle) {
            printf("dlopen: %s\n", dlerror());
            exit(1);
        }
        each(functions, [&](const char *name, auto &function) {
            function =
                (std::decay_t<decltype(function)>)dlsym(global ? RTLD_DEFAULT : handle, name);
        });
    }
    if (!functions.GetVersion) {
        printf("no ncclGetVersion by %s in %s\n", way, library);
        exit(1);
    }
    tell_objects(functions);
}

/* ---- Making a call and telling its outcome ---- */

static std::string text(ncclResult_t value)
{
    return "result " + std::to_string((int)value);
}

static std::string text(int value)
{
    return "int " + std::to_string(value);
}

static std::string text(const char *value)
{
    return value ? "text '" + std::string(value) + "'" : "text NULL";
}

static std::string text(struct ncclTeam value)
{
    return "team " + std::to_string(value.nRanks) + " " + std::to_string(value.rank) + " " +
           std::to_string(value.stride);
}

static std::string text(void *value)
{
    return value ? "an address" : "no address";
}

static bool begin(const std::string &name)
{
    if (step++ < first_step)
        return false;
    printf("begin %d %s%s\n", step - 1, prefix.c_str(), name.c_str());
    fflush(stdout);
    return true;
}

static void tell(const std::string &name, const std::string &outcome)
{
    printf("%s%s: %s\n", prefix.c_str(), name.c_str(), outcome.c_str());
    fflush(stdout);
}

static std::string error_text(int error)
{
    return with_errno ? ", errno " + std::to_string(error) : "";
}

/* One step: the call, its value and, where it is told, what the call leaves in errno. */
template <typename Value, typename... Parameters, typename... Arguments>
static void call(const std::string &name, Value (*function)(Parameters...), Arguments... arguments)
{
    if (!begin(name))
        return;
    if (!function) {
        tell(name, "absent");
        return;
    }
    errno = 0;
    if constexpr (std::is_void_v<Value>) {
        function(arguments...);
        tell(name, "void" + error_text(errno));
    } else {
        Value value = function(arguments...);
        int error = errno;

        tell(name, text(value) + error_text(error));
    }
}

template <typename Value, typename... Parameters>
static void call_with_zeros(const char *name, Value (*function)(Parameters...))
{
    call(name, function, Parameters()...);
}

/* ---- Stories ---- */

static void rows(struct functions &functions)
{
    ncclUniqueId id;
    ncclComm_t comm;
    int version;

    /* What NCCL does only once, and errno shows, is behind us then. */
    functions.GetVersion(&version);
    functions.GroupStart();
    functions.GroupEnd();
    functions.GetUniqueId(&id);
    functions.CommInitAll(&comm, 1, NULL);
    with_errno = true;
    for (int round = 0; round < 2; round++)
        each(functions, [](const char *name, auto function) { call_with_zeros(name, function); });
}

/* A configuration of a program that was built with another NCCL: nothing may read beyond `size`. */
static ncclConfig_t *config_of_size(size_t size, unsigned version)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *memory =
        (char *)mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ncclConfig_t whole = NCCL_CONFIG_INITIALIZER;

    if (memory == MAP_FAILED || size > page || mprotect(memory + page, page, PROT_NONE) != 0) {
        perror("release_probe: memory for a configuration");
        exit(1);
    }
    char *config = memory + page - size;
    for (size_t i = 0; i < size; i += sizeof(int)) {
        int undefined = NCCL_CONFIG_UNDEF_INT;
        memcpy(config + i, &undefined, sizeof(undefined));
    }
    memcpy(config, &whole, size < sizeof(whole) ? size : sizeof(whole));
    memcpy(config, &size, sizeof(size));
    ((ncclConfig_t *)config)->version = version;
    return (ncclConfig_t *)config;
}

/* Memory in place of a communicator, for functions that only read numbers of it: each number is
 * its own place. */
static ncclComm_t numbered_memory()
{
    static int memory[1 << 20];

    for (size_t i = 0; i < sizeof(memory) / sizeof(memory[0]); i++)
        memory[i] = (int)i;
    return (ncclComm_t)memory;
}

static void name_results(const struct functions &functions)
{
    for (int result = -1; result <= 9; result++)
        call("ncclGetErrorString " + std::to_string(result), functions.GetErrorString,
             (ncclResult_t)result);
}

static void version(const struct functions &functions)
{
    int number = 0;

    call("ncclGetVersion", functions.GetVersion, &number);
    if (begin("version"))
        tell("version", std::to_string(number));
}

/* Creations that end without a communicator, as they do where there is no GPU; one that succeeds
 * is destroyed. */
template <typename Value, typename... Parameters, typename... Arguments>
static void create(const struct functions &functions, const std::string &name,
                   Value (*function)(Parameters...), int count, Arguments... arguments)
{
    ncclComm_t comms[2] = {};
    call(name, function, comms, arguments...);
    for (int i = 0; i < count; i++) {
        if (!begin("its communicator"))
            continue;
        tell("its communicator", text((void *)comms[i]));
        if (comms[i])
            tell("destroyed", text(functions.CommDestroy(comms[i])));
    }
    call("ncclGetLastError", functions.GetLastError, (ncclComm_t)NULL);
}

static void calls(const struct functions &functions)
{
    ncclUniqueId id = {}, other = {}, none = {};
    int device = 0;
    void *memory = NULL;

    version(functions);
    name_results(functions);
    call("ncclGetLastError", functions.GetLastError, (ncclComm_t)NULL);
    call("ncclGroupStart", functions.GroupStart);
    call("ncclGroupStart", functions.GroupStart);
    call("ncclGroupEnd", functions.GroupEnd);
    call("ncclGroupEnd", functions.GroupEnd);
    call("ncclGroupEnd without a start", functions.GroupEnd);
    call("ncclGetUniqueId", functions.GetUniqueId, &id);
    call("ncclGetUniqueId", functions.GetUniqueId, &other);
    if (begin("ids"))
        tell("ids", std::string(memcmp(&id, &none, sizeof(id)) ? "something" : "nothing") + ", " +
                        (memcmp(&id, &other, sizeof(id)) ? "two" : "one"));

    auto init = [&](const char *name, int nranks, int rank) {
        create(functions, name, functions.CommInitRank, 1, nranks, id, rank);
    };
    init("ncclCommInitRank", 1, 0);
    init("ncclCommInitRank of no ranks", 0, 0);
    init("ncclCommInitRank beyond the last", 1, 1);
    create(functions, "ncclCommInitAll", functions.CommInitAll, 1, 1, nullptr);
    create(functions, "ncclCommInitAll of device 0", functions.CommInitAll, 1, 1, &device);
    create(functions, "ncclCommInitAll of two", functions.CommInitAll, 2, 2, nullptr);
    ncclConfig_t *nonblocking = config_of_size(24, NCCL_VERSION(2, 14, 3));
    nonblocking->blocking = 0;
    /* 24 bytes: up to `blocking`, as 2.14 had it; 4096: as it may be one day. */
    for (const auto &[which, config] :
         std::initializer_list<std::pair<const char *, ncclConfig_t *>>{
             {" of 2.14", config_of_size(24, NCCL_VERSION(2, 14, 3))},
             {" of 2.18", config_of_size(48, NCCL_VERSION(2, 18, 3))},
             {" of 2.28", config_of_size(sizeof(ncclConfig_t), NCCL_VERSION_CODE)},
             {" of the future", config_of_size(4096, NCCL_VERSION(2, 99, 0))},
             {" without one", nullptr},
             {", nonblocking", nonblocking}})
        create(functions, std::string("ncclCommInitRankConfig") + which,
               functions.CommInitRankConfig, 1, 1, id, 0, config);
    create(functions, "ncclCommInitRankScalable", functions.CommInitRankScalable, 1, 1, 0, 1, &id,
           nullptr);

    call("ncclGroupStart", functions.GroupStart);
    init("ncclCommInitRank in a group", 1, 0);
    create(functions, "ncclCommInitAll in a group", functions.CommInitAll, 1, 1, &device);
    call("ncclGroupEnd", functions.GroupEnd);
    call("ncclGetLastError", functions.GetLastError, (ncclComm_t)NULL);

    call("ncclMemAlloc", functions.MemAlloc, &memory, (size_t)1 << 21);
    call("ncclGetErrorString 1 again", functions.GetErrorString, (ncclResult_t)1);

    struct ncclTeam team = {4, 1, 2};
    call("ncclTeamWorld", functions.TeamWorld, numbered_memory());
    call("ncclTeamRankToWorld", functions.TeamRankToWorld, numbered_memory(), team, 3);
    call("ncclLLA2ACalcSlots", functions.LLA2ACalcSlots, 37, 16);
    version(functions);
}

int main(int argc, char **argv)
{
    if (argc < 5 || argc > 6) {
        fprintf(stderr, "usage: release_probe WAY STORY FROM LIBRARY [LIBRARY]\n");
        return 2;
    }
    const char *way = argv[1];
    const std::string story = argv[2];
    struct functions first, second;

    first_step = atoi(argv[3]);
    find(first, way, argv[4]);
    if (argc == 6)
        find(second, "handle", argv[5]);
    if (story == "rows") {
        rows(first);
    } else if (story == "calls") {
        calls(first);
    } else if (story == "two" && argc == 6) {
        for (int round = 0; round < 2; round++) {
            prefix = "first ";
            version(first);
            prefix = "second ";
            version(second);
        }
        prefix = "first ";
        calls(first);
        prefix = "second ";
        calls(second);
        prefix = "first again ";
        calls(first);
    } else {
        fprintf(stderr, "release_probe: no story %s of %d libraries\n", argv[2], argc - 4);
        return 2;
    }
    printf("done %d\n", step);
    return 0;
}
