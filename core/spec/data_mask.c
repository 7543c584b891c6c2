/* `data.mask`: masked language models (Devlin et al. 2019, section 3.1). A share of the tokens is hidden from the
 * model, and the loss counts those alone. Of them 80% show the mask's id, 10% a random one, 10% themselves.
 * The mask's id is a new one behind the vocabulary of the data, unless the config names one of it. */
#include "spec/read.h"

#include <inttypes.h>

const DltField dlt_mask_fields[] = {
    DLT_FLOAT(DltMaskOpts, share, .required = true, .main = true, .lo = 0, .hi = 1, .open_lo = true,
              .help = "part of the tokens that are hidden", .example = "share: 0.15"),
    DLT_FLOAT(DltMaskOpts, token, .def = "0.8", .lo = 0, .hi = 1,
              .help = "part of the hidden tokens that show the mask's id", .example = "token: 0.8"),
    DLT_FLOAT(DltMaskOpts, random, .def = "0.1", .lo = 0, .hi = 1,
              .help = "part of the hidden tokens that show a random id; the rest shows its own",
              .example = "random: 0.1"),
    DLT_INT(DltMaskOpts, id, .lo = 0, .hi = 1 << 30,
            .help = "the mask's id, where the vocabulary has one; default: a new one behind the "
                    "vocabulary, which ${data.vocab} then counts",
            .example = "id: 103"),
    DLT_FIELDS_END,
};

DltStatus dlt_mask_check(const DltOpts *o, DltErr *err)
{
    const DltMaskOpts *c = o->v;
    if (c->token + c->random <= 1) return DLT_OK;
    return dlt_err_at(err, DLT_E_CONFIG, dlt_opts_mark(o, offsetof(DltMaskOpts, random)),
                      "data.mask: token %g and random %g are parts of the hidden tokens; together "
                      "they must be at most 1",
                      c->token, c->random);
}

static DltStatus check_use(const DltReader *r, DltMark at)
{
    if (dlt_data_window(r->spec) > 0) return DLT_OK;
    return dlt_err_at(r->err, DLT_E_CONFIG, at,
                      "data.mask: has no effect, for data.train is no text: or tokens:");
}

DltStatus dlt_read_mask(DltReader *r, const DltYaml *tree)
{
    DltOpts *o = &r->spec->sections->mask;
    DltMask *m = &r->spec->data.mask;
    if (!tree) return DLT_OK;
    DLT_TRY(
        dlt_read_fields(r, dlt_mask_fields, sizeof(DltMaskOpts), tree, "data.mask", tree->at, o));
    DLT_TRY(dlt_mask_check(o, r->err));
    const DltMaskOpts *c = o->v;
    *m = (DltMask){.share = (float)c->share,
                   .token = (float)c->token,
                   .changed = (float)(c->token + c->random),
                   .ignored = DLT_IGNORED};
    return r->spec->data.source[DLT_TRAIN].def ? check_use(r, tree->at) : DLT_OK;
}

/* Every set has the vocabulary of data.train. In a description that a checkpoint keeps, a new id is counted
 * already. */
DltStatus dlt_open_mask(DltReader *r)
{
    enum { MOST_IDS = 1 << 30 };
    DltDataSpec *d = &r->spec->data;
    const DltOpts *o = &r->spec->sections->mask;
    int64_t vocab = d->source[DLT_TRAIN].ds.vocab;
    bool named = o->v && dlt_opts_given(o, offsetof(DltMaskOpts, id));
    bool counted = !named && r->spec->stored && r->spec->stored->train;
    if (d->mask.share == 0) return DLT_OK;
    int64_t id = named ? ((const DltMaskOpts *)o->v)->id : counted ? vocab - 1 : vocab;
    if (named && id >= vocab)
        return dlt_err_at(r->err, DLT_E_CONFIG, dlt_opts_mark(o, offsetof(DltMaskOpts, id)),
                          "data.mask.id: %" PRId64 " is no id of a vocabulary of %" PRId64
                          "; leave it out to get a new one",
                          id, vocab);
    if (id >= MOST_IDS)
        return dlt_err_at(r->err, DLT_E_CONFIG, o->at,
                          "data.mask: a vocabulary of %" PRId64
                          " has no room for the mask's id; name one of its own as data.mask.id",
                          vocab);
    d->mask.id = (int32_t)id;
    d->mask.n_random = (int32_t)(counted ? vocab - 1 : vocab);
    for (int i = 0; i < DLT_N_SPLIT && !named && !counted; i++)
        if (d->source[i].def) d->source[i].ds.vocab = d->source[i].ds.classes = vocab + 1;
    return DLT_OK;
}

/* The loss's `ignore` as a field, NULL: it has none. */
static const DltField *ignore_of(const DltSpec *spec)
{
    const DltField *f = spec->loss ? spec->loss_opts.fields : NULL;
    while (f && f->key && strcmp(f->key, "ignore") != 0)
        f++;
    return f && f->key ? f : NULL;
}

/* Targets to skip, behind the end of a text and where nothing is hidden, are DLT_IGNORED. */
static DltStatus check_ignore(const DltSpec *spec, DltErr *err)
{
    const DltField *f = ignore_of(spec);
    int64_t ignored = DLT_IGNORED;
    if (f && spec->loss_opts.v)
        memcpy(&ignored, (const char *)spec->loss_opts.v + f->offset, sizeof ignored);
    if (ignored == DLT_IGNORED) return DLT_OK;
    return dlt_err_at(err, DLT_E_CONFIG, dlt_opts_mark(&spec->loss_opts, f->offset),
                      "loss.%s.ignore: %" PRId64 ", but %s have the target %d; leave ignore out",
                      spec->loss->name, ignored,
                      spec->data.mask.share > 0 ? "with data.mask the places that are not hidden"
                                                : "the places behind the end of a text",
                      DLT_IGNORED);
}

DltStatus dlt_check_mask(const DltSpec *spec, DltErr *err)
{
    const DltOpts *o = &spec->sections->mask;
    if (dlt_data_window(spec) > 0) DLT_TRY(check_ignore(spec, err));
    if (spec->data.mask.share == 0) return DLT_OK;
    for (int i = 0; i < spec->n_metric; i++)
        if (spec->metric[i]->per_byte)
            return dlt_err_at(err, DLT_E_CONFIG,
                              dlt_opts_mark(&spec->sections->eval, offsetof(DltEvalOpts, metrics)),
                              "eval.metrics: %s needs every token as a target, and data.mask "
                              "leaves a share of them; perplexity fits",
                              spec->metric[i]->name);
    if (ignore_of(spec)) return DLT_OK;
    return dlt_err_at(err, DLT_E_CONFIG, o->at,
                      "data.mask: loss %s cannot leave places out; cross_entropy can",
                      spec->loss ? spec->loss->name : "");
}
