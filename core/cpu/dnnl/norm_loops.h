/* The inner loops of norm.c for one width of vector, LANES channels: included for 8, for 16, and for 16 with the processor's
 * own rounding, with V, I, LOAD, STORE and RELU of that width, NAME(f) for the name of a function and INLINE before it. */

/* s, q += the strands' sums of LANES channels, strand by strand */
INLINE void NAME(add_strands)(const V sum[STRANDS], const V square[STRANDS], double *s, double *q)
{
    V a = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    V b = (square[0] + square[1]) + (square[2] + square[3]);
    for (int j = 0; j < LANES; j++) {
        s[j] += (double)a[j];
        q[j] += (double)b[j];
    }
}

/* sum (x - pivot), sum (x - pivot)^2 of LANES channels of the plane at `at`; the pivot is their first value. */
INLINE void NAME(plane_stats)(const Norm *k, int64_t first, int64_t at, int blk, bool low,
                              double *s, double *q)
{
    V sum[STRANDS] = {{0}}, square[STRANDS] = {{0}}, pivot, d;
    int64_t i = 0;
    LOAD(k->x, first, low, &pivot);
    for (; i + STRANDS <= k->hw; i += STRANDS)
#pragma GCC unroll 4
        for (int j = 0; j < STRANDS; j++) {
            LOAD(k->x, at + (i + j) * blk, low, &d);
            d -= pivot;
            sum[j] += d;
            square[j] += d * d;
        }
    for (; i < k->hw; i++) {
        LOAD(k->x, at + i * blk, low, &d);
        d -= pivot;
        sum[0] += d;
        square[0] += d * d;
    }
    NAME(add_strands)(sum, square, s, q);
}

/* out = act(x * a1 + a2 + res) of LANES channels of a plane. */
INLINE void NAME(apply_half)(const Norm *k, int64_t offset, int64_t c, int blk, bool low,
                             bool has_res, bool relu)
{
    V a1 = *(const V *)(k->a1 + c), a2 = *(const V *)(k->a2 + c), v, res;
    for (int64_t at = offset; at < offset + k->hw * blk; at += blk) {
        LOAD(k->x, at, low, &v);
        v = v * a1 + a2;
        if (has_res) {
            LOAD(k->res, at, low, &res);
            v += res;
        }
        if (relu) RELU(&v);
        STORE(k->out, at, low, &v);
    }
}

/* d = dy (+ dy2) where y > 0 (relu), else dy (+ dy2) */
INLINE void NAME(masked)(const Norm *k, const void *dy2, int64_t at, bool low, bool relu, V *d)
{
    V other;
    LOAD(k->dy, at, low, d);
    if (dy2) {
        LOAD(dy2, at, low, &other);
        *d += other;
    }
    if (!relu) return;
    LOAD(k->y, at, low, &other);
    *d = (V)((I)*d & (other > 0.0F));
}

/* s += sum d, and a row of channels further sum d (x - mean), of LANES channels of a plane. */
INLINE void NAME(grad_sums_half)(const Norm *k, int64_t offset, int64_t c, int blk, bool low,
                                 bool relu, double *s)
{
    double *q = s + k->blocks * k->blk;
    V sum[STRANDS] = {{0}}, product[STRANDS] = {{0}}, mean = *(const V *)(k->mean + c);
    V d, x;
    const void *dy2 = k->dy2;
    int64_t i = 0;
    for (; i + STRANDS <= k->hw; i += STRANDS)
#pragma GCC unroll 4
        for (int j = 0; j < STRANDS; j++) {
            int64_t at = offset + (i + j) * blk;
            NAME(masked)(k, dy2, at, low, relu, &d);
            LOAD(k->x, at, low, &x);
            sum[j] += d;
            product[j] += d * (x - mean);
        }
    for (; i < k->hw; i++) {
        NAME(masked)(k, dy2, offset + i * blk, low, relu, &d);
        LOAD(k->x, offset + i * blk, low, &x);
        sum[0] += d;
        product[0] += d * (x - mean);
    }
    NAME(add_strands)(sum, product, s, q);
}

/* dx = a1 d + a2 x + a3 of LANES channels of a plane, and dres = d. */
INLINE void NAME(grad_half)(const Norm *k, int64_t offset, int64_t c, int blk, bool low, bool relu,
                            bool has_res)
{
    V a1 = *(const V *)(k->a1 + c), a2 = *(const V *)(k->a2 + c);
    V a3 = *(const V *)(k->a3 + c), d, x;
    const void *dy2 = k->dy2;
    for (int64_t at = offset; at < offset + k->hw * blk; at += blk) {
        NAME(masked)(k, dy2, at, low, relu, &d);
        LOAD(k->x, at, low, &x);
        x = a1 * d + (a2 * x + a3);
        STORE(k->out, at, low, &x);
        if (has_res) STORE(k->dres, at, low, &d);
    }
}
