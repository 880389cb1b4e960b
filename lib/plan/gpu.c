/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/gpu.h"

#include <stddef.h>
#include <string.h>

#define T   *1e12
#define G   *1e9
#define MIB *((int64_t)1 << 20)

const struct gpu gpu_table[] = {
	{"h200", 989.5 T, 1979 T, 67 T, 4.8 T, 450 G, 50 G, 143771 MIB, 132,
	 true},
	{"h100", 989.5 T, 1979 T, 67 T, 3.35 T, 450 G, 50 G, 81559 MIB, 132,
	 false},
	{"a100-80g", 312 T, 312 T, 19.5 T, 2.039 T, 300 G, 25 G, 81920 MIB, 108,
	 false},
	{"b200", 2250 T, 4500 T, 80 T, 8 T, 900 G, 50 G, 183359 MIB, 148,
	 false},
	{0},
};

const struct gpu *gpu_find(const char *name)
{
	if (!name)
		return gpu_table;
	for (const struct gpu *g = gpu_table; g->name; g++)
		if (!strcmp(g->name, name))
			return g;
	return NULL;
}
