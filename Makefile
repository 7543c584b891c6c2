# dltrain. `make` builds ./dltrain (and the plug-ins where their libraries are found), `make test`
# runs everything that needs no GPU, `make help` lists the rest. Objects live in build/<key>/, the key
# being a checksum of compiler and flags, so variants coexist. What only tests need: tests/tests.mk.

# ---- what may be set -------------------------------------------------------------------------------
CC ?= gcc
CUDA ?= /usr/local/cuda
OPT ?= -O3 -g -fno-math-errno -fno-trapping-math
SAN ?=
PREFIX ?= /usr/local
# sm_80 code runs on 8.6 and 8.9 too; PTX serves what is newer than Hopper
GENCODE ?= -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 \
 -gencode arch=compute_90,code=compute_90

# ---- flags -----------------------------------------------------------------------------------------
WARN := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wdouble-promotion -Wfloat-conversion \
 -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition -Wundef -Wvla -Wcast-align=strict \
 -Wpointer-arith -Wwrite-strings -Wformat=2 -Wswitch-enum -Wimplicit-fallthrough -Wnull-dereference \
 -fno-common $(if $(findstring clang,$(CC)),,-Wlogical-op -Wduplicated-cond -Wduplicated-branches) \
 $(if $(DEV),-Werror)
CFLAGS = -std=c17 -D_GNU_SOURCE $(OPT) $(SAN) $(WARN) -fPIC -fvisibility=default -pthread \
 -Icore -I. $(EXTRA)
LDFLAGS += $(SAN) -pthread
LIBS := -lyaml -ljansson -lz -lm -ldl
NVCC := $(firstword $(wildcard $(CUDA)/bin/nvcc) $(shell command -v nvcc 2>/dev/null))
NVFLAGS = -std=c++17 -O3 $(if $(DEV),-lineinfo -Werror all-warnings) --compress-mode=size $(GENCODE) \
 -Icore -I. -Xcompiler -fPIC,-Wall,-Wextra
VERSION := 0.1.0 (build $(shell git describe --always --dirty 2>/dev/null || echo unknown))

# of one folder: FLAGS_<its path with _ for />
# core/cpu/dnnl: a x + b may be one operation, as the fast kernels name their order of sums, not each
# rounding; loops for AVX-512 use its whole width
FLAGS_core_cpu_dnnl_ := -fopenmp -ffp-contract=fast \
 $(if $(filter x86_64,$(shell uname -m)),-mprefer-vector-width=512)
FLAGS_cuda_ := -isystem $(CUDA)/include

# ---- files -----------------------------------------------------------------------------------------
KEY := $(shell printf '%s' '$(CC) $(OPT) $(SAN) $(EXTRA) $(DEV) $(NVCC)' | cksum | cut -d' ' -f1)
B := build/$(KEY)
objects = $(patsubst %,$B/%.o,$(basename $(wildcard $1)))

OBJ := $(call objects,core/*/*.c datasets/*.c)
CMD := $(call objects,cmd/*.c)
DNNL := $(call objects,core/cpu/dnnl/*.c)
CUDA_C := $(wildcard cuda/*.c)
CUDA_CU := $(wildcard cuda/kernels/*.cu)

HAVE_DNNL := $(wildcard /usr/include/dnnl.h /usr/include/oneapi/dnnl/dnnl.h)
HAVE_CUDA := $(if $(filter-out 0,$(or $(CUDA_BUILD),1)),$(NVCC))
PLUGINS := $(if $(HAVE_DNNL),$B/dltrain-dnnl.so) $(if $(HAVE_CUDA),$B/dltrain-cuda.so)

.PHONY: all build-objs lint fmt install clean help
.SECONDARY:
all: $B/dltrain $(PLUGINS)
	@for f in $^; do ln -sfn $$f $$(basename $$f); done
build-objs: $B/libdlt.a

# ---- rules -----------------------------------------------------------------------------------------
here = @mkdir -p $(@D)
COMPILE = $(CC) $(CFLAGS) $(FLAGS_$(subst /,_,$(dir $*))) -MMD -MP -c -o $@ $<

$B/%.o: %.c
	$(here)
	$(COMPILE)
$B/cuda/kernels/%.o: cuda/kernels/%.cu
	$(here)
	$(NVCC) $(NVFLAGS) -MMD -MP -c -o $@ $<
# instructions that only this architecture has
$(addprefix $B/cuda/kernels/,flash_forward.o flash_hopper.o matmul_wide.o): override GENCODE := -gencode arch=compute_90a,code=sm_90a
$B/libdlt.a: $(OBJ)
	@rm -f $@; ar rcs $@ $^
$B/dltrain: $(CMD) $B/starters.o $B/libdlt.a
	$(CC) $(LDFLAGS) -gz -rdynamic -o $@ $(filter %.o,$^) -Wl,--whole-archive $B/libdlt.a \
	 -Wl,--no-whole-archive $(LIBS)
$B/cmd/version.o: override EXTRA += -DDLT_VERSION='"$(VERSION)"'
# plug-ins: undefined core symbols are resolved by the program that opens them
LINK_DNNL = $(CC) $(LDFLAGS) -shared -fopenmp -o $@ $^ -ldnnl -lm
$B/dltrain-dnnl.so: $(DNNL)
	$(LINK_DNNL)
$B/dltrain-cuda.so: $(CUDA_C:%.c=$B/%.o) $(CUDA_CU:%.cu=$B/%.o)
	$(NVCC) -shared $(GENCODE) -o $@ $^ -cudart static -ldl -lpthread -lrt

# the texts of `dltrain init NAME` and of `dltrain bench`: NAME:config of configs/, as C strings
STARTERS := mlp:fashion_mlp cnn:fashion_lenet resnet:resnet8 table:iris
BENCHED := mlp:fashion_mlp lenet:fashion_lenet resnet8:resnet8 resnet18:resnet18_random \
 gpt:shakespeare_char resnet20:../tests/bench/cpu/resnet20
C_TEXTS = echo 'extern const DltText $1[]; const DltText $1[] = {'; for s in $2; do echo "{\"$${s%%:*}\","; \
 sed 's/\\/\\\\/g; s/"/\\"/g; s/^/"/; s/$$/\\n"/' configs/$${s\#*:}.yaml; echo '},'; done; echo '{0, 0}};'
$B/starters.c: $(foreach s,$(STARTERS) $(BENCHED),configs/$(lastword $(subst :, ,$s)).yaml) Makefile
	$(here)
	@{ echo 'typedef struct DltText { const char *name, *text; } DltText;'; \
	 $(call C_TEXTS,dlt_starters,$(STARTERS)); $(call C_TEXTS,dlt_bench_configs,$(BENCHED)); } >$@
$B/starters.o: $B/starters.c
	$(CC) -std=c17 -fPIC -c -o $@ $<

# ---- the house -------------------------------------------------------------------------------------
lint:
	@./scripts/lint.sh
fmt:
	clang-format -i $$(git ls-files '*.c' '*.h' '*.cu' '*.cuh')
BIN = $(DESTDIR)$(PREFIX)/bin
LIB = $(DESTDIR)$(PREFIX)/lib/dltrain
SHARE = $(DESTDIR)$(PREFIX)/share
install: all
	install -d $(BIN) $(LIB) $(SHARE)/man/man1 $(SHARE)/dltrain $(SHARE)/bash-completion/completions
	install $B/dltrain $(BIN)/
	install scripts/sweep.sh $(BIN)/dltrain-sweep
	for f in $(PLUGINS); do install $$f $(LIB)/; done
	$B/dltrain explain --man >$(SHARE)/man/man1/dltrain.1
	$B/dltrain explain --bash >$(SHARE)/bash-completion/completions/dltrain
	$B/dltrain explain --json-schema >$(SHARE)/dltrain/config.schema.json
clean:
	rm -rf build dltrain dltrain-*.so
help:
	@sed -n '1,3s/^# //p' Makefile
	@echo 'targets: all test test-full bench check-gpu check-emulated lint fmt asan tsan faults mean fuzz install clean'
	@echo 'variables: CC OPT SAN DEV=1 (warnings are errors) CUDA_BUILD=0 GENCODE PREFIX'

include tests/tests.mk
-include $(shell find $B -name '*.d' 2>/dev/null)
