/* Which paths of a source go into the image: --include and --exclude, with the meaning of git's ignore files
 * (docs/reference/sources.md). Made by one thread, then read by any number.
 *
 * A path is judged after the directories it lies in: what is below one left out is left out. Else the last rule that
 * matches it decides; where none does, the directory's own verdict stands. Where there is none up to the root,
 * everything is taken, but when the first rule is an --include: then directories alone are.
 */
#ifndef GRANARY_IMAGEBUILD_SOURCE_RULES_H
#define GRANARY_IMAGEBUILD_SOURCE_RULES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/compiler.h"

struct rules;

GR_MUST_CHECK int rules_new(struct rules **out);
void rules_free(struct rules *r); /* NULL is allowed */
DEFINE_CLEANUP(rules, struct rules *, rules_free)

/* A further rule; copied. -EINVAL with a sentence naming the pattern. */
GR_MUST_CHECK int rules_add(struct rules *r, bool include, const char *pattern);
/* A further rule for every line of a file in the form of git's ignore files: '#' begins a comment, '!' an inclusion,
 * blanks at the end of a line do not count unless escaped. */
GR_MUST_CHECK int rules_add_file(struct rules *r, const char *path);

/* Append them as text: equal rules give equal text, others another. */
GR_MUST_CHECK int rules_print(const struct rules *r, struct bytes *out);

enum rules_verdict { RULES_NONE, RULES_IN, RULES_OUT };

/* The verdict on a path when its directory's is known; the root's is RULES_NONE. */
enum rules_verdict rules_judge(const struct rules *r, enum rules_verdict parent, const char *path, size_t len,
                               bool directory);
/* What a verdict means for a path. */
bool rules_verdict_takes(const struct rules *r, enum rules_verdict verdict, bool directory);
/* All of it: the directories first. r may be NULL: everything is taken. */
bool rules_take(const struct rules *r, const char *path, size_t len, bool directory);

#endif
