/*
 * What a thread of this process is blocked in.
 *
 * Entered by the guard's threads. Must never access a file that the program has open: its file
 * system may be the reason why the program is stuck.
 */
#include "core/evidence/blocked_in.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/util/small_file.h"
#include "core/util/text.h"

static const struct {
    int64_t number;
    const char *name;
    bool file; /* the first argument is a descriptor, which says what is waited for */
} calls[] = {
#define NG_SYSTEM_CALL(name, file) {SYS_##name, #name, file},
#include "core/evidence/system_calls.def"
#undef NG_SYSTEM_CALL
};

static bool read_task(int tid, const char *file, char *ret_text, size_t bytes)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/self/task/%d/%s", tid, file);
    if (ng_small_file_read_text(path, ret_text, bytes) < 0)
        return false;
    ret_text[strcspn(ret_text, "\n")] = '\0';
    return true;
}

/* "202 0x7f… 0x80 0x0 0x0 0x0 0x0 0x7ffd… 0x7f…", "running", or "-1 0x7ffd… 0x7f…". */
static bool parse_call(char *text, struct ng_blocked_in *inside)
{
    char *at = text;

    inside->call = strtoll(at, &at, 10);
    if (at == text || inside->call < 0)
        return false;
    for (unsigned i = 0; i < 8; i++) {
        uint64_t value;
        char *end;
        errno = 0;
        value = strtoull(at, &end, 16);
        if (end == at)
            return false;
        at = end;
        if (i < 6)
            inside->arguments[i] = value;
        else if (i == 6)
            inside->stack = value;
        else
            inside->program = value;
    }
    return true;
}

int ng_blocked_in_read(int tid, struct ng_blocked_in *ret_inside)
{
    struct ng_blocked_in inside = {.state = '?'};
    char text[512];

    if (!read_task(tid, "stat", text, sizeof(text)))
        return -ESRCH;
    const char *field = strrchr(text, ')');
    if (field && field[1] == ' ')
        inside.state = field[2];
    if (!read_task(tid, "comm", inside.name, sizeof(inside.name)))
        inside.name[0] = '\0';
    if (read_task(tid, "wchan", inside.wait, sizeof(inside.wait)) && strcmp(inside.wait, "0") == 0)
        inside.wait[0] = '\0'; /* it is running, or we have no permission to know */
    if (read_task(tid, "syscall", text, sizeof(text)))
        inside.in_system = parse_call(text, &inside);
    *ret_inside = inside;
    return 0;
}

static void add_file(struct ng_text *text, int fd)
{
    char link[64], path[256];

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof(path) - 1);
    if (length <= 0) {
        ng_text_add(text, " of descriptor %d", fd);
        return;
    }
    path[length] = '\0';
    ng_text_add(text, " of %s", path);
}

static void add_call(struct ng_text *text, const struct ng_blocked_in *inside)
{
    for (unsigned i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        if (calls[i].number != inside->call)
            continue;
        ng_text_add(text, "in %s", calls[i].name);
        if (calls[i].file)
            add_file(text, (int)inside->arguments[0]);
        return;
    }
    ng_text_add(text, "in system call %" PRId64, inside->call);
}

void ng_blocked_in_describe(const struct ng_blocked_in *inside, char *ret_text, size_t bytes)
{
    struct ng_text text = {ret_text, 0, bytes};

    ret_text[0] = '\0';
    if (inside->in_system)
        add_call(&text, inside);
    else if (inside->state == 'R')
        ng_text_add(&text, "running");
    else if (inside->state == 'D')
        ng_text_add(&text, "in a sleep of the kernel that nothing interrupts");
    else if (inside->state == 'Z' || inside->state == 'X')
        ng_text_add(&text, "ended");
    else if (inside->state == 'T' || inside->state == 't')
        ng_text_add(&text, "stopped");
    else
        ng_text_add(&text, "waiting");
    if (inside->wait[0])
        ng_text_add(&text, " (sleeps in %s)", inside->wait);
    if (inside->in_system && inside->state == 'D')
        ng_text_add(&text, ", in a way that nothing interrupts");
}
