/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/plan/conf.h"
#include "lib/plan/conf_read.h"

#include <stdio.h>

/* A setting's name, seen in the group that is open. */
struct seen {
	const char *name;
	size_t len;
	struct origin at;
};

/* A file that is being read, and the one that includes it. */
struct source {
	const struct source *parent;
	const char *file;
	const char *text, *end;
	const char *at;	  /* the next byte to look at */
	const char *done; /* up to here it is in the output */
	int line;
	dev_t dev;
	ino_t ino;
};

struct bracket {
	char close;
	struct origin at;
};

struct loader {
	struct conf_text *t;
	struct report *r;
	struct err *e;
	size_t room, bytes;
	int settings, repeats, includes;
	const char *group; /* "place." */
	int depth;
	struct bracket open[CONF_NESTING_MAX];
	struct seen *seen[2]; /* at the top, and in the open group */
	size_t seens[2], caps[2];
};

struct origin conf_where(const struct conf_text *t, int line)
{
	size_t i = t->segments - 1;

	while (i && t->segment[i].first > line)
		i--;
	return (struct origin){
		.kind = t->segment[i].why ? ORIGIN_DERIVED : ORIGIN_GIVEN,
		.file = t->segment[i].file,
		.line = t->segment[i].line + line - t->segment[i].first,
		.why = t->segment[i].why,
	};
}

static struct origin here(const struct source *s)
{
	return (struct origin){ORIGIN_GIVEN, s->file, s->line, NULL};
}

static int give_up(struct loader *l, const char *id, struct origin at,
		   const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* A fault that ends the reading: a finding, and the error as well. */
static int give_up(struct loader *l, const char *id, struct origin at,
		   const char *fmt, ...)
{
	const char *what;
	va_list ap;

	va_start(ap, fmt);
	what = arena_vprintf(l->t->arena, fmt, ap);
	va_end(ap);
	report_add(l->r, id, ERROR, "", &at, "%s", what);
	if (at.line)
		return err_set(l->e, CODE_USAGE, "%s:%d: %s", at.file, at.line,
			       what);
	return err_set(l->e, CODE_USAGE, "%s: %s", at.file, what);
}

/* Append to the whole text, counting its lines. */
static void put(struct loader *l, const char *from, size_t len)
{
	struct conf_text *t = l->t;

	if (t->len + len >= l->room) {
		char *bigger;

		l->room = 2 * (t->len + len) + 1024;
		bigger = arena_alloc(t->arena, l->room, 1);
		if (t->len)
			memcpy(bigger, t->text, t->len);
		t->text = bigger;
	}
	memcpy(t->text + t->len, from, len);
	t->len += len;
	for (const char *p = from;
	     (p = memchr(p, '\n', len - (size_t)(p - from))); p++)
		t->lines++;
}

/* Bring the output up to where S stands. */
static void flush(struct loader *l, struct source *s)
{
	put(l, s->done, (size_t)(s->at - s->done));
	s->done = s->at;
}

/* What is put out from now on is S's current line and the next ones. */
static void begin_segment(struct loader *l, const struct source *s)
{
	struct conf_text *t = l->t;

	t->segment = arena_grow(t->arena, t->segment, t->segments, &t->cap,
				sizeof(*t->segment));
	t->segment[t->segments++] =
		(struct conf_segment){s->file, s->line, t->lines, NULL};
}

static int skip_string(struct loader *l, struct source *s)
{
	struct origin start = here(s);

	for (s->at++; s->at < s->end && *s->at != '"'; s->at++) {
		if (*s->at == '\\' && s->at + 1 < s->end)
			s->at++;
		s->line += *s->at == '\n';
	}
	if (s->at == s->end)
		return give_up(l, "conf-syntax", start,
			       "the string that begins here has no closing \"");
	s->at++;
	return 0;
}

/* A comment to the end of the line does not get into the whole text. */
static int skip_comment(struct loader *l, struct source *s)
{
	struct origin start = here(s);
	const char *close;

	if (s->at[0] == '#' || s->at[1] == '/') {
		flush(l, s);
		close = memchr(s->at, '\n', (size_t)(s->end - s->at));
		s->done = s->at = close ? close : s->end;
		return 0;
	}
	close = memmem(s->at + 2, (size_t)(s->end - s->at) - 2, "*/", 2);
	if (!close)
		return give_up(
			l, "conf-syntax", start,
			"the comment that begins here has no closing */");
	for (; s->at < close + 2; s->at++)
		s->line += *s->at == '\n';
	return 0;
}

/* A name that was set before in the same group is reported and renamed. */
static void note_setting(struct loader *l, struct source *s, const char *name,
			 size_t len)
{
	int level = l->depth;
	struct seen *seen = l->seen[level];
	struct origin at = here(s);
	char other[24];

	if (!level)
		l->group = arena_printf(l->t->arena, "%.*s.", (int)len, name);
	for (size_t i = 0; i < l->seens[level]; i++) {
		if (seen[i].len != len || memcmp(seen[i].name, name, len))
			continue;
		report_add(l->r, "conf-duplicate", ERROR,
			   arena_printf(l->t->arena, "%s%.*s",
					level ? l->group : "", (int)len, name),
			   &at, "set a second time; first at %s:%d",
			   seen[i].at.file, seen[i].at.line);
		put(l, s->done, (size_t)(name - s->done));
		snprintf(other, sizeof(other), "*%d", ++l->repeats);
		put(l, other, strlen(other));
		s->done = name + len;
		return;
	}
	seen = arena_grow(l->t->arena, seen, l->seens[level], &l->caps[level],
			  sizeof(*seen));
	seen[l->seens[level]++] = (struct seen){name, len, at};
	l->seen[level] = seen;
}

static int scan_name(struct loader *l, struct source *s)
{
	const char *name = s->at, *next;

	while (s->at < s->end &&
	       (isalnum((unsigned char)*s->at) || *s->at == '_' ||
		*s->at == '-' || *s->at == '*'))
		s->at++;
	for (next = s->at; next < s->end && isspace((unsigned char)*next);)
		next++;
	if (next == s->end || (*next != '=' && *next != ':'))
		return 0;
	if (++l->settings > CONF_SETTINGS_MAX)
		return give_up(l, "conf-unreadable", here(s),
			       "more than %d settings", CONF_SETTINGS_MAX);
	if (l->depth < 2)
		note_setting(l, s, name, (size_t)(s->at - name));
	return 0;
}

static const char *digits(const char *p, const char *end, bool hex)
{
	while (p < end &&
	       (hex ? isxdigit((unsigned char)*p) : isdigit((unsigned char)*p)))
		p++;
	return p;
}

/* An integer without L is 32 bits to libconfig, which wraps silently. */
static void check_integer(struct loader *l, struct source *s, const char *start,
			  bool hex, bool suffix)
{
	int len = (int)(s->at - start);
	unsigned long long n;
	char *text = arena_strndup(l->t->arena, start, (size_t)len);
	bool minus = *text == '-';
	struct origin at = here(s);

	errno = 0;
	n = strtoull(text + (minus || *text == '+'), NULL, hex ? 16 : 10);
	if (!errno && n <= (unsigned long long)(suffix ? INT64_MAX : INT32_MAX))
		return;
	if (errno || n > (unsigned long long)INT64_MAX) {
		report_add(l->r, "conf-int-literal", ERROR, "", &at,
			   "%.60s does not fit a 64-bit integer; at most "
			   "%" PRId64 "L",
			   text, INT64_MAX);
	} else {
		report_add(l->r, "conf-int-literal", ERROR, "", &at,
			   "%.60s is beyond %d and so needs the suffix L", text,
			   INT32_MAX);
		report_suggest(l->r, "%sL", text);
	}
	if (!suffix) {
		flush(l, s);
		put(l, "L", 1);
	}
}

static void scan_number(struct loader *l, struct source *s)
{
	const char *start = s->at, *p = s->at + strspn(s->at, "+-"), *last;
	bool hex = s->end - p > 2 && p[0] == '0' && (p[1] | 32) == 'x';

	last = digits(hex ? p + 2 : p, s->end, hex);
	if (!hex && last < s->end && strchr(".eE", *last)) {
		last = digits(*last == '.' ? last + 1 : last, s->end, false);
		if (last < s->end && (*last | 32) == 'e') {
			last++;
			last += last < s->end && strchr("+-", *last);
			last = digits(last, s->end, false);
		}
		s->at = last;
		return;
	}
	s->at = last;
	if (last > p) {
		bool suffix = last < s->end && *last == 'L';

		check_integer(l, s, start, hex, suffix);
	}
	while (s->at < s->end && *s->at == 'L')
		s->at++;
	if (s->at == start)
		s->at++;
}

static int scan_bracket(struct loader *l, struct source *s)
{
	char c = *s->at++;
	struct bracket *top;

	if (strchr("{[(", c)) {
		if (l->depth == CONF_NESTING_MAX)
			return give_up(l, "conf-syntax", here(s),
				       "brackets nest more than %d deep",
				       CONF_NESTING_MAX);
		top = &l->open[l->depth++];
		top->close = c == '{' ? '}' : c == '[' ? ']' : ')';
		top->at = here(s);
		if (l->depth == 1)
			l->seens[1] = 0;
		return 0;
	}
	if (!l->depth)
		return give_up(l, "conf-syntax", here(s),
			       "'%c' closes nothing that is open", c);
	top = &l->open[--l->depth];
	if (c != top->close)
		return give_up(l, "conf-syntax", here(s),
			       "'%c' where a '%c' must close what %s:%d opens",
			       c, top->close, top->at.file, top->at.line);
	return 0;
}

static int load_file(struct loader *l, const char *file,
		     const struct source *parent);

/* PATH as seen from the file that includes it. */
static const char *beside(struct arena *a, const char *file, const char *path,
			  size_t len)
{
	const char *slash = strrchr(file, '/');

	if (*path == '/' || !slash)
		return arena_strndup(a, path, len);
	return arena_printf(a, "%.*s%.*s", (int)(slash + 1 - file), file,
			    (int)len, path);
}

/* An @include line is replaced by the text of its file. */
static int scan_include(struct loader *l, struct source *s)
{
	static const char word[] = "@include";
	const char *line = s->at, *path, *close, *end;

	while (line > s->text && (line[-1] == ' ' || line[-1] == '\t'))
		line--;
	end = memchr(s->at, '\n', (size_t)(s->end - s->at));
	end = end ? end : s->end;
	path = s->at + strlen(word);
	if (end - s->at < (ptrdiff_t)sizeof(word) ||
	    memcmp(s->at, word, strlen(word)) ||
	    (line > s->text && line[-1] != '\n'))
		return give_up(l, "conf-syntax", here(s),
			       "'@' must begin a line @include \"FILE\"");
	path += strspn(path, " \t");
	close = *path == '"' ? memchr(path + 1, '"', (size_t)(end - path) - 1)
			     : NULL;
	if (!close || close == path + 1 ||
	    close + 1 + strspn(close + 1, " \t\r;") < end)
		return give_up(
			l, "conf-syntax", here(s),
			"@include \"FILE\" must stand alone on its line");
	flush(l, s);
	if (load_file(l,
		      beside(l->t->arena, s->file, path + 1,
			     (size_t)(close - path) - 1),
		      s))
		return -1;
	s->done = s->at = end;
	begin_segment(l, s);
	return 0;
}

static int scan_token(struct loader *l, struct source *s)
{
	unsigned char c = (unsigned char)*s->at;
	char next = s->at + 1 < s->end ? s->at[1] : 0;

	if (isspace(c)) {
		s->line += c == '\n';
		s->at++;
		return 0;
	}
	if (c == '"')
		return skip_string(l, s);
	if (c == '#' || (c == '/' && (next == '/' || next == '*')))
		return skip_comment(l, s);
	if (strchr("{}[]()", c))
		return scan_bracket(l, s);
	if (c == '@')
		return scan_include(l, s);
	if (isalpha(c) || c == '*')
		return scan_name(l, s);
	if (isdigit(c) || strchr("+-.", c))
		return scan_number(l, s), 0;
	s->at++;
	return 0;
}

/* Put all of S into the whole text. */
static int scan(struct loader *l, struct source *s)
{
	const char *nul = memchr(s->text, 0, (size_t)(s->end - s->text));
	const char *mark = conf_mark(s->text, (size_t)(s->end - s->text));

	if (mark)
		return give_up(l, "conf-unreadable", here(s), "begins with %s",
			       mark);
	if (nul) {
		for (const char *p = s->text; p < nul; p++)
			s->line += *p == '\n';
		return give_up(l, "conf-unreadable", here(s),
			       "a NUL byte: this is no text");
	}
	begin_segment(l, s);
	while (s->at < s->end)
		if (scan_token(l, s))
			return -1;
	flush(l, s);
	if (l->t->len && l->t->text[l->t->len - 1] != '\n')
		put(l, "\n", 1);
	return 0;
}

static int unreadable(struct loader *l, const char *file,
		      const struct source *parent)
{
	const char *why = errno == EFBIG ? "with its includes it is longer "
					   "than 1 MiB, or it grew meanwhile"
					 : strerror(errno);

	if (parent)
		return give_up(l, "conf-unreadable", here(parent),
			       "cannot include '%.500s': %s", file, why);
	return give_up(l, "conf-unreadable", (struct origin){.file = file},
		       "cannot read it: %s", why);
}

static int load_file(struct loader *l, const char *file,
		     const struct source *parent)
{
	struct source s = {.parent = parent, .file = file, .line = 1};
	struct conf_file f;
	int depth = 0;

	for (const struct source *p = parent; p; p = p->parent)
		depth++;
	if (depth > CONF_INCLUDES_MAX || ++l->includes > 256)
		return give_up(l, "conf-unreadable", here(parent),
			       "too many includes: at most %d deep and 256 in "
			       "all",
			       CONF_INCLUDES_MAX);
	if (conf_open(&f, file))
		return unreadable(l, file, parent);
	for (const struct source *p = parent; p; p = p->parent)
		if (p->dev == f.st.st_dev && p->ino == f.st.st_ino) {
			close(f.fd);
			return give_up(l, "conf-unreadable", here(parent),
				       "'%.500s' includes itself", file);
		}
	if (conf_read(&f, CONF_BYTES_MAX - l->bytes, l->t->arena))
		return unreadable(l, file, parent);
	l->bytes += f.len;
	s.dev = f.st.st_dev;
	s.ino = f.st.st_ino;
	s.text = s.at = s.done = f.text;
	s.end = f.text + f.len;
	return scan(l, &s);
}

/* After all text: nothing may be open. */
static int conf_end(struct loader *l)
{
	struct bracket *top;

	put(l, "", 0);
	l->t->text[l->t->len] = 0;
	if (!l->depth)
		return 0;
	top = &l->open[l->depth - 1];
	return give_up(l, "conf-syntax", top->at,
		       "the text ends before the '%c' that closes what opens "
		       "here",
		       top->close);
}

int conf_load(struct conf_text *t, const char *file, struct arena *a,
	      struct report *r, struct err *e)
{
	struct loader l = {.t = t, .r = r, .e = e};

	*t = (struct conf_text){.arena = a, .lines = 1};
	return load_file(&l, file, NULL) ? -1 : conf_end(&l);
}

int conf_load_string(struct conf_text *t, const char *file, const char *text,
		     struct arena *a, struct report *r, struct err *e)
{
	struct loader l = {.t = t, .r = r, .e = e};
	struct source s = {.file = file};

	*t = (struct conf_text){.arena = a, .lines = 1};
	s.text = s.at = s.done = text;
	s.end = text + strlen(text);
	return scan(&l, &s) ? -1 : conf_end(&l);
}
