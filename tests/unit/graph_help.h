/* For tests of the graph, the ops and the passes: a graph under construction, inputs by dims, and
 * ways to look at the result. */
#ifndef GRAPH_HELP_H
#define GRAPH_HELP_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "graph/build.h"
#include "ops/step.h"
#include <string.h>

typedef struct Help {
    DltArena *arena;
    DltErr err;
    DltGraph *g;
    DltBuild b;
} Help;

static inline void help_start(Help *h)
{
    h->arena = dlt_arena_new();
    assert_non_null(h->arena);
    dlt_err_init(&h->err);
    h->g = dlt_graph_new(h->arena);
    dlt_build_init(&h->b, h->g, &h->err);
    h->b.training = true;
    h->b.step = dlt_input(&h->b, "step", dlt_shape1((int64_t)sizeof(DltStepState)), DLT_U8);
}

static inline void help_end(Help *h)
{
    dlt_arena_free(h->arena);
}

/* Another graph in the same arena. */
static inline void help_again(Help *h)
{
    help_end(h);
    help_start(h);
}

static inline void help_ok(const Help *h, DltStatus status)
{
    if (status != DLT_OK) fail_msg("%s", h->err.n > 0 ? h->err.report[0].text : "no report");
}

#define DIMS(...)                                                                                  \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[])                         \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

static inline DltShape help_shape(int rank, const int64_t *dim)
{
    DltShape s = {.rank = rank};
    memcpy(s.dim, dim, (size_t)rank * sizeof *dim);
    return s;
}

static inline DltTensor *help_input(Help *h, const char *name, DltDtype dtype, int rank,
                                    const int64_t *dim)
{
    return dlt_input(&h->b, name, help_shape(rank, dim), dtype);
}
#define X(h, name, ...) help_input(h, name, DLT_F32, DIMS(__VA_ARGS__))
#define INTS(h, name, ...) help_input(h, name, DLT_I32, DIMS(__VA_ARGS__))

static inline DltTensor *help_param(Help *h, const char *name, int rank, const int64_t *dim)
{
    return dlt_param(&h->b, name, help_shape(rank, dim), dlt_init_zeros());
}
#define P(h, name, ...) help_param(h, name, DIMS(__VA_ARGS__))

/* Number of nodes of a kind; the i-th of them. */
static inline int help_count(const DltGraph *g, int kind)
{
    int n = 0;
    for (int i = 0; i < g->n_node; i++)
        n += g->node[i]->kind == kind;
    return n;
}

static inline DltNode *help_node(const DltGraph *g, int kind, int index)
{
    for (int i = 0; i < g->n_node; i++)
        if (g->node[i]->kind == kind && index-- == 0) return g->node[i];
    fail_msg("no such node of kind %s", dlt_ops[kind]->name);
    return NULL;
}

/* The dump as text. */
static inline char *help_dump(const Help *h)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    assert_non_null(f);
    dlt_graph_dump(h->g, f);
    fclose(f);
    char *copy = dlt_arena_str(h->arena, text);
    free(text);
    return copy;
}

/* What every pass must leave behind: each node reads what is there, knows its outputs, and no view
 * hangs on a view; batch nodes do not read what the update phase makes. */
static inline void help_check(const DltGraph *g)
{
    bool *made = DLT_NEW_ARRAY(g->arena, g->n_tensor, bool);
    for (int i = 0; i < g->n_tensor; i++) {
        const DltTensor *t = g->tensor[i];
        assert_int_equal(t->id, i);
        made[i] = t->role != DLT_TEMP || !t->producer;
        if (!t->view_of) continue;
        assert_null(t->view_of->view_of);
        assert_int_equal(t->role, t->view_of->role);
        assert_int_equal(t->dtype, t->view_of->dtype);
        assert_true(t->view_offset >= 0 && t->view_offset + dlt_shape_count(&t->shape) <=
                                               dlt_shape_count(&t->view_of->shape));
    }
    for (int i = 0; i < g->n_node; i++) {
        const DltNode *n = g->node[i];
        assert_non_null(n);
        for (int k = 0; k < DLT_MAX_IN; k++) {
            if (n->in[k] && !made[n->in[k]->id])
                fail_msg("node %d %s reads %s before it is made", i, n->op->name, n->in[k]->name);
            if (!n->in[k] && k < n->op->n_in) assert_true(n->op->optional >> k & 1);
        }
        for (int k = 0; k < DLT_MAX_OUT; k++) {
            if (!n->out[k]) continue;
            assert_ptr_equal(n->out[k]->producer, n);
            made[n->out[k]->id] = true;
        }
        if (n->op->view) {
            assert_ptr_equal(n->out[0]->view_of, dlt_tensor_base(n->in[0]));
            assert_int_equal(n->out[0]->view_offset, n->in[0]->view_offset);
        }
    }
}

#endif
