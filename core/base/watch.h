/* Calls that never return. A device that is lost may leave its driver's calls hanging, and nothing that
 * waits for them can tell. A thread of ours looks on: when the process is inside one and the same
 * watched call for too long, what was set with dlt_watch_on_hang ends the process. */
#ifndef DLT_WATCH_H
#define DLT_WATCH_H

#include "base/err.h"

/* hang(what, seconds) is called on the watch's thread and does not return: while it works, the watched
 * thread is held should its call come back after all. NULL: nobody watches. */
void dlt_watch_on_hang(void (*hang)(const char *what, double seconds));
/* Begins to look on; calls may take so many seconds. False when there is no thread for it. Once begun
 * it stays as it is until it is closed. Without a hang function, or with 0 seconds: true, and nothing
 * happens. */
bool dlt_watch_open(double seconds);
void dlt_watch_close(void);
/* The calling thread, one at a time, goes into a call and comes back. `what` outlives the call. They
 * nest: the outermost is named, and every inner one counts as progress. */
void dlt_watch_enter(const char *what);
void dlt_watch_leave(void);

#endif
