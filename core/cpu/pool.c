/* The CPU's own team of threads and the loop over chunks. Handing out work costs a lock and a
 * wake-up; waiting threads spin for some microseconds (the next node usually follows at once) and
 * then sleep, so that a busy neighbour on the machine is not starved.
 * A job is open from its publication until the caller finds no chunk left; a worker that wakes
 * later does not join, so nobody waits for a sleeper. */
#include "base/sys.h"
#include "cpu/device.h"
#include <stdatomic.h>

enum { SPINS = 2000 }; /* of a pause instruction: 20 to 100 us */

typedef struct Workers {
    DltTeam team; /* first member: what kernels hold */
    pthread_t *thread;
    int n_started;
    pthread_mutex_t lock;
    pthread_cond_t wake, idle;
    DltJob job; /* written, as `open` is, under the lock while no worker is inside */
    bool open, stop;
    atomic_uint generation; /* of jobs */
    atomic_int inside;      /* workers in the job; changed under the lock */
    _Atomic int64_t next;   /* chunk to hand out */
} Workers;

static void drain(Workers *w)
{
    for (;;) {
        int64_t chunk = atomic_fetch_add_explicit(&w->next, 1, memory_order_relaxed);
        if (chunk >= w->job.n_chunk) return;
        w->job.run(w->job.ctx, w->job.back ? w->job.n_chunk - 1 - chunk : chunk);
    }
}

static void *work(void *ctx)
{
    Workers *w = ctx;
    unsigned seen = 0;
    for (;;) {
        for (int i = 0; i < SPINS && atomic_load(&w->generation) == seen; i++)
            dlt_cpu_relax();
        pthread_mutex_lock(&w->lock);
        while (w->generation == seen && !w->stop)
            pthread_cond_wait(&w->wake, &w->lock);
        seen = w->generation;
        bool stop = w->stop, joined = w->open;
        if (joined) w->inside++;
        pthread_mutex_unlock(&w->lock);
        if (stop) return NULL;
        if (!joined) continue;
        drain(w);
        pthread_mutex_lock(&w->lock);
        if (--w->inside == 0) pthread_cond_signal(&w->idle);
        pthread_mutex_unlock(&w->lock);
    }
}

static void team_run(DltTeam *team, const DltJob *job)
{
    Workers *w = (Workers *)team;
    pthread_mutex_lock(&w->lock);
    w->job = *job;
    w->next = 0;
    w->open = true;
    w->generation++;
    pthread_cond_broadcast(&w->wake);
    pthread_mutex_unlock(&w->lock);
    drain(w);
    for (int i = 0; i < SPINS && w->inside > 0; i++)
        dlt_cpu_relax();
    pthread_mutex_lock(&w->lock);
    w->open = false;
    while (w->inside > 0)
        pthread_cond_wait(&w->idle, &w->lock);
    pthread_mutex_unlock(&w->lock);
}

void dlt_team_free(DltTeam *team)
{
    Workers *w = (Workers *)team;
    if (w == NULL) return;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    w->generation++;
    pthread_cond_broadcast(&w->wake);
    pthread_mutex_unlock(&w->lock);
    for (; w->n_started > 0; w->n_started--)
        pthread_join(w->thread[w->n_started - 1], NULL);
}

static void free_team(void *team)
{
    dlt_team_free(team);
}

DltStatus dlt_team_new(DltArena *arena, int n_thread, DltTeam **team, DltErr *err)
{
    Workers *w = DLT_NEW(arena, Workers);
    w->team = (DltTeam){.run = team_run, .n_thread = n_thread};
    w->thread = DLT_NEW_ARRAY(arena, n_thread, pthread_t);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, NULL);
    pthread_cond_init(&w->idle, NULL);
    dlt_arena_on_free(arena, free_team, w);
    for (int i = 1; i < n_thread; i++) {
        if (!dlt_sys_thread(&w->thread[w->n_started], work, w)) {
            dlt_team_free(&w->team);
            return dlt_err(err, DLT_E_RESOURCE,
                           "cpu: could not start thread %d of %d; set fewer threads", i + 1,
                           n_thread);
        }
        w->n_started++;
    }
    *team = &w->team;
    return DLT_OK;
}

typedef struct Slices {
    DltTask task;
    void *ctx;
    int64_t n, grain;
} Slices;

static void run_slice(void *ctx, int64_t chunk)
{
    const Slices *s = ctx;
    int64_t begin = chunk * s->grain, end = begin + s->grain;
    s->task(s->ctx, begin, end < s->n ? end : s->n);
}

static void pool_run(DltStream *s, Slices *slices, bool back)
{
    int64_t n_chunk = (slices->n + slices->grain - 1) / slices->grain;
    if (n_chunk > 1 && s->team->n_thread > 1) {
        s->team->run(s->team, &(DltJob){run_slice, slices, n_chunk, back});
        return;
    }
    for (int64_t i = 0; i < n_chunk; i++)
        run_slice(slices, back ? n_chunk - 1 - i : i);
}

void dlt_pool_for(DltStream *s, int64_t n, int64_t grain, DltTask task, void *ctx)
{
    pool_run(s, &(Slices){task, ctx, n, grain}, false);
}

void dlt_pool_back(DltStream *s, int64_t n, int64_t grain, DltTask task, void *ctx)
{
    pool_run(s, &(Slices){task, ctx, n, grain}, true);
}

int dlt_pool_threads(const DltStream *s)
{
    return s->team->n_thread;
}
