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

/* t = B^T d */
DLT_INLINE void dlt_wino_bt(const DltV8 d[6], DltV8 t[6])
{
    DltV8 e = d[4] - DLT_WB2 * d[2], o = d[3] - DLT_WB2 * d[1];
    DltV8 f = d[4] - DLT_WA2 * d[2], q = d[3] - DLT_WA2 * d[1];
    t[0] = d[4] - (DLT_WA2 + DLT_WB2) * d[2] + DLT_WA2 * DLT_WB2 * d[0];
    t[1] = e + DLT_WA * o;
    t[2] = e - DLT_WA * o;
    t[3] = f + DLT_WB * q;
    t[4] = f - DLT_WB * q;
    t[5] = d[5] - (DLT_WA2 + DLT_WB2) * d[3] + DLT_WA2 * DLT_WB2 * d[1];
}

/* y = A^T m, `side` values */
DLT_INLINE void dlt_wino_at(const DltV8 m[6], DltV8 *y, int side)
{
    DltV8 s = m[1] + m[2], d = m[1] - m[2], u = m[3] + m[4], v = m[3] - m[4];
    y[0] = m[0] + s + u;
    if (side == 2) {
        y[1] = DLT_WA * d + DLT_WB * v + m[5];
        return;
    }
    y[1] = DLT_WA * d + DLT_WB * v;
    y[2] = DLT_WA2 * s + DLT_WB2 * u;
    y[3] = DLT_WA * DLT_WA2 * d + DLT_WB * DLT_WB2 * v + m[5];
}

/* t = A y */
DLT_INLINE void dlt_wino_a(const DltV8 *y, DltV8 t[6], int side)
{
    DltV8 e = y[0], f = y[0], o = DLT_WA * y[1], q = DLT_WB * y[1];
    if (side == 4) {
        e += DLT_WA2 * y[2];
        f += DLT_WB2 * y[2];
        o += DLT_WA * DLT_WA2 * y[3];
        q += DLT_WB * DLT_WB2 * y[3];
    }
    t[0] = y[0];
    t[1] = e + o;
    t[2] = e - o;
    t[3] = f + q;
    t[4] = f - q;
    t[5] = y[side - 1];
}

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

/* Eight channels from ch on of image n. */
DLT_INLINE int64_t dlt_wino_plane(int64_t n, int64_t ch, int64_t channels, int64_t pixels,
                                  int64_t blk)
{
    return (n * (channels / blk) + ch / blk) * pixels * blk + ch % blk;
}

/* A square of pixels, eight channels each: where it lies, or a copy with zeros outside the image. */
typedef struct DltWinoView {
    const float *at;
    int64_t row, pixel; /* strides */
} DltWinoView;

DLT_INLINE DltWinoView dlt_wino_view(DltWinoView plane, int64_t h, int64_t y, int64_t x, int side,
                                     float *copy)
{
    int64_t blk = plane.pixel;
    if (y >= 0 && x >= 0 && y + side <= h && (x + side) * blk <= plane.row)
        return (DltWinoView){plane.at + y * plane.row + x * blk, plane.row, blk};
    for (int i = 0; i < side; i++)
        for (int j = 0; j < side; j++) {
            bool in = y + i >= 0 && y + i < h && x + j >= 0 && (x + j) * blk < plane.row;
            *(DltV8 *)(copy + (i * side + j) * 8) =
                in ? *(const DltV8 *)(plane.at + (y + i) * plane.row + (x + j) * blk) : (DltV8){0};
        }
    return (DltWinoView){copy, side * 8, 8};
}

/* v[f stride + 0..7] = B^T d B of the input tile t at channel ch. */
DLT_INLINE void dlt_wino_input(const DltWino *k, DltWinoTile t, int64_t ch, float *v,
                               int64_t stride)
{
    float copy[DLT_WINO_POINTS * 8];
    DltV8 half[6][6], d[6];
    const float *plane = k->in + dlt_wino_plane(t.n, ch, k->c, k->h * k->w, k->blk);
    DltWinoView s =
        dlt_wino_view((DltWinoView){plane, k->w * k->blk, k->blk}, k->h, t.y * k->side - k->top,
                      t.x * k->side - k->left, DLT_WINO_SIDE, copy);
#pragma GCC unroll 1
    for (int j = 0; j < 6; j++) {
        DltV8 c[6];
#pragma GCC unroll 6
        for (int i = 0; i < 6; i++)
            d[i] = *(const DltV8 *)(s.at + i * s.row + j * s.pixel);
        dlt_wino_bt(d, c);
#pragma GCC unroll 6
        for (int i = 0; i < 6; i++)
            half[i][j] = c[i];
    }
#pragma GCC unroll 1
    for (int i = 0; i < 6; i++) {
        dlt_wino_bt(half[i], d);
#pragma GCC unroll 6
        for (int j = 0; j < 6; j++)
            *(DltV8 *)(v + (i * 6 + j) * stride) = d[j];
    }
}

#endif
