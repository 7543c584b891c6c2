/* The record is made of memory that lies ready, so that it can be written when memory is out or inside
 * the handler of a fatal signal. There is one run in a process at a time. */
#include "exec/capsule.h"
#include "base/fatal.h"
#include "base/log.h"
#include "base/sys.h"
#include <fcntl.h>
#include <stdatomic.h>
#include <unistd.h>

enum { FOLDER_BYTES = 1024, PATH_BYTES = FOLDER_BYTES + 16 };

static struct {
    char folder[FOLDER_BYTES], about[8192];
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

/* Text as the inside of a JSON string, cut where it gets too long; what needs escapes becomes '. */
static void json_text(const char *text, char *out, size_t size)
{
    size_t i = 0;
    for (; i + 1 < size && text[i] != '\0'; i++) {
        bool plain = (unsigned char)text[i] >= 0x20 && text[i] != '"' && text[i] != '\\';
        out[i] = text[i];
        if (!plain) out[i] = '\'';
    }
    out[i] = '\0';
}

static int open_file(const char *name, int flags)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", capsule.folder, name);
    return dlt_sys_open(path, flags | O_CLOEXEC, 0666);
}

/* The end record and the log's last line, as dlt_run_folder_end writes them. */
static void write_end(const char *cause, int code)
{
    char reason[512], text[700];
    int last = open_file("last.bin", O_RDONLY);
    if (last >= 0) dlt_sys_close(last);
    json_text(cause, reason, sizeof reason);
    snprintf(text, sizeof text, "end: exit %d: %s\n", code, reason);
    int fd = open_file("log.txt", O_WRONLY | O_APPEND);
    bool ok = fd >= 0 && put(fd, text);
    if (fd >= 0) dlt_sys_close(fd);
    snprintf(text, sizeof text,
             "{\"exit\": %d, \"reason\": \"%s\", \"step\": %lld, \"checkpoint\": %s, \"time\": "
             "%.0f}\n",
             code, reason, (long long)capsule.step, last >= 0 ? "\"last.bin\"" : "null",
             dlt_sys_wall_s());
    fd = open_file("status.json", O_WRONLY | O_CREAT | O_TRUNC);
    ok = fd >= 0 && put(fd, text) && ok;
    if (fd >= 0) dlt_sys_close(fd);
    if (!ok) dlt_log_debug("the end record is not whole");
}

static void write_record(const char *cause, int code)
{
    char text[96];
    if (!capsule.armed) return;
    if (code != 0) write_end(cause, code);
    int fd = open_file("crash.txt", O_WRONLY | O_CREAT | O_TRUNC);
    if (fd < 0) return;
    snprintf(text, sizeof text, "\nstep: %lld\n", (long long)capsule.step);
    bool ok = put(fd, "cause: ") && put(fd, cause) && put(fd, text) && put(fd, capsule.about) &&
              put(fd, "last lines of the log:\n") && dlt_log_recent(put_line, &fd);
    if (!ok) dlt_log_debug("the record of the failure is not whole");
    dlt_sys_close(fd);
}

void dlt_capsule_arm(const char *folder, const char *about)
{
    char path[PATH_BYTES];
    if (snprintf(capsule.folder, FOLDER_BYTES, "%s", folder) >= FOLDER_BYTES) return;
    snprintf(path, sizeof path, "%s/crash.txt", folder);
    snprintf(capsule.about, sizeof capsule.about, "%s", about);
    dlt_sys_unlink(path);
    capsule.armed = true;
    dlt_fatal_hook(write_record);
}

void dlt_capsule_step(int64_t step)
{
    capsule.step = step;
}

void dlt_capsule_write(const char *cause)
{
    write_record(cause, 0);
    dlt_capsule_disarm();
}

void dlt_capsule_disarm(void)
{
    capsule.armed = false;
    dlt_fatal_hook(NULL);
}
