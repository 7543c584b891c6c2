/* oneDNN 2.x C API. Primitives are made once in prepare; at launch only data handles are set. The
 * engine and stream are the process-wide state that the library asks for. */
#include "cpu/dnnl/onednn.h"

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>

static dnnl_engine_t engine;
static dnnl_stream_t stream;

enum { MAX_ARG = 5 };

/* One argument of the primitive: which slot it is, and its detour through scratch when the library wants
 * another order than ours. */
typedef struct Arg {
    int name, slot;
    dnnl_memory_t mem;
    dnnl_memory_t user;       /* our order, when different */
    dnnl_primitive_t reorder; /* user -> mem before, or mem -> user after */
    bool after;
    size_t offset; /* in scratch */
} Arg;

struct DltDnnl {
    dnnl_primitive_t prim;
    Arg arg[MAX_ARG];
    int n_arg;
    dnnl_memory_t scratch;
    size_t scratch_offset;
};

static bool ok(dnnl_status_t s, const char *what, DltWhy *why)
{
    if (s == dnnl_success) return true;
    if (why) snprintf(why->text, sizeof why->text, "oneDNN: %s gave status %d", what, (int)s);
    return false;
}

bool dlt_dnnl_open(int n_thread, DltWhy *why)
{
    if (dnnl_version()->major != 2) {
        snprintf(why->text, sizeof why->text,
                 "oneDNN %d is installed, this plug-in was built for 2.x", dnnl_version()->major);
        return false;
    }
    omp_set_num_threads(n_thread);
    return engine ||
           (ok(dnnl_engine_create(&engine, dnnl_cpu, 0), "engine", why) &&
            ok(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags), "stream", why));
}

const char *dlt_dnnl_version(char text[64])
{
    const dnnl_version_t *v = dnnl_version();
    snprintf(text, 64, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
    return text;
}

int dlt_dnnl_block(void)
{
    dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
    if ((isa & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core) return 16;
    return (isa & dnnl_cpu_isa_avx2) == dnnl_cpu_isa_avx2 ? 8 : 0;
}

bool dlt_dnnl_has_bf16(void)
{
    dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
    return (isa & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16;
}

bool dlt_dnnl_has_amx(void)
{
    dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
    return (isa & dnnl_cpu_isa_avx512_core_amx) == dnnl_cpu_isa_avx512_core_amx;
}

static dnnl_data_type_t data_type(DltDtype t)
{
    return t == DLT_BF16 ? dnnl_bf16 : dnnl_f32;
}

static dnnl_format_tag_t layout_tag(DltLayout layout)
{
    static const dnnl_format_tag_t tag[] = {[DLT_PLAIN] = dnnl_nchw,
                                            [DLT_NHWC] = dnnl_nhwc,
                                            [DLT_NCHW8C] = dnnl_nChw8c,
                                            [DLT_NCHW16C] = dnnl_nChw16c};
    return tag[layout];
}

static bool image_desc(dnnl_memory_desc_t *md, const DltTensor *t, DltWhy *why)
{
    dnnl_dims_t dims = {t->shape.dim[0], t->shape.dim[1], t->shape.dim[2], t->shape.dim[3]};
    return ok(dnnl_memory_desc_init_by_tag(md, 4, dims, data_type(t->dtype), layout_tag(t->layout)),
              "image descriptor", why);
}

/* Filter dims as the library wants them: [K,C,R,S], or [G,K/G,C/G,R,S]. Ours have the same order. */
static bool filter_desc(dnnl_memory_desc_t *md, const DltTensor *w, DltDtype dtype, int64_t groups,
                        bool any, DltWhy *why)
{
    if (w->layout != DLT_PLAIN) {
        snprintf(why->text, sizeof why->text, "filters in another order than [K,C,R,S]");
        return false;
    }
    const int64_t *d = w->shape.dim;
    dnnl_dims_t whole = {d[0], d[1], d[2], d[3]};
    dnnl_dims_t grouped = {groups, d[0] / groups, d[1], d[2], d[3]};
    dnnl_format_tag_t tag = any ? dnnl_format_tag_any : groups > 1 ? dnnl_goihw : dnnl_oihw;
    return ok(dnnl_memory_desc_init_by_tag(md, groups > 1 ? 5 : 4, groups > 1 ? grouped : whole,
                                           data_type(dtype), tag),
              "filter descriptor", why);
}

static void release(void *ctx)
{
    DltDnnl *d = ctx;
    for (int i = 0; i < d->n_arg; i++) {
        if (d->arg[i].reorder) dnnl_primitive_destroy(d->arg[i].reorder);
        if (d->arg[i].user) dnnl_memory_destroy(d->arg[i].user);
        if (d->arg[i].mem) dnnl_memory_destroy(d->arg[i].mem);
    }
    if (d->scratch) dnnl_memory_destroy(d->scratch);
    if (d->prim) dnnl_primitive_destroy(d->prim);
}

static size_t round_up(size_t n)
{
    return (n + 63) / 64 * 64;
}

/* Adds an argument whose memory the library wants as `want` and the caller has as `have`. */
static bool add_arg(DltDnnl *d, int name, int slot, const dnnl_memory_desc_t *want,
                    const dnnl_memory_desc_t *have, size_t *work, DltWhy *why)
{
    Arg *a = &d->arg[d->n_arg++];
    a->name = name;
    a->slot = slot;
    a->after = name == DNNL_ARG_DIFF_WEIGHTS;
    if (!ok(dnnl_memory_create(&a->mem, want, engine, DNNL_MEMORY_NONE), "memory", why))
        return false;
    if (!have || dnnl_memory_desc_equal(want, have)) return true;
    const dnnl_memory_desc_t *from = a->after ? want : have, *to = a->after ? have : want;
    dnnl_primitive_desc_t pd = NULL;
    bool good = ok(dnnl_memory_create(&a->user, have, engine, DNNL_MEMORY_NONE), "memory", why) &&
                ok(dnnl_reorder_primitive_desc_create(&pd, from, engine, to, engine, NULL),
                   "reorder", why) &&
                ok(dnnl_primitive_create(&a->reorder, pd), "reorder", why);
    if (pd) dnnl_primitive_desc_destroy(pd);
    a->offset = *work;
    *work += round_up(dnnl_memory_desc_get_size(want));
    return good;
}

typedef struct ConvDescs {
    dnnl_memory_desc_t x, y, w_any, w_plain, w_hint, bias;
    dnnl_dims_t stride, dilate, pad_lo, pad_hi;
} ConvDescs;

static bool conv_descs(const DltDnnlConv *c, ConvDescs *m, DltWhy *why)
{
    const DltConv *a = c->attr;
    for (int i = 0; i < 2; i++) {
        m->stride[i] = a->stride[i];
        m->dilate[i] = a->dilation[i] - 1;
        m->pad_lo[i] = a->pad[2 * i];
        /* the far side follows from the shapes, so that rows cut off by rounding down are not read */
        int64_t span = a->dilation[i] * (a->kernel[i] - 1) + 1;
        int64_t need = (c->y->shape.dim[2 + i] - 1) * a->stride[i] + span;
        m->pad_hi[i] = need - c->x->shape.dim[2 + i] - m->pad_lo[i];
    }
    dnnl_dims_t k = {c->w->shape.dim[0]};
    return image_desc(&m->x, c->x, why) && image_desc(&m->y, c->y, why) &&
           filter_desc(&m->w_any, c->w, c->w->dtype, a->groups, true, why) &&
           filter_desc(&m->w_plain, c->w, c->w->dtype, a->groups, false, why) &&
           /* the forward form of a bf16 filter gradient, which itself is f32 */
           filter_desc(&m->w_hint, c->w, c->x->dtype, a->groups, true, why) &&
           ok(dnnl_memory_desc_init_by_tag(&m->bias, 1, k,
                                           data_type(c->bias ? c->bias->dtype : DLT_F32), dnnl_a),
              "bias descriptor", why);
}

/* Forward description, also the hint of both gradients. */
static dnnl_primitive_desc_t forward_desc(const DltDnnlConv *c, const ConvDescs *m,
                                          const_dnnl_primitive_attr_t at, DltWhy *why)
{
    dnnl_convolution_desc_t cd;
    dnnl_primitive_desc_t pd = NULL;
    if (!ok(dnnl_dilated_convolution_forward_desc_init(
                &cd, dnnl_forward_training, dnnl_convolution_direct, &m->x, &m->w_hint,
                c->bias ? &m->bias : NULL, &m->y, m->stride, m->dilate, m->pad_lo, m->pad_hi),
            "convolution", why) ||
        !ok(dnnl_primitive_desc_create(&pd, &cd, at, engine, NULL), "convolution", why))
        return NULL;
    return pd;
}

static dnnl_primitive_desc_t backward_desc(const DltDnnlConv *c, const ConvDescs *m,
                                           const_dnnl_primitive_attr_t at,
                                           dnnl_primitive_desc_t hint, DltWhy *why)
{
    dnnl_convolution_desc_t cd;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t s = c->kind == DLT_DNNL_BWD_DATA
                          ? dnnl_dilated_convolution_backward_data_desc_init(
                                &cd, dnnl_convolution_direct, &m->x, &m->w_any, &m->y, m->stride,
                                m->dilate, m->pad_lo, m->pad_hi)
                          : dnnl_dilated_convolution_backward_weights_desc_init(
                                &cd, dnnl_convolution_direct, &m->x, &m->w_any, NULL, &m->y,
                                m->stride, m->dilate, m->pad_lo, m->pad_hi);
    if (!ok(s, "convolution gradient", why) ||
        !ok(dnnl_primitive_desc_create(&pd, &cd, at, engine, hint), "convolution gradient", why))
        return NULL;
    return pd;
}

/* The library falls silently to reference code hundreds of times slower: refuse it by name. */
static bool is_fast(const_dnnl_primitive_desc_t pd, DltWhy *why)
{
    const char *name = "?";
    dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&name);
    if (strncmp(name, "ref", 3) != 0) return true;
    snprintf(why->text, sizeof why->text, "oneDNN offers only its reference code (%s)", name);
    return false;
}

static dnnl_primitive_attr_t make_attr(bool relu)
{
    dnnl_primitive_attr_t attr = NULL;
    if (dnnl_primitive_attr_create(&attr) != dnnl_success) return NULL;
    dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    dnnl_post_ops_t ops = NULL;
    if (relu && dnnl_post_ops_create(&ops) == dnnl_success) {
        dnnl_post_ops_append_eltwise(ops, 1.0f, dnnl_eltwise_relu, 0.0f, 0.0f);
        dnnl_primitive_attr_set_post_ops(attr, ops);
        dnnl_post_ops_destroy(ops);
    }
    return attr;
}

/* Binds the primitive's arguments by kind. */
static bool bind(DltDnnl *d, const DltDnnlConv *c, const ConvDescs *m,
                 const_dnnl_primitive_desc_t pd, size_t *work, DltWhy *why)
{
    static const struct {
        int in0, in1, out;
        dnnl_query_t w;
    } table[] = {
        [DLT_DNNL_FWD] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, dnnl_query_weights_md},
        [DLT_DNNL_BWD_DATA] = {DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_SRC,
                               dnnl_query_weights_md},
        [DLT_DNNL_BWD_FILTER] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS,
                                 dnnl_query_diff_weights_md},
    };
    const dnnl_memory_desc_t *w = dnnl_primitive_desc_query_md(pd, table[c->kind].w, 0);
    const dnnl_memory_desc_t *scratch =
        dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    bool filter = c->kind == DLT_DNNL_BWD_FILTER;
    const dnnl_memory_desc_t *first = c->kind == DLT_DNNL_BWD_DATA ? &m->y : &m->x;
    const dnnl_memory_desc_t *out = c->kind == DLT_DNNL_BWD_DATA ? &m->x : &m->y;
    bool good =
        add_arg(d, table[c->kind].in0, 0, first, NULL, work, why) &&
        add_arg(d, table[c->kind].in1, 1, filter ? &m->y : w, filter ? NULL : &m->w_plain, work,
                why) &&
        add_arg(d, table[c->kind].out, 3, filter ? w : out, filter ? &m->w_plain : NULL, work, why);
    if (good && c->bias) good = add_arg(d, DNNL_ARG_BIAS, 2, &m->bias, NULL, work, why);
    if (!good) return false;
    d->scratch_offset = *work;
    *work += round_up(dnnl_memory_desc_get_size(scratch));
    return ok(dnnl_memory_create(&d->scratch, scratch, engine, DNNL_MEMORY_NONE), "scratch", why);
}

DltDnnl *dlt_dnnl_conv(DltArena *arena, const DltDnnlConv *c, size_t *work_bytes, DltWhy *why)
{
    ConvDescs m;
    DltDnnl *d = DLT_NEW(arena, DltDnnl);
    if (!conv_descs(c, &m, why)) return NULL;
    dnnl_primitive_attr_t attr = make_attr(c->relu);
    dnnl_primitive_desc_t fwd = forward_desc(c, &m, attr, why), pd = fwd;
    if (fwd && c->kind != DLT_DNNL_FWD) pd = backward_desc(c, &m, attr, fwd, why);
    size_t work = 0;
    bool good = pd && is_fast(pd, why) &&
                ok(dnnl_primitive_create(&d->prim, pd), "primitive", why) &&
                bind(d, c, &m, pd, &work, why);
    if (pd && pd != fwd) dnnl_primitive_desc_destroy(pd);
    if (fwd) dnnl_primitive_desc_destroy(fwd);
    if (attr) dnnl_primitive_attr_destroy(attr);
    *work_bytes = work;
    dlt_arena_on_free(arena, release, d);
    return good ? d : NULL;
}

/* [batch, rows, cols], of which the columns lie one behind the other, or (turned) the rows. */
static bool matrix_desc(dnnl_memory_desc_t *md, DltDtype dtype, int64_t batch, int64_t rows,
                        int64_t cols, bool turned, DltWhy *why)
{
    dnnl_dims_t dims = {batch, rows, cols};
    dnnl_dims_t strides = {rows * cols, turned ? 1 : cols, turned ? rows : 1};
    return ok(dnnl_memory_desc_init_by_strides(md, 3, dims, data_type(dtype), strides), "matrix",
              why);
}

/* Primitive and arguments of a product. */
static bool bind_matmul(DltDnnl *d, const DltNode *n, const_dnnl_primitive_attr_t attr,
                        size_t *work, DltWhy *why)
{
    const DltMatmul *m = n->attr;
    DltGemm g = dlt_matmul_gemm(n);
    dnnl_memory_desc_t a, b, c, bias;
    dnnl_matmul_desc_t md;
    dnnl_primitive_desc_t pd = NULL;
    bool good =
        matrix_desc(&a, n->in[0]->dtype, g.batch, g.m, g.k, m->ta, why) &&
        matrix_desc(&b, n->in[1]->dtype, g.batch, g.k, g.n, m->tb, why) &&
        matrix_desc(&c, n->out[0]->dtype, g.batch, g.m, g.n, false, why) &&
        matrix_desc(&bias, n->in[2] ? n->in[2]->dtype : DLT_F32, 1, 1, g.n, false, why) &&
        ok(dnnl_matmul_desc_init(&md, &a, &b, n->in[2] ? &bias : NULL, &c), "product", why) &&
        ok(dnnl_primitive_desc_create(&pd, &md, attr, engine, NULL), "product", why) &&
        is_fast(pd, why) && ok(dnnl_primitive_create(&d->prim, pd), "primitive", why) &&
        add_arg(d, DNNL_ARG_SRC, 0, &a, NULL, work, why) &&
        add_arg(d, DNNL_ARG_WEIGHTS, 1, &b, NULL, work, why) &&
        add_arg(d, DNNL_ARG_DST, 3, &c, NULL, work, why) &&
        (!n->in[2] || add_arg(d, DNNL_ARG_BIAS, 2, &bias, NULL, work, why));
    if (good) {
        const dnnl_memory_desc_t *scratch =
            dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
        d->scratch_offset = *work;
        *work += round_up(dnnl_memory_desc_get_size(scratch));
        good =
            ok(dnnl_memory_create(&d->scratch, scratch, engine, DNNL_MEMORY_NONE), "scratch", why);
    }
    if (pd) dnnl_primitive_desc_destroy(pd);
    return good;
}

DltDnnl *dlt_dnnl_matmul(DltArena *arena, const DltNode *n, size_t *work_bytes, DltWhy *why)
{
    const DltEpilogue *e = &((const DltMatmul *)n->attr)->ep;
    DltDnnl *d = DLT_NEW(arena, DltDnnl);
    dlt_arena_on_free(arena, release, d);
    dnnl_primitive_attr_t attr = make_attr(e->act.fn == DLT_FN_RELU && !e->save_pre);
    *work_bytes = 0;
    bool good = bind_matmul(d, n, attr, work_bytes, why);
    if (attr) dnnl_primitive_attr_destroy(attr);
    return good ? d : NULL;
}

static bool run_reorder(const Arg *a)
{
    dnnl_exec_arg_t args[2] = {{DNNL_ARG_FROM, a->after ? a->mem : a->user},
                               {DNNL_ARG_TO, a->after ? a->user : a->mem}};
    return dnnl_primitive_execute(a->reorder, stream, 2, args) == dnnl_success;
}

DltStatus dlt_dnnl_run(const DltDnnl *d, void *const arg[4], void *work, DltErr *err)
{
    dnnl_exec_arg_t args[MAX_ARG + 1];
    bool good = true;
    for (int i = 0; i < d->n_arg; i++) {
        const Arg *a = &d->arg[i];
        void *own = a->reorder ? (char *)work + a->offset : arg[a->slot];
        good = good && dnnl_memory_set_data_handle(a->mem, own) == dnnl_success;
        if (a->reorder)
            good = good && dnnl_memory_set_data_handle(a->user, arg[a->slot]) == dnnl_success;
        if (a->reorder && !a->after) good = good && run_reorder(a);
        args[i] = (dnnl_exec_arg_t){a->name, a->mem};
    }
    good = good && dnnl_memory_set_data_handle(d->scratch, (char *)work + d->scratch_offset) ==
                       dnnl_success;
    args[d->n_arg] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, d->scratch};
    good = good && dnnl_primitive_execute(d->prim, stream, d->n_arg + 1, args) == dnnl_success;
    for (int i = 0; i < d->n_arg; i++)
        if (d->arg[i].reorder && d->arg[i].after) good = good && run_reorder(&d->arg[i]);
    return good ? DLT_OK : dlt_err(err, DLT_E_DEVICE, "oneDNN could not run a primitive");
}

bool dlt_dnnl_sgemm(const DltSgemm *g, const float *a, const float *b, float *c)
{
    return dnnl_sgemm(g->ta ? 'T' : 'N', g->tb ? 'T' : 'N', g->m, g->n, g->k, 1.0f, a, g->lda, b,
                      g->ldb, 0.0f, c, g->ldc) == dnnl_success;
}
