/* Writing shards: a shard is gathered in memory, for its header has its length, and appears whole or not
 * at all. */
#include "base/file.h"
#include "base/sys.h"
#include "datasets/tokenize.h"

static void put32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

/* Ids that wait before a shard is written. */
static int64_t most_waiting(const DltShardWriter *w)
{
    return w->per_shard + w->per_shard / 16;
}

DltStatus dlt_shards_begin(DltShardWriter *w, DltErr *err)
{
    w->room = 1 << 16;
    w->bytes = dlt_sys_alloc((size_t)(DLT_SHARD_HEADER + w->room * w->width));
    return w->bytes != NULL ? DLT_OK : dlt_err(err, DLT_E_RESOURCE, "out of memory for a shard");
}

void dlt_shards_free(DltShardWriter *w)
{
    dlt_sys_free(w->bytes);
    w->bytes = NULL;
}

static DltStatus write_shard(DltShardWriter *w, int64_t n, DltErr *err)
{
    DltAtomic *file = NULL;
    int64_t bytes = DLT_SHARD_HEADER + n * w->width;
    char *path = dlt_arena_printf(w->arena, "%s_%06d.bin", w->out, w->n_shard);
    memset(w->bytes, 0, DLT_SHARD_HEADER);
    put32(w->bytes, w->width == 2 ? DLT_SHARD_MAGIC16 : DLT_SHARD_MAGIC32);
    put32(w->bytes + 4, w->width == 2 ? DLT_SHARD_VERSION16 : DLT_SHARD_VERSION32);
    put32(w->bytes + 8, (uint32_t)n);
    DLT_TRY(dlt_atomic_open(w->arena, path, &file, err));
    DLT_TRY(dlt_atomic_write(file, w->bytes, (size_t)bytes, err));
    DLT_TRY(dlt_atomic_commit(file, err));
    w->n_shard++;
    w->written += n;
    w->n -= n;
    memmove(w->bytes + DLT_SHARD_HEADER, w->bytes + bytes, (size_t)(w->n * w->width));
    return DLT_OK;
}

static DltStatus make_room(DltShardWriter *w, int64_t more, DltErr *err)
{
    int64_t room = w->room;
    while (room < w->n + more)
        room *= 2;
    if (room == w->room) return DLT_OK;
    uint8_t *bytes = dlt_sys_realloc(w->bytes, (size_t)(DLT_SHARD_HEADER + w->room * w->width),
                                     (size_t)(DLT_SHARD_HEADER + room * w->width));
    if (bytes == NULL)
        return dlt_err(err, DLT_E_RESOURCE, "out of memory for a shard of %lld ids",
                       (long long)w->per_shard);
    w->bytes = bytes;
    w->room = room;
    return DLT_OK;
}

DltStatus dlt_shards_add(DltShardWriter *w, const int32_t *id, int64_t n, DltErr *err)
{
    while (n > 0) {
        int64_t part = most_waiting(w) - w->n < n ? most_waiting(w) - w->n : n;
        DLT_TRY(make_room(w, part, err));
        uint8_t *at = w->bytes + DLT_SHARD_HEADER + w->n * w->width;
        for (int64_t i = 0; i < part; i++, at += w->width) {
            at[0] = (uint8_t)id[i];
            at[1] = (uint8_t)(id[i] >> 8);
            if (w->width == 2) continue;
            at[2] = (uint8_t)(id[i] >> 16);
            at[3] = (uint8_t)(id[i] >> 24);
        }
        w->n += part;
        id += part;
        n -= part;
        if (w->n == most_waiting(w)) DLT_TRY(write_shard(w, w->per_shard, err));
    }
    return DLT_OK;
}

DltStatus dlt_shards_end(DltShardWriter *w, DltErr *err)
{
    return w->n > 0 ? write_shard(w, w->n, err) : DLT_OK;
}
