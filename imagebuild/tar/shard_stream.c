/* Decompress here rather than in libarchive, which does not compare gzip's checksum, and may stop at the end of the
 * tar before the end of the stream. A shard may hold several compressed streams, one after the other. */
#include "imagebuild/tar/shard_stream.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "base/error.h"

enum { PIECE = 1 << 20 }; /* bytes */

/* in[0 .. in_len) is input from the reader that is not used yet. */
struct shard_stream {
    struct shard_reader *reader;
    enum shard_kind kind;
    z_stream gzip;
    bool gzip_open;
    ZSTD_DStream *zstd;
    const uint8_t *in;
    size_t in_len;
    bool inside;    /* a compressed stream has begun and not ended */
    uint8_t *piece; /* output */
};

int shard_stream_new(struct shard_reader *reader, struct shard_stream **out)
{
    CLEANUP(cleanup_shard_stream) struct shard_stream *s = calloc(1, sizeof *s);
    if (!s || !(s->piece = malloc(PIECE)))
        return error_no_memory();
    s->reader = reader;
    *out = steal_ptr(&s);
    return 0;
}

void shard_stream_free(struct shard_stream *s)
{
    if (!s)
        return;
    if (s->gzip_open)
        inflateEnd(&s->gzip);
    ZSTD_freeDStream(s->zstd);
    free(s->piece);
    free(s);
}

int shard_stream_begin(struct shard_stream *s, enum shard_kind kind)
{
    s->kind = kind;
    s->in_len = 0;
    s->inside = false;
    if (kind == SHARD_GZIP && !s->gzip_open) {
        if (inflateInit2(&s->gzip, MAX_WBITS + 16) != Z_OK) /* 16: gzip's header and trailer */
            return error_no_memory();
        s->gzip_open = true;
    }
    if (kind == SHARD_ZSTD && !s->zstd && !(s->zstd = ZSTD_createDStream()))
        return error_no_memory();
    return 0;
}

/* Decompress some of s->in; *out: bytes filled in s->piece. */
static int inflate_some(struct shard_stream *s, size_t *out)
{
    z_stream *z = &s->gzip;
    if (!s->inside && inflateReset(z) != Z_OK)
        return error_set(-EBADMSG, "gzip cannot begin");
    uInt given = (uInt)GR_MIN(s->in_len, (size_t)UINT_MAX);
    z->next_in = (Bytef *)s->in;
    z->avail_in = given;
    z->next_out = s->piece;
    z->avail_out = PIECE;
    int rc = inflate(z, Z_NO_FLUSH);
    if (rc != Z_OK && rc != Z_STREAM_END && rc != Z_BUF_ERROR)
        return error_set(-EBADMSG, "gzip: %s", z->msg ? z->msg : "bad data");
    s->inside = rc != Z_STREAM_END;
    s->in += given - z->avail_in;
    s->in_len -= given - z->avail_in;
    *out = PIECE - z->avail_out;
    return 0;
}

/* The same for zstd. */
static int unzstd_some(struct shard_stream *s, size_t *out)
{
    ZSTD_inBuffer in = {.src = s->in, .size = s->in_len};
    ZSTD_outBuffer to = {.dst = s->piece, .size = PIECE};
    if (!s->inside)
        ZSTD_DCtx_reset(s->zstd, ZSTD_reset_session_only);
    size_t rc = ZSTD_decompressStream(s->zstd, &to, &in);
    if (ZSTD_isError(rc))
        return error_set(-EBADMSG, "zstd: %s", ZSTD_getErrorName(rc));
    s->inside = rc != 0;
    s->in += in.pos;
    s->in_len -= in.pos;
    *out = to.pos;
    return 0;
}

int shard_stream_next(struct shard_stream *s, const void **data, size_t *len)
{
    const void *more;
    if (s->kind == SHARD_TAR)
        return shard_reader_next(s->reader, data, len);
    *data = s->piece;
    *len = 0;
    /* the decompressor may hold output that needs no further input, so try once before reading more */
    for (bool flushed = !s->inside;; flushed = true) {
        if (flushed && !s->in_len) {
            int rc = shard_reader_next(s->reader, &more, &s->in_len);
            s->in = more;
            if (rc)
                return rc;
            if (!s->in_len)
                /* the file's end is good only between two streams */
                return s->inside ? error_set(-EBADMSG, "the packed stream is cut short") : 0;
        }
        int rc = s->kind == SHARD_GZIP ? inflate_some(s, len) : unzstd_some(s, len);
        if (rc || *len)
            return rc;
    }
}
