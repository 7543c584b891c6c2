/* The record is made of memory that lies ready, so that it can be written when memory is out or inside
 * the handler of a fatal signal. There is one run in a process at a time. */
#include "exec/capsule.h"
#include "base/fatal.h"
#include "base/log.h"
#include "base/sys.h"
#include <fcntl.h>
#include <stdatomic.h>
#include <unistd.h>

static struct {
    char path[1024], about[8192];
    atomic_llong step;
    atomic_bool armed;
} capsule;

static bool put(int fd, const char *text)
{
    return dlt_sys_write_all(fd, text, strlen(text));
}

static bool put_line(void *ctx, const char *line)
{
    return put(*(int *)ctx, line);
}

static void write_record(const char *cause)
{
    char text[96];
    if (!capsule.armed) return;
    int fd = dlt_sys_open(capsule.path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return;
    snprintf(text, sizeof text, "\nstep: %lld\n", (long long)capsule.step);
    bool ok = put(fd, "cause: ") && put(fd, cause) && put(fd, text) && put(fd, capsule.about) &&
              put(fd, "last lines of the log:\n") && dlt_log_recent(put_line, &fd);
    if (!ok) dlt_log_debug("the record of the failure is not whole");
    dlt_sys_close(fd);
}

void dlt_capsule_arm(const char *folder, const char *about)
{
    int n = snprintf(capsule.path, sizeof capsule.path, "%s/crash.txt", folder);
    if (n >= (int)sizeof capsule.path) return;
    snprintf(capsule.about, sizeof capsule.about, "%s", about);
    dlt_sys_unlink(capsule.path);
    capsule.armed = true;
    dlt_fatal_hook(write_record);
}

void dlt_capsule_step(int64_t step)
{
    capsule.step = step;
}

void dlt_capsule_write(const char *cause)
{
    write_record(cause);
    dlt_capsule_disarm();
}

void dlt_capsule_disarm(void)
{
    capsule.armed = false;
    dlt_fatal_hook(NULL);
}
