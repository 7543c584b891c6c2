/* A backend whose calls are watched: each goes through to the real one between enter and leave. Kernels'
 * own calls are watched where they are prepared and launched. There is one device in a process at a
 * time, so the backend behind has one place. */
#include "base/watch.h"
#include "exec/session.h"

static const DltBackend *real;

#define WATCHED(what, type, call)                                                                  \
    dlt_watch_enter(what);                                                                         \
    type result = real->call;                                                                      \
    dlt_watch_leave();                                                                             \
    return result

static DltStatus open_device(DltArena *arena, const DltDeviceOptions *o, DltDevice **dev,
                             DltErr *err)
{
    WATCHED("opening it", DltStatus, open(arena, o, dev, err));
}

static void close_device(DltDevice *dev)
{
    dlt_watch_enter("closing it");
    real->close(dev);
    dlt_watch_leave();
}

static void info(DltDevice *dev, DltDeviceInfo *i)
{
    dlt_watch_enter("asking what it is");
    real->info(dev, i);
    dlt_watch_leave();
}

static DltStatus alloc(DltDevice *dev, size_t bytes, void **ptr, DltErr *err)
{
    WATCHED("getting memory", DltStatus, alloc(dev, bytes, ptr, err));
}

static void release(DltDevice *dev, void *ptr)
{
    dlt_watch_enter("giving memory back");
    real->release(dev, ptr);
    dlt_watch_leave();
}

static void *host_alloc(DltDevice *dev, size_t bytes)
{
    WATCHED("getting host memory", void *, host_alloc(dev, bytes));
}

static void host_release(DltDevice *dev, void *ptr)
{
    dlt_watch_enter("giving host memory back");
    real->host_release(dev, ptr);
    dlt_watch_leave();
}

static DltStatus upload(DltStream *s, void *dst, const void *src, size_t bytes, DltErr *err)
{
    WATCHED("an upload", DltStatus, upload(s, dst, src, bytes, err));
}

static DltStatus download(DltStream *s, void *dst, const void *src, size_t bytes, DltErr *err)
{
    WATCHED("a download", DltStatus, download(s, dst, src, bytes, err));
}

static DltStatus zero(DltStream *s, void *dst, size_t bytes, DltErr *err)
{
    WATCHED("filling memory", DltStatus, zero(s, dst, bytes, err));
}

static DltStatus record_begin(DltDevice *dev, DltErr *err)
{
    WATCHED("beginning a recording", DltStatus, record_begin(dev, err));
}

static DltStatus record_end(DltDevice *dev, void **program, DltErr *err)
{
    WATCHED("ending a recording", DltStatus, record_end(dev, program, err));
}

static DltStatus replay(DltDevice *dev, void *program, DltErr *err)
{
    WATCHED("starting a recorded step", DltStatus, replay(dev, program, err));
}

static DltStatus wait(DltDevice *dev, int lane, int other, DltErr *err)
{
    WATCHED("joining lanes", DltStatus, wait(dev, lane, other, err));
}

static DltStatus sync(DltDevice *dev, DltErr *err)
{
    WATCHED("waiting for it", DltStatus, sync(dev, err));
}

static void close_watch(void *unused)
{
    (void)unused;
    dlt_watch_close();
}

DltStatus dlt_watched_backend(DltArena *arena, double seconds, const DltBackend **backend,
                              DltErr *err)
{
    if (*backend == &dlt_backend_cpu || seconds <= 0) return DLT_OK;
    DltBackend *outer = DLT_NEW(arena, DltBackend);
    real = *backend;
    *outer = *real;
    outer->open = open_device;
    outer->close = close_device;
    outer->info = info;
    outer->alloc = alloc;
    outer->release = release;
    outer->host_alloc = host_alloc;
    outer->host_release = host_release;
    outer->upload = upload;
    outer->download = download;
    outer->zero = zero;
    if (real->record_begin != NULL) outer->record_begin = record_begin;
    if (real->record_end != NULL) outer->record_end = record_end;
    if (real->replay != NULL) outer->replay = replay;
    if (real->wait != NULL) outer->wait = wait;
    outer->sync = sync;
    *backend = outer;
    dlt_arena_on_free(arena, close_watch, NULL);
    if (dlt_watch_open(seconds)) return DLT_OK;
    return dlt_err(err, DLT_E_RESOURCE, "no thread to watch the device with");
}
