/* dltrain version: program, build and the libraries it runs with. */
#include "cmd/cmd.h"

#include <jansson.h>
#include <yaml.h>
#include <zlib.h>

const char *dlt_version(void)
{
    return DLT_VERSION; /* from the Makefile */
}

static DltStatus run(const DltArgs *args, DltErr *err)
{
    (void)args;
    (void)err;
    printf("dltrain %s\nlibyaml %s, zlib %s, jansson %s\n", dlt_version(),
           yaml_get_version_string(), zlibVersion(), JANSSON_VERSION);
    return DLT_OK;
}

const DltCommand dlt_command_version = {
    .name = "version",
    .words = "",
    .help = "version, build and libraries",
    .min_word = 0,
    .max_word = 0,
    .options = NULL,
    .run = run,
};
