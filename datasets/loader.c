/* The loader turns positions of the sample stream into batches. A position is one integer, and what
 * stands there is a pure function of it, so seeking is O(1) and the batches do not depend on the
 * threads. Resident sets need tickets only: a few are made by the caller's own thread. Otherwise
 * threads fill a ring of batches: each takes the next number, fills that batch alone, and the batches
 * are handed out in the order of their numbers. Nothing is allocated after dlt_loader_new. */
#include "base/sys.h"
#include "datasets/reader.h"
#include "ops/data_ops.h"
#include <inttypes.h>

enum { HELD = 2, MAX_THREADS = 64, MAX_DEPTH = 1024 }; /* HELD: batches the caller may look at */
/* A ticket takes some 50 ns: batches from here on would hold a fast device up. */
enum { MANY_TICKETS = 1024, TICKET_THREADS = 4 };

/* One batch of the ring. */
typedef struct Slot {
    DltBatch batch;
    int64_t *id; /* [batch] sample ids */
    int64_t position;
    bool ready;
    DltStatus status;
    DltErr err;
} Slot;

struct DltLoader {
    DltLoaderConfig config;
    int64_t x_bytes, y_bytes;
    int64_t per_epoch; /* samples of an epoch that are used */
    int64_t wait_ns;
    int n_slot, n_thread, n_started;
    Slot *slot;
    pthread_t *thread;
    pthread_mutex_t lock;
    pthread_cond_t filled,
        freed; /* a batch is ready or a thread idle; a slot is free or all stops */
    bool freed_all, stopping, paused;
    int n_busy;        /* threads that fill a batch now */
    int64_t next_fill; /* number of the next batch to fill, and to hand out, since the last seek */
    int64_t next_out;
    int64_t start; /* position of batch 0 */
};

/* ---- what stands at a position -------------------------------------------------------------- */

/* The epoch that a position is in: positions [first, end). A batch may straddle two. */
typedef struct Epoch {
    int64_t number, first, end;
    int64_t shift; /* of windows of tokens: DltDataset.n_shift */
    DltPermutation order;
} Epoch;

/* A number of the epoch's stream that its permutation does not use. */
static int64_t shift_of(const DltLoader *l, uint64_t stream)
{
    int64_t n = l->config.split.ds->n_shift;
    return n > 0 ? dlt_rng_below(dlt_philox(l->config.seed, stream, UINT64_MAX).v[0], (uint32_t)n)
                 : 0;
}

static void enter_epoch(const DltLoader *l, int64_t position, Epoch *e)
{
    uint64_t stream = dlt_rng_stream(DLT_RNG_ORDER, (uint64_t)(position / l->per_epoch));
    e->number = position / l->per_epoch;
    e->first = e->number * l->per_epoch;
    e->end = e->first + l->per_epoch;
    e->shift = shift_of(l, stream);
    dlt_rng_permutation(&e->order, l->config.seed, stream, l->config.split.n);
}

/* The sample at a position of the training stream, or of the one pass of an evaluation. With drop_last
 * the order of an epoch is the same, and its end is left out. As dlt_order_at says, but with divisions
 * and the permutation's keys once an epoch. */
static int64_t stream_at(const DltLoader *l, int64_t position, Epoch *e)
{
    const DltSplit *s = &l->config.split;
    int64_t i = position;
    if (l->config.shuffle) {
        if (position >= e->end) enter_epoch(l, position, e);
        i = dlt_rng_permuted(&e->order, position - e->first);
    }
    return s->id != NULL ? s->id[i] : i;
}

static int64_t position_of(const DltLoader *l, int64_t number)
{
    int64_t position = l->start + number * l->config.batch;
    int64_t end = l->config.split.n;
    return !l->config.shuffle && position > end ? end : position;
}

/* Tickets and ids of the batch at slot->position. Rows behind the end of a pass repeat the last
 * sample and count nothing. */
static void write_tickets(const DltLoader *l, Slot *slot)
{
    int64_t left = l->config.split.n - slot->position, n = l->config.batch;
    slot->batch.n_valid = l->config.shuffle || left > n ? n : left;
    int64_t sample = 0;
    Epoch epoch = {.end = 0};
    for (int64_t i = 0; i < n; i++) {
        int32_t *ticket = slot->batch.ticket + i * DLT_TICKET_INTS;
        bool valid = i < slot->batch.n_valid;
        if (valid) sample = stream_at(l, slot->position + i, &epoch);
        slot->id[i] = sample + epoch.shift * l->config.split.ds->n;
        ticket[DLT_TICKET_ROW] = (int32_t)(l->config.resident ? sample : i);
        ticket[DLT_TICKET_SAMPLE] = (int32_t)sample;
        ticket[DLT_TICKET_EPOCH] = (int32_t)(epoch.number & INT32_MAX);
        ticket[DLT_TICKET_VALID] = valid;
    }
}

static void fill(const DltLoader *l, Slot *slot)
{
    const DltDataset *ds = l->config.split.ds;
    write_tickets(l, slot);
    slot->status = DLT_OK;
    if (l->config.resident || slot->batch.n_valid == 0) return;
    dlt_err_init(&slot->err);
    slot->status =
        ds->def->read(ds, slot->id, l->config.batch, slot->batch.x, slot->batch.y, &slot->err);
}

/* ---- threads -------------------------------------------------------------------------------- */

/* A slot is free when its batch is neither waiting nor held by the caller. Under the lock. */
static bool can_fill(const DltLoader *l)
{
    return !l->paused && l->next_fill < l->next_out + l->n_slot - HELD;
}

static void *worker(void *ctx)
{
    DltLoader *l = ctx;
    pthread_mutex_lock(&l->lock);
    for (;;) {
        while (!l->stopping && !can_fill(l))
            pthread_cond_wait(&l->freed, &l->lock);
        if (l->stopping) break;
        int64_t number = l->next_fill++;
        Slot *slot = &l->slot[number % l->n_slot];
        slot->position = position_of(l, number);
        l->n_busy++;
        pthread_mutex_unlock(&l->lock);
        fill(l, slot);
        pthread_mutex_lock(&l->lock);
        l->n_busy--;
        slot->ready = true;
        pthread_cond_broadcast(&l->filled);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* The next slot in order, filled by a thread, or here when there are none. */
static Slot *next_slot(DltLoader *l)
{
    Slot *slot = &l->slot[l->next_out % l->n_slot];
    if (l->n_thread == 0) {
        slot->position = position_of(l, l->next_out);
        fill(l, slot);
        l->next_out++;
        return slot;
    }
    pthread_mutex_lock(&l->lock);
    while (!slot->ready)
        pthread_cond_wait(&l->filled, &l->lock);
    slot->ready = false;
    l->next_out++;
    pthread_cond_broadcast(&l->freed);
    pthread_mutex_unlock(&l->lock);
    return slot;
}

DltStatus dlt_loader_next(DltLoader *l, DltBatch *batch, DltErr *err)
{
    int64_t before = l->config.resident ? 0 : dlt_sys_now_ns();
    const Slot *slot = next_slot(l);
    if (!l->config.resident) l->wait_ns += dlt_sys_now_ns() - before;
    *batch = slot->batch;
    if (slot->status == DLT_OK) return DLT_OK;
    for (int i = 0; i < slot->err.n; i++)
        (void)dlt_err_at(err, slot->status, slot->err.report[i].at, "%s", slot->err.report[i].text);
    return slot->status;
}

int64_t dlt_loader_position(const DltLoader *l)
{
    return position_of(l, l->next_out);
}

int64_t dlt_loader_wait_ns(const DltLoader *l)
{
    return l->wait_ns;
}

void dlt_loader_seek(DltLoader *l, int64_t position)
{
    DLT_BUG_ON(position < 0 || (!l->config.shuffle && position > l->config.split.n));
    pthread_mutex_lock(&l->lock);
    l->paused = true;
    while (l->n_busy > 0)
        pthread_cond_wait(&l->filled, &l->lock);
    for (int i = 0; i < l->n_slot; i++)
        l->slot[i].ready = false;
    l->start = position;
    l->next_fill = 0;
    l->next_out = 0;
    l->paused = false;
    pthread_cond_broadcast(&l->freed);
    pthread_mutex_unlock(&l->lock);
}

/* ---- life ----------------------------------------------------------------------------------- */

static void *plain_alloc(void *ctx, size_t bytes)
{
    (void)ctx;
    return dlt_sys_alloc(bytes);
}

static void plain_release(void *ctx, void *ptr)
{
    (void)ctx;
    dlt_sys_free(ptr);
}

void dlt_loader_free(DltLoader *l)
{
    if (l == NULL || l->freed_all) return;
    pthread_mutex_lock(&l->lock);
    l->stopping = true;
    pthread_cond_broadcast(&l->freed);
    pthread_mutex_unlock(&l->lock);
    for (int i = 0; i < l->n_started; i++)
        pthread_join(l->thread[i], NULL);
    for (int i = 0; i < l->n_slot; i++) {
        DltBatch *b = &l->slot[i].batch;
        if (b->x != NULL) l->config.release(l->config.ctx, b->x);
        if (b->y != NULL) l->config.release(l->config.ctx, b->y);
        if (b->ticket != NULL) l->config.release(l->config.ctx, b->ticket);
    }
    pthread_cond_destroy(&l->filled);
    pthread_cond_destroy(&l->freed);
    pthread_mutex_destroy(&l->lock);
    l->freed_all = true;
}

static void free_hook(void *ctx)
{
    dlt_loader_free(ctx);
}

static DltStatus take_slots(DltArena *arena, DltLoader *l, DltErr *err)
{
    const DltLoaderConfig *c = &l->config;
    int64_t x = 0, y = 0;
    if (__builtin_mul_overflow(c->batch, l->x_bytes, &x) ||
        __builtin_mul_overflow(c->batch, l->y_bytes, &y))
        return dlt_err(err, DLT_E_RESOURCE, "a batch of %lld samples is larger than any memory",
                       (long long)c->batch);
    for (int i = 0; i < l->n_slot; i++) {
        Slot *slot = &l->slot[i];
        slot->id = DLT_NEW_ARRAY(arena, c->batch, int64_t);
        slot->batch.ticket = c->alloc(c->ctx, (size_t)c->batch * DLT_TICKET_INTS * sizeof(int32_t));
        bool ok = slot->batch.ticket != NULL;
        if (!c->resident) {
            slot->batch.x = c->alloc(c->ctx, (size_t)x);
            slot->batch.y = c->alloc(c->ctx, (size_t)y);
            ok = ok && slot->batch.x != NULL && slot->batch.y != NULL;
        }
        if (!ok)
            return dlt_err(err, DLT_E_RESOURCE,
                           "out of memory: %d batches of %" PRId64 " samples need %" PRId64
                           " bytes each",
                           l->n_slot, c->batch, x + y);
    }
    return DLT_OK;
}

static DltStatus check_config(const DltLoaderConfig *c, DltErr *err)
{
    const DltSplit *s = &c->split;
    DLT_BUG_ON(s->n < 1 || c->batch < 1 || (c->drop_last && !c->shuffle));
    DLT_BUG_ON((c->alloc == NULL) != (c->release == NULL));
    if (s->ds->n > INT32_MAX)
        return dlt_err_at(err, DLT_E_DATA, (DltMark){.file = s->ds->path},
                          "%lld samples, more than the %d that tickets can name",
                          (long long)s->ds->n, INT32_MAX);
    if (c->drop_last && c->batch > s->n)
        return dlt_err_at(
            err, DLT_E_CONFIG, (DltMark){.file = s->ds->path},
            "a batch of %lld is larger than the set of %lld samples, and `last: drop` "
            "would drop them all",
            (long long)c->batch, (long long)s->n);
    return DLT_OK;
}

DltStatus dlt_loader_new(DltArena *arena, const DltLoaderConfig *config, int64_t position,
                         DltLoader **loader, DltErr *err)
{
    DLT_TRY(check_config(config, err));
    DltLoader *l = DLT_NEW(arena, DltLoader);
    DltLoaderConfig *c = &l->config;
    *c = *config;
    if (c->alloc == NULL) {
        c->alloc = plain_alloc;
        c->release = plain_release;
    }
    bool alone = c->resident && c->batch < MANY_TICKETS;
    int most = c->resident ? TICKET_THREADS : MAX_THREADS;
    int n_thread = alone || c->n_thread < 0 ? 0 : c->n_thread;
    l->n_thread = n_thread < most ? n_thread : most;
    int depth = c->depth < 1 || alone ? 1 : c->depth < MAX_DEPTH ? c->depth : MAX_DEPTH;
    if (depth < l->n_thread) depth = l->n_thread;
    l->n_slot = depth + HELD;
    l->x_bytes = dlt_dataset_x_bytes(c->split.ds);
    l->y_bytes = dlt_dataset_y_bytes(c->split.ds);
    l->per_epoch = c->split.n - (c->drop_last ? c->split.n % c->batch : 0);
    l->start = position;
    l->slot = DLT_NEW_ARRAY(arena, l->n_slot, Slot);
    l->thread = DLT_NEW_ARRAY(arena, l->n_thread + 1, pthread_t);
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->filled, NULL);
    pthread_cond_init(&l->freed, NULL);
    dlt_arena_on_free(arena, free_hook, l);
    DLT_TRY(take_slots(arena, l, err));
    for (; l->n_started < l->n_thread; l->n_started++) {
        if (!dlt_sys_thread(&l->thread[l->n_started], worker, l))
            return dlt_err(err, DLT_E_RESOURCE, "cannot start loader thread %d of %d",
                           l->n_started + 1, l->n_thread);
    }
    *loader = l;
    return DLT_OK;
}
