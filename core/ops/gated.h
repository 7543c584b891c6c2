/* Gated units (Shazeer 2020): two projections of one input, one of them through an activation.
 *   gated_fwd: g, u -> y = act(g) u, shapes equal
 *   gated_bwd: dy, g, u -> dg = dy u act'(g), du = dy act(g).  act(g) is computed again, not stored. */
#ifndef DLT_GATED_H
#define DLT_GATED_H

#include "ops/elementwise.h"

/* fn must not need its own result for its gradient (dlt_unary_saves_y). attr: DltUnary. */
DltTensor *dlt_gated(DltBuild *b, DltTensor *g, DltTensor *u, DltUnaryFn fn);

#endif
