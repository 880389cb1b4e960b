/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/report.h"

#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "lib/plan/check.h"

/* More ways out than this help nobody. */
enum { SUGGEST_MAX = 8 };

/* No setting has a longer path; a stranger's may. */
enum { PATH_MAX_LEN = 120 };

/* TEXT without what would end a line. */
static const char *one_line(const char *text, struct arena *a)
{
	char *copy = arena_strdup(a, text);

	for (char *p = copy; *p; p++)
		*p = iscntrl((unsigned char)*p) ? '?' : *p;
	return copy;
}

const char *origin_text(const struct origin *from, struct arena *a)
{
	const char *file = from->file ? one_line(from->file, a) : "";

	if (from->kind == ORIGIN_DEFAULT)
		return "default";
	if (from->kind == ORIGIN_DERIVED)
		return arena_printf(a, "derived: %s", from->why);
	if (from->line)
		return arena_printf(a, "given: %s:%d", file, from->line);
	return arena_printf(a, "given: %s", file);
}

void report_add(struct report *r, const char *id, enum severity severity,
		const char *path, const struct origin *from, const char *fmt,
		...)
{
	const struct check *check = check_find(id);
	struct finding *f;
	va_list ap;

	assert(check && check->severity == severity);
	r->list = arena_grow(r->arena, r->list, r->count, &r->cap,
			     sizeof(*r->list));
	f = &r->list[r->count++];
	*f = (struct finding){
		.id = check->id,
		.severity = severity,
		.path = !path ? ""
			: strlen(path) > PATH_MAX_LEN
				? arena_strndup(r->arena, path, PATH_MAX_LEN)
				: path,
		.file = from ? from->file : NULL,
		.line = from ? from->line : 0,
	};
	va_start(ap, fmt);
	f->message = arena_vprintf(r->arena, fmt, ap);
	va_end(ap);
}

void report_suggest(struct report *r, const char *fmt, ...)
{
	struct finding *f = &r->list[r->count - 1];
	va_list ap;

	assert(r->count);
	if (f->suggests == SUGGEST_MAX)
		return;
	if (!f->suggest)
		f->suggest =
			arena_alloc(r->arena, SUGGEST_MAX, sizeof(*f->suggest));
	va_start(ap, fmt);
	f->suggest[f->suggests++] = arena_vprintf(r->arena, fmt, ap);
	va_end(ap);
}

void report_suggest_divisors(struct report *r, const char *name, int64_t n,
			     int64_t near)
{
	int64_t below = near - 1, above = near + 1;

	while (below > 0 && n % below)
		below--;
	while (above <= n && n % above)
		above++;
	if (below > 0)
		report_suggest(r, "%s = %" PRId64, name, below);
	if (above <= n)
		report_suggest(r, "%s = %" PRId64, name, above);
}

void report_mark(struct report *r, const char *text, int column)
{
	enum { AROUND = 32 };
	struct finding *f = &r->list[r->count - 1];
	int first = column > AROUND ? column - AROUND : 1;
	char *excerpt;

	excerpt = arena_printf(r->arena, "%.*s", 2 * AROUND, text + first - 1);
	for (char *p = excerpt; *p; p++)
		*p = iscntrl((unsigned char)*p) ? ' ' : *p;
	f->excerpt = excerpt;
	f->column = column - first + 1;
}

size_t report_count(const struct report *r, enum severity at_least)
{
	size_t n = 0;

	for (size_t i = 0; i < r->count; i++)
		n += r->list[i].severity >= at_least;
	return n;
}

const char *severity_name(enum severity s)
{
	static const char *const names[] = {"note", "warning", "error"};

	return names[s];
}
