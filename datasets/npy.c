/* NumPy's .npy format 1.0 to 3.0 (numpy.lib.format): magic, version, a Python dict literal with
 * type, order and shape, then the elements. Order and byte order are honoured (CASES.md, C29);
 * objects, records and types that cannot become f32 or i32 exactly are refused by name. */
#include "datasets/npy.h"
#include "base/half.h"
#include <math.h>

/* ---- element types ------------------------------------------------------------------------- */

static int64_t f32_f32(const void *from, int64_t n, float *to)
{
    memcpy(to, from, (size_t)n * sizeof *to);
    return n;
}

static int64_t f64_f32(const void *from, int64_t n, float *to)
{
    const double *v = from;
    for (int64_t i = 0; i < n; i++) {
        to[i] = (float)v[i];
        if (isinf(to[i]) && !isinf(v[i])) return i;
    }
    return n;
}

static int64_t f16_f32(const void *from, int64_t n, float *to)
{
    const uint16_t *v = from;
    for (int64_t i = 0; i < n; i++)
        to[i] = dlt_f16_to(v[i]);
    return n;
}

/* Whole numbers of type T: up to `exact` (2^24 at most) in f32, up to `top` in i32. */
#define INT_TYPE(name, T, exact, top)                                                              \
    static int64_t name##_f32(const void *from, int64_t n, float *to)                              \
    {                                                                                              \
        const T *v = from;                                                                         \
        for (int64_t i = 0; i < n; i++) {                                                          \
            if ((int64_t)v[i] > (exact) || (int64_t)v[i] < -(exact)) return i;                     \
            to[i] = (float)v[i];                                                                   \
        }                                                                                          \
        return n;                                                                                  \
    }                                                                                              \
    static int64_t name##_i32(const void *from, int64_t n, int32_t *to)                            \
    {                                                                                              \
        const T *v = from;                                                                         \
        for (int64_t i = 0; i < n; i++) {                                                          \
            if ((int64_t)v[i] > (top) || (int64_t)v[i] < INT32_MIN) return i;                      \
            to[i] = (int32_t)v[i];                                                                 \
        }                                                                                          \
        return n;                                                                                  \
    }
INT_TYPE(u8, uint8_t, UINT8_MAX, UINT8_MAX)
INT_TYPE(bool, uint8_t, 1, 1)
INT_TYPE(i32, int32_t, DLT_EXACT_INT, INT32_MAX)
INT_TYPE(i64, int64_t, DLT_EXACT_INT, INT32_MAX)

static const DltNpyType types[] = {
    {"f4", 4, false, f32_f32, NULL},     {"f8", 8, false, f64_f32, NULL},
    {"f2", 2, false, f16_f32, NULL},     {"u1", 1, true, u8_f32, u8_i32},
    {"b1", 1, true, bool_f32, bool_i32}, {"i4", 4, true, i32_f32, i32_i32},
    {"i8", 8, true, i64_f32, i64_i32},
};
static const char known_types[] = "f2, f4, f8, u1, b1, i4, i8";

static DltStatus find_type(DltNpy *a, const char *descr, DltErr *err)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (strcmp(descr + 1, types[i].code) != 0) continue;
        a->type = &types[i];
        a->big_endian = descr[0] == '>';
        if (types[i].bytes == 1 ? descr[0] == '|' : descr[0] == '<' || descr[0] == '>')
            return DLT_OK;
    }
    if (strchr(descr, 'O') != NULL)
        return dlt_blob_err(a->b, err, "an array of Python objects ('%s') is never loaded", descr);
    return dlt_blob_err(a->b, err, "element type '%s' is not supported; known: %s", descr,
                        known_types);
}

/* ---- the header: a Python dict literal ------------------------------------------------------ */

typedef struct Literal {
    const char *at, *end;
} Literal;

static void skip_blanks(Literal *l)
{
    while (l->at < l->end && (*l->at == ' ' || *l->at == '\n' || *l->at == '\t'))
        l->at++;
}

static bool take(Literal *l, const char *word)
{
    size_t n = strlen(word);
    skip_blanks(l);
    if ((size_t)(l->end - l->at) < n || memcmp(l->at, word, n) != 0) return false;
    l->at += n;
    return true;
}

/* A string in either kind of quotes, without escapes. */
static bool take_string(Literal *l, char *buf, int64_t room)
{
    skip_blanks(l);
    if (l->at >= l->end || (*l->at != '\'' && *l->at != '"')) return false;
    char quote = *l->at++;
    const char *close = memchr(l->at, quote, (size_t)(l->end - l->at));
    if (close == NULL || close - l->at >= room) return false;
    memcpy(buf, l->at, (size_t)(close - l->at));
    buf[close - l->at] = '\0';
    l->at = close + 1;
    return true;
}

/* Digits only, up to 2^63 - 1; Python 2 wrote a trailing L. */
static bool take_int(Literal *l, int64_t *v)
{
    skip_blanks(l);
    const char *from = l->at;
    *v = 0;
    for (; l->at < l->end && *l->at >= '0' && *l->at <= '9'; l->at++) {
        if (__builtin_mul_overflow(*v, 10, v) || __builtin_add_overflow(*v, *l->at - '0', v))
            return false;
    }
    if (l->at == from) return false;
    if (l->at < l->end && *l->at == 'L') l->at++;
    return true;
}

/* "(3, 4)", "(5,)", "()". */
static bool take_shape(Literal *l, DltShape *shape)
{
    shape->rank = 0;
    if (!take(l, "(")) return false;
    while (!take(l, ")")) {
        if (shape->rank == DLT_MAX_RANK || !take_int(l, &shape->dim[shape->rank])) return false;
        shape->rank++;
        if (take(l, ",")) continue;
        return take(l, ")") && shape->rank > 1;
    }
    return true;
}

typedef struct Header {
    char descr[32];
    DltShape shape;
    bool fortran;
    int n_descr, n_order, n_shape; /* how often each key came */
} Header;

static bool take_entry(Literal *l, Header *h)
{
    char key[32];
    if (!take_string(l, key, sizeof key) || !take(l, ":")) return false;
    if (strcmp(key, "descr") == 0) {
        h->n_descr++;
        return take_string(l, h->descr, sizeof h->descr);
    }
    if (strcmp(key, "fortran_order") == 0) {
        h->n_order++;
        h->fortran = take(l, "True");
        return h->fortran || take(l, "False");
    }
    h->n_shape++;
    return strcmp(key, "shape") == 0 && take_shape(l, &h->shape);
}

static bool take_header(Literal *l, Header *h)
{
    if (!take(l, "{")) return false;
    while (!take(l, "}")) {
        if (!take_entry(l, h)) return false;
        if (take(l, ",")) continue;
        if (!take(l, "}")) return false;
        break;
    }
    skip_blanks(l);
    return l->at == l->end && h->n_descr == 1 && h->n_order == 1 && h->n_shape == 1 &&
           strlen(h->descr) > 1;
}

/* Text of the header into the arena. */
static DltStatus read_literal(DltArena *arena, DltNpy *a, Literal *l, DltErr *err)
{
    enum { PREFIX = 12, HEADER_MAX = 1 << 16 };
    uint8_t p[PREFIX];
    int64_t got;
    DLT_TRY(dlt_blob_head(a->b, p, PREFIX, &got, err));
    if (got < 6 || memcmp(p, "\x93NUMPY", 6) != 0)
        return dlt_blob_alien(a->b, "a NumPy array (.npy)", err);
    if (got < PREFIX) return dlt_blob_err(a->b, err, "the file is cut inside its header");
    if (p[6] < 1 || p[6] > 3 || p[7] != 0)
        return dlt_blob_err(a->b, err, ".npy format %d.%d is not supported; known: 1.0, 2.0, 3.0",
                            p[6], p[7]);
    int64_t n = p[8] | p[9] << 8, prefix = 10;
    if (p[6] > 1) {
        n |= (int64_t)p[10] << 16 | (int64_t)p[11] << 24;
        prefix = 12;
    }
    if (n > HEADER_MAX)
        return dlt_blob_err(a->b, err, "a header of %lld bytes, more than %d", (long long)n,
                            HEADER_MAX);
    a->data = prefix + n;
    char *text = DLT_NEW_ARRAY(arena, a->data + 1, char);
    DLT_TRY(dlt_blob_head(a->b, text, a->data, &got, err));
    if (got < a->data) return dlt_blob_err(a->b, err, "the file is cut inside its header");
    *l = (Literal){text + prefix, text + a->data};
    return DLT_OK;
}

/* Records along the first axis; every product checked. */
static DltStatus take_sizes(DltNpy *a, const DltShape *shape, DltErr *err)
{
    char text[DLT_SHAPE_TEXT];
    int64_t bytes;
    if (shape->rank == 0) return dlt_blob_err(a->b, err, "a single number, where records belong");
    for (int i = 0; i < shape->rank; i++)
        if (shape->dim[i] == 0)
            return dlt_blob_err(a->b, err, "shape %s: no data", dlt_shape_text(shape, text));
    if (!dlt_shape_bytes(shape, (size_t)a->type->bytes, &bytes) ||
        __builtin_add_overflow(bytes, a->data, &a->total))
        return dlt_blob_err(a->b, err, "shape %s is larger than any file",
                            dlt_shape_text(shape, text));
    if (a->b->bytes >= 0 && a->b->bytes != a->total)
        return dlt_blob_err(a->b, err, "has %lld bytes where its header %s announces %lld",
                            (long long)a->b->bytes, dlt_shape_text(shape, text),
                            (long long)a->total);
    a->n = shape->dim[0];
    a->count = dlt_shape_span(shape, 1, shape->rank);
    a->record.rank = shape->rank - 1;
    memcpy(a->record.dim, shape->dim + 1, (size_t)a->record.rank * sizeof shape->dim[0]);
    return DLT_OK;
}

DltStatus dlt_npy_header(DltArena *arena, DltNpy *a, DltErr *err)
{
    Literal l = {NULL, NULL};
    Header h = {.n_descr = 0};
    DLT_TRY(read_literal(arena, a, &l, err));
    Literal whole = l;
    if (!take_header(&l, &h)) {
        if (h.n_descr == 1 && l.at < l.end && *l.at == '[')
            return dlt_blob_err(a->b, err,
                                "an array of records (structured dtype) is not supported");
        return dlt_blob_err(a->b, err, "the .npy header cannot be read near '%.20s'",
                            l.at < whole.end ? l.at : "its end");
    }
    DLT_TRY(find_type(a, h.descr, err));
    a->fortran = h.fortran && h.shape.rank > 1;
    return take_sizes(a, &h.shape, err);
}

/* ---- elements ------------------------------------------------------------------------------- */

/* Where the s-th element of a record, counted with its first axis fastest, lies in C order. */
static int64_t c_offset(const DltShape *record, int64_t s)
{
    int64_t at = 0, stride = dlt_shape_count(record);
    for (int i = 0; i < record->rank; i++) {
        stride /= record->dim[i];
        at += s % record->dim[i] * stride;
        s /= record->dim[i];
    }
    return at;
}

/* File order is [record fastest, then the record's axes]; memory gets C order. */
static DltStatus reorder(DltArena *arena, DltNpy *a, DltErr *err)
{
    uint8_t block[DLT_NPY_BLOCK];
    int64_t size = a->type->bytes, room = DLT_NPY_BLOCK / size;
    uint8_t *to = dlt_blob_pages(arena, a->total);
    if (to == NULL)
        return dlt_err(err, DLT_E_RESOURCE, "out of memory: %s needs %lld bytes", a->b->path,
                       (long long)a->total);
    for (int64_t s = 0; s < a->count; s++) {
        uint8_t *column = to + a->data + c_offset(&a->record, s) * size;
        for (int64_t i = 0; i < a->n; i += room) {
            int64_t n = a->n - i < room ? a->n - i : room;
            DLT_TRY(dlt_blob_read(a->b, a->data + (s * a->n + i) * size, n * size, block, err));
            for (int64_t k = 0; k < n; k++)
                memcpy(column + (i + k) * a->count * size, block + k * size, (size_t)size);
        }
    }
    a->b->mem = to;
    return DLT_OK;
}

DltStatus dlt_npy_load(DltArena *arena, DltNpy *a, DltErr *err)
{
    DLT_TRY(dlt_blob_load(arena, a->b, a->total, err));
    if (!a->fortran) return DLT_OK;
    DLT_TRY(reorder(arena, a, err));
    a->fortran = false;
    return DLT_OK;
}

DltStatus dlt_npy_elements(const DltNpy *a, int64_t at, int64_t n, void *to, DltErr *err)
{
    int64_t size = a->type->bytes;
    DLT_BUG_ON(a->fortran || n * size > DLT_NPY_BLOCK);
    DLT_TRY(dlt_blob_read(a->b, a->data + at * size, n * size, to, err));
    uint8_t *p = to;
    for (int64_t i = 0; a->big_endian && i < n; i++, p += size) {
        for (int64_t k = 0; k < size / 2; k++) {
            uint8_t swap = p[k];
            p[k] = p[size - 1 - k];
            p[size - 1 - k] = swap;
        }
    }
    return DLT_OK;
}
