/* Walks every table a user can name things from: names, help, fields, defaults and examples hold
 * what they promise, and nothing is without a golden case. */
#include "tests/golden/torch_file.h"

#include "api/layer.h"
#include "api/train.h"

#include <ctype.h>

/* The columns all rows have. */
typedef struct Row {
    const char *name, *help;
    const DltField *fields;
    size_t opt_size;
} Row;

static void check_word(const char *word)
{
    assert_non_null(word);
    assert_true(islower((unsigned char)word[0]));
    for (const char *c = word; *c; c++)
        if (!islower((unsigned char)*c) && !isdigit((unsigned char)*c) && *c != '_')
            fail_msg("'%s' is not a lower-case word", word);
}

static DltStatus read_options(DltArena *arena, const Row *row, const DltYaml *value)
{
    int n = 0;
    while (row->fields[n].key)
        n++;
    DltField *fields = DLT_NEW_ARRAY(arena, n + 1, DltField);
    for (int i = 0; i < n; i++) {
        fields[i] = row->fields[i];
        fields[i].required = false;
    }
    DltErr err;
    dlt_err_init(&err);
    DltOpts o;
    DltStatus status = dlt_schema_read(arena, fields, row->opt_size, value,
                                       (DltWhere){row->name, DLT_NO_MARK}, &o, &err);
    if (status != DLT_OK) dlt_err_print(&err, stderr);
    return status;
}

/* An example is "key: value", or "name: value" for the main argument. */
static void check_example(DltArena *arena, const Row *row, const DltField *f)
{
    if (!f->example) fail_msg("%s.%s has no example", row->name, f->key);
    const DltYaml *tree = torch_yaml(arena, f->example);
    assert_int_equal(tree->kind, DLT_YAML_MAP);
    bool is_main = strcmp(tree->key[0], f->key) != 0;
    if (is_main) {
        assert_string_equal(tree->key[0], row->name);
        assert_true(f->main && f == row->fields);
    }
    assert_int_equal(read_options(arena, row, is_main ? tree->item[0] : tree), DLT_OK);
}

static void check_fields(DltArena *arena, const Row *row)
{
    if (!row->fields) return;
    assert_true(row->opt_size > 0);
    for (const DltField *f = row->fields; f->key; f++) {
        check_word(f->key);
        if (!f->help || strlen(f->help) < 5) fail_msg("%s.%s has no help", row->name, f->key);
        if (f->lo > f->hi) fail_msg("%s.%s: range is empty", row->name, f->key);
        if (f->required && f->def) fail_msg("%s.%s: required with a default", row->name, f->key);
        if (f->main && f != row->fields) fail_msg("%s.%s: main but not first", row->name, f->key);
        assert_true(f->type != DLT_T_ENUM || f->choices);
        assert_true(f->offset < row->opt_size);
        for (const DltField *g = f + 1; g->key; g++)
            assert_true(strcmp(f->key, g->key) != 0 && f->offset != g->offset);
        check_example(arena, row, f);
    }
    /* a default out of range or not readable ends the program here */
    assert_int_equal(read_options(arena, row, NULL), DLT_OK);
}

static bool has_case(const TorchFile *f, const char *name)
{
    const DltYaml *value;
    for (int i = 0; i < f->n_case; i++) {
        const DltYaml *tree = torch_yaml(f->arena, f->test[i].config);
        int n = tree->kind == DLT_YAML_LIST ? tree->n : 1;
        for (int k = 0; k < n; k++) {
            const DltYaml *one = tree->kind == DLT_YAML_LIST ? tree->item[k] : tree;
            if (strcmp(torch_kind(one, &value), name) == 0) return true;
        }
    }
    return false;
}

static void check_rows(const Row *row, int n, const char *golden)
{
    DltArena *arena = dlt_arena_new();
    TorchFile f = torch_read(arena, golden);
    assert_true(n > 0);
    for (int i = 0; i < n; i++) {
        check_word(row[i].name);
        if (!row[i].help || strlen(row[i].help) < 5) fail_msg("%s has no help", row[i].name);
        for (int k = 0; k < i; k++)
            if (strcmp(row[i].name, row[k].name) == 0) fail_msg("two rows %s", row[i].name);
        check_fields(arena, &row[i]);
        if (!has_case(&f, row[i].name)) fail_msg("%s has no case in %s", row[i].name, golden);
    }
    dlt_arena_free(arena);
}

enum { MAX_ROWS = 64 };
#define COLLECT(table)                                                                             \
    Row row[MAX_ROWS] = {0};                                                                       \
    int n = 0;                                                                                     \
    for (; (table)[n]; n++) {                                                                      \
        assert_true(n < MAX_ROWS);                                                                 \
        row[n] =                                                                                   \
            (Row){(table)[n]->name, (table)[n]->help, (table)[n]->fields, (table)[n]->opt_size};   \
    }

static void layers(void **state)
{
    (void)state;
    COLLECT(dlt_layers)
    check_rows(row, n, "tests/golden/torch/layers.txt");
    for (int i = 0; i < n; i++) {
        const DltLayerDef *def = dlt_layer_find(row[i].name);
        assert_ptr_equal(def, dlt_layers[i]);
        assert_non_null(def->build);
        assert_true(def->min_in <= def->max_in && def->max_in <= DLT_MAX_IN);
    }
    assert_null(dlt_layer_find("no_such_layer"));
}

static void losses(void **state)
{
    (void)state;
    COLLECT(dlt_losses)
    check_rows(row, n, "tests/golden/torch/losses.txt");
    for (int i = 0; i < n; i++) {
        const DltLossDef *def = dlt_loss_find(row[i].name);
        assert_ptr_equal(def, dlt_losses[i]);
        assert_non_null(def->build);
        for (int k = 0; def->metrics[k]; k++) {
            const DltMetricDef *m = dlt_metric_find(def->metrics[k]);
            assert_non_null(m);
            assert_true(m->any_target || m->target == def->target);
        }
    }
    assert_null(dlt_loss_find("no_such_loss"));
}

static void optimizers(void **state)
{
    (void)state;
    COLLECT(dlt_optims)
    check_rows(row, n, "tests/golden/torch/optimizers.txt");
    for (int i = 0; i < n; i++) {
        const DltOptimDef *def = dlt_optim_find(row[i].name);
        assert_ptr_equal(def, dlt_optims[i]);
        assert_true(def->build && def->n_state);
        int n_key = 0;
        for (const DltField *f = def->fields; f->key; f++) {
            n_key += strcmp(f->key, "lr") == 0 && f->offset == def->lr_offset;
            n_key += strcmp(f->key, "weight_decay") == 0 && f->offset == def->weight_decay_offset;
        }
        assert_int_equal(n_key, 2);
    }
    assert_null(dlt_optim_find("no_such_optimizer"));
}

static void schedules(void **state)
{
    (void)state;
    COLLECT(dlt_schedules)
    check_rows(row, n, "tests/golden/torch/schedules.txt");
    for (int i = 0; i < n; i++) {
        const DltScheduleDef *def = dlt_schedule_find(row[i].name);
        assert_ptr_equal(def, dlt_schedules[i]);
        assert_non_null(def->rate);
        assert_string_equal(def->fields[0].key, "span");
        assert_true(def->fields[0].main && def->fields[0].offset == def->span_offset);
    }
    assert_null(dlt_schedule_find("no_such_schedule"));
}

static void metrics(void **state)
{
    (void)state;
    DltArena *arena = dlt_arena_new();
    TorchFile f = torch_read(arena, "tests/golden/torch/metrics.txt");
    for (int i = 0; dlt_metrics[i]; i++) {
        const DltMetricDef *m = dlt_metrics[i];
        check_word(m->name);
        assert_true(strlen(m->help) >= 5);
        assert_ptr_equal(dlt_metric_find(m->name), m);
        assert_true(m->build && m->value && m->n_acc && m->n_acc(10) > 0);
        bool found = false;
        for (int k = 0; k < f.n_case; k++)
            found |= torch_find(&f.test[k], "num", m->name) != NULL;
        if (!found) fail_msg("metric %s has no golden value", m->name);
    }
    assert_null(dlt_metric_find("no_such_metric"));
    dlt_arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers),    cmocka_unit_test(losses),  cmocka_unit_test(optimizers),
        cmocka_unit_test(schedules), cmocka_unit_test(metrics),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
