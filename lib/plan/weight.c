/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/weight.h"

#include "lib/plan/shape.h"

/* Where weights_build stands. */
struct builder {
	struct weights *out;
	const struct shape *s;
	struct arena *a;
	size_t cap;
	int64_t layer;
	const char *prefix; /* of the names of the layer's weights */
};

/* Facts that most weights share, to be changed by the caller. */
static struct weight *add(struct builder *b, enum part part, const char *tail,
			  int64_t rows, int64_t cols)
{
	struct weights *w = b->out;
	struct weight *new;

	w->list = arena_grow(b->a, w->list, (size_t)w->count, &b->cap,
			     sizeof(*w->list));
	new = &w->list[w->count++];
	*new = (struct weight){
		.name = arena_printf(b->a, "%s%s", b->prefix, tail),
		.part = part,
		.layer = b->layer,
		.experts = 1,
		.dim = {rows, cols ? cols : 1},
		.ndim = cols ? 2 : 1,
		.init = cols ? INIT_NORMAL : INIT_ZERO,
		.decay = cols != 0,
	};
	return new;
}

/* PART is its gain; the bias of LayerNorm is the part after it. */
static void add_norm(struct builder *b, enum part part, const char *name,
		     int64_t width, bool of_heads)
{
	for (int bias = 0; bias < 2; bias++) {
		struct weight *new;

		if (bias && b->s->normalization != NORM_LAYERNORM)
			break;
		new = add(b, part + bias,
			  arena_printf(b->a, "%s/%c", name, bias ? 'b' : 'w'),
			  width, 0);
		new->init = bias ? INIT_ZERO : INIT_ONE;
		new->token_partial = !of_heads;
		new->head_partial = of_heads;
	}
}

/*
 * PART: matrices that give ROWS outputs from COLS inputs, one for each of
 * EXPERTS; the part after it is their bias.  EXPERTS 0: one of the dense kind.
 */
static void add_linear(struct builder *b, enum part part, const char *name,
		       int64_t rows, int64_t cols, enum split split,
		       bool with_bias, int64_t experts)
{
	for (int bias = 0; bias < (with_bias ? 2 : 1); bias++) {
		struct weight *new;
		int64_t count = experts ? experts : 1;

		new = add(b, part + bias,
			  arena_printf(b->a, "%s/%c", name, bias ? 'b' : 'w'),
			  count * rows, bias ? 0 : cols);
		new->cls = experts ? CLASS_EXPERT : CLASS_DENSE;
		new->experts = count;
		new->split = split;
		if (split != SPLIT_COLS)
			continue;
		/* A sum over ranks gets its bias afterwards. */
		new->split = bias ? SPLIT_NONE : split;
		new->init = bias ? INIT_ZERO : INIT_NORMAL_OUT;
		new->token_partial = bias && !experts;
	}
}

/* Down to the ranks, whole on every rank, and up to this rank's heads. */
static void add_latent(struct builder *b)
{
	const struct shape *s = b->s;
	int64_t h = s->hidden_size, heads = s->num_attention_heads;
	int64_t rank = s->q_lora_rank, kv = s->kv_lora_rank;

	if (rank)
		add(b, PART_Q_DOWN_W, "attn/q_down/w", rank, h)->token_partial =
			true;
	add(b, PART_KV_DOWN_W, "attn/kv_down/w", kv + s->qk_pos_emb_head_dim, h)
		->token_partial = true;
	if (s->qk_layernorm && rank)
		add_norm(b, PART_Q_NORM_W, "attn/q_norm", rank, false);
	if (s->qk_layernorm)
		add_norm(b, PART_K_NORM_W, "attn/kv_norm", kv, false);
	add_linear(b, PART_Q_UP_W, rank ? "attn/q_up" : "attn/q",
		   heads * shape_head_width(s), rank ? rank : h, SPLIT_ROWS,
		   false, 0);
	add_linear(b, PART_KV_UP_W, "attn/kv_up",
		   heads * (s->qk_head_dim + s->v_head_dim), kv, SPLIT_ROWS,
		   false, 0);
	add_linear(b, PART_PROJ_W, "attn/proj", h, heads * s->v_head_dim,
		   SPLIT_COLS, s->add_bias_linear, 0);
}

/* Megatron starts them as it does matrices. */
static void add_sinks(struct builder *b)
{
	struct weight *new;

	if (b->s->softmax_type != SOFTMAX_LEARNABLE)
		return;
	new = add(b, PART_SINK, "attn/sink", b->s->num_attention_heads, 0);
	new->split = SPLIT_ROWS;
	new->init = INIT_NORMAL;
}

/*
 * PART, a linear layer in the place of half a layer: whole on every rank, each
 * of which has its own rows of tokens.  Megatron cuts it and gathers outputs.
 */
static void add_replacement(struct builder *b, enum part part, const char *name)
{
	int64_t h = b->s->hidden_size;
	int first = b->out->count;

	add_linear(b, part, name, h, h, SPLIT_NONE, b->s->add_bias_linear, 0);
	for (int i = first; i < b->out->count; i++)
		b->out->list[i].token_partial = true;
}

static void add_attention(struct builder *b)
{
	const struct shape *s = b->s;
	int64_t h = s->hidden_size, d = s->kv_channels;
	int64_t groups = shape_layer_groups(s, b->layer);

	if (!groups)
		return;
	add_norm(b, PART_ATTN_NORM_W, "attn_norm", h, false);
	if (groups < 0) {
		add_replacement(b, PART_ATTN_LINEAR_W, "attn/linear");
		return;
	}
	add_sinks(b);
	if (s->multi_latent_attention) {
		add_latent(b);
		return;
	}
	add_linear(b, PART_QKV_W, "attn/qkv", shape_qkv_rows(s, b->layer), h,
		   SPLIT_QKV, s->add_bias_linear || s->add_qkv_bias, 0);
	if (s->qk_layernorm) {
		add_norm(b, PART_Q_NORM_W, "attn/q_norm", d, true);
		add_norm(b, PART_K_NORM_W, "attn/k_norm", d, true);
	}
	add_linear(b, PART_PROJ_W, "attn/proj", h, s->num_attention_heads * d,
		   SPLIT_COLS, s->add_bias_linear, 0);
}

/* The parts of an mlp of one kind. */
struct mlp_parts {
	enum part fc1, gate, up, fc2;
	const char *fc1_name, *gate_name, *up_name, *fc2_name;
};

static void add_mlp(struct builder *b, const struct mlp_parts *m, int64_t width,
		    int64_t experts)
{
	int64_t h = b->s->hidden_size;
	bool bias = b->s->add_bias_linear;

	if (b->s->gated_linear_unit) {
		add_linear(b, m->gate, m->gate_name, width, h, SPLIT_ROWS, bias,
			   experts);
		add_linear(b, m->up, m->up_name, width, h, SPLIT_ROWS, bias,
			   experts);
	} else {
		add_linear(b, m->fc1, m->fc1_name, width, h, SPLIT_ROWS, bias,
			   experts);
	}
	add_linear(b, m->fc2, m->fc2_name, h, width, SPLIT_COLS, bias, experts);
}

static void add_layer(struct builder *b, bool moe)
{
	static const struct mlp_parts
		mlp = {PART_FC1_W, PART_GATE_W, PART_UP_W, PART_FC2_W,
		       "mlp/fc1",  "mlp/gate",	"mlp/up",  "mlp/fc2"},
		expert = {PART_EXPERT_FC1_W, PART_EXPERT_GATE_W,
			  PART_EXPERT_UP_W,  PART_EXPERT_FC2_W,
			  "moe/fc1",	     "moe/gate",
			  "moe/up",	     "moe/fc2"},
		shared = {PART_SHARED_FC1_W, PART_SHARED_GATE_W,
			  PART_SHARED_UP_W,  PART_SHARED_FC2_W,
			  "moe/shared/fc1",  "moe/shared/gate",
			  "moe/shared/up",   "moe/shared/fc2"};
	const struct shape *s = b->s;
	int64_t width = shape_layer_ffn(s, b->layer);

	add_attention(b);
	if (!moe && !width)
		return;
	add_norm(b, PART_MLP_NORM_W, "mlp_norm", s->hidden_size, false);
	if (!moe) {
		if (width < 0)
			add_replacement(b, PART_MLP_LINEAR_W, "mlp/linear");
		else
			add_mlp(b, &mlp, width, 0);
		return;
	}
	add(b, PART_ROUTER_W, "moe/router/w", s->num_moe_experts,
	    s->hidden_size)
		->token_partial = true;
	if (s->add_bias_linear)
		add(b, PART_ROUTER_B, "moe/router/b", s->num_moe_experts, 0)
			->token_partial = true;
	if (s->moe_router_enable_expert_bias)
		add(b, PART_EXPERT_BIAS, "moe/router/expert_bias",
		    s->num_moe_experts, 0)
			->counts = true;
	add_mlp(b, &expert, s->moe_ffn_hidden_size, s->num_moe_experts);
	if (IS_SET(s->moe_shared_expert_intermediate_size))
		add_mlp(b, &shared, s->moe_shared_expert_intermediate_size, 0);
	if (s->moe_shared_expert_gate)
		add(b, PART_SHARED_ROUTER_W, "moe/shared/router/w", 1,
		    s->hidden_size)
			->token_partial = true;
}

static void add_decoder(struct builder *b)
{
	int64_t n = b->s->num_layers;

	for (b->layer = 0; b->layer < n; b->layer++) {
		b->out->layer_first[b->layer] = b->out->count;
		b->prefix = arena_printf(b->a, "layers/%04d/", (int)b->layer);
		add_layer(b, shape_is_moe(b->s, b->layer));
	}
}

static void add_mtp(struct builder *b)
{
	int64_t n = b->s->num_layers, h = b->s->hidden_size;

	for (b->layer = n; b->layer < shape_layers(b->s); b->layer++) {
		const char *prefix =
			arena_printf(b->a, "mtp/%02d/", (int)(b->layer - n));

		b->out->layer_first[b->layer] = b->out->count;
		b->prefix = prefix;
		add_norm(b, PART_ENORM_W, "enorm", h, false);
		add_norm(b, PART_HNORM_W, "hnorm", h, false);
		add_linear(b, PART_EH_PROJ_W, "eh_proj", h, 2 * h, SPLIT_ROWS,
			   false, 0);
		b->prefix = arena_printf(b->a, "%slayer/", prefix);
		add_layer(b, shape_is_moe(b->s, n - 1));
		b->prefix = prefix;
		add_norm(b, PART_FINAL_NORM_W, "final_norm", h, false);
	}
}

bool weights_known(const struct shape *s)
{
	return !s->experimental_attention_variant &&
	       !s->attention_output_gate && !s->enable_mhc_connections &&
	       !IS_SET(s->moe_latent_size);
}

void weights_build(struct weights *out, const struct shape *s, struct arena *a)
{
	struct builder b = {
		.out = out, .s = s, .a = a, .layer = -1, .prefix = ""};
	struct weight *new;

	*out = (struct weights){.layers = shape_layers(s)};
	out->layer_first =
		arena_alloc(a, (size_t)out->layers, sizeof(*out->layer_first));
	new = add(&b, PART_EMBED_TOK, "embed/tok", s->vocab_size,
		  s->hidden_size);
	new->split = SPLIT_VOCAB;
	new->init = INIT_NORMAL_EMBED;
	if (s->position_embedding_type == POS_LEARNED) {
		new = add(&b, PART_EMBED_POS, "embed/pos",
			  s->max_position_embeddings, s->hidden_size);
		new->init = INIT_NORMAL_EMBED;
		new->token_partial = true;
	}
	add_decoder(&b);
	b.layer = -1;
	b.prefix = "";
	add_norm(&b, PART_FINAL_NORM_W, "final_norm", s->hidden_size, false);
	if (!s->share_embeddings_and_output_weights) {
		new = add(&b, PART_HEAD_W, "head/out", s->vocab_size,
			  s->hidden_size);
		new->split = SPLIT_VOCAB;
	}
	b.layer = out->layers;
	add_mtp(&b);
}

int weights_find(const struct weights *w, enum part part, int64_t layer)
{
	bool any = layer < 0;

	/* The weights of a layer lie together. */
	for (int i = any ? 0 : w->layer_first[layer];
	     i < w->count && (any || w->list[i].layer == layer); i++)
		if (w->list[i].part == part && w->list[i].layer == layer)
			return i;
	return -1;
}

int64_t weight_elements(const struct weight *w)
{
	return w->dim[0] * w->dim[1];
}
