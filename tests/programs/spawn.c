/* Starts N processes of one program as torchrun and mpirun do, waits for all of them, and ends
 * with the status of the first that failed. */
#include <arpa/inet.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char usage[] =
    "usage: spawn -n N [--kill-others] [--timeout S] [--node I/K --folder DIR] [--with-nccl] [--] "
    "PROG ARGS…\n"
    "  -n N           how many processes\n"
    "  --kill-others  when one fails, end the others: SIGTERM, after 5 s SIGKILL\n"
    "  --timeout S    after S seconds SIGKILL to all, exit status 124\n"
    "  --node I/K     this is host I (from 0) of K, each with N processes\n"
    "  --folder DIR   SPAWN_DIR, which all hosts share; it stays\n"
    "  --with-nccl    load NCCL and initialise CUDA here, too, as launchers of a framework do\n"
    "Each process gets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK, MASTER_ADDR,\n"
    "MASTER_PORT, TORCHELASTIC_RUN_ID (the name of the folder) and SPAWN_DIR, without --folder an\n"
    "empty one that is removed at the end. With SHARE_DEVICES in the environment each is a host "
    "of\n"
    "its own for NCCL (NCCL_HOSTID), so that several may use one device. Exits with the status of\n"
    "the first process that failed (128 + signal), or 0.\n";

struct job {
    int nranks; /* of this host */
    int node, nnodes;
    const char *shared_folder; /* NULL: one of our own */
    bool kill_others, with_nccl;
    long timeout_s;
    char **command;
    pid_t *pids; /* 0: ended */
    int running;
    int status; /* of the first that failed */
    char folder[4096];
};

__attribute__((noreturn)) static void usage_error(const char *mistake)
{
    fprintf(stderr, "spawn: %s\n%s", mistake, usage);
    exit(2);
}

static long positive(const char *text)
{
    char *end;
    long value = text ? strtol(text, &end, 10) : 0;
    if (!text || value <= 0 || value > 1000000 || *end)
        usage_error("-n and --timeout need a number above 0");
    return value;
}

static void parse_node(struct job *job, const char *text)
{
    char end;
    if (!text || sscanf(text, "%d/%d%c", &job->node, &job->nnodes, &end) != 2 || job->node < 0 ||
        job->node >= job->nnodes)
        usage_error("--node needs I/K, I from 0 to below K");
}

static void parse(struct job *job, int argc, char **argv)
{
    int i = 1;
    job->nnodes = 1;
    for (; i < argc && argv[i][0] == '-'; i++) {
        if (!strcmp(argv[i], "--")) {
            i++;
            break;
        }
        if (!strcmp(argv[i], "-n"))
            job->nranks = (int)positive(argv[++i]);
        else if (!strcmp(argv[i], "--timeout"))
            job->timeout_s = positive(argv[++i]);
        else if (!strcmp(argv[i], "--node"))
            parse_node(job, argv[++i]);
        else if (!strcmp(argv[i], "--folder") && argv[i + 1])
            job->shared_folder = argv[++i];
        else if (!strcmp(argv[i], "--kill-others"))
            job->kill_others = true;
        else if (!strcmp(argv[i], "--with-nccl"))
            job->with_nccl = true;
        else if (!strcmp(argv[i], "--help")) {
            fputs(usage, stdout);
            exit(0);
        } else
            usage_error("unknown option");
    }
    if (!job->nranks)
        usage_error("-n is missing");
    if (job->nnodes > 1 && !job->shared_folder)
        usage_error("--node needs --folder");
    if (job->shared_folder && job->shared_folder[0] != '/')
        usage_error("--folder needs an absolute path");
    if (i >= argc)
        usage_error("no program given");
    job->command = argv + i;
}

/* A port that is free now, as a launcher without a store of its own has to take one. */
static int free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int port = 29500;
    if (fd >= 0 && !bind(fd, (struct sockaddr *)&address, length) &&
        !getsockname(fd, (struct sockaddr *)&address, &length))
        port = ntohs(address.sin_port);
    if (fd >= 0)
        close(fd);
    return port;
}

static void put(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", value);
    setenv(name, text, 1);
}

static void start(struct job *job, int rank, const sigset_t *mask)
{
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid < 0) {
        perror("spawn: fork");
        exit(1); /* those already started get PR_SET_PDEATHSIG */
    }
    if (pid > 0) {
        job->pids[rank] = pid;
        job->running++;
        return;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(127);
    put("RANK", job->node * job->nranks + rank);
    put("LOCAL_RANK", rank);
    if (getenv("SHARE_DEVICES")) {
        char host[32];
        snprintf(host, sizeof(host), "rank-%s", getenv("RANK"));
        setenv("NCCL_HOSTID", host, 1);
    }
    sigprocmask(SIG_SETMASK, mask, NULL);
    execvp(job->command[0], job->command);
    fprintf(stderr, "spawn: %s: %s\n", job->command[0], strerror(errno));
    _exit(127);
}

static void signal_all(const struct job *job, int number)
{
    for (int rank = 0; rank < job->nranks; rank++)
        if (job->pids[rank])
            kill(job->pids[rank], number);
}

static void reap(struct job *job)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        for (int rank = 0; rank < job->nranks; rank++) {
            if (job->pids[rank] != pid)
                continue;
            job->pids[rank] = 0;
            job->running--;
            int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
            if (code && !job->status) {
                fprintf(stderr, "spawn: rank %d (pid %d) failed first: status %d\n",
                        job->node * job->nranks + rank, pid, code);
                job->status = code;
            }
        }
    }
}

/* Descendants whose own parents are gone have become ours (PR_SET_CHILD_SUBREAPER). */
static void kill_descendants(void)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/task/%d/children", getpid());
    for (;;) {
        FILE *file = fopen(path, "re");
        int pid;
        bool any = false;
        while (file && fscanf(file, "%d", &pid) == 1) {
            kill(pid, SIGKILL);
            any = true;
        }
        if (file)
            fclose(file);
        if (!any)
            return;
        /* One at a time: the children of whoever ends here are ours next. */
        waitpid(-1, NULL, 0);
    }
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* Waits for all processes. Returns false if the time was up first. */
static bool wait_all(struct job *job, const sigset_t *signals)
{
    double deadline = job->timeout_s ? now() + (double)job->timeout_s : 0;
    double kill_at = 0; /* when those that ignore SIGTERM get SIGKILL */
    while (reap(job), job->running) {
        double time = now();
        if (deadline && time >= deadline)
            return false;
        if (job->kill_others && job->status && !kill_at) {
            signal_all(job, SIGTERM);
            kill_at = time + 5;
        }
        if (kill_at && time >= kill_at) {
            signal_all(job, SIGKILL);
            kill_at = time + 5;
        }
        double until = time + 3600;
        if (deadline && deadline < until)
            until = deadline;
        if (kill_at && kill_at < until)
            until = kill_at;
        double left = until - time;
        struct timespec wait = {.tv_sec = (time_t)left,
                                .tv_nsec = (long)((left - (double)(time_t)left) * 1e9)};
        int number = sigtimedwait(signals, NULL, &wait);
        if (number == SIGTERM || number == SIGINT || number == SIGHUP)
            signal_all(job, number);
    }
    return true;
}

static void remove_folder(const char *path)
{
    DIR *folder = opendir(path);
    struct dirent *entry;
    while (folder && (entry = readdir(folder)))
        unlinkat(dirfd(folder), entry->d_name, 0);
    if (folder)
        closedir(folder);
    rmdir(path);
}

/* No context is made, and so this process may fork afterwards. */
static void bring_nccl_along(void)
{
    void *nccl = dlopen("libnccl.so.2", RTLD_NOW), *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    int (*init)(unsigned) = NULL;

    if (cuda)
        *(void **)&init = dlsym(cuda, "cuInit");
    if (!nccl || !init || init(0) != 0) {
        fprintf(stderr, "spawn: NCCL or CUDA cannot be used\n");
        exit(1);
    }
}

int main(int argc, char **argv)
{
    struct job job = {0};
    parse(&job, argc, argv);
    if (job.with_nccl)
        bring_nccl_along();
    job.pids = calloc((size_t)job.nranks, sizeof(*job.pids));
    const char *temporary = getenv("TMPDIR");
    snprintf(job.folder, sizeof(job.folder), "%s/spawn.XXXXXX",
             temporary && *temporary ? temporary : "/tmp");
    if (job.shared_folder)
        snprintf(job.folder, sizeof(job.folder), "%s", job.shared_folder);
    if (!job.pids || (!job.shared_folder && !mkdtemp(job.folder))) {
        perror("spawn");
        return 1;
    }
    put("WORLD_SIZE", job.nnodes * job.nranks);
    put("LOCAL_WORLD_SIZE", job.nranks);
    put("GROUP_RANK", job.node);
    /* Of several hosts, whoever starts the launchers knows the one address. */
    if (job.nnodes == 1 || !getenv("MASTER_PORT"))
        put("MASTER_PORT", free_port());
    setenv("MASTER_ADDR", "127.0.0.1", job.nnodes == 1);
    setenv("SPAWN_DIR", job.folder, 1);
    setenv("TORCHELASTIC_RUN_ID", strrchr(job.folder, '/') + 1, 1);

    sigset_t signals, old;
    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    sigprocmask(SIG_BLOCK, &signals, &old);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    for (int rank = 0; rank < job.nranks; rank++)
        start(&job, rank, &old);

    bool in_time = wait_all(&job, &signals);
    if (!in_time) {
        fprintf(stderr, "spawn: not finished after %ld s\n", job.timeout_s);
    }
    if (!in_time || (job.kill_others && job.status))
        kill_descendants();
    if (!job.shared_folder)
        remove_folder(job.folder);
    free(job.pids);
    return in_time ? job.status : 124;
}
