# SPDX-License-Identifier: Apache-2.0
# One non-recursive Makefile.  `make help` lists targets and knobs.

## knobs
comma := ,
PREFIX ?= /usr/local
DESTDIR ?=
CC = gcc
MARCH ?= x86-64-v3
SAN ?=
V ?=
TEST_JOBS ?= 1
BLAS ?= blis-openmp
NVCC ?= nvcc
arch := $(shell $(CC) -print-multiarch 2>/dev/null)
cuda := $(patsubst %/bin/nvcc,%,$(realpath $(shell command -v $(NVCC) 2>/dev/null)))
NCCL_DIR ?= $(firstword $(patsubst %/include/nccl.h,%,$(wildcard $(cuda)/include/nccl.h /usr/include/nccl.h /usr/local/include/nccl.h)))
no_gpu := $(if $(cuda),$(if $(NCCL_DIR),,nccl.h (NCCL_DIR=FOLDER)),$(NVCC) (NVCC=PROGRAM))
# 1: for GPUs too, the default where nvcc and NCCL are; the demo wants a GPU as
# well, and no sanitizer knows CUDA
CUDA ?= $(if $(SAN)$(no_gpu)$(if $(filter demo,$(MAKECMDGOALS)),$(if $(wildcard /dev/nvidiactl),,no)),0,1)

# folder of cudnn.h; CUDNN= builds without, then attention is our own kernel's
CUDNN ?= $(patsubst %/,%,$(dir $(firstword $(wildcard $(cuda)/include/cudnn.h /usr/include/$(arch)/cudnn.h /usr/include/cudnn.h))))

variant = $(if $(filter 0,$(CUDA)),cpu,cuda$(if $(CUDNN),,-nocudnn))$(if $(filter-out gcc,$(notdir $(CC))),-$(notdir $(CC)))$(if $(SAN),-$(subst $(comma),-,$(SAN)))
BUILD ?= build/$(variant)
Q = $(if $(filter 1,$(V)),,@)
say = @printf '  %-7s %s\n' "$(1)" "$(2)"

cpus := $(shell nproc)
sys = /usr/lib/$(arch)
PMIX_DIR ?= $(sys)/pmix2
HDF5_DIR ?= $(sys)/hdf5/serial
HDF5_INC ?= $(if $(wildcard $(HDF5_DIR)/include),$(HDF5_DIR)/include,/usr/include/hdf5/serial)
MPI_DIR ?= $(sys)/openmpi
BLAS_LIB ?= $(sys)/$(BLAS)/libblis.a
BLAS_INC ?= /usr/include/$(arch)/$(BLAS)

WARN = -Wall -Wextra -Werror -Wstrict-prototypes -Wmissing-prototypes \
	-Wwrite-strings -Wvla -Wpointer-arith -Wshadow
OPT = -O2 -g
override CFLAGS += -std=c11 -D_GNU_SOURCE -I. $(WARN) $(OPT) -ffp-contract=off \
	-fno-math-errno $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer $(if $(findstring clang,$(CC)),,-Wno-format-truncation -Wno-format-overflow))
KFLAGS = -O3 -march=$(MARCH) -fopenmp -fno-trapping-math
override LDFLAGS += $(if $(SAN),-fsanitize=$(SAN))

## sources: every .c of a room belongs to its library
plan_src = $(sort $(wildcard lib/base/*.c lib/plan/*.c))
half_src = $(sort $(wildcard kernels/half*.c))
kern_src = $(filter-out $(half_src),$(sort $(wildcard kernels/*.c)))
ckpt_src = $(sort $(wildcard ckpt/*.c))
gpu_only = lib/train/comm_nccl%.c lib/train/machine_cuda.c
train_src = $(filter-out $(if $(filter 0,$(CUDA)),$(gpu_only)),$(sort $(wildcard lib/train/*.c)))
progs = $(basename $(notdir $(sort $(wildcard bin/*.c))))
helpers = $(basename $(notdir $(sort $(wildcard test/x-*.c))))
plugins = $(basename $(notdir $(sort $(wildcard test/plugin-*.c))))
units = $(basename $(notdir $(sort $(wildcard test/u-*.c))))

o = $(patsubst %.c,$(BUILD)/%.o,$(1))
half_obj = $(foreach t,bf16 fp16,$(patsubst kernels/%.c,$(BUILD)/kernels/%.$(t).o,$(half_src)))
kern_obj = $(patsubst kernels/%.c,$(BUILD)/kernels/%.f32.o,$(kern_src)) \
	$(patsubst kernels/%.c,$(BUILD)/kernels/%.f64.o,$(kern_src)) \
	$(half_obj) \
	$(if $(filter 0,$(CUDA)),,$(patsubst %,$(BUILD)/%.o,$(sort $(wildcard kernels/*.cu))))
plan_lib = $(BUILD)/libplan.a
kern_lib = $(BUILD)/libkern.a
ckpt_lib = $(BUILD)/libckpt.a
train_lib = $(BUILD)/libtrain.a

inc_gpu = $(if $(filter 0,$(CUDA)),,-DTRISECT_CUDA -isystem $(NCCL_DIR)/include -isystem $(cuda)/include)
inc_train = -I$(MPI_DIR)/include -I$(PMIX_DIR)/include -I$(HDF5_INC)
plan_ldlibs = -lconfig -ljansson -lyaml -lxxhash -lm -ldl
ckpt_ldlibs = -L$(HDF5_DIR)/lib -L$(HDF5_DIR) -lhdf5 -lisal $(plan_ldlibs) -lpthread
gpu_ldlibs = $(if $(filter 0,$(CUDA)),,-L$(NCCL_DIR)/lib -L$(cuda)/lib64 -lnccl -lcublasLt -lcudart -lstdc++ -ldl)
train_ldlibs = -L$(MPI_DIR)/lib -lmpi -lpmix $(BLAS_LIB) -fopenmp $(gpu_ldlibs) $(ckpt_ldlibs)

.PHONY: all help deps demo hf-golden bench bench-gpu check check-long fuzz fuzz-programs lint man install uninstall clean test-programs variant gpu-test gpu-plan
.DELETE_ON_ERROR:
.SECONDARY:

ifeq ($(filter 0 1,$(CUDA)),)
$(error CUDA=$(CUDA): 0 or 1 is wanted)
endif
ifneq ($(filter 1,$(CUDA)),)
ifneq ($(no_gpu)$(SAN),)
ifneq ($(filter-out help deps clean uninstall lint,$(or $(MAKECMDGOALS),all)),)
$(error CUDA=1: $(if $(SAN),no sanitizer knows CUDA,there is no $(no_gpu); install it$(comma) say where it is$(comma) or build with CUDA=0))
endif
endif
endif

all: variant $(addprefix $(BUILD)/bin/,$(progs)) ## build the programs

variant:
	$(call say,VARIANT,$(variant)$(if $(no_gpu), (for CPUs alone: no $(no_gpu)),$(if $(filter 0,$(CUDA)),,$(if $(CUDNN),, (no cudnn.h: CUDNN=FOLDER)))))

help: ## this text
	@grep -hE '^[a-z-]+:.*##' $(firstword $(MAKEFILE_LIST)) | sed -E 's/:.*## /\t/' | expand -t 16
	@echo 'knobs: PREFIX DESTDIR CC MARCH SAN=address,undefined V=1 BLAS=blis-openmp CUDA=0 NVCC NCCL_DIR CUDNN PMIX_DIR HDF5_DIR MPI_DIR'

deps: ## install what is missing from Debian
	$(Q)slurm/deps --all

demo: ## install what is missing, build, train, reshard and resume under Slurm
	$(Q)slurm/deps --slurm
	$(Q)$(MAKE) --no-print-directory -j$(cpus) CUDA=$(CUDA) all
	$(Q)TRISECT_BIN=$(abspath $(BUILD))/bin slurm/demo

$(BUILD)/lib/plan/%.o $(BUILD)/lib/base/%.o $(BUILD)/ckpt/%.o: inc =
$(BUILD)/ckpt/%.o: inc = -I$(HDF5_INC)
$(BUILD)/lib/train/%.o: inc = $(inc_train) $(inc_gpu)
$(BUILD)/bin/%.o $(BUILD)/test/%.o: inc = $(inc_train) $(inc_gpu)

$(BUILD)/kernels/%.f32.o: kernels/%.c Makefile
	$(call say,CC,$< f32)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(KFLAGS) -DREAL=float -DREAL_IS_FLOAT=1 -I$(BLAS_INC) -MMD -MP -c -o $@ $<

$(BUILD)/kernels/%.f64.o: kernels/%.c Makefile
	$(call say,CC,$< f64)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(KFLAGS) -DREAL=double -DREAL_IS_FLOAT=0 -I$(BLAS_INC) -MMD -MP -c -o $@ $<

$(BUILD)/kernels/%.bf16.o: kernels/%.c Makefile
	$(call say,CC,$< bf16)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(KFLAGS) -DREAL=float -DREAL_IS_FLOAT=1 -DHALF_IS_BF16=1 -MMD -MP -c -o $@ $<

$(BUILD)/kernels/%.fp16.o: kernels/%.c Makefile
	$(call say,CC,$< fp16)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(KFLAGS) -DREAL=float -DREAL_IS_FLOAT=1 -DHALF_IS_BF16=0 -MMD -MP -c -o $@ $<

$(BUILD)/lib/train/init.o: override CFLAGS += -fopenmp

$(BUILD)/lib/plan/show_html.o: lib/plan/show_html.html

$(BUILD)/%.o: %.c Makefile
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(inc) -MMD -MP -c -o $@ $<

$(plan_lib): $(call o,$(plan_src))
$(kern_lib): $(kern_obj)
$(ckpt_lib): $(call o,$(ckpt_src))
$(train_lib): $(call o,$(train_src))
$(BUILD)/lib%.a:
	$(call say,AR,$@)
	$(Q)rm -f $@ && ar rcs $@ $^

plan_progs = cfg-finalize stage-build
$(addprefix $(BUILD)/bin/,$(plan_progs)): $(BUILD)/bin/%: $(BUILD)/bin/%.o $(plan_lib)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(plan_ldlibs) -lpthread

$(BUILD)/bin/ckpt-merge: $(BUILD)/bin/ckpt-merge.o $(ckpt_lib) $(plan_lib)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(ckpt_ldlibs)

$(BUILD)/bin/train-worker: $(BUILD)/bin/train-worker.o $(train_lib) $(ckpt_lib) $(kern_lib) $(plan_lib)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(train_ldlibs)

## tests
$(BUILD)/test/u-%: $(BUILD)/test/u-%.o $(train_lib) $(ckpt_lib) $(kern_lib) $(plan_lib)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ -lcmocka $(train_ldlibs)

$(BUILD)/test/x-golden: train_ldlibs += -lcmocka
$(BUILD)/test/x-%: $(BUILD)/test/x-%.o $(train_lib) $(ckpt_lib) $(kern_lib) $(plan_lib)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(train_ldlibs)

$(BUILD)/test/plugin-%.so: test/plugin-%.c Makefile
	$(call say,CC,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -shared -fPIC -MMD -MP -MF $(@:.so=.d) -o $@ $< -lm

test-programs: all $(addprefix $(BUILD)/test/,$(units) $(helpers) $(addsuffix .so,$(plugins)))

export TRISECT_BUILD = $(abspath $(BUILD))
prove = CMOCKA_MESSAGE_OUTPUT=TAP prove --timer -j$(TEST_JOBS) $(if $(filter 1,$(V)),-v)

check: ## install what is missing, build and pass the tests
	$(Q)slurm/deps --test
	$(Q)$(MAKE) --no-print-directory -j$(cpus) test-programs
	$(Q)$(prove) $(addprefix $(BUILD)/test/,$(units)) $(sort $(wildcard test/t*.t))

check-long: ## the full counts of the proofs
	$(Q)slurm/deps --test
	$(Q)$(MAKE) --no-print-directory -j$(cpus) test-programs
	$(Q)TRISECT_LONG=1 $(prove) $(addprefix $(BUILD)/test/,$(units)) $(sort $(wildcard test/t*.t))

$(BUILD)/test/bench/%: $(BUILD)/test/bench/%.o $(ckpt_lib) $(kern_lib) $(plan_lib)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(BLAS_LIB) -fopenmp $(ckpt_ldlibs)

## fuzzing: clang's libFuzzer, a build of its own
FUZZ_SECONDS ?= 60
fuzz_targets = $(basename $(notdir $(sort $(wildcard test/fuzz/*.c))))

$(BUILD)/test/fuzz/%: $(BUILD)/test/fuzz/%.o $(ckpt_lib) $(plan_lib)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS) -fsanitize=fuzzer -o $@ $^ $(ckpt_ldlibs)

fuzz-programs: $(addprefix $(BUILD)/test/fuzz/,$(fuzz_targets))

fuzz: ## fuzz the six parsers, FUZZ_SECONDS=60 each
	$(Q)slurm/deps --fuzz
	$(Q)$(MAKE) --no-print-directory -j$(cpus) CC=clang CUDA=0 \
		SAN=fuzzer-no-link,address,undefined BUILD=build/fuzz fuzz-programs
	$(Q)test/fuzz/run build/fuzz $(FUZZ_SECONDS) $(fuzz_targets)

## GPUs
# sm_90a for Hopper's own instructions; later cards compile compute_80
GENCODE ?= -gencode arch=compute_80,code=sm_80 \
	-gencode arch=compute_80,code=compute_80 -gencode arch=compute_90a,code=sm_90a
NVFLAGS = -std=c++20 -O3 -lineinfo -I. --expt-relaxed-constexpr -MMD -MP \
	-Xcompiler -Wall,-Wextra,-fno-strict-aliasing $(GENCODE)

$(BUILD)/kernels/attn_cudnn.cu.o $(BUILD)/kernels/attn_cudnn_graph.cu.o $(BUILD)/test/g-plan.cu.o: \
	NVFLAGS += $(if $(CUDNN),-DKERN_CUDNN -I$(CUDNN))

$(BUILD)/%.cu.o: %.cu Makefile
	$(call say,NVCC,$<)
	@mkdir -p $(@D)
	$(Q)$(NVCC) $(NVFLAGS) -c -o $@ $<

# what needs a build for GPUs, and cuDNN
for_gpus = $(if $(filter 0,$(CUDA)),$(error $@ needs CUDA=1, and so nvcc and NCCL))
for_cudnn = $(for_gpus)$(if $(CUDNN),,$(error $@ needs cuDNN: CUDNN=FOLDER of cudnn.h))

gpu_tests = $(addprefix $(BUILD)/test/,g-kern g-moe g-attn g-gen)
$(gpu_tests) $(BUILD)/test/bench/gpu-ops: $(BUILD)/%: $(BUILD)/%.cu.o $(kern_lib) $(BUILD)/lib/base/err.o
	$(call say,LD,$@)
	$(Q)$(CC) -o $@ $^ $(BLAS_LIB) -fopenmp $(gpu_ldlibs) -lm -lpthread

$(BUILD)/test/g-comm $(BUILD)/test/bench/gpu-comm: $(BUILD)/%: $(BUILD)/%.o $(train_lib) $(ckpt_lib) $(kern_lib) $(plan_lib)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(train_ldlibs)

$(BUILD)/test/g-plan: $(BUILD)/test/g-plan.cu.o $(BUILD)/kernels/attn_cudnn_graph.cu.o
	$(call say,LD,$@)
	$(Q)$(CC) -o $@ $^ $(gpu_ldlibs)

gpu-test: $(if $(filter 0,$(CUDA)),,$(gpu_tests) $(BUILD)/test/g-comm $(BUILD)/test/bench/gpu-ops $(BUILD)/test/bench/gpu-comm) ## test the ops on a GPU
	$(for_gpus)$(Q)set -e; for t in $(gpu_tests); do $$t; done

gpu-plan: $(if $(filter 0,$(CUDA)),,$(if $(CUDNN),$(BUILD)/test/g-plan)) ## plan cuDNN's attention for an H200, without a GPU
	$(for_cudnn)$(Q)$(BUILD)/test/g-plan test/data/h200_deviceprop.json $(wildcard $(cuda)/lib*/stubs/libcuda.so)

bench: ## speed, as ratios against peers in the same run (about 20 minutes)
	$(Q)slurm/deps --bench
	$(Q)$(MAKE) --no-print-directory -j$(cpus) all $(BUILD)/test/bench/ops $(BUILD)/test/bench/merge $(BUILD)/test/bench/hf
	$(Q)echo '== ops, fp32, 2 threads' && $(BUILD)/test/bench/ops f32 2
	$(Q)echo '== reshard 2 GiB, TP4 -> TP2 x PP2, against a copy' && $(BUILD)/test/bench/merge $(BUILD)/bin/ckpt-merge 2100 5
	$(Q)echo '== import-hf and export-hf of 2 GiB, against a copy' && $(BUILD)/test/bench/hf $(BUILD)/bin/ckpt-merge 2048 5
	$(Q)echo '== cfg-finalize and stage-build' && PATH=$(abspath $(BUILD))/bin:$$PATH test/bench/plan.sh
	$(Q)echo '== train-worker against PyTorch' && PATH=$(abspath $(BUILD))/bin:$$PATH test/bench/train.sh

hf-golden: ## make the tiny models of test/data/hf anew, with transformers
	$(Q)test/hf-golden.sh

bench-gpu: ## the same on a GPU: ops, and GPT-2 beside PyTorch (about 6 minutes)
	$(for_gpus)$(Q)$(MAKE) --no-print-directory -j$(cpus) all $(BUILD)/test/bench/gpu-ops
	$(Q)$(BUILD)/test/bench/gpu-ops
	$(Q)PATH=$(abspath $(BUILD))/bin:$$PATH test/bench/gpu-train.sh

lint_c = $(sort $(wildcard bin/*.[ch] lib/*/*.[ch] kernels/*.[ch] ckpt/*.[ch] test/*.[ch] test/fuzz/*.[ch]))
lint_sh = $(filter-out $(wildcard test/fuzz/*/*),$(shell grep -lE '^\#!.*(bash|sh)$$' -r bin slurm test .ci --include='*' 2>/dev/null))
lint: ## formatting, static analysis, shell scripts
	$(Q)slurm/deps --lint
	$(Q)clang-format --dry-run -Werror $(lint_c)
	$(Q)shellcheck -x $(lint_sh)
	$(Q)cppcheck --quiet --error-exitcode=1 --inline-suppr --enable=warning,portability \
		--suppress=missingIncludeSystem -I. -D_GNU_SOURCE -DREAL=float -j2 $(filter %.c,$(lint_c))

man: all ## renew the table of checks in the man page
	$(Q)$(BUILD)/bin/cfg-finalize --list-checks | bin/man-checks bin/cfg-finalize.1

install: all ## install under PREFIX (DESTDIR for packaging)
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(PREFIX)/share/trisect
	install $(addprefix $(BUILD)/bin/,$(progs)) $(DESTDIR)$(PREFIX)/bin
	install -m 644 $(wildcard bin/*.1) $(DESTDIR)$(PREFIX)/share/man/man1
	install -d $(DESTDIR)$(PREFIX)/include/trisect/kernels
	install -m 644 kernels/kern.h kernels/kern_moe.h kernels/plugin.h $(DESTDIR)$(PREFIX)/include/trisect/kernels
	cp -R etc slurm $(DESTDIR)$(PREFIX)/share/trisect
	sed -i 's|TRISECT_BIN-}|TRISECT_BIN-$(PREFIX)/bin}|' $(DESTDIR)$(PREFIX)/share/trisect/slurm/*.sbatch

uninstall: ## remove what install put there
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/bin/,$(progs)) \
		$(addprefix $(DESTDIR)$(PREFIX)/share/man/man1/,$(notdir $(wildcard bin/*.1)))
	rm -rf $(DESTDIR)$(PREFIX)/share/trisect $(DESTDIR)$(PREFIX)/include/trisect

clean: ## remove what was built
	rm -rf build

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
