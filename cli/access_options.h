/* Options of `granary serve` that say who may connect to the server. */
#ifndef GRANARY_CLI_ACCESS_OPTIONS_H
#define GRANARY_CLI_ACCESS_OPTIONS_H

#include "attach/attach.h"
#include "cli/options.h"

/* Their values; NULL: not given. */
struct access_values {
    const char *socket_mode, *socket_owner, *control_mode, *control_owner;
    const char *tls_certificates, *tls_psk;
    bool tls_verify_peer;
};

/* clang-format off */
#define ACCESS_ROWS(type, member)                                                                                      \
    {OPTION_TEXT, 0, "socket-mode", "MODE", offsetof(type, member.socket_mode), 0, 0,                                  \
     "the unix socket's mode (default 0600; with a group 0660)"},                                                      \
    {OPTION_TEXT, 0, "socket-owner", "[USER][:GROUP]", offsetof(type, member.socket_owner), 0, 0,                      \
     "its owner; users who may connect can read the images"},                                                          \
    {OPTION_TEXT, 0, "control-mode", "MODE", offsetof(type, member.control_mode), 0, 0,                                \
     "the control socket's mode"},                                                                                     \
    {OPTION_TEXT, 0, "control-owner", "[USER][:GROUP]", offsetof(type, member.control_owner), 0, 0,                    \
     "its owner; users who may connect can evict, pin and warm"},                                                      \
    {OPTION_TEXT, 0, "tls-certificates", "DIR", offsetof(type, member.tls_certificates), 0, 0,                         \
     "with --listen: only TLS, with ca-cert.pem, server-cert.pem and server-key.pem in DIR"},                          \
    {OPTION_TEXT, 0, "tls-psk", "FILE", offsetof(type, member.tls_psk), 0, 0,                                          \
     "with --listen: only TLS, for clients with a key in FILE"},                                                       \
    {OPTION_FLAG, 0, "tls-verify-peer", NULL, offsetof(type, member.tls_verify_peer), 0, 0,                            \
     "only clients with a certificate that ca-cert.pem signed"}
/* clang-format on */

/* Check that they fit each other; listens_tcp: --listen was given, so there is no unix socket. CLI_USAGE, with a
 * sentence. */
GR_MUST_CHECK int access_options_check(const struct access_values *v, bool listens_tcp);
/* Put the values, which were checked before, into the server's config. */
void access_options_apply(const struct access_values *v, struct server_config *out);

#endif
