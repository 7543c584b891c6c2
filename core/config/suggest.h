/* Answers to names nobody knows: the sentence behind "unknown key". */
#ifndef DLT_SUGGEST_H
#define DLT_SUGGEST_H

#include "config/schema.h"

/* "; did you mean 'hidden'? known: hidden, bias" for a key that is not in `fields`, the table of
 * `owner` ("train.clip"): from the table itself, and then *meant is the row; else from every table
 * of the current names ("; did you mean train.optimizer.adamw.lr?"), those written in the config
 * first, then those of the same section, and *meant is -1. Words of other programs (learning_rate,
 * batch_size) are understood. */
const char *dlt_suggest_key(DltArena *arena, const char *owner, const DltField *fields,
                            const char *key, int *meant);
/* "; did you mean 'same'?", or "". The list ends with NULL. */
const char *dlt_suggest_word(DltArena *arena, const char *word, const char *const *list);

/* The table of names in use, or NULL. */
const DltNames *dlt_names_current(void);
/* Calls visit(ctx, path of the table, key) for every key known. */
void dlt_names_each(const DltNames *names,
                    void (*visit)(void *ctx, const char *path, const char *key), void *ctx);

#endif
