/* Changes between PLAIN and the layouts whose channels lie together: for each image (NHWC) or block of its channels a
 * matrix [channels][pixels] is turned over, in squares that fit into the first-level cache. Elements of 2 and 4 bytes. */
#include "cpu/dnnl/fast.h"

enum { SQUARE = 16, PIXELS = 1024 /* of a task */ };

typedef struct Turn {
    const void *x;
    void *y;
    int64_t matrices, channels, pixels; /* of a matrix */
    bool gather;                        /* channels come to lie together */
} Turn;

#define MIN(a, b) ((a) < (b) ? (a) : (b))

/* to[c][r] = from[r][c] for columns [c0, c1) */
#define TURN(bits)                                                                                 \
    DLT_CLONES static void turn_##bits(const uint##bits##_t *from, uint##bits##_t *to,             \
                                       int64_t rows, int64_t cols, int64_t c0, int64_t c1)         \
    {                                                                                              \
        for (int64_t c = c0; c < c1; c += SQUARE)                                                  \
            for (int64_t r = 0; r < rows; r += SQUARE)                                             \
                for (int64_t j = c; j < MIN(c + SQUARE, c1); j++)                                  \
                    for (int64_t i = r; i < MIN(r + SQUARE, rows); i++)                            \
                        to[j * rows + i] = from[i * cols + j];                                     \
    }                                                                                              \
    static void task_##bits(void *ctx, int64_t begin, int64_t end)                                 \
    {                                                                                              \
        const Turn *t = ctx;                                                                       \
        int64_t rows = t->gather ? t->channels : t->pixels, size = t->channels * t->pixels;        \
        int64_t cols = size / rows;                                                                \
        for (int64_t m = begin; m < end; m++)                                                      \
            turn_##bits((const uint##bits##_t *)t->x + m * size,                                   \
                        (uint##bits##_t *)t->y + m * size, rows, cols, 0, cols);                   \
    }
TURN(16)
TURN(32)

/* Channels that lie together, 1 for PLAIN. */
static int64_t together(const DltTensor *t)
{
    return t->layout == DLT_PLAIN ? 1 : t->layout == DLT_NHWC ? t->shape.dim[1] : dlt_fast_block(t);
}

static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    (void)dev;
    const DltTensor *x = n->in[0], *y = n->out[0];
    size_t bytes = dlt_dtype_bytes(x->dtype);
    bool plain = x->layout == DLT_PLAIN || y->layout == DLT_PLAIN;
    if (x->shape.rank == 4 && plain && x->layout != y->layout && (bytes == 2 || bytes == 4))
        return true;
    snprintf(why_not->text, sizeof why_not->text,
             "only from and to plain images of elements of 2 or 4 bytes");
    return false;
}

static DltStatus launch(const DltCall *c, DltErr *err)
{
    (void)err;
    const DltTensor *x = c->node->in[0], *y = c->node->out[0];
    Turn t = {.x = c->in[0], .y = c->out[0], .gather = x->layout == DLT_PLAIN};
    t.channels = together(t.gather ? y : x);
    t.pixels = x->shape.dim[2] * x->shape.dim[3];
    t.matrices = dlt_count(x) / (t.channels * t.pixels);
    int64_t grain = PIXELS * SQUARE / (t.channels * t.pixels);
    dlt_pool_for(c->stream, t.matrices, grain > 0 ? grain : 1,
                 dlt_dtype_bytes(x->dtype) == 2 ? task_16 : task_32, &t);
    return DLT_OK;
}

static const DltKernel kernel = {"reorder.cpu.turn", accepts, NULL, launch};
const DltKernel *const dlt_fast_reorder[] = {&kernel, NULL};
