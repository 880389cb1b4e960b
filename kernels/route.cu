/* SPDX-License-Identifier: Apache-2.0 */
/* route.c on the GPU: the choice of experts; log_w is sinkhorn's, or NULL. */
#include "kernels/route_cuda.h"

/* The same, as precise as route.c: sums that choices go by. */
static __device__ double fine_score(double x, const struct token &t,
				    enum kern_score score)
{
	if (score == KERN_SOFTMAX)
		return exp(x - (double)t.most) / (double)t.sum;
	if (score == KERN_SIGMOID)
		return 1 / (1 + exp(-x));
	return sqrt(x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)));
}

/* One of several, by its key. */
struct pick {
	double key;
	int64_t at; /* -1: none */
};

/* Larger keys come first, equal ones by their number. */
static __device__ __forceinline__ bool is_before(const struct pick &a,
						 const struct pick &b)
{
	return a.key > b.key || (a.key == b.key && a.at < b.at);
}

/* The first of N behind LAST, for all lanes; keys that are NaN are barred. */
static __device__ struct pick next_best(const double *key, int64_t n,
					const struct pick &last)
{
	struct pick best = {0, -1};

	for (int64_t e = threadIdx.x % 32; e < n; e += 32) {
		struct pick p = {key[e], e};

		if (p.key == p.key && (last.at < 0 || is_before(last, p)) &&
		    (best.at < 0 || is_before(p, best)))
			best = p;
	}
#pragma unroll
	for (int i = 16; i; i /= 2) {
		struct pick p;

		p.key = __shfl_xor_sync(~0u, best.key, i);
		p.at = __shfl_xor_sync(~0u, best.at, i);
		if (p.at >= 0 && (best.at < 0 || is_before(p, best)))
			best = p;
	}
	return best;
}

/* What is not a number is chosen last. */
static __device__ __forceinline__ double key_of(double x)
{
	return isnan(x) ? (double)-INFINITY : x;
}

/* The sum of one group's best, by a lane alone. */
static __device__ double group_worth(const struct room &r, int64_t group,
				     const struct token &t, bool keys,
				     const struct kern_moe_dims &d)
{
	int64_t size = d.E / d.groups, first = group * size;
	struct pick last = {0, -1};
	double worth = 0;

	for (int64_t k = 0; k < d.K / d.group_topk; k++) {
		struct pick best = {0, -1};

		for (int64_t e = first; e < first + size; e++) {
			struct pick p = {r.key[e], e};

			if ((last.at < 0 || is_before(last, p)) &&
			    (best.at < 0 || is_before(p, best)))
				best = p;
		}
		if (best.at < 0)
			break;
		last = best;
		worth += keys ? best.key
			      : fine_score((double)r.x[best.at], t, d.score);
	}
	return key_of(worth);
}

/* Bar all experts but those of the best groups. */
static __device__ void limit_groups(const struct room &r, const struct token &t,
				    bool biased, const struct kern_moe_dims &d)
{
	bool keys = biased || (d.score == KERN_SOFTMAX && !d.pre);
	int64_t size = d.E / d.groups;
	struct pick last = {0, -1};

	for (int64_t g = threadIdx.x % 32; g < d.groups; g += 32)
		r.worth[g] = group_worth(r, g, t, keys, d);
	__syncwarp();
	for (int64_t k = 0; k < d.group_topk; k++)
		last = next_best(r.worth, d.groups, last);
	for (int64_t e = threadIdx.x % 32; e < d.E; e += 32) {
		struct pick p = {r.worth[e / size], e / size};

		if (is_before(last, p))
			r.key[e] = NAN;
	}
	__syncwarp();
}

/* The choice of token N by the logits alone is counted. */
static __device__ void count_free(const struct room &r, int32_t *load,
				  const struct kern_moe_dims &d)
{
	struct pick last = {0, -1};

	for (int64_t k = 0; k < d.K; k++) {
		last = next_best(r.key, d.E, last);
		if (threadIdx.x % 32 == 0)
			atomicAdd(&load[last.at], 1);
	}
	__syncwarp();
}

template <typename T>
static __global__ void choose_kernel(float *prob, struct kern_map m,
				     const float *logits, const T *bias,
				     const double *log_w,
				     struct kern_moe_dims d)
{
	extern __shared__ double shared[];
	struct room r = room_of((char *)shared, d);
	int lane = threadIdx.x % 32, per = blockDim.x / 32;
	int64_t N = d.ranks * d.M, step = (int64_t)gridDim.x * per;
	int64_t n = (int64_t)blockIdx.x * per + threadIdx.x / 32;
	/* whether the logits alone choose */
	bool plain = !bias && !d.group_topk && !log_w;

	for (; n < N; n += step) {
		int32_t *expert = m.expert + n * d.K;
		int32_t *load = m.load + n / d.T * d.E;
		struct pick last = {0, -1};
		struct token t;
		float sum;

		logits_load(r.x, logits + n * d.E, d.E);
		t = token_load(r.x, d.E);
		for (int64_t e = lane; e < d.E; e += 32)
			r.key[e] = key_of((double)r.x[e]);
		__syncwarp();
		if (!plain)
			count_free(r, load, d);
		for (int64_t e = lane; e < d.E && bias; e += 32)
			r.key[e] =
				key_of(fine_score((double)r.x[e], t, d.score) +
				       (double)(float)bias[e]);
		for (int64_t e = lane; e < d.E && log_w && !bias; e += 32)
			r.key[e] = key_of((double)r.x[e] +
					  log_w[n / d.M * d.E + e]);
		__syncwarp();
		if (d.group_topk)
			limit_groups(r, t, bias, d);
		for (int64_t k = 0; k < d.K; k++) {
			last = next_best(r.key, d.E, last);
			if (lane == 0)
				expert[k] = (int32_t)last.at;
			if (lane == 0 && plain)
				atomicAdd(&load[last.at], 1);
		}
		__syncwarp();
		sum = chosen_sum(r.x, expert, t, d);
		for (int64_t k = lane; k < d.K; k += 32)
			prob[n * d.K + k] =
				chosen_prob(r.x, expert, k, sum, t, d) *
				(float)d.scale;
	}
}

template <typename T>
void cuda_route<T>::fwd(struct queue *q, void *prob, int32_t *map,
			const void *logits, const void *bias,
			const struct kern_moe_dims *d)
{
	struct kern_map m = kern_map(map, d);
	int64_t N = d->ranks * d->M, per = tokens_of(d);
	const double *log_w =
		d->sinkhorn ? cuda_sinkhorn(q, (const float *)logits, d) : NULL;

	cuda_zero(q, m.load, N / d->T * d->E * (int64_t)sizeof(*m.load));
	LAUNCH(q, choose_kernel<T>, blocks_for(N, (int)per, 1 << 20),
	       32 * (unsigned)per, room_for(choose_kernel<T>, d), (float *)prob,
	       m, (const float *)logits, (const T *)bias, log_w, *d);
	cuda_route_rows(q, &m, (const float *)prob, d);
}

template struct cuda_route<float>;
template struct cuda_route<bf16>;
template struct cuda_route<fp16>;
