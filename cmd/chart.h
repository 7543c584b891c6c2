/* Curves as inline SVG: one chart is a figure with axes, a legend and any number of lines. */
#ifndef DLT_CHART_H
#define DLT_CHART_H

#include "base/text.h"

typedef struct DltCurve {
    const char *label;
    int color, dash; /* index into the palette; 0 solid, 1 dashed, 2 dotted */
    int n;
    const double *x, *y; /* points whose y is not finite are left out */
} DltCurve;

/* The y axis is logarithmic when all values are positive and span more than a factor of 30. */
void dlt_chart_add(DltText *out, const char *title, const DltCurve *curve, int n_curve);
/* Text with the characters that HTML gives a meaning replaced. */
void dlt_html_add(DltText *out, const char *text);

#endif
