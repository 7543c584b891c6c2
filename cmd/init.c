/* dltrain init: a starter config on stdout. The texts are the example configs of the repository,
 * compiled in by the Makefile (build/<key>/starters.c). */
#include "cmd/cmd.h"

typedef struct Starter {
    const char *name, *text;
} Starter;
extern const Starter dlt_starters[]; /* ends with a NULL name */

static DltStatus run(const DltArgs *args, DltErr *err)
{
    const char *names[16];
    int n = 0;
    for (; n < 15 && dlt_starters[n].name; n++) {
        if (strcmp(dlt_starters[n].name, args->word[0]) == 0) {
            fputs(dlt_starters[n].text, stdout);
            return DLT_OK;
        }
        names[n] = dlt_starters[n].name;
    }
    names[n] = NULL;
    char list[256] = "";
    for (int i = 0; i < n; i++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", names[i]);
    }
    return dlt_err(err, DLT_E_CONFIG, "init: no starter named '%s'; known: %s", args->word[0],
                   list);
}

const DltCommand dlt_command_init = {
    .name = "init",
    .words = "mlp|cnn|resnet|table",
    .help = "a starter config on standard output",
    .min_word = 1,
    .max_word = 1,
    .options = NULL,
    .run = run,
};
