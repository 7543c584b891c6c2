/* What both the fuzzer and the corpus test do with one input: read it as a checkpoint, as it is and with
 * its checksum and length put right, so that the checks behind the checksum are reached. Whatever the
 * bytes, reading ends well or with one report about the checkpoint. */
#ifndef CHECKPOINT_TARGET_H
#define CHECKPOINT_TARGET_H

#include "exec/safetensors.h"

static inline void checkpoint_parse(DltArena *arena, const uint8_t *data, size_t size)
{
    DltErr err;
    dlt_err_init(&err);
    DltCheckpoint *c = NULL;
    DltStatus status = dlt_checkpoint_parse(arena, "fuzz.bin", data, (int64_t)size, &c, &err);
    DLT_BUG_ON(status != DLT_OK && (status != DLT_E_CHECKPOINT || err.n != 1));
    DLT_BUG_ON(status == DLT_OK && err.n != 0);
    if (status != DLT_OK) return;
    for (int i = 0; i < c->n_tensor; i++) {
        const DltCheckpointTensor *t = &c->tensor[i];
        DLT_BUG_ON(dlt_checkpoint_find(c, t->name) != t);
        const uint8_t *bytes = t->bytes;
        DLT_BUG_ON(t->n_bytes < 0 || bytes < data || bytes + t->n_bytes > data + size);
    }
}

/* Replaces the text behind "key":" by `digits`, when it is there and as long. */
static inline void checkpoint_put(uint8_t *head, size_t n, const char *key, const char *digits)
{
    size_t n_key = strlen(key), n_digit = strlen(digits);
    for (size_t i = 0; i + n_key + n_digit < n; i++) {
        if (memcmp(head + i, key, n_key) != 0) continue;
        if (head[i + n_key + n_digit] == '"') memcpy(head + i + n_key, digits, n_digit);
        return;
    }
}

static inline void checkpoint_target(const uint8_t *data, size_t size)
{
    DltArena *arena = dlt_arena_new();
    checkpoint_parse(arena, data, size);
    if (size > 8) {
        uint8_t *copy = DLT_NEW_ARRAY(arena, (int64_t)size, uint8_t);
        char digits[32];
        size_t n = 0;
        memcpy(copy, data, size);
        for (int i = 2; i >= 0; i--) /* the low three bytes of the length, brought into the file */
            n = n << 8 | copy[i];
        n %= size - 7;
        for (int i = 0; i < 8; i++)
            copy[i] = i < 3 ? (uint8_t)(n >> 8 * i) : 0;
        snprintf(digits, sizeof digits, "%020zu", size);
        checkpoint_put(copy + 8, n, "\"dltrain.file_bytes\":\"", digits);
        checkpoint_put(copy + 8, n, "\"dltrain.header_crc32\":\"", "00000000");
        snprintf(digits, sizeof digits, "%08x", dlt_safetensors_crc(0, copy, (int64_t)n + 8));
        checkpoint_put(copy + 8, n, "\"dltrain.header_crc32\":\"", digits);
        checkpoint_parse(arena, copy, size);
    }
    dlt_arena_free(arena);
}

#endif
