/* YAML text -> tree, from libyaml's events. libyaml's own loader is quadratic in anchors and its
 * nesting is unlimited (0.2.5), so the tree is built here and every limit is checked while reading.
 * Aliases are copied: the result is a plain tree, whose nodes may be changed one by one. */
#include "config/yaml.h"
#include "config/keyset.h"
#include "config/yaml_lines.h"
#include <yaml.h>

enum { MAX_ANCHORS = 1000, MAX_KEY_BYTES = 256 };

typedef struct Anchor {
    DltYaml *tree;
    bool open; /* its collection is still being read: an alias would be recursive */
} Anchor;

typedef struct Reader {
    DltArena *arena;
    DltErr *err;
    yaml_parser_t parser;
    DltLines lines;
    DltKeySet anchor_names;
    const char *anchor_name[MAX_ANCHORS];
    Anchor anchor[MAX_ANCHORS];
    int n_anchor, n_node;
    bool failed; /* reported, but reading can go on */
} Reader;

static DltStatus read_node(Reader *r, yaml_event_t *event, int depth, DltYaml **out);

static DltMark mark_of(const Reader *r, yaml_mark_t start, yaml_mark_t end)
{
    int len = start.line == end.line ? (int)(end.column - start.column) : 1;
    return dlt_lines_mark(&r->lines, (int)start.line, (int)start.column, len);
}

static DltMark event_mark(const Reader *r, const yaml_event_t *event)
{
    return mark_of(r, event->start_mark, event->end_mark);
}

/* The next event; a syntax error is reported with libyaml's place and a hint. */
static DltStatus next_event(Reader *r, yaml_event_t *event)
{
    if (yaml_parser_parse(&r->parser, event) != 0) return DLT_OK;
    return dlt_yaml_syntax_error(&r->parser, &r->lines, r->err);
}

static DltStatus count_node(Reader *r, DltMark at, int depth)
{
    if (depth > DLT_YAML_DEPTH) {
        return dlt_err_at(r->err, DLT_E_CONFIG, at, "nested deeper than %d levels", DLT_YAML_DEPTH);
    }
    if (++r->n_node > DLT_YAML_NODES) {
        return dlt_err_at(r->err, DLT_E_CONFIG, at,
                          "more than %d values, counting every use of an alias", DLT_YAML_NODES);
    }
    return DLT_OK;
}

static void complain(Reader *r, DltMark at, const char *fmt, ...) DLT_PRINTF(3, 4);

/* A report after which reading goes on. */
static void complain(Reader *r, DltMark at, const char *fmt, ...)
{
    char text[DLT_ERR_TEXT];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    dlt_err_at(r->err, DLT_E_CONFIG, at, "%s", text);
    r->failed = true;
}

static const char *read_tag(Reader *r, const DltYaml *tree, const yaml_char_t *tag)
{
    if (tag == NULL) return NULL;
    static const char core[] = "tag:yaml.org,2002:"; /* written "!!" */
    const char *name = (const char *)tag;
    if (strcmp(name, "!replace") != 0) {
        bool is_core = strncmp(name, core, sizeof core - 1) == 0;
        complain(r, tree->at, "unknown tag '%s%s': the only tag is !replace", is_core ? "!!" : "",
                 is_core ? name + sizeof core - 1 : name);
    } else if (tree->kind != DLT_YAML_MAP) {
        complain(r, tree->at, "!replace stands before a map; other values are replaced anyway");
    }
    return "!replace";
}

/* Books the name of a node about to be read; *index is -1 without an anchor. */
static DltStatus open_anchor(Reader *r, const yaml_char_t *name, DltYaml *tree, int *index)
{
    *index = -1;
    if (name == NULL) return DLT_OK;
    int *slot = dlt_keyset_slot(&r->anchor_names, r->anchor_name, (const char *)name);
    if (*slot == 0) {
        if (r->n_anchor == MAX_ANCHORS) {
            return dlt_err_at(r->err, DLT_E_CONFIG, tree->at, "more than %d anchors", MAX_ANCHORS);
        }
        r->anchor_name[r->n_anchor] = dlt_arena_str(r->arena, (const char *)name);
        *slot = ++r->n_anchor;
    }
    *index = *slot - 1;
    r->anchor[*index] = (Anchor){.tree = tree, .open = true};
    return DLT_OK;
}

static void close_anchor(Reader *r, int index)
{
    if (index >= 0) r->anchor[index].open = false;
}

static DltStatus copy_counted(Reader *r, const DltYaml *tree, int depth, DltYaml **out)
{
    DLT_TRY(count_node(r, tree->at, depth));
    DltYaml *copy = DLT_NEW(r->arena, DltYaml);
    *copy = *tree;
    copy->n = 0;
    *out = copy;
    for (int i = 0; i < tree->n; i++) {
        DltYaml *item;
        DLT_TRY(copy_counted(r, tree->item[i], depth + 1, &item));
        if (tree->kind == DLT_YAML_LIST)
            dlt_yaml_append(r->arena, copy, item);
        else
            dlt_yaml_append_pair(r->arena, copy, tree->key[i], tree->key_at[i], item);
    }
    return DLT_OK;
}

static DltStatus read_alias(Reader *r, const yaml_event_t *event, int depth, DltYaml **out)
{
    const char *name = (const char *)event->data.alias.anchor;
    DltMark at = event_mark(r, event);
    int index = *dlt_keyset_slot(&r->anchor_names, r->anchor_name, name) - 1;
    if (index < 0) {
        return dlt_err_at(r->err, DLT_E_CONFIG, at,
                          "unknown alias '*%s': no '&%s' stands before it", name, name);
    }
    if (r->anchor[index].open) {
        return dlt_err_at(r->err, DLT_E_CONFIG, at, "recursive alias: '*%s' stands inside '&%s'",
                          name, name);
    }
    return copy_counted(r, r->anchor[index].tree, depth, out);
}

static DltStatus read_scalar(Reader *r, const yaml_event_t *event, DltYaml *tree)
{
    const char *text = (const char *)event->data.scalar.value;
    size_t n = event->data.scalar.length;
    if (n > DLT_YAML_SCALAR_BYTES) {
        return dlt_err_at(r->err, DLT_E_CONFIG, tree->at, "a text of %zu bytes; the limit is %d", n,
                          DLT_YAML_SCALAR_BYTES);
    }
    if (strlen(text) != n) complain(r, tree->at, "a text with a NUL character (\\0) inside");
    tree->text = dlt_arena_strn(r->arena, text, n);
    tree->quoted = event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    return DLT_OK;
}

static DltStatus read_list(Reader *r, DltYaml *list, int depth)
{
    for (;;) {
        yaml_event_t event;
        DLT_TRY(next_event(r, &event));
        if (event.type == YAML_SEQUENCE_END_EVENT) {
            yaml_event_delete(&event);
            return DLT_OK;
        }
        DltYaml *item = NULL;
        DLT_TRY(read_node(r, &event, depth + 1, &item));
        dlt_yaml_append(r->arena, list, item);
    }
}

static void check_key(Reader *r, const DltYaml *key)
{
    if (key->kind != DLT_YAML_SCALAR) {
        complain(r, key->at, "a key must be a word, not a %s",
                 key->kind == DLT_YAML_MAP ? "map" : "list");
    } else if (key->text[0] == '\0') {
        complain(r, key->at, "an empty key");
    } else if (strlen(key->text) > MAX_KEY_BYTES) {
        complain(r, key->at, "a key of more than %d bytes", MAX_KEY_BYTES);
    }
}

/* Reads pairs up to the map's end; the values of plain "<<" go to `merge` under that key. */
static DltStatus read_pairs(Reader *r, DltYaml *map, DltYaml *merge, int depth)
{
    for (;;) {
        yaml_event_t event;
        DLT_TRY(next_event(r, &event));
        if (event.type == YAML_MAPPING_END_EVENT) {
            yaml_event_delete(&event);
            return DLT_OK;
        }
        DltYaml *key = NULL, *value = NULL;
        DLT_TRY(read_node(r, &event, depth + 1, &key));
        check_key(r, key);
        DLT_TRY(next_event(r, &event));
        DLT_TRY(read_node(r, &event, depth + 1, &value));
        if (key->kind != DLT_YAML_SCALAR) continue;
        bool is_merge = !key->quoted && strcmp(key->text, "<<") == 0;
        dlt_yaml_append_pair(r->arena, is_merge ? merge : map, key->text, key->at, value);
    }
}

/* Reports and drops the later ones of equal keys; the rest is in `keys` afterwards. */
static void drop_duplicates(Reader *r, DltYaml *map, const DltKeySet *keys)
{
    int n = 0;
    for (int i = 0; i < map->n; i++) {
        int *slot = dlt_keyset_slot(keys, map->key, map->key[i]);
        if (*slot != 0) {
            complain(r, map->key_at[i], "duplicate key '%s': first written at line %d", map->key[i],
                     map->key_at[*slot - 1].line);
            continue;
        }
        map->key[n] = map->key[i];
        map->key_at[n] = map->key_at[i];
        map->item[n] = map->item[i];
        *slot = ++n;
    }
    map->n = n;
}

/* Adds the pairs of `from`, a map merged by the "<<" at `at`. */
static void add_merged(Reader *r, DltYaml *map, const DltYaml *from, const DltKeySet *keys,
                       DltMark at)
{
    for (int i = 0; i < from->n; i++) {
        int *slot = dlt_keyset_slot(keys, map->key, from->key[i]);
        if (*slot != 0) {
            complain(
                r, at,
                "duplicate key '%s': written at line %d and, through '<<', at line %d; a merge "
                "key may only add keys",
                from->key[i], map->key_at[*slot - 1].line, from->key_at[i].line);
            continue;
        }
        dlt_yaml_append_pair(r->arena, map, from->key[i], from->key_at[i], from->item[i]);
        *slot = map->n;
    }
}

/* Applies `<<: map` or `<<: [map, ...]`. */
static void apply_merges(Reader *r, DltYaml *map, const DltYaml *merge, const DltKeySet *keys)
{
    for (int i = 0; i < merge->n; i++) {
        DltYaml *value = merge->item[i];
        DltYaml *const *source = value->kind == DLT_YAML_LIST ? value->item : &value;
        int n = value->kind == DLT_YAML_LIST ? value->n : 1;
        if (i > 0) {
            complain(r, merge->key_at[i],
                     "duplicate key '<<': first written at line %d; merge "
                     "several maps with <<: [*a, *b]",
                     merge->key_at[0].line);
        }
        for (int j = 0; j < n; j++) {
            if (source[j]->kind == DLT_YAML_MAP) {
                add_merged(r, map, source[j], keys, merge->key_at[i]);
            } else {
                complain(r, merge->key_at[i], "'<<' merges a map or a list of maps");
            }
        }
    }
}

static int n_merged_keys(const DltYaml *merge)
{
    int n = 0;
    for (int i = 0; i < merge->n; i++) {
        const DltYaml *value = merge->item[i];
        n += value->kind == DLT_YAML_MAP ? value->n : 0;
        for (int j = 0; j < value->n && value->kind == DLT_YAML_LIST; j++)
            n += value->item[j]->n;
    }
    return n;
}

static DltStatus read_map(Reader *r, DltYaml *map, int depth)
{
    DltYaml merge = {.kind = DLT_YAML_MAP};
    DLT_TRY(read_pairs(r, map, &merge, depth));
    DltKeySet keys = dlt_keyset(r->arena, map->n + n_merged_keys(&merge));
    drop_duplicates(r, map, &keys);
    apply_merges(r, map, &merge, &keys);
    return DLT_OK;
}

/* What libyaml's three node events have in common. */
typedef struct NodeHead {
    DltYamlKind kind;
    const yaml_char_t *anchor, *tag;
} NodeHead;

static NodeHead node_head(const yaml_event_t *event)
{
    if (event->type == YAML_SEQUENCE_START_EVENT) {
        return (NodeHead){DLT_YAML_LIST, event->data.sequence_start.anchor,
                          event->data.sequence_start.tag};
    }
    if (event->type == YAML_MAPPING_START_EVENT) {
        return (NodeHead){DLT_YAML_MAP, event->data.mapping_start.anchor,
                          event->data.mapping_start.tag};
    }
    return (NodeHead){DLT_YAML_SCALAR, event->data.scalar.anchor, event->data.scalar.tag};
}

static DltStatus read_tree(Reader *r, const yaml_event_t *event, int depth, DltYaml **out)
{
    if (event->type == YAML_ALIAS_EVENT) return read_alias(r, event, depth, out);
    NodeHead head = node_head(event);
    DltYaml *tree = DLT_NEW(r->arena, DltYaml);
    tree->kind = head.kind;
    tree->at = event_mark(r, event);
    tree->tag = read_tag(r, tree, head.tag);
    *out = tree;
    int anchor;
    DLT_TRY(count_node(r, tree->at, depth));
    DLT_TRY(open_anchor(r, head.anchor, tree, &anchor));
    if (head.kind == DLT_YAML_SCALAR) DLT_TRY(read_scalar(r, event, tree));
    if (head.kind == DLT_YAML_LIST) DLT_TRY(read_list(r, tree, depth));
    if (head.kind == DLT_YAML_MAP) DLT_TRY(read_map(r, tree, depth));
    close_anchor(r, anchor);
    return DLT_OK;
}

/* Reads the node that begins with *event, which is consumed. */
static DltStatus read_node(Reader *r, yaml_event_t *event, int depth, DltYaml **out)
{
    DltStatus status = read_tree(r, event, depth, out);
    yaml_event_delete(event);
    return status;
}

/* Reads the one document of the stream. */
static DltStatus read_document(Reader *r, DltYaml **root)
{
    enum { STREAM_START, DOCUMENT_START, CONTENT };
    yaml_event_t event;
    for (int part = STREAM_START; part < CONTENT; part++) {
        DLT_TRY(next_event(r, &event));
        bool empty = event.type == YAML_STREAM_END_EVENT;
        yaml_event_delete(&event);
        if (empty) {
            return dlt_err_at(r->err, DLT_E_CONFIG, dlt_lines_mark(&r->lines, -1, 0, 0),
                              "the file is empty; a run needs data:, model: and train:");
        }
    }
    DLT_TRY(next_event(r, &event));
    DLT_TRY(read_node(r, &event, 1, root));
    DLT_TRY(next_event(r, &event)); /* the document's end */
    yaml_event_delete(&event);
    DLT_TRY(next_event(r, &event));
    bool at_end = event.type == YAML_STREAM_END_EVENT;
    DltMark at = event_mark(r, &event);
    yaml_event_delete(&event);
    if (at_end) return DLT_OK;
    return dlt_err_at(r->err, DLT_E_CONFIG, at,
                      "a second document begins here; a config is one document");
}

static DltStatus parse(DltArena *arena, DltLines lines, DltYaml **root, DltErr *err)
{
    Reader *r = DLT_NEW(arena, Reader);
    *r = (Reader){.arena = arena, .err = err, .lines = lines};
    r->anchor_names = dlt_keyset(arena, MAX_ANCHORS);
    if (yaml_parser_initialize(&r->parser) == 0) {
        return dlt_err(err, DLT_E_RESOURCE, "out of memory while reading %s", lines.origin.file);
    }
    yaml_parser_set_input_string(&r->parser, (const unsigned char *)lines.bytes,
                                 (size_t)lines.n_byte);
    DltStatus status = read_document(r, root);
    yaml_parser_delete(&r->parser);
    if (status == DLT_OK && r->failed) status = DLT_E_CONFIG;
    return status;
}

DltStatus dlt_yaml_parse(DltArena *arena, const char *file, const char *bytes, int64_t n,
                         DltYaml **root, DltErr *err)
{
    DltMark whole = {.file = file};
    if (n > DLT_YAML_BYTES) {
        return dlt_err_at(err, DLT_E_CONFIG, whole, "%lld bytes; a config has at most %d (1 MiB)",
                          (long long)n, DLT_YAML_BYTES);
    }
    DltLines lines = dlt_lines_split(arena, file, bytes, n);
    const char *nul = memchr(bytes, '\0', (size_t)n);
    if (nul != NULL && !lines.utf16) {
        return dlt_err_at(err, DLT_E_CONFIG, dlt_lines_mark_byte(&lines, nul - bytes),
                          "a NUL character (byte %lld); a config is a text file",
                          (long long)(nul - bytes));
    }
    return parse(arena, lines, root, err);
}

DltStatus dlt_yaml_parse_at(DltArena *arena, DltMark origin, const char *text, DltYaml **root,
                            DltErr *err)
{
    DltLines lines = {.origin = origin, .bytes = text, .n_byte = (int64_t)strlen(text)};
    return parse(arena, lines, root, err);
}
