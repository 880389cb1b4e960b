/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <string.h>

#include "lib/plan/shell.h"

enum { SCRIPTS_DEEP_MAX = 3, VARIABLES_MAX = 1024 };

/* A script that is being run through. */
struct script {
	struct shell *sh;
	struct cursor c;
	struct shell_words command;
	int line; /* where the command begins */
	struct branches open;
	enum truth chain;    /* whether && and || let the command run */
	bool behind;	     /* && or ||: the list is not complete */
	bool negated;	     /* by a ! before it */
	bool assigned;	     /* it is nothing but an assignment */
	enum truth last;     /* what the last command said */
	const char *heredoc; /* the line that ends it, or NULL */
	bool dash;	     /* <<-: it may stand behind tabs */
	bool heredoc_runs;   /* it is a script itself */
};

struct variable *shell_variable(struct shell *sh, const char *name, bool make)
{
	struct variable *v = NULL;

	for (size_t i = 0; i < sh->variables && !v; i++)
		if (!strcmp(sh->variable[i].name, name))
			v = &sh->variable[i];
	if (v || !make || sh->variables == VARIABLES_MAX)
		return v;
	sh->variable = arena_grow(sh->im->arena, sh->variable, sh->variables,
				  &sh->cap, sizeof(*sh->variable));
	v = &sh->variable[sh->variables++];
	*v = (struct variable){.name = arena_strdup(sh->im->arena, name)};
	return v;
}

static bool word_is(struct script *s, const struct shell_word *w,
		    const char *const *names)
{
	const char *text = shell_chars(s->sh, &w->text);

	while (*names && strcmp(*names, text))
		names++;
	return *names && !w->quoted;
}

static bool ends_with(const char *text, const char *end)
{
	size_t n = strlen(text), len = strlen(end);

	return n >= len && !strcmp(text + n - len, end);
}

/* Whether TEXT is a flag that Megatron has and that concerns the model. */
static bool is_model_flag(struct script *s, const char *text)
{
	bool model;

	if (strncmp(text, "--", 2))
		return false;
	text = arena_strndup(s->sh->im->arena, text, strcspn(text, "="));
	return import_flag_known(text, &model) && model;
}

/*
 * The first word of Megatron's arguments: the one behind the program, a *.py,
 * if flags of the model follow it; the number of words if there are none.
 */
static size_t first_argument(struct script *s)
{
	struct shell_words *w = &s->command;
	size_t first = 0;

	for (size_t i = 0; i < w->count; i++) {
		const char *text = shell_chars(s->sh, &w->list[i].text);

		if (ends_with(text, ".py"))
			first = i + 1;
		else if (is_model_flag(s, text))
			return first ? first : i;
	}
	return w->count;
}

/* Keep the command if it is the first that has Megatron's arguments. */
static void keep(struct script *s, size_t first)
{
	struct shell *sh = s->sh;
	bool sure = shell_taken(&s->open) == IS_TRUE;

	if (sh->found.count)
		sh->others++;
	if (sh->found.count && (sh->found_sure || !sure))
		return;
	sh->found = (struct shell_words){0};
	for (size_t i = first; i < s->command.count; i++)
		*shell_add(sh, &sh->found) = s->command.list[i];
	sh->found_line = s->line;
	sh->found_sure = sure;
}

/* A word that is a script itself, for sh -c: read it in our place. */
static int run_text(struct script *s, const struct text *t)
{
	struct shell *sh = s->sh;
	struct text bare = {0};
	int bad;

	if (sh->depth >= SCRIPTS_DEEP_MAX)
		return 0;
	for (size_t i = 0; i < t->len; i++) {
		struct cell cell = t->cell[i];

		if (cell.quoted != CELL_UNKNOWN)
			cell.quoted = CELL_BARE;
		if (shell_put(sh, &bare, cell))
			return -1;
	}
	sh->depth++;
	bad = shell_script(sh,
			   (struct cursor){bare.cell, bare.cell + bare.len});
	sh->depth--;
	return bad;
}

/* Words with blanks and flags inside are scripts. */
static int run_inner(struct script *s)
{
	for (size_t i = 0; i < s->command.count; i++) {
		const struct text *t = &s->command.list[i].text;
		const char *text = shell_chars(s->sh, t);

		if (strpbrk(text, " \t\n") && strstr(text, "--") &&
		    run_text(s, t))
			return -1;
	}
	return 0;
}

/* Whether the command that is read now is run. */
static enum truth runs(const struct script *s)
{
	enum truth taken = shell_taken(&s->open);

	if (taken == NOT_TRUE || s->chain == NOT_TRUE)
		return NOT_TRUE;
	return taken == NOT_KNOWN ? taken : s->chain;
}

/* What the command that is complete says, if it is run. */
static void judge(struct script *s)
{
	enum truth says = NOT_KNOWN;

	if (s->chain == NOT_TRUE)
		return;
	if (!s->sh->doubt && s->chain == IS_TRUE)
		says = s->command.count ? shell_test(s->sh, &s->command)
					: IS_TRUE;
	s->last = s->negated ? shell_not(says) : says;
}

/* The next command begins. */
static void begin_command(struct script *s)
{
	s->command = (struct shell_words){0};
	s->negated = s->assigned = s->sh->doubt = false;
}

/* The command is complete. */
static int end_command(struct script *s)
{
	static const char *const printers[] = {"echo", "printf", NULL};
	size_t first;
	int bad = 0;

	if (s->command.count || s->assigned)
		judge(s);
	if (!s->command.count || runs(s) == NOT_TRUE) {
		begin_command(s);
		return 0;
	}
	if (!word_is(s, &s->command.list[0], printers)) {
		first = first_argument(s);
		if (first < s->command.count)
			keep(s, first);
		else
			bad = run_inner(s);
	}
	begin_command(s);
	return bad;
}

static void skip_comment(struct cursor *c)
{
	while (c->at < c->end && c->at->c != '\n')
		c->at++;
}

/* Over blanks and continued lines; with LINES also newlines and comments. */
static void skip_blanks(struct cursor *c, bool lines)
{
	while (c->at < c->end) {
		if (shell_at(c, '\\') && c->at + 1 < c->end &&
		    c->at[1].c == '\n')
			c->at += 2;
		else if (shell_at(c, ' ') || shell_at(c, '\t') ||
			 shell_at(c, '\r') || (lines && shell_at(c, '\n')))
			c->at++;
		else if (lines && shell_at(c, '#'))
			skip_comment(c);
		else
			return;
	}
}

/* NAME=( ... ) */
static int read_array(struct script *s, struct shell_words *out)
{
	int line = shell_line(&s->c);

	s->c.at++;
	for (;;) {
		skip_blanks(&s->c, true);
		if (s->c.at == s->c.end)
			return import_give_up(s->sh->im, line,
					      "the ( that begins here is not "
					      "closed");
		if (shell_at(&s->c, ')')) {
			s->c.at++;
			return 0;
		}
		if (s->c.at->quoted == CELL_BARE &&
		    strchr(";&|<>(", s->c.at->c))
			return import_give_up(s->sh->im, shell_line(&s->c),
					      "'%c' in an array", s->c.at->c);
		if (shell_word(s->sh, &s->c, out))
			return -1;
	}
}

/* NAME+=TEXT: what it had goes in front of the first word. */
static int append_text(struct shell *sh, struct variable *v,
		       struct shell_words *value)
{
	struct text *t = &v->value.list[0].text;

	for (size_t i = 0; value->count && i < value->list[0].text.len; i++)
		if (shell_put(sh, t, value->list[0].text.cell[i]))
			return -1;
	return 0;
}

static int append_words(struct shell *sh, struct variable *v,
			const struct shell_words *value)
{
	for (size_t i = 0; i < value->count; i++) {
		if (v->value.count == WORDS_MAX)
			return import_give_up(sh->im, 0,
					      "an array of more than %d words",
					      WORDS_MAX);
		*shell_add(sh, &v->value) = value->list[i];
	}
	return 0;
}

/* The words of NAME="a ${B[@]}" are one value, with blanks between them. */
static int join_words(struct shell *sh, struct shell_words *value)
{
	for (size_t w = 1; w < value->count; w++) {
		const struct text *t = &value->list[w].text;
		struct cell blank = {0, ' ', CELL_QUOTED};

		blank.line = t->len ? t->cell[0].line : 0;
		if (shell_put(sh, &value->list[0].text, blank))
			return -1;
		for (size_t i = 0; i < t->len; i++)
			if (shell_put(sh, &value->list[0].text, t->cell[i]))
				return -1;
	}
	value->count = value->count > 0;
	return 0;
}

static int assign(struct script *s, const char *name, bool more)
{
	struct shell_words value = {0};
	int line = shell_line(&s->c);
	struct variable *v;
	bool array = shell_at(&s->c, '(');

	if (array ? read_array(s, &value)
		  : shell_value(s->sh, &s->c, &value) ||
			    join_words(s->sh, &value))
		return -1;
	v = shell_variable(s->sh, name, true);
	if (!v)
		return import_give_up(s->sh->im, line, "more than %d variables",
				      VARIABLES_MAX);
	s->sh->doubt |= !shell_known(&value);
	s->assigned = true;
	if (runs(s) == NOT_KNOWN)
		v->condition = line;
	if (runs(s) != IS_TRUE)
		return 0;
	if (more && v->value.count)
		return array ? append_words(s->sh, v, &value)
			     : append_text(s->sh, v, &value);
	v->value = value;
	v->array = array;
	v->condition = more ? v->condition : 0;
	if (!array && !value.count)
		shell_add(s->sh, &v->value); /* NAME= */
	return 0;
}

/* NAME= or NAME+= stands here: its name, and we are behind it; or NULL. */
static const char *assignment(struct script *s, bool *more)
{
	const struct cell *at = s->c.at;
	struct text name = {0};

	while (at < s->c.end && at->quoted == CELL_BARE &&
	       (isalpha((unsigned char)at->c) || at->c == '_' ||
		(at > s->c.at && isdigit((unsigned char)at->c))))
		at++;
	*more = at < s->c.end && at->c == '+';
	if (at == s->c.at || at + *more >= s->c.end || at[*more].c != '=')
		return NULL;
	name.cell = (struct cell *)s->c.at;
	name.len = (size_t)(at - s->c.at);
	s->c.at = at + *more + 1;
	return shell_chars(s->sh, &name);
}

/* Whether an assignment may stand here: at a command's start, or declared. */
static bool may_assign(struct script *s)
{
	static const char *const words[] = {"export",	"declare", "local",
					    "readonly", "typeset", "env",
					    NULL};

	return !shell_in_case(&s->open) &&
	       (!s->command.count || word_is(s, &s->command.list[0], words));
}

/* A keyword at a command's start changes only what is open. */
static bool keyword(struct script *s, const struct shell_word *w)
{
	const char *text = shell_chars(s->sh, &w->text);

	if (w->quoted || !shell_keyword(&s->open, text, s->last))
		return false;
	if (!strcmp(text, "!"))
		s->negated = !s->negated;
	else if (strcmp(text, "{") && strcmp(text, "time"))
		s->last = NOT_KNOWN;
	return true;
}

/* The 2 of 2>&1 belongs to the redirection. */
static bool is_descriptor(struct script *s, const struct cell *from)
{
	for (; from < s->c.at; from++)
		if (!isdigit((unsigned char)from->c))
			return false;
	return shell_at(&s->c, '>') || shell_at(&s->c, '<');
}

static int read_command_word(struct script *s)
{
	const struct cell *from;
	size_t before = s->command.count;
	const char *name;
	bool more;

	if (may_assign(s)) {
		name = assignment(s, &more);
		if (name)
			return assign(s, name, more);
	}
	if (!before)
		s->line = shell_line(&s->c);
	from = s->c.at;
	if (shell_word(s->sh, &s->c, &s->command))
		return -1;
	if (is_descriptor(s, from))
		s->command.count = before;
	if (!before && s->command.count == 1 && keyword(s, &s->command.list[0]))
		s->command.count = 0;
	return 0;
}

/* Whether the line that begins at the cursor ends the here-document. */
static bool at_heredoc_end(struct script *s)
{
	struct cursor c = s->c;
	const char *end = s->heredoc;

	while (s->dash && shell_at(&c, '\t'))
		c.at++;
	for (; *end && c.at < c.end && c.at->c == *end; end++)
		c.at++;
	return !*end && (c.at == c.end || c.at->c == '\n');
}

/* The lines of a here-document; those that a shell gets are read. */
static int read_heredoc(struct script *s)
{
	struct cursor body = s->c;
	int bad = 0;

	while (s->c.at < s->c.end && !at_heredoc_end(s)) {
		skip_comment(&s->c);
		s->c.at += s->c.at < s->c.end;
	}
	body.end = s->c.at;
	skip_comment(&s->c);
	s->heredoc = NULL;
	if (s->heredoc_runs && body.at < body.end &&
	    s->sh->depth < SCRIPTS_DEEP_MAX) {
		s->sh->depth++;
		bad = shell_script(s->sh, body);
		s->sh->depth--;
	}
	return bad;
}

/* <FILE, >FILE, <<WORD, <<<WORD, 2>&1: the file's name is no argument. */
static int redirect(struct script *s)
{
	static const char *const shells[] = {"sbatch", "bash", "sh", "srun",
					     NULL};
	struct shell_words target = {0};
	int less = 0;

	for (; s->c.at < s->c.end && strchr("<>&|", s->c.at->c); s->c.at++)
		less += s->c.at->c == '<';
	s->dash = less == 2 && shell_at(&s->c, '-');
	s->c.at += s->dash;
	skip_blanks(&s->c, false);
	if (shell_word(s->sh, &s->c, &target))
		return -1;
	if (less == 2 && target.count) {
		s->heredoc = shell_chars(s->sh, &target.list[0].text);
		s->heredoc_runs = s->command.count &&
				  word_is(s, &s->command.list[0], shells);
	}
	return 0;
}

/* One of ; & | ( ) or a newline, which ends the command. */
static int separator(struct script *s)
{
	char c = s->c.at->c;
	bool twice;

	s->c.at++;
	twice = shell_at(&s->c, c);
	if (shell_in_case(&s->open)) {
		shell_case(s->sh, &s->open, &s->command, c);
		begin_command(s);
		return 0;
	}
	s->behind &= !s->command.count && !s->assigned && c == '\n';
	if (end_command(s))
		return -1;
	if ((c == '&' || c == '|') && twice) {
		s->c.at++;
		s->chain = c == '&' ? s->last : shell_not(s->last);
		s->behind = true;
	} else if ((c == '\n' && !s->behind) || c == ';') {
		s->chain = IS_TRUE;
	}
	if (c == ';') {
		s->c.at += twice;
		if (twice || shell_at(&s->c, '&'))
			shell_case_end(&s->open, shell_at(&s->c, '&'));
	}
	return c == '\n' && s->heredoc ? read_heredoc(s) : 0;
}

int shell_script(struct shell *sh, struct cursor c)
{
	struct script s = {
		.sh = sh, .c = c, .chain = IS_TRUE, .last = NOT_KNOWN};
	int bad = 0;

	while (!bad) {
		sh->skips = runs(&s) == NOT_TRUE;
		skip_blanks(&s.c, false);
		if (s.c.at == s.c.end)
			return end_command(&s);
		if (shell_at(&s.c, '#'))
			skip_comment(&s.c);
		else if (shell_at(&s.c, '<') || shell_at(&s.c, '>'))
			bad = redirect(&s);
		else if (s.c.at->quoted == CELL_BARE &&
			 strchr("\n;&|()", s.c.at->c))
			bad = separator(&s);
		else
			bad = read_command_word(&s);
	}
	return bad;
}
