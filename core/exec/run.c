/* The public doors: train, evaluate. Sets a trainer up in an order in which what fails often fails
 * early: folder, device, plans, free space, and only then data (beside these, where the device is slow to
 * open), memory and weights. */
#include "base/log.h"
#include "base/rng.h"
#include "base/sys.h"
#include "exec/capsule.h"
#include "exec/trainer.h"
#include <math.h>
#include <unistd.h>

static const char ema_prefix[] = "ema/";

static bool has_split(const DltSpec *spec, int split)
{
    return spec->data.source[split].def != NULL || spec->data.source[split].fraction > 0;
}

static const char *device_text(const DltSession *s)
{
    return dlt_arena_printf(s->arena, "%s: %s, %s", s->backend->name, s->info.name,
                            s->info.library);
}

/* ---- plans -------------------------------------------------------------------------------- */

static DltStatus plan_all(DltTrainer *t, DltErr *err)
{
    DltProgram *all[1 + DLT_N_SPLIT + DLT_GENERATOR_PROGRAMS];
    int n = 0;
    DltModelOptions o = {.training = true,
                         .split = DLT_TRAIN,
                         .batch = t->spec->train.micro,
                         .resident = t->spec->data.resident};
    DLT_TRY(dlt_program_plan(t->s, &o, &t->p, err));
    all[n++] = t->p;
    for (int split = DLT_VAL; split < DLT_N_SPLIT; split++) {
        if (!has_split(t->spec, split)) continue;
        DLT_TRY(dlt_evaluator_plan(t->s, split, &t->evaluator[split], err));
        all[n++] = t->evaluator[split]->p;
    }
    DLT_TRY(dlt_sampler_plan(t, err));
    n += dlt_sampler_programs(t->sampler, all + n);
    t->coef = dlt_graph_find(t->p->m->graph, "update.coef");
    DLT_BUG_ON(t->coef == NULL);
    t->scaler = t->p->m->build->scaler;
    return dlt_programs_fit(all, n, err);
}

/* ---- state -------------------------------------------------------------------------------- */

/* What names this run among all others. */
static uint64_t new_run_number(void)
{
    double now = dlt_sys_wall_s();
    int64_t facts[3] = {dlt_sys_now_ns(), (int64_t)getpid(), (int64_t)(now * 1e6)};
    return dlt_hash(facts, sizeof facts, 0);
}

/* What the file says of its past: the oldest lines go when there are very many. */
static const char *lineage(DltTrainer *t, const DltCheckpoint *c)
{
    enum { MOST = 32 << 10 };
    const char *old = c != NULL && c->meta.lineage != NULL ? c->meta.lineage : "";
    while (strlen(old) > MOST && strchr(old, '\n') != NULL)
        old = strchr(old, '\n') + 1;
    const char *program = t->o->program != NULL ? t->o->program : "dltrain";
    if (c != NULL)
        return dlt_arena_printf(t->arena, "%sstep %lld: resumed by %s on %s%s\n", old,
                                (long long)c->meta.step, program, device_text(t->s), t->changes);
    if (t->init == NULL) return NULL;
    return dlt_arena_printf(
        t->arena, "step 0: begun from the weights of %s (run %016llx, step %lld)\n", t->init->path,
        (unsigned long long)t->init->meta.run, (long long)t->init->meta.step);
}

static void first_state(DltTrainer *t, const DltCheckpoint *c)
{
    const DltSpec *spec = t->spec;
    if (c != NULL) t->at = c->meta;
    if (c == NULL) t->at = (DltCheckpointMeta){.run = new_run_number(), .loss_scale = 1};
    bool other_best =
        t->at.best_metric != NULL &&
        (spec->keep.best_metric == NULL || strcmp(t->at.best_metric, spec->keep.best_metric) != 0);
    if (other_best) t->at.best_metric = NULL;
    t->at.config_text = spec->text;
    t->at.config_path = spec->path;
    t->at.config_folder = dlt_path_absolute(t->arena, spec->folder != NULL ? spec->folder : ".");
    t->at.resolved = spec->resolved != NULL ? dlt_yaml_write(t->arena, spec->resolved) : "";
    t->at.n_override = spec->n_override;
    t->at.override = spec->override;
    t->at.program = t->o->program != NULL ? t->o->program : "";
    t->at.seed = spec->seed;
    t->at.plan_hash = t->p->plan->hash;
    t->at.device = device_text(t->s);
    t->at.choices =
        t->s->backend->choices != NULL ? t->s->backend->choices(t->s->dev, t->arena) : NULL;
    t->at.lineage = lineage(t, c);
    t->at.data = dlt_stored_write(t->arena, &spec->data.source[DLT_TRAIN].ds);
    const DltTokenizer *tokenizer = spec->data.tokenizer;
    t->at.tokenizer = tokenizer != NULL ? dlt_tokenizer_write(t->arena, tokenizer) : NULL;
    t->first_step = t->at.step;
    t->time_before_s = t->at.train_time_s;
    t->saved_step = c != NULL ? t->at.step : -1;
}

/* Facts that the contents of the data sets decide. */
static void state_of_data(DltTrainer *t)
{
    const DltDataset *train = &t->spec->data.source[DLT_TRAIN].ds;
    for (int i = 0; i < DLT_N_SPLIT; i++)
        t->at.data_fingerprint[i] =
            has_split(t->spec, i) ? t->spec->data.source[i].ds.fingerprint : 0;
    t->at.n_class = train->classes;
    t->at.class_name = train->class_name;
    t->at.skipped = dlt_skipped_text(t->arena, t->spec);
}

static double nominal_weight(const DltTrainer *t)
{
    const DltTensor *y = t->p->m->y;
    return (double)t->spec->train.batch *
           ((double)dlt_shape_count(&y->shape) / (double)t->p->options.batch);
}

/* ---- folder ------------------------------------------------------------------------------- */

static DltStatus open_folder(DltTrainer *t, const DltCheckpoint *c, DltErr *err)
{
    if (t->o->no_save) return DLT_OK;
    return dlt_run_folder_open(t->arena, t->spec, t->o->out, c != NULL, &t->folder, err);
}

/* The snapshot's size is known without its contents: space and limits are checked before they are. */
static DltStatus check_space(DltTrainer *t, DltErr *err)
{
    int64_t bytes = 0;
    t->snapshot = dlt_snapshot_new(t->p);
    DltCheckpoint all = {.meta = t->at, .n_tensor = t->snapshot->n, .tensor = t->snapshot->entry};
    if (t->folder == NULL) return DLT_OK;
    DLT_TRY(dlt_checkpoint_bytes(&all, &bytes, err));
    return dlt_run_folder_needs(t->folder, bytes, err);
}

/* What lies in the folder becomes this run's past; rows behind the checkpoint are cut off. */
static DltStatus take_up(DltTrainer *t, const DltCheckpoint *c, DltErr *err)
{
    if (t->folder == NULL || c == NULL) return DLT_OK;
    DLT_TRY(dlt_run_folder_adopt(t->folder, c, err));
    return dlt_run_folder_rewind(t->folder, t->at.reported, err);
}

/* ---- memory and weights ------------------------------------------------------------------- */

/* Once: what is loaded already stays. */
static DltStatus read_data(DltTrainer *t, DltErr *err)
{
    unsigned splits = 1u << DLT_TRAIN;
    for (int i = DLT_VAL; i < DLT_N_SPLIT; i++)
        if (has_split(t->spec, i)) splits |= 1u << i;
    return dlt_spec_load_data(t->spec, splits, err);
}

static DltStatus open_session(DltTrainer *t, const DltCheckpoint *c, DltErr *err)
{
    DLT_TRY(
        dlt_session_open(t->arena, t->spec, t->o, c != NULL ? c->meta.choices : NULL, &t->s, err));
    t->s->trains = true;
    return DLT_OK;
}

/* Data that is read beside the opening of the device and the making of plans. Both ask one arena; plans
 * look at what the headers told, which loading does not change. */
typedef struct DataThread {
    DltTrainer *t;
    DltErr err;
    DltStatus status;
} DataThread;

static void *read_beside(void *ctx)
{
    DataThread *d = ctx;
    d->status = read_data(d->t, &d->err);
    return NULL;
}

/* Device and plans; where the device takes long to open, the data is read meanwhile, else it comes
 * last. A failure here is told before one there. */
static DltStatus open_and_plan(DltTrainer *t, const DltCheckpoint *c, DltErr *err)
{
    DltWarm w;
    pthread_t thread;
    DataThread *d = DLT_NEW(t->arena, DataThread);
    d->t = t;
    dlt_err_init(&d->err);
    bool beside = dlt_warm_begin(&w, t->spec, t->o) && dlt_sys_thread(&thread, read_beside, d);
    DltStatus status = open_session(t, c, err);
    if (status == DLT_OK) status = plan_all(t, err);
    if (beside) pthread_join(thread, NULL);
    dlt_warm_end(&w);
    if (status != DLT_OK || !beside || d->status == DLT_OK) return status;
    *err = d->err;
    return d->status;
}

static DltStatus load_data(DltTrainer *t, const DltCheckpoint *c, DltErr *err)
{
    DLT_TRY(read_data(t, err));
    if (c != NULL) DLT_TRY(dlt_resume_check_data(t->spec, c, err));
    state_of_data(t);
    return t->folder != NULL ? dlt_run_folder_skipped(t->folder, t->spec, err) : DLT_OK;
}

static DltStatus load_weights(DltTrainer *t, const DltCheckpoint *c, DltErr *err)
{
    if (c != NULL) {
        DLT_TRY(dlt_snapshot_restore(t->snapshot, c, err));
    } else {
        if (t->init != NULL) DLT_TRY(dlt_weights_init(t->p, t->init, err));
        DLT_TRY(dlt_weights_start(t->p, err));
    }
    return dlt_weights_settle(t->p, err);
}

static DltStatus bind_all(DltTrainer *t, const DltCheckpoint *c, DltErr *err)
{
    DLT_TRY(dlt_program_bind(t->p, NULL, NULL, err));
    DLT_TRY(load_weights(t, c, err));
    DLT_TRY(dlt_saver_open(t, err));
    size_t bytes = dlt_exec_bytes(t->p->exec);
    for (int i = DLT_VAL; i < DLT_N_SPLIT; i++) {
        DltEvaluator *e = t->evaluator[i];
        if (e == NULL) continue;
        DLT_TRY(dlt_program_bind(e->p, t->p, t->spec->eval_ema ? ema_prefix : NULL, err));
        DLT_TRY(dlt_evaluator_open(e, err));
        bytes += dlt_exec_bytes(e->p->exec);
    }
    DLT_TRY(dlt_sampler_bind(t->sampler, t->spec->eval_ema ? ema_prefix : NULL, err));
    DLT_TRY(dlt_feed_open(t->p, true, t->at.position, &t->feed, err));
    DLT_TRY(dlt_flags_open(t, err));
    DLT_TRY(dlt_report_open(t, err));
    DltPlace place = {t->at.step, t->at.position, 0};
    dlt_progress_start(&t->progress, t->spec, bytes, place);
    t->sample_weight = nominal_weight(t);
    t->freezes = t->spec->data.resident;
    t->start_ns = t->saved_ns = dlt_sys_now_ns();
    return DLT_OK;
}

static void announce(const DltTrainer *t)
{
    const DltSpec *spec = t->spec;
    dlt_log("%s: %lld parameters, %lld samples, %lld updates of %lld (micro batch %lld), on %s",
            spec->name, (long long)t->p->m->n_param,
            (long long)spec->data.source[DLT_TRAIN].split.n, (long long)spec->updates,
            (long long)spec->train.batch, (long long)spec->train.micro, t->at.device);
    if (t->folder != NULL) dlt_log("run folder %s", dlt_run_folder_path(t->folder));
    if (t->at.step > 0) dlt_log("resuming at step %lld", (long long)t->at.step);
}

/* The variables that change what programs like this one do. */
static const char *environment(DltArena *arena)
{
    static const char *const shown[] = {"DLT_",  "CUDA_",  "NVIDIA_", "NCCL_",          "OMP_",
                                        "DNNL_", "SLURM_", "MALLOC_", "LD_LIBRARY_PATH"};
    const char *text = "";
    for (char **v = environ; *v != NULL; v++)
        for (size_t i = 0; i < sizeof shown / sizeof shown[0]; i++)
            if (strncmp(*v, shown[i], strlen(shown[i])) == 0)
                text = dlt_arena_printf(arena, "%s  %.300s\n", text, *v);
    return text;
}

static void arm_capsule(DltTrainer *t)
{
    char cwd[1024] = "?", host[128] = "?";
    if (t->folder == NULL) return;
    if (!dlt_sys_cwd(cwd, sizeof cwd)) cwd[0] = '?';
    if (gethostname(host, sizeof host - 1) != 0) host[0] = '?';
    const char *overrides = "";
    for (int i = 0; i < t->spec->n_override; i++)
        overrides = dlt_arena_printf(t->arena, "%s %s", overrides, t->spec->override[i]);
    dlt_capsule_step(t->at.step);
    dlt_capsule_arm(dlt_run_folder_path(t->folder),
                    dlt_arena_printf(
                        t->arena,
                        "program: %s\nconfig: %s%s\ndevice: %s\nplan: hash %016llx, %d nodes, %lld "
                        "parameters, %zu bytes at most\nprocess: %ld on %s in %s\nenvironment:\n%s",
                        t->at.program, t->at.config_path != NULL ? t->at.config_path : "-",
                        overrides, t->at.device, (unsigned long long)t->p->plan->hash,
                        t->p->plan->n_step, (long long)t->p->m->n_param, t->p->plan->peak_bytes,
                        (long)getpid(), host, cwd, environment(t->arena)));
}

static DltStatus set_up(DltTrainer *t, const DltCheckpoint *c, DltErr *err)
{
    dlt_sys_signals_install();
    t->begin_ns = dlt_sys_now_ns();
    t->changes = "";
    if (c != NULL) DLT_TRY(dlt_resume_check(t->arena, t->spec, c, &t->changes, err));
    if (c == NULL && t->o->init != NULL)
        DLT_TRY(dlt_checkpoint_read(t->arena, t->o->init, &t->init, err));
    DLT_TRY(open_folder(t, c, err));
    dlt_capsule_step(c != NULL ? c->meta.step : 0);
    if (t->folder != NULL)
        dlt_capsule_arm(dlt_run_folder_path(t->folder), "the device was being opened\n");
    DLT_TRY(open_and_plan(t, c, err));
    DLT_TRY(dlt_sys_asked_to_stop());
    first_state(t, c);
    arm_capsule(t);
    DLT_TRY(check_space(t, err));
    DLT_TRY(load_data(t, c, err));
    DLT_TRY(dlt_sys_asked_to_stop());
    DLT_TRY(bind_all(t, c, err));
    DLT_TRY(take_up(t, c, err));
    DLT_TRY(dlt_sys_asked_to_stop());
    announce(t);
    return DLT_OK;
}

/* ---- the end ------------------------------------------------------------------------------ */

static void fill_result(DltTrainer *t, DltRunResult *r)
{
    r->name = DLT_NEW_ARRAY(t->arena, t->n_column, const char *);
    r->value = DLT_NEW_ARRAY(t->arena, t->n_column, double);
    r->n = 0;
    for (int i = 0; i < t->n_column; i++) {
        if (strchr(t->column[i], '.') == NULL || !isfinite(t->cell[i])) continue;
        r->name[r->n] = t->column[i];
        r->value[r->n++] = t->cell[i];
    }
    r->step = t->at.step;
    if (t->folder == NULL) return;
    r->folder = dlt_run_folder_path(t->folder);
    r->checkpoint = dlt_run_folder_newest(t->folder);
}

static const char *reason_of(DltStatus status, const DltErr *err)
{
    if (status == DLT_OK) return "done";
    if (status == DLT_STOPPED || status == DLT_SIGINT || status == DLT_SIGTERM)
        return "stopped as asked";
    return err->n > 0 ? err->report[0].text : "failed";
}

/* Every report and note, one a line. */
static const char *reports(DltArena *arena, const DltErr *err)
{
    const char *text = err->n > 0 ? err->report[0].text : "failed";
    for (int i = 1; i < err->n; i++)
        text = dlt_arena_printf(arena, "%s\n  %s", text, err->report[i].text);
    return text;
}

/* The status record is written last and never hides why the run ended. */
static DltStatus finish(DltTrainer *t, DltStatus status, DltRunResult *result, DltErr *err)
{
    fill_result(t, result);
    bool failed = status >= DLT_E_BUG && status <= DLT_E_NUMERIC;
    if (failed && t->folder != NULL) dlt_capsule_write(reports(t->arena, err));
    dlt_capsule_disarm();
    if (status == DLT_OK && t->evaluator[DLT_TEST] != NULL)
        dlt_evaluator_tables(t->evaluator[DLT_TEST]);
    if (t->folder == NULL) return status;
    DltErr lost;
    dlt_err_init(&lost);
    DltStatus ended = dlt_run_folder_end(t->folder, status, reason_of(status, err),
                                         status == DLT_OK ? err : &lost);
    dlt_run_folder_close(t->folder);
    return status != DLT_OK ? status : ended;
}

static void free_rows(void *ctx)
{
    DltTrainer *t = ctx;
    dlt_arena_free(t->row_arena);
    t->row_arena = NULL;
}

DltStatus dlt_train(DltArena *arena, DltSpec *spec, const DltCheckpoint *ckpt,
                    const DltRunOptions *o, DltRunResult *result, DltErr *err)
{
    DltTrainer *t = DLT_NEW(arena, DltTrainer);
    *t = (DltTrainer){.arena = arena, .spec = spec, .o = o};
    dlt_arena_on_free(arena, free_rows, t);
    *result = (DltRunResult){0};
    DltStatus status = set_up(t, ckpt, err);
    if (status != DLT_OK) {
        if (status == dlt_sys_asked_to_stop())
            dlt_log("interrupted before the first update; nothing was to be saved");
        dlt_capsule_disarm();
        dlt_run_folder_discard(t->folder);
        return status;
    }
    return finish(t, dlt_trainer_run(t, err), result, err);
}

/* ---- evaluation of a checkpoint ----------------------------------------------------------- */

DltStatus dlt_evaluate(DltArena *arena, DltSpec *spec, const DltCheckpoint *ckpt, int split,
                       const DltRunOptions *o, DltRunResult *result, DltErr *err)
{
    DltSession *s = NULL;
    DltEvaluator *e = NULL;
    bool interrupted = false;
    *result = (DltRunResult){.step = ckpt->meta.step, .checkpoint = ckpt->path};
    DLT_TRY(dlt_session_open(arena, spec, o, ckpt->meta.choices, &s, err));
    DLT_TRY(dlt_evaluator_plan(s, split, &e, err));
    DLT_TRY(dlt_programs_fit(&e->p, 1, err));
    DLT_TRY(dlt_spec_load_data(spec, 1u << split, err));
    DLT_TRY(dlt_program_bind(e->p, NULL, NULL, err));
    DLT_TRY(dlt_weights_load(e->p, ckpt, spec->eval_ema ? ema_prefix : NULL, err));
    DLT_TRY(dlt_evaluator_open(e, err));
    DLT_TRY(dlt_evaluator_run(e, &interrupted, err));
    result->n = spec->n_metric + 1;
    result->name = DLT_NEW_ARRAY(arena, result->n, const char *);
    result->value = DLT_NEW_ARRAY(arena, result->n, double);
    result->name[0] = "samples";
    result->value[0] = (double)e->n_sample;
    for (int i = 0; i < spec->n_metric; i++) {
        result->name[i + 1] =
            dlt_arena_printf(arena, "%s.%s", dlt_split_name[split], spec->metric[i]->name);
        result->value[i + 1] = e->value[i];
    }
    dlt_evaluator_tables(e);
    return DLT_OK;
}
