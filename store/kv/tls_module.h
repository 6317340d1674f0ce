/*
 * TLS for Redis from a file beside this one, libncclguard_tls.so: only programs that ask for
 * rediss:// get OpenSSL into their process. Who may load files (shim/, tools/) asks here where it
 * lies. Pure.
 */
#ifndef NCCLGUARD_STORE_KV_TLS_MODULE_H
#define NCCLGUARD_STORE_KV_TLS_MODULE_H

#include <stdbool.h>
#include <stddef.h>

/* What the file exports: struct ng_tls_ops (store/kv/tls.h). */
#define NG_TLS_MODULE_SYMBOL "ng_tls_openssl"

/* The `index`-th place, from 0, to look at for somebody who was loaded from the file `self`. False:
 * there are no more, or it does not fit. */
bool ng_tls_module_path(const char *self, unsigned index, char *ret_path, size_t bytes);

#endif
