/* Lines to stderr and to a run's log.txt. A line leaves in one write, so lines of several threads
 * do not mix. The level, the copy's descriptor and "a live line is shown" are the only state. */
#include "base/log.h"
#include "base/sys.h"
#include <stdatomic.h>
#include <unistd.h>

enum { LINE_BYTES = 8192, RECENT = 40, RECENT_BYTES = 256 };

static atomic_int log_level = DLT_LOG_INFO;
static atomic_int copy_fd = -1;
static atomic_bool live_shown;
static char recent[RECENT][RECENT_BYTES]; /* a ring */
static atomic_uint n_recent;

#define ERASE_LINE "\r\033[K"

void dlt_log_level(DltLogLevel level)
{
    log_level = (int)level;
}

bool dlt_log_is_terminal(void)
{
    return isatty(STDERR_FILENO) == 1;
}

void dlt_log_copy_to(int fd)
{
    copy_fd = fd;
}

/* A line that cannot be written must not stop a run. */
static void put(int fd, const char *bytes, size_t n)
{
    bool written = dlt_sys_write_all(fd, bytes, n);
    (void)written;
}

static void remember(const char *text, size_t n)
{
    char *slot = recent[atomic_fetch_add(&n_recent, 1) % RECENT];
    size_t kept = n < RECENT_BYTES ? n : RECENT_BYTES - 1;
    memcpy(slot, text, kept);
    slot[kept - 1] = '\n';
    slot[kept] = '\0';
}

bool dlt_log_recent(bool (*each)(void *ctx, const char *line), void *ctx)
{
    unsigned n = n_recent;
    for (unsigned i = n > RECENT ? n - RECENT : 0; i < n; i++)
        if (!each(ctx, recent[i % RECENT])) return false;
    return true;
}

static void line(const char *fmt, va_list args) DLT_PRINTF(1, 0);

static void line(const char *fmt, va_list args)
{
    char buf[sizeof ERASE_LINE + LINE_BYTES] = ERASE_LINE;
    char *text = buf + sizeof ERASE_LINE - 1;
    int n = vsnprintf(text, LINE_BYTES, fmt, args);
    if (n < 0) return;
    if (n >= LINE_BYTES) {
        n = LINE_BYTES - 1;
        memset(text + n - 3, '.', 3);
    }
    text[n] = '\n';
    size_t len = (size_t)n + 1;
    remember(text, len);
    if (log_level != DLT_LOG_QUIET) {
        size_t erase = atomic_exchange(&live_shown, false) ? sizeof ERASE_LINE - 1 : 0;
        put(STDERR_FILENO, text - erase, len + erase);
    }
    if (copy_fd >= 0) put(copy_fd, text, len);
}

void dlt_log(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    line(fmt, args);
    va_end(args);
}

void dlt_log_debug(const char *fmt, ...)
{
    if (log_level != DLT_LOG_DEBUG) return;
    va_list args;
    va_start(args, fmt);
    line(fmt, args);
    va_end(args);
}

void dlt_log_live(const char *fmt, ...)
{
    if (log_level == DLT_LOG_QUIET || !dlt_log_is_terminal()) return;
    char buf[LINE_BYTES] = ERASE_LINE;
    size_t erase = sizeof ERASE_LINE - 1;
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(buf + erase, sizeof buf - erase, fmt, args);
    va_end(args);
    if (n < 0) return;
    live_shown = true;
    put(STDERR_FILENO, buf, strlen(buf));
}
