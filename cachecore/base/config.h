/* The configuration file: settings that apply unless an option or the environment overrides them.
 *
 *     # /etc/granary.conf
 *     [server]                        options of granary serve and mount
 *     cache = /nvme0/granary:500G     some keys may be repeated
 *     cache = /nvme1/granary:500G
 *
 *     [s3://datasets]                 a bucket, as a store and as a source; [s3://] is every bucket
 *     endpoint = https://s3.example.com
 *
 * docs/reference/configuration.md lists the sections and keys. config.c checks the names of sections and the keys of
 * buckets; the readers of [server] and [mount] check theirs. The file is never a place for secrets: a bucket's section
 * names a profile of the AWS files.
 *
 * The file is not in /etc/granary, whose NAME.conf are those of units: granary-serve@granary would read a granary.conf
 * there. It is not TOML: settings are options of the command line, whose own table checks the values, so a parser of
 * types, quotes and nesting would have nothing to do.
 *
 * A file belongs to root or to the effective user, and no one else may write it, since it decides where data comes from
 * and where it is kept. */
#ifndef GRANARY_BASE_CONFIG_H
#define GRANARY_BASE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/compiler.h"
#include "base/vec.h"

/* One `key = value`. The strings are the file's. */
struct config_entry {
    const char *section, *key, *value; /* never empty */
    unsigned line;
};

/* A file that was read. Without entries and path: there is none. */
struct config {
    char *path;
    struct bytes text;                /* cut into strings */
    VEC(struct config_entry) entries; /* in the file's order */
};

/* Return the path of the file: GRANARY_CONFIG, else /etc/granary.conf. NULL: GRANARY_CONFIG is "none". */
const char *config_path(void);

/* Read a file; config_release it in any case. A file that is not there is an empty one, unless must_exist: -ENOENT.
 * -EINVAL: a line or a section has no known form; -EPERM: others may write it; -ENOMEM, and errors of open. The
 * sentence names the file and the line. */
GR_MUST_CHECK int config_read(const char *path, bool must_exist, struct config *out);
void config_release(struct config *c);
#define CLEANUP_CONFIG CLEANUP(config_release) struct config

/* The file at config_path, read at the first call and kept for the life of the process. A path from GRANARY_CONFIG must
 * exist. Errors of config_read, at each call. Any thread. */
GR_MUST_CHECK int config_get(const struct config **out);

/* Return the entry of a key for a bucket, from [s3://BUCKET], else from [s3://]. NULL: neither has the key. */
const struct config_entry *config_for_bucket(const struct config *c, const char *bucket, const char *key);

/* Check that no earlier line of the section sets the key. -EINVAL, with a sentence. */
GR_MUST_CHECK int config_check_once(const struct config *c, const struct config_entry *e);

/* Set the sentence "FILE:LINE: what"; returns -EINVAL. */
int config_wrong(const struct config *c, const struct config_entry *e, const char *fmt, ...) GR_PRINTF(3, 4);

#endif
