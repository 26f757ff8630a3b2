/* Where an image came from, as its build wrote it into the tag (docs/reference/format-store.md, "Provenance"). It is
 * for people and proves nothing: neither the image's digest nor a signature covers it.
 *
 * A tag keeps it as the text of a JSON object, so that copies carry keys that this program does not know. No I/O, any
 * thread.
 */
#ifndef GRANARY_FORMAT_PROVENANCE_H
#define GRANARY_FORMAT_PROVENANCE_H

#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/digest.h"

enum {
    PROVENANCE_TEXT_MAX = 1024, /* bytes of the object, with a final NUL */
    PROVENANCE_SOURCES_MAX = 8,
    PROVENANCE_TOOL_MAX = 64
};

struct provenance {
    char sources[PROVENANCE_SOURCES_MAX][PROVENANCE_TEXT_MAX]; /* addresses without credentials and query */
    size_t listed;                                             /* of sources[] */
    uint64_t source_count;     /* of the build; those that do not fit are only counted */
    uint64_t files, bytes;     /* of the image */
    int64_t built;             /* seconds since the epoch */
    struct digest parent;      /* the image it was built upon; zero: none, or several */
    uint64_t parents;          /* images it was built upon; several: they were joined */
    uint64_t part, part_count; /* the image is part `part` of part_count of the source, from 0; no parts: count 0 */
    char tool[PROVENANCE_TOOL_MAX];
};

/* Note the address of a source. User, password, and the query of a web address are left out. */
void provenance_add_source(struct provenance *p, const char *address);

/* Write the object. Sources for which there is no room are only counted. -ENOMEM. */
GR_MUST_CHECK int provenance_encode(const struct provenance *p, char out[PROVENANCE_TEXT_MAX]);
/* Decode any text. -EBADMSG, with a sentence. */
GR_MUST_CHECK int provenance_decode(const char *text, struct provenance *out);

#endif
