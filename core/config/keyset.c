/* Open addressing with linear probing, at most half full. */
#include "config/keyset.h"
#include "base/rng.h"

DltKeySet dlt_keyset(DltArena *arena, int n)
{
    size_t n_slot = 4;
    while (n_slot < 2 * (size_t)n)
        n_slot *= 2;
    return (DltKeySet){.slot = DLT_NEW_ARRAY(arena, n_slot, int), .mask = n_slot - 1};
}

int *dlt_keyset_slot(const DltKeySet *set, const char *const *key, const char *name)
{
    uint64_t i = dlt_hash(name, strlen(name), 0) & set->mask;
    while (set->slot[i] != 0 && strcmp(key[set->slot[i] - 1], name) != 0)
        i = (i + 1) & set->mask;
    return &set->slot[i];
}
