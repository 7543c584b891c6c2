/* Command line: options by the field table, overrides, words; usage texts from the same rows. */
#include "cmd/cmd.h"

const DltCommand *const dlt_commands[] = {
#define COMMAND(name) &dlt_command_##name,
#include "cmd/commands.def"
#undef COMMAND
    NULL};

const DltField dlt_options[] = {
    DLT_STR(DltArgs, out, .unit = "PATH",
            .help = "run folder (default: runs/NAME-K); tokenize: beginning of the shards' names "
                    "(default: tokens), or the file of --train-bpe (default: tokenizer.json)"),
    DLT_STR(DltArgs, device, .unit = "D",
            .help = "auto, cpu, cuda or cuda:N; overrides the config"),
    DLT_STR(DltArgs, init, .unit = "CKPT", .help = "start from the weights of a checkpoint"),
    DLT_STR(DltArgs, data, .unit = "SPLIT", .help = "train, val or test (default: test, else val)"),
    DLT_STR(DltArgs, what_if, .unit = "KEY=A,B",
            .help = "compare memory, operations and time for several values of a key, such as "
                    "train.recompute=none,mlp,blocks"),
    DLT_STR(DltArgs, dump, .unit = "WHAT", .help = "print the whole graph or plan as text"),
    DLT_STR(DltArgs, tokenizer, .unit = "T",
            .help =
                "as data.tokenizer is written: bytes, chars, '{bpe: FILE}', '{gpt2: {vocab: FILE, "
                "merges: FILE}}'"),
    DLT_INT(DltArgs, train_bpe, .unit = "N", .lo = 257, .hi = 1 << 24,
            .help = "learn a byte-level BPE of N ids from the text and write it to --out"),
    DLT_STR(DltArgs, jsonl, .unit = "KEY",
            .help = "the files are JSON lines, a document each, its text under this key"),
    DLT_INT(DltArgs, shard, .unit = "N", .lo = 1024, .hi = 4e9,
            .help = "ids of a shard (default: 100000000)"),
    DLT_INT(DltArgs, width, .unit = "BITS", .lo = 16, .hi = 32,
            .help = "bits of an id: 16 or 32 (default: 16 where the vocabulary fits)"),
    DLT_STR(DltArgs, prompt, .unit = "TEXT",
            .help = "what the text begins with (default: a new line)"),
    DLT_FLOAT(DltArgs, temperature, .unit = "X", .def = "1", .lo = 0, .hi = 100,
              .help = "below 1 the likely ids become more likely; 0 always takes the likeliest "
                      "(default: 1)"),
    DLT_INT(DltArgs, top_k, .unit = "K", .lo = 1, .hi = 1 << 30,
            .help = "choose among the K likeliest ids (default: all)"),
    DLT_FLOAT(DltArgs, top_p, .unit = "P", .def = "1", .lo = 0, .hi = 1,
              .help =
                  "choose among the likeliest ids that together have probability P (default: 1)"),
    DLT_INT(DltArgs, seed, .unit = "N", .lo = 0, .hi = 9e15,
            .help = "of the random choices (default: 0)"),
    DLT_INT(DltArgs, max_tokens, .unit = "N", .def = "200", .lo = 1, .hi = 1e9,
            .help = "ids to generate (default: 200)"),
    DLT_BOOL(DltArgs, no_cache, .help = "compute the whole window for every id"),
    DLT_INT(DltArgs, threads, .unit = "N", .lo = 0, .hi = 1024,
            .help = "CPU threads (default: all)"),
    DLT_INT(DltArgs, stop_at, .unit = "N", .lo = 0, .hi = 1e15,
            .help = "stop after N updates, save, exit 75 (resumable)"),
    DLT_INT(DltArgs, steps, .unit = "N", .lo = 2, .hi = 1e15,
            .help = "updates (default: 20); bench: of a window"),
    DLT_STR(DltArgs, only, .unit = "A,B", .help = "these workloads alone, such as mlp,lenet"),
    DLT_STR(DltArgs, walltime, .unit = "TIME",
            .help = "`50 min`: stop then, save, exit 75 (resumable)"),
    DLT_BOOL(DltArgs, json, .help = "machine-readable results"),
    DLT_BOOL(DltArgs, quiet, .help = "no progress"),
    DLT_BOOL(DltArgs, verbose, .help = "say more"),
    DLT_BOOL(DltArgs, eager, .help = "run node by node, so that faults carry the node's name"),
    DLT_BOOL(DltArgs, check, .help = "fail unless the stored metric is reproduced"),
    DLT_BOOL(DltArgs, hash, .help = "print 16 digits that stand for the resolved config"),
    DLT_BOOL(DltArgs, origin, .help = "say beside each value where it was written"),
    DLT_STR(DltArgs, to, .unit = "FORMAT", .help = "safetensors, npz or c-header"),
    DLT_STR(DltArgs, weights, .unit = "WHICH", .help = "raw (default) or ema"),
    DLT_BOOL(DltArgs, json_schema, .help = "print a JSON Schema of configs, for editors"),
    DLT_BOOL(DltArgs, man, .help = "print the manual page"),
    DLT_BOOL(DltArgs, bash, .help = "print bash's completion"),
    DLT_BOOL(DltArgs, header, .help = "read the header alone, not the tensors"),
    DLT_BOOL(DltArgs, help, .help = "this text"),
    DLT_FIELDS_END,
};

static const DltMark command_line = {"<command line>", 0, 0, 0, NULL};

const DltCommand *dlt_command_find(const char *name)
{
    for (int i = 0; dlt_commands[i]; i++)
        if (strcmp(dlt_commands[i]->name, name) == 0) return dlt_commands[i];
    return NULL;
}

/* "--stop-at" matches the row "stop_at". */
static bool option_matches(const char *key, const char *word, size_t n)
{
    if (strlen(key) != n) return false;
    for (size_t i = 0; i < n; i++)
        if (key[i] != word[i] && !(key[i] == '_' && word[i] == '-')) return false;
    return true;
}

/* Every command has --help, --quiet and --verbose. */
bool dlt_command_takes(const DltCommand *c, const char *key)
{
    static const char *const common[] = {"help", "quiet", "verbose", NULL};
    for (int i = 0; common[i]; i++)
        if (strcmp(common[i], key) == 0) return true;
    for (int i = 0; c->options && c->options[i]; i++)
        if (strcmp(c->options[i], key) == 0) return true;
    return false;
}

static const DltField *find_option(const DltCommand *c, const char *word, size_t n, DltErr *err)
{
    const char *names[40];
    int n_name = 0;
    for (const DltField *f = dlt_options; f->key; f++) {
        if (!dlt_command_takes(c, f->key)) continue;
        if (option_matches(f->key, word, n)) return f;
        names[n_name++] = f->key;
    }
    names[n_name] = NULL;
    char key[64];
    snprintf(key, sizeof key, "%.*s", (int)(n < 60 ? n : 60), word);
    const char *near = dlt_nearest(key, names);
    (void)dlt_err_at(err, DLT_E_CONFIG, command_line, "%s: unknown option '--%s'%s%s%s", c->name,
                     key, near ? "; did you mean '--" : "", near ? near : "", near ? "'?" : "");
    return NULL;
}

static DltStatus set_option(DltArgs *a, const DltField *f, const char *value, DltErr *err)
{
    char name[64];
    void *member = (char *)a + f->offset;
    dlt_option_name(f, name);
    if (f->type == DLT_T_BOOL) {
        *(bool *)member = true;
        return DLT_OK;
    }
    if (f->type == DLT_T_STR) {
        *(const char **)member = value;
        return DLT_OK;
    }
    if (f->type == DLT_T_FLOAT) {
        double x = 0;
        if (!dlt_parse_float(value, &x) || x < f->lo || x > f->hi)
            return dlt_err_at(err, DLT_E_CONFIG, command_line, "%s: '%s' is no number in [%g, %g]",
                              name, value, f->lo, f->hi);
        *(double *)member = x;
        return DLT_OK;
    }
    int64_t v = 0;
    if (!dlt_parse_int(value, &v) || (double)v < f->lo || (double)v > f->hi)
        return dlt_err_at(err, DLT_E_CONFIG, command_line,
                          "%s: '%s' is no whole number in [%.0f, %.0f]", name, value, f->lo, f->hi);
    *(int64_t *)member = v;
    return DLT_OK;
}

static DltStatus read_option(const DltCommand *c, char *const argv[], int argc, int *i, DltArgs *a,
                             DltErr *err)
{
    bool is_long = argv[*i][1] == '-';
    if (!is_long && strcmp(argv[*i], "-h") != 0)
        return dlt_err_at(err, DLT_E_CONFIG, command_line, "%s: unknown option '%s'", c->name,
                          argv[*i]);
    const char *word = is_long ? argv[*i] + 2 : "help";
    const char *equal = strchr(word, '=');
    size_t n = equal ? (size_t)(equal - word) : strlen(word);
    const DltField *f = find_option(c, word, n, err);
    if (!f) return DLT_E_CONFIG;
    char name[64];
    dlt_option_name(f, name);
    if (f->type == DLT_T_BOOL && equal)
        return dlt_err_at(err, DLT_E_CONFIG, command_line, "%s takes no value", name);
    const char *value = equal ? equal + 1 : NULL;
    if (f->type != DLT_T_BOOL && !value) {
        if (*i + 1 >= argc)
            return dlt_err_at(err, DLT_E_CONFIG, command_line, "%s needs a value: %s %s", name,
                              name, f->unit);
        value = argv[++*i];
    }
    return set_option(a, f, value, err);
}

/* path=value: an identifier path before the first '='. */
static bool is_override(const char *word)
{
    size_t n = strcspn(word, "=");
    if (word[n] != '=' || n == 0) return false;
    return strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") >= n;
}

DltStatus dlt_args_read(const DltCommand *command, int argc, char *const argv[], DltArgs *a,
                        DltErr *err)
{
    const char **word = DLT_NEW_ARRAY(a->arena, argc + 1, const char *);
    const char **override = DLT_NEW_ARRAY(a->arena, argc + 1, const char *);
    a->word = word;
    a->override = override;
    bool only_words = false;
    for (const DltField *f = dlt_options; f->key; f++)
        if (f->def) DLT_TRY(set_option(a, f, f->def, err));
    for (int i = 0; i < argc; i++) {
        if (!only_words && strcmp(argv[i], "--") == 0)
            only_words = true;
        else if (!only_words && argv[i][0] == '-' && argv[i][1])
            DLT_TRY(read_option(command, argv, argc, &i, a, err));
        else if (!only_words && a->n_word >= 1 && is_override(argv[i]))
            override[a->n_override++] = argv[i];
        else
            word[a->n_word++] = argv[i];
    }
    if (a->help) return DLT_OK;
    if (a->n_word < command->min_word)
        return dlt_err_at(err, DLT_E_CONFIG, command_line, "usage: dltrain %s %s", command->name,
                          command->words);
    if (command->max_word >= 0 && a->n_word > command->max_word)
        return dlt_err_at(err, DLT_E_CONFIG, command_line,
                          "%s: '%s' is one word too many; usage: dltrain %s %s", command->name,
                          a->word[command->max_word], command->name, command->words);
    return DLT_OK;
}

const DltExitCode dlt_exit_codes[] = {
    {"0", "done"},
    {"1", "bug"},
    {"2", "command line or config"},
    {"3", "data"},
    {"4", "checkpoint"},
    {"5", "device"},
    {"6", "memory, disk or lock"},
    {"7", "diverged, or a broken expectation"},
    {"75", "stopped early on request, resumable"},
    {"130", "interrupted, with a checkpoint saved"},
    {"143", "terminated, with a checkpoint saved"},
    {NULL, NULL},
};

static void program_usage(FILE *out)
{
    fprintf(out, "dltrain %s: trains a neural network from one YAML file\n\nusage:\n",
            dlt_version());
    for (int i = 0; dlt_commands[i]; i++)
        fprintf(out, "  dltrain %-8s %-30s %s\n", dlt_commands[i]->name, dlt_commands[i]->words,
                dlt_commands[i]->help);
    fputs("\n`dltrain COMMAND --help` shows its options, `dltrain explain` every key and layer.\n"
          "exit codes:\n",
          out);
    for (const DltExitCode *e = dlt_exit_codes; e->text; e++)
        fprintf(out, "  %3s  %s\n", e->code, e->text);
}

const char *dlt_option_name(const DltField *option, char buf[64])
{
    snprintf(buf, 64, "--%s", option->key);
    for (char *p = buf; *p; p++)
        if (*p == '_') *p = '-';
    return buf;
}

void dlt_usage(const DltCommand *command, FILE *out)
{
    if (!command) {
        program_usage(out);
        return;
    }
    fprintf(out, "usage: dltrain %s %s\n%s\n", command->name, command->words, command->help);
    for (const DltField *f = dlt_options; f->key; f++) {
        if (!dlt_command_takes(command, f->key)) continue;
        char name[64], both[100];
        snprintf(both, sizeof both, "%s%s%s", dlt_option_name(f, name), f->unit ? " " : "",
                 f->unit ? f->unit : "");
        fprintf(out, "  %-18s %s\n", both, f->help);
    }
}
