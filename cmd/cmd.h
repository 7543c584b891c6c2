/* Commands of the program: a row of name, help, words and options, and one function. Options are
 * field rows like everything else the user can set (config/schema.h), read into one DltArgs. */
#ifndef DLT_CMD_H
#define DLT_CMD_H

#include "exec/run.h"

typedef struct DltArgs {
    DltArena *arena;
    const char *program_folder; /* where the executable lies: plug-ins are looked for there */
    int n_word;                 /* words that are neither options nor key=value */
    const char *const *word;
    int n_override; /* path=value words */
    const char *const *override;
    /* options */
    const char *out, *device, *init, *data, *dump, *what_if, *tokenizer, *jsonl, *prompt, *walltime;
    int64_t threads, stop_at, train_bpe, shard, width, top_k, seed, max_tokens, steps;
    double temperature, top_p;
    bool json, quiet, eager, check, header, verbose, help, hash, origin, no_cache;
    bool json_schema, man, bash;
    const char *to, *weights, *only;
} DltArgs;

typedef struct DltCommand {
    const char *name, *words, *help; /* words: "CONFIG [key=value...]" */
    int min_word, max_word;          /* max -1: any number */
    const char *const *options;      /* names from dlt_options, NULL-terminated */
    DltStatus (*run)(const DltArgs *args, DltErr *err);
} DltCommand;

#define COMMAND(name) extern const DltCommand dlt_command_##name;
#include "cmd/commands.def"
#undef COMMAND

extern const DltCommand *const dlt_commands[]; /* NULL-terminated */
const DltCommand *dlt_command_find(const char *name);
extern const DltField dlt_options[];

/* Sorts argv into words, overrides and options. Unknown options name the nearest one (CONFIG). */
DltStatus dlt_args_read(const DltCommand *command, int argc, char *const argv[], DltArgs *args,
                        DltErr *err) DLT_CHECKED;
/* True when the command has this option, given by its key. */
bool dlt_command_takes(const DltCommand *command, const char *key);
/* "--stop-at" of an option's row. */
const char *dlt_option_name(const DltField *option, char buf[64]);
typedef struct DltExitCode {
    const char *code, *text;
} DltExitCode;
extern const DltExitCode dlt_exit_codes[]; /* ends with a NULL text */
/* Usage of one command; NULL: of the program. */
void dlt_usage(const DltCommand *command, FILE *out);

/* Shared by commands: the options as the run wants them. */
DltRunOptions dlt_run_options(const DltArgs *args);
/* Results to stdout: "name value" lines, or one JSON object that begins with checkpoint and split.
 */
DltStatus dlt_print_result(const DltArgs *args, const DltRunResult *result, const char *split,
                           DltErr *err) DLT_CHECKED;
/* CKPT or run folder (then its last.bin) -> path of the checkpoint file. */
const char *dlt_checkpoint_path(const DltArgs *args, const char *word);
/* Opens a checkpoint's spec: its stored config with the stored and the given overrides. */
DltStatus dlt_spec_from_checkpoint(const DltArgs *args, const DltCheckpoint *c, DltSpec **spec,
                                   DltErr *err) DLT_CHECKED;
/* The same from the file alone: no data file is looked at, and none can be loaded. */
DltStatus dlt_spec_from_checkpoint_alone(const DltArgs *args, const DltCheckpoint *c,
                                         DltSpec **spec, DltErr *err) DLT_CHECKED;
struct json_t; /* jansson.h */
/* Text as a JSON string: bytes that are no UTF-8 (an id may end inside a character) become U+FFFD. */
struct json_t *dlt_json_text(const DltText *text);
/* predict of a model of masked text: a line for each [MASK] in a text file. */
DltStatus dlt_fill_masks(const DltArgs *args, DltSpec *spec, const DltCheckpoint *c,
                         const char *file, DltErr *err) DLT_CHECKED;
const char *dlt_version(void); /* "0.1.0 (build 1a2b3c4)" */

#endif
