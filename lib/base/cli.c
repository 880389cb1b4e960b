/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/cli.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/sys.h"
#include "lib/base/version.h"

enum { CLI_MAX = 40, CLI_HELP = 1000, CLI_VERSION = 1001 };

int cli_int(const char *s, int64_t min, int64_t max, int64_t *out,
	    struct err *e)
{
	char *end;
	int64_t n;

	errno = 0;
	n = strtoll(s, &end, 10);
	if (end == s || *end)
		return err_set(e, CODE_USAGE, "'%s' is not a whole number", s);
	if (errno || n < min || n > max)
		return err_set(e, CODE_USAGE,
			       "%s is not between %" PRId64 " and %" PRId64, s,
			       min, max);
	*out = n;
	return 0;
}

int cli_real(const char *s, int64_t min, int64_t max, double *out,
	     struct err *e)
{
	char *end;
	double x = strtod(s, &end);

	if (end == s || *end)
		return err_set(e, CODE_USAGE, "'%s' is not a number", s);
	if (!(x >= (double)min && x <= (double)max))
		return err_set(e, CODE_USAGE,
			       "%s is not between %" PRId64 " and %" PRId64, s,
			       min, max);
	*out = x;
	return 0;
}

/* The bytes of UNIT, or 0. */
static double unit_bytes(const char *unit)
{
	static const char letters[] = "KMGT";
	const char *at = *unit ? strchr(letters, *unit) : NULL;
	double base = !strcmp(unit + !!at, "B") ? 1000 : 1024, bytes = 1;

	if (!at || (unit[1] && strcmp(unit + 1, "B") && strcmp(unit + 1, "iB")))
		return 0;
	for (const char *l = letters; l <= at; l++)
		bytes *= base;
	return bytes;
}

int cli_size(const char *s, int64_t min, int64_t max, int64_t *out,
	     struct err *e)
{
	size_t digits = strspn(s, "0123456789.");
	double unit = unit_bytes(s + digits), n;
	char *end;

	n = strtod(s, &end);
	if (!digits || end != s + digits || unit <= 0)
		return err_set(e, CODE_USAGE,
			       "'%.100s' is not a size like 80G, 80GiB, 141GB "
			       "or 81920M",
			       s);
	if (n * unit < (double)min || n * unit > (double)max)
		return err_set(e, CODE_USAGE,
			       "%.100s is not between %" PRId64 " and %" PRId64
			       " bytes",
			       s, min, max);
	*out = (int64_t)(n * unit);
	return 0;
}

static void cli_help(const struct cli *cli)
{
	char left[64];

	printf("usage: %s %s\n\n%s\n\noptions:\n", cli->program, cli->usage,
	       cli->about);
	for (const struct cli_opt *o = cli->opts; o->name; o++) {
		snprintf(left, sizeof(left), "%c%c%s--%s%s%s",
			 o->letter ? '-' : ' ', o->letter ? o->letter : ' ',
			 o->letter ? ", " : "  ", o->name, o->arg ? "=" : "",
			 o->arg ? o->arg : "");
		printf("  %-26s %s\n", left, o->help);
	}
	printf("  -h, --help                 print this and exit\n"
	       "  -V, --version              print the version and exit\n");
}

static int cli_append(struct cli_list *list, const char *item, struct err *e)
{
	const char **more =
		realloc(list->item, ((size_t)list->count + 1) * sizeof(*more));

	if (!more)
		return err_set(e, CODE_USAGE, "out of memory");
	list->item = more;
	list->item[list->count++] = item;
	return 0;
}

static int cli_set(const struct cli_opt *o, struct err *e)
{
	switch (o->type) {
	case CLI_FLAG: *(bool *)o->value = true; return 0;
	case CLI_STRING: *(const char **)o->value = optarg; return 0;
	case CLI_LIST: return cli_append(o->value, optarg, e);
	case CLI_REAL:
		if (cli_real(optarg, o->min, o->max, o->value, e))
			return err_wrap(e, "--%s: ", o->name);
		return 0;
	case CLI_SIZE:
		if (cli_size(optarg, o->min, o->max, o->value, e))
			return err_wrap(e, "--%s: ", o->name);
		return 0;
	case CLI_INT: break;
	}
	if (cli_int(optarg, o->min, o->max, o->value, e))
		return err_wrap(e, "--%s: ", o->name);
	return 0;
}

/* The getopt tables for the options of CLI; returns their number. */
static int cli_table(const struct cli *cli, struct option *longs, char *letters)
{
	int n = 0;

	*letters++ = ':';
	for (const struct cli_opt *o = cli->opts; o->name; o++, n++) {
		longs[n] = (struct option){o->name, o->type != CLI_FLAG, NULL,
					   o->letter ? o->letter : 256 + n};
		if (o->letter)
			*letters++ = o->letter;
		if (o->letter && o->type != CLI_FLAG)
			*letters++ = ':';
	}
	*letters++ = 'h';
	*letters++ = 'V';
	*letters = 0;
	longs[n] = (struct option){"help", 0, NULL, CLI_HELP};
	longs[n + 1] = (struct option){"version", 0, NULL, CLI_VERSION};
	longs[n + 2] = (struct option){0};
	return n;
}

static int cli_bad(int c, char **argv, struct err *e)
{
	const char *what = argv[optind - 1];

	if (c == ':')
		return err_set(e, CODE_USAGE, "option '%s' needs an argument",
			       what);
	return err_set(e, CODE_USAGE, "unknown option '%s'; see --help", what);
}

int cli_parse(const struct cli *cli, int argc, char **argv, int *first,
	      enum cli_found *found, struct err *e)
{
	struct option longs[CLI_MAX + 3];
	char letters[2 * CLI_MAX + 4];
	int n = cli_table(cli, longs, letters), c;

	opterr = 0;
	optind = 0;
	*found = CLI_ENDED;
	while ((c = getopt_long(argc, argv, letters, longs, NULL)) != -1) {
		const struct cli_opt *o = NULL;

		if (c == 'h' || c == CLI_HELP)
			return cli_help(cli), sys_flush_stdout(e);
		if (c == 'V' || c == CLI_VERSION)
			return printf("%s %s\n", cli->program, TRISECT_VERSION),
			       sys_flush_stdout(e);
		for (int i = 0; i < n; i++)
			if (longs[i].val == c)
				o = &cli->opts[i];
		if (!o)
			return cli_bad(c, argv, e);
		if (cli_set(o, e))
			return -1;
	}
	*first = optind;
	*found = CLI_RUN;
	return 0;
}
