/* Opening and loading data sets, and checking what the config says about them: the second half of
 * data.c, which reads the words. */
#include "base/log.h"
#include "spec/read.h"

#include <inttypes.h>

enum { RESIDENT_BYTES_LOG2 = 31 };

static void close_dataset(void *ctx)
{
    DltDataset *ds = ctx;
    if (ds->def && ds->def->close) ds->def->close(ds);
}

/* NULL: bad records are errors. */
static DltBad *ledger(DltReader *r)
{
    if (r->spec->data.max_bad == 0) return NULL;
    DltBad *bad = DLT_NEW(r->arena, DltBad);
    *bad = (DltBad){.arena = r->arena, .limit = r->spec->data.max_bad};
    return bad;
}

/* Behind an error inside a data file that could be left out, the way to do so. */
static DltStatus with_way_out(const DltSpec *spec, const DltSource *s, DltStatus status,
                              DltErr *err)
{
    if (status != DLT_E_DATA || !s->def->skips || spec->data.max_bad > 0) return status;
    if (err->n > 0 && err->report[err->n - 1].at.line == 0)
        dlt_err_note(err, DLT_NO_MARK,
                     "data: {on_bad: skip, max_bad: 20} leaves bad records out and names them; a "
                     "file that is cut or damaged has to be fetched again");
    return status;
}

static DltStatus open_source(DltReader *r, int split)
{
    DltSource *s = &r->spec->data.source[split], *train = &r->spec->data.source[DLT_TRAIN];
    if (s->fraction > 0.0) {
        s->def = train->def;
        s->ds = train->ds;
    }
    if (!s->def) return DLT_OK;
    if (s->fraction == 0.0 && r->spec->stored && r->spec->stored->train) {
        s->ds = *r->spec->stored->train;
        s->ds.def = s->def;
        s->ds.tokenizer = r->spec->data.tokenizer;
    } else if (s->fraction == 0.0) {
        s->ds.tokenizer = r->spec->data.tokenizer;
        s->ds.bad = ledger(r);
        s->ds.own_targets = r->spec->data.mask.share > 0;
        DltStatus status = s->def->open(r->arena, &s->opts, r->spec->folder,
                                        split == DLT_TRAIN ? NULL : &train->ds, &s->ds, r->err);
        DLT_TRY(with_way_out(r->spec, s, status, r->err));
        s->ds.def = s->def;
        dlt_arena_on_free(r->arena, close_dataset, &s->ds);
    }
    s->split = (DltSplit){.ds = &s->ds, .n = s->ds.n};
    if (s->ds.n > 0) return DLT_OK;
    return dlt_err_at(r->err, DLT_E_DATA, s->opts.at, "data.%s: %s holds no samples",
                      dlt_split_name[split], s->ds.path ? s->ds.path : "the set");
}

/* Before the contents are there, shares of train are counted by their fraction. */
static void estimate_shares(DltSpec *spec)
{
    DltSource *s = spec->data.source;
    int64_t n = s[DLT_TRAIN].ds.n;
    for (int i = DLT_VAL; i < DLT_N_SPLIT; i++) {
        if (s[i].fraction == 0.0) continue;
        s[i].split.n = (int64_t)((double)n * s[i].fraction + 0.5);
        s[DLT_TRAIN].split.n -= s[i].split.n;
        spec->sections->counted_early = true;
    }
}

static bool fits_device(const DltDataset *ds)
{
    return dlt_dataset_x_bytes(ds) <= ((int64_t)1 << RESIDENT_BYTES_LOG2) / ds->n;
}

/* Windows that move lie nowhere as samples. */
static DltStatus check_shift(DltReader *r)
{
    const DltSource *s = &r->spec->data.source[DLT_TRAIN];
    if (!r->spec->data.resident || s->ds.n_shift == 0) return DLT_OK;
    return dlt_err_at(r->err, DLT_E_CONFIG,
                      dlt_opts_mark(&r->spec->sections->data, offsetof(DltDataOpts, cache)),
                      "data.cache: device holds windows at fixed places; data.train.%s has shift: "
                      "epoch, which needs cache: host",
                      s->def->name);
}

DltStatus dlt_open_data(DltReader *r)
{
    DltDataSpec *d = &r->spec->data;
    const DltDataOpts *o = r->spec->sections->data.v;
    DLT_TRY(dlt_open_tokenizer(r));
    for (int i = 0; i < DLT_N_SPLIT; i++)
        DLT_TRY(open_source(r, i));
    DLT_TRY(dlt_open_mask(r));
    estimate_shares(r->spec);
    d->resident = o->cache == DLT_CACHE_DEVICE;
    if (o->cache == DLT_CACHE_AUTO) {
        d->resident = true;
        for (int i = 0; i < DLT_N_SPLIT; i++)
            if (d->source[i].def && (!fits_device(&d->source[i].ds) || d->source[i].ds.n_shift > 0))
                d->resident = false;
    }
    return check_shift(r);
}

static DltStatus check_agreement(const DltSpec *spec, int split, DltErr *err)
{
    const DltSource *a = &spec->data.source[DLT_TRAIN], *b = &spec->data.source[split];
    char as[DLT_SHAPE_TEXT], bs[DLT_SHAPE_TEXT];
    if (!b->def) return DLT_OK;
    if (!dlt_shape_equal(&a->ds.x_shape, &b->ds.x_shape))
        return dlt_err_at(err, DLT_E_DATA, b->opts.at,
                          "data.%s: samples %s differ from data.train's %s", dlt_split_name[split],
                          dlt_shape_text(&b->ds.x_shape, bs), dlt_shape_text(&a->ds.x_shape, as));
    if (a->ds.classes != b->ds.classes)
        return dlt_err_at(err, DLT_E_DATA, b->opts.at,
                          "data.%s: %" PRId64 " classes, but data.train has %" PRId64,
                          dlt_split_name[split], b->ds.classes, a->ds.classes);
    return DLT_OK;
}

static DltStatus check_normalize(const DltSpec *spec, DltErr *err)
{
    const DltDataset *ds = &spec->data.source[DLT_TRAIN].ds;
    const DltDataOpts *o = spec->sections->data.v;
    int64_t n = dlt_norm_count(ds);
    if (spec->data.normalize == DLT_NORM_NONE) return DLT_OK;
    if (!dlt_dtype_is_float(ds->x_dtype) && ds->x_dtype != DLT_U8)
        return dlt_err_at(err, DLT_E_CONFIG, o->normalize->at,
                          "data.normalize: data.train holds ids, which have no mean");
    if (spec->data.normalize != DLT_NORM_GIVEN || spec->data.mean.n == 1 || spec->data.mean.n == n)
        return DLT_OK;
    return dlt_err_at(err, DLT_E_CONFIG, o->normalize->at,
                      "data.normalize: %d means, but data.train has %" PRId64
                      " channels; give %" PRId64 " or one for all",
                      spec->data.mean.n, n, n);
}

static DltStatus check_augment(const DltSpec *spec, DltErr *err)
{
    const DltDataset *ds = &spec->data.source[DLT_TRAIN].ds;
    const DltFetch *a = &spec->data.augment;
    const DltDataOpts *o = spec->sections->data.v;
    char shape[DLT_SHAPE_TEXT];
    if (!a->augment) return DLT_OK;
    if (ds->x_shape.rank != 3 || ds->channel_axis != 0)
        return dlt_err_at(
            err, DLT_E_CONFIG, o->augment->at,
            "data.augment: changes images [C, H, W], but a sample of data.train is %s",
            dlt_shape_text(&ds->x_shape, shape));
    int64_t h = ds->x_shape.dim[1], w = ds->x_shape.dim[2], side = h < w ? h : w;
    if (a->pad >= side || a->cutout > side)
        return dlt_err_at(err, DLT_E_CONFIG, o->augment->at,
                          "data.augment: %s %d is too large for images of %" PRId64 "x%" PRId64,
                          a->pad >= side ? "pad_crop" : "cutout",
                          (int)(a->pad >= side ? a->pad : a->cutout), h, w);
    return DLT_OK;
}

DltStatus dlt_check_data(const DltSpec *spec, DltErr *err)
{
    DltStatus status = check_agreement(spec, DLT_VAL, err);
    status = dlt_first(status, check_agreement(spec, DLT_TEST, err));
    status = dlt_first(status, check_normalize(spec, err));
    status = dlt_first(status, dlt_check_mask(spec, err));
    return dlt_first(status, check_augment(spec, err));
}

/* a without b; both ascending. */
static DltSplit without(DltArena *arena, const DltSplit *a, const DltSplit *b)
{
    int64_t *id = DLT_NEW_ARRAY(arena, a->n + 1, int64_t);
    DltSplit r = {.ds = a->ds, .id = id};
    for (int64_t i = 0, j = 0; i < a->n; i++) {
        while (j < b->n && b->id[j] < a->id[i])
            j++;
        if (j == b->n || b->id[j] != a->id[i]) id[r.n++] = a->id[i];
    }
    return r;
}

static DltStatus check_share(const DltSpec *spec, int split, DltErr *err)
{
    const DltSource *s = &spec->data.source[split];
    if (s->split.n > 0) return DLT_OK;
    const DltYaml *at = spec->sections->source[split];
    return dlt_err_at(err, DLT_E_DATA, at->at, "data.%s: no sample of %" PRId64 " falls into it",
                      dlt_split_name[split], s->ds.n);
}

/* val and test as shares: test takes the lowest hashes, val the next ones, train the rest. */
static DltStatus cut_shares(DltSpec *spec, DltErr *err)
{
    DltSource *s = spec->data.source;
    double val = s[DLT_VAL].fraction, test = s[DLT_TEST].fraction;
    const DltDataset *ds = &s[DLT_TRAIN].ds;
    DltSplit train, both, rest;
    if (val + test == 0.0) return DLT_OK;
    DLT_TRY(dlt_split_fraction(spec->arena, ds, val + test, &train, &both, err));
    s[DLT_TRAIN].split = train;
    if (val > 0.0 && test > 0.0) {
        DLT_TRY(dlt_split_fraction(spec->arena, ds, test, &rest, &s[DLT_TEST].split, err));
        s[DLT_VAL].split = without(spec->arena, &both, &s[DLT_TEST].split);
    } else {
        s[val > 0.0 ? DLT_VAL : DLT_TEST].split = both;
    }
    for (int i = 0; i < DLT_N_SPLIT; i++)
        if (i == DLT_TRAIN || s[i].fraction > 0.0) DLT_TRY(check_share(spec, i, err));
    return DLT_OK;
}

static DltStatus measure(DltSpec *spec, DltErr *err)
{
    DltDataSpec *d = &spec->data;
    double *mean, *std;
    if (d->normalize != DLT_NORM_FROM_TRAIN) return DLT_OK;
    DLT_TRY(dlt_norm_measure(spec->arena, &d->source[DLT_TRAIN].split, &mean, &std, err));
    int n = (int)dlt_norm_count(&d->source[DLT_TRAIN].ds);
    d->mean = (DltFloats){n, mean};
    d->std = (DltFloats){n, std};
    return DLT_OK;
}

/* For metrics of a byte. */
static DltStatus measure_bytes(DltSpec *spec, unsigned splits, DltErr *err)
{
    bool wanted = false;
    for (int i = 0; i < spec->n_metric; i++)
        wanted = wanted || spec->metric[i]->per_byte;
    for (int i = 0; i < DLT_N_SPLIT && wanted; i++) {
        DltSource *s = &spec->data.source[i];
        if ((splits >> i & 1) && s->def && s->bytes_per_token == 0)
            DLT_TRY(dlt_split_bytes(&s->split, &s->bytes_per_token, err));
    }
    return DLT_OK;
}

/* What a held-out set shares with the training set makes its figures too good. Sets that are read from
 * disk again and again, and windows of texts, are not compared. */
static DltStatus tell_shared(const DltSpec *spec, int split, DltErr *err)
{
    const DltSource *s = spec->data.source, *held = &s[split];
    int64_t n = 0, first = -1;
    bool both = held->def && held->loaded && s[DLT_TRAIN].loaded && held->fraction == 0.0;
    if (!both || !spec->data.resident || held->ds.vocab > 0) return DLT_OK;
    DLT_TRY(dlt_samples_shared(&s[DLT_TRAIN].split, &held->split, &n, &first, err));
    if (n > 0)
        dlt_log("note: %lld of the %lld samples of data.%s stand in data.train too, the first is "
                "sample %lld",
                (long long)n, (long long)held->split.n, dlt_split_name[split], (long long)first);
    return DLT_OK;
}

/* The training split decides what samples of every split are completed with. */
static bool needs_train(const DltSpec *spec)
{
    const DltSource *s = spec->data.source;
    return s[DLT_TRAIN].def->fit && (s[DLT_VAL].fraction > 0.0 || s[DLT_TEST].fraction > 0.0);
}

/* The records that were found bad belong to no split, and are told. */
static void leave_out(DltSpec *spec, int split)
{
    DltSource *s = &spec->data.source[split];
    const DltBad *bad = s->ds.bad;
    if (bad == NULL || bad->n == 0) return;
    s->split = dlt_split_all(spec->arena, &s->ds);
    spec->sections->counted_early = spec->sections->counted_early || split == DLT_TRAIN;
    dlt_log("data.%s: %lld bad record%s left out, the first: %s: %s", dlt_split_name[split],
            (long long)bad->n, bad->n == 1 ? " is" : "s are", bad->list[0].file, bad->list[0].why);
}

DltStatus dlt_spec_load_data(DltSpec *spec, unsigned splits, DltErr *err)
{
    DltSource *s = spec->data.source;
    if (needs_train(spec)) splits |= 1u << DLT_TRAIN;
    for (int i = DLT_VAL; i < DLT_N_SPLIT; i++)
        if ((splits >> i & 1) && s[i].fraction > 0.0) splits |= 1u << DLT_TRAIN;
    for (int i = 0; i < DLT_N_SPLIT; i++) {
        if (!(splits >> i & 1) || !s[i].def || s[i].fraction > 0.0 || s[i].loaded) continue;
        if (s[i].def->load)
            DLT_TRY(with_way_out(spec, &s[i], s[i].def->load(spec->arena, &s[i].ds, err), err));
        s[i].loaded = true;
        leave_out(spec, i);
    }
    if (!(splits & 1u << DLT_TRAIN)) return measure_bytes(spec, splits, err);
    for (int i = DLT_VAL; i < DLT_N_SPLIT; i++) /* what loading found out about the shared set */
        if (s[i].fraction > 0.0) s[i].ds = s[DLT_TRAIN].ds;
    if (spec->sections->counted_early) {
        DLT_TRY(cut_shares(spec, err));
        spec->sections->counted_early = false;
        DLT_TRY(dlt_spec_count(spec, err));
    }
    if (s[DLT_TRAIN].def->fit)
        DLT_TRY(s[DLT_TRAIN].def->fit(&s[DLT_TRAIN].ds, &s[DLT_TRAIN].split, err));
    DLT_TRY(tell_shared(spec, DLT_VAL, err));
    DLT_TRY(tell_shared(spec, DLT_TEST, err));
    if (spec->data.mean.n == 0) DLT_TRY(measure(spec, err));
    return measure_bytes(spec, splits, err);
}
