/* The options of `granary build` that say what goes into the image, and the source that they make together. */
#ifndef GRANARY_CLI_BUILD_SOURCE_H
#define GRANARY_CLI_BUILD_SOURCE_H

#include "base/bytes.h"
#include "cli/options.h"
#include "imagebuild/imagebuild.h"

/* The values of the verb's rows. */
struct build_source_values {
    struct option_list rules; /* --include, --exclude and --exclude-from, in the order given */
    struct option_list add;
    const char *files_from;
    bool nul, ignore_missing, tar_dirs;
    bool skip_bad_names; /* the build's option; files it leaves out are missing in a parent's catalog */
    const char *prefix_strip, *uid, *gid, *mode, *dir_mode, *mtime;
};

/* A source, and what it refers to. */
struct build_source {
    struct source *source;
    struct rules *rules;
    struct source_overrides override;
    struct bytes choice; /* the options as text, for the keys of tar shards */
};

/* Whether is() holds for SOURCE (url) or any source of --add. */
bool build_source_any(const char *url, const struct build_source_values *v, bool (*is)(const char *url));
/* Whether it is an address of tar shards, whose files come with the listing. */
bool build_source_is_tar(const char *url);

/* Note the addresses of SOURCE (url) and of the sources of --add. */
void build_source_note(const char *url, const struct build_source_values *v, struct provenance *out);

/* Open what SOURCE (url) and the options describe. Returns 0, a negative errno, or CLI_USAGE for wrong options.
 * build_source_release it in any case. */
GR_MUST_CHECK int build_source_open(const char *url, const struct build_source_values *v,
                                    const struct source_options *options, struct build_source *out);
void build_source_release(struct build_source *b);

#endif
