/* SPDX-License-Identifier: Apache-2.0 */
/* Random small configs for the oracle of placement, and their text. */
#ifndef TEST_ORACLE_DRAW_H
#define TEST_ORACLE_DRAW_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { WORLD_MAX = 64 };

/* One config; 0 is "not given", where that can be. */
struct cfg {
	int layers, hidden, heads, groups, ffn, vocab, seq;
	bool tied, bias;
	int mtp, experts, freq, moe_ffn, shared;
	int tp, pp, vp, chunk, chunks, cp, ep, etp, first, last;
	bool emb, loss, sp, pad, pp_first;
	int unit, instances, recompute, level[2];
	int standalone; /* -1: not given */
	char layout[600];
	int world;
};

/* xorshift64* */
static uint64_t random_state;

static int pick(int n)
{
	random_state ^= random_state >> 12;
	random_state ^= random_state << 25;
	random_state ^= random_state >> 27;
	return (int)((random_state * 0x2545f4914f6cdd1dU >> 33) % (unsigned)n);
}

static bool chance(int percent)
{
	return pick(100) < percent;
}

#define ONE_OF(...)                       \
	((const int[]){__VA_ARGS__}[pick( \
		(int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)))])

/* ---- random configs ---- */

/* A layout of STAGES stages that holds C's layers, in one of many spellings. */
static void draw_layout(struct cfg *c, int stages)
{
	int left = c->layers, mtp_at = stages - 1, last;
	FILE *f = fmemopen(c->layout, sizeof(c->layout), "w");

	if (c->pp > 1 && chance(50))
		mtp_at -= pick(chance(10) ? stages : c->pp - 1);
	last = chance(8) ? stages - 1 : mtp_at;
	for (int s = 0; s < stages; s++) {
		int room = last - s + 1;
		int n = s >= last ? left : chance(20) ? 0 : left / room;

		fputs(s ? "|" : "E", f);
		if (n > 2 && chance(50))
			fprintf(f, chance(50) ? "t*%d" : "(t)*%d", n);
		else if (n > 1 && n % 2 == 0 && chance(30))
			fprintf(f, "((t)*%d),*2", n / 2);
		else
			for (int i = 0; i < n; i++)
				fputc('t', f);
		left -= n;
		for (int i = 0; i < c->mtp && s == mtp_at; i++)
			fputc('m', f);
		if (chance(10))
			fputs(chance(50) ? " ," : "/* , */", f);
	}
	fputc('L', f);
	fclose(f);
}

/* A slip of the pen. */
static void spoil_layout(char *text)
{
	static const char keys[] = "EtmL|()*0123, #";
	size_t len = strlen(text), at = (size_t)pick((int)len);

	if (chance(40)) {
		memmove(text + at, text + at + 1, len - at);
	} else if (chance(50)) {
		text[at] = keys[pick(sizeof(keys) - 1)];
	} else {
		memmove(text + at + 1, text + at, len - at + 1);
		text[at] = keys[pick(sizeof(keys) - 1)];
	}
}

/* How the layers are cut: VP chunks a rank, said in one of the ways. */
static void draw_cut(struct cfg *c)
{
	int way = pick(5), vp = c->pp > 1 ? ONE_OF(1, 1, 1, 2, 2, 3, 4) : 1;
	int share = 1 + pick(3), unit = c->pp * vp;

	c->layers = unit * share;
	if (way == 1) {
		c->first = chance(60) ? vp * (1 + pick(3)) : 0;
		c->last = chance(60) ? vp * (1 + pick(3)) : 0;
		c->layers += c->first ? c->first - vp * share : 0;
		c->layers += c->last ? c->last - vp * share : 0;
	} else if (way == 2) {
		c->emb = chance(60);
		c->loss = chance(60);
		c->layers -= c->emb + c->loss;
	} else if (way == 3) {
		draw_layout(c, unit);
		if (chance(20))
			spoil_layout(c->layout);
	}
	if (way != 3 && (vp > 1 || chance(10))) {
		int said = pick(3);

		*(said == 0   ? &c->vp
		  : said == 1 ? &c->chunks
			      : &c->chunk) = said == 2 ? share : vp;
	}
	if (c->layers < 1)
		c->layers = 1 + pick(40);
}

/* One thing that may not go with the rest. */
static void spoil(struct cfg *c)
{
	switch (pick(12)) {
	case 0: c->layers += ONE_OF(-1, 1, 2); break;
	case 1: c->vp = 1 + pick(4); break;
	case 2: c->chunk = 1 + pick(4); break;
	case 3: c->chunks = 1 + pick(4); break;
	case 4: c->first = 1 + pick(9); break;
	case 5: c->last = 1 + pick(9); break;
	case 6: c->emb = !c->emb; break;
	case 7: c->loss = !c->loss; break;
	case 8: c->pp = 1 + pick(8); break;
	case 9: c->world += 1 + pick(3); break;
	case 10: c->mtp = pick(3); break;
	case 11: c->standalone = pick(2); break;
	}
	c->layers = c->layers < 1 ? 1 : c->layers;
}

static void draw_sizes(struct cfg *c)
{
	int tp = chance(15) ? 1 : c->tp;

	c->heads = tp * ONE_OF(1, 2, 3, 4);
	c->groups = chance(50) ? 0 : 1 + pick(c->heads);
	c->hidden = 8 * c->heads * ONE_OF(1, 3);
	c->ffn = tp * ONE_OF(8, 12, 5);
	c->vocab = 1 + pick(700);
	c->pad = chance(80);
	c->unit = ONE_OF(1, 2, 8, 16, 128);
	c->seq = c->cp * (chance(50) ? c->tp : 2) * ONE_OF(2, 4, 6, 3, 1);
	c->sp = chance(30);
	if (chance(60))
		return;
	c->experts = ONE_OF(2, 4, 8, 6);
	c->freq = chance(70) ? 1 : 1 + pick(3);
	c->moe_ffn = chance(50) ? 0 : ONE_OF(4, 6, 12);
	c->shared = chance(70) ? 0 : ONE_OF(4, 6, 12);
	c->bias = chance(10);
	c->etp = chance(60) ? 0 : ONE_OF(1, 1, 2, 3);
	c->ep = ONE_OF(1, 1, 2, 2, 4, 3);
}

static void draw(struct cfg *c)
{
	memset(c, 0, sizeof(*c));
	c->pp = ONE_OF(1, 1, 2, 2, 3, 4, 4, 5, 6, 8);
	c->tp = ONE_OF(1, 1, 1, 2, 2, 3, 4);
	c->cp = ONE_OF(1, 1, 1, 2, 3);
	c->ep = 1;
	c->mtp = chance(60) ? 0 : ONE_OF(1, 1, 2);
	c->tied = chance(50);
	c->standalone = -1;
	draw_cut(c);
	draw_sizes(c);
	c->world = c->tp * c->cp * c->pp * ONE_OF(1, 1, 2, 4, 3);
	c->pp_first = chance(30);
	c->instances = chance(85) ? 1 : 2;
	c->recompute = chance(85) ? 0 : 1 + pick(4);
	if (chance(10)) {
		c->level[0] = 1 + pick(2);
		c->level[1] = c->cp > c->level[0] ? c->cp / c->level[0] : 1;
	}
	if (chance(25))
		spoil(c);
	if (c->world > WORLD_MAX)
		c->world = WORLD_MAX;
}

/* ---- and what a file says of them ---- */

static void put_given(FILE *f, const char *name, int n)
{
	if (n)
		fprintf(f, " %s = %d;", name, n);
}

static void put_flag(FILE *f, const char *name, bool on)
{
	fprintf(f, " %s = %s;", name, on ? "true" : "false");
}

static void put_shape(FILE *f, const struct cfg *c)
{
	fprintf(f, "%d shape: { num_layers = %d; hidden_size = %d;", c->world,
		c->layers, c->hidden);
	fprintf(f, " num_attention_heads = %d; vocab_size = %d;", c->heads,
		c->vocab);
	fprintf(f, " ffn_hidden_size = %d; seq_length = %d;", c->ffn, c->seq);
	put_given(f, "num_query_groups", c->groups);
	put_given(f, "mtp_num_layers", c->mtp);
	put_given(f, "num_moe_experts", c->experts);
	put_given(f, "moe_layer_freq", c->freq);
	put_given(f, "moe_ffn_hidden_size", c->moe_ffn);
	put_given(f, "moe_shared_expert_intermediate_size", c->shared);
	put_flag(f, "share_embeddings_and_output_weights", c->tied);
	put_flag(f, "add_bias_linear", c->bias);
}

static void put_place(FILE *f, const struct cfg *c)
{
	put_given(f, "tensor_model_parallel_size", c->tp);
	put_given(f, "pipeline_model_parallel_size", c->pp);
	put_given(f, "context_parallel_size", c->cp);
	put_given(f, "expert_model_parallel_size", c->ep);
	put_given(f, "expert_tensor_parallel_size", c->etp);
	put_given(f, "virtual_pipeline_model_parallel_size", c->vp);
	put_given(f, "num_layers_per_virtual_pipeline_stage", c->chunk);
	put_given(f, "num_virtual_stages_per_pipeline_rank", c->chunks);
	put_given(f, "num_layers_in_first_pipeline_stage", c->first);
	put_given(f, "num_layers_in_last_pipeline_stage", c->last);
	put_flag(f, "account_for_embedding_in_pipeline_split", c->emb);
	put_flag(f, "account_for_loss_in_pipeline_split", c->loss);
	put_flag(f, "sequence_parallel", c->sp);
	put_flag(f, "should_pad_vocab", c->pad);
	put_flag(f, "use_tp_pp_dp_mapping", c->pp_first);
	put_given(f, "make_vocab_size_divisible_by", c->unit);
	put_flag(f, "use_distributed_optimizer", c->instances > 1);
	put_given(f, "num_distributed_optimizer_instances", c->instances);
	if (*c->layout)
		fprintf(f, " pipeline_model_parallel_layout = \"%s\";",
			c->layout);
	if (c->standalone >= 0)
		put_flag(f, "mtp_standalone", c->standalone);
	if (c->recompute)
		fprintf(f,
			" recompute_granularity = \"full\"; recompute_method = "
			"\"block\"; recompute_num_layers = %d;",
			c->recompute);
	if (c->level[0])
		fprintf(f, " hierarchical_context_parallel_sizes = [%d, %d];",
			c->level[0], c->level[1]);
}

static void put_config(FILE *f, const struct cfg *c)
{
	put_shape(f, c);
	fputs(" }; place: {", f);
	put_place(f, c);
	fputs(" };\n", f);
}

#endif
