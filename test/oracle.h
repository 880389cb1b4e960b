/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Placement by brute force.  This file knows nothing of lib/plan: it has
 * Megatron-LM's own rules, its closed formulas of layers and offsets and its
 * rank orders written out, one stage and one rank at a time; OURS marks where
 * we differ from it on purpose.
 */
#ifndef TEST_ORACLE_H
#define TEST_ORACLE_H

#include <ctype.h>
#include <stdlib.h>

#include "test/oracle-draw.h"

enum {
	LAYOUT_MAX = 4096, /* tokens of a layout */
	STAGES_MAX = LAYOUT_MAX + 1,
};

/* ---- layouts: brackets away, innermost first, then single letters ---- */

/* TEXT without blanks, commas and comments; digits never join over them. */
static void strip(const char *text, char *out)
{
	char before = 0;
	bool gap = false;

	while (*text) {
		const char *close =
			strncmp(text, "/*", 2) ? NULL : strstr(text + 2, "*/");

		if (*text == '#') {
			break;
		} else if (close || *text == ' ' || *text == ',') {
			text = close ? close + 2 : text + 1;
			gap = true;
			continue;
		}
		if (gap && isdigit((unsigned char)before) &&
		    isdigit((unsigned char)*text))
			*out++ = '?';
		gap = false;
		before = *out++ = *text++;
	}
	*out = 0;
}

/* The number behind a star at *TEXT, or 1; 0: it is wrong. */
static int repeats(const char **text)
{
	int n = 0;

	if (**text != '*')
		return 1;
	for (++*text; isdigit((unsigned char)**text) && n <= LAYOUT_MAX;
	     ++*text)
		n = 10 * n + (**text - '0');
	/* OURS: *0 deletes nothing, it is refused; so are two counts */
	return n > LAYOUT_MAX || **text == '*' ? 0 : n;
}

/* Append LEN letters N times; false: too many. */
static bool repeat(char *out, const char *item, int len, int n)
{
	size_t have = strlen(out);

	/* OURS: a bound */
	if (have + (size_t)len * (size_t)n > 2 * LAYOUT_MAX)
		return false;
	for (int i = 0; i < n; i++, have += (size_t)len)
		memcpy(out + have, item, (size_t)len);
	out[have] = 0;
	return true;
}

/* One letter after the other, each with its count; false: wrong. */
static bool unroll(const char *text, int len, char *out)
{
	const char *end = text + len;

	*out = 0;
	while (text < end) {
		const char *letter = text++;
		int n = repeats(&text);

		if (!strchr("EtmL|", *letter) || !n ||
		    !repeat(out, letter, 1, n))
			return false;
	}
	return true;
}

/* OURS: brackets may nest. */
static bool expand(const char *text, char *out)
{
	static char now[8 * LAYOUT_MAX], next[8 * LAYOUT_MAX];
	static char inner[2 * LAYOUT_MAX + 1], group[4 * LAYOUT_MAX];

	strip(text, now);
	for (;;) {
		char *close = strchr(now, ')'), *open = close;
		const char *rest;
		int n;

		if (!close)
			break;
		rest = close + 1;
		while (open > now && *open != '(')
			open--;
		n = repeats(&rest);
		if (*open != '(' || !n ||
		    !unroll(open + 1, (int)(close - open) - 1, inner))
			return false;
		*group = 0;
		if (!repeat(group, inner, (int)strlen(inner), n))
			return false;
		*open = 0;
		snprintf(next, sizeof(next), "%s%s%s", now, group, rest);
		memcpy(now, next, strlen(next) + 1);
	}
	return unroll(now, (int)strlen(now), out) && strlen(out) <= LAYOUT_MAX;
}

/* ---- stages, one by one ---- */

struct table {
	int vp, count;
	int layers[STAGES_MAX], mtp[STAGES_MAX]; /* of stage v * pp + r */
};

static int count_of(const char *text, char letter)
{
	int n = 0;

	for (; *text; text++)
		n += *text == letter;
	return n;
}

/* A layout's stages; false: refused. */
static bool lay_out(const struct cfg *c, struct table *t)
{
	static char all[2 * LAYOUT_MAX + 1];
	char *stage = all, *end;
	int holders = 0;

	if (c->first || c->last || c->emb || c->loss)
		return false;
	if (!expand(c->layout, all))
		return false;
	t->count = count_of(all, '|') + 1;
	t->vp = t->count / c->pp;
	if (t->count % c->pp || (c->vp && c->vp != t->vp))
		return false;
	if (t->vp > 1 && c->pp == 1)
		return false;
	if (count_of(all, 'E') != 1 || count_of(all, 'L') != 1 ||
	    count_of(all, 't') != c->layers || count_of(all, 'm') != c->mtp ||
	    (strchr(all, 'm') && strchr(strchr(all, 'm'), 't')))
		return false;
	/* OURS: E in the first stage and L in the last, not only in order */
	if (all[0] != 'E' || all[strlen(all) - 1] != 'L')
		return false;
	for (int s = 0; s < t->count; s++) {
		end = strchrnul(stage, '|');
		*end = 0;
		t->layers[s] = count_of(stage, 't');
		t->mtp[s] = count_of(stage, 'm');
		stage = end + 1;
		if (!t->mtp[s])
			continue;
		/* OURS: never on pipeline rank 0, if there are others */
		if (++holders > 1 || s / c->pp != t->vp - 1 ||
		    (c->pp > 1 && s % c->pp == 0))
			return false;
	}
	return true;
}

/* Layers of rank R's chunk V without a layout; -1: refused. */
static int layers_of(const struct cfg *c, int vp, int r, int v)
{
	int slots = c->layers + c->emb + c->loss, share;
	int middle = c->pp - (c->first > 0) - (c->last > 0);
	int rest = c->layers - c->first - c->last;

	if (c->first || c->last) {
		/* OURS: neither fewer layers than none nor stages */
		if (c->emb || c->loss || middle < 0 || rest < 0 ||
		    (middle > 0) != (rest > 0) || (middle && rest % middle))
			return -1;
		share = middle ? rest / middle : 0;
		if (r == 0 && c->first)
			share = c->first;
		if (r == c->pp - 1 && c->last)
			share = c->last;
	} else {
		if (slots % c->pp)
			return -1;
		share = slots / c->pp;
	}
	if (share % vp)
		return -1;
	share /= vp;
	share -= c->emb && r == 0 && v == 0;
	share -= c->loss && r == c->pp - 1 && v == vp - 1;
	return share;
}

/* Chunks a rank by all that was given; 0: refused. */
static int chunks_of(const struct cfg *c)
{
	int slots = c->layers + c->emb + c->loss, vp = 1;

	if (c->chunk && (c->chunks || c->first || c->last))
		return 0;
	if (c->chunk) {
		if (slots % (c->pp * c->chunk))
			return 0;
		vp = slots / c->pp / c->chunk;
	} else if (c->chunks) {
		vp = c->chunks;
	} else if (c->vp) {
		vp = c->vp;
	}
	/* OURS: given twice, it is the same */
	return (c->vp && c->vp != vp) || (vp > 1 && c->pp == 1) ? 0 : vp;
}

/* Every stage of C; false: refused. */
static bool cut(const struct cfg *c, struct table *t)
{
	int sum = 0;

	memset(t, 0, sizeof(*t));
	if (*c->layout)
		return !c->chunk && !c->chunks && lay_out(c, t);
	t->vp = chunks_of(c);
	if (!t->vp)
		return false;
	t->count = c->pp * t->vp;
	for (int s = 0; s < t->count; s++) {
		t->layers[s] = layers_of(c, t->vp, s % c->pp, s / c->pp);
		if (t->layers[s] < 0)
			return false;
		sum += t->layers[s];
	}
	t->mtp[t->count - 1] = c->mtp;
	return sum == c->layers;
}

/* The first layer of rank R's chunk V, by Megatron-LM's closed formulas. */
static int first_of(const struct cfg *c, const struct table *t, int r, int v)
{
	int slots = c->layers + c->emb + c->loss, sum = 0;
	int middle = c->pp - (c->first > 0) - (c->last > 0);
	int f = c->first / t->vp, z = c->last / t->vp;
	int m = (c->layers - c->first - c->last) / t->vp;

	if (c->pp == 1)
		return 0;
	if (*c->layout) {
		for (int s = 0; s < v * c->pp + r; s++)
			sum += t->layers[s];
		return sum;
	}
	/* OURS: without middle stages, where it divides by their number */
	if (c->first || c->last)
		return v * (f + m + z) +
		       (r ? f + (r - (c->first > 0)) * (middle ? m / middle : 0)
			  : 0);
	return v * (slots / t->vp) + r * (slots / c->pp / t->vp) -
	       (c->emb && (r || v));
}

static void put_stages(FILE *f, const struct cfg *c, const struct table *t)
{
	for (int s = 0; s < t->count; s++) {
		int r = s % c->pp, v = s / c->pp;
		int first = first_of(c, t, r, v);
		int end = first + t->layers[s];
		bool last = s == t->count - 1;
		bool norm = c->mtp ? t->layers[s] && end == c->layers : last;

		fprintf(f, "stage %d %d %d %d %d %d %d %d %d\n", r, v, first,
			t->layers[s], s == 0 || t->mtp[s] > 0, norm, t->mtp[s],
			last, last);
	}
}

/*
 * What must hold whatever the rules: every layer once, counts of at least 0,
 * multi-token prediction whole, behind all layers, not on pipeline rank 0.
 */
static void check_stages(const struct cfg *c, const struct table *t)
{
	int next = 0, holders = 0;
	bool good = true;

	for (int s = 0; s < t->count; s++) {
		good &= t->layers[s] >= 0 &&
			first_of(c, t, s % c->pp, s / c->pp) == next;
		next += t->layers[s];
		if (!t->mtp[s])
			continue;
		holders++;
		good &= t->mtp[s] == c->mtp && next == c->layers &&
			(c->pp == 1 || s % c->pp > 0);
	}
	if (good && next == c->layers && holders == (c->mtp > 0))
		return;
	printf("a placement that cannot be: ");
	put_config(stdout, c);
	exit(3);
}

/* ---- ranks, one by one ---- */

enum { TP, CP, DP, PP, ETP, EP, EDP, EXPERT_PP, AXES };

#define BIT(axis) (1u << (axis))
#define DENSE	  (BIT(TP) | BIT(CP) | BIT(DP) | BIT(PP))
#define EXPERT	  (BIT(ETP) | BIT(EP) | BIT(EDP) | BIT(EXPERT_PP))

struct ranks {
	int world, dp, edp, at[WORLD_MAX][AXES];
};

/* Number the ranks of four axes from 0 on, the first axis fastest. */
static void number(struct ranks *k, const int axis[4], const int size[4])
{
	int rank = 0;

	for (int d = 0; d < size[3]; d++)
		for (int c = 0; c < size[2]; c++)
			for (int b = 0; b < size[1]; b++)
				for (int a = 0; a < size[0]; a++, rank++) {
					k->at[rank][axis[0]] = a;
					k->at[rank][axis[1]] = b;
					k->at[rank][axis[2]] = c;
					k->at[rank][axis[3]] = d;
				}
}

/* Whether Q and R differ only along AXES of GRID. */
static bool together(const struct ranks *k, int q, int r, unsigned grid,
		     unsigned axes)
{
	for (int x = 0; x < AXES; x++)
		if ((grid & ~axes & BIT(x)) && k->at[q][x] != k->at[r][x])
			return false;
	return true;
}

/* Both grids over C's world; false: they do not fit it, or one another. */
static bool tile(const struct cfg *c, struct ranks *k)
{
	int etp = c->etp ? c->etp : c->tp, pp = c->pp, w = c->world;

	memset(k, 0, sizeof(*k));
	k->world = w;
	k->dp = w / (c->tp * c->cp * pp);
	k->edp = w / (etp * c->ep * pp);
	if (k->dp * c->tp * c->cp * pp != w || k->edp * etp * c->ep * pp != w)
		return false;
	if (c->pp_first) {
		number(k, (int[]){TP, CP, PP, DP},
		       (int[]){c->tp, c->cp, pp, k->dp});
		number(k, (int[]){ETP, EP, EXPERT_PP, EDP},
		       (int[]){etp, c->ep, pp, k->edp});
	} else {
		number(k, (int[]){TP, CP, DP, PP},
		       (int[]){c->tp, c->cp, k->dp, pp});
		number(k, (int[]){ETP, EP, EDP, EXPERT_PP},
		       (int[]){etp, c->ep, k->edp, pp});
	}
	for (int q = 0; q < w; q++)
		for (int r = 0; r < w; r++)
			if (together(k, q, r, DENSE, BIT(PP)) !=
			    together(k, q, r, EXPERT, BIT(EXPERT_PP)))
				return false;
	return true;
}

static void put_ranks(FILE *f, const struct ranks *k)
{
	for (int r = 0; r < k->world; r++)
		fprintf(f, "rank %d %d %d %d %d %d %d\n", k->at[r][TP],
			k->at[r][CP], k->at[r][DP], k->at[r][PP], k->at[r][EP],
			k->at[r][ETP], k->at[r][EDP]);
}

/* Every group along AXES, its members among the pipeline ranks of HOLDS. */
static void put_groups(FILE *f, const struct ranks *k, const char *name,
		       unsigned grid, unsigned axes, const bool *holds)
{
	fputs(name, f);
	for (int r = 0; r < k->world; r++) {
		int members = 0;

		for (int q = 0; q < k->world; q++) {
			if (!together(k, q, r, grid, axes))
				continue;
			if (q < r)
				break;
			if (!holds || holds[k->at[q][PP]])
				fprintf(f, "%c%d", members++ ? ',' : ' ', q);
		}
	}
	fputc('\n', f);
}

static void put_all_groups(FILE *f, const struct cfg *c, const struct table *t,
			   const struct ranks *k)
{
	bool holds[WORLD_MAX] = {true};

	holds[c->pp - 1] |= c->tied;
	for (int s = 0; s < t->count; s++)
		holds[s % c->pp] |= t->mtp[s] > 0;
	put_groups(f, k, "tp", DENSE, BIT(TP), NULL);
	put_groups(f, k, "cp", DENSE, BIT(CP), NULL);
	put_groups(f, k, "dp", DENSE, BIT(DP), NULL);
	put_groups(f, k, "dp_cp", DENSE, BIT(DP) | BIT(CP), NULL);
	put_groups(f, k, "ep", EXPERT, BIT(EP), NULL);
	put_groups(f, k, "etp", EXPERT, BIT(ETP), NULL);
	put_groups(f, k, "edp", EXPERT, BIT(EDP), NULL);
	put_groups(f, k, "pp", EXPERT, BIT(EXPERT_PP), NULL);
	put_groups(f, k, "embedding", DENSE, BIT(PP), holds);
	put_groups(f, k, "tp_cp", DENSE, BIT(TP) | BIT(CP), NULL);
	put_groups(f, k, "tp_pp", DENSE, BIT(TP) | BIT(PP), NULL);
	put_groups(f, k, "ep_etp", EXPERT, BIT(EP) | BIT(ETP), NULL);
}

/* ---- what else placement refuses ---- */

enum rule {
	STAGES,
	WORLD,
	HEADS,
	FFN,
	MOE_FFN,
	SHARED_FFN,
	MTP_HIDDEN,
	VOCAB,
	SEQUENCE,
	EXPERTS,
	INSTANCES,
	LEVELS,
	/* of stages: what they say where STAGES is broken means nothing */
	RECOMPUTE,
	STANDALONE,
	RULES
};

static bool has_dense_layer(const struct cfg *c)
{
	for (int i = 0; i < c->layers; i++)
		if (!c->experts || i % c->freq != 0)
			return true;
	return false;
}

/* Widths that are cut over ranks. */
static void judge_widths(const struct cfg *c, bool *bad)
{
	int groups = c->groups ? c->groups : c->heads;
	int etp = c->etp ? c->etp : c->tp;
	int moe = c->moe_ffn ? c->moe_ffn : c->ffn;

	bad[HEADS] = c->heads % c->tp || (groups % c->tp && c->tp % groups);
	bad[FFN] = has_dense_layer(c) && c->ffn % c->tp;
	bad[MOE_FFN] = c->experts && moe % etp;
	bad[SHARED_FFN] = c->experts && c->shared % c->tp;
	bad[MTP_HIDDEN] = c->mtp && c->hidden % c->tp;
	bad[VOCAB] = !c->pad && c->vocab % c->tp;
	bad[EXPERTS] = (c->ep > 1 && !c->experts) || c->experts % c->ep;
}

/* Tokens that are cut over ranks: pairs of chunks over cp, each over tp. */
static void judge_tokens(const struct cfg *c, bool *bad)
{
	bad[SEQUENCE] = c->cp > 1 && c->seq % (2 * c->cp);
	/* OURS: sequence_parallel on one rank is refused, not turned off */
	if (c->sp)
		bad[SEQUENCE] |= c->tp == 1 || c->seq % (c->cp * c->tp);
	bad[LEVELS] =
		c->cp > 1 && c->level[0] && c->level[0] * c->level[1] != c->cp;
}

static bool stands_alone(const struct cfg *c, const struct table *t)
{
	for (int s = 0; s < t->count; s++)
		if (t->mtp[s] && s % c->pp != c->pp - 1)
			return true;
	return false;
}

static void judge_stages(const struct cfg *c, const struct table *t, bool *bad)
{
	int most = 0;

	for (int s = 0; s < t->count; s++)
		most = t->layers[s] > most ? t->layers[s] : most;
	bad[RECOMPUTE] = c->recompute > most;
	bad[STANDALONE] =
		c->standalone >= 0 && c->standalone != stands_alone(c, t);
}

static int padded(const struct cfg *c)
{
	int rows = c->vocab;

	while (c->pad && rows % (c->unit * c->tp))
		rows++;
	return rows;
}

/* What PLACE must print of C behind the ids; BAD: which rules are broken. */
static char *expected(const struct cfg *c, bool bad[RULES])
{
	static struct table t;
	struct ranks k;
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);
	bool placed = cut(c, &t), tiled = tile(c, &k);

	memset(bad, 0, RULES * sizeof(*bad));
	bad[STAGES] = !placed;
	bad[WORLD] = !tiled;
	judge_widths(c, bad);
	judge_tokens(c, bad);
	if (tiled)
		bad[INSTANCES] =
			k.dp * c->cp % c->instances || k.edp % c->instances;
	fprintf(f, "rows %d\n", padded(c));
	if (placed) {
		check_stages(c, &t);
		judge_stages(c, &t, bad);
		fprintf(f, "mtp_standalone %d\n",
			c->standalone >= 0 ? c->standalone
					   : stands_alone(c, &t));
		put_stages(f, c, &t);
	}
	if (tiled)
		put_ranks(f, &k);
	if (placed && tiled)
		put_all_groups(f, c, &t, &k);
	fclose(f);
	return text;
}

#endif
