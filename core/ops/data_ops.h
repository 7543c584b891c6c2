/* fetch: the first nodes of every step. Raw samples (u8, f32 or i32) lie in an INPUT tensor, the whole
 * set (resident) or one batch (streamed); a ticket names the row of each sample of the batch.
 *   fetch_x: data [S, d...], ticket i32[N,4], mean f32[c], rstd f32[c] -> x f32[N, d...]
 *            x = (raw * scale - mean[k]) * rstd[k], k = (element / inner) % c; i32 data stays i32, as is
 *   fetch_y: target [S, t...] i32|f32, ticket -> y [N, t...], w f32[N] (1, or 0 for padding rows)
 * Augmentation (images [C,H,W], training only): the sample is padded by `pad` zeros (raw value 0)
 * on each side and cropped back at a random offset, then flipped left-right with probability 1/2,
 * then a square of `cutout` pixels around a random centre is set to 0 after normalisation (cut at
 * the borders). Random numbers: dlt_augment_draw, keyed by (seed, epoch, sample).
 * Masking (ids; training and evaluation): a place is masked with probability `share`; fetch_x gives the mask's
 * id there, or a random id, or the id itself, and fetch_y the target at masked places and `ignored`
 * at all others (Devlin et al. 2019, section 3.1). Both ask dlt_mask_place, keyed by (seed, epoch,
 * sample, place). */
#ifndef DLT_DATA_OPS_H
#define DLT_DATA_OPS_H

#include "base/rng.h"

enum { DLT_TICKET_ROW, DLT_TICKET_SAMPLE, DLT_TICKET_EPOCH, DLT_TICKET_VALID, DLT_TICKET_INTS };

typedef struct DltMask {
    float share;   /* of the places that are masked; 0: no masking */
    float token;   /* of the masked places: those that show the mask's id */
    float changed; /* of the masked places: those that show it or a random id; the rest is left */
    int32_t id;    /* the mask's */
    int32_t n_random, ignored; /* random ids are in [0, n_random); target of places to skip */
} DltMask;

typedef struct DltFetch {
    float scale;   /* 1/255 for u8 images, else 1 */
    int64_t inner; /* elements that share one mean: H*W for per-channel, 1 for per-feature */
    int64_t batch; /* N */
    int32_t pad, cutout;
    int32_t flip;    /* 0 or 1: horizontal */
    int32_t augment; /* any of the three is on */
    uint64_t seed;
    DltMask mask; /* i32 data alone */
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

/* 1 when place i of a sample of `count` places is masked; *id is then what the model sees there. */
DLT_HD int dlt_mask_place(const DltFetch *a, const int32_t *ticket, int64_t count, int64_t i,
                          int32_t *id)
{
    uint64_t stream = dlt_rng_stream(DLT_RNG_MASK, (uint64_t)(uint32_t)ticket[DLT_TICKET_EPOCH]);
    uint64_t sample = (uint64_t)(uint32_t)ticket[DLT_TICKET_SAMPLE];
    DltRand4 r = dlt_philox(a->seed, stream, sample * (uint64_t)count + (uint64_t)i);
    float kind = dlt_rng_unit(r.v[1]);
    if (dlt_rng_unit(r.v[0]) >= a->mask.share) return 0;
    if (kind < a->mask.token)
        *id = a->mask.id;
    else if (kind < a->mask.changed)
        *id = (int32_t)dlt_rng_below(r.v[2], (uint32_t)a->mask.n_random);
    return 1;
}

#endif
