/* A node list under construction: passes that insert nodes walk the old list, push onto a new one,
 * and hand it to the graph once, so that their cost is linear. */
#ifndef DLT_EDIT_H
#define DLT_EDIT_H

#include "graph/graph.h"

typedef struct DltEdit {
    DltGraph *g;
    DltNode **node;
    int n, cap;
} DltEdit;

void dlt_edit_push(DltEdit *e, DltNode *n);
/* Pushes a node of one input and one output in front of `reader` (its phase, place and name).
 * Returns the output, a new temporary "<x>.<suffix>" like x; the caller sets what differs. */
DltTensor *dlt_edit_insert(DltEdit *e, int kind, const void *attr, DltTensor *x, const char *suffix,
                           const DltNode *reader);
/* The new list becomes the graph's. */
void dlt_edit_end(DltEdit *e);

#endif
