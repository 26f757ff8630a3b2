/* What the files of the console share: a page for browsers, and what it asks for.
 *
 *    GET /, /console.css, /console.js, ...   the page: the files of the folder console/, which the build embeds
 *    GET /api/status                         the document of the control socket's /status, and more (console_report.c)
 *    POST /api/warm, /api/cache/evict, ...   the control socket's requests of these names (control_routes.c)
 *
 *    console.c --> console_access.c   who may ask
 *         |------> console_report.c   the document, made at most once a second
 *         |            `------------> console_strip.c   a thread that looks where images' chunks are
 *         `------> control_routes.c   actions
 */
#ifndef GRANARY_SERVER_CONSOLE_INTERNAL_H
#define GRANARY_SERVER_CONSOLE_INTERNAL_H

#include <jansson.h>
#include <stdbool.h>

#include "base/bytes.h"
#include "base/digest.h"
#include "server/control_internal.h"
#include "server/server_internal.h"

enum {
    CONSOLE_EXPORTS_MAX = 1000,     /* exports in the document: the first ones added */
    CONSOLE_EVERY_MS = 900,         /* the document is not made more often; the page asks once a second */
    CONSOLE_DOCUMENT_MAX = 4 << 20, /* bytes; a slow client keeps one */
    CONSOLE_TOKEN_LEAST = 16,       /* characters */
    CONSOLE_TOKEN_FILE_MAX = 4096,  /* bytes */
    CONSOLE_STRIP_CELLS = 512,      /* of an image, at most */
    CONSOLE_STRIP_MAX = CONSOLE_STRIP_CELLS + 1,
};

/* ---- who may ask: console_access.c ---- */

/* A token is kept as its digest, so a comparison tells nothing by the time it takes. */
struct console_access {
    char host[256];         /* of the address that the console was given */
    bool needs_token, acts; /* a token is needed to look; there is one for actions */
    struct digest token, admin_token;
};

/* Read the token that is the only line of a file. what: the option, for sentences, which show no part of a token.
 * -EINVAL: it is too short, or has something other than printable ASCII; or the errors of io_read_file. */
GR_MUST_CHECK int console_token_read(const char *what, const char *path, struct digest *out);
/* Is this the value of an Authorization header with that token? NULL: there is no such header. */
bool console_token_is(const struct digest *token, const char *authorization);
/* May a browser that shows the page under this Host header look without a token? Only under a literal address,
 * localhost, or the name that the console was given: anyone can make another name point to this machine, and a page
 * of that name would read what the console says. */
bool console_host_is_own(const struct console_access *a, const char *host);

/* ---- where images' chunks are: console_strip.c ---- */

/* An image's address space in at most CONSOLE_STRIP_CELLS cells of equal size, a character each:
 *
 *    '0' to '9'   cached: nothing, a part, or all ('9') of the chunks looked at
 *    'a' to 'j'   the same, and half of the chunks or more are in memory
 *    'A' to 'J'   the same as '0' to '9', and some of the others are being fetched now
 *    '-'          holes only
 *    '?'          not looked at yet, or no index node of it is cached
 *
 * In a cell of many chunks a few are looked at, and others at the next time. A thread does that while somebody watches,
 * and takes at most 0.4 % of a CPU: with many images, it comes to each one more rarely. It uses no store. */
struct console_strips;

/* Make no thread. -ENOMEM. */
GR_MUST_CHECK int console_strips_new(struct stack *stack, struct console_strips **out);
/* Errors of thread_start. */
GR_MUST_CHECK int console_strips_start(struct console_strips *s);
/* Somebody watches now; the thread goes on for a few seconds. Any thread. */
void console_strips_watch(struct console_strips *s);
/* Copy an export's strip; "": it was not looked at yet. Returns the share of what is cached, of what was looked at, or
 * a negative number if that is nothing. Any thread. */
double console_strips_get(struct console_strips *s, uint64_t number, char out[CONSOLE_STRIP_MAX]);
/* NULL is allowed. */
void console_strips_free(struct console_strips *s);

/* Return the character for n chunks looked at (0: none), of which the given numbers are cached, in memory, and being
 * fetched. */
char console_strip_cell(unsigned n, unsigned cached, unsigned memory, unsigned coming, bool unknown);

/* ---- the document: console_report.c ---- */

/* Figures of the last seconds, for rates. One thread uses it. */
struct console_report;

GR_MUST_CHECK int console_report_new(struct stack *stack, struct added_exports *added, struct reports *reports,
                                     struct console_strips *strips, bool acts, struct console_report **out);
/* Make the document of now: the caller frees *out. -ENOMEM; -EMSGSIZE. */
GR_MUST_CHECK int console_report_make(struct console_report *r, char **out, size_t *out_len);
/* NULL is allowed. */
void console_report_free(struct console_report *r);

/* Return the bound below which `percent` of the durations are, in microseconds; 0: there are none; UINT64_MAX: it is
 * beyond the last bound. */
uint64_t console_quantile(const uint64_t counts[HISTOGRAM_BOUNDS + 1], unsigned percent);

/* ---- the page: console_files.c, which the build makes of console/ ---- */

struct console_file {
    const char *path, *type; /* of the URL; its content type */
    const unsigned char *data;
    size_t len;
};
extern const struct console_file console_files[];
extern const size_t console_file_count;

#endif
