# What only tests need; included by the Makefile, whose names it uses. A test program is tests/*/NAME.c
# linked with the archive; below are the kinds that want something else beside it:
#   tests/grad      the whole program in double (f64/)
#   tests/parity, tests/bench   plug-ins that are opened as the program opens them
#   tests/fault     system calls that can be made to fail (fault/)
#   tests/emulate   the CUDA backend, and the CPU's matrix tiles, without that hardware (emulate/, tiles/)
#   tests/cudnn     graphs that cuDNN finalizes without a GPU
#   tests/fuzz      libFuzzer's main

T_UNIT := $(patsubst %.c,$B/%,$(wildcard tests/unit/*.c tests/parity/*.c tests/fault/*.c))
T_F64 := $(patsubst %.c,$B/%,$(wildcard tests/grad/*.c))
T_CUDNN := $(if $(HAVE_CUDA),$B/tests/cudnn/test_graphs,tests/cudnn/absent.sh)
T_TILES := $(if $(HAVE_DNNL),$B/tiles/test_parity)
TILES = $(if $(T_TILES),$(foreach k,cpu.amx cpu.winograd matmul.cpu.wide matmul.cpu.tall attention_fwd.cpu.blocked \
 attention_bwd.cpu.blocked,"$(T_TILES) --backend cpu --only $k"))
T_PARITY := $B/tests/parity/test_parity $B/tests/parity/test_step
GPU_SCRIPTS := $(addprefix tests/gpu/,attention.sh forecast.sh wide.sh curves.sh cache.sh f16.sh keys.sh faults.sh) \
 $(addprefix tests/e2e/,gpt.sh resume.sh fused.sh)

.PHONY: parity bench test tests test-full check-emulated check-gpu asan tsan faults mean fuzz fuzzers faulty-gpu

# ---- runs ------------------------------------------------------------------------------------------
tests: $(T_UNIT) $(T_F64) $(T_CUDNN) $(T_TILES)
test: all tests
	@./tests/run.sh $B $(T_UNIT) $(T_F64) $(T_CUDNN) $(TILES)
# what `make test` samples, exhausted: every fault point, cut, kill and power cut (BENCHMARKS.md)
test-full: all tests faulty-gpu
	DLT_FULL=1 TEST_TIMEOUT=7200 ./tests/run.sh $B $(T_UNIT) $(T_F64) $(T_CUDNN) $(TILES)
parity: $(T_PARITY)
bench: all $B/tests/bench/bench_ops
	$B/tests/bench/bench_ops
check-gpu: all $(T_PARITY)
	DEVICE=cuda TEST_TIMEOUT=600 SCRIPTS="$(GPU_SCRIPTS)" ./tests/run.sh $B \
	 $(foreach t,$(T_PARITY),"$t --backend cuda")
	@echo 'tests/gpu/sanitize.sh $B runs the parity suite under compute-sanitizer'
check-emulated: faulty-gpu $B/emulate/dltrain-cuda.so $B/dltrain $(T_PARITY)
	@ln -f $B/dltrain $(T_PARITY) $B/emulate/
	DEVICE=cuda EMULATED=1 STEPS=4 NETS=mlp TEST_TIMEOUT=900 \
	 SCRIPTS="$(GPU_SCRIPTS) tests/fault/gpu_errors.sh" ./tests/run.sh $B/emulate \
	 $(foreach t,$(notdir $(T_PARITY)),"$B/emulate/$t --backend cuda")
# the same tests, built another way; the leak checker cannot read the thread storage of opened libraries, and
# the thread sanitizer wants a process at its usual addresses and does not see how oneDNN's threads wait
asan:
	TEST_TIMEOUT=1800 ASAN_OPTIONS=allocator_may_return_null=1:intercept_tls_get_addr=0 \
	 $(MAKE) test OPT="-O1 -g" SAN="-fsanitize=address,undefined -fno-sanitize-recover=undefined"
tsan: SAME_PLACES = $(shell setarch -R true 2>/dev/null && echo setarch -R)
tsan:
	TEST_TIMEOUT=1800 TSAN_OPTIONS=allocator_may_return_null=1:ignore_noninstrumented_modules=1 $(SAME_PLACES) \
	 $(MAKE) test OPT="-O1 -g" SAN="-fsanitize=thread"
faults:
	$(MAKE) test EXTRA=-DDLT_FAULTS
mean:
	$(MAKE) test EXTRA=-DDLT_MEAN
fuzzers: $(patsubst %.c,$B/%,$(wildcard tests/fuzz/*.c))
	@echo $^
fuzz:
	$(MAKE) fuzzers CC=clang OPT="-O1 -g" SAN="-fsanitize=fuzzer-no-link,address,undefined"

# ---- programs: objects and an archive, cmocka, the program's libraries ---------------------------------
CASES := $(call objects,tests/cases/*.c)
LINK_TEST = $(CC) $(LDFLAGS) -rdynamic -o $@ $(filter %.o %.a,$^) -lcmocka $(LIBS)
$B/tests/%: $B/tests/%.o $(CASES) $B/libdlt.a
	$(LINK_TEST)
$B/tests/fuzz/%: $B/tests/fuzz/%.o $B/libdlt.a
	$(CC) $(LDFLAGS) -fsanitize=fuzzer -rdynamic -o $@ $^ $(LIBS)
FLAGS_tests_cudnn_ := -isystem $(CUDA)/include
$B/tests/cudnn/%: $B/tests/cudnn/%.o $B/cuda/dnn_graph.o $B/cuda/lib.o $B/cuda/accepts.o $B/libdlt.a
	$(NVCC) -o $@ $^ -cudart static -lcmocka $(LIBS)

# with the backends and the floors that plug-ins stand on; plug-ins are looked for beside the program
UNDER_PLUGINS := $(filter $(addprefix $B/core/,base/% graph/% ops/% cpu/%),$(OBJ)) $(CASES) $B/cmd/backends.o
LINK_PLUGGED = $(LINK_TEST) && ln -sfn ../../dltrain-dnnl.so ../../dltrain-cuda.so $(@D)/
$B/tests/parity/test_step: $B/tests/parity/test_step.o $(OBJ) $B/cmd/backends.o
	$(LINK_PLUGGED)
$B/tests/parity/%: $B/tests/parity/%.o $(UNDER_PLUGINS)
	$(LINK_PLUGGED)
$B/tests/bench/%: $B/tests/bench/%.o $(UNDER_PLUGINS)
	$(LINK_PLUGGED)

# in double
F64 = $(patsubst $B/%,$B/f64/%,$1)
$B/f64/%.o: %.c
	$(here)
	$(COMPILE) -DDLT_REAL_DOUBLE
$B/libdlt64.a: $(call F64,$(OBJ))
	@rm -f $@; ar rcs $@ $^
$B/tests/grad/%: $B/f64/tests/grad/%.o $(call F64,$(CASES)) $B/libdlt64.a
	$(here)
	$(LINK_TEST)

# fault tests: the archive's sys.o gives way to one that counts its calls and fails them on request (and
# arenas with blocks so small that every request is an allocation of its own)
FAULT_O := $(patsubst %,$B/fault/core/base/%.o,sys fault arena)
$B/fault/%.o: %.c
	$(here)
	$(COMPILE) -DDLT_FAULTS
$B/fault/core/base/arena.o: override EXTRA += -DDLT_MEAN
$(patsubst %.c,$B/%,$(wildcard tests/fault/*.c)): $B/tests/fault/%: $B/fault/tests/fault/%.o $(FAULT_O) $B/libdlt.a
	$(here)
	$(LINK_TEST)
$B/fault/dltrain: $(CMD) $B/starters.o $(FAULT_O) $(filter-out $(FAULT_O:$B/fault/%=$B/%),$(OBJ))
	$(here)
	$(CC) $(LDFLAGS) -rdynamic -o $@ $^ $(LIBS)
$B/tests/fault/test_scenarios: $B/fault/dltrain
# the emulated GPU beside it: with it there, test_scenarios runs the scenarios on "cuda" too
faulty-gpu: $B/fault/dltrain $B/emulate/dltrain-cuda.so
	@ln -f $B/emulate/dltrain-cuda.so $B/fault/

# oneDNN's plug-in with matrix tiles in plain C, on a machine that says it has AVX-512 and AMX: for tests anywhere
$B/tiles/amx.o: core/cpu/dnnl/amx.c tests/emulate/tiles.h
	$(here)
	$(CC) $(CFLAGS) $(FLAGS_core_cpu_dnnl_) -include tests/emulate/tiles.h -MMD -MP -c -o $@ $<
$B/tiles/dltrain-dnnl.so: $B/tiles/amx.o $(filter-out %/amx.o,$(DNNL))
	$(LINK_DNNL) $(foreach f,block has_bf16 has_amx,-Wl,--wrap=dlt_dnnl_$f)
$B/tiles/%: $B/tests/parity/% $B/tiles/dltrain-dnnl.so
	ln -f $< $@

# the CUDA backend on a machine without a GPU: kernels as host C++ over an emulated runtime
# (whose threads are contexts of their own: checked longjmp would refuse to go between their stacks)
EMULATED := $(filter-out cuda/lt.c cuda/dnn%.c cuda/sdpa%.c cuda/lib.c,$(CUDA_C)) $(CUDA_CU)
EMU_O := $(patsubst %,$B/emulate/%.o,$(basename $(EMULATED))) $(patsubst $B/tests/%,$B/%,$(call objects,tests/emulate/*.c*))
EMU_FLAGS = $(OPT) $(SAN) -U_FORTIFY_SOURCE -fno-strict-aliasing -fPIC -pthread -Itests/emulate -Icore -I. -MMD -MP -c -o $@ $<
EMU_CC = $(CC) -std=c17 -D_GNU_SOURCE -Wall -Wextra $(EMU_FLAGS)
EMU_CXX = $(CXX) -x c++ -std=c++17 -Wall -Wextra -Wno-unknown-pragmas -Wno-unused -Wno-maybe-uninitialized $(EMU_FLAGS)
$B/emulate/cuda/%.o: cuda/%.c
	$(here)
	$(EMU_CC)
$B/emulate/%.o: tests/emulate/%.c
	$(here)
	$(EMU_CC)
$B/emulate/%.o: tests/emulate/%.cc
	$(here)
	$(EMU_CXX)
$B/emulate/%.o: %.cu
	$(here)
	$(EMU_CXX)
$B/emulate/dltrain-cuda.so: $(EMU_O)
	$(CXX) $(LDFLAGS) -shared -o $@ $^
