/* CSV tables: numeric and one-hot features, classes or values as target. Nothing is guessed that
 * would change the meaning: a word among numbers, a missing cell, a column that the training set
 * has not, and a target that could be classes or values alike are errors that name line, row,
 * column. */
#include "datasets/csv.h"
#include "base/sys.h"
#include <math.h>

static const DltEnum separators[] = {{",", ','}, {";", ';'},     {"tab", '\t'},
                                     {"|", '|'}, {"space", ' '}, {NULL, 0}};
static const DltEnum target_types[] = {{"auto", DLT_TARGET_AUTO},
                                       {"classes", DLT_TARGET_CLASSES},
                                       {"values", DLT_TARGET_VALUES},
                                       {NULL, 0}};
static const DltEnum missings[] = {{"error", DLT_MISSING_ERROR},
                                   {"drop", DLT_MISSING_DROP},
                                   {"mean", DLT_MISSING_MEAN},
                                   {"constant", DLT_MISSING_CONSTANT},
                                   {NULL, 0}};

static const DltField fields[] = {
    DLT_STR(DltCsvOpts, csv, .required = true, .main = true, .file = true,
            .help = "table, plain or gzip", .example = "csv: iris.csv"),
    DLT_STRS(DltCsvOpts, target, .required = true,
             .help = "column to predict; several columns of numbers are regressed together",
             .example = "target: species"),
    DLT_ENUM(DltCsvOpts, target_type, .choices = target_types, .def = "auto",
             .help =
                 "auto: words are classes, fractions are values, whole numbers are classes when "
                 "they are exactly 0..C-1, else it must be said",
             .example = "target_type: classes"),
    DLT_STRS(DltCsvOpts, class_names,
             .help = "the classes in their order; without it they are sorted (numbers by value)",
             .example = "class_names: [cold, warm]"),
    DLT_STRS(DltCsvOpts, categorical, .help = "columns of words, read as one-hot features",
             .example = "categorical: [color, city]"),
    DLT_STRS(DltCsvOpts, ignore, .help = "columns that are no features", .example = "ignore: id"),
    DLT_ENUM(
        DltCsvOpts, missing, .choices = missings, .def = "error",
        .help = "what an empty cell (also ?, NA, N/A, NaN, null) means: an error, its row is "
                "dropped, the column's mean over the rows that are trained on, or missing_value; a "
                "missing category is 0 everywhere; a missing target can only be dropped",
        .example = "missing: mean"),
    DLT_FLOAT(DltCsvOpts, missing_value, .lo = -1e30, .hi = 1e30, .def = "0",
              .help = "for missing: constant", .example = "missing_value: -1"),
    DLT_ENUM(DltCsvOpts, separator, .choices = separators, .def = ",",
             .help = "what stands between cells", .example = "separator: ';'"),
    DLT_BOOL(DltCsvOpts, header, .def = "true",
             .help = "the first row holds the column names; without it they are c1, c2, ...",
             .example = "header: false"),
    DLT_FIELDS_END};

/* What is open while a table is read. */
typedef struct Csv {
    DltArena *arena;
    const DltOpts *o;
    DltCsvTable *t;
    const DltDataset *like;
    const DltCsvTable *train; /* the training set's table, when it is one */
    DltCsvScan scan;
    bool x_only; /* no targets are wanted */
} Csv;

static bool in_list(const DltStrs *list, const char *word)
{
    for (int i = 0; i < list->n; i++)
        if (strcmp(list->v[i], word) == 0) return true;
    return false;
}

/* ---- columns ------------------------------------------------------------------------------- */

DltStatus dlt_csv_utf8(const DltBlob *b, const char *text, DltErr *err)
{
    const unsigned char *p = (const unsigned char *)text;
    while (*p != '\0') {
        int more = *p < 0x80                 ? 0
                   : *p >= 0xf0 && *p < 0xf5 ? 3
                   : *p >= 0xe0              ? 2
                   : *p >= 0xc2              ? 1
                                             : -1;
        if (*p >= 0xf5) more = -1;
        for (int i = 1; i <= more; i++)
            if ((p[i] & 0xc0) != 0x80) more = -1;
        if (more < 0)
            return dlt_blob_err(b, err, "'%s' is not UTF-8; convert the file (iconv -t UTF-8)",
                                text);
        p += more + 1;
    }
    return DLT_OK;
}

static DltStatus check_names(const Csv *c, DltErr *err)
{
    const DltCsvTable *t = c->t;
    DltDict *seen = dlt_dict_new(c->arena);
    for (int64_t i = 0; i < t->n_name; i++) {
        DLT_TRY(dlt_csv_utf8(t->b, t->name[i], err));
        int64_t first =
            dlt_dict_add(seen, (DltCell){t->name[i], (int64_t)strlen(t->name[i]), false});
        if (first < i)
            return dlt_blob_err(t->b, err, "columns %lld and %lld are both named '%s'",
                                (long long)first + 1, (long long)i + 1, t->name[i]);
    }
    return DLT_OK;
}

/* Names the columns: from the header, or c1, c2, ... The scan ends before the first row of data. */
static DltStatus read_header(Csv *c, DltErr *err)
{
    DltCsvTable *t = c->t;
    DltCsvScan start = c->scan;
    DLT_TRY(dlt_csv_row(&c->scan, NULL, 0, &t->n_name, err));
    if (t->n_name == 0) return dlt_blob_err(t->b, err, "the table is empty");
    if (t->n_name > DLT_MAX_COLUMNS)
        return dlt_blob_err(t->b, err, "%lld columns, more than %d", (long long)t->n_name,
                            DLT_MAX_COLUMNS);
    DltCell *cell = DLT_NEW_ARRAY(c->arena, t->n_name, DltCell);
    c->scan = start;
    DLT_TRY(dlt_csv_row(&c->scan, cell, t->n_name, &t->n_name, err));
    t->name = DLT_NEW_ARRAY(c->arena, t->n_name, const char *);
    int64_t n_number = 0;
    for (int64_t i = 0; i < t->n_name; i++) {
        double v;
        n_number += dlt_cell_number(cell[i], &v) == DLT_CELL_NUMBER;
        bool named = t->opts->header && cell[i].n > 0;
        t->name[i] = named ? dlt_cell_text(c->arena, cell[i])
                           : dlt_arena_printf(c->arena, "c%lld", (long long)i + 1);
    }
    if (!t->opts->header)
        c->scan = start;
    else if (n_number == t->n_name)
        return dlt_blob_err(t->b, err,
                            "the first line holds only numbers; if it is data, say "
                            "`header: false`");
    return check_names(c, err);
}

static int64_t find_column(const DltCsvTable *t, const char *name)
{
    for (int64_t i = 0; i < t->n_name; i++)
        if (strcmp(t->name[i], name) == 0) return i;
    return -1;
}

/* Every column that the config names must be there. */
static DltStatus check_named(const Csv *c, const DltStrs *list, size_t offset, const char *key,
                             DltErr *err)
{
    const DltCsvTable *t = c->t;
    for (int i = 0; i < list->n; i++) {
        if (find_column(t, list->v[i]) >= 0) continue;
        const char **known = DLT_NEW_ARRAY(c->arena, t->n_name + 1, const char *);
        memcpy(known, t->name, (size_t)t->n_name * sizeof *known);
        const char *near = dlt_nearest(list->v[i], known);
        bool few = t->n_name == 1;
        return dlt_err_at(err, DLT_E_DATA, dlt_opts_mark(c->o, offset),
                          "%s: %s has no column '%s'%s%s%s (%lld columns, the first is '%s'%s)",
                          key, t->b->path, list->v[i], near != NULL ? "; did you mean '" : "",
                          near != NULL ? near : "", near != NULL ? "'?" : "", (long long)t->n_name,
                          t->name[0], few ? "; is `separator:` right?" : "");
    }
    return DLT_OK;
}

static DltStatus twice(const Csv *c, size_t offset, const char *key, const char *name, DltErr *err)
{
    return dlt_err_at(err, DLT_E_CONFIG, dlt_opts_mark(c->o, offset),
                      "%s: column '%s' is a target too, or named twice", key, name);
}

static DltStatus check_options(const Csv *c, DltErr *err)
{
    const DltCsvOpts *o = c->t->opts;
    if (!c->x_only)
        DLT_TRY(check_named(c, &o->target, offsetof(DltCsvOpts, target), "target", err));
    DLT_TRY(check_named(c, &o->categorical, offsetof(DltCsvOpts, categorical), "categorical", err));
    DLT_TRY(check_named(c, &o->ignore, offsetof(DltCsvOpts, ignore), "ignore", err));
    for (int i = 0; i < o->target.n; i++) {
        DltStrs before = {i, o->target.v};
        if (in_list(&before, o->target.v[i]) || in_list(&o->ignore, o->target.v[i]) ||
            in_list(&o->categorical, o->target.v[i]))
            return twice(c, offsetof(DltCsvOpts, target), "target", o->target.v[i], err);
    }
    for (int i = 0; i < o->ignore.n; i++)
        if (in_list(&o->categorical, o->ignore.v[i]))
            return dlt_err_at(err, DLT_E_CONFIG, dlt_opts_mark(c->o, offsetof(DltCsvOpts, ignore)),
                              "ignore: column '%s' is named in `categorical:` too", o->ignore.v[i]);
    if (o->target.n > 1 && (o->class_names.n > 0 || o->target_type == DLT_TARGET_CLASSES))
        return dlt_err_at(err, DLT_E_CONFIG, dlt_opts_mark(c->o, offsetof(DltCsvOpts, target)),
                          "target: several targets cannot be classes");
    if (o->class_names.n > 0 && o->target_type == DLT_TARGET_VALUES)
        return dlt_err_at(err, DLT_E_CONFIG, dlt_opts_mark(c->o, offsetof(DltCsvOpts, class_names)),
                          "class_names: the target's type is values, so it has no classes");
    return DLT_OK;
}

static DltStatus check_csv(const DltOpts *o, DltErr *err)
{
    const DltCsvOpts *c = o->v;
    size_t value = offsetof(DltCsvOpts, missing_value);
    if (c->missing == DLT_MISSING_CONSTANT || !dlt_opts_given(o, value)) return DLT_OK;
    return dlt_err_at(err, DLT_E_CONFIG, dlt_opts_mark(o, value),
                      "%s.missing_value: has no effect without `missing: constant`", o->name);
}

/* Every column that is neither target nor ignored is a feature, in the order of the file. */
static DltStatus own_columns(const Csv *c, DltErr *err)
{
    DltCsvTable *t = c->t;
    t->feature = DLT_NEW_ARRAY(c->arena, t->n_name, DltCsvColumn);
    for (int64_t i = 0; i < t->n_name; i++) {
        if (in_list(&t->opts->target, t->name[i]) || in_list(&t->opts->ignore, t->name[i]))
            continue;
        bool words = in_list(&t->opts->categorical, t->name[i]);
        t->feature[t->n_feature++] = (DltCsvColumn){
            .name = t->name[i], .source = i, .dict = words ? dlt_dict_new(c->arena) : NULL};
    }
    if (t->n_feature > 0) return DLT_OK;
    return dlt_blob_err(t->b, err, "no column is left for features");
}

/* Columns, their order and their categories follow the training set's. */
static DltStatus like_columns(const Csv *c, DltErr *err)
{
    DltCsvTable *t = c->t;
    const DltCsvTable *train = c->train;
    t->follows = true;
    t->n_feature = train->n_feature;
    t->feature = DLT_NEW_ARRAY(c->arena, t->n_feature, DltCsvColumn);
    for (int64_t i = 0; i < t->n_feature; i++) {
        const DltCsvColumn *from = &train->feature[i];
        int64_t source = find_column(t, from->name);
        if (source < 0)
            return dlt_blob_err(t->b, err, "there is no column '%s', which the training set has",
                                from->name);
        t->feature[i] =
            (DltCsvColumn){.name = from->name, .source = source, .dict = from->dict, .like = from};
    }
    for (int64_t i = 0; i < t->n_name; i++) {
        if (in_list(&t->opts->target, t->name[i]) || in_list(&t->opts->ignore, t->name[i]) ||
            find_column(train, t->name[i]) >= 0)
            continue;
        return dlt_blob_err(t->b, err, "column '%s' is not in the training set; ignore it",
                            t->name[i]);
    }
    return DLT_OK;
}

static void take_targets(const Csv *c)
{
    DltCsvTable *t = c->t;
    t->n_target = c->x_only ? 0 : t->opts->target.n;
    t->target = DLT_NEW_ARRAY(c->arena, t->n_target, DltCsvColumn);
    for (int64_t i = 0; i < t->n_target; i++)
        t->target[i] = (DltCsvColumn){.name = t->opts->target.v[i],
                                      .source = find_column(t, t->opts->target.v[i])};
}

/* Classes come from one place: the training set, else the config, else the table itself. */
static DltStatus take_classes(const Csv *c, DltErr *err)
{
    DltCsvTable *t = c->t;
    const DltStrs *names = &t->opts->class_names;
    DltMark at = dlt_opts_mark(c->o, offsetof(DltCsvOpts, class_names));
    for (int i = 0; i < names->n; i++) {
        DltStrs before = {i, names->v};
        if (in_list(&before, names->v[i]))
            return dlt_err_at(err, DLT_E_CONFIG, at, "class_names: '%s' stands twice", names->v[i]);
    }
    t->class_name = names->n > 0 ? names->v : NULL;
    t->n_class_name = names->n;
    t->values = t->opts->target_type == DLT_TARGET_VALUES || t->n_target > 1;
    if (c->like == NULL) return DLT_OK;
    if (!t->values) t->values = c->like->y_dtype == DLT_F32;
    if (names->n > 0 && names->n != c->like->classes)
        return dlt_err_at(err, DLT_E_CONFIG, at,
                          "class_names: %d names here, but the training set "
                          "has %lld classes",
                          names->n, (long long)c->like->classes);
    for (int i = 0; c->like->class_name != NULL && i < names->n; i++)
        if (strcmp(names->v[i], c->like->class_name[i]) != 0)
            return dlt_err_at(err, DLT_E_CONFIG, at,
                              "class_names: class %d is '%s' here and '%s' in "
                              "the training set",
                              i, names->v[i], c->like->class_name[i]);
    if (c->like->class_name != NULL) {
        t->class_name = c->like->class_name;
        t->n_class_name = c->like->classes;
    }
    return DLT_OK;
}

/* ---- the data set -------------------------------------------------------------------------- */

static const char **feature_names(DltArena *arena, const DltCsvTable *t)
{
    const char **name = DLT_NEW_ARRAY(arena, t->width, const char *);
    for (int64_t i = 0; i < t->n_feature; i++) {
        const DltCsvColumn *c = &t->feature[i];
        for (int64_t k = 0; k < c->width; k++)
            name[c->at + k] = c->dict == NULL ? c->name
                                              : dlt_arena_printf(arena, "%s=%s", c->name,
                                                                 dlt_dict_words(c->dict)[k]);
    }
    return name;
}

static void describe(DltArena *arena, DltCsvTable *t, DltDataset *ds)
{
    bool several = t->n_target > 1;
    *ds = (DltDataset){.def = &dlt_dataset_csv,
                       .state = t,
                       .n = t->n,
                       .x_shape = dlt_shape1(t->width),
                       .x_dtype = DLT_F32,
                       .x_scale = 1,
                       .y_shape = {.rank = several, .dim = {several ? t->n_target : 0}},
                       .y_dtype = t->values ? DLT_F32 : DLT_I32,
                       .feature_name = feature_names(arena, t),
                       .bad = t->bad,
                       .path = t->b->path};
    if (t->values || t->n_target == 0) return;
    ds->classes = dlt_dict_count(t->target[0].dict);
    ds->class_name = dlt_dict_words(t->target[0].dict);
}

static DltStatus read_text(Csv *c, DltBlob *b, DltErr *err)
{
    char head[512];
    int64_t got;
    DLT_TRY(dlt_blob_head(b, head, sizeof head, &got, err));
    const char *kind = dlt_blob_kind(head, got);
    if (strcmp(kind, "text") != 0 && strcmp(kind, "unknown binary") != 0)
        return dlt_blob_alien(b, "a CSV table", err);
    DLT_TRY(dlt_blob_load_memory(c->arena, b, -1, err));
    return dlt_csv_scan(&c->scan, b->path, (const char *)b->mem, b->bytes,
                        (char)c->t->opts->separator, err);
}

static DltStatus read_table(DltArena *arena, const DltOpts *o, DltBlob *b, const DltDataset *like,
                            DltDataset *ds, DltErr *err)
{
    bool same = like != NULL && like->def == &dlt_dataset_csv;
    Csv c = {.arena = arena, .o = o, .like = like, .train = same ? like->state : NULL};
    c.t = DLT_NEW(arena, DltCsvTable);
    c.t->b = b;
    c.t->opts = o->v;
    c.t->bad = ds->bad;
    if (ds->bad != NULL) ds->bad->rows = true;
    c.x_only = dlt_like_x_only(like);
    DLT_TRY(read_text(&c, b, err));
    DLT_TRY(read_header(&c, err));
    DLT_TRY(check_options(&c, err));
    DLT_TRY(c.train != NULL ? like_columns(&c, err) : own_columns(&c, err));
    take_targets(&c);
    DLT_TRY(take_classes(&c, err));
    DLT_TRY(dlt_csv_fill(arena, c.t, &c.scan, err));
    describe(arena, c.t, ds);
    if (c.x_only) dlt_like_targets(ds, like);
    return dlt_like_check(ds, like, err);
}

static DltStatus open_csv(DltArena *arena, const DltOpts *o, const char *folder,
                          const DltDataset *like, DltDataset *ds, DltErr *err)
{
    const DltCsvOpts *opts = o->v;
    DltBlob *b;
    DLT_TRY(dlt_blob_open(arena, folder, opts->csv, dlt_opts_mark(o, offsetof(DltCsvOpts, csv)), &b,
                          err));
    return read_table(arena, o, b, like, ds, err);
}

static DltStatus load_csv(DltArena *arena, DltDataset *ds, DltErr *err)
{
    (void)arena;
    return dlt_fingerprint(ds, err);
}

/* Means of the rows that are trained on: those that are held out stay unseen. */
static DltStatus fit_csv(DltDataset *ds, const DltSplit *train, DltErr *err)
{
    DltCsvTable *t = ds->state;
    if (t->opts->missing == DLT_MISSING_CONSTANT)
        return DLT_OK; /* cells that are no numbers of it */
    for (int64_t k = 0; k < t->n_feature; k++) {
        DltCsvColumn *c = &t->feature[k];
        double sum = 0;
        int64_t n = 0;
        for (int64_t i = 0; i < train->n && c->dict == NULL; i++) {
            float v = t->cell[(train->id != NULL ? train->id[i] : i) * t->n_feature + k];
            if (isnan(v)) continue;
            sum += (double)v;
            n++;
        }
        if (n > 0) c->mean = sum / (double)n;
        if (c->dict == NULL && n == 0 && t->opts->missing == DLT_MISSING_MEAN)
            return dlt_blob_err(t->b, err,
                                "column '%s' has no value in a row that is trained on: it has no "
                                "mean; ignore it",
                                c->name);
    }
    return DLT_OK;
}

static DltStatus read_csv(const DltDataset *ds, const int64_t *id, int64_t n, void *x, void *y,
                          DltErr *err)
{
    (void)err;
    const DltCsvTable *t = ds->state;
    dlt_targets_copy(ds, t->n_target > 0 ? t->y : NULL, id, n, y);
    for (int64_t i = 0; i < n; i++) {
        const float *cell = t->cell + id[i] * t->n_feature;
        float *to = (float *)x + i * t->width;
        memset(to, 0, (size_t)t->width * sizeof *to);
        for (int64_t k = 0; k < t->n_feature; k++) {
            const DltCsvColumn *c = &t->feature[k];
            if (c->dict == NULL)
                to[c->at] = isnan(cell[k]) ? (float)(c->like != NULL ? c->like : c)->mean : cell[k];
            else if (cell[k] >= 0)
                to[c->at + (int64_t)cell[k]] = 1;
        }
    }
    return DLT_OK;
}

const DltDatasetDef dlt_dataset_csv = {
    .name = "csv",
    .help = "a table with numeric or one-hot features and a class or number to predict",
    .fields = fields,
    .opt_size = sizeof(DltCsvOpts),
    .skips = true,
    .check = check_csv,
    .open = open_csv,
    .load = load_csv,
    .fit = fit_csv,
    .read = read_csv,
};

DltStatus dlt_csv_check(DltArena *arena, const void *bytes, int64_t n, const DltOpts *o,
                        DltErr *err)
{
    return dlt_csv_check_bad(arena, bytes, n, o, NULL, err);
}

DltStatus dlt_csv_check_bad(DltArena *arena, const void *bytes, int64_t n, const DltOpts *o,
                            DltBad *bad, DltErr *err)
{
    DltDataset ds = {.bad = bad};
    DltBlob *b = dlt_blob_memory(arena, "table", bytes, n);
    if (n == 0) return dlt_blob_err(b, err, "the file is empty");
    DLT_TRY(read_table(arena, o, b, NULL, &ds, err));
    return dlt_samples_check(&ds, err);
}
