/*
 * The doctor's examination of a program: everything between `ncclguard run` and its NCCL calls.
 *
 * Follows launchers, scripts and the closure of libraries by reading them. Must never run the
 * program.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/util/clock.h"
#include "core/util/macros.h"
#include "tools/base/owned.h"
#include "tools/base/run_helper.h"
#include "tools/base/search_path.h"
#include "tools/cmd/doctor.h"
#include "tools/inspect/launchers.h"

/* Launchers within launchers, scripts whose interpreter is a script. The kernel follows 5. */
#define DEPTH_LIMIT 8
#define ASK_NS      (10 * NG_S)

static void look(struct ng_doctor *doctor, char *const *argv, int depth);

/* "python3", "python3.11", "pypy3", "python3.13t". */
static bool is_python(const char *path)
{
    const char *name = ng_last_part(path);
    size_t length = strncmp(name, "python", 6) == 0 ? 6 : strncmp(name, "pypy", 4) == 0 ? 4 : 0;

    if (length == 0)
        return false;
    /* Builds for debugging (d, -dbg), without the GIL (t), with pymalloc (m): "python3.13t". */
    const char *rest = name + length + strspn(name + length, "0123456789.");
    return strcmp(rest + strspn(rest, "dmt"), "") == 0 || strcmp(rest, "-dbg") == 0;
}

static bool is_shell(const char *path)
{
    static const char *const names[] = {"sh", "bash", "dash", "zsh", "ksh", "fish", "csh", "tcsh"};

    return NG_ANY(name, names, NG_COUNT(names), strcmp(ng_last_part(path), *name) == 0);
}

/* Its leading options that decide where packages are searched, but none that runs anything. */
static void ask_python(struct ng_doctor *doctor, const char *path, char *const *options)
{
    char *command[20] = {(char *)path};
    size_t count = 1;
    struct ng_elf_file file;
    const char *why;

    for (; options && *options && count < 18; options++) {
        const char *word = *options;
        if (word[0] != '-' || !word[1] || word[1 + strspn(word + 1, "EsSIPbBdOquvx")] != '\0')
            break;
        /* -x, -v, -d and -q would only lengthen the answer. */
        if (strpbrk(word, "EsSIP"))
            command[count++] = *options;
    }
    /* Behind a script (pyenv's) the interpreter itself reports its location. */
    bool is_script = ng_elf_open(path, &file, &why) != 0;
    if (!is_script) {
        ng_elf_close(&file);
        size_t before = ng_findings_count(&doctor->findings, NG_FINDING_OUT);
        ng_doctor_elf(doctor, path);
        if (ng_findings_count(&doctor->findings, NG_FINDING_OUT) > before)
            return;
    }
    ng_doctor_python(doctor, command, is_script);
}

/* The first bytes of a file, ended by a zero: how many; 0 none, or it cannot be read. */
static size_t read_head(const char *path, char *ret_text, size_t bytes)
{
    NG_CLOSED int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    ssize_t count = fd >= 0 ? read(fd, ret_text, bytes - 1) : -1;

    ret_text[count > 0 ? count : 0] = '\0';
    return count > 0 ? (size_t)count : 0;
}

/* pyenv's stand-ins for the programs of the chosen Python: they report which one it is. */
static bool follow_pyenv(const char *path, const char *head, char ret_path[PATH_MAX])
{
    static const char mark[] = "exec \"", behind[] = "\" exec \"$program\"";
    const char *end = strstr(head, behind), *start = end;
    char pyenv[PATH_MAX];
    struct ng_answer answer;

    while (start && start > head && strncmp(start, mark, sizeof(mark) - 1) != 0)
        start--;
    if (!start || start == head || end - start >= PATH_MAX)
        return false;
    start += sizeof(mark) - 1;
    snprintf(pyenv, sizeof(pyenv), "%.*s", (int)(end - start), start);
    char *const argv[] = {pyenv, "which", (char *)ng_last_part(path), NULL};
    if (strcmp(ng_last_part(pyenv), "pyenv") != 0 || ng_ask(argv, NULL, ASK_NS, &answer) != 0)
        return false;
    answer.out[strcspn(answer.out, "\n")] = '\0';
    bool found = !answer.late && WIFEXITED(answer.status) && WEXITSTATUS(answer.status) == 0 &&
                 answer.out[0] == '/' && strcmp(answer.out, path) != 0;
    if (found)
        snprintf(ret_path, PATH_MAX, "%s", answer.out);
    ng_answer_fini(&answer);
    return found;
}

/*
 * pip writes this if an interpreter's path is too long for a first line: sh is to start python on
 * the same file.
 */
static bool follow_long_path(const char *head, char ret_path[PATH_MAX])
{
    static const char mark[] = "\n'''exec' ";
    const char *at = strstr(head, mark);

    if (!at)
        return false;
    at += sizeof(mark) - 1;
    bool quoted = *at == '"';
    at += quoted;
    size_t length = strcspn(at, quoted ? "\"\n" : " \n");
    if (length == 0 || length >= PATH_MAX)
        return false;
    snprintf(ret_path, PATH_MAX, "%.*s", (int)length, at);
    return true;
}

static void tell_shell_script(struct ng_doctor *doctor, const char *path)
{
    doctor->not_followed = true;
    ng_doctor_ok(doctor, path,
                 "is a shell script: the programs that it starts are guarded; to know more, name "
                 "them to `ncclguard doctor`");
}

#define RETURN_MEND "take the carriage returns out of it: sed -i 's/\\r$//'"

/*
 * A file that begins with #!. `head` is its beginning. The kernel takes the first word, and passes
 * the rest of the line, without surrounding blanks, to the interpreter as one argument.
 */
static void look_at_script(struct ng_doctor *doctor, const char *path, char *head, int depth)
{
    char interpreter[PATH_MAX], further[PATH_MAX], rest[PATH_MAX];

    char *line = head + 2 + strspn(head + 2, " \t");
    size_t length = strcspn(line, " \t\n"), to_end = strcspn(line, "\n");
    bool returns = to_end > 0 && line[to_end - 1] == '\r';
    snprintf(interpreter, sizeof(interpreter), "%.*s", (int)length, line);
    while (to_end > length && strchr(" \t", line[to_end - 1]))
        to_end--;
    while (length < to_end && strchr(" \t", line[length]))
        length++;
    snprintf(rest, sizeof(rest), "%.*s", (int)(to_end - length), line + length);
    bool by_env = strcmp(ng_last_part(interpreter), "env") == 0;
    if (!*interpreter || access(interpreter, F_OK) != 0) {
        ng_doctor_out(doctor, path, returns ? RETURN_MEND : "mend its first line",
                      "its interpreter %s does not exist%s: it cannot start", interpreter,
                      returns ? " (a carriage return is part of the name)" : "");
        return;
    }
    /* `env` itself finds out whether it can start that; -S treats a carriage return as a blank. */
    if (returns && !by_env) {
        ng_doctor_out(doctor, path, RETURN_MEND,
                      "its first line gives %s a carriage return as an argument: it cannot start",
                      interpreter);
        return;
    }
    if (is_python(interpreter)) {
        ask_python(doctor, interpreter, (char *const[]){rest, NULL});
    } else if (is_shell(interpreter) && follow_long_path(head, further)) {
        ask_python(doctor, further, NULL);
    } else if ((is_shell(interpreter) || by_env) && follow_pyenv(path, head, further)) {
        look(doctor, (char *const[]){further, NULL}, depth + 1);
    } else if (is_shell(interpreter) || (by_env && is_shell(rest))) {
        tell_shell_script(doctor, path);
    } else if (*rest) {
        look(doctor, (char *const[]){interpreter, rest, (char *)path, NULL}, depth + 1);
    } else {
        look(doctor, (char *const[]){interpreter, (char *)path, NULL}, depth + 1);
    }
}

/* The first of these words that is a program. */
static const char *find_started(char *const *arguments)
{
    for (; *arguments; arguments++)
        if ((*arguments)[0] != '-' && ng_search_program(*arguments))
            return *arguments;
    return NULL;
}

/* `arguments`: of a file that is not a known launcher, but may start one of them. */
static void look_at_binary(struct ng_doctor *doctor, const char *path, char *const *arguments)
{
    size_t out = ng_findings_count(&doctor->findings, NG_FINDING_OUT);

    doctor->started = find_started(arguments);
    ng_doctor_elf(doctor, path);
    if (ng_findings_count(&doctor->findings, NG_FINDING_OUT) == out && access(path, X_OK) != 0 &&
        !strstr(ng_last_part(path), ".so"))
        ng_doctor_out(doctor, path, "chmod +x", "may not be executed: it cannot start");
    if (doctor->started && !doctor->linked &&
        ng_findings_count(&doctor->findings, NG_FINDING_OUT) == out) {
        ng_doctor_ok(doctor, path,
                     "only this itself was looked at; if it starts %s, name that to `ncclguard "
                     "doctor`",
                     doctor->started);
        doctor->not_followed = true;
    }
    doctor->started = NULL;
}

static void look_at_file(struct ng_doctor *doctor, const char *path, char *const *arguments,
                         int depth)
{
    struct stat status = {0};
    char head[4096];

    if (stat(path, &status) == 0 && S_ISDIR(status.st_mode)) {
        ng_doctor_out(doctor, path, "name a program", "is a folder");
        return;
    }
    if (is_python(path) && access(path, X_OK) == 0) {
        ask_python(doctor, path, arguments);
        return;
    }
    size_t bytes = S_ISREG(status.st_mode) ? read_head(path, head, sizeof(head)) : 0;
    /* Text files that execve does not recognise are run with /bin/sh by execvp and shells. */
    bool marked = bytes >= 2 && strncmp(head, "#!", 2) == 0;
    bool text = bytes > 0 && strncmp(head, ELFMAG, SELFMAG) != 0 && strlen(head) == bytes;
    if (!marked && !text) {
        look_at_binary(doctor, path, arguments);
    } else if (access(path, X_OK) != 0) {
        ng_doctor_out(doctor, path, "chmod +x", "may not be executed: it cannot start");
    } else if (marked) {
        look_at_script(doctor, path, head, depth);
    } else {
        ng_findings_add(&doctor->findings, NG_FINDING_OK, path, "give it a first line: #!/bin/sh",
                        "does not say which program is to run it (no #!): /bin/sh does");
        tell_shell_script(doctor, path);
    }
}

static void tell_launcher(struct ng_doctor *doctor, const struct ng_launching *launching)
{
    static const enum ng_finding_kind kinds[] = {
        [NG_LAUNCHER_UNSEEN] = NG_FINDING_OK,
        [NG_LAUNCHER_PARTLY] = NG_FINDING_WARNING,
        [NG_LAUNCHER_CLEARS] = NG_FINDING_OUT,
        [NG_LAUNCHER_ELSEWHERE] = NG_FINDING_OUT,
    };
    char mend[512];

    if (launching->way == NG_LAUNCHER_PASSES)
        return;
    doctor->partly |= launching->way == NG_LAUNCHER_PARTLY;
    ng_findings_add(&doctor->findings, kinds[launching->way], launching->name,
                    ng_launcher_mend(launching, mend, sizeof(mend)), "%s", launching->why);
}

static void look_behind(struct ng_doctor *doctor, char *const *argv, const char *path, int depth)
{
    struct ng_launching launching;

    if (!ng_launcher_recognise(argv, &launching)) {
        look_at_file(doctor, path, argv + 1, depth);
        return;
    }
    if (launching.seen_to && launching.way != NG_LAUNCHER_PASSES &&
        launching.way != NG_LAUNCHER_UNSEEN)
        ng_doctor_ok(doctor, launching.name, "%s, but the guard is put on or passed on behind it",
                     launching.why);
    else
        tell_launcher(doctor, &launching);
    if (launching.way == NG_LAUNCHER_UNSEEN) {
        doctor->not_followed = true;
    } else if (launching.blind) {
        doctor->not_followed = true;
        ng_doctor_ok(doctor, launching.name,
                     "the program behind it was not looked at: run `ncclguard doctor` where it "
                     "runs");
    } else if (launching.program > 0) {
        look(doctor, argv + launching.program, depth + 1);
    } else if (launching.itself || !argv[1]) {
        look_at_file(doctor, path, argv + 1, depth);
    } else {
        doctor->not_followed = true;
        ng_doctor_warn(doctor, launching.name, "name the program alone: `ncclguard doctor -- PROG`",
                       "the program behind it was not recognised");
    }
}

static void look(struct ng_doctor *doctor, char *const *argv, int depth)
{
    char path[PATH_MAX];

    if (depth > DEPTH_LIMIT) {
        ng_doctor_warn(doctor, argv[0], NULL,
                       "launchers and scripts start each other without an end");
        return;
    }
    int error = ng_search_path(argv[0], path);
    if (error != 0) {
        size_t length = strlen(argv[0]);
        bool returns = length > 0 && argv[0][length - 1] == '\r';
        ng_doctor_out(doctor, argv[0],
                      returns ? RETURN_MEND : "name a program that is installed, or its path",
                      "%s%s",
                      error != -ENOENT       ? strerror(-error)
                      : strchr(argv[0], '/') ? "does not exist"
                                             : "is not found in PATH",
                      returns ? " (a carriage return is part of the name)" : "");
        return;
    }
    NG_FREED char **split = ng_launcher_split(argv);
    if (split)
        look(doctor, split, depth + 1);
    else
        look_behind(doctor, argv, path, depth);
}

void ng_doctor_program(struct ng_doctor *doctor, char *const *argv)
{
    look(doctor, argv, 0);
}
