/* dltrain explain: every section, layer, optimizer, loss, schedule, metric and data format, printed
 * from the tables that the validator reads. */
#include "cmd/cmd.h"

/* A registry as `explain` sees it: where its things stand in a config, and a way to walk it. */
typedef struct Topic {
    const char *path, *what; /* "train.optimizer" */
    bool (*row)(int i, const char **name, const char **help, const DltField **fields);
} Topic;

#define ROW(function, table)                                                                       \
    static bool function(int i, const char **name, const char **help, const DltField **fields)     \
    {                                                                                              \
        if (!(table)[i]) return false;                                                             \
        *name = (table)[i]->name;                                                                  \
        *help = (table)[i]->help;                                                                  \
        *fields = (table)[i]->fields;                                                              \
        return true;                                                                               \
    }
ROW(layer_row, dlt_layers)
ROW(optim_row, dlt_optims)
ROW(schedule_row, dlt_schedules)
ROW(loss_row, dlt_losses)
ROW(dataset_row, dlt_datasets)

static bool metric_row(int i, const char **name, const char **help, const DltField **fields)
{
    if (!dlt_metrics[i]) return false;
    *name = dlt_metrics[i]->name;
    *help = dlt_metrics[i]->help;
    *fields = NULL;
    return true;
}

static bool section_row(int i, const char **name, const char **help, const DltField **fields)
{
    if (!dlt_sections[i].name) return false;
    *name = dlt_sections[i].name;
    *help = dlt_sections[i].help;
    *fields = dlt_sections[i].fields;
    return true;
}

static bool fuse_row(int i, const char **name, const char **help, const DltField **fields)
{
    if (!dlt_fuse_rules[i].name) return false;
    *name = dlt_fuse_rules[i].name;
    *help = dlt_fuse_rules[i].help;
    *fields = NULL;
    return true;
}

static const Topic topics[] = {
    {"", "sections of a config", section_row},
    {"model", "layers", layer_row},
    {"loss", "losses", loss_row},
    {"train.optimizer", "optimizers", optim_row},
    {"train.schedule", "pieces of a schedule", schedule_row},
    {"eval.metrics", "metrics", metric_row},
    {"data.train", "data formats", dataset_row},
    {"passes.fuse", "fusion rules", fuse_row},
};
enum { N_TOPIC = sizeof topics / sizeof topics[0] };

static void list_all(void)
{
    const char *name, *help;
    const DltField *fields;
    for (int t = 0; t < N_TOPIC; t++) {
        printf("%s%s%s:\n", topics[t].what, topics[t].path[0] ? ", at " : "", topics[t].path);
        for (int i = 0; topics[t].row(i, &name, &help, &fields); i++)
            printf("  %-18s %s\n", name, help ? help : "");
    }
    printf("`dltrain explain NAME` shows the keys of one of them, with type, default and range\n");
}

static void print_one(const Topic *t, const char *name, const char *help, const DltField *fields)
{
    printf("%s%s%s: %s\n", t->path, t->path[0] ? "." : "", name, help ? help : "");
    if (fields)
        dlt_schema_explain(fields, stdout);
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

/* "train.batch" or "adamw.lr": one key of one thing. */
static bool print_key(const char *word)
{
    const char *dot = strrchr(word, '.');
    if (!dot) return false;
    char owner[128];
    snprintf(owner, sizeof owner, "%.*s", (int)(dot - word), word);
    const char *name, *help;
    const DltField *fields;
    for (int t = 0; t < N_TOPIC; t++)
        for (int i = 0; topics[t].row(i, &name, &help, &fields); i++)
            for (const DltField *f = fields; names_it(owner, &topics[t], name) && f && f->key; f++)
                if (strcmp(f->key, dot + 1) == 0) {
                    const DltField one[2] = {*f, DLT_FIELDS_END};
                    dlt_schema_explain(one, stdout);
                    return true;
                }
    return false;
}

static DltStatus unknown(const char *word, DltErr *err)
{
    const char *known[512], *help;
    const DltField *fields;
    int n = 0;
    for (int t = 0; t < N_TOPIC; t++)
        for (int i = 0; n < 511 && topics[t].row(i, &known[n], &help, &fields); i++)
            n++;
    known[n] = NULL;
    const char *near = dlt_nearest(word, known);
    return dlt_err(err, DLT_E_CONFIG,
                   "explain: nothing is named '%s'%s%s%s; `dltrain explain` lists all", word,
                   near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static DltStatus run(const DltArgs *args, DltErr *err)
{
    if (args->n_word == 0) {
        list_all();
        return DLT_OK;
    }
    const char *name, *help;
    const DltField *fields;
    int n = 0;
    for (int t = 0; t < N_TOPIC; t++)
        for (int i = 0; topics[t].row(i, &name, &help, &fields); i++)
            if (names_it(args->word[0], &topics[t], name)) {
                print_one(&topics[t], name, help, fields);
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
    .options = NULL,
    .run = run,
};
