/* A source: a remote tree of files that a build lists once and then reads in path order. One
 * vtable; read is called from many threads at once, everything else from one. The fakes of the
 * tests implement it too.
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

enum { SOURCE_VALIDATOR_MAX = 255 }; /* = CATALOG_VALIDATOR_MAX */
/* A validator that begins so and goes on with 64 hex digits is the SHA-256 of the body: the build compares it with what
 * was read. */
#define SOURCE_VALIDATOR_SHA256 "sha256:"

/* Validators of the members of one tar shard begin with the same SOURCE_SHARD_KEY_LEN bytes, these in front. */
#define SOURCE_SHARD_KEY "tar:"
enum { SOURCE_SHARD_KEY_LEN = 4 + 32 + 1 };

/* Shards of which a build has all members already. */
struct source_known {
    bool (*has)(void *arg, const char *key, size_t len);
    bool (*suffice)(void *arg); /* once all shards have been asked about; false: none can be passed over */
    void *arg;
};

/* The bytes of a file while it is listed: exactly as many as its size says come from calls of next (len 0: the end),
 * each piece valid until the next call. */
struct source_content {
    int (*next)(struct source_content *content, const void **out, size_t *len);
};

/* What a listing says of one path. Strings belong to the source and live during the callback only.
 */
struct source_entry {
    const char *path; /* bytes, relative, no leading or trailing slash; the root itself is the empty path */
    size_t path_len;
    uint32_t mode; /* type and permissions */
    uint32_t uid, gid;
    uint64_t rdev;
    uint64_t size;
    int64_t mtime;
    uint32_t mtime_nsec;
    const char *validator; /* identifies this version of the body: at most SOURCE_VALIDATOR_MAX bytes; no NUL */
    size_t validator_len;
    const char *target; /* symlink text */
    size_t target_len;
    uint64_t link_dev, link_ino; /* equal non-zero pairs are hard links of one file; 0: none */
    const void *xattrs;          /* sequence of {le16 name_len, le32 value_len, name, value}; NULL: none */
    size_t xattrs_len;
    /* Of a regular file of a source that streams: its bytes, to be had within the callback alone. NULL: `read` gives
     * them. */
    struct source_content *content;
    /* Of a source of archives: in which one, from 1, and its place there, from 1, ascending: of two entries of one path
     * in one archive the later counts. 0: in none. */
    uint32_t archive;
    uint64_t member;
    /* A hard link: a further name of the entry at that place of the same archive, which says all but the path
     * (SOURCE_NO_MEMBER: there is none); target is what the archive calls it. 0: none. */
    uint64_t link_to;
};
#define SOURCE_NO_MEMBER UINT64_MAX

/* Non-zero ends the listing with that value. */
typedef int source_visit(void *arg, const struct source_entry *entry);

struct source_read {
    const char *path;
    size_t path_len;
    const char *validator; /* of the version wanted */
    size_t validator_len;
    uint64_t offset, len;
    uint8_t *dst;     /* len bytes */
    uint64_t size;    /* of the whole file in that version, for sources whose versions say too little; 0: not said */
    uint64_t address; /* NODE_MOVE: of the body (offset 0) in the parent's image; other sources do not look at it */
};

/* One path to look at, and what a list of files says of it. */
struct source_ask {
    const char *path;
    size_t path_len;
    bool have_size, have_sha256;
    uint64_t size;
    struct digest sha256;
};

/* The version of a regular file that is there now. */
struct source_version {
    uint64_t size;
    int64_t mtime;
    uint32_t mtime_nsec;
    bool have_owner; /* mode, uid and gid are known */
    uint32_t mode, uid, gid;
    char validator[SOURCE_VALIDATOR_MAX + 1]; /* with a final NUL */
    size_t validator_len;
};

/* The first paths that vanish are named in warnings: up to this number in the listing, and again in the reading. */
enum { SOURCE_VANISHED_NAMED = 8 };

/* What a listing met that is neither an entry nor an error. */
struct source_counts {
    /* Paths that were gone when the listing came to them, after what they are in had named them. What was below a
     * directory is not counted: nobody knows it. */
    uint64_t vanished;
    char first_vanished[256]; /* one of them, cut; "" when there is none */
    uint64_t owners_unknown;  /* names of users and groups that have no id here, so that 0 was taken */
};

struct source;
/* What an implementation does; callers have the functions below. */
struct source_ops {
    /* Every path once, in any order, each time it is called; a file's parents need not be listed (they are made 0755).
     * A key that no filesystem can hold is passed as it is: the listing judges names. */
    int (*list)(struct source *s, source_visit *visit, void *arg);
    /* After list: what it met, the last time, added to *out. NULL: a source that meets nothing of the kind. */
    void (*counts)(struct source *s, struct source_counts *out);
    /* Hand on the entry at one path, as list would, before returning. -ENOENT: nothing is there. NULL: the source can
     * only be listed as a whole. Any thread. */
    int (*look)(struct source *s, const struct source_ask *ask, source_visit *visit, void *arg);
    /* Do bodies come with the listing (source_entry.body), and in the order of the archive rather than of the paths?
     * NULL: no. */
    bool (*streams)(const struct source *s);
    /* Before list, which then passes over the shards that are known: asks about all of them, so that what several
     * sources have is known before one reads. known stays until list returns. NULL: nothing can be passed over. */
    int (*set_known)(struct source *s, const struct source_known *known);
    /* The name, as it is listed, of the shard that validator is a member's of, into out (cut to size); false: of none
     * that was listed. NULL: there are no shards. */
    bool (*name_shard)(struct source *s, const char *validator, size_t len, char *out, size_t size);
    /* Exactly len bytes of that version. -ESTALE: another version is there now, or the end came
     * early; -ENOENT: gone; -EAGAIN/-ETIMEDOUT after the source's own retries. Any thread. */
    int (*read)(struct source *s, const struct source_read *read);
    /* The version that is there now. -ENOENT: gone, or no regular file any more. Any thread. */
    int (*stat)(struct source *s, const char *path, size_t path_len, struct source_version *out);
    /* The build is over: waits between retries end, reads running and to come may fail with
     * -ECANCELED. NULL: nothing here waits. Any thread. */
    void (*cancel)(struct source *s);
    void (*close)(struct source *s);
};

struct source {
    const struct source_ops *ops;
    const char *url; /* for messages */
    /* A read is a system call, not a question to a server: few at a time do, and one thread reads small files in a run
     * rather than that each wakes another one. */
    bool near;
};

/* hdfs: who asks, and whose the files are in the image. Pointers must outlive source_open alone. */
struct source_hdfs_options {
    const char *token_file;        /* NULL: HADOOP_TOKEN_FILE_LOCATION */
    const char *const *map_users;  /* "NAME=ID"; names not given: the host's databases, else 0 */
    const char *const *map_groups; /* likewise */
    size_t map_user_count, map_group_count;
};

enum { SOURCE_JOBS_MAX = 256 }; /* files that a build reads at the same time, at most */

struct source_options {
    struct source_hdfs_options hdfs;
    const char *http_token_file; /* sent to the http(s) server of the address, as a bearer token; NULL: nothing is */
    const char *endpoint;        /* s3 */
    unsigned connections;        /* at least the build's jobs */
    uint64_t timeout_ms;         /* retries of one operation go on for so long; 0: 5 minutes */
    const char *choice;   /* what else decides what a source comes to, for shard keys: any text; NULL: nothing does */
    bool tar_directories; /* tar: members stand below a directory named after their shard */
    /* Directories these leave out need not be listed; what is listed is judged by source_shape. The caller keeps them
     * while the source is open. NULL: none. */
    const struct rules *rules;
    /* Set asynchronously (a signal) to end waits between retries with -ECANCELED; may be NULL. */
    const volatile int *cancel;
    struct rate *rate; /* of what comes over HTTP; outlives the source; NULL: no limit */
};

/* /dir, file:///dir, s3://bucket/prefix, hdfs://namenode:9870/path. -EINVAL: unknown scheme, listing the known ones;
 * -ENOENT.
 */
GR_MUST_CHECK int source_open(const char *url, const struct source_options *options, struct source **out);

/* A directory of this machine. url is kept for messages. */
GR_MUST_CHECK int source_local_open(const char *url, const char *path, const struct source_options *options,
                                    struct source **out);

/* The operations, which do what source_ops says; what an implementation leaves NULL does nothing, or says no. */
int source_list(struct source *s, source_visit *visit, void *arg);
void source_ask_counts(struct source *s, struct source_counts *out);
bool source_can_look(const struct source *s);
int source_look(struct source *s, const struct source_ask *ask, source_visit *visit, void *arg);
bool source_streams(const struct source *s);
bool source_can_know(const struct source *s);
int source_set_known(struct source *s, const struct source_known *known);
bool source_name_shard(struct source *s, const char *validator, size_t len, char *out, size_t size);
int source_read(struct source *s, const struct source_read *read);
int source_stat(struct source *s, const char *path, size_t path_len, struct source_version *out);
void source_cancel(struct source *s);
void source_close(struct source *s); /* NULL is allowed */

#endif
