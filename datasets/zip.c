/* The central directory of a zip archive (PKWARE APPNOTE 6.3.9), as far as .npz needs it: one
 * member by name, stored or deflated. Every offset and size is checked against the file before use.
 */
#include "datasets/npy.h"

enum {
    END_BYTES = 22,
    END64_BYTES = 56,
    LOCATOR_BYTES = 20,
    ENTRY_BYTES = 46,
    LOCAL_BYTES = 30,
    COMMENT_MAX = 65535,
    DIRECTORY_MAX = 16 << 20,
    STORED = 0,
    DEFLATED = 8,
    ENCRYPTED = 1
};

typedef struct Zip {
    DltArena *arena;
    const DltBlob *b;
    uint64_t n; /* entries */
    int64_t at; /* of the directory */
    int64_t bytes;
    const uint8_t *dir;
} Zip;

typedef struct Entry {
    const char *name;
    int name_bytes, flags, method;
    uint32_t crc;
    uint64_t packed, bytes, local;
} Entry;

static uint64_t little(const uint8_t *p, int n)
{
    uint64_t v = 0;
    for (int i = n - 1; i >= 0; i--)
        v = v << 8 | p[i];
    return v;
}

static bool is_signature(const uint8_t *p, int kind)
{
    return p[0] == 'P' && p[1] == 'K' && p[2] == kind && p[3] == kind + 1;
}

static DltStatus broken(const Zip *z, const char *what, DltErr *err)
{
    return dlt_blob_err(z->b, err, "the zip archive is damaged or cut: %s", what);
}

/* zip64: counts and offsets that did not fit the old end record. */
static DltStatus read_end64(Zip *z, int64_t end, uint64_t *size, uint64_t *offset, DltErr *err)
{
    uint8_t p[END64_BYTES];
    if (end < LOCATOR_BYTES) return broken(z, "no zip64 locator", err);
    DLT_TRY(dlt_blob_raw(z->b, end - LOCATOR_BYTES, LOCATOR_BYTES, p, err));
    uint64_t at = little(p + 8, 8);
    if (!is_signature(p, 6) || end < END64_BYTES || at > (uint64_t)(end - END64_BYTES))
        return broken(z, "no zip64 end record", err);
    DLT_TRY(dlt_blob_raw(z->b, (int64_t)at, END64_BYTES, p, err));
    if (p[0] != 'P' || p[1] != 'K' || p[2] != 6 || p[3] != 6)
        return broken(z, "no zip64 end record", err);
    z->n = little(p + 32, 8);
    *size = little(p + 40, 8);
    *offset = little(p + 48, 8);
    return DLT_OK;
}

/* Finds the end record (a comment may follow it) and reads the directory it points to. */
static DltStatus read_directory(Zip *z, DltErr *err)
{
    int64_t span = END_BYTES + COMMENT_MAX;
    if (span > z->b->raw_bytes) span = z->b->raw_bytes;
    uint8_t *tail = dlt_arena_try(z->arena, (size_t)span + 1, 1);
    if (tail == NULL) return dlt_err(err, DLT_E_RESOURCE, "out of memory for %s", z->b->path);
    DLT_TRY(dlt_blob_raw(z->b, z->b->raw_bytes - span, span, tail, err));
    int64_t i = span - END_BYTES;
    while (i >= 0 && !(is_signature(tail + i, 5) &&
                       (int64_t)little(tail + i + 20, 2) == span - i - END_BYTES))
        i--;
    if (i < 0) return broken(z, "no end record", err);
    const uint8_t *p = tail + i;
    int64_t end = z->b->raw_bytes - span + i;
    uint64_t size = little(p + 12, 4), offset = little(p + 16, 4);
    z->n = little(p + 10, 2);
    if (z->n == 0xffff || size == 0xffffffff || offset == 0xffffffff)
        DLT_TRY(read_end64(z, end, &size, &offset, err));
    if (size > DIRECTORY_MAX) return broken(z, "its directory has more than 16 MiB", err);
    if (size > (uint64_t)end || offset > (uint64_t)end - size)
        return broken(z, "its directory lies outside the file", err);
    uint8_t *dir = dlt_arena_try(z->arena, size + 1, 1);
    if (dir == NULL) return dlt_err(err, DLT_E_RESOURCE, "out of memory for %s", z->b->path);
    z->dir = dir;
    z->at = (int64_t)offset;
    z->bytes = (int64_t)size;
    return dlt_blob_raw(z->b, z->at, z->bytes, dir, err);
}

/* Sizes that did not fit 32 bits stand in the extra field 1, in the order of the entry. */
static bool read_extra64(Entry *e, const uint8_t *p, int64_t n)
{
    enum { ZIP64 = 1 };
    uint64_t *wide[] = {&e->bytes, &e->packed, &e->local};
    for (int64_t size; n >= 4; p += 4 + size, n -= 4 + size) {
        size = (int64_t)little(p + 2, 2);
        if (size > n - 4) return false;
        if (little(p, 2) != ZIP64) continue;
        const uint8_t *at = p + 4;
        for (int i = 0; i < 3; i++) {
            if (*wide[i] != 0xffffffff) continue;
            if (at + 8 > p + 4 + size) return false;
            *wide[i] = little(at, 8);
            at += 8;
        }
    }
    return true;
}

/* The entry at *at of the directory; moves on to the next. */
static bool read_entry(const Zip *z, int64_t *at, Entry *e)
{
    const uint8_t *p = z->dir + *at;
    if (z->bytes - *at < ENTRY_BYTES || !is_signature(p, 1)) return false;
    int name = (int)little(p + 28, 2), extra = (int)little(p + 30, 2),
        note = (int)little(p + 32, 2);
    if (z->bytes - *at - ENTRY_BYTES < (int64_t)name + extra + note) return false;
    *e = (Entry){.name = (const char *)p + ENTRY_BYTES,
                 .name_bytes = name,
                 .flags = (int)little(p + 8, 2),
                 .method = (int)little(p + 10, 2),
                 .crc = (uint32_t)little(p + 16, 4),
                 .packed = little(p + 20, 4),
                 .bytes = little(p + 24, 4),
                 .local = little(p + 42, 4)};
    *at += ENTRY_BYTES + name + extra + note;
    return read_extra64(e, p + ENTRY_BYTES + name, extra);
}

static bool is_named(const Entry *e, const char *name)
{
    size_t n = strlen(name);
    return (size_t)e->name_bytes == n + 4 && memcmp(e->name, name, n) == 0 &&
           memcmp(e->name + n, ".npy", 4) == 0;
}

static DltStatus not_there(const Zip *z, const char *name, DltErr *err)
{
    char list[400] = "";
    size_t used = 0;
    Entry e;
    for (int64_t at = 0; at < z->bytes && read_entry(z, &at, &e);) {
        int n = snprintf(list + used, sizeof list - used, "%s%.*s", used > 0 ? ", " : "",
                         e.name_bytes, e.name);
        used += (size_t)n;
        if (used >= sizeof list) break;
    }
    return dlt_blob_err(z->b, err, "has no array '%s.npy'; it has: %s", name, list);
}

static DltStatus find_entry(const Zip *z, const char *name, Entry *found, DltErr *err)
{
    int n_found = 0;
    int64_t at = 0;
    for (uint64_t i = 0; i < z->n; i++) {
        Entry e;
        if (!read_entry(z, &at, &e)) return broken(z, "its directory is malformed", err);
        if (!is_named(&e, name)) continue;
        *found = e;
        n_found++;
    }
    if (at != z->bytes) return broken(z, "its directory has another length than it says", err);
    if (n_found == 0) return not_there(z, name, err);
    if (n_found > 1) return dlt_blob_err(z->b, err, "has two members '%s.npy'", name);
    return DLT_OK;
}

static DltStatus check_entry(const Zip *z, const Entry *e, DltErr *err)
{
    if (e->flags & ENCRYPTED)
        return dlt_blob_err(z->b, err, "'%.*s' is encrypted", e->name_bytes, e->name);
    if (e->method != STORED && e->method != DEFLATED)
        return dlt_blob_err(z->b, err,
                            "'%.*s' is packed with method %d; known: 0 (stored), 8 "
                            "(deflated)",
                            e->name_bytes, e->name, e->method);
    if (e->method == STORED && e->packed != e->bytes)
        return broken(z, "a stored member has two sizes", err);
    if (z->at < LOCAL_BYTES || e->local > (uint64_t)(z->at - LOCAL_BYTES) ||
        e->packed > (uint64_t)z->at || e->bytes > INT64_MAX)
        return broken(z, "a member lies outside the file", err);
    return DLT_OK;
}

DltStatus dlt_zip_member(DltArena *arena, const DltBlob *zip, const char *name, DltBlob **member,
                         DltErr *err)
{
    Zip z = {.arena = arena, .b = zip};
    Entry e = {0};
    uint8_t p[LOCAL_BYTES];
    DLT_TRY(read_directory(&z, err));
    DLT_TRY(find_entry(&z, name, &e, err));
    DLT_TRY(check_entry(&z, &e, err));
    DLT_TRY(dlt_blob_raw(zip, (int64_t)e.local, LOCAL_BYTES, p, err));
    int64_t from =
        (int64_t)e.local + LOCAL_BYTES + (int64_t)(little(p + 26, 2) + little(p + 28, 2));
    if (!is_signature(p, 3) || (int)little(p + 26, 2) != e.name_bytes ||
        (int)little(p + 8, 2) != e.method || from > z.at || (int64_t)e.packed > z.at - from)
        return broken(&z, "a member and its directory entry disagree", err);
    DltBlob *b =
        dlt_blob_part(arena, zip, dlt_arena_printf(arena, "%s.npy", name), from, (int64_t)e.packed);
    b->coding = e.method == DEFLATED ? DLT_DEFLATE : DLT_PLAIN;
    b->bytes = (int64_t)e.bytes;
    b->has_crc = true;
    b->crc = e.crc;
    *member = b;
    return DLT_OK;
}
