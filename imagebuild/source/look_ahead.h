/* Questions to a source, asked by several threads, answered to one: what a source does that can be asked about one path
 * at a time but not be listed. Questions are answered in any order.
 *
 *   look_ahead_start, { look_ahead_ask | look_ahead_wait }..., look_ahead_stop
 *
 * All calls and all `answer`s are of the thread that started it; `work` is called by the others.
 */
#ifndef GRANARY_IMAGEBUILD_SOURCE_LOOK_AHEAD_H
#define GRANARY_IMAGEBUILD_SOURCE_LOOK_AHEAD_H

#include "base/cleanup.h"
#include "base/error.h"
#include "base/vec.h"
#include "imagebuild/source/source.h"

/* One question. `work` answers it by any number of look_keep calls and its result. */
struct look {
    struct source_ask ask;              /* path: a copy, with a final NUL */
    int kind;                           /* the asker's; work may change it */
    VEC(struct source_entry *) entries; /* copies, each in one piece */
    size_t kept;                        /* bytes of memory they take */
    struct error error;                 /* what work returned, with its sentence */
    char *path;
    size_t path_cap;
};

/* Add a copy of the entry to the answer (a source_visit). */
GR_MUST_CHECK int look_keep(void *look, const struct source_entry *e);
/* Drop what was kept so far. */
void look_forget(struct look *look);

struct look_ahead_config {
    unsigned threads; /* 0: 8; at most 64 */
    int (*work)(void *arg, struct look *look);
    /* Non-zero: nothing more is asked or answered, and the call in which it happened returns it. */
    int (*answer)(void *arg, struct look *look);
    void *arg;
};

struct look_ahead;

GR_MUST_CHECK int look_ahead_start(const struct look_ahead_config *config, struct look_ahead **out);
/* Ask; first takes an answer when too many questions are open. */
GR_MUST_CHECK int look_ahead_ask(struct look_ahead *l, const struct source_ask *ask, int kind);
/* Take one answer; *out_taken false: no question is open. */
GR_MUST_CHECK int look_ahead_wait(struct look_ahead *l, bool *out_taken);
/* Waits for what the threads are doing; answers not taken are dropped. NULL is allowed. */
void look_ahead_stop(struct look_ahead *l);
DEFINE_CLEANUP(look_ahead, struct look_ahead *, look_ahead_stop)

#endif
