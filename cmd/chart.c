/* Curves as inline SVG. At most MAX_POINTS a line are drawn: each is the mean of a bucket of neighbours, so
 * that a long noisy run shows its course. */
#include "cmd/chart.h"

#include <math.h>

enum { WIDTH = 620, HEIGHT = 300, LEFT = 62, RIGHT = 10, TOP = 8, BOTTOM = 26, MAX_POINTS = 400 };

typedef struct Axis {
    double lo, hi;
    bool log;
    double from, to; /* pixels */
} Axis;

void dlt_html_add(DltText *out, const char *text)
{
    static const struct {
        char c;
        const char *entity;
    } special[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}};
    for (; *text; text++) {
        const char *entity = NULL;
        for (size_t i = 0; i < sizeof special / sizeof special[0]; i++)
            if (special[i].c == *text) entity = special[i].entity;
        if (entity)
            dlt_text_add(out, entity);
        else
            dlt_text_addn(out, text, 1);
    }
}

static double place(const Axis *a, double v)
{
    double lo = a->log ? log10(a->lo) : a->lo, hi = a->log ? log10(a->hi) : a->hi;
    if (a->log) v = log10(v);
    return a->from + (v - lo) / (hi - lo) * (a->to - a->from);
}

/* Bounds of all finite points; false when there is none. */
static bool bounds(const DltCurve *curve, int n, Axis *x, Axis *y)
{
    bool any = false;
    for (int c = 0; c < n; c++)
        for (int i = 0; i < curve[c].n; i++) {
            double px = curve[c].x[i], py = curve[c].y[i];
            if (!isfinite(px) || !isfinite(py)) continue;
            x->lo = any ? fmin(x->lo, px) : px;
            x->hi = any ? fmax(x->hi, px) : px;
            y->lo = any ? fmin(y->lo, py) : py;
            y->hi = any ? fmax(y->hi, py) : py;
            any = true;
        }
    y->log = any && y->lo > 0 && y->hi > 30 * y->lo;
    Axis *both[2] = {x, y};
    for (int i = 0; i < 2 && any; i++) {
        Axis *a = both[i];
        double room = a->hi > a->lo ? a->hi - a->lo : fmax(fabs(a->lo), 1) * 0.1;
        if (!(a->hi > a->lo) || (i == 1 && !a->log)) {
            a->lo -= 0.03 * room;
            a->hi += 0.03 * room;
        }
    }
    return any;
}

/* Distance of ticks: 1, 2 or 5 times a power of ten, for about five of them. */
static double tick_step(double range)
{
    double raw = range / 5, power = pow(10, floor(log10(raw))), part = raw / power;
    return power * (part < 1.5 ? 1 : part < 3.5 ? 2 : part < 7.5 ? 5 : 10);
}

static void add_tick(DltText *out, const Axis *a, double v, bool vertical)
{
    double at = place(a, v);
    if (vertical)
        dlt_text_addf(out,
                      "<line class=g x1=%d x2=%d y1=%.1f y2=%.1f /><text x=%d y=%.1f "
                      "text-anchor=end>%.4g</text>\n",
                      LEFT, WIDTH - RIGHT, at, at, LEFT - 5, at + 4, v);
    else
        dlt_text_addf(out, "<text x=%.1f y=%d text-anchor=middle>%.6g</text>\n", at, HEIGHT - 8, v);
}

static void add_ticks(DltText *out, const Axis *a, bool vertical)
{
    if (a->log) {
        int first = (int)ceil(log10(a->lo) - 1e-9), last = (int)floor(log10(a->hi) + 1e-9);
        for (int p = first; p <= last; p++)
            add_tick(out, a, pow(10, p), vertical);
        if (last - first >= 1) return;
        add_tick(out, a, a->lo, vertical);
        add_tick(out, a, a->hi, vertical);
        return;
    }
    double step = tick_step(a->hi - a->lo), first = ceil(a->lo / step);
    for (int i = 0; i < 12 && (first + i) * step <= a->hi; i++)
        add_tick(out, a, (first + i) * step, vertical);
}

static const char *color_of(int i)
{
    static const char *const palette[] = {"#1f6fb4", "#d1495b", "#2a9d5c", "#e08e1b", "#7b5ea7",
                                          "#0f8b9d", "#8c564b", "#c04fa0", "#6b7a00", "#555555"};
    return palette[i % (int)(sizeof palette / sizeof palette[0])];
}

static const char *dash_of(int i)
{
    static const char *const dash[] = {"", " stroke-dasharray=\"6 3\"",
                                       " stroke-dasharray=\"2 3\""};
    return dash[i % 3];
}

static void add_line(DltText *out, const DltCurve *c, const Axis *x, const Axis *y)
{
    int n_finite = 0, drawn = 0;
    for (int i = 0; i < c->n; i++)
        n_finite += isfinite(c->y[i]);
    int bucket = (n_finite + MAX_POINTS - 1) / MAX_POINTS, in = 0, seen = 0;
    double sum_x = 0, sum_y = 0, px = 0, py = 0;
    if (bucket < 1) return;
    dlt_text_addf(out, "<polyline stroke=\"%s\"%s points=\"", color_of(c->color), dash_of(c->dash));
    for (int i = 0; i < c->n; i++) {
        if (!isfinite(c->y[i])) continue;
        sum_x += c->x[i];
        sum_y += c->y[i];
        seen++;
        if (++in < bucket && seen < n_finite) continue;
        px = place(x, sum_x / in);
        py = place(y, sum_y / in);
        dlt_text_addf(out, "%s%.1f,%.1f", drawn++ ? " " : "", px, py);
        sum_x = sum_y = 0;
        in = 0;
    }
    dlt_text_add(out, "\" />\n");
    if (drawn == 1)
        dlt_text_addf(out, "<circle cx=%.1f cy=%.1f r=3 fill=\"%s\" />\n", px, py,
                      color_of(c->color));
}

void dlt_chart_add(DltText *out, const char *title, const DltCurve *curve, int n_curve)
{
    Axis x = {.from = LEFT, .to = WIDTH - RIGHT}, y = {.from = HEIGHT - BOTTOM, .to = TOP};
    if (!bounds(curve, n_curve, &x, &y)) return;
    dlt_text_add(out, "<figure><figcaption>");
    dlt_html_add(out, title);
    dlt_text_addf(out, "</figcaption><svg viewBox=\"0 0 %d %d\" role=img>\n", WIDTH, HEIGHT);
    add_ticks(out, &y, true);
    add_ticks(out, &x, false);
    for (int i = 0; i < n_curve; i++)
        add_line(out, &curve[i], &x, &y);
    dlt_text_add(out, "</svg><p>");
    for (int i = 0; i < n_curve; i++) {
        dlt_text_addf(out,
                      "<svg class=k viewBox=\"0 0 22 8\"><polyline stroke=\"%s\"%s "
                      "points=\"0,4 22,4\" /></svg>",
                      color_of(curve[i].color), dash_of(curve[i].dash));
        dlt_html_add(out, curve[i].label);
        dlt_text_add(out, " ");
    }
    dlt_text_add(out, "</p></figure>\n");
}
