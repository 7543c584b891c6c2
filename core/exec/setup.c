/* From a spec to graphs that are ready to run: device, passes, plan, memory, resident data. */
#include "base/log.h"
#include "base/sys.h"
#include "base/watch.h"
#include "exec/session.h"

/* ---- device ------------------------------------------------------------------------------- */

typedef struct OpenDevice {
    const DltBackend *backend;
    DltDevice *dev;
} OpenDevice;

static void close_device(void *ctx)
{
    OpenDevice *d = ctx;
    d->backend->close(d->dev);
}

/* The N of "cuda:N", 0 without one; -1 when it is no number. */
static int device_index(const char *name)
{
    int64_t n = 0;
    const char *colon = strchr(name, ':');
    if (colon == NULL) return 0;
    return dlt_parse_int(colon + 1, &n) && n >= 0 && n < 1024 ? (int)n : -1;
}

DltStatus dlt_session_open(DltArena *arena, DltSpec *spec, const DltRunOptions *o,
                           const char *choices, DltSession **session, DltErr *err)
{
    DltSession *s = DLT_NEW(arena, DltSession);
    *s = (DltSession){.arena = arena, .spec = spec, .o = o};
    *session = s;
    const char *name = o->device != NULL ? o->device : spec->device;
    DltMark at = spec->device_at;
    if (o->device != NULL) at = (DltMark){.file = "<command line>"};
    DLT_TRY(dlt_backend_find(name, at, &s->backend, err));
    DLT_TRY(dlt_watched_backend(arena, spec->train.hang_s, &s->backend, err));
    DltDeviceOptions options = {.index = device_index(name),
                                .n_thread = o->n_thread,
                                .deterministic = spec->train.deterministic,
                                .eager = o->eager,
                                .tf32 = spec->train.precision != DLT_PRECISION_F32,
                                .cache_folder = dlt_path_cache(arena),
                                .choices = choices,
                                .plugin_folder = o->plugin_folder};
    if (options.index < 0)
        return dlt_err_at(err, DLT_E_CONFIG, at, "device '%s': no number behind the colon", name);
    DltStatus status = s->backend->open(arena, &options, &s->dev, err);
    if (s->dev != NULL) {
        OpenDevice *d = DLT_NEW(arena, OpenDevice);
        *d = (OpenDevice){s->backend, s->dev};
        dlt_arena_on_free(arena, close_device, d);
    }
    DLT_TRY(status);
    s->backend->info(s->dev, &s->info);
    return dlt_session_choose(s, err);
}

static void *warm(void *ctx)
{
    const DltWarm *w = ctx;
    w->backend->warm(w->index);
    return NULL;
}

bool dlt_warm_begin(DltWarm *w, const DltSpec *spec, const DltRunOptions *o)
{
    const char *name = o->device != NULL ? o->device : spec->device;
    DltErr unused; /* opening the device reports it */
    dlt_err_init(&unused);
    *w = (DltWarm){.index = device_index(name)};
    if (dlt_backend_find(name, DLT_NO_MARK, &w->backend, &unused) != DLT_OK) return false;
    if (w->backend->warm == NULL || w->index < 0) return false;
    return w->started = dlt_sys_thread(&w->thread, warm, w);
}

void dlt_warm_end(DltWarm *w)
{
    if (!w->started) return;
    dlt_watch_enter("opening it");
    pthread_join(w->thread, NULL);
    dlt_watch_leave();
    w->started = false;
}

/* ---- plans -------------------------------------------------------------------------------- */

/* A tensor that the host reads after a run must outlive it: it lies among the states. */
static void keep_result(DltGraph *g, DltTensor *t)
{
    if (t == NULL) return;
    DltTensor *base = dlt_tensor_base(t);
    if (base->role != DLT_TEMP) return;
    for (int i = 0; i < g->n_tensor; i++)
        if (dlt_tensor_base(g->tensor[i]) == base) g->tensor[i]->role = DLT_STATE;
}

DltStatus dlt_program_plan(DltSession *s, const DltModelOptions *o, DltProgram **out, DltErr *err)
{
    DltProgram *p = DLT_NEW(s->arena, DltProgram);
    *p = (DltProgram){.s = s, .options = *o};
    DLT_TRY(dlt_spec_build(s->spec, o, &p->m, err));
    DLT_TRY(dlt_spec_passes(s->spec, p->m, o, &s->info, err));
    keep_result(p->m->graph, p->m->graph->output);
    keep_result(p->m->graph, dlt_graph_find(p->m->graph, "update.coef"));
    if (s->trains) DLT_TRY(dlt_states_fit(s, p->m->graph, err));
    DltPlanOptions options = {.mean = s->o->poison};
    DLT_TRY(dlt_plan_make(s->arena, p->m->graph, s->backend, s->dev, &options, &p->plan, err));
    *out = p;
    return DLT_OK;
}

/* ---- memory and data ---------------------------------------------------------------------- */

const DltSource *dlt_program_source(const DltProgram *p)
{
    return &p->s->spec->data.source[p->options.split < 0 ? DLT_TRAIN : p->options.split];
}

DltStatus dlt_program_bind(DltProgram *p, const DltProgram *share, const char *prefix, DltErr *err)
{
    const DltRunOptions *o = p->s->o;
    bool same_set =
        share != NULL && p->options.resident && share->options.resident &&
        (dlt_program_source(p)->fraction > 0 || p->options.split == share->options.split);
    DltExecOptions options = {.share = share != NULL ? share->exec : NULL,
                              .prefix = prefix,
                              .share_inputs = same_set,
                              .seed = p->s->spec->seed,
                              .eager = o->eager,
                              .poison = o->poison};
    DLT_TRY(dlt_exec_new(p->s->arena, p->plan, &options, &p->exec, err));
    if (!same_set) return dlt_program_upload(p, err);
    return DLT_OK;
}

typedef struct Upload {
    DltProgram *p;
    char *x, *y; /* host memory for one chunk */
    int64_t *id;
    int64_t x_bytes, y_bytes, chunk;
} Upload;

static DltStatus upload_chunk(const Upload *u, int64_t first, int64_t n, DltErr *err)
{
    const DltProgram *p = u->p;
    const DltDataset *ds = &dlt_program_source(p)->ds;
    DltStream *stream = p->s->backend->stream(p->s->dev, 0);
    for (int64_t i = 0; i < n; i++)
        u->id[i] = dlt_sound_sample(ds, first + i);
    DLT_TRY(ds->def->read(ds, u->id, n, u->x, u->y, err));
    char *x = dlt_exec_pointer(p->exec, p->m->data_x), *y = dlt_exec_pointer(p->exec, p->m->data_y);
    DLT_TRY(
        p->s->backend->upload(stream, x + first * u->x_bytes, u->x, (size_t)(n * u->x_bytes), err));
    if (y != NULL)
        DLT_TRY(p->s->backend->upload(stream, y + first * u->y_bytes, u->y,
                                      (size_t)(n * u->y_bytes), err));
    return p->s->backend->sync(p->s->dev, err);
}

static DltStatus upload_all(const Upload *u, DltErr *err)
{
    int64_t n = dlt_program_source(u->p)->ds.n;
    for (int64_t first = 0; first < n; first += u->chunk) {
        DLT_TRY(dlt_sys_asked_to_stop());
        DLT_TRY(upload_chunk(u, first, n - first < u->chunk ? n - first : u->chunk, err));
    }
    return DLT_OK;
}

DltStatus dlt_program_upload(DltProgram *p, DltErr *err)
{
    static const int64_t chunk_bytes = 16 << 20;
    if (!p->options.resident || p->options.split < 0) return DLT_OK;
    const DltDataset *ds = &dlt_program_source(p)->ds;
    Upload u = {.p = p, .x_bytes = dlt_dataset_x_bytes(ds), .y_bytes = dlt_dataset_y_bytes(ds)};
    u.chunk = chunk_bytes / (u.x_bytes + u.y_bytes + 1) + 1;
    if (u.chunk > ds->n) u.chunk = ds->n;
    u.x = dlt_sys_alloc((size_t)(u.chunk * u.x_bytes));
    u.y = dlt_sys_alloc((size_t)(u.chunk * u.y_bytes));
    u.id = dlt_sys_alloc((size_t)u.chunk * sizeof *u.id);
    DltStatus status = u.x != NULL && u.y != NULL && u.id != NULL
                           ? upload_all(&u, err)
                           : dlt_err(err, DLT_E_RESOURCE, "out of memory for the data set");
    dlt_sys_free(u.x);
    dlt_sys_free(u.y);
    dlt_sys_free(u.id);
    return status;
}

DltStatus dlt_run_plan(DltArena *arena, DltSpec *spec, const DltRunOptions *o,
                       DltModelGraph **model, DltPlan **plan, DltErr *err)
{
    DltSession *s = NULL;
    DltProgram *p = NULL;
    DLT_TRY(dlt_session_open(arena, spec, o, NULL, &s, err)); /* settles micro: auto */
    DltModelOptions options = {.training = true,
                               .split = DLT_TRAIN,
                               .batch = spec->train.micro,
                               .resident = spec->data.resident};
    DLT_TRY(dlt_program_plan(s, &options, &p, err));
    *model = p->m;
    *plan = p->plan;
    return DLT_OK;
}
