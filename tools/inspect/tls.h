/*
 * TLS for the command.
 */
#ifndef NCCLGUARD_TOOLS_INSPECT_TLS_H
#define NCCLGUARD_TOOLS_INSPECT_TLS_H

struct ng_tls_ops;

/* For a store's URL; NULL: it needs none, or this build has none. */
const struct ng_tls_ops *ng_tls_for(const char *url);

#endif
