/* For the planner's tests: a backend that accepts everything and touches nothing, a few made-up
 * ops, random graphs over them, and an oracle that replays a plan byte by byte. */
#ifndef TOY_PLAN_H
#define TOY_PLAN_H

#include "base/rng.h"
#include "plan/make.h"

enum { TOY_ALIGN = 64, TOY_LANES = 1 };

static inline bool toy_accepts(const DltNode *n, const DltDevice *dev, DltWhy *why)
{
    (void)n, (void)dev, (void)why;
    return true;
}
static inline DltStatus toy_prepare(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)n, (void)dev, (void)err;
    p->work_bytes = 100;
    return DLT_OK;
}
static inline DltStatus toy_launch(const DltCall *call, DltErr *err)
{
    (void)call, (void)err;
    return DLT_OK;
}
static const DltKernel toy_kernel = {
    .name = "toy", .accepts = toy_accepts, .prepare = toy_prepare, .launch = toy_launch};
static const DltKernel *const toy_list[] = {&toy_kernel, NULL};
static inline const DltKernel *const *toy_kernels(const DltDevice *dev, int kind)
{
    (void)dev, (void)kind;
    return toy_list;
}
static const DltBackend toy_backend = {
    .name = "toy", .align = TOY_ALIGN, .n_lane = TOY_LANES, .kernels = toy_kernels};

static const DltOpDef toy_unary = {.name = "unary", .n_in = 1, .n_out = 1, .inplace = 1};
static const DltOpDef toy_binary = {.name = "binary", .n_in = 2, .n_out = 1, .inplace = 3};
static const DltOpDef toy_mix = {.name = "mix", .n_in = 3, .n_out = 2};
static const DltOpDef toy_reshape = {.name = "reshape", .n_in = 1, .n_out = 1, .view = true};
static const DltOpDef toy_update = {.name = "update", .n_in = 2, .n_out = 0, .mutates = 1};

static inline DltNode *toy_node(DltGraph *g, const DltOpDef *op, DltTensor *const *in, int n_in,
                                DltTensor *const *out, int n_out)
{
    DltNode *n = DLT_NEW(g->arena, DltNode);
    n->op = op;
    n->name = "n";
    for (int i = 0; i < n_in; i++)
        n->in[i] = in[i];
    for (int i = 0; i < n_out; i++)
        n->out[i] = out[i];
    dlt_graph_insert(g, g->n_node, n);
    return n;
}

static inline DltTensor *toy_tensor(DltGraph *g, int64_t count, DltRole role)
{
    DltShape s = dlt_shape1(count);
    return dlt_graph_tensor(g, dlt_arena_printf(g->arena, "t%d", g->n_tensor), &s, DLT_F32, role);
}

typedef struct ToyRandom {
    uint64_t seed, i;
} ToyRandom;
static inline int toy_random(ToyRandom *r, int n)
{
    return (int)dlt_rng_below(dlt_philox(r->seed, 99, r->i++).v[0], (uint32_t)n);
}

/* Any tensor that has a value so far; recent ones are likelier, as in networks. */
static inline DltTensor *toy_pick(ToyRandom *r, DltTensor **made, int n_made)
{
    int back = toy_random(r, 3) == 0 ? n_made : (n_made < 6 ? n_made : 6);
    return made[n_made - 1 - toy_random(r, back)];
}

/* n_node random nodes, the last quarter in the update phase. */
static inline DltGraph *toy_graph(DltArena *arena, uint64_t seed, int n_node)
{
    static const int64_t sizes[] = {1, 16, 17, 100, 256, 256, 256, 1000};
    ToyRandom r = {.seed = seed};
    DltGraph *g = dlt_graph_new(arena);
    DltTensor **made = DLT_NEW_ARRAY(arena, 2 * n_node + 4, DltTensor *);
    int n_made = 0;
    for (int i = 0; i < 3; i++)
        made[n_made++] = toy_tensor(g, sizes[toy_random(&r, 8)], i == 0 ? DLT_INPUT : DLT_PARAM);
    for (int i = 0; i < n_node; i++) {
        static const DltOpDef *const ops[] = {&toy_unary, &toy_unary,   &toy_binary, &toy_binary,
                                              &toy_mix,   &toy_reshape, &toy_update, &toy_binary};
        const DltOpDef *op = ops[toy_random(&r, 8)];
        DltTensor *in[3], *out[2] = {NULL, NULL};
        for (int k = 0; k < op->n_in; k++)
            in[k] = toy_pick(&r, made, n_made);
        if (op == &toy_update) in[0] = toy_tensor(g, 64, DLT_STATE);
        int64_t count = dlt_shape_count(&in[0]->shape);
        for (int k = 0; k < op->n_out; k++) {
            bool same = op->view || toy_random(&r, 3) > 0;
            out[k] = toy_tensor(g, same ? count : sizes[toy_random(&r, 8)], DLT_TEMP);
            if (!op->view && toy_random(&r, 12) == 0) out[k]->role = DLT_GRAD;
            made[n_made++] = out[k];
        }
        if (op->view) dlt_graph_make_view(out[0], in[0], 0);
        DltNode *n = toy_node(g, op, in, op->n_in, out, op->n_out);
        n->phase = i >= n_node - n_node / 4 ? DLT_PHASE_UPDATE : DLT_PHASE_BATCH;
    }
    return g;
}

/* Replays a plan over an array with one cell for each 4 bytes of TEMP that holds the base's id + 1.
 * False when a step reads a cell that another tensor wrote. */
static inline bool toy_oracle(DltArena *arena, const DltPlan *p)
{
    size_t n_cell = p->region_bytes[DLT_TEMP] / 4 + 4096;
    int *cell = DLT_NEW_ARRAY(arena, n_cell, int);
    for (int s = 0; s < p->n_step; s++) {
        const DltNode *n = p->step[s].node;
        if (n->op->view) continue;
        for (int o = 0; o < DLT_MAX_OUT; o++) { /* an op may write before it has read everything */
            if (!n->out[o] || dlt_tensor_base(n->out[o])->role != DLT_TEMP) continue;
            const DltSlot *out = &p->slot[n->out[o]->id];
            for (int i = 0; i < DLT_MAX_IN; i++) {
                if (!n->in[i]) continue;
                const DltSlot *in = &p->slot[n->in[i]->id];
                bool exact = in->offset == out->offset && in->bytes == out->bytes;
                bool meet = in->region == out->region && in->offset < out->offset + out->bytes &&
                            out->offset < in->offset + in->bytes;
                if (meet && !(o == 0 && exact && n->op->inplace >> i & 1)) return false;
            }
        }
        for (int i = 0; i < DLT_MAX_IN; i++) {
            if (!n->in[i] || dlt_tensor_base(n->in[i])->role != DLT_TEMP) continue;
            const DltSlot *in = &p->slot[n->in[i]->id];
            for (size_t b = in->offset / 4; b < (in->offset + in->bytes) / 4; b++)
                if (cell[b] != dlt_tensor_base(n->in[i])->id + 1) return false;
        }
        for (int o = 0; o < DLT_MAX_OUT; o++) {
            if (!n->out[o] || dlt_tensor_base(n->out[o])->role != DLT_TEMP) continue;
            const DltSlot *out = &p->slot[n->out[o]->id];
            for (size_t b = out->offset / 4; b < (out->offset + out->bytes) / 4; b++)
                cell[b] = dlt_tensor_base(n->out[o])->id + 1;
        }
        const DltSlot *a = n->out[0] ? &p->slot[n->out[0]->id] : NULL;
        const DltSlot *b = n->out[1] ? &p->slot[n->out[1]->id] : NULL;
        if (a && b && a->region == b->region && a->offset < b->offset + b->bytes &&
            b->offset < a->offset + a->bytes)
            return false;
    }
    return true;
}

#endif
