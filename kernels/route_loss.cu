/* SPDX-License-Identifier: Apache-2.0 */
/* route.c on the GPU: losses, gradients and what moves a bias. */
#include "kernels/route_cuda.h"

/* Blocks of the losses' sums: a fixed number, so that no device shows. */
#define PARTS 512

static __device__ __forceinline__ float score_slope(float s,
						    enum kern_score score)
{
	if (score == KERN_SOFTMAX)
		return s;
	if (score == KERN_SIGMOID)
		return s * (1 - s);
	return s > 0 ? -expm1f(-s * s) / (2 * s) : 0;
}

/* The sum of all scores. */
static __device__ float score_sum(const float *x, const struct token &t,
				  const struct kern_moe_dims &d)
{
	float sum = 0;

	if (d.score == KERN_SOFTMAX)
		return 1;
	for (int64_t e = threadIdx.x % 32; e < d.E; e += 32)
		sum += score_of(x[e], t, d.score);
	return warp_sum(sum) + 1e-20f;
}

/* The c(e) of this rank's micro-batch. */
static __device__ double chosen(const struct kern_map &m, int64_t e,
				const struct kern_moe_dims &d)
{
	int64_t samples = d.M / d.T;
	const int32_t *load = m.load + d.me * samples * d.E + e;
	int64_t n = 0;

	for (int64_t i = 0; i < samples; i++)
		n += load[i * d.E];
	return (double)n;
}

static __global__ void tally_kernel(double *tally, struct kern_map m,
				    struct kern_moe_dims d)
{
	int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (e < d.E)
		tally[e] += chosen(m, e, d);
}

void cuda_tally(struct queue *q, double *tally, const int32_t *map,
		const struct kern_moe_dims *d)
{
	struct kern_map m = kern_map((int32_t *)map, d); /* only read */

	LAUNCH(q, tally_kernel, blocks_for(d->E, 128, 1 << 20), 128, 0, tally,
	       m, *d);
}

/* Of the gradients by shares, what all samples have alike: slope (E). */
static __global__ void __launch_bounds__(1024)
	slopes_kernel(float *slope, struct kern_map m, const double *tally,
		      struct kern_moe_dims d)
{
	__shared__ double area[32];
	double M = (double)d.M, E = (double)d.E, so_far = 0, global = 0;
	double all = d.aux * E / ((double)d.K * M * M);

	for (int64_t e = threadIdx.x; e < d.E && tally; e += blockDim.x)
		so_far += tally[e];
	so_far = block_sum(so_far, area);
	if (so_far > 0)
		global = d.global * E / (M * so_far);
	for (int64_t e = threadIdx.x; e < d.E; e += blockDim.x)
		slope[e] = (float)(all * chosen(m, e, d) +
				   (tally ? global * tally[e] : 0));
}

/* The derivative by the share of expert E in a token of sample B. */
static __device__ __forceinline__ float slope_of(const float *slope,
						 const struct kern_map &m,
						 int64_t b, int64_t e,
						 const struct kern_moe_dims &d)
{
	const int32_t *load = m.load + (d.me * (d.M / d.T) + b) * d.E;
	double seq = d.seq_aux * (double)d.E /
		     ((double)d.K * (double)d.T * (double)d.M);

	return slope[e] + (float)seq * (float)load[e];
}

/* part (PARTS, 2) = {losses of balance, of z} of each block's tokens. */
static __global__ void loss_kernel(double *part, struct kern_map m,
				   const float *slope, const float *logits,
				   struct kern_moe_dims d)
{
	extern __shared__ double shared[];
	__shared__ double sums[4][2];
	struct room r = room_of((char *)shared, d);
	int lane = threadIdx.x % 32, per = blockDim.x / 32;
	int64_t n = (int64_t)blockIdx.x * per + threadIdx.x / 32;
	double aux = 0, z = 0;

	for (; n < d.M; n += (int64_t)gridDim.x * per) {
		struct token t;
		float sum, lse, one = 0;

		logits_load(r.x, logits + n * d.E, d.E);
		t = token_load(r.x, d.E);
		sum = score_sum(r.x, t, d);
		for (int64_t e = lane; e < d.E; e += 32)
			one += slope_of(slope, m, n / d.T, e, d) *
			       score_of(r.x[e], t, d.score);
		lse = t.most + logf(t.sum);
		aux += (double)(warp_sum(one) / sum);
		z += (double)lse * (double)lse;
	}
	if (lane == 0) {
		sums[threadIdx.x / 32][0] = aux;
		sums[threadIdx.x / 32][1] = z * d.z / (double)d.M;
	}
	__syncthreads();
	if (threadIdx.x > 1)
		return;
	for (int w = 1; w < per; w++)
		sums[0][threadIdx.x] += sums[w][threadIdx.x];
	part[2 * blockIdx.x + threadIdx.x] = sums[0][threadIdx.x];
}

/* hits (E) += this rank's tokens that chose each expert. */
static __global__ void hits_kernel(int *hits, const int32_t *expert, int64_t n)
{
	int64_t step = (int64_t)gridDim.x * blockDim.x;
	int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	for (; i < n; i += step)
		atomicAdd(&hits[expert[i]], 1);
}

static void count_hits(struct queue *q, int *hits, const struct kern_map *m,
		       const struct kern_moe_dims *d)
{
	int64_t n = d->M * d->K;

	cuda_zero(q, hits, d->E * (int64_t)sizeof(*hits));
	LAUNCH(q, hits_kernel, blocks_for(n, 256, 1024), 256, 0, hits,
	       m->expert + d->me * n, n);
}

static __global__ void stat_kernel(double *stat, const double *part,
				   const int *hits, struct kern_moe_dims d)
{
	__shared__ double area[32];
	double aux = block_sum(part[2 * threadIdx.x], area);
	double z = block_sum(part[2 * threadIdx.x + 1], area);
	float most = 0;

	for (int64_t e = threadIdx.x; e < d.E; e += blockDim.x)
		most = fmaxf(most, (float)hits[e]);
	most = block_max(most, (float *)area);
	if (threadIdx.x)
		return;
	stat[MOE_AUX] += aux;
	stat[MOE_Z] += z;
	stat[MOE_LOAD] += (double)most * (double)d.E / (double)(d.M * d.K);
	stat[MOE_COUNT]++;
}

/* Where in the queue's workspace what lies: slopes, counts, parts. */
struct work {
	double *part;
	float *slope;
	int *hits;
};

static struct work work_of(struct queue *q, const struct kern_moe_dims *d)
{
	double *part = (double *)q->work;
	float *slope = (float *)(part + 2 * PARTS);

	return {part, slope, (int *)(slope + d->E)};
}

void cuda_route_loss(struct queue *q, double *stat, const void *logits,
		     const int32_t *map, const double *tally,
		     const struct kern_moe_dims *d)
{
	struct kern_map m = kern_map((int32_t *)map, d); /* only read */
	struct work w = work_of(q, d);

	LAUNCH(q, slopes_kernel, 1, 1024, 0, w.slope, m, tally, *d);
	LAUNCH(q, loss_kernel, PARTS, 32 * (unsigned)tokens_of(d),
	       room_for(loss_kernel, d), w.part, m, w.slope,
	       (const float *)logits, *d);
	count_hits(q, w.hits, &m, d);
	LAUNCH(q, stat_kernel, 1, PARTS, 0, stat, w.part, w.hits, *d);
}

/* Of the chosen experts' probabilities: dx, by a lane for each choice. */
static __device__ void probs_backward(float *dx, const struct room &r,
				      const struct token &t, const float *dprob,
				      const int32_t *expert,
				      const struct kern_moe_dims &d)
{
	bool soft = d.score == KERN_SOFTMAX, one = !soft && d.K == 1;
	float sum = chosen_sum(r.x, expert, t, d), dot = 0;
	float scale = (float)d.scale;

	for (int64_t k = threadIdx.x % 32; k < d.K && !one; k += 32)
		dot += chosen_prob(r.x, expert, k, sum, t, d) * dprob[k] *
		       scale;
	dot = warp_sum(dot);
	for (int64_t k = threadIdx.x % 32; k < d.K; k += 32) {
		float p = chosen_prob(r.x, expert, k, sum, t, d);
		float s = score_of(r.x[expert[k]], t, d.score);
		float g = dprob[k] * scale;

		if (soft) /* pre: what all others lose comes below */
			dx[expert[k]] += p * (d.pre ? g : g - dot);
		else
			dx[expert[k]] +=
				(g - dot) / sum * score_slope(s, d.score);
	}
	__syncwarp();
	for (int64_t e = threadIdx.x % 32; e < d.E && soft && d.pre; e += 32)
		dx[e] -= score_of(r.x[e], t, d.score) * dot;
}

/* dx = the gradient of the losses. */
static __device__ void losses_backward(float *dx, const struct room &r,
				       const struct token &t,
				       const struct kern_map &m,
				       const float *slope, int64_t b,
				       float coef,
				       const struct kern_moe_dims &d)
{
	float sum = score_sum(r.x, t, d), mean = 0;
	float lse = t.most + logf(t.sum);
	float z = 2 * (float)d.z * lse / (float)d.M;

	for (int64_t e = threadIdx.x % 32; e < d.E; e += 32)
		mean += slope_of(slope, m, b, e, d) *
			score_of(r.x[e], t, d.score);
	mean = warp_sum(mean) / sum;
	for (int64_t e = threadIdx.x % 32; e < d.E; e += 32) {
		float s = score_of(r.x[e], t, d.score);
		float g = slope_of(slope, m, b, e, d) - mean;

		dx[e] = coef * g / sum * score_slope(s, d.score);
		if (z != 0)
			dx[e] += coef * z * expf(r.x[e] - lse);
	}
	__syncwarp();
}

template <typename T>
static __global__ void bwd_kernel(T *dlogits, const float *dprob,
				  const float *logits, struct kern_map m,
				  const float *slope, const double *coef,
				  struct kern_moe_dims d)
{
	extern __shared__ double shared[];
	struct room r = room_of((char *)shared, d);
	float *dx = (float *)r.key; /* keys are not needed here */
	int lane = threadIdx.x % 32, per = blockDim.x / 32;
	int64_t n = (int64_t)blockIdx.x * per + threadIdx.x / 32;

	for (; n < d.M; n += (int64_t)gridDim.x * per) {
		const int32_t *expert = m.expert + (d.me * d.M + n) * d.K;
		struct token t;

		logits_load(r.x, logits + n * d.E, d.E);
		t = token_load(r.x, d.E);
		losses_backward(dx, r, t, m, slope, n / d.T, (float)*coef, d);
		probs_backward(dx, r, t, dprob + n * d.K, expert, d);
		for (int64_t e = lane; e < d.E; e += 32)
			dlogits[n * d.E + e] = (T)dx[e];
	}
}

static __global__ void add_hits_kernel(float *count, const int *hits, int64_t E)
{
	int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (e < E)
		count[e] += (float)hits[e];
}

template <typename T>
void cuda_route<T>::bwd(struct queue *q, void *dlogits, void *count,
			const void *dprob, const void *logits,
			const int32_t *map, const double *tally,
			const double *coef, const struct kern_moe_dims *d)
{
	struct kern_map m = kern_map((int32_t *)map, d); /* only read */
	struct work w = work_of(q, d);
	int64_t per = tokens_of(d);

	LAUNCH(q, slopes_kernel, 1, 1024, 0, w.slope, m, tally, *d);
	LAUNCH(q, bwd_kernel<T>, blocks_for(d->M, (int)per, 1 << 20),
	       32 * (unsigned)per, room_for(bwd_kernel<T>, d), (T *)dlogits,
	       (const float *)dprob, (const float *)logits, m, w.slope, coef,
	       *d);
	if (!count)
		return;
	count_hits(q, w.hits, &m, d);
	LAUNCH(q, add_hits_kernel, blocks_for(d->E, 128, 1 << 20), 128, 0,
	       (float *)count, w.hits, d->E);
}

template <typename T>
static __global__ void balance_kernel(T *bias, float *master,
				      const float *count, int64_t n,
				      double rate, double fair)
{
	int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
	int sign;

	if (i >= n)
		return;
	sign = ((double)count[i] < fair) - ((double)count[i] > fair);
	master[i] += (float)(sign * rate);
	bias[i] = (T)master[i];
}

/* With fp32 elements bias is its own master. */
template <typename T>
void cuda_route<T>::balance(struct queue *q, void *bias, void *master,
			    const void *count, int64_t n,
			    const struct kern_moe_dims *d)
{
	if (sizeof(T) == sizeof(float))
		master = bias;
	LAUNCH(q, balance_kernel<T>, blocks_for(n, 128, 1 << 20), 128, 0,
	       (T *)bias, (float *)master, (const float *)count, n,
	       d->bias_rate, d->fair);
}

template struct cuda_route<float>;
template struct cuda_route<bf16>;
template struct cuda_route<fp16>;
