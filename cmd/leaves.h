/* A config as a flat list of paths and values, for commands that look up, compare or show it. */
#ifndef DLT_LEAVES_H
#define DLT_LEAVES_H

#include "cmd/cmd.h"

typedef struct DltLeaf {
    const char *path; /* "train.optimizer.adamw.lr"; items of lists by their index */
    const DltYaml *value;
    DltMark at; /* of the value, or of its key when code made the value */
} DltLeaf;
typedef struct DltLeaves {
    DltArena *arena;
    int n, cap;
    DltLeaf *leaf;
} DltLeaves;

/* Every value of a tree in its order: scalars, empty maps and lists, lists of scalars as one. */
DltLeaves dlt_leaves(DltArena *arena, const DltYaml *tree);
bool dlt_is_leaf(const DltYaml *tree);
/* The leaf of this path, or NULL. */
const DltLeaf *dlt_leaves_find(const DltLeaves *l, const char *path);
/* A leaf's value on one line. */
const char *dlt_leaf_text(DltArena *arena, const DltYaml *value);

/* A config, a checkpoint or a run folder, as `diff` and `report` take them. */
typedef struct DltSubject {
    const char *word, *folder; /* folder: NULL when it is no run folder */
    const DltYaml *resolved;
    const DltCheckpoint *checkpoint; /* header and tensors; NULL for a config */
} DltSubject;
/* `tensors`: read the whole checkpoint, not its header alone. */
DltStatus dlt_subject_read(const DltArgs *args, const char *word, bool tensors, DltSubject *s,
                           DltErr *err) DLT_CHECKED;

#endif
