/* A request to write a whole image beside the cache. The job is the writer: when it is cancelled, what it wrote is
 * removed, and when the process is killed, the next request removes it. The cache has given back as many slots before
 * the first byte is written. */
#include "server/control_internal.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "cache/resident.h"
#include "format/manifest.h"

struct control_resident {
    struct stack *stack;
    struct stack_export *export; /* a reference */

    /* set by control_resident_run */
    struct control_job *job;
    struct resident_filling file;
    const char *file_dir; /* its cache directory */
    _Atomic uint64_t written, shared;
    int peeked; /* the file that is compared with the image */
};

int control_resident_prepare(struct stack *stack, const char *export, const char *digest, struct control_resident **out)
{
    struct stack_export *found;
    int rc = control_export_find(stack, export, digest, &found);
    if (rc)
        return rc;
    struct control_resident *r = calloc(1, sizeof *r);
    if (!r) {
        stack_put(found);
        return error_no_memory();
    }
    r->stack = stack;
    r->export = found;
    r->file = (struct resident_filling)RESIDENT_FILLING_NONE;
    *out = r;
    return 0;
}

void control_resident_free(void *arg)
{
    struct control_resident *r = arg;
    resident_release(&r->file);
    stack_put(r->export);
    free(r);
}

static int write_chunk(void *arg, uint64_t off, const void *data, size_t len)
{
    struct control_resident *r = arg;
    int rc = resident_write(&r->file, off, data, len);
    if (!rc)
        atomic_fetch_add_explicit(&r->written, len, memory_order_relaxed);
    return rc;
}

/* ---- what another version has ---- */

static bool peek(void *arg, uint64_t off, void *dst, size_t len)
{
    const struct control_resident *r = arg;
    return resident_share_peek(r->peeked, off, dst, len);
}

static unsigned likeness(void *arg, int fd)
{
    struct control_resident *r = arg;
    r->peeked = fd;
    return image_likeness(stack_export_image(r->export), peek, r);
}

static int share(void *arg, uint64_t off, size_t len)
{
    struct control_resident *r = arg;
    int rc = resident_share(&r->file, off, len);
    if (!rc)
        atomic_fetch_add_explicit(&r->shared, len, memory_order_relaxed);
    return rc;
}

/* ---- writing ---- */

static int tell_progress(void *arg, uint64_t done)
{
    struct control_resident *r = arg;
    cache_resident_done(stack_cache(r->stack), r->file_dir, done);
    if (!control_job_due(r->job))
        return 0;
    const struct control_sum sums[] = {{"bytes_done", done},
                                       {"bytes_total", image_manifest(stack_export_image(r->export))->size}};
    json_t *progress = json_object();
    control_json_add(progress, sums, GR_ARRAY_SIZE(sums));
    return control_job_send(r->job, "progress", progress);
}

/* Write the file. -EEXIST: it is there. */
static int fill(struct control_resident *r, const struct resident_id *id)
{
    struct cache *cache = stack_cache(r->stack);
    struct image *image = stack_export_image(r->export);
    struct image_copy copy = {
        .visit = write_chunk, .step = tell_progress, .share = share, .arg = r, .cancel = control_job_cancel(r->job)};
    int rc = cache_resident_begin(cache, id, copy.cancel, &r->file_dir);
    if (rc)
        return rc; /* -EEXIST, too */
    rc = resident_begin(r->file_dir, id, &r->file);
    if (!rc)
        rc = resident_share_from(&r->file, r->file_dir, id, likeness, r);
    if (!rc) {
        r->peeked = r->file.from;
        copy.peek = r->peeked >= 0 ? peek : NULL;
        rc = image_copy_out(image, &copy);
    }
    if (!rc)
        rc = resident_finish(&r->file);
    resident_release(&r->file); /* before the claim ends: what failed takes no room then */
    cache_resident_end(cache, r->file_dir);
    return rc;
}

int control_resident_run(struct control_job *job, void *arg)
{
    struct control_resident *r = arg;
    const struct manifest *m = image_manifest(stack_export_image(r->export));
    const struct resident_id id = {.content_root = m->content_root, .size = m->size, .chunk_size = m->chunk_size};
    r->job = job;
    int rc = m->fs == MANIFEST_EROFS
                 ? fill(r, &id)
                 : error_set(-EINVAL, "only erofs is mounted from a file without a server, and this image is ext4");
    if (rc && rc != -EEXIST)
        return rc;
    json_t *line = control_json_export(r->export);
    const struct control_sum sums[] = {{"size", m->size},
                                       {"bytes", atomic_load(&r->written) + atomic_load(&r->shared)},
                                       {"shared", atomic_load(&r->shared)}};
    control_json_add(line, sums, GR_ARRAY_SIZE(sums));
    json_object_set_new(line, "directory", json_lossy(r->file_dir));
    return control_job_send(job, "resident", line);
}
