/* build_far SOURCE IMAGE ADDRESS: build a directory as erofs in chunks of 4 MiB, with the files' data from ADDRESS
 * (bytes) on and a hole before it. So an image of terabytes takes the time and the space of its few files. */
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "imagebuild/fs/fs.h"
#include "imagebuild/imagebuild.h"
#include "store/store.h"

static uint64_t address;

/* In place of fs_erofs_new, by the linker (--wrap). */
int __real_fs_erofs_new(const struct fs_config *config, struct fs **out);
int __wrap_fs_erofs_new(const struct fs_config *config, struct fs **out);

int __wrap_fs_erofs_new(const struct fs_config *config, struct fs **out)
{
    int rc = __real_fs_erofs_new(config, out);
    if (!rc)
        (*out)->data_begin = GR_ALIGN_UP(address, (uint64_t)config->chunk_size);
    return rc;
}

int main(int argc, char **argv)
{
    const struct build_options options = {
        .chunk_size = CHUNK_SIZE_MAX, .zstd_level = 1, .no_parent = true, .keep_special = true};
    struct build_result result;
    struct image_ref ref;
    struct source *source = NULL;
    struct store *store = NULL;
    if (argc != 4) {
        fprintf(stderr, "usage: build_far SOURCE IMAGE ADDRESS\n");
        return 2;
    }
    address = strtoull(argv[3], NULL, 10);
    int rc = image_ref_parse(argv[2], &ref);
    if (!rc)
        rc = source_open(argv[1], &(struct source_options){0}, &source);
    if (!rc)
        rc = store_open(ref.store, &(struct store_options){0}, &store);
    if (!rc)
        rc = build_run(source, store, &ref, &options, &result);
    if (rc)
        fprintf(stderr, "build_far: %s\n", error_text());
    else
        printf("%llu\n", (unsigned long long)result.manifest.size);
    if (source)
        source_close(source);
    if (store)
        store_close(store);
    return rc ? 1 : 0;
}
