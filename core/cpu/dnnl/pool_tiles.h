/* The inner loops of tiled max pools for one width of vector, LANES channels: included by pool.c once for 8 and once for
 * 16, with V, I, B (bytes), LOAD, CUT of that width, and NAME(f) for the name of a function. */

/* One output pixel of a tiled max pool with windows of rows x cols, LANES channels of x at i, to y at o: the first
 * maximum wins, NaN wins and stays. */
DLT_INLINE void NAME(tile_fwd)(const Pool *k, int64_t i, int64_t o, int rows, int cols, bool low)
{
    int64_t step = k->w * k->blk;
    V best, v;
    I at = {0};
    LOAD(k->x, i, low, &best);
    for (int r = 0; r < rows; r++)
        for (int s = 0; s < cols; s++) {
            LOAD(k->x, i + r * step + s * k->blk, low, &v);
            /* NaN alone is neither above nor below: !(v <= best) takes it, and best == best keeps it */
            I take = ~(v <= best) & (best <= best); /* NOLINT(misc-redundant-expression) */
            I here = (I){0} + (int32_t)(r * cols + s);
            best = (V)(((I)v & take) | ((I)best & ~take));
            at = (here & take) | (at & ~take);
        }
    if (k->a->ep_relu) {
        I live = ~(best <= 0.0f);
        best = (V)((I)best & live);
        at = (at & live) | (255 & ~live);
    }
    CUT(k->y, o, low, &best);
    if (k->index) *(B *)(k->index + o) = __builtin_convertvector(at, B);
}

DLT_INLINE void NAME(tile_bwd)(const Pool *k, int64_t i, int64_t o, int rows, int cols, bool low)
{
    int64_t step = k->w * k->blk;
    I at = __builtin_convertvector(*(const B *)(k->index + o), I);
    V d;
    LOAD(k->x, o, low, &d);
    for (int r = 0; r < rows; r++)
        for (int s = 0; s < cols; s++) {
            I here = (I){0} + (int32_t)(r * cols + s);
            V part = (V)((I)d & (at == here));
            CUT(k->y, i + r * step + s * k->blk, low, &part);
        }
}

/* One output row: big and small index of each pixel go to tile_fwd or tile_bwd. */
DLT_INLINE void NAME(tiled_row)(const Pool *k, int64_t row, bool back, bool low, int rows, int cols)
{
    int64_t o = row * k->q * k->blk;
    int64_t i = (row / k->p * k->h + row % k->p * rows) * k->w * k->blk;
    for (int64_t j = 0; j < k->q; j++, i += (cols - 1) * k->blk)
        for (int64_t c = 0; c < k->blk; c += LANES, i += LANES, o += LANES) {
            if (back)
                NAME(tile_bwd)(k, i, o, rows, cols, low);
            else
                NAME(tile_fwd)(k, i, o, rows, cols, low);
        }
}
