/* The table of files and the hook are the process's only knowledge of what it has under way; both
 * have fixed places, for the sake of signal handlers. */
#include "base/fatal.h"
#include "base/sys.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

enum { N_FILE = 16, PATH_BYTES = 1024 };

static struct {
    atomic_bool used;
    char path[PATH_BYTES];
} files[N_FILE];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void (*_Atomic record_hook)(const char *cause, int code);
static atomic_bool ending;
static atomic_int n_making; /* threads between dlt_fatal_file and dlt_fatal_file_made */

void dlt_fatal_file(const char *path)
{
    size_t n = strlen(path);
    n_making++;
    if (ending) n_making--;
    while (ending)
        dlt_sys_pause_ms(1000); /* another thread ends the process */
    if (n >= PATH_BYTES) return;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < N_FILE; i++) {
        if (files[i].used) continue;
        memcpy(files[i].path, path, n + 1);
        files[i].used = true;
        break;
    }
    pthread_mutex_unlock(&lock);
}

void dlt_fatal_file_made(void)
{
    n_making--;
}

void dlt_fatal_file_drop(const char *path)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < N_FILE; i++)
        if (files[i].used && strcmp(files[i].path, path) == 0) files[i].used = false;
    pthread_mutex_unlock(&lock);
}

void dlt_fatal_hook(void (*record)(const char *cause, int code))
{
    record_hook = record;
}

void dlt_fatal_run(const char *cause, int code)
{
    enum { WAIT_MS = 1000 }; /* and no longer: the failed thread may be one that makes a file */
    if (atomic_exchange(&ending, true)) return;
    for (int ms = 0; n_making > 0 && ms < WAIT_MS; ms++)
        dlt_sys_pause_ms(1);
    for (int i = 0; i < N_FILE; i++)
        if (files[i].used) unlink(files[i].path);
    void (*record)(const char *cause, int code) = record_hook;
    if (record != NULL) record(cause, code);
}

static const struct {
    int number;
    const char *cause;
} fatal[] = {{SIGSEGV, "signal SIGSEGV: memory that is not there was used"},
             {SIGBUS, "signal SIGBUS: memory that is not there was used"},
             {SIGFPE, "signal SIGFPE: an impossible division"},
             {SIGILL, "signal SIGILL: an unknown machine instruction"},
             {SIGABRT, "signal SIGABRT: the program gave up"}};

/* The handler was removed when it was entered, so raising the signal again ends the process. */
static void on_fatal(int number)
{
    for (size_t i = 0; i < sizeof fatal / sizeof fatal[0]; i++)
        if (fatal[i].number == number) dlt_fatal_run(fatal[i].cause, 0);
    raise(number);
}

void dlt_fatal_signals(void)
{
    struct sigaction action = {.sa_handler = on_fatal, .sa_flags = (int)SA_RESETHAND | SA_NODEFER};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof fatal / sizeof fatal[0]; i++)
        sigaction(fatal[i].number, &action, NULL);
}
