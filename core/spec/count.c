/* Spans become optimizer updates once the number of training samples is known, and with them what
 * can be said about the run before it starts: batches larger than the set, schedules longer than
 * the run. */
#include "spec/read.h"

#include <inttypes.h>
#include <math.h>

/* Samples of one epoch that are used: all, or whole batches only. */
static int64_t epoch_samples(const DltSpec *spec)
{
    int64_t n = spec->data.source[DLT_TRAIN].split.n;
    return spec->data.drop_last ? n / spec->train.batch * spec->train.batch : n;
}

/* Tokens of an update, 0: the data has none. Padding counts, as every place of a window is computed. */
static double batch_tokens(const DltSpec *spec)
{
    return (double)spec->train.batch * (double)dlt_data_window(spec);
}

/* Updates as a real number; 0 for units that are no number of updates. */
static double exact_updates(const DltSpec *spec, DltSpan span)
{
    double batch = (double)spec->train.batch;
    const double factor[] = {
        [DLT_U_NONE] = 0.0,
        [DLT_U_STEPS] = 1.0,
        [DLT_U_EPOCHS] = (double)epoch_samples(spec) / batch,
        [DLT_U_TOKENS] = batch_tokens(spec) > 0 ? 1.0 / batch_tokens(spec) : 0.0,
        [DLT_U_SAMPLES] = 1.0 / batch,
        [DLT_U_SECONDS] = 0.0,
        [DLT_U_PERCENT] = (double)spec->updates / 100.0,
    };
    return span.n * factor[span.unit];
}

int64_t dlt_spec_span_updates(const DltSpec *spec, DltSpan span)
{
    double n = exact_updates(spec, span);
    if (n <= 0.0) return 0;
    return n < 1.0 ? 1 : (int64_t)floor(n + 0.5);
}

/* CONFIG for units that cannot be counted here. */
static DltStatus check_unit(const DltSpec *spec, DltSpan span, DltMark at, const char *path,
                            bool percent, DltErr *err)
{
    static const char *const what[] = {
        [DLT_U_TOKENS] = "tokens, but the data has samples",
        [DLT_U_SECONDS] = "a time, which is no number of updates",
        [DLT_U_PERCENT] = "a share of the run, which this length defines",
    };
    bool tokens = span.unit == DLT_U_TOKENS && batch_tokens(spec) == 0;
    if (!tokens && span.unit != DLT_U_SECONDS && (span.unit != DLT_U_PERCENT || percent))
        return DLT_OK;
    return dlt_err_at(err, DLT_E_CONFIG, at, "%s: %s; write epochs, steps or samples", path,
                      what[span.unit]);
}

static DltStatus count_run(DltSpec *spec, DltErr *err)
{
    const DltOpts *o = &spec->sections->train;
    const DltTrainSpec *t = &spec->train;
    int64_t n = spec->data.source[DLT_TRAIN].split.n;
    DltMark at = dlt_opts_mark(o, offsetof(DltTrainOpts, length));
    DLT_TRY(check_unit(spec, t->length, at, "train.for", false, err));
    if (t->batch > n)
        return dlt_err_at(err, DLT_E_CONFIG, dlt_opts_mark(o, offsetof(DltTrainOpts, batch)),
                          "train.batch: %" PRId64 " is more than the %" PRId64
                          " samples of data.train",
                          t->batch, n);
    double updates = exact_updates(spec, t->length);
    if (!(updates < 9e15))
        return dlt_err_at(err, DLT_E_CONFIG, at, "train.for: %g updates are too many to count",
                          updates);
    spec->updates = dlt_spec_span_updates(spec, t->length);
    spec->updates_per_epoch = (epoch_samples(spec) + t->batch - 1) / t->batch;
    return DLT_OK;
}

/* A copy of a piece's options with every span in updates. */
static DltStatus count_options(DltSpec *spec, const DltPieceSpec *p, void **opts, DltErr *err)
{
    *opts = dlt_arena_new_bytes(spec->arena, 1, p->def->opt_size);
    memcpy(*opts, p->opts.v, p->def->opt_size);
    for (const DltField *f = p->def->fields; f && f->key; f++) {
        DltSpan span;
        if (f->type != DLT_T_SPAN) continue;
        memcpy(&span, (const char *)p->opts.v + f->offset, sizeof span);
        if (span.unit == DLT_U_NONE) continue;
        const char *path = dlt_arena_printf(spec->arena, "%s.%s", p->opts.name, f->key);
        DLT_TRY(check_unit(spec, span, dlt_opts_mark(&p->opts, f->offset), path, true, err));
        span = (DltSpan){(double)dlt_spec_span_updates(spec, span), DLT_U_STEPS};
        memcpy((char *)*opts + f->offset, &span, sizeof span);
    }
    return DLT_OK;
}

static DltStatus too_long(const DltSpec *spec, const DltPieceSpec *p, int64_t sum, DltErr *err)
{
    return dlt_err_at(err, DLT_E_CONFIG, dlt_opts_mark(&p->opts, p->def->span_offset),
                      "%s: the schedule reaches update %" PRId64 ", but the run has only %" PRId64
                      " (train.for)",
                      p->opts.name, sum, spec->updates);
}

/* Lengths of the pieces; the last one takes the rest. A last piece without any update left (warmup
 * as long as the run) is left out. */
static DltStatus count_schedule(DltSpec *spec, DltErr *err)
{
    DltTrainSpec *t = &spec->train;
    DltSchedulePiece *piece = DLT_NEW_ARRAY(spec->arena, t->n_piece + 1, DltSchedulePiece);
    int n = 0;
    int64_t sum = 0;
    for (int i = 0; i < t->n_piece; i++) {
        const DltPieceSpec *p = &t->piece[i];
        void *opts = NULL;
        DltSpan span;
        DLT_TRY(count_options(spec, p, &opts, err));
        memcpy(&span, (const char *)opts + p->def->span_offset, sizeof span);
        bool rest = span.unit == DLT_U_NONE;
        int64_t length = rest ? spec->updates - sum : (int64_t)span.n;
        sum += length;
        if (sum > spec->updates) return too_long(spec, p, sum, err);
        if (length < 1) continue;
        piece[n] = (DltSchedulePiece){.def = p->def, .opts = opts, .n = length};
        n++;
    }
    t->schedule.piece = piece;
    t->schedule.n_piece = n;
    return DLT_OK;
}

static DltStatus count_interval(const DltSpec *spec, const DltOpts *o, size_t offset,
                                const char *path, int64_t *updates, DltErr *err)
{
    DltSpan span;
    if (!o->v) return DLT_OK;
    memcpy(&span, (const char *)o->v + offset, sizeof span);
    if (span.unit == DLT_U_NONE) return DLT_OK;
    DLT_TRY(check_unit(spec, span, dlt_opts_mark(o, offset), path, true, err));
    *updates = dlt_spec_span_updates(spec, span);
    return DLT_OK;
}

static DltStatus check_checkpoint_units(const DltSpec *spec, DltErr *err)
{
    const DltOpts *o = &spec->sections->checkpoint;
    DltStatus status = DLT_OK;
    for (int i = 0; i < 2; i++)
        if (spec->checkpoint_every[i].unit != DLT_U_SECONDS)
            status =
                dlt_first(status, check_unit(spec, spec->checkpoint_every[i],
                                             dlt_opts_mark(o, offsetof(DltCheckpointOpts, every)),
                                             "checkpoint.every", true, err));
    return status;
}

static DltStatus count_expect(DltSpec *spec, DltErr *err)
{
    for (int i = 0; i < spec->n_expect; i++) {
        DltExpect *e = &spec->expect[i];
        e->by = spec->updates;
        if (e->by_span.unit == DLT_U_NONE) continue;
        const char *path = dlt_arena_printf(spec->arena, "expect.%s", e->key);
        DLT_TRY(check_unit(spec, e->by_span, e->at, path, true, err));
        e->by = dlt_spec_span_updates(spec, e->by_span);
        if (e->by > spec->updates)
            return dlt_err_at(err, DLT_E_CONFIG, e->at,
                              "%s: update %" PRId64 " is behind the end of the run (%" PRId64 ")",
                              path, e->by, spec->updates);
    }
    return DLT_OK;
}

DltStatus dlt_spec_count(DltSpec *spec, DltErr *err)
{
    struct DltSections *s = spec->sections;
    int64_t eval = 0;
    DLT_TRY(count_run(spec, err));
    DltStatus status = count_schedule(spec, err);
    status = dlt_first(status, count_interval(spec, &s->eval, offsetof(DltEvalOpts, every),
                                              "eval.every", &eval, err));
    status = dlt_first(status, count_interval(spec, &s->keep, offsetof(DltKeepOpts, every),
                                              "checkpoint.keep.every", &spec->keep.every, err));
    status = dlt_first(status, count_interval(spec, &s->log, offsetof(DltLogOpts, every),
                                              "log.every", &spec->log_every, err));
    status = dlt_first(status, check_checkpoint_units(spec, err));
    return dlt_first(status, count_expect(spec, err));
}
