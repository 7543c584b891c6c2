/* The graph as text: one line a node, stable enough for golden tests. */
#include "graph/graph.h"

static void print_tensor(const DltTensor *t, FILE *out)
{
    static const char *const layout[] = {"", "/nhwc", "/nChw8c", "/nChw16c"};
    char shape[DLT_SHAPE_TEXT];
    fprintf(out, "%%%d %s%s%s", t->id, dlt_dtype_name(t->dtype), dlt_shape_text(&t->shape, shape),
            layout[t->layout]);
    if (t->view_of) fprintf(out, " view(%%%d+%lld)", t->view_of->id, (long long)t->view_offset);
}

static void print_node(const DltNode *n, FILE *out)
{
    const char *separator = "";
    for (int i = 0; i < DLT_MAX_OUT; i++) {
        if (!n->out[i]) continue;
        fputs(separator, out);
        print_tensor(n->out[i], out);
        separator = ", ";
    }
    fprintf(out, "%s%s(", separator[0] ? " = " : "", n->op->name);
    separator = "";
    for (int i = 0; i < DLT_MAX_IN; i++) {
        if (!n->in[i]) continue;
        fprintf(out, "%s%%%d %s", separator, n->in[i]->id, n->in[i]->name);
        separator = ", ";
    }
    fputc(')', out);
    char text[256] = "";
    if (n->op->text) n->op->text(n->attr, text, sizeof text);
    if (text[0]) fprintf(out, " {%s}", text);
    if (n->name && n->name[0]) fprintf(out, " @%s", n->name);
    fputs(n->phase == DLT_PHASE_UPDATE ? " [update]\n" : "\n", out);
}

void dlt_graph_dump(const DltGraph *g, FILE *out)
{
    static const char *const role[DLT_REGIONS] = {"input", "param", "grad", "state", "temp"};
    for (int i = 0; i < g->n_tensor; i++) {
        const DltTensor *t = g->tensor[i];
        if (t->producer || t->role == DLT_TEMP) continue;
        fprintf(out, "%s ", role[t->role]);
        print_tensor(t, out);
        fprintf(out, " %s\n", t->name);
    }
    for (int i = 0; i < g->n_node; i++)
        print_node(g->node[i], out);
}
