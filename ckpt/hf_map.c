/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/hf_map.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
static const struct hf_name gpt2[] = {
	{"embed/tok",              "transformer.wte.weight",                 0},
	{"embed/pos",              "transformer.wpe.weight",                 0},
	{"final_norm/w",           "transformer.ln_f.weight",                0},
	{"final_norm/b",           "transformer.ln_f.bias",                  0},
	{"head/out",               "lm_head.weight",                         0},
	{"layers/%/attn_norm/w",   "transformer.h.%.ln_1.weight",            0},
	{"layers/%/attn_norm/b",   "transformer.h.%.ln_1.bias",              0},
	{"layers/%/attn/qkv/w",    "transformer.h.%.attn.c_attn.weight",     HF_QKV | HF_TURNED},
	{"layers/%/attn/qkv/b",    "transformer.h.%.attn.c_attn.bias",       HF_QKV},
	{"layers/%/attn/proj/w",   "transformer.h.%.attn.c_proj.weight",     HF_TURNED},
	{"layers/%/attn/proj/b",   "transformer.h.%.attn.c_proj.bias",       0},
	{"layers/%/mlp_norm/w",    "transformer.h.%.ln_2.weight",            0},
	{"layers/%/mlp_norm/b",    "transformer.h.%.ln_2.bias",              0},
	{"layers/%/mlp/fc1/w",     "transformer.h.%.mlp.c_fc.weight",        HF_TURNED},
	{"layers/%/mlp/fc1/b",     "transformer.h.%.mlp.c_fc.bias",          0},
	{"layers/%/mlp/fc2/w",     "transformer.h.%.mlp.c_proj.weight",      HF_TURNED},
	{"layers/%/mlp/fc2/b",     "transformer.h.%.mlp.c_proj.bias",        0},
	{NULL, NULL, 0}};

/* What Llama and those after it have in common. */
static const struct hf_name common[] = {
	{"embed/tok",              "model.embed_tokens.weight",                       0},
	{"final_norm/w",           "model.norm.weight",                               0},
	{"head/out",               "lm_head.weight",                                  0},
	{"layers/%/attn_norm/w",   "model.layers.%.input_layernorm.weight",           0},
	{"layers/%/attn/proj/w",   "model.layers.%.self_attn.o_proj.weight",          0},
	{"layers/%/attn/proj/b",   "model.layers.%.self_attn.o_proj.bias",            0},
	{"layers/%/mlp_norm/w",    "model.layers.%.post_attention_layernorm.weight",  0},
	{"layers/%/mlp/gate/w",    "model.layers.%.mlp.gate_proj.weight",             0},
	{"layers/%/mlp/gate/b",    "model.layers.%.mlp.gate_proj.bias",               0},
	{"layers/%/mlp/up/w",      "model.layers.%.mlp.up_proj.weight",               0},
	{"layers/%/mlp/up/b",      "model.layers.%.mlp.up_proj.bias",                 0},
	{"layers/%/mlp/fc2/w",     "model.layers.%.mlp.down_proj.weight",             0},
	{"layers/%/mlp/fc2/b",     "model.layers.%.mlp.down_proj.bias",               0},
	{NULL, NULL, 0}};

/* Grouped heads, and what some have beside them: biases, norms of q and k. */
static const struct hf_name grouped[] = {
	{"layers/%/attn/qkv/w",    "model.layers.%.self_attn.q_proj.weight",          HF_Q},
	{"layers/%/attn/qkv/w",    "model.layers.%.self_attn.k_proj.weight",          HF_K},
	{"layers/%/attn/qkv/w",    "model.layers.%.self_attn.v_proj.weight",          HF_V},
	{"layers/%/attn/qkv/b",    "model.layers.%.self_attn.q_proj.bias",            HF_Q},
	{"layers/%/attn/qkv/b",    "model.layers.%.self_attn.k_proj.bias",            HF_K},
	{"layers/%/attn/qkv/b",    "model.layers.%.self_attn.v_proj.bias",            HF_V},
	{"layers/%/attn/q_norm/w", "model.layers.%.self_attn.q_norm.weight",          HF_HEAD},
	{"layers/%/attn/k_norm/w", "model.layers.%.self_attn.k_norm.weight",          HF_HEAD},
	{NULL, NULL, 0}};

/* Both turn pairs of channels that lie together. */
static const struct hf_name latent[] = {
	{"layers/%/attn/q/w",       "model.layers.%.self_attn.q_proj.weight",             0},
	{"layers/%/attn/q_down/w",  "model.layers.%.self_attn.q_a_proj.weight",           0},
	{"layers/%/attn/q_norm/w",  "model.layers.%.self_attn.q_a_layernorm.weight",      0},
	{"layers/%/attn/q_up/w",    "model.layers.%.self_attn.q_b_proj.weight",           0},
	{"layers/%/attn/kv_down/w", "model.layers.%.self_attn.kv_a_proj_with_mqa.weight", 0},
	{"layers/%/attn/kv_norm/w", "model.layers.%.self_attn.kv_a_layernorm.weight",     0},
	{"layers/%/attn/kv_up/w",   "model.layers.%.self_attn.kv_b_proj.weight",          0},
	{NULL, NULL, 0}};

/*
 * Beside the experts: the shared one, and the layers of multi-token prediction
 * behind the others.  Both join the normalised embedding and state in this
 * order.
 */
static const struct hf_name deepseek[] = {
	{"layers/%/moe/router/expert_bias", "model.layers.%.mlp.gate.e_score_correction_bias",      0},
	{"layers/%/moe/shared/gate/w",      "model.layers.%.mlp.shared_experts.gate_proj.weight",   0},
	{"layers/%/moe/shared/up/w",        "model.layers.%.mlp.shared_experts.up_proj.weight",     0},
	{"layers/%/moe/shared/fc2/w",       "model.layers.%.mlp.shared_experts.down_proj.weight",   0},
	{"layers/%/enorm/w",                "model.layers.%.enorm.weight",                          0},
	{"layers/%/hnorm/w",                "model.layers.%.hnorm.weight",                          0},
	{"layers/%/eh_proj/w",              "model.layers.%.eh_proj.weight",                        0},
	{"layers/%/final_norm/w",           "model.layers.%.shared_head.norm.weight",               0},
	{"embed/tok",                       "model.layers.%.embed_tokens.weight",                   HF_DEPTHS},
	{"head/out",                        "model.layers.%.shared_head.head.weight",               HF_DEPTHS},
	{NULL, NULL, 0}};

static const struct hf_name mixtral[] = {
	{"layers/%/moe/router/w",  "model.layers.%.block_sparse_moe.gate.weight",         0},
	{"layers/%/moe/gate/w",    "model.layers.%.block_sparse_moe.experts.%.w1.weight", 0},
	{"layers/%/moe/up/w",      "model.layers.%.block_sparse_moe.experts.%.w3.weight", 0},
	{"layers/%/moe/fc2/w",     "model.layers.%.block_sparse_moe.experts.%.w2.weight", 0},
	{NULL, NULL, 0}};

static const struct hf_name each_expert[] = {
	{"layers/%/moe/router/w",  "model.layers.%.mlp.gate.weight",                0},
	{"layers/%/moe/gate/w",    "model.layers.%.mlp.experts.%.gate_proj.weight", 0},
	{"layers/%/moe/up/w",      "model.layers.%.mlp.experts.%.up_proj.weight",   0},
	{"layers/%/moe/fc2/w",     "model.layers.%.mlp.experts.%.down_proj.weight", 0},
	{NULL, NULL, 0}};

static const struct hf_name *const gpt2_tables[] = {gpt2, NULL};
static const struct hf_name *const llama_tables[] = {common, grouped, NULL};
static const struct hf_name *const mixtral_tables[] = {common, grouped, mixtral, NULL};
static const struct hf_name *const qwen_moe_tables[] = {common, grouped, each_expert, NULL};
static const struct hf_name *const deepseek_tables[] = {common, latent, each_expert, deepseek, NULL};

/* Causal masks, and the angles of rope. */
static const char *const masks[] = {
	"transformer.h.%.attn.bias", "transformer.h.%.attn.masked_bias", NULL};
static const char *const angles[] = {
	"model.layers.%.self_attn.rotary_emb.inv_freq",
	"model.rotary_emb.inv_freq", NULL};

static const struct hf_names families[] = {
	{"gpt2",        "GPT2LMHeadModel",       "transformer.", gpt2_tables,     masks},
	{"llama",       "LlamaForCausalLM",      "model.",       llama_tables,    angles},
	{"mistral",     "MistralForCausalLM",    "model.",       llama_tables,    angles},
	{"qwen2",       "Qwen2ForCausalLM",      "model.",       llama_tables,    angles},
	{"qwen3",       "Qwen3ForCausalLM",      "model.",       llama_tables,    angles},
	{"mixtral",     "MixtralForCausalLM",    "model.",       mixtral_tables,  angles},
	{"qwen3_moe",   "Qwen3MoeForCausalLM",   "model.",       qwen_moe_tables, angles},
	{"deepseek_v2", "DeepseekV2ForCausalLM", "model.",       deepseek_tables, angles},
	{"deepseek_v3", "DeepseekV3ForCausalLM", "model.",       deepseek_tables, angles},
};
/* clang-format on */

enum { FAMILIES = sizeof(families) / sizeof(*families) };

const struct hf_names *hf_names_at(int i)
{
	return i < FAMILIES ? &families[i] : NULL;
}

const struct hf_names *hf_names(const char *type)
{
	for (int i = 0; i < FAMILIES; i++)
		if (!strcmp(families[i].type, type))
			return &families[i];
	return NULL;
}

const char *hf_names_all(struct arena *a)
{
	const char *all = families[0].type;

	for (int i = 1; i < FAMILIES; i++)
		all = arena_printf(a, "%s, %s", all, families[i].type);
	return all;
}

/* Whether NAME is PATTERN with a number for its %, which goes to *NUMBER. */
static bool matches(const char *pattern, const char *name, int64_t *number)
{
	const char *mark = strchr(pattern, '%');
	size_t before = mark ? (size_t)(mark - pattern) : 0;
	char *end;

	*number = -1;
	if (!mark)
		return !strcmp(pattern, name);
	if (strncmp(pattern, name, before) || name[before] < '0' ||
	    name[before] > '9')
		return false;
	*number = strtoll(name + before, &end, 10);
	return !strcmp(mark + 1, end);
}

bool hf_is_ignored(const struct hf_names *names, const char *name)
{
	size_t prefix = strlen(names->prefix);
	int64_t number;

	for (const char *const *one = names->ignored; *one; one++)
		if (matches(*one, name, &number) ||
		    matches(*one + prefix, name, &number))
			return true;
	return false;
}

/* PATTERN with its first two % filled in. */
static const char *fill(const char *pattern, int64_t layer, int64_t expert,
			struct arena *a)
{
	const char *first = strchr(pattern, '%'), *second;

	if (!first)
		return pattern;
	second = strchr(first + 1, '%');
	if (!second)
		return arena_printf(a, "%.*s%" PRId64 "%s",
				    (int)(first - pattern), pattern, layer,
				    first + 1);
	return arena_printf(a, "%.*s%" PRId64 "%.*s%" PRId64 "%s",
			    (int)(first - pattern), pattern, layer,
			    (int)(second - first - 1), first + 1, expert,
			    second + 1);
}

static bool has_experts(const struct hf_name *name)
{
	const char *first = strchr(name->theirs, '%');

	return first && strchr(first + 1, '%');
}

static void add_piece(struct hf_map *m, int64_t row, int64_t step, int64_t at,
		      int64_t rows)
{
	if (!rows)
		return;
	m->piece = arena_grow(m->arena, m->piece, (size_t)m->pieces,
			      &m->piece_cap, sizeof(*m->piece));
	m->piece[m->pieces++] =
		(struct hf_piece){m->tensors, row, step, at, rows};
}

/*
 * The D channels of one head.  Theirs are rotated as halves: channel j with
 * j + d / 2; ours, if interleaved, lie in pairs.
 */
static void add_head(struct hf_map *m, const struct shape *s, int64_t row,
		     int64_t at)
{
	int64_t d = s->kv_channels;

	if (!s->rotary_interleaved) {
		add_piece(m, row, 1, at, d);
		return;
	}
	add_piece(m, row, 2, at, d / 2);
	add_piece(m, row + 1, 2, at + d / 2, d / 2);
}

/* Our rows are by group: its query heads, its key, its value. */
static void add_qkv(struct hf_map *m, const struct shape *s, int how)
{
	int64_t heads = s->num_attention_heads, groups = s->num_query_groups;
	int64_t d = s->kv_channels, each = heads / groups;
	int64_t k = how & HF_Q ? heads * d : 0;
	int64_t v = k + (how & HF_K ? groups * d : 0);

	for (int64_t g = 0; g < groups; g++) {
		int64_t row = g * (each + 2) * d;

		for (int64_t i = 0; how & HF_Q && i < each; i++)
			add_head(m, s, row + i * d, (g * each + i) * d);
		if (how & HF_K)
			add_head(m, s, row + each * d, k + g * d);
		if (how & HF_V)
			add_piece(m, row + (each + 1) * d, 1, v + g * d, d);
	}
}

static int64_t rows_of(const struct shape *s, const struct weight *w, int how,
		       int64_t experts)
{
	int64_t d = s->kv_channels;

	if (!(how & HF_QKV))
		return w->dim[0] / experts;
	return (how & HF_Q ? s->num_attention_heads * d : 0) +
	       (how & HF_K ? s->num_query_groups * d : 0) +
	       (how & HF_V ? s->num_query_groups * d : 0);
}

static struct hf_tensor *new_tensor(struct hf_map *m)
{
	m->tensor = arena_grow(m->arena, m->tensor, (size_t)m->tensors,
			       &m->tensor_cap, sizeof(*m->tensor));
	return &m->tensor[m->tensors++];
}

static void add_tensor(struct hf_map *m, const struct hf_name *name,
		       const struct shape *s, const struct weight *w,
		       int weight, int64_t expert, int64_t experts)
{
	int64_t rows = rows_of(s, w, name->how, experts);
	struct hf_tensor t = {
		.name = fill(name->theirs, w->layer, expert, m->arena),
		.weight = weight,
		.copy_of = -1,
		.dim = {rows, w->dim[1]},
		.ndim = w->ndim,
		.turned = name->how & HF_TURNED,
		.outs = rows,
		.ins = w->dim[1],
		.first = m->pieces,
	};

	if (t.turned) {
		t.dim[0] = t.ins;
		t.dim[1] = t.outs;
	}
	if (name->how & HF_QKV)
		add_qkv(m, s, name->how);
	else if (name->how & HF_HEAD)
		add_head(m, s, 0, 0);
	else
		add_piece(m, expert * rows, 1, 0, rows);
	t.end = m->pieces;
	*new_tensor(m) = t;
}

/* Each depth has the tensor that was added last once more. */
static void add_copies(struct hf_map *m, const struct hf_name *name,
		       const struct shape *s)
{
	int of = m->tensors - 1;

	for (int64_t i = 0; i < s->mtp_num_layers; i++) {
		struct hf_tensor t = m->tensor[of];

		t.name = fill(name->theirs, s->num_layers + i, 0, m->arena);
		t.copy_of = of;
		*new_tensor(m) = t;
	}
}

/* The weight's name as if layers of all kinds were counted on. */
static const char *plain_name(const struct shape *s, const struct weight *w,
			      struct arena *a)
{
	const char *tail;

	if (w->layer < s->num_layers || strncmp(w->name, "mtp/", 4) != 0)
		return w->name;
	tail = strchr(w->name + 4, '/') + 1;
	if (!strncmp(tail, "layer/", 6))
		tail += 6;
	return arena_printf(a, "layers/%04" PRId64 "/%s", w->layer, tail);
}

static void add_weight(struct hf_map *m, const struct hf_names *names,
		       const struct shape *s, const struct weight *w,
		       int weight)
{
	const char *plain = plain_name(s, w, m->arena);
	int64_t number;

	for (const struct hf_name *const *t = names->tables; *t; t++)
		for (const struct hf_name *name = *t; name->ours; name++) {
			int64_t n = has_experts(name) ? w->experts : 1;

			if (!matches(name->ours, plain, &number))
				continue;
			if (name->how & HF_DEPTHS)
				add_copies(m, name, s);
			for (int64_t i = 0; !(name->how & HF_DEPTHS) && i < n;
			     i++)
				add_tensor(m, name, s, w, weight, i, n);
		}
}

int hf_map_build(struct hf_map *m, const struct hf_names *names,
		 const struct shape *s, const struct weights *w,
		 struct arena *a, struct err *e)
{
	*m = (struct hf_map){.arena = a};
	m->weight_first =
		arena_alloc(a, (size_t)w->count + 1, sizeof(*m->weight_first));
	for (int i = 0; i < w->count; i++) {
		m->weight_first[i] = m->pieces;
		add_weight(m, names, s, &w->list[i], i);
		if (m->pieces == m->weight_first[i])
			return err_set(e, CODE_CKPT,
				       "%s has no tensor for our weight '%s'",
				       names->type, w->list[i].name);
	}
	m->weight_first[w->count] = m->pieces;
	return 0;
}
