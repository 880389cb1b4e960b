/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/train/generate.h"

#include <inttypes.h>
#include <string.h>

#include "lib/base/half.h"

enum why { GOES_ON, ENDS_LENGTH, ENDS_TOKEN };

/*
 * A text.  ids [max + depths]: LEN tokens that are right, of which the cache
 * of all layers has the first FED, and behind them DRAFTS proposed ones.
 */
struct text {
	int32_t *ids;
	int64_t prompt; /* its tokens */
	int64_t len, max, fed;
	int drafts;
	enum why ends;
	int64_t start; /* where the pass under way begins */
	bool ready;    /* and whether it tells what comes next */
	int64_t passes, proposed, accepted; /* passes that were ready */
};

struct gen {
	struct trainer *t;
	const struct prog_gen *g;
	const struct prompts *prompts;
	const struct gen_options *opt;
	const struct gen_hooks *hooks;
	struct text *text;  /* [prompts] */
	int64_t next;	    /* the first one that has not begun */
	int64_t given;	    /* and that no hook was given */
	int64_t *slot;	    /* [dp * slots]: which text, or -1 */
	int64_t slots;	    /* of each dp rank */
	int32_t *mine;	    /* {asked to stop, tokens (slots, rows)} */
	int32_t *all;	    /* [world] of them */
	int64_t all_tokens; /* in each */
	bool stop;
	void *room;	    /* for logits of a device */
	const void *scores; /* the last run's logits */
	double *logits;	    /* of one row */
	void *work;
	struct arena *a;
};

/* Tokens of a text that a pass may have to take again: of the depths. */
static int64_t start_of(const struct gen *g, const struct text *x)
{
	int64_t again = x->len - g->g->depths;

	if (!g->g->depths || again >= x->fed)
		return x->fed;
	return again > 0 ? again : 0;
}

static struct text *text_of(const struct gen *g, int64_t slot)
{
	return g->slot[slot] < 0 ? NULL : &g->text[g->slot[slot]];
}

static int64_t slots_of_all(const struct gen *g)
{
	return g->slots * g->t->plan.grid.dp;
}

/* The prompts' pass if any text has more to tell than the other one takes. */
static const struct gen_pass *choose(const struct gen *g)
{
	for (int64_t s = 0; s < slots_of_all(g); s++) {
		const struct text *x = text_of(g, s);

		if (x && x->len - start_of(g, x) > g->g->pass[PASS_NEXT].T)
			return &g->g->pass[PASS_PROMPT];
	}
	return &g->g->pass[PASS_NEXT];
}

static void begin(struct gen *g, int64_t i)
{
	const struct prompt *p = &g->prompts->list[i];
	struct text *x = &g->text[i];

	*x = (struct text){.prompt = p->count,
			   .len = p->count,
			   .max = p->count + g->opt->more};
	x->ids = arena_alloc(g->a, (size_t)(x->max + g->g->depths),
			     sizeof(*x->ids));
	memcpy(x->ids, p->ids, (size_t)p->count * sizeof(*x->ids));
}

/* Texts to the slots whose own has ended; whether there is any. */
static bool fill_slots(struct gen *g)
{
	bool any = false;

	for (int64_t s = 0; s < slots_of_all(g); s++) {
		struct text *x = text_of(g, s);

		if (x && x->ends)
			g->slot[s] = -1;
		if (g->slot[s] < 0 && g->next < g->prompts->count) {
			begin(g, g->next);
			g->slot[s] = g->next++;
		}
		any = any || g->slot[s] >= 0;
	}
	return any;
}

static int32_t *host(const struct gen *g, struct ref r)
{
	return (int32_t *)(g->t->exec.host + r.at);
}

/* This dp rank's slot S of all. */
static int64_t mine(const struct gen *g, int64_t s)
{
	return g->t->plan.slice.at.dp * g->slots + s;
}

/* What PASS is to take of every text, and how many drafts it judges. */
static void plan_pass(struct gen *g, const struct gen_pass *pass)
{
	for (int64_t s = 0; s < slots_of_all(g); s++) {
		struct text *x = text_of(g, s);
		int64_t left;

		if (!x)
			continue;
		x->start = start_of(g, x);
		left = pass->T - (x->len - x->start);
		x->ready = left >= 0;
		if (x->drafts > x->max - x->len - 1)
			x->drafts = (int)(x->max - x->len - 1);
		if (!x->ready)
			x->drafts = 0;
		else if (x->drafts > left)
			x->drafts = (int)left;
	}
}

/* Row J of the logits that slot S wants of list K. */
static int64_t picked(const struct text *x, const struct gen_pass *pass, int k,
		      int64_t j)
{
	int64_t at = k ? x->len - 2 : x->len - 1 + j;

	at -= x->start;
	return at < 0 || at >= pass->T ? 0 : at;
}

/* The inputs of list K. */
static void feed(const struct gen *g, const struct gen_pass *pass, int k)
{
	int32_t *pos = host(g, g->g->pos), *pick = host(g, g->g->pick);
	int32_t *ids = host(g, g->g->ids) + k * g->slots * pass->T;
	int64_t rows = k ? 1 : g->g->rows;

	for (int64_t s = 0; s < g->slots; s++) {
		const struct text *x = text_of(g, mine(g, s));

		pos[s] = x ? (int32_t)x->start : 0;
		for (int64_t i = 0; i < pass->T; i++) {
			int64_t at = x ? x->start + i + k : 0;

			ids[s * pass->T + i] =
				x && at < x->len + x->drafts ? x->ids[at] : 0;
		}
		for (int64_t j = 0; j < rows; j++)
			pick[s * rows + j] =
				(int32_t)(s * pass->T +
					  (x ? picked(x, pass, k, j) : 0));
	}
}

static double element(int dtype, const void *base, int64_t at)
{
	switch (dtype) {
	case DTYPE_FP64: return ((const double *)base)[at];
	case DTYPE_FP32: return ((const float *)base)[at];
	case DTYPE_BF16: return bf16_widen(((const uint16_t *)base)[at]);
	default: return fp16_widen(((const uint16_t *)base)[at]);
	}
}

/* Row ROW of so many logits, of which each tp rank has made its columns. */
static const double *logits_row(const struct gen *g, int64_t rows, int64_t row)
{
	int64_t V = g->t->plan.config->shape.vocab_size, Vr = g->g->vocab_rows;

	for (int64_t v = 0; v < V; v++) {
		int64_t at = (v / Vr * rows + row) * Vr + v % Vr;

		g->logits[v] = element(g->t->exec.dtype, g->scores, at);
	}
	return g->logits;
}

/* The token that comes J places behind text I's, by list K. */
static int next_token(struct gen *g, int64_t i, int k, int64_t slot, int64_t j,
		      struct err *e)
{
	static const struct sampler greedy = {.top_p = 1};
	const struct text *x = &g->text[i];
	int64_t n = k ? 1 : g->g->rows, at = slot * n + j;
	const double *row = logits_row(g, g->slots * n, at);
	int64_t id = sample_next(k ? &greedy : &g->opt->sampler, row,
				 g->t->plan.config->shape.vocab_size, i,
				 x->len + j, g->work);

	if (id < 0)
		return err_set(e, CODE_NUMERIC,
			       "prompt %" PRId64 ", token %" PRId64
			       ": logits are not finite",
			       i + 1, x->len + j + 1);
	g->mine[1 + at] = (int32_t)id;
	return 0;
}

/* Bytes of ROWS of logits of each slot, from all tp ranks. */
static size_t logits_bytes(const struct gen *g, int64_t rows)
{
	int64_t V = g->g->vocab_rows * g->t->plan.grid.tp;

	return (size_t)(g->slots * rows * V) * g->t->plan.prog.elem;
}

/* Tokens for this dp rank's texts, where this rank has their logits. */
static int next_tokens(struct gen *g, int k, struct err *e)
{
	if (!g->g->scores || g->t->plan.slice.at.tp)
		return 0;
	g->scores = exec_see(&g->t->exec, g->g->logits,
			     logits_bytes(g, k ? 1 : g->g->rows), g->room, e);
	if (!g->scores)
		return -1;
	for (int64_t s = 0; s < g->slots; s++) {
		const struct text *x = text_of(g, mine(g, s));

		if (!x || !x->ready || x->ends)
			continue;
		for (int64_t j = 0; j <= (k ? 0 : x->drafts); j++)
			if (next_token(g, g->slot[mine(g, s)], k, s, j, e))
				return -1;
	}
	return 0;
}

/* Everybody's tokens to everybody. */
static int exchange(struct gen *g, struct err *e)
{
	size_t bytes = (size_t)g->all_tokens * sizeof(*g->all);

	if (comm_gather(g->t->group[GROUP_WORLD], g->mine, bytes, g->all, e))
		return -1;
	for (int r = 0; r < g->t->plan.grid.world; r++)
		g->stop = g->stop || g->all[r * g->all_tokens];
	return 0;
}

/* The tokens of a slot of all, from the rank that chose them. */
static const int32_t *tokens_of(const struct gen *g, int64_t slot, int k)
{
	const struct grid *grid = &g->t->plan.grid;
	int64_t rows = k ? 1 : g->g->rows;
	struct coord at = {.dp = (int)(slot / g->slots), .pp = grid->pp - 1};

	return g->all + grid_rank(grid, at) * g->all_tokens + 1 +
	       slot % g->slots * rows;
}

static int run_list(struct gen *g, const struct gen_pass *pass, int k,
		    struct err *e)
{
	struct exec *x = &g->t->exec;
	struct kern_scalars unused;

	g->mine[0] = g->hooks->run(g->hooks->arg);
	if (exec_prepare(x, e))
		return -1;
	feed(g, pass, k);
	if (exec_run(x, &pass->list[k], e) ||
	    exec_results(x, &unused, NULL, e) || next_tokens(g, k, e))
		return -1;
	return exchange(g, e);
}

/*
 * The tokens that come next, up to the first one that is not its draft: the
 * cache is right up to there.
 */
static void accept(const struct gen *g, struct text *x, const int32_t *token)
{
	int judged = x->drafts;
	bool right = true;

	x->passes++;
	for (int j = 0; right && !x->ends; j++) {
		right = j < judged && x->ids[x->len] == token[j];
		x->accepted += right;
		x->ids[x->len++] = token[j];
		if (token[j] == g->opt->end)
			x->ends = ENDS_TOKEN;
		else if (x->len == x->max)
			x->ends = ENDS_LENGTH;
	}
	x->proposed += judged;
	x->fed = x->len - 1;
	x->drafts = 0;
}

static int decoder_pass(struct gen *g, const struct gen_pass *pass,
			struct err *e)
{
	plan_pass(g, pass);
	if (run_list(g, pass, 0, e))
		return -1;
	for (int64_t s = 0; s < slots_of_all(g); s++) {
		struct text *x = text_of(g, s);

		if (x && x->ready)
			accept(g, x, tokens_of(g, s, 0));
		else if (x)
			x->fed = x->start + pass->T;
	}
	return 0;
}

/* Depth K's draft of every text that goes on. */
static int depth_pass(struct gen *g, const struct gen_pass *pass, int k,
		      struct err *e)
{
	if (run_list(g, pass, k, e))
		return -1;
	for (int64_t s = 0; s < slots_of_all(g); s++) {
		struct text *x = text_of(g, s);

		if (x && x->ready && !x->ends)
			x->ids[x->len + x->drafts++] = *tokens_of(g, s, k);
	}
	return 0;
}

/* To rank 0's hook, what is next in the order of the prompts. */
static int give_texts(struct gen *g, struct err *e)
{
	for (; g->given < g->next && g->text[g->given].ends; g->given++) {
		const struct text *x = &g->text[g->given];
		const struct gen_text out = {
			.prompt = g->given + 1,
			.ids = x->ids + x->prompt,
			.count = x->len - x->prompt,
			.ended = x->ends == ENDS_TOKEN,
			.drafts = x->proposed,
			.accepted = x->accepted,
		};

		if (!g->t->plan.rank && g->hooks->text(g->hooks->arg, &out, e))
			return -1;
	}
	return 0;
}

/* Whether any text in a slot has not ended. */
static bool any_goes_on(const struct gen *g)
{
	for (int64_t s = 0; s < slots_of_all(g); s++)
		if (text_of(g, s) && !text_of(g, s)->ends)
			return true;
	return false;
}

static int go_on(struct gen *g, struct err *e)
{
	while (!g->stop && fill_slots(g)) {
		const struct gen_pass *pass = choose(g);

		if (decoder_pass(g, pass, e))
			return -1;
		for (int k = 1; k <= g->g->depths && any_goes_on(g); k++)
			if (depth_pass(g, pass, k, e))
				return -1;
		if (give_texts(g, e))
			return -1;
	}
	return 0;
}

static void sum_up(const struct gen *g, struct gen_sum *sum)
{
	*sum = (struct gen_sum){.texts = g->given};
	for (int64_t i = 0; i < g->next; i++) {
		const struct text *x = &g->text[i];

		sum->tokens += x->len - x->prompt;
		sum->passes += x->passes;
		sum->drafts += x->proposed;
		sum->accepted += x->accepted;
	}
	sum->stopped = g->given < g->prompts->count;
}

static void set_up(struct gen *g)
{
	const struct plan *p = &g->t->plan;
	int64_t V = p->config->shape.vocab_size, n;

	g->slots = g->g->size.slots;
	g->text =
		arena_alloc(g->a, (size_t)g->prompts->count, sizeof(*g->text));
	n = slots_of_all(g);
	g->slot = arena_alloc(g->a, (size_t)n, sizeof(*g->slot));
	for (int64_t s = 0; s < n; s++)
		g->slot[s] = -1;
	g->all_tokens = 1 + g->slots * g->g->rows;
	n = g->all_tokens;
	g->mine = arena_alloc(g->a, (size_t)n, sizeof(*g->mine));
	g->all =
		arena_alloc(g->a, (size_t)(n * p->grid.world), sizeof(*g->all));
	g->logits = arena_alloc(g->a, (size_t)V, sizeof(*g->logits));
	g->work = arena_alloc(g->a, sample_work(V), 1);
	if (g->g->scores && g->t->exec.queue)
		g->room = arena_alloc(g->a, logits_bytes(g, g->g->rows), 1);
}

int gen_run(struct trainer *t, const struct prog_gen *pg,
	    const struct prompts *prompts, const struct gen_options *opt,
	    const struct gen_hooks *hooks, struct gen_sum *sum, struct arena *a,
	    struct err *e)
{
	struct gen g = {.t = t,
			.g = pg,
			.prompts = prompts,
			.opt = opt,
			.hooks = hooks,
			.a = a};

	set_up(&g);
	if (go_on(&g, e))
		return -1;
	sum_up(&g, sum);
	return 0;
}

int gen_plan(struct gen_size *out, const struct config *c, int world,
	     const struct prompts *prompts, const struct gen_options *opt,
	     struct err *e)
{
	struct grid g;
	int64_t each;

	if (grid_build(&g, &c->place, world, e))
		return -1;
	if (opt->speculative && c->shape.mtp_num_layers < 1)
		return err_set(e, CODE_USAGE,
			       "--speculative: shape.mtp_num_layers is 0, the "
			       "model has no depths that could draft");
	each = (prompts->count + g.dp - 1) / g.dp;
	*out = (struct gen_size){
		.slots = c->run.micro_batch_size < each
				 ? c->run.micro_batch_size
				 : each,
		.room = prompts->longest + opt->more,
		.prompt = prompts->longest,
		.drafts = opt->speculative,
	};
	return 0;
}
