/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Megatron's command line as tables.  A flag that is named like a setting of
 * ours needs no row: "--num-layers" is num_layers, "--no-x" and "--disable-x"
 * turn off a switch x.
 */
#ifndef PLAN_IMPORT_TABLE_H
#define PLAN_IMPORT_TABLE_H

#include <stdbool.h>

/* A flag that is a setting of another name, or stands for a value of it. */
struct import_row {
	const char *flag, *field;
	const char *value; /* NULL: the flag's own */
};

/* What else a flag may be. */
enum import_class {
	FLAG_UNKNOWN,
	FLAG_RULE,   /* import_rules.c has more to say about it */
	FLAG_MODEL,  /* of the model, but it has no setting here */
	FLAG_RUN,    /* of the training only, and it has no setting here */
	FLAG_IGNORED /* neither: logs, paths, files, services */
};

/* Row I of the flags of another name; false: there are no more. */
bool import_table_row(int i, struct import_row *row);

/*
 * A flag that is not the setting of that name: it is ignored, or Megatron has
 * the setting but no such flag, or the setting is ours alone.
 */
bool import_table_hides(const char *flag);

/*
 * The class of FLAG, and for FLAG_MODEL the value with which it says nothing
 * (Megatron's default), or NULL.
 */
enum import_class import_table_class(const char *flag, const char **neutral);

#endif
