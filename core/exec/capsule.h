/* What a run leaves when it ends badly: crash.txt in its folder, with the cause, where the run was, the
 * plan, the environment and the last lines of the log. Private to core/exec. */
#ifndef DLT_CAPSULE_H
#define DLT_CAPSULE_H

#include "base/err.h"

/* From now on a fatal end of the process writes `folder`/crash.txt; `about` (lines of text, copied,
 * at most 8 KiB) says what was running. An older crash.txt is removed. */
void dlt_capsule_arm(const char *folder, const char *about);
/* Where the run is, kept for the record. */
void dlt_capsule_step(int64_t step);
/* The run failed in an orderly way: the same record. Nothing when it is not armed. */
void dlt_capsule_write(const char *cause);
/* The run ended well, or its folder is given up. */
void dlt_capsule_disarm(void);

#endif
