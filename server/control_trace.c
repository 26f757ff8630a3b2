/* Readers push chunks into the image's recorder, a bounded ring, and never wake this job: a read must not pay for being
 * recorded. So the job's thread empties the ring every PAUSE_MS. When the ring is full, readers drop entries and count
 * them. */
#include "server/control_internal.h"

#include <errno.h>
#include <time.h>

#include "base/error.h"

/* Entries per line; ms between two looks into the ring. */
enum { BATCH = 512, PAUSE_MS = 20 };

/* A recording of one export. */
struct control_trace {
    struct stack_export *export; /* a reference */

    /* set by control_trace_run */
    struct control_job *job;
    struct recorder *recorder;
    uint64_t chunks; /* sent */
};

void control_trace_free(void *arg)
{
    struct control_trace *t = arg;
    if (t)
        stack_put(t->export);
    free(t);
}

int control_trace_prepare(struct stack *stack, const char *export, const char *digest, struct control_trace **out)
{
    CLEANUP(cleanup_stack_export) struct stack_export *e = NULL;
    int rc = control_export_find(stack, export, digest, &e);
    const struct manifest *m = rc ? NULL : image_manifest(stack_export_image(e));
    if (!rc)
        rc = trace_check_geometry(m->size, m->chunk_size);
    if (rc)
        return rc;
    *out = calloc(1, sizeof **out);
    if (!*out)
        return error_no_memory();
    (*out)->export = steal_ptr(&e);
    return 0;
}

int control_trace_end(struct stack *stack, const char *export, const char *digest)
{
    CLEANUP(cleanup_stack_export) struct stack_export *e = NULL;
    int rc = control_export_find(stack, export, digest, &e);
    if (!rc && !recorder_end(image_recorder(stack_export_image(e))))
        rc = error_set(-ENOENT, "the export '%.100s' is not being recorded", stack_export_name(e));
    return rc;
}

/* ---- lines of the answer ---- */

static int send_count(struct control_trace *t)
{
    return control_job_send(
        t->job, "trace",
        json_pack("{s:I,s:I}", "chunks", (json_int_t)t->chunks, "dropped", (json_int_t)recorder_dropped(t->recorder)));
}

/* Send what is in the ring now, up to a trace's maximum, as lines of hexadecimal, since JSON holds no bytes. */
static int send_taken(struct control_trace *t)
{
    static const char digits[] = "0123456789abcdef";
    struct trace_entry entries[BATCH];
    char text[BATCH * TRACE_ENTRY_SIZE * 2];
    int rc = 0;
    for (size_t n = BATCH; !rc && n == BATCH;) {
        char *at = text;
        n = recorder_take(t->recorder, entries, GR_MIN((uint64_t)BATCH, TRACE_CHUNKS_MAX - t->chunks));
        for (size_t i = 0; i < n; i++) {
            uint8_t bytes[TRACE_ENTRY_SIZE];
            trace_entry_put(bytes, &entries[i]);
            for (size_t k = 0; k < sizeof bytes; k++) {
                *at++ = digits[bytes[k] >> 4];
                *at++ = digits[bytes[k] & 15];
            }
        }
        t->chunks += n;
        if (n)
            rc = control_job_send(t->job, "entries", json_stringn(text, (size_t)(at - text)));
    }
    return rc;
}

/* ---- recording ---- */

/* Record until the end is requested or the trace is full. After recorder_stop no reader pushes any more, and the rest
 * of the ring is sent. */
int control_trace_run(struct control_job *job, void *arg)
{
    struct control_trace *t = arg;
    struct image *img = stack_export_image(t->export);
    const struct manifest *m = image_manifest(img);
    struct recorder_place *place = image_recorder(img);
    int rc = recorder_start(place, manifest_chunk_count(m), &t->recorder);
    if (rc)
        return rc;
    t->job = job;
    json_t *image = control_json_export(t->export);
    json_object_set_new(image, "content_root", control_json_digest(&m->content_root));
    json_object_set_new(image, "size", control_json_integer(m->size));
    json_object_set_new(image, "chunk_size", control_json_integer(m->chunk_size));
    rc = control_job_send(job, "image", image);
    while (!rc && !recorder_ending(place) && t->chunks < TRACE_CHUNKS_MAX) {
        rc = control_job_check(job);
        if (!rc)
            rc = send_taken(t);
        if (!rc && control_job_due(job))
            rc = send_count(t);
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_MS * 1000000L}, NULL);
    }
    recorder_stop(place, t->recorder);
    if (!rc)
        rc = send_taken(t);
    if (!rc)
        rc = send_count(t);
    recorder_free(t->recorder);
    return rc;
}
