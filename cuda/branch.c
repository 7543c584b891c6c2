/* Branches: while a step is recorded, calls that touch different memory are put on different streams,
 * so that the recorded graph runs them side by side (weight gradients beside data gradients, metrics
 * beside the backward pass). What depends on what is read off the addresses of a call's operands:
 * reads after writes, writes after reads and writes after writes are kept, nothing else is. Small
 * networks are bound by the length of the longest chain, not by work.
 *
 * Calls are put aside first and launched when their order is known. Where single calls last longer than a
 * launch, of those that may come next it is the one with the longest chain behind it, so that nothing
 * else takes the place behind the call it waits for.
 *
 * Each branch has scratch and reduction counters of its own. Branch 0 is lane 0 with the plan's
 * scratch; calls that need more scratch than the other branches have stay there. It holds the longest
 * chain, as a rule, so it goes first where two kernels want the same multiprocessor. */
#include "cuda/branch.h"

/* WINDOW: calls whose order is settled at a time */
enum { N_BRANCH = 4, MAX_RANGES = DLT_MAX_IN + DLT_MAX_OUT, WINDOW = 1024 };
/* most scratch of branches 1 and up: weight gradients ask for some MiB */
static const size_t most_side_bytes = (size_t)64 << 20;

typedef struct Range {
    uintptr_t from, to;
} Range;

typedef struct Recorded {
    int branch, n_read, n_write;
    Range read[MAX_RANGES], write[MAX_RANGES];
    int known[N_BRANCH]; /* last call of each branch that is finished when this one is */
    cudaEvent_t done;
    DltCall call; /* with operands of its own */
    void *in[DLT_MAX_IN], *out[DLT_MAX_OUT];
    DltCudaLaunch launch;
    int window, at; /* its number among the calls whose order was settled together */
    int height;     /* calls of the longest chain behind it, where the order is by chains */
    int n_wait;     /* earlier calls it still waits for */
} Recorded;

typedef struct WorkNote {
    const DltNode *node;
    size_t bytes;
} WorkNote;

struct DltBranches {
    DltStream stream[N_BRANCH];
    void *work[N_BRANCH];
    size_t side_bytes; /* scratch of each branch but the first */
    bool ready;        /* streams are made */
    bool single;       /* the executor uses lanes of its own: keep to lane 0 */
    bool in_capture[N_BRANCH];
    Recorded **place; /* [cap], n_place of them in use: as the executor called */
    Recorded **call;  /* [cap], n of them: as they were launched */
    int n, n_place, cap, last[N_BRANCH];
    int window;    /* times that an order was settled */
    bool *follows; /* [WINDOW][WINDOW]: a later call must come after an earlier one */
    cudaEvent_t start;
    WorkNote *note; /* hash table of the scratch each prepared node asked for */
    int64_t n_note, cap_note;
};

/* ---- scratch notes ---- */

static WorkNote *find_note(WorkNote *table, int64_t cap, const DltNode *node)
{
    uint64_t h = (uint64_t)(uintptr_t)node * 0x9E3779B97F4A7C15ULL;
    int64_t i = (int64_t)(h >> 20) & (cap - 1);
    while (table[i].node && table[i].node != node)
        i = (i + 1) & (cap - 1);
    return &table[i];
}

static void grow_notes(DltDevice *dev, DltBranches *b)
{
    int64_t cap = b->cap_note ? 2 * b->cap_note : 1024;
    WorkNote *table = DLT_NEW_ARRAY(dev->arena, cap, WorkNote);
    for (int64_t i = 0; i < b->cap_note; i++)
        if (b->note[i].node) *find_note(table, cap, b->note[i].node) = b->note[i];
    b->note = table;
    b->cap_note = cap;
}

DltStatus dlt_cuda_prepare(const DltNode *n, DltDevice *dev, DltPrep *p,
                           DltStatus (*prepare)(const DltNode *n, DltDevice *dev, DltPrep *p,
                                                DltErr *err),
                           DltErr *err)
{
    if (!dev->branches) dev->branches = DLT_NEW(dev->arena, DltBranches);
    DltBranches *b = dev->branches;
    if (prepare) DLT_TRY(prepare(n, dev, p, err));
    if (2 * b->n_note >= b->cap_note) grow_notes(dev, b);
    WorkNote *note = find_note(b->note, b->cap_note, n);
    if (!note->node) b->n_note++;
    *note = (WorkNote){n, p->work_bytes};
    return DLT_OK;
}

/* ---- ranges ---- */

static void add_range(Range *list, int *n, const DltTensor *t, const void *ptr)
{
    if (!t || !ptr) return;
    uintptr_t from = (uintptr_t)ptr;
    size_t bytes = (size_t)dlt_shape_count(&t->shape) * dlt_dtype_bytes(t->dtype);
    list[(*n)++] = (Range){from, from + bytes};
}

static void ranges_of(const DltCall *c, Recorded *r)
{
    for (int i = 0; i < DLT_MAX_IN; i++) {
        bool changed = c->node->op && (c->node->op->mutates >> i & 1);
        if (changed)
            add_range(r->write, &r->n_write, c->node->in[i], c->in[i]);
        else
            add_range(r->read, &r->n_read, c->node->in[i], c->in[i]);
    }
    for (int i = 0; i < DLT_MAX_OUT; i++)
        add_range(r->write, &r->n_write, c->node->out[i], c->out[i]);
}

static bool overlap(const Range *a, int na, const Range *b, int nb)
{
    for (int i = 0; i < na; i++)
        for (int j = 0; j < nb; j++)
            if (a[i].from < b[j].to && b[j].from < a[i].to) return true;
    return false;
}

static bool conflict(const Recorded *later, const Recorded *earlier)
{
    return overlap(later->read, later->n_read, earlier->write, earlier->n_write) ||
           overlap(later->write, later->n_write, earlier->write, earlier->n_write) ||
           overlap(later->write, later->n_write, earlier->read, earlier->n_read);
}

/* ---- recording ---- */

static DltStatus make_streams(DltDevice *dev, DltBranches *b, DltErr *err)
{
    cudaError_t e = cudaEventCreateWithFlags(&b->start, cudaEventDisableTiming);
    DLT_TRY(dlt_cuda_check(e, DLT_NO_MARK, "cuda: making an event", err));
    for (int64_t i = 0; i < b->cap_note; i++) {
        bool fits = b->note[i].node && b->note[i].bytes <= most_side_bytes;
        if (fits && b->note[i].bytes > b->side_bytes) b->side_bytes = b->note[i].bytes;
    }
    for (int k = 1; k < N_BRANCH; k++) {
        DltStream *s = &b->stream[k];
        s->dev = dev;
        e = dlt_cuda_new_stream(&s->handle, false);
        DLT_TRY(dlt_cuda_check(e, DLT_NO_MARK, "cuda: making a stream", err));
        void *ticket = NULL;
        DLT_TRY(dlt_cuda_alloc(dev, DLT_CUDA_TICKETS * sizeof(unsigned), &ticket, err));
        s->ticket = ticket;
        DLT_TRY(dlt_cuda_alloc(dev, b->side_bytes, &b->work[k], err));
    }
    b->ready = true;
    return DLT_OK;
}

DltStatus dlt_cuda_branches_prepare(DltDevice *dev, DltErr *err)
{
    if (!dev->branches) dev->branches = DLT_NEW(dev->arena, DltBranches);
    return dev->branches->ready ? DLT_OK : make_streams(dev, dev->branches, err);
}

DltStatus dlt_cuda_branches_begin(DltDevice *dev, DltErr *err)
{
    DltBranches *b = dev->branches;
    b->n = b->n_place = 0;
    b->single = false;
    for (int k = 0; k < N_BRANCH; k++) {
        b->last[k] = -1;
        b->in_capture[k] = k == 0;
    }
    return dlt_cuda_check(cudaEventRecord(b->start, dev->lane[0].handle), DLT_NO_MARK,
                          "cuda: starting to record a step", err);
}

static DltStream *stream_of(DltDevice *dev, int branch)
{
    return branch == 0 ? &dev->lane[0] : &dev->branches->stream[branch];
}

/* A place for the next call, with an event of its own that later recordings use again. */
static DltStatus next_place(DltDevice *dev, Recorded **out, DltErr *err)
{
    DltBranches *b = dev->branches;
    if (b->n_place == b->cap) {
        int cap = b->cap ? 2 * b->cap : 256;
        Recorded **place = DLT_NEW_ARRAY(dev->arena, cap, Recorded *);
        Recorded **call = DLT_NEW_ARRAY(dev->arena, cap, Recorded *);
        Recorded *more = DLT_NEW_ARRAY(dev->arena, cap - b->cap, Recorded);
        if (b->cap) memcpy(place, b->place, (size_t)b->cap * sizeof *place);
        if (b->cap) memcpy(call, b->call, (size_t)b->cap * sizeof *call);
        for (int i = b->cap; i < cap; i++)
            place[i] = &more[i - b->cap];
        b->place = place;
        b->call = call;
        b->cap = cap;
    }
    Recorded *r = b->place[b->n_place];
    cudaEvent_t done = r->done;
    *r = (Recorded){.done = done};
    for (int k = 0; k < N_BRANCH; k++)
        r->known[k] = -1;
    *out = r;
    if (done) return DLT_OK;
    return dlt_cuda_check(cudaEventCreateWithFlags(&r->done, cudaEventDisableTiming), DLT_NO_MARK,
                          "cuda: making an event", err);
}

/* Whether a call must come after one that was launched. */
static bool comes_after(const DltBranches *b, const Recorded *r, const Recorded *launched)
{
    if (launched->window != r->window) return conflict(r, launched);
    return launched->at < r->at && b->follows[launched->at * WINDOW + r->at];
}

/* need[k]: the last call of branch k that this one must come after, -1: none. */
static void needs_of(const DltBranches *b, const Recorded *r, int need[N_BRANCH])
{
    for (int k = 0; k < N_BRANCH; k++)
        need[k] = -1;
    for (int i = b->n - 1; i >= 0; i--) {
        const Recorded *c = b->call[i];
        if (need[c->branch] < 0 && comes_after(b, r, c)) need[c->branch] = i;
    }
}

/* Behind the call it waits for, where nothing else has followed yet; else where the last call is
 * oldest. */
static int choose(const DltBranches *b, const int need[N_BRANCH], size_t work_bytes)
{
    int n = work_bytes <= b->side_bytes && !b->single ? N_BRANCH : 1, best = -1;
    for (int k = 0; k < n; k++)
        if (need[k] >= 0 && need[k] == b->last[k] && (best < 0 || need[k] > need[best])) best = k;
    if (best >= 0) return best;
    best = 0;
    for (int k = 1; k < n; k++)
        if (b->last[k] < b->last[best]) best = k;
    return best;
}

/* Makes branch `to` wait for a call of another branch, unless it is known to be finished. */
static cudaError_t wait_for(DltDevice *dev, Recorded *r, int to, int call, bool *waited)
{
    const Recorded *c = dev->branches->call[call];
    if (r->known[c->branch] >= call) return cudaSuccess;
    for (int k = 0; k < N_BRANCH; k++)
        if (c->known[k] > r->known[k]) r->known[k] = c->known[k];
    *waited = true;
    dev->branches->in_capture[to] = true;
    return cudaStreamWaitEvent(stream_of(dev, to)->handle, c->done, 0);
}

static cudaError_t order(DltDevice *dev, Recorded *r, const int need[N_BRANCH], bool *waited)
{
    DltBranches *b = dev->branches;
    int to = r->branch;
    cudaError_t e = cudaSuccess;
    if (b->last[to] >= 0) memcpy(r->known, b->call[b->last[to]]->known, sizeof r->known);
    for (int k = 0; k < N_BRANCH && e == cudaSuccess; k++)
        if (k != to && need[k] >= 0) e = wait_for(dev, r, to, need[k], waited);
    if (e == cudaSuccess && !b->in_capture[to]) {
        b->in_capture[to] = true;
        *waited = true;
        e = cudaStreamWaitEvent(stream_of(dev, to)->handle, b->start, 0);
    }
    return e;
}

static DltStatus on_branch(DltDevice *dev, Recorded *r, DltErr *err)
{
    DltBranches *b = dev->branches;
    const DltNode *node = r->call.node;
    int need[N_BRANCH];
    bool waited = false;
    needs_of(b, r, need);
    const WorkNote *note = b->cap_note ? find_note(b->note, b->cap_note, node) : NULL;
    r->branch = choose(b, need, note && note->node ? note->bytes : SIZE_MAX);
    cudaError_t e = order(dev, r, need, &waited);
    DLT_TRY(dlt_cuda_check(e, node->at, "cuda: ordering branches of a step", err));
    DltStream *s = stream_of(dev, r->branch);
    r->call.stream = s;
    if (r->branch != 0) r->call.work = b->work[r->branch];
    s->joined = waited;
    DltStatus status = r->launch(&r->call, err);
    s->joined = false;
    DLT_TRY(status);
    r->known[r->branch] = b->n;
    b->last[r->branch] = b->n;
    b->call[b->n++] = r;
    return dlt_cuda_check(cudaEventRecord(r->done, s->handle), node->at,
                          "cuda: ordering branches of a step", err);
}

/* Whether the order by chains pays, by the work of one update. On an H200 an update of 0.3 GFLOP (a multilayer
 * perceptron, 128 rows) took 4 % longer so; those of 10 to 76 GFLOP (LeNet, 128 and 1,024 images) were measured
 * faster with it; of larger ones nothing is known. */
static bool by_chains(Recorded *const *r, int n)
{
#ifdef DLT_EMULATED /* whose tests are small */
    const double least = 0, most = 1e300;
#else
    const double least = 1e9, most = 2e11;
#endif
    double work = 0;
    for (int i = 0; i < n; i++) {
        const DltNode *node = r[i]->call.node;
        if (i > 0 && node == r[0]->call.node) break; /* the next run of a series */
        if (node->op && node->op->flops) work += node->op->flops(node);
    }
    return work >= least && work <= most;
}

/* What must come after what among the calls put aside, and how long a chain each has behind it. */
static void find_chains(DltBranches *b, Recorded *const *r, int n)
{
    bool by_length = by_chains(r, n);
    b->window++;
    for (int i = 0; i < n; i++) {
        r[i]->n_wait = r[i]->height = 0;
        r[i]->window = b->window;
        r[i]->at = i;
        for (int k = 0; k < i; k++) {
            b->follows[k * WINDOW + i] = conflict(r[i], r[k]);
            r[i]->n_wait += b->follows[k * WINDOW + i];
        }
    }
    for (int k = n - 1; k >= 0 && by_length; k--) {
        for (int i = k + 1; i < n; i++)
            if (b->follows[k * WINDOW + i] && r[i]->height >= r[k]->height)
                r[k]->height = r[i]->height + 1;
    }
}

/* Launches the calls put aside. */
static DltStatus launch_all(DltDevice *dev, DltErr *err)
{
    DltBranches *b = dev->branches;
    int n = b->n_place - b->n;
    Recorded *const *r = b->place + b->n;
    if (n == 0) return DLT_OK;
    if (!b->follows) b->follows = DLT_NEW_ARRAY(dev->arena, WINDOW * WINDOW, bool);
    find_chains(b, r, n);
    for (int left = n; left > 0; left--) {
        int next = -1;
        for (int i = 0; i < n; i++)
            if (r[i]->n_wait == 0 && (next < 0 || r[i]->height > r[next]->height)) next = i;
        r[next]->n_wait = -1;
        for (int i = next + 1; i < n; i++)
            r[i]->n_wait -= b->follows[next * WINDOW + i];
        DLT_TRY(on_branch(dev, r[next], err));
    }
    return DLT_OK;
}

static DltStatus put_aside(const DltCall *c, DltCudaLaunch launch, DltErr *err)
{
    DltDevice *dev = c->stream->dev;
    DltBranches *b = dev->branches;
    Recorded *r = NULL;
    DLT_TRY(next_place(dev, &r, err));
    ranges_of(c, r);
    memcpy(r->in, c->in, sizeof r->in);
    memcpy(r->out, c->out, sizeof r->out);
    r->call = *c;
    r->call.in = r->in;
    r->call.out = r->out;
    r->launch = launch;
    b->n_place++;
    return b->n_place - b->n == WINDOW ? launch_all(dev, err) : DLT_OK;
}

DltStatus dlt_cuda_launch(const DltCall *c, DltCudaLaunch launch, DltErr *err)
{
    DltDevice *dev = c->stream->dev;
    if (!dev->recording) return launch(c, err);
    if (c->stream->lane == 0) return put_aside(c, launch, err);
    DLT_TRY(dlt_cuda_branches_join(dev, err));
    dev->branches->single = true;
    return launch(c, err);
}

DltStatus dlt_cuda_branches_join(DltDevice *dev, DltErr *err)
{
    DltBranches *b = dev->branches;
    DLT_TRY(launch_all(dev, err));
    for (int k = 1; k < N_BRANCH; k++) {
        if (b->last[k] < 0) continue;
        cudaError_t e = cudaStreamWaitEvent(dev->lane[0].handle, b->call[b->last[k]]->done, 0);
        DLT_TRY(dlt_cuda_check(e, DLT_NO_MARK, "cuda: joining the branches of a step", err));
    }
    return DLT_OK;
}

DltStatus dlt_cuda_branches_barrier(DltDevice *dev, DltErr *err)
{
    if (!dev->recording) return DLT_OK;
    DLT_TRY(dlt_cuda_branches_join(dev, err));
    dev->branches->single = true;
    dev->lane[0].joined = true;
    return DLT_OK;
}

void dlt_cuda_branches_close(DltDevice *dev)
{
    DltBranches *b = dev->branches;
    if (!b) return;
    for (int i = 0; i < b->cap; i++)
        if (b->place[i]->done) (void)cudaEventDestroy(b->place[i]->done);
    b->cap = b->n = b->n_place = 0;
    for (int k = 1; k < N_BRANCH; k++)
        if (b->stream[k].handle) (void)cudaStreamDestroy(b->stream[k].handle);
    if (b->start) (void)cudaEventDestroy(b->start);
    b->start = NULL;
    b->ready = false;
}
