/* Shards: recognising their layout and reading ids out of them. Files are read in place by offset and
 * not mapped, so that one that is cut while in use is an error and not a signal; all offsets have 64
 * bits. */
#include "datasets/shards.h"
#include "base/sys.h"
#include <inttypes.h>

static uint32_t little32(const uint8_t *p)
{
    return (uint32_t)p[3] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[1] << 8 | p[0];
}

static const struct {
    uint32_t magic, version;
    int64_t width;
} headers[] = {
    {DLT_SHARD_MAGIC16, DLT_SHARD_VERSION16, 2},
    {DLT_SHARD_MAGIC32, DLT_SHARD_VERSION32, 4},
};
enum { N_HEADER = sizeof headers / sizeof headers[0] };

static DltStatus take_header(DltShard *s, const uint8_t *head, int64_t got, int k, DltErr *err)
{
    if (got < DLT_SHARD_HEADER)
        return dlt_blob_err(s->b, err, "the file is cut inside its header: %" PRId64 " of %d bytes",
                            got, DLT_SHARD_HEADER);
    uint32_t version = little32(head + 4);
    if (version != headers[k].version)
        return dlt_blob_err(s->b, err, "byte 4: version %u of a token shard is not known; %u is",
                            version, headers[k].version);
    s->header = DLT_SHARD_HEADER;
    s->width = headers[k].width;
    s->n = (int64_t)little32(head + 8);
    int64_t stated = DLT_SHARD_HEADER + s->n * s->width;
    if (stated == s->b->bytes) return DLT_OK;
    return dlt_blob_err(s->b, err,
                        "byte 8: the header announces %" PRId64 " ids, so %" PRId64
                        " bytes, but the file has %" PRId64,
                        s->n, stated, s->b->bytes);
}

static DltStatus take_raw(DltShard *s, int64_t width, DltErr *err)
{
    s->header = 0;
    s->width = width;
    s->n = s->b->bytes / width;
    if (s->b->bytes % width == 0) return DLT_OK;
    return dlt_blob_err(s->b, err,
                        "%" PRId64 " bytes are no whole number of %d-bit ids: %" PRId64
                        " are left over at byte %" PRId64,
                        s->b->bytes, (int)(8 * width), s->b->bytes % width,
                        s->b->bytes - s->b->bytes % width);
}

/* What is certainly no row of ids. Kinds told by two bytes alone could be ids. */
static bool is_alien(const uint8_t *head, int64_t n)
{
    static const char *const may_be_ids[] = {"unknown binary", "gzip", "text", "a JPEG image",
                                             "bzip2-compressed"};
    const char *kind = dlt_blob_kind(head, n);
    for (size_t i = 0; i < sizeof may_be_ids / sizeof may_be_ids[0]; i++)
        if (strcmp(kind, may_be_ids[i]) == 0) return false;
    return true;
}

static DltStatus recognise(DltShard *s, int layout, DltErr *err)
{
    uint8_t head[DLT_SHARD_HEADER];
    int64_t got;
    if (s->b->coding != DLT_PLAIN)
        return dlt_blob_err(s->b, err, "this is gzip; unpack it first (gunzip)");
    DLT_TRY(dlt_blob_head(s->b, head, sizeof head, &got, err));
    uint32_t magic = got >= 4 ? little32(head) : 0;
    for (int k = 0; k < N_HEADER && layout <= DLT_LAYOUT_LLMC; k++)
        if (magic == headers[k].magic) return take_header(s, head, got, k, err);
    if (layout == DLT_LAYOUT_LLMC)
        return dlt_blob_err(
            s->b, err,
            "byte 0: magic %u is not that of a token shard (%d for 16-bit ids, %d for "
            "32-bit ids)",
            magic, DLT_SHARD_MAGIC16, DLT_SHARD_MAGIC32);
    if (is_alien(head, got)) return dlt_blob_alien(s->b, "a shard of token ids", err);
    return take_raw(s, layout == DLT_LAYOUT_RAW32 ? 4 : 2, err);
}

DltStatus dlt_shards_open(DltArena *arena, DltBlob *const *file, int n_file, int layout,
                          DltShards *s, DltErr *err)
{
    *s = (DltShards){.n_shard = n_file, .shard = DLT_NEW_ARRAY(arena, n_file, DltShard)};
    for (int i = 0; i < n_file; i++) {
        s->shard[i].b = file[i];
        DLT_TRY(recognise(&s->shard[i], layout, err));
        s->shard[i].before = s->n;
        s->n += s->shard[i].n;
    }
    return DLT_OK;
}

/* The shard that holds id number i of the stream. */
static const DltShard *shard_of(const DltShards *s, int64_t i)
{
    int lo = 0, hi = s->n_shard - 1;
    while (lo < hi) {
        int mid = (lo + hi + 1) / 2;
        if (s->shard[mid].before <= i)
            lo = mid;
        else
            hi = mid - 1;
    }
    return &s->shard[lo];
}

/* Widens in place, the last first. */
static void widen(int32_t *out, int64_t n)
{
    const uint8_t *bytes = (const uint8_t *)out;
    for (int64_t i = n - 1; i >= 0; i--)
        out[i] = bytes[2 * i] | bytes[2 * i + 1] << 8;
}

static DltStatus check_ids(const DltShards *s, const DltShard *shard, int64_t first,
                           const int32_t *id, int64_t n, DltErr *err)
{
    int64_t limit = s->vocab > 0 ? s->vocab : INT32_MAX;
    uint32_t highest = 0;
    for (int64_t i = 0; i < n; i++)
        highest = (uint32_t)id[i] > highest ? (uint32_t)id[i] : highest;
    if ((int64_t)highest < limit) return DLT_OK;
    for (int64_t i = 0;; i++)
        if ((int64_t)(uint32_t)id[i] >= limit)
            return dlt_blob_err(
                shard->b, err,
                "byte %" PRId64 ": token %" PRId64 " is id %u, but the vocabulary has "
                "%" PRId64 " ids",
                shard->header + (first + i) * shard->width, first + i, (uint32_t)id[i], limit);
}

static DltStatus get_part(const DltShards *s, const DltShard *shard, int64_t first, int64_t n,
                          int32_t *out, DltErr *err)
{
    DLT_TRY(
        dlt_blob_read(shard->b, shard->header + first * shard->width, n * shard->width, out, err));
    if (shard->width == 2) widen(out, n);
    if (shard->width == 2 && s->vocab > UINT16_MAX) return DLT_OK;
    return check_ids(s, shard, first, out, n, err);
}

DltStatus dlt_shards_get(const void *ctx, int64_t first, int64_t n, int32_t *out, DltErr *err)
{
    const DltShards *s = ctx;
    DLT_BUG_ON(first < 0 || n < 0 || n > s->n || first > s->n - n);
    while (n > 0) {
        const DltShard *shard = shard_of(s, first);
        int64_t at = first - shard->before, part = shard->n - at;
        if (part > n) part = n;
        DLT_TRY(get_part(s, shard, at, part, out, err));
        out += part;
        first += part;
        n -= part;
    }
    return DLT_OK;
}
