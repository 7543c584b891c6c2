/* Batches in stream order. A resident set needs tickets only, made on the spot. Streamed sets are read by
 * threads into a ring of slots: slot k of the ring belongs to batch k, k + depth, ...; a thread takes the
 * next batch number, waits until its slot is free, fills it; the consumer takes batches by number. So the
 * stream is the same for any number of threads. */
#include "api/dataset.h"

#include "base/sys.h"
#include "ops/data_ops.h"

enum { MAX_THREADS = 64, MIN_DEPTH = 3 }; /* a batch stays valid until the call after next */

typedef enum SlotState { SLOT_FREE, SLOT_FILLING, SLOT_READY } SlotState;

typedef struct Slot {
    DltBatch batch;
    int64_t number; /* of the batch it holds or will hold */
    SlotState state;
} Slot;

struct DltLoader {
    DltLoaderConfig c;
    int64_t start;   /* stream position of batch 0 */
    int64_t next;    /* batch the consumer takes next */
    int64_t claimed; /* batch a thread takes next */
    int depth, n_thread;
    Slot *slot;
    int64_t wait_ns;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread[MAX_THREADS];
    int generation; /* raised by seek: fills of an older one are thrown away */
    bool stop, joined;
    DltErr err; /* of the first failed read */
    DltStatus status;
};

/* Samples of the stream that epoch boundaries leave usable: with drop_last an epoch is cut to whole batches. */
static int64_t epoch_size(const DltLoaderConfig *c)
{
    return c->drop_last ? c->split.n / c->batch * c->batch : c->split.n;
}

/* Sample and epoch at a stream position; training streams are permuted, passes run in order. */
static void at(const DltLoaderConfig *c, int64_t position, int64_t *sample, int64_t *epoch)
{
    if (!c->shuffle) {
        *sample = c->split.id ? c->split.id[position] : position;
        *epoch = 0;
        return;
    }
    int64_t size = epoch_size(c);
    dlt_order_at(&c->split, c->seed, position / size * c->split.n + position % size, sample, epoch);
}

/* Fills the tickets of one batch; returns the number of real samples. */
static int64_t fill_tickets(const DltLoader *l, int64_t number, int32_t *ticket)
{
    const DltLoaderConfig *c = &l->c;
    int64_t first = l->start + number * c->batch, valid = c->batch;
    if (!c->shuffle && first + valid > c->split.n)
        valid = first < c->split.n ? c->split.n - first : 0;
    for (int64_t i = 0; i < c->batch; i++) {
        int32_t *t = ticket + i * DLT_TICKET_INTS;
        int64_t sample = 0, epoch = 0;
        if (valid > 0) at(c, i < valid ? first + i : first, &sample, &epoch);
        t[DLT_TICKET_ROW] = (int32_t)(c->resident ? sample : i < valid ? i : 0);
        t[DLT_TICKET_SAMPLE] = (int32_t)sample;
        t[DLT_TICKET_EPOCH] = (int32_t)epoch;
        t[DLT_TICKET_VALID] = i < valid;
    }
    return valid;
}

static DltStatus fill(DltLoader *l, Slot *s, int64_t number, DltErr *err)
{
    const DltDataset *ds = l->c.split.ds;
    size_t x = (size_t)dlt_dataset_x_bytes(ds), y = (size_t)dlt_dataset_y_bytes(ds);
    s->batch.n_valid = fill_tickets(l, number, s->batch.ticket);
    if (l->c.resident) return DLT_OK;
    for (int64_t i = 0; i < s->batch.n_valid; i++) {
        int64_t id = s->batch.ticket[i * DLT_TICKET_INTS + DLT_TICKET_SAMPLE];
        DLT_TRY(ds->def->read(ds, &id, 1, (char *)s->batch.x + (size_t)i * x,
                              (char *)s->batch.y + (size_t)i * y, err));
    }
    return DLT_OK;
}

/* Takes the next batch number whose slot is free; false when the loader stops. Holds the lock. */
static bool claim(DltLoader *l, int64_t *number, int *generation)
{
    for (;;) {
        Slot *s = &l->slot[l->claimed % l->depth];
        if (l->stop) return false;
        if (s->state == SLOT_FREE && l->claimed < l->next + l->depth - 1 && l->status == DLT_OK) {
            *number = s->number = l->claimed++;
            *generation = l->generation;
            s->state = SLOT_FILLING;
            return true;
        }
        pthread_cond_wait(&l->changed, &l->lock);
    }
}

static void *work(void *ctx)
{
    DltLoader *l = ctx;
    DltErr err;
    int64_t number = 0;
    int generation = 0;
    pthread_mutex_lock(&l->lock);
    while (claim(l, &number, &generation)) {
        Slot *s = &l->slot[number % l->depth];
        pthread_mutex_unlock(&l->lock);
        dlt_err_init(&err);
        DltStatus status = fill(l, s, number, &err);
        pthread_mutex_lock(&l->lock);
        bool current = generation == l->generation;
        s->state = current ? SLOT_READY : SLOT_FREE;
        if (current && status != DLT_OK && l->status == DLT_OK) {
            l->status = status;
            l->err = err;
        }
        pthread_cond_broadcast(&l->changed);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

static void *take_bytes(DltArena *arena, const DltLoaderConfig *c, size_t bytes)
{
    return c->alloc ? c->alloc(c->ctx, bytes) : dlt_arena_new_bytes(arena, 1, bytes);
}

static DltStatus make_slots(DltArena *arena, DltLoader *l, DltErr *err)
{
    const DltLoaderConfig *c = &l->c;
    size_t n = (size_t)c->batch;
    l->slot = DLT_NEW_ARRAY(arena, l->depth, Slot);
    for (int i = 0; i < l->depth; i++) {
        DltBatch *b = &l->slot[i].batch;
        b->ticket = take_bytes(arena, c, n * DLT_TICKET_INTS * sizeof(int32_t));
        if (!c->resident) {
            b->x = take_bytes(arena, c, n * (size_t)dlt_dataset_x_bytes(c->split.ds));
            b->y = take_bytes(arena, c, n * (size_t)dlt_dataset_y_bytes(c->split.ds) + 1);
        }
        if (!b->ticket || (!c->resident && (!b->x || !b->y)))
            return dlt_err(err, DLT_E_RESOURCE, "no memory for %d batches of %zu samples in flight",
                           l->depth, n);
    }
    return DLT_OK;
}

static void free_hook(void *ctx)
{
    dlt_loader_free(ctx);
}

DltStatus dlt_loader_new(DltArena *arena, const DltLoaderConfig *config, int64_t position,
                         DltLoader **loader, DltErr *err)
{
    DltLoader *l = DLT_NEW(arena, DltLoader);
    DLT_BUG_ON(config->batch < 1 || config->split.n < 1);
    l->c = *config;
    l->start = position;
    l->depth = config->depth < MIN_DEPTH ? MIN_DEPTH : config->depth;
    dlt_err_init(&l->err);
    if (pthread_mutex_init(&l->lock, NULL) != 0 || pthread_cond_init(&l->changed, NULL) != 0)
        return dlt_err(err, DLT_E_RESOURCE, "the loader's lock could not be made");
    dlt_arena_on_free(arena, free_hook, l);
    DLT_TRY(make_slots(arena, l, err));
    int wanted = config->resident                 ? 0
                 : config->n_thread < MAX_THREADS ? config->n_thread
                                                  : MAX_THREADS;
    while (l->n_thread < wanted && dlt_sys_thread(&l->thread[l->n_thread], work, l))
        l->n_thread++;
    if (l->n_thread < wanted)
        return dlt_err(err, DLT_E_RESOURCE, "loader thread %d could not start", l->n_thread);
    *loader = l;
    return DLT_OK;
}

/* Without threads the batch is made here. The slot given out before the last one becomes free. */
static DltStatus take(DltLoader *l, Slot *s, DltErr *err)
{
    if (l->n_thread == 0) return fill(l, s, l->next, err);
    int64_t begin = dlt_sys_now_ns();
    while (l->status == DLT_OK && !(s->state == SLOT_READY && s->number == l->next))
        pthread_cond_wait(&l->changed, &l->lock);
    l->wait_ns += dlt_sys_now_ns() - begin;
    if (l->status == DLT_OK) return DLT_OK;
    for (int i = 0; i < l->err.n; i++)
        (void)dlt_err_at(err, l->err.report[i].status, l->err.report[i].at, "%s",
                         l->err.report[i].text);
    return l->status;
}

DltStatus dlt_loader_next(DltLoader *l, DltBatch *batch, DltErr *err)
{
    pthread_mutex_lock(&l->lock);
    Slot *s = &l->slot[l->next % l->depth];
    DltStatus status = take(l, s, err);
    if (status == DLT_OK) {
        *batch = s->batch;
        l->next++;
        if (l->next >= 2) l->slot[(l->next - 2) % l->depth].state = SLOT_FREE;
        pthread_cond_broadcast(&l->changed);
    }
    pthread_mutex_unlock(&l->lock);
    return status;
}

int64_t dlt_loader_position(const DltLoader *l)
{
    return l->start + l->next * l->c.batch;
}

int64_t dlt_loader_wait_ns(const DltLoader *l)
{
    return l->wait_ns;
}

void dlt_loader_seek(DltLoader *l, int64_t position)
{
    pthread_mutex_lock(&l->lock);
    l->generation++;
    /* fills under way end first: their slots are theirs until then */
    for (int i = 0; i < l->depth; i++) {
        while (l->slot[i].state == SLOT_FILLING)
            pthread_cond_wait(&l->changed, &l->lock);
        l->slot[i].state = SLOT_FREE;
    }
    l->start = position;
    l->next = l->claimed = 0;
    l->status = DLT_OK;
    dlt_err_init(&l->err);
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
}

void dlt_loader_free(DltLoader *l)
{
    if (!l || l->joined) return;
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
    for (int i = 0; i < l->n_thread; i++)
        pthread_join(l->thread[i], NULL);
    for (int i = 0; l->c.release && l->slot && i < l->depth; i++) {
        DltBatch *b = &l->slot[i].batch;
        if (b->ticket) l->c.release(l->c.ctx, b->ticket);
        if (b->x) l->c.release(l->c.ctx, b->x);
        if (b->y) l->c.release(l->c.ctx, b->y);
    }
    l->joined = true;
}
