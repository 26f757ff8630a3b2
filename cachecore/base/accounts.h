/* Users and groups by name, as this host's databases have them. May ask a server far away. Any thread. */
#ifndef GRANARY_BASE_ACCOUNTS_H
#define GRANARY_BASE_ACCOUNTS_H

#include <stdbool.h>
#include <stdint.h>

enum { ACCOUNT_TEXT_MAX = 64 };

/* "user 65534 (nobody)", or "user 65534" where the number has no name. Returns out. */
const char *account_text(uint32_t user, char out[ACCOUNT_TEXT_MAX]);

/* False: there is none. */
bool account_user(const char *name, uint32_t *out);
bool account_group(const char *name, uint32_t *out);

#endif
