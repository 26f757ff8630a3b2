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
    _Atomic uint64_t written;
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

static int tell_progress(void *arg, uint64_t done)
{
    struct control_resident *r = arg;
    if (!control_job_due(r->job))
        return 0;
    const struct control_sum sums[] = {{"bytes_done", done},
                                       {"bytes_total", image_manifest(stack_export_image(r->export))->size}};
    json_t *progress = json_object();
    control_json_add(progress, sums, GR_ARRAY_SIZE(sums));
    return control_job_send(r->job, "progress", progress);
}

/* Write the file. -EEXIST: it is there. */
static int fill(struct control_resident *r, const struct resident_id *id, const char **out_dir)
{
    struct cache *cache = stack_cache(r->stack);
    const volatile int *cancel = control_job_cancel(r->job);
    int rc = cache_resident_begin(cache, id, cancel, out_dir);
    if (rc)
        return rc; /* -EEXIST, too */
    rc = resident_begin(*out_dir, id, &r->file);
    if (!rc)
        rc = image_copy_out(stack_export_image(r->export), cancel, write_chunk, tell_progress, r);
    if (!rc)
        rc = resident_finish(&r->file);
    resident_release(&r->file); /* before the claim ends: what failed takes no room then */
    cache_resident_end(cache, *out_dir);
    return rc;
}

int control_resident_run(struct control_job *job, void *arg)
{
    struct control_resident *r = arg;
    const char *dir = NULL;
    const struct manifest *m = image_manifest(stack_export_image(r->export));
    const struct resident_id id = {.content_root = m->content_root, .size = m->size, .chunk_size = m->chunk_size};
    r->job = job;
    int rc = m->fs == MANIFEST_EROFS
                 ? fill(r, &id, &dir)
                 : error_set(-EINVAL, "only erofs is mounted from a file without a server, and this image is ext4");
    if (rc && rc != -EEXIST)
        return rc;
    json_t *line = control_json_export(r->export);
    const struct control_sum sums[] = {{"size", m->size}, {"bytes", atomic_load(&r->written)}};
    control_json_add(line, sums, GR_ARRAY_SIZE(sums));
    json_object_set_new(line, "directory", json_lossy(dir));
    return control_job_send(job, "resident", line);
}
