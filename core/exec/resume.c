/* What may change when a run is resumed. The checkpoint's resolved config is compared with the
 * present one, key by key; every difference is told. Keys are of three classes: refused (the run
 * would be another one), free (how long, where, what is shown), and recorded (all others: the run
 * goes on differently, and says so). */
#include "base/log.h"
#include "exec/session.h"

typedef enum KeyClass { KEY_RECORDED, KEY_FREE, KEY_REFUSED } KeyClass;
static const struct {
    const char *path; /* a key and all below it; the longest match counts */
    KeyClass class;
    bool alone; /* the key itself, nothing below */
} classes[] = {
    {"seed", KEY_REFUSED, false},
    {"data", KEY_REFUSED, false},
    {"data.cache", KEY_FREE, false},
    {"data.threads", KEY_FREE, false},
    {"data.max_bad", KEY_FREE, false},
    {"data.on_bad", KEY_RECORDED, false}, /* the ledger is part of the fingerprint */
    {"data.train", KEY_RECORDED, false},  /* places may change: fingerprints tell the set */
    {"data.val", KEY_RECORDED, false},
    {"data.test", KEY_RECORDED, false},
    {"data.val", KEY_REFUSED, true}, /* a share of train, or its absence, makes another train */
    {"data.test", KEY_REFUSED, true},
    {"model", KEY_REFUSED, false},
    {"blocks", KEY_REFUSED, false},
    {"loss", KEY_REFUSED, false},
    {"train.ema", KEY_REFUSED, false},
    {"train.for", KEY_FREE, false},
    {"train.stop_early", KEY_FREE, false},
    {"name", KEY_FREE, false},
    {"resume", KEY_FREE, false},
    {"device", KEY_FREE, false},
    {"log", KEY_FREE, false},
    {"eval", KEY_FREE, false},
    {"checkpoint", KEY_FREE, false},
    {"expect", KEY_FREE, false},
};
static const char *const class_text[] = {[KEY_RECORDED] = "recorded", [KEY_FREE] = "free"};

/* train.optimizer has one key, its kind, besides groups: another kind has other states. */
static const char optimizer[] = "train.optimizer";

static KeyClass class_of(const char *path)
{
    KeyClass class = KEY_RECORDED;
    size_t longest = 0;
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
        size_t n = strlen(classes[i].path);
        bool below = strncmp(path, classes[i].path, n) == 0 &&
                     (path[n] == '\0' || (!classes[i].alone && (path[n] == '.' || path[n] == '[')));
        if (!below || n < longest) continue;
        longest = n;
        class = classes[i].class;
    }
    return class;
}

typedef struct Compare {
    DltArena *arena;
    const DltCheckpoint *c;
    DltErr *err;
    DltStatus status;
    const char *changes;
} Compare;

static const char *one_line(DltArena *arena, const DltYaml *v)
{
    if (v == NULL) return "(absent)";
    if (v->kind == DLT_YAML_SCALAR) return v->text;
    char *text = dlt_yaml_write(arena, v);
    for (char *c = text; *c != '\0'; c++)
        if (*c == '\n') *c = ' ';
    if (strlen(text) > 60) memcpy(text + 57, "...", 4);
    return text;
}

static void differ(Compare *w, const char *path, const DltYaml *was, const DltYaml *is,
                   KeyClass class)
{
    const char *a = one_line(w->arena, was), *b = one_line(w->arena, is);
    if (class != KEY_REFUSED) {
        dlt_log("resume: %s: %s -> %s (%s)", path, a, b, class_text[class]);
        w->changes = dlt_arena_printf(w->arena, "%s; %s: %s -> %s (%s)", w->changes, path, a, b,
                                      class_text[class]);
        return;
    }
    w->status = dlt_err(w->err, DLT_E_CHECKPOINT, "%s: %s was %s in this run and is %s now",
                        w->c->path, path, a, b);
}

static void compare(Compare *w, const char *path, const DltYaml *was, const DltYaml *is);

static const char *key_path(Compare *w, const char *path, const char *key)
{
    return path[0] == '\0' ? key : dlt_arena_printf(w->arena, "%s.%s", path, key);
}

static void compare_maps(Compare *w, const char *path, const DltYaml *was, const DltYaml *is)
{
    for (int i = 0; i < was->n; i++) {
        const char *key = key_path(w, path, was->key[i]);
        compare(w, key, was->item[i], dlt_yaml_get(is, was->key[i]));
    }
    for (int i = 0; i < is->n; i++) {
        if (dlt_yaml_get(was, is->key[i]) == NULL)
            compare(w, key_path(w, path, is->key[i]), NULL, is->item[i]);
    }
}

/* Two values of one kind: true when they are equal or their parts have been compared. */
static bool compare_parts(Compare *w, const char *path, const DltYaml *was, const DltYaml *is)
{
    if (was->kind == DLT_YAML_SCALAR) return strcmp(was->text, is->text) == 0;
    if (was->kind == DLT_YAML_MAP) {
        compare_maps(w, path, was, is);
        return true;
    }
    for (int i = 0; i < was->n && was->n == is->n; i++)
        compare(w, dlt_arena_printf(w->arena, "%s[%d]", path, i), was->item[i], is->item[i]);
    return was->n == is->n;
}

static void compare(Compare *w, const char *path, const DltYaml *was, const DltYaml *is)
{
    if (was != NULL && is != NULL && was->kind == is->kind && compare_parts(w, path, was, is))
        return;
    size_t n = sizeof optimizer - 1;
    bool kind = strncmp(path, optimizer, n) == 0 && path[n] == '.' &&
                strchr(path + n + 1, '.') == NULL && strcmp(path + n, ".groups") != 0;
    differ(w, path, was, is, kind ? KEY_REFUSED : class_of(path));
}

/* The way out of what cannot be resumed. */
static DltStatus another_run(DltStatus status, DltErr *err)
{
    dlt_err_note(err, DLT_NO_MARK,
                 "that makes another run; `dltrain train --init` begins one from these weights");
    return status;
}

DltStatus dlt_resume_check(DltArena *arena, const DltSpec *spec, const DltCheckpoint *c,
                           const char **changes, DltErr *err)
{
    DltYaml *was = NULL;
    const char *text = c->meta.resolved;
    DLT_TRY(dlt_yaml_parse(arena, c->path, text, (int64_t)strlen(text), &was, err));
    Compare w = {.arena = arena, .c = c, .err = err, .changes = ""};
    if (spec->resolved != NULL) compare(&w, "", was, spec->resolved);
    *changes = w.changes;
    return w.status == DLT_OK ? DLT_OK : another_run(w.status, err);
}

DltStatus dlt_resume_check_data(const DltSpec *spec, const DltCheckpoint *c, DltErr *err)
{
    for (int i = 0; i < DLT_N_SPLIT; i++) {
        const DltSource *s = &spec->data.source[i];
        uint64_t was = c->meta.data_fingerprint[i];
        if (s->def == NULL || was == 0 || s->ds.fingerprint == was) continue;
        return another_run(dlt_err(err, DLT_E_CHECKPOINT,
                                   "%s: data.%s (%s) is not the data set this run was trained on",
                                   c->path, dlt_split_name[i],
                                   s->ds.path != NULL ? s->ds.path : "-"),
                           err);
    }
    return DLT_OK;
}
