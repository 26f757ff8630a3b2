/* Look up users and groups in this host's databases (nsswitch.conf). A lookup may block on a remote server such as
 * LDAP. Any thread.
 */
#ifndef GRANARY_BASE_ACCOUNTS_H
#define GRANARY_BASE_ACCOUNTS_H

#include <stdbool.h>
#include <stdint.h>

enum { ACCOUNT_TEXT_MAX = 64 };

/* Write "user 65534 (nobody)" to out, or "user 65534" when the number has no name or the lookup fails. Returns out. */
const char *account_text(uint32_t user, char out[ACCOUNT_TEXT_MAX]);

/* Set *out to the user's or group's number. False: the host knows no such name, or the lookup failed; *out is
 * unchanged. */
bool account_user(const char *name, uint32_t *out);
bool account_group(const char *name, uint32_t *out);

#endif
