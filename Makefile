# dltrain. `make` builds ./dltrain (and the plug-ins where their libraries are found), `make test`
# runs everything that needs no GPU, `make help` lists the rest. Objects live in build/<key>/, the key
# being a checksum of compiler and flags, so variants coexist.

CC ?= gcc
CUDA ?= /usr/local/cuda
NVCC := $(firstword $(wildcard $(CUDA)/bin/nvcc) $(shell command -v nvcc 2>/dev/null))
OPT ?= -O3 -g -fno-math-errno -fno-trapping-math
SAN ?=
WARN := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wdouble-promotion -Wfloat-conversion \
 -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition -Wundef -Wvla -Wcast-align=strict \
 -Wpointer-arith -Wwrite-strings -Wformat=2 -Wswitch-enum -Wimplicit-fallthrough -Wnull-dereference \
 -fno-common $(if $(findstring clang,$(CC)),,-Wlogical-op -Wduplicated-cond -Wduplicated-branches)
WARN += $(if $(DEV),-Werror)
VERSION := 0.1.0 (build $(shell git describe --always --dirty 2>/dev/null || echo unknown))
CFLAGS = -std=c17 -D_GNU_SOURCE $(OPT) $(SAN) $(WARN) -fPIC -fvisibility=default -pthread \
 -Icore -I. $(EXTRA)
LDFLAGS += $(SAN) -pthread
LIBS := -lyaml -ljansson -lz -lm -ldl

KEY := $(shell printf '%s' '$(CC) $(OPT) $(SAN) $(EXTRA) $(DEV) $(NVCC)' | cksum | cut -d' ' -f1)
B := build/$(KEY)
SRC := $(wildcard core/*/*.c datasets/*.c)
CMD := $(wildcard cmd/*.c)
DNNL_SRC := $(wildcard core/cpu/dnnl/*.c)
CUDA_C := $(wildcard cuda/*.c)
CUDA_CU := $(wildcard cuda/kernels/*.cu)
OBJ := $(SRC:%.c=$B/%.o)
OBJ64 := $(SRC:%.c=$B/f64/%.o)
HAVE_DNNL := $(if $(DNNL_SRC),$(wildcard /usr/include/dnnl.h /usr/include/oneapi/dnnl/dnnl.h))
PLUGINS := $(if $(HAVE_DNNL),$B/dltrain-dnnl.so) \
 $(if $(filter-out 0,$(or $(CUDA_BUILD),1)),$(if $(NVCC),$(if $(CUDA_C),$B/dltrain-cuda.so)))
T_UNIT := $(patsubst %.c,$B/%,$(wildcard tests/unit/*.c tests/parity/*.c tests/fault/*.c))
T_CUDNN := $(if $(filter %-cuda.so,$(PLUGINS)),$B/tests/cudnn/test_graphs,tests/cudnn/absent.sh)
T_F64 := $(patsubst %.c,$B/%,$(wildcard tests/grad/*.c))
CASES := $(patsubst %.c,$B/%.o,$(wildcard tests/cases/*.c))
CASES64 := $(patsubst %.c,$B/f64/%.o,$(wildcard tests/cases/*.c))

.PHONY: parity build-objs all bench test check-emulated check-gpu lint fmt clean install asan ubsan tsan \
 faults mean fuzz fuzzers help tests faulty-gpu test-full
.SECONDARY:
all: $B/dltrain $(PLUGINS)
	@for f in $^; do ln -sfn $$f $$(basename $$f); done

$B/libdlt.a: $(OBJ)
	@rm -f $@; ar rcs $@ $^
$B/libdlt64.a: $(OBJ64)
	@rm -f $@; ar rcs $@ $^
$B/dltrain: $(CMD:%.c=$B/%.o) $B/starters.o $B/libdlt.a
	$(CC) $(LDFLAGS) -gz -rdynamic -o $@ $(filter %.o,$^) -Wl,--whole-archive $B/libdlt.a \
	 -Wl,--no-whole-archive $(LIBS)
$B/f64/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -DDLT_REAL_DOUBLE -MMD -MP -c -o $@ $<
$B/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(FLAGS_$(subst /,_,$(dir $*))) -MMD -MP -c -o $@ $<
$B/cmd/version.o: override EXTRA += -DDLT_VERSION='"$(VERSION)"'
# the texts of `dltrain init NAME` and of `dltrain bench`: configs as C strings
STARTERS := mlp:fashion_mlp cnn:fashion_lenet resnet:resnet8 table:iris
BENCHED := mlp:fashion_mlp lenet:fashion_lenet resnet8:resnet8 resnet18:resnet18_random gpt:shakespeare_char \
 resnet20:../tests/bench/cpu/resnet20
C_TEXTS = echo 'extern const DltText $1[]; const DltText $1[] = {'; for s in $2; do echo "{\"$${s%%:*}\","; \
 sed 's/\\/\\\\/g; s/"/\\"/g; s/^/"/; s/$$/\\n"/' configs/$${s\#*:}.yaml; echo '},'; done; echo '{0, 0}};'
$B/starters.c: $(foreach s,$(STARTERS) $(BENCHED),configs/$(lastword $(subst :, ,$s)).yaml) Makefile
	@mkdir -p $(@D)
	@{ echo 'typedef struct DltText { const char *name, *text; } DltText;'; \
	 $(call C_TEXTS,dlt_starters,$(STARTERS)); $(call C_TEXTS,dlt_bench_configs,$(BENCHED)); } >$@
$B/starters.o: $B/starters.c
	$(CC) -std=c17 -fPIC -c -o $@ $<

# plug-ins: undefined core symbols are resolved by the program that opens them
# a x + b may be one operation: the fast kernels name their order of sums, not each rounding;
# loops for AVX-512 use its whole width
FLAGS_core_cpu_dnnl_ := -fopenmp -ffp-contract=fast $(if $(filter x86_64,$(shell uname -m)),-mprefer-vector-width=512)
$B/dltrain-dnnl.so: $(DNNL_SRC:%.c=$B/%.o)
	$(CC) $(LDFLAGS) -shared -fopenmp -o $@ $^ -ldnnl -lm
# the same with matrix tiles in plain C, on a machine that says it has AVX-512 and AMX: for tests anywhere
$B/tiles/amx.o: core/cpu/dnnl/amx.c tests/emulate/tiles.h
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(FLAGS_core_cpu_dnnl_) -include tests/emulate/tiles.h -MMD -MP -c -o $@ $<
$B/tiles/dltrain-dnnl.so: $B/tiles/amx.o $(filter-out %/amx.o,$(DNNL_SRC:%.c=$B/%.o))
	$(CC) $(LDFLAGS) -shared -fopenmp -o $@ $^ -ldnnl -lm \
	 $(foreach f,block has_bf16 has_amx,-Wl,--wrap=dlt_dnnl_$f)
$B/tiles/%: $B/tests/parity/% $B/tiles/dltrain-dnnl.so
	ln -f $< $@
# sm_80 code runs on 8.6 and 8.9 too; PTX serves what is newer than Hopper
GENCODE ?= -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 \
 -gencode arch=compute_90,code=compute_90
FLAGS_cuda_ := -isystem $(CUDA)/include
$B/cuda/kernels/%.o: cuda/kernels/%.cu
	@mkdir -p $(@D)
	$(NVCC) -std=c++17 -O3 $(if $(DEV),-lineinfo) --compress-mode=size $(GENCODE) -Icore -I. -Xcompiler -fPIC,-Wall,-Wextra \
	 $(if $(DEV),-Werror all-warnings) -MMD -MP -c -o $@ $<
$B/dltrain-cuda.so: $(CUDA_C:%.c=$B/%.o) $(CUDA_CU:%.cu=$B/%.o)
	$(NVCC) -shared $(GENCODE) -o $@ $^ -cudart static -ldl -lpthread -lrt

# the CUDA backend on a machine without a GPU: kernels as host C++ over an emulated runtime
# (whose threads are contexts of their own: checked longjmp would refuse to go between their stacks)
EMU_C := $(filter-out cuda/lt.c cuda/dnn%.c cuda/sdpa%.c cuda/lib.c,$(CUDA_C))
EMU_O := $(EMU_C:%.c=$B/emulate/%.o) $(CUDA_CU:%.cu=$B/emulate/%.o) \
 $(patsubst tests/%,$B/%.o,$(basename $(wildcard tests/emulate/*.c*)))
EMU_FLAGS = $(OPT) $(SAN) -U_FORTIFY_SOURCE -fno-strict-aliasing -fPIC -pthread -Itests/emulate -Icore -I. -MMD -MP -c -o $@ $<
EMU_CXX = $(CXX) -x c++ -std=c++17 -Wall -Wextra -Wno-unknown-pragmas -Wno-unused -Wno-maybe-uninitialized $(EMU_FLAGS)
$B/emulate/cuda/%.o: cuda/%.c
	@mkdir -p $(@D)
	$(CC) -std=c17 -D_GNU_SOURCE -Wall -Wextra $(EMU_FLAGS)
$B/emulate/%.o: tests/emulate/%.c
	@mkdir -p $(@D)
	$(CC) -std=c17 -D_GNU_SOURCE -Wall -Wextra $(EMU_FLAGS)
$B/emulate/%.o: tests/emulate/%.cc
	@mkdir -p $(@D)
	$(EMU_CXX)
$B/emulate/%.o: %.cu
	@mkdir -p $(@D)
	$(EMU_CXX)
$B/emulate/dltrain-cuda.so: $(EMU_O)
	$(CXX) $(LDFLAGS) -shared -o $@ $^
check-emulated: faulty-gpu $B/emulate/dltrain-cuda.so $B/dltrain $B/tests/parity/test_step $B/tests/parity/test_parity
	@ln -f $(filter %_step %_parity %/dltrain,$^) $B/emulate/
	DEVICE=cuda EMULATED=1 STEPS=4 NETS=mlp TEST_TIMEOUT=900 SCRIPTS="$(GPU_SCRIPTS) tests/fault/gpu_errors.sh" ./tests/run.sh $B/emulate \
	 "$B/emulate/test_step --backend cuda" "$B/emulate/test_parity --backend cuda"

$B/tests/grad/%: $B/f64/tests/grad/%.o $(CASES64) $B/libdlt64.a
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -rdynamic -o $@ $(filter %.o,$^) $B/libdlt64.a -lcmocka $(LIBS)
# with the backends and the floors that plug-ins stand on; plug-ins are looked for beside the program
UNDER_PLUGINS := $(filter $(addprefix $B/core/,base/% graph/% ops/% cpu/%),$(OBJ))
UNDER_PLUGINS += $(CASES) $B/cmd/backends.o
LINK_PLUGGED = $(CC) $(LDFLAGS) -rdynamic -o $@ $^ -lcmocka $(LIBS) && \
 ln -sfn ../../dltrain-dnnl.so ../../dltrain-cuda.so $(@D)/
$B/tests/parity/test_step: $B/tests/parity/test_step.o $(OBJ) $B/cmd/backends.o
	$(LINK_PLUGGED)
$B/tests/parity/%: $B/tests/parity/%.o $(UNDER_PLUGINS)
	$(LINK_PLUGGED)
$B/tests/bench/%: $B/tests/bench/%.o $(UNDER_PLUGINS)
	$(LINK_PLUGGED)
# fault tests: the archive's sys.o gives way to one that counts its calls and fails them on request
$B/fault/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -DDLT_FAULTS -MMD -MP -c -o $@ $<
# (and arenas with blocks so small that every request is an allocation of its own)
FAULT_O := $B/fault/core/base/sys.o $B/fault/core/base/fault.o $B/fault/core/base/arena.o
$B/fault/core/base/arena.o: override EXTRA += -DDLT_MEAN
$(patsubst %.c,$B/%,$(wildcard tests/fault/*.c)): $B/tests/fault/%: $B/fault/tests/fault/%.o \
 $(FAULT_O) $B/libdlt.a
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -rdynamic -o $@ $(filter %.o %.a,$^) -lcmocka $(LIBS)
$B/fault/dltrain: $(CMD:%.c=$B/%.o) $B/starters.o $(FAULT_O) \
 $(filter-out $(FAULT_O:$B/fault/%=$B/%),$(OBJ))
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -rdynamic -o $@ $^ $(LIBS)
$B/tests/fault/test_scenarios: $B/fault/dltrain
# the emulated GPU beside it: with it there, test_scenarios runs the scenarios on "cuda" too
faulty-gpu: $B/fault/dltrain $B/emulate/dltrain-cuda.so
	@ln -f $B/emulate/dltrain-cuda.so $B/fault/
FLAGS_tests_cudnn_ := -isystem $(CUDA)/include
$B/tests/cudnn/%: $B/tests/cudnn/%.o $B/cuda/dnn_graph.o $B/cuda/lib.o $B/cuda/accepts.o $B/libdlt.a
	$(NVCC) -o $@ $^ -cudart static -lcmocka $(LIBS)
$B/tests/%: $B/tests/%.o $(CASES) $B/libdlt.a
	$(CC) $(LDFLAGS) -rdynamic -o $@ $(filter %.o,$^) $B/libdlt.a -lcmocka $(LIBS)
build-objs: $B/libdlt.a
parity: $B/tests/parity/test_parity $B/tests/parity/test_step
T_TILES := $(if $(HAVE_DNNL),$B/tiles/test_parity)
TILES = $(if $(T_TILES),"$(T_TILES) --backend cpu --only cpu.amx" "$(T_TILES) --backend cpu --only matmul.cpu.wide")
tests: $(T_UNIT) $(T_F64) $(T_CUDNN) $(T_TILES)
bench: all $B/tests/bench/bench_ops
	$B/tests/bench/bench_ops
test: all tests
	@./tests/run.sh $B $(T_UNIT) $(T_F64) $(T_CUDNN) $(TILES)
# what `make test` samples, exhausted: every fault point, cut, kill and power cut (BENCHMARKS.md)
test-full: all tests faulty-gpu
	DLT_FULL=1 TEST_TIMEOUT=7200 ./tests/run.sh $B $(T_UNIT) $(T_F64) $(T_CUDNN) $(TILES)
GPU_SCRIPTS := tests/gpu/forecast.sh tests/gpu/curves.sh tests/gpu/cache.sh tests/gpu/f16.sh tests/gpu/keys.sh tests/gpu/faults.sh tests/e2e/gpt.sh \
 tests/e2e/resume.sh tests/e2e/fused.sh
check-gpu: all $B/tests/parity/test_parity $B/tests/parity/test_step
	DEVICE=cuda TEST_TIMEOUT=600 SCRIPTS="$(GPU_SCRIPTS)" ./tests/run.sh $B \
	 "$B/tests/parity/test_parity --backend cuda" "$B/tests/parity/test_step --backend cuda"
	@echo 'tests/gpu/sanitize.sh $B runs the parity suite under compute-sanitizer'

lint:
	@./scripts/lint.sh
fmt:
	clang-format -i $$(git ls-files '*.c' '*.h' '*.cu' '*.cuh')
asan:
	ASAN_OPTIONS=allocator_may_return_null=1 $(MAKE) test OPT="-O1 -g" SAN="-fsanitize=address,undefined -fno-sanitize-recover=undefined"
tsan:
	$(MAKE) test OPT="-O1 -g" SAN="-fsanitize=thread"
faults:
	$(MAKE) test EXTRA=-DDLT_FAULTS
mean:
	$(MAKE) test EXTRA=-DDLT_MEAN
$B/tests/fuzz/%: $B/tests/fuzz/%.o $B/libdlt.a
	$(CC) $(LDFLAGS) -fsanitize=fuzzer -rdynamic -o $@ $^ $(LIBS)
fuzzers: $(patsubst %.c,$B/%,$(wildcard tests/fuzz/*.c))
	@echo $^
fuzz:
	$(MAKE) fuzzers CC=clang OPT="-O1 -g" SAN="-fsanitize=fuzzer-no-link,address,undefined"
PREFIX ?= /usr/local
install: all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib/dltrain
	install $B/dltrain $(DESTDIR)$(PREFIX)/bin/
	for f in $(PLUGINS); do install $$f $(DESTDIR)$(PREFIX)/lib/dltrain/; done
	install -d $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(PREFIX)/share/dltrain \
	 $(DESTDIR)$(PREFIX)/share/bash-completion/completions
	$B/dltrain explain --man >$(DESTDIR)$(PREFIX)/share/man/man1/dltrain.1
	$B/dltrain explain --bash >$(DESTDIR)$(PREFIX)/share/bash-completion/completions/dltrain
	$B/dltrain explain --json-schema >$(DESTDIR)$(PREFIX)/share/dltrain/config.schema.json
	install scripts/sweep.sh $(DESTDIR)$(PREFIX)/bin/dltrain-sweep
clean:
	rm -rf build dltrain dltrain-*.so
help:
	@sed -n '1,3s/^# //p' Makefile; echo 'targets: all test test-full bench check-gpu lint fmt asan tsan faults mean fuzz install clean'
	@echo 'variables: CC OPT SAN DEV=1 (warnings are errors) CUDA_BUILD=0 GENCODE PREFIX'

-include $(shell find $B -name '*.d' 2>/dev/null)
