/* What the pieces of a schedule share. */
#ifndef DLT_TRAIN_PIECES_H
#define DLT_TRAIN_PIECES_H

#include "api/train.h"

#define DLT_PIECE_SPAN_ROW(T)                                                                      \
    DLT_SPAN(T, span, .main = true, .lo = 0, .hi = 1e15,                                           \
             .help = "length of the piece; the last one lasts to the end",                         \
             .example = "span: 700 steps")
#define DLT_PIECE_TO_ROW(T)                                                                        \
    DLT_FLOAT(T, to, .def = "0", .lo = 0, .hi = 10,                                                \
              .help = "learning rate at the end of the piece", .example = "to: 1e-5")

/* a at t = 0, b at t = 1, exactly; never outside [a, b]. */
double dlt_mix(double a, double b, double t);
/* From a at t = 0 to b at t = 1 along half a cosine. */
double dlt_mix_cosine(double a, double b, double t);

#endif
