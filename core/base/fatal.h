/* What is still done when the process cannot go on: memory is out, a bug was found, a fatal signal
 * came. Half-written files are removed and one hook may leave a record. Everything works without
 * allocating and inside a signal handler. */
#ifndef DLT_FATAL_H
#define DLT_FATAL_H

#include "base/err.h"

/* A file that is about to be made and must not outlive a failed process, until it is dropped. The path is copied;
 * paths longer than 1,023 bytes, and more than 16 files at once, are not kept. dlt_fatal_file_made follows, whether
 * it was made or not: another thread that fails in between waits for it. Once the process has failed,
 * dlt_fatal_file does not return. */
void dlt_fatal_file(const char *path);
void dlt_fatal_file_made(void);
void dlt_fatal_file_drop(const char *path);
/* record(cause, code) is called once when the process fails; NULL: none. One at a time. */
void dlt_fatal_hook(void (*record)(const char *cause, int code));
/* Removes the files and calls the hook; code: what the process will exit with, 0: a signal ends it.
 * Only the first call does anything. */
void dlt_fatal_run(const char *cause, int code);
/* SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT run it and then end the process as they would have. */
void dlt_fatal_signals(void);

#endif
