/* The parts of the CSV reader: cells out of text, dictionaries of words, and the table. Private to
 * the csv_*.c files. */
#ifndef DLT_CSV_H
#define DLT_CSV_H

#include "datasets/reader.h"

/* A cell as it stands in the text; inside quotes a doubled quote still counts two characters. */
typedef struct DltCell {
    const char *text;
    int64_t n;
    bool quoted;
} DltCell;

typedef struct DltCsvScan {
    const char *file;
    const char *at, *end;
    char separator;
    int64_t line;     /* of `at`, from 1 */
    int64_t row_line; /* where the row last read began */
} DltCsvScan;

/* A scan over text that must outlive it; skips a BOM and the empty lines at the end. DATA when the
 * text holds a NUL byte. */
DltStatus dlt_csv_scan(DltCsvScan *s, const char *file, const char *text, int64_t n, char separator,
                       DltErr *err) DLT_CHECKED;
/* The next row: up to `room` cells are stored, *n says how many there are; 0 at the end. */
DltStatus dlt_csv_row(DltCsvScan *s, DltCell *cell, int64_t room, int64_t *n,
                      DltErr *err) DLT_CHECKED;
/* The text between the quotes, doubled quotes made single. */
const char *dlt_cell_text(DltArena *arena, DltCell cell);
/* The same into a buffer, cut to fit, for messages. */
enum { DLT_CELL_SHOWN = 48 };
const char *dlt_cell_show(DltCell cell, char buf[DLT_CELL_SHOWN]);
bool dlt_cell_is(DltCell cell, const char *word);

typedef enum DltCellKind {
    DLT_CELL_NUMBER,
    DLT_CELL_MISSING, /* empty, ?, NA, N/A, NaN, null in any case */
    DLT_CELL_HUGE,    /* a number that does not fit f32 */
    DLT_CELL_WORD
} DltCellKind;
/* Numbers are decimal with a point: 5, -.5, 1e-5; no inf, nan, hex, blanks or decimal comma. */
DltCellKind dlt_cell_number(DltCell cell, double *v);

/* A set of words -> 0..n-1; sorted once all are in. */
typedef struct DltDict DltDict;
DltDict *dlt_dict_new(DltArena *arena);
/* Adds a word or finds it; its number in order of arrival (of the sort, once sorted). */
int64_t dlt_dict_add(DltDict *d, DltCell cell);
int64_t dlt_dict_find(const DltDict *d, DltCell cell); /* -1: not there */
int64_t dlt_dict_count(const DltDict *d);
const char *const *dlt_dict_words(const DltDict *d);
/* Renumbers by the words: as numbers when all are whole numbers, else by bytes. */
void dlt_dict_sort(DltDict *d);

enum { DLT_TARGET_AUTO, DLT_TARGET_CLASSES, DLT_TARGET_VALUES };
enum { DLT_MISSING_ERROR, DLT_MISSING_DROP, DLT_MISSING_MEAN, DLT_MISSING_CONSTANT };
enum { DLT_MAX_COLUMNS = 1 << 16, DLT_MAX_CATEGORIES = 1 << 12, DLT_MAX_CLASS_NAMES = 1 << 16 };

typedef struct DltCsvOpts {
    const char *csv;
    DltStrs target, categorical, ignore, class_names;
    int separator, target_type, missing;
    bool header;
    double missing_value;
} DltCsvOpts;

/* A column that is used. Categories have a dictionary and `width` elements of x, numbers have 1. */
typedef struct DltCsvColumn {
    const char *name;
    int64_t source; /* column of the file, from 0 */
    DltDict *dict;  /* categories; of a target: classes; NULL: numbers */
    int64_t at, width;
    double sum, mean; /* of the numbers that are there; the mean later of the training split's */
    const struct DltCsvColumn *like; /* the training set's column, whose mean counts, or NULL */
    int64_t n_number, n_word;
    bool whole; /* all numbers are whole */
    double lo, hi;
    char word[DLT_CELL_SHOWN]; /* the first word of a target, and its row */
    int64_t word_row;
} DltCsvColumn;

/* A table in memory: n rows of n_feature cells (a number, or the category's), and targets. */
typedef struct DltCsvTable {
    const DltBlob *b;
    const DltCsvOpts *opts;
    DltBad *bad;    /* rows that are left out, NULL: they are errors */
    int64_t n_name; /* columns of the file */
    const char **name;
    int64_t n_feature, n_target, width;
    DltCsvColumn *feature, *target;
    const char *const *class_name; /* of like or of the config: settled before reading, or NULL */
    int64_t n_class_name;
    bool values;  /* targets are numbers to regress */
    bool follows; /* columns, categories and classes are those of a training set */
    int64_t n;
    float *cell; /* NaN: missing, read as the mean */
    void *y;     /* [n] i32 or [n, n_target] f32 */
} DltCsvTable;

/* Reads the rows behind the header into t, whose columns are set: types, categories, classes, then
 * the cells. Errors name line, row and column. */
DltStatus dlt_csv_fill(DltArena *arena, DltCsvTable *t, const DltCsvScan *rows,
                       DltErr *err) DLT_CHECKED;
/* DATA unless the text is UTF-8. */
DltStatus dlt_csv_utf8(const DltBlob *b, const char *text, DltErr *err) DLT_CHECKED;

#endif
