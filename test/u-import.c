/* SPDX-License-Identifier: Apache-2.0 */
/* The front parsers of imports: words, flags and lists out of strange text. */
#include "test/config-test.h"

#include "lib/plan/import_hf.h"
#include "lib/plan/import_megatron.h"

static struct report report;
static struct config config;
static struct err err;

static struct import new_import(const char *file)
{
	report = (struct report){.arena = &arena};
	memset(&config, 0, sizeof(config));
	return (struct import){.arena = &arena,
			       .report = &report,
			       .err = &err,
			       .file = file,
			       .config = &config};
}

/* "4", "[1, 0]" or "none". */
static const char *list_of(const char *text)
{
	const struct field as_ints = {.type = FIELD_INTS};
	struct ints list = {0};
	int column;

	if (!import_list(text, &arena, &list, &column))
		return "none";
	return list.count ? field_text(&as_ints, &list, &arena) : "[]";
}

static void test_lists(void **state)
{
	static const char *const cases[][2] = {
		{"4", "4"},
		{" -1 ", "-1"},
		{"2*3+1", "7"},
		{"[1]", "[1]"},
		{"[1, 0,]", "[1, 0]"},
		{"([0]*3+[1]*2)", "[0, 0, 0, 1, 1]"},
		{"([0]+[1]*2)*2", "[0, 1, 1, 0, 1, 1]"},
		{"2*[5]", "[5, 5]"},
		{"[7]*0", "[]"},
		{"[7]*-3", "[]"},
		{"(127, 0)", "[127, 0]"},
		{"(127,)", "[127]"},
		{"((3))", "3"},
		{"127,0", "[127, 0]"},
		{"", "none"},
		{"[", "none"},
		{"]", "none"},
		{"[1", "none"},
		{"[1 2]", "none"},
		{"[1]]", "none"},
		{"[[1]]", "none"},
		{"[1]*[2]", "none"},
		{"[1]+2", "none"},
		{"[1],2", "none"},
		{"2**3", "none"},
		{"1.5", "none"},
		{"x", "none"},
		{"4 4", "none"},
		{"9223372036854775807", "9223372036854775807L"},
		{"9223372036854775808", "none"},
		{"9223372036854775807*2", "none"},
		{"[1]*16385", "none"},
		{"[1]*9999999999999999999", "none"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		assert_string_equal(list_of(cases[i][0]), cases[i][1]);
}

/* Where a text ceases to be a list. */
static void test_list_columns(void **state)
{
	static const struct {
		const char *text;
		int column;
	} cases[] = {
		{"", 1},      {"x", 1},		{"[1, x]", 5},
		{"[1, 2", 6}, {"([0]*2+y)", 8}, {"[1]*[2]", 8},
		{"1 2", 3},   {"[1],2", 4},	{"[[1]]", 5},
	};
	struct ints list;
	int column;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		assert_false(
			import_list(cases[i].text, &arena, &list, &column));
		assert_int_equal(column, cases[i].column);
	}
}

static void test_a_list_is_bounded(void **state)
{
	char deep[256], many[4096] = "";

	(void)state;
	memset(deep, '(', 100);
	deep[100] = '1';
	memset(deep + 101, ')', 100);
	deep[201] = 0;
	assert_string_equal(list_of(deep), "none");
	/* each product is small enough; all together are not */
	for (int i = 0; i < 200; i++)
		strcat(many, "[1]*16000*0+");
	strcat(many, "[1]");
	assert_string_equal(list_of(many), "none");
}

/* "word:line word:line" of a script's command, or its error. */
static const char *shell_of(const char *text)
{
	struct import im = new_import("x.sh");
	struct words words = {0};
	const char *out = "";

	if (import_shell(&im, text, strlen(text), &words))
		return err.text;
	for (size_t i = 0; i < words.count; i++)
		out = arena_printf(&arena, "%s%s%s:%d%s", out, i ? " " : "",
				   words.list[i].text, words.list[i].line,
				   words.list[i].unknown ? "?" : "");
	return out;
}

#define RUN "torchrun p.py "

static void test_scripts(void **state)
{
	static const char *const cases[][2] = {
		{RUN "--lr 1", "--lr:1 1:1"},
		{"# --lr 2\n" RUN "--lr 1 # more\n", "--lr:2 1:2"},
		{RUN "\\\n --lr \\\n1", "--lr:2 1:3"},
		{RUN "\\\r\n --lr \\\r\n1\r\n", "--lr:2 1:3"},
		{RUN "--lr '1 2' \"a\"b", "--lr:1 1 2:1 ab:1"},
		{RUN "--lr \"\\$x\\\"\" \\#", "--lr:1 $x\":1 #:1"},
		{RUN "--lr ''", "--lr:1 :1"},
		{"A=(\n --lr 1 # why\n)\n" RUN "${A[@]}", "--lr:2 1:2"},
		{"A=(--lr 1)\nA+=(--seed 2)\n" RUN "\"${A[@]}\"",
		 "--lr:1 1:1 --seed:2 2:2"},
		{"A=( )\n" RUN "--lr 1 \"${A[@]}\" ${A[*]}", "--lr:2 1:2"},
		{"A=\"\n--lr 1\n--seed 2\"\n" RUN "$A",
		 "--lr:2 1:2 --seed:3 2:3"},
		{"A=\"--lr \\\n1\"\n" RUN "$A", "--lr:1 1:2"},
		{"A=1\nB=$A$A\n" RUN "--lr ${B}0", "--lr:3 110:1"},
		{"A=x\nA+=y\n" RUN "--lr $A", "--lr:3 xy:1"},
		{"A='1 2'\n" RUN "--lr \"$A\" $A", "--lr:2 1 2:1 1:1 2:1"},
		{RUN "--lr $A", "--lr:1 $A:1?"},
		{RUN "--lr ${A}/b", "--lr:1 ${A}/b:1?"},
		{RUN "--lr ${A:-3} ${B-4}", "--lr:1 3:1 4:1"},
		{"A=5\n" RUN "--lr ${A:-3}", "--lr:2 5:1"},
		{"A=\n" RUN "--lr ${A:-3}", "--lr:2 3:2"},
		{"A=${1:-7}\n" RUN "--lr $A", "--lr:2 7:1"},
		{RUN "--lr $(rm -rf x; echo \")\")",
		 "--lr:1 $(rm -rf x; echo \")\"):1?"},
		{"N=4\n" RUN "--lr $((2*(N+$N)/3-${N}%3))", "--lr:2 4:2"},
		{RUN "--lr $((1 << 2)) $((1/0)) $((X)) $(( -3 ))",
		 "--lr:1 $((1 << 2)):1? $((1/0)):1? $((X)):1? -3:1"},
		{RUN "--lr $((9223372036854775807+1)) $(())",
		 "--lr:1 $((9223372036854775807+1)):1? $(()):1?"},
		{RUN "--lr `date`", "--lr:1 `date`:1?"},
		{"export A=1\nreadonly B=2\n" RUN "--lr $A$B", "--lr:3 12:1"},
		{"X=1 " RUN "--lr 1 >log 2>&1 &", "--lr:1 1:1"},
		{RUN "--lr 2 >log", "--lr:1 2:1"},
		{"srun sh -c \"" RUN "--lr 1\"", "--lr:1 1:1"},
		{"A=\"" RUN "--lr 1\"\neval $A", "--lr:1 1:1"},
		{"sbatch <<EOF\n#SBATCH -N1\n" RUN "--lr 1\nEOF\n",
		 "--lr:3 1:3"},
		{"cat <<'E' >x\n" RUN "--lr 9\nE\n" RUN "--lr 1", "--lr:4 1:4"},
		{"f() {\n" RUN "--lr 1\n}\nf", "--lr:2 1:2"},
		{"A=1\nif x; then A=2; fi\n" RUN "--lr $A", "--lr:3 1:1"},
		{"[ -n \"$x\" ] && A=2\n" RUN "--lr $A", "--lr:2 $A:2?"},
		{"cd /x && " RUN "--lr 1", "--lr:1 1:1"},
		{"if x; then\n" RUN "--lr 1\nelse\n" RUN "--lr 2\nfi\n" RUN
		 "--lr 3\n",
		 "--lr:6 3:6"},
		{"echo --num-layers 3\n" RUN "--lr 1", "--lr:2 1:2"},
		{"python run.py --n 4 train.py --seed 3 --save x.py",
		 "--seed:1 3:1 --save:1 x.py:1"},
		{"mpirun -n 4 python --lr 1", "--lr:1 1:1"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		assert_string_equal(shell_of(cases[i][0]), cases[i][1]);
}

/* A known condition is followed: what VALUE then is, or "?". */
static void test_conditions(void **state)
{
	static const char *const cases[][2] = {
		{"if true; then V=2; fi", "2"},
		{"if false; then V=2; else V=3; fi", "3"},
		{"if ! false; then V=2; fi", "2"},
		{"if [ \"$A\" = y ]; then V=2; else V=3; fi", "2"},
		{"if [ \"$A\" != y ]; then V=2; else V=3; fi", "3"},
		{"if [ $A == x ]; then V=2; elif [ $A == y ]; then V=3; "
		 "elif true; then V=4; else V=5; fi",
		 "3"},
		{"if [[ $A == y && $N -gt 3 ]]; then V=2; else V=3; fi", "1?"},
		{"if [[ $A == y ]] && [[ $N -gt 3 ]]\nthen\nV=2\nfi", "2"},
		{"if [ -z \"$E\" ] || x; then V=2; fi", "2"},
		{"if [ -n \"$E\" ] || [ \"$N\" -le 4 ]; then V=2; fi", "2"},
		{"if test $N -eq 04; then V=2; fi", "2"},
		{"if [ $N -ne 4 ]; then V=2; fi", "1"},
		{"if [ $N -lt 5 ]; then V=2; fi", "2"},
		{"if [ $N -ge 5 ]; then V=2; fi", "1"},
		{"if [ ! -z \"$E\" ]; then V=2; fi", "1"},
		{"if [ \"$A\" ]; then V=2; fi", "2"},
		{"[ $N = 4 ] && V=2", "2"},
		{"[ $N = 5 ] && V=2", "1"},
		{"[ $N = 5 ] && V=2 || V=3", "3"},
		{"[ $N = 4 ] ||\nV=2", "1"},
		{"[ $N = 5 ] &&\n\nV=2", "1"},
		{"if true; then if false; then V=2; else V=3; fi; V=${V}0; "
		 "fi",
		 "30"},
		{"if false; then if true; then V=2; fi; V=3; fi", "1"},
		{"if true; then V=2; else W=`x` V+=$Z; fi", "2"},
		{"if x; then V=2; fi; V=3", "3"},
		{"case $A in\n\nx) V=2 ;;\n(z|y)\nV=3\n;; *) V=4\nesac", "3"},
		{"case \"$A\" in \"x\") V=2 ;; *) V=3; esac", "3"},
		{"case $A in y) V=2 ;; x*) V=3 ;; y) V=4 ;; esac", "2"},
		{"case $A in x) case $A in y) V=2 ;; esac ;; esac", "1"},
		{"case $A in y) case $N in 4) V=2 ;; *) V=3 ;; esac ;; "
		 "*) V=4 ;; esac",
		 "2"},
		{"case $A in x) V=2 ;; esac; V=${V}0", "10"},
		/* what a running shell alone would know */
		{"if [ $Z = y ]; then V=2; fi", "1?"},
		{"if [ -f x ]; then V=2; fi", "1?"},
		{"if [[ $A == y* ]]; then V=2; fi", "1?"},
		{"if [ $A -eq 1 ]; then V=2; fi", "1?"},
		{"if [ $A = y; then V=2; fi", "1?"},
		{"if [ ]; then V=2; fi", "1?"},
		{"if x; then A=z; fi; if [ $A = y ]; then V=2; fi", "1?"},
		{"if x; then V=2; elif true; then V=3; fi", "1?"},
		{"B=`x` && V=2", "1?"},
		{"while true; do V=2; done", "1?"},
		{"case $N in y*) V=2 ;; esac", "1?"},
		{"case $Z in y) V=2 ;; esac", "1?"},
		{"case $A in y) ;& x) V=2 ;; esac", "1?"},
		{"case $A in x) ;;& y) V=2 ;; esac", "1?"},
		{"case `x` in y) V=2 ;; *) V=3 ;; esac", "1?"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct import im = new_import("x.sh");
		struct words words = {0};
		bool said = false;
		const char *text = arena_printf(
			&arena, "A=y N=4 E= V=1\n%s\n" RUN "--lr $V\n",
			cases[i][0]);

		assert_int_equal(import_shell(&im, text, strlen(text), &words),
				 0);
		assert_int_equal(words.count, 2);
		for (size_t k = 0; k < im.report->count; k++)
			said |= !strcmp(im.report->list[k].id,
					"import-condition") &&
				strstr(im.report->list[k].message, "'V'");
		text = arena_printf(&arena, "%s%s", words.list[1].text,
				    said ? "?" : "");
		if (strcmp(text, cases[i][1]) != 0)
			fail_msg("'%s' gives %s, not %s", cases[i][0], text,
				 cases[i][1]);
	}
}

static void test_broken_scripts(void **state)
{
	static const char *const cases[][2] = {
		{"", "no command"},
		{"echo hello", "no command"},
		{"A='x\n", "x.sh:1: the ' that begins here is not closed"},
		{"\nA=\"x\n", "x.sh:2: the \" that begins here is not closed"},
		{"A=(x\n\n", "x.sh:1: the ( that begins here is not closed"},
		{"A=$(x\n", "x.sh:1: the $( that begins here is not closed"},
		{"A=${x\n", "x.sh:1: the ${ that begins here is not closed"},
		{"A=`x\n", "x.sh:1: the ` that begins here is not closed"},
		{"A=(x (y))\n", "x.sh:1: '(' in an array"},
		{"A=(x; y)\n", "x.sh:1: ';' in an array"},
		{"A='x\\", "not closed"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const char *got = shell_of(cases[i][0]);

		if (!strstr(got, cases[i][1]))
			fail_msg("'%s' gives '%s'", cases[i][0], got);
	}
}

/* Every cut of a script is read or refused, and nothing else happens. */
static void test_cut_scripts(void **state)
{
	static const char whole[] =
		"#!/bin/bash\nA=(--lr \"${B:-1}\" # c\n --seed $((1+2)))\n"
		"if [ $x ]; then A+=(`y`); fi\ncat <<-E\n\tq\n\tE\n"
		"sh -c 'p.py --lr 1 '\"$A\" 2>&1 | tee \\\n x && p.py "
		"\"${A[@]}\"";

	(void)state;
	for (size_t n = 0; n < sizeof(whole); n++) {
		char *part = arena_strndup(&arena, whole, n);

		shell_of(part);
	}
	assert_string_equal(shell_of(whole), "--lr:8 1:8 --lr:2");
}

static void test_expansions_are_bounded(void **state)
{
	const char *text = "A=\"x x x x x x x x\"\n", *list = "B=(1 2 3 4)\n";
	static char minus[900000];

	(void)state;
	for (int i = 0; i < 40; i++) {
		text = arena_printf(&arena, "%sA=\"$A$A\"\n", text);
		list = arena_printf(&arena, "%sB=(\"${B[@]}\" \"${B[@]}\")\n",
				    list);
	}
	memset(minus, '-', sizeof(minus) - 1);
	assert_non_null(strstr(
		shell_of(arena_printf(&arena, RUN "--lr $((%s1))", minus)),
		"1)):1?"));
	assert_non_null(strstr(shell_of(text), "more than 1048576"));
	assert_non_null(strstr(shell_of(list), "more than 16384"));
}

/* "--flag=value,value:line ..." of a YAML text, or its error. */
static const char *yaml_of(const char *text)
{
	struct import im = new_import("x.yaml");
	struct flags flags = {0};
	const char *out = "";

	if (import_yaml(&im, text, strlen(text), &flags))
		return err.text;
	for (size_t i = 0; i < flags.count; i++) {
		const struct flag *f = &flags.list[i];

		out = arena_printf(&arena, "%s%s%s%s", out, i ? " " : "",
				   f->off ? "!" : "", f->name);
		for (int v = 0; v < f->values; v++)
			out = arena_printf(&arena, "%s%s%s", out, v ? "," : "=",
					   f->value[v]);
		out = arena_printf(&arena, "%s:%d", out, f->line);
	}
	return out;
}

#define ARGS "MODEL_ARGS:\n"

static void test_yaml(void **state)
{
	static const char *const cases[][2] = {
		{"--lr: 1\n", "--lr=1:1"},
		{ARGS "  --lr: 1\n  --swiglu: true\n", "--lr=1:2 --swiglu:3"},
		{ARGS "  --lr: 1 # c\n--seed: 2\n", "--lr=1:2"},
		{ARGS "  --a:\n    true\n  --b:\n  --c: ~\n",
		 "--a:2 --b:4 --c:5"},
		{ARGS "  --a: false\n  --b: 'true'\n",
		 "!--a=false:2 --b=true:3"},
		{ARGS "  --a: [1, 2]\n  --b: []\n", "--a=1,2:2 --b:3"},
		{"x: &x 7\n" ARGS "  --a: *x\n  --b: [*x]\n",
		 "--a=7:3 --b=7:4"},
		{"ENV: {a: [b, {c: d}]}\n" ARGS "  --lr: '1'\nT: [1]\n",
		 "--lr=1:3"},
		{"{\"--lr\": 1}", "--lr=1:1"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		assert_string_equal(yaml_of(cases[i][0]), cases[i][1]);
}

static void test_broken_yaml(void **state)
{
	static const char *const cases[][2] = {
		{"", "wants a mapping"},
		{"- a", "wants a mapping"},
		{"a: 1", "no MODEL_ARGS"},
		{ARGS "  lr: 1\n", "x.yaml:2: 'lr' is no flag"},
		{ARGS "  --lr: {a: 1}\n", "x.yaml:2: '--lr' wants a value"},
		{ARGS "  --lr: [[1]]\n", "x.yaml:2: '--lr' wants a value"},
		{"x: &x [1]\n" ARGS "  --lr: *x\n", "x.yaml:3: '--lr' wants"},
		{"x: &x {--lr: 1}\n" ARGS "  <<: *x\n", "merge key"},
		{ARGS "  --lr: *nobody\n", "'--lr' wants a value"},
		{ARGS "  ? [a]\n  : 1\n", "a key that is no plain text"},
		{ARGS "  --lr: \"1\n", "not YAML"},
		{ARGS "  --lr: 1\n --seed: 2\n", "x.yaml:3: not YAML"},
		{ARGS "\t--lr: 1\n", "not YAML"},
		{"a: [[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]", "more than 16 deep"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const char *got = yaml_of(cases[i][0]);

		if (!strstr(got, cases[i][1]))
			fail_msg("'%s' gives '%s'", cases[i][0], got);
	}
}

/* Each level doubles what an alias stands for; nothing is expanded. */
static void test_yaml_bomb(void **state)
{
	const char *text = "a0: &a0 [x, x]\n";

	(void)state;
	for (int i = 1; i < 60; i++)
		text = arena_printf(&arena, "%sa%d: &a%d [*a%d, *a%d]\n", text,
				    i, i, i - 1, i - 1);
	text = arena_printf(&arena, "%s" ARGS "  --lr: *a59\n", text);
	assert_non_null(strstr(yaml_of(text), "x.yaml:62: '--lr' wants"));
}

static const char *hf_of(const char *text)
{
	struct import im = new_import("x.json");

	return import_hf(&im, text, strlen(text)) ? err.text : "good";
}

static void test_broken_json(void **state)
{
	static const char *const cases[][2] = {
		{"", "not JSON"},
		{"[1]", "wants an object"},
		{"{", "not JSON"},
		{"{}", "no model_type"},
		{"{\"model_type\": 3}", "no model_type"},
		{"{\"model_type\": \"bert\"}", "unknown model_type 'bert'"},
		{"{\"model_type\": \"gpt2\",\n\"a\": 1, \"a\": 2}",
		 "x.json:2: not JSON: duplicate"},
		{"{\"model_type\": \"gpt2\", \"n_layer\": 1e999}", "not JSON"},
		{"{\"model_type\": \"gpt2\", \"a\\\"b\": {\"c\": \"}\"}}",
		 "good"},
		{"{\"model_type\": \"llama\", \"rope_scaling\": 7}", "good"},
		{"{\"model_type\": \"llama\", \"hidden_act\": [1]}", "good"},
		{"{\"model_type\": \"nemotron-nas\", \"block_configs\": 1}",
		 "good"},
		{"{\"model_type\": \"deepseek_v3\", \"moe_layer_freq\": -1,"
		 "\"num_hidden_layers\": 9223372036854775807}",
		 "good"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const char *got = hf_of(cases[i][0]);

		if (!strstr(got, cases[i][1]))
			fail_msg("'%s' gives '%s'", cases[i][0], got);
	}
}

static void test_deep_json(void **state)
{
	char *text = arena_alloc(&arena, 20002, 1);

	(void)state;
	memset(text, '[', 10000);
	memset(text + 10000, ']', 10000);
	assert_non_null(strstr(hf_of(text), "depth"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_lists),
		TEST(test_list_columns),
		TEST(test_a_list_is_bounded),
		TEST(test_scripts),
		TEST(test_conditions),
		TEST(test_broken_scripts),
		TEST(test_cut_scripts),
		TEST(test_expansions_are_bounded),
		TEST(test_yaml),
		TEST(test_broken_yaml),
		TEST(test_yaml_bomb),
		TEST(test_broken_json),
		TEST(test_deep_json),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
