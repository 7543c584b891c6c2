/* YAML text -> tree with marks, through libyaml's event parser. No implicit typing: every scalar is
 * text, the field tables decide its type. Limits (LANGUAGE.md rule 2): 1 MiB, depth 64, 50,000
 * nodes after alias expansion, 1,000 anchors, 64 KiB a scalar, 256 bytes a key. Duplicate keys, a
 * second document, recursive aliases, tabs in indentation and NULs are errors with their own
 * message. Merge keys (`<<`) add the keys of other maps; a key that arrives twice in one map is an
 * error on this way too. LF, CRLF, CR and a BOM mean the same. */
#ifndef DLT_YAML_H
#define DLT_YAML_H

#include "base/arena.h"

enum {
    DLT_YAML_BYTES = 1 << 20,
    DLT_YAML_DEPTH = 64,
    DLT_YAML_NODES = 50000,
    DLT_YAML_SCALAR_BYTES = 64 << 10
};

typedef enum DltYamlKind { DLT_YAML_SCALAR, DLT_YAML_LIST, DLT_YAML_MAP } DltYamlKind;

typedef struct DltYaml DltYaml;
struct DltYaml {
    DltYamlKind kind;
    DltMark at;       /* of the value's first character */
    bool quoted;      /* scalar in quotes or block style */
    const char *tag;  /* "!replace" or NULL; other tags are errors */
    const char *text; /* scalar only, NUL-terminated, no NUL inside */
    int n;            /* list items or map pairs */
    DltYaml **item;   /* list items or map values */
    const char **key; /* map only */
    DltMark *key_at;  /* map only */
};

/* bytes need not be NUL-terminated. `file` is the name used in marks and must outlive the tree. */
DltStatus dlt_yaml_parse(DltArena *arena, const char *file, const char *bytes, int64_t n,
                         DltYaml **root, DltErr *err) DLT_CHECKED;
/* The same for one line of text that stands at `origin` (an override, a default): marks get its
 * file, line and text, and columns count from its col. */
DltStatus dlt_yaml_parse_at(DltArena *arena, DltMark origin, const char *text, DltYaml **root,
                            DltErr *err) DLT_CHECKED;
/* Value of a key, NULL when absent or when map is no map. */
DltYaml *dlt_yaml_get(const DltYaml *map, const char *key);
/* Follows a dotted path ("train.optimizer.adamw.lr"; a number indexes a list). NULL when absent. */
DltYaml *dlt_yaml_find(DltYaml *root, const char *path);
/* Builders for overrides, defaults and resolved configs; strings are copied. */
DltYaml *dlt_yaml_scalar(DltArena *arena, const char *text, DltMark at);
DltYaml *dlt_yaml_map(DltArena *arena, DltMark at);
DltYaml *dlt_yaml_list(DltArena *arena, DltMark at);
void dlt_yaml_put(DltArena *arena, DltYaml *map, const char *key, DltMark key_at,
                  DltYaml *value); /* replaces or appends */
/* Appends without looking whether the key is there; key is not copied. */
void dlt_yaml_append_pair(DltArena *arena, DltYaml *map, const char *key, DltMark key_at,
                          DltYaml *value);
void dlt_yaml_append(DltArena *arena, DltYaml *list, DltYaml *item);
DltYaml *dlt_yaml_copy(DltArena *arena, const DltYaml *tree);
/* Deep merge for `extends`: maps merge (unless `over` is tagged !replace), everything else is
 * replaced. Returns a new tree. */
DltYaml *dlt_yaml_merge(DltArena *arena, const DltYaml *base, const DltYaml *over);
/* Text that parses back to an equal tree (block style, quoted where needed). */
char *dlt_yaml_write(DltArena *arena, const DltYaml *tree);
/* The same with a comment behind every value: note's answer for the mark of the value, or of its key
 * when the value has none. No comment where it is NULL; it holds no line ends. */
char *dlt_yaml_write_noted(DltArena *arena, const DltYaml *tree,
                           const char *(*note)(void *ctx, DltMark at), void *ctx);

#endif
