/* SPDX-License-Identifier: Apache-2.0 */
/* Config files as text: what is bound, from where, and what is refused. */
#include <sys/stat.h>

#include "test/config-test.h"

#define WHOLE                                                           \
	"shape: { num_layers = 4; hidden_size = 48; vocab_size = 256; " \
	"num_attention_heads = 4; };\n"                                 \
	"run: { micro_batch_size = 1; global_batch_size = 8; "          \
	"train_iters = 4; lr = 1; data_path = \"x\"; };\n"

static const char *ids(const struct report *r)
{
	const char *out = "";

	for (size_t i = 0; i < r->count; i++)
		out = arena_printf(&arena, "%s%s%s:%d", out, i ? " " : "",
				   r->list[i].id, r->list[i].line);
	return out;
}

/* The ids and lines of the findings of TEXT with SET. */
static const char *read_ids(const char *text, const char *set)
{
	struct report r;

	config_of(text, set, &r);
	return ids(&r);
}

static void test_values(void **state)
{
	struct report r;
	struct config *c = config_of(
		"# a comment\n"
		"shape: {\n"
		"  num_layers = 0x10; // hex\n"
		"  rotary_base = 500000; /* an integer\n where a float is */\n"
		"  layernorm_epsilon = 1e-6;\n"
		"  qk_layernorm = TRUE;\n"
		"  normalization = \"RMSNorm\";\n"
		"  moe_layer_freq = [1, 0];\n"
		"  no_rope_freq = 4L\n"
		"};\n"
		"run: { dir = \"a\" \"b\"; seed = 9000000000L;\n"
		"  data_path = (1, \"a # no comment\", 0.25, \"b\");\n"
		"  moe_aux_loss_coeff = [1e-2, 0.5]; moe_z_loss_coeff = 1;\n"
		"  moe_router_load_balancing_type = (\"sinkhorn\", \"none\");\n"
		"}",
		NULL, &r);

	(void)state;
	assert_string_equal(ids(&r), "");
	assert_int_equal(c->shape.num_layers, 16);
	assert_true(c->shape.rotary_base == 5e5);
	assert_true(c->shape.layernorm_epsilon == 1e-6);
	assert_true(c->shape.qk_layernorm);
	assert_int_equal(c->shape.normalization, NORM_RMSNORM);
	assert_int_equal(c->shape.moe_layer_freq.count, 2);
	assert_true(c->shape.moe_layer_freq.is_list);
	assert_int_equal(c->shape.no_rope_freq.item[0], 4);
	assert_false(c->shape.no_rope_freq.is_list);
	assert_string_equal(c->run.dir, "ab");
	assert_int_equal(c->run.seed, 9000000000);
	assert_int_equal(c->run.data_path.count, 4);
	assert_string_equal(c->run.data_path.item[0], "1");
	assert_string_equal(c->run.data_path.item[1], "a # no comment");
	assert_string_equal(c->run.data_path.item[2], "0.25");
	assert_int_equal(c->run.moe_aux_loss_coeff.count, 2);
	assert_true(c->run.moe_aux_loss_coeff.item[0] == 0.01);
	assert_true(c->run.moe_z_loss_coeff == 1);
	assert_int_equal(c->run.moe_router_load_balancing_type.count, 2);
	assert_int_equal(c->shape.from[0].kind, ORIGIN_GIVEN);
	assert_int_equal(c->shape.from[0].line, 3);
}

static void test_findings_and_their_lines(void **state)
{
	static const char *const cases[][2] = {
		{"shape: {\n num_layers = 1;\n num_layers = 2;\n};",
		 "conf-duplicate:3"},
		{"run: { moe_aux_loss_coeff = [0.1, -1.0]; };", "conf-range:1"},
		{"run: { moe_aux_loss_coeff = (0.1, \"a\"); };", "conf-type:1"},
		{"run: { moe_aux_loss_coeff = []; };", "conf-range:1"},
		{"spec: { cuda_graph_modules = [\"attn\", \"al\"]; };",
		 "conf-choice:1"},
		{"spec: { cuda_graph_modules = \"attn\"; };", ""},
		{"shape: { };\nspec: {};\nshape: { num_layers = 1; };",
		 "conf-duplicate:3"},
		{"shape: {\n\n a = 1; a = 1; };",
		 "conf-duplicate:3 conf-unknown:3"},
		{"run: {\n seed = 2147483647;\n num_threads = 1;\n};", ""},
		{"run: {\n seed = 2147483648;\n};", "conf-int-literal:2"},
		{"run: {\n seed = 0x80000000;\n};", "conf-int-literal:2"},
		{"run: {\n seed = 0x8000000L;\n};", ""},
		{"run: {\n seed = -3000000000;\n};",
		 "conf-int-literal:2 conf-range:2"},
		{"run: {\n seed = 9007199254740992L;\n};", ""},
		{"run: {\n seed = 9007199254740993L;\n};", "conf-range:2"},
		{"run: {\n seed = 99999999999999999999L;\n};",
		 "conf-int-literal:2 conf-range:2"},
		{"run: {\n seed = 4294967298; dir = \"4294967298\"; };\n"
		 "# 4294967298",
		 "conf-int-literal:2"},
		{"run: {\n lr = \"x\";\n seed = 1.5;\n finetune = 1;\n"
		 " dir = 4;\n optimizer = true;\n data_path = {};\n};",
		 "conf-type:2 conf-type:3 conf-type:4 conf-type:5 "
		 "conf-type:6 conf-type:7"},
		{"shape: {\n no_rope_freq = [\"a\"];\n moe_layer_freq = ();"
		 "\n num_layers = [1];\n};",
		 "conf-type:2 conf-range:3 conf-type:4"},
		{"shape = 4;\nnum_layers = 3;\n\nfoo = 1;\nbar: {};",
		 "conf-type:1 conf-wrong-group:2 conf-group:4 conf-group:5"},
		{"run: { lr = 1e999; adam_beta1 = -1;\ndir = \"\"; };",
		 "conf-range:1 conf-range:1 conf-range:2"},
		{"", ""},
		{"   # nothing", ""},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		assert_string_equal(read_ids(cases[i][0], NULL), cases[i][1]);
}

/* What ends the reading: the line, and a part of what is said. */
static void test_no_config_at_all(void **state)
{
	static const struct {
		const char *text, *id, *message;
	} cases[] = {
		{"shape: {\n num_layers 4;\n};", "conf-syntax:2",
		 "'num_layers 4;'"},
		{"shape: {\n num_layers = 4;\n", "conf-syntax:1",
		 "ends before"},
		{"shape: (\n};", "conf-syntax:2", "'}' where a ')'"},
		{"a = 1;\n};", "conf-syntax:2", "closes nothing"},
		{"\nrun: { dir = \"abc;\n\n};", "conf-syntax:2", "closing \""},
		{"\n\n/* abc", "conf-syntax:3", "closing */"},
		{"@include \"none-of-this.inc\"", "conf-unreadable:1",
		 "cannot include '/tmp/none-of-this.inc': No such file"},
		{"\n@include none.inc\n", "conf-syntax:2", "stand alone"},
		{"\nshape: { @include \"a\" };", "conf-syntax:2",
		 "begin a line"},
		{"\n@import \"a\"", "conf-syntax:2", "begin a line"},
		{"\n@include \"/tmp\"", "conf-unreadable:2",
		 "'/tmp': Is a directory"},
		{"a = ((((((((((((((((((1))))))))))))))))));", "conf-syntax:1",
		 "more than 16 deep"},
		{"shape: { no_rope_freq = [1, \"a\"]; };", "conf-syntax:1",
		 "mismatched element type"},
	};
	struct report r;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		assert_null(config_of(cases[i].text, NULL, &r));
		assert_string_equal(ids(&r), cases[i].id);
		if (!strstr(r.list[0].message, cases[i].message))
			fail_msg("%s, wanted %s", r.list[0].message,
				 cases[i].message);
	}
}

/* Marks of other encodings are named, in included files as well. */
static void test_byte_order_marks(void **state)
{
	static const char *const cases[][2] = {
		{"\xef\xbb\xbfshape: { };", "UTF-8 byte order mark (EF BB BF): "
					    "save the file as UTF-8 without"},
		{"\xff\xfes", "UTF-16 byte order mark (FF FE): save the file "
			      "as UTF-8"},
		{"\xfe\xffs", "UTF-16 byte order mark (FE FF): save the file "
			      "as UTF-8"},
	};
	struct report r;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const char *file = file_of(cases[i][0]);

		assert_null(config_of(cases[i][0], NULL, &r));
		assert_string_equal(ids(&r), "conf-unreadable:1");
		assert_non_null(strstr(r.list[0].message, cases[i][1]));
		assert_null(config_of(
			arena_printf(&arena, "\n@include \"%s\"\n", file), NULL,
			&r));
		unlink(file);
		assert_string_equal(ids(&r), "conf-unreadable:1");
		assert_string_equal(r.list[0].file, file);
		assert_non_null(strstr(r.list[0].message, cases[i][1]));
	}
	assert_non_null(config_of("# \xef\xbb\xbf inside", NULL, &r));
	assert_string_equal(ids(&r), "");
}

/* A word without quotes: the type that is wanted, the way out. */
static void test_words_without_quotes(void **state)
{
	static const struct {
		const char *text, *set, *id, *message, *suggest;
	} cases[] = {
		{"", "run.seed=abc", "conf-set",
		 "'run.seed=abc': wants an integer, not 'abc'", NULL},
		{"", "run.lr=abc", "conf-set",
		 "'run.lr=abc': wants a number, not 'abc'", NULL},
		{"", "run.finetune=yes", "conf-set",
		 "'run.finetune=yes': wants true or false, not 'yes'", NULL},
		{"", "shape.moe_layer_freq=abc", "conf-set",
		 "'shape.moe_layer_freq=abc': wants an integer or a list of "
		 "integers, not 'abc'",
		 NULL},
		{"", "run.data_path=[1, /a/b.txt,c d]", "conf-set",
		 "'run.data_path=[1, /a/b.txt,c d]': wants a string or a list "
		 "of strings, not '[1, /a/b.txt,c d]'",
		 "'run.data_path=[\"1\", \"/a/b.txt\", \"c d\"]'"},
		{"", "run.dirr=abc", "conf-unknown", "unknown setting",
		 "run.dir"},
		{"", "place.dir=abc", "conf-wrong-group",
		 "'dir' belongs to group 'run'", "run.dir"},
		{"run: {\n dir = abc;\n};", NULL, "conf-syntax",
		 "syntax error at or before 'dir = abc;'", "dir = \"abc\""},
		{"run: {\n\tdir: a/b.c\n};", NULL, "conf-syntax",
		 "syntax error at or before 'dir: a/b.c'", "dir = \"a/b.c\""},
		{"run: {\n seed = 1 2;\n};", NULL, "conf-syntax",
		 "syntax error at or before 'seed = 1 2;'", NULL},
	};
	struct report r;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		config_of(cases[i].text, cases[i].set, &r);
		assert_int_equal(r.count, 1);
		assert_string_equal(r.list[0].id, cases[i].id);
		assert_string_equal(r.list[0].message, cases[i].message);
		assert_int_equal(r.list[0].suggests > 0, !!cases[i].suggest);
		if (cases[i].suggest)
			assert_string_equal(r.list[0].suggest[0],
					    cases[i].suggest);
	}
}

/*
 * Of every number in every table: what lies beyond its bounds is refused with
 * bounds that, written down, are themselves in range; so are the ways out.
 */
static void test_ranges_are_told(void **state)
{
	static const struct group *const groups[] = {&shape_group, &spec_group,
						     &place_group, &run_group};
	struct report r;

	(void)state;
	for (int i = 0; i < 4 * FIELDS_MAX; i++) {
		const struct group *g = groups[i / FIELDS_MAX];
		const struct field *f = &g->fields[i % FIELDS_MAX];
		const char *message;
		double low, high;

		if (i % FIELDS_MAX >= g->count ||
		    (f->type != FIELD_FLOAT && f->type != FIELD_INT))
			continue;
		config_of("",
			  arena_printf(&arena, "%s.%s=%s", g->name, f->name,
				       f->type == FIELD_INT
					       ? "-9007199254740993L"
					       : "-1e308"),
			  &r);
		assert_string_equal(ids(&r), "conf-range:0");
		message = strstr(r.list[0].message, "is not between ");
		assert_non_null(message);
		assert_int_equal(sscanf(message, "is not between %lf and %lf",
					&low, &high),
				 2);
		assert_true(low == f->min && high == f->max);
		assert_true(strtod(r.list[0].suggest[0], NULL) == f->min);
	}
	config_of("", "run.adam_beta2=1", &r);
	assert_string_equal(r.list[0].message,
			    "1 is not between 0 and 0.9999999999");
	assert_string_equal(r.list[0].suggest[0], "0.9999999999");
}

/* A folder of this test with FILES (name, text)*, ended by NULL. */
static const char *folder_of(const char *const *files)
{
	char *dir = arena_strdup(&arena, "/tmp/tri-dir-XXXXXX");

	assert_non_null(mkdtemp(dir));
	for (; *files; files += 2) {
		const char *path = arena_printf(&arena, "%s/%s", dir, files[0]);
		char *slash = strrchr(path, '/');
		FILE *f;

		*slash = 0;
		mkdir(path, 0777);
		*slash = '/';
		f = fopen(path, "w");
		assert_non_null(f);
		fputs(files[1], f);
		fclose(f);
	}
	return dir;
}

static void remove_folder(const char *dir)
{
	const char *command = arena_printf(&arena, "rm -r '%s'", dir);

	assert_int_equal(system(command), 0);
}

static void test_includes(void **state)
{
	static const char *const files[] = {
		"top.cfg",
		"@include \"sub/shape.inc\"\n"
		"place: {\n"
		"  @include \"sub/tp2.inc\"\n"
		"  pipeline_model_parallel_size = 0;\n"
		"};\n",
		"sub/shape.inc",
		"# two\nshape: {\n@include \"sizes.inc\"\n nope = 1; };",
		"sub/sizes.inc",
		"num_layers = 7;\nhidden_size = 8; num_layers = 9",
		"sub/tp2.inc",
		"tensor_model_parallel_size = 2;\n",
		NULL,
	};
	const char *dir = folder_of(files);
	struct config *c = arena_alloc(&arena, 1, sizeof(*c));
	struct report r = {.arena = &arena};
	struct err e;

	(void)state;
	assert_int_equal(config_load(arena_printf(&arena, "%s/top.cfg", dir),
				     NULL, 0, &arena, c, &r, &e),
			 0);
	assert_string_equal(ids(&r),
			    "conf-duplicate:2 conf-unknown:4 conf-range:4");
	assert_string_equal(r.list[0].file,
			    arena_printf(&arena, "%s/sub/sizes.inc", dir));
	assert_string_equal(r.list[1].file,
			    arena_printf(&arena, "%s/sub/shape.inc", dir));
	assert_string_equal(r.list[2].file,
			    arena_printf(&arena, "%s/top.cfg", dir));
	assert_int_equal(c->shape.num_layers, 7);
	assert_int_equal(c->shape.hidden_size, 8);
	assert_int_equal(c->shape.from[1].line, 2);
	assert_int_equal(c->place.tensor_model_parallel_size, 2);
	assert_int_equal(c->place.from[0].line, 1);
	remove_folder(dir);
}

static void test_include_cycle(void **state)
{
	static const char *const files[] = {"a.cfg", "@include \"b.cfg\"\n",
					    "b.cfg", "\n@include \"./a.cfg\"\n",
					    NULL};
	const char *dir = folder_of(files);
	struct config *c = arena_alloc(&arena, 1, sizeof(*c));
	struct report r = {.arena = &arena};
	struct err e;

	(void)state;
	assert_int_equal(config_load(arena_printf(&arena, "%s/a.cfg", dir),
				     NULL, 0, &arena, c, &r, &e),
			 -1);
	assert_int_equal(e.code, CODE_USAGE);
	assert_string_equal(ids(&r), "conf-unreadable:2");
	assert_non_null(strstr(e.text, "includes itself"));
	assert_non_null(strstr(e.text, "b.cfg:2: "));
	remove_folder(dir);
}

/* TEXT, COUNT times. */
static const char *times(const char *text, size_t count)
{
	size_t len = strlen(text);
	char *out = arena_alloc(&arena, len * count + 1, 1);

	for (size_t i = 0; i < count; i++)
		memcpy(out + i * len, text, len);
	return out;
}

static void test_too_much(void **state)
{
	const char *many = "";
	struct report r;

	(void)state;
	assert_null(config_of(times("# 8 byte", (1 << 17) + 1), NULL, &r));
	assert_string_equal(ids(&r), "conf-unreadable:0");
	assert_non_null(strstr(r.list[0].message, "longer than 1 MiB"));
	assert_non_null(config_of(times("# 7byte", 1 << 17), NULL, &r));
	many = times("a=1;", 5000);
	assert_null(config_of(many, NULL, &r));
	assert_string_equal(r.list[r.count - 1].id, "conf-unreadable");
	assert_non_null(strstr(r.list[r.count - 1].message, "4096 settings"));
}

static void test_did_you_mean(void **state)
{
	static const char *const cases[][2] = {
		{"shape: { hiden_size = 1; };", "shape.hidden_size"},
		{"shape: { num_layers_ = 1; };", "shape.num_layers"},
		{"place: { tensor_parallel_size = 1; };",
		 "place.tensor_model_parallel_size"},
		{"run: { norm_epsilon = 1; };", "shape.layernorm_epsilon"},
		{"place: { tp = 1; };", "place.tensor_model_parallel_size"},
		{"run: { num_layers = 1; };", "shape.num_layers"},
		{"shapes: { };", "shape"},
		{"placement: { };", "place"},
		{"shape: { normalization = \"rmsnorm\"; };", "\"RMSNorm\""},
		{"run: { finetune = 0; };", "false"},
		{"run: { seed = 3000000000; };", "3000000000L"},
		{"place: { context_parallel_size = 0; };", "1"},
	};
	struct report r;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		assert_non_null(config_of(cases[i][0], NULL, &r));
		assert_int_equal(r.count, 1);
		assert_true(r.list[0].suggests > 0);
		assert_string_equal(r.list[0].suggest[0], cases[i][1]);
	}
	config_of("shape: { xyzzy_plugh = 1; };", NULL, &r);
	assert_int_equal(r.list[0].suggests, 0);
}

static void test_sets(void **state)
{
	struct report r;
	struct config *c;

	(void)state;
	c = config_of("run: { seed = 1; };", "run.seed=2", &r);
	assert_string_equal(ids(&r), "");
	assert_int_equal(c->run.seed, 2);
	assert_string_equal(field_from(&run_group, &c->run, &c->run.seed)->file,
			    "--set");
	c = config_of("", "run.dir=/a b=c", &r);
	assert_string_equal(c->run.dir, "/a b=c");
	c = config_of("", "run.dir=\"/q\"", &r);
	assert_string_equal(c->run.dir, "/q");
	c = config_of("", "shape.normalization=RMSNorm", &r);
	assert_int_equal(c->shape.normalization, NORM_RMSNORM);
	c = config_of("", "run.data_path=[\"1\",\"a\"]", &r);
	assert_int_equal(c->run.data_path.count, 2);
	c = config_of("", "run.lr=3", &r);
	assert_true(c->run.lr == 3);
	assert_string_equal(read_ids("", "run.seed=3000000000"),
			    "conf-int-literal:0");
	assert_string_equal(read_ids("", "seed=3"), "conf-set:0");
	assert_string_equal(read_ids("", "run.seed"), "conf-set:0");
	assert_string_equal(read_ids("", "run.seed="), "conf-set:0");
	assert_string_equal(read_ids("", "run.seed=1;run.x=2"), "conf-set:0");
	assert_string_equal(read_ids("", "run.seed=1; a=2"), "conf-set:0");
	assert_string_equal(read_ids("", "run.sed=1"), "conf-unknown:0");
	assert_string_equal(read_ids("", "ran.seed=1"), "conf-group:0");
	assert_string_equal(read_ids("", "place.seed=1"), "conf-wrong-group:0");
	assert_string_equal(read_ids("", "run.seed={"), "conf-syntax:0");
	assert_string_equal(read_ids("", "run.seed=x"), "conf-set:0");
	assert_string_equal(read_ids("", "run.seed=-1"), "conf-range:0");
}

static const char *finalised(const char *text, struct report *r)
{
	struct config *c = config_of(text, NULL, r);

	if (!c)
		return "";
	config_finish(c, 8, r);
	return config_text(c, &arena);
}

/* The text without its comments. */
static const char *bare(const char *text)
{
	char *copy = arena_strdup(&arena, text), *out = copy;

	for (; *text; text++) {
		if (*text == '#')
			text += strcspn(text, "\n");
		*out++ = *text;
	}
	*out = 0;
	return copy;
}

/* A finalised file says the same when it is read again. */
static void test_finalised_twice(void **state)
{
	static const char *const more[] = {
		"",
		"place: { tensor_model_parallel_size = 2; "
		"pipeline_model_parallel_size = 2; "
		"num_layers_per_virtual_pipeline_stage = 1; };",
		"place: { pipeline_model_parallel_size = 2; "
		"pipeline_model_parallel_layout = \"E t | t | t , t|L\"; "
		"bucket_size = 40000000000L; "
		"use_distributed_optimizer = true; };",
	};
	struct report r, r2;

	(void)state;
	for (size_t i = 0; i < sizeof(more) / sizeof(*more); i++) {
		const char *once = finalised(
			arena_printf(&arena, WHOLE "%s", more[i]), &r);
		const char *twice = finalised(once, &r2);

		assert_int_equal(report_count(&r, WARNING), 0);
		assert_int_equal(r.count, r2.count);
		assert_string_equal(bare(once), bare(twice));
		assert_null(strstr(twice, "# derived"));
	}
}

static void test_says_where_values_come_from(void **state)
{
	struct report r;
	const char *text = finalised(WHOLE, &r);

	(void)state;
	assert_non_null(strstr(text, "\tffn_hidden_size = 192; "
				     "# derived: 4 * hidden_size\n"));
	assert_non_null(strstr(text, "\tseq_length = 1024; # default\n"));
	assert_non_null(strstr(text, "\tnum_layers = 4; # given: /tmp/tri-"));
	assert_non_null(strstr(text, "\t# softmax_scale is unset (of the"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_values),
		TEST(test_findings_and_their_lines),
		TEST(test_no_config_at_all),
		TEST(test_byte_order_marks),
		TEST(test_words_without_quotes),
		TEST(test_ranges_are_told),
		TEST(test_includes),
		TEST(test_include_cycle),
		TEST(test_too_much),
		TEST(test_did_you_mean),
		TEST(test_sets),
		TEST(test_finalised_twice),
		TEST(test_says_where_values_come_from),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
