/*
 * A connection to a Redis server.
 *
 * Entered by the thread that uses a kv. Must never wait beyond its deadline, nor write to a
 * descriptor that the program has reused.
 */
#include "store/kv/redis_link.h"

#include <errno.h>
#include <hiredis.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/util/clock.h"

#define CHUNK_BYTES (16 * 1024) /* three of them on the stack */

/* Record the error and close. */
__attribute__((format(printf, 3, 4))) static int lose(struct ng_redis_link *link, int error,
                                                      const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(link->why, sizeof(link->why), format, arguments);
    va_end(arguments);
    ng_redis_link_close(link);
    return error;
}

void ng_redis_link_abandon(struct ng_redis_link *link)
{
    ng_descriptor_close(&link->socket);
}

void ng_redis_link_close(struct ng_redis_link *link)
{
    ng_descriptor_close(&link->socket);
    if (link->reader)
        redisReaderFree(link->reader);
    link->reader = NULL;
    if (link->tls)
        link->tls_ops->destroy(link->tls);
    link->tls = NULL;
}

static int classify(int error)
{
    switch (error) {
    case ECONNREFUSED:
    case ENOENT: /* no such socket */
        return -ECONNREFUSED;
    case ETIMEDOUT: /* the kernel's, not our deadline */
    case EHOSTUNREACH:
    case EHOSTDOWN:
    case ENETUNREACH:
    case ENETDOWN:
    case EADDRNOTAVAIL:
        return -EHOSTUNREACH;
    case EACCES:
    case EPERM:
        return -EACCES;
    case ENOMEM:
    case ENOBUFS:
    case EMFILE:
    case ENFILE:
        return -ENOMEM;
    case EAGAIN: /* a Unix socket whose queue is full */
        return -EBUSY;
    }
    return -ECONNRESET;
}

/* Wait for `events`; 0 or -ETIMEDOUT. */
static int wait_for(int fd, short events, int64_t deadline_mono_ns)
{
    for (;;) {
        struct pollfd wanted = {.fd = fd, .events = events};
        int64_t left_ns = deadline_mono_ns - ng_clock_mono_ns();
        int64_t left_ms = left_ns <= 0 ? 0 : (left_ns + NG_MS - 1) / NG_MS;
        int ready = poll(&wanted, 1, left_ms > 60000 ? 60000 : (int)left_ms);
        if (ready > 0)
            return 0;
        if (left_ns <= 0)
            return -ETIMEDOUT;
    }
}

/* ---- Connecting ---- */

/* A local socket that connects to its own port is connected to itself. */
static bool talks_to_itself(int fd)
{
    struct sockaddr_storage own, peer;
    socklen_t own_bytes = sizeof(own), peer_bytes = sizeof(peer);

    memset(&own, 0, sizeof(own));
    memset(&peer, 0, sizeof(peer));
    return getsockname(fd, (struct sockaddr *)&own, &own_bytes) == 0 &&
           getpeername(fd, (struct sockaddr *)&peer, &peer_bytes) == 0 &&
           own.ss_family != AF_UNIX && own_bytes == peer_bytes &&
           memcmp(&own, &peer, own_bytes) == 0;
}

static int connect_to(struct ng_redis_link *link, const struct ng_address *address,
                      const char *shown, int64_t deadline_mono_ns)
{
    int on = 1, error = 0;
    socklen_t bytes = sizeof(error);
    int fd = socket(address->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return lose(link, classify(errno), "no socket: %s", strerror(errno));
    link->socket = ng_descriptor_keep(fd);
    fd = link->socket.fd;
    if (address->address.ss_family != AF_UNIX) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    }
    if (connect(fd, (const struct sockaddr *)&address->address, address->bytes) != 0) {
        if (errno != EINPROGRESS && errno != EINTR)
            return lose(link, classify(errno), "cannot connect to %s: %s", shown, strerror(errno));
        if (wait_for(fd, POLLOUT, deadline_mono_ns) != 0)
            return lose(link, -ETIMEDOUT, "%s does not answer", shown);
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0)
            error = errno;
        if (error)
            return lose(link, classify(error), "cannot connect to %s: %s", shown, strerror(error));
    }
    if (talks_to_itself(fd))
        return lose(link, -ECONNREFUSED, "cannot connect to %s: nobody listens", shown);
    return 0;
}

static int connect_host(struct ng_redis_link *link, const char *host, uint16_t port,
                        const char *shown, int64_t deadline_mono_ns)
{
    struct ng_address addresses[NG_RESOLVE_MAX];
    size_t count = 0;
    int error;

    if (port == 0) {
        struct sockaddr_un local = {.sun_family = AF_UNIX};
        if (strlen(host) >= sizeof(local.sun_path))
            return lose(link, -EINVAL, "the path of the socket is too long: %s", host);
        strcpy(local.sun_path, host);
        memcpy(&addresses[0].address, &local, sizeof(local));
        addresses[0].bytes = sizeof(local);
        return connect_to(link, &addresses[0], shown, deadline_mono_ns);
    }
    error = ng_resolve(&link->lookup, host, port, deadline_mono_ns, link->why, sizeof(link->why),
                       addresses, &count);
    /* Each address gets its share of the time: the first may drop all packets. */
    for (size_t i = 0; !error && i < count; i++) {
        int64_t now = ng_clock_mono_ns();
        int64_t share = (deadline_mono_ns - now) / (int64_t)(count - i);
        error = connect_to(link, &addresses[i], shown, now + share);
        if (!error)
            return 0;
        if (i + 1 < count)
            error = 0;
    }
    return error;
}

static int flush_tls(struct ng_redis_link *link, int64_t deadline_mono_ns);
static int pull(struct ng_redis_link *link);
static int decrypt(struct ng_redis_link *link);

static int shake_hands(struct ng_redis_link *link, const char *shown, int64_t deadline_mono_ns)
{
    for (;;) {
        char why[160] = "";
        int result = link->tls_ops->handshake(link->tls, why, sizeof(why));
        /* Pending output is sent in any case: the server may need the reason. */
        int error = flush_tls(link, deadline_mono_ns);
        if (error)
            return error;
        if (result == 0)
            return decrypt(link);
        if (result != -EAGAIN)
            return lose(link, result, "%s: %s", shown, why);
        if (wait_for(link->socket.fd, POLLIN, deadline_mono_ns) != 0)
            return lose(link, -ETIMEDOUT, "%s does not answer", shown);
        error = pull(link);
        if (error && error != -EAGAIN)
            return error == -ECONNRESET ? lose(link, error, "no TLS with %s: it hung up", shown)
                                        : error;
    }
}

int ng_redis_link_open(struct ng_redis_link *link, const char *host, uint16_t port,
                       const struct ng_tls_ops *tls_ops, const struct ng_tls_options *tls_options,
                       int64_t deadline_mono_ns)
{
    char shown[300];

    ng_redis_link_close(link);
    if (port)
        snprintf(shown, sizeof(shown), "%s:%u", host, port);
    else
        snprintf(shown, sizeof(shown), "%s", host);
    int error = connect_host(link, host, port, shown, deadline_mono_ns);
    if (error)
        return error;
    link->reader = redisReaderCreate();
    if (!link->reader)
        return lose(link, -ENOMEM, "no memory");
    link->heard_mono_ns = ng_clock_mono_ns();
    link->unparsed = 0;
    link->tls_ops = tls_ops;
    if (!tls_ops)
        return 0;
    char why[160] = "";
    error = tls_ops->create(tls_options, why, sizeof(why), &link->tls);
    if (error) {
        link->tls = NULL;
        return lose(link, error, "%s", why);
    }
    return shake_hands(link, shown, deadline_mono_ns);
}

static int receive(struct ng_redis_link *link);

bool ng_redis_link_usable(struct ng_redis_link *link)
{
    char byte;

    if (!link->reader)
        return false;
    if (!ng_descriptor_ours(&link->socket)) {
        lose(link, 0, "the connection was closed by this process");
        return false;
    }
    ssize_t got = recv(link->socket.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    /* TLS sends records of its own (session tickets). */
    if (got > 0 && link->tls) {
        int error = receive(link);
        void *reply = NULL;
        if (error == 0 && redisReaderGetReply(link->reader, &reply) == REDIS_OK && !reply)
            return true;
        if (reply)
            freeReplyObject(reply);
    }
    lose(link, 0, "the server closed the connection");
    return false;
}

/* ---- Bytes ---- */

/* Pass to the reader. 0 or -errno; then the connection is closed. */
static int feed(struct ng_redis_link *link, const char *data, size_t bytes)
{
    link->unparsed += bytes;
    if (link->unparsed > NG_REDIS_REPLY_MAX)
        return lose(link, -EPROTO, "an answer is longer than %u MiB", NG_REDIS_REPLY_MAX >> 20);
    return redisReaderFeed(link->reader, data, bytes) == REDIS_OK
               ? 0
               : lose(link, -ENOMEM, "no memory");
}

/* Pass received bytes to the reader or to TLS: 0, -EAGAIN: none received, or -errno; then the
 * connection is closed. Never waits. */
static int pull(struct ng_redis_link *link)
{
    char chunk[CHUNK_BYTES];
    ssize_t got = recv(link->socket.fd, chunk, sizeof(chunk), MSG_DONTWAIT);

    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return -EAGAIN;
    if (got < 0)
        return lose(link, -ECONNRESET, "the connection was lost: %s", strerror(errno));
    if (got == 0)
        return lose(link, -ECONNRESET, "the server closed the connection");
    link->heard_mono_ns = ng_clock_mono_ns();
    if (!link->tls)
        return feed(link, chunk, (size_t)got);
    return link->tls_ops->feed(link->tls, chunk, (size_t)got) == 0
               ? 0
               : lose(link, -ENOMEM, "no memory");
}

/* Pass decrypted bytes to the reader. 0 or -errno; then the connection is closed. */
static int decrypt(struct ng_redis_link *link)
{
    char chunk[CHUNK_BYTES];

    for (;;) {
        ssize_t got = link->tls_ops->read(link->tls, chunk, sizeof(chunk));
        if (got == -EAGAIN)
            return 0;
        if (got < 0)
            return lose(link, (int)got, "%s",
                        got == -EACCES       ? "the server refuses our certificate"
                        : got == -ECONNRESET ? "the server closed the connection"
                                             : "what the server says is no TLS");
        int error = feed(link, chunk, (size_t)got);
        if (error)
            return error;
    }
}

static int receive(struct ng_redis_link *link)
{
    int error = pull(link);

    return error || !link->tls ? error : decrypt(link);
}

/* One complete reply of those received: 0, -EAGAIN none, -EPROTO. */
static int parse(struct ng_redis_link *link, redisReply **ret_reply)
{
    void *reply = NULL;

    if (redisReaderGetReply(link->reader, &reply) != REDIS_OK) {
        bool memory = link->reader->err == REDIS_ERR_OOM;
        if (memory)
            return lose(link, -ENOMEM, "no memory");
        return lose(link, -EPROTO, "what answers is no Redis: %s", link->reader->errstr);
    }
    *ret_reply = reply;
    if (reply)
        link->unparsed = 0;
    return reply ? 0 : -EAGAIN;
}

/* How many bytes were sent; -EAGAIN: none now; -ECONNRESET: the connection is lost, but not closed
 * yet. Never waits. */
static ssize_t push(struct ng_redis_link *link, const char *data, size_t bytes)
{
    ssize_t wrote = send(link->socket.fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);

    if (wrote >= 0)
        return wrote;
    return errno == EAGAIN || errno == EINTR ? -EAGAIN : -ECONNRESET;
}

/* Send everything that TLS has for the server, waiting if needed. */
static int flush_tls(struct ng_redis_link *link, int64_t deadline_mono_ns)
{
    char chunk[CHUNK_BYTES];
    size_t bytes;

    while ((bytes = link->tls_ops->take(link->tls, chunk, sizeof(chunk))) > 0) {
        for (size_t done = 0; done < bytes;) {
            ssize_t wrote = push(link, chunk + done, bytes - done);
            if (wrote >= 0)
                done += (size_t)wrote;
            else if (wrote != -EAGAIN)
                return lose(link, (int)wrote, "the server closed the connection");
            else if (wait_for(link->socket.fd, POLLOUT, deadline_mono_ns) != 0)
                return lose(link, -ETIMEDOUT, "the server does not read");
        }
    }
    return 0;
}

/* What is still to be sent in an exchange: the commands themselves, or their encrypted form under
 * TLS. */
struct outgoing {
    const char *data;
    size_t bytes, done;
    char chunk[CHUNK_BYTES];
};

static void refill(struct ng_redis_link *link, struct outgoing *outgoing)
{
    if (!link->tls || outgoing->done < outgoing->bytes)
        return;
    outgoing->data = outgoing->chunk;
    outgoing->bytes = link->tls_ops->take(link->tls, outgoing->chunk, sizeof(outgoing->chunk));
    outgoing->done = 0;
}

int ng_redis_link_exchange(struct ng_redis_link *link, const char *commands, size_t bytes,
                           redisReply **ret_replies, size_t count, int64_t deadline_mono_ns,
                           bool *ret_sent)
{
    struct outgoing outgoing = {.data = commands, .bytes = bytes};
    size_t replies = 0;
    bool broken = false;

    *ret_sent = false;
    memset(ret_replies, 0, count * sizeof(*ret_replies));
    if (link->tls) {
        outgoing.bytes = 0;
        if (bytes && link->tls_ops->write(link->tls, commands, bytes) != 0)
            return lose(link, -EPROTO, "TLS failed");
    }
    for (;;) {
        int error;
        while (replies < count && (error = parse(link, &ret_replies[replies])) != -EAGAIN) {
            if (error)
                return error;
            replies++;
        }
        refill(link, &outgoing);
        bool sending = !broken && outgoing.done < outgoing.bytes;
        if (replies == count && !sending)
            return 0;
        if (sending) {
            ssize_t wrote =
                push(link, outgoing.data + outgoing.done, outgoing.bytes - outgoing.done);
            if (wrote >= 0) {
                outgoing.done += (size_t)wrote;
                *ret_sent = true;
                continue;
            }
            /* A server that closes the connection may have sent the reason: read it first. */
            broken = wrote != -EAGAIN;
            sending = !broken;
        }
        /* The server may not read on until we read. */
        error =
            wait_for(link->socket.fd, (short)(POLLIN | (sending ? POLLOUT : 0)), deadline_mono_ns);
        if (error)
            return lose(link, -ETIMEDOUT, "the server did not answer in time");
        error = receive(link);
        if (error && error != -EAGAIN)
            return error;
    }
}

int ng_redis_link_next(struct ng_redis_link *link, redisReply **ret_reply)
{
    for (;;) {
        int error = parse(link, ret_reply);
        if (error != -EAGAIN)
            return error;
        error = receive(link);
        if (error)
            return error;
    }
}

int ng_redis_link_send(struct ng_redis_link *link, const char *commands, size_t bytes)
{
    char chunk[1024];

    if (link->tls) {
        if (link->tls_ops->write(link->tls, commands, bytes) != 0)
            return lose(link, -EPROTO, "TLS failed");
        bytes = link->tls_ops->take(link->tls, chunk, sizeof(chunk));
        commands = chunk;
    }
    ssize_t wrote = push(link, commands, bytes);
    if (wrote == -EAGAIN && !link->tls)
        return -EAGAIN;
    /* Bytes that TLS has encrypted cannot be taken back. */
    if (wrote < 0 || (size_t)wrote < bytes)
        return lose(link, -ECONNRESET, "the connection was lost");
    return 0;
}
