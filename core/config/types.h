/* How field types and their values are called and written: shared by the messages of the reader,
 * resolved configs and `explain`. */
#ifndef DLT_TYPES_H
#define DLT_TYPES_H

#include "config/schema.h"

enum { DLT_EXPECTS_TEXT = 256, DLT_RANGE_TEXT = 80 };
/* "an integer", "one of same, valid", ... */
const char *dlt_field_expects(const DltField *field, char buf[DLT_EXPECTS_TEXT]);
/* "[1, 16777216]", "(0, 10]", ">= 1"; "" when unbounded. */
const char *dlt_field_range(const DltField *field, char buf[DLT_RANGE_TEXT]);

#endif
