/* The labels of a Kubernetes node that say what its server has cached (granary-node-labels(8)), for the scheduler.
 *
 *   the server's control socket, files of `granary bench`
 *        |  facts.c
 *   struct label_facts
 *        |  labels.c, without I/O
 *   the labels, and what changes ----> api.c: the API server, as a merge patch of the node
 *                               `---> main.c: a feature file of node-feature-discovery
 *
 * One thread. Functions that return int return 0 or -errno with a sentence. Labels are a JSON object of strings, with
 * their whole keys ("granary.io/cached.faces": "100"). Private to labels. */
#ifndef GRANARY_LABELS_LABELS_H
#define GRANARY_LABELS_LABELS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/compiler.h"
#include "base/vec.h"
#include "format/json_name.h"

#define LABEL_PREFIX "granary.io/"
#define LABEL_CACHED "cached."
enum {
    LABEL_NAME_MAX = 63 - (int)sizeof LABEL_CACHED + 1, /* bytes of an image's name in a key, as Kubernetes limits it */
    LABEL_DIGITS = 12,                                  /* of a digest */
    LABEL_IMAGES_MAX = 100,                             /* what --max-images may be */
    LABEL_KNOWN_MAX = 1000,                             /* images */
};

/* ---- facts (facts.c) ---- */

/* An image that the server serves, or has served. */
struct label_image {
    char name[LABEL_NAME_MAX + 1]; /* as label_name makes it */
    char digits[LABEL_DIGITS + 1]; /* the first of its digest */
    unsigned age;                  /* rounds since it was served; 0: it is */
    unsigned percent;              /* of its chunks that are cached, rounded down; with an age, at least these are */
    int64_t cached, all;           /* chunks, when it was served */
    uint64_t gone;                 /* label_facts.gone then */
};

/* All zero at first. */
struct label_facts {
    char health[16];                 /* "healthy", "degraded", "failing" */
    uint64_t free;                   /* bytes of the cache */
    uint64_t disk_per_s, link_per_s; /* bytes a second; 0: not measured */
    uint64_t filled, filled_before;  /* chunks written by the server, and by earlier ones */
    uint64_t gone;                   /* chunks that have left the cache, counted from any number */
    VEC(struct label_image) images;  /* at most LABEL_KNOWN_MAX, the one that is known for longest first */
};
void label_facts_release(struct label_facts *f);

/* Ask the server on a control socket. An image that it serves no more stays, with an age, until nothing of it need be
 * cached any more: so many chunks have left the cache since. After an error, *out is still what it was, or newer. The
 * errors of control_call; -EBUSY: the server has no slot for the request now. */
GR_MUST_CHECK int label_facts_read(const char *control, struct label_facts *out);
/* What there is to say when the server does not answer: no images, no room. What was measured stays. */
void label_facts_silent(struct label_facts *f);
/* Take what `granary bench --json` has written for a cache disk or a store. */
GR_MUST_CHECK int label_facts_measured(const char *path, struct label_facts *out);

/* The parts of label_facts_read: the document of /status, which begins a round, lines of /cache, and the end of the
 * round. What the server says may be anything. */
void label_facts_take_status(struct label_facts *f, const json_t *status);
GR_MUST_CHECK int label_facts_take_image(struct label_facts *f, const json_t *image);
void label_facts_end(struct label_facts *f);

/* ---- labels (labels.c) ---- */

/* Write what stands for an export's name in a key: its part before '@'; if that is no label as it is, or too long, with
 * '_' for each other byte, cut, and with digits of its SHA-256. */
void label_name(const char *export, char out[LABEL_NAME_MAX + 1]);

struct label_rules {
    unsigned min_share;  /* percent: an image of which less is cached has no label */
    unsigned max_images; /* images with labels; those of which most is cached come first */
};
/* Make the labels. NULL: out of memory. */
json_t *labels_make(const struct label_facts *f, const struct label_rules *rules);

/* Return the JSON merge patch that gives a node with the labels `now` the labels `wanted`, and no others below
 * LABEL_PREFIX; *out_none: there is nothing to change. NULL: out of memory. */
json_t *labels_patch(const json_t *now, const json_t *wanted, bool *out_none);

/* Append the labels as a feature file of node-feature-discovery, which ignores it from expires on (seconds since the
 * epoch). */
GR_MUST_CHECK int labels_feature_file(const json_t *labels, int64_t expires, struct bytes *out);

/* Return how long to wait after a round, in milliseconds. failures: rounds in a row that failed; random: any 32 bits,
 * so that nodes that failed at the same time do not come back at the same time. */
uint64_t labels_wait_ms(uint64_t interval_ms, unsigned failures, uint32_t random);

/* ---- the API server (api.c) ---- */

/* A node, and the way to the API server that a pod has. */
struct label_api {
    const char *credentials; /* a directory with token and ca.crt; both are read for each request */
    const char *node;
};
/* Get the node's labels. *out: json_decref it. -ENOKEY, -EACCES: the token, or what it may do; -ENOENT: no such node;
 * -EAGAIN, -ETIMEDOUT: no answer, or not now. */
GR_MUST_CHECK int label_api_get(const struct label_api *api, json_t **out);
/* Apply a merge patch; *out: the labels afterwards. */
GR_MUST_CHECK int label_api_patch(const struct label_api *api, const json_t *patch, json_t **out);

#endif
