/* What the parts of `dltrain tokenize` share: rounds of blocks, and the shards that they fill. Private to
 * datasets/. */
#ifndef DLT_TOKENIZE_H
#define DLT_TOKENIZE_H

#include "datasets/blob.h"
#include "datasets/shards.h"

/* Ids on their way to shard files. */
typedef struct DltShardWriter {
    DltArena *arena;
    const char *out; /* "DIR/NAME": files DIR/NAME_000000.bin ... */
    int64_t per_shard, width;
    uint8_t *bytes;  /* header and ids that are not written yet */
    int64_t n, room; /* ids */
    int n_shard;
    int64_t written; /* ids in files */
} DltShardWriter;
DltStatus dlt_shards_begin(DltShardWriter *w, DltErr *err) DLT_CHECKED;
/* Appends ids; whole shards are written as they fill. */
DltStatus dlt_shards_add(DltShardWriter *w, const int32_t *id, int64_t n, DltErr *err) DLT_CHECKED;
/* Writes the rest: the last shard has up to a sixteenth more than the others, so that none is a stub. */
DltStatus dlt_shards_end(DltShardWriter *w, DltErr *err) DLT_CHECKED;
void dlt_shards_free(DltShardWriter *w);

#endif
