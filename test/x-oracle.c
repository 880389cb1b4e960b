/* SPDX-License-Identifier: Apache-2.0 */
/*
 * x-oracle PLACE COUNT SEED: COUNT random small configs, placed by brute force
 * (oracle.h) and by the program PLACE (x-place), must come out the same: which
 * rules refuse them, every stage, every rank's coordinates, every group, the
 * padded vocabulary.  x-oracle - COUNT SEED prints the configs for PLACE.
 */
#include <unistd.h>

#include "test/oracle.h"

enum { BATCH = 4000 }; /* configs that one run of PLACE is given */

/* The finding's id, or the beginning of several, for each rule. */
static const struct {
	const char *id;
	enum rule rule;
} ids[] = {
	{"place-split", STAGES},
	{"place-virtual", STAGES},
	{"place-layout", STAGES},
	{"place-world", WORLD},
	{"place-expert-world", WORLD},
	{"place-pp-order", WORLD},
	{"place-heads", HEADS},
	{"place-groups", HEADS},
	{"place-ffn", FFN},
	{"place-moe-ffn", MOE_FFN},
	{"place-shared-ffn", SHARED_FFN},
	{"place-mtp-hidden", MTP_HIDDEN},
	{"place-vocab", VOCAB},
	{"place-context-levels", LEVELS},
	{"place-context", SEQUENCE},
	{"place-sequence", SEQUENCE},
	{"place-experts", EXPERTS},
	{"place-instances", INSTANCES},
	{"place-recompute-layers", RECOMPUTE},
	{"place-mtp-standalone", STANDALONE},
};

static const char *ids_name(int rule)
{
	size_t i = 0;

	while (ids[i].rule != (enum rule)rule)
		i++;
	return ids[i].id;
}

struct reader {
	FILE *f;
	char *line;
	size_t room;
};

static char *next_line(struct reader *r)
{
	ssize_t n = getline(&r->line, &r->room, r->f);

	if (n < 1)
		return NULL;
	r->line[n - 1] = 0;
	return r->line;
}

/* The rules that the line "ids ..." says are broken; or an id unheard of. */
static const char *read_ids(char *line, bool seen[RULES])
{
	char *word;

	memset(seen, 0, RULES * sizeof(*seen));
	strsep(&line, " ");
	while ((word = strsep(&line, " "))) {
		size_t i = 0, n = sizeof(ids) / sizeof(*ids);

		while (i < n && strncmp(word, ids[i].id, strlen(ids[i].id)))
			i++;
		if (i == n)
			return word;
		seen[ids[i].rule] = true;
	}
	return NULL;
}

/* Whether PLACE's answer is WANT, and its broken rules are BAD. */
static bool same(struct reader *r, char *want, const bool bad[RULES], char *why,
		 size_t room)
{
	bool seen[RULES], equal = true;
	char *line = next_line(r), *one;
	const char *other = line ? read_ids(line, seen) : "the end";

	if (other) {
		snprintf(why, room, "'%s', not a rule that is known", other);
		equal = false;
	}
	for (int i = 0; equal && i < (bad[STAGES] ? RECOMPUTE : RULES); i++)
		if (seen[i] != bad[i]) {
			snprintf(why, room, "%s: refused %d, not %d",
				 ids_name(i), seen[i], bad[i]);
			equal = false;
		}
	while ((line = next_line(r)) && strcmp(line, ".") != 0) {
		/* the stages of a refused placement mean nothing */
		if (bad[STAGES] && strncmp(line, "ra", 2) &&
		    strncmp(line, "rows", 4))
			continue;
		one = strsep(&want, "\n");
		if (equal && (!one || strcmp(line, one) != 0)) {
			snprintf(why, room, "'%s', not '%s'", line,
				 one ? one : "the end");
			equal = false;
		}
	}
	if (equal && want && *want) {
		snprintf(why, room, "nothing, not '%s'", want);
		equal = false;
	}
	return equal;
}

struct count {
	int done, placed, refused[RULES];
};

/* The configs of the random state, judged by PLACE; 0: all are the same. */
static int compare(const char *place, int count, struct count *n)
{
	char name[] = "/tmp/tri-oracle-XXXXXX", command[4096], why[800];
	uint64_t state = random_state;
	struct reader r = {0};
	FILE *f = fdopen(mkstemp(name), "w");
	bool bad[RULES], equal = true;
	struct cfg c;

	for (int i = 0; i < count; i++) {
		draw(&c);
		put_config(f, &c);
	}
	fclose(f);
	random_state = state;
	snprintf(command, sizeof(command), "'%s' %s", place, name);
	r.f = popen(command, "r");
	for (int i = 0; i < count && equal; i++, n->done++) {
		char *want;

		draw(&c);
		want = expected(&c, bad);
		equal = same(&r, want, bad, why, sizeof(why));
		if (!equal) {
			printf("%s\n  of: ", why);
			put_config(stdout, &c);
		}
		n->placed += !bad[STAGES] && !bad[WORLD];
		for (int k = 0; k < RULES; k++)
			n->refused[k] += bad[k];
		free(want);
	}
	pclose(r.f);
	free(r.line);
	unlink(name);
	return equal ? 0 : -1;
}

int main(int argc, char **argv)
{
	int count = argc == 4 ? (int)strtol(argv[2], NULL, 10) : 0, bad = 0;
	struct count n = {0};
	struct cfg c;

	if (count < 1) {
		fputs("usage: x-oracle PLACE|- COUNT SEED\n", stderr);
		return 2;
	}
	random_state = strtoull(argv[3], NULL, 10) * 0x9e3779b97f4a7c15U + 1;
	if (!strcmp(argv[1], "-")) {
		for (int i = 0; i < count; i++) {
			draw(&c);
			put_config(stdout, &c);
		}
		return 0;
	}
	while (n.done < count && !bad)
		bad = compare(argv[1],
			      count - n.done < BATCH ? count - n.done : BATCH,
			      &n);
	printf("%d configs, %d placed; refused:", n.done, n.placed);
	for (int k = 0; k < RULES; k++)
		printf(" %s %d", ids_name(k), n.refused[k]);
	putchar('\n');
	return bad ? 1 : 0;
}
