/* The tables of commands, options, sections and registries as other programs want them: an editor, man,
 * bash. Nothing here is written by hand twice. */
#ifndef DLT_MANUAL_H
#define DLT_MANUAL_H

#include "cmd/cmd.h"

/* Field table of a section, "config" being the top level; NULL: it has none. */
const DltField *dlt_section_fields(const char *name);

/* Each prints to stdout. */
DltStatus dlt_manual_json(const DltArgs *args, DltErr *err) DLT_CHECKED; /* JSON Schema */
DltStatus dlt_manual_man(const DltArgs *args, DltErr *err) DLT_CHECKED;  /* dltrain.1 */
DltStatus dlt_manual_bash(const DltArgs *args, DltErr *err) DLT_CHECKED; /* completion */

#endif
