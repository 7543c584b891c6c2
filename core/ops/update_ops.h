/* Updates work on whole slabs: all parameters of one group lie in one flat tensor, so one node (one
 * kernel) updates them all. coef f32[DLT_COEF] comes from grad_scale:
 *   accumulate: sum [n] (mutated), g [n] (f32, or f64 for losses), step: sum = (step.micro == 0) ? g : sum + g
 *   sum_squares: x [n] -> f64[1], summed in a fixed order
 *   scale_loss: step (mutated), scaler f32[DLT_SCALER]: step.loss_scale = scaler[SCALE]
 *   grad_scale: loss f64[2] or its accumulated form, g [n] (every gradient) or NULL, step, states f64[1] or
 *     NULL (the sum of squares of running statistics), scaler f32[DLT_SCALER] (mutated) or NULL -> coef,
 *     the norm summed in a fixed order:
 *     coef[SCALE] = sample_weight / (loss[1] * loss_scale) (0 when loss[1] is 0), times
 *     min(1, clip / norm) when clip > 0;  coef[NORM] = norm of the true mean gradient before clipping (0
 *     without g); coef[LOSS] = loss[0] / loss[1] (0 without weight); coef[SKIP] = 1 when loss, norm
 *     or states is not finite, else 2 when step.loss_limit > 0 and coef[LOSS] is above it, else 0.
 *     With a scaler (Micikevicius et al. 2018; torch.amp.GradScaler): not finite with scaler[SCALE] > 1
 *     is an overflow: coef[SKIP] = 3, the scale falls by `backoff`, not below 1; after `interval` finite
 *     updates in a row it grows by `growth`
 *   X_update: w (mutated), g, coef, step, states (mutated); nothing happens when coef[SKIP] != 0.
 *     g' = g * coef[SCALE]; lr = step.lr * lr_factor
 *   sgd:     g' += wd w; buf = momentum buf + (1 - dampening) g' (buf = g' at update 1);
 *            d = nesterov ? g' + momentum buf : buf; w -= lr d           (PyTorch SGD)
 *   adam:    decoupled: w -= lr wd w, else g' += wd w; m, v moments; mhat = m/(1-b1^t); vhat likewise;
 *            w -= lr mhat / (sqrt(vhat) + eps)                            (Adam, AdamW; amsgrad no)
 *   rmsprop: g' += wd w; sq = alpha sq + (1-alpha) g'^2; avg = sqrt(sq) + eps (centered: sqrt(sq - ga^2));
 *            momentum > 0: buf = momentum buf + g'/avg; w -= lr buf; else w -= lr g'/avg
 *   adagrad: g' += wd w; s += g'^2; clr = lr / (1 + (t-1) lr_decay); w -= clr g' / (sqrt(s) + eps)
 *   lion:    w -= lr wd w; w -= lr sign(b1 m + (1-b1) g'); m = b2 m + (1-b2) g'   (Chen et al. 2023)
 *   lamb:    one parameter a slab. m, v, mhat, vhat as adam; r = mhat / (sqrt(vhat) + eps) + wd w;
 *            w -= lr (|w| / |r|, 1 where either is 0) r       (You et al. 2020, algorithm 2)
 *   muon_momentum: g, buf (mutated), coef, step -> x like g: g' = g coef[SCALE]; buf += (1 - momentum)
 *            (g' - buf); u = nesterov ? g' + momentum (buf - g') : buf; x = u / (|u| + 1e-7)
 *   muon_update:   w (mutated), x, coef, step: w -= lr wd w; w -= lr sqrt(max(1, rows / cols)) x, x the
 *            matrix [rows, cols] that Newton and Schulz have made of it (train/muon.c). w may be longer
 *            than x (padding).  Jordan 2024
 *   states s1, s2, s3: sgd buf; adam m, v; rmsprop sq, buf, ga; adagrad s; lion m; lamb m, v. Each has its place:
 *   rmsprop's ga is s3 with momentum 0 too (s2 is then there and not touched)
 *   settle:  state, kept (both mutated; f32 or f64 of one size), coef: after an update that was left
 *            out, state = kept; else kept = state. So what batches leave in a state (running
 *            statistics, metric sums) goes with its update; the executor starts kept as state
 *   ema:     e (mutated), w, coef, step: e = d e + (1 - d) w with d = decay, or
 *            min(decay, (1 + t) / (10 + t)) when warm; the executor starts e as w */
#ifndef DLT_UPDATE_OPS_H
#define DLT_UPDATE_OPS_H

#include "base/rng.h"
#include "graph/build.h"
#include <math.h>

enum { DLT_COEF_SCALE, DLT_COEF_NORM, DLT_COEF_SKIP, DLT_COEF_LOSS, DLT_COEF };
/* values of coef[SKIP] */
enum { DLT_SKIP_NONE, DLT_SKIP_NONFINITE, DLT_SKIP_SPIKE, DLT_SKIP_OVERFLOW };
/* scaler: the loss scale, finite updates in a row since it last changed, updates left out so far */
enum { DLT_SCALER_SCALE, DLT_SCALER_GOOD, DLT_SCALER_SKIPPED, DLT_SCALER };

typedef struct DltGradScale {
    float clip;             /* global norm; 0: off */
    double growth, backoff; /* of the loss scale */
    int64_t interval;
} DltGradScale;

/* The scaler behind an update; DLT_SKIP_OVERFLOW, or DLT_SKIP_NONE. What is not finite at scale 1 is no
 * overflow. */
DLT_HD int dlt_scaler_next(const DltGradScale *a, bool is_finite, double s[DLT_SCALER])
{
    if (!is_finite) {
        bool overflow = s[DLT_SCALER_SCALE] > 1;
        double lower = s[DLT_SCALER_SCALE] * a->backoff;
        s[DLT_SCALER_SCALE] = lower > 1 ? lower : 1;
        s[DLT_SCALER_GOOD] = 0;
        if (overflow) s[DLT_SCALER_SKIPPED] += 1;
        return overflow ? DLT_SKIP_OVERFLOW : DLT_SKIP_NONE;
    }
    s[DLT_SCALER_GOOD] += 1;
    if (s[DLT_SCALER_GOOD] < (double)a->interval) return DLT_SKIP_NONE;
    s[DLT_SCALER_GOOD] = 0;
    if (s[DLT_SCALER_SCALE] * a->growth < 1e38) s[DLT_SCALER_SCALE] *= a->growth; /* f32 holds it */
    return DLT_SKIP_NONE;
}

/* One struct for all update ops; each reads its own members. in: w, g, coef, step, s1, s2, s3; when `low`
 * is used, in[7] is the compute-precision copy of w (mutated: w rounded), else NULL. */
typedef struct DltUpdate {
    double lr_factor, weight_decay;
    double momentum, dampening; /* sgd, rmsprop */
    double beta1, beta2, eps;   /* adam, lion */
    double alpha, lr_decay;     /* rmsprop; adagrad */
    double decay;               /* ema */
    bool nesterov, decoupled, centered, warm;
} DltUpdate;

#endif
