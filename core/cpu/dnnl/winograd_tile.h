/* Transforms of a tile for one width of vector, LANES channels: included by winograd.h once for 8 and once for 16, with V and
 * RELU of that width, and NAME(f) for the name of a function. */

/* t = B^T d */
DLT_INLINE void NAME(bt)(const V d[6], V t[6])
{
    V e = d[4] - DLT_WB2 * d[2], o = d[3] - DLT_WB2 * d[1];
    V f = d[4] - DLT_WA2 * d[2], q = d[3] - DLT_WA2 * d[1];
    t[0] = d[4] - (DLT_WA2 + DLT_WB2) * d[2] + DLT_WA2 * DLT_WB2 * d[0];
    t[1] = e + DLT_WA * o;
    t[2] = e - DLT_WA * o;
    t[3] = f + DLT_WB * q;
    t[4] = f - DLT_WB * q;
    t[5] = d[5] - (DLT_WA2 + DLT_WB2) * d[3] + DLT_WA2 * DLT_WB2 * d[1];
}

/* y = A^T m, `side` values */
DLT_INLINE void NAME(at)(const V m[6], V *y, int side)
{
    V s = m[1] + m[2], d = m[1] - m[2], u = m[3] + m[4], v = m[3] - m[4];
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
DLT_INLINE void NAME(a)(const V *y, V t[6], int side)
{
    V e = y[0], f = y[0], o = DLT_WA * y[1], q = DLT_WB * y[1];
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

/* Pixels (y, x) to (y + side, x + side) of a plane of h rows. */
DLT_INLINE DltWinoView NAME(view)(DltWinoView plane, int64_t h, int64_t y, int64_t x, int side,
                                  float *copy)
{
    int64_t blk = plane.pixel;
    if (y >= 0 && x >= 0 && y + side <= h && (x + side) * blk <= plane.row)
        return (DltWinoView){plane.at + y * plane.row + x * blk, plane.row, blk};
    for (int i = 0; i < side; i++)
        for (int j = 0; j < side; j++) {
            bool in = y + i >= 0 && y + i < h && x + j >= 0 && (x + j) * blk < plane.row;
            *(V *)(copy + (i * side + j) * LANES) =
                in ? *(const V *)(plane.at + (y + i) * plane.row + (x + j) * blk) : (V){0};
        }
    return (DltWinoView){copy, side * LANES, LANES};
}

/* v[f stride ..] = B^T d B of the input tile t at channel ch. */
DLT_INLINE void NAME(input)(const DltWino *k, DltWinoTile t, int64_t ch, float *v, int64_t stride)
{
    _Alignas(64) float copy[DLT_WINO_POINTS * LANES];
    _Alignas(64) V half[6][6];
    V d[6];
    const float *plane = k->in + dlt_wino_plane(t.n, ch, k->c, k->h * k->w, k->blk);
    DltWinoView s =
        NAME(view)((DltWinoView){plane, k->w * k->blk, k->blk}, k->h, t.y * k->side - k->top,
                   t.x * k->side - k->left, DLT_WINO_SIDE, copy);
#pragma GCC unroll 1
    for (int j = 0; j < 6; j++) {
        V c[6];
#pragma GCC unroll 6
        for (int i = 0; i < 6; i++)
            d[i] = *(const V *)(s.at + i * s.row + j * s.pixel);
        NAME(bt)(d, c);
#pragma GCC unroll 6
        for (int i = 0; i < 6; i++)
            half[i][j] = c[i];
    }
#pragma GCC unroll 1
    for (int i = 0; i < 6; i++) {
        NAME(bt)(half[i], d);
#pragma GCC unroll 6
        for (int j = 0; j < 6; j++)
            *(V *)(v + (i * 6 + j) * stride) = d[j];
    }
}

/* out = act(A^T m A + bias) of tile t at channel ch; rows and columns outside the image are left out. */
DLT_INLINE void NAME(output)(const DltWino *k, DltWinoTile t, int64_t ch, const float *m,
                             int64_t stride, int side)
{
    _Alignas(64) V half[4][6];
    V y[4], bias = {0};
    if (k->bias) bias = *(const V *)(k->bias + ch);
    float *out = k->out + dlt_wino_plane(t.n, ch, k->k, k->p * k->q, k->blk);
    int64_t left = k->q - t.x * side, below = k->p - t.y * side;
#pragma GCC unroll 1
    for (int j = 0; j < 6; j++) {
        V d[6];
#pragma GCC unroll 6
        for (int i = 0; i < 6; i++)
            d[i] = *(const V *)(m + (i * 6 + j) * stride);
        NAME(at)(d, y, side);
#pragma GCC unroll 4
        for (int i = 0; i < side; i++)
            half[i][j] = y[i];
    }
    out += (t.y * side * k->q + t.x * side) * k->blk;
    for (int i = 0; i < side && i < below; i++) {
        NAME(at)(half[i], y, side);
#pragma GCC unroll 4
        for (int j = 0; j < side; j++) {
            V v = y[j] + bias;
            if (k->relu) RELU(&v);
            if (j < left) *(V *)(out + (i * k->q + j) * k->blk) = v;
        }
    }
}

/* d[f stride ..] = A dy A^T of tile t at channel ch. */
DLT_INLINE void NAME(gradient)(const DltWino *k, const float *dy, DltWinoTile t, int64_t ch,
                               float *d, int64_t stride, int side)
{
    _Alignas(64) float copy[16 * LANES];
    _Alignas(64) V half[6][4];
    V y[4] = {{0}}, c[6];
    const float *plane = dy + dlt_wino_plane(t.n, ch, k->k, k->p * k->q, k->blk);
    DltWinoView s = NAME(view)((DltWinoView){plane, k->q * k->blk, k->blk}, k->p, t.y * side,
                               t.x * side, side, copy);
#pragma GCC unroll 1
    for (int j = 0; j < side; j++) {
#pragma GCC unroll 4
        for (int i = 0; i < side; i++)
            y[i] = *(const V *)(s.at + i * s.row + j * s.pixel);
        NAME(a)(y, c, side);
#pragma GCC unroll 6
        for (int i = 0; i < 6; i++)
            half[i][j] = c[i];
    }
#pragma GCC unroll 1
    for (int i = 0; i < 6; i++) {
        NAME(a)(half[i], c, side);
#pragma GCC unroll 6
        for (int j = 0; j < 6; j++)
            *(V *)(d + (i * 6 + j) * stride) = c[j];
    }
}
