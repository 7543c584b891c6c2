/* Batches on their way to the device. Where work ends when it is enqueued (the CPU) nothing has to
 * wait. Elsewhere host memory must stay until its run is over and the host must not run away: each
 * run is followed by a download of its own step state, whose arrival says that the run is done. */
#include "base/log.h"
#include "base/sys.h"
#include "base/watch.h"
#include "exec/session.h"
#include <sched.h>

typedef struct HostMemory {
    DltSession *s;
    void *ptr;
} HostMemory;

static void release_host(void *ctx)
{
    HostMemory *h = ctx;
    h->s->backend->host_release(h->s->dev, h->ptr);
}

void *dlt_host_memory(DltSession *s, size_t bytes)
{
    HostMemory *h = DLT_NEW(s->arena, HostMemory);
    *h = (HostMemory){s, s->backend->host_alloc(s->dev, bytes)};
    if (h->ptr == NULL) return NULL;
    dlt_arena_on_free(s->arena, release_host, h);
    return memset(h->ptr, 0, bytes);
}

static void *loader_alloc(void *ctx, size_t bytes)
{
    const DltSession *s = ctx;
    return s->backend->host_alloc(s->dev, bytes);
}

static void loader_release(void *ctx, void *ptr)
{
    const DltSession *s = ctx;
    s->backend->host_release(s->dev, ptr);
}

DltStatus dlt_feed_open(DltProgram *p, bool shuffle, int64_t position, DltFeed *f, DltErr *err)
{
    DltSession *s = p->s;
    *f = (DltFeed){.p = p,
                   .asynchronous = s->backend->record_begin != NULL,
                   .sent = dlt_host_memory(s, DLT_RING * sizeof(DltStepState)),
                   .done = dlt_host_memory(s, DLT_RING * sizeof(DltStepState))};
    if (f->sent == NULL || f->done == NULL)
        return dlt_err(err, DLT_E_RESOURCE, "out of host memory for batches in flight");
    DltLoaderConfig c = {.split = dlt_program_source(p)->split,
                         .seed = s->spec->seed,
                         .batch = p->options.batch,
                         .resident = p->options.resident,
                         .shuffle = shuffle,
                         .drop_last = shuffle && s->spec->data.drop_last,
                         .n_thread = (int)s->spec->data.n_thread,
                         .depth = DLT_RING,
                         .alloc = loader_alloc,
                         .release = loader_release,
                         .ctx = s};
    return dlt_loader_new(s->arena, &c, position, &f->loader, err);
}

DltStatus dlt_wait_for(DltExec *e, const volatile uint32_t *word, uint32_t pending, DltErr *err)
{
    static const int64_t patience_ns = (int64_t)20 * 1000000000;
    int64_t start = dlt_sys_now_ns();
    dlt_watch_enter("a training step");
    while (*word == pending && dlt_sys_now_ns() - start < patience_ns)
        sched_yield();
    dlt_watch_leave();
    if (*word != pending) return DLT_OK;
    dlt_log("the device has not answered for 20 s; waiting for it");
    return dlt_exec_sync(e, err); /* a lost device answers with its error here */
}

/* Until run number `run` is over. */
static DltStatus wait_for_run(DltFeed *f, int64_t run, DltErr *err)
{
    if (!f->asynchronous || run < 0) return DLT_OK;
    const int32_t *n_micro = &f->done[run % DLT_RING].n_micro;
    return dlt_wait_for(f->p->exec, (const volatile uint32_t *)n_micro, 0, err);
}

DltStatus dlt_feed_batch(DltFeed *f, const DltStepState *state, int64_t *n_valid, DltErr *err)
{
    DltProgram *p = f->p;
    DltBatch batch = {0};
    DLT_TRY(wait_for_run(f, f->n_run - DLT_AHEAD, err));
    int64_t start = dlt_sys_now_ns();
    DLT_TRY(dlt_loader_next(f->loader, &batch, err));
    f->wait_ns += dlt_sys_now_ns() - start;
    *n_valid = batch.n_valid;
    if (batch.n_valid == 0) return DLT_OK;
    DltStepState *sent = &f->sent[f->n_run % DLT_RING];
    *sent = *state;
    DLT_TRY(dlt_exec_feed(p->exec, p->m->step, sent, err));
    DLT_TRY(dlt_exec_feed(p->exec, p->m->ticket, batch.ticket, err));
    if (p->options.resident) return DLT_OK;
    DLT_TRY(dlt_exec_feed(p->exec, p->m->data_x, batch.x, err));
    return dlt_exec_feed(p->exec, p->m->data_y, batch.y, err);
}

DltStatus dlt_feed_run(DltFeed *f, DltErr *err)
{
    DltProgram *p = f->p;
    DLT_TRY(dlt_exec_run(p->exec, DLT_PHASE_BATCH, err));
    int64_t run = f->n_run++;
    if (!f->asynchronous) return DLT_OK;
    f->done[run % DLT_RING].n_micro = 0; /* in the state that comes back it is at least 1 */
    if (dlt_exec_pointer(p->exec, p->m->step) != NULL)
        return dlt_exec_fetch(p->exec, p->m->step, &f->done[run % DLT_RING], err);
    f->done[run % DLT_RING].n_micro = 1; /* no node reads the state: end the run here */
    return dlt_exec_sync(p->exec, err);
}

DltStatus dlt_feed_tickets(DltFeed *f, int32_t *ticket, DltErr *err)
{
    DltBatch batch = {0};
    int64_t start = dlt_sys_now_ns();
    DLT_TRY(dlt_loader_next(f->loader, &batch, err));
    memcpy(ticket, batch.ticket, (size_t)dlt_tensor_bytes(f->p->m->ticket));
    f->wait_ns += dlt_sys_now_ns() - start;
    return DLT_OK;
}
