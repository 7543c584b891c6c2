/* The YAML reader: what is refused and where (RELIABILITY, section 2.6), what means the same, marks,
 * merge keys, limits, time. */
#include "config_help.h"

#include "base/text.h"
#include <time.h>

static DltStatus parse_bytes(Help *h, const char *bytes, size_t n, DltYaml **root)
{
    dlt_err_init(&h->err);
    return dlt_yaml_parse(h->arena, "t.yaml", bytes, (int64_t)n, root, &h->err);
}

static const struct {
    const char *text, *words;
    int line, col;
} refused[] = {
    {"", "the file is empty", 0, 0},
    {"# only a comment\n", "the file is empty", 0, 0},
    {"\n\n\n", "the file is empty", 0, 0},
    {"a: 1\nb: 2\na: 3\n", "duplicate key 'a': first written at line 1", 3, 1},
    {"a: {lr: 1, x: 2, lr: 3}", "duplicate key 'lr': first written at line 1", 1, 18},
    {"a:\n  lr: 1\n  'lr': 3\n", "duplicate key 'lr': first written at line 2", 3, 3},
    {"a:\n  lr: 1\n  \"l\\x72\": 3\n", "duplicate key 'lr'", 3, 3},
    {"? a\n: 1\n? a\n: 2\n", "duplicate key 'a'", 3, 3},
    {"b: &b {lr: 1}\nt: {<<: *b, lr: 2}\n", "through '<<', at line 1", 2, 5},
    {"b: &b {lr: 1}\nt: {lr: 2, <<: *b}\n", "written at line 2 and, through '<<', at line 1", 2,
     12},
    {"b: &b {lr: 1}\nt: {<<: [*b, *b]}\n", "duplicate key 'lr'", 2, 5},
    {"b: &b {lr: 1}\nc: &c {x: 1}\nt: {<<: *b, <<: *c}\n", "duplicate key '<<'", 3, 13},
    {"a: {<<: 3}\n", "'<<' merges a map", 1, 5},
    {"a: {<<: [3]}\n", "'<<' merges a map", 1, 5},
    {"a:\n\tb: 1\n", "line 2 is indented with a tab; YAML wants spaces", 2, 1},
    {"a:\n  b: 1\n\tc: 2\n", "line 3 is indented with a tab", 3, 1},
    {"a:\n  \tb: 1\n", "line 2 is indented with a tab", 2, 3},
    {"- a\n\t- b\n", "line 2 is indented with a tab", 2, 1},
    {"a: x\n\ty\n", "line 2 is indented with a tab", 2, 1},
    {"train:\n  a: 1\n  lr:0.1\n  b: 2\n", "write 'key: value', with a blank", 3, 3},
    {"a: 1\nlr:0.1 # c\nb: 2\n", "write 'key: value', with a blank", 2, 1},
    {"a:\n  lr:0.1\n  b: 2\n", "write 'key: value', with a blank", 2, 3},
    {"a: x:y\n  b: 2\n", "needs quotes", 2, 4},
    {"lr:0.1\nb: 2\n", "write 'key: value', with a blank", 1, 1},
    {"a: b: c\n", "needs quotes", 1, 5},
    {"a:\n  b: 1\n c: 2\n", "same indentation", 3, 2},
    {"a:\n- 1\nb 2\nc: 3\n", "write 'key: value'", 3, 1},
    {"a: [1, 2\nb: 3\n", "closing ']' is missing", 2, 2},
    {"a: {b: 1\nc: 3\n", "closing '}' is missing", 2, 2},
    {"a: [1, 2]]\n", "same indentation", 1, 10},
    {"a: \"x\nb: 1\n", "the closing quote is missing", 1, 4},
    {"a: 'x\nb: 1\n", "the closing quote is missing", 1, 4},
    {"a: 'x' y\n", "same indentation", 1, 8},
    {"a: *.bias\n", "begins with '*' or '&' needs quotes", 1, 5},
    {"a: @x\n", "begins with this character needs quotes", 1, 4},
    {"a: `x`\n", "begins with this character needs quotes", 1, 4},
    {"a: %x\n", "begins with this character needs quotes", 1, 4},
    {"a: - 1\n", "a list begins on a line of its own", 1, 4},
    {"a: 1\n---\nb: 2\n", "a second document begins here", 2, 1},
    {"a: 1\n...\n---\nb: 2\n", "a second document begins here", 3, 1},
    {"{}{}", "the document ends before this", 1, 3},
    {"a: &a [*a]\n", "recursive alias: '*a' stands inside '&a'", 1, 8},
    {"a: &a {b: {c: *a}}\n", "recursive alias", 1, 15},
    {"a: *b\n", "unknown alias '*b'", 1, 4},
    {"a: *b\nc: &b 1\n", "unknown alias '*b'", 1, 4},
    {"a: !!int 3\n", "unknown tag '!!int': the only tag is !replace", 1, 4},
    {"a: !foo 3\n", "unknown tag '!foo'", 1, 4},
    {"a: !replace 3\n", "!replace stands before a map", 1, 4},
    {"a: !replace [3]\n", "!replace stands before a map", 1, 4},
    {"? [a]\n: 1\n", "a key must be a word, not a list", 1, 3},
    {"? {a: 1}\n: 1\n", "a key must be a word, not a map", 1, 3},
    {": 1\n", "", 1, 1},
    {"'': 1\n", "an empty key", 1, 1},
    {"a: \"x\\0y\"\n", "NUL character", 1, 4},
    {"\"x\\0y\": 1\n", "NUL character", 1, 1},
    {"a: 1\nb: \xff\n", "not a text file in UTF-8: invalid leading UTF-8 octet (byte 8)", 2, 4},
    {"a: \xc3(\n", "not a text file in UTF-8", 1, 5},
    {"a: \xed\xa0\x80\n", "not a text file in UTF-8", 1, 4},
    {"a: 1\nb: x\x01y\n", "control characters are not allowed (byte 9)", 2, 5},
    {"\xef\xbb\xbf"
     "a: \x7f\n",
     "control characters", 1, 4},
    {"\x89PNG\r\n\x1a\n", "not a text file in UTF-8", 1, 1},
    {"%FOO bar\na: 1\n", "unknown directive", 1, 5},
    {"%YAML 3.0\n---\na: 1\n", "incompatible", 1, 1},
};

static void faults_are_refused_at_their_place(void **state)
{
    Help *h = *state;
    for (size_t i = 0; i < HELP_COUNT(refused); i++) {
        DltYaml *root = NULL;
        DltStatus status = parse_bytes(h, refused[i].text, strlen(refused[i].text), &root);
        const DltReport *report = &h->err.report[0];
        if (status != DLT_E_CONFIG || h->err.n == 0) fail_msg("accepted: %s", refused[i].text);
        bool right = strstr(report->text, refused[i].words) != NULL &&
                     report->at.line == refused[i].line &&
                     (report->at.line == 0 || report->at.col == refused[i].col);
        if (!right) {
            fail_msg("%s\ngave %d:%d: %s", refused[i].text, report->at.line, report->at.col,
                     report->text);
        }
        assert_string_equal(report->at.file, "t.yaml");
    }
}

static void raw_nul_is_refused_with_its_byte(void **state)
{
    Help *h = *state;
    DltYaml *root = NULL;
    assert_int_equal(parse_bytes(h, "a: 1\nb: x\0y\n", 12, &root), DLT_E_CONFIG);
    assert_non_null(strstr(h->err.report[0].text, "NUL character (byte 9)"));
    assert_int_equal(h->err.report[0].at.line, 2);
    assert_int_equal(h->err.report[0].at.col, 5);
}

static void reports_accumulate(void **state)
{
    Help *h = *state;
    DltYaml *root = NULL;
    const char *text = "a: !x 1\nb: 1\nb: 2\nc: !replace 3\n";
    assert_int_equal(parse_bytes(h, text, strlen(text), &root), DLT_E_CONFIG);
    assert_int_equal(h->err.n, 3);
}

static void texts_stay_as_typed(void **state)
{
    Help *h = *state;
    const DltYaml *root =
        help_parse(h, "[no, 010, 12:30, 1.10, ~, 1e-5, 1_000, null, 0x1f, .5, '', "
                      "\"a\\tb\", on, $x, a#b, -, 5%]");
    static const char *const want[] = {"no",    "010",  "12:30", "1.10", "~", "1e-5",
                                       "1_000", "null", "0x1f",  ".5",   "",  "a\tb",
                                       "on",    "$x",   "a#b",   "-",    "5%"};
    assert_int_equal(root->n, HELP_COUNT(want));
    for (int i = 0; i < root->n; i++) {
        assert_string_equal(root->item[i]->text, want[i]);
        assert_int_equal(root->item[i]->quoted, i == 10 || i == 11);
    }
}

static void line_ends_and_encodings_mean_the_same(void **state)
{
    static const char lf[] = "a: 1\nb:\n  - x # c\n  - |\n    two\n    lines\nc: \"d\n  e\"\n";
    Help *h = *state;
    const char *want = help_text(h, help_parse(h, lf));
    DltText crlf = dlt_text(h->arena), cr = dlt_text(h->arena), bom = dlt_text(h->arena);
    dlt_text_add(&bom, "\xef\xbb\xbf");
    dlt_text_add(&bom, lf);
    char utf16[2 * sizeof lf];
    memcpy(utf16, "\xff\xfe", 2);
    for (size_t i = 0; i + 1 < sizeof lf; i++) {
        dlt_text_addn(&crlf, lf[i] == '\n' ? "\r\n" : &lf[i], lf[i] == '\n' ? 2 : 1);
        dlt_text_addn(&cr, lf[i] == '\n' ? "\r" : &lf[i], 1);
        utf16[2 + 2 * i] = lf[i];
        utf16[3 + 2 * i] = '\0';
    }
    const struct {
        const char *bytes;
        size_t n;
    } forms[] = {
        {crlf.bytes, crlf.n}, {cr.bytes, cr.n}, {bom.bytes, bom.n}, {utf16, 2 * sizeof lf}};
    for (size_t i = 0; i < HELP_COUNT(forms); i++) {
        DltYaml *root = NULL;
        assert_int_equal(parse_bytes(h, forms[i].bytes, forms[i].n, &root), DLT_OK);
        assert_string_equal(help_text(h, root), want);
        assert_int_equal(root->item[2]->at.line, 7);
        if (i < 3) assert_string_equal(root->item[0]->at.text, "a: 1");
    }
    help_parse(h, "a: 1\t# a tab before a comment\nb: 2\t\nc: [1,\t2]\n");
}

static void marks_point_at_values_and_keys(void **state)
{
    const DltYaml *root = help_parse(*state, "a: 1\nbc:\n  - \"xä\"\n  - {k: v}\n");
    const DltYaml *list = root->item[1];
    assert_int_equal(root->key_at[1].line, 2);
    assert_int_equal(root->key_at[1].len, 2);
    assert_int_equal(list->item[0]->at.col, 5);
    assert_int_equal(list->item[0]->at.len, 4);
    assert_int_equal(list->item[1]->item[0]->at.col, 9);
    assert_string_equal(list->item[1]->item[0]->at.text, "  - {k: v}");
    assert_string_equal(root->item[0]->at.file, "t.yaml");
}

static void aliases_and_merges_become_plain_trees(void **state)
{
    Help *h = *state;
    DltYaml *root =
        help_parse(h, "a: &x {k: [1, 2]}\nb: *x\nc: {<<: *x, m: 3}\nd: {<<: [*x, {n: 4}]}\n"
                      "e: &x 5\nf: *x\n'<<': 6\n");
    assert_string_equal(help_text(h, root),
                        "a:\n  k: [1, 2]\nb:\n  k: [1, 2]\nc:\n  m: 3\n  k: [1, 2]\n"
                        "d:\n  k: [1, 2]\n  n: 4\ne: 5\nf: 5\n\"<<\": 6");
    assert_ptr_not_equal(dlt_yaml_find(root, "a.k"), dlt_yaml_find(root, "b.k"));
}

/* ---- limits ------------------------------------------------------------------------------- */

static const char *repeat(Help *h, const char *before, const char *unit, int n, const char *after)
{
    DltText text = dlt_text(h->arena);
    dlt_text_add(&text, before);
    for (int i = 0; i < n; i++)
        dlt_text_add(&text, unit);
    dlt_text_add(&text, after);
    return text.bytes;
}

static const char *numbered(Help *h, const char *before, const char *fmt, int n, const char *after)
{
    DltText text = dlt_text(h->arena);
    dlt_text_add(&text, before);
    for (int i = 0; i < n; i++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        dlt_text_addf(&text, fmt, i, i);
#pragma GCC diagnostic pop
    }
    dlt_text_add(&text, after);
    return text.bytes;
}

static void limits_hold_on_both_sides(void **state)
{
    Help *h = *state;
    const struct {
        const char *text, *words; /* NULL: accepted */
    } rows[] = {
        {repeat(h, "", "[", 64, repeat(h, "", "]", 64, "")), NULL},
        {repeat(h, "", "[", 65, repeat(h, "", "]", 65, "")), "nested deeper than 64"},
        {repeat(
             h, "a: &a ", "[", 40,
             repeat(h, "", "]", 40, "\nb: [[[[[[[[[[[[[[[[[[[[[[[[[*a]]]]]]]]]]]]]]]]]]]]]]]]]")),
         "nested deeper than 64"},
        {repeat(h, "a: [", "x,", 49996, "]"), NULL},
        {repeat(h, "a: [", "x,", 49998, "]"), "more than 50000 values"},
        {repeat(h, "a: &a [", "x,", 100, repeat(h, "]\nb: [", "*a,", 1000, "]")),
         "more than 50000 values"},
        {numbered(h, "", "a%d: &a%d 1\n", 1000, ""), NULL},
        {numbered(h, "", "a%d: &a%d 1\n", 1001, ""), "more than 1000 anchors"},
        {repeat(h, "a: ", "x", 65536, ""), NULL},
        {repeat(h, "a: ", "x", 65537, ""), "a text of 65537 bytes; the limit is 65536"},
        {repeat(h, "", "k", 256, ": 1"), NULL},
        {repeat(h, "", "k", 257, ": 1"), "a key of more than 256 bytes"},
        {repeat(h, "a: 1\n#", "x", (1 << 20) - 6, ""), NULL},
        {repeat(h, "a: 1\n#", "x", (1 << 20) - 5, ""), "a config has at most 1048576 (1 MiB)"},
    };
    for (size_t i = 0; i < HELP_COUNT(rows); i++) {
        DltYaml *root = NULL;
        DltStatus status = parse_bytes(h, rows[i].text, strlen(rows[i].text), &root);
        if (rows[i].words == NULL && status != DLT_OK)
            fail_msg("row %zu: %s", i, h->err.report[0].text);
        if (rows[i].words == NULL) continue;
        assert_int_equal(status, DLT_E_CONFIG);
        assert_int_equal(h->err.n, 1);
        if (strstr(h->err.report[0].text, rows[i].words) == NULL) {
            fail_msg("row %zu: %s", i, h->err.report[0].text);
        }
    }
}

/* The processor time of reading a text: the least of three, for the machine may be busy. */
static double reading_s(const char *text)
{
    double least = 1e9;
    for (int i = 0; i < 3 && least > 0.01; i++) {
        Help local = {.arena = dlt_arena_new()};
        DltYaml *root = NULL;
        clock_t start = clock();
        DltStatus status = parse_bytes(&local, text, strlen(text), &root);
        double took = (double)(clock() - start) / CLOCKS_PER_SEC;
        assert_true(status == DLT_OK || status == DLT_E_CONFIG);
        least = took < least ? took : least;
        dlt_arena_free(local.arena);
    }
    return least;
}

/* Inputs of up to 1 MiB that cost others minutes. 0.1 s is the promise of RELIABILITY, 2.6; slowed
 * down builds (sanitizers, tiny arena blocks) are given twenty times as long. */
static void hostile_inputs_end_soon(void **state)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(DLT_MEAN)
    const double limit_s = 2.0;
#else
    const double limit_s = 0.1;
#endif
    static const struct {
        const char *before, *unit;
    } rows[] = {
        {"", "["},
        {"", "{a: "},
        {"", "- "},
        {"", "? "},
        {"", "a: "},
        {"", "[[1],"},
        {"{", "\"a\" : 1,"},
        {"[", ","},
        {"", ": "},
        {"", "&a "},
        {"", "!"},
        {"", "!a "},
        {"", "%"},
        {"", "%TAG ! a\n"},
        {"", "\n"},
        {"", "\r"},
        {"", "#"},
        {"", "#\n"},
        {"", "'"},
        {"a: '", "x\n\n"},
        {"a: |\n", " x\n"},
        {"a: >\n", " x\n\n"},
        {"", "a "},
        {"", "a\n"},
        {"", "*a "},
        {"", "--- \n"},
        {"", "- a\n"},
        {"", "a: 1\n"},
        {"", "- {a: 1}\n"},
        {"", "{}"},
        {"a: &a 1\nb: [", "*a,"},
        {"", "\xef\xbb\xbf"},
        {"", "\xc2\x85"},
        {"a: \"", "\\u0041"},
        {"", "-"},
        {"", "\t"},
        {"", " "},
        {"", "|"},
        {"", "a:\n "},
        {"{", "a,"},
    };
    for (size_t i = 0; i < HELP_COUNT(rows); i++) {
        Help local = {.arena = dlt_arena_new()};
        int n = (int)(((1 << 20) - strlen(rows[i].before)) / strlen(rows[i].unit));
        const char *text = repeat(&local, rows[i].before, rows[i].unit, n, "");
        double took_s = reading_s(text);
        if (took_s > limit_s)
            fail_msg("'%s%s...' took %.3f s", rows[i].before, rows[i].unit, took_s);
        dlt_arena_free(local.arena);
    }
    (void)state;
}

static void laughs_do_not_explode(void **state)
{
    Help *h = *state;
    DltText text = dlt_text(h->arena);
    dlt_text_add(&text, "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
    for (int i = 1; i < 20; i++) {
        dlt_text_addf(&text, "a%d: &a%d [", i, i);
        for (int j = 0; j < 10; j++)
            dlt_text_addf(&text, "*a%d,", i - 1);
        dlt_text_add(&text, "]\n");
    }
    DltYaml *root = NULL;
    int64_t start = dlt_sys_now_ns();
    assert_int_equal(parse_bytes(h, text.bytes, text.n, &root), DLT_E_CONFIG);
    assert_non_null(strstr(h->err.report[0].text, "counting every use of an alias"));
    assert_true(dlt_sys_now_ns() - start < 1000000000);
}

/* Every beginning of a config is read without harm: a file cut off anywhere. */
static void cut_files_do_no_harm(void **state)
{
    static const char text[] =
        "dltrain: 1\nvars: {d: &d [1, \"a\\tb\"]}\nm: !replace\n  - x: |\n      y\n"
        "    z: *d\n'k': {<<: {a: 1}}\n";
    (void)state;
    for (size_t n = 0; n < sizeof text; n++) {
        Help local = {.arena = dlt_arena_new()};
        DltYaml *root = NULL;
        DltStatus status = parse_bytes(&local, text, n, &root);
        assert_int_equal(status, dlt_err_status(&local.err));
        dlt_arena_free(local.arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HELP_TEST(faults_are_refused_at_their_place),
        HELP_TEST(raw_nul_is_refused_with_its_byte),
        HELP_TEST(reports_accumulate),
        HELP_TEST(texts_stay_as_typed),
        HELP_TEST(line_ends_and_encodings_mean_the_same),
        HELP_TEST(marks_point_at_values_and_keys),
        HELP_TEST(aliases_and_merges_become_plain_trees),
        HELP_TEST(limits_hold_on_both_sides),
        HELP_TEST(hostile_inputs_end_soon),
        HELP_TEST(laughs_do_not_explode),
        HELP_TEST(cut_files_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
