/* Field tables: 60 spellings by six types, each type good, too low, too high and of wrong kind,
 * required keys, main arguments, defaults, resolved values. */
#include "config_help.h"

typedef struct All {
    bool flag;
    int64_t count, memory;
    double rate;
    int pad;
    const char *name;
    DltDims kernel;
    DltFloats betas;
    DltStrs metrics;
    DltSpan span;
    const DltYaml *body;
} All;

static const DltEnum pads[] = {{"same", 3}, {"valid", 5}, {NULL, 0}};

static const DltField all_fields[] = {
    DLT_INT(All, count, .main = true, .lo = 1, .hi = 100, .help = "things to make"),
    DLT_BOOL(All, flag, .def = "true"),
    DLT_FLOAT(All, rate, .def = "1e-3", .open_lo = true, .hi = 10),
    DLT_ENUM(All, pad, .def = "valid", .choices = pads),
    DLT_STR(All, name, .def = ""),
    DLT_DIMS(All, kernel, .def = "[3, 5]", .lo = 1, .hi = 99),
    DLT_FLOATS(All, betas, .def = "[0.9, 0.999]", .hi = 1, .open_hi = true),
    DLT_STRS(All, metrics, .def = "loss, top1"),
    DLT_SPAN(All, span, .def = "5 epochs", .hi = 1e12),
    DLT_SIZE(All, memory, .def = "2 GiB", .lo = 1024, .hi = 0x1p50),
    DLT_TREE(All, body, .help = "any"),
    DLT_FIELDS_END,
};

/* The same without bounds: the table of spellings is about texts. */
static const DltField loose_fields[] = {
    DLT_INT(All, count, .help = "any"),
    DLT_FLOAT(All, rate, .help = "any"),
    DLT_BOOL(All, flag, .help = "any"),
    DLT_STR(All, name, .help = "any"),
    DLT_SPAN(All, span, .help = "any"),
    DLT_SIZE(All, memory, .help = "any"),
    DLT_FIELDS_END,
};

static DltStatus read_text(Help *h, const DltField *fields, const char *text, DltOpts *o)
{
    DltYaml *root = help_parse(h, text);
    return dlt_schema_read(h->arena, fields, sizeof(All), root, (DltWhere){"", root->at}, o,
                           &h->err);
}

/* ---- spellings ---------------------------------------------------------------------------- */

/* What each type makes of a text, as the resolved config writes it; NULL: an error. A text is always
 * kept as typed. */
static const struct {
    const char *text, *integer, *number, *boolean, *span, *size;
} spellings[] = {
    {"0", "0", "0", NULL, NULL, NULL},
    {"1", "1", "1", NULL, NULL, NULL},
    {"-1", "-1", "-1", NULL, NULL, NULL},
    {"+5", "5", "5", NULL, NULL, NULL},
    {"010", "10", "10", NULL, NULL, NULL},
    {"0777", "777", "777", NULL, NULL, NULL},
    {"08", "8", "8", NULL, NULL, NULL},
    {"\"7\"", "7", "7", NULL, NULL, NULL},
    {"9223372036854775807", "9223372036854775807", "9.22337203685478e+18", NULL, NULL, NULL},
    {"9223372036854775808", NULL, "9.22337203685478e+18", NULL, NULL, NULL},
    {"1e4", "10000", "10000", NULL, NULL, NULL},
    {"2.5e3", "2500", "2500", NULL, NULL, NULL},
    {"2.5e0", NULL, "2.5", NULL, NULL, NULL},
    {"1e20", NULL, "1e+20", NULL, NULL, NULL},
    {"2e-5", NULL, "2e-05", NULL, NULL, NULL},
    {"2E-5", NULL, "2e-05", NULL, NULL, NULL},
    {"2.e-5", NULL, "2e-05", NULL, NULL, NULL},
    {".00002", NULL, "2e-05", NULL, NULL, NULL},
    {"+2e-5", NULL, "2e-05", NULL, NULL, NULL},
    {"2.0e-05", NULL, "2e-05", NULL, NULL, NULL},
    {"\"2e-5\"", NULL, "2e-05", NULL, NULL, NULL},
    {"0.1", NULL, "0.1", NULL, NULL, NULL},
    {".1", NULL, "0.1", NULL, NULL, NULL},
    {"1.", NULL, "1", NULL, NULL, NULL},
    {"64.0", NULL, "64", NULL, NULL, NULL},
    {"1/3", NULL, "0.333333333333333", NULL, NULL, NULL},
    {"1 / 4", NULL, "0.25", NULL, NULL, NULL},
    {"1/0", NULL, NULL, NULL, NULL, NULL},
    {"1/2/3", NULL, NULL, NULL, NULL, NULL},
    {"2e", NULL, NULL, NULL, NULL, NULL},
    {"2e-5x", NULL, NULL, NULL, NULL, NULL},
    {"2,5", NULL, NULL, NULL, NULL, NULL},
    {"0.1.2", NULL, NULL, NULL, NULL, NULL},
    {"1e999", NULL, NULL, NULL, NULL, NULL},
    {"1e-999", NULL, NULL, NULL, NULL, NULL},
    {".nan", NULL, NULL, NULL, NULL, NULL},
    {"nan", NULL, NULL, NULL, NULL, NULL},
    {"inf", NULL, NULL, NULL, NULL, NULL},
    {"-.inf", NULL, NULL, NULL, NULL, NULL},
    {"1_000", NULL, NULL, NULL, NULL, NULL},
    {"0x10", NULL, NULL, NULL, NULL, NULL},
    {"0b1", NULL, NULL, NULL, NULL, NULL},
    {"12:30", NULL, NULL, NULL, NULL, NULL},
    {"\"1 \"", NULL, NULL, NULL, NULL, NULL},
    {".", NULL, NULL, NULL, NULL, NULL},
    {"\"-\"", NULL, NULL, NULL, NULL, NULL},
    {"true", NULL, NULL, "true", NULL, NULL},
    {"false", NULL, NULL, "false", NULL, NULL},
    {"True", NULL, NULL, NULL, NULL, NULL},
    {"yes", NULL, NULL, NULL, NULL, NULL},
    {"no", NULL, NULL, NULL, NULL, NULL},
    {"on", NULL, NULL, NULL, NULL, NULL},
    {"off", NULL, NULL, NULL, NULL, NULL},
    {"~", NULL, NULL, NULL, NULL, NULL},
    {"null", NULL, NULL, NULL, NULL, NULL},
    {"50 epochs", NULL, NULL, NULL, "50 epochs", NULL},
    {"1 epoch", NULL, NULL, NULL, "1 epochs", NULL},
    {"0.5 epochs", NULL, NULL, NULL, "0.5 epochs", NULL},
    {"700steps", NULL, NULL, NULL, "700 steps", NULL},
    {"10.5 steps", NULL, NULL, NULL, NULL, NULL},
    {"1e9 tokens", NULL, NULL, NULL, "1000000000 tokens", NULL},
    {"30 min", NULL, NULL, NULL, "1800 s", NULL},
    {"1.5 h", NULL, NULL, NULL, "5400 s", NULL},
    {"5%", NULL, NULL, NULL, "5%", NULL},
    {"5 %", NULL, NULL, NULL, "5%", NULL},
    {"-5 steps", NULL, NULL, NULL, NULL, NULL},
    {"5 weeks", NULL, NULL, NULL, NULL, NULL},
    {"steps", NULL, NULL, NULL, NULL, NULL},
    {"2 GiB", NULL, NULL, NULL, NULL, "2 GiB"},
    {"1.5 KiB", NULL, NULL, NULL, NULL, "1536 B"},
    {"3 kB", NULL, NULL, NULL, NULL, "3000 B"},
    {"7B", NULL, NULL, NULL, NULL, "7 B"},
    {"0.3 KiB", NULL, NULL, NULL, NULL, NULL},
    {"2 gib", NULL, NULL, NULL, NULL, NULL},
    {"-2 GiB", NULL, NULL, NULL, NULL, NULL},
    {"9e9 TiB", NULL, NULL, NULL, NULL, NULL},
};

static void check_spelling(Help *h, const char *key, const char *text, const char *want)
{
    DltOpts o;
    DltStatus status =
        read_text(h, loose_fields, dlt_arena_printf(h->arena, "%s: %s", key, text), &o);
    if (want == NULL) {
        if (status == DLT_OK) fail_msg("%s: %s was accepted", key, text);
        assert_int_equal(h->err.n, 1);
        assert_int_equal(h->err.report[0].at.col, strlen(key) + 3);
        return;
    }
    if (status != DLT_OK) fail_msg("%s: %s: %s", key, text, h->err.report[0].text);
    const DltYaml *value = dlt_yaml_get(dlt_schema_resolved(h->arena, &o), key);
    if (strcmp(value->text, want) != 0)
        fail_msg("%s: %s is %s, not %s", key, text, value->text, want);
}

static void spellings_by_type(void **state)
{
    Help *h = *state;
    assert_true(HELP_COUNT(spellings) >= 60);
    for (size_t i = 0; i < HELP_COUNT(spellings); i++) {
        const char *text = spellings[i].text;
        check_spelling(h, "count", text, spellings[i].integer);
        check_spelling(h, "flag", text, spellings[i].boolean);
        check_spelling(h, "span", text, spellings[i].span);
        check_spelling(h, "memory", text, spellings[i].size);
        size_t n = strlen(text), quote = text[0] == '"';
        check_spelling(h, "name", text, dlt_arena_strn(h->arena, text + quote, n - 2 * quote));
    }
}

/* All good spellings of one number are one number, bit for bit. */
static void numbers_are_read_exactly(void **state)
{
    for (size_t i = 0; i < HELP_COUNT(spellings); i++) {
        const char *text = spellings[i].text, *want = spellings[i].number;
        DltOpts o;
        DltStatus status = read_text(
            *state, loose_fields, dlt_arena_printf(((Help *)*state)->arena, "rate: %s", text), &o);
        if ((status == DLT_OK) != (want != NULL)) fail_msg("%s", text);
        if (want == NULL) continue;
        double rate = ((const All *)o.v)->rate, expected = strtod(want, NULL);
        if (strncmp(want, "0.333", 5) == 0) expected = 1.0 / 3.0;
        if (strncmp(want, "9.22", 4) == 0) expected = 0x1p63;
        if (memcmp(&rate, &expected, sizeof rate) != 0) fail_msg("%s: %a", text, rate);
    }
}

/* ---- each type ---------------------------------------------------------------------------- */

static const struct {
    const char *text, *words; /* NULL: accepted */
    int col;
} values[] = {
    {"count: 1", NULL, 0},
    {"count: 100", NULL, 0},
    {"count: 0", "count: 0 is out of range [1, 100]", 8},
    {"count: 101", "count: 101 is out of range [1, 100]", 8},
    {"count: [1]", "expects an integer, not a list", 8},
    {"count: {a: 1}", "expects an integer, not a map", 8},
    {"count:", "has no value; it expects an integer", 7},
    {"count: ''", "'' is not an integer", 8},
    {"count: 64.0", "it must be whole and is written without a point", 8},
    {"count: 1_0", "digits are written without '_'", 8},
    {"rate: 10", NULL, 0},
    {"rate: 1e-300", NULL, 0},
    {"rate: 0", "rate: 0 is out of range (0, 10]", 7},
    {"rate: 10.5", "rate: 10.5 is out of range (0, 10]", 7},
    {"rate: [1]", "expects a number, not a list", 7},
    {"rate: 2,5", "the decimal sign is a point", 7},
    {"rate: .inf", "it must be finite", 7},
    {"flag: no", "'no' is not a boolean; write false", 7},
    {"flag: On", "'On' is not a boolean; write true", 7},
    {"flag: maybe", "write true or false", 7},
    {"flag: [true]", "not a list", 7},
    {"pad: same", NULL, 0},
    {"pad: sam", "'sam' is not one of same, valid; did you mean 'same'?", 6},
    {"pad: Same", "did you mean 'same'?", 6},
    {"pad: zero", "'zero' is not one of same, valid", 6},
    {"pad: [same]", "not a list", 6},
    {"name: no", NULL, 0},
    {"name: ''", NULL, 0},
    {"name:", "has no value", 6},
    {"name: [a]", "expects a text, not a list", 7},
    {"kernel: 3", NULL, 0},
    {"kernel: [1, 2, 3, 4, 5, 6]", NULL, 0},
    {"kernel: [1, 2, 3, 4, 5, 6, 7]", "7 values; at most 6", 9},
    {"kernel: []", "the list is empty", 9},
    {"kernel: [3, 0]", "0 is out of range [1, 99]", 13},
    {"kernel: [3, 100]", "100 is out of range", 13},
    {"kernel: 3x3", "'3x3' is not an integer", 9},
    {"kernel: [[3]]", "not a list", 10},
    {"betas: 0.5", NULL, 0},
    {"betas: [0, 0.999]", NULL, 0},
    {"betas: [0.9, 1]", "1 is out of range [0, 1)", 14},
    {"betas: [-0.1]", "-0.1 is out of range [0, 1)", 9},
    {"betas: [a]", "'a' is not a number", 9},
    {"betas: {a: 1}", "not a map", 8},
    {"metrics: a", NULL, 0},
    {"metrics: []", NULL, 0},
    {"metrics: 'a, b'", NULL, 0},
    {"metrics: 'a,, b'", "an empty word", 10},
    {"metrics: [a, [b]]", "not a list", 14},
    {"span: 1e12 tokens", NULL, 0},
    {"span: 2e12 tokens", "2e12 tokens is out of range [0, 1000000000000]", 7},
    {"span: 50", "'50' has no unit; write a number and one of: steps, epochs, tokens", 7},
    {"span: soon", "'soon' is no duration", 7},
    {"span: [1 s]", "not a list", 7},
    {"memory: 1 KiB", NULL, 0},
    {"memory: 1 B", "1 B is out of range [1024,", 9},
    {"memory: 2048 TiB", "2048 TiB is out of range", 9},
    {"memory: 2", "'2' has no unit; write a number and one of: B, KiB", 9},
    {"memory: 2 GB/s", "is no size", 9},
    {"body: [a, {b: c}]", NULL, 0},
    {"body: word", NULL, 0},
    {"body:", "has no value", 6},
    {"x-note: [anything, {goes: here}]", NULL, 0},
};

static void each_type_is_checked(void **state)
{
    Help *h = *state;
    for (size_t i = 0; i < HELP_COUNT(values); i++) {
        DltOpts o;
        DltStatus status = read_text(h, all_fields, values[i].text, &o);
        const DltReport *report = &h->err.report[0];
        if (values[i].words == NULL) {
            if (status != DLT_OK) fail_msg("%s: %s", values[i].text, report->text);
            continue;
        }
        assert_int_equal(status, DLT_E_CONFIG);
        assert_int_equal(h->err.n, 1);
        if (strstr(report->text, values[i].words) == NULL)
            fail_msg("%s: %s", values[i].text, report->text);
        if (report->at.col != values[i].col)
            fail_msg("%s: column %d", values[i].text, report->at.col);
    }
}

static void values_arrive_in_their_members(void **state)
{
    DltOpts o;
    DltStatus status =
        read_text(*state, all_fields,
                  "{count: 7, flag: false, rate: 0.5, pad: same, name: n, kernel: [1, 2], "
                  "betas: [0.25], metrics: 'a, b c ,d', span: 2 min, memory: 4 KiB, body: {k: v}}",
                  &o);
    assert_int_equal(status, DLT_OK);
    const All *v = o.v;
    assert_true(v->count == 7 && !v->flag && v->rate == 0.5 && v->pad == 3);
    assert_string_equal(v->name, "n");
    assert_true(v->kernel.n == 2 && v->kernel.v[0] == 1 && v->kernel.v[1] == 2);
    assert_true(v->betas.n == 1 && v->betas.v[0] == 0.25);
    assert_int_equal(v->metrics.n, 3);
    assert_string_equal(v->metrics.v[1], "b c");
    assert_string_equal(v->metrics.v[2], "d");
    assert_true(v->span.n == 120 && v->span.unit == DLT_U_SECONDS);
    assert_true(v->memory == 4096);
    assert_string_equal(dlt_yaml_get(v->body, "k")->text, "v");
    assert_true(dlt_opts_given(&o, offsetof(All, rate)));
    assert_int_equal(dlt_opts_mark(&o, offsetof(All, flag)).col, 18);
}

static void defaults_go_through_the_same_parser(void **state)
{
    Help *h = *state;
    DltOpts o;
    DltMark at = {.file = "c.yaml", .line = 4, .col = 2};
    assert_int_equal(
        dlt_schema_read(h->arena, all_fields, sizeof(All), NULL, (DltWhere){"x", at}, &o, &h->err),
        DLT_OK);
    const All *v = o.v;
    assert_true(v->count == 0 && v->flag && v->rate == 1e-3 && v->pad == 5 && v->body == NULL);
    assert_true(v->kernel.n == 2 && v->kernel.v[1] == 5 && v->betas.n == 2 && v->metrics.n == 2);
    assert_true(v->memory == (int64_t)2 << 30 && v->span.unit == DLT_U_EPOCHS);
    assert_string_equal(v->name, "");
    assert_false(dlt_opts_given(&o, offsetof(All, rate)));
    assert_int_equal(dlt_opts_mark(&o, offsetof(All, rate)).line, 4);
    assert_string_equal(
        help_text(h, dlt_schema_resolved(h->arena, &o)),
        "flag: true\nrate: 0.001\npad: valid\nname: \"\"\nkernel: [3, 5]\nbetas: [0.9, 0.999]\n"
        "metrics: [loss, top1]\nspan: 5 epochs\nmemory: 2 GiB");
}

/* Whoever reads on after an error, to report more, meets defaults and no half-read values. */
static void refused_values_leave_the_default(void **state)
{
    static const char text[] =
        "{count: 0, flag: no, rate: 11, pad: x, name: [], kernel: [1, 0], betas: [0, x], "
        "metrics: [a, {b: c}], span: 1, memory: 1 B}";
    DltOpts o;
    assert_int_equal(read_text(*state, all_fields, text, &o), DLT_E_CONFIG);
    assert_int_equal(((Help *)*state)->err.n, 10);
    const All *v = o.v;
    assert_true(v->count == 0 && v->flag && v->rate == 1e-3 && v->pad == 5);
    assert_true(v->kernel.n == 2 && v->kernel.v[0] == 3 && v->betas.n == 2 && v->betas.v[0] == 0.9);
    assert_int_equal(v->metrics.n, 2);
    assert_string_equal(v->metrics.v[1], "top1");
    assert_true(v->span.unit == DLT_U_EPOCHS && v->memory == (int64_t)2 << 30);
    assert_string_equal(v->name, "");
}

/* Reading what was resolved gives the same again. */
static void resolved_configs_are_fixed_points(void **state)
{
    Help *h = *state;
    DltOpts o, again;
    const char *text = "{count: 1e1, rate: 1/3, kernel: 7, betas: 0.1, metrics: a, span: 1.5 d, "
                       "body: [x, {y: z}]}";
    assert_int_equal(read_text(h, all_fields, text, &o), DLT_OK);
    const char *resolved = dlt_yaml_write(h->arena, dlt_schema_resolved(h->arena, &o));
    assert_int_equal(read_text(h, all_fields, resolved, &again), DLT_OK);
    assert_string_equal(dlt_yaml_write(h->arena, dlt_schema_resolved(h->arena, &again)), resolved);
    double third = ((const All *)again.v)->rate, expected = 1.0 / 3.0;
    assert_memory_equal(&third, &expected, sizeof third);
}

static void all_errors_come_at_once(void **state)
{
    static const DltField fields[] = {DLT_INT(All, count, .required = true),
                                      DLT_FLOAT(All, rate, .help = "any"),
                                      DLT_STR(All, name, .required = true), DLT_FIELDS_END};
    Help *h = *state;
    DltOpts o;
    DltYaml *root = help_parse(h, "{rate: x, nam: y}");
    DltStatus status = dlt_schema_read(h->arena, fields, sizeof(All), root,
                                       (DltWhere){"m[3].t", root->at}, &o, &h->err);
    assert_int_equal(status, DLT_E_CONFIG);
    assert_int_equal(h->err.n, 3); /* 'name' is not called missing, for 'nam' means it */
    assert_string_equal(h->err.report[0].text, "m[3].t.rate: 'x' is not a number");
    assert_string_equal(h->err.report[1].text,
                        "m[3].t: unknown key 'nam'; did you mean 'name'? known: count, rate, name");
    assert_string_equal(h->err.report[2].text, "m[3].t: 'count' is required (an integer)");
}

static void main_arguments(void **state)
{
    Help *h = *state;
    DltOpts o;
    assert_int_equal(read_text(h, all_fields, "64", &o), DLT_OK);
    assert_true(((const All *)o.v)->count == 64);
    assert_true(dlt_opts_given(&o, offsetof(All, count)));
    assert_int_equal(read_text(h, all_fields, "[64]", &o), DLT_E_CONFIG);
    assert_int_equal(read_text(h, all_fields, "{}", &o), DLT_OK);
    static const DltField no_main[] = {DLT_BOOL(All, flag, .help = "any"), DLT_FIELDS_END};
    assert_int_equal(read_text(h, no_main, "flag:true", &o), DLT_E_CONFIG);
    assert_string_equal(
        h->err.report[0].text,
        "expects 'key: value' lines, not a text; is there a blank after the colon?");
    DltYaml *nothing = dlt_yaml_scalar(h->arena, "", DLT_NO_MARK);
    dlt_err_init(&h->err);
    assert_int_equal(
        dlt_schema_read(h->arena, NULL, 0, nothing, (DltWhere){"relu", DLT_NO_MARK}, &o, &h->err),
        DLT_OK);
    assert_int_equal(read_text(h, NULL, "{a: 1}", &o), DLT_E_CONFIG);
}

static void explain_tells_all_of_a_row(void **state)
{
    (void)state;
    char text[4096];
    FILE *out = fmemopen(text, sizeof text, "w");
    assert_non_null(out);
    dlt_schema_explain(all_fields, out);
    fclose(out);
    assert_non_null(strstr(text, "count    an integer, [1, 100], main argument: things to make\n"));
    assert_non_null(strstr(text, "rate     a number, (0, 10], default 1e-3\n"));
    assert_non_null(strstr(text, "pad      one of same, valid, default valid\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HELP_TEST(spellings_by_type),
        HELP_TEST(numbers_are_read_exactly),
        HELP_TEST(each_type_is_checked),
        HELP_TEST(values_arrive_in_their_members),
        HELP_TEST(defaults_go_through_the_same_parser),
        HELP_TEST(refused_values_leave_the_default),
        HELP_TEST(resolved_configs_are_fixed_points),
        HELP_TEST(all_errors_come_at_once),
        HELP_TEST(main_arguments),
        HELP_TEST(explain_tells_all_of_a_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
