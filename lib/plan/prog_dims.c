/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes that ops take from: of a rank's share of a micro-batch, and a layer. */
#include <math.h>

#include "kernels/attn_plan.h"
#include "lib/plan/prog_build.h"
#include "lib/plan/rope.h"

static double softmax_scale(const struct shape *s)
{
	if (s->multi_latent_attention)
		return rope_latent_scale(s);
	return isnan(s->softmax_scale) ? 1 / sqrt((double)s->kv_channels)
				       : s->softmax_scale;
}

struct kern_attn_dims prog_attn_dims(const struct config *c, int64_t heads,
				     int64_t groups, int64_t head0)
{
	const struct shape *s = &c->shape;
	bool dropout = c->run.attention_dropout > 0;

	_Static_assert((int)SOFTMAX_VANILLA == (int)KERN_SINK_NONE &&
			       (int)SOFTMAX_OFF_BY_ONE == (int)KERN_SINK_ZERO &&
			       (int)SOFTMAX_LEARNABLE == (int)KERN_SINK_LEARNED,
		       "softmax_type and enum kern_sink differ");

	return (struct kern_attn_dims){
		.sink = (enum kern_sink)s->softmax_type,
		.docs = c->run.reset_attention_mask,
		.B = c->run.micro_batch_size,
		.T = s->seq_length,
		.H = heads,
		.G = groups,
		.D = shape_head_width(s),
		.Dv = shape_value_width(s),
		.scale = softmax_scale(s),
		.heads = s->num_attention_heads,
		.head0 = head0,
		/* Evaluation has no dropout, but the same scratch. */
		.backend = spec_uses_cudnn(&c->spec) && !dropout
				   ? KERN_ATTN_CUDNN
				   : KERN_ATTN_OWN,
	};
}

int64_t prog_attn_scratch(const struct config *c,
			  const struct kern_attn_dims *d)
{
	if (c->spec.device == DEVICE_CUDA)
		return (int64_t)kern_attn_scratch_cuda(
			d, true, spec_param_bytes(&c->spec));
	return (int64_t)kern_attn_scratch(d, spec_sum_bytes(&c->spec));
}

/* Attention with GROUPS key/value heads in all, and the norm of its keys. */
static void set_kind(struct build *b, struct layer_kind *k, int64_t groups)
{
	const struct shape *s = &b->in->config->shape;

	k->groups = groups;
	k->G = groups > b->tp ? groups / b->tp : 1;
	k->attn[0] = prog_attn_dims(b->in->config, b->H, k->G,
				    b->H * b->in->slice->at.tp);
	k->attn[0].B = b->B;
	k->attn[0].T = b->T;
	k->attn[1] = k->attn[0];
	if (s->window_size.count && s->window_size.item[0] >= 0)
		k->attn[1].window = s->window_size.item[0] + 1;
	k->knorm = *b->qnorm;
	if (s->multi_latent_attention)
		k->knorm.C = s->kv_lora_rank;
	else
		k->knorm.N = b->N * k->G;
}

static const struct layer_kind *find_kind(const struct build *b, int64_t groups)
{
	for (int i = 0; i < b->kinds; i++)
		if (b->kind[i].groups == groups)
			return &b->kind[i];
	return NULL;
}

static void set_kinds(struct build *b)
{
	const struct shape *s = &b->in->config->shape;
	size_t cap = 0;

	b->kind = NULL;
	b->kinds = 0;
	for (int64_t n = 0; n < s->num_layers; n++) {
		int64_t groups = shape_layer_groups(s, n);

		if (groups < 1 || find_kind(b, groups))
			continue;
		b->kind = arena_grow(b->a, b->kind, (size_t)b->kinds, &cap,
				     sizeof(*b->kind));
		set_kind(b, &b->kind[b->kinds++], groups);
	}
}

void layer_dims(struct build *b)
{
	const struct shape *s = &b->in->config->shape;
	const struct layer_kind *k =
		find_kind(b, shape_layer_groups(s, b->layer));

	b->F = shape_layer_ffn(s, b->layer) / b->tp;
	if (!k)
		return;
	b->G = k->G;
	b->attn[0] = &k->attn[0];
	b->attn[1] = &k->attn[1];
	b->knorm = &k->knorm;
}

int64_t attn_room(const struct build *b)
{
	int64_t most = 0;

	for (int i = 0; i < b->kinds; i++) {
		int64_t bytes =
			prog_attn_scratch(b->in->config, &b->kind[i].attn[0]);

		most = bytes > most ? bytes : most;
	}
	return most;
}

void set_dims(struct build *b)
{
	const struct shape *s = &b->in->config->shape;
	const struct run *r = &b->in->config->run;
	const struct grid *g = b->in->grid;
	const struct slice *slice = b->in->slice;
	struct kern_norm_dims *norm = arena_alloc(b->a, 2, sizeof(*norm));

	b->tp = g->tp;
	b->N = b->B * b->T;
	b->C = s->hidden_size;
	b->H = s->num_attention_heads / g->tp;
	b->D = shape_head_width(s);
	b->Dv = shape_value_width(s);
	b->rows = b->sp ? b->N / g->tp : b->N;
	b->first_row = b->sp ? slice->at.tp * b->rows : 0;
	b->hidden_dropout = r->hidden_dropout;
	b->attention_dropout = r->attention_dropout;
	*norm = (struct kern_norm_dims){
		.N = b->rows,
		.C = b->C,
		.kind = s->normalization == NORM_LAYERNORM ? KERN_LAYERNORM
							   : KERN_RMSNORM,
		.zero_centered = s->layernorm_zero_centered_gamma,
		.eps = s->layernorm_epsilon,
	};
	norm[1] = norm[0];
	if (s->multi_latent_attention) {
		norm[1].C = s->q_lora_rank;
	} else {
		norm[1].N = b->N * b->H;
		norm[1].C = b->D;
	}
	if (s->qk_l2_norm) {
		norm[1].kind = KERN_RMSNORM;
		norm[1].zero_centered = true;
	}
	b->norm = norm;
	b->qnorm = &norm[1];
	set_kinds(b);
	moe_dims(b);
}
