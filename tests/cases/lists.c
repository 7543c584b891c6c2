/* The families. */
#include "cases.h"

extern const CaseList case_elementwise, case_matmul, case_conv, case_pool, case_norm, case_shape,
    case_loss, case_update, case_attention;

const CaseList *const case_lists[] = {
    &case_elementwise, &case_matmul, &case_conv,   &case_pool,      &case_norm,
    &case_shape,       &case_loss,   &case_update, &case_attention, NULL,
};
