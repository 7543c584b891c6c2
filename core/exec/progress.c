/* Progress lines. Speed is that of the training steps between two rows. */
#include "exec/progress.h"
#include "base/log.h"
#include "base/sys.h"
#include <math.h>

enum { LIVE_NS = 200000000 };

void dlt_progress_start(DltProgress *p, const DltSpec *spec, size_t memory_bytes, DltPlace at)
{
    int64_t n = spec->data.source[DLT_TRAIN].split.n;
    int64_t used = spec->data.drop_last ? n / spec->train.batch * spec->train.batch : n;
    *p = (DltProgress){.spec = spec, .epoch_samples = (double)used, .memory_bytes = memory_bytes};
    dlt_progress_resume(p, at);
}

void dlt_progress_resume(DltProgress *p, DltPlace at)
{
    p->since_ns = dlt_sys_now_ns();
    p->since_wait_ns = at.wait_ns;
    p->since_position = at.position;
}

void dlt_progress_measure(DltProgress *p, DltPlace at)
{
    double ns = (double)(dlt_sys_now_ns() - p->since_ns);
    if (ns <= 0 || at.position == p->since_position) return;
    p->samples_per_s = (double)(at.position - p->since_position) / ns * 1e9;
    p->data_wait = (double)(at.wait_ns - p->since_wait_ns) / ns;
}

/* "1:02:03" */
static const char *clock_text(double seconds, char text[32])
{
    long long s = seconds < 1e9 ? (long long)(seconds + 0.5) : 999999999;
    if (s >= 3600) {
        snprintf(text, 32, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    } else {
        snprintf(text, 32, "%lld:%02lld", s / 60, s % 60);
    }
    return text;
}

static void line(const DltProgress *p, DltPlace at, void (*show)(const char *fmt, ...),
                 const char *figures)
{
    const DltSpec *spec = p->spec;
    char left[32] = "?";
    double rest = (double)(spec->updates - at.step) * (double)spec->train.batch;
    if (p->samples_per_s > 0) clock_text(rest / p->samples_per_s, left);
    show("epoch %.2f  step %lld/%lld%s%s  %.0f samples/s  data %.0f%%  left %s  %.0f MiB",
         (double)at.position / p->epoch_samples, (long long)at.step, (long long)spec->updates,
         figures[0] != '\0' ? "  " : "", figures, p->samples_per_s, 100 * p->data_wait, left,
         (double)p->memory_bytes / (1 << 20));
}

void dlt_progress_live(DltProgress *p, DltPlace at)
{
    int64_t now = dlt_sys_now_ns();
    if (now - p->live_ns < LIVE_NS) return;
    p->live_ns = now;
    DltProgress current = *p; /* speed so far, without ending the interval */
    dlt_progress_measure(&current, at);
    line(&current, at, dlt_log_live, p->figures);
}

void dlt_progress_row(DltProgress *p, DltPlace at, const DltMetricRow *row)
{
    size_t n = 0;
    bool evaluated = false;
    p->figures[0] = '\0';
    for (int i = 0; i < row->n && n < sizeof p->figures; i++) {
        bool train = strncmp(row->name[i], "train.", 6) == 0;
        if (!train && !isfinite(row->value[i])) continue; /* a split that was not measured */
        evaluated |= !train;
        n += (size_t)snprintf(p->figures + n, sizeof p->figures - n, "%s%s %.4g", n > 0 ? "  " : "",
                              row->name[i] + (train ? 6 : 0), row->value[i]);
    }
    if (evaluated || !dlt_log_is_terminal()) line(p, at, dlt_log, p->figures);
}
