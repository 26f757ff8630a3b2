/* What content_reader.c (the consumer) and content_reader_threads.c (the readers) share. */
#ifndef GRANARY_IMAGEBUILD_CONTENT_CONTENT_READER_INTERNAL_H
#define GRANARY_IMAGEBUILD_CONTENT_CONTENT_READER_INTERNAL_H

#include "base/counter.h"
#include "base/error.h"
#include "imagebuild/content/content_reader.h"
#include "imagebuild/content/read_concurrency.h"

enum {
    CONTENT_JOBS_MAX = 1024,
    /* Files that one reader claims at once from a source that is near: */
    CONTENT_RUN = 32,
    CONTENT_RUN_BYTES = 256 << 10, /* together at most */
};

/* One part and what its reader needs to know of the file, copied when it was claimed. */
struct content_claim {
    struct content_claim *next;
    uint32_t rank;
    bool move;
    uint64_t address;      /* of the body in the parent */
    uint64_t offset, size; /* in the file; of the file */
    size_t len;
    bool ready, abandoned;
    int rc;
    struct error *error;  /* rc's sentence; NULL: out of memory for it */
    struct digest digest; /* of whole-file parts */
    uint8_t *data;
    size_t path_len, validator_len;
    char text[]; /* path, validator */
};

/* A file that the consumer reads by itself. */
struct content_redo {
    bool active, counted; /* counted: as changed */
    uint32_t rank;
    struct bytes path, validator; /* the node's */
    uint64_t size;
    unsigned tries; /* versions asked for, the node's among them */
    uint64_t offset;
    struct source_version version;
    uint8_t *data;
};

struct content_reader {
    struct source *source, *parent;
    size_t memory, part;
    bool strict;
    pthread_mutex_t lock;
    pthread_cond_t budget_freed, ready;
    /* under the lock */
    bool stop, exhausted;
    struct error feed;    /* the nodes cannot be read, or memory is out: the readers stopped */
    bool advancing;       /* a reader looks for the next file; cursor and node are its own */
    bool have_node;       /* node is a file being cut into parts */
    struct node node;     /* its bytes are the cursor's */
    uint64_t node_offset; /* of the next part */
    struct content_claim *first, **last_next;
    size_t used;      /* bytes of claimed, ready, abandoned and current parts */
    bool full;        /* used came to the budget; until it is well below nobody claims */
    unsigned reading; /* readers that do */
    unsigned limit;   /* readers that may read at a time */
    bool find_limit;
    struct read_concurrency concurrency; /* when find_limit is set */
    struct {
        uint64_t start_ms, bytes, requests;
        bool held_up; /* by something else than the source */
    } interval;
    unsigned thread_count;
    /* the consumer's own */
    struct content_claim *current;
    struct content_redo redo;
    struct hasher *hasher; /* of a file of several parts */
    bool hashing;
    struct error failed;
    counter changed, vanished, read_bytes, moved_bytes, unmovable;
    struct nodes_cursor *cursor;
    pthread_t threads[CONTENT_JOBS_MAX];
};

/* Let so many readers read, starting what threads are missing. -errno: there is not a single one. */
int content_reader_set_limit_locked(struct content_reader *b, unsigned limit);
size_t content_claim_cost(const struct content_claim *c);
void content_claim_free(struct content_claim *c);
/* c, which is to be freed, leaves room for others: wake a reader when there is enough. */
void content_reader_give_back_locked(struct content_reader *b, const struct content_claim *c);
/* Take the first claim out of the list; there is one. */
struct content_claim *content_reader_unlink_first_locked(struct content_reader *b);

#endif
