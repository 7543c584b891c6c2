/* DltKeySet: finds equal strings of an array in constant time, so that no hostile config costs
 * quadratic time. It holds indices into the caller's array, never strings. */
#ifndef DLT_KEYSET_H
#define DLT_KEYSET_H

#include "base/arena.h"

typedef struct DltKeySet {
    int *slot; /* index + 1, 0: empty */
    uint64_t mask;
} DltKeySet;

/* An empty set with room for n keys. */
DltKeySet dlt_keyset(DltArena *arena, int n);
/* The slot that holds the index + 1 of a string equal to `name` in `key`, or the empty slot where
 * the caller may store it. */
int *dlt_keyset_slot(const DltKeySet *set, const char *const *key, const char *name);

#endif
