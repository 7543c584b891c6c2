/* The container of checkpoints: a safetensors file whose __metadata__ also carries checksums, so
 * that every safetensors reader opens it and this one finds any damaged bit.
 *
 *   8 bytes   length of the header, little-endian
 *   header    {"__metadata__":{"dltrain.header_crc32":"8 hex digits", ...}, "name":{"dtype":"F32",
 *             "shape":[..],"data_offsets":[begin,end]}, ...} and spaces up to a multiple of 64
 *   data      tensors in header order, each beginning where the one before ends
 *
 * dltrain.header_crc32 stands first; it is the crc32 of length and header with those eight digits
 * as zeros. dltrain.file_bytes is the length of the whole file, dltrain.tensor_crc32 eight hex
 * digits for each tensor in order, dltrain.format the version. All other keys are the caller's. */
#ifndef DLT_SAFETENSORS_H
#define DLT_SAFETENSORS_H

#include "exec/checkpoint.h"
#include <jansson.h>

enum {
    DLT_SAFE_FORMAT = 1,
    DLT_SAFE_HEADER_MAX = 16 << 20,
    DLT_SAFE_TENSOR_MAX = 65536,
    DLT_SAFE_NAME_MAX = 255,
    DLT_SAFE_ALIGN = 64
};

/* Header of a file with these tensors (offsets in array order; crc is set), `meta` being an object
 * of strings. *head: length and header text, *n bytes of it. CONFIG when a limit is passed. */
DltStatus dlt_safetensors_head(DltArena *arena, const DltCheckpointTensor *tensor, int n_tensor,
                               json_t *meta, char **head, int64_t *n, DltErr *err) DLT_CHECKED;

/* The beginning of a file: `n` of its bytes, at least the header. */
typedef struct DltFileHead {
    const char *path, *bytes;
    int64_t n, file_bytes;
} DltFileHead;
/* Checks all that can be known from it: lengths, checksum of the header, syntax, duplicates, names,
 * shapes, offsets. c->tensor is made (bytes still NULL, crc as stated), *data is where tensors
 * begin, *meta the caller's keys (json_decref it). */
DltStatus dlt_safetensors_parse(DltArena *arena, const DltFileHead *head, DltCheckpoint *c,
                                int64_t *data, json_t **meta, DltErr *err) DLT_CHECKED;
/* Length of length field and header, at most file_bytes; CHECKPOINT with the kind of file when the
 * first n bytes begin no safetensors file. */
DltStatus dlt_safetensors_head_bytes(const char *path, const char *start, int64_t n,
                                     int64_t file_bytes, int64_t *head_bytes,
                                     DltErr *err) DLT_CHECKED;
/* crc32 (zlib's) of bytes, continuing from `crc` (0 at first). */
uint32_t dlt_safetensors_crc(uint32_t crc, const void *bytes, int64_t n);

#endif
