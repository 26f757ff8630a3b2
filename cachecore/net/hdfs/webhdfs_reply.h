/* What WebHDFS and HttpFS answer, out of JSON. Decoders only: no I/O; every input is bounded and may be hostile. */
#ifndef GRANARY_NET_HDFS_WEBHDFS_REPLY_H
#define GRANARY_NET_HDFS_WEBHDFS_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/compiler.h"

enum { WEBHDFS_BODY_MAX = 16 << 20 }; /* of a page: some 50,000 entries */

enum webhdfs_type { WEBHDFS_FILE, WEBHDFS_DIRECTORY, WEBHDFS_SYMLINK };

struct webhdfs_status {
    const char *name; /* the last component; empty for the path that was asked for; never "." or "..", no slash */
    size_t name_len;
    enum webhdfs_type type;
    uint32_t permission; /* 07777 */
    uint64_t size;
    int64_t mtime_ms;
    uint64_t file_id;          /* 0: the server does not tell */
    const char *owner, *group; /* names */
    const char *target;        /* of a symlink, else "" */
};

/* Entries and their strings, one piece. */
struct webhdfs_page;
void webhdfs_page_free(struct webhdfs_page *page);
DEFINE_CLEANUP(webhdfs_page, struct webhdfs_page *, webhdfs_page_free)
size_t webhdfs_page_count(const struct webhdfs_page *page);
const struct webhdfs_status *webhdfs_page_status(const struct webhdfs_page *page, size_t i);
/* Whether more follow behind the last of these. */
bool webhdfs_page_more(const struct webhdfs_page *page);

/* The answer to LISTSTATUS_BATCH, in the server's order (that of signed bytes). -EBADMSG, also for a page that leads
 * nowhere: more to follow, but nothing in it. */
GR_MUST_CHECK int webhdfs_list_decode(const void *data, size_t len, struct webhdfs_page **out);
/* The answer to GETFILESTATUS, a page of one. -EBADMSG. */
GR_MUST_CHECK int webhdfs_status_decode(const void *data, size_t len, struct webhdfs_page **out);

/* A RemoteException; an empty name when the body is none. */
struct webhdfs_exception {
    char name[64];     /* letters and digits, as in FileNotFoundException */
    char message[200]; /* its first line, cut */
};
void webhdfs_exception_decode(const void *data, size_t len, struct webhdfs_exception *out);

#endif
