/* SPDX-License-Identifier: Apache-2.0 */
/* Megatron's command line, wherever it is written, as our settings. */
#ifndef PLAN_IMPORT_MEGATRON_H
#define PLAN_IMPORT_MEGATRON_H

#include "lib/plan/import_words.h"

/* TEXT, out of im->file, into IM's settings.  -1: im->err says why. */
int import_megatron(struct import *im, const char *text, size_t len);

/* The same for vLLM's engine arguments, which have no settings: im->given. */
int import_vllm(struct import *im, const char *text, size_t len);

/* What kind of file TEXT, out of FILE, is. */
enum front { FRONT_ARGS, FRONT_SHELL, FRONT_YAML };
enum front import_front(const char *file, const char *text);

/*
 * What Megatron's command line makes of FLAGS beside one setting a flag: its
 * defaults where they differ from the dataclass, and what it corrects without
 * a word, which is a note.
 */
void import_rules(struct import *im, const struct flags *flags);

/*
 * FLAG is --heterogeneous-layers-config-encoded-json: what the flags say of the
 * model is what it says, then every layer has its sizes.
 */
void import_blocks(struct import *im, const struct flag *flag);

/* The last of FLAGS that is called NAME, or NULL. */
const struct flag *import_flag(const struct flags *flags, const char *name);

struct import_source import_source(const struct import *im,
				   const struct flag *flag);

#endif
