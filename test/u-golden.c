/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole training steps against test/data/golden: losses and every gradient
 * of tiny models, computed in float64 by an independent program.  The
 * weights and tokens are the hashes that program used (FNV-1a, splitmix64).
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/base/half.h"
#include "lib/train/trainer.h"

enum { SEQ = 12, PATH = 256 };

static uint64_t fnv1a(const char *s)
{
	uint64_t h = 14695981039346656037ULL;

	for (; *s; s++)
		h = (h ^ (unsigned char)*s) * 1099511628211ULL;
	return h;
}

static uint64_t splitmix(uint64_t x)
{
	x += 0x9E3779B97F4A7C15ULL;
	x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
	x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
	return x ^ (x >> 31);
}

static double uniform(const char *name, int64_t i)
{
	return 2 * ((double)(splitmix(fnv1a(name) + (uint64_t)i) >> 11) *
		    0x1p-53) -
	       1;
}

/* Rows of a weight, of one expert if it is a stack of them. */
static int64_t golden_rows(const struct weight *w)
{
	return w->dim[0] / w->experts;
}

/* Our expert e is that program's (e + turned) mod experts. */
static int64_t turned;

static int64_t golden_expert(const struct weight *w, const struct piece *p)
{
	return (p->box.off[0] / golden_rows(w) + turned) % w->experts;
}

/* The ends of names. */
static const struct {
	const char *ours, *theirs;
} tails[] = {
	{"attn_norm/w", "input_layernorm.weight"},
	{"attn_norm/b", "input_layernorm.bias"},
	{"attn/qkv/w", "self_attention.linear_qkv.weight"},
	{"attn/qkv/b", "self_attention.linear_qkv.bias"},
	{"attn/q_norm/w", "self_attention.q_layernorm.weight"},
	{"attn/k_norm/w", "self_attention.k_layernorm.weight"},
	{"attn/q/w", "self_attention.linear_q_proj.weight"},
	{"attn/q_down/w", "self_attention.linear_q_down_proj.weight"},
	{"attn/q_up/w", "self_attention.linear_q_up_proj.weight"},
	{"attn/kv_down/w", "self_attention.linear_kv_down_proj.weight"},
	{"attn/kv_up/w", "self_attention.linear_kv_up_proj.weight"},
	{"attn/q_norm/b", "self_attention.q_layernorm.bias"},
	{"attn/kv_norm/w", "self_attention.kv_layernorm.weight"},
	{"attn/kv_norm/b", "self_attention.kv_layernorm.bias"},
	{"attn/sink", "self_attention.core_attention.softmax_offset"},
	{"attn/linear/w", "self_attention.weight"},
	{"attn/linear/b", "self_attention.bias"},
	{"attn/proj/w", "self_attention.linear_proj.weight"},
	{"attn/proj/b", "self_attention.linear_proj.bias"},
	{"mlp_norm/w", "pre_mlp_layernorm.weight"},
	{"mlp_norm/b", "pre_mlp_layernorm.bias"},
	{"mlp/linear/w", "mlp.weight"},
	{"mlp/linear/b", "mlp.bias"},
	{"mlp/gate/w", "mlp.linear_fc1.weight"},
	{"mlp/up/w", "mlp.linear_fc1.weight"},
	{"mlp/fc1/w", "mlp.linear_fc1.weight"},
	{"mlp/fc1/b", "mlp.linear_fc1.bias"},
	{"mlp/fc2/w", "mlp.linear_fc2.weight"},
	{"mlp/fc2/b", "mlp.linear_fc2.bias"},
	{"moe/router/w", "mlp.router.weight"},
	{"moe/router/b", "mlp.router.bias"},
	{"moe/router/expert_bias", "mlp.router.expert_bias"},
	{"moe/gate/w", "mlp.experts.N.linear_fc1.weight"},
	{"moe/up/w", "mlp.experts.N.linear_fc1.weight"},
	{"moe/gate/b", "mlp.experts.N.linear_fc1.bias"},
	{"moe/up/b", "mlp.experts.N.linear_fc1.bias"},
	{"moe/fc1/w", "mlp.experts.N.linear_fc1.weight"},
	{"moe/fc1/b", "mlp.experts.N.linear_fc1.bias"},
	{"moe/fc2/w", "mlp.experts.N.linear_fc2.weight"},
	{"moe/fc2/b", "mlp.experts.N.linear_fc2.bias"},
	{"moe/shared/router/w", "mlp.shared_experts.gate_weight"},
	{"moe/shared/gate/w", "mlp.shared_experts.linear_fc1.weight"},
	{"moe/shared/up/w", "mlp.shared_experts.linear_fc1.weight"},
	{"moe/shared/fc2/w", "mlp.shared_experts.linear_fc2.weight"},
	{"moe/shared/gate/b", "mlp.shared_experts.linear_fc1.bias"},
	{"moe/shared/up/b", "mlp.shared_experts.linear_fc1.bias"},
	{"moe/shared/fc2/b", "mlp.shared_experts.linear_fc2.bias"},
	{"embed/tok", "embedding.word_embeddings.weight"},
	{"embed/pos", "embedding.position_embeddings.weight"},
	{"final_norm/w", "decoder.final_layernorm.weight"},
	{"final_norm/b", "decoder.final_layernorm.bias"},
	{"head/out", "output_layer.weight"},
	{"enorm/w", "enorm.weight"},
	{"enorm/b", "enorm.bias"},
	{"hnorm/w", "hnorm.weight"},
	{"hnorm/b", "hnorm.bias"},
	{"eh_proj/w", "eh_proj.weight"},
};

/* The weight of piece P in that program's naming, or NULL if it has none. */
static const char *golden_name(const struct weight *w, const struct piece *p,
			       char *buf)
{
	static const char decoder[] = "layers/0000/", mtp[] = "mtp/00/";
	const char *tail = w->name, *within = "";
	int depth = w->name[5] - '0';
	bool ahead = !strncmp(w->name, "mtp/", 4);
	char *at;

	if (ahead) {
		tail += sizeof(mtp) - 1;
		if (!strncmp(tail, "layer/", 6)) {
			tail += 6;
			within = "transformer_layer.";
		}
		if (!strncmp(tail, "final_norm/", 11)) {
			snprintf(buf, PATH, "mtp.layers.%d.final_layernorm.%s",
				 depth, tail[11] == 'w' ? "weight" : "bias");
			return buf;
		}
	} else if (w->layer >= 0) {
		tail += sizeof(decoder) - 1;
	}

	for (size_t i = 0; i < sizeof(tails) / sizeof(*tails); i++) {
		if (strcmp(tail, tails[i].ours))
			continue;
		if (w->layer < 0)
			return tails[i].theirs;
		if (ahead)
			snprintf(buf, PATH, "mtp.layers.%d.%s%s", depth, within,
				 tails[i].theirs);
		else
			snprintf(buf, PATH, "decoder.layers.%d.%s",
				 (int)w->layer, tails[i].theirs);
		at = strstr(buf, ".N.");
		if (at)
			at[1] = (char)('0' + golden_expert(w, p));
		return buf;
	}
	return NULL;
}

/* Row-major index, in that program's array, of element K of a piece. */
static int64_t golden_index(const struct weight *w, int64_t k)
{
	bool up = w->part == PART_UP_W || w->part == PART_EXPERT_UP_W ||
		  w->part == PART_SHARED_UP_W || w->part == PART_EXPERT_UP_B ||
		  w->part == PART_SHARED_UP_B;

	/* these go with the experts */
	if (w->part == PART_ROUTER_W || w->part == PART_ROUTER_B ||
	    w->part == PART_EXPERT_BIAS)
		return (k + turned * w->dim[1]) % weight_elements(w);
	return k + (up ? golden_rows(w) * w->dim[1] : 0);
}

static double golden_weight(const char *name, char kind, int64_t i,
			    bool zero_centered)
{
	double r = uniform(name, i);

	switch (kind) {
	case 'e':
	case 'r': return 0.5 * r;
	case 'm': return 0.25 * r;
	case 'g': return zero_centered ? 0.1 * r : 1 + 0.1 * r;
	default: return 0.05 * r;
	}
}

struct golden {
	double objective, aux, z, *grad;
	struct trainer_depth depth[4];
	int depths;
	struct {
		char name[96], kind;
		int64_t offset, count;
	} tensor[160];
	int tensors;
	int64_t vocab;
};

static void golden_read(struct golden *g, const char *variant)
{
	char path[PATH], line[PATH], kind[16];
	long offset = 0, count = 0;
	FILE *f;

	memset(g, 0, sizeof(*g));
	snprintf(path, sizeof(path), "test/data/golden/%s.txt", variant);
	f = fopen(path, "r");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		struct trainer_depth *d = &g->depth[g->depths];

		sscanf(line, "objective %lf", &g->objective);
		sscanf(line, "moe %lf %lf", &g->aux, &g->z);
		g->depths += sscanf(line, "depth %lf %lf %lf", &d->loss,
				    &d->token_loss, &d->acceptance) == 3;
		if (sscanf(line, "tensor %95s %15s %ld %ld",
			   g->tensor[g->tensors].name, kind, &offset,
			   &count) != 4)
			continue;
		g->tensor[g->tensors].kind = kind[0];
		g->tensor[g->tensors].offset = offset;
		g->tensor[g->tensors++].count = count;
	}
	fclose(f);
	g->grad = calloc((size_t)(offset + count), sizeof(double));
	snprintf(path, sizeof(path), "test/data/golden/%s.f64", variant);
	f = fopen(path, "r");
	assert_non_null(f);
	assert_int_equal(
		fread(g->grad, sizeof(double), (size_t)(offset + count), f),
		offset + count);
	fclose(f);
}

static int golden_find(const struct golden *g, const char *name)
{
	for (int i = 0; i < g->tensors; i++)
		if (!strcmp(g->tensor[i].name, name))
			return i;
	fail_msg("no golden tensor %s", name);
	return -1;
}

/* The data of that program: two micro-batches of two samples. */
static int golden_sample(void *arg, bool valid, int64_t index, int32_t *ids,
			 int32_t *labels, struct err *e)
{
	const struct golden *g = arg;

	(void)valid;
	(void)e;
	/* Its masks and tokens were drawn for vocabulary 37. */
	for (int64_t i = 0; i < SEQ; i++) {
		uint64_t t =
			fnv1a("tokens") + (uint64_t)(index * (SEQ + 1) + i);
		uint64_t m = fnv1a("loss_mask") + (uint64_t)(index * SEQ + i);

		ids[i] = (int32_t)(splitmix(t) % 37);
		labels[i] = (int32_t)(splitmix(t + 1) % 37);
		if ((int64_t)(splitmix(m) % 8) <= index / 2)
			labels[i] = -1;
	}
	assert_non_null(g);
	return 0;
}

/* Of the sum type, as gradients are. */
static double get(const struct trainer *t, const void *base, int64_t at)
{
	if (t->plan.prog.sum == sizeof(double))
		return ((const double *)base)[at];
	return ((const float *)base)[at];
}

static void put(const struct trainer *t, void *base, int64_t at, double value)
{
	switch (t->exec.dtype) {
	case DTYPE_FP64: ((double *)base)[at] = value; break;
	case DTYPE_FP32: ((float *)base)[at] = (float)value; break;
	case DTYPE_BF16:
		((uint16_t *)base)[at] = bf16_round((float)value);
		break;
	default: ((uint16_t *)base)[at] = fp16_round((float)value);
	}
}

static void *map(struct trainer *t, int family)
{
	struct err e;
	void *base = exec_map(&t->exec, family, true, &e);

	if (!base)
		fail_msg("%s", e.text);
	return base;
}

static void unmap(struct trainer *t, int family, void *base, bool write)
{
	struct err e;

	if (exec_unmap(&t->exec, family, base, write, &e))
		fail_msg("%s", e.text);
}

static void set_weights(struct trainer *t, const struct golden *g,
			bool zero_centered)
{
	void *base = map(t, FAMILY_PARAM);
	char buf[PATH];

	for (int i = 0; i < t->plan.slice.pieces; i++) {
		const struct piece *p = &t->plan.slice.piece[i];
		const struct weight *w = &t->plan.weights.list[p->weight];
		const char *name = golden_name(w, p, buf);
		char kind = g->tensor[golden_find(g, name)].kind;

		for (int64_t k = 0; k < box_elements(&p->box); k++) {
			int64_t at = golden_index(w, k);

			put(t, base, p->at + k,
			    golden_weight(name, kind, at, zero_centered));
		}
	}
	unmap(t, FAMILY_PARAM, base, true);
}

/* The largest error of any tensor, relative to its largest gradient. */
static double worst_gradient(struct trainer *t, const struct golden *g,
			     double scale)
{
	void *base = map(t, FAMILY_GRAD);
	double worst = 0;
	char buf[PATH];

	for (int i = 0; i < t->plan.slice.pieces; i++) {
		const struct piece *p = &t->plan.slice.piece[i];
		const struct weight *w = &t->plan.weights.list[p->weight];
		int tensor = golden_find(g, golden_name(w, p, buf));
		const double *ref = g->grad + g->tensor[tensor].offset;
		double most = 0, off = 0;

		for (int64_t k = 0; k < g->tensor[tensor].count; k++)
			most = fmax(most, fabs(ref[k]));
		for (int64_t k = 0; k < box_elements(&p->box); k++) {
			double want = ref[golden_index(w, k)];
			double have = scale * get(t, base, p->at + k);

			off = fmax(off, fabs(have - want));
		}
		worst = fmax(worst, off / most);
	}
	unmap(t, FAMILY_GRAD, base, false);
	return worst;
}

static void run_variant(const char *variant, const struct machine *m,
			const char *dtype, double loss_tol, double grad_tol)
{
	bool half = strstr(dtype, "16");
	const char *const sets[] = {dtype,
				    m->device == DEVICE_CUDA
					    ? "spec.device=\"cuda\""
					    : "spec.device=\"cpu\"",
				    "run.loss_scale=1024.0"};
	struct trainer_data data = {.sample = golden_sample};
	struct trainer_result result;
	struct report r = {0};
	struct config c;
	struct golden g;
	struct trainer t;
	double worst;
	struct arena a;
	struct err e;
	char path[PATH];

	snprintf(path, sizeof(path), "test/data/golden/%s.cfg", variant);
	assert_int_equal(arena_open(&a, &e), 0);
	r.arena = &a;
	golden_read(&g, variant);
	data.arg = &g;
	assert_int_equal(config_load(path, sets, half ? 3 : 2, &a, &c, &r, &e),
			 0);
	config_finish(&c, 1, &r);
	for (size_t i = 0; i < r.count; i++)
		if (r.list[i].severity == ERROR)
			fail_msg("%s: %s", variant, r.list[i].message);
	if (trainer_open(&t, &c, 1, 0, m, NULL, &a, &e))
		fail_msg("%s", e.text);
	set_weights(&t, &g, c.shape.layernorm_zero_centered_gamma);
	if (trainer_step(&t, &data, false, &result, &e) ||
	    (!result.step && trainer_settle(&t, &result, &e)))
		fail_msg("%s", e.text);
	worst = worst_gradient(&t, &g, result.grad_scale);
	assert_int_equal(result.depths, g.depths);
	for (int k = 0; k < g.depths; k++) {
		assert_true(fabs(result.mtp[k].loss - g.depth[k].loss) <
			    loss_tol);
		assert_true(fabs(result.mtp[k].token_loss -
				 g.depth[k].token_loss) < loss_tol);
		assert_true(fabs(result.mtp[k].acceptance -
				 g.depth[k].acceptance) < (half ? 1 : 1e-15));
	}
	assert_true(fabs(result.moe.aux - g.aux) < loss_tol);
	assert_true(fabs(result.moe.z - g.z) < loss_tol);
	print_message("# %s %s%s: loss off by %.2e, worst gradient %.2e\n",
		      variant, dtype + 18,
		      m->device == DEVICE_CUDA ? " GPU" : "",
		      fabs(result.loss - g.objective), worst);
	assert_true(fabs(result.loss - g.objective) < loss_tol);
	assert_true(worst < grad_tol);
	trainer_close(&t);
	free(g.grad);
	arena_close(&a);
}

#define FP32 "spec.params_dtype=\"fp32\""
#define FP64 "spec.params_dtype=\"fp64\""
#define BF16 "spec.params_dtype=\"bf16\""
#define FP16 "spec.params_dtype=\"fp16\""

/*
 * On the CPU in every precision; on a GPU too, where there is one.  With bf16
 * some tokens go to other experts.
 */
static void all(const char *variant)
{
	const struct machine *gpu = machine_cuda();
	bool moe = !strncmp(variant, "moe", 3);
	/* some token is so near to two experts that 16 bits take the other */
	bool near = strstr(variant, "mla-moe") || strstr(variant, "moe-bias") ||
		    strstr(variant, "add-bias-mtp");

	run_variant(variant, &machine_cpu, FP64, 1e-13, 1e-12);
	run_variant(variant, &machine_cpu, FP32, 2e-6, 2e-5);
	if (!near) {
		run_variant(variant, &machine_cpu, BF16, 5e-3,
			    moe ? 0.3 : 6e-2);
		run_variant(variant, &machine_cpu, FP16, 5e-4, 1e-2);
	}
	if (!gpu || !gpu->count() || !strncmp(variant, "moe-sink", 8) ||
	    !strncmp(variant, "moe-add", 7))
		return;
	run_variant(variant, gpu, FP32, 2e-6, 2e-5);
	if (!near)
		run_variant(variant, gpu, FP16, 5e-4, 1e-2);
}

#define VARIANT(id, name)                   \
	static void test_##id(void **state) \
	{                                   \
		(void)state;                \
		all(name);                  \
	}

VARIANT(llama, "llama")
VARIANT(llama_tied, "llama-tied")
VARIANT(llama_per_token, "llama-per-token")
VARIANT(llama_masked, "llama-masked")
VARIANT(llama_misc, "llama-misc")
VARIANT(gpt2_tied, "gpt2-tied")
VARIANT(gpt2_untied, "gpt2-untied")
VARIANT(llama_qk_norm, "llama-qk-norm")
VARIANT(mtp_llama, "mtp-llama")
VARIANT(mtp_llama_misc, "mtp-llama-misc")
VARIANT(mtp_llama_tied, "mtp-llama-tied")
VARIANT(mtp_llama_per_token, "mtp-llama-per-token")
VARIANT(mtp_llama_masked, "mtp-llama-masked")
VARIANT(mtp_llama_repeated, "mtp-llama-repeated")
VARIANT(mtp_gpt2_tied, "mtp-gpt2-tied")
VARIANT(mtp_gpt2_untied, "mtp-gpt2-untied")
VARIANT(mtp_llama_detached, "mtp-llama-detached")
VARIANT(mtp_gpt2_detached, "mtp-gpt2-detached")
VARIANT(own_mtp, "own-mtp")
VARIANT(own_gpt2, "own-gpt2")
VARIANT(own_linear_mtp, "own-linear-mtp")
VARIANT(own_none_mtp, "own-none-mtp")
VARIANT(sink_learned, "sink-learned")
VARIANT(sink_one, "sink-one")
VARIANT(docs_llama, "docs-llama")
VARIANT(docs_gpt2, "docs-gpt2")
VARIANT(docs_sink, "docs-sink")
VARIANT(l2_llama, "l2-llama")
VARIANT(l2_gpt2, "l2-gpt2")
VARIANT(moe_top2, "moe-top2")
VARIANT(moe_top2_mtp, "moe-top2-mtp")
VARIANT(moe_pre_softmax, "moe-pre-softmax")
VARIANT(moe_groups, "moe-groups")
VARIANT(moe_groups_mtp, "moe-groups-mtp")
VARIANT(moe_softplus, "moe-softplus")
VARIANT(moe_one, "moe-one")
VARIANT(moe_pattern, "moe-pattern")
VARIANT(moe_per_token, "moe-per-token")
VARIANT(moe_repeated, "moe-repeated")
VARIANT(moe_gelu, "moe-gelu")
VARIANT(mla_rope, "mla-rope")
VARIANT(mla_whole_query, "mla-whole-query")
VARIANT(mla_yarn, "mla-yarn")
VARIANT(mla_plain_latents, "mla-plain-latents")
VARIANT(mla_layernorm, "mla-layernorm")
VARIANT(mla_moe, "mla-moe")
VARIANT(mla_mtp, "mla-mtp")
VARIANT(mla_moe_mtp, "mla-moe-mtp")
VARIANT(moe_add_bias, "moe-add-bias")
VARIANT(moe_add_bias_mtp, "moe-add-bias-mtp")
VARIANT(moe_bias, "moe-bias")
VARIANT(moe_bias_mtp, "moe-bias-mtp")
VARIANT(moe_bias_softplus, "moe-bias-softplus")
VARIANT(moe_shared_gate, "moe-shared-gate")
VARIANT(moe_global, "moe-global")
VARIANT(moe_global_mtp, "moe-global-mtp")
VARIANT(moe_sinkhorn, "moe-sinkhorn")
VARIANT(moe_sinkhorn_one, "moe-sinkhorn-one")

/* Experts under other numbers, groups kept together: the same model. */
static void test_moe_turned(void **state)
{
	(void)state;
	turned = 3;
	run_variant("moe-top2-mtp", &machine_cpu, FP64, 1e-13, 1e-12);
	run_variant("moe-pre-softmax", &machine_cpu, FP64, 1e-13, 1e-12);
	turned = 2;
	run_variant("moe-groups", &machine_cpu, FP64, 1e-13, 1e-12);
	run_variant("moe-bias", &machine_cpu, FP64, 1e-13, 1e-12);
	turned = 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_llama),
		cmocka_unit_test(test_llama_tied),
		cmocka_unit_test(test_llama_per_token),
		cmocka_unit_test(test_llama_masked),
		cmocka_unit_test(test_llama_misc),
		cmocka_unit_test(test_gpt2_tied),
		cmocka_unit_test(test_gpt2_untied),
		cmocka_unit_test(test_llama_qk_norm),
		cmocka_unit_test(test_mtp_llama),
		cmocka_unit_test(test_mtp_llama_misc),
		cmocka_unit_test(test_mtp_llama_tied),
		cmocka_unit_test(test_mtp_llama_per_token),
		cmocka_unit_test(test_mtp_llama_masked),
		cmocka_unit_test(test_mtp_llama_repeated),
		cmocka_unit_test(test_mtp_gpt2_tied),
		cmocka_unit_test(test_mtp_gpt2_untied),
		cmocka_unit_test(test_mtp_llama_detached),
		cmocka_unit_test(test_mtp_gpt2_detached),
		cmocka_unit_test(test_own_mtp),
		cmocka_unit_test(test_own_gpt2),
		cmocka_unit_test(test_own_linear_mtp),
		cmocka_unit_test(test_own_none_mtp),
		cmocka_unit_test(test_sink_learned),
		cmocka_unit_test(test_sink_one),
		cmocka_unit_test(test_docs_llama),
		cmocka_unit_test(test_docs_gpt2),
		cmocka_unit_test(test_docs_sink),
		cmocka_unit_test(test_l2_llama),
		cmocka_unit_test(test_l2_gpt2),
		cmocka_unit_test(test_moe_top2),
		cmocka_unit_test(test_moe_top2_mtp),
		cmocka_unit_test(test_moe_pre_softmax),
		cmocka_unit_test(test_moe_groups),
		cmocka_unit_test(test_moe_groups_mtp),
		cmocka_unit_test(test_moe_softplus),
		cmocka_unit_test(test_moe_one),
		cmocka_unit_test(test_moe_pattern),
		cmocka_unit_test(test_moe_per_token),
		cmocka_unit_test(test_moe_repeated),
		cmocka_unit_test(test_moe_gelu),
		cmocka_unit_test(test_moe_add_bias),
		cmocka_unit_test(test_moe_add_bias_mtp),
		cmocka_unit_test(test_moe_bias),
		cmocka_unit_test(test_moe_bias_mtp),
		cmocka_unit_test(test_moe_bias_softplus),
		cmocka_unit_test(test_moe_shared_gate),
		cmocka_unit_test(test_moe_global),
		cmocka_unit_test(test_moe_global_mtp),
		cmocka_unit_test(test_moe_sinkhorn),
		cmocka_unit_test(test_moe_sinkhorn_one),
		cmocka_unit_test(test_moe_turned),
		cmocka_unit_test(test_mla_rope),
		cmocka_unit_test(test_mla_whole_query),
		cmocka_unit_test(test_mla_yarn),
		cmocka_unit_test(test_mla_plain_latents),
		cmocka_unit_test(test_mla_layernorm),
		cmocka_unit_test(test_mla_moe),
		cmocka_unit_test(test_mla_mtp),
		cmocka_unit_test(test_mla_moe_mtp),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
