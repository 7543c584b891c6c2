/* Variables, expressions, blocks' parameters and inheritance on the tree, before field tables see
 * it. $name, ${expr}: + - * / // % ( ), comparisons, `a if c else b`, dotted references, lists'
 * [i];
 *   ${env:NAME} only inside paths. `/` of integers that divides exactly stays an integer. */
#ifndef DLT_EXPAND_H
#define DLT_EXPAND_H

#include "config/yaml.h"

/* A chain of scopes: the innermost name wins. `lookup` (may be NULL) answers dotted references such
 * as data.classes: returns text in the arena, or NULL when unknown. */
typedef struct DltScope DltScope;
struct DltScope {
    const DltScope *outer;
    const DltYaml *vars; /* map name -> value; values may refer to outer and to sibling names */
    const char *(*lookup)(void *ctx, DltArena *arena, const char *dotted);
    void *ctx;
};

/* A copy of `tree` with every $name and ${expr} in its scalars replaced. A scalar that is exactly
 * one reference may become a list or map. Unknown names are errors at the scalar's mark with the
 * nearest known one; cycles are errors. */
DltStatus dlt_expand(DltArena *arena, const DltScope *scope, const DltYaml *tree, DltYaml **out,
                     DltErr *err) DLT_CHECKED;
/* Loads a config file: reads, parses, follows `extends` (relative to the file, at most 16 deep),
 * and applies "path=value" overrides (marks say <command line>; an unambiguous suffix such as lr=
 * works and is echoed through dlt_log). Nothing is expanded yet. */
DltStatus dlt_config_load(DltArena *arena, const char *path, int n_override,
                          const char *const *override, DltYaml **root, DltErr *err) DLT_CHECKED;
/* The same from text (a checkpoint's stored config). */
DltStatus dlt_config_load_text(DltArena *arena, const char *name, const char *text, int n_override,
                               const char *const *override, DltYaml **root,
                               DltErr *err) DLT_CHECKED;

#endif
