/* CSV: every defined outcome of RELIABILITY.md's T-DATA and CASES.md C25, C26, C28, by table. */
#include "base/rng.h"
#include "data_help.h"
#include "datasets/csv.h"

/* A table that must load: its features and targets, row by row, are `want`. */
typedef struct Good {
    const char *what, *text, *options;
    int64_t n, width;
    const char *want; /* "f f f = y; f f f = y" */
} Good;

static const Good goods[] = {
    {"plain", "a,b,y\n1,2,0\n3,4,1\n", "target: y", 2, 2, "1 2 = 0; 3 4 = 1"},
    {"no newline at the end", "a,y\n1,0\n2,1", "target: y", 2, 1, "1 = 0; 2 = 1"},
    {"CRLF", "a,y\r\n1,0\r\n2,1\r\n", "target: y", 2, 1, "1 = 0; 2 = 1"},
    {"CR", "a,y\r1,0\r2,1\r", "target: y", 2, 1, "1 = 0; 2 = 1"},
    {"BOM",
     "\xef\xbb\xbf"
     "a,y\n1,0\n2,1\n",
     "target: y", 2, 1, "1 = 0; 2 = 1"},
    {"empty lines at the end", "a,y\n1,0\n2,1\n\n\r\n", "target: y", 2, 1, "1 = 0; 2 = 1"},
    {"blanks around cells", "a , y\n 1 ,\t0\n2, 1 \n", "target: y", 2, 1, "1 = 0; 2 = 1"},
    {"quotes", "\"a\",\"y\"\n\"1\",\"0\"\n2,1\n", "target: y", 2, 1, "1 = 0; 2 = 1"},
    {"quotes with separator, newline, quote",
     "a,y\n1,\"no, \"\"never\"\"\"\n2,\"yes\nindeed\"\n3,\"no, \"\"never\"\"\"\n", "target: y", 3,
     1, "1 = 0; 2 = 1; 3 = 0"},
    {"semicolons", "a;y\n1.5;0\n2;1\n", "target: y\nseparator: ;", 2, 1, "1.5 = 0; 2 = 1"},
    {"tabs", "a\ty\n1\t0\n2\t1\n", "target: y\nseparator: tab", 2, 1, "1 = 0; 2 = 1"},
    {"no header", "1,2,0\n3,4,1\n", "target: c3\nheader: false", 2, 2, "1 2 = 0; 3 4 = 1"},
    {"unnamed column", ",b,y\n1,2,0\n3,4,1\n", "target: y\nignore: c1", 2, 1, "2 = 0; 4 = 1"},
    {"target in the middle", "a,y,b\n1,0,2\n3,1,4\n", "target: y", 2, 2, "1 2 = 0; 3 4 = 1"},
    {"numbers", "a,y\n+1.5e1,0\n-.5E-1,1\n5.,0\n1e-400,1\n16777217,0\n", "target: y", 5, 1,
     "15 = 0; -0.05 = 1; 5 = 0; 0 = 1; 16777216 = 0"},
    {"words as classes are sorted", "a,y\n1,red\n2,blue\n3,green\n", "target: y", 3, 1,
     "1 = 2; 2 = 0; 3 = 1"},
    {"numbers as classes are sorted by value", "a,y\n1,10\n2,9\n3,-1\n",
     "target: y\ntarget_type: classes", 3, 1, "1 = 2; 2 = 1; 3 = 0"},
    {"given class names", "a,y\n1,red\n2,blue\n", "target: y\nclass_names: [red, green, blue]", 2,
     1, "1 = 0; 2 = 2"},
    {"fractions are values", "a,y\n1,0.5\n2,1\n", "target: y", 2, 1, "1 = 0.5; 2 = 1"},
    {"whole numbers as values", "a,y\n1,7\n2,9\n", "target: y\ntarget_type: values", 2, 1,
     "1 = 7; 2 = 9"},
    {"several targets", "a,y,z\n1,7,8\n2,9,10\n", "target: [y, z]", 2, 1, "1 = 7 8; 2 = 9 10"},
    {"one-hot", "color,a,y\nred,1,0\nblue,2,1\nred,3,0\n", "target: y\ncategorical: color", 3, 3,
     "0 1 1 = 0; 1 0 2 = 1; 0 1 3 = 0"},
    {"dropped rows", "a,b,y\n1,,0\n2,3,1\nNA,4,0\n5,6,0\n7,8,?\n", "target: y\nmissing: drop", 2, 2,
     "2 3 = 1; 5 6 = 0"},
    {"mean", "a,y\n1,0\n,1\nnan,0\n4,1\n", "target: y\nmissing: mean", 4, 1,
     "1 = 0; 2.5 = 1; 2.5 = 0; 4 = 1"},
    {"constant", "a,y\n1,0\nNULL,1\n", "target: y\nmissing: constant\nmissing_value: -1", 2, 1,
     "1 = 0; -1 = 1"},
    {"missing category", "c,y\nx,0\n,1\nNA,0\n", "target: y\ncategorical: c\nmissing: mean", 3, 2,
     "0 1 = 0; 0 0 = 1; 1 0 = 0"},
};

static void check_rows(Help *h, const Good *g, const DltDataset *ds)
{
    float x[16];
    union {
        float f[4];
        int32_t i;
    } y;
    const char *at = g->want;
    for (int64_t i = 0; i < ds->n; i++) {
        char *end;
        help_read(h, ds, i, x, &y);
        for (int64_t k = 0; k < g->width; k++) {
            float want = strtof(at, &end);
            if (end == at || x[k] != want)
                fail_msg("%s: row %d, element %d is %g, not %g", g->what, (int)i, (int)k,
                         (double)x[k], (double)want);
            at = end;
        }
        at = strchr(at, '=') + 1;
        for (int k = 0; *at != '\0' && *at != ';'; k++) {
            float want = strtof(at, &end);
            float got = ds->y_dtype == DLT_I32 ? (float)y.i : y.f[k];
            if (end == at || got != want)
                fail_msg("%s: row %d, target %g, not %g", g->what, (int)i, (double)got,
                         (double)want);
            at = end;
        }
        at += *at == ';';
    }
}

/* Opens text as a file; the file is gone afterwards. */
static DltStatus open_text(Help *h, const char *text, int64_t n, const char *options,
                           const DltDataset *like, DltDataset *ds)
{
    char yaml[1000];
    const char *path = help_write("t.csv", text, n);
    snprintf(yaml, sizeof yaml, "csv: %s\n%s\n", path, options);
    DltStatus status = help_open_like(h, "csv", yaml, like, ds);
    unlink(path);
    return status;
}

static void reads_every_spelling(void **state)
{
    Help *h = *state;
    for (size_t i = 0; i < sizeof goods / sizeof goods[0]; i++) {
        const Good *g = &goods[i];
        DltDataset ds;
        DltStatus status = open_text(h, g->text, (int64_t)strlen(g->text), g->options, NULL, &ds);
        if (status != DLT_OK) fprintf(stderr, "%s:\n", g->what);
        help_ok(h, status);
        if (ds.n != g->n || ds.x_shape.dim[0] != g->width)
            fail_msg("%s: [%d, %d]", g->what, (int)ds.n, (int)ds.x_shape.dim[0]);
        check_rows(h, g, &ds);
    }
}

typedef struct Bad {
    const char *text, *options;
    DltStatus status;
    const char *part;
} Bad;

static const Bad bads[] = {
    /* cells */
    {"a,y\n1,0\n,1\n", "target: y", DLT_E_DATA, "line 3, row 2, column 'a': missing value ('')"},
    {"a,y\n1,0\nNA,1\n", "target: y", DLT_E_DATA, "column 'a': missing value ('NA')"},
    {"a,y\n1,0\nnan,1\n", "target: y", DLT_E_DATA, "column 'a': missing value ('nan')"},
    {"a,y\n1,0\ninf,1\n", "target: y", DLT_E_DATA, "column 'a': 'inf' is no number"},
    {"a,y\n1,0\n1e400,1\n", "target: y", DLT_E_DATA, "'1e400' does not fit"},
    {"a,y\n1,0\n1e39,1\n", "target: y", DLT_E_DATA, "'1e39' does not fit"},
    {"a,y\n1,0\n0x10,1\n", "target: y", DLT_E_DATA, "'0x10' is no number"},
    {"a,y\n1,0\n1e,1\n", "target: y", DLT_E_DATA, "'1e' is no number"},
    {"a,y\n1,0\n1 2,1\n", "target: y", DLT_E_DATA, "'1 2' is no number"},
    {"a;y\n1,5;0\n2,5;1\n", "target: y\nseparator: ;", DLT_E_DATA,
     "decimals are written with a point"},
    {"a,y\nred,0\nblue,1\n", "target: y", DLT_E_DATA, "name the column in `categorical:`"},
    {"a,y\n1,0\n2,\n", "target: y\nmissing: mean", DLT_E_DATA, "column 'y': the target is missing"},
    {"a,y\n,0\n,1\n", "target: y\nmissing: mean", DLT_E_DATA, "it has no mean"},
    {"a,y\n,0\n,1\n", "target: y\nmissing: drop", DLT_E_DATA, "every row has a missing value"},
    /* rows and quoting */
    {"a,b,y\n1,2,0\n1,0\n", "target: y", DLT_E_DATA, "line 3, row 2: 2 cells where there are 3"},
    {"a,b,y\n1,2,0\n1,2,3,0\n", "target: y", DLT_E_DATA, "4 cells where there are 3"},
    {"a,b,y\n1,2,0\n\n3,4,1\n", "target: y", DLT_E_DATA, "line 3, row 2: 1 cells"},
    {"a,y\n1,\"x\n2,z\n", "target: y", DLT_E_DATA, "line 2: a quote is opened and never closed"},
    {"a,y\n1,\"x\"z\n", "target: y", DLT_E_DATA, "line 2: text follows a closing quote"},
    {"a,y\n1,x\"z\n", "target: y", DLT_E_DATA, "line 2: a quote inside an unquoted cell"},
    {"a,\"y\nz\",b\n1,2\n", "target: b", DLT_E_DATA, "line 3, row 1: 2 cells"},
    /* columns */
    {"a,a,y\n1,2,0\n", "target: y", DLT_E_DATA, "columns 1 and 2 are both named 'a'"},
    {"c2,,y\n1,2,0\n", "target: y", DLT_E_DATA, "columns 1 and 2 are both named 'c2'"},
    {"1,2,0\n3,4,1\n", "target: c3", DLT_E_DATA, "say `header: false`"},
    {"a,species\n1,x\n2,z\n", "target: specis", DLT_E_DATA, "did you mean 'species'?"},
    {"a;y\n1;0\n", "target: y", DLT_E_DATA, "is `separator:` right?"},
    {"a,y\n1,0\n", "target: y\nignore: b", DLT_E_DATA, "ignore: "},
    {"a,y\n1,0\n", "target: y\ncategorical: b", DLT_E_DATA, "categorical: "},
    {"a,y\n1,0\n2,1\n", "target: y\nignore: y", DLT_E_CONFIG, "is a target too"},
    {"a,y\n1,0\n2,1\n", "target: [y, y]", DLT_E_CONFIG, "named twice"},
    {"a,y\n1,0\n2,1\n", "target: y\nignore: a\ncategorical: a", DLT_E_CONFIG, "`categorical:` too"},
    {"a,y\n1,0\n2,1\n", "target: y\nignore: a", DLT_E_DATA, "no column is left for features"},
    {"a,y\n1,0\n2,1\n", "target: y\nmissing_value: 3", DLT_E_CONFIG, "no effect without"},
    /* targets */
    {"a,y\n1,1456\n2,1570\n3,1580\n", "target: y", DLT_E_DATA, "whole numbers (1456 to 1580)"},
    {"a,y\n1,1\n2,2\n3,3\n", "target: y", DLT_E_DATA, "that are not 0..C-1"},
    {"a,y\n1,-1\n2,0\n", "target: y", DLT_E_DATA, "that are not 0..C-1"},
    {"a,y\n1,0\n2,2\n", "target: y", DLT_E_DATA, "that are not 0..C-1"},
    {"a,y\n1,0\n2,0\n", "target: y", DLT_E_DATA, "only one class"},
    {"a,y\n1,x\n2,x\n", "target: y", DLT_E_DATA, "only one class ('x')"},
    {"a,y\n1,x\n2,7\n", "target: y", DLT_E_DATA, "numbers and words ('x' in row 1)"},
    {"a,y\n1,x\n2,7\n", "target: y\ntarget_type: values", DLT_E_DATA, "'x' is no number"},
    {"a,y,z\n1,2,x\n", "target: [y, z]", DLT_E_DATA, "'x' is no number"},
    {"a,y,z\n1,2,3\n", "target: [y, z]\ntarget_type: classes", DLT_E_CONFIG, "several targets"},
    {"a,y\n1,x\n2,z\n", "target: y\nclass_names: [x, w]", DLT_E_DATA,
     "class 'z' is not among the 2"},
    {"a,y\n1,x\n2,z\n", "target: y\nclass_names: [x, x, z]", DLT_E_CONFIG, "stands twice"},
    {"a,y\n1,1\n2,2\n", "target: y\nclass_names: [x]\ntarget_type: values", DLT_E_CONFIG,
     "it has no classes"},
    {"a,y\n1,1e39\n2,2\n", "target: y", DLT_E_DATA, "column 'y': '1e39' does not fit"},
    /* files */
    {"a,y\n", "target: y", DLT_E_DATA, "there are no rows"},
    {"\n\n", "target: y", DLT_E_DATA, "the table is empty"},
    {"<html>not found</html>", "target: y", DLT_E_DATA, "HTML (a web page"},
    {"\x89PNG\r\n\x1a\n", "target: y", DLT_E_DATA, "a PNG image"},
    {"PK\x03\x04 is xlsx", "target: y", DLT_E_DATA, "a zip archive"},
    {"a\xff,y\n1,0\n2,1\n", "target: y", DLT_E_DATA, "is not UTF-8"},
    {"a,y\n1,\xe9t\xe9\n2,x\n", "target: y", DLT_E_DATA, "is not UTF-8"},
};

static void refuses_with_the_place(void **state)
{
    Help *h = *state;
    DltDataset ds;
    for (size_t i = 0; i < sizeof bads / sizeof bads[0]; i++) {
        const Bad *b = &bads[i];
        help_refused(h, open_text(h, b->text, (int64_t)strlen(b->text), b->options, NULL, &ds),
                     b->status, b->part);
    }
    help_refused(h, open_text(h, "a,y\n1,0\0\n", 9, "target: y", NULL, &ds), DLT_E_DATA,
                 "a zero byte at offset 7");
}

/* val and test take columns, categories, means and classes from train (C26). */
static void val_follows_train(void **state)
{
    Help *h = *state;
    DltDataset train, val;
    static const char text[] = "color,a,y,id\nred,1,cat,7\nblue,3,dog,8\nred,2,emu,9\n";
    const char *options = "target: y\ncategorical: color\nignore: id\nmissing: mean";
    help_ok(h, open_text(h, text, sizeof text - 1, options, NULL, &train));
    assert_int_equal(train.classes, 3);
    assert_string_equal(train.class_name[1], "dog");
    assert_string_equal(train.feature_name[0], "color=blue");
    assert_string_equal(train.feature_name[1], "color=red");
    assert_string_equal(train.feature_name[2], "a");
    static const struct {
        const char *text;
        DltStatus status;
        const char *part;
    } rows[] = {
        {"y,id,a,color\nemu,1,,red\n", DLT_OK, NULL},
        {"color,a,y\nred,1,emu\n", DLT_OK, NULL},
        {"color,a,y,id\nred,1,zebra,7\n", DLT_E_DATA,
         "class 'zebra' is not among the 3 classes of "
         "the training set"},
        {"color,a,y,id\ngreen,1,cat,7\n", DLT_E_DATA, "category 'green' does not occur"},
        {"color,y,id\nred,cat,7\n", DLT_E_DATA, "there is no column 'a'"},
        {"color,a,y,id,b\nred,1,cat,7,1\n", DLT_E_DATA, "column 'b' is not in the training set"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        float x[3];
        int32_t y;
        bool has_id = strstr(rows[i].text, "id") != NULL;
        DltStatus status = open_text(
            h, rows[i].text, (int64_t)strlen(rows[i].text),
            has_id ? options : "target: y\ncategorical: color\nmissing: mean", &train, &val);
        if (rows[i].status != DLT_OK) {
            help_refused(h, status, rows[i].status, rows[i].part);
            continue;
        }
        help_ok(h, status);
        help_read(h, &val, 0, x, &y);
        assert_int_equal(y, 2);
        assert_true(x[0] == 0 && x[1] == 1 && x[2] == (i == 0 ? 2.0f : 1.0f));
    }
    help_refused(h,
                 open_text(h, text, sizeof text - 1,
                           "target: y\ncategorical: color\nignore: id\nclass_names: [cat, dog]",
                           &train, &val),
                 DLT_E_CONFIG, "2 names here, but the training set has 3");
    help_refused(
        h,
        open_text(h, text, sizeof text - 1,
                  "target: y\ncategorical: color\nignore: id\nclass_names: [dog, cat, emu]", &train,
                  &val),
        DLT_E_CONFIG, "class 0 is 'dog' here and 'cat' in");
}

/* A table with every feature of the format, cut at each byte and with each byte changed: never a crash,
 * and a report that names the file when it is refused. */
static void survives_cuts_and_changes(void **state)
{
    Help *h = *state;
    static const char text[] = "\xef\xbb\xbf"
                               "name,\"a \"\"b\"\"\",c,y\r\n\"x, y\",1.5e1,-2,no\r\n\"p\nq\",.5,NA,"
                               "yes\r\n,3,4,no\r\n";
    char copy[sizeof text];
    static const char changes[] = "\0\n\r\",;x0-.\xff";
    DltOpts *o = help_opts(h, "csv", "csv: t.csv\ntarget: y\ncategorical: name\nmissing: mean\n");
    int n_good = 0, n_bad = 0;
    help_ok(h, dlt_csv_check(h->arena, text, sizeof text - 1, o, &h->err));
    for (size_t n = 0; n < sizeof text; n++) {
        for (size_t k = 0; k < sizeof changes; k++) {
            memcpy(copy, text, sizeof text);
            if (k > 0) copy[n] = changes[k - 1];
            DltStatus status =
                dlt_csv_check(h->arena, copy, (int64_t)(k > 0 ? sizeof text - 1 : n), o, &h->err);
            n_good += status == DLT_OK;
            n_bad += status != DLT_OK;
            if (status != DLT_OK) {
                assert_int_equal(status, DLT_E_DATA);
                assert_int_equal(h->err.n, 1);
            }
            dlt_err_init(&h->err);
        }
    }
    assert_true(n_good > 100 && n_bad > 100);
}

static void reads_gzip(void **state)
{
    Help *h = *state;
    DltDataset ds;
    static const char text[] = "a,y\n1,0\n2,1\n";
    int64_t n;
    const uint8_t *gz = help_gzip(h, text, sizeof text - 1, &n);
    help_ok(h, open_text(h, (const char *)gz, n, "target: y", NULL, &ds));
    assert_int_equal(ds.n, 2);
    help_refused(h, open_text(h, (const char *)gz, n - 1, "target: y", NULL, &ds), DLT_E_DATA,
                 "the file is cut");
}

/* Numbers agree with strtod's correctly rounded values, to the bit, over their whole range. */
static void numbers_are_exact(void **state)
{
    (void)state;
    static const char *const texts[] = {"0.1",
                                        "1e22",
                                        "1e23",
                                        "9007199254740993",
                                        "123456789012345678901234567890",
                                        "4.35",
                                        "1e-22",
                                        "1e-23",
                                        "3.4028234e38",
                                        "1.17549435e-38",
                                        "5e-324",
                                        "0.000000000000000000000000000001",
                                        "1234567890123456789",
                                        "9999999999999999999",
                                        "1.7976931348623157e+38",
                                        "-0",
                                        "2.5e-1"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        double got = 0, want = strtod(texts[i], NULL);
        DltCell cell = {texts[i], (int64_t)strlen(texts[i]), false};
        assert_int_equal(dlt_cell_number(cell, &got), DLT_CELL_NUMBER);
        if (memcmp(&got, &want, sizeof got) != 0)
            fail_msg("%s: %.17g, not %.17g", texts[i], got, want);
    }
    for (uint64_t i = 0; i < 20000; i++) {
        char text[64];
        double got = 0, want;
        snprintf(text, sizeof text, "%.*g", (int)(i % 17) + 1,
                 dlt_rng_normal(1, 2, i) * (double)(i % 1000));
        want = strtod(text, NULL);
        DltCell cell = {text, (int64_t)strlen(text), false};
        assert_int_equal(dlt_cell_number(cell, &got), DLT_CELL_NUMBER);
        if (memcmp(&got, &want, sizeof got) != 0) fail_msg("%s: %.17g, not %.17g", text, got, want);
    }
}

/* 5,000 words in quoted and plain form are found again, before and after sorting. */
static void dictionary_finds_words(void **state)
{
    enum { WORDS = 5000 };
    Help *h = *state;
    DltDict *d = dlt_dict_new(h->arena);
    char text[32], quoted[40];
    for (int i = 0; i < WORDS; i++) {
        snprintf(text, sizeof text, "w\"%d", (i * 7919) % WORDS);
        assert_int_equal(dlt_dict_add(d, (DltCell){text, (int64_t)strlen(text), false}), i);
    }
    dlt_dict_sort(d);
    assert_int_equal(dlt_dict_count(d), WORDS);
    for (int i = 0; i < WORDS; i++) {
        snprintf(quoted, sizeof quoted, "w\"\"%d", i);
        int64_t k = dlt_dict_find(d, (DltCell){quoted, (int64_t)strlen(quoted), true});
        assert_true(k >= 0);
        snprintf(text, sizeof text, "w\"%d", i);
        assert_string_equal(dlt_dict_words(d)[k], text);
        if (k > 0) assert_true(strcmp(dlt_dict_words(d)[k - 1], text) < 0);
    }
    assert_int_equal(dlt_dict_find(d, (DltCell){"w", 1, false}), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        help_test(reads_every_spelling),
        help_test(refuses_with_the_place),
        help_test(val_follows_train),
        help_test(survives_cuts_and_changes),
        help_test(reads_gzip),
        help_test(numbers_are_exact),
        help_test(dictionary_finds_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
