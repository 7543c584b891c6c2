/* Nearest names by Damerau-Levenshtein distance (optimal string alignment; Damerau 1964,
 * Levenshtein 1966), first in the table at hand, then in all tables. Case and '-' for '_' cost
 * nothing. */
#include "config/suggest.h"
#include "base/text.h"
#include <ctype.h>

enum { MAX_WORD = 64, MAX_KNOWN_SHOWN = 24, MAX_PLACES_SHOWN = 3 };
enum { SURE = 4 + 3 /* one edit */, NOT_NEAR = 4 * MAX_WORD }; /* ranks */

typedef struct Table {
    const char *path;
    const DltField *fields;
} Table;

struct DltNames {
    DltArena *arena;
    Table *table;
    int n, room;
    const DltYaml *root; /* the config at hand, or NULL */
};

static const DltNames *current;

static void forget(void *names)
{
    if (current == names) current = NULL;
}

DltNames *dlt_names_new(DltArena *arena)
{
    DltNames *names = DLT_NEW(arena, DltNames);
    names->arena = arena;
    dlt_arena_on_free(arena, forget, names);
    return names;
}

void dlt_names_add(DltNames *names, const char *path, const DltField *fields)
{
    if (names->n == names->room) {
        names->room = names->room > 0 ? 2 * names->room : 64;
        Table *table = DLT_NEW_ARRAY(names->arena, names->room, Table);
        if (names->n > 0) memcpy(table, names->table, (size_t)names->n * sizeof *table);
        names->table = table;
    }
    names->table[names->n++] = (Table){dlt_arena_str(names->arena, path), fields};
}

void dlt_names_set_current(const DltNames *names)
{
    current = names;
}

void dlt_names_prefer(DltNames *names, const DltYaml *root)
{
    names->root = root;
}

const DltNames *dlt_names_current(void)
{
    return current;
}

void dlt_names_each(const DltNames *names,
                    void (*visit)(void *ctx, const char *path, const char *key), void *ctx)
{
    for (int i = 0; names != NULL && i < names->n; i++) {
        for (const DltField *f = names->table[i].fields; f != NULL && f->key != NULL; f++) {
            visit(ctx, names->table[i].path, f->key);
        }
    }
}

static int min3(int a, int b, int c)
{
    int ab = a < b ? a : b;
    return ab < c ? ab : c;
}

int dlt_edit_distance(const char *a, const char *b)
{
    size_t n_a = strlen(a), n_b = strlen(b);
    if (n_a >= MAX_WORD || n_b >= MAX_WORD) return strcmp(a, b) == 0 ? 0 : NOT_NEAR;
    int row[3][MAX_WORD] = {{0}};
    int *before = row[0], *last = row[1], *now = row[2];
    for (size_t j = 0; j <= n_b; j++)
        last[j] = (int)j;
    for (size_t i = 1; i <= n_a; i++) {
        now[0] = (int)i;
        for (size_t j = 1; j <= n_b; j++) {
            now[j] = min3(last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1]));
            bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped && before[j - 2] + 1 < now[j]) now[j] = before[j - 2] + 1;
        }
        int *recycled = before;
        before = last;
        last = now;
        now = recycled;
    }
    return last[n_b];
}

static void fold(const char *word, char folded[MAX_WORD])
{
    size_t n = 0;
    for (; n < MAX_WORD - 1 && word[n] != '\0'; n++) {
        folded[n] = word[n] == '-' ? '_' : (char)tolower((unsigned char)word[n]);
    }
    folded[n] = '\0';
}

/* A rank, smaller is nearer: distance first, then equal first letters, then equal lengths; best of all
 * that the word was not written to its end. NOT_NEAR when the distance is more than typing errors make. */
static int rank(const char *word, const char *name)
{
    char a[MAX_WORD] = "", b[MAX_WORD] = "";
    if (strlen(word) >= MAX_WORD) return NOT_NEAR;
    fold(word, a);
    fold(name, b);
    size_t n = strlen(a);
    int distance = dlt_edit_distance(a, b), allowed = n < 4 ? 1 : n < 8 ? 2 : 3;
    if (distance > allowed || (size_t)distance >= strlen(b) + (n > 1)) return NOT_NEAR;
    int tail = n == strlen(b) ? 0 : strncmp(a, b, n) == 0 ? -1 : 1;
    return 4 * distance + 2 * (a[0] != b[0]) + tail;
}

const char *dlt_nearest(const char *word, const char *const *list)
{
    const char *best = NULL;
    int best_rank = NOT_NEAR;
    for (; *list != NULL; list++) {
        int r = rank(word, *list);
        if (r >= best_rank) continue;
        best_rank = r;
        best = *list;
    }
    return best;
}

const char *dlt_suggest_word(DltArena *arena, const char *word, const char *const *list)
{
    const char *near = dlt_nearest(word, list);
    return near != NULL ? dlt_arena_printf(arena, "; did you mean '%s'?", near) : "";
}

/* Words of PyTorch, Keras, Caffe and darknet for what is called otherwise here. Only ever used to
 * suggest; a row matters where its second word is known. */
static const struct {
    const char *other, *ours;
} synonyms[] = {
    {"learning_rate", "lr"},
    {"base_lr", "lr"},
    {"max_lr", "lr"},
    {"wd", "weight_decay"},
    {"l2", "weight_decay"},
    {"decay", "weight_decay"},
    {"epsilon", "eps"},
    {"beta1", "betas"},
    {"beta_1", "betas"},
    {"batch_size", "batch"},
    {"batchsize", "batch"},
    {"epochs", "for"},
    {"n_epochs", "for"},
    {"num_epochs", "for"},
    {"max_epochs", "for"},
    {"max_iter", "for"},
    {"steps", "for"},
    {"max_steps", "for"},
    {"grad_clip", "clip"},
    {"gradient_clip", "clip"},
    {"scheduler", "schedule"},
    {"lr_scheduler", "schedule"},
    {"early_stopping", "stop_early"},
    {"dtype", "precision"},
    {"amp", "precision"},
    {"mixed_precision", "precision"},
    {"optim", "optimizer"},
    {"solver", "optimizer"},
    {"criterion", "loss"},
    {"objective", "loss"},
    {"network", "model"},
    {"layers", "model"},
    {"dataset", "data"},
    {"random_seed", "seed"},
    {"validation", "val"},
    {"valid", "val"},
    {"out_channels", "filters"},
    {"channels", "filters"},
    {"num_output", "filters"},
    {"num_output", "units"},
    {"out_features", "units"},
    {"hidden_size", "units"},
    {"neurons", "units"},
    {"kernel_size", "kernel"},
    {"ksize", "kernel"},
    {"padding", "pad"},
    {"strides", "stride"},
    {"dilation_rate", "dilation"},
    {"num_heads", "heads"},
    {"n_head", "heads"},
    {"use_bias", "bias"},
    {"embedding_dim", "dim"},
    {"d_model", "dim"},
    {"num_embeddings", "vocab"},
    {"is_causal", "causal"},
    {"negative_slope", "slope"},
    {"smoothing", "label_smoothing"},
    {"class_weight", "class_weights"},
    {"pos_weight", "class_weights"},
    {"num_classes", "classes"},
    {"n_classes", "classes"},
    {"nc", "classes"},
    {"context_length", "window"},
    {"block_size", "window"},
    {"seq_len", "window"},
    {"interval", "every"},
    {"gpu", "device"},
    {"gpus", "device"},
};

static bool is_synonym(const char *word, const char *ours)
{
    char folded[MAX_WORD];
    fold(word, folded);
    for (size_t i = 0; i < sizeof synonyms / sizeof synonyms[0]; i++) {
        if (strcmp(folded, synonyms[i].other) == 0 && strcmp(ours, synonyms[i].ours) == 0)
            return true;
    }
    return false;
}

/* rank(), with 0 for the word itself and 1 for a word that means the same. */
static int rank_meaning(const char *word, const char *name)
{
    if (strcmp(word, name) == 0) return 0;
    return is_synonym(word, name) ? 1 : rank(word, name);
}

/* Where in all tables the keys of lowest rank stand, the likeliest place first. */
typedef struct Places {
    const char *word, *owner;
    int rank, n;
    struct {
        const char *path, *key;
        int merit;
    } place[MAX_PLACES_SHOWN];
} Places;

/* How likely a key is meant in a table: is the table written, is it in the owner's section? */
static int merit(const Places *p, const char *path)
{
    const DltYaml *table =
        current->root != NULL ? dlt_yaml_find((DltYaml *)current->root, path) : NULL;
    bool written = table != NULL && table->kind == DLT_YAML_MAP;
    size_t section = strcspn(p->owner, ".[");
    bool beside = section > 0 && strncmp(path, p->owner, section) == 0;
    return 2 * written + beside;
}

static void visit_place(void *ctx, const char *path, const char *key)
{
    Places *p = ctx;
    int r = rank_meaning(p->word, key);
    if (r > SURE || r > p->rank) return; /* far away only a small error is taken for one */
    if (r < p->rank) p->n = 0;
    p->rank = r;
    int m = merit(p, path), at = p->n < MAX_PLACES_SHOWN ? p->n : MAX_PLACES_SHOWN;
    p->n++;
    while (at > 0 && p->place[at - 1].merit < m)
        at--;
    if (at == MAX_PLACES_SHOWN) return;
    size_t after = (size_t)(MAX_PLACES_SHOWN - 1 - at);
    memmove(&p->place[at + 1], &p->place[at], after * sizeof p->place[0]);
    p->place[at].path = path;
    p->place[at].key = key;
    p->place[at].merit = m;
}

static void add_places(DltText *out, const Places *p)
{
    static const char *const before[MAX_PLACES_SHOWN] = {"; did you mean ", " (also ", ", "};
    for (int i = 0; i < p->n && i < MAX_PLACES_SHOWN; i++) {
        const char *path = p->place[i].path;
        dlt_text_addf(out, "%s%s%s%s%s", before[i], path, path[0] != '\0' ? "." : "",
                      p->place[i].key, i == 0 ? "?" : "");
    }
    if (p->n > MAX_PLACES_SHOWN) dlt_text_add(out, ", ...");
    if (p->n > 1) dlt_text_add(out, ")");
}

static void add_known(DltText *out, const DltField *fields)
{
    dlt_text_add(out, out->n > 0 ? " known: " : "; known: ");
    for (int i = 0; fields[i].key != NULL; i++) {
        if (i == MAX_KNOWN_SHOWN) {
            dlt_text_add(out, ", ...");
            return;
        }
        dlt_text_addf(out, "%s%s", i > 0 ? ", " : "", fields[i].key);
    }
}

/* The row of lowest rank, -1 when none is near. */
static int nearest_row(const DltField *fields, const char *key, int *best_rank)
{
    int near = -1;
    *best_rank = NOT_NEAR;
    for (int i = 0; fields[i].key != NULL; i++) {
        int r = rank_meaning(key, fields[i].key);
        if (r >= *best_rank) continue;
        *best_rank = r;
        near = i;
    }
    return near;
}

const char *dlt_suggest_key(DltArena *arena, const char *owner, const DltField *fields,
                            const char *key, int *meant)
{
    DltText out = dlt_text(arena);
    int near_rank, near = nearest_row(fields, key, &near_rank);
    Places places = {.word = key, .owner = owner, .rank = NOT_NEAR};
    dlt_names_each(current, visit_place, &places);
    /* a short word that is right elsewhere is more likely misplaced than misspelt */
    bool sure = near_rank <= 1 || (near_rank <= SURE && strlen(key) > 3);
    *meant = sure || places.rank > 1 ? near : -1;
    if (*meant >= 0)
        dlt_text_addf(&out, "; did you mean '%s'?", fields[near].key);
    else
        add_places(&out, &places);
    if (fields[0].key != NULL) add_known(&out, fields);
    return out.bytes;
}
