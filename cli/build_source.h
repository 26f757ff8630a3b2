/* The options of `granary build` that say what goes into the image, and the source they make together. */
#ifndef GRANARY_CLI_BUILD_SOURCE_H
#define GRANARY_CLI_BUILD_SOURCE_H

#include "base/bytes.h"
#include "cli/options.h"
#include "imagebuild/imagebuild.h"

/* Where the verb's rows put them. */
struct build_source_values {
    struct option_list rules; /* --include, --exclude, --exclude-from in their order */
    struct option_list add;
    const char *files_from;
    bool nul, ignore_missing, tar_dirs;
    bool skip_bad_names; /* the build's: what it leaves out is not in a parent's catalog */
    const char *prefix_strip, *uid, *gid, *mode, *dir_mode, *mtime;
};

struct build_source {
    struct source *source;
    struct rules *rules;
    struct source_overrides override;
    struct bytes choice; /* the options' texts */
};

/* Is any of the sources that SOURCE (url) and --add name of that kind? */
bool build_source_any(const char *url, const struct build_source_values *v, bool (*is)(const char *url));
/* Of tar shards, whose files come with the listing. */
bool build_source_is_tar(const char *url);

/* The source that SOURCE (url) and the options mean. 0, a negative errno, or CLI_USAGE for an option that cannot be. In
 * every case build_source_release. */
GR_MUST_CHECK int build_source_open(const char *url, const struct build_source_values *v,
                                    const struct source_options *options, struct build_source *out);
void build_source_release(struct build_source *b);

#endif
