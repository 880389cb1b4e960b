/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/train/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/log.h"

/* The step of a row, or -1 if the line is not one (cut off by a crash). */
static int64_t row_step(const char *line)
{
	json_t *row = json_loads(line, 0, NULL);
	json_t *step = json_object_get(row, "step");
	int64_t n = json_is_integer(step) ? json_integer_value(step) : -1;

	json_decref(row);
	return n;
}

/* Copy the rows up to STEP to a new file and put it in the old one's place. */
static int drop_later(const char *path, int64_t step, struct err *e)
{
	char temporary[4200], *line = NULL;
	FILE *in = fopen(path, "r"), *out;
	size_t cap = 0;
	int bad = 0;

	if (!in)
		return 0;
	snprintf(temporary, sizeof(temporary), "%s.new", path);
	out = fopen(temporary, "w");
	while (out && getline(&line, &cap, in) > 0) {
		int64_t n = row_step(line);

		if (n < 0 || n > step)
			continue;
		line[strcspn(line, "\n")] = 0;
		bad |= fprintf(out, "%s\n", line) < 0;
	}
	free(line);
	fclose(in);
	if (!out || fclose(out) || bad || rename(temporary, path))
		return err_sys(e, CODE_STORAGE, "cannot write '%s'", path);
	return 0;
}

int metrics_open(struct metrics *m, const char *dir, int64_t step,
		 int64_t log_interval, int64_t train_iters, struct err *e)
{
	char path[4100];

	*m = (struct metrics){
		.fd = -1,
		.terminal = isatty(STDERR_FILENO),
		.log_interval = log_interval,
		.train_iters = train_iters,
		.ms_mean = NAN,
	};
	if (!dir)
		return 0;
	snprintf(path, sizeof(path), "%s/metrics.jsonl", dir);
	if (drop_later(path, step, e))
		return -1;
	m->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	if (m->fd < 0)
		return err_sys(e, CODE_STORAGE, "cannot write '%s'", path);
	return 0;
}

static int number(char *to, size_t size, const char *name, double x, bool first)
{
	const char *comma = first ? "" : ", ";

	if (!isfinite(x)) /* JSON has no other numbers */
		return snprintf(to, size, "%s\"%s\": null", comma, name);
	return snprintf(to, size, "%s\"%s\": %.17g", comma, name, x);
}

/* , "mtp": [{"loss": .., ..}, ..] */
static int depths_text(char *buf, size_t size, const struct metrics_row *r)
{
	int n = 0;

	for (int k = 0; k < r->depths; k++) {
		const struct trainer_depth *d = &r->mtp[k];

		n += snprintf(buf + n, size - (size_t)n, "%s",
			      k ? "}, {" : ", \"mtp\": [{");
		n += number(buf + n, size - (size_t)n, "loss", d->loss, true);
		n += number(buf + n, size - (size_t)n, "token_loss",
			    d->token_loss, false);
		n += number(buf + n, size - (size_t)n, "acceptance",
			    d->acceptance, false);
	}
	return n + (n ? snprintf(buf + n, size - (size_t)n, "}]") : 0);
}

/* , "moe": {"aux": .., ..} */
static int moe_text(char *buf, size_t size, const struct trainer_moe *m)
{
	int n = 0;

	if (!m->there)
		return 0;
	n += snprintf(buf + n, size - (size_t)n, ", \"moe\": {");
	n += number(buf + n, size - (size_t)n, "aux", m->aux, true);
	n += number(buf + n, size - (size_t)n, "z", m->z, false);
	n += number(buf + n, size - (size_t)n, "load", m->load, false);
	return n + snprintf(buf + n, size - (size_t)n, "}");
}

static int row_text(char *buf, size_t size, const struct metrics_row *r)
{
	const struct {
		const char *name;
		double x;
	} fields[] = {
		{"loss", r->loss},
		{"grad_norm", r->grad_norm},
		{"lr", r->lr},
		{"tokens", (double)r->tokens},
		{"tokens_per_second", r->tokens_per_second},
		{"tflops", r->tflops},
		{"mfu", r->mfu},
		{"step_ms", r->step_ms},
		{"memory_bytes", (double)r->memory_bytes},
	};
	int n = snprintf(buf, size, "{\"step\": %" PRId64, r->step);

	for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++)
		n += number(buf + n, size - (size_t)n, fields[i].name,
			    fields[i].x, false);
	if (!isnan(r->mtp_grad_norm))
		n += number(buf + n, size - (size_t)n, "mtp_grad_norm",
			    r->mtp_grad_norm, false);
	if (!isnan(r->eval_loss))
		n += number(buf + n, size - (size_t)n, "eval_loss",
			    r->eval_loss, false);
	if (r->loss_scale > 0) {
		n += number(buf + n, size - (size_t)n, "loss_scale",
			    r->loss_scale, false);
		n += snprintf(buf + n, size - (size_t)n, ", \"skipped\": %s",
			      r->skipped ? "true" : "false");
	}
	n += depths_text(buf + n, size - (size_t)n, r);
	n += moe_text(buf + n, size - (size_t)n, &r->moe);
	n += snprintf(buf + n, size - (size_t)n, "}\n");
	return n;
}

void metrics_settle(struct metrics *m)
{
	if (m->line_open && write(STDERR_FILENO, "\n", 1) == 1)
		m->line_open = false;
}

static void tell(struct metrics *m, const struct metrics_row *r)
{
	double left = m->ms_mean / 1e3 * (double)(m->train_iters - r->step);
	char text[360], eval[40] = "", mtp[48] = "", scale[48] = "";
	int n;

	if (!isnan(r->eval_loss))
		snprintf(eval, sizeof(eval), "  eval %.4f", r->eval_loss);
	for (int k = 0, at = 0; k < r->depths && k < 3; k++)
		at += snprintf(mtp + at, sizeof(mtp) - (size_t)at, "%s%.4f",
			       k ? " " : "  mtp ", r->mtp[k].loss);
	if (r->loss_scale > 0)
		snprintf(scale, sizeof(scale), "  scale %g%s", r->loss_scale,
			 r->skipped ? " skipped" : "");
	n = snprintf(text, sizeof(text),
		     "step %" PRId64 "/%" PRId64
		     "  loss %.4f%s%s  norm %.3f%s  lr %.2e  %.0f tok/s  "
		     "%.0f ms",
		     r->step, m->train_iters, r->loss, mtp, eval, r->grad_norm,
		     scale, r->lr, r->tokens_per_second, r->step_ms);
	if (!m->terminal) {
		if (r->step % m->log_interval == 0 ||
		    r->step == m->train_iters || !isnan(r->eval_loss))
			log_info("%s", text);
		return;
	}
	dprintf(STDERR_FILENO, "\r\033[K%.*s  eta %.0f:%02.0f", n, text,
		floor(left / 60), fmod(left, 60));
	m->line_open = true;
	if (r->step == m->train_iters)
		metrics_settle(m);
}

int metrics_write(struct metrics *m, const struct metrics_row *row,
		  struct err *e)
{
	char text[1024 + 128 * KERN_DEPTHS];
	int n;

	if (m->fd < 0)
		return 0;
	n = row_text(text, sizeof(text), row);
	errno = ENOSPC; /* of a write that stops short */
	if (write(m->fd, text, (size_t)n) != n)
		return err_sys(e, CODE_STORAGE, "cannot write metrics.jsonl");
	m->ms_mean = isnan(m->ms_mean) ? row->step_ms
				       : 0.9 * m->ms_mean + 0.1 * row->step_ms;
	tell(m, row);
	return 0;
}

void metrics_close(struct metrics *m)
{
	metrics_settle(m);
	if (m->fd >= 0)
		close(m->fd);
	m->fd = -1;
}
