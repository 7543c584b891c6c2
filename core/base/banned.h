/* Functions that cannot be used safely become compile errors. Included by err.h, so everywhere. */
#ifndef DLT_BANNED_H
#define DLT_BANNED_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__GNUC__) && !defined(__cplusplus) && !defined(DLT_ALLOW_BANNED)
#pragma GCC poison strcpy strcat strncpy strncat sprintf vsprintf strtok atoi atol atoll atof gets
#endif

#endif
