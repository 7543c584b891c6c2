/* Optimizers, schedules, losses and metrics: the rows behind `train:`, `loss:` and `eval:`. */
#ifndef DLT_TRAIN_API_H
#define DLT_TRAIN_API_H

#include "config/schema.h"
#include "graph/build.h"
#include "ops/update_ops.h"

/* Optimizer. build adds the update node of one slab and returns; states are made by the caller
 * (update pass) as slabs like w, zeroed, saved as "optimizer/<state name>/<param name>". */
enum { DLT_MAX_STATES = 3 };
typedef struct DltSlab {
    DltTensor *w, *g, *coef, *step, *low; /* low: compute-precision copy of w, or NULL */
    DltTensor *state[DLT_MAX_STATES];
    DltTensor *grad;     /* of a single parameter: g as a matrix [dim[0], the rest]; else NULL */
    double lr_factor;    /* of the group, relative to the base rate */
    double weight_decay; /* of the group */
} DltSlab;
typedef struct DltOptimDef {
    const char *name, *help;
    const DltField *fields; /* every optimizer has `lr` (double) and `weight_decay` (double) */
    size_t opt_size, lr_offset, weight_decay_offset;
    int (*n_state)(const void *opts);
    const char *state_name[DLT_MAX_STATES]; /* PyTorch's names: "momentum_buffer", "exp_avg", ... */
    DltStatus (*check)(const DltOpts *o, DltErr *err);
    bool single; /* each parameter is a slab of its own */
    /* Builds the slabs of matrices: weights of products and convolutions, but for tables of ids and the
     * output layer. Of this row name, n_state, state_name, single and build count. NULL: no
     * difference is made. */
    const struct DltOptimDef *matrix;
    void (*build)(DltBuild *b, const void *opts, const DltSlab *slab);
} DltOptimDef;
extern const DltOptimDef *const dlt_optims[];
const DltOptimDef *dlt_optim_find(const char *name);

/* One piece of a schedule: a pure function of the position. rate(opts, base, start, before, i, n):
 * base is the optimizer's lr, start the rate where the piece before ended (base for the first, 0
 * for warmup), before the updates of all pieces before it, i the update inside the piece counted
 * from 0, n its length in updates (>= 1). The piece covers [0, n); the rate at i = n is what the
 * next piece starts from. Every DltSpan of the options is in DLT_U_STEPS by then: the spec converts
 * epochs, tokens and percent. */
typedef struct DltScheduleDef {
    const char *name, *help;
    const DltField *fields; /* row `span` (DltSpan) is the main argument where the piece has one */
    size_t opt_size, span_offset;
    bool starts_at_zero; /* warmup */
    DltStatus (*check)(const DltOpts *o, DltErr *err);
    double (*rate)(const void *opts, double base, double start, int64_t before, int64_t i,
                   int64_t n);
} DltScheduleDef;
extern const DltScheduleDef *const dlt_schedules[];
const DltScheduleDef *dlt_schedule_find(const char *name);
typedef struct DltSchedulePiece {
    const DltScheduleDef *def;
    const void *opts;
    int64_t n; /* updates */
} DltSchedulePiece;
typedef struct DltSchedule {
    int n_piece;
    const DltSchedulePiece *piece; /* none: constant */
    double base;
} DltSchedule;
/* Rate of update u (0 first). After the last piece its final rate holds. */
double dlt_schedule_rate(const DltSchedule *s, int64_t u);

typedef enum DltTargetKind { DLT_TARGET_CLASS, DLT_TARGET_VALUE } DltTargetKind;

/* Loss: builds the f64[2] (sum, weight) tensor. n_class: logits' last dim. */
typedef struct DltLossDef {
    const char *name, *help;
    const DltField *fields;
    size_t opt_size;
    DltTargetKind target;
    const char *const *metrics; /* metrics that fit besides `loss`, NULL-terminated */
    DltStatus (*check)(const DltOpts *o, DltErr *err);
    DltTensor *(*build)(DltBuild *b, const DltOpts *o, DltTensor *out, DltTensor *y, DltTensor *w);
    /* output activation that `predict` applies: "softmax", "sigmoid" or NULL */
    const char *activation;
} DltLossDef;
extern const DltLossDef *const dlt_losses[];
const DltLossDef *dlt_loss_find(const char *name);

/* Metric: an accumulator in doubles, updated by nodes, turned into numbers on the host. `loss` is
 * there for every run. value(acc, n_acc, n_out) gives the figure; text (may be NULL) writes a table
 * (confusion). */
typedef struct DltMetricDef {
    const char *name, *help;
    DltTargetKind target;
    bool any_target, higher_is_better;
    bool per_byte; /* value is of a token; the run divides it by the mean bytes of a token */
    int64_t (*n_acc)(int64_t n_out);
    void (*build)(DltBuild *b, DltTensor *out, DltTensor *y, DltTensor *w, DltTensor *loss,
                  DltTensor *acc);
    double (*value)(const double *acc, int64_t n_out); /* NaN when nothing was counted */
    void (*text)(const double *acc, int64_t n_out, const char *const *class_name, FILE *out);
} DltMetricDef;
extern const DltMetricDef *const dlt_metrics[];
const DltMetricDef *dlt_metric_find(const char *name);

#endif
