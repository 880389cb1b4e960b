/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole training steps against test/data/golden: losses and every gradient
 * of tiny models, computed in float64 by an independent program.  The
 * weights and tokens are the hashes that program used (FNV-1a, splitmix64).
 */
#include "test/golden.h"

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
	if (!gpu || !gpu->count())
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
VARIANT(hsm_llama, "hsm-llama")
VARIANT(hsm_two, "hsm-two")
VARIANT(hsm_repeated, "hsm-repeated")
VARIANT(hsm_detached, "hsm-detached")
VARIANT(hsm_docs, "hsm-docs")
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
VARIANT(moe_jitter, "moe-jitter")
VARIANT(moe_jitter_mtp, "moe-jitter-mtp")
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
		cmocka_unit_test(test_hsm_llama),
		cmocka_unit_test(test_hsm_two),
		cmocka_unit_test(test_hsm_repeated),
		cmocka_unit_test(test_hsm_detached),
		cmocka_unit_test(test_hsm_docs),
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
		cmocka_unit_test(test_moe_jitter),
		cmocka_unit_test(test_moe_jitter_mtp),
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
