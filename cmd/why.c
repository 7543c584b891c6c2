/* dltrain why, config: where the values of a run come from, and the resolved config, which loads again
 * as itself. A value's origin is the mark that the reader kept with it; what it replaced is looked up
 * in the files below: the config without the command line, then the files it extends. */
#include "cmd/leaves.h"

#include "base/rng.h"
#include "base/text.h"

#include <inttypes.h>

/* ---- config -------------------------------------------------------------------------------- */

/* "default", "command line: lr=3e-4", "iris.yaml:16:25", "base.yaml:3:1, extended". */
static const char *origin(void *ctx, DltMark at)
{
    const DltSpec *spec = ctx;
    if (at.file == NULL || at.file[0] == '\0') return "chosen";
    if (strcmp(at.file, "<default>") == 0) return "default";
    char *text;
    if (strcmp(at.file, "<command line>") == 0)
        text = dlt_arena_printf(spec->arena, "command line: %s", at.text ? at.text : "");
    else
        text = dlt_arena_printf(spec->arena, "%s:%d:%d%s", at.file, at.line, at.col,
                                strcmp(at.file, spec->path) == 0 ? "" : ", extended");
    for (char *c = text; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20) *c = ' ';
    return text;
}

static DltStatus run_config(const DltArgs *args, DltErr *err)
{
    DltSpec *spec = NULL;
    DLT_TRY(
        dlt_spec_read(args->arena, args->word[0], args->n_override, args->override, &spec, err));
    const char *text = dlt_yaml_write(args->arena, spec->resolved);
    if (args->hash)
        printf("%016" PRIx64 "\n", dlt_hash(text, strlen(text), 0));
    else if (args->origin)
        fputs(dlt_yaml_write_noted(args->arena, spec->resolved, origin, spec), stdout);
    else
        fputs(text, stdout);
    return DLT_OK;
}

const DltCommand dlt_command_config = {
    .name = "config",
    .words = "CONFIG [key=value...]",
    .help = "the resolved config: every default written out",
    .min_word = 1,
    .max_word = 1,
    .options = (const char *const[]){"hash", "origin", NULL},
    .run = run_config,
};

/* ---- why ----------------------------------------------------------------------------------- */

/* True when `path` is `word`, lies inside of it, or (suffix) does so from some component on. */
static bool is_meant(const char *path, const char *word, bool suffix)
{
    size_t n = strlen(word);
    for (const char *at = path; at != NULL; at = suffix ? strchr(at, '.') : NULL) {
        at += *at == '.';
        if (strncmp(at, word, n) == 0 && (at[n] == '\0' || at[n] == '.')) return true;
    }
    return false;
}

static DltStatus nobody(const DltLeaves *l, const char *word, DltErr *err)
{
    const char **known = DLT_NEW_ARRAY(l->arena, 2 * l->n + 1, const char *);
    int n = 0;
    for (int i = 0; i < l->n; i++) {
        const char *dot = strrchr(l->leaf[i].path, '.');
        known[n++] = l->leaf[i].path;
        if (dot) known[n++] = dot + 1;
    }
    const char *near = dlt_nearest(word, known);
    return dlt_err(err, DLT_E_CONFIG,
                   "why: the resolved config has no '%s'%s%s%s; `dltrain config` prints all of it",
                   word, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

/* The value that a file gives this path: of the path itself, or the scalar that stands for a part of
 * it (`batch: 16` for train.batch.global). Items of lists have other places there. */
static const DltYaml *written(DltArena *arena, DltYaml *tree, const char *path)
{
    char *part = dlt_arena_str(arena, path);
    const DltYaml *found = dlt_yaml_find(tree, part);
    if (found) return dlt_is_leaf(found) ? found : NULL;
    char *dot = strrchr(part, '.');
    if (!dot) return NULL;
    *dot = '\0';
    found = dlt_yaml_find(tree, part);
    return found && found->kind == DLT_YAML_SCALAR ? found : NULL;
}

/* "instead of ..." for what the files below say. */
static void print_replaced(const DltArgs *args, const DltLeaf *f, DltErr *quiet)
{
    DltArena *arena = args->arena;
    const char *file = args->word[0];
    if (strncmp(f->path, "model.", 6) == 0) return;
    for (int depth = 0; file != NULL && depth < 16; depth++) {
        DltYaml *tree = NULL, *raw = NULL;
        char *bytes = NULL;
        int64_t n = 0;
        dlt_err_init(quiet);
        if (dlt_config_load(arena, file, 0, NULL, &tree, quiet) != DLT_OK ||
            dlt_file_read(arena, file, (DltFileRule){DLT_YAML_BYTES, DLT_E_CONFIG, DLT_NO_MARK},
                          &bytes, &n, quiet) != DLT_OK ||
            dlt_yaml_parse(arena, file, bytes, n, &raw, quiet) != DLT_OK)
            return;
        const DltYaml *own = written(arena, raw, f->path);
        bool same = own && own->at.line == f->at.line && own->at.col == f->at.col &&
                    strcmp(own->at.file, f->at.file) == 0;
        if (own && !same)
            printf("  instead of %s at %s:%d:%d\n", dlt_leaf_text(arena, own), own->at.file,
                   own->at.line, own->at.col);
        const DltYaml *base = dlt_yaml_get(raw, "extends");
        file = base && base->kind == DLT_YAML_SCALAR
                   ? dlt_path_join(arena, dlt_path_folder(arena, file), base->text)
                   : NULL;
    }
}

static void print_why(const DltArgs *args, DltSpec *spec, const DltLeaf *f)
{
    DltErr *quiet = DLT_NEW(args->arena, DltErr);
    printf("%s = %s\n  %s\n", f->path, dlt_leaf_text(args->arena, f->value), origin(spec, f->at));
    bool in_file = f->at.line > 0 && f->at.text != NULL && f->at.file[0] != '<';
    if (in_file) printf("  %5d | %s\n", f->at.line, f->at.text);
    if (f->at.line > 0) print_replaced(args, f, quiet);
}

static DltStatus run_why(const DltArgs *args, DltErr *err)
{
    DltSpec *spec = NULL;
    DLT_TRY(
        dlt_spec_read(args->arena, args->word[0], args->n_override, args->override, &spec, err));
    DltLeaves l = dlt_leaves(args->arena, spec->resolved);
    int n = 0;
    for (int pass = 0; pass < 2 && n == 0; pass++)
        for (int i = 0; i < l.n; i++)
            if (is_meant(l.leaf[i].path, args->word[1], pass == 1)) {
                print_why(args, spec, &l.leaf[i]);
                n++;
            }
    return n > 0 ? DLT_OK : nobody(&l, args->word[1], err);
}

const DltCommand dlt_command_why = {
    .name = "why",
    .words = "CONFIG PATH [key=value...]",
    .help = "where a value of a run comes from, and what it replaced",
    .min_word = 2,
    .max_word = 2,
    .options = NULL,
    .run = run_why,
};
