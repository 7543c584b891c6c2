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

/* Samples of one part for one channel block: s and q of its channels. */
INLINE void NAME(part_stats)(const Norm *k, int64_t cb, int64_t part, int blk, bool low)
{
    int64_t c = k->blocks * k->blk, plane = k->hw * blk;
    double *s = k->sum + part * 2 * c + cb * blk, *q = s + c;
    memset(s, 0, (size_t)blk * sizeof *s);
    memset(q, 0, (size_t)blk * sizeof *q);
    for (int64_t n = part * k->n / k->splits; n < (part + 1) * k->n / k->splits; n++)
        for (int half = 0; half < blk; half += LANES)
            NAME(plane_stats)
    (k, cb * plane + half, (n * k->blocks + cb) * plane + half, blk, low, s + half, q + half);
}

/* The plane's channels, residual and relu known to the compiler. */
INLINE void NAME(apply_plane)(const Norm *k, int64_t plane, int blk, bool low)
{
    for (int half = 0; half < blk; half += LANES) {
        int64_t c = plane % k->blocks * blk + half, offset = plane * k->hw * blk + half;
        if (k->res && k->relu)
            NAME(apply_half)(k, offset, c, blk, low, true, true);
        else if (k->res)
            NAME(apply_half)(k, offset, c, blk, low, true, false);
        else if (k->relu)
            NAME(apply_half)(k, offset, c, blk, low, false, true);
        else
            NAME(apply_half)(k, offset, c, blk, low, false, false);
    }
}

INLINE void NAME(part_grad_sums)(const Norm *k, int64_t cb, int64_t part, int blk, bool low)
{
    int64_t c = k->blocks * k->blk;
    double *s = k->sum + part * 2 * c + cb * blk, *q = s + c;
    memset(s, 0, (size_t)blk * sizeof *s);
    memset(q, 0, (size_t)blk * sizeof *q);
    for (int64_t n = part * k->n / k->splits; n < (part + 1) * k->n / k->splits; n++)
        for (int half = 0; half < blk; half += LANES) {
            int64_t offset = (n * k->blocks + cb) * k->hw * blk + half, at = cb * blk + half;
            if (k->relu)
                NAME(grad_sums_half)(k, offset, at, blk, low, true, s + half);
            else
                NAME(grad_sums_half)(k, offset, at, blk, low, false, s + half);
        }
}

INLINE void NAME(grad_plane)(const Norm *k, int64_t plane, int blk, bool low)
{
    for (int half = 0; half < blk; half += LANES) {
        int64_t c = plane % k->blocks * blk + half, offset = plane * k->hw * blk + half;
        if (k->relu && k->dres)
            NAME(grad_half)(k, offset, c, blk, low, true, true);
        else if (k->relu)
            NAME(grad_half)(k, offset, c, blk, low, true, false);
        else if (k->dres)
            NAME(grad_half)(k, offset, c, blk, low, false, true);
        else
            NAME(grad_half)(k, offset, c, blk, low, false, false);
    }
}
