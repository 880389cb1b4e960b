/* SPDX-License-Identifier: Apache-2.0 */
/* Command lines: one table of options gives the parser and the help. */
#ifndef BASE_CLI_H
#define BASE_CLI_H

#include <stdint.h>

#include "lib/base/err.h"

enum cli_type { CLI_FLAG, CLI_INT, CLI_REAL, CLI_SIZE, CLI_STRING, CLI_LIST };

/* The values of an option that may be given many times. */
struct cli_list {
	const char **item;
	int count;
};

/*
 * One option.  VALUE points to a bool, int64_t, double, const char * or struct
 * cli_list, as TYPE says; MIN and MAX bound a number or a size in bytes.  A
 * table ends with a row whose NAME is NULL.
 */
struct cli_opt {
	const char *name; /* long name without the dashes */
	char letter;	  /* short form, or 0 */
	enum cli_type type;
	void *value;
	const char *arg; /* the argument's name in the help: "N", "FILE" */
	const char *help;
	int64_t min, max;
};

struct cli {
	const char *program;
	const char *usage; /* what follows the program's name */
	const char *about; /* a few lines */
	const struct cli_opt *opts;
};

enum cli_found { CLI_RUN, CLI_ENDED };

/*
 * Parse argv.  --help and --version print to stdout and give CLI_ENDED (the
 * program then exits 0); otherwise CLI_RUN, and argv[*first ..] are the
 * operands (options may stand between operands; "--" ends them).  Lists are
 * allocated with malloc and live as long as the program.  -1: bad usage, with
 * E's code CODE_USAGE; or the help could not be written, CODE_STORAGE.
 */
int cli_parse(const struct cli *cli, int argc, char **argv, int *first,
	      enum cli_found *found, struct err *e);

/* A whole string as a number within [min, max], strict. */
int cli_int(const char *s, int64_t min, int64_t max, int64_t *out,
	    struct err *e);

/* The same of any number, "0.7" or "1e-3". */
int cli_real(const char *s, int64_t min, int64_t max, double *out,
	     struct err *e);

/*
 * A size in bytes within [min, max]: a number and K, M, G or T, which count by
 * 1024, as KiB .. TiB do; KB .. TB count by 1000.
 */
int cli_size(const char *s, int64_t min, int64_t max, int64_t *out,
	     struct err *e);

#endif
