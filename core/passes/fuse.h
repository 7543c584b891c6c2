/* What fusion rules see of the graph: who reads a tensor, and the edits they may make. */
#ifndef DLT_FUSE_H
#define DLT_FUSE_H

#include "passes/passes.h"

enum { DLT_MAX_READERS = 6 };

struct DltFuse {
    DltGraph *g;
    const DltDeviceInfo *info;
    int *n_reader;                       /* [tensor id] */
    DltNode *(*reader)[DLT_MAX_READERS]; /* [tensor id], the first few, unordered */
    int cap;                             /* places of both */
};

/* Number of node inputs that read t. */
int dlt_fuse_readers(const DltFuse *f, const DltTensor *t);
/* The one reader of this kind, NULL when there is none or several. */
DltNode *dlt_fuse_reader(const DltFuse *f, const DltTensor *t, int kind);
/* t is a plain temporary that nobody but its readers needs: it may disappear. */
bool dlt_fuse_is_inner(const DltFuse *f, const DltTensor *t);
/* t is there when n runs. */
bool dlt_fuse_is_ready(const DltTensor *t, const DltNode *n);
/* Makes every reader of t read `by`; false when there are too many to know. */
bool dlt_fuse_replace(DltFuse *f, DltTensor *t, DltTensor *by);
/* Makes those readers of t that run behind n read `by`; false, with nothing changed, when there are none or
 * too many to know. */
bool dlt_fuse_replace_behind(DltFuse *f, DltTensor *t, DltTensor *by, const DltNode *n);
/* Whether a reader of t runs behind n. */
bool dlt_fuse_is_read_behind(const DltFuse *f, const DltTensor *t, const DltNode *n);
/* Moves n to where the last of its inputs is made; the nodes it passes keep their order. */
void dlt_fuse_advance(DltFuse *f, DltNode *n);
/* Sets an input or output and keeps the tables right. */
void dlt_fuse_set_in(DltFuse *f, DltNode *n, int i, DltTensor *t);
void dlt_fuse_set_out(DltFuse *f, DltNode *n, int i, DltTensor *t);
/* Gives n new attributes (a copy that the caller may change). */
void *dlt_fuse_edit(DltFuse *f, DltNode *n);
/* The device has a fast kernel for n, a node that is not in the graph (yet). */
bool dlt_fuse_has_kernel(const DltFuse *f, const DltNode *n);
/* Makes n a node of another op; inputs and outputs stay. */
void dlt_fuse_turn(DltNode *n, int kind, const void *attr);
/* A new temporary, with a place in the tables. */
DltTensor *dlt_fuse_tensor(DltFuse *f, const char *name, const DltShape *shape, DltDtype dtype);
/* Takes a node out; its outputs must have found another producer or no reader. */
void dlt_fuse_remove(DltFuse *f, DltNode *n);
/* Moves n to the place of `to`, which leaves the graph. */
void dlt_fuse_take_place(DltFuse *f, DltNode *n, DltNode *to);

/* ---- rules with files of their own ---- */
bool dlt_fuse_conv_pool(DltFuse *f, DltNode *pool); /* fuse_conv_pool.c */
bool dlt_fuse_norm_bias(DltFuse *f, DltNode *n);    /* fuse_bias.c */
bool dlt_fuse_attention_bias(DltFuse *f, DltNode *n);
bool dlt_fuse_embedding_add(DltFuse *f, DltNode *n); /* fuse_loss.c */
bool dlt_fuse_cross_entropy(DltFuse *f, DltNode *n);
bool dlt_fuse_classifier(DltFuse *f, DltNode *n);
bool dlt_fuse_output_layer(DltFuse *f, DltNode *n);

#endif
