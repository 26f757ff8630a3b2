/* A bucket in memory behind a client of our own making, linked in place of net/aws/s3.c: it answers wrongly, late or
 * not at all as `server` says. */
#ifndef GRANARY_TESTS_UNIT_S3_BUCKET_H
#define GRANARY_TESTS_UNIT_S3_BUCKET_H

#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/text.h"
#include "imagebuild/source/rules.h"
#include "imagebuild/source/source.h"
#include "net/aws/aws_internal.h"

struct object {
    const char *key;
    uint64_t size;
    const char *etag;
    size_t key_len; /* 0: strlen */
};

enum fault { NO_FAULT, REPEATS, BACKWARDS, EMPTY };

static struct server {
    const struct object *objects; /* sorted */
    size_t count, page;           /* keys a page */
    int fail_list_call;           /* -EAGAIN, once */
    int fail_every;               /* calls; 0: never */
    enum fault fault;
    int fault_call;
    bool fault_always, slow;
    _Atomic int list_calls, running, most_running;
    _Atomic int fail_reads; /* reads that fail first, with fail_rc */
    int fail_rc;
    bool short_once;
    bool hides_etag;
    char bucket[64], prefix[64];
    unsigned connections;
} server;

struct s3 {
    int unused;
};

int s3_new(const struct s3_config *config, struct s3 **out)
{
    snprintf(server.bucket, sizeof server.bucket, "%s", config->bucket);
    server.connections = config->http.connections;
    *out = calloc(1, sizeof **out);
    return 0;
}

void s3_free(struct s3 *s)
{
    free(s);
}

static inline size_t key_len(const struct object *o)
{
    return o->key_len ? o->key_len : strlen(o->key);
}

static inline int order_of(const struct object *o, const void *key, size_t len)
{
    int order = len ? memcmp(o->key, key, GR_MIN(key_len(o), len)) : 0;
    return order ? order : (key_len(o) > len) - (key_len(o) < len);
}

static inline void put_object(struct bytes *xml, const struct object *o)
{
    char when[TEXT_TIME_MAX];
    text_format_time(1000 + (o - server.objects), when);
    assert_int_equal(bytes_printf(xml, "<Contents><Key>"), 0);
    assert_int_equal(http_percent_encode(xml, o->key, key_len(o), true), 0);
    assert_int_equal(
        bytes_printf(xml, "</Key><Size>%llu</Size><LastModified>%s</LastModified>", (unsigned long long)o->size, when),
        0);
    assert_int_equal(bytes_printf(xml, o->etag ? "<ETag>%s</ETag></Contents>" : "</Contents>", o->etag), 0);
}

/* 0: this call answers; else its failure. *fault: what the page is to have. */
static inline int next_call(enum fault *fault)
{
    int call = atomic_fetch_add(&server.list_calls, 1);
    if (call == server.fail_list_call)
        return error_set(-EAGAIN, "the page is lost");
    if (server.fail_every && call % server.fail_every == server.fail_every - 1)
        return error_set(call % 2 ? -EAGAIN : -ETIMEDOUT, "a page is lost");
    *fault = call == server.fault_call || (server.fault_always && call >= server.fault_call) ? server.fault : NO_FAULT;
    return 0;
}

int s3_list_after(struct s3 *s, const char *prefix, const void *after, size_t after_len, struct s3_list_page **out)
{
    enum fault fault = NO_FAULT;
    int rc = next_call(&fault);
    if (rc)
        return rc;
    int running = atomic_fetch_add(&server.running, 1) + 1, most = atomic_load(&server.most_running);
    while (running > most && !atomic_compare_exchange_weak(&server.most_running, &most, running))
        ;
    if (!after_len) /* the first call alone: one thread */
        snprintf(server.prefix, sizeof server.prefix, "%s", prefix);
    CLEANUP_BYTES xml = BYTES_INIT(16 << 20);
    assert_int_equal(bytes_printf(&xml, "<ListBucketResult><EncodingType>url</EncodingType>"), 0);
    size_t low = 0, high = server.count, given = 0;
    while (low < high) { /* the first after `after` */
        size_t middle = low + (high - low) / 2;
        if (order_of(&server.objects[middle], after, after_len) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (fault == REPEATS && low && !order_of(&server.objects[low - 1], after, after_len))
        low--;
    for (; low < server.count && given < server.page && fault != EMPTY; low++) {
        const struct object *o = &server.objects[low];
        if (strncmp(o->key, prefix, strlen(prefix)))
            continue;
        put_object(&xml, o);
        if (fault == REPEATS)
            put_object(&xml, o);
        if (fault == BACKWARDS && given == 1)
            put_object(&xml, o - 1);
        given++;
    }
    for (; low < server.count && strncmp(server.objects[low].key, prefix, strlen(prefix)); low++)
        ;
    if (low < server.count)
        assert_int_equal(bytes_printf(&xml, "<IsTruncated>true</IsTruncated>"
                                            "<NextContinuationToken>t</NextContinuationToken>"),
                         0);
    assert_int_equal(bytes_printf(&xml, "</ListBucketResult>"), 0);
    if (server.slow)
        usleep(500);
    atomic_fetch_sub(&server.running, 1);
    return s3_list_decode(xml.data, xml.len, out);
}

static inline const struct object *find(const char *key, size_t len)
{
    for (size_t i = 0; i < server.count; i++)
        if (key_len(&server.objects[i]) == len && !memcmp(server.objects[i].key, key, len))
            return &server.objects[i];
    return NULL;
}

static inline int fail_now(void)
{
    if (atomic_fetch_sub(&server.fail_reads, 1) > 0)
        return error_set(server.fail_rc, "the server says no");
    return 0;
}

int s3_get(struct s3 *s, const char *key, size_t len, const struct http_part *part, http_sink *sink, void *arg,
           struct s3_meta *meta)
{
    int rc = fail_now();
    const struct object *o = find(key, len);
    if (rc)
        return rc;
    if (!o)
        return error_set(-ENOENT, "no such key");
    if (part->off + part->len > o->size)
        return error_set(-EBADMSG, "range");
    uint64_t give = server.short_once ? part->len / 2 : part->len;
    server.short_once = false;
    for (uint64_t i = 0; !rc && i < give; i++) {
        char byte = (char)(part->off + i);
        rc = sink(arg, &byte, 1);
    }
    meta->size = o->size;
    snprintf(meta->etag, sizeof meta->etag, "%s", server.hides_etag ? "" : o->etag);
    return rc;
}

int s3_head(struct s3 *s, const char *key, size_t len, struct s3_meta *out)
{
    int rc = fail_now();
    const struct object *o = find(key, len);
    if (rc || !o)
        return rc ? rc : error_set(-ENOENT, "no such key");
    *out = (struct s3_meta){.size = o->size, .mtime = 77};
    snprintf(out->etag, sizeof out->etag, "%s", o->etag);
    return 0;
}

enum { CONNECTIONS = 12 };
static unsigned connections = CONNECTIONS;
static struct rules *left_out; /* NULL: nothing */

static inline struct source *open_source(const char *url, uint64_t timeout_ms)
{
    struct source_options options = {.connections = connections, .timeout_ms = timeout_ms, .rules = left_out};
    struct source *s;
    assert_int_equal(source_open(url, &options, &s), 0);
    return s;
}

static inline void serve(const struct object *objects, size_t count)
{
    server = (struct server){.objects = objects, .count = count, .page = 1000, .fail_list_call = -1};
}

#endif
