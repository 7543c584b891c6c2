/* Variables, expressions, inheritance and overrides. Expected values are Python's for the arithmetic
 * (-7 // 2 == -4, -7 % 2 == 1, 1 / 3 == 0.3333333333333333) and LANGUAGE's rules for the rest. */
#include "config_help.h"

#include "base/log.h"
#include "base/text.h"
#include <fcntl.h>
#include <unistd.h>

static const char *know_classes(void *ctx, DltArena *arena, const char *dotted)
{
    (void)ctx;
    return strcmp(dotted, "data.classes") == 0 ? dlt_arena_str(arena, "10") : NULL;
}

/* The YAML text of `text` expanded with `vars`, NULL after errors. */
static const char *expanded(Help *h, const char *vars, const char *text)
{
    DltScope scope = {.vars = help_parse(h, vars), .lookup = know_classes};
    DltYaml *out = NULL;
    DltStatus status = dlt_expand(h->arena, &scope, help_parse(h, text), &out, &h->err);
    assert_int_equal(status, dlt_err_status(&h->err));
    return status == DLT_OK ? help_text(h, out) : NULL;
}

static void arithmetic(void **state)
{
    static const char vars[] = "{width: 64, lr: 1e-3, depths: [2, 3], act: gelu, flag: true, "
                               "blank: '', net: {heads: 12, sizes: [10, 20]}}";
    static const struct {
        const char *expr, *value;
    } rows[] = {
        {"1 + 2 * 3", "7"},
        {"(1 + 2) * 3", "9"},
        {"2 * 3 % 4", "2"},
        {"7 // 2", "3"},
        {"-7 // 2", "-4"},
        {"7 // -2", "-4"},
        {"-7 % 2", "1"},
        {"7 % -2", "-1"},
        {"-8 // -1", "8"},
        {"8 / 2", "4"},
        {"7 / 2", "3.5"},
        {"1 / 3", "0.3333333333333333"},
        {"7.5 // 2", "3"},
        {"-7.5 % 2", "0.5"},
        {"1e-3 * 3", "0.003"},
        {"10 - 3 - 2", "5"},
        {"--3", "3"},
        {"-2 + 5", "3"},
        {"+4", "4"},
        {"-9223372036854775807 - 1", "-9223372036854775808"},
        {"width", "64"},
        {"4*width", "256"},
        {"width / 64", "1"},
        {"lr / 10", "0.0001"},
        {"depths[0] + depths[1]", "5"},
        {"depths[width // 64]", "3"},
        {"net.heads", "12"},
        {"net.sizes[1]", "20"},
        {"data.classes", "10"},
        {"data.classes * 2", "20"},
        {"width > 32", "true"},
        {"width == 64.0", "true"},
        {"act == 'gelu'", "true"},
        {"act != 'relu'", "true"},
        {"2 <= 2", "true"},
        {"3 >= 4", "false"},
        {"1 if width > 32 else 2", "1"},
        {"1 if width < 32 else 2", "2"},
        {"1 / 0 if width < 32 else 2", "2"},
        {"1 if false else 2 if false else 3", "3"},
        {"'a' if flag else 'b'", "a"},
        {"depths", "[2, 3]"},
    };
    for (size_t i = 0; i < HELP_COUNT(rows); i++) {
        const char *value = expanded(
            *state, vars, dlt_arena_printf(((Help *)*state)->arena, "- ${%s}", rows[i].expr));
        if (value == NULL) fail_msg("%s: %s", rows[i].expr, ((Help *)*state)->err.report[0].text);
        const char *item = rows[i].value[0] == '[' ? value + 2 : value + 1;
        if (strncmp(item, rows[i].value, strlen(rows[i].value)) != 0) {
            fail_msg("%s gave %s, not %s", rows[i].expr, value, rows[i].value);
        }
    }
}

static void bad_expressions(void **state)
{
    static const char vars[] = "{width: 64, depths: [2, 3], act: gelu, net: {heads: 12}}";
    static const struct {
        const char *expr, *words;
    } rows[] = {
        {"", "expected a value"},
        {"1 +", "expected a value"},
        {"1 2", "expected an operator"},
        {"(1", "expected ')'"},
        {"2x", "expected a value"},
        {"1..2", "not a number"},
        {"0x10", "expected a value"},
        {"2 ** 3", "expected a value"},
        {"'a", "$$"},
        {"1 / 0", "division by zero"},
        {"5 % 0", "division by zero"},
        {"5 // 0.0", "division by zero"},
        {"act + 1", "'gelu' is not a number"},
        {"-act", "'gelu' is not a number"},
        {"depths + 1", "a list or map is not a number"},
        {"depths == 1", "cannot be compared"},
        {"act < 'relu'", "not both numbers"},
        {"1 < 2 < 3", "not both numbers"},
        {"depths[2]", "outside the list; it has 2 values"},
        {"depths[-1]", "outside the list"},
        {"depths[0.5]", "outside the list"},
        {"width[0]", "needs a list"},
        {"net.nothing", "has no 'nothing'"},
        {"depths[0].x", "no '.x'"},
        {"9223372036854775807 + 1", "64 bits"},
        {"-9223372036854775807 - 2", "64 bits"},
        {"4611686018427387904 * 2", "64 bits"},
        {"(-9223372036854775807 - 1) // -1", "64 bits"},
        {"1e308 * 10", "finite"},
        {"1 if 2 else 3", "neither true nor false"},
        {"1 if true", "needs `else`"},
        {"widht", "did you mean 'width'?"},
        {"data.clases", "unknown variable 'data.clases'"},
    };
    Help *h = *state;
    for (size_t i = 0; i < HELP_COUNT(rows); i++) {
        const char *value = expanded(h, vars, dlt_arena_printf(h->arena, "- ${%s}", rows[i].expr));
        if (value != NULL) fail_msg("%s gave %s", rows[i].expr, value);
        assert_int_equal(h->err.n, 1);
        if (strstr(h->err.report[0].text, rows[i].words) == NULL) {
            fail_msg("%s: %s", rows[i].expr, h->err.report[0].text);
        }
    }
}

static void texts_and_trees(void **state)
{
    assert_string_equal(expanded(*state, "{dir: /d, n: 010}", "[$dir/x_$n, '${dir}y', a$$b]"),
                        "[/d/x_010, \"/dy\", a$b]");
    assert_string_equal(expanded(*state, "{blank: ''}", "[$blank]"), "[\"\"]");
    assert_string_equal(expanded(*state, "{m: {a: 1, b: [2, $c]}, c: 3}", "{x: $m}"),
                        "x:\n  a: 1\n  b: [2, 3]");
    assert_string_equal(expanded(*state, "{a: '${2*b}', b: $c, c: 4}", "[$a, $b]"), "[8, 4]");
}

static void own_name_means_the_outer_one(void **state)
{
    Help *h = *state;
    DltScope outer = {.vars = help_parse(h, "{f: 64, g: 1}")};
    DltScope inner = {.outer = &outer, .vars = help_parse(h, "{f: '${2*f}', g: 5}")};
    DltYaml *out = NULL;
    assert_int_equal(dlt_expand(h->arena, &inner, help_parse(h, "[$f, $g]"), &out, &h->err),
                     DLT_OK);
    assert_string_equal(out->item[0]->text, "128");
    assert_string_equal(out->item[1]->text, "5");
}

/* One report that holds `words` and stands at this column of line 1. */
static void expect_error(Help *h, const char *vars, const char *text, const char *words, int col)
{
    const char *value = expanded(h, vars, text);
    if (value != NULL) fail_msg("%s gave %s", text, value);
    assert_int_equal(h->err.n, 1);
    const DltReport *report = &h->err.report[0];
    if (strstr(report->text, words) == NULL) fail_msg("'%s' lacks '%s'", report->text, words);
    assert_int_equal(report->at.col, col);
}

static void bad_references(void **state)
{
    expect_error(*state, "{width: 1}", "a/$widht",
                 "unknown variable 'widht'; did you mean 'width'?", 3);
    expect_error(*state, "{width: 1}", "'ab ${widht}'", "did you mean 'width'?", 5);
    expect_error(*state, "{a: $b, b: $c, c: $a}", "$a", "$c needs $b needs $a needs", 19);
    expect_error(*state, "{a: $a}", "$a", "circle", 5);
    expect_error(*state, "[a, b]", "$a", "unknown variable 'a'", 1);
    expect_error(*state, "word", "$a", "unknown variable 'a'", 1);
    expect_error(*state, "{a: [1]}", "x$a", "cannot be a part of a text", 2);
    expect_error(*state, "{a: 1}", "5$", "$$", 2);
    expect_error(*state, "{a: 1}", "'${a'", "$$", 2);
}

static void errors_accumulate(void **state)
{
    Help *h = *state;
    assert_null(expanded(h, "{a: 1}", "{x: $b, y: [$c, $a], z: $d}"));
    assert_int_equal(h->err.n, 3);
    assert_null(expanded(h, "{a: $nothing}", "[$a, $a, $a]")); /* one cause, one report */
    assert_int_equal(h->err.n, 1);
}

static void environment_is_for_paths(void **state)
{
    setenv("DLT_TEST_PATH", "/data", 1);
    setenv("DLT_TEST_WORD", "adam", 1);
    assert_string_equal(expanded(*state, "{}", "'${env:DLT_TEST_PATH}/x'"), "\"/data/x\"");
    assert_string_equal(expanded(*state, "{}", "'../${env:DLT_TEST_WORD}'"), "\"../adam\"");
    expect_error(*state, "{}", "'${env:DLT_TEST_WORD}'", "paths only", 1);
    expect_error(*state, "{}", "'/${env:DLT_TEST_NONE}'", "DLT_TEST_NONE", 3);
}

/* The billion laughs in variables: each level doubles the one before. */
static void growth_is_limited(void **state)
{
    Help *h = *state;
    DltText vars = dlt_text(h->arena);
    dlt_text_add(&vars, "{v0: [x, x], w0: xxxxxxxx, n0: 1");
    for (int i = 1; i < 31; i++) {
        dlt_text_addf(&vars, ", v%d: [$v%d, $v%d]", i, i - 1, i - 1);
        dlt_text_addf(&vars, ", w%d: $w%d$w%d, n%d: '${n%d + n%d}'", i, i - 1, i - 1, i, i - 1,
                      i - 1);
    }
    dlt_text_add(&vars, "}");
    int64_t start = dlt_sys_now_ns();
    assert_null(expanded(h, vars.bytes, "$v30"));
    assert_non_null(strstr(h->err.report[0].text, "more than 50000 values"));
    assert_null(expanded(h, vars.bytes, "$w30"));
    assert_non_null(strstr(h->err.report[0].text, "more than 65536 bytes"));
    assert_string_equal(expanded(h, vars.bytes, "$n30"), "1073741824"); /* 2^30 */
    assert_true(dlt_sys_now_ns() - start < 1000000000);
}

static void nesting_is_limited(void **state)
{
    Help *h = *state;
    DltText vars = dlt_text(h->arena);
    for (int i = 1; i < 200; i++)
        dlt_text_addf(&vars, "v%d: [$v%d]\n", i - 1, i);
    dlt_text_add(&vars, "v199: 1\n");
    assert_null(expanded(h, vars.bytes, "$v0"));
    assert_int_equal(h->err.n, 1);
    assert_non_null(strstr(h->err.report[0].text, "deeper than 64"));
}

/* ---- loading ------------------------------------------------------------------------------ */

static void write_file(const char *path, const char *text)
{
    int fd = dlt_sys_open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    assert_true(fd >= 0);
    assert_true(dlt_sys_write_all(fd, text, strlen(text)));
    assert_int_equal(dlt_sys_close(fd), 0);
}

static const struct {
    const char *name, *text;
} files[] = {
    {"base", "train: {batch: 8, optimizer: {sgd: {lr: 0.1}}}\nmodel: [a, b]\nloss: mse\n"},
    {"child", "extends: base.yaml\n"
              "train:\n  batch: 16\n  optimizer: !replace {adamw: {lr: 1}}\nmodel: [c]\n"},
    {"loop", "extends: loop.yaml\n"},
    {"orphan", "extends: nobody.yaml\n"},
    {"list", "- a\n"},
    {"word", "a\n"},
    {"empty", ""},
};

static char *make_folder(Help *h)
{
    char *folder = dlt_arena_str(h->arena, "/tmp/dlt-expand-XXXXXX");
    assert_non_null(mkdtemp(folder));
    for (size_t i = 0; i < HELP_COUNT(files); i++) {
        write_file(dlt_arena_printf(h->arena, "%s/%s.yaml", folder, files[i].name), files[i].text);
    }
    return folder;
}

static void remove_folder(Help *h, const char *folder)
{
    for (size_t i = 0; i < HELP_COUNT(files); i++) {
        dlt_sys_unlink(dlt_arena_printf(h->arena, "%s/%s.yaml", folder, files[i].name));
    }
    assert_int_equal(rmdir(folder), 0);
}

static DltStatus load(Help *h, const char *folder, const char *name, DltYaml **root)
{
    dlt_err_init(&h->err);
    const char *path = dlt_arena_printf(h->arena, "%s/%s", folder, name);
    return dlt_config_load(h->arena, path, 0, NULL, root, &h->err);
}

static void extends_merges_and_replaces(void **state)
{
    Help *h = *state;
    DltYaml *root = NULL;
    char *folder = make_folder(h);
    assert_int_equal(load(h, folder, "child.yaml", &root), DLT_OK);
    assert_string_equal(
        help_text(h, root),
        "train:\n  batch: 16\n  optimizer:\n    adamw:\n      lr: 1\nmodel: [c]\nloss: mse");
    assert_non_null(strstr(dlt_yaml_get(root, "loss")->at.file, "/base.yaml"));
    assert_non_null(strstr(dlt_yaml_get(root, "model")->at.file, "/child.yaml"));
    remove_folder(h, folder);
}

static void wrong_files_are_config_errors(void **state)
{
    static const struct {
        const char *name, *words;
    } rows[] = {{"loop.yaml", "16 files deep"},
                {"orphan.yaml", "nobody.yaml: No such file"},
                {"list.yaml", "map of sections"},
                {"word.yaml", "map of sections"},
                {"none.yaml", "/none.yaml: No such"},
                {"empty.yaml", "empty"},
                {".", "no regular file"},
                {"../../dev/null", "no regular file"}};
    Help *h = *state;
    DltYaml *root = NULL;
    char *folder = make_folder(h);
    for (size_t i = 0; i < HELP_COUNT(rows); i++) {
        assert_int_equal(load(h, folder, rows[i].name, &root), DLT_E_CONFIG);
        if (strstr(h->err.report[0].text, rows[i].words) == NULL) {
            fail_msg("%s: %s", rows[i].name, h->err.report[0].text);
        }
    }
    remove_folder(h, folder);
}

static const char config[] = "seed: 1\n"
                             "vars: {d: 64}\n"
                             "model: [{dense: 10}, relu]\n"
                             "model.patch: {stem: {f: 1}}\n"
                             "train: {batch: 8, optimizer: {adamw: {lr: 1e-3}}, clip: {norm: 1}}\n"
                             "eval: {batch: 4}\n"
                             "loss: cross_entropy\n"
                             "log:\n";

static DltStatus override(Help *h, const char *word, DltYaml **root)
{
    dlt_err_init(&h->err);
    return dlt_config_load_text(h->arena, "c.yaml", config, 1, &word, root, &h->err);
}

/* Tables of names for keys that the config does not write. */
static void use_names(Help *h)
{
    static const DltField top[] = {{.key = "name"}, {.key = "device"}, DLT_FIELDS_END};
    static const DltField adamw[] = {{.key = "lr"}, {.key = "weight_decay"}, DLT_FIELDS_END};
    DltNames *names = dlt_names_new(h->arena);
    dlt_names_add(names, "", top);
    dlt_names_add(names, "train.optimizer.adamw", adamw);
    dlt_names_add(names, "train.optimizer.sgd", adamw);
    dlt_names_set_current(names);
}

static void overrides(void **state)
{
    static const struct {
        const char *word, *path, *value;
    } rows[] = {
        {"seed=7", "seed", "7"},
        {"name=x", "name", "x"},
        {"vars.d=128", "vars.d", "128"},
        {"train.optimizer.adamw.lr=3e-4", "train.optimizer.adamw.lr", "3e-4"},
        {"lr=3e-4", "train.optimizer.adamw.lr", "3e-4"},
        {"adamw.lr=3e-4", "train.optimizer.adamw.lr", "3e-4"},
        {"weight_decay=0.1", "train.optimizer.adamw.weight_decay", "0.1"},
        {"train.batch=16", "train.batch", "16"},
        {"train.for=5 epochs", "train.for", "5 epochs"},
        {"train.optimizer.adamw.betas=[0.9, 0.95]", "train.optimizer.adamw.betas", "[0.9, 0.95]"},
        {"model.0.dense=20", "model.0.dense", "20"},
        {"model.1={dropout: 0.1}", "model.1.dropout", "0.1"},
        {"model.patch.stem.f=2", "model.patch.stem.f", "2"},
        {"model.patch={}", "model.patch", "{}"},
        {"loss.cross_entropy.label_smoothing=0.1", "loss.cross_entropy.label_smoothing", "0.1"},
        {"log.every=5 steps", "log.every", "5 steps"},
        {"newone.a.b=1", "newone.a.b", "1"},
        {"train.note=a = b", "train.note", "a = b"},
    };
    Help *h = *state;
    use_names(h);
    dlt_log_level(DLT_LOG_QUIET);
    for (size_t i = 0; i < HELP_COUNT(rows); i++) {
        DltYaml *root = NULL;
        DltStatus status = override(h, rows[i].word, &root);
        if (status != DLT_OK) fail_msg("%s: %s", rows[i].word, h->err.report[0].text);
        const DltYaml *value = dlt_yaml_find(root, rows[i].path);
        if (value == NULL) fail_msg("%s set nothing", rows[i].word);
        assert_string_equal(help_text(h, value), rows[i].value);
        assert_string_equal(value->at.file, "<command line>");
        assert_int_equal(value->at.line, 1);
    }
}

static void bad_overrides(void **state)
{
    static const struct {
        const char *word, *words;
        int col;
    } rows[] = {
        {"seed", "path=value", 1},
        {"=3", "path=value", 1},
        {"a.=3", "path=value", 1},
        {"batch=3", "may mean train.batch, eval.batch; write more", 1},
        {"model.5.dense=1", "cannot set 'model.5.dense'", 1},
        {"model.0.dense.units=1", "cannot set", 1},
        {"vars.d=[1", "not valid YAML", 8},
        {"vars.d=*x", "unknown alias", 8},
        {"vars.d={a: 1, a: 2}", "duplicate key", 15},
        {"extends=x.yaml", "extends:", 1},
    };
    Help *h = *state;
    for (size_t i = 0; i < HELP_COUNT(rows); i++) {
        DltYaml *root = NULL;
        assert_int_equal(override(h, rows[i].word, &root), DLT_E_CONFIG);
        const DltReport *report = &h->err.report[0];
        if (strstr(report->text, rows[i].words) == NULL)
            fail_msg("%s: %s", rows[i].word, report->text);
        assert_string_equal(report->at.file, "<command line>");
        assert_string_equal(report->at.text, rows[i].word);
        if (report->at.col != rows[i].col) fail_msg("%s: column %d", rows[i].word, report->at.col);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HELP_TEST(arithmetic),
        HELP_TEST(bad_expressions),
        HELP_TEST(texts_and_trees),
        HELP_TEST(own_name_means_the_outer_one),
        HELP_TEST(bad_references),
        HELP_TEST(errors_accumulate),
        HELP_TEST(environment_is_for_paths),
        HELP_TEST(growth_is_limited),
        HELP_TEST(nesting_is_limited),
        HELP_TEST(extends_merges_and_replaces),
        HELP_TEST(wrong_files_are_config_errors),
        HELP_TEST(overrides),
        HELP_TEST(bad_overrides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
