/*
 * `ncclguard exporter`: serves what the guards of this host know to Prometheus, read from outside.
 *
 * The main thread waits for the signal that ends it; one thread of libmicrohttpd serves all
 * connections, one scrape after the other. The jobs must never notice. The library is opened when
 * it is needed: a machine without it has all other commands.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/base/command.h"
#include "tools/base/usage.h"
#include "tools/cmd/exporter.h"

#define COMMAND "exporter"
#define LISTEN  "127.0.0.1:9410"

enum { OPTION_LISTEN, OPTION_JOB, OPTION_STORE, OPTION_COUNT };

static const struct ng_usage_option options[OPTION_COUNT] = {
    [OPTION_LISTEN] = {"listen", "ADDR", "address and port (default " LISTEN "; port 0: any)"},
    [OPTION_JOB] = {"job", "JOB",
                    "only this job (default: every job of this host; of a store of several\n"
                    "hosts NCCLGUARD_JOB, else the only one here)"},
    [OPTION_STORE] = {"store", "URL",
                      "also what the job's ranks of other hosts share there (default:\n"
                      "NCCLGUARD_STORE, else local:); ps does not show the password"},
};

static const struct ng_usage usage = {
    .command = COMMAND,
    .synopsis = "[--listen ADDR:PORT] [--job JOB] [--store URL]",
    .about =
        "Serve metrics of the jobs of this host to Prometheus, at http://ADDR:PORT/metrics: how\n"
        "far each rank of each group is, since when work is pending, who is gone, the verdict\n"
        "at this moment and the last one of the guards. Each scrape reads the black boxes (as\n"
        "root those of all users), and the jobs do not notice. Ends with SIGTERM or SIGINT.\n"
        "Exit status: 0, 1 it cannot listen there, 2 usage error or no such job.",
    .options = options,
    .option_count = OPTION_COUNT,
    .alone = "write `ncclguard exporter --listen " LISTEN "`",
};

/* Reported in the form of a usage error, but none. */
#define fail(mend, ...) (ng_usage_error(COMMAND, mend, __VA_ARGS__), NG_EXIT_FAILED)

#if NG_HAVE_MICROHTTPD

#include <microhttpd.h>

#define CONNECTIONS 32u
#define IDLE_S      10u

#define FUNCTIONS(DO)                                                                              \
    DO(start_daemon)                                                                               \
    DO(stop_daemon)                                                                                \
    DO(create_response_from_buffer)                                                                \
    DO(create_response_from_fd)                                                                    \
    DO(add_response_header)                                                                        \
    DO(queue_response)                                                                             \
    DO(destroy_response)

static struct {
#define DO(name) __typeof__(&MHD_##name) name;
    FUNCTIONS(DO)
#undef DO
} http;

static bool open_library(void)
{
    void *library = dlopen("libmicrohttpd.so.12", RTLD_NOW);

    if (!library)
        return false;
#define DO(name)                                                                                   \
    http.name = (__typeof__(http.name))dlsym(library, "MHD_" #name);                               \
    if (!http.name)                                                                                \
        return false;
    FUNCTIONS(DO)
#undef DO
    return true;
}

/* ---- Answers ---- */

static struct MHD_Response *text_response(const char *text)
{
    return http.create_response_from_buffer(strlen(text), (void *)text, MHD_RESPMEM_PERSISTENT);
}

/* NULL: no memory. The response owns the descriptor. */
static struct MHD_Response *scrape(struct ng_exporter *exporter)
{
    struct stat status;
    int fd = memfd_create("metrics", MFD_CLOEXEC);

    if (fd < 0)
        return NULL;
    struct MHD_Response *response = NULL;
    if (ng_exporter_scrape(exporter, fd) == 0 && fstat(fd, &status) == 0)
        response = http.create_response_from_fd((size_t)status.st_size, fd);
    if (!response)
        close(fd);
    return response;
}

static enum MHD_Result answer(void *context, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *upload,
                              size_t *upload_bytes, void **state)
{
    unsigned status = MHD_HTTP_OK;
    struct MHD_Response *response;
    const char *type = "text/plain; charset=utf-8";
    bool reads =
        strcmp(method, MHD_HTTP_METHOD_GET) == 0 || strcmp(method, MHD_HTTP_METHOD_HEAD) == 0;

    if (!reads) {
        status = MHD_HTTP_METHOD_NOT_ALLOWED;
        response = text_response("use GET\n");
    } else if (strcmp(url, "/metrics") == 0) {
        type = "text/plain; version=0.0.4; charset=utf-8";
        response = scrape(context);
        if (!response) {
            status = MHD_HTTP_INTERNAL_SERVER_ERROR;
            response = text_response("out of memory\n");
        }
    } else if (strcmp(url, "/") == 0) {
        response = text_response("ncclguard exporter " NG_VERSION ": see /metrics\n");
    } else {
        status = MHD_HTTP_NOT_FOUND;
        response = text_response("not here: see /metrics\n");
    }
    if (!response)
        return MHD_NO;
    http.add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    if (!reads)
        http.add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    enum MHD_Result result = http.queue_response(connection, status, response);
    http.destroy_response(response);
    return result;
}

/* ---- The socket ---- */

/* "ADDR:PORT", "[ADDR]:PORT". False: it is neither. */
static bool split(const char *text, char ret_address[256], const char **ret_port)
{
    const char *colon = strrchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : 0;
    bool bracketed = length > 2 && text[0] == '[' && text[length - 1] == ']';

    if (!length || length >= 256 || !colon[1] ||
        colon[1 + strspn(colon + 1, "0123456789")] != '\0' || strlen(colon + 1) > 5 ||
        atoi(colon + 1) > 65535 || (!bracketed && (text[0] == '[' || memchr(text, ':', length))))
        return false;
    snprintf(ret_address, 256, "%.*s", (int)length - 2 * bracketed, text + bracketed);
    *ret_port = colon + 1;
    return true;
}

static int listen_there(const struct addrinfo *there)
{
    int on = 1;
    int fd = socket(there->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -errno;
    /* Connections of an exporter that has just ended keep nobody from its port. */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, there->ai_addr, there->ai_addrlen) == 0 && listen(fd, (int)CONNECTIONS) == 0)
        return fd;
    int error = -errno;
    close(fd);
    return error;
}

static const char *listen_mend(int error)
{
    switch (error) {
    case -EADDRINUSE:
        return "another program listens there: give it another port with --listen, or 0 for any";
    case -EADDRNOTAVAIL:
        return "name an address of this host with --listen, such as 127.0.0.1";
    case -EACCES:
        return "choose a port from 1024 on with --listen";
    default:
        return "name another address or port with --listen";
    }
}

/* 0, or an exit status after reporting the error. */
static int open_socket(const char *text, int *ret_fd)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *found;
    char address[256];
    const char *port;

    if (!split(text, address, &port))
        return ng_usage_error(COMMAND, "write --listen ADDR:PORT, such as --listen " LISTEN,
                              "--listen %s is not an address and a port", text);
    int error = getaddrinfo(address, port, &hints, &found);
    if (error)
        return fail(listen_mend(-EADDRNOTAVAIL), "cannot listen at %s: %s", text,
                    gai_strerror(error));
    int fd = listen_there(found);
    freeaddrinfo(found);
    if (fd < 0)
        return fail(listen_mend(fd), "cannot listen at %s: %s", text, strerror(-fd));
    *ret_fd = fd;
    return 0;
}

/* With the port that it got. */
static void print_address(int fd)
{
    struct sockaddr_storage address;
    socklen_t bytes = sizeof(address);
    char host[64], port[8];

    if (getsockname(fd, (struct sockaddr *)&address, &bytes) != 0 ||
        getnameinfo((struct sockaddr *)&address, bytes, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return;
    bool bracketed = address.ss_family == AF_INET6;
    printf("ncclguard exporter: serving http://%s%s%s:%s/metrics\n", bracketed ? "[" : "", host,
           bracketed ? "]" : "", port);
    fflush(stdout);
}

/* Until a signal ends it. */
static int serve(struct ng_exporter *exporter, const char *where)
{
    sigset_t ends;
    int fd = -1, number;

    if (!open_library())
        return fail("install libmicrohttpd (on Debian and Ubuntu: libmicrohttpd12)",
                    "cannot open the library that serves HTTP: %s", dlerror());
    int status = open_socket(where, &fd);
    if (status != 0)
        return status;
    /* Blocked in all threads, before there are several. */
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    signal(SIGPIPE, SIG_IGN); /* a client may go */
    struct MHD_Daemon *daemon =
        http.start_daemon(MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_AUTO, 0, NULL, NULL, answer,
                          exporter, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
                          CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT, IDLE_S, MHD_OPTION_END);
    if (!daemon) {
        close(fd);
        return fail("free memory, threads or descriptors", "the HTTP server does not start");
    }
    print_address(fd);
    while (sigwait(&ends, &number) != 0)
        ;
    http.stop_daemon(daemon);
    return NG_EXIT_OK;
}

#else

static int serve(struct ng_exporter *exporter, const char *where)
{
    return fail("install libmicrohttpd-dev, and build again",
                "this build has no HTTP server: libmicrohttpd was not there");
}

#endif

int ng_command_exporter(int argc, char **argv)
{
    const char *values[OPTION_COUNT];
    int operand, status;

    if (!ng_usage_parse(&usage, argc, argv, values, &operand, &status))
        return status;
    struct ng_exporter exporter = {0};
    struct ng_job job = {0};
    status = ng_jobs_of_host(COMMAND, values[OPTION_JOB], values[OPTION_STORE], &exporter.where);
    if (status == 0 && exporter.where.several_hosts) {
        exporter.store_job = &job;
        status = ng_jobs_choose_all_runs(COMMAND, values[OPTION_JOB], NULL, &job);
    }
    return status ?: serve(&exporter, values[OPTION_LISTEN] ?: LISTEN);
}
