/* What bodies.c (the consumer) and bodies_read.c (the readers) share. */
#ifndef GRANARY_IMAGEBUILD_CONTENT_BODIES_INTERNAL_H
#define GRANARY_IMAGEBUILD_CONTENT_BODIES_INTERNAL_H

#include "base/counter.h"
#include "base/error.h"
#include "imagebuild/content/bodies.h"
#include "imagebuild/content/jobs.h"

enum {
    BODY_JOBS_MAX = 1024,
    /* Files that one reader claims at once from a source that is near: */
    BODY_RUN = 32,
    BODY_RUN_BYTES = 256 << 10, /* together at most */
};

/* One part and what its reader needs to know of the file, copied when it was claimed. */
struct body_claim {
    struct body_claim *next;
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
struct body_redo {
    bool active, counted; /* counted: as changed */
    uint32_t rank;
    struct bytes path, validator; /* the node's */
    uint64_t size;
    unsigned tries; /* versions asked for, the node's among them */
    uint64_t offset;
    struct source_version version;
    uint8_t *data;
};

struct bodies {
    struct source *source, *parent;
    size_t memory, part;
    bool strict;
    pthread_mutex_t lock;
    pthread_cond_t room, ready;
    /* under the lock */
    bool stop, exhausted;
    struct error feed;    /* the nodes cannot be read, or memory is out: the readers stopped */
    bool advancing;       /* a reader looks for the next file; cursor and node are its own */
    bool have_node;       /* node is a file being cut into parts */
    struct node node;     /* its bytes are the cursor's */
    uint64_t node_offset; /* of the next part */
    struct body_claim *first, **last_next;
    size_t used;      /* bytes of claimed, ready, abandoned and current parts */
    bool full;        /* used came to the budget; until it is well below nobody claims */
    unsigned reading; /* readers that do */
    unsigned limit;   /* readers that may read at a time */
    bool find_limit;
    struct jobs jobs; /* when find_limit is set */
    struct {
        uint64_t start_ms, bytes, requests;
        bool held_up; /* by something else than the source */
    } interval;
    unsigned thread_count;
    /* the consumer's own */
    struct body_claim *current;
    struct body_redo redo;
    struct hasher *hasher; /* of a file of several parts */
    bool hashing;
    struct error failed;
    counter changed, vanished, read_bytes, moved_bytes, unmovable;
    struct nodes_cursor *cursor;
    pthread_t threads[BODY_JOBS_MAX];
};

/* Let so many readers read, starting what threads are missing. -errno: there is not a single one. */
int bodies_set_limit_locked(struct bodies *b, unsigned limit);
size_t body_claim_cost(const struct body_claim *c);
void body_claim_free(struct body_claim *c);
/* c, which is to be freed, leaves room for others: wake a reader when there is enough. */
void bodies_give_room_locked(struct bodies *b, const struct body_claim *c);
/* Take the first claim out of the list; there is one. */
struct body_claim *bodies_unlink_first_locked(struct bodies *b);

#endif
