/* Contradictions are refused here, before a server starts: an access option that had no effect would leave a door open
 * that its user believes closed. */
#include "cli/access_options.h"

#include "base/error.h"

/* TLS needs TCP, and one way to recognise clients. Returns CLI_USAGE with a sentence, or 0. */
static int check_tls(const struct access_values *v, bool listens_tcp)
{
    if ((v->tls_certificates || v->tls_psk) && !listens_tcp)
        (void)error_set(0, "--%s needs --listen HOST:PORT: the kernel connects to the unix socket and cannot speak TLS",
                        v->tls_psk ? "tls-psk" : "tls-certificates");
    else if (v->tls_certificates && v->tls_psk)
        return options_exclude("--tls-certificates", "--tls-psk", "a server has one way to authenticate clients");
    else if (v->tls_verify_peer && !v->tls_certificates)
        (void)error_set(0, "--tls-verify-peer needs --tls-certificates DIR");
    else
        return 0;
    return CLI_USAGE;
}

int access_options_check(const struct access_values *v, bool listens_tcp)
{
    struct socket_access access;
    if ((v->socket_mode || v->socket_owner) && listens_tcp)
        return options_exclude(v->socket_mode ? "--socket-mode" : "--socket-owner", "--listen", "there is no socket");
    if (socket_access_parse("socket", v->socket_mode, v->socket_owner, &access) ||
        socket_access_parse("control", v->control_mode, v->control_owner, &access))
        return CLI_USAGE;
    return check_tls(v, listens_tcp);
}

void access_options_apply(const struct access_values *v, struct server_config *out)
{
    if (socket_access_parse("socket", v->socket_mode, v->socket_owner, &out->socket_access) ||
        socket_access_parse("control", v->control_mode, v->control_owner, &out->control_access))
        return; /* checked before */
    out->tls_certificates = v->tls_certificates;
    out->tls_psk = v->tls_psk;
    out->tls_verify_peer = v->tls_verify_peer;
}
