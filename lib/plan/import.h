/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Importers: other people's configs, translated line by line into the text of
 * our own, each line with the place that it came from.  What follows (types,
 * bounds, defaults, checks) is then the same for all.
 */
#ifndef PLAN_IMPORT_H
#define PLAN_IMPORT_H

#include "lib/plan/conf.h"
#include "lib/plan/config.h"

struct import;

/*
 * Read FILE ("-": standard input) as FORMAT says, which is not CONFIG_OWN.
 * What cannot be said in our groups is a finding, and so is whatever is wrong
 * with the text; C, which has all defaults, is told what was given but refused.
 * Nothing is ever executed, and no other file is read.  -1
 * (CODE_USAGE): it cannot be read at all; E says why, and R has it, too.
 */
int import_load(struct conf_text *t, enum config_format format,
		const char *file, struct arena *a, struct config *c,
		struct report *r, struct err *e);

/*
 * The same up to the settings of IM (import_set.h), whose arena, report, err,
 * file and config are set.
 */
int import_read(struct import *im, enum config_format format);

/* What a folder is searched for: endings and whole names, ended by NULL. */
const char *const *import_ends(enum config_format format);

/*
 * What FILE is, by its ending (.cfg, .json, those of scripts, YAML and
 * arguments), else by its first character; our own if nothing tells.
 */
enum config_format import_guess(const char *file);

/* Without a vocabulary the rest is judged all the same: a note. */
void import_excuse_vocab(struct config *c, struct report *r);

/* config.json has no length of samples: a note says what is assumed. */
void import_say_length(const struct config *c, struct report *r);

/*
 * The smallest world that C's two grids and its batch fit, which a note says;
 * 0 if there is none.
 */
int64_t import_world(struct config *c, struct report *r);

#endif
