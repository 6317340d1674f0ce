/*
 * TLS for the command: linked in, where the build has OpenSSL.
 */
#include "tools/inspect/tls.h"

#include <stddef.h>

#include "store/kv/tls.h"
#include "store/kv/url.h"

const struct ng_tls_ops *ng_tls_for(const char *url)
{
    struct ng_url parsed;
    char why[NG_URL_TEXT_BYTES];

    if (ng_url_parse(url, &parsed, why, sizeof(why)) != 0 || !parsed.tls)
        return NULL;
#if NG_HAVE_TLS
    return &ng_tls_openssl;
#else
    return NULL;
#endif
}
