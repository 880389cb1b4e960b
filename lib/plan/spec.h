/* SPDX-License-Identifier: Apache-2.0 */
/* Which code computes each layer, and in which precision. */
#ifndef PLAN_SPEC_H
#define PLAN_SPEC_H

#include "lib/plan/field.h"

struct shape;

enum spec_impl { IMPL_LOCAL, IMPL_TRANSFORMER_ENGINE, IMPL_INFERENCE };
enum spec_backend {
	BACKEND_AUTO,
	BACKEND_FLASH,
	BACKEND_FUSED,
	BACKEND_UNFUSED,
	BACKEND_LOCAL
};
enum spec_dtype { DTYPE_FP32, DTYPE_FP64, DTYPE_BF16, DTYPE_FP16 };
enum spec_device { DEVICE_AUTO, DEVICE_CPU, DEVICE_CUDA };

struct spec {
	struct origin from[FIELDS_MAX];

	int transformer_impl;  /* enum spec_impl */
	int attention_backend; /* enum spec_backend */
	int params_dtype;      /* enum spec_dtype */
	int device;	       /* enum spec_device; whose table of ops */
};

extern const struct group spec_group;

/* One layer's choice of code, and why. */
struct spec_row {
	const char *name; /* "local", "fused", "moe", ... */
	const char *norm, *attention, *mlp;
	const char *reason;
};

/* Fill what was not given, from what was. */
void spec_finalize(struct spec *s);

void spec_check(const struct spec *s, const struct shape *shape,
		struct report *r);

/* The row of decoder LAYER of the whole model, by its global number. */
struct spec_row spec_layer(const struct spec *s, const struct shape *shape,
			   int64_t layer);

/* Bytes of a parameter in memory, and of what sums are kept in. */
size_t spec_param_bytes(const struct spec *s);
size_t spec_sum_bytes(const struct spec *s);

/* Whether attention on a GPU is cuDNN's where that can do it. */
bool spec_uses_cudnn(const struct spec *s);

#endif
