/*
 * Parsing the URL of a store.
 *
 * Entered at start and by tools. Must never put a password into a text.
 */
#include "store/kv/url.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/util/macros.h"

#define REDIS_PORT    6379
#define SENTINEL_PORT 26379
#define DB_MAX        1000000 /* Redis' own limit depends on its configuration */

static const struct {
    const char *prefix;
    enum ng_url_kind kind;
    bool tls;
} schemes[] = {
    {"redis://", NG_URL_REDIS, false},
    {"rediss://", NG_URL_REDIS, true},
    {"redis+unix://", NG_URL_UNIX, false},
    {"redis+sentinel://", NG_URL_SENTINEL, false},
};

/* ---- Text without a password ---- */

struct text {
    char *to;
    size_t used, bytes;
};

static void put(struct text *text, const char *from, size_t length)
{
    while (length-- && text->used + 1 < text->bytes) {
        unsigned char character = (unsigned char)*from++;
        /* A log entry is one line. */
        text->to[text->used++] = character < 0x20 || character == 0x7f ? '?' : (char)character;
    }
    if (text->bytes)
        text->to[text->used] = '\0';
}

static void put_text(struct text *text, const char *from)
{
    put(text, from, strlen(from));
}

/* Host and port, unchecked: text after a colon that is not a number may be a password whose '@' was
 * omitted. */
static void put_hosts(struct text *text, const char *from, size_t length)
{
    for (size_t i = 0; i < length;) {
        if (from[i] == '[') {
            const char *end = memchr(from + i, ']', length - i);
            size_t span = end ? (size_t)(end - from) + 1 - i : 1;
            put(text, from + i, span);
            i += span;
            continue;
        }
        size_t word = i;
        while (word < length && from[word] != ':')
            word++;
        put(text, from + i, word - i);
        i = word;
        if (i >= length)
            break;
        put(text, ":", 1);
        size_t start = ++i;
        while (i < length && from[i] != ',' && from[i] != '/' && from[i] != ':')
            i++;
        bool number = true;
        for (size_t j = start; j < i; j++)
            number &= from[j] >= '0' && from[j] <= '9';
        if (number)
            put(text, from + start, i - start);
        else
            put_text(text, "***");
        /* The part after the next comma or slash is copied as a word again. */
        while (i < length && from[i] != ':' && (from[i] == ',' || from[i] == '/')) {
            put(text, from + i, 1);
            i++;
        }
    }
}

void ng_url_redact(const char *given, char *ret_text, size_t bytes)
{
    struct text text = {.to = ret_text, .bytes = bytes};
    const char *scheme = strstr(given, "://");
    const char *rest = scheme ? scheme + 3 : given;

    put(&text, "", 0);
    if (scheme && strcspn(given, "@?[%, ") < (size_t)(scheme - given))
        rest = given; /* no scheme, but text that looks like one further on */
    /* Without its slashes, a scheme that we know is still one. */
    for (size_t i = 0; rest == given && i < NG_COUNT(schemes); i++) {
        size_t length = strcspn(schemes[i].prefix, ":") + 1;
        if (strncmp(given, schemes[i].prefix, length) == 0)
            rest = given + length;
    }
    put(&text, given, (size_t)(rest - given));
    const char *at = strrchr(rest, '@');
    if (at) {
        /* A user name, if it can be nothing else. */
        size_t user = strcspn(rest, ":@/?");
        if (rest[user] == ':' && rest != given)
            put(&text, rest, user + 1);
        put_text(&text, "***@");
        rest = at + 1;
    }
    const char *query = strchr(rest, '?');
    size_t length = query ? (size_t)(query - rest) : strlen(rest);
    put_hosts(&text, rest, length);
    if (query)
        put_text(&text, "?***");
}

/* ---- Parsing ---- */

static int hex(char digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    if (digit >= 'a' && digit <= 'f')
        return digit - 'a' + 10;
    if (digit >= 'A' && digit <= 'F')
        return digit - 'A' + 10;
    return -1;
}

/* Decode %XX. NULL, or what is wrong. */
static const char *decode(const char *from, size_t length, char *ret_text, size_t bytes)
{
    size_t used = 0;

    for (size_t i = 0; i < length; i++) {
        char character = from[i];
        if (character == '%') {
            int high = i + 1 < length ? hex(from[i + 1]) : -1;
            int low = i + 2 < length ? hex(from[i + 2]) : -1;
            if (high < 0 || low < 0)
                return "a percent sign takes two hexadecimal digits (write %25 for itself)";
            character = (char)(high * 16 + low);
            i += 2;
        }
        if (character == '\0')
            return "%00 cannot stand in it";
        if (used + 1 >= bytes)
            return "a part of it is too long";
        ret_text[used++] = character;
    }
    ret_text[used] = '\0';
    return NULL;
}

static bool number(const char *from, size_t length, long maximum, long *ret_value)
{
    long value = 0;

    if (!length || length > 9)
        return false;
    for (size_t i = 0; i < length; i++) {
        if (from[i] < '0' || from[i] > '9')
            return false;
        value = value * 10 + (from[i] - '0');
    }
    if (value > maximum)
        return false;
    *ret_value = value;
    return true;
}

static const char *parse_user(const char *from, size_t length, struct ng_url *url)
{
    const char *colon = memchr(from, ':', length);

    if (!colon)
        return "before the @ stands user:password or :password";
    const char *error = decode(from, (size_t)(colon - from), url->user, sizeof(url->user));
    if (!error)
        error = decode(colon + 1, length - (size_t)(colon + 1 - from), url->password,
                       sizeof(url->password));
    if (!error && !url->password[0])
        error = "the password before the @ is empty";
    return error;
}

static const char *parse_host(const char *from, size_t length, uint16_t port, struct ng_url *url)
{
    static const char bad_port[] = "a port is a number from 1 to 65535";
    const char *end = from + length, *colon = NULL, *name = from;
    size_t name_length;

    if (url->host_count == NG_URL_HOSTS_MAX)
        return "at most 16 hosts";
    struct ng_url_host *host = &url->hosts[url->host_count];
    if (length && *from == '[') {
        const char *closing = memchr(from, ']', length);
        if (!closing)
            return "an IPv6 address stands in brackets, as in redis://[::1]:6379";
        name = from + 1;
        name_length = (size_t)(closing - name);
        if (closing + 1 < end) {
            if (closing[1] != ':')
                return "behind the brackets of an IPv6 address comes only :port";
            colon = closing + 1;
        }
    } else {
        colon = memchr(from, ':', length);
        if (colon && memchr(colon + 1, ':', (size_t)(end - colon - 1)))
            return "an IPv6 address stands in brackets, as in redis://[::1]:6379";
        name_length = colon ? (size_t)(colon - from) : length;
    }
    if (!name_length)
        return "a host is missing, as in redis://host:6379";
    const char *error = decode(name, name_length, host->name, sizeof(host->name));
    if (error)
        return error;
    for (const char *at = host->name; *at; at++)
        if ((unsigned char)*at <= ' ' || *at == 0x7f || strchr("/?#@[]", *at))
            return "a host has a character that no host name has";
    host->port = port;
    if (colon) {
        long value;
        if (!number(colon + 1, (size_t)(end - colon - 1), 65535, &value) || value == 0)
            return bad_port;
        host->port = (uint16_t)value;
    }
    url->host_count++;
    return NULL;
}

static const char *parse_hosts(const char *from, size_t length, struct ng_url *url)
{
    uint16_t port = url->kind == NG_URL_SENTINEL ? SENTINEL_PORT : REDIS_PORT;
    const char *end = from + length;

    if (url->kind == NG_URL_REDIS && memchr(from, ',', length))
        return "one host; several only as redis+sentinel://h1,h2/master";
    for (;;) {
        const char *comma = memchr(from, ',', (size_t)(end - from));
        const char *error = parse_host(from, (size_t)((comma ? comma : end) - from), port, url);
        if (error || !comma)
            return error;
        from = comma + 1;
    }
}

static const char *parse_db(const char *from, size_t length, struct ng_url *url)
{
    long value;

    if (!number(from, length, DB_MAX, &value))
        return "a database is a number, as in redis://host/0";
    url->db = (int)value;
    return NULL;
}

static const char *parse_path(const char *from, size_t length, struct ng_url *url)
{
    if (url->kind == NG_URL_UNIX) {
        if (length < 2)
            return "the path of a socket is missing, as in redis+unix:///run/redis.sock";
        return decode(from, length, url->path, sizeof(url->path));
    }
    const char *slash = NULL;
    if (length) {
        from++;
        length--;
        slash = memchr(from, '/', length);
    }
    if (url->kind == NG_URL_SENTINEL) {
        size_t name = slash ? (size_t)(slash - from) : length;
        const char *error = decode(from, name, url->master, sizeof(url->master));
        if (!error && !url->master[0])
            error = "the name of the master is missing, as in redis+sentinel://h1,h2/mymaster";
        if (error || !slash || slash + 1 == from + length)
            return error;
        return parse_db(slash + 1, length - (size_t)(slash + 1 - from), url);
    }
    return length ? parse_db(from, length, url) : NULL;
}

static const char *parse_query(const char *from, struct ng_url *url)
{
    while (*from) {
        size_t length = strcspn(from, "&");
        const char *equals = memchr(from, '=', length);
        size_t name = equals ? (size_t)(equals - from) : length;
        char value[NG_URL_PATH_BYTES] = "";
        const char *error =
            equals ? decode(equals + 1, length - name - 1, value, sizeof(value)) : NULL;
        const struct {
            const char *name;
            char *to;
        } files[] = {{"ca", url->ca}, {"cert", url->cert}, {"key", url->key}};
        bool known = false;

        if (error)
            return error;
        for (size_t i = 0; url->tls && i < NG_COUNT(files); i++) {
            if (strlen(files[i].name) == name && strncmp(from, files[i].name, name) == 0) {
                if (!value[0])
                    return "?ca=, ?cert= and ?key= take the name of a file";
                memcpy(files[i].to, value, sizeof(value));
                known = true;
            }
        }
        if (url->tls && name == 6 && strncmp(from, "verify", name) == 0) {
            if (strcmp(value, "no") != 0 && strcmp(value, "yes") != 0)
                return "?verify= takes yes or no";
            url->verify = value[0] == 'y';
            known = true;
        }
        if (name == 2 && strncmp(from, "db", name) == 0) {
            error = parse_db(value, strlen(value), url);
            if (error)
                return error;
            known = true;
        }
        if (!known)
            return url->tls ? "behind the ? stand only ca=, cert=, key=, verify= and db="
                            : "behind the ? stands only db=";
        from += length;
        if (*from == '&')
            from++;
    }
    if (!url->cert[0] != !url->key[0])
        return "?cert= and ?key= come together";
    return NULL;
}

static const char *parse_redis(const char *rest, struct ng_url *url)
{
    /* A socket's path may contain any character; the others end at the first slash or question
     * mark. */
    size_t authority = strcspn(rest, "/?");
    const char *at = memrchr(rest, '@', authority);
    const char *error = NULL, *hosts = at ? at + 1 : rest;

    if (at)
        error = parse_user(rest, (size_t)(at - rest), url);
    size_t length = authority - (size_t)(hosts - rest);
    if (!error && url->kind == NG_URL_UNIX && length)
        error = "a socket takes three slashes, as in redis+unix:///run/redis.sock";
    if (!error && url->kind != NG_URL_UNIX)
        error = parse_hosts(hosts, length, url);
    if (error)
        return error;
    const char *path = rest + authority, *query = strchr(path, '?');
    error = parse_path(path, query ? (size_t)(query - path) : strlen(path), url);
    if (!error && query)
        error = parse_query(query + 1, url);
    return error;
}

static const char *parse(const char *text, struct ng_url *url)
{
    if (strcmp(text, "none") == 0) {
        url->kind = NG_URL_NONE;
        return NULL;
    }
    if (strncmp(text, "local:", 6) == 0) {
        url->kind = NG_URL_LOCAL;
        if (strncmp(text + 6, "//", 2) == 0)
            return "the folder comes without further slashes, as in local:/dev/shm/job";
        if (strlen(text + 6) >= sizeof(url->path))
            return "a part of it is too long";
        strcpy(url->path, text + 6);
        return NULL;
    }
    for (size_t i = 0; i < NG_COUNT(schemes); i++) {
        size_t length = strlen(schemes[i].prefix);
        if (strncmp(text, schemes[i].prefix, length) == 0) {
            url->kind = schemes[i].kind;
            url->tls = schemes[i].tls;
            return parse_redis(text + length, url);
        }
    }
    return "use local:, local:DIR, redis://host, rediss://host, redis+unix:///path, "
           "redis+sentinel://h1,h2/master or none";
}

int ng_url_parse(const char *text, struct ng_url *ret_url, char *why, size_t why_bytes)
{
    struct ng_url *url = calloc(1, sizeof(*url));

    if (!url) {
        snprintf(why, why_bytes, "no memory");
        return -ENOMEM;
    }
    url->verify = true;
    const char *error = parse(text, url);
    if (error) {
        char shown[256];
        ng_url_redact(text, shown, sizeof(shown));
        snprintf(why, why_bytes, "store \"%s\": %s", shown, error);
    } else {
        *ret_url = *url;
    }
    explicit_bzero(url, sizeof(*url));
    free(url);
    return error ? -EINVAL : 0;
}

void ng_url_print(const struct ng_url *url, char *ret_text, size_t bytes)
{
    struct text text = {.to = ret_text, .bytes = bytes};
    char part[32];

    put(&text, "", 0);
    if (url->kind == NG_URL_NONE || url->kind == NG_URL_LOCAL) {
        put_text(&text, url->kind == NG_URL_NONE ? "none" : "local:");
        put_text(&text, url->path);
        return;
    }
    for (size_t i = 0; i < NG_COUNT(schemes); i++)
        if (schemes[i].kind == url->kind && schemes[i].tls == url->tls)
            put_text(&text, schemes[i].prefix);
    if (url->password[0]) {
        put_text(&text, url->user);
        put_text(&text, ":***@");
    }
    for (unsigned i = 0; i < url->host_count; i++) {
        bool brackets = strchr(url->hosts[i].name, ':');
        snprintf(part, sizeof(part), "%s:%u", brackets ? "]" : "", url->hosts[i].port);
        put_text(&text, i ? "," : "");
        put_text(&text, brackets ? "[" : "");
        put_text(&text, url->hosts[i].name);
        put_text(&text, part);
    }
    put_text(&text, url->path);
    if (url->kind == NG_URL_SENTINEL) {
        put_text(&text, "/");
        put_text(&text, url->master);
    }
    if (url->db) {
        snprintf(part, sizeof(part), "%s%d", url->kind == NG_URL_UNIX ? "?db=" : "/", url->db);
        put_text(&text, part);
    }
}
