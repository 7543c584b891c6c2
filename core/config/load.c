/* One config from its file, the files it extends, and the overrides of the command line. Every node
 * keeps the mark of the place where it was written: another file, or "<command line>". */
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "config/expand.h"
#include "config/suggest.h"

enum { MAX_EXTENDS = 16, MAX_PATHS_SHOWN = 5 };

/* ---- extends ------------------------------------------------------------------------------ */

static DltStatus load_file(DltArena *arena, const char *path, DltMark at, int depth, DltYaml **root,
                           DltErr *err);

static DltStatus expect_map(const DltYaml *root, DltErr *err)
{
    if (root->kind == DLT_YAML_MAP) return DLT_OK;
    return dlt_err_at(err, DLT_E_CONFIG, root->at,
                      "a config is a map of sections (data:, model:, train: ...), not a %s",
                      root->kind == DLT_YAML_LIST ? "list" : "text");
}

/* A map without one of its keys; the items are shared. */
static DltYaml *without(DltArena *arena, const DltYaml *map, const char *key)
{
    DltYaml *rest = dlt_yaml_map(arena, map->at);
    for (int i = 0; i < map->n; i++) {
        if (strcmp(map->key[i], key) == 0) continue;
        dlt_yaml_append_pair(arena, rest, map->key[i], map->key_at[i], map->item[i]);
    }
    return rest;
}

/* `model: {patch: ...}` laid over a model that is a list keeps the list as model.layers. */
static void keep_layers(DltArena *arena, DltYaml *base, const DltYaml *over)
{
    DltYaml *layers = dlt_yaml_get(base, "model");
    const DltYaml *model = dlt_yaml_get(over, "model");
    if (layers == NULL || layers->kind != DLT_YAML_LIST) return;
    if (model == NULL || dlt_yaml_get(model, "patch") == NULL || model->tag != NULL) return;
    DltYaml *map = dlt_yaml_map(arena, layers->at);
    dlt_yaml_put(arena, map, "layers", layers->at, layers);
    dlt_yaml_put(arena, base, "model", layers->at, map);
}

/* Replaces *root, read from a file in `folder`, by its merger with the file that it extends. */
static DltStatus extend(DltArena *arena, const char *folder, int depth, DltYaml **root, DltErr *err)
{
    const DltYaml *extends = dlt_yaml_get(*root, "extends");
    if (extends == NULL) return DLT_OK;
    if (extends->kind != DLT_YAML_SCALAR || extends->text[0] == '\0') {
        return dlt_err_at(err, DLT_E_CONFIG, extends->at, "extends: expects the path of one file");
    }
    if (folder == NULL) {
        return dlt_err_at(err, DLT_E_CONFIG, extends->at,
                          "extends: cannot be followed here, for this config is no file");
    }
    if (depth == MAX_EXTENDS) {
        return dlt_err_at(err, DLT_E_CONFIG, extends->at,
                          "extends: more than %d files deep; do they extend each other?",
                          MAX_EXTENDS);
    }
    DltYaml *base;
    const char *path = dlt_path_join(arena, folder, extends->text);
    DLT_TRY(load_file(arena, path, extends->at, depth + 1, &base, err));
    keep_layers(arena, base, *root);
    *root = dlt_yaml_merge(arena, base, without(arena, *root, "extends"));
    return DLT_OK;
}

static DltStatus load_file(DltArena *arena, const char *path, DltMark at, int depth, DltYaml **root,
                           DltErr *err)
{
    char *bytes;
    int64_t n;
    DLT_TRY(dlt_file_read(arena, path, (DltFileRule){DLT_YAML_BYTES, DLT_E_CONFIG, at}, &bytes, &n,
                          err));
    DLT_TRY(dlt_yaml_parse(arena, dlt_arena_str(arena, path), bytes, n, root, err));
    DLT_TRY(expect_map(*root, err));
    return extend(arena, dlt_path_folder(arena, path), depth, root, err);
}

/* ---- overrides ---------------------------------------------------------------------------- */

typedef struct Override {
    const char *path; /* as written, later in full */
    DltMark at;       /* of the path */
    DltYaml *value;
} Override;

static DltStatus read_override(DltArena *arena, int index, const char *word, Override *out,
                               DltErr *err)
{
    DltMark at = {.file = "<command line>", .line = index + 1, .col = 1};
    at.text = dlt_arena_str(arena, word);
    const char *equals = strchr(word, '=');
    at.len = (int)(equals != NULL ? equals - word : (long)strlen(word));
    if (equals == NULL || equals == word || equals[-1] == '.' || word[0] == '.') {
        return dlt_err_at(err, DLT_E_CONFIG, at, "'%s' is not of the form path=value", word);
    }
    *out = (Override){.path = dlt_arena_strn(arena, word, (size_t)(equals - word)), .at = at};
    if (strcmp(out->path, "extends") == 0) {
        return dlt_err_at(err, DLT_E_CONFIG, at, "extends: is written in the file that extends");
    }
    DltMark value_at = at;
    value_at.col += at.len + 1;
    if (equals[1] == '\0') {
        out->value = dlt_yaml_scalar(arena, "", value_at);
        return DLT_OK;
    }
    return dlt_yaml_parse_at(arena, value_at, equals + 1, &out->value, err);
}

/* Paths that end like the one written. */
typedef struct Matches {
    DltArena *arena;
    DltYaml *root;
    const char *suffix;
    int n;
    const char *path[MAX_PATHS_SHOWN];
} Matches;

static bool ends_with(const char *path, const char *suffix)
{
    size_t n = strlen(path), n_suffix = strlen(suffix);
    if (n < n_suffix || strcmp(path + n - n_suffix, suffix) != 0) return false;
    return n == n_suffix || path[n - n_suffix - 1] == '.';
}

static void add_match(Matches *m, const char *path)
{
    if (m->n < MAX_PATHS_SHOWN) m->path[m->n] = path;
    m->n++;
}

/* `path` is a buffer that holds the first n bytes of every path visited. */
static void match_written(Matches *m, const DltYaml *tree, DltText *path)
{
    size_t n = path->n;
    for (int i = 0; i < tree->n; i++) {
        bool is_map = tree->kind == DLT_YAML_MAP;
        if (is_map && strncmp(tree->key[i], "x-", 2) == 0) continue;
        if (n > 0) dlt_text_add(path, ".");
        if (is_map)
            dlt_text_add(path, tree->key[i]);
        else
            dlt_text_addf(path, "%d", i);
        if (is_map && ends_with(path->bytes, m->suffix)) {
            add_match(m, dlt_arena_str(m->arena, path->bytes));
        }
        match_written(m, tree->item[i], path);
        path->n = n;
        path->bytes[n] = '\0';
    }
}

/* Keys that are not written but may be: their table's map is there. */
static void match_known(void *ctx, const char *table, const char *key)
{
    Matches *m = ctx;
    const char *path =
        dlt_arena_printf(m->arena, "%s%s%s", table, table[0] != '\0' ? "." : "", key);
    if (!ends_with(path, m->suffix)) return;
    const DltYaml *parent = table[0] != '\0' ? dlt_yaml_find(m->root, table) : m->root;
    if (parent != NULL && parent->kind == DLT_YAML_MAP) add_match(m, path);
}

static DltStatus report_ambiguous(const Override *o, const Matches *m, DltErr *err)
{
    DltText paths = dlt_text(m->arena);
    for (int i = 0; i < m->n && i < MAX_PATHS_SHOWN; i++) {
        dlt_text_addf(&paths, "%s%s", i > 0 ? ", " : "", m->path[i]);
    }
    return dlt_err_at(err, DLT_E_CONFIG, o->at, "'%s' may mean %s%s; write more of the path",
                      o->path, paths.bytes, m->n > MAX_PATHS_SHOWN ? ", ..." : "");
}

/* A key of the top level, tested by visiting the names. */
typedef struct Section {
    const char *name;
    size_t n;
    bool found;
} Section;

static void visit_section(void *ctx, const char *table, const char *key)
{
    Section *s = ctx;
    bool equal = strncmp(key, s->name, s->n) == 0 && key[s->n] == '\0';
    s->found = s->found || (table[0] == '\0' && equal);
}

static bool begins_with_section(const DltYaml *root, const char *path)
{
    Section s = {.name = path, .n = strcspn(path, ".")};
    dlt_names_each(dlt_names_current(), visit_section, &s);
    for (int i = 0; i < root->n; i++) {
        s.found = s.found || (strncmp(root->key[i], path, s.n) == 0 && root->key[i][s.n] == '\0');
    }
    return s.found;
}

/* Completes a path that is only the end of one. An unknown path stays as it is: the field tables
 * will say what is near. */
static DltStatus complete_path(DltArena *arena, DltYaml *root, Override *o, DltErr *err)
{
    if (dlt_yaml_find(root, o->path) != NULL || begins_with_section(root, o->path)) return DLT_OK;
    Matches m = {.arena = arena, .root = root, .suffix = o->path};
    DltText path = dlt_text(arena);
    match_written(&m, root, &path);
    if (m.n == 0) dlt_names_each(dlt_names_current(), match_known, &m);
    if (m.n > 1) return report_ambiguous(o, &m, err);
    if (m.n == 0) return DLT_OK;
    dlt_log("%s sets %s", o->at.text, m.path[0]);
    o->path = m.path[0];
    return DLT_OK;
}

/* A missing value, or a bare word that is the next key, may become a map: `loss: cross_entropy`
 * takes loss.cross_entropy.label_smoothing=0.1; a list of layers takes model.patch.head=100. */
static void make_map(DltArena *arena, DltYaml **slot, const char *path)
{
    DltYaml *scalar = *slot;
    size_t n = strcspn(path, ".");
    if (scalar->kind == DLT_YAML_LIST && strncmp(path, "patch.", 6) == 0) {
        *slot = dlt_yaml_map(arena, scalar->at);
        dlt_yaml_put(arena, *slot, "layers", scalar->at, scalar);
    }
    if (scalar->kind != DLT_YAML_SCALAR || scalar->quoted) return;
    bool is_word = strncmp(scalar->text, path, n) == 0 && scalar->text[n] == '\0';
    if (scalar->text[0] == '\0' || is_word) *slot = dlt_yaml_map(arena, scalar->at);
}

static int64_t list_index(const char *digits, size_t n)
{
    int64_t index = n > 0 && n < 10 ? 0 : -1;
    for (size_t i = 0; i < n && index >= 0; i++) {
        index = digits[i] >= '0' && digits[i] <= '9' ? 10 * index + (digits[i] - '0') : -1;
    }
    return index;
}

/* Puts the value where `path` leads from *slot, making maps on the way; false when a value or the
 * end of a list stands in the way. Keys that hold dots are tried before they are taken apart. */
static bool put(DltArena *arena, DltYaml **slot, const char *path, const Override *o)
{
    make_map(arena, slot, path);
    DltYaml *tree = *slot;
    if (tree->kind == DLT_YAML_LIST) {
        size_t n = strcspn(path, ".");
        int64_t i = list_index(path, n);
        if (i < 0 || i >= tree->n) return false;
        if (path[n] == '.') return put(arena, &tree->item[i], path + n + 1, o);
        tree->item[i] = o->value;
        return true;
    }
    if (tree->kind != DLT_YAML_MAP) return false;
    size_t n = strlen(path);
    for (; n > strcspn(path, "."); n--) {
        if (path[n] != '\0' && path[n] != '.') continue;
        if (dlt_yaml_get(tree, dlt_arena_strn(arena, path, n)) != NULL) break;
    }
    const char *key = dlt_arena_strn(arena, path, n);
    DltYaml *child = dlt_yaml_get(tree, key);
    if (path[n] == '\0') {
        dlt_yaml_put(arena, tree, key, o->at, o->value);
        return true;
    }
    if (child == NULL) child = dlt_yaml_map(arena, o->at);
    bool done = put(arena, &child, path + n + 1, o);
    if (done) dlt_yaml_put(arena, tree, key, o->at, child);
    return done;
}

static DltStatus apply_overrides(DltArena *arena, DltYaml **root, int n_override,
                                 const char *const *override, DltErr *err)
{
    DltStatus status = DLT_OK;
    for (int i = 0; i < n_override; i++) {
        Override o = {.path = ""};
        DltStatus one = read_override(arena, i, override[i], &o, err);
        if (one == DLT_OK) one = complete_path(arena, *root, &o, err);
        if (one == DLT_OK && !put(arena, root, o.path, &o)) {
            one = dlt_err_at(err, DLT_E_CONFIG, o.at,
                             "cannot set '%s': a part of it is a value, not a map, or is not there",
                             o.path);
        }
        if (one != DLT_OK) status = one;
    }
    return status;
}

DltStatus dlt_config_load(DltArena *arena, const char *path, int n_override,
                          const char *const *override, DltYaml **root, DltErr *err)
{
    DLT_TRY(load_file(arena, path, DLT_NO_MARK, 0, root, err));
    return apply_overrides(arena, root, n_override, override, err);
}

DltStatus dlt_config_load_text(DltArena *arena, const char *name, const char *text, int n_override,
                               const char *const *override, DltYaml **root, DltErr *err)
{
    const char *file = dlt_arena_str(arena, name);
    DLT_TRY(dlt_yaml_parse(arena, file, text, (int64_t)strlen(text), root, err));
    DLT_TRY(expect_map(*root, err));
    DLT_TRY(extend(arena, NULL, 0, root, err));
    return apply_overrides(arena, root, n_override, override, err);
}
