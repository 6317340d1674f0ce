/*
 * The table of launchers, and how their command lines are read.
 *
 * Must never guess in silence: where an option is not known, it is told, and a word is taken for
 * the program only if it is one.
 */
#include "tools/inspect/launchers.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/base/argv_scan.h"
#include "tools/base/search_path.h"

#define INSIDE_MEND "write `%s … ncclguard run PROG`, so that the guard is put on where PROG starts"
#define SHELL_WHY                                                                                  \
    "a shell passes the environment on; which programs its commands start is not known before"

enum special { NONE, ENV, MPI, SRUN, ASSIGNS, SYSTEMD, SETARCH, USER_SHELL, CHROOT, DEEPSPEED };

/* Lists have a space on both sides of each word. */
static const struct launcher {
    const char *names;
    enum ng_launcher_way way;
    enum special special;
    int operands; /* before the program */
    bool blind;   /* what it starts is not looked for in the arguments */
    struct ng_word_rules rules;
    const char *clears;  /* options that have it start the program without our environment */
    const char *by_name; /* options that take the name of a variable that is to be passed on */
    const char *why, *mend;
} launchers[] = {
    {" nohup catchsegv fakeroot ", .rules = {.flags = ""}},
    {" setsid ", .rules = {.flags = " -c --ctty -f --fork -w --wait "}},
    {" setarch linux64 linux32 x86_64 i386 i686 aarch64 uname26 ", .special = SETARCH,
     .rules = {.flags = " -R --addr-no-randomize -v --verbose -3 --3gb -B --32bit -X "
                        "--read-implies-exec -Z --mmap-page-zero -L --addr-compat-layout "}},
    {" unshare ",
     .rules = {.takes = " -S --setuid -G --setgid -w --wd --map-user --map-group ",
               .flags = " -m --mount -u --uts -i --ipc -n --net -p --pid -U --user -C --cgroup -T "
                        "--time -f --fork -r --map-root-user -c --map-current-user --mount-proc "
                        "--kill-child --keep-caps "}},
    {" nice ", .rules = {.takes = " -n --adjustment ", .flags = " -0 -1 -2 -3 -4 -5 -6 -7 -8 -9 "}},
    {" ionice ", .rules = {.takes = " -c --class -n --classdata ", .flags = " -t --ignore "}},
    {" chrt ", .operands = 1,
     .rules = {.takes = " -T --sched-runtime -P --sched-period -D --sched-deadline ",
               .flags = " -b --batch -d --deadline -f --fifo -i --idle -o --other -r --rr -R "
                        "--reset-on-fork -a --all-tasks -v --verbose "}},
    {" taskset ", .operands = 1, .rules = {.flags = " -a --all-tasks -c --cpu-list "}},
    /* Their limits stand in the same word. */
    {" prlimit ", .rules = {.takes = " -c -d -e -f -i -l -m -n -q -r -s -t -u -v -x -y ",
                            .flags = " --verbose "}},
    {" stdbuf ", .rules = {.takes = " -i --input -o --output -e --error ", .flags = ""}},
    {" numactl ",
     .rules = {.takes = " -i --interleave -w --weighted-interleave -p --preferred -P "
                        "--preferred-many -N --cpunodebind -C --physcpubind -m --membind -b "
                        "--balancing --touch ",
               .flags = " -a --all -l --localalloc "}},
    {" timeout ", .operands = 1,
     .rules = {.takes = " -k --kill-after -s --signal ",
               .flags = " --preserve-status --foreground -v --verbose "}},
    {" flock ", .operands = 1,
     .rules = {.takes = " -w --wait --timeout -E --conflict-exit-code ",
               .flags = " -s --shared -x -e --exclusive -n --nb --nonblock -o --close -F --no-fork "
                        "--verbose "}},
    {" time ", .rules = {.takes = " -f --format -o --output ",
                         .flags = " -a --append -p --portability -v --verbose -q --quiet "}},
    {" xargs ",
     .rules = {.takes = " -a --arg-file -d --delimiter -E -I -L --max-lines -n --max-args -P "
                        "--max-procs -s --max-chars --process-slot-var ",
               .flags =
                   " -0 --null -r --no-run-if-empty -p --interactive -t --verbose -x --exit -o "
                   "--open-tty "}},
    {" setpriv ",
     .rules = {.takes = " --reuid --regid --ruid --euid --rgid --egid --groups --inh-caps "
                        "--ambient-caps --bounding-set --securebits --pdeathsig --selinux-label "
                        "--apparmor-profile ",
               .flags =
                   " --clear-groups --init-groups --keep-groups --no-new-privs --nnp --reset-env "},
     .clears = " --reset-env ", .mend = INSIDE_MEND},
    {" gosu su-exec ", .operands = 1, .rules = {.flags = ""}},
    {" tini tini-static docker-init dumb-init catatonit ",
     .rules = {.takes = " -p -e -r --rewrite ",
               .flags = " -g -s -v -vv -vvv -w -c --single-child --verbose "}},
    {" strace ",
     .rules = {.takes =
                   " -a --columns -b --detach-on -e --trace -E --env -I -o --output -O "
                   "--summary-syscall-overhead -p --attach -P --trace-path -s --string-limit -S "
                   "-u --user -U -X ",
               .flags =
                   " -A -c -C -d -D -DD -DDD -f -ff -F -h -i -k -n -N -q -qq -r -t -tt -ttt -T "
                   "-v -V -w -x -xx -y -yy -z -Z --follow-forks --output-separately "
                   "--summary-only --summary --quiet --stack-traces --seccomp-bpf "}},
    {" ltrace ",
     .rules = {.takes = " -a --align -A -D --debug -e -F --config -l --library -n --indent -o "
                        "--output -p -s -u -w --where -x ",
               .flags = " -b --no-signals -c -C --demangle -f -i -L -r -S -t -tt -ttt -T -V "}},
    {" gdb ",
     .rules = {.takes = " -x --command -command -ex --eval-command -eval-command -iex "
                        "--init-eval-command -ix --init-command -cd --cd -d --directory -b -l -p "
                        "--pid -c --core -s --symbols -e --exec -se -tty --tty -D ",
               .flags = " --args -args --batch -batch --quiet -quiet --silent -q --nx -nx -n --nh "
                        "-nh --return-child-result -return-child-result --readnow --tui -tui -nw "
                        "--nw --write ",
               .single_dash = true}},
    {" cuda-gdb ", .rules = {.takes = " -x -ex --eval-command -iex -ix -cd -d -p --pid ",
                             .flags = " --args -args --batch -batch --quiet -q --nx -nx ",
                             .single_dash = true}},
    {" perf ", .operands = 1,
     .rules = {.takes =
                   " -e --event -o --output -F --freq -c --count -p --pid -t --tid -C --cpu -r "
                   "--repeat -I --interval-print -x --field-separator --call-graph -m "
                   "--mmap-pages -D --delay -M --metrics -u --uid -G --cgroup -k --clockid ",
               .flags =
                   " -a --all-cpus -g -d -dd -ddd --detailed -s --stat -v --verbose -q --quiet "
                   "-A --no-aggr -B --big-num -i --no-inherit -n -R -T -P -W -N --per-core "
                   "--per-socket --per-thread --no-buildid --table --summary -S --scale "}},
    {" valgrind ", .rules = {.flags = " -v --verbose -q --quiet -d "}},
    {" rr ", .operands = 1, .rules = {.flags = " -h --chaos -n --no-syscall-buffer -w --wait "}},
    {" nsys ", .operands = 1,
     .rules = {.takes = " -o --output -t --trace -s --sample -c --capture-range -f "
                        "--force-overwrite -w --show-output -x --stop-on-exit -y --delay -d "
                        "--duration -e --env-var -b --backtrace -k --kill -n --inherit-environment "
                        "-p --nvtx-capture --stats --wait --cudabacktrace --cuda-memory-usage "
                        "--cuda-graph-trace --cuda-flush-interval --cpuctxsw --export "
                        "--capture-range-end --session-new --trace-fork-before-exec "
                        "--gpu-metrics-device --gpu-metrics-devices --gpu-metrics-frequency "
                        "--gpu-metrics-set --nic-metrics --osrt-threshold --python-sampling "
                        "--python-backtrace --pytorch --run-as --samples-per-backtrace --wait ",
               .flags = ""}},
    {" ncu ",
     .rules = {.takes = " -o --export -k --kernel-name -c --launch-count -s --launch-skip --set "
                        "--section --metrics --target-processes --target-processes-filter "
                        "--replay-mode --app-replay-mode --log-file --devices --cache-control "
                        "--clock-control --nvtx-include --nvtx-exclude --page --import-source "
                        "--kernel-id --graph-profiling --profile-from-start --range-filter "
                        "--config-file --config-file-path --section-folder ",
               .flags = " -f --force-overwrite --nvtx --csv --quiet -v --verbose --call-stack "}},
    {" compute-sanitizer ",
     .rules = {.takes =
                   " --tool --log-file --target-processes --target-processes-filter "
                   "--kernel-name --kernel-regex --launch-count --launch-skip --launch-timeout "
                   "--error-exitcode --print-level --print-limit --save --xml --leak-check "
                   "--padding --report-api-errors --show-backtrace --injection-path ",
               .flags = " --demangle --force-blocking-launches --nvtx "}},
    {" ncclguard ", .operands = 1,
     .rules = {.takes = " --timeout --on-timeout --store --out --fault ", .flags = " --json "}},
    {" env ", .special = ENV,
     .rules = {.takes = " -u --unset -C --chdir -a --argv0 -S --split-string ",
               .flags = " -i --ignore-environment -0 --null -v --debug --block-signal "
                        "--default-signal --ignore-signal --list-signal-handling --help --version ",
               .abbreviates = true},
     .clears = " -i --ignore-environment - ", .mend = INSIDE_MEND},
    {" sh bash dash zsh ksh fish csh tcsh ash ", NG_LAUNCHER_UNSEEN, .blind = true,
     .why = SHELL_WHY},
    {" conda mamba micromamba uv uvx poetry pipenv pixi pdm hatch rye pipx busybox ",
     NG_LAUNCHER_UNSEEN, .blind = true,
     .why =
         "which program it starts, and from where, is not known before; a child of it is guarded "
         "like any other"},
    {" sudo pkexec doas ", NG_LAUNCHER_CLEARS, .special = ASSIGNS,
     .rules = {.takes = " -u --user -g --group -h --host -p --prompt -C --close-from -r --role -t "
                        "--type -T --command-timeout -U --other-user -D --chdir -R --chroot -a ",
               .flags =
                   " -A --askpass -b --background -B --bell -E --preserve-env -e -H --set-home "
                   "-i --login -K -k --reset-timestamp -l -n --non-interactive -P "
                   "--preserve-groups -S --stdin -s --shell -v -V -L --disable-internal-agent "
                   "--keep-cwd "},
     .why = "starts the program as another user, with a new environment and without LD_PRELOAD",
     .mend = INSIDE_MEND},
    {" su runuser ", NG_LAUNCHER_UNSEEN, .special = USER_SHELL,
     .rules = {.takes = " -c --command --session-command -g --group -G --supp-group -s --shell -u "
                        "--user -w --whitelist-environment ",
               .flags =
                   " -l --login - -f --fast -m -p --preserve-environment -P --pty -T --no-pty "},
     .clears = " - -l --login ", .why = SHELL_WHY,
     .mend = "have the other user's shell start `ncclguard run PROG`"},
    {" ssh rsh ", NG_LAUNCHER_ELSEWHERE, .blind = true,
     .why = "runs the program on another host and does not pass LD_PRELOAD on",
     .mend = INSIDE_MEND},
    {" pdsh clush parallel-ssh pssh kubectl oc ", NG_LAUNCHER_ELSEWHERE, .blind = true,
     .why = "runs the program elsewhere and does not pass LD_PRELOAD on", .mend = INSIDE_MEND},
    {" docker podman nerdctl ctr crictl ", NG_LAUNCHER_ELSEWHERE, .blind = true,
     .by_name = " -e --env ",
     .why = "runs the program in a container, which has its own environment and files",
     .mend = "put ncclguard into the container and write `%s … ncclguard run PROG`; ranks in "
             "several containers see each other where they share NCCLGUARD_DIR"},
    {" apptainer singularity ", NG_LAUNCHER_PARTLY, .operands = 1, /* exec, run … */
     .blind = true,
     .rules = {.flags = " -e --cleanenv -C --containall --contain -c --nv --rocm -f --fakeroot -w "
                        "--writable --writable-tmpfs -p --pid -i --ipc -n --net --no-home ",
               .takes = " -B --bind -H --home --env --env-file -W --workdir --pwd --cwd --mount "},
     .clears = " -e --cleanenv -C --containall ",
     .why =
         "passes the environment on into a container: guarded only if our library is at the same "
         "path there",
     .mend = "bind the folder of ncclguard into the container, at the same path, or write `%s … "
             "ncclguard run PROG`"},
    {" enroot ch-run shifter bwrap proot ", NG_LAUNCHER_PARTLY, .blind = true,
     .why = "runs the program in a container: guarded only if it passes the environment on and our "
            "library is at the same path there",
     .mend = "bind the folder of ncclguard into the container, at the same path, or write `%s … "
             "ncclguard run PROG`"},
    {" chroot nsenter ", NG_LAUNCHER_PARTLY, .special = CHROOT, .operands = 1,
     .rules = {.takes = " --groups --userspec ", .flags = " --skip-chdir "},
     .why = "runs the program in another tree of files: guarded only if our library is at the same "
            "path there",
     .mend = INSIDE_MEND},
    {" systemd-run ", NG_LAUNCHER_CLEARS, .special = SYSTEMD,
     .rules = {.takes =
                   " -p --property -u --unit -E --setenv -M --machine -H --host --uid --gid "
                   "--nice --description --slice --working-directory --on-active --on-calendar "
                   "--on-boot --on-startup --service-type --timer-property ",
               .flags =
                   " --scope --user --system -t --pty -P --pipe -q --quiet --wait -G --collect "
                   "-d --same-dir --no-block -r --remain-after-exit -S --shell "
                   "--no-ask-password --send-sighup --slice-inherit "},
     .by_name = " -E --setenv ",
     .why = "has the service manager start the program, with an environment of its own",
     .mend = INSIDE_MEND},
    {" sbatch qsub bsub ", NG_LAUNCHER_ELSEWHERE, .blind = true,
     .why = "queues a script that runs later, on another host",
     .mend = "write `ncclguard run PROG` in the script"},
    {" srun ", .special = SRUN,
     .rules = {.takes = " -n --ntasks -N --nodes -c --cpus-per-task -p --partition -t --time -J "
                        "--job-name -A --account -w --nodelist -x --exclude -o --output -e --error "
                        "-i --input -D --chdir -d --dependency -q --qos -G --gpus -C --constraint "
                        "-m --distribution -r --relative -a --array -B --extra-node-info -I "
                        "--immediate -L --licenses -M --clusters -S --core-spec -T --threads -W "
                        "--wait --gres --mem --mem-per-cpu --mem-per-gpu --mpi --export --cpu-bind "
                        "--gpu-bind --mem-bind --gpus-per-task --gpus-per-node --gpus-per-socket "
                        "--ntasks-per-node --ntasks-per-gpu --ntasks-per-core --ntasks-per-socket "
                        "--cpus-per-gpu --tres-per-task --tres-bind --jobid --het-group --network "
                        "--hint --kill-on-bad-exit --signal --reservation --container-image "
                        "--container-mounts --container-workdir --container-name --container "
                        "--prolog --epilog --task-prolog --task-epilog --profile --gpu-freq "
                        "--cpu-freq --multi-prog-file --tmp --uid --gid --comment --switches "
                        "--deadline --begin --nice --open-mode --propagate --acctg-freq ",
               .flags = " -K -l --label -u --unbuffered -v --verbose -vv -vvv -Q --quiet -E "
                        "--preserve-env -O --overcommit -s --oversubscribe --overlap --exclusive "
                        "--exact --pty -X --disable-status -H --hold -k --no-kill -Z "
                        "--no-allocate --contiguous --spread-job --use-min-nodes "
                        "--container-mount-home --no-container-mount-home --container-writable "
                        "--container-remap-root --no-container-entrypoint "}},
    {" mpirun mpiexec orterun prterun mpirun.openmpi mpiexec.openmpi mpiexec.hydra mpirun_rsh ",
     .special = MPI,
     .rules =
         {.takes =
              " -n --n -np --np -c -N -npernode --npernode --npersocket --map-by -map-by "
              "--bind-to -bind-to --rank-by -rank-by -H -host --host -hosts -f -hostfile "
              "--hostfile -machinefile --machinefile -default-hostfile --default-hostfile -ppn "
              "-perhost -wdir --wdir -wd -rf --rankfile --prefix --timeout --output-filename "
              "-output-filename --output -am --tune -rmk -launcher -iface -genvlist -envlist "
              "--app -configfile -x --x --personality --display --prtemca-file --path "
              "--preload-files --stdin --cpu-set --cpu-list --pernode-limit -bootstrap "
              "-outfile-pattern -errfile-pattern -usize -prot ",
          .takes_two = " -mca --mca -gmca --gmca --prtemca --pmixmca -genv -env ",
          .flags =
              " -v -V --verbose -verbose -q --quiet -d --debug --oversubscribe -oversubscribe "
              "--allow-run-as-root -allow-run-as-root --report-bindings -report-bindings "
              "--pernode -pernode --bynode -bynode --byslot -byslot --by-node --tag-output "
              "-tag-output --timestamp-output --use-hwthread-cpus --nolocal -nolocal "
              "--display-map -display-map --display-allocation --display-topo --nooversubscribe "
              "-nooversubscribe --noprefix --novm --enable-recovery --preload-binary "
              "--merge-stderr-to-stdout --continuous --xml -l -prepend-rank -genvall -genvnone "
              "-envall -envnone -print-all-exitcodes -disable-auto-cleanup ",
          .single_dash = true}},
    /* On one host it is a program as any other. */
    {" deepspeed ", NG_LAUNCHER_PARTLY, .special = DEEPSPEED,
     .rules = {.takes = " -H --hostfile -i --include -e --exclude --num_nodes --min_elastic_nodes "
                        "--max_elastic_nodes --num_gpus --num_accelerators --master_port "
                        "--master_addr --node_rank --launcher --launcher_args --save_pid "
                        "--enable_each_rank_log --autotuning --venv_script --ssh_port "
                        "--bind_core_list ",
               .flags = " --no_ssh --no_ssh_check --elastic_training --no_python -m --module "
                        "--no_local_rank --force_multi --bind_cores_to_rank "},
     .why = "starts the ranks of other hosts by ssh (pdsh), which does not pass LD_PRELOAD on",
     .mend = "start each host yourself, `ncclguard run -- %s --no_ssh --node_rank N …`, or set "
             "LD_PRELOAD in .deepspeed_env"},
};
#define LAUNCHER_COUNT (sizeof(launchers) / sizeof(launchers[0]))

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool is_assignment(const char *word)
{
    return word[0] != '-' && strchr(word, '=') != NULL;
}

static bool is_program(const char *word)
{
    char path[PATH_MAX];
    struct stat status;

    return ng_search_path(word, path) == 0 && access(path, X_OK) == 0 && stat(path, &status) == 0 &&
           S_ISREG(status.st_mode);
}

/* What stands behind an option of which nobody knows whether it takes something, may be either. */
static bool is_truth(const char *word)
{
    return strcmp(word, "true") == 0 || strcmp(word, "false") == 0 || strcmp(word, "yes") == 0;
}

/*
 * The word behind the launcher's own options, assignments (where it takes them) and operands; in
 * passing, options that clear the environment.
 */
static void read_words(char *const *argv, const struct launcher *row,
                       struct ng_launching *launching, bool *ret_clears)
{
    struct ng_words words = {.argv = argv, .rules = &row->rules};
    int operands = row->operands, unknown_at = 0;
    bool unsure = row->special == SETARCH;
    bool assigns = row->special == ENV || row->special == ASSIGNS;

    *ret_clears = false;
    for (;;) {
        struct ng_word word = ng_argv_scan_next(&words);
        const char *text = argv[word.index];
        switch (word.kind) {
        case NG_WORD_END:
            return;
        case NG_WORD_OPTION:
            *ret_clears |= row->clears && ng_argv_scan_has(row->clears, word.name);
            if (row->special == USER_SHELL &&
                (strcmp(word.name, "-u") == 0 || strcmp(word.name, "--user") == 0))
                operands = 0;
            break;
        case NG_WORD_UNKNOWN:
            unsure = true;
            unknown_at = word.index;
            launching->unknown = text;
            break;
        case NG_WORD_OPERAND:
            if (strcmp(text, "-") == 0 && row->clears && ng_argv_scan_has(row->clears, "-")) {
                *ret_clears = true;
            } else if (!(assigns && is_assignment(text)) && operands-- <= 0) {
                bool behind = unknown_at > 0 && word.index == unknown_at + 1;
                if (unsure && (!is_program(text) || (behind && is_truth(text))))
                    break;
                launching->program = word.index;
                if (!behind)
                    launching->unknown = NULL;
                return;
            }
            break;
        }
    }
}

/* The last argument of an option before `end` (0: all), in any of its spellings; NULL not given. */
static const char *option_of(char *const *argv, int end, const struct launcher *row,
                             const char *names)
{
    struct ng_words words = {.argv = argv, .rules = &row->rules};
    const char *value = NULL;

    for (;;) {
        struct ng_word word = ng_argv_scan_next(&words);
        if (word.kind == NG_WORD_END || (end > 0 && word.index >= end))
            return value;
        if (word.kind == NG_WORD_OPTION && ng_argv_scan_has(names, word.name))
            value = word.value ? word.value : "";
    }
}

static void look_at_env(char *const *argv, const struct launcher *row,
                        struct ng_launching *launching, bool cleared)
{
    struct ng_words words = {.argv = argv, .rules = &row->rules};
    const char *given = NULL;

    for (;;) {
        struct ng_word word = ng_argv_scan_next(&words);
        if (word.kind == NG_WORD_END || (launching->program && word.index >= launching->program))
            break;
        if (word.kind == NG_WORD_OPTION && word.value &&
            (strcmp(word.name, "-u") == 0 || strcmp(word.name, "--unset") == 0))
            cleared |= strcmp(word.value, "LD_PRELOAD") == 0;
        /* Assignments come after all that is taken away, wherever they stand. */
        if (word.kind == NG_WORD_OPERAND && strncmp(argv[word.index], "LD_PRELOAD=", 11) == 0)
            given = argv[word.index];
    }
    if (given ? strstr(given, "libncclguard") != NULL : !cleared)
        return;
    launching->way = NG_LAUNCHER_CLEARS;
    launching->why = given ? "sets LD_PRELOAD to something else" : "takes LD_PRELOAD away";
}

static void look_at_srun(char *const *argv, const struct launcher *row,
                         struct ng_launching *launching)
{
    const char *list = option_of(argv, launching->program, row, " --export ");

    if (!list)
        list = getenv("SLURM_EXPORT_ENV");
    if (!list || strncmp(list, "ALL", 3) == 0 || strstr(list, ",ALL") || strstr(list, "LD_PRELOAD"))
        return;
    launching->way = NG_LAUNCHER_CLEARS;
    launching->why = "passes on only the variables that --export or SLURM_EXPORT_ENV names";
    launching->mend = "add ALL to the list, or write `srun … ncclguard run PROG`";
}

static void look_at_mpi(char *const *argv, const struct launcher *row,
                        struct ng_launching *launching)
{
    int end = launching->program;
    const char *nodes = getenv("SLURM_JOB_NUM_NODES");
    bool several = (nodes && atoi(nodes) > 1) || getenv("PBS_NODEFILE") || getenv("LSB_HOSTS");
    const char *hosts = option_of(argv, end, row,
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

/* Has the file a line that `is_wanted`? At least `least` of them. */
static bool has_lines(const char *path, bool (*is_wanted)(const char *line), int least)
{
    char line[PATH_MAX];
    FILE *file = fopen(path, "re");
    int found = 0;

    while (file && found < least && fgets(line, sizeof(line), file))
        found += is_wanted(line);
    if (file)
        fclose(file);
    return found >= least;
}

static bool is_host(const char *line)
{
    line += strspn(line, " \t");
    return *line && *line != '#' && *line != '\n';
}

static bool sets_preload(const char *line)
{
    return strncmp(line, "LD_PRELOAD=", 11) == 0 && strstr(line, "libncclguard");
}

/* What it exports on each host, beside variables of some names. */
static bool exports_preload(void)
{
    const char *home = getenv("HOME"), *named = getenv("DS_ENV_FILE");
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/.deepspeed_env", home ? home : "");
    return has_lines(".deepspeed_env", sets_preload, 1) || has_lines(path, sets_preload, 1) ||
           (named && has_lines(named, sets_preload, 1));
}

/* Does it start ranks of other hosts? Not where each host is started by hand. */
static bool starts_hosts(char *const *argv, const struct launcher *row)
{
    struct ng_words words = {.argv = argv, .rules = &row->rules};
    const char *file = "/job/hostfile";
    struct ng_word word;
    bool named = false;

    while ((word = ng_argv_scan_next(&words)).kind == NG_WORD_OPTION) {
        if (strcmp(word.name, "--no_ssh") == 0 ||
            (strcmp(word.name, "--num_nodes") == 0 && word.value && atoi(word.value) == 1))
            return false;
        if (ng_argv_scan_has(" -H --hostfile ", word.name) && word.value) {
            file = word.value;
            named = true;
        }
        if (strcmp(word.name, "--force_multi") == 0)
            return true;
    }
    /* One that cannot be read here may have any. */
    return access(file, R_OK) == 0 ? has_lines(file, is_host, 2) : named;
}

/* Without a login they keep the environment; but a setuid program has lost LD_PRELOAD before. */
static void look_at_user_shell(struct ng_launching *launching, bool login)
{
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
    if (strcmp(launching->name, "chroot") != 0 || launching->program == 0)
        return;
    for (int i = 1; i < launching->program; i++)
        if (argv[i][0] != '-' && realpath(argv[i], root) && strcmp(root, "/") == 0) {
            launching->way = NG_LAUNCHER_PASSES;
            launching->blind = false;
        }
}

/*
 * Whether the user has seen to it: `ncclguard run` further inside, or our library given by its
 * path. Words inside a word count too: `sh -c 'cd /data && ncclguard run PROG'`.
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
            guard_before = strcmp(last_part(word), "ncclguard") == 0;
            at += length;
        }
    }
    return false;
}

/* Whether an option passes the variable LD_PRELOAD on as it is. */
static bool is_passed_by_name(char *const *argv, const char *options)
{
    for (int i = 1; argv[i]; i++) {
        const char *equals = strchr(argv[i], '=');
        char name[32];
        snprintf(name, sizeof(name), "%.*s", equals ? (int)(equals - argv[i]) : 31, argv[i]);
        if (!ng_argv_scan_has(options, name))
            continue;
        const char *value = equals ? equals + 1 : argv[i + 1];
        if (value && strcmp(value, "LD_PRELOAD") == 0)
            return true;
    }
    return false;
}

bool ng_launcher_recognise(char *const *argv, struct ng_launching *ret_launching)
{
    const char *name = last_part(argv[0]);
    const struct launcher *row = launchers;
    bool clears = false;

    while (row < launchers + LAUNCHER_COUNT && !ng_argv_scan_has(row->names, name))
        row++;
    if (row == launchers + LAUNCHER_COUNT)
        return false;
    struct ng_launching launching = {
        .way = row->way, .why = row->why, .mend = row->mend, .blind = row->blind};
    snprintf(launching.name, sizeof(launching.name), "%s", name);
    if (row->special == USER_SHELL)
        /* Only runuser's -u has a program behind it. */
        read_words(argv,
                   &(struct launcher){.special = USER_SHELL,
                                      .operands = 9999,
                                      .rules = row->rules,
                                      .clears = row->clears},
                   &launching, &clears);
    else if (!row->blind || row->clears)
        read_words(argv, row, &launching, &clears);
    if (clears) {
        launching.way = NG_LAUNCHER_CLEARS;
        launching.why = "takes LD_PRELOAD away";
    }
    switch (row->special) {
    case ENV:
        launching.way = NG_LAUNCHER_PASSES;
        look_at_env(argv, row, &launching, clears);
        break;
    case SRUN:
        look_at_srun(argv, row, &launching);
        break;
    case MPI:
        look_at_mpi(argv, row, &launching);
        break;
    case SYSTEMD:
        for (int i = 1; argv[i] && (launching.program == 0 || i < launching.program); i++)
            if (strcmp(argv[i], "--scope") == 0)
                launching.way = NG_LAUNCHER_PASSES;
        break;
    case USER_SHELL:
        look_at_user_shell(&launching, clears);
        break;
    case CHROOT:
        look_at_chroot(argv, &launching);
        break;
    case DEEPSPEED:
        if (!starts_hosts(argv, row))
            return false;
        launching.program = 0; /* a script: an interpreter runs it */
        launching.unknown = NULL;
        break;
    case NONE:
    case ASSIGNS:
    case SETARCH:
        break;
    }
    launching.seen_to = is_seen_to(argv) || (row->special == DEEPSPEED && exports_preload());
    if (row->by_name && is_passed_by_name(argv, row->by_name)) {
        launching.way = NG_LAUNCHER_PARTLY;
        launching.why = "passes LD_PRELOAD on: guarded only if our library is at the same path "
                        "where the program runs";
    }
    if (launching.way == NG_LAUNCHER_ELSEWHERE || row->blind)
        launching.blind = true;
    if (launching.blind) {
        launching.program = 0;
        launching.unknown = NULL;
    }
    *ret_launching = launching;
    return true;
}

void ng_launcher_mend(const struct ng_launching *launching, char *ret_text, size_t bytes)
{
    const char *mark = strstr(launching->mend, "%s");

    if (mark)
        snprintf(ret_text, bytes, "%.*s%s%s", (int)(mark - launching->mend), launching->mend,
                 launching->name, mark + 2);
    else
        snprintf(ret_text, bytes, "%s", launching->mend);
}

char **ng_launcher_split(char *const *argv)
{
    const struct launcher *row = launchers;

    while (row->special != ENV)
        row++;
    return ng_argv_scan_has(row->names, last_part(argv[0])) ? ng_argv_scan_split(argv, &row->rules)
                                                            : NULL;
}

bool ng_launcher_strips(char *const *argv, struct ng_launching *ret_launching)
{
    struct ng_launching launching;
    char **split = ng_launcher_split(argv);
    bool strips = false;

    if (split) {
        strips = ng_launcher_strips(split, ret_launching);
        free(split);
        return strips;
    }
    if (!ng_launcher_recognise(argv, &launching))
        return false;
    if (launching.way == NG_LAUNCHER_CLEARS || launching.way == NG_LAUNCHER_ELSEWHERE) {
        if (launching.seen_to)
            return false;
        launching.unknown = NULL;
        *ret_launching = launching;
        return true;
    }
    return launching.program > 0 && !launching.unknown &&
           ng_launcher_strips(argv + launching.program, ret_launching);
}
