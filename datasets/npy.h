/* NumPy arrays in files: header, element types, and members of zip archives. Private to npy*.c and
 * zip.c. */
#ifndef DLT_NPY_H
#define DLT_NPY_H

#include "datasets/reader.h"

typedef struct DltNpyType {
    const char *code; /* as in 'descr', without the byte order */
    int bytes;
    bool is_int;
    /* n elements in host order -> f32; returns how many fit before the first that does not. */
    int64_t (*to_f32)(const void *from, int64_t n, float *to);
    /* The same -> i32; NULL for fractions. */
    int64_t (*to_i32)(const void *from, int64_t n, int32_t *to);
} DltNpyType;

typedef struct DltNpy {
    DltBlob *b;
    const DltNpyType *type;
    bool big_endian, fortran;
    int64_t n, count;    /* records (first axis), elements of a record */
    int64_t data, total; /* offset of the elements, size of the contents */
    DltShape record;
} DltNpy;

/* Reads the header (format 1.0, 2.0, 3.0) and checks type, shape and size against the file. */
DltStatus dlt_npy_header(DltArena *arena, DltNpy *a, DltErr *err) DLT_CHECKED;
/* Makes the elements readable at random; a Fortran-ordered array is brought into C order. */
DltStatus dlt_npy_load(DltArena *arena, DltNpy *a, DltErr *err) DLT_CHECKED;
/* Elements [at, at + n) of a loaded array, n * bytes <= DLT_NPY_BLOCK, in host order. */
enum { DLT_NPY_BLOCK = 4096 };
DltStatus dlt_npy_elements(const DltNpy *a, int64_t at, int64_t n, void *to,
                           DltErr *err) DLT_CHECKED;

/* The member `name`.npy of a zip archive (stored or deflated, zip64 allowed; no encryption). Sizes
 * and checksum come from the central directory and are checked when the member is loaded. */
DltStatus dlt_zip_member(DltArena *arena, const DltBlob *zip, const char *name, DltBlob **member,
                         DltErr *err) DLT_CHECKED;

#endif
