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
    char name[LABEL_NAME_MAX + 1]; /* of label_name */
    char digits[LABEL_DIGITS + 1]; /* the first of its digest */
    unsigned age;                  /* rounds since it was served; 0: it is */
    unsigned percent;              /* of its chunks are cached, rounded down; a lower bound if it has an age */
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
    VEC(struct label_image) images;  /* at most LABEL_KNOWN_MAX, in the order in which they became known */
};
void label_facts_release(struct label_facts *f);

/* Ask the server on a control socket. An image that is no longer served stays, with an age, until so many chunks have
 * left the cache that none of its own may be left. After an error, *out is what it was, or partly newer. The errors of
 * control_call; -EBUSY: the server has no slot for the request now. */
GR_MUST_CHECK int label_facts_read(const char *control, struct label_facts *out);
/* Note that the server does not answer: no images, no free space. What was measured stays. */
void label_facts_silent(struct label_facts *f);
/* Take what `granary bench --json` has written for a cache disk or a store. */
GR_MUST_CHECK int label_facts_measured(const char *path, struct label_facts *out);

/* The parts of label_facts_read: the document of /status, which begins a round, lines of /cache, and the end of the
 * round. The JSON may be anything. */
void label_facts_take_status(struct label_facts *f, const json_t *status);
GR_MUST_CHECK int label_facts_take_image(struct label_facts *f, const json_t *image);
void label_facts_end(struct label_facts *f);

/* ---- labels (labels.c) ---- */

/* Write the name that an export has in a key: its part before '@'. If that is too long or cannot end a key, other bytes
 * become '_', it is cut, and digits of its SHA-256 follow. */
void label_name(const char *export, char out[LABEL_NAME_MAX + 1]);

struct label_rules {
    unsigned min_share;  /* percent: an image of which less is cached has no label */
    unsigned max_images; /* images with labels: those with the largest cached shares */
};
/* Make the labels. NULL: out of memory. */
json_t *labels_make(const struct label_facts *f, const struct label_rules *rules);

/* Return the JSON merge patch after which a node with the labels `now` has the labels `wanted`, and no others that
 * begin with LABEL_PREFIX; *out_none: there is nothing to change. NULL: out of memory. */
json_t *labels_patch(const json_t *now, const json_t *wanted, bool *out_none);

/* Append the labels as a feature file of node-feature-discovery, which ignores it from expires on (seconds since the
 * epoch). */
GR_MUST_CHECK int labels_feature_file(const json_t *labels, int64_t expires, struct bytes *out);

/* Return how long to wait after a round, in milliseconds. failures: rounds in a row that failed; random: any 32 bits,
 * so that nodes that failed at the same time do not come back at the same time. */
uint64_t labels_wait_ms(uint64_t interval_ms, unsigned failures, uint32_t random);

/* ---- the API server (api.c) ---- */

/* A node, and a pod's credentials for the API server. */
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
