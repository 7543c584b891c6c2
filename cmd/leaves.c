/* Configs as lists of leaves; configs, checkpoints and run folders as one kind of subject. */
#include "cmd/leaves.h"

#include "base/sys.h"

#include <fcntl.h>

bool dlt_is_leaf(const DltYaml *tree)
{
    if (tree->kind == DLT_YAML_SCALAR || tree->n == 0) return true;
    return tree->kind == DLT_YAML_LIST && tree->item[0]->kind == DLT_YAML_SCALAR;
}

static void add_leaf(DltLeaves *l, DltLeaf leaf)
{
    if (l->n == l->cap) {
        DltLeaf *old = l->leaf;
        l->cap = l->cap > 0 ? 2 * l->cap : 64;
        l->leaf = DLT_NEW_ARRAY(l->arena, l->cap, DltLeaf);
        if (l->n > 0) memcpy(l->leaf, old, (size_t)l->n * sizeof *old);
    }
    l->leaf[l->n++] = leaf;
}

static void gather(DltLeaves *l, const DltYaml *tree, const char *path)
{
    for (int i = 0; i < tree->n; i++) {
        bool is_map = tree->kind == DLT_YAML_MAP;
        const DltYaml *item = tree->item[i];
        const char *dot = path[0] != '\0' ? "." : "";
        const char *full = is_map ? dlt_arena_printf(l->arena, "%s%s%s", path, dot, tree->key[i])
                                  : dlt_arena_printf(l->arena, "%s%s%d", path, dot, i);
        DltMark at = item->at.file != NULL || !is_map ? item->at : tree->key_at[i];
        if (dlt_is_leaf(item))
            add_leaf(l, (DltLeaf){full, item, at});
        else
            gather(l, item, full);
    }
}

DltLeaves dlt_leaves(DltArena *arena, const DltYaml *tree)
{
    DltLeaves l = {.arena = arena};
    gather(&l, tree, "");
    return l;
}

const DltLeaf *dlt_leaves_find(const DltLeaves *l, const char *path)
{
    for (int i = 0; i < l->n; i++)
        if (strcmp(l->leaf[i].path, path) == 0) return &l->leaf[i];
    return NULL;
}

const char *dlt_leaf_text(DltArena *arena, const DltYaml *value)
{
    char *text = dlt_yaml_write(arena, value);
    size_t n = strlen(text);
    while (n > 0 && text[n - 1] == '\n')
        text[--n] = '\0';
    for (char *c = text; *c != '\0'; c++)
        if (*c == '\n') *c = ' ';
    return text;
}

/* A file that begins like a checkpoint is one; everything else is read as a config. */
static bool is_checkpoint(const char *path)
{
    unsigned char head[9] = {0};
    int fd = dlt_sys_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    bool whole = fd >= 0 && dlt_sys_read_all(fd, head, sizeof head);
    if (fd >= 0) dlt_sys_close(fd);
    return whole && head[8] == '{' && head[7] == 0 && head[6] == 0;
}

DltStatus dlt_subject_read(const DltArgs *args, const char *word, bool tensors, DltSubject *s,
                           DltErr *err)
{
    const char *path = dlt_checkpoint_path(args, word);
    *s = (DltSubject){.word = word, .folder = strcmp(path, word) != 0 ? word : NULL};
    if (!s->folder && !is_checkpoint(path)) {
        DltSpec *spec = NULL;
        DLT_TRY(dlt_spec_read(args->arena, path, args->n_override, args->override, &spec, err));
        s->resolved = spec->resolved;
        return DLT_OK;
    }
    DltCheckpoint *c = NULL;
    DltYaml *tree = NULL;
    if (tensors)
        DLT_TRY(dlt_checkpoint_read(args->arena, path, &c, err));
    else
        DLT_TRY(dlt_checkpoint_read_header(args->arena, path, &c, err));
    const char *text = c->meta.resolved ? c->meta.resolved : "";
    DLT_TRY(dlt_yaml_parse(args->arena, path, text, (int64_t)strlen(text), &tree, err));
    s->checkpoint = c;
    s->resolved = tree;
    return DLT_OK;
}
