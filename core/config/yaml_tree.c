/* Trees of text: look-up, building, copying, merging. An array of n entries has room for n rounded
 * up to a power of two, so it is moved exactly when n is one. */
#include "config/keyset.h"
#include "config/yaml.h"

enum { FIRST_ROOM = 2 };

static bool is_full(int n)
{
    return n >= FIRST_ROOM && (n & (n - 1)) == 0;
}

static int room_for(int n)
{
    int room = FIRST_ROOM;
    while (room < n)
        room *= 2;
    return room;
}

static void allocate(DltArena *arena, DltYaml *tree, int room)
{
    tree->item = DLT_NEW_ARRAY(arena, room, DltYaml *);
    if (tree->kind != DLT_YAML_MAP) return;
    tree->key = DLT_NEW_ARRAY(arena, room, const char *);
    tree->key_at = DLT_NEW_ARRAY(arena, room, DltMark);
}

static void grow(DltArena *arena, DltYaml *tree)
{
    if (tree->n > 0 && !is_full(tree->n)) return;
    DltYaml old = *tree;
    allocate(arena, tree, room_for(old.n + 1));
    for (int i = 0; i < old.n; i++) {
        tree->item[i] = old.item[i];
        if (tree->kind != DLT_YAML_MAP) continue;
        tree->key[i] = old.key[i];
        tree->key_at[i] = old.key_at[i];
    }
}

static DltYaml *new_tree(DltArena *arena, DltYamlKind kind, DltMark at)
{
    DltYaml *tree = DLT_NEW(arena, DltYaml);
    tree->kind = kind;
    tree->at = at;
    return tree;
}

DltYaml *dlt_yaml_scalar(DltArena *arena, const char *text, DltMark at)
{
    DltYaml *tree = new_tree(arena, DLT_YAML_SCALAR, at);
    tree->text = dlt_arena_str(arena, text);
    return tree;
}

DltYaml *dlt_yaml_map(DltArena *arena, DltMark at)
{
    return new_tree(arena, DLT_YAML_MAP, at);
}

DltYaml *dlt_yaml_list(DltArena *arena, DltMark at)
{
    return new_tree(arena, DLT_YAML_LIST, at);
}

void dlt_yaml_append(DltArena *arena, DltYaml *list, DltYaml *item)
{
    DLT_BUG_ON(list->kind != DLT_YAML_LIST);
    grow(arena, list);
    list->item[list->n++] = item;
}

void dlt_yaml_append_pair(DltArena *arena, DltYaml *map, const char *key, DltMark key_at,
                          DltYaml *value)
{
    DLT_BUG_ON(map->kind != DLT_YAML_MAP);
    grow(arena, map);
    map->key[map->n] = key;
    map->key_at[map->n] = key_at;
    map->item[map->n++] = value;
}

static int find_key(const DltYaml *map, const char *key, size_t n)
{
    if (map == NULL || map->kind != DLT_YAML_MAP) return -1;
    for (int i = 0; i < map->n; i++) {
        if (strncmp(map->key[i], key, n) == 0 && map->key[i][n] == '\0') return i;
    }
    return -1;
}

void dlt_yaml_put(DltArena *arena, DltYaml *map, const char *key, DltMark key_at, DltYaml *value)
{
    int i = find_key(map, key, strlen(key));
    if (i < 0) {
        dlt_yaml_append_pair(arena, map, dlt_arena_str(arena, key), key_at, value);
        return;
    }
    map->key_at[i] = key_at;
    map->item[i] = value;
}

DltYaml *dlt_yaml_get(const DltYaml *map, const char *key)
{
    int i = find_key(map, key, strlen(key));
    return i >= 0 ? map->item[i] : NULL;
}

/* The list's item whose index is written in the first n bytes. */
static DltYaml *item_at(const DltYaml *list, const char *digits, size_t n)
{
    int64_t index = 0;
    for (size_t i = 0; i < n; i++) {
        if (digits[i] < '0' || digits[i] > '9' || index >= list->n) return NULL;
        index = 10 * index + (digits[i] - '0');
    }
    return n > 0 && index < list->n ? list->item[index] : NULL;
}

/* Keys may hold dots themselves ("model.patch"), so every dot is tried as the end of a key. */
DltYaml *dlt_yaml_find(DltYaml *root, const char *path)
{
    if (root == NULL) return NULL;
    for (size_t n = strcspn(path, ".");; n += 1 + strcspn(path + n + 1, ".")) {
        int i = find_key(root, path, n);
        DltYaml *child = i >= 0 ? root->item[i] : NULL;
        if (root->kind == DLT_YAML_LIST) child = item_at(root, path, n);
        if (child != NULL && path[n] == '\0') return child;
        if (child != NULL) child = dlt_yaml_find(child, path + n + 1);
        if (child != NULL) return child;
        if (path[n] == '\0') return NULL;
    }
}

DltYaml *dlt_yaml_copy(DltArena *arena, const DltYaml *tree)
{
    DltYaml *copy = DLT_NEW(arena, DltYaml);
    *copy = *tree;
    if (tree->n == 0) return copy;
    allocate(arena, copy, room_for(tree->n));
    for (int i = 0; i < tree->n; i++)
        copy->item[i] = dlt_yaml_copy(arena, tree->item[i]);
    if (tree->kind == DLT_YAML_MAP) {
        memcpy(copy->key, tree->key, (size_t)tree->n * sizeof *tree->key);
        memcpy(copy->key_at, tree->key_at, (size_t)tree->n * sizeof *tree->key_at);
    }
    return copy;
}

DltYaml *dlt_yaml_merge(DltArena *arena, const DltYaml *base, const DltYaml *over)
{
    bool merges = base->kind == DLT_YAML_MAP && over->kind == DLT_YAML_MAP && over->tag == NULL;
    if (!merges) {
        DltYaml *copy = dlt_yaml_copy(arena, over);
        copy->tag = NULL;
        return copy;
    }
    DltYaml *merged = dlt_yaml_copy(arena, base);
    merged->at = over->at;
    DltKeySet keys = dlt_keyset(arena, base->n);
    for (int i = 0; i < base->n; i++)
        *dlt_keyset_slot(&keys, base->key, base->key[i]) = i + 1;
    for (int i = 0; i < over->n; i++) {
        int found = *dlt_keyset_slot(&keys, base->key, over->key[i]) - 1;
        if (found < 0) {
            DltYaml *value = dlt_yaml_copy(arena, over->item[i]);
            dlt_yaml_append_pair(arena, merged, over->key[i], over->key_at[i], value);
        } else {
            merged->item[found] = dlt_yaml_merge(arena, base->item[found], over->item[i]);
            merged->key_at[found] = over->key_at[i];
        }
    }
    return merged;
}
