/* Which source an address means, and what sources share. */
#include "imagebuild/source/source.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/log.h"
#include "format/image_ref.h"
#include "imagebuild/source/source_kinds.h"
#include "net/hdfs/hdfs_address.h"

static const char known[] =
    "/dir, file:///dir, s3://bucket/prefix, hdfs://namenode:9870/path, http://host/path, or tar: before one of them";

int source_open(const char *url, const struct source_options *options, struct source **out)
{
    if (!strncmp(url, "tar:", 4))
        return source_tar_open(url, url + 4, options, out);
    if (!strncmp(url, "s3://", 5))
        return source_s3_open(url, url + 5, options, out);
    if (!strncmp(url, "http://", 7) || !strncmp(url, "https://", 8))
        return source_http_open(url, options, out);
    if (hdfs_address_known(url))
        return source_hdfs_open(url, options, out);
    if (!strncmp(url, "file:///", 8))
        return source_local_open(url, url + 7, options, out);
    if (strstr(url, "://") && image_ref_advice(url))
        return error_set(-EINVAL, "source: '%s': %s", url, image_ref_advice(url));
    if (strstr(url, "://"))
        return error_set(-EINVAL, "source: '%s' is of no known kind; write %s", url, known);
    if (!*url)
        return error_set(-EINVAL, "source: an empty address; write %s", known);
    return source_local_open(url, url, options, out);
}

bool source_counts_vanished(struct source_counts *c, const char *path, size_t len)
{
    if (!c->vanished)
        snprintf(c->first_vanished, sizeof c->first_vanished, "%.*s", (int)GR_MIN(len, sizeof c->first_vanished), path);
    return c->vanished++ < SOURCE_VANISHED_NAMED;
}

void source_warn_vanished(const char *path, size_t len)
{
    log_warning("source: '%.*s' was named where it should be, but is not there: it is left out",
                (int)GR_MIN(len, (size_t)1024), path);
}

void source_counts_add(struct source_counts *to, const struct source_counts *from)
{
    if (!to->vanished)
        memcpy(to->first_vanished, from->first_vanished, sizeof to->first_vanished);
    to->vanished += from->vanished;
    to->owners_unknown += from->owners_unknown;
}

int source_tell(const struct source_ask *ask, const struct source_version *now, source_visit *visit, void *arg)
{
    const struct source_entry e = {.path = ask->path,
                                   .path_len = ask->path_len,
                                   .mode = S_IFREG | 0644,
                                   .size = now->size,
                                   .mtime = now->mtime,
                                   .validator = now->validator,
                                   .validator_len = now->validator_len};
    return visit(arg, &e);
}

int source_take(void *arg, const void *data, size_t len)
{
    struct source_target *t = arg;
    if (len > t->len - t->done)
        return error_set(-EBADMSG, "source: the server sent more bytes than were asked for");
    memcpy(t->dst + t->done, data, len);
    t->done += len;
    return 0;
}
