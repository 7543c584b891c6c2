/* Kernel, stride, dilation and pad of conv and the pools, resolved against an input. */
#include "layers/window.h"

#include <inttypes.h>
#include <string.h>

static const char *const axis_name[2] = {"height", "width"};

/* One number stands for both axes; none for `otherwise`. */
static int64_t dim_of(const DltDims *d, int axis, int64_t otherwise)
{
    return d->n == 0 ? otherwise : d->v[d->n == 1 ? 0 : axis];
}

static bool is_word(const DltStrs *pad, const char *word)
{
    return pad->n == 1 && strcmp(pad->v[0], word) == 0;
}

/* Padding of one axis when it is a number (or `valid`); false when the text is no such number. */
static bool fixed_pad(const DltStrs *pad, int axis, int64_t *v)
{
    *v = 0;
    if (pad->n == 0 || is_word(pad, "valid")) return true;
    return dlt_parse_int(pad->v[pad->n == 1 ? 0 : axis], v) && *v >= 0 && *v <= DLT_MAX_WINDOW;
}

static DltStatus check_pad(const DltOpts *o, const DltWindowOpts *w, DltErr *err)
{
    DltMark at = dlt_opts_mark(o, w->pad_at);
    if (w->pad.n > 2)
        return dlt_err_at(err, DLT_E_CONFIG, at,
                          "%s.pad: %d values; give a number, [height, width], same or valid",
                          o->name, w->pad.n);
    if (is_word(&w->pad, "same")) return DLT_OK;
    for (int axis = 0; axis < 2; axis++) {
        int64_t pad, kernel = dim_of(&w->kernel, axis, 1);
        if (!fixed_pad(&w->pad, axis, &pad))
            return dlt_err_at(err, DLT_E_CONFIG, at,
                              "%s.pad: '%s' is not a padding; give a number in [0, %d], "
                              "[height, width], same or valid",
                              o->name, w->pad.v[w->pad.n == 1 ? 0 : axis], DLT_MAX_WINDOW);
        if (w->half_pad && pad > kernel / 2)
            return dlt_err_at(err, DLT_E_CONFIG, at,
                              "%s.pad: %" PRId64 " is more than half the kernel's %s %" PRId64
                              ", so a window could see nothing but padding",
                              o->name, pad, axis_name[axis], kernel);
    }
    return DLT_OK;
}

DltStatus dlt_window_check(const DltOpts *o, const DltWindowOpts *w, DltErr *err)
{
    const DltDims *dims[3] = {&w->kernel, &w->stride, &w->dilation};
    static const char *const key[3] = {"kernel", "stride", "dilation"};
    for (int i = 0; i < 3; i++)
        if (dims[i]->n > 2)
            return dlt_err_at(err, DLT_E_CONFIG, o->at,
                              "%s.%s: %d values; give a number or [height, width]", o->name, key[i],
                              dims[i]->n);
    return check_pad(o, w, err);
}

/* For ceil(size / stride) windows. An odd kernel gets the same on both sides, so that it looks around its
 * middle as it does without strides; only where the last rows were then not seen, and for even
 * kernels, as little as is needed, the odd row behind. */
static void same_pad(int64_t size, int64_t stride, int64_t reach, int64_t *before, int64_t *after)
{
    int64_t seen = (size + stride - 1) / stride * stride - stride + reach; /* by all windows */
    *before = *after = (reach - 1) / 2;
    if (reach % 2 != 0 && seen - *before >= size) return;
    int64_t total = seen > size ? seen - size : 0;
    *before = total / 2;
    *after = total - *before;
}

bool dlt_window_resolve(DltBuild *b, const DltOpts *o, const DltWindowOpts *w, const DltTensor *x,
                        DltWindow *out)
{
    if (!dlt_layer_wants_image(b, o, x) || dlt_build_failed(b)) return false;
    bool same = is_word(&w->pad, "same");
    for (int axis = 0; axis < 2; axis++) {
        int64_t size = x->shape.dim[2 + axis], before = 0, after = 0;
        int64_t kernel = dim_of(&w->kernel, axis, 1);
        int64_t stride = dim_of(&w->stride, axis, kernel);
        int64_t dilation = dim_of(&w->dilation, axis, 1);
        int64_t reach = dilation * (kernel - 1) + 1; /* rows one window spans */
        if (same) {
            same_pad(size, stride, reach, &before, &after);
        } else {
            DLT_BUG_ON(!fixed_pad(&w->pad, axis, &before)); /* dlt_window_check has seen it */
            after = before;
        }
        if (size + before + after < reach) {
            char text[DLT_TENSOR_TEXT];
            dlt_build_error(b,
                            "%s: a kernel of %s %" PRId64 " with dilation %" PRId64
                            " spans %" PRId64 ", but its input %s with pad %" PRId64 " has %" PRId64
                            "; use a smaller kernel, or pad: same",
                            o->name, axis_name[axis], kernel, dilation, reach,
                            dlt_tensor_text(x, text), before, size + before + after);
            return false;
        }
        out->kernel[axis] = kernel;
        out->stride[axis] = stride;
        out->dilation[axis] = dilation;
        out->pad[axis == 0 ? 0 : 2] = before;
        out->pad[axis == 0 ? 1 : 3] = after;
    }
    return true;
}
