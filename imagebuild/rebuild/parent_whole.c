/* A parent of which everything stays: in a join, the new image has all files of all the parent's images, so every chunk
 * of their file data is taken over, and the rest of each image is left out. Nothing is planned, and no map of live
 * blocks is needed.
 *
 *   an image:    | front | file data ................ | metadata |
 *   the parent:  0 0 0 0 0 | file data 0 | 0 0 0 | file data 1 | 0 0 0 ...      0: not taken over
 *
 * Front and metadata share no chunk with file data: both begin and end at chunk boundaries. Leaves of the index after
 * the one in which file data ends are left out, so an image takes up the addresses of its data, not those of its size,
 * which is several times as much in ext4.
 */
#include "imagebuild/rebuild/parent.h"

#include <errno.h>

#include "base/error.h"

/* Return the image with the last beginning at or before an address; the first if there is none. */
static const struct parent_image *image_at(const struct parent *p, uint64_t address)
{
    size_t low = 0, high = p->image_count;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (p->images[middle].begin <= address)
            low = middle;
        else
            high = middle;
    }
    return &p->images[low];
}

/* Return the address after the last at which file data may lie, within the image. */
static uint64_t data_end(const struct manifest *m)
{
    return GR_MAX(m->metadata_offset, parent_data_begin(m));
}

/* Return whether all of [begin, end), not empty, is file data of one image. */
static bool is_data(const struct parent *p, uint64_t begin, uint64_t end)
{
    const struct parent_image *image = image_at(p, begin);
    return begin >= image->begin + parent_data_begin(&image->manifest) &&
           end <= image->begin + data_end(&image->manifest);
}

bool parent_whole_kept(void *parent, uint64_t chunk)
{
    return parent_whole_kept_all(parent, chunk, 1);
}

bool parent_whole_kept_all(void *parent, uint64_t first, uint64_t count)
{
    const struct parent *p = parent;
    const uint64_t size = p->manifest.chunk_size;
    return is_data(p, first * size, (first + count) * size);
}

/* Check that no chunk of an image holds both file data and something else. */
static int check_layout(const struct parent_image *image)
{
    const struct manifest *m = &image->manifest;
    if (m->metadata_offset % m->chunk_size == 0)
        return 0;
    char name[PARENT_IMAGE_NAME_MAX];
    return error_set(
        -EBADMSG,
        "join: %s has file data and metadata in one chunk, which no build of this program writes; build it "
        "again",
        parent_image_name(image, name));
}

/* Return the end of the last leaf of an image with file data. */
static uint64_t used_leaves_end(const struct manifest *m)
{
    return GR_ALIGN_UP(data_end(m), (uint64_t)m->chunk_size * INDEX_FANOUT);
}

/* Return the bytes that an image takes where the images are laid end to end: its leaves with file data, as far as it
 * has them. */
static uint64_t used_size(const struct manifest *m)
{
    return GR_MIN(m->size, used_leaves_end(m));
}

/* Sum up the stored bytes of an image after that: its leaves are left out unread, and so do not leave the sum of stored
 * bytes when the index is written (sink/index_writer.c). */
static int sum_unused(const struct parent *p, const struct parent_image *image, uint64_t *out)
{
    const struct manifest *m = &image->manifest;
    const struct sink_parent alone = {.store = p->config.store, .manifest = m};
    const uint64_t chunks = manifest_chunk_count(m);
    struct parent_index *index = NULL;
    const struct chunk_ref *refs;
    *out = 0;
    int rc = parent_index_new(&alone, &index);
    for (uint64_t first = used_leaves_end(m) / m->chunk_size; first < chunks && !rc; first += INDEX_FANOUT) {
        rc = parent_index_leaf(index, first / INDEX_FANOUT, &refs);
        for (uint64_t i = 0; !rc && refs && i < GR_MIN(chunks - first, (uint64_t)INDEX_FANOUT); i++)
            *out += chunk_is_hole(&refs[i]) ? 0 : refs[i].stored_len;
        if (!rc)
            rc = step_take(&p->config.step);
    }
    parent_index_free(index);
    return rc;
}

int parent_whole_place(struct parent *p, uint64_t begin, uint64_t end, const char *limit)
{
    const uint64_t leaf = (uint64_t)p->manifest.chunk_size * INDEX_FANOUT;
    uint64_t at = parent_data_begin(&p->images->manifest) >= begin ? 0 : GR_ALIGN_UP(begin, leaf), unused;
    for (size_t i = 0; i < p->image_count; i++) {
        struct parent_image *image = &p->images[i];
        int rc = check_layout(image);
        if (!rc)
            rc = sum_unused(p, image, &unused);
        if (rc)
            return rc;
        /* sizes are at most 2^60, so that the sum of two cannot overflow */
        if (at > end || data_end(&image->manifest) > end - at)
            return error_set(-EFBIG, "join: the images together would pass %s; join fewer", limit);
        image->begin = at;
        p->manifest.size = at + used_size(&image->manifest);
        p->manifest.stored_bytes -= unused;
        at = GR_ALIGN_UP(p->manifest.size, leaf);
    }
    return 0;
}

uint64_t parent_whole_end(const struct parent *p)
{
    const struct parent_image *last = &p->images[p->image_count - 1];
    return last->begin + data_end(&last->manifest);
}

uint64_t parent_whole_size(const struct parent *p)
{
    const uint64_t leaf = (uint64_t)p->manifest.chunk_size * INDEX_FANOUT;
    uint64_t size = leaf; /* before the first image */
    for (size_t i = 0; i < p->image_count; i++)
        size += GR_ALIGN_UP(used_size(&p->images[i].manifest), leaf);
    return size;
}
