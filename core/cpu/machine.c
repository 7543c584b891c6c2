/* What the operating system says about this machine: processor and memory, from /proc and the
 * control group (version 2). Unknown values stay empty or 0. */
#include "base/sys.h"
#include "cpu/device.h"
#include <fcntl.h>

enum { TEXT = 4096 }; /* the first processor of /proc/cpuinfo and all of meminfo's head */

static bool read_text(const char *path, char text[TEXT])
{
    int fd = dlt_sys_open(path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) return false;
    int64_t n = dlt_sys_read(fd, text, TEXT - 1);
    if (dlt_sys_close(fd) != 0 || n < 0) return false;
    text[n] = '\0';
    return true;
}

/* "key: 123 kB" -> bytes, 0 when absent */
static int64_t field_bytes(const char *text, const char *key)
{
    const char *at = strstr(text, key);
    return at != NULL ? strtoll(at + strlen(key), NULL, 10) * 1024 : 0;
}

/* A number alone in a file ("max" and missing files give -1). */
static int64_t file_number(const char *path)
{
    char text[TEXT], *end;
    if (!read_text(path, text)) return -1;
    int64_t value = strtoll(text, &end, 10);
    return end != text ? value : -1;
}

static void processor_name(char *name, size_t n)
{
    char text[TEXT];
    const char *at = read_text("/proc/cpuinfo", text) ? strstr(text, "model name") : NULL;
    const char *colon = at != NULL ? strchr(at, ':') : NULL;
    if (colon == NULL) {
        snprintf(name, n, "cpu");
        return;
    }
    snprintf(name, n, "%.*s", (int)strcspn(colon + 1, "\n") - 1, colon + 2);
}

void dlt_cpu_machine(DltDeviceInfo *info)
{
    char text[TEXT];
    processor_name(info->name, sizeof info->name);
    if (read_text("/proc/meminfo", text)) {
        info->memory_bytes = field_bytes(text, "MemTotal:");
        info->free_bytes = field_bytes(text, "MemAvailable:");
    }
    int64_t limit = file_number("/sys/fs/cgroup/memory.max");
    int64_t used = file_number("/sys/fs/cgroup/memory.current");
    if (limit < 0 || used < 0) return;
    int64_t left = limit > used ? limit - used : 0;
    if (limit < info->memory_bytes) info->memory_bytes = limit;
    if (left < info->free_bytes) info->free_bytes = left;
}
