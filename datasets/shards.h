/* Shards of token ids on disk. Three layouts, all little-endian:
 *   llm.c:   256 int32 of header (magic, version, number of ids, zeros), then the ids: magic 20240520,
 *            version 1, 16 bits an id; or magic 20240801, version 7, 32 bits (karpathy/llm.c,
 *            dev/data/data_common.py). What `dltrain tokenize` writes.
 *   raw 16:  ids alone, 16 bits each (nanoGPT's train.bin)
 *   raw 32:  ids alone, 32 bits each
 * Private to datasets/ but for the writer. */
#ifndef DLT_SHARDS_H
#define DLT_SHARDS_H

#include "datasets/windows.h"

enum {
    DLT_SHARD_WORDS = 256,
    DLT_SHARD_HEADER = 4 * DLT_SHARD_WORDS,
    DLT_SHARD_MAGIC16 = 20240520,
    DLT_SHARD_VERSION16 = 1,
    DLT_SHARD_MAGIC32 = 20240801,
    DLT_SHARD_VERSION32 = 7
};

enum { DLT_LAYOUT_AUTO, DLT_LAYOUT_LLMC, DLT_LAYOUT_RAW16, DLT_LAYOUT_RAW32 };

typedef struct DltShard {
    DltBlob *b;
    int64_t header, width, n; /* bytes before the ids, bytes of an id, ids */
    int64_t before;           /* ids in the shards in front of it */
} DltShard;

/* One stream of ids over all shards. */
typedef struct DltShards {
    int n_shard;
    DltShard *shard;
    int64_t n;     /* ids in all */
    int64_t vocab; /* ids must be below; 0: not known yet, anything goes */
} DltShards;

/* Recognises each file by its header; layout: as the config states it. */
DltStatus dlt_shards_open(DltArena *arena, DltBlob *const *file, int n_file, int layout,
                          DltShards *s, DltErr *err) DLT_CHECKED;
/* DltTokens.get over DltShards. An id >= vocab is DATA with file, byte offset and id. */
DltStatus dlt_shards_get(const void *ctx, int64_t first, int64_t n, int32_t *out, DltErr *err);

#endif
