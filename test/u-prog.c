/* SPDX-License-Identifier: Apache-2.0 */
/* The programs of all ranks together: messages and collectives fit. */
#include "test/plan-test.h"

#include "lib/train/exec.h"

/* One collective of one group, as its first member has it. */
struct collective {
	int comm, joined;
	int64_t n;
	int type;
};

/* The group that a rank belongs to, and where it is in its sequence. */
struct member {
	int ranks[64], size, me, next;
};

/* Collectives by kind of group and first rank. */
struct sequence {
	struct collective *list;
	int count;
	size_t cap;
};

/* A message: what its sender and its receiver said of it. */
struct message {
	int from, to, tag;
	int64_t sent, received; /* elements, -1: not posted */
	/* how many of this way and parity of tag came before */
	int nth_sent, nth_received;
};

struct world {
	int size;
	struct plan *plan;
	struct prog_gen *gen;
	const struct prog_list **list; /* what each rank runs */
	struct member (*in)[PROG_GROUPS];
	struct sequence *seq[PROG_GROUPS]; /* [first rank] */
	struct message *message;
	int messages;
	size_t cap;
	int *at; /* each rank's next op */
	struct arena *a;
};

static struct message *find_message(struct world *w, int from, int to, int tag)
{
	for (int i = 0; i < w->messages; i++) {
		struct message *m = &w->message[i];

		if (m->from == from && m->to == to && m->tag == tag)
			return m;
	}
	w->message = arena_grow(w->a, w->message, (size_t)w->messages, &w->cap,
				sizeof(*w->message));
	w->message[w->messages] = (struct message){from, to, tag, -1, -1, 0, 0};
	return &w->message[w->messages++];
}

/* Sends or receives posted so far from FROM to TO with such tags. */
static int posted(const struct world *w, const struct message *like, bool sends)
{
	int n = 0;

	for (int i = 0; i < w->messages; i++) {
		const struct message *m = &w->message[i];

		n += m->from == like->from && m->to == like->to &&
		     m->tag % 2 == like->tag % 2 &&
		     (sends ? m->sent : m->received) >= 0;
	}
	return n;
}

/* Only neighbours talk, the last one with the first if there are chunks. */
static void check_neighbours(const struct world *w, int rank,
			     const struct op *op)
{
	const struct member *m = &w->in[rank][op->group];
	int apart = op->peer > m->me ? op->peer - m->me : m->me - op->peer;

	assert_true(apart == 1 ||
		    (w->plan[rank].grid.vp > 1 && apart == m->size - 1));
}

static struct message *message_of(struct world *w, int rank,
				  const struct op *op)
{
	int peer = w->in[rank][op->group].ranks[op->peer];

	assert_in_range(op->peer, 0, w->in[rank][op->group].size - 1);
	if (op->comm == PROG_SEND)
		return find_message(w, rank, peer, op->tag);
	return find_message(w, peer, rank, op->tag);
}

static struct sequence *sequence_of(struct world *w, int rank, int group)
{
	return &w->seq[group][w->in[rank][group].ranks[0]];
}

/* Start OP; what its wait looks for goes to *TICKET. */
static void start(struct world *w, int rank, const struct op *op, int *ticket)
{
	struct member *m = &w->in[rank][op->group];
	struct sequence *s;
	struct message *x;

	assert_true(m->size > 1 && plan_has_group(&w->plan[rank], op->group));
	if (op->comm == PROG_SEND || op->comm == PROG_RECV) {
		int64_t *n;

		check_neighbours(w, rank, op);
		x = message_of(w, rank, op);
		n = op->comm == PROG_SEND ? &x->sent : &x->received;
		assert_int_equal(*n, -1);
		*(op->comm == PROG_SEND ? &x->nth_sent : &x->nth_received) =
			posted(w, x, op->comm == PROG_SEND);
		*n = op->n[0];
		return;
	}
	s = sequence_of(w, rank, op->group);
	*ticket = m->next++;
	if (*ticket == s->count) {
		s->list = arena_grow(w->a, s->list, (size_t)s->count, &s->cap,
				     sizeof(*s->list));
		s->list[s->count++] = (struct collective){
			.comm = op->comm, .n = op->n[0], .type = op->type};
	}
	assert_int_equal(s->list[*ticket].comm, op->comm);
	assert_int_equal(s->list[*ticket].n, op->n[0]);
	assert_int_equal(s->list[*ticket].type, op->type);
	s->list[*ticket].joined++;
}

/* A message is done once both ends are there: sends are not buffered. */
static bool done(struct world *w, int rank, const struct op *op, int ticket)
{
	struct message *m;

	if (op->comm != PROG_SEND && op->comm != PROG_RECV)
		return sequence_of(w, rank, op->group)->list[ticket].joined ==
		       w->in[rank][op->group].size;
	m = message_of(w, rank, op);
	if (m->sent < 0 || m->received < 0)
		return false;
	assert_int_equal(m->sent, m->received);
	return true;
}

/* Run RANK until it must wait; whether it got anywhere. */
static bool advance(struct world *w, int rank, const struct prog_list *l,
		    int *ticket)
{
	int from = w->at[rank];

	for (; w->at[rank] < l->count; w->at[rank]++) {
		const struct op *op = &l->op[w->at[rank]];

		if (op->code == OP_COMM)
			start(w, rank, op, &ticket[w->at[rank]]);
		if (op->code == OP_WAIT &&
		    !done(w, rank, &l->op[op->wait], ticket[op->wait]))
			break;
	}
	return w->at[rank] > from;
}

/* All ranks run their list to its end, and no message is left over. */
static void run_lists(struct world *w, const char *what)
{
	int **ticket = arena_alloc(w->a, (size_t)w->size, sizeof(*ticket));
	bool moved = true;

	w->messages = 0;
	for (int r = 0; r < w->size; r++) {
		w->at[r] = 0;
		ticket[r] = arena_alloc(w->a, (size_t)w->list[r]->count + 1,
					sizeof(**ticket));
	}
	while (moved) {
		moved = false;
		for (int r = 0; r < w->size; r++)
			moved |= advance(w, r, w->list[r], ticket[r]);
	}
	for (int r = 0; r < w->size; r++)
		if (w->at[r] < w->list[r]->count)
			fail_msg("%s: rank %d stops at op %d", what, r,
				 w->at[r]);
	for (int i = 0; i < w->messages; i++) {
		const struct message *m = &w->message[i];

		assert_int_equal(m->sent, m->received);
		assert_int_equal(m->nth_sent, m->nth_received);
	}
}

/* Each start has one wait, later; only so many are on their way at a time. */
static void check_waits(const struct prog_list *l, struct arena *a)
{
	char *open = arena_alloc(a, (size_t)l->count, 1);
	int flying = 0;

	for (int i = 0; i < l->count; i++) {
		const struct op *op = &l->op[i];

		if (op->code == OP_COMM) {
			open[i] = 1;
			assert_in_range(++flying, 1, EXEC_IN_FLIGHT);
		} else if (op->code == OP_WAIT) {
			assert_in_range(op->wait, 0, i - 1);
			assert_int_equal(open[op->wait], 1);
			open[op->wait] = 2;
			flying--;
		}
	}
	assert_int_equal(flying, 0);
}

static void world_new(struct world *w, int size, struct arena *a)
{
	size_t n = (size_t)size;

	*w = (struct world){.size = size, .a = a};
	w->plan = arena_alloc(a, n, sizeof(*w->plan));
	w->gen = arena_alloc(a, n, sizeof(*w->gen));
	w->list = arena_alloc(a, n, sizeof(*w->list));
	w->in = arena_alloc(a, n, sizeof(*w->in));
	w->at = arena_alloc(a, n, sizeof(*w->at));
	for (int k = 0; k < PROG_GROUPS; k++)
		w->seq[k] = arena_alloc(a, n, sizeof(*w->seq[k]));
}

static void join_groups(struct world *w, int r)
{
	for (int k = 0; k < PROG_GROUPS; k++) {
		struct member *m = &w->in[r][k];

		m->size = plan_group(&w->plan[r], k, m->ranks, &m->me);
		if (m->size)
			assert_int_equal(m->ranks[m->me], r);
	}
}

static void check_layout(const struct plan_case *x, const struct config *c,
			 struct arena *a)
{
	struct world w;
	struct err e;

	world_new(&w, x->world, a);
	for (int r = 0; r < x->world; r++) {
		if (plan_build(&w.plan[r], c, x->world, r, a, &e))
			fail_msg("%s: %s", x->sets, e.text);
		check_waits(&w.plan[r].prog.train, a);
		check_waits(&w.plan[r].prog.eval, a);
		join_groups(&w, r);
	}
	for (int train = 1; train >= 0; train--) {
		for (int r = 0; r < x->world; r++)
			w.list[r] = train ? &w.plan[r].prog.train
					  : &w.plan[r].prog.eval;
		run_lists(&w, x->sets);
	}
}

/* All ranks run the same pass of a generation, and each depth in turn. */
static void check_generation(const struct plan_case *x, const struct config *c,
			     struct arena *a)
{
	const struct gen_size size = {.slots = 3,
				      .room = 50,
				      .prompt = 20,
				      .drafts = c->shape.mtp_num_layers > 0};
	struct world w;
	struct err e;

	world_new(&w, x->world, a);
	for (int r = 0; r < x->world; r++) {
		if (plan_gen_build(&w.plan[r], &w.gen[r], c, &size, x->world, r,
				   a, &e))
			fail_msg("%s: %s", x->sets, e.text);
		join_groups(&w, r);
	}
	for (int i = 0; i < PASSES; i++)
		for (int k = 0; k <= w.gen->depths; k++) {
			for (int r = 0; r < x->world; r++) {
				w.list[r] = &w.gen[r].pass[i].list[k];
				check_waits(w.list[r], a);
			}
			run_lists(&w, x->sets);
		}
}

static void test_no_deadlock_and_all_agree(void **state)
{
	(void)state;
	assert_true(plan_grid(8, "", check_layout) > 300);
	assert_true(plan_grid(8, "shape.mtp_num_layers=3", check_layout) > 150);
	assert_true(plan_grid(8, "shape.mtp_num_layers=3 run.mtp_hsm=true",
			      check_layout) > 150);
	assert_true(plan_grid(8, DEPTHS_ALONE, check_layout) > 10);
	assert_true(plan_grid(8, EXPERTS_SHARED, check_layout) > 100);
	assert_true(plan_grid(8, EXPERTS_APART, check_layout) > 30);
	assert_true(plan_grid(8, EXPERTS_SHARED " run.moe_input_jitter_eps=0.1",
			      check_layout) > 100);
	assert_true(plan_grid(8, LATENT, check_layout) > 100);
	assert_true(plan_grid(8, LATENT_WHOLE, check_layout) > 100);
	assert_true(plan_grid(8, OWN " shape.mtp_num_layers=2", check_layout) >
		    100);
}

static void test_generations(void **state)
{
	(void)state;
	assert_true(plan_grid(8, "", check_generation) > 300);
	assert_true(plan_grid(8, "shape.mtp_num_layers=3", check_generation) >
		    150);
	assert_true(plan_grid(8, DEPTHS_ALONE, check_generation) > 10);
	assert_true(plan_grid(8, EXPERTS_SHARED, check_generation) > 100);
	assert_true(plan_grid(8, OWN " shape.mtp_num_layers=2",
			      check_generation) > 100);
}

/* Schedules whose order differs most from 1F1B. */
static void test_interleaved_orders(void **state)
{
	int cases = 0;

	(void)state;
	for (int k = 0; k < 3 * 3 * 4 * 3; k++) {
		int pp = 2 + k % 3, vp = 2 + k / 3 % 3, group = pp + k / 9 % 4;
		int m = group * (1 + k / 36) + (k % 2 ? pp : 0);
		struct plan_case x = {.file = GPT2, .world = pp};
		struct config c;
		struct arena a;
		struct err e;

		assert_int_equal(arena_open(&a, &e), 0);
		x.sets = arena_printf(
			&a,
			"shape.num_layers=%d "
			"place.pipeline_model_parallel_size=%d "
			"place.virtual_pipeline_model_parallel_size=%d "
			"place.microbatch_group_size_per_vp_stage=%d "
			"run.global_batch_size=%d",
			pp * vp, pp, vp, group, m);
		if (plan_config(&c, x.file, x.sets, x.world, &a)) {
			check_layout(&x, &c, &a);
			cases++;
		}
		arena_close(&a);
	}
	assert_true(cases > 80);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_deadlock_and_all_agree),
		cmocka_unit_test(test_generations),
		cmocka_unit_test(test_interleaved_orders),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
