/* Writes and strictly reads the header of the checkpoint container (safetensors.h). The reader
 * trusts nothing: the checksum is verified before the JSON is parsed, each size is checked before it
 * is multiplied or added, and what is not exactly as the writer makes it is refused. */
#include "exec/safetensors.h"
#include <zlib.h>

static const char head_start[] = "{\"__metadata__\":{\"dltrain.header_crc32\":\"";
enum { LENGTH_BYTES = 8, CRC_DIGITS = 8, CRC_AT = LENGTH_BYTES + sizeof head_start - 1 };

typedef struct FileType {
    DltDtype dtype;
    const char *name;
    int64_t bytes; /* in the file; an f32 is 4 bytes in the double build too */
} FileType;
static const FileType file_types[] = {
    {DLT_F32, "F32", 4}, {DLT_BF16, "BF16", 2},      {DLT_F16, "F16", 2},
    {DLT_F64, "F64", 8}, {DLT_I32, "I32", 4},        {DLT_I64, "I64", 8},
    {DLT_U8, "U8", 1},   {DLT_F8E4M3, "F8_E4M3", 1}, {DLT_F8E5M2, "F8_E5M2", 1}};
enum { N_FILE_TYPE = sizeof file_types / sizeof file_types[0] };

uint32_t dlt_safetensors_crc(uint32_t crc, const void *bytes, int64_t n)
{
    return (uint32_t)crc32_z(crc, bytes, (z_size_t)n);
}

/* crc32 of length field and header, the stored digits read as zeros. */
static uint32_t head_crc(const char *head, int64_t n)
{
    uint32_t crc = dlt_safetensors_crc(0, head, CRC_AT);
    crc = dlt_safetensors_crc(crc, "00000000", CRC_DIGITS);
    return dlt_safetensors_crc(crc, head + CRC_AT + CRC_DIGITS, n - CRC_AT - CRC_DIGITS);
}

/* ---- writing ------------------------------------------------------------------------------ */

static const FileType *type_of(DltDtype dtype)
{
    int i = 0;
    while (i < N_FILE_TYPE && file_types[i].dtype != dtype)
        i++;
    DLT_BUG_ON(i == N_FILE_TYPE);
    return &file_types[i];
}

static json_t *tensor_json(const DltCheckpointTensor *t, int64_t begin)
{
    json_t *shape = json_array();
    for (int i = 0; i < t->shape.rank; i++)
        json_array_append_new(shape, json_integer(t->shape.dim[i]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", type_of(t->dtype)->name, "shape", shape,
                     "data_offsets", (json_int_t)begin, (json_int_t)begin + (json_int_t)t->n_bytes);
}

static DltStatus check_tensor(const DltCheckpointTensor *t, DltErr *err)
{
    int64_t bytes = 0;
    bool ok = dlt_shape_bytes(&t->shape, (size_t)type_of(t->dtype)->bytes, &bytes);
    DLT_BUG_ON(!ok || bytes != t->n_bytes);
    if (strlen(t->name) >= 1 && strlen(t->name) <= DLT_SAFE_NAME_MAX) return DLT_OK;
    return dlt_err(err, DLT_E_CONFIG,
                   "tensor name '%.64s...' has %zu bytes; checkpoints hold names of 1 to %d",
                   t->name, strlen(t->name), DLT_SAFE_NAME_MAX);
}

/* The header as JSON with zeros where checksum and file length will stand, or NULL: no memory. */
static json_t *head_json(DltArena *arena, const DltCheckpointTensor *tensor, int n_tensor,
                         json_t *meta)
{
    char *crcs = dlt_arena_new_bytes(arena, (size_t)n_tensor * CRC_DIGITS + 1, 1);
    for (int i = 0; i < n_tensor; i++)
        snprintf(crcs + (size_t)i * CRC_DIGITS, CRC_DIGITS + 1, "%08x", tensor[i].crc);
    json_t *head =
        json_pack("{s:{s:s, s:s, s:s, s:s}}", "__metadata__", "dltrain.header_crc32", "00000000",
                  "dltrain.file_bytes", "00000000000000000000", "dltrain.format",
                  dlt_arena_printf(arena, "%d", DLT_SAFE_FORMAT), "dltrain.tensor_crc32", crcs);
    bool ok = json_object_update(json_object_get(head, "__metadata__"), meta) == 0;
    for (int64_t i = 0, begin = 0; ok && i < n_tensor; begin += tensor[i++].n_bytes)
        ok = json_object_set_new(head, tensor[i].name, tensor_json(&tensor[i], begin)) == 0;
    if (ok) return head;
    json_decref(head);
    return NULL;
}

/* JSON text behind the length field, padded with spaces. */
static DltStatus head_text(DltArena *arena, const json_t *json, char **head, int64_t *n,
                           DltErr *err)
{
    size_t bytes = json_dumpb(json, NULL, 0, JSON_COMPACT);
    if (bytes == 0 || bytes > DLT_SAFE_HEADER_MAX - DLT_SAFE_ALIGN)
        return dlt_err(err, bytes == 0 ? DLT_E_RESOURCE : DLT_E_CONFIG,
                       "the header of the checkpoint has %zu bytes, more than %d", bytes,
                       DLT_SAFE_HEADER_MAX);
    size_t total = (LENGTH_BYTES + bytes + DLT_SAFE_ALIGN - 1) / DLT_SAFE_ALIGN * DLT_SAFE_ALIGN;
    char *text = dlt_arena_new_bytes(arena, total, 1);
    memset(text, ' ', total);
    if (json_dumpb(json, text + LENGTH_BYTES, bytes, JSON_COMPACT) != bytes)
        return dlt_err(err, DLT_E_RESOURCE, "out of memory for the header of the checkpoint");
    for (int i = 0; i < LENGTH_BYTES; i++)
        text[i] = (char)((total - LENGTH_BYTES) >> 8 * i & 0xff);
    *head = text;
    *n = (int64_t)total;
    return DLT_OK;
}

DltStatus dlt_safetensors_head(DltArena *arena, const DltCheckpointTensor *tensor, int n_tensor,
                               json_t *meta, char **head, int64_t *n, DltErr *err)
{
    if (n_tensor > DLT_SAFE_TENSOR_MAX)
        return dlt_err(err, DLT_E_CONFIG, "the run has %d tensors; a checkpoint holds at most %d",
                       n_tensor, DLT_SAFE_TENSOR_MAX);
    int64_t file_bytes = 0;
    for (int i = 0; i < n_tensor; i++) {
        DLT_TRY(check_tensor(&tensor[i], err));
        file_bytes += tensor[i].n_bytes;
    }
    json_t *json = head_json(arena, tensor, n_tensor, meta);
    if (json == NULL)
        return dlt_err(err, DLT_E_RESOURCE, "out of memory for the header of the checkpoint");
    DltStatus status = head_text(arena, json, head, n, err);
    json_decref(json);
    DLT_TRY(status);
    DLT_BUG_ON(strncmp(*head + LENGTH_BYTES, head_start, sizeof head_start - 1) != 0);
    static const char before[] = "\",\"dltrain.file_bytes\":\"";
    char digits[24];
    snprintf(digits, sizeof digits, "%020lld", (long long)file_bytes + (long long)*n);
    memcpy(*head + CRC_AT + CRC_DIGITS + sizeof before - 1, digits, 20);
    snprintf(digits, sizeof digits, "%08x", head_crc(*head, *n));
    memcpy(*head + CRC_AT, digits, CRC_DIGITS);
    return DLT_OK;
}

/* ---- reading ------------------------------------------------------------------------------ */

typedef struct Reader {
    DltArena *arena;
    const char *path;
    const char *head;
    int64_t head_bytes, file_bytes;
    const char *crcs; /* of the tensors */
    DltErr *err;
} Reader;

static DltStatus damaged(const Reader *r, const char *fmt, ...) DLT_PRINTF(2, 3);

static DltStatus damaged(const Reader *r, const char *fmt, ...)
{
    char what[400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    return dlt_err(r->err, DLT_E_CHECKPOINT, "%s: damaged checkpoint: %s", r->path, what);
}

typedef struct Magic {
    const char *bytes;
    int n;
    const char *what;
} Magic;
static const Magic magics[] = {
    {"\x1f\x8b", 2, "a gzip file"},
    {"\x89PNG", 4, "a PNG image"},
    {"\xff\xd8\xff", 3, "a JPEG image"},
    {"\x7f"
     "ELF",
     4, "an ELF program"},
    {"PK\x03\x04", 4, "a zip archive (PyTorch's .pt and .npz files are such)"},
    {"\x93NUMPY", 6, "a NumPy array"},
    {"\x89HDF", 4, "an HDF5 file (Keras)"},
    {"GGUF", 4, "a GGUF file"},
    {"%PDF", 4, "a PDF document"},
    {"\x80\x02", 2, "a Python pickle"},
    {"<!DOCTYPE", 9, "an HTML page"},
    {"<html", 5, "an HTML page"},
    {"\0\0\x08", 3, "an IDX data file"}};

/* Nothing but what a UTF-8 text may hold. */
static bool is_text(const char *start, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)start[i];
        if ((c < 0x20 && c != '\n' && c != '\r' && c != '\t') || c == 0x7f || c > 0xf4)
            return false;
    }
    return n > 0;
}

static DltStatus check_kind(const char *path, const char *start, int64_t n, DltErr *err)
{
    const char *what = NULL;
    for (size_t i = 0; i < sizeof magics / sizeof magics[0] && what == NULL; i++)
        if (n >= magics[i].n && memcmp(start, magics[i].bytes, (size_t)magics[i].n) == 0)
            what = magics[i].what;
    if (n == 0) what = "empty";
    if (what == NULL && is_text(start, n))
        what = "a text file; a config is what `dltrain train` takes";
    if (what == NULL) return DLT_OK;
    return dlt_err(err, DLT_E_CHECKPOINT, "%s: no checkpoint: the file is %s", path, what);
}

DltStatus dlt_safetensors_head_bytes(const char *path, const char *start, int64_t n,
                                     int64_t file_bytes, int64_t *head_bytes, DltErr *err)
{
    Reader r = {.path = path, .err = err};
    DLT_TRY(check_kind(path, start, n, err));
    if (n < LENGTH_BYTES + 1) return damaged(&r, "%lld bytes are too few", (long long)n);
    uint64_t length = 0;
    for (int i = 0; i < LENGTH_BYTES; i++)
        length |= (uint64_t)(unsigned char)start[i] << 8 * i;
    if (start[LENGTH_BYTES] != '{' || length < sizeof head_start || length > DLT_SAFE_HEADER_MAX)
        return dlt_err(err, DLT_E_CHECKPOINT,
                       "%s: no checkpoint: it does not begin like a safetensors file, or its "
                       "header was damaged",
                       path);
    if (length > (uint64_t)(file_bytes - LENGTH_BYTES))
        return damaged(&r, "the file ends inside its header (%lld bytes of %llu)",
                       (long long)file_bytes, (unsigned long long)length + LENGTH_BYTES);
    *head_bytes = (int64_t)length + LENGTH_BYTES;
    return DLT_OK;
}

/* Exactly n lower-case hex digits. */
static bool read_hex(const char *text, int n, uint32_t *value)
{
    *value = 0;
    for (int i = 0; i < n; i++) {
        bool digit = text[i] >= '0' && text[i] <= '9', letter = text[i] >= 'a' && text[i] <= 'f';
        if (!digit && !letter) return false;
        *value = *value << 4 | (uint32_t)(digit ? text[i] - '0' : text[i] - 'a' + 10);
    }
    return true;
}

static DltStatus check_head_crc(const Reader *r)
{
    if (r->head_bytes < (int64_t)CRC_AT + CRC_DIGITS ||
        memcmp(r->head + LENGTH_BYTES, head_start, sizeof head_start - 1) != 0)
        return dlt_err(r->err, DLT_E_CHECKPOINT,
                       "%s: a safetensors file, but not one of dltrain's (or a damaged one): its "
                       "metadata does not begin with dltrain.header_crc32",
                       r->path);
    uint32_t stated;
    if (!read_hex(r->head + CRC_AT, CRC_DIGITS, &stated))
        return damaged(r, "the header's checksum is no number");
    uint32_t real = head_crc(r->head, r->head_bytes);
    if (real == stated) return DLT_OK;
    return damaged(r, "the header's checksum is %08x, it says %08x", real, stated);
}

static DltStatus read_shape(const Reader *r, const char *name, const json_t *json, DltShape *shape)
{
    static const json_int_t dim_max = (json_int_t)1 << 40;
    size_t rank = json_array_size(json);
    if (!json_is_array(json) || rank > DLT_MAX_RANK)
        return damaged(r, "%s: its shape is no list of at most %d numbers", name, DLT_MAX_RANK);
    shape->rank = (int)rank;
    for (size_t i = 0; i < rank; i++) {
        const json_t *dim = json_array_get(json, i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 1 ||
            json_integer_value(dim) > dim_max)
            return damaged(r, "%s: dimension %zu is not within 1 and 2^40", name, i);
        shape->dim[i] = json_integer_value(dim);
    }
    return DLT_OK;
}

/* The tensor must begin at `begin`, where the one before ended. */
static DltStatus read_tensor(const Reader *r, const char *name, const json_t *json, int64_t begin,
                             DltCheckpointTensor *t)
{
    const json_t *dtype = json_object_get(json, "dtype");
    const json_t *offsets = json_object_get(json, "data_offsets");
    const json_t *from = json_array_get(offsets, 0), *to = json_array_get(offsets, 1);
    size_t length = strlen(name);
    if (length < 1 || length > DLT_SAFE_NAME_MAX)
        return damaged(r, "a tensor name has %zu bytes", length);
    if (!json_is_object(json) || json_object_size(json) != 3 || !json_is_string(dtype) ||
        json_array_size(offsets) != 2 || !json_is_integer(from) || !json_is_integer(to))
        return damaged(r, "%s: it is not {dtype, shape, data_offsets}", name);
    const FileType *type = NULL;
    for (int i = 0; i < N_FILE_TYPE; i++)
        if (strcmp(file_types[i].name, json_string_value(dtype)) == 0) type = &file_types[i];
    if (type == NULL) return damaged(r, "%s: unknown type %.20s", name, json_string_value(dtype));
    DLT_TRY(read_shape(r, name, json_object_get(json, "shape"), &t->shape));
    int64_t bytes = 0;
    if (!dlt_shape_bytes(&t->shape, (size_t)type->bytes, &bytes) ||
        bytes > r->file_bytes - r->head_bytes - begin)
        return damaged(r, "%s: its shape needs more bytes than the file has", name);
    if (json_integer_value(from) != begin || json_integer_value(to) != begin + bytes)
        return damaged(r, "%s: it does not lie at [%lld, %lld)", name, (long long)begin,
                       (long long)begin + (long long)bytes);
    t->name = dlt_arena_str(r->arena, name);
    t->dtype = type->dtype;
    t->n_bytes = bytes;
    return DLT_OK;
}

/* One of the container's own metadata keys, which is taken out. */
static const char *own_key(const Reader *r, json_t *meta, const char *key)
{
    const char *value = json_string_value(json_object_get(meta, key));
    const char *copy = value != NULL ? dlt_arena_str(r->arena, value) : "";
    json_object_del(meta, key);
    return copy;
}

static DltStatus read_meta(Reader *r, json_t *meta, int n_tensor)
{
    const char *key;
    json_t *value;
    json_object_foreach(meta, key, value)
    {
        if (!json_is_string(value)) return damaged(r, "metadata %.64s is no string", key);
    }
    const char *format = own_key(r, meta, "dltrain.format");
    char text[32];
    snprintf(text, sizeof text, "%d", DLT_SAFE_FORMAT);
    if (strcmp(format, text) != 0)
        return dlt_err(r->err, DLT_E_CHECKPOINT,
                       "%s: checkpoint of format '%.16s'; this dltrain reads format %s", r->path,
                       format, text);
    own_key(r, meta, "dltrain.header_crc32");
    snprintf(text, sizeof text, "%020lld", (long long)r->file_bytes);
    const char *stated = own_key(r, meta, "dltrain.file_bytes");
    if (strcmp(stated, text) != 0)
        return damaged(r,
                       "the file has %lld bytes, it should have %.20s (cut, or with something "
                       "behind its end)",
                       (long long)r->file_bytes, stated + strspn(stated, "0"));
    r->crcs = own_key(r, meta, "dltrain.tensor_crc32");
    if (strlen(r->crcs) != (size_t)n_tensor * CRC_DIGITS)
        return damaged(r, "the number of checksums is not that of tensors (%d)", n_tensor);
    return DLT_OK;
}

static DltStatus read_tensors(const Reader *r, json_t *json, DltCheckpoint *c)
{
    const char *name;
    json_t *value;
    int64_t begin = 0;
    c->tensor = DLT_NEW_ARRAY(r->arena, c->n_tensor, DltCheckpointTensor);
    int i = 0;
    json_object_foreach(json, name, value)
    {
        DLT_TRY(read_tensor(r, name, value, begin, &c->tensor[i]));
        if (!read_hex(r->crcs + (size_t)i * CRC_DIGITS, CRC_DIGITS, &c->tensor[i].crc))
            return damaged(r, "%s: its checksum is no number", name);
        begin += c->tensor[i++].n_bytes;
    }
    if (begin == r->file_bytes - r->head_bytes) return DLT_OK;
    return damaged(r, "tensors end at byte %lld, the file at %lld",
                   (long long)begin + (long long)r->head_bytes, (long long)r->file_bytes);
}

static DltStatus read_json(Reader *r, json_t *json, DltCheckpoint *c, json_t **meta)
{
    json_t *own = json_incref(json_object_get(json, "__metadata__"));
    json_object_del(json, "__metadata__");
    size_t n = json_object_size(json);
    DltStatus status = DLT_OK;
    if (!json_is_object(own) || n > DLT_SAFE_TENSOR_MAX)
        status = damaged(r, "%zu tensors; at most %d are allowed", n, DLT_SAFE_TENSOR_MAX);
    c->n_tensor = (int)(status == DLT_OK ? n : 0);
    if (status == DLT_OK) status = read_meta(r, own, c->n_tensor);
    if (status == DLT_OK) status = read_tensors(r, json, c);
    if (status == DLT_OK) {
        *meta = own;
    } else {
        json_decref(own);
    }
    return status;
}

/* In memory a value takes some twenty times the room that it takes in the header. A tensor has at most
 * eleven commas outside of quotes; a header with many more than its checksums allow is refused before. */
static DltStatus check_size(const Reader *r)
{
    enum { COMMAS = 12, METADATA = 1000 };
    static const char crcs[] = "\"dltrain.tensor_crc32\":\"";
    const char *end = r->head + r->head_bytes;
    const char *crc = memmem(r->head, (size_t)r->head_bytes, crcs, sizeof crcs - 1);
    const char *close = NULL;
    if (crc != NULL) crc += sizeof crcs - 1;
    if (crc != NULL) close = memchr(crc, '"', (size_t)(end - crc));
    int64_t n = 0, n_crc = close != NULL ? (close - crc) / CRC_DIGITS : 0;
    bool quoted = false;
    for (const char *c = r->head + LENGTH_BYTES; c < end; c++) {
        if (quoted && *c == '\\') {
            c++;
        } else if (*c == '"') {
            quoted = !quoted;
        } else if (*c == ',' && !quoted) {
            n++;
        }
    }
    if (n <= COMMAS * n_crc + METADATA) return DLT_OK;
    return damaged(r, "its header holds %lld values, too many for %lld tensors", (long long)n,
                   (long long)n_crc);
}

DltStatus dlt_safetensors_parse(DltArena *arena, const DltFileHead *head, DltCheckpoint *c,
                                int64_t *data, json_t **meta, DltErr *err)
{
    Reader r = {.arena = arena,
                .path = head->path,
                .head = head->bytes,
                .file_bytes = head->file_bytes,
                .err = err};
    DLT_TRY(dlt_safetensors_head_bytes(head->path, head->bytes, head->n, head->file_bytes,
                                       &r.head_bytes, err));
    DLT_BUG_ON(head->n < r.head_bytes);
    DLT_TRY(check_head_crc(&r));
    DLT_TRY(check_size(&r));
    json_error_t why;
    json_t *json = json_loadb(head->bytes + LENGTH_BYTES, (size_t)(r.head_bytes - LENGTH_BYTES),
                              JSON_REJECT_DUPLICATES, &why);
    if (json == NULL) return damaged(&r, "its header is no JSON: %.160s", why.text);
    DltStatus status = read_json(&r, json, c, meta);
    json_decref(json);
    *data = r.head_bytes;
    return status;
}
