/*
 * A connection to NCCL's RAS.
 *
 * Entered by one of the guard's threads for I/O, when something is suspected. Must never call
 * malloc, since the program may be stuck in it, and never wait beyond its deadline.
 */
#include "store/ras/ras_client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/util/clock.h"
#include "core/util/descriptor.h"
#include "core/util/macros.h"
#include "core/util/memory.h"
#include "store/ras/ras_answer.h"

#define ANSWER_MAX     (64u << 20) /* some 100,000 ranks, of all communicators together */
#define LINE_MAX_BYTES 256
/* A process that runs greets at once; one that is frozen has a listening socket, too. */
#define GREETING_NS (300 * NG_MS)
#define GREETING    "SERVER PROTOCOL "

/* What RAS waits for its own peers at most. */
#define TIMEOUT "TIMEOUT 1\n"

struct address {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } socket;
    socklen_t bytes;
};

struct connection {
    struct ng_descriptor socket;
    int64_t deadline_ns;
    char *bytes; /* of the answer; ANSWER_MAX */
    size_t used;
};

/* ---- Where ---- */

static bool set_address(const char *host, uint16_t port, struct address *ret_address)
{
    *ret_address = (struct address){0};
    if (inet_pton(AF_INET, host, &ret_address->socket.v4.sin_addr) == 1) {
        ret_address->socket.v4.sin_family = AF_INET;
        ret_address->socket.v4.sin_port = htons(port);
        ret_address->bytes = sizeof(ret_address->socket.v4);
        return true;
    }
    if (inet_pton(AF_INET6, host, &ret_address->socket.v6.sin6_addr) == 1) {
        ret_address->socket.v6.sin6_family = AF_INET6;
        ret_address->socket.v6.sin6_port = htons(port);
        ret_address->bytes = sizeof(ret_address->socket.v6);
        return true;
    }
    return false;
}

/* One or two addresses: those of localhost need no name server. Their number; 0: none. */
static unsigned find_addresses(const char *text, struct address ret_addresses[2])
{
    char host[INET6_ADDRSTRLEN + 2];
    const char *colon = strrchr(text, ':'), *first = text;
    char *end;

    if (!colon)
        return 0;
    long port = strtol(colon + 1, &end, 10);
    if (end == colon + 1 || *end || port < 1 || port > 65535)
        return 0;
    size_t bytes = (size_t)(colon - text);
    if (bytes >= 2 && text[0] == '[' && text[bytes - 1] == ']') {
        first++;
        bytes -= 2;
    }
    if (bytes >= sizeof(host))
        return 0;
    memcpy(host, first, bytes);
    host[bytes] = '\0';
    if (strcmp(host, "localhost") == 0)
        return set_address("127.0.0.1", (uint16_t)port, &ret_addresses[0]) +
               set_address("::1", (uint16_t)port, &ret_addresses[1]);
    return set_address(host, (uint16_t)port, &ret_addresses[0]);
}

/* ---- The connection ---- */

/* Until the socket is ready for `events`. 0, -ETIMEDOUT or another -errno. */
static int await(const struct connection *connection, short events, int64_t until_ns)
{
    for (;;) {
        int64_t left_ns = until_ns - ng_clock_mono_ns();
        struct pollfd poll_fd = {connection->socket.fd, events, 0};
        if (left_ns <= 0)
            return -ETIMEDOUT;
        /* The program may have closed it and opened another file. */
        if (!ng_descriptor_ours(&connection->socket))
            return -EBADF;
        int64_t step_ns = left_ns < 100 * NG_MS ? left_ns : 100 * NG_MS;
        int ready = poll(&poll_fd, 1, (int)((step_ns + NG_MS - 1) / NG_MS));
        if (ready > 0)
            return 0;
        if (ready < 0 && errno != EINTR)
            return -errno;
    }
}

static int connect_to(const struct address *address, struct connection *connection)
{
    int fd = socket(address->socket.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -errno;
    connection->socket = ng_descriptor_keep(fd);
    if (connect(connection->socket.fd, &address->socket.any, address->bytes) == 0)
        return 0;
    if (errno != EINPROGRESS)
        return -errno;
    int failed = 0, error = await(connection, POLLOUT, connection->deadline_ns);
    socklen_t bytes = sizeof(failed);
    if (!error && getsockopt(connection->socket.fd, SOL_SOCKET, SO_ERROR, &failed, &bytes) < 0)
        return -errno;
    return error ?: -failed;
}

static int say(const struct connection *connection, const char *line)
{
    size_t left = strlen(line);

    while (left > 0) {
        int error = await(connection, POLLOUT, connection->deadline_ns);
        if (error)
            return error;
        ssize_t sent = send(connection->socket.fd, line, left, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno != EAGAIN && errno != EINTR)
            return -errno;
        line += sent > 0 ? sent : 0;
        left -= sent > 0 ? (size_t)sent : 0;
    }
    return 0;
}

/* Bytes received, 0 at the end; or -errno. */
static ssize_t receive(const struct connection *connection, void *ret_bytes, size_t room,
                       int64_t until_ns)
{
    for (;;) {
        int error = await(connection, POLLIN, until_ns);
        if (error)
            return error;
        ssize_t count = recv(connection->socket.fd, ret_bytes, room, MSG_DONTWAIT);
        if (count >= 0)
            return count;
        if (errno != EAGAIN && errno != EINTR)
            return -errno;
    }
}

/* A line without its end, byte by byte: what follows belongs to the answer. */
static int hear(const struct connection *connection, char ret_line[LINE_MAX_BYTES],
                int64_t until_ns)
{
    for (size_t used = 0; used < LINE_MAX_BYTES; used++) {
        ssize_t count = receive(connection, ret_line + used, 1, until_ns);
        if (count <= 0)
            return count < 0 ? (int)count : -EBADMSG;
        if (ret_line[used] == '\n') {
            ret_line[used] = '\0';
            return 0;
        }
    }
    return -EBADMSG;
}

/* ---- The talk ---- */

static int greet(const struct connection *connection)
{
    char line[LINE_MAX_BYTES];
    int64_t now = ng_clock_mono_ns();
    int64_t until =
        connection->deadline_ns - now < GREETING_NS ? connection->deadline_ns : now + GREETING_NS;

    int error = say(connection, "CLIENT PROTOCOL 2\n") ?: hear(connection, line, until);
    if (!error && strncmp(line, GREETING, strlen(GREETING)) != 0)
        error = -EBADMSG;
    return error;
}

/* Releases before 2.28.7 answer "ERROR: …" to the format, and then with text. */
static int ask(const struct connection *connection)
{
    static const char *const lines[] = {TIMEOUT, "SET FORMAT json\n"};
    char line[LINE_MAX_BYTES];
    int error = 0;

    for (unsigned i = 0; i < NG_COUNT(lines) && !error; i++) {
        error = say(connection, lines[i]) ?: hear(connection, line, connection->deadline_ns);
        if (!error && strcmp(line, "OK") != 0 && strncmp(line, "ERROR: ", 7) != 0)
            error = -EBADMSG;
    }
    return error ?: say(connection, "VERBOSE STATUS\n");
}

static int read_answer(struct connection *connection, struct ng_ras_answer *ret_answer)
{
    for (;;) {
        if (connection->used == ANSWER_MAX)
            return -EMSGSIZE;
        ssize_t count = receive(connection, connection->bytes + connection->used,
                                ANSWER_MAX - connection->used, connection->deadline_ns);
        if (count < 0)
            return (int)count;
        if (count == 0)
            return ng_ras_answer_read(connection->bytes, connection->used, ret_answer);
        connection->used += (size_t)count;
    }
}

int ng_ras_ask(const char *address, int64_t deadline_mono_ns, struct ng_ras_answer *ret_answer)
{
    struct connection connection = {.socket = NG_DESCRIPTOR_NONE, .deadline_ns = deadline_mono_ns};
    struct address addresses[2];
    unsigned count = find_addresses(address, addresses), which = 0;
    bool greeted = false;
    int error = count ? -ETIMEDOUT : -EINVAL;

    while (count && !greeted && ng_clock_mono_ns() < deadline_mono_ns) {
        error = connect_to(&addresses[which], &connection);
        if (!error) {
            error = greet(&connection);
            greeted = !error;
        } else if (which + 1 < count) {
            which++;
            error = -ETIMEDOUT;
        }
        if (!greeted)
            ng_descriptor_close(&connection.socket);
        if (error && error != -ETIMEDOUT)
            break;
    }
    error = error ?: ask(&connection);
    if (!error) {
        connection.bytes = ng_memory_reserve(ANSWER_MAX);
        error = connection.bytes ? read_answer(&connection, ret_answer) : -ENOMEM;
    }
    ng_descriptor_close(&connection.socket);
    if (connection.bytes)
        munmap(connection.bytes, ANSWER_MAX);
    return error;
}
