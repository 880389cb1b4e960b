/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of a router's choices on the GPU: a block for each expert. */
#include "kernels/kern_cuda.h"

/* Threads that look through all choices, each at PER in a row. */
#define SORTERS 1024
#define PER	4

/* In the order of numbers >= 0; what is no number is the largest. */
static __device__ __forceinline__ uint32_t bits_of(float p)
{
	return __float_as_uint(p) & 0x7fffffff;
}

/* How many of the choices I .. END are EXPERT's, with a probability of LO. */
static __device__ int matches(const int32_t *expert, const float *prob,
			      int64_t i, int64_t end, int32_t e, uint32_t lo,
			      int *area)
{
	int n = 0, all;

	for (i += threadIdx.x; i < end; i += SORTERS)
		n += expert[i] == e && (!lo || bits_of(prob[i]) >= lo);
	block_scan(n, &all, area);
	return all;
}

/* What an expert takes of a micro-batch: all above LO, so many of LO. */
struct limit {
	uint32_t lo;
	int32_t room;
};

/* By bisection, as in route.c. */
static __device__ struct limit find_limit(const int32_t *expert,
					  const float *prob, int64_t i,
					  int64_t end, int32_t e,
					  int64_t capacity, int *area)
{
	uint32_t lo = 0, hi = 0x80000000;

	while (hi - lo > 1) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (matches(expert, prob, i, end, e, mid, area) >= capacity)
			lo = mid;
		else
			hi = mid;
	}
	return {lo, (int32_t)capacity -
			    matches(expert, prob, i, end, e, lo + 1, area)};
}

/* rows of each expert; the limits (experts, ranks). */
static __global__ void __launch_bounds__(SORTERS)
	count_kernel(struct kern_map m, struct limit *limits, const float *prob,
		     struct kern_moe_dims d)
{
	__shared__ int area[32];
	int32_t e = (int32_t)(d.first + blockIdx.x);
	int64_t each = d.M * d.K, total = 0;

	for (int64_t r = 0; r < d.ranks; r++) {
		int64_t i = r * each, end = i + each;
		int n = matches(m.expert, prob, i, end, e, 0, area);
		struct limit l = {0, n};

		if (d.capacity && n > d.capacity) {
			l.room = (int32_t)d.capacity;
			if (!d.by_position)
				l = find_limit(m.expert, prob, i, end, e,
					       d.capacity, area);
			n = (int)d.capacity;
		}
		if (threadIdx.x == 0)
			limits[blockIdx.x * d.ranks + r] = l;
		total += n;
	}
	if (threadIdx.x == 0)
		m.end[blockIdx.x] = (int32_t)total;
}

/* end (n) = its sums up to each. */
static __global__ void __launch_bounds__(SORTERS)
	ends_kernel(int32_t *end, int64_t n)
{
	__shared__ int area[32];
	int sum = 0, all;

	for (int64_t i = 0; i < n; i += SORTERS) {
		int64_t at = i + threadIdx.x;
		int v = at < n ? end[at] : 0;
		int before = block_scan(v, &all, area);

		if (at < n)
			end[at] = sum + before + v;
		sum += all;
	}
}

/* Which of a micro-batch's choices an expert has room for, in their order. */
struct sorter {
	struct limit l;
	bool by_position;
	int taken; /* of those with a probability of LO, or of all */
	int *area;

	/* mine: bits of PER choices from AT on; gives those with room. */
	__device__ int take(int mine, const float *prob, int64_t at)
	{
		int level = 0, first, all;

#pragma unroll
		for (int j = 0; j < PER; j++) {
			uint32_t bits;

			if (!(mine >> j & 1))
				continue;
			bits = by_position ? l.lo : bits_of(prob[at + j]);
			level |= (bits == l.lo) << j;
			mine &= ~((bits < l.lo) << j);
		}
		first = taken + block_scan(__popc(level), &all, area);
		taken += all;
#pragma unroll
		for (int j = 0; j < PER; j++) {
			if (!(level >> j & 1))
				continue;
			if (first++ >= l.room)
				mine &= ~(1 << j);
		}
		return mine;
	}
};

static __global__ void __launch_bounds__(SORTERS)
	rows_kernel(struct kern_map m, const struct limit *limits,
		    const float *prob, struct kern_moe_dims d)
{
	__shared__ int area[32];
	int32_t e = (int32_t)(d.first + blockIdx.x);
	int64_t each = d.M * d.K;
	int row = blockIdx.x ? m.end[blockIdx.x - 1] : 0;

	for (int64_t r = 0; r < d.ranks; r++) {
		struct sorter s = {limits[blockIdx.x * d.ranks + r],
				   d.by_position, 0, area};

		for (int64_t i = r * each; i < (r + 1) * each;
		     i += SORTERS * PER) {
			int64_t at = i + threadIdx.x * PER;
			int mine = 0, all, to;

#pragma unroll
			for (int j = 0; j < PER; j++)
				mine |= (at + j < (r + 1) * each &&
					 m.expert[at + j] == e)
					<< j;
			if (d.capacity)
				mine = s.take(mine, prob, at);
			to = row + block_scan(__popc(mine), &all, area);
			row += all;
#pragma unroll
			for (int j = 0; j < PER; j++)
				if (mine >> j & 1)
					m.row[at + j] = to++;
		}
	}
}

void cuda_route_rows(struct queue *q, const struct kern_map *m,
		     const float *prob, const struct kern_moe_dims *d)
{
	struct limit *limits = (struct limit *)q->work;
	unsigned experts = (unsigned)d->experts;
	size_t bytes = (size_t)(d->ranks * d->M * d->K) * sizeof(*m->row);

	if (cudaMemsetAsync(m->row, 0xff, bytes, q->stream))
		queue_fail(q, "router", "cannot set rows");
	LAUNCH(q, count_kernel, experts, SORTERS, 0, *m, limits, prob, *d);
	LAUNCH(q, ends_kernel, 1, SORTERS, 0, m->end, d->experts);
	LAUNCH(q, rows_kernel, experts, SORTERS, 0, *m, limits, prob, *d);
}
