/* fetch: the first nodes of every step. Raw samples (u8, f32 or i32) lie in an INPUT tensor, the whole
 * set (resident) or one batch (streamed); a ticket names the row of each sample of the batch.
 *   fetch_x: data [S, d...], ticket i32[N,4], mean f32[c], rstd f32[c] -> x f32[N, d...]
 *            x = (raw * scale - mean[k]) * rstd[k], k = (element / inner) % c; i32 data stays i32, as is
 *   fetch_y: target [S, t...] i32|f32, ticket -> y [N, t...], w f32[N] (1, or 0 for padding rows)
 * Augmentation (images [C,H,W], training only): the sample is padded by `pad` zeros (raw value 0)
 * on each side and cropped back at a random offset, then flipped left-right with probability 1/2,
 * then a square of `cutout` pixels around a random centre is set to 0 after normalisation (cut at
 * the borders). Random numbers: dlt_augment_draw, keyed by (seed, epoch, sample). */
#ifndef DLT_DATA_OPS_H
#define DLT_DATA_OPS_H

#include "base/rng.h"

enum { DLT_TICKET_ROW, DLT_TICKET_SAMPLE, DLT_TICKET_EPOCH, DLT_TICKET_VALID, DLT_TICKET_INTS };

typedef struct DltFetch {
    float scale;   /* 1/255 for u8 images, else 1 */
    int64_t inner; /* elements that share one mean: H*W for per-channel, 1 for per-feature */
    int64_t batch; /* N */
    int32_t pad, cutout;
    int32_t flip;    /* 0 or 1: horizontal */
    int32_t augment; /* any of the three is on */
    uint64_t seed;
} DltFetch;

typedef struct DltAugment {
    int32_t dy, dx; /* crop offset: output (y, x) reads input (y + dy - pad, x + dx - pad) */
    int32_t flip;
    int32_t cut_y, cut_x; /* centre of the cutout square: rows cut_y - cutout/2 .. + cutout - 1 */
} DltAugment;

DLT_HD DltAugment dlt_augment_draw(uint64_t seed, int32_t epoch, int32_t sample, int32_t pad,
                                   int32_t flip, int32_t h, int32_t w)
{
    uint64_t stream = dlt_rng_stream(DLT_RNG_AUGMENT, (uint64_t)(uint32_t)epoch);
    DltRand4 a = dlt_philox(seed, stream, (uint64_t)(uint32_t)sample * 2);
    DltRand4 b = dlt_philox(seed, stream, (uint64_t)(uint32_t)sample * 2 + 1);
    DltAugment r;
    r.dy = (int32_t)dlt_rng_below(a.v[0], (uint32_t)(2 * pad + 1));
    r.dx = (int32_t)dlt_rng_below(a.v[1], (uint32_t)(2 * pad + 1));
    r.flip = flip ? (int32_t)(a.v[2] >> 31) : 0;
    r.cut_y = (int32_t)dlt_rng_below(b.v[0], (uint32_t)h);
    r.cut_x = (int32_t)dlt_rng_below(b.v[1], (uint32_t)w);
    return r;
}

#endif
