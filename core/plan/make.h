/* What the stages of planning hand to each other: select -> liveness -> pack. Nothing outside
 * core/plan includes it, apart from the planner's tests. */
#ifndef DLT_PLAN_MAKE_H
#define DLT_PLAN_MAKE_H

#include "plan/plan.h"

/* Bytes that must not be shared while they live: one TEMP tensor with its views, or several that
 * take each other's place (a result written where its last-used input lay). */
typedef struct DltBlock {
    size_t bytes;
    int first, last; /* steps, inclusive */
    size_t offset;   /* set by dlt_pack */
} DltBlock;
typedef struct DltLives {
    int n_block;
    DltBlock *block;
    int *block_of;     /* [n_tensor], -1: not a TEMP base or never touched */
    int *first, *last; /* [n_tensor], of bases; -1: never touched */
} DltLives;

/* Fills plan->step (kernels, states, scratch, lanes) and work_bytes. */
DltStatus dlt_plan_select(DltArena *arena, DltPlan *plan, const DltPlanOptions *o,
                          DltErr *err) DLT_CHECKED;
/* Lifetimes over the chosen steps; in_place: results may take their input's memory. */
DltLives dlt_plan_lives(DltArena *arena, const DltPlan *plan, bool in_place);
/* Lane order: sets step.wait (several lanes only). */
void dlt_plan_order_lanes(DltArena *arena, DltPlan *plan);
/* Chooses offsets (multiples of align) such that no two blocks that live at the same step overlap.
 * Returns the bytes of the whole. */
size_t dlt_pack(DltArena *arena, DltBlock *block, int n, size_t align);
/* Largest sum of bytes that live at one step, rounded as dlt_pack rounds, and that step: no
 * placement can need less. */
size_t dlt_pack_bound(DltArena *arena, const DltBlock *block, int n, size_t align, int *step);

#endif
