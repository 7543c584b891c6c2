/* Lines for people. Progress goes to stderr (and log.txt of a run); results go to stdout by cmd. */
#ifndef DLT_LOG_H
#define DLT_LOG_H

#include "base/err.h"

typedef enum DltLogLevel { DLT_LOG_QUIET, DLT_LOG_INFO, DLT_LOG_DEBUG } DltLogLevel;

void dlt_log_level(DltLogLevel level);
/* One line to stderr and, when set, to the log file. Ends any live progress line first. */
void dlt_log(const char *fmt, ...) DLT_PRINTF(1, 2);
void dlt_log_debug(const char *fmt, ...) DLT_PRINTF(1, 2);
/* The live line of a terminal: replaced in place; nothing when stderr is no terminal. */
void dlt_log_live(const char *fmt, ...) DLT_PRINTF(1, 2);
bool dlt_log_is_terminal(void);
/* The last lines (up to 40, cut at 255 bytes), oldest first, as long as each(ctx, line) is true; false
 * when it ended that. For records of failures: takes no lock and allocates nothing. */
bool dlt_log_recent(bool (*each)(void *ctx, const char *line), void *ctx);
/* fd that receives a copy of each line (log.txt), -1 for none. Not owned. */
void dlt_log_copy_to(int fd);

#endif
