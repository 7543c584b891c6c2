/* The end of a block of sums: bias, activation, its gradient, and the way to c, f32 or bf16, in the order of
 * ops/matmul.h; all of it while the block is in the first-level cache. */
#include "cpu/dnnl/sums.h"

#include "base/half.h"

enum { SIDE = DLT_AMX_BLOCK, LANES = 16 };

static DltValues values(void *at, const DltTensor *t)
{
    return (DltValues){at, t && t->dtype == DLT_BF16};
}

DltSums dlt_sums_of(const DltCall *c, bool turned)
{
    const DltNode *n = c->node;
    return (DltSums){.ep = ((const DltMatmul *)n->attr)->ep,
                     .n = dlt_matmul_gemm(n).n,
                     .turned = turned,
                     .bias = values(c->in[2], n->in[2]),
                     .saved = values(c->in[3], n->in[3]),
                     .c = values(c->out[0], n->out[0]),
                     .pre = values(c->out[1], n->out[1])};
}

DltPiece dlt_sums_piece(int64_t i, int64_t j, int64_t rows, int64_t cols)
{
    DltPiece at = {i * SIDE, j * SIDE, rows - i * SIDE, cols - j * SIDE};
    if (at.rows > SIDE) at.rows = SIDE;
    if (at.cols > SIDE) at.cols = SIDE;
    return at;
}

bool dlt_sums_are_direct(const DltSums *s, const DltPiece *at)
{
    return !s->turned && at->rows % DLT_AMX_ROWS == 0 && at->cols % DLT_AMX_ROWS == 0 &&
           !s->c.low && !s->bias.at && !s->ep.save_pre && !s->ep.act.fn && !s->ep.act_grad.fn;
}

int64_t dlt_sums_place(const DltSums *s, const DltPiece *at)
{
    return at->row * s->n + at->col;
}

/* n <= 32 values from i on, as f32, zeros behind them. */
DLT_INLINE void read_row(const DltValues *v, int64_t i, int64_t n, bool low, float *out)
{
    DltV16 x;
    if (n == SIDE) {
        for (int j = 0; j < SIDE; j += LANES) {
            dlt_v16_load(v->at, i + j, low, &x);
            *(DltV16 *)(out + j) = x;
        }
        return;
    }
    for (int64_t j = 0; j < SIDE; j++)
        out[j] = j >= n ? 0.0F
                 : low  ? dlt_bf16_to(((const uint16_t *)v->at)[i + j])
                        : ((const float *)v->at)[i + j];
}

DLT_CLONES static void read_rows(const DltSums *s, const DltValues *v, const DltPiece *at, float *x)
{
    int64_t first = dlt_sums_place(s, at);
    if (v->low && at->cols == SIDE) {
        dlt_amx_widen((const uint16_t *)v->at + first, s->n, x, SIDE, at->rows);
        return;
    }
    for (int64_t r = 0; r < at->rows; r++, first += s->n)
        if (v->low)
            read_row(v, first, at->cols, true, x + r * SIDE);
        else
            read_row(v, first, at->cols, false, x + r * SIDE);
}

DLT_CLONES static void write_rows(const DltSums *s, const DltValues *v, const DltPiece *at,
                                  const float *x)
{
    int64_t first = dlt_sums_place(s, at);
    if (v->low && at->cols == SIDE) {
        dlt_amx_round(x, SIDE, (uint16_t *)v->at + first, s->n, at->rows);
        return;
    }
    if (!v->low && at->cols == SIDE) {
        for (int64_t r = 0; r < at->rows; r++, first += s->n)
            for (int j = 0; j < SIDE; j += LANES)
                *(DltV16 *)((float *)v->at + first + j) = *(const DltV16 *)(x + r * SIDE + j);
        return;
    }
    for (int64_t r = 0; r < at->rows; r++, first += s->n)
        for (int64_t j = 0; j < at->cols; j++) {
            if (v->low)
                ((uint16_t *)v->at)[first + j] = dlt_bf16_from(x[r * SIDE + j]);
            else
                ((float *)v->at)[first + j] = x[r * SIDE + j];
        }
}

DLT_CLONES static void add_bias(const DltValues *bias, const DltPiece *at, float *c)
{
    float b[SIDE];
    read_row(bias, at->col, at->cols, bias->low, b);
    DltV16 left = *(const DltV16 *)b, right = *(const DltV16 *)(b + LANES);
    for (int64_t i = 0; i < at->rows; i++, c += SIDE) {
        *(DltV16 *)c += left;
        *(DltV16 *)(c + LANES) += right;
    }
}

/* sums += more, both [32][32]. */
DLT_CLONES static void add_sums(float *sums, const float *more)
{
    for (int i = 0; i < DLT_AMX_SUMS; i += LANES)
        *(DltV16 *)(sums + i) += *(const DltV16 *)(more + i);
}

static void finish(const DltSums *s, const DltPiece *at, float *c)
{
    _Alignas(64) float there[DLT_AMX_SUMS];
    const DltEpilogue *e = &s->ep;
    int64_t n = at->rows * SIDE;
    if (s->add) {
        read_rows(s, &s->c, at, there);
        add_sums(c, there);
    }
    if (s->bias.at) add_bias(&s->bias, at, c);
    if (e->save_pre) write_rows(s, &s->pre, at, c);
    if (e->act.fn) dlt_fast_flat(&(DltFlat){.fn = e->act, .x = c, .y = c}, 0, n);
    if (e->act_grad.fn) {
        read_rows(s, &s->saved, at, there);
        dlt_fast_flat(&(DltFlat){.fn = e->act_grad, .x = c, .saved = there, .y = c}, 0, n);
    }
    write_rows(s, &s->c, at, c);
}

/* y[c][r] = x[r][c] of 32 x 32 sums */
DLT_CLONES static void turn_sums(const float *x, float *y)
{
    for (int r = 0; r < SIDE; r += LANES)
        for (int c = 0; c < SIDE; c += LANES) {
            DltU16 in[LANES], out[LANES];
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i++)
                in[i] = *(const DltU16 *)(const void *)(x + (r + i) * SIDE + c);
            dlt_u16_turn(in, out);
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i++)
                *(DltU16 *)(void *)(y + (c + i) * SIDE + r) = out[i];
        }
}

static DltPiece in_c(const DltSums *s, const DltPiece *at)
{
    return s->turned ? (DltPiece){at->col, at->row, at->cols, at->rows} : *at;
}

void dlt_sums_end(const DltSums *s, const DltPiece *at, float *sums)
{
    _Alignas(64) float turned[DLT_AMX_SUMS];
    DltPiece to = in_c(s, at);
    if (s->turned) turn_sums(sums, turned);
    finish(s, &to, s->turned ? turned : sums);
}
