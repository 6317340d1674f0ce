/*
 * TLS by OpenSSL.
 *
 * Entered by the thread that uses a kv. Must never touch a descriptor: OpenSSL's own writing raises
 * SIGPIPE.
 */
#include "store/kv/tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>

struct ng_tls {
    SSL_CTX *context;
    SSL *session;
    BIO *from_server, *to_server; /* owned by the session */
};

static void explain(char *why, size_t why_bytes, const char *what)
{
    char text[160] = "";
    unsigned long code = ERR_peek_last_error();

    if (code)
        ERR_error_string_n(code, text, sizeof(text));
    snprintf(why, why_bytes, "%s%s%s", what, code ? ": " : "", text);
}

static void openssl_destroy(struct ng_tls *tls)
{
    if (!tls)
        return;
    SSL_free(tls->session);
    SSL_CTX_free(tls->context);
    free(tls);
}

static int load_files(struct ng_tls *tls, const struct ng_tls_options *options, char *why,
                      size_t why_bytes)
{
    char what[512];

    if (options->ca[0] ? !SSL_CTX_load_verify_locations(tls->context, options->ca, NULL)
                       : !SSL_CTX_set_default_verify_paths(tls->context)) {
        snprintf(what, sizeof(what), "cannot use the authorities in %s", options->ca);
        explain(why, why_bytes, what);
        return -EACCES;
    }
    if (options->cert[0] &&
        (!SSL_CTX_use_certificate_chain_file(tls->context, options->cert) ||
         !SSL_CTX_use_PrivateKey_file(tls->context, options->key, SSL_FILETYPE_PEM))) {
        snprintf(what, sizeof(what), "cannot use the certificate in %s with the key in %s",
                 options->cert, options->key);
        explain(why, why_bytes, what);
        return -EACCES;
    }
    return 0;
}

static bool expect_host(SSL *session, const char *host)
{
    unsigned char number[16];

    if (inet_pton(AF_INET, host, number) == 1 || inet_pton(AF_INET6, host, number) == 1)
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(session), host);
    return SSL_set1_host(session, host) && SSL_set_tlsext_host_name(session, host);
}

static int openssl_create(const struct ng_tls_options *options, char *why, size_t why_bytes,
                          struct ng_tls **ret_tls)
{
    struct ng_tls *tls = calloc(1, sizeof(*tls));
    int error = -ENOMEM;

    ERR_clear_error();
    if (!tls || !(tls->context = SSL_CTX_new(TLS_client_method())))
        goto fail;
    SSL_CTX_set_min_proto_version(tls->context, TLS1_2_VERSION);
    SSL_CTX_set_verify(tls->context, options->verify ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, NULL);
    error = load_files(tls, options, why, why_bytes);
    if (error)
        goto fail;
    error = -ENOMEM;
    tls->session = SSL_new(tls->context);
    if (!tls->session || !expect_host(tls->session, options->host))
        goto fail;
    tls->from_server = BIO_new(BIO_s_mem());
    tls->to_server = BIO_new(BIO_s_mem());
    if (!tls->from_server || !tls->to_server) {
        BIO_free(tls->from_server);
        BIO_free(tls->to_server);
        goto fail;
    }
    SSL_set_bio(tls->session, tls->from_server, tls->to_server);
    SSL_set_connect_state(tls->session);
    *ret_tls = tls;
    return 0;

fail:
    if (error == -ENOMEM)
        snprintf(why, why_bytes, "no memory for TLS");
    openssl_destroy(tls);
    return error;
}

static int openssl_feed(struct ng_tls *tls, const void *data, size_t bytes)
{
    size_t wrote;

    return BIO_write_ex(tls->from_server, data, bytes, &wrote) && wrote == bytes ? 0 : -ENOMEM;
}

static size_t openssl_take(struct ng_tls *tls, void *ret_data, size_t bytes)
{
    size_t got = 0;

    return BIO_read_ex(tls->to_server, ret_data, bytes, &got) ? got : 0;
}

static int openssl_handshake(struct ng_tls *tls, char *why, size_t why_bytes)
{
    ERR_clear_error();
    int result = SSL_do_handshake(tls->session);
    if (result == 1)
        return 0;
    int error = SSL_get_error(tls->session, result);
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE)
        return -EAGAIN;
    long verified = SSL_get_verify_result(tls->session);
    if (verified != X509_V_OK) {
        snprintf(why, why_bytes, "the server's certificate is not trusted: %s",
                 X509_verify_cert_error_string(verified));
        return -EACCES;
    }
    explain(why, why_bytes, "no TLS with this server");
    return -EPROTO;
}

/* With TLS 1.3 a server rejects a client's certificate only after the handshake. */
static bool refuses_us(void)
{
    switch (ERR_GET_REASON(ERR_peek_last_error())) {
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
    case SSL_R_TLSV1_ALERT_ACCESS_DENIED:
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
        return true;
    }
    return false;
}

static ssize_t openssl_read(struct ng_tls *tls, void *ret_data, size_t bytes)
{
    size_t got;

    ERR_clear_error();
    int result = SSL_read_ex(tls->session, ret_data, bytes, &got);
    if (result == 1)
        return (ssize_t)got;
    switch (SSL_get_error(tls->session, result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        return -EAGAIN;
    case SSL_ERROR_ZERO_RETURN:
        return -ECONNRESET;
    }
    return refuses_us() ? -EACCES : -EPROTO;
}

static int openssl_write(struct ng_tls *tls, const void *data, size_t bytes)
{
    size_t wrote;

    ERR_clear_error();
    /* Writes to memory: it takes all or nothing. */
    return SSL_write_ex(tls->session, data, bytes, &wrote) && wrote == bytes ? 0 : -EPROTO;
}

/* Exported: a program that must not be linked with OpenSSL loads it by this name. */
__attribute__((visibility("default"))) const struct ng_tls_ops ng_tls_openssl = {
    .create = openssl_create,
    .destroy = openssl_destroy,
    .feed = openssl_feed,
    .take = openssl_take,
    .handshake = openssl_handshake,
    .read = openssl_read,
    .write = openssl_write,
};
