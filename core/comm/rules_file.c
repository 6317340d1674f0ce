/*
 * Reading the rules file, and applying it.
 *
 * Entered by the guard's start, by program threads that create communicators, by the incident
 * thread, and by the reading thread. Must never let any of the first three wait for a file system,
 * except for the bounded wait at the start.
 */
#include "core/comm/rules_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "core/comm/comm.h"
#include "core/comm/rules.h"
#include "core/runtime/runtime.h"
#include "core/util/clock.h"
#include "core/util/futex.h"
#include "core/util/log.h"
#include "core/util/macros.h"
#include "core/util/memory.h"
#include "core/util/small_file.h"

_Static_assert(NG_RULES_NAME == NG_BOX_NAME_BYTES, "a name that a rule gives fits the black box");

#define PATIENCE_NS (2 * NG_S)

/* Protects `rules`, the names of groups, and the settings that rules give to communicators. Nests
 * inside the registry's lock (core/comm/comm.c); nothing that waits, allocates or locks is called
 * with it held. */
static pthread_mutex_t rules_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ng_rules *rules; /* current rules; NULL none */

static _Atomic uint32_t readings; /* futex word: number of finished readings */
static atomic_bool busy;          /* a thread is reading */
static atomic_bool again;         /* it must read once more */
static atomic_bool holding;       /* rules are in force */

static void report(void *context, const char *line)
{
    ng_log(NG_LOG_ERROR, "NCCLGUARD_RULES: %s", line);
}

/* The name of the group with this id; "" not known. */
static void name_of(uint64_t id, char ret_name[NG_RULES_NAME])
{
    const struct ng_comm *named = id ? NG_FIND_COMM(comm, NG_LOAD(comm->group->id) == id) : NULL;

    ret_name[0] = '\0';
    if (named)
        ng_box_read_name(named->group, ret_name);
}

/* Under the lock. */
static void apply(struct ng_comm *comm)
{
    struct ng_box_group *group = comm->group;
    char parent_name[NG_RULES_NAME], name[NG_RULES_NAME], pci_id[sizeof(group->pci_id) + 1] = "";
    uint64_t words[] = {NG_LOAD(group->pci_id[0]), NG_LOAD(group->pci_id[1])};
    struct ng_rules_group known = {.name = comm->given_name,
                                   .id = NG_LOAD(group->id),
                                   .parent_id = NG_LOAD(group->parent_id),
                                   .parent_name = parent_name,
                                   .nranks = NG_LOAD(group->nranks),
                                   .device = NG_LOAD(group->device),
                                   .pci_id = pci_id};
    struct ng_deadline_limits limits;

    memcpy(pci_id, words, sizeof(words));
    name_of(known.parent_id, parent_name);
    ng_rules_match(rules, &known, &limits, name);
    ng_deadline_limit(comm, &limits);
    ng_box_write_name(group, name);
}

/* Under the lock. */
static void take_name(struct ng_comm *comm, const char *name)
{
    memset(comm->given_name, 0, sizeof(comm->given_name));
    strncpy(comm->given_name, name, sizeof(comm->given_name) - 1);
    if (rules)
        apply(comm);
    else
        ng_box_write_name(comm->group, comm->given_name);
}

void ng_rules_file_begin(struct ng_comm *comm, const char *name)
{
    NG_HOLD(&rules_lock);
    ng_deadline_begin(comm);
    take_name(comm, name);
}

void ng_rules_file_rename(struct ng_comm *comm, const char *name)
{
    NG_HOLD(&rules_lock);
    take_name(comm, name);
}

static bool is_ours(uint64_t group_id)
{
    return NG_FIND_COMM(comm, NG_LOAD(comm->group->id) == group_id) != NULL;
}

enum ng_on_timeout ng_rules_file_policy(const struct ng_rules_group *group, enum ng_op op)
{
    struct ng_deadline_limits limits = {.policy = {0}};
    char name[NG_RULES_NAME];

    if ((unsigned)op >= NG_OP_LIMIT)
        op = NG_OP_NONE;
    if (!is_ours(group->id)) {
        pthread_mutex_lock(&rules_lock);
        if (rules)
            ng_rules_match(rules, group, &limits, name);
        pthread_mutex_unlock(&rules_lock);
    }
    return limits.policy[op] ? (enum ng_on_timeout)(limits.policy[op] - 1)
                             : ng_deadline_policy(group->id, op);
}

enum ng_on_timeout ng_rules_file_ceiling(uint64_t group_id, enum ng_op op)
{
    enum ng_on_timeout policy = ng_deadline_policy(group_id, op);

    if (is_ours(group_id))
        return policy;
    NG_HOLD(&rules_lock);
    return rules ? ng_rules_gravest(rules, (unsigned)op < NG_OP_LIMIT ? op : NG_OP_NONE, policy)
                 : policy;
}

void ng_rules_file_apply(struct ng_comm *comm)
{
    NG_HOLD(&rules_lock);
    if (rules)
        apply(comm);
}

/* Publish the mildest policy of this process, which others apply when it cannot act itself. Under
 * the lock. */
static void tell_mildest(void)
{
    enum ng_on_timeout mildest = (enum ng_on_timeout)ng_guard.config.on_timeout;

    if (rules)
        mildest = ng_rules_mildest(rules, mildest);
    if (ng_guard.box.header)
        NG_STORE(ng_guard.box.header->mildest_policy, (uint32_t)mildest + 1);
}

/* Make these the current rules; they replace all previous ones. */
static void hold(struct ng_rules *read)
{
    bool first = !atomic_exchange(&holding, true);

    pthread_mutex_lock(&rules_lock);
    struct ng_rules *before = rules;
    uint32_t count = ng_comm_count(), rule_count = read->count;
    rules = read;
    tell_mildest();
    /* Twice: a rule may match a name that another rule gives to a parent further down. */
    for (uint32_t i = 0; i < 2 * count; i++)
        apply(ng_comm_at(i % count));
    pthread_mutex_unlock(&rules_lock);
    if (before)
        munmap(before, sizeof(*before));
    ng_log(first ? NG_LOG_INFO : NG_LOG_WARN, "NCCLGUARD_RULES: %" PRIu32 " rule%s of %s now hold",
           rule_count, rule_count == 1 ? "" : "s", ng_guard.rules_path);
}

static const char *what_holds(void)
{
    return atomic_load(&holding) ? "the rules that were read before still hold"
                                 : "the guard continues without rules";
}

static void tell_failure(ssize_t error)
{
    ng_log(NG_LOG_ERROR, "NCCLGUARD_RULES: cannot read %s: %s; %s", ng_guard.rules_path,
           error == -ENOTSUP ? "it is no regular file" : strerror((int)-error), what_holds());
}

static void read_with(struct ng_rules *read, char *text)
{
    /* Read one byte more than allowed, to detect a file that is too large. */
    ssize_t length =
        ng_small_file_read(AT_FDCWD, ng_guard.rules_path, text, NG_RULES_BYTES_MAX + 1);

    if (length < 0) {
        tell_failure(length);
    } else if (ng_rules_parse(ng_guard.rules_path, text, (size_t)length, read, report, NULL) != 0) {
        ng_log(NG_LOG_ERROR, "NCCLGUARD_RULES: %s is not used; %s", ng_guard.rules_path,
               what_holds());
    } else {
        hold(read);
        return;
    }
    munmap(read, sizeof(*read));
}

static void read_once(void)
{
    /* Not malloc: the program may be stuck inside it. */
    struct ng_rules *read = ng_memory_reserve(sizeof(*read));
    char *text = ng_memory_reserve(NG_RULES_BYTES_MAX + 1);

    if (read && text) {
        read_with(read, text);
    } else {
        tell_failure(-ENOMEM);
        if (read)
            munmap(read, sizeof(*read));
    }
    if (text)
        munmap(text, NG_RULES_BYTES_MAX + 1);
}

static void *read_rules(void *unused)
{
    ng_guard.adopt_thread();
    do {
        atomic_store(&again, false);
        read_once();
        atomic_store(&busy, false);
        atomic_fetch_add(&readings, 1);
        ng_futex_wake_all(&readings);
        /* Serve a request that arrived just before, unless another thread already does. */
    } while (atomic_load(&again) && !atomic_exchange(&busy, true));
    return unused;
}

static void begin_reading(void)
{
    atomic_store(&again, true);
    if (atomic_exchange(&busy, true))
        return; /* the reading thread reads once more, unless the file system does not answer */
    int error = ng_guard_thread("ncclguard/rules", read_rules);
    if (error) {
        atomic_store(&again, false);
        atomic_store(&busy, false);
        tell_failure(error);
    }
}

/* Is no thread reading, or about to? */
static bool is_idle(void)
{
    return !atomic_load(&again) && !atomic_load(&busy);
}

void ng_rules_file_start(void)
{
    int64_t until = ng_clock_mono_ns() + PATIENCE_NS, left = PATIENCE_NS;

    {
        NG_HOLD(&rules_lock);
        tell_mildest();
    }
    if (!ng_guard.rules_path[0])
        return;
    begin_reading();
    for (uint32_t seen; seen = atomic_load(&readings), !is_idle() && left > 0;
         left = until - ng_clock_mono_ns())
        ng_futex_wait(&readings, seen, left);
    if (!is_idle())
        ng_log(NG_LOG_WARN,
               "NCCLGUARD_RULES: %s could not be read within %d s; the guard begins without rules",
               ng_guard.rules_path, (int)(PATIENCE_NS / NG_S));
}

void ng_rules_file_reload(void)
{
    if (!ng_guard.rules_path[0])
        ng_log(NG_LOG_WARN, "there are no rules to be read again: NCCLGUARD_RULES is not set");
    else
        begin_reading();
}

void ng_rules_file_after_fork(void)
{
    atomic_store(&busy, false);
    atomic_store(&again, false);
    atomic_store(&holding, false);
    atomic_store(&readings, 0);
    rules_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    rules = NULL; /* its memory is leaked: another thread may have been about to free it */
}
