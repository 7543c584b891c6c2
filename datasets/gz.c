/* Inflating, by an own loop over zlib's inflate(): gzread() takes HTML for data, ignores what
 * follows a member and misses a cut trailer. Here every member must reach its end with the right
 * checksum and length. Members may follow each other (as in `cat a.gz b.gz`), and zero bytes may
 * follow the last one (tape padding, which gzip(1) documents); anything else there is an error. */
#include "base/sys.h"
#include "datasets/blob.h"
#include <zlib.h>

enum { WINDOW_RAW = -15, WINDOW_GZIP = 15 + 16, IN_BYTES = 1 << 16 };

struct DltInflate {
    const DltBlob *b;
    z_stream z;
    int64_t offset; /* of the raw byte behind the input buffer */
    int64_t out;    /* bytes of contents so far */
    bool ended;
    uint8_t in[IN_BYTES];
};

static voidpf z_alloc(voidpf ctx, uInt n, uInt size)
{
    (void)ctx;
    return dlt_sys_alloc((size_t)n * size);
}

static void z_free(voidpf ctx, voidpf ptr)
{
    (void)ctx;
    dlt_sys_free(ptr);
}

DltStatus dlt_inflate_open(const DltBlob *b, DltInflate **stream, DltErr *err)
{
    DltInflate *s = dlt_sys_alloc(sizeof *s);
    if (s == NULL) return dlt_err(err, DLT_E_RESOURCE, "out of memory for inflating %s", b->path);
    s->b = b;
    s->z = (z_stream){.zalloc = z_alloc, .zfree = z_free};
    s->offset = 0;
    s->out = 0;
    s->ended = false;
    if (inflateInit2(&s->z, b->coding == DLT_GZIP ? WINDOW_GZIP : WINDOW_RAW) != Z_OK) {
        dlt_sys_free(s);
        return dlt_err(err, DLT_E_RESOURCE, "out of memory for inflating %s", b->path);
    }
    *stream = s;
    return DLT_OK;
}

void dlt_inflate_close(DltInflate *s)
{
    if (s == NULL) return;
    inflateEnd(&s->z);
    dlt_sys_free(s);
}

/* Fills the input buffer when it is empty. False in *more at the end of the file. */
static DltStatus refill(DltInflate *s, bool *more, DltErr *err)
{
    *more = true;
    if (s->z.avail_in > 0) return DLT_OK;
    int64_t n = s->b->raw_bytes - s->offset;
    if (n > IN_BYTES) n = IN_BYTES;
    *more = n > 0;
    if (n == 0) return DLT_OK;
    DLT_TRY(dlt_sys_asked_to_stop());
    DLT_TRY(dlt_blob_raw(s->b, s->offset, n, s->in, err));
    s->offset += n;
    s->z.next_in = s->in;
    s->z.avail_in = (uInt)n;
    return DLT_OK;
}

/* The next raw byte, or -1 at the end of the file. */
static DltStatus peek(DltInflate *s, int *byte, DltErr *err)
{
    bool more;
    DLT_TRY(refill(s, &more, err));
    *byte = more ? *s->z.next_in : -1;
    return DLT_OK;
}

/* Behind a finished stream: the next member, padding up to the end of the file, or rubbish. */
static DltStatus after_end(DltInflate *s, DltErr *err)
{
    enum { MAGIC = 0x1f };
    int byte;
    int64_t end = s->offset - s->z.avail_in;
    DLT_TRY(peek(s, &byte, err));
    if (byte == MAGIC && s->b->coding == DLT_GZIP) {
        if (inflateReset(&s->z) == Z_OK) return DLT_OK;
        return dlt_blob_err(s->b, err, "cannot read the gzip member at byte %lld", (long long)end);
    }
    while (byte == 0 && s->b->coding == DLT_GZIP) {
        s->z.next_in++;
        s->z.avail_in--;
        DLT_TRY(peek(s, &byte, err));
    }
    if (byte >= 0)
        return dlt_blob_err(s->b, err,
                            "%lld bytes of something else follow the compressed data, which ends "
                            "at byte %lld",
                            (long long)(s->b->raw_bytes - end), (long long)end);
    s->ended = true;
    return DLT_OK;
}

static DltStatus damaged(const DltInflate *s, int code, DltErr *err)
{
    const char *why = s->z.msg != NULL ? s->z.msg : zError(code);
    if (code == Z_MEM_ERROR)
        return dlt_err(err, DLT_E_RESOURCE, "out of memory for inflating %s", s->b->path);
    return dlt_blob_err(s->b, err,
                        "the compressed data is damaged: %s (near byte %lld of %lld; %lld bytes "
                        "of contents were good)",
                        why, (long long)(s->offset - s->z.avail_in), (long long)s->b->raw_bytes,
                        (long long)s->out);
}

DltStatus dlt_inflate_pull(DltInflate *s, void *dst, int64_t n, int64_t *got, DltErr *err)
{
    enum { OUT_MAX = 1 << 30 };
    uint8_t *at = dst;
    *got = 0;
    while (*got < n && !s->ended) {
        bool more;
        DLT_TRY(refill(s, &more, err));
        int64_t room = n - *got < OUT_MAX ? n - *got : OUT_MAX;
        s->z.next_out = at + *got;
        s->z.avail_out = (uInt)room;
        int code = inflate(&s->z, Z_NO_FLUSH);
        *got += room - s->z.avail_out;
        s->out += room - s->z.avail_out;
        if (code == Z_STREAM_END) {
            DLT_TRY(after_end(s, err));
        } else if (code == Z_BUF_ERROR && !more) {
            return dlt_blob_err(s->b, err,
                                "the file is cut: it ends at byte %lld inside the compressed data, "
                                "after %lld bytes of contents",
                                (long long)s->b->raw_bytes, (long long)s->out);
        } else if (code != Z_OK && code != Z_BUF_ERROR) {
            return damaged(s, code, err);
        }
    }
    return DLT_OK;
}
