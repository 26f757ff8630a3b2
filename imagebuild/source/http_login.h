/* Who asks a web server: the header line of a token, or a file of names and passwords. */
#ifndef GRANARY_IMAGEBUILD_SOURCE_HTTP_LOGIN_H
#define GRANARY_IMAGEBUILD_SOURCE_HTTP_LOGIN_H

#include "base/compiler.h"

enum { HTTP_LOGIN_TOKEN_MAX = 16 << 10 };

/* "Authorization: Bearer TOKEN" with what the file holds, without the blanks and line ends around it. *out is a secret,
 * for http_login_free. The sentence of -EIO (it cannot be
 * read) and -EBADMSG (it holds no token) names the file and nothing of what is in it. */
GR_MUST_CHECK int http_login_read(const char *token_file, char **out);
void http_login_free(char *line); /* NULL is allowed */

/* The path of the file that NETRC names, else of ~/.netrc; NULL: there is none to be read, or no memory. */
char *http_login_netrc(void);

#endif
