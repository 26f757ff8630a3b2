/* Whether an image can be read from its store, and how fast: the image's own packs are read for a second over one
 * connection, and for a second over many. Nothing is written unless the user asks for it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/text.h"
#include "cli/bench/bench.h"
#include "cli/doctor/doctor.h"
#include "cli/output.h"
#include "net/aws/s3.h"
#include "repository/read/chunk_read.h"

enum {
    TRIES = 5,                 /* of one byte, for the latency */
    MEASURE_MS = 1000,         /* how long the speed is measured, */
    MEASURE_BYTES = 256 << 20, /* and by how many bytes at most */
    SKEW_S = 60,               /* of the clocks, that nobody notices */
    SLOW_MS = 200              /* a latency that makes every miss felt */
};

/* Find the image's packs, and measure. */
static int doctor_store_measure(struct doctor_report *r, struct open_image *image)
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
    rc = bench_link_speed(&link, 1, MEASURE_MS, MEASURE_BYTES, &one);
    if (!rc)
        rc = bench_link_speed(&link, BENCH_LINK_MANY, MEASURE_MS, MEASURE_BYTES, &many);
    if (!rc)
        doctor_add(r, DOCTOR_OK, "store-speed", NULL, "%s/s over one connection, %s/s over %d",
                   text_format_size((uint64_t)one, by_one), text_format_size((uint64_t)many, by_many), BENCH_LINK_MANY);
    return rc;
}

/* Name the source of the credentials, before they are used: a failure that follows is about these. */
static int check_credentials(struct doctor_report *r, const char *image)
{
    struct image_ref ref;
    char source[S3_SOURCE_MAX], bucket[IMAGE_STORE_MAX];
    if (!text_begins_with(image, "s3://") || image_ref_parse(image, &ref))
        return 0; /* open_image says what is wrong */
    const char *name = ref.store + strlen("s3://");
    snprintf(bucket, sizeof bucket, "%.*s", (int)strcspn(name, "/"), name);
    int rc = s3_credentials_source(bucket, source);
    if (!rc)
        doctor_add(r, DOCTOR_OK, "credentials", NULL, "S3 credentials are taken from %s", source);
    return rc;
}

/* Ask for the second byte of the manifest: a server that ignores Range sends all of it. -ENOTSUP: so it does, and a
 * finding says it. */
static int check_ranges(struct doctor_report *r, const struct open_image *image)
{
    CLEANUP_BYTES byte = BYTES_INIT(1);
    char key[OBJECT_KEY_MAX];
    int rc = store_get(image->store, object_key(OBJECT_MANIFEST, &image->digest, key), 1, 1, store_append, &byte);
    if (!rc)
        doctor_add(r, DOCTOR_OK, "store-ranges", NULL, "the store honours range requests");
    else if (rc == -ENOTSUP)
        doctor_add(r, DOCTOR_FAIL, "store-ranges", NULL, "%s", error_text());
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

/* S3 refuses requests of a clock that is 15 minutes off. The answer's time is in whole seconds. */
static int check_skew(struct doctor_report *r, const struct open_image *image)
{
    struct store_item item;
    char key[OBJECT_KEY_MAX];
    int rc = store_stat(image->store, object_key(OBJECT_MANIFEST, &image->digest, key), &item);
    if (rc || !item.now) /* a store without a clock of its own */
        return rc;
    long long ahead = (long long)time(NULL) - item.now;
    if (llabs(ahead) > SKEW_S)
        doctor_add(r, DOCTOR_WARN, "clock-skew",
                   "run an NTP client: S3 refuses requests of a clock that is 15 minutes off",
                   "this clock is %lld seconds %s the store's", llabs(ahead), ahead > 0 ? "ahead of" : "behind");
    else
        doctor_add(r, DOCTOR_OK, "clock-skew", NULL, "this clock and the store's differ by %lld seconds", llabs(ahead));
    return 0;
}

/* Builds move tags by conditional puts, and find out themselves whether the store honours them. */
static void check_writes(struct doctor_report *r, const struct open_image *image)
{
    bool honoured;
    int rc = open_check_writable(&image->ref);
    if (!rc)
        rc = store_probe_conditional(image->store, &honoured);
    if (rc)
        doctor_add(r, DOCTOR_FAIL, "store-write", NULL, "%s", error_text());
    else if (honoured)
        doctor_add(r, DOCTOR_OK, "store-write", NULL, "the store honours conditional puts");
    else
        doctor_add(
            r, DOCTOR_WARN, "store-write",
            "let one machine move each tag, or give build and tag --strict-tags, which refuse instead",
            "the store does not honour conditional puts: of two builds that move a tag at once the last one wins");
}

void doctor_check_image(struct doctor_report *r, const char *image, const struct open_access *access, bool writes)
{
    CLEANUP_OPEN_IMAGE opened = {0};
    char digest[PRINT_DIGEST_MAX], size[TEXT_SIZE_MAX];
    int rc = check_credentials(r, image);
    if (!rc)
        rc = open_image(image, access, &opened);
    if (!rc && (rc = check_ranges(r, &opened)) == -ENOTSUP)
        return;
    if (!rc)
        rc = read_chunk(&opened);
    if (!rc) {
        doctor_add(r, DOCTOR_OK, "image", NULL, "%s is %s, %llu files, %s; one chunk read and verified", image,
                   print_digest(&opened.digest, digest), (unsigned long long)opened.manifest.counts.files,
                   text_format_size(opened.manifest.counts.bytes, size));
        rc = check_skew(r, &opened);
    }
    if (!rc)
        rc = doctor_store_measure(r, &opened);
    if (!rc && writes)
        check_writes(r, &opened);
    if (rc)
        doctor_add(r, DOCTOR_FAIL, "image", NULL, "%s", error_text());
}
