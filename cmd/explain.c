/* dltrain explain: every section, layer, optimizer, loss, schedule, metric and data format, printed
 * from the tables that the validator reads. */
#include "cmd/manual.h"

/* What `explain` walks: where its things stand in a config, what they are, and their rows. */
typedef struct Topic {
    const char *path, *what; /* "train.optimizer" */
    bool (*row)(int i, DltRegistryRow *row);
    int registry; /* row NULL: of this one */
} Topic;

static bool section_row(int i, DltRegistryRow *row)
{
    const DltSection *s = &dlt_sections[i];
    *row = (DltRegistryRow){s->name, s->help, s->fields};
    return s->name != NULL;
}

static bool fuse_row(int i, DltRegistryRow *row)
{
    const DltFuseRule *r = &dlt_fuse_rules[i];
    *row = (DltRegistryRow){r->name, r->help, NULL};
    return r->name != NULL;
}

static const Topic topics[] = {
    {"", "sections of a config", section_row, 0},
    {"model", "layers", NULL, DLT_REG_LAYER},
    {"loss", "losses", NULL, DLT_REG_LOSS},
    {"train.optimizer", "optimizers", NULL, DLT_REG_OPTIM},
    {"train.schedule", "pieces of a schedule", NULL, DLT_REG_SCHEDULE},
    {"eval.metrics", "metrics", NULL, DLT_REG_METRIC},
    {"data.train", "data formats", NULL, DLT_REG_DATASET},
    {"data.augment", "augmentations", NULL, DLT_REG_AUGMENT},
    {"data.tokenizer", "tokenizers", NULL, DLT_REG_TOKENIZER},
    {"passes.fuse", "fusion rules", fuse_row, 0},
};
enum { N_TOPIC = sizeof topics / sizeof topics[0] };

static bool topic_row(const Topic *t, int i, DltRegistryRow *row)
{
    return t->row ? t->row(i, row) : dlt_registries[t->registry].row(i, row);
}

static void list_all(void)
{
    DltRegistryRow r;
    for (int t = 0; t < N_TOPIC; t++) {
        printf("%s%s%s:\n", topics[t].what, topics[t].path[0] ? ", at " : "", topics[t].path);
        for (int i = 0; topic_row(&topics[t], i, &r); i++)
            printf("  %-18s %s\n", r.name, r.help ? r.help : "");
    }
    printf("`dltrain explain NAME` shows the keys of one of them, with type, default and range\n");
}

static void print_one(const Topic *t, const DltRegistryRow *r)
{
    printf("%s%s%s: %s\n", t->path, t->path[0] ? "." : "", r->name, r->help ? r->help : "");
    if (r->fields)
        dlt_schema_explain(r->fields, stdout);
    else
        printf("  no options\n");
}

/* True when the dotted word ends in this thing's name ("dense", "model.dense",
 * "train.optimizer.adamw"). */
static bool names_it(const char *word, const Topic *t, const char *name)
{
    char full[128];
    snprintf(full, sizeof full, "%s.%s", t->path, name);
    return strcmp(word, name) == 0 || strcmp(word, full) == 0;
}

/* "train.batch", "adamw.lr": one key of one thing; "ema": that key wherever it stands. */
static bool print_key(const char *word)
{
    const char *dot = strrchr(word, '.'), *key = dot ? dot + 1 : word;
    char owner[128];
    snprintf(owner, sizeof owner, "%.*s", dot ? (int)(dot - word) : 0, word);
    DltRegistryRow r;
    bool found = false;
    for (int t = 0; t < N_TOPIC; t++)
        for (int i = 0; topic_row(&topics[t], i, &r); i++) {
            const DltField *f = !dot || names_it(owner, &topics[t], r.name) ? r.fields : NULL;
            while (f && f->key && strcmp(f->key, key) != 0)
                f++;
            if (!f || !f->key) continue;
            const DltField one[2] = {*f, DLT_FIELDS_END};
            printf("%s%s%s:\n", topics[t].path, topics[t].path[0] ? "." : "", r.name);
            dlt_schema_explain(one, stdout);
            found = true;
        }
    return found;
}

static DltStatus unknown(const char *word, DltErr *err)
{
    const char *known[512];
    DltRegistryRow r;
    int n = 0;
    for (int t = 0; t < N_TOPIC; t++)
        for (int i = 0; n < 511 && topic_row(&topics[t], i, &r); i++)
            known[n++] = r.name;
    known[n] = NULL;
    const char *near = dlt_nearest(word, known);
    return dlt_err(err, DLT_E_CONFIG,
                   "explain: nothing is named '%s'%s%s%s; `dltrain explain` lists all", word,
                   near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static DltStatus run(const DltArgs *args, DltErr *err)
{
    if (args->json_schema) return dlt_manual_json(args, err);
    if (args->man) return dlt_manual_man(args, err);
    if (args->bash) return dlt_manual_bash(args, err);
    if (args->n_word == 0) {
        list_all();
        return DLT_OK;
    }
    DltRegistryRow r;
    int n = 0;
    for (int t = 0; t < N_TOPIC; t++)
        for (int i = 0; topic_row(&topics[t], i, &r); i++)
            if (names_it(args->word[0], &topics[t], r.name)) {
                print_one(&topics[t], &r);
                n++;
            }
    if (n > 0 || print_key(args->word[0])) return DLT_OK;
    return unknown(args->word[0], err);
}

const DltCommand dlt_command_explain = {
    .name = "explain",
    .words = "[NAME]",
    .help = "any section, layer, optimizer, metric or key",
    .min_word = 0,
    .max_word = 1,
    .options = (const char *const[]){"json_schema", "man", "bash", NULL},
    .run = run,
};
