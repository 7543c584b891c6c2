/* dlt_ops[]: the row of every op, from the one list. */
#include "graph/op.h"

#define OP(name) extern const DltOpDef dlt_op_##name;
#include "ops/ops.def"
#undef OP

const DltOpDef *const dlt_ops[DLT_N_OP] = {
#define OP(name) [DLT_OP_##name] = &dlt_op_##name,
#include "ops/ops.def"
#undef OP
};
