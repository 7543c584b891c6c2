/* The one host-to-device struct of a step: no host scalar is baked into a recorded program. */
#ifndef DLT_STEP_H
#define DLT_STEP_H
#include <stdint.h>

typedef struct DltStepState {
    uint64_t seed;
    int64_t update; /* number of this update, 1 for the first: Adam's t */
    int64_t batch;  /* number of this micro batch since the run began, 0 first: dropout's counter */
    int32_t micro;  /* index of the micro batch inside its update */
    int32_t n_micro;
    float lr;         /* scheduled learning rate of this update, before group factors */
    float loss_scale; /* 1; with f16 the node scale_loss puts the device's own there */
    double
        sample_weight; /* nominal weight of one update: what the loss gradient was pre-divided by */
    float loss_limit;  /* an update whose mean loss is above it is left out; 0: no limit */
} DltStepState;

#endif
