/* Data files: opening, recognising and reading them. Sizes that a file claims are compared with
 * what it can hold before memory is taken for them. */
#include "datasets/blob.h"
#include "base/file.h"
#include "base/sys.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <zlib.h>

enum { PAGE_BYTES = 1 << 20, DEFLATE_MAX_RATIO = 1032 };

DltStatus dlt_blob_err(const DltBlob *b, DltErr *err, const char *fmt, ...)
{
    char text[DLT_ERR_TEXT];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return dlt_err_at(err, DLT_E_DATA, (DltMark){.file = b->path}, "%s", text);
}

static void close_hook(void *ctx)
{
    DltBlob *b = ctx;
    dlt_sys_close(b->fd);
}

/* Looks at the first bytes for the coding. */
static DltStatus sniff(DltBlob *b, DltErr *err)
{
    uint8_t head[2] = {0};
    b->coding = DLT_PLAIN;
    b->bytes = b->raw_bytes;
    if (b->raw_bytes < (int64_t)sizeof head) return DLT_OK;
    DLT_TRY(dlt_blob_raw(b, 0, sizeof head, head, err));
    if (head[0] != 0x1f || head[1] != 0x8b) return DLT_OK;
    b->coding = DLT_GZIP;
    b->bytes = -1;
    return DLT_OK;
}

DltStatus dlt_blob_open(DltArena *arena, const char *folder, const char *name, DltMark at,
                        DltBlob **blob, DltErr *err)
{
    char *path = dlt_path_join(arena, folder, name);
    DltBlob *b = DLT_NEW(arena, DltBlob);
    b->path = dlt_path_absolute(arena, path);
    b->fd = dlt_sys_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    if (b->fd < 0)
        return dlt_err_at(err, DLT_E_DATA, at, "cannot open %s: %s", b->path, strerror(errno));
    dlt_arena_on_free(arena, close_hook, b);
    b->raw_bytes = dlt_sys_file_bytes(b->fd);
    if (b->raw_bytes < 0) return dlt_err_at(err, DLT_E_DATA, at, "%s is no regular file", b->path);
    if (b->raw_bytes == 0) return dlt_blob_err(b, err, "the file is empty");
    DLT_TRY(sniff(b, err));
    *blob = b;
    return DLT_OK;
}

DltBlob *dlt_blob_memory(DltArena *arena, const char *name, const void *bytes, int64_t n)
{
    DltBlob *b = DLT_NEW(arena, DltBlob);
    *b = (DltBlob){.path = name, .fd = -1, .raw = bytes, .raw_bytes = n};
    DltStatus status = sniff(b, NULL);
    DLT_BUG_ON(status != DLT_OK);
    if (b->coding == DLT_PLAIN) b->mem = b->raw;
    return b;
}

DltBlob *dlt_blob_part(DltArena *arena, const DltBlob *whole, const char *name, int64_t from,
                       int64_t n)
{
    DltBlob *b = DLT_NEW(arena, DltBlob);
    *b = *whole;
    b->path = dlt_arena_printf(arena, "%s:%s", whole->path, name);
    b->from = whole->from + from;
    b->raw_bytes = n;
    b->bytes = n;
    b->mem = NULL;
    return b;
}

DltStatus dlt_blob_raw(const DltBlob *b, int64_t offset, int64_t n, void *dst, DltErr *err)
{
    DLT_BUG_ON(offset < 0 || n < 0 || n > b->raw_bytes || offset > b->raw_bytes - n);
    if (b->fd < 0) {
        memcpy(dst, b->raw + b->from + offset, (size_t)n);
        return DLT_OK;
    }
    uint8_t *at = dst;
    int64_t done = 0;
    while (done < n) {
        errno = 0;
        int64_t got = dlt_sys_pread(b->fd, at + done, (size_t)(n - done), b->from + offset + done);
        if (got < 0)
            return dlt_blob_err(b, err, "cannot read at byte %" PRId64 ": %s", offset + done,
                                strerror(errno));
        if (got == 0)
            return dlt_blob_err(b, err,
                                "the file became shorter while it was read (at byte %" PRId64 ")",
                                offset + done);
        done += got;
    }
    return DLT_OK;
}

DltStatus dlt_blob_head(const DltBlob *b, void *dst, int64_t n, int64_t *got, DltErr *err)
{
    if (b->mem != NULL || b->coding == DLT_PLAIN) {
        *got = n < b->bytes ? n : b->bytes;
        return dlt_blob_read(b, 0, *got, dst, err);
    }
    DltInflate *s = NULL;
    DLT_TRY(dlt_inflate_open(b, &s, err));
    DltStatus status = dlt_inflate_pull(s, dst, n, got, err);
    dlt_inflate_close(s);
    return status;
}

typedef struct Pages {
    void *ptr;
    size_t bytes;
} Pages;

static void pages_hook(void *ctx)
{
    Pages *p = ctx;
    dlt_sys_pages_free(p->ptr, p->bytes);
}

void *dlt_blob_pages(DltArena *arena, int64_t bytes)
{
    if (bytes < PAGE_BYTES) return dlt_arena_try(arena, (size_t)bytes + 1, 1);
    Pages *p = DLT_NEW(arena, Pages);
    p->bytes = (size_t)bytes;
    p->ptr = dlt_sys_pages(p->bytes);
    if (p->ptr != NULL) dlt_arena_on_free(arena, pages_hook, p);
    return p->ptr;
}

/* Size of the contents of a gzip file that does not say it: inflates it once into nothing. */
static DltStatus measure(const DltBlob *b, DltInflate *s, int64_t *bytes, DltErr *err)
{
    enum { BOMB_RATIO = 200, BOMB_BYTES = 64 << 20 };
    uint8_t scratch[8192];
    int64_t got, n = 0;
    do {
        DLT_TRY(dlt_inflate_pull(s, scratch, sizeof scratch, &got, err));
        n += got;
        if (n > BOMB_BYTES && n / BOMB_RATIO > b->raw_bytes)
            return dlt_blob_err(b, err,
                                "looks like a decompression bomb: %lld bytes give more than %lld; "
                                "unpack it yourself if it is meant",
                                (long long)b->raw_bytes, (long long)n);
    } while (got == (int64_t)sizeof scratch);
    *bytes = n;
    return DLT_OK;
}

static DltStatus find_size(const DltBlob *b, int64_t *bytes, DltErr *err)
{
    DltInflate *s = NULL;
    DLT_TRY(dlt_inflate_open(b, &s, err));
    DltStatus status = measure(b, s, bytes, err);
    dlt_inflate_close(s);
    return status;
}

/* Inflates exactly `bytes` bytes, and proves that they are all. */
static DltStatus inflate_all(const DltBlob *b, uint8_t *dst, int64_t bytes, DltErr *err)
{
    DltInflate *s = NULL;
    uint8_t extra;
    int64_t got = 0, more = 0;
    DLT_TRY(dlt_inflate_open(b, &s, err));
    DltStatus status = dlt_inflate_pull(s, dst, bytes, &got, err);
    if (status == DLT_OK) status = dlt_inflate_pull(s, &extra, 1, &more, err);
    dlt_inflate_close(s);
    if (status != DLT_OK) return status;
    if (got < bytes)
        return dlt_blob_err(b, err, "holds %lld bytes where its header announces %lld",
                            (long long)got, (long long)bytes);
    if (more > 0)
        return dlt_blob_err(b, err, "holds more than the %lld bytes that its header announces",
                            (long long)bytes);
    return DLT_OK;
}

static DltStatus check_crc(const DltBlob *b, DltErr *err)
{
    if (!b->has_crc) return DLT_OK;
    uint32_t crc = (uint32_t)crc32_z(0, b->mem, (size_t)b->bytes);
    if (crc == b->crc) return DLT_OK;
    return dlt_blob_err(b, err, "the contents are damaged: checksum %08x, stored %08x", crc,
                        b->crc);
}

static DltStatus read_all(const DltBlob *b, uint8_t *dst, int64_t bytes, DltErr *err)
{
    enum { PIECE = 16 << 20 };
    for (int64_t at = 0; at < bytes; at += PIECE) {
        DLT_TRY(dlt_sys_asked_to_stop());
        DLT_TRY(dlt_blob_raw(b, at, bytes - at < PIECE ? bytes - at : PIECE, dst + at, err));
    }
    return DLT_OK;
}

static DltStatus fetch(DltArena *arena, DltBlob *b, int64_t bytes, DltErr *err)
{
    if (b->coding != DLT_PLAIN && bytes / DEFLATE_MAX_RATIO > b->raw_bytes)
        return dlt_blob_err(b, err,
                            "its header announces %lld bytes, more than %lld compressed bytes can "
                            "hold",
                            (long long)bytes, (long long)b->raw_bytes);
    uint8_t *mem = dlt_blob_pages(arena, bytes);
    if (mem == NULL)
        return dlt_err(err, DLT_E_RESOURCE, "out of memory: %s needs %lld bytes", b->path,
                       (long long)bytes);
    if (b->coding == DLT_PLAIN)
        DLT_TRY(read_all(b, mem, bytes, err));
    else
        DLT_TRY(inflate_all(b, mem, bytes, err));
    b->mem = mem;
    b->bytes = bytes;
    return check_crc(b, err);
}

static DltStatus load(DltArena *arena, DltBlob *b, int64_t expected, bool in_memory, DltErr *err)
{
    if (b->bytes >= 0 && expected >= 0 && b->bytes != expected)
        return dlt_blob_err(b, err, "has %lld bytes where its header announces %lld",
                            (long long)b->bytes, (long long)expected);
    if (b->mem != NULL || (b->coding == DLT_PLAIN && !b->has_crc && !in_memory)) return DLT_OK;
    int64_t bytes = b->bytes >= 0 ? b->bytes : expected;
    if (bytes < 0) DLT_TRY(find_size(b, &bytes, err));
    return fetch(arena, b, bytes, err);
}

DltStatus dlt_blob_load(DltArena *arena, DltBlob *b, int64_t expected, DltErr *err)
{
    return load(arena, b, expected, false, err);
}

DltStatus dlt_blob_load_memory(DltArena *arena, DltBlob *b, int64_t expected, DltErr *err)
{
    return load(arena, b, expected, true, err);
}

DltStatus dlt_blob_read(const DltBlob *b, int64_t offset, int64_t n, void *dst, DltErr *err)
{
    if (b->mem == NULL) {
        DLT_BUG_ON(b->coding != DLT_PLAIN);
        return dlt_blob_raw(b, offset, n, dst, err);
    }
    DLT_BUG_ON(offset < 0 || n < 0 || n > b->bytes || offset > b->bytes - n);
    memcpy(dst, b->mem + offset, (size_t)n);
    return DLT_OK;
}

DltStatus dlt_blob_gather(const DltBlob *b, int64_t offset, int64_t record, const int64_t *id,
                          int64_t n, void *dst, DltErr *err)
{
    uint8_t *at = dst;
    for (int64_t i = 0, run; i < n; i += run) {
        run = 1;
        while (i + run < n && id[i + run] == id[i] + run)
            run++;
        DLT_TRY(dlt_blob_read(b, offset + id[i] * record, run * record, at + i * record, err));
    }
    return DLT_OK;
}

static const struct {
    const char *magic;
    int n, at;
    const char *kind;
} kinds[] = {
    {"\x1f\x8b", 2, 0, "gzip"},
    {"\x89PNG\r\n\x1a\n", 8, 0, "a PNG image"},
    {"\xff\xd8\xff", 3, 0, "a JPEG image"},
    {"GIF8", 4, 0, "a GIF image"},
    {"PK\x03\x04", 4, 0, "a zip archive"},
    {"PK\x05\x06", 4, 0, "an empty zip archive"},
    {"\x93NUMPY", 6, 0, "a NumPy array (.npy)"},
    {"\xfd"
     "7zXZ",
     5, 0, "xz-compressed"},
    {"BZh", 3, 0, "bzip2-compressed"},
    {"\x28\xb5\x2f\xfd", 4, 0, "zstd-compressed"},
    {"%PDF", 4, 0, "a PDF document"},
    {"\x89HDF", 4, 0, "an HDF5 file"},
    {"ustar", 5, 257, "a tar archive"},
    {"version https://git-lfs", 23, 0, "a Git LFS pointer, not the file"},
};

/* Text that begins (after blanks) with a tag. */
static bool is_markup(const char *text, int64_t n)
{
    int64_t i = 0;
    while (i < n && (text[i] == ' ' || text[i] == '\n' || text[i] == '\r' || text[i] == '\t'))
        i++;
    return i + 1 < n && text[i] == '<' &&
           (text[i + 1] == '!' || text[i + 1] == '?' || (text[i + 1] | 0x20) == 'h');
}

const char *dlt_blob_kind(const void *head, int64_t n)
{
    const char *text = head;
    if (n == 0) return "empty";
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        int64_t end = kinds[i].at + kinds[i].n;
        if (n >= end && memcmp(text + kinds[i].at, kinds[i].magic, (size_t)kinds[i].n) == 0)
            return kinds[i].kind;
    }
    if (is_markup(text, n)) return "HTML (a web page, perhaps of a failed download)";
    for (int64_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == 0x7f || (c < 0x20 && c != '\n' && c != '\r' && c != '\t')) return "unknown binary";
    }
    return "text";
}

DltStatus dlt_blob_alien(const DltBlob *b, const char *want, DltErr *err)
{
    char head[512];
    int64_t got;
    DLT_TRY(dlt_blob_head(b, head, sizeof head, &got, err));
    return dlt_blob_err(b, err, "this is %s%s, not %s (%lld bytes)", dlt_blob_kind(head, got),
                        b->coding == DLT_GZIP ? " inside gzip" : "", want, (long long)b->raw_bytes);
}
