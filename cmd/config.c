/* dltrain config: the resolved config, which loads again as itself, and the digits that stand for it. */
#include "cmd/cmd.h"

#include "base/rng.h"

#include <inttypes.h>

static DltStatus run(const DltArgs *args, DltErr *err)
{
    DltSpec *spec = NULL;
    DLT_TRY(
        dlt_spec_read(args->arena, args->word[0], args->n_override, args->override, &spec, err));
    const char *text = dlt_yaml_write(args->arena, spec->resolved);
    if (args->hash)
        printf("%016" PRIx64 "\n", dlt_hash(text, strlen(text), 0));
    else
        fputs(text, stdout);
    return DLT_OK;
}

const DltCommand dlt_command_config = {
    .name = "config",
    .words = "CONFIG [key=value...]",
    .help = "the resolved config: every default written out",
    .min_word = 1,
    .max_word = 1,
    .options = (const char *const[]){"hash", NULL},
    .run = run,
};
