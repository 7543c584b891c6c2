/* Where the filters of convolutions lie: devices whose convolutions read and write NHWC images want
 * them as [K, R, S, C] too. A parameter that one convolution alone reads gets that order for good,
 * with its gradient; what update makes of it (states, averages, low copies) follows. The host sees
 * row-major values all the same (exec turns them over on the way). */
#include "passes/passes.h"

static bool wants(const DltDeviceInfo *info, const DltTensor *w)
{
    int64_t block = info->image_block;
    bool param = w->role == DLT_PARAM && !w->producer && !w->view_of && w->shape.rank == 4;
    return param && block > 0 && w->shape.dim[0] % block == 0 && w->shape.dim[1] % block == 0;
}

/* n_forward[id]: convolutions that read it; other[id]: something else does. */
static void count(const DltGraph *g, int *n_forward, bool *other)
{
    for (int i = 0; i < g->n_node; i++) {
        const DltNode *n = g->node[i];
        bool conv = n->kind == DLT_OP_conv_fwd || n->kind == DLT_OP_conv_bwd_data;
        for (int k = 0; k < DLT_MAX_IN; k++) {
            if (!n->in[k]) continue;
            if (!conv || k != 1) other[n->in[k]->id] = true;
            if (k == 1 && n->kind == DLT_OP_conv_fwd) n_forward[n->in[k]->id]++;
        }
    }
}

DltStatus dlt_pass_filters(DltGraph *g, const DltDeviceInfo *info, DltTensor *const *grad,
                           DltErr *err)
{
    (void)err;
    if (info->image_layout != DLT_NHWC) return DLT_OK;
    int n_tensor = g->n_tensor;
    int *n_forward = DLT_NEW_ARRAY(g->arena, n_tensor + 1, int);
    bool *other = DLT_NEW_ARRAY(g->arena, n_tensor + 1, bool);
    count(g, n_forward, other);
    for (int i = 0; i < n_tensor; i++) {
        DltTensor *w = g->tensor[i], *dw = grad && w->role == DLT_PARAM ? grad[i] : NULL;
        if (n_forward[i] != 1 || other[i] || !wants(info, w)) continue;
        if (dw) DLT_BUG_ON(!dw->producer || dw->producer->kind != DLT_OP_conv_bwd_filter);
        w->layout = info->image_layout;
        if (dw) dw->layout = w->layout;
    }
    return DLT_OK;
}
