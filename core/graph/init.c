/* Initialisations: a value is a pure function of (seed, tensor name, index), so it does not depend
 * on the order of layers, threads or devices. Formulas as torch.nn.init. */
#include "graph/build.h"

#include "base/rng.h"
#include "base/sys.h"

#include <math.h>

DltInit dlt_init_zeros(void)
{
    return (DltInit){.kind = DLT_INIT_ZEROS};
}

DltInit dlt_init_ones(void)
{
    return (DltInit){.kind = DLT_INIT_ONES};
}

DltInit dlt_init_uniform(double lo, double hi)
{
    return (DltInit){.kind = DLT_INIT_UNIFORM, .a = lo, .b = hi};
}

DltInit dlt_init_normal(double mean, double std)
{
    return (DltInit){.kind = DLT_INIT_NORMAL, .a = mean, .b = std};
}

DltInit dlt_init_scaled(double std)
{
    return (DltInit){.kind = DLT_INIT_SCALED, .b = std};
}

void dlt_build_scale_inits(DltBuild *b)
{
    double factor = b->n_residual > 0 ? 1.0 / sqrt((double)b->n_residual) : 1.0;
    for (int i = 0; i < b->graph->n_tensor; i++) {
        DltTensor *t = b->graph->tensor[i];
        if (!t->init || t->init->kind != DLT_INIT_SCALED) continue;
        DltInit *init = DLT_NEW(b->graph->arena, DltInit);
        *init = dlt_init_normal(0, t->init->b * factor);
        t->init = init;
    }
}

DltInit dlt_init_trunc_normal(double mean, double std)
{
    return (DltInit){.kind = DLT_INIT_TRUNC_NORMAL, .a = mean, .b = std};
}

/* fan_in = prod(shape[1..]), fan_out = shape[0] * prod(shape[2..]); at least 1. */
static double fan_in(const DltShape *s)
{
    return (double)(s->rank > 1 ? dlt_shape_span(s, 1, s->rank) : dlt_shape_count(s));
}

static double fan_out(const DltShape *s)
{
    return (double)(s->dim[0] * (s->rank > 2 ? dlt_shape_span(s, 2, s->rank) : 1));
}

/* He et al. 2015: std = gain / sqrt(fan_in), gain = sqrt(2 / (1 + a^2)). */
static double kaiming_std(const DltShape *s, double a)
{
    return sqrt(2.0 / (1.0 + a * a)) / sqrt(fan_in(s));
}

/* Glorot & Bengio 2010: std = sqrt(2 / (fan_in + fan_out)). */
static double xavier_std(const DltShape *s)
{
    return sqrt(2.0 / (fan_in(s) + fan_out(s)));
}

DltInit dlt_init_kaiming_uniform(const DltShape *s, double a)
{
    double bound = sqrt(3.0) * kaiming_std(s, a);
    return dlt_init_uniform(-bound, bound);
}

DltInit dlt_init_kaiming_normal(const DltShape *s, double a)
{
    return dlt_init_normal(0, kaiming_std(s, a));
}

DltInit dlt_init_xavier_uniform(const DltShape *s)
{
    double bound = sqrt(3.0) * xavier_std(s);
    return dlt_init_uniform(-bound, bound);
}

DltInit dlt_init_xavier_normal(const DltShape *s)
{
    return dlt_init_normal(0, xavier_std(s));
}

/* Normal cut at two standard deviations, by rejection: try t of element i is number i + t * 2^32.
 */
static double cut_normal(uint64_t seed, uint64_t stream, uint64_t i)
{
    for (uint64_t t = 0; t < 64; t++) {
        double z = dlt_rng_normal(seed, stream, i + (t << 32));
        if (fabs(z) <= 2.0) return z;
    }
    return 0.0;
}

static double value(const DltInit *init, uint64_t seed, uint64_t stream, int64_t i)
{
    uint64_t u = (uint64_t)i;
    switch (init->kind) {
    case DLT_INIT_ZEROS:
        return 0.0;
    case DLT_INIT_ONES:
        return 1.0;
    case DLT_INIT_CONSTANT:
        return init->a;
    case DLT_INIT_UNIFORM:
        return init->a + (init->b - init->a) * dlt_rng_uniform(seed, stream, u);
    case DLT_INIT_NORMAL:
    case DLT_INIT_SCALED:
        return init->a + init->b * dlt_rng_normal(seed, stream, u);
    case DLT_INIT_TRUNC_NORMAL:
        return init->a + init->b * cut_normal(seed, stream, u);
    case DLT_INIT_VALUES:
        return init->values[init->n_values == 1 ? 0 : i];
    }
    return 0.0;
}

/* Elements [begin, end) of a tensor; fewer once a signal has asked the process to stop. */
typedef struct Part {
    const DltTensor *t;
    const DltInit *init;
    void *out;
    uint64_t seed, stream;
    int64_t begin, end;
} Part;

static void *fill_part(void *ctx)
{
    enum { BETWEEN_LOOKS = 1 << 16 };
    const Part *p = ctx;
    DltReal *real = p->out;
    double *f64 = p->out;
    int32_t *i32 = p->out;
    for (int64_t i = p->begin; i < p->end; i++) {
        if (i % BETWEEN_LOOKS == 0 && dlt_sys_asked_to_stop() != DLT_OK) return NULL;
        double v = value(p->init, p->seed, p->stream, i);
        if (p->t->dtype == DLT_F32)
            real[i] = (DltReal)v;
        else if (p->t->dtype == DLT_F64)
            f64[i] = v;
        else
            i32[i] = (int32_t)v;
    }
    return NULL;
}

/* A normal value takes a tenth of a microsecond: large tensors are shared by threads. */
static void fill_by_threads(const Part *whole, int64_t n)
{
    enum { MOST = 32, GRAIN = 1 << 15 };
    Part part[MOST];
    pthread_t thread[MOST];
    bool runs[MOST] = {false};
    int64_t parts = n / GRAIN, cpus = dlt_sys_n_cpu();
    parts = parts < cpus ? parts : cpus;
    parts = parts < 1 ? 1 : parts < MOST ? parts : MOST;
    for (int64_t k = 0; k < parts; k++) {
        part[k] = *whole;
        part[k].begin = n * k / parts;
        part[k].end = n * (k + 1) / parts;
        if (k + 1 < parts) runs[k] = dlt_sys_thread(&thread[k], fill_part, &part[k]);
        if (!runs[k]) (void)fill_part(&part[k]);
    }
    for (int64_t k = 0; k < parts; k++)
        if (runs[k]) (void)pthread_join(thread[k], NULL);
}

void dlt_init_fill(const DltTensor *t, uint64_t seed, void *out)
{
    static const DltInit zeros = {.kind = DLT_INIT_ZEROS};
    const DltInit *init = t->init ? t->init : &zeros;
    uint64_t stream = dlt_rng_stream(DLT_RNG_INIT, dlt_hash(t->name, strlen(t->name), 0));
    if (init->kind == DLT_INIT_ZEROS) {
        memset(out, 0, (size_t)dlt_tensor_bytes(t));
        return;
    }
    DLT_BUG_ON(t->dtype != DLT_F32 && t->dtype != DLT_F64 && t->dtype != DLT_I32);
    Part whole = {t, init, out, seed, stream, 0, 0};
    fill_by_threads(&whole, dlt_shape_count(&t->shape));
}
