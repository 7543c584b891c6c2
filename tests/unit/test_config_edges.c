/* The edges of the config reader that other tests do not reach: odd expressions, overrides that lead
 * nowhere, half-open ranges, characters that YAML must escape. Expected values are Python's for
 * arithmetic (LANGUAGE rule 7), else the rules' own words. */
#include "config_help.h"

#include "config/types.h"
#include <math.h>

static void expressions(void **state)
{
    static const struct {
        const char *text, *want; /* NULL: an error */
    } rows[] = {
        {"7 // -1", "-7"},
        {"7 % -1", "0"},
        {"-7 // 2", "-4"},
        {"-7 % 3", "2"},
        {"1 if 'a' == 'a' else 2", "1"},
        {"'b' > 'a'", NULL},
        {"'b' != 'a'", "true"},
        {"2 == 2.0", "true"},
        {"2 != 2.5", "true"},
        {"1.5 >= 1.5", "true"},
        {"1e+3 / 10", "100"},
        {"1E-2 * 100", "1"},
        {"l[0] + l[1]", "3"},
        {"l[m.one]", "2"},
        {"m.text", "word"},
        {"(((1)))", "1"},
        {"- - 3", "3"},
        {"true if l[0] < l[1] else false", "true"},
        {"\"it\"", "it"},
        {"1 +", NULL},
        {"(1", NULL},
        {"1)", NULL},
        {"'abc", NULL},
        {"l[", NULL},
        {"l[0", NULL},
        {"l['a']", NULL},
        {"l[9]", NULL},
        {"l[-1]", NULL},
        {"m[0]", NULL},
        {"m.", NULL},
        {"m.none", NULL},
        {"l.x", NULL},
        {"l < m", NULL},
        {"l == 1", NULL},
        {"1 + 'a'", NULL},
        {"'a' + 1", NULL},
        {"-'a'", NULL},
        {"-l", NULL},
        {"1 if 5 else 2", NULL},
        {"1 if l else 2", NULL},
        {"1 if true", NULL},
        {"1 if (1 else 2", NULL},
        {"9223372036854775807 + 1", NULL},
        {"-9223372036854775807 - 2", NULL},
        {"9223372036854775807 * 2", NULL},
        {"1e308 * 10", NULL},
        {"1 // 0", NULL},
        {"1 % 0", NULL},
        {"1 / 0", NULL},
        {"1 2", NULL},
        {"*", NULL},
        {"1 == l", NULL},
        {"l[1 / 0]", NULL},
        {"(1 / 0) + 1", NULL},
        {"(1 +)", NULL},
        {"- 'a", NULL},
        {"m.one.x", NULL},
        {"l[0].x", NULL},
        {"5[0]", NULL},
        {"-9223372036854775807 - 1", "-9223372036854775808"},
        {"-(-9223372036854775807 - 1)", NULL},
        {"(-9223372036854775807 - 1) // -1", NULL},
        {"1 iffy", NULL},
        {"elsewhere", NULL},
    };
    Help *h = *state;
    for (size_t i = 0; i < HELP_COUNT(rows); i++) {
        DltYaml *root = help_parse(h, "{l: [1, 2], m: {one: 1, text: word}}"), *out = NULL;
        DltScope scope = {.vars = root};
        DltYaml *tree =
            dlt_yaml_scalar(h->arena, dlt_arena_printf(h->arena, "${%s}", rows[i].text), root->at);
        dlt_err_init(&h->err);
        DltStatus status = dlt_expand(h->arena, &scope, tree, &out, &h->err);
        if ((status == DLT_OK) != (rows[i].want != NULL))
            fail_msg("%s: status %d", rows[i].text, (int)status);
        if (status != DLT_OK) {
            assert_int_equal(status, DLT_E_CONFIG);
            assert_int_equal(h->err.n, 1);
        } else if (strcmp(out->text, rows[i].want) != 0) {
            fail_msg("%s is %s, not %s", rows[i].text, out->text, rows[i].want);
        }
    }
}

static void overrides_that_lead_nowhere(void **state)
{
    static const char text[] = "x-free: {lr: 1}\nloss: mse\nmodel: [{dense: {units: 3}}, relu]\n"
                               "train: {batch: 6, optimizer: {sgd: {lr: 1}}}\n";
    static const struct {
        const char *word, *path, *want; /* path NULL: refused */
    } rows[] = {
        {"=1", NULL, NULL},
        {"lr", NULL, NULL},
        {".lr=1", NULL, NULL},
        {"train.=1", NULL, NULL},
        {"extends=x.yaml", NULL, NULL},
        {"model.9.dense=1", NULL, NULL},
        {"model.x.dense=1", NULL, NULL},
        {"model.0000000000.dense=1", NULL, NULL},
        {"train.batch.x.y=1", NULL, NULL},
        {"model=[", NULL, NULL},
        {"model.12345678901.dense=1", NULL, NULL},
        {"model./.dense=1", NULL, NULL},
        {"model.:.dense=1", NULL, NULL},
        {"model.0.dense.units=4", "model.0.dense.units", "4"},
        {"model.1=tanh", "model.1", "tanh"},
        {"loss.mse.x=2", "loss.mse.x", "2"},
        {"train.batch=", "train.batch", ""},
        {"lr=5", "train.optimizer.sgd.lr", "5"}, /* not the one in x-free */
        {"sgd.lr=5", "train.optimizer.sgd.lr", "5"},
        {"batch=5", "train.batch", "5"},
        {"new.deep.key=1", "new.deep.key", "1"},
        {"model.patch.a=1", "model.patch.a", "1"},
    };
    Help *h = *state;
    for (size_t i = 0; i < HELP_COUNT(rows); i++) {
        DltYaml *root = NULL;
        dlt_err_init(&h->err);
        DltStatus status =
            dlt_config_load_text(h->arena, "t.yaml", text, 1, &rows[i].word, &root, &h->err);
        if ((status == DLT_OK) != (rows[i].path != NULL)) fail_msg("%s: %d", rows[i].word, status);
        if (status != DLT_OK) continue;
        const DltYaml *value = dlt_yaml_find(root, rows[i].path);
        if (value == NULL || strcmp(value->text, rows[i].want) != 0) fail_msg("%s", rows[i].word);
    }
    DltYaml *root = NULL;
    assert_int_equal(
        dlt_config_load_text(h->arena, "t.yaml", "extends: base.yaml\n", 0, NULL, &root, &h->err),
        DLT_E_CONFIG);
}

/* A path's end that fits more places than are shown. */
static void ambiguous_overrides(void **state)
{
    static const char text[] = "a: {k: 1}\nb: {k: 1}\nc: {k: 1}\nd: {k: 1}\ne: {k: 1}\nf: {k: 1}\n"
                               "g: {k: 1}\nword: x\nquoted: \"y\"\n";
    static const char *const words[] = {"k=2", "word.x=1", "quoted.y=1", "quoted.z=1", "word.xy=1"};
    static const DltStatus want[] = {DLT_E_CONFIG, DLT_OK, DLT_E_CONFIG, DLT_E_CONFIG,
                                     DLT_E_CONFIG};
    Help *h = *state;
    for (size_t i = 0; i < HELP_COUNT(words); i++) {
        DltYaml *root = NULL;
        dlt_err_init(&h->err);
        DltStatus status =
            dlt_config_load_text(h->arena, "t.yaml", text, 1, &words[i], &root, &h->err);
        if (status != want[i]) fail_msg("%s: %d", words[i], (int)status);
        if (i == 0) assert_non_null(strstr(h->err.report[0].text, "a.k, b.k, c.k, d.k, e.k, ..."));
    }
}

static void half_open_ranges(void **state)
{
    static const struct {
        DltField f;
        const char *want;
    } rows[] = {
        {{.lo = 0, .hi = INFINITY}, ">= 0"},
        {{.lo = 0, .hi = INFINITY, .open_lo = true}, "> 0"},
        {{.lo = -INFINITY, .hi = 1}, "<= 1"},
        {{.lo = -INFINITY, .hi = 1, .open_hi = true}, "< 1"},
        {{.lo = -1, .hi = 1, .open_lo = true, .open_hi = true}, "(-1, 1)"},
        {{.lo = 0, .hi = 0}, ""},
    };
    char text[DLT_RANGE_TEXT];
    (void)state;
    for (size_t i = 0; i < HELP_COUNT(rows); i++)
        assert_string_equal(dlt_field_range(&rows[i].f, text), rows[i].want);
}

typedef struct Edge {
    DltFloats list;
    DltDims dims;
    DltStrs words;
    DltSpan span;
    int64_t size;
} Edge;
static const DltField edge_fields[] = {
    DLT_FLOATS(Edge, list, .main = true, .lo = 0, .hi = 1),
    DLT_DIMS(Edge, dims, .help = "any"),
    DLT_STRS(Edge, words, .help = "any"),
    DLT_SPAN(Edge, span, .lo = 1, .hi = 10),
    DLT_SIZE(Edge, size, .help = "any"),
    DLT_FIELDS_END,
};

static void lists_and_units(void **state)
{
    static const struct {
        const char *text;
        int n_report;
    } rows[] = {
        {"list: []", 1},
        {"list: [0, 2, x]", 2},
        {"list: {a: 1}", 1},
        {"dims: []", 1},
        {"dims: [1, 2, 3, 4, 5, 6, 7]", 1},
        {"dims: [1, x, 2.5]", 2},
        {"words: [a, [b], {c: d}]", 2},
        {"words: 'a,,b'", 1},
        {"words: {a: b}", 1},
        {"span: [1]", 1},
        {"span: 11 steps", 1},
        {"span:", 1},
        {"size: [1]", 1},
        {"size: 0 B", 0},
        {"size: 1024 B", 0},
        {"words: 'a , b'", 0},
        {"[0, 1]", 0},
        {"a:b", 1},
        {"dims: [x, y]", 2},
        {"list: [x, y]", 2},
        {"size: 4096 TiB", 0},
        {"size: 3 TiB", 0},
        {"lists: 1", 1},
        {"{list: 1, lisst: 1}", 1},
    };
    Help *h = *state;
    for (size_t i = 0; i < HELP_COUNT(rows); i++) {
        DltYaml *root = help_parse(h, rows[i].text);
        DltOpts o;
        DltStatus status = dlt_schema_read(h->arena, edge_fields, sizeof(Edge), root,
                                           (DltWhere){NULL, root->at}, &o, &h->err);
        if ((status == DLT_OK) != (rows[i].n_report == 0) || h->err.n != rows[i].n_report)
            fail_msg("%s: %d reports", rows[i].text, h->err.n);
        if (status == DLT_OK) assert_non_null(dlt_schema_resolved(h->arena, &o));
    }
}

/* Tables without rows, and what `explain` prints of a row that has everything. */
static void tables_without_rows_and_full_rows(void **state)
{
    static const DltField full[] = {
        DLT_INT(Edge, size, .required = true, .lo = 1, .hi = 9, .unit = "bytes", .help = "why",
                .example = "size: 3"),
        DLT_FIELDS_END,
    };
    Help *h = *state;
    DltOpts o;
    DltYaml *root = help_parse(h, "[1]");
    assert_int_equal(
        dlt_schema_read(h->arena, NULL, 0, root, (DltWhere){"x", root->at}, &o, &h->err),
        DLT_E_CONFIG);
    assert_int_equal(
        dlt_schema_read(h->arena, NULL, 0, NULL, (DltWhere){"x", root->at}, &o, &h->err), DLT_OK);
    char text[200] = "";
    FILE *out = fmemopen(text, sizeof text, "w");
    dlt_schema_explain(full, out);
    fclose(out);
    assert_string_equal(text,
                        "  size  an integer of bytes, [1, 9], required: why (example: size: 3)\n");
}

/* Whatever a text holds, it is written so that YAML reads it back. */
static void odd_characters_come_back(void **state)
{
    static const char *const texts[] = {"\xc2\x85",
                                        "\xe2\x80\xa8",
                                        "\xe2\x80\xa9",
                                        "\xef\xbb\xbf",
                                        "a\x7f",
                                        "\xc2\xa0",
                                        "\xf0\x9f\x98\x80",
                                        "\x01\x1f",
                                        "-",
                                        "- a",
                                        "-1",
                                        "--",
                                        "...",
                                        ".5",
                                        "~",
                                        "a ",
                                        " a",
                                        "a: b",
                                        "#",
                                        "a #b",
                                        "!x",
                                        "\"",
                                        "\\",
                                        "'",
                                        "{",
                                        "]",
                                        "@",
                                        "%",
                                        "*a",
                                        "&a",
                                        "|",
                                        ">",
                                        "?",
                                        ",",
                                        "null",
                                        "\t",
                                        "a\tb",
                                        "\xc3\xa9"};
    Help *h = *state;
    for (size_t i = 0; i < HELP_COUNT(texts); i++) {
        DltYaml *map = dlt_yaml_map(h->arena, DLT_NO_MARK),
                *list = dlt_yaml_list(h->arena, DLT_NO_MARK);
        dlt_yaml_append(h->arena, list, dlt_yaml_scalar(h->arena, texts[i], DLT_NO_MARK));
        dlt_yaml_put(h->arena, map, "list", DLT_NO_MARK, list);
        dlt_yaml_put(h->arena, map, "text", DLT_NO_MARK,
                     dlt_yaml_scalar(h->arena, texts[i], DLT_NO_MARK));
        DltYaml *back = help_parse(h, dlt_yaml_write(h->arena, map));
        assert_string_equal(dlt_yaml_get(back, "text")->text, texts[i]);
        assert_string_equal(dlt_yaml_get(back, "list")->item[0]->text, texts[i]);
    }
}

static void long_words_are_not_near(void **state)
{
    static const char *const list[] = {"relu", NULL};
    char word[600];
    (void)state;
    memset(word, 'x', sizeof word);
    word[599] = '\0';
    assert_null(dlt_nearest(word, list));
    assert_int_equal(dlt_edit_distance(word, word), 0);
    assert_true(dlt_edit_distance(word, "relu") > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HELP_TEST(expressions),
        HELP_TEST(overrides_that_lead_nowhere),
        HELP_TEST(ambiguous_overrides),
        HELP_TEST(tables_without_rows_and_full_rows),
        HELP_TEST(half_open_ranges),
        HELP_TEST(lists_and_units),
        HELP_TEST(odd_characters_come_back),
        HELP_TEST(long_words_are_not_near),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
