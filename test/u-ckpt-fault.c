/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Damage: any flipped byte is found, and whatever a file claims leads to one
 * clear error.  More of each with TRISECT_LONG=1.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
/* after those: */
#include <cmocka.h>
#include <hdf5.h>

#include "ckpt/crc.h"
#include "ckpt/io.h"
#include "ckpt/pack.h"
#include "ckpt/tools.h"
#include "test/ckpt-sim.h"

#define MODEL                                                                  \
	"shape.num_layers=2 shape.hidden_size=16 shape.num_attention_heads=2 " \
	"shape.vocab_size=30 shape.seq_length=8 "                              \
	"place.make_vocab_size_divisible_by=4 "                                \
	"place.tensor_model_parallel_size=2 "

static char dir[64];
static struct sim sim;
static char said[4096]; /* what ckpt_newest told, all lines */
static uint64_t state = 1;

static uint64_t below(uint64_t n)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (state >> 33) % n;
}

static int rounds(int few, int many)
{
	return getenv("TRISECT_LONG") ? many : few;
}

static const char *path_of(const char *name)
{
	static char path[4][200];
	static int turn;

	turn = (turn + 1) % 4;
	snprintf(path[turn], sizeof(path[turn]), "%s/%s", dir, name);
	return path[turn];
}

#define STEP "step_00000020/"

static const char *const files[] = {
	STEP "MANIFEST", STEP "manifest.h5", STEP "model/pp00-tp00.h5",
	STEP "model/pp00-tp01.h5", STEP "optim/pp00-tp00-d001.h5"};
enum { FILES = sizeof(files) / sizeof(*files), MODEL0 = 2 };

/* Steps 10 and 20; the damage is done to 20. */
static int setup(void **unused)
{
	(void)unused;
	snprintf(dir, sizeof(dir), "%s/u-ckpt-fault.XXXXXX",
		 access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
	sim_open(&sim, MODEL, 4);
	if (!mkdtemp(dir) || sim_save(&sim, dir))
		return -1;
	sim.progress.step = 20;
	return sim_save(&sim, dir);
}

static int teardown(void **unused)
{
	(void)unused;
	io_remove(dir);
	sim_close(&sim);
	return 0;
}

static void say(const char *line)
{
	size_t used = strlen(said);

	snprintf(said + used, sizeof(said) - used, "%s\n", line);
}

static int64_t newest(void)
{
	int64_t step;
	struct err e;

	*said = 0;
	if (ckpt_newest(dir, &sim.config.shape, say, &step, &e))
		fail_msg("%s", e.text);
	return step;
}

static int verify(struct err *e)
{
	memset(e, 0, sizeof(*e));
	return ckpt_verify(path_of("step_00000020"), NULL, NULL, e);
}

static int64_t size_of(const char *name)
{
	struct stat st;

	assert_int_equal(stat(path_of(name), &st), 0);
	return st.st_size;
}

static void flip(const char *name, int64_t at, int bit)
{
	int fd = open(path_of(name), O_RDWR);
	unsigned char byte;

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &byte, 1, at), 1);
	byte = (unsigned char)(byte ^ 1 << bit);
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	close(fd);
}

/* Any bit of any file: verify sees it, and a resume never takes nonsense. */
static void test_flips(void **unused)
{
	int n = rounds(60, 1000);
	struct err e;

	(void)unused;
	assert_int_equal(verify(&e), 0);
	assert_int_equal(newest(), 20);
	for (int i = 0; i < n * FILES; i++) {
		const char *name = files[i % FILES];
		int64_t at = (int64_t)below((uint64_t)size_of(name));
		int bit = (int)below(8), payload = i % FILES >= MODEL0;

		flip(name, at, bit);
		if (!verify(&e))
			fail_msg("%s: bit %d of byte %" PRId64 " unnoticed",
				 name, bit, at);
		assert_int_equal(e.code, CODE_CKPT);
		/* A payload's checksum is compared when it is loaded. */
		if (newest() == 20 && payload) {
			assert_int_equal(sim_load(&sim, dir, &e), -1);
			assert_int_equal(e.code, CODE_CKPT);
			assert_non_null(strstr(e.text, "is damaged"));
		} else {
			assert_int_equal(newest(), 10);
			assert_non_null(strstr(said, "step_00000020"));
		}
		flip(name, at, bit);
	}
	assert_int_equal(verify(&e), 0);
}

static void keep(const char *name)
{
	assert_int_equal(rename(path_of(name), path_of("kept")), 0);
}

static void put_back(const char *name)
{
	assert_int_equal(rename(path_of("kept"), path_of(name)), 0);
}

static void copy(const char *from, const char *to)
{
	char command[512];

	snprintf(command, sizeof(command), "cp %s %s", path_of(from),
		 path_of(to));
	assert_int_equal(system(command), 0);
}

static void falls_back(void)
{
	struct err e;

	assert_int_equal(verify(&e), -1);
	assert_int_equal(e.code, CODE_CKPT);
	assert_int_equal(newest(), 10);
	assert_int_equal(sim_load(&sim, dir, &e), 0);
}

static void test_lengths(void **unused)
{
	(void)unused;
	for (int i = 0; i < FILES; i++) {
		int64_t size = size_of(files[i]);

		for (int k = 0; k < 6; k++) {
			int64_t length =
				k == 0	 ? 0
				: k == 1 ? size - 1
				: k == 2 ? size + 1
					 : (int64_t)below((uint64_t)size);

			keep(files[i]);
			copy("kept", files[i]);
			assert_int_equal(truncate(path_of(files[i]), length),
					 0);
			falls_back();
			put_back(files[i]);
		}
		keep(files[i]);
		falls_back();
		put_back(files[i]);
	}
	assert_int_equal(newest(), 20);
}

/* The same file of another step: its payloads are as good, and as long. */
static void test_swapped(void **unused)
{
	const char *other = "step_00000010/model/pp00-tp00.h5";
	struct err e;

	(void)unused;
	assert_int_equal(size_of(files[MODEL0]), size_of(other));
	keep(files[MODEL0]);
	copy(other, files[MODEL0]);
	falls_back();
	/* Without a look at everything first, too. */
	assert_int_equal(sim_load(&sim, path_of("step_00000020"), &e), -1);
	assert_int_equal(e.code, CODE_CKPT);
	assert_non_null(strstr(e.text, "model/pp00-tp00.h5 is damaged"));
	/* The file of another rank is not even as long. */
	copy(STEP "model/pp00-tp01.h5", files[MODEL0]);
	falls_back();
	put_back(files[MODEL0]);
	assert_int_equal(newest(), 20);
}

/* LATEST is only a hint, and other names are no steps. */
static void test_latest(void **unused)
{
	struct err e;

	(void)unused;
	assert_int_equal(
		io_write_text(path_of("LATEST"), "step_00000099\n", &e), 0);
	assert_int_equal(mkdir(path_of("step_00000099.bak"), 0777), 0);
	assert_int_equal(mkdir(path_of("step_30"), 0777), 0);
	assert_int_equal(newest(), 20);
	assert_string_equal(said, "");
	assert_int_equal(unlink(path_of("LATEST")), 0);
	assert_int_equal(newest(), 20);
	/* A folder of that name with nothing in it: passed over, aloud. */
	assert_int_equal(mkdir(path_of("step_00000030"), 0777), 0);
	assert_int_equal(newest(), 20);
	assert_non_null(strstr(said, "step_00000030"));
	assert_int_equal(rmdir(path_of("step_00000030")), 0);
}

/* Candidates that are all bad are an error, never a fresh start. */
static void test_all_bad(void **unused)
{
	int64_t step = 0;
	struct ckpt *c;
	struct err e;

	(void)unused;
	flip(STEP "MANIFEST", 30, 0);
	flip("step_00000010/MANIFEST", 30, 0);
	assert_int_equal(ckpt_newest(dir, NULL, NULL, &step, &e), -1);
	assert_int_equal(e.code, CODE_CKPT);
	assert_int_equal(step, -1);
	assert_non_null(strstr(e.text, "none of 2 checkpoints"));
	assert_int_equal(ckpt_open(&c, dir, NULL, NULL, &e), -1);
	flip(STEP "MANIFEST", 30, 0);
	flip("step_00000010/MANIFEST", 30, 0);
	assert_int_equal(ckpt_open(&c, path_of("nowhere"), NULL, NULL, &e), -1);
	assert_int_equal(e.code, CODE_CKPT);
}

static void test_other_shape(void **unused)
{
	struct sim other;
	int64_t step;
	struct err e;

	(void)unused;
	sim_open(&other,
		 MODEL "shape.ffn_hidden_size=32 "
		       "shape.normalization=RMSNorm",
		 4);
	assert_int_equal(sim_load(&other, dir, &e), -1);
	assert_int_equal(e.code, CODE_CKPT);
	assert_non_null(strstr(e.text, "ffn_hidden_size 64 / 32"));
	assert_non_null(strstr(e.text, "normalization"));
	assert_null(strstr(e.text, "hidden_size 16"));
	assert_int_equal(ckpt_newest(dir, &other.config.shape, say, &step, &e),
			 -1);
	assert_non_null(strstr(e.text, "ffn_hidden_size 64 / 32"));
	sim_close(&other);
}

/* Bring the manifest up to date with what was done to its files. */
static void reseal(const char *name)
{
	struct manifest_file *f = NULL;
	struct arena a = {0};
	struct manifest m;
	struct err e;
	int fd;

	assert_int_equal(arena_open(&a, &e), 0);
	assert_int_equal(manifest_read(&m, path_of("step_00000020"), &a, &e),
			 0);
	if (!strcmp(name, FORMAT_INDEX))
		f = &m.index;
	for (int i = 0; i < m.count; i++)
		if (!strcmp(m.files[i].name, name))
			f = &m.files[i];
	assert_non_null(f);
	fd = open(arena_printf(&a, "%s/" STEP "%s", dir, name), O_RDONLY);
	f->size = lseek(fd, 0, SEEK_END);
	f->crc = 0;
	if (f == &m.index) {
		assert_int_equal(io_checksum(fd, 0, f->size, name, &f->crc, &e),
				 0);
	} else {
		struct ckpt *c;
		struct extent part[256];
		int64_t n;

		assert_int_equal(
			ckpt_open(&c, path_of("step_00000010"), NULL, NULL, &e),
			0);
		n = index_extents(&c->index, (int)(f - m.files), part);
		assert_int_equal(
			pack_between(fd, part, n, f->size, name, &f->crc, &e),
			0);
		ckpt_close(c);
	}
	close(fd);
	assert_int_equal(manifest_write(&m, path_of("step_00000020"), &e), 0);
	arena_close(&a);
}

static void keep_both(void)
{
	copy(STEP "manifest.h5", "index.kept");
	copy(STEP "MANIFEST", "manifest.kept");
}

static void put_back_both(void)
{
	copy("index.kept", STEP "manifest.h5");
	copy("manifest.kept", STEP "MANIFEST");
}

/* Bytes N at offset AT of row ROW of manifest.h5's index. */
static void change_row(int row, size_t at, const void *bytes, size_t n)
{
	hid_t file = H5Fopen(path_of(STEP "manifest.h5"), H5F_ACC_RDONLY,
			     H5P_DEFAULT);
	hid_t set = H5Dopen2(file, FORMAT_ROWS, H5P_DEFAULT);
	haddr_t where = H5Dget_offset(set);
	int fd = open(path_of(STEP "manifest.h5"), O_WRONLY);

	H5Dclose(set);
	H5Fclose(file);
	assert_int_equal(
		pwrite(fd, bytes, n,
		       (off_t)(where + (size_t)row * sizeof(struct format_row) +
			       at)),
		n);
	close(fd);
	reseal(FORMAT_INDEX);
}

#define ROW(field) offsetof(struct format_row, field)

/* Claims that cannot be true, under good checksums. */
static void test_claims(void **unused)
{
	static const struct {
		size_t at;
		int size;
		int64_t value;
		const char *why;
	} claims[] = {
		{ROW(name), 1, 'x', "no such weight"},
		{ROW(name) + FORMAT_NAME - 1, 1, 'x', "name is too long"},
		{ROW(shape), 8, 29, "box is not within"},
		{ROW(shape) + 24, 8, 1, "box is not within"},
		{ROW(off), 8, -1, "box is not within"},
		{ROW(off), 8, 15, "box is not within"},
		{ROW(off), 8, INT64_MAX, "box is not within"},
		{ROW(cnt), 8, 0, "box is not within"},
		{ROW(cnt), 8, INT64_MAX, "box is not within"},
		{ROW(lo), 8, -1, "interval is not within"},
		{ROW(lo), 8, INT64_MIN, "interval is not within"},
		{ROW(hi), 8, INT64_MAX, "interval is not within"},
		{ROW(hi), 8, 0, "interval is not within"},
		{ROW(hi), 8, 3, "bytes are not its elements'"},
		{ROW(bytes), 8, INT64_MAX, "bytes are not its elements'"},
		{ROW(at), 8, -1, "outside the file"},
		{ROW(at), 8, INT64_MAX, "outside the file"},
		{ROW(at), 8, 1 << 30, "outside the file"},
		{ROW(file), 4, 99, "not in the manifest"},
		{ROW(file), 4, 1, "order of the files"},
		{ROW(replica), 4, -1, "replica number"},
		{ROW(replica), 4, 1, "bytes are not its elements'"},
		{ROW(role), 1, 9, "role or dtype unknown"},
		{ROW(role), 1, ROLE_MASTER, "are in no file"},
		{ROW(dtype), 1, 9, "role or dtype unknown"},
		{ROW(dtype), 1, CKPT_BF16, "bytes are not its elements'"},
		{ROW(ndim), 1, 1, "box is not within"},
		{ROW(ndim), 1, 255, "box is not within"},
	};
	struct err e;

	(void)unused;
	keep_both();
	for (size_t i = 0; i < sizeof(claims) / sizeof(*claims); i++) {
		change_row(0, claims[i].at, &claims[i].value,
			   (size_t)claims[i].size);
		assert_int_equal(verify(&e), -1);
		assert_int_equal(e.code, CODE_CKPT);
		if (!strstr(e.text, claims[i].why))
			fail_msg("claim %zu: wanted '%s', got '%s'", i,
				 claims[i].why, e.text);
		put_back_both();
	}
	assert_int_equal(verify(&e), 0);
}

/* Any bytes in the rows, under good checksums: an answer, never a crash. */
static void test_random_claims(void **unused)
{
	int n = rounds(150, 3000);
	struct err e;

	(void)unused;
	keep_both();
	for (int i = 0; i < n; i++) {
		char bytes[8];
		size_t size = 1 + below(sizeof(bytes));

		for (size_t k = 0; k < sizeof(bytes); k++)
			bytes[k] = (char)(below(2) ? below(256) : 255);
		change_row((int)below(20),
			   below(sizeof(struct format_row) - sizeof(bytes)),
			   bytes, size);
		if (verify(&e))
			assert_int_equal(e.code, CODE_CKPT);
		put_back_both();
	}
	assert_int_equal(verify(&e), 0);
}

/* A weight twice, and a copy that is none. */
static void test_coverage(void **unused)
{
	struct format_row row;
	struct arena a = {0};
	struct ckpt *c;
	struct err e;
	int first = -1, other = -1, replica = -1;
	uint32_t crc;

	(void)unused;
	assert_int_equal(arena_open(&a, &e), 0);
	assert_int_equal(
		ckpt_open(&c, path_of("step_00000020"), NULL, NULL, &e), 0);
	for (int i = 0; i < c->index.count; i++) {
		const struct row *r = &c->index.list[i];
		const char *name = c->weights.list[r->piece.weight].name;

		if (r->piece.role != ROLE_PARAM)
			continue;
		if (!strcmp(name, "layers/0000/mlp/fc1/w"))
			*(first < 0 ? &first : &other) = i;
		if (r->piece.replica && replica < 0)
			replica = i;
	}
	index_encode(&row, &c->index.list[first],
		     &c->weights.list[c->index.list[first].piece.weight]);
	crc = c->index.list[replica].crc ^ 1;
	ckpt_close(c);
	keep_both();
	/* The second half claims to be the first. */
	change_row(other, ROW(off), row.off, sizeof(row.off));
	assert_int_equal(verify(&e), -1);
	assert_non_null(strstr(e.text, "mlp/fc1/w: the same elements are in "
				       "model/pp00-tp0"));
	put_back_both();
	change_row(replica, ROW(crc), &crc, sizeof(crc));
	assert_int_equal(verify(&e), -1);
	assert_non_null(strstr(e.text, "is not what"));
	put_back_both();
	arena_close(&a);
}

/* A dataset that the index does not know, in a file that is resealed. */
static void test_extra_dataset(void **unused)
{
	hsize_t n = 3;
	hid_t file, space, set;
	struct err e;

	(void)unused;
	keep_both();
	keep(files[MODEL0]);
	copy("kept", files[MODEL0]);
	file = H5Fopen(path_of(files[MODEL0]), H5F_ACC_RDWR, H5P_DEFAULT);
	space = H5Screate_simple(1, &n, NULL);
	set = H5Dcreate2(file, "/data/param/extra", H5T_IEEE_F32LE, space,
			 H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
	assert_true(set >= 0);
	H5Dclose(set);
	H5Sclose(space);
	H5Fclose(file);
	assert_int_equal(verify(&e), -1);
	reseal("model/pp00-tp00.h5");
	*said = 0;
	assert_int_equal(ckpt_verify(path_of("step_00000020"), say, NULL, &e),
			 -1);
	assert_int_equal(e.code, CODE_CKPT);
	assert_non_null(strstr(said, "datasets, the index has"));
	put_back(files[MODEL0]);
	put_back_both();
	assert_int_equal(verify(&e), 0);
}

/* A manifest with a sound checksum around nonsense. */
static void test_manifest_text(void **unused)
{
	static const char *const texts[] = {
		"",
		"format = 2;\n",
		"format = 1;\n",
		"format = 1; step = 20; nonce = \"1\";\n",
		"format = \"1\"; step = -1;\n",
		"} not a config\n",
		"format = 1; step = 20; nonce = \"0000000000000abc\"; "
		"shape_hash = \"00000000000000000000000000000000\"; "
		"index = { name = \"../x.h5\"; size = 1L; rows = 0; "
		"crc = \"00000000\"; }; files = ();\n",
		"format = 1; step = 20; nonce = \"0000000000000abc\"; "
		"shape_hash = \"00000000000000000000000000000000\"; "
		"index = { name = \"manifest.h5\"; size = -1L; rows = 0; "
		"crc = \"00000000\"; }; files = ();\n",
		"format = 1; step = 20; nonce = \"0000000000000abc\"; "
		"shape_hash = \"00000000000000000000000000000000\"; "
		"index = { name = \"manifest.h5\"; size = 99L; "
		"rows = 1000000000; crc = \"00000000\"; }; files = ({ "
		"name = \"model/a.h5\"; size = 1L; rows = 1000000000; "
		"crc = \"00000000\"; });\n",
	};
	struct err e;
	char text[1024];

	(void)unused;
	keep_both();
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		snprintf(text, sizeof(text), "%sself = \"%08x\";\n", texts[i],
			 crc32c(0, texts[i], strlen(texts[i])));
		assert_int_equal(
			io_write_text(path_of(STEP "MANIFEST"), text, &e), 0);
		falls_back();
	}
	put_back_both();
	assert_int_equal(newest(), 20);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_flips),	  TEST(test_lengths),
		TEST(test_swapped),	  TEST(test_latest),
		TEST(test_all_bad),	  TEST(test_other_shape),
		TEST(test_claims),	  TEST(test_random_claims),
		TEST(test_coverage),	  TEST(test_extra_dataset),
		TEST(test_manifest_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
