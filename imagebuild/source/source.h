/* A source: a tree of files, mostly remote, that a build lists once and then reads in the order of its paths. This is
 * the one interface to all kinds of sources: directories, buckets, HDFS, web servers and tar shards
 * (source_internal.h), and the wrappers that filter, join or list others (source_wrappers.h).
 *
 *   source_open -> [source_set_known] -> source_list -> source_ask_counts -> source_read, source_stat -> source_close
 *
 * Threads: source_look, source_read, source_stat and source_cancel may be called from any number of threads at the
 * same time, also while source_list runs. All others are called from one thread at a time.
 *
 * Errors are -errno with a sentence.
 */
#ifndef GRANARY_IMAGEBUILD_SOURCE_SOURCE_H
#define GRANARY_IMAGEBUILD_SOURCE_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/compiler.h"
#include "base/digest.h"
#include "base/rate.h"

enum { SOURCE_VALIDATOR_MAX = 255 }; /* bytes; = CATALOG_VALIDATOR_MAX */
/* A validator of this prefix and 64 hex digits is the SHA-256 of the file. The build compares it with what was read. */
#define SOURCE_VALIDATOR_SHA256 "sha256:"

/* The validators of all members of one tar shard begin with the same SOURCE_SHARD_KEY_LEN bytes: this prefix, 32 hex
 * digits and a colon. These bytes are the shard's key. */
#define SOURCE_SHARD_KEY "tar:"
enum { SOURCE_SHARD_KEY_LEN = 4 + 32 + 1 };

/* Callbacks that tell a source which shards need not be read, because the parent has all their members. `has` may be
 * NULL: no shard is known. */
struct source_known {
    /* Return whether the parent has all members of the shard with this key. */
    bool (*has)(void *arg, const char *key, size_t len);
    /* Called once `has` was called for every shard: return whether known shards may be skipped. If not, all of them
     * are read. */
    bool (*suffice)(void *arg);
    void *arg;
};

/* The bytes of a file while it is listed, for sources that stream. */
struct source_content {
    /* Return the next piece in *out, valid until the next call; *len 0: the end. All pieces together have exactly as
     * many bytes as the entry's size. */
    int (*next)(struct source_content *content, const void **out, size_t *len);
};

/* One path as the listing describes it. Strings belong to the source and are valid during the callback only. */
struct source_entry {
    const char *path; /* bytes, relative, no leading or trailing slash; "" is the root itself */
    size_t path_len;
    uint32_t mode; /* type and permissions */
    uint32_t uid, gid;
    uint64_t rdev;         /* of devices */
    uint64_t size;         /* bytes */
    int64_t mtime;         /* seconds since 1970, negative before */
    uint32_t mtime_nsec;   /* nanoseconds to add */
    const char *validator; /* identifies this version of the file: at most SOURCE_VALIDATOR_MAX bytes, no NUL */
    size_t validator_len;  /* 0: the source cannot tell versions apart */
    const char *target;    /* text of a symbolic link */
    size_t target_len;
    uint64_t link_dev, link_ino; /* entries with an equal non-zero pair are hard links of one file; 0: none */
    const void *xattrs;          /* sequence of {le16 name_len, le32 value_len, name, value}; NULL: none */
    size_t xattrs_len;
    /* Regular files of a source that streams: the bytes, which can be read during the callback only. NULL: source_read
     * reads them. */
    struct source_content *content;
    /* Sources of archives: the number of the archive, from 1, and the entry's position in it, from 1, ascending. Of
     * two entries with the same path in one archive the later one counts. 0: in no archive. */
    uint32_t archive;
    uint64_t member;
    /* A hard link in an archive: another name of the entry at this position of the same archive, which has all
     * attributes but the path. SOURCE_NO_MEMBER: the archive has no such entry; `target` is the name that it gives.
     * 0: not a hard link. */
    uint64_t link_to;
    /* Regular files of images that are joined: the address in the new image at which the data lies already, and its
     * SHA-256. address 0: it does not. */
    uint64_t address;
    struct digest sha256;
};
#define SOURCE_NO_MEMBER UINT64_MAX

/* Return an entry with what a catalog says of it; strings stay the catalog's. Links of files, data and extended
 * attributes are left to the caller. For a further name, the catalog has the first name's path in place of the text of
 * the link: `target` is then any text, since its first name has it. */
struct catalog_entry;
struct source_entry source_entry_of_catalog(const struct catalog_entry *e);

/* Called for each entry. Non-zero ends the listing with that value. */
typedef int source_visit(void *arg, const struct source_entry *entry);

/* A range of a file to read. */
struct source_read {
    const char *path;
    size_t path_len;
    const char *validator; /* the version wanted: at most SOURCE_VALIDATOR_MAX bytes */
    size_t validator_len;
    uint64_t offset, len; /* bytes */
    uint8_t *dst;         /* len bytes */
    uint64_t size;        /* of the whole file in that version, for sources with weak validators; 0: unknown */
    uint64_t address; /* NODE_MOVE: where the file's data begins in the parent's image; other sources do not use it */
};

/* A path to look up, and what a list of paths (source_wrappers.h) says about it. */
struct source_ask {
    const char *path;
    size_t path_len;
    bool have_size, have_sha256;
    uint64_t size;
    struct digest sha256;
};

/* The version of a regular file that the source has now. */
struct source_version {
    uint64_t size;
    int64_t mtime;
    uint32_t mtime_nsec;
    bool have_owner; /* mode, uid and gid are known */
    uint32_t mode, uid, gid;
    char validator[SOURCE_VALIDATOR_MAX + 1]; /* with a final NUL */
    size_t validator_len;
};

/* Warnings name the first paths that vanished: at most this number during the listing, and again during the reads. */
enum { SOURCE_VANISHED_NAMED = 8 };

/* What a listing met besides entries and errors. */
struct source_counts {
    /* Paths that their directory named but that were gone when the listing came to them. A directory counts as one,
     * since its contents are unknown. */
    uint64_t vanished;
    char first_vanished[256]; /* one of them, truncated; "" if there is none */
    uint64_t owners_unknown;  /* user and group names that have no id on this host; they became 0 */
};

struct source;
/* The operations of one kind of source. Callers use the functions below instead, which handle NULL operations. */
struct source_ops {
    /* Visit every path once, in any order, at each call. Parents of a file need not be listed; missing ones become
     * directories of mode 0755. Names that no filesystem can hold are passed on too: the listing (tree/) judges them.
     * All visits come from the calling thread. */
    int (*list)(struct source *s, source_visit *visit, void *arg);
    /* After list: add what the last listing met to *out. NULL: nothing to count. */
    void (*counts)(struct source *s, struct source_counts *out);
    /* Visit the entry at one path, as list would, before returning. -ENOENT: there is none. NULL: this kind can only
     * be listed as a whole. Any thread. */
    int (*look)(struct source *s, const struct source_ask *ask, source_visit *visit, void *arg);
    /* Return whether file data comes with the listing (source_entry.content), in the order of the archive rather than
     * of the paths. NULL: it does not. */
    bool (*streams)(const struct source *s);
    /* Before list: call known->has for every shard; list then skips the shards that are known. All sources of a build
     * get this call before any of them is listed, because `suffice` needs all answers. What known->arg points to must
     * live until list returns. NULL: nothing can be skipped. */
    int (*set_known)(struct source *s, const struct source_known *known);
    /* Copy the name of the shard, or of the joined image, that a listed entry is from into out, truncated to size. Only
     * the entry's validator and link_dev are set. Return false if it is from none. NULL: the source has neither. */
    bool (*name_origin)(struct source *s, const struct source_entry *e, char *out, size_t size);
    /* Read exactly len bytes of the wanted version. -ESTALE: the source has another version now, or the file ended
     * early; -ENOENT: it is gone; -EAGAIN, -ETIMEDOUT: the source's own retries were used up. Any thread. */
    int (*read)(struct source *s, const struct source_read *read);
    /* Return the version that the source has now. -ENOENT: the path is gone, or is not a regular file any more. Any
     * thread. */
    int (*stat)(struct source *s, const char *path, size_t path_len, struct source_version *out);
    /* End the build: waits between retries end now, and reads may fail with -ECANCELED from now on. NULL: this kind
     * never waits. Any thread. */
    void (*cancel)(struct source *s);
    void (*close)(struct source *s);
};

/* Implementations embed this as their first member. */
struct source {
    const struct source_ops *ops;
    const char *url; /* for messages */
    /* A read is a system call rather than a request over the network. A few threads then suffice, and one thread reads
     * a run of small files, since waking another thread would take longer. */
    bool near;
};

/* HDFS: credentials, and the owners of files in the image. Pointers must be valid during source_open only. */
struct source_hdfs_options {
    const char *token_file;        /* NULL: HADOOP_TOKEN_FILE_LOCATION */
    const char *const *map_users;  /* "NAME=ID"; other names: the host's databases, else 0 */
    const char *const *map_groups; /* likewise */
    size_t map_user_count, map_group_count;
};

enum { SOURCE_JOBS_MAX = 256 }; /* most files that a build reads at the same time */

/* Options of all kinds; each kind takes those that concern it. */
struct source_options {
    struct source_hdfs_options hdfs;
    const char *http_token_file; /* its token goes to the web server of the address as a bearer token; NULL: none */
    const char *endpoint;        /* of S3 */
    unsigned connections;        /* at least the build's jobs */
    uint64_t timeout_ms;         /* how long one operation is retried; 0: 5 minutes */
    const char *choice;   /* tar: text of all further options that decide what members become, for the keys of shards;
                             NULL: none */
    bool tar_directories; /* tar: put the members of each shard below a directory named after it */
    /* Directories that these rules leave out need not be listed; source_shape judges what is listed. They must outlive
     * the source. NULL: none. */
    const struct rules *rules;
    /* May be set at any time, by a signal handler for example: waits between retries then end with -ECANCELED. NULL is
     * allowed. */
    const volatile int *cancel;
    struct rate *rate; /* limits the bytes received over HTTP; must outlive the source; NULL: no limit */
};

/* Open a source by its address: /dir, file:///dir, s3://bucket/prefix, hdfs://namenode:9870/path, http://host/path, or
 * "tar:" before one of them. The caller closes it.
 *
 * -EINVAL: the address is malformed, or of no known kind (the sentence lists the kinds). -ENOENT: a local directory
 * is missing. -ENOMEM. Others come from the kind. */
GR_MUST_CHECK int source_open(const char *url, const struct source_options *options, struct source **out);

/* Open a directory of this machine. url is copied and serves messages only. -ENOMEM, or the errors of open(2). */
GR_MUST_CHECK int source_local_open(const char *url, const char *path, const struct source_options *options,
                                    struct source **out);

/* The operations, as described at source_ops. Where a source lacks one, these do nothing or return false. */
int source_list(struct source *s, source_visit *visit, void *arg);
void source_ask_counts(struct source *s, struct source_counts *out);
/* Return whether source_look works for this source. */
bool source_can_look(const struct source *s);
/* -ENOTSUP: the source can only be listed as a whole. */
int source_look(struct source *s, const struct source_ask *ask, source_visit *visit, void *arg);
bool source_streams(const struct source *s);
/* Return whether source_set_known has an effect. */
bool source_can_know(const struct source *s);
int source_set_known(struct source *s, const struct source_known *known);
bool source_name_origin(struct source *s, const struct source_entry *e, char *out, size_t size);
int source_read(struct source *s, const struct source_read *read);
int source_stat(struct source *s, const char *path, size_t path_len, struct source_version *out);
void source_cancel(struct source *s);
void source_close(struct source *s); /* NULL is allowed */

#endif
