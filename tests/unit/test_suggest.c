/* Suggestions for misspelt, misplaced and foreign names. */
#include "config_help.h"

#include "base/text.h"
#include "config/suggest.h"
#include "spec/spec.h"

static void distances(void **state)
{
    static const struct {
        const char *a, *b;
        int distance;
    } rows[] = {
        {"", "", 0},           {"a", "", 1},     {"abc", "abc", 0},        {"abc", "acb", 1},
        {"abc", "abd", 1},     {"abc", "ab", 1}, {"kitten", "sitting", 3}, {"ca", "abc", 3},
        {"hiden", "hidden", 1}};
    (void)state;
    for (size_t i = 0; i < HELP_COUNT(rows); i++) {
        assert_int_equal(dlt_edit_distance(rows[i].a, rows[i].b), rows[i].distance);
        assert_int_equal(dlt_edit_distance(rows[i].b, rows[i].a), rows[i].distance);
    }
}

/* Keys as the sections of LANGUAGE have them. */
static const DltField train_keys[] = {
    {.key = "for"},        {.key = "batch"}, {.key = "precision"},     {.key = "optimizer"},
    {.key = "schedule"},   {.key = "clip"},  {.key = "ema"},           {.key = "recompute"},
    {.key = "stop_early"}, {.key = "guard"}, {.key = "deterministic"}, DLT_FIELDS_END};
static const DltField adamw_keys[] = {{.key = "lr"},           {.key = "betas"},   {.key = "eps"},
                                      {.key = "weight_decay"}, {.key = "amsgrad"}, DLT_FIELDS_END};
static const DltField sgd_keys[] = {{.key = "lr"},           {.key = "momentum"},
                                    {.key = "nesterov"},     {.key = "dampening"},
                                    {.key = "weight_decay"}, DLT_FIELDS_END};
static const DltField conv_keys[] = {{.key = "filters"}, {.key = "kernel"},   {.key = "stride"},
                                     {.key = "pad"},     {.key = "dilation"}, {.key = "groups"},
                                     {.key = "bias"},    {.key = "init"},     DLT_FIELDS_END};
static const DltField top_keys[] = {{.key = "dltrain"}, {.key = "name"},       {.key = "seed"},
                                    {.key = "vars"},    {.key = "blocks"},     {.key = "data"},
                                    {.key = "model"},   {.key = "loss"},       {.key = "train"},
                                    {.key = "eval"},    {.key = "checkpoint"}, {.key = "log"},
                                    {.key = "device"},  {.key = "expect"},     DLT_FIELDS_END};

static const struct {
    const char *path;
    const DltField *fields;
} tables[] = {{"", top_keys},
              {"train", train_keys},
              {"train.optimizer.adamw", adamw_keys},
              {"train.optimizer.sgd", sgd_keys},
              {"model.conv", conv_keys}};

static void use_tables(Help *h)
{
    DltNames *names = dlt_names_new(h->arena);
    for (size_t i = 0; i < HELP_COUNT(tables); i++)
        dlt_names_add(names, tables[i].path, tables[i].fields);
    dlt_names_set_current(names);
}

static void misplaced_and_foreign_names(void **state)
{
    static const struct {
        const DltField *fields;
        const char *key, *answer;
    } rows[] = {
        {top_keys, "learning_rate",
         "; did you mean train.optimizer.adamw.lr? (also train.optimizer.sgd.lr) known: "},
        {top_keys, "lr",
         "; did you mean train.optimizer.adamw.lr? (also train.optimizer.sgd.lr) known: "},
        {top_keys, "momentum", "; did you mean train.optimizer.sgd.momentum? known: "},
        {top_keys, "momentun", "; did you mean train.optimizer.sgd.momentum? known: "},
        {conv_keys, "lr", "; did you mean train.optimizer.adamw.lr?"},
        {conv_keys, "kernel_size", "; did you mean 'kernel'? known: "},
        {conv_keys, "out_channels", "; did you mean 'filters'? known: "},
        {conv_keys, "Padding", "; did you mean 'pad'? known: "},
        {train_keys, "epochs", "; did you mean 'for'? known: "},
        {train_keys, "batch-size", "; did you mean 'batch'? known: "},
        {train_keys, "stop-early", "; did you mean 'stop_early'? known: "},
        {train_keys, "seed", "; did you mean seed? known: "},
        {adamw_keys, "ls", "; did you mean 'lr'? known: "},
        {top_keys, "zzzzzzzz", "; known: dltrain, name, seed"},
    };
    Help *h = *state;
    use_tables(h);
    for (size_t i = 0; i < HELP_COUNT(rows); i++) {
        int meant;
        const char *answer = dlt_suggest_key(h->arena, "", rows[i].fields, rows[i].key, &meant);
        if (strncmp(answer, rows[i].answer, strlen(rows[i].answer)) != 0)
            fail_msg("%s%s", rows[i].key, answer);
    }
}

/* Of several places the one that the config writes comes first, then one of the same section. */
static void likely_places_come_first(void **state)
{
    Help *h = *state;
    static const DltField batch_norm[] = {{.key = "momentum"}, DLT_FIELDS_END};
    DltNames *names = dlt_names_new(h->arena);
    dlt_names_add(names, "model.batch_norm", batch_norm);
    dlt_names_add(names, "train.optimizer.adamw", adamw_keys);
    dlt_names_add(names, "train.optimizer.sgd", sgd_keys);
    dlt_names_set_current(names);
    int meant;
    assert_non_null(
        strstr(dlt_suggest_key(h->arena, "train", train_keys, "momentum", &meant),
               "did you mean train.optimizer.sgd.momentum? (also model.batch_norm.momentum)"));
    assert_non_null(strstr(dlt_suggest_key(h->arena, "", top_keys, "lr", &meant),
                           "adamw.lr? (also train.optimizer.sgd"));
    dlt_names_prefer(names, help_parse(h, "{train: {optimizer: {sgd: {momentum: 1}}}}"));
    assert_non_null(strstr(dlt_suggest_key(h->arena, "", top_keys, "lr", &meant),
                           "sgd.lr? (also train.optimizer.adamw"));
}

/* The i-th of all one-edit misspellings; false behind the last. */
static bool misspell(const char *key, int i, char out[80])
{
    static const char letters[] = "aeinorstlz_1";
    int n = (int)strlen(key), n_letter = (int)sizeof letters - 1, at;
    snprintf(out, 80, "%s", key);
    if (i < n) { /* one letter missing */
        memmove(out + i, out + i + 1, (size_t)(n - i));
        return true;
    }
    i -= n;
    if (i < n - 1) { /* two letters swapped */
        out[i] = key[i + 1];
        out[i + 1] = key[i];
        return true;
    }
    i -= n > 0 ? n - 1 : 0;
    at = i / n_letter;
    if (at < n) { /* a wrong letter */
        out[at] = letters[i % n_letter];
        return true;
    }
    i -= n * n_letter;
    at = i / n_letter;
    if (at > n) return false;
    memmove(out + at + 1, out + at, (size_t)(n - at) + 1); /* a letter too many */
    out[at] = letters[i % n_letter];
    return true;
}

static bool is_key(const DltField *fields, const char *key)
{
    for (; fields->key != NULL; fields++) {
        if (strcmp(fields->key, key) == 0) return true;
    }
    return false;
}

/* Tries every one-edit misspelling of every key of a table that is no key of it itself. */
static void count_recognised(Help *h, const DltField *fields, int *n, int *right)
{
    for (const DltField *f = fields; f->key != NULL; f++) {
        char key[80];
        const char *want = dlt_arena_printf(h->arena, "; did you mean '%s'?", f->key);
        int meant;
        for (int i = 0; misspell(f->key, i, key); i++) {
            if (key[0] == '\0' || is_key(fields, key)) continue;
            ++*n;
            *right += strncmp(dlt_suggest_key(h->arena, "", fields, key, &meant), want,
                              strlen(want)) == 0;
        }
    }
}

/* Case C07: every key with one typing error gets the right suggestion in at least 95 of 100. */
static void misspelt_keys_are_recognised(void **state)
{
    Help *h = *state;
    use_tables(h);
    int n = 0, right = 0;
    for (size_t i = 0; i < HELP_COUNT(tables); i++) {
        count_recognised(h, tables[i].fields, &n, &right);
    }
    print_message("%d of %d misspelt keys recognised\n", right, n);
    assert_true(n > 5000);
    assert_true((double)right >= 0.95 * n);
}

/* One table of the program's names, gathered key by key. */
typedef struct Gathered {
    DltArena *arena;
    int n_table;
    const char *path[200];
    DltField *fields[200];
    int n_key[200];
} Gathered;

static void gather(void *ctx, const char *path, const char *key)
{
    enum { MAX_KEYS = 100 };
    Gathered *g = ctx;
    int last = g->n_table - 1;
    if (last < 0 || strcmp(g->path[last], path) != 0) {
        last = g->n_table++;
        assert_true(last < 200);
        g->path[last] = path;
        g->fields[last] = DLT_NEW_ARRAY(g->arena, MAX_KEYS, DltField);
    }
    assert_true(g->n_key[last] < MAX_KEYS - 1);
    g->fields[last][g->n_key[last]++].key = key;
}

/* The same over every table of the program itself. */
static void misspelt_keys_of_the_program_are_recognised(void **state)
{
    Help *h = *state;
    DltSpec *spec = NULL;
    DltStatus status = dlt_spec_read_stored(
        h->arena, &(DltStored){.name = "c.yaml", .text = "dltrain: 1\n", .folder = "."}, 0, NULL,
        &spec, &h->err);
    assert_int_equal(status, DLT_E_CONFIG); /* nothing is in it, but the names are known now */
    Gathered *g = DLT_NEW(h->arena, Gathered);
    g->arena = h->arena;
    dlt_names_each(dlt_names_current(), gather, g);
    assert_true(g->n_table > 40);
    int n = 0, right = 0;
    for (int i = 0; i < g->n_table; i++)
        count_recognised(h, g->fields[i], &n, &right);
    print_message("%d of %d misspelt keys of %d tables recognised\n", right, n, g->n_table);
    assert_true((double)right >= 0.95 * n);
}

static void nearest_words(void **state)
{
    static const char *const list[] = {"relu", "gelu", "silu", "softmax", NULL};
    (void)state;
    assert_string_equal(dlt_nearest("rleu", list), "relu");
    assert_string_equal(dlt_nearest("geluu", list), "gelu");
    assert_string_equal(dlt_nearest("SoftMax", list), "softmax");
    assert_null(dlt_nearest("convolution", list));
    assert_null(dlt_nearest("", list));
}

/* Many unknown keys must not cost many searches. */
static void hostile_maps_end_soon(void **state)
{
    Help *h = *state;
    use_tables(h);
    DltText text = dlt_text(h->arena);
    for (int i = 0; i < 24000; i++)
        dlt_text_addf(&text, "k%d: 1\n", i);
    DltOpts o;
    DltYaml *root = help_parse(h, text.bytes);
    int64_t start = dlt_sys_now_ns();
    DltStatus status =
        dlt_schema_read(h->arena, top_keys, 1, root, (DltWhere){"", root->at}, &o, &h->err);
    assert_int_equal(status, DLT_E_CONFIG);
    assert_int_equal(h->err.n + h->err.n_dropped, 24000);
    assert_true(dlt_sys_now_ns() - start < 1000000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HELP_TEST(distances),
        HELP_TEST(misplaced_and_foreign_names),
        HELP_TEST(likely_places_come_first),
        HELP_TEST(misspelt_keys_are_recognised),
        HELP_TEST(misspelt_keys_of_the_program_are_recognised),
        HELP_TEST(nearest_words),
        HELP_TEST(hostile_maps_end_soon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
