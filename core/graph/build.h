/* DltBuild: adds nodes with a sticky error, so layer code reads as its formula. After a failure
 * every call returns the poison tensor; the caller checks dlt_build_failed (or status) once. */
#ifndef DLT_BUILD_H
#define DLT_BUILD_H

#include "graph/graph.h"

struct DltBuild {
    DltGraph *graph;
    DltErr *err;
    DltStatus status;
    DltMark at;        /* place of the layer being built; copied into nodes */
    const char *scope; /* "stage2.0.body.0.conv"; "" at top level */
    DltPhase phase;
    bool training; /* dropout and batch statistics on */
    uint64_t seed;
    /* Decoding: [N, 1] tokens at position place (i32[1]) of a context; place NULL: whole windows. */
    DltTensor *place;
    int64_t context; /* tokens; 0: whole windows */
    /* Filling: [N, L] tokens that a context of `context` tokens begins with; attention leaves keys and
     * values behind for decoding (ops/decode.h). */
    bool filling;
    DltTensor *step; /* u8[sizeof(DltStepState)] INPUT: see ops/step.h */
    DltTensor
        *scaler;    /* f32[DLT_SCALER] STATE: see ops/update_ops.h; NULL: the loss is not scaled */
    int n_random;   /* next stream number for dropout */
    int n_residual; /* residual connections so far */
    int64_t vocab;  /* number of ids in the data, 0: it has none; set by the spec */
    const bool *needs; /* set by autodiff while grad rules run: per tensor id */
};

void dlt_build_init(DltBuild *b, DltGraph *g, DltErr *err);
/* scope "a" inside scope "s" -> "s.a"; returns the old scope to give back to dlt_build_leave. */
const char *dlt_build_enter(DltBuild *b, const char *name);
void dlt_build_leave(DltBuild *b, const char *old_scope);
DltTensor *dlt_build_poison(DltBuild *b);
bool dlt_build_failed(const DltBuild *b);
/* Reports at b->at with status CONFIG and poisons. Returns the poison tensor. */
DltTensor *dlt_build_error(DltBuild *b, const char *fmt, ...) DLT_PRINTF(2, 3);

/* Adds a node: copies attr_size bytes of attr, infers shapes and dtypes, makes outputs named
 * "<scope>.<op>" (".1" ... behind the second and later ones). attr NULL means all zero. Returns the
 * node, or NULL after an error. */
DltNode *dlt_build_node(DltBuild *b, DltOpKind kind, const void *attr, DltTensor *const in[],
                        int n_in);
/* The same, returning out[0] or poison. */
DltTensor *dlt_build_op(DltBuild *b, DltOpKind kind, const void *attr, DltTensor *const in[],
                        int n_in);

/* A trainable parameter "<scope>.<name>", or an existing one of that full name when shapes agree.
 */
DltTensor *dlt_param(DltBuild *b, const char *name, DltShape shape, DltInit init);
/* A tensor kept across steps and in checkpoints, without gradient; shared by name as dlt_param. */
DltTensor *dlt_state(DltBuild *b, const char *name, DltShape shape, DltDtype dtype, DltInit init);
DltTensor *dlt_input(DltBuild *b, const char *name, DltShape shape, DltDtype dtype);
bool dlt_needs_grad(const DltBuild *b, const DltTensor *t);
int64_t dlt_dim(const DltTensor *t, int i); /* negative counts from the end; poison gives 1 */

/* Initialisations as the field names them, fans by PyTorch's rule on `shape`. */
DltInit dlt_init_zeros(void);
DltInit dlt_init_ones(void);
DltInit
dlt_init_kaiming_uniform(const DltShape *shape,
                         double a); /* gain sqrt(2/(1+a^2)); a = sqrt(5) is PyTorch's default */
DltInit dlt_init_kaiming_normal(const DltShape *shape, double a);
DltInit dlt_init_xavier_uniform(const DltShape *shape);
DltInit dlt_init_xavier_normal(const DltShape *shape);
DltInit dlt_init_uniform(double lo, double hi);
DltInit dlt_init_normal(double mean, double std);
DltInit dlt_init_scaled(double std);
DltInit dlt_init_trunc_normal(double mean, double std);
/* Once the whole model is built: scaled initialisations of its parameters become normal ones of
 * std / sqrt(b->n_residual), or of std where the model has no residual. */
void dlt_build_scale_inits(DltBuild *b);
/* Values of a tensor from its init: a pure function of (seed, name), written as f32 (or double in
 * the double build) / i32 / f64 by dtype. out has dlt_tensor_bytes(t) bytes. */
void dlt_init_fill(const DltTensor *t, uint64_t seed, void *out);

#endif
