/* dltrain inspect: what a checkpoint holds. Every checksum is compared first; with --header only the
 * header is read, which takes no time however large the file. */
#include "cmd/cmd.h"

#include <math.h>

static void print_lines(const char *name, const char *text)
{
    if (!text) return;
    printf("%-12s ", name);
    for (const char *p = text; *p; p++)
        printf("%c%s", *p, *p == '\n' && p[1] ? "             " : "");
}

static void print_meta(const DltCheckpoint *c)
{
    const DltCheckpointMeta *m = &c->meta;
    printf("file         %s, %lld bytes\n", c->path, (long long)c->file_bytes);
    printf("config       %s\n", m->config_path);
    for (int i = 0; i < m->n_override; i++)
        printf("override     %s\n", m->override[i]);
    printf("program      %s on %s\n", m->program, m->device ? m->device : "?");
    printf("step         %lld (epoch %.2f, %lld samples)\n", (long long)m->step, m->epoch,
           (long long)m->position);
    printf("seed         %llu\n", (unsigned long long)m->seed);
    if (m->best_metric && isfinite(m->best_value))
        printf("best         %s %.6g at step %lld\n", m->best_metric, m->best_value,
               (long long)m->best_step);
    print_lines("lineage", m->lineage);
    print_lines("left out", m->skipped);
    if (m->metrics) printf("metrics      %s\n", m->metrics);
    if (m->n_class > 0) {
        printf("classes      %lld", (long long)m->n_class);
        for (int64_t i = 0; m->class_name && i < m->n_class && i < 20; i++)
            printf("%s%s", i ? ", " : ": ", m->class_name[i]);
        putchar('\n');
    }
}

static DltStatus run(const DltArgs *args, DltErr *err)
{
    DltCheckpoint *c = NULL;
    const char *path = dlt_checkpoint_path(args, args->word[0]);
    if (args->header)
        DLT_TRY(dlt_checkpoint_read_header(args->arena, path, &c, err));
    else
        DLT_TRY(dlt_checkpoint_verify(args->arena, path, &c, err));
    print_meta(c);
    int64_t total = 0;
    printf("tensors      %d\n", c->n_tensor);
    for (int i = 0; i < c->n_tensor; i++) {
        const DltCheckpointTensor *t = &c->tensor[i];
        char shape[DLT_SHAPE_TEXT];
        printf("  %-44s %-5s %-20s %12lld bytes  crc32 %08x\n", t->name, dlt_dtype_name(t->dtype),
               dlt_shape_text(&t->shape, shape), (long long)t->n_bytes, t->crc);
        total += t->n_bytes;
    }
    printf("  %-44s %-5s %-20s %12lld bytes\n", "total", "", "", (long long)total);
    printf("checksums    %s\n",
           args->header ? "of the header: right; tensors were not read" : "all right");
    return DLT_OK;
}

const DltCommand dlt_command_inspect = {
    .name = "inspect",
    .words = "CKPT|RUN",
    .help = "what a checkpoint holds",
    .min_word = 1,
    .max_word = 1,
    .options = (const char *const[]){"header", NULL},
    .run = run,
};
