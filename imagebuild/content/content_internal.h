/* Shared by content_reader.c (the consumer) and content_reader_threads.c (the readers); private to these two. */
#ifndef GRANARY_IMAGEBUILD_CONTENT_CONTENT_INTERNAL_H
#define GRANARY_IMAGEBUILD_CONTENT_CONTENT_INTERNAL_H

#include "base/counter.h"
#include "base/error.h"
#include "imagebuild/content/content_reader.h"
#include "imagebuild/content/read_concurrency.h"

enum {
    CONTENT_JOBS_MAX = 1024,
    /* how many files one reader claims at once from a near source */
    CONTENT_RUN = 32,
    CONTENT_RUN_BYTES = 256 << 10, /* their bytes, at most */
};

/* One part on its way from a reader to the consumer, with a copy of what the reader needs to know of the file. It
 * belongs to its reader until `ready` is set; then to the consumer, or to its reader if `abandoned`. */
struct content_claim {
    struct content_claim *next;
    uint32_t rank;
    bool move;             /* read from the parent */
    uint64_t address;      /* of the file's data in the parent */
    uint64_t offset, size; /* in the file; of the file */
    size_t len;
    bool ready, abandoned; /* abandoned: the consumer unlinked it; its reader frees it */
    int rc;
    struct error *error;  /* the sentence of rc; NULL: no memory for it */
    struct digest digest; /* of the file, if the part is all of it */
    uint8_t *data;
    size_t path_len, validator_len;
    char text[]; /* path, validator */
};

/* A file that changed and that the consumer reads by itself. */
struct content_redo {
    bool active, counted; /* counted: in `changed` */
    uint32_t rank;
    struct bytes path, validator; /* the node's */
    uint64_t size;
    unsigned tries; /* versions tried, the node's included */
    uint64_t offset;
    struct source_version version; /* being read */
    uint8_t *data;
};

/* lock guards what the comments say; sources, sizes and `strict` never change. */
struct content_reader {
    struct source *source, *parent;
    size_t memory, part;
    bool strict;
    pthread_mutex_t lock;
    pthread_cond_t budget_freed, ready;
    /* guarded by lock: */
    bool stop, exhausted;
    struct error feed;    /* why the readers stopped: the nodes cannot be read, or no memory */
    bool advancing;       /* one reader looks for the next file without the lock; cursor and node are its own */
    bool have_node;       /* node is a file that is being cut into parts */
    struct node node;     /* its strings are the cursor's */
    uint64_t node_offset; /* of the next part */
    struct content_claim *first, **last_next;
    size_t used;                         /* bytes of all claims that are not freed yet */
    bool full;                           /* the budget ran out; no claims until an eighth of it is free */
    unsigned reading;                    /* readers that hold claims */
    unsigned limit;                      /* of `reading` */
    bool find_limit;                     /* `limit` is found by trying */
    struct read_concurrency concurrency; /* used if find_limit */
    struct {
        uint64_t start_ms, bytes, requests;
        bool held_up; /* the writer was behind at some time */
    } interval;
    unsigned thread_count;
    /* used by the consumer alone: */
    struct content_claim *current;
    struct content_redo redo;
    struct hasher *hasher; /* of a file with several parts */
    bool hashing;
    struct error failed;
    /* relaxed counters, read by any thread */
    counter changed, vanished, read_bytes, moved_bytes, unmovable;
    /* used by the reader that is advancing */
    struct nodes_cursor *cursor;
    pthread_t threads[CONTENT_JOBS_MAX];
};

/* Let up to `limit` readers read, and start threads if there are fewer. -errno: no thread could be started. */
int content_reader_set_limit_locked(struct content_reader *b, unsigned limit);
void content_claim_free(struct content_claim *c);
/* Return the budget of c, which the caller frees, and wake a reader if enough is free. */
void content_reader_give_back_locked(struct content_reader *b, const struct content_claim *c);
/* Unlink the first claim of the list, which is not empty. */
struct content_claim *content_reader_unlink_first_locked(struct content_reader *b);

#endif
