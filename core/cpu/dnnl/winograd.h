/* Winograd's convolution for 3x3 and 5x5 filters of stride 1 on channel-blocked images: a tile of 6x6 inputs
 * gives 4x4 (3x3 filter) or 2x2 (5x5) outputs with 36 products in place of 144 or 100. Both sizes share the input
 * transform. The points are 0, +-11/16, +-3/2 and infinity: symmetric, exact in f32, and of 25 such
 * pairs tried the ones of least error: 8e-7 to 9e-7 relative for 64 channels; the usual 0, +-1, +-2 give 1.6e-6
 * to 2e-6.
 *   Y = A^T [(G g G^T) * (B^T d B)] A        dG = G^T [(B^T d B) * (A dY A^T)] G
 * Lavin & Gray 2016; points: Barabasz et al. 2020. */
#ifndef DLT_WINOGRAD_H
#define DLT_WINOGRAD_H

#include "cpu/dnnl/tile.h"

enum {
    DLT_WINO_SIDE = 6,
    DLT_WINO_POINTS = 36,
    DLT_WINO_PANEL = DLT_TILE_COLS,
    DLT_WINO_BROAD = 2 * DLT_WINO_PANEL
};

/* A convolution from `in` [N, C, H, W] to `out` [N, K, P, Q]; for the data gradient `in` is dy. */
typedef struct DltWino {
    int64_t n, c, h, w, k, p, q, blk;
    int64_t side, filter;   /* of the output tile, 4 or 2; of the filter, 3 or 5 */
    int64_t top, left;      /* padding */
    int64_t rows, cols;     /* of tiles in an image */
    const float *in, *bias; /* bias may be NULL */
    float *out;
    bool relu;
} DltWino;

/* Images and padding of a node of one of the three kinds; pointers stay NULL. */
DltWino dlt_wino_describe(const DltNode *n);
/* Filters that are multiplied at once: 32 with AVX-512, where they come so, else 16. */
int64_t dlt_wino_panel(const DltWino *k);
bool dlt_wino_accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not);

extern const DltKernel dlt_fast_wino_fwd, dlt_fast_wino_bwd_data, dlt_fast_wino_bwd_filter;

#define DLT_WA 0.6875F /* the points a and b, their powers, and 1/N of each point */
#define DLT_WB 1.5F
#define DLT_WA2 (DLT_WA * DLT_WA)
#define DLT_WB2 (DLT_WB * DLT_WB)
#define DLT_WN0 (1.0F / (DLT_WA2 * DLT_WB2))
#define DLT_WNA (1.0F / (2.0F * DLT_WA2 * (DLT_WA2 - DLT_WB2)))
#define DLT_WNB (1.0F / (2.0F * DLT_WB2 * (DLT_WB2 - DLT_WA2)))

/* t = G g, `filter` values */
DLT_INLINE void dlt_wino_g(const DltV8 *g, DltV8 t[6], int filter)
{
    DltV8 e = g[0] + DLT_WA2 * g[2], f = g[0] + DLT_WB2 * g[2];
    DltV8 o = DLT_WA * g[1], q = DLT_WB * g[1];
    if (filter == 5) {
        e += DLT_WA2 * DLT_WA2 * g[4];
        f += DLT_WB2 * DLT_WB2 * g[4];
        o += DLT_WA * DLT_WA2 * g[3];
        q += DLT_WB * DLT_WB2 * g[3];
    }
    t[0] = DLT_WN0 * g[0];
    t[1] = DLT_WNA * (e + o);
    t[2] = DLT_WNA * (e - o);
    t[3] = DLT_WNB * (f + q);
    t[4] = DLT_WNB * (f - q);
    t[5] = g[filter - 1];
}

/* g = G^T u */
DLT_INLINE void dlt_wino_gt(const DltV8 u[6], DltV8 *g, int filter)
{
    DltV8 s = DLT_WNA * (u[1] + u[2]), d = DLT_WNA * DLT_WA * (u[1] - u[2]);
    DltV8 p = DLT_WNB * (u[3] + u[4]), v = DLT_WNB * DLT_WB * (u[3] - u[4]);
    g[0] = DLT_WN0 * u[0] + s + p;
    g[1] = d + v;
    g[2] = DLT_WA2 * s + DLT_WB2 * p;
    if (filter == 3) {
        g[2] += u[5];
        return;
    }
    g[3] = DLT_WA2 * d + DLT_WB2 * v;
    g[4] = DLT_WA2 * DLT_WA2 * s + DLT_WB2 * DLT_WB2 * p + u[5];
}

/* A tile's corner in an image, and whether all of it lies inside. */
typedef struct DltWinoTile {
    int64_t n, y, x;
} DltWinoTile;

/* Tile number t of the batch, in units of tiles. */
DLT_INLINE DltWinoTile dlt_wino_tile(const DltWino *k, int64_t t)
{
    int64_t each = k->rows * k->cols;
    return (DltWinoTile){t / each, t % each / k->cols, t % k->cols};
}

/* Where channel ch of image n and those that follow in its block begin. */
DLT_INLINE int64_t dlt_wino_plane(int64_t n, int64_t ch, int64_t channels, int64_t pixels,
                                  int64_t blk)
{
    return (n * (channels / blk) + ch / blk) * pixels * blk + ch % blk;
}

/* A square of pixels, some channels each: where it lies, or a copy with zeros outside the image. */
typedef struct DltWinoView {
    const float *at;
    int64_t row, pixel; /* strides */
} DltWinoView;

#define LANES 8
#define V DltV8
#define RELU dlt_v8_relu
#define NAME(f) dlt_wino_##f##_8
#include "cpu/dnnl/winograd_tile.h"
#undef LANES
#undef V
#undef RELU
#undef NAME
#define LANES 16
#define V DltV16
#define RELU dlt_v16_relu
#define NAME(f) dlt_wino_##f##_16
#include "cpu/dnnl/winograd_tile.h"
#undef LANES
#undef V
#undef RELU
#undef NAME

#endif
