/*
 * A helper process, with its two outputs captured.
 *
 * Must never wait without a bound: for a python on a dead network disk, the deadline decides.
 */
#include "tools/base/run_helper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/util/clock.h"

/* Output beyond this is dropped. */
#define ANSWER_LIMIT ((size_t)1 << 20)
/* Time for a process to exit after its output ended, or after SIGKILL. */
#define END_NS (2 * NG_S)

struct stream {
    int fd; /* -1: ended */
    char *text;
    size_t bytes;
};

static _Noreturn void child_main(char *const *argv, const char *const *assignments, int out,
                                 int err)
{
    sigset_t none;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setpgid(0, 0);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    int in = open("/dev/null", O_RDONLY);
    if (in < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0)
        _exit(127);
    for (; assignments && *assignments; assignments++) {
        if (strchr(*assignments, '='))
            putenv((char *)*assignments);
        else
            unsetenv(*assignments);
    }
    execvp(argv[0], argv);
    _exit(127);
}

static void take(struct stream *stream)
{
    char piece[4096];
    ssize_t bytes = read(stream->fd, piece, sizeof(piece));

    if (bytes < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (bytes <= 0) {
        close(stream->fd);
        stream->fd = -1;
        return;
    }
    if (stream->bytes + (size_t)bytes > ANSWER_LIMIT)
        return;
    char *larger = realloc(stream->text, stream->bytes + (size_t)bytes + 1);
    if (!larger)
        return;
    memcpy(larger + stream->bytes, piece, (size_t)bytes);
    stream->bytes += (size_t)bytes;
    larger[stream->bytes] = '\0';
    stream->text = larger;
}

/* False: the deadline has passed. */
static bool listen_to(struct stream streams[2], int64_t until)
{
    while (streams[0].fd >= 0 || streams[1].fd >= 0) {
        struct pollfd polled[2] = {{streams[0].fd, POLLIN, 0}, {streams[1].fd, POLLIN, 0}};
        int64_t left = until - ng_clock_mono_ns();
        if (left <= 0)
            return false;
        int ready = poll(polled, 2, (int)(left / NG_MS) + 1);
        for (int i = 0; ready > 0 && i < 2; i++)
            if (polled[i].revents)
                take(&streams[i]);
    }
    return true;
}

/* False: it still exists at the deadline. */
static bool wait_for(pid_t child, int64_t until, int *ret_status)
{
    for (;;) {
        pid_t pid = waitpid(child, ret_status, WNOHANG);
        if (pid == child || (pid < 0 && errno != EINTR))
            return true;
        if (ng_clock_mono_ns() >= until)
            return false;
        /* It has closed its outputs and is about to exit. */
        poll(NULL, 0, 1);
    }
}

int ng_ask(char *const *argv, const char *const *assignments, int64_t limit_ns,
           struct ng_answer *ret_answer)
{
    int out[2], err[2];
    struct ng_answer answer = {0};

    if (pipe2(out, O_CLOEXEC) != 0)
        return -errno;
    if (pipe2(err, O_CLOEXEC) != 0) {
        int error = -errno;
        close(out[0]);
        close(out[1]);
        return error;
    }
    pid_t child = fork();
    if (child == 0)
        child_main(argv, assignments, out[1], err[1]);
    int error = child < 0 ? -errno : 0;
    close(out[1]);
    close(err[1]);
    if (error != 0) {
        close(out[0]);
        close(err[0]);
        return error;
    }
    setpgid(child, child); /* by parent or child, whichever is first */
    struct stream streams[2] = {{out[0], NULL, 0}, {err[0], NULL, 0}};
    int64_t until = ng_clock_mono_ns() + limit_ns;
    answer.late = !listen_to(streams, until);
    if (!answer.late)
        answer.late = !wait_for(child, ng_clock_mono_ns() + END_NS, &answer.status);
    if (answer.late) {
        kill(-child, SIGKILL);
        kill(child, SIGKILL);
        wait_for(child, ng_clock_mono_ns() + END_NS, &answer.status);
    }
    for (int i = 0; i < 2; i++)
        if (streams[i].fd >= 0)
            close(streams[i].fd);
    answer.out = streams[0].text ? streams[0].text : strdup("");
    answer.err = streams[1].text ? streams[1].text : strdup("");
    if (!answer.out || !answer.err) {
        ng_answer_fini(&answer);
        return -ENOMEM;
    }
    *ret_answer = answer;
    return 0;
}

void ng_answer_fini(struct ng_answer *answer)
{
    free(answer->out);
    free(answer->err);
    *answer = (struct ng_answer){0};
}
