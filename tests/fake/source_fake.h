/* A source in memory, with faults. A file may have several versions; what happens to it is described
 * by rules that fire once, at the first read that covers their offset. So that what a reader sees
 * does not depend on who reads first, reads that end by that offset go on seeing what was there
 * before.
 */
#ifndef GRANARY_TESTS_FAKE_SOURCE_FAKE_H
#define GRANARY_TESTS_FAKE_SOURCE_FAKE_H

#include "imagebuild/source/source.h"

enum fake_action {
    FAKE_CHANGE, /* to the next version, before the read */
    FAKE_VANISH,
    FAKE_READ_FAIL, /* with `rc` */
    FAKE_SLOW,      /* `rc` milliseconds */
};

struct source_fake_stats {
    uint64_t reads, stats, cancels;
    uint64_t bytes_asked, bytes; /* of all reads, of those that succeeded */
    uint64_t bytes_in_reads_max; /* most bytes asked for at once */
};

struct source *source_fake_new(void);

/* A file; contents are a function of seed and offset (see source_fake_byte). */
void source_fake_file(struct source *s, const char *path, uint64_t size, unsigned seed);
/* A further version of it, taken when FAKE_CHANGE fires. */
void source_fake_version(struct source *s, const char *path, uint64_t size, unsigned seed);
/* Another name of a file, whatever version that is in now. */
void source_fake_link(struct source *s, const char *path, const char *file);
/* One file of 50 bytes with three names (b, a/first and c/last, listed in this order), and the file d of 10 bytes. */
void source_fake_linked(struct source *s);
/* Any other entry; strings are copied. */
void source_fake_entry(struct source *s, const struct source_entry *e);
/* rc: of FAKE_READ_FAIL, or milliseconds of FAKE_SLOW. Rules of one file fire one a read, in order. */
void source_fake_rule(struct source *s, const char *path, uint64_t offset, enum fake_action action, int rc);
/* The file changes (to the next version) or vanishes right now. */
void source_fake_change(struct source *s, const char *path);
void source_fake_vanish(struct source *s, const char *path);
/* List in another order: 0 as made, 1 backwards, else shuffled by that seed. */
void source_fake_order(struct source *s, unsigned order);
/* Bodies come with the listing from now on, in pieces of 1,000 bytes; `shorten` bytes too few of them. */
void source_fake_stream(struct source *s, uint64_t shorten);
/* Reads block until source_fake_release or cancel. */
void source_fake_hold(struct source *s);
void source_fake_release(struct source *s);

/* What it says of its listing. */
void source_fake_counts(struct source *s, const struct source_counts *counts);

uint8_t source_fake_byte(unsigned seed, uint64_t offset);
void source_fake_bytes(unsigned seed, uint64_t offset, uint8_t *out, uint64_t len);
struct source_fake_stats source_fake_stats(struct source *s);

#endif
