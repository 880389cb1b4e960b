/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How cuDNN's attention is cut into launches, what scratch it takes, and when
 * it is taken at all.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/attn_plan.h"

static struct kern_attn_dims dims(int64_t B, int64_t H, int64_t G, int64_t T,
				  int64_t D)
{
	return (struct kern_attn_dims){
		.B = B,
		.T = T,
		.H = H,
		.G = G,
		.D = D,
		.Dv = D,
		.backend = KERN_ATTN_CUDNN,
	};
}

/* Every head of every sample once; workspace and chunks within bounds. */
static void test_cover(void **state)
{
	static const int64_t T[] = {1, 127, 1024, 8192, 40000};
	static const int64_t B[] = {1, 2, 5, 64};
	static const int64_t heads[][2] = {{1, 1},  {12, 12}, {32, 8},
					   {40, 1}, {6, 2},   {128, 128}};

	(void)state;
	for (int t = 0; t < 5; t++)
		for (int b = 0; b < 4; b++)
			for (int h = 0; h < 6; h++) {
				struct kern_attn_dims d =
					dims(B[b], heads[h][0], heads[h][1],
					     T[t], 64);
				struct kern_cudnn_view v = kern_cudnn_view(&d);
				int64_t entry = v.heads * kern_cudnn_head(&d);

				assert_int_equal(v.count * v.batch * v.heads,
						 d.B * d.H);
				assert_int_equal(v.count * v.batch * v.kv,
						 d.B * d.G);
				assert_in_range(v.chunk, 0, v.batch);
				assert_true(v.chunk * entry <= KERN_CUDNN_MOST);
				/* not cut finer than needed */
				assert_true(v.chunk == v.batch ||
					    2 * v.chunk * entry >
						    KERN_CUDNN_AIM ||
					    entry > KERN_CUDNN_AIM);
			}
}

static void check_view(struct kern_attn_dims d, int64_t count, int64_t batch,
		       int64_t chunk, int64_t scratch)
{
	struct kern_cudnn_view v = kern_cudnn_view(&d);

	assert_int_equal(v.count, count);
	assert_int_equal(v.batch, batch);
	assert_int_equal(v.chunk, chunk);
	assert_int_equal(kern_attn_scratch_cuda(&d, true, 2), scratch);
}

/* Workspaces as cuDNN 9.19 asked for them on an H200; sums before them. */
static void test_scratch(void **state)
{
	(void)state;
	check_view(dims(64, 12, 12, 1024, 64), 1, 64, 32,
		   32 * 12 * 1024 * 4 + 805306624);
	check_view(dims(16, 25, 25, 1024, 64), 1, 16, 16,
		   16 * 25 * 1024 * 4 + 838861056);
	check_view(dims(2, 32, 8, 8192, 128), 2, 8, 8,
		   32 * 8192 * 4 + 4429185280);
	check_view(dims(2, 6, 2, 65, 80), 2, 2, 2, 1792 + 321792);
	check_view(dims(5, 12, 12, 4096, 64), 1, 5, 2,
		   2 * 12 * 4096 * 4 + 805306624);
}

static void test_rule(void **state)
{
	struct kern_attn_dims d = dims(2, 6, 2, 65, 80), x = d;

	(void)state;
	assert_int_equal(kern_attn_backend(&d, true, 2), KERN_ATTN_CUDNN);
	assert_int_equal(kern_attn_backend(&d, false, 2), KERN_ATTN_OWN);
	assert_int_equal(kern_attn_backend(&d, true, 4), KERN_ATTN_OWN);
	x.backend = KERN_ATTN_OWN;
	assert_int_equal(kern_attn_backend(&x, true, 2), KERN_ATTN_OWN);
	x = d;
	x.drop.p = 0.1;
	assert_int_equal(kern_attn_backend(&x, true, 2), KERN_ATTN_OWN);
	x = d;
	x.D = 20;
	assert_int_equal(kern_attn_backend(&x, true, 2), KERN_ATTN_OWN);
	x.D = 264;
	assert_int_equal(kern_attn_backend(&x, true, 2), KERN_ATTN_OWN);
	x = d;
	x.window = x.T - 1;
	assert_int_equal(kern_attn_backend(&x, true, 2), KERN_ATTN_OWN);
	x.window = x.T;
	assert_int_equal(kern_attn_backend(&x, true, 2), KERN_ATTN_CUDNN);
	x = d;
	x.T = 65536; /* a head of 8 GiB */
	assert_int_equal(kern_attn_backend(&x, true, 2), KERN_ATTN_OWN);
	assert_int_equal(kern_attn_scratch_cuda(&x, true, 2),
			 2 * 6 * 65536 * 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cover),
		cmocka_unit_test(test_scratch),
		cmocka_unit_test(test_rule),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
