/*
 * Demangles names of C++ in a text.
 *
 * Any thread. The names come from evidence: whatever they are, only copies of them change.
 */
#include "tools/base/demangle.h"

#include <ctype.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ANONYMOUS "(anonymous namespace)"
#define OPERATOR  "operator"

/* A longer name stays mangled: names from outside may grow without limit. */
#define PLAIN_BYTES 8192

#if NG_HAVE_DEMANGLE
/* libsupc++'s, which has no header. It uses the stack alone, so its callback may jump out. */
int __gcclibcxx_demangle_callback(const char *mangled,
                                  void (*callback)(const char *part, size_t bytes, void *context),
                                  void *context);
#else
static int __gcclibcxx_demangle_callback(const char *mangled,
                                         void (*callback)(const char *, size_t, void *),
                                         void *context)
{
    return -2;
}
#endif

struct plain {
    char text[PLAIN_BYTES];
    size_t used;
    jmp_buf full;
};

static void add_part(const char *part, size_t bytes, void *context)
{
    struct plain *plain = context;

    if (bytes >= sizeof(plain->text) - plain->used)
        longjmp(plain->full, 1);
    memcpy(plain->text + plain->used, part, bytes);
    plain->used += bytes;
}

/* False: it is no name of C++, or too long. */
static bool demangle(const char *name, struct plain *ret_plain)
{
    ret_plain->used = 0;
    if (setjmp(ret_plain->full) != 0 ||
        __gcclibcxx_demangle_callback(name, add_part, ret_plain) != 0)
        return false;
    ret_plain->text[ret_plain->used] = '\0';
    return true;
}

static bool is_of_name(char byte)
{
    return isalnum((unsigned char)byte) || byte == '_' || byte == '.' || byte == '$';
}

static bool starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

static bool ends_with(const char *text, size_t length, const char *end)
{
    return length >= strlen(end) && memcmp(text + length - strlen(end), end, strlen(end)) == 0;
}

/* Behind the bracket that closes the one at `open`. */
static const char *behind(const char *open)
{
    int depth = 0;

    for (const char *at = open; *at; at++) {
        depth += strchr("(<[{", *at) != NULL;
        depth -= strchr(")>]}", *at) != NULL;
        if (depth == 0)
            return at + 1;
    }
    return open + strlen(open);
}

/* "void a::f<int>(int) const" becomes "a::f<int>", in place. */
static void shorten(char *name)
{
    char *to = name;

    for (const char *at = name; *at;) {
        bool is_operators = ends_with(name, (size_t)(to - name), OPERATOR);
        if (is_operators && (*at == '(' || *at == '<')) {
            /* operator(), operator<, operator<< */
            do
                *to++ = *at++;
            while (*at == ')' || *at == '<' || *at == '=');
            continue;
        }
        if (!strchr("(<[{", *at)) {
            /* A return type goes; "operator new" stays. */
            bool is_type = *at == ' ' && !is_operators;
            if (is_type && strchr("[", at[1]))
                break; /* "[clone .cold]" */
            if (is_type && starts_with(at, " const") && !is_of_name(at[6]))
                at += 6;
            else if (is_type)
                to = name, at++;
            else
                *to++ = *at++;
            continue;
        }
        const char *end = behind(at);
        bool is_parameters = *at == '(' && !starts_with(at, ANONYMOUS);
        if (!is_parameters) {
            memmove(to, at, (size_t)(end - at));
            to += end - at;
        }
        at = end;
    }
    *to = '\0';
}

char *ng_demangle(const char *text)
{
    char *result = NULL;
    size_t bytes;
    struct plain plain;
    FILE *output = open_memstream(&result, &bytes);

    if (!output)
        return NULL;
    for (const char *at = text; *at;) {
        size_t length = 0;
        while (is_of_name(at[length]))
            length++;
        char *name = starts_with(at, "_Z") ? strndup(at, length) : NULL;
        bool is_mangled = name && demangle(name, &plain);
        if (is_mangled)
            shorten(plain.text);
        if (is_mangled && plain.text[0])
            fputs(plain.text, output);
        else
            fwrite(at, 1, length ? length : 1, output);
        free(name);
        at += length ? length : 1;
    }
    bool failed = ferror(output);
    if (fclose(output) != 0 || failed) {
        free(result);
        return NULL;
    }
    return result;
}
