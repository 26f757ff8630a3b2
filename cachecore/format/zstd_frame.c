/* A zstd context takes a megabyte or more to set up and must not be shared between threads, so each thread keeps one
 * for each direction. A pthread key frees them when the thread ends; the key is the only process-wide state here.
 *
 * Decoding is a single pass into a buffer of the expected size: zstd allocates no window, and a frame that announces
 * another size is refused before it is decoded.
 */
#include "format/format_internal.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "base/error.h"

enum { WINDOW_LOG_MIN = 10 }; /* of zstd */

/* One thread's contexts; each NULL until the thread needs it. */
struct contexts {
    ZSTD_CCtx *compress;
    ZSTD_DCtx *decompress;
};

static pthread_once_t contexts_once = PTHREAD_ONCE_INIT;
static pthread_key_t contexts_key;
static int contexts_key_error;

static void contexts_free(void *p)
{
    struct contexts *c = p;
    ZSTD_freeCCtx(c->compress);
    ZSTD_freeDCtx(c->decompress);
    free(c);
}

static void contexts_make_key(void)
{
    contexts_key_error = pthread_key_create(&contexts_key, contexts_free);
}

/* Return the calling thread's contexts, made at its first call; NULL when out of memory. */
static struct contexts *contexts_mine(void)
{
    pthread_once(&contexts_once, contexts_make_key);
    if (contexts_key_error)
        return NULL;
    struct contexts *c = pthread_getspecific(contexts_key);
    if (c)
        return c;
    c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    if (pthread_setspecific(contexts_key, c)) {
        free(c);
        return NULL;
    }
    return c;
}

/* Get this thread's context, and room for limit bytes. */
static int encode_begin(struct bytes *out, size_t limit, ZSTD_CCtx **out_context, uint8_t **out_dst)
{
    struct contexts *c = contexts_mine();
    if (c && !c->compress)
        c->compress = ZSTD_createCCtx();
    if (!c || !c->compress)
        return error_no_memory();
    *out_context = c->compress;
    int rc = bytes_reserve(out, limit, out_dst);
    return rc ? error_set(rc, "zstd: no room for %zu bytes", limit) : 0;
}

/* Take zstd's result n. */
static int encode_end(struct bytes *out, size_t n)
{
    if (!ZSTD_isError(n)) {
        out->len += n;
        return 0;
    }
    if (ZSTD_getErrorCode(n) == ZSTD_error_dstSize_tooSmall)
        return -EMSGSIZE;
    return error_set(-ENOMEM, "zstd: %s", ZSTD_getErrorName(n));
}

int zstd_frame_encode(const void *plain, size_t len, int level, size_t limit, struct bytes *out)
{
    ZSTD_CCtx *c;
    uint8_t *dst;
    int rc = encode_begin(out, limit, &c, &dst);
    return rc ? rc : encode_end(out, ZSTD_compressCCtx(c, dst, limit, plain, len, level));
}

/* Return the window of a frame that has this many bytes with its prefix. zstd's tables, which it clears for each frame,
 * are as large as the window lets them be; the few bytes by which split forms exceed a power of two do not count. */
static int window_log(size_t len)
{
    int log = WINDOW_LOG_MIN;
    while ((size_t)1 << log < len - len / 512)
        log++;
    return log;
}

int zstd_frame_encode_upon(struct zstd_prefix prefix, const void *plain, size_t len, int level, size_t limit,
                           struct bytes *out)
{
    ZSTD_CCtx *c;
    uint8_t *dst;
    assert(len <= ZSTD_UPON_MAX && prefix.len <= ZSTD_UPON_MAX);
    int rc = encode_begin(out, limit, &c, &dst);
    if (rc)
        return rc;
    size_t n = ZSTD_CCtx_reset(c, ZSTD_reset_session_and_parameters);
    if (!ZSTD_isError(n))
        n = ZSTD_CCtx_setParameter(c, ZSTD_c_compressionLevel, level);
    if (!ZSTD_isError(n))
        n = ZSTD_CCtx_setParameter(c, ZSTD_c_windowLog, window_log(prefix.len + len));
    if (!ZSTD_isError(n))
        n = ZSTD_CCtx_refPrefix(c, prefix.data, prefix.len);
    if (!ZSTD_isError(n))
        n = ZSTD_compress2(c, dst, limit, plain, len);
    return encode_end(out, n);
}

size_t zstd_frame_announced(const void *stored, size_t stored_len)
{
    const unsigned long long len = ZSTD_getFrameContentSize(stored, stored_len);
    return len == ZSTD_CONTENTSIZE_UNKNOWN || len == ZSTD_CONTENTSIZE_ERROR || len > SIZE_MAX ? SIZE_MAX : (size_t)len;
}

int zstd_frame_decode(const void *stored, size_t stored_len, void *dst, size_t plain_len, const char **why)
{
    return zstd_frame_decode_upon((struct zstd_prefix){0}, stored, stored_len, dst, plain_len, why);
}

int zstd_frame_decode_upon(struct zstd_prefix prefix, const void *stored, size_t stored_len, void *dst,
                           size_t plain_len, const char **why)
{
    struct contexts *c = contexts_mine();
    if (c && !c->decompress)
        c->decompress = ZSTD_createDCtx();
    if (!c || !c->decompress)
        return error_no_memory();

    unsigned long long announced = ZSTD_getFrameContentSize(stored, stored_len);
    *why = "not a zstd frame of the length expected";
    if (announced == ZSTD_CONTENTSIZE_UNKNOWN || announced == ZSTD_CONTENTSIZE_ERROR || announced != plain_len)
        return -EBADMSG;
    *why = "bytes missing from or left over after the zstd frame";
    /* ZSTD_decompressDCtx would also accept several frames in a row. */
    size_t frame_len = ZSTD_findFrameCompressedSize(stored, stored_len);
    if (ZSTD_isError(frame_len) || frame_len != stored_len)
        return -EBADMSG;
    /* The context takes the prefix for one frame, and forgets it. */
    size_t n = prefix.len ? ZSTD_DCtx_refPrefix(c->decompress, prefix.data, prefix.len) : 0;
    if (ZSTD_isError(n))
        return error_no_memory();
    n = ZSTD_decompressDCtx(c->decompress, dst, plain_len, stored, stored_len);
    *why = ZSTD_isError(n) ? ZSTD_getErrorName(n) : "zstd frame shorter than it says";
    return n == plain_len ? 0 : -EBADMSG;
}
