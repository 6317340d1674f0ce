/*
 * Opens a store: chooses the backend, and what stands in front of it. The only file that names
 * both.
 *
 * Entered by a thread of the guard or of a tool.
 */
#include "store/kv/kv_open.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/kv/url.h"

int ng_kv_open(const char *text, const struct ng_kv_options *options, char *why, size_t why_bytes,
               struct ng_kv **ret_kv)
{
    struct ng_kv *opened = NULL, *outer = NULL;
    char shown[256];
    int error;

    if (!options->job || !options->job[0] || !options->run || !options->run[0]) {
        snprintf(why, why_bytes, "a store needs the names of a job and of its run");
        return -EINVAL;
    }
    struct ng_url *url = malloc(sizeof(*url));
    if (!url) {
        snprintf(why, why_bytes, "no memory");
        return -ENOMEM;
    }
    error = ng_url_parse(text, url, why, why_bytes);
    if (!error) {
        ng_url_print(url, shown, sizeof(shown));
        if (url->kind == NG_URL_NONE || url->kind == NG_URL_LOCAL) {
            snprintf(why, why_bytes, "store \"%s\": there is no server to open", shown);
            error = -EINVAL;
        } else {
#if NG_HAVE_HIREDIS
            error = ng_kv_redis_open(url, options, why, why_bytes, &opened);
#else
            snprintf(why, why_bytes,
                     "store \"%s\": this build of ncclguard has no Redis: install hiredis "
                     "(libhiredis-dev) and build it with -Dredis=enabled, or use local:",
                     shown);
            error = -EOPNOTSUPP;
#endif
        }
        if (!error && options->key_file)
            error = ng_kv_signed_open(opened, options, why, why_bytes, &outer);
        else
            outer = opened;
        if (!error) {
            snprintf(outer->name, sizeof(outer->name), "%s", shown);
            *ret_kv = outer;
        } else {
            ng_kv_destroy(opened);
        }
    }
    explicit_bzero(url, sizeof(*url));
    free(url);
    return error;
}
