/* Sliding windows of convolution and pooling: kernel, stride, dilation and pad as the user writes
 * them, resolved against an input. Sizes follow PyTorch: P = floor((H + pads - dilation (R - 1) -
 * 1) / stride) + 1. `pad: same` gives P = ceil(H / stride); the padding that takes is split evenly,
 * an odd row or column goes to the bottom and the right (TensorFlow's and ONNX' SAME_UPPER). */
#ifndef DLT_LAYERS_WINDOW_H
#define DLT_LAYERS_WINDOW_H

#include "layers/common.h"

typedef struct DltWindowOpts {
    DltDims kernel, stride, dilation; /* n is 0 where not written: stride = kernel, dilation = 1 */
    DltStrs pad;
    size_t kernel_at, pad_at;
    bool half_pad; /* pooling: at most half the kernel, so that each window sees the input */
} DltWindowOpts;

typedef struct DltWindow {
    int64_t kernel[2], stride[2], dilation[2], pad[4]; /* pad: top, bottom, left, right */
} DltWindow;

enum { DLT_MAX_WINDOW = 65536 }; /* bound of kernel, stride, dilation and pad */
#define DLT_PAD_HELP                                                                               \
    "zeros around the image: a number, [height, width], `valid` (0) or `same` (output "            \
    "ceil(size / stride); (kernel - 1) / 2 on each side, for even kernels one more behind)"

/* What can be told without the input: at most two numbers each, pad is one of its forms. */
DltStatus dlt_window_check(const DltOpts *o, const DltWindowOpts *w, DltErr *err) DLT_CHECKED;
/* False, with a report naming x, when the kernel does not fit into the padded input. */
bool dlt_window_resolve(DltBuild *b, const DltOpts *o, const DltWindowOpts *w, const DltTensor *x,
                        DltWindow *out);

#endif
