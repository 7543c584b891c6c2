/* Field tables: one row is parser, range check, default, help text and manual entry of a key. The
 * same table serves the validator, `dltrain explain`, --help and the JSON Schema. */
#ifndef DLT_SCHEMA_H
#define DLT_SCHEMA_H

#include "base/shape.h"
#include "config/yaml.h"

typedef enum DltFieldType {
    DLT_T_BOOL,   /* bool */
    DLT_T_INT,    /* int64_t */
    DLT_T_FLOAT,  /* double */
    DLT_T_ENUM,   /* int; the value of the matching DltEnum row */
    DLT_T_STR,    /* const char * */
    DLT_T_DIMS,   /* DltDims: an integer or a list of integers */
    DLT_T_FLOATS, /* DltFloats: a number or a list of numbers */
    DLT_T_STRS,   /* DltStrs: a word, a list of words, or "a, b" */
    DLT_T_SPAN,   /* DltSpan: "50 epochs", "700 steps", "1e9 tokens", "30 min", "5%" */
    DLT_T_SIZE,   /* int64_t bytes: "2 GiB" */
    DLT_T_TREE    /* const DltYaml *: read by its owner (layer lists, nested sections) */
} DltFieldType;

typedef struct DltEnum {
    const char *name;
    int value;
} DltEnum;

typedef struct DltDims {
    int n;
    int64_t v[DLT_MAX_RANK];
} DltDims;

enum { DLT_MAX_FLOATS = 4096 };
typedef struct DltFloats {
    int n;
    const double *v;
} DltFloats;

typedef struct DltStrs {
    int n;
    const char *const *v;
} DltStrs;

typedef enum DltUnit {
    DLT_U_NONE,
    DLT_U_STEPS,
    DLT_U_EPOCHS,
    DLT_U_TOKENS,
    DLT_U_SAMPLES,
    DLT_U_SECONDS,
    DLT_U_PERCENT
} DltUnit;
typedef struct DltSpan {
    double n; /* seconds for times ("30 min" is 1800), a fraction of 100 for percent */
    DltUnit unit;
} DltSpan;

/* `def` is the default as the user would write it (same parser, same checks); NULL: the member
 * stays zeroed. lo, hi are inclusive and apply to every number of the value; both 0: unbounded.
 * open_lo/open_hi make a bound exclusive. Row 0 of a table is the main argument of
 * `kind: main-argument` when `main` is set. */
typedef struct DltField {
    const char *key;
    DltFieldType type;
    size_t offset;
    bool required, main, open_lo, open_hi;
    bool file; /* a path or a pattern of paths, beside the config when it is relative */
    const char *def;
    double lo, hi;
    const DltEnum *choices; /* ends with a NULL name */
    const char *unit, *help, *example;
} DltField;

/* Row macros; they check the member's C type at compile time. Further members by designator:
 * DLT_INT(Dense, units, .required = true, .main = true, .lo = 1, .hi = 1 << 24, .help = "...") */
#define DLT_ROW_(T, m, ctype, ftype, ...)                                                          \
    {                                                                                              \
        .key = #m, .type = (ftype),                                                                \
        .offset = offsetof(T, m) + 0 * sizeof(_Generic(((T *)0)->m, ctype : 1)), __VA_ARGS__       \
    }
#define DLT_BOOL(T, m, ...) DLT_ROW_(T, m, bool, DLT_T_BOOL, __VA_ARGS__)
#define DLT_INT(T, m, ...) DLT_ROW_(T, m, int64_t, DLT_T_INT, __VA_ARGS__)
#define DLT_FLOAT(T, m, ...) DLT_ROW_(T, m, double, DLT_T_FLOAT, __VA_ARGS__)
#define DLT_ENUM(T, m, ...) DLT_ROW_(T, m, int, DLT_T_ENUM, __VA_ARGS__)
#define DLT_STR(T, m, ...) DLT_ROW_(T, m, const char *, DLT_T_STR, __VA_ARGS__)
#define DLT_DIMS(T, m, ...) DLT_ROW_(T, m, DltDims, DLT_T_DIMS, __VA_ARGS__)
#define DLT_FLOATS(T, m, ...) DLT_ROW_(T, m, DltFloats, DLT_T_FLOATS, __VA_ARGS__)
#define DLT_STRS(T, m, ...) DLT_ROW_(T, m, DltStrs, DLT_T_STRS, __VA_ARGS__)
#define DLT_SPAN(T, m, ...) DLT_ROW_(T, m, DltSpan, DLT_T_SPAN, __VA_ARGS__)
#define DLT_SIZE(T, m, ...) DLT_ROW_(T, m, int64_t, DLT_T_SIZE, __VA_ARGS__)
#define DLT_TREE(T, m, ...) DLT_ROW_(T, m, const DltYaml *, DLT_T_TREE, __VA_ARGS__)
#define DLT_FIELDS_END                                                                             \
    {                                                                                              \
        .key = NULL                                                                                \
    }

/* Options of one thing (a layer, an optimizer ...) as read: v points to its struct, mark[i] is
 * where field i was written (line 0: default), at is the thing's own place, name its path in the
 * config
 * ("model[3].dense"). */
typedef struct DltOpts {
    const void *v;
    const DltField *fields;
    const DltMark *mark;
    DltMark at;
    const char *name;
} DltOpts;

/* One thing of a config: its path, for messages, and its place. */
typedef struct DltWhere {
    const char *name;
    DltMark at;
} DltWhere;
/* Reads `value` (a map; or a scalar/list when row 0 is the main argument; or NULL for all defaults)
 * into a fresh zeroed struct of `size` bytes. Accumulates every error (unknown key with the nearest
 * name, wrong type, range, required) and returns CONFIG when there was any; a member whose value was
 * refused then has its default. */
DltStatus dlt_schema_read(DltArena *arena, const DltField *fields, size_t size,
                          const DltYaml *value, DltWhere where, DltOpts *out,
                          DltErr *err) DLT_CHECKED;
/* Mark of one field by member offset, or the thing's own when it is a default. */
DltMark dlt_opts_mark(const DltOpts *o, size_t offset);
/* True when the user wrote this field. */
bool dlt_opts_given(const DltOpts *o, size_t offset);
/* The options as a map in which every default is written out. */
DltYaml *dlt_schema_resolved(DltArena *arena, const DltOpts *o);
/* "dense units=64 bias=true"-like table of one field list for `explain`: one line per row with
 * type, default, range, unit, help. */
void dlt_schema_explain(const DltField *fields, FILE *out);

/* Scalars by type; false with a report at `at` when the text is no such value. */
bool dlt_parse_int(const char *text, int64_t *v);
bool dlt_parse_float(const char *text, double *v); /* 1e-5, .1, 1/3; no inf, nan, junk */
bool dlt_parse_span(const char *text, DltSpan *v);
bool dlt_parse_size(const char *text, int64_t *v);
/* Shortest decimal that reads back as the same double. */
enum { DLT_NUMBER_TEXT = 32 };
const char *dlt_number_text(double v, char buf[DLT_NUMBER_TEXT]);

/* All names known anywhere, so that a typo can be answered across sections. The registries add
 * their rows once at start-up: dlt_names_add(names, "train.optimizer.adamw", fields). */
typedef struct DltNames DltNames;
DltNames *dlt_names_new(DltArena *arena);
void dlt_names_add(DltNames *names, const char *path, const DltField *fields);
/* Used by suggestions and overrides until the names' arena is freed. */
void dlt_names_set_current(const DltNames *names);
/* Suggestions prefer tables that this config writes (it has a map at their path). root is kept. */
void dlt_names_prefer(DltNames *names, const DltYaml *root);
/* Nearest of a NULL-terminated list by Damerau-Levenshtein distance, NULL when none is near. */
const char *dlt_nearest(const char *word, const char *const *list);
int dlt_edit_distance(const char *a, const char *b);

#endif
