/*
 * The table of launchers, and how their command lines are parsed.
 *
 * A launcher's options change with each of its versions, so there is no list of them, except those
 * that decide whether LD_PRELOAD is passed on. Only the command line of `env` is parsed exactly.
 */
#include "tools/inspect/launchers.h"

#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/util/macros.h"
#include "tools/base/owned.h"
#include "tools/base/search_path.h"

#define INSIDE_MEND "write `%s … ncclguard run PROG`, so that the guard is put on where PROG starts"
#define BOUND_MEND                                                                                   \
    "bind the folder of ncclguard into the container, at the same path, or write `%s … ncclguard " \
    "run PROG`"
#define RAY_WHY                                                                                    \
    "its workers are started by Ray's own processes, with their environment and not with this one"
#define RAY_MEND                                                                                   \
    "give the workers LD_PRELOAD and the NCCLGUARD_ variables by Ray's runtime_env "               \
    "(docs/launchers/ray.md)"

/* Lists have a space on both sides of each word. */
struct launcher {
    const char *names;
    enum ng_launcher_way way;
    void (*look)(char *const *argv, struct ng_launching *launching); /* its own rules */
    bool blind;         /* its arguments are not searched for the started program */
    int operands;       /* words before the program that may also be names of programs */
    const char *clears; /* options with which it starts the program without our environment */
    bool by_name;       /* an option whose argument is the name of a variable to pass on */
    const char *why, *mend;
};

static bool has(const char *list, const char *word, size_t length)
{
    for (const char *at = list; at && length > 0 && (at = strchr(at, ' ')) != NULL; at++)
        if (strncmp(at + 1, word, length) == 0 && at[1 + length] == ' ')
            return true;
    return false;
}

/*
 * The word that is the program. A program's name directly after an option may be that option's
 * argument (`srun -J test ./train`): it is the second-to-last choice. The last choice is a word
 * that does not follow an option: a program that does not exist.
 */
static int find_program(char *const *argv, const struct launcher *row)
{
    static const char take_two[] = " -mca --mca -gmca --gmca --prtemca --pmixmca -genv -env ";
    int operands = row->operands, doubtful = 0, missing = 0;
    bool behind_option = false, any_option = false;

    for (int i = 1; argv[i]; i++) {
        const char *word = argv[i];
        if (word[0] == '-') {
            any_option |= word[1] != '\0';
            behind_option = word[1] && strcmp(word, "--") != 0 && !strchr(word, '=');
            if (has(take_two, word, strlen(word)) && argv[i + 1] && argv[i + 2]) {
                behind_option = false;
                i += 2;
            }
            continue;
        }
        bool may = behind_option;
        behind_option = false;
        if (strchr(word, '=') || (!may && operands-- > 0))
            continue;
        if (ng_search_program(word) && !may)
            return i;
        if (ng_search_program(word) && !doubtful)
            doubtful = i;
        if (!any_option && !missing && (word[0] < '0' || word[0] > '9'))
            missing = i;
    }
    return doubtful ? doubtful : missing;
}

/* The argument of the word if it is one of these options: "" nothing; NULL it is none of them. */
static const char *value_of(char *const *word, const char *names)
{
    size_t length = strcspn(*word, "=");

    if (!has(names, *word, length))
        return NULL;
    return (*word)[length] ? *word + length + 1 : word[1] ? word[1] : "";
}

/* The argument of the last of these options before `end` (0: all); NULL none is given. */
static const char *option_of(char *const *argv, int end, const char *names)
{
    const char *value = NULL, *next;

    for (int i = 1; argv[i] && (end == 0 || i < end); i++)
        if ((next = value_of(argv + i, names)) != NULL)
            value = next;
    return value;
}

/* Whether an option passes on the variable LD_PRELOAD unchanged. */
static bool is_passed_by_name(char *const *argv)
{
    const char *value = NULL;

    for (int i = 1; argv[i] && (!value || strcmp(value, "LD_PRELOAD") != 0); i++)
        value = value_of(argv + i, " -e --env -E --setenv ");
    return value && strcmp(value, "LD_PRELOAD") == 0;
}

/* One of these options, also among letters combined in one word ("-lc"). */
static bool is_given(char *const *argv, int end, const char *names)
{
    /* A program that does not exist may be another kind of word. */
    if (end > 0 && !ng_search_program(argv[end]))
        end = 0;
    for (int i = 1; names && argv[i] && (end == 0 || i < end); i++) {
        if (has(names, argv[i], strlen(argv[i])))
            return true;
        for (const char *at = argv[i] + 1; argv[i][0] == '-' && argv[i][1] != '-' && *at; at++)
            if (has(names, (const char[]){'-', *at}, 2))
                return true;
    }
    return false;
}

/* The result of parsing `env`'s words. */
struct env {
    bool cleared;      /* LD_PRELOAD is removed, or everything is */
    const char *given; /* "LD_PRELOAD=…", the last */
    const char *text;  /* argument of -S; NULL none */
    int next;          /* index of the program's word, or of the one after -S */
};

static struct env read_env(char *const *argv)
{
    static const struct option options[] = {
        {"ignore-environment", no_argument, NULL, 'i'},
        {"unset", required_argument, NULL, 'u'},
        {"split-string", required_argument, NULL, 'S'},
        {"chdir", required_argument, NULL, 'C'},
        {"argv0", required_argument, NULL, 'a'},
        {"null", no_argument, NULL, '0'},
        {"debug", no_argument, NULL, 'v'},
        {"block-signal", optional_argument, NULL, 'b'},
        {"default-signal", optional_argument, NULL, 'b'},
        {"ignore-signal", optional_argument, NULL, 'b'},
        {"list-signal-handling", no_argument, NULL, 'b'},
        {NULL, 0, NULL, 0},
    };
    struct env env = {0};
    int count = 0, option;

    while (argv[count])
        count++;
    optind = 0; /* start over */
    opterr = 0;
    while (!env.text && (option = getopt_long(count, argv, "+iu:S:C:a:0v", options, NULL)) != -1) {
        if (option == 'i' || (option == 'u' && strcmp(optarg, "LD_PRELOAD") == 0))
            env.cleared = true;
        if (option == 'S')
            env.text = optarg;
    }
    env.next = optind;
    if (env.text)
        return env;
    if (argv[env.next] && strcmp(argv[env.next], "-") == 0) {
        env.cleared = true;
        env.next++;
    }
    /* Assignments take effect after all removals, wherever they are. */
    for (; argv[env.next] && strchr(argv[env.next], '='); env.next++)
        if (strncmp(argv[env.next], "LD_PRELOAD=", 11) == 0)
            env.given = argv[env.next];
    return env;
}

static void look_at_env(char *const *argv, struct ng_launching *launching)
{
    struct env env = read_env(argv);

    launching->program = argv[env.next] ? env.next : 0;
    if (env.given ? strstr(env.given, "libncclguard") != NULL : !env.cleared)
        return;
    launching->way = NG_LAUNCHER_CLEARS;
    launching->why = env.given ? "sets LD_PRELOAD to something else" : "takes LD_PRELOAD away";
}

/* Take the next word from a text as `env -S` does; false: there is none. Advances `to`. */
static bool split_word(const char **text, char **to)
{
    static const char between[] = " \t\n\v\f\r";
    char quote = '\0';

    *text += strspn(*text, between);
    if (!**text || **text == '#')
        return false;
    for (; **text && (quote || !strchr(between, **text)); ++*text) {
        if (!quote && (**text == '\'' || **text == '"'))
            quote = **text;
        else if (quote == **text)
            quote = '\0';
        else if (**text == '\\' && (*text)[1] && (quote != '\'' || strchr("'\\", (*text)[1])))
            *(*to)++ = *++*text;
        else
            *(*to)++ = **text;
    }
    *(*to)++ = '\0';
    return true;
}

static void look_at_srun(char *const *argv, struct ng_launching *launching)
{
    const char *list = option_of(argv, launching->program, " --export ");

    if (!list)
        list = getenv("SLURM_EXPORT_ENV");
    if (!list || strncmp(list, "ALL", 3) == 0 || strstr(list, ",ALL") || strstr(list, "LD_PRELOAD"))
        return;
    launching->way = NG_LAUNCHER_CLEARS;
    launching->why = "passes on only the variables that --export or SLURM_EXPORT_ENV names";
    launching->mend = "add ALL to the list, or write `srun … ncclguard run PROG`";
}

static void look_at_mpi(char *const *argv, struct ng_launching *launching)
{
    int end = launching->program;
    const char *nodes = getenv("SLURM_JOB_NUM_NODES");
    bool several = (nodes && atoi(nodes) > 1) || getenv("PBS_NODEFILE") || getenv("LSB_HOSTS");
    const char *hosts = option_of(argv, end,
                                  " -H -host --host -hosts -hostfile --hostfile -machinefile "
                                  "--machinefile -f -default-hostfile --default-hostfile ");

    several |= hosts && (strncmp(hosts, "localhost", 9) != 0 || strchr(hosts, ','));
    for (int i = 1; several && argv[i] && (end == 0 || i < end); i++)
        if (strstr(argv[i], "LD_PRELOAD") || strcmp(argv[i], "-genvall") == 0)
            return;
    if (!several)
        return;
    launching->way = NG_LAUNCHER_PARTLY;
    launching->why = "starts ranks on other hosts, to which LD_PRELOAD does not go by itself";
    launching->mend =
        "write `%s … ncclguard run PROG` (Open MPI also takes -x LD_PRELOAD and -x of "
        "each NCCLGUARD_ variable)";
}

/* A script, which starts the ranks of this host itself. */
static void look_at_script(bool leaves_host, struct ng_launching *launching)
{
    launching->program = 0;
    launching->itself = true;
    if (leaves_host) {
        launching->way = NG_LAUNCHER_PARTLY;
    } else {
        launching->why = NULL;
        launching->mend = NULL;
    }
}

/* Whether it starts ranks on other hosts, a file of its own decides, or /job/hostfile. */
static void look_at_deepspeed(char *const *argv, struct ng_launching *launching)
{
    look_at_script(!is_given(argv, 0, " --no_ssh ") && (option_of(argv, 0, " -H --hostfile ") ||
                                                        access("/job/hostfile", F_OK) == 0),
                   launching);
}

static void look_at_accelerate(char *const *argv, struct ng_launching *launching)
{
    const char *value = option_of(argv, 0, " --deepspeed_multinode_launcher ");

    look_at_script(option_of(argv, 0, " --deepspeed_hostfile ") &&
                       (!value || strcmp(value, "standard") != 0),
                   launching);
}

static void look_at_vllm(char *const *argv, struct ng_launching *launching)
{
    const char *value = option_of(argv, 0, " --distributed-executor-backend ");

    look_at_script(value && strcmp(value, "ray") == 0, launching);
}

static void look_at_systemd(char *const *argv, struct ng_launching *launching)
{
    if (is_given(argv, launching->program, " --scope "))
        launching->way = NG_LAUNCHER_PASSES;
}

/* Without a login they keep the environment; but a setuid program has already lost LD_PRELOAD. */
static void look_at_user_shell(char *const *argv, struct ng_launching *launching)
{
    bool login = launching->way == NG_LAUNCHER_CLEARS;

    (void)argv;
    if (login || geteuid() != 0) {
        launching->way = NG_LAUNCHER_CLEARS;
        launching->why = login ? "makes a login of another user, without LD_PRELOAD"
                               : "is setuid and starts a shell of another user without LD_PRELOAD";
    } else {
        launching->mend = NULL;
        if (launching->program > 0)
            launching->way = NG_LAUNCHER_PASSES;
    }
}

static void look_at_chroot(char *const *argv, struct ng_launching *launching)
{
    char root[PATH_MAX];

    launching->blind = true;
    for (int i = 1; i < launching->program && strcmp(launching->name, "chroot") == 0; i++)
        if (argv[i][0] != '-' && realpath(argv[i], root) && strcmp(root, "/") == 0) {
            launching->way = NG_LAUNCHER_PASSES;
            launching->blind = false;
        }
}

static const struct launcher launchers[] = {
    {" nohup catchsegv fakeroot setsid setarch linux64 linux32 x86_64 i386 i686 aarch64 uname26 "
     "unshare nice ionice chrt taskset prlimit stdbuf numactl timeout time xargs tini "
     "tini-static docker-init dumb-init catatonit strace ltrace gdb cuda-gdb valgrind ncu "
     "compute-sanitizer "},
    {" perf rr nsys ncclguard gosu su-exec flock ", .operands = 1}, /* perf stat PROG */
    {" setpriv ", .clears = " --reset-env ", .mend = INSIDE_MEND},
    {" env ", .look = look_at_env, .mend = INSIDE_MEND},
    {" srun ", .look = look_at_srun},
    {" mpirun mpiexec orterun prterun mpirun.openmpi mpiexec.openmpi mpiexec.hydra mpirun_rsh ",
     .look = look_at_mpi},
    {" deepspeed ", .look = look_at_deepspeed,
     .why = "starts the ranks of other hosts by pdsh, which does not pass LD_PRELOAD on",
     .mend = "start each host by itself: `ncclguard run -- deepspeed --no_ssh --node_rank N …`; or "
             "name LD_PRELOAD in .deepspeed_env"},
    {" accelerate ", .look = look_at_accelerate,
     .why = "has DeepSpeed start the ranks of other hosts, which does not pass LD_PRELOAD on",
     .mend = "start each host by itself: `ncclguard run -- accelerate launch "
             "--deepspeed_multinode_launcher standard --machine_rank N …`"},
    {" vllm ", .look = look_at_vllm, .why = RAY_WHY, .mend = RAY_MEND},
    {" ray ", NG_LAUNCHER_ELSEWHERE, .why = RAY_WHY, .mend = RAY_MEND},
    {" sh bash dash zsh ksh fish csh tcsh ash ", NG_LAUNCHER_UNSEEN, .blind = true,
     .why = "a shell passes the environment on; which programs its commands start is not known "
            "before"},
    {" conda mamba micromamba uv uvx poetry pipenv pixi pdm hatch rye pipx busybox ",
     NG_LAUNCHER_UNSEEN, .blind = true,
     .why =
         "which program it starts, and from where, is not known before; a child of it is guarded "
         "like any other"},
    {" sudo pkexec doas ", NG_LAUNCHER_CLEARS,
     .why = "starts the program as another user, with a new environment and without LD_PRELOAD",
     .mend = INSIDE_MEND},
    {" su runuser ", NG_LAUNCHER_UNSEEN, .look = look_at_user_shell, .clears = " - -l --login ",
     .why = "starts a shell of another user; which programs its commands start is not known before",
     .mend = "have the other user's shell start `ncclguard run PROG`"},
    {" ssh rsh ", NG_LAUNCHER_ELSEWHERE,
     .why = "runs the program on another host and does not pass LD_PRELOAD on",
     .mend = INSIDE_MEND},
    {" pdsh clush parallel-ssh pssh kubectl oc ", NG_LAUNCHER_ELSEWHERE,
     .why = "runs the program elsewhere and does not pass LD_PRELOAD on", .mend = INSIDE_MEND},
    {" sbatch qsub bsub ", NG_LAUNCHER_ELSEWHERE,
     .why = "queues a script that runs later, on another host",
     .mend = "write `ncclguard run PROG` in the script"},
    {" docker podman nerdctl ctr crictl ", NG_LAUNCHER_ELSEWHERE, .by_name = true,
     .why = "runs the program in a container, which has its own environment and files",
     .mend = "put ncclguard into the container and write `%s … ncclguard run PROG`; ranks in "
             "several containers see each other where they share NCCLGUARD_DIR"},
    {" apptainer singularity ", NG_LAUNCHER_PARTLY, .blind = true,
     .clears = " -e --cleanenv -C --containall ",
     .why =
         "passes the environment on into a container: guarded only if our library is at the same "
         "path there",
     .mend = BOUND_MEND},
    {" enroot ch-run shifter bwrap proot ", NG_LAUNCHER_PARTLY, .blind = true,
     .why = "runs the program in a container: guarded only if it passes the environment on and our "
            "library is at the same path there",
     .mend = BOUND_MEND},
    {" chroot nsenter ", NG_LAUNCHER_PARTLY, .look = look_at_chroot, .operands = 1,
     .why = "runs the program in another tree of files: guarded only if our library is at the same "
            "path there",
     .mend = INSIDE_MEND},
    {" systemd-run ", NG_LAUNCHER_CLEARS, .look = look_at_systemd, .by_name = true,
     .why = "has the service manager start the program, with an environment of its own",
     .mend = INSIDE_MEND},
};

static const struct launcher *find_row(const char *name)
{
    return NG_FIND(one, launchers, NG_COUNT(launchers), has(one->names, name, strlen(name)));
}

char **ng_launcher_split(char *const *argv)
{
    const struct launcher *row = find_row(ng_last_part(argv[0]));
    size_t count = 0, rest = 0;

    if (!row || row->look != look_at_env)
        return NULL;
    struct env env = read_env(argv);
    if (!env.text)
        return NULL;
    while (argv[env.next + (int)rest])
        rest++;
    /* At most every other character begins a word. */
    size_t length = strlen(env.text), limit = length / 2 + rest + 4;
    char **split = calloc(1, limit * sizeof(*split) + length + 2);
    if (!split)
        return NULL;
    split[count++] = argv[0];
    if (env.cleared)
        split[count++] = "-i";
    char *to = (char *)(split + limit);
    for (char *start = to; split_word(&env.text, &to); start = to)
        split[count++] = start;
    memcpy(split + count, argv + env.next, rest * sizeof(*split));
    return split;
}

/*
 * Whether the arguments enable the guard: `ncclguard run` further inside, or our library given by
 * its path. Words inside a word count too: `sh -c 'cd /data && ncclguard run PROG'`.
 */
static bool is_seen_to(char *const *argv)
{
    static const char between[] = " \t\n;&|()'\"`";
    bool guard_before = false;

    for (int i = 1; argv[i]; i++) {
        for (const char *at = argv[i] + strspn(argv[i], between); *at; at += strspn(at, between)) {
            char word[PATH_MAX];
            size_t length = strcspn(at, between);
            snprintf(word, sizeof(word), "%.*s", (int)(length < PATH_MAX ? length : 0), at);
            const char *preload = strstr(word, "LD_PRELOAD=");
            if ((guard_before && strcmp(word, "run") == 0) ||
                (preload && strstr(preload, "libncclguard")))
                return true;
            guard_before = strcmp(ng_last_part(word), "ncclguard") == 0;
            at += length;
        }
    }
    return false;
}

/* The package of `python -m PACKAGE.MODULE`; "" none, or too long for one of ours. */
static void find_package(char *const *argv, char *ret_name, size_t bytes)
{
    int i = 1;

    ret_name[0] = '\0';
    if (strncmp(ng_last_part(argv[0]), "python", 6) != 0)
        return;
    for (; argv[i] && argv[i][0] == '-' && strcmp(argv[i], "-m") != 0; i++)
        if (strcmp(argv[i], "-c") == 0)
            return;
        else if ((strcmp(argv[i], "-X") == 0 || strcmp(argv[i], "-W") == 0) && argv[i + 1])
            i++;
    if (!argv[i] || strcmp(argv[i], "-m") != 0 || !argv[i + 1])
        return;
    size_t length = strcspn(argv[i + 1], ".");
    if (length < bytes)
        snprintf(ret_name, bytes, "%.*s", (int)length, argv[i + 1]);
}

static bool is_package(const struct launcher *row)
{
    return row && (row->look == look_at_deepspeed || row->look == look_at_accelerate ||
                   row->look == look_at_vllm);
}

bool ng_launcher_recognise(char *const *argv, struct ng_launching *ret_launching)
{
    const char *name = ng_last_part(argv[0]);
    const struct launcher *row = find_row(name);
    char package[sizeof(ret_launching->name)];

    find_package(argv, package, sizeof(package));
    if (package[0] && is_package(find_row(package))) {
        name = package;
        row = find_row(package);
    }
    if (!row)
        return false;
    struct ng_launching launching = {.way = row->way,
                                     .why = row->why,
                                     .mend = row->mend,
                                     .blind = row->blind || row->way == NG_LAUNCHER_ELSEWHERE,
                                     .seen_to = is_seen_to(argv),
                                     .program = find_program(argv, row)};
    /* Only runuser's -u is followed by a program. */
    if (row->look == look_at_user_shell &&
        (strcmp(name, "runuser") != 0 || !option_of(argv, 0, " -u --user ")))
        launching.program = 0;
    snprintf(launching.name, sizeof(launching.name), "%s", name);
    if (is_given(argv, launching.program, row->clears)) {
        launching.way = NG_LAUNCHER_CLEARS;
        launching.why = "takes LD_PRELOAD away";
    }
    if (row->look)
        row->look(argv, &launching);
    if (row->by_name && is_passed_by_name(argv)) {
        launching.way = NG_LAUNCHER_PARTLY;
        launching.why = "passes LD_PRELOAD on: guarded only if our library is at the same path "
                        "where the program runs";
    }
    if (launching.blind)
        launching.program = 0;
    *ret_launching = launching;
    return true;
}

const char *ng_launcher_mend(const struct ng_launching *launching, char *ret_text, size_t bytes)
{
    const char *mend = launching->mend, *mark = mend ? strstr(mend, "%s") : NULL;

    if (!mark)
        return mend;
    snprintf(ret_text, bytes, "%.*s%s%s", (int)(mark - mend), mend, launching->name, mark + 2);
    return ret_text;
}

bool ng_launcher_strips(char *const *argv, struct ng_launching *ret_launching)
{
    struct ng_launching launching;
    NG_FREED char **split = ng_launcher_split(argv);

    if (split)
        return ng_launcher_strips(split, ret_launching);
    if (!ng_launcher_recognise(argv, &launching))
        return false;
    if (launching.way == NG_LAUNCHER_CLEARS || launching.way == NG_LAUNCHER_ELSEWHERE) {
        if (!launching.seen_to)
            *ret_launching = launching;
        return !launching.seen_to;
    }
    return launching.program > 0 && ng_launcher_strips(argv + launching.program, ret_launching);
}
