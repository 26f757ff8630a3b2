/* Whether an image can be read from its store, and how fast: the image's own packs are read for a second over one
 * connection, and for a second over many. Nothing is written.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/text.h"
#include "cli/bench/bench.h"
#include "cli/doctor/doctor.h"
#include "cli/output.h"
#include "repository/read/chunk_read.h"

enum {
    TRIES = 5,         /* of one byte, for the latency */
    MEASURE_MS = 1000, /* how long the speed is measured */
    SLOW_MS = 200      /* a latency that makes every miss felt */
};

/* Find the image's packs, and measure. */
static int measure(struct doctor_report *r, struct open_image *image)
{
    struct bench_link link;
    CLEANUP_FREE struct bench_times *times = calloc(1, sizeof *times);
    double one, many;
    char by_one[TEXT_SIZE_MAX], by_many[TEXT_SIZE_MAX];
    if (!times)
        return error_no_memory();
    int rc = bench_link_init(&link, image);
    if (rc || !link.count) /* an image of holes */
        return rc;
    rc = bench_link_latency(&link, 1, TRIES, UINT32_MAX, times);
    if (rc)
        return rc;
    double us = bench_percentile(times, 50);
    doctor_add(r, us > SLOW_MS * 1000 ? DOCTOR_WARN : DOCTOR_OK, "store-latency",
               us > SLOW_MS * 1000
                   ? "every miss waits so long: warm images before jobs read them, or use a nearer store"
                   : NULL,
               "a request takes %.1f ms", us / 1000);
    rc = bench_link_speed(&link, 1, MEASURE_MS, &one);
    if (!rc)
        rc = bench_link_speed(&link, BENCH_LINK_MANY, MEASURE_MS, &many);
    if (!rc)
        doctor_add(r, DOCTOR_OK, "store-speed", NULL, "%s/s over one connection, %s/s over %d",
                   text_format_size((uint64_t)one, by_one), text_format_size((uint64_t)many, by_many), BENCH_LINK_MANY);
    return rc;
}

/* Read the first chunk of metadata, which verifies it. */
static int read_chunk(const struct open_image *image)
{
    CLEANUP(cleanup_image_bytes) struct image_bytes *bytes = NULL;
    uint8_t block[4096];
    int rc = image_bytes_new(image->store, &image->manifest, &bytes);
    return rc ? rc : image_bytes_read(bytes, image->manifest.metadata_offset, sizeof block, block);
}

void doctor_check_image(struct doctor_report *r, const char *image, const struct open_access *access)
{
    CLEANUP_OPEN_IMAGE opened;
    char digest[PRINT_DIGEST_MAX], size[TEXT_SIZE_MAX];
    int rc = open_image(image, access, &opened);
    if (!rc)
        rc = read_chunk(&opened);
    if (!rc) {
        doctor_add(r, DOCTOR_OK, "image", NULL, "%s is %s, %llu files, %s; one chunk read and verified", image,
                   print_digest(&opened.digest, digest), (unsigned long long)opened.manifest.counts.files,
                   text_format_size(opened.manifest.counts.bytes, size));
        rc = measure(r, &opened);
    }
    if (rc)
        doctor_add(r, DOCTOR_FAIL, "image", NULL, "%s", error_text());
}
