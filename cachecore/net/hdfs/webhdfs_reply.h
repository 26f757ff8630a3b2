/* Decode the JSON answers of WebHDFS and HttpFS. No I/O; every input is bounded and may be hostile. Failures are
 * -EBADMSG or -ENOMEM, with a sentence. Any thread.
 */
#ifndef GRANARY_NET_HDFS_WEBHDFS_REPLY_H
#define GRANARY_NET_HDFS_WEBHDFS_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/compiler.h"

enum { WEBHDFS_BODY_MAX = 16 << 20 }; /* bytes of a page: some 50,000 entries */

enum webhdfs_type { WEBHDFS_FILE, WEBHDFS_DIRECTORY, WEBHDFS_SYMLINK };

struct webhdfs_status {
    const char *name; /* the last component, never "." or "..", without a slash; empty in the answer to GETFILESTATUS */
    size_t name_len;
    enum webhdfs_type type;
    uint32_t permission;       /* 07777 */
    uint64_t size;             /* bytes */
    int64_t mtime_ms;          /* milliseconds since the epoch */
    uint64_t file_id;          /* 0: the server does not say */
    const char *owner, *group; /* names */
    const char *target;        /* of a symlink, else "" */
};

/* Entries with their strings. Entries are valid as long as the page. */
struct webhdfs_page;
void webhdfs_page_free(struct webhdfs_page *page);
DEFINE_CLEANUP(webhdfs_page, struct webhdfs_page *, webhdfs_page_free)
size_t webhdfs_page_count(const struct webhdfs_page *page);
const struct webhdfs_status *webhdfs_page_status(const struct webhdfs_page *page, size_t i);
/* Do more entries follow this page? */
bool webhdfs_page_more(const struct webhdfs_page *page);

/* Decode the answer to LISTSTATUS_BATCH. Entries are in the server's order, that of signed bytes. A page that is empty
 * although more follow is -EBADMSG too: no next page could be requested. */
GR_MUST_CHECK int webhdfs_list_decode(const void *data, size_t len, struct webhdfs_page **out);
/* Decode the answer to GETFILESTATUS into a page of one. */
GR_MUST_CHECK int webhdfs_status_decode(const void *data, size_t len, struct webhdfs_page **out);

/* A RemoteException. */
struct webhdfs_exception {
    char name[64];     /* letters and digits, as in FileNotFoundException */
    char message[200]; /* the first line of its message, cut */
};
/* Decode a RemoteException; out->name is empty when the body is something else. */
void webhdfs_exception_decode(const void *data, size_t len, struct webhdfs_exception *out);

#endif
