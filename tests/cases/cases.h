/* The table of op cases that all drivers share: grad (analytic against numeric gradients), parity
 * (every kernel against the plain one), bench (time). A row is one node: op, inputs, attributes. The
 * gradient nodes of a row come from the op's own rule, so a forward row covers its backward ops too.
 * To cover a new op, add rows to the file of its family; nothing else. */
#ifndef DLT_CASES_H
#define DLT_CASES_H

#include "cpu/cpu.h" /* before OP is defined here: ops.def is expanded with it there */
#include "graph/build.h"

/* What an input holds. Random values are a pure function of (row, input, element). */
typedef enum CaseFill {
    NORMAL,    /* standard normal */
    AWAY,      /* normal, moved 0.1 away from 0: for kinks at 0 */
    POSITIVE,  /* uniform in [0.5, 2) */
    DISTINCT,  /* a permutation of odd multiples of 0.05 around 0: no ties, none near 0 */
    BETWEEN,   /* an integer in [-3, 3] plus [0.2, 0.8): away from whole numbers */
    WHOLE,     /* an integer in [-3, 3] */
    ZERO_ROWS, /* normal, but every other row (last axis), the first too, is all zero */
    ZERO,      /* all zero */
    BIT,       /* 0 or 1 */
    WEIGHTS,   /* of samples: 1, 0, 1, 2, 1, 0, ... */
    ID,        /* i32 in [0, hi) */
    LABEL,     /* i32 in [0, hi), every fifth -100 */
    BYTE,      /* u8 */
    TICKET,    /* i32 [N, 4] for a data set of hi samples; the last one is padding */
    STEP,      /* DltStepState */
    LOSS_PAIR, /* f64 sum and weight */
    DOUBLE,    /* f64 normal */
    COEF,      /* a factor and a norm, nothing skipped */
    COEF_SKIP, /* the same with the skip mark */
    N_FILL
} CaseFill;

/* What an input is to the op: decides whether it is differentiated and whether it may be narrow. */
typedef enum CaseUse {
    UNUSED,
    ACTIVATION, /* differentiable; narrow and in any layout where the op allows it */
    WEIGHT,     /* differentiable; narrow, always row-major */
    PARAMETER,  /* differentiable; always f32 */
    CONSTANT,   /* not differentiable; its own type */
    NARROW      /* not differentiable; always bf16 */
} CaseUse;

typedef struct CaseIn {
    CaseUse use;
    CaseFill fill;
    int rank;
    int64_t dim[DLT_MAX_RANK];
    int64_t hi;
} CaseIn;

typedef struct Case {
    DltOpKind kind;
    const char *why;
    CaseIn in[DLT_MAX_IN];
    const void *attr;
    bool forward_only;    /* set by the fuse pass after gradients exist, or a step function */
    uint32_t dout;        /* bit i: out[i] gets a gradient; 0: out[0] alone */
    const char *kink;     /* what the fills keep away from, for the reader */
    double nmse;          /* bound on f32 against the plain kernel; 0: CASE_NMSE_F32 */
    double nmse_low;      /* factor on the bounds of narrow types; 0: 1 */
    const char *nmse_why; /* reason of either */
} Case;

/* Bounds on sum (a - b)^2 / sum b^2 against the plain kernel on equal inputs.
 * f32: 24-bit mantissas, sums of some thousand terms in another order: relative error 1e-6.
 * bf16: 8-bit mantissas, result rounded once (relative error 2^-9 / sqrt 3, squared 1.3e-6), or twice
 * with an intermediate.  f16: 11 bits, 64 times less. */
#define CASE_NMSE_F32 1e-12
#define CASE_NMSE_BF16 1e-5
#define CASE_NMSE_F16 2e-7

#define OP(name) .kind = DLT_OP_##name
#define ATTR(type, ...)                                                                            \
    .attr = &(const type)                                                                          \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define CASE_RANK(...) ((int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)))
#define INPUT(used, filled, ...)                                                                   \
    {                                                                                              \
        .use = used, .fill = filled, .rank = CASE_RANK(__VA_ARGS__), .dim = { __VA_ARGS__ }        \
    }
#define X(...) INPUT(ACTIVATION, NORMAL, __VA_ARGS__)
#define XF(filled, ...) INPUT(ACTIVATION, filled, __VA_ARGS__)
#define W(...) INPUT(WEIGHT, NORMAL, __VA_ARGS__)
#define P(...) INPUT(PARAMETER, NORMAL, __VA_ARGS__)
#define PF(filled, ...) INPUT(PARAMETER, filled, __VA_ARGS__)
#define C(filled, ...) INPUT(CONSTANT, filled, __VA_ARGS__)
/* with a bound: C_BELOW(10, LABEL, 4) */
#define C_BELOW(bound, filled, ...)                                                                \
    {                                                                                              \
        .use = CONSTANT, .fill = filled, .rank = CASE_RANK(__VA_ARGS__), .dim = {__VA_ARGS__},     \
        .hi = bound                                                                                \
    }
#define CASE_STEP C(STEP, (int64_t)sizeof(DltStepState)) /* update 3 */
/* the first update, where running averages and moments begin */
#define CASE_FIRST_STEP C_BELOW(1, STEP, (int64_t)sizeof(DltStepState))
#define NONE                                                                                       \
    {                                                                                              \
        .use = UNUSED                                                                              \
    }

typedef struct CaseList {
    const char *family;
    const Case *row;
    int n;
} CaseList;
#define CASE_LIST(family)                                                                          \
    const CaseList case_##family = {#family, rows, (int)(sizeof rows / sizeof rows[0])}
extern const CaseList *const case_lists[]; /* NULL-terminated; tests/cases/lists.c */
extern const CaseList case_large;          /* not among them: for times and for many threads */

/* A row as a graph: the node (first of the graph) and the nodes of its gradient rule. Tensors have
 * the same ids whatever `low` is. */
typedef struct CaseGraph {
    DltArena *arena;
    DltGraph *graph;
    DltNode *node;
    DltTensor *in[DLT_MAX_IN], *dout[DLT_MAX_OUT], *din[DLT_MAX_IN];
} CaseGraph;
/* low: type of ACTIVATION and WEIGHT inputs. gradient: add the rule's nodes. Aborts with the message
 * when the row itself is wrong. Owned by the caller: dlt_arena_free(g->arena). */
void case_build(const Case *c, DltDtype low, bool gradient, CaseGraph *g);
/* Values of tensor t in its dtype (f32 is double in the double build). */
void case_fill(const Case *c, const CaseGraph *g, const DltTensor *t, void *values);
/* "conv_fwd [2,3,5,5] [4,3,3,3] {3x3 pad 1}" */
void case_name(const Case *c, char *text, size_t n);

/* Memory of every tensor of a graph on the host, in the tensor's own type. */
typedef struct CaseValues {
    void **at; /* [n_tensor]; views lie in their base */
    int n;
} CaseValues;
void case_values_new(const CaseGraph *g, CaseValues *v);
void case_values_free(CaseValues *v);
/* Pointers of a node's operands. */
void case_operands(const CaseValues *v, const DltNode *n, void *in[DLT_MAX_IN],
                   void *out[DLT_MAX_OUT]);
/* Runs one node of a CPU graph through a kernel: prepare, workspace, launch. Aborts on an error. */
void case_run(DltDevice *dev, const DltKernel *k, const DltNode *n, void *const in[],
              void *const out[]);
/* The specification of an op on the CPU: the last plain kernel of its list. NULL for views. */
const DltKernel *case_plain_kernel(DltDevice *dev, const DltNode *n);
/* One op on the caller's memory through its plain kernel: in[i].at NULL leaves the input out; out[i]
 * must be there for each output that the shape rule makes. The launch's status; err as there. */
typedef struct CaseOperand {
    DltDtype dtype;
    DltShape shape;
    void *at;
} CaseOperand;
DltStatus case_op(DltDevice *dev, DltOpKind kind, const void *attr, const CaseOperand *in, int n_in,
                  void *const out[DLT_MAX_OUT], DltErr *err);
/* A CPU device without plug-in. Aborts when it does not open. */
DltDevice *case_cpu_device(DltArena *arena, int n_thread);

#endif
