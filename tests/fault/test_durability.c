/* Saving as a disk sees it. The file calls of a row of saves are recorded; then (1) their order is
 * checked, and (2) the power goes after each call, with what was not yet synced kept, dropped, torn or
 * zeroed, and names old or new: a checkpoint that was reported as saved is there, and whatever bears
 * a checkpoint's name is whole. Also (3) a training that is killed behind each of its file calls goes
 * on to the same bits, and (4) a disk that is full at each 4 KiB keeps what was there. DLT_FULL=1: all
 * of it, else a sample. */
#include "tests/unit/full.h"
#include "tests/unit/runs.h"

#include "base/fault.h"
#include "base/rng.h"

#include <signal.h>
#include <sys/resource.h>

DltStatus dlt_backend_find(const char *name, DltMark at, const DltBackend **backend, DltErr *err)
{
    (void)name, (void)at, (void)err;
    *backend = &dlt_backend_cpu;
    return DLT_OK;
}

/* ---- the record --------------------------------------------------------------------------- */

enum { MAX_CALLS = 4000, MAX_NAMES = 64, MAX_INODES = 256, NAME = 96, SECTOR = 512 };
typedef struct Call {
    char what[12], path[NAME], to[NAME];
    int fd;
    char *data;
    int64_t bytes;
    int64_t saved; /* step reported as saved behind this call, 0: none */
} Call;
typedef struct Record {
    int n;
    Call call[MAX_CALLS];
} Record;

static void record_call(void *ctx, const DltSysCall *c)
{
    Record *r = ctx;
    assert_true(r->n < MAX_CALLS);
    Call *call = &r->call[r->n++];
    *call = (Call){.fd = c->fd, .bytes = c->bytes};
    snprintf(call->what, sizeof call->what, "%s", c->what);
    snprintf(call->path, NAME, "%s", c->path != NULL ? c->path : "");
    snprintf(call->to, NAME, "%s", c->to != NULL ? c->to : "");
    if (c->data == NULL) return;
    call->data = malloc((size_t)c->bytes);
    memcpy(call->data, c->data, (size_t)c->bytes);
}

static void free_record(Record *r)
{
    for (int i = 0; i < r->n; i++)
        free(r->call[i].data);
    free(r);
}

static DltMetricDef loss_metric = {.name = "loss"};
static const DltMetricDef *const metric_list[] = {&loss_metric};

/* Eight saves with a changing tensor, every rule of keeping at work. */
static void record_saves(Record *r, const char *out)
{
    DltArena *arena = dlt_arena_new();
    DltErr err;
    dlt_err_init(&err);
    DltSpec spec = {.name = "d", .text = "x: 1\n", .n_metric = 1, .metric = metric_list};
    DltRunFolder *f = NULL;
    assert_int_equal(dlt_run_folder_open(arena, &spec, out, false, &f, &err), DLT_OK);
    float values[400];
    const DltKeep keep = {.last = 2, .every = 3};
    dlt_fault_watch(record_call, r);
    for (int64_t step = 1; step <= 8; step++) {
        for (int i = 0; i < 400; i++)
            values[i] = (float)(step * 1000 + i);
        DltCheckpointTensor tensor = {.name = "w",
                                      .dtype = DLT_F32,
                                      .shape = dlt_shape1(400),
                                      .bytes = values,
                                      .n_bytes = sizeof values};
        DltCheckpoint c = {
            .meta = {.step = step, .run = 7, .loss_scale = 1}, .n_tensor = 1, .tensor = &tensor};
        assert_int_equal(dlt_run_folder_save(f, &c, &keep, step % 3 == 1, &err), DLT_OK);
        r->call[r->n - 1].saved = step;
    }
    dlt_fault_watch(NULL, NULL);
    dlt_run_folder_close(f);
    dlt_arena_free(arena);
}

/* ---- (1) the order ------------------------------------------------------------------------ */

typedef struct Traced { /* a file under way */
    int fd;
    char temp[NAME];
    bool synced, closed;
} Traced;

static Traced *by_fd(Traced *t, int n, int fd)
{
    for (int i = n - 1; i >= 0; i--)
        if (t[i].fd == fd && !t[i].closed) return &t[i];
    return NULL;
}

/* written -> synced -> closed -> named -> folder synced -> reported, -> only then others removed */
static void write_order(void **state)
{
    (void)state;
    Record *r = calloc(1, sizeof *r);
    record_saves(r, "order");
    Traced file[MAX_INODES];
    int n = 0, folder_fd = -1, n_saved = 0;
    bool folder_synced = true;
    for (int i = 0; i < r->n; i++) {
        const Call *c = &r->call[i];
        Traced *t = by_fd(file, n, c->fd);
        if (strcmp(c->what, "open") == 0 && strstr(c->path, ".tmp.") != NULL) {
            file[n] = (Traced){.fd = c->fd};
            snprintf(file[n++].temp, NAME, "%s", c->path);
        }
        if (strcmp(c->what, "open") == 0 && strcmp(c->path, "order") == 0) folder_fd = c->fd;
        if (strcmp(c->what, "write") == 0 && t != NULL) t->synced = false;
        if (strcmp(c->what, "fsync") == 0 && t != NULL) t->synced = true;
        if (strcmp(c->what, "fsync") == 0 && c->fd == folder_fd) folder_synced = true;
        if (strcmp(c->what, "close") == 0 && t != NULL) t->closed = true;
        if (strcmp(c->what, "rename") == 0) {
            assert_non_null(strstr(c->path, ".tmp.")); /* only what was temporary is moved */
            assert_true(file[n - 1].synced && file[n - 1].closed);
            folder_synced = false;
        }
        if (strcmp(c->what, "unlink") == 0 && strstr(c->path, ".tmp.") == NULL)
            assert_true(folder_synced);
        if (c->saved > 0) assert_true(folder_synced);
        n_saved += c->saved > 0;
    }
    assert_int_equal(n, 8); /* one file is written a save, whatever number of names it has */
    assert_int_equal(n_saved, 8);
    free_record(r);
}

/* ---- (2) the power ------------------------------------------------------------------------ */

typedef struct Inode {
    char *now;       /* contents as the program sees them */
    int64_t n, sure; /* bytes; those synced */
} Inode;
typedef struct Name {
    char path[NAME];
    int now, sure; /* inode, -1: none; as the program sees it and as the disk certainly has it */
} Name;
typedef struct Disk {
    Inode inode[MAX_INODES];
    int n_inode;
    Name name[MAX_NAMES];
    int n_name, folder_fd, of_fd[1024];
} Disk;

static Name *name_of(Disk *d, const char *path)
{
    for (int i = 0; i < d->n_name; i++)
        if (strcmp(d->name[i].path, path) == 0) return &d->name[i];
    for (int i = 0; i < d->n_name; i++) /* the place of a name that is gone for sure */
        if (d->name[i].now < 0 && d->name[i].sure < 0) {
            snprintf(d->name[i].path, NAME, "%s", path);
            return &d->name[i];
        }
    assert_true(d->n_name < MAX_NAMES);
    Name *name = &d->name[d->n_name++];
    *name = (Name){.now = -1, .sure = -1};
    snprintf(name->path, NAME, "%s", path);
    return name;
}

static void apply(Disk *d, const Call *c, const char *folder)
{
    int fd = c->fd >= 0 && c->fd < 1024 ? c->fd : 0;
    if (strcmp(c->what, "open") == 0) {
        d->of_fd[fd] = -1;
        if (strcmp(c->path, folder) == 0) d->folder_fd = fd;
        if (strstr(c->path, ".tmp.") == NULL) return;
        assert_true(d->n_inode < MAX_INODES);
        name_of(d, c->path)->now = d->of_fd[fd] = d->n_inode++;
    } else if (strcmp(c->what, "write") == 0 && d->of_fd[fd] >= 0) {
        Inode *i = &d->inode[d->of_fd[fd]];
        i->now = realloc(i->now, (size_t)(i->n + c->bytes));
        memcpy(i->now + i->n, c->data, (size_t)c->bytes);
        i->n += c->bytes;
    } else if (strcmp(c->what, "fsync") == 0 && fd == d->folder_fd) {
        for (int i = 0; i < d->n_name; i++)
            d->name[i].sure = d->name[i].now;
    } else if (strcmp(c->what, "fsync") == 0 && d->of_fd[fd] >= 0) {
        d->inode[d->of_fd[fd]].sure = d->inode[d->of_fd[fd]].n;
    } else if (strcmp(c->what, "close") == 0) {
        if (fd == d->folder_fd) d->folder_fd = -1;
        d->of_fd[fd] = -1;
    } else if (strcmp(c->what, "rename") == 0 || strcmp(c->what, "link") == 0) {
        int from = name_of(d, c->path)->now;
        name_of(d, c->to)->now = from;
        if (strcmp(c->what, "rename") == 0) name_of(d, c->path)->now = -1;
    } else if (strcmp(c->what, "unlink") == 0) {
        name_of(d, c->path)->now = -1;
    }
}

/* What the disk may hold of a file: all that was synced; of the rest each sector or not, and zeros for
 * those that are missing; or it ends somewhere. */
static int64_t after_the_cut(const Inode *i, uint64_t random, char *out)
{
    memcpy(out, i->now, (size_t)i->n);
    int64_t n = i->n;
    if (i->sure == i->n) return n;
    for (int64_t s = i->sure / SECTOR; s * SECTOR < i->n; s++) {
        int64_t from = s * SECTOR > i->sure ? s * SECTOR : i->sure;
        int64_t to = (s + 1) * SECTOR < i->n ? (s + 1) * SECTOR : i->n;
        if (dlt_hash(&s, sizeof s, random) & 1) memset(out + from, 0, (size_t)(to - from));
    }
    if (random & 2) n = i->sure + (int64_t)(random >> 8) % (n - i->sure + 1);
    return n;
}

/* One state after a cut; the number of checkpoints that were looked at. */
static int look_at_disk(Disk *d, uint64_t seed, int64_t saved)
{
    static char bytes[1 << 16];
    int n = 0;
    bool last_seen = false;
    for (int k = 0; k < d->n_name; k++) {
        const Name *name = &d->name[k];
        uint64_t random = dlt_hash(&k, sizeof k, seed);
        int inode = random & 1 ? name->now : name->sure;
        bool temporary = strstr(name->path, ".tmp.") != NULL;
        if (inode < 0 || temporary || strstr(name->path, ".bin") == NULL) continue;
        DltArena *arena = dlt_arena_new();
        DltErr err;
        dlt_err_init(&err);
        DltCheckpoint *c = NULL;
        int64_t size = after_the_cut(&d->inode[inode], random >> 1, bytes);
        if (dlt_checkpoint_parse(arena, name->path, bytes, size, &c, &err) != DLT_OK)
            fail_msg("after a power cut: %s", err.report[0].text);
        bool last = strstr(name->path, "/last.bin") != NULL;
        if (last && c->meta.step < saved)
            fail_msg("step %lld was reported as saved, last.bin has %lld", (long long)saved,
                     (long long)c->meta.step);
        last_seen |= last;
        dlt_arena_free(arena);
        n++;
    }
    if (saved > 0 && !last_seen) fail_msg("last.bin is gone after step %lld", (long long)saved);
    return n;
}

static void power_cuts(void **state)
{
    (void)state;
    Record *r = calloc(1, sizeof *r);
    record_saves(r, "power");
    Disk *d = calloc(1, sizeof *d);
    memset(d->of_fd, 0xff, sizeof d->of_fd);
    d->folder_fd = -1;
    int64_t saved = 0, n_state = 0, n_file = 0;
    int variants = full() ? 900 : 12;
    for (int i = 0; i < r->n; i++) {
        apply(d, &r->call[i], "power");
        if (r->call[i].saved > 0) saved = r->call[i].saved;
        for (int v = 0; v < variants; v++) {
            if (!in_part(v)) continue;
            n_file += look_at_disk(d, (uint64_t)(i * 1000 + v), saved);
            n_state++;
        }
    }
    print_message("%lld power cuts behind %d file calls: %lld checkpoints whole\n",
                  (long long)n_state, r->n, (long long)n_file);
    assert_true(n_state >= share(full() ? 100000 : 1000));
    free_record(r);
    for (int i = 0; i < d->n_inode; i++)
        free(d->inode[i].now);
    free(d);
}

/* ---- (3) killed behind each file call ----------------------------------------------------- */

static void kill_at(void *ctx, const DltSysCall *c)
{
    (void)c;
    long long *left = ctx;
    if (__atomic_sub_fetch(left, 1, __ATOMIC_SEQ_CST) == 0) kill(getpid(), SIGKILL);
}

static const char *saving_config(DltArena *arena)
{
    char *text = (char *)setup_config(arena, &setups[0]);
    char *every = strstr(text, "{every: 4 steps, keep");
    memcpy(every, "{every: 1 steps, keep", 21);
    return text;
}

/* True when the run was cut. */
static bool train_killed(const char *text, long long k)
{
    int result;
    pid_t pid = fork();
    if (pid == 0) {
        dlt_fault_watch(kill_at, &k);
        _exit((int)train(text, (DltRunOptions){.out = "cut"})->status);
    }
    assert_int_equal(waitpid(pid, &result, 0), pid);
    assert_true(WIFSIGNALED(result) ? WTERMSIG(result) == SIGKILL : WEXITSTATUS(result) == 0);
    return WIFSIGNALED(result);
}

static void killed_at_every_call(void **state)
{
    (void)state;
    DltArena *arena = dlt_arena_new();
    const char *text = saving_config(arena);
    long long k = 1, n = 0;
    done(train(text, (DltRunOptions){.out = "whole"}), DLT_OK);
    for (bool cut = true; cut; k += full() ? 1 : 23) {
        if (!in_part(k) && k < MAX_CALLS) continue;
        remove_folder("cut");
        cut = train_killed(text, k);
        bool saved = access("cut/last.bin", F_OK) == 0;
        if (saved) done(resume(text, "cut/last.bin", (DltRunOptions){0}), DLT_OK);
        if (!saved) done(train(text, (DltRunOptions){.out = "cut"}), DLT_OK);
        same_tensors("whole/last.bin", "cut/last.bin");
        same_tensors("whole/best.bin", "cut/best.bin");
        assert_int_equal(same_rows("whole", "cut"), 9);
        n += cut;
    }
    print_message("killed behind %lld file calls of a run: all go on to the same bits\n", n);
    assert_true(n >= share(full() ? 300 : 12));
    dlt_arena_free(arena);
}

/* ---- (4) a disk that is full -------------------------------------------------------------- */

static uint64_t hash_of(DltArena *arena, const char *path)
{
    DltErr err;
    dlt_err_init(&err);
    char *bytes = NULL;
    int64_t n = 0;
    assert_int_equal(dlt_file_read(arena, path, (DltFileRule){1 << 24, DLT_E_BUG, DLT_NO_MARK},
                                   &bytes, &n, &err),
                     DLT_OK);
    return dlt_hash(bytes, (size_t)n, 1);
}

static void count_temp(void *n, const char *name)
{
    *(int *)n += strstr(name, ".tmp.") != NULL;
}

static const char large[] =
    "dltrain: 1\nname: l\ndata: {train: {synthetic: {shape: [400], classes: 3, samples: 8}}}\n"
    "model: [{dense: 440}, {dense: 3}]\nloss: cross_entropy\n"
    "train: {for: 4 steps, batch: 4, optimizer: {adam: {lr: 0.01}}}\n"
    "checkpoint: {every: 1 steps, keep: {last: 0}}\n";

static void full_at_every_page(void **state)
{
    (void)state;
    enum { PAGE = 4096, PAGES = 512 };
    DltArena *arena = dlt_arena_new();
    int n = 0;
    done(train(large, (DltRunOptions){.out = "page", .stop_at = 2}), DLT_STOPPED);
    uint64_t before = hash_of(arena, "page/last.bin");
    for (int page = 1; page <= PAGES; page += full() ? 1 : 37) {
        if (!in_part(page)) continue;
        int result, temps = 0;
        pid_t pid = fork();
        if (pid == 0) {
            struct rlimit limit = {(rlim_t)page * PAGE, (rlim_t)page * PAGE};
            signal(SIGXFSZ, SIG_IGN);
            if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(99);
            _exit((int)resume(large, "page/last.bin", (DltRunOptions){0})->status);
        }
        assert_int_equal(waitpid(pid, &result, 0), pid);
        assert_true(WIFEXITED(result));
        assert_int_equal(WEXITSTATUS(result), DLT_E_RESOURCE);
        if (hash_of(arena, "page/last.bin") != before)
            fail_msg("last.bin changed at page %d", page);
        assert_true(dlt_sys_list("page", count_temp, &temps));
        assert_int_equal(temps, 0);
        n++;
    }
    print_message("full at %d places of 4 KiB: exit 6, the checkpoint from before untouched\n", n);
    done(resume(large, "page/last.bin", (DltRunOptions){0}), DLT_OK);
    dlt_arena_free(arena);
}

int main(int argc, char **argv)
{
    FILTER_TESTS(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(write_order),
        cmocka_unit_test(power_cuts),
        cmocka_unit_test(killed_at_every_call),
        cmocka_unit_test(full_at_every_page),
    };
    return cmocka_run_group_tests(tests, start, finish);
}
