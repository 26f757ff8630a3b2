/* Rules that decide which paths of a source go into the image: --include and --exclude, with the meaning of git's
 * ignore files (gitignore(5), docs/reference/sources.md). One thread adds the rules; then any number may judge by them.
 *
 * The verdict on a path, in this order:
 *   1. A directory above it is left out: the path is left out too.
 *   2. The last rule that matches the path decides.
 *   3. No rule matches: the verdict on its directory holds, and so on up to the root.
 *   4. No rule matches anything above it either: it is taken. But if the first rule is an --include, only directories
 *      are taken.
 */
#ifndef GRANARY_IMAGEBUILD_SOURCE_RULES_H
#define GRANARY_IMAGEBUILD_SOURCE_RULES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/compiler.h"

struct rules;

/* Make an empty set of rules, which takes everything. -ENOMEM. */
GR_MUST_CHECK int rules_new(struct rules **out);
void rules_free(struct rules *r); /* NULL is allowed */
DEFINE_CLEANUP(rules, struct rules *, rules_free)

/* Append a rule; the pattern is copied. -EINVAL: the pattern is malformed, and the sentence names it. -ENOMEM. */
GR_MUST_CHECK int rules_add(struct rules *r, bool include, const char *pattern);
/* Append a rule for each line of a file in the format of git's ignore files: '#' begins a comment, '!' an inclusion,
 * and blanks at the end of a line are ignored unless escaped. -EINVAL: as from rules_add, with file and line.
 * -EMSGSIZE: over 16 MiB. Other errors: the file cannot be read. */
GR_MUST_CHECK int rules_add_file(struct rules *r, const char *path);

/* Append the rules as text. Texts are equal if and only if the rules are. Errors as from bytes_append. */
GR_MUST_CHECK int rules_print(const struct rules *r, struct bytes *out);

/* RULES_NONE: no rule matched the path or anything above it. */
enum rules_verdict { RULES_NONE, RULES_IN, RULES_OUT };

/* Return the verdict on a path, given that on its directory. The root's is RULES_NONE. */
enum rules_verdict rules_judge(const struct rules *r, enum rules_verdict parent, const char *path, size_t len,
                               bool directory);
/* Return whether a path with this verdict is taken. */
bool rules_verdict_takes(const struct rules *r, enum rules_verdict verdict, bool directory);
/* Return whether a path is taken, judging the directories above it first. r may be NULL: everything is taken. */
bool rules_take(const struct rules *r, const char *path, size_t len, bool directory);

/* ---- patterns of one component ---- */

/* Shell patterns for one component of a path. They match bytes, not characters, whatever the locale: `*` any number of
 * bytes, `?` one byte, `[a-z]` and `[!a-z]` sets, `[[:digit:]]` classes, `\c` the byte c itself. Neither pattern nor
 * text may contain a slash. */

/* Return what is wrong with the pattern, as part of a sentence, or NULL if it is valid. */
const char *glob_fault(const char *pattern, size_t len);
/* Return whether the pattern, which must be valid, matches the whole text. At most pattern_len * text_len steps. */
bool glob_match(const char *pattern, size_t pattern_len, const char *text, size_t text_len);

#endif
