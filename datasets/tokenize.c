/* Text files or JSON lines -> shards. Each round reads as many blocks as there are threads, cuts them where
 * no token can reach across (before a line end that follows a visible character; at line ends of JSON
 * lines), encodes them side by side and writes their ids in order: the shards do not depend on the
 * number of threads. */
#include "datasets/tokenize.h"
#include "base/sys.h"
#include <jansson.h>

enum { BLOCK_BYTES = 4 << 20, MAX_THREADS = 64 };
static const int64_t most_bytes = (int64_t)1 << 30; /* without a place to cut */

/* A part of a file, and what became of it. */
typedef struct Block {
    const DltTokenizeJob *job;
    const DltTokenizer *t;
    const char *path;
    const uint8_t *text;
    int64_t at, n; /* place in the file, bytes */
    DltIds ids;
    int64_t documents;
    DltStatus status;
    DltErr err;
} Block;

typedef struct Run {
    const DltTokenizeJob *job;
    DltTokenizeResult *result;
    DltShardWriter writer;
    Block *block; /* [n_thread] */
    uint8_t *text;
    int64_t n, room, at; /* bytes in text, that fit, place of text in the file */
    const DltBlob *file;
} Run;

/* ---- one block ------------------------------------------------------------------------------ */

/* "byte N: the line WHAT WHY" */
static DltStatus bad_line(Block *b, int64_t at, const char *what, const char *why)
{
    return dlt_err_at(&b->err, DLT_E_DATA, (DltMark){.file = b->path}, "byte %lld: the line %s %s",
                      (long long)(b->at + at), what, why);
}

static DltStatus end_document(Block *b)
{
    b->documents++;
    if (b->t->eot < 0) return DLT_OK;
    if (!dlt_ids_reserve(&b->ids, 1))
        return dlt_err(&b->err, DLT_E_RESOURCE, "out of memory for the ids of %s", b->path);
    b->ids.v[b->ids.n++] = b->t->eot;
    return DLT_OK;
}

static DltStatus encode_line(Block *b, int64_t at, int64_t n)
{
    json_error_t why = {.text = ""};
    json_t *line = json_loadb((const char *)b->text + at, (size_t)n, JSON_REJECT_DUPLICATES, &why);
    const json_t *text = json_object_get(line, b->job->field);
    DltStatus status;
    if (line == NULL)
        status = bad_line(b, at, "is no JSON:", why.text);
    else if (!json_is_string(text))
        status = bad_line(b, at, "has no string under the key", b->job->field);
    else
        status = dlt_tokenizer_encode(b->t, b->path, b->at + at,
                                      (const uint8_t *)json_string_value(text),
                                      (int64_t)json_string_length(text), &b->ids, &b->err);
    json_decref(line);
    return status == DLT_OK ? end_document(b) : status;
}

static bool is_blank(const uint8_t *text, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (text[i] != ' ' && text[i] != '\t' && text[i] != '\r') return false;
    return true;
}

static DltStatus encode_lines(Block *b)
{
    for (int64_t at = 0; at < b->n;) {
        const uint8_t *end = memchr(b->text + at, '\n', (size_t)(b->n - at));
        int64_t n = end != NULL ? end - (b->text + at) : b->n - at;
        if (!is_blank(b->text + at, n)) DLT_TRY(encode_line(b, at, n));
        at += n + 1;
    }
    return DLT_OK;
}

static void *encode_block(void *ctx)
{
    Block *b = ctx;
    b->ids.n = 0;
    b->documents = 0;
    dlt_err_init(&b->err);
    b->status = b->job->json_lines
                    ? encode_lines(b)
                    : dlt_tokenizer_encode(b->t, b->path, b->at, b->text, b->n, &b->ids, &b->err);
    return NULL;
}

/* ---- rounds --------------------------------------------------------------------------------- */

static bool is_white(uint8_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Text may be cut in front of byte i > 0. The character in front must be a visible one of ASCII, for white
 * ones outside of it exist. */
static bool is_cut(const Run *r, int64_t i)
{
    if (r->job->json_lines) return r->text[i - 1] == '\n';
    return r->text[i] == '\n' && r->text[i - 1] < 0x80 && !is_white(r->text[i - 1]);
}

/* Where the block from `from` on ends: about BLOCK_BYTES behind it, or at the first place after that,
 * or at the end of the file. -1: more text is needed. */
static int64_t find_cut(const Run *r, int64_t from)
{
    int64_t end = from + BLOCK_BYTES;
    bool all = r->at + r->n == r->file->bytes;
    if (all && end >= r->n) return r->n;
    for (int64_t i = end < r->n ? end : r->n - 1; i > from; i--)
        if (is_cut(r, i)) return i;
    for (int64_t i = end + 1; i < r->n; i++)
        if (is_cut(r, i)) return i;
    return all ? r->n : -1;
}

static DltStatus make_room(Run *r, int64_t room, DltErr *err)
{
    if (room <= r->room) return DLT_OK;
    uint8_t *text = dlt_sys_realloc(r->text, (size_t)r->room, (size_t)room);
    if (text == NULL)
        return dlt_err(err, DLT_E_RESOURCE, "out of memory: reading %s", r->file->path);
    r->text = text;
    r->room = room;
    return DLT_OK;
}

/* Reads on until text holds `want` bytes or the file ends. */
static DltStatus fill(Run *r, int64_t want, DltErr *err)
{
    int64_t left = r->file->bytes - r->at - r->n;
    if (want > r->n + left) want = r->n + left;
    DLT_TRY(make_room(r, want, err));
    DLT_TRY(dlt_blob_read(r->file, r->at + r->n, want - r->n, r->text + r->n, err));
    r->n = want;
    return DLT_OK;
}

/* Cuts what lies in text into blocks; *used bytes are in them. Reads more where no cut is found. */
static DltStatus cut_blocks(Run *r, int *n_block, int64_t *used, DltErr *err)
{
    *n_block = 0;
    *used = 0;
    while (*n_block < r->job->n_thread && *used < r->n) {
        int64_t cut = find_cut(r, *used);
        if (cut < 0) break;
        Block *b = &r->block[(*n_block)++];
        b->at = r->at + *used;
        b->n = cut - *used;
        *used = cut;
    }
    for (int i = 0; i < *n_block; i++)
        r->block[i].text = r->text + (r->block[i].at - r->at);
    if (*n_block > 0) return DLT_OK;
    if (r->n >= most_bytes)
        return dlt_blob_err(r->file, err, "byte %lld: no line ends within 1 GiB; nothing to cut at",
                            (long long)r->at);
    return fill(r, 2 * r->n + 1, err);
}

static DltStatus run_blocks(Run *r, int n_block, DltErr *err)
{
    pthread_t thread[MAX_THREADS];
    int n_started = 0;
    for (int i = 1; i < n_block; i++) {
        if (!dlt_sys_thread(&thread[n_started], encode_block, &r->block[i])) break;
        n_started++;
    }
    encode_block(&r->block[0]);
    for (int i = 0; i < n_started; i++)
        pthread_join(thread[i], NULL);
    for (int i = n_started + 1; i < n_block; i++)
        encode_block(&r->block[i]);
    for (int i = 0; i < n_block; i++) {
        Block *b = &r->block[i];
        if (b->status != DLT_OK) {
            (void)dlt_err_at(err, b->status, b->err.report[0].at, "%s", b->err.report[0].text);
            return b->status;
        }
        r->result->documents += b->documents;
        DLT_TRY(dlt_shards_add(&r->writer, b->ids.v, b->ids.n, err));
    }
    return DLT_OK;
}

static DltStatus one_round(Run *r, DltErr *err)
{
    int n_block;
    int64_t used;
    DLT_TRY(fill(r, (int64_t)r->job->n_thread * BLOCK_BYTES + 1, err));
    do
        DLT_TRY(cut_blocks(r, &n_block, &used, err));
    while (n_block == 0);
    DLT_TRY(run_blocks(r, n_block, err));
    memmove(r->text, r->text + used, (size_t)(r->n - used));
    r->n -= used;
    r->at += used;
    r->result->bytes += used;
    r->result->ids = r->writer.written + r->writer.n;
    if (r->job->progress != NULL) r->job->progress(r->job->ctx, r->result);
    return DLT_OK;
}

static DltStatus run_file(Run *r, DltBlob *file, DltErr *err)
{
    Block end = {.job = r->job, .t = r->block[0].t, .path = file->path};
    if (file->coding != DLT_PLAIN)
        return dlt_blob_err(file, err, "this is gzip; unpack it first (gunzip)");
    r->file = file;
    r->at = r->n = 0;
    for (int i = 0; i < r->job->n_thread; i++)
        r->block[i].path = file->path;
    while (r->at < file->bytes)
        DLT_TRY(one_round(r, err));
    if (r->job->json_lines) return DLT_OK;
    r->result->documents++;
    return end.t->eot >= 0 ? dlt_shards_add(&r->writer, &end.t->eot, 1, err) : DLT_OK;
}

DltStatus dlt_tokenize(const DltTokenizer *t, const DltTokenizeJob *job, DltTokenizeResult *result,
                       DltErr *err)
{
    DltBlob **file;
    Run r = {.job = job, .result = result};
    DLT_BUG_ON(job->n_thread < 1 || job->n_thread > MAX_THREADS);
    *result = (DltTokenizeResult){0};
    r.writer = (DltShardWriter){
        .arena = job->arena, .out = job->out, .per_shard = job->per_shard, .width = job->width};
    r.block = DLT_NEW_ARRAY(job->arena, job->n_thread, Block);
    for (int i = 0; i < job->n_thread; i++)
        r.block[i] = (Block){.job = job, .t = t};
    file = DLT_NEW_ARRAY(job->arena, job->n_file, DltBlob *);
    DltMark at = {.file = "<command line>"};
    for (int i = 0; i < job->n_file; i++) {
        DLT_TRY(dlt_blob_open(job->arena, ".", job->file[i], at, &file[i], err));
        result->all_bytes += file[i]->raw_bytes;
    }
    DltStatus status = dlt_shards_begin(&r.writer, err);
    for (int i = 0; i < job->n_file && status == DLT_OK; i++)
        status = run_file(&r, file[i], err);
    if (status == DLT_OK) status = dlt_shards_end(&r.writer, err);
    result->ids = r.writer.written;
    result->shards = r.writer.n_shard;
    for (int i = 0; i < job->n_thread; i++)
        dlt_ids_free(&r.block[i].ids);
    dlt_sys_free(r.text);
    dlt_shards_free(&r.writer);
    return status;
}
