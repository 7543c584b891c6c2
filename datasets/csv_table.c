/* Rows of CSV into a table: a first walk finds what each column holds, a second (targets that are
 * classes) collects the class names, the last stores the numbers. Memory is the text and 4 bytes a
 * cell; categories are stored as their number and become one-hot when a sample is read. */
#include "base/sys.h"
#include "datasets/csv.h"
#include <math.h>

enum { ROWS_BETWEEN_LOOKS = 4096 }; /* for signals */

/* A walk over the rows: visit is called for every row that is kept. */
typedef struct Walk Walk;
struct Walk {
    DltArena *arena;
    DltCsvTable *t;
    DltCsvScan scan;
    int64_t row; /* from 1, without the header, dropped rows counted */
    int64_t kept;
    DltCell *cell;
    DltStatus (*visit)(Walk *w, DltErr *err);
};

static DltStatus cell_error(const Walk *w, const DltCsvColumn *c, DltErr *err, const char *fmt, ...)
    DLT_PRINTF(4, 5);

static DltStatus cell_error(const Walk *w, const DltCsvColumn *c, DltErr *err, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return dlt_blob_err(w->t->b, err, "line %lld, row %lld, column '%s': %s",
                        (long long)w->scan.row_line, (long long)w->row, c->name, text);
}

static bool is_missing(DltCell cell)
{
    double v;
    return dlt_cell_number(cell, &v) == DLT_CELL_MISSING;
}

/* In a feature of categories only the empty cell is missing: NA may be a country. */
static bool is_dropped(const Walk *w)
{
    const DltCsvTable *t = w->t;
    bool any = false;
    if (t->opts->missing != DLT_MISSING_DROP) return false;
    for (int64_t i = 0; i < t->n_feature; i++) {
        DltCell cell = w->cell[t->feature[i].source];
        any |= t->feature[i].dict != NULL ? cell.n == 0 : is_missing(cell);
    }
    for (int64_t i = 0; i < t->n_target; i++)
        any |= is_missing(w->cell[t->target[i].source]);
    return any;
}

/* A row by itself; nothing of it is kept. */
static DltStatus check_row(const Walk *w, int64_t n, DltErr *err);

/* The first walk finds out which rows are bad; they are left out of this one and of all others. */
static DltStatus each_row(Walk *w, const DltCsvScan *rows, DltStatus (*visit)(Walk *, DltErr *),
                          DltErr *err)
{
    const DltCsvTable *t = w->t;
    bool first = w->row == 0;
    w->scan = *rows;
    w->row = 0;
    w->kept = 0;
    for (;;) {
        int64_t n;
        DLT_TRY(dlt_csv_row(&w->scan, w->cell, t->n_name, &n, err));
        if (n == 0) return DLT_OK;
        if (++w->row % ROWS_BETWEEN_LOOKS == 0) DLT_TRY(dlt_sys_asked_to_stop());
        if (first && check_row(w, n, err) != DLT_OK) DLT_TRY(dlt_bad_take(t->bad, w->row, err));
        if (dlt_bad_has(t->bad, w->row) || is_dropped(w)) continue;
        DLT_TRY(visit(w, err));
        w->kept++;
    }
}

/* ---- first walk: what the columns hold ---------------------------------------------------- */

static DltStatus missing_cell(const Walk *w, const DltCsvColumn *c, DltCell cell, DltErr *err)
{
    char shown[DLT_CELL_SHOWN];
    dlt_cell_show(cell, shown);
    return cell_error(
        w, c, err, "missing value ('%s'); give a policy: missing: drop, mean or constant", shown);
}

static DltStatus word_in_numbers(const Walk *w, const DltCsvColumn *c, DltCell cell, DltErr *err)
{
    char shown[DLT_CELL_SHOWN];
    dlt_cell_show(cell, shown);
    char *comma = strchr(shown, ',');
    if (comma != NULL && comma[1] >= '0' && comma[1] <= '9')
        return cell_error(w, c, err, "'%s' is no number: decimals are written with a point", shown);
    return cell_error(w, c, err,
                      "'%s' is no number; name the column in `categorical:` (one-hot) or in "
                      "`ignore:`",
                      shown);
}

static DltStatus check_number(const Walk *w, const DltCsvColumn *c, DltCell cell, DltErr *err)
{
    double v;
    char shown[DLT_CELL_SHOWN];
    switch (dlt_cell_number(cell, &v)) {
    case DLT_CELL_NUMBER:
        return DLT_OK;
    case DLT_CELL_MISSING:
        return w->t->opts->missing == DLT_MISSING_ERROR ? missing_cell(w, c, cell, err) : DLT_OK;
    case DLT_CELL_HUGE:
        return cell_error(w, c, err, "'%s' does not fit a 32-bit float",
                          dlt_cell_show(cell, shown));
    case DLT_CELL_WORD:
    default:
        return word_in_numbers(w, c, cell, err);
    }
}

static DltStatus check_category(const Walk *w, const DltCsvColumn *c, DltCell cell, DltErr *err)
{
    char shown[DLT_CELL_SHOWN];
    if (cell.n == 0)
        return w->t->opts->missing == DLT_MISSING_ERROR ? missing_cell(w, c, cell, err) : DLT_OK;
    if (!w->t->follows || dlt_dict_find(c->dict, cell) >= 0) return DLT_OK;
    return cell_error(w, c, err, "category '%s' does not occur in the training set",
                      dlt_cell_show(cell, shown));
}

static DltStatus check_target(const Walk *w, const DltCsvColumn *c, DltCell cell, DltErr *err)
{
    double v;
    char shown[DLT_CELL_SHOWN];
    DltCellKind kind = dlt_cell_number(cell, &v);
    dlt_cell_show(cell, shown);
    if (kind == DLT_CELL_MISSING)
        return cell_error(w, c, err, "the target is missing; `missing: drop` drops such rows");
    if (kind == DLT_CELL_HUGE)
        return cell_error(w, c, err, "'%s' does not fit a 32-bit float", shown);
    if (w->t->values && kind == DLT_CELL_WORD)
        return cell_error(w, c, err, "'%s' is no number, and the target is numbers to regress",
                          shown);
    if (c->dict == NULL || dlt_dict_find(c->dict, cell) >= 0) return DLT_OK;
    return cell_error(w, c, err, "class '%s' is not among the %lld classes %s", shown,
                      (long long)dlt_dict_count(c->dict),
                      w->t->follows ? "of the training set" : "in `class_names:`");
}

static DltStatus check_row(const Walk *w, int64_t n, DltErr *err)
{
    const DltCsvTable *t = w->t;
    if (n != t->n_name)
        return dlt_blob_err(
            t->b, err, "line %lld, row %lld: %lld cells where there are %lld columns",
            (long long)w->scan.row_line, (long long)w->row, (long long)n, (long long)t->n_name);
    if (is_dropped(w)) return DLT_OK;
    for (int64_t i = 0; i < t->n_feature; i++) {
        const DltCsvColumn *c = &t->feature[i];
        DltCell cell = w->cell[c->source];
        if (c->dict != NULL)
            DLT_TRY(check_category(w, c, cell, err));
        else
            DLT_TRY(check_number(w, c, cell, err));
    }
    for (int64_t i = 0; i < t->n_target; i++)
        DLT_TRY(check_target(w, &t->target[i], w->cell[t->target[i].source], err));
    return DLT_OK;
}

static void survey_number(DltCsvColumn *c, DltCell cell)
{
    double v;
    if (dlt_cell_number(cell, &v) != DLT_CELL_NUMBER) return;
    c->sum += v;
    c->n_number++;
}

static DltStatus survey_category(const Walk *w, DltCsvColumn *c, DltCell cell, DltErr *err)
{
    if (cell.n == 0 || w->t->follows || dlt_dict_add(c->dict, cell) < DLT_MAX_CATEGORIES)
        return DLT_OK;
    return cell_error(w, c, err, "more than %d categories; is it an identifier? then ignore it",
                      DLT_MAX_CATEGORIES);
}

static void survey_target(const Walk *w, DltCsvColumn *c, DltCell cell)
{
    double v;
    if (dlt_cell_number(cell, &v) == DLT_CELL_WORD) {
        if (c->n_word++ > 0) return;
        dlt_cell_show(cell, c->word);
        c->word_row = w->row;
        return;
    }
    c->whole = (c->n_number == 0 || c->whole) && v == floor(v);
    if (c->n_number == 0 || v < c->lo) c->lo = v;
    if (c->n_number == 0 || v > c->hi) c->hi = v;
    c->n_number++;
}

static DltStatus survey(Walk *w, DltErr *err)
{
    DltCsvTable *t = w->t;
    for (int64_t i = 0; i < t->n_feature; i++) {
        DltCsvColumn *c = &t->feature[i];
        DltCell cell = w->cell[c->source];
        if (c->dict != NULL)
            DLT_TRY(survey_category(w, c, cell, err));
        else
            survey_number(c, cell);
    }
    for (int64_t i = 0; i < t->n_target; i++)
        survey_target(w, &t->target[i], w->cell[t->target[i].source]);
    return DLT_OK;
}

/* Sorted categories, means, and each column's place in x. */
static DltStatus settle_features(DltCsvTable *t, DltErr *err)
{
    for (int64_t i = 0; i < t->n_feature; i++) {
        DltCsvColumn *c = &t->feature[i];
        if (c->dict != NULL && !t->follows) {
            if (dlt_dict_count(c->dict) == 0)
                return dlt_blob_err(t->b, err, "column '%s' is empty; ignore it", c->name);
            dlt_dict_sort(c->dict);
        }
        if (c->dict == NULL && !t->follows) {
            if (c->n_number == 0 && t->opts->missing == DLT_MISSING_MEAN)
                return dlt_blob_err(t->b, err, "column '%s' is empty: it has no mean; ignore it",
                                    c->name);
            c->mean = c->n_number > 0 ? c->sum / (double)c->n_number : 0;
        }
        c->at = t->width;
        c->width = c->dict != NULL ? dlt_dict_count(c->dict) : 1;
        t->width += c->width;
    }
    return DLT_OK;
}

/* ---- targets: classes or values ------------------------------------------------------------ */

/* The class names of the config or of the training set, in their order. */
static void given_classes(DltArena *arena, DltCsvTable *t)
{
    DltCsvColumn *c = &t->target[0];
    c->dict = dlt_dict_new(arena);
    for (int64_t i = 0; i < t->n_class_name; i++)
        dlt_dict_add(c->dict,
                     (DltCell){t->class_name[i], (int64_t)strlen(t->class_name[i]), false});
}

static DltStatus collect_class(Walk *w, DltErr *err)
{
    DltCsvColumn *c = &w->t->target[0];
    if (dlt_dict_add(c->dict, w->cell[c->source]) < DLT_MAX_CLASS_NAMES) return DLT_OK;
    return cell_error(w, c, err, "more than %d classes; for numbers say `target_type: values`",
                      DLT_MAX_CLASS_NAMES);
}

static DltStatus ambiguous(const DltCsvTable *t, const DltCsvColumn *c, DltErr *err)
{
    return dlt_blob_err(t->b, err,
                        "target '%s' holds whole numbers (%g to %g) that are not 0..C-1: say "
                        "`target_type: classes` (each number a class, in their order) or "
                        "`target_type: values` (to regress)",
                        c->name, c->lo, c->hi);
}

/* `target_type: auto`: words are classes, numbers with fractions are values, whole numbers are
 * classes when they are exactly 0..C-1; what is left is asked about, never guessed. */
static DltStatus guess_type(Walk *w, const DltCsvScan *rows, DltErr *err)
{
    DltCsvTable *t = w->t;
    DltCsvColumn *c = &t->target[0];
    t->values = c->n_word == 0 && !c->whole;
    if (t->values) return DLT_OK;
    if (c->n_word > 0 && c->n_number > 0)
        return dlt_blob_err(t->b, err,
                            "target '%s' holds numbers and words ('%s' in row %lld): say "
                            "`target_type: classes` or correct the cell",
                            c->name, c->word, (long long)c->word_row);
    if (c->n_word == 0 && (c->lo != 0 || c->hi >= DLT_MAX_CLASS_NAMES)) return ambiguous(t, c, err);
    c->dict = dlt_dict_new(w->arena);
    DLT_TRY(each_row(w, rows, collect_class, err));
    dlt_dict_sort(c->dict);
    if (c->n_word == 0 && (double)dlt_dict_count(c->dict) != c->hi + 1) return ambiguous(t, c, err);
    return DLT_OK;
}

static DltStatus settle_target(Walk *w, const DltCsvScan *rows, DltErr *err)
{
    DltCsvTable *t = w->t;
    DltCsvColumn *c = &t->target[0];
    if (t->n_target == 0 || t->class_name != NULL || t->values) return DLT_OK;
    if (t->opts->target_type == DLT_TARGET_CLASSES) {
        c->dict = dlt_dict_new(w->arena);
        DLT_TRY(each_row(w, rows, collect_class, err));
        dlt_dict_sort(c->dict);
    } else {
        DLT_TRY(guess_type(w, rows, err));
    }
    if (!t->values && dlt_dict_count(c->dict) < 2)
        return dlt_blob_err(t->b, err, "target '%s' has only one class ('%s')", c->name,
                            dlt_dict_words(c->dict)[0]);
    return DLT_OK;
}

/* ---- last walk: the numbers ---------------------------------------------------------------- */

static float feature_value(const DltCsvTable *t, const DltCsvColumn *c, DltCell cell)
{
    double v = 0;
    if (c->dict != NULL) return cell.n > 0 ? (float)dlt_dict_find(c->dict, cell) : -1.0f;
    if (dlt_cell_number(cell, &v) == DLT_CELL_MISSING)
        v = t->opts->missing == DLT_MISSING_MEAN ? (double)NAN : t->opts->missing_value;
    return (float)v;
}

static DltStatus store(Walk *w, DltErr *err)
{
    (void)err;
    DltCsvTable *t = w->t;
    float *cell = t->cell + w->kept * t->n_feature;
    for (int64_t i = 0; i < t->n_feature; i++)
        cell[i] = feature_value(t, &t->feature[i], w->cell[t->feature[i].source]);
    if (t->n_target > 0 && !t->values) {
        const DltCsvColumn *c = &t->target[0];
        ((int32_t *)t->y)[w->kept] = (int32_t)dlt_dict_find(c->dict, w->cell[c->source]);
        return DLT_OK;
    }
    for (int64_t i = 0; i < t->n_target; i++) {
        double v = 0;
        dlt_cell_number(w->cell[t->target[i].source], &v);
        ((float *)t->y)[w->kept * t->n_target + i] = (float)v;
    }
    return DLT_OK;
}

static DltStatus take_memory(DltArena *arena, DltCsvTable *t, DltErr *err)
{
    /* every cell is a byte of the text at least, so the products fit */
    t->cell = dlt_blob_pages(arena, t->n * 4 * t->n_feature);
    t->y = dlt_blob_pages(arena, t->n * 4 * t->n_target);
    if (t->cell == NULL || t->y == NULL)
        return dlt_err(err, DLT_E_RESOURCE, "out of memory for the table of %s", t->b->path);
    return DLT_OK;
}

static DltStatus check_words(const DltCsvTable *t, const DltDict *d, DltErr *err)
{
    for (int64_t i = 0; d != NULL && i < dlt_dict_count(d); i++)
        DLT_TRY(dlt_csv_utf8(t->b, dlt_dict_words(d)[i], err));
    return DLT_OK;
}

DltStatus dlt_csv_fill(DltArena *arena, DltCsvTable *t, const DltCsvScan *rows, DltErr *err)
{
    Walk w = {.arena = arena, .t = t, .cell = DLT_NEW_ARRAY(arena, t->n_name, DltCell)};
    if (t->n_target > 0 && t->class_name != NULL && !t->values) given_classes(arena, t);
    DLT_TRY(each_row(&w, rows, survey, err));
    t->n = w.kept;
    if (t->n == 0)
        return dlt_blob_err(t->b, err,
                            w.row > 0 ? "every row has a missing value or is bad and is dropped"
                                      : "there are no rows");
    DLT_TRY(settle_features(t, err));
    DLT_TRY(settle_target(&w, rows, err));
    for (int64_t i = 0; i < t->n_feature; i++)
        DLT_TRY(check_words(t, t->feature[i].dict, err));
    for (int64_t i = 0; i < t->n_target; i++)
        DLT_TRY(check_words(t, t->target[i].dict, err));
    DLT_TRY(take_memory(arena, t, err));
    return each_row(&w, rows, store, err);
}
