/* Packing operands into tiles as they lie in memory, two tiles at a time. */
#include "cpu/dnnl/operand.h"

enum { SIDE = DLT_AMX_BLOCK };

void dlt_operand_pack(const DltOperand *o, int64_t at, int64_t k, uint16_t *out)
{
    static const DltAmxForm forms[2][2] = {{DLT_AMX_B, DLT_AMX_B_TURN},
                                           {DLT_AMX_A_TURN, DLT_AMX_A}};
    DltAmxForm form = forms[o->is_a][o->along];
    int64_t terms = o->k - k;
    for (int half = 0; half < 2; half++, at += DLT_AMX_ROWS, out += DLT_AMX_TILE) {
        int64_t there = o->size - at;
        if (there <= 0)
            dlt_amx_pack(form, o->x, o->row, 0, 0, out); /* zeros */
        else if (o->along)
            dlt_amx_pack(form, o->x + at * o->row + k, o->row, there, terms, out);
        else
            dlt_amx_pack(form, o->x + k * o->row + at, o->row, terms, there, out);
    }
}

void dlt_operand_ask(const DltOperand *o, int64_t at, int64_t k)
{
    if (at >= o->size || k >= o->k) return;
    int64_t rows = o->along ? o->size - at : o->k - k;
    const uint16_t *x = o->x + (o->along ? at * o->row + k : k * o->row + at);
    for (int64_t i = 0; i < SIDE && i < rows; i++)
        __builtin_prefetch(x + i * o->row); /* 32 numbers, a line */
}
