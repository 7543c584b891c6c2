/* The bytes of one data file, however they lie on disk: plain, gzip, a member of a zip archive, or
 * (for checks in process) in memory. Random access once loaded; plain files are never copied, they
 * are read where a sample needs it. Only regular files are opened. */
#ifndef DLT_BLOB_H
#define DLT_BLOB_H

#include "base/arena.h"

typedef enum DltCoding { DLT_PLAIN, DLT_GZIP, DLT_DEFLATE } DltCoding;

typedef struct DltBlob {
    const char *path; /* for messages: absolute, or "archive.npz:x.npy" */
    int fd;           /* -1: raw bytes are in memory */
    const uint8_t *raw;
    int64_t from, raw_bytes; /* the part of the file that holds this blob */
    DltCoding coding;
    int64_t bytes; /* of the contents; -1: unknown (gzip that is not loaded) */
    bool has_crc;
    uint32_t crc;       /* of the contents, checked by load */
    const uint8_t *mem; /* the contents, when loaded into memory; NULL: plain, read from the file */
} DltBlob;

/* Opens folder/name. at: where the config names it (the place of "not found"). The arena closes. */
DltStatus dlt_blob_open(DltArena *arena, const char *folder, const char *name, DltMark at,
                        DltBlob **blob, DltErr *err) DLT_CHECKED;
/* Opens the files that folder/name matches, in order of name; without wildcards it is one file. No
 * match is DATA at `at`. */
DltStatus dlt_blob_list(DltArena *arena, const char *folder, const char *name, DltMark at,
                        DltBlob ***blob, int *n, DltErr *err) DLT_CHECKED;
/* Bytes of the caller, which must outlive the blob; `name` stands for the path in messages. */
DltBlob *dlt_blob_memory(DltArena *arena, const char *name, const void *bytes, int64_t n);
/* A part of a plain blob, itself coded (a member of a zip archive). bytes: size of its contents. */
DltBlob *dlt_blob_part(DltArena *arena, const DltBlob *whole, const char *name, int64_t from,
                       int64_t n);

/* Copies up to n leading bytes of the contents; *got says how many there are. */
DltStatus dlt_blob_head(const DltBlob *b, void *dst, int64_t n, int64_t *got,
                        DltErr *err) DLT_CHECKED;
/* Makes the contents readable at random and checks what can be checked: they must have `expected`
 * bytes (-1: unknown, then a gzip file may blow up 200-fold beyond 64 MiB and no more), the gzip
 * trailer or zip checksum must be right, and nothing may follow. The size is compared with what the
 * file can hold before memory is taken. Plain files without checksum stay on disk. */
DltStatus dlt_blob_load(DltArena *arena, DltBlob *b, int64_t expected, DltErr *err) DLT_CHECKED;
/* load, and the contents in memory (b->mem) whatever the coding. */
DltStatus dlt_blob_load_memory(DltArena *arena, DltBlob *b, int64_t expected,
                               DltErr *err) DLT_CHECKED;
/* Copies contents [offset, offset + n) of a loaded (or plain) blob. Callable from any thread. */
DltStatus dlt_blob_read(const DltBlob *b, int64_t offset, int64_t n, void *dst,
                        DltErr *err) DLT_CHECKED;
/* Records of `record` bytes from `offset` on: copies those in id[n], runs of neighbours at once. */
DltStatus dlt_blob_gather(const DltBlob *b, int64_t offset, int64_t record, const int64_t *id,
                          int64_t n, void *dst, DltErr *err) DLT_CHECKED;
/* Copies raw bytes as they lie in the file. */
DltStatus dlt_blob_raw(const DltBlob *b, int64_t offset, int64_t n, void *dst,
                       DltErr *err) DLT_CHECKED;

/* Large memory of the arena's lifetime: zeroed pages that cost nothing until touched. NULL: out. */
void *dlt_blob_pages(DltArena *arena, int64_t bytes);

/* What a file seems to be, for messages: "HTML (a web page)", "a PNG image", "empty" ... */
const char *dlt_blob_kind(const void *head, int64_t n);
/* DATA "path: wanted WANT, this is KIND (N bytes)". */
DltStatus dlt_blob_alien(const DltBlob *b, const char *want, DltErr *err);
/* A report about this file. */
DltStatus dlt_blob_err(const DltBlob *b, DltErr *err, const char *fmt, ...) DLT_PRINTF(3, 4);

/* Inflates gzip members (all of them; zeros may follow the last, nothing else) or one raw deflate
 * stream out of a blob's raw bytes. */
typedef struct DltInflate DltInflate;
DltStatus dlt_inflate_open(const DltBlob *b, DltInflate **stream, DltErr *err) DLT_CHECKED;
/* Fewer than n bytes come only at the proper end. */
DltStatus dlt_inflate_pull(DltInflate *s, void *dst, int64_t n, int64_t *got,
                           DltErr *err) DLT_CHECKED;
void dlt_inflate_close(DltInflate *s); /* NULL allowed */

#endif
