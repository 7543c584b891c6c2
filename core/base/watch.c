/* Time is counted in looks of the watching thread and not by the clock, so a process that was stopped
 * for an hour and goes on is not taken for one that hangs. */
#include "base/watch.h"
#include "base/sys.h"
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

enum { LOOKS = 8 }; /* without progress, and the call counts as hanging */

static void (*_Atomic hang_hook)(const char *what, double seconds);
static _Atomic(const char *) inside; /* the outermost call, NULL: none */
static atomic_int depth;
static atomic_ullong n_call; /* progress */
static atomic_bool over;     /* the process is being ended */
static struct {
    pthread_t thread;
    bool started;
    double seconds;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stopping; /* under the lock */
} watch = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

void dlt_watch_on_hang(void (*hang)(const char *what, double seconds))
{
    hang_hook = hang;
}

void dlt_watch_enter(const char *what)
{
    if (atomic_fetch_add(&depth, 1) == 0) inside = what;
    atomic_fetch_add(&n_call, 1);
}

void dlt_watch_leave(void)
{
    if (atomic_fetch_sub(&depth, 1) == 1) inside = NULL;
    atomic_fetch_add(&n_call, 1);
    while (over)
        pause();
}

/* One look's time, or less when the watch is closed. Under the lock. */
static void rest(void)
{
    double at = dlt_sys_wall_s() + watch.seconds / LOOKS;
    struct timespec until = {.tv_sec = (time_t)at};
    until.tv_nsec = (long)((at - (double)until.tv_sec) * 1e9);
    pthread_cond_timedwait(&watch.changed, &watch.lock, &until);
}

static void *look_on(void *unused)
{
    unsigned long long seen = 0;
    int n = 0;
    (void)unused;
    dlt_mem_beside();
    pthread_mutex_lock(&watch.lock);
    while (!watch.stopping) {
        unsigned long long now = n_call;
        const char *what = inside;
        n = what != NULL && now == seen ? n + 1 : 0;
        seen = now;
        void (*hang)(const char *, double) = hang_hook;
        if (n > LOOKS && hang != NULL) {
            over = true;
            hang(what, watch.seconds);
        }
        rest();
    }
    pthread_mutex_unlock(&watch.lock);
    return NULL;
}

bool dlt_watch_open(double seconds)
{
    if (watch.started || hang_hook == NULL || seconds <= 0) return true;
    watch.seconds = seconds;
    watch.stopping = false;
    return watch.started = dlt_sys_thread(&watch.thread, look_on, NULL);
}

void dlt_watch_close(void)
{
    if (!watch.started) return;
    pthread_mutex_lock(&watch.lock);
    watch.stopping = true;
    pthread_cond_broadcast(&watch.changed);
    pthread_mutex_unlock(&watch.lock);
    pthread_join(watch.thread, NULL);
    watch.started = false;
}
