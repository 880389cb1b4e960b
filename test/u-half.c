/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 16-bit numbers against the definition: of two neighbours the nearer one, of
 * equally near ones the even one.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lib/base/half.h"

/* The value of the bits H with so many bits of fraction. */
static double value(uint16_t h, int fraction)
{
	int bias = (1 << (14 - fraction)) - 1;
	int exponent = (h & 0x7fff) >> fraction;
	double m = h & ((1 << fraction) - 1), x;

	x = exponent ? ldexp(m + (1 << fraction), exponent - bias - fraction)
		     : ldexp(m, 1 - bias - fraction);
	return h & 0x8000 ? -x : x;
}

/* Both types' every finite number and the points around the middles. */
static void check(int fraction, float (*widen)(uint16_t),
		  uint16_t (*round)(float))
{
	uint16_t infinite = (uint16_t)(0x7fff >> fraction << fraction);

	for (int sign = 0; sign < 2; sign++)
		for (uint16_t h = 0; h < infinite; h++) {
			uint16_t bits = (uint16_t)(h | sign << 15);
			double x = value(bits, fraction);
			double next = value((uint16_t)(bits + 1), fraction);
			float middle = (float)((x + next) / 2);
			uint16_t even = (uint16_t)(bits + (bits & 1));

			assert_true((double)widen(bits) == x);
			assert_int_equal(round((float)x), bits);
			assert_int_equal(round(middle), even);
			assert_int_equal(round(nextafterf(middle, 0)), bits);
			assert_int_equal(
				round(nextafterf(middle,
						 sign ? -INFINITY : INFINITY)),
				bits + 1);
		}
	assert_true(isinf(widen(infinite)));
	assert_int_equal(round(INFINITY), infinite);
	assert_int_equal(round(-INFINITY), infinite | 0x8000);
	assert_true(isnan(widen(round(NAN))));
	assert_true(isnan(widen((uint16_t)(infinite | 1))));
}

static void bf16(void **state)
{
	(void)state;
	check(7, bf16_widen, bf16_round);
}

static void fp16(void **state)
{
	(void)state;
	check(10, fp16_widen, fp16_round);
}

/* A NaN whose payload is in the lower half only. */
static void quiet(void **state)
{
	uint32_t bits = 0x7f800001;
	float x;

	(void)state;
	memcpy(&x, &bits, sizeof(x));
	assert_true(isnan(bf16_widen(bf16_round(x))));
	assert_true(isnan(fp16_widen(fp16_round(x))));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bf16),
		cmocka_unit_test(fp16),
		cmocka_unit_test(quiet),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
