/* The fusion rules, in the order in which they are tried: a rule that removes more passes over memory stands
 * before one that would take its place. Each is rooted at the node that disappears (or moves). */
#include "passes/fuse.h"

#include "ops/conv.h"
#include "ops/norm.h"
#include "ops/shape_ops.h"

/* ---- bias and activation into the product in front of them ---- */

static DltEpilogue *epilogue_of(DltFuse *f, DltNode *n)
{
    void *attr = dlt_fuse_edit(f, n);
    return n->kind == DLT_OP_matmul ? &((DltMatmul *)attr)->ep : &((DltConv *)attr)->ep;
}

static const DltEpilogue *look(const DltNode *n)
{
    return n->kind == DLT_OP_matmul ? &((const DltMatmul *)n->attr)->ep
                                    : &((const DltConv *)n->attr)->ep;
}

static bool is_product(const DltNode *n)
{
    return n && (n->kind == DLT_OP_matmul || n->kind == DLT_OP_conv_fwd);
}

static bool same_form(const DltTensor *a, const DltTensor *b)
{
    return a->layout == b->layout && a->dtype == b->dtype;
}

/* matmul/conv -> bias_fwd: the product takes the bias as in[2]. */
static bool fuse_bias(DltFuse *f, DltNode *n)
{
    DltTensor *x = n->in[0];
    DltNode *p = x->producer;
    const DltBias *a = n->attr;
    if (!is_product(p) || p->in[2] || look(p)->act.fn || look(p)->act_grad.fn) return false;
    if (dlt_fuse_readers(f, x) != 1 || !dlt_fuse_is_inner(f, x) || !same_form(x, n->out[0]))
        return false;
    if (a->axis != (p->kind == DLT_OP_matmul ? x->shape.rank - 1 : 1)) return false;
    DltTensor *bias = n->in[1], *y = n->out[0];
    if (dlt_fuse_is_ready(bias, p))
        dlt_fuse_remove(f, n);
    else
        dlt_fuse_take_place(f, p, n);
    dlt_fuse_set_in(f, p, 2, bias);
    dlt_fuse_set_out(f, p, 0, y);
    return true;
}

/* matmul/conv -> unary_fwd: y = act(product). When the gradient needs the product itself (gelu ...), it is
 * written too, as out[1]. */
static bool fuse_act(DltFuse *f, DltNode *n)
{
    DltTensor *x = n->in[0];
    DltNode *p = x->producer;
    const DltUnary *a = n->attr;
    if (!is_product(p) || look(p)->act.fn || look(p)->act_grad.fn || a->fn == DLT_FN_SCALE)
        return false;
    if (!dlt_fuse_is_inner(f, x) || !same_form(x, n->out[0])) return false;
    bool save = dlt_fuse_readers(f, x) > 1;
    if (save && dlt_unary_saves_y(a->fn)) return false;
    DltTensor *y = n->out[0];
    DltUnary act = *a;
    dlt_fuse_remove(f, n);
    DltEpilogue *e = epilogue_of(f, p);
    e->act = act;
    e->save_pre = save;
    dlt_fuse_set_out(f, p, 0, y);
    if (save) dlt_fuse_set_out(f, p, 1, x);
    return true;
}

/* matmul/conv_bwd_data -> unary_bwd: the data gradient goes through the activation in the epilogue. */
static bool fuse_act_grad(DltFuse *f, DltNode *n)
{
    DltTensor *d = n->in[0], *saved = n->in[1];
    DltNode *p = d->producer;
    if (!p || (p->kind != DLT_OP_matmul && p->kind != DLT_OP_conv_bwd_data)) return false;
    if (look(p)->act.fn || look(p)->act_grad.fn || (p->kind == DLT_OP_matmul && p->in[2]))
        return false;
    if (dlt_fuse_readers(f, d) != 1 || !dlt_fuse_is_inner(f, d)) return false;
    if (!same_form(d, n->out[0]) || !same_form(d, saved)) return false;
    /* saved must be there when the product runs */
    if (!dlt_fuse_is_ready(saved, p)) return false;
    DltTensor *dx = n->out[0];
    DltUnary act = *(const DltUnary *)n->attr;
    dlt_fuse_remove(f, n);
    epilogue_of(f, p)->act_grad = act;
    dlt_fuse_set_in(f, p, p->kind == DLT_OP_matmul ? 3 : 2, saved);
    dlt_fuse_set_out(f, p, 0, dx);
    return true;
}

/* unary_bwd -> bias_bwd, and the activation's result kept for the weight gradient: one node makes dx, its column
 * sums and the result again. For large tensors: for small ones a kernel less counts more, and the product
 * in front takes the activation's gradient into its epilogue. */
static bool fuse_act_backward(DltFuse *f, DltNode *n)
{
    const int64_t large = (int64_t)1 << 21;
    DltUnary fn = *(const DltUnary *)n->attr;
    DltTensor *x = n->in[1], *dx = n->out[0];
    int last = dx->shape.rank - 1;
    if (last < 1 || dx->layout != DLT_PLAIN || dlt_shape_count(&dx->shape) < large) return false;
    if (!same_form(n->in[0], dx) || !same_form(x, dx)) return false;
    DltNode *sum = dlt_fuse_reader(f, dx, DLT_OP_bias_bwd), *p = x->producer;
    if (sum && (((const DltBias *)sum->attr)->axis != last || sum->out[0]->dtype != DLT_F32))
        sum = NULL;
    bool saved = p && p->kind == DLT_OP_matmul && p->out[1] == x && look(p)->act.fn == fn.fn &&
                 look(p)->act.alpha == fn.alpha && dlt_fuse_is_inner(f, p->out[0]);
    DltTensor *y = saved ? p->out[0] : NULL;
    if (!sum && !y) return false;
    dlt_fuse_advance(f, n);
    DltActBwd *a = dlt_arena_new_bytes(f->g->arena, 1, sizeof *a);
    *a = (DltActBwd){.unary = fn, .sums = sum != NULL};
    if (y && dlt_fuse_is_read_behind(f, y, n)) {
        const char *name = dlt_arena_printf(f->g->arena, "%s.again", y->name);
        DltTensor *again = dlt_fuse_tensor(f, name, &y->shape, y->dtype);
        a->remake = dlt_fuse_replace_behind(f, y, again, n);
        if (a->remake) dlt_fuse_set_out(f, n, 1, again);
    }
    if (!a->sums && !a->remake) return false;
    n->op = dlt_ops[DLT_OP_act_bwd];
    n->kind = DLT_OP_act_bwd;
    n->attr = a;
    if (!sum) return true;
    DltTensor *db = sum->out[0];
    dlt_fuse_remove(f, sum);
    dlt_fuse_set_out(f, n, 2, db);
    return true;
}

/* matmul -> act_bwd: one node where the device has kernels for it. For 16-bit types: there are no such kernels for
 * others that gain, and dy would need memory of its own. */
static bool fuse_linear_backward(DltFuse *f, DltNode *n)
{
    DltTensor *dy = n->in[0];
    DltNode *p = dy->producer;
    if (!p || p->kind != DLT_OP_matmul || p->in[2] || look(p)->act.fn || look(p)->act_grad.fn)
        return false;
    const DltMatmul *a = p->attr;
    if (a->ta || a->tb || p->in[1]->shape.rank != 2 || dlt_dtype_bytes(dy->dtype) != 2)
        return false;
    if (dlt_fuse_readers(f, dy) != 1 || !dlt_fuse_is_inner(f, dy)) return false;
    DltTensor *in[] = {p->in[0], p->in[1], n->in[1]};
    DltNode one = *n;
    dlt_fuse_turn(&one, DLT_OP_linear_act_bwd, n->attr);
    memcpy(one.in, in, sizeof in);
    if (!dlt_fuse_has_kernel(f, &one)) return false;
    dlt_fuse_remove(f, p);
    dlt_fuse_turn(n, DLT_OP_linear_act_bwd, n->attr);
    for (int i = 0; i < 3; i++)
        dlt_fuse_set_in(f, n, i, in[i]);
    return true;
}

/* ---- relu and max pooling ---- */

static bool is_small_max(const DltPool *a)
{
    return a->max && !a->ep_relu && a->kernel[0] * a->kernel[1] < 255;
}

static void mark_relu(DltFuse *f, DltNode *pool)
{
    ((DltPool *)dlt_fuse_edit(f, pool))->ep_relu = true;
}

/* relu -> max pool: the pool applies relu, and its index tells where the gradient stops. */
static bool fuse_relu_pool(DltFuse *f, DltNode *n)
{
    DltNode *relu = n->in[0]->producer;
    DltTensor *y = n->in[0];
    if (!is_small_max(n->attr) || !relu || relu->kind != DLT_OP_unary_fwd) return false;
    if (((const DltUnary *)relu->attr)->fn != DLT_FN_RELU || !dlt_fuse_is_inner(f, y)) return false;
    DltNode *relu_bwd = dlt_fuse_reader(f, y, DLT_OP_unary_bwd);
    DltNode *pool_bwd = dlt_fuse_reader(f, n->out[1], DLT_OP_pool_bwd);
    if (dlt_fuse_readers(f, y) != (relu_bwd ? 2 : 1) || (relu_bwd != NULL) != (pool_bwd != NULL))
        return false;
    if (relu_bwd) {
        DltTensor *d = pool_bwd->out[0], *dx = relu_bwd->out[0];
        if (relu_bwd->in[0] != d || dlt_fuse_readers(f, d) != 1 || !dlt_fuse_is_inner(f, d))
            return false;
        dlt_fuse_remove(f, relu_bwd);
        mark_relu(f, pool_bwd);
        dlt_fuse_set_out(f, pool_bwd, 0, dx);
    }
    DltTensor *x = relu->in[0];
    mark_relu(f, n);
    dlt_fuse_set_in(f, n, 0, x);
    dlt_fuse_remove(f, relu);
    return true;
}

/* max pool -> relu: the same, the other way round. */
static bool fuse_pool_relu(DltFuse *f, DltNode *n)
{
    DltTensor *x = n->in[0], *y = n->out[0];
    DltNode *pool = x->producer;
    if (((const DltUnary *)n->attr)->fn != DLT_FN_RELU || !pool || pool->kind != DLT_OP_pool_fwd)
        return false;
    if (!is_small_max(pool->attr) || dlt_fuse_readers(f, x) != 1 || !dlt_fuse_is_inner(f, x))
        return false;
    DltNode *pool_bwd = dlt_fuse_reader(f, pool->out[1], DLT_OP_pool_bwd);
    if (pool_bwd) {
        DltNode *relu_bwd = pool_bwd->in[0]->producer;
        if (!relu_bwd || relu_bwd->kind != DLT_OP_unary_bwd || relu_bwd->in[1] != y) return false;
        if (dlt_fuse_readers(f, relu_bwd->out[0]) != 1 || !dlt_fuse_is_inner(f, relu_bwd->out[0]))
            return false;
        DltTensor *dy = relu_bwd->in[0];
        mark_relu(f, pool_bwd);
        dlt_fuse_set_in(f, pool_bwd, 0, dy);
        dlt_fuse_remove(f, relu_bwd);
    }
    dlt_fuse_remove(f, n);
    mark_relu(f, pool);
    dlt_fuse_set_out(f, pool, 0, y);
    return true;
}

/* ---- batch norm (+ residual) + relu ---- */

static bool is_batch_norm(const DltNode *n)
{
    return n && (n->kind == DLT_OP_batch_norm_fwd || n->kind == DLT_OP_batch_norm_infer) &&
           !((const DltNorm *)n->attr)->relu && !n->in[5];
}

/* The batch_norm_bwd that belongs to a forward node: it reads its rstd. */
static DltNode *bn_gradient(const DltFuse *f, const DltNode *bn)
{
    return bn->kind == DLT_OP_batch_norm_fwd ? dlt_fuse_reader(f, bn->out[2], DLT_OP_batch_norm_bwd)
                                             : NULL;
}

/* Backward of y = relu(bn(x) + res): unary_bwd disappears, batch_norm_bwd takes its place, masks dy itself and
 * writes the masked gradient as out[3] where the residual branch needs it. */
static void fuse_bn_gradient(DltFuse *f, DltNode *bwd, DltNode *relu_bwd, bool has_res)
{
    DltTensor *dy = relu_bwd->in[0], *y = relu_bwd->in[1], *masked = relu_bwd->out[0];
    dlt_fuse_take_place(f, bwd, relu_bwd);
    DltNorm *a = dlt_fuse_edit(f, bwd);
    a->relu = true;
    a->has_res = has_res;
    dlt_fuse_set_in(f, bwd, 0, dy);
    dlt_fuse_set_in(f, bwd, 5, y);
    if (has_res) dlt_fuse_set_out(f, bwd, 3, masked);
}

/* The gradient needs no more of y than where it is positive: a bit for each element. Where the eight channels of
 * a byte are neighbours in memory, that is all that is kept for it. */
static bool fuse_bn_bits(DltFuse *f, DltNode *bn)
{
    DltTensor *y = bn->out[0];
    const DltNorm *a = bn->attr;
    DltNode *bwd = bn_gradient(f, bn);
    if (!a->relu || a->bits || !bwd || bwd->in[5] != y) return false;
    if (y->layout != DLT_NHWC || y->shape.dim[1] % 8 != 0) return false;
    DltShape shape = y->shape;
    shape.dim[1] /= 8;
    const char *name = dlt_arena_printf(f->g->arena, "%s.bits", y->name);
    DltTensor *bits = dlt_fuse_tensor(f, name, &shape, DLT_U8);
    bits->layout = y->layout;
    ((DltNorm *)dlt_fuse_edit(f, bn))->bits = true;
    ((DltNorm *)dlt_fuse_edit(f, bwd))->bits = true;
    dlt_fuse_set_out(f, bn, 3, bits);
    dlt_fuse_set_in(f, bwd, 5, bits);
    return true;
}

/* Root: the relu. x = bn, or x = add(bn, res) in either order. */
static bool fuse_bn_relu(DltFuse *f, DltNode *n)
{
    DltTensor *sum = n->in[0], *y = n->out[0], *res = NULL;
    if (((const DltUnary *)n->attr)->fn != DLT_FN_RELU) return false;
    if (dlt_fuse_readers(f, sum) != 1 || !dlt_fuse_is_inner(f, sum)) return false;
    DltNode *bn = sum->producer, *add = NULL;
    if (bn && bn->kind == DLT_OP_binary && ((const DltBinary *)bn->attr)->fn == DLT_ADD) {
        add = bn;
        if (!dlt_shape_equal(&add->in[0]->shape, &add->in[1]->shape) || add->in[0] == add->in[1])
            return false;
        int k = is_batch_norm(add->in[0]->producer) && dlt_fuse_readers(f, add->in[0]) == 1 ? 0 : 1;
        bn = add->in[k]->producer;
        res = add->in[1 - k];
    }
    if (!is_batch_norm(bn) || dlt_fuse_readers(f, bn->out[0]) != 1 ||
        !dlt_fuse_is_inner(f, bn->out[0]))
        return false;
    if (res && !same_form(res, y)) return false;
    DltNode *bwd = bn_gradient(f, bn), *relu_bwd = dlt_fuse_reader(f, y, DLT_OP_unary_bwd);
    if ((bwd != NULL) != (relu_bwd != NULL)) return false;
    if (bwd &&
        (bwd->in[0] != relu_bwd->out[0] || (!res && dlt_fuse_readers(f, relu_bwd->out[0]) != 1)))
        return false;
    if (bwd && !dlt_fuse_is_ready(bwd->in[1], relu_bwd)) return false; /* x is made again later */
    if (bwd) fuse_bn_gradient(f, bwd, relu_bwd, res != NULL);
    if (add) dlt_fuse_remove(f, add);
    dlt_fuse_take_place(f, bn, n); /* behind the residual branch */
    ((DltNorm *)dlt_fuse_edit(f, bn))->relu = true;
    dlt_fuse_set_in(f, bn, 5, res);
    dlt_fuse_set_out(f, bn, 0, y);
    return true;
}

/* add -> batch norm's gradient: it adds the two gradients itself. */
static bool fuse_add_bn_grad(DltFuse *f, DltNode *n)
{
    DltTensor *dy = n->in[0];
    DltNode *add = dy->producer;
    if (n->in[6] || !add || add->kind != DLT_OP_binary ||
        ((const DltBinary *)add->attr)->fn != DLT_ADD)
        return false;
    DltTensor *a = add->in[0], *b = add->in[1];
    if (dlt_fuse_readers(f, dy) != 1 || !dlt_fuse_is_inner(f, dy) || a == b) return false;
    if (!dlt_shape_equal(&a->shape, &b->shape) || !same_form(a, dy) || !same_form(b, dy))
        return false;
    dlt_fuse_remove(f, add);
    dlt_fuse_set_in(f, n, 0, a);
    dlt_fuse_set_in(f, n, 6, b);
    return true;
}

/* ---- residual + layer norm / rms norm ---- */

typedef struct NormSlots {
    int res, sum; /* input and output index */
} NormSlots;

static NormSlots norm_slots(int kind)
{
    return kind == DLT_OP_layer_norm_fwd ? (NormSlots){3, 3} : (NormSlots){2, 2};
}

/* add -> norm: the norm adds, and writes the sum for whoever else reads it. */
static bool fuse_add_norm(DltFuse *f, DltNode *n)
{
    DltTensor *sum = n->in[0];
    DltNode *add = sum->producer;
    NormSlots s = norm_slots(n->kind);
    if (n->in[s.res] || !add || add->kind != DLT_OP_binary ||
        ((const DltBinary *)add->attr)->fn != DLT_ADD)
        return false;
    if (!dlt_shape_equal(&add->in[0]->shape, &add->in[1]->shape) || !dlt_fuse_is_inner(f, sum))
        return false;
    /* nobody may read the sum before the norm runs */
    if (dlt_fuse_readers(f, sum) > DLT_MAX_READERS) return false;
    for (int i = 0; i < dlt_fuse_readers(f, sum); i++)
        if (f->reader[sum->id][i]->lane < n->lane) return false;
    DltTensor *a = add->in[0], *b = add->in[1];
    dlt_fuse_remove(f, add);
    dlt_fuse_set_in(f, n, 0, a);
    dlt_fuse_set_in(f, n, s.res, b);
    dlt_fuse_set_out(f, n, s.sum, sum);
    return true;
}

/* norm gradient -> add: the gradient that comes past the norm joins inside it. */
static bool fuse_norm_add(DltFuse *f, DltNode *n)
{
    if (((const DltBinary *)n->attr)->fn != DLT_ADD ||
        !dlt_shape_equal(&n->in[0]->shape, &n->in[1]->shape))
        return false;
    for (int k = 0; k < 2; k++) {
        DltTensor *dx = n->in[k], *other = n->in[1 - k];
        DltNode *p = dx->producer;
        if (!p || dx == other ||
            (p->kind != DLT_OP_layer_norm_bwd && p->kind != DLT_OP_rms_norm_bwd))
            continue;
        int slot = p->kind == DLT_OP_layer_norm_bwd ? 5 : 4;
        bool ready = dlt_fuse_is_ready(other, p);
        if (p->in[slot] || p->out[0] != dx || dlt_fuse_readers(f, dx) != 1 ||
            !dlt_fuse_is_inner(f, dx) || !ready)
            continue;
        if (other->dtype != dx->dtype) continue;
        DltTensor *y = n->out[0];
        dlt_fuse_remove(f, n);
        dlt_fuse_set_in(f, p, slot, other);
        dlt_fuse_set_out(f, p, 0, y);
        return true;
    }
    return false;
}

/* ---- nodes that only move data ---- */

/* cast of the fetched batch: the fetch writes the type its only reader wants. */
static bool fuse_fetch_cast(DltFuse *f, DltNode *n)
{
    DltTensor *x = n->in[0], *y = n->out[0];
    DltNode *before = x->producer, *view = before && before->kind == DLT_OP_reshape ? before : NULL;
    DltTensor *raw = view ? view->in[0] : x;
    DltNode *fetch = raw->producer;
    if (!fetch || fetch->kind != DLT_OP_fetch_x || fetch->out[0] != raw) return false;
    if (dlt_fuse_readers(f, raw) != 1 || !dlt_fuse_is_inner(f, raw)) return false;
    if (view && (dlt_fuse_readers(f, x) != 1 || x == f->g->output || y->layout != x->layout))
        return false;
    dlt_fuse_remove(f, n);
    if (view) {
        DltTensor *low = dlt_fuse_tensor(f, raw->name, &raw->shape, y->dtype);
        low->layout = raw->layout;
        dlt_fuse_set_in(f, view, 0, low);
        dlt_fuse_set_out(f, view, 0, y);
        dlt_graph_make_view(y, low, 0);
        y = low;
    }
    dlt_fuse_set_out(f, fetch, 0, y);
    return true;
}

/* reshape to the same shape, or of a reshape: one view of the first tensor. */
static bool fuse_reshape(DltFuse *f, DltNode *n)
{
    DltTensor *x = n->in[0], *y = n->out[0];
    DltNode *before = x->producer;
    if (x->layout != y->layout || y == f->g->output) return false;
    if (before && before->kind == DLT_OP_reshape && before->in[0]->layout == y->layout) {
        dlt_fuse_set_in(f, n, 0, before->in[0]);
        dlt_graph_make_view(y, before->in[0], 0);
        if (dlt_fuse_readers(f, x) == 0 && x != f->g->output) dlt_fuse_remove(f, before);
        return true;
    }
    if (!dlt_shape_equal(&x->shape, &y->shape) || !dlt_fuse_replace(f, y, x)) return false;
    dlt_fuse_remove(f, n);
    return true;
}

/* transpose of a transpose that undoes it. */
static bool fuse_transpose(DltFuse *f, DltNode *n)
{
    DltTensor *x = n->in[0], *y = n->out[0];
    DltNode *first = x->producer;
    if (!first || first->kind != DLT_OP_transpose || y->role != DLT_TEMP || y == f->g->output)
        return false;
    const int *a = ((const DltTranspose *)first->attr)->perm;
    const int *b = ((const DltTranspose *)n->attr)->perm;
    for (int i = 0; i < y->shape.rank; i++)
        if (a[b[i]] != i) return false;
    if (!dlt_fuse_replace(f, y, first->in[0])) return false;
    dlt_fuse_remove(f, n);
    if (dlt_fuse_readers(f, x) == 0 && dlt_fuse_is_inner(f, x)) dlt_fuse_remove(f, first);
    return true;
}

const DltFuseRule dlt_fuse_rules[] = {
    {"reshape", "views of views, and reshapes to the same shape", DLT_OP_reshape, fuse_reshape},
    {"transpose", "pairs of transposes that undo each other", DLT_OP_transpose, fuse_transpose},
    {"fetch_cast", "the batch is fetched in the compute type", DLT_OP_cast, fuse_fetch_cast},
    {"relu_pool", "relu in front of max pooling, with both gradients", DLT_OP_pool_fwd,
     fuse_relu_pool},
    {"pool_relu", "relu behind max pooling, with both gradients", DLT_OP_unary_fwd, fuse_pool_relu},
    {"bias", "bias into matrix product and convolution", DLT_OP_bias_fwd, fuse_bias},
    {"conv_pool", "convolution and max pooling, with their gradients, where the device has kernels",
     DLT_OP_pool_fwd, dlt_fuse_conv_pool},
    {"batch_norm_relu", "batch norm, residual add and relu, with their gradients", DLT_OP_unary_fwd,
     fuse_bn_relu},
    {"batch_norm_bits", "relu's mask behind batch norm kept as bits", DLT_OP_batch_norm_fwd,
     fuse_bn_bits},
    {"batch_norm_grad_add", "sum of two gradients into batch norm's gradient",
     DLT_OP_batch_norm_bwd, fuse_add_bn_grad},
    {"activation", "activation into matrix product and convolution", DLT_OP_unary_fwd, fuse_act},
    {"activation_backward", "activation gradient with the bias' and the activation again",
     DLT_OP_unary_bwd, fuse_act_backward},
    {"linear_backward", "data gradient and activation gradient, where the device has kernels",
     DLT_OP_act_bwd, fuse_linear_backward},
    {"activation_grad", "activation gradient into the data gradient", DLT_OP_unary_bwd,
     fuse_act_grad},
    {"add_layer_norm", "residual add into layer norm", DLT_OP_layer_norm_fwd, fuse_add_norm},
    {"add_rms_norm", "residual add into rms norm", DLT_OP_rms_norm_fwd, fuse_add_norm},
    {"norm_grad_add", "residual gradient add into the norm's gradient", DLT_OP_binary,
     fuse_norm_add},
    {"norm_bias", "gradient of a bias into the norm's gradient behind it", DLT_OP_bias_bwd,
     dlt_fuse_norm_bias},
    {"attention_bias",
     "gradient of a bias into attention's gradient, where the device has a kernel", DLT_OP_bias_bwd,
     dlt_fuse_attention_bias},
    {"embedding_add", "a tied table's other gradient into the embedding's", DLT_OP_binary,
     dlt_fuse_embedding_add},
    {"cross_entropy", "softmax, loss and gradient in one pass", DLT_OP_cross_entropy_fwd,
     dlt_fuse_cross_entropy},
    {"classifier", "large output layer with its loss and gradients, in chunks of rows",
     DLT_OP_cross_entropy_both, dlt_fuse_classifier},
    {"output_layer", "small output layer with its loss and data gradient, where a kernel is",
     DLT_OP_cross_entropy_both, dlt_fuse_output_layer},
    {NULL, NULL, 0, NULL},
};
